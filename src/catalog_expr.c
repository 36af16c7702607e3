/*-------------------------------------------------------------------------
 *
 * catalog_expr.c
 *	  Expressions and foreign keys of users, as they stand in the catalogs.
 *
 * The relation cache simplifies the expressions of indexes and partition keys
 * (RelationGetIndexExpressions() and its like), and in doing so it calls the
 * functions in them, as the current user: a superuser who alters another
 * owner's table, say, or the worker.  A function that is declared immutable can contain
 * anything.  So ttl, which only needs the columns and functions of an
 * expression, reads what is stored and evaluates nothing.
 *
 * (Looking up keys does evaluate them, see keys.c: as the inserting user, who
 * is about to do the same by the insertion itself.)
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_partitioned_table.h"
#include "catalog/pg_trigger.h"
#include "catalog_expr.h"
#include "commands/trigger.h"
#include "compat.h"
#include "nodes/parsenodes.h"
#include "nodes/primnodes.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/*
 * A column of type pg_node_tree of a catalog's row.
 */
static Node *
read_tree(int cache, HeapTuple tuple, AttrNumber column)
{
	bool		isnull;
	Datum		stored = SysCacheGetAttr(cache, tuple, column, &isnull);

	return isnull ? NULL : stringToNode(TextDatumGetCString(stored));
}

/*
 * An expression of pg_index (Anum_pg_index_indexprs, a list, or
 * Anum_pg_index_indpred), or NULL if it has none.
 */
Node *
ttl_catalog_expr_index_expression(HeapTuple index, AttrNumber column)
{
	return read_tree(INDEXRELID, index, column);
}

/*
 * The columns that an expression over a table depends on, as all sets here offset by
 * FirstLowInvalidHeapAttributeNumber; a whole row is the columns up to 'natts'.
 */
Bitmapset *
ttl_catalog_expr_columns(Node *expression, int natts)
{
	Bitmapset  *columns = NULL;

	pull_varattnos(expression, 1, &columns);
	if (bms_is_member(0 - FirstLowInvalidHeapAttributeNumber, columns))
		columns = bms_add_range(columns, 1 - FirstLowInvalidHeapAttributeNumber,
								natts - FirstLowInvalidHeapAttributeNumber);
	return columns;
}

/*
 * The columns with these numbers; 0 stands for an expression.
 */
static Bitmapset *
make_columns(const int16 *attnos, int n)
{
	Bitmapset  *columns = NULL;

	for (int i = 0; i < n; i++)
	{
		if (attnos[i] != 0)
			columns = bms_add_member(columns,
									 attnos[i] - FirstLowInvalidHeapAttributeNumber);
	}
	return columns;
}

/* Those that the keys and predicate of an index depend on, given by its row of pg_index */
Bitmapset *
ttl_catalog_expr_index_columns(HeapTuple index, int natts)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(index);
	static const AttrNumber trees[] = {Anum_pg_index_indexprs, Anum_pg_index_indpred};
	Bitmapset  *columns = make_columns(form->indkey.values, form->indnkeyatts);

	for (int i = 0; i < lengthof(trees); i++)
		columns = bms_join(columns,
						   ttl_catalog_expr_columns(ttl_catalog_expr_index_expression(index, trees[i]),
													natts));
	return columns;
}

/* True if it is a unique or exclusion index. */
bool
ttl_catalog_expr_is_key(Form_pg_index index)
{
	return index->indisunique || index->indisexclusion;
}

/* Those of all unique and exclusion indexes of a table */
Bitmapset *
ttl_catalog_expr_key_columns(Relation rel)
{
	Bitmapset  *columns = NULL;
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (ttl_catalog_expr_is_key(index->rd_index))
			columns = bms_join(columns,
							   ttl_catalog_expr_index_columns(index->rd_indextuple,
															  RelationGetNumberOfAttributes(rel)));
		index_close(index, AccessShareLock);
	}
	return columns;
}

/* Those that the partition key of a table depends on */
Bitmapset *
ttl_catalog_expr_partition_columns(Relation rel)
{
	HeapTuple	tuple = SearchSysCache1(PARTRELID, ObjectIdGetDatum(RelationGetRelid(rel)));
	Form_pg_partitioned_table form;
	Bitmapset  *columns;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for partition key of relation %u",
			 RelationGetRelid(rel));
	form = (Form_pg_partitioned_table) GETSTRUCT(tuple);
	columns = make_columns(form->partattrs.values, form->partnatts);
	columns = bms_join(columns,
					   ttl_catalog_expr_columns(read_tree(PARTRELID, tuple,
														  Anum_pg_partitioned_table_partexprs),
												RelationGetNumberOfAttributes(rel)));
	ReleaseSysCache(tuple);
	return columns;
}

