/*-------------------------------------------------------------------------
 *
 * expiry_private.h
 *	  What files of this room alone use of each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRY_PRIVATE_H
#define TTL_EXPIRY_PRIVATE_H

#include "expiry/expiry.h"

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

/* The type of a btree's keys; NULL if they are timestamps */
extern const TtlType *ttl_expiry_index_key_type(const TtlContainer *container,
												TtlExpiryIndex index);

/*
 * The last key of an expiry index that had expired at 'now' while the default TTL
 * was the given one; false if none can have.
 */
extern bool ttl_expiry_index_last_key(const TtlContainer *container, int32 default_ttl,
									  TimestampTz now, TtlExpiryIndex index,
									  TimestampTz *key);

#endif							/* TTL_EXPIRY_PRIVATE_H */
