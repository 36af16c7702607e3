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
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
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

void
ttl_step_delete(TtlStep *step)
{
	volatile int flags = 0;

	if (step->skip_locked)
		flags |= TTL_DELETION_SKIP_LOCKED;
	if (step->with_referencing)
		flags |= TTL_DELETION_WITH_REFERENCING;

	if (step->memory->mode.by_worker)
		flags |= TTL_DELETION_EXCLUDES | TTL_DELETION_KEEPS_APART;
	else if (step->rel->rd_rel->relowner != GetUserId())
		flags |= TTL_DELETION_RESTRICTED;

	/* in a user's transaction deferred constraints stay deferred */
	if (step->memory->mode.commits)
		flags |= TTL_DELETION_COMMITS;

	if (step->container.replication_origin)
	{
		step->origin_wanted = true;
		ttl_origin_begin();
		step->origin_wanted = false;
	}
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		step->deleted = ttl_deletion_run(step->rel, &step->container,
										 step->tids, step->ntids,
										 step->now, flags, NULL);
		if (step->memory->mode.by_worker)
			ttl_session_drop_temporary();
		PopActiveSnapshot();
	}
	PG_FINALLY();
	{
		ttl_origin_end();
	}
	PG_END_TRY();
}

void
ttl_step_delete_nothing(TtlStep *step)
{
	step->ntids = 0;
	ttl_step_delete(step);
	step->works_without_rows = true;
	elog(ERROR, "nothing has been deleted");
}

/* Cancellations of the running attempt by its timeout */
static volatile sig_atomic_t expirations = 0;

/* The attempt that runs until a deadline, or NULL */
static TtlStep *timed_step = NULL;

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
start_timeout(TtlStep *step)
{
	static bool is_registered = false;

	expirations = 0;
	if (step->deadline == 0)
		return;
	if (!is_registered)
		timeout_id = RegisterTimeout(USER_TIMEOUT, deadline_expired);
	is_registered = true;
	timed_step = step;
	enable_timeout_every(timeout_id, step->deadline, CANCEL_PERIOD);
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

const TtlStep *
ttl_step_overdue(void)
{
	return expirations > 0 ? timed_step : NULL;
}

ErrorData *
ttl_step_attempt(void (*action) (TtlStep *), TtlStep *step)
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
		start_timeout(step);
		action(step);
		step->timed_out = stop_timeout();

		/* nor do settings stay that triggers have made */
		AtEOXact_GUC(false, nest_level);

		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		step->timed_out = stop_timeout();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();

		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;

		/* a user's statement_timeout may have expired, too */
		if (is_limited && !get_timeout_active(STATEMENT_TIMEOUT))
			step->timed_out = false;
		if (step->timed_out && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			error->message = "canceling deletion due to \"ttl.batch_timeout\"";
	}
	PG_END_TRY();

	return error;
}

/* Rows that raise and are logged, in a pass */
#define LOGGED_MAX			3

bool
ttl_reap_error_is_no_rows(const ErrorData *error)
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

bool
ttl_reap_error_is_reference(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION ||
		error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION;
}

/* Notes an error for the statistics. */
static void
note_error(TtlStep *step, const ErrorData *error)
{
	step->error = MemoryContextStrdup(step->memory->step_context, error->message);
}

/*
 * Logs an error, or shows it to the user who has called, and notes it for the
 * statistics.  The context of what was thrown is all of it.
 */
static void
report_error(TtlStep *step, const ErrorData *error)
{
	ErrorContextCallback *stack = error_context_stack;

	note_error(step, error);

	if (error->context != NULL)
		error_context_stack = NULL;
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not delete expired rows of table \"%s\": %s",
					ttl_container_qualified_name(RelationGetRelid(step->rel)),
					error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0,
			 error->context ? errcontext("%s", error->context) : 0));
	error_context_stack = stack;
}

void
ttl_reap_error_handle_trouble(TtlStep *step, ErrorData *error)
{
	if (!step->memory->mode.by_worker)
		ReThrowError(error);

	/* logged once, however often it is met */
	if (error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
		step->leaf->lacks_index)
		note_error(step, error);

	/* deadlocks happen, and cancellation is a user's wish */
	else if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_TRANSACTION_ROLLBACK &&
			 error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			 error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		report_error(step, error);
	step->leaf->lacks_index = step->leaf->lacks_index ||
		error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	ttl_reap_rel_pause(step->leaf);
}

