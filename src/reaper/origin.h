/*-------------------------------------------------------------------------
 *
 * origin.h
 *	  Tags what is written with the replication origin "ttl".
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_ORIGIN_H
#define TTL_ORIGIN_H

/*
 * From here to the end all that this process writes is tagged.  In a
 * transaction.  Errors with ERRCODE_OBJECT_IN_USE if another process is at it.
 */
extern void ttl_origin_begin(void);

/* Doesn't fail; does nothing if there was no beginning. */
extern void ttl_origin_end(void);

#endif							/* TTL_ORIGIN_H */
