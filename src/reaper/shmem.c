/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  What launcher, workers and backends tell each other.
 *
 * A fixed area of shared memory, protected as a whole by one LWLock ("ttl"):
 * it is touched when a worker comes or goes, when a policy has changed and
 * once per cycle, so nobody queues for it.
 *
 * A database gets a worker like this: the launcher reserves a slot, gives it
 * a new serial number and registers a background worker with both; the worker
 * attaches to the slot before it connects to the database.  A worker that
 * comes too late (the launcher has died and started anew) finds another
 * serial number and goes home.  Its slot is marked "gone" by an exit callback
 * that runs after the process has left the list of backends, because it is
 * registered before the connection is made.  So whoever waits for "gone" may
 * rely on the database not being used by the worker any longer.
 *
 * Requests: a policy change is told to the worker if the database has one,
 * and remembered for the launcher if not.  A worker leaves for want of work
 * only if nobody has asked for attention, under the same lock, so no request
 * is lost in between.
 *
 * Blocked databases: see request.c.  More than MAX_BLOCKS commands at a time
 * that need a database for themselves are not kept apart from the reaper;
 * they may then fail because the database is in use, and can be repeated.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "guc.h"
#include "reaper/reaper_internal.h"
#include "shared.h"
#include "ttl.h"

#define MAX_BLOCKS			64

/* How long to wait for a terminated worker, ms. */
#define GONE_TIMEOUT		5000
#define GONE_POLL			10

/* A slot for a worker.  All fields are protected by the lock. */
typedef struct WorkerSlot
{
	Oid			dboid;			/* InvalidOid = free; written by the launcher */
	uint32		serial;			/* of this use; written by the launcher */
	pid_t		pid;			/* 0 = not there yet, or gone; by the worker */
	Latch	   *latch;			/* valid while pid is set; by the worker */
	TtlLeft		left;			/* by worker, or who terminates it */
	TimestampTz due;			/* next work there; by the worker */
	bool		attention;		/* set by backends, cleared by the worker */
	Oid			wanted;			/* a container to look at, with attention */
} WorkerSlot;

/* A command that needs a database for itself.  Protected by the lock. */
typedef struct Block
{
	Oid			dboid;			/* InvalidOid = free; by the backend */
	pid_t		pid;			/* the backend */
} Block;

/* The fixed area.  All fields are protected by the lock. */
typedef struct SharedState
{
	pid_t		launcher_pid;	/* 0 = none; by the launcher */
	Latch	   *launcher_latch; /* valid while launcher_pid is set */
	uint32		next_serial;	/* by the launcher */
	bool		contended;		/* do databases wait for a slot? launcher */

	/* requests: written by backends, taken by the launcher */
	bool		request_all;
	int			nrequests;
	Oid			requests[TTL_MAX_REQUESTS];

	Block		blocks[MAX_BLOCKS];

	int			nslots;			/* constant */
	WorkerSlot	slots[FLEXIBLE_ARRAY_MEMBER];
} SharedState;

static SharedState *shared = NULL;
static LWLock *lock = NULL;

/* The slot this process works in, for a worker. */
static WorkerSlot *my_slot = NULL;

/* Has this backend blocked a database? */
static bool have_blocks = false;

static Size
shared_size(void)
{
	return add_size(offsetof(SharedState, slots),
					mul_size(ttl_guc_workers, sizeof(WorkerSlot)));
}

static void
shared_startup(void *place, bool found, int tranche_id)
{
	shared = (SharedState *) place;
	lock = &GetNamedLWLockTranche(TTL_EXTENSION)->lock;
	if (found)
		return;
	memset(shared, 0, shared_size());
	shared->nslots = ttl_guc_workers;
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

void
ttl_shmem_wake_launcher(void)
{
	LWLockAcquire(lock, LW_SHARED);
	wake_launcher();
	LWLockRelease(lock);
}

/*
 * Remembers a request for the launcher.  The lock is held exclusively.
 */
static void
remember_request(Oid dboid)
{
	for (int i = 0; i < shared->nrequests; i++)
	{
		if (shared->requests[i] == dboid)
			return;
	}
	if (shared->nrequests < TTL_MAX_REQUESTS)
		shared->requests[shared->nrequests++] = dboid;
	else
		shared->request_all = true;
}

/*
 * Tells the worker of the database, or the launcher if there is none, that a
 * policy may have changed.  Doesn't fail.
 */
void
ttl_shmem_request(Oid dboid, Oid container)
{
	bool		told = false;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		WorkerSlot *slot = &shared->slots[i];

		if (slot->dboid == dboid && slot->pid != 0 &&
			slot->left == TTL_LEFT_DIED)
		{
			slot->attention = true;
			if (!OidIsValid(slot->wanted))
				slot->wanted = container;
			else if (OidIsValid(container) && container != slot->wanted)
				slot->wanted = TTL_EVERY_CONTAINER;
			SetLatch(slot->latch);
			told = true;
		}
	}
	if (!told)
	{
		remember_request(dboid);
		wake_launcher();
	}
	LWLockRelease(lock);
}

