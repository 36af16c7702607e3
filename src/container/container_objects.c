/*-------------------------------------------------------------------------
 *
 * container_objects.c
 *	  The extension's objects in this database.
 *
 * The extension is found by the schema's name and a function in C in it.  Its objects' OIDs
 * are looked up again after any change to pg_namespace, as both CREATE and DROP
 * EXTENSION make one; those of functions and its version when they are needed.  While its own script runs, tables are plain tables; in
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
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "container/container.h"
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

/* The functions in TtlFunction, and then the others, by their names and arguments */
static const struct Function
{
	const char *name;
	int			nargs;
	Oid			args[5];
}			functions[] = {
	[TTL_IS_LIVE] = {"is_live", 3, {REGCLASSOID, TIMESTAMPTZOID, ANYOID}},
	[TTL_IS_LIVE_BY_TID] = {"is_live", 1, {REGCLASSOID}},
	[TTL_IS_EXPIRED] = {"is_expired", 3, {REGCLASSOID, TIMESTAMPTZOID, ANYOID}},
	[TTL_STAMP] = {"stamp", 3, {ANYELEMENTOID, INT8OID, TEXTOID}},
	[TTL_COMPLETE] = {"complete", 3, {ANYELEMENTOID, INT8OID, TEXTOID}},
	[TTL_SHARD_STAMP] = {"shard_stamp", 5, {ANYELEMENTOID, ANYELEMENTOID, TIMESTAMPTZOID, INT8OID, TEXTOID}},
	[TTL_SHARD_NOW] = {"shard_now", 0},
	[TTL_CHECK_REFERENCE] = {"check_reference", 0},
	[TTL_ON_WRITE] = {"on_write", 0},
	{"item_expiry", 2, {TIMESTAMPTZOID, INT4OID}},
	{"item_expiry", 2, {TIMESTAMPOID, INT4OID}},
	{"item_ttl", 1, {INT8OID}},
	{"item_ttl", 1, {NUMERICOID}},
	{"item_ttl", 1, {FLOAT8OID}},
	{"item_ttl", 1, {FLOAT4OID}},
	{"item_ttl", 1, {JSONBOID}},
	{"instant", 2, {INT4OID, TEXTOID}},
	{"instant", 2, {INT8OID, TEXTOID}},
	{"instant", 2, {NUMERICOID, TEXTOID}},
	{"instant", 1, {DATEOID}}
};

/* The C function by which the schema is recognized */
#define OWN_SYMBOL	"ttl_on_write"

/*
 * The objects, if there are any, what else has been looked up since, and
 * ttl_schema_invalidations before that
 */
static TtlObjects objects;
static bool are_present;
static Oid	function_oids[lengthof(functions)]; /* InvalidOid = not looked up */
static enum
{
	VERSION_UNREAD,
	VERSION_KNOWN,
	VERSION_UNKNOWN
}			version_state;
static uint64 known_as_of = 0;

static HeapTuple
search_function(Oid schema, int i)
{
	return SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(functions[i].name),
						   PointerGetDatum(buildoidvector(functions[i].args, functions[i].nargs)),
						   ObjectIdGetDatum(schema));
}

static Oid
function_oid(int i)
{
	HeapTuple	tuple;

	if (OidIsValid(function_oids[i]))
		return function_oids[i];
	tuple = search_function(objects.schema, i);
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "function %s.%s does not exist", TTL_SCHEMA, functions[i].name);
	function_oids[i] = ((Form_pg_proc) GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	return function_oids[i];
}

/*
 * True if the schema is the extension's.  Any user may have made one of that name, but only a
 * superuser a function in C, and the extension's script makes its schema itself.
 */
static bool
is_own_schema(Oid schema)
{
	HeapTuple	tuple = search_function(schema, TTL_ON_WRITE);
	bool		is_own = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	if (((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId)
	{
		bool		isnull;
		Datum		symbol = SysCacheGetAttr(PROCNAMEARGSNSP, tuple, Anum_pg_proc_prosrc, &isnull);

		is_own = !isnull && strcmp(TextDatumGetCString(symbol), OWN_SYMBOL) == 0;
	}
	ReleaseSysCache(tuple);
	return is_own;
}

/*
 * The version of the extension, as the snapshot sees it, and its OID; NULL if there is none.
 */
static char *
read_version(Snapshot snapshot, Oid *extension)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	char	   *version = NULL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(TTL_EXTENSION));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;

		*extension = ((Form_pg_extension) GETSTRUCT(tuple))->oid;
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
 * Finds the extension's objects.  A schema of that name that isn't the extension's is not
 * remembered, for it may become it by the script that is running.
 *
 * Each session pays for this with its first statement, so it reads no more than the caches
 * of pg_namespace, pg_proc and pg_class.
 */
static pg_noinline void
find_objects(void)
{
	uint64		count = ttl_schema_invalidations;
	TtlObjects	found;

	are_present = false;
	memset(function_oids, 0, sizeof(function_oids));
	version_state = VERSION_UNREAD;
	found.schema = get_namespace_oid(TTL_SCHEMA, true);
	if (!OidIsValid(found.schema))
	{
		known_as_of = count;
		return;
	}
	if (!is_own_schema(found.schema))
		return;
	found.catalog = get_relname_relid(TTL_CONTAINER_TABLE, found.schema);
	if (!OidIsValid(found.catalog))
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
		(creating_extension && CurrentExtensionObject == get_extension_oid(TTL_EXTENSION, true)))
		return NULL;
	return &objects;
}

bool
ttl_container_calls(Oid function)
{
	const TtlObjects *found = ttl_container_objects();

	if (found == NULL || get_func_namespace(function) != found->schema)
		return false;
	for (int i = 0; i < lengthof(functions); i++)
	{
		if (function_oid(i) == function)
			return true;
	}
	return false;
}

Oid
ttl_container_function(TtlFunction function)
{
	(void) ttl_container_require_objects();
	return function_oid(function);
}

Oid
ttl_container_function_of(const char *name, Oid argument)
{
	(void) ttl_container_require_objects();
	for (int i = 0; i < lengthof(functions); i++)
	{
		if (strcmp(functions[i].name, name) == 0 && functions[i].args[0] == argument)
			return function_oid(i);
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

bool
ttl_container_knows_version(void)
{
	if (ttl_container_objects() != NULL && version_state == VERSION_UNREAD)
	{
		Oid			extension;
		char	   *version = read_version(NULL, &extension);

		version_state = version != NULL && is_known(version) ? VERSION_KNOWN : VERSION_UNKNOWN;
	}
	return version_state != VERSION_UNKNOWN;
}

void
ttl_container_check_version(void)
{
	Oid			extension;

	if (!ttl_container_knows_version())
		refuse_version(read_version(NULL, &extension));
}

/*
 * All sessions look for the objects again, and at all policies.  The schema's row
 * doesn't change by itself when an upgrade script runs.
 */
void
ttl_container_version_changed(Oid extension)
{
	Oid			own;
	char	   *version = read_version(SnapshotSelf, &own);
	Relation	rel;
	HeapTuple	schema;

	if (version == NULL || own != extension)
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
	(void) ttl_container_require_objects();
	LockDatabaseObject(ExtensionRelationId, get_extension_oid(TTL_EXTENSION, false),
					   0, AccessShareLock);
	(void) ttl_container_require_objects();
}

void
ttl_container_forget_objects(void)
{
	known_as_of = 0;
}
