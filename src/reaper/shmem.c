/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  All shared memory of ttl, and the protocol between launcher, workers and
 *	  backends.
 *
 * One struct, TtlShared, holds everything.  Its lock "ttl" is taken when a worker starts or
 * exits, when a policy changes and once per cycle, so it is not contended.
 *
 * Workers: the launcher reserves a slot for a database and registers a background worker
 * with the database's OID as its argument; the worker takes the slot before it connects to the
 * database.  A worker that was registered by an earlier launcher takes the slot that the
 * present one has reserved, or exits if there is none; the second of two exits.
 * A worker clears the slot's pid in an exit callback that runs after the process
 * has left the ProcArray, because it is registered before the connection is made.
 * So once pid is 0 the worker does not count as a user of the database any more.
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

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "cost.h"
#include "counters.h"
#include "guc.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
#include "ttl.h"

/* How long to wait for workers to exit, ms */
#define EXIT_TIMEOUT		5000
#define EXIT_POLL			10

/* A database with a worker */
typedef struct WorkerSlot
{
	Oid			dboid;			/* InvalidOid = free; set by the launcher */
	pid_t		pid;			/* 0 = not started yet, or gone; set by the worker */
	Latch	   *latch;			/* valid while pid is set; set by the worker */

	bool		is_requested;	/* by a backend; cleared by the worker */

	/* set by the worker, or by who terminates it */
	bool		is_leaving;		/* if not set at exit, the worker has failed */
	TtlReaperState state;		/* of the database without a worker */
	TimestampTz start_at;		/* of the next worker */
} WorkerSlot;

typedef struct TtlShared
{
	/* constant */
	int			nslots;			/* ttl.workers */

	/* protected by the lock: set by the launcher */
	pid_t		launcher_pid;	/* 0 = none */
	Latch	   *launcher_latch; /* valid while launcher_pid is set */
	bool		is_contended;	/* do databases wait for a slot? */
	bool		lacks_process;	/* ... or because max_worker_processes is reached? */

	/* protected by the lock: set by backends, taken by the launcher */
	int			nrequests;		/* more than TTL_MAX_REQUESTS = all databases */
	Oid			requests[TTL_MAX_REQUESTS];

	/* protected by the lock */
	TtlRelStates rel_states;	/* see reap_rel.c */

	/* see counters.h */
	TtlCountersShared counters;

	/* protected by the lock */
	WorkerSlot	slots[FLEXIBLE_ARRAY_MEMBER];
} TtlShared;

static TtlShared *shared = NULL;
static LWLock *lock = NULL;

/* The slot of this process if it is a worker */
static WorkerSlot *my_slot = NULL;

static Size
shared_size(void)
{
	return add_size(offsetof(TtlShared, slots),
					mul_size(ttl_guc_workers, sizeof(WorkerSlot)));
}

void
ttl_reaper_request_shmem(void)
{
	RequestAddinShmemSpace(add_size(shared_size(), ttl_cost_shmem_size()));
	RequestNamedLWLockTranche(TTL_EXTENSION, 1);
}

void
ttl_reaper_attach_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = (TtlShared *) ShmemInitStruct(TTL_EXTENSION, shared_size(), &found);
	lock = &GetNamedLWLockTranche(TTL_EXTENSION)->lock;
	if (!found)
	{
		memset(shared, 0, shared_size());
		shared->nslots = ttl_guc_workers;
	}
	ttl_cost_shmem_init();
	ttl_counters_attach(&shared->counters, found, lock->tranche);
	ttl_reap_rel_attach_shmem(&shared->rel_states, lock);
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
static WorkerSlot *
find_slot(Oid dboid)
{
	for (int i = 0; i < shared->nslots; i++)
	{
		if (shared->slots[i].dboid == dboid)
			return &shared->slots[i];
	}
	return NULL;
}

/*
 * Doesn't fail, since it is called after commit.
 */
void
ttl_shmem_wake(Oid dboid)
{
	bool		has_slot = false;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		WorkerSlot *slot = &shared->slots[i];

		if (OidIsValid(dboid) && slot->dboid != dboid)
			continue;
		has_slot = true;
		slot->is_requested = true;
		if (slot->pid != 0)
			SetLatch(slot->latch);
	}
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

/*
 * Is there a worker of the database (InvalidOid = of any)?  If 'terminate', it gets a
 * SIGTERM.
 */
