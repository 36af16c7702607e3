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

struct TtlMemory;

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
 * schedule.c
 */

/* Time that deletion has taken, in microseconds; half of it is forgotten each minute */
typedef struct TtlTimeTaken
{
	int64		time;
	TimestampTz as_of;
} TtlTimeTaken;

/* A container with TTL on */
typedef struct TtlScheduled
{
	Oid			container;		/* MUST BE FIRST */
	Oid			owner;
	TtlTimeTaken taken;
	bool		listed;			/* at the last refresh */
	char		name[2 * NAMEDATALEN];	/* qualified, as of the last refresh */
	bool		changed;		/* by invalidation: due now */
	TimestampTz due;
	bool		was_run;
	TimestampTz last_run;		/* random, in the past, before the first */
	int			ntables;		/* partitions */
	int64		blocked;		/* rows that cannot be deleted */
	int32		default_ttl;	/* s; -1 = never */
	int64		cycle_cost_limit;
	int64		failed_wait;	/* after the last run has failed, else 0 */
	TimestampTz behind_since;	/* has had more work than budget; 0 = not so */
	TimestampTz warned_at;

	/* the present cycle */
	int64		cycle_cost;
	int64		cycle_rows;		/* deleted */
	int64		cycle_time;		/* of its runs, in microseconds */
	bool		has_work;		/* left */
	bool		is_limited;		/* by cycle_cost_limit */
} TtlScheduled;

extern void ttl_schedule_init(struct TtlMemory *memory);

/*
 * Brings the table of containers up to date.  Returns false if there are none, else when to
 * call this again in *next.  *unreaped becomes the number of containers with TTL on and reaping
 * off from which nothing was deleted for a day.
 */
extern bool ttl_schedule_refresh(struct TtlMemory *memory, TimestampTz *next, int *unreaped);

/* An owner of containers */
typedef struct TtlOwner
{
	Oid			owner;			/* MUST BE FIRST */
	TtlTimeTaken taken;			/* by all of his containers */
	List	   *due;			/* containers in the order of their runs */
	int			ndone;			/* runs so far */
} TtlOwner;

/*
 * The owners of the containers that are due, and these, each in the order of the time that they
 * have taken, and then of their last run.
 */
extern List *ttl_schedule_due(void);

/* After a visit: counts the time that it has taken, and sets the number of tables. */
extern void ttl_schedule_add_run(TtlScheduled *container, int ntables, int64 time);

/* When the first container is due */
extern TimestampTz ttl_schedule_next(void);

/* Called after each cycle: keeps the memory of this process within bounds. */
extern void ttl_schedule_limit_caches(void);

/* The time between visits at most, in microseconds */
extern int64 ttl_schedule_longest_wait(const TtlScheduled *container);

/*
 * After a visit: sets when the container is due.  If it was idle, nothing in it had expired.
 */
extern void ttl_schedule_set_due(TtlScheduled *container, TimestampTz due, bool is_idle);

/* Do containers have rows that cannot be deleted? */
extern bool ttl_schedule_any_blocked(void);

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
