/*-------------------------------------------------------------------------
 *
 * shared.h
 *	  The shared memory of ttl.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_SHARED_H
#define TTL_SHARED_H

#include "storage/lwlock.h"

/*
 * Whoever needs some of it says how much, and what is to be done when it is there:
 * 'found' tells whether it has been filled already, by another process.  Locks in it
 * are of the given tranche.  Called while the library is loaded.
 */
typedef Size (*TtlSharedSize) (void);
typedef void (*TtlSharedStartup) (void *place, bool found, int tranche_id);

extern void ttl_shared_reserve(TtlSharedSize size, TtlSharedStartup startup);

extern void ttl_shared_init(void);

#endif							/* TTL_SHARED_H */
