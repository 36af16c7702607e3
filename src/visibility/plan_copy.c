/*-------------------------------------------------------------------------
 *
 * plan_copy.c
 *	  Starts executions without the filters that scan_filter.c replaces.
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

/* The size of a node that is copied, else 0 */
static size_t
node_size(const Plan *plan)
{
	switch (nodeTag(plan))
	{
#define SIZE_OF(type) case T_##type: return sizeof(type)
			SIZE_OF(SeqScan);
			SIZE_OF(SampleScan);
			SIZE_OF(IndexScan);
			SIZE_OF(IndexOnlyScan);
			SIZE_OF(BitmapHeapScan);
			SIZE_OF(TidScan);
			SIZE_OF(TidRangeScan);
			SIZE_OF(SubqueryScan);
			SIZE_OF(Append);
			SIZE_OF(MergeAppend);
			SIZE_OF(ModifyTable);
			SIZE_OF(LockRows);
			SIZE_OF(Limit);
			SIZE_OF(Result);
			SIZE_OF(ProjectSet);
			SIZE_OF(NestLoop);
			SIZE_OF(MergeJoin);
			SIZE_OF(HashJoin);
			SIZE_OF(Hash);
			SIZE_OF(Material);
			SIZE_OF(Memoize);
			SIZE_OF(Sort);
			SIZE_OF(IncrementalSort);
			SIZE_OF(Group);
			SIZE_OF(Agg);
			SIZE_OF(WindowAgg);
			SIZE_OF(Unique);
			SIZE_OF(SetOp);
			SIZE_OF(RecursiveUnion);
			SIZE_OF(Gather);
			SIZE_OF(GatherMerge);
#undef SIZE_OF
		default:
			return 0;
	}
}

/*
 * The quals of a scan but the filter.  Scans other than by an index look at their start
 * whether there are any, and begin differently; they get one that holds.
 */
static List *
without_filter(const Plan *scan)
{
	if (list_length(scan->qual) > 1)
		return list_copy_tail(scan->qual, 1);
	if (IsA(scan, IndexScan) || IsA(scan, IndexOnlyScan))
		return NIL;
	return list_make1(makeBoolConst(true, false));
}

/* Takes the filter from a copied scan of a table. */
static void
strip_scan(Plan *scan, TtlPlanCopy *copy)
{
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

static List *copy_plans(List *plans, TtlPlanCopy *copy);

static Plan *
copy_plan(Plan *plan, TtlPlanCopy *copy)
{
	size_t		size = plan == NULL ? 0 : node_size(plan);

	if (size == 0 || TtlPrunesPartitions(plan))
		return plan;
	check_stack_depth();
	plan = memcpy(palloc(size), plan, size);
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
			strip_scan(plan, copy);
			return plan;
		case T_SubqueryScan:
			((SubqueryScan *) plan)->subplan = copy_plan(((SubqueryScan *) plan)->subplan, copy);
			return plan;
		case T_Append:
			((Append *) plan)->appendplans = copy_plans(((Append *) plan)->appendplans, copy);
			return plan;
		case T_MergeAppend:
			((MergeAppend *) plan)->mergeplans = copy_plans(((MergeAppend *) plan)->mergeplans, copy);
			return plan;
		default:
			plan->lefttree = copy_plan(plan->lefttree, copy);
			plan->righttree = copy_plan(plan->righttree, copy);
			return plan;
	}
}

static List *
copy_plans(List *plans, TtlPlanCopy *copy)
{
	List	   *result = list_copy(plans);
	ListCell   *lc;

	foreach(lc, result)
		lfirst(lc) = copy_plan(lfirst(lc), copy);
	return result;
}

/* Observer of executions: has ExecutorStart get a copy. */
static void
execution_starts(TtlExecution *execution, int eflags)
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
	copy->stmt.planTree = copy_plan(copy->stmt.planTree, copy);
	copy->stmt.subplans = copy_plans(copy->stmt.subplans, copy);
	MemoryContextSwitchTo(old);

	query_desc->plannedstmt = &copy->stmt;
	execution->plan_copy = copy;
}

/* The same: gives the filters back. */
static void
execution_started(TtlExecution *execution, int eflags)
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

void
ttl_plan_copy_init(void)
{
	ttl_execution_on_prepare(execution_starts);
	ttl_execution_on_start(execution_started);
}
