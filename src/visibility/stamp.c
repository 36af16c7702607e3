/*-------------------------------------------------------------------------
 *
 * stamp.c
 *	  UPDATE resets the clock: `_ts` in UPDATE, ON CONFLICT and MERGE.
 *
 * Before a query is planned, each UPDATE of a container in it gets the
 * assignment  _ts = ttl.stamp(what it would be otherwise), be it alone, in a
 * CTE, as the action of ON CONFLICT or of MERGE.  ttl.touch and
 * session_replication_role need no replanning: what they are when an execution starts holds for all its
 * rows, as the other sessions are told then (evict.c).
 *
 * The stamp is rounded up to a multiple of ts_precision, and to what the column can hold.  It
 * depends on the clock alone, so an UPDATE within the same multiple leaves _ts as it is,
 * changes no expiry index, and is HOT.
 *
 * The assignment isn't in updatedCols: it needs no privilege, and
 * triggers on UPDATE OF _ts don't fire.  A row trigger would do the same at
 * 1.3 to 1.7 times the cost of a bulk update.
 *
 * What Citus plans is planned again on the nodes that have the rows, and stamped there.
 * Where a row has copies on several nodes, UPDATE gives them one stamp: Citus calls
 * ttl.shard_now() once for all, and ttl.shard_stamp(), which is labelled immutable because
 * Citus takes nothing else beside a column, and isn't called by the planner because a column
 * is among its arguments, keeps what it was given.
 *
 * Not stamped: containers with touch_on_update off, and referential actions
 * (hide.c leaves their queries alone).  Logical replication plans
 * nothing, and so keeps the publisher's _ts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "catalog_expr.h"
#include "citus/citus.h"
#include "container/container.h"
#include "execution.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "visibility/visibility.h"

/*
 * function(values, step, unit): a value of the timestamp column.  A timestamp(n) holds a
 * multiple of the step as it is, a numeric(n) may be too short for it.
 */
static Expr *
make_value(Oid function, List *values, const TtlContainer *container)
{
	const TtlColumnType *column = &container->ts_column;
	Const	   *step = makeConst(INT8OID, -1, InvalidOid, sizeof(int64),
								 Int64GetDatum(container->ts_step), false, FLOAT8PASSBYVAL);
	Const	   *unit = makeNullConst(TEXTOID, -1, DEFAULT_COLLATION_OID);
	Expr	   *value;

	if (container->ts_type != NULL)
		unit = makeConst(TEXTOID, -1, DEFAULT_COLLATION_OID, -1,
						 CStringGetTextDatum(ttl_type_unit_name(container->ts_type->unit)),
						 false, false);
	value = (Expr *) makeFuncExpr(function, column->type, list_concat(values, list_make2(step, unit)),
								  InvalidOid, DEFAULT_COLLATION_OID, COERCE_EXPLICIT_CALL);
	if (column->type != NUMERICOID || column->typmod < 0)
		return value;
	return (Expr *) makeFuncExpr(F_NUMERIC_NUMERIC_INT4, NUMERICOID,
								 list_make2(value, makeConst(INT4OID, -1, InvalidOid, sizeof(int32),
															 Int32GetDatum(column->typmod), false, true)),
								 InvalidOid, InvalidOid, COERCE_IMPLICIT_CAST);
}

/* The entry that assigns the timestamp column; if there is none, one of that value is added. */
static TargetEntry *
ts_target(List **targets, const TtlContainer *container, Expr *otherwise)
{
	TargetEntry *added;
	int			before = 0;		/* entries of earlier columns: the planner
								 * wants them in order, and junk last */
	ListCell   *lc;

	foreach(lc, *targets)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (entry->resjunk)
			continue;
		if (entry->resno == container->ts_attno)
			return entry;
		if (entry->resno < container->ts_attno)
			before++;
	}
	added = makeTargetEntry(otherwise, container->ts_attno,
							get_attname(container->relid, container->ts_attno, false), false);
	*targets = list_insert_nth(*targets, before, added);
	return added;
}

/* NULL in the timestamp column */
static Expr *
make_null(const TtlContainer *container)
{
	const TtlColumnType *column = &container->ts_column;

	return (Expr *) makeNullConst(column->type, column->typmod, column->collation);
}

