/*-------------------------------------------------------------------------
 *
 * policy.c
 *	  The settings of a policy: how they are stored, compared and written down.
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

#define SETTING(field, type, ...) \
	{#field, TTL_SETTING_##type, offsetof(TtlPolicy, field), __VA_ARGS__}

const TtlSetting ttl_settings[] = {
	SETTING(default_ttl, TTL, Anum_container_default_time_to_live, false, true),
	SETTING(ts_column, NAME, Anum_container_ts_column, true, true),
	SETTING(ttl_column, NAME, Anum_container_ttl_column, true, true),
	SETTING(ttl_unit, UNIT, Anum_container_ttl_unit, true, true),
	SETTING(ts_unit, UNIT, Anum_container_ts_unit, true, true),
	SETTING(indexing, INDEXING, Anum_container_indexing, true, true),
	SETTING(touch_on_update, BOOLEAN, Anum_container_touch_on_update, true, true),
	SETTING(reaping, BOOLEAN, Anum_container_reaping, false, true),
	SETTING(reap_delay, INTERVAL, Anum_container_reap_delay, false, true),
	SETTING(archive_to, TABLE, Anum_container_archive_to, false, false),
	SETTING(archive_columns, NAMES, Anum_container_archive_columns, false, false),
	SETTING(cycle_cost_limit, NUMBER, Anum_container_cycle_cost_limit, false, true),
	SETTING(batch_size, NUMBER, Anum_container_batch_size, false, true),
	SETTING(replication_origin, BOOLEAN, Anum_container_replication_origin, false, true)
};

const int	ttl_nsettings = lengthof(ttl_settings);

void
ttl_policy_init(TtlPolicy *policy)
{
	memset(policy, 0, sizeof(TtlPolicy));
	policy->default_ttl = TTL_OFF;
	policy->indexing = TTL_INDEXING_CONSISTENT;
	policy->touch_on_update = true;
	policy->reaping = true;
}

static void
read_setting(void *field, TtlSettingType type, Datum value, bool isnull)
{
	switch (type)
	{
		case TTL_SETTING_TTL:
			*(int32 *) field = isnull ? TTL_OFF : DatumGetInt32(value);
			break;
		case TTL_SETTING_NAME:
			if (isnull)
				memset(field, 0, sizeof(NameData));
			else
				*(NameData *) field = *DatumGetName(value);
			break;
		case TTL_SETTING_INDEXING:
			/* a row that a constraint is about to refuse may lack it */
			*(TtlIndexing *) field = TTL_INDEXING_NONE;
			if (!isnull && !ttl_policy_indexing_parse(TextDatumGetCString(value), field))
				elog(ERROR, "unrecognized indexing policy \"%s\"", TextDatumGetCString(value));
			break;
		case TTL_SETTING_UNIT:
			if (isnull)
				*(TtlUnit *) field = TTL_UNIT_SECONDS;
			else if (!ttl_type_unit_parse(TextDatumGetCString(value), field))
				elog(ERROR, "unrecognized unit \"%s\"", TextDatumGetCString(value));
			break;
		case TTL_SETTING_BOOLEAN:
			*(bool *) field = !isnull && DatumGetBool(value);
			break;
		case TTL_SETTING_NUMBER:
			*(int32 *) field = isnull ? 0 : DatumGetInt32(value);
			break;
		case TTL_SETTING_INTERVAL:
			*(int64 *) field = 0;
			if (!isnull && !ttl_policy_microseconds(DatumGetIntervalP(value), field))
				elog(ERROR, "interval out of range");
			break;
		case TTL_SETTING_TABLE:
			*(Oid *) field = isnull ? InvalidOid : DatumGetObjectId(value);
			break;
		case TTL_SETTING_NAMES:
			*(List **) field = isnull ? NIL :
				ttl_policy_names_from_array(DatumGetArrayTypeP(value));
			break;
	}
}

void
ttl_policy_read(TtlPolicy *policy, const Datum *values, const bool *nulls)
{
	for (int i = 0; i < ttl_nsettings; i++)
	{
		const TtlSetting *setting = &ttl_settings[i];

		read_setting((char *) policy + setting->offset, setting->type,
					 values[setting->attnum - 1], nulls[setting->attnum - 1]);
	}
}

static Datum
write_setting(const void *field, TtlSettingType type, bool *isnull)
{
	Interval   *interval;

	*isnull = false;
	switch (type)
	{
		case TTL_SETTING_TTL:
			*isnull = *(const int32 *) field == TTL_OFF;
			return Int32GetDatum(*(const int32 *) field);
		case TTL_SETTING_NAME:
			*isnull = NameStr(*(const NameData *) field)[0] == '\0';
			return NameGetDatum((const NameData *) field);
		case TTL_SETTING_INDEXING:
			return CStringGetTextDatum(ttl_policy_indexing_name(*(const TtlIndexing *) field));
		case TTL_SETTING_UNIT:
			*isnull = *(const TtlUnit *) field == TTL_UNIT_SECONDS;
			return CStringGetTextDatum(ttl_type_unit_name(*(const TtlUnit *) field));
		case TTL_SETTING_BOOLEAN:
			return BoolGetDatum(*(const bool *) field);
		case TTL_SETTING_NUMBER:
			*isnull = *(const int32 *) field == 0;
			return Int32GetDatum(*(const int32 *) field);
		case TTL_SETTING_INTERVAL:
			interval = palloc0(sizeof(Interval));
			interval->time = *(const int64 *) field;
			return IntervalPGetDatum(interval);
		case TTL_SETTING_TABLE:
			*isnull = !OidIsValid(*(const Oid *) field);
			return ObjectIdGetDatum(*(const Oid *) field);
		case TTL_SETTING_NAMES:
			*isnull = *(List *const *) field == NIL;
			return *isnull ? (Datum) 0 : PointerGetDatum(strlist_to_textarray(*(List *const *) field));
	}
	elog(ERROR, "unrecognized type of setting: %d", (int) type);
}

