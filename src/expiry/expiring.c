/*-------------------------------------------------------------------------
 *
 * expiring.c
 *	  ttl.expiring(): which rows of a container expire soon.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "container/container.h"
#include "container/policy.h"
#include "expiry/expiry.h"
#include "expiry/expiry_index.h"
#include "expiry/expiry_walk.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * The key of the row as jsonb: the columns of the table's primary key, numbers as
 * such and all else as text.  Types' output functions are nobody's code but theirs.
 */
static Datum
key_of_slot(Relation rel, const Bitmapset *key, TupleTableSlot *slot)
{
	StringInfoData text;
	int			i = -1;

	initStringInfo(&text);
	while ((i = bms_next_member(key, i)) >= 0)
	{
		AttrNumber	attno = i + FirstLowInvalidHeapAttributeNumber;
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), attno - 1);
		bool		isnull;
		Datum		value = slot_getattr(slot, attno, &isnull);
		Oid			output;
		bool		is_varlena;

		getTypeOutputInfo(attribute->atttypid, &output, &is_varlena);
		appendStringInfoString(&text, text.len > 0 ? ", " : "{");
		escape_json(&text, NameStr(attribute->attname));
		appendStringInfoString(&text, ": ");
		if (attribute->atttypid == INT2OID || attribute->atttypid == INT4OID ||
			attribute->atttypid == INT8OID)
			appendStringInfoString(&text, OidOutputFunctionCall(output, value));
		else
			escape_json(&text, OidOutputFunctionCall(output, value));
	}
	appendStringInfoChar(&text, '}');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(text.data));
}

/* Puts the rows of a leaf that have not expired at 'now', and will have 'by' then. */
static void
put_leaf(Relation rel, TimestampTz now, TimestampTz by, ReturnSetInfo *result)
{
	const Bitmapset *key = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	TtlContainer container;
	TtlExpiryPosition mark = {0};
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;
	TimestampTz when;
	MemoryContext context;
	MemoryContext old;

	if (!ttl_container_lookup(RelationGetRelid(rel), &container))
		return;
	/* what has expired already is passed by */
	for (int i = 0; i < TTL_INDEXES; i++)
		mark.set[i] = container.indexing == TTL_INDEXING_CONSISTENT &&
			ttl_expiry_index_last_key(&container, container.default_ttl, now, i, &mark.at[i]);
	walk = ttl_expiry_walk_begin(rel, &container, by, GetActiveSnapshot(), &mark);
	context = AllocSetContextCreate(CurrentMemoryContext, "ttl expiring", ALLOCSET_DEFAULT_SIZES);
	old = CurrentMemoryContext;
	while ((slot = ttl_expiry_walk_next(walk, &when)) != NULL)
	{
		Datum		values[2];
		bool		nulls[2] = {bms_is_empty(key), false};

		CHECK_FOR_INTERRUPTS();
		if (when <= now)
			continue;
		MemoryContextSwitchTo(context);
		values[0] = nulls[0] ? (Datum) 0 : key_of_slot(rel, key, slot);
		values[1] = TimestampTzGetDatum(when);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	if (ttl_expiry_walk_is_incomplete(walk))
		ttl_expiry_report_incomplete(rel);
	ttl_expiry_walk_end(walk);
}

PG_FUNCTION_INFO_V1(ttl_expiring_rows);

/*
 * ttl.expiring_rows(container regclass, within interval) -> (key jsonb, expires_at timestamptz)
 *
 * The rows that are live and will have expired within that time, in no order, with
 * their primary keys; found through the expiry indexes.
 *
 * Errors: 42501, 42704 not a container, 22023, 55000 an index is missing.
 */
Datum
ttl_expiring_rows(PG_FUNCTION_ARGS)
{
	Oid			container = PG_GETARG_OID(0);
	TimestampTz now = ttl_expiry_reading_now();
	TimestampTz by;
	int64		within;
	ListCell   *lc;

	ttl_container_check_owned(container);
	if (!ttl_policy_microseconds(PG_GETARG_INTERVAL_P(1), &within) || within < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("interval must not be negative, nor longer than 292000 years")));
	/* 'infinity' is never */
	if (pg_add_s64_overflow(now, within, &by) || by == DT_NOEND)
		by = DT_NOEND - 1;
	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, ttl_container_leaves(container))
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);

		if (rel == NULL)
			continue;
		put_leaf(rel, now, by, (ReturnSetInfo *) fcinfo->resultinfo);
		table_close(rel, AccessShareLock);
	}
	return (Datum) 0;
}
