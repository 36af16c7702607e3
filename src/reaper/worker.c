/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The process that deletes expired rows of one database.
 *
 * A background worker "ttl reaper", started by the launcher.  It runs a cycle at most every
 * ttl.naptime.
 *
 * In a cycle the containers that are due (schedule.c) get runs of deletion (reap_rel.c) in
 * rounds, until the cycle's budget (budget.c) is spent or nothing is left.  In a round each owner has an
 * equal share of what is left of the budget, and each of his containers an equal share of that; an
 * owner's turn takes RUN_TIME at most, but for its last batch.  Who has taken the least time lately
 * comes first.  Between its transactions the worker naps without any
 * lock, so that the budget is spent evenly.  Triggers that sleep cost time and no budget,
 * so a cycle also ends after CYCLE_NAPTIMES.  At its end log_work() writes the log line
 * of each container (ttl.log_min_duration).
 *
 * A run that fails (an error that deletion does not handle, such as a corrupt index) is logged, and
 * the container is not due again for FAILED_MIN_WAIT or longer.  Other errors end
 * the process, and the launcher starts another.  pg_cancel_backend() ends a run, and is ignored
 * outside of one.
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

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "container/container.h"
#include "cost.h"
#include "counters.h"
#include "guc.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"

/* All in microseconds */
#define RUN_TIME			(1 * USECS_PER_SEC) /* longest run */
#define CYCLE_NAPTIMES		2	/* longest cycle, except its last run */
#define FAILED_MIN_WAIT		(60 * USECS_PER_SEC)	/* after an error */
#define FAILED_MAX_WAIT		(3600 * USECS_PER_SEC)

/* Least budget of a run, as far as there is any */
#define LEAST_SHARE			200

/* The cycle's budget, and what its runs have spent */
static int64 granted = 0;
static int64 spent = 0;

/* So much of 'spent' needs no more naps. */
static int64 paid = 0;

/* Time spent napping, in microseconds */
static int64 napped = 0;

static char *database_name;

static uint32 wait_event_main;
static uint32 wait_event_pace;

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
		/* run_cycle() flushes WAL; what a crash undoes is done again */
		{"synchronous_commit", "off"},
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"}
	};

	for (int i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i].name, settings[i].value,
						PGC_SUSET, PGC_S_OVERRIDE);

	/* Citus has one: partitions of a shard are emptied, too */
	if (GetConfigOption("citus.enable_manual_changes_to_shards", true, false) != NULL)
		SetConfigOption("citus.enable_manual_changes_to_shards", "on", PGC_SUSET, PGC_S_OVERRIDE);

	/* 17 has one more */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
}

static void
check_reload(void)
{
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/*
 * Waits for the latch.
 */
static void
sleep_until(TimestampTz until, uint32 wait_event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until),
					 wait_event);
	ResetLatch(MyLatch);

	/* SIGTERM is an error only while something is executed */
	if (ProcDiePending)
		proc_exit(0);
	CHECK_FOR_INTERRUPTS();
	check_reload();
}

/*
 * Naps as long as what the cycle has spent so far is worth.  Returns whether
 * it has.
 */
static bool
nap(int64 total)
{
	int64		length = ttl_budget_nap(granted, total - paid);
	TimestampTz started = GetCurrentTimestamp();

	if (length == 0)
		return false;
	while (GetCurrentTimestamp() < started + length && ttl_guc_reaper)
		sleep_until(started + length, wait_event_pace);
	paid = total;
	napped += GetCurrentTimestamp() - started;
	return true;
}

/*
 * Between the transactions of a run, see reap_rel.h.
 */
static bool
pace(const TtlReapRun *run, bool *has_napped)
{
	*has_napped = nap(spent + run->cost);
	check_reload();
	return ttl_guc_reaper;
}

/*
 * Error context callback of a run
 */
static void
add_context(void *arg)
{
	errcontext("deletion of expired rows of container \"%s\" in database \"%s\"",
			   (const char *) arg, database_name);
}

