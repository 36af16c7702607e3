/*-------------------------------------------------------------------------
 *
 * utility.c
 *	  The hook into utility commands.
 *
 * ProcessUtility_hook is assigned here and nowhere else.  Observers of utility
 * commands are registered while the library is loaded; there is no way to unregister.
 *
 * An observer's "end" is called whenever its "before" has been called, even
 * if that failed.
 *
 * EXECUTE and FETCH, which may be as short as what they run, only run plans.  Observers
 * aren't called for these, but for the function that is called before each command.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "cost.h"
#include "utility.h"

typedef struct Observer
{
	TtlUtilityBefore before;
	TtlUtilityAfter after;
	TtlUtilityEnd end;
} Observer;

/* Observers in the order of registration; filled before the first command. */
static List *observers = NIL;

static TtlUtilityBefore before_each = NULL;

/* Saved hook, to be a good citizen. */
static ProcessUtility_hook_type prev_ProcessUtility = NULL;

static void
process_next(PlannedStmt *pstmt, const char *queryString,
			 bool readOnlyTree, ProcessUtilityContext context,
			 ParamListInfo params, QueryEnvironment *queryEnv,
			 DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_ProcessUtility)
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
							queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
								queryEnv, dest, qc);
}

/*
 * Runs the command amid its observers.
 */
static void
process_observed(PlannedStmt *pstmt, const char *queryString,
				 bool readOnlyTree, ProcessUtilityContext context,
				 ParamListInfo params, QueryEnvironment *queryEnv,
				 DestReceiver *dest, QueryCompletion *qc)
{
	PlannedStmt *volatile stmt = readOnlyTree ? copyObject(pstmt) : pstmt;
	volatile int begun = 0;

	ttl_cost_enter();
	PG_TRY();
	{
		ListCell   *lc;

		foreach(lc, observers)
		{
			Observer   *observer = (Observer *) lfirst(lc);

			begun++;
			if (observer->before)
				observer->before(stmt, queryString, context, params);
		}

		process_next(stmt, queryString, false, context, params, queryEnv, dest, qc);

		foreach(lc, observers)
		{
			Observer   *observer = (Observer *) lfirst(lc);

			if (observer->after)
				observer->after(stmt, context);
		}
	}
	PG_FINALLY();
	{
		while (begun > 0)
		{
			Observer   *observer;

			begun--;
			observer = (Observer *) list_nth(observers, begun);
			if (observer->end)
				observer->end(stmt);
		}
		ttl_cost_leave();
	}
	PG_END_TRY();
}

static void
process_utility(PlannedStmt *pstmt, const char *queryString,
				bool readOnlyTree, ProcessUtilityContext context,
				ParamListInfo params, QueryEnvironment *queryEnv,
				DestReceiver *dest, QueryCompletion *qc)
{
	before_each(pstmt, queryString, context, params);
	if (IsA(pstmt->utilityStmt, ExecuteStmt) || IsA(pstmt->utilityStmt, FetchStmt))
		process_next(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
	else
		process_observed(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
}

void
ttl_utility_on_each(TtlUtilityBefore before)
{
	before_each = before;
}

/*
 * Registers an observer, see utility.h.
 */
void
ttl_utility_observe(TtlUtilityBefore before, TtlUtilityAfter after,
					TtlUtilityEnd end)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	Observer   *observer = (Observer *) palloc(sizeof(Observer));

	observer->before = before;
	observer->after = after;
	observer->end = end;
	observers = lappend(observers, observer);

	MemoryContextSwitchTo(oldcontext);
}

void
ttl_utility_init(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
