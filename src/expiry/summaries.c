/*-------------------------------------------------------------------------
 *
 * summaries.c
 *	  The summaries of ranges of pages in BRIN expiry indexes, and their operator class.
 *
 * A BRIN expiry index has a summary of each range of pages, which is the earliest
 * key of the rows in it: no row there expires before.  The summary is read from
 * the index directly.  An index scan would lock the whole index in SERIALIZABLE,
 * would not stop when it has cost enough, and doesn't return when the next row expires.
 *
 * A summary gets earlier with each row that is written, HOT updates included, but
 * never later: what is deleted or renewed stays in it, until the range is summarized
 * anew.  A range that has not been summarized, for it is new, may hold anything.
 *
 * What a summary may lack are versions of rows that have been deleted or updated:
 * when a range is summarized, versions are left out that are dead for all, and those
 * that a HOT update has replaced.  A snapshot that is older than that, or one of a
 * standby, may still see them.
 *
 * PostgreSQL's minmax keeps the latest, too, which is never used here.  But
 * each row that is written now would be the latest of its range, and so each INSERT
 * and UPDATE would write the index, and wait for others that do.  This way a write
 * reads the index, and changes it only if the row expires before all others of its
 * range.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/brin_internal.h"
#include "access/brin_revmap.h"
#include "access/brin_tuple.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "compat.h"
#include "expiry/expiry_private.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/* One of the indexes, and the range that was last read from it */
typedef struct Summary
{
	Relation	index;			/* NULL = not read */
	int32		lifetime;		/* seconds from its key to expiry, 0 = it is
								 * that */
	BrinDesc   *desc;
	BrinRevmap *revmap;
	BlockNumber pages_per_range;
	Buffer		buffer;
	BrinMemTuple *tuple;
	TtlRange	range;			/* empty in the beginning */
} Summary;

struct TtlSummaries
{
	Summary		of[TTL_INDEXES];
	BlockNumber npages;
	BlockNumber next;
};

static void
begin_summary(Summary *summary, Relation index, int32 lifetime)
{
	summary->index = index;
	summary->lifetime = lifetime;
	summary->desc = brin_build_desc(index);
	summary->revmap = TtlBrinRevmapInitialize(index, &summary->pages_per_range);
	summary->buffer = InvalidBuffer;
	summary->tuple = brin_new_memtuple(summary->desc);
}

TtlSummaries *
ttl_summaries_begin(Relation rel, Relation indexes[TTL_INDEXES], int32 default_ttl)
{
	TtlSummaries *summaries = palloc0(sizeof(TtlSummaries));

	for (int i = 0; i < TTL_INDEXES; i++)
	{
		bool		may_expire = i == TTL_INDEX_ITEM ? default_ttl != TTL_OFF : default_ttl > 0;

		if (indexes[i] != NULL && may_expire)
			begin_summary(&summaries->of[i], indexes[i],
						  i == TTL_INDEX_ITEM ? 0 : default_ttl);
	}
	summaries->npages = RelationGetNumberOfBlocks(rel);
	return summaries;
}

void
ttl_summaries_seek(TtlSummaries *summaries, BlockNumber page)
{
	summaries->next = page;
}

/* The earliest expiry by the tuple of an index, which is NULL if the range has none. */
static TimestampTz
read_tuple(Summary *summary, BrinTuple *tuple)
{
	TimestampTz key;

	if (tuple == NULL)
		return DT_NOBEGIN;
	summary->tuple = brin_deform_tuple(summary->desc, tuple, summary->tuple);

	/* a session is summarizing it, or has failed to */
	if (summary->tuple->bt_placeholder)
		return DT_NOBEGIN;
	if (summary->tuple->bt_columns[0].bv_allnulls)
		return DT_NOEND;
	key = DatumGetTimestampTz(summary->tuple->bt_columns[0].bv_values[0]);
	return summary->lifetime == 0 ? key : ttl_expiry_add(key, summary->lifetime);
}

/* Reads the summary of the range that the page is in. */
static void
read_summary(Summary *summary, BlockNumber page)
{
	BrinTuple  *tuple;
	OffsetNumber offset;
	Size		size;

	summary->range.first = page - page % summary->pages_per_range;
	summary->range.end = summary->range.first +
		Min(summary->pages_per_range, MaxBlockNumber - summary->range.first);
	tuple = TtlBrinGetTuple(summary->revmap, summary->range.first, &summary->buffer,
							&offset, &size);
	summary->range.earliest = read_tuple(summary, tuple);
	if (tuple != NULL)
		LockBuffer(summary->buffer, BUFFER_LOCK_UNLOCK);
}

