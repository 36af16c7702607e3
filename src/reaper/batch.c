/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  Deletes a batch of the rows that have been collected.
 *
 * A batch is one transaction's work.  Its size is adapted so that it takes BATCH_TIME.
 * What may fail runs in a subtransaction, by ttl_batch_attempt().
 *
 * The worker takes only locks that are available at once, except row locks and
 * what triggers and referential actions take, for LOCK_WAIT.  If a row is locked for
 * longer, the batch skips locked rows.  (SELECT FOR UPDATE SKIP LOCKED for all would
 * write one more WAL record for each row.)  A user's call waits for table and policy
 * as any statement does.
 *
 * Expired rows that reference rows of the batch go along (fk.c).  Those that the reaper must
 * not delete yet, by the settings of their own container, stay, and so do the rows that they
 * reference.
 *
 * Other errors:
 * - Cancellation, deadlock, lack of resources: raised in a user's call; the worker
 *	 pauses the table.
 * - An error that a DELETE of no rows raises, too (a published table without replica
 *	 identity, an archive that was dropped): the worker pauses the table.
 * - A trigger may raise itself what looks like a cancellation or a deadlock.  So the second time
 *	 the rows of the batch are deleted one by one, and the error is blamed on a row.
 * - All others are blamed on a row.  The batch is halved until the row is alone; it is
 *	 counted, reported, and left to the next pass.
 *
 * Triggers may sleep or loop.  When a batch has taken ttl.batch_timeout it is canceled
 * as by statement_timeout, and again every CANCEL_PERIOD, since a trigger may trap the
 * error.  Its rows are then deleted one by one.  A worker whose cancellations are all
 * trapped is terminated in the end; in a user's session that is left to the user.  When the
 * worker's process ends during an attempt, by this or by what a trigger has set (exit_on_error,
 * transaction_timeout), ttl_batch_handle_exit() gives the table a long pause.
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
 * A pass reports the first LOGGED_MAX rows that raise an error, beyond the number that
 * the pass before has met.  References often end by themselves soon after, so the worker
 * logs them only when two passes in a row have met some.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "compat.h"
#include "cost.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "replication/origin.h"
#include "reaper/reaper_internal.h"
#include "reaper/reap_rel.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "ttl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* The time that a batch should take, ms, and the numbers of its rows */
#define BATCH_TIME			50.0
#define BATCH_START			50
#define BATCH_MAX			10000

/* How long a batch waits for a lock; the value of lock_timeout */
#define LOCK_WAIT			"50ms"

/* Locked rows are skipped at once for so long after they were met. */
#define LOCKED_MEMORY		(1 * USECS_PER_SEC)

/* Time between cancellations, ms, and their greatest number */
#define CANCEL_PERIOD		1000
#define CANCELS_MAX			5

/* Tables with a timeout rest for so many times as long as it took. */
#define TIMEOUT_SHARE		4

/* Rows that are reported in a pass */
#define LOGGED_MAX			3

/*
 * Another process may be using the replication origin, for a batch.  The worker
 * tries so often, after so many ms, then it comes again later; a user's call
 * waits.
 */
#define ORIGIN_TRIES		10
#define ORIGIN_WAIT			10

static TimeoutId timeout_id;	/* registered when it is first needed */

/* Cancellations of the running attempt by its timeout */
static volatile sig_atomic_t expirations = 0;

/* The batch that is being attempted, or NULL, and whether until its deadline */
static TtlBatch *attempted = NULL;
static bool is_timed = false;

/* Signal handler */
static void
deadline_expired(void)
{
	/* a pending cancellation has another cause and goes first */
	if (expirations == 0 && QueryCancelPending)
		return;
	expirations++;
	if (expirations > CANCELS_MAX && attempted->memory->mode.by_worker)
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
	if (batch->deadline == 0 && ttl_guc_batch_timeout > 0)
		batch->deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													  ttl_guc_batch_timeout);
	if (batch->deadline == 0)
		return;
	if (!is_registered)
		timeout_id = RegisterTimeout(USER_TIMEOUT, deadline_expired);
	is_registered = true;
	is_timed = true;
	enable_timeout_every(timeout_id, batch->deadline, CANCEL_PERIOD);
}

/*
 * Stops the timeout.  Returns whether it has expired.  A cancellation that has not
 * been processed yet would hit the next statement.
 */
