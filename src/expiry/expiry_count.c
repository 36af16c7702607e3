/*-------------------------------------------------------------------------
 *
 * expiry_count.c
 *	  How many rows have expired.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "expiry/expiry_index.h"
#include "expiry/expiry_walk.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Index entries that such a count reads at most, for each row that it may find. */
#define ENTRIES_PER_ROW		10

/*
 * Counts the rows of one leaf that are in one index.
 */
static int64
count_in_index(Relation rel, const TtlContainer *container, TtlExpiryIndex index,
			   int32 other_default, TimestampTz now, Snapshot snapshot, int64 max,
			   int64 *entries_left, bool *complete, TimestampTz *earliest)
{
	TtlExpiryPosition mark = {0};
	TtlExpiryWalk *walk;
	TimestampTz when;
	int64		count = 0;

	if (other_default > 0 && index != TTL_INDEX_ITEM)
	{
		mark.set[index] = true;
		mark.at[index] = ttl_expiry_cutoff(now, other_default) + 1;
	}
	walk = ttl_expiry_walk_begin(rel, container, now, snapshot, &mark);
	ttl_expiry_walk_only(walk, index);
	ttl_expiry_walk_limit(walk, *entries_left);
	while (count < max && ttl_expiry_walk_next(walk, &when) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		*earliest = Min(*earliest, when);
		count++;
	}
	*entries_left = ttl_expiry_walk_entries_left(walk);
	if (ttl_expiry_walk_gave_up(walk) || ttl_expiry_walk_is_incomplete(walk))
		*complete = false;
	ttl_expiry_walk_end(walk);
	return count;
}

/*
 * The same of all rows, where indexes tell pages alone.
 */
static int64
count_in_pages(Relation rel, const TtlContainer *container, int32 other_default,
			   TimestampTz now, Snapshot snapshot, int64 max, int64 max_entries,
			   bool *complete, TimestampTz *earliest)
{
	TtlContainer other = *container;
	TtlExpiryWalk *walk = ttl_expiry_walk_begin(rel, container, now, snapshot, NULL);
	TupleTableSlot *slot;
	TimestampTz when;
	int64		count = 0;

	other.default_ttl = other_default;
	ttl_expiry_walk_limit(walk, max_entries);
	while (count < max && (slot = ttl_expiry_walk_next(walk, &when)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (ttl_expiry_of_slot(&other, slot) <= now)
			continue;
		*earliest = Min(*earliest, when);
		count++;
	}
	if (ttl_expiry_walk_gave_up(walk) || ttl_expiry_walk_is_incomplete(walk))
		*complete = false;
	ttl_expiry_walk_end(walk);
	return count;
}

/*
 * Counts the rows of one leaf.  Rows with a TTL of their own expire as before, unless
 * TTL was off.
 */
static int64
count_made_expired(Relation rel, const TtlContainer *container, int32 other_default,
				   TimestampTz now, int64 max, bool *complete, TimestampTz *earliest)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	int64		entries_left = max * ENTRIES_PER_ROW;
	int64		count = 0;

	if (container->indexing == TTL_INDEXING_LAZY)
		count = count_in_pages(rel, container, other_default, now, snapshot, max,
							   entries_left, complete, earliest);
	for (int i = 0; i < TTL_INDEXES && container->indexing != TTL_INDEXING_LAZY &&
		 count < max && entries_left > 0; i++)
	{
		if (i != TTL_INDEX_ITEM || other_default == TTL_OFF)
			count += count_in_index(rel, container, i, other_default, now, snapshot,
									max - count, &entries_left, complete, earliest);
	}
	UnregisterSnapshot(snapshot);
	return count;
}

int64
ttl_expiry_count_made_expired(Oid container, int32 other_default, TimestampTz now,
							  int64 max, bool *complete, TimestampTz *earliest)
{
	int64		count = 0;
	ListCell   *lc;

	*complete = true;
	*earliest = DT_NOEND;
	foreach(lc, ttl_container_leaves(container))
	{
		Oid			relid = lfirst_oid(lc);
		Relation	rel;
		bool		busy;
		TtlContainer leaf;

		if (count >= max)
			break;
		rel = ttl_container_open_unlocked(relid, &busy);
		/* DDL that waits for the policy may have it */
		if (busy)
			*complete = false;
		if (rel == NULL)
			continue;
		if (ttl_container_lookup(relid, &leaf))
			count += count_made_expired(rel, &leaf, other_default, now, max - count,
										complete, earliest);
		relation_close(rel, NoLock);
	}
	return count;
}

int64
ttl_expiry_count_expired(Oid container)
{
	TimestampTz now = ttl_expiry_reading_now();
	int64		count = 0;
	ListCell   *lc;

	foreach(lc, ttl_container_leaves(container))
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);
		TtlContainer c;
		TtlExpiryWalk *walk;

		if (rel == NULL)
			continue;
		if (ttl_container_lookup(RelationGetRelid(rel), &c))
		{
			walk = ttl_expiry_walk_begin(rel, &c, now, GetActiveSnapshot(), NULL);
			while (ttl_expiry_walk_next(walk, NULL) != NULL)
			{
				CHECK_FOR_INTERRUPTS();
				count++;
			}
			if (ttl_expiry_walk_is_incomplete(walk))
				ttl_expiry_report_incomplete(rel);
			ttl_expiry_walk_end(walk);
		}
		table_close(rel, AccessShareLock);
	}
	return count;
}
