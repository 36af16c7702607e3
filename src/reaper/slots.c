/*-------------------------------------------------------------------------
 *
 * slots.c
 *	  Shared memory of the reaper: the slots of workers, and requests to them.
 *
 * One struct, TtlShared, holds all but the weights of costs (cost.c).  The lock "ttl" protects what is
 * not statistics in it, which have locks of their own (counters.c); it is taken when a worker starts,
 * wakes up or exits, and when a policy changes, so it is not contended.
 *
 * Workers: the launcher reserves a slot for a database and registers a background worker
 * with the database's OID as its argument; the worker takes the slot before it connects to the
 * database.  A worker that was registered by an earlier launcher takes the slot that the
 * present one has reserved, or exits if there is none; the second of two exits.
 * A worker clears the slot's pid in an exit callback that runs after the process
 * has left the ProcArray, because it is registered before the connection is made.
 * So once pid is 0 the worker does not count as a user of the database any more.
 *
 * An exiting worker leaves in its slot the state of the database and when to start
 * the next one.
 *
 * Requests: a change of policy sets the flag in the slot of the database if it
 * has one, else it is queued for the launcher.  A worker exits for lack of work only if
 * the flag is not set, under the same lock, and the launcher checks the flag when it
 * frees the slot, so no request is lost.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "cost.h"
#include "counters.h"
#include "guc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "reaper/reaper_internal.h"
#include "reaper/slots.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "ttl.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"
#include "writers.h"

/* How long to wait for workers to exit, ms */
#define EXIT_TIMEOUT		5000
#define EXIT_POLL			10

typedef struct TtlShared
{
	/* protected by the lock: set by the launcher */
	pid_t		launcher_pid;	/* 0 = none */
	Latch	   *launcher_latch; /* valid while launcher_pid is set */
	bool		is_contended;	/* databases wait for a slot, ... */
	bool		lacks_process;	/* ... since max_worker_processes is reached */

	/* protected by the lock: set by backends, taken by the launcher */
	int			nrequests;		/* more than TTL_MAX_REQUESTS = all databases */
	Oid			requests[TTL_MAX_REQUESTS];

	/* see counters.h, reaper_internal.h */
	TtlCountersShared counters;
	TtlLastSeenShared last_seen;

	/* protected by the lock */
	TtlWorkerSlot slots[FLEXIBLE_ARRAY_MEMBER];
} TtlShared;

static TtlShared *shared = NULL;
static LWLock *lock = NULL;

/* The slot of this process if it is a worker */
static TtlWorkerSlot *my_slot = NULL;

/* The size of TtlShared, with its slots */
static Size
shared_size(void)
{
	return add_size(offsetof(TtlShared, slots),
					mul_size(ttl_guc_workers, sizeof(TtlWorkerSlot)));
}

/* Asks for the shared memory of this file, of cost.c and of writers.c. */
void
ttl_reaper_request_shmem(void)
{
	RequestAddinShmemSpace(add_size(add_size(shared_size(), ttl_cost_shmem_size()),
									ttl_writers_shmem_size()));
	RequestNamedLWLockTranche(TTL_EXTENSION, 1);
}

/* Attaches to it, and initializes it if this process is the first. */
void
ttl_reaper_attach_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = (TtlShared *) ShmemInitStruct(TTL_EXTENSION, shared_size(), &found);
	lock = &GetNamedLWLockTranche(TTL_EXTENSION)->lock;
	if (!found)
		memset(shared, 0, shared_size());
	ttl_cost_shmem_init();
	ttl_writers_shmem_init();
	ttl_counters_attach(&shared->counters, found, lock->tranche);
	ttl_last_seen_attach(&shared->last_seen, found, lock->tranche);
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Sets the launcher's latch.  The lock is held.
 */
static void
wake_launcher(void)
{
	if (shared->launcher_pid != 0)
		SetLatch(shared->launcher_latch);
}

/*
 * The slot of a database, or NULL.  The lock is held.
 */
static TtlWorkerSlot *
find_slot(Oid dboid)
{
	for (int i = 0; i < ttl_guc_workers; i++)
	{
		if (shared->slots[i].dboid == dboid)
			return &shared->slots[i];
	}
	return NULL;
}

/*
 * Requests that the worker of a database (InvalidOid: of each) read the list of
 * containers; it is started if necessary.  Doesn't fail, since it is called after commit.
 */
