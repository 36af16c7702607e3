/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The process that sees to it that each database has the worker it needs.
 *
 * A background worker "ttl launcher", started by the postmaster when recovery
 * has ended (so never on a standby, and at promotion) and again a few seconds
 * after it has died.  It is connected to no database; pg_database is shared.
 *
 * Which databases have work can be seen only from inside.  So each gets a
 * worker once, at the start of the launcher or when the database shows up,
 * and one that finds nothing to care for says so and leaves; the database is
 * then left alone until a backend asks for attention.  A worker with work
 * stays, unless databases wait for one of the ttl.workers slots: then it
 * leaves after each cycle, and the one that has waited longest comes next; a
 * database where nothing was left to do comes again the later the more
 * databases there are, a few per second in all.  A worker that dies is started
 * again after a pause that doubles each time, unless it had lived for long.
 *
 * What the launcher knows is in a hash table of its own; with the workers it
 * talks through shmem.c.  It wakes up when a worker starts or stops, when
 * asked to, and after LONGEST_SLEEP to look at pg_database, from which a
 * database may also vanish.
 *
 *	 event						what is done
 *	 ------------------------	--------------------------------------------
 *	 database is new			worker looks whether there is work
 *	 policy committed			the worker wakes up, or one is started
 *	 DROP/CREATE EXTENSION		as a policy change; the worker sees it and leaves
 *	 reaping is off everywhere	a worker comes once a day, to remind of it
 *	 worker dies				again after FIRST_PAUSE doubling to LAST_PAUSE
 *	 DROP DATABASE and such		request.c blocks the database
 *	 ALLOW_CONNECTIONS false	the worker leaves, another comes when it is true
 *	 ttl.reaper = off			workers leave, none is started
 *	 recovered to a moment		each worker leaves at once, until ttl.resume()
 *	 ttl.pause()				the worker leaves, another comes at its end
 *	 server stops				workers leave, the launcher saves statistics
 *	 launcher dies				workers go on, the next one finds them in their slots
 *	 pg_cancel_backend()		there is nothing to cancel
 *	 clock is set back			all starts anew: what is waited for is far away
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
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "counters.h"
#include "guc.h"
#include "reaper/reaper_internal.h"
#include "reaper/reaper.h"
#include "reaper/reap_rel.h"
#include "ttl.h"

/* Seconds after which the postmaster starts a launcher that has died. */
#define RESTART_TIME		5

/* ms */
#define LONGEST_SLEEP		10000
#define FIRST_PAUSE			5000
#define LAST_PAUSE			300000
#define TELL_AGAIN			3600000
#define IDLE_PACE			INT64CONST(250) /* times the number of databases */
#define IDLE_LEAST			5000

/* datconnlimit of a database whose DROP DATABASE was interrupted */
#define INVALID_DATABASE	(-2)

/* What the launcher knows about a database. */
typedef struct Database
{
	Oid			dboid;			/* MUST BE FIRST */
	NameData	name;			/* as of the last look at pg_database */
	bool		exists;			/* likewise */
	bool		connectable;	/* likewise */
	int			slot;			/* -1 = no worker */
	BackgroundWorkerHandle *handle; /* of the worker; NULL = another launcher
									 * has started it */
	bool		again;			/* attention was asked for meanwhile */
	bool		wanted;			/* shall get a worker at ... */
	TimestampTz start_at;		/* or when it got one */
	int			failures;		/* in a row */
} Database;

static HTAB *known = NULL;

/* When it was last told that no background worker can be registered. */
static TimestampTz told_exhausted_at = 0;

/*
 * The entry of a database; a new one wants a worker.
 */
static Database *
enter_database(Oid dboid)
{
	bool		found;
	Database   *database = (Database *) hash_search(known, &dboid, HASH_ENTER,
													&found);

	if (!found)
	{
		memset(&database->name, 0, sizeof(NameData));
		database->exists = false;
		database->connectable = false;
		database->handle = NULL;
		database->slot = -1;
		database->again = false;
		database->wanted = true;
		database->start_at = 0;
		database->failures = 0;
	}
	return database;
}

/*
 * Reads pg_database: enters new databases, forgets those that have gone.
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
		if (!database->exists && database->slot < 0)
		{
			ttl_counters_forget_database(database->dboid);
			ttl_rel_state_forget_database(database->dboid);
			(void) hash_search(known, &database->dboid, HASH_REMOVE, NULL);
		}
	}
}

/*
 * Notes that the database shall get a worker, not before start_at.
 */
