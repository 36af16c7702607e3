/*-------------------------------------------------------------------------
 *
 * expiry_walk.c
 *	  Walks over the rows that have expired, and what is read from the edges of the expiry indexes.
 *
 * A walk goes along the expiry indexes, one after the other.  Without an index that it needs it
 * goes on, but says that it is incomplete: nothing found doesn't mean then that nothing has
 * expired.  A walk for TIDs alone fetches no tuples from pages that are visible to all.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry_private.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

struct TtlExpiryWalk
{
	Relation	rel;
	TtlContainer container;
	TimestampTz now;
	Snapshot	snapshot;
	TtlExpiryPosition *position;
	TtlExpiryPosition start;	/* the position when the walk began */
	bool		only_tids;		/* returns slots without tuples, if it can */
	TransactionId next_xid;		/* leaves out rows written from then on, or
								 * InvalidTransactionId */
	int			at;				/* the index that it is in, ... */
	int			end;			/* ... and up to which it goes */
	Relation	index;			/* open while walked, else NULL */
	const TtlType *key_type;	/* of its keys, NULL = timestamptz */
	IndexScanDesc scan;
	TupleTableSlot *slot;
	int64		entries_left;	/* how many more it may look at */
	int64		nskipped;		/* entries before the position */
	bool		incomplete;		/* an index was missing */
	Buffer		map;			/* page of the visibility map */
	Buffer		page;			/* last page that is visible to all, ... */
	BlockNumber block;			/* ... its number, or InvalidBlockNumber */
};

/* Begins a walk.  The relation is open and locked; the snapshot stays valid for the walk. */
TtlExpiryWalk *
ttl_expiry_walk_begin(Relation rel, const TtlContainer *container,
					  TimestampTz now, Snapshot snapshot, TtlExpiryPosition *position)
{
	TtlExpiryWalk *walk = palloc0(sizeof(TtlExpiryWalk));

	walk->rel = rel;
	walk->container = *container;
	walk->now = now;
	walk->snapshot = snapshot;
	walk->position = position;
	if (position != NULL)
		walk->start = *position;
	walk->slot = table_slot_create(rel, NULL);
	walk->entries_left = PG_INT64_MAX;
	walk->end = TTL_INDEXES;
	walk->block = InvalidBlockNumber;
	return walk;
}

/*
 * Makes the walk take the keys of index entries for the expiry of their rows, and return slots
 * with a TID alone for rows that are visible to all.
 */
void
ttl_expiry_walk_only_tids(TtlExpiryWalk *walk)
{
	/* line pointers and the visibility map are a heap's */
	walk->only_tids = walk->rel->rd_tableam == GetHeapamTableAmRoutine();
}

/*
 * Makes the walk leave out rows that this transaction has written, or a later one.  Otherwise a CALL
 * whose triggers insert expired rows would never come to its end.
 */
void
ttl_expiry_walk_before(TtlExpiryWalk *walk, TransactionId next_xid)
{
	walk->next_xid = next_xid;
}

/* Makes the walk give up after so many index entries, those of dead rows included. */
void
ttl_expiry_walk_limit(TtlExpiryWalk *walk, int64 max_entries)
{
	walk->entries_left = max_entries;
}

/*
 * The last key of an expiry index that had expired at 'now' while the default TTL
 * was the given one; false if none can have.
 */
bool
ttl_expiry_index_last_key(const TtlContainer *container, int32 default_ttl,
						  TimestampTz now, TtlExpiryIndex index, TimestampTz *key)
{
	if (default_ttl == TTL_OFF || !ttl_expiry_index_is_due(container, index))
		return false;
	if (index == TTL_INDEX_ITEM)
	{
		*key = ttl_expiry_last_deadline(now);
		return true;
	}
	if (default_ttl == TTL_NEVER)
		return false;
	*key = ttl_expiry_cutoff(now, default_ttl);
	return true;
}

/*
 * True if the planner would use the index for the snapshot, see get_relation_info(): with indcheckxmin it
 * lacks versions of HOT chains that an older snapshot may see.  That is less than is_complete_for() in
 * expired_tids.c demands: an index of the same transaction will do, so that a container can be registered
 * and reaped in one, and a row that a walk misses is still stored, and hidden.
 */
