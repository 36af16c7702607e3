/*-------------------------------------------------------------------------
 *
 * worker.c
 *	  The process that deletes expired rows of one database.
 *
 * A background worker "ttl reaper", started by the launcher.  It runs a cycle at most every
 * ttl.naptime.
 *
 * In a cycle the containers that are due get runs of deletion (reap_rel.c) in
 * rounds, until the cycle's budget is spent or none is due.  In a round each owner has an
 * equal share of what is left of the budget, and each of his containers an equal share of that; an
 * owner's turn takes RUN_TIME at most, but for its last batch.  Who has taken the least time lately
 * comes first.  Between its transactions the worker naps without any
 * lock, so that the budget is spent evenly.  Triggers that sleep cost time and no budget,
 * so a cycle also ends after CYCLE_NAPTIMES.  At its end log_work() writes the log line
 * of each container (ttl.log_min_duration).
 *
 * A run that fails (an error that deletion does not handle, such as a corrupt index) is logged, and
 * the container is not due again for FAILED_WAIT, in the next worker neither.  Other errors end the process, and the launcher
 * starts another.  pg_cancel_backend() ends a run, and is ignored outside of one.
 *
 * Deletion runs as the table's owner, in a security-restricted operation, and so do its triggers.
 *
 * The worker exits when there is no container with TTL on, when ttl.reaper is off, while
 * deletion is held (hold.c), and after a cycle when other databases wait for its slot.
 *
 *
 * BUDGET
 *
 * In the units of cost.c.  A cycle is granted ttl.cycle_cost_limit.  With ttl.throughput set, it is
 * granted what is provisioned for the time since the last cycle began,
 * less what the foreground has used in that time and what the last cycle has
 * overdrawn (a batch is measured when it is over), within
 * ttl.cycle_cost_floor and ttl.cycle_cost_limit.  It is granted nothing while a
 * replica is further behind than ttl.replica_lag_limit, since cost does not include
 * what the WAL of deletion costs on a replica.  A replica that is not connected does not
 * count: it may never come back.
 *
 * The budget is spent evenly over the cycle, in the manner of vacuum_cost_delay: after
 * each batch, which costs what BATCH_PERIOD is worth, the worker naps for the time that its
 * cost is worth.  So where batches take longer because the machine is busy, the cycle
 * takes longer, and deletion gets less.
 *
 *
 * SCHEDULE
 *
 * A container is due when its earliest row expires, but not later than its default TTL
 * (rows may have been inserted meanwhile) or IDLE_WAIT after the last visit; and so is each of its
 * tables.  Each table of the database's containers makes all waits longer by WAIT_PER_TABLE, so
 * that visiting idle ones never becomes a busy loop.  A row with a shorter TTL of its own waits for
 * such a visit; it is hidden all the same.  A container is due at once when its definition or
 * policy has changed: relcache invalidations set a flag in the hash table below, and a transaction
 * that changes a policy wakes up the worker (launcher.c), which then reads the list of containers,
 * and compares their policies: an invalidation may be lost, together with many of others.  Without
 * a request the list is read after IDLE_WAIT, or longer in the same way.
 *
 * Who comes first is decided by the time that deletion has taken, for an owner's containers
 * together and for each of them: whose triggers are slow comes after the others, and a container
 * that has not been visited yet after those known to be quick.  A new worker lets owners whose
 * containers have met errors lately come last, and chooses among the others at random, so
 * that each comes first at times also if workers live for one cycle.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/sinval.h"
#include "storage/spin.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "citus/citus.h"
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
#define FAILED_WAIT			(60 * USECS_PER_SEC)	/* after an error */

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

/* The longest time over which provisioned throughput accumulates, microseconds */
#define LONGEST_CYCLE		INT64CONST(10000000)

/* Pacing */
#define BATCH_PERIOD		INT64CONST(20000)	/* microseconds */
#define SHORTEST_NAP		INT64CONST(2000)

/* Between visits, in microseconds */
#define IDLE_WAIT			(10 * USECS_PER_SEC)
#define WAIT_PER_TABLE		INT64CONST(7000)

/* Until the list is read again if containers had no grace: others may have locked some */
#define GRACELESS_WAIT		(1 * USECS_PER_SEC)

/* Time after which the state of a table without a visit is removed */
#define FORGET_WAIT			(600 * USECS_PER_SEC)

/* Time after which half of the time taken is forgotten */
#define TIME_HALVED			(60 * USECS_PER_SEC)

