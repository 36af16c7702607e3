/*-------------------------------------------------------------------------
 *
 * expiry_index.c
 *	  The expiry indexes: what they are, and which a table has.
 *
 * The expiry indexes hold each row that can expire once, by its expiry:
 *
 *	  default   (_ts) WHERE ttl IS NULL           key + default TTL = expiry
 *	  item      (ttl.item_expiry(_ts, ttl))
 *	              WHERE ttl > 0                   key = expiry
 *
 * Where a column holds numbers or dates that are instants, ttl.instant() of it takes
 * its place, but for the key, which is the column.  Where a value without a meaning counts as
 * NULL, ttl.item_ttl(ttl) takes the place of ttl.  Where the column holds deadlines, item is
 * (ttl), of which a user may have one already; it may leave out NULLs.
 *
 * They are btrees, and recognized by their definition, not by name or OID: an equal index
 * made beforehand (concurrently, say) serves, and so do those that a restored
 * dump creates.  An invalid one doesn't count: what a failed CREATE INDEX
 * CONCURRENTLY or REINDEX CONCURRENTLY leaves behind, or one that a partition
 * hasn't been attached to.  Without an index that it needs a walk goes on, but
 * says that it is incomplete: nothing found doesn't mean then that nothing has
 * expired.
 *
 * What has been found is cached with the table's container (container.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "catalog_expr.h"
#include "commands/defrem.h"
#include "container/container.h"
#include "expiry/expiry_private.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* The type of a btree's keys; NULL if they are timestamps */
const TtlType *
ttl_expiry_index_key_type(const TtlContainer *container, TtlExpiryIndex index)
{
	if (index != TTL_INDEX_ITEM)
		return container->ts_type;
	return ttl_type_is_deadline(container->ttl_type) && container->ttl_type->instant != NULL ?
		container->ttl_type : NULL;
}

/* Makes a scan key for the first column of an index. */
static void
init_key(ScanKey key, StrategyNumber strategy, Oid subtype, RegProcedure operator, Datum value)
{
	ScanKeyEntryInitialize(key, 0, 1, strategy, subtype, InvalidOid, operator, value);
}

int
ttl_expiry_index_keys(const TtlContainer *container, TtlExpiryIndex index,
					  TimestampTz after, TimestampTz last, ScanKey keys)
{
	const TtlType *ttl_type = ttl_expiry_index_key_type(container, index);

	if (ttl_type == NULL)
	{
		init_key(&keys[0], BTLessEqualStrategyNumber, InvalidOid, F_TIMESTAMPTZ_LE,
				 TimestampTzGetDatum(last));
		if (after == DT_NOBEGIN)
			return 1;
		init_key(&keys[1], BTGreaterStrategyNumber, InvalidOid, F_TIMESTAMPTZ_GT,
				 TimestampTzGetDatum(after));
		return 2;
	}
	init_key(&keys[0], BTLessEqualStrategyNumber, ttl_type->last_type, ttl_type->le,
			 ttl_type->last(last, ttl_type->unit));
	/* numbers below the range of instants have no meaning */
	if (ttl_type->unit != TTL_UNIT_SECONDS)
		after = Max(after, TTL_FIRST_INSTANT - 1);
	if (after == DT_NOBEGIN)
		return 1;
	init_key(&keys[1], BTGreaterStrategyNumber, ttl_type->last_type, ttl_type->gt,
			 ttl_type->last(after, ttl_type->unit));
	return 2;
}

/*
 * Their definitions, as expressions.  What is stored in pg_index is compared with them, so they
 * are what parse analysis makes of the same text; but no name is looked up, and so no
 * search_path and no privilege of the current user matters.
 */

/*
 * A column of the container, or the instant that its value stands for if it has a type of numbers
 * or dates that are instants.
 */
