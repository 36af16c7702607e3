/*-------------------------------------------------------------------------
 *
 * cycle.h
 *	  A cycle: the containers that are due take turns.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CYCLE_H
#define TTL_CYCLE_H

#include "datatype/timestamp.h"
#include "reaper/reap_rel.h"

/* Runs a cycle that may be cancelled; returns when there is work next. */
extern TimestampTz ttl_cycle_run(TtlMemory *memory);

/* Obeys a reload. */
extern void ttl_cycle_check_reload(void);

/* Has somebody wanted something since the last call, while it napped? */
extern bool ttl_cycle_was_woken(void);

extern void ttl_cycle_init(void);

#endif							/* TTL_CYCLE_H */
