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
 * The next walk starts at the position, the index entry at which the last one stopped.  The
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
#include "reaper/reaper_internal.h"
#include "reaper/reap_rel.h"
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

static bool
has_position(const TtlReapRel *reap_rel)
{
	for (int i = 0; i < lengthof(reap_rel->state.position.set); i++)
	{
		if (reap_rel->state.position.set[i])
			return true;
	}
	return false;
}

static void
scan_expiry_indexes(TtlBatch *batch)
{
	TtlMemory  *memory = batch->memory;
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlPass    *pass = &reap_rel->state.pass;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz useful_at = 0;
	bool		begins = !pass->is_running &&
		(pass->next_at <= started || !has_position(reap_rel));
	bool		incomplete;
	int			limit;
	TtlExpiryPosition position;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;

	if (begins)
		ttl_reap_rel_begin_pass(reap_rel, batch->now);
	position = reap_rel->state.position;
	batch->referenced = reap_rel->skip_referenced_check ? NIL : ttl_fk_referenced_keys(batch);

	/* a row costs one buffer at least to find, and others to delete */
	limit = (int) Min(Max(batch->max_cost, COLLECT_MIN),
					  batch->referenced != NIL ? TTL_FK_REFERENCED_MAX : COLLECT_MAX);

	PushActiveSnapshot(GetTransactionSnapshot());
	walk = ttl_expiry_walk_begin(batch->rel, &batch->container,
								 pass->is_running ? Min(pass->now, batch->now) : batch->now,
								 GetActiveSnapshot(), &position);
	if (batch->in_grace)
		ttl_expiry_walk_exclude(walk);
	while (reap_rel->tids.n < limit && (slot = ttl_expiry_walk_next(walk, NULL)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();

		if (useful_at == 0)
			useful_at = GetCurrentTimestamp();
		ttl_reap_rel_add_tid(memory, reap_rel, &slot->tts_tid);
	}
	reap_rel->more = reap_rel->tids.n >= limit;
	incomplete = !reap_rel->more && ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);
	PopActiveSnapshot();

	/* first what can be found; but then "nothing" would be wrong */
	if (incomplete && reap_rel->tids.n == 0)
		ttl_expiry_report_incomplete(batch->rel);
	reap_rel->lacks_index = reap_rel->lacks_index && (incomplete || reap_rel->more);
	reap_rel->next_position = position;

	if (begins)
	{
		TimestampTz ended = GetCurrentTimestamp();

		reap_rel->left_wait = useful_at != 0 ? TTL_LEFT_MIN_WAIT :
			Min(reap_rel->left_wait * 2, LEFT_MAX_WAIT);
		reap_rel->pass_wait = Min(LEFT_MAX_WAIT,
							  Max(reap_rel->left_wait,
								  ((useful_at != 0 ? useful_at : ended) - started) * LEFT_SHARE));
	}
}

static bool
nothing_due(TtlBatch *batch, TimestampTz *due)
{
	TimestampTz earliest;
	bool		incomplete;

	PushActiveSnapshot(GetTransactionSnapshot());
	earliest = ttl_expiry_earliest(batch->rel, &batch->container,
								   GetActiveSnapshot(), &incomplete, NULL);
	PopActiveSnapshot();

	*due = GetCurrentTimestamp() + TTL_POSITION_WAIT;
	if (earliest <= batch->now || incomplete)
		return false;
	if (pg_add_s64_overflow(earliest, batch->container.reap_delay, &earliest))
		earliest = DT_NOEND;
	*due = Max(*due, earliest);
	return true;
}

