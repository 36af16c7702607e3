/*-------------------------------------------------------------------------
 *
 * reap_rel.h
 *	  Deletion of the expired rows of a table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAP_REL_H
#define TTL_REAP_REL_H

#include "container/container.h"
#include "counters.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "expiry/expiry.h"
#include "tids.h"
#include "utils/elog.h"
#include "utils/relcache.h"

/* How long a container is left alone whose deletion has ended a worker, and the longest pause of a table */
#define TTL_LONGEST_PAUSE	(300 * USECS_PER_SEC)

/* The state kept for a table */
typedef struct TtlReapRel
{
	Oid			relid;			/* MUST BE FIRST */
	TtlPass		pass;
	bool		is_known;		/* a pass has ended, in an earlier worker perhaps */
	int64		pause;			/* after an error for which no row is to blame, in
								 * microseconds; 0 = rows have been dealt with since */
	bool		is_failing;		/* so it is, and last_error says why */
	int64		lock_waits;		/* time that rows have waited for a lock in vain,
								 * in this turn, in microseconds */

	TtlTids		tids;			/* collected, to be deleted in batches */
	int			next_tid;		/* the first that has not been */
	int			checked;		/* rows before it are referenced by none */
	int			blocked_until;	/* rows of which it isn't known which are blocked are before it */
	List	   *marks;			/* TtlExpiryPosition, behind each MARK_EVERY of them */
	int64		blocked;		/* skipped rows that are not yet in the pass's
								 * count */
	TtlExpiryPosition next_position;	/* the position when all TIDs are done */
	TtlExpiryPosition front;	/* rows before it are deleted or blocked: unlike the
								 * position, it does not go back with each pass */
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

/* What one turn of a table may use, and what came of it */
typedef struct TtlTurn
{
	int64		max_cost;
	int64		max_rows;
	TimestampTz until;			/* DT_NOEND = no limit */
	int64		max_batch_cost; /* as far as it can be estimated */

	/*
	 * Called before each transaction but the first, without locks, to nap.
	 * If it returns false the turn ends.  NULL = none.
	 */
	bool		(*pace) (const struct TtlTurn *turn);

	TtlReapResult end;
	int64		cost;
	int64		rows;
	TimestampTz again_at;		/* unless there is more: when there will be rows to delete, or
								 * another try is due; DT_NOEND = not known */
} TtlTurn;

/* A batch: what one transaction does to a table */
typedef struct TtlBatch
{
	TtlMemory  *memory;
	TtlReapRel *reap_rel;
	TtlContainer container;
	Relation	rel;
	TimestampTz now;			/* rows that had expired by then are deleted; in a
								 * pass, at the latest when it began */
	int64		max_cost;		/* what is left of the turn's */
	int64		max_batch_cost;
	int64		max_rows;

	TimestampTz again_at;		/* when there will be rows to delete, or 0 */
	TimestampTz deadline;		/* by ttl.batch_timeout, 0 = not yet set, or none */
	bool		timed_out;		/* the attempt has been canceled by it */
	bool		in_trigger;		/* the attempt's error was raised within a trigger */
	List	   *references;		/* ErrorData of those that do */

	/* the deletion */
	ItemPointer tids;
	int			ntids;
	int64		deleted;
	bool		origin_wanted;	/* about to take the replication origin */
	bool		works_without_rows;
} TtlBatch;

/*
 * reap_rel.c
 */

extern TtlMemory *ttl_reap_rel_memory_create(MemoryContext parent, TtlReapMode mode);

/* Initializes the state of a table; a worker goes on with what an earlier one has left in the statistics. */
extern void ttl_reap_rel_resume(TtlReapRel *reap_rel, Oid relid, const TtlContainerCounters *counters);

/* Has a table tried anew, since it or its policy has changed. */
extern void ttl_reap_rel_restart(TtlReapRel *reap_rel);

/* Forgets the rows that have been collected. */
extern void ttl_reap_rel_clear(TtlReapRel *reap_rel);

/* Connects to SPI, whose caller may be in a procedure; SPI_finish() ends it. */
extern void ttl_reap_rel_connect(const TtlMemory *memory);

/*
 * Deletes expired rows of a table.  Called in a transaction, and returns in one, though maybe not the same.
 */
extern void ttl_reap_rel_run(TtlMemory *memory, Oid container, TtlReapRel *reap_rel, TtlTurn *turn);

/*
 * attempt.c
 */

/*
 * Calls the function in a subtransaction, with a short lock_timeout, maybe until the
 * batch's deadline, which begins with the first such call.  Returns NULL on success, else
 * the error.
 */
extern ErrorData *ttl_attempt(void (*action) (TtlBatch *), TtlBatch *batch, bool has_deadline);

/* True if this process is at a step by which code of users may run. */
extern bool ttl_attempt_is_running(void);

/*
 * At the exit of a worker: true if a batch has ended the process.  The next worker then gives
 * the container a long pause.  If somebody else has terminated the worker, only a batch that could
 * not be canceled is blamed.
 */
extern bool ttl_attempt_handle_exit(bool is_terminated);

/*
 * fk_referenced.c
 */

/* True if the table is referenced by a foreign key that may hold rows. */
extern bool ttl_fk_referenced_is_possible(const TtlBatch *batch);

/*
 * Removes referenced rows from the next of the collected TIDs, counts them as blocked, and
 * notes why.
 */
extern void ttl_fk_referenced_leave_out(TtlBatch *batch);

#endif							/* TTL_REAP_REL_H */
