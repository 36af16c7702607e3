/*-------------------------------------------------------------------------
 *
 * scan_filter.c
 *	  The filter at run time, which checks as few rows as it can.
 *
 * A plan carries the filter as a function call that is complete by itself
 * (hide.c).  When an execution has started, without the call (start.c), the quals of
 * each filtered scan are replaced by a scan filter, whose evaluation function is ours: it
 * checks the row in its slot, and leaves the rest of the quals to PostgreSQL.
 *
 * A scan of more than a few rows probes the expiry indexes for expired rows (expired_tids.c).  If
 * there are none the scan filter removes itself.  If there are some, only rows with their
 * TIDs are checked.  If a probe would cost more than a small part of the scan, each row is
 * checked, and the scan probes again when it has come further.
 *
 * An index-only scan has no row, but a TID: that of the root of a HOT chain, as in the
 * expiry indexes.  So an expiry index's entry with that TID decides, for an index has
 * entries of one chain at a TID.  Only where the scan had to look at the page for
 * visibility, it may have moved on to a member.  Then the row is fetched from the
 * table, and so are all rows as long as the indexes have not been read.
 * The scan's own descriptor isn't used to fetch: a second fetch finds nothing, and would
 * mark the index entry as dead.
 *
 * A deletion's statement is filtered, too, for expired rows.  It finds its rows by TID, and these
 * are sorted: its scan reads those of a page together, where PostgreSQL's would pin and lock the
 * page for each row.
 *
 * A lossy index makes the executor recheck its conditions before it looks at
 * quals, and so on expired rows.  These expressions get a guard that evaluates
 * the scan filter first.
 *
 * Left to the function call: plans that EvalPlanQual makes for itself, which never
 * pass ExecutorStart.
 *
 * EXPLAIN ANALYZE says what a filter had to do, since version 18, in which PostgreSQL
 * lets an extension add lines; in a parallel plan what the leader's own part had to do:
 *
 *	  Expiry Filter: none expired			no row was looked at
 *	  Expiry Filter: 20000 candidate rows	those rows were, by the expiry indexes
 *	  Expiry Filter: each row				the indexes weren't or couldn't be used
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "storage/bufmgr.h"
#include "tids.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "visibility/visibility.h"
#if TTL_EXPLAINS_NODES
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

/*
 * A scan that is expected to meet so many rows probes the indexes at once, others when
 * they have checked so many; to check one in an index-only scan is to fetch it.  If there
 * are too many entries, it probes again after PROBE_AFTER rows, and when it has checked
 * PROBE_AGAIN times as many.
 *
 * One that is expected to meet fewer, but so many that a probe is cheaper than to check them, probes
 * when it has checked some: with LIMIT or EXISTS it may need no more.  Once one scan of the statement has come
 * so far, the others don't wait, as of other partitions.  Where a probe has found too many
 * entries, the next such scans of the relation do without.  So does the first of a session, for to find
 * the expiry indexes takes longer than to check so few rows.
 */
#define PROBE_AT_ONCE			1000
#define PROBE_AT_ONCE_INDEX_ONLY	10
#define PROBE_AFTER				1000
#define PROBE_AFTER_INDEX_ONLY	100
#define PROBE_AGAIN				4
#define PROBE_FEW				64
#define PROBE_FEW_AFTER			16
#define FEW_WITHOUT_PROBE		31

/*
 * Before that, a probe may read so many index entries, for what the planner expects may be
 * wrong; then as many as a share of the rows that the scan has checked, or is expected to
 * meet, but no more than some for each row that it has checked.
 */
#define ENTRIES_FIRST			250
#define ENTRIES_SHARE_FEW		4
#define ENTRIES_SHARE			8
#define ENTRIES_SHARE_INDEX_ONLY	1
#define ENTRIES_PER_CHECKED		64

/* The rows of a page that a deletion's TID scan has read, and not yet returned */
typedef struct TidPage
{
	ExprState  *tids;			/* the array of the scan's TIDs */
	Buffer		buffer;			/* pinned */
	int			nrows;
	int			next;
	HeapTupleData rows[MaxHeapTuplesPerPage];
} TidPage;

