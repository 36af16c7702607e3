/*-------------------------------------------------------------------------
 *
 * expired_tids.c
 *	  The TIDs of rows that may have expired.
 *
 * A scan of many rows need not read _ts and TTL of each if the TIDs of the expired ones
 * are at hand, which the expiry indexes contain.  All their entries at or before the
 * cutoff are read, and no row is visited: an entry makes its TID a candidate, whatever is visible
 * there, and a row whose TID is none has not expired.
 *
 * That holds because
 *
 * - every index that the policy needs is there, valid, and was complete when the
 *	 snapshot was taken: what made it so is visible to the snapshot, and so is what
 *	 made one needless;
 * - a row that the snapshot sees had its entries before the snapshot was taken,
 *	 or was written by this transaction since, and keeps them while the snapshot
 *	 is in use;
 * - both columns are in indexes, so all members of a HOT chain have equal
 *	 values, and the entry that stands for them all points to the chain's root.
 *
 * The scan of the index must not be felt by others: it uses SnapshotAny, which takes no
 * predicate locks, and does not wait for the lock of an index.
 *
 * The effort is bounded by the number of entries.  Entries that are known to be
 * dead are stepped over, a page at a time and without count, where the index is
 * so small that this can't take long; else they count like others.
 *
 * Most rows are distinguished from candidates by two sets of bits: of pages, and of hashed TIDs.
 * A scan that stays on a page for several rows has a third, of the page's offset numbers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "compat.h"
#include "expiry/expiry_private.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* So many index entries take as long to read as a page of dead ones to pass. */
#define ENTRIES_PER_PAGE	32

/* Bits for each TID, so that few others are taken for it; bits for pages at most */
#define BITS_PER_TID	64
#define MEMORY_PER_TID	(2 * sizeof(ItemPointerData) + BITS_PER_TID / 8)
#define MAX_PAGE_BITS	(1 << 20)
#define MAX_BITS		(INT64CONST(1) << 31)

/* Makes an empty set of at least so many bits, as far as there may be so many. */
static void
make_bits(TtlBits *set, int64 nbits)
{
	nbits = pg_nextpower2_32((uint32) Min(Max(nbits, 64), MAX_BITS));
	set->mask = (uint32) nbits - 1;
	set->bits = palloc0(nbits / 8);
}

/* Adds a number. */
static inline void
add_bit(TtlBits *set, uint32 number)
{
	number &= set->mask;
	set->bits[number >> 3] |= 1 << (number & 7);
}

/* True if the catalog's entry had been committed when the snapshot was taken. */
static bool
was_there_for(HeapTuple entry, Snapshot snapshot)
{
	TransactionId xmin = HeapTupleHeaderGetXmin(entry->t_data);

	return !TransactionIdIsNormal(xmin) ||
		(!TransactionIdIsCurrentTransactionId(xmin) && !XidInMVCCSnapshot(xmin, snapshot));
}

/* Likewise of the relation's entry in pg_class; false if there is none. */
static bool
is_relation_known_for(Oid relid, Snapshot snapshot)
{
	HeapTuple	entry = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	bool		result;

	if (!HeapTupleIsValid(entry))
		return false;
	result = was_there_for(entry, snapshot);
	ReleaseSysCache(entry);
	return result;
}

/*
 * True if the index was complete for all rows that the snapshot sees.  It was when its
 * entry in pg_index was written, be it by CREATE INDEX or by the last step of
 * what is built concurrently.  REINDEX writes the one in pg_class: on a standby,
 * the snapshot may see rows that are dead for the primary, which leaves them out.
 *
 * Stricter than fits_snapshot() of a walk, because a row that is missing here is shown.
 */
static bool
is_complete_for(Relation index, Snapshot snapshot)
{
	return index->rd_index->indisvalid && index->rd_index->indisready &&
		index->rd_index->indislive && was_there_for(index->rd_indextuple, snapshot) &&
		is_relation_known_for(RelationGetRelid(index), snapshot);
}

