/*-------------------------------------------------------------------------
 *
 * cycle.c
 *	  A cycle of a worker: gives containers and their tables turns until the budget is spent.
 *
 * In a cycle the containers with tables that are due (schedule.c) get turns in rounds, until the
 * cycle's budget (budget.c) is spent or none is due.  In a round each owner has an
 * equal share of what is left of the budget, and RUN_TIME, but for his last batch; each of his containers
 * has an equal share of that, and each of the container's tables that are due one of its container's.
 * What one leaves goes to those after it.
 *
 * A container may have more tables than its share pays for.  Where work is left in some of
 * them, to look at the others costs a LOOKING_SHARE of it at most; a table that is
 * found to have more work than its share pays for gets what the others have left.
 *
 * Triggers that sleep cost time and no budget, so a cycle also ends after CYCLE_NAPTIMES.  At its end
 * log_work() writes the log line of each container (ttl.log_min_duration).
 *
 * A turn that fails (an error that deletion does not handle, such as a corrupt index) is logged, and
 * the table is not due again for FAILED_WAIT; the next worker leaves its container alone as long.  Other errors end the
 * process, and the launcher starts another.  pg_cancel_backend() ends a turn, and is ignored outside of one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "counters.h"
#include "executor/spi.h"
#include "guc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "reaper/cycle.h"
#include "reaper/findings.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
#include "reaper/schedule.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* All in microseconds */
#define RUN_TIME			(1 * USECS_PER_SEC) /* longest turn of an owner */
#define CYCLE_NAPTIMES		2	/* longest cycle, except its last turn */
#define FAILED_WAIT			(60 * USECS_PER_SEC)	/* after an error */

/* Least budget of a container, as far as there is any */
#define LEAST_SHARE			200

/* Of a container's share, so small a part is for idle tables if others have work */
#define LOOKING_SHARE		4

/*
 * PostgreSQL keeps what it has read of each relation, some 20 kB for a container and its indexes, as
 * long as the process lives.  When that has come to so many times maintenance_work_mem it is
 * discarded, but not again before so many tables have been visited.
 */
#define CACHES_SHARE		8
#define CACHES_TABLES		500

static int	tables_visited = 0;

static const char *database_name;

/* What the cycle may spend */
static int64 granted = 0;

/* Discards the caches of catalogs, outside of a transaction, if they have become large. */
static void
limit_caches(void)
{
	if (tables_visited < CACHES_TABLES ||
		MemoryContextMemAllocated(CacheMemoryContext, true) / 1024 < (Size) CACHES_SHARE * maintenance_work_mem)
		return;
	tables_visited = 0;
	/* this takes the invalidations that other sessions have sent */
	StartTransactionCommand();
	InvalidateSystemCaches();
	CommitTransactionCommand();
}

/* Called between the transactions of a turn, without locks.  Returns false if it has to end. */
static bool
pace(const TtlTurn *turn)
{
	ttl_budget_nap(turn->cost);
	ttl_nap_reload();
	return ttl_guc_reaper;
}

/*
 * Error context callback of a turn
 */
static void
add_context(void *arg)
{
	errcontext("deletion of expired rows of container \"%s\" in database \"%s\"",
			   (const char *) arg, database_name);
}

/*
 * Cancellation is accepted in execute_turn() alone, where lock_timeout needs it.
 * HOLD_CANCEL_INTERRUPTS() would not do, since an error that is caught resets the counter.
 */
static void
accept_cancellation(bool accept)
{
	QueryCancelHoldoffCount = accept ? 0 : 1;
}

/* Has this worker ignore cancellation but in turns.  Returns the name of its database. */
const char *
ttl_cycle_init(void)
{
	accept_cancellation(false);

	/* a database with a worker in it cannot be renamed */
	StartTransactionCommand();
	database_name = MemoryContextStrdup(TopMemoryContext, get_database_name(MyDatabaseId));
	CommitTransactionCommand();
	return database_name;
}

