/*-------------------------------------------------------------------------
 *
 * index_predicates.c
 *	  The predicates of the expiry indexes, prepared for rows that are written.
 *
 * The executor prepares the predicate of each partial index anew in every statement, which
 * for a single row is more than the insertion into the index takes.  Those of the expiry
 * indexes are known: a state that evaluates the row by the rule in expiry.h takes the place
 * of the executor's, before that is made: when the row trigger fires for the first time, or when an
 * UPDATE has found its first row.  COPY keeps its indexes to itself, and prepares
 * theirs once for all rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "nodes/execnodes.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "visibility/writing.h"

/* Takes the place of an index's ii_PredicateState. */
typedef struct IndexPredicate
{
	ExprState	state;
	TtlExpiryIndex index;
	AttrNumber	ttl_attno;
	const TtlType *ttl_type;
} IndexPredicate;

/* What define_index() in expiry_index.c says in SQL */
static Datum
evaluate_predicate(ExprState *state, ExprContext *econtext, bool *isnull)
{
	const IndexPredicate *predicate = (const IndexPredicate *) state;
	TtlItem		item = {0};
	bool		has_none;
	Datum		own = slot_getattr(econtext->ecxt_scantuple, predicate->ttl_attno, &has_none);

	if (!has_none)
		ttl_item_set_own(&item, predicate->ttl_type, own);
	*isnull = false;
	if (predicate->index == TTL_INDEX_ITEM)
		return BoolGetDatum(item.ttl > 0);
	return BoolGetDatum(item.ttl == 0 && !item.has_deadline);
}

/* Prepares the predicates of the expiry indexes that have been opened for insertions. */
void
ttl_index_predicates_prepare(ResultRelInfo *target, EState *estate, const TtlContainer *container)
{
	TtlExpiryIndexes indexes;

	if (container->ttl_type == NULL || !ttl_expiry_indexes(target->ri_RelationDesc, &indexes))
		return;
	for (int i = 0; i < target->ri_NumIndices; i++)
	{
		IndexInfo  *info = target->ri_IndexRelationInfo[i];

		for (int kind = 0; kind < TTL_INDEXES; kind++)
		{
			IndexPredicate *predicate;

			/* that on deadlines may leave out NULLs, or not */
			if (indexes.usable[kind] != RelationGetRelid(target->ri_IndexRelationDescs[i]) ||
				info->ii_Predicate == NIL || info->ii_PredicateState != NULL ||
				(kind == TTL_INDEX_ITEM && ttl_type_is_deadline(container->ttl_type)))
				continue;
			predicate = MemoryContextAllocZero(estate->es_query_cxt, sizeof(IndexPredicate));
			ttl_execution_init_expr(&predicate->state, evaluate_predicate, EEO_FLAG_IS_QUAL);
			predicate->index = kind;
			predicate->ttl_attno = container->ttl_attno;
			predicate->ttl_type = container->ttl_type;
			info->ii_PredicateState = &predicate->state;
		}
	}
}

/*
 * In place of the function of an UPDATE's outer node until it has returned a row: opens the target's indexes
 * before the executor does, which would prepare their predicates itself.
 */
static TupleTableSlot *
open_for_update(PlanState *outer)
{
	TtlExecution *execution = ttl_execution_of(outer->state);
	ResultRelInfo *target = ((ModifyTableState *) execution->query_desc->planstate)->resultRelInfo;
	TtlContainer container;
	TupleTableSlot *slot;

	/* from now on PostgreSQL calls it directly */
	ExecSetExecProcNode(outer, execution->outer_of_update);
	slot = outer->ExecProcNodeReal(outer);
	if (!TupIsNull(slot) && target->ri_IndexRelationDescs == NULL &&
		ttl_container_lookup(RelationGetRelid(target->ri_RelationDesc), &container))
	{
		MemoryContext old = MemoryContextSwitchTo(outer->state->es_query_cxt);

		ExecOpenIndices(target, false);
		ttl_index_predicates_prepare(target, outer->state, &container);
		MemoryContextSwitchTo(old);
	}
	return slot;
}

/* Has the indexes of an UPDATE of one table opened when it has found its first row. */
void
ttl_index_predicates_await_update(TtlExecution *execution)
{
	PlanState  *top = execution->query_desc->planstate;
	ModifyTableState *mtstate = (ModifyTableState *) top;
	PlanState  *outer;

	/* of several targets it isn't known which one the first row is of */
	if (!IsA(top, ModifyTableState) || mtstate->operation != CMD_UPDATE || mtstate->mt_nrels != 1 ||
		!mtstate->resultRelInfo->ri_RelationDesc->rd_rel->relhasindex ||
		!ttl_container_is_part(RelationGetRelid(mtstate->resultRelInfo->ri_RelationDesc)))
		return;
	outer = outerPlanState(top);
	execution->outer_of_update = outer->ExecProcNodeReal;
	ExecSetExecProcNode(outer, open_for_update);
}
