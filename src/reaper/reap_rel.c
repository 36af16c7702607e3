/*-------------------------------------------------------------------------
 *
 * reap_rel.c
 *	  Deletes the expired rows of a table.
 *
 * The worker (cycle.c) and CALL ttl.reap (reap.c) call ttl_reap_rel_run() for each table of a container.
 * It runs transactions until nothing is left to delete, or the turn has used up
 * what it may.  In each transaction run_batch()
 *
 * - opens the table, with its lock and the policy lock, which keeps the policy as it is
 *	 until the commit,
 * - collects the TIDs of many expired rows by one scan, if none are left of an earlier
 *	 transaction, and removes from the next of them those that others reference (fk_referenced.c),
 * - deletes a batch of them.
 *
 * A TID collected in an earlier transaction may hold another row by now; the DELETE
 * checks whether it has expired by the present policy.
 *
 * One scan of the expiry indexes collects the rows of many batches, since a scan for
 * each would read the dead index entries of all batches before it again.  The next scan
 * starts at the position, the index entry at which the last one stopped.  It reads entries with the
 * same key again, of which there may be millions, and then collects at least as many.  The position
 * advances only when what was collected has been dealt with in committed transactions, or so much of
 * it as is marked.
 * Rows may come to lie before it: given a _ts in the past, committed late, locked, or
 * impossible to delete.  So scans are grouped into passes: a pass starts at
 * the left edge of the indexes and covers what had expired by then.  It always comes to
 * its end before the next begins, or rows that stay would keep it from the others.  Between
 * passes, scans go on from the position to what has expired since.  While an old snapshot
 * keeps dead entries from being removed the left edge is expensive, so the time between
 * passes grows with what they cost.
 *
 * For ttl.grace after a change of policy that has made rows expire the worker leaves the table
 * alone; a CALL does not.
 *
 *
 * STATE OF A TABLE
 *
 * Each process that deletes keeps the state of each table: the TIDs
 * of expired rows that have been collected and remain to be deleted, the position at
 * which the next scan starts, the size of batches, and the running pass.
 *
 * Rows that cannot be deleted are not remembered one by one.  A pass scans all rows
 * that had expired when it began, counts those that it cannot delete, and advances
 * the position past them; the next pass finds them again.  It starts after PASS_SHARE
 * times the time that this one has spent on finding rows and on failing, within
 * bounds, so that passes take a small share of the worker's time.
 *
 * Where there are more databases than workers, a worker lives for one cycle only.  So
 * a pass with rows that cannot be deleted is left in the statistics of the container
 * (counters.h), and the next worker continues there, rather than to try all of them
 * again.
 *
 *
 * BATCHES
 *
 * A batch is one transaction's work.  Its size is adapted so that it takes BATCH_TIME.
 * What may fail runs in a subtransaction, for limited time (attempt.c).
 *
 * The worker takes only locks that are available at once, except row locks and
 * what triggers and referential actions take, for some ms.  If a row is locked for
 * longer, the pass skips locked rows from then on.  (SELECT FOR UPDATE SKIP LOCKED for all would
 * write one more WAL record for each row.)  A user's call waits for table and policy
 * as any statement does.
 *
 * Expired rows that reference rows of the batch go along (fk.c).  Those that the reaper must
 * not delete yet, by the settings of their own container, stay, and so do the rows that they
 * reference.
 *
 * WHOSE ERROR IT IS
 *
 * blame() decides whether an error is a row's, the table's, or nobody's, by where it was raised and
 * by what a DELETE of no rows does:
 * - What triggers, rules and referential actions raise is a row's, whatever its SQLSTATE, unless
 *	 the DELETE of no rows raises it, too.  The batch is halved until the row is alone; it is counted
 *	 as blocked and left to the next pass.
 * - What the DELETE of no rows raises, or we ourselves, is the table's (a published table without
 *	 replica identity, an archive that was dropped, a full disk): the worker pauses the table, longer each time.
 * - A lock that is not available, a deadlock, a cancellation is nobody's: it passes.  The worker
 *	 comes again in a second.  In a user's call a cancellation is the user's, wherever it was raised.
 *
 * The reason always stands in last_error; but a lock that we don't get is told only if a second
 * later it still isn't available.
 *
 * Deletions are tagged with a replication origin, if the container wants it, so that
 * subscriptions with origin = none, and consumers of logical decoding that skip changes with
 * an origin, can leave them out (they may have a TTL of their own).  An origin can be used by
 * one process at a time, so it is set up for a batch's DELETE alone, and reset before the
 * transaction commits: a tagged commit record would make all standbys track the origin's
 * progress, which is meaningless here and needs a free slot there.  It has to be set up for
 * the session all the same: a subtransaction of a trigger that rolls back looks for the
 * progress, too.
 *
 * A pass logs the errors of LOGGED_MAX rows, beyond the number that the pass before has met.  The worker
 * logs no error again that it, or another worker, met last, and less than an hour ago; of the errors of
 * a container's tables, those of the first turn that fails.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "citus/citus.h"
#include "commands/trigger.h"
#include "common/int.h"
#include "common/pg_prng.h"
#include "compat.h"
#include "container/container.h"
#include "cost.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
#include "replication/origin.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* TIDs that are collected in one scan; fewer if little may be spent */
#define COLLECT_MAX			50000
#define COLLECT_MIN			500

/* ... or as many as the scan has read again, within this limit */
#define COLLECT_MOST		2097152

