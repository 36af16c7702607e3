/*-------------------------------------------------------------------------
 *
 * ttl.c
 *	  Start of the library, and each hook of the server.
 *
 * A hook is a function here, named after it, that calls the rooms in order; nothing registers
 * itself.  Mostly that is from the bottom of the house (CONTRIBUTING.md) to the top.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "citus/citus.h"
#include "compat.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "cost.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "guc.h"
#include "miscadmin.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "reaper/reaper.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "ttl.h"
#include "utils/inval.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "visibility/visibility.h"
#include "writers.h"
#if TTL_EXPLAINS_NODES
#include "commands/explain.h"
#include "commands/explain_state.h"
#endif

TTL_MODULE_MAGIC(TTL_EXTENSION, TTL_VERSION);

PGDLLEXPORT void _PG_init(void);

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;
static post_parse_analyze_hook_type prev_post_parse_analyze_hook = NULL;
static planner_hook_type prev_planner_hook = NULL;
static build_simple_rel_hook_type prev_build_simple_rel_hook = NULL;
static ExecutorStart_hook_type prev_ExecutorStart_hook = NULL;
static ExecutorRun_hook_type prev_ExecutorRun_hook = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish_hook = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd_hook = NULL;
static ProcessUtility_hook_type prev_ProcessUtility_hook = NULL;
static object_access_hook_type prev_object_access_hook = NULL;
static needs_fmgr_hook_type prev_needs_fmgr_hook = NULL;
static fmgr_hook_type prev_fmgr_hook = NULL;
#if TTL_EXPLAINS_NODES
static explain_per_node_hook_type prev_explain_per_node_hook = NULL;
#endif

static void
ttl_shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	ttl_reaper_request_shmem();
}

static void
ttl_shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	ttl_reaper_attach_shmem();
}

/*
 * Planning
 */

static void
ttl_post_parse_analyze(TTL_POST_PARSE_ANALYZE_PARAMETERS)
{
	if (prev_post_parse_analyze_hook)
		prev_post_parse_analyze_hook(TTL_POST_PARSE_ANALYZE_ARGUMENTS);
	ttl_last_seen_note_xid();
	ttl_execution_analyzed(pstate, query);
	ttl_citus_analyzed(query);
}

/* Plans as if all rows were live, then filters the scans of the finished plan. */
static PlannedStmt *
ttl_planner(TTL_PLANNER_PARAMETERS)
{
	TtlPlanning planning;
	PlannedStmt *volatile result;

	ttl_hide_prepare_query(&planning, parse, query_string);
	PG_TRY();
	{
		ttl_hide_enter_planning(&planning);
		if (prev_planner_hook)
			result = prev_planner_hook(TTL_PLANNER_ARGUMENTS);
		else
			result = standard_planner(TTL_PLANNER_ARGUMENTS);
	}
	PG_FINALLY();
	{
		ttl_hide_leave_planning(&planning);
	}
	PG_END_TRY();
	ttl_hide_planned(result, &planning);
	return result;
}

static void
ttl_build_simple_rel(TTL_BUILD_SIMPLE_REL_PARAMETERS)
{
	if (prev_build_simple_rel_hook)
		prev_build_simple_rel_hook(TTL_BUILD_SIMPLE_REL_ARGUMENTS);
	ttl_hide_forbid_index_only_scans(root, rel, TTL_BUILD_SIMPLE_REL_RTE);
}

/*
 * Executions of plans
 */

