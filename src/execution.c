/*-------------------------------------------------------------------------
 *
 * execution.c
 *	  What ttl knows about each running execution of a plan.
 *
 * An execution's clock is the wall clock at ExecutorStart, so that a loop in
 * a procedure sees time pass, which neither now() nor statement_timestamp()
 * gives.  In REPEATABLE READ and SERIALIZABLE it is the time of the
 * transaction's first execution: otherwise rows would vanish from within one
 * snapshot.  Executions that only serve an outer one (foreign-key checks and
 * actions; deletions of ours) use the outer one's.
 *
 * The value belongs to the QueryDesc, for a cursor is started once and run
 * many times.  It lives in the QueryDesc's own memory, linked into a list,
 * and unlinks itself when that memory goes, be it by ExecutorEnd or by an
 * error.  While the executor runs, 'current' points to the innermost one.
 *
 * Parallel workers must judge by their leader's clock.  PostgreSQL copies
 * settings to workers if their value isn't the built-in default; so the
 * clock of whatever runs is kept in the variable of a hidden setting.  A
 * worker takes it from there at its ExecutorStart.
 *
 * This file owns the executor's hooks and lets others observe.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <float.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "compat.h"
#include "execution.h"
#include "executor/executor.h"
#include "guc.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define LEADER_CLOCK	"ttl.leader_clock"

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;

static TtlExecution *executions = NULL; /* all that are started, last first */
static TtlExecution *current = NULL;	/* the innermost one that runs */
static int	depth = 0;			/* nesting of ExecutorRun and ExecutorFinish */

/* First use of the clock in a transaction with one snapshot; 0 = not yet. */
static TimestampTz transaction_clock = 0;

/*
 * Microseconds since 2000 fit into a double's 53 bits until the year 2285,
 * and settings have no 64-bit integer.
 */
static double leader_clock = 0;
static bool leader_clock_is_set = false;

static TtlExpectation expected = {NULL};

static List *start_observers = NIL;
static List *run_observers = NIL;
static List *end_observers = NIL;

TtlExecution *
ttl_execution_current(void)
{
	return current;
}

bool
ttl_execution_is_deleting(void)
{
	for (TtlExecution *execution = executions; execution != NULL; execution = execution->next)
	{
		if (execution->sight == TTL_SEES_EXPIRED)
			return true;
	}
	return false;
}

int
ttl_execution_depth(void)
{
	return depth;
}

static TimestampTz
clock_for_new_execution(void)
{
	if (IsParallelWorker() && leader_clock != 0)
		return (TimestampTz) leader_clock;
	if (current != NULL && InNoForceRLSOperation())
		return current->clock;
	if (!IsolationUsesXactSnapshot())
		return GetCurrentTimestamp();
	if (transaction_clock == 0)
		transaction_clock = GetCurrentTimestamp();
	return transaction_clock;
}

TimestampTz
ttl_execution_clock(void)
{
	return current != NULL ? current->clock : clock_for_new_execution();
}

TtlExpectation
ttl_execution_expect_deletion(const char *source_text, TimestampTz expired_at,
							  bool spares)
{
	TtlExpectation before = expected;

	expected.deletion = source_text;
	expected.depth = depth;
	expected.expired_at = expired_at;
	expected.spares = spares;
	return before;
}

void
ttl_execution_expect(TtlExpectation expectation)
{
	expected = expectation;
}

bool
ttl_execution_is_expected(const char *source_text)
{
	/* rules may make several executions of it; triggers run deeper */
	return expected.deletion != NULL && depth == expected.depth &&
		source_text != NULL && strcmp(expected.deletion, source_text) == 0;
}

static TtlExecution *
find_execution(QueryDesc *query_desc)
{
	TtlExecution *execution;

	for (execution = executions; execution != NULL; execution = execution->next)
	{
		if (execution->query_desc == query_desc)
			return execution;
	}
	return NULL;
}

/* Memory context callback: the execution's memory is about to go. */
static void
forget_execution(void *arg)
{
	TtlExecution **link;

	for (link = &executions; *link != NULL; link = &(*link)->next)
	{
		if (*link == arg)
		{
			*link = (*link)->next;
			return;
		}
	}
}

static TtlExecution *
remember_execution(QueryDesc *query_desc, TimestampTz clock, TtlSight sight)
{
	MemoryContext context = query_desc->estate->es_query_cxt;
	TtlExecution *execution = MemoryContextAlloc(context, sizeof(TtlExecution));
	MemoryContextCallback *callback = MemoryContextAlloc(context, sizeof(MemoryContextCallback));

	execution->query_desc = query_desc;
	execution->clock = clock;
	if (!ttl_guc_now(&execution->reading_now))
		execution->reading_now = clock;
	execution->policies = NIL;
	execution->cascaded = NIL;
	execution->sight = sight;
	execution->expired_at = expected.expired_at;
	execution->spares = expected.spares;
	if (InNoForceRLSOperation() && current != NULL)
	{
		/* a foreign-key check or action */
		execution->user = current->user;
		execution->user_changed = current->user_changed;
	}
	else if (InNoForceRLSOperation() && sight == TTL_SEES_LIVE)
	{
		/* the same, of COPY FROM or at the transaction's end */
		execution->user = GetOuterUserId();
		execution->user_changed = false;
	}
	else
	{
		execution->user = GetUserId();
		execution->user_changed = InLocalUserIdChange();
	}
	execution->next = executions;
	executions = execution;

	callback->func = forget_execution;
	callback->arg = execution;
	MemoryContextRegisterResetCallback(context, callback);
	return execution;
}

