/*-------------------------------------------------------------------------
 *
 * batch.c
 *	  Deletes the expired rows of a container, batch by batch.
 *
 * The worker and CALL ttl.reap run the same function; nothing here knows about
 * processes.
 *
 * Each table of a container (a "leaf") is treated in two steps.  First one
 * walk along its expiry indexes collects the places of many expired rows, then
 * they are deleted in batches of about BATCH_TIME, each in a transaction of
 * its own.  A walk for each batch would read the dead index entries of all
 * batches before it again.  A place collected in an earlier transaction may
 * hold another row by now; ttl_deletion_run() looks whether what is there is
 * expired by the policy of that moment, and a batch holds the policy lock, so
 * that moment lasts until it commits.
 *
 * The next walk starts at the mark where the last one stopped.  Rows may come
 * to lie behind the mark: given a _ts in the past, committed late, skipped
 * because locked or failed.  So now and then a walk starts from the left edge.
 * While an old snapshot keeps dead entries from being removed such a walk is
 * expensive; it is repeated after LEFT_MIN_WAIT at the earliest, so seldom
 * that it takes no more than 1/LEFT_SHARE of the time, and each time it finds
 * nothing the wait doubles, up to LEFT_MAX_WAIT.  The mark moves forward only
 * when what was collected has been dealt with in committed transactions.
 *
 * While rows that a change of policy has made expired are spared (ttl.grace), the
 * worker's walks leave them out, and so does the DELETE.  Looking at a container
 * that has nothing else costs no more than at an idle one.  A CALL spares nothing.
 *
 * A partition with much to delete is emptied as a whole where nobody can tell
 * the difference (whole.c).
 *
 * Whatever may fail runs in a subtransaction.  Then:
 *
 * - Row locked by somebody: the batch waits LOCK_WAIT for it, then leaves
 *	 locked rows out.  (SELECT FOR UPDATE SKIP LOCKED for all would write a WAL
 *	 record more for each row.)
 * - Cancellation, deadlock, lack of resources: an error for a user who has
 *	 called; the worker comes again after a while.
 * - What happens to a DELETE of no rows, too (a published table without replica
 *	 identity, an archive that has gone), is the table's fault: it pauses.
 * - Anything else is blamed on a row.  The batch is halved until the culprit is
 *	 alone; it is remembered, counted, logged, and tried again by itself after
 *	 BLOCKED_MIN_WAIT doubling to BLOCKED_MAX_WAIT.  After BLOCKED_IN_A_ROW such
 *	 rows in a row, the whole leaf pauses: then it isn't the row.
 * - If a row of the batch is still referenced, the batch is tried once more
 *	 together with the expired rows that reference its rows.  What the reaper may
 *	 not take yet, by the settings of its own container, stays, and so does what
 *	 it references.  That row is blamed late, because what references it may
 *	 expire soon: it is tried again after REFERENCED_WAIT, and only the
 *	 REFERENCED_TRIES'th failure is told.
 *
 * The worker takes no lock that it cannot have at once, except row locks and
 * what triggers and referential actions take, for LOCK_WAIT.  A user's call
 * waits for table and policy as any statement does.
 *
 * What is remembered dies with the process, so a new worker starts from the
 * left edge; but blocked rows and leaves in trouble are written down for it
 * (blocked.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "common/int.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "container/container.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "reaper/batch.h"
#include "reaper/blocked.h"
#include "reaper/budget.h"
#include "reaper/origin.h"
#include "reaper/progress.h"
#include "reaper/whole.h"

/* Places that are collected in one walk; fewer if little may be spent. */
#define COLLECT_MAX			50000
#define COLLECT_MIN			500

/* Places that are kept from turn to turn, for all tables together. */
#define KEEP_MAX			1000000

/* Rows of a batch, and the time it shall take, ms. */
#define BATCH_START			50
#define BATCH_MAX			10000
#define BATCH_TIME			50.0

/* How long a batch waits for a lock; what lock_timeout is set to. */
#define LOCK_WAIT			"50ms"

#define SECONDS(n)			((n) * USECS_PER_SEC)

/* Locked rows are left out at once for so long after they were met. */
#define LOCKED_MEMORY		SECONDS(1)

/* Time between walks from the left edge. */
#define LEFT_MIN_WAIT		SECONDS(10)
#define LEFT_MAX_WAIT		SECONDS(300)
#define LEFT_SHARE			20

/* Time between walks from the mark. */
#define MARK_WAIT			SECONDS(1)

/* Time until a blocked row, or a leaf in trouble, is tried again. */
#define BLOCKED_MIN_WAIT	SECONDS(60)
#define BLOCKED_MAX_WAIT	SECONDS(3600)
#define REFERENCED_WAIT		SECONDS(2)
#define REFERENCED_TRIES	4
#define PAUSE_MIN_WAIT		SECONDS(1)
#define PAUSE_MAX_WAIT		SECONDS(300)

/*
 * A partition is emptied as a whole if so many rows are known to be there to
 * delete; how long the worker may read it for that, and when it tries again
 * after an error.
 */
#define WHOLE_MIN_ROWS		500
#define WHOLE_TIME			(USECS_PER_SEC / 2)
#define WHOLE_ERROR_WAIT	SECONDS(600)

/*
 * Another process may be using the replication origin, for a batch.  The worker
 * tries so often, after so many ms, then it comes again later; a user's call
 * waits.
 */
#define ORIGIN_TRIES		10
#define ORIGIN_WAIT			10

/* Blocked rows that are remembered, and that make a leaf pause. */
#define BLOCKED_MAX			10000
#define BLOCKED_IN_A_ROW	100

