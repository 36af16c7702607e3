/*-------------------------------------------------------------------------
 *
 * reap_rel.c
 *	  A turn: deletes expired rows of a container as long as it may.
 *
 * The worker and CALL ttl.reap run the same function; nothing here knows about
 * processes.
 *
 * Each table of the container is treated in two steps.  First one walk along its expiry
 * indexes collects the places of many expired rows (brin_scan.c where they tell
 * pages alone), then they are deleted in
 * batches, each in a transaction of its own (batch.c).  A place collected in an earlier
 * transaction may hold another row by now; ttl_deletion_run() looks whether what is
 * there is expired by the policy of that moment, and a batch holds the policy lock, so
 * that moment lasts until it commits.
 *
 * One walk along the expiry indexes of a table collects the places of many expired
 * rows.  A walk for each batch would read the dead index entries of all batches before
 * it again.
 *
 * The next walk starts at the mark, the index entry at which the last one stopped.  The
 * mark moves forward only when what was collected has been dealt with in committed
 * transactions.  Rows may come to lie behind it: given a _ts in the past, committed
 * late, locked, or impossible to delete.  So walks are grouped into passes (rel_state.c): a
 * pass starts at the left edge and covers what had expired by then.  It is never begun
 * anew before it ends, so rows that stay behind it can't keep it from the others.
 * Between passes, walks go on from the mark to what has expired since.
 *
 * While an old snapshot keeps dead entries from being removed the left edge is
 * expensive; so a pass that has deleted all it met is repeated after TTL_LEFT_MIN_WAIT
 * at the earliest, so seldom that reading dead entries takes no more than 1/LEFT_SHARE
 * of the time, and each time a pass finds nothing the wait doubles, up to
 * LEFT_MAX_WAIT.
 *
 * The keys of what is collected are noted on the way, so that rows that others
 * reference can be left out (fk_referenced.c).
 *
 * While rows that a change of policy has made expired are spared (ttl.grace), the
 * worker's walks leave them out, and so does the DELETE.  Looking at a container
 * that has nothing else costs no more than at an idle one.  A CALL spares nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "citus/citus.h"
#include "commands/trigger.h"
#include "common/int.h"
#include "container/container.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/instrument.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "miscadmin.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Places that are collected in one walk; fewer if little may be spent. */
#define COLLECT_MAX			50000
#define COLLECT_MIN			500

/* Time between passes that delete all they meet */
#define LEFT_MAX_WAIT		(300 * USECS_PER_SEC)
#define LEFT_SHARE			20

void
ttl_expiry_scan_run(TtlStep *step)
{
	TtlMemory  *memory = step->memory;
	TtlReapRel    *leaf = step->leaf;
	TtlPass    *pass = &leaf->state.pass;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz useful_at = 0;
	bool		begins = !pass->is_running &&
		(pass->next_at <= started || !ttl_expiry_scan_is_marked(leaf));
	bool		incomplete;
	int			limit;
	TtlExpiryPosition mark;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;

	if (begins)
		ttl_reap_rel_begin_pass(leaf, step->now);
	mark = leaf->state.mark;
	step->referenced = leaf->skip_asking ? NULL : ttl_fk_referenced_begin(step);

	/* a row costs one buffer at least to find, and others to delete */
	limit = (int) Min(Max(step->max_cost, COLLECT_MIN),
					  step->referenced ? TTL_FK_REFERENCED_MAX : COLLECT_MAX);

	PushActiveSnapshot(GetTransactionSnapshot());
	walk = ttl_expiry_walk_begin(step->rel, &step->container,
								 pass->is_running ? Min(pass->now, step->now) : step->now,
								 GetActiveSnapshot(), &mark);
	if (step->spares)
		ttl_expiry_walk_exclude(walk);
	while (leaf->places.n < limit && (slot = ttl_expiry_walk_next(walk, NULL)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();

		if (useful_at == 0)
			useful_at = GetCurrentTimestamp();
		ttl_reap_rel_add_place(memory, leaf, &slot->tts_tid);
		if (step->referenced)
			ttl_fk_referenced_add(step->referenced, slot);
	}
	leaf->more = leaf->places.n >= limit;
	incomplete = !leaf->more && ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);
	PopActiveSnapshot();

	/* first what can be found; but then "nothing" would be wrong */
	if (incomplete && leaf->places.n == 0)
		ttl_expiry_report_incomplete(step->rel);
	leaf->lacks_index = leaf->lacks_index && (incomplete || leaf->more);
	leaf->next_mark = mark;

	if (begins)
	{
		TimestampTz ended = GetCurrentTimestamp();

		leaf->left_wait = useful_at != 0 ? TTL_LEFT_MIN_WAIT :
			Min(leaf->left_wait * 2, LEFT_MAX_WAIT);
		leaf->pass_wait = Min(LEFT_MAX_WAIT,
							  Max(leaf->left_wait,
								  ((useful_at != 0 ? useful_at : ended) - started) * LEFT_SHARE));
	}
}

