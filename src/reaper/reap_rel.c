/*-------------------------------------------------------------------------
 *
 * reap_rel.c
 *	  Deletes the expired rows of a container, table by table.
 *
 * The worker and CALL ttl.reap call ttl_reap_rel_run().  A container may have more tables than a
 * run pays for: those known to have work share most of the cost, the others are looked at when they
 * are due, in turn, over several runs, beginning with any of them in a new worker.  For each table
 * reap_table() runs transactions until nothing is left to delete, or the run has used up
 * what it may.  In each transaction run_batch()
 *
 * - opens the table, with its lock and the policy lock, which keeps the policy as it is
 *	 until the commit,
 * - collects the TIDs of many expired rows by one scan, if none are left of an earlier
 *	 transaction, and removes those that others reference (fk_referenced.c),
 * - truncates a partition whose rows have all expired (truncate_partition.c), or deletes
 *	 a batch of them (batch.c).
 *
 * A TID collected in an earlier transaction may hold another row by now; the DELETE
 * checks whether it has expired by the present policy.
 *
 * One scan of the expiry indexes collects the rows of many batches, since a scan for
 * each would read the dead index entries of all batches before it again.  The next scan
 * starts at the position, the index entry at which the last one stopped.  It reads entries with the
 * same key again, of which there may be millions, and then collects at least as many.  The position
 * advances only when what was collected has been dealt with in committed transactions.
 * Rows may come to lie before it: given a _ts in the past, committed late, locked, or
 * impossible to delete.  So scans are grouped into passes (rel_state.c): a pass starts at
 * the left edge of the indexes and covers what had expired by then.  It always comes to
 * its end before the next begins, or rows that stay would keep it from the others.  Between
 * passes, scans go on from the position to what has expired since.  While an old snapshot
 * keeps dead entries from being removed the left edge is expensive, so the time between
 * passes grows with what they cost.
 *
 * For ttl.grace after a change of policy that has made rows expire the worker leaves the table
 * alone; a CALL does not.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "citus/citus.h"
#include "commands/trigger.h"
#include "common/int.h"
#include "container/container.h"
#include "cost.h"
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
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* TIDs that are collected in one scan; fewer if little may be spent */
#define COLLECT_MAX			50000
#define COLLECT_MIN			500

/* Of the cost of a run, so small a share is for idle tables if others have work */
#define LOOKING_SHARE		4

/* TIDs that are kept between runs, for all tables together */
#define KEEP_MAX			4194304

/*
 * Takes the locks that foreign keys will need on the referencing tables.  False if one
 * is not available: then no row of this table can be deleted, and none is to blame.
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

	if (ttl_container_objects() == NULL)
		return TTL_REAP_DONE;	/* the extension was dropped */

	/* first Citus's locks, then the table, then the policy: DDL does it in this order */
	is_shard = ttl_citus_lock_shard(container, waits);
	if (waits)
		LockRelationOid(relid, RowExclusiveLock);
	else if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return TTL_REAP_LATER;
	if (!ttl_container_lock_policy(container, false, waits))
		return TTL_REAP_LATER;

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
			return TTL_REAP_LATER;
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("expired rows of shard \"%s\" have not been deleted", get_rel_name(container)),
				 errdetail("It is being copied, or rows on other nodes may reference its rows.")));
		return TTL_REAP_DONE;
	}
	if ((!waits && !ttl_expiry_lock_indexes(batch->rel)) ||
		!lock_referencing(batch->rel, waits))
		return TTL_REAP_LATER;

	if (!waits && ttl_grace_lasts(&batch->container.policy.change, ttl_execution_reference_time()))
	{
		/* rows that the change has made expired may lie before the position */
		ttl_reap_rel_discard(batch->memory, batch->reap_rel);
		batch->reap_rel->state.pass.is_running = false;
		batch->reap_rel->state.pass.next_at = 0;
		batch->due = ttl_grace_end(&batch->container.policy.change, GetCurrentTimestamp());
		return TTL_REAP_DONE;
	}
	return TTL_REAP_MORE;
}

/*
 * Do scans start at a position, rather than at the left edge?  There may be many dead
 * entries before it.
 */
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

