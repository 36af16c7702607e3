/*
 * search.c - a library that has a look-up of a name wait, for a test to rename what has that name
 *
 * Whoever looks for something in the schema that the setting search.waits_in names has the advisory lock 2 while it
 * waits until nobody has the advisory lock 1, and then takes the invalidations of others, as a look-up may.
 */
#include "postgres.h"

#include "catalog/objectaccess.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

PG_MODULE_MAGIC;

extern void _PG_init(void);

static char *schema;

static bool
call(PGFunction function, int64 number)
{
	return DatumGetBool(DirectFunctionCall1(function, Int64GetDatum(number)));
}

static void
object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	char	   *name = access == OAT_NAMESPACE_SEARCH ? get_namespace_name(objectId) : NULL;

	if (name == NULL || strcmp(name, schema) != 0)
		return;
	call(pg_try_advisory_lock_int8, 2);
	while (!call(pg_try_advisory_lock_int8, 1))
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(10000);
	}
	call(pg_advisory_unlock_int8, 1);
	call(pg_advisory_unlock_int8, 2);
	AcceptInvalidationMessages();
}

void
_PG_init(void)
{
	DefineCustomStringVariable("search.waits_in", "Schema in which look-ups wait.", NULL, &schema, "", PGC_SIGHUP, 0,
							   NULL, NULL, NULL);
	object_access_hook = object_access;
}
