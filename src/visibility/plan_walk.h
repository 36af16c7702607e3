/*-------------------------------------------------------------------------
 *
 * plan_walk.h
 *	  Visits the scans of tables in a plan, and copies the plan on the way if wanted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_PLAN_WALK_H
#define TTL_PLAN_WALK_H

#include "nodes/plannodes.h"

typedef void (*TtlScanVisitor) (Plan *plan, void *context);

extern void ttl_plan_walk_scans(PlannedStmt *stmt, bool copies, TtlScanVisitor visit, void *context);
extern void ttl_plan_walk_subplans(PlannedStmt *stmt, bool copies, TtlScanVisitor visit, void *context);
extern bool ttl_plan_is_scan(const Plan *plan);

#endif							/* TTL_PLAN_WALK_H */
