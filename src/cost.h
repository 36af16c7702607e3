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

/* The cost of what this process has used since then, by the server's weights. */
extern int64 ttl_cost_since(const BufferUsage *start);

/* Makes this process's weights those of the server; called by the launcher. */
extern void ttl_cost_set_weights(void);

/*
 * Surround each statement and each utility command, which may be nested.  enter may run out of
 * memory, leave cannot fail.
 */
extern void ttl_cost_enter(void);
extern void ttl_cost_leave(void);

/* A parallel worker has got its leader's settings; it may execute no statement. */
extern void ttl_cost_worker_starts(void);

/* This process's cost is not that of the foreground. */
extern void ttl_cost_exempt(void);

/* The shared memory of cost.c */
extern Size ttl_cost_shmem_size(void);
extern void ttl_cost_shmem_init(void);

extern void ttl_cost_transaction(XactEvent event);

#endif							/* TTL_COST_H */