static void
want(Database *database, TimestampTz start_at)
{
	database->wanted = true;
	database->start_at = start_at;
}

/*
 * Draws conclusions from a worker that has gone.
 */
static void
worker_stopped(Database *database, TimestampTz now)
{
	TtlLeft		left;
	TimestampTz due;
	TimestampTz earliest;

	if (database->handle != NULL)
		pfree(database->handle);
	database->handle = NULL;
	ttl_shmem_slot_release(database->slot, &left, &due);
	database->slot = -1;

	if (left != TTL_LEFT_DIED ||
		TimestampDifferenceExceeds(database->start_at, now, LAST_PAUSE))
		database->failures = 0;

	switch (left)
	{
		case TTL_LEFT_DIED:
			want(database,
				 TimestampTzPlusMilliseconds(now,
											 Min(FIRST_PAUSE << Min(database->failures, 10),
												 LAST_PAUSE)));
			database->failures++;
			ttl_counters_set_state(database->dboid, TTL_REAPER_WAITING);
			break;
		case TTL_LEFT_NOTHING:
			/* 0 = never */
			database->wanted = due != 0;
			database->start_at = due;
			ttl_counters_set_state(database->dboid, TTL_REAPER_STOPPED);
			break;
		case TTL_LEFT_HELD:
			database->wanted = false;
			ttl_counters_set_state(database->dboid, TTL_REAPER_HELD);
			break;
		case TTL_LEFT_PAUSED:
			want(database, due);
			ttl_counters_set_state(database->dboid, TTL_REAPER_PAUSED);
			break;
		case TTL_LEFT_YIELDED:
			want(database, due);
			ttl_counters_set_state(database->dboid, TTL_REAPER_WAITING);
			break;
		case TTL_LEFT_IDLE:
			/* starting a process for each of many costs more than its work */
			earliest = TimestampTzPlusMilliseconds(now,
												   Max(IDLE_PACE * hash_get_num_entries(known),
													   IDLE_LEAST));
			want(database, Max(due, earliest));
			ttl_counters_set_state(database->dboid, TTL_REAPER_IDLE);
			break;
		case TTL_LEFT_BLOCKED:
		case TTL_LEFT_OFF:
			want(database, 0);
			ttl_counters_set_state(database->dboid, TTL_REAPER_WAITING);
			break;
	}

	if (database->again)
	{
		database->again = false;
		want(database, 0);
	}
}

/*
 * Looks which workers have gone.
 */
static void
check_workers(TimestampTz now)
{
	HASH_SEQ_STATUS status;
	Database   *database;

	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		pid_t		pid;

		if (database->slot >= 0 &&
			(database->handle != NULL ?
			 GetBackgroundWorkerPid(database->handle, &pid) == BGWH_STOPPED :
			 !OidIsValid(ttl_shmem_slot_database(database->slot))))
			worker_stopped(database, now);
	}
}

/*
 * Takes over the workers that an earlier launcher has left behind.
 */
static void
adopt_workers(TimestampTz now)
{
	for (int i = 0; i < ttl_shmem_nslots(); i++)
	{
		Oid			dboid = ttl_shmem_slot_database(i);

		if (OidIsValid(dboid))
		{
			Database   *database = enter_database(dboid);

			database->slot = i;
			database->wanted = false;
			database->start_at = now;
		}
	}
}

/*
 * Calls workers back from databases that take no connections any more.
 */
static void
leave_closed_databases(void)
{
	HASH_SEQ_STATUS status;
	Database   *database;

	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		if (database->slot >= 0 && database->exists &&
			!database->connectable)
			ttl_shmem_terminate_workers(database->dboid, TTL_LEFT_BLOCKED);
	}
}

/*
 * Notes what backends have asked for.
 */
static void
take_requests(void)
{
	Oid			dboids[TTL_MAX_REQUESTS];
	bool		all;
	int			n = ttl_shmem_take_requests(dboids, &all);
	HASH_SEQ_STATUS status;
	Database   *database;

	hash_seq_init(&status, known);
	while ((database = (Database *) hash_seq_search(&status)) != NULL)
	{
		bool		requested = all;

		for (int i = 0; i < n && !requested; i++)
			requested = dboids[i] == database->dboid;

		if (requested && database->slot >= 0)
			database->again = true;
		else if (requested)
			want(database, 0);
	}
}

