/*-------------------------------------------------------------------------
 *
 * scan_filter.c
 *	  The filter at run time: as cheap as knowing where not to look.
 *
 * A plan carries the filter as a function call that is complete by itself
 * (hide.c).  When an execution has started, without the call (plan_copy.c), the quals of
 * each filtered scan are replaced by a scan filter, whose evaluation function is ours: it
 * judges the row straight from its slot, and leaves the rest of the quals to PostgreSQL.
 *
 * A scan that goes on for long asks the expiry indexes where expired rows are
 * (expired_tids.c).  If there are none the scan filter removes itself.  If there are some,
 * rows in other places are live unseen.  If that can't be known at a cost that
 * is small beside the scan's own, each row is judged, and the scan asks again
 * when it has come further.
 *
 * An index-only scan has no row, but its place: that of the root of a HOT chain,
 * as in the expiry indexes.  So an entry with that place decides, for an index has
 * entries of one chain at a place.  Only where the scan had to look at the page for
 * visibility, it may have moved on to a member.  Then the row is fetched from the
 * table, and so are all rows as long as nothing is known, or only pages are.  The scan's own
 * descriptor isn't used to fetch: a second fetch finds nothing, and would mark the
 * index entry as dead.
 *
 * A lossy index makes the executor recheck its conditions before it looks at
 * quals, and so on expired rows.  These expressions get a guard that asks the
 * scan filter first.
 *
 * Left to the function call: plans that EvalPlanQual makes for itself, which never
 * pass ExecutorStart.
 *
 * EXPLAIN ANALYZE says what a filter had to do, since version 18, in which PostgreSQL
 * lets an extension add lines; in a parallel plan what the leader's own part had to do:
 *
 *	  Expiry Filter: none expired			no row was looked at
 *	  Expiry Filter: 20000 candidate rows	those rows were, by the expiry indexes
 *	  Expiry Filter: 256 candidate pages	those on these pages were, by lazy indexes
 *	  Expiry Filter: each row				the indexes weren't asked, or didn't tell
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "compat.h"
#if TTL_EXPLAINS_NODES
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif
#include "container/container.h"
#include "execution.h"
#if TTL_SEQ_SCAN_ASSUMES_QUAL
#include "executor/execScan.h"
#endif
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "visibility/visibility.h"

/*
 * A scan that is expected to meet so many rows asks the indexes at once, others
 * when they have judged so many; to judge one in an index-only scan is to fetch
 * it.  If the answer is "too many", it asks again after ASK_AFTER rows, and when
 * it has judged so many times as many.
 */
#define ASK_AFTER				1000
#define ASK_AFTER_INDEX_ONLY	10
#define ASK_AGAIN				4

/*
 * Before ASK_AFTER rows the question may cost so many index entries, for what the
 * planner expects may be wrong; then as many as a share of the rows that the scan
 * has judged, or is expected to meet.
 */
#define ENTRIES_FIRST			250
#define ENTRIES_SHARE			8
#define ENTRIES_SHARE_INDEX_ONLY	1

typedef struct ScanFilter
{
	ExprState	qual;			/* in place of the scan's; evaluates to "is it
								 * live, and do the rest of quals hold?" */
	ExprState	recheck;		/* in place of an index's or bitmap's recheck */
	ExprState  *rest;			/* quals but the filter, NULL = none */
	ExprState  *rechecked;
	ScanState  *scan;
	IndexOnlyScanState *index_only; /* the same, or NULL */
	const TtlLive *live;
	AttrNumber	ts_attno;
	const TtlType *ts_type;
	AttrNumber	ttl_attno;
	const TtlType *ttl_type;
	bool		none_expired;
	TtlExpiredTids *expired_tids;		/* NULL = not known */
	uint64		clean_page;		/* the last one found to have none; no page's
								 * number in the beginning */
	int64		judged;
	int64		ask_at;
	TupleTableSlot *fetched;	/* for index-only scans */
	struct ScanFilter *next;			/* of the execution */
} ScanFilter;

/* An operator that orders an index scan, and is computed for rows anew. */
typedef struct OrderingGuard
{
	ExprState	state;
	ExprState  *guarded;
	ScanFilter	   *filter;
} OrderingGuard;