static bool
stop_timeout(void)
{
	if (!is_timed)
		return false;
	is_timed = false;
	disable_timeout(timeout_id, false);
	if (expirations > 0)
		QueryCancelPending = false;
	return expirations > 0;
}

bool
ttl_batch_handle_exit(bool is_terminated)
{
	TtlBatch   *batch = attempted;
	bool		is_canceled = is_timed && expirations > 0;

	if (batch == NULL || (is_terminated && !is_canceled))
		return false;
	batch->reap_rel->state.n_single = Max(batch->reap_rel->state.n_single, batch->ntids);
	ttl_reap_rel_discard(batch->memory, batch->reap_rel);
	ttl_reap_rel_pause(batch->reap_rel, true);
	ttl_reap_rel_store(batch->memory, batch->reap_rel);
	ttl_counters_set_error(batch->container.container, is_canceled ?
						   "a trigger has ignored cancellation due to \"ttl.batch_timeout\"" :
						   "deletion of expired rows has ended the worker process");
	return true;
}

ErrorData *
ttl_batch_attempt(void (*action) (TtlBatch *), TtlBatch *batch, bool has_deadline)
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
		attempted = batch;
		if (has_deadline)
			start_timeout(batch);
		action(batch);
		batch->timed_out = stop_timeout();
		attempted = NULL;

		/* discard settings made by triggers */
		AtEOXact_GUC(false, nest_level);

		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		batch->timed_out = stop_timeout();
		attempted = NULL;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();

		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		ttl_deletion_discard_counts();

		/* a user's statement_timeout may have expired, too */
		if (is_limited && !get_timeout_active(STATEMENT_TIMEOUT))
			batch->timed_out = false;
		if (batch->timed_out && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			error->message = "canceling deletion due to \"ttl.batch_timeout\"";
	}
	PG_END_TRY();

	return error;
}

/* Is it an error for which no row is to blame? */
static bool
is_no_rows(const ErrorData *error)
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

/* True if an error of that kind has paused the worker's table before, and a trigger may raise it. */
static bool
is_raised_again(const TtlBatch *batch, const ErrorData *error)
{
	const TtlRelState *state = &batch->reap_rel->state;
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return batch->memory->mode.by_worker && (state->pause > 0 || state->n_single > 0) &&
		(category == ERRCODE_TRANSACTION_ROLLBACK || category == ERRCODE_OPERATOR_INTERVENTION);
}

static bool
is_reference(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION ||
		error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION;
}

/*
 * Notes an error for the statistics; maybe logs it, or shows it to the user who has
 * called.
 */
static void
report_error(TtlBatch *batch, const ErrorData *error, bool is_logged)
{
	ErrorContextCallback *stack = error_context_stack;

	batch->error = MemoryContextStrdup(batch->memory->batch_context, error->message);
	if (!is_logged)
		return;

	/* its context, if any, includes that of this function */
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

TtlReapResult
ttl_batch_handle_error(TtlBatch *batch, ErrorData *error)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	bool		lacks_index = error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;

	ttl_reap_rel_discard(batch->memory, reap_rel);
	if (!batch->memory->mode.by_worker)
		ReThrowError(error);

	/* deadlocks happen, and cancellation is a user's wish */
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_TRANSACTION_ROLLBACK &&
		error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
		error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		report_error(batch, error, !(lacks_index && reap_rel->lacks_index));
	reap_rel->lacks_index = reap_rel->lacks_index || lacks_index;
	ttl_reap_rel_pause(reap_rel, false);
	return TTL_REAP_LATER;
}

void
ttl_batch_report_referenced(TtlBatch *batch, const ErrorData *error)
{
	TtlPass    *pass = &batch->reap_rel->state.pass;
	bool		is_logged = !pass->references_logged &&
		(pass->last_references || !batch->memory->mode.by_worker);

	pass->references = true;
	pass->references_logged = pass->references_logged || is_logged;
	report_error(batch, error, is_logged);
}

/* Counts and reports a row that cannot be deleted. */
static void
block_row(TtlBatch *batch, const ErrorData *error)
{
	TtlPass    *pass = &batch->reap_rel->state.pass;

	batch->reap_rel->blocked++;
	if (is_reference(error))
		ttl_batch_report_referenced(batch, error);
	else
	{
		report_error(batch, error, pass->raised >= pass->last_raised &&
					 pass->raised < pass->last_raised + LOGGED_MAX);
		pass->raised++;
	}
}