bool
ttl_reap_error_handle_tables(TtlStep *step, ErrorData *error)
{
	TtlRelState *state = &step->leaf->state;
	TtlStep		test = *step;
	ErrorData  *test_error = ttl_step_attempt(ttl_step_delete_nothing, &test);

	if (test.works_without_rows || test.timed_out)
		return false;
	if (ttl_reap_error_is_no_rows(test_error))
		ttl_reap_error_handle_trouble(step, test_error);
	else
	{
		if (state->trouble != error->sqlerrcode)
			report_error(step, error);
		else
			note_error(step, error);
		state->trouble = error->sqlerrcode;
		ttl_reap_rel_pause(step->leaf);
	}
	return true;
}

void
ttl_reap_error_report_referenced(TtlStep *step, const ErrorData *error)
{
	TtlPass    *pass = &step->leaf->state.pass;

	pass->references = true;
	if (!pass->references_logged &&
		(pass->last_references || !step->memory->mode.by_worker))
	{
		report_error(step, error);
		pass->references_logged = true;
	}
	else
		note_error(step, error);
}

void
ttl_reap_error_block_row(TtlStep *step, const ErrorData *error)
{
	TtlPass    *pass = &step->leaf->state.pass;

	step->leaf->blocked++;
	if (ttl_reap_error_is_reference(error))
	{
		ttl_reap_error_report_referenced(step, error);
		return;
	}
	if (pass->raised >= pass->last_raised && pass->raised < pass->last_raised + LOGGED_MAX)
		report_error(step, error);
	else
		note_error(step, error);
	pass->raised++;
}

