/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The process that deletes expired rows of one database.
 *
 * A background worker "ttl reaper", started by the launcher.  Every
 * ttl.naptime at most it begins a cycle: the containers that are due take turns
 * (batch.c), each with an equal share of what is left of the cycle's budget
 * (budget.c), and go round until the budget is spent or nothing is left.
 * Between its transactions it naps, holding nothing, so that the budget is
 * spent evenly.
 *
 * A container is due when its earliest row expires, or after a wait (rows with
 * a short TTL may have come in meanwhile) that gets longer with the number of
 * tables, so that looking at idle ones never becomes a busy loop; and at once
 * when its definition or policy has changed: relcache invalidations mark its
 * entry in the table below, and whoever commits a policy change asks for
 * attention through shmem.c.
 *
 * The worker leaves when there is no container to care for, when ttl.reaper
 * is off, when the server was recovered to a point in time (recovery.c), and after a cycle when other databases wait for its slot.  An error
 * that batch.c does not handle, such as a corrupt index, ends the turn, and the
 * container waits for a long time; elsewhere it ends the process, and the
 * launcher starts another.
 * pg_cancel_backend() ends a batch, or at most a cycle.
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
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "container/container.h"
#include "counters.h"
#include "guc.h"
#include "reaper/turn.h"
#include "reaper/blocked.h"
#include "reaper/budget.h"
#include "reaper/process.h"
#include "reaper/recovery.h"
#include "reaper/session.h"
#include "reaper/shmem.h"

/* All in microseconds. */
#define REFRESH_WAIT		(10 * USECS_PER_SEC)	/* list of containers */
#define IDLE_WAIT			(10 * USECS_PER_SEC)	/* look at an idle one ... */
#define IDLE_WAIT_PER_LEAF	(5 * INT64CONST(1000))	/* ... or so, if many */
#define PACE_PER_LEAF		INT64CONST(500) /* look at a busy one */
#define TURN_TIME			(1 * USECS_PER_SEC) /* longest turn */
#define FORGET_WAIT			(600 * USECS_PER_SEC)
#define FAILED_MIN_WAIT		(60 * USECS_PER_SEC)	/* after an error */
#define FAILED_MAX_WAIT		(3600 * USECS_PER_SEC)

/* Cost that a turn gets at least, as far as there is any. */
#define LEAST_SHARE			200

/* A container with work, or that may have some. */
typedef struct Container
{
	Oid			container;		/* MUST BE FIRST */
	bool		listed;			/* at the last refresh */
	bool		changed;		/* by invalidation: due now */
	TimestampTz due;
	TimestampTz last_turn;
	int			leaves;
	int64		blocked;
	int64		cycle_cost;		/* in this cycle */
	int64		cycle_cost_limit;
	bool		capped;			/* by cycle_cost_limit, in this cycle */
	int64		failed_wait;	/* since the last turn failed; 0 = it didn't */
	TimestampTz behind_since;	/* has had more work than budget; 0 = not so */
	TimestampTz warned_at;
} Container;

static HTAB *containers = NULL;

/* The cycle's budget, and what has been spent of it before this turn. */
static int64 granted = 0;
static int64 spent = 0;

/* So much of it is paid for by naps, or needs not be. */
static int64 paid = 0;

/* Has the latch been set while napping?  Then somebody wants something. */
static bool woken = false;

static uint32 wait_event_main;
static uint32 wait_event_pace;

/* Number of tables of all containers, as of their last turns. */
static int	all_leaves = 0;

/*
 * Marks containers whose relcache entry is invalidated.
 */
static void
relation_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	Container  *container;

	if (containers == NULL)
		return;

	if (OidIsValid(relid))
	{
		container = (Container *) hash_search(containers, &relid, HASH_FIND,
											  NULL);
		if (container != NULL)
			container->changed = true;
		return;
	}

	hash_seq_init(&status, containers);
	while ((container = (Container *) hash_seq_search(&status)) != NULL)
		container->changed = true;
}

/*
 * Makes a container due that somebody has asked for by CALL, or all of them.
 */
static void
look_at(Oid wanted)
{
	Container  *container;

	if (wanted == TTL_EVERY_CONTAINER)
		relation_changed((Datum) 0, InvalidOid);
	else if (OidIsValid(wanted))
	{
		container = (Container *) hash_search(containers, &wanted, HASH_FIND,
											  NULL);
		if (container != NULL)
			container->changed = true;
	}
}

