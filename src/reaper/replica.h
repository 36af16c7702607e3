/*-------------------------------------------------------------------------
 *
 * replica.h
 *	  Who else reads the WAL that deletion writes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REPLICA_H
#define TTL_REPLICA_H

/* Is there any WAL sender?  Standby, subscriber, base backup, whatever. */
extern bool ttl_replica_connected(void);

/*
 * Bytes of WAL by which the slowest of them is behind; 0 if there is none.  One
 * that isn't connected doesn't count: it may never come back.
 */
extern uint64 ttl_replica_lag(void);

#endif							/* TTL_REPLICA_H */