/* Executes the turn of a table.  Returns false if it has failed. */
static bool
execute_turn(TtlMemory *memory, TtlScheduledTable *table, TtlTurn *turn)
{
	MemoryContext context = CurrentMemoryContext;
	TtlScheduled *container = table->container;
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = add_context,
		.arg = container->name
	};
	volatile bool done = false;

	SetCurrentStatementStartTimestamp();

	/* a cancellation from before is not meant for this turn */
	QueryCancelPending = false;
	PG_TRY();
	{
		accept_cancellation(true);
		StartTransactionCommand();
		MemoryContextSwitchTo(PortalContext);	/* outlives transactions */
		error_context_stack = &callback;
		ttl_reap_rel_connect(memory);
		ttl_reap_rel_run(memory, container->container, &table->reap_rel, turn);
		SPI_finish();
		CommitTransactionCommand();
		error_context_stack = callback.previous;
		accept_cancellation(false);
		done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		/* as PostgresMain() does after an error */
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
			/* in the next round */
			turn->end = TTL_REAP_LATER;
			turn->again_at = GetCurrentTimestamp();
			done = true;
		}
		else
		{
			table->reap_rel.is_failing = true;
			(void) ttl_counters_set_error(container->container, error->message);
			ttl_counters_set_pause(container->container, GetCurrentTimestamp() + FAILED_WAIT);
		}
		FreeErrorData(error);
	}
	PG_END_TRY();

	MemoryContextSwitchTo(context);
	MemoryContextReset(PortalContext);
	return done;
}

/* Gives a table a turn, until so much of the budget has been spent. */
static void
run_table(TtlMemory *memory, TtlScheduledTable *table, int64 max_spent, TimestampTz until)
{
	TtlScheduled *container = table->container;
	TimestampTz started = GetCurrentTimestamp();
	int64		napped_before = ttl_budget_napped();
	TimestampTz now;
	TtlTurn		turn = {
		.max_cost = max_spent - ttl_budget_spent(),
		.max_rows = PG_INT64_MAX,
		.max_batch_cost = ttl_budget_batch(),
		.pace = pace,
		.until = until
	};
	bool		is_done = execute_turn(memory, table, &turn);

	/*
	 * advisory locks are all that triggers can leave to those of the next
	 * owner
	 */
	LockReleaseAll(USER_LOCKMETHOD, true);
	now = GetCurrentTimestamp();
	ttl_budget_spend(turn.cost);
	container->cycle_cost += turn.cost;
	container->cycle_rows += turn.rows;
	container->cycle_time += now - started;
	ttl_schedule_add_time(container, now - started - (ttl_budget_napped() - napped_before));
	tables_visited++;

	table->last_turn = started;
	if (!is_done)
		table->due = now + FAILED_WAIT;
	else if (turn.end == TTL_REAP_MORE)
		table->due = DT_NOBEGIN;
	else if (turn.end == TTL_REAP_LATER)
		table->due = turn.again_at;
	else
		table->due = Min(turn.again_at, now + ttl_schedule_longest_wait(container));
}

/* The next of n may spend an equal share of what is left up to max_spent; returns how much is spent then. */
static int64
share(int64 max_spent, int n, int64 least)
{
	int64		spent = ttl_budget_spent();

	/*
	 * the least share is for the first batch, and may go beyond max_spent,
	 * but not beyond the budget
	 */
	return spent >= max_spent ? spent : Min(spent + Max((max_spent - spent) / n, least), granted);
}

/* True if neither the budget nor the time is used up, and ttl.reaper is on. */
static bool
may_go_on(int64 max_spent, TimestampTz until)
{
	return ttl_budget_spent() < max_spent && GetCurrentTimestamp() < until && ttl_guc_reaper;
}

/* Gives those of a container's tables that are due their turns. */
static void
run_container(TtlMemory *memory, TtlScheduled *container, int64 max_spent, TimestampTz until)
{
	TimestampTz started = GetCurrentTimestamp();
	List	   *due = ttl_schedule_list_due_tables(container);
	int			left = list_length(due);
	int64		max_looking = share(max_spent, LOOKING_SHARE, 0);

	/* the tables with work are the last */
	bool		has_work = left > 0 && ((TtlScheduledTable *) llast(due))->due == DT_NOBEGIN;
	bool		is_behind;
	ListCell   *lc;

	pgstat_report_activity(STATE_RUNNING,
						   psprintf("deleting expired rows of %s", container->name));

	/* the list grows */
	foreach(lc, due)
	{
		TtlScheduledTable *table = (TtlScheduledTable *) lfirst(lc);
		bool		is_idle = table->due != DT_NOBEGIN;

		ttl_budget_nap(0);
		if (may_go_on(is_idle && has_work ? max_looking : max_spent, until))
			run_table(memory, table, share(max_spent, left, 1), until);
		left--;
		if (is_idle && table->due == DT_NOBEGIN)
		{
			has_work = true;
			due = lappend(due, table);
			left++;
		}
		CHECK_FOR_INTERRUPTS();
	}
	list_free(due);

	/* a table that was due then has got no turn, or not all of its work done */
	is_behind = ttl_schedule_first_due(container) <= started;
	container->blocked = ttl_findings_report(&memory->mode, container->container, container->policy.default_ttl,
											 container->tables, is_behind);
	if (!is_behind)
		container->behind_since = 0;
}