static void
execution_start(QueryDesc *query_desc, int eflags)
{
	TtlSight	sight = TTL_SEES_LIVE;
	TimestampTz clock = clock_for_new_execution();
	TtlExecution *execution;
	ListCell   *lc;

	if (ttl_execution_is_expected(query_desc->sourceText))
		sight = TTL_SEES_EXPIRED;

	if (prev_ExecutorStart)
		prev_ExecutorStart(query_desc, eflags);
	else
		standard_ExecutorStart(query_desc, eflags);

	execution = remember_execution(query_desc, clock, sight);

	foreach(lc, start_observers)
		((TtlExecutionStarted) lfirst(lc)) (execution, eflags);
}

/*
 * Makes the execution of query_desc the current one, and returns the one that
 * was.  An execution that was started before ttl's hooks came into being is
 * not known; it gets no clock of its own.
 */
static TtlExecution *
enter(QueryDesc *query_desc)
{
	TtlExecution *outer = current;

	current = find_execution(query_desc);
	depth++;

	if (current != NULL && query_desc->plannedstmt->parallelModeNeeded &&
		!leader_clock_is_set && !IsParallelWorker())
	{
		/*
		 * From now on the setting counts as set, so workers get a copy of the
		 * variable.  PGC_S_OVERRIDE makes that outlive the transaction.
		 */
		SetConfigOption(LEADER_CLOCK, "1", PGC_SUSET, PGC_S_OVERRIDE);
		leader_clock_is_set = true;
	}
	if (current != NULL && !IsParallelWorker())
		leader_clock = (double) current->clock;

	return outer;
}

static void
leave(TtlExecution *outer)
{
	depth--;
	current = outer;
	if (current != NULL && !IsParallelWorker())
		leader_clock = (double) current->clock;
}

/* Without movement, what runs gives an empty result. */
static void
run_current(TTL_EXECUTOR_RUN_PARAMETERS)
{
	ListCell   *lc;

	foreach(lc, run_observers)
	{
		if (current != NULL && !((TtlExecutionRuns) lfirst(lc)) (current))
			direction = NoMovementScanDirection;
	}
	if (prev_ExecutorRun)
		prev_ExecutorRun(TTL_EXECUTOR_RUN_ARGUMENTS);
	else
		standard_ExecutorRun(TTL_EXECUTOR_RUN_ARGUMENTS);
}

static void
execution_run(TTL_EXECUTOR_RUN_PARAMETERS)
{
	TtlExecution *outer = enter(queryDesc);

	PG_TRY();
	{
		run_current(TTL_EXECUTOR_RUN_ARGUMENTS);
	}
	PG_FINALLY();
	{
		leave(outer);
	}
	PG_END_TRY();
}

static void
execution_finish(QueryDesc *query_desc)
{
	TtlExecution *outer = enter(query_desc);

	PG_TRY();
	{
		if (prev_ExecutorFinish)
			prev_ExecutorFinish(query_desc);
		else
			standard_ExecutorFinish(query_desc);
	}
	PG_FINALLY();
	{
		leave(outer);
	}
	PG_END_TRY();
}

static void
visit_targets_of(PlanState *planstate, TtlTargetVisitor visit)
{
	ModifyTableState *mtstate = (ModifyTableState *) planstate;

	if (!IsA(planstate, ModifyTableState) || mtstate->operation == CMD_DELETE)
		return;
	for (int i = 0; i < mtstate->mt_nrels; i++)
		visit(mtstate, &mtstate->resultRelInfo[i]);
}

void
ttl_execution_visit_targets(TtlExecution *execution, TtlTargetVisitor visit)
{
	QueryDesc  *query_desc = execution->query_desc;
	ListCell   *lc;

	if (query_desc->operation == CMD_SELECT && !query_desc->plannedstmt->hasModifyingCTE)
		return;
	visit_targets_of(query_desc->planstate, visit);
	foreach(lc, query_desc->estate->es_auxmodifytables)
		visit_targets_of(lfirst(lc), visit);
}

static void
execution_end(QueryDesc *query_desc)
{
	ListCell   *lc;

	foreach(lc, end_observers)
		((TtlExecutionEnded) lfirst(lc)) (query_desc, depth + 1);

	if (prev_ExecutorEnd)
		prev_ExecutorEnd(query_desc);
	else
		standard_ExecutorEnd(query_desc);
}

static void
transaction_ended(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			transaction_clock = 0;
			break;
		default:
			break;
	}
}

static void
add_observer(List **observers, void *observer)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	*observers = lappend(*observers, observer);
	MemoryContextSwitchTo(old);
}

void
ttl_execution_on_start(TtlExecutionStarted started)
{
	add_observer(&start_observers, (void *) started);
}

void
ttl_execution_on_run(TtlExecutionRuns runs)
{
	add_observer(&run_observers, (void *) runs);
}

void
ttl_execution_on_end(TtlExecutionEnded ended)
{
	add_observer(&end_observers, (void *) ended);
}

void
ttl_execution_init(void)
{
	DefineCustomRealVariable(LEADER_CLOCK,
							 "Hands the clock of a query to its parallel workers.",
							 NULL,
							 &leader_clock,
							 0, 0, DBL_MAX,
							 PGC_SUSET,
							 GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE | GUC_NO_RESET_ALL,
							 NULL, NULL, NULL);

	RegisterXactCallback(transaction_ended, NULL);

	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = execution_start;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = execution_run;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = execution_finish;
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = execution_end;
}