typedef struct ScanFilter
{
	ExprState	qual;			/* in place of the scan's: true if the row
								 * passes, and the rest of quals holds */
	ExprState	recheck;		/* in place of an index's or bitmap's recheck */
	ExprState  *rest;			/* quals but the filter, NULL = none */
	ExprState  *rechecked;
	ScanState  *scan;
	IndexOnlyScanState *index_only; /* = scan, or NULL */
	const TtlLive *live;
	AttrNumber	ts_attno;
	const TtlType *ts_type;
	AttrNumber	ttl_attno;
	const TtlType *ttl_type;
	bool		none_expired;
	bool		expects_few;	/* rows, and has not probed */
	TtlExpiredTids *expired_tids;	/* NULL = not known */
	BlockNumber last_page;		/* with candidates, where the scan was */
	BlockIdData page_read;		/* the last page whose candidates were read,
								 * when its second row was met */
	int64		checked;		/* rows, as long as it isn't */
	int64		probe_at;
	TupleTableSlot *fetched;	/* for index-only scans */
	TidPage    *tid_page;		/* for tid_scan(), or NULL */
	struct ScanFilter *next;	/* of the execution */
} ScanFilter;

/*
 * Whether the next scan of few rows probes, by a hash of the relation: if this is positive.  Each that does
 * not adds one.  It decides about the cost alone, so that two relations may share one.
 */
static int8 few_scans[256];

/* An operator that orders an index scan, and is computed for rows anew. */
typedef struct OrderingGuard
{
	ExprState	state;
	ExprState  *guarded;
	ScanFilter *filter;
} OrderingGuard;

/*
 * Nothing is hidden from this scan: what remains are the other quals.  The call of the
 * scan's function that is under way still evaluates ours, and seq_scan() finds the scan filter
 * there.
 */
static void
remove_scan_filter(ScanFilter *filter)
{
	PlanState  *ps = &filter->scan->ps;

	filter->none_expired = true;
	filter->expired_tids = NULL;
	if (!IsA(ps, SeqScanState))
		ps->qual = filter->rest;
}

/*
 * Which rows are candidates
 */

/* How many rows the scan is expected to meet. */
static double
expected_rows(const ScanFilter *filter)
{
	double		rows = filter->scan->ps.plan->plan_rows;

	/*
	 * plan_rows counts what passes the quals; an index may have done without
	 * the others
	 */
	if (IsA(filter->scan, SeqScanState))
		rows = Max(rows, filter->scan->ss_currentRelation->rd_rel->reltuples);
	return Min(rows, (double) PG_INT32_MAX);
}

/* The count of short scans of the relation, which others may share */
static int8 *
few_scans_of(const ScanFilter *filter)
{
	return &few_scans[RelationGetRelid(filter->scan->ss_currentRelation) % lengthof(few_scans)];
}

/* After so many rows the expiry indexes are asked. */
static int64
probe_after(const ScanFilter *filter)
{
	return filter->index_only ? PROBE_AFTER_INDEX_ONLY : PROBE_AFTER;
}

/* How many index entries the next probe may read. */
static int64
max_entries(const ScanFilter *filter)
{
	int64		rows = Max((int64) expected_rows(filter), filter->checked);

	if (ttl_guc_debug_index_probe == TTL_INDEX_PROBE_ALWAYS)
		return PG_INT64_MAX;
	if (filter->expects_few)
		return (int64) expected_rows(filter) / ENTRIES_SHARE_FEW;
	if (filter->checked < probe_after(filter))
		return ENTRIES_FIRST;
	return Min(rows / (filter->index_only ? ENTRIES_SHARE_INDEX_ONLY : ENTRIES_SHARE),
			   filter->checked * ENTRIES_PER_CHECKED);
}

/* The statement doesn't stop after a few rows: its other scans need not wait to see that. */
static void
probe_others_at_once(const ScanFilter *filter)
{
	ScanFilter *other = ttl_execution_of(filter->scan->ps.state)->scan_filters;

	for (; other != NULL; other = other->next)
	{
		if (other->expects_few)
			other->probe_at = 0;
	}
}

