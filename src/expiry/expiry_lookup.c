/*-------------------------------------------------------------------------
 *
 * expiry_lookup.c
 *	  The first and the last expiry of a table, counts, ttl.expiring() and
 *	  ttl.next_expiry().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "compat.h"
#include "container/container.h"
#include "container/policy.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry_private.h"
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
#include "utils/tuplestore.h"

TimestampTz
ttl_expiry_earliest(Relation rel, const TtlContainer *container, Snapshot snapshot,
					bool *incomplete)
{
	TimestampTz earliest = DT_NOEND;

	*incomplete = false;

	/* The edge of each index: all of it counts as expired at the end of time. */
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		TtlExpiryWalk *walk = ttl_expiry_walk_begin(rel, container, DT_NOEND, snapshot, NULL);
		TimestampTz when;

		ttl_expiry_walk_only(walk, i);
		if (ttl_expiry_walk_next(walk, &when) != NULL)
			earliest = Min(earliest, when);
		*incomplete = *incomplete || ttl_expiry_walk_is_incomplete(walk);
		ttl_expiry_walk_end(walk);
	}
	return earliest;
}

/* Entries that a search at the edge of an index reads at most, those of dead rows included */
#define EDGE_ENTRIES	10000

void
ttl_expiry_find_first(Relation rel, const TtlContainer *container,
					  const TtlExpiryPosition *from, TimestampTz after, TimestampTz by,
					  TtlExpiryFirst *first)
{
	first->at = DT_NOEND;
	first->held_until = DT_NOBEGIN;
	first->gave_up = false;
	first->incomplete = false;
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		TtlExpiryPosition position = {{0}};
		TtlExpiryWalk *walk;
		TupleTableSlot *slot;
		TimestampTz when;

		/* with a position, the walk reads keys */
		position.set[i] = true;
		position.at[i] = from != NULL && from->set[i] ? from->at[i] : DT_NOBEGIN;
		walk = ttl_expiry_walk_begin(rel, container, by, GetActiveSnapshot(), &position);
		ttl_expiry_walk_only(walk, i);
		ttl_expiry_walk_limit(walk, EDGE_ENTRIES);
		do
			slot = ttl_expiry_walk_next(walk, &when);
		while (slot != NULL && when <= after && after != DT_NOBEGIN);
		if (slot != NULL && when < first->at)
		{
			first->at = when;
			first->held_until = ttl_grace_held_until(container, slot,
													 ttl_execution_reference_time());
		}
		if (slot == NULL && ttl_expiry_walk_gave_up(walk))
		{
			first->gave_up = true;
			if (ttl_expiry_walk_last_key(walk, &when))
				first->at = Min(first->at, i == TTL_INDEX_ITEM ? when :
								ttl_expiry_add(when, Max(container->default_ttl, 1)));
		}
		first->incomplete = first->incomplete || ttl_expiry_walk_is_incomplete(walk);
		ttl_expiry_walk_end(walk);
	}
}

TimestampTz
ttl_expiry_latest(Relation rel, const TtlContainer *container, Snapshot snapshot)
{
	TimestampTz latest = DT_NOBEGIN;
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	for (int i = 0; i < TTL_INDEXES && latest != DT_NOEND; i++)
	{
		bool		incomplete = false;
		Relation	index = ttl_expiry_index_open(rel, i, snapshot, &incomplete);
		ScanKeyData keys[TTL_INDEX_KEYS];

		if (index != NULL)
		{
			/* NULL, or what has no meaning, is in another index, or in none */
			int			nkeys = i == TTL_INDEX_ITEM ?
			ttl_expiry_index_keys(container, i, DT_NOBEGIN, DT_NOEND, keys) : 0;
			IndexScanDesc scan = TtlIndexBeginScan(rel, index, snapshot, nkeys);
			int			entries = 0;
			bool		found = false;

			index_rescan(scan, keys, nkeys, NULL, 0);
			while (!found && index_getnext_tid(scan, BackwardScanDirection) != NULL)
			{
				if (++entries > EDGE_ENTRIES)
					break;
				found = index_fetch_heap(scan, slot);
			}
			if (found)
				latest = Max(latest, ttl_expiry_of_slot(container, slot));
			else if (entries > EDGE_ENTRIES)
				latest = DT_NOEND;
			index_endscan(scan);
			index_close(index, AccessShareLock);
		}
		else if (incomplete)
			latest = DT_NOEND;
	}
	ExecDropSingleTupleTableSlot(slot);
	return latest;
}

/* Index entries that such a count reads at most, for each row that it may find. */
#define ENTRIES_PER_ROW		10

/*
 * Counts the rows of one relation.  The walk steps over what has expired by the other default,
 * too: where rows have a TTL of their own, that is all, unless TTL was off.
 */
static int64
count_made_expired(Relation rel, const TtlContainer *container, int32 other_default,
				   TimestampTz now, int64 max, bool *complete, TimestampTz *earliest)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TtlContainer other = *container;
	TtlExpiryPosition position = {0};
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;
	TimestampTz when;
	int64		count = 0;

	other.default_ttl = other_default;
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		position.set[i] = i == TTL_INDEX_ITEM ? other_default != TTL_OFF : other_default > 0;
		position.at[i] = i == TTL_INDEX_ITEM ? DT_NOEND : ttl_expiry_cutoff(now, other_default) + 1;
	}
	walk = ttl_expiry_walk_begin(rel, container, now, snapshot, &position);
	ttl_expiry_walk_limit(walk, max * ENTRIES_PER_ROW);
	while (count < max && (slot = ttl_expiry_walk_next(walk, &when)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (ttl_expiry_of_slot(&other, slot) <= now)
			continue;
		*earliest = Min(*earliest, when);
		count++;
	}
	if (ttl_expiry_walk_gave_up(walk) || ttl_expiry_walk_is_incomplete(walk))
		*complete = false;
	ttl_expiry_walk_end(walk);
	UnregisterSnapshot(snapshot);
	return count;
}