/*
 * So often the position is noted where rows are blocked one by one: a worker that lives for one cycle may
 * not come to the end of what it has collected.
 */
#define MARK_EVERY			10

/* Memory for TIDs that are kept between turns, for all tables together */
#define KEEP_MEMORY			(32 * 1024 * 1024)

/* Time between scans from the position */
#define POSITION_WAIT		(1 * USECS_PER_SEC)

/* How long a table is paused at first after an error of its own */
#define PAUSE_MIN			(1 * USECS_PER_SEC)

/* Time between passes: so many times as long as one has taken, ... */
#define PASS_SHARE			20

/* ... within bounds; less if it has left rows that may be deleted soon */
#define PASS_MIN_WAIT		(2 * USECS_PER_SEC)
#define PASS_MAX_WAIT		(300 * USECS_PER_SEC)
#define BLOCKED_MAX_WAIT	(30 * USECS_PER_SEC)

/* The time that a batch should take, and the numbers of its rows */
#define BATCH_TIME			(50 * INT64CONST(1000))
#define BATCH_START			50
#define BATCH_MAX			10000

/* How long a turn of a table may wait in vain for locks that triggers take */
#define LOCK_WAITS_MAX		(500 * INT64CONST(1000))

/* Errors of rows that are logged in a pass */
#define LOGGED_MAX			3

/*
 * Another process may be using the replication origin, for a batch.  The worker
 * tries so often, after so many ms, then it comes again later; a user's call
 * waits.
 */
#define ORIGIN_TRIES		10
#define ORIGIN_WAIT			10

TtlMemory *
ttl_reap_rel_memory_create(MemoryContext parent, TtlReapMode mode)
{
	MemoryContext context = AllocSetContextCreate(parent, "ttl tables", ALLOCSET_DEFAULT_SIZES);
	TtlMemory  *memory = MemoryContextAllocZero(context, sizeof(TtlMemory));

	memory->mode = mode;
	memory->context = context;
	memory->batch_context = AllocSetContextCreate(context, "ttl batch", ALLOCSET_DEFAULT_SIZES);
	return memory;
}

void
ttl_reap_rel_resume(TtlReapRel *reap_rel, Oid relid, const TtlContainerCounters *counters)
{
	memset(reap_rel, 0, sizeof(TtlReapRel));
	reap_rel->relid = relid;

	/* or the clock has been set back since */
	if (counters->pass_relid == relid && counters->pass.next_at <= GetCurrentTimestamp() + PASS_MAX_WAIT)
	{
		reap_rel->pass = counters->pass;
		reap_rel->next_position = reap_rel->pass.position;
		reap_rel->more = reap_rel->pass.is_running;
		reap_rel->is_known = !reap_rel->pass.is_running;
	}

	/* rows that are blocked by the statistics have been logged by an earlier worker */
	if (!reap_rel->is_known && !reap_rel->pass.is_running)
		reap_rel->pass.last_blocked = counters->blocked_rows;
}

void
ttl_reap_rel_clear(TtlReapRel *reap_rel)
{
	if (reap_rel->tids.tids != NULL)
		pfree(reap_rel->tids.tids);
	memset(&reap_rel->tids, 0, sizeof(TtlTids));
	list_free_deep(reap_rel->marks);
	reap_rel->marks = NIL;
	reap_rel->next_tid = 0;
	reap_rel->checked = 0;
	reap_rel->blocked_until = 0;
}

/* Forgets what a scan has collected, as if it had not taken place. */
static void
discard_tids(TtlReapRel *reap_rel)
{
	ttl_reap_rel_clear(reap_rel);
	reap_rel->more = true;
	reap_rel->blocked = 0;
	reap_rel->next_position = reap_rel->pass.position;
}

/* Begins a pass over what had expired at 'now'. */
static void
begin_pass(TtlReapRel *reap_rel, TimestampTz now)
{
	TtlPass    *pass = &reap_rel->pass;

	*pass = (TtlPass)
	{
		.is_running = true,
			.now = now,
			.n_single = pass->n_single,
			.last_blocked = reap_rel->is_known ? pass->blocked : pass->last_blocked
	};
	reap_rel->skip_referenced_check = false;
	reap_rel->next_position = pass->position;
}

/* Makes the next pass begin at once, or right after the running one. */
static void
want_pass(TtlReapRel *reap_rel)
{
	reap_rel->pass.is_stale = true;
	reap_rel->pass.next_at = 0;
}

/* Rows have been dealt with, or there are none. */
static void
end_pause(TtlReapRel *reap_rel)
{
	reap_rel->pause = 0;
	reap_rel->is_failing = false;
}

void
ttl_reap_rel_restart(TtlReapRel *reap_rel)
{
	end_pause(reap_rel);
	want_pass(reap_rel);
}

/* Schedules the next pass. */
static void
end_pass(TtlReapRel *reap_rel)
{
	TtlPass    *pass = &reap_rel->pass;
	int64		wait = pass->busy * PASS_SHARE;

	/* but no shorter than the pass */
	if (pass->blocked > 0 || pass->skip_locked)
		wait = Max(Min(wait, BLOCKED_MAX_WAIT), pass->busy);
	pass->is_running = false;
	pass->next_at = GetCurrentTimestamp() + Min(Max(wait, PASS_MIN_WAIT), PASS_MAX_WAIT);
	reap_rel->is_known = true;
	end_pause(reap_rel);
	if (pass->is_stale)
		want_pass(reap_rel);
}

