/*-------------------------------------------------------------------------
 *
 * invalidation.h
 *	  Whoever keeps what it knows of a relation hears here when that may be wrong.
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
