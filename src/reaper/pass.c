/*-------------------------------------------------------------------------
 *
 * pass.c
 *	  Which rows of a table are to be deleted next: walks along the expiry indexes, and passes.
 *
 * One walk of the expiry indexes collects the TIDs of the rows of many batches, since a walk for
 * each would read the dead index entries of all batches before it again.  The next walk
 * starts at the position, the index entry at which the last one stopped.  It reads entries with the
 * same key again, of which there may be millions, and then collects at least as many.  The position
 * advances only when what was collected has been dealt with in committed transactions, or so much of
 * it as is marked.
 *
 * A TID collected in an earlier transaction may hold another row by now; the DELETE
 * checks whether it has expired by the present policy.
 *
 * Rows may come to lie before the position: given a _ts in the past, committed late, locked, or
 * impossible to delete.  So walks are grouped into passes: a pass starts at
 * the left edge of the indexes and covers what had expired by then.  It always comes to
 * its end before the next begins, or rows that stay would keep it from the others.  Between
 * passes, walks go on from the position to what has expired since.  While an old snapshot
 * keeps dead entries from being removed the left edge is expensive, so the time between
 * passes grows with what they cost.
 *
 * Rows that cannot be deleted are not remembered one by one.  A pass meets all rows
 * that had expired when it began, counts those that it cannot delete, and advances
 * the position past them; the next pass finds them again.  It starts after PASS_SHARE
 * times the time that this one has spent on finding rows and on failing, within
 * bounds, so that passes take a small share of the worker's time.
 *
 * Where there are more databases than workers, a worker lives for one cycle only.  So
 * a pass with rows that cannot be deleted is left in the statistics of the container
 * (findings.c), and the next worker continues there, rather than to try all of them
 * again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "common/int.h"
#include "counters.h"
#include "executor/tuptable.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "reaper/reap_table.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* TIDs that are collected in one walk; fewer if little may be spent */
#define COLLECT_MAX			50000
#define COLLECT_MIN			500

/* ... or as many as the walk has read again, within this limit */
#define COLLECT_MOST		2097152

/*
 * So often the position is noted where rows are blocked one by one: a worker that lives for one cycle may
 * not come to the end of what it has collected.  Where rows are deleted one by one, since they may take long, a
 * cycle comes to a single row, so it is noted after each.
 */
#define MARK_EVERY			10
#define MARKS_MAX			(COLLECT_MOST / MARK_EVERY)

/* Time between walks from the position */
#define POSITION_WAIT		(1 * USECS_PER_SEC)

/* Time between passes: so many times as long as one has taken, ... */
#define PASS_SHARE			20

/* ... within bounds; less if it has left rows that may be deleted soon */
#define PASS_MIN_WAIT		(2 * USECS_PER_SEC)
#define PASS_MAX_WAIT		(300 * USECS_PER_SEC)
#define BLOCKED_MAX_WAIT	(30 * USECS_PER_SEC)

/* Initializes the state of a table; a worker goes on with what an earlier one has left in the statistics. */
void
ttl_pass_resume(TtlReapRel *reap_rel, Oid relid, const TtlContainerCounters *counters)
{
	TtlPass		left;

	memset(reap_rel, 0, sizeof(TtlReapRel));
	reap_rel->relid = relid;

	/* not if the clock has been set back since */
	memcpy(&left, &counters->pass, sizeof(TtlPass));
	if (counters->pass_relid == relid && left.next_at <= GetCurrentTimestamp() + PASS_MAX_WAIT)
	{
		reap_rel->pass = left;
		reap_rel->next_position = reap_rel->pass.position;
		reap_rel->more = reap_rel->pass.is_running;
		reap_rel->is_known = !reap_rel->pass.is_running;
	}

	/*
	 * rows that are blocked by the statistics have been logged by an earlier
	 * worker
	 */
	if (!reap_rel->is_known && !reap_rel->pass.is_running)
		reap_rel->pass.last_blocked = counters->blocked_rows;
}

/* Forgets the rows that have been collected, to free memory at the end. */
void
ttl_pass_clear(TtlReapRel *reap_rel)
{
	if (reap_rel->tids.tids != NULL)
		pfree(reap_rel->tids.tids);
	memset(&reap_rel->tids, 0, sizeof(TtlTids));
	if (reap_rel->marks != NULL)
		pfree(reap_rel->marks);
	reap_rel->marks = NULL;
	reap_rel->nmarks = 0;
	reap_rel->next_tid = 0;
	reap_rel->checked = 0;
	reap_rel->blocked_until = 0;
}

/* Forgets what a walk has collected, as if it had not taken place. */
void
ttl_pass_discard(TtlReapRel *reap_rel)
{
	ttl_pass_clear(reap_rel);
	reap_rel->more = true;
	reap_rel->blocked = 0;
	reap_rel->next_position = reap_rel->pass.position;
}

