/*-------------------------------------------------------------------------
 *
 * counters.h
 *	  Statistics of containers and databases, in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_COUNTERS_H
#define TTL_COUNTERS_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#define TTL_ERROR_LENGTH	256

/* What happened to a container; a copy of what is in shared memory. */
typedef struct TtlContainerCounters
{
	int64		rows_deleted;
	int64		rows_evicted;
	int64		rows_archived;
	int64		batches;
	int64		cost;
	int64		blocked_rows;	/* rows that could not be deleted, now */
	TimestampTz last_reap;		/* 0 = never */
	TimestampTz last_error_at;	/* 0 = never */
	char		last_error[TTL_ERROR_LENGTH];
} TtlContainerCounters;

typedef enum TtlReaperState
{
	TTL_REAPER_IDLE,			/* sleeps until something expires */
	TTL_REAPER_WORKING,
	TTL_REAPER_WAITING,			/* has work, but no budget or no slot */
	TTL_REAPER_STOPPED,			/* no container to care for */
	TTL_REAPER_HELD,			/* recovered to a point in time */
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
	TTL_STOP_BLOCKED,			/* only rows that cannot be deleted are left */
	TTL_STOP_TIME				/* the cycle has lasted too long */
} TtlStop;

/* What happened in a database; a copy of what is in shared memory. */
typedef struct TtlDatabaseCounters
{
	TtlReaperState state;
	TtlStop		stopped_by;
	int64		cycles;
	int64		cost_granted;
	int64		cost_spent;
	int64		foreground_cost;
	TimestampTz last_cycle;		/* start of the last cycle, 0 = none */

	/* the budget's memory, so that it survives a change of workers */
	int64		foreground_seen;	/* foreground_cost at last_cycle */
	int64		debt;			/* spent beyond the budget */

	TimestampTz reminded_at;	/* of containers with reaping off, 0 = never */
} TtlDatabaseCounters;

/*
 * Containers of this database.  None of these ends up in the statistics when
 * the transaction is rolled back later: they count what happens.
 */
extern void ttl_counters_add_batch(Oid container, int64 rows, int64 cost);

/* Rows that went along with one that the reaper has deleted. */
extern void ttl_counters_add_reaped(Oid container, uint64 rows);
extern void ttl_counters_add_evicted(Oid container, uint64 rows);
extern void ttl_counters_add_archived(Oid container, uint64 rows);

/* Rows that cannot be deleted, and why (NULL = as before) */
extern void ttl_counters_set_blocked(Oid container, int64 rows, const char *error);
extern void ttl_counters_set_error(Oid container, const char *message);
extern bool ttl_counters_get_container(Oid container,
									   TtlContainerCounters *counters);
extern List *ttl_counters_containers(void);
extern void ttl_counters_forget_container(Oid container);

/*
 * Databases
 */

/* Starts keeping statistics of this database. */
extern void ttl_counters_open_database(void);

/* Adds what a backend of this database has spent; a no-op unless opened. */
extern void ttl_counters_add_foreground(int64 cost);

/* Makes the next ttl_counters_add_foreground safe where it must not fail. */
extern void ttl_counters_prepare_foreground(void);

/* This database's counters, read and written by its worker. */
extern void ttl_counters_get_own_database(TtlDatabaseCounters *counters);
extern void ttl_counters_set_own_database(const TtlDatabaseCounters *counters);
extern void ttl_counters_set_state(Oid dboid, TtlReaperState state);

/* OIDs of all databases with statistics. */
extern List *ttl_counters_databases(void);
extern bool ttl_counters_get_database(Oid dboid, TtlDatabaseCounters *counters);
extern void ttl_counters_forget_database(Oid dboid);

/*
 * For counters_file.c
 */
typedef struct TtlContainerKey
{
	Oid			dboid;
	Oid			container;
} TtlContainerKey;

typedef struct TtlContainerRecord
{
	TtlContainerKey key;
	TtlContainerCounters counters;
} TtlContainerRecord;

typedef struct TtlDatabaseRecord
{
	Oid			dboid;
	TtlDatabaseCounters counters;
} TtlDatabaseRecord;

/* Calls the function for each of them, until it returns false. */
typedef bool (*TtlContainerVisitor) (const TtlContainerRecord *record, void *arg);
typedef bool (*TtlDatabaseVisitor) (const TtlDatabaseRecord *record, void *arg);

extern bool ttl_counters_visit_containers(TtlContainerVisitor visit, void *arg);
extern bool ttl_counters_visit_databases(TtlDatabaseVisitor visit, void *arg);

/* Adds to what has happened since. */
extern void ttl_counters_restore_container(const TtlContainerRecord *record);
extern void ttl_counters_restore_database(const TtlDatabaseRecord *record);

/*
 * counters_file.c, for the launcher: the statistics from one life of the server to
 * the next.
 */
extern void ttl_counters_load(void);
extern void ttl_counters_save(void);

extern void ttl_counters_file_init(void);
extern void ttl_counters_init(void);

#endif							/* TTL_COUNTERS_H */
