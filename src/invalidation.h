/*-------------------------------------------------------------------------
 *
 * invalidation.h
 *	  Registers callbacks for invalidations of relations.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_INVALIDATION_H
#define TTL_INVALIDATION_H

#include "utils/inval.h"

/* Has the function called as by CacheRegisterRelcacheCallback(). */
extern void ttl_invalidation_observe(RelcacheCallbackFunction observer);

extern void ttl_invalidation_init(void);

#endif							/* TTL_INVALIDATION_H */
