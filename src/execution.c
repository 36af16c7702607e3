/*-------------------------------------------------------------------------
 *
 * execution.c
 *	  State of each running execution of a plan.
 *
 * An execution's clock is the wall clock at ExecutorStart, so that a loop in
 * a procedure sees time pass, which neither now() nor statement_timestamp()
 * gives.
 *
 * The clock belongs to the snapshot that is read (reference_time.c).
 *
 * Executions that only serve an outer one (foreign-key checks and actions;
 * deletions of ours) use the outer one's.
 *
 * The value belongs to the QueryDesc, for a cursor is started once and run
 * many times.  It lives in the QueryDesc's own memory, linked into a list,
 * and unlinks itself when that memory goes, be it by ExecutorEnd or by an
 * error.  While the executor runs, 'current' points to the innermost one.
 *
 * Parallel workers must evaluate expiry as their leader does: by its clock, its ttl.now,
 * and the policies that it has resolved.  PostgreSQL copies settings to workers
 * if their value isn't the built-in default; so all that is written into the
 * value of a hidden setting, which is made non-default once, at the server's
 * start, and has no other use: its context is SIGHUP, which no SET may
 * change.  A worker reads it at its outermost ExecutorStart.
 *
 * The statement of a deletion of ours may be lent the rights of the tables' owner: as
 * soon as it has been analyzed, its tables are marked to be checked as him, as those of
 * a view or a rule are.
 *
 * This file owns the executor's hooks and lets others observe.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "analysis.h"
#include "reference_time.h"
#include "compat.h"
#include "cost.h"
#include "execution.h"
#include "executor/executor.h"
#include "guc.h"
#include "miscadmin.h"
#include "rewrite/rewriteDefine.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#define LEADER	"ttl.leader"
#define LEADER_IDLE	"idle"

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;

static TtlExecution *executions = NULL; /* all that are started, last first */
static TtlExecution *current = NULL;	/* the innermost one that runs */
static int	depth = 0;			/* nesting of ExecutorRun and ExecutorFinish */

/* The value of the setting: what the innermost running query hands over. */
static char *leader = NULL;
static char *leader_idle = NULL;	/* its value while there is none */

static TtlExpectation expected = {NULL};

static List *prepare_observers = NIL;
static List *start_observers = NIL;
static List *run_observers = NIL;
static List *ran_observers = NIL;
static List *end_observers = NIL;
static TtlExecutionWrite write_resolved = NULL;
static TtlExecutionRead read_resolved = NULL;

TtlExecution *
ttl_execution_current(void)
{
	return current;
}

TtlExecution *
ttl_execution_of(const EState *estate)
{
	TtlExecution *execution = executions;

	while (execution != NULL && execution->query_desc->estate != estate)
		execution = execution->next;
	return execution;
}

int
ttl_execution_depth(void)
{
	return depth;
}

TimestampTz
ttl_execution_reference_time(void)
{
	return current != NULL ? current->clock : ttl_reference_time_get(InvalidSnapshot);
}

