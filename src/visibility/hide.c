/*-------------------------------------------------------------------------
 *
 * hide.c
 *	  Puts a filter into each plan that scans a container.
 *
 * When a query has been planned, the filter  ttl.is_live(container, _ts, ttl)  is
 * put at the head of the quals of each scan of a container or of a partition of
 * one.  Whatever the query was, views, inlined functions, the target of UPDATE,
 * DELETE and MERGE all end up as scans; and these lie below every join, so an
 * outer join null-extends by itself.  The plan is the one that PostgreSQL would
 * make for a plain table: deletion keeps expired rows few, so the planner
 * need not take them into account.  No expression of the user's is
 * evaluated on a row before the filter is.
 *
 * An index-only scan has no _ts to filter by.  There ttl.is_live(container) stands for
 * the filter, and scan_filter.c does its work by the row's TID.  Where
 * EvalPlanQual may run a part of the plan again, which never passes ExecutorStart,
 * the planner is kept from choosing such a scan.
 *
 * The plan says that this has been done, by an entry among the objects that it
 * depends on.  A plan that lacks it, because another extension's planner hook has made
 * it without calling ours, gets its filters at ExecutorStart.
 *
 * The queries by which foreign keys act on referencing rows (CASCADE, SET NULL, SET
 * DEFAULT, and the search for rows that forbid a change) see every stored row, or would
 * leave orphans; only their subqueries are filtered.  Those by which ALTER TABLE validates
 * a foreign key see every row of containers that the user owns.  fk.c recognizes both.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "citus/citus.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "visibility/plan_walk.h"
#include "visibility/visibility.h"

/*
 * The filters
 */

/* The innermost query that is being planned, NULL outside of a planner's call */
static const TtlPlanning *innermost = NULL;

/* The table argument of a filter */
static Expr *
make_table(Oid table)
{
	return (Expr *) makeConst(REGCLASSOID, -1, InvalidOid, sizeof(Oid),
							  ObjectIdGetDatum(table), false, true);
}

/* A column of a container as an argument of a filter */
static Expr *
make_argument(const TtlContainer *container, Index varno, AttrNumber attno,
			  const TtlType *ttl_type, Oid null_type)
{
	return attno == InvalidAttrNumber ? (Expr *) makeNullConst(null_type, -1, InvalidOid) :
		ttl_expiry_make_column(container, varno, attno, ttl_type);
}

/*
 * function(container, _ts, ttl) over the relation of that index
 */
