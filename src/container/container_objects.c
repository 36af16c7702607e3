/*-------------------------------------------------------------------------
 *
 * container_objects.c
 *	  The extension's objects in this database.
 *
 * The extension is found by the schema's name.  Its objects' OIDs are looked
 * up again after any change to pg_namespace, as both CREATE and DROP
 * EXTENSION make one.  While its own script runs, tables are plain tables; in
 * the scripts of other extensions they are what they are everywhere.
 *
 * The library works with each version of these objects that was released before it.
 * An unknown version is a later one: a package was upgraded and the server not
 * restarted, or a server was started with an older package than its database, or its
 * primary, has.  CREATE and ALTER EXTENSION then fail before their script
 * begins; where the objects are there already, whatever meets a container fails, for
 * this library cannot evaluate which of its rows are live.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "container/container.h"
#include "invalidation.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* Versions of the extension's SQL objects that this library works with; the last is its own. */
static const char *const known_versions[] = {"1.0"};

/* The objects, if there are any, and ttl_schema_invalidations before they were looked up */
static TtlObjects objects;
static bool are_present;
static uint64 known_as_of = 0;

#define FUNCTION(member, name, nargs, ...) \
	{offsetof(TtlObjects, member), name, nargs, {__VA_ARGS__}}

/* The functions in TtlObjects, by their names and arguments */
static const struct Function
{
	size_t		member;
	const char *name;
	int			nargs;
	Oid			args[5];
}			functions[] = {
	FUNCTION(is_live, "is_live", 3, REGCLASSOID, TIMESTAMPTZOID, ANYOID),
	FUNCTION(is_live_by_tid, "is_live", 1, REGCLASSOID),
	FUNCTION(is_expired, "is_expired", 3, REGCLASSOID, TIMESTAMPTZOID, ANYOID),
	FUNCTION(stamp, "stamp", 3, ANYELEMENTOID, INT8OID, TEXTOID),
	FUNCTION(complete, "complete", 3, ANYELEMENTOID, INT8OID, TEXTOID),
	FUNCTION(shard_stamp, "shard_stamp", 5, ANYELEMENTOID, ANYELEMENTOID, TIMESTAMPTZOID, INT8OID, TEXTOID),
	FUNCTION(shard_now, "shard_now", 0, InvalidOid),
	FUNCTION(item_expiry[0], "item_expiry", 2, TIMESTAMPTZOID, INT4OID),
	FUNCTION(item_expiry[1], "item_expiry", 2, TIMESTAMPOID, INT4OID),
	FUNCTION(item_ttl[0], "item_ttl", 1, INT8OID),
	FUNCTION(item_ttl[1], "item_ttl", 1, NUMERICOID),
	FUNCTION(item_ttl[2], "item_ttl", 1, FLOAT8OID),
	FUNCTION(item_ttl[3], "item_ttl", 1, FLOAT4OID),
	FUNCTION(item_ttl[4], "item_ttl", 1, JSONBOID),
	FUNCTION(instant[0], "instant", 2, INT4OID, TEXTOID),
	FUNCTION(instant[1], "instant", 2, INT8OID, TEXTOID),
	FUNCTION(instant[2], "instant", 2, NUMERICOID, TEXTOID),
	FUNCTION(instant[3], "instant", 1, DATEOID),
	FUNCTION(check_reference, "check_reference", 0, InvalidOid),
	FUNCTION(on_write, "on_write", 0, InvalidOid)
};

static Oid *
function_of(const TtlObjects *found, int i)
{
	return (Oid *) ((char *) found + functions[i].member);
}

static Oid
find_function(Oid schema, const struct Function *function)
{
	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
						   CStringGetDatum(function->name),
						   PointerGetDatum(buildoidvector(function->args, function->nargs)),
						   ObjectIdGetDatum(schema));
}

/*
 * The version of the extension, as the snapshot sees it; NULL if it is another
 * extension.
 */
static char *
read_version(Oid extension, Snapshot snapshot)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	char	   *version = NULL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(rel, ExtensionOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple) &&
		strcmp(NameStr(((Form_pg_extension) GETSTRUCT(tuple))->extname), TTL_EXTENSION) == 0)
	{
		bool		isnull;

		version = TextDatumGetCString(heap_getattr(tuple, Anum_pg_extension_extversion,
												   RelationGetDescr(rel), &isnull));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return version;
}

static bool
is_known(const char *version)
{
	for (int i = 0; i < lengthof(known_versions); i++)
	{
		if (strcmp(known_versions[i], version) == 0)
			return true;
	}
	return false;
}

