/*-------------------------------------------------------------------------
 *
 * hide.c
 *	  Puts a filter into each plan that scans a container, and starts executions without it.
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
 * To compile the call of a filter function costs a point read more than all that it does at run
 * time, and so does JIT compilation of quals that are never evaluated.  So ExecutorStart gets a
 * copy of the plan in which scans lack the filter.  A plan may be cached and shared by other
 * executions, so it is never changed: its nodes are copied as far down as the scans of tables, and
 * share targetlists and expressions with the original.  When ExecutorStart is over, each filtered
 * scan gets a scan filter (scan_filter.c), and the copied plan the filters back, so that what is
 * made of it later has them: parallel workers' copies, EvalPlanQual's states, EXPLAIN.  The copy
 * lives as long as the executor's state.  The QueryDesc refers to it during ExecutorStart alone.
 * An Append whose subplans are pruned at startup is not copied, nor what is below it: to look at
 * each partition would take longer than it saves.  Neither are nodes of other extensions.
 *
 * One table lists the kinds of plan nodes, for this copy and for the walk that puts
 * filters into a plan.  A kind that is not in it is an error, as in
 * ExecInitNode(): there might be a scan of a container below it.
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
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "citus/citus.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/extensible.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "visibility/visibility.h"

/*
 * Walks over plans
 */

typedef void (*ScanVisitor) (Plan *plan, void *context);

/* What is known of a kind of plan node */
typedef struct NodeKind
{
	size_t		size;			/* 0 = it isn't copied */
	bool		is_scan;		/* of a table */
} NodeKind;

/* The size of a plan node, and whether it scans a relation; errors at a node that is not known. */
static NodeKind
kind_of(const Plan *plan)
{
	switch (nodeTag(plan))
	{
#define SCAN(type) case T_##type: return (NodeKind) {sizeof(type), true}
#define NODE(type) case T_##type: return (NodeKind) {sizeof(type), false}
			SCAN(SeqScan);
			SCAN(SampleScan);
			SCAN(IndexScan);
			SCAN(IndexOnlyScan);
			SCAN(BitmapHeapScan);
			SCAN(TidScan);
			SCAN(TidRangeScan);
			NODE(BitmapAnd);
			NODE(BitmapOr);
			NODE(BitmapIndexScan);
			NODE(SubqueryScan);
			NODE(FunctionScan);
			NODE(TableFuncScan);
			NODE(ValuesScan);
			NODE(CteScan);
			NODE(NamedTuplestoreScan);
			NODE(WorkTableScan);
			NODE(Append);
			NODE(MergeAppend);
			NODE(ModifyTable);
			NODE(LockRows);
			NODE(Limit);
			NODE(Result);
			NODE(ProjectSet);
			NODE(NestLoop);
			NODE(MergeJoin);
			NODE(HashJoin);
			NODE(Hash);
			NODE(Material);
			NODE(Memoize);
			NODE(Sort);
			NODE(IncrementalSort);
			NODE(Group);
			NODE(Agg);
			NODE(WindowAgg);
			NODE(Unique);
			NODE(SetOp);
			NODE(RecursiveUnion);
			NODE(Gather);
			NODE(GatherMerge);
#undef NODE
#undef SCAN
		case T_ForeignScan:
			return (NodeKind)
			{
				0, false
			};
		case T_CustomScan:
			return (NodeKind)
			{
				0, true
			};
		default:
			elog(ERROR, "unrecognized node type: %d", (int) nodeTag(plan));
	}
}

/* Where the node keeps a list of plans below it, or NULL */
static List **
list_of_plans(Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_Append:
			return &((Append *) plan)->appendplans;
		case T_MergeAppend:
			return &((MergeAppend *) plan)->mergeplans;
		case T_CustomScan:
			return &((CustomScan *) plan)->custom_plans;
		default:
			return NULL;
	}
}

/* Does what visit_plan() does for one plan and those below it, and replaces it if it is copied. */
static void
walk(Plan **link, bool copies, ScanVisitor visit, void *context)
{
	Plan	   *plan = *link;
	NodeKind	kind;
	List	  **plans;
	ListCell   *lc;

	if (plan == NULL)
		return;
	check_stack_depth();
	kind = kind_of(plan);
	if (copies)
	{
		if (kind.size == 0 || TtlPrunesPartitions(plan))
			return;
		*link = plan = memcpy(palloc(kind.size), plan, kind.size);
	}
	if (kind.is_scan)
		visit(plan, context);

	plans = list_of_plans(plan);
	if (plans != NULL)
	{
		if (copies)
			*plans = list_copy(*plans);
		foreach(lc, *plans)
			walk((Plan **) &lfirst(lc), copies, visit, context);
	}
	else if (IsA(plan, SubqueryScan))
		walk(&((SubqueryScan *) plan)->subplan, copies, visit, context);
	walk(&plan->lefttree, copies, visit, context);
	walk(&plan->righttree, copies, visit, context);
}