static Datum evaluate_filtered(ExprState *state, ExprContext *econtext, bool *isnull);
static Datum evaluate_filtered_by_tid(ExprState *state, ExprContext *econtext, bool *isnull);

static inline Datum
evaluate_rest(ScanFilter *filter, ExprContext *econtext, bool *isnull)
{
	return filter->rest == NULL ? BoolGetDatum(true) :
		ExecEvalExpr(filter->rest, econtext, isnull);
}

/* Evaluates quals without the filter. */
static Datum
evaluate_unfiltered(ExprState *state, ExprContext *econtext, bool *isnull)
{
	*isnull = false;
	return evaluate_rest((ScanFilter *) state, econtext, isnull);
}

#if TTL_SEQ_SCAN_ASSUMES_QUAL
/* SeqNext() of nodeSeqscan.c */
static TupleTableSlot *
seq_next(ScanState *scan)
{
	if (scan->ss_currentScanDesc == NULL)
		scan->ss_currentScanDesc = TtlTableBeginScan(scan->ss_currentRelation,
													 scan->ps.state->es_snapshot);
	return table_scan_getnextslot(scan->ss_currentScanDesc, scan->ps.state->es_direction,
								  scan->ss_ScanTupleSlot) ? scan->ss_ScanTupleSlot : NULL;
}

/* ExecSeqScan() */
static TupleTableSlot *
seq_scan(PlanState *ps)
{
	return ExecScanExtended((ScanState *) ps, seq_next, NULL, NULL, NULL, NULL);
}

/* ExecSeqScanWithProject() */
static TupleTableSlot *
seq_scan_with_project(PlanState *ps)
{
	return ExecScanExtended((ScanState *) ps, seq_next, NULL, NULL, NULL, ps->ps_ProjInfo);
}
#endif

/*
 * Nothing is hidden from this scan: what remains are the other quals.  The call of the
 * scan's function that is under way still evaluates ours.
 */
static void
remove_scan_filter(ScanFilter *filter)
{
	PlanState  *ps = &filter->scan->ps;

	filter->none_expired = true;
	filter->qual.evalfunc = evaluate_unfiltered;
#if TTL_SEQ_SCAN_ASSUMES_QUAL
	if (IsA(ps, SeqScanState) && filter->rest == NULL)
	{
		ExecSetExecProcNode(ps, ps->ps_ProjInfo == NULL ? seq_scan : seq_scan_with_project);
		return;
	}
#endif
	ps->qual = filter->rest;
}

/* How many rows the scan is expected to meet. */
static double
expected_rows(const ScanFilter *filter)
{
	double		rows = filter->scan->ps.plan->plan_rows;

	if (IsA(filter->scan, SeqScanState))
		rows = Max(rows, filter->scan->ss_currentRelation->rd_rel->reltuples);
	return Min(rows, (double) PG_INT32_MAX);
}

/* How many index entries the next question may cost. */
static int64
max_entries(const ScanFilter *filter)
{
	if (ttl_guc_debug_index_probe == TTL_INDEX_PROBE_ALWAYS)
		return PG_INT64_MAX;
	if (filter->judged < ASK_AFTER)
		return ENTRIES_FIRST;
	return Max((int64) expected_rows(filter), filter->judged) /
		(filter->index_only ? ENTRIES_SHARE_INDEX_ONLY : ENTRIES_SHARE);
}

/* Asks the indexes where expired rows are. */
static void
ask(ScanFilter *filter)
{
	EState	   *estate = filter->scan->ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	TtlSuspicion answer;

	answer = ttl_expired_tids_collect(filter->scan->ss_currentRelation, filter->live->default_ttl,
								  filter->live->now, estate->es_snapshot,
								  max_entries(filter), &filter->expired_tids);
	MemoryContextSwitchTo(old);

	if (answer == TTL_EXPIRED_TIDS_KNOWN && filter->expired_tids->n == 0 &&
		!filter->expired_tids->lacks_replaced)
		remove_scan_filter(filter);
	else if (answer == TTL_EXPIRED_TIDS_KNOWN)
	{
		filter->qual.evalfunc = filter->index_only == NULL ? evaluate_filtered :
			evaluate_filtered_by_tid;
	}
	else if (answer == TTL_EXPIRED_TIDS_TOO_MANY && ttl_guc_debug_index_probe != TTL_INDEX_PROBE_ALWAYS)
		filter->ask_at = Max(filter->judged * ASK_AGAIN, ASK_AFTER);
	else
		filter->ask_at = PG_INT64_MAX;
}

