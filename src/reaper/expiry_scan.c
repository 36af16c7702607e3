/*-------------------------------------------------------------------------
 *
 * expiry_scan.c
 *	  Finds the rows that are to be deleted.
 *
 * One walk along the expiry indexes of a table collects the places of many expired
 * rows.  A walk for each batch would read the dead index entries of all batches before
 * it again.
 *
 * The next walk starts at the mark, the index entry at which the last one stopped.  The
 * mark moves forward only when what was collected has been dealt with in committed
 * transactions.  Rows may come to lie behind it: given a _ts in the past, committed
 * late, locked, or impossible to delete.  So walks are grouped into passes (reap_rel.c): a
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

#include "common/int.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "reaper/expiry_scan.h"
#include "reaper/fk_referenced.h"
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