/* Moves the position; the rows before it that are blocked belong to the count of the pass. */
static void
set_position(TtlReapRel *reap_rel, const TtlExpiryPosition *position)
{
	reap_rel->pass.position = *position;
	reap_rel->pass.blocked += reap_rel->blocked;
	reap_rel->blocked = 0;
}

/*
 * Moves the position behind rows that have been dealt with in committed transactions, and ends the
 * pass if it has come to its end.  False if no collected TIDs are left.
 */
static bool
advance_position(TtlReapRel *reap_rel)
{
	int			nmarks = reap_rel->marks == NIL ? 0 : reap_rel->next_tid / MARK_EVERY;

	if (reap_rel->next_tid < reap_rel->tids.n)
	{
		/* a blocked row behind the mark would be met, and counted, again */
		if (nmarks > 0 && nmarks * MARK_EVERY >= reap_rel->blocked_until)
			set_position(reap_rel, list_nth(reap_rel->marks, nmarks - 1));
		return true;
	}

	set_position(reap_rel, &reap_rel->next_position);
	ttl_reap_rel_clear(reap_rel);
	if (reap_rel->pass.is_running && !reap_rel->more)
		end_pass(reap_rel);
	return false;
}

/*
 * Notes an error, as 'text', for the statistics; maybe logs it, or shows it to the user who has called.  What the
 * statistics have already is shown only as the first of a call.
 */
static void
report_error(TtlBatch *batch, const ErrorData *error, const char *text, bool is_logged)
{
	TtlPass    *pass = &batch->reap_rel->pass;
	ErrorContextCallback *stack = error_context_stack;
	bool		is_new = ttl_counters_set_error(batch->container.container, text);

	if (!is_logged || (!is_new && (batch->memory->mode.by_worker || pass->nlogged > 0)))
		return;

	/* its context, if any, includes that of this function */
	if (error->context != NULL)
		error_context_stack = NULL;
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not delete expired rows of table \"%s\": %s",
					ttl_container_qualified_name(batch->reap_rel->relid),
					error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0,
			 error->context ? errcontext("%s", error->context) : 0));
	error_context_stack = stack;
	pass->nlogged++;
}

/*
 * Reports an error for which no row is to blame.  The worker logs one of a kind for a container, whatever
 * the number of its tables, and none as long as the container fails.
 */
static void
report_failure(TtlBatch *batch, const ErrorData *error)
{
	bool		is_logged = !batch->memory->mode.by_worker ||
		ttl_counters_is_new_failure(batch->container.container, error->sqlerrcode);

	/* the reason may stand in the detail alone; that of a row's error is private, it may have its values */
	report_error(batch, error,
				 error->detail == NULL ? error->message : psprintf("%s: %s", error->message, error->detail),
				 is_logged);
}

/*
 * Reports why rows cannot be deleted, which have been counted.  It is logged only if there are more of
 * them than known, and no more than LOGGED_MAX times in a pass.
 */
static void
report_blocked_rows(TtlBatch *batch, const ErrorData *error)
{
	TtlPass    *pass = &batch->reap_rel->pass;
	bool		is_more = pass->blocked + batch->reap_rel->blocked > pass->last_blocked;

	report_error(batch, error, error->message, is_more && pass->nlogged < LOGGED_MAX);
}

/* Counts and reports a row that cannot be deleted. */
static void
block_row(TtlBatch *batch, const ErrorData *error)
{
	batch->reap_rel->blocked++;
	batch->reap_rel->pass.raises = true;
	report_blocked_rows(batch, error);
}

/*
 * Less rows have been deleted than were to be, without an error.  Most often
 * they had been deleted or renewed.  But others may have locked them, since locked rows are skipped; or a
 * trigger or a rule may have kept them, and would keep them forever.
 */
