/*-------------------------------------------------------------------------
 *
 * blocked.c
 *	  What stands in the way of deletion, known to one worker after the other.
 *
 * A worker keeps it in mind (leaf.c).  Where there are more databases than
 * workers none lives for long, and each would try again at once what the one
 * before it has given up for an hour, and tell of it again.  So it is written
 * here, too, and read by the next one when it begins.
 *
 * It is an array in shared memory, without order: what is in it is rare, and
 * looking through it costs nothing compared to a deletion that fails.  What
 * finds no room is known to the worker alone.  An entry that should have been
 * retried long ago is one that nobody cares for any more, and makes room.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "reaper/blocked.h"
#include "shared.h"

#define MAX_ENTRIES		10000

/* Longer than anybody waits before he tries again. */
#define STALE			(2 * SECS_PER_HOUR * USECS_PER_SEC)

typedef struct BlockedShared
{
	LWLock		lock;			/* protects all else */
	int			n;
	TtlBlocked	entries[FLEXIBLE_ARRAY_MEMBER];
} BlockedShared;

static BlockedShared *shared = NULL;

static Size
shared_size(void)
{
	return add_size(offsetof(BlockedShared, entries),
					mul_size(MAX_ENTRIES, sizeof(TtlBlocked)));
}

static void
shared_startup(void *place, bool found, int tranche_id)
{
	shared = (BlockedShared *) place;
	if (found)
		return;
	LWLockInitialize(&shared->lock, tranche_id);
	shared->n = 0;
}

/* The entry of a row or table, or -1; *oldest becomes the first to be retried. */
static int
find(Oid relid, const ItemPointerData *tid, int *oldest)
{
	*oldest = -1;
	for (int i = 0; i < shared->n; i++)
	{
		TtlBlocked *entry = &shared->entries[i];

		if (entry->dboid == MyDatabaseId && entry->relid == relid &&
			(tid == NULL ? !ItemPointerIsValid(&entry->tid) :
			 ItemPointerEquals(&entry->tid, unconstify(ItemPointerData *, tid))))
			return i;
		if (*oldest < 0 || entry->retry_at < shared->entries[*oldest].retry_at)
			*oldest = i;
	}
	return -1;
}

void
ttl_blocked_put(Oid relid, const ItemPointerData *tid, int failure,
				TimestampTz retry_at, TimestampTz wait)
{
	TimestampTz now = GetCurrentTimestamp();
	int			oldest;
	int			i;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	i = find(relid, tid, &oldest);
	if (i < 0 && shared->n < MAX_ENTRIES)
		i = shared->n++;
	else if (i < 0 && shared->entries[oldest].retry_at < now - STALE)
		i = oldest;
	if (i >= 0)
	{
		TtlBlocked *entry = &shared->entries[i];

		entry->dboid = MyDatabaseId;
		entry->relid = relid;
		if (tid != NULL)
			entry->tid = *tid;
		else
			ItemPointerSetInvalid(&entry->tid);
		entry->failure = failure;
		entry->retry_at = retry_at;
		entry->wait = wait;
	}
	LWLockRelease(&shared->lock);
}

void
ttl_blocked_remove(Oid relid, const ItemPointerData *tid)
{
	int			oldest;
	int			i;

	LWLockAcquire(&shared->lock, LW_EXCLUSIVE);
	i = find(relid, tid, &oldest);
	if (i >= 0)
		shared->entries[i] = shared->entries[--shared->n];
	LWLockRelease(&shared->lock);
}

TtlBlocked *
ttl_blocked_get(int *n)
{
	TtlBlocked *result = palloc(MAX_ENTRIES * sizeof(TtlBlocked));

	*n = 0;
	LWLockAcquire(&shared->lock, LW_SHARED);
	for (int i = 0; i < shared->n; i++)
	{
		if (shared->entries[i].dboid == MyDatabaseId)
			result[(*n)++] = shared->entries[i];
	}
	LWLockRelease(&shared->lock);
	return result;
}

void
ttl_blocked_forget_database(Oid dboid)
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
ttl_blocked_init(void)
{
	ttl_shared_reserve(shared_size, shared_startup);
}
