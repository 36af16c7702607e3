/*-------------------------------------------------------------------------
 *
 * budget.h
 *	  What deletion may cost, and what it and everybody else did cost.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_BUDGET_H
#define TTL_BUDGET_H

#include "datatype/timestamp.h"
#include "executor/instrument.h"

#include "reaper/counters.h"

/* The cost of what this process has done since 'start' was pgBufferUsage. */
extern int64 ttl_budget_cost_since(const BufferUsage *start);

/*
 * What a cycle that starts now may spend, given what happened so far.
 * *scarce tells that the foreground's use made it less than the most.
 */
extern int64 ttl_budget_grant(const TtlDatabaseCounters *counters,
							  TimestampTz now, bool *scarce);

/* This process is the reaper; what it does isn't the foreground's. */
extern void ttl_budget_exempt(void);

extern void ttl_budget_init(void);

#endif							/* TTL_BUDGET_H */