bool
ttl_reap_rel_has_code(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	if (rel->rd_rules != NULL)
		return true;
	return triggers != NULL &&
		(triggers->trig_delete_before_row ||
		 triggers->trig_delete_after_row ||
		 triggers->trig_delete_instead_row ||
		 triggers->trig_delete_before_statement ||
		 triggers->trig_delete_after_statement ||
		 triggers->trig_delete_old_table ||
		 triggers->trig_truncate_before_statement ||
		 triggers->trig_truncate_after_statement);
}

/*
 * Collects the TIDs of rows that had expired by 'now', from the position on, and
 * sets reap_rel->more if there may be others.  A snapshot is active.
 */
static void
collect_tids(TtlBatch *batch, TimestampTz now, TtlExpiryPosition *position)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;
	bool		is_incomplete;
	int64		limit;

	batch->referenced = reap_rel->skip_referenced_check ? NIL : ttl_fk_referenced_keys(batch);

	/* a row costs one buffer at least to find, and others to delete */
	limit = Min(Max(Min(batch->max_cost, batch->max_rows), COLLECT_MIN),
				batch->referenced != NIL ? TTL_FK_REFERENCED_MAX : COLLECT_MAX);

	walk = ttl_expiry_walk_begin(batch->rel, &batch->container, now, GetActiveSnapshot(),
								 position);
	ttl_expiry_walk_only_tids(walk);
	ttl_expiry_walk_before(walk, batch->memory->mode.next_xid);
	while (reap_rel->tids.n < limit && (slot = ttl_expiry_walk_next(walk, NULL)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		ttl_reap_rel_add_tid(batch->memory, reap_rel, &slot->tts_tid);
		if (batch->referenced == NIL)
			limit = Max(limit, Min(ttl_expiry_walk_skipped(walk), KEEP_MAX / 2));
	}
	reap_rel->more = reap_rel->tids.n >= limit;
	is_incomplete = !reap_rel->more && ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);

	/* rows may have been found by the other index; but "nothing" would be wrong */
	if (is_incomplete && reap_rel->tids.n == 0)
		ttl_expiry_report_incomplete(batch->rel);
	reap_rel->lacks_index = reap_rel->lacks_index && (is_incomplete || reap_rel->more);
}

static void
scan_expiry_indexes(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlPass    *pass = &reap_rel->state.pass;

	if (!pass->is_running &&
		(pass->next_at <= GetCurrentTimestamp() || !has_position(reap_rel)))
		ttl_reap_rel_begin_pass(reap_rel, batch->now);

	PushActiveSnapshot(GetTransactionSnapshot());
	reap_rel->next_position = reap_rel->state.position;
	reap_rel->scanned_to = pass->is_running ? Min(pass->now, batch->now) : batch->now;
	collect_tids(batch, pass->is_running ? Min(pass->now, batch->now) : batch->now,
				 &reap_rel->next_position);
	PopActiveSnapshot();
}

/* Rows that expire so much later have numbers in another unit than their column. */
#define ODD_LIFE			(1000 * INT64CONST(366) * USECS_PER_DAY)

/*
 * Warns once if the numbers of a column look as if they were in a smaller unit: a column
 * that was registered without rows has shown none.
 */
static void
warn_of_unit(const TtlBatch *batch, TimestampTz earliest)
{
	const TtlContainer *container = &batch->container;
	bool		is_own = container->ttl_type != NULL && container->ttl_type->unit != TTL_UNIT_SECONDS;
	TtlUnit		unit = is_own ? container->ttl_type->unit :
		container->ts_type != NULL ? container->ts_type->unit : TTL_UNIT_SECONDS;
	AttrNumber	attno = is_own ? container->ttl_attno : container->ts_attno;

	if (unit == TTL_UNIT_SECONDS || unit + 1 == TTL_UNITS || earliest == DT_NOEND ||
		earliest - ODD_LIFE < GetCurrentTimestamp() ||
		!ttl_counters_warn_of_unit(container->container))
		return;
	ereport(WARNING,
			(errmsg("values of column \"%s\" of container \"%s\" do not look like times in unit \"%s\"",
					get_attname(container->relid, attno, false),
					ttl_container_qualified_name(container->container), ttl_type_unit_name(unit)),
			 errdetail("The first of its rows expires at %s.", timestamptz_to_str(earliest)),
			 errhint("If they are in unit \"%s\", use ttl.drop_container() and register the table with that unit.",
					 ttl_type_unit_name(unit + 1))));
}

