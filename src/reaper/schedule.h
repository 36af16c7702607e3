/*-------------------------------------------------------------------------
 *
 * schedule.h
 *	  The tables of a database's containers, and when a worker visits them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_SCHEDULE_H
#define TTL_SCHEDULE_H

#include "container/container.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "reaper/reap_table.h"

/* An owner of containers */
typedef struct TtlOwner
{
	Oid			owner;			/* MUST BE FIRST */
	int64		taken;			/* time, by all of his containers */
	int			ndue;			/* containers that wait for their turn in this
								 * round */
} TtlOwner;

/* A container with TTL on */
typedef struct TtlScheduled
{
	Oid			container;		/* MUST BE FIRST */
	TtlOwner   *owner;
	List	   *tables;			/* of TtlScheduledTable: its leaves */
	int64		taken;			/* time that deletion has taken, in
								 * microseconds; half of it is forgotten each
								 * minute */
	bool		is_listed;		/* at the last refresh */
	bool		is_changed;		/* by invalidation: all tables are due now */
	char		name[2 * NAMEDATALEN];	/* qualified, as of the last refresh */
	TtlPolicy	policy;			/* as of the last refresh; its lists are not
								 * valid */
	TimestampTz behind_since;	/* has had more work than budget; 0 = not so */
	TimestampTz warned_at;

	/* the present cycle */
	int64		cycle_cost;
	int64		cycle_rows;		/* deleted */
	int64		cycle_time;		/* of its turns, in microseconds */
	int64		blocked;		/* rows that cannot be deleted, after the last
								 * turn */
} TtlScheduled;

/* A leaf table of a container */
typedef struct TtlScheduledTable
{
	TtlReapRel	reap_rel;		/* MUST BE FIRST: it begins with the table's
								 * OID */
	TtlScheduled *container;
	bool		is_listed;		/* among the container's leaves when they were
								 * listed last */
	TimestampTz due;			/* DT_NOBEGIN = work is left */
	TimestampTz last_turn;		/* random, in the past, before the first */
} TtlScheduledTable;

extern void ttl_schedule_init(void);
extern bool ttl_schedule_refresh(const char *database_name, TimestampTz *next);
extern List *ttl_schedule_containers(void);
extern List *ttl_schedule_list_due(int *nowners, TimestampTz *next);
extern List *ttl_schedule_list_due_tables(TtlScheduled *container);
extern TimestampTz ttl_schedule_first_due(const TtlScheduled *container);
extern int64 ttl_schedule_longest_wait(const TtlScheduled *container);
extern void ttl_schedule_add_time(TtlScheduled *container, int64 taken);
extern void ttl_schedule_halve_times(void);

#endif							/* TTL_SCHEDULE_H */
