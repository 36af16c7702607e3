/*-------------------------------------------------------------------------
 *
 * container.c
 *	  Which tables are containers, and their policies.
 *
 * The extension's objects.  The extension is found by the schema's name and a function in C in
 * it.  OIDs are looked up again after any change to pg_namespace, as both CREATE and DROP EXTENSION
 * make one; those of functions, and the version, when they are needed.  While its own script runs,
 * tables are plain tables; in the scripts of other extensions they are what they are everywhere.
 * The library works with each version of the objects that was released before it.  An unknown
 * version is a later one: a package was upgraded and the server not restarted, or a server was
 * started with an older package than its database, or its primary, has.  CREATE and ALTER
 * EXTENSION then fail before their script begins; where the objects are there already, whatever
 * meets a container fails, for this library cannot evaluate which of its rows are live.
 *
 * Rows of ttl.container.  They are read by a catalog snapshot, i.e. as of now and not as of the
 * transaction's snapshot: a change of policy is in force with the next statement of every session.
 * As with a catalog, no predicate locks are taken in SERIALIZABLE, see next_row().  They are
 * written without going through SQL, so no privilege is needed, and no trigger fires; by SQL come
 * in only those of a dump that is restored, and those that a publication FOR ALL TABLES sends.
 * Every write invalidates the relation cache entry of the container's table, for the cache below
 * and for cached plans.
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
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
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
#include "commands/trigger.h"
#include "common/hashfn.h"
#include "compat.h"
#include "container/container.h"
#include "container/policy.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "replication/logicalworker.h"
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
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/*
 * The extension's objects in this database
 */

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

/* How often pg_namespace has been invalidated in this process */
static uint64 schema_invalidations = 1;

/*
 * The objects, if there are any, what else has been looked up since, and
 * schema_invalidations before that
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
		Datum symbol = SysCacheGetAttr(PROCNAMEARGSNSP, tuple, Anum_pg_proc_prosrc, &isnull);

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
	uint64		count = schema_invalidations;
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

/* To be called before a policy is read or written. */
static void
check_version(void)
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

/*
 * Rows of ttl.container
 */

#define PRIMARY_KEY	"container_pkey"

/* Containers whose rows have been written since ttl_container_take_changed() was called */
static List *changed = NIL;

List *
ttl_container_take_changed(void)
{
	List	   *result = list_copy(changed);

	list_free(changed);
	changed = NIL;
	return result;
}

void
ttl_container_announce_change(Oid container, bool replan)
{
	MemoryContext old;
	ListCell   *lc;

	CacheInvalidateRelcacheByRelid(container);
	if (replan)
	{
		foreach(lc, ttl_container_tables(container))
			CacheInvalidateRelcacheByRelid(lfirst_oid(lc));
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	changed = list_append_unique_oid(changed, container);
	MemoryContextSwitchTo(old);
}

/*
 * Logs a change of a policy, with the role that makes it.  It is logged when it is made,
 * as by log_statement; it may still be rolled back.
 */
static void
log_change(Oid container, const TtlPolicy *old, const TtlPolicy *new)
{
	char	   *differences = ttl_policy_differences(old, new);

	if (differences[0] != '\0')
		ereport(LOG,
				(errmsg("role \"%s\" has changed the policy of container \"%s\": %s",
						GetUserNameFromId(GetUserId(), false),
						ttl_container_qualified_name(container), differences)));
	pfree(differences);
}

/* A scan of ttl.container */
typedef struct CatalogScan
{
	Relation	rel;			/* NULL if the extension has gone */
	LOCKMODE	lockmode;
	Snapshot	snapshot;
	SysScanDesc scan;
} CatalogScan;

/*
 * The next row, NULL if there is none.
 *
 * PostgreSQL exempts its own catalogs from predicate locking, and any scan with a snapshot
 * that isn't an MVCC one.  So all row versions are scanned, and the catalog snapshot is
 * applied here.
 */
static HeapTuple
next_row(CatalogScan *scan)
{
	HeapTuple	tuple;

	if (scan->rel == NULL)
		return NULL;
	do
		tuple = systable_getnext(scan->scan);
	while (HeapTupleIsValid(tuple) &&
		   !table_tuple_satisfies_snapshot(scan->rel, scan->scan->slot, scan->snapshot));
	return tuple;
}

/*
 * Begins a scan of the rows in which a column, which has that index, equals the value, or
 * of all rows (InvalidOid).  The extension may be gone, maybe while this waited for the
 * lock: then there are no rows.
 */
static void
begin_scan(CatalogScan *scan, const char *index_name, AttrNumber column, Oid value,
		   LOCKMODE lockmode)
{
	const TtlObjects *objects = ttl_container_objects();
	ScanKeyData key;
	Oid			index;

	scan->rel = objects == NULL ? NULL : try_table_open(objects->catalog, lockmode);
	if (scan->rel == NULL)
		return;
	scan->lockmode = lockmode;
	/* REINDEX CONCURRENTLY makes it another index of that name */
	index = get_relname_relid(index_name, RelationGetNamespace(scan->rel));

	/*
	 * taken before the scan, it keeps the versions that it sees from being
	 * pruned
	 */
	scan->snapshot = RegisterSnapshot(GetCatalogSnapshot(RelationGetRelid(scan->rel)));
	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(value));
	scan->scan = systable_beginscan(scan->rel, index, OidIsValid(index), SnapshotAny,
									OidIsValid(value) ? 1 : 0, &key);
}

