/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The process that deletes expired rows of one database.
 *
 * A background worker "ttl reaper", started by the launcher.  Every
 * ttl.naptime at most it begins a cycle.
 *
 * The worker leaves when there is no container to care for, when ttl.reaper
 * is off, while deletion is held or paused (hold.c), and after a cycle when other
 * databases wait for its slot.  An error that a cycle does not handle ends the
 * process, and the launcher starts another.
 *
 * ---
 *
 * The containers that are due (schedule.c) take turns (reap_rel.c), each with an equal share of
 * what is left of the cycle's budget (budget.c), and go round until the budget is spent
 * or nothing is left.  Between its transactions the worker naps, holding nothing, so
 * that the budget is spent evenly.
 *
 * Triggers that sleep cost time and no budget.  So a cycle ends after CYCLE_NAPTIMES,
 * too: what has become due meanwhile, new policies and other databases wait for its end.
 *
 * An error that a turn does not handle, such as a corrupt index, ends it, and the
 * container waits for a long time.  pg_cancel_backend() ends a batch, or at most a
 * cycle.
 *
 * Owners: deletion runs as the table's owner, and so do its triggers.  Before
 * a container of another owner has its turn, the session is wiped clean of
 * whatever triggers may leave behind for the next owner to stumble over
 * (session.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "citus/citus.h"
#include "compat.h"
#include "counters.h"
#include "guc.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
#include "reaper/schedule.h"

/* All in microseconds. */
#define PACE_PER_LEAF		INT64CONST(500) /* look at a busy one */
#define TURN_TIME			(1 * USECS_PER_SEC) /* longest turn */
#define CYCLE_NAPTIMES		2	/* longest cycle, but for its last turn */
#define FAILED_MIN_WAIT		(60 * USECS_PER_SEC)	/* after an error */
#define FAILED_MAX_WAIT		(3600 * USECS_PER_SEC)

/* Cost that a turn gets at least, as far as there is any. */
#define LEAST_SHARE			200

/* The cycle's budget, and what has been spent of it before this turn. */
static int64 granted = 0;
static int64 spent = 0;

/* So much of it is paid for by naps, or needs not be. */
static int64 paid = 0;

/* Has the latch been set while napping?  Then somebody wants something. */
static bool woken = false;

static uint32 wait_event_pace;

/*
 * Gives the session to the container's owner, and tells what comes.
 */
static void
before_turn(Oid container)
{
	MemoryContext context = CurrentMemoryContext;
	HeapTuple	tuple;
	Form_pg_class form;
	Oid			owner = InvalidOid;
	char		activity[2 * NAMEDATALEN + 64];

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(container));
	if (HeapTupleIsValid(tuple))
	{
		form = (Form_pg_class) GETSTRUCT(tuple);
		owner = form->relowner;
		snprintf(activity, sizeof(activity), "deleting expired rows of %s.%s",
				 get_namespace_name(form->relnamespace),
				 NameStr(form->relname));
		pgstat_report_activity(STATE_RUNNING, activity);
		ReleaseSysCache(tuple);
	}
	CommitTransactionCommand();

	ttl_session_give_to(owner);

	/* the end of a transaction leaves one that lasts as long as the process */
	MemoryContextSwitchTo(context);
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
 * Naps as long as what the cycle has spent so far is worth.  Returns whether
 * it has.
 */
static bool
nap(int64 total)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		length = ttl_budget_nap(granted, total - paid);
	TimestampTz until = now + length;

	if (length == 0)
		return false;

	while (now < until && ttl_guc_reaper)
	{
		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					  TimestampDifferenceMilliseconds(now, until),
					  wait_event_pace) & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			woken = true;
			if (ProcDiePending)
				proc_exit(0);
			CHECK_FOR_INTERRUPTS();
			check_reload();
		}
		now = GetCurrentTimestamp();
	}
	paid = total;
	return true;
}

/*
 * Between the transactions of a turn, see turn.h.
 */
static bool
pace(const TtlReapRun *turn, bool *napped)
{
	*napped = nap(spent + turn->cost);
	check_reload();
	return ttl_guc_reaper;
}

/*
 * Ends a transaction that has failed.
 */
static void
abort_transaction(void)
{
	HOLD_INTERRUPTS();
	AbortCurrentTransaction();
	FlushErrorState();
	RESUME_INTERRUPTS();
}

/*
 * Says whose rows an error is about; log lines of a worker have no other way to.
 */
static void
tell_container(void *arg)
{
	char	  **names = arg;

	errcontext("deletion of expired rows of container \"%s\" in database \"%s\"",
			   names[0], names[1]);
}

/*
 * Runs a turn in transactions of its own.  Returns whether there was no error;
 * cancellation goes on.
 */
