/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  Deletes a batch of the rows that have been collected.
 *
 * A batch is as large as takes BATCH_TIME.
 *
 * Where a row is locked by somebody, the batch waits for it for a short time, then
 * leaves locked rows out.  (SELECT FOR UPDATE SKIP LOCKED for all would write a WAL
 * record more for each row.)  Other errors are handled below.
 *
 * A partition with much to delete is emptied as a whole where nobody can tell
 * the difference (truncate_partition.c).
 *
 * Whatever may fail runs in a subtransaction.
 *
 * The worker takes no lock that it cannot have at once, except row locks and
 * what triggers and referential actions take, for LOCK_WAIT.  A user's call
 * waits for table and policy as any statement does.
 *
 * Triggers may sleep or loop.  From ttl.batch_timeout after its start on, a step is
 * cancelled as statement_timeout would do it, and again every CANCEL_PERIOD, since a
 * trigger may trap the error.  A worker whose cancellations are all trapped is
 * terminated in the end; in a user's session that is left to the user.
 *
 * - Row locked by somebody: not an error, see above.
 * - Cancellation, deadlock, lack of resources: an error for a user who has
 *	called; the worker comes again after a while.
 * - What happens to a DELETE of no rows, too (a published table without replica
 *	identity, an archive that has gone), is the table's fault: it pauses.
 * - Anything else is blamed on a row.  The batch is halved until the culprit is
 *	alone (after a timeout, at once); it is counted, logged, and left to the next
 *	pass.
 * - If a row of the batch is still referenced, the batch is tried once more
 *	together with the expired rows that reference its rows.  What the reaper may
 *	not take yet, by the settings of its own container, stays, and so does what
 *	it references.
 *
 * A pass logs the first few rows that raise, as far as the pass before has not met as
 * many.  References often end by themselves soon after, so the worker logs them only
 * when two passes in a row have met some.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "reaper/reaper_internal.h"
#include "reaper/reap_rel.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* How long a batch waits for a lock; what lock_timeout is set to. */
#define LOCK_WAIT			"50ms"

/* Time between cancellations, ms; so many may be trapped by a trigger. */
#define CANCEL_PERIOD		1000
#define CANCELS_MAX			5

static TimeoutId timeout_id;	/* registered when it is needed first */

static void
delete_tids(TtlBatch *batch)
{
	volatile int flags = 0;

	if (batch->skip_locked)
		flags |= TTL_DELETION_SKIP_LOCKED;
	if (batch->with_referencing)
		flags |= TTL_DELETION_WITH_DEPENDENTS;

	if (batch->memory->mode.by_worker)
		flags |= TTL_DELETION_EXCLUDES_GRACE | TTL_DELETION_KEEPS_APART;
	else if (batch->rel->rd_rel->relowner != GetUserId())
		flags |= TTL_DELETION_RESTRICTED;

	/* in a user's transaction deferred constraints stay deferred */
	if (batch->memory->mode.commits)
		flags |= TTL_DELETION_COMMITS;

	if (batch->container.replication_origin)
	{
		batch->origin_wanted = true;
		ttl_session_begin_origin();
		batch->origin_wanted = false;
	}
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		batch->deleted = ttl_deletion_run(batch->rel, &batch->container,
										 batch->tids, batch->ntids,
										 batch->now, flags, NULL);
		if (batch->memory->mode.by_worker)
			ttl_session_drop_temporary();
		PopActiveSnapshot();
	}
	PG_FINALLY();
	{
		ttl_session_end_origin();
	}
	PG_END_TRY();
}

static void
delete_nothing(TtlBatch *batch)
{
	batch->ntids = 0;
	delete_tids(batch);
	batch->works_without_rows = true;
	elog(ERROR, "nothing has been deleted");
}

/* Cancellations of the running attempt by its timeout */
static volatile sig_atomic_t expirations = 0;

/* The attempt that runs until a deadline, or NULL */
static TtlBatch *timed_step = NULL;