/*
 * Settings that the worker doesn't leave to postgresql.conf, the database or
 * the role.
 */
static void
settle_settings(void)
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

	/* 17 has one more */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * Brings the table of containers up to date.  Returns whether there are any.
 */
static bool
refresh_containers(TtlMemory *memory)
{
	static bool refreshed = false;

	HASH_SEQ_STATUS status;
	Container  *container;
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();

	hash_seq_init(&status, containers);
	while ((container = (Container *) hash_seq_search(&status)) != NULL)
		container->listed = false;

	if (ttl_container_objects() != NULL)
	{
		foreach(lc, ttl_container_list())
		{
			Oid			oid = lfirst_oid(lc);
			TtlPolicy	policy;
			bool		found;

			/* nothing locks it, so it may be about to lose a column */
			if (!ttl_container_read(oid, &policy))
				continue;
			/* or the clock has been set back since */
			if (policy.change.changed_at != 0 && policy.change.noticed_at > now)
				ttl_container_notice_change(oid);
			if (policy.default_ttl == TTL_OFF || !policy.reaping)
				continue;

			container = (Container *) hash_search(containers, &oid, HASH_ENTER,
												  &found);
			if (!found)
			{
				TtlContainerCounters counters;

				/* at first what was recalled goes on */
				container->changed = refreshed;
				container->due = 0;
				container->last_turn = 0;
				container->leaves = 1;
				container->blocked = 0;
				container->behind_since = 0;
				container->warned_at = 0;
				container->failed_wait = 0;
				if (ttl_counters_get_container(oid, &counters))
					container->blocked = counters.blocked_rows;
			}
			container->listed = true;
			container->cycle_cost_limit = policy.cycle_cost_limit > 0 ?
				policy.cycle_cost_limit : PG_INT64_MAX;
		}
	}

	all_leaves = 0;
	hash_seq_init(&status, containers);
	while ((container = (Container *) hash_seq_search(&status)) != NULL)
	{
		if (container->listed)
		{
			all_leaves += container->leaves;
			continue;
		}
		if (get_rel_relkind(container->container) == '\0')
			ttl_counters_forget_container(container->container);
		(void) hash_search(containers, &container->container, HASH_REMOVE,
						   NULL);
	}
	ttl_leaf_memory_trim(memory, now - FORGET_WAIT);
	refreshed = true;

	CommitTransactionCommand();
	return hash_get_num_entries(containers) > 0;
}

/*
 * Recalls what earlier workers have found, and forgets the statistics of tables
 * that have been dropped while no worker was here.
 */
static void
recall(TtlMemory *memory)
{
	ListCell   *lc;

	StartTransactionCommand();
	ttl_leaf_memory_recall(memory);
	foreach(lc, ttl_counters_containers())
	{
		if (get_rel_relkind(lfirst_oid(lc)) == '\0')
			ttl_counters_forget_container(lfirst_oid(lc));
	}
	CommitTransactionCommand();
}

/*
 * Is deletion held?  That doesn't begin while the server runs.  If it is, the log
 * says so, each time that a worker has come in vain.
 */
static bool
is_held(void)
{
	static bool known_not_held = false;
	TtlRecovery recovery;

	if (known_not_held)
		return false;
	StartTransactionCommand();
	if (ttl_recovery_holds(&recovery))
		ereport(LOG,
				(errmsg("expired rows in database \"%s\" are not deleted because the server was recovered to a point in time",
						get_database_name(MyDatabaseId)),
				 errdetail("Recovery ended: %s.", recovery.target),
				 errhint("Expired rows are hidden, as ever. Have a superuser call ttl.resume(), in any database, to have them deleted.")));
	else
		known_not_held = true;
	CommitTransactionCommand();
	return !known_not_held;
}

/*
 * Order of turns: who has waited longest comes first.
 */
static int
compare_last_turn(const ListCell *a, const ListCell *b)
{
	TimestampTz left = ((Container *) lfirst(a))->last_turn;
	TimestampTz right = ((Container *) lfirst(b))->last_turn;

	return left < right ? -1 : left > right;
}

/*
 * The containers that are due; *next is when the first of the others will be.
 */
