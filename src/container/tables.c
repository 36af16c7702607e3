/*-------------------------------------------------------------------------
 *
 * tables.c
 *	  The tables of a container, their columns, and whose they are.
 *
 * A container is one table, or a partitioned one with all its partitions (the tree).  Rows are in
 * the leaves of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_subscription_rel.h"
#include "container/container.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* The column of that name: its number, InvalidAttrNumber if there is none, and its type */
static AttrNumber
find_column(Oid relid, const NameData *name, TtlColumnType *column)
{
	HeapTuple	tuple = NameStr(*name)[0] == '\0' ? NULL : SearchSysCacheAttName(relid, NameStr(*name));
	Form_pg_attribute attribute;
	AttrNumber	attno;

	memset(column, 0, sizeof(TtlColumnType));
	if (!HeapTupleIsValid(tuple))
		return InvalidAttrNumber;
	attribute = (Form_pg_attribute) GETSTRUCT(tuple);
	attno = attribute->attnum;
	column->type = attribute->atttypid;
	column->typmod = attribute->atttypmod;
	column->collation = attribute->attcollation;
	ReleaseSysCache(tuple);
	return attno;
}

/*
 * Where the policy's columns stand in the relation, and their types.
 * Fills only these, relid and lacks_column: it lacks one also if another type is in its
 * place.  DDL on a server without the library, and rows of ttl.container that are
 * restored next to another table, leave that behind.
 */
void
ttl_container_find_columns(Oid relid, const TtlPolicy *policy, TtlContainer *container)
{
	bool		has_ts = NameStr(policy->ts_column)[0] != '\0';
	bool		has_own = NameStr(policy->ttl_column)[0] != '\0';

	container->relid = relid;
	container->ts_attno = find_column(relid, &policy->ts_column, &container->ts_column);
	container->ttl_attno = find_column(relid, &policy->ttl_column, &container->ttl_column);
	container->ttl_type = ttl_type_of(container->ttl_column.type, policy->ttl_unit);
	container->ts_type = ttl_type_of_clock(container->ts_column.type, policy->ts_unit);
	container->lacks_column =
		(has_ts ? container->ts_type == NULL :
		 !ttl_type_is_deadline(container->ttl_type)) ||
		(has_own && container->ttl_type == NULL);
	if (container->ts_type != NULL && container->ts_type->instant == NULL)
		container->ts_type = NULL;
	container->ts_step = ttl_type_clock_step(container->ts_type, container->ts_column.typmod, policy->ts_precision);
}

/*
 * True if create_container() could have made the policy of that table.  What the owner of a table, or a dump, gives
 * may be any.
 */
bool
ttl_policy_is_possible(Oid relid, const TtlPolicy *policy)
{
	TtlContainer container;

	ttl_container_find_columns(relid, policy, &container);
	return !container.lacks_column && get_rel_persistence(relid) != RELPERSISTENCE_TEMP &&
		(container.ts_attno != InvalidAttrNumber ?
		 container.ts_attno > 0 && container.ttl_attno != container.ts_attno :
		 policy->default_ttl == TTL_OFF || policy->default_ttl == TTL_NEVER);
}

/*
 * A table and its partitions at all levels, as a list of OIDs.  No lock is taken on them, so they may be gone
 * when opened.
 *
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

/* Those of ttl_container_tables() that hold rows */
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

/*
 * Opens a table with a lock for reading.  NULL if it has gone, or if the lock isn't
 * to be had at once: then it is busy.
 */
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

/*
 * True if the table, or a partition of it, may hold rows.  Not if its file is empty; true
 * if another session has locked it.  Unless the caller has locked it, the answer holds only
 * for the moment.
 */
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

/*
 * The tables that subscriptions of this database write, or those that this transaction has
 * added to them.
 */
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

/* True if pglogical may write tables of this database, whichever. */
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

/* Its name as SQL has it, with its schema; if it has gone, its number. */
char *
ttl_container_table_name(Oid relid)
{
	char	   *name = get_rel_name(relid);

	return name == NULL ? psprintf("%u", relid) :
		quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), name);
}

/* Its name as messages have it, between quotes of their own; if it has gone, its number. */
char *
ttl_container_qualified_name(Oid relid)
{
	char	   *name = get_rel_name(relid);

	return name == NULL ? psprintf("%u", relid) :
		psprintf("%s.%s", get_namespace_name(get_rel_namespace(relid)), name);
}

/* The table's owner, or InvalidOid if it has gone. */
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

/*
 * A table above the partition that has another owner, or InvalidOid.  Then code
 * of two owners fires for its rows, and neither may act for the other.
 *
 * As long as it is being detached, it has the triggers of the table above.
 */
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

/* True if the user has the owner's rights.  False if it has gone. */
bool
ttl_container_is_owner(Oid user, Oid relid)
{
	Oid			owner = ttl_container_owner(relid);

	return OidIsValid(owner) && has_privs_of_role(user, owner);
}

/* Errors (42P01) if the table has gone. */
void
ttl_container_check_exists(Oid relid)
{
	if (!OidIsValid(ttl_container_owner(relid)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
}

/*
 * A container's table and all its partitions, as a list of OIDs, locked.  With
 * NoLock they have been, all by the same mode.  Errors (42P01) if the table has been dropped.
 */
List *
ttl_container_tree(Oid relid, LOCKMODE lockmode)
{
	if (lockmode != NoLock)
		LockRelationOid(relid, lockmode);
	ttl_container_check_exists(relid);
	return lockmode == NoLock ? ttl_container_tables(relid) :
		find_all_inheritors(relid, lockmode, NULL);
}

/* Opens the relation; errors (42P01) if it is dropped while this waits for the lock. */
Relation
ttl_container_open(Oid relid, LOCKMODE lockmode)
{
	Relation	rel = try_relation_open(relid, lockmode);

	if (rel == NULL)
		ttl_container_check_exists(relid);
	return rel;
}

/* Errors (42501) unless the current user has the owner's rights, or (42P01) if the table has gone. */
void
ttl_container_check_owner(Oid relid)
{
	ttl_container_check_exists(relid);
	if (!ttl_container_is_owner(GetUserId(), relid))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
}
