/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  Starts and restarts the worker that each database needs.
 *
 * A background worker "ttl launcher", started by the postmaster at the end of recovery
 * (so never on a standby, and at promotion) and again some seconds after it has
 * failed.  It is connected to no database; pg_database is shared.
 *
 * Whether a database has work can be seen only from inside.  So each gets a worker once,
 * when the launcher starts or when the database is created.  A worker that finds no
 * container with TTL on exits, and the database gets another one only when a backend
 * requests it.  A worker with work stays, unless databases wait for one of the
 * ttl.workers slots: then it exits after each cycle, and the database that has waited longest
 * comes next.  If nothing was left to do the database waits for IDLE_WAIT at least, and longer the
 * more databases there are.  A worker that fails is started again after a pause that doubles each
 * time, unless the last one had failed long before.
 *
 * An exiting worker leaves in its slot the state of the database and when to start
 * the next one.  The launcher wakes up when a worker exits, at a request, and after
 * LONGEST_SLEEP to read pg_database.  It keeps the time when the server was last in service (last_seen.c).
 *
 *	 event						what is done
 *	 ------------------------	--------------------------------------------
 *	 database is created		a worker finds out whether there is work
 *	 policy committed			the worker wakes up, or one is started
 *	 DROP/CREATE EXTENSION		as a change of policy
 *	 worker fails				again after FIRST_PAUSE doubling to LAST_PAUSE
 *	 DROP DATABASE and such		the worker is terminated just before
 *	 ALLOW_CONNECTIONS false	the worker is terminated; another when it is true
 *	 ttl.reaper = off			workers exit, none is started
 *	 recovery to a point in time,	each worker exits at once, until ttl.resume()
 *	 start of a base backup
 *	 start after a long absence	each container waits for ttl.grace
 *	 ttl.pause()				the worker exits, another comes at the pause's end
 *	 server stops				launcher and workers exit
 *	 launcher fails				workers go on, the next launcher finds their slots
 *	 pg_cancel_backend()		ignored
 *	 clock is set back			all processes start anew, since their wakeup times
 *								are in the far future
 *
 *
 * SHARED MEMORY
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
 * Requests: a change of policy sets the flag in the slot of the database if it
 * has one, else it is queued for the launcher.  A worker exits for lack of work only if
 * the flag is not set, under the same lock, and the launcher checks the flag when it
 * frees the slot, so no request is lost.
 *
 *
 * REQUESTS OF BACKENDS
 *
 * - A transaction that has changed a policy wakes up the worker of its
 *	 database after commit.  COMMIT PREPARED wakes up all of them, since the prepared
 *	 transaction may have changed a policy, and ttl.resume() may have ended a hold.
 * - A command that needs a database for itself (DROP DATABASE, ALTER DATABASE
 *	 ... RENAME and SET TABLESPACE, CREATE DATABASE for its template) terminates
 *	 the worker in it just before.  The database is locked before that, as the command
 *	 itself does it later: the launcher starts no worker in a locked database, and one
 *	 that is being started waits for the lock before it counts as a user of it.  Only for
 *	 users who have the rights for such a command, roughly: others could stop deletion
 *	 with commands that fail.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "container/container.h"
#include "cost.h"
#include "counters.h"
#include "guc.h"
#include "reaper/reaper_internal.h"
#include "ttl.h"
#include "writers.h"

/* How long to wait for workers to exit, ms */
#define EXIT_TIMEOUT		5000
#define EXIT_POLL			10

/* Requests that are queued one by one; more become "all databases". */
#define MAX_REQUESTS		64

/* A database with a worker */
typedef struct WorkerSlot
{
	Oid			dboid;			/* InvalidOid = free; set by the launcher */
	pid_t		pid;			/* 0 = not started yet, or gone; set by the worker */
	Latch	   *latch;			/* valid while pid is set; set by the worker */

	bool		is_requested;	/* by a backend; cleared by the worker */
	bool		has_graces;		/* see ttl_launcher_note_graces(); set by the worker */

	/* set by the worker, or by who terminates it */
	bool		is_leaving;		/* if not set at exit, the worker has failed */
	TtlReaperState state;		/* of the database without a worker */
	TimestampTz start_at;		/* of the next worker */
} WorkerSlot;

