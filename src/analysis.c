/*-------------------------------------------------------------------------
 *
 * analysis.c
 *	  The hook into parse analysis.
 *
 * post_parse_analyze_hook is assigned here and nowhere else; observers are called in the
 * order of their registration.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "analysis.h"
#include "compat.h"
#include "nodes/pg_list.h"
#include "parser/analyze.h"
#include "utils/memutils.h"

static List *observers = NIL;

static post_parse_analyze_hook_type prev_post_parse_analyze = NULL;

static void
analyzed(TTL_POST_PARSE_ANALYZE_PARAMETERS)
{
	ListCell   *lc;

	if (prev_post_parse_analyze)
		prev_post_parse_analyze(TTL_POST_PARSE_ANALYZE_ARGUMENTS);
	foreach(lc, observers)
		((TtlAnalysisObserver) lfirst(lc)) (pstate, query);
}

void
ttl_analysis_observe(TtlAnalysisObserver observer)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	observers = lappend(observers, (void *) observer);
	MemoryContextSwitchTo(old);
}

void
ttl_analysis_init(void)
{
	prev_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = analyzed;
}
