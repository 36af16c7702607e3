/*-------------------------------------------------------------------------
 *
 * survey.c
 *	  What the first rows of a table hold in the columns of a policy.
 *
 * A table that becomes a container may have columns with values in them.  Before they
 * decide which rows expire, some are read: to refuse columns that no argument names, and to
 * show what those hold that are named.  Columns are read as they are stored, and their types are PostgreSQL's
 * own, so no code of the table's owner runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_type.h"
#include "citus/citus.h"
#include "compat.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/* Rows that are read at most */
#define MAX_ROWS	10000

/* The range of the values of a column, while rows are read */
typedef struct Range
{
	Oid			type;
	TypeCacheEntry *order;
	bool		is_set;
	Datum		least;
	Datum		greatest;
} Range;

static void
begin_range(Range *range, Oid type)
{
	memset(range, 0, sizeof(Range));
	range->type = type;
	range->order = lookup_type_cache(type, TYPECACHE_CMP_PROC_FINFO);
}

static bool
precedes(Range *range, Datum a, Datum b)
{
	return DatumGetInt32(FunctionCall2(&range->order->cmp_proc_finfo, a, b)) < 0;
}

/* 'context' is where the range lives. */
static void
extend_range(Range *range, Datum value, MemoryContext context)
{
	MemoryContext old = MemoryContextSwitchTo(context);

	if (!range->is_set || precedes(range, value, range->least))
		range->least = datumCopy(value, range->order->typbyval, range->order->typlen);
	if (!range->is_set || precedes(range, range->greatest, value))
		range->greatest = datumCopy(value, range->order->typbyval, range->order->typlen);
	range->is_set = true;
	MemoryContextSwitchTo(old);
}

/* Numerics may have thousands of digits. */
#define MAX_DIGITS	32

static char *
value_text(Oid type, Datum value)
{
	Oid			function;
	bool		is_varlena;
	char	   *text;

	getTypeOutputInfo(type, &function, &is_varlena);
	text = OidOutputFunctionCall(function, value);
	return strlen(text) <= MAX_DIGITS ? text : psprintf("%.*s...", MAX_DIGITS, text);
}

static void
end_range(Range *range, TtlSurveyedColumn *column)
{
	if (!range->is_set)
		return;
	column->least = value_text(range->type, range->least);
	column->greatest = value_text(range->type, range->greatest);
}

/* Notes of what magnitude a number is. */
static void
note_magnitude(TtlSurveyedColumn *column, Oid type, Datum value)
{
	double		number;

	switch (type)
	{
		case INT4OID:
			number = DatumGetInt32(value);
			break;
		case INT8OID:
			number = DatumGetInt64(value);
			break;
		case NUMERICOID:
			number = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
			break;
		default:
			return;
	}
	column->like[number >= 1e17 ? TTL_UNIT_EPOCH_NS :
					   number >= 1e14 ? TTL_UNIT_EPOCH_US :
					   number >= 1e11 ? TTL_UNIT_EPOCH_MS :
					   number >= 1e9 ? TTL_UNIT_EPOCH : TTL_UNIT_SECONDS]++;
}

/* Reads the rows of a relation, as far as they are wanted; false if there are more. */
static bool
read_relation(Relation rel, const TtlPolicy *policy, TtlSurvey *survey, Range *ts_range,
			  Range *own_range, int *left)
{
	TtlContainer container;
	TimestampTz now = GetCurrentTimestamp();
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = TtlTableBeginScan(rel, snapshot);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "ttl survey",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	bool		complete = true;

	ttl_container_find_columns(RelationGetRelid(rel), policy, &container);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		bool		isnull;
		Datum		value;

		CHECK_FOR_INTERRUPTS();
		if ((*left)-- == 0)
		{
			complete = false;
			break;
		}
		survey->ts.rows++;
		survey->own.rows++;
		if (container.ts_attno != InvalidAttrNumber)
		{
			value = slot_getattr(slot, container.ts_attno, &isnull);
			if (!isnull)
			{
				TimestampTz ts = DatumGetTimestampTz(value);

				if (container.ts_type != NULL &&
					!ttl_type_instant(container.ts_type, value, &ts))
				{
					survey->ts.invalid++;
					ts = DT_NOBEGIN;
				}
				survey->ts.values++;
				note_magnitude(&survey->ts, ts_range->type, value);
				if (ts > ttl_type_round_up(now, container.ts_step) && !TIMESTAMP_IS_NOEND(ts))
					survey->ts.future++;
				extend_range(ts_range, value, old);
			}
		}
		if (container.ttl_type != NULL)
		{
			value = slot_getattr(slot, container.ttl_attno, &isnull);
			if (!isnull && container.ttl_type->is_document)
			{
				/* a document without a TTL has no value */
				if (ttl_type_is_invalid(container.ttl_type, value))
					survey->own.invalid++;
				value = Int32GetDatum(container.ttl_type->seconds(value));
				isnull = DatumGetInt32(value) == 0;
			}
			else if (!isnull && ttl_type_is_invalid(container.ttl_type, value))
				survey->own.invalid++;
			if (!isnull)
			{
				survey->own.values++;
				note_magnitude(&survey->own, own_range->type, value);
				extend_range(own_range, value, old);
			}
		}
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return complete;
}

