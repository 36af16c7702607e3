/*-------------------------------------------------------------------------
 *
 * expiry_oldest.c
 *	  The oldest expired row, where expiry indexes tell pages alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "execution.h"
#include "expiry/expiry_walk.h"
#include "expiry/grace.h"
#include "utils/timestamp.h"

/* So many ranges of pages are read. */
#define RANGES_READ		8

/* Those with the oldest rows by the indexes, the oldest first, and the one after them */
typedef struct Oldest
{
	int			n;
	TtlRange	ranges[RANGES_READ + 1];
} Oldest;

static TtlExpiryStep
remember_oldest(void *arg, const TtlRange *range, bool may_have_expired)
{
	Oldest	   *oldest = arg;
	int			i;

	if (!may_have_expired)
		return TTL_WALK_PASS;
	if (oldest->n <= RANGES_READ)
		i = oldest->n++;
	else if (oldest->ranges[RANGES_READ].earliest > range->earliest)
		i = RANGES_READ;
	else
		return TTL_WALK_PASS;
	for (; i > 0 && oldest->ranges[i - 1].earliest > range->earliest; i--)
		oldest->ranges[i] = oldest->ranges[i - 1];
	oldest->ranges[i] = *range;
	return TTL_WALK_PASS;
}

static TtlExpiryStep
stay_in(void *arg, const TtlRange *range, bool may_have_expired)
{
	return range->first < ((TtlRange *) arg)->end ? TTL_WALK_ENTER : TTL_WALK_STOP;
}

TimestampTz
ttl_expiry_oldest_in_pages(Relation rel, const TtlContainer *container, TimestampTz now,
						   Snapshot snapshot, bool *incomplete, TimestampTz *held_until)
{
	TtlExpiryWalk *walk = ttl_expiry_walk_begin(rel, container, now, snapshot, NULL);
	Oldest		oldest = {0};
	TimestampTz found = DT_NOEND;

	ttl_expiry_walk_guide(walk, remember_oldest, &oldest);
	(void) ttl_expiry_walk_next(walk, NULL);
	*incomplete = ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);

	for (int i = 0; i < oldest.n && oldest.ranges[i].earliest < found; i++)
	{
		TtlExpiryPosition mark = {.page = oldest.ranges[i].first};
		TupleTableSlot *slot;
		TimestampTz when;

		if (i == RANGES_READ)
		{
			/* who knows; of what isn't summarized not even how old it may be */
			if (found == DT_NOEND && oldest.ranges[i].earliest != DT_NOBEGIN)
				found = oldest.ranges[i].earliest;
			break;
		}
		walk = ttl_expiry_walk_begin(rel, container, now, snapshot, &mark);
		ttl_expiry_walk_guide(walk, stay_in, &oldest.ranges[i]);
		while ((slot = ttl_expiry_walk_next(walk, &when)) != NULL)
		{
			if (when >= found)
				continue;
			found = when;
			*held_until = ttl_grace_held_until(container, slot, ttl_execution_reference_time());
		}
		ttl_expiry_walk_end(walk);
	}
	return found;
}