void
ttl_policy_write(const TtlPolicy *policy, Datum *values, bool *nulls)
{
	for (int i = 0; i < ttl_nsettings; i++)
	{
		const TtlSetting *setting = &ttl_settings[i];

		values[setting->attnum - 1] = write_setting((const char *) policy + setting->offset,
													setting->type, &nulls[setting->attnum - 1]);
	}
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

char *
ttl_policy_text(const TtlPolicy *policy, const TtlSetting *setting)
{
	const void *field = (const char *) policy + setting->offset;

	switch (setting->type)
	{
		case TTL_SETTING_TTL:
			return ttl_policy_default_ttl_text(*(const int32 *) field);
		case TTL_SETTING_NAME:
			return pstrdup(NameStr(*(const NameData *) field));
		case TTL_SETTING_INDEXING:
			return pstrdup(ttl_policy_indexing_name(*(const TtlIndexing *) field));
		case TTL_SETTING_UNIT:
			return pstrdup(ttl_type_unit_name(*(const TtlUnit *) field));
		case TTL_SETTING_BOOLEAN:
			return *(const bool *) field ? "true" : "false";
		case TTL_SETTING_NUMBER:
			return psprintf("%d", *(const int32 *) field);
		case TTL_SETTING_INTERVAL:
			return psprintf(INT64_FORMAT, *(const int64 *) field);
		case TTL_SETTING_TABLE:
			return psprintf("%u", *(const Oid *) field);
		case TTL_SETTING_NAMES:
			return names_text(*(List *const *) field);
	}
	elog(ERROR, "unrecognized type of setting: %d", (int) setting->type);
}

bool
ttl_policy_from_text(TtlPolicy *policy, const TtlSetting *setting, const char *text)
{
	void	   *field = (char *) policy + setting->offset;
	char	   *end;
	int64		number = strtoi64(text, &end, 10);
	bool		is_number = end != text && *end == '\0';

	switch (setting->type)
	{
		case TTL_SETTING_TTL:
			if (strcmp(text, ttl_policy_default_ttl_text(TTL_OFF)) == 0)
			{
				*(int32 *) field = TTL_OFF;
				return true;
			}
			*(int32 *) field = (int32) number;
			return is_number && (number == TTL_NEVER || (number > 0 && number <= PG_INT32_MAX));
		case TTL_SETTING_NAME:
			namestrcpy(field, text);
			return true;
		case TTL_SETTING_INDEXING:
			return ttl_policy_indexing_parse(text, field);
		case TTL_SETTING_UNIT:
			return ttl_type_unit_parse(text, field);
		case TTL_SETTING_BOOLEAN:
			return parse_bool(text, field);
		case TTL_SETTING_NUMBER:
			*(int32 *) field = (int32) number;
			return is_number && number > 0 && number <= PG_INT32_MAX;
		case TTL_SETTING_INTERVAL:
			*(int64 *) field = number;
			return is_number && number >= 0;
		case TTL_SETTING_TABLE:
		case TTL_SETTING_NAMES:
			break;				/* of one node alone */
	}
	return false;
}

bool
ttl_policy_setting_differs(const TtlPolicy *a, const TtlPolicy *b, const TtlSetting *setting)
{
	return strcmp(ttl_policy_text(a, setting), ttl_policy_text(b, setting)) != 0;
}

/* The value of a setting as messages have it */
static char *
shown_text(const TtlPolicy *policy, const TtlSetting *setting)
{
	Interval	interval = {0};
	Oid			relid;

	switch (setting->type)
	{
		case TTL_SETTING_NAME:
			return psprintf("\"%s\"", ttl_policy_text(policy, setting));
		case TTL_SETTING_INTERVAL:
			interval.time = *(const int64 *) ((const char *) policy + setting->offset);
			return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&interval)));
		case TTL_SETTING_TABLE:
			relid = *(const Oid *) ((const char *) policy + setting->offset);
			return OidIsValid(relid) ? ttl_container_table_name(relid) : "NULL";
		default:
			return ttl_policy_text(policy, setting);
	}
}

char *
ttl_policy_differences(const TtlPolicy *old, const TtlPolicy *new)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < ttl_nsettings; i++)
	{
		const TtlSetting *setting = &ttl_settings[i];

		if (ttl_policy_setting_differs(old, new, setting))
			appendStringInfo(&text, "%s%s from %s to %s", text.len > 0 ? ", " : "",
							 setting->name, shown_text(old, setting), shown_text(new, setting));
	}
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
