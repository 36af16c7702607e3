/*-------------------------------------------------------------------------
 *
 * leaf.c
 *	  What is remembered about the tables of containers, from turn to turn.
 *
 * Each table of a container (a "leaf") has an entry: the places of expired rows that
 * have been collected and not yet dealt with, the marks at which walks start, how it
 * goes with batches; and rows that could not be deleted.
 *
 * What is remembered dies with the process, so a new worker starts from the
 * left edge; but blocked rows and leaves in trouble are written down for it
 * (blocked.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "reaper/blocked.h"
#include "reaper/leaf.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Time until a leaf in trouble is tried again. */
#define PAUSE_MIN_WAIT		(1 * USECS_PER_SEC)
#define PAUSE_MAX_WAIT		(300 * USECS_PER_SEC)

TtlMemory *
ttl_leaf_memory_create(MemoryContext parent, TtlReapMode mode)
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
	ctl.entrysize = sizeof(TtlLeaf);
	ctl.hcxt = context;
	memory->leaves = hash_create("ttl leaves", 64, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ctl.keysize = sizeof(TtlBlockedKey);
	ctl.entrysize = sizeof(TtlBlockedRow);
	memory->blocked = hash_create("ttl blocked rows", 64, &ctl,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	memory->ranges = ttl_leaf_ranges_create(context);
	return memory;
}

void
ttl_leaf_add_place(TtlMemory *memory, TtlPlaces *places, ItemPointer tid)
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

void
ttl_leaf_clear_places(TtlMemory *memory, TtlPlaces *places)
{
	if (places->tids != NULL)
		pfree(places->tids);
	memory->allocated -= places->allocated;
	memset(places, 0, sizeof(TtlPlaces));
}

void
ttl_leaf_discard(TtlMemory *memory, TtlLeaf *leaf)
{
	ttl_leaf_clear_places(memory, &leaf->places);
	ttl_leaf_clear_places(memory, &leaf->retries);
	leaf->more = false;
	leaf->next_mark = leaf->mark;
}

TtlLeaf *
ttl_leaf_enter(TtlMemory *memory, Oid relid, int64 blocked)
{
	TtlLeaf    *leaf;
	bool		found;

	leaf = (TtlLeaf *) hash_search(memory->leaves, &relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(leaf, 0, sizeof(TtlLeaf));
		leaf->relid = relid;
		leaf->left_wait = TTL_LEFT_MIN_WAIT;
		leaf->batch_size = TTL_BATCH_START;
		leaf->pause = PAUSE_MIN_WAIT;
		if (memory->mode.by_worker)
			leaf->told = blocked;
	}
	return leaf;
}

void
ttl_leaf_pause(TtlMemory *memory, TtlLeaf *leaf)
{
	leaf->paused_until = GetCurrentTimestamp() + leaf->pause;
	leaf->pause = Min(leaf->pause * 2, PAUSE_MAX_WAIT);
	if (memory->mode.by_worker)
		ttl_blocked_put(leaf->relid, NULL, leaf->trouble, leaf->paused_until,
						leaf->pause);
}

void
ttl_leaf_end_pause(TtlMemory *memory, TtlLeaf *leaf)
{
	if (memory->mode.by_worker && leaf->paused_until != 0)
		ttl_blocked_remove(leaf->relid, NULL);
	leaf->paused_until = 0;
	leaf->pause = PAUSE_MIN_WAIT;
}

static void
blocked_key(TtlBlockedKey *key, Oid relid, ItemPointer tid)
{
	memset(key, 0, sizeof(TtlBlockedKey));
	key->relid = relid;
	key->tid = *tid;
}

TtlBlockedRow *
ttl_leaf_find_blocked(TtlMemory *memory, TtlLeaf *leaf, ItemPointer tid)
{
	TtlBlockedKey key;

	if (leaf->blocked == 0)
		return NULL;
	blocked_key(&key, leaf->relid, tid);
	return (TtlBlockedRow *) hash_search(memory->blocked, &key, HASH_FIND, NULL);
}

TtlBlockedRow *
ttl_leaf_add_blocked(TtlMemory *memory, TtlLeaf *leaf, ItemPointer tid)
{
	TtlBlockedKey key;
	TtlBlockedRow *row;
	bool		found;

	if (hash_get_num_entries(memory->blocked) >= TTL_BLOCKED_MAX)
		return NULL;
	blocked_key(&key, leaf->relid, tid);
	row = (TtlBlockedRow *) hash_search(memory->blocked, &key, HASH_ENTER, &found);
	row->seen = leaf->left_walks;
	if (!found)
		leaf->blocked++;
	return row;
}

void
ttl_leaf_remove_blocked(TtlMemory *memory, TtlLeaf *leaf, ItemPointer tid)
{
	TtlBlockedKey key;
	bool		found;

	blocked_key(&key, leaf->relid, tid);
	(void) hash_search(memory->blocked, &key, HASH_REMOVE, &found);
	if (found)
	{
		if (memory->mode.by_worker)
			ttl_blocked_remove(leaf->relid, tid);
		leaf->blocked--;
	}
}

void
ttl_leaf_forget_blocked(TtlMemory *memory, TtlLeaf *leaf, bool all)
{
	HASH_SEQ_STATUS status;
	TtlBlockedRow *row;

	if (leaf->blocked == 0)
		return;

	hash_seq_init(&status, memory->blocked);
	while ((row = (TtlBlockedRow *) hash_seq_search(&status)) != NULL)
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

void
ttl_leaf_memory_recall(TtlMemory *memory)
{
	TimestampTz now = GetCurrentTimestamp();
	int			n;
	TtlBlocked *known = ttl_blocked_get(&n);

	for (int i = 0; i < n && hash_get_num_entries(memory->blocked) < TTL_BLOCKED_MAX; i++)
	{
		bool		is_row = ItemPointerIsValid(&known[i].tid);
		TtlLeaf    *leaf;

		if (get_rel_relkind(known[i].relid) != RELKIND_RELATION)
		{
			ttl_blocked_remove(known[i].relid, is_row ? &known[i].tid : NULL);
			continue;
		}
		leaf = ttl_leaf_enter(memory, known[i].relid, 0);
		leaf->last_turn = now;
		if (is_row)
		{
			TtlBlockedRow *row = ttl_leaf_add_blocked(memory, leaf, &known[i].tid);

			row->retry_at = known[i].retry_at;
			row->wait = known[i].wait;
			row->untold = known[i].failure;
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
ttl_leaf_memory_trim(TtlMemory *memory, TimestampTz since)
{
	HASH_SEQ_STATUS status;
	TtlLeaf    *leaf;

	hash_seq_init(&status, memory->leaves);
	while ((leaf = (TtlLeaf *) hash_seq_search(&status)) != NULL)
	{
		if (leaf->last_turn < since)
		{
			ttl_leaf_discard(memory, leaf);
			ttl_leaf_forget_blocked(memory, leaf, true);
			ttl_leaf_forget_ranges(memory, leaf);
			ttl_leaf_end_pause(memory, leaf);
			ttl_whole_forget(&leaf->whole);
			(void) hash_search(memory->leaves, &leaf->relid, HASH_REMOVE, NULL);
		}
	}
}
