/*-------------------------------------------------------------------------
 *
 * visibility.c
 *	  Start of the room, and the planner hook that its parts share.
 *
 *	  before planning	stamp.c adds the assignment of _ts to UPDATEs
 *	  after planning	hide.c puts the filter into each scan
 *	  at ExecutorStart	plan_copy.c keeps the filter from being compiled
 *	  and after it		scan_filter.c puts a fast one in its place
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "citus/citus.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "optimizer/planner.h"
#include "visibility/visibility.h"

static planner_hook_type prev_planner = NULL;

/* Does the user own all tables of the query? */
static bool
is_owner_of_all(List *rtable)
{
	ListCell   *lc;

	foreach(lc, rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && !ttl_container_is_owner(GetUserId(), rte->relid))
			return false;
	}
	return true;
}

static PlannedStmt *
plan(TTL_PLANNER_PARAMETERS)
{
	bool		active = ttl_container_objects() != NULL;
	const TtlPlanning *outer = ttl_hide_planning;
	bool		tidscan = enable_tidscan;
	TtlPlanning planning = {0};
	PlannedStmt *result;

	if (active)
	{
		bool		is_marked = ttl_citus_mark(parse);

		planning.sees_stored = ttl_fk_queries_is_action(parse, query_string) ||
			(is_marked && is_owner_of_all(parse->rtable));
		planning.validates = ttl_fk_queries_is_validation(parse);
		planning.deletes = ttl_execution_is_expected(query_string);
		planning.locks_rows = ttl_hide_locks_rows(parse);
		if (!planning.sees_stored)
		{
			ttl_fk_check_mark_old(parse, query_string);
			ttl_stamp_query(parse);
		}
	}

	PG_TRY();
	{
		ttl_hide_planning = &planning;
		/* a deletion finds its rows by their places, whatever the setting says */
		enable_tidscan = tidscan || planning.deletes;
		if (prev_planner)
			result = prev_planner(TTL_PLANNER_ARGUMENTS);
		else
			result = standard_planner(TTL_PLANNER_ARGUMENTS);
	}
	PG_FINALLY();
	{
		ttl_hide_planning = outer;
		enable_tidscan = tidscan;
	}
	PG_END_TRY();

	if (active && ttl_container_objects() != NULL)
		ttl_hide_planned(result, &planning);
	return result;
}

void
ttl_visibility_init(void)
{
	ttl_hide_init();
	ttl_plan_copy_init();
	ttl_scan_filter_init();
	ttl_explain_init();
	ttl_trigger_desc_init();
	ttl_evict_init();
	ttl_fk_check_init();
	ttl_fk_parent_init();
	ttl_copy_init();

	prev_planner = planner_hook;
	planner_hook = plan;
}
