/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  Deletes a batch of the rows that have been collected.
 *
 * A batch is one transaction's work.  Its size is adapted so that it takes BATCH_TIME.
 * What may fail runs in a subtransaction, for limited time (attempt.c).
 *
 * Before, those that others reference are removed from the collected rows (fk_referenced.c).
 * Expired rows that reference rows of the batch go along (fk.c).  Those that the reaper must
 * not delete yet, by the settings of their own container, stay, and so do the rows that they
 * reference.
 *
 * If a row is locked for longer than an attempt waits, the pass skips locked rows from then on.  (SELECT FOR
 * UPDATE SKIP LOCKED for all would write one more WAL record for each row.)
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "cost.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "reaper/reap_table.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* The time that a batch should take, and the numbers of its rows */
#define BATCH_TIME			(50 * INT64CONST(1000))
#define BATCH_START			50
#define BATCH_MAX			10000

/* More than a row takes that is deleted alone */
#define ROW_TIME			(BATCH_TIME / BATCH_START)

/* How long a turn of a table may wait in vain for locks that triggers take */
#define LOCK_WAITS_MAX		(500 * INT64CONST(1000))

/*
 * Another process may be using the replication origin, for a batch.  The worker
 * tries so often, after so many ms, then it comes again later; a user's call
 * waits.
 */
#define ORIGIN_TRIES		10
#define ORIGIN_WAIT			10

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
			ttl_blame_report_blocked(batch, (ErrorData *) lfirst(lc));
		return TTL_REAP_MORE;
	}
	/* what passes would keep the deletion from its rows as well */
	if (ttl_blame(batch, &error) == TTL_BLAME_NOBODY)
		return ttl_blame_leave_table(batch, TTL_BLAME_NOBODY, error);
	batch->reap_rel->skip_referenced_check = true;
	batch->reap_rel->checked = batch->reap_rel->tids.n;
	return TTL_REAP_MORE;
}

/* Looks which of the next TIDs are those of referenced rows, if that is not known. */
TtlReapResult
ttl_batch_check_rows(TtlBatch *batch)
{
	TimestampTz started = GetCurrentTimestamp();
	TtlReapResult result;

	if (batch->reap_rel->next_tid < batch->reap_rel->checked)
		return TTL_REAP_MORE;
	result = leave_out_referenced(batch);
	batch->reap_rel->pass.busy += GetCurrentTimestamp() - started;
	return result;
}

/*
 * How many rows the batch may have.
 */
static int
choose_size(const TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	int64		size = Min(reap_rel->checked - reap_rel->next_tid, batch->max_rows);
	int64		cost = Min(batch->max_cost, batch->max_batch_cost);

	if (reap_rel->batch_size == 0)
		reap_rel->batch_size = BATCH_START;
	/* among these are rows with which a batch has timed out, or failed late */
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
	int64		in_time = batch->ntids * BATCH_TIME / Max(took, 1);

	if (batch->ntids < reap_rel->batch_size)
		return;					/* it was limited by something else */
	reap_rel->batch_size = (int) Max(Min(Min(2 * (int64) batch->ntids, in_time), BATCH_MAX), 1);
}

/*
 * Has the rows of a batch deleted one by one.  The pass keeps that for the next worker, which may have no time for more
 * than one of them.
 */
static void
isolate_rows(TtlReapRel *reap_rel, int ntids)
{
	reap_rel->pass.n_single = Max(reap_rel->pass.n_single, ntids);
	reap_rel->batch_size = 1;
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
		error = ttl_attempt(ttl_delete_tids, batch, true);
		if (error == NULL)
			return NULL;
		if (ttl_blame_lacks_origin(batch, error) &&
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
				ttl_blame_block_row(batch, &kept);
			else if (table_tuple_lock(batch->rel, tid, snapshot, slot, GetCurrentCommandId(true),
									  LockTupleExclusive, LockWaitSkip, 0, &failure) == TM_WouldBlock)
				nlocked++;

			/*
			 * else it has been unlocked meanwhile, or is met again in a pass
			 * that skips none
			 */
		}
		ExecClearTuple(slot);
	}
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
	if (nlocked == 0)
		return;
	batch->reap_rel->blocked += nlocked;
	ttl_blame_report_blocked(batch, &locked);
}

/* Deletes the next of the collected rows. */
TtlReapResult
ttl_batch_delete(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TimestampTz started = GetCurrentTimestamp();
	BufferUsage used = pgBufferUsage;
	TimestampTz start;
	ErrorData  *error;
	TtlBlame	whose;
	TtlReapResult result = TTL_REAP_MORE;

	batch->tids = reap_rel->tids.tids + reap_rel->next_tid;
	batch->ntids = choose_size(batch);

	error = attempt_delete(batch, &start);

	if (batch->timed_out)
	{
		/*
		 * one of them is to blame, and to halve the batch would cost a
		 * timeout each time
		 */
		isolate_rows(reap_rel, batch->ntids);
		/* other tables of the database have waited for it */
		if (batch->memory->mode.by_worker)
			result = TTL_REAP_LATER;
	}

	if (error == NULL)
	{
		adapt_size(batch, GetCurrentTimestamp() - start);
		if (batch->deleted > 0)
			reap_rel->row_cost = (double) ttl_cost_since(&used) / batch->deleted;
		ttl_pass_end_pause(reap_rel);
		reap_rel->pass.n_single = Max(reap_rel->pass.n_single - 1, 0);
		reap_rel->next_tid += batch->ntids;
		if (batch->deleted < batch->ntids)
		{
			block_left_rows(batch);
			ttl_pass_note_blocked(reap_rel, reap_rel->next_tid);
		}
		return result;
	}

	/* the attempt was rolled back */
	batch->deleted = 0;
	/* to wait for a lock is no work, for which the next pass would be put off */
	if (batch->timed_out || error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		reap_rel->pass.busy += GetCurrentTimestamp() - started;
	else
		reap_rel->lock_waits += GetCurrentTimestamp() - started;
	whose = ttl_blame(batch, &error);
	if (whose != TTL_BLAME_ROW)
		return ttl_blame_leave_table(batch, whose, error);

	if (batch->ntids > 1)
	{
		if (batch->timed_out)
			return result;

		/*
		 * to halve it would take as long each time, and a worker that lives
		 * for one cycle would not come to its end
		 */
		if (GetCurrentTimestamp() - start > batch->ntids * ROW_TIME)
			isolate_rows(reap_rel, batch->ntids);
		else
			reap_rel->batch_size = batch->ntids / 2;
		return result;
	}

	/* the row is alone */
	reap_rel->pass.n_single = Max(reap_rel->pass.n_single - 1, 0);
	ttl_blame_block_row(batch, error);
	reap_rel->next_tid++;
	ttl_pass_note_blocked(reap_rel, reap_rel->next_tid);
	if (batch->memory->mode.by_worker && reap_rel->lock_waits >= LOCK_WAITS_MAX)
		result = TTL_REAP_LATER;
	return result;
}