/* Looks up in the indexes where expired rows are. */
static void
probe(ScanFilter *filter)
{
	EState	   *estate = filter->scan->ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	TtlProbeResult result;

	if (filter->expects_few && filter->probe_at > 0)
		probe_others_at_once(filter);
	result = ttl_expired_tids_probe(filter->scan->ss_currentRelation, filter->live->default_ttl,
									filter->live->now, estate->es_snapshot,
									max_entries(filter), &filter->expired_tids);
	MemoryContextSwitchTo(old);

	if (result == TTL_PROBE_KNOWN)
	{
		if (filter->expired_tids->tids.n == 0)
			remove_scan_filter(filter);
	}
	else if (result == TTL_PROBE_TOO_MANY && ttl_guc_debug_index_probe != TTL_INDEX_PROBE_ALWAYS)
	{
		if (filter->expects_few)
			*few_scans_of(filter) = 1 - FEW_WITHOUT_PROBE;
		filter->probe_at = Max(filter->checked * PROBE_AGAIN, probe_after(filter));
	}

	/*
	 * the indexes can't be used, or memory doesn't hold their TIDs, however
	 * many rows follow
	 */
	else
		filter->probe_at = PG_INT64_MAX;
	filter->expects_few = false;
}

/*
 * When the scan, which has just been started, is to probe: as soon as it has checked more rows than
 * this.
 */
static int64
first_probe_at(ScanFilter *filter)
{
	/* filter->index_only isn't set yet */
	bool		index_only = IsA(filter->scan, IndexOnlyScanState);
	int64		at_once = index_only ? PROBE_AT_ONCE_INDEX_ONLY : PROBE_AT_ONCE;
	double		rows = expected_rows(filter);
	int8	   *scans = few_scans_of(filter);

	if (ttl_guc_debug_index_probe == TTL_INDEX_PROBE_ALWAYS)
		return 0;
	if (ttl_guc_debug_index_probe == TTL_INDEX_PROBE_NEVER)
		return PG_INT64_MAX;
	if (rows >= at_once)
		return 0;
	if (index_only || rows < PROBE_FEW)
		return at_once;
	if (*scans <= 0)
	{
		(*scans)++;
		return at_once;
	}
	filter->expects_few = true;
	return PROBE_FEW_AFTER;
}

/* True if the row in the slot is on the last page whose candidates have been read. */
static inline bool
is_on_page(const ScanFilter *filter, const TupleTableSlot *slot)
{
	/* BlockIdEquals() would compare twice */
	return memcmp(&slot->tts_tid.ip_blkid, &filter->page_read, sizeof(BlockIdData)) == 0;
}

/* False if it is no candidate, by what has been read of its page. */
static inline bool
is_candidate_on_page(const ScanFilter *filter, const TupleTableSlot *slot)
{
	return !is_on_page(filter, slot) ||
		filter->expired_tids->is_candidate[ItemPointerGetOffsetNumberNoCheck(&slot->tts_tid)];
}

/* Reads the candidates of the page in the slot's buffer. */
static void
read_page(ScanFilter *filter, const TupleTableSlot *slot)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(&slot->tts_tid);

	/* the slot's pin is enough, see there */
	ttl_expired_tids_read_page(filter->expired_tids, block,
							   BufferGetPage(((const BufferHeapTupleTableSlot *) slot)->buffer));
	BlockIdSet(&filter->page_read, block);
}

/*
 * False if the row in the slot is no candidate, and so is live, by what is known of its page.
 * Rows that are returned out of their order, by a nearest-neighbour search, have no TID.
 */
static inline bool
may_be_candidate(const ScanFilter *filter, const TupleTableSlot *slot)
{
	if (!ItemPointerIsValid(&slot->tts_tid))
		return true;
	if (is_on_page(filter, slot))
		return is_candidate_on_page(filter, slot);
	return ttl_expired_tids_on_page(filter->expired_tids,
									ItemPointerGetBlockNumberNoCheck(&slot->tts_tid));
}

/*
 * True if a row is a candidate that may_be_candidate() has let pass.  Its TID is its index
 * entries', unless it is a member of a HOT chain.  A scan that returns several rows of a page in
 * succession reads the page's candidates, so that the headers of other rows need not be read: on
 * pages that are visible to all nothing else reads them.
 */
