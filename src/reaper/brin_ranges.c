/*-------------------------------------------------------------------------
 *
 * brin_ranges.c
 *	  Pages that a sweep has been to, and that wait to be summarized anew.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "reaper/reap_rel.h"
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