/* Places of rows: those from 'next' on are still to be dealt with. */
typedef struct Places
{
	ItemPointerData *tids;
	int			allocated;
	int			n;
	int			next;
} Places;

/* What is remembered about a table. */
typedef struct Leaf
{
	Oid			relid;			/* MUST BE FIRST */
	TimestampTz last_turn;

	Places		places;			/* collected, to be deleted in batches */
	Places		retries;		/* collected, blocked before: one by one */
	bool		more;			/* did the walk stop before the end? */
	bool		fruitless;		/* has it found rows, and none was deleted? */
	bool		lacks_index;	/* told already */
	TtlExpiryMark mark;			/* all before it has been dealt with */
	TtlExpiryMark next_mark;	/* ... when the places have been, too */

	TimestampTz left_at;		/* next walk from the left edge */
	TimestampTz left_wait;
	uint32		left_walks;

	TimestampTz spared_since;	/* the change of policy by which places were
								 * left out, 0 = none */

	TtlWhole	whole;			/* if it can be emptied at once */

	int			batch_size;
	int			fixed_size;		/* what the container wants it to be, or 0 */
	double		row_cost;		/* of the last batch, 0 = unknown */
	TimestampTz locked_until;	/* leave out locked rows at once till then */
	int			blocked;		/* entries in the table of blocked rows */
	int			blocked_in_a_row;
	int64		told;			/* so many blocked rows are in the log already */
	TimestampTz paused_until;
	TimestampTz pause;
	int			trouble;		/* the error it is paused for, 0 = none was
								 * told */
} Leaf;

/* A row that cannot be deleted. */
typedef struct BlockedKey
{
	Oid			relid;
	ItemPointerData tid;
} BlockedKey;

typedef struct BlockedRow
{
	BlockedKey	key;			/* MUST BE FIRST */
	TimestampTz retry_at;
	TimestampTz wait;
	int			untold;			/* failures that need not be told yet */
	uint32		seen;			/* leaf's left_walks when last met */
} BlockedRow;

struct TtlBatchMemory
{
	TtlBatchMode mode;
	MemoryContext context;		/* all that is remembered */
	MemoryContext step_context; /* reset after each step */
	HTAB	   *leaves;
	HTAB	   *blocked;
	int64		allocated;		/* places there is room for */
};

/* A step: what one transaction does to a leaf. */
typedef struct Step
{
	TtlBatchMemory *memory;
	Leaf	   *leaf;
	TtlContainer container;
	Relation	rel;
	TimestampTz now;			/* rows that expired before go ... */
	bool		spares;			/* ... but for those that a change of policy
								 * has made expired */
	int64		max_cost;		/* what is left of the turn */
	int64		max_batch_cost;
	int64		max_rows;

	/* for delete_rows */
	ItemPointer tids;
	int			ntids;
	bool		skip_locked;
	bool		with_referencing;
	int64		deleted;
	bool		emptied;		/* by TRUNCATE */
	bool		origin_wanted;	/* about to take the replication origin */
	bool		works_without_rows;
} Step;

/* What came of a step. */
typedef enum StepResult
{
	STEP_MORE,					/* go on */
	STEP_DONE,					/* nothing is left here for now */
	STEP_AWAY					/* cannot go on now */
} StepResult;

/*
 * Returns an empty memory.
 */
