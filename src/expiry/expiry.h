/*-------------------------------------------------------------------------
 *
 * expiry.h
 *	  THE definition of "expired", and the walk over what is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRY_H
#define TTL_EXPIRY_H

#include "container/container.h"
#include "execution.h"
#include "executor/tuptable.h"
#include "utils/snapshot.h"

/*
 * The instant at which the row in the slot expires; DT_NOEND if it never
 * does.  The slot's columns are numbered as in container->relid.
 */
extern TimestampTz ttl_expiry_of_slot(const TtlContainer *container,
									  TupleTableSlot *slot);

/*
 * The instant at which a row with this _ts and TTL of its own expires, and
 * the latest _ts of rows that live for so many seconds and have expired at
 * 'now'.  Neither overflows.
 */
extern TimestampTz ttl_expiry_add(TimestampTz ts, int32 seconds);
extern TimestampTz ttl_expiry_cutoff(TimestampTz now, int32 seconds);

/*
 * While the container is in grace: is the row in the slot, which has expired, one
 * that is spared?  'now' is the instant by which it is judged.
 */
extern bool ttl_expiry_is_spared(const TtlContainer *container,
								 TupleTableSlot *slot, TimestampTz now);

/*
 * When the worker may delete the row in the slot, at the latest: its expiry, or the end of
 * what keeps it stored longer; DT_NOEND if reaping is off.
 */
extern TimestampTz ttl_expiry_held_until(const TtlContainer *container,
										 TupleTableSlot *slot, TimestampTz now);

/*
 * What is settled for a container in an execution when it starts, for one of the
 * two filters.
 */
typedef struct TtlLive
{
	Oid			container;
	bool		deletes;		/* expired rows are looked for, not hidden */
	bool		sees_everything;
	int32		default_ttl;
	TimestampTz now;
	TimestampTz default_cutoff; /* if default_ttl > 0 */
	bool		spares;			/* what ... */
	TtlChange	change;			/* ... has made expired */
} TtlLive;

/*
 * For the filter that hides.  Asked for when the execution starts; it stays where
 * it is as long as that, and its parallel workers get the same.
 */
extern const TtlLive *ttl_expiry_settled(TtlExecution *execution, Oid container);

/* Has a row with these values expired? */
extern bool ttl_expiry_has_expired(const TtlLive *live, bool ts_is_null, TimestampTz ts,
								   bool own_is_null, int32 own);

/*
 * May the running execution, or whatever the session does outside of one, see
 * expired rows of the container?
 */
extern bool ttl_expiry_is_shown(Oid container);

extern void ttl_expiry_init(void);

/* The instant by which reading statements judge: ttl.now, or the clock. */
extern TimestampTz ttl_expiry_reading_now(void);

/*
 * How an expiry index is defined, as CREATE INDEX takes it: what stands between
 * the parentheses, and the predicate (NULL = none).  Returns false if a
 * container with these columns needs no such index.
 */
typedef struct TtlIndexDefinition
{
	char	   *key;
	char	   *predicate;
} TtlIndexDefinition;

extern bool ttl_expiry_index_definition(const TtlPolicy *policy,
										TtlExpiryIndex index,
										TtlIndexDefinition *definition);

/* The CHECK on an item TTL column, as ADD CHECK takes it. */
extern char *ttl_expiry_check_definition(const TtlPolicy *policy);

/*
 * The name of a constraint of the relation that equals it, or NULL; *validated
 * tells whether all rows are known to obey it.
 */
extern char *ttl_expiry_find_check(Relation rel, const TtlPolicy *policy,
								   bool *validated);

/*
 * The last key of an expiry index that had expired at 'now' while the default TTL
 * was the given one; false if none can have.
 */
extern bool ttl_expiry_index_last_key(const TtlContainer *container, int32 default_ttl,
									  TimestampTz now, TtlExpiryIndex index,
									  TimestampTz *key);

/*
 * The usable indexes of the relation that equal the definitions, but for those
 * in the list 'except', and which ones it needs.
 */
extern void ttl_expiry_find_indexes(Relation rel, const TtlPolicy *policy,
									const List *except,
									TtlExpiryIndexes *indexes);

/*
 * Errors (55000) if the table, or a partition of it, lacks an index that it
 * needs.  And if there is an unusable one that equals the definition: it would
 * be in the way of one that is to be created.  Partitions are locked.
 */
extern void ttl_expiry_check_indexes(Oid relid, const TtlPolicy *policy);
extern void ttl_expiry_refuse_unusable(Oid relid, const TtlPolicy *policy,
									   TtlExpiryIndex index);

/*
 * A walk over the expired rows of one leaf table, through its expiry indexes,
 * the earliest expiry of each index first.  Rows that were expired at 'now'
 * and are visible to the snapshot are returned.
 *
 * 'mark' (may be NULL) is where an earlier walk stopped: entries to the left
 * of it are not looked at, and it is moved along.  All zeros is a mark at the
 * beginning.
 */
typedef struct TtlExpiryMark
{
	bool		set[TTL_INDEXES];
	TimestampTz at[TTL_INDEXES];	/* the last key seen, per index */
} TtlExpiryMark;

typedef struct TtlExpiryWalk TtlExpiryWalk;

/* The relation is open and locked; the snapshot stays valid for the walk. */
extern TtlExpiryWalk *ttl_expiry_walk_begin(Relation rel,
											const TtlContainer *container,
											TimestampTz now,
											Snapshot snapshot,
											TtlExpiryMark *mark);

/* The next expired row, or NULL; *expiry (may be NULL) is when it expired. */
extern TupleTableSlot *ttl_expiry_walk_next(TtlExpiryWalk *walk,
											TimestampTz *expiry);

/* Lets the walk leave out what is spared, at next to no cost. */
extern void ttl_expiry_walk_spare(TtlExpiryWalk *walk);

/*
 * Lets the walk give up after so many index entries, those of dead rows
 * included; and whether it has.
 */
extern void ttl_expiry_walk_limit(TtlExpiryWalk *walk, int64 max_entries);
extern bool ttl_expiry_walk_gave_up(const TtlExpiryWalk *walk);

/*
 * Has the walk left rows out, for want of a usable index?  Known at its end.
 * The reason: as an error (55000), and as a message.
 */
extern bool ttl_expiry_walk_is_incomplete(const TtlExpiryWalk *walk);
extern void ttl_expiry_report_incomplete(Relation rel);
extern char *ttl_expiry_why_incomplete(Relation rel);

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
 * How many stored rows of the container its default TTL makes expired at 'now' that
 * would not be by the other one.  Not all leaves may be at hand, and no more than a
 * limited number of index entries of dead ones is read; *complete tells whether
 * all were counted, or 'max' of them.  *earliest is when the first of them has
 * expired, DT_NOEND if there is none.
 */
extern int64 ttl_expiry_count_made_expired(Oid container, int32 other_default,
										   TimestampTz now, int64 max, bool *complete,
										   TimestampTz *earliest);

/*
 * The latest instant at which a row that is in an expiry index expires, by the
 * right edges of the indexes; DT_NOEND if that isn't to be known, or not at
 * once.  Rows that live for ever may be in no index, but only if the container
 * has a TTL column.
 */
extern TimestampTz ttl_expiry_latest(Relation rel,
									 const TtlContainer *container,
									 Snapshot snapshot);

#endif							/* TTL_EXPIRY_H */
