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

/* Numerics may have thousands of digits. */
#define MAX_DIGITS	32

/* A column while rows are read */
typedef struct Surveyed
{
	TtlSurveyedColumn *result;
	AttrNumber	attno;			/* InvalidAttrNumber if there is no such column */
	const TtlType *ttl_type;	/* NULL = timestamps */
	Oid			type;			/* of the values: of a document they are its TTLs */
	TypeCacheEntry *order;
	Datum		least;
	Datum		greatest;
} Surveyed;

static void
begin_column(Surveyed *column, TtlSurveyedColumn *result, Oid relid, AttrNumber attno,
			 const TtlType *ttl_type)
{
	column->result = result;
	column->attno = attno;
	column->ttl_type = ttl_type;
	if (attno == InvalidAttrNumber)
		return;
	column->type = get_atttype(relid, attno);
	if (ttl_type != NULL && ttl_type->is_document)
		column->type = INT4OID;
	column->order = lookup_type_cache(column->type, TYPECACHE_CMP_PROC_FINFO);
}

static bool
precedes(const Surveyed *column, Datum a, Datum b)
{
	return DatumGetInt32(FunctionCall2(&column->order->cmp_proc_finfo, a, b)) < 0;
}

/* The unit that a number looks like, by its magnitude */
static TtlUnit
unit_like(Oid type, Datum value)
{
	double		number = 0;

	if (type == INT4OID)
		number = DatumGetInt32(value);
	else if (type == INT8OID)
		number = DatumGetInt64(value);
	else if (type == NUMERICOID)
		number = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
	if (number >= 1e17)
		return TTL_UNIT_EPOCH_NS;
	if (number >= 1e14)
		return TTL_UNIT_EPOCH_US;
	if (number >= 1e11)
		return TTL_UNIT_EPOCH_MS;
	return number >= 1e9 ? TTL_UNIT_EPOCH : TTL_UNIT_SECONDS;
}

/* Counts a value that is not NULL.  'context' is where the range of values lives. */
static void
add_value(Surveyed *column, Datum value, TimestampTz present, MemoryContext context)
{
	const TtlType *ttl_type = column->ttl_type;
	TtlSurveyedColumn *result = column->result;
	TimestampTz instant = DT_NOBEGIN;
	MemoryContext old;

	if (ttl_type == NULL)
		instant = DatumGetTimestampTz(value);
	else if (ttl_type_is_invalid(ttl_type, value))
		result->invalid++;
	else if (ttl_type_is_deadline(ttl_type))
		(void) ttl_type_instant(ttl_type, value, &instant);
	if (ttl_type != NULL && ttl_type->is_document)
	{
		/* a document without a TTL has no value */
		value = Int32GetDatum(ttl_type->seconds(value));
		if (DatumGetInt32(value) == 0)
			return;
	}
	result->values++;
	result->like[unit_like(column->type, value)]++;
	if (instant > present && !TIMESTAMP_IS_NOEND(instant))
		result->future++;

	old = MemoryContextSwitchTo(context);
	if (result->values == 1 || precedes(column, value, column->least))
		column->least = datumCopy(value, column->order->typbyval, column->order->typlen);
	if (result->values == 1 || precedes(column, column->greatest, value))
		column->greatest = datumCopy(value, column->order->typbyval, column->order->typlen);
	MemoryContextSwitchTo(old);
}

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
end_column(Surveyed *column, bool complete)
{
	TtlSurveyedColumn *result = column->result;

	result->complete = complete;
	if (column->attno == InvalidAttrNumber)
		return;
	result->may_have_values = result->values > 0 || result->invalid > 0 || !complete;
	if (result->values > 0)
	{
		result->least = value_text(column->type, column->least);
		result->greatest = value_text(column->type, column->greatest);
	}
}

/* Reads the rows of a relation, as far as they are wanted; false if there are more. */
static bool
read_relation(Relation rel, const TtlPolicy *policy, Surveyed *columns, int *left)
{
	TtlContainer container;
	AttrNumber	attnos[2];
	TimestampTz present;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = TtlTableBeginScan(rel, snapshot);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "ttl survey",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	bool		complete = true;

	ttl_container_find_columns(RelationGetRelid(rel), policy, &container);
	attnos[0] = container.ts_attno;
	attnos[1] = container.ttl_attno;
	present = ttl_type_round_up(GetCurrentTimestamp(), container.ts_step);
	while (complete && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		complete = (*left)-- > 0;
		for (int i = 0; complete && i < lengthof(attnos); i++)
		{
			bool		isnull = true;
			Datum		value = 0;

			if (columns[i].attno != InvalidAttrNumber)
				value = slot_getattr(slot, attnos[i], &isnull);
			if (!isnull)
				add_value(&columns[i], value, present, old);
			columns[i].result->rows++;
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

bool
ttl_survey_may_have_rows(Oid relid)
{
	return ttl_citus_is_distributed(relid) ? !ttl_citus_is_empty(relid) : ttl_container_has_pages(relid);
}

void
ttl_survey(Oid relid, const TtlPolicy *policy, TtlSurvey *survey)
{
	TtlContainer container;
	Surveyed	columns[2];
	bool		is_distributed = ttl_citus_is_distributed(relid);
	bool		complete;
	int			left = MAX_ROWS;
	ListCell   *lc;

	memset(survey, 0, sizeof(TtlSurvey));
	/* nodes aren't asked for their rows */
	complete = !is_distributed || !ttl_survey_may_have_rows(relid);
	ttl_container_find_columns(relid, policy, &container);
	begin_column(&columns[0], &survey->ts, relid, container.ts_attno, container.ts_type);
	begin_column(&columns[1], &survey->own, relid,
				 container.ttl_type == NULL ? InvalidAttrNumber : container.ttl_attno,
				 container.ttl_type);

	foreach(lc, ttl_container_leaves(relid))
	{
		Relation	rel = table_open(lfirst_oid(lc), AccessShareLock);

		complete = complete &&
			(is_distributed || read_relation(rel, policy, columns, &left));
		table_close(rel, NoLock);
	}
	end_column(&columns[0], complete);
	end_column(&columns[1], complete);
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
					 errdetail("Numbers so small are times long past.")));
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