/* Places that are kept from turn to run, for all tables together. */
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
static TtlReapResult
open_table(TtlBatch *batch, Oid container)
{
	Oid			relid = batch->reap_rel->relid;
	bool		waits = !batch->memory->mode.by_worker;
	TimestampTz paused_until;

	if (ttl_container_objects() == NULL)
		return TTL_REAP_DONE;	/* the extension has gone */

	/* first the table, then the policy: DDL does it in this order */
	if (waits)
		LockRelationOid(relid, RowExclusiveLock);
	else if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return TTL_REAP_LATER;
	if (!ttl_container_lock_policy(container, false, waits))
		return TTL_REAP_LATER;

	/* a lock that was held before hasn't brought the policy up to date */
	AcceptInvalidationMessages();

	/* it may have got another owner since the session was prepared for this turn */
	if (!waits && !ttl_session_belongs_to(ttl_container_owner(container)))
		return TTL_REAP_LATER;

	batch->rel = try_relation_open(relid, NoLock);
	if (batch->rel == NULL)
		return TTL_REAP_DONE;

	if (batch->rel->rd_rel->relkind != RELKIND_RELATION ||
		!ttl_container_lookup(relid, &batch->container) ||
		batch->container.container != container ||
		batch->container.default_ttl == TTL_OFF ||
		(batch->memory->mode.by_worker &&
		 (!batch->container.reaping || ttl_hold_is_paused(&paused_until))) ||
		pg_sub_s64_overflow(ttl_execution_reference_time(), batch->container.reap_delay,
							&batch->now))
	{
		relation_close(batch->rel, NoLock);
		batch->rel = NULL;
		return TTL_REAP_DONE;
	}
	if (batch->container.propagated && !ttl_citus_lock_shard(container, waits))
	{
		relation_close(batch->rel, NoLock);
		batch->rel = NULL;
		return waits ? TTL_REAP_DONE : TTL_REAP_LATER;
	}
	if (!waits && !ttl_expiry_lock_indexes(batch->rel, AccessShareLock))
	{
		relation_close(batch->rel, NoLock);
		batch->rel = NULL;
		return TTL_REAP_LATER;
	}
	if (!lock_referencing(batch->rel, waits))
	{
		relation_close(batch->rel, NoLock);
		batch->rel = NULL;
		return TTL_REAP_LATER;
	}
	batch->in_grace = batch->memory->mode.by_worker &&
		ttl_grace_lasts(&batch->container.change, ttl_execution_reference_time());
	return TTL_REAP_MORE;
}

/*
 * When something begins to be spared, what was collected before may be among
 * it; when that ends, it may lie behind the position.
 */
static void
follow_change(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TimestampTz since = batch->in_grace ? batch->container.change.changed_at : 0;

	if (reap_rel->grace_since == since)
		return;
	ttl_reap_rel_discard(batch->memory, reap_rel);
	reap_rel->state.pass.is_running = false;
	reap_rel->state.pass.next_at = 0;
	reap_rel->grace_since = since;
}

/* From here on the step may run owners' code. */
static void
set_deadline(TtlBatch *batch)
{
	if (ttl_guc_batch_timeout > 0)
		batch->deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													 ttl_guc_batch_timeout);
}

/*
 * Leaves referenced rows out of what was collected.  If that fails, the deletion of
 * these rows will fail, too, and tell which of them are to blame.
 */
static TtlReapResult
leave_out_referenced(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	ErrorData  *error;

	if (reap_rel->tids.n == 0 || batch->referenced == NIL)
		return TTL_REAP_MORE;
	error = ttl_batch_attempt(ttl_fk_referenced_leave_out, batch);
	if (error == NULL)
		return TTL_REAP_MORE;
	if (!batch->timed_out && ttl_batch_is_no_rows(error))
	{
		ttl_reap_rel_discard(batch->memory, reap_rel);
		ttl_batch_handle_error(batch, error);
		return TTL_REAP_LATER;
	}

	/* a partition of the referencing table; comes again, without a pause */
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE && batch->memory->mode.by_worker)
	{
		ttl_reap_rel_discard(batch->memory, reap_rel);
		return TTL_REAP_LATER;
	}
	reap_rel->skip_referenced_check = true;
	return TTL_REAP_MORE;
}

/* Collects tids; AWAY if that isn't possible now. */
static TtlReapResult
collect(TtlBatch *batch, bool is_lazy)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TimestampTz started = GetCurrentTimestamp();
	ErrorData  *error;
	TtlReapResult result;

	ttl_reap_report_phase(TTL_PHASE_LOOKING);
	error = ttl_batch_attempt(is_lazy ? ttl_brin_scan_run : scan_expiry_indexes, batch);
	if (error != NULL)
	{
		ttl_reap_rel_discard(batch->memory, reap_rel);
		ttl_batch_handle_error(batch, error);
		return TTL_REAP_LATER;
	}
	set_deadline(batch);
	result = leave_out_referenced(batch);
	reap_rel->state.pass.busy += GetCurrentTimestamp() - started;
	return result;
}

