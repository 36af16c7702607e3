/*-------------------------------------------------------------------------
 *
 * rel_state.c
 *	  What is remembered about the tables of containers, from turn to turn.
 *
 * Each table of a container (a "leaf") has an entry: the places of expired rows that
 * have been collected and not yet dealt with, the mark at which walks start, how it
 * goes with batches, and the pass that runs.
 *
 * No row is remembered.  Expired rows are gone through in passes; rows that can't be
 * deleted are counted, left behind the mark, and met again by the next pass.  Passes
 * that leave rows behind follow each other after PASS_SHARE times what the last one
 * has cost, within bounds, so that they take a small share of the worker's time.
 *
 * What is remembered dies with the process, except for the state of tables that need
 * it (rel_state.c).
 *
 * Where there are more databases than workers, a worker lives for a cycle only.  For
 * tables with rows that can't be deleted, and for tables in trouble, the next worker
 * continues where the last one stopped, rather than to try, and log, all of them
 * again.  Other tables need no state.
 *
 * The states are an unordered array in shared memory.  A table that finds no room
 * starts from scratch with each worker.  An entry that was due long ago belongs to a
 * table that is gone, or is no container any more, and is replaced.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "reaper/reap_rel.h"
#include "shared.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Time until a leaf in trouble is tried again. */
#define PAUSE_MIN_WAIT		(1 * USECS_PER_SEC)
#define PAUSE_MAX_WAIT		(300 * USECS_PER_SEC)

/* Time between passes that leave rows behind */
#define PASS_MIN_WAIT		(2 * USECS_PER_SEC)
#define PASS_MAX_WAIT		(30 * USECS_PER_SEC)
#define PASS_SHARE			20