/* Forgets that, too, and where walks and the pass were. */
void
ttl_pass_forget(TtlReapRel *reap_rel)
{
	ttl_pass_discard(reap_rel);
	reap_rel->pass.is_running = false;
	reap_rel->pass.next_at = 0;
}

/* Begins a pass over what had expired at 'now'. */
static void
begin_pass(TtlReapRel *reap_rel, TimestampTz now)
{
	TtlPass    *pass = &reap_rel->pass;
	TtlPass		begun = {0};

	/*
	 * without a position: at the left edge.  Locked rows are no longer
	 * skipped, and references checked again
	 */
	begun.is_running = true;
	begun.now = now;
	begun.n_single = pass->n_single;
	begun.last_blocked = reap_rel->is_known ? pass->blocked : pass->last_blocked;
	*pass = begun;
	reap_rel->skip_referenced_check = false;
	reap_rel->next_position = pass->position;
}

/* Makes the next pass begin at once, or right after the running one. */
static void
want_pass(TtlReapRel *reap_rel)
{
	reap_rel->pass.is_stale = true;
	reap_rel->pass.next_at = 0;
}

/* Rows have been dealt with, or there are none. */
void
ttl_pass_end_pause(TtlReapRel *reap_rel)
{
	reap_rel->pause = 0;
	reap_rel->is_failing = false;
}

/* Has a table tried anew, since it or its policy has changed. */
void
ttl_pass_restart(TtlReapRel *reap_rel)
{
	ttl_pass_end_pause(reap_rel);
	want_pass(reap_rel);
}

/* Schedules the next pass. */
static void
end_pass(TtlReapRel *reap_rel)
{
	TtlPass    *pass = &reap_rel->pass;
	int64		wait = pass->busy * PASS_SHARE;

	/*
	 * rows that may be deleted soon wait for less, but no less than a pass
	 * takes
	 */
	if (pass->blocked > 0 || pass->skip_locked)
		wait = Max(Min(wait, BLOCKED_MAX_WAIT), pass->busy);
	pass->is_running = false;
	pass->next_at = GetCurrentTimestamp() + Min(Max(wait, PASS_MIN_WAIT), PASS_MAX_WAIT);
	reap_rel->is_known = true;
	ttl_pass_end_pause(reap_rel);
	if (pass->is_stale)
		want_pass(reap_rel);
}

/* Moves the position; the rows before it that are blocked belong to the count of the pass. */
static void
set_position(TtlReapRel *reap_rel, const TtlExpiryPosition *position)
{
	reap_rel->pass.position = *position;
	reap_rel->pass.blocked += reap_rel->blocked;
	reap_rel->blocked = 0;
}

/*
 * Rows have been blocked before the TID of that number.  The position can't be among those that have been asked about
 * at once, whose order has changed: one of them that is alone in its batch then makes no difference.
 */
void
ttl_pass_note_blocked(TtlReapRel *reap_rel, int until)
{
	reap_rel->blocked_until = Max(reap_rel->blocked_until, until);
}

/*
 * Moves the position to the last mark, if that is behind rows that have been dealt with in committed
 * transactions: the next worker goes on from there.
 */
void
ttl_pass_move_to_mark(TtlReapRel *reap_rel)
{
	int			n = reap_rel->nmarks == 0 ? 0 : Min(reap_rel->next_tid / reap_rel->mark_every, reap_rel->nmarks);

	/* a blocked row behind the mark would be met, and counted, again */
	if (n > 0 && n * reap_rel->mark_every >= reap_rel->blocked_until)
		set_position(reap_rel, &reap_rel->marks[n - 1]);
}

/*
 * Moves the position behind rows that have been dealt with in committed transactions, and ends the
 * pass if it has come to its end.  False if no collected TIDs are left.
 */
bool
ttl_pass_advance(TtlReapRel *reap_rel)
{
	if (reap_rel->next_tid < reap_rel->tids.n)
	{
		ttl_pass_move_to_mark(reap_rel);
		return true;
	}

	set_position(reap_rel, &reap_rel->next_position);
	ttl_pass_clear(reap_rel);
	if (reap_rel->pass.is_running && !reap_rel->more)
		end_pass(reap_rel);
	return false;
}

/*
 * True if walks start at a position, rather than at the left edge.  There may be many dead
 * entries before it.
 */
static bool
has_position(const TtlReapRel *reap_rel)
{
	const TtlExpiryPosition *position = &reap_rel->pass.position;

	return position->set[TTL_INDEX_DEFAULT] || position->set[TTL_INDEX_ITEM];
}

/*
 * Notes the position behind the last TID.  The marks are one array, which goes back to malloc() when it is
 * freed: chunks of their own would stay in the context, whose size decides whether collected rows are kept.
 */