static List *
due_containers(TimestampTz *next)
{
	HASH_SEQ_STATUS status;
	Container  *container;
	TimestampTz now = GetCurrentTimestamp();
	List	   *due = NIL;

	*next = now + REFRESH_WAIT;
	hash_seq_init(&status, containers);
	while ((container = (Container *) hash_seq_search(&status)) != NULL)
	{
		if (container->changed || container->due <= now)
			due = lappend(due, container);
		else
			*next = Min(*next, container->due);
	}
	list_sort(due, compare_last_turn);
	return due;
}

/*
 * Prepares the session for the container's owner, and tells what comes.
 */
static void
before_turn(Oid container)
{
	static Oid	last_owner = InvalidOid;

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

	if (OidIsValid(last_owner) && owner != last_owner)
		ttl_session_discard();
	last_owner = owner;
}

/*
 * Obeys a reload.
 */
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
pace(const TtlTurn *turn, bool *napped)
{
	*napped = nap(spent + turn->cost);
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
	MemoryContextReset(PortalContext);
	RESUME_INTERRUPTS();
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
		StartTransactionCommand();
		MemoryContextSwitchTo(PortalContext);	/* outlives the transaction */
		ttl_turn_run(memory, container, turn);
		CommitTransactionCommand();
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
	return done;
}

/*
 * Gives the container a turn.  Returns what it has cost; *finished tells that
 * it needs no other in this cycle, *limited that it is kept from having one.
 */
