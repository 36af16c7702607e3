/*-------------------------------------------------------------------------
 *
 * rel_state.c
 *	  What is remembered about the tables of containers, from turn to run.
 *
 * Each table of a container (a "leaf") has an entry: the places of expired rows that
 * have been collected and not yet dealt with, the mark at which walks start, how it
 * goes with batches, and the pass that runs.
 *
 * No row is remembered.  Expired rows are gone through in passes; rows that can't be
 * deleted are counted, left behind the position, and met again by the next pass.  Passes
 * that leave rows behind follow each other after PASS_SHARE times what the last one
 * has cost, within bounds, so that they take a small share of the worker's time.
 *
 * What is remembered dies with the process, except for the state of tables that need
 * it (rel_state.c).
 *
 * Where there are more databases than workers, a worker lives for a cycle only.  For
 * tables with rows that can't be deleted, and for tables in logged_sqlstate, the next worker
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
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Longer than any pause, and than most passes */
#define STALE			(2 * SECS_PER_HOUR * USECS_PER_SEC)

static TtlRelStates *shared = NULL;
static LWLock *lock = NULL;

void
ttl_rel_state_attach(TtlRelStates *place, LWLock *protecting)
{
	shared = place;
	lock = protecting;
}

/* The entry of a table of this database, or -1; *oldest is the one stored first. */
static int
find(Oid relid, int *oldest)
{
	*oldest = -1;
	for (int i = 0; i < shared->n; i++)
	{
		TtlRelStateEntry *entry = &shared->entries[i];

		if (entry->relid == relid && entry->dboid == MyDatabaseId)
			return i;
		if (*oldest < 0 || entry->stored_at < shared->entries[*oldest].stored_at)
			*oldest = i;
	}
	return -1;
}

static void
put_state(Oid relid, const TtlRelState *state)
{
	TimestampTz now = GetCurrentTimestamp();
	int			oldest;
	int			i;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	i = find(relid, &oldest);
	if (i < 0 && shared->n < TTL_REL_STATES_MAX)
		i = shared->n++;
	else if (i < 0 && shared->entries[oldest].stored_at < now - STALE)
		i = oldest;
	if (i >= 0)
		shared->entries[i] = (TtlRelStateEntry)
	{
		MyDatabaseId, relid, now, *state
	};
	LWLockRelease(lock);
}

static void
remove_state(Oid relid)
{
	int			oldest;
	int			i;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	i = find(relid, &oldest);
	if (i >= 0)
		shared->entries[i] = shared->entries[--shared->n];
	LWLockRelease(lock);
}

/* Calls the function for each stored state of this database. */
typedef void (*TtlRelStateVisitor) (Oid relid, const TtlRelState *state, void *arg);

static void
visit_states(TtlRelStateVisitor visit, void *arg)
{
	TtlRelStateEntry *entries = palloc(TTL_REL_STATES_MAX * sizeof(TtlRelStateEntry));
	int			n = 0;

	LWLockAcquire(lock, LW_SHARED);
	for (int i = 0; i < shared->n; i++)
	{
		if (shared->entries[i].dboid == MyDatabaseId)
			entries[n++] = shared->entries[i];
	}
	LWLockRelease(lock);
	for (int i = 0; i < n; i++)
		visit(entries[i].relid, &entries[i].state, arg);
	pfree(entries);
}

void
ttl_rel_state_forget_database(Oid dboid)
{
	int			kept = 0;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->n; i++)
	{
		if (shared->entries[i].dboid != dboid)
			shared->entries[kept++] = shared->entries[i];
	}
	shared->n = kept;
	LWLockRelease(lock);
}

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
	memory->batch_context = AllocSetContextCreate(context, "ttl batch step",
												 ALLOCSET_DEFAULT_SIZES);

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(TtlReapRel);
	ctl.hcxt = context;
	memory->tables = hash_create("ttl tables", 64, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	memory->ranges = ttl_brin_ranges_create(context);
	return memory;
}

void
ttl_reap_rel_add_tid(TtlMemory *memory, TtlReapRel *reap_rel, ItemPointer tid)
{
	MemoryContext old = MemoryContextSwitchTo(memory->context);

	memory->allocated -= reap_rel->tids.allocated;
	ttl_tids_append(&reap_rel->tids, tid);
	memory->allocated += reap_rel->tids.allocated;
	MemoryContextSwitchTo(old);
}

static void
clear_tids(TtlMemory *memory, TtlReapRel *reap_rel)
{
	if (reap_rel->tids.tids != NULL)
		pfree(reap_rel->tids.tids);
	memory->allocated -= reap_rel->tids.allocated;
	memset(&reap_rel->tids, 0, sizeof(TtlTids));
	reap_rel->next_tid = 0;
}

void
ttl_reap_rel_discard(TtlMemory *memory, TtlReapRel *reap_rel)
{
	clear_tids(memory, reap_rel);
	reap_rel->more = true;
	reap_rel->blocked = 0;
	reap_rel->next_position = reap_rel->state.position;
}

TtlReapRel *
ttl_reap_rel_enter(TtlMemory *memory, Oid relid)
{
	TtlReapRel *reap_rel;
	bool		found;

	reap_rel = (TtlReapRel *) hash_search(memory->tables, &relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(reap_rel, 0, sizeof(TtlReapRel));
		reap_rel->relid = relid;
		reap_rel->left_wait = TTL_LEFT_MIN_WAIT;
		reap_rel->batch_size = TTL_BATCH_START;
		reap_rel->state.pause = PAUSE_MIN_WAIT;
	}
	return reap_rel;
}

