/*-------------------------------------------------------------------------
 *
 * stamp.c
 *	  UPDATE resets the clock: `_ts` in UPDATE, ON CONFLICT and MERGE.
 *
 * Before a query is planned, each UPDATE of a container in it gets the
 * assignment  _ts = ttl.stamp(what it would be otherwise), be it alone, in a
 * CTE, as the action of ON CONFLICT or of MERGE.  ttl.stamp() decides when the
 * plan runs, so ttl.touch and session_replication_role need no replanning.
 * The assignment isn't in updatedCols: nobody needs a privilege for it, and
 * triggers on UPDATE OF _ts don't fire.  A row trigger would do the same at
 * 1.3 to 1.7 times the cost of a bulk update.
 *
 * Not stamped: containers with touch_on_update off, and referential actions
 * (visibility.c leaves their queries alone).  Logical replication plans
 * nothing, and so keeps the publisher's _ts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "fmgr.h"
#include "guc.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "visibility/visibility.h"

/* The expression, rounded to the precision of a timestamptz(n) column */
static Expr *
scale(Expr *expr, Oid type, int32 typmod)
{
	Const	   *precision;

	if (typmod < 0)
		return expr;
	precision = makeConst(INT4OID, -1, InvalidOid, sizeof(int32),
						  Int32GetDatum(typmod), false, true);
	return (Expr *) makeFuncExpr(type == TIMESTAMPTZOID ? F_TIMESTAMPTZ_TIMESTAMPTZ_INT4 :
								 F_TIMESTAMP_TIMESTAMP_INT4, type,
								 list_make2(expr, precision),
								 InvalidOid, InvalidOid, COERCE_IMPLICIT_CAST);
}

/* The present, as a value of a timestamp column's type */
static Expr *
make_present(Oid type)
{
	Expr	   *now = (Expr *) makeFuncExpr(F_CLOCK_TIMESTAMP, TIMESTAMPTZOID, NIL,
											InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	Const	   *utc;

	if (type == TIMESTAMPTZOID)
		return now;
	utc = makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1, CStringGetTextDatum("UTC"),
					false, false);
	return (Expr *) makeFuncExpr(F_TIMEZONE_TEXT_TIMESTAMPTZ, TIMESTAMPOID,
								 list_make2(utc, now), InvalidOid, DEFAULT_COLLATION_OID,
								 COERCE_EXPLICIT_CALL);
}

/*
 * Makes an INSERT put the present where it gives NULL.  The row trigger does so,
 * too, for COPY, but it fires when the row has been routed to a partition.
 */
static void
complete_targets(List *targets, const TtlContainer *container)
{
	Oid			type;
	int32		typmod;
	Oid			collation;
	ListCell   *lc;

	get_atttypetypmodcoll(container->relid, container->ts_attno, &type, &typmod, &collation);
	foreach(lc, targets)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		CoalesceExpr *value;

		if (entry->resjunk || entry->resno != container->ts_attno ||
			(IsA(entry->expr, FuncExpr) &&
			 ((FuncExpr *) entry->expr)->funcid == F_CLOCK_TIMESTAMP))
			continue;
		value = makeNode(CoalesceExpr);
		value->coalescetype = type;
		value->args = list_make2(entry->expr, scale(make_present(type), type, typmod));
		value->location = -1;
		entry->expr = (Expr *) value;
	}
}

/*
 * Makes the target list assign the stamp.  An assignment of the statement's own
 * is wrapped; if there is none, one of the old value is.
 */
static List *
stamp_targets(List *targets, const TtlContainer *container, Index relation)
{
	TargetEntry *assignment = NULL;
	int			nassignments = 0;
	Oid			type;
	int32		typmod;
	Oid			collation;
	ListCell   *lc;

	foreach(lc, targets)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (entry->resjunk)
			continue;
		nassignments++;
		if (entry->resno == container->ts_attno)
			assignment = entry;
	}
	get_atttypetypmodcoll(container->relid, container->ts_attno, &type, &typmod, &collation);
	if (assignment == NULL)
	{
		Var		   *old = makeVar(relation, container->ts_attno, type, typmod, collation, 0);

		assignment = makeTargetEntry((Expr *) old, container->ts_attno,
									 get_attname(container->relid, container->ts_attno, false),
									 false);
		/* junk entries stay last */
		targets = list_insert_nth(targets, nassignments, assignment);
	}
	assignment->expr = (Expr *) makeFuncExpr(ttl_container_require_objects()->stamp[type == TIMESTAMPTZOID ? 0 : 1],
											 type, list_make1(assignment->expr),
											 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	assignment->expr = scale(assignment->expr, type, typmod);
	return targets;
}

void
ttl_stamp_query(Query *query)
{
	TtlContainer container;
	ListCell   *lc;

	foreach(lc, query->cteList)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

		ttl_stamp_query(castNode(Query, cte->ctequery));
	}

	if (query->resultRelation == 0 ||
		!ttl_container_lookup(rt_fetch(query->resultRelation, query->rtable)->relid, &container) ||
		container.ts_attno == InvalidAttrNumber)
		return;

	switch (query->commandType)
	{
		case CMD_UPDATE:
			if (container.touch_on_update)
				query->targetList = stamp_targets(query->targetList, &container,
												  query->resultRelation);
			break;
		case CMD_INSERT:
			complete_targets(query->targetList, &container);
			if (container.touch_on_update && query->onConflict != NULL &&
				query->onConflict->action == ONCONFLICT_UPDATE)
				query->onConflict->onConflictSet =
					stamp_targets(query->onConflict->onConflictSet, &container,
								  query->resultRelation);
			break;
		case CMD_MERGE:
			foreach(lc, query->mergeActionList)
			{
				MergeAction *action = lfirst_node(MergeAction, lc);

				if (action->commandType == CMD_INSERT)
					complete_targets(action->targetList, &container);
				else if (action->commandType == CMD_UPDATE && container.touch_on_update)
					action->targetList = stamp_targets(action->targetList, &container,
													   query->resultRelation);
			}
			break;
		default:
			break;
	}
}

PG_FUNCTION_INFO_V1(ttl_stamp);

/*
 * ttl.stamp(_ts timestamptz) -> timestamptz
 *
 * The present, or the argument while ttl.touch is off or replicated changes
 * are applied (session_replication_role = replica).  Without time zone it is UTC.
 */
Datum
ttl_stamp(PG_FUNCTION_ARGS)
{
	if (ttl_guc_touch && SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA)
		PG_RETURN_TIMESTAMPTZ(GetCurrentTimestamp());
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(PG_GETARG_TIMESTAMPTZ(0));
}
