/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Follows what DDL does to containers, and guards what they need.
 *
 *	  event										what happens
 *	  ------------------------------------------------------------------------
 *	  DROP TABLE, also by CASCADE				the container is forgotten
 *	  RENAME COLUMN, by whatever command		ttl.container follows
 *	  DROP TABLE of an archive					the container stops reaping
 *	  DROP or retype _ts or ttl					refused (2BP01), unless the type
 *												is the one that it has
 *	  DROP INDEX of an expiry index				refused while there is a default
 *												TTL (2BP01)
 *	  DROP TRIGGER of the container's			refused (2BP01)
 *	  DROP CONSTRAINT of the CHECK on ttl, or
 *	  ALTER CONSTRAINT ... NOT ENFORCED (19)	refused (2BP01)
 *	  the last three with row_security = off	not refused: that is a script of
 *												pg_dump --clean, which drops a
 *												table piece by piece
 *	  RENAME TRIGGER, DISABLE TRIGGER by name,
 *	  CREATE OR REPLACE TRIGGER					refused (2BP01)
 *	  RENAME of schema ttl						refused (2BP01)
 *	  pg_repack's trigger						refused (0A000), see
 *												before_create_trigger()
 *	  ENABLE TRIGGER							the container's fires always again
 *	  ENABLE, DISABLE TRIGGER of ttl.container	nothing: rows must not come in
 *												without it
 *	  ATTACH PARTITION of a container or of
 *	  its archive, foreign partitions, OF		refused (0A000)
 *	  ATTACH PARTITION of another table			it gets the columns and the CHECK
 *												that it lacks
 *	  DETACH PARTITION from a container			the partition becomes one itself
 *	  INHERITS, INHERIT							refused (0A000)
 *	  unique index, foreign key or stored		refused (0A000), see
 *		generated column over _ts				ttl_container_check_ts_uses()
 *
 * New partitions need nothing: like attached ones, they get the indexes and the
 * row trigger from PostgreSQL, and the policy from their parent.  All else that
 * keeps the table's OID is of no interest.
 *
 * Drops and renamed columns arrive by object_access_hook, whatever the command
 * was; the rest is seen as utility commands (utility.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "commands/trigger.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_relation.h"
#include "parser/parse_type.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

static object_access_hook_type prev_object_access_hook = NULL;

/* Is the column one that the policy names? */
static bool
is_container_column(const TtlPolicy *policy, const char *column)
{
	return column != NULL && column[0] != '\0' &&
		(strcmp(column, NameStr(policy->ts_column)) == 0 ||
		 strcmp(column, NameStr(policy->ttl_column)) == 0);
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
		container.ts_attno == InvalidAttrNumber ||
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
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot drop index \"%s\" because container \"%s\" requires it",
							get_rel_name(index), get_rel_name(container.container)),
					 errhint("A tool that compares schemas has to ignore it. To end Time-To-Live for the table, use ttl.drop_container().")));
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
	Oid			table;
	TtlContainer container;

	if (strcmp(strVal(llast(object)), TTL_TRIGGER) != 0)
		return;
	table = RangeVarGetRelid(makeRangeVarFromNameList(list_copy_head(object, list_length(object) - 1)),
							 NoLock, true);
	if (OidIsValid(table) && ttl_container_lookup(table, &container))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop trigger \"%s\" because container \"%s\" requires it",
						TTL_TRIGGER, get_rel_name(container.container)),
				 errhint("Use ttl.drop_container() to unregister the table.")));
}

/* The extension is found by the name of its schema. */
static void
before_rename_schema(RenameStmt *stmt)
{
	if (strcmp(stmt->subname, TTL_SCHEMA) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot rename schema \"%s\" because extension \"%s\" requires it",
						TTL_SCHEMA, TTL_EXTENSION)));
}

