/*-------------------------------------------------------------------------
 *
 * container.c
 *	  The extension's objects, the cache of which tables are containers, and their tables.
 *
 * The extension's objects.  The extension is found by the schema's name and a function in C in
 * it.  OIDs are looked up again after any change to pg_namespace, as both CREATE and DROP EXTENSION
 * make one; those of functions, and the version, when they are needed.  While its own script runs,
 * tables are plain tables; in the scripts of other extensions they are what they are everywhere.
 * Objects of another version than the library's are those of a later one: a package was upgraded
 * and the server not restarted, or a server was started with an older package than its database,
 * or its primary, has.  CREATE and ALTER EXTENSION then fail before their script begins; where the
 * objects are there already, whatever meets a container fails, for this library cannot evaluate
 * which of its rows are live.  Of a tree that isn't released there are many under one number: what
 * the library reads by position, and what it calls, is looked at itself (refuse_others()).
 *
 * The cache.  ttl_container_lookup() is called for each relation of each query that is planned, so
 * relations that are no containers have entries, too, and cost one hash probe.  An entry belongs
 * to a table or an index.  It holds which container a table is part of, where that container's
 * columns stand in it, and what else is derived from the catalogs (TtlDerived).  The policy is in
 * the entry of the container's own table alone, so a change of it is one message to all sessions,
 * those of standbys included, however many partitions there are.  ATTACH PARTITION makes tables
 * part of a container, and DETACH takes them out of one, without a write to ttl.container.  For a
 * partitioned table PostgreSQL then invalidates each table below it, too, since their partition
 * constraints change; the entries of the leaves rely on that.
 *
 * The relation cache callback removes an entry, so none outlives its table.  A value is therefore
 * loaded aside: reading the catalogs may run the callback.  An empty entry with a generation of
 * its own is entered before, and takes the value if it is still there afterwards.  If not, the
 * value serves this caller only.
 *
 * A look-up of catalogs may fail half-way (it waits for locks, and can be canceled), and may
 * process invalidations, after which what it has read before is no longer true.  Invalidations are
 * counted, therefore: a value that is kept elsewhere is remembered with the count from before the
 * look-up, by a look-up that has returned, and is used while the count is the same.
 *
 * The tables.  A container is one table, or a partitioned one with all its partitions (the tree).
 * Rows are in the leaves of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_subscription_rel.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "common/hashfn.h"
#include "container/container.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "ttl.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/*
 * The extension's objects in this database
 */

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
	[Anum_container_batch_size - 1] = "batch_size",
	[Anum_container_replication_origin - 1] = "replication_origin",
	[Anum_container_grace_began_at - 1] = "grace_began_at",
	[Anum_container_grace_noticed_at - 1] = "grace_noticed_at",
	[Anum_container_grace_partition - 1] = "grace_partition",
	[Anum_container_created_objects - 1] = "created_objects",
	[Anum_container_propagated - 1] = "propagated"
};

/* The C function by which the schema is recognized */
#define OWN_SYMBOL	"ttl_on_write"

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
		Datum symbol = SysCacheGetAttr(PROCNAMEARGSNSP, tuple, Anum_pg_proc_prosrc, &isnull);

		is_own = !isnull && strcmp(TextDatumGetCString(symbol), OWN_SYMBOL) == 0;
	}
	ReleaseSysCache(tuple);
	return is_own;
}

/*
 * True if that extension, as the snapshot sees it, is ours.  Errors (55000) if it is of a
 * version that this library doesn't know.
 */
