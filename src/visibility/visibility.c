/*-------------------------------------------------------------------------
 *
 * visibility.c
 *	  What the parts of the room share while a query is planned, and COPY TO.
 *
 *	  before planning	stamp.c adds the assignment of _ts to UPDATEs
 *	  after planning	hide.c puts the filter into each scan
 *	  at ExecutorStart	plan_copy.c keeps the filter from being compiled
 *	  and after it		scan_filter.c puts a fast one in its place
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
#include "citus/citus.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "optimizer/cost.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "visibility/visibility.h"

/* Does the user own all tables of the query? */
static bool
is_owner_of_all(List *rtable)
{
	ListCell   *lc;

	foreach(lc, rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && !ttl_container_is_owner(GetUserId(), rte->relid))
			return false;
	}
	return true;
}

void
ttl_visibility_prepare_query(TtlPlanning *planning, Query *query, const char *query_string)
{
	bool		is_marked;

	memset(planning, 0, sizeof(TtlPlanning));
	planning->outer = ttl_hide_planning;
	planning->tidscan = enable_tidscan;
	if (ttl_container_objects() == NULL)
		return;
	planning->active = true;
	is_marked = ttl_citus_mark(query);
	planning->sees_stored = ttl_fk_is_action(query, query_string) ||
		(is_marked && is_owner_of_all(query->rtable));
	planning->validates = ttl_fk_is_validation(query);
	planning->deletes = ttl_execution_is_expected(query_string);
	planning->locks_rows = ttl_hide_locks_rows(query);
	if (!planning->sees_stored)
	{
		ttl_fk_mark_old(query, query_string);
		ttl_stamp_query(query);
	}
}

void
ttl_visibility_enter_planning(const TtlPlanning *planning)
{
	ttl_hide_planning = planning;
	/* a deletion finds its rows by TID, whatever the setting is */
	enable_tidscan = planning->tidscan || planning->deletes;
}

void
ttl_visibility_leave_planning(const TtlPlanning *planning)
{
	ttl_hide_planning = planning->outer;
	enable_tidscan = planning->tidscan;
}

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

void
ttl_visibility_before_utility(PlannedStmt *pstmt)
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
	relid = RangeVarGetRelid(stmt->relation, AccessShareLock, true);
	if (!OidIsValid(relid) || !ttl_container_peek(relid, &container))
		return;
	relkind = get_rel_relkind(relid);
	if (!(relkind == RELKIND_RELATION ||
		  (relkind == RELKIND_PARTITIONED_TABLE && TTL_COPIES_PARTITIONED_TABLES)) ||
		ttl_live_is_shown(container.container))
		return;

	rel = table_open(relid, NoLock);
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