static bool
try_turn(TtlMemory *memory, Oid container, TtlReapRun *turn)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool done = false;

	SetCurrentStatementStartTimestamp();
	PG_TRY();
	{
		ErrorContextCallback telling;
		char	   *names[2];

		StartTransactionCommand();
		MemoryContextSwitchTo(PortalContext);	/* outlives the transaction */
		names[0] = ttl_container_qualified_name(container);
		names[1] = get_database_name(MyDatabaseId);
		telling.previous = error_context_stack;
		telling.callback = tell_container;
		telling.arg = names;
		error_context_stack = &telling;
		ttl_reap_rel_run(memory, container, turn);
		CommitTransactionCommand();
		error_context_stack = telling.previous;
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		if (geterrcode() == ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		EmitErrorReport();
		abort_transaction();
		ttl_counters_set_error(container, error->message);
		FreeErrorData(error);
	}
	PG_END_TRY();

	MemoryContextSwitchTo(context);
	MemoryContextReset(PortalContext);
	return done;
}

/*
 * Gives the container a turn.  Returns what it has cost; *finished tells that
 * it needs no other in this cycle, *limited that it is kept from having one.
 */
static int64
run_turn(TtlMemory *memory, TtlScheduled *container, int64 max_cost,
		 bool *finished, bool *limited)
{
	Oid			oid = container->container;
	TtlReapRun		turn;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz now;
	bool		done;
	int			all_leaves;

	before_turn(oid);

	memset(&turn, 0, sizeof(turn));
	turn.max_cost = Min(max_cost,
						container->cycle_cost_limit - container->cycle_cost);
	turn.max_rows = PG_INT64_MAX;
	turn.max_batch_cost = ttl_budget_batch(granted);
	turn.pace = pace;
	turn.until = started + TURN_TIME;
	turn.blocked = container->blocked;
	turn.changed = container->changed;
	container->changed = false;

	done = try_turn(memory, oid, &turn);

	now = GetCurrentTimestamp();
	/* where stuck tables rest, the one that rests longest comes first */
	if (turn.end != TTL_REAP_LATER || turn.cost > 0)
		container->last_turn = now;
	container->cycle_cost += turn.cost;
	container->cycle_rows += turn.rows;
	container->cycle_time += now - started;
	if (!done)
	{
		container->failed_wait = Min(Max(container->failed_wait * 2, FAILED_MIN_WAIT),
									 FAILED_MAX_WAIT);
		container->due = now + container->failed_wait;
		*finished = true;
		return turn.cost;
	}
	container->failed_wait = 0;
	container->blocked = turn.blocked;
	all_leaves = ttl_schedule_count_leaves(container, turn.ntables);

	*finished = turn.end != TTL_REAP_MORE;
	if (!*finished && container->cycle_cost >= container->cycle_cost_limit)
		*finished = *limited = true;
	container->capped = *limited;
	if (*finished && !*limited)
	{
		TimestampTz earliest = now + all_leaves * PACE_PER_LEAF;
		int64		wait = container->default_ttl > 0 ?
		Min(container->default_ttl * USECS_PER_SEC, TTL_SCHEDULE_IDLE_WAIT) : TTL_SCHEDULE_IDLE_WAIT;
		TimestampTz latest = now + ttl_schedule_stretch(wait);

		container->due = Max(Min(turn.due, latest), earliest);
		container->behind_since = 0;
	}
	else
		container->due = now;
	return turn.cost;
}

/*
 * A container has work left at the end of a cycle.  If that has been so for
 * long, and always so, the log says so.
 */