typedef struct TtlShared
{
	/* protected by the lock: set by the launcher */
	pid_t		launcher_pid;	/* 0 = none */
	Latch	   *launcher_latch; /* valid while launcher_pid is set */
	bool		is_contended;	/* databases wait for a slot, ... */
	bool		lacks_process;	/* ... since max_worker_processes is reached */

	/* protected by the lock: set by backends, taken by the launcher */
	int			nrequests;		/* more than MAX_REQUESTS = all databases */
	Oid			requests[MAX_REQUESTS];

	/* see counters.h, reaper_internal.h */
	TtlCountersShared counters;
	TtlLastSeenShared last_seen;

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
	RequestAddinShmemSpace(add_size(add_size(shared_size(), ttl_cost_shmem_size()),
									ttl_writers_shmem_size()));
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
static WorkerSlot *
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
static void
wake_workers(Oid dboid)
{
	bool		has_slot = false;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < ttl_guc_workers; i++)
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
		if (OidIsValid(dboid) && shared->nrequests < MAX_REQUESTS)
			shared->requests[shared->nrequests++] = dboid;
		else
			shared->nrequests = MAX_REQUESTS + 1;
		wake_launcher();
	}
	LWLockRelease(lock);
}

/*
 * True if there is a worker of the database (InvalidOid = of any).  If 'terminate', it gets a
 * SIGTERM.
 */
static bool
find_workers(Oid dboid, bool terminate)
{
	bool		found = false;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < ttl_guc_workers; i++)
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

static bool
worker_is_there(Oid dboid)
{
	return find_workers(dboid, false);
}

/*
 * Terminates the worker of a database (InvalidOid: all workers), and waits, with a timeout,
 * until it has exited.  The next one is started when the database is not locked.
 */
static void
terminate_workers(Oid dboid)
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
static List *
attach_launcher(void)
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
		if (shared->slots[i].pid == 0)
			shared->slots[i].dboid = InvalidOid;
		else
			dboids = lappend_oid(dboids, shared->slots[i].dboid);
	}
	LWLockRelease(lock);
	return dboids;
}

/* Notes whether databases wait for a slot.  If so, sleeping workers are woken up. */
static void
set_contended(bool contended, bool lacks_process)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
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
static bool
reserve_slot(Oid dboid)
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

/*
 * Frees the slot of a database, whose worker has exited.  Returns what was in it.
 */
static WorkerSlot
release_slot(Oid dboid)
{
	WorkerSlot *slot;
	WorkerSlot	result;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	slot = find_slot(dboid);
	result = *slot;
	memset(slot, 0, sizeof(WorkerSlot));
	LWLockRelease(lock);
	return result;
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
ttl_launcher_attach_worker(Oid dboid)
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
ttl_launcher_take_request(void)
{
	bool		requested;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	requested = my_slot->is_requested;
	my_slot->is_requested = false;
	LWLockRelease(lock);
	return requested;
}

void
ttl_launcher_note_graces(void)
{
	LWLockAcquire(lock, LW_EXCLUSIVE);
	if (!my_slot->has_graces && ttl_last_seen_awaits_graces())
		wake_launcher();
	my_slot->has_graces = true;
	LWLockRelease(lock);
}

bool
ttl_launcher_is_contended(void)
{
	bool		contended;

	LWLockAcquire(lock, LW_SHARED);
	contended = shared->is_contended;
	LWLockRelease(lock);
	return contended;
}

const char *
ttl_launcher_why_no_worker(void)
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

bool
ttl_launcher_release_worker(TtlReaperState state, TimestampTz start_at)
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

/* To be sent when the transaction has committed */
static bool policy_changed = false;
static bool anything_changed = false;

void
ttl_request_at_commit(void)
{
	policy_changed = true;
}

void
ttl_request_all_at_commit(void)
{
	anything_changed = true;
}

void
ttl_request_transaction(XactEvent event)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;

	policy_changed |= ttl_policy_take_changed() != NIL;
	if (event != XACT_EVENT_COMMIT)
	{
		policy_changed = false;
		anything_changed = false;
	}
}

void
ttl_request_send(void)
{
	if (policy_changed || anything_changed)
		wake_workers(anything_changed ? InvalidOid : MyDatabaseId);
	policy_changed = false;
	anything_changed = false;
}

/*
 * The database that a command needs for itself, NULL if it needs none.
 */
