/*-------------------------------------------------------------------------
 *
 * expired_tids.h
 *	  The places of rows that may have expired, or the pages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRED_TIDS_H
#define TTL_EXPIRED_TIDS_H

#include "container/container.h"
#include "storage/itemptr.h"
#include "utils/snapshot.h"

/*
 * Places in the order of pages: the page's number, and 16 bits of the row's.  If
 * pages are all that is known, each is the place 0 of the first page of some, and
 * the one after it that of the page after the last.
 */
typedef struct TtlExpiredTids
{
	bool		by_page;
	bool		lacks_replaced; /* row versions on other pages may have
								 * expired if somebody has deleted or updated
								 * them */
	uint64	   *places;
	int			n;
	int			allocated;
	int			max;

	/* the page that was asked about last: places[first] to places[end - 1] */
	bool		page_is_known;
	BlockNumber page;
	int			first;
	int			end;
} TtlExpiredTids;

typedef enum TtlSuspicion
{
	TTL_EXPIRED_TIDS_KNOWN,			/* *expired_tids holds them all */
	TTL_EXPIRED_TIDS_TOO_MANY,		/* more than one was ready to look at */
	TTL_EXPIRED_TIDS_UNKNOWABLE		/* the indexes don't tell */
} TtlSuspicion;

/*
 * Asks the expiry indexes of a leaf table for all rows, among those that the
 * snapshot sees, that have expired at 'now' while the default TTL is the given
 * one.  Looks at max_entries index entries, or ranges of pages, at most.  The table is open and locked
 * for reading; the result is allocated in the current memory context.
 */
extern TtlSuspicion ttl_expired_tids_collect(Relation rel, int32 default_ttl,
										 TimestampTz now, Snapshot snapshot,
										 int64 max_entries,
										 TtlExpiredTids **expired_tids);

static inline uint64
ttl_expired_tids_place(const ItemPointerData *tid)
{
	return ((uint64) ItemPointerGetBlockNumberNoCheck(tid) << 16) |
		ItemPointerGetOffsetNumberNoCheck(tid);
}

static inline BlockNumber
ttl_expired_tids_page(uint64 place)
{
	return (BlockNumber) (place >> 16);
}

/* For the next: finds the places on another page. */
extern void ttl_expired_tids_turn_to(TtlExpiredTids *expired_tids, BlockNumber page);

/* How many rows, or pages, they are */
extern int64 ttl_expired_tids_count(const TtlExpiredTids *expired_tids);

/* Is there any on the page? */
static inline bool
ttl_expired_tids_on_page(TtlExpiredTids *expired_tids, BlockNumber page)
{
	if (unlikely(page != expired_tids->page || !expired_tids->page_is_known))
		ttl_expired_tids_turn_to(expired_tids, page);
	return expired_tids->first < expired_tids->end;
}

/* Is the place one of them?  It is that of a whole HOT chain, its root's. */
static inline bool
ttl_expired_tids_contain(TtlExpiredTids *expired_tids, const ItemPointerData *tid)
{
	uint64		place = ttl_expired_tids_place(tid);
	int			low;
	int			high;

	if (!ttl_expired_tids_on_page(expired_tids, ttl_expired_tids_page(place)))
		return false;
	if (expired_tids->by_page)
		return true;
	low = expired_tids->first;
	high = expired_tids->end;
	while (high - low > 1)
	{
		int			middle = (low + high) / 2;

		if (expired_tids->places[middle] <= place)
			low = middle;
		else
			high = middle;
	}
	return expired_tids->places[low] == place;
}

#endif							/* TTL_EXPIRED_TIDS_H */
