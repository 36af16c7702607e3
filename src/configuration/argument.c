/*-------------------------------------------------------------------------
 *
 * argument.c
 *	  Arguments of the functions that configure containers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "configuration/configuration.h"
#include "container/container.h"
#include "container/policy.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"

Oid
ttl_argument_container(FunctionCallInfo fcinfo, const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("container must not be null")));
	ttl_container_hold_extension();
	return PG_GETARG_OID(0);
}

int32
ttl_argument_default_ttl(FunctionCallInfo fcinfo, int n)
{
	int32		default_ttl;

	if (PG_ARGISNULL(n))
		return TTL_OFF;
	default_ttl = PG_GETARG_INT32(n);
	if (default_ttl != TTL_NEVER && default_ttl <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid default TTL: %d", default_ttl),
				 errhint("Use a number of seconds from 1 to 2147483647, -1 for rows that never expire by default, or NULL to turn TTL off.")));
	return default_ttl;
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
				 errhint("Use \"consistent\" or \"none\".")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (!ttl_policy_indexing_parse(name, &indexing))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid indexing policy: \"%s\"", name),
				 errhint("Use \"consistent\" or \"none\".")));
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