static bool
check_version(Oid extension, Snapshot snapshot)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	bool		is_own;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(rel, ExtensionOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	is_own = HeapTupleIsValid(tuple) &&
		strcmp(NameStr(((Form_pg_extension) GETSTRUCT(tuple))->extname), TTL_EXTENSION) == 0;
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

	are_present = false;
	memset(function_oids, 0, sizeof(function_oids));
	version_is_known = false;
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
	if (known_as_of != schema_invalidations)
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

void
ttl_container_check_version(TupleDesc catalog)
{
	const char *strange;

	if (ttl_container_objects() != NULL && !version_is_known)
		version_is_known = check_version(get_extension_oid(TTL_EXTENSION, true), NULL);
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

/*
 * The cache: relation -> container
 */

uint64		ttl_invalidations = 1;

typedef struct DerivedValue
{
	bool		is_known;
	void	   *value;			/* one chunk, or NULL */
} DerivedValue;

typedef struct CacheEntry
{
	Oid			relid;			/* hash key */
	char		status;			/* simplehash's */
	bool		is_valid;		/* 'container' is known */
	uint64		generation;		/* no two entries ever had the same */
	TtlContainer *container;	/* NULL = not part of any; without the policy
								 * if the relation is a partition */
	DerivedValue derived[TTL_DERIVED_VALUES];
} CacheEntry;

#define SH_PREFIX cache
#define SH_ELEMENT_TYPE CacheEntry
#define SH_KEY_TYPE Oid
#define SH_KEY relid
#define SH_HASH_KEY(table, key) murmurhash32(key)
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static struct cache_hash *entries = NULL;
static MemoryContext entries_context = NULL;	/* holds all of it */

static uint64 last_generation = 0;

/* True if this may be a container or a partition of one.  Looks at pg_class only. */
static bool
may_be_container(Oid relid)
{
	char		relkind = get_rel_relkind(relid);

	return (relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		get_rel_persistence(relid) != RELPERSISTENCE_TEMP;
}

/* The relation's entry or NULL; it moves when others are entered or removed. */
static CacheEntry *
find_cached(Oid relid)
{
	return entries == NULL ? NULL : cache_lookup(entries, relid);
}

/* Its entry, which may be empty */
static CacheEntry *
enter_cached(Oid relid)
{
	CacheEntry *entry;
	bool		found;

	if (entries_context == NULL)
		entries_context = AllocSetContextCreate(TopMemoryContext, "ttl containers",
												ALLOCSET_DEFAULT_SIZES);
	if (entries == NULL)
		entries = cache_create(entries_context, 128, NULL);
	entry = cache_insert(entries, relid, &found);
	if (!found)
	{
		entry->is_valid = false;
		entry->container = NULL;
		memset(entry->derived, 0, sizeof(entry->derived));
		entry->generation = ++last_generation;
	}
	return entry;
}

/* The entry if it is still the same after catalogs have been read, or NULL */
static CacheEntry *
find_again(Oid relid, uint64 generation)
{
	CacheEntry *entry = find_cached(relid);

	return entry != NULL && entry->generation == generation ? entry : NULL;
}

static void *
copy_in(MemoryContext context, const void *value, Size size)
{
	return memcpy(MemoryContextAlloc(context, size), value, size);
}

void
ttl_container_find_columns(Oid relid, const TtlPolicy *policy, TtlContainer *container)
{
	bool		has_ts = NameStr(policy->ts_column)[0] != '\0';
	bool		has_own = NameStr(policy->ttl_column)[0] != '\0';
	Oid			type = InvalidOid;
	int32		typmod = -1;
	Oid			collation;

	container->relid = relid;
	container->ts_attno = has_ts ? get_attnum(relid, NameStr(policy->ts_column)) :
		InvalidAttrNumber;
	container->ttl_attno = has_own ? get_attnum(relid, NameStr(policy->ttl_column)) :
		InvalidAttrNumber;
	container->ttl_type = container->ttl_attno == InvalidAttrNumber ? NULL :
		ttl_type_of(get_atttype(relid, container->ttl_attno), policy->ttl_unit);
	if (container->ts_attno != InvalidAttrNumber)
		get_atttypetypmodcoll(relid, container->ts_attno, &type, &typmod, &collation);
	container->ts_type = ttl_type_of_clock(type, policy->ts_unit);
	container->lacks_column =
		(has_ts ? container->ts_type == NULL :
		 !ttl_type_is_deadline(container->ttl_type)) ||
		(has_own && container->ttl_type == NULL);
	if (container->ts_type != NULL && container->ts_type->instant == NULL)
		container->ts_type = NULL;
	container->ts_step = ttl_type_clock_step(container->ts_type, typmod, policy->ts_precision);
}

/*
 * Reads what ttl.container says about the relation, or about the partitioned
 * table it belongs to; false if it is not part of a container.
 */
static bool
read_container(Oid relid, TtlContainer *container)
{
	TtlPolicy	policy;

	memset(container, 0, sizeof(TtlContainer));
	if (ttl_policy_read(relid, &policy))
	{
		container->container = relid;
		container->policy = policy;
	}
	else if (get_rel_relispartition(relid))
	{
		ListCell   *lc;

		foreach(lc, get_partition_ancestors(relid))
		{
			if (ttl_policy_read(lfirst_oid(lc), &policy))
			{
				container->container = lfirst_oid(lc);
				break;
			}
		}
	}
	if (!OidIsValid(container->container))
		return false;
	ttl_container_find_columns(relid, &policy, container);
	return true;
}

static CacheEntry *
load_entry(Oid relid)
{
	CacheEntry *entry = enter_cached(relid);
	uint64		generation = entry->generation;
	TtlContainer container;
	bool		is_part = read_container(relid, &container);

	if (is_part && container.lacks_column)
	{
		/*
		 * The relation need not have been locked, so a RENAME COLUMN may have
		 * been committed between the looks at policy and columns.  When its
		 * lock has gone both can be read.
		 */
		LockRelationOid(relid, AccessShareLock);
		is_part = read_container(relid, &container);
		UnlockRelationOid(relid, AccessShareLock);
	}

	entry = find_again(relid, generation);
	if (entry == NULL)
	{
		entry = palloc0(sizeof(CacheEntry));
		entry->container = is_part ? copy_in(CurrentMemoryContext, &container, sizeof(container)) : NULL;
		return entry;
	}
	entry->container = is_part ? copy_in(entries_context, &container, sizeof(container)) : NULL;
	entry->is_valid = true;
	return entry;
}

/*
 * What is known of a relation, or NULL if it can't be a container.  The result is good until
 * catalogs are read.
 */
static const CacheEntry *
get_entry(Oid relid)
{
	CacheEntry *entry = find_cached(relid);

	if (entry != NULL && entry->is_valid)
		return entry;
	/* temporary tables would fill the cache */
	return may_be_container(relid) ? load_entry(relid) : NULL;
}

/* Its entry if it is a container or belongs to one, else NULL */
static const CacheEntry *
get_part(Oid relid)
{
	const CacheEntry *entry;

	if (IsCatalogRelationOid(relid) || ttl_container_objects() == NULL)
		return NULL;
	entry = get_entry(relid);
	return entry == NULL || entry->container == NULL ? NULL : entry;
}

bool
ttl_container_is_part(Oid relid)
{
	return get_part(relid) != NULL;
}

bool
ttl_container_peek(Oid relid, TtlContainer *container)
{
	const CacheEntry *entry = get_part(relid);

	if (entry == NULL)
		return false;
	*container = *entry->container;

	if (container->container != relid)
	{
		TtlContainer part = *container;

		entry = get_entry(part.container);
		if (entry == NULL || entry->container == NULL ||
			entry->container->container != part.container)
			return false;		/* dropped meanwhile */
		*container = *entry->container;
		container->relid = relid;
		container->lacks_column = part.lacks_column;
		container->ts_attno = part.ts_attno;
		container->ttl_attno = part.ttl_attno;
		container->ttl_type = part.ttl_type;
	}
	/* the container itself has the change of any partition */
	if (OidIsValid(container->policy.change.partition) && container->policy.change.partition != relid &&
		container->container != relid)
		memset(&container->policy.change, 0, sizeof(TtlChange));
	return true;
}

void
ttl_container_require_columns(const TtlContainer *container)
{
	if (container->lacks_column)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("container \"%s\" lacks a column that it requires",
						get_rel_name(container->container)),
				 errhint("Restore the columns that ttl.containers names, or use ttl.drop_container() to unregister the table.")));
}

bool
ttl_container_lookup(Oid relid, TtlContainer *container)
{
	if (!ttl_container_peek(relid, container))
		return false;
	ttl_container_require_columns(container);
	return true;
}

const void *
ttl_container_derive(Relation rel, TtlDerived which, void *(*derive) (Relation rel, Size *size))
{
	Oid			relid = RelationGetRelid(rel);
	CacheEntry *entry = enter_cached(relid);
	uint64		generation;
	void	   *value;
	Size		size = 0;

	if (entry->derived[which].is_known)
		return entry->derived[which].value;

	generation = entry->generation;
	value = derive(rel, &size);
	entry = find_again(relid, generation);
	if (entry == NULL)
		return value;
	entry->derived[which].value = value == NULL ? NULL : copy_in(entries_context, value, size);
	entry->derived[which].is_known = true;
	return entry->derived[which].value;
}

static void
remove_entry(CacheEntry *entry)
{
	if (entry->container != NULL)
		pfree(entry->container);
	for (int i = 0; i < TTL_DERIVED_VALUES; i++)
	{
		if (entry->derived[i].value != NULL)
			pfree(entry->derived[i].value);
	}
	cache_delete_item(entries, entry);
}

void
ttl_container_invalidate(Oid relid)
{
	CacheEntry *entry;

	ttl_invalidations++;
	if (entries == NULL)
		return;
	if (OidIsValid(relid))
	{
		entry = find_cached(relid);
		if (entry != NULL)
			remove_entry(entry);
	}
	else
	{
		MemoryContextReset(entries_context);
		entries = NULL;
	}
}

void
ttl_container_invalidate_schema(void)
{
	schema_invalidations++;
	ttl_container_invalidate(InvalidOid);
}

/*
 * The tables of a container, and whose they are
 */

/*
 * Unlike find_all_inheritors(), which fails if one of them is dropped meanwhile, this needs no
 * locks: between the two looks at a relation's syscache entry no invalidation is accepted.
 */
List *
ttl_container_tables(Oid relid)
{
	List	   *tables = list_make1_oid(relid);
	ListCell   *lc;

	/* the list grows */
	foreach(lc, tables)
	{
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_PARTITIONED_TABLE)
			tables = list_concat(tables, find_inheritance_children(lfirst_oid(lc), NoLock));
	}
	return tables;
}