void
ttl_survey(Oid relid, const TtlPolicy *policy, TtlSurvey *survey)
{
	TtlContainer container;
	Range		ts_range;
	Range		own_range;
	bool		complete = !ttl_citus_is_distributed(relid);
	int			left = MAX_ROWS;
	ListCell   *lc;

	memset(survey, 0, sizeof(TtlSurvey));
	ttl_container_find_columns(relid, policy, &container);
	if (container.ts_attno != InvalidAttrNumber)
		begin_range(&ts_range, get_atttype(relid, container.ts_attno));
	if (container.ttl_type != NULL)
		begin_range(&own_range, container.ttl_type->is_document ? INT4OID : container.ttl_type->type);

	foreach(lc, ttl_container_leaves(relid))
	{
		Relation	rel = table_open(lfirst_oid(lc), AccessShareLock);

		complete = complete &&
			read_relation(rel, policy, survey, &ts_range, &own_range, &left);
		table_close(rel, NoLock);
	}
	survey->ts.complete = complete;
	survey->own.complete = complete;
	if (container.ts_attno != InvalidAttrNumber)
	{
		survey->ts.may_have_values = survey->ts.values > 0 || !complete;
		end_range(&ts_range, &survey->ts);
	}
	if (container.ttl_type != NULL)
	{
		survey->own.may_have_values = survey->own.values > 0 || survey->own.invalid > 0 || !complete;
		end_range(&own_range, &survey->own);
	}
}

char *
ttl_survey_text(const TtlSurveyedColumn *column)
{
	return psprintf(column->complete ? _("%d of %d rows have a value, from %s to %s.") :
					_("%d of the first %d rows have a value, from %s to %s."),
					column->values, column->rows, column->least, column->greatest);
}

/* Warns if most numbers in the column look as if they were in another unit. */
static void
warn_of_magnitude(const char *name, const TtlSurveyedColumn *column, TtlUnit unit,
				  const char *argument)
{
	for (int other = 0; other < TTL_UNITS; other++)
	{
		if (other != unit && column->like[other] * 2 > column->values)
			ereport(WARNING,
					(unit == TTL_UNIT_SECONDS ?
					 errmsg("values of column \"%s\" look like times since 1970, and are taken as durations in seconds",
							name) :
					 errmsg("values of column \"%s\" do not look like times in unit \"%s\"",
							name, ttl_type_unit_name(unit)),
					 other != TTL_UNIT_SECONDS ?
					 errhint("If they are, use %s => '%s'.", argument, ttl_type_unit_name(other)) :
					 errhint("Numbers so small are times long past.")));
	}
}

void
ttl_survey_notice_adopted(Oid relid, const TtlPolicy *policy, const TtlSurvey *survey)
{
	const char *table = get_rel_name(relid);

	if (!(policy->created_objects & TTL_CREATED_TS_COLUMN) && survey->ts.values > 0)
	{
		const char *name = NameStr(policy->ts_column);

		ereport(NOTICE,
				(errmsg("column \"%s\" of table \"%s\" is taken as the time of each row's last change",
						name, table),
				 errdetail_internal("%s", ttl_survey_text(&survey->ts))));
		warn_of_magnitude(name, &survey->ts, policy->ts_unit, "ts_unit");
		if (survey->ts.future > 0)
			ereport(WARNING,
					(errmsg("column \"%s\" of table \"%s\" holds times in the future",
							name, table),
					 policy->ts_unit == TTL_UNIT_SECONDS ?
					 errhint("If it says when each row expires, use ts_column => NULL, ttl_column => %s.",
							 quote_literal_cstr(name)) :
					 errhint("If it says when each row expires, use ts_column => NULL, ttl_column => %s, ttl_unit => '%s'.",
							 quote_literal_cstr(name), ttl_type_unit_name(policy->ts_unit))));
	}
	if (!(policy->created_objects & TTL_CREATED_TTL_COLUMN) && survey->own.values > 0)
	{
		const char *name = NameStr(policy->ttl_column);
		TtlContainer container;

		ttl_container_find_columns(relid, policy, &container);
		ereport(NOTICE,
				(ttl_type_is_deadline(container.ttl_type) ?
				 errmsg("column \"%s\" of table \"%s\" is taken as when each row expires",
						name, table) :
				 errmsg("column \"%s\" of table \"%s\" is taken as each row's own TTL",
						name, table),
				 errdetail_internal("%s", ttl_survey_text(&survey->own))));
		warn_of_magnitude(name, &survey->own, policy->ttl_unit, "ttl_unit");
	}
}

void
ttl_survey_notice_invalid(Oid relid, const TtlPolicy *policy, const TtlSurvey *survey)
{
	const char *name = NameStr(policy->ttl_column);
	int			count = survey->own.invalid;
	TtlContainer container;

	if (count == 0)
		return;
	ttl_container_find_columns(relid, policy, &container);
	ereport(NOTICE,
			(!survey->own.complete ?
			 errmsg("at least %d stored rows of container \"%s\" have a value in column \"%s\" that is no TTL",
					count, get_rel_name(relid), name) :
			 errmsg_plural("%d stored row of container \"%s\" has a value in column \"%s\" that is no TTL",
						   "%d stored rows of container \"%s\" have a value in column \"%s\" that is no TTL",
						   count, count, get_rel_name(relid), name),
			 container.ttl_type->is_strict ?
			 errdetail("They never expire.") : errdetail("The default TTL applies to them."),
			 policy->ttl_unit != TTL_UNIT_SECONDS ? 0 :
			 errhint("A TTL is a whole number of seconds from 1 to 2147483647, or -1 for never.")));
}
