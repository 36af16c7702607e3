/*-------------------------------------------------------------------------
 *
 * plan_copy.c
 *	  Walks over plans, and starts executions without the filters that scan_filter.c
 *	  replaces.
 *
 * To compile the call of a filter function costs a point read more than all that the
 * filter does at run time, and so does JIT compilation of quals that are never
 * evaluated.  So ExecutorStart gets a copy of the plan in which scans lack the filter.
 * A plan may be cached and shared by other executions, so it is never changed: its nodes
 * are copied as far down as the scans of tables, and share targetlists and expressions
 * with the original.  When ExecutorStart is over, the copied scans get the filter back, so that what is made
 * of the plan later has it: parallel workers' copies, EvalPlanQual's states, EXPLAIN.
 *
 * The copy lives as long as the executor's state.  The QueryDesc refers to it during
 * ExecutorStart alone.
 *
 * An Append whose subplans are pruned at startup is not copied, nor what is below it: to
 * look at each partition would take longer than it saves.  Neither are nodes of other
 * extensions.
 *
 * One table lists the kinds of plan nodes, for this copy and for the walk that puts
 * filters into a plan (hide.c).  A kind that is not in it is an error, as in
 * ExecInitNode(): there might be a scan of a container below it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parsetree.h"
#include "utils/memutils.h"
#include "visibility/visibility.h"

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
} TtlPlanCopy;

/* What is known of a kind of plan node */
typedef struct NodeKind
{
	size_t		size;			/* 0 = it isn't copied */
	bool		is_scan;		/* of a table */
} NodeKind;

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
			return (NodeKind) {0, false};
		case T_CustomScan:
			return (NodeKind) {0, true};
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

/* Does so for the plan and those below it, and replaces it if it is copied. */
static void
walk(Plan **link, bool copies, TtlScanVisitor visit, void *context)
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

void
ttl_plan_visit_subplans(PlannedStmt *stmt, bool copies, TtlScanVisitor visit, void *context)
{
	ListCell   *lc;

	if (copies)
		stmt->subplans = list_copy(stmt->subplans);
	foreach(lc, stmt->subplans)
		walk((Plan **) &lfirst(lc), copies, visit, context);
}

void
ttl_plan_visit(PlannedStmt *stmt, bool copies, TtlScanVisitor visit, void *context)
{
	walk(&stmt->planTree, copies, visit, context);
	ttl_plan_visit_subplans(stmt, copies, visit, context);
}

bool
ttl_plan_is_scan(const Plan *plan)
{
	NodeKind	kind = kind_of(plan);

	return kind.is_scan && kind.size > 0;
}

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
	TtlContainer container;
	BareScan   *bare;

	if (!ttl_hide_is_filtered(scan, rte->relid, &container))
		return;
	bare = palloc(sizeof(BareScan));
	bare->plan = scan;
	bare->qual = scan->qual;
	bare->next = copy->scans;
	copy->scans = bare;
	scan->qual = without_filter(scan);
}

void
ttl_plan_copy_strip(TtlExecution *execution, int eflags)
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
	ttl_plan_visit(&copy->stmt, true, strip_scan, copy);
	MemoryContextSwitchTo(old);

	query_desc->plannedstmt = &copy->stmt;
	execution->plan_copy = copy;
}

void
ttl_plan_copy_restore(TtlExecution *execution)
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