bool
ttl_summaries_next(TtlSummaries *summaries, TtlRange *range)
{
	if (summaries->next >= summaries->npages)
		return false;

	range->first = summaries->next;
	range->end = summaries->npages;
	range->earliest = DT_NOEND;
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		Summary    *summary = &summaries->of[i];

		if (summary->index == NULL)
			continue;
		if (range->first < summary->range.first || range->first >= summary->range.end)
			read_summary(summary, range->first);
		range->end = Min(range->end, summary->range.end);
		range->earliest = Min(range->earliest, summary->range.earliest);
	}
	summaries->next = range->end;
	return true;
}

int64
ttl_summaries_count(const TtlSummaries *summaries)
{
	int64		count = 0;

	for (int i = 0; i < TTL_INDEXES; i++)
	{
		const Summary *summary = &summaries->of[i];

		if (summary->index != NULL)
			count = Max(count, (summaries->npages + (int64) summary->pages_per_range - 1) /
						summary->pages_per_range);
	}
	return count;
}

/* Summarizes the range that was read last anew, if need be. */
static void
renew(Summary *summary, TimestampTz now)
{
	Datum		index = ObjectIdGetDatum(RelationGetRelid(summary->index));
	Datum		page = Int64GetDatum((int64) summary->range.first);

	if (summary->range.earliest > now)
		return;
	if (BufferIsValid(summary->buffer))
	{
		ReleaseBuffer(summary->buffer);
		summary->buffer = InvalidBuffer;
	}
	DirectFunctionCall2(brin_desummarize_range, index, page);
	DirectFunctionCall2(brin_summarize_range, index, page);
}

void
ttl_summaries_renew(TtlSummaries *summaries, const TtlRange *range, TimestampTz now)
{
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		Summary    *summary = &summaries->of[i];
		BlockNumber page = range->first;

		if (summary->index == NULL)
			continue;
		while (page < Min(range->end, summaries->npages))
		{
			CHECK_FOR_INTERRUPTS();
			read_summary(summary, page);
			renew(summary, now);
			page = summary->range.end;
		}
		/* what it has read is no more */
		summary->range.end = summary->range.first;
	}
}

void
ttl_summaries_end(TtlSummaries *summaries)
{
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		Summary    *summary = &summaries->of[i];

		if (summary->index == NULL)
			continue;
		if (BufferIsValid(summary->buffer))
			ReleaseBuffer(summary->buffer);
		brinRevmapTerminate(summary->revmap);
		brin_free_desc(summary->desc);
	}
	pfree(summaries);
}

/*
 * The operator class
 */

PG_FUNCTION_INFO_V1(ttl_min_opcinfo);

Datum
ttl_min_opcinfo(PG_FUNCTION_ARGS)
{
	BrinOpcInfo *info = palloc0(SizeofBrinOpcInfo(1));

	info->oi_nstored = 1;
	info->oi_regular_nulls = true;
	info->oi_typcache[0] = lookup_type_cache(PG_GETARG_OID(0), 0);
	PG_RETURN_POINTER(info);
}

/* Lets the summary cover the value; was it changed for that? */
static bool
cover(const BrinDesc *desc, BrinValues *summary, Datum value)
{
	Form_pg_attribute attribute = TupleDescAttr(desc->bd_tupdesc, summary->bv_attno - 1);

	if (!summary->bv_allnulls &&
		DatumGetTimestampTz(summary->bv_values[0]) <= DatumGetTimestampTz(value))
		return false;

	/*
	 * a machine of 32 bits has instants by reference, and this one lives
	 * shorter
	 */
	summary->bv_values[0] = datumCopy(value, attribute->attbyval, attribute->attlen);
	summary->bv_allnulls = false;
	return true;
}

PG_FUNCTION_INFO_V1(ttl_min_add_value);

Datum
ttl_min_add_value(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(cover((BrinDesc *) PG_GETARG_POINTER(0),
						 (BrinValues *) PG_GETARG_POINTER(1), PG_GETARG_DATUM(2)));
}

PG_FUNCTION_INFO_V1(ttl_min_consistent);

/*
 * Can a row of the range be earlier than the value, or no later?  The planner, too, may have
 * that answered where the table is no container with indexing => 'lazy' (hide.c).
 */
Datum
ttl_min_consistent(PG_FUNCTION_ARGS)
{
	const BrinValues *summary = (BrinValues *) PG_GETARG_POINTER(1);
	ScanKey		key = (ScanKey) PG_GETARG_POINTER(2);
	TimestampTz earliest = DatumGetTimestampTz(summary->bv_values[0]);
	TimestampTz value = DatumGetTimestampTz(key->sk_argument);

	PG_RETURN_BOOL(key->sk_strategy == BTLessStrategyNumber ? earliest < value :
				   earliest <= value);
}

PG_FUNCTION_INFO_V1(ttl_min_union);

Datum
ttl_min_union(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(cover((BrinDesc *) PG_GETARG_POINTER(0),
						 (BrinValues *) PG_GETARG_POINTER(1),
						 ((BrinValues *) PG_GETARG_POINTER(2))->bv_values[0]));
}
