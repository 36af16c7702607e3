/*-------------------------------------------------------------------------
 *
 * visibility.h
 *	  Hiding: reads and writes never meet an expired row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_VISIBILITY_H
#define TTL_VISIBILITY_H

#include "container/container.h"
#include "compat.h"
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

/* Puts the filters into the plan, unless that has been done. */
extern void ttl_hide_planned(PlannedStmt *stmt, const TtlPlanning *planning);

/* Supplies the filters that the plan of an execution that is about to start lacks. */
extern void ttl_hide_complete(TtlExecution *execution);

/* Keeps the planner from index-only scans of a container where it can't be filtered. */
extern void ttl_hide_forbid_index_only_scans(PlannerInfo *root, RelOptInfo *rel,
											 const RangeTblEntry *rte);

/* Before a query is planned: looks at it, and has it stamp _ts; while it is; and before COPY */
extern void ttl_hide_prepare_query(TtlPlanning *planning, Query *query,
								   const char *query_string);
extern void ttl_hide_enter_planning(const TtlPlanning *planning);
extern void ttl_hide_leave_planning(const TtlPlanning *planning);
extern void ttl_hide_before_copy(PlannedStmt *pstmt);

/* Has ExecutorStart get a copy without filters; then gives scan filters to what it has started. */
extern void ttl_hide_strip(TtlExecution *execution, int eflags);
extern void ttl_hide_started(TtlExecution *execution, int eflags);

/*
 * fk.c
 */

/* True if the query is one of the foreign-key machinery that needs all stored rows. */
extern bool ttl_fk_is_action(Query *query, const char *query_string);

/* True if it is one by which ALTER TABLE validates a foreign key. */
extern bool ttl_fk_is_validation(Query *query);

/* True if the text is spelt as that of an action, where foreign keys act.  Few people write so. */
extern bool ttl_fk_acts(const char *query_string);

/* Gives what a rule calls OLD the alias TTL_ACTED_ON, if a foreign key's action fires the rule. */
extern void ttl_fk_mark_old(Query *query, const char *query_string);

/*
 * The current execution, inside of 'outer' (NULL = none), is about to run.  If it checks a foreign
 * key, expired rows that hold it up are deleted before; false if it would find nothing then.
 */
extern bool ttl_fk_delete_expired_before(const TtlExecution *outer);

/* A SET CONSTRAINTS: inside of which execution (NULL = none), and as whom; without a role none runs. */
typedef struct TtlConstraintsSet
{
	const TtlExecution *within;
	Oid			role;
} TtlConstraintsSet;

/* Around each utility command; neither can fail.  What the first returns is passed to the second. */
extern TtlConstraintsSet ttl_fk_begin_utility(PlannedStmt *pstmt);
extern void ttl_fk_end_utility(TtlConstraintsSet outer);

/* An execution has started; since 19. */
extern void ttl_fk_started(TtlExecution *execution);

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

/*
 * Has a filtered scan of the container's relation that has been started check rows by itself:
 * for live ones, or for expired ones that it 'deletes'.
 */
extern void ttl_scan_filter_add(ScanState *scan, const TtlContainer *container,
								TtlExecution *execution, bool deletes);

/* True if it is such a sequential scan. */
extern bool ttl_scan_filter_scans_in_order(const PlanState *planstate);

/* Says in EXPLAIN what the filter of a node has done; since 18. */
struct ExplainState;
extern void ttl_scan_filter_explain(PlanState *planstate, struct ExplainState *es);

#endif							/* TTL_VISIBILITY_H */