static void
check_replace_trigger(CreateTrigStmt *stmt)
{
	Oid			table = RangeVarGetRelid(stmt->relation, NoLock, true);
	TtlContainer container;

	if (strcmp(stmt->trigname, TTL_TRIGGER) == 0 && OidIsValid(table) &&
		ttl_container_peek(table, &container))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot replace trigger \"%s\" because container \"%s\" requires it",
						TTL_TRIGGER, get_rel_name(container.container)),
				 errhint("Choose another name.")));
}

/*
 * pg_repack puts a trigger on the table, fills a new one by SELECT, and gives its
 * storage to the table.  What that SELECT doesn't see is lost, without a DELETE;
 * and so are changes that fire no trigger, as those of ttl.container.
 */
static void
before_create_trigger(CreateTrigStmt *stmt)
{
	Oid			table;
	const TtlObjects *objects;
	TtlContainer container;

	if (stmt->replace)
		check_replace_trigger(stmt);
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
		!ttl_expiry_is_shown(container.container))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot repack \"%s\" while expired rows of container \"%s\" are hidden",
						get_rel_name(table), get_rel_name(container.container)),
				 errdetail("pg_repack keeps the rows that it sees, and would lose the others."),
				 errhint("Run pg_repack with PGOPTIONS='-c row_security=off'.")));
}

static void
before_rename_trigger(RenameStmt *stmt)
{
	Oid			table = RangeVarGetRelid(stmt->relation, NoLock, true);
	TtlContainer container;

	if (strcmp(stmt->subname, TTL_TRIGGER) == 0 && OidIsValid(table) &&
		ttl_container_lookup(table, &container))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot rename trigger \"%s\" because container \"%s\" requires it",
						TTL_TRIGGER, get_rel_name(container.container)),
				 errhint("Use ttl.drop_container() to unregister the table.")));
}

/*
 * The CHECK on the TTL column says that no row needs the third index; is it the
 * one of that name?  A unique constraint may be made of an index that serves.
 */
static void
check_constraint(Oid relid, const TtlPolicy *policy, const AlterTableCmd *cmd)
{
	bool		drops = cmd->subtype == AT_DropConstraint;
	const char *name = drops ? cmd->name : TtlConstraintUnenforced(cmd);
	Relation	rel;
	char	   *check;
	bool		validated;

	if (drops)
	{
		Oid			index = get_constraint_index(get_relation_constraint_oid(relid, name, true));

		if (OidIsValid(index))
			check_drop_index(index, list_make1_oid(index));
	}
	if (name == NULL || NameStr(policy->ttl_column)[0] == '\0')
		return;
	rel = table_open(relid, AccessShareLock);
	check = ttl_expiry_find_check(rel, policy, &validated);
	if (check != NULL && strcmp(check, name) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 drops ?
				 errmsg("cannot drop constraint \"%s\" because container \"%s\" requires it",
						name, RelationGetRelationName(rel)) :
				 errmsg("cannot alter constraint \"%s\" because container \"%s\" requires it",
						name, RelationGetRelationName(rel)),
				 errhint("Use ttl.drop_container() to unregister the table.")));
	table_close(rel, AccessShareLock);	/* the command takes a stronger one */
}

static void
before_drop(DropStmt *stmt)
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

static void
refuse_inheritance(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("container \"%s\" cannot take part in inheritance", get_rel_name(relid)),
			 errhint("Use declarative partitioning, or unregister the table with ttl.drop_container().")));
}

static void
refuse_foreign_partition(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("foreign table \"%s\" cannot be a partition of a container", name),
			 errdetail("Its rows could be neither hidden nor deleted.")));
}

/* A partition is about to leave its container: give it the same policy. */
static void
before_detach(const TtlContainer *parent, RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlContainer container;
	TtlPolicy	policy;

	if (!OidIsValid(partition) || !ttl_container_is_owner(GetUserId(), parent->relid) ||
		!ttl_container_lookup(partition, &container) ||
		container.container != parent->container ||
		ttl_container_read(partition, &policy) ||
		!ttl_container_read(parent->container, &policy))
		return;
	ttl_container_insert(partition, &policy);
}