/*
 * Has a worker look after each database.  Doesn't fail.
 */
void
ttl_shmem_request_all(void)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	shared->request_all = true;
	wake_launcher();
	LWLockRelease(lock);
}

/*
 * Is the database kept from the reaper by a command?  The lock is held.
 */
static bool
is_blocked(Oid dboid)
{
	for (int i = 0; i < MAX_BLOCKS; i++)
	{
		if (shared->blocks[i].dboid == dboid)
			return true;
	}
	return false;
}

bool
ttl_shmem_is_blocked(Oid dboid)
{
	bool		blocked;

	LWLockAcquire(lock, LW_SHARED);
	blocked = is_blocked(dboid);
	LWLockRelease(lock);
	return blocked;
}

int
ttl_shmem_nslots(void)
{
	return shared->nslots;
}

Oid
ttl_shmem_slot_database(int slot)
{
	Oid			dboid;

	LWLockAcquire(lock, LW_SHARED);
	dboid = shared->slots[slot].pid != 0 ? shared->slots[slot].dboid : InvalidOid;
	LWLockRelease(lock);
	return dboid;
}

/*
 * Terminates the workers of the database, of all if it is InvalidOid.
 * Returns whether any is still there.
 */
static bool
terminate_workers(Oid dboid, TtlLeft left)
{
	bool		any = false;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		WorkerSlot *slot = &shared->slots[i];

		if (slot->pid != 0 && (!OidIsValid(dboid) || slot->dboid == dboid))
		{
			any = true;
			slot->left = left;
			kill(slot->pid, SIGTERM);
		}
	}
	LWLockRelease(lock);
	return any;
}

static void
wait_a_little(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 GONE_POLL, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Terminates workers as above, and waits until they have gone or time is up.
 */
void
ttl_shmem_terminate_workers(Oid dboid, TtlLeft left)
{
	TimestampTz until;

	until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), GONE_TIMEOUT);
	while (terminate_workers(dboid, left) && GetCurrentTimestamp() < until)
		wait_a_little();
}

void
ttl_shmem_await_workers(void)
{
	TimestampTz until;

	until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), GONE_TIMEOUT);
	for (int i = 0; i < shared->nslots; i++)
	{
		while (OidIsValid(ttl_shmem_slot_database(i)) &&
			   GetCurrentTimestamp() < until)
			wait_a_little();
	}
}

void
ttl_shmem_block_database(Oid dboid)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_BLOCKS; i++)
	{
		if (!OidIsValid(shared->blocks[i].dboid))
		{
			shared->blocks[i].dboid = dboid;
			shared->blocks[i].pid = MyProcPid;
			have_blocks = true;
			break;
		}
	}
	LWLockRelease(lock);

	ttl_shmem_terminate_workers(dboid, TTL_LEFT_BLOCKED);
}

/*
 * Lets the reaper into the databases that this backend has blocked.  Doesn't
 * fail.
 */
void
ttl_shmem_unblock_databases(void)
{
	if (!have_blocks)
		return;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_BLOCKS; i++)
	{
		if (shared->blocks[i].pid == MyProcPid)
		{
			shared->blocks[i].dboid = InvalidOid;
			shared->blocks[i].pid = 0;
		}
	}
	wake_launcher();
	LWLockRelease(lock);
	have_blocks = false;
}

static void
launcher_detach(int code, Datum arg)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	shared->launcher_pid = 0;
	LWLockRelease(lock);
}