static bool
is_candidate(ScanFilter *filter, TupleTableSlot *slot)
{
	TtlExpiredTids *expired_tids = filter->expired_tids;
	BlockNumber page = ItemPointerGetBlockNumberNoCheck(&slot->tts_tid);
	HeapTuple	tuple = TTS_IS_BUFFERTUPLE(slot) && !TTS_SHOULDFREE(slot) ?
	((HeapTupleTableSlot *) slot)->tuple : NULL;

	/*
	 * nothing is known of a row without a header, or a place, so it is
	 * checked
	 */
	if (tuple == NULL || !ItemPointerIsValid(&slot->tts_tid))
		return true;
	if (page == filter->last_page && !is_on_page(filter, slot))
		read_page(filter, slot);
	filter->last_page = page;
	return HeapTupleHeaderIsHeapOnly(tuple->t_data) ||
		ttl_expired_tids_may_contain(expired_tids, &slot->tts_tid);
}

/* False if the row that the index-only scan has come to is no candidate. */
static inline bool
is_candidate_by_tid(const ScanFilter *filter)
{
	const TtlExpiredTids *expired_tids = filter->expired_tids;
	struct IndexScanDescData *desc = filter->index_only->ioss_ScanDesc;

	if (!ttl_expired_tids_on_page(expired_tids, ItemPointerGetBlockNumber(&desc->xs_heaptid)))
		return false;
	return BufferIsValid(((IndexFetchHeapData *) desc->xs_heapfetch)->xs_cbuf) ||
		ttl_expired_tids_may_contain(expired_tids, &desc->xs_heaptid);
}

/*
 * False if the row that the scan has come to is live, by what is known of its page or TID.  Most rows
 * are, and cost no more than this.
 */
static inline bool
may_have_expired(const ScanFilter *filter, const TupleTableSlot *slot)
{
	if (filter->expired_tids == NULL)
		return true;
	return filter->index_only != NULL ? is_candidate_by_tid(filter) : may_be_candidate(filter, slot);
}

/*
 * Which rows pass the filter
 */

/* Checks the row in the slot by itself. */
static bool
check(const ScanFilter *filter, TupleTableSlot *slot)
{
	TtlItem		item;

	ttl_item_read(&item, filter->ts_attno, filter->ts_type, filter->ttl_attno, filter->ttl_type, slot);
	return ttl_live_passes(filter->live, &item);
}

/* Fetches the row that the index-only scan has come to. */
static TupleTableSlot *
fetch(ScanFilter *filter)
{
	ScanState  *scan = filter->scan;
	Relation	rel = scan->ss_currentRelation;
	Snapshot	snapshot = scan->ps.state->es_snapshot;
	ItemPointerData tid = filter->index_only->ioss_ScanDesc->xs_heaptid;

	if (filter->fetched == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(scan->ps.state->es_query_cxt);

		filter->fetched = table_slot_create(rel, &scan->ps.state->es_tupleTable);
		MemoryContextSwitchTo(old);
	}
	if (!table_tuple_fetch_row_version(rel, &tid, snapshot, filter->fetched))
	{
		/* the root of a HOT chain that has been pruned leads to the row */
		IndexFetchTableData *chain = TtlTableIndexFetchBegin(rel);
		bool		call_again = false;
		bool		found = table_index_fetch_tuple(chain, &tid, snapshot, filter->fetched,
													&call_again, NULL);

		table_index_fetch_end(chain);
		if (!found)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg_internal("row (%u,%u) of container \"%s\" is in an index and not in the table",
									 ItemPointerGetBlockNumber(&tid),
									 ItemPointerGetOffsetNumber(&tid),
									 RelationGetRelationName(rel))));
	}
	return filter->fetched;
}

/* Checks the row that the index-only scan has come to. */
static bool
check_fetched(ScanFilter *filter)
{
	bool		result = check(filter, fetch(filter));

	ExecClearTuple(filter->fetched);
	return result;
}

/*
 * Checks a candidate of an index-only scan.  It is fetched where its TID may be that of a member
 * of a HOT chain, because the scan has been at the page; on a page that is visible to all nothing
 * has been replaced.
 */
static bool
check_by_tid(ScanFilter *filter)
{
	TtlExpiredTids *expired_tids = filter->expired_tids;
	struct IndexScanDescData *desc = filter->index_only->ioss_ScanDesc;
	BlockNumber page = ItemPointerGetBlockNumber(&desc->xs_heaptid);
	Buffer		visited = ((IndexFetchHeapData *) desc->xs_heapfetch)->xs_cbuf;

	if (BufferIsValid(visited) && BufferGetBlockNumber(visited) == page)
		return check_fetched(filter);
	return !ttl_expired_tids_may_contain(expired_tids, &desc->xs_heaptid) ||
		!ttl_expired_tids_contain(expired_tids, &desc->xs_heaptid);
}

