/*-------------------------------------------------------------------------
 *
 * rel_state.c
 *	  The state of deletion from a table that outlives a worker.
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

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "reaper/rel_state.h"
#include "shared.h"

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
