/*-------------------------------------------------------------------------
 *
 * start.c
 *	  Starts executions without the filters in their plans, and gives the scans scan filters instead.
 *
 * To compile the call of a filter function costs a point read more than all that it does at run
 * time, and so does JIT compilation of quals that are never evaluated.  So ExecutorStart gets a
 * copy of the plan (plan_walk.c) in which scans lack the filter that hide.c has put there.  When
 * ExecutorStart is over, each filtered scan gets a scan filter (scan_filter.c), and the copied plan the
 * filters back, so that what is made of it later has them: parallel workers' copies, EvalPlanQual's
 * states, EXPLAIN.  The copy lives as long as the executor's state.  The QueryDesc refers to it during
 * ExecutorStart alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "visibility/plan_walk.h"
#include "visibility/visibility.h"

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
	/* elsewhere a call of that function is a user's qual */
	*deletes = execution->row_mode == TTL_SEES_EXPIRED &&
		function == ttl_container_function(TTL_IS_EXPIRED);
	return (*deletes || function == ttl_container_function(TTL_IS_LIVE) ||
			function == ttl_container_function(TTL_IS_LIVE_BY_TID)) &&
		ttl_container_is_part(relid);
}

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
ttl_start_without_filters(TtlExecution *execution, int eflags)
{
	QueryDesc  *query_desc = execution->query_desc;
	MemoryContext context;
	MemoryContext old;
	TtlPlanCopy *copy;

	/* EXPLAIN shows the filters, and evaluates none */
	if (!execution->hides || (eflags & EXEC_FLAG_EXPLAIN_ONLY))
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "ttl plan copy",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	copy = palloc(sizeof(TtlPlanCopy));
	/* what the walk doesn't copy is shared with the original, and not changed */
	copy->stmt = *query_desc->plannedstmt;
	copy->original = query_desc->plannedstmt;
	copy->scans = NULL;
	copy->context = context;
	copy->execution = execution;
	ttl_plan_walk_scans(&copy->stmt, true, strip_scan, copy);
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
	/* until then, an error would have freed it with the caller's context */
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

	if (ttl_plan_is_scan(planstate->plan))
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
ttl_start_add_scan_filters(TtlExecution *execution, int eflags)
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
		/* a worker starts only those that are safe there */
		if (lfirst(lc) != NULL)
			(void) add_filters(lfirst(lc), execution);
	}
	MemoryContextSwitchTo(old);
}
