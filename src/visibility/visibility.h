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
#include "deletion/deletion.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "utils/relcache.h"

extern void ttl_visibility_init(void);

/*
 * hide.c
 */

/* What is known of the query that is being planned. */
typedef struct TtlPlanning
{
	bool		sees_stored;	/* foreign-key machinery: hide nothing, but
								 * from its subqueries */
	bool		validates;		/* a foreign key: hide nothing of the user's
								 * own */
	bool		deletes;		/* expired rows, in the tables that it calls
								 * TTL_TO_DELETE */
	bool		locks_rows;		/* so that EvalPlanQual may look again */
} TtlPlanning;

/* The innermost one, NULL outside of a planner's call. */
extern const TtlPlanning *ttl_hide_planning;

extern bool ttl_hide_locks_rows(Query *query);

/* Puts the filters into the plan, unless that has been done. */
extern void ttl_hide_planned(PlannedStmt *stmt, const TtlPlanning *planning);

/*
 * Does the plan of a scan of that relation, which then is a container's, begin with the
 * filter that hides rows?
 */
extern bool ttl_hide_is_filtered(const Plan *plan, Oid relid, TtlContainer *container);

extern void ttl_hide_init(void);

/*
 * fk_queries.c
 */

/* Is the query one of the foreign-key machinery that needs all stored rows? */
extern bool ttl_fk_queries_is_action(Query *query, const char *query_string);

/* Is it one by which ALTER TABLE validates a foreign key? */
extern bool ttl_fk_queries_is_validation(Query *query);

/* Is the text spelt as they are?  Few people write so. */
extern bool ttl_fk_queries_is_spelt_so(const char *query_string);

/* Is it the search for rows that forbid a change? */
extern bool ttl_fk_queries_is_search(const char *query_string);

/* The alias of what a rule calls OLD, if a foreign key's action fires it; gives it this alias. */
#define TTL_STORED	"ttl stored"

extern void ttl_fk_queries_mark_old(Query *query, const char *text);

/*
 * stamp.c
 */
extern void ttl_stamp_query(Query *query);

/*
 * evict.c
 */

/*
 * Error context of a deletion that a user's statement has caused: names the deletion
 * and its reason, but no values of a row that is gone for the user.
 */
typedef struct TtlEviction
{
	const char *container;
	const char *reason;			/* why the row is in the way */
	bool		by_owner;		/* does the container belong to the user? */
	TtlSessionUser *user;
} TtlEviction;

extern void ttl_evict_explain(void *eviction);

/* Has ON CONFLICT DO UPDATE fail where it meets an expired row of the container. */
extern void ttl_evict_check_conflicts(ResultRelInfo *target, EState *estate);
extern void ttl_evict_init(void);

/*
 * index_predicate.c
 */

/* Prepares the predicates of the expiry indexes that the executor has opened for insertions. */
extern void ttl_index_predicate_prepare(ResultRelInfo *target, EState *estate,
										const TtlContainer *container);

/*
 * trigger_desc.c
 */

/* A partition that rows are routed to has been met. */
extern void ttl_trigger_desc_routed(Relation rel, const TtlContainer *container);
extern void ttl_trigger_desc_init(void);

/*
 * plan_copy.c
 */

/*
 * Calls the function for each scan of a table in the plan and its subplans, or in these
 * alone; CustomScans included.  With 'copies' it gets copies, and the statement, which is
 * one, is made to refer to them; but what isn't copied, see plan_copy.c, is left out.
 */
typedef void (*TtlScanVisitor) (Plan *plan, void *context);

extern void ttl_plan_visit(PlannedStmt *stmt, bool copies, TtlScanVisitor visit,
						   void *context);
extern void ttl_plan_visit_subplans(PlannedStmt *stmt, bool copies, TtlScanVisitor visit,
									void *context);

/* Is it a scan of a table, and no CustomScan? */
extern bool ttl_plan_is_scan(const Plan *plan);

extern void ttl_plan_copy_init(void);

/*
 * scan_filter.c
 */
extern void ttl_scan_filter_init(void);

/*
 * fk_check.c
 */

/* What the OLD of a rule is called that a foreign key's action fires */
#define TTL_STORED	"ttl stored"

extern void ttl_fk_check_init(void);

/*
 * fk_parent.c
 */
extern void ttl_fk_parent_init(void);

#endif							/* TTL_VISIBILITY_H */
