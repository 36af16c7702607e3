/*-------------------------------------------------------------------------
 *
 * invalidation.h
 *	  Callbacks for invalidations of catalog caches, and their number.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_INVALIDATION_H
#define TTL_INVALIDATION_H

#include "utils/inval.h"

/*
 * How often relations or schemas, and how often schemas, have been invalidated in this
 * process; never 0.  See invalidation.c for how to remember what was read from catalogs.
 */
extern uint64 ttl_invalidations;
extern uint64 ttl_schema_invalidations;

/* Has the function called as by CacheRegisterRelcacheCallback(). */
extern void ttl_invalidation_observe(RelcacheCallbackFunction observer);

extern void ttl_invalidation_init(void);

#endif							/* TTL_INVALIDATION_H */