/* The same by the container */
static void
begin_scan_of(CatalogScan *scan, Oid container, LOCKMODE lockmode)
{
	begin_scan(scan, PRIMARY_KEY, Anum_container_relid, container, lockmode);
}

/*
 * False if ttl.container has no row of the relation, be it one that is not visible: the index
 * has none.  Most tables are no containers, and opening the index alone costs a session's first
 * statement a third of what opening the table does.
 */
static bool
may_have_row(Oid relid)
{
	const TtlObjects *objects = ttl_container_objects();
	Relation	index = NULL;
	bool		found = true;

	if (objects == NULL)
		return false;
	if (!IgnoreSystemIndexes)
		index = try_relation_open(get_relname_relid(PRIMARY_KEY, objects->schema), AccessShareLock);
	if (index != NULL && index->rd_rel->relkind == RELKIND_INDEX && index->rd_index->indisvalid)
	{
		IndexScanDesc scan = TtlIndexBeginscanBitmap(index, SnapshotAny, 1);
		TIDBitmap  *tids = tbm_create(work_mem * 1024L, NULL);
		ScanKeyData key;

		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
		index_rescan(scan, &key, 1, NULL, 0);
		found = index_getbitmap(scan, tids) > 0;
		index_endscan(scan);
		tbm_free(tids);
	}
	if (index != NULL)
		relation_close(index, AccessShareLock);
	return found;
}

static void
end_scan(CatalogScan *scan)
{
	if (scan->rel == NULL)
		return;
	systable_endscan(scan->scan);
	UnregisterSnapshot(scan->snapshot);
	table_close(scan->rel, scan->lockmode);
}

static void
policy_of_tuple(HeapTuple tuple, TupleDesc desc, TtlPolicy *policy)
{
	int			natts = Max(desc->natts, Natts_container);
	Datum	   *values = palloc0(natts * sizeof(Datum));
	bool	   *nulls = palloc(natts * sizeof(bool));

	check_version();
	memset(nulls, true, natts * sizeof(bool));
	heap_deform_tuple(tuple, desc, values, nulls);
	ttl_policy_read(policy, values, nulls);
}

static HeapTuple
form(Oid container, const TtlPolicy *policy, TupleDesc desc)
{
	int			natts = Max(desc->natts, Natts_container);
	Datum	   *values = palloc0(natts * sizeof(Datum));
	bool	   *nulls = palloc(natts * sizeof(bool));

	check_version();
	memset(nulls, true, natts * sizeof(bool));
	values[Anum_container_relid - 1] = ObjectIdGetDatum(container);
	nulls[Anum_container_relid - 1] = false;
	ttl_policy_write(policy, values, nulls);
	return heap_form_tuple(desc, values, nulls);
}

bool
ttl_container_read(Oid container, TtlPolicy *policy)
{
	CatalogScan scan;
	HeapTuple	tuple;

	if (!may_have_row(container))
		return false;
	begin_scan_of(&scan, container, AccessShareLock);
	tuple = next_row(&scan);
	if (HeapTupleIsValid(tuple))
		policy_of_tuple(tuple, RelationGetDescr(scan.rel), policy);
	end_scan(&scan);
	return HeapTupleIsValid(tuple);
}

