/*-------------------------------------------------------------------------
 *
 * index_predicate.c
 *	  The predicates of the expiry indexes, where rows are inserted.
 *
 * The executor prepares the predicate of each partial index anew in every statement, which
 * for a single row is more than the insertion into the index takes.  Those of the expiry
 * indexes are known: a state that evaluates the row by the rule in expiry.h takes the place
 * of the executor's, before that is made.  COPY keeps its indexes to itself, and prepares
 * theirs once for all rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "expiry/expiry.h"
#include "nodes/execnodes.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "visibility/visibility.h"

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

void
ttl_index_predicate_prepare(ResultRelInfo *target, EState *estate, const TtlContainer *container)
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
			predicate->state.type = T_ExprState;
			predicate->state.flags = EEO_FLAG_IS_QUAL;
			predicate->state.evalfunc = evaluate_predicate;
			predicate->index = kind;
			predicate->ttl_attno = container->ttl_attno;
			predicate->ttl_type = container->ttl_type;
			info->ii_PredicateState = &predicate->state;
		}
	}
}
