/*-------------------------------------------------------------------------
 *
 * container_tables.c
 *	  The tables that a container consists of.
 *
 * A container is one table, or a partitioned one with all its partitions (the
 * tree).  Rows are in the leaves of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "container/container.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

List *
ttl_container_leaves(Oid container)
{
	List	   *leaves = NIL;
	ListCell   *lc;

	foreach(lc, find_all_inheritors(container, NoLock, NULL))
	{
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_RELATION)
			leaves = lappend_oid(leaves, lfirst_oid(lc));
	}
	return leaves;
}

List *
ttl_container_tree(Oid relid, LOCKMODE lockmode)
{
	if (lockmode != NoLock)
		LockRelationOid(relid, lockmode);
	return find_all_inheritors(relid, lockmode, NULL);
}

Relation
ttl_container_open_unlocked(Oid relid, bool *busy)
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
		Relation	rel = ttl_container_open_unlocked(lfirst_oid(lc), &busy);

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
