/*-------------------------------------------------------------------------
 *
 * collect.c
 *	  Finds the rows that are to be deleted.
 *
 * One walk along the expiry indexes of a table collects the places of many expired
 * rows.  A walk for each batch would read the dead index entries of all batches before
 * it again.
 *
 * The next walk starts at the mark where the last one stopped.  Rows may come
 * to lie behind the mark: given a _ts in the past, committed late, skipped
 * because locked or failed.  So now and then a walk starts from the left edge.
 * While an old snapshot keeps dead entries from being removed such a walk is
 * expensive; it is repeated after TTL_LEFT_MIN_WAIT at the earliest, so seldom
 * that it takes no more than 1/LEFT_SHARE of the time, and each time it finds
 * nothing the wait doubles, up to LEFT_MAX_WAIT.  The mark moves forward only
 * when what was collected has been dealt with in committed transactions.
 *
 * While rows that a change of policy has made expired are spared (ttl.grace), the
 * worker's walks leave them out, and so does the DELETE.  Looking at a container
 * that has nothing else costs no more than at an idle one.  A CALL spares nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "expiry/expiry_index.h"
#include "expiry/expiry_walk.h"
#include "miscadmin.h"
#include "reaper/collect.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Places that are collected in one walk; fewer if little may be spent. */
#define COLLECT_MAX			50000
#define COLLECT_MIN			500

/* Time between walks from the left edge. */
#define LEFT_MAX_WAIT		(300 * USECS_PER_SEC)
#define LEFT_SHARE			20

void
ttl_collect_places(TtlStep *step)
{
	TtlMemory  *memory = step->memory;
	TtlLeaf    *leaf = step->leaf;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz useful_at = 0;
	TimestampTz retry_at = DT_NOEND;
	bool		from_left = leaf->left_at <= started;
	bool		found = false;
	bool		incomplete;
	int			limit;
	TtlExpiryMark mark;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;

	if (from_left)
	{
		memset(&mark, 0, sizeof(mark));
		leaf->left_walks++;
	}
	else
		mark = leaf->mark;

	/* a row costs one buffer at least to find, and others to delete */
	limit = (int) Min(Max(step->max_cost, COLLECT_MIN), COLLECT_MAX);

	PushActiveSnapshot(GetTransactionSnapshot());
	walk = ttl_expiry_walk_begin(step->rel, &step->container, step->now,
								 GetActiveSnapshot(), &mark);
	if (step->spares)
		ttl_expiry_walk_spare(walk);
	while ((slot = ttl_expiry_walk_next(walk, NULL)) != NULL)
	{
		TtlBlockedRow *blocked = ttl_leaf_find_blocked(memory, leaf, &slot->tts_tid);

		CHECK_FOR_INTERRUPTS();

		if (blocked == NULL)
		{
			if (!found)
				useful_at = GetCurrentTimestamp();
			found = true;
			ttl_leaf_add_place(memory, &leaf->places, &slot->tts_tid);
		}
		else
		{
			blocked->seen = leaf->left_walks;
			if (blocked->retry_at <= started)
				ttl_leaf_add_place(memory, &leaf->retries, &slot->tts_tid);
			else if (blocked->untold > 0)
				retry_at = Min(retry_at, blocked->retry_at);
		}

		if (leaf->places.n + leaf->retries.n >= limit)
			break;
	}
	incomplete = slot == NULL && ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);
	PopActiveSnapshot();

	/* first what can be found; but then "nothing" would be wrong */
	if (incomplete && leaf->places.n + leaf->retries.n == 0)
		ttl_expiry_report_incomplete(step->rel);
	leaf->lacks_index = leaf->lacks_index && (incomplete || slot != NULL);

	leaf->next_mark = mark;
	leaf->more = slot != NULL;
	leaf->fruitless = leaf->places.n + leaf->retries.n > 0;

	if (from_left)
	{
		TimestampTz ended = GetCurrentTimestamp();
		TimestampTz wait;

		leaf->left_wait = found ? TTL_LEFT_MIN_WAIT :
			Min(leaf->left_wait * 2, LEFT_MAX_WAIT);
		wait = Max(leaf->left_wait,
				   ((found ? useful_at : ended) - started) * LEFT_SHARE);
		leaf->left_at = Min(ended + Min(wait, LEFT_MAX_WAIT), retry_at);

		if (!leaf->more)
			ttl_leaf_forget_blocked(memory, leaf, false);
	}
}

/*
 * Moves the mark to where the walk has stopped.  If more rows with one and the
 * same key are locked than are collected in a walk, it has to step over them.
 */
static void
move_mark(TtlLeaf *leaf)
{
	bool		moved = false;

	for (int i = 0; i < lengthof(leaf->mark.set); i++)
		moved = moved || leaf->mark.set[i] != leaf->next_mark.set[i] ||
			leaf->mark.at[i] != leaf->next_mark.at[i];
	leaf->mark = leaf->next_mark;

	for (int i = 0; i < lengthof(leaf->mark.set) && !moved; i++)
	{
		if (leaf->mark.set[i] && leaf->more && leaf->fruitless)
			leaf->mark.at[i]++;
	}
}

bool
ttl_collect_has_places(TtlMemory *memory, TtlLeaf *leaf)
{
	if (leaf->retries.next < leaf->retries.n ||
		leaf->places.next < leaf->places.n)
		return true;

	move_mark(leaf);
	ttl_leaf_clear_places(memory, &leaf->places);
	ttl_leaf_clear_places(memory, &leaf->retries);
	return false;
}

bool
ttl_collect_is_marked(const TtlLeaf *leaf)
{
	for (int i = 0; i < lengthof(leaf->mark.set); i++)
	{
		if (leaf->mark.set[i])
			return true;
	}
	return false;
}

bool
ttl_collect_nothing_due(TtlStep *step, TimestampTz *due)
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
