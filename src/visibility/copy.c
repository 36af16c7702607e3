/*-------------------------------------------------------------------------
 *
 * copy.c
 *	  COPY table TO hides expired rows.
 *
 * It doesn't go through the planner, so for a container it is turned into COPY
 * (SELECT columns FROM ONLY table) TO, as PostgreSQL itself does for tables
 * with row-level security.  Left alone is whoever may see expired rows, pg_dump
 * above all, and the initial copy of logical replication.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "compat.h"
#include "container/container.h"
#include "expiry/is_live.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "utility.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "visibility/visibility.h"

/* The columns that COPY takes when none are named: generated ones are left out. */
static List *
default_columns(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	List	   *columns = NIL;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (!attribute->attisdropped && attribute->attgenerated == '\0')
			columns = lappend(columns, makeString(pstrdup(NameStr(attribute->attname))));
	}
	return columns;
}

static void
before_copy(PlannedStmt *pstmt, const char *query_string,
			ProcessUtilityContext context, ParamListInfo params)
{
	CopyStmt   *stmt = (CopyStmt *) pstmt->utilityStmt;
	Oid			relid;
	char		relkind;
	TtlContainer container;
	Relation	rel;
	List	   *columns;
	SelectStmt *select;
	RangeVar   *from;
	ListCell   *lc;

	if (!IsA(stmt, CopyStmt) || stmt->relation == NULL || stmt->is_from)
		return;
	relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	if (!OidIsValid(relid) || !ttl_container_lookup(relid, &container))
		return;
	relkind = get_rel_relkind(relid);
	if (!(relkind == RELKIND_RELATION ||
		  (relkind == RELKIND_PARTITIONED_TABLE && TTL_COPIES_PARTITIONED_TABLES)) ||
		ttl_live_is_shown(container.container))
		return;

	rel = table_open(relid, AccessShareLock);
	columns = stmt->attlist != NIL ? stmt->attlist : default_columns(rel);
	from = makeRangeVar(get_namespace_name(RelationGetNamespace(rel)),
						pstrdup(RelationGetRelationName(rel)), -1);
	from->inh = (relkind == RELKIND_PARTITIONED_TABLE);
	table_close(rel, NoLock);

	select = makeNode(SelectStmt);
	select->fromClause = list_make1(from);
	foreach(lc, columns)
	{
		ColumnRef  *column = makeNode(ColumnRef);
		ResTarget  *target = makeNode(ResTarget);

		column->fields = list_make1(lfirst(lc));
		column->location = -1;
		target->val = (Node *) column;
		target->location = -1;
		select->targetList = lappend(select->targetList, target);
	}
	stmt->query = (Node *) select;
	stmt->relation = NULL;
	stmt->attlist = NIL;
}

void
ttl_copy_init(void)
{
	ttl_utility_observe(before_copy, NULL, NULL);
}
