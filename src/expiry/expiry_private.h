/*-------------------------------------------------------------------------
 *
 * expiry_private.h
 *	  What files of this room alone use of each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRY_PRIVATE_H
#define TTL_EXPIRY_PRIVATE_H

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "expiry/expiry.h"
#include "pgstat.h"
#include "utils/rel.h"

/* True if rows can be in it. */
static inline bool
ttl_expiry_index_is_due(const TtlContainer *container, TtlExpiryIndex index)
{
	return index == TTL_INDEX_DEFAULT ? container->ts_attno != InvalidAttrNumber :
		container->ttl_type != NULL;
}

/*
 * Scan keys for the entries of a btree that expire, or count from, after the one
 * instant (DT_NOBEGIN = from the beginning on) and up to the other; returns how many.
 */
#define TTL_INDEX_KEYS	2

extern int	ttl_expiry_index_keys(const TtlContainer *container, TtlExpiryIndex index,
								  TimestampTz after, TimestampTz last, ScanKey keys);

/*
 * The next entry of a scan of an expiry index, forward: as index_getnext_tid(), which reads all matching entries of a leaf page at once: the others are
 * taken from there.
 */
static inline ItemPointer
ttl_expiry_index_next(IndexScanDesc scan)
{
	BTScanOpaque opaque = scan->opaque;
	BTScanPos	leaf = &opaque->currPos;
	BTScanPosItem *item;

	if (!BTScanPosIsValid(*leaf) || leaf->itemIndex >= leaf->lastItem || scan->kill_prior_tuple)
		return index_getnext_tid(scan, ForwardScanDirection);
	item = &leaf->items[++leaf->itemIndex];
	scan->xs_heaptid = item->heapTid;
	scan->xs_heap_continue = false;
	if (scan->xs_want_itup)
		scan->xs_itup = (IndexTuple) (opaque->currTuples + item->tupleOffset);
	pgstat_count_index_tuples(scan->indexRelation, 1);
	return &scan->xs_heaptid;
}

extern const TtlType *ttl_expiry_index_key_type(const TtlContainer *container,
												TtlExpiryIndex index);
extern bool ttl_expiry_index_last_key(const TtlContainer *container, int32 default_ttl,
									  TimestampTz now, TtlExpiryIndex index,
									  TimestampTz *key);

#endif							/* TTL_EXPIRY_PRIVATE_H */
