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
 * The launcher wakes up when a worker exits, at a request, and after
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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "compat.h"
#include "container/container.h"
#include "cost.h"
#include "counters.h"
#include "guc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "reaper/reaper_internal.h"
#include "reaper/slots.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "ttl.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"
#include "writers.h"

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
	TimestampTz start_at;		/* when to start a worker, DT_NOEND = at a
								 * request */
	TimestampTz failed_at;		/* when the last worker has failed, and ... */
	int			pause;			/* ... how long the next one waited for that,
								 * ms */
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
	/* not used: it sets the horizon by which a scan may prune pages */
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
		/* one that has a worker goes when that has exited */
		if (!database->exists && !database->has_worker)
		{
			ttl_counters_forget_database(database->dboid);
			(void) hash_search(known, &database->dboid, HASH_REMOVE, NULL);
		}
		else if (database->exists && !database->connectable && database->has_worker)
			ttl_slots_terminate_workers(database->dboid);
	}
}

/*
 * A worker has exited: decides when the database gets the next one.
 */
static void
handle_worker_exit(Database *database, TimestampTz now)
{
	TtlWorkerSlot slot = ttl_slots_release(database->dboid);

	if (database->handle != NULL)
		pfree(database->handle);
	database->handle = NULL;
	database->has_worker = false;
	database->has_graces |= slot.has_graces;

	/* the worker has not seen it, however it has ended */
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
	Oid			requests[TTL_MAX_REQUESTS];
	int			nrequests;
	HASH_SEQ_STATUS status;
	Database   *database;

	nrequests = ttl_slots_take_requests(requests);
	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		bool		requested = nrequests > TTL_MAX_REQUESTS;
		pid_t		pid;

		/* the handle says that a worker could not be started */
		if (database->has_worker && !ttl_slots_have_worker(database->dboid) &&
			(database->handle == NULL ||
			 GetBackgroundWorkerPid(database->handle, &pid) == BGWH_STOPPED))
			handle_worker_exit(database, now);

		/* a worker that has been started since looks at everything anyway */
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

	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		/* what a worker that has exited has noted is kept */
		database->has_graces |= ttl_slots_have_graces(database->dboid);
		if (database->exists && database->connectable && !database->has_graces)
			result = false;
	}
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
		/* it has waited the longest, so none comes before it */
		else if (!ttl_slots_reserve(database->dboid))
			contended = true;
		else if (start_worker(database))
			database->has_worker = true;
		else
		{
			(void) ttl_slots_release(database->dboid);
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

	ttl_slots_set_contended(contended, lacks_process);
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
	adopted = ttl_slots_attach_launcher();

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
			ttl_slots_terminate_workers(InvalidOid);
			break;
		}
		last_time = now;
		/* a database that is new gets a worker without a request */
		update_databases(now);
		read_databases();
		if (ttl_last_seen_awaits_graces() && all_have_graces())
			ttl_last_seen_note_stored();
		ttl_last_seen_renew(false);

		next = TimestampTzPlusMilliseconds(now, LONGEST_SLEEP);
		if (ttl_guc_reaper)
		{
			/* handles live as long as the workers */
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

/* Registers the launcher. */
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