Expr *
ttl_expiry_make_column(const TtlContainer *container, Index varno, AttrNumber attno,
					   const TtlType *ttl_type)
{
	TtlFunction instant = TTL_INSTANT_OF_DATE;
	const TtlColumnType *type = attno == container->ts_attno ? &container->ts_column : &container->ttl_column;
	Oid			collation;
	Expr	   *column;
	List	   *args;

	column = (Expr *) makeVar(varno, attno, type->type, type->typmod, type->collation, 0);
	if (ttl_type == NULL || ttl_type->instant == NULL)
		return column;
	args = list_make1(column);
	collation = InvalidOid;
	if (ttl_type->unit != TTL_UNIT_SECONDS)
	{
		instant = TTL_INSTANT;
		collation = DEFAULT_COLLATION_OID;
		args = lappend(args, makeConst(TEXTOID, -1, collation, -1,
									   CStringGetTextDatum(ttl_type_unit_name(ttl_type->unit)),
									   false, false));
	}
	return (Expr *) makeFuncExpr(ttl_container_function(instant), TIMESTAMPTZOID, args,
								 InvalidOid, collation, COERCE_EXPLICIT_CALL);
}

/* argument IS NULL, or IS NOT NULL */
static Expr *
make_null_test(Expr *arg, NullTestType type)
{
	NullTest   *test = makeNode(NullTest);

	test->arg = arg;
	test->nulltesttype = type;
	test->location = -1;
	return (Expr *) test;
}

/* argument > 0, of an integer */
static Expr *
make_is_positive(Expr *arg)
{
	Oid			operator = get_opfamily_member(INTEGER_BTREE_FAM_OID, exprType((Node *) arg),
											   INT4OID, BTGreaterStrategyNumber);

	return make_opclause(operator, BOOLOID, false, arg,
						 (Expr *) makeConst(INT4OID, -1, InvalidOid, sizeof(int32),
											Int32GetDatum(0), false, true),
						 InvalidOid, InvalidOid);
}

/* ttl.item_expiry(_ts, ttl) */
static Expr *
make_item_expiry(Expr *ts, Expr *own)
{
	if (exprType((Node *) own) == INT2OID)
		own = (Expr *) makeFuncExpr(F_INT4_INT2, INT4OID, list_make1(own), InvalidOid, InvalidOid,
									COERCE_IMPLICIT_CAST);
	return (Expr *) makeFuncExpr(ttl_container_function(exprType((Node *) ts) == TIMESTAMPOID ?
														TTL_ITEM_EXPIRY_UTC : TTL_ITEM_EXPIRY),
								 TIMESTAMPTZOID, list_make2(ts, own), InvalidOid, InvalidOid,
								 COERCE_EXPLICIT_CALL);
}

/* An index on (key) WHERE predicate, without predicate if that is NULL */
typedef struct IndexDefinition
{
	Expr	   *key;
	Expr	   *predicate;
	Expr	   *or_predicate;	/* another one that will do, or NULL */
} IndexDefinition;

/* False if a container with these columns has no such index. */
static bool
define_index(Relation rel, const TtlPolicy *policy, TtlExpiryIndex index,
			 IndexDefinition *definition)
{
	TtlContainer container;
	Expr	   *column = NULL;
	Expr	   *own = NULL;

	ttl_container_find_columns(RelationGetRelid(rel), policy, &container);
	if (!ttl_expiry_index_is_due(&container, index))
		return false;

	memset(definition, 0, sizeof(IndexDefinition));
	if (container.ttl_type != NULL)
	{
		column = ttl_expiry_make_column(&container, 1, container.ttl_attno, NULL);
		own = ttl_expiry_make_column(&container, 1, container.ttl_attno, container.ttl_type);

		/*
		 * what has no meaning counts as NULL, and may be stored in these
		 * types
		 */
		if (!container.ttl_type->is_strict && !ttl_type_is_deadline(container.ttl_type))
			own = (Expr *) makeFuncExpr(ttl_container_function(TTL_ITEM_TTL), INT4OID,
										list_make1(own), InvalidOid, InvalidOid,
										COERCE_EXPLICIT_CALL);
	}
	if (index == TTL_INDEX_DEFAULT)
	{
		definition->key = ttl_expiry_make_column(&container, 1, container.ts_attno, NULL);
		definition->predicate = own == NULL ? NULL : make_null_test(own, IS_NULL);
	}
	else if (ttl_type_is_deadline(container.ttl_type))
	{
		definition->key = column;
		definition->or_predicate = make_null_test(column, IS_NOT_NULL);
	}
	else
	{
		definition->key = make_item_expiry(ttl_expiry_make_column(&container, 1, container.ts_attno,
																  container.ts_type), own);
		definition->predicate = make_is_positive(own);
	}
	return true;
}

