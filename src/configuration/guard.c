/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  Refuses what would take from a container what it needs.
 *
 * See the table in ddl.c.  A script of pg_dump --clean, which drops a table piece by
 * piece, is let through; it is known by row_security = off.  A propagated policy is guarded
 * on the coordinator, from where Citus sends commands to shards (citus.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "catalog_expr.h"
#include "citus/citus.h"
#include "compat.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_type.h"
#include "ttl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/syscache.h"

bool
ttl_guard_names_column(const TtlPolicy *policy, const char *column)
{
	return column != NULL && column[0] != '\0' &&
		(strcmp(column, NameStr(policy->ts_column)) == 0 ||
		 strcmp(column, NameStr(policy->ttl_column)) == 0);
}

void
ttl_guard_refuse(const char *command, const char *object, Oid container)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot %s \"%s\" because container \"%s\" requires it",
					command, object, get_rel_name(container)),
			 errhint("A tool that compares schemas has to ignore it. To end Time-To-Live for the table, use ttl.drop_container().")));
}

/*
 * The container that the table belongs to, or InvalidOid.  A propagated policy is guarded on
 * the coordinator.
 */
static Oid
guarded_container(RangeVar *name)
{
	Oid			relid = RangeVarGetRelid(name, NoLock, true);
	TtlContainer container;

	return OidIsValid(relid) && ttl_container_peek(relid, &container) &&
		!container.propagated ? container.container : InvalidOid;
}

/* The container from which a command of ours drops what another one will create anew */
static Oid	suspended = InvalidOid;

void
ttl_guard_suspend(Oid container)
{
	suspended = container;
}

bool
ttl_guard_is_suspended(Oid container)
{
	return container == suspended;
}

/*
 * Errors if the index, which is to be dropped with all that are in the list, is
 * one that the container can't do without.
 */
static void
check_drop_index(Oid index, const List *dropped)
{
	Oid			table = IndexGetRelation(index, true);
	TtlContainer container;
	TtlPolicy	policy;
	Relation	rel;
	TtlExpiryIndexes before;
	TtlExpiryIndexes after;

	if (!OidIsValid(table) || !ttl_container_peek(table, &container) ||
		container.propagated || container.lacks_column || ttl_guard_is_suspended(container.container) ||
		container.default_ttl == TTL_OFF || !ttl_container_is_owner(GetUserId(), table) ||
		!ttl_container_read(container.container, &policy))
		return;

	rel = table_open(table, AccessShareLock);
	ttl_expiry_find_indexes(rel, &policy, NIL, &before);
	ttl_expiry_find_indexes(rel, &policy, dropped, &after);
	table_close(rel, AccessShareLock);	/* the command takes a stronger one */
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (before.needed[i] && before.usable[i] == index && !OidIsValid(after.usable[i]))
			ttl_guard_refuse("drop index", get_rel_name(index), container.container);
	}
}

static void
check_drop_indexes(List *names)
{
	List	   *dropped = NIL;
	ListCell   *lc;

	foreach(lc, names)
	{
		Oid			index = RangeVarGetRelid(makeRangeVarFromNameList(castNode(List, lfirst(lc))),
											 NoLock, true);
		char		relkind = OidIsValid(index) ? get_rel_relkind(index) : '\0';

		if (relkind == RELKIND_INDEX || relkind == RELKIND_PARTITIONED_INDEX)
			dropped = lappend_oid(dropped, index);
	}
	foreach(lc, dropped)
		check_drop_index(lfirst_oid(lc), dropped);
}

static void
check_drop_trigger(List *object)
{
	Oid			container;

	if (strcmp(strVal(llast(object)), TTL_TRIGGER) != 0)
		return;
	container = guarded_container(makeRangeVarFromNameList(list_copy_head(object, list_length(object) - 1)));
	if (OidIsValid(container))
		ttl_guard_refuse("drop trigger", TTL_TRIGGER, container);
}

void
ttl_guard_drop(DropStmt *stmt)
{
	ListCell   *lc;

	if (!row_security)
		return;
	if (stmt->removeType == OBJECT_INDEX)
		check_drop_indexes(stmt->objects);
	else if (stmt->removeType == OBJECT_TRIGGER)
	{
		foreach(lc, stmt->objects)
			check_drop_trigger(castNode(List, lfirst(lc)));
	}
}

/* A unique constraint may be made of an index that serves. */
void
ttl_guard_drop_constraint(Oid relid, const char *name)
{
	Oid			index = get_constraint_index(get_relation_constraint_oid(relid, name, true));

	if (OidIsValid(index))
		check_drop_index(index, list_make1_oid(index));
}

