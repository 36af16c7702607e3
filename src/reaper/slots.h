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

extern void ttl_slots_wake_workers(Oid dboid);
extern void ttl_slots_terminate_workers(Oid dboid);

/*
 * For the launcher
 */
extern List *ttl_slots_attach_launcher(void);
extern bool ttl_slots_have_worker(Oid dboid);
extern bool ttl_slots_reserve(Oid dboid);
extern TtlWorkerSlot ttl_slots_release(Oid dboid);
extern void ttl_slots_set_contended(bool contended, bool lacks_process);
extern int	ttl_slots_take_requests(Oid *requests);
extern bool ttl_slots_have_graces(Oid dboid);

#endif							/* TTL_SLOTS_H */