/* Signal handler */
static void
deadline_expired(void)
{
	/* a cancellation that is pending is somebody else's and goes first */
	if (expirations == 0 && QueryCancelPending)
		return;
	expirations++;
	if (expirations > CANCELS_MAX && timed_step != NULL &&
		timed_step->memory->mode.by_worker)
		ProcDiePending = true;
	else
		QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

static void
start_timeout(TtlBatch *batch)
{
	static bool is_registered = false;

	expirations = 0;
	if (batch->deadline == 0)
		return;
	if (!is_registered)
		timeout_id = RegisterTimeout(USER_TIMEOUT, deadline_expired);
	is_registered = true;
	timed_step = batch;
	enable_timeout_every(timeout_id, batch->deadline, CANCEL_PERIOD);
}

/*
 * Stops the timeout.  Returns whether it has expired.  A cancellation that came too
 * late to be processed would meet the next statement.
 */
static bool
stop_timeout(void)
{
	if (timed_step == NULL)
		return false;
	timed_step = NULL;
	disable_timeout(timeout_id, false);
	if (expirations > 0)
		QueryCancelPending = false;
	return expirations > 0;
}

static const TtlBatch *
overdue(void)
{
	return expirations > 0 ? timed_step : NULL;
}

ErrorData *
ttl_batch_attempt(void (*action) (TtlBatch *), TtlBatch *batch)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;
	bool		is_limited = get_timeout_active(STATEMENT_TIMEOUT);

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);

	PG_TRY();
	{
		int			nest_level = NewGUCNestLevel();

		(void) set_config_option("lock_timeout", LOCK_WAIT,
								 PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
		start_timeout(batch);
		action(batch);
		batch->timed_out = stop_timeout();

		/* nor do settings stay that triggers have made */
		AtEOXact_GUC(false, nest_level);

		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		batch->timed_out = stop_timeout();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();

		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;

		/* a user's statement_timeout may have expired, too */
		if (is_limited && !get_timeout_active(STATEMENT_TIMEOUT))
			batch->timed_out = false;
		if (batch->timed_out && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			error->message = "canceling deletion due to \"ttl.batch_timeout\"";
	}
	PG_END_TRY();

	return error;
}

/* Rows that raise and are logged, in a pass */
#define LOGGED_MAX			3

bool
ttl_batch_is_no_rows(const ErrorData *error)
{
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
			return true;
		default:
			return false;
	}
}

static bool
is_reference(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION ||
		error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION;
}

/* Notes an error for the statistics. */
static void
note_error(TtlBatch *batch, const ErrorData *error)
{
	batch->error = MemoryContextStrdup(batch->memory->batch_context, error->message);
}

/*
 * Logs an error, or shows it to the user who has called, and notes it for the
 * statistics.  The context of what was thrown is all of it.
 */
static void
report_error(TtlBatch *batch, const ErrorData *error)
{
	ErrorContextCallback *stack = error_context_stack;

	note_error(batch, error);

	if (error->context != NULL)
		error_context_stack = NULL;
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not delete expired rows of table \"%s\": %s",
					ttl_container_qualified_name(RelationGetRelid(batch->rel)),
					error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0,
			 error->context ? errcontext("%s", error->context) : 0));
	error_context_stack = stack;
}

void
ttl_batch_handle_error(TtlBatch *batch, ErrorData *error)
{
	if (!batch->memory->mode.by_worker)
		ReThrowError(error);

	/* logged once, however often it is met */
	if (error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
		batch->reap_rel->lacks_index)
		note_error(batch, error);

	/* deadlocks happen, and cancellation is a user's wish */
	else if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_TRANSACTION_ROLLBACK &&
			 error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			 error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		report_error(batch, error);
	batch->reap_rel->lacks_index = batch->reap_rel->lacks_index ||
		error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	ttl_reap_rel_pause(batch->reap_rel);
}

static bool
handle_tables(TtlBatch *batch, ErrorData *error)
{
	TtlRelState *state = &batch->reap_rel->state;
	TtlBatch		test = *batch;
	ErrorData  *test_error = ttl_batch_attempt(delete_nothing, &test);

	if (test.works_without_rows || test.timed_out)
		return false;
	if (ttl_batch_is_no_rows(test_error))
		ttl_batch_handle_error(batch, test_error);
	else
	{
		if (state->logged_sqlstate != error->sqlerrcode)
			report_error(batch, error);
		else
			note_error(batch, error);
		state->logged_sqlstate = error->sqlerrcode;
		ttl_reap_rel_pause(batch->reap_rel);
	}
	return true;
}

