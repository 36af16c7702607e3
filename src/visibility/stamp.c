/*-------------------------------------------------------------------------
 *
 * stamp.c
 *	  UPDATE resets the clock: `_ts` in UPDATE, ON CONFLICT and MERGE.
 *
 * Before a query is planned, each UPDATE of a container in it gets the
 * assignment  _ts = ttl.stamp(what it would be otherwise), be it alone, in a
 * CTE, as the action of ON CONFLICT or of MERGE.  ttl.stamp() decides when the
 * plan runs, so ttl.touch and session_replication_role need no replanning.
 * The assignment isn't in updatedCols: it needs no privilege, and
 * triggers on UPDATE OF _ts don't fire.  A row trigger would do the same at
 * 1.3 to 1.7 times the cost of a bulk update.
 *
 * Citus takes no UPDATE with a function that isn't immutable, not even of a table of its
 * own node that reads others; what it plans is stamped by ttl.shard_stamp(), which is
 * labelled so.  It isn't called by the planner because a column is among its arguments.
 * Where a row has copies on several nodes, UPDATE gives them one stamp: there Citus takes
 * a stable function without a column, too.
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
#include "citus/citus.h"
#include "commands/trigger.h"
#include "compat.h"
#include "container/container.h"
#include "fmgr.h"
#include "guc.h"
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

/* Is it the stamp of a statement that Citus has distributed? */
static bool
is_shard_stamp(const Expr *expr)
{
	const TtlObjects *objects = ttl_container_require_objects();
	const FuncExpr *call = (const FuncExpr *) expr;

	return IsA(expr, FuncExpr) &&
		(call->funcid == objects->shard_stamp[0] || call->funcid == objects->shard_stamp[1] ||
		 ((call->funcid == F_TIMESTAMPTZ_TIMESTAMPTZ_INT4 ||
		   call->funcid == F_TIMESTAMP_TIMESTAMP_INT4) && is_shard_stamp(linitial(call->args))));
}

/* Where the rows of the container are */
typedef enum StampFor
{
	STAMP_OWN,					/* in its own table */
	STAMP_SHARDS,				/* in a statement that Citus plans */
	STAMP_COPIES				/* in several copies, which have to agree */
} StampFor;

/*
 * Makes the target list assign the stamp.  An assignment of the statement's own
 * is wrapped; if there is none, one of the old value is.
 */
