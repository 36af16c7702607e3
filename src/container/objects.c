/*-------------------------------------------------------------------------
 *
 * objects.c
 *	  The extension's objects in a database, and whether the library fits them.
 *
 * The extension is found by the schema's name and a function in C in it.  OIDs are looked up again
 * after any change to pg_namespace, as both CREATE and DROP EXTENSION make one; those of functions,
 * and the version, when they are needed.  While its own script runs, tables are plain tables; in
 * the scripts of other extensions they are what they are everywhere.
 *
 * Objects of another version than the library's are those of a later one: a package was upgraded
 * and the server not restarted, or a server was started with an older package than its database,
 * or its primary, has.  CREATE and ALTER EXTENSION then fail before their script begins; where the
 * objects are there already, whatever meets a container fails, for this library cannot evaluate
 * which of its rows are live.  Of a tree that isn't released there are many under one number: what
 * the library reads by position, and what it calls, is looked at itself (refuse_others()).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "container/container.h"
#include "fmgr.h"
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

/* The version of the extension's SQL objects that this library works with */
#define OBJECTS_VERSION "1.0"

/* The functions, by their names and arguments */
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
	[TTL_ITEM_EXPIRY] = {"item_expiry", 2, {TIMESTAMPTZOID, INT4OID}},
	[TTL_ITEM_EXPIRY_UTC] = {"item_expiry", 2, {TIMESTAMPOID, INT4OID}},
	[TTL_ITEM_TTL] = {"item_ttl", 1, {ANYOID}},
	[TTL_INSTANT] = {"instant", 2, {ANYOID, TEXTOID}},
	[TTL_INSTANT_OF_DATE] = {"instant", 1, {DATEOID}},
	[TTL_CHECK_REFERENCE] = {"check_reference", 0},
	[TTL_ON_WRITE] = {"on_write", 0},
	[TTL_ARCHIVE] = {"archive", 0}
};

/* The columns of ttl.container */
static const char *const columns[] = {
	[Anum_container_relid - 1] = "relid",
	[Anum_container_default_time_to_live - 1] = "default_time_to_live",
	[Anum_container_ts_column - 1] = "ts_column",
	[Anum_container_ttl_column - 1] = "ttl_column",
	[Anum_container_ttl_unit - 1] = "ttl_unit",
	[Anum_container_ts_unit - 1] = "ts_unit",
	[Anum_container_indexing - 1] = "indexing",
	[Anum_container_touch_on_update - 1] = "touch_on_update",
	[Anum_container_ts_precision - 1] = "ts_precision",
	[Anum_container_reaping - 1] = "reaping",
	[Anum_container_reap_delay - 1] = "reap_delay",
	[Anum_container_archive_to - 1] = "archive_to",
	[Anum_container_replication_origin - 1] = "replication_origin",
	[Anum_container_grace_began_at - 1] = "grace_began_at",
	[Anum_container_grace_noticed_at - 1] = "grace_noticed_at",
	[Anum_container_grace_partition - 1] = "grace_partition",
	[Anum_container_created_objects - 1] = "created_objects",
	[Anum_container_propagated - 1] = "propagated"
};

/* The C function by which the schema is recognized, which whoever reads a container needs */
#define OWN_FUNCTION	TTL_IS_LIVE
#define OWN_SYMBOL	"ttl_is_live"

/* How often pg_namespace has been invalidated in this process */
static uint64 schema_invalidations = 1;

/*
 * The objects, if there are any, what else has been looked up since, and
 * schema_invalidations before that
 */
static TtlObjects objects;
static bool are_present;
static Oid	function_oids[lengthof(functions)]; /* InvalidOid = not looked up */
static bool version_is_known;
static uint64 known_as_of = 0;

/* The row in pg_proc of a function of ours, to be released; NULL if there is none */
static HeapTuple
search_function(Oid schema, int i)
{
	return SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(functions[i].name),
						   PointerGetDatum(buildoidvector(functions[i].args, functions[i].nargs)),
						   ObjectIdGetDatum(schema));
}

/* The library has found other objects than those that it was made for, under the same number */
static void
refuse_others(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the objects of extension \"%s\" are not those that the loaded library was built with",
					TTL_EXTENSION),
			 errdetail_internal("%s", detail),
			 errhint("Restart the server if another build was installed since it started; else install the build that the extension was created with, or create the extension anew.")));
}

