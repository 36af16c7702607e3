/*-------------------------------------------------------------------------
 *
 * expired_writers.h
 *	  Who is writing rows that have expired.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRED_WRITERS_H
#define TTL_EXPIRED_WRITERS_H

#include "access/xact.h"
#include "port/atomics.h"

/* Tables share a word if their hash values are equal, which costs proofs, but proves nothing wrong. */
#define TTL_EXPIRED_WRITERS_WORDS	256

typedef union TtlExpiredWritersWord
{
	pg_atomic_uint64 value;
	char		pad[PG_CACHE_LINE_SIZE];
} TtlExpiredWritersWord;

/* The part of shared memory (reaper/launcher.c) that belongs to expired_writers.c */
typedef struct TtlExpiredWritersShared
{
	TtlExpiredWritersWord words[TTL_EXPIRED_WRITERS_WORDS];
} TtlExpiredWritersShared;

extern void ttl_expired_writers_attach(TtlExpiredWritersShared *shmem, bool found);

/*
 * The statement that lives in the memory context is about to write rows of the table that have
 * expired, or may have: before it writes the first of them.  It writes until the memory goes, or
 * the transaction ends.
 */
extern void ttl_expired_writers_join(Oid table, MemoryContext statement);

/* It is about to write another one. */
extern void ttl_expired_writers_write(Oid table);

/* What changes with each of these calls, and when a statement ends */
extern uint64 ttl_expired_writers_state(Oid table);

/* True if there were such statements, in whatever session, this one included. */
extern bool ttl_expired_writers_in_progress(uint64 state);

extern void ttl_expired_writers_transaction(XactEvent event);

#endif							/* TTL_EXPIRED_WRITERS_H */