/* Starts a plan without its filters, and puts them into the scans afterwards. */
static void
ttl_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	TtlExecution starting;
	TtlExecution *execution;
	ErrorContextCallback denied = {error_context_stack, ttl_policy_explain_denied, NULL};

	/*
	 * the executor may call functions while it starts, so the clock comes
	 * first
	 */
	ttl_execution_describe(&starting, queryDesc);
	ttl_hide_complete(&starting);
	ttl_start_without_filters(&starting, eflags);

	if (ttl_policy_is_written(queryDesc->plannedstmt))
		error_context_stack = &denied;
	if (prev_ExecutorStart_hook)
		prev_ExecutorStart_hook(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
	error_context_stack = denied.previous;

	execution = ttl_execution_remember(&starting);
	if (execution->follows_leader)
		ttl_live_follow_leader(execution);
	/* the rest is of no concern to a query that reads no container */
	if (!execution->observed)
		return;
	ttl_live_started(execution, eflags);
	ttl_deletion_started(execution);
	ttl_start_add_scan_filters(execution, eflags);
	ttl_targets_started(execution);
	ttl_fk_check_started(execution);
}

/*
 * Policies that have been changed go to other nodes of Citus now, which may not have a table that
 * Citus is making, and to workers at commit.
 */
static void
send_policies(void)
{
	List	   *changed;

	if (ttl_citus_in_extent())
		return;
	changed = ttl_policy_take_changed();
	if (changed != NIL)
		ttl_request_at_commit();
	ttl_citus_send(changed);
}

/* Without movement, what runs gives an empty result. */
static void
run_current(const TtlExecution *outer, TTL_EXECUTOR_RUN_PARAMETERS)
{
	const TtlExecution *execution = ttl_execution_current();
	ErrorContextCallback key = {error_context_stack, ttl_targets_explain_key, NULL};

	if (!ttl_fk_delete_expired_before(outer))
		direction = NoMovementScanDirection;
	if (execution != NULL && execution->keeps_keys)
		error_context_stack = &key;
	if (prev_ExecutorRun_hook)
		prev_ExecutorRun_hook(TTL_EXECUTOR_RUN_ARGUMENTS);
	else
		standard_ExecutorRun(TTL_EXECUTOR_RUN_ARGUMENTS);
	error_context_stack = key.previous;
}

/* Runs the plan as the current execution, and sends policies that it has changed. */
static void
ttl_ExecutorRun(TTL_EXECUTOR_RUN_PARAMETERS)
{
	TtlExecution *outer;

	/* before the execution is entered, which hands it to workers */
	ttl_live_lead(queryDesc);
	ttl_cost_enter();
	outer = ttl_execution_enter(queryDesc);
	PG_TRY();
	{
		run_current(outer, TTL_EXECUTOR_RUN_ARGUMENTS);
		ttl_deletion_ran(ttl_execution_current());
	}
	PG_FINALLY();
	{
		ttl_execution_leave(outer);
		ttl_cost_leave();
	}
	PG_END_TRY();
	send_policies();
}

/* The next hook, or PostgreSQL's function; process_next() likewise. */
static void
finish_next(QueryDesc *queryDesc)
{
	if (prev_ExecutorFinish_hook)
		prev_ExecutorFinish_hook(queryDesc);
	else
		standard_ExecutorFinish(queryDesc);
}

/* AFTER triggers run here: inside the execution, like the plan itself. */
static void
ttl_ExecutorFinish(QueryDesc *queryDesc)
{
	TtlExecution *outer;

	/* nothing is executed here if no trigger can be queued */
	if (ttl_execution_only_reads(queryDesc))
	{
		finish_next(queryDesc);
		return;
	}
	ttl_cost_enter();
	outer = ttl_execution_enter(queryDesc);
	PG_TRY();
	{
		finish_next(queryDesc);
	}
	PG_FINALLY();
	{
		ttl_execution_leave(outer);
		ttl_cost_leave();
	}
	PG_END_TRY();
}

static void
ttl_ExecutorEnd(QueryDesc *queryDesc)
{
	ttl_evict_ends(queryDesc);
	if (prev_ExecutorEnd_hook)
		prev_ExecutorEnd_hook(queryDesc);
	else
		standard_ExecutorEnd(queryDesc);
}

