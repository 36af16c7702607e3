/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The fields of a policy.
 *
 * A table of them drives all of it for those that users set: the row of ttl.container, arguments of
 * functions, the messages about changes, and what Citus propagates to shards.  At its end are those
 * that are stored alone.  A field's text is that of the SQL type of its column.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "container/container.h"
#include "container/container_private.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

/*
 * The length of an interval, as EXTRACT(epoch FROM ...) has it: years of 365.25
 * days, months of 30 days, days of 24 hours.  False if it is out of range.
 */
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

/* The length of an interval as a TTL: false unless it is a whole number of seconds from 1 to 2147483647. */
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
	if (default_ttl == TTL_OFF)
		return PG_INT64_MAX;
	return default_ttl == TTL_NEVER ? PG_INT64_MAX - 1 : default_ttl;
}

/* True if rows expire earlier by this default TTL than by the other one. */
bool
ttl_policy_is_shorter(int32 default_ttl, int32 than)
{
	return length_of(default_ttl) < length_of(than);
}

/* A default TTL as people write it. */
char *
ttl_policy_default_ttl_text(int32 default_ttl)
{
	return default_ttl == TTL_OFF ? "NULL" : psprintf("%d", default_ttl);
}

static const char *const indexing_names[] = {
	[TTL_INDEXING_NONE] = "none",
	[TTL_INDEXING_CONSISTENT] = "consistent"
};

/* The indexing policy of that name; false if there is none. */
static bool
parse_indexing(const char *name, TtlIndexing *indexing)
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

#define FIELD(field, type, column, ...) \
	{#field, TTL_SETTING_##type, offsetof(TtlPolicy, field), sizeof(((TtlPolicy *) NULL)->field), \
	 Anum_container_##column, __VA_ARGS__}

#define UNIT_HINT \
	gettext_noop("Use \"epoch\", \"epoch_ms\", \"epoch_us\" or \"epoch_ns\" for times since 1970, else \"seconds\".")

const TtlSetting ttl_settings[] = {
	FIELD(default_ttl, TTL, default_time_to_live, false),
	FIELD(ts_column, NAME, ts_column, true),
	FIELD(ttl_column, NAME, ttl_column, true),
	FIELD(ttl_unit, UNIT, ttl_unit, true, 0, UNIT_HINT),
	FIELD(ts_unit, UNIT, ts_unit, true, 0, UNIT_HINT),
	FIELD(indexing, INDEXING, indexing, true, 0,
		  gettext_noop("Use \"consistent\" or \"none\".")),
	FIELD(touch_on_update, BOOLEAN, touch_on_update, true),
	FIELD(ts_precision, INTERVAL, ts_precision, true, TTL_MAX_PRECISION,
		  gettext_noop("Use an interval from 0, which is exact, to 2147483647 seconds.")),
	FIELD(reaping, BOOLEAN, reaping, false),
	FIELD(reap_delay, INTERVAL, reap_delay, false, PG_INT64_MAX,
		  gettext_noop("Use an interval from 0 to 292000 years.")),
	FIELD(archive_to, TABLE, archive_to, false),
	FIELD(replication_origin, BOOLEAN, replication_origin, false),

	/*
	 * what else is stored, and set by ttl itself; the first of it goes to
	 * Citus's other nodes, too
	 */
	FIELD(created_objects, CREATED, created_objects, false),
	FIELD(change.began_at, INSTANT, grace_began_at, false),
	FIELD(change.noticed_at, INSTANT, grace_noticed_at, false),
	FIELD(change.partition, TABLE, grace_partition, false),
	FIELD(propagated, BOOLEAN, propagated, false)
};

const int	ttl_nsettings = lengthof(ttl_settings) - 5;
const int	ttl_npropagated = lengthof(ttl_settings) - 4;

/* That of that name, or NULL */
const TtlSetting *
ttl_policy_setting(const char *name)
{
	for (int i = 0; i < ttl_npropagated; i++)
	{
		if (strcmp(ttl_settings[i].name, name) == 0)
			return &ttl_settings[i];
	}
	return NULL;
}

/* SQL types of the settings' columns */
static const Oid column_types[] = {
	[TTL_SETTING_TTL] = INT4OID,
	[TTL_SETTING_NAME] = NAMEOID,
	[TTL_SETTING_INDEXING] = TEXTOID,
	[TTL_SETTING_UNIT] = TEXTOID,
	[TTL_SETTING_BOOLEAN] = BOOLOID,
	[TTL_SETTING_INTERVAL] = INTERVALOID,
	[TTL_SETTING_TABLE] = REGCLASSOID,
	[TTL_SETTING_CREATED] = TEXTARRAYOID
};

/* Names of TtlAdded, from the lowest bit up */
static const char *const created_object_names[] = {
	"ts_column", "ts_default", "ttl_column", "default_index", "item_index"
};

/* Sets all settings to what they are by default; there are no columns then. */
void
ttl_policy_init(TtlPolicy *policy)
{
	memset(policy, 0, sizeof(TtlPolicy));
	policy->default_ttl = TTL_OFF;
	policy->indexing = TTL_INDEXING_CONSISTENT;
	policy->touch_on_update = true;
	policy->reaping = true;
}

/* A value of that type as text, as SQL would have it */
static char *
setting_text(TtlSettingType type, Datum value)
{
	Oid			output;
	bool		is_varlena;

	getTypeOutputInfo(column_types[type], &output, &is_varlena);
	return OidOutputFunctionCall(output, value);
}

/* Errors (22023): the setting cannot have the value. */
static void
refuse_value(const TtlSetting *setting, Datum value)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid %s: \"%s\"", setting->name, setting_text(setting->type, value)),
			 setting->hint == NULL ? 0 : errhint("%s", _(setting->hint))));
}

