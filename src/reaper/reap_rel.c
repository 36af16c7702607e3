/*-------------------------------------------------------------------------
 *
 * reap_rel.c
 *	  Deletes the expired rows of a table.
 *
 * The worker (cycle.c) and CALL ttl.reap (reap.c) call ttl_reap_rel_run() for each table of a container.
 * It runs transactions until nothing is left to delete, or the turn has used up
 * what it may.  In each transaction run_batch()
 *
 * - opens the table, with its lock and the policy lock (open_table.c),
 * - collects the TIDs of many expired rows by one walk, if none are left of an earlier
 *	 transaction (pass.c),
 * - deletes a batch of them (batch.c),
 * - and decides what follows from an error (blame.c).
 *
 * Each process that deletes keeps the state of each table, which has what these files know of it (reap_table.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "cost.h"
#include "counters.h"
#include "executor/instrument.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "reaper/reap_rel.h"
#include "reaper/reap_table.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Memory for TIDs that are kept between turns, for all tables together */
#define KEEP_MEMORY			(32 * 1024 * 1024)

/* Until a table that has been put off is tried again, at least */
#define LATER_WAIT			(1 * USECS_PER_SEC)

/* Creates what deletion from all tables shares. */
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

/* Collects TIDs. */
static TtlReapResult
collect_rows(TtlBatch *batch)
{
	TimestampTz started = GetCurrentTimestamp();
	ErrorData  *error = ttl_attempt(ttl_pass_scan, batch, false);

	if (error != NULL)
	{
		TtlBlame	whose = ttl_blame(batch, &error);

		/* what has been collected is not what the position says */
		ttl_pass_discard(batch->reap_rel);
		return ttl_blame_leave_table(batch, whose, error);
	}
	batch->reap_rel->pass.busy += GetCurrentTimestamp() - started;
	return TTL_REAP_MORE;
}

/* Does the work of one transaction. */
static TtlReapResult
run_batch(TtlBatch *batch, Oid container)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlReapResult result = ttl_open_table(batch, container);

	if (result != TTL_REAP_MORE)
		return result;

	if (!ttl_pass_advance(reap_rel))
	{
		if (!ttl_pass_find_due(batch))
		{
			ttl_pass_end_empty(batch);
			return TTL_REAP_DONE;
		}
		result = collect_rows(batch);
		if (result != TTL_REAP_MORE)
			return result;
		if (!ttl_pass_advance(reap_rel))
		{
			if (reap_rel->more)
				return TTL_REAP_MORE;

			/*
			 * what has expired is gone, or cannot be deleted; the caller
			 * wants to know when to come again
			 */
			if (ttl_pass_find_due(batch))
				ttl_pass_finish(batch);
			else
				ttl_pass_end_empty(batch);
			return TTL_REAP_DONE;
		}
	}

	result = ttl_batch_check_rows(batch);
	if (result != TTL_REAP_MORE || batch->timed_out || reap_rel->next_tid == reap_rel->checked)
		return result;
	return ttl_batch_delete(batch);
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

/* True if neither cost, rows nor time of the turn is used up. */
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

/* Connects to SPI, whose caller may be in a procedure; SPI_finish() ends it. */
void
ttl_reap_rel_connect(const TtlMemory *memory)
{
	if (SPI_connect_ext(memory->mode.commits ? SPI_OPT_NONATOMIC : 0) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
}

/*
 * Deletes expired rows of a table.  Called in a transaction, and returns in one, though maybe not the same.
 */
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

			/*
			 * the nap was part of a transaction, whose now() is from before
			 * it
			 */
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
				ttl_pass_set_front(reap_rel);
		}
	}

	if (turn->end == TTL_REAP_LATER)
		turn->again_at = GetCurrentTimestamp() + Max(reap_rel->pause, LATER_WAIT);
	ttl_pass_move_to_mark(reap_rel);

	/*
	 * this table's are what can be given up here; they are found again from
	 * its position
	 */
	if (MemoryContextMemAllocated(memory->context, false) > KEEP_MEMORY)
		ttl_pass_discard(reap_rel);
}