/* Is that the type of the column? */
static bool
is_type_of(Oid relid, AttrNumber attno, const TypeName *name)
{
	Oid			type;
	int32		typmod;
	Oid			collation;
	int32		named_typmod;
	Type		named = LookupTypeName(NULL, name, &named_typmod, true);
	bool		result;

	if (named == NULL)
		return false;
	get_atttypetypmodcoll(relid, attno, &type, &typmod, &collation);
	result = typeTypeId(named) == type && named_typmod == typmod;
	ReleaseSysCache(named);
	return result;
}

bool
ttl_guard_keeps_type(Oid relid, const AlterTableCmd *cmd)
{
	const ColumnDef *def = castNode(ColumnDef, cmd->def);
	AttrNumber	attno = get_attnum(relid, cmd->name);
	Node	   *value = def->raw_default;

	if (attno == InvalidAttrNumber || def->collClause != NULL ||
		!is_type_of(relid, attno, def->typeName))
		return false;
	if (value != NULL && IsA(value, TypeCast) &&
		is_type_of(relid, attno, ((TypeCast *) value)->typeName))
		value = ((TypeCast *) value)->arg;
	return value == NULL ||
		(IsA(value, ColumnRef) && list_length(((ColumnRef *) value)->fields) == 1 &&
		 IsA(linitial(((ColumnRef *) value)->fields), String) &&
		 strcmp(strVal(linitial(((ColumnRef *) value)->fields)), cmd->name) == 0);
}

/*
 * pg_repack puts a trigger on the table, fills a new one by SELECT, and gives its
 * storage to the table.  What that SELECT doesn't see is lost, without a DELETE;
 * and so are changes that fire no trigger, as those of ttl.container.
 */
void
ttl_guard_create_trigger(CreateTrigStmt *stmt)
{
	Oid			table;
	const TtlObjects *objects;
	TtlContainer container;

	if (stmt->replace && strcmp(stmt->trigname, TTL_TRIGGER) == 0 &&
		OidIsValid(guarded_container(stmt->relation)) &&
		!ttl_citus_shows_stored(RangeVarGetRelid(stmt->relation, NoLock, true)))
		ttl_guard_refuse("replace trigger", TTL_TRIGGER, guarded_container(stmt->relation));
	if (strcmp(strVal(llast(stmt->funcname)), "repack_trigger") != 0)
		return;
	table = RangeVarGetRelid(stmt->relation, NoLock, true);
	objects = ttl_container_objects();
	if (objects != NULL && table == objects->catalog)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot repack \"%s.%s\"", TTL_SCHEMA, TTL_CONTAINER_TABLE),
				 errdetail("Changes of policies would be lost."),
				 errhint("Run pg_repack with --exclude-extension=ttl.")));
	if (OidIsValid(table) && ttl_container_peek(table, &container) &&
		!ttl_live_is_shown(container.container))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot repack \"%s\" while expired rows of container \"%s\" are hidden",
						get_rel_name(table), get_rel_name(container.container)),
				 errdetail("pg_repack keeps the rows that it sees, and would lose the others."),
				 errhint("Run pg_repack with PGOPTIONS='-c row_security=off'.")));
}

void
ttl_guard_rename_trigger(RenameStmt *stmt)
{
	Oid			container;

	/* Citus gives shards, and their triggers, a number */
	if (strcmp(stmt->subname, TTL_TRIGGER) != 0 ||
		(ttl_citus_is_here() && strncmp(stmt->newname, TTL_TRIGGER "_", strlen(TTL_TRIGGER "_")) == 0))
		return;
	container = guarded_container(stmt->relation);
	if (OidIsValid(container))
		ttl_guard_refuse("rename trigger", TTL_TRIGGER, container);
}

/* The relation that the command alters, or that it gives or takes something; or NULL */
static RangeVar *
altered_relation(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_AlterTableStmt:
			return ((AlterTableStmt *) stmt)->cmds != NIL ? ((AlterTableStmt *) stmt)->relation : NULL;
		case T_RenameStmt:
			return ((RenameStmt *) stmt)->relation;
		case T_AlterObjectSchemaStmt:
			return ((AlterObjectSchemaStmt *) stmt)->relation;
		case T_CreateTrigStmt:
			return ((CreateTrigStmt *) stmt)->relation;
		case T_RuleStmt:
			return ((RuleStmt *) stmt)->relation;
		case T_CreatePolicyStmt:
			return ((CreatePolicyStmt *) stmt)->table;
		case T_IndexStmt:
			return ((IndexStmt *) stmt)->relation;
		case T_DropStmt:
			{
				DropStmt   *drop = (DropStmt *) stmt;
				List	   *name = drop->removeType == OBJECT_TRIGGER || drop->removeType == OBJECT_RULE ?
				linitial_node(List, drop->objects) : NIL;

				return list_length(name) > 1 ?
					makeRangeVarFromNameList(list_copy_head(name, list_length(name) - 1)) : NULL;
			}
		default:
			return NULL;
	}
}

