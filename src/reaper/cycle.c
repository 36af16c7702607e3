/*-------------------------------------------------------------------------
 *
 * cycle.c
 *	  A cycle: the containers that are due take turns.
 *
 * The containers that are due (schedule.c) take turns (turn.c), each with an equal share of
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
#include "compat.h"
#include "counters.h"
#include "guc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "reaper/reaper_internal.h"
#include "reaper/cycle.h"
#include "reaper/schedule.h"
#include "reaper/turn.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

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

void
ttl_cycle_check_reload(void)
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
			ttl_cycle_check_reload();
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
pace(const TtlTurn *turn, bool *napped)
{
	*napped = nap(spent + turn->cost);
	ttl_cycle_check_reload();
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
try_turn(TtlMemory *memory, Oid container, TtlTurn *turn)
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
		ttl_turn_run(memory, container, turn);
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
	TtlTurn		turn;
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
	if (turn.end != TTL_TURN_AWAY || turn.cost > 0)
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
	all_leaves = ttl_schedule_count_leaves(container, turn.nleaves);

	*finished = turn.end != TTL_TURN_SPENT;
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
			ttl_cycle_check_reload();
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

TimestampTz
ttl_cycle_run(TtlMemory *memory)
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

bool
ttl_cycle_was_woken(void)
{
	bool		result = woken;

	woken = false;
	return result;
}

void
ttl_cycle_init(void)
{
	wait_event_pace = TtlWaitEventNew("TtlReaperPace");
}
