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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "container/container.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/* What lies beyond the last timestamp never expires, so an overflow is infinity. */
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

/* Before the first timestamp only a _ts of -infinity has expired. */
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

/* Reads the item from the row in the slot, and applies the container's default. */
TimestampTz
ttl_expiry_of_slot(const TtlContainer *container, TupleTableSlot *slot)
{
	TtlItem		item;

	ttl_item_of_slot(&item, container, slot);
	return ttl_expiry_of(container->policy.default_ttl, &item);
}

/*
 * That of the execution that runs, which has set it when it started; outside of one, ttl.now or the
 * statement's.
 */
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
