/*-------------------------------------------------------------------------
 *
 * argument.c
 *	  Arguments of the functions that configure containers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "container/policy.h"
#include "fmgr.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

void
ttl_argument_refuse_null(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be null", name)));
}

Oid
ttl_argument_container(FunctionCallInfo fcinfo, const char *function)
{
	ttl_container_may_change(function);
	ttl_argument_refuse_null(fcinfo, 0, "container");
	ttl_trigger_check_settable(PG_GETARG_OID(0));
	return PG_GETARG_OID(0);
}

/*
 * True if a text is a whole number, with nothing but blanks around it.  One that is too large is
 * taken as the largest that there is.
 */
static bool
whole_number(const char *text, int64 *number)
{
	char	   *end;
	int64		value = strtoll(text, &end, 10);

	if (end == text || end[strspn(end, " \t\r\n")] != '\0')
		return false;
	*number = value;
	return true;
}

/*
 * The interval that a text is, NULL if it is none.  What interval_in() says of a text that is
 * none is caught without a subtransaction: the caller errors, too.
 */
static Interval *
interval_from_text(const char *text)
{
	MemoryContext context = CurrentMemoryContext;
	Interval   *volatile interval = NULL;

	PG_TRY();
	{
		interval = DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(text),
														 ObjectIdGetDatum(InvalidOid),
														 Int32GetDatum(-1)));
	}
	PG_CATCH();
	{
		if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	return interval;
}

/* A text that is a default TTL; false if it is none */
static bool
default_ttl_from_text(const char *text, int32 *default_ttl)
{
	int64		number;
	Interval   *interval;

	if (pg_strcasecmp(text, "never") == 0)
		*default_ttl = TTL_NEVER;
	else if (pg_strcasecmp(text, "off") == 0)
		*default_ttl = TTL_OFF;
	else if (whole_number(text, &number))
	{
		*default_ttl = (int32) number;
		return number == TTL_NEVER || (number > 0 && number <= PG_INT32_MAX);
	}
	else
	{
		interval = interval_from_text(text);
		return interval != NULL && ttl_policy_seconds(interval, default_ttl);
	}
	return true;
}

/* A default TTL is a number, an interval, or a text that is either. */
int32
ttl_argument_default_ttl(FunctionCallInfo fcinfo, int n)
{
	Oid			type = getBaseType(get_fn_expr_argtype(fcinfo->flinfo, n));
	const TtlType *ttl_type = ttl_type_of(type, TTL_UNIT_SECONDS);
	int32		result = 0;
	bool		is_valid;
	Oid			output;
	bool		is_varlena;
	char	   *text;

	if (PG_ARGISNULL(n))
		return TTL_OFF;
	if (TypeCategory(type) != TYPCATEGORY_STRING && type != INTERVALOID &&
		(ttl_type == NULL || ttl_type->seconds == NULL || ttl_type->is_document))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("default TTL cannot be of type %s", format_type_be(type)),
				 errhint("Use a number of seconds, an interval, or text.")));
	getTypeOutputInfo(type, &output, &is_varlena);
	text = OidOutputFunctionCall(output, PG_GETARG_DATUM(n));
	if (TypeCategory(type) == TYPCATEGORY_STRING)
		is_valid = default_ttl_from_text(text, &result);
	else if (type == INTERVALOID)
		is_valid = ttl_policy_seconds(PG_GETARG_INTERVAL_P(n), &result);
	else
	{
		if (!ttl_type_is_invalid(ttl_type, PG_GETARG_DATUM(n)))
			result = ttl_type->seconds(PG_GETARG_DATUM(n));
		is_valid = result != 0;
	}
	if (!is_valid)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid default TTL: \"%s\"", text),
				 errhint("Use a number of seconds from 1 to 2147483647, an interval of so many, -1 for rows that never expire by default, or NULL to turn TTL off.")));
	return result;
}

TtlIndexing
ttl_argument_indexing(FunctionCallInfo fcinfo, int n)
{
	char	   *name;
	TtlIndexing indexing;

	ttl_argument_refuse_null(fcinfo, n, "indexing");
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (strcmp(name, "lazy") == 0)
	{
		ereport(NOTICE,
				(errmsg("indexing policy \"lazy\" is the same as \"consistent\""),
				 errdetail("Azure Cosmos DB has had a policy of that name.")));
		return TTL_INDEXING_CONSISTENT;
	}
	if (!ttl_policy_indexing_parse(name, &indexing))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid indexing policy: \"%s\"", name),
				 errhint("Use \"consistent\" or \"none\".")));
	return indexing;
}

/* A precision of the timestamp column, in microseconds; NULL is that it is exact. */
int64
ttl_argument_precision(FunctionCallInfo fcinfo, int n)
{
	int64		precision = 0;

	if (!PG_ARGISNULL(n) &&
		(!ttl_policy_microseconds(PG_GETARG_INTERVAL_P(n), &precision) ||
		 precision < 0 || precision > TTL_MAX_PRECISION))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid ts_precision: %s",
						DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(n)))),
				 errdetail("It must be between 0, which is exact, and 2147483647 seconds.")));
	return precision;
}

int32
ttl_argument_range(FunctionCallInfo fcinfo, int n, const char *name, int32 max)
{
	int32		value = PG_GETARG_INT32(n);

	if (value < 0 || value > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid %s: %d", name, value),
				 errdetail("It must be between 0 and %d.", max)));
	return value;
}

bool
ttl_argument_boolean(FunctionCallInfo fcinfo, int n, const char *name)
{
	ttl_argument_refuse_null(fcinfo, n, name);
	return PG_GETARG_BOOL(n);
}
