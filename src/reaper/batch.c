/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  Deletes a batch of the rows that have been collected.
 *
 * A batch is as large as takes BATCH_TIME.
 *
 * Where a row is locked by somebody, the batch waits for it for a short time, then
 * leaves locked rows out.  (SELECT FOR UPDATE SKIP LOCKED for all would write a WAL
 * record more for each row.)  Other errors are reap_error.c's.
 *
 * A partition with much to delete is emptied as a whole where nobody can tell
 * the difference (truncate_partition.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "executor/instrument.h"
#include "guc.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "reaper/batch.h"
#include "reaper/reaper_internal.h"
#include "reaper/reap_error.h"
#include "reaper/truncate_partition.h"
#include "storage/latch.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

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
