/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  The cost of deletion, and of all else (the foreground).
 *
 * Cost is measured in the units of vacuum's cost model: buffers hit, read and dirtied, as
 * pgBufferUsage counts them in every process, weighed with vacuum_cost_page_hit, _miss and
 * _dirty.  These weights are the server's, and not what a session, a role or a database has
 * set: the postmaster stores them in shared memory, and the launcher, which is connected to
 * no database, stores them again whenever the configuration is reloaded.
 *
 * Each backend adds what it has used to its database's counter when an outermost statement
 * ends, if that is much (a long transaction must not hide its statements), and before a
 * transaction commits.  While ttl.throughput is set, a timeout also adds it every so often
 * while a statement runs; it is enabled only then, so an idle backend is not woken up.  Its
 * handler adds to an atomic that the backend has found before.
 *
 * What parallel workers have used becomes their leader's usage when all have finished.  While
 * ttl.throughput is set they are counted, too, and note in counted_ahead of the leader how much
 * of its usage has been added already when it comes.  What is left of that when the leader's
 * statement ends was lost by an error.
 *
 * Autovacuum and the extension's own processes are not the foreground.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "cost.h"
#include "counters.h"
#include "guc.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "ttl.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

/* The longest time after which a running statement is counted, in milliseconds */
#define LONGEST_PERIOD		500

/* Less than this cost is not counted before the transaction commits */
#define COUNTED_MIN			101

/* pgBufferUsage of this backend when it was counted last */
static BufferUsage counted;

/* True while it is counted; then the handler of the timeout does nothing. */
static volatile sig_atomic_t is_counting = false;

typedef struct TtlCostShared
{
	/* the server's vacuum_cost_page_hit etc., which the launcher writes */
	pg_atomic_uint32 hit;
	pg_atomic_uint32 miss;
	pg_atomic_uint32 dirty;

	/* by the leader's PGPROC; parallel workers add, the leader subtracts */
	pg_atomic_uint64 counted_ahead[FLEXIBLE_ARRAY_MEMBER];
} TtlCostShared;

static TtlCostShared *cost_shared = NULL;

/* Counter of this database, NULL = none as yet */
static pg_atomic_uint64 *foreground = NULL;

/* Cost that this parallel worker has added */
static uint64 worker_cost = 0;

/* MAX_TIMEOUTS until it is registered, when it is first needed */
static TimeoutId timeout_id = MAX_TIMEOUTS;
static bool is_timed = false;
static int	nesting = 0;
static bool is_exempt = false;

/* The cost of what this process has used since then, by the server's weights. */
int64
ttl_cost_since(const BufferUsage *start)
{
	int64		hit;
	int64		miss;
	int64		dirty;

	hit = pgBufferUsage.shared_blks_hit - start->shared_blks_hit +
		pgBufferUsage.local_blks_hit - start->local_blks_hit;
	miss = pgBufferUsage.shared_blks_read - start->shared_blks_read +
		pgBufferUsage.local_blks_read - start->local_blks_read;
	dirty = pgBufferUsage.shared_blks_dirtied - start->shared_blks_dirtied +
		pgBufferUsage.local_blks_dirtied - start->local_blks_dirtied;

	return hit * pg_atomic_read_u32(&cost_shared->hit) +
		miss * pg_atomic_read_u32(&cost_shared->miss) +
		dirty * pg_atomic_read_u32(&cost_shared->dirty);
}

/* Makes this process's weights those of the server; called by the launcher. */
void
ttl_cost_set_weights(void)
{
	pg_atomic_write_u32(&cost_shared->hit, VacuumCostPageHit);
	pg_atomic_write_u32(&cost_shared->miss, VacuumCostPageMiss);
	pg_atomic_write_u32(&cost_shared->dirty, VacuumCostPageDirty);
}

/* What this backend's parallel workers have added, or if it is one, those of its leader */
static pg_atomic_uint64 *
counted_ahead(void)
{
	PGPROC	   *leader = MyProc->lockGroupLeader != NULL ? MyProc->lockGroupLeader : MyProc;

	return &cost_shared->counted_ahead[leader - ProcGlobal->allProcs];
}

/*
 * Adds to the counter of the database.  What its workers have added is subtracted from a
 * leader's next usage, be it its own: theirs comes when all have finished.
 */
