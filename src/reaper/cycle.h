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

extern const char *ttl_cycle_init(void);
extern TimestampTz ttl_cycle_run(TtlMemory *memory);

#endif							/* TTL_CYCLE_H */