static bool
fits_snapshot(Relation index, Snapshot snapshot)
{
	TransactionId creator;

	if (!index->rd_index->indisvalid)
		return false;
	if (!index->rd_index->indcheckxmin || !IsMVCCSnapshot(snapshot))
		return true;
	creator = HeapTupleHeaderGetXmin(index->rd_indextuple->t_data);
	return TransactionIdIsCurrentTransactionId(creator) ?
		!IsolationUsesXactSnapshot() : !XidInMVCCSnapshot(creator, snapshot);
}

/* NULL if there is none that is usable; *incomplete is set if it is needed. */
static Relation
open_index(Relation rel, TtlExpiryIndex kind, Snapshot snapshot, bool *incomplete)
{
	TtlExpiryIndexes indexes;

	/* REINDEX CONCURRENTLY may replace it before it is locked */
	for (int tries = 0; tries < 2; tries++)
	{
		Relation	index;

		if (!ttl_expiry_indexes(rel, &indexes))
		{
			*incomplete = true;
			return NULL;
		}
		if (!OidIsValid(indexes.usable[kind]))
			break;
		index = try_index_open(indexes.usable[kind], AccessShareLock);
		if (index == NULL)
			continue;
		if (fits_snapshot(index, snapshot))
			return index;
		index_close(index, AccessShareLock);
	}
	if (indexes.needed[kind])
		*incomplete = true;
	return NULL;
}

/* Goes to the next index that there is; false if there is no more. */
static bool
open_next_index(TtlExpiryWalk *walk)
{
	for (; walk->at < walk->end; walk->at++)
	{
		ScanKeyData keys[TTL_INDEX_KEYS];
		TimestampTz after = DT_NOBEGIN;
		TimestampTz last;
		int			nkeys;

		/*
		 * nothing in it can have expired, or all that has is before the
		 * position
		 */
		if (!ttl_expiry_index_last_key(&walk->container, walk->container.policy.default_ttl,
									   walk->now, walk->at, &last) ||
			(walk->position != NULL && walk->position->set[walk->at] &&
			 walk->position->at[walk->at] > last))
			continue;
		walk->index = open_index(walk->rel, walk->at, walk->snapshot,
								 &walk->incomplete);
		if (walk->index == NULL)
			continue;

		walk->key_type = ttl_expiry_index_key_type(&walk->container, walk->at);
		/* what is at the position is looked at again */
		if (walk->position != NULL && walk->position->set[walk->at] &&
			walk->position->at[walk->at] != DT_NOBEGIN)
			after = walk->position->at[walk->at] - 1;
		nkeys = ttl_expiry_index_keys(&walk->container, walk->at, after, last, keys);
		walk->scan = TtlIndexBeginScan(walk->rel, walk->index, walk->snapshot, nkeys);
		walk->scan->xs_want_itup = walk->only_tids || walk->start.set[walk->at];
		index_rescan(walk->scan, keys, nkeys, NULL, 0);
		return true;
	}
	return false;
}

/* The instant that the key of the current index entry stands for; false if it has none. */
static inline bool
entry_instant(TtlExpiryWalk *walk, TimestampTz *instant)
{
	bool		isnull;
	Datum		key = index_getattr(walk->scan->xs_itup, 1, walk->scan->xs_itupdesc, &isnull);

	if (walk->key_type != NULL)
		return !isnull && ttl_type_instant(walk->key_type, key, instant);
	*instant = DatumGetTimestampTz(key);
	return !isnull;
}

/*
 * The tuple that is visible to all and has the TID of the current index entry; NULL if none is
 * known.  If its line pointer is a redirect, as HOT updates leave behind, it has another TID.  The
 * page is visible to all as of the first of its entries in succession; it remains pinned, so that
 * line pointers stay as they are.
 */
static HeapTupleHeader
tuple_visible_to_all(TtlExpiryWalk *walk, const ItemPointerData *tid)
{
	BlockNumber block = ItemPointerGetBlockNumber(tid);
	Page		page;
	ItemId		item;

	if (block != walk->block)
	{
		if (!VM_ALL_VISIBLE(walk->rel, block, &walk->map))
			return NULL;
		walk->page = ReleaseAndReadBuffer(walk->page, walk->rel, block);
		walk->block = block;
	}
	page = BufferGetPage(walk->page);
	item = PageGetItemId(page, ItemPointerGetOffsetNumber(tid));
	return ItemIdIsNormal(item) ? (HeapTupleHeader) PageGetItem(page, item) : NULL;
}