/* The elements of an array of text that are not NULL */
static List *
names_from_array(ArrayType *array)
{
	List	   *names = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (!nulls[i])
			names = lappend(names, TextDatumGetCString(elements[i]));
	}
	return names;
}

/* TtlAdded, ORed, of their names; other names are left out */
static int
created_objects_of(List *names)
{
	int			objects = 0;

	for (int i = 0; i < lengthof(created_object_names); i++)
	{
		ListCell   *lc;

		foreach(lc, names)
		{
			if (strcmp(lfirst(lc), created_object_names[i]) == 0)
				objects |= 1 << i;
		}
	}
	return objects;
}

/* The names of TtlAdded, ORed */
static List *
names_of_created_objects(int objects)
{
	List	   *names = NIL;

	for (int i = 0; i < lengthof(created_object_names); i++)
	{
		if (objects & (1 << i))
			names = lappend(names, (char *) created_object_names[i]);
	}
	return names;
}

/* Sets a field of the policy to the value of its column. */
static void
read_field(TtlPolicy *policy, const TtlSetting *setting, Datum value, bool isnull)
{
	void	   *field = (char *) policy + setting->offset;

	switch (setting->type)
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
			*(TtlIndexing *) field = TTL_INDEXING_NONE;
			if (!isnull && !parse_indexing(TextDatumGetCString(value), field))
				refuse_value(setting, value);
			break;
		case TTL_SETTING_UNIT:
			*(TtlUnit *) field = TTL_UNIT_SECONDS;
			if (!isnull && !ttl_type_unit_parse(TextDatumGetCString(value), field))
				refuse_value(setting, value);
			break;
		case TTL_SETTING_BOOLEAN:
			*(bool *) field = !isnull && DatumGetBool(value);
			break;
		case TTL_SETTING_INTERVAL:
			*(int64 *) field = 0;
			if (!isnull && !ttl_policy_microseconds(DatumGetIntervalP(value), field))
				refuse_value(setting, value);
			break;
		case TTL_SETTING_TABLE:
			*(Oid *) field = isnull ? InvalidOid : DatumGetObjectId(value);
			break;
		case TTL_SETTING_INSTANT:
			*(TimestampTz *) field = isnull ? 0 : DatumGetTimestampTz(value);
			break;
		case TTL_SETTING_CREATED:
			*(int *) field = isnull ? 0 :
				created_objects_of(names_from_array(DatumGetArrayTypeP(value)));
			break;
	}
}

