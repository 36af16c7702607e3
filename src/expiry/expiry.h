/*-------------------------------------------------------------------------
 *
 * expiry.h
 *	  THE definition of "expired".
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRY_H
#define TTL_EXPIRY_H

#include "container/container.h"
#include "executor/tuptable.h"

/*
 * The instant at which the row in the slot expires; DT_NOEND if it never
 * does.  The slot's columns are numbered as in container->relid.
 */
extern TimestampTz ttl_expiry_of_slot(const TtlContainer *container,
									  TupleTableSlot *slot);

/*
 * The instant at which a row with this _ts and TTL of its own expires, and
 * the latest _ts of rows that live for so many seconds and have expired at
 * 'now'.  Neither overflows.
 */
extern TimestampTz ttl_expiry_add(TimestampTz ts, int32 seconds);
extern TimestampTz ttl_expiry_cutoff(TimestampTz now, int32 seconds);

/*
 * The TTL that counts for an item, with its own taken into account: seconds,
 * TTL_NEVER or TTL_OFF.
 */
static inline int32
ttl_expiry_effective_ttl(int32 default_ttl, bool has_own, int32 own)
{
	if (default_ttl == TTL_OFF || !has_own)
		return default_ttl;
	return own > 0 || own == TTL_NEVER ? own : default_ttl;
}

/* When a row with these values expires */
static inline TimestampTz
ttl_expiry_of(int32 default_ttl, bool has_ts, TimestampTz ts, bool has_own, int32 own)
{
	int32		ttl = ttl_expiry_effective_ttl(default_ttl, has_own, own);

	return ttl <= 0 || !has_ts ? DT_NOEND : ttl_expiry_add(ts, ttl);
}

/* The instant by which reading statements judge: ttl.now, or the clock. */
extern TimestampTz ttl_expiry_reading_now(void);

#endif							/* TTL_EXPIRY_H */