/* Visits the scans of all subplans of a statement. */
static void
visit_subplans(PlannedStmt *stmt, bool copies, ScanVisitor visit, void *context)
{
	ListCell   *lc;

	if (copies)
		stmt->subplans = list_copy(stmt->subplans);
	foreach(lc, stmt->subplans)
		walk((Plan **) &lfirst(lc), copies, visit, context);
}

/*
 * Calls the function for each scan of a table in the plan and its subplans, CustomScans included.
 * With 'copies' it gets copies, and the statement, which is one, is made to refer to them; but
 * what isn't copied is left out.
 */
static void
visit_plan(PlannedStmt *stmt, bool copies, ScanVisitor visit, void *context)
{
	walk(&stmt->planTree, copies, visit, context);
	visit_subplans(stmt, copies, visit, context);
}

/* True if it is a scan of a table, and no CustomScan. */
static bool
is_scan(const Plan *plan)
{
	NodeKind	kind = kind_of(plan);

	return kind.is_scan && kind.size > 0;
}

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

/*
 * True if the plan of a scan of that relation, which then is a container's, begins with a filter
 * that is a single call: *deletes for the one of a deletion's statement.  Users may call these
 * functions for other tables.
 */
static bool
is_filtered(const Plan *plan, Oid relid, const TtlExecution *execution, bool *deletes)
{
	Node	   *first = plan->qual == NIL ? NULL : linitial(plan->qual);
	Oid			function;

	if (first == NULL || !IsA(first, FuncExpr))
		return false;
	function = ((FuncExpr *) first)->funcid;
	*deletes = execution->row_mode == TTL_SEES_EXPIRED &&
		function == ttl_container_function(TTL_IS_EXPIRED);
	return (*deletes || function == ttl_container_function(TTL_IS_LIVE) ||
			function == ttl_container_function(TTL_IS_LIVE_BY_TID)) &&
		ttl_container_is_part(relid);
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
is_called(const char *alias, const RangeTblEntry *rte)
{
	return rte->alias != NULL && strcmp(rte->alias->aliasname, alias) == 0;
}

/* True if it is the table that an action of a foreign key has acted on, in a rule's query. */
static bool
is_acted_on(const RangeTblEntry *rte, const TtlContainer *container)
{
	return InNoForceRLSOperation() && is_called(TTL_ACTED_ON, rte) &&
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
	return hiding->planning->deletes && is_called(alias, rte) &&
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

	if (scan->scanrelid == 0)
		return;
	rte = rt_fetch(scan->scanrelid, hiding->stmt->rtable);
	if (rte->rtekind != RTE_RELATION || !ttl_container_peek(rte->relid, &container) ||
		(hiding->planning->validates && is_own(rte)) || is_acted_on(rte, &container))
		return;
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
		visit_subplans(stmt, false, filter_scan, &hiding);
	else if (named)
		visit_plan(stmt, false, filter_scan, &hiding);
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
		planning.sees_stored = ttl_fk_acts(query_desc->sourceText) && are_own(stmt->rtable);
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
	/* without sublinks no expression need be looked at */
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

/*
 * Executions, which start without filters
 */

/* A scan in the copy */
typedef struct BareScan
{
	Plan	   *plan;
	List	   *qual;			/* with the filter */
	struct BareScan *next;
} BareScan;

/* A copy of a plan */
typedef struct TtlPlanCopy
{
	PlannedStmt stmt;
	PlannedStmt *original;
	BareScan   *scans;
	MemoryContext context;
	const TtlExecution *execution;	/* that is about to start */
} TtlPlanCopy;

/*
 * The quals of a scan but the filter.  Some scans look at their start whether there are any, and
 * begin differently; they get one that holds.
 */
static List *
without_filter(const Plan *scan)
{
	if (list_length(scan->qual) > 1)
		return list_copy_tail(scan->qual, 1);
	if (IsA(scan, SeqScan) || IsA(scan, IndexScan) || IsA(scan, IndexOnlyScan))
		return NIL;
	return list_make1(makeBoolConst(true, false));
}

/* Takes the filter from a copied scan of a table. */
static void
strip_scan(Plan *scan, void *context)
{
	TtlPlanCopy *copy = context;
	RangeTblEntry *rte = rt_fetch(((Scan *) scan)->scanrelid, copy->stmt.rtable);
	bool		deletes;
	BareScan   *bare;

	if (!is_filtered(scan, rte->relid, copy->execution, &deletes))
		return;
	bare = palloc(sizeof(BareScan));
	bare->plan = scan;
	bare->qual = scan->qual;
	bare->next = copy->scans;
	copy->scans = bare;
	scan->qual = without_filter(scan);
}

/* Has ExecutorStart get a copy of the plan without filters. */
void
ttl_hide_strip(TtlExecution *execution, int eflags)
{
	QueryDesc  *query_desc = execution->query_desc;
	MemoryContext context;
	MemoryContext old;
	TtlPlanCopy *copy;

	if (!execution->hides || (eflags & EXEC_FLAG_EXPLAIN_ONLY))
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "ttl plan copy",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	copy = palloc(sizeof(TtlPlanCopy));
	copy->stmt = *query_desc->plannedstmt;
	copy->original = query_desc->plannedstmt;
	copy->scans = NULL;
	copy->context = context;
	copy->execution = execution;
	visit_plan(&copy->stmt, true, strip_scan, copy);
	MemoryContextSwitchTo(old);

	query_desc->plannedstmt = &copy->stmt;
	execution->plan_copy = copy;
}

/* What has been started gets the filters back. */
static void
restore_scans(TtlExecution *execution)
{
	QueryDesc  *query_desc = execution->query_desc;
	TtlPlanCopy *copy = execution->plan_copy;

	if (copy == NULL)
		return;

	/* what has been made of the copy by now would lack them for good */
	if (query_desc->plannedstmt != &copy->stmt)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot hide expired rows in a plan that another extension puts in place of the one to be started"),
				 errhint("Load ttl before that extension by shared_preload_libraries.")));
	query_desc->plannedstmt = copy->original;

	for (BareScan *scan = copy->scans; scan != NULL; scan = scan->next)
		scan->plan->qual = scan->qual;
	MemoryContextSetParent(copy->context, query_desc->estate->es_query_cxt);
}

