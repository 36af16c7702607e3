/*-------------------------------------------------------------------------
 *
 * container_catalog.c
 *	  Reads and writes ttl.container.
 *
 * The table is read by a catalog snapshot, i.e. as of now and not as of the
 * transaction's snapshot: a change of policy is in force with the next
 * statement of every session.  As with a catalog, no predicate locks are taken in
 * SERIALIZABLE, see next_row().  It is written without going through SQL, so
 * no privilege on it is needed, and no trigger fires; the ways rows come in by
 * SQL are the restore of a dump and replication, see restore.c.
 *
 * Every write invalidates the relation cache entry of the container's table,
 * for container_cache.c and for cached plans.
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
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "compat.h"
#include "container/container.h"
#include "container/policy.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "ttl.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#define PRIMARY_KEY	"container_pkey"

List	   *ttl_container_changed = NIL;

static bool has_changed = false;

bool
ttl_container_has_changed(void)
{
	bool		result = has_changed;

	has_changed = false;
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
	has_changed = true;
	old = MemoryContextSwitchTo(TopMemoryContext);
	ttl_container_changed = list_append_unique_oid(ttl_container_changed, container);
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
	/* taken before the scan, it keeps the versions that it sees from being pruned */
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

void
ttl_policy_of_tuple(HeapTuple tuple, TupleDesc desc, TtlPolicy *policy)
{
	int			natts = Max(desc->natts, Natts_container);
	Datum	   *values = palloc0(natts * sizeof(Datum));
	bool	   *nulls = palloc(natts * sizeof(bool));

	ttl_container_check_version();
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

	ttl_container_check_version();
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
		ttl_policy_of_tuple(tuple, RelationGetDescr(scan.rel), policy);
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
	ttl_policy_of_tuple(old, RelationGetDescr(scan.rel), &old_policy);
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

void
ttl_container_notice_change(Oid container)
{
	TtlPolicy	policy;

	/* the table, too: RENAME COLUMN comes for the policy with a lock on it */
	if (!ConditionalLockRelationOid(container, AccessShareLock) ||
		!ttl_container_lock_policy(container, true, false) ||
		!ttl_container_read(container, &policy) ||
		policy.change.changed_at == 0)
		return;
	policy.change.noticed_at = GetCurrentTimestamp();
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

/* OIDs of the containers whose row, and table, fulfil the condition */
static List *
list_containers(bool (*condition) (HeapTuple tuple, TupleDesc desc))
{
	List	   *containers = NIL;
	CatalogScan scan;
	HeapTuple	tuple;

	begin_scan_of(&scan, InvalidOid, AccessShareLock);
	while (HeapTupleIsValid(tuple = next_row(&scan)))
	{
		if (condition(tuple, RelationGetDescr(scan.rel)))
			containers = lappend_oid(containers, relid_of(tuple, RelationGetDescr(scan.rel)));
	}
	end_scan(&scan);
	return containers;
}

/* One that has lost its columns must not keep the others from being reaped. */
static bool
is_sound(HeapTuple tuple, TupleDesc desc)
{
	TtlPolicy	policy;
	TtlContainer container;

	ttl_policy_of_tuple(tuple, desc, &policy);
	ttl_container_find_columns(relid_of(tuple, desc), &policy, &container);
	return !container.lacks_column;
}

List *
ttl_container_list(void)
{
	return list_containers(is_sound);
}

static bool
has_table(HeapTuple tuple, TupleDesc desc)
{
	return get_rel_relkind(relid_of(tuple, desc)) != '\0';
}

List *
ttl_container_list_with_damaged(void)
{
	return list_containers(has_table);
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
		archive = container.archive_to;
	}
	return false;
}

static bool
is_dropped(HeapTuple tuple, TupleDesc desc)
{
	return get_rel_relkind(relid_of(tuple, desc)) == '\0';
}

List *
ttl_container_list_dropped(void)
{
	return list_containers(is_dropped);
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