static const char *
database_of_command(Node *command)
{
	List	   *options;
	const char *option;
	const char *name;
	ListCell   *lc;

	if (IsA(command, DropdbStmt))
		return ((DropdbStmt *) command)->dbname;
	if (IsA(command, RenameStmt) &&
		((RenameStmt *) command)->renameType == OBJECT_DATABASE)
		return ((RenameStmt *) command)->subname;
	if (IsA(command, AlterDatabaseStmt))
	{
		options = ((AlterDatabaseStmt *) command)->options;
		option = "tablespace";
		name = NULL;
	}
	else if (IsA(command, CreatedbStmt))
	{
		options = ((CreatedbStmt *) command)->options;
		option = "template";
		name = "template1";
	}
	else
		return NULL;

	foreach(lc, options)
	{
		DefElem    *element = lfirst_node(DefElem, lc);

		if (strcmp(element->defname, option) == 0 && element->arg != NULL)
			name = IsA(command, AlterDatabaseStmt) ?
				((AlterDatabaseStmt *) command)->dbname : defGetString(element);
	}
	return name;
}

/*
 * True if the user has, roughly, the rights for such a command.  (have_createdb_privilege() is
 * not exported by all minor releases.)
 */
static bool
has_rights(Oid dboid, bool as_template)
{
	HeapTuple	role;
	HeapTuple	database;
	bool		result;

	if (TtlOwnsDatabase(dboid, GetUserId()))
		return true;
	if (!as_template)
		return false;
	role = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	database = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	result = HeapTupleIsValid(role) && ((Form_pg_authid) GETSTRUCT(role))->rolcreatedb &&
		HeapTupleIsValid(database) && ((Form_pg_database) GETSTRUCT(database))->datistemplate;
	if (HeapTupleIsValid(role))
		ReleaseSysCache(role);
	if (HeapTupleIsValid(database))
		ReleaseSysCache(database);
	return result;
}

void
ttl_request_before_utility(PlannedStmt *pstmt)
{
	const char *name = database_of_command(pstmt->utilityStmt);
	bool		as_template = IsA(pstmt->utilityStmt, CreatedbStmt);
	Oid			dboid;

	if (name == NULL || RecoveryInProgress() || !IsTransactionState())
		return;

	dboid = get_database_oid(name, true);
	if (OidIsValid(dboid) && (as_template || dboid != MyDatabaseId) &&
		has_rights(dboid, as_template))
	{
		LockSharedObject(DatabaseRelationId, dboid, 0,
						 as_template ? ShareLock : AccessExclusiveLock);
		terminate_workers(dboid);
	}
}

void
ttl_request_after_utility(PlannedStmt *pstmt)
{
	Node	   *command = pstmt->utilityStmt;

	if (IsA(command, TransactionStmt) &&
		((TransactionStmt *) command)->kind == TRANS_STMT_COMMIT_PREPARED)
		anything_changed = true;
}

/* ms */
#define LONGEST_SLEEP		10000
#define FIRST_PAUSE			5000
#define LAST_PAUSE			300000
#define WARNING_PERIOD		3600000
#define LOCKED_WAIT			1000
#define IDLE_WAIT			5000
#define IDLE_WAIT_PER_DATABASE	INT64CONST(250)

/* datconnlimit of a database whose DROP DATABASE was interrupted */
#define INVALID_DATABASE	(-2)

typedef struct Database
{
	Oid			dboid;			/* MUST BE FIRST */
	NameData	name;			/* as of the last scan of pg_database */
	bool		exists;			/* likewise */
	bool		connectable;	/* likewise */
	bool		has_worker;		/* it has a slot */
	bool		has_graces;		/* as a worker has noted in its slot */
	BackgroundWorkerHandle *handle; /* NULL = started by an earlier launcher */
	TimestampTz start_at;		/* when to start a worker, DT_NOEND = at a request */
	TimestampTz failed_at;		/* when the last worker has failed, and ... */
	int			pause;			/* ... how long the next one waited for that, ms */
} Database;

static HTAB *known = NULL;

/*
 * Returns the entry of a database; a new one gets a worker at once.
 */
static Database *
enter_database(Oid dboid)
{
	bool		found;
	Database   *database = (Database *) hash_search(known, &dboid, HASH_ENTER,
													&found);

	if (!found)
	{
		memset(database, 0, sizeof(Database));
		database->dboid = dboid;
	}
	return database;
}

/*
 * Reads pg_database: enters new databases, removes dropped ones, terminates the workers of
 * those that accept no connections any more.
 */
