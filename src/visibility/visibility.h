/*-------------------------------------------------------------------------
 *
 * visibility.h
 *	  Hiding: reads and writes never meet an expired row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_VISIBILITY_H
#define TTL_VISIBILITY_H

#include "compat.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "nodes/pathnodes.h"
#include "nodes/plannodes.h"
#include "utils/relcache.h"

/*
 * hide.c
 */

/* What is known of the query that is being planned. */
typedef struct TtlPlanning
{
	const struct TtlPlanning *outer;
	bool		tidscan;		/* enable_tidscan */
	bool		active;			/* false = there is nothing of this extension */
	bool		sees_stored;	/* foreign-key machinery: hide nothing, but
								 * from its subqueries */
	bool		validates;		/* a foreign key: hide nothing of the user's
								 * own */
	bool		deletes;		/* expired rows, in the tables that it calls
								 * TTL_TO_DELETE */
	bool		locks_rows;		/* so that EvalPlanQual may look again */
} TtlPlanning;

extern void ttl_hide_planned(PlannedStmt *stmt, const TtlPlanning *planning);
extern void ttl_hide_complete(TtlExecution *execution);
extern void ttl_hide_forbid_index_only_scans(PlannerInfo *root, RelOptInfo *rel,
											 const RangeTblEntry *rte);
extern void ttl_hide_prepare_query(TtlPlanning *planning, Query *query,
								   const char *query_string);
extern void ttl_hide_enter_planning(const TtlPlanning *planning);
extern void ttl_hide_leave_planning(const TtlPlanning *planning);

/*
 * start.c
 */

extern void ttl_start_without_filters(TtlExecution *execution, int eflags);
extern void ttl_start_add_scan_filters(TtlExecution *execution, int eflags);

/*
 * copy.c
 */

extern void ttl_copy_hide(PlannedStmt *pstmt);
extern void ttl_copy_start(PlannedStmt *pstmt);

/*
 * fk.c
 */

extern bool ttl_fk_is_action(Query *query, const char *query_string);
extern bool ttl_fk_is_validation(Query *query);
extern bool ttl_fk_acts(const char *query_string);
extern void ttl_fk_mark_old(Query *query, const char *query_string);
extern bool ttl_fk_delete_expired_before(const TtlExecution *outer);

/*
 * fk_check.c
 */

extern void ttl_fk_check_started(TtlExecution *execution);
extern HeapTupleHeader ttl_fk_check_own_header(TupleTableSlot *slot);

/*
 * stamp.c
 */

extern void ttl_stamp_query(Query *query);

/*
 * evict.c
 */

extern void ttl_evict_ends(QueryDesc *query_desc);

/*
 * targets.c
 */
extern void ttl_targets_started(TtlExecution *execution);
extern void ttl_targets_explain_key(void *arg);

/*
 * scan_filter.c
 */

extern void ttl_scan_filter_add(ScanState *scan, const TtlContainer *container,
								TtlExecution *execution, bool deletes);
extern bool ttl_scan_filter_scans_in_order(const PlanState *planstate);

struct ExplainState;
extern void ttl_scan_filter_explain(PlanState *planstate, struct ExplainState *es);

#endif							/* TTL_VISIBILITY_H */