void
ttl_reap_error_handle_kept(TtlStep *step)
{
	ItemPointer tids = step->tids;
	int			ntids = step->ntids;
	TupleTableSlot *slot = table_slot_create(step->rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlockNumber nblocks = RelationGetNumberOfBlocks(step->rel);

	for (int i = 0; i < ntids; i++)
	{
		step->tids = &tids[i];
		step->ntids = 1;
		/* the table may have been truncated since the place was collected */
		if (ItemPointerGetBlockNumber(step->tids) < nblocks &&
			table_tuple_fetch_row_version(step->rel, step->tids, snapshot, slot) &&
			ttl_expiry_of_slot(&step->container, slot) <= step->now &&
			!(step->spares &&
			  ttl_grace_covers_slot(&step->container, slot, step->now)))
		{
			ErrorData  *error = palloc0(sizeof(ErrorData));

			error->sqlerrcode = ERRCODE_TRIGGERED_ACTION_EXCEPTION;
			error->message = "a trigger or rule has kept an expired row";
			ttl_reap_error_block_row(step, error);
		}
		ExecClearTuple(slot);
	}
	step->tids = tids;
	step->ntids = ntids;
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
}

bool
ttl_reap_error_handle_exit(void)
{
	const TtlStep *step = ttl_step_overdue();

	if (step == NULL)
		return false;
	ttl_reap_rel_discard(step->memory, step->leaf);
	ttl_reap_rel_pause_long(step->leaf);
	ttl_reap_rel_store(step->memory, step->leaf);
	ttl_counters_set_error(step->container.container,
						   "a trigger has ignored cancellation due to \"ttl.batch_timeout\"");
	return true;
}

/* The time that a batch shall take, ms, and its most rows. */
#define BATCH_TIME			50.0
#define BATCH_MAX			10000

/* Locked rows are left out at once for so long after they were met. */
#define LOCKED_MEMORY		(1 * USECS_PER_SEC)

/* After a timeout, stuck tables rest for so many times as long as it took. */
#define STUCK_SHARE			4

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
adapt_batch_size(TtlReapRel *leaf, int size, double took)
{
	double		next = 2.0 * size;

	if (size < leaf->batch_size)
		return;					/* the end of what was collected */
	if (leaf->fixed_size > 0)
		next = Min(next, leaf->fixed_size);
	else if (took > 0.0)
		next = Min(next, size * BATCH_TIME / took);
	leaf->batch_size = (int) Max(1.0, leaf->fixed_size > 0 ? next :
								 Min(next, (double) BATCH_MAX));
}

/*
 * How many rows the step may delete, if what it may cost is all that matters.
 */
static int64
affordable_rows(const TtlStep *step)
{
	int64		cost = step->max_cost;
	double		rows;

	if (step->leaf->row_cost <= 0.0)
		return step->max_rows;
	if (step->leaf->fixed_size == 0)
		cost = Min(cost, step->max_batch_cost);
	rows = cost / step->leaf->row_cost;
	return rows < step->max_rows ? (int64) Max(rows, 1.0) : step->max_rows;
}

/*
 * Attempts the deletion; where that fails because of locked rows or references, once
 * more without the former or with the latter.
 */
static ErrorData *
attempt_delete(TtlStep *step, instr_time *start)
{
	TtlReapRel    *leaf = step->leaf;
	ErrorData  *error = ttl_step_attempt(ttl_step_delete, step);

	if (error && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE &&
		!step->skip_locked)
	{
		FreeErrorData(error);
		leaf->locked_until = GetCurrentTimestamp() + LOCKED_MEMORY;
		step->skip_locked = true;
		INSTR_TIME_SET_CURRENT(*start);
		error = ttl_step_attempt(ttl_step_delete, step);
	}
	if (error && ttl_reap_error_is_reference(error))
	{
		FreeErrorData(error);
		step->with_referencing = true;
		INSTR_TIME_SET_CURRENT(*start);
		error = ttl_step_attempt(ttl_step_delete, step);
	}
	return error;
}

/*
 * A trigger that sleeps costs the whole timeout, so stuck tables wait until that was a
 * small share of the worker's time.  The other rows of the batch go one by one.
 */
static void
note_timeout(TtlStep *step, int64 busy)
{
	TtlReapRel    *leaf = step->leaf;

	leaf->state.is_stuck = true;
	leaf->state.single = Max(leaf->state.single, step->ntids);
	leaf->batch_size = 1;
	step->memory->rest_until = GetCurrentTimestamp() + busy * STUCK_SHARE;
}

TtlStepResult
ttl_batch_delete(TtlStep *step)
{
	TtlReapRel    *leaf = step->leaf;
	TtlTids    *places = &leaf->places;
	TimestampTz started = GetCurrentTimestamp();
	BufferUsage used = pgBufferUsage;
	instr_time	start;
	instr_time	took;
	ErrorData  *error;
	TtlStepResult next = TTL_STEP_MORE;
	int			origin_tries = 0;

	if (leaf->fixed_size != step->container.batch_size)
	{
		leaf->fixed_size = step->container.batch_size;
		leaf->batch_size = leaf->fixed_size > 0 ? leaf->fixed_size : TTL_BATCH_START;
	}

	step->tids = places->tids + leaf->next_place;
	step->ntids = Min(places->n - leaf->next_place,
					  Min(leaf->state.single > 0 ? 1 : leaf->batch_size, affordable_rows(step)));
	step->skip_locked = leaf->locked_until > started;

	ttl_progress_phase(TTL_PHASE_DELETING);
	INSTR_TIME_SET_CURRENT(start);
	error = attempt_delete(step, &start);
	while (error && step->origin_wanted &&
		   error->sqlerrcode == ERRCODE_OBJECT_IN_USE)
	{
		step->origin_wanted = false;
		if (step->memory->mode.by_worker && origin_tries++ >= ORIGIN_TRIES)
			return TTL_STEP_AWAY;
		FreeErrorData(error);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ORIGIN_WAIT, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		INSTR_TIME_SET_CURRENT(start);
		error = ttl_step_attempt(ttl_step_delete, step);
	}
	if (error && step->origin_wanted)
	{
		ttl_reap_error_handle_trouble(step, error);
		return TTL_STEP_AWAY;
	}

	if (step->timed_out)
	{
		note_timeout(step, GetCurrentTimestamp() - started);
		if (step->memory->mode.by_worker)
			next = TTL_STEP_AWAY;
	}
	if (error == NULL)
	{
		INSTR_TIME_SET_CURRENT(took);
		INSTR_TIME_SUBTRACT(took, start);
		adapt_batch_size(leaf, step->ntids, INSTR_TIME_GET_MILLISEC(took));
		if (step->deleted > 0)
		{
			leaf->row_cost = (double) ttl_budget_cost_since(&used) / step->deleted;
			leaf->state.is_stuck = step->timed_out;
		}
		ttl_reap_rel_end_pause(leaf);
		leaf->state.trouble = 0;
		leaf->state.single = Max(leaf->state.single - 1, 0);
		leaf->next_place += step->ntids;
		if (step->deleted < step->ntids && step->skip_locked)
			leaf->state.pass.skipped_locked = true;
		else if (step->deleted < step->ntids)
			ttl_reap_error_handle_kept(step);
		return next;
	}

	step->deleted = 0;
	leaf->state.pass.busy += GetCurrentTimestamp() - started;
	if (!step->timed_out && ttl_reap_error_is_no_rows(error))
	{
		ttl_reap_error_handle_trouble(step, error);
		return TTL_STEP_AWAY;
	}

	if (step->ntids > 1)
	{
		if (!step->timed_out)
			leaf->batch_size = step->ntids / 2;
		return next;
	}

	/* the culprit is alone; what is locked comes again with the next pass */
	leaf->state.single = Max(leaf->state.single - 1, 0);
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && !step->timed_out)
		leaf->state.pass.skipped_locked = true;
	else if (!step->timed_out && ttl_reap_error_handle_tables(step, error))
		return TTL_STEP_AWAY;
	else
		ttl_reap_error_block_row(step, error);
	leaf->next_place++;
	return next;
}