/* True if the row is left out: that of the tuple, or if NULL the one in the slot. */
static bool
is_too_new(const TtlExpiryWalk *walk, HeapTupleHeader tuple)
{
	if (!TransactionIdIsValid(walk->next_xid))
		return false;
	if (tuple == NULL && TTS_IS_BUFFERTUPLE(walk->slot))
		tuple = ((HeapTupleTableSlot *) walk->slot)->tuple->t_data;
	if (tuple == NULL)
		return false;			/* of another access method */
	/* one that is frozen is before all others */
	return TransactionIdFollowsOrEquals(HeapTupleHeaderGetXmin(tuple), walk->next_xid);
}

/*
 * True if the current index entry is not behind the position at which the walk started.
 * Only entries with the position's key need be compared by TID.  Numbers that differ by less
 * than a microsecond are one instant, but not in TID order: some may be taken for
 * earlier entries, and are met by a walk without position.
 */
static bool
is_before_position(TtlExpiryWalk *walk, const ItemPointerData *tid)
{
	TimestampTz instant;

	if (!walk->start.set[walk->at])
		return false;
	if (entry_instant(walk, &instant) && instant == walk->start.at[walk->at])
		return ItemPointerCompare(unconstify(ItemPointerData *, tid),
								  &walk->start.tid[walk->at]) <= 0;
	walk->start.set[walk->at] = false;
	return false;
}

/* Advances the position to an index entry. */
static void
advance(TtlExpiryWalk *walk, TimestampTz instant, const ItemPointerData *tid)
{
	if (walk->position == NULL)
		return;
	walk->position->set[walk->at] = true;
	walk->position->at[walk->at] = instant;
	walk->position->tid[walk->at] = *tid;
}

/* Leaves the index for the next one. */
static void
close_index(TtlExpiryWalk *walk)
{
	index_endscan(walk->scan);
	index_close(walk->index, AccessShareLock);
	walk->index = NULL;
	walk->at++;
}

/* The next expired row, or NULL; *expiry (may be NULL) is when it expired. */
TupleTableSlot *
ttl_expiry_walk_next(TtlExpiryWalk *walk, TimestampTz *expires_at)
{
	while (walk->index != NULL || open_next_index(walk))
	{
		ItemPointer tid;

		while (walk->entries_left > 0 &&
			   (tid = ttl_expiry_index_next(walk->scan)) != NULL)
		{
			TtlItem		item;
			TimestampTz when;
			ItemPointerData root = *tid;
			HeapTupleHeader tuple = NULL;
			bool		by_key;

			walk->entries_left--;
			if (is_before_position(walk, &root))
			{
				walk->nskipped++;
				CHECK_FOR_INTERRUPTS();
				continue;
			}

			/*
			 * the key tells the expiry: a row that all see need not be
			 * fetched
			 */
			by_key = walk->only_tids && entry_instant(walk, &when);
			if (by_key)
				tuple = tuple_visible_to_all(walk, &root);
			if (tuple != NULL)
			{
				ExecClearTuple(walk->slot);
				walk->slot->tts_tid = root;
			}
			else if (!index_fetch_heap(walk->scan, walk->slot))
				continue;
			if (is_too_new(walk, tuple))
				continue;
			if (by_key)
			{
				advance(walk, when, &root);
				return walk->slot;
			}
			ttl_item_of_slot(&item, &walk->container, walk->slot);
			when = ttl_expiry_of(walk->container.policy.default_ttl, &item);
			if (when > walk->now)
				continue;
			advance(walk, walk->at == TTL_INDEX_ITEM ? when : item.ts, &root);
			if (expires_at != NULL)
				*expires_at = when;
			return walk->slot;
		}

		/*
		 * the index stays open, at the entry that ttl_expiry_find_first()
		 * reads
		 */
		if (walk->entries_left == 0)
			return NULL;
		close_index(walk);
	}
	return NULL;
}

/* True if the walk has given up. */
bool
ttl_expiry_walk_gave_up(const TtlExpiryWalk *walk)
{
	return walk->entries_left == 0;
}

/*
 * The number of entries so far that it has read before the position, since they have the same key:
 * an index scan can start at a key, but not at a TID.
 */
int64
ttl_expiry_walk_skipped(const TtlExpiryWalk *walk)
{
	return walk->nskipped;
}

/* True if the walk has left rows out, for want of a usable index.  Known at its end. */
bool
ttl_expiry_walk_is_incomplete(const TtlExpiryWalk *walk)
{
	return walk->incomplete;
}

/* Ends the walk, wherever it is, and frees it. */
void
ttl_expiry_walk_end(TtlExpiryWalk *walk)
{
	if (walk->index != NULL)
		close_index(walk);
	if (BufferIsValid(walk->map))
		ReleaseBuffer(walk->map);
	if (BufferIsValid(walk->page))
		ReleaseBuffer(walk->page);
	ExecDropSingleTupleTableSlot(walk->slot);
	pfree(walk);
}