/* True if the row that the scan has come to passes. */
static pg_noinline bool
is_live(ScanFilter *filter, TupleTableSlot *slot)
{
	if (filter->expired_tids == NULL && !filter->none_expired &&
		filter->checked++ >= filter->probe_at)
		probe(filter);
	if (filter->none_expired)
		return true;
	if (filter->index_only != NULL)
		return filter->expired_tids == NULL ? check_fetched(filter) : check_by_tid(filter);
	return (filter->expired_tids != NULL && !is_candidate(filter, slot)) || check(filter, slot);
}

/* Checks a row, in the memory of one. */
static bool
check_row(const ScanFilter *filter, TupleTableSlot *slot)
{
	ExprContext *econtext = filter->scan->ps.ps_ExprContext;
	MemoryContext old;
	bool		result;

	/*
	 * to read a TTL from jsonb or numeric takes memory, which ExecQual()
	 * would have reset
	 */
	ResetExprContext(econtext);
	old = MemoryContextSwitchTo(econtext->ecxt_per_tuple_memory);
	result = check(filter, slot);
	MemoryContextSwitchTo(old);
	return result;
}

/* The same as is_live() in a sequential scan, which reads the candidates of each page. */
static pg_noinline bool
is_live_in_order(ScanFilter *filter, TupleTableSlot *slot)
{
	if (filter->expired_tids == NULL && filter->checked++ >= filter->probe_at)
		probe(filter);
	if (filter->none_expired)
		return true;
	if (filter->expired_tids != NULL && !is_on_page(filter, slot))
	{
		read_page(filter, slot);
		if (!is_candidate_on_page(filter, slot))
			return true;
	}
	return check_row(filter, slot);
}

/*
 * Scans, of which the filter is a part
 */

/* Evaluates the quals behind the filter. */
static inline Datum
evaluate_rest(ScanFilter *filter, ExprContext *econtext, bool *isnull)
{
	return filter->rest == NULL ? BoolGetDatum(true) :
		ExecEvalExpr(filter->rest, econtext, isnull);
}

/* Evaluates all quals. */
static pg_noinline Datum
evaluate_checked(ScanFilter *filter, ExprContext *econtext, bool *isnull)
{
	return is_live(filter, econtext->ecxt_scantuple) ?
		evaluate_rest(filter, econtext, isnull) : BoolGetDatum(false);
}

/* Evaluates the quals.  Most rows need no check, and so no call but this. */
static Datum
evaluate_qual(ExprState *state, ExprContext *econtext, bool *isnull)
{
	ScanFilter *filter = (ScanFilter *) state;

	*isnull = false;
	if (may_have_expired(filter, econtext->ecxt_scantuple))
		return evaluate_checked(filter, econtext, isnull);
	return evaluate_rest(filter, econtext, isnull);
}

/*
 * In place of ExecSeqScan().  To evaluate quals by way of ExecQual(), even if they are as short
 * as ours, would take a good part of the time that it takes to read a row.
 */
static TupleTableSlot *
seq_scan(PlanState *ps)
{
	ScanState  *scan = (ScanState *) ps;
	ScanFilter *filter = (ScanFilter *) ps->qual;
	ProjectionInfo *projection = ps->ps_ProjInfo;
	TupleTableSlot *slot = scan->ss_ScanTupleSlot;

	if (unlikely(scan->ss_currentScanDesc == NULL))
		scan->ss_currentScanDesc = TtlSeqScanBegin(scan);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (!table_scan_getnextslot(scan->ss_currentScanDesc, ps->state->es_direction, slot))
			return projection == NULL ? slot : ExecClearTuple(projection->pi_state.resultslot);
		if (filter->none_expired || !is_candidate_on_page(filter, slot) ||
			is_live_in_order(filter, slot))
		{
			if (filter->rest == NULL && projection == NULL)
				return slot;
			/* only for rows that something is evaluated on */
			ResetExprContext(ps->ps_ExprContext);
			ps->ps_ExprContext->ecxt_scantuple = slot;
			if (ExecQual(filter->rest, ps->ps_ExprContext))
				return projection == NULL ? slot : ExecProject(projection);
		}
		InstrCountFiltered1(scan, 1);
	}
}