static void
read_databases(void)
{
	HASH_SEQ_STATUS status;
	Database   *database;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
		database->exists = false;

	StartTransactionCommand();
	(void) GetTransactionSnapshot();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		database = enter_database(form->oid);
		database->name = form->datname;
		database->exists = true;
		database->connectable = form->datallowconn &&
			form->datconnlimit != INVALID_DATABASE;
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();

	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		if (!database->exists && !database->has_worker)
		{
			ttl_counters_forget_database(database->dboid);
			(void) hash_search(known, &database->dboid, HASH_REMOVE, NULL);
		}
		else if (database->exists && !database->connectable && database->has_worker)
			terminate_workers(database->dboid);
	}
}

/*
 * A worker has exited: decides when the database gets the next one.
 */
static void
worker_exited(Database *database, TimestampTz now)
{
	WorkerSlot	slot = release_slot(database->dboid);

	if (database->handle != NULL)
		pfree(database->handle);
	database->handle = NULL;
	database->has_worker = false;
	database->has_graces |= slot.has_graces;

	if (slot.is_requested)
		database->start_at = 0;
	else if (!slot.is_leaving)
	{
		if (TimestampDifferenceExceeds(database->failed_at, now, 2 * LAST_PAUSE))
			database->pause = 0;
		database->failed_at = now;
		database->pause = Min(Max(database->pause * 2, FIRST_PAUSE), LAST_PAUSE);
		database->start_at = TimestampTzPlusMilliseconds(now, database->pause);
	}
	else if (slot.state == TTL_REAPER_IDLE)
		/* starting a process for each of many costs more than its work */
		database->start_at =
			Max(slot.start_at,
				TimestampTzPlusMilliseconds(now, Max(IDLE_WAIT, IDLE_WAIT_PER_DATABASE *
													 hash_get_num_entries(known))));
	else
		database->start_at = slot.start_at;
	ttl_counters_set_state(database->dboid,
						   slot.is_leaving ? slot.state : TTL_REAPER_WAITING);
}

/*
 * Processes exits of workers and requests of backends.
 */
static void
update_databases(TimestampTz now)
{
	Oid			requests[MAX_REQUESTS];
	int			nrequests;
	HASH_SEQ_STATUS status;
	Database   *database;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	nrequests = shared->nrequests;
	memcpy(requests, shared->requests, sizeof(requests));
	shared->nrequests = 0;
	LWLockRelease(lock);

	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		bool		requested = nrequests > MAX_REQUESTS;
		pid_t		pid;

		/* the handle says that a worker could not be started */
		if (database->has_worker && !worker_is_there(database->dboid) &&
			(database->handle == NULL ||
			 GetBackgroundWorkerPid(database->handle, &pid) == BGWH_STOPPED))
			worker_exited(database, now);

		for (int i = 0; i < nrequests && !requested; i++)
			requested = requests[i] == database->dboid;
		if (requested && !database->has_worker)
			database->start_at = 0;
	}
}

/* True if all databases that accept connections have stored their graces (last_seen.c). */
static bool
all_have_graces(void)
{
	HASH_SEQ_STATUS status;
	Database   *database;
	bool		result = true;

	LWLockAcquire(lock, LW_SHARED);
	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		WorkerSlot *slot = find_slot(database->dboid);

		if (slot != NULL)
			database->has_graces |= slot->has_graces;
		if (database->exists && database->connectable && !database->has_graces)
			result = false;
	}
	LWLockRelease(lock);
	return result;
}

/*
 * Starts a worker.  Returns whether one could be registered.
 */
static bool
start_worker(Database *database)
{
	BackgroundWorker worker;

	ttl_process_describe(&worker, TTL_REAPER_TYPE, "ttl_worker_main");
	worker.bgw_flags |= BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	/* what ps shows; a database with a worker in it cannot be renamed */
	snprintf(worker.bgw_name, BGW_MAXLEN, "%s for database %s",
			 TTL_REAPER_TYPE, NameStr(database->name));
	worker.bgw_main_arg = ObjectIdGetDatum(database->dboid);
	worker.bgw_notify_pid = MyProcPid;

	return RegisterDynamicBackgroundWorker(&worker, &database->handle);
}

/*
 * The database that has waited longest for a worker and may get it now, NULL
 * if there is none.  *next becomes the time of the first that has to wait.
 */
