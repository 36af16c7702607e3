/*-------------------------------------------------------------------------
 *
 * ts_column_checks.c
 *	  Uses of the timestamp column that a container can't allow.
 *
 * Errors are 0A000.  Uses are checked when they have come into being.  What is built
 * concurrently is committed by then, so it is checked by name before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "catalog_expr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/*
 * Uses of the timestamp column that don't go together with the clock being
 * reset behind the back of an UPDATE: 0A000.
 */
void
ttl_ts_column_check(Relation rel, bool touch_on_update, AttrNumber ts_attno)
{
	TupleDesc	desc = RelationGetDescr(rel);
	TupleConstr *constr = desc->constr;
	const char *column = NameStr(TupleDescAttr(desc, ts_attno - 1)->attname);
	int			ts = ts_attno - FirstLowInvalidHeapAttributeNumber;
	const char *use = NULL;
	ListCell   *lc;

	for (int i = 0; constr != NULL && i < constr->num_defval; i++)
	{
		AttrDefault *defval = &constr->defval[i];
		Form_pg_attribute generated = TupleDescAttr(desc, defval->adnum - 1);

		if (generated->attgenerated == ATTRIBUTE_GENERATED_STORED &&
			bms_is_member(ts, ttl_catalog_expr_columns(stringToNode(defval->adbin), desc->natts)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("generated column \"%s\" of container \"%s\" cannot be computed from \"%s\"",
							NameStr(generated->attname), RelationGetRelationName(rel), column),
					 errhint("Use ttl.expires_at() in queries instead.")));
	}

	if (!touch_on_update)
		return;

	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE &&
		bms_is_member(ts, ttl_catalog_expr_partition_columns(rel)))
		use = "partition key";
	if (bms_is_member(ts, ttl_catalog_expr_key_columns(rel)))
		use = "unique index";
	foreach(lc, RelationGetFKeyList(rel))
	{
		ForeignKeyCacheInfo *fkey = lfirst_node(ForeignKeyCacheInfo, lc);

		for (int i = 0; i < fkey->nkeys; i++)
		{
			if (fkey->conkey[i] == ts_attno)
				use = "foreign key";
		}
	}
	if (use != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of container \"%s\" cannot be reset by UPDATE because it is part of a %s",
						column, RelationGetRelationName(rel), use),
				 errhint("Use touch_on_update => false to let rows expire by the time of their creation.")));
}

/* The same for a table and all its partitions. */
void
ttl_ts_column_check_all(Oid relid, const TtlPolicy *policy, LOCKMODE lockmode)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, lockmode))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		AttrNumber	ts_attno = get_attnum(lfirst_oid(lc), NameStr(policy->ts_column));

		if (ts_attno != InvalidAttrNumber)
			ttl_ts_column_check(rel, policy->touch_on_update, ts_attno);
		table_close(rel, NoLock);
	}
}

/* A table, and a column of it that an expression may use */
typedef struct ColumnUse
{
	const char *table;
	const char *column;
} ColumnUse;

/*
 * Does an expression, not analyzed yet, use the column?  All columns do if it
 * takes the row as a whole.
 */
static bool
uses_column(Node *node, void *context)
{
	ColumnUse  *use = context;

	if (node == NULL)
		return false;
	if (IsA(node, ColumnRef))
	{
		Node	   *last = llast(((ColumnRef *) node)->fields);

		return !IsA(last, String) || strcmp(strVal(last), use->column) == 0 ||
			strcmp(strVal(last), use->table) == 0;
	}
	return raw_expression_tree_walker(node, uses_column, context);
}

void
ttl_ts_column_check_index(IndexStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	TtlContainer container;
	ColumnUse	use;
	bool		is_used;
	ListCell   *lc;

	if (!stmt->concurrent || !stmt->unique || !OidIsValid(relid) ||
		!ttl_container_peek(relid, &container) ||
		container.lacks_column ||
		container.ts_attno == InvalidAttrNumber || !container.touch_on_update)
		return;
	use.table = stmt->relation->relname;
	use.column = get_attname(relid, container.ts_attno, false);
	is_used = uses_column(stmt->whereClause, &use);
	foreach(lc, stmt->indexParams)
	{
		IndexElem  *element = lfirst_node(IndexElem, lc);

		is_used = is_used || uses_column(element->expr, &use) ||
			(element->name != NULL && strcmp(element->name, use.column) == 0);
	}
	if (is_used)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of container \"%s\" cannot be part of a unique index",
						use.column, get_rel_name(container.container)),
				 errhint("Use ttl.alter_container(..., touch_on_update => false) to let rows expire by the time of their creation.")));
}

/*
 * Uses of _ts are checked when they have come into being.  What is built
 * concurrently is committed by then, so it is checked by name before.
 */
void
ttl_ts_column_check_table(Oid relid)
{
	TtlContainer container;
	Relation	rel;

	if (!OidIsValid(relid) || !ttl_container_peek(relid, &container) ||
		container.lacks_column || container.ts_attno == InvalidAttrNumber)
		return;
	rel = table_open(relid, AccessShareLock);
	ttl_ts_column_check(rel, container.touch_on_update, container.ts_attno);
	table_close(rel, NoLock);
}
