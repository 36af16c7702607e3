/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  Which containers of a database are due.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_SCHEDULE_H
#define TTL_SCHEDULE_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "reaper/reap_rel.h"

/* A container with work, or that may have some. */
typedef struct TtlScheduled
{
	Oid			container;		/* MUST BE FIRST */
	bool		listed;			/* at the last refresh */
	bool		changed;		/* by invalidation: due now */
	TimestampTz due;
	TimestampTz last_turn;
	int			leaves;
	int64		blocked;
	int32		default_ttl;	/* s; -1 = never */
	int64		cycle_cost;		/* in this cycle */
	int64		cycle_rows;		/* deleted in this cycle */
	int64		cycle_time;		/* of its turns, in microseconds */
	int64		cycle_cost_limit;
	bool		has_work;		/* left, as far as this cycle knows */
	bool		capped;			/* by cycle_cost_limit, in this cycle */
	int64		failed_wait;	/* since the last turn failed; 0 = it didn't */
	TimestampTz behind_since;	/* has had more work than budget; 0 = not so */
	TimestampTz warned_at;
} TtlScheduled;

/* Looking at an idle container, and at the list of containers, is done so often. */
#define TTL_SCHEDULE_IDLE_WAIT	(10 * USECS_PER_SEC)

/* Begins with what earlier workers have found. */
extern void ttl_schedule_init(TtlMemory *memory);

/* Brings the table of containers up to date.  Returns whether there are any. */
extern bool ttl_schedule_refresh(TtlMemory *memory);

/*
 * Number of containers with TTL on and reaping off from which nothing was deleted for a
 * day, as of the last refresh.
 */
extern int	ttl_schedule_count_unreaped(void);

/* Makes a container due that somebody has asked for by CALL, or all of them. */
extern void ttl_schedule_look_at(Oid wanted);

/* The containers that are due; *next is when the first of the others will be. */
extern List *ttl_schedule_due(TimestampTz *next);

/*
 * Notes how many tables the container has; returns how many all containers have, as
 * of their last turns.
 */
extern int	ttl_schedule_count_leaves(TtlScheduled *container, int leaves);

/* Do containers have rows that can't be deleted, as of their last turns? */
extern bool ttl_schedule_any_blocked(void);

/* A wait between looks, or a longer one if there are many tables. */
extern int64 ttl_schedule_stretch(int64 wait);

#endif							/* TTL_SCHEDULE_H */