/*
 * True if there is nothing to delete now.  Cheap.  batch->due is when there will be, or when to look
 * again.
 */
static bool
nothing_due(TtlBatch *batch)
{
	TimestampTz earliest;
	bool		is_incomplete;

	batch->due = GetCurrentTimestamp() + TTL_POSITION_WAIT;
	if (has_position(batch->reap_rel))
		return false;
	PushActiveSnapshot(GetTransactionSnapshot());
	earliest = ttl_expiry_earliest(batch->rel, &batch->container,
								   GetActiveSnapshot(), &is_incomplete);
	PopActiveSnapshot();
	if (earliest <= batch->now || is_incomplete)
		return false;
	if (batch->memory->mode.by_worker)
		warn_of_unit(batch, earliest);
	if (pg_add_s64_overflow(earliest, batch->container.policy.reap_delay, &earliest))
		earliest = DT_NOEND;
	batch->due = Max(batch->due, earliest);
	ttl_reap_rel_found_nothing(batch->reap_rel);
	return true;
}

/* Collects TIDs, without those of referenced rows. */
static TtlReapResult
collect(TtlBatch *batch)
{
	TimestampTz started = GetCurrentTimestamp();
	ErrorData  *error;
	TtlReapResult result;

	ttl_reap_report_phase(TTL_PHASE_LOOKING);
	error = ttl_batch_attempt(scan_expiry_indexes, batch, false);
	if (error != NULL)
		return ttl_batch_handle_error(batch, error);
	result = ttl_batch_check_referenced(batch);
	batch->reap_rel->state.pass.busy += GetCurrentTimestamp() - started;
	return result;
}

/*
 * All rows that had expired by then have been deleted, or cannot be.
 */
static void
advance_front(TtlBatch *batch, TimestampTz expired_by)
{
	TtlFront   *front = &batch->reap_rel->front;
	TtlExpiryPosition last;

	StaticAssertStmt(TTL_INDEXES <= TTL_FRONT_INDEXES, "TtlFront lacks an expiry index");
	ttl_expiry_skip_expired(&batch->container, expired_by, &last);
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		front->set[i] = last.set[i];
		front->key[i] = last.at[i] + 1;
	}
}

/* Does the work of one transaction. */
static TtlReapResult
run_batch(TtlBatch *batch, Oid container, TtlReapRun *run)
{
	TtlMemory  *memory = batch->memory;
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlReapResult result = open_table(batch, container);

	if (result != TTL_REAP_MORE)
		return result;

	if (!ttl_reap_rel_has_tids(memory, reap_rel))
	{
		if (nothing_due(batch))
		{
			advance_front(batch, batch->now);
			return TTL_REAP_DONE;
		}
		run->is_idle = false;
		result = collect(batch);
		if (result != TTL_REAP_MORE)
			return result;
		if (!ttl_reap_rel_has_tids(memory, reap_rel))
		{
			if (reap_rel->more)
				return TTL_REAP_MORE;
			advance_front(batch, reap_rel->scanned_to);
			(void) nothing_due(batch);
			return TTL_REAP_DONE;
		}
		if (batch->timed_out)
			return TTL_REAP_MORE;
	}
	return ttl_truncate_partition(batch) ? TTL_REAP_MORE : ttl_batch_delete(batch);
}

/* Rows have been deleted, and there are more: the front is where the next scan starts. */
static void
set_front(TtlReapRel *reap_rel)
{
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (!reap_rel->state.position.set[i])
			continue;
		reap_rel->front.set[i] = true;
		reap_rel->front.key[i] = reap_rel->state.position.at[i];
	}
}

/*
 * Updates the statistics: how far the deletion has come.  Where this process knows nothing
 * of a table yet, it is as far as others have come.
 */