/*
 * Makes an INSERT put the present where it gives NULL, or nothing and the column has no default.
 * The row trigger does so, too, for COPY, but it fires when the row has been routed to a partition.
 */
static List *
complete_targets(List *targets, const TtlContainer *container)
{
	TargetEntry *entry = ts_target(&targets, container, make_null(container));

	if (!ttl_catalog_expr_is_present((Node *) entry->expr) &&
		(!IsA(entry->expr, Const) || castNode(Const, entry->expr)->constisnull))
		entry->expr = make_value(ttl_container_function(TTL_COMPLETE), list_make1(entry->expr), container);
	return targets;
}

/* True if it is the stamp of a statement that Citus has distributed. */
static bool
is_shard_stamp(const Expr *expr)
{
	const FuncExpr *call = (const FuncExpr *) expr;

	if (IsA(expr, FuncExpr) && call->funcid == F_NUMERIC_NUMERIC_INT4)
		return is_shard_stamp(linitial(call->args));
	return IsA(expr, FuncExpr) && call->funcid == ttl_container_function(TTL_SHARD_STAMP);
}

/*
 * Makes the target list assign the stamp.  An assignment of the statement's own
 * is wrapped; if there is none, one of the old value is.
 */
static List *
stamp_targets(List *targets, const TtlContainer *container, Index relation, TtlStampFor purpose)
{
	const TtlColumnType *column = &container->ts_column;
	Expr	   *old = (Expr *) makeVar(relation, container->ts_attno, column->type, column->typmod,
									   column->collation, 0);
	TargetEntry *assignment = ts_target(&targets, container, copyObject(old));

	/*
	 * the node that has distributed the statement has given all copies of the
	 * row the same
	 */
	if (is_shard_stamp(assignment->expr))
		return targets;
	if (purpose == TTL_STAMP_OWN)
		assignment->expr = make_value(ttl_container_function(TTL_STAMP), list_make1(assignment->expr), container);
	else
		assignment->expr = make_value(ttl_container_function(TTL_SHARD_STAMP),
									  list_make3(old, assignment->expr,
												 makeFuncExpr(ttl_container_function(TTL_SHARD_NOW), TIMESTAMPTZOID, NIL,
															  InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL)),
									  container);
	return targets;
}

/*
 * What a MERGE that Citus distributes inserts must be immutable, and the default of the
 * timestamp column isn't.  Where the row is, NULL becomes the present.
 */
static void
complete_distributed(List *targets, const TtlContainer *container)
{
	ListCell   *lc;

	foreach(lc, targets)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (entry->resno == container->ts_attno && ttl_catalog_expr_is_present((Node *) entry->expr))
			entry->expr = make_null(container);
	}
}

/* Has a query that is about to be planned stamp the rows that it updates. */
void
ttl_stamp_query(Query *query)
{
	TtlContainer container;
	TtlStampFor purpose;
	bool		stamps;
	ListCell   *lc;

	/* what modifies rows stands at the top or in WITH there, nowhere else */
	foreach(lc, query->cteList)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

		ttl_stamp_query(castNode(Query, cte->ctequery));
	}

	if (query->resultRelation == 0 ||
		!ttl_container_lookup(rt_fetch(query->resultRelation, query->rtable)->relid, &container) ||
		container.ts_attno == InvalidAttrNumber)
		return;
	purpose = ttl_citus_stamp_for(query, container.relid);

	/*
	 * else the statements on the shards are stamped when they are planned
	 * there
	 */
	stamps = container.policy.touch_on_update && purpose != TTL_STAMP_SHARDS;

	switch (query->commandType)
	{
		case CMD_UPDATE:
			if (stamps)
				query->targetList = stamp_targets(query->targetList, &container,
												  query->resultRelation, purpose);
			break;
		case CMD_INSERT:
			if (purpose == TTL_STAMP_OWN)
				query->targetList = complete_targets(query->targetList, &container);
			if (stamps && query->onConflict != NULL &&
				query->onConflict->action == ONCONFLICT_UPDATE)
				query->onConflict->onConflictSet =
					stamp_targets(query->onConflict->onConflictSet, &container,
								  query->resultRelation, purpose);
			break;
		case CMD_MERGE:
			foreach(lc, query->mergeActionList)
			{
				MergeAction *action = lfirst_node(MergeAction, lc);

				if (action->commandType == CMD_INSERT && purpose != TTL_STAMP_OWN)
					complete_distributed(action->targetList, &container);
				else if (action->commandType == CMD_INSERT)
					action->targetList = complete_targets(action->targetList, &container);
				else if (action->commandType == CMD_UPDATE && stamps)
					action->targetList = stamp_targets(action->targetList, &container,
													   query->resultRelation, purpose);
			}
			break;
		default:
			break;
	}
}