/*
 * A table is about to become a partition, of a container if there is a policy:
 * it gets what it lacks for that.
 */
static void
before_attach(Oid parent, const TtlPolicy *policy, RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlPolicy	own;
	ListCell   *lc;

	if (!OidIsValid(partition))
		return;
	if (ttl_container_read(partition, &own))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot attach container \"%s\" as a partition",
						get_rel_name(partition)),
				 errhint("Unregister it first with ttl.drop_container().")));
	if (policy == NULL)
		return;
	foreach(lc, find_all_inheritors(partition, NoLock, NULL))
	{
		if (lfirst_oid(lc) == policy->archive_to)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot attach table \"%s\" to the container whose archive it is",
							get_rel_name(lfirst_oid(lc))),
					 errhint("Choose another archive by ttl.alter_container(..., archive_to => ...), or 0 for none.")));
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE)
			refuse_foreign_partition(get_rel_name(lfirst_oid(lc)));
	}
	if (ttl_container_is_owner(GetUserId(), parent) && ttl_container_is_owner(GetUserId(), partition))
		ttl_container_complete_partition(parent, partition, policy);
}

/* Does the command enable triggers in a way that isn't ALWAYS? */
static bool
enables_trigger(const AlterTableCmd *cmd)
{
	return cmd->subtype == AT_EnableTrig ||
		cmd->subtype == AT_EnableReplicaTrig ||
		cmd->subtype == AT_EnableTrigAll ||
		cmd->subtype == AT_EnableTrigUser;
}

static bool
disables_trigger(const AlterTableCmd *cmd)
{
	return cmd->subtype == AT_DisableTrig ||
		cmd->subtype == AT_DisableTrigAll ||
		cmd->subtype == AT_DisableTrigUser;
}

/*
 * Scripts of pg_dump --data-only --disable-triggers do so to ttl.container, too,
 * and restored rows would keep reaping on.
 */
static void
leave_catalog_triggers_alone(AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (enables_trigger(cmd) || disables_trigger(cmd))
			stmt->cmds = foreach_delete_current(stmt->cmds, lc);
	}
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

/*
 * Is the column given the type and the value that it has, as some object-relational
 * mappers do whenever they start?
 */
static bool
keeps_type(Oid relid, const AlterTableCmd *cmd)
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

