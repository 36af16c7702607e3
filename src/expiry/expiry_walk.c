/*-------------------------------------------------------------------------
 *
 * expiry_walk.c
 *	  The walk over the rows that have expired.
 *
 * It goes along the expiry indexes, one after the other.  Without an index that it needs a walk goes on, but says that it is
 * incomplete: nothing found doesn't mean then that nothing has expired.  A walk for TIDs
 * alone fetches no tuples from pages that are visible to all.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
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
	TtlExpiryPosition start;		/* the position when the walk began */
	bool		excludes_grace; /* leaves out what grace keeps */
	bool		only_tids;		/* returns slots without tuples, if it can */
	TransactionId next_xid;		/* leaves out rows written from then on, or
								 * InvalidTransactionId */
	int			at;				/* the index that it is in, ... */
	int			end;			/* up to which it goes, ... */
	int			range;			/* ... and which range of it */
	Relation	index;			/* open while walked, else NULL */
	IndexScanDesc scan;
	TupleTableSlot *slot;
	int64		entries_left;	/* how many more it may look at */
	bool		incomplete;		/* was an index missing? */
	Buffer		map;			/* page of the visibility map */
	Buffer		page;			/* last page that is visible to all */
};

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
	return walk;
}

void
ttl_expiry_walk_only(TtlExpiryWalk *walk, TtlExpiryIndex index)
{
	walk->at = index;
	walk->end = index + 1;
}

void
ttl_expiry_walk_exclude(TtlExpiryWalk *walk)
{
	walk->excludes_grace = true;
}

void
ttl_expiry_walk_only_tids(TtlExpiryWalk *walk)
{
	Assert(!walk->excludes_grace);
	walk->only_tids = walk->rel->rd_tableam == GetHeapamTableAmRoutine();
}

void
ttl_expiry_walk_before(TtlExpiryWalk *walk, TransactionId next_xid)
{
	walk->next_xid = next_xid;
}

void
ttl_expiry_walk_limit(TtlExpiryWalk *walk, int64 max_entries)
{
	walk->entries_left = max_entries;
}

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
 * Ranges of an index that are walked one after the other.  If something is
 * left out for grace: what has expired by the former default, too, and what was written, and
 * so has expired, since the change was noticed.  A row with a TTL of its own
 * expires as before, unless TTL was off.
 */
#define RANGES	2

/* The keys of a range, without the first and with the last; false if it is empty. */
static bool
range_keys(const TtlExpiryWalk *walk, TimestampTz *after, TimestampTz *last)
{
	const TtlChange *change = &walk->container.change;
	TimestampTz former_last = DT_NOBEGIN;

	*after = DT_NOBEGIN;
	if (!ttl_expiry_index_last_key(&walk->container, walk->container.default_ttl,
								   walk->now, walk->at, last))
		return false;
	if (!walk->excludes_grace)
		return walk->range == 0;

	if (walk->at == TTL_INDEX_ITEM)
	{
		if (change->former_ttl != TTL_OFF)
			former_last = *last;
	}
	else if (change->former_ttl > 0)
		former_last = ttl_expiry_cutoff(walk->now, change->former_ttl);

	if (walk->range == 0)
		*last = Min(*last, former_last);
	else
		*after = Max(change->noticed_at, former_last);
	return *after < *last;
}

static void
next_range(TtlExpiryWalk *walk)
{
	if (++walk->range == RANGES)
	{
		walk->range = 0;
		walk->at++;
	}
}

/*
 * Does the index hold all rows that the snapshot sees?  CREATE INDEX doesn't
 * mind rows that were updated before it, and an older snapshot sees as they
 * were.
 */
static bool
index_fits(Relation index, Snapshot snapshot)
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

Relation
ttl_expiry_index_open(Relation rel, TtlExpiryIndex kind, Snapshot snapshot, bool *incomplete)
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
		if (index_fits(index, snapshot))
			return index;
		index_close(index, AccessShareLock);
	}
	if (indexes.needed[kind])
		*incomplete = true;
	return NULL;
}

/* Goes to the next range of an index that there is; false if there is no more. */
static bool
open_next_index(TtlExpiryWalk *walk)
{
	for (; walk->at < walk->end; next_range(walk))
	{
		ScanKeyData keys[TTL_INDEX_KEYS];
		TimestampTz after;
		TimestampTz last;
		int			nkeys;

		if (!range_keys(walk, &after, &last) ||
			(walk->position != NULL && walk->position->set[walk->at] &&
			 walk->position->at[walk->at] > last))
			continue;
		walk->index = ttl_expiry_index_open(walk->rel, walk->at, walk->snapshot,
											&walk->incomplete);
		if (walk->index == NULL)
			continue;

		/* what is at the position is looked at again */
		if (walk->position != NULL && walk->position->set[walk->at] &&
			walk->position->at[walk->at] != DT_NOBEGIN)
			after = Max(after, walk->position->at[walk->at] - 1);
		nkeys = ttl_expiry_index_keys(&walk->container, walk->at, after, last, keys);
		walk->scan = TtlIndexBeginScan(walk->rel, walk->index, walk->snapshot, nkeys);
		walk->scan->xs_want_itup = walk->only_tids || walk->start.set[walk->at];
		index_rescan(walk->scan, keys, nkeys, NULL, 0);
		return true;
	}
	return false;
}