static void
block_left_rows(TtlBatch *batch)
{
	ErrorData	kept = {
		.sqlerrcode = ERRCODE_TRIGGERED_ACTION_EXCEPTION,
		.message = _("a trigger or rule has kept an expired row")
	};
	ErrorData	locked = {
		.sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE,
		.message = _("an expired row is locked by another transaction")
	};
	bool		skips_locked = batch->reap_rel->pass.skip_locked;
	TupleTableSlot *slot = table_slot_create(batch->rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlockNumber nblocks = RelationGetNumberOfBlocks(batch->rel);
	int64		nlocked = 0;

	for (int i = 0; i < batch->ntids; i++)
	{
		ItemPointer tid = &batch->tids[i];
		TM_FailureData failure;

		/* the table may have been truncated since the TID was collected */
		if (ItemPointerGetBlockNumber(tid) < nblocks &&
			table_tuple_fetch_row_version(batch->rel, tid, snapshot, slot) &&
			ttl_expiry_of_slot(&batch->container, slot) <= batch->now)
		{
			ExecClearTuple(slot);
			if (!skips_locked)
				block_row(batch, &kept);
			else if (table_tuple_lock(batch->rel, tid, snapshot, slot, GetCurrentCommandId(true),
									  LockTupleExclusive, LockWaitSkip, 0, &failure) == TM_WouldBlock)
				nlocked++;
			/* else it has been unlocked meanwhile, or is met again in a pass that skips none */
		}
		ExecClearTuple(slot);
	}
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	if (nlocked == 0)
		return;
	batch->reap_rel->blocked += nlocked;
	report_blocked_rows(batch, &locked);
}

/* True if this process has taken the replication origin. */
static bool has_origin = false;

/*
 * Tags with the replication origin "ttl" all that this process writes until the end.  Errors with
 * ERRCODE_OBJECT_IN_USE if another process has the origin.
 */
static void
begin_origin(void)
{
	ReplOriginId node;

	/* a user's session may have an origin of its own */
	if (TTL_ORIGIN_OF_XACT != InvalidReplOriginId)
		return;

	node = replorigin_by_name(TTL_EXTENSION, true);
	if (node == InvalidReplOriginId)
		node = replorigin_create(TTL_EXTENSION);
	TtlOriginSessionSetup(node);
	TTL_ORIGIN_OF_XACT = node;
	has_origin = true;
}

static void
end_origin(void)
{
	if (!has_origin)
		return;
	has_origin = false;
	TTL_ORIGIN_OF_XACT = InvalidReplOriginId;
	replorigin_session_reset();
}

static void
delete_tids(TtlBatch *batch)
{
	volatile int flags = 0;

	if (batch->reap_rel->pass.skip_locked)
		flags |= TTL_DELETION_SKIP_LOCKED;
	if (batch->memory->mode.by_worker)
		flags |= TTL_DELETION_HEEDS_GRACE | TTL_DELETION_RESTRICTED;
	else if (batch->rel->rd_rel->relowner != GetUserId())
		flags |= TTL_DELETION_RESTRICTED;

	/* in a user's transaction deferred constraints stay deferred */
	if (batch->memory->mode.commits)
		flags |= TTL_DELETION_COMMITS;

	if (batch->container.policy.replication_origin)
	{
		batch->origin_wanted = true;
		begin_origin();
		batch->origin_wanted = false;
	}
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		batch->deleted = ttl_deletion_run(batch->rel, &batch->container,
										 batch->tids, batch->ntids,
										 batch->now, flags, NULL);
		PopActiveSnapshot();
	}
	PG_FINALLY();
	{
		end_origin();
	}
	PG_END_TRY();
}

/*
 * A DELETE of no rows.  Raises an error in any case, so that it has no effect.
 */
static void
delete_nothing(TtlBatch *batch)
{
	batch->ntids = 0;
	delete_tids(batch);
	batch->works_without_rows = true;
	elog(ERROR, "nothing has been deleted");
}

/* Whose error it is */
typedef enum Blame
{
	BLAME_ROW,					/* one of the batch's */
	BLAME_TABLE,				/* no row of the table can be deleted until somebody acts */
	BLAME_NOBODY				/* it passes by itself */
} Blame;

/* True if it is an error that passes, when we have raised it ourselves. */
static bool
is_passing(const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
		category == ERRCODE_TRANSACTION_ROLLBACK || category == ERRCODE_OPERATOR_INTERVENTION;
}

/* True if another process has the replication origin. */
static bool
lacks_origin(const TtlBatch *batch, const ErrorData *error)
{
	return batch->origin_wanted && error->sqlerrcode == ERRCODE_OBJECT_IN_USE;
}

/* True if it is an error of the server, when we have raised it ourselves. */
static bool
lacks_resources(const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return category == ERRCODE_INSUFFICIENT_RESOURCES || category == ERRCODE_SYSTEM_ERROR;
}

/*
 * True if the error may have been raised by the owner's code, which may choose any SQLSTATE.  A rule
 * adds queries to our statement.
 */
static bool
is_raised_by_code(const TtlBatch *batch, const ErrorData *error)
{
	/* a cancellation comes from outside, and a snapshot that is too old stays so for all rows */
	if (!batch->memory->mode.by_worker &&
		(ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION ||
		 (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_TRANSACTION_ROLLBACK && IsolationUsesXactSnapshot())))
		return false;
	return batch->in_trigger || ttl_owner_has_rule(batch->rel);
}

/*
 * Decides whose error it is that an attempt has met.  *error becomes that of the table, if the row
 * which is alone in the batch has met another.
 */
static Blame
blame(TtlBatch *batch, ErrorData **error)
{
	TtlBatch	test;
	ErrorData  *test_error;

	if (batch->timed_out)
		return BLAME_ROW;
	if (batch->origin_wanted)
		return lacks_origin(batch, *error) ? BLAME_NOBODY : BLAME_TABLE;
	if (!is_raised_by_code(batch, *error))
	{
		if (is_passing(*error))
			return BLAME_NOBODY;
		if (lacks_resources(*error))
			return BLAME_TABLE;
	}
	if (batch->ntids == 0)
		return BLAME_TABLE;
	if (batch->ntids > 1)
		return BLAME_ROW;

	test = *batch;
	test_error = ttl_attempt(delete_nothing, &test, true);
	if (test.works_without_rows || test.timed_out)
		return BLAME_ROW;
	*error = test_error;
	return is_passing(test_error) ? BLAME_NOBODY : BLAME_TABLE;
}

/* True if a user's call ends with the error, which is no row's, rather than to go on with other tables. */
static bool
ends_call(const TtlBatch *batch, const ErrorData *error)
{
	return !batch->memory->mode.by_worker && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
		(batch->ntids == 0 || batch->origin_wanted || is_passing(error) || lacks_resources(error));
}

/*
 * Leaves the table to a later turn, for an error that is no row's, and reports it.  What passes may have
 * passed before anybody could look, so a lock is reported only if the turn before has not got it, either.
 */