static Expr *
make_filter(Oid function, const TtlContainer *container, Index relid)
{
	Expr	   *ts = make_argument(container, relid, container->ts_attno, container->ts_type,
								   TIMESTAMPTZOID);
	Expr	   *own = make_argument(container, relid, container->ttl_attno, container->ttl_type,
									INT4OID);

	/* a timestamp without time zone is taken as UTC: it has the same bits */
	if (exprType((Node *) ts) == TIMESTAMPOID)
		ts = (Expr *) makeRelabelType(ts, TIMESTAMPTZOID, -1, InvalidOid, COERCE_IMPLICIT_CAST);
	return (Expr *) makeFuncExpr(function, BOOLOID,
								 list_make3(make_table(container->container), ts, own),
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/*
 * The filter of a scan without columns.  If it is the container that lacks one, the filter
 * lets those who see stored rows read them, pg_dump above all; for others the execution fails
 * to start (is_live.c).
 */
static Expr *
make_filter_by_tid(const TtlContainer *container)
{
	return (Expr *) makeFuncExpr(ttl_container_function(TTL_IS_LIVE_BY_TID), BOOLOID,
								 list_make1(make_table(container->container)),
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/* What is known while filters are put into a plan. */
typedef struct Hiding
{
	PlannedStmt *stmt;
	const TtlPlanning *planning;
	bool		filtered;		/* a scan has got one */
} Hiding;

/*
 * True if the container's table belongs to the role.  A partition is reached as its container's, too,
 * and may have another owner.
 */
static bool
is_owned_by(Oid role, const TtlContainer *container)
{
	return ttl_container_owner(container->relid) == role ||
		ttl_container_owner(container->container) == role;
}

/* True if the user has the rights of the table's owner, or of the owner of its container. */
static bool
is_own(const RangeTblEntry *rte)
{
	TtlContainer container;

	return ttl_container_is_owner(GetUserId(), rte->relid) ||
		(ttl_container_peek(rte->relid, &container) &&
		 ttl_container_is_owner(GetUserId(), container.container));
}

/* True if is_own() holds for all relations in the list. */
static bool
are_own(List *rtable)
{
	ListCell   *lc;

	foreach(lc, rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && !is_own(rte))
			return false;
	}
	return true;
}

/* True if it has been given this name, in our own or a rule's query. */
static bool
has_alias(const char *alias, const RangeTblEntry *rte)
{
	return rte->alias != NULL && strcmp(rte->alias->aliasname, alias) == 0;
}

/* True if it is the table that an action of a foreign key has acted on, in a rule's query. */
static bool
is_acted_on(const RangeTblEntry *rte, const TtlContainer *container)
{
	/*
	 * a rule may give the alias to any table, e.g. one whose expired rows
	 * aren't its author's to see
	 */
	return InNoForceRLSOperation() && has_alias(TTL_ACTED_ON, rte) &&
		is_owned_by(GetUserId(), container);
}

/*
 * True if a deletion of this extension has given the table that alias: TTL_TO_DELETE for its
 * expired rows, TTL_STAYING for the others.  A rule may give it to another owner's table.
 */
static bool
is_deleted_as(const char *alias, const RangeTblEntry *rte, const TtlContainer *container,
			  const Hiding *hiding)
{
	return hiding->planning->deletes && has_alias(alias, rte) &&
		is_owned_by(ttl_execution_deletes_as(), container);
}

/* Puts the filter into the quals of a scan, if it is one of a container that is to be filtered. */
static void
filter_scan(Plan *plan, void *context)
{
	Hiding	   *hiding = context;
	Scan	   *scan = (Scan *) plan;
	RangeTblEntry *rte;
	TtlContainer container;
	Expr	   *filter;

	/*
	 * a join that another extension or Citus executes: the scans are below
	 * it, or on other nodes
	 */
	if (scan->scanrelid == 0)
		return;
	rte = rt_fetch(scan->scanrelid, hiding->stmt->rtable);
	if (rte->rtekind != RTE_RELATION || !ttl_container_peek(rte->relid, &container) ||
		(hiding->planning->validates && is_own(rte)) || is_acted_on(rte, &container))
		return;
	/* its quals refer to that list, in which the columns need not be */
	if (IsA(scan, CustomScan) && ((CustomScan *) scan)->custom_scan_tlist != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot hide expired rows of container \"%s\" in custom scan \"%s\"",
						get_rel_name(container.container),
						((CustomScan *) scan)->methods->CustomName),
				 errhint("Turn off the extension that provides the scan for this query.")));

	if (container.lacks_column)
		filter = make_filter_by_tid(&container);
	else if (is_deleted_as(TTL_STAYING, rte, &container, hiding))
		filter = (Expr *) makeBoolExpr(NOT_EXPR,
									   list_make1(make_filter(ttl_container_function(TTL_IS_EXPIRED),
															  &container,
															  scan->scanrelid)), -1);
	else if (is_deleted_as(TTL_TO_DELETE, rte, &container, hiding))
		filter = make_filter(ttl_container_function(TTL_IS_EXPIRED), &container, scan->scanrelid);
	else if (IsA(scan, IndexOnlyScan))
		filter = make_filter_by_tid(&container);
	else
		filter = make_filter(ttl_container_function(TTL_IS_LIVE), &container, scan->scanrelid);
	hiding->filtered = true;
	/* another extension may return a plan that it has kept */
	if (scan->plan.qual == NIL || !equal(linitial(scan->plan.qual), filter))
		scan->plan.qual = lcons(filter, scan->plan.qual);
}

/* True if the statement reads or writes a container. */
static bool
names_container(const PlannedStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && ttl_container_is_part(rte->relid))
			return true;
	}
	return false;
}

