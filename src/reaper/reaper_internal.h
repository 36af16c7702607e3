/*-------------------------------------------------------------------------
 *
 * reaper_internal.h
 *	  Interfaces between the files of src/reaper.
 *
 * Deletion from one container is in reap_rel.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAPER_INTERNAL_H
#define TTL_REAPER_INTERNAL_H

#include "counters.h"
#include "datatype/timestamp.h"
#include "executor/instrument.h"
#include "reaper/reaper.h"

/*
 * launcher.c, worker.c: entry points, found by name by the postmaster
 */
extern PGDLLEXPORT void ttl_launcher_main(Datum main_arg);
extern PGDLLEXPORT void ttl_worker_main(Datum main_arg);

/*
 * request.c
 */

/* Wakes up the worker of this database, or of each database, after commit. */
extern void ttl_request_at_commit(void);
extern void ttl_request_all_at_commit(void);

/*
 * shmem.c, for backends
 */

/* Requests that are queued one by one; more become "all databases". */
#define TTL_MAX_REQUESTS	64

/*
 * Requests that the worker of a database (InvalidOid: of each) read the list of
 * containers; it is started if necessary.
 */
extern void ttl_shmem_wake(Oid dboid);

/*
 * Terminates the worker of a database (InvalidOid: all workers), and waits, with a timeout,
 * until it has exited.  The next one is started when the database is not locked.
 */
extern void ttl_shmem_terminate_workers(Oid dboid);

/* Why the database has no worker, in a few words; NULL if it has one, or needs none. */
extern const char *ttl_shmem_why_no_worker(Oid dboid);

/*
 * shmem.c, for the launcher
 */

/*
 * Makes this process the launcher.  Slots without a process are freed.  Returns the
 * databases that have a worker.
 */
extern List *ttl_shmem_launcher_attach(void);

/* Returns the number of requests; more than TTL_MAX_REQUESTS means all databases. */
extern int	ttl_shmem_take_requests(Oid *dboids);
extern bool ttl_shmem_has_worker(Oid dboid);

/* Do databases wait for a slot?  If so, sleeping workers are woken up. */
extern void ttl_shmem_set_contended(bool contended, bool lacks_process);

/* False if there is no free slot. */
extern bool ttl_shmem_reserve_slot(Oid dboid);

/*
 * Frees the slot of a worker that has exited.  Returns false if the worker has failed,
 * else the database's state, and when to start the next worker (0 = at once, DT_NOEND =
 * at a request).
 */
extern bool ttl_shmem_release_slot(Oid dboid, TtlReaperState *state,
								   TimestampTz *start_at);

/*
 * shmem.c, for a worker
 */

/* Takes the slot reserved for the database; false if the worker is to exit. */
extern bool ttl_shmem_worker_attach(Oid dboid);

/* Has there been a request since the last call? */
extern bool ttl_shmem_worker_take_request(void);
extern bool ttl_shmem_worker_is_contended(void);

/*
 * Announces that the worker exits, with the arguments of ttl_shmem_release_slot().
 * Returns false and does nothing if there is a request.
 */
extern bool ttl_shmem_worker_leave(TtlReaperState state, TimestampTz start_at);

/*
 * budget.c
 */

/*
 * What a cycle that starts now may spend, given the statistics.  *stop becomes the
 * reason why the cycle ends if that is not enough.
 */
extern int64 ttl_budget_grant(const TtlDatabaseCounters *counters,
							  TimestampTz now, TtlStop *stop);

/*
 * Pacing: the most that one transaction should cost; how long to nap, in microseconds,
 * when so much has been spent since the last nap; what may be spent at the beginning of a
 * cycle before the first nap.
 */
extern int64 ttl_budget_batch(int64 granted);
extern int64 ttl_budget_nap(int64 granted, int64 unpaid);
extern int64 ttl_budget_advance(int64 granted);

/*
 * hold.c
 */

/* True if the worker must not delete, until *until (DT_NOEND: until ttl.resume()). */
extern bool ttl_hold_lasts(TtlReaperState *state, TimestampTz *until);

/*
 * True if deletion is paused in this database.  Needs a transaction; cheap unless
 * the pause has changed.
 */
extern bool ttl_hold_is_paused(TimestampTz *until);


/*
 * reap.c: progress of CALL ttl.reap; no-ops in other processes
 */
typedef enum TtlPhase
{
	TTL_PHASE_LOOKING,			/* for expired rows */
	TTL_PHASE_DELETING,
	TTL_PHASE_EMPTYING			/* a partition at once */
} TtlPhase;

/*
 * Errors if this process is deleting expired rows; from here on it is.  The worker calls it once,
 * for all its life.
 */
extern void ttl_reap_begin(void);

extern void ttl_reap_report_phase(TtlPhase phase);
extern void ttl_reap_report_batch(int64 rows);

#endif							/* TTL_REAPER_INTERNAL_H */