static TtlReapResult
leave_table(TtlBatch *batch, Blame whose, ErrorData *error)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	bool		is_first = reap_rel->pause == 0;
	bool		is_lock = error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || lacks_origin(batch, error);

	if (ends_call(batch, error))
		ReThrowError(error);
	if (whose == BLAME_NOBODY)
		reap_rel->pause = PAUSE_MIN;
	else
		reap_rel->pause = Min(Max(reap_rel->pause * 2, PAUSE_MIN), TTL_LONGEST_PAUSE);
	if (is_first && is_lock && batch->memory->mode.by_worker)
		return TTL_REAP_LATER;
	report_failure(batch, error);
	reap_rel->is_failing = true;
	return TTL_REAP_LATER;
}

/*
 * Removes referenced rows from the next of those that have been collected.  If that fails, their
 * deletion will fail, too, and show which of them are referenced.
 */
static TtlReapResult
leave_out_referenced(TtlBatch *batch)
{
	ErrorData  *error;

	if (batch->reap_rel->skip_referenced_check || !ttl_fk_referenced_is_possible(batch))
	{
		batch->reap_rel->checked = batch->reap_rel->tids.n;
		return TTL_REAP_MORE;
	}
	error = ttl_attempt(ttl_fk_referenced_leave_out, batch, true);
	if (error == NULL)
	{
		ListCell   *lc;

		foreach(lc, batch->references)
			report_blocked_rows(batch, (ErrorData *) lfirst(lc));
		return TTL_REAP_MORE;
	}
	if (blame(batch, &error) == BLAME_NOBODY)
		return leave_table(batch, BLAME_NOBODY, error);
	batch->reap_rel->skip_referenced_check = true;
	batch->reap_rel->checked = batch->reap_rel->tids.n;
	return TTL_REAP_MORE;
}

/*
 * How many rows the batch may have.
 */
static int
choose_size(const TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	int64		size = Min(reap_rel->checked - reap_rel->next_tid, batch->max_rows);
	int64		cost = batch->max_cost;

	if (reap_rel->batch_size == 0)
		reap_rel->batch_size = batch->container.policy.batch_size > 0 ?
			batch->container.policy.batch_size : BATCH_START;
	if (batch->container.policy.batch_size > 0)
		reap_rel->batch_size = Min(reap_rel->batch_size, batch->container.policy.batch_size);
	else
		cost = Min(cost, batch->max_batch_cost);
	size = Min(size, reap_rel->pass.n_single > 0 ? 1 : reap_rel->batch_size);
	if (reap_rel->row_cost > 0.0)
		size = Max(1, Min(size, cost / reap_rel->row_cost));
	return (int) size;
}

/* After a batch that took so many microseconds, adapts the size of the next one. */
static void
adapt_size(TtlBatch *batch, int64 took)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	int64		next = INT64CONST(2) * batch->ntids;

	if (batch->ntids < reap_rel->batch_size)
		return;					/* it was limited by something else */
	if (batch->container.policy.batch_size > 0)
		next = Min(next, batch->container.policy.batch_size);
	else
		next = Min(Min(next, batch->ntids * BATCH_TIME / Max(took, 1)), BATCH_MAX);
	reap_rel->batch_size = (int) Max(next, 1);
}

/*
 * Attempts the deletion, again without locked rows if it fails because of them, and not of what a
 * trigger waits for.  *start is the beginning of the last attempt.
 */
static ErrorData *
attempt_delete(TtlBatch *batch, TimestampTz *start)
{
	int			origin_tries = 0;

	for (;;)
	{
		ErrorData  *error;

		*start = GetCurrentTimestamp();
		error = ttl_attempt(delete_tids, batch, true);
		if (error == NULL)
			return NULL;
		if (lacks_origin(batch, error) &&
			(!batch->memory->mode.by_worker || origin_tries++ < ORIGIN_TRIES))
		{
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 ORIGIN_WAIT, PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
		else if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && !batch->in_trigger &&
				 !batch->reap_rel->pass.skip_locked)
			batch->reap_rel->pass.skip_locked = true;
		else
			return error;
		FreeErrorData(error);
	}
}

