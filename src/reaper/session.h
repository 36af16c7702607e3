/*-------------------------------------------------------------------------
 *
 * session.h
 *	  What an owner's triggers leave in a worker's session.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_SESSION_H
#define TTL_SESSION_H

/* Wipes it out.  Called outside of a transaction; an error has to end the process. */
extern void ttl_session_discard(void);

#endif							/* TTL_SESSION_H */
