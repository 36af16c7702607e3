/*-------------------------------------------------------------------------
 *
 * hide.c
 *	  Puts a filter on each base relation that is a container.
 *
 * The hook is called when the planner has made a base relation, of whatever
 * query it is planning: subqueries, views, inlined functions, the target of
 * UPDATE, DELETE and MERGE all end up as base relations.  The restriction
 * ttl.is_live(container, _ts, ttl) is appended to the relation's own, below
 * every join; so an outer join null-extends by itself.  Partitions inherit it
 * from their parent as they do other restrictions.
 *
 * One kind of relation would lose it: an arm of a flattened UNION ALL is a
 * member whose parent is a subquery, and gets its restrictions from there when
 * this hook is over.  What stands in the range table entry's securityQuals is
 * added to those, so that is where it goes.
 *
 * The planner orders quals by cost, and would run a cheap function of the
 * user's on expired rows before it throws them out; so the filter is moved to
 * the head of each scan's quals when the plan is done.
 *
 * Not hidden from: the queries by which foreign keys act on referencing rows
 * (CASCADE, SET NULL, SET DEFAULT, and the search for rows that forbid a
 * change), nor from those by which ALTER TABLE validates a foreign key.  They
 * must see every stored row, or leave orphans.  Such a query is known by its
 * context, by the relation's owner, whose rights it has, and by its exact shape;
 * so nobody but the owner could imitate one, in a trigger that an action or a
 * deletion of ours fires, or in a function that ALTER TABLE calls.  The check of
 * the *referenced* side has its operands the other way round, and is filtered: an
 * expired parent is absent; so is one that stands in for the part of a temporal
 * key that goes.  foreign_key.c sees to it that the search finds no expired rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "optimizer/restrictinfo.h"
#include "parser/parsetree.h"
#include "replication/walsender.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "visibility/visibility.h"

static build_simple_rel_hook_type prev_build_simple_rel_hook = NULL;

TtlPlanning *ttl_hide_planning = NULL;

/*
 * Foreign keys
 */

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
 * What the search of a temporal foreign key asks in addition: is that part of the
 * referencing period which goes, covered by other rows?
 *	 NOT coalesce((column * $n) <@ (SELECT range_agg(r) FROM (SELECT y.period r
 *	   FROM ONLY pk y WHERE $1 = y.key ... FOR KEY SHARE OF y) y2), false)
 */
static bool
asks_for_cover(Node *node)
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
				  lfirst(lc) == llast(args) && asks_for_cover(lfirst(lc))))
				return false;
		}
		return !query->hasSubLinks || asks_for_cover(llast(args));
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
ttl_hide_is_validation(Query *query)
{
	JoinExpr   *join;

	if (!ttl_container_is_validating() || query->commandType != CMD_SELECT ||
		query->jointree == NULL || list_length(query->jointree->fromlist) != 1 ||
		query->cteList != NIL || query->hasSubLinks || query->rowMarks != NIL)
		return false;
	join = linitial(query->jointree->fromlist);
	return IsA(join, JoinExpr) && IsA(join->larg, RangeTblRef) && IsA(join->rarg, RangeTblRef) &&
		strcmp(rt_fetch(((RangeTblRef *) join->larg)->rtindex, query->rtable)->eref->aliasname, "fk") == 0 &&
		strcmp(rt_fetch(((RangeTblRef *) join->rarg)->rtindex, query->rtable)->eref->aliasname, "pk") == 0;
}

bool
ttl_hide_is_referential(Query *query, const char *query_string)
{
	/* ri_triggers.c spells parameters and operators out; few people do */
	return is_referential_action(query) && query_string != NULL &&
		strstr(query_string, " WHERE $") != NULL &&
		strstr(query_string, " OPERATOR(") != NULL;
}

/*
 * The filter
 */