static inline bool
judge(const ScanFilter *filter, TupleTableSlot *slot)
{
	TtlItem		item;

	ttl_item_read(&item, filter->ts_attno, filter->ts_type, filter->ttl_attno, filter->ttl_type, slot);
	return !ttl_live_has_expired(filter->live, &item);
}

typedef enum Verdict
{
	IS_LIVE,
	IS_EXPIRED,
	IS_UNDECIDED
} Verdict;

/*
 * May somebody have deleted or updated this version of the row?  If not now, then
 * not when the indexes were asked either, unless it is a copy.
 */
static bool
may_be_replaced(TupleTableSlot *slot)
{
	HeapTuple	tuple = TTS_IS_BUFFERTUPLE(slot) && !TTS_SHOULDFREE(slot) ?
	((HeapTupleTableSlot *) slot)->tuple : NULL;

	return tuple == NULL ||
		!((tuple->t_data->t_infomask & HEAP_XMAX_INVALID) ||
		  HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_data->t_infomask));
}

/*
 * What is known of the row in the slot.  Its place is its index entries', unless it
 * is a member of a HOT chain.  Rows that are returned out of their order, by a
 * nearest-neighbour search, have lost their place.  A candidate is looked at, though
 * its entry tells enough, unless it costs much: a document may be stored out of line.
 */
static Verdict
decide(ScanFilter *filter, TupleTableSlot *slot)
{
	HeapTuple	tuple;
	BlockNumber page;

	if (!ItemPointerIsValid(&slot->tts_tid))
		return IS_UNDECIDED;
	page = ItemPointerGetBlockNumber(&slot->tts_tid);
	if (!ttl_expired_tids_on_page(filter->expired_tids, page))
	{
		if (filter->expired_tids->lacks_replaced)
			return may_be_replaced(slot) ? IS_UNDECIDED : IS_LIVE;
		filter->clean_page = page;
		return IS_LIVE;
	}
	if (!TTS_IS_BUFFERTUPLE(slot))
		return IS_UNDECIDED;
	tuple = ((HeapTupleTableSlot *) slot)->tuple;
	if (tuple == NULL || HeapTupleHeaderIsHeapOnly(tuple->t_data))
		return IS_UNDECIDED;
	if (!ttl_expired_tids_contain(filter->expired_tids, &slot->tts_tid))
		return IS_LIVE;
	return filter->ttl_type != NULL && filter->ttl_type->is_document && !filter->expired_tids->by_page ?
		IS_EXPIRED : IS_UNDECIDED;
}

/* The same, at once for the rows of a page after the first */
static inline bool
is_on_clean_page(const ScanFilter *filter, const TupleTableSlot *slot)
{
	return ItemPointerGetBlockNumberNoCheck(&slot->tts_tid) == filter->clean_page;
}

/*
 * What is known of the row that the index-only scan has come to.  Its place is in
 * one of the expiry indexes or in none.  It is undecided where it may be that of
 * a member of a HOT chain, because the scan has been at the page.
 */
