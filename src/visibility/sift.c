/*-------------------------------------------------------------------------
 *
 * sift.c
 *	  The filter at run time: as cheap as knowing where not to look.
 *
 * A plan carries the filter as a function call that is complete by itself
 * (hide.c).  When an execution has started, without the call (plan_copy.c), the quals of
 * each filtered scan are replaced by a "sift", whose evaluation function is ours: it
 * judges the row straight from its slot, and leaves the rest of the quals to PostgreSQL.
 *
 * A scan that goes on for long asks the expiry indexes where expired rows are
 * (suspects.c).  If there are none the sift removes itself.  If there are some,
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
 * sift first.
 *
 * Left to the function call: plans that EvalPlanQual makes for itself, which never
 * pass ExecutorStart.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#if TTL_SEQ_SCAN_ASSUMES_QUAL
#include "executor/execScan.h"
#endif
#include "executor/executor.h"
#include "expiry/is_live.h"
#include "expiry/suspects.h"
#include "guc.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
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

typedef struct Sift
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
	const TtlKind *ts_kind;
	AttrNumber	ttl_attno;
	const TtlKind *kind;
	bool		none_expired;
	TtlSuspects *suspects;		/* NULL = not known */
	uint64		clean_page;		/* the last one found to have none; no page's
								 * number in the beginning */
	int64		judged;
	int64		ask_at;
	TupleTableSlot *fetched;	/* for index-only scans */
	struct Sift *next;			/* of the execution */
} Sift;

/* An operator that orders an index scan, and is computed for rows anew. */
typedef struct OrderingGuard
{
	ExprState	state;
	ExprState  *guarded;
	Sift	   *sift;
} OrderingGuard;

static Datum evaluate_sifted(ExprState *state, ExprContext *econtext, bool *isnull);
static Datum evaluate_sifted_by_place(ExprState *state, ExprContext *econtext, bool *isnull);

static inline Datum
evaluate_rest(Sift *sift, ExprContext *econtext, bool *isnull)
{
	return sift->rest == NULL ? BoolGetDatum(true) :
		ExecEvalExpr(sift->rest, econtext, isnull);
}

