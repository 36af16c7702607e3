/*-------------------------------------------------------------------------
 *
 * cycle.h
 *	  A cycle of a worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CYCLE_H
#define TTL_CYCLE_H

#include "datatype/timestamp.h"
#include "reaper/reap_rel.h"

/* Has this worker ignore cancellation but in turns.  Returns the name of its database. */
extern const char *ttl_cycle_init(void);

/* Runs a cycle; returns when there is work next. */
extern TimestampTz ttl_cycle_run(TtlMemory *memory);

#endif							/* TTL_CYCLE_H */