static bool
find_workers(Oid dboid, bool terminate)
{
	bool		found = false;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		WorkerSlot *slot = &shared->slots[i];

		if (!OidIsValid(slot->dboid) || (OidIsValid(dboid) && slot->dboid != dboid))
			continue;
		found = found || slot->pid != 0;
		if (terminate)
		{
			/* one that has not started yet exits when it attaches */
			slot->is_leaving = true;
			slot->state = TTL_REAPER_WAITING;
			slot->start_at = 0;
			if (slot->pid != 0)
				kill(slot->pid, SIGTERM);
		}
	}
	LWLockRelease(lock);
	return found;
}

bool
ttl_shmem_has_worker(Oid dboid)
{
	return find_workers(dboid, false);
}

void
ttl_shmem_terminate_workers(Oid dboid)
{
	TimestampTz until;

	until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), EXIT_TIMEOUT);
	while (find_workers(dboid, true) && GetCurrentTimestamp() < until)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 EXIT_POLL, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
launcher_detach(int code, Datum arg)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	shared->launcher_pid = 0;
	LWLockRelease(lock);
}

List *
ttl_shmem_launcher_attach(void)
{
	List	   *dboids = NIL;

	on_shmem_exit(launcher_detach, (Datum) 0);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	shared->launcher_pid = MyProcPid;
	shared->launcher_latch = MyLatch;
	shared->is_contended = false;
	shared->lacks_process = false;
	for (int i = 0; i < shared->nslots; i++)
	{
		if (shared->slots[i].pid == 0)
			shared->slots[i].dboid = InvalidOid;
		else
			dboids = lappend_oid(dboids, shared->slots[i].dboid);
	}
	LWLockRelease(lock);
	return dboids;
}

int
ttl_shmem_take_requests(Oid *dboids)
{
	int			n;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	n = shared->nrequests;
	memcpy(dboids, shared->requests, sizeof(shared->requests));
	shared->nrequests = 0;
	LWLockRelease(lock);
	return n;
}

void
ttl_shmem_set_contended(bool contended, bool lacks_process)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		if (contended && !shared->is_contended && shared->slots[i].pid != 0)
			SetLatch(shared->slots[i].latch);
	}
	shared->is_contended = contended;
	shared->lacks_process = lacks_process;
	LWLockRelease(lock);
}

bool
ttl_shmem_reserve_slot(Oid dboid)
{
	WorkerSlot *slot;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	slot = find_slot(InvalidOid);
	if (slot != NULL)
	{
		memset(slot, 0, sizeof(WorkerSlot));
		slot->dboid = dboid;
	}
	LWLockRelease(lock);
	return slot != NULL;
}

bool
ttl_shmem_release_slot(Oid dboid, TtlReaperState *state, TimestampTz *start_at)
{
	WorkerSlot *slot;
	bool		left;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	slot = find_slot(dboid);
	left = slot->is_leaving || slot->is_requested;
	*state = slot->is_leaving ? slot->state : TTL_REAPER_WAITING;
	*start_at = slot->is_requested ? 0 : slot->start_at;
	memset(slot, 0, sizeof(WorkerSlot));
	LWLockRelease(lock);
	return left;
}

static void
worker_detach(int code, Datum arg)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	my_slot->pid = 0;
	wake_launcher();			/* the postmaster notifies the one that has started
								 * this worker */
	LWLockRelease(lock);
}

bool
ttl_shmem_worker_attach(Oid dboid)
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

bool
ttl_shmem_worker_take_request(void)
{
	bool		requested;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	requested = my_slot->is_requested;
	my_slot->is_requested = false;
	LWLockRelease(lock);
	return requested;
}

bool
ttl_shmem_worker_is_contended(void)
{
	bool		contended;

	LWLockAcquire(lock, LW_SHARED);
	contended = shared->is_contended;
	LWLockRelease(lock);
	return contended;
}

const char *
ttl_shmem_why_no_worker(Oid dboid)
{
	const char *reason = NULL;

	LWLockAcquire(lock, LW_SHARED);
	if (shared->launcher_pid == 0)
		reason = "no launcher (max_worker_processes)";
	else if (find_slot(dboid) == NULL && shared->lacks_process)
		reason = "no process (max_worker_processes)";
	else if (find_slot(dboid) == NULL && shared->is_contended)
		reason = "waits for a process (ttl.workers)";
	LWLockRelease(lock);
	return reason;
}

bool
ttl_shmem_worker_leave(TtlReaperState state, TimestampTz start_at)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (!my_slot->is_requested)
	{
		my_slot->is_leaving = true;
		my_slot->state = state;
		my_slot->start_at = start_at;
	}
	LWLockRelease(lock);
	return my_slot->is_leaving;
}
