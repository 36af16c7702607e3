/*
 * planner_hook.c - what other extensions may do to the planner
 *
 * Loaded after ttl, it calls nobody else's planner hook.  Loaded before ttl, it
 * hands out the plan of a query with a certain comment again and again.
 */
#include "postgres.h"

#include "fmgr.h"
#include "optimizer/planner.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

extern void _PG_init(void);

static PlannedStmt *kept = NULL;

/* PostgreSQL 19 has one parameter more, which is the caller's own affair */
#if PG_VERSION_NUM >= 190000
#define PARAMETERS	Query *parse, const char *query_string, int cursorOptions, ParamListInfo boundParams, struct ExplainState *es
#define ARGUMENTS	parse, query_string, cursorOptions, boundParams, es
#else
#define PARAMETERS	Query *parse, const char *query_string, int cursorOptions, ParamListInfo boundParams
#define ARGUMENTS	parse, query_string, cursorOptions, boundParams
#endif

static PlannedStmt *
plan(PARAMETERS)
{
	bool		keep = query_string != NULL && strstr(query_string, "/* keep */") != NULL;
	MemoryContext old;

	if (keep && kept != NULL)
		return kept;
	if (!keep)
		return standard_planner(ARGUMENTS);
	old = MemoryContextSwitchTo(TopMemoryContext);
	kept = copyObject(standard_planner(ARGUMENTS));
	MemoryContextSwitchTo(old);
	return kept;
}

void
_PG_init(void)
{
	planner_hook = plan;
}
