/*-------------------------------------------------------------------------
 *
 * kind.c
 *	  What the values of a TTL column mean, by the column's type.
 *
 *	  integer, smallint		seconds; a CHECK refuses what has no meaning
 *	  bigint, numeric,		seconds; what has no meaning is stored, and the
 *	  double precision,		default TTL applies
 *	  real
 *	  jsonb					the same of the root-level key "ttl" of a document
 *	  timestamptz			the instant at which the row expires, whatever _ts is
 *	  timestamp				the same, taken as UTC
 *
 * Seconds are whole numbers from 1 to 2147483647, or -1 for never: 20, 20.0 and
 * 20::bigint, but not 20.5, 0, -7, NaN, or the JSON values "20" and true.  NULL is
 * not a value.  'infinity' as a deadline is never.
 *
 * ttl.item_ttl() says the same to the expiry indexes of columns without CHECK.  It
 * gives an error for no value.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/heaptoast.h"
#include "catalog/pg_type.h"
#include "container/kind.h"
#include "fmgr.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

static int32
seconds_of_int8(Datum value)
{
	int64		seconds = DatumGetInt64(value);

	return (seconds > 0 && seconds <= PG_INT32_MAX) || seconds == TTL_NEVER ? (int32) seconds : 0;
}

static int32
seconds_of_int4(Datum value)
{
	return seconds_of_int8(Int64GetDatum(DatumGetInt32(value)));
}

static int32
seconds_of_int2(Datum value)
{
	return seconds_of_int8(Int64GetDatum(DatumGetInt16(value)));
}

static int32
seconds_of_double(double seconds)
{
	return (seconds >= 1 && seconds <= PG_INT32_MAX && seconds == floor(seconds)) ||
		seconds == TTL_NEVER ? (int32) seconds : 0;
}

static int32
seconds_of_float8(Datum value)
{
	return seconds_of_double(DatumGetFloat8(value));
}

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

/* The root-level "ttl" of a document; false if it has none. */
static bool
find_ttl(Jsonb *document, JsonbValue *ttl)
{
	return JB_ROOT_IS_OBJECT(document) &&
		getKeyJsonValueFromContainer(&document->root, "ttl", 3, ttl) != NULL;
}

/*
 * How much of a large document is read at first: of what is compressed to so much one
 * chunk.  The names of an object's keys come first, and "ttl" is short, so its value
 * is before most others.
 */
#define HEAD_SIZE	(TOAST_MAX_CHUNK_SIZE * 8 / 9 - 16)

/*
 * The seconds of a document of which only the head is at hand, and whether it has
 * a "ttl".  Returns false if the head doesn't tell.
 */
static bool
read_head(Jsonb *head, int32 *seconds, bool *found)
{
	const char *end = (char *) head + VARSIZE(head);
	uint32		nkeys;
	const char *keys;
	JsonbValue	ttl;

	*seconds = 0;
	*found = false;
	if (VARSIZE(head) < sizeof(Jsonb))
		return false;
	if (!JB_ROOT_IS_OBJECT(head))
		return true;
	nkeys = JB_ROOT_COUNT(head);
	keys = (char *) &head->root.children[nkeys * 2];
	if (keys > end || keys + getJsonbOffset(&head->root, nkeys) > end)
		return false;
	*found = find_ttl(head, &ttl);
	if (!*found || ttl.type != jbvNumeric)
		return true;
	if ((char *) ttl.val.numeric + VARHDRSZ > end ||
		(char *) ttl.val.numeric + VARSIZE_ANY(ttl.val.numeric) > end)
		return false;
	*seconds = seconds_of_numeric(NumericGetDatum(ttl.val.numeric));
	return true;
}

/* The same of any document */
static int32
read_document(Datum value, bool *found)
{
	Jsonb	   *document;
	JsonbValue	ttl;
	int32		seconds = 0;

	if (VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(value)) ||
		VARATT_IS_COMPRESSED(DatumGetPointer(value)))
	{
		Jsonb	   *head = (Jsonb *) PG_DETOAST_DATUM_SLICE(value, 0, HEAD_SIZE);
		bool		is_known = read_head(head, &seconds, found);

		pfree(head);
		if (is_known)
			return seconds;
	}

	document = DatumGetJsonbP(value);
	*found = find_ttl(document, &ttl);
	if (*found && ttl.type == jbvNumeric)
		seconds = seconds_of_numeric(NumericGetDatum(ttl.val.numeric));
	if ((Pointer) document != DatumGetPointer(value))
		pfree(document);
	return seconds;
}

static int32
seconds_of_jsonb(Datum value)
{
	bool		found;

	return read_document(value, &found);
}

static const TtlKind kinds[] = {
	{.type = INT4OID, .is_strict = true, .seconds = seconds_of_int4},
	{.type = INT2OID, .is_strict = true, .seconds = seconds_of_int2},
	{.type = INT8OID, .seconds = seconds_of_int8},
	{.type = NUMERICOID, .seconds = seconds_of_numeric},
	{.type = FLOAT8OID, .seconds = seconds_of_float8},
	{.type = FLOAT4OID, .seconds = seconds_of_float4},
	{.type = JSONBOID, .is_document = true, .seconds = seconds_of_jsonb},
	{.type = TIMESTAMPTZOID},
	{.type = TIMESTAMPOID}
};

const TtlKind *
ttl_kind_of(Oid type)
{
	for (int i = 0; i < lengthof(kinds); i++)
	{
		if (kinds[i].type == type)
			return &kinds[i];
	}
	return NULL;
}

bool
ttl_kind_is_odd(const TtlKind *kind, Datum value)
{
	bool		found;

	if (kind->is_document)
		return read_document(value, &found) == 0 && found;
	return kind->seconds != NULL && kind->seconds(value) == 0;
}

bool
ttl_kind_is_instant(Oid type)
{
	return type == TIMESTAMPTZOID || type == TIMESTAMPOID;
}

static Datum
item_ttl(FunctionCallInfo fcinfo, int32 (*seconds_of) (Datum))
{
	int32		seconds = seconds_of(PG_GETARG_DATUM(0));

	if (seconds == 0)
		PG_RETURN_NULL();
	PG_RETURN_INT32(seconds);
}

/*
 * ttl.item_ttl(ttl) -> integer, for each type without CHECK
 *
 * The TTL in seconds that a value of a TTL column stands for, -1 = never, NULL =
 * the default TTL applies.
 */
#define ITEM_TTL(suffix) \
PG_FUNCTION_INFO_V1(ttl_item_ttl_##suffix); \
Datum \
ttl_item_ttl_##suffix(PG_FUNCTION_ARGS) \
{ \
	return item_ttl(fcinfo, seconds_of_##suffix); \
} \
extern int	no_such_variable

ITEM_TTL(int8);
ITEM_TTL(numeric);
ITEM_TTL(float8);
ITEM_TTL(float4);
ITEM_TTL(jsonb);
