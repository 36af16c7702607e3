/*-------------------------------------------------------------------------
 *
 * reaper.h
 *	  Deletion of expired rows by background workers and CALL ttl.reap: the interface for
 *	  the rest of ttl.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAPER_H
#define TTL_REAPER_H

extern void ttl_reaper_init(void);

#endif							/* TTL_REAPER_H */
