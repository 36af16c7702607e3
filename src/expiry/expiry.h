/*-------------------------------------------------------------------------
 *
 * expiry.h
 *	  When rows expire, and where expired rows are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRY_H
#define TTL_EXPIRY_H

#include "access/htup_details.h"
#include "access/skey.h"
#include "container/container.h"
#include "execution.h"
#include "executor/tuptable.h"
#include "storage/block.h"
#include "storage/bufpage.h"
#include "tids.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"
#include "writers.h"

/*
 * expiry.c
 */

/*
 * What a row says of its expiry.
 */
typedef struct TtlItem
{
	bool		has_ts;
	bool		has_deadline;
	TimestampTz ts;				/* else DT_NOBEGIN */
	TimestampTz deadline;		/* else DT_NOEND */
	int32		ttl;			/* seconds, TTL_NEVER, or 0 if it has no TTL
								 * of its own */
} TtlItem;

/* Reads the value of a TTL column, which isn't NULL. */
static inline void
ttl_item_set_own(TtlItem *item, const TtlType *ttl_type, Datum own)
{
	if (ttl_type->seconds != NULL)
		item->ttl = ttl_type->seconds(own);
	else
		item->has_deadline = ttl_type_instant(ttl_type, own, &item->deadline);
}

/* Reads it all from the row in the slot. */
static inline void
ttl_item_read(TtlItem *item, AttrNumber ts_attno, const TtlType *ts_type,
			  AttrNumber ttl_attno, const TtlType *ttl_type, TupleTableSlot *slot)
{
	bool		isnull = true;
	Datum		value = 0;

	item->has_deadline = false;
	item->deadline = DT_NOEND;
	item->ttl = 0;
	if (ttl_attno != InvalidAttrNumber)
		value = slot_getattr(slot, ttl_attno, &isnull);
	if (!isnull)
		ttl_item_set_own(item, ttl_type, value);

	isnull = true;
	if (ts_attno != InvalidAttrNumber)
		value = slot_getattr(slot, ts_attno, &isnull);
	item->has_ts = !isnull;
	item->ts = isnull ? DT_NOBEGIN : DatumGetTimestampTz(value);
	if (unlikely(ts_type != NULL) && !isnull)
	{
		item->ts = DT_NOBEGIN;
		item->has_ts = ttl_type_instant(ts_type, value, &item->ts);
	}
}

/* The slot's columns are numbered as in container->relid. */
static inline void
ttl_item_of_slot(TtlItem *item, const TtlContainer *container, TupleTableSlot *slot)
{
	ttl_item_read(item, container->ts_attno, container->ts_type, container->ttl_attno,
				  container->ttl_type, slot);
}

/*
 * The instant at which the row in the slot expires; DT_NOEND if it never does.
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
 * The TTL that counts for an item, with its own taken into account: seconds,
 * TTL_NEVER or TTL_OFF.
 */
static inline int32
ttl_expiry_effective_ttl(int32 default_ttl, const TtlItem *item)
{
	return default_ttl == TTL_OFF || item->ttl == 0 ? default_ttl : item->ttl;
}

/* When it expires; DT_NOEND = never */
static inline TimestampTz
ttl_expiry_of(int32 default_ttl, const TtlItem *item)
{
	int32		ttl = ttl_expiry_effective_ttl(default_ttl, item);

	if (item->has_deadline && default_ttl != TTL_OFF)
		return item->deadline;
	return ttl <= 0 || !item->has_ts ? DT_NOEND : ttl_expiry_add(item->ts, ttl);
}

/* What decides, under whatever policy */
static inline TtlRowTimes
ttl_item_times(const TtlItem *item)
{
	TtlRowTimes times = {DT_NOEND, DT_NOEND};

	if (item->has_deadline)
		times.expiry = item->deadline;
	else if (item->ttl == 0)
		times.ts = item->has_ts ? item->ts : DT_NOEND;
	else if (item->ttl > 0 && item->has_ts)
		times.expiry = ttl_expiry_add(item->ts, item->ttl);
	return times;
}

