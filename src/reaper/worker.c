/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The process that deletes expired rows of one database.
 *
 * A background worker "ttl reaper", started by the launcher.  Every
 * ttl.naptime at most it begins a cycle (cycle.c).
 *
 * The worker leaves when there is no container to care for, when ttl.reaper
 * is off, while deletion is held (recovery.c) or paused (pause.c), and after a cycle when other
 * databases wait for its slot.  An error that a cycle does not handle ends the
 * process, and the launcher starts another.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "citus/citus.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "counters.h"
#include "guc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "reaper/reaper_internal.h"
#include "reaper/cycle.h"
#include "reaper/schedule.h"
#include "reaper/reap_error.h"
#include "reaper/reap_rel.h"
#include "reaper/rel_state.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

static uint32 wait_event_main;

/*
 * Settings that the worker doesn't leave to postgresql.conf, the database or
 * the role.
 */
static void
resolve_settings(void)
{
	static const struct
	{
		const char *name;
		const char *value;
	}			settings[] = {
		{"search_path", "pg_catalog, pg_temp"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"session_replication_role", "origin"},
		{"exit_on_error", "off"},
		{"row_security", "on"},
		/* what a crash undoes is done again; a cycle is flushed at its end */
		{"synchronous_commit", "off"},
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"}
	};

	for (int i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i].name, settings[i].value,
						PGC_SUSET, PGC_S_OVERRIDE);

	/* partitions of a shard are emptied, too */
	if (ttl_citus_is_loaded())
		SetConfigOption("citus.enable_manual_changes_to_shards", "on", PGC_SUSET, PGC_S_OVERRIDE);

	/* 17 has one more */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * Is deletion held?  That doesn't begin while the server runs.  If it is, the log
 * says so, unless an earlier worker has left for the same reason.
 */
static bool
is_held(void)
{
	static bool known_not_held = false;
	TtlRecovery recovery;
	TtlDatabaseCounters counters;

	if (known_not_held)
		return false;
	StartTransactionCommand();
	ttl_counters_get_own_database(&counters);
	if (!ttl_recovery_holds(&recovery))
		known_not_held = true;
	else if (counters.state != TTL_REAPER_HELD)
		ereport(WARNING,
				(errmsg("expired rows in database \"%s\" are not deleted because the server was recovered to a point in time",
						get_database_name(MyDatabaseId)),
				 errdetail("Recovery ended: %s.", recovery.target),
				 errhint("Expired rows are hidden, as ever. Have a superuser call ttl.resume(), in any database, to have them deleted.")));
	CommitTransactionCommand();
	return !known_not_held;
}

/*
 * Is deletion paused, and until when?  The log says so, unless an earlier worker has left
 * for the same reason.
 */
static bool
is_paused(TimestampTz *until)
{
	TtlDatabaseCounters counters;
	bool		lasts;

	StartTransactionCommand();
	ttl_counters_get_own_database(&counters);
	lasts = ttl_pause_lasts(until);
	if (lasts && counters.state != TTL_REAPER_PAUSED)
		ereport(LOG,
				(errmsg("expired rows in database \"%s\" are not deleted because deletion is paused",
						get_database_name(MyDatabaseId)),
				 TIMESTAMP_IS_NOEND(*until) ? 0 :
				 errdetail("The pause ends at %s.", timestamptz_to_str(*until)),
				 errhint("To end the pause, use ttl.resume().")));
	CommitTransactionCommand();
	return lasts;
}

/*
 * Reminds once a day of containers with reaping off, such as a restore leaves behind, which
 * may have swallowed what it was told.  Returns when to do it again, 0 if there are none.
 */
static TimestampTz
remind(void)
{
	TtlDatabaseCounters counters;
	int			n = ttl_schedule_count_unreaped();

	if (n == 0)
		return 0;
	ttl_counters_open_database();
	ttl_counters_get_own_database(&counters);
	if (counters.reminded_at + USECS_PER_DAY <= GetCurrentTimestamp())
	{
		counters.reminded_at = GetCurrentTimestamp();
		ttl_counters_set_own_database(&counters);
		StartTransactionCommand();
		ereport(WARNING,
				(errmsg_plural("%d container in database \"%s\" has reaping off",
							   "%d containers in database \"%s\" have reaping off",
							   n, n, get_database_name(MyDatabaseId)),
				 errdetail("Expired rows are hidden, and none is deleted. Containers are restored so."),
				 errhint("Use ttl.alter_container(..., reaping => true) to have them deleted.")));
		CommitTransactionCommand();
	}
	return counters.reminded_at + USECS_PER_DAY;
}

