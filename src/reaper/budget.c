/*-------------------------------------------------------------------------
 *
 * budget.c
 *	  The budget of a worker's cycle, in the units of cost.c, and the naps by which it is spent evenly.
 *
 * A cycle is granted ttl.cycle_cost_limit.  With ttl.throughput set, it is
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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "counters.h"
#include "guc.h"
#include "reaper/reaper_internal.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

/* The longest time over which provisioned throughput accumulates, microseconds */
#define LONGEST_CYCLE		INT64CONST(10000000)

/* Pacing, microseconds */
#define BATCH_PERIOD		INT64CONST(20000)
#define SHORTEST_NAP		INT64CONST(2000)

/* The cycle's budget, and what has been spent of it */
static int64 granted = 0;
static int64 spent = 0;

/* So much of 'spent' needs no more naps. */
static int64 paid = 0;

/* Time spent napping, in microseconds */
static int64 napped = 0;

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

/* What a cycle that starts now may spend; the reason why it ends if that is not enough */
static int64
choose_grant(const TtlDatabaseCounters *counters, TimestampTz now, TtlStop *stop)
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

	/* in the first cycle, and after the clock has been set back */
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
 * Begins a cycle's budget, given the statistics.  Returns what it may spend; *stop becomes the
 * reason why the cycle ends if that is not enough.
 */
int64
ttl_budget_grant(const TtlDatabaseCounters *counters, TimestampTz now, TtlStop *stop)
{
	granted = choose_grant(counters, now, stop);
	spent = 0;
	paid = 0;
	return granted;
}

/* Counts what has been spent of the budget. */
void
ttl_budget_spend(int64 cost)
{
	spent += cost;
}

/* What the cycle has spent so far */
int64
ttl_budget_spent(void)
{
	return spent;
}

/* Time spent napping by this process, in microseconds */
int64
ttl_budget_napped(void)
{
	return napped;
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
int64
ttl_budget_batch(void)
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

/* Naps as long as what the cycle has spent so far is worth, and what has not been recorded yet. */
void
ttl_budget_nap(int64 unrecorded)
{
	int64		total = spent + unrecorded;
	int64		length = nap_length(total - paid);
	TimestampTz started = GetCurrentTimestamp();

	if (length == 0)
		return;

	/*
	 * a latch that is set for another reason ends no nap, but ttl.reaper =
	 * off does
	 */
	while (GetCurrentTimestamp() < started + length && ttl_guc_reaper)
		ttl_nap_until(started + length);
	paid = total;
	napped += GetCurrentTimestamp() - started;
}
