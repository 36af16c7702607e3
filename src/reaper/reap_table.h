/*-------------------------------------------------------------------------
 *
 * reap_table.h
 *	  What deletion keeps of a table and of a batch, and the steps of a batch.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAP_TABLE_H
#define TTL_REAP_TABLE_H

#include "container/container.h"
#include "counters.h"
#include "datatype/timestamp.h"
#include "expiry/expiry.h"
#include "nodes/pg_list.h"
#include "tids.h"
#include "utils/elog.h"
#include "utils/relcache.h"

/* How long a container is left alone whose deletion has ended a worker, and the longest pause of a table */
#define TTL_LONGEST_PAUSE	(300 * USECS_PER_SEC)

/*
 * A pass scans the expired range of a table once, up to what had expired when it
 * began.  Rows that cannot be deleted are counted and skipped; the next pass
 * meets them again.
 */
typedef struct TtlPass
{
	bool		is_running;
	bool		is_stale;		/* table or policy have changed since it began */
	bool		skip_locked;	/* one has met locked rows, which it skips */
	TimestampTz now;			/* it covers rows that had expired by then */
	TimestampTz next_at;		/* start of the next pass */
	int64		busy;			/* time spent on finding rows, and on failing
								 * to delete them, in microseconds */
	int64		blocked;		/* rows that could not be deleted, since it
								 * began */
	int64		last_blocked;	/* ... and during the pass before; during the
								 * first, the container's by the statistics */
	int			nlogged;		/* errors that have been logged */
	bool		raises;			/* rows have been blocked one by one since it
								 * began */
	int			n_single;		/* so many rows are deleted one by one */
	TtlExpiryPosition position; /* rows before it are deleted, or skipped; it
								 * advances between passes, too */
} TtlPass;

StaticAssertDecl(sizeof(TtlPass) <= TTL_PASS_SIZE, "a pass must fit into the statistics");

/* The state kept for a table */
typedef struct TtlReapRel
{
	Oid			relid;			/* MUST BE FIRST */
	TtlPass		pass;
	bool		is_known;		/* a pass has ended, in an earlier worker
								 * perhaps */
	int64		pause;			/* after an error for which no row is to
								 * blame, in microseconds; 0 = rows have been
								 * dealt with since */
	bool		is_failing;		/* so it is, and last_error says why */
	int64		lock_waits;		/* time that rows have waited for a lock in
								 * vain, in this turn, in microseconds */

	TtlTids		tids;			/* collected, to be deleted in batches */
	int			next_tid;		/* the first that has not been */
	int			checked;		/* rows before it are referenced by none */
	int			blocked_until;	/* rows of which it isn't known which are
								 * blocked are before it */
	TtlExpiryPosition *marks;	/* positions behind each so many of them, or
								 * NULL */
	int			nmarks;
	int			mark_every;
	int64		blocked;		/* skipped rows that are not yet in the pass's
								 * count */
	TtlExpiryPosition next_position;	/* the position when all TIDs are done */
	TtlExpiryPosition front;	/* rows before it are deleted or blocked:
								 * unlike the position, it does not go back
								 * with each pass */
	bool		more;			/* the scan stopped before the end */
	bool		skip_referenced_check;	/* the check has failed in this pass */

	int			batch_size;		/* rows of the next batch, 0 = unknown */
	double		row_cost;		/* of the last batch, 0 = unknown */
} TtlReapRel;

/* How a caller wants expired rows to be deleted. */
typedef struct TtlReapMode
{
	bool		by_worker;		/* heeds "reaping", waits for no lock, handles
								 * errors itself; a user's call does not */
	bool		commits;		/* a transaction for each batch */
	TransactionId next_xid;		/* rows written by this transaction and later
								 * ones stay; InvalidTransactionId = none does */
} TtlReapMode;

/* What deletion from all tables shares; local to a process */
typedef struct TtlMemory
{
	TtlReapMode mode;
	MemoryContext context;
	MemoryContext batch_context;	/* reset after each batch */
} TtlMemory;

/* Whether the deletion from a table goes on */
typedef enum TtlReapResult
{
	TTL_REAP_MORE,				/* there is more to do: cost, rows or time are
								 * used up */
	TTL_REAP_DONE,				/* nothing is left to delete now */
	TTL_REAP_LATER				/* put off, or paused after an error */
} TtlReapResult;