/*
 * A plan says that it has been here, with or without something to do, by an entry in invalItems:
 * that list stays with a plan wherever it is copied to, and the executor doesn't read it.  The
 * plan cache does, but compares only entries of functions and types; ours is of pg_namespace, and
 * its hash value is our schema's OID or the complement of that.
 */
typedef enum Mark
{
	MARK_MISSING,
	MARK_FILTERED,
	MARK_UNFILTERED
} Mark;

/* Marks a plan as processed. */
static void
put_mark(PlannedStmt *stmt, Oid schema, Mark mark)
{
	PlanInvalItem *item = makeNode(PlanInvalItem);

	item->cacheId = NAMESPACEOID;
	item->hashValue = mark == MARK_FILTERED ? schema : ~schema;
	stmt->invalItems = lappend(stmt->invalItems, item);
}

/* The mark that the plan has */
static Mark
get_mark(const PlannedStmt *stmt, Oid schema)
{
	ListCell   *lc;

	foreach(lc, stmt->invalItems)
	{
		PlanInvalItem *item = lfirst_node(PlanInvalItem, lc);

		if (item->cacheId != NAMESPACEOID)
			continue;
		if (item->hashValue == schema)
			return MARK_FILTERED;
		if (item->hashValue == ~schema)
			return MARK_UNFILTERED;
	}
	return MARK_MISSING;
}

/* Puts the filters into all scans of a plan, and marks it. */
static void
filter_statement(PlannedStmt *stmt, const TtlPlanning *planning)
{
	Hiding		hiding = {.stmt = stmt, .planning = planning};
	bool		named = names_container(stmt);
	const TtlObjects *objects;
	MemoryContext old;

	/* the plan may be kept for longer than this context */
	old = MemoryContextSwitchTo(GetMemoryChunkContext(stmt));
	if (named && planning->sees_stored)
		ttl_plan_walk_subplans(stmt, false, filter_scan, &hiding);
	else if (named)
		ttl_plan_walk_scans(stmt, false, filter_scan, &hiding);
	/* the look-up may have waited for DROP EXTENSION */
	objects = ttl_container_objects();
	if (objects != NULL)
		put_mark(stmt, objects->schema, hiding.filtered ? MARK_FILTERED : MARK_UNFILTERED);
	MemoryContextSwitchTo(old);
}

/* Puts the filters into the plan, unless that has been done. */
void
ttl_hide_planned(PlannedStmt *stmt, const TtlPlanning *planning)
{
	if (planning->active && ttl_container_objects() != NULL && stmt->commandType != CMD_UTILITY &&
		get_mark(stmt, ttl_container_require_objects()->schema) == MARK_MISSING)
		filter_statement(stmt, planning);
}

/*
 * Supplies the filters that the plan of an execution that is about to start lacks.
 *
 * The leader's plan has the filters before workers get it.  A foreign key's query is recognized by
 * its text alone.
 */
void
ttl_hide_complete(TtlExecution *execution)
{
	QueryDesc  *query_desc = execution->query_desc;
	PlannedStmt *stmt = query_desc->plannedstmt;
	const TtlObjects *objects = ttl_container_objects();
	TtlPlanning planning = {0};
	Oid			schema;
	Mark		mark;

	if (objects == NULL)
		return;
	execution->hides = true;
	if (execution->follows_leader)
		return;
	schema = objects->schema;
	mark = get_mark(stmt, schema);
	if (mark == MARK_MISSING && names_container(stmt))
	{
		planning.deletes = ttl_execution_is_expected(query_desc->sourceText);

		/*
		 * anybody may execute a query of that text: it sees stored rows of
		 * his own tables at most
		 */
		planning.sees_stored = ttl_fk_acts(query_desc->sourceText) && are_own(stmt->rtable);
		/* whoever has made the plan may keep and share it */
		stmt = copyObject(stmt);
		filter_statement(stmt, &planning);
		query_desc->plannedstmt = stmt;
		mark = get_mark(stmt, schema);
	}
	execution->hides = mark == MARK_FILTERED;
}