/*
 * The first expiry of a table, and how many a change makes expired
 */

/* Entries that a search for the first reads at most, those of dead rows included */
#define FIRST_ENTRIES	10000

/*
 * Finds the first row of the relation, from the position (may be NULL) on, that the active snapshot sees
 * and that expires after the one instant (DT_NOBEGIN = at any time) and by the other.
 */
void
ttl_expiry_find_first(Relation rel, const TtlContainer *container,
					  const TtlExpiryPosition *from, TimestampTz after, TimestampTz by,
					  TtlExpiryFirst *first)
{
	first->at = DT_NOEND;
	first->held_until = DT_NOBEGIN;
	first->gave_up = false;
	first->incomplete = false;
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		TtlExpiryPosition position = {{0}};
		TtlExpiryWalk *walk;
		TupleTableSlot *slot;
		TimestampTz when;

		/*
		 * A walk for each index: one over both meets the first row of the
		 * second behind all of the first.  With a position it reads keys.
		 */
		position.set[i] = true;
		position.at[i] = from != NULL && from->set[i] ? from->at[i] : DT_NOBEGIN;
		walk = ttl_expiry_walk_begin(rel, container, by, GetActiveSnapshot(), &position);
		walk->at = i;
		walk->end = i + 1;
		ttl_expiry_walk_limit(walk, FIRST_ENTRIES);
		do
			slot = ttl_expiry_walk_next(walk, &when);
		while (slot != NULL && when <= after && after != DT_NOBEGIN);
		if (slot != NULL && when < first->at)
		{
			first->at = when;
			first->held_until = ttl_grace_held_until(container, slot,
													 ttl_execution_reference_time());
		}
		if (slot == NULL && ttl_expiry_walk_gave_up(walk))
		{
			first->gave_up = true;
			if (entry_instant(walk, &when))
				first->at = Min(first->at, i == TTL_INDEX_ITEM ? when :
								ttl_expiry_add(when, Max(container->policy.default_ttl, 1)));
		}
		first->incomplete = first->incomplete || ttl_expiry_walk_is_incomplete(walk);
		ttl_expiry_walk_end(walk);
	}
}

/* Index entries that such a count reads at most, for each row that it may find. */
#define ENTRIES_PER_ROW		10

/*
 * Counts the rows of one relation.  The walk steps over what has expired by the other default,
 * too: where rows have a TTL of their own, that is all, unless TTL was off.
 */
static int64
count_made_expired(Relation rel, const TtlContainer *container, int32 other_default,
				   TimestampTz now, int64 max, bool *complete, TimestampTz *earliest)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TtlContainer other = *container;
	TtlExpiryPosition position;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;
	TimestampTz when;
	int64		count = 0;

	other.policy.default_ttl = other_default;
	ttl_expiry_skip_expired(&other, now, &position);
	walk = ttl_expiry_walk_begin(rel, container, now, snapshot, &position);
	ttl_expiry_walk_limit(walk, max * ENTRIES_PER_ROW);
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
	UnregisterSnapshot(snapshot);
	return count;
}

/*
 * How many stored rows of the container its default TTL makes expired at 'now' that
 * would not be by the other one.  A relation that is locked is left out, and no more than a
 * limited number of index entries of dead rows is read; *complete is set if
 * all were counted, or 'max' of them.  *earliest is when the first of them has
 * expired, DT_NOEND if there is none.
 */
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
		TtlContainer member;

		if (count >= max)
			break;
		rel = ttl_container_open_if_free(relid, &busy);
		/* DDL that waits for the policy may have it */
		if (busy)
			*complete = false;
		if (rel == NULL)
			continue;
		if (ttl_container_lookup(relid, &member))
			count += count_made_expired(rel, &member, other_default, now, max - count,
										complete, earliest);
		relation_close(rel, NoLock);
	}
	return count;
}

/* Positions a walk behind the index entries that have expired at 'now'. */
void
ttl_expiry_skip_expired(const TtlContainer *container, TimestampTz now, TtlExpiryPosition *position)
{
	memset(position, 0, sizeof(TtlExpiryPosition));
	for (int i = 0; i < TTL_INDEXES; i++)
		position->set[i] =
			ttl_expiry_index_last_key(container, container->policy.default_ttl, now, i, &position->at[i]);
}