/*
 * Starts a worker in the slot.  Returns whether one could be registered.
 */
static bool
start_worker(Database *database, int slot, uint32 serial)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "%s", TTL_EXTENSION);
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "%s", "ttl_worker_main");
	/* it is what ps shows; nobody renames a database while a worker is in it */
	snprintf(worker.bgw_name, BGW_MAXLEN, "%s for database %s",
			 TTL_REAPER_TYPE, NameStr(database->name));
	snprintf(worker.bgw_type, BGW_MAXLEN, "%s", TTL_REAPER_TYPE);
	worker.bgw_main_arg = Int32GetDatum(slot);
	memcpy(worker.bgw_extra, &serial, sizeof(serial));
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
		if (!database->wanted || !database->connectable ||
			!database->exists ||
			database->slot >= 0 ||
			ttl_shmem_is_blocked(database->dboid))
			continue;
		if (database->start_at > now)
			*next = Min(*next, database->start_at);
		else if (first == NULL || database->start_at < first->start_at)
			first = database;
	}
	return first;
}

/*
 * Starts the workers that are due, as far as there are slots.  Returns when
 * to come again.
 */
static TimestampTz
start_workers(TimestampTz now)
{
	TimestampTz next = TimestampTzPlusMilliseconds(now, LONGEST_SLEEP);
	bool		contended = false;
	Database   *database;

	while ((database = next_database(now, &next)) != NULL)
	{
		uint32		serial;
		int			slot = ttl_shmem_slot_reserve(database->dboid, &serial);

		if (slot < 0)
		{
			contended = true;
			break;
		}

		if (!start_worker(database, slot, serial))
		{
			TtlLeft		left;
			TimestampTz due;

			ttl_shmem_slot_release(slot, &left, &due);
			contended = true;
			if (TimestampDifferenceExceeds(told_exhausted_at, now, TELL_AGAIN))
			{
				told_exhausted_at = now;
				ereport(WARNING,
						(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						 errmsg("out of background worker slots"),
						 errdetail("Expired rows in database \"%s\" are hidden, but not deleted.",
								   NameStr(database->name)),
						 errhint("Consider increasing the configuration parameter \"%s\".",
								 "max_worker_processes")));
			}
			break;
		}

		database->wanted = false;
		database->start_at = now;
		database->slot = slot;
	}

	ttl_shmem_set_contended(contended);
	return next;
}

/*
 * At exit: statistics outlive the server.  The workers have something to add
 * until they have gone, as they do when it stops.
 */
static void
save_statistics(int code, Datum arg)
{
	LWLockReleaseAll();			/* after an error */
	ttl_shmem_await_workers();
	ttl_counters_save();
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
	TimestampTz looked_at = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	/* a SIGHUP that came before the handler was set has been discarded */
	ConfigReloadPending = true;

	ttl_budget_exempt();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	ttl_shmem_launcher_attach();
	ttl_counters_load();
	before_shmem_exit(save_statistics, (Datum) 0);
	wait_event = TtlWaitEventNew("TtlLauncherMain");

	/* handles of workers and the table live as long as the process */
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(Database);
	ctl.hcxt = TopMemoryContext;
	known = hash_create("ttl databases", 64, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	adopt_workers(GetCurrentTimestamp());
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
		}

		SetCurrentStatementStartTimestamp();
		pgstat_report_activity(STATE_RUNNING, "looking for databases with work");

		now = GetCurrentTimestamp();
		if (TimestampDifferenceExceeds(now, looked_at, LONGEST_SLEEP))
		{
			ereport(LOG,
					(errmsg("deletion of expired rows starts anew because the clock has been set back")));
			ttl_shmem_terminate_workers(InvalidOid, TTL_LEFT_YIELDED);
			break;
		}
		looked_at = now;
		check_workers(now);
		read_databases();
		leave_closed_databases();
		take_requests();

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

	/* code 0 would mean that no other launcher is wanted */
	proc_exit(1);
}

/*
 * Registers the launcher, and all of the room with PostgreSQL.
 */
void
ttl_reaper_init(void)
{
	BackgroundWorker worker;

	ttl_shmem_init();
	ttl_rel_state_init();
	ttl_progress_init();
	ttl_budget_init();
	ttl_request_init();
	ttl_recovery_init();
	ttl_pause_init();

	/* pg_upgrade wants nobody to write */
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