static void
before_alter_table(AlterTableStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	const TtlObjects *objects;
	TtlContainer container;
	TtlPolicy	policy;
	bool		is_part;
	ListCell   *lc;

	if (!OidIsValid(relid))
		return;
	objects = ttl_container_objects();
	if (objects != NULL && relid == objects->catalog)
		leave_catalog_triggers_alone(stmt);
	/* one that lacks a column is repaired this way */
	is_part = ttl_container_peek(relid, &container);
	if (is_part && !ttl_container_read(container.container, &policy))
		return;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		switch (cmd->subtype)
		{
			case AT_DropColumn:
			case AT_AlterColumnType:
				if (!is_part || container.ts_attno == InvalidAttrNumber ||
					!is_container_column(&policy, cmd->name))
					break;

				/*
				 * it would build indexes and validate the CHECK anew, for
				 * nothing
				 */
				if (cmd->subtype == AT_AlterColumnType && keeps_type(relid, cmd))
					stmt->cmds = foreach_delete_current(stmt->cmds, lc);
				else
					ereport(ERROR,
							(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
							 cmd->subtype == AT_DropColumn ?
							 errmsg("cannot drop column \"%s\" because container \"%s\" requires it",
									cmd->name, get_rel_name(container.container)) :
							 errmsg("cannot alter type of column \"%s\" because container \"%s\" requires it",
									cmd->name, get_rel_name(container.container)),
							 errhint("Use ttl.drop_container() to unregister the table.")));
				break;
			case AT_AddInherit:
				{
					Oid			parent = RangeVarGetRelid((RangeVar *) cmd->def, NoLock, true);
					TtlContainer parent_container;

					if (is_part)
						refuse_inheritance(relid);
					if (OidIsValid(parent) && ttl_container_lookup(parent, &parent_container))
						refuse_inheritance(parent);
					break;
				}
			case AT_AttachPartition:
				before_attach(relid, is_part ? &policy : NULL,
							  ((PartitionCmd *) cmd->def)->name);
				break;
			case AT_AddOf:
				if (is_part)
					ereport(ERROR,
							(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							 errmsg("container \"%s\" cannot become a typed table",
									get_rel_name(container.container)),
							 errhint("Use ttl.drop_container() to unregister the table.")));
				break;
			case AT_DropConstraint:
			case AT_AlterConstraint:
				if (is_part && container.ts_attno != InvalidAttrNumber && row_security &&
					ttl_container_is_owner(GetUserId(), relid))
					check_constraint(relid, &policy, cmd);
				break;
			case AT_DisableTrig:
			case AT_EnableReplicaTrig:
				if (is_part && strcmp(cmd->name, TTL_TRIGGER) == 0)
					ereport(ERROR,
							(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
							 errmsg("cannot disable trigger \"%s\" because container \"%s\" requires it",
									TTL_TRIGGER, get_rel_name(container.container)),
							 errhint("Use ttl.drop_container() to unregister the table.")));
				break;
			case AT_DetachPartition:
				if (is_part)
					before_detach(&container, ((PartitionCmd *) cmd->def)->name);
				break;
			default:
				break;
		}
	}
}

/*
 * Uses of _ts are checked when they have come into being.  What is built
 * concurrently is committed by then, so it is checked by name before.
 */