static int64
run_turn(TtlMemory *memory, Container *container, int64 max_cost,
		 bool *finished, bool *limited)
{
	Oid			oid = container->container;
	TtlTurn		turn;
	TimestampTz now;
	bool		done;

	before_turn(oid);

	memset(&turn, 0, sizeof(turn));
	turn.max_cost = Min(max_cost,
						container->cycle_cost_limit - container->cycle_cost);
	turn.max_rows = PG_INT64_MAX;
	turn.max_batch_cost = ttl_budget_batch(granted);
	turn.pace = pace;
	turn.until = GetCurrentTimestamp() + TURN_TIME;
	turn.blocked = container->blocked;
	turn.changed = container->changed;
	container->changed = false;

	done = try_turn(memory, oid, &turn);

	now = GetCurrentTimestamp();
	container->last_turn = now;
	container->cycle_cost += turn.cost;
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
	all_leaves += turn.leaves - container->leaves;
	container->leaves = turn.leaves;

	*finished = turn.end != TTL_TURN_SPENT;
	if (!*finished && container->cycle_cost >= container->cycle_cost_limit)
		*finished = *limited = true;
	container->capped = *limited;
	if (*finished && !*limited)
	{
		TimestampTz earliest = now + all_leaves * PACE_PER_LEAF;
		TimestampTz latest = now + Max(IDLE_WAIT,
									   all_leaves * IDLE_WAIT_PER_LEAF);

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
note_behind(Container *container, TimestampTz cycle_start, TtlStop stop)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		patience = ttl_guc_lag_warning * USECS_PER_SEC;
	char	   *name;

	if (container->behind_since == 0)
		container->behind_since = cycle_start;
	if (patience == 0 || now - container->behind_since < patience ||
		now - container->warned_at < patience)
		return;

	container->warned_at = now;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	name = get_rel_name(container->container);
	if (name != NULL)
		ereport(LOG,
				(errmsg("deletion of expired rows of container \"%s.%s\" has been behind for %lld seconds",
						get_namespace_name(get_rel_namespace(container->container)),
						name,
						(long long) ((now - container->behind_since) / USECS_PER_SEC)),
				 container->capped ?
				 errhint("Consider increasing the container's cycle_cost_limit by ttl.alter_container().") :
				 stop == TTL_STOP_REPLICA_LAG ?
				 errdetail("A replica is further behind than \"%s\" allows.",
						   "ttl.replica_lag_limit") :
				 ttl_guc_throughput > 0 ?
				 errhint("Consider increasing \"%s\", \"%s\" or \"%s\".",
						 "ttl.throughput", "ttl.cycle_cost_floor",
						 "ttl.cycle_cost_limit") :
				 errhint("Consider increasing \"%s\".", "ttl.cycle_cost_limit")));
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
	TimestampTz next;
	TtlStop		stop;
	bool		any_limited = false;
	MemoryContext context = CurrentMemoryContext;
	List	   *due = due_containers(&next);
	List	   *all_due;
	ListCell   *lc;

	foreach(lc, due)
	{
		Container  *container = (Container *) lfirst(lc);

		container->cycle_cost = 0;
		container->capped = false;
	}
	all_due = list_copy(due);

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

	while (due != NIL && spent < granted && ttl_guc_reaper)
	{
		int			waiting = list_length(due);

		foreach(lc, due)
		{
			int64		left = granted - spent;
			bool		finished;
			bool		limited = false;

			if (left > 0)
				(void) nap(spent);
			if (left <= 0 || !ttl_guc_reaper)
				break;
			spent += run_turn(memory, (Container *) lfirst(lc),
							  Min(Max(left / waiting, LEAST_SHARE), left),
							  &finished, &limited);
			any_limited = any_limited || limited;
			waiting--;
			if (finished)
				due = foreach_delete_current(due, lc);

			CHECK_FOR_INTERRUPTS();
			check_reload();
		}
	}

	/* replicas, and those who decode it, needn't wait for the WAL writer */
	if (spent > 0)
		XLogFlush(XactLastCommitEnd);

	foreach(lc, all_due)
	{
		Container  *container = (Container *) lfirst(lc);

		if (container->capped || list_member_ptr(due, container))
			note_behind(container, started, stop);
	}

	counters.state = due == NIL && !any_limited ? TTL_REAPER_IDLE :
		TTL_REAPER_WAITING;
	counters.stopped_by = due == NIL && !any_limited ? TTL_STOP_DONE :
		due != NIL ? stop : TTL_STOP_COST_LIMIT;
	counters.cost_spent += spent;
	counters.debt = Max(spent - granted, 0);
	ttl_counters_set_own_database(&counters);

	MemoryContextSwitchTo(context);
	if (due != NIL || any_limited)
		return started;
	(void) due_containers(&next);
	return next;
}

/*
 * Runs a cycle that may be cancelled.  Any other error goes on.
 */
static TimestampTz
run_cancellable_cycle(TtlMemory *memory)
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

/*
 * Sleeps until the time given, or until somebody wants something.
 */
static void
sleep_until(TimestampTz until)
{
	if (woken)
		SetLatch(MyLatch);
	woken = false;

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

/*
 * Main function of a worker; the argument is its slot.
 */
void
ttl_worker_main(Datum main_arg)
{
	TtlReapMode mode = {.by_worker = true, .commits = true};
	TtlMemory  *memory;
	MemoryContext context;
	HASHCTL		ctl;
	uint32		serial;
	Oid			dboid;
	TimestampTz refresh_at = 0;
	TimestampTz rested_at = 0;	/* end of the nap after a cycle */
	TimestampTz cycle_at = 0;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	memcpy(&serial, MyBgworkerEntry->bgw_extra, sizeof(serial));
	if (!ttl_shmem_worker_attach(DatumGetInt32(main_arg), serial, &dboid))
		proc_exit(0);

	ttl_budget_exempt();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	settle_settings();
	wait_event_main = TtlWaitEventNew("TtlReaperMain");
	wait_event_pace = TtlWaitEventNew("TtlReaperPace");

	/* what SPI allocates outlives the transactions of a turn, in here */
	PortalContext = AllocSetContextCreate(TopMemoryContext, "ttl reaper turn",
										  ALLOCSET_DEFAULT_SIZES);
	context = AllocSetContextCreate(TopMemoryContext, "ttl reaper",
									ALLOCSET_DEFAULT_SIZES);
	memory = ttl_leaf_memory_create(TopMemoryContext, mode);

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(Container);
	ctl.hcxt = TopMemoryContext;
	containers = hash_create("ttl containers of the reaper", 64, &ctl,
							 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	recall(memory);

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

			refresh_at = GetCurrentTimestamp() + REFRESH_WAIT;
			cycle_at = rested_at;
			HOLD_CANCEL_INTERRUPTS();
			any = refresh_containers(memory);
			RESUME_CANCEL_INTERRUPTS();
			if (any)
			{
				ttl_counters_open_database();
				look_at(wanted);
				if (is_held())
				{
					if (ttl_shmem_worker_leave(TTL_LEFT_HELD, 0))
						break;
					continue;
				}
			}
			else if (ttl_shmem_worker_leave(TTL_LEFT_NOTHING, 0))
			{
				ttl_blocked_forget_database(MyDatabaseId);
				break;
			}
			else
				continue;
		}

		if (cycle_at <= GetCurrentTimestamp())
		{
			MemoryContextSwitchTo(context);
			started = GetCurrentTimestamp();
			next = run_cancellable_cycle(memory);
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
