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

#include "counters.h"

/* The cost of what this process has done since 'start' was pgBufferUsage. */
extern int64 ttl_budget_cost_since(const BufferUsage *start);

/*
 * What a cycle that starts now may spend, given what happened so far.  *stop
 * becomes what ends it if that isn't enough.
 */
extern int64 ttl_budget_grant(const TtlDatabaseCounters *counters,
							  TimestampTz now, TtlStop *stop);

/*
 * Spending it evenly: the most that one transaction should cost, and how long
 * to nap, in microseconds, when so much has been spent since the last nap.
 */
extern int64 ttl_budget_batch(int64 granted);
extern int64 ttl_budget_nap(int64 granted, int64 unpaid);

/* What may be spent at the beginning of a cycle before the first nap. */
extern int64 ttl_budget_advance(int64 granted);

/* This process is the reaper; what it does isn't the foreground's. */
extern void ttl_budget_exempt(void);

extern void ttl_budget_init(void);

#endif							/* TTL_BUDGET_H */
