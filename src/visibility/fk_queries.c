/*-------------------------------------------------------------------------
 *
 * fk_queries.c
 *	  Recognizes the queries of PostgreSQL's foreign keys.
 *
 * Queries by which foreign keys act on referencing rows (CASCADE, SET NULL, SET DEFAULT,
 * and the search for rows that forbid a change), and those by which ALTER TABLE
 * validates a foreign key, are recognized by their context, by the relation's owner, whose
 * rights they have, and by their exact shape.  So only the owner could imitate one, in a
 * trigger that an action or a deletion of ours fires, or in a function that ALTER TABLE
 * calls.  The check of the *referenced* side has its operands the other way round,
 * and is an ordinary query here: an expired parent is absent; so is one that stands in
 * for the part of a temporal key that goes.  fk_check.c deletes expired rows
 * that the search would find.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "visibility/visibility.h"

static bool
is_param_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return IsA(node, Param) || expression_tree_walker(node, is_param_walker, context);
}

/* $n OP column, and not column OP $n; either may be wrapped in casts. */
static bool
compares_param_to_column(Node *node)
{
	OpExpr	   *op = (OpExpr *) node;

	return IsA(node, OpExpr) && list_length(op->args) == 2 &&
		is_param_walker(linitial(op->args), NULL) &&
		!contain_var_clause(linitial(op->args)) &&
		contain_var_clause(lsecond(op->args));
}

/*
 * The last condition in the search of a temporal foreign key: that part of the
 * referencing period which goes is not covered by other rows.
 *	 NOT coalesce((column * $n) <@ (SELECT range_agg(r) FROM (SELECT y.period r
 *	   FROM ONLY pk y WHERE $1 = y.key ... FOR KEY SHARE OF y) y2), false)
 */
static bool
is_not_covered(Node *node)
{
	CoalesceExpr *coalesce;
	OpExpr	   *op;

	if (!is_notclause(node))
		return false;
	coalesce = (CoalesceExpr *) get_notclausearg((Expr *) node);
	if (!IsA(coalesce, CoalesceExpr) || list_length(coalesce->args) != 2)
		return false;
	op = linitial(coalesce->args);
	return IsA(op, OpExpr) && list_length(op->args) == 2 &&
		contain_var_clause(linitial(op->args)) && IsA(lsecond(op->args), SubLink);
}

/* CASCADE, SET NULL, SET DEFAULT, or the search for rows that forbid a change */
static bool
is_referential_action(Query *query)
{
	RangeTblEntry *rte;
	Node	   *quals;

	if (!InNoForceRLSOperation() || list_length(query->rtable) != 1 ||
		query->jointree == NULL || list_length(query->jointree->fromlist) != 1 ||
		query->cteList != NIL)
		return false;

	rte = linitial_node(RangeTblEntry, query->rtable);
	if (rte->rtekind != RTE_RELATION ||
		(rte->inh && rte->relkind != RELKIND_PARTITIONED_TABLE) ||
		ttl_container_owner(rte->relid) != GetUserId())
		return false;

	switch (query->commandType)
	{
		case CMD_SELECT:
			if (list_length(query->targetList) != 1 ||
				!IsA(linitial_node(TargetEntry, query->targetList)->expr, Const) ||
				list_length(query->rowMarks) != 1 ||
				linitial_node(RowMarkClause, query->rowMarks)->strength != LCS_FORKEYSHARE)
				return false;
			break;
		case CMD_UPDATE:
		case CMD_DELETE:
			if (query->returningList != NIL)
				return false;
			break;
		default:
			return false;
	}

	quals = query->jointree->quals;
	if (quals == NULL)
		return false;
	if (is_andclause(quals))
	{
		List	   *args = ((BoolExpr *) quals)->args;
		ListCell   *lc;

		foreach(lc, args)
		{
			if (!compares_param_to_column(lfirst(lc)) &&
				!(query->hasSubLinks && query->commandType == CMD_SELECT &&
				  lfirst(lc) == llast(args) && is_not_covered(lfirst(lc))))
				return false;
		}
		return !query->hasSubLinks || is_not_covered(llast(args));
	}
	return !query->hasSubLinks && compares_param_to_column(quals);
}

/*
 * ADD and VALIDATE FOREIGN KEY:
 *	 SELECT fk.x FROM ONLY t fk LEFT JOIN ONLY p pk ON ... WHERE pk.y IS NULL ...
 * DETACH PARTITION of a referenced table:
 *	 SELECT fk.x FROM ONLY t fk JOIN p pk ON ... WHERE ...
 *
 * A function that ALTER TABLE calls could make one like it, so it sees expired
 * rows of the user's own tables only.
 */
bool
ttl_fk_queries_is_validation(Query *query)
{
	JoinExpr   *join;

	if (!ttl_validation_runs() || query->commandType != CMD_SELECT ||
		query->jointree == NULL || list_length(query->jointree->fromlist) != 1 ||
		query->cteList != NIL || query->hasSubLinks || query->rowMarks != NIL)
		return false;
	join = linitial(query->jointree->fromlist);
	return IsA(join, JoinExpr) && IsA(join->larg, RangeTblRef) && IsA(join->rarg, RangeTblRef) &&
		strcmp(rt_fetch(((RangeTblRef *) join->larg)->rtindex, query->rtable)->eref->aliasname, "fk") == 0 &&
		strcmp(rt_fetch(((RangeTblRef *) join->rarg)->rtindex, query->rtable)->eref->aliasname, "pk") == 0;
}

/* ri_triggers.c qualifies operators and puts parameters first; few others do */
bool
ttl_fk_queries_is_spelt_so(const char *query_string)
{
	return query_string != NULL && strstr(query_string, " WHERE $") != NULL &&
		strstr(query_string, " OPERATOR(") != NULL;
}

bool
ttl_fk_queries_is_action(Query *query, const char *query_string)
{
	return is_referential_action(query) && ttl_fk_queries_is_spelt_so(query_string);
}

/*
 * The search for rows that forbid a change; the check of a referenced row begins with its column.
 * A parameter may be cast to the operator's type.
 */
bool
ttl_fk_queries_is_search(const char *query_string)
{
	return strncmp(query_string, "SELECT 1 FROM ", strlen("SELECT 1 FROM ")) == 0 &&
		strstr(query_string, " x WHERE $1") != NULL &&
		strstr(query_string, " FOR KEY SHARE OF x") != NULL;
}

/*
 * What a rule adds to an action has the action's text, and sees the row that is acted on
 * as OLD, expired or not, and live rows otherwise.  The rewriter has put the table that it
 * acts on before the rule's own, of the SELECT if it is one that rows are inserted from.
 */
static void
mark_old(List *rtable)
{
	RangeTblEntry *rte = rtable == NIL ? NULL : linitial_node(RangeTblEntry, rtable);

	if (rte != NULL && rte->rtekind == RTE_RELATION && rte->alias == NULL)
		rte->alias = makeAlias(TTL_STORED, NIL);
}

void
ttl_fk_queries_mark_old(Query *query, const char *text)
{
	ListCell   *lc;

	if (!InNoForceRLSOperation() || query->querySource == QSRC_ORIGINAL ||
		!ttl_fk_queries_is_spelt_so(text) ||
		(strncmp(text, "DELETE FROM ", strlen("DELETE FROM ")) != 0 &&
		 strncmp(text, "UPDATE ", strlen("UPDATE ")) != 0))
		return;
	mark_old(query->rtable);
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_SUBQUERY)
			mark_old(rte->subquery->rtable);
	}
}
