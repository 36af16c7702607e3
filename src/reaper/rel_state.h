/*-------------------------------------------------------------------------
 *
 * rel_state.h
 *	  The state of deletion from a table that outlives a worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REL_STATE_H
#define TTL_REL_STATE_H

#include "datatype/timestamp.h"
#include "expiry/expiry.h"

/*
 * A pass goes once along the expired range of a table, up to what had expired when
 * it began.  Rows that can't be deleted are counted and left behind; the next pass
 * meets them again.
 */
typedef struct TtlPass
{
	bool		is_running;
	bool		is_stale;		/* table or policy have changed since it began */
	bool		skipped_locked; /* it has left out locked rows */
	TimestampTz now;			/* it covers rows that had expired by then */
	TimestampTz next_at;		/* start of the next pass */
	int64		busy;			/* time spent on finding rows, and on failing to
								 * delete them, in microseconds */
	int64		blocked;		/* rows that could not be deleted, since it began */
	int64		last_blocked;	/* ... and during the pass before */

	/* what is logged already */
	int64		raised;			/* rows of 'blocked' whose deletion failed */
	int64		last_raised;
	bool		references;		/* are others of them referenced? */
	bool		last_references;
	bool		references_logged;
} TtlPass;

/* A sweep of a table that has BRIN indexes, see brin_scan.c */
typedef struct TtlBrinScan
{
	bool		is_running;
	bool		is_truncation;		/* from the first page */
	bool		is_within_range;	/* has it stopped there? */
	bool		found;			/* rows to delete */
	TtlExpiryPosition mark;
	BlockNumber npages;			/* when it began */
	int32		default_ttl;	/* by which it goes */
	int64		ranges;			/* it has seen */
	TimestampTz busy;			/* how long it has taken */
	TimestampTz earliest;		/* expiry in ranges that it has passed by */
	TimestampTz next_at;		/* when the next one begins, from the first
								 * page */
} TtlBrinScan;

typedef struct TtlRelState
{
	TtlPass		pass;
	TtlExpiryPosition mark;			/* rows before it are deleted, or left behind */
	TtlBrinScan	sweep;
	TimestampTz paused_until;	/* the table itself is in trouble */
	int64		pause;			/* length of the next such pause */
	int			trouble;		/* SQLSTATE of the error that was logged for it */
	bool		is_stuck;		/* has a batch timed out since rows of it were
								 * deleted? */
	int			single;			/* so many places are deleted one by one */
} TtlRelState;

/* Tables of this database: stores the state, as long as there is room. */
extern void ttl_rel_state_put(Oid relid, const TtlRelState *state);
extern void ttl_rel_state_remove(Oid relid);

/* Calls the function for each stored state of this database. */
typedef void (*TtlRelStateVisitor) (Oid relid, const TtlRelState *state, void *arg);
extern void ttl_rel_state_visit(TtlRelStateVisitor visit, void *arg);

extern void ttl_rel_state_forget_database(Oid dboid);

extern void ttl_rel_state_init(void);

#endif							/* TTL_REL_STATE_H */