void
ttl_container_insert(Oid container, const TtlPolicy *policy)
{
	Relation	rel = table_open(ttl_container_require_objects()->catalog, RowExclusiveLock);

	CatalogTupleInsert(rel, form(container, policy, RelationGetDescr(rel)));
	table_close(rel, RowExclusiveLock);
	ereport(LOG,
			(errmsg("role \"%s\" has made table \"%s\" a container: default_ttl %s",
					GetUserNameFromId(GetUserId(), false), ttl_container_qualified_name(container),
					ttl_policy_default_ttl_text(policy->default_ttl))));
	ttl_container_announce_change(container, true);
	CommandCounterIncrement();
}

void
ttl_container_update(Oid container, const TtlPolicy *policy)
{
	CatalogScan scan;
	HeapTuple	old;
	TtlPolicy	old_policy;
	bool		replans = false;

	begin_scan_of(&scan, container, RowExclusiveLock);
	old = next_row(&scan);
	if (!HeapTupleIsValid(old))
		elog(ERROR, "no row in ttl.container for relation %u", container);
	policy_of_tuple(old, RelationGetDescr(scan.rel), &old_policy);
	CatalogTupleUpdate(scan.rel, &old->t_self,
					   form(container, policy, RelationGetDescr(scan.rel)));
	end_scan(&scan);
	log_change(container, &old_policy, policy);
	for (int i = 0; i < ttl_nsettings; i++)
		replans = replans || (ttl_settings[i].replans &&
							  ttl_policy_setting_differs(&old_policy, policy, &ttl_settings[i]));
	ttl_container_announce_change(container, replans);
	CommandCounterIncrement();
}

void
ttl_container_delete(Oid container)
{
	CatalogScan scan;
	HeapTuple	tuple;

	begin_scan_of(&scan, container, RowExclusiveLock);
	tuple = next_row(&scan);
	if (HeapTupleIsValid(tuple))
		CatalogTupleDelete(scan.rel, &tuple->t_self);
	end_scan(&scan);
	if (get_rel_relkind(container) != '\0')
		ttl_container_announce_change(container, true);
	CommandCounterIncrement();
}

/* Stores that table as the archive, or InvalidOid: it is being dropped, and reaping ends. */
void
ttl_container_replace_archive(Oid container, Oid archive)
{
	TtlPolicy	policy;

	ttl_container_lock_policy(container, true, true);
	if (!ttl_container_read(container, &policy) || policy.propagated)
		return;
	if (OidIsValid(archive))
		policy.archive_to = archive;
	else
		ttl_policy_lose_archive(container, &policy);
	ttl_container_update(container, &policy);
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

static Oid
relid_of(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;

	return DatumGetObjectId(heap_getattr(tuple, Anum_container_relid, desc, &isnull));
}

/* True if the container of that row of ttl.container is one of these. */
static bool
is_listed(HeapTuple tuple, TupleDesc desc, TtlContainers which)
{
	Oid			relid = relid_of(tuple, desc);
	TtlPolicy	policy;
	TtlContainer container;

	if (which != TTL_CONTAINERS_SOUND)
		return (get_rel_relkind(relid) != '\0') == (which == TTL_CONTAINERS_STORED);
	policy_of_tuple(tuple, desc, &policy);
	ttl_container_find_columns(relid, &policy, &container);
	return !container.lacks_column;
}

List *
ttl_container_list(TtlContainers which)
{
	List	   *containers = NIL;
	CatalogScan scan;
	HeapTuple	tuple;

	begin_scan_of(&scan, InvalidOid, AccessShareLock);
	while (HeapTupleIsValid(tuple = next_row(&scan)))
	{
		if (is_listed(tuple, RelationGetDescr(scan.rel), which))
			containers = lappend_oid(containers, relid_of(tuple, RelationGetDescr(scan.rel)));
	}
	end_scan(&scan);
	return containers;
}

List *
ttl_container_list_archiving_to(Oid archive)
{
	List	   *containers = NIL;
	CatalogScan scan;
	HeapTuple	tuple;

	begin_scan(&scan, "container_archive_to_idx", Anum_container_archive_to, archive,
			   AccessShareLock);
	while (HeapTupleIsValid(tuple = next_row(&scan)))
		containers = lappend_oid(containers, relid_of(tuple, RelationGetDescr(scan.rel)));
	end_scan(&scan);
	return containers;
}

bool
ttl_container_archives_into(Oid archive, Oid target)
{
	List	   *seen = NIL;
	TtlContainer container;

	while (OidIsValid(archive) && !list_member_oid(seen, archive))
	{
		if (archive == target)
			return true;
		/* another session may be giving this one an archive */
		if (!ttl_container_peek(archive, &container) ||
			!ttl_container_lock_policy(container.container, false, true) ||
			!ttl_container_peek(archive, &container))
			return false;
		if (container.container == target)
			return true;
		seen = lappend_oid(seen, archive);
		archive = container.policy.archive_to;
	}
	return false;
}

bool
ttl_container_forget_dropped(Oid container)
{
	TtlPolicy	policy;

	if (get_rel_relkind(container) != '\0' ||
		!ttl_container_read(container, &policy) ||
		!ttl_container_lock_policy(container, true, true) ||
		!ttl_container_read(container, &policy))
		return false;
	ttl_container_delete(container);
	ereport(LOG,
			(errmsg("policy of relation %u was removed because there is no such table any more",
					container)));
	return true;
}

bool
ttl_container_lock_policy(Oid container, bool exclusive, bool wait)
{
	const TtlObjects *objects = ttl_container_objects();
	LOCKTAG		tag;

	if (objects == NULL)
		return false;			/* nothing left to protect */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, objects->catalog, container, 0);
	if (LockAcquire(&tag, exclusive ? AccessExclusiveLock : ShareLock,
					false, !wait) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	AcceptInvalidationMessages();
	return true;
}

/*
 * Rows that come in by SQL
 */

static void
refuse_change(Relation rel)
{
	bool		is_pause = rel->rd_rel->relkind != RELKIND_VIEW &&
	RelationGetRelid(rel) != ttl_container_objects()->catalog;

	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("rows of \"%s.%s\" cannot be changed directly",
					TTL_SCHEMA, RelationGetRelationName(rel)),
			 is_pause ? errhint("Use ttl.pause() or ttl.resume().") :
			 errhint("Use ttl.create_container(), ttl.set_default_ttl(), ttl.alter_container() or ttl.drop_container().")));
}

