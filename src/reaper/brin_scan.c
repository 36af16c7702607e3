/*-------------------------------------------------------------------------
 *
 * brin_scan.c
 *	  Finds the rows to delete of a table that has BRIN expiry indexes.
 *
 * With indexing => 'lazy' the expiry indexes hold one summary for a range of pages.
 * A scan reads the summaries from the first page to the last, and searches the
 * ranges whose summaries do not exclude expired rows.  It is done in pieces, each
 * about as long as a batch; the next piece starts where the last one stopped.
 *
 * A summary does not change when rows are deleted or renewed, and new pages have
 * none.  So a range in which a scan finds nothing to delete is summarized anew.  The
 * new summary includes rows that are dead, but not removable yet, so the range may
 * remain a candidate; a scan tries that RENEW_MAX times at most.  Summarizing takes
 * a lock that conflicts with VACUUM's; if it is not available, a later scan does it.
 *
 * The next scan starts when the first row expires in the ranges that this one has
 * passed by.  Rows that expire earlier may be inserted, so it starts after a while
 * anyway, depending on the number of summaries to be read.  If the table has grown,
 * the new pages are scanned at once.  After a scan that found rows the next one starts
 * soon.  Scans take a small share of the time.
 *
 * What a change of policy has made expired, and ttl.grace excludes, does not make a
 * range a candidate; so other expired rows there may have to wait until it ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/int.h"
#include "container/container.h"
#include "executor/instrument.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "reaper/reaper_internal.h"
#include "reaper/reap_rel.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* How long a piece takes, about */
#define PIECE_TIME			(50 * INT64CONST(1000))

/* Summaries that are read between looks at the clock */
#define RANGES_PER_LOOK		1024

/* Ranges that are summarized in one transaction, and in vain in one scan */
#define RENEW_MAX			16

/* Time between scans: so many times as long as one took ... */
#define SCAN_SHARE			20

/* ... and at most this, or so much for each range if there are many. */
#define IDLE_WAIT			(10 * USECS_PER_SEC)
#define IDLE_WAIT_PER_RANGE	INT64CONST(1000)

/* A piece of a scan */
typedef struct Piece
{
	TtlBatch   *batch;
	TimestampTz started;
	BufferUsage used;			/* before */
	int64		ranges;			/* seen */
	TtlRange	range;			/* the candidate that is being searched */
	bool		is_searching;
	int			ntids;			/* TIDs that had been collected before it */
	TtlRange	renewals[RENEW_MAX];	/* ranges without rows to delete */
	int			nrenewals;
} Piece;

/* The default TTL that the candidate ranges depend on */
static int32
candidate_default_ttl(const TtlBatch *batch)
{
	return batch->in_grace ? batch->container.change.former_ttl : batch->container.default_ttl;
}

/* Is it time for a scan from the first page? */
static bool
is_due(const TtlBatch *batch)
{
	const TtlBrinScan *scan = &batch->reap_rel->state.brin_scan;

	return GetCurrentTimestamp() >= scan->next_at ||
		scan->default_ttl != candidate_default_ttl(batch);
}

bool
ttl_brin_scan_rests(TtlBatch *batch, TimestampTz *due)
{
	TtlBrinScan *scan = &batch->reap_rel->state.brin_scan;
	BlockNumber npages = RelationGetNumberOfBlocks(batch->rel);

	*due = scan->next_at;
	if (scan->is_running || npages > scan->npages || is_due(batch))
		return false;
	scan->npages = npages;		/* it may have been truncated */
	return true;
}

/* Begins a scan at the first page, or where the table has grown since the last one. */
static void
begin_scan(TtlBatch *batch)
{
	TtlBrinScan *scan = &batch->reap_rel->state.brin_scan;

	scan->is_running = true;
	scan->is_full = is_due(batch);
	scan->position = (TtlExpiryPosition)
	{
		.page = scan->is_full ? 0 : scan->npages
	};
	scan->npages = RelationGetNumberOfBlocks(batch->rel);
	scan->default_ttl = candidate_default_ttl(batch);
	scan->busy = 0;
	scan->found = false;
	scan->ranges = 0;
	scan->renewed_in_vain = 0;
	if (scan->is_full)
	{
		scan->earliest = DT_NOEND;
		ttl_reap_rel_begin_pass(batch->reap_rel, batch->now);
	}
}