TtlBatchMemory *
ttl_batch_memory_create(MemoryContext parent, TtlBatchMode mode)
{
	MemoryContext context;
	TtlBatchMemory *memory;
	HASHCTL		ctl;

	context = AllocSetContextCreate(parent, "ttl batches",
									ALLOCSET_DEFAULT_SIZES);
	memory = (TtlBatchMemory *) MemoryContextAllocZero(context,
													   sizeof(TtlBatchMemory));
	memory->mode = mode;
	memory->context = context;
	memory->step_context = AllocSetContextCreate(context, "ttl batch step",
												 ALLOCSET_DEFAULT_SIZES);

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(Leaf);
	ctl.hcxt = context;
	memory->leaves = hash_create("ttl leaves", 64, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ctl.keysize = sizeof(BlockedKey);
	ctl.entrysize = sizeof(BlockedRow);
	memory->blocked = hash_create("ttl blocked rows", 64, &ctl,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	return memory;
}

/*
 * Adds a place.
 */
static void
places_add(TtlBatchMemory *memory, Places *places, ItemPointer tid)
{
	if (places->n == places->allocated)
	{
		int			allocated = Max(64, places->allocated * 2);

		if (places->tids == NULL)
			places->tids = (ItemPointerData *)
				MemoryContextAlloc(memory->context,
								   allocated * sizeof(ItemPointerData));
		else
			places->tids = (ItemPointerData *)
				repalloc(places->tids, allocated * sizeof(ItemPointerData));
		memory->allocated += allocated - places->allocated;
		places->allocated = allocated;
	}
	places->tids[places->n++] = *tid;
}

static void
places_clear(TtlBatchMemory *memory, Places *places)
{
	if (places->tids != NULL)
		pfree(places->tids);
	memory->allocated -= places->allocated;
	memset(places, 0, sizeof(Places));
}

/*
 * Forgets what a walk has collected, as if it had not taken place.
 */
static void
leaf_discard(TtlBatchMemory *memory, Leaf *leaf)
{
	places_clear(memory, &leaf->places);
	places_clear(memory, &leaf->retries);
	leaf->more = false;
	leaf->next_mark = leaf->mark;
}

/*
 * What is remembered about a table; 'blocked' is the number of rows that the
 * statistics have as blocked, in case that it is nothing yet.
 */
static Leaf *
leaf_enter(TtlBatchMemory *memory, Oid relid, int64 blocked)
{
	Leaf	   *leaf;
	bool		found;

	leaf = (Leaf *) hash_search(memory->leaves, &relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(leaf, 0, sizeof(Leaf));
		leaf->relid = relid;
		leaf->left_wait = LEFT_MIN_WAIT;
		leaf->batch_size = BATCH_START;
		leaf->pause = PAUSE_MIN_WAIT;
		if (memory->mode.by_worker)
			leaf->told = blocked;
	}
	return leaf;
}

static void
blocked_key(BlockedKey *key, Oid relid, ItemPointer tid)
{
	memset(key, 0, sizeof(BlockedKey));
	key->relid = relid;
	key->tid = *tid;
}

/*
 * Forgets blocked rows of the leaf, all or those that the last complete walk
 * from the left edge has not met.
 */
static void
blocked_forget(TtlBatchMemory *memory, Leaf *leaf, bool all)
{
	HASH_SEQ_STATUS status;
	BlockedRow *row;

	if (leaf->blocked == 0)
		return;

	hash_seq_init(&status, memory->blocked);
	while ((row = (BlockedRow *) hash_seq_search(&status)) != NULL)
	{
		if (row->key.relid == leaf->relid &&
			(all || row->seen != leaf->left_walks))
		{
			if (memory->mode.by_worker)
				ttl_blocked_remove(leaf->relid, &row->key.tid);
			(void) hash_search(memory->blocked, &row->key, HASH_REMOVE, NULL);
			leaf->blocked--;
		}
	}
}

/*
 * Forgets that the leaf was in trouble.
 */
static void
end_pause(TtlBatchMemory *memory, Leaf *leaf)
{
	if (memory->mode.by_worker && leaf->paused_until != 0)
		ttl_blocked_remove(leaf->relid, NULL);
	leaf->paused_until = 0;
	leaf->pause = PAUSE_MIN_WAIT;
}

void
ttl_batch_memory_recall(TtlBatchMemory *memory)
{
	TimestampTz now = GetCurrentTimestamp();
	int			n;
	TtlBlocked *known = ttl_blocked_get(&n);

	for (int i = 0; i < n && hash_get_num_entries(memory->blocked) < BLOCKED_MAX; i++)
	{
		bool		is_row = ItemPointerIsValid(&known[i].tid);
		Leaf	   *leaf;

		if (get_rel_relkind(known[i].relid) != RELKIND_RELATION)
		{
			ttl_blocked_remove(known[i].relid, is_row ? &known[i].tid : NULL);
			continue;
		}
		leaf = leaf_enter(memory, known[i].relid, 0);
		leaf->last_turn = now;
		if (is_row)
		{
			BlockedKey	key;
			BlockedRow *row;

			blocked_key(&key, leaf->relid, &known[i].tid);
			row = (BlockedRow *) hash_search(memory->blocked, &key, HASH_ENTER, NULL);
			row->retry_at = known[i].retry_at;
			row->wait = known[i].wait;
			row->untold = known[i].failure;
			row->seen = leaf->left_walks;
			leaf->blocked++;
		}
		else
		{
			leaf->paused_until = known[i].retry_at;
			leaf->pause = known[i].wait;
			leaf->trouble = known[i].failure;
		}
	}
	pfree(known);
}

void
ttl_batch_memory_trim(TtlBatchMemory *memory, TimestampTz since)
{
	HASH_SEQ_STATUS status;
	Leaf	   *leaf;

	hash_seq_init(&status, memory->leaves);
	while ((leaf = (Leaf *) hash_seq_search(&status)) != NULL)
	{
		if (leaf->last_turn < since)
		{
			leaf_discard(memory, leaf);
			blocked_forget(memory, leaf, true);
			end_pause(memory, leaf);
			ttl_whole_forget(&leaf->whole);
			(void) hash_search(memory->leaves, &leaf->relid, HASH_REMOVE, NULL);
		}
	}
}

/*
 * Collects the places of rows to delete, starting at the mark or at the left
 * edge.
 */
static void
collect(Step *step)
{
	TtlBatchMemory *memory = step->memory;
	Leaf	   *leaf = step->leaf;
	TimestampTz started = GetCurrentTimestamp();
	TimestampTz useful_at = 0;
	TimestampTz retry_at = DT_NOEND;
	bool		from_left = leaf->left_at <= started;
	bool		found = false;
	bool		incomplete;
	int			limit;
	TtlExpiryMark mark;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;

	if (from_left)
	{
		memset(&mark, 0, sizeof(mark));
		leaf->left_walks++;
	}
	else
		mark = leaf->mark;

	/* a row costs one buffer at least to find, and others to delete */
	limit = (int) Min(Max(step->max_cost, COLLECT_MIN), COLLECT_MAX);

	PushActiveSnapshot(GetTransactionSnapshot());
	walk = ttl_expiry_walk_begin(step->rel, &step->container, step->now,
								 GetActiveSnapshot(), &mark);
	if (step->spares)
		ttl_expiry_walk_spare(walk);
	while ((slot = ttl_expiry_walk_next(walk, NULL)) != NULL)
	{
		BlockedKey	key;
		BlockedRow *blocked = NULL;

		CHECK_FOR_INTERRUPTS();

		if (leaf->blocked > 0)
		{
			blocked_key(&key, leaf->relid, &slot->tts_tid);
			blocked = (BlockedRow *) hash_search(memory->blocked, &key,
												 HASH_FIND, NULL);
		}
		if (blocked == NULL)
		{
			if (!found)
				useful_at = GetCurrentTimestamp();
			found = true;
			places_add(memory, &leaf->places, &slot->tts_tid);
		}
		else
		{
			blocked->seen = leaf->left_walks;
			if (blocked->retry_at <= started)
				places_add(memory, &leaf->retries, &slot->tts_tid);
			else if (blocked->untold > 0)
				retry_at = Min(retry_at, blocked->retry_at);
		}

		if (leaf->places.n + leaf->retries.n >= limit)
			break;
	}
	incomplete = slot == NULL && ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);
	PopActiveSnapshot();

	/* first what can be found; but then "nothing" would be wrong */
	if (incomplete && leaf->places.n + leaf->retries.n == 0)
		ttl_expiry_report_incomplete(step->rel);
	leaf->lacks_index = leaf->lacks_index && (incomplete || slot != NULL);

	leaf->next_mark = mark;
	leaf->more = slot != NULL;
	leaf->fruitless = leaf->places.n + leaf->retries.n > 0;

	if (from_left)
	{
		TimestampTz ended = GetCurrentTimestamp();
		TimestampTz wait;

		leaf->left_wait = found ? LEFT_MIN_WAIT :
			Min(leaf->left_wait * 2, LEFT_MAX_WAIT);
		wait = Max(leaf->left_wait,
				   ((found ? useful_at : ended) - started) * LEFT_SHARE);
		leaf->left_at = Min(ended + Min(wait, LEFT_MAX_WAIT), retry_at);

		if (!leaf->more)
			blocked_forget(memory, leaf, false);
	}
}

/*
 * Deletes the step's rows.
 */
static void
delete_rows(Step *step)
{
	volatile int flags = TTL_DELETION_AS_REAPER;

	if (step->skip_locked)
		flags |= TTL_DELETION_SKIP_LOCKED;
	if (step->with_referencing)
		flags |= TTL_DELETION_WITH_REFERENCING;

	if (step->memory->mode.by_worker)
		flags |= TTL_DELETION_SPARES;

	/* in a user's transaction deferred constraints stay deferred */
	if (step->memory->mode.commits)
		flags |= TTL_DELETION_COMMITS;

	if (step->container.replication_origin)
	{
		step->origin_wanted = true;
		ttl_origin_begin();
		step->origin_wanted = false;
	}
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		step->deleted = ttl_deletion_run(step->rel, &step->container,
										 step->tids, step->ntids,
										 step->now, flags);
		PopActiveSnapshot();
	}
	PG_FINALLY();
	{
		ttl_origin_end();
	}
	PG_END_TRY();
}

