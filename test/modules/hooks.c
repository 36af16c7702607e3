/*
 * hooks.c - a library with a function behind each hook that ttl hooks, too
 *
 * It calls the server's own where there is one.  The setting hooks.called names those that have been called in
 * this process, and the functions of which object_access_hook has been told that they are executed.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* the parameters of hooks that have others in other versions */
#include "compat.h"

#if TTL_EXPLAINS_NODES
#include "commands/explain.h"
#include "commands/explain_state.h"
#endif

PG_MODULE_MAGIC;

extern void _PG_init(void);

static char *setting;
static StringInfoData called;

static void
note(const char *name)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	if (called.data == NULL)
		initStringInfo(&called);
	if (strstr(called.data, name) == NULL)
		appendStringInfo(&called, "%s ", name);
	MemoryContextSwitchTo(old);
}

static const char *
show(void)
{
	return called.data;
}

static void
request(void)
{
	note("shmem_request");
}

static void
startup(void)
{
	note("shmem_startup");
}

static void
analyze(TTL_POST_PARSE_ANALYZE_PARAMETERS)
{
	note("post_parse_analyze");
}

static PlannedStmt *
plan(TTL_PLANNER_PARAMETERS)
{
	note("planner");
	return standard_planner(TTL_PLANNER_ARGUMENTS);
}

static void
build(TTL_BUILD_SIMPLE_REL_PARAMETERS)
{
	note("build_simple_rel");
}

static void
start(QueryDesc *queryDesc, int eflags)
{
	note("ExecutorStart");
	standard_ExecutorStart(queryDesc, eflags);
}

static void
run(TTL_EXECUTOR_RUN_PARAMETERS)
{
	note("ExecutorRun");
	standard_ExecutorRun(TTL_EXECUTOR_RUN_ARGUMENTS);
}

static void
finish(QueryDesc *queryDesc)
{
	note("ExecutorFinish");
	standard_ExecutorFinish(queryDesc);
}

static void
end(QueryDesc *queryDesc)
{
	note("ExecutorEnd");
	standard_ExecutorEnd(queryDesc);
}

static void
process(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree, ProcessUtilityContext context,
		ParamListInfo params, QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc)
{
	note("ProcessUtility");
	standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
}

static void
object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	note("object_access");
	if (access == OAT_FUNCTION_EXECUTE && objectId >= FirstNormalObjectId)
		note(get_func_name(objectId));
}

#if TTL_EXPLAINS_NODES
static void
explain(PlanState *planstate, List *ancestors, const char *relationship, const char *plan_name, ExplainState *es)
{
	note("explain_per_node");
}
#endif

void
_PG_init(void)
{
	DefineCustomStringVariable("hooks.called", "Hooks that have been called.", NULL, &setting, "", PGC_INTERNAL, 0,
							   NULL, NULL, show);
	shmem_request_hook = request;
	shmem_startup_hook = startup;
	post_parse_analyze_hook = analyze;
	planner_hook = plan;
	build_simple_rel_hook = build;
	ExecutorStart_hook = start;
	ExecutorRun_hook = run;
	ExecutorFinish_hook = finish;
	ExecutorEnd_hook = end;
	ProcessUtility_hook = process;
	object_access_hook = object_access;
#if TTL_EXPLAINS_NODES
	explain_per_node_hook = explain;
#endif
}