/* The instant that the key of the current index entry stands for; false if it has none. */
static bool
entry_instant(TtlExpiryWalk *walk, TimestampTz *instant)
{
	bool		isnull;
	Datum		key = index_getattr(walk->scan->xs_itup, 1, walk->scan->xs_itupdesc, &isnull);

	return !isnull && ttl_expiry_index_instant(&walk->container, walk->at, key, instant);
}

/*
 * True if the current index entry has the TID of a tuple that is visible to all.  If its line
 * pointer is a redirect, as HOT updates leave behind, it has another TID.  The buffer remains
 * pinned, since most often the next entry is of the same page.
 */
static bool
is_visible_to_all(TtlExpiryWalk *walk, const ItemPointerData *tid)
{
	BlockNumber block = ItemPointerGetBlockNumber(tid);

	if (!VM_ALL_VISIBLE(walk->rel, block, &walk->map))
		return false;
	walk->page = ReleaseAndReadBuffer(walk->page, walk->rel, block);
	return ItemIdIsNormal(PageGetItemId(BufferGetPage(walk->page),
										ItemPointerGetOffsetNumber(tid)));
}

/* True if the row in the slot, or with its TID alone on the pinned page, is left out. */
static bool
is_too_new(const TtlExpiryWalk *walk)
{
	HeapTupleHeader tuple;
	TransactionId xmin;

	if (TTS_EMPTY(walk->slot))
	{
		Page		page = BufferGetPage(walk->page);

		tuple = (HeapTupleHeader)
			PageGetItem(page, PageGetItemId(page, ItemPointerGetOffsetNumber(&walk->slot->tts_tid)));
	}
	else if (TTS_IS_BUFFERTUPLE(walk->slot))
		tuple = ((HeapTupleTableSlot *) walk->slot)->tuple->t_data;
	else
		return false;			/* of another access method */
	xmin = HeapTupleHeaderGetXmin(tuple);
	return TransactionIdIsNormal(xmin) && TransactionIdFollowsOrEquals(xmin, walk->next_xid);
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

static void
close_index(TtlExpiryWalk *walk)
{
	index_endscan(walk->scan);
	index_close(walk->index, AccessShareLock);
	walk->index = NULL;
	next_range(walk);
}

TupleTableSlot *
ttl_expiry_walk_next(TtlExpiryWalk *walk, TimestampTz *expires_at)
{
	while (walk->index != NULL || open_next_index(walk))
	{
		ItemPointer tid;

		while (walk->entries_left > 0 &&
			   (tid = index_getnext_tid(walk->scan, ForwardScanDirection)) != NULL)
		{
			TtlItem		item;
			TimestampTz when;
			ItemPointerData root = *tid;
			bool		by_key;

			walk->entries_left--;
			if (is_before_position(walk, &root))
			{
				CHECK_FOR_INTERRUPTS();
				continue;
			}
			by_key = walk->only_tids && entry_instant(walk, &when);
			if (by_key && is_visible_to_all(walk, &root))
			{
				ExecClearTuple(walk->slot);
				walk->slot->tts_tid = root;
			}
			else if (!index_fetch_heap(walk->scan, walk->slot))
				continue;
			if (TransactionIdIsValid(walk->next_xid) && is_too_new(walk))
				continue;
			if (by_key)
			{
				advance(walk, when, &root);
				return walk->slot;
			}
			ttl_item_of_slot(&item, &walk->container, walk->slot);
			when = ttl_expiry_of(walk->container.default_ttl, &item);
			if (when > walk->now)
				continue;
			advance(walk, walk->at == TTL_INDEX_ITEM ? when : item.ts, &root);
			if (walk->excludes_grace &&
				ttl_grace_covers(&walk->container.change, &item, walk->now))
				continue;
			if (expires_at != NULL)
				*expires_at = when;
			return walk->slot;
		}
		if (walk->entries_left == 0)
			return NULL;
		close_index(walk);
	}
	return NULL;
}

bool
ttl_expiry_walk_gave_up(const TtlExpiryWalk *walk)
{
	return walk->entries_left == 0;
}

bool
ttl_expiry_walk_last_key(TtlExpiryWalk *walk, TimestampTz *key)
{
	return walk->index != NULL && walk->scan->xs_itup != NULL && entry_instant(walk, key);
}

bool
ttl_expiry_walk_is_incomplete(const TtlExpiryWalk *walk)
{
	return walk->incomplete;
}

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