/*
 * Tries whether the table lets rows be deleted at all.  Raises an error in any
 * case, so that nothing of it stays.
 */
static void
delete_nothing(Step *step)
{
	step->ntids = 0;
	delete_rows(step);
	step->works_without_rows = true;
	elog(ERROR, "nothing has been deleted");
}

/*
 * Does something in a subtransaction, with a short lock_timeout.  Returns NULL
 * on success, else the error.
 */
static ErrorData *
attempt(void (*action) (Step *), Step *step)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);

	PG_TRY();
	{
		int			nest_level = NewGUCNestLevel();

		(void) set_config_option("lock_timeout", LOCK_WAIT,
								 PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
		action(step);

		/* nor do settings stay that triggers have made */
		AtEOXact_GUC(false, nest_level);

		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();

		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_END_TRY();

	return error;
}

/*
 * Can the error be no row's fault?
 */
static bool
is_no_rows_fault(const ErrorData *error)
{
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
			return true;
		default:
			return false;
	}
}

/*
 * Is it that another row references the row?
 */
static bool
is_still_referenced(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION ||
		error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION;
}

/*
 * Lets the leaf alone for a while, longer each time.
 */
static void
pause_leaf(TtlBatchMemory *memory, Leaf *leaf)
{
	leaf->paused_until = GetCurrentTimestamp() + leaf->pause;
	leaf->pause = Min(leaf->pause * 2, PAUSE_MAX_WAIT);
	if (memory->mode.by_worker)
		ttl_blocked_put(leaf->relid, NULL, leaf->trouble, leaf->paused_until,
						leaf->pause);
}

/*
 * Tells the log (or the user who has called) and the statistics.
 */
static void
report_error(Step *step, const ErrorData *error)
{
	ttl_counters_set_error(step->container.container, error->message);

	ereport(step->memory->mode.by_worker ? LOG : WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not delete expired rows of table \"%s.%s\": %s",
					get_namespace_name(RelationGetNamespace(step->rel)),
					RelationGetRelationName(step->rel),
					error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0,
			 error->context ? errcontext("%s", error->context) : 0));
}

/*
 * Handles an error that isn't blamed on a row: the leaf has to wait.
 */
static void
handle_trouble(Step *step, ErrorData *error)
{
	if (!step->memory->mode.by_worker)
		ReThrowError(error);

	/* told once, however often it is met */
	if (error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
		step->leaf->lacks_index)
		ttl_counters_set_error(step->container.container, error->message);

	/* deadlocks happen, and who cancels a worker knows it */
	else if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_TRANSACTION_ROLLBACK &&
			 error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			 error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		report_error(step, error);
	step->leaf->lacks_index = step->leaf->lacks_index ||
		error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	pause_leaf(step->memory, step->leaf);
}

/*
 * Handles an error in the deletion of a single row, if it is the table's fault
 * and not the row's.  It is told once, however often it is met.
 */
static bool
handle_tables_fault(Step *step, ErrorData *error)
{
	Leaf	   *leaf = step->leaf;
	Step		test = *step;

	FreeErrorData(attempt(delete_nothing, &test));
	if (test.works_without_rows)
		return false;

	if (leaf->trouble != error->sqlerrcode)
		report_error(step, error);
	else
		ttl_counters_set_error(step->container.container, error->message);
	leaf->trouble = error->sqlerrcode;
	pause_leaf(step->memory, leaf);
	return true;
}