static void
check_ts_uses(Oid relid)
{
	TtlContainer container;
	Relation	rel;

	if (!OidIsValid(relid) || !ttl_container_peek(relid, &container) ||
		container.ts_attno == InvalidAttrNumber)
		return;
	rel = table_open(relid, AccessShareLock);
	ttl_container_check_ts_uses(rel, container.touch_on_update, container.ts_attno);
	table_close(rel, NoLock);
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

static void
before_index(IndexStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	TtlContainer container;
	ColumnUse	use;
	bool		is_used;
	ListCell   *lc;

	if (!stmt->concurrent || !stmt->unique || !OidIsValid(relid) ||
		!ttl_container_peek(relid, &container) ||
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
 * The rows of a table that has become a partition of a container have got a TTL,
 * as if it had been turned on for them.
 */
static void
after_attach(Oid parent, RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlContainer container;
	TtlPolicy	policy;

	if (!OidIsValid(parent) || !OidIsValid(partition) ||
		!ttl_container_lookup(parent, &container) ||
		container.default_ttl == TTL_OFF || !ttl_container_has_pages(partition))
		return;
	ttl_container_lock_policy(container.container, true, true);
	if (!ttl_container_read(container.container, &policy))
		return;
	ttl_container_note_former(&policy, TTL_OFF);
	ttl_container_update(container.container, &policy);
}

static void
after_alter_table(AlterTableStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	ListCell   *lc;

	check_ts_uses(relid);

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		/*
		 * As in scripts of pg_dump --disable-triggers.  It may be no
		 * container yet: they load tables first, and the policies afterwards.
		 */
		if (enables_trigger(cmd) && OidIsValid(relid) && ttl_container_has_trigger(relid))
			ttl_container_enable_trigger(relid);

		if (cmd->subtype == AT_AttachPartition)
			after_attach(relid, ((PartitionCmd *) cmd->def)->name);

		if (cmd->subtype == AT_DetachPartition || cmd->subtype == AT_DetachPartitionFinalize)
		{
			Oid			partition = RangeVarGetRelid(((PartitionCmd *) cmd->def)->name,
													 NoLock, true);
			TtlPolicy	policy;

			/* PostgreSQL has taken the parent's trigger from it */
			if (OidIsValid(partition) && ttl_container_read(partition, &policy) &&
				!get_rel_relispartition(partition))
				ttl_container_enable_trigger(partition);
		}
	}
}

/* The column's name as this very command has written it */
static bool
read_new_name(Oid relid, AttrNumber attno, NameData *name)
{
	Relation	pg_attribute = table_open(AttributeRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_attribute_attrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_attribute_attnum, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(attno));
	scan = systable_beginscan(pg_attribute, AttributeRelidNumIndexId, true, SnapshotSelf, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		*name = ((Form_pg_attribute) GETSTRUCT(tuple))->attname;
	systable_endscan(scan);
	table_close(pg_attribute, AccessShareLock);
	return HeapTupleIsValid(tuple);
}

/*
 * A column has been altered, and maybe renamed.  What the syscache tells is as it
 * was before.  At the next command, event triggers at the command's end among
 * them, the new name and the policy come into force together.
 */
static void
follow_rename(Oid relid, AttrNumber attno)
{
	char	   *old_name = get_attname(relid, attno, true);
	NameData	new_name;
	TtlPolicy	policy;

	if (old_name == NULL || !ttl_container_read(relid, &policy) ||
		!is_container_column(&policy, old_name) ||
		!read_new_name(relid, attno, &new_name) ||
		strcmp(old_name, NameStr(new_name)) == 0)
		return;

	/* the command has locked the table */
	ttl_container_lock_policy(relid, true, true);
	if (!ttl_container_read(relid, &policy))
		return;
	if (strcmp(old_name, NameStr(policy.ts_column)) == 0)
		policy.ts_column = new_name;
	else
		policy.ttl_column = new_name;
	ttl_container_update(relid, &policy);
}

static void
before_create(CreateStmt *stmt)
{
	ListCell   *lc;

	if (stmt->partbound != NULL && !IsA(stmt, CreateForeignTableStmt))
		return;
	foreach(lc, stmt->inhRelations)
	{
		Oid			parent = RangeVarGetRelid(lfirst_node(RangeVar, lc), NoLock, true);
		TtlContainer container;

		if (!OidIsValid(parent) || !ttl_container_lookup(parent, &container))
			continue;
		if (stmt->partbound != NULL)
			refuse_foreign_partition(stmt->relation->relname);
		refuse_inheritance(parent);
	}
}

/*
 * Commands at work that may validate a constraint, or drop the extension, the
 * innermost first: their errors are explained.
 */
typedef struct Validation
{
	const PlannedStmt *command;
	int			depth;			/* of executions when it started */
	bool		is_alter_table;
	Oid			relid;
	ErrorContextCallback context;
	struct Validation *outer;
} Validation;

static Validation *validation = NULL;

bool
ttl_container_is_validating(void)
{
	return validation != NULL && validation->is_alter_table &&
		ttl_execution_depth() == validation->depth;
}

/* A constraint holds for all stored rows, and the expired ones can't be seen. */
static void
explain_violation(void *arg)
{
	Validation *failed = arg;
	TtlContainer container;
	int			error = geterrcode();

	if ((error == ERRCODE_UNIQUE_VIOLATION || error == ERRCODE_EXCLUSION_VIOLATION ||
		 error == ERRCODE_CHECK_VIOLATION || error == ERRCODE_NOT_NULL_VIOLATION) &&
		ttl_execution_depth() == failed->depth &&
		ttl_container_peek(failed->relid, &container))
		errhint("Expired rows count until they are deleted. Delete them with CALL ttl.reap().");
}

/* PostgreSQL's own HINT is CASCADE, which leaves columns and indexes behind. */
static void
explain_drop(void *arg)
{
	if (geterrcode() == ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST)
		errhint("Unregister each table that ttl.containers names with ttl.drop_container() first.");
}

/* Does the command drop the extension while there are containers? */
static bool
drops_extension(Node *stmt)
{
	ListCell   *lc;

	if (!IsA(stmt, DropStmt) || ((DropStmt *) stmt)->removeType != OBJECT_EXTENSION ||
		ttl_container_objects() == NULL)
		return false;
	foreach(lc, ((DropStmt *) stmt)->objects)
	{
		if (strcmp(strVal(lfirst(lc)), TTL_EXTENSION) == 0)
			return ttl_container_list() != NIL;
	}
	return false;
}

/*
 * The table whose rows the command may hold against a constraint: it builds a
 * unique index, validates, or takes rows from a default partition.  NULL for
 * other commands.
 */
static RangeVar *
validated_table(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_AlterTableStmt:
			return ((AlterTableStmt *) stmt)->relation;
		case T_IndexStmt:
			return ((IndexStmt *) stmt)->unique ? ((IndexStmt *) stmt)->relation : NULL;
		case T_CreateStmt:
			return ((CreateStmt *) stmt)->partbound != NULL ?
				linitial_node(RangeVar, ((CreateStmt *) stmt)->inhRelations) : NULL;
		case T_ReindexStmt:
			return ((ReindexStmt *) stmt)->relation;
		default:
			return NULL;
	}
}

/* That table, or of an index the one that it is on */
static Oid
validated_relid(Node *stmt)
{
	Oid			relid = RangeVarGetRelid(validated_table(stmt), NoLock, true);

	return IsA(stmt, ReindexStmt) && ((ReindexStmt *) stmt)->kind == REINDEX_OBJECT_INDEX &&
		OidIsValid(relid) ? IndexGetRelation(relid, true) : relid;
}

static void
begin_validation(const PlannedStmt *command)
{
	Node	   *stmt = command->utilityStmt;
	bool		drops = drops_extension(stmt);
	Oid			relid = drops ? InvalidOid : validated_relid(stmt);

	/* what runs concurrently outlives its transaction */
	Validation *inner = MemoryContextAllocZero(TopMemoryContext, sizeof(Validation));

	inner->command = command;
	inner->depth = ttl_execution_depth();
	inner->is_alter_table = IsA(stmt, AlterTableStmt);
	inner->relid = relid;
	inner->context.callback = drops ? explain_drop : explain_violation;
	inner->context.arg = inner;
	inner->context.previous = error_context_stack;
	error_context_stack = &inner->context;
	inner->outer = validation;
	validation = inner;
}

static void
end_utility(PlannedStmt *pstmt)
{
	Validation *inner = validation;

	/* the command may have failed before it began one of its own */
	if (inner == NULL || inner->command != pstmt)
		return;
	/* after an error PostgreSQL has done it */
	if (error_context_stack == &inner->context)
		error_context_stack = inner->context.previous;
	validation = inner->outer;
	pfree(inner);
}

static void
before_utility(PlannedStmt *pstmt, const char *query_string,
			   ProcessUtilityContext context, ParamListInfo params)
{
	Node	   *stmt = pstmt->utilityStmt;

	if (validated_table(stmt) != NULL || drops_extension(stmt))
		begin_validation(pstmt);

	switch (nodeTag(stmt))
	{
		case T_DropStmt:
		case T_AlterTableStmt:
		case T_IndexStmt:
		case T_RenameStmt:
		case T_CreateTrigStmt:
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
			if (ttl_container_objects() == NULL)
				return;
			break;
		default:
			return;
	}

	switch (nodeTag(stmt))
	{
		case T_DropStmt:
			before_drop((DropStmt *) stmt);
			break;
		case T_AlterTableStmt:
			before_alter_table((AlterTableStmt *) stmt);
			break;
		case T_IndexStmt:
			before_index((IndexStmt *) stmt);
			break;
		case T_RenameStmt:
			if (((RenameStmt *) stmt)->renameType == OBJECT_TRIGGER)
				before_rename_trigger((RenameStmt *) stmt);
			else if (((RenameStmt *) stmt)->renameType == OBJECT_SCHEMA)
				before_rename_schema((RenameStmt *) stmt);
			break;
		case T_CreateTrigStmt:
			before_create_trigger((CreateTrigStmt *) stmt);
			break;
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
			before_create((CreateStmt *) stmt);
			break;
		default:
			break;
	}
}

static void
after_utility(PlannedStmt *pstmt, ProcessUtilityContext context)
{
	Node	   *stmt = pstmt->utilityStmt;

	if (IsA(stmt, AlterTableStmt) && ttl_container_objects() != NULL)
		after_alter_table((AlterTableStmt *) stmt);
	else if (IsA(stmt, IndexStmt) && ttl_container_objects() != NULL)
		check_ts_uses(RangeVarGetRelid(((IndexStmt *) stmt)->relation, NoLock, true));
	else if (IsA(stmt, CreateStmt) && ((CreateStmt *) stmt)->partbound != NULL &&
			 ttl_container_objects() != NULL)
		check_ts_uses(RangeVarGetRelid(((CreateStmt *) stmt)->relation, NoLock, true));
}

/* The archive of the container is being dropped. */
static void
lose_archive(Oid container)
{
	TtlPolicy	policy;

	ttl_container_lock_policy(container, true, true);
	if (!ttl_container_read(container, &policy))
		return;
	policy.archive_to = InvalidOid;
	policy.reaping = false;
	ttl_container_update(container, &policy);
	ereport(WARNING,
			(errmsg("container \"%s\" has lost its archive; reaping is off",
					get_rel_name(container)),
			 errhint("Use ttl.alter_container() to choose another archive and turn reaping on.")));
}

/* Is it a function that plans and indexes of containers call, and no user? */
static bool
is_called_by_plans(Oid function)
{
	const TtlObjects *objects = ttl_container_objects();

	return objects != NULL &&
		(function == objects->is_live || function == objects->is_live_by_place ||
		 function == objects->is_expired || function == objects->stamp ||
		 function == objects->item_expiry);
}

static void
object_access(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	const TtlObjects *objects;
	TtlPolicy	policy;

	/* pgaudit would tell of each query that it has called the filter */
	if (access == OAT_FUNCTION_EXECUTE && is_called_by_plans(object_id))
		return;

	if (prev_object_access_hook)
		prev_object_access_hook(access, class_id, object_id, sub_id, arg);

	if (access == OAT_FUNCTION_EXECUTE)
		ttl_execution_function_called();
	if (class_id != RelationRelationId ||
		!(access == OAT_DROP ? sub_id == 0 : access == OAT_POST_ALTER && sub_id > 0))
		return;
	objects = ttl_container_objects();
	if (objects == NULL)
		return;
	if (access == OAT_POST_ALTER)
	{
		follow_rename(object_id, sub_id);
		return;
	}
	if (object_id == objects->catalog || object_id == objects->catalog_pkey)
		ttl_container_forget_objects();
	else if (get_rel_relkind(object_id) == RELKIND_RELATION ||
			 get_rel_relkind(object_id) == RELKIND_PARTITIONED_TABLE ||
			 get_rel_relkind(object_id) == RELKIND_FOREIGN_TABLE)
	{
		ListCell   *lc;

		if (ttl_container_read(object_id, &policy))
			ttl_container_delete(object_id);
		foreach(lc, ttl_container_list_archiving_to(object_id))
			lose_archive(lfirst_oid(lc));
	}
}

void
ttl_container_ddl_init(void)
{
	ttl_utility_observe(before_utility, after_utility, end_utility);
	prev_object_access_hook = object_access_hook;
	object_access_hook = object_access;
}
