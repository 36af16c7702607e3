/*-------------------------------------------------------------------------
 *
 * policy.c
 *	  How the values of a policy are written down, and compared.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "container/container.h"
#include "container/policy.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

bool
ttl_policy_microseconds(const Interval *interval, int64 *result)
{
	int64		years = interval->month / MONTHS_PER_YEAR;
	int64		months = interval->month % MONTHS_PER_YEAR;
	int64		seconds = years * (SECS_PER_DAY / 4) * 1461 +
	(months * DAYS_PER_MONTH + interval->day) * SECS_PER_DAY;

	return !pg_mul_s64_overflow(seconds, USECS_PER_SEC, result) &&
		!pg_add_s64_overflow(*result, interval->time, result);
}

bool
ttl_policy_seconds(const Interval *interval, int32 *seconds)
{
	int64		microseconds;

	if (!ttl_policy_microseconds(interval, &microseconds) ||
		microseconds % USECS_PER_SEC != 0 ||
		microseconds / USECS_PER_SEC < 1 ||
		microseconds / USECS_PER_SEC > PG_INT32_MAX)
		return false;
	*seconds = (int32) (microseconds / USECS_PER_SEC);
	return true;
}

/* How long rows stay by a default TTL, for comparison. */
static int64
length_of(int32 default_ttl)
{
	return default_ttl == TTL_OFF ? PG_INT64_MAX :
		default_ttl == TTL_NEVER ? PG_INT64_MAX - 1 : default_ttl;
}

bool
ttl_policy_is_shorter(int32 default_ttl, int32 than)
{
	return length_of(default_ttl) < length_of(than);
}

char *
ttl_policy_default_ttl_text(int32 default_ttl)
{
	return default_ttl == TTL_OFF ? "NULL" : psprintf("%d", default_ttl);
}

static const char *const indexing_names[] = {
	[TTL_INDEXING_NONE] = "none",
	[TTL_INDEXING_CONSISTENT] = "consistent",
	[TTL_INDEXING_LAZY] = "lazy"
};

const char *
ttl_policy_indexing_name(TtlIndexing indexing)
{
	return indexing_names[indexing];
}

bool
ttl_policy_indexing_parse(const char *name, TtlIndexing *indexing)
{
	for (int i = 0; i < lengthof(indexing_names); i++)
	{
		if (strcmp(name, indexing_names[i]) == 0)
		{
			*indexing = i;
			return true;
		}
	}
	return false;
}

static void note_difference(StringInfo text, bool differs, const char *setting,
							const char *format,...) pg_attribute_printf(4, 5);

static void
note_difference(StringInfo text, bool differs, const char *setting,
				const char *format,...)
{
	int			needed = 1;

	if (!differs)
		return;
	appendStringInfo(text, "%s%s ", text->len > 0 ? ", " : "", setting);
	while (needed > 0)
	{
		va_list		args;

		va_start(args, format);
		needed = appendStringInfoVA(text, format, args);
		va_end(args);
		if (needed > 0)
			enlargeStringInfo(text, needed);
	}
}

static const char *
on_off(bool value)
{
	return value ? "true" : "false";
}

static char *
table_name(Oid relid)
{
	return OidIsValid(relid) ? ttl_container_table_name(relid) : "NULL";
}

static char *
names_text(List *names)
{
	StringInfoData text;
	ListCell   *lc;

	if (names == NIL)
		return "all";
	initStringInfo(&text);
	foreach(lc, names)
		appendStringInfo(&text, "%s%s", text.len > 0 ? "," : "{",
						 quote_identifier(lfirst(lc)));
	appendStringInfoChar(&text, '}');
	return text.data;
}

static char *
interval_text(int64 microseconds)
{
	Interval	interval = {.time = microseconds};

	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&interval)));
}

char *
ttl_policy_differences(const TtlPolicy *old, const TtlPolicy *new)
{
	StringInfoData text;

	initStringInfo(&text);
	note_difference(&text, old->default_ttl != new->default_ttl, "default_ttl",
					"from %s to %s", ttl_policy_default_ttl_text(old->default_ttl),
					ttl_policy_default_ttl_text(new->default_ttl));
	note_difference(&text, strcmp(NameStr(old->ts_column), NameStr(new->ts_column)) != 0,
					"ts_column", "from \"%s\" to \"%s\"", NameStr(old->ts_column),
					NameStr(new->ts_column));
	note_difference(&text, strcmp(NameStr(old->ttl_column), NameStr(new->ttl_column)) != 0,
					"ttl_column", "from \"%s\" to \"%s\"", NameStr(old->ttl_column),
					NameStr(new->ttl_column));
	note_difference(&text, old->indexing != new->indexing, "indexing", "from %s to %s",
					ttl_policy_indexing_name(old->indexing),
					ttl_policy_indexing_name(new->indexing));
	note_difference(&text, old->touch_on_update != new->touch_on_update,
					"touch_on_update", "from %s to %s", on_off(old->touch_on_update),
					on_off(new->touch_on_update));
	note_difference(&text, old->reaping != new->reaping, "reaping", "from %s to %s",
					on_off(old->reaping), on_off(new->reaping));
	note_difference(&text, old->reap_delay != new->reap_delay, "reap_delay",
					"from %s to %s", interval_text(old->reap_delay),
					interval_text(new->reap_delay));
	note_difference(&text, old->archive_to != new->archive_to, "archive_to",
					"from %s to %s", table_name(old->archive_to),
					table_name(new->archive_to));
	note_difference(&text, OidIsValid(new->archive_to) &&
					strcmp(names_text(old->archive_columns), names_text(new->archive_columns)) != 0,
					"archive_columns", "from %s to %s", names_text(old->archive_columns),
					names_text(new->archive_columns));
	note_difference(&text, old->cycle_cost_limit != new->cycle_cost_limit,
					"cycle_cost_limit", "from %d to %d", old->cycle_cost_limit,
					new->cycle_cost_limit);
	note_difference(&text, old->batch_size != new->batch_size, "batch_size",
					"from %d to %d", old->batch_size, new->batch_size);
	note_difference(&text, old->replication_origin != new->replication_origin,
					"replication_origin", "from %s to %s", on_off(old->replication_origin),
					on_off(new->replication_origin));

	return text.data;
}

List *
ttl_policy_names_from_array(ArrayType *array)
{
	List	   *names = NIL;
	Datum	   *elements;
	int			n;

	if (ARR_NDIM(array) > 1 || array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("archive_columns must be a list of names")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &n);
	for (int i = 0; i < n; i++)
		names = lappend(names, TextDatumGetCString(elements[i]));
	return names;
}