void
ttl_batch_report_referenced(TtlBatch *batch, const ErrorData *error)
{
	TtlPass    *pass = &batch->reap_rel->state.pass;

	pass->references = true;
	if (!pass->references_logged &&
		(pass->last_references || !batch->memory->mode.by_worker))
	{
		report_error(batch, error);
		pass->references_logged = true;
	}
	else
		note_error(batch, error);
}

static void
block_row(TtlBatch *batch, const ErrorData *error)
{
	TtlPass    *pass = &batch->reap_rel->state.pass;

	batch->reap_rel->blocked++;
	if (is_reference(error))
	{
		ttl_batch_report_referenced(batch, error);
		return;
	}
	if (pass->raised >= pass->last_raised && pass->raised < pass->last_raised + LOGGED_MAX)
		report_error(batch, error);
	else
		note_error(batch, error);
	pass->raised++;
}

static void
handle_kept(TtlBatch *batch)
{
	ItemPointer tids = batch->tids;
	int			ntids = batch->ntids;
	TupleTableSlot *slot = table_slot_create(batch->rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlockNumber nblocks = RelationGetNumberOfBlocks(batch->rel);

	for (int i = 0; i < ntids; i++)
	{
		batch->tids = &tids[i];
		batch->ntids = 1;
		/* the table may have been truncated since the place was collected */
		if (ItemPointerGetBlockNumber(batch->tids) < nblocks &&
			table_tuple_fetch_row_version(batch->rel, batch->tids, snapshot, slot) &&
			ttl_expiry_of_slot(&batch->container, slot) <= batch->now &&
			!(batch->in_grace &&
			  ttl_grace_covers_slot(&batch->container, slot, batch->now)))
		{
			ErrorData  *error = palloc0(sizeof(ErrorData));

			error->sqlerrcode = ERRCODE_TRIGGERED_ACTION_EXCEPTION;
			error->message = "a trigger or rule has kept an expired row";
			block_row(batch, error);
		}
		ExecClearTuple(slot);
	}
	batch->tids = tids;
	batch->ntids = ntids;
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
}

bool
ttl_batch_handle_exit(void)
{
	const TtlBatch *batch = overdue();

	if (batch == NULL)
		return false;
	ttl_reap_rel_discard(batch->memory, batch->reap_rel);
	ttl_reap_rel_pause_long(batch->reap_rel);
	ttl_reap_rel_store(batch->memory, batch->reap_rel);
	ttl_counters_set_error(batch->container.container,
						   "a trigger has ignored cancellation due to \"ttl.batch_timeout\"");
	return true;
}

/* The time that a batch shall take, ms, and its most rows. */
#define BATCH_TIME			50.0
#define BATCH_MAX			10000

/* Locked rows are left out at once for so long after they were met. */
#define LOCKED_MEMORY		(1 * USECS_PER_SEC)

/* After a timeout, stuck tables rest for so many times as long as it took. */
#define TIMEOUT_SHARE			4

/*
 * A partition is emptied as a whole if so many rows are known to be there to
 * delete; how long the worker may read it for that, and when it tries again
 * after an error.
 */
#define TRUNCATE_MIN_ROWS		500
#define TRUNCATE_TIME			(USECS_PER_SEC / 2)
#define TRUNCATE_ERROR_WAIT	(600 * USECS_PER_SEC)

/*
 * Another process may be using the replication origin, for a batch.  The worker
 * tries so often, after so many ms, then it comes again later; a user's call
 * waits.
 */
#define ORIGIN_TRIES		10
#define ORIGIN_WAIT			10

/*
 * Makes the size of the next batch such that it takes about BATCH_TIME.
 */
static void
adapt_batch_size(TtlReapRel *reap_rel, int size, double took)
{
	double		next = 2.0 * size;

	if (size < reap_rel->batch_size)
		return;					/* the end of what was collected */
	if (reap_rel->fixed_size > 0)
		next = Min(next, reap_rel->fixed_size);
	else if (took > 0.0)
		next = Min(next, size * BATCH_TIME / took);
	reap_rel->batch_size = (int) Max(1.0, reap_rel->fixed_size > 0 ? next :
								 Min(next, (double) BATCH_MAX));
}

/*
 * How many rows the step may delete, if what it may cost is all that matters.
 */
static int64
affordable_rows(const TtlBatch *batch)
{
	int64		cost = batch->max_cost;
	double		rows;

	if (batch->reap_rel->row_cost <= 0.0)
		return batch->max_rows;
	if (batch->reap_rel->fixed_size == 0)
		cost = Min(cost, batch->max_batch_cost);
	rows = cost / batch->reap_rel->row_cost;
	return rows < batch->max_rows ? (int64) Max(rows, 1.0) : batch->max_rows;
}

/*
 * Attempts the deletion; where that fails because of locked rows or references, once
 * more without the former or with the latter.
 */
static ErrorData *
attempt_delete(TtlBatch *batch, instr_time *start)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	ErrorData  *error = ttl_batch_attempt(delete_tids, batch);

	if (error && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE &&
		!batch->skip_locked)
	{
		FreeErrorData(error);
		reap_rel->locked_until = GetCurrentTimestamp() + LOCKED_MEMORY;
		batch->skip_locked = true;
		INSTR_TIME_SET_CURRENT(*start);
		error = ttl_batch_attempt(delete_tids, batch);
	}
	if (error && is_reference(error))
	{
		FreeErrorData(error);
		batch->with_referencing = true;
		INSTR_TIME_SET_CURRENT(*start);
		error = ttl_batch_attempt(delete_tids, batch);
	}
	return error;
}

