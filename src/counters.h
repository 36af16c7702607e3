/*-------------------------------------------------------------------------
 *
 * counters.h
 *	  Cumulative statistics of containers and databases, and what a worker leaves to the next one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_COUNTERS_H
#define TTL_COUNTERS_H

#include "access/xact.h"
#include "datatype/timestamp.h"
#include "lib/dshash.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"
#include "tids.h"

#define TTL_ERROR_LENGTH	256

/* Room for what a worker leaves of its search (TtlPass of reaper/reap_table.h) */
#define TTL_PASS_SIZE		128

/* When deletion had come to the rows that had expired then */
typedef struct TtlProgress
{
	TimestampTz at;				/* 0 = none */
	TimestampTz expiry;
} TtlProgress;

/* Rows that have been deleted from a container by expiry */
typedef struct TtlRowCounts
{
	int64		deleted;
	int64		evicted;
} TtlRowCounts;

/* What a run has found in a container */
typedef struct TtlFindings
{
	int64		blocked_rows;
	bool		is_complete;	/* all tables have been looked at; else there
								 * may be as many as were known */
	bool		has_front;		/* it is known, and committed */
	TtlExpiryPosition front;
	TimestampTz expiry;			/* when the rows expired that are deleted now;
								 * DT_NOEND = there is no backlog */
} TtlFindings;

/* Statistics of a container */
typedef struct TtlContainerCounters
{
	int64		rows_deleted;
	int64		rows_evicted;
	int64		batches;
	int64		cost;
	int64		blocked_rows;	/* rows that cannot be deleted at present */
	TimestampTz last_reap;		/* 0 = never */
	TimestampTz last_error_at;	/* 0 = never */
	char		last_error[TTL_ERROR_LENGTH];
	bool		is_failing;		/* deletion from one of its tables is paused
								 * or put off after an error for which no row
								 * is to blame */
	int			failure_sqlstate;	/* of the last such error that was new */
	TimestampTz failure_at;
	TimestampTz trigger_at;		/* when the log was last told that the row
								 * trigger doesn't fire */
	TtlExpiryPosition front;	/* rows before it have been deleted, or cannot
								 * be; without TIDs; not set: nothing is known */
	TtlProgress progress[3];	/* of the backlog, the latest last, a minute
								 * or more between the first two */

	/* what the next worker goes on with */
	TimestampTz paused_until;	/* a run has failed, or ended a worker's
								 * process */
	Oid			pass_relid;		/* the table that the pass is of, or
								 * InvalidOid */
	union
	{
		char		data[TTL_PASS_SIZE];
		int64		force_align_i64;
	}			pass;
} TtlContainerCounters;

typedef enum TtlReaperState
{
	TTL_REAPER_IDLE,			/* sleeps until something expires */
	TTL_REAPER_WORKING,
	TTL_REAPER_WAITING,			/* has work, but no budget or no slot */
	TTL_REAPER_STOPPED,			/* no container with TTL on */
	TTL_REAPER_HELD_RECOVERED,	/* after a recovery to a point in time */
	TTL_REAPER_HELD_RESTORED,	/* after the start of a base backup */
	TTL_REAPER_PAUSED			/* by ttl.pause() */
} TtlReaperState;

/* Why a cycle ended. */
typedef enum TtlStop
{
	TTL_STOP_NONE,				/* there was no cycle yet */
	TTL_STOP_DONE,				/* nothing is left */
	TTL_STOP_COST_LIMIT,		/* ttl.cycle_cost_limit is spent */
	TTL_STOP_THROUGHPUT,		/* all that the foreground left is spent */
	TTL_STOP_REPLICA_LAG,		/* a replica is too far behind */
	TTL_STOP_TIME				/* the cycle has lasted too long */
} TtlStop;

/* Statistics of a database */
typedef struct TtlDatabaseCounters
{
	TtlReaperState state;
	TtlStop		stopped_by;
	int64		cycles;
	int64		cost_granted;
	int64		cost_spent;
	int64		foreground_cost;
	TimestampTz last_cycle;		/* start of the last cycle, 0 = none */

	/* input of the next cycle's budget, which another worker may run */
	int64		foreground_seen;	/* foreground_cost at last_cycle */
	int64		debt;			/* spent beyond the budget */
} TtlDatabaseCounters;

/* Enough for the area's own data and both empty hash tables */
#define TTL_COUNTERS_AREA_SIZE	(256 * 1024)

/* The part of shared memory (reaper/slots.c) that belongs to counters.c */
typedef struct TtlCountersShared
{
	int			tranche_id;		/* of locks in the hash tables; constant */
	dshash_table_handle containers; /* constant */
	dshash_table_handle databases;	/* constant */
	pg_atomic_uint32 generation;	/* number of database entries ever made */
	TimestampTz since;			/* when counting began; constant */

	union
	{
		char		data[TTL_COUNTERS_AREA_SIZE];
		double		force_align_d;
		int64		force_align_i64;
	}			area;			/* start of the DSA area of the hash tables */
} TtlCountersShared;

extern void ttl_counters_attach(TtlCountersShared *shmem, bool found, int tranche_id);
extern TimestampTz ttl_counters_since(void);

/*
 * Containers of this database
 */

extern void ttl_counters_add_batch(Oid container, int64 rows, int64 cost);
extern void ttl_counters_add_rows(Oid container, const TtlRowCounts *rows);
extern void ttl_counters_transaction(XactEvent event);
extern void ttl_counters_subtransaction(SubXactEvent event, SubTransactionId subid,
										SubTransactionId parent);
extern bool ttl_counters_set_error(Oid container, const char *message);
extern bool ttl_counters_note_failure(Oid container, int sqlstate);
extern bool ttl_counters_note_trigger(Oid container);
extern void ttl_counters_set_run(Oid container, const TtlFindings *found);
extern void ttl_counters_set_pass(Oid container, bool is_failing, Oid relid, const void *pass, Size size);
extern void ttl_counters_set_pause(Oid container, TimestampTz until);
extern void ttl_counters_end_pause(Oid container);
extern double ttl_counters_gain(const TtlContainerCounters *counters);
extern bool ttl_counters_get_container(Oid container,
									   TtlContainerCounters *counters);
extern List *ttl_counters_containers(void);
extern void ttl_counters_forget_container(Oid container);

/*
 * Databases
 */

extern void ttl_counters_open_database(void);
extern pg_atomic_uint64 *ttl_counters_foreground(void);
extern void ttl_counters_set_database(const TtlDatabaseCounters *counters);
extern void ttl_counters_set_state(Oid dboid, TtlReaperState state);
extern List *ttl_counters_databases(void);
extern bool ttl_counters_get_database(Oid dboid, TtlDatabaseCounters *counters);
extern void ttl_counters_forget_database(Oid dboid);

#endif							/* TTL_COUNTERS_H */
