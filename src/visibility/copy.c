/*-------------------------------------------------------------------------
 *
 * copy.c
 *	  COPY table TO leaves out expired rows, and COPY FROM has one clock.
 *
 * COPY table TO doesn't go through the planner, so for a container it is turned into
 * COPY (SELECT columns FROM ONLY table) TO, as PostgreSQL itself does for tables with
 * row-level security, unless the session may see expired rows: pg_dump above all, and
 * the initial copy of logical replication.  That is decided under COPY's own lock, for the table
 * may become a container, or its name a container's, while that is waited for.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/copy.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "visibility/visibility.h"

/* COPY is about to be executed: makes it read a container as a query does. */
void
ttl_copy_hide(PlannedStmt *pstmt)
{
	CopyStmt   *stmt = (CopyStmt *) pstmt->utilityStmt;
	Oid			relid;
	char		relkind;
	TtlContainer container;
	Relation	rel;
	TupleDesc	desc;
	List	   *attnums;
	SelectStmt *select;
	RangeVar   *from;
	ListCell   *lc;

	if (!IsA(stmt, CopyStmt) || stmt->relation == NULL || stmt->is_from ||
		ttl_container_objects() == NULL)
		return;

	/*
	 * nodes of Citus exchange intermediate results, whose names are those of
	 * no tables
	 */
	relid = RangeVarGetRelid(stmt->relation, AccessShareLock, true);
	if (!OidIsValid(relid))
		return;

	/*
	 * COPY looks the name up again: by then another table may come before it
	 * in search_path
	 */
	stmt->relation->schemaname = get_namespace_name(get_rel_namespace(relid));
	if (!ttl_container_peek(relid, &container))
		return;
	relkind = get_rel_relkind(relid);
	if (!(relkind == RELKIND_RELATION ||
		  (relkind == RELKIND_PARTITIONED_TABLE && TTL_COPIES_PARTITIONED_TABLES)) ||
		ttl_live_is_shown(container.container))
		return;

	rel = table_open(relid, NoLock);
	desc = RelationGetDescr(rel);

	/*
	 * a query could read generated columns, and one twice: COPY refuses that,
	 * and leaves generated ones out if no column is named
	 */
	attnums = CopyGetAttnums(desc, rel, stmt->attlist);
	from = makeRangeVar(get_namespace_name(RelationGetNamespace(rel)),
						pstrdup(RelationGetRelationName(rel)), -1);
	/* COPY of a table with children reads it alone */
	from->inh = (relkind == RELKIND_PARTITIONED_TABLE);

	select = makeNode(SelectStmt);
	select->fromClause = list_make1(from);
	foreach(lc, attnums)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, lfirst_int(lc) - 1);
		ColumnRef  *column = makeNode(ColumnRef);
		ResTarget  *target = makeNode(ResTarget);

		column->fields = list_make1(makeString(pstrdup(NameStr(attribute->attname))));
		column->location = -1;
		target->val = (Node *) column;
		target->location = -1;
		select->targetList = lappend(select->targetList, target);
	}
	table_close(rel, NoLock);
	stmt->query = (Node *) select;
	stmt->relation = NULL;
	stmt->attlist = NIL;
}

/*
 * COPY FROM is about to be executed: all its rows have one clock.  As that of other statements it
 * starts when the table's lock has been waited for, which COPY would take itself.
 */
void
ttl_copy_start(PlannedStmt *pstmt)
{
	CopyStmt   *stmt = (CopyStmt *) pstmt->utilityStmt;

	if (!IsA(stmt, CopyStmt) || !stmt->is_from || ttl_container_objects() == NULL)
		return;
	(void) RangeVarGetRelid(stmt->relation, RowExclusiveLock, true);
	ttl_execution_start_copying();
}