/*
 * Less rows have been deleted than were to be, without an error.  Most often
 * they had been deleted or renewed; but a trigger or a rule may have kept them,
 * and would keep them forever.
 */
static void
block_kept_rows(TtlBatch *batch)
{
	ErrorData	error = {
		.sqlerrcode = ERRCODE_TRIGGERED_ACTION_EXCEPTION,
		.message = "a trigger or rule has kept an expired row"
	};
	TupleTableSlot *slot = table_slot_create(batch->rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlockNumber nblocks = RelationGetNumberOfBlocks(batch->rel);

	for (int i = 0; i < batch->ntids; i++)
	{
		/* the table may have been truncated since the TID was collected */
		if (ItemPointerGetBlockNumber(&batch->tids[i]) < nblocks &&
			table_tuple_fetch_row_version(batch->rel, &batch->tids[i], snapshot, slot) &&
			ttl_expiry_of_slot(&batch->container, slot) <= batch->now)
			block_row(batch, &error);
		ExecClearTuple(slot);
	}
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
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

	if (batch->skip_locked)
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

/*
 * If that fails, the deletion of these rows will fail, too, and show which of them are
 * referenced.
 */
TtlReapResult
ttl_batch_check_referenced(TtlBatch *batch)
{
	ErrorData  *error;

	if (batch->reap_rel->tids.n == 0 || batch->referenced == NIL)
		return TTL_REAP_MORE;
	error = ttl_batch_attempt(ttl_fk_referenced_leave_out, batch, true);
	if (error == NULL)
		return TTL_REAP_MORE;
	if (!batch->timed_out && is_no_rows(error))
		return ttl_batch_handle_error(batch, error);
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && batch->memory->mode.by_worker)
	{
		/* a partition of the referencing table is locked, which is no error */
		ttl_reap_rel_discard(batch->memory, batch->reap_rel);
		return TTL_REAP_LATER;
	}
	batch->reap_rel->skip_referenced_check = true;
	return TTL_REAP_MORE;
}

/*
 * The batch's only row cannot be deleted.  Is that the table's error?  Then the table is
 * paused.
 */
static bool
handle_tables_error(TtlBatch *batch, const ErrorData *error)
{
	TtlRelState *state = &batch->reap_rel->state;
	TtlBatch	test = *batch;
	ErrorData  *test_error = ttl_batch_attempt(delete_nothing, &test, true);

	if (test.works_without_rows || test.timed_out)
		return false;
	if (is_no_rows(test_error))
	{
		(void) ttl_batch_handle_error(batch, test_error);
		return true;
	}
	report_error(batch, error, state->logged_sqlstate != error->sqlerrcode);
	state->logged_sqlstate = error->sqlerrcode;
	ttl_reap_rel_pause(batch->reap_rel, false);
	return true;
}

/*
 * How many rows the batch may have.
 */
static int
choose_size(const TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	int64		size = Min(reap_rel->tids.n - reap_rel->next_tid, batch->max_rows);
	int64		cost = batch->max_cost;

	if (reap_rel->batch_size == 0)
		reap_rel->batch_size = batch->container.policy.batch_size > 0 ?
			batch->container.policy.batch_size : BATCH_START;
	if (batch->container.policy.batch_size > 0)
		reap_rel->batch_size = Min(reap_rel->batch_size, batch->container.policy.batch_size);
	else
		cost = Min(cost, batch->max_batch_cost);
	size = Min(size, reap_rel->state.n_single > 0 ? 1 : reap_rel->batch_size);
	if (reap_rel->row_cost > 0.0)
		size = Max(1, Min(size, cost / reap_rel->row_cost));
	return (int) size;
}

/* After a batch that took so many ms, adapts the size of the next one. */
static void
adapt_size(TtlBatch *batch, double took)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	double		next = 2.0 * batch->ntids;

	if (batch->ntids < reap_rel->batch_size)
		return;					/* it was limited by something else */
	if (batch->container.policy.batch_size > 0)
		next = Min(next, batch->container.policy.batch_size);
	else
		next = Min(Min(next, batch->ntids * BATCH_TIME / Max(took, 0.001)), BATCH_MAX);
	reap_rel->batch_size = (int) Max(next, 1.0);
}

