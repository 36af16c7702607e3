/*-------------------------------------------------------------------------
 *
 * turn.c
 *	  A turn: deletes expired rows of a container as long as it may.
 *
 * The worker and CALL ttl.reap run the same function; nothing here knows about
 * processes.
 *
 * Each table of the container is treated in two steps.  First one walk along its expiry
 * indexes collects the places of many expired rows (collect.c; sweep.c where they tell
 * pages alone), then they are deleted in
 * batches, each in a transaction of its own (batch.c).  A place collected in an earlier
 * transaction may hold another row by now; ttl_deletion_run() looks whether what is
 * there is expired by the policy of that moment, and a batch holds the policy lock, so
 * that moment lasts until it commits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "citus/citus.h"
#include "common/int.h"
#include "container/container.h"
#include "counters.h"
#include "execution.h"
#include "executor/instrument.h"
#include "executor/spi.h"
#include "expiry/expiry_index.h"
#include "expiry/grace.h"
#include "miscadmin.h"
#include "reaper/batch.h"
#include "reaper/budget.h"
#include "reaper/collect.h"
#include "reaper/fault.h"
#include "reaper/progress.h"
#include "reaper/session.h"
#include "reaper/sweep.h"
#include "reaper/turn.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* Places that are kept from turn to turn, for all tables together. */
#define KEEP_MAX			1000000

/*
 * Opens the leaf and finds out whether it may be worked on.  The locks last
 * to the end of the transaction.
 */
static TtlStepResult
open_leaf(TtlStep *step, Oid container)
{
	Oid			relid = step->leaf->relid;
	bool		waits = !step->memory->mode.by_worker;

	if (ttl_container_objects() == NULL)
		return TTL_STEP_DONE;	/* the extension has gone */

	/* first the table, then the policy: DDL does it in this order */
	if (waits)
		LockRelationOid(relid, RowExclusiveLock);
	else if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return TTL_STEP_AWAY;
	if (!ttl_container_lock_policy(container, false, waits))
		return TTL_STEP_AWAY;

	/* a lock that was held before hasn't brought the policy up to date */
	AcceptInvalidationMessages();

	/* it may have got another owner since the session was prepared for this turn */
	if (!waits && !ttl_session_belongs_to(ttl_container_owner(container)))
		return TTL_STEP_AWAY;

	step->rel = try_relation_open(relid, NoLock);
	if (step->rel == NULL)
		return TTL_STEP_DONE;

	if (step->rel->rd_rel->relkind != RELKIND_RELATION ||
		!ttl_container_lookup(relid, &step->container) ||
		step->container.container != container ||
		step->container.default_ttl == TTL_OFF ||
		(step->memory->mode.by_worker && !step->container.reaping) ||
		pg_sub_s64_overflow(ttl_execution_clock(), step->container.reap_delay,
							&step->now))
	{
		relation_close(step->rel, NoLock);
		step->rel = NULL;
		return TTL_STEP_DONE;
	}
	if (step->container.carried && !ttl_citus_lock_shard(container, waits))
	{
		relation_close(step->rel, NoLock);
		step->rel = NULL;
		return waits ? TTL_STEP_DONE : TTL_STEP_AWAY;
	}
	if (!waits && !ttl_expiry_lock_indexes(step->rel, AccessShareLock))
	{
		relation_close(step->rel, NoLock);
		step->rel = NULL;
		return TTL_STEP_AWAY;
	}
	step->spares = step->memory->mode.by_worker &&
		ttl_grace_lasts(&step->container.change, ttl_execution_clock());
	return TTL_STEP_MORE;
}

/*
 * When something begins to be spared, what was collected before may be among
 * it; when that ends, it may lie behind the mark.
 */
static void
follow_change(TtlStep *step)
{
	TtlLeaf    *leaf = step->leaf;
	TimestampTz since = step->spares ? step->container.change.changed_at : 0;

	if (leaf->spared_since == since)
		return;
	ttl_leaf_discard(step->memory, leaf);
	leaf->left_at = 0;
	leaf->spared_since = since;
}

/*
 * What one transaction does to a leaf: collects places if there are none,
 * deletes a batch.
 */
static TtlStepResult
run_step(TtlStep *step, Oid container, TtlTurn *turn)
{
	TtlMemory  *memory = step->memory;
	TtlLeaf    *leaf = step->leaf;
	ErrorData  *error;
	TtlStepResult result;
	TimestampTz due;
	bool		sweeps;

	result = open_leaf(step, container);
	if (result != TTL_STEP_MORE)
		return result;
	sweeps = step->container.indexing == TTL_INDEXING_LAZY;
	follow_change(step);

	if (!ttl_collect_has_places(memory, leaf))
	{
		/* all that is left is locked; it won't do to look again at once */
		if (leaf->fruitless && !leaf->more)
		{
			leaf->fruitless = false;
			turn->due = Min(turn->due, GetCurrentTimestamp() + TTL_MARK_WAIT);
			relation_close(step->rel, NoLock);
			return TTL_STEP_DONE;
		}

		/* the usual case, so it must be cheap */
		if (sweeps ? ttl_sweep_rests(step, &due) :
			!ttl_collect_is_marked(leaf) && leaf->blocked == 0 &&
			ttl_collect_nothing_due(step, &due))
		{
			turn->due = Min(turn->due, due);
			relation_close(step->rel, NoLock);
			return TTL_STEP_DONE;
		}

		ttl_progress_phase(TTL_PHASE_LOOKING);
		error = ttl_step_attempt(sweeps ? ttl_sweep_collect : ttl_collect_places, step);
		if (error != NULL)
		{
			ttl_leaf_discard(memory, leaf);
			ttl_fault_handle_trouble(step, error);
			result = TTL_STEP_AWAY;
		}
		else if (!ttl_collect_has_places(memory, leaf) && !leaf->more)
		{
			due = GetCurrentTimestamp() + TTL_MARK_WAIT;
			if (sweeps)
				(void) ttl_sweep_rests(step, &due);
			else if (!ttl_collect_is_marked(leaf))
			{
				leaf->left_at = 0;	/* each walk is from there anyway */
				(void) ttl_collect_nothing_due(step, &due);
			}
			turn->due = Min(turn->due, due);
			result = TTL_STEP_DONE;
		}
	}

	if (result == TTL_STEP_MORE && ttl_collect_has_places(memory, leaf) && !ttl_batch_try_whole(step))
		result = ttl_batch_delete(step);

	relation_close(step->rel, NoLock);
	return result;
}

