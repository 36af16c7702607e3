/*-------------------------------------------------------------------------
 *
 * expired_tids.c
 *	  The places of rows that may have expired, or the pages.
 *
 * A scan of many rows needn't look at _ts and TTL of each if it knows where the
 * expired ones are, and the expiry indexes know.  All their entries at or before
 * the cutoff are read, and no row is visited: an entry makes its TID a candidate,
 * whoever may see what is there, and what isn't a candidate has not expired.
 *
 * That holds because
 *
 * - every index that the policy needs is there, valid, and was complete when the
 *	 snapshot was taken: what made it so is visible to the snapshot, and so is what
 *	 made one needless;
 * - a row that the snapshot sees had its entries before the snapshot was taken,
 *	 or was written by this transaction since, and keeps them while the snapshot
 *	 is in use;
 * - both columns are in indexes, so all members of a HOT chain have the same
 *	 values, and the entry that stands for them all points to the chain's root.
 *
 * The walk must not be felt by others: it uses SnapshotAny, which takes no
 * predicate locks, and leaves alone an index that somebody has locked.
 *
 * With indexing => 'lazy' pages are candidates rather than rows, those of ranges of
 * which some row expires before the cutoff (summaries.c).  Members of a HOT chain
 * may differ then, but they are all on one page.  A summary may lack versions that
 * somebody has deleted or updated by a transaction that the snapshot doesn't see, and
 * that has committed.  If there may have been one, such versions are expired_tids, too,
 * wherever they are.
 *
 * The effort is bounded by the number of entries.  Entries that are known to be
 * dead are stepped over, a page at a time and without count, where the index is
 * so small that this can't take long; else they count like others.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "compat.h"
#include "expiry/expiry_private.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* So many index entries take as long to read as a page of dead ones to pass. */
#define ENTRIES_PER_PAGE	32

static bool
add(TtlExpiredTids *expired_tids, uint64 place)
{
	if (expired_tids->n == expired_tids->max)
		return false;
	if (expired_tids->n == expired_tids->allocated)
	{
		expired_tids->allocated = Min(Max(expired_tids->allocated * 2, 64), expired_tids->max);
		expired_tids->places = expired_tids->places == NULL ?
			palloc(sizeof(uint64) * expired_tids->allocated) :
			repalloc(expired_tids->places, sizeof(uint64) * expired_tids->allocated);
	}
	expired_tids->places[expired_tids->n++] = place;
	return true;
}

/* Had the catalog's entry been committed when the snapshot was taken? */
static bool
was_there_for(HeapTuple entry, Snapshot snapshot)
{
	TransactionId xmin = HeapTupleHeaderGetXmin(entry->t_data);

	return !TransactionIdIsNormal(xmin) ||
		(!TransactionIdIsCurrentTransactionId(xmin) && !XidInMVCCSnapshot(xmin, snapshot));
}

/* The same of an entry that the cache has by its OID; not if there is none. */
static bool
is_known_for(int cache, Oid oid, Snapshot snapshot)
{
	HeapTuple	entry = OidIsValid(oid) ? SearchSysCache1(cache, ObjectIdGetDatum(oid)) : NULL;
	bool		result;

	if (!HeapTupleIsValid(entry))
		return false;
	result = was_there_for(entry, snapshot);
	ReleaseSysCache(entry);
	return result;
}

/*
 * Was the index complete for all rows that the snapshot sees?  It was when its
 * entry in pg_index was written, be it by CREATE INDEX or by the last step of
 * what is built concurrently.  REINDEX writes the one in pg_class: on a standby,
 * the snapshot may see rows that are dead for the primary, which leaves them out.
 */
static bool
is_complete_for(Relation index, Snapshot snapshot)
{
	return index->rd_index->indisvalid && index->rd_index->indisready &&
		index->rd_index->indislive && was_there_for(index->rd_indextuple, snapshot) &&
		is_known_for(RELOID, RelationGetRelid(index), snapshot);
}