void
ttl_slots_wake_workers(Oid dboid)
{
	bool		has_slot = false;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < ttl_guc_workers; i++)
	{
		TtlWorkerSlot *slot = &shared->slots[i];

		if (OidIsValid(dboid) && slot->dboid != dboid)
			continue;
		has_slot = true;
		slot->is_requested = true;
		if (slot->pid != 0)
			SetLatch(slot->latch);
	}
	/* the launcher starts those that have none */
	if (!has_slot || !OidIsValid(dboid))
	{
		if (OidIsValid(dboid) && shared->nrequests < TTL_MAX_REQUESTS)
			shared->requests[shared->nrequests++] = dboid;
		else
			shared->nrequests = TTL_MAX_REQUESTS + 1;
		wake_launcher();
	}
	LWLockRelease(lock);
}

/* True if there is a worker of the database (InvalidOid = of any). */
bool
ttl_slots_have_worker(Oid dboid)
{
	bool		found = false;

	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < ttl_guc_workers && !found; i++)
	{
		const TtlWorkerSlot *slot = &shared->slots[i];

		found = OidIsValid(slot->dboid) && (!OidIsValid(dboid) || slot->dboid == dboid) && slot->pid != 0;
	}
	LWLockRelease(lock);
	return found;
}

/* Sends a SIGTERM to the worker of a database (InvalidOid = to all). */
static void
signal_workers(Oid dboid)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < ttl_guc_workers; i++)
	{
		TtlWorkerSlot *slot = &shared->slots[i];

		if (!OidIsValid(slot->dboid) || (OidIsValid(dboid) && slot->dboid != dboid))
			continue;

		/* one that has not started yet exits when it attaches */
		slot->is_leaving = true;
		slot->state = TTL_REAPER_WAITING;
		slot->start_at = 0;
		/* it is the worker's, which needs the lock to leave */
		if (slot->pid != 0)
			kill(slot->pid, SIGTERM);
	}
	LWLockRelease(lock);
}

/*
 * Terminates the worker of a database (InvalidOid: all workers), and waits, with a timeout,
 * until it has exited.  The next one is started when the database is not locked.
 */
void
ttl_slots_terminate_workers(Oid dboid)
{
	TimestampTz until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), EXIT_TIMEOUT);

	/*
	 * again and again: a worker may have been registered, but not have
	 * started, when it was looked for
	 */
	for (;;)
	{
		signal_workers(dboid);
		if (!ttl_slots_have_worker(dboid) || GetCurrentTimestamp() >= until)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 EXIT_POLL, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Exit callback of the launcher */
static void
launcher_detach(int code, Datum arg)
{
	LWLockReleaseAll();			/* after an error */
	ttl_last_seen_renew(true);
	LWLockAcquire(lock, LW_EXCLUSIVE);
	shared->launcher_pid = 0;
	LWLockRelease(lock);
}

/*
 * Makes this process the launcher.  Slots without a process are freed.  Returns the
 * databases that have a worker.
 */
List *
ttl_slots_attach_launcher(void)
{
	List	   *dboids = NIL;

	on_shmem_exit(launcher_detach, (Datum) 0);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	shared->launcher_pid = MyProcPid;
	shared->launcher_latch = MyLatch;
	shared->is_contended = false;
	shared->lacks_process = false;
	for (int i = 0; i < ttl_guc_workers; i++)
	{
		/*
		 * a worker that has not started yet takes one that is reserved anew,
		 * or exits
		 */
		if (shared->slots[i].pid == 0)
			shared->slots[i].dboid = InvalidOid;
		else
			dboids = lappend_oid(dboids, shared->slots[i].dboid);
	}
	LWLockRelease(lock);
	return dboids;
}

/* Notes whether databases wait for a slot.  If so, sleeping workers are woken up. */
void
ttl_slots_set_contended(bool contended, bool lacks_process)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	/* once, for those that sleep: the others look at the end of their cycles */
	for (int i = 0; i < ttl_guc_workers; i++)
	{
		if (contended && !shared->is_contended && shared->slots[i].pid != 0)
			SetLatch(shared->slots[i].latch);
	}
	shared->is_contended = contended;
	shared->lacks_process = lacks_process;
	LWLockRelease(lock);
}