static Database *
next_database(TimestampTz now, TimestampTz *next)
{
	HASH_SEQ_STATUS status;
	Database   *database;
	Database   *first = NULL;

	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		if (!database->connectable || !database->exists || database->has_worker)
			continue;
		if (database->start_at > now)
			*next = Min(*next, database->start_at);
		else if (first == NULL || database->start_at < first->start_at)
			first = database;
	}
	return first;
}

/*
 * True if a command like DROP DATABASE has locked the database.  A worker would wait for it.
 */
static bool
is_locked(Oid dboid)
{
	LOCKTAG		tag;
	bool		locked;

	StartTransactionCommand();
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, dboid, 0);
	locked = LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL;
	CommitTransactionCommand();
	return locked;
}

/*
 * Starts the workers that are due, as far as there are slots.  Returns when
 * the next one is.
 */
static TimestampTz
start_workers(TimestampTz now)
{
	static TimestampTz warned_at = 0;

	TimestampTz next = TimestampTzPlusMilliseconds(now, LONGEST_SLEEP);
	bool		contended = false;
	bool		lacks_process = false;
	Database   *database;

	while (!contended && (database = next_database(now, &next)) != NULL)
	{
		if (is_locked(database->dboid))
			database->start_at = TimestampTzPlusMilliseconds(now, LOCKED_WAIT);
		else if (!reserve_slot(database->dboid))
			contended = true;
		else if (start_worker(database))
			database->has_worker = true;
		else
		{
			(void) release_slot(database->dboid);
			contended = lacks_process = true;
			if (TimestampDifferenceExceeds(warned_at, now, WARNING_PERIOD))
			{
				warned_at = now;
				ereport(WARNING,
						(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						 errmsg("out of background worker slots"),
						 errdetail("Expired rows in database \"%s\" are hidden, but not deleted.",
								   NameStr(database->name)),
						 errhint("Consider increasing the configuration parameter \"%s\".",
								 "max_worker_processes")));
			}
		}
	}

	set_contended(contended, lacks_process);
	return next;
}

/*
 * Main function of the launcher.
 */
void
ttl_launcher_main(Datum main_arg)
{
	HASHCTL		ctl;
	MemoryContext context;
	TimestampTz last_time = 0;
	List	   *adopted;
	ListCell   *lc;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	/* a SIGHUP that came before the handler was set has been discarded */
	ConfigReloadPending = true;

	ttl_cost_exempt();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	ttl_last_seen_begin();
	adopted = attach_launcher();

	/* the table and handles of workers live as long as the process */
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(Database);
	ctl.hcxt = TopMemoryContext;
	known = hash_create("ttl databases", 64, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	foreach(lc, adopted)
		enter_database(lfirst_oid(lc))->has_worker = true;
	context = AllocSetContextCreate(TopMemoryContext, "ttl launcher",
									ALLOCSET_DEFAULT_SIZES);

	while (!ProcDiePending)
	{
		TimestampTz now;
		TimestampTz next;

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(context);
		MemoryContextReset(context);

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			ttl_cost_set_weights();
		}

		SetCurrentStatementStartTimestamp();
		pgstat_report_activity(STATE_RUNNING, "looking for databases with work");

		now = GetCurrentTimestamp();
		if (TimestampDifferenceExceeds(now, last_time, LONGEST_SLEEP))
		{
			ereport(LOG,
					(errmsg("deletion of expired rows starts anew because the clock has been set back")));
			terminate_workers(InvalidOid);
			break;
		}
		last_time = now;
		update_databases(now);
		read_databases();
		if (ttl_last_seen_awaits_graces() && all_have_graces())
			ttl_last_seen_graces_are_stored();
		ttl_last_seen_renew(false);

		next = TimestampTzPlusMilliseconds(now, LONGEST_SLEEP);
		if (ttl_guc_reaper)
		{
			MemoryContextSwitchTo(TopMemoryContext);
			next = start_workers(now);
			MemoryContextSwitchTo(context);
		}

		pgstat_report_activity(STATE_IDLE, NULL);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
														 next),
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}

	/* the postmaster does not restart a background worker that exits with 0 */
	proc_exit(1);
}

void
ttl_reaper_init(void)
{
	BackgroundWorker worker;

	ttl_restore_init();

	/* nothing may write during pg_upgrade */
	if (IsBinaryUpgrade)
		return;

	ttl_process_describe(&worker, TTL_LAUNCHER_TYPE, "ttl_launcher_main");
	worker.bgw_flags |= BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	RegisterBackgroundWorker(&worker);
}
