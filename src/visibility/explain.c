/*-------------------------------------------------------------------------
 *
 * explain.c
 *	  EXPLAIN ANALYZE says what the filter of a scan had to do.
 *
 * "Expiry Filter: none expired"		no row was looked at
 * "Expiry Filter: 20000 candidate rows"	those rows were, by the expiry indexes
 * "Expiry Filter: 256 candidate pages"	those on these pages were, by lazy indexes
 * "Expiry Filter: each row"			the indexes weren't asked, or didn't tell
 *
 * In a parallel plan it is what the leader's own part of the scan had to do.
 * PostgreSQL lets an extension add lines since version 18.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "visibility/visibility.h"

#if TTL_EXPLAINS_NODES

#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"

static explain_per_node_hook_type prev_explain_per_node = NULL;

static void
explain_filter(PlanState *planstate, List *ancestors, const char *relationship,
			   const char *plan_name, ExplainState *es)
{
	int64		candidates;

	if (prev_explain_per_node)
		prev_explain_per_node(planstate, ancestors, relationship, plan_name, es);

	if (!es->analyze)
		return;
	switch (ttl_scan_filter_describe(planstate, &candidates))
	{
		case TTL_SCAN_FILTER_NONE_EXPIRED:
			ExplainPropertyText("Expiry Filter", "none expired", es);
			break;
		case TTL_SCAN_FILTER_TIDS:
			ExplainPropertyText("Expiry Filter",
								psprintf(INT64_FORMAT " candidate %s", candidates,
										 candidates == 1 ? "row" : "rows"), es);
			break;
		case TTL_SCAN_FILTER_PAGES:
			ExplainPropertyText("Expiry Filter",
								psprintf(INT64_FORMAT " candidate %s", candidates,
										 candidates == 1 ? "page" : "pages"), es);
			break;
		case TTL_SCAN_FILTER_EACH_ROW:
			ExplainPropertyText("Expiry Filter", "each row", es);
			break;
		case TTL_SCAN_FILTER_NOT_THERE:
			break;
	}
}

void
ttl_explain_init(void)
{
	prev_explain_per_node = explain_per_node_hook;
	explain_per_node_hook = explain_filter;
}

#else

void
ttl_explain_init(void)
{
}

#endif