static bool add_filters_below(PlanState *planstate, void *execution);

/* Gives scan filters to the filtered scans that have been started. */
static bool
add_filters(PlanState *planstate, void *execution)
{
	PlanState  *outer = outerPlanState(planstate);
	bool		deletes;
	bool		result;

	if (is_scan(planstate->plan))
	{
		ScanState  *scan = (ScanState *) planstate;
		Oid			relid = RelationGetRelid(scan->ss_currentRelation);
		TtlContainer container;

		if (is_filtered(planstate->plan, relid, execution, &deletes) &&
			ttl_container_peek(relid, &container))
			ttl_scan_filter_add(scan, &container, execution, deletes);
	}
	result = planstate_tree_walker(planstate, add_filters_below, execution);

	/*
	 * count(*) needs no column.  If the catalog keeps a missing value for a
	 * column, the planner makes such a scan project an empty row; the
	 * aggregate does as well with the table's row.
	 */
	if (IsA(planstate, AggState) && ((Agg *) planstate->plan)->aggstrategy == AGG_PLAIN &&
		outer->plan->targetlist == NIL && ttl_scan_filter_scans_in_order(outer))
		outer->ps_ProjInfo = NULL;
	return result;
}

/* The state of a SubPlan is visited once, though several expressions may refer to it. */
static bool
add_filters_below(PlanState *planstate, void *execution)
{
	return !list_member_ptr(planstate->state->es_subplanstates, planstate) &&
		add_filters(planstate, execution);
}

/* Gives scan filters to what ExecutorStart has started. */
void
ttl_hide_started(TtlExecution *execution, int eflags)
{
	QueryDesc  *query_desc = execution->query_desc;
	MemoryContext old;
	ListCell   *lc;

	restore_scans(execution);
	if (!execution->hides || ttl_container_objects() == NULL ||
		(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		return;
	old = MemoryContextSwitchTo(query_desc->estate->es_query_cxt);
	(void) add_filters(query_desc->planstate, execution);
	foreach(lc, query_desc->estate->es_subplanstates)
	{
		if (lfirst(lc) != NULL)
			(void) add_filters(lfirst(lc), execution);
	}
	MemoryContextSwitchTo(old);
}

/*
 * COPY TO
 */

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

/* COPY is about to be executed. */
void
ttl_hide_before_copy(PlannedStmt *pstmt)
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