/*
 * Cancellation is accepted in execute_run() alone.  HOLD_CANCEL_INTERRUPTS() would not do,
 * since an error that is caught resets the counter.
 */
static void
accept_cancellation(bool accept)
{
	QueryCancelHoldoffCount = accept ? 0 : 1;
}

/*
 * Executes a run.  Returns false if it has failed.
 */
static bool
execute_run(TtlMemory *memory, TtlScheduled *container, TtlReapRun *run)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = add_context,
		.arg = container->name
	};
	volatile bool done = false;

	SetCurrentStatementStartTimestamp();

	/* a cancellation from before is not meant for this run */
	QueryCancelPending = false;
	PG_TRY();
	{
		accept_cancellation(true);
		StartTransactionCommand();
		MemoryContextSwitchTo(PortalContext);	/* outlives transactions */
		error_context_stack = &callback;
		ttl_reap_rel_run(memory, container->container, run);
		CommitTransactionCommand();
		error_context_stack = callback.previous;
		accept_cancellation(false);
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		accept_cancellation(false);
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		EmitErrorReport();
		HOLD_INTERRUPTS();
		AbortCurrentTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		{
			run->end = TTL_REAP_MORE;
			done = true;
		}
		else
			ttl_counters_set_error(container->container, error->message);
		FreeErrorData(error);
	}
	PG_END_TRY();

	MemoryContextSwitchTo(context);
	MemoryContextReset(PortalContext);
	return done;
}

/*
 * Gives a container a run.
 */
static void
run_container(TtlMemory *memory, TtlScheduled *container, int64 max_cost)
{
	TimestampTz started = GetCurrentTimestamp();
	int64		napped_before = napped;
	TimestampTz now;
	TtlReapRun	run;

	pgstat_report_activity(STATE_RUNNING,
						   psprintf("deleting expired rows of %s", container->name));

	memset(&run, 0, sizeof(run));
	run.max_cost = Min(max_cost, container->cycle_cost_limit - container->cycle_cost);
	run.max_rows = PG_INT64_MAX;
	run.max_batch_cost = ttl_budget_batch(granted);
	run.pace = pace;
	run.until = started + RUN_TIME;
	run.longest_wait = ttl_schedule_longest_wait(container);
	run.blocked = container->blocked;
	run.changed = container->changed;
	container->changed = false;
	container->has_work = false;

	if (execute_run(memory, container, &run))
		container->failed_wait = 0;
	else
		container->failed_wait = Min(Max(container->failed_wait * 2, FAILED_MIN_WAIT),
									 FAILED_MAX_WAIT);

	/* advisory locks are all that triggers can leave to those of the next owner */
	LockReleaseAll(USER_LOCKMETHOD, true);
	now = GetCurrentTimestamp();
	spent += run.cost;
	container->cycle_cost += run.cost;
	container->cycle_rows += run.rows;
	container->cycle_time += now - started;
	ttl_schedule_add_run(container, run.ntables, now - started - (napped - napped_before));
	/* among containers whose tables are paused, the one paused longest comes first */
	if (run.end != TTL_REAP_LATER || run.cost > 0)
		container->last_run = now;
	container->due = now + container->failed_wait;
	if (container->failed_wait > 0)
		return;

	container->blocked = run.blocked;
	if (run.end != TTL_REAP_MORE)
	{
		container->behind_since = 0;
		ttl_schedule_set_due(container, run.due, run.end == TTL_REAP_DONE && run.is_idle);
	}
	else if (container->cycle_cost >= container->cycle_cost_limit)
		container->is_limited = true;
	else
		container->has_work = true;
}

/*
 * At the end of a cycle: logs a warning if the container has had work left at the
 * end of all cycles for ttl.lag_warning.
 */