/* The time that a container is thought to take before its first visit, or an owner after errors */
#define TIME_UNKNOWN		(1 * USECS_PER_SEC)

/*
 * PostgreSQL keeps what it has read of each relation, some 20 kB for a container and its indexes, as
 * long as the process lives.  When that has come to so many times maintenance_work_mem it is
 * discarded, but not again before so many tables have been visited.
 */
#define CACHES_SHARE		8
#define CACHES_TABLES		500

/* An owner of containers */
typedef struct TtlOwner
{
	Oid			owner;			/* MUST BE FIRST */
	int64		taken;			/* time, by all of his containers */
	int			ndue;			/* containers that wait for their turn in this round */
} TtlOwner;

/* A container with TTL on */
typedef struct TtlScheduled
{
	Oid			container;		/* MUST BE FIRST */
	TtlOwner   *owner;
	int64		taken;			/* time that deletion has taken, in microseconds;
								 * half of it is forgotten each minute */
	bool		listed;			/* at the last refresh */
	char		name[2 * NAMEDATALEN];	/* qualified, as of the last refresh */
	bool		changed;		/* by invalidation: due now */
	bool		is_new;			/* not visited since it was entered */
	TimestampTz due;
	int			ntables;		/* partitions */
	TtlPolicy	policy;			/* as of the last refresh; its lists are not valid */
	TimestampTz behind_since;	/* has had more work than budget; 0 = not so */
	TimestampTz warned_at;

	/* the present cycle */
	int64		cycle_cost;
	int64		cycle_rows;		/* deleted */
	int64		cycle_time;		/* of its runs, in microseconds */
	int64		blocked;		/* rows that cannot be deleted, after the last run */
} TtlScheduled;

static int	tables_visited = 0;

static HTAB *scheduled = NULL;
static HTAB *scheduled_owners = NULL;

/* Number of tables of all containers, as of the last refresh */
static int	scheduled_ntables = 0;

void
ttl_worker_relation_changed(Oid relid)
{
	TtlScheduled *container;

	/*
	 * InvalidOid means that others, of whatever database, have sent more messages than the queue
	 * holds while this process was busy, or that it discards its own caches.  That says nothing
	 * about any container, and is frequent where others create many temporary tables.
	 */
	if (scheduled == NULL || !OidIsValid(relid))
		return;

	container = (TtlScheduled *) hash_search(scheduled, &relid, HASH_FIND, NULL);
	if (container != NULL)
		container->changed = true;
}

/* Makes a wait between visits longer if there are many tables. */
static int64
lengthen(int64 wait)
{
	return Max(wait, scheduled_ntables * WAIT_PER_TABLE);
}

/* Half of the time taken is forgotten each minute. */
static void
halve_times(void)
{
	static TimestampTz halved_at = 0;

	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TtlOwner   *owner;

	if (now - halved_at < TIME_HALVED)
		return;
	halved_at = now;
	hash_seq_init(&status, scheduled);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		container->taken /= 2;
	hash_seq_init(&status, scheduled_owners);
	while ((owner = (TtlOwner *) hash_seq_search(&status)) != NULL)
		owner->taken /= 2;
}

/* At most TIME_UNKNOWN: what has not been visited yet is in random order. */
static int64
random_time(void)
{
	return pg_prng_uint64_range(&pg_global_prng_state, 0, TIME_UNKNOWN);
}

static TtlOwner *
enter_owner(Oid oid)
{
	bool		found;
	TtlOwner   *owner = (TtlOwner *) hash_search(scheduled_owners, &oid, HASH_ENTER, &found);

	if (!found)
	{
		memset(owner, 0, sizeof(TtlOwner));
		owner->owner = oid;
		owner->taken = random_time();
	}
	return owner;
}

/* True if the policies differ in what decides when the worker deletes which rows, or whether it fails. */
static bool
policies_differ(const TtlPolicy *a, const TtlPolicy *b)
{
	return a->default_ttl != b->default_ttl || a->reap_delay != b->reap_delay ||
		a->change.began_at != b->change.began_at || a->archive_to != b->archive_to;
}

/*
 * Enters a container with TTL on.
 */