/*
 * Says what is left to do after a restore of containers.  Scripts of pg_dump let nothing
 * less than a WARNING through.
 */
static void
remind_of_reaping(int64 restored)
{
	if (restored > 0)
		ereport(WARNING,
				(errmsg_plural("%lld container was restored with reaping off",
							   "%lld containers were restored with reaping off",
							   (unsigned long) restored, (long long) restored),
				 errdetail("Expired rows are hidden, and none is deleted."),
				 errhint("Use ttl.alter_container(..., reaping => true) to have them deleted.")));
}

/*
 * Warns unless the policy of a row that is restored can be one of that table.  Where a table
 * was dropped while the library wasn't loaded, a dump may have its OID, which is that of
 * another table here, or of none.
 */
static bool
can_be_restored(Oid relid, HeapTuple tuple, TupleDesc desc)
{
	char		relkind = get_rel_relkind(relid);
	TtlPolicy	policy;
	TtlContainer container;

	policy_of_tuple(tuple, desc, &policy);
	ttl_container_find_columns(relid, &policy, &container);
	if ((relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		!container.lacks_column)
		return true;
	ereport(WARNING,
			(errmsg("policy of table \"%s\" was not restored", ttl_container_qualified_name(relid)),
			 relkind == '\0' ? errdetail("There is no such table.") :
			 errdetail("The table lacks a column that the policy names, so the policy is that of another one.")));
	return false;
}

PG_FUNCTION_INFO_V1(ttl_restore_container);

/*
 * ttl.restore_container() trigger
 *
 * Fires for rows that come in by SQL, which is pg_restore's COPY.  What has
 * expired since the dump was made must not be deleted before the
 * owner says so; hence reaping is off.  And the policy is not propagated to a table that was
 * restored, be it that of a shard.  The policy of a container that is there
 * already is left alone, but for that of an extension's table, which its script
 * has registered by its own arguments, and not as the database had it.
 *
 * And for what a publication FOR ALL TABLES sends of the publisher's policies.
 * The subscriber's are its own, as is a pause (ttl.paused).
 *
 * A policy of a table that is gone, or can't be of that table, is not restored.
 *
 * A superuser who changes rows by hand is refused: the policy would be in force
 * at some time or never, and unchecked.
 *
 * When all rows are in, it fires once more, to remind who restores them.
 */
Datum
ttl_restore_container(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	HeapTuple	tuple;
	Datum		relid;
	bool		isnull;
	Datum		archive;
	int			columns[] = {Anum_container_reaping, Anum_container_propagated,
	Anum_container_archive_to, Anum_container_archive_columns};
	Datum		off[] = {BoolGetDatum(false), BoolGetDatum(false), 0, 0};
	bool		nulls[] = {false, false, true, true};
	int			ncolumns = 2;
	TtlPolicy	existing;

	if (!CALLED_AS_TRIGGER(fcinfo) || ttl_container_objects() == NULL ||
		RelationGetNamespace(trigger->tg_relation) != ttl_container_objects()->schema)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired by a trigger of ttl.container",
						"restore_container")));
	if (RelationGetRelid(trigger->tg_relation) != ttl_container_objects()->catalog)
	{
		/* ttl.paused, or the view ttl.containers */
		if (!IsLogicalWorker())
			refuse_change(trigger->tg_relation);
		return PointerGetDatum(NULL);
	}

	if (TRIGGER_FIRED_AFTER(trigger->tg_event))
	{
		if (trigger->tg_newtable != NULL)
			remind_of_reaping(tuplestore_tuple_count(trigger->tg_newtable));
		return PointerGetDatum(NULL);
	}
	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		refuse_change(trigger->tg_relation);
	if (IsLogicalWorker())
		return PointerGetDatum(NULL);

	desc = RelationGetDescr(trigger->tg_relation);
	tuple = trigger->tg_trigtuple;
	relid = heap_getattr(tuple, Anum_container_relid, desc, &isnull);
	if (TRIGGER_FIRED_BY_DELETE(trigger->tg_event) &&
		get_rel_relkind(DatumGetObjectId(relid)) == '\0')
		return PointerGetDatum(tuple);	/* the table has gone */
	if (!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		refuse_change(trigger->tg_relation);
	/* the NOT NULL constraint is checked later */
	if (isnull)
		return PointerGetDatum(tuple);
	if (!can_be_restored(DatumGetObjectId(relid), tuple, desc))
		return PointerGetDatum(NULL);
	if (ttl_container_read(DatumGetObjectId(relid), &existing))
	{
		if (!OidIsValid(getExtensionOfObject(RelationRelationId, DatumGetObjectId(relid))))
		{
			ereport(LOG,
					(errmsg("container \"%s\" already exists; its policy was left alone",
							ttl_container_qualified_name(DatumGetObjectId(relid)))));
			return PointerGetDatum(NULL);
		}
		ttl_container_delete(DatumGetObjectId(relid));
	}
	archive = heap_getattr(tuple, Anum_container_archive_to, desc, &isnull);
	/* a propagated policy names the table itself */
	if (!isnull && (archive == relid || get_rel_relkind(DatumGetObjectId(archive)) == '\0'))
	{
		ncolumns = lengthof(columns);
		ereport(WARNING,
				(errmsg("container \"%s\" was restored without its archive",
						ttl_container_qualified_name(DatumGetObjectId(relid))),
				 errdetail("There is no such table.")));
	}
	ttl_container_announce_change(DatumGetObjectId(relid), true);
	ereport(LOG,
			(errmsg("container \"%s\" was restored with reaping off",
					ttl_container_qualified_name(DatumGetObjectId(relid))),
			 errhint("Use ttl.alter_container(..., reaping => true) to have its expired rows deleted.")));
	return PointerGetDatum(heap_modify_tuple_by_cols(tuple, desc, ncolumns, columns, off, nulls));
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

uint64
ttl_container_generation(Oid relid)
{
	return enter_cached(relid)->generation;
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

/*
 * Reads what ttl.container says about the relation, or about the partitioned
 * table it belongs to; false if it is not part of a container.
 */
static bool
read_container(Oid relid, TtlContainer *container)
{
	TtlPolicy	policy;

	memset(container, 0, sizeof(TtlContainer));
	if (ttl_container_read(relid, &policy))
	{
		container->container = relid;
		container->policy = policy;
		container->policy.archive_columns = NIL;
	}
	else if (get_rel_relispartition(relid))
	{
		ListCell   *lc;

		foreach(lc, get_partition_ancestors(relid))
		{
			if (ttl_container_read(lfirst_oid(lc), &policy))
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
	TtlContainer container;

	if (ttl_container_read(relid, policy))
		return;
	check_exists(relid);
	if (ttl_container_lookup(relid, &container))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a container", get_rel_name(relid)),
				 errdetail("It is a partition of container \"%s\".",
						   get_rel_name(container.container)),
				 errhint("Use the partitioned table.")));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("\"%s\" is not a container", get_rel_name(relid)),
			 errhint("Register the table with ttl.create_container().")));
}

void
ttl_container_check_owned(Oid container)
{
	TtlPolicy	policy;

	ttl_container_check_owner(container);
	ttl_container_require(container, &policy);
}
