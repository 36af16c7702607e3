/*-------------------------------------------------------------------------
 *
 * policy.c
 *	  The rows of ttl.container, where policies are stored.
 *
 * They are read by a catalog snapshot, i.e. as of now and not as of the
 * transaction's snapshot: a change of policy is in force with the next statement of every session.
 * As with a catalog, no predicate locks are taken in SERIALIZABLE, see next_row().  They are
 * written without going through SQL, so no privilege is needed, and no trigger fires; what comes in
 * by SQL is in policy_guard.c.
 * Every write invalidates the relation cache entry of the container's table, for the cache in
 * container.c and for cached plans.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/indexing.h"
#include "compat.h"
#include "container/container.h"
#include "container/container_private.h"
#include "counters.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "storage/lock.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define PRIMARY_KEY	"container_pkey"

/* Containers whose rows have been written since ttl_policy_take_changed() was called */
static List *changed = NIL;

/* Containers whose rows of ttl.container this session has written since the last call */
List *
ttl_policy_take_changed(void)
{
	List	   *result = list_copy(changed);

	list_free(changed);
	changed = NIL;
	return result;
}

/*
 * Makes all sessions read the policy again, and if the shape of plans depends on the
 * change, also plan again: then each partition is invalidated, too, since it can be
 * queried directly.
 */
