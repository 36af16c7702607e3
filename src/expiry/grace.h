/*-------------------------------------------------------------------------
 *
 * grace.h
 *	  What a change of policy has made expired, and is spared.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_GRACE_H
#define TTL_GRACE_H

#include "container/container.h"
#include "executor/tuptable.h"
#include "expiry/expiry.h"

/*
 * Notes in the policy that another default TTL was in force before, or another
 * way to live as long; 'partition' as in TtlChange.
 */
extern void ttl_grace_begin(TtlPolicy *policy, int32 former_ttl, Oid partition);

/* Is what the change has made expired still spared at this time? */
extern bool ttl_grace_lasts(const TtlChange *change, TimestampTz clock);

/*
 * Is a row, which would not have expired by the former default, spared by who
 * deletes what has expired by 'now'?  Without a _ts it may have been there before.
 */
static inline bool
ttl_grace_covers(const TtlChange *change, const TtlItem *item, TimestampTz now)
{
	return ttl_expiry_of(change->former_ttl, item) > now && item->ts <= change->noticed_at;
}

/*
 * While the container is in grace: is the row in the slot, which has expired, one
 * that is spared?  'now' is the instant by which it is judged.
 */
extern bool ttl_grace_covers_slot(const TtlContainer *container,
								  TupleTableSlot *slot, TimestampTz now);

/*
 * When the worker may delete the row in the slot, at the latest: its expiry, or the end of
 * what keeps it stored longer; DT_NOEND if reaping is off.
 */
extern TimestampTz ttl_grace_held_until(const TtlContainer *container,
										TupleTableSlot *slot, TimestampTz now);

#endif							/* TTL_GRACE_H */
