/*-------------------------------------------------------------------------
 *
 * ttl_type.c
 *	  What the values of a TTL column mean, by the column's type.
 *
 *	  integer, smallint		seconds; what has no meaning is refused by the row trigger, and
 *							never expires where it is stored all the same
 *	  bigint, numeric,		seconds; what has no meaning is stored, and the
 *	  double precision,		default TTL applies
 *	  real
 *	  jsonb					the same of the root-level key "ttl" of a document
 *	  timestamptz			the instant at which the row expires, whatever _ts is
 *	  timestamp				the same, taken as UTC
 *	  date					the same, the first instant of that day in UTC
 *	  bigint, numeric		with a unit: the same in seconds, milliseconds,
 *							microseconds or nanoseconds since 1970.  What is no
 *							instant, NaN for one, has no meaning
 *	  integer				with the unit of seconds: the same
 *
 * Seconds are whole numbers from 1 to 2147483647, or -1 for never: 20, 20.0 and
 * 20::bigint, but not 20.5, 0, -7, NaN, or the JSON values "20" and true.  NULL is
 * not a value.  'infinity' as a deadline is never.
 *
 * A timestamp column may be such a number or a date, too.
 *
 * ttl.item_ttl() and ttl.instant() say the same to the expiry indexes of columns
 * that may hold values without a meaning.  They give an error for no value.
 *
 * A number of a deadline is an instant by a function that rises with it: a fraction of
 * a microsecond is rounded up.  So a btree on the column is in the order of instants,
 * and a cutoff is looked for by the last number that is no later.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/heaptoast.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "container/ttl_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

/* What has no meaning counts as no TTL, in this type and in those below. */
static int32
seconds_of_int8(Datum value)
{
	int64		seconds = DatumGetInt64(value);

	return (seconds > 0 && seconds <= PG_INT32_MAX) || seconds == TTL_NEVER ? (int32) seconds : 0;
}

/* What is refused, and was there before, never expires. */
static int32
seconds_of_int4(Datum value)
{
	return DatumGetInt32(value) > 0 ? DatumGetInt32(value) : TTL_NEVER;
}

/* The same */
static int32
seconds_of_int2(Datum value)
{
	return seconds_of_int4(Int32GetDatum(DatumGetInt16(value)));
}

/* The seconds of either type of floating point; a fraction of one has no meaning. */
static int32
seconds_of_double(double seconds)
{
	return (seconds >= 1 && seconds <= PG_INT32_MAX && seconds == floor(seconds)) ||
		seconds == TTL_NEVER ? (int32) seconds : 0;
}

/* double precision */
static int32
seconds_of_float8(Datum value)
{
	return seconds_of_double(DatumGetFloat8(value));
}

/* real */
static int32
seconds_of_float4(Datum value)
{
	return seconds_of_double(DatumGetFloat4(value));
}

/* Compares with an integer; NaN is greater than all. */
static int
compare(Numeric numeric, int32 with)
{
	Numeric		other = int64_to_numeric(with);
	int			result = DatumGetInt32(DirectFunctionCall2(numeric_cmp, NumericGetDatum(numeric),
														   NumericGetDatum(other)));

	pfree(other);
	return result;
}

/* The value may be compressed; leaves nothing behind, for it is called for each row. */
static int32
seconds_of_numeric(Datum value)
{
	Numeric		numeric = DatumGetNumeric(value);
	int32		seconds = 0;

	if (compare(numeric, TTL_NEVER) == 0)
		seconds = TTL_NEVER;
	else if (compare(numeric, 1) >= 0 && compare(numeric, PG_INT32_MAX) <= 0)
	{
		seconds = DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(numeric)));
		/* it was rounded */
		if (compare(numeric, seconds) != 0)
			seconds = 0;
	}
	if ((Pointer) numeric != DatumGetPointer(value))
		pfree(numeric);
	return seconds;
}

/* The root-level "ttl" of a document; false if it has none that is a number. */
static bool
find_ttl(Jsonb *document, JsonbValue *ttl)
{
	return JB_ROOT_IS_OBJECT(document) &&
		getKeyJsonValueFromContainer(&document->root, "ttl", 3, ttl) != NULL &&
		ttl->type == jbvNumeric;
}

