/*-------------------------------------------------------------------------
 *
 * reap_rel.h
 *	  What is remembered about the tables of containers, from turn to turn.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAP_REL_H
#define TTL_REAP_REL_H

#include "container/container.h"
#include "expiry/expiry.h"
#include "reaper/rel_state.h"
#include "reaper/truncate_partition.h"
#include "tids.h"
#include "utils/hsearch.h"

/* How a caller wants expired rows to be deleted. */
typedef struct TtlReapMode
{
	bool		by_worker;		/* obeys reaping, gives way, keeps errors to
								 * itself; a user's call does not */
	bool		commits;		/* a transaction for each batch */
} TtlReapMode;

/* What is remembered about a table. */
typedef struct TtlReapRel
{
	Oid			relid;			/* MUST BE FIRST */
	TimestampTz last_turn;
	TtlRelState state;			/* what the next worker gets */
	bool		is_stored;		/* ... if there is an entry for it */

	bool		is_known;		/* has a pass ended, or an entry been found? */

	TtlTids		places;			/* collected, to be deleted in batches, ... */
	int			next_place;		/* ... those from here on */
	int64		blocked;		/* rows behind the mark that can't be deleted;
								 * not yet in the pass's count */
	TtlExpiryPosition next_mark;	/* the mark when all places are dealt with */
	bool		more;			/* did the walk stop before the end? */
	bool		lacks_index;	/* logged already */
	bool		skip_asking;	/* in this pass the queries about references
								 * have failed */

	TimestampTz left_wait;		/* time between passes that delete all */
	TimestampTz pass_wait;		/* ... after this pass */

	int			ranges;			/* entries in the table of ranges */

	TimestampTz spared_since;	/* the change of policy by which places were
								 * left out, 0 = none */

	TtlTruncate	whole;			/* if it can be emptied at once */

	int			batch_size;
	int			fixed_size;		/* what the container wants it to be, or 0 */
	double		row_cost;		/* of the last batch, 0 = unknown */
	TimestampTz locked_until;	/* leave out locked rows at once till then */
} TtlReapRel;

/* Pages that a sweep has been to. */
typedef struct TtlBrinRangeKey
{
	Oid			relid;
	BlockNumber first;
} TtlBrinRangeKey;

typedef struct TtlBrinRange
{
	TtlBrinRangeKey key;		/* MUST BE FIRST */
	BlockNumber end;
	TimestampTz been_at;
	bool		is_renewed;		/* summarized anew since */
	TransactionId dead_before;	/* all that has gone is dead for a horizon
								 * that has come here; invalid = it hasn't yet
								 * gone */
} TtlBrinRange;

/* All that is remembered; belongs to one process. */
typedef struct TtlMemory
{
	TtlReapMode mode;
	MemoryContext context;		/* all that is remembered */
	MemoryContext step_context; /* reset after each step */
	HTAB	   *leaves;
	HTAB	   *ranges;
	int64		allocated;		/* places there is room for */
	TimestampTz rest_until;		/* batches of stuck tables wait till then */
} TtlMemory;

/* Rows of the first batch */
#define TTL_BATCH_START			50

/* The least time between passes that delete all */
#define TTL_LEFT_MIN_WAIT		(10 * USECS_PER_SEC)

/* An empty memory */
extern TtlMemory *ttl_reap_rel_memory_create(MemoryContext parent,
										 TtlReapMode mode);

/* Restores what earlier workers have stored; called in a transaction. */
extern void ttl_reap_rel_memory_restore(TtlMemory *memory);

/* Forgets tables that had no turn since the given time. */
extern void ttl_reap_rel_memory_trim(TtlMemory *memory, TimestampTz since);

/* What is remembered about a table */
extern TtlReapRel *ttl_reap_rel_enter(TtlMemory *memory, Oid relid);

/* Stores the state for the next worker if it needs it. */
extern void ttl_reap_rel_store(TtlMemory *memory, TtlReapRel *leaf);

extern void ttl_reap_rel_add_place(TtlMemory *memory, TtlReapRel *leaf, ItemPointer tid);
extern void ttl_reap_rel_clear_places(TtlMemory *memory, TtlReapRel *leaf);

/* Forgets what a walk has collected, as if it had not taken place. */
extern void ttl_reap_rel_discard(TtlMemory *memory, TtlReapRel *leaf);

/*
 * Passes.  Begins one over what had expired at 'now'; accounts for the places that
 * were collected and dealt with; ends the pass and schedules the next one.
 */
extern void ttl_reap_rel_begin_pass(TtlReapRel *leaf, TimestampTz now);
extern void ttl_reap_rel_reset(TtlMemory *memory, TtlReapRel *leaf);

/* Nothing in the table has expired. */
extern void ttl_reap_rel_found_nothing(TtlReapRel *leaf);

/* Has the next pass begin at once, or right after the running one. */
extern void ttl_reap_rel_want_pass(TtlReapRel *leaf);

/*
 * The number of rows that can't be deleted, as far as known.  A pass that runs has
 * not yet met all of them.
 */
extern int64 ttl_reap_rel_blocked_rows(const TtlReapRel *leaf);

/* Lets the leaf alone for a while, longer each time; forgets that it was in trouble. */
extern void ttl_reap_rel_pause(TtlReapRel *leaf);
extern void ttl_reap_rel_pause_long(TtlReapRel *leaf);
extern void ttl_reap_rel_end_pause(TtlReapRel *leaf);

/*
 * brin_ranges.c
 */
extern HTAB *ttl_brin_ranges_create(MemoryContext context);

/* Remembers that a sweep is just going there; not if there is no room. */
extern void ttl_brin_add_range(TtlMemory *memory, TtlReapRel *leaf, BlockNumber first,
							   BlockNumber end);

/* Has it been there since then? */
extern bool ttl_reap_rel_has_been_to(TtlMemory *memory, TtlReapRel *leaf, BlockNumber first,
								 TimestampTz since);

/* What there was to delete has gone. */
extern void ttl_brin_seal_ranges(TtlMemory *memory, TtlReapRel *leaf);

/* At most so many ranges that can be summarized anew with that horizon. */
extern int	ttl_brin_ranges_to_renew(TtlMemory *memory, TtlReapRel *leaf,
									 TransactionId horizon, TtlBrinRange **ranges, int max);

extern void ttl_brin_forget_ranges(TtlMemory *memory, TtlReapRel *leaf);

#endif							/* TTL_REAP_REL_H */