#if TTL_EXPLAINS_NODES
static void
ttl_explain_per_node(PlanState *planstate, List *ancestors, const char *relationship,
					 const char *plan_name, ExplainState *es)
{
	if (prev_explain_per_node_hook)
		prev_explain_per_node_hook(planstate, ancestors, relationship, plan_name, es);
	ttl_scan_filter_explain(planstate, es);
}
#endif

/*
 * Utility commands
 */

static void
process_next(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			 ProcessUtilityContext context, ParamListInfo params,
			 QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_ProcessUtility_hook)
		prev_ProcessUtility_hook(pstmt, queryString, readOnlyTree, context, params, queryEnv,
								 dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv,
								dest, qc);
}

/*
 * Transaction commands come by, too, also in a transaction that has failed: what is called
 * looks at the statement's type before it touches a catalog.  The statement is a private copy,
 * and may be modified.  EXECUTE and FETCH, which may be as short as what they run, only run
 * plans.
 */
static void
ttl_ProcessUtility(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
				   ProcessUtilityContext context, ParamListInfo params,
				   QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	PlannedStmt *volatile stmt = pstmt;
	ErrorContextCallback denied = {error_context_stack, ttl_policy_explain_denied, NULL};
	TtlValidation validation;
	TtlChecking checking;
	bool		by_citus;

	ttl_execution_before_utility(pstmt);
	/* their plans come by ttl_ExecutorRun(), which does what is to be done */
	if (IsA(pstmt->utilityStmt, ExecuteStmt) || IsA(pstmt->utilityStmt, FetchStmt))
	{
		process_next(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
		return;
	}

	if (readOnlyTree)
		stmt = copyObject(pstmt);
	ttl_cost_enter();
	checking = ttl_execution_begin_checking(stmt);
	PG_TRY();
	{
		ttl_request_before_utility(stmt);
		ttl_live_begin_validation(&validation, stmt->utilityStmt);
		/* from here on Citus's own work is known, to ttl_citus_end_utility() */
		by_citus = ttl_citus_before_utility(stmt);
		ttl_ddl_before_utility(stmt, context, by_citus);
		ttl_copy_hide(stmt);
		ttl_copy_start(stmt);

		if (ttl_policy_is_written(stmt))
			error_context_stack = &denied;
		process_next(stmt, queryString, false, context, params, queryEnv, dest, qc);
		error_context_stack = denied.previous;

		ttl_request_after_utility(stmt);
		ttl_execution_after_utility();
		ttl_ddl_after_utility(stmt, context, by_citus);
		ttl_citus_after_utility(stmt);
	}
	PG_FINALLY();
	{
		/*
		 * These cannot fail, and do nothing about a command of whose
		 * beginning they have not been told.
		 */
		ttl_execution_end_checking(checking);
		ttl_citus_end_utility(stmt);
		ttl_live_end_validation(&validation);
		ttl_cost_leave();
	}
	PG_END_TRY();
	send_policies();
}

/* Tells executions of functions, and DDL of objects that change; ttl's own functions are not told to others. */
static void
ttl_object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	/* pgaudit would log the filter function for each query */
	if (access == OAT_FUNCTION_EXECUTE && objectId >= FirstNormalObjectId &&
		ttl_container_is_own_function(objectId))
		return;
	if (prev_object_access_hook)
		prev_object_access_hook(access, classId, objectId, subId, arg);
	if (access == OAT_FUNCTION_EXECUTE)
		ttl_execution_function_called();
	else
		ttl_ddl_object_changed(access, classId, objectId, subId, arg);
}

/*
 * Calls of functions; in servers that have Citus
 */

static bool
ttl_needs_fmgr(Oid functionId)
{
	return (prev_needs_fmgr_hook && prev_needs_fmgr_hook(functionId)) ||
		ttl_citus_needs_fmgr(functionId);
}

static void
ttl_fmgr(FmgrHookEventType event, FmgrInfo *flinfo, Datum *arg)
{
	if (prev_fmgr_hook)
		prev_fmgr_hook(event, flinfo, arg);
	ttl_citus_fmgr(event, flinfo);
}