/*
 * How much of a large document is read at first: of what is compressed to so much one
 * chunk.  The names of an object's keys come first, and "ttl" is short, so its value
 * is before most others.
 */
#define HEAD_SIZE	(TOAST_MAX_CHUNK_SIZE * 8 / 9 - 16)

/*
 * The seconds of a document of which only the head is at hand.  Returns false if the head is
 * not enough.
 */
static bool
read_head(Jsonb *head, int32 *seconds)
{
	const char *end = (char *) head + VARSIZE(head);
	uint32		nkeys;
	const char *keys;
	JsonbValue	ttl;

	*seconds = 0;
	if (VARSIZE(head) < sizeof(Jsonb))
		return false;
	if (!JB_ROOT_IS_OBJECT(head))
		return true;
	nkeys = JB_ROOT_COUNT(head);
	keys = (char *) &head->root.children[nkeys * 2];
	if (keys > end || keys + getJsonbOffset(&head->root, nkeys) > end)
		return false;
	if (!find_ttl(head, &ttl))
		return true;
	if ((char *) ttl.val.numeric + VARHDRSZ > end ||
		(char *) ttl.val.numeric + VARSIZE_ANY(ttl.val.numeric) > end)
		return false;
	*seconds = seconds_of_numeric(NumericGetDatum(ttl.val.numeric));
	return true;
}

/* The "ttl" of a document.  Most often the head of a large one is enough, and the rest is not read. */
static int32
seconds_of_jsonb(Datum value)
{
	Jsonb	   *document;
	JsonbValue	ttl;
	int32		seconds = 0;

	if (VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(value)) ||
		VARATT_IS_COMPRESSED(DatumGetPointer(value)))
	{
		Jsonb	   *head = (Jsonb *) PG_DETOAST_DATUM_SLICE(value, 0, HEAD_SIZE);
		bool		is_known = read_head(head, &seconds);

		pfree(head);
		if (is_known)
			return seconds;
	}

	document = DatumGetJsonbP(value);
	if (find_ttl(document, &ttl))
		seconds = seconds_of_numeric(NumericGetDatum(ttl.val.numeric));
	if ((Pointer) document != DatumGetPointer(value))
		pfree(document);
	return seconds;
}

/*
 * Numbers that are instants
 */

static const struct
{
	const char *name;
	int64		per_second;
	int			places;			/* decimal places that are a microsecond; -3 =
								 * thousands */
}			units[TTL_UNITS] = {
	[TTL_UNIT_SECONDS] = {"seconds", 1, 6},
	[TTL_UNIT_EPOCH] = {"epoch", 1, 6},
	[TTL_UNIT_EPOCH_MS] = {"epoch_ms", 1000, 3},
	[TTL_UNIT_EPOCH_US] = {"epoch_us", USECS_PER_SEC, 0},
	[TTL_UNIT_EPOCH_NS] = {"epoch_ns", 1000 * USECS_PER_SEC, -3}
};

/* The name of a unit, as settings have it */
const char *
ttl_type_unit_name(TtlUnit unit)
{
	return units[unit].name;
}

/* False if there is no unit of that name. */
bool
ttl_type_unit_parse(const char *name, TtlUnit *unit)
{
	for (int i = 0; i < TTL_UNITS; i++)
	{
		if (strcmp(name, units[i].name) == 0)
		{
			*unit = i;
			return true;
		}
	}
	return false;
}

/* Microseconds since 1970 as an instant; false if it is out of range */
static bool
instant_of_microseconds(int64 microseconds, TimestampTz *result)
{
	if (microseconds < TTL_FIRST_INSTANT + TTL_EPOCH_SHIFT)
		return false;
	*result = microseconds - TTL_EPOCH_SHIFT;
	return true;
}