static List *
stamp_targets(List *targets, const TtlContainer *container, Index relation, StampFor purpose)
{
	const TtlObjects *objects = ttl_container_require_objects();
	TargetEntry *assignment = NULL;
	int			nassignments = 0;
	int			n;
	Oid			type;
	int32		typmod;
	Oid			collation;
	Expr	   *old;
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
	old = (Expr *) makeVar(relation, container->ts_attno, type, typmod, collation, 0);
	n = type == TIMESTAMPTZOID ? 0 : 1;
	if (assignment == NULL)
	{
		assignment = makeTargetEntry(copyObject(old), container->ts_attno,
									 get_attname(container->relid, container->ts_attno, false),
									 false);
		/* junk entries stay last */
		targets = list_insert_nth(targets, nassignments, assignment);
	}
	else if (is_shard_stamp(assignment->expr))
		return targets;
	if (purpose == STAMP_OWN)
		assignment->expr = (Expr *) makeFuncExpr(objects->stamp[n], type,
												 list_make1(assignment->expr),
												 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	else
	{
		Expr	   *now = purpose == STAMP_COPIES ?
		(Expr *) makeFuncExpr(objects->shard_now, TIMESTAMPTZOID, NIL,
							  InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL) :
		(Expr *) makeNullConst(TIMESTAMPTZOID, -1, InvalidOid);

		assignment->expr = (Expr *) makeFuncExpr(objects->shard_stamp[n], type,
												 list_make3(old, assignment->expr, now),
												 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	}
	assignment->expr = scale(assignment->expr, type, typmod);
	return targets;
}

/* The source of a MERGE, by any column of it that decides what matches */
static Var *
column_of_source(const Query *query)
{
	List	   *columns = list_concat(pull_vars_of_level((Node *) query->jointree, 0),
									  pull_vars_of_level(TTL_MERGE_CONDITION(query), 0));
	ListCell   *lc;

	foreach(lc, columns)
	{
		if (((Var *) lfirst(lc))->varno != query->resultRelation)
			return lfirst(lc);
	}
	return NULL;
}

static Node *
replace_clock(Node *node, void *source)
{
	if (node != NULL && IsA(node, FuncExpr) && ((FuncExpr *) node)->funcid == F_CLOCK_TIMESTAMP)
		return (Node *) makeFuncExpr(ttl_container_require_objects()->shard_clock, TIMESTAMPTZOID,
									 list_make1(copyObject((Var *) source)),
									 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
	return node == NULL ? NULL : expression_tree_mutator(node, replace_clock, source);
}

/*
 * What a MERGE that Citus distributes inserts must be immutable, and the default of the
 * timestamp column isn't.
 */
static void
complete_distributed(MergeAction *action, const Query *query, const TtlContainer *container)
{
	Var		   *source = column_of_source(query);
	ListCell   *lc;

	foreach(lc, action->targetList)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (entry->resno == container->ts_attno && source != NULL)
			entry->expr = (Expr *) replace_clock((Node *) entry->expr, source);
	}
}

/* query_tree_walker */
static bool
reads_distributed(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
		return ((RangeTblEntry *) node)->rtekind == RTE_RELATION &&
			ttl_citus_is_distributed(((RangeTblEntry *) node)->relid);
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, reads_distributed, context,
								 QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, reads_distributed, context);
}

/* Does Citus plan it: is any table of it distributed, be it not the target? */
static bool
plans_citus(Query *query)
{
	return ttl_citus_is_here() && reads_distributed((Node *) query, NULL);
}

void
ttl_stamp_query(Query *query)
{
	TtlContainer container;
	StampFor	purpose = STAMP_OWN;
	ListCell   *lc;

	foreach(lc, query->cteList)
	{
		CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

		ttl_stamp_query(castNode(Query, cte->ctequery));
	}

	if (query->resultRelation == 0 ||
		!ttl_container_lookup(rt_fetch(query->resultRelation, query->rtable)->relid, &container) ||
		container.ts_attno == InvalidAttrNumber || container.ts_type != NULL)
		return;
	if (plans_citus(query))
		purpose = STAMP_SHARDS;

	switch (query->commandType)
	{
		case CMD_UPDATE:
			if (container.touch_on_update)
				query->targetList = stamp_targets(query->targetList, &container,
												  query->resultRelation,
												  ttl_citus_has_copies(container.relid) ?
												  STAMP_COPIES : purpose);
			break;
		case CMD_INSERT:
			if (purpose == STAMP_OWN)
				complete_targets(query->targetList, &container);
			if (container.touch_on_update && query->onConflict != NULL &&
				query->onConflict->action == ONCONFLICT_UPDATE)
				query->onConflict->onConflictSet =
					stamp_targets(query->onConflict->onConflictSet, &container,
								  query->resultRelation, purpose);
			break;
		case CMD_MERGE:
			foreach(lc, query->mergeActionList)
			{
				MergeAction *action = lfirst_node(MergeAction, lc);

				if (action->commandType == CMD_INSERT && purpose != STAMP_OWN)
					complete_distributed(action, query, &container);
				else if (action->commandType == CMD_INSERT)
					complete_targets(action->targetList, &container);
				else if (action->commandType == CMD_UPDATE && container.touch_on_update)
					action->targetList = stamp_targets(action->targetList, &container,
													   query->resultRelation, purpose);
			}
			break;
		default:
			break;
	}
}

/* The present, or what is assigned, by the argument of that number */
static Datum
stamp(FunctionCallInfo fcinfo, int assigned, TimestampTz now)
{
	if (ttl_guc_touch && SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA)
		PG_RETURN_TIMESTAMPTZ(now);
	if (PG_ARGISNULL(assigned))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(PG_GETARG_TIMESTAMPTZ(assigned));
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
	return stamp(fcinfo, 0, GetCurrentTimestamp());
}

PG_FUNCTION_INFO_V1(ttl_shard_stamp);

/*
 * ttl.shard_stamp(_ts timestamptz, assigned timestamptz, now timestamptz) -> timestamptz
 *
 * The same of what the statement assigns, or what is given as the present if it isn't NULL.
 * The first argument is the column, and there for the planner alone.
 */
Datum
ttl_shard_stamp(PG_FUNCTION_ARGS)
{
	return stamp(fcinfo, 1, PG_ARGISNULL(2) ? GetCurrentTimestamp() : PG_GETARG_TIMESTAMPTZ(2));
}

PG_FUNCTION_INFO_V1(ttl_shard_clock);

/*
 * ttl.shard_clock("column" "any") -> timestamptz
 * ttl.shard_now() -> timestamptz
 *
 * The present, as clock_timestamp().
 */
Datum
ttl_shard_clock(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(GetCurrentTimestamp());
}
