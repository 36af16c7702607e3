/*-------------------------------------------------------------------------
 *
 * stats.h
 *	  What deletion has done, for people.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_STATS_H
#define TTL_STATS_H

extern void ttl_stats_init(void);

#endif							/* TTL_STATS_H */