/* function(container, _ts, ttl) over the relation of that index */
static Expr *
make_filter(Oid function, const TtlContainer *container, Index relid)
{
	Oid			type;
	int32		typmod;
	Oid			collation;
	Expr	   *constant;
	Expr	   *ts;
	Expr	   *own;

	constant = (Expr *) makeConst(REGCLASSOID, -1, InvalidOid, sizeof(Oid),
								  ObjectIdGetDatum(container->container), false, true);
	get_atttypetypmodcoll(container->relid, container->ts_attno, &type, &typmod, &collation);
	ts = (Expr *) makeVar(relid, container->ts_attno, type, typmod, collation, 0);

	if (container->ttl_attno == InvalidAttrNumber)
		own = (Expr *) makeNullConst(INT4OID, -1, InvalidOid);
	else
	{
		get_atttypetypmodcoll(container->relid, container->ttl_attno, &type, &typmod, &collation);
		own = (Expr *) makeVar(relid, container->ttl_attno, type, typmod, collation, 0);
		if (type == INT2OID)
			own = (Expr *) makeFuncExpr(F_INT4_INT2, INT4OID, list_make1(own),
										InvalidOid, InvalidOid, COERCE_IMPLICIT_CAST);
	}

	return (Expr *) makeFuncExpr(function, BOOLOID,
								 list_make3(constant, ts, own),
								 InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

/* Is it the table that an action of a foreign key has acted on, in a rule's query? */
static bool
is_acted_on(RangeTblEntry *entry)
{
	return InNoForceRLSOperation() && entry->alias != NULL &&
		strcmp(entry->alias->aliasname, TTL_STORED) == 0 &&
		ttl_container_owner(entry->relid) == GetUserId();
}

/* Is it one whose expired rows a deletion of ours looks for? */
static bool
is_doomed(RangeTblEntry *entry)
{
	return ttl_hide_planning->deletes && entry->alias != NULL &&
		strcmp(entry->alias->aliasname, TTL_DOOMED) == 0 &&
		ttl_container_owner(entry->relid) == GetUserId();
}

/* Is the relation an arm of a UNION ALL that has been made an append relation? */
static bool
is_union_arm(PlannerInfo *root, RelOptInfo *rel)
{
	AppendRelInfo *appinfo;

	if (rel->reloptkind != RELOPT_OTHER_MEMBER_REL || root->append_rel_array == NULL)
		return false;
	appinfo = root->append_rel_array[rel->relid];
	return appinfo != NULL &&
		root->simple_rte_array[appinfo->parent_relid]->rtekind == RTE_SUBQUERY;
}

static void
hide_expired(TTL_BUILD_SIMPLE_REL_PARAMETERS)
{
	RangeTblEntry *entry = TTL_BUILD_SIMPLE_REL_RTE;
	bool		is_arm;
	TtlContainer container;
	Expr	   *filter;

	if (prev_build_simple_rel_hook)
		prev_build_simple_rel_hook(TTL_BUILD_SIMPLE_REL_ARGUMENTS);

	/* No jointree: utility commands plan by way of an empty query. */
	if (entry->rtekind != RTE_RELATION || root->parse->jointree == NULL ||
		ttl_hide_planning == NULL ||
		(ttl_hide_planning->sees_stored && root->query_level == 1))
		return;
	is_arm = is_union_arm(root, rel);
	if ((rel->reloptkind != RELOPT_BASEREL && !is_arm) || is_acted_on(entry) ||
		!ttl_container_lookup(entry->relid, &container) ||
		(ttl_hide_planning->validates &&
		 has_privs_of_role(GetUserId(), ttl_container_owner(entry->relid))))
		return;

	filter = make_filter(is_doomed(entry) ? ttl_container_require_objects()->is_expired :
						 ttl_container_require_objects()->is_live,
						 &container, rel->relid);
	if (is_arm)
	{
		entry->securityQuals = lappend(entry->securityQuals, list_make1(filter));
		root->qual_security_level = Max(root->qual_security_level,
										list_length(entry->securityQuals));
	}
	else
	{
		rel->baserestrictinfo = lappend(rel->baserestrictinfo,
										TtlMakeRestrictInfo(root, filter, rel->relids));
		rel->baserestrict_min_security = 0;
	}
	ttl_hide_planning->hides = true;

	/* it sees all stored rows, and a worker doesn't know that it is one's */
	if (am_db_walsender)
		root->glob->parallelModeOK = false;
}

/*
 * First of all quals
 */

static bool
is_filter(Node *node)
{
	return IsA(node, FuncExpr) &&
		(((FuncExpr *) node)->funcid == ttl_container_require_objects()->is_live ||
		 ((FuncExpr *) node)->funcid == ttl_container_require_objects()->is_expired);
}

static List *
filter_first(List *quals)
{
	ListCell   *lc;

	foreach(lc, quals)
	{
		Node	   *qual = lfirst(lc);

		if (is_filter(qual))
			return lcons(qual, list_delete_cell(quals, lc));
	}
	return quals;
}

static void
put_first(Plan *plan)
{
	List	   *children = NIL;
	ListCell   *lc;

	if (plan == NULL)
		return;

	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
			plan->qual = filter_first(plan->qual);
			break;
		case T_SubqueryScan:
			put_first(((SubqueryScan *) plan)->subplan);
			break;
		case T_Append:
			children = ((Append *) plan)->appendplans;
			break;
		case T_MergeAppend:
			children = ((MergeAppend *) plan)->mergeplans;
			break;
		case T_CustomScan:
			plan->qual = filter_first(plan->qual);
			children = ((CustomScan *) plan)->custom_plans;
			break;
		default:
			break;
	}
	foreach(lc, children)
		put_first(lfirst(lc));
	put_first(plan->lefttree);
	put_first(plan->righttree);
}

void
ttl_hide_put_first(PlannedStmt *stmt)
{
	ListCell   *lc;

	put_first(stmt->planTree);
	foreach(lc, stmt->subplans)
		put_first(lfirst(lc));
}

void
ttl_hide_init(void)
{
	prev_build_simple_rel_hook = build_simple_rel_hook;
	build_simple_rel_hook = hide_expired;
}