/*
 * Tells that a row cannot be deleted: not again what an earlier worker has
 * found, and of a flood the first drops.
 */
static void
report_blocked(Step *step, ErrorData *error)
{
	Leaf	   *leaf = step->leaf;

	if (leaf->told == 0 && leaf->blocked_in_a_row < 3)
		report_error(step, error);
	else
		ttl_counters_set_error(step->container.container, error->message);
	leaf->told = Max(leaf->told - 1, 0);
}

/*
 * Remembers a row that cannot be deleted.
 */
static void
block_row(Step *step, ErrorData *error)
{
	TtlBatchMemory *memory = step->memory;
	Leaf	   *leaf = step->leaf;
	bool		referenced = memory->mode.by_worker && is_still_referenced(error);
	BlockedKey	key;
	BlockedRow *row;
	bool		found;

	blocked_key(&key, leaf->relid, step->tids);
	row = (BlockedRow *) hash_search(memory->blocked, &key, HASH_FIND, &found);
	if (!found)
	{
		if (hash_get_num_entries(memory->blocked) < BLOCKED_MAX)
		{
			row = (BlockedRow *) hash_search(memory->blocked, &key,
											 HASH_ENTER, NULL);
			row->wait = referenced ? REFERENCED_WAIT : BLOCKED_MIN_WAIT;
			row->untold = referenced ? REFERENCED_TRIES - 1 : 0;
			row->seen = leaf->left_walks;
			leaf->blocked++;
		}
		if (!referenced)
			report_blocked(step, error);
		leaf->blocked_in_a_row++;
	}
	else
	{
		row->wait = Min(row->wait * 2, BLOCKED_MAX_WAIT);
		if (row->untold > 0 && --row->untold == 0)
		{
			report_blocked(step, error);
			leaf->blocked_in_a_row++;
		}
	}

	if (row != NULL)
	{
		row->retry_at = GetCurrentTimestamp() + row->wait;
		if (memory->mode.by_worker)
			ttl_blocked_put(leaf->relid, step->tids, row->untold, row->retry_at,
							row->wait);

		/* it lies behind the mark, so a walk has to come there in time */
		if (row->untold > 0)
			leaf->left_at = Min(leaf->left_at, row->retry_at);
	}

	if (leaf->blocked_in_a_row >= BLOCKED_IN_A_ROW ||
		hash_get_num_entries(memory->blocked) >= BLOCKED_MAX)
	{
		leaf->blocked_in_a_row = 0;
		pause_leaf(memory, leaf);
	}
}

/*
 * A row that could not be deleted has been, or has gone.
 */
static void
unblock_row(Step *step)
{
	BlockedKey	key;
	bool		found;

	blocked_key(&key, step->leaf->relid, step->tids);
	(void) hash_search(step->memory->blocked, &key, HASH_REMOVE, &found);
	if (found)
	{
		if (step->memory->mode.by_worker)
			ttl_blocked_remove(step->leaf->relid, step->tids);
		step->leaf->blocked--;
	}
}

/*
 * A batch has deleted less rows than it was to, without an error.  Most often
 * they have gone or been renewed; but a trigger or a rule may have kept them,
 * and would for ever.
 */