/*
 * Which of deadlines have passed at 'now': those up to this one.  'infinity' is
 * never.
 */
static inline TimestampTz
ttl_expiry_last_deadline(TimestampTz now)
{
	return Min(now, DT_NOEND - 1);
}

/* The reference time of reading statements: ttl.now, or the clock. */
extern TimestampTz ttl_expiry_reading_now(void);

/*
 * grace.c
 */

extern void ttl_grace_begin(TtlPolicy *policy, int32 former_ttl, Oid partition);
extern void ttl_grace_begin_at(Oid container, TimestampTz at);
extern void ttl_grace_notice(Oid container);
extern TimestampTz ttl_grace_end(const TtlChange *change, TimestampTz clock);
extern bool ttl_grace_lasts(const TtlChange *change, TimestampTz clock);
extern TimestampTz ttl_grace_held_until(const TtlContainer *container,
										TupleTableSlot *slot, TimestampTz now);

/*
 * is_live.c
 */

/*
 * What is resolved for a container in an execution when it starts, for one of the
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
} TtlLive;

extern const TtlLive *ttl_live_resolve(TtlExecution *execution, Oid container, bool deletes);
extern bool ttl_live_passes(const TtlLive *live, const TtlItem *item);
extern bool ttl_live_session_shows(void);
extern bool ttl_live_is_shown(Oid container);
extern void ttl_live_started(TtlExecution *execution, int eflags);
extern void ttl_live_lead(QueryDesc *query_desc);
extern void ttl_live_follow_leader(TtlExecution *execution);

/* A utility command that may hold stored rows against a constraint */
typedef struct TtlValidation
{
	int			depth;			/* of executions when it started */
	bool		is_alter_table;
	bool		detaches;		/* a partition */
	char	   *container;		/* its name as a literal, to be put into a
								 * HINT */
	ErrorContextCallback context;
	struct TtlValidation *outer;
} TtlValidation;

extern void ttl_live_begin_validation(TtlValidation *inner, Node *stmt);
extern void ttl_live_end_validation(TtlValidation *inner);
extern bool ttl_live_validates(void);

/*
 * expiry_index.c
 */

/*
 * Those of a table.  Only a valid index is usable; for a partitioned table that
 * is one which each partition has.  An index is needed if rows of its kind may
 * be there that can expire under some default TTL.
 */
typedef struct TtlExpiryIndexes
{
	Oid			usable[TTL_INDEXES];	/* InvalidOid = there is none */
	bool		needed[TTL_INDEXES];
} TtlExpiryIndexes;

extern bool ttl_expiry_indexes(Relation rel, TtlExpiryIndexes *indexes);
extern bool ttl_expiry_lock_indexes(Relation rel);
extern Expr *ttl_expiry_make_column(const TtlContainer *container, Index varno,
									AttrNumber attno, const TtlType *ttl_type);
extern char *ttl_expiry_index_sql(Relation rel, const TtlPolicy *policy, TtlExpiryIndex index);
extern void ttl_expiry_find_indexes(Relation rel, const TtlPolicy *policy,
									const List *except,
									TtlExpiryIndexes *indexes);
extern void ttl_expiry_check_indexes(Oid relid, const TtlPolicy *policy, TtlExpiryIndex index);
extern void ttl_expiry_report_incomplete(Relation rel);

/*
 * expiry_walk.c
 */

/*
 * A walk over the expired rows of one relation, through its expiry indexes,
 * the earliest expiry of each index first.  Rows that were expired at 'now' and are visible to the
 * snapshot are returned.
 *
 * 'position' (may be NULL) is where an earlier walk stopped: the walk
 * starts behind that index entry without fetching anything before it from the heap,
 * and advances the position.
 */
typedef struct TtlExpiryWalk TtlExpiryWalk;

extern TtlExpiryWalk *ttl_expiry_walk_begin(Relation rel,
											const TtlContainer *container,
											TimestampTz now,
											Snapshot snapshot,
											TtlExpiryPosition *position);
extern TupleTableSlot *ttl_expiry_walk_next(TtlExpiryWalk *walk,
											TimestampTz *expiry);
