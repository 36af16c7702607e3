/*-------------------------------------------------------------------------
 *
 * expiry.h
 *	  THE definition of "expired".
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRY_H
#define TTL_EXPIRY_H

#include "container/container.h"
#include "executor/tuptable.h"
#include "utils/timestamp.h"

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

/*
 * Which of deadlines have passed at 'now': those up to this one.  'infinity' is
 * never.
 */
static inline TimestampTz
ttl_expiry_last_deadline(TimestampTz now)
{
	return Min(now, DT_NOEND - 1);
}

/* The instant by which reading statements judge: ttl.now, or the clock. */
extern TimestampTz ttl_expiry_reading_now(void);

#endif							/* TTL_EXPIRY_H */
