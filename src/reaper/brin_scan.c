/*-------------------------------------------------------------------------
 *
 * brin_scan.c
 *	  Finds the rows that are to be deleted where indexes tell pages alone.
 *
 * With indexing => 'lazy' a table is swept: the summaries of its BRIN indexes are read
 * from the first page to the last, and pages of which they can't tell that nothing
 * has expired are searched for expired rows.  A walk goes as far as is to be had in a
 * batch's time; the next goes on where it has stopped.
 *
 * What a sweep has been to, it has summarized anew, for a summary doesn't notice that
 * rows have gone or have been renewed, and of new pages there is none.  That waits
 * until what was deleted there is dead for everybody, for until then it would be
 * summarized, too; and meanwhile no sweep needs to go there again, unless it takes
 * long.  It takes a lock that VACUUM wants, too: if it isn't to be had at once, later.
 *
 * The next sweep begins when the earliest row expires that the last one has passed
 * by.  Rows that expire earlier may come; so it begins after a while anyway, which
 * depends on how many ranges there are, for it reads all their summaries.  If the
 * table has grown, the new pages are swept at the next run.  After a sweep that
 * found something it begins soon, but sweeps take a small share of time only.
 *
 * What a change of policy has made expired, and is spared, is no reason to go to its
 * pages; so rows that were written since, and have expired, may wait until that ends.
 *
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "common/int.h"
#include "container/container.h"
#include "executor/instrument.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "reaper/reaper_internal.h"
#include "reaper/reap_rel.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* So many are remembered, of all tables; others are just gone to again. */
#define RANGES_MAX			10000

/* What can't be summarized anew in this time is forgotten. */
#define RENEWAL_MAX_WAIT	(600 * USECS_PER_SEC)