static void
warn_behind(TtlScheduled *container, TimestampTz cycle_start, TtlStop stop)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		patience = ttl_guc_lag_warning * USECS_PER_SEC;

	if (container->behind_since == 0)
		container->behind_since = cycle_start;
	if (patience == 0 || now - container->behind_since < patience ||
		now - container->warned_at < patience)
		return;

	container->warned_at = now;
	ereport(WARNING,
			(errmsg("deletion of expired rows of container \"%s\" in database \"%s\" has been behind for %lld seconds",
					container->name, database_name,
					(long long) ((now - container->behind_since) / USECS_PER_SEC)),
			 container->is_limited ?
			 errhint("Consider increasing the container's cycle_cost_limit by ttl.alter_container().") :
			 stop == TTL_STOP_REPLICA_LAG ?
			 errdetail("A replica is further behind than \"%s\" allows.",
					   "ttl.replica_lag_limit") :
			 stop == TTL_STOP_TIME ?
			 errdetail("Deletion takes the time of whole cycles, and leaves some of their budget.") :
			 ttl_guc_throughput > 0 ?
			 errhint("Consider increasing \"%s\", \"%s\" or \"%s\".",
					 "ttl.throughput", "ttl.cycle_cost_floor",
					 "ttl.cycle_cost_limit") :
			 errhint("Consider increasing \"%s\".", "ttl.cycle_cost_limit")));
}

/*
 * At the end of a cycle: logs what it has done to a container, by ttl.log_min_duration.  A
 * visit that finds nothing to do is not logged.
 */
static void
log_work(const TtlScheduled *container)
{
	int64		ms = container->cycle_time / 1000;

	if (ttl_guc_log_min_duration < 0 || ms < ttl_guc_log_min_duration ||
		(ms == 0 && container->cycle_rows == 0))
		return;

	ereport(LOG,
			(errmsg("deletion of expired rows of container \"%s\" in database \"%s\": %lld rows deleted, %lld rows blocked, cost %lld, %lld ms",
					container->name, database_name,
					(long long) container->cycle_rows, (long long) container->blocked,
					(long long) container->cycle_cost, (long long) ms)));
}

/*
 * Gives each container of an owner a run, or each that is left of an earlier round, until the
 * owner's share is spent or RUN_TIME is over.
 */
static void
run_owner(TtlMemory *memory, TtlOwner *owner, int64 share, TimestampTz until)
{
	int64		max_spent = spent + share;

	(void) nap(spent);
	until = Min(until, GetCurrentTimestamp() + RUN_TIME);
	for (int left = list_length(owner->due) - owner->ndone;
		 left > 0 && spent < max_spent && ttl_guc_reaper; left--)
	{
		TtlScheduled *container;

		(void) nap(spent);
		if (GetCurrentTimestamp() >= until)
			break;
		container = (TtlScheduled *) list_nth(owner->due, owner->ndone++);
		run_container(memory, container,
					  Min(Max((max_spent - spent) / left, LEAST_SHARE), granted - spent));
		if (container->has_work)
			owner->due = lappend(owner->due, container);

		CHECK_FOR_INTERRUPTS();
		check_reload();
	}
}

/*
 * Runs a cycle; returns when there is work next.
 */