static void
note_behind(TtlScheduled *container, TimestampTz cycle_start, TtlStop stop)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		patience = ttl_guc_lag_warning * USECS_PER_SEC;

	if (container->behind_since == 0)
		container->behind_since = cycle_start;
	if (patience == 0 || now - container->behind_since < patience ||
		now - container->warned_at < patience)
		return;

	container->warned_at = now;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (get_rel_name(container->container) != NULL)
		ereport(WARNING,
				(errmsg("deletion of expired rows of container \"%s\" in database \"%s\" has been behind for %lld seconds",
						ttl_container_qualified_name(container->container),
						get_database_name(MyDatabaseId),
						(long long) ((now - container->behind_since) / USECS_PER_SEC)),
				 container->capped ?
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
	CommitTransactionCommand();
}

/*
 * Logs what the cycle has done to a container, if it took long enough.  A look that finds
 * nothing is no work.
 */
static void
log_work(const TtlScheduled *container)
{
	int64		ms = container->cycle_time / 1000;

	if (ttl_guc_log_min_duration < 0 || ms < ttl_guc_log_min_duration ||
		(ms == 0 && container->cycle_rows == 0))
		return;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	if (get_rel_name(container->container) != NULL)
		ereport(LOG,
				(errmsg("deletion of expired rows of container \"%s\" in database \"%s\": %lld rows deleted, %lld rows blocked, cost %lld, %lld ms",
						ttl_container_qualified_name(container->container),
						get_database_name(MyDatabaseId),
						(long long) container->cycle_rows, (long long) container->blocked,
						(long long) container->cycle_cost, (long long) ms)));
	CommitTransactionCommand();
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
		CYCLE_NAPTIMES * Max(ttl_guc_naptime * INT64CONST(1000), TURN_TIME);
	TimestampTz next;
	TtlStop		stop;
	bool		any_limited = false;
	MemoryContext context = CurrentMemoryContext;
	List	   *all_due = ttl_schedule_due(&next);
	List	   *due = all_due;
	ListCell   *lc;

	foreach(lc, all_due)
	{
		TtlScheduled	   *container = (TtlScheduled *) lfirst(lc);

		container->cycle_cost = 0;
		container->cycle_rows = 0;
		container->cycle_time = 0;
		container->has_work = true;
		container->capped = false;
	}

	ttl_counters_get_own_database(&counters);
	granted = ttl_budget_grant(&counters, started, &stop);
	spent = 0;
	paid = ttl_budget_advance(granted);
	counters.state = TTL_REAPER_WORKING;
	counters.cycles++;
	counters.cost_granted += granted;
	counters.last_cycle = started;
	counters.foreground_seen = counters.foreground_cost;
	ttl_counters_set_own_database(&counters);

	while (due != NIL && spent < granted && stop != TTL_STOP_TIME && ttl_guc_reaper)
	{
		int			waiting = list_length(due);
		List	   *again = NIL;

		foreach(lc, due)
		{
			TtlScheduled	   *container = (TtlScheduled *) lfirst(lc);
			int64		left = granted - spent;
			bool		finished;
			bool		limited = false;

			if (left > 0)
				(void) nap(spent);
			if (left > 0 && GetCurrentTimestamp() >= until)
				stop = TTL_STOP_TIME;
			if (left <= 0 || stop == TTL_STOP_TIME || !ttl_guc_reaper)
				break;
			spent += run_turn(memory, container,
							  Min(Max(left / waiting, LEAST_SHARE), left),
							  &finished, &limited);
			any_limited = any_limited || limited;
			waiting--;
			container->has_work = !finished;
			if (!finished)
				again = lappend(again, container);

			CHECK_FOR_INTERRUPTS();
			check_reload();
		}
		for (; lc != NULL; lc = lnext(due, lc))
			again = lappend(again, lfirst(lc));
		due = again;
	}

	/* replicas, and those who decode it, needn't wait for the WAL writer */
	if (spent > 0)
		XLogFlush(XactLastCommitEnd);

	foreach(lc, all_due)
	{
		TtlScheduled	   *container = (TtlScheduled *) lfirst(lc);

		log_work(container);
		if (container->capped || container->has_work)
			note_behind(container, started, stop);
	}

	counters.state = due == NIL && !any_limited ? TTL_REAPER_IDLE :
		TTL_REAPER_WAITING;
	if (due != NIL)
		counters.stopped_by = stop;
	else if (any_limited)
		counters.stopped_by = TTL_STOP_COST_LIMIT;
	else
		counters.stopped_by = ttl_schedule_any_blocked() ? TTL_STOP_BLOCKED : TTL_STOP_DONE;
	counters.cost_spent += spent;
	counters.debt = Max(spent - granted, 0);
	ttl_counters_set_own_database(&counters);

	MemoryContextSwitchTo(context);
	if (due != NIL || any_limited)
		return started;
	(void) ttl_schedule_due(&next);
	return next;
}

static TimestampTz
cycle_run(TtlMemory *memory)
{
	MemoryContext context = CurrentMemoryContext;
	TimestampTz next;

	PG_TRY();
	{
		next = run_cycle(memory);
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_QUERY_CANCELED)
			PG_RE_THROW();

		MemoryContextSwitchTo(context);
		abort_transaction();
		MemoryContextSwitchTo(context);
		ttl_counters_set_state(MyDatabaseId, TTL_REAPER_WAITING);
		next = GetCurrentTimestamp();
	}
	PG_END_TRY();

	return next;
}

static bool
was_woken(void)
{
	bool		result = woken;

	woken = false;
	return result;
}

static void
cycle_init(void)
{
	wait_event_pace = TtlWaitEventNew("TtlReaperPace");
}

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
	if (was_woken())
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
	check_reload();
}

/* The next worker need not wait as it does after a failure. */
static void
at_exit(int code, Datum arg)
{
	if (ttl_batch_handle_exit())
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
	check_reload();
	wait_event_main = TtlWaitEventNew("TtlReaperMain");
	cycle_init();

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
			next = cycle_run(memory);
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