static void
refuse_version(const char *version)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("version \"%s\" of extension \"%s\" needs a later library than the one that is loaded",
					version, TTL_EXTENSION),
			 errdetail("The loaded library is of version %s.", TTL_VERSION),
			 errhint("Install the package of the extension's version on this server, and restart the server.")));
}

/*
 * Finds the extension's objects.  Incomplete ones are not remembered: a schema
 * of that name that isn't the extension's, or a script that is running.
 */
static pg_noinline void
find_objects(void)
{
	uint64		count = ttl_schema_invalidations;
	bool		complete = true;
	TtlObjects	found;
	char	   *version;

	are_present = false;
	found.schema = get_namespace_oid(TTL_SCHEMA, true);
	if (!OidIsValid(found.schema))
	{
		known_as_of = count;
		return;
	}

	found.catalog = get_relname_relid(TTL_CONTAINER_TABLE, found.schema);
	if (!OidIsValid(found.catalog))
		return;
	found.extension = get_extension_oid(TTL_EXTENSION, true);
	if (!OidIsValid(found.extension) ||
		getExtensionOfObject(RelationRelationId, found.catalog) != found.extension)
		return;
	version = read_version(found.extension, NULL);
	if (version == NULL)
		return;
	found.known = is_known(version);
	pfree(version);
	for (int i = 0; i < lengthof(functions); i++)
	{
		Oid			function = find_function(found.schema, &functions[i]);

		*function_of(&found, i) = function;
		complete = complete && OidIsValid(function);
	}
	/* a later version may have others, and its containers are no plain tables */
	if (found.known && !complete)
		return;

	objects = found;
	are_present = true;
	known_as_of = count;
}

const TtlObjects *
ttl_container_objects(void)
{
	if (!IsTransactionState() || IsBinaryUpgrade)
		return NULL;
	if (known_as_of != ttl_schema_invalidations)
		find_objects();
	if (!are_present ||
		(creating_extension && CurrentExtensionObject == objects.extension))
		return NULL;
	return &objects;
}

bool
ttl_container_calls(Oid function)
{
	const TtlObjects *found = ttl_container_objects();

	for (int i = 0; found != NULL && i < lengthof(functions); i++)
	{
		if (*function_of(found, i) == function)
			return true;
	}
	return false;
}

Oid
ttl_container_function(const char *name, Oid argument)
{
	const TtlObjects *found = ttl_container_require_objects();

	for (int i = 0; i < lengthof(functions); i++)
	{
		if (strcmp(functions[i].name, name) == 0 && functions[i].args[0] == argument)
			return *function_of(found, i);
	}
	elog(ERROR, "function %s of type %u does not exist", name, argument);
}

const TtlObjects *
ttl_container_require_objects(void)
{
	const TtlObjects *found = ttl_container_objects();

	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"%s\" is not installed", TTL_EXTENSION)));
	return found;
}

void
ttl_container_check_version(void)
{
	const TtlObjects *found = ttl_container_objects();

	if (found != NULL && !found->known)
		refuse_version(read_version(found->extension, NULL));
}

/*
 * All sessions look for the objects again, and at all policies.  The schema's row
 * doesn't change by itself when an upgrade script runs.
 */
void
ttl_container_version_changed(Oid extension)
{
	char	   *version = read_version(extension, SnapshotSelf);
	Relation	rel;
	HeapTuple	schema;

	if (version == NULL)
		return;
	if (!is_known(version))
		refuse_version(version);
	pfree(version);

	schema = SearchSysCache1(NAMESPACENAME, CStringGetDatum(TTL_SCHEMA));
	if (!HeapTupleIsValid(schema))
		return;					/* the script will make it */
	rel = table_open(NamespaceRelationId, AccessShareLock);
	CacheInvalidateHeapTuple(rel, schema, NULL);
	table_close(rel, AccessShareLock);
	ReleaseSysCache(schema);
}

void
ttl_container_check_writable(const char *function)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s during recovery", function),
				 errhint("Call it on the primary.")));
	PreventCommandIfReadOnly(function);
}

void
ttl_container_may_change(const char *function)
{
	ttl_container_check_writable(function);
	LockDatabaseObject(ExtensionRelationId, ttl_container_require_objects()->extension,
					   0, AccessShareLock);
	(void) ttl_container_require_objects();
}

void
ttl_container_forget_objects(void)
{
	known_as_of = 0;
}
