/*-------------------------------------------------------------------------
 *
 * expiry.c
 *	  THE definition of "expired".
 *
 * An item expires at _ts + TTL, its own or else the container's default.  It
 * is expired from that instant on: equality counts.
 *
 *	  item TTL \ default | off    -1         n
 *	  -------------------+---------------------------
 *	  NULL               | never  never      _ts + n
 *	  -1                 | never  never      never
 *	  m > 0              | never  _ts + m    _ts + m
 *
 * Any other item TTL has no meaning and is taken for NULL, see ttl_type.c.
 * A NULL in the timestamp column never expires, nor does 'infinity'.
 *
 * A TTL column may hold deadlines instead: such an item expires at its own, whatever
 * _ts is, unless TTL is off.
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

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "guc.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/* A policy that goes on changing makes the worker wait for so many times ttl.grace at most. */
#define GRACES	10

TimestampTz
ttl_expiry_add(TimestampTz ts, int32 seconds)
{
	TimestampTz result;

	if (TIMESTAMP_NOT_FINITE(ts))
		return ts;
	if (pg_add_s64_overflow(ts, seconds * USECS_PER_SEC, &result) ||
		result >= END_TIMESTAMP)
		return DT_NOEND;
	return result;
}

TimestampTz
ttl_expiry_cutoff(TimestampTz now, int32 seconds)
{
	TimestampTz result;

	if (TIMESTAMP_IS_NOEND(now))
		return DT_NOEND - 1;	/* 'infinity' itself never expires */
	if (pg_sub_s64_overflow(now, seconds * USECS_PER_SEC, &result))
		return DT_NOBEGIN;
	return result;
}

TimestampTz
ttl_expiry_of_slot(const TtlContainer *container, TupleTableSlot *slot)
{
	TtlItem		item;

	ttl_item_of_slot(&item, container, slot);
	return ttl_expiry_of(container->policy.default_ttl, &item);
}

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

TimestampTz
ttl_grace_end(const TtlChange *change, TimestampTz clock)
{
	int64		grace = ttl_guc_grace * USECS_PER_SEC;

	if (change->noticed_at == 0 || grace == 0)
		return DT_NOBEGIN;
	return Min(Min(change->noticed_at, clock) + grace,
			   first_noticed(change, clock) + GRACES * grace);
}

bool
ttl_grace_lasts(const TtlChange *change, TimestampTz clock)
{
	return ttl_grace_end(change, clock) > clock;
}

/*
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

TimestampTz
ttl_grace_held_until(const TtlContainer *container, TupleTableSlot *slot,
					 TimestampTz now)
{
	TimestampTz until = ttl_expiry_of_slot(container, slot);

	if (!container->policy.reaping || pg_add_s64_overflow(until, container->policy.reap_delay, &until))
		return DT_NOEND;
	return Max(until, ttl_grace_end(&container->policy.change, now));
}

TimestampTz
ttl_expiry_reading_now(void)
{
	TtlExecution *execution = ttl_execution_current();
	TimestampTz now;

	if (execution != NULL)
		return execution->reading_now;
	return ttl_guc_now(&now) ? now : ttl_execution_reference_time();
}

PG_FUNCTION_INFO_V1(ttl_item_expiry);

/*
 * ttl.item_expiry(_ts timestamptz, ttl integer) -> timestamptz
 *
 * What the index over items with a TTL of their own is made of; called for
 * positive TTLs only.  IMMUTABLE, which timestamptz + interval is not.  A _ts
 * without time zone is in UTC.
 */
Datum
ttl_item_expiry(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(ttl_expiry_add(PG_GETARG_TIMESTAMPTZ(0), PG_GETARG_INT32(1)));
}

/*
 * Reads a composite value that is a row of a container.  Errors: 42809 if the value has no named
 * type, 42704 if that is no container's.
 */
static void
read_record(HeapTupleHeader record, TtlContainer *container, TtlItem *item)
{
	Oid			type = HeapTupleHeaderGetTypeId(record);
	Oid			relid = type == RECORDOID ? InvalidOid : get_typ_typrelid(type);
	TupleDesc	desc;
	TupleTableSlot *slot;
	HeapTupleData tuple;

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("argument is not a row of a container"),
				 errhint("Pass a whole row of the table, as in SELECT ttl.expires_at(t) FROM mytable t.")));
	if (!ttl_container_lookup(relid, container))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a container", get_rel_name(relid)),
				 errhint("Pass a whole row of a table that has been registered with ttl.create_container().")));

	desc = lookup_rowtype_tupdesc_copy(type, HeapTupleHeaderGetTypMod(record));
	tuple.t_len = HeapTupleHeaderGetDatumLength(record);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = relid;
	tuple.t_data = record;
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	ExecStoreHeapTuple(&tuple, slot, false);
	ttl_item_of_slot(item, container, slot);
	ExecDropSingleTupleTableSlot(slot);
	FreeTupleDesc(desc);
}

PG_FUNCTION_INFO_V1(ttl_expires_at);

/*
 * ttl.expires_at(item record) -> timestamptz
 *
 * When the row expires, under the present policy; NULL = never.
 */
Datum
ttl_expires_at(PG_FUNCTION_ARGS)
{
	TtlContainer container;
	TtlItem		item;
	TimestampTz expires_at;

	read_record(PG_GETARG_HEAPTUPLEHEADER(0), &container, &item);
	expires_at = ttl_expiry_of(container.policy.default_ttl, &item);
	if (TIMESTAMP_IS_NOEND(expires_at))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(expires_at);
}

PG_FUNCTION_INFO_V1(ttl_time_to_live);

/*
 * ttl.time_to_live(item record) -> integer
 *
 * Whole seconds until the row expires, rounded up, by the statement's clock;
 * 0 if it has, -1 if it never will.  A row that was written since that clock was read,
 * as by INSERT ... RETURNING, has all of its TTL, and not more.  Nor has one whose
 * _ts was rounded up.
 */
Datum
ttl_time_to_live(PG_FUNCTION_ARGS)
{
	TtlContainer container;
	TtlItem		item;
	TimestampTz expires_at;
	TimestampTz now = ttl_expiry_reading_now();
	TimestampTz written;
	TimestampTz given;
	int64		left;

	read_record(PG_GETARG_HEAPTUPLEHEADER(0), &container, &item);
	expires_at = ttl_expiry_of(container.policy.default_ttl, &item);
	if (TIMESTAMP_IS_NOEND(expires_at))
		PG_RETURN_INT32(TTL_NEVER);
	if (expires_at <= now)
		PG_RETURN_INT32(0);

	/*
	 * the least that the clock may have shown when _ts was written, if TTLs
	 * count from there
	 */
	written = item.ts;
	if (!ttl_type_is_deadline(container.ttl_type) && !TIMESTAMP_NOT_FINITE(item.ts))
		written -= container.ts_step - 1;
	/* ... but a deadline may have passed by then */
	if (item.ts > now && written <= GetCurrentTimestamp() && !ttl_guc_now(&given))
		now = Min(item.ts, expires_at);
	if (pg_sub_s64_overflow(expires_at, now, &left))
		PG_RETURN_INT32(PG_INT32_MAX);
	left = left / USECS_PER_SEC + (left % USECS_PER_SEC != 0);
	PG_RETURN_INT32((int32) Min(left, PG_INT32_MAX));
}
