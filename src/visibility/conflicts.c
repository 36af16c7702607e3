/*-------------------------------------------------------------------------
 *
 * conflicts.c
 *	  ON CONFLICT meets no expired row.
 *
 * The row trigger has freed the keys of the new row (evict.c), but another session may have committed an
 * expired row since.  ON CONFLICT must neither update such a row nor give way to it: the row that DO UPDATE
 * has locked is looked at before its WHERE is evaluated; for DO NOTHING see evict.c.  Either is 40001.
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

/* Errors (40001): another session has committed an expired row since the key was looked up. */
void
ttl_conflicts_report_row(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update"),
			 errhint("The transaction might succeed if retried.")));
}

/* True if the execution has an INSERT with ON CONFLICT DO NOTHING. */
bool
ttl_conflicts_may_do_nothing(const QueryDesc *query_desc)
{
	PlanState  *top = query_desc->planstate;
	ListCell   *lc;

	if (IsA(top, ModifyTableState) &&
		((ModifyTable *) top->plan)->onConflictAction == ONCONFLICT_NOTHING)
		return true;
	foreach(lc, query_desc->estate->es_auxmodifytables)
	{
		if (((ModifyTable *) ((PlanState *) lfirst(lc))->plan)->onConflictAction == ONCONFLICT_NOTHING)
			return true;
	}
	return false;
}

/* Replaces the WHERE of ON CONFLICT DO UPDATE. */
typedef struct ConflictQual
{
	ExprState	state;
	ExprState  *where;			/* NULL = none */
	Oid			relid;
} ConflictQual;

/* Errors (40001) if the locked row has expired; else evaluates the statement's WHERE. */
static Datum
evaluate_conflict_qual(ExprState *state, ExprContext *econtext, bool *isnull)
{
	ConflictQual *qual = (ConflictQual *) state;
	TtlContainer container;

	if (ttl_container_lookup(qual->relid, &container) &&
		ttl_expiry_of_slot(&container, econtext->ecxt_scantuple) <= ttl_execution_reference_time())
		ttl_conflicts_report_row();
	*isnull = false;
	return qual->where == NULL ? BoolGetDatum(true) :
		ExecEvalExpr(qual->where, econtext, isnull);
}

/* Has ON CONFLICT DO UPDATE fail where it meets an expired row of the container. */
void
ttl_conflicts_check(ResultRelInfo *target, EState *estate)
{
	ConflictQual *qual;

	if (target->ri_onConflict == NULL ||
		(target->ri_onConflict->oc_WhereClause != NULL &&
		 target->ri_onConflict->oc_WhereClause->evalfunc == evaluate_conflict_qual))
		return;
	qual = MemoryContextAllocZero(estate->es_query_cxt, sizeof(ConflictQual));
	qual->state.type = T_ExprState;
	qual->state.flags = EEO_FLAG_IS_QUAL;
	qual->state.evalfunc = evaluate_conflict_qual;
	qual->where = target->ri_onConflict->oc_WhereClause;
	qual->relid = RelationGetRelid(target->ri_RelationDesc);
	target->ri_onConflict->oc_WhereClause = &qual->state;
}
