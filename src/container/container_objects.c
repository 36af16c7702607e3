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
 * The callback only sets a flag: it must not read catalogs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "container/container.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

typedef enum ObjectsState
{
	OBJECTS_UNKNOWN,
	OBJECTS_ABSENT,				/* there is no schema of that name */
	OBJECTS_PRESENT
} ObjectsState;

static ObjectsState objects_state = OBJECTS_UNKNOWN;
static TtlObjects objects;

static Oid
find_function(Oid schema, const char *name, int nargs, const Oid *args)
{
	oidvector  *argvector = buildoidvector(args, nargs);

	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
						   CStringGetDatum(name),
						   PointerGetDatum(argvector),
						   ObjectIdGetDatum(schema));
}

/* The OID of the primary key's index, without opening anything. */
static Oid
find_catalog_pkey(Oid schema)
{
	return get_relname_relid(TTL_CONTAINER_TABLE "_pkey", schema);
}

/*
 * Finds the extension's objects.  Incomplete ones are not remembered: a schema
 * of that name that isn't the extension's, or a script that is running.
 */
static void
find_objects(void)
{
	static const Oid is_live_args[] = {REGCLASSOID, TIMESTAMPTZOID, INT4OID};
	static const Oid item_expiry_args[] = {TIMESTAMPTZOID, INT4OID};
	static const Oid stamp_args[] = {TIMESTAMPTZOID};
	TtlObjects	found;

	objects_state = OBJECTS_ABSENT;
	found.schema = get_namespace_oid(TTL_SCHEMA, true);
	if (!OidIsValid(found.schema))
		return;

	objects_state = OBJECTS_UNKNOWN;
	found.catalog = get_relname_relid(TTL_CONTAINER_TABLE, found.schema);
	if (!OidIsValid(found.catalog))
		return;
	found.extension = get_extension_oid(TTL_EXTENSION, true);
	if (!OidIsValid(found.extension) ||
		getExtensionOfObject(RelationRelationId, found.catalog) != found.extension)
		return;
	found.catalog_pkey = find_catalog_pkey(found.schema);
	found.is_live = find_function(found.schema, "is_live", 3, is_live_args);
	found.is_live_by_place = find_function(found.schema, "is_live", 1, is_live_args);
	found.is_expired = find_function(found.schema, "is_expired", 3, is_live_args);
	found.stamp = find_function(found.schema, "stamp", 1, stamp_args);
	found.item_expiry = find_function(found.schema, "item_expiry", 2, item_expiry_args);
	found.check_reference = find_function(found.schema, "check_reference", 0, NULL);
	if (!OidIsValid(found.catalog_pkey) || !OidIsValid(found.is_live) ||
		!OidIsValid(found.is_live_by_place) || !OidIsValid(found.is_expired) ||
		!OidIsValid(found.stamp) || !OidIsValid(found.item_expiry) ||
		!OidIsValid(found.check_reference))
		return;

	objects = found;
	objects_state = OBJECTS_PRESENT;
}

const TtlObjects *
ttl_container_objects(void)
{
	if (IsBinaryUpgrade || !IsTransactionState())
		return NULL;
	if (objects_state == OBJECTS_UNKNOWN)
		find_objects();
	if (objects_state != OBJECTS_PRESENT ||
		(creating_extension && CurrentExtensionObject == objects.extension))
		return NULL;
	return &objects;
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
ttl_container_hold_extension(void)
{
	LockDatabaseObject(ExtensionRelationId, ttl_container_require_objects()->extension,
					   0, AccessShareLock);
	(void) ttl_container_require_objects();
}

void
ttl_container_forget_objects(void)
{
	objects_state = OBJECTS_UNKNOWN;
}

static void
invalidate_objects(Datum arg, int cacheid, uint32 hashvalue)
{
	objects_state = OBJECTS_UNKNOWN;
}

void
ttl_container_objects_init(void)
{
	CacheRegisterSyscacheCallback(NAMESPACEOID, invalidate_objects, 0);
}