extern void ttl_expiry_walk_only_tids(TtlExpiryWalk *walk);
extern void ttl_expiry_walk_before(TtlExpiryWalk *walk, TransactionId next_xid);
extern void ttl_expiry_walk_limit(TtlExpiryWalk *walk, int64 max_entries);
extern bool ttl_expiry_walk_gave_up(const TtlExpiryWalk *walk);
extern int64 ttl_expiry_walk_skipped(const TtlExpiryWalk *walk);
extern bool ttl_expiry_walk_is_incomplete(const TtlExpiryWalk *walk);
extern void ttl_expiry_walk_end(TtlExpiryWalk *walk);

/* The first row that expires in a time */
typedef struct TtlExpiryFirst
{
	TimestampTz at;				/* DT_NOEND = there is none; if the search
								 * gave up, there is none before */
	TimestampTz held_until;		/* see ttl_grace_held_until() */
	bool		gave_up;		/* too many dead index entries: there may be
								 * another */
	bool		incomplete;		/* an index is missing: likewise */
} TtlExpiryFirst;

extern void ttl_expiry_find_first(Relation rel, const TtlContainer *container,
								  const TtlExpiryPosition *from, TimestampTz after,
								  TimestampTz by, TtlExpiryFirst *first);
extern void ttl_expiry_skip_expired(const TtlContainer *container, TimestampTz now,
									TtlExpiryPosition *position);
extern int64 ttl_expiry_count_made_expired(Oid container, int32 other_default,
										   TimestampTz now, int64 max, bool *complete,
										   TimestampTz *earliest);

/*
 * expired_tids.c
 */

/* A set of numbers, by their low bits: may hold others besides. */
typedef struct TtlBits
{
	uint32		mask;
	uint8	   *bits;
} TtlBits;

/* The rows of a table that may have expired.  There are no bits if there is no such row. */
typedef struct TtlExpiredTids
{
	TtlTids		tids;			/* in order */
	int			next;			/* where a search among them begins */
	TtlBits		pages;			/* of them */
	TtlBits		hashes;			/* of the TIDs */
	bool		is_candidate[MaxHeapTuplesPerPage + 1]; /* by offset numbers, of
														 * the page read last */
} TtlExpiredTids;

typedef enum TtlProbeResult
{
	TTL_PROBE_KNOWN,			/* *expired_tids holds them all */
	TTL_PROBE_TOO_MANY,			/* more than max_entries */
	TTL_PROBE_UNKNOWABLE		/* the indexes can't be used */
} TtlProbeResult;

extern TtlProbeResult ttl_expired_tids_probe(Relation rel, int32 default_ttl,
											 TimestampTz now, Snapshot snapshot,
											 int64 max_entries,
											 TtlExpiredTids **expired_tids);

static inline bool
ttl_bits_contain(const TtlBits *set, uint32 number)
{
	number &= set->mask;
	return (set->bits[number >> 3] & (1 << (number & 7))) != 0;
}

static inline uint32
ttl_expired_tids_hash(const ItemPointerData *tid)
{
	return ItemPointerGetBlockNumberNoCheck(tid) * 2654435761U +
		ItemPointerGetOffsetNumberNoCheck(tid);
}

/* True if any of them may be on the page. */
static inline bool
ttl_expired_tids_on_page(const TtlExpiredTids *expired_tids, BlockNumber page)
{
	return ttl_bits_contain(&expired_tids->pages, page);
}

/* True if the TID may be one of them.  It is that of a HOT chain's root. */
static inline bool
ttl_expired_tids_may_contain(const TtlExpiredTids *expired_tids, const ItemPointerData *tid)
{
	return ttl_bits_contain(&expired_tids->hashes, ttl_expired_tids_hash(tid));
}

extern bool ttl_expired_tids_contain(TtlExpiredTids *expired_tids, const ItemPointerData *tid);
extern void ttl_expired_tids_read_page(TtlExpiredTids *expired_tids, BlockNumber block, Page page);

#endif							/* TTL_EXPIRY_H */
