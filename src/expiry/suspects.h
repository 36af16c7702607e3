/*-------------------------------------------------------------------------
 *
 * suspects.h
 *	  The places of rows that may have expired, or the pages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_SUSPECTS_H
#define TTL_SUSPECTS_H

#include "container/container.h"
#include "storage/itemptr.h"
#include "utils/snapshot.h"

/*
 * Places in the order of pages: the page's number, and 16 bits of the row's.  If
 * pages are all that is known, each is the place 0 of the first page of some, and
 * the one after it that of the page after the last.
 */
typedef struct TtlSuspects
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
} TtlSuspects;

typedef enum TtlSuspicion
{
	TTL_SUSPECTS_KNOWN,			/* *suspects holds them all */
	TTL_SUSPECTS_TOO_MANY,		/* more than one was ready to look at */
	TTL_SUSPECTS_UNKNOWABLE		/* the indexes don't tell */
} TtlSuspicion;

/*
 * Asks the expiry indexes of a leaf table for all rows, among those that the
 * snapshot sees, that have expired at 'now' while the default TTL is the given
 * one.  Looks at max_entries index entries, or ranges of pages, at most.  The table is open and locked
 * for reading; the result is allocated in the current memory context.
 */
extern TtlSuspicion ttl_suspects_collect(Relation rel, int32 default_ttl,
										 TimestampTz now, Snapshot snapshot,
										 int64 max_entries,
										 TtlSuspects **suspects);

static inline uint64
ttl_suspects_place(const ItemPointerData *tid)
{
	return ((uint64) ItemPointerGetBlockNumberNoCheck(tid) << 16) |
		ItemPointerGetOffsetNumberNoCheck(tid);
}

static inline BlockNumber
ttl_suspects_page(uint64 place)
{
	return (BlockNumber) (place >> 16);
}

/* For the next: finds the places on another page. */
extern void ttl_suspects_turn_to(TtlSuspects *suspects, BlockNumber page);

/* How many rows, or pages, they are */
extern int64 ttl_suspects_count(const TtlSuspects *suspects);

/* Is there any on the page? */
static inline bool
ttl_suspects_on_page(TtlSuspects *suspects, BlockNumber page)
{
	if (unlikely(page != suspects->page || !suspects->page_is_known))
		ttl_suspects_turn_to(suspects, page);
	return suspects->first < suspects->end;
}

/* Is the place one of them?  It is that of a whole HOT chain, its root's. */
static inline bool
ttl_suspects_contain(TtlSuspects *suspects, const ItemPointerData *tid)
{
	uint64		place = ttl_suspects_place(tid);
	int			low;
	int			high;

	if (!ttl_suspects_on_page(suspects, ttl_suspects_page(place)))
		return false;
	if (suspects->by_page)
		return true;
	low = suspects->first;
	high = suspects->end;
	while (high - low > 1)
	{
		int			middle = (low + high) / 2;

		if (suspects->places[middle] <= place)
			low = middle;
		else
			high = middle;
	}
	return suspects->places[low] == place;
}

#endif							/* TTL_SUSPECTS_H */
