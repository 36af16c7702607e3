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
 * table has grown, the new pages are swept at the next turn.  After a sweep that
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
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
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

void
ttl_brin_add_range(TtlMemory *memory, TtlReapRel *leaf, BlockNumber first, BlockNumber end)
{
	TtlBrinRangeKey key = {.relid = leaf->relid, .first = first};
	bool		is_full = hash_get_num_entries(memory->ranges) >= RANGES_MAX;
	TtlBrinRange *range;
	bool		found;

	range = (TtlBrinRange *) hash_search(memory->ranges, &key,
										 is_full ? HASH_FIND : HASH_ENTER, &found);
	if (range == NULL)
		return;
	if (!found)
		leaf->ranges++;
	range->end = end;
	range->been_at = GetCurrentTimestamp();
	range->is_renewed = false;
	range->dead_before = InvalidTransactionId;
}

bool
ttl_reap_rel_has_been_to(TtlMemory *memory, TtlReapRel *leaf, BlockNumber first, TimestampTz since)
{
	TtlBrinRangeKey key = {.relid = leaf->relid, .first = first};
	TtlBrinRange *range = leaf->ranges == 0 ? NULL :
	(TtlBrinRange *) hash_search(memory->ranges, &key, HASH_FIND, NULL);

	return range != NULL && range->been_at > since;
}

/* The next range of the leaf, NULL at the end */
static TtlBrinRange *
next_range(HASH_SEQ_STATUS *status, TtlReapRel *leaf)
{
	TtlBrinRange *range;

	while ((range = (TtlBrinRange *) hash_seq_search(status)) != NULL)
	{
		if (range->key.relid == leaf->relid)
			break;
	}
	return range;
}

void
ttl_brin_seal_ranges(TtlMemory *memory, TtlReapRel *leaf)
{
	HASH_SEQ_STATUS status;
	TtlBrinRange *range;

	if (leaf->ranges == 0)
		return;
	hash_seq_init(&status, memory->ranges);
	while ((range = next_range(&status, leaf)) != NULL)
	{
		if (!TransactionIdIsValid(range->dead_before))
			range->dead_before = ReadNextTransactionId();
	}
}