/* The scan ends or begins anew, perhaps before it has come to the end of its list. */
static void
release_tid_page(Datum arg)
{
	TidPage    *page = (TidPage *) DatumGetPointer(arg);

	if (BufferIsValid(page->buffer))
		ReleaseBuffer(page->buffer);
	page->buffer = InvalidBuffer;
}

/*
 * Makes the scan's list of the TIDs in its array, sorted, of pages that are there.  NULLs take no
 * space in an array.
 */
static void
make_tid_list(TidScanState *scan, TidPage *page)
{
	bool		isnull;
	Datum		datum = ExecEvalExprSwitchContext(page->tids, scan->ss.ps.ps_ExprContext, &isnull);
	ArrayType  *array = isnull ? construct_empty_array(TIDOID) : DatumGetArrayTypeP(datum);
	Size		size = ARR_SIZE(array) - ARR_DATA_OFFSET(array);
	int			ntids = size / sizeof(ItemPointerData);
	BlockNumber nblocks = RelationGetNumberOfBlocks(scan->ss.ss_currentRelation);
	ItemPointerData *tids = MemoryContextAlloc(scan->ss.ps.state->es_query_cxt, size + 1);

	memcpy(tids, ARR_DATA_PTR(array), size);
	qsort(tids, ntids, sizeof(ItemPointerData), ttl_tids_compare);
	ntids = qunique(tids, ntids, sizeof(ItemPointerData), ttl_tids_compare);
	while (ntids > 0 && ItemPointerGetBlockNumberNoCheck(&tids[ntids - 1]) >= nblocks)
		ntids--;
	scan->tss_TidList = tids;
	scan->tss_NumTids = ntids;
	scan->tss_TidPtr = 0;
	page->next = page->nrows = 0;

	/*
	 * a node of ours has no end of its own, but its expression context has,
	 * and each new list
	 */
	RegisterExprContextCallback(scan->ss.ps.ps_ExprContext, release_tid_page, PointerGetDatum(page));
}

/* Adds the row with that TID, on the page, if the snapshot sees it. */
static inline void
add_row(TidPage *page, const ItemPointerData *tid, Relation rel, Snapshot snapshot)
{
	Page		contents = BufferGetPage(page->buffer);
	OffsetNumber offset = ItemPointerGetOffsetNumberNoCheck(tid);
	HeapTuple	row = &page->rows[page->nrows];
	ItemId		item;

	if (offset < FirstOffsetNumber || offset > PageGetMaxOffsetNumber(contents))
		return;
	item = PageGetItemId(contents, offset);
	if (!ItemIdIsNormal(item))
		return;
	row->t_data = (HeapTupleHeader) PageGetItem(contents, item);
	row->t_len = ItemIdGetLength(item);
	row->t_self = *tid;
	row->t_tableOid = RelationGetRelid(rel);
	if (HeapTupleSatisfiesVisibility(row, snapshot, page->buffer))
		page->nrows++;
}

/*
 * Reads the next page of the scan's list of TIDs that has rows which the snapshot sees; false if
 * there is none.  It will see the same rows when they are returned.
 */
static bool
read_tid_page(TidScanState *scan, TidPage *page)
{
	Relation	rel = scan->ss.ss_currentRelation;
	const ItemPointerData *tids = scan->tss_TidList;

	page->next = page->nrows = 0;
	/* all rows of a page may be gone, or too new for the snapshot */
	while (page->nrows == 0 && scan->tss_TidPtr < scan->tss_NumTids)
	{
		BlockNumber block = ItemPointerGetBlockNumberNoCheck(&tids[scan->tss_TidPtr]);

		CHECK_FOR_INTERRUPTS();
		page->buffer = ReleaseAndReadBuffer(page->buffer, rel, block);
		LockBuffer(page->buffer, BUFFER_LOCK_SHARE);
		do
			add_row(page, &tids[scan->tss_TidPtr++], rel, scan->ss.ps.state->es_snapshot);
		while (scan->tss_TidPtr < scan->tss_NumTids && page->nrows < lengthof(page->rows) &&
			   ItemPointerGetBlockNumberNoCheck(&tids[scan->tss_TidPtr]) == block);
		LockBuffer(page->buffer, BUFFER_LOCK_UNLOCK);
	}
	if (page->nrows > 0)
		return true;
	if (BufferIsValid(page->buffer))
		ReleaseBuffer(page->buffer);
	page->buffer = InvalidBuffer;
	return false;
}