/* The OID of a function of ours, as looked up before if it has been; errors (55000) if it is not there. */
static Oid
function_oid(int i)
{
	HeapTuple	tuple;

	if (OidIsValid(function_oids[i]))
		return function_oids[i];
	tuple = search_function(objects.schema, i);
	if (!HeapTupleIsValid(tuple))
		refuse_others(psprintf(_("Function %s.%s is missing, or has other arguments."),
							   TTL_SCHEMA, functions[i].name));
	function_oids[i] = ((Form_pg_proc) GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	return function_oids[i];
}

/*
 * The function by which the schema is recognized as the extension's, InvalidOid if it isn't.  Any user may
 * have made one of that name, but only a superuser a function in C, and the extension's script makes its
 * schema itself.
 */
static Oid
find_own_function(Oid schema)
{
	HeapTuple	tuple = search_function(schema, OWN_FUNCTION);
	Oid			function = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	if (((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId)
	{
		bool		isnull;
		Datum symbol = SysCacheGetAttr(PROCNAMEARGSNSP, tuple, Anum_pg_proc_prosrc, &isnull);

		if (!isnull && strcmp(TextDatumGetCString(symbol), OWN_SYMBOL) == 0)
			function = ((Form_pg_proc) GETSTRUCT(tuple))->oid;
	}
	ReleaseSysCache(tuple);
	return function;
}

/*
 * True if that extension (InvalidOid = whichever has our name), as the snapshot sees it, is ours.  Errors
 * (55000) if it is of a version that this library doesn't know.
 */
static bool
check_version(Oid extension, Snapshot snapshot)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	bool		is_own;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	/* there are few rows, and to open an index would cost a new session more */
	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(TTL_EXTENSION));
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	is_own = HeapTupleIsValid(tuple) &&
		(!OidIsValid(extension) || ((Form_pg_extension) GETSTRUCT(tuple))->oid == extension);
	if (is_own)
	{
		bool		isnull;
		char	   *version = TextDatumGetCString(heap_getattr(tuple, Anum_pg_extension_extversion,
															   RelationGetDescr(rel), &isnull));

		if (strcmp(version, OBJECTS_VERSION) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("version \"%s\" of extension \"%s\" needs a later library than the one that is loaded",
							version, TTL_EXTENSION),
					 errdetail("The loaded library is of version %s.", TTL_VERSION),
					 errhint("Install the package of the extension's version on this server, and restart the server.")));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return is_own;
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
	uint64		count = schema_invalidations;
	TtlObjects	found;
	Oid			own_function;

	are_present = false;
	memset(function_oids, 0, sizeof(function_oids));
	version_is_known = false;
	found.schema = get_namespace_oid(TTL_SCHEMA, true);
	if (!OidIsValid(found.schema))
	{
		known_as_of = count;
		return;
	}
	own_function = find_own_function(found.schema);
	if (!OidIsValid(own_function))
		return;
	found.catalog = get_relname_relid(TTL_CONTAINER_TABLE, found.schema);
	if (!OidIsValid(found.catalog))
		return;

	objects = found;
	function_oids[OWN_FUNCTION] = own_function;
	are_present = true;
	known_as_of = count;
}

/*
 * NULL if the extension isn't installed here, or its own script is running.
 * Any call that may accept invalidations can change the answer: another session may
 * drop the extension.
 */
const TtlObjects *
ttl_container_objects(void)
{
	if (!IsTransactionState() || IsBinaryUpgrade)
		return NULL;
	if (known_as_of != schema_invalidations)
		find_objects();
	if (!are_present ||
		(creating_extension && CurrentExtensionObject == get_extension_oid(TTL_EXTENSION, true)))
		return NULL;
	return &objects;
}

/* True if the function is one of ours that plans, indexes or triggers call. */
bool
ttl_container_is_own_function(Oid function)
{
	const TtlObjects *found = ttl_container_objects();
	HeapTuple	tuple = found == NULL ? NULL : SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		result = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	if (((Form_pg_proc) GETSTRUCT(tuple))->pronamespace == found->schema)
	{
		const char *name = NameStr(((Form_pg_proc) GETSTRUCT(tuple))->proname);

		/* the OIDs of functions of other names need not be looked up */
		for (int i = 0; i < lengthof(functions) && !result; i++)
			result = strcmp(functions[i].name, name) == 0 && function_oid(i) == function;
	}
	ReleaseSysCache(tuple);
	return result;
}

/* The OID of a function of ours; errors (42704, 55000) if it is not there. */
Oid
ttl_container_function(TtlFunction function)
{
	(void) ttl_container_require_objects();
	return function_oid(function);
}

/* ttl_container_objects(), but errors (42704) instead of NULL */
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

/* NULL, or the first column that isn't what it is for the library */
static const char *
strange_column(TupleDesc desc)
{
	StaticAssertStmt(lengthof(columns) == Natts_container, "each column of ttl.container has a name");

	for (int i = 0; i < Max(desc->natts, Natts_container); i++)
	{
		if (i >= Natts_container)
			return NameStr(TupleDescAttr(desc, i)->attname);
		if (i >= desc->natts || strcmp(NameStr(TupleDescAttr(desc, i)->attname), columns[i]) != 0)
			return columns[i];
	}
	return NULL;
}

/*
 * Errors (55000) unless this library knows the version of the objects, and ttl.container has the
 * columns that it knows: to be called before a policy is read or written.
 */
void
ttl_container_check_version(TupleDesc catalog)
{
	const char *strange;

	if (ttl_container_objects() != NULL && !version_is_known)
		version_is_known = check_version(InvalidOid, NULL);
	strange = strange_column(catalog);
	if (strange != NULL)
		refuse_others(psprintf(_("Column \"%s\" of %s.%s is missing, or not expected there."),
							   strange, TTL_SCHEMA, TTL_CONTAINER_TABLE));
}

/* Errors (55000) if a function in C of the schema isn't in the library. */
static void
check_symbols(Oid schema)
{
	Relation	rel = table_open(ProcedureRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_proc_pronamespace, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(schema));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_proc function = (Form_pg_proc) GETSTRUCT(tuple);
		bool		isnull;
		char	   *file;
		char	   *symbol;

		if (function->prolang != ClanguageId)
			continue;
		file = TextDatumGetCString(heap_getattr(tuple, Anum_pg_proc_probin, RelationGetDescr(rel), &isnull));
		symbol = TextDatumGetCString(heap_getattr(tuple, Anum_pg_proc_prosrc, RelationGetDescr(rel), &isnull));

		if (load_external_function(file, symbol, false, NULL) == NULL)
			refuse_others(psprintf(_("The library lacks \"%s\", of function %s.%s."), symbol, TTL_SCHEMA,
								   NameStr(function->proname)));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

PG_FUNCTION_INFO_V1(ttl_version);

/*
 * ttl.version(): that of the library and of the objects.  Errors (55000) if they don't fit; the
 * functions that nobody has called yet are looked at, too.
 */
Datum
ttl_version(PG_FUNCTION_ARGS)
{
	const TtlObjects *found = ttl_container_require_objects();
	Relation	catalog = table_open(found->catalog, AccessShareLock);

	ttl_container_check_version(RelationGetDescr(catalog));
	table_close(catalog, AccessShareLock);
	memset(function_oids, 0, sizeof(function_oids));
	for (int i = 0; i < lengthof(functions); i++)
		(void) function_oid(i);
	check_symbols(found->schema);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("library %s, objects %s", TTL_VERSION, OBJECTS_VERSION)));
}

