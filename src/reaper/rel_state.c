/*-------------------------------------------------------------------------
 *
 * rel_state.c
 *	  The state of the deletion from a table.
 *
 * Each process that deletes has a hash table with the state of each table: the TIDs
 * of expired rows that have been collected and remain to be deleted, the position at
 * which the next scan starts, the size of batches, and the running pass.
 *
 * Rows that cannot be deleted are not remembered one by one.  A pass scans all rows
 * that had expired when it began, counts those that it cannot delete, and advances
 * the position past them; the next pass finds them again.  It starts after PASS_SHARE
 * times the time that this one has spent on finding rows and on failing, within
 * bounds, so that passes take a small share of the worker's time.
 *
 * Where there are more databases than workers, a worker lives for one cycle only.  So
 * the state of tables with rows that cannot be deleted, and of tables that are paused,
 * is stored in shared memory, and the next worker continues there, rather than to try
 * and log all of them again.  Other tables start from scratch.
 *
 * The stored states are an unordered array.  If it is full, an entry that was stored
 * long ago is replaced, since its table is gone or no container any more; if there is
 * none, the table starts from scratch with each worker.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "reaper/reap_rel.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* How long a table is paused after an error of its own */
#define PAUSE_MIN			(1 * USECS_PER_SEC)
#define PAUSE_MAX			(300 * USECS_PER_SEC)

/* Time between passes: so many times as long as one has taken, ... */
#define PASS_SHARE			20

/* ... within bounds, which differ if rows remain that may be deleted soon */
#define PASS_MIN_WAIT		(10 * USECS_PER_SEC)
#define PASS_MAX_WAIT		(300 * USECS_PER_SEC)
#define BLOCKED_MIN_WAIT	(2 * USECS_PER_SEC)
#define BLOCKED_MAX_WAIT	(30 * USECS_PER_SEC)

/* A stored state is replaced after so long: longer than any pause, and than most passes */
#define STALE				(2 * SECS_PER_HOUR * USECS_PER_SEC)

/* In shared memory, and the lock that protects them */
static TtlRelStates *shared = NULL;
static LWLock *lock = NULL;

void
ttl_rel_state_attach(TtlRelStates *shmem, LWLock *protecting)
{
	shared = shmem;
	lock = protecting;
}

/* The entry of a table of this database, or NULL; *oldest is the one stored first. */
static TtlRelStateEntry *
find_entry(Oid relid, TtlRelStateEntry **oldest)
{
	*oldest = NULL;
	for (int i = 0; i < shared->n; i++)
	{
		TtlRelStateEntry *entry = &shared->entries[i];

		if (entry->relid == relid && entry->dboid == MyDatabaseId)
			return entry;
		if (*oldest == NULL || entry->stored_at < (*oldest)->stored_at)
			*oldest = entry;
	}
	return NULL;
}

static void
put_state(Oid relid, const TtlRelState *state)
{
	TimestampTz now = GetCurrentTimestamp();
	TtlRelStateEntry *oldest;
	TtlRelStateEntry *entry;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	entry = find_entry(relid, &oldest);
	if (entry == NULL && shared->n < TTL_REL_STATES_MAX)
		entry = &shared->entries[shared->n++];
	else if (entry == NULL && oldest->stored_at < now - STALE)
		entry = oldest;
	if (entry != NULL)
		*entry = (TtlRelStateEntry)
	{
		MyDatabaseId, relid, now, *state
	};
	LWLockRelease(lock);
}

/* True if the clock has been set back since the state's times were set, so that they mean nothing. */
static bool
is_of_future(const TtlRelStateEntry *entry, TimestampTz now)
{
	const TtlPass *pass = &entry->state.pass;

	return entry->state.paused_until > now + PAUSE_MAX ||
		pass->next_at > now + Max(PASS_MAX_WAIT, pass->busy);
}

/* Gets the state of a table that an earlier worker has stored; false if none has. */
static bool
get_state(Oid relid, TtlRelState *state)
{
	TtlRelStateEntry *oldest;
	TtlRelStateEntry *entry;

	LWLockAcquire(lock, LW_SHARED);
	entry = find_entry(relid, &oldest);
	if (entry != NULL && is_of_future(entry, GetCurrentTimestamp()))
		entry = NULL;
	if (entry != NULL)
		*state = entry->state;
	LWLockRelease(lock);
	return entry != NULL;
}

/* Removes the state of a table of the database, or with InvalidOid of all. */
static void
remove_states(Oid dboid, Oid relid)
{
	int			kept = 0;

	LWLockAcquire(lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->n; i++)
	{
		TtlRelStateEntry *entry = &shared->entries[i];

		if (entry->dboid != dboid || (OidIsValid(relid) && entry->relid != relid))
			shared->entries[kept++] = *entry;
	}
	shared->n = kept;
	LWLockRelease(lock);
}

void
ttl_rel_state_forget_database(Oid dboid)
{
	remove_states(dboid, InvalidOid);
}

TtlMemory *
ttl_reap_rel_memory_create(MemoryContext parent, TtlReapMode mode)
{
	MemoryContext context = AllocSetContextCreate(parent, "ttl tables", ALLOCSET_DEFAULT_SIZES);
	TtlMemory  *memory = MemoryContextAllocZero(context, sizeof(TtlMemory));
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(TtlReapRel), .hcxt = context};

	memory->mode = mode;
	memory->context = context;
	memory->batch_context = AllocSetContextCreate(context, "ttl batch", ALLOCSET_DEFAULT_SIZES);
	memory->tables = hash_create("ttl tables", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	return memory;
}

