/*-------------------------------------------------------------------------
 *
 * cost.h
 *	  The cost of deletion, and of all else (the foreground).
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_COST_H
#define TTL_COST_H

#include "access/xact.h"
#include "executor/instrument.h"

extern int64 ttl_cost_since(const BufferUsage *start);
extern void ttl_cost_set_weights(void);

extern void ttl_cost_enter(void);
extern void ttl_cost_leave(void);
extern void ttl_cost_worker_starts(void);
extern void ttl_cost_exempt(void);
extern void ttl_cost_transaction(XactEvent event);
extern Size ttl_cost_shmem_size(void);
extern void ttl_cost_shmem_init(void);

#endif							/* TTL_COST_H */