void
ttl_policy_announce_change(Oid container, bool replan)
{
	MemoryContext old;
	ListCell   *lc;

	CacheInvalidateRelcacheByRelid(container);
	ttl_counters_end_pause(container);
	if (replan)
	{
		foreach(lc, ttl_container_tables(container))
			CacheInvalidateRelcacheByRelid(lfirst_oid(lc));
	}

	/*
	 * it is taken when the statement or the transaction ends, whatever memory
	 * has gone by then
	 */
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
		/* the one kind of scan that needs no table */
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

/* Ends a scan, and closes the catalog; its lock is released. */
static void
end_scan(CatalogScan *scan)
{
	if (scan->rel == NULL)
		return;
	systable_endscan(scan->scan);
	UnregisterSnapshot(scan->snapshot);
	table_close(scan->rel, scan->lockmode);
}

/* What a row of ttl.container says; errors (55000) if it is another version's. */
static void
read_row(HeapTuple tuple, TupleDesc desc, TtlPolicy *policy)
{
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc(desc->natts * sizeof(bool));

	ttl_container_check_version(desc);
	heap_deform_tuple(tuple, desc, values, nulls);
	ttl_policy_from_values(policy, values, nulls);
	policy->written_by = HeapTupleHeaderGetXmin(tuple->t_data);
}

/* Makes a row of ttl.container. */
static HeapTuple
form_row(Oid container, const TtlPolicy *policy, TupleDesc desc)
{
	Datum	   *values = palloc0(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc(desc->natts * sizeof(bool));

	ttl_container_check_version(desc);
	memset(nulls, true, desc->natts * sizeof(bool));
	values[Anum_container_relid - 1] = ObjectIdGetDatum(container);
	nulls[Anum_container_relid - 1] = false;
	ttl_policy_to_values(policy, values, nulls);
	return heap_form_tuple(desc, values, nulls);
}

/* Reads the policy of a container, as of now; false if the relation has none. */
bool
ttl_policy_read(Oid container, TtlPolicy *policy)
{
	CatalogScan scan;
	HeapTuple	tuple;

	if (!may_have_row(container))
		return false;
	begin_scan_of(&scan, container, AccessShareLock);
	tuple = next_row(&scan);
	if (HeapTupleIsValid(tuple))
		read_row(tuple, RelationGetDescr(scan.rel), policy);
	end_scan(&scan);
	return HeapTupleIsValid(tuple);
}

/* Makes the table a container.  The caller has checked everything, rights included, here and below. */
void
ttl_policy_insert(Oid container, const TtlPolicy *policy)
{
	Relation	rel = table_open(ttl_container_require_objects()->catalog, RowExclusiveLock);

	CatalogTupleInsert(rel, form_row(container, policy, RelationGetDescr(rel)));
	table_close(rel, RowExclusiveLock);
	ereport(LOG,
			(errmsg("role \"%s\" has made table \"%s\" a container: default_ttl %s",
					GetUserNameFromId(GetUserId(), false), ttl_container_qualified_name(container),
					ttl_policy_default_ttl_text(policy->default_ttl))));
	ttl_policy_announce_change(container, true);
	CommandCounterIncrement();
}

/* Changes the policy, whose lock the caller holds. */
void
ttl_policy_update(Oid container, const TtlPolicy *policy)
{
	CatalogScan scan;
	HeapTuple	old;
	TtlPolicy	old_policy;
	bool		replans = false;

	begin_scan_of(&scan, container, RowExclusiveLock);
	old = next_row(&scan);
	if (!HeapTupleIsValid(old))
		elog(ERROR, "no row in ttl.container for relation %u", container);
	read_row(old, RelationGetDescr(scan.rel), &old_policy);
	CatalogTupleUpdate(scan.rel, &old->t_self,
					   form_row(container, policy, RelationGetDescr(scan.rel)));
	end_scan(&scan);
	log_change(container, &old_policy, policy);
	for (int i = 0; i < ttl_nsettings; i++)
		replans = replans || (ttl_settings[i].replans &&
							  ttl_policy_setting_differs(&old_policy, policy, &ttl_settings[i]));
	ttl_policy_announce_change(container, replans);
	CommandCounterIncrement();
}

/* Makes the table a plain one again, if it still exists. */
void
ttl_policy_delete(Oid container)
{
	CatalogScan scan;
	HeapTuple	tuple;

	begin_scan_of(&scan, container, RowExclusiveLock);
	tuple = next_row(&scan);
	if (HeapTupleIsValid(tuple))
		CatalogTupleDelete(scan.rel, &tuple->t_self);
	end_scan(&scan);
	/* nobody has anything cached of a table that was dropped */
	if (get_rel_relkind(container) != '\0')
		ttl_policy_announce_change(container, true);
	CommandCounterIncrement();
}

/* The container that a row of ttl.container is of */
Oid
ttl_policy_relid_of(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;

	return DatumGetObjectId(heap_getattr(tuple, Anum_container_relid, desc, &isnull));
}

/* True if the container of that row of ttl.container is one of these. */
static bool
is_listed(HeapTuple tuple, TupleDesc desc, TtlContainers which)
{
	Oid			relid = ttl_policy_relid_of(tuple, desc);
	TtlPolicy	policy;
	TtlContainer container;

	/* those of a version that this library doesn't know can be dropped, too */
	if (which == TTL_CONTAINERS_ON && heap_attisnull(tuple, Anum_container_default_time_to_live, desc))
		return false;
	if (which != TTL_CONTAINERS_SOUND)
		return (get_rel_relkind(relid) != '\0') == (which != TTL_CONTAINERS_DROPPED);
	read_row(tuple, desc, &policy);
	ttl_container_find_columns(relid, &policy, &container);
	return !container.lacks_column;
}

/* The OIDs of these */
List *
ttl_policy_list(TtlContainers which)
{
	List	   *containers = NIL;
	CatalogScan scan;
	HeapTuple	tuple;

	begin_scan_of(&scan, InvalidOid, AccessShareLock);
	while (HeapTupleIsValid(tuple = next_row(&scan)))
	{
		if (is_listed(tuple, RelationGetDescr(scan.rel), which))
			containers = lappend_oid(containers, ttl_policy_relid_of(tuple, RelationGetDescr(scan.rel)));
	}
	end_scan(&scan);
	return containers;
}

/* Forgets one whose table was dropped; false if it isn't such a one. */
bool
ttl_policy_forget_dropped(Oid container)
{
	TtlPolicy	policy;

	if (get_rel_relkind(container) != '\0' ||
		!ttl_policy_lock(container, true, true) ||
		!ttl_policy_read(container, &policy))
		return false;
	ttl_policy_delete(container);
	ereport(LOG,
			(errmsg("policy of relation %u was removed because there is no such table any more",
					container)));
	return true;
}

/*
 * Policy lock: taken shared by a batch of the reaper, exclusively by a change of
 * the policy, both to the end of the transaction; so no policy change
 * commits between a batch's look at the policy and its deletion.  'wait'
 * false returns whether the lock could be had at once.
 */
bool
ttl_policy_lock(Oid container, bool exclusive, bool wait)
{
	const TtlObjects *objects = ttl_container_objects();
	LOCKTAG		tag;

	if (objects == NULL)
		return false;			/* nothing left to protect */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, objects->catalog, container, 0);
	if (LockAcquire(&tag, exclusive ? AccessExclusiveLock : ShareLock,
					false, !wait) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	/* whoever had the lock may have changed the policy */
	AcceptInvalidationMessages();
	return true;
}