/* False if there is no free slot. */
bool
ttl_slots_reserve(Oid dboid)
{
	TtlWorkerSlot *slot;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	slot = find_slot(InvalidOid);
	if (slot != NULL)
	{
		memset(slot, 0, sizeof(TtlWorkerSlot));
		slot->dboid = dboid;
	}
	LWLockRelease(lock);
	return slot != NULL;
}

/* Frees the slot of a database, whose worker has exited.  Returns what was in it. */
TtlWorkerSlot
ttl_slots_release(Oid dboid)
{
	TtlWorkerSlot *slot;
	TtlWorkerSlot result;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	/* it is there: none but the launcher frees slots */
	slot = find_slot(dboid);
	result = *slot;
	memset(slot, 0, sizeof(TtlWorkerSlot));
	LWLockRelease(lock);
	return result;
}

/* Takes what has been requested; more than TTL_MAX_REQUESTS = all databases. */
int
ttl_slots_take_requests(Oid *requests)
{
	int			nrequests;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	nrequests = shared->nrequests;
	memcpy(requests, shared->requests, sizeof(shared->requests));
	shared->nrequests = 0;
	LWLockRelease(lock);
	return nrequests;
}

/* True if the worker of the database has noted that all of its containers have their graces (last_seen.c). */
bool
ttl_slots_have_graces(Oid dboid)
{
	TtlWorkerSlot *slot;
	bool		result;

	LWLockAcquire(lock, LW_SHARED);
	slot = find_slot(dboid);
	result = slot != NULL && slot->has_graces;
	LWLockRelease(lock);
	return result;
}

/* Exit callback of a worker, when it has left the ProcArray */
static void
worker_detach(int code, Datum arg)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	my_slot->pid = 0;
	wake_launcher();			/* the postmaster notifies the one that has
								 * started this worker */
	LWLockRelease(lock);
}

/* Takes the slot reserved for the database; false if the worker is to exit. */
bool
ttl_slots_attach_worker(Oid dboid)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	my_slot = find_slot(dboid);
	if (my_slot != NULL && (my_slot->pid != 0 || my_slot->is_leaving))
		my_slot = NULL;
	else if (my_slot != NULL)
	{
		my_slot->pid = MyProcPid;
		my_slot->latch = MyLatch;
	}
	LWLockRelease(lock);

	if (my_slot != NULL)
		on_shmem_exit(worker_detach, (Datum) 0);
	return my_slot != NULL;
}

/* True if there has been a request since the last call. */
bool
ttl_slots_take_request(void)
{
	bool		requested;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	requested = my_slot->is_requested;
	my_slot->is_requested = false;
	LWLockRelease(lock);
	return requested;
}

/* All containers of the database that need a grace (last_seen.c) have it. */
void
ttl_slots_note_graces(void)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	/* which renews the time when all have them */
	if (!my_slot->has_graces && ttl_last_seen_awaits_graces())
		wake_launcher();
	my_slot->has_graces = true;
	LWLockRelease(lock);
}

/* True if databases wait for a slot, or a process. */
bool
ttl_slots_are_contended(void)
{
	bool		contended;

	LWLockAcquire(lock, LW_SHARED);
	contended = shared->is_contended;
	LWLockRelease(lock);
	return contended;
}

/* Why this database has no worker, in a few words; NULL if it has one, or needs none. */
const char *
ttl_slots_why_no_worker(void)
{
	const char *reason = NULL;

	LWLockAcquire(lock, LW_SHARED);
	if (shared->launcher_pid == 0)
		reason = "no launcher (max_worker_processes)";
	else if (find_slot(MyDatabaseId) == NULL && shared->lacks_process)
		reason = "no process (max_worker_processes)";
	else if (find_slot(MyDatabaseId) == NULL && shared->is_contended)
		reason = "waits for a process (ttl.workers)";
	LWLockRelease(lock);
	return reason;
}

/*
 * Announces that the worker exits: the state of the database, and when to start the next
 * worker (0 = at once, DT_NOEND = at a request).  Returns false and does nothing if there is a
 * request.
 */
bool
ttl_slots_leave(TtlReaperState state, TimestampTz start_at)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (!my_slot->is_requested)
	{
		my_slot->is_leaving = true;
		my_slot->state = state;
		my_slot->start_at = start_at;
	}
	LWLockRelease(lock);
	/* also if somebody is about to terminate it */
	return my_slot->is_leaving;
}
