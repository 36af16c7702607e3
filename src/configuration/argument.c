/*-------------------------------------------------------------------------
 *
 * argument.c
 *	  Arguments of the functions that configure containers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "citus/citus.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "container/policy.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

void
ttl_argument_may_change(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
	ttl_container_hold_extension();
}

Oid
ttl_argument_container(FunctionCallInfo fcinfo, const char *function)
{
	ttl_argument_may_change(function);
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("container must not be null")));
	ttl_citus_check_settable(PG_GETARG_OID(0));
	return PG_GETARG_OID(0);
}

/*
 * Is a text a whole number, with no more than blanks around it?  One too large is the largest
 * that there is.
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

/*
 * A default TTL is an integer, an interval, or a text that is either: which of them, the
 * declaration of the function tells.
 */
int32
ttl_argument_default_ttl(FunctionCallInfo fcinfo, int n)
{
	Oid		   *types;
	int			count;
	int64		number = 0;
	char	   *value;
	Interval   *interval = NULL;
	int32		seconds;

	if (PG_ARGISNULL(n))
		return TTL_OFF;
	(void) get_func_signature(fcinfo->flinfo->fn_oid, &types, &count);
	switch (types[n])
	{
		case INT4OID:
			number = PG_GETARG_INT32(n);
			value = psprintf("%d", PG_GETARG_INT32(n));
			break;
		case INTERVALOID:
			interval = PG_GETARG_INTERVAL_P(n);
			value = DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(n)));
			break;
		default:
			Assert(types[n] == TEXTOID);
			value = text_to_cstring(PG_GETARG_TEXT_PP(n));
			if (!whole_number(value, &number))
				interval = interval_from_text(value);
			break;
	}
	if (interval != NULL && ttl_policy_seconds(interval, &seconds))
		return seconds;
	if (interval != NULL ||
		!(number == TTL_NEVER || (number > 0 && number <= PG_INT32_MAX)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid default TTL: \"%s\"", value),
				 errhint("Use a number of seconds from 1 to 2147483647, an interval of so many, -1 for rows that never expire by default, or NULL to turn TTL off.")));
	return (int32) number;
}

TtlIndexing
ttl_argument_indexing(FunctionCallInfo fcinfo, int n)
{
	char	   *name;
	TtlIndexing indexing;

	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("indexing must not be null"),
				 errhint("Use \"consistent\", \"lazy\" or \"none\".")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (!ttl_policy_indexing_parse(name, &indexing))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid indexing policy: \"%s\"", name),
				 errhint("Use \"consistent\", \"lazy\" or \"none\".")));
	return indexing;
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
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be null", name)));
	return PG_GETARG_BOOL(n);
}