/* A batch: what one transaction does to a table */
typedef struct TtlBatch
{
	TtlMemory  *memory;
	TtlReapRel *reap_rel;
	TtlContainer container;
	Relation	rel;
	TimestampTz now;			/* rows that had expired by then are deleted;
								 * in a pass, at the latest when it began */
	int64		max_cost;		/* what is left of the turn's */
	int64		max_batch_cost;
	int64		max_rows;

	TimestampTz again_at;		/* when there will be rows to delete, or 0 */
	TimestampTz deadline;		/* by ttl.batch_timeout, 0 = not yet set, or
								 * none */
	bool		timed_out;		/* the attempt has been canceled by it */
	bool		in_trigger;		/* the attempt's error was raised within a
								 * trigger */
	List	   *references;		/* ErrorData of those that do */

	/* the deletion */
	ItemPointer tids;
	int			ntids;
	int64		deleted;
	bool		origin_wanted;	/* about to take the replication origin */
	bool		works_without_rows;
} TtlBatch;

/*
 * pass.c: which rows are next
 */

extern void ttl_pass_resume(TtlReapRel *reap_rel, Oid relid, const TtlContainerCounters *counters);
extern void ttl_pass_restart(TtlReapRel *reap_rel);
extern void ttl_pass_clear(TtlReapRel *reap_rel);
extern void ttl_pass_discard(TtlReapRel *reap_rel);
extern void ttl_pass_forget(TtlReapRel *reap_rel);
extern void ttl_pass_end_pause(TtlReapRel *reap_rel);
extern void ttl_pass_note_blocked(TtlReapRel *reap_rel, int until);
extern void ttl_pass_move_to_mark(TtlReapRel *reap_rel);
extern bool ttl_pass_advance(TtlReapRel *reap_rel);
extern bool ttl_pass_find_due(TtlBatch *batch);
extern void ttl_pass_scan(TtlBatch *batch);
extern void ttl_pass_finish(TtlBatch *batch);
extern void ttl_pass_end_empty(TtlBatch *batch);
extern void ttl_pass_set_front(TtlReapRel *reap_rel);

/*
 * attempt.c
 */

extern ErrorData *ttl_attempt(void (*action) (TtlBatch *), TtlBatch *batch, bool has_deadline);
extern bool ttl_attempt_is_running(void);
extern bool ttl_attempt_handle_exit(bool is_terminated);

/*
 * fk_referenced.c
 */

extern bool ttl_fk_referenced_is_possible(const TtlBatch *batch);
extern void ttl_fk_referenced_leave_out(TtlBatch *batch);

/*
 * delete_tids.c
 */

extern void ttl_delete_tids(TtlBatch *batch);
extern void ttl_delete_nothing(TtlBatch *batch);

/*
 * blame.c
 */

/* Whose error it is */
typedef enum TtlBlame
{
	TTL_BLAME_ROW,				/* one of the batch's */
	TTL_BLAME_TABLE,			/* no row of the table can be deleted until
								 * somebody acts */
	TTL_BLAME_NOBODY			/* it passes by itself */
} TtlBlame;

extern TtlBlame ttl_blame(TtlBatch *batch, ErrorData **error);
extern bool ttl_blame_lacks_origin(const TtlBatch *batch, const ErrorData *error);
extern TtlReapResult ttl_blame_leave_table(TtlBatch *batch, TtlBlame whose, ErrorData *error);
extern TtlReapResult ttl_blame_leave_locked(TtlBatch *batch, const char *message, Oid relid);
extern void ttl_blame_block_row(TtlBatch *batch, const ErrorData *error);
extern void ttl_blame_report_blocked(TtlBatch *batch, const ErrorData *error);

/*
 * open_table.c
 */

extern TtlReapResult ttl_open_table(TtlBatch *batch, Oid container);

/*
 * batch.c
 */

extern TtlReapResult ttl_batch_check_rows(TtlBatch *batch);
extern TtlReapResult ttl_batch_delete(TtlBatch *batch);

#endif							/* TTL_REAP_TABLE_H */