/* The other way round, of one that may be out of range by no more than a microsecond */
static int64
microseconds_of_instant(TimestampTz instant)
{
	return Min(Max(instant, TTL_FIRST_INSTANT - 1), TTL_LAST_INSTANT) + TTL_EPOCH_SHIFT;
}

/* Division that rounds down, also what is negative */
static int64
divide_down(int64 value, int64 by)
{
	return value / by - (value % by < 0 ? 1 : 0);
}

/* A number in that unit; nanoseconds are rounded up, so that nothing expires early. */
static bool
instant_of_int8(Datum value, TtlUnit unit, TimestampTz *result)
{
	int64		number = DatumGetInt64(value);
	int64		microseconds;

	if (unit == TTL_UNIT_EPOCH_NS)
	{
		/* so that none is below the least that last_int8() returns */
		if (number == PG_INT64_MIN)
			return false;
		microseconds = -divide_down(-number, 1000);
	}
	else if (pg_mul_s64_overflow(number, USECS_PER_SEC / units[unit].per_second, &microseconds))
		return false;
	return instant_of_microseconds(microseconds, result);
}

/* The last number that instant_of_int8() makes no later than the instant */
static Datum
last_int8(TimestampTz instant, TtlUnit unit)
{
	int64		microseconds = microseconds_of_instant(instant);
	int64		number;

	if (unit != TTL_UNIT_EPOCH_NS)
		number = divide_down(microseconds, USECS_PER_SEC / units[unit].per_second);
	else if (pg_mul_s64_overflow(microseconds, 1000, &number))
		number = microseconds < 0 ? PG_INT64_MIN : PG_INT64_MAX;
	return Int64GetDatum(number);
}

/* The same of an integer */
static bool
instant_of_int4(Datum value, TtlUnit unit, TimestampTz *result)
{
	return instant_of_int8(Int64GetDatum(DatumGetInt32(value)), unit, result);
}

/* The last number that instant_of_numeric() makes no later than the instant */
static Datum
last_numeric(TimestampTz instant, TtlUnit unit)
{
	int64		microseconds = microseconds_of_instant(instant);
	int			places = units[unit].places;

	if (places >= 0)
		return NumericGetDatum(int64_div_fast_to_numeric(microseconds, places));
	return DirectFunctionCall2(numeric_mul, NumericGetDatum(int64_to_numeric(microseconds)),
							   NumericGetDatum(int64_to_numeric(1000)));
}

/* instant_of_numeric(), in memory that its caller resets */
static bool
compute_instant_of_numeric(Datum value, TtlUnit unit, TimestampTz *result)
{
	int			places = units[unit].places;
	Datum		microseconds;

	/* NaN and infinity are out of range, too */
	if (DatumGetBool(DirectFunctionCall2(numeric_gt, value, last_numeric(TTL_LAST_INSTANT, unit))) ||
		DatumGetBool(DirectFunctionCall2(numeric_le, value,
										 last_numeric(TTL_FIRST_INSTANT - 1, unit))))
		return false;

	/*
	 * a product has 16383 decimal places at most: what is less than a unit
	 * must not get lost
	 */
	if (places < 0)
		value = DirectFunctionCall1(numeric_ceil, value);
	microseconds = DirectFunctionCall2(numeric_mul, value,
									   NumericGetDatum(places >= 0 ?
													   int64_to_numeric(USECS_PER_SEC / units[unit].per_second) :
													   int64_div_fast_to_numeric(1, -places)));
	return instant_of_microseconds(DatumGetInt64(DirectFunctionCall1(numeric_int8,
																	 DirectFunctionCall1(numeric_ceil, microseconds))),
								   result);
}

