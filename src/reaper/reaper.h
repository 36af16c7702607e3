/*-------------------------------------------------------------------------
 *
 * reaper.h
 *	  Deleting: the only thing that runs in the background.
 *
 * All that the rest of ttl needs to know about this room.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAPER_H
#define TTL_REAPER_H

extern void ttl_reaper_init(void);

#endif							/* TTL_REAPER_H */