/* The value of a field for its column */
static Datum
write_field(const void *field, TtlSettingType type, bool *isnull)
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
			return CStringGetTextDatum(indexing_names[*(const TtlIndexing *) field]);
		case TTL_SETTING_UNIT:
			*isnull = *(const TtlUnit *) field == TTL_UNIT_SECONDS;
			return CStringGetTextDatum(ttl_type_unit_name(*(const TtlUnit *) field));
		case TTL_SETTING_BOOLEAN:
			return BoolGetDatum(*(const bool *) field);
		case TTL_SETTING_INTERVAL:
			interval = palloc0(sizeof(Interval));
			interval->time = *(const int64 *) field;
			return IntervalPGetDatum(interval);
		case TTL_SETTING_TABLE:
			*isnull = !OidIsValid(*(const Oid *) field);
			return ObjectIdGetDatum(*(const Oid *) field);
		case TTL_SETTING_INSTANT:
			*isnull = *(const TimestampTz *) field == 0;
			return TimestampTzGetDatum(*(const TimestampTz *) field);
		case TTL_SETTING_CREATED:
			return PointerGetDatum(strlist_to_textarray(names_of_created_objects(*(const int *) field)));
	}
	elog(ERROR, "unrecognized type of setting: %d", (int) type);
}

/* Sets the fields of a policy to the columns of ttl.container, but for relid. */
void
ttl_policy_from_values(TtlPolicy *policy, const Datum *values, const bool *nulls)
{
	for (int i = 0; i < lengthof(ttl_settings); i++)
	{
		int			column = ttl_settings[i].attnum - 1;

		read_field(policy, &ttl_settings[i], values[column], nulls[column]);
	}
}

/* The other way round */
void
ttl_policy_to_values(const TtlPolicy *policy, Datum *values, bool *nulls)
{
	for (int i = 0; i < lengthof(ttl_settings); i++)
	{
		int			column = ttl_settings[i].attnum - 1;

		values[column] = write_field((const char *) policy + ttl_settings[i].offset,
									 ttl_settings[i].type, &nulls[column]);
	}
	/* unlike the other interval it is NULL by default */
	nulls[Anum_container_ts_precision - 1] |= policy->ts_precision == 0;
}

/* The value of a setting as text */
char *
ttl_policy_text(const TtlPolicy *policy, const TtlSetting *setting)
{
	bool		isnull;
	Datum		value = write_field((const char *) policy + setting->offset, setting->type, &isnull);

	if (isnull)
		return "NULL";
	if (setting->type == TTL_SETTING_TABLE)
		return ttl_container_table_name(DatumGetObjectId(value));
	return setting_text(setting->type, value);
}

/* Sets a setting to a value of its column's type; errors (22023) if it can't have that one. */
void
ttl_policy_set(TtlPolicy *policy, const TtlSetting *setting, Datum value)
{
	const void *field = (char *) policy + setting->offset;
	int64		microseconds = 0;

	read_field(policy, setting, value, false);
	if (setting->type == TTL_SETTING_INTERVAL)
		microseconds = *(const int64 *) field;
	if (microseconds < 0 || microseconds > setting->greatest ||
		(setting->type == TTL_SETTING_TTL && *(const int32 *) field <= 0 &&
		 *(const int32 *) field != TTL_NEVER))
		refuse_value(setting, value);
}

/* ttl_policy_set() of the value that a text stands for */
void
ttl_policy_set_text(TtlPolicy *policy, const TtlSetting *setting, const char *text)
{
	Oid			input;
	Oid			ioparam;

	getTypeInputInfo(column_types[setting->type], &input, &ioparam);
	ttl_policy_set(policy, setting, OidInputFunctionCall(input, (char *) text, ioparam, -1));
}

/* True if the policies differ in the setting. */
bool
ttl_policy_setting_differs(const TtlPolicy *a, const TtlPolicy *b, const TtlSetting *setting)
{
	/* alike for fields of all types, and what log_change() shows differs then */
	return strcmp(ttl_policy_text(a, setting), ttl_policy_text(b, setting)) != 0;
}

/*
 * What has been changed, setting by setting, as "... from x to y"; empty if nothing
 * has.
 */
char *
ttl_policy_differences(const TtlPolicy *old, const TtlPolicy *new)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < ttl_nsettings; i++)
	{
		const TtlSetting *setting = &ttl_settings[i];

		if (ttl_policy_setting_differs(old, new, setting))
			appendStringInfo(&text, "%s%s from %s to %s", text.len > 0 ? ", " : "", setting->name,
							 ttl_policy_text(old, setting), ttl_policy_text(new, setting));
	}
	return text.data;
}