static void
enter_container(Oid oid, const TtlPolicy *policy)
{
	TtlContainerCounters counters;
	TtlScheduled *container;
	bool		found;

	container = (TtlScheduled *) hash_search(scheduled, &oid, HASH_ENTER, &found);
	if (!found)
	{
		memset(container, 0, sizeof(TtlScheduled));
		container->container = oid;
		container->ntables = 1;
		container->is_new = true;
		container->taken = TIME_UNKNOWN + random_time();
	}
	container->listed = true;
	container->owner = enter_owner(ttl_container_owner(oid));
	if (!found && ttl_counters_get_container(oid, &counters))
	{
		/* or the clock has been set back since */
		if (counters.paused_until <= GetCurrentTimestamp() + TTL_LONGEST_PAUSE)
			container->due = counters.paused_until;

		/* what earlier workers have spent on it is not known */
		if (counters.last_error_at > GetCurrentTimestamp() - TIME_HALVED)
			container->owner->taken += TIME_UNKNOWN;
	}
	strlcpy(container->name, ttl_container_qualified_name(oid), sizeof(container->name));

	/* the invalidation may have been lost, see ttl_worker_relation_changed() */
	if (found && policies_differ(&container->policy, policy))
		container->changed = true;
	container->policy = *policy;
}

/*
 * Reads ttl.container.  Returns the containers whose change of policy has not been noticed, and in
 * *graceless those that have to get a grace before they can be entered (last_seen.c).
 */
static List *
read_containers(TimestampTz now, List **graceless)
{
	List	   *unnoticed = NIL;
	ListCell   *lc;

	foreach(lc, ttl_policy_list(TTL_CONTAINERS_SOUND))
	{
		Oid			oid = lfirst_oid(lc);
		TtlPolicy	policy;

		/* it is not locked, so it may be about to lose a column */
		if (!ttl_policy_read(oid, &policy))
			continue;
		/* or the clock has been set back since */
		if (policy.change.noticed_at > now)
			unnoticed = lappend_oid(unnoticed, oid);
		if (policy.default_ttl == TTL_OFF || !policy.reaping || ttl_citus_is_distributed(oid))
			continue;
		if (ttl_last_seen_lacks_grace(&policy))
			*graceless = lappend_oid(*graceless, oid);
		else
			enter_container(oid, &policy);
	}
	return unnoticed;
}

/*
 * Calls the function for each container, in a transaction of its own: it takes locks that last to
 * the end, and the lock table may have room for few containers only.
 */
static void
call_in_transactions(void (*function) (Oid), List *oids)
{
	ListCell   *lc;

	foreach(lc, oids)
	{
		StartTransactionCommand();
		function(lfirst_oid(lc));
		CommitTransactionCommand();
	}
}

static void
forget_dropped_policy(Oid container)
{
	(void) ttl_policy_forget_dropped(container);
}

/*
 * Brings the table of containers up to date.  Returns false if there are none, else when to
 * call this again in *next.
 */
static bool
refresh_schedule(TtlMemory *memory, TimestampTz *next)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *unnoticed = NIL;
	List	   *graceless = NIL;
	List	   *dropped = NIL;
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(context);

	hash_seq_init(&status, scheduled);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		container->listed = false;

	if (ttl_container_objects() != NULL)
	{
		unnoticed = read_containers(now, &graceless);
		dropped = ttl_policy_list(TTL_CONTAINERS_DROPPED);
	}

	scheduled_ntables = 0;
	hash_seq_init(&status, scheduled);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		if (container->listed)
			scheduled_ntables += container->ntables;
		else
			(void) hash_search(scheduled, &container->container, HASH_REMOVE, NULL);
	}
	foreach(lc, ttl_counters_containers())
	{
		if (get_rel_relkind(lfirst_oid(lc)) == '\0')
			ttl_counters_forget_container(lfirst_oid(lc));
	}
	ttl_reap_rel_memory_trim(memory, now - FORGET_WAIT);

	CommitTransactionCommand();
	call_in_transactions(ttl_grace_notice, unnoticed);
	call_in_transactions(ttl_last_seen_begin_grace, graceless);
	if (graceless != NIL)
		ttl_last_seen_log_grace(database_name);
	else
		ttl_launcher_note_graces();
	call_in_transactions(forget_dropped_policy, dropped);
	MemoryContextSwitchTo(context);
	*next = GetCurrentTimestamp() + (graceless != NIL ? GRACELESS_WAIT : lengthen(IDLE_WAIT));
	return hash_get_num_entries(scheduled) > 0 || graceless != NIL;
}