/* Adds the TIDs that one index has; false if they are too many. */
static bool
read_index(TtlTids *tids, Relation rel, Relation index, const TtlContainer *container,
		   TtlExpiryIndex kind, TimestampTz last, int64 *entries_left)
{
	int			max_tids = Min(get_hash_memory_limit(), MaxAllocSize) / MEMORY_PER_TID;
	BlockNumber npages = RelationGetNumberOfBlocks(index);
	ScanKeyData keys[TTL_INDEX_KEYS];
	int			nkeys;
	IndexScanDesc scan;
	bool		at_end = false;

	/*
	 * a metapage, and no root: mostly that on items, for rows without a TTL
	 * of their own
	 */
	if (npages <= 1)
		return true;

	nkeys = ttl_expiry_index_keys(container, kind, DT_NOBEGIN, last, keys);
	scan = TtlIndexBeginScan(rel, index, SnapshotAny, nkeys);

	/*
	 * pages of dead entries are stepped over within one call, and can't be
	 * counted
	 */
	scan->ignore_killed_tuples = scan->ignore_killed_tuples &&
		(int64) npages * ENTRIES_PER_PAGE <= *entries_left;
	index_rescan(scan, keys, nkeys, NULL, 0);
	while (!at_end && tids->n < max_tids)
	{
		ItemPointer tid = ttl_expiry_index_next(scan);

		CHECK_FOR_INTERRUPTS();
		at_end = tid == NULL;
		if (at_end || --*entries_left < 0)
			break;
		ttl_tids_append(tids, tid);
	}
	index_endscan(scan);
	return at_end;
}

/* Sorts the TIDs of all indexes, and makes their bits. */
static void
finish_tids(TtlExpiredTids *expired_tids, BlockNumber npages)
{
	TtlTids    *tids = &expired_tids->tids;

	if (tids->n == 0)
		return;
	qsort(tids->tids, tids->n, sizeof(ItemPointerData), ttl_tids_compare);
	make_bits(&expired_tids->pages, Min(npages, MAX_PAGE_BITS));
	make_bits(&expired_tids->hashes, (int64) tids->n * BITS_PER_TID);
	for (int i = 0; i < tids->n; i++)
	{
		add_bit(&expired_tids->pages, ItemPointerGetBlockNumber(&tids->tids[i]));
		add_bit(&expired_tids->hashes, ttl_expired_tids_hash(&tids->tids[i]));
	}
}

/*
 * Looks up in the expiry indexes of a relation all rows, among those that the
 * snapshot sees, that have expired at 'now' while the default TTL is the given one.
 * Reads max_entries index entries at most.  The table is open and
 * locked for reading; the result is allocated in the current memory context.
 */
TtlProbeResult
ttl_expired_tids_probe(Relation rel, int32 default_ttl, TimestampTz now,
					   Snapshot snapshot, int64 max_entries, TtlExpiredTids **expired_tids)
{
	TtlProbeResult result = TTL_PROBE_KNOWN;
	TtlExpiredTids *found;
	TtlContainer container;
	TtlExpiryIndexes indexes;

	/*
	 * ttl.now may be infinite; what is said of HOT chains holds for heaps
	 * alone
	 */
	if (TIMESTAMP_NOT_FINITE(now) || !IsMVCCSnapshot(snapshot) ||
		rel->rd_tableam != GetHeapamTableAmRoutine() ||
		!ttl_container_lookup(RelationGetRelid(rel), &container) ||
		!ttl_expiry_indexes(rel, &indexes))
		return TTL_PROBE_UNKNOWABLE;

	found = palloc0(sizeof(TtlExpiredTids));
	for (int i = 0; i < TTL_INDEXES && result == TTL_PROBE_KNOWN; i++)
	{
		TimestampTz last;
		Relation	index;

		if (!ttl_expiry_index_last_key(&container, default_ttl, now, i, &last))
			continue;

		/* unless the index can be read; then the loop ends */
		result = TTL_PROBE_UNKNOWABLE;
		if (!OidIsValid(indexes.usable[i]) ||
			!ConditionalLockRelationOid(indexes.usable[i], AccessShareLock))
			continue;
		index = try_index_open(indexes.usable[i], NoLock);
		if (index == NULL)
		{
			UnlockRelationOid(indexes.usable[i], AccessShareLock);
			continue;
		}
		if (is_complete_for(index, snapshot))
			result = read_index(&found->tids, rel, index, &container, i, last, &max_entries) ?
				TTL_PROBE_KNOWN : TTL_PROBE_TOO_MANY;
		index_close(index, AccessShareLock);
	}

	if (result == TTL_PROBE_KNOWN)
	{
		finish_tids(found, RelationGetNumberOfBlocks(rel));
		*expired_tids = found;
	}
	else
	{
		if (found->tids.tids != NULL)
			pfree(found->tids.tids);
		pfree(found);
	}
	return result;
}