/*
 * Makes this process the launcher.  Slots whose worker has gone since an earlier
 * launcher did, or not yet come, are free.
 */
void
ttl_shmem_launcher_attach(void)
{
	on_shmem_exit(launcher_detach, (Datum) 0);

	LWLockAcquire(lock, LW_EXCLUSIVE);
	shared->launcher_pid = MyProcPid;
	shared->launcher_latch = MyLatch;
	shared->contended = false;
	for (int i = 0; i < shared->nslots; i++)
	{
		if (shared->slots[i].pid == 0)
			shared->slots[i].dboid = InvalidOid;
	}
	LWLockRelease(lock);
}

/*
 * Takes the requests that have come in, at most TTL_MAX_REQUESTS; *all is set
 * if there were more.
 */
int
ttl_shmem_take_requests(Oid *dboids, bool *all)
{
	int			n;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	n = shared->nrequests;
	memcpy(dboids, shared->requests, n * sizeof(Oid));
	*all = shared->request_all;
	shared->nrequests = 0;
	shared->request_all = false;
	LWLockRelease(lock);
	return n;
}

/*
 * Says whether databases wait for a slot; workers that sleep are woken up.
 */
void
ttl_shmem_set_contended(bool contended)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		WorkerSlot *slot = &shared->slots[i];

		if (contended && !shared->contended && slot->pid != 0)
			SetLatch(slot->latch);
	}
	shared->contended = contended;
	LWLockRelease(lock);
}

int
ttl_shmem_slot_reserve(Oid dboid, uint32 *serial)
{
	int			reserved = -1;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nslots; i++)
	{
		WorkerSlot *slot = &shared->slots[i];

		if (!OidIsValid(slot->dboid))
		{
			memset(slot, 0, sizeof(WorkerSlot));
			slot->dboid = dboid;
			slot->serial = *serial = ++shared->next_serial;
			slot->left = TTL_LEFT_DIED;
			reserved = i;
			break;
		}
	}
	LWLockRelease(lock);
	return reserved;
}

void
ttl_shmem_slot_release(int slot, TtlLeft *left, TimestampTz *due)
{
	WorkerSlot *released = &shared->slots[slot];

	LWLockAcquire(lock, LW_EXCLUSIVE);
	*left = released->left;
	*due = released->due;
	if (released->attention)
		remember_request(released->dboid);
	released->dboid = InvalidOid;
	released->pid = 0;
	LWLockRelease(lock);
}

static void
worker_detach(int code, Datum arg)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	my_slot->pid = 0;
	wake_launcher();			/* maybe not the one that the postmaster tells */
	LWLockRelease(lock);
}

bool
ttl_shmem_worker_attach(int slot, uint32 serial, Oid *dboid)
{
	bool		attached = false;

	my_slot = &shared->slots[slot];

	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (my_slot->serial == serial && OidIsValid(my_slot->dboid))
	{
		*dboid = my_slot->dboid;
		if (is_blocked(my_slot->dboid))
			my_slot->left = TTL_LEFT_BLOCKED;
		else
		{
			my_slot->pid = MyProcPid;
			my_slot->latch = MyLatch;
			attached = true;
		}
	}
	LWLockRelease(lock);

	if (attached)
		on_shmem_exit(worker_detach, (Datum) 0);
	return attached;
}

bool
ttl_shmem_worker_take_attention(Oid *container)
{
	bool		attention;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	attention = my_slot->attention;
	*container = my_slot->wanted;
	my_slot->attention = false;
	my_slot->wanted = InvalidOid;
	LWLockRelease(lock);
	return attention;
}

bool
ttl_shmem_worker_contended(void)
{
	bool		contended;

	LWLockAcquire(lock, LW_SHARED);
	contended = shared->contended;
	LWLockRelease(lock);
	return contended;
}

bool
ttl_shmem_worker_leave(TtlLeft left, TimestampTz due)
{
	bool		leaving = false;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (!my_slot->attention)
	{
		my_slot->left = left;
		my_slot->due = due;
		leaving = true;
	}
	LWLockRelease(lock);
	return leaving;
}

void
ttl_shmem_init(void)
{
	ttl_shared_reserve(shared_size, shared_startup);
}