/* Is it an object of the extension's? */
static bool
is_member(Oid class_id, Oid object_id)
{
	return OidIsValid(object_id) &&
		getExtensionOfObject(class_id, object_id) == ttl_container_require_objects()->extension;
}

/* Is it a function, operator class or operator family of the extension's? */
static bool
is_member_by_name(ObjectType type, Node *object)
{
	Relation	rel;
	ObjectAddress address;

	if (type != OBJECT_FUNCTION && type != OBJECT_PROCEDURE && type != OBJECT_ROUTINE &&
		type != OBJECT_OPCLASS && type != OBJECT_OPFAMILY)
		return false;
	address = get_object_address(type, object, &rel, AccessShareLock, true);
	return is_member(address.classId, address.objectId);
}

static bool
alters_member(Node *stmt)
{
	RangeVar   *relation = altered_relation(stmt);

	if (relation != NULL)
	{
		Oid			relid = RangeVarGetRelid(relation, NoLock, true);
		Oid			table = OidIsValid(relid) && get_rel_relkind(relid) == RELKIND_INDEX ?
		IndexGetRelation(relid, true) : relid;

		return OidIsValid(table) && table == ttl_container_require_objects()->catalog;
	}
	switch (nodeTag(stmt))
	{
		case T_RenameStmt:
			return is_member_by_name(((RenameStmt *) stmt)->renameType, ((RenameStmt *) stmt)->object);
		case T_AlterObjectSchemaStmt:
			return is_member_by_name(((AlterObjectSchemaStmt *) stmt)->objectType,
									 ((AlterObjectSchemaStmt *) stmt)->object);
		case T_AlterFunctionStmt:
			return is_member_by_name(((AlterFunctionStmt *) stmt)->objtype,
									 (Node *) ((AlterFunctionStmt *) stmt)->func);
		case T_AlterOpFamilyStmt:
			return is_member_by_name(OBJECT_OPFAMILY,
									 (Node *) lcons(makeString(((AlterOpFamilyStmt *) stmt)->amname),
													list_copy(((AlterOpFamilyStmt *) stmt)->opfamilyname)));
		case T_AlterExtensionContentsStmt:
			return ((AlterExtensionContentsStmt *) stmt)->action < 0 &&
				strcmp(((AlterExtensionContentsStmt *) stmt)->extname, TTL_EXTENSION) == 0;
		default:
			return false;
	}
}

static void
refuse_altering(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("objects of extension \"%s\" cannot be altered", TTL_EXTENSION),
			 errdetail("Without them expired rows would show."),
			 errhint("Policies are changed by the functions of schema \"%s\".", TTL_SCHEMA)));
}

void
ttl_guard_extension(Node *stmt)
{
	if (alters_member(stmt))
		refuse_altering();
}

void
ttl_guard_child(Oid parent)
{
	if (parent == ttl_container_require_objects()->catalog)
		refuse_altering();
}

void
ttl_guard_replaced_function(Oid function)
{
	/* a new one isn't in the syscache yet */
	if (get_func_namespace(function) == ttl_container_require_objects()->schema &&
		is_member(ProcedureRelationId, function))
		refuse_altering();
}

/* The extension is found by the name of its schema. */
void
ttl_guard_rename_schema(RenameStmt *stmt)
{
	if (strcmp(stmt->subname, TTL_SCHEMA) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot rename schema \"%s\" because extension \"%s\" requires it",
						TTL_SCHEMA, TTL_EXTENSION)));
}


/*
 * Uses of the timestamp column that don't go together with the clock being
 * reset behind the back of an UPDATE: 0A000.
 */
static void
check_ts_column(Relation rel, bool touch_on_update, AttrNumber ts_attno)
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

	if (TupleDescAttr(desc, ts_attno - 1)->atttypid == DATEOID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of container \"%s\" cannot be reset by UPDATE because it is of type date",
						column, RelationGetRelationName(rel)),
				 errhint("Use touch_on_update => false to let rows expire by the time of their creation.")));
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
ttl_guard_ts_column(Oid relid, const TtlPolicy *policy, LOCKMODE lockmode)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, lockmode))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		AttrNumber	ts_attno = get_attnum(lfirst_oid(lc), NameStr(policy->ts_column));

		if (ts_attno != InvalidAttrNumber)
			check_ts_column(rel, policy->touch_on_update, ts_attno);
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
ttl_guard_create_index(IndexStmt *stmt)
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
ttl_guard_ts_column_of_table(Oid relid)
{
	TtlContainer container;
	Relation	rel;

	if (!OidIsValid(relid) || !ttl_container_peek(relid, &container) ||
		container.lacks_column || container.ts_attno == InvalidAttrNumber)
		return;
	rel = table_open(relid, AccessShareLock);
	check_ts_column(rel, container.touch_on_update, container.ts_attno);
	table_close(rel, NoLock);
}
