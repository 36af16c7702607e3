/*-------------------------------------------------------------------------
 *
 * expiry_walk.h
 *	  The walk over the rows that have expired.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRY_WALK_H
#define TTL_EXPIRY_WALK_H

#include "container/container.h"
#include "executor/tuptable.h"
#include "expiry/expiry_index.h"
#include "expiry/summaries.h"
#include "utils/snapshot.h"

/*
 * The last key of an expiry index that had expired at 'now' while the default TTL
 * was the given one; false if none can have.
 */
extern bool ttl_expiry_index_last_key(const TtlContainer *container, int32 default_ttl,
									  TimestampTz now, TtlExpiryIndex index,
									  TimestampTz *key);

/*
 * A walk over the expired rows of one leaf table, through its expiry indexes,
 * the earliest expiry of each index first; where BRIN indexes tell pages alone, in
 * the order of pages.  Rows that were expired at 'now' and are visible to the
 * snapshot are returned.
 *
 * 'mark' (may be NULL) is the position at which an earlier walk stopped: the walk
 * starts behind that index entry without fetching anything before it from the heap,
 * and advances the mark.  All zeros is a mark at the beginning.
 */
typedef struct TtlExpiryPosition
{
	bool		set[TTL_INDEXES];
	TimestampTz at[TTL_INDEXES];	/* key of the last entry seen, per index */
	ItemPointerData tid[TTL_INDEXES];	/* its TID: a btree keeps equal keys in
										 * TID order */
	BlockNumber page;			/* the one it is at, if there are pages alone, */
	OffsetNumber offset;		/* and the last tuple seen there */
} TtlExpiryPosition;

typedef struct TtlExpiryWalk TtlExpiryWalk;

/* The relation is open and locked; the snapshot stays valid for the walk. */
extern TtlExpiryWalk *ttl_expiry_walk_begin(Relation rel,
											const TtlContainer *container,
											TimestampTz now,
											Snapshot snapshot,
											TtlExpiryPosition *mark);

/* The next expired row, or NULL; *expiry (may be NULL) is when it expired. */
extern TupleTableSlot *ttl_expiry_walk_next(TtlExpiryWalk *walk,
											TimestampTz *expiry);

/*
 * Lets a walk in the order of pages ask at each range of them what to do.  It passes
 * those by in which nothing can have expired anyway.
 */
typedef enum TtlExpiryStep
{
	TTL_WALK_ENTER,
	TTL_WALK_PASS,
	TTL_WALK_STOP
} TtlExpiryStep;

typedef TtlExpiryStep (*TtlExpiryGuide) (void *arg, const TtlRange *range,
										 bool may_have_expired);

extern void ttl_expiry_walk_guide(TtlExpiryWalk *walk, TtlExpiryGuide guide, void *arg);

/* The summaries that such a walk goes by, until it ends */
extern TtlSummaries *ttl_expiry_walk_summaries(TtlExpiryWalk *walk);

/* Lets the walk look at one of the indexes alone. */
extern void ttl_expiry_walk_only(TtlExpiryWalk *walk, TtlExpiryIndex index);

/* Lets the walk leave out what is spared, at next to no cost. */
extern void ttl_expiry_walk_exclude(TtlExpiryWalk *walk);

/*
 * Lets the walk give up after so many index entries, those of dead rows
 * included; how many are left, and whether it has.
 */
extern void ttl_expiry_walk_limit(TtlExpiryWalk *walk, int64 max_entries);
extern int64 ttl_expiry_walk_entries_left(const TtlExpiryWalk *walk);
extern bool ttl_expiry_walk_gave_up(const TtlExpiryWalk *walk);

/* Has the walk left rows out, for want of a usable index?  Known at its end. */
extern bool ttl_expiry_walk_is_incomplete(const TtlExpiryWalk *walk);

extern void ttl_expiry_walk_end(TtlExpiryWalk *walk);

/*
 * The earliest instant at which a row of the leaf will expire or has expired,
 * by its index edges; DT_NOEND if none will.  'incomplete' as for a walk.
 * *held_until (may be NULL) is set for that row, if there is one.
 */
extern TimestampTz ttl_expiry_earliest(Relation rel,
									   const TtlContainer *container,
									   Snapshot snapshot, bool *incomplete,
									   TimestampTz *held_until);

/*
 * The latest instant at which a row that is in an expiry index expires, by the
 * right edges of the indexes; DT_NOEND if that isn't to be known, or not at
 * once.  Rows that live for ever may be in no index, but only if the container
 * has a TTL column.
 */
extern TimestampTz ttl_expiry_latest(Relation rel,
									 const TtlContainer *container,
									 Snapshot snapshot);

/*
 * expiry_oldest.c
 */

/*
 * When the oldest expired row of the leaf has expired, where indexes tell pages alone;
 * DT_NOEND if there is none.  A few of the pages are read, those with the oldest rows
 * by the indexes first, and the rest goes by the indexes, which don't notice if the
 * oldest row is deleted or renewed; so then it may be too early.  'incomplete' and
 * *held_until as above.
 */
extern TimestampTz ttl_expiry_oldest_in_pages(Relation rel,
											  const TtlContainer *container,
											  TimestampTz now, Snapshot snapshot,
											  bool *incomplete,
											  TimestampTz *held_until);

/*
 * expiry_count.c
 */

/*
 * How many rows of the container have expired and are not yet deleted, by the statement's
 * clock, counted through its indexes.  Errors (55000) if it lacks one.
 */
extern int64 ttl_expiry_count_expired(Oid container);

/*
 * How many stored rows of the container its default TTL makes expired at 'now' that
 * would not be by the other one.  Not all leaves may be at hand, and no more than a
 * limited number of index entries of dead ones is read; *complete tells whether
 * all were counted, or 'max' of them.  *earliest is when the first of them has
 * expired, DT_NOEND if there is none.
 */
extern int64 ttl_expiry_count_made_expired(Oid container, int32 other_default,
										   TimestampTz now, int64 max, bool *complete,
										   TimestampTz *earliest);

#endif							/* TTL_EXPIRY_WALK_H */