/* Owners, and the containers of each, in the order of the time that they have taken */
static int
compare_scheduled(const ListCell *a, const ListCell *b)
{
	const TtlScheduled *left = (TtlScheduled *) lfirst(a);
	const TtlScheduled *right = (TtlScheduled *) lfirst(b);

	if (left->owner->taken != right->owner->taken)
		return left->owner->taken < right->owner->taken ? -1 : 1;
	if (left->owner != right->owner)
		return left->owner->owner < right->owner->owner ? -1 : 1;
	if (left->taken != right->taken)
		return left->taken < right->taken ? -1 : 1;
	return 0;
}

/*
 * The containers that are due, by owner, in the order of their turns.  *nowners becomes the number
 * of their owners, and *next the time when the first of the others is due.
 */
static List *
list_due(int *nowners, TimestampTz *next)
{
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TtlOwner   *owner;
	TimestampTz now = GetCurrentTimestamp();
	List	   *result = NIL;

	hash_seq_init(&status, scheduled_owners);
	while ((owner = (TtlOwner *) hash_seq_search(&status)) != NULL)
		owner->ndue = 0;
	*nowners = 0;
	*next = now + lengthen(IDLE_WAIT);
	hash_seq_init(&status, scheduled);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		if (!container->changed && container->due > now)
		{
			*next = Min(*next, container->due);
			continue;
		}
		if (container->owner->ndue++ == 0)
			(*nowners)++;
		result = lappend(result, container);
	}
	list_sort(result, compare_scheduled);
	return result;
}

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

/* The time between visits at most, in microseconds */
static int64
longest_wait(const TtlScheduled *container)
{
	int32		default_ttl = container->policy.default_ttl;

	return lengthen(default_ttl > 0 ? Min(default_ttl * USECS_PER_SEC, IDLE_WAIT) : IDLE_WAIT);
}

static void
init_schedule(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(TtlScheduled);
	ctl.hcxt = TopMemoryContext;
	scheduled = hash_create("ttl containers of the reaper", 64, &ctl,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ctl.entrysize = sizeof(TtlOwner);
	scheduled_owners = hash_create("ttl owners of containers", 64, &ctl,
								   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

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
 * Takes the invalidations that others have sent if this process lags behind, as an idle backend
 * does.  Otherwise the queue overflows, and all that this process has cached of catalogs is lost.
 */
static void
catch_up(void)
{
	MemoryContext context = CurrentMemoryContext;

	if (!catchupInterruptPending)
		return;
	ProcessCatchupInterrupt();
	MemoryContextSwitchTo(context); /* it may have run a transaction */
}

/*
 * Waits for the latch.
 */
static void
sleep_until(TimestampTz until)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until),
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);

	/* SIGTERM is an error only while something is executed */
	if (ProcDiePending)
		proc_exit(0);
	CHECK_FOR_INTERRUPTS();
	catch_up();
	check_reload();
}

/*
 * Bytes of WAL by which the slowest of the connected WAL receivers is behind; 0 if there is
 * none.  As in pg_stat_replication.
 */
static uint64
replica_lag(void)
{
	XLogRecPtr	end = GetFlushRecPtr(NULL);
	XLogRecPtr	slowest = end;

	for (int i = 0; i < max_wal_senders; i++)
	{
		WalSnd	   *sender = &WalSndCtl->walsnds[i];
		bool		active;
		XLogRecPtr	done;

		SpinLockAcquire(&sender->mutex);
		active = sender->pid != 0;
		/* pg_receivewal does not apply, and need not flush */
		done = sender->apply;
		if (done == InvalidXLogRecPtr)
			done = sender->flush;
		if (done == InvalidXLogRecPtr)
			done = sender->write;
		SpinLockRelease(&sender->mutex);

		/* a base backup, or no reply yet */
		if (!active || done == InvalidXLogRecPtr)
			continue;
		slowest = Min(slowest, done);
	}
	return end - slowest;
}

/*
 * What a cycle that starts now may spend, given the statistics.  *stop becomes the
 * reason why the cycle ends if that is not enough.
 */
static int64
grant_budget(const TtlDatabaseCounters *counters, TimestampTz now, TtlStop *stop)
{
	int64		limit = ttl_guc_cycle_cost_limit;
	int64		floor = Min(ttl_guc_cycle_cost_floor, limit);
	int64		elapsed;
	int64		left;

	if (ttl_guc_replica_lag_limit > 0 &&
		replica_lag() > ttl_guc_replica_lag_limit * UINT64CONST(0x100000))
	{
		*stop = TTL_STOP_REPLICA_LAG;
		return 0;
	}

	*stop = TTL_STOP_COST_LIMIT;
	if (ttl_guc_throughput == 0)
		return limit;

	elapsed = LONGEST_CYCLE;
	if (counters->last_cycle != 0 && now > counters->last_cycle)
		elapsed = Min(now - counters->last_cycle, LONGEST_CYCLE);

	left = ttl_guc_throughput * elapsed / USECS_PER_SEC -
		(counters->foreground_cost - counters->foreground_seen) -
		counters->debt;
	if (left < limit)
		*stop = TTL_STOP_THROUGHPUT;
	return Max(Min(left, limit), floor);
}

