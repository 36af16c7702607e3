/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  What launcher, workers and backends tell each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_SHMEM_H
#define TTL_SHMEM_H

#include "datatype/timestamp.h"

/* Requests that are remembered one by one; more become "all databases". */
#define TTL_MAX_REQUESTS	64

/* Why a worker has left its database. */
typedef enum TtlLeft
{
	TTL_LEFT_DIED,				/* it did not say: error, signal */
	TTL_LEFT_BLOCKED,			/* a command needs the database for itself */
	TTL_LEFT_NOTHING,			/* no container to care for */
	TTL_LEFT_YIELDED,			/* another database needs the slot */
	TTL_LEFT_IDLE,				/* likewise, and nothing is left to do now */
	TTL_LEFT_OFF,				/* ttl.reaper is off */
	TTL_LEFT_HELD,				/* recovered to a point in time */
	TTL_LEFT_PAUSED				/* by ttl.pause() */
} TtlLeft;

extern void ttl_shmem_init(void);

/*
 * For backends
 */

/*
 * Somebody shall look after the database: a policy has changed there, or, if
 * 'container' is given, that one is to be looked at without waiting.
 */
#define TTL_EVERY_CONTAINER	PG_UINT32_MAX

extern void ttl_shmem_request(Oid dboid, Oid container);

/* Somebody shall look after each database. */
extern void ttl_shmem_request_all(void);

/* The list of databases may have changed. */
extern void ttl_shmem_wake_launcher(void);

/*
 * Keeps the reaper out of a database until this backend unblocks it, and
 * returns when the worker that was there has gone (or doesn't go).
 */
extern void ttl_shmem_block_database(Oid dboid);
extern void ttl_shmem_unblock_databases(void);

/*
 * For the launcher
 */
extern void ttl_shmem_launcher_attach(void);

/* The database that has a worker in that slot, else InvalidOid. */
extern int	ttl_shmem_nslots(void);
extern Oid	ttl_shmem_slot_database(int slot);

/*
 * Terminates the worker of a database, or with InvalidOid all of them, and
 * returns when they have gone (or don't go).
 */
extern void ttl_shmem_terminate_workers(Oid dboid, TtlLeft left);

/* Returns when all workers have gone by themselves, or don't go. */
extern void ttl_shmem_await_workers(void);
extern int	ttl_shmem_take_requests(Oid *dboids, bool *all);
extern bool ttl_shmem_is_blocked(Oid dboid);
extern void ttl_shmem_set_contended(bool contended);

/* Reserves a slot; returns its number, or -1 if all are taken. */
extern int	ttl_shmem_slot_reserve(Oid dboid, uint32 *serial);

/* Frees a slot whose worker has gone, and tells why and what is next there. */
extern void ttl_shmem_slot_release(int slot, TtlLeft *left, TimestampTz *due);

/*
 * For a worker
 */

/* Takes the reserved slot; false if there is no work in that database now. */
extern bool ttl_shmem_worker_attach(int slot, uint32 serial, Oid *dboid);

/* Has somebody asked for attention since the last call, and to what? */
extern bool ttl_shmem_worker_take_attention(Oid *container);

/* Do other databases wait for a slot? */
extern bool ttl_shmem_worker_contended(void);

/*
 * Announces that the worker leaves, and when it has work next.  False (and
 * nothing announced) if somebody has asked for attention in the meantime.
 */
extern bool ttl_shmem_worker_leave(TtlLeft left, TimestampTz due);

#endif							/* TTL_SHMEM_H */
