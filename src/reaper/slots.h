/*-------------------------------------------------------------------------
 *
 * slots.h
 *	  The slots of workers, for the launcher and for backends' requests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_SLOTS_H
#define TTL_SLOTS_H

#include "counters.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "storage/latch.h"

/* Requests that are queued one by one; more become "all databases". */
#define TTL_MAX_REQUESTS		64

/* A database with a worker */
typedef struct TtlWorkerSlot
{
	Oid			dboid;			/* InvalidOid = free; set by the launcher */
	pid_t		pid;			/* 0 = not started yet, or gone; set by the
								 * worker */
	Latch	   *latch;			/* valid while pid is set; set by the worker */

	bool		is_requested;	/* by a backend; cleared by the worker */
	bool		has_graces;		/* see ttl_slots_note_graces(); set by the
								 * worker */

	/* set by the worker, or by who terminates it */
	bool		is_leaving;		/* if not set at exit, the worker has failed */
	TtlReaperState state;		/* of the database without a worker */
	TimestampTz start_at;		/* of the next worker */
} TtlWorkerSlot;

/*
 * Requests that the worker of a database (InvalidOid: of each) read the list of
 * containers; it is started if necessary.  Doesn't fail, since it is called after commit.
 */
extern void ttl_slots_wake_workers(Oid dboid);

/*
 * Terminates the worker of a database (InvalidOid: all workers), and waits, with a timeout,
 * until it has exited.  The next one is started when the database is not locked.
 */
extern void ttl_slots_terminate_workers(Oid dboid);

/*
 * For the launcher
 */

/*
 * Makes this process the launcher.  Slots without a process are freed.  Returns the
 * databases that have a worker.
 */
extern List *ttl_slots_attach_launcher(void);

/* True if there is a worker of the database (InvalidOid = of any). */
extern bool ttl_slots_have_worker(Oid dboid);

/* False if there is no free slot. */
extern bool ttl_slots_reserve(Oid dboid);

/* Frees the slot of a database, whose worker has exited.  Returns what was in it. */
extern TtlWorkerSlot ttl_slots_release(Oid dboid);

/* Notes whether databases wait for a slot.  If so, sleeping workers are woken up. */
extern void ttl_slots_set_contended(bool contended, bool lacks_process);

/* Takes what has been requested; more than TTL_MAX_REQUESTS = all databases. */
extern int	ttl_slots_take_requests(Oid *requests);

/* True if the worker of the database has noted that all of its containers have their graces (last_seen.c). */
extern bool ttl_slots_have_graces(Oid dboid);

#endif							/* TTL_SLOTS_H */