/* The argument of a rounding up: date_bin(stride, argument + rest of a stride, origin) */
static const Node *
rounded_up(const FuncExpr *bin)
{
	const OpExpr *sum = lsecond(bin->args);

	return IsA(sum, OpExpr) && sum->opfuncid == F_TIMESTAMPTZ_PL_INTERVAL ? linitial(sum->args) : NULL;
}

/*
 * True if it is the present, as defaults of timestamp columns have it.  ALTER COLUMN ... TYPE may have
 * converted it.
 */
bool
ttl_catalog_expr_is_present(const Node *expression)
{
	while (expression != NULL && IsA(expression, FuncExpr))
	{
		const FuncExpr *call = (const FuncExpr *) expression;

		switch (call->funcid)
		{
			case F_CLOCK_TIMESTAMP:
				return true;
				/* "ts_precision" */
			case F_DATE_BIN_INTERVAL_TIMESTAMPTZ_TIMESTAMPTZ:
				expression = rounded_up(call);
				break;
				/* AT TIME ZONE, where the column is a timestamp */
			case F_TIMEZONE_TEXT_TIMESTAMPTZ:
				expression = lsecond(call->args);
				break;
			case F_TIMESTAMP_TIMESTAMPTZ:
			case F_TIMESTAMPTZ_TIMESTAMP:
			case F_TIMESTAMP_TIMESTAMP_INT4:
			case F_TIMESTAMPTZ_TIMESTAMPTZ_INT4:
				expression = linitial(call->args);
				break;
			default:
				return false;
		}
	}
	return false;
}

/* The action ON DELETE that the trigger carries out, or 0 if it is none. */
static char
action_on_delete(const Trigger *trigger)
{
	switch (trigger->tgfoid)
	{
		case F_RI_FKEY_NOACTION_DEL:
			return FKCONSTR_ACTION_NOACTION;
		case F_RI_FKEY_RESTRICT_DEL:
			return FKCONSTR_ACTION_RESTRICT;
		case F_RI_FKEY_CASCADE_DEL:
			return FKCONSTR_ACTION_CASCADE;
		case F_RI_FKEY_SETNULL_DEL:
			return FKCONSTR_ACTION_SETNULL;
		case F_RI_FKEY_SETDEFAULT_DEL:
			return FKCONSTR_ACTION_SETDEFAULT;
		default:
			return 0;
	}
}

/*
 * The foreign keys that act or look when rows of the table are deleted, as its triggers have them: what no trigger
 * fires for does nothing.  The list outlives a replacement of the relation cache's triggers.
 */
List *
ttl_catalog_referencing(Relation rel)
{
	const TriggerDesc *triggers = rel->trigdesc;
	List	   *keys = NIL;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];
		char		action = action_on_delete(trigger);
		TtlReferencing *key;

		if (action == 0)
			continue;
		key = palloc(sizeof(TtlReferencing));
		key->constraint = trigger->tgconstraint;
		key->table = trigger->tgconstrrelid;
		key->action = action;
		key->fires = trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN || trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
		keys = lappend(keys, key);
	}
	return keys;
}

/* False if there is no such constraint. */
bool
ttl_catalog_foreign_key(Oid constraint, Oid referencing, Oid referenced, TtlForeignKey *key)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));

	if (!HeapTupleIsValid(tuple))
		return false;
	key->constraint = constraint;
	key->referencing = referencing;
	key->referenced = referenced;
	key->is_temporal = TtlConstraintIsTemporal((Form_pg_constraint) GETSTRUCT(tuple));
	DeconstructFkConstraintRow(tuple, &key->nkeys, key->referencing_keys,
							   key->referenced_keys, key->operators,
							   NULL, NULL, NULL, NULL);
	ReleaseSysCache(tuple);
	return true;
}

/* Appends names and values of key columns of the row in the slot, each list with commas. */
void
ttl_catalog_describe_key(TupleTableSlot *slot, Oid table, int nkeys,
						 const AttrNumber *attnos, StringInfo names, StringInfo values)
{
	for (int i = 0; i < nkeys; i++)
	{
		const char *separator = i == 0 ? "" : ", ";
		bool		isnull;
		Datum		value = slot_getattr(slot, attnos[i], &isnull);
		Oid			output;
		bool		is_varlena;

		getTypeOutputInfo(get_atttype(table, attnos[i]), &output, &is_varlena);
		appendStringInfo(names, "%s%s", separator, get_attname(table, attnos[i], false));
		appendStringInfo(values, "%s%s", separator, OidOutputFunctionCall(output, value));
	}
}