/*
 * In place of ExecTidScan() in a deletion, which reads many rows of a page: that would pin and lock
 * the page for each of them.  tss_TidPtr is the next TID to read.
 */
static TupleTableSlot *
tid_scan(PlanState *ps)
{
	TidScanState *scan = (TidScanState *) ps;
	ScanFilter *filter = (ScanFilter *) ps->qual;
	TidPage    *page = filter->tid_page;
	ProjectionInfo *projection = ps->ps_ProjInfo;
	TupleTableSlot *slot = scan->ss.ss_ScanTupleSlot;

	/* at first, and after a rescan, which frees it */
	if (scan->tss_TidList == NULL)
		make_tid_list(scan, page);
	ps->ps_ExprContext->ecxt_scantuple = slot;
	while (page->next < page->nrows || read_tid_page(scan, page))
	{
		ExecStoreBufferHeapTuple(&page->rows[page->next++], slot, page->buffer);
		if (check_row(filter, slot) && ExecQual(filter->rest, ps->ps_ExprContext))
			return projection == NULL ? slot : ExecProject(projection);
		InstrCountFiltered1(scan, 1);
	}
	ExecClearTuple(slot);
	return projection == NULL ? slot : ExecClearTuple(projection->pi_state.resultslot);
}

/* Evaluates what is to be rechecked: for an expired row it needn't. */
static Datum
evaluate_recheck(ExprState *state, ExprContext *econtext, bool *isnull)
{
	ScanFilter *filter = (ScanFilter *) ((char *) state - offsetof(ScanFilter, recheck));

	*isnull = false;
	if (may_have_expired(filter, econtext->ecxt_scantuple) &&
		!is_live(filter, econtext->ecxt_scantuple))
		return BoolGetDatum(false);
	return ExecEvalExpr(filter->rechecked, econtext, isnull);
}

/* Evaluates an ordering operator: an expired row goes last. */
static Datum
evaluate_ordering(ExprState *state, ExprContext *econtext, bool *isnull)
{
	OrderingGuard *guard = (OrderingGuard *) state;

	*isnull = true;
	if (may_have_expired(guard->filter, econtext->ecxt_scantuple) &&
		!is_live(guard->filter, econtext->ecxt_scantuple))
		return (Datum) 0;
	return ExecEvalExpr(guard->guarded, econtext, isnull);
}

/* Has a recheck evaluated for live rows alone. */
static void
guard_recheck(ScanFilter *filter, ExprState **recheck)
{
	if (*recheck == NULL)
		return;
	ttl_execution_init_expr(&filter->recheck, evaluate_recheck, EEO_FLAG_IS_QUAL);
	filter->rechecked = *recheck;
	*recheck = &filter->recheck;
}

/* Has expressions of ORDER BY evaluated for live rows alone. */
static void
guard_orderings(ScanFilter *filter, List *orderings)
{
	ListCell   *lc;

	foreach(lc, orderings)
	{
		OrderingGuard *guard = palloc0(sizeof(OrderingGuard));

		ttl_execution_init_expr(&guard->state, evaluate_ordering, 0);
		guard->guarded = lfirst(lc);
		guard->filter = filter;
		lfirst(lc) = guard;
	}
}

/*
 * The scan's quals but the first: all that it has been started with, see start.c.
 * Else states of their SubPlans replace the listed ones: a rescan marks the hash tables of
 * those that are listed as stale, and a walk through the plan meets each but once.
 */
static ExprState *
get_rest(ScanState *scan)
{
	List	   *quals = scan->ps.plan->qual;
	List	   *listed = scan->ps.subPlan;
	ExprState  *result;
	ListCell   *mine;
	ListCell   *other;

	if (list_length(quals) == 1)
		return NULL;
	if (scan->ps.qual->expr != (Expr *) quals)
		return scan->ps.qual;

	scan->ps.subPlan = NIL;
	result = ExecInitQual(list_copy_tail(quals, 1), &scan->ps);
	foreach(mine, scan->ps.subPlan)
	{
		SubPlanState *state = lfirst_node(SubPlanState, mine);

		foreach(other, listed)
		{
			if (lfirst_node(SubPlanState, other)->subplan == state->subplan)
				lfirst(other) = state;
		}
	}
	scan->ps.subPlan = listed;
	return result;
}