/* Collects from one index. */
static TtlSuspicion
collect_from(TtlExpiredTids *expired_tids, Relation rel, Relation index,
			 const TtlContainer *container, TtlExpiryIndex kind, TimestampTz last,
			 int64 *entries_left)
{
	TtlSuspicion result = TTL_EXPIRED_TIDS_KNOWN;
	ScanKeyData keys[TTL_INDEX_KEYS];
	int			nkeys = ttl_expiry_index_keys(container, kind, DT_NOBEGIN, last, keys);
	IndexScanDesc scan = TtlIndexBeginScan(rel, index, SnapshotAny, nkeys);
	ItemPointer tid;

	scan->ignore_killed_tuples = scan->ignore_killed_tuples &&
		(int64) RelationGetNumberOfBlocks(index) * ENTRIES_PER_PAGE <= *entries_left;
	index_rescan(scan, keys, nkeys, NULL, 0);
	while ((tid = index_getnext_tid(scan, ForwardScanDirection)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (--*entries_left < 0 || !add(expired_tids, ttl_expired_tids_place(tid)))
		{
			result = TTL_EXPIRED_TIDS_TOO_MANY;
			break;
		}
	}
	index_endscan(scan);
	return result;
}

static int
compare_places(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return x < y ? -1 : x > y;
}

/* Collects the pages of ranges that aren't known to have no expired row. */
static TtlSuspicion
collect_pages(TtlExpiredTids *expired_tids, Relation rel, Relation indexes[TTL_INDEXES],
			  int32 default_ttl, TimestampTz now, int64 max_ranges)
{
	TtlSummaries *summaries = ttl_summaries_begin(rel, indexes, default_ttl);
	TtlSuspicion result = TTL_EXPIRED_TIDS_KNOWN;
	TtlRange	range;

	if (ttl_summaries_count(summaries) > max_ranges)
		result = TTL_EXPIRED_TIDS_TOO_MANY;
	while (result == TTL_EXPIRED_TIDS_KNOWN && ttl_summaries_next(summaries, &range))
	{
		uint64		first = (uint64) range.first << 16;

		CHECK_FOR_INTERRUPTS();
		if (range.earliest > now)
			continue;
		if (expired_tids->n > 0 && expired_tids->places[expired_tids->n - 1] == first)
			expired_tids->n--;		/* goes on */
		else if (!add(expired_tids, first))
			result = TTL_EXPIRED_TIDS_TOO_MANY;
		if (!add(expired_tids, (uint64) range.end << 16))
			result = TTL_EXPIRED_TIDS_TOO_MANY;
	}
	ttl_summaries_end(summaries);
	return result;
}

/* So many transactions are looked up. */
#define TRANSACTIONS	100

/*
 * May a transaction have committed that the snapshot doesn't see?  Asked when the
 * summaries have been read: what was left out of one had been committed before.
 */
static bool
others_have_committed(Snapshot snapshot)
{
	TransactionId next = ReadNextTransactionId();
	int			n = 0;

	/* what a standby replays has been left out by another server's horizon */
	if (snapshot->takenDuringRecovery)
		return true;
	for (TransactionId xid = snapshot->xmin; TransactionIdPrecedes(xid, next);)
	{
		if (++n > TRANSACTIONS ||
			(XidInMVCCSnapshot(xid, snapshot) && TransactionIdDidCommit(xid)))
			return true;
		TransactionIdAdvance(xid);
	}
	return false;
}

TtlSuspicion
ttl_expired_tids_collect(Relation rel, int32 default_ttl, TimestampTz now,
					 Snapshot snapshot, int64 max_entries, TtlExpiredTids **expired_tids)
{
	TtlSuspicion result = TTL_EXPIRED_TIDS_KNOWN;
	TtlExpiredTids *found;
	TtlContainer container;
	TtlExpiryIndexes indexes;
	Relation	opened[TTL_INDEXES] = {NULL};

	if (TIMESTAMP_NOT_FINITE(now) || !IsMVCCSnapshot(snapshot) ||
		rel->rd_tableam != GetHeapamTableAmRoutine() ||
		!ttl_container_lookup(RelationGetRelid(rel), &container) ||
		!ttl_expiry_indexes(rel, &indexes))
		return TTL_EXPIRED_TIDS_UNKNOWABLE;

	found = palloc0(sizeof(TtlExpiredTids));
	found->max = (int) Min(max_entries, Min(get_hash_memory_limit(), MaxAllocSize) / sizeof(uint64));

	for (int i = 0; i < TTL_INDEXES && result == TTL_EXPIRED_TIDS_KNOWN; i++)
	{
		TimestampTz last;

		if (!ttl_expiry_index_last_key(&container, default_ttl, now, i, &last))
			continue;

		result = TTL_EXPIRED_TIDS_UNKNOWABLE;
		if (!OidIsValid(indexes.usable[i]))
		{
			/*
			 * no row is a stray since the CHECK on the TTL column was
			 * validated
			 */
			if (i == TTL_INDEX_INVALID_TTL && is_known_for(CONSTROID, indexes.check, snapshot))
				result = TTL_EXPIRED_TIDS_KNOWN;
			continue;
		}
		if (!ConditionalLockRelationOid(indexes.usable[i], AccessShareLock))
			continue;
		opened[i] = try_index_open(indexes.usable[i], NoLock);
		if (opened[i] == NULL)
			UnlockRelationOid(indexes.usable[i], AccessShareLock);
		else if (!is_complete_for(opened[i], snapshot))
			result = TTL_EXPIRED_TIDS_UNKNOWABLE;
		else if (indexes.indexing == TTL_INDEXING_LAZY)
			result = TTL_EXPIRED_TIDS_KNOWN;
		else
			result = collect_from(found, rel, opened[i], &container, i, last, &max_entries);
	}
	if (indexes.indexing == TTL_INDEXING_LAZY && result == TTL_EXPIRED_TIDS_KNOWN)
	{
		found->by_page = true;
		result = collect_pages(found, rel, opened, default_ttl, now, max_entries);
		found->lacks_replaced = others_have_committed(snapshot);
	}
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (opened[i] != NULL)
			index_close(opened[i], AccessShareLock);
	}

	if (result != TTL_EXPIRED_TIDS_KNOWN)
	{
		if (found->places != NULL)
			pfree(found->places);
		pfree(found);
		return result;
	}
	if (found->n > 1 && !found->by_page)
		qsort(found->places, found->n, sizeof(uint64), compare_places);
	*expired_tids = found;
	return result;
}

