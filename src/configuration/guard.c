/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  Refuses what would take from a container what it needs.
 *
 * See the table in ddl.c, also for when.  A script of pg_dump --clean, which drops a table
 * piece by piece, is let through; it is known by row_security = off.  A propagated policy is
 * guarded on the coordinator, from where Citus sends commands to shards (citus.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_type.h"
#include "catalog_expr.h"
#include "commands/tablecmds.h"
#include "compat.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "nodes/parsenodes.h"
#include "parser/parse_type.h"
#include "parser/parse_utilcmd.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/syscache.h"

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
 * What commands drop.  A CASCADE may reach a column or an index whatever the command was, and
 * may take the container with it, so it is noted before it is dropped and judged when the
 * command has ended.
 */
typedef struct DroppedPart
{
	Oid			table;
	Oid			index;			/* or, if InvalidOid, ... */
	AttrNumber	attno;			/* ... a column */
	NameData	name;
} DroppedPart;

static List *dropped_parts = NIL;

static void
note_dropped(Oid table, Oid index, AttrNumber attno, const char *name)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	DroppedPart *part = palloc(sizeof(DroppedPart));

	part->table = table;
	part->index = index;
	part->attno = attno;
	namestrcpy(&part->name, name);
	/* what has been named is dropped last, after what depends on it */
	dropped_parts = lcons(part, dropped_parts);
	MemoryContextSwitchTo(old);
}

/*
 * The container that the table belongs to, and whether its parts are guarded.  A propagated
 * policy is guarded on the coordinator.
 */
static bool
is_guarded(Oid relid, TtlContainer *container)
{
	return OidIsValid(relid) && ttl_container_peek(relid, container) &&
		!container->propagated && !container->lacks_column;
}

/* True if the table lacks an expiry index that it needs, or would do so without that one. */
static bool
lacks_index(Oid table, Oid container, Oid without)
{
	TtlPolicy	policy;
	TtlExpiryIndexes indexes;
	bool		lacks = false;
	Relation	rel;

	if (!ttl_container_read(container, &policy) || policy.default_ttl == TTL_OFF)
		return false;
	rel = table_open(table, AccessShareLock);
	ttl_expiry_find_indexes(rel, &policy, OidIsValid(without) ? list_make1_oid(without) : NIL,
							&indexes);
	table_close(rel, AccessShareLock);
	for (int i = 0; i < TTL_INDEXES; i++)
		lacks = lacks || (indexes.needed[i] && !OidIsValid(indexes.usable[i]));
	return lacks;
}

void
ttl_guard_dropping_column(Oid relid, AttrNumber attno)
{
	TtlContainer container;

	if (is_guarded(relid, &container) &&
		(attno == container.ts_attno || attno == container.ttl_attno))
		note_dropped(relid, InvalidOid, attno, get_attname(relid, attno, false));
}

void
ttl_guard_dropping_index(Oid index, bool concurrently)
{
	Oid			table = IndexGetRelation(index, true);
	TtlContainer container;

	if (!row_security || !is_guarded(table, &container))
		return;
	/* its lock on the table doesn't keep the default TTL from being set, and it commits */
	if (concurrently)
		(void) ttl_container_lock_policy(container.container, false, true);
	if (!lacks_index(table, container.container, index) ||
		lacks_index(table, container.container, InvalidOid))
		return;
	if (concurrently)
		ttl_guard_refuse("drop index", get_rel_name(index), container.container);
	note_dropped(table, index, InvalidAttrNumber, get_rel_name(index));
}

void
ttl_guard_forget_dropped(void)
{
	list_free_deep(dropped_parts);
	dropped_parts = NIL;
}

/* What has been rolled back since is there. */
void
ttl_guard_check_dropped(void)
{
	ListCell   *lc;

	foreach(lc, dropped_parts)
	{
		const DroppedPart *part = lfirst(lc);
		TtlContainer container;

		if (!ttl_container_peek(part->table, &container))
			continue;
		if (!OidIsValid(part->index) && !OidIsValid(get_atttype(part->table, part->attno)))
			ttl_guard_refuse("drop column", NameStr(part->name), container.container);
		if (OidIsValid(part->index) && get_rel_relkind(part->index) == '\0' &&
			lacks_index(part->table, container.container, InvalidOid))
			ttl_guard_refuse("drop index", NameStr(part->name), container.container);
	}
	ttl_guard_forget_dropped();
}

void
ttl_guard_trigger(const char *command, RangeVar *table, const char *trigger)
{
	Oid			relid = RangeVarGetRelid(table, NoLock, true);
	TtlContainer container;

	if (strcmp(trigger, TTL_TRIGGER) == 0 && OidIsValid(relid) &&
		ttl_container_peek(relid, &container) && !container.propagated)
		ttl_guard_refuse(command, TTL_TRIGGER, container.container);
}

/* True if the column has that type. */
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
ttl_guard_repack(CreateTrigStmt *stmt)
{
	Oid			table = RangeVarGetRelid(stmt->relation, NoLock, true);
	const TtlObjects *objects = ttl_container_objects();
	TtlContainer container;

	if (strcmp(strVal(llast(stmt->funcname)), "repack_trigger") != 0)
		return;
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

	/* a row without a value would get the next number, and expire at once */
	if (TupleDescAttr(desc, ts_attno - 1)->attidentity != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("identity column \"%s\" cannot be the timestamp column of a container",
						column)));

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

/*
 * What is built concurrently is committed before the command ends, so the columns of its key
 * are looked at before.
 */
void
ttl_guard_create_index(IndexStmt *stmt, const char *query_string)
{
	TtlContainer container;
	Oid			relid;
	AttrNumber	ts_attno;
	Bitmapset  *columns;
	ListCell   *lc;

	if (!stmt->concurrent || !stmt->unique)
		return;
	relid = RangeVarGetRelidExtended(stmt->relation, ShareUpdateExclusiveLock, 0,
									 RangeVarCallbackOwnsRelation, NULL);
	if (!is_guarded(relid, &container) || container.ts_attno == InvalidAttrNumber ||
		!container.touch_on_update)
		return;
	stmt = transformIndexStmt(relid, copyObject(stmt), query_string);
	ts_attno = container.ts_attno;
	columns = ttl_catalog_expr_columns(stmt->whereClause, ts_attno);
	foreach(lc, stmt->indexParams)
	{
		IndexElem  *element = lfirst_node(IndexElem, lc);

		columns = bms_join(columns, element->name == NULL ?
						   ttl_catalog_expr_columns(element->expr, ts_attno) :
						   bms_make_singleton(get_attnum(relid, element->name) -
											  FirstLowInvalidHeapAttributeNumber));
	}
	if (bms_is_member(ts_attno - FirstLowInvalidHeapAttributeNumber, columns))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" of container \"%s\" cannot be part of a unique index",
						get_attname(relid, ts_attno, false),
						get_rel_name(container.container)),
				 errhint("Use ttl.alter_container(..., touch_on_update => false) to let rows expire by the time of their creation.")));
}

/* Uses of _ts are checked when they have come into being. */
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