/* The place of the first TID that is not before this one.  Scans often move on in order. */
static int
find_first(const TtlExpiredTids *expired_tids, const ItemPointerData *tid)
{
	const TtlTids *tids = &expired_tids->tids;
	int			first = 0;
	int			end = tids->n;
	int			middle = expired_tids->next;

	if ((middle == end || ttl_tids_compare(&tids->tids[middle], tid) >= 0) &&
		(middle == 0 || ttl_tids_compare(&tids->tids[middle - 1], tid) < 0))
		return middle;
	while (first < end)
	{
		middle = first + (end - first) / 2;
		if (ttl_tids_compare(&tids->tids[middle], tid) < 0)
			first = middle + 1;
		else
			end = middle;
	}
	return first;
}

/* True if the TID is one of them. */
bool
ttl_expired_tids_contain(TtlExpiredTids *expired_tids, const ItemPointerData *tid)
{
	const TtlTids *tids = &expired_tids->tids;
	int			i = find_first(expired_tids, tid);
	bool		result = i < tids->n && ttl_tids_compare(&tids->tids[i], tid) == 0;

	expired_tids->next = result ? i + 1 : i;
	return result;
}

/*
 * Reads the TIDs of a page that is pinned into is_candidate.  All its rows are among them if one is the
 * root of a HOT chain.  The result stays true while the snapshot is in use.
 */
void
ttl_expired_tids_read_page(TtlExpiredTids *expired_tids, BlockNumber block, Page page)
{
	const TtlTids *tids = &expired_tids->tids;
	ItemPointerData first;
	int			i;

	/*
	 * Without a lock: of a chain that the snapshot sees members of, all is in
	 * place since before it, and the pin keeps pruning away.  What changes
	 * meanwhile belongs to rows that it doesn't see.
	 */
	ItemPointerSet(&first, block, InvalidOffsetNumber);
	memset(expired_tids->is_candidate, false, sizeof(expired_tids->is_candidate));
	for (i = find_first(expired_tids, &first);
		 i < tids->n && ItemPointerGetBlockNumber(&tids->tids[i]) == block; i++)
	{
		OffsetNumber offset = ItemPointerGetOffsetNumber(&tids->tids[i]);
		ItemId		item;

		/* the row has gone since, and its line pointer was removed */
		if (offset > PageGetMaxOffsetNumber(page))
			continue;

		/*
		 * to follow the chain to its members would take longer than to check
		 * all
		 */
		item = PageGetItemId(page, offset);
		if (ItemIdIsRedirected(item) ||
			(ItemIdIsNormal(item) &&
			 HeapTupleHeaderIsHotUpdated((HeapTupleHeader) PageGetItem(page, item))))
			memset(expired_tids->is_candidate, true, sizeof(expired_tids->is_candidate));
		else
			expired_tids->is_candidate[offset] = true;
	}
	expired_tids->next = i;
}
