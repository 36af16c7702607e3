/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The process that deletes expired rows of one database.
 *
 * A background worker "ttl reaper", started by the launcher.  It runs a cycle (cycle.c) at most every
 * ttl.naptime, while tables are due (schedule.c).
 *
 * Deletion runs as the table's owner, in a security-restricted operation, and so do its triggers.
 *
 * The worker exits when there is no container with TTL on, when ttl.reaper is off, while
 * deletion is held (hold.c), and after a cycle when other databases wait for its slot.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "compat.h"
#include "cost.h"
#include "counters.h"
#include "guc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "reaper/cycle.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
#include "reaper/schedule.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

static const char *database_name;

/*
 * Overrides settings of postgresql.conf, the database and the role.
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
		/* ttl_cycle_run() flushes WAL; what a crash undoes is done again */
		{"synchronous_commit", "off"},
		{"lock_timeout", "0"},
		/* since 17 */
		{"transaction_timeout", "0"}
	};

	for (int i = 0; i < lengthof(settings); i++)
	{
		if (GetConfigOption(settings[i].name, true, false) != NULL)
			SetConfigOption(settings[i].name, settings[i].value,
							PGC_SUSET, PGC_S_OVERRIDE);
	}
}

/*
 * Reads the list of containers.  Returns false if the worker has to exit, with the arguments
 * of ttl_slots_leave(), else when to call this again in *next.
 */
static bool
renew_schedule(TimestampTz *next, TtlReaperState *state, TimestampTz *start_at)
{
	bool		any;

	*state = TTL_REAPER_WAITING;
	*start_at = 0;
	if (!ttl_guc_reaper)
		return false;

	any = ttl_schedule_refresh(database_name, next);
	*start_at = DT_NOEND;
	if (any)
	{
		/* what holds deletion is logged unless its state has that already */
		ttl_counters_open_database();
		return !ttl_hold_find(state, start_at);
	}
	*state = TTL_REAPER_STOPPED;
	return false;
}

/* True if another process has terminated this one.  A trigger that does so is to blame as one that ends it otherwise. */
static volatile sig_atomic_t is_terminated = false;

/* What PostgreSQL does about the signal: its handlers are told the sender since 19, and then take what terminate() takes */
static struct sigaction dying;

/* Signal handler, with the sender */
static void
terminate(int signo, siginfo_t * info, void *context)
{
	is_terminated = info->si_pid != MyProcPid;
	if (dying.sa_flags & SA_SIGINFO)
		dying.sa_sigaction(signo, info, context);
	else
		dying.sa_handler(signo);
}

/* Sets the handler of SIGTERM. */
static void
handle_termination(void)
{
	struct sigaction action;

	pqsignal(SIGTERM, die);
	(void) sigaction(SIGTERM, NULL, &dying);
	action = dying;
	action.sa_flags |= SA_SIGINFO;
	action.sa_sigaction = terminate;
	(void) sigaction(SIGTERM, &action, NULL);
}

/* If a batch is to blame, the next worker need not wait as it does after a failure. */
static void
at_exit(int code, Datum arg)
{
	LWLockReleaseAll();			/* after an error */
	if (ttl_attempt_handle_exit(is_terminated))
		(void) ttl_slots_leave(TTL_REAPER_WAITING, GetCurrentTimestamp());
}

/*
 * Main function of a worker; the argument is its database.
 */
void
ttl_worker_main(Datum main_arg)
{
	Oid			dboid = DatumGetObjectId(main_arg);
	TtlReapMode mode = {.by_worker = true, .commits = true};
	TtlMemory  *memory;
	MemoryContext context;
	TimestampTz refresh_at = 0;
	TimestampTz rested_at = 0;	/* ttl.naptime after the start of the last
								 * cycle */
	TtlDatabaseCounters counters;
	TimestampTz cycle_at = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	handle_termination();
	BackgroundWorkerUnblockSignals();

	/* a SIGHUP that came before the handler was set has been discarded */
	ConfigReloadPending = true;

	if (!ttl_slots_attach_worker(dboid))
		proc_exit(0);

	ttl_cost_exempt();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	resolve_settings();
	database_name = ttl_cycle_init();
	ttl_nap_reload();

	/* SPI's memory outlives the transactions of a turn, in here */
	PortalContext = AllocSetContextCreate(TopMemoryContext, "ttl reaper run",
										  ALLOCSET_DEFAULT_SIZES);
	context = AllocSetContextCreate(TopMemoryContext, "ttl reaper",
									ALLOCSET_DEFAULT_SIZES);
	memory = ttl_reap_rel_memory_create(TopMemoryContext, mode);

	ttl_restore_note_hold();
	ttl_schedule_init();
	before_shmem_exit(at_exit, (Datum) 0);

	/*
	 * another worker may have just run one, if the clock has not been set
	 * back since
	 */
	if (ttl_counters_get_database(MyDatabaseId, &counters) && counters.last_cycle <= GetCurrentTimestamp())
		rested_at = counters.last_cycle + ttl_guc_naptime * INT64CONST(1000);

	for (;;)
	{
		bool		is_requested = ttl_slots_take_request();

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);

		if (is_requested || refresh_at <= GetCurrentTimestamp() || !ttl_guc_reaper)
		{
			TtlReaperState state;
			TimestampTz start_at;

			/* what has changed may be due at once */
			cycle_at = rested_at;
			if (!renew_schedule(&refresh_at, &state, &start_at))
			{
				if (ttl_slots_leave(state, start_at))
					break;

				/*
				 * a request has come meanwhile; without a look at what it has
				 * changed nothing may be deleted
				 */
				continue;
			}
		}

		if (cycle_at <= GetCurrentTimestamp())
		{
			TimestampTz started = GetCurrentTimestamp();
			TimestampTz next;

			MemoryContextSwitchTo(context);
			next = ttl_cycle_run(memory);
			pgstat_report_stat(false);
			rested_at = started + ttl_guc_naptime * INT64CONST(1000);
			cycle_at = Max(next, rested_at);
		}

		if (ttl_slots_are_contended() &&
			ttl_slots_leave(cycle_at > rested_at ? TTL_REAPER_IDLE : TTL_REAPER_WAITING, cycle_at))
			break;

		pgstat_report_activity(STATE_IDLE, NULL);
		ttl_nap_until(Min(cycle_at, refresh_at));
	}

	proc_exit(0);
}
