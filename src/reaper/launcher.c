/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  Starts and restarts the worker that each database needs.
 *
 * A background worker "ttl launcher", started by the postmaster at the end of recovery
 * (so never on a standby, and at promotion) and again RESTART_TIME after it has
 * failed.  It is connected to no database; pg_database is shared.
 *
 * Whether a database has work can be seen only from inside.  So each gets a worker once,
 * when the launcher starts or when the database is created.  A worker that finds no
 * container with TTL on exits, and the database gets another one only when a backend
 * requests it (request.c).  A worker with work stays, unless databases wait for one of the
 * ttl.workers slots: then it exits after each cycle, and the database that has waited longest
 * comes next.  If nothing was left to do the database waits for IDLE_WAIT at least, and longer the
 * more databases there are.  A worker that fails is started again after a pause that doubles each
 * time, unless it had run for LAST_PAUSE.
 *
 * An exiting worker leaves in its slot (shmem.c) the state of the database and when to start
 * the next one.  The launcher wakes up when a worker exits, at a request, and after
 * LONGEST_SLEEP to read pg_database.
 *
 *	 event						what is done
 *	 ------------------------	--------------------------------------------
 *	 database is created		a worker finds out whether there is work
 *	 policy committed			the worker wakes up, or one is started
 *	 DROP/CREATE EXTENSION		as a change of policy
 *	 reaping is off everywhere	a worker comes once a day to log a reminder
 *	 worker fails				again after FIRST_PAUSE doubling to LAST_PAUSE
 *	 DROP DATABASE and such		request.c terminates the worker
 *	 ALLOW_CONNECTIONS false	the worker is terminated; another when it is true
 *	 ttl.reaper = off			workers exit, none is started
 *	 recovery to a point in time	each worker exits at once, until ttl.resume()
 *	 ttl.pause()				the worker exits, another comes at the pause's end
 *	 server stops				workers exit, the launcher saves statistics
 *	 launcher fails				workers go on, the next launcher finds their slots
 *	 pg_cancel_backend()		ignored
 *	 clock is set back			all processes start anew, since their wakeup times
 *								are in the far future
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "cost.h"
#include "counters.h"
#include "guc.h"
#include "reaper/reaper_internal.h"
#include "reaper/reap_rel.h"
#include "ttl.h"

/* Seconds after which the postmaster restarts a launcher that has failed */
#define RESTART_TIME		5

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
	bool		has_worker;		/* has it a slot? */
	BackgroundWorkerHandle *handle; /* NULL = started by an earlier launcher */
	TimestampTz start_at;		/* when to start a worker, DT_NOEND = at a request;
								 * or when it was started */
	int			failures;		/* in a row */
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
			ttl_reap_rel_forget_database(database->dboid);
			(void) hash_search(known, &database->dboid, HASH_REMOVE, NULL);
		}
		else if (database->exists && !database->connectable && database->has_worker)
			ttl_shmem_terminate_workers(database->dboid);
	}
}

/*
 * A worker has exited: decides when the database gets the next one.
 */
static void
worker_exited(Database *database, TimestampTz now)
{
	TimestampTz started_at = database->start_at;
	TtlReaperState state;

	if (database->handle != NULL)
		pfree(database->handle);
	database->handle = NULL;
	database->has_worker = false;

	if (ttl_shmem_release_slot(database->dboid, &state, &database->start_at))
	{
		database->failures = 0;

		/* starting a process for each of many costs more than its work */
		if (state == TTL_REAPER_IDLE && database->start_at != 0)
			database->start_at =
				Max(database->start_at,
					TimestampTzPlusMilliseconds(now, Max(IDLE_WAIT, IDLE_WAIT_PER_DATABASE *
														 hash_get_num_entries(known))));
	}
	else
	{
		if (TimestampDifferenceExceeds(started_at, now, LAST_PAUSE))
			database->failures = 0;
		database->start_at =
			TimestampTzPlusMilliseconds(now, Min(FIRST_PAUSE << Min(database->failures, 10),
												 LAST_PAUSE));
		database->failures++;
	}
	ttl_counters_set_state(database->dboid, state);
}

/*
 * Processes exits of workers and requests of backends.
 */
static void
update_databases(TimestampTz now)
{
	Oid			requests[TTL_MAX_REQUESTS];
	int			nrequests = ttl_shmem_take_requests(requests);
	HASH_SEQ_STATUS status;
	Database   *database;

	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		bool		requested = nrequests > TTL_MAX_REQUESTS;
		pid_t		pid;

		/* the handle says that a worker could not be started */
		if (database->has_worker && !ttl_shmem_has_worker(database->dboid) &&
			(database->handle == NULL ||
			 GetBackgroundWorkerPid(database->handle, &pid) == BGWH_STOPPED))
			worker_exited(database, now);

		for (int i = 0; i < nrequests && !requested; i++)
			requested = requests[i] == database->dboid;
		if (requested && !database->has_worker)
			database->start_at = 0;
	}
}

/*
 * Starts a worker.  Returns whether one could be registered.
 */
static bool
start_worker(Database *database)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "%s", TTL_EXTENSION);
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "%s", "ttl_worker_main");
	/* what ps shows; a database with a worker in it cannot be renamed */
	snprintf(worker.bgw_name, BGW_MAXLEN, "%s for database %s",
			 TTL_REAPER_TYPE, NameStr(database->name));
	snprintf(worker.bgw_type, BGW_MAXLEN, "%s", TTL_REAPER_TYPE);
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
 * Has a command like DROP DATABASE locked the database?  A worker would wait for it.
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
		else if (!ttl_shmem_reserve_slot(database->dboid))
			contended = true;
		else if (start_worker(database))
		{
			database->has_worker = true;
			database->start_at = now;
		}
		else
		{
			TtlReaperState state;
			TimestampTz start_at;

			(void) ttl_shmem_release_slot(database->dboid, &state, &start_at);
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

	ttl_shmem_set_contended(contended, lacks_process);
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
	uint32		wait_event;
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
	adopted = ttl_shmem_launcher_attach();
	wait_event = TtlWaitEventNew("TtlLauncherMain");

	/* the table and handles of workers live as long as the process */
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(Database);
	ctl.hcxt = TopMemoryContext;
	known = hash_create("ttl databases", 64, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	foreach(lc, adopted)
	{
		Database   *database = enter_database(lfirst_oid(lc));

		database->has_worker = true;
		database->start_at = GetCurrentTimestamp();
	}
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
			ttl_shmem_terminate_workers(InvalidOid);
			break;
		}
		last_time = now;
		update_databases(now);
		read_databases();

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
						 wait_event);
		ResetLatch(MyLatch);
	}

	/* the postmaster does not restart a background worker that exits with 0 */
	proc_exit(1);
}

void
ttl_reaper_init(void)
{
	BackgroundWorker worker;

	/* nothing may write during pg_upgrade */
	if (IsBinaryUpgrade)
		return;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = RESTART_TIME;
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "%s", TTL_EXTENSION);
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "%s", "ttl_launcher_main");
	snprintf(worker.bgw_name, BGW_MAXLEN, "%s", TTL_LAUNCHER_TYPE);
	snprintf(worker.bgw_type, BGW_MAXLEN, "%s", TTL_LAUNCHER_TYPE);
	RegisterBackgroundWorker(&worker);
}