static inline Verdict
decide_by_place(ScanFilter *filter)
{
	struct IndexScanDescData *desc = filter->index_only->ioss_ScanDesc;
	BlockNumber page = ItemPointerGetBlockNumber(&desc->xs_heaptid);
	Buffer		looked_at = ((IndexFetchHeapData *) desc->xs_heapfetch)->xs_cbuf;
	bool		has_looked = BufferIsValid(looked_at) && BufferGetBlockNumber(looked_at) == page;

	/* on a page that is visible to all, nothing has been replaced */
	if (!ttl_expired_tids_on_page(filter->expired_tids, page))
		return filter->expired_tids->lacks_replaced && has_looked ? IS_UNDECIDED : IS_LIVE;
	if (has_looked || filter->expired_tids->by_page)
		return IS_UNDECIDED;
	return ttl_expired_tids_contain(filter->expired_tids, &desc->xs_heaptid) ? IS_EXPIRED : IS_LIVE;
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

/* Judges the row that the index-only scan has come to. */
static bool
judge_fetched(ScanFilter *filter)
{
	bool		result = judge(filter, fetch(filter));

	ExecClearTuple(filter->fetched);
	return result;
}

static inline bool
is_live_by_place(ScanFilter *filter)
{
	Verdict		verdict = decide_by_place(filter);

	return verdict == IS_UNDECIDED ? judge_fetched(filter) : verdict == IS_LIVE;
}

/* The same of a row that the scan has fetched */
static inline bool
is_live_candidate(ScanFilter *filter, TupleTableSlot *slot)
{
	Verdict		verdict = decide(filter, slot);

	return verdict == IS_UNDECIDED ? judge(filter, slot) : verdict == IS_LIVE;
}

/* Is the row that the scan has come to live? */
static bool
is_live(ScanFilter *filter, TupleTableSlot *slot)
{
	if (filter->expired_tids == NULL && filter->judged++ >= filter->ask_at)
		ask(filter);
	if (filter->none_expired)
		return true;
	if (filter->index_only != NULL)
		return filter->expired_tids != NULL ? is_live_by_place(filter) : judge_fetched(filter);
	return filter->expired_tids != NULL ? is_live_candidate(filter, slot) : judge(filter, slot);
}

/* Evaluates the quals. */
static Datum
evaluate_qual(ExprState *state, ExprContext *econtext, bool *isnull)
{
	ScanFilter	   *filter = (ScanFilter *) state;

	*isnull = false;
	return is_live(filter, econtext->ecxt_scantuple) ?
		evaluate_rest(filter, econtext, isnull) : BoolGetDatum(false);
}

/* The same when it is known which rows are candidates. */
static Datum
evaluate_filtered(ExprState *state, ExprContext *econtext, bool *isnull)
{
	ScanFilter	   *filter = (ScanFilter *) state;
	TupleTableSlot *slot = econtext->ecxt_scantuple;

	*isnull = false;
	return is_on_clean_page(filter, slot) || is_live_candidate(filter, slot) ?
		evaluate_rest(filter, econtext, isnull) : BoolGetDatum(false);
}

static Datum
evaluate_filtered_by_tid(ExprState *state, ExprContext *econtext, bool *isnull)
{
	ScanFilter	   *filter = (ScanFilter *) state;

	*isnull = false;
	return is_live_by_place(filter) ?
		evaluate_rest(filter, econtext, isnull) : BoolGetDatum(false);
}

/* Evaluates what is to be rechecked: for an expired row it needn't. */
static Datum
evaluate_recheck(ExprState *state, ExprContext *econtext, bool *isnull)
{
	ScanFilter	   *filter = (ScanFilter *) ((char *) state - offsetof(ScanFilter, recheck));

	*isnull = false;
	if (!is_live(filter, econtext->ecxt_scantuple))
		return BoolGetDatum(false);
	return ExecEvalExpr(filter->rechecked, econtext, isnull);
}

/* Evaluates an ordering operator: an expired row goes last. */
static Datum
evaluate_ordering(ExprState *state, ExprContext *econtext, bool *isnull)
{
	OrderingGuard *guard = (OrderingGuard *) state;

	*isnull = true;
	if (!is_live(guard->filter, econtext->ecxt_scantuple))
		return (Datum) 0;
	return ExecEvalExpr(guard->guarded, econtext, isnull);
}

static void
init_state(ExprState *state, ExprStateEvalFunc evaluate, uint8 flags)
{
	state->type = T_ExprState;
	state->flags = flags;
	state->evalfunc = evaluate;
}

static void
guard_recheck(ScanFilter *filter, ExprState **recheck)
{
	if (*recheck == NULL)
		return;
	init_state(&filter->recheck, evaluate_recheck, EEO_FLAG_IS_QUAL);
	filter->rechecked = *recheck;
	*recheck = &filter->recheck;
}

static void
guard_orderings(ScanFilter *filter, List *orderings)
{
	ListCell   *lc;

	foreach(lc, orderings)
	{
		OrderingGuard *guard = palloc0(sizeof(OrderingGuard));

		init_state(&guard->state, evaluate_ordering, 0);
		guard->guarded = lfirst(lc);
		guard->filter = filter;
		lfirst(lc) = guard;
	}
}

/*
 * The scan's quals but the first: all that it has been started with, see plan_copy.c.
 * Else states of their SubPlans take the places of the ones that are there already: a
 * rescan tells those that are listed that their hash tables are stale, and who walks
 * through the plan shall meet each but once.
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

static void
add_scan_filter(ScanState *scan, TtlExecution *execution)
{
	const TtlLive *live;
	TtlContainer container;
	ScanFilter	   *filter;

	if (!ttl_hide_is_filtered(scan->ps.plan, RelationGetRelid(scan->ss_currentRelation),
							  &container))
		return;
	live = ttl_live_resolve(execution, container.container);
	filter = palloc0(sizeof(ScanFilter));
	init_state(&filter->qual, evaluate_qual, EEO_FLAG_IS_QUAL);
	filter->scan = scan;
	filter->live = live;
	filter->next = execution->scan_filters;
	execution->scan_filters = filter;
	filter->rest = get_rest(scan);
	scan->ps.qual = &filter->qual;

	if (live->sees_everything)
	{
		remove_scan_filter(filter);
		return;
	}

	filter->clean_page = PG_UINT64_MAX;
	filter->ts_attno = container.ts_attno;
	filter->ts_type = container.ts_type;
	filter->ttl_attno = container.ttl_attno;
	filter->ttl_type = container.ttl_type;
	filter->ask_at = IsA(scan, IndexOnlyScanState) ? ASK_AFTER_INDEX_ONLY : ASK_AFTER;
	if (expected_rows(filter) >= filter->ask_at)
		filter->ask_at = 0;
	if (ttl_guc_debug_index_probe == TTL_INDEX_PROBE_ALWAYS)
		filter->ask_at = 0;
	else if (ttl_guc_debug_index_probe == TTL_INDEX_PROBE_NEVER)
		filter->ask_at = PG_INT64_MAX;

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

static bool add_scan_filters_below(PlanState *planstate, void *execution);

static bool
add_scan_filters(PlanState *planstate, void *execution)
{
	if (ttl_plan_is_scan(planstate->plan))
		add_scan_filter((ScanState *) planstate, execution);
	return planstate_tree_walker(planstate, add_scan_filters_below, execution);
}

/* The state of a SubPlan is visited once, though several expressions may refer to it. */
static bool
add_scan_filters_below(PlanState *planstate, void *execution)
{
	return !list_member_ptr(planstate->state->es_subplanstates, planstate) &&
		add_scan_filters(planstate, execution);
}

#if TTL_EXPLAINS_NODES
static explain_per_node_hook_type prev_explain_per_node = NULL;

static const char *
describe(const ScanFilter *filter)
{
	int64		count;

	if (filter->none_expired)
		return "none expired";
	if (filter->expired_tids == NULL)
		return "each row";
	count = ttl_expired_tids_count(filter->expired_tids);
	return psprintf(INT64_FORMAT " candidate %s%s", count,
					filter->expired_tids->by_page ? "page" : "row", count == 1 ? "" : "s");
}

static void
explain_filter(PlanState *planstate, List *ancestors, const char *relationship,
			   const char *plan_name, ExplainState *es)
{
	const TtlExecution *execution = ttl_execution_of(planstate->state);
	const ScanFilter *filter = execution == NULL ? NULL : execution->scan_filters;

	if (prev_explain_per_node)
		prev_explain_per_node(planstate, ancestors, relationship, plan_name, es);

	while (filter != NULL && &filter->scan->ps != planstate)
		filter = filter->next;
	if (es->analyze && filter != NULL)
		ExplainPropertyText("Expiry Filter", describe(filter), es);
}
#endif

/* Observer of executions */
static void
execution_started(TtlExecution *execution, int eflags)
{
	QueryDesc  *query_desc = execution->query_desc;
	MemoryContext old;
	ListCell   *lc;

	if (!execution->hides || ttl_container_objects() == NULL ||
		(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		return;
	old = MemoryContextSwitchTo(query_desc->estate->es_query_cxt);
	(void) add_scan_filters(query_desc->planstate, execution);
	foreach(lc, query_desc->estate->es_subplanstates)
	{
		if (lfirst(lc) != NULL)
			(void) add_scan_filters(lfirst(lc), execution);
	}
	MemoryContextSwitchTo(old);
}

void
ttl_scan_filter_init(void)
{
	ttl_execution_on_start(execution_started);
#if TTL_EXPLAINS_NODES
	prev_explain_per_node = explain_per_node_hook;
	explain_per_node_hook = explain_filter;
#endif
}