/* Deletes the next of the collected rows. */
static TtlReapResult
delete_batch(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TimestampTz started = GetCurrentTimestamp();
	BufferUsage used = pgBufferUsage;
	TimestampTz start;
	ErrorData  *error;
	Blame		whose;
	TtlReapResult result = TTL_REAP_MORE;

	batch->tids = reap_rel->tids.tids + reap_rel->next_tid;
	batch->ntids = choose_size(batch);

	error = attempt_delete(batch, &start);

	if (batch->timed_out)
	{
		reap_rel->pass.n_single = Max(reap_rel->pass.n_single, batch->ntids);
		reap_rel->batch_size = 1;
		if (batch->memory->mode.by_worker)
			result = TTL_REAP_LATER;
	}

	if (error == NULL)
	{
		adapt_size(batch, GetCurrentTimestamp() - start);
		if (batch->deleted > 0)
			reap_rel->row_cost = (double) ttl_cost_since(&used) / batch->deleted;
		end_pause(reap_rel);
		reap_rel->pass.n_single = Max(reap_rel->pass.n_single - 1, 0);
		reap_rel->next_tid += batch->ntids;
		if (batch->deleted < batch->ntids)
		{
			block_left_rows(batch);
			reap_rel->blocked_until = reap_rel->next_tid;
		}
		return result;
	}

	batch->deleted = 0;
	/* to wait for a lock is no work, for which the next pass would be put off */
	if (batch->timed_out || error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		reap_rel->pass.busy += GetCurrentTimestamp() - started;
	else
		reap_rel->lock_waits += GetCurrentTimestamp() - started;
	whose = blame(batch, &error);
	if (whose != BLAME_ROW)
		return leave_table(batch, whose, error);

	if (batch->ntids > 1)
	{
		if (!batch->timed_out)
			reap_rel->batch_size = batch->ntids / 2;
		return result;
	}

	/* the row is alone */
	reap_rel->pass.n_single = Max(reap_rel->pass.n_single - 1, 0);
	block_row(batch, error);
	reap_rel->next_tid++;
	reap_rel->blocked_until = reap_rel->next_tid;
	if (batch->memory->mode.by_worker && reap_rel->lock_waits >= LOCK_WAITS_MAX)
		result = TTL_REAP_LATER;
	return result;
}

/*
 * Takes the locks that foreign keys will need on the referencing tables.  Returns the table of which
 * one is not available: then no row of this table can be deleted, and none is to blame.
 */
static Oid
lock_referencing(Relation rel, bool waits)
{
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];
		bool		checks = trigger->tgfoid == F_RI_FKEY_NOACTION_DEL ||
			trigger->tgfoid == F_RI_FKEY_RESTRICT_DEL;
		LOCKMODE	lockmode = checks ? RowShareLock : RowExclusiveLock;

		if (RI_FKey_trigger_type(trigger->tgfoid) != RI_TRIGGER_PK ||
			!TRIGGER_FOR_DELETE(trigger->tgtype))
			continue;
		if (waits)
			LockRelationOid(trigger->tgconstrrelid, lockmode);
		else if (!ConditionalLockRelationOid(trigger->tgconstrrelid, lockmode))
			return trigger->tgconstrrelid;
	}
	return InvalidOid;
}

/* Leaves the table to a later turn, since the lock is not available; 'what' has the name of the relation for %s. */
static TtlReapResult
leave_locked(TtlBatch *batch, const char *message, Oid relid)
{
	ErrorData	error = {.sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE};
	char	   *name = get_rel_name(relid);

	error.message = psprintf(message, name != NULL ? name : "?");
	return leave_table(batch, BLAME_NOBODY, &error);
}

/*
 * Logs that the table's row trigger is disabled or gone, which makes users' INSERTs fail on the keys of its expired
 * rows.  Deletion goes on.  One line for a container, and none again within an hour.
 */
static void
report_trigger(const TtlBatch *batch)
{
	const Trigger *trigger = ttl_row_trigger_among(batch->rel->trigdesc);
	const char *detail = _("Expired rows are hidden and deleted, but until then an INSERT on the key of one fails.");
	Oid			container = batch->container.container;

	if ((trigger != NULL && ttl_row_trigger_fires(trigger)) || !ttl_counters_is_new_trigger(container))
		return;
	if (trigger != NULL)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("trigger \"%s\" of container \"%s\" is disabled", trigger->tgname,
						ttl_container_qualified_name(container)),
				 errdetail("%s", detail),
				 errhint("Use ALTER TABLE ... ENABLE TRIGGER \"%s\".", trigger->tgname)));
	else
		ereport(WARNING,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("container \"%s\" has lost its trigger \"%s\"",
						ttl_container_qualified_name(container), TTL_TRIGGER),
				 errdetail("%s", detail),
				 errhint("Use ttl.drop_container(), and ttl.create_container() with the names of the columns.")));
}

/*
 * Opens the table if rows of it may be deleted now.  The locks last to the end of the
 * transaction.  batch->rel is NULL if the table is not there.
 */
static TtlReapResult
open_table(TtlBatch *batch, Oid container)
{
	Oid			relid = batch->reap_rel->relid;
	bool		waits = !batch->memory->mode.by_worker;
	TimestampTz paused_until;
	bool		is_shard;
	Oid			locked;

	if (ttl_container_objects() == NULL)
		return TTL_REAP_DONE;	/* the extension was dropped */

	batch->container.container = container;

	/* first Citus's locks, then the table, then the policy: DDL does it in this order */
	is_shard = ttl_citus_lock_shard(container, waits);
	if (waits)
		LockRelationOid(relid, RowExclusiveLock);
	else if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return leave_locked(batch, _("could not obtain lock on relation \"%s\""), relid);
	if (!ttl_policy_lock(container, false, waits))
		return leave_locked(batch, _("could not obtain lock on the policy of container \"%s\""), container);

	/* a lock that was held before has not brought the policy up to date */
	AcceptInvalidationMessages();

	batch->rel = try_relation_open(relid, NoLock);
	if (batch->rel == NULL ||
		batch->rel->rd_rel->relkind != RELKIND_RELATION ||
		!ttl_container_lookup(relid, &batch->container) ||
		batch->container.container != container ||
		batch->container.policy.default_ttl == TTL_OFF ||
		(!waits && (!batch->container.policy.reaping || ttl_hold_is_paused(&paused_until))) ||
		pg_sub_s64_overflow(ttl_execution_reference_time(), batch->container.policy.reap_delay,
							&batch->now))
		return TTL_REAP_DONE;
	if (batch->container.policy.propagated && !is_shard)
	{
		if (!waits)
			return leave_locked(batch, _("shard \"%s\" is being copied, or rows on other nodes may reference its rows"), container);
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("expired rows of shard \"%s\" have not been deleted", get_rel_name(container)),
				 errdetail("It is being copied, or rows on other nodes may reference its rows.")));
		return TTL_REAP_DONE;
	}
	if (!waits)
		report_trigger(batch);
	if (!waits && !ttl_expiry_lock_indexes(batch->rel))
		return leave_locked(batch, _("could not obtain lock on an expiry index of table \"%s\""), relid);
	locked = lock_referencing(batch->rel, waits);
	if (OidIsValid(locked))
		return leave_locked(batch, _("could not obtain lock on relation \"%s\""), locked);

	if (!waits && ttl_grace_lasts(&batch->container.policy.change, ttl_execution_reference_time()))
	{
		/* rows that the change has made expired may lie before the position */
		discard_tids(batch->reap_rel);
		batch->reap_rel->pass.is_running = false;
		batch->reap_rel->pass.next_at = 0;
		batch->again_at = ttl_grace_end(&batch->container.policy.change, GetCurrentTimestamp());
		return TTL_REAP_DONE;
	}
	return TTL_REAP_MORE;
}