/*
 * A trigger that sleeps costs the whole timeout, so stuck tables wait until that was a
 * small share of the worker's time.  The other rows of the batch go one by one.
 */
static void
note_timeout(TtlBatch *batch, int64 busy)
{
	TtlReapRel *reap_rel = batch->reap_rel;

	reap_rel->state.has_timed_out = true;
	reap_rel->state.n_single = Max(reap_rel->state.n_single, batch->ntids);
	reap_rel->batch_size = 1;
	batch->memory->rest_until = GetCurrentTimestamp() + busy * TIMEOUT_SHARE;
}

TtlReapResult
ttl_batch_delete(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlTids  *tids = &reap_rel->tids;
	TimestampTz started = GetCurrentTimestamp();
	BufferUsage used = pgBufferUsage;
	instr_time	start;
	instr_time	took;
	ErrorData  *error;
	TtlReapResult next = TTL_REAP_MORE;
	int			origin_tries = 0;

	if (reap_rel->fixed_size != batch->container.batch_size)
	{
		reap_rel->fixed_size = batch->container.batch_size;
		reap_rel->batch_size = reap_rel->fixed_size > 0 ? reap_rel->fixed_size : TTL_BATCH_START;
	}

	batch->tids = tids->tids + reap_rel->next_tid;
	batch->ntids = Min(tids->n - reap_rel->next_tid,
					  Min(reap_rel->state.n_single > 0 ? 1 : reap_rel->batch_size, affordable_rows(batch)));
	batch->skip_locked = reap_rel->locked_until > started;

	ttl_reap_report_phase(TTL_PHASE_DELETING);
	INSTR_TIME_SET_CURRENT(start);
	error = attempt_delete(batch, &start);
	while (error && batch->origin_wanted &&
		   error->sqlerrcode == ERRCODE_OBJECT_IN_USE)
	{
		batch->origin_wanted = false;
		if (batch->memory->mode.by_worker && origin_tries++ >= ORIGIN_TRIES)
			return TTL_REAP_LATER;
		FreeErrorData(error);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ORIGIN_WAIT, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		INSTR_TIME_SET_CURRENT(start);
		error = ttl_batch_attempt(delete_tids, batch);
	}
	if (error && batch->origin_wanted)
	{
		ttl_batch_handle_error(batch, error);
		return TTL_REAP_LATER;
	}

	if (batch->timed_out)
	{
		note_timeout(batch, GetCurrentTimestamp() - started);
		if (batch->memory->mode.by_worker)
			next = TTL_REAP_LATER;
	}
	if (error == NULL)
	{
		INSTR_TIME_SET_CURRENT(took);
		INSTR_TIME_SUBTRACT(took, start);
		adapt_batch_size(reap_rel, batch->ntids, INSTR_TIME_GET_MILLISEC(took));
		if (batch->deleted > 0)
		{
			reap_rel->row_cost = (double) ttl_budget_cost_since(&used) / batch->deleted;
			reap_rel->state.has_timed_out = batch->timed_out;
		}
		ttl_reap_rel_end_pause(reap_rel);
		reap_rel->state.logged_sqlstate = 0;
		reap_rel->state.n_single = Max(reap_rel->state.n_single - 1, 0);
		reap_rel->next_tid += batch->ntids;
		if (batch->deleted < batch->ntids && batch->skip_locked)
			reap_rel->state.pass.skipped_locked = true;
		else if (batch->deleted < batch->ntids)
			handle_kept(batch);
		return next;
	}

	batch->deleted = 0;
	reap_rel->state.pass.busy += GetCurrentTimestamp() - started;
	if (!batch->timed_out && ttl_batch_is_no_rows(error))
	{
		ttl_batch_handle_error(batch, error);
		return TTL_REAP_LATER;
	}

	if (batch->ntids > 1)
	{
		if (!batch->timed_out)
			reap_rel->batch_size = batch->ntids / 2;
		return next;
	}

	/* the culprit is alone; what is locked comes again with the next pass */
	reap_rel->state.n_single = Max(reap_rel->state.n_single - 1, 0);
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && !batch->timed_out)
		reap_rel->state.pass.skipped_locked = true;
	else if (!batch->timed_out && handle_tables(batch, error))
		return TTL_REAP_LATER;
	else
		block_row(batch, error);
	reap_rel->next_tid++;
	return next;
}