void
ttl_reap_rel_begin_pass(TtlReapRel *reap_rel, TimestampTz now)
{
	TtlPass    *pass = &reap_rel->state.pass;

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
	reap_rel->skip_referenced_check = false;
	memset(&reap_rel->state.position, 0, sizeof(reap_rel->state.position));
	reap_rel->next_position = reap_rel->state.position;
}

/* Schedules the next pass. */
static void
end_pass(TtlReapRel *reap_rel)
{
	TtlPass    *pass = &reap_rel->state.pass;
	TimestampTz now = GetCurrentTimestamp();

	pass->is_running = false;
	reap_rel->is_known = true;
	if (pass->blocked > 0 || pass->skipped_locked)
	{
		int64		wait = Max(pass->busy * PASS_SHARE, PASS_MIN_WAIT);

		pass->next_at = now + Max(Min(wait, PASS_MAX_WAIT), pass->busy);
		reap_rel->state.brin_scan.next_at = Max(reap_rel->state.brin_scan.next_at, pass->next_at);
	}
	else
		pass->next_at = now + reap_rel->pass_wait;
	if (!pass->references)
		pass->references_logged = false;
	if (pass->is_stale)
		ttl_reap_rel_want_pass(reap_rel);
}

static void
finish_tids(TtlMemory *memory, TtlReapRel *reap_rel)
{
	reap_rel->state.position = reap_rel->next_position;
	reap_rel->state.pass.blocked += reap_rel->blocked;
	reap_rel->blocked = 0;
	clear_tids(memory, reap_rel);
	if (reap_rel->state.pass.is_running && !reap_rel->more)
		end_pass(reap_rel);
}

bool
ttl_reap_rel_has_tids(TtlMemory *memory, TtlReapRel *reap_rel)
{
	if (reap_rel->next_tid < reap_rel->tids.n)
		return true;

	finish_tids(memory, reap_rel);
	return false;
}

void
ttl_reap_rel_found_nothing(TtlReapRel *reap_rel)
{
	TtlPass    *pass = &reap_rel->state.pass;

	reap_rel->is_known = true;
	pass->is_running = false;
	pass->blocked = pass->raised = 0;
	pass->references = pass->references_logged = false;
}

void
ttl_reap_rel_want_pass(TtlReapRel *reap_rel)
{
	reap_rel->state.pass.is_stale = true;
	reap_rel->state.pass.next_at = 0;
	reap_rel->state.brin_scan.next_at = 0;
}

int64
ttl_reap_rel_blocked_rows(const TtlReapRel *reap_rel)
{
	const TtlPass *pass = &reap_rel->state.pass;
	int64		blocked = pass->blocked + reap_rel->blocked;

	return pass->is_running ? Max(blocked, pass->last_blocked) : blocked;
}

void
ttl_reap_rel_pause(TtlReapRel *reap_rel)
{
	reap_rel->state.paused_until = GetCurrentTimestamp() + reap_rel->state.pause;
	reap_rel->state.pause = Min(reap_rel->state.pause * 2, PAUSE_MAX_WAIT);
}

void
ttl_reap_rel_pause_long(TtlReapRel *reap_rel)
{
	reap_rel->state.pause = PAUSE_MAX_WAIT;
	ttl_reap_rel_pause(reap_rel);
}

void
ttl_reap_rel_end_pause(TtlReapRel *reap_rel)
{
	reap_rel->state.paused_until = 0;
	reap_rel->state.pause = PAUSE_MIN_WAIT;
}

void
ttl_reap_rel_store(TtlMemory *memory, TtlReapRel *reap_rel)
{
	bool		is_needed = memory->mode.by_worker &&
		(ttl_reap_rel_blocked_rows(reap_rel) > 0 || reap_rel->state.paused_until != 0 ||
		 reap_rel->state.has_timed_out || reap_rel->state.n_single > 0);

	if (is_needed)
		put_state(reap_rel->relid, &reap_rel->state);
	else if (reap_rel->is_stored)
		remove_state(reap_rel->relid);
	reap_rel->is_stored = is_needed;
}

static void
restore(Oid relid, const TtlRelState *state, void *arg)
{
	TtlReapRel *reap_rel;

	if (get_rel_relkind(relid) != RELKIND_RELATION)
	{
		remove_state(relid);
		return;
	}
	reap_rel = ttl_reap_rel_enter(arg, relid);
	reap_rel->last_run = GetCurrentTimestamp();
	reap_rel->state = *state;
	reap_rel->next_position = state->position;
	reap_rel->more = state->pass.is_running;
	reap_rel->is_stored = reap_rel->is_known = true;
	if (state->n_single > 0)
		reap_rel->batch_size = 1;
}

void
ttl_reap_rel_memory_restore(TtlMemory *memory)
{
	visit_states(restore, memory);
}

void
ttl_reap_rel_memory_trim(TtlMemory *memory, TimestampTz since)
{
	HASH_SEQ_STATUS status;
	TtlReapRel *reap_rel;

	hash_seq_init(&status, memory->tables);
	while ((reap_rel = (TtlReapRel *) hash_seq_search(&status)) != NULL)
	{
		if (reap_rel->last_run < since)
		{
			ttl_reap_rel_discard(memory, reap_rel);
			ttl_brin_forget_ranges(memory, reap_rel);
			ttl_truncate_partition_forget(&reap_rel->truncate);
			if (reap_rel->is_stored)
				remove_state(reap_rel->relid);
			(void) hash_search(memory->tables, &reap_rel->relid, HASH_REMOVE, NULL);
		}
	}
}