TtlMemory *
ttl_reap_rel_memory_create(MemoryContext parent, TtlReapMode mode)
{
	MemoryContext context;
	TtlMemory  *memory;
	HASHCTL		ctl;

	context = AllocSetContextCreate(parent, "ttl batches",
									ALLOCSET_DEFAULT_SIZES);
	memory = (TtlMemory *) MemoryContextAllocZero(context,
												  sizeof(TtlMemory));
	memory->mode = mode;
	memory->context = context;
	memory->step_context = AllocSetContextCreate(context, "ttl batch step",
												 ALLOCSET_DEFAULT_SIZES);

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(TtlReapRel);
	ctl.hcxt = context;
	memory->leaves = hash_create("ttl leaves", 64, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	memory->ranges = ttl_brin_ranges_create(context);
	return memory;
}

void
ttl_reap_rel_add_place(TtlMemory *memory, TtlReapRel *leaf, ItemPointer tid)
{
	MemoryContext old = MemoryContextSwitchTo(memory->context);

	memory->allocated -= leaf->places.allocated;
	ttl_tids_append(&leaf->places, tid);
	memory->allocated += leaf->places.allocated;
	MemoryContextSwitchTo(old);
}

void
ttl_reap_rel_clear_places(TtlMemory *memory, TtlReapRel *leaf)
{
	if (leaf->places.tids != NULL)
		pfree(leaf->places.tids);
	memory->allocated -= leaf->places.allocated;
	memset(&leaf->places, 0, sizeof(TtlTids));
	leaf->next_place = 0;
}

void
ttl_reap_rel_discard(TtlMemory *memory, TtlReapRel *leaf)
{
	ttl_reap_rel_clear_places(memory, leaf);
	leaf->more = true;
	leaf->blocked = 0;
	leaf->next_mark = leaf->state.mark;
}

TtlReapRel *
ttl_reap_rel_enter(TtlMemory *memory, Oid relid)
{
	TtlReapRel    *leaf;
	bool		found;

	leaf = (TtlReapRel *) hash_search(memory->leaves, &relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(leaf, 0, sizeof(TtlReapRel));
		leaf->relid = relid;
		leaf->left_wait = TTL_LEFT_MIN_WAIT;
		leaf->batch_size = TTL_BATCH_START;
		leaf->state.pause = PAUSE_MIN_WAIT;
	}
	return leaf;
}

void
ttl_reap_rel_begin_pass(TtlReapRel *leaf, TimestampTz now)
{
	TtlPass    *pass = &leaf->state.pass;

	pass->last_blocked = pass->blocked;
	pass->blocked = 0;
	pass->last_raised = pass->raised;
	pass->raised = 0;
	pass->last_references = pass->references;
	pass->references = false;
	pass->busy = 0;
	pass->now = now;
	pass->is_running = true;
	pass->is_stale = false;
	pass->skipped_locked = false;
	leaf->skip_asking = false;
	memset(&leaf->state.mark, 0, sizeof(leaf->state.mark));
	leaf->next_mark = leaf->state.mark;
}

/* Schedules the next pass. */
static void
end_pass(TtlReapRel *leaf)
{
	TtlPass    *pass = &leaf->state.pass;
	TimestampTz now = GetCurrentTimestamp();

	pass->is_running = false;
	leaf->is_known = true;
	if (pass->blocked > 0 || pass->skipped_locked)
	{
		int64		wait = Max(pass->busy * PASS_SHARE, PASS_MIN_WAIT);

		pass->next_at = now + Max(Min(wait, PASS_MAX_WAIT), pass->busy);
		leaf->state.sweep.next_at = Max(leaf->state.sweep.next_at, pass->next_at);
	}
	else
		pass->next_at = now + leaf->pass_wait;
	if (!pass->references)
		pass->references_logged = false;
	if (pass->is_stale)
		ttl_reap_rel_want_pass(leaf);
}

void
ttl_reap_rel_reset(TtlMemory *memory, TtlReapRel *leaf)
{
	leaf->state.mark = leaf->next_mark;
	leaf->state.pass.blocked += leaf->blocked;
	leaf->blocked = 0;
	ttl_reap_rel_clear_places(memory, leaf);
	if (leaf->state.pass.is_running && !leaf->more)
		end_pass(leaf);
}

void
ttl_reap_rel_found_nothing(TtlReapRel *leaf)
{
	TtlPass    *pass = &leaf->state.pass;

	leaf->is_known = true;
	pass->is_running = false;
	pass->blocked = pass->raised = 0;
	pass->references = pass->references_logged = false;
}

void
ttl_reap_rel_want_pass(TtlReapRel *leaf)
{
	leaf->state.pass.is_stale = true;
	leaf->state.pass.next_at = 0;
	leaf->state.sweep.next_at = 0;
}

int64
ttl_reap_rel_blocked_rows(const TtlReapRel *leaf)
{
	const TtlPass *pass = &leaf->state.pass;
	int64		blocked = pass->blocked + leaf->blocked;

	return pass->is_running ? Max(blocked, pass->last_blocked) : blocked;
}

void
ttl_reap_rel_pause(TtlReapRel *leaf)
{
	leaf->state.paused_until = GetCurrentTimestamp() + leaf->state.pause;
	leaf->state.pause = Min(leaf->state.pause * 2, PAUSE_MAX_WAIT);
}

void
ttl_reap_rel_pause_long(TtlReapRel *leaf)
{
	leaf->state.pause = PAUSE_MAX_WAIT;
	ttl_reap_rel_pause(leaf);
}

void
ttl_reap_rel_end_pause(TtlReapRel *leaf)
{
	leaf->state.paused_until = 0;
	leaf->state.pause = PAUSE_MIN_WAIT;
}

void
ttl_reap_rel_store(TtlMemory *memory, TtlReapRel *leaf)
{
	bool		is_needed = memory->mode.by_worker &&
		(ttl_reap_rel_blocked_rows(leaf) > 0 || leaf->state.paused_until != 0 ||
		 leaf->state.is_stuck || leaf->state.single > 0);

	if (is_needed)
		ttl_rel_state_put(leaf->relid, &leaf->state);
	else if (leaf->is_stored)
		ttl_rel_state_remove(leaf->relid);
	leaf->is_stored = is_needed;
}

static void
restore(Oid relid, const TtlRelState *state, void *arg)
{
	TtlReapRel    *leaf;

	if (get_rel_relkind(relid) != RELKIND_RELATION)
	{
		ttl_rel_state_remove(relid);
		return;
	}
	leaf = ttl_reap_rel_enter(arg, relid);
	leaf->last_turn = GetCurrentTimestamp();
	leaf->state = *state;
	leaf->next_mark = state->mark;
	leaf->more = state->pass.is_running;
	leaf->is_stored = leaf->is_known = true;
	if (state->single > 0)
		leaf->batch_size = 1;
}

void
ttl_reap_rel_memory_restore(TtlMemory *memory)
{
	ttl_rel_state_visit(restore, memory);
}

void
ttl_reap_rel_memory_trim(TtlMemory *memory, TimestampTz since)
{
	HASH_SEQ_STATUS status;
	TtlReapRel    *leaf;

	hash_seq_init(&status, memory->leaves);
	while ((leaf = (TtlReapRel *) hash_seq_search(&status)) != NULL)
	{
		if (leaf->last_turn < since)
		{
			ttl_reap_rel_discard(memory, leaf);
			ttl_brin_forget_ranges(memory, leaf);
			ttl_truncate_partition_forget(&leaf->whole);
			if (leaf->is_stored)
				ttl_rel_state_remove(leaf->relid);
			(void) hash_search(memory->leaves, &leaf->relid, HASH_REMOVE, NULL);
		}
	}
}

#define MAX_ENTRIES		1000

/* Longer than any pause, and than most passes */
#define STALE			(2 * SECS_PER_HOUR * USECS_PER_SEC)

typedef struct Entry
{
	Oid			dboid;
	Oid			relid;
	TimestampTz stored_at;
	TtlRelState state;
} Entry;

typedef struct RelStates
{
	LWLock		lock;			/* protects all else */
	int			n;
	Entry		entries[FLEXIBLE_ARRAY_MEMBER];
} RelStates;

static RelStates *shared = NULL;

static Size
shared_size(void)
{
	return add_size(offsetof(RelStates, entries), mul_size(MAX_ENTRIES, sizeof(Entry)));
}

static void
shared_startup(void *place, bool found, int tranche_id)
{
	shared = (RelStates *) place;
	if (found)
		return;
	LWLockInitialize(&shared->lock, tranche_id);
	shared->n = 0;
}

/* The entry of a table of this database, or -1; *oldest is the one stored first. */
static int
find(Oid relid, int *oldest)
{
	*oldest = -1;
	for (int i = 0; i < shared->n; i++)
	{
		Entry	   *entry = &shared->entries[i];

		if (entry->relid == relid && entry->dboid == MyDatabaseId)
			return i;
		if (*oldest < 0 || entry->stored_at < shared->entries[*oldest].stored_at)
			*oldest = i;
	}
	return -1;
}

void
ttl_rel_state_put(Oid relid, const TtlRelState *state)
{
	TimestampTz now = GetCurrentTimestamp();
	int			oldest;
	int			i;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	i = find(relid, &oldest);
	if (i < 0 && shared->n < MAX_ENTRIES)
		i = shared->n++;
	else if (i < 0 && shared->entries[oldest].stored_at < now - STALE)
		i = oldest;
	if (i >= 0)
		shared->entries[i] = (Entry)
	{
		MyDatabaseId, relid, now, *state
	};
	LWLockRelease(&shared->lock);
}

void
ttl_rel_state_remove(Oid relid)
{
	int			oldest;
	int			i;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	i = find(relid, &oldest);
	if (i >= 0)
		shared->entries[i] = shared->entries[--shared->n];
	LWLockRelease(&shared->lock);
}

void
ttl_rel_state_visit(TtlRelStateVisitor visit, void *arg)
{
	Entry	   *entries = palloc(MAX_ENTRIES * sizeof(Entry));
	int			n = 0;

	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < shared->n; i++)
	{
		if (shared->entries[i].dboid == MyDatabaseId)
			entries[n++] = shared->entries[i];
	}
	LWLockRelease(&shared->lock);
	for (int i = 0; i < n; i++)
		visit(entries[i].relid, &entries[i].state, arg);
	pfree(entries);
}

void
ttl_rel_state_forget_database(Oid dboid)
{
	int			kept = 0;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->n; i++)
	{
		if (shared->entries[i].dboid != dboid)
			shared->entries[kept++] = shared->entries[i];
	}
	shared->n = kept;
	LWLockRelease(&shared->lock);
}

void
ttl_rel_state_init(void)
{
	ttl_shared_reserve(shared_size, shared_startup);
}