static void
append_mark(TtlReapRel *reap_rel)
{
	int			n = reap_rel->nmarks;

	/* twice as large whenever it is full */
	if (n == 0)
		reap_rel->marks = palloc(sizeof(TtlExpiryPosition));
	else if ((n & (n - 1)) == 0)
		reap_rel->marks = repalloc(reap_rel->marks, sizeof(TtlExpiryPosition) * 2 * n);
	reap_rel->marks[n] = reap_rel->next_position;
	reap_rel->nmarks++;
}

/*
 * Collects the TIDs of expired rows from the position on, and sets reap_rel->more if there may be
 * others.  A snapshot is active.
 */
static void
collect_tids(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;
	MemoryContext old;
	bool		is_incomplete;
	int64		limit;

	reap_rel->mark_every = reap_rel->pass.n_single > 0 ? 1 : MARK_EVERY;

	/* a row costs one buffer at least to find, and others to delete */
	limit = Min(Max(Min(batch->max_cost, batch->max_rows), COLLECT_MIN), COLLECT_MAX);
	walk = ttl_expiry_walk_begin(batch->rel, &batch->container, batch->now, GetActiveSnapshot(),
								 &reap_rel->next_position);
	ttl_expiry_walk_only_tids(walk);
	ttl_expiry_walk_before(walk, batch->memory->mode.next_xid);
	while (reap_rel->tids.n < limit && (slot = ttl_expiry_walk_next(walk, NULL)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		old = MemoryContextSwitchTo(batch->memory->context);
		ttl_tids_append(&reap_rel->tids, &slot->tts_tid);
		if (reap_rel->pass.raises && reap_rel->tids.n % reap_rel->mark_every == 0 && reap_rel->nmarks < MARKS_MAX)
			append_mark(reap_rel);
		MemoryContextSwitchTo(old);

		/*
		 * or walks over rows with the same key would take time that is the
		 * square of their number
		 */
		if (reap_rel->tids.n >= limit)
			limit = Max(limit, Min(ttl_expiry_walk_skipped(walk), COLLECT_MOST));
	}
	reap_rel->more = reap_rel->tids.n >= limit;
	is_incomplete = !reap_rel->more && ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);

	/*
	 * rows may have been found by the other index; but "nothing" would be
	 * wrong
	 */
	if (is_incomplete && reap_rel->tids.n == 0)
		ttl_expiry_report_incomplete(batch->rel);
}

/* Collects TIDs of expired rows from the position on; begins a pass if it is time for one. */
void
ttl_pass_scan(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlPass    *pass = &reap_rel->pass;

	if (!pass->is_running &&
		(pass->next_at <= GetCurrentTimestamp() || !has_position(reap_rel)))
		begin_pass(reap_rel, batch->now);

	/*
	 * or it would not come to its end while rows expire; the clock may have
	 * been set back since it began
	 */
	if (pass->is_running)
		batch->now = Min(pass->now, batch->now);

	PushActiveSnapshot(GetTransactionSnapshot());
	reap_rel->next_position = pass->position;
	collect_tids(batch);
	PopActiveSnapshot();
}

/*
 * Looks for a row that is due, at little cost, and sets batch->again_at to when there will be another, or when to look
 * again.  True if there may be one.
 */
bool
ttl_pass_find_due(TtlBatch *batch)
{
	TtlExpiryFirst first;

	batch->again_at = GetCurrentTimestamp() + POSITION_WAIT;

	/* dead entries before the position would make the search expensive */
	if (has_position(batch->reap_rel))
		return true;
	PushActiveSnapshot(GetTransactionSnapshot());
	ttl_expiry_find_first(batch->rel, &batch->container, NULL, DT_NOBEGIN, DT_NOEND, &first);
	PopActiveSnapshot();
	/* without an index collect_tids() finds what there is, or reports that */
	if (first.at <= batch->now || first.incomplete)
		return true;
	if (pg_add_s64_overflow(first.at, batch->container.policy.reap_delay, &first.at))
		first.at = DT_NOEND;
	batch->again_at = Max(batch->again_at, first.at);
	return false;
}

/* All rows that had expired when the batch began have been deleted, or cannot be. */
void
ttl_pass_finish(TtlBatch *batch)
{
	TtlExpiryPosition *front = &batch->reap_rel->front;

	ttl_expiry_skip_expired(&batch->container, batch->now, front);
	for (int i = 0; i < TTL_INDEXES; i++)
		/* behind the last key that had expired */
		front->at[i]++;
	ttl_pass_end_pause(batch->reap_rel);
}

/* There are no such rows, and none is blocked. */
void
ttl_pass_end_empty(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;

	reap_rel->is_known = true;
	reap_rel->pass.is_running = false;
	reap_rel->pass.blocked = 0;
	ttl_pass_finish(batch);
}

/* Rows have been deleted, and there are more: the front is where the next walk starts. */
void
ttl_pass_set_front(TtlReapRel *reap_rel)
{
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (!reap_rel->pass.position.set[i])
			continue;
		reap_rel->front.set[i] = true;
		reap_rel->front.at[i] = reap_rel->pass.position.at[i];
	}
}