/* Schedules the next scan. */
static void
end_scan(TtlBatch *batch)
{
	TtlBrinScan *scan = &batch->reap_rel->state.brin_scan;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next_at;

	if (scan->found)
		next_at = now + TTL_POSITION_WAIT;
	else if (pg_add_s64_overflow(scan->earliest, batch->container.reap_delay, &next_at))
		next_at = DT_NOEND;
	if (scan->is_full)
	{
		next_at = Min(next_at, now + Max(IDLE_WAIT, scan->ranges * IDLE_WAIT_PER_RANGE));
		next_at = Max(next_at, now + Max(TTL_POSITION_WAIT, scan->busy * SCAN_SHARE));
	}
	else
		next_at = Min(next_at, scan->next_at);
	scan->next_at = next_at;
	scan->is_running = false;
}

/* The end of a range: if it has no rows to delete, it is to be summarized anew. */
static void
leave_range(Piece *piece)
{
	TtlBatch   *batch = piece->batch;

	if (piece->is_searching && batch->reap_rel->tids.n == piece->ntids &&
		batch->reap_rel->state.brin_scan.renewed_in_vain < RENEW_MAX)
		piece->renewals[piece->nrenewals++] = piece->range;
	piece->is_searching = false;
}

static TtlExpiryStep
guide(void *arg, const TtlRange *range, bool may_have_expired)
{
	Piece	   *piece = arg;
	TtlBatch   *batch = piece->batch;
	TtlBrinScan *scan = &batch->reap_rel->state.brin_scan;
	bool		looks = piece->is_searching || (piece->ranges + 1) % RANGES_PER_LOOK == 0;

	leave_range(piece);
	if (piece->nrenewals == RENEW_MAX ||
		(looks && (GetCurrentTimestamp() > piece->started + PIECE_TIME ||
				   ttl_budget_cost_since(&piece->used) >= batch->max_cost)))
	{
		batch->reap_rel->more = true;
		return TTL_WALK_STOP;
	}
	piece->ranges++;
	if (!may_have_expired)
	{
		scan->earliest = Min(scan->earliest, range->earliest);
		return TTL_WALK_PASS;
	}
	piece->range = *range;
	piece->is_searching = true;
	piece->ntids = batch->reap_rel->tids.n;
	return TTL_WALK_ENTER;
}

/*
 * Summarizes ranges anew, if the lock is available at once.  It lasts as long as the
 * transaction, which may be a user's.
 */
static void
renew_ranges(Piece *piece)
{
	TtlBatch   *batch = piece->batch;
	TtlBrinScan *scan = &batch->reap_rel->state.brin_scan;
	TtlExpiryWalk *walk;
	TtlSummaries *summaries;

	if (piece->nrenewals == 0)
		return;
	if (!batch->memory->mode.commits ||
		!ttl_container_is_owner(GetUserId(), RelationGetRelid(batch->rel)) ||
		!ConditionalLockRelation(batch->rel, ShareUpdateExclusiveLock) ||
		!ttl_expiry_lock_indexes(batch->rel, ShareUpdateExclusiveLock))
	{
		scan->renewed_in_vain = RENEW_MAX;
		return;
	}
	walk = ttl_expiry_walk_begin(batch->rel, &batch->container, batch->now,
								 GetActiveSnapshot(), NULL);
	summaries = ttl_expiry_walk_summaries(walk);
	for (int i = 0; i < piece->nrenewals; i++)
	{
		TtlRange	range = piece->renewals[i];

		CHECK_FOR_INTERRUPTS();
		ttl_summaries_renew(summaries, &range, batch->now);
		ttl_summaries_seek(summaries, range.first);
		while (ttl_summaries_next(summaries, &range) && range.first < piece->renewals[i].end)
		{
			if (range.earliest > batch->now)
				scan->earliest = Min(scan->earliest, range.earliest);
			else
				scan->renewed_in_vain++;
		}
	}
	ttl_expiry_walk_end(walk);
}

void
ttl_brin_scan_run(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlBrinScan *scan = &reap_rel->state.brin_scan;
	Piece		piece = {.batch = batch, .started = GetCurrentTimestamp(), .used = pgBufferUsage};

	if (!scan->is_running)
		begin_scan(batch);

	PushActiveSnapshot(GetTransactionSnapshot());
	ttl_reap_rel_collect(batch, batch->now, &scan->position, guide, &piece);
	if (!reap_rel->more)
		leave_range(&piece);
	renew_ranges(&piece);
	PopActiveSnapshot();

	scan->found = scan->found || reap_rel->tids.n > 0;
	scan->busy += GetCurrentTimestamp() - piece.started;
	scan->ranges += piece.ranges;
	if (!reap_rel->more)
		end_scan(batch);
}