/*
 * Has a deletion's TID scan read rows by the page, if it is one of an array.  SERIALIZABLE wants to
 * know of each row.
 */
static void
add_tid_page(ScanFilter *filter)
{
	ScanState  *scan = filter->scan;
	List	   *quals = ((TidScan *) scan->ps.plan)->tidquals;

	if (list_length(quals) != 1 || !IsA(linitial(quals), ScalarArrayOpExpr) ||
		IsolationIsSerializable() ||
		scan->ss_currentRelation->rd_tableam != GetHeapamTableAmRoutine())
		return;
	filter->tid_page = palloc(sizeof(TidPage));
	filter->tid_page->buffer = InvalidBuffer;
	filter->tid_page->tids =
		ExecInitExpr(lsecond(((ScalarArrayOpExpr *) linitial(quals))->args), &scan->ps);
	ExecSetExecProcNode(&scan->ps, tid_scan);
}

/*
 * Has a filtered scan of the container's relation that has been started check rows by itself:
 * for live ones, or for expired ones that it 'deletes'.
 */
void
ttl_scan_filter_add(ScanState *scan, const TtlContainer *container, TtlExecution *execution,
					bool deletes)
{
	const TtlLive *live = ttl_live_resolve(execution, container->container, deletes);
	ScanFilter *filter = palloc0(sizeof(ScanFilter));

	ttl_execution_init_expr(&filter->qual, evaluate_qual, EEO_FLAG_IS_QUAL);
	filter->scan = scan;
	filter->live = live;
	filter->next = execution->scan_filters;
	execution->scan_filters = filter;
	filter->rest = get_rest(scan);
	scan->ps.qual = &filter->qual;
	if (IsA(scan, SeqScanState))
		ExecSetExecProcNode(&scan->ps, seq_scan);
	else if (deletes && IsA(scan, TidScanState))
		add_tid_page(filter);

	if (live->sees_everything)
	{
		remove_scan_filter(filter);
		return;
	}

	filter->ts_attno = container->ts_attno;
	filter->ts_type = container->ts_type;
	filter->ttl_attno = container->ttl_attno;
	filter->ttl_type = container->ttl_type;
	filter->last_page = InvalidBlockNumber;
	BlockIdSet(&filter->page_read, InvalidBlockNumber);
	/* a deletion has its TIDs from the indexes */
	filter->probe_at = deletes ? PG_INT64_MAX : first_probe_at(filter);

	switch (nodeTag(scan))
	{
		case T_IndexScanState:
			guard_recheck(filter, &((IndexScanState *) scan)->indexqualorig);
			guard_orderings(filter, ((IndexScanState *) scan)->indexorderbyorig);
			break;
		case T_IndexOnlyScanState:
			filter->index_only = (IndexOnlyScanState *) scan;
			guard_recheck(filter, &filter->index_only->recheckqual);
			break;
		case T_BitmapHeapScanState:
			guard_recheck(filter, &((BitmapHeapScanState *) scan)->bitmapqualorig);
			break;
		default:
			break;
	}
}

/* True if the node is a sequential scan with such a filter. */
bool
ttl_scan_filter_scans_in_order(const PlanState *planstate)
{
	return planstate->ExecProcNodeReal == seq_scan;
}

#if TTL_EXPLAINS_NODES
/* What the line of EXPLAIN says of the scan */
static const char *
describe(const ScanFilter *filter)
{
	int			count;

	if (filter->none_expired)
		return "none expired";
	if (filter->expired_tids == NULL)
		return "each row";
	count = filter->expired_tids->tids.n;
	return psprintf("%d candidate row%s", count, count == 1 ? "" : "s");
}

/* Adds the line "Expiry Filter" to a filtered scan's. */
void
ttl_scan_filter_explain(PlanState *planstate, ExplainState *es)
{
	const TtlExecution *execution = ttl_execution_of(planstate->state);
	const ScanFilter *filter = execution == NULL ? NULL : execution->scan_filters;

	while (filter != NULL && &filter->scan->ps != planstate)
		filter = filter->next;
	if (es->analyze && filter != NULL)
		ExplainPropertyText("Expiry Filter", describe(filter), es);
}
#endif
