/*-------------------------------------------------------------------------
 *
 * bare.c
 *	  Starts executions without the filters that sift.c replaces anyway.
 *
 * To compile the call of a filter function costs a point read more than all that the
 * filter has to do at run time, and so does JIT compilation of quals that are
 * never evaluated.  So while ExecutorStart makes its states, each scan's plan lacks the
 * filter; when it is over, by an error, too, the plan is as it was.  What is
 * made of the plan later (parallel workers' copies, EvalPlanQual's states, EXPLAIN) has
 * the filter in it.
 *
 * A plan may be started while it is being started: partitions are pruned then, and for
 * that stable functions are called, which may execute the same cached plan.  The second
 * one finds the filters put back, and so does what is left of the first one.
 *
 * Each scan that is without a filter here gets its sift, for this walk goes nowhere
 * where the other one doesn't.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "parser/parsetree.h"
#include "utils/memutils.h"
#include "visibility/visibility.h"

typedef struct BareScan
{
	PlannedStmt *stmt;
	Plan	   *plan;
	List	   *qual;			/* with the filter */
} BareScan;

/* Scans of plans that are being started, the innermost execution's last */
static BareScan *scans = NULL;
static int	nscans = 0;
static int	allocated = 0;

/*
 * Quals of nothing but a filter become quals that hold.  Some scans look at their
 * start whether there are any, and begin differently; the two by an index don't.
 */
static List *no_quals = NIL;

static List *
without_filter(const Scan *scan)
{
	if (list_length(scan->plan.qual) > 1)
		return list_copy_tail(scan->plan.qual, 1);
	if (IsA(scan, IndexScan) || IsA(scan, IndexOnlyScan))
		return NIL;
	if (no_quals == NIL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		no_quals = list_make1(makeBoolConst(true, false));
		MemoryContextSwitchTo(old);
	}
	return no_quals;
}

/*
 * Takes the filter from a scan.  Most of the partitions that are pruned at the start
 * are never scanned, and to look at each would take longer than it saves.
 */
static bool
undress_plan(Plan *plan, void *context)
{
	TtlExecution *execution = context;
	PlannedStmt *stmt = execution->query_desc->plannedstmt;
	Scan	   *scan = (Scan *) plan;
	TtlContainer container;
	List	   *qual;

	if (IsA(plan, CustomScan) || TtlPrunesPartitions(plan))
	{
		execution->is_bare = false;
		return false;
	}
	if (IsA(plan, Append) || IsA(plan, MergeAppend) || scan->scanrelid == 0)
		return true;
	if (!ttl_hide_is_filtered(&scan->plan, rt_fetch(scan->scanrelid, stmt->rtable)->relid,
							  &container))
		return true;
	if (nscans == allocated)
	{
		int			wanted = allocated == 0 ? 16 : allocated * 2;

		scans = scans == NULL ? MemoryContextAlloc(TopMemoryContext, sizeof(BareScan) * wanted) :
			repalloc_huge(scans, sizeof(BareScan) * wanted);
		allocated = wanted;
	}
	qual = without_filter(scan);
	scans[nscans++] = (BareScan)
	{
		stmt, &scan->plan, scan->plan.qual
	};
	scan->plan.qual = qual;
	return true;
}

/* Puts filters back; can't fail. */
static void
dress_scan(const BareScan *scan)
{
	if (scan->plan->qual == scan->qual)
		return;
	if (scan->plan->qual != no_quals)
		list_free(scan->plan->qual);
	scan->plan->qual = scan->qual;
}

/* Is the plan being started already?  Then it goes on with its filters. */
static bool
is_starting(const PlannedStmt *stmt)
{
	bool		result = false;

	for (int i = 0; i < nscans; i++)
	{
		if (scans[i].stmt == stmt)
		{
			dress_scan(&scans[i]);
			result = true;
		}
	}
	return result;
}

static void
undress(TtlExecution *execution)
{
	PlannedStmt *stmt = execution->query_desc->plannedstmt;

	execution->bare_scans = nscans;
	if (nscans > 0 && is_starting(stmt))
		return;
	execution->is_bare = true;
	ttl_hide_visit_scans(stmt, false, undress_plan, execution);
}

static void
dress(TtlExecution *execution)
{
	while (nscans > execution->bare_scans)
	{
		BareScan   *scan = &scans[--nscans];

		if (scan->plan->qual == scan->qual)
			execution->is_bare = false;
		dress_scan(scan);
	}
}

void
ttl_bare_init(void)
{
	ttl_execution_on_bare(undress, dress);
}