int
ttl_brin_ranges_to_renew(TtlMemory *memory, TtlReapRel *leaf, TransactionId horizon,
						 TtlBrinRange **ranges, int max)
{
	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS status;
	TtlBrinRange *range;
	int			n = 0;

	if (leaf->ranges == 0)
		return 0;
	hash_seq_init(&status, memory->ranges);
	while ((range = next_range(&status, leaf)) != NULL)
	{
		if (now - range->been_at > RENEWAL_MAX_WAIT)
		{
			(void) hash_search(memory->ranges, &range->key, HASH_REMOVE, NULL);
			leaf->ranges--;
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
ttl_brin_forget_ranges(TtlMemory *memory, TtlReapRel *leaf)
{
	HASH_SEQ_STATUS status;
	TtlBrinRange *range;

	if (leaf->ranges == 0)
		return;
	hash_seq_init(&status, memory->ranges);
	while ((range = next_range(&status, leaf)) != NULL)
	{
		(void) hash_search(memory->ranges, &range->key, HASH_REMOVE, NULL);
		leaf->ranges--;
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

/* Ranges that are summarized in one step. */
#define RENEW_MAX			16

/* A range that the sweep has been to is left alone for so long. */
#define RANGE_WAIT			(10 * USECS_PER_SEC)

/* Time between sweeps: so many times as long as one took ... */
#define SWEEP_SHARE			20

/* ... and at most this, or so much for each range if there are many. */
#define IDLE_WAIT			(10 * USECS_PER_SEC)
#define IDLE_WAIT_PER_RANGE	INT64CONST(1000)

/* A walk, while it goes on */
typedef struct Walk
{
	TtlStep    *step;
	TimestampTz started;
	bool		stopped;		/* by itself, before the end */
	int64		ranges;			/* seen */
	int			entered;
	BufferUsage used;			/* before */
} Walk;

/* The default TTL by which pages are candidates */
static int32
candidate_default_ttl(const TtlStep *step)
{
	return step->spares ? step->container.change.former_ttl : step->container.default_ttl;
}

bool
ttl_brin_scan_rests(TtlStep *step, TimestampTz *due)
{
	TtlBrinScan   *sweep = &step->leaf->state.sweep;
	TimestampTz now = GetCurrentTimestamp();

	TtlBrinRange *range;

	/* what was collected before has been dealt with */
	ttl_brin_seal_ranges(step->memory, step->leaf);
	*due = sweep->next_at;
	return !sweep->is_running && now < sweep->next_at &&
		sweep->default_ttl == candidate_default_ttl(step) &&
		RelationGetNumberOfBlocks(step->rel) <= sweep->npages &&
		ttl_brin_ranges_to_renew(step->memory, step->leaf,
								 GetOldestNonRemovableTransactionId(step->rel),
								 &range, 1) == 0;
}

/* Begins a sweep at the first page, or at what the table has grown by since. */
static void
begin_sweep(TtlStep *step)
{
	TtlBrinScan   *sweep = &step->leaf->state.sweep;
	TimestampTz now = GetCurrentTimestamp();
	BlockNumber npages = RelationGetNumberOfBlocks(step->rel);
	bool		is_due = now >= sweep->next_at || sweep->default_ttl != candidate_default_ttl(step);

	if (sweep->is_running)
		return;
	if (!is_due && npages <= sweep->npages)
	{
		sweep->npages = npages;
		return;
	}
	sweep->is_running = true;
	sweep->is_truncation = is_due;
	sweep->mark = (TtlExpiryPosition)
	{
		.page = is_due ? 0 : sweep->npages
	};
	sweep->npages = npages;
	sweep->default_ttl = candidate_default_ttl(step);
	sweep->busy = 0;
	sweep->found = false;
	sweep->ranges = 0;
	if (is_due)
	{
		sweep->earliest = DT_NOEND;
		ttl_reap_rel_begin_pass(step->leaf, step->now);
	}
}

static TtlExpiryStep
guide(void *arg, const TtlRange *range, bool may_have_expired)
{
	Walk	   *walk = arg;
	TtlStep    *step = walk->step;
	TtlBrinScan   *sweep = &step->leaf->state.sweep;

	if ((walk->entered > 0 || (walk->ranges > 0 && walk->ranges % RANGES_PER_LOOK == 0)) &&
		(GetCurrentTimestamp() > walk->started + WALK_TIME ||
		 ttl_budget_cost_since(&walk->used) >= step->max_cost))
	{
		walk->stopped = true;
		return TTL_WALK_STOP;
	}
	walk->ranges++;
	if (!may_have_expired)
	{
		sweep->earliest = Min(sweep->earliest, range->earliest);
		return TTL_WALK_PASS;
	}
	if (!sweep->is_within_range &&
		ttl_reap_rel_has_been_to(step->memory, step->leaf, range->first,
							 walk->started - RANGE_WAIT))
		return TTL_WALK_PASS;
	sweep->is_within_range = false;
	walk->entered++;
	ttl_brin_add_range(step->memory, step->leaf, range->first, range->end);
	return TTL_WALK_ENTER;
}

/* Goes on with the sweep, and ends it when it has come to the last page. */
static void
sweep_on(TtlStep *step)
{
	TtlReapRel    *leaf = step->leaf;
	TtlBrinScan   *sweep = &leaf->state.sweep;
	Walk		walk = {.step = step, .started = GetCurrentTimestamp(), .used = pgBufferUsage};
	int			limit;
	TtlExpiryWalk *rows;
	TupleTableSlot *slot = NULL;
	bool		incomplete;
	TimestampTz now;

	step->referenced = leaf->skip_asking ? NULL : ttl_fk_referenced_begin(step);
	limit = (int) Min(Max(step->max_cost, COLLECT_MIN),
					  step->referenced ? TTL_FK_REFERENCED_MAX : COLLECT_MAX);
	rows = ttl_expiry_walk_begin(step->rel, &step->container, step->now,
								 GetActiveSnapshot(), &sweep->mark);
	if (step->spares)
		ttl_expiry_walk_exclude(rows);
	ttl_expiry_walk_guide(rows, guide, &walk);
	while (leaf->places.n < limit && (slot = ttl_expiry_walk_next(rows, NULL)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		ttl_reap_rel_add_place(step->memory, leaf, &slot->tts_tid);
		if (step->referenced)
			ttl_fk_referenced_add(step->referenced, slot);
	}
	sweep->found = sweep->found || leaf->places.n > 0;
	incomplete = ttl_expiry_walk_is_incomplete(rows);
	ttl_expiry_walk_end(rows);

	now = GetCurrentTimestamp();
	sweep->busy += now - walk.started;
	sweep->ranges += walk.ranges;
	sweep->is_within_range = slot != NULL;
	leaf->more = slot != NULL || walk.stopped;
	if (leaf->more)
		return;

	if (incomplete && leaf->places.n == 0)
		ttl_expiry_report_incomplete(step->rel);
	leaf->lacks_index = leaf->lacks_index && incomplete;
	sweep->is_running = false;
	memset(&sweep->mark, 0, sizeof(sweep->mark));
	if (sweep->is_truncation)
	{
		TimestampTz earliest;

		if (pg_add_s64_overflow(sweep->earliest, step->container.reap_delay, &earliest))
			earliest = DT_NOEND;
		sweep->next_at = sweep->found ? now + TTL_MARK_WAIT :
			Min(earliest, now + Max(IDLE_WAIT, sweep->ranges * IDLE_WAIT_PER_RANGE));
		sweep->next_at = Max(sweep->next_at, now + Max(TTL_MARK_WAIT, sweep->busy * SWEEP_SHARE));
	}
	else if (sweep->found)
		sweep->next_at = Min(sweep->next_at, now + TTL_MARK_WAIT);
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
renew_range(TtlStep *step, TtlSummaries *summaries, const TtlBrinRange *been_to)
{
	TtlBrinScan   *sweep = &step->leaf->state.sweep;
	TtlRange	range = {.first = been_to->key.first, .end = been_to->end};

	ttl_summaries_renew(summaries, &range, step->now);
	ttl_summaries_seek(summaries, been_to->key.first);
	while (ttl_summaries_next(summaries, &range) && range.first < been_to->end)
	{
		TimestampTz earliest;

		if (range.earliest <= step->now ||
			pg_add_s64_overflow(range.earliest, step->container.reap_delay, &earliest))
			continue;
		sweep->earliest = Min(sweep->earliest, range.earliest);
		sweep->next_at = Min(sweep->next_at, earliest);
	}
}

/* Summarizes ranges anew where all that has gone is dead for everybody. */
static void
renew_ranges(TtlStep *step)
{
	TtlBrinRange *ranges[RENEW_MAX];
	int			n = ttl_brin_ranges_to_renew(step->memory, step->leaf,
											 GetOldestNonRemovableTransactionId(step->rel),
											 ranges, RENEW_MAX);
	TtlExpiryWalk *walk;

	/* the locks last as long as the transaction, which may be a user's */
	if (n == 0 || !step->memory->mode.commits ||
		!ttl_container_is_owner(GetUserId(), RelationGetRelid(step->rel)) ||
		!lock_for_renewal(step->rel))
		return;
	walk = ttl_expiry_walk_begin(step->rel, &step->container, step->now,
								 GetActiveSnapshot(), NULL);
	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		renew_range(step, ttl_expiry_walk_summaries(walk), ranges[i]);
		ranges[i]->is_renewed = true;
	}
	ttl_expiry_walk_end(walk);
	step->leaf->more = n == RENEW_MAX;
}

void
ttl_brin_scan_run(TtlStep *step)
{
	TtlReapRel    *leaf = step->leaf;

	leaf->more = false;

	PushActiveSnapshot(GetTransactionSnapshot());
	begin_sweep(step);
	if (leaf->state.sweep.is_running)
		sweep_on(step);
	if (leaf->places.n == 0 && !leaf->more)
	{
		ttl_brin_seal_ranges(step->memory, leaf);
		renew_ranges(step);
	}
	PopActiveSnapshot();
}