/*
 * What one transaction does to a leaf: collects places if there are none,
 * deletes a batch.
 */
static TtlReapResult
run_batch(TtlBatch *batch, Oid container, TtlReapRun *run)
{
	TtlMemory  *memory = batch->memory;
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlReapResult result;
	TimestampTz due;
	bool		is_lazy;

	result = open_table(batch, container);
	if (result != TTL_REAP_MORE)
		return result;
	is_lazy = batch->container.indexing == TTL_INDEXING_LAZY;
	follow_change(batch);

	if (!ttl_reap_rel_has_tids(memory, reap_rel))
	{
		/* the usual case, so it must be cheap */
		if (is_lazy ? ttl_brin_scan_rests(batch, &due) :
			!has_position(reap_rel) && nothing_due(batch, &due))
		{
			if (!is_lazy)
				ttl_reap_rel_found_nothing(reap_rel);
			run->due = Min(run->due, due);
			relation_close(batch->rel, NoLock);
			return TTL_REAP_DONE;
		}

		result = collect(batch, is_lazy);
		if (result == TTL_REAP_MORE && !ttl_reap_rel_has_tids(memory, reap_rel) && !reap_rel->more)
		{
			due = GetCurrentTimestamp() + TTL_POSITION_WAIT;
			if (is_lazy)
				(void) ttl_brin_scan_rests(batch, &due);
			else if (!has_position(reap_rel))
				(void) nothing_due(batch, &due);
			run->due = Min(run->due, due);
			result = TTL_REAP_DONE;
		}
	}
	else
		set_deadline(batch);

	if (result == TTL_REAP_MORE && !batch->timed_out &&
		ttl_reap_rel_has_tids(memory, reap_rel) && !ttl_batch_try_truncate(batch))
		result = ttl_batch_delete(batch);

	relation_close(batch->rel, NoLock);
	return result;
}

/*
 * Starts another transaction, if that is wanted.
 */
static void
commit_batch(TtlMemory *memory)
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
may_go_on(const TtlReapRun *run, int64 max_cost)
{
	return run->cost < max_cost && run->rows < run->max_rows &&
		(run->until == DT_NOEND || GetCurrentTimestamp() < run->until);
}

/*
 * Brings the statistics up to date: the number of rows that can't be deleted, together
 * with the reason, if there is a new one.  While a table has not yet been gone through,
 * the stored number may count rows of it.
 */
static void
report_blocked(TtlMemory *memory, Oid container, TtlReapRun *run, const char *error)
{
	int64		blocked = 0;
	bool		is_complete = true;
	ListCell   *lc;

	foreach(lc, run->tables)
	{
		const TtlReapRel *reap_rel = ttl_reap_rel_enter(memory, lfirst_oid(lc));

		blocked += ttl_reap_rel_blocked_rows(reap_rel);
		is_complete = is_complete && reap_rel->is_known;
	}
	if (!is_complete)
		blocked = Max(blocked, run->blocked);
	if (blocked != run->blocked || error != NULL)
		ttl_counters_set_blocked(container, blocked, error);
	run->blocked = blocked;
}

/*
 * Deletes from one leaf until the turn has cost max_cost.
 */
