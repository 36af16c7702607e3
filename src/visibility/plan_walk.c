/*-------------------------------------------------------------------------
 *
 * plan_walk.c
 *	  Visits the scans of tables in a plan, and copies the plan on the way if wanted.
 *
 * PostgreSQL has walkers for expressions and for states of plans, but none for plans.
 *
 * One table lists the kinds of plan nodes.  A kind that is not in it is an error, as in
 * ExecInitNode(): there might be a scan of a container below it, which nobody would filter.
 *
 * A plan may be cached and shared by other executions, so one that is to be changed is copied as far
 * down as the scans of tables; the copies share targetlists and expressions with the original.
 * An Append whose subplans are pruned at startup is not copied, nor what is below it: to look at
 * each partition would take longer than a copy saves.  Neither are nodes of other extensions, whose
 * size is not known.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "miscadmin.h"
#include "visibility/plan_walk.h"

/*
 * The size of a plan node, or 0 if it isn't copied; *scans_table for a scan of a table, CustomScans included.
 * Errors at a node that is not known.
 */
static size_t
node_size(const Plan *plan, bool *scans_table)
{
	*scans_table = false;
	switch (nodeTag(plan))
	{
#define SCAN(type) case T_##type: *scans_table = true; return sizeof(type)
#define NODE(type) case T_##type: return sizeof(type)
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
			return 0;
		case T_CustomScan:
			*scans_table = true;
			return 0;
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

/* Does what ttl_plan_walk_scans() does for one plan and those below it, and replaces it if it is copied. */
static void
walk(Plan **link, bool copies, TtlScanVisitor visit, void *context)
{
	Plan	   *plan = *link;
	size_t		size;
	bool		scans_table;
	List	  **plans;
	ListCell   *lc;

	if (plan == NULL)
		return;
	check_stack_depth();
	size = node_size(plan, &scans_table);
	if (copies)
	{
		/* scans below keep their filters, which do all the work as calls */
		if (size == 0 || TtlPrunesPartitions(plan))
			return;
		*link = plan = memcpy(palloc(size), plan, size);
	}
	if (scans_table)
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
void
ttl_plan_walk_subplans(PlannedStmt *stmt, bool copies, TtlScanVisitor visit, void *context)
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
void
ttl_plan_walk_scans(PlannedStmt *stmt, bool copies, TtlScanVisitor visit, void *context)
{
	walk(&stmt->planTree, copies, visit, context);
	ttl_plan_walk_subplans(stmt, copies, visit, context);
}

/* True if it is a scan of a table, and no CustomScan. */
bool
ttl_plan_is_scan(const Plan *plan)
{
	bool		scans_table;

	return node_size(plan, &scans_table) > 0 && scans_table;
}