static TimestampTz
run_cycle(TtlMemory *memory)
{
	TtlDatabaseCounters counters;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz until = started +
		CYCLE_NAPTIMES * Max(ttl_guc_naptime * INT64CONST(1000), RUN_TIME);
	TtlStop		stop;
	List	   *owners = ttl_schedule_due();
	List	   *containers = NIL;
	int			round = 0;		/* owners left in the present round */
	bool		is_limited = false;
	ListCell   *lc;

	foreach(lc, owners)
		containers = list_concat(containers, ((TtlOwner *) lfirst(lc))->due);
	foreach(lc, containers)
	{
		TtlScheduled *container = (TtlScheduled *) lfirst(lc);

		container->cycle_cost = 0;
		container->cycle_rows = 0;
		container->cycle_time = 0;
		container->has_work = true;
		container->is_limited = false;
	}

	ttl_counters_get_database(MyDatabaseId, &counters);
	granted = ttl_budget_grant(&counters, started, &stop);
	spent = 0;
	paid = ttl_budget_advance(granted);
	counters.state = TTL_REAPER_WORKING;
	counters.cycles++;
	counters.cost_granted += granted;
	counters.last_cycle = started;
	counters.foreground_seen = counters.foreground_cost;
	ttl_counters_set_database(&counters);

	/* owners with more work are queued again for the next round */
	while (owners != NIL && spent < granted && ttl_guc_reaper)
	{
		TtlOwner   *owner = (TtlOwner *) linitial(owners);

		if (GetCurrentTimestamp() >= until)
		{
			stop = TTL_STOP_TIME;
			break;
		}
		if (round == 0)
			round = list_length(owners);
		run_owner(memory, owner, Max((granted - spent) / round, 1), until);
		round--;
		owners = list_delete_first(owners);
		if (owner->ndone < list_length(owner->due))
			owners = lappend(owners, owner);
	}

	/* replicas and logical decoding need not wait for the WAL writer */
	if (spent > 0)
		XLogFlush(XactLastCommitEnd);

	foreach(lc, containers)
	{
		TtlScheduled *container = (TtlScheduled *) lfirst(lc);

		log_work(container);
		is_limited = is_limited || container->is_limited;
		if (container->is_limited || container->has_work)
			warn_behind(container, started, stop);
	}

	if (owners != NIL)
		counters.stopped_by = stop;
	else if (is_limited)
		counters.stopped_by = TTL_STOP_COST_LIMIT;
	else
		counters.stopped_by = ttl_schedule_any_blocked() ? TTL_STOP_BLOCKED : TTL_STOP_DONE;
	is_limited = is_limited || owners != NIL;
	counters.state = is_limited ? TTL_REAPER_WAITING : TTL_REAPER_IDLE;
	counters.cost_spent += spent;
	counters.debt = Max(spent - granted, 0);
	ttl_counters_set_database(&counters);

	/* nap() may have consumed a wakeup by a request */
	SetLatch(MyLatch);

	return is_limited ? started : ttl_schedule_next();
}

/*
 * Logs a reminder once a day of containers with reaping off, such as a restore leaves
 * behind.  Returns when to do it again, DT_NOEND if there are none.
 */
static TimestampTz
remind(int unreaped)
{
	TtlDatabaseCounters counters;

	if (unreaped == 0)
		return DT_NOEND;
	ttl_counters_open_database();
	ttl_counters_get_database(MyDatabaseId, &counters);

	/* or the clock has been set back since */
	if (counters.reminded_at + USECS_PER_DAY <= GetCurrentTimestamp() ||
		counters.reminded_at > GetCurrentTimestamp())
	{
		counters.reminded_at = GetCurrentTimestamp();
		ttl_counters_set_database(&counters);
		ereport(WARNING,
				(errmsg_plural("%d container in database \"%s\" has reaping off",
							   "%d containers in database \"%s\" have reaping off",
							   unreaped, unreaped, database_name),
				 errdetail("Expired rows are hidden, and none is deleted. Containers are restored so."),
				 errhint("Use ttl.alter_container(..., reaping => true) to have them deleted.")));
	}
	return counters.reminded_at + USECS_PER_DAY;
}

/*
 * Reads the list of containers.  Returns false if the worker has to exit, with the arguments
 * of ttl_shmem_worker_leave(), else when to call this again in *next.
 */
static bool
has_work(TtlMemory *memory, TimestampTz *next, TtlReaperState *state,
		 TimestampTz *start_at)
{
	bool		any;
	int			unreaped;

	*state = TTL_REAPER_WAITING;
	*start_at = 0;
	if (!ttl_guc_reaper)
		return false;

	any = ttl_schedule_refresh(memory, next, &unreaped);
	*start_at = remind(unreaped);
	if (any)
	{
		ttl_counters_open_database();
		return !ttl_hold_lasts(state, start_at);
	}
	*state = TTL_REAPER_STOPPED;
	ttl_reap_rel_forget_database(MyDatabaseId);
	return false;
}