/*
 * The time over which a cycle's budget is spread, in microseconds.
 */
static int64
period(void)
{
	return Min(ttl_guc_naptime * INT64CONST(1000), LONGEST_CYCLE);
}

/* The most that one transaction should cost */
static int64
batch_cost(void)
{
	return Max(granted * BATCH_PERIOD / Max(period(), BATCH_PERIOD), 1);
}

/* How long to nap, in microseconds, when so much has been spent since the last nap */
static int64
nap_length(int64 unpaid)
{
	int64		length;

	if (granted <= 0)
		return 0;
	length = (int64) ((double) unpaid * period() / granted);
	return length < SHORTEST_NAP ? 0 : Min(length, period());
}

/*
 * Naps as long as what the cycle has spent so far is worth.
 */
static void
nap(int64 total)
{
	int64		length = nap_length(total - paid);
	TimestampTz started = GetCurrentTimestamp();

	if (length == 0)
		return;
	while (GetCurrentTimestamp() < started + length && ttl_guc_reaper)
		sleep_until(started + length);
	paid = total;
	napped += GetCurrentTimestamp() - started;
}

/*
 * Between the transactions of a run, see reap_rel.h.
 */
static bool
pace(const TtlReapRun *run)
{
	nap(spent + run->cost);
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
 * Cancellation is accepted in execute_run() alone, where lock_timeout needs it.
 * HOLD_CANCEL_INTERRUPTS() would not do, since an error that is caught resets the counter.
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
		{
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

/*
 * Gives a container a run.
 */
static void
run_container(TtlMemory *memory, TtlScheduled *container, int64 max_cost)
{
	TimestampTz started = GetCurrentTimestamp();
	int64		napped_before = napped;
	TimestampTz now;
	int64		took;
	TtlReapRun	run;
	bool		is_done;

	pgstat_report_activity(STATE_RUNNING,
						   psprintf("deleting expired rows of %s", container->name));

	memset(&run, 0, sizeof(run));
	run.max_cost = max_cost;
	run.max_rows = PG_INT64_MAX;
	run.max_batch_cost = batch_cost();
	run.pace = pace;
	run.until = started + RUN_TIME;
	run.longest_wait = longest_wait(container);
	run.changed = container->changed;
	container->changed = false;
	run.is_new = container->is_new;
	container->is_new = false;
	is_done = execute_run(memory, container, &run);

	/* advisory locks are all that triggers can leave to those of the next owner */
	LockReleaseAll(USER_LOCKMETHOD, true);
	now = GetCurrentTimestamp();
	spent += run.cost;
	container->cycle_cost += run.cost;
	container->cycle_rows += run.rows;
	container->blocked = run.blocked;
	container->cycle_time += now - started;
	container->ntables = run.ntables;
	tables_visited += run.ntables;
	took = now - started - (napped - napped_before);
	container->taken += took;
	container->owner->taken += took;

	if (!is_done)
		container->due = now + FAILED_WAIT;
	else if (run.end == TTL_REAP_MORE)
		container->due = now;
	else
	{
		container->due = Min(run.due, now + longest_wait(container));
		container->behind_since = 0;
	}
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

/*
 * Gives each container that is due a run: an owner has an equal share of what is left of the budget,
 * each of his containers an equal share of that, and RUN_TIME for all of them.
 */
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

		nap(spent);
		if (spent >= granted || GetCurrentTimestamp() >= until || !ttl_guc_reaper)
			break;
		if (container->owner != owner)
		{
			owner = container->owner;
			max_spent = spent + Max((granted - spent) / nowners, 1);
			nowners--;
			owner_until = Min(until, GetCurrentTimestamp() + RUN_TIME);
		}
		if (spent < max_spent && GetCurrentTimestamp() < owner_until)
			run_container(memory, container,
						  Min(Max((max_spent - spent) / owner->ndue, LEAST_SHARE),
							  granted - spent));
		owner->ndue--;

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
	List	   *due;
	int			nowners;
	TimestampTz next;
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	ListCell   *lc;

	ttl_counters_get_database(MyDatabaseId, &counters);
	granted = grant_budget(&counters, started, &stop);
	spent = 0;
	paid = 0;
	counters.state = TTL_REAPER_WORKING;
	counters.cycles++;
	counters.cost_granted += granted;
	counters.last_cycle = started;
	counters.foreground_seen = counters.foreground_cost;
	ttl_counters_set_database(&counters);

	halve_times();
	while ((due = list_due(&nowners, &next)) != NIL && spent < granted && ttl_guc_reaper)
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
	if (spent > 0)
		XLogFlush(XactLastCommitEnd);

	foreach(lc, due)
		warn_behind((TtlScheduled *) lfirst(lc), started);
	hash_seq_init(&status, scheduled);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		log_work(container);
		container->cycle_cost = container->cycle_rows = container->cycle_time = 0;
	}

	counters.stopped_by = due != NIL ? stop : TTL_STOP_DONE;
	counters.state = due != NIL ? TTL_REAPER_WAITING : TTL_REAPER_IDLE;
	counters.cost_spent += spent;
	counters.debt = Max(spent - granted, 0);
	ttl_counters_set_database(&counters);

	/* nap() may have consumed a wakeup by a request */
	SetLatch(MyLatch);

	return due != NIL ? started : next;
}

/*
 * Reads the list of containers.  Returns false if the worker has to exit, with the arguments
 * of ttl_launcher_release_worker(), else when to call this again in *next.
 */
static bool
may_stay(TtlMemory *memory, TimestampTz *next, TtlReaperState *state,
		 TimestampTz *start_at)
{
	bool		any;

	*state = TTL_REAPER_WAITING;
	*start_at = 0;
	if (!ttl_guc_reaper)
		return false;

	any = refresh_schedule(memory, next);
	*start_at = DT_NOEND;
	if (any)
	{
		ttl_counters_open_database();
		return !ttl_hold_lasts(state, start_at);
	}
	*state = TTL_REAPER_STOPPED;
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
	if (ttl_attempt_handle_exit(is_terminated))
		(void) ttl_launcher_release_worker(TTL_REAPER_WAITING, GetCurrentTimestamp());
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

	if (!ttl_launcher_attach_worker(dboid))
		proc_exit(0);

	ttl_cost_exempt();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, 0);
	accept_cancellation(false);
	resolve_settings();
	check_reload();

	/* SPI's memory outlives the transactions of a run, in here */
	PortalContext = AllocSetContextCreate(TopMemoryContext, "ttl reaper run",
										  ALLOCSET_DEFAULT_SIZES);
	context = AllocSetContextCreate(TopMemoryContext, "ttl reaper",
									ALLOCSET_DEFAULT_SIZES);
	memory = ttl_reap_rel_memory_create(TopMemoryContext, mode);

	/* a database with a worker in it cannot be renamed */
	StartTransactionCommand();
	database_name = MemoryContextStrdup(TopMemoryContext, get_database_name(MyDatabaseId));
	CommitTransactionCommand();

	ttl_restore_note_hold();
	init_schedule();
	before_shmem_exit(at_exit, (Datum) 0);

	/* another worker may have just run one, if the clock has not been set back since */
	if (ttl_counters_get_database(MyDatabaseId, &counters) && counters.last_cycle <= GetCurrentTimestamp())
		rested_at = counters.last_cycle + ttl_guc_naptime * INT64CONST(1000);

	for (;;)
	{
		bool		is_requested = ttl_launcher_take_request();

		MemoryContextSwitchTo(context);
		MemoryContextReset(context);

		if (is_requested || refresh_at <= GetCurrentTimestamp() || !ttl_guc_reaper)
		{
			TtlReaperState state;
			TimestampTz start_at;

			cycle_at = rested_at;
			if (!may_stay(memory, &refresh_at, &state, &start_at))
			{
				if (ttl_launcher_release_worker(state, start_at))
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
			limit_caches();
			pgstat_report_stat(false);
			rested_at = started + ttl_guc_naptime * INT64CONST(1000);
			cycle_at = Max(next, rested_at);
		}

		if (ttl_launcher_is_contended() &&
			ttl_launcher_release_worker(cycle_at > rested_at ? TTL_REAPER_IDLE : TTL_REAPER_WAITING,
								   cycle_at))
			break;

		pgstat_report_activity(STATE_IDLE, NULL);
		sleep_until(Min(cycle_at, refresh_at));
	}

	proc_exit(0);
}