/*
 * Callbacks
 */

static void
ttl_xact_callback(XactEvent event, void *arg)
{
	ttl_cost_transaction(event);
	ttl_execution_transaction(event);
	ttl_request_transaction(event);
	ttl_counters_transaction(event);
	ttl_writers_transaction(event);
}

/* The worker must find the change committed, and no lock held, when it wakes. */
static void
ttl_resource_release_callback(ResourceReleasePhase phase, bool isCommit, bool isTopLevel, void *arg)
{
	/* not by the transaction's callback: the locks are still held then */
	if (phase == RESOURCE_RELEASE_AFTER_LOCKS && isCommit && isTopLevel)
		ttl_request_send();
}

static void
ttl_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	ttl_counters_subtransaction(event, subid, parent);
}

/*
 * PostgreSQL has room for ten callbacks of the relation cache in a process, for itself and all
 * extensions, and ends a process that wants one more.  Citus takes five, and logical
 * replication two.
 */
static void
ttl_relcache_callback(Datum arg, Oid relid)
{
	ttl_container_invalidate(relid);
	ttl_citus_invalidate(relid);
	ttl_schedule_relation_changed(relid);
}

static void
ttl_namespace_callback(Datum arg, int cacheid, uint32 hashvalue)
{
	/* the extension may have come or gone, and with it all containers */
	ttl_objects_invalidate();
	ttl_container_invalidate(InvalidOid);
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("library \"%s\" must be loaded at server start", TTL_EXTENSION),
				 errhint("Add \"%s\" to \"%s\" in postgresql.conf and restart the server.",
						 TTL_EXTENSION, "shared_preload_libraries")));

	/* settings come first, since the size of shared memory depends on them */
	ttl_guc_init();
	ttl_execution_init();
	ttl_reaper_init();

	RegisterXactCallback(ttl_xact_callback, NULL);
	RegisterSubXactCallback(ttl_subxact_callback, NULL);
	RegisterResourceReleaseCallback(ttl_resource_release_callback, NULL);
	CacheRegisterRelcacheCallback(ttl_relcache_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, ttl_namespace_callback, (Datum) 0);

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = ttl_shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = ttl_shmem_startup;
	prev_post_parse_analyze_hook = post_parse_analyze_hook;
	post_parse_analyze_hook = ttl_post_parse_analyze;
	prev_planner_hook = planner_hook;
	planner_hook = ttl_planner;
	prev_build_simple_rel_hook = build_simple_rel_hook;
	build_simple_rel_hook = ttl_build_simple_rel;
	prev_ExecutorStart_hook = ExecutorStart_hook;
	ExecutorStart_hook = ttl_ExecutorStart;
	prev_ExecutorRun_hook = ExecutorRun_hook;
	ExecutorRun_hook = ttl_ExecutorRun;
	prev_ExecutorFinish_hook = ExecutorFinish_hook;
	ExecutorFinish_hook = ttl_ExecutorFinish;
	prev_ExecutorEnd_hook = ExecutorEnd_hook;
	ExecutorEnd_hook = ttl_ExecutorEnd;
	prev_ProcessUtility_hook = ProcessUtility_hook;
	ProcessUtility_hook = ttl_ProcessUtility;
	prev_object_access_hook = object_access_hook;
	object_access_hook = ttl_object_access;
#if TTL_EXPLAINS_NODES
	prev_explain_per_node_hook = explain_per_node_hook;
	explain_per_node_hook = ttl_explain_per_node;
#endif
	/* elsewhere they would cost each look-up of a function */
	if (ttl_citus_init())
	{
		prev_needs_fmgr_hook = needs_fmgr_hook;
		needs_fmgr_hook = ttl_needs_fmgr;
		prev_fmgr_hook = fmgr_hook;
		fmgr_hook = ttl_fmgr;
	}
}
