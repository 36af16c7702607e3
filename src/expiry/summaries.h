/*-------------------------------------------------------------------------
 *
 * summaries.h
 *	  What the BRIN expiry indexes tell about ranges of pages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_SUMMARIES_H
#define TTL_SUMMARIES_H

#include "container/container.h"
#include "expiry/expiry_index.h"
#include "storage/block.h"

/* Pages of which all indexes say the same */
typedef struct TtlRange
{
	BlockNumber first;
	BlockNumber end;			/* the page after the last */
	TimestampTz earliest;		/* no row in it expires before; DT_NOBEGIN if
								 * nothing is known, DT_NOEND if none will */
} TtlRange;

typedef struct TtlSummaries TtlSummaries;

/*
 * Begins to read at the table's first page.  The table and the indexes are open
 * and locked for reading; NULL is one that isn't asked.  Rows without a TTL of
 * their own live for default_ttl.
 */
extern TtlSummaries *ttl_summaries_begin(Relation rel, Relation indexes[TTL_INDEXES],
										 int32 default_ttl);

/* Goes on at a page, which may be in the middle of a range. */
extern void ttl_summaries_seek(TtlSummaries *summaries, BlockNumber page);

/* The range there, up to its end; false at the end of the table. */
extern bool ttl_summaries_next(TtlSummaries *summaries, TtlRange *range);

/* How many ranges the table has. */
extern int64 ttl_summaries_count(const TtlSummaries *summaries);

/*
 * Summarizes the pages anew, in those of the indexes that know nothing of them or
 * take them to have expired by 'now'.  Takes locks that let others read and write.
 * The caller has the rights of the table's owner.
 */
extern void ttl_summaries_renew(TtlSummaries *summaries, const TtlRange *range,
								TimestampTz now);

extern void ttl_summaries_end(TtlSummaries *summaries);

#endif							/* TTL_SUMMARIES_H */