bool
ttl_expiry_scan_has_places(TtlMemory *memory, TtlReapRel *leaf)
{
	if (leaf->next_place < leaf->places.n)
		return true;

	ttl_reap_rel_reset(memory, leaf);
	return false;
}

bool
ttl_expiry_scan_is_marked(const TtlReapRel *leaf)
{
	for (int i = 0; i < lengthof(leaf->state.mark.set); i++)
	{
		if (leaf->state.mark.set[i])
			return true;
	}
	return false;
}

bool
ttl_expiry_scan_nothing_due(TtlStep *step, TimestampTz *due)
{
	TimestampTz earliest;
	bool		incomplete;

	PushActiveSnapshot(GetTransactionSnapshot());
	earliest = ttl_expiry_earliest(step->rel, &step->container,
								   GetActiveSnapshot(), &incomplete, NULL);
	PopActiveSnapshot();

	*due = GetCurrentTimestamp() + TTL_MARK_WAIT;
	if (earliest <= step->now || incomplete)
		return false;
	if (pg_add_s64_overflow(earliest, step->container.reap_delay, &earliest))
		earliest = DT_NOEND;
	*due = Max(*due, earliest);
	return true;
}

/* Places that are kept from turn to turn, for all tables together. */
#define KEEP_MAX			1000000

/*
 * Takes the locks that foreign keys will need on the referencing tables.  False if one
 * isn't to be had, without waiting: then no row of this table can go, and none is to
 * blame.
 */
static bool
lock_referencing(Relation rel, bool waits)
{
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];
		LOCKMODE	lockmode;

		switch (trigger->tgfoid)
		{
			case F_RI_FKEY_NOACTION_DEL:
			case F_RI_FKEY_RESTRICT_DEL:
				lockmode = RowShareLock;
				break;
			case F_RI_FKEY_CASCADE_DEL:
			case F_RI_FKEY_SETNULL_DEL:
			case F_RI_FKEY_SETDEFAULT_DEL:
				lockmode = RowExclusiveLock;
				break;
			default:
				continue;
		}
		if (waits)
			LockRelationOid(trigger->tgconstrrelid, lockmode);
		else if (!ConditionalLockRelationOid(trigger->tgconstrrelid, lockmode))
			return false;
	}
	return true;
}

/*
 * Opens the leaf and finds out whether it may be worked on.  The locks last
 * to the end of the transaction.
 */
static TtlStepResult
open_leaf(TtlStep *step, Oid container)
{
	Oid			relid = step->leaf->relid;
	bool		waits = !step->memory->mode.by_worker;
	TimestampTz paused_until;

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
		(step->memory->mode.by_worker &&
		 (!step->container.reaping || ttl_pause_lasts(&paused_until))) ||
		pg_sub_s64_overflow(ttl_execution_reference_time(), step->container.reap_delay,
							&step->now))
	{
		relation_close(step->rel, NoLock);
		step->rel = NULL;
		return TTL_STEP_DONE;
	}
	if (step->container.propagated && !ttl_citus_lock_shard(container, waits))
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
	if (!lock_referencing(step->rel, waits))
	{
		relation_close(step->rel, NoLock);
		step->rel = NULL;
		return TTL_STEP_AWAY;
	}
	step->spares = step->memory->mode.by_worker &&
		ttl_grace_lasts(&step->container.change, ttl_execution_reference_time());
	return TTL_STEP_MORE;
}

/*
 * When something begins to be spared, what was collected before may be among
 * it; when that ends, it may lie behind the mark.
 */