static void
report_front(TtlMemory *memory, Oid container, const TtlReapRun *run)
{
	TtlFront	front = {0};
	TimestampTz expiry = DT_NOEND;
	bool		is_failing = false;
	TtlContainer member;
	TtlContainerCounters counters;
	ListCell   *lc;

	if (!ttl_container_peek(container, &member))
		return;
	if (!ttl_counters_get_container(container, &counters))
		memset(&counters, 0, sizeof(counters));
	foreach(lc, run->tables)
	{
		const TtlReapRel *reap_rel = ttl_reap_rel_enter(memory, lfirst_oid(lc));

		is_failing = is_failing || reap_rel->state.paused_until > GetCurrentTimestamp();
		for (int i = 0; i < TTL_INDEXES; i++)
		{
			const TtlFront *known = reap_rel->front.set[i] ? &reap_rel->front : &counters.front;
			bool		is_first = lc == list_head(run->tables);
			TimestampTz key = known->key[i];

			front.set[i] = known->set[i] && (is_first || front.set[i]);
			front.key[i] = is_first ? key : Min(front.key[i], key);
			if (known->set[i])
				expiry = Min(expiry, i == TTL_INDEX_ITEM ? key :
							 ttl_expiry_add(key, Max(member.policy.default_ttl, 1)));
		}
	}
	if (run->end != TTL_REAP_MORE)
		expiry = DT_NOEND;
	ttl_counters_set_front(container, &front, expiry, is_failing);
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
may_go_on(const TtlReapRun *run, int64 max_cost)
{
	return run->cost < max_cost && run->rows < run->max_rows &&
		(run->until == DT_NOEND || GetCurrentTimestamp() < run->until);
}

/*
 * Updates the statistics: the number of rows that cannot be deleted, and the reason, if
 * there is a new one.  Until all tables are known, the stored number may count rows of
 * the others.
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

/* Deletes from one table until the run has cost max_cost. */
static TtlReapResult
reap_table(TtlMemory *memory, Oid container, TtlReapRel *reap_rel, TtlReapRun *run,
		   int64 max_cost)
{
	TtlReapResult result = TTL_REAP_MORE;
	TimestampTz due = DT_NOEND;
	TimestampTz wait_until;

	/* rows that are blocked by the statistics have been logged by an earlier worker */
	if (!reap_rel->was_run && memory->mode.by_worker)
	{
		reap_rel->state.pass.raised = run->blocked;
		reap_rel->state.pass.references_logged = run->blocked > 0;
	}
	reap_rel->was_run = true;
	reap_rel->has_work = false;
	reap_rel->last_run = reap_rel->due = GetCurrentTimestamp();
	wait_until = reap_rel->state.paused_until;
	if (reap_rel->state.has_timed_out && memory->mode.by_worker)
		wait_until = Max(wait_until, memory->rest_until);
	if (wait_until > reap_rel->last_run)
	{
		reap_rel->due = wait_until;
		return TTL_REAP_LATER;
	}

	while (result == TTL_REAP_MORE && may_go_on(run, max_cost))
	{
		BufferUsage start = pgBufferUsage;
		int64		was_blocked = ttl_reap_rel_blocked_rows(reap_rel);
		MemoryContext oldcontext;
		int64		cost;
		TtlBatch	batch = {
			.memory = memory,
			.reap_rel = reap_rel,
			.max_cost = max_cost - run->cost,
			.max_batch_cost = run->max_batch_cost,
			.max_rows = run->max_rows - run->rows
		};

		CHECK_FOR_INTERRUPTS();

		if (run->pace != NULL && run->cost > 0)
		{
			bool		napped = false;

			if (!run->pace(run, &napped))
				break;
			if (napped)
				commit_batch(memory);
		}

		oldcontext = MemoryContextSwitchTo(memory->batch_context);
		result = run_batch(&batch, container, run);
		if (batch.rel != NULL)
			relation_close(batch.rel, NoLock);
		if (batch.due != 0)
			due = batch.due;
		if (batch.error != NULL || ttl_reap_rel_blocked_rows(reap_rel) != was_blocked)
			report_blocked(memory, container, run, batch.error);
		MemoryContextSwitchTo(oldcontext);
		MemoryContextReset(memory->batch_context);

		commit_batch(memory);
		ttl_deletion_count_committed();

		cost = ttl_cost_since(&start);
		run->cost += cost;
		run->rows += batch.deleted;
		if (batch.ntids > 0)
		{
			ttl_counters_add_batch(container, batch.deleted, cost);
			if (batch.deleted > 0)
				set_front(reap_rel);
			ttl_reap_report_batch(batch.deleted);
		}
	}

	if (result == TTL_REAP_LATER)
		due = Max(reap_rel->state.paused_until, GetCurrentTimestamp() + TTL_POSITION_WAIT);
	if (result != TTL_REAP_MORE)
		reap_rel->due = Min(due, GetCurrentTimestamp() + run->longest_wait);
	reap_rel->has_work = result == TTL_REAP_MORE;
	if (memory->allocated > KEEP_MAX)
		ttl_reap_rel_discard(memory, reap_rel);
	ttl_reap_rel_store(memory, reap_rel);
	return result;
}

/* The table whose last run was the longest ago comes first; in a CALL the oldest. */
static int
compare_last_run(const ListCell *a, const ListCell *b)
{
	const TtlReapRel *left = (TtlReapRel *) lfirst(a);
	const TtlReapRel *right = (TtlReapRel *) lfirst(b);

	if (left->last_run != right->last_run)
		return left->last_run < right->last_run ? -1 : 1;
	return left->relid < right->relid ? -1 : left->relid > right->relid;
}

/*
 * Gives each table a run with an equal share of what is left of the cost; what one leaves goes
 * to those after it.  If 'busy' is given, the tables are looked at for work, and those that
 * have some left are added there; with such tables, looking costs max_cost / LOOKING_SHARE at most.
 */
static void
reap_tables(TtlMemory *memory, Oid container, TtlReapRun *run, List *tables, List **busy)
{
	int			left = list_length(tables);
	ListCell   *lc;

	list_sort(tables, compare_last_run);
	foreach(lc, tables)
	{
		TtlReapRel *reap_rel = (TtlReapRel *) lfirst(lc);
		int64		share = (run->max_cost - run->cost) / left--;
		bool		is_limited = busy != NULL && *busy != NIL;
		TtlReapResult end;

		if (!may_go_on(run, is_limited ? run->max_cost / LOOKING_SHARE : run->max_cost))
		{
			run->end = TTL_REAP_MORE;
			break;
		}
		end = reap_table(memory, container, reap_rel, run, run->cost + Max(share, 1));
		if (busy != NULL && reap_rel->has_work)
			*busy = lappend(*busy, reap_rel);
		else if (run->end == TTL_REAP_DONE || end == TTL_REAP_MORE)
			run->end = end;
	}
}

void
ttl_reap_rel_run(TtlMemory *memory, Oid container, TtlReapRun *run)
{
	List	   *idle = NIL;
	List	   *busy = NIL;
	ListCell   *lc;

	run->end = TTL_REAP_DONE;
	run->cost = 0;
	run->rows = 0;
	run->due = DT_NOEND;
	run->is_idle = true;

	if (SPI_connect_ext(memory->mode.commits ? SPI_OPT_NONATOMIC : 0) !=
		SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	ttl_deletion_discard_counts();

	/* what a procedure has deferred before it called must not fire as the owner */
	if (!memory->mode.by_worker)
		commit_batch(memory);

	run->tables = ttl_container_leaves(container);
	run->ntables = list_length(run->tables);
	foreach(lc, run->tables)
	{
		TtlReapRel *reap_rel = ttl_reap_rel_enter(memory, lfirst_oid(lc));

		if (run->changed)
		{
			ttl_reap_rel_end_pause(reap_rel);
			ttl_reap_rel_want_pass(reap_rel);
			reap_rel->due = 0;
		}
		if (reap_rel->has_work)
			busy = lappend(busy, reap_rel);
		else if (reap_rel->due <= GetCurrentTimestamp())
			idle = lappend(idle, reap_rel);
	}
	reap_tables(memory, container, run, idle, &busy);
	reap_tables(memory, container, run, busy, NULL);
	foreach(lc, run->tables)
		run->due = Min(run->due, ttl_reap_rel_enter(memory, lfirst_oid(lc))->due);

	report_blocked(memory, container, run, NULL);
	report_front(memory, container, run);

	SPI_finish();
}