int64
ttl_expiry_count_made_expired(Oid container, int32 other_default, TimestampTz now,
							  int64 max, bool *complete, TimestampTz *earliest)
{
	int64		count = 0;
	ListCell   *lc;

	*complete = true;
	*earliest = DT_NOEND;
	foreach(lc, ttl_container_leaves(container))
	{
		Oid			relid = lfirst_oid(lc);
		Relation	rel;
		bool		busy;
		TtlContainer member;

		if (count >= max)
			break;
		rel = ttl_container_open_unlocked(relid, &busy);
		/* DDL that waits for the policy may have it */
		if (busy)
			*complete = false;
		if (rel == NULL)
			continue;
		if (ttl_container_lookup(relid, &member))
			count += count_made_expired(rel, &member, other_default, now, max - count,
										complete, earliest);
		relation_close(rel, NoLock);
	}
	return count;
}

int64
ttl_expiry_count_expired(Oid container)
{
	TimestampTz now = ttl_expiry_reading_now();
	int64		count = 0;
	ListCell   *lc;

	foreach(lc, ttl_container_leaves(container))
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);
		TtlContainer c;
		TtlExpiryWalk *walk;

		if (rel == NULL)
			continue;
		if (ttl_container_lookup(RelationGetRelid(rel), &c))
		{
			walk = ttl_expiry_walk_begin(rel, &c, now, GetActiveSnapshot(), NULL);
			while (ttl_expiry_walk_next(walk, NULL) != NULL)
			{
				CHECK_FOR_INTERRUPTS();
				count++;
			}
			if (ttl_expiry_walk_is_incomplete(walk))
				ttl_expiry_report_incomplete(rel);
			ttl_expiry_walk_end(walk);
		}
		table_close(rel, AccessShareLock);
	}
	return count;
}

/*
 * The key of the row as jsonb: the columns of the table's primary key, numbers as
 * such and all else as text.  Output functions of types are the only code that runs.
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

void
ttl_expiry_skip_expired(const TtlContainer *container, TimestampTz now, TtlExpiryPosition *position)
{
	memset(position, 0, sizeof(TtlExpiryPosition));
	for (int i = 0; i < TTL_INDEXES; i++)
		position->set[i] =
			ttl_expiry_index_last_key(container, container->default_ttl, now, i, &position->at[i]);
}

/* Puts the rows of a relation that have not expired at 'now', and will have 'by' then. */
static void
put_expiring(Relation rel, TimestampTz now, TimestampTz by, ReturnSetInfo *result)
{
	const Bitmapset *key = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	TtlContainer container;
	TtlExpiryPosition position;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;
	TimestampTz when;
	MemoryContext context;
	MemoryContext old;

	if (!ttl_container_lookup(RelationGetRelid(rel), &container))
		return;
	ttl_expiry_skip_expired(&container, now, &position);
	walk = ttl_expiry_walk_begin(rel, &container, by, GetActiveSnapshot(), &position);
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

void
ttl_expiry_put_expiring(Oid container, TimestampTz now, TimestampTz by, ReturnSetInfo *result)
{
	ListCell   *lc;

	foreach(lc, ttl_container_leaves(container))
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);

		if (rel == NULL)
			continue;
		put_expiring(rel, now, by, result);
		table_close(rel, AccessShareLock);
	}
}

TimestampTz
ttl_expiry_next(Oid container, TimestampTz now)
{
	TimestampTz next = DT_NOEND;
	ListCell   *lc;

	foreach(lc, ttl_container_leaves(container))
	{
		bool		busy;
		Relation	rel = ttl_container_open_unlocked(lfirst_oid(lc), &busy);
		TtlContainer member;
		TtlExpiryPosition position;
		TtlExpiryFirst first;

		if (busy)
			return DT_NOBEGIN;
		if (rel == NULL)
			continue;
		if (rel->rd_rel->relkind != RELKIND_RELATION ||
			!ttl_container_peek(lfirst_oid(lc), &member) || member.default_ttl == TTL_OFF)
			 /* nothing expires here */ ;
		else if (member.lacks_column)
			next = DT_NOBEGIN;
		else
		{
			ttl_expiry_skip_expired(&member, now, &position);
			ttl_expiry_find_first(rel, &member, &position, now, DT_NOEND - 1, &first);
			next = first.gave_up || first.incomplete ? DT_NOBEGIN : Min(next, first.at);
		}
		relation_close(rel, AccessShareLock);
		if (next == DT_NOBEGIN)
			break;
	}
	return next;
}

PG_FUNCTION_INFO_V1(ttl_next_expiry);

/*
 * ttl.next_expiry(container regclass) -> timestamptz
 *
 * When the next of its live rows expires; NULL if none does, or if its expiry indexes do
 * not say.  Like the statistics it needs no privilege, and waits for no lock.  Error: 42704.
 */
Datum
ttl_next_expiry(PG_FUNCTION_ARGS)
{
	TtlPolicy	policy;
	TimestampTz next;

	ttl_container_require(PG_GETARG_OID(0), &policy);
	next = ttl_expiry_next(PG_GETARG_OID(0), ttl_expiry_reading_now());
	if (TIMESTAMP_NOT_FINITE(next))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(next);
}