static void
follow_change(TtlStep *step)
{
	TtlReapRel    *leaf = step->leaf;
	TimestampTz since = step->spares ? step->container.change.changed_at : 0;

	if (leaf->spared_since == since)
		return;
	ttl_reap_rel_discard(step->memory, leaf);
	leaf->state.pass.is_running = false;
	leaf->state.pass.next_at = 0;
	leaf->spared_since = since;
}

/* From here on the step may run owners' code. */
static void
set_deadline(TtlStep *step)
{
	if (ttl_guc_batch_timeout > 0)
		step->deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													 ttl_guc_batch_timeout);
}

/*
 * Leaves referenced rows out of what was collected.  If that fails, the deletion of
 * these rows will fail, too, and tell which of them are to blame.
 */
static TtlStepResult
leave_out_referenced(TtlStep *step)
{
	TtlReapRel    *leaf = step->leaf;
	ErrorData  *error;

	if (leaf->places.n == 0 || step->referenced == NULL)
		return TTL_STEP_MORE;
	error = ttl_step_attempt(ttl_fk_referenced_leave_out, step);
	if (error == NULL)
		return TTL_STEP_MORE;
	if (!step->timed_out && ttl_reap_error_is_no_rows(error))
	{
		ttl_reap_rel_discard(step->memory, leaf);
		ttl_reap_error_handle_trouble(step, error);
		return TTL_STEP_AWAY;
	}

	/* a partition of the referencing table; comes again, without a pause */
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && step->memory->mode.by_worker)
	{
		ttl_reap_rel_discard(step->memory, leaf);
		return TTL_STEP_AWAY;
	}
	leaf->skip_asking = true;
	return TTL_STEP_MORE;
}

/* Collects places; AWAY if that isn't possible now. */
static TtlStepResult
collect(TtlStep *step, bool sweeps)
{
	TtlReapRel    *leaf = step->leaf;
	TimestampTz started = GetCurrentTimestamp();
	ErrorData  *error;
	TtlStepResult result;

	ttl_progress_phase(TTL_PHASE_LOOKING);
	error = ttl_step_attempt(sweeps ? ttl_brin_scan_run : ttl_expiry_scan_run, step);
	if (error != NULL)
	{
		ttl_reap_rel_discard(step->memory, leaf);
		ttl_reap_error_handle_trouble(step, error);
		return TTL_STEP_AWAY;
	}
	set_deadline(step);
	result = leave_out_referenced(step);
	leaf->state.pass.busy += GetCurrentTimestamp() - started;
	return result;
}

/*
 * What one transaction does to a leaf: collects places if there are none,
 * deletes a batch.
 */
