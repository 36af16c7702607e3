/*-------------------------------------------------------------------------
 *
 * budget.c
 *	  What deletion may cost, and what it and everybody else did cost.
 *
 * Cost is measured in the units of vacuum's cost model: buffers hit, read and
 * dirtied, as pgBufferUsage counts them in every process, weighed with
 * vacuum_cost_page_hit, _miss and _dirty.
 *
 * A cycle is granted ttl.cycle_cost_limit.  With ttl.throughput set, it is
 * granted what the database was provisioned for since the last cycle began,
 * less what the foreground has used in that time and what the last cycle has
 * overdrawn (a batch is measured when it is over), within
 * ttl.cycle_cost_floor and ttl.cycle_cost_limit.  It is granted nothing while a
 * replica is further behind than ttl.replica_lag_limit: pages tell what
 * deletion costs here, not what its WAL costs elsewhere.
 *
 * The budget isn't spent in one go, but evenly over the cycle, in the manner of
 * vacuum_cost_delay: after each batch, which costs what BATCH_PERIOD is worth,
 * the worker naps for the time that its cost is worth.  So the cycle of a
 * worker that gets its work done slowly, because the machine is busy, takes
 * longer, and deletion gets less.  A part of the budget may be spent in
 * advance, so that a few rows go at once.
 *
 * Foreground: each backend adds what it has used to its database's counter in
 * shared memory when an outermost execution ends (a long query must not hide
 * until its transaction ends) and when a transaction ends (for the utility
 * commands).  What parallel workers use is in the leader's figures already;
 * autovacuum isn't the foreground.
 *
 * ---
 *
 * What pg_stat_replication tells, taken from the same place.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/spin.h"

#include "execution.h"
#include "guc.h"
#include "reaper/reaper_internal.h"

/* The longest time that provisioned throughput accumulates, microseconds. */
#define LONGEST_CYCLE		INT64CONST(10000000)

/* Spending it evenly; see above. */
#define BATCH_PERIOD		INT64CONST(20000)	/* microseconds */
#define SHORTEST_NAP		INT64CONST(2000)
#define ADVANCE_SHARE		10

/* What this backend had used when it last told; only the counts matter. */
static BufferUsage told;

static bool exempt = false;

int64
ttl_budget_cost_since(const BufferUsage *start)
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

	return hit * VacuumCostPageHit +
		miss * VacuumCostPageMiss +
		dirty * VacuumCostPageDirty;
}

int64
ttl_budget_grant(const TtlDatabaseCounters *counters, TimestampTz now,
				 TtlStop *stop)
{
	int64		limit = ttl_guc_cycle_cost_limit;
	int64		floor = Min(ttl_guc_cycle_cost_floor, limit);
	int64		elapsed;
	int64		granted;

	if (ttl_guc_replica_lag_limit > 0 &&
		ttl_replica_lag() > ttl_guc_replica_lag_limit * UINT64CONST(0x100000))
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

	granted = ttl_guc_throughput * elapsed / USECS_PER_SEC -
		(counters->foreground_cost - counters->foreground_seen) -
		counters->debt;
	if (granted < limit)
		*stop = TTL_STOP_THROUGHPUT;
	return Max(Min(granted, limit), floor);
}

/*
 * The time over which a cycle's budget is spread, in microseconds.  Who makes
 * cycles rare doesn't want them to last for ever.
 */
static int64
period(void)
{
	return Min(ttl_guc_naptime * INT64CONST(1000), LONGEST_CYCLE);
}

int64
ttl_budget_batch(int64 granted)
{
	return Max(granted * BATCH_PERIOD / Max(period(), BATCH_PERIOD), 1);
}

int64
ttl_budget_advance(int64 granted)
{
	return granted / ADVANCE_SHARE;
}

int64
ttl_budget_nap(int64 granted, int64 unpaid)
{
	int64		nap;

	if (granted <= 0)
		return 0;
	nap = (int64) ((double) unpaid * period() / granted);
	return nap < SHORTEST_NAP ? 0 : Min(nap, period());
}

/*
 * Adds what this backend has used since it last told.
 */
static void
tell(void)
{
	int64		cost = ttl_budget_cost_since(&told);

	if (cost > 0)
		ttl_counters_add_foreground(cost);
	told = pgBufferUsage;
}

static bool
is_foreground(void)
{
	return !exempt && !IsParallelWorker() &&
		MyBackendType != B_AUTOVAC_WORKER;
}

static void
execution_ended(QueryDesc *query_desc, int depth)
{
	if (depth == 1 && is_foreground())
	{
		ttl_counters_prepare_foreground();
		tell();
	}
}

static void
transaction_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			if (is_foreground())
				ttl_counters_prepare_foreground();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			if (is_foreground())
				tell();
			break;
		default:
			break;
	}
}

void
ttl_budget_exempt(void)
{
	exempt = true;
}

void
ttl_budget_init(void)
{
	ttl_execution_on_end(execution_ended);
	RegisterXactCallback(transaction_event, NULL);
}

bool
ttl_replica_connected(void)
{
	bool		found = false;

	for (int i = 0; i < max_wal_senders && !found; i++)
	{
		WalSnd	   *sender = &WalSndCtl->walsnds[i];

		SpinLockAcquire(&sender->mutex);
		found = sender->pid != 0;
		SpinLockRelease(&sender->mutex);
	}
	return found;
}

uint64
ttl_replica_lag(void)
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
		/* not everybody applies (pg_receivewal), or flushes, what he gets */
		done = sender->apply != InvalidXLogRecPtr ? sender->apply :
			sender->flush != InvalidXLogRecPtr ? sender->flush : sender->write;
		SpinLockRelease(&sender->mutex);

		/* a base backup, or one that hasn't said anything yet */
		if (!active || done == InvalidXLogRecPtr)
			continue;
		slowest = Min(slowest, done);
	}
	return end - slowest;
}
