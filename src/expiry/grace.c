/*-------------------------------------------------------------------------
 *
 * grace.c
 *	  What a change of policy has made expired, and is spared.
 *
 * What a change of policy has made expired, by a shorter default or because TTL
 * was turned on for rows that were there, is hidden at once, but the worker spares
 * it for ttl.grace, so that a mistake can be taken back.  In that time it deletes
 * of the rows written before it noticed the change only what would have expired
 * without it; so time counts from then, too.  That was after the commit, be the
 * transaction long or prepared, and until the commit rows are written under the
 * old policy.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "container/policy.h"
#include "expiry/expiry.h"
#include "expiry/grace.h"
#include "guc.h"
#include "utils/timestamp.h"

bool
ttl_grace_lasts(const TtlChange *change, TimestampTz clock)
{
	return change->changed_at != 0 && ttl_guc_grace > 0 &&
		(change->noticed_at == DT_NOEND ||
		 clock - change->noticed_at < ttl_guc_grace * USECS_PER_SEC);
}

/*
 * Several changes within one grace are one, from the longest default TTL to the
 * last, at the time of the last, of all tables unless they concern the same one:
 * what the worker would have spared for any of them is spared.  Nothing is if the
 * last isn't shorter.
 */
void
ttl_grace_begin(TtlPolicy *policy, int32 former_ttl, Oid partition)
{
	if (ttl_grace_lasts(&policy->change, GetCurrentTimestamp()))
	{
		if (ttl_policy_is_shorter(former_ttl, policy->change.former_ttl))
			former_ttl = policy->change.former_ttl;
		if (partition != policy->change.partition)
			partition = InvalidOid;
	}

	memset(&policy->change, 0, sizeof(TtlChange));
	if (ttl_policy_is_shorter(policy->default_ttl, former_ttl))
	{
		policy->change.changed_at = GetCurrentTimestamp();
		policy->change.noticed_at = DT_NOEND;
		policy->change.former_ttl = former_ttl;
		policy->change.partition = partition;
	}
}

bool
ttl_grace_covers_slot(const TtlContainer *container, TupleTableSlot *slot,
					  TimestampTz now)
{
	TtlItem		item;

	ttl_item_of_slot(&item, container, slot);
	return ttl_grace_covers(&container->change, &item, now);
}

TimestampTz
ttl_grace_held_until(const TtlContainer *container, TupleTableSlot *slot,
					 TimestampTz now)
{
	const TtlChange *change = &container->change;
	TimestampTz until = ttl_expiry_of_slot(container, slot);

	if (!container->reaping || pg_add_s64_overflow(until, container->reap_delay, &until))
		return DT_NOEND;
	if (ttl_grace_lasts(change, now) &&
		ttl_grace_covers_slot(container, slot, now - container->reap_delay))
		until = Max(until, (change->noticed_at == DT_NOEND ? now : change->noticed_at) +
					ttl_guc_grace * USECS_PER_SEC);
	return until;
}