/*
 * CREATE or ALTER EXTENSION has written a row of pg_extension, and not run the script
 * yet.  Errors (55000) if it is our extension in a version that this library doesn't
 * know.
 *
 * All sessions look for the objects again, and at all policies.  The schema's row
 * doesn't change by itself when an upgrade script runs.
 */
void
ttl_container_version_changed(Oid extension)
{
	HeapTuple	schema;
	Relation	rel;

	if (!check_version(extension, SnapshotSelf))
		return;
	schema = SearchSysCache1(NAMESPACENAME, CStringGetDatum(TTL_SCHEMA));
	if (!HeapTupleIsValid(schema))
		return;					/* the script will make it */
	rel = table_open(NamespaceRelationId, AccessShareLock);
	CacheInvalidateHeapTuple(rel, schema, NULL);
	table_close(rel, AccessShareLock);
	ReleaseSysCache(schema);
}

/* Errors (25006) where the named function can't write anything. */
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

/*
 * ttl_container_check_writable() for a function that changes something of ttl.  Keeps the extension from
 * being dropped until the transaction ends; errors (42704) if it has been.
 */
void
ttl_container_begin_change(const char *function)
{
	ttl_container_check_writable(function);
	(void) ttl_container_require_objects();
	LockDatabaseObject(ExtensionRelationId, get_extension_oid(TTL_EXTENSION, false),
					   0, AccessShareLock);
	/* it may have been dropped while this waited */
	(void) ttl_container_require_objects();
}

/* A schema may have changed: the extension may have come or gone. */
void
ttl_objects_invalidate(void)
{
	schema_invalidations++;
}