/* The first place from 'low' on that isn't before the given one */
static int
find_place(const TtlExpiredTids *expired_tids, int low, uint64 place)
{
	int			step = 1;
	int			high;

	/* it is mostly near */
	while (low + step < expired_tids->n && expired_tids->places[low + step] < place)
	{
		low += step;
		step *= 2;
	}
	high = Min(low + step, expired_tids->n);
	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (expired_tids->places[middle] < place)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int64
ttl_expired_tids_count(const TtlExpiredTids *expired_tids)
{
	int64		pages = 0;

	if (!expired_tids->by_page)
		return expired_tids->n;
	for (int i = 0; i < expired_tids->n; i += 2)
		pages += ttl_expired_tids_page(expired_tids->places[i + 1]) -
			ttl_expired_tids_page(expired_tids->places[i]);
	return pages;
}

void
ttl_expired_tids_turn_to(TtlExpiredTids *expired_tids, BlockNumber page)
{
	bool		goes_on = expired_tids->page_is_known && page > expired_tids->page;
	uint64		place = (uint64) page << 16;

	/* how many runs of pages have begun or ended up to this one? */
	if (expired_tids->by_page)
		place = (uint64) (page + UINT64CONST(1)) << 16;
	expired_tids->first = find_place(expired_tids, goes_on ? expired_tids->end : 0, place);
	expired_tids->end = expired_tids->first;
	if (expired_tids->by_page && expired_tids->first % 2 == 1)
		expired_tids->first--;
	while (!expired_tids->by_page && expired_tids->end < expired_tids->n &&
		   ttl_expired_tids_page(expired_tids->places[expired_tids->end]) == page)
		expired_tids->end++;
	expired_tids->page = page;
	expired_tids->page_is_known = true;
}