/*
 * Attempts the deletion, again without locked rows if it fails because of them.  *start is the
 * beginning of the last attempt.
 */
static ErrorData *
attempt_delete(TtlBatch *batch, instr_time *start)
{
	int			origin_tries = 0;

	for (;;)
	{
		ErrorData  *error;

		INSTR_TIME_SET_CURRENT(*start);
		error = ttl_batch_attempt(delete_tids, batch, true);
		if (error == NULL)
			return NULL;
		if (batch->origin_wanted && error->sqlerrcode == ERRCODE_OBJECT_IN_USE &&
			(!batch->memory->mode.by_worker || origin_tries++ < ORIGIN_TRIES))
		{
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
							 ORIGIN_WAIT, PG_WAIT_EXTENSION);
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
		else if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && !batch->skip_locked)
		{
			batch->reap_rel->locked_until = GetCurrentTimestamp() + LOCKED_MEMORY;
			batch->skip_locked = true;
		}
		else
			return error;
		FreeErrorData(error);
	}
}

TtlReapResult
ttl_batch_delete(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlRelState *state = &reap_rel->state;
	TimestampTz started = GetCurrentTimestamp();
	BufferUsage used = pgBufferUsage;
	instr_time	start;
	instr_time	took;
	ErrorData  *error;
	TtlReapResult result = TTL_REAP_MORE;

	batch->tids = reap_rel->tids.tids + reap_rel->next_tid;
	batch->ntids = choose_size(batch);
	qsort(batch->tids, batch->ntids, sizeof(ItemPointerData), ttl_tids_compare);
	batch->skip_locked = reap_rel->locked_until > started;

	ttl_reap_report_phase(TTL_PHASE_DELETING);
	error = attempt_delete(batch, &start);

	if (batch->timed_out)
	{
		/* other tables should not wait for this one for most of the time */
		batch->memory->rest_until = GetCurrentTimestamp() +
			(GetCurrentTimestamp() - started) * TIMEOUT_SHARE;
		state->has_timed_out = true;
		state->n_single = Max(state->n_single, batch->ntids);
		reap_rel->batch_size = 1;
		if (batch->memory->mode.by_worker)
			result = TTL_REAP_LATER;
	}

	if (error == NULL)
	{
		INSTR_TIME_SET_CURRENT(took);
		INSTR_TIME_SUBTRACT(took, start);
		adapt_size(batch, INSTR_TIME_GET_MILLISEC(took));
		if (batch->deleted > 0)
		{
			reap_rel->row_cost = (double) ttl_cost_since(&used) / batch->deleted;
			state->has_timed_out = batch->timed_out;
		}
		ttl_reap_rel_end_pause(reap_rel);
		state->logged_sqlstate = 0;
		state->n_single = Max(state->n_single - 1, 0);
		reap_rel->next_tid += batch->ntids;
		if (batch->deleted < batch->ntids && batch->skip_locked)
			state->pass.skipped_locked = true;
		else if (batch->deleted < batch->ntids)
			block_kept_rows(batch);
		return result;
	}

	batch->deleted = 0;
	state->pass.busy += GetCurrentTimestamp() - started;
	if (batch->origin_wanted && error->sqlerrcode == ERRCODE_OBJECT_IN_USE)
		return TTL_REAP_LATER;
	if (batch->origin_wanted ||
		(!batch->timed_out && is_no_rows(error) && !is_raised_again(batch, error)))
		return ttl_batch_handle_error(batch, error);

	if (batch->ntids > 1)
	{
		if (is_no_rows(error))
			state->n_single = Max(state->n_single, batch->ntids);
		else if (!batch->timed_out)
			reap_rel->batch_size = batch->ntids / 2;
		return result;
	}

	/* the row is alone; what is locked is met again in the next pass */
	state->n_single = Max(state->n_single - 1, 0);
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && !batch->timed_out)
		state->pass.skipped_locked = true;
	else if (!batch->timed_out && handle_tables_error(batch, error))
		return TTL_REAP_LATER;
	else
		block_row(batch, error);
	reap_rel->next_tid++;
	return result;
}