/* Evaluates quals without the filter. */
static Datum
evaluate_unfiltered(ExprState *state, ExprContext *econtext, bool *isnull)
{
	*isnull = false;
	return evaluate_rest((Sift *) state, econtext, isnull);
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
remove_sift(Sift *sift)
{
	PlanState  *ps = &sift->scan->ps;

	sift->none_expired = true;
	sift->qual.evalfunc = evaluate_unfiltered;
#if TTL_SEQ_SCAN_ASSUMES_QUAL
	if (IsA(ps, SeqScanState) && sift->rest == NULL)
	{
		ExecSetExecProcNode(ps, ps->ps_ProjInfo == NULL ? seq_scan : seq_scan_with_project);
		return;
	}
#endif
	ps->qual = sift->rest;
}

/* How many rows the scan is expected to meet. */
static double
expected_rows(const Sift *sift)
{
	double		rows = sift->scan->ps.plan->plan_rows;

	if (IsA(sift->scan, SeqScanState))
		rows = Max(rows, sift->scan->ss_currentRelation->rd_rel->reltuples);
	return Min(rows, (double) PG_INT32_MAX);
}

/* How many index entries the next question may cost. */
static int64
max_entries(const Sift *sift)
{
	if (ttl_guc_debug_index_probe == TTL_INDEX_PROBE_ALWAYS)
		return PG_INT64_MAX;
	if (sift->judged < ASK_AFTER)
		return ENTRIES_FIRST;
	return Max((int64) expected_rows(sift), sift->judged) /
		(sift->index_only ? ENTRIES_SHARE_INDEX_ONLY : ENTRIES_SHARE);
}

/* Asks the indexes where expired rows are. */
static void
ask(Sift *sift)
{
	EState	   *estate = sift->scan->ps.state;
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	TtlSuspicion answer;

	answer = ttl_suspects_collect(sift->scan->ss_currentRelation, sift->live->default_ttl,
								  sift->live->now, estate->es_snapshot,
								  max_entries(sift), &sift->suspects);
	MemoryContextSwitchTo(old);

	if (answer == TTL_SUSPECTS_KNOWN && sift->suspects->n == 0 &&
		!sift->suspects->lacks_replaced)
		remove_sift(sift);
	else if (answer == TTL_SUSPECTS_KNOWN)
	{
		sift->qual.evalfunc = sift->index_only == NULL ? evaluate_sifted :
			evaluate_sifted_by_place;
	}
	else if (answer == TTL_SUSPECTS_TOO_MANY && ttl_guc_debug_index_probe != TTL_INDEX_PROBE_ALWAYS)
		sift->ask_at = Max(sift->judged * ASK_AGAIN, ASK_AFTER);
	else
		sift->ask_at = PG_INT64_MAX;
}

static inline bool
judge(const Sift *sift, TupleTableSlot *slot)
{
	TtlItem		item;

	ttl_item_read(&item, sift->ts_attno, sift->ts_kind, sift->ttl_attno, sift->kind, slot);
	return !ttl_live_has_expired(sift->live, &item);
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
 * nearest-neighbour search, have lost their place.  A suspect is looked at, though
 * its entry tells enough, unless it costs much: a document may be stored out of line.
 */
static Verdict
decide(Sift *sift, TupleTableSlot *slot)
{
	HeapTuple	tuple;
	BlockNumber page;

	if (!ItemPointerIsValid(&slot->tts_tid))
		return IS_UNDECIDED;
	page = ItemPointerGetBlockNumber(&slot->tts_tid);
	if (!ttl_suspects_on_page(sift->suspects, page))
	{
		if (sift->suspects->lacks_replaced)
			return may_be_replaced(slot) ? IS_UNDECIDED : IS_LIVE;
		sift->clean_page = page;
		return IS_LIVE;
	}
	if (!TTS_IS_BUFFERTUPLE(slot))
		return IS_UNDECIDED;
	tuple = ((HeapTupleTableSlot *) slot)->tuple;
	if (tuple == NULL || HeapTupleHeaderIsHeapOnly(tuple->t_data))
		return IS_UNDECIDED;
	if (!ttl_suspects_contain(sift->suspects, &slot->tts_tid))
		return IS_LIVE;
	return sift->kind != NULL && sift->kind->is_document && !sift->suspects->by_page ?
		IS_EXPIRED : IS_UNDECIDED;
}

/* The same, at once for the rows of a page after the first */
static inline bool
is_on_clean_page(const Sift *sift, const TupleTableSlot *slot)
{
	return ItemPointerGetBlockNumberNoCheck(&slot->tts_tid) == sift->clean_page;
}

/*
 * What is known of the row that the index-only scan has come to.  Its place is in
 * one of the expiry indexes or in none.  It is undecided where it may be that of
 * a member of a HOT chain, because the scan has been at the page.
 */
static inline Verdict
decide_by_place(Sift *sift)
{
	struct IndexScanDescData *desc = sift->index_only->ioss_ScanDesc;
	BlockNumber page = ItemPointerGetBlockNumber(&desc->xs_heaptid);
	Buffer		looked_at = ((IndexFetchHeapData *) desc->xs_heapfetch)->xs_cbuf;
	bool		has_looked = BufferIsValid(looked_at) && BufferGetBlockNumber(looked_at) == page;

	/* on a page that is visible to all, nothing has been replaced */
	if (!ttl_suspects_on_page(sift->suspects, page))
		return sift->suspects->lacks_replaced && has_looked ? IS_UNDECIDED : IS_LIVE;
	if (has_looked || sift->suspects->by_page)
		return IS_UNDECIDED;
	return ttl_suspects_contain(sift->suspects, &desc->xs_heaptid) ? IS_EXPIRED : IS_LIVE;
}

/* Fetches the row that the index-only scan has come to. */
static TupleTableSlot *
fetch(Sift *sift)
{
	ScanState  *scan = sift->scan;
	Relation	rel = scan->ss_currentRelation;
	Snapshot	snapshot = scan->ps.state->es_snapshot;
	ItemPointerData tid = sift->index_only->ioss_ScanDesc->xs_heaptid;

	if (sift->fetched == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(scan->ps.state->es_query_cxt);

		sift->fetched = table_slot_create(rel, &scan->ps.state->es_tupleTable);
		MemoryContextSwitchTo(old);
	}
	if (!table_tuple_fetch_row_version(rel, &tid, snapshot, sift->fetched))
	{
		/* the root of a HOT chain that has been pruned leads to the row */
		IndexFetchTableData *chain = TtlTableIndexFetchBegin(rel);
		bool		call_again = false;
		bool		found = table_index_fetch_tuple(chain, &tid, snapshot, sift->fetched,
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
	return sift->fetched;
}

/* Judges the row that the index-only scan has come to. */
static bool
judge_fetched(Sift *sift)
{
	bool		result = judge(sift, fetch(sift));

	ExecClearTuple(sift->fetched);
	return result;
}

static inline bool
is_live_by_place(Sift *sift)
{
	Verdict		verdict = decide_by_place(sift);

	return verdict == IS_UNDECIDED ? judge_fetched(sift) : verdict == IS_LIVE;
}

/* The same of a row that the scan has fetched */
static inline bool
is_live_suspect(Sift *sift, TupleTableSlot *slot)
{
	Verdict		verdict = decide(sift, slot);

	return verdict == IS_UNDECIDED ? judge(sift, slot) : verdict == IS_LIVE;
}

/* Is the row that the scan has come to live? */
static bool
is_live(Sift *sift, TupleTableSlot *slot)
{
	if (sift->suspects == NULL && sift->judged++ >= sift->ask_at)
		ask(sift);
	if (sift->none_expired)
		return true;
	if (sift->index_only != NULL)
		return sift->suspects != NULL ? is_live_by_place(sift) : judge_fetched(sift);
	return sift->suspects != NULL ? is_live_suspect(sift, slot) : judge(sift, slot);
}

/* Evaluates the quals. */
static Datum
evaluate_qual(ExprState *state, ExprContext *econtext, bool *isnull)
{
	Sift	   *sift = (Sift *) state;

	*isnull = false;
	return is_live(sift, econtext->ecxt_scantuple) ?
		evaluate_rest(sift, econtext, isnull) : BoolGetDatum(false);
}

/* The same when it is known which rows are suspects. */
static Datum
evaluate_sifted(ExprState *state, ExprContext *econtext, bool *isnull)
{
	Sift	   *sift = (Sift *) state;
	TupleTableSlot *slot = econtext->ecxt_scantuple;

	*isnull = false;
	return is_on_clean_page(sift, slot) || is_live_suspect(sift, slot) ?
		evaluate_rest(sift, econtext, isnull) : BoolGetDatum(false);
}

static Datum
evaluate_sifted_by_place(ExprState *state, ExprContext *econtext, bool *isnull)
{
	Sift	   *sift = (Sift *) state;

	*isnull = false;
	return is_live_by_place(sift) ?
		evaluate_rest(sift, econtext, isnull) : BoolGetDatum(false);
}

/* Evaluates what is to be rechecked: for an expired row it needn't. */
static Datum
evaluate_recheck(ExprState *state, ExprContext *econtext, bool *isnull)
{
	Sift	   *sift = (Sift *) ((char *) state - offsetof(Sift, recheck));

	*isnull = false;
	if (!is_live(sift, econtext->ecxt_scantuple))
		return BoolGetDatum(false);
	return ExecEvalExpr(sift->rechecked, econtext, isnull);
}

/* Evaluates an ordering operator: an expired row goes last. */
static Datum
evaluate_ordering(ExprState *state, ExprContext *econtext, bool *isnull)
{
	OrderingGuard *guard = (OrderingGuard *) state;

	*isnull = true;
	if (!is_live(guard->sift, econtext->ecxt_scantuple))
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
guard_recheck(Sift *sift, ExprState **recheck)
{
	if (*recheck == NULL)
		return;
	init_state(&sift->recheck, evaluate_recheck, EEO_FLAG_IS_QUAL);
	sift->rechecked = *recheck;
	*recheck = &sift->recheck;
}

static void
guard_orderings(Sift *sift, List *orderings)
{
	ListCell   *lc;

	foreach(lc, orderings)
	{
		OrderingGuard *guard = palloc0(sizeof(OrderingGuard));

		init_state(&guard->state, evaluate_ordering, 0);
		guard->guarded = lfirst(lc);
		guard->sift = sift;
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
sift_scan(ScanState *scan, TtlExecution *execution)
{
	const TtlLive *live;
	TtlContainer container;
	Sift	   *sift;

	if (!ttl_hide_is_filtered(scan->ps.plan, RelationGetRelid(scan->ss_currentRelation),
							  &container))
		return;
	live = ttl_live_settled(execution, container.container);
	sift = palloc0(sizeof(Sift));
	init_state(&sift->qual, evaluate_qual, EEO_FLAG_IS_QUAL);
	sift->scan = scan;
	sift->live = live;
	sift->next = execution->sifts;
	execution->sifts = sift;
	sift->rest = get_rest(scan);
	scan->ps.qual = &sift->qual;

	if (live->sees_everything)
	{
		remove_sift(sift);
		return;
	}

	sift->clean_page = PG_UINT64_MAX;
	sift->ts_attno = container.ts_attno;
	sift->ts_kind = container.ts_kind;
	sift->ttl_attno = container.ttl_attno;
	sift->kind = container.kind;
	sift->ask_at = IsA(scan, IndexOnlyScanState) ? ASK_AFTER_INDEX_ONLY : ASK_AFTER;
	if (expected_rows(sift) >= sift->ask_at)
		sift->ask_at = 0;
	if (ttl_guc_debug_index_probe == TTL_INDEX_PROBE_ALWAYS)
		sift->ask_at = 0;
	else if (ttl_guc_debug_index_probe == TTL_INDEX_PROBE_NEVER)
		sift->ask_at = PG_INT64_MAX;

	switch (nodeTag(scan))
	{
		case T_IndexScanState:
			guard_recheck(sift, &((IndexScanState *) scan)->indexqualorig);
			guard_orderings(sift, ((IndexScanState *) scan)->indexorderbyorig);
			break;
		case T_IndexOnlyScanState:
			sift->index_only = (IndexOnlyScanState *) scan;
			guard_recheck(sift, &sift->index_only->recheckqual);
			break;
		case T_BitmapHeapScanState:
			guard_recheck(sift, &((BitmapHeapScanState *) scan)->bitmapqualorig);
			break;
		default:
			break;
	}
}

static void
sift_plan(PlanState *planstate, TtlExecution *execution)
{
	PlanState **children = NULL;
	int			nchildren = 0;
	ListCell   *lc;

	if (planstate == NULL)
		return;
	check_stack_depth();

	switch (nodeTag(planstate))
	{
		case T_SeqScanState:
		case T_SampleScanState:
		case T_IndexScanState:
		case T_IndexOnlyScanState:
		case T_BitmapHeapScanState:
		case T_TidScanState:
		case T_TidRangeScanState:
			sift_scan((ScanState *) planstate, execution);
			return;
		case T_SubqueryScanState:
			sift_plan(((SubqueryScanState *) planstate)->subplan, execution);
			break;
		case T_CustomScanState:
			foreach(lc, ((CustomScanState *) planstate)->custom_ps)
				sift_plan(lfirst(lc), execution);
			break;
		case T_AppendState:
			children = ((AppendState *) planstate)->appendplans;
			nchildren = ((AppendState *) planstate)->as_nplans;
			break;
		case T_MergeAppendState:
			children = ((MergeAppendState *) planstate)->mergeplans;
			nchildren = ((MergeAppendState *) planstate)->ms_nplans;
			break;
		default:
			break;
	}
	for (int i = 0; i < nchildren; i++)
		sift_plan(children[i], execution);
	sift_plan(outerPlanState(planstate), execution);
	sift_plan(innerPlanState(planstate), execution);
}

TtlSiftWork
ttl_sift_describe(const PlanState *planstate, int64 *suspects)
{
	const TtlExecution *execution = ttl_execution_of(planstate->state);
	const Sift *sift = execution == NULL ? NULL : execution->sifts;

	while (sift != NULL && &sift->scan->ps != planstate)
		sift = sift->next;
	if (sift == NULL)
		return TTL_SIFT_NOT_THERE;
	if (sift->none_expired)
		return TTL_SIFT_NONE_EXPIRED;
	if (sift->suspects == NULL)
		return TTL_SIFT_EACH_ROW;
	*suspects = ttl_suspects_count(sift->suspects);
	return sift->suspects->by_page ? TTL_SIFT_SUSPECT_PAGES : TTL_SIFT_SUSPECTS;
}

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
	sift_plan(query_desc->planstate, execution);
	foreach(lc, query_desc->estate->es_subplanstates)
		sift_plan(lfirst(lc), execution);
	MemoryContextSwitchTo(old);
}

void
ttl_sift_init(void)
{
	ttl_execution_on_start(execution_started);
}
