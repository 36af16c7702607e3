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
#include "ttl.h"
#include "utils/lsyscache.h"
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

/* True if the target's row trigger is there and set off in this session. */
static bool
fires_in_session(const ResultRelInfo *target)
{
	const Trigger *trigger = ttl_row_trigger_among(target->ri_TrigDesc);
	bool		replica = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;

	return trigger != NULL &&
		(trigger->tgenabled == TRIGGER_FIRES_ALWAYS ||
		 trigger->tgenabled == (replica ? TRIGGER_FIRES_ON_REPLICA : TRIGGER_FIRES_ON_ORIGIN));
}

/* Errors (55000): no trigger has freed the keys of expired rows. */
static void
report_unfreed_key(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot free keys of expired rows for ON CONFLICT DO UPDATE because trigger \"%s\" of table \"%s\" does not fire",
					TTL_TRIGGER, get_rel_name(relid)),
			 errhint("Use ALTER TABLE ... ENABLE TRIGGER \"%s\".", TTL_TRIGGER)));
}

/* Replaces the WHERE of ON CONFLICT DO UPDATE. */
typedef struct ConflictQual
{
	ExprState	state;
	ExprState  *where;			/* NULL = none */
	Oid			relid;
	bool		frees_keys;		/* its trigger fires */
} ConflictQual;

/*
 * Errors if the locked row has expired: 40001, since it can't have been there before, unless no trigger
 * looks for such rows.  Else evaluates the statement's WHERE.
 */
static Datum
evaluate_conflict_qual(ExprState *state, ExprContext *econtext, bool *isnull)
{
	ConflictQual *qual = (ConflictQual *) state;
	TtlContainer container;

	/* by the policy as it is now, like the trigger's last look (evict.c) */
	if (ttl_container_lookup(qual->relid, &container) &&
		ttl_expiry_of_slot(&container, econtext->ecxt_scantuple) <= ttl_execution_reference_time())
	{
		if (!qual->frees_keys)
			report_unfreed_key(qual->relid);
		ttl_conflicts_report_row();
	}
	*isnull = false;
	return qual->where == NULL ? BoolGetDatum(true) :
		ExecEvalExpr(qual->where, econtext, isnull);
}

/* True if ON CONFLICT DO UPDATE of the target checks the rows that it locks, or if it has none. */
static bool
is_checked(const ResultRelInfo *target)
{
	return target->ri_onConflict == NULL ||
		(target->ri_onConflict->oc_WhereClause != NULL &&
		 target->ri_onConflict->oc_WhereClause->evalfunc == evaluate_conflict_qual);
}

/*
 * Has ON CONFLICT DO UPDATE fail where it meets an expired row of the container.  A partition whose columns
 * are numbered as its parent's has the same WHERE, which must not be wrapped twice.
 */
void
ttl_conflicts_check(ResultRelInfo *target, EState *estate)
{
	ConflictQual *qual;

	if (is_checked(target))
		return;
	qual = MemoryContextAllocZero(estate->es_query_cxt, sizeof(ConflictQual));
	ttl_execution_init_expr(&qual->state, evaluate_conflict_qual, EEO_FLAG_IS_QUAL);
	qual->where = target->ri_onConflict->oc_WhereClause;
	qual->relid = RelationGetRelid(target->ri_RelationDesc);
	qual->frees_keys = fires_in_session(target);
	target->ri_onConflict->oc_WhereClause = &qual->state;
}

/*
 * Errors (55000) if ON CONFLICT DO UPDATE may have updated expired rows of a partition.  A partition whose
 * columns are numbered differently gets a WHERE of its own when the first row is routed to it, and only its
 * row trigger can have that checked.  If that is disabled, or gone, this is noticed when the statement is over;
 * nobody has got its result by then.
 */
void
ttl_conflicts_check_routed(const QueryDesc *query_desc)
{
	ListCell   *lc;

	foreach(lc, query_desc->estate->es_tuple_routing_result_relations)
	{
		const ResultRelInfo *target = lfirst(lc);
		TtlContainer container;

		/*
		 * A trigger of the user's may have left out all rows before ours.
		 * While TTL is off, no row is expired.
		 */
		if (!is_checked(target) && !fires_in_session(target) &&
			ttl_container_lookup(RelationGetRelid(target->ri_RelationDesc), &container) &&
			container.policy.default_ttl != TTL_OFF)
			report_unfreed_key(container.relid);
	}
}