/*
 * Empties the leaf, if it can be done at once.
 */
static void
truncate_partition(TtlStep *step)
{
	TtlReapRel    *leaf = step->leaf;
	TtlTruncateLimits limits;
	int64		rows;

	limits.max_rows = step->max_rows;
	limits.max_pages = step->max_cost;
	if (ttl_guc_throughput == 0)
		limits.max_pages = Max(limits.max_pages, ttl_guc_cycle_cost_limit / 4);
	limits.until = step->memory->mode.by_worker ?
		GetCurrentTimestamp() + TRUNCATE_TIME : DT_NOEND;

	PushActiveSnapshot(GetTransactionSnapshot());
	rows = ttl_truncate_partition(&leaf->whole, &step->container, &limits);
	PopActiveSnapshot();

	if (rows >= 0)
	{
		step->deleted = Max(rows, leaf->places.n - leaf->next_place);
		step->emptied = true;
	}
}

bool
ttl_batch_try_truncate(TtlStep *step)
{
	TtlMemory  *memory = step->memory;
	TtlReapRel    *leaf = step->leaf;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz deadline = step->deadline;
	ErrorData  *error;

	if (!memory->mode.commits || step->spares ||
		leaf->places.n - leaf->next_place < TRUNCATE_MIN_ROWS ||
		!ttl_truncate_partition_ready(&leaf->whole, step->rel, &step->container,
						 memory->context))
		return false;

	ttl_progress_phase(TTL_PHASE_EMPTYING);
	relation_close(step->rel, NoLock);

	/* it runs nobody's code, and has limits of its own */
	step->deadline = 0;
	error = ttl_step_attempt(truncate_partition, step);
	if (deadline != 0)
		step->deadline = deadline + (GetCurrentTimestamp() - started);
	step->rel = relation_open(leaf->relid, NoLock);
	if (error != NULL)
	{
		/* an error of a user's cancellation; otherwise it goes row by row */
		if (!memory->mode.by_worker &&
			error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		ttl_truncate_partition_forget(&leaf->whole);
		leaf->whole.next_at = GetCurrentTimestamp() + TRUNCATE_ERROR_WAIT;
		step->deleted = 0;
		return false;
	}
	if (!step->emptied)
		return false;

	ttl_reap_rel_discard(memory, leaf);
	ttl_reap_rel_begin_pass(leaf, step->now);
	leaf->left_wait = TTL_LEFT_MIN_WAIT;
	return true;
}
