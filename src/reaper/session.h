/*-------------------------------------------------------------------------
 *
 * session.h
 *	  What an owner's triggers leave in a worker's session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_SESSION_H
#define TTL_SESSION_H

/*
 * What triggers fire from here on are this owner's.  Wipes out what those of another have
 * left.  Called outside of a transaction; an error has to end the process.
 */
extern void ttl_session_give_to(Oid owner);

/*
 * Drops the temporary objects that the running transaction has made.  Called in each
 * transaction of the worker in which triggers have run, with a snapshot.
 */
extern void ttl_session_drop_temporary(void);

extern bool ttl_session_belongs_to(Oid owner);

#endif							/* TTL_SESSION_H */