/* Leaves nothing behind, for it is called for each row. */
static bool
instant_of_numeric(Datum value, TtlUnit unit, TimestampTz *result)
{
	static MemoryContext scratch = NULL;
	MemoryContext old;
	bool		has_meaning;

	if (scratch == NULL)
		scratch = AllocSetContextCreate(TopMemoryContext, "ttl instant", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(scratch);
	has_meaning = compute_instant_of_numeric(value, unit, result);
	MemoryContextSwitchTo(old);
	MemoryContextReset(scratch);
	return has_meaning;
}

/* The first instant of a day in UTC; what lies behind all timestamps is never. */
static bool
instant_of_date(Datum value, TtlUnit unit, TimestampTz *result)
{
	DateADT		date = DatumGetDateADT(value);

	if (DATE_IS_NOBEGIN(date))
		*result = DT_NOBEGIN;
	else if (date >= TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE)
		*result = DT_NOEND;
	else
		*result = date * USECS_PER_DAY;
	return true;
}

/* The last day whose first instant is no later */
static Datum
last_date(TimestampTz instant, TtlUnit unit)
{
	if (instant < MIN_TIMESTAMP)
		return DateADTGetDatum(DATEVAL_NOBEGIN);
	return DateADTGetDatum((DateADT) divide_down(Min(instant, END_TIMESTAMP - 1), USECS_PER_DAY));
}

#define INSTANT(unit_name, type_oid, suffix, last_suffix, last_oid, le_oid, gt_oid) \
	{.type = type_oid, .unit = unit_name, .instant = instant_of_##suffix, \
		.last = last_##last_suffix, .last_type = last_oid, .le = le_oid, .gt = gt_oid}
#define INSTANTS(...) \
	INSTANT(TTL_UNIT_EPOCH, __VA_ARGS__), \
	INSTANT(TTL_UNIT_EPOCH_MS, __VA_ARGS__), \
	INSTANT(TTL_UNIT_EPOCH_US, __VA_ARGS__), \
	INSTANT(TTL_UNIT_EPOCH_NS, __VA_ARGS__)

static const TtlType kinds[] = {
	{.type = INT4OID, .is_strict = true, .seconds = seconds_of_int4},
	{.type = INT2OID, .is_strict = true, .seconds = seconds_of_int2},
	{.type = INT8OID, .seconds = seconds_of_int8},
	{.type = NUMERICOID, .seconds = seconds_of_numeric},
	{.type = FLOAT8OID, .seconds = seconds_of_float8},
	{.type = FLOAT4OID, .seconds = seconds_of_float4},
	{.type = JSONBOID, .is_document = true, .seconds = seconds_of_jsonb},
	{.type = TIMESTAMPTZOID},
	{.type = TIMESTAMPOID},
	INSTANT(TTL_UNIT_SECONDS, DATEOID, date, date, DATEOID, F_DATE_LE, F_DATE_GT),
	INSTANT(TTL_UNIT_EPOCH, INT4OID, int4, int8, INT8OID, F_INT48LE, F_INT48GT),
	INSTANTS(INT8OID, int8, int8, INT8OID, F_INT8LE, F_INT8GT),
	INSTANTS(NUMERICOID, numeric, numeric, NUMERICOID, F_NUMERIC_LE, F_NUMERIC_GT)
};

/* NULL if a TTL column can't have the type, or the type no such unit. */
const TtlType *
ttl_type_of(Oid type, TtlUnit unit)
{
	for (int i = 0; i < lengthof(kinds); i++)
	{
		if (kinds[i].type == type && kinds[i].unit == unit)
			return &kinds[i];
	}
	return NULL;
}

/* ttl_type_of() of a timestamp column */
const TtlType *
ttl_type_of_clock(Oid type, TtlUnit unit)
{
	const TtlType *ttl_type = ttl_type_of(type, unit);

	return ttl_type_is_deadline(ttl_type) ? ttl_type : NULL;
}

/* Microseconds between two values of a timestamp column that follow each other */
static int64
resolution_of(const TtlType *ttl_type, int32 typmod)
{
	int64		result = 1;

	if (ttl_type == NULL)
	{
		for (int i = typmod; i >= 0 && i < MAX_TIMESTAMP_PRECISION; i++)
			result *= 10;
		return result;
	}
	if (ttl_type->type == DATEOID)
		return USECS_PER_DAY;
	return Max(USECS_PER_SEC / units[ttl_type->unit].per_second, 1);
}

/*
 * The values of a timestamp column that ttl writes are multiples of so many microseconds: the
 * smallest number that is not less than 'precision' and that the column can hold.
 * 'ttl_type' is NULL for timestamps.
 */
int64
ttl_type_clock_step(const TtlType *ttl_type, int32 typmod, int64 precision)
{
	int64		resolution = resolution_of(ttl_type, typmod);

	precision = Min(precision, TTL_MAX_PRECISION);
	return Max((precision + resolution - 1) / resolution, 1) * resolution;
}

/* The least multiple of the step that is no earlier */
static TimestampTz
round_up(TimestampTz instant, int64 step)
{
	int64		over = instant % step;

	if (over > 0)
		instant += step;
	return instant - over;
}

/*
 * The present as a value of such a column, rounded up to a multiple of 'step', so that no row
 * expires early.
 */
Datum
ttl_type_present(const TtlType *ttl_type, TimestampTz now, int64 step)
{
	TimestampTz present = round_up(now, step);

	if (ttl_type == NULL)
		return TimestampTzGetDatum(present);
	switch (ttl_type->type)
	{
		case INT4OID:
			return DirectFunctionCall1(int84, last_int8(present, ttl_type->unit));
		case NUMERICOID:
			return NumericGetDatum(int64_to_numeric(DatumGetInt64(last_int8(present, ttl_type->unit))));
		default:
			return ttl_type->last(present, ttl_type->unit);
	}
}

/* True if the value, of a type in which that is refused, has no meaning. */
bool
ttl_type_is_invalid(const TtlType *ttl_type, Datum value)
{
	int32		seconds = ttl_type->type == INT2OID ? DatumGetInt16(value) : DatumGetInt32(value);

	return seconds <= 0 && seconds != TTL_NEVER;
}

/*
 * True if a timestamp column can have the type.  A timestamp without time zone is taken as
 * UTC, and so has the same bits as one with.
 */
bool
ttl_type_is_instant(Oid type)
{
	return type == TIMESTAMPTZOID || type == TIMESTAMPOID;
}

/*
 * The kind of the first argument, a deadline or a duration, in the unit that the second one names.
 * Errors (22023) if there is none.
 */
static const TtlType *
kind_of_argument(FunctionCallInfo fcinfo, bool is_deadline)
{
	Oid			type = getBaseType(get_fn_expr_argtype(fcinfo->flinfo, 0));
	const char *name = PG_NARGS() > 1 ? text_to_cstring(PG_GETARG_TEXT_PP(1)) :
	ttl_type_unit_name(TTL_UNIT_SECONDS);
	TtlUnit		unit;
	const TtlType *ttl_type = ttl_type_unit_parse(name, &unit) ? ttl_type_of(type, unit) : NULL;

	if (ttl_type == NULL || ttl_type_is_deadline(ttl_type) != is_deadline)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("values of type %s have no unit \"%s\"", format_type_be(type), name)));
	return ttl_type;
}

PG_FUNCTION_INFO_V1(ttl_item_ttl);

/*
 * ttl.item_ttl(ttl "any") -> integer
 *
 * The TTL in seconds that a value of a TTL column stands for, -1 = never, NULL =
 * the default TTL applies.
 */
Datum
ttl_item_ttl(PG_FUNCTION_ARGS)
{
	const TtlType *ttl_type = kind_of_argument(fcinfo, false);
	int32		seconds = ttl_type->seconds(PG_GETARG_DATUM(0));

	if (seconds == 0 || (ttl_type->is_strict && ttl_type_is_invalid(ttl_type, PG_GETARG_DATUM(0))))
		PG_RETURN_NULL();
	PG_RETURN_INT32(seconds);
}

PG_FUNCTION_INFO_V1(ttl_instant);

/*
 * ttl.instant(value "any", unit text) -> timestamptz
 * ttl.instant(value date) -> timestamptz
 *
 * The instant that a value of a TTL or timestamp column stands for, NULL = none.
 */
Datum
ttl_instant(PG_FUNCTION_ARGS)
{
	TimestampTz result;

	if (!ttl_type_instant(kind_of_argument(fcinfo, true), PG_GETARG_DATUM(0), &result))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(result);
}