static volatile sig_atomic_t is_terminated = false;

/* Signal handler */
static void
terminate(SIGNAL_ARGS)
{
	is_terminated = true;
	die(TTL_SIGNAL_ARGUMENTS);
}

/* If a batch is to blame, the next worker need not wait as it does after a failure. */
static void
at_exit(int code, Datum arg)
{
	LWLockReleaseAll();			/* after an error */
	if (ttl_reap_rel_handle_exit(is_terminated))
		(void) ttl_shmem_worker_leave(TTL_REAPER_WAITING, GetCurrentTimestamp());
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
	TimestampTz rested_at = 0;	/* ttl.naptime after the start of the last cycle */
	TtlDatabaseCounters counters;
	TimestampTz cycle_at = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, terminate);
	BackgroundWorkerUnblockSignals();

	/* a SIGHUP that came before the handler was set has been discarded */
	ConfigReloadPending = true;

	if (!ttl_shmem_worker_attach(dboid))
		proc_exit(0);

	ttl_cost_exempt();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	accept_cancellation(false);
	resolve_settings();
	check_reload();
	wait_event_main = TtlWaitEventNew("TtlReaperMain");
	wait_event_pace = TtlWaitEventNew("TtlReaperPace");

	/* SPI's memory outlives the transactions of a run, in here */
	PortalContext = AllocSetContextCreate(TopMemoryContext, "ttl reaper run",
										  ALLOCSET_DEFAULT_SIZES);
	context = AllocSetContextCreate(TopMemoryContext, "ttl reaper",
									ALLOCSET_DEFAULT_SIZES);
	memory = ttl_reap_rel_memory_create(TopMemoryContext, mode);
	ttl_reap_begin();

	/* a database with a worker in it cannot be renamed */
	StartTransactionCommand();
	database_name = MemoryContextStrdup(TopMemoryContext, get_database_name(MyDatabaseId));
	CommitTransactionCommand();

	ttl_schedule_init(memory);
	before_shmem_exit(at_exit, (Datum) 0);

	/* another worker may have just run one, if the clock has not been set back since */
	if (ttl_counters_get_database(MyDatabaseId, &counters) && counters.last_cycle <= GetCurrentTimestamp())
		rested_at = counters.last_cycle + ttl_guc_naptime * INT64CONST(1000);

	for (;;)
	{
		bool		is_requested = ttl_shmem_worker_take_request();

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);

		if (is_requested || refresh_at <= GetCurrentTimestamp() || !ttl_guc_reaper)
		{
			TtlReaperState state;
			TimestampTz start_at;

			cycle_at = rested_at;
			if (!has_work(memory, &refresh_at, &state, &start_at))
			{
				if (ttl_shmem_worker_leave(state, start_at))
					break;
				continue;
			}
		}

		if (cycle_at <= GetCurrentTimestamp())
		{
			TimestampTz started = GetCurrentTimestamp();
			TimestampTz next;

			MemoryContextSwitchTo(context);
			next = run_cycle(memory);
			ttl_schedule_limit_caches();
			pgstat_report_stat(false);
			rested_at = started + ttl_guc_naptime * INT64CONST(1000);
			cycle_at = Max(next, rested_at);
		}

		if (ttl_shmem_worker_is_contended() &&
			ttl_shmem_worker_leave(cycle_at > rested_at ? TTL_REAPER_IDLE : TTL_REAPER_WAITING,
								   cycle_at))
			break;

		pgstat_report_activity(STATE_IDLE, NULL);
		sleep_until(Min(cycle_at, refresh_at), wait_event_main);
	}

	proc_exit(0);
}