List *
ttl_container_leaves(Oid container)
{
	List	   *leaves = NIL;
	ListCell   *lc;

	foreach(lc, ttl_container_tables(container))
	{
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_RELATION)
			leaves = lappend_oid(leaves, lfirst_oid(lc));
	}
	return leaves;
}

Relation
ttl_container_open_if_free(Oid relid, bool *busy)
{
	Relation	rel;

	*busy = !ConditionalLockRelationOid(relid, AccessShareLock);
	if (*busy)
		return NULL;
	rel = try_relation_open(relid, NoLock);
	if (rel == NULL)
		UnlockRelationOid(relid, AccessShareLock);
	return rel;
}

bool
ttl_container_has_pages(Oid relid)
{
	ListCell   *lc;

	foreach(lc, ttl_container_leaves(relid))
	{
		bool		busy;
		bool		has_pages;
		Relation	rel = ttl_container_open_if_free(lfirst_oid(lc), &busy);

		if (busy)
			return true;
		if (rel == NULL)
			continue;
		has_pages = RelationGetNumberOfBlocks(rel) > 0;
		relation_close(rel, NoLock);
		if (has_pages)
			return true;
	}
	return false;
}

List *
ttl_container_subscribed_tables(bool only_added)
{
	Relation	rel = table_open(SubscriptionRelRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	List	   *tables = NIL;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		if (!only_added ||
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
			tables = list_append_unique_oid(tables,
											((Form_pg_subscription_rel) GETSTRUCT(tuple))->srrelid);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return tables;
}

bool
ttl_container_pglogical_subscribes(void)
{
	Oid			schema = get_namespace_oid("pglogical", true);
	Oid			relid = OidIsValid(schema) ? get_relname_relid("local_sync_status", schema) : InvalidOid;
	Relation	rel = OidIsValid(relid) ? try_relation_open(relid, AccessShareLock) : NULL;
	bool		subscribes = false;

	if (rel == NULL)
		return false;
	if (rel->rd_rel->relkind == RELKIND_RELATION)
	{
		SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);

		subscribes = HeapTupleIsValid(systable_getnext(scan));
		systable_endscan(scan);
	}
	relation_close(rel, AccessShareLock);
	return subscribes;
}

char *
ttl_container_table_name(Oid relid)
{
	char	   *name = get_rel_name(relid);

	return name == NULL ? psprintf("%u", relid) :
		quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), name);
}

