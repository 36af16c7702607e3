/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  The shared memory of ttl: one allocation, which its users divide.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "ttl.h"
#include "utils/memutils.h"

typedef struct Part
{
	TtlSharedSize size;
	TtlSharedStartup startup;
} Part;

/* In the order of registration; filled before anybody asks for the memory. */
static List *parts = NIL;

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

void
ttl_shared_reserve(TtlSharedSize size, TtlSharedStartup startup)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Part	   *part = palloc(sizeof(Part));

	part->size = size;
	part->startup = startup;
	parts = lappend(parts, part);
	MemoryContextSwitchTo(old);
}

static Size
total_size(void)
{
	Size		total = 0;
	ListCell   *lc;

	foreach(lc, parts)
		total = add_size(total, MAXALIGN(((Part *) lfirst(lc))->size()));
	return total;
}

static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();

	RequestAddinShmemSpace(total_size());
	RequestNamedLWLockTranche(TTL_EXTENSION, 1);
}

static void
shmem_startup(void)
{
	bool		found;
	char	   *place;
	ListCell   *lc;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	place = ShmemInitStruct(TTL_EXTENSION, total_size(), &found);
	foreach(lc, parts)
	{
		Part	   *part = lfirst(lc);

		part->startup(place, found, GetNamedLWLockTranche(TTL_EXTENSION)->lock.tranche);
		place += MAXALIGN(part->size());
	}
	LWLockRelease(AddinShmemInitLock);
}

void
ttl_shared_init(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
}