static TtlStepResult
run_step(TtlStep *step, Oid container, TtlTurn *turn)
{
	TtlMemory  *memory = step->memory;
	TtlReapRel    *leaf = step->leaf;
	TtlStepResult result;
	TimestampTz due;
	bool		sweeps;

	result = open_leaf(step, container);
	if (result != TTL_STEP_MORE)
		return result;
	sweeps = step->container.indexing == TTL_INDEXING_LAZY;
	follow_change(step);

	if (!ttl_expiry_scan_has_places(memory, leaf))
	{
		/* the usual case, so it must be cheap */
		if (sweeps ? ttl_brin_scan_rests(step, &due) :
			!ttl_expiry_scan_is_marked(leaf) && ttl_expiry_scan_nothing_due(step, &due))
		{
			if (!sweeps)
				ttl_reap_rel_found_nothing(leaf);
			turn->due = Min(turn->due, due);
			relation_close(step->rel, NoLock);
			return TTL_STEP_DONE;
		}

		result = collect(step, sweeps);
		if (result == TTL_STEP_MORE && !ttl_expiry_scan_has_places(memory, leaf) && !leaf->more)
		{
			due = GetCurrentTimestamp() + TTL_MARK_WAIT;
			if (sweeps)
				(void) ttl_brin_scan_rests(step, &due);
			else if (!ttl_expiry_scan_is_marked(leaf))
				(void) ttl_expiry_scan_nothing_due(step, &due);
			turn->due = Min(turn->due, due);
			result = TTL_STEP_DONE;
		}
	}
	else
		set_deadline(step);

	if (result == TTL_STEP_MORE && !step->timed_out &&
		ttl_expiry_scan_has_places(memory, leaf) && !ttl_batch_try_truncate(step))
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
 * Brings the statistics up to date: the number of rows that can't be deleted, together
 * with the reason, if there is a new one.  While a table has not yet been gone through,
 * the stored number may count rows of it.
 */
static void
report_blocked(TtlMemory *memory, Oid container, TtlTurn *turn, const char *error)
{
	int64		blocked = 0;
	bool		is_complete = true;
	ListCell   *lc;

	foreach(lc, turn->leaves)
	{
		const TtlReapRel *leaf = ttl_reap_rel_enter(memory, lfirst_oid(lc));

		blocked += ttl_reap_rel_blocked_rows(leaf);
		is_complete = is_complete && leaf->is_known;
	}
	if (!is_complete)
		blocked = Max(blocked, turn->blocked);
	if (blocked != turn->blocked || error != NULL)
		ttl_counters_set_blocked(container, blocked, error);
	turn->blocked = blocked;
}

/*
 * Deletes from one leaf until the turn has cost max_cost.
 */
static TtlTurnEnd
run_leaf(TtlMemory *memory, Oid container, Oid relid, TtlTurn *turn,
		 int64 max_cost)
{
	TtlReapRel    *leaf = ttl_reap_rel_enter(memory, relid);
	TtlStepResult result = TTL_STEP_MORE;
	TtlTurnEnd	end;
	TimestampTz wait_until;

	/* what the statistics have as blocked has been logged by an earlier worker */
	if (leaf->last_turn == 0 && memory->mode.by_worker)
	{
		leaf->state.pass.raised = turn->blocked;
		leaf->state.pass.references_logged = turn->blocked > 0;
	}
	leaf->last_turn = GetCurrentTimestamp();
	if (turn->changed)
	{
		ttl_reap_rel_end_pause(leaf);
		ttl_reap_rel_want_pass(leaf);
	}
	wait_until = leaf->state.paused_until;
	if (leaf->state.is_stuck && memory->mode.by_worker)
		wait_until = Max(wait_until, memory->rest_until);
	if (wait_until > leaf->last_turn)
	{
		turn->due = Min(turn->due, wait_until);
		return TTL_TURN_AWAY;
	}

	while (result == TTL_STEP_MORE && may_go_on(turn, max_cost))
	{
		BufferUsage start = pgBufferUsage;
		int64		was_blocked = ttl_reap_rel_blocked_rows(leaf);
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
		if (step.error != NULL || ttl_reap_rel_blocked_rows(leaf) != was_blocked)
			report_blocked(memory, container, turn, step.error);
		MemoryContextSwitchTo(oldcontext);
		MemoryContextReset(memory->step_context);

		commit_step(memory);
		ttl_deletion_count_committed();

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
		turn->due = Min(turn->due, Max(leaf->state.paused_until,
									   GetCurrentTimestamp() + TTL_MARK_WAIT));
	}
	else
		end = TTL_TURN_SPENT;

	if (memory->allocated > KEEP_MAX)
		ttl_reap_rel_discard(memory, leaf);
	ttl_reap_rel_store(memory, leaf);
	return end;
}

/*
 * Runs a turn, see turn.h.  The cost is shared equally among the leaves; what
 * one leaves goes to those after it.
 */
void
ttl_turn_run(TtlMemory *memory, Oid container, TtlTurn *turn)
{
	ListCell   *lc;
	int			left;

	turn->end = TTL_TURN_DONE;
	turn->cost = 0;
	turn->rows = 0;
	turn->due = DT_NOEND;

	if (SPI_connect_ext(memory->mode.commits ? SPI_OPT_NONATOMIC : 0) !=
		SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	ttl_deletion_discard_counts();

	/* what a procedure has deferred before it called is its own to fire */
	if (!memory->mode.by_worker)
		commit_step(memory);

	turn->leaves = ttl_container_leaves(container);
	left = list_length(turn->leaves);

	foreach(lc, turn->leaves)
	{
		TtlTurnEnd	end;
		int64		share = (turn->max_cost - turn->cost) / left--;

		if (!may_go_on(turn, turn->max_cost))
		{
			turn->end = TTL_TURN_SPENT;
			break;
		}
		end = run_leaf(memory, container, lfirst_oid(lc), turn,
					   turn->cost + Max(share, 1));
		if (turn->end == TTL_TURN_DONE || end == TTL_TURN_SPENT)
			turn->end = end;
	}
	report_blocked(memory, container, turn, NULL);
	turn->nleaves = list_length(turn->leaves);

	SPI_finish();
}