/*
 * The present as a value of the first argument's type.  The last two arguments are the step of
 * such values in microseconds, and their unit if they are numbers; they stay the same.
 */
static Datum
present_of_call(FunctionCallInfo fcinfo, TimestampTz now)
{
	int			step = PG_NARGS() - 2;
	const TtlType *ttl_type = fcinfo->flinfo->fn_extra;

	if (ttl_type == NULL)
	{
		TtlUnit		unit = TTL_UNIT_SECONDS;

		if (!PG_ARGISNULL(step + 1) &&
			!ttl_type_unit_parse(text_to_cstring(PG_GETARG_TEXT_PP(step + 1)), &unit))
			unit = TTL_UNITS;	/* of no type */
		ttl_type = ttl_type_of_clock(get_fn_expr_argtype(fcinfo->flinfo, 0), unit);
		fcinfo->flinfo->fn_extra = unconstify(TtlType *, ttl_type);
	}
	/* users may call these functions, with any arguments */
	if (ttl_type == NULL || PG_ARGISNULL(step) || PG_GETARG_INT64(step) < 1 ||
		PG_GETARG_INT64(step) > TTL_MAX_STEP)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("arguments are not those of a timestamp column")));
	return ttl_type_present(ttl_type->instant == NULL ? NULL : ttl_type, now,
							PG_GETARG_INT64(step));
}

/* The present, or what is assigned, by the argument of that number */
static Datum
stamp(FunctionCallInfo fcinfo, int assigned, TimestampTz now)
{
	if (ttl_execution_touches())
		return present_of_call(fcinfo, now);
	if (PG_ARGISNULL(assigned))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(PG_GETARG_DATUM(assigned));
}

PG_FUNCTION_INFO_V1(ttl_stamp);

/*
 * ttl.stamp(_ts anyelement, step bigint, unit text) -> anyelement
 *
 * The present, or the argument while ttl.touch is off or replicated changes
 * are applied (session_replication_role = replica).  Without time zone it is UTC.
 */
Datum
ttl_stamp(PG_FUNCTION_ARGS)
{
	return stamp(fcinfo, 0, GetCurrentTimestamp());
}

PG_FUNCTION_INFO_V1(ttl_shard_stamp);

/*
 * ttl.shard_stamp(_ts anyelement, assigned anyelement, now timestamptz, step bigint,
 *				   unit text) -> anyelement
 *
 * The same of what the statement assigns, or what is given as the present if it isn't NULL.
 * The first argument is the column, and there for the planner alone.
 */
Datum
ttl_shard_stamp(PG_FUNCTION_ARGS)
{
	return stamp(fcinfo, 1, PG_ARGISNULL(2) ? GetCurrentTimestamp() : PG_GETARG_TIMESTAMPTZ(2));
}

PG_FUNCTION_INFO_V1(ttl_complete);

/*
 * ttl.complete(_ts anyelement, step bigint, unit text) -> anyelement
 *
 * The argument, or the present if it is NULL.
 */
Datum
ttl_complete(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		return present_of_call(fcinfo, GetCurrentTimestamp());
	PG_RETURN_DATUM(PG_GETARG_DATUM(0));
}

PG_FUNCTION_INFO_V1(ttl_shard_now);

/*
 * ttl.shard_now() -> timestamptz
 *
 * The present, as clock_timestamp().
 */
Datum
ttl_shard_now(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(GetCurrentTimestamp());
}