/*
 * Empties the reap_rel, if it can be done at once.
 */
static void
truncate_partition(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlTruncateLimits limits;
	int64		rows;

	limits.max_rows = batch->max_rows;
	limits.max_pages = batch->max_cost;
	if (ttl_guc_throughput == 0)
		limits.max_pages = Max(limits.max_pages, ttl_guc_cycle_cost_limit / 4);
	limits.until = batch->memory->mode.by_worker ?
		GetCurrentTimestamp() + TRUNCATE_TIME : DT_NOEND;

	PushActiveSnapshot(GetTransactionSnapshot());
	rows = ttl_truncate_partition(&reap_rel->truncate, &batch->container, &limits);
	PopActiveSnapshot();

	if (rows >= 0)
	{
		batch->deleted = Max(rows, reap_rel->tids.n - reap_rel->next_tid);
		batch->emptied = true;
	}
}

bool
ttl_batch_try_truncate(TtlBatch *batch)
{
	TtlMemory  *memory = batch->memory;
	TtlReapRel *reap_rel = batch->reap_rel;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz deadline = batch->deadline;
	ErrorData  *error;

	if (!memory->mode.commits || batch->in_grace ||
		reap_rel->tids.n - reap_rel->next_tid < TRUNCATE_MIN_ROWS ||
		!ttl_truncate_partition_ready(&reap_rel->truncate, batch->rel, &batch->container,
						 memory->context))
		return false;

	ttl_reap_report_phase(TTL_PHASE_EMPTYING);
	relation_close(batch->rel, NoLock);

	/* it runs nobody's code, and has limits of its own */
	batch->deadline = 0;
	error = ttl_batch_attempt(truncate_partition, batch);
	if (deadline != 0)
		batch->deadline = deadline + (GetCurrentTimestamp() - started);
	batch->rel = relation_open(reap_rel->relid, NoLock);
	if (error != NULL)
	{
		/* an error of a user's cancellation; otherwise it goes row by row */
		if (!memory->mode.by_worker &&
			error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		ttl_truncate_partition_forget(&reap_rel->truncate);
		reap_rel->truncate.next_at = GetCurrentTimestamp() + TRUNCATE_ERROR_WAIT;
		batch->deleted = 0;
		return false;
	}
	if (!batch->emptied)
		return false;

	ttl_reap_rel_discard(memory, reap_rel);
	ttl_reap_rel_begin_pass(reap_rel, batch->now);
	reap_rel->left_wait = TTL_LEFT_MIN_WAIT;
	return true;
}