TtlReapRel *
ttl_reap_rel_enter(TtlMemory *memory, Oid relid)
{
	TtlReapRel *reap_rel;
	bool		found;

	reap_rel = (TtlReapRel *) hash_search(memory->tables, &relid, HASH_ENTER, &found);
	if (found)
		return reap_rel;
	memset(reap_rel, 0, sizeof(TtlReapRel));
	reap_rel->relid = relid;
	if (memory->mode.by_worker)
		reap_rel->last_run = pg_prng_uint32(&pg_global_prng_state);
	if (memory->mode.by_worker && get_state(relid, &reap_rel->state))
	{
		reap_rel->was_run = true;
		reap_rel->next_position = reap_rel->state.position;
		reap_rel->more = reap_rel->state.pass.is_running;
		reap_rel->is_stored = reap_rel->is_known = true;
		if (reap_rel->state.n_single > 0)
			reap_rel->batch_size = 1;
	}
	return reap_rel;
}

void
ttl_reap_rel_store(TtlMemory *memory, TtlReapRel *reap_rel)
{
	const TtlRelState *state = &reap_rel->state;
	bool		is_needed = memory->mode.by_worker &&
		(ttl_reap_rel_blocked_rows(reap_rel) > 0 || state->paused_until != 0 ||
		 state->has_timed_out || state->n_single > 0);

	if (is_needed)
		put_state(reap_rel->relid, state);
	else if (reap_rel->is_stored)
		remove_states(MyDatabaseId, reap_rel->relid);
	reap_rel->is_stored = is_needed;
}

void
ttl_reap_rel_memory_trim(TtlMemory *memory, TimestampTz since)
{
	HASH_SEQ_STATUS status;
	TtlReapRel *reap_rel;

	hash_seq_init(&status, memory->tables);
	while ((reap_rel = (TtlReapRel *) hash_seq_search(&status)) != NULL)
	{
		if (reap_rel->last_run >= since)
			continue;
		ttl_reap_rel_discard(memory, reap_rel);
		ttl_truncate_partition_forget(&reap_rel->truncate);
		if (reap_rel->is_stored)
			remove_states(MyDatabaseId, reap_rel->relid);
		(void) hash_search(memory->tables, &reap_rel->relid, HASH_REMOVE, NULL);
	}
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

void
ttl_reap_rel_begin_pass(TtlReapRel *reap_rel, TimestampTz now)
{
	TtlPass    *pass = &reap_rel->state.pass;

	*pass = (TtlPass)
	{
		.is_running = true,
			.now = now,
			.last_blocked = pass->blocked,
			.last_raised = pass->raised,
			.last_references = pass->references,
			.references_logged = pass->references_logged
	};
	reap_rel->skip_referenced_check = false;
	memset(&reap_rel->state.position, 0, sizeof(TtlExpiryPosition));
	reap_rel->next_position = reap_rel->state.position;
}

/* Schedules the next pass. */
static void
end_pass(TtlReapRel *reap_rel)
{
	TtlPass    *pass = &reap_rel->state.pass;
	TimestampTz now = GetCurrentTimestamp();
	int64		wait = pass->busy * PASS_SHARE;

	pass->is_running = false;
	reap_rel->is_known = true;
	if (pass->blocked > 0 || pass->skipped_locked)
	{
		wait = Min(Max(wait, BLOCKED_MIN_WAIT), BLOCKED_MAX_WAIT);
		pass->next_at = now + Max(wait, pass->busy);
	}
	else
		pass->next_at = now + Min(Max(wait, PASS_MIN_WAIT), PASS_MAX_WAIT);
	if (!pass->references)
		pass->references_logged = false;
	if (pass->is_stale)
		ttl_reap_rel_want_pass(reap_rel);
}

bool
ttl_reap_rel_has_tids(TtlMemory *memory, TtlReapRel *reap_rel)
{
	if (reap_rel->next_tid < reap_rel->tids.n)
		return true;

	reap_rel->state.position = reap_rel->next_position;
	reap_rel->state.pass.blocked += reap_rel->blocked;
	reap_rel->blocked = 0;
	clear_tids(memory, reap_rel);
	if (reap_rel->state.pass.is_running && !reap_rel->more)
		end_pass(reap_rel);
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
}

int64
ttl_reap_rel_blocked_rows(const TtlReapRel *reap_rel)
{
	const TtlPass *pass = &reap_rel->state.pass;
	int64		blocked = pass->blocked + reap_rel->blocked;

	return pass->is_running ? Max(blocked, pass->last_blocked) : blocked;
}

void
ttl_reap_rel_pause(TtlReapRel *reap_rel, bool is_long)
{
	TtlRelState *state = &reap_rel->state;

	state->pause = is_long ? PAUSE_MAX : Min(Max(state->pause * 2, PAUSE_MIN), PAUSE_MAX);
	state->paused_until = GetCurrentTimestamp() + state->pause;
}

void
ttl_reap_rel_end_pause(TtlReapRel *reap_rel)
{
	reap_rel->state.paused_until = 0;
	reap_rel->state.pause = 0;
}