/*
 * The definition of an expiry index, as CREATE INDEX takes it after the table's name.  NULL if
 * a container with these columns has no such index.
 */
char *
ttl_expiry_index_sql(Relation rel, const TtlPolicy *policy, TtlExpiryIndex index)
{
	List	   *context = deparse_context_for(RelationGetRelationName(rel), RelationGetRelid(rel));
	IndexDefinition definition;
	char	   *key;

	if (!define_index(rel, policy, index, &definition))
		return NULL;
	key = deparse_expression((Node *) definition.key, context, false, false);
	return definition.predicate == NULL ? psprintf("(%s)", key) :
		psprintf("(%s) WHERE %s", key,
				 deparse_expression((Node *) definition.predicate, context, false, false));
}

/* True if the index is a btree, and is still there. */
static bool
is_btree(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;			/* dropped meanwhile */
	result = ((Form_pg_class) GETSTRUCT(tuple))->relam == BTREE_AM_OID;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * True if the operator class is the default of that type.  PostgreSQL's own look-up of a type's default reads all
 * classes of btree, when a session needs it first.
 */
static bool
is_default_class(Oid opclass, Oid type)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));
	Form_pg_opclass form;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;			/* dropped meanwhile */
	form = (Form_pg_opclass) GETSTRUCT(tuple);
	result = form->opcdefault && form->opcintype == type;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * True if the index of that row of pg_index has these, and only these, key and
 * predicate, in the usual order.
 */
static bool
index_equals(HeapTuple index, const IndexDefinition *definition)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(index);
	bool		isnull;
	Datum		classes = SysCacheGetAttr(INDEXRELID, index, Anum_pg_index_indclass, &isnull);
	Datum		options = SysCacheGetAttr(INDEXRELID, index, Anum_pg_index_indoption, &isnull);
	const Expr *key = definition->key;
	Node	   *predicate;

	/* an included column would take the index along when it is dropped */
	if (!is_btree(form->indexrelid) || form->indnatts != 1 ||
		!form->indislive || ((int2vector *) DatumGetPointer(options))->values[0] != 0)
		return false;

	if (!is_default_class(((oidvector *) DatumGetPointer(classes))->values[0], exprType((const Node *) key)))
		return false;
	if (IsA(key, Var))
	{
		if (form->indkey.values[0] != ((const Var *) key)->varattno)
			return false;
	}
	else if (form->indkey.values[0] != 0 ||
			 !equal(ttl_catalog_expr_index_expression(index, Anum_pg_index_indexprs),
					list_make1(unconstify(Expr *, key))))
		return false;

	predicate = ttl_catalog_expr_index_expression(index, Anum_pg_index_indpred);
	return equal(predicate, definition->predicate) ||
		(definition->or_predicate != NULL && equal(predicate, definition->or_predicate));
}

/*
 * An index of the relation that equals the definition, valid or not, but for
 * those in the list 'except'.  No index is opened, for that would wait for
 * its lock; a reader may hold a lock that the other session waits for.
 */
static Oid
find_index(Relation rel, const TtlPolicy *policy, TtlExpiryIndex kind, bool valid,
		   const List *except)
{
	IndexDefinition definition;
	Oid			found = InvalidOid;
	ListCell   *lc;

	if (!define_index(rel, policy, kind, &definition))
		return InvalidOid;
	foreach(lc, RelationGetIndexList(rel))
	{
		HeapTuple	index;

		if (list_member_oid(except, lfirst_oid(lc)))
			continue;
		index = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));
		if (!HeapTupleIsValid(index))
			continue;			/* dropped concurrently */
		if (((Form_pg_index) GETSTRUCT(index))->indisvalid == valid &&
			index_equals(index, &definition))
			found = lfirst_oid(lc);
		ReleaseSysCache(index);
		if (OidIsValid(found))
			break;
	}
	return found;
}

/*
 * The usable indexes of the relation that equal the definitions, but for those
 * in the list 'except', and which ones it needs.
 */
