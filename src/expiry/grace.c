/*-------------------------------------------------------------------------
 *
 * grace.c
 *	  For how long the worker waits after a change of policy by which rows have expired.
 *
 * What a change of policy has made expired, by a shorter default or because TTL
 * was turned on for rows that were there, is hidden at once.  For ttl.grace the worker deletes
 * nothing of the container, or of the partition that was attached, so that a mistake can be taken
 * back.  Time counts from when the worker noticed the change: that was after the commit, be the
 * transaction long or prepared, and until the commit rows are written under the old policy.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "storage/lmgr.h"
#include "utils/timestamp.h"

/* A policy that goes on changing makes the worker wait for so many times ttl.grace at most. */
#define GRACES	10

/*
 * When the first change has been noticed, if the last is now.  That is the first if the worker has been
 * free to delete for a grace since those before.
 */
static TimestampTz
first_noticed(const TtlChange *change, TimestampTz clock)
{
	if (change->noticed_at > clock &&
		clock - change->began_at >= USECS_PER_SEC * ttl_guc_grace * (GRACES + 1))
		return clock;
	return Min(change->began_at, clock);
}

/*
 * When the grace of the change ends, if the worker has noticed the change, or does so now; DT_NOBEGIN
 * if there is none.
 */
TimestampTz
ttl_grace_end(const TtlChange *change, TimestampTz clock)
{
	int64		grace = ttl_guc_grace * USECS_PER_SEC;

	if (change->noticed_at == 0 || grace == 0)
		return DT_NOBEGIN;
	return Min(Min(change->noticed_at, clock) + grace,
			   first_noticed(change, clock) + GRACES * grace);
}

/* True if the grace of the change lasts at this time: the worker then deletes none of the rows. */
bool
ttl_grace_lasts(const TtlChange *change, TimestampTz clock)
{
	return ttl_grace_end(change, clock) > clock;
}

/*
 * Begins a grace in the policy if rows expire earlier by its default TTL than by the former one, in
 * all tables of the container or in one partition alone (InvalidOid: all).  The caller stores it.
 *
 * Changes that follow each other within ttl.grace are one, of all tables unless they concern the
 * same one.  A change by which rows live longer, or TTL is turned off, leaves the grace as it is,
 * for an earlier one may have been a mistake, too.
 */
void
ttl_grace_begin(TtlPolicy *policy, int32 former_ttl, Oid partition)
{
	TtlChange  *change = &policy->change;

	if (!ttl_policy_is_shorter(policy->default_ttl, former_ttl))
		return;
	if (change->noticed_at == 0 ||
		GetCurrentTimestamp() - change->noticed_at >= ttl_guc_grace * USECS_PER_SEC)
	{
		change->began_at = DT_NOEND;
		change->partition = partition;
	}
	else if (partition != change->partition)
		change->partition = InvalidOid;
	change->noticed_at = DT_NOEND;
}

/*
 * Locks and reads the policy.  Returns false if it has gone, or others have locked it.
 */
static bool
lock_policy(Oid container, TtlPolicy *policy)
{
	/* the table, too: RENAME COLUMN comes for the policy with a lock on it */
	return ConditionalLockRelationOid(container, AccessShareLock) &&
		ttl_policy_lock(container, true, false) && ttl_policy_read(container, policy);
}

/*
 * Stores that the worker notices the last change now.  Does nothing if another transaction is
 * changing the policy: the worker comes again.
 */
void
ttl_grace_notice(Oid container)
{
	TtlPolicy	policy;
	TtlChange  *change = &policy.change;
	TimestampTz now = GetCurrentTimestamp();

	if (!lock_policy(container, &policy) || change->noticed_at == 0)
		return;
	change->began_at = first_noticed(change, now);
	change->noticed_at = now;
	ttl_policy_update(container, &policy);
}

/* Begins a grace without a change of policy, unless one has begun since then. */
void
ttl_grace_begin_at(Oid container, TimestampTz at)
{
	TtlPolicy	policy;
	TtlChange  *change = &policy.change;

	if (!lock_policy(container, &policy) || change->noticed_at >= at)
		return;
	change->began_at = change->noticed_at = at;
	change->partition = InvalidOid;
	ttl_policy_update(container, &policy);
}

/*
 * When the worker may delete the row in the slot, at the latest: its expiry, or the end of
 * what keeps it stored longer; DT_NOEND if reaping is off.
 */
TimestampTz
ttl_grace_held_until(const TtlContainer *container, TupleTableSlot *slot,
					 TimestampTz now)
{
	TimestampTz until = ttl_expiry_of_slot(container, slot);

	if (!container->policy.reaping || pg_add_s64_overflow(until, container->policy.reap_delay, &until))
		return DT_NOEND;
	return Max(until, ttl_grace_end(&container->policy.change, now));
}