/*
 * True if scans start at a position, rather than at the left edge.  There may be many dead
 * entries before it.
 */
static bool
has_position(const TtlReapRel *reap_rel)
{
	const TtlExpiryPosition *position = &reap_rel->pass.position;

	return position->set[TTL_INDEX_DEFAULT] || position->set[TTL_INDEX_ITEM];
}

/* Notes the position behind the last TID. */
static void
append_mark(TtlReapRel *reap_rel)
{
	TtlExpiryPosition *mark = palloc(sizeof(TtlExpiryPosition));

	*mark = reap_rel->next_position;
	reap_rel->marks = lappend(reap_rel->marks, mark);
}

/*
 * Collects the TIDs of expired rows from the position on, and sets reap_rel->more if there may be
 * others.  A snapshot is active.
 */
static void
collect_tids(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;
	MemoryContext old;
	bool		is_incomplete;
	int64		limit;

	/* a row costs one buffer at least to find, and others to delete */
	limit = Min(Max(Min(batch->max_cost, batch->max_rows), COLLECT_MIN), COLLECT_MAX);
	walk = ttl_expiry_walk_begin(batch->rel, &batch->container, batch->now, GetActiveSnapshot(),
								 &reap_rel->next_position);
	ttl_expiry_walk_only_tids(walk);
	ttl_expiry_walk_before(walk, batch->memory->mode.next_xid);
	while (reap_rel->tids.n < limit && (slot = ttl_expiry_walk_next(walk, NULL)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		old = MemoryContextSwitchTo(batch->memory->context);
		ttl_tids_append(&reap_rel->tids, &slot->tts_tid);
		if (reap_rel->pass.raises && reap_rel->tids.n % MARK_EVERY == 0)
			append_mark(reap_rel);
		MemoryContextSwitchTo(old);

		/* or scans of rows with the same key would take time that is the square of their number */
		if (reap_rel->tids.n >= limit)
			limit = Max(limit, Min(ttl_expiry_walk_skipped(walk), COLLECT_MOST));
	}
	reap_rel->more = reap_rel->tids.n >= limit;
	is_incomplete = !reap_rel->more && ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);

	/* rows may have been found by the other index; but "nothing" would be wrong */
	if (is_incomplete && reap_rel->tids.n == 0)
		ttl_expiry_report_incomplete(batch->rel);
}

static void
scan_expiry_indexes(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlPass    *pass = &reap_rel->pass;

	if (!pass->is_running &&
		(pass->next_at <= GetCurrentTimestamp() || !has_position(reap_rel)))
		begin_pass(reap_rel, batch->now);

	if (pass->is_running)
		batch->now = Min(pass->now, batch->now);

	PushActiveSnapshot(GetTransactionSnapshot());
	reap_rel->next_position = pass->position;
	collect_tids(batch);
	PopActiveSnapshot();
}

/*
 * True if there is nothing to delete now.  Cheap.  batch->again_at is when there will be, or when to look
 * again.
 */
static bool
nothing_due(TtlBatch *batch)
{
	TtlExpiryFirst first;

	batch->again_at = GetCurrentTimestamp() + POSITION_WAIT;
	if (has_position(batch->reap_rel))
		return false;
	PushActiveSnapshot(GetTransactionSnapshot());
	ttl_expiry_find_first(batch->rel, &batch->container, NULL, DT_NOBEGIN, DT_NOEND, &first);
	PopActiveSnapshot();
	if (first.at <= batch->now || first.incomplete)
		return false;
	if (pg_add_s64_overflow(first.at, batch->container.policy.reap_delay, &first.at))
		first.at = DT_NOEND;
	batch->again_at = Max(batch->again_at, first.at);
	batch->reap_rel->is_known = true;
	batch->reap_rel->pass.is_running = false;
	batch->reap_rel->pass.blocked = 0;
	end_pause(batch->reap_rel);
	return true;
}

/* Collects TIDs. */
static TtlReapResult
collect_rows(TtlBatch *batch)
{
	TimestampTz started = GetCurrentTimestamp();
	ErrorData  *error = ttl_attempt(scan_expiry_indexes, batch, false);

	if (error != NULL)
	{
		Blame		whose = blame(batch, &error);

		/* what has been collected is not what the position says */
		discard_tids(batch->reap_rel);
		return leave_table(batch, whose, error);
	}
	batch->reap_rel->pass.busy += GetCurrentTimestamp() - started;
	return TTL_REAP_MORE;
}