TtlExpectation
ttl_execution_expect_deletion(const char *source_text, TimestampTz expired_at,
							  bool excludes_grace, Oid owner)
{
	TtlExpectation before = expected;

	expected.deletion = source_text;
	expected.depth = depth;
	expected.expired_at = expired_at;
	expected.excludes_grace = excludes_grace;
	expected.owner = owner;
	expected.analyzed = false;
	GetUserIdAndSecContext(&expected.role, &expected.sec_context);
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

Oid
ttl_execution_deletes_as(void)
{
	return expected.owner;
}

static void
statement_analyzed(ParseState *pstate, Query *query)
{
	/* the rewriter checks row security, the executor permissions */
	if (!expected.analyzed && ttl_execution_is_expected(pstate->p_sourcetext))
	{
		expected.analyzed = true;
		setRuleCheckAsUser((Node *) query, expected.owner);
		SetUserIdAndSecContext(expected.role,
							   expected.sec_context | SECURITY_NOFORCE_RLS);
	}
	ttl_reference_time_analyzed(query);
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

/* Is what starts now, in a parallel worker, the query that its leader has started it for? */
static bool
follows_leader(void)
{
	return IsParallelWorker() && executions == NULL && strcmp(leader, LEADER_IDLE) != 0;
}

/* True if the execution writes nothing, so that no trigger is queued. */
static bool
only_reads(const QueryDesc *query_desc)
{
	return query_desc->operation == CMD_SELECT && !query_desc->plannedstmt->hasModifyingCTE;
}

/* What is known of an execution before it starts. */
static void
describe_execution(TtlExecution *execution, QueryDesc *query_desc)
{
	bool		deletes = ttl_execution_is_expected(query_desc->sourceText);
	bool		serves_foreign_key = InNoForceRLSOperation();

	memset(execution, 0, sizeof(TtlExecution));
	execution->query_desc = query_desc;
	execution->follows_leader = follows_leader();
	if (execution->follows_leader)
	{
		execution->clock = strtoi64(leader, NULL, 10);
		ttl_reference_time_follow(execution->clock);
	}
	else if (current != NULL && (deletes || serves_foreign_key))
		execution->clock = current->clock;
	else
		execution->clock = ttl_reference_time_get(query_desc->snapshot);
	if (!ttl_guc_now(&execution->reading_now))
		execution->reading_now = execution->clock;
	execution->row_mode = deletes ? TTL_SEES_EXPIRED : TTL_SEES_LIVE;
	execution->expired_at = expected.expired_at;
	execution->excludes_grace = expected.excludes_grace;
	execution->role = GetUserId();
	execution->observed = serves_foreign_key || !only_reads(query_desc);
	if (serves_foreign_key && current != NULL)
	{
		/* a foreign-key check or action */
		execution->user = current->user;
		execution->user_changed = current->user_changed;
	}
	else if (serves_foreign_key && !deletes)
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
}

static TtlExecution *
remember_execution(const TtlExecution *starting)
{
	MemoryContext context = starting->query_desc->estate->es_query_cxt;
	TtlExecution *execution = MemoryContextAlloc(context, sizeof(TtlExecution));

	*execution = *starting;
	execution->next = executions;
	executions = execution;

	execution->forget.func = forget_execution;
	execution->forget.arg = execution;
	MemoryContextRegisterResetCallback(context, &execution->forget);
	return execution;
}

/*
 * Leader and workers
 */

/*
 * Makes what is handed over to workers of the execution.  Once, and not while the executor
 * runs.
 */
static void
prepare_to_lead(QueryDesc *query_desc)
{
	TtlExecution *execution;
	StringInfoData text;
	MemoryContext old;

	if (!query_desc->plannedstmt->parallelModeNeeded || IsParallelWorker())
		return;
	execution = ttl_execution_of(query_desc->estate);
	if (execution == NULL || execution->handed_over != NULL)
		return;
	old = MemoryContextSwitchTo(query_desc->estate->es_query_cxt);
	initStringInfo(&text);
	appendStringInfo(&text, INT64_FORMAT " " INT64_FORMAT,
					 execution->clock, execution->reading_now);
	write_resolved(execution, &text);
	execution->handed_over = text.data;

	MemoryContextSwitchTo(old);
}

static void
follow_leader(TtlExecution *execution)
{
	char	   *resolved;

	(void) strtoi64(leader, &resolved, 10);
	execution->reading_now = strtoi64(resolved, &resolved, 10);
	read_resolved(execution, resolved);
}

void
ttl_execution_on_hand_over(TtlExecutionWrite write, TtlExecutionRead read)
{
	write_resolved = write;
	read_resolved = read;
}

static void
execution_start(QueryDesc *query_desc, int eflags)
{
	TtlExecution starting;
	TtlExecution *execution;
	ListCell   *lc;

	describe_execution(&starting, query_desc);

	/* at once, for the executor may call functions while it starts */
	if (query_desc->snapshot != InvalidSnapshot)
		ttl_reference_time_set(query_desc->snapshot, starting.clock);

	foreach(lc, prepare_observers)
		((TtlExecutionPrepared) lfirst(lc)) (&starting, eflags);

	if (prev_ExecutorStart)
		prev_ExecutorStart(query_desc, eflags);
	else
		standard_ExecutorStart(query_desc, eflags);

	execution = remember_execution(&starting);
	if (execution->follows_leader)
		follow_leader(execution);

	execution->observed |= execution->hides;
	if (execution->observed)
	{
		foreach(lc, start_observers)
			((TtlExecutionStarted) lfirst(lc)) (execution, eflags);
	}
}

static void
set_current(TtlExecution *execution)
{
	current = execution;
	if (!IsParallelWorker())
		leader = current != NULL && current->handed_over != NULL ?
			current->handed_over : leader_idle;
}

/*
 * Makes the execution of query_desc the current one.  One that was started
 * before ttl's hooks came into being is not known; it gets no clock of its own.
 * Neither this nor leave() can fail: they are called right before PG_TRY and in
 * PG_FINALLY.
 */
static void
enter(QueryDesc *query_desc)
{
	depth++;
	set_current(ttl_execution_of(query_desc->estate));
}

static void
leave(TtlExecution *outer)
{
	depth--;
	set_current(outer);
}

/* Without movement, what runs gives an empty result. */
static void
run_current(const TtlExecution *outer, TTL_EXECUTOR_RUN_PARAMETERS)
{
	ListCell   *lc;

	if (current != NULL && current->observed)
	{
		foreach(lc, run_observers)
		{
			if (!((TtlExecutionRuns) lfirst(lc)) (current, outer))
				direction = NoMovementScanDirection;
		}
	}
	if (prev_ExecutorRun)
		prev_ExecutorRun(TTL_EXECUTOR_RUN_ARGUMENTS);
	else
		standard_ExecutorRun(TTL_EXECUTOR_RUN_ARGUMENTS);
}

static void
execution_run(TTL_EXECUTOR_RUN_PARAMETERS)
{
	TtlExecution *outer = current;
	ListCell   *lc;

	prepare_to_lead(queryDesc);
	ttl_cost_enter();
	enter(queryDesc);
	PG_TRY();
	{
		run_current(outer, TTL_EXECUTOR_RUN_ARGUMENTS);
	}
	PG_FINALLY();
	{
		leave(outer);
		ttl_cost_leave();
	}
	PG_END_TRY();

	foreach(lc, ran_observers)
		((TtlExecutionRan) lfirst(lc)) (queryDesc);
}

static void
finish_next(QueryDesc *query_desc)
{
	if (prev_ExecutorFinish)
		prev_ExecutorFinish(query_desc);
	else
		standard_ExecutorFinish(query_desc);
}

static void
execution_finish(QueryDesc *query_desc)
{
	TtlExecution *outer = current;

	/* then nothing is executed here */
	if (only_reads(query_desc))
	{
		finish_next(query_desc);
		return;
	}
	ttl_cost_enter();
	enter(query_desc);
	PG_TRY();
	{
		finish_next(query_desc);
	}
	PG_FINALLY();
	{
		leave(outer);
		ttl_cost_leave();
	}
	PG_END_TRY();
}

static void
visit_targets_of(PlanState *planstate, TtlTargetVisitor visit)
{
	ModifyTableState *mtstate = (ModifyTableState *) planstate;

	if (!IsA(planstate, ModifyTableState))
		return;
	for (int i = 0; i < mtstate->mt_nrels; i++)
		visit(mtstate, &mtstate->resultRelInfo[i]);
}

void
ttl_execution_visit_targets(TtlExecution *execution, TtlTargetVisitor visit)
{
	QueryDesc  *query_desc = execution->query_desc;
	ListCell   *lc;

	if (only_reads(query_desc))
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
add_observer(List **observers, void *observer)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	*observers = lappend(*observers, observer);
	MemoryContextSwitchTo(old);
}

void
ttl_execution_on_prepare(TtlExecutionPrepared prepared)
{
	add_observer(&prepare_observers, (void *) prepared);
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
ttl_execution_on_ran(TtlExecutionRan ran)
{
	add_observer(&ran_observers, (void *) ran);
}

void
ttl_execution_on_end(TtlExecutionEnded ended)
{
	add_observer(&end_observers, (void *) ended);
}

/* Called in each parallel worker, since the setting has no default value. */
static void
leader_assigned(const char *value, void *extra)
{
	if (InitializingParallelWorker)
		ttl_cost_worker_starts();
}

void
ttl_execution_init(void)
{
	DefineCustomStringVariable(LEADER,
							   "Hands to parallel workers what their leader has resolved.",
							   NULL,
							   &leader,
							   "",
							   PGC_SIGHUP,
							   GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE | GUC_NO_RESET_ALL,
							   NULL, leader_assigned, NULL);
	SetConfigOption(LEADER, LEADER_IDLE, PGC_POSTMASTER, PGC_S_OVERRIDE);
	leader_idle = leader;

	ttl_analysis_observe(statement_analyzed);
	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = execution_start;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = execution_run;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = execution_finish;
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = execution_end;
}