static void
handle_kept_rows(Step *step)
{
	ItemPointer tids = step->tids;
	int			ntids = step->ntids;
	TupleTableSlot *slot = table_slot_create(step->rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlockNumber nblocks = RelationGetNumberOfBlocks(step->rel);

	for (int i = 0; i < ntids; i++)
	{
		step->tids = &tids[i];
		step->ntids = 1;
		/* the table may have been truncated since the place was collected */
		if (ItemPointerGetBlockNumber(step->tids) < nblocks &&
			table_tuple_fetch_row_version(step->rel, step->tids, snapshot, slot) &&
			ttl_expiry_of_slot(&step->container, slot) <= step->now &&
			!(step->spares &&
			  ttl_expiry_is_spared(&step->container, slot, step->now)))
		{
			ErrorData  *error = palloc0(sizeof(ErrorData));

			error->sqlerrcode = ERRCODE_TRIGGERED_ACTION_EXCEPTION;
			error->message = "a trigger or rule has kept an expired row";
			block_row(step, error);
		}
		else
			unblock_row(step);
		ExecClearTuple(slot);
	}
	step->tids = tids;
	step->ntids = ntids;
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
}

/*
 * Makes the size of the next batch such that it takes about BATCH_TIME.
 */
static void
adapt_batch_size(Leaf *leaf, int size, double took)
{
	double		next = 2.0 * size;

	if (size < leaf->batch_size)
		return;					/* the end of what was collected */
	if (leaf->fixed_size > 0)
		next = Min(next, leaf->fixed_size);
	else if (took > 0.0)
		next = Min(next, size * BATCH_TIME / took);
	leaf->batch_size = (int) Max(1.0, leaf->fixed_size > 0 ? next :
								 Min(next, (double) BATCH_MAX));
}

/*
 * How many rows the step may delete, if what it may cost is all that matters.
 */
static int64
affordable_rows(const Step *step)
{
	int64		cost = step->max_cost;
	double		rows;

	if (step->leaf->row_cost <= 0.0)
		return step->max_rows;
	if (step->leaf->fixed_size == 0)
		cost = Min(cost, step->max_batch_cost);
	rows = cost / step->leaf->row_cost;
	return rows < step->max_rows ? (int64) Max(rows, 1.0) : step->max_rows;
}

/*
 * Deletes the next batch of collected rows.
 */
static StepResult
delete_batch(Step *step)
{
	Leaf	   *leaf = step->leaf;
	bool		retry = leaf->retries.next < leaf->retries.n;
	Places	   *places = retry ? &leaf->retries : &leaf->places;
	int			size = retry ? 1 : leaf->batch_size;
	BufferUsage used = pgBufferUsage;
	instr_time	start;
	instr_time	took;
	ErrorData  *error;
	int			origin_tries = 0;

	if (leaf->fixed_size != step->container.batch_size)
	{
		leaf->fixed_size = step->container.batch_size;
		leaf->batch_size = leaf->fixed_size > 0 ? leaf->fixed_size : BATCH_START;
		size = retry ? 1 : leaf->batch_size;
	}

	step->tids = places->tids + places->next;
	step->ntids = Min(places->n - places->next,
					  Min(size, affordable_rows(step)));
	step->skip_locked = leaf->locked_until > GetCurrentTimestamp();

	ttl_progress_phase(TTL_PHASE_DELETING);
	INSTR_TIME_SET_CURRENT(start);
	error = attempt(delete_rows, step);
	if (error && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE &&
		!step->skip_locked)
	{
		FreeErrorData(error);
		leaf->locked_until = GetCurrentTimestamp() + LOCKED_MEMORY;
		leaf->left_wait = LEFT_MIN_WAIT;
		step->skip_locked = true;
		INSTR_TIME_SET_CURRENT(start);
		error = attempt(delete_rows, step);
	}

	if (error && is_still_referenced(error))
	{
		FreeErrorData(error);
		step->with_referencing = true;
		INSTR_TIME_SET_CURRENT(start);
		error = attempt(delete_rows, step);
	}

	while (error && step->origin_wanted &&
		   error->sqlerrcode == ERRCODE_OBJECT_IN_USE)
	{
		step->origin_wanted = false;
		if (step->memory->mode.by_worker && origin_tries++ >= ORIGIN_TRIES)
			return STEP_AWAY;
		FreeErrorData(error);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 ORIGIN_WAIT, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		INSTR_TIME_SET_CURRENT(start);
		error = attempt(delete_rows, step);
	}
	if (error && step->origin_wanted)
	{
		handle_trouble(step, error);
		return STEP_AWAY;
	}

	if (error == NULL)
	{
		INSTR_TIME_SET_CURRENT(took);
		INSTR_TIME_SUBTRACT(took, start);
		if (!retry)
			adapt_batch_size(leaf, step->ntids, INSTR_TIME_GET_MILLISEC(took));
		else if (step->deleted > 0)
			unblock_row(step);
		if (step->deleted > 0)
			leaf->row_cost = (double) ttl_budget_cost_since(&used) / step->deleted;
		leaf->blocked_in_a_row = 0;
		end_pause(step->memory, leaf);
		leaf->trouble = 0;
		if (step->deleted > 0)
			leaf->fruitless = false;
		places->next += step->ntids;
		if (step->deleted < step->ntids && !step->skip_locked)
			handle_kept_rows(step);
		return leaf->paused_until > GetCurrentTimestamp() ? STEP_AWAY : STEP_MORE;
	}

	step->deleted = 0;
	if (is_no_rows_fault(error))
	{
		handle_trouble(step, error);
		return STEP_AWAY;
	}

	if (step->ntids > 1)
	{
		leaf->batch_size = step->ntids / 2;
		return STEP_MORE;
	}

	/* the culprit is alone; what is locked comes again with the next walk */
	if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
	{
		if (handle_tables_fault(step, error))
			return STEP_AWAY;
		block_row(step, error);
	}
	places->next++;
	return leaf->paused_until > GetCurrentTimestamp() ? STEP_AWAY : STEP_MORE;
}

/*
 * Moves the mark to where the walk has stopped.  If more rows with one and the
 * same key are locked than are collected in a walk, it has to step over them.
 */
static void
move_mark(Leaf *leaf)
{
	bool		moved = false;

	for (int i = 0; i < lengthof(leaf->mark.set); i++)
		moved = moved || leaf->mark.set[i] != leaf->next_mark.set[i] ||
			leaf->mark.at[i] != leaf->next_mark.at[i];
	leaf->mark = leaf->next_mark;

	for (int i = 0; i < lengthof(leaf->mark.set) && !moved; i++)
	{
		if (leaf->mark.set[i] && leaf->more && leaf->fruitless)
			leaf->mark.at[i]++;
	}
}

/*
 * Is anything left of what was collected?  If not, the mark moves forward.
 */
static bool
have_places(TtlBatchMemory *memory, Leaf *leaf)
{
	if (leaf->retries.next < leaf->retries.n ||
		leaf->places.next < leaf->places.n)
		return true;

	move_mark(leaf);
	places_clear(memory, &leaf->places);
	places_clear(memory, &leaf->retries);
	return false;
}

/*
 * Empties the leaf, if it can be done at once.
 */
static void
empty_whole(Step *step)
{
	Leaf	   *leaf = step->leaf;
	TtlWholeLimits limits;
	int64		rows;

	limits.max_rows = step->max_rows;
	limits.max_pages = step->max_cost;
	if (ttl_guc_throughput == 0)
		limits.max_pages = Max(limits.max_pages, ttl_guc_cycle_cost_limit / 4);
	limits.until = step->memory->mode.by_worker ?
		GetCurrentTimestamp() + WHOLE_TIME : DT_NOEND;

	PushActiveSnapshot(GetTransactionSnapshot());
	rows = ttl_whole_empty(&leaf->whole, &step->container, &limits);
	PopActiveSnapshot();

	if (rows >= 0)
	{
		step->deleted = Max(rows, leaf->places.n - leaf->places.next);
		step->emptied = true;
	}
}

/*
 * Tries to empty the leaf.  Returns whether it has.
 */
static bool
try_whole(Step *step)
{
	TtlBatchMemory *memory = step->memory;
	Leaf	   *leaf = step->leaf;
	ErrorData  *error;

	if (!memory->mode.commits || step->spares ||
		leaf->places.n - leaf->places.next < WHOLE_MIN_ROWS ||
		!ttl_whole_ready(&leaf->whole, step->rel, &step->container,
						 memory->context))
		return false;

	ttl_progress_phase(TTL_PHASE_EMPTYING);
	relation_close(step->rel, NoLock);
	error = attempt(empty_whole, step);
	step->rel = relation_open(leaf->relid, NoLock);
	if (error != NULL)
	{
		/* an error of a user's cancellation; otherwise it goes row by row */
		if (!memory->mode.by_worker &&
			error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		ttl_whole_forget(&leaf->whole);
		leaf->whole.next_at = GetCurrentTimestamp() + WHOLE_ERROR_WAIT;
		step->deleted = 0;
		return false;
	}
	if (!step->emptied)
		return false;

	leaf_discard(memory, leaf);
	blocked_forget(memory, leaf, true);
	memset(&leaf->mark, 0, sizeof(leaf->mark));
	leaf->next_mark = leaf->mark;
	leaf->left_wait = LEFT_MIN_WAIT;
	return true;
}

/*
 * Opens the leaf and finds out whether it may be worked on.  The locks last
 * to the end of the transaction.
 */
static StepResult
open_leaf(Step *step, Oid container)
{
	Oid			relid = step->leaf->relid;
	bool		waits = !step->memory->mode.by_worker;

	if (ttl_container_objects() == NULL)
		return STEP_DONE;		/* the extension has gone */

	/* first the table, then the policy: DDL does it in this order */
	if (waits)
		LockRelationOid(relid, RowExclusiveLock);
	else if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return STEP_AWAY;
	if (!ttl_container_lock_policy(container, false, waits))
		return STEP_AWAY;

	/* a lock that was held before hasn't brought the policy up to date */
	AcceptInvalidationMessages();

	step->rel = try_relation_open(relid, NoLock);
	if (step->rel == NULL)
		return STEP_DONE;

	if (step->rel->rd_rel->relkind != RELKIND_RELATION ||
		!ttl_container_lookup(relid, &step->container) ||
		step->container.container != container ||
		step->container.default_ttl == TTL_OFF ||
		(step->memory->mode.by_worker && !step->container.reaping) ||
		pg_sub_s64_overflow(ttl_execution_clock(), step->container.reap_delay,
							&step->now))
	{
		relation_close(step->rel, NoLock);
		step->rel = NULL;
		return STEP_DONE;
	}
	step->spares = step->memory->mode.by_worker &&
		ttl_container_in_grace(&step->container.change, ttl_execution_clock());
	return STEP_MORE;
}

/*
 * When something begins to be spared, what was collected before may be among
 * it; when that ends, it may lie behind the mark.
 */
static void
follow_change(Step *step)
{
	Leaf	   *leaf = step->leaf;
	TimestampTz since = step->spares ? step->container.change.changed_at : 0;

	if (leaf->spared_since == since)
		return;
	leaf_discard(step->memory, leaf);
	leaf->left_at = 0;
	leaf->spared_since = since;
}

/*
 * Do walks start at a mark, rather than at the left edge?  Behind a mark may
 * lie more dead entries than one wants to read again.
 */
static bool
is_marked(const Leaf *leaf)
{
	for (int i = 0; i < lengthof(leaf->mark.set); i++)
	{
		if (leaf->mark.set[i])
			return true;
	}
	return false;
}

/*
 * Is the earliest row of the leaf not to be deleted yet?  *due is when it will
 * be, or when to look again.
 */
static bool
nothing_due(Step *step, TimestampTz *due)
{
	TimestampTz earliest;
	bool		incomplete;

	PushActiveSnapshot(GetTransactionSnapshot());
	earliest = ttl_expiry_earliest(step->rel, &step->container,
								   GetActiveSnapshot(), &incomplete);
	PopActiveSnapshot();

	*due = GetCurrentTimestamp() + MARK_WAIT;
	if (earliest <= step->now || incomplete)
		return false;
	if (pg_add_s64_overflow(earliest, step->container.reap_delay, &earliest))
		earliest = DT_NOEND;
	*due = Max(*due, earliest);
	return true;
}

/*
 * What one transaction does to a leaf: collects places if there are none,
 * deletes a batch.
 */
static StepResult
run_step(Step *step, Oid container, TtlBatchTurn *turn)
{
	TtlBatchMemory *memory = step->memory;
	Leaf	   *leaf = step->leaf;
	ErrorData  *error;
	StepResult	result;
	TimestampTz due;

	result = open_leaf(step, container);
	if (result != STEP_MORE)
		return result;
	follow_change(step);

	if (!have_places(memory, leaf))
	{
		/* all that is left is locked; it won't do to look again at once */
		if (leaf->fruitless && !leaf->more)
		{
			leaf->fruitless = false;
			turn->due = Min(turn->due, GetCurrentTimestamp() + MARK_WAIT);
			relation_close(step->rel, NoLock);
			return STEP_DONE;
		}

		/* the usual case, so it must be cheap */
		if (!is_marked(leaf) && leaf->blocked == 0 && nothing_due(step, &due))
		{
			turn->due = Min(turn->due, due);
			relation_close(step->rel, NoLock);
			return STEP_DONE;
		}

		ttl_progress_phase(TTL_PHASE_LOOKING);
		error = attempt(collect, step);
		if (error != NULL)
		{
			leaf_discard(memory, leaf);
			handle_trouble(step, error);
			result = STEP_AWAY;
		}
		else if (!have_places(memory, leaf) && !leaf->more)
		{
			due = GetCurrentTimestamp() + MARK_WAIT;
			if (!is_marked(leaf))
			{
				leaf->left_at = 0;	/* each walk is from there anyway */
				(void) nothing_due(step, &due);
			}
			turn->due = Min(turn->due, due);
			result = STEP_DONE;
		}
	}

	if (result == STEP_MORE && have_places(memory, leaf) && !try_whole(step))
		result = delete_batch(step);

	relation_close(step->rel, NoLock);
	return result;
}

/*
 * Starts another transaction, if that is wanted.
 */
static void
commit_step(TtlBatchMemory *memory)
{
	if (!memory->mode.commits)
		return;

	/* now() of a trigger in a worker shall not stand still */
	if (memory->mode.by_worker)
		SetCurrentStatementStartTimestamp();
	SPI_commit();
}

/*
 * May the turn go on?
 */
static bool
may_go_on(const TtlBatchTurn *turn, int64 max_cost)
{
	return turn->cost < max_cost && turn->rows < turn->max_rows &&
		(turn->until == DT_NOEND || GetCurrentTimestamp() < turn->until);
}

/*
 * Deletes from one leaf until the turn has cost max_cost.  was_blocked is the
 * number of blocked rows of the container according to the statistics.
 */
static TtlBatchEnd
run_leaf(TtlBatchMemory *memory, Oid container, Oid relid, TtlBatchTurn *turn,
		 int64 max_cost, int64 was_blocked)
{
	Leaf	   *leaf = leaf_enter(memory, relid, was_blocked);
	StepResult	result = STEP_MORE;
	TtlBatchEnd end;

	leaf->last_turn = GetCurrentTimestamp();
	if (turn->changed)
		end_pause(memory, leaf);
	if (leaf->paused_until > leaf->last_turn)
	{
		turn->due = Min(turn->due, leaf->paused_until);
		turn->blocked += leaf->blocked;
		return TTL_BATCH_AWAY;
	}

	while (result == STEP_MORE && may_go_on(turn, max_cost))
	{
		BufferUsage start = pgBufferUsage;
		MemoryContext oldcontext;
		int64		cost;
		Step		step;

		CHECK_FOR_INTERRUPTS();

		if (turn->pace != NULL && turn->cost > 0)
		{
			bool		napped = false;

			if (!turn->pace(turn, &napped))
				break;
			if (napped)
				commit_step(memory);
		}

		memset(&step, 0, sizeof(step));
		step.memory = memory;
		step.leaf = leaf;
		step.max_cost = max_cost - turn->cost;
		step.max_batch_cost = turn->max_batch_cost;
		step.max_rows = turn->max_rows - turn->rows;

		oldcontext = MemoryContextSwitchTo(memory->step_context);
		result = run_step(&step, container, turn);
		MemoryContextSwitchTo(oldcontext);
		MemoryContextReset(memory->step_context);

		commit_step(memory);

		cost = ttl_budget_cost_since(&start);
		turn->cost += cost;
		turn->rows += step.deleted;
		if (step.ntids > 0 || step.emptied)
		{
			ttl_counters_add_batch(container, step.deleted, cost);
			ttl_progress_batch(step.deleted);
		}
	}

	if (result == STEP_DONE)
		end = TTL_BATCH_DONE;
	else if (result == STEP_AWAY)
	{
		end = TTL_BATCH_AWAY;
		turn->due = Min(turn->due, Max(leaf->paused_until,
									   GetCurrentTimestamp() + MARK_WAIT));
	}
	else
		end = TTL_BATCH_SPENT;

	if (memory->allocated > KEEP_MAX)
		leaf_discard(memory, leaf);
	turn->blocked += leaf->blocked;
	return end;
}

/*
 * Runs a turn, see batch.h.  The cost is shared equally among the leaves; what
 * one leaves goes to those after it.
 */
void
ttl_batch_run(TtlBatchMemory *memory, Oid container, TtlBatchTurn *turn)
{
	List	   *leaves;
	ListCell   *lc;
	int			left;
	int64		was_blocked = turn->blocked;

	turn->end = TTL_BATCH_DONE;
	turn->cost = 0;
	turn->rows = 0;
	turn->blocked = 0;
	turn->due = DT_NOEND;

	if (SPI_connect_ext(memory->mode.commits ? SPI_OPT_NONATOMIC : 0) !=
		SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");

	/* what a procedure has deferred before it called is its own to fire */
	if (!memory->mode.by_worker)
		commit_step(memory);

	leaves = ttl_container_leaves(container);
	turn->leaves = left = list_length(leaves);

	foreach(lc, leaves)
	{
		TtlBatchEnd end;
		int64		share = (turn->max_cost - turn->cost) / left--;

		if (!may_go_on(turn, turn->max_cost))
		{
			turn->end = TTL_BATCH_SPENT;
			break;
		}
		end = run_leaf(memory, container, lfirst_oid(lc), turn,
					   turn->cost + Max(share, 1), was_blocked);
		if (turn->end == TTL_BATCH_DONE || end == TTL_BATCH_SPENT)
			turn->end = end;
	}

	if (turn->end == TTL_BATCH_SPENT)
		turn->blocked = was_blocked;
	else if (turn->blocked != was_blocked)
		ttl_counters_set_blocked(container, turn->blocked);

	SPI_finish();
}