static void
add(uint64 cost)
{
	if (IsParallelWorker())
		worker_cost += cost;
	else
	{
		uint64		ahead = Min(pg_atomic_read_u64(counted_ahead()), cost);

		if (ahead > 0)
			pg_atomic_fetch_sub_u64(counted_ahead(), ahead);
		cost -= ahead;
	}
	pg_atomic_fetch_add_u64(foreground, cost);
}

/*
 * Counts what this backend has used since it was last counted, unless it is less than
 * 'least'.  The handler of the timeout calls this, too.
 */
static void
count_usage(int64 least)
{
	int64		cost;

	if (is_counting)
		return;
	is_counting = true;
	pg_compiler_barrier();
	cost = ttl_cost_since(&counted);
	if (cost >= least)
	{
		counted = pgBufferUsage;
		if (foreground != NULL)
			add(cost);
	}
	pg_compiler_barrier();
	is_counting = false;
}

/* A statement may end its process: then there is no PGPROC any more, but still the timeout. */
static void
timeout_expired(void)
{
	if (!proc_exit_inprogress)
		count_usage(1);
}

/* True if what this process uses counts as the foreground's. */
static bool
is_foreground(void)
{
	return !is_exempt && MyBackendType != B_AUTOVAC_WORKER;
}

/* Enables the timeout, so that each cycle of the worker meets what is used during it. */
static pg_noinline void
start_counting(void)
{
#ifndef PG_HAVE_ATOMIC_U64_SIMULATION	/* it takes a spinlock */
	int			period = Min(ttl_guc_naptime / 2, LONGEST_PERIOD);

	if (!is_foreground() || !IsTransactionState())
		return;
	foreground = ttl_counters_foreground();
	if (foreground == NULL)
		return;
	if (timeout_id == MAX_TIMEOUTS)
		timeout_id = RegisterTimeout(USER_TIMEOUT, timeout_expired);
	enable_timeout_every(timeout_id,
						 TimestampTzPlusMilliseconds(GetCurrentTimestamp(), period), period);
	is_timed = true;
#endif
}

/* Begins a statement or a utility command; they may be nested.  May run out of memory. */
void
ttl_cost_enter(void)
{
	if (nesting == 0 && ttl_guc_throughput > 0 && !IsParallelWorker())
		start_counting();
	nesting++;
}

/* A parallel worker has got its leader's settings; it may execute no statement. */
void
ttl_cost_worker_starts(void)
{
	if (ttl_guc_throughput > 0)
		start_counting();
}

/* Ends it.  Cannot fail, for it is called in PG_FINALLY. */
void
ttl_cost_leave(void)
{
	if (--nesting > 0 || IsParallelWorker())
		return;
	if (is_timed)
		disable_timeout(timeout_id, false);
	is_timed = false;
	count_usage(COUNTED_MIN);
	/* workers that have failed: their usage does not come any more */
	if (pg_atomic_read_u64(counted_ahead()) > 0)
		pg_atomic_write_u64(counted_ahead(), 0);
}

/*
 * Counts what has been used, before a transaction commits.  Attaching to shared memory may fail
 * then, and must not after an abort: a transaction that is rolled back is counted with the next one.
 */
void
ttl_cost_transaction(XactEvent event)
{
	if (event == XACT_EVENT_PARALLEL_PRE_COMMIT && is_timed)
	{
		count_usage(1);
		pg_atomic_fetch_add_u64(counted_ahead(), worker_cost);
		worker_cost = 0;
	}
	else if ((event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE) &&
			 is_foreground())
	{
		foreground = ttl_counters_foreground();
		count_usage(1);
	}
}

/* The size of the shared memory of this file */
Size
ttl_cost_shmem_size(void)
{
	return add_size(offsetof(TtlCostShared, counted_ahead),
					mul_size(MaxBackends, sizeof(pg_atomic_uint64)));
}

/* Attaches to it, and initializes it if this process is the first. */
void
ttl_cost_shmem_init(void)
{
	bool		found;

	cost_shared = ShmemInitStruct(TTL_EXTENSION " cost", ttl_cost_shmem_size(), &found);
	if (found)
		return;
	pg_atomic_init_u32(&cost_shared->hit, VacuumCostPageHit);
	pg_atomic_init_u32(&cost_shared->miss, VacuumCostPageMiss);
	pg_atomic_init_u32(&cost_shared->dirty, VacuumCostPageDirty);
	for (int i = 0; i < MaxBackends; i++)
		pg_atomic_init_u64(&cost_shared->counted_ahead[i], 0);
}

/* This process's cost is not that of the foreground. */
void
ttl_cost_exempt(void)
{
	is_exempt = true;
}