static TtlReapResult
reap_table(TtlMemory *memory, Oid container, Oid relid, TtlReapRun *run,
		 int64 max_cost)
{
	TtlReapRel *reap_rel = ttl_reap_rel_enter(memory, relid);
	TtlReapResult result = TTL_REAP_MORE;
	TtlReapResult	end;
	TimestampTz wait_until;

	/* what the statistics have as blocked has been logged by an earlier worker */
	if (reap_rel->last_run == 0 && memory->mode.by_worker)
	{
		reap_rel->state.pass.raised = run->blocked;
		reap_rel->state.pass.references_logged = run->blocked > 0;
	}
	reap_rel->last_run = GetCurrentTimestamp();
	if (run->changed)
	{
		ttl_reap_rel_end_pause(reap_rel);
		ttl_reap_rel_want_pass(reap_rel);
	}
	wait_until = reap_rel->state.paused_until;
	if (reap_rel->state.has_timed_out && memory->mode.by_worker)
		wait_until = Max(wait_until, memory->rest_until);
	if (wait_until > reap_rel->last_run)
	{
		run->due = Min(run->due, wait_until);
		return TTL_REAP_LATER;
	}

	while (result == TTL_REAP_MORE && may_go_on(run, max_cost))
	{
		BufferUsage start = pgBufferUsage;
		int64		was_blocked = ttl_reap_rel_blocked_rows(reap_rel);
		MemoryContext oldcontext;
		int64		cost;
		TtlBatch		batch;

		CHECK_FOR_INTERRUPTS();

		if (run->pace != NULL && run->cost > 0)
		{
			bool		napped = false;

			if (!run->pace(run, &napped))
				break;
			if (napped)
				commit_batch(memory);
		}

		memset(&batch, 0, sizeof(batch));
		batch.memory = memory;
		batch.reap_rel = reap_rel;
		batch.max_cost = max_cost - run->cost;
		batch.max_batch_cost = run->max_batch_cost;
		batch.max_rows = run->max_rows - run->rows;

		oldcontext = MemoryContextSwitchTo(memory->batch_context);
		result = run_batch(&batch, container, run);
		if (batch.error != NULL || ttl_reap_rel_blocked_rows(reap_rel) != was_blocked)
			report_blocked(memory, container, run, batch.error);
		MemoryContextSwitchTo(oldcontext);
		MemoryContextReset(memory->batch_context);

		commit_batch(memory);
		ttl_deletion_count_committed();

		cost = ttl_budget_cost_since(&start);
		run->cost += cost;
		run->rows += batch.deleted;
		if (batch.ntids > 0 || batch.emptied)
		{
			ttl_counters_add_batch(container, batch.deleted, cost);
			ttl_reap_report_batch(batch.deleted);
		}
	}

	if (result == TTL_REAP_DONE)
		end = TTL_REAP_DONE;
	else if (result == TTL_REAP_LATER)
	{
		end = TTL_REAP_LATER;
		run->due = Min(run->due, Max(reap_rel->state.paused_until,
									   GetCurrentTimestamp() + TTL_POSITION_WAIT));
	}
	else
		end = TTL_REAP_MORE;

	if (memory->allocated > KEEP_MAX)
		ttl_reap_rel_discard(memory, reap_rel);
	ttl_reap_rel_store(memory, reap_rel);
	return end;
}

/*
 * Runs a run, see run.h.  The cost is shared equally among the tables; what
 * one leaves goes to those after it.
 */
void
ttl_reap_rel_run(TtlMemory *memory, Oid container, TtlReapRun *run)
{
	ListCell   *lc;
	int			left;

	run->end = TTL_REAP_DONE;
	run->cost = 0;
	run->rows = 0;
	run->due = DT_NOEND;

	if (SPI_connect_ext(memory->mode.commits ? SPI_OPT_NONATOMIC : 0) !=
		SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	ttl_deletion_discard_counts();

	/* what a procedure has deferred before it called is its own to fire */
	if (!memory->mode.by_worker)
		commit_batch(memory);

	run->tables = ttl_container_leaves(container);
	left = list_length(run->tables);

	foreach(lc, run->tables)
	{
		TtlReapResult	end;
		int64		share = (run->max_cost - run->cost) / left--;

		if (!may_go_on(run, run->max_cost))
		{
			run->end = TTL_REAP_MORE;
			break;
		}
		end = reap_table(memory, container, lfirst_oid(lc), run,
					   run->cost + Max(share, 1));
		if (run->end == TTL_REAP_DONE || end == TTL_REAP_MORE)
			run->end = end;
	}
	report_blocked(memory, container, run, NULL);
	run->ntables = list_length(run->tables);

	SPI_finish();
}