char *
ttl_container_qualified_name(Oid relid)
{
	char	   *name = get_rel_name(relid);

	return name == NULL ? psprintf("%u", relid) :
		psprintf("%s.%s", get_namespace_name(get_rel_namespace(relid)), name);
}

Oid
ttl_container_owner(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* As long as it is being detached, it has the triggers of the table above. */
Oid
ttl_container_ancestor_of_other(Oid relid)
{
	Oid			owner = ttl_container_owner(relid);

	while (get_rel_relispartition(relid))
	{
		relid = get_partition_parent(relid, true);
		if (ttl_container_owner(relid) != owner)
			return relid;
	}
	return InvalidOid;
}

bool
ttl_container_is_owner(Oid user, Oid relid)
{
	Oid			owner = ttl_container_owner(relid);

	return OidIsValid(owner) && has_privs_of_role(user, owner);
}

static void
check_exists(Oid relid)
{
	if (!OidIsValid(ttl_container_owner(relid)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
}

List *
ttl_container_tree(Oid relid, LOCKMODE lockmode)
{
	if (lockmode != NoLock)
		LockRelationOid(relid, lockmode);
	check_exists(relid);
	return lockmode == NoLock ? ttl_container_tables(relid) :
		find_all_inheritors(relid, lockmode, NULL);
}

Relation
ttl_container_open(Oid relid, LOCKMODE lockmode)
{
	Relation	rel = try_relation_open(relid, lockmode);

	if (rel == NULL)
		check_exists(relid);
	return rel;
}

void
ttl_container_check_owner(Oid relid)
{
	check_exists(relid);
	if (!ttl_container_is_owner(GetUserId(), relid))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
}

void
ttl_container_require(Oid relid, TtlPolicy *policy)
{
	if (ttl_policy_read(relid, policy))
		return;
	check_exists(relid);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("\"%s\" is not a container", get_rel_name(relid)),
			 errhint("Register the table with ttl.create_container(), or name the partitioned table that it belongs to.")));
}

void
ttl_container_check_owned(Oid container)
{
	TtlPolicy	policy;

	ttl_container_check_owner(container);
	ttl_container_require(container, &policy);
}