/*
 * At the end of a cycle: logs a warning if the container has had work left at the
 * end of all cycles for ttl.lag_warning.
 */
static void
warn_behind(TtlScheduled *container, TimestampTz cycle_start)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		patience = ttl_guc_lag_warning * USECS_PER_SEC;

	if (container->behind_since == 0)
		container->behind_since = cycle_start;
	/* and again as often, as long as it lasts */
	if (patience == 0 || now - container->behind_since < patience ||
		now - container->warned_at < patience)
		return;

	container->warned_at = now;
	ereport(WARNING,
			(errmsg("deletion of expired rows of container \"%s\" in database \"%s\" has been behind for %lld seconds",
					container->name, database_name,
					(long long) ((now - container->behind_since) / USECS_PER_SEC)),
			 errhint("See \"stopped_by\" in ttl.stat_reaper for the reason.")));
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

/* Gives each container with tables that are due a turn. */
static void
run_round(TtlMemory *memory, List *due, int nowners, TimestampTz until)
{
	TtlOwner   *owner = NULL;
	int64		max_spent = 0;
	TimestampTz owner_until = 0;
	ListCell   *lc;

	foreach(lc, due)
	{
		TtlScheduled *container = (TtlScheduled *) lfirst(lc);

		ttl_budget_nap(0);
		if (!may_go_on(granted, until))
			break;
		/* the list has each owner's containers together */
		if (container->owner != owner)
		{
			owner = container->owner;
			max_spent = share(granted, nowners--, 1);
			owner_until = Min(until, GetCurrentTimestamp() + RUN_TIME);
		}
		if (may_go_on(max_spent, owner_until))
			run_container(memory, container, share(max_spent, owner->ndue, LEAST_SHARE), owner_until);
		owner->ndue--;

		CHECK_FOR_INTERRUPTS();
		ttl_nap_reload();
	}
}

/* Runs a cycle; returns when there is work next. */
TimestampTz
ttl_cycle_run(TtlMemory *memory)
{
	TtlDatabaseCounters counters;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz until = started +
	CYCLE_NAPTIMES * Max(ttl_guc_naptime * INT64CONST(1000), RUN_TIME);
	TtlStop		stop;
	List	   *due;
	int			nowners;
	TimestampTz next;
	ListCell   *lc;

	/* there are some: the worker has opened them before its first cycle */
	ttl_counters_get_database(MyDatabaseId, &counters);
	granted = ttl_budget_grant(&counters, started, &stop);
	counters.state = TTL_REAPER_WORKING;
	counters.cycles++;
	counters.cost_granted += granted;
	counters.last_cycle = started;
	counters.foreground_seen = counters.foreground_cost;
	ttl_counters_set_database(&counters);

	ttl_schedule_halve_times();
	while ((due = ttl_schedule_list_due(&nowners, &next)) != NIL && ttl_budget_spent() < granted && ttl_guc_reaper)
	{
		if (GetCurrentTimestamp() >= until)
		{
			stop = TTL_STOP_TIME;
			break;
		}
		run_round(memory, due, nowners, until);
		list_free(due);
	}

	/* replicas and logical decoding need not wait for the WAL writer */
	if (ttl_budget_spent() > 0)
		XLogFlush(XactLastCommitEnd);

	foreach(lc, due)
		warn_behind((TtlScheduled *) lfirst(lc), started);
	foreach(lc, ttl_schedule_containers())
	{
		TtlScheduled *container = (TtlScheduled *) lfirst(lc);

		log_work(container);
		container->cycle_cost = container->cycle_rows = container->cycle_time = 0;
	}

	counters.stopped_by = due != NIL ? stop : TTL_STOP_DONE;
	counters.state = due != NIL ? TTL_REAPER_WAITING : TTL_REAPER_IDLE;
	counters.cost_spent += ttl_budget_spent();
	counters.debt = Max(ttl_budget_spent() - granted, 0);
	ttl_counters_set_database(&counters);

	limit_caches();

	/* a nap may have consumed a wakeup by a request */
	SetLatch(MyLatch);

	/* with work left, as soon as ttl.naptime allows */
	return due != NIL ? started : next;
}