HTAB *
ttl_brin_ranges_create(MemoryContext context)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(TtlBrinRangeKey);
	ctl.entrysize = sizeof(TtlBrinRange);
	ctl.hcxt = context;
	return hash_create("ttl ranges", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

static void
add_range(TtlMemory *memory, TtlReapRel *reap_rel, BlockNumber first, BlockNumber end)
{
	TtlBrinRangeKey key = {.relid = reap_rel->relid, .first = first};
	bool		is_full = hash_get_num_entries(memory->ranges) >= RANGES_MAX;
	TtlBrinRange *range;
	bool		found;

	range = (TtlBrinRange *) hash_search(memory->ranges, &key,
										 is_full ? HASH_FIND : HASH_ENTER, &found);
	if (range == NULL)
		return;
	if (!found)
		reap_rel->ranges++;
	range->end = end;
	range->been_at = GetCurrentTimestamp();
	range->is_renewed = false;
	range->dead_before = InvalidTransactionId;
}

static bool
has_been_to(TtlMemory *memory, TtlReapRel *reap_rel, BlockNumber first, TimestampTz since)
{
	TtlBrinRangeKey key = {.relid = reap_rel->relid, .first = first};
	TtlBrinRange *range = reap_rel->ranges == 0 ? NULL :
	(TtlBrinRange *) hash_search(memory->ranges, &key, HASH_FIND, NULL);

	return range != NULL && range->been_at > since;
}

/* The next range of the reap_rel, NULL at the end */
static TtlBrinRange *
next_range(HASH_SEQ_STATUS *status, TtlReapRel *reap_rel)
{
	TtlBrinRange *range;

	while ((range = (TtlBrinRange *) hash_seq_search(status)) != NULL)
	{
		if (range->key.relid == reap_rel->relid)
			break;
	}
	return range;
}

static void
seal_ranges(TtlMemory *memory, TtlReapRel *reap_rel)
{
	HASH_SEQ_STATUS status;
	TtlBrinRange *range;

	if (reap_rel->ranges == 0)
		return;
	hash_seq_init(&status, memory->ranges);
	while ((range = next_range(&status, reap_rel)) != NULL)
	{
		if (!TransactionIdIsValid(range->dead_before))
			range->dead_before = ReadNextTransactionId();
	}
}

static int
ranges_to_renew(TtlMemory *memory, TtlReapRel *reap_rel, TransactionId horizon,
						 TtlBrinRange **ranges, int max)
{
	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS status;
	TtlBrinRange *range;
	int			n = 0;

	if (reap_rel->ranges == 0)
		return 0;
	hash_seq_init(&status, memory->ranges);
	while ((range = next_range(&status, reap_rel)) != NULL)
	{
		if (now - range->been_at > RENEWAL_MAX_WAIT)
		{
			(void) hash_search(memory->ranges, &range->key, HASH_REMOVE, NULL);
			reap_rel->ranges--;
		}
		else if (!range->is_renewed && TransactionIdIsValid(range->dead_before) &&
				 TransactionIdPrecedesOrEquals(range->dead_before, horizon))
		{
			ranges[n++] = range;
			if (n == max)
			{
				hash_seq_term(&status);
				break;
			}
		}
	}
	return n;
}

void
ttl_brin_forget_ranges(TtlMemory *memory, TtlReapRel *reap_rel)
{
	HASH_SEQ_STATUS status;
	TtlBrinRange *range;

	if (reap_rel->ranges == 0)
		return;
	hash_seq_init(&status, memory->ranges);
	while ((range = next_range(&status, reap_rel)) != NULL)
	{
		(void) hash_search(memory->ranges, &range->key, HASH_REMOVE, NULL);
		reap_rel->ranges--;
	}
}

/*
 * Places that are collected in one walk, and how long one takes, about.  It has to come
 * past a page, and the next begins on the page where it has stopped.
 */
#define COLLECT_MAX			50000
#define COLLECT_MIN			Max(500, MaxHeapTuplesPerPage + 1)
#define WALK_TIME			(50 * INT64CONST(1000))

/* Summaries that are read between looks at the clock */
#define RANGES_PER_LOOK		1024

/* Ranges that are summarized in one batch. */
#define RENEW_MAX			16

/* A range that the sweep has been to is left alone for so long. */
#define RANGE_WAIT			(10 * USECS_PER_SEC)

/* Time between sweeps: so many times as long as one took ... */
#define SCAN_SHARE			20

/* ... and at most this, or so much for each range if there are many. */
#define IDLE_WAIT			(10 * USECS_PER_SEC)
#define IDLE_WAIT_PER_RANGE	INT64CONST(1000)

/* A walk, while it goes on */
typedef struct Walk
{
	TtlBatch    *batch;
	TimestampTz started;
	bool		stopped;		/* by itself, before the end */
	int64		ranges;			/* seen */
	int			entered;
	BufferUsage used;			/* before */
} Walk;

/* The default TTL by which pages are candidates */
static int32
candidate_default_ttl(const TtlBatch *batch)
{
	return batch->in_grace ? batch->container.change.former_ttl : batch->container.default_ttl;
}

bool
ttl_brin_scan_rests(TtlBatch *batch, TimestampTz *due)
{
	TtlBrinScan   *scan = &batch->reap_rel->state.brin_scan;
	TimestampTz now = GetCurrentTimestamp();

	TtlBrinRange *range;

	/* what was collected before has been dealt with */
	seal_ranges(batch->memory, batch->reap_rel);
	*due = scan->next_at;
	return !scan->is_running && now < scan->next_at &&
		scan->default_ttl == candidate_default_ttl(batch) &&
		RelationGetNumberOfBlocks(batch->rel) <= scan->npages &&
		ranges_to_renew(batch->memory, batch->reap_rel,
								 GetOldestNonRemovableTransactionId(batch->rel),
								 &range, 1) == 0;
}

/* Begins a sweep at the first page, or at what the table has grown by since. */
static void
begin_scan(TtlBatch *batch)
{
	TtlBrinScan   *scan = &batch->reap_rel->state.brin_scan;
	TimestampTz now = GetCurrentTimestamp();
	BlockNumber npages = RelationGetNumberOfBlocks(batch->rel);
	bool		is_due = now >= scan->next_at || scan->default_ttl != candidate_default_ttl(batch);

	if (scan->is_running)
		return;
	if (!is_due && npages <= scan->npages)
	{
		scan->npages = npages;
		return;
	}
	scan->is_running = true;
	scan->is_full = is_due;
	scan->position = (TtlExpiryPosition)
	{
		.page = is_due ? 0 : scan->npages
	};
	scan->npages = npages;
	scan->default_ttl = candidate_default_ttl(batch);
	scan->busy = 0;
	scan->found = false;
	scan->ranges = 0;
	if (is_due)
	{
		scan->earliest = DT_NOEND;
		ttl_reap_rel_begin_pass(batch->reap_rel, batch->now);
	}
}

static TtlExpiryStep
guide(void *arg, const TtlRange *range, bool may_have_expired)
{
	Walk	   *walk = arg;
	TtlBatch    *batch = walk->batch;
	TtlBrinScan   *scan = &batch->reap_rel->state.brin_scan;

	if ((walk->entered > 0 || (walk->ranges > 0 && walk->ranges % RANGES_PER_LOOK == 0)) &&
		(GetCurrentTimestamp() > walk->started + WALK_TIME ||
		 ttl_budget_cost_since(&walk->used) >= batch->max_cost))
	{
		walk->stopped = true;
		return TTL_WALK_STOP;
	}
	walk->ranges++;
	if (!may_have_expired)
	{
		scan->earliest = Min(scan->earliest, range->earliest);
		return TTL_WALK_PASS;
	}
	if (!scan->is_within_range &&
		has_been_to(batch->memory, batch->reap_rel, range->first,
							 walk->started - RANGE_WAIT))
		return TTL_WALK_PASS;
	scan->is_within_range = false;
	walk->entered++;
	add_range(batch->memory, batch->reap_rel, range->first, range->end);
	return TTL_WALK_ENTER;
}

/* Goes on with the scan, and ends it when it has come to the last page. */
static void
continue_scan(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	TtlBrinScan   *scan = &reap_rel->state.brin_scan;
	Walk		walk = {.batch = batch, .started = GetCurrentTimestamp(), .used = pgBufferUsage};
	int			limit;
	TtlExpiryWalk *rows;
	TupleTableSlot *slot = NULL;
	bool		incomplete;
	TimestampTz now;

	batch->referenced = reap_rel->skip_referenced_check ? NIL : ttl_fk_referenced_keys(batch);
	limit = (int) Min(Max(batch->max_cost, COLLECT_MIN),
					  batch->referenced != NIL ? TTL_FK_REFERENCED_MAX : COLLECT_MAX);
	rows = ttl_expiry_walk_begin(batch->rel, &batch->container, batch->now,
								 GetActiveSnapshot(), &scan->position);
	if (batch->in_grace)
		ttl_expiry_walk_exclude(rows);
	ttl_expiry_walk_guide(rows, guide, &walk);
	while (reap_rel->tids.n < limit && (slot = ttl_expiry_walk_next(rows, NULL)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		ttl_reap_rel_add_tid(batch->memory, reap_rel, &slot->tts_tid);
	}
	scan->found = scan->found || reap_rel->tids.n > 0;
	incomplete = ttl_expiry_walk_is_incomplete(rows);
	ttl_expiry_walk_end(rows);

	now = GetCurrentTimestamp();
	scan->busy += now - walk.started;
	scan->ranges += walk.ranges;
	scan->is_within_range = slot != NULL;
	reap_rel->more = slot != NULL || walk.stopped;
	if (reap_rel->more)
		return;

	if (incomplete && reap_rel->tids.n == 0)
		ttl_expiry_report_incomplete(batch->rel);
	reap_rel->lacks_index = reap_rel->lacks_index && incomplete;
	scan->is_running = false;
	memset(&scan->position, 0, sizeof(scan->position));
	if (scan->is_full)
	{
		TimestampTz earliest;

		if (pg_add_s64_overflow(scan->earliest, batch->container.reap_delay, &earliest))
			earliest = DT_NOEND;
		scan->next_at = scan->found ? now + TTL_POSITION_WAIT :
			Min(earliest, now + Max(IDLE_WAIT, scan->ranges * IDLE_WAIT_PER_RANGE));
		scan->next_at = Max(scan->next_at, now + Max(TTL_POSITION_WAIT, scan->busy * SCAN_SHARE));
	}
	else if (scan->found)
		scan->next_at = Min(scan->next_at, now + TTL_POSITION_WAIT);
}

/* Takes the locks under which summaries are made, if nobody has them. */
static bool
lock_for_renewal(Relation rel)
{
	return ConditionalLockRelation(rel, ShareUpdateExclusiveLock) &&
		ttl_expiry_lock_indexes(rel, ShareUpdateExclusiveLock);
}

/* Summarizes a range anew; what remains there may expire before all others. */
static void
renew_range(TtlBatch *batch, TtlSummaries *summaries, const TtlBrinRange *been_to)
{
	TtlBrinScan   *scan = &batch->reap_rel->state.brin_scan;
	TtlRange	range = {.first = been_to->key.first, .end = been_to->end};

	ttl_summaries_renew(summaries, &range, batch->now);
	ttl_summaries_seek(summaries, been_to->key.first);
	while (ttl_summaries_next(summaries, &range) && range.first < been_to->end)
	{
		TimestampTz earliest;

		if (range.earliest <= batch->now ||
			pg_add_s64_overflow(range.earliest, batch->container.reap_delay, &earliest))
			continue;
		scan->earliest = Min(scan->earliest, range.earliest);
		scan->next_at = Min(scan->next_at, earliest);
	}
}

/* Summarizes ranges anew where all that has gone is dead for everybody. */
static void
renew_ranges(TtlBatch *batch)
{
	TtlBrinRange *ranges[RENEW_MAX];
	int			n = ranges_to_renew(batch->memory, batch->reap_rel,
											 GetOldestNonRemovableTransactionId(batch->rel),
											 ranges, RENEW_MAX);
	TtlExpiryWalk *walk;

	/* the locks last as long as the transaction, which may be a user's */
	if (n == 0 || !batch->memory->mode.commits ||
		!ttl_container_is_owner(GetUserId(), RelationGetRelid(batch->rel)) ||
		!lock_for_renewal(batch->rel))
		return;
	walk = ttl_expiry_walk_begin(batch->rel, &batch->container, batch->now,
								 GetActiveSnapshot(), NULL);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		renew_range(batch, ttl_expiry_walk_summaries(walk), ranges[i]);
		ranges[i]->is_renewed = true;
	}
	ttl_expiry_walk_end(walk);
	batch->reap_rel->more = n == RENEW_MAX;
}

void
ttl_brin_scan_run(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;

	reap_rel->more = false;

	PushActiveSnapshot(GetTransactionSnapshot());
	begin_scan(batch);
	if (reap_rel->state.brin_scan.is_running)
		continue_scan(batch);
	if (reap_rel->tids.n == 0 && !reap_rel->more)
	{
		seal_ranges(batch->memory, reap_rel);
		renew_ranges(batch);
	}
	PopActiveSnapshot();
}