/* Looks which of the next TIDs are those of referenced rows, if that is not known. */
static TtlReapResult
check_rows(TtlBatch *batch)
{
	TimestampTz started = GetCurrentTimestamp();
	TtlReapResult result;

	if (batch->reap_rel->next_tid < batch->reap_rel->checked)
		return TTL_REAP_MORE;
	result = leave_out_referenced(batch);
	batch->reap_rel->pass.busy += GetCurrentTimestamp() - started;
	return result;
}

/* All rows that had expired by then have been deleted, or cannot be. */
static void
advance_front(TtlBatch *batch)
{
	TtlExpiryPosition *front = &batch->reap_rel->front;

	ttl_expiry_skip_expired(&batch->container, batch->now, front);
	for (int i = 0; i < TTL_INDEXES; i++)
		front->at[i]++;
}

/* Does the work of one transaction. */
static TtlReapResult
run_batch(TtlBatch *batch, Oid container)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlReapResult result = open_table(batch, container);

	if (result != TTL_REAP_MORE)
		return result;

	if (!advance_position(reap_rel))
	{
		if (nothing_due(batch))
		{
			advance_front(batch);
			return TTL_REAP_DONE;
		}
		result = collect_rows(batch);
		if (result != TTL_REAP_MORE)
			return result;
		if (!advance_position(reap_rel))
		{
			if (reap_rel->more)
				return TTL_REAP_MORE;
			advance_front(batch);
			end_pause(reap_rel);
			(void) nothing_due(batch);
			return TTL_REAP_DONE;
		}
	}

	result = check_rows(batch);
	if (result != TTL_REAP_MORE || batch->timed_out || reap_rel->next_tid == reap_rel->checked)
		return result;
	return delete_batch(batch);
}

/* Rows have been deleted, and there are more: the front is where the next scan starts. */
static void
set_front(TtlReapRel *reap_rel)
{
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (!reap_rel->pass.position.set[i])
			continue;
		reap_rel->front.set[i] = true;
		reap_rel->front.at[i] = reap_rel->pass.position.at[i];
	}
}

/* Starts another transaction, if the caller wants one for each batch. */
static void
commit_batch(TtlMemory *memory)
{
	if (!memory->mode.commits)
		return;

	/* for now() in triggers */
	if (memory->mode.by_worker)
		SetCurrentStatementStartTimestamp();
	SPI_commit();
}

static bool
may_go_on(const TtlTurn *turn)
{
	return turn->cost < turn->max_cost && turn->rows < turn->max_rows &&
		(turn->until == DT_NOEND || GetCurrentTimestamp() < turn->until);
}

/* Counts a batch.  In a user's transaction, which may be rolled back, its rows count at the commit. */
static void
count_batch(const TtlMemory *memory, Oid container, int64 deleted, int64 cost)
{
	TtlRowCounts rows = {.deleted = deleted};

	ttl_counters_add_batch(container, memory->mode.commits ? deleted : 0, cost);
	if (!memory->mode.commits)
		ttl_counters_add_rows(container, &rows);
}

void
ttl_reap_rel_connect(const TtlMemory *memory)
{
	if (SPI_connect_ext(memory->mode.commits ? SPI_OPT_NONATOMIC : 0) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

void
ttl_reap_rel_run(TtlMemory *memory, Oid container, TtlReapRel *reap_rel, TtlTurn *turn)
{
	turn->end = TTL_REAP_MORE;
	turn->cost = 0;
	turn->rows = 0;
	turn->again_at = DT_NOEND;
	reap_rel->lock_waits = 0;

	while (turn->end == TTL_REAP_MORE && may_go_on(turn))
	{
		BufferUsage start = pgBufferUsage;
		MemoryContext oldcontext;
		int64		cost;
		TtlBatch	batch = {
			.memory = memory,
			.reap_rel = reap_rel,
			.max_cost = turn->max_cost - turn->cost,
			.max_batch_cost = turn->max_batch_cost,
			.max_rows = turn->max_rows - turn->rows
		};

		CHECK_FOR_INTERRUPTS();

		if (turn->pace != NULL && turn->cost > 0)
		{
			if (!turn->pace(turn))
				break;
			commit_batch(memory);
		}

		oldcontext = MemoryContextSwitchTo(memory->batch_context);
		turn->end = run_batch(&batch, container);
		if (batch.rel != NULL)
			relation_close(batch.rel, NoLock);
		if (batch.again_at != 0)
			turn->again_at = batch.again_at;
		MemoryContextSwitchTo(oldcontext);
		MemoryContextReset(memory->batch_context);

		commit_batch(memory);

		cost = ttl_cost_since(&start);
		turn->cost += cost;
		turn->rows += batch.deleted;
		if (batch.ntids > 0)
		{
			count_batch(memory, container, batch.deleted, cost);
			if (batch.deleted > 0)
				set_front(reap_rel);
		}
	}

	if (turn->end == TTL_REAP_LATER)
		turn->again_at = GetCurrentTimestamp() + Max(reap_rel->pause, POSITION_WAIT);
	if (MemoryContextMemAllocated(memory->context, false) > KEEP_MEMORY)
		discard_tids(reap_rel);
}
