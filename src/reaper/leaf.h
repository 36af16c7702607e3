/*-------------------------------------------------------------------------
 *
 * leaf.h
 *	  What is remembered about the tables of containers, from turn to turn.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_LEAF_H
#define TTL_LEAF_H

#include "container/container.h"
#include "expiry/expiry_walk.h"
#include "reaper/whole.h"
#include "storage/itemptr.h"
#include "utils/hsearch.h"

/* How a caller wants expired rows to be deleted. */
typedef struct TtlReapMode
{
	bool		by_worker;		/* obeys reaping, gives way, keeps errors to
								 * itself; a user's call does not */
	bool		commits;		/* a transaction for each batch */
} TtlReapMode;

/* Places of rows: those from 'next' on are still to be dealt with. */
typedef struct TtlPlaces
{
	ItemPointerData *tids;
	int			allocated;
	int			n;
	int			next;
} TtlPlaces;

/* How a table is swept that has indexes on pages alone, see sweep.c */
typedef struct TtlSweep
{
	bool		is_running;
	bool		is_whole;		/* from the first page */
	bool		is_within_range;	/* has it stopped there? */
	bool		found;			/* rows to delete */
	TtlExpiryMark mark;
	BlockNumber npages;			/* when it began */
	int32		default_ttl;	/* by which it goes */
	int64		ranges;			/* it has seen */
	TimestampTz busy;			/* how long it has taken */
	TimestampTz earliest;		/* expiry in ranges that it has passed by */
	TimestampTz next_at;		/* when the next one begins, from the first
								 * page */
} TtlSweep;

/* What is remembered about a table. */
typedef struct TtlLeaf
{
	Oid			relid;			/* MUST BE FIRST */
	TimestampTz last_turn;

	TtlPlaces	places;			/* collected, to be deleted in batches */
	TtlPlaces	retries;		/* collected, blocked before: one by one */
	bool		more;			/* did the walk stop before the end? */
	bool		fruitless;		/* has it found rows, and none was deleted? */
	bool		lacks_index;	/* told already */
	TtlExpiryMark mark;			/* all before it has been dealt with */
	TtlExpiryMark next_mark;	/* ... when the places have been, too */

	TimestampTz left_at;		/* next walk from the left edge */
	TimestampTz left_wait;
	uint32		left_walks;

	TtlSweep	sweep;
	int			ranges;			/* entries in the table of ranges */

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
} TtlLeaf;

/* A row that cannot be deleted. */
typedef struct TtlBlockedKey
{
	Oid			relid;
	ItemPointerData tid;
} TtlBlockedKey;

typedef struct TtlBlockedRow
{
	TtlBlockedKey key;			/* MUST BE FIRST */
	TimestampTz retry_at;
	TimestampTz wait;
	int			untold;			/* failures that need not be told yet */
	uint32		seen;			/* leaf's left_walks when last met */
} TtlBlockedRow;

/* Pages that a sweep has been to. */
typedef struct TtlLeafRangeKey
{
	Oid			relid;
	BlockNumber first;
} TtlLeafRangeKey;

typedef struct TtlLeafRange
{
	TtlLeafRangeKey key;		/* MUST BE FIRST */
	BlockNumber end;
	TimestampTz been_at;
	bool		is_renewed;		/* summarized anew since */
	TransactionId dead_before;	/* all that has gone is dead for a horizon
								 * that has come here; invalid = it hasn't yet
								 * gone */
} TtlLeafRange;

/* All that is remembered; belongs to one process. */
typedef struct TtlMemory
{
	TtlReapMode mode;
	MemoryContext context;		/* all that is remembered */
	MemoryContext step_context; /* reset after each step */
	HTAB	   *leaves;
	HTAB	   *blocked;
	HTAB	   *ranges;
	int64		allocated;		/* places there is room for */
} TtlMemory;

/* Rows of the first batch */
#define TTL_BATCH_START			50

/* The least time between walks from the left edge */
#define TTL_LEFT_MIN_WAIT		(10 * USECS_PER_SEC)

/* Blocked rows that are remembered */
#define TTL_BLOCKED_MAX			10000

/* An empty memory */
extern TtlMemory *ttl_leaf_memory_create(MemoryContext parent,
										 TtlReapMode mode);

/* Recalls what earlier workers knew; called in a transaction. */
extern void ttl_leaf_memory_recall(TtlMemory *memory);

/* Forgets tables that had no turn since the given time. */
extern void ttl_leaf_memory_trim(TtlMemory *memory, TimestampTz since);

/*
 * What is remembered about a table; 'blocked' is the number of rows that the
 * statistics have as blocked, in case that it is nothing yet.
 */
extern TtlLeaf *ttl_leaf_enter(TtlMemory *memory, Oid relid, int64 blocked);

extern void ttl_leaf_add_place(TtlMemory *memory, TtlPlaces *places, ItemPointer tid);
extern void ttl_leaf_clear_places(TtlMemory *memory, TtlPlaces *places);

/* Forgets what a walk has collected, as if it had not taken place. */
extern void ttl_leaf_discard(TtlMemory *memory, TtlLeaf *leaf);

/* Lets the leaf alone for a while, longer each time; forgets that it was in trouble. */
extern void ttl_leaf_pause(TtlMemory *memory, TtlLeaf *leaf);
extern void ttl_leaf_end_pause(TtlMemory *memory, TtlLeaf *leaf);

/* A row that cannot be deleted, NULL if it isn't known as one. */
extern TtlBlockedRow *ttl_leaf_find_blocked(TtlMemory *memory, TtlLeaf *leaf, ItemPointer tid);

/* Remembers one, NULL if there is no room. */
extern TtlBlockedRow *ttl_leaf_add_blocked(TtlMemory *memory, TtlLeaf *leaf, ItemPointer tid);
extern void ttl_leaf_remove_blocked(TtlMemory *memory, TtlLeaf *leaf, ItemPointer tid);

/*
 * Forgets blocked rows of the leaf, all or those that the last complete walk
 * from the left edge has not met.
 */
extern void ttl_leaf_forget_blocked(TtlMemory *memory, TtlLeaf *leaf, bool all);

/*
 * leaf_ranges.c
 */
extern HTAB *ttl_leaf_ranges_create(MemoryContext context);

/* Remembers that a sweep is just going there; not if there is no room. */
extern void ttl_leaf_add_range(TtlMemory *memory, TtlLeaf *leaf, BlockNumber first,
							   BlockNumber end);

/* Has it been there since then? */
extern bool ttl_leaf_has_been_to(TtlMemory *memory, TtlLeaf *leaf, BlockNumber first,
								 TimestampTz since);

/* What there was to delete has gone. */
extern void ttl_leaf_seal_ranges(TtlMemory *memory, TtlLeaf *leaf);

/* At most so many ranges that can be summarized anew with that horizon. */
extern int	ttl_leaf_ranges_to_renew(TtlMemory *memory, TtlLeaf *leaf,
									 TransactionId horizon, TtlLeafRange **ranges, int max);

extern void ttl_leaf_forget_ranges(TtlMemory *memory, TtlLeaf *leaf);

#endif							/* TTL_LEAF_H */