void
ttl_expiry_find_indexes(Relation rel, const TtlPolicy *policy, const List *except,
						TtlExpiryIndexes *indexes)
{
	TtlContainer container;

	ttl_container_find_columns(RelationGetRelid(rel), policy, &container);
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		indexes->needed[i] = ttl_expiry_index_is_due(&container, i);
		indexes->usable[i] = find_index(rel, policy, i, true, except);
	}
}

/* NULL if it has been dropped as a container since it was looked up */
static void *
derive_indexes(Relation rel, Size *size)
{
	TtlExpiryIndexes *indexes = palloc(sizeof(TtlExpiryIndexes));
	TtlContainer container;

	if (!ttl_container_peek(RelationGetRelid(rel), &container))
		return NULL;
	ttl_expiry_find_indexes(rel, &container.policy, NIL, indexes);
	*size = sizeof(TtlExpiryIndexes);
	return indexes;
}

/*
 * The expiry indexes of a relation; the caller holds a lock on it.  False if it has been dropped as
 * a container since it was looked up.
 */
bool
ttl_expiry_indexes(Relation rel, TtlExpiryIndexes *indexes)
{
	const TtlExpiryIndexes *derived =
	ttl_container_derive(rel, TTL_DERIVED_EXPIRY_INDEXES, derive_indexes);

	if (derived == NULL)
		return false;
	*indexes = *derived;
	return true;
}

/*
 * Locks the expiry indexes of a relation for reading until the transaction ends, if that needs no wait: ALTER
 * INDEX ... SET TABLESPACE may have one for hours, and without the table.
 */
bool
ttl_expiry_lock_indexes(Relation rel)
{
	TtlExpiryIndexes indexes;

	if (!ttl_expiry_indexes(rel, &indexes))
		return false;
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (OidIsValid(indexes.usable[i]) &&
			!ConditionalLockRelationOid(indexes.usable[i], AccessShareLock))
			return false;
	}
	return true;
}

/*
 * What is wrong with them
 */

/* Errors (55000) if there is an invalid index that equals the definition. */
static void
refuse_unusable(Relation rel, const TtlPolicy *policy, TtlExpiryIndex kind)
{
	Oid			index = find_index(rel, policy, kind, false, NIL);
	const char *name;

	if (!OidIsValid(index))
		return;
	name = quote_identifier(get_rel_name(index));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("expiry index \"%s\" of table \"%s\" is not valid",
					get_rel_name(index), RelationGetRelationName(rel)),
			 rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ?
			 errhint("Use ALTER INDEX %s ATTACH PARTITION to attach an index of each partition, or drop it.", name) :
			 errhint("Use REINDEX INDEX %s to build it anew, or drop it.", name)));
}

/* Errors (55000) if the table lacks an index that it needs. */
static void
check_table(Relation rel, const TtlPolicy *policy)
{
	TtlExpiryIndexes indexes;

	ttl_expiry_find_indexes(rel, policy, NIL, &indexes);
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (!indexes.needed[i] || OidIsValid(indexes.usable[i]))
			continue;
		refuse_unusable(rel, policy, i);
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" lacks an expiry index", RelationGetRelationName(rel)),
				 errhint("Use ttl.alter_container(..., indexing => 'consistent') to create it.")));
	}
}

/*
 * Errors (55000) if the table, or a partition of it, lacks an index that it needs
 * (TTL_INDEXES), or has an unusable one that equals that index: it would be in the way of one
 * that is to be created.  Partitions are locked.
 */
void
ttl_expiry_check_indexes(Oid relid, const TtlPolicy *policy, TtlExpiryIndex index)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, AccessShareLock))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		if (index == TTL_INDEXES)
			check_table(rel, policy);
		else
			refuse_unusable(rel, policy, index);
		table_close(rel, NoLock);
	}
}

/* Errors (55000): why a walk over the table was incomplete */
void
ttl_expiry_report_incomplete(Relation rel)
{
	TtlContainer container;

	if (ttl_container_lookup(RelationGetRelid(rel), &container))
		check_table(rel, &container.policy);

	/*
	 * each index that it needs is there, so the walk could not use one of
	 * them
	 */
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("an expiry index of table \"%s\" is newer than the snapshot of the transaction",
					RelationGetRelationName(rel)),
			 errhint("Try again in a new transaction.")));
}