/*
 * Sleeps until the time given, or until somebody wants something.
 */
static void
sleep_until(TimestampTz until)
{
	if (ttl_cycle_was_woken())
		SetLatch(MyLatch);

	pgstat_report_activity(STATE_IDLE, NULL);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
													 until),
					 wait_event_main);
	ResetLatch(MyLatch);

	/* not an error if nothing is going on */
	if (ProcDiePending)
		proc_exit(0);
	QueryCancelPending = false;
	CHECK_FOR_INTERRUPTS();
	ttl_cycle_check_reload();
}

/* The next worker need not wait as it does after a failure. */
static void
at_exit(int code, Datum arg)
{
	if (ttl_reap_error_handle_exit())
		(void) ttl_shmem_worker_leave(TTL_LEFT_YIELDED, GetCurrentTimestamp());
}

/*
 * Main function of a worker; the argument is its slot.
 */
void
ttl_worker_main(Datum main_arg)
{
	TtlReapMode mode = {.by_worker = true, .commits = true};
	TtlMemory  *memory;
	MemoryContext context;
	uint32		serial;
	Oid			dboid;
	TimestampTz refresh_at = 0;
	TimestampTz rested_at = 0;	/* end of the nap after a cycle */
	TimestampTz cycle_at = 0;
	TimestampTz paused_until;
	TimestampTz remind_at;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	/* a SIGHUP that came before the handler was set has been discarded */
	ConfigReloadPending = true;

	memcpy(&serial, MyBgworkerEntry->bgw_extra, sizeof(serial));
	if (!ttl_shmem_worker_attach(DatumGetInt32(main_arg), serial, &dboid))
		proc_exit(0);

	ttl_budget_exempt();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	resolve_settings();
	ttl_cycle_check_reload();
	wait_event_main = TtlWaitEventNew("TtlReaperMain");
	ttl_cycle_init();

	/* what SPI allocates outlives the transactions of a turn, in here */
	PortalContext = AllocSetContextCreate(TopMemoryContext, "ttl reaper turn",
										  ALLOCSET_DEFAULT_SIZES);
	context = AllocSetContextCreate(TopMemoryContext, "ttl reaper",
									ALLOCSET_DEFAULT_SIZES);
	memory = ttl_reap_rel_memory_create(TopMemoryContext, mode);

	ttl_schedule_init(memory);
	before_shmem_exit(at_exit, (Datum) 0);

	for (;;)
	{
		TimestampTz next;
		TimestampTz started;
		Oid			wanted;
		bool		attention;

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);

		if (!ttl_guc_reaper)
		{
			(void) ttl_shmem_worker_take_attention(&wanted);
			if (ttl_shmem_worker_leave(TTL_LEFT_OFF, 0))
				break;
			continue;
		}

		attention = ttl_shmem_worker_take_attention(&wanted);
		if (attention || refresh_at <= GetCurrentTimestamp())
		{
			bool		any;

			cycle_at = rested_at;
			HOLD_CANCEL_INTERRUPTS();
			any = ttl_schedule_refresh(memory);
			remind_at = remind();
			RESUME_CANCEL_INTERRUPTS();
			refresh_at = GetCurrentTimestamp() + ttl_schedule_stretch(TTL_SCHEDULE_IDLE_WAIT);
			if (any)
			{
				ttl_counters_open_database();
				ttl_schedule_look_at(wanted);
				if (is_held())
				{
					if (ttl_shmem_worker_leave(TTL_LEFT_HELD, 0))
						break;
					continue;
				}
				if (is_paused(&paused_until))
				{
					if (ttl_shmem_worker_leave(TTL_LEFT_PAUSED, paused_until))
						break;
					continue;
				}
			}
			else if (ttl_shmem_worker_leave(TTL_LEFT_NOTHING, remind_at))
			{
				ttl_rel_state_forget_database(MyDatabaseId);
				break;
			}
			else
				continue;
		}

		if (cycle_at <= GetCurrentTimestamp())
		{
			MemoryContextSwitchTo(context);
			started = GetCurrentTimestamp();
			next = ttl_cycle_run(memory);
			pgstat_report_stat(false);
			rested_at = started + ttl_guc_naptime * INT64CONST(1000);
			cycle_at = Max(next, rested_at);
		}

		if (ttl_shmem_worker_contended() &&
			ttl_shmem_worker_leave(cycle_at > rested_at ?
								   TTL_LEFT_IDLE : TTL_LEFT_YIELDED,
								   cycle_at))
			break;

		sleep_until(Min(cycle_at, refresh_at));
	}

	proc_exit(0);
}