/*
 * Starts another transaction, if that is wanted.
 */
static void
commit_step(TtlMemory *memory)
{
	if (!memory->mode.commits)
		return;

	/* now() of a trigger in a worker shall not stand still */
	if (memory->mode.by_worker)
		SetCurrentStatementStartTimestamp();
	SPI_commit();
}

/*
 * May the turn go on?
 */
static bool
may_go_on(const TtlTurn *turn, int64 max_cost)
{
	return turn->cost < max_cost && turn->rows < turn->max_rows &&
		(turn->until == DT_NOEND || GetCurrentTimestamp() < turn->until);
}

/*
 * Deletes from one leaf until the turn has cost max_cost.  was_blocked is the
 * number of blocked rows of the container according to the statistics.
 */
static TtlTurnEnd
run_leaf(TtlMemory *memory, Oid container, Oid relid, TtlTurn *turn,
		 int64 max_cost, int64 was_blocked)
{
	TtlLeaf    *leaf = ttl_leaf_enter(memory, relid, was_blocked);
	TtlStepResult result = TTL_STEP_MORE;
	TtlTurnEnd	end;

	leaf->last_turn = GetCurrentTimestamp();
	if (turn->changed)
	{
		ttl_leaf_end_pause(memory, leaf);
		leaf->sweep.next_at = 0;
	}
	if (leaf->paused_until > leaf->last_turn)
	{
		turn->due = Min(turn->due, leaf->paused_until);
		turn->blocked += leaf->blocked;
		return TTL_TURN_AWAY;
	}

	while (result == TTL_STEP_MORE && may_go_on(turn, max_cost))
	{
		BufferUsage start = pgBufferUsage;
		MemoryContext oldcontext;
		int64		cost;
		TtlStep		step;

		CHECK_FOR_INTERRUPTS();

		if (turn->pace != NULL && turn->cost > 0)
		{
			bool		napped = false;

			if (!turn->pace(turn, &napped))
				break;
			if (napped)
				commit_step(memory);
		}

		memset(&step, 0, sizeof(step));
		step.memory = memory;
		step.leaf = leaf;
		step.max_cost = max_cost - turn->cost;
		step.max_batch_cost = turn->max_batch_cost;
		step.max_rows = turn->max_rows - turn->rows;

		oldcontext = MemoryContextSwitchTo(memory->step_context);
		result = run_step(&step, container, turn);
		MemoryContextSwitchTo(oldcontext);
		MemoryContextReset(memory->step_context);

		commit_step(memory);

		cost = ttl_budget_cost_since(&start);
		turn->cost += cost;
		turn->rows += step.deleted;
		if (step.ntids > 0 || step.emptied)
		{
			ttl_counters_add_batch(container, step.deleted, cost);
			ttl_progress_batch(step.deleted);
		}
	}

	if (result == TTL_STEP_DONE)
		end = TTL_TURN_DONE;
	else if (result == TTL_STEP_AWAY)
	{
		end = TTL_TURN_AWAY;
		turn->due = Min(turn->due, Max(leaf->paused_until,
									   GetCurrentTimestamp() + TTL_MARK_WAIT));
	}
	else
		end = TTL_TURN_SPENT;

	if (memory->allocated > KEEP_MAX)
		ttl_leaf_discard(memory, leaf);
	turn->blocked += leaf->blocked;
	return end;
}

/*
 * Runs a turn, see turn.h.  The cost is shared equally among the leaves; what
 * one leaves goes to those after it.
 */
void
ttl_turn_run(TtlMemory *memory, Oid container, TtlTurn *turn)
{
	List	   *leaves;
	ListCell   *lc;
	int			left;
	int64		was_blocked = turn->blocked;

	turn->end = TTL_TURN_DONE;
	turn->cost = 0;
	turn->rows = 0;
	turn->blocked = 0;
	turn->due = DT_NOEND;

	if (SPI_connect_ext(memory->mode.commits ? SPI_OPT_NONATOMIC : 0) !=
		SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	/* what a procedure has deferred before it called is its own to fire */
	if (!memory->mode.by_worker)
		commit_step(memory);

	leaves = ttl_container_leaves(container);
	turn->leaves = left = list_length(leaves);

	foreach(lc, leaves)
	{
		TtlTurnEnd	end;
		int64		share = (turn->max_cost - turn->cost) / left--;

		if (!may_go_on(turn, turn->max_cost))
		{
			turn->end = TTL_TURN_SPENT;
			break;
		}
		end = run_leaf(memory, container, lfirst_oid(lc), turn,
					   turn->cost + Max(share, 1), was_blocked);
		if (turn->end == TTL_TURN_DONE || end == TTL_TURN_SPENT)
			turn->end = end;
	}

	if (turn->end == TTL_TURN_SPENT)
		turn->blocked = was_blocked;
	else if (turn->blocked != was_blocked)
		ttl_counters_set_blocked(container, turn->blocked);

	SPI_finish();
}