static bool locks_rows(Query *query);

/*
 * True if a part of the query locks or changes rows, so that EvalPlanQual might run any
 * part of its plan.
 */
static bool
locks_rows_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return locks_rows((Query *) node);
	return expression_tree_walker(node, locks_rows_walker, context);
}

/* True if the query, or one in it, locks rows, so that EvalPlanQual may check them again. */
static bool
locks_rows(Query *query)
{
	/*
	 * ON CONFLICT locks rows, too, but checks no plan again.  Without
	 * sublinks no expression need be looked at.
	 */
	return query->rowMarks != NIL || query->commandType == CMD_UPDATE ||
		query->commandType == CMD_DELETE || query->commandType == CMD_MERGE ||
		(query->hasSubLinks ? query_tree_walker(query, locks_rows_walker, NULL, 0) :
		 locks_rows_walker((Node *) query->cteList, NULL) ||
		 range_table_walker(query->rtable, locks_rows_walker, NULL, QTW_IGNORE_JOINALIASES));
}

/* The same, of a function's query that the planner has put in place of a call */
static bool
is_within_locking(PlannerInfo *root)
{
	for (; root != NULL; root = root->parent_root)
	{
		if (root->parse->rowMarks != NIL)
			return true;
	}
	return false;
}

/*
 * Keeps the planner from index-only scans of a container where it can't be filtered.
 *
 * EvalPlanQual may run such a scan again, and then it isn't filtered by its TID.
 */
void
ttl_hide_forbid_index_only_scans(PlannerInfo *root, RelOptInfo *rel, const RangeTblEntry *rte)
{
	ListCell   *lc;

	/* CLUSTER and CREATE INDEX call the planner, too, and see all rows */
	if (rel->indexlist == NIL || innermost == NULL ||
		!(innermost->locks_rows || is_within_locking(root)) ||
		!ttl_container_is_part(rte->relid))
		return;
	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, lc);

		memset(index->canreturn, false, sizeof(bool) * index->ncolumns);
	}
}

/*
 * While a query is planned
 */

/* A query is about to be planned: looks at it, and has it stamp _ts. */
void
ttl_hide_prepare_query(TtlPlanning *planning, Query *query, const char *query_string)
{
	bool		is_marked;

	memset(planning, 0, sizeof(TtlPlanning));
	/* leave_planning() restores these in any case */
	planning->outer = innermost;
	planning->tidscan = enable_tidscan;
	if (ttl_container_objects() == NULL)
		return;
	planning->active = true;
	is_marked = ttl_citus_prepare_query(query);
	planning->sees_stored = ttl_fk_is_action(query, query_string) ||
		(is_marked && are_own(query->rtable));
	planning->validates = ttl_fk_is_validation(query);
	planning->deletes = ttl_execution_is_expected(query_string);
	planning->locks_rows = locks_rows(query);
	/* an action of a foreign key resets no clock */
	if (!planning->sees_stored)
	{
		ttl_fk_mark_old(query, query_string);
		ttl_stamp_query(query);
	}
}

/* It is being planned, from here on ... */
void
ttl_hide_enter_planning(const TtlPlanning *planning)
{
	innermost = planning;
	/* a deletion finds its rows by TID, whatever the setting is */
	enable_tidscan = planning->tidscan || planning->deletes;
}

/* ... to here. */
void
ttl_hide_leave_planning(const TtlPlanning *planning)
{
	innermost = planning->outer;
	enable_tidscan = planning->tidscan;
}
