/*-------------------------------------------------------------------------
 *
 * table.c
 *	  What a container's table is given: columns and their comments, expiry indexes and the row trigger.
 *
 * Nothing here rewrites or scans a table but to build an index: what is added to rows that
 * exist is stored once for all of them.
 *
 * On a distributed table of Citus the row trigger carries the policy to the other nodes: it is
 * created anew whenever that is another one (citus.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "catalog_expr.h"
#include "citus/citus.h"
#include "commands/comment.h"
#include "commands/defrem.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "nodes/primnodes.h"
#include "own_sql.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/*
 * Columns
 */

/* The column of that name, or NULL */
Form_pg_attribute
ttl_table_find_column(Relation rel, const char *name)
{
	AttrNumber	attno = get_attnum(RelationGetRelid(rel), name);

	return attno > 0 ? TupleDescAttr(RelationGetDescr(rel), attno - 1) : NULL;
}

/*
 * Errors (0A000) if one of the tables, which are locked, stores its rows on another server.  Partitions
 * of any access method hide their rows; they keep them if it can't delete single ones.
 */
void
ttl_table_check_storage(const List *tables)
{
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	rel = relation_open(lfirst_oid(lc), NoLock);

		if (rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("foreign table \"%s\" cannot be a partition of a container",
							RelationGetRelationName(rel)),
					 errdetail("Its rows could be neither hidden nor deleted."),
					 errhint("Register the table on the server that stores it.")));
		relation_close(rel, NoLock);
	}
}

/*
 * Errors unless the open relation is of a kind that can be a container: 42809
 * if it is no table, 0A000 if it is a table that can't have TTL.
 */
void
ttl_table_check_kind(Relation rel)
{
	const char *name = RelationGetRelationName(rel);
	char		relkind = rel->rd_rel->relkind;

	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", name),
				 errdetail("Only ordinary and partitioned tables can be containers.")));
	if (IsSystemRelation(rel) ||
		RelationGetNamespace(rel) == ttl_container_require_objects()->schema)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is a system catalog", name),
				 errdetail("Only ordinary and partitioned tables can be containers.")));
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("temporary table \"%s\" cannot be a container", name),
				 errdetail("The background worker cannot reach the tables of a session."),
				 errhint("Use an unlogged table.")));
	if (rel->rd_rel->relispartition)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("partition \"%s\" cannot be a container of its own", name),
				 errhint("Register the partitioned table that it belongs to.")));
	/* relhassubclass may be true although there is none any more */
	if (relkind == RELKIND_RELATION &&
		(find_inheritance_children(RelationGetRelid(rel), NoLock) != NIL ||
		 has_superclass(RelationGetRelid(rel))))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" cannot both be a container and take part in inheritance", name),
				 errhint("Use declarative partitioning, ALTER TABLE ... NO INHERIT, or ttl.drop_container().")));
	if (OidIsValid(rel->rd_rel->reloftype))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" cannot be both a container and a typed table", name),
				 errdetail("A change of its type would change the table."),
				 errhint("Use ALTER TABLE ... NOT OF, or ttl.drop_container().")));
	if (relkind == RELKIND_RELATION && rel->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" of table \"%s\" is not supported for containers",
						get_am_name(rel->rd_rel->relam), name),
				 errhint("Use the access method \"%s\".", "heap")));
}

/*
 * Errors unless the two columns differ, a default TTL has one to count from (22023) and an index (55000),
 * and something writes that column by the policy's precision, which isn't longer (22023).
 */
void
ttl_table_check_policy(Oid relid, const TtlPolicy *policy)
{
	bool		has_ts = NameStr(policy->ts_column)[0] != '\0';
	bool		is_stamped = has_ts && (policy->touch_on_update ||
										(policy->created_objects & (TTL_CREATED_TS_COLUMN | TTL_CREATED_TS_DEFAULT)) != 0);

	if (has_ts && strcmp(NameStr(policy->ts_column), NameStr(policy->ttl_column)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ts_column and ttl_column must not be the same column"),
				 errhint("Choose another name for one of them.")));
	if (!has_ts && policy->default_ttl > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("container \"%s\" has no timestamp column that a default TTL could count from",
						get_rel_name(relid)),
				 NameStr(policy->ttl_column)[0] == '\0' ?
				 errhint("Rows need ts_column, which a TTL counts from, or ttl_column with deadlines. Leave out both to have columns \"%s\" and \"%s\" added.",
						 TTL_TS_COLUMN, TTL_TTL_COLUMN) :
				 errhint("Use -1: rows expire by their deadlines alone. NULL turns TTL off.")));
	if (policy->indexing == TTL_INDEXING_NONE && policy->default_ttl != TTL_OFF)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("container \"%s\" cannot have a default TTL without an expiry index",
						get_rel_name(relid)),
				 errhint("Use indexing => 'consistent'.")));
	if (policy->ts_precision > 0 && !is_stamped)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("container \"%s\" cannot have ts_precision because only the application writes its timestamp column",
						get_rel_name(relid)),
				 errhint("Leave out ts_precision, or use ts_precision => '0' to remove it.")));
	if (policy->default_ttl > 0 && policy->ts_precision > policy->default_ttl * USECS_PER_SEC)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ts_precision of container \"%s\" must not be longer than its default TTL",
						get_rel_name(relid)),
				 errhint("Use ttl.alter_container(..., ts_precision => ...) to choose a shorter one.")));
}

/* True if it is a numeric of a negative scale, which rounds numbers to tens, hundreds and so on. */
static bool
has_no_units(const FormData_pg_attribute *column)
{
	return column->atttypid == NUMERICOID && column->atttypmod >= VARHDRSZ &&
		((column->atttypmod - VARHDRSZ) & 0x400) != 0;
}

/* Errors (42804): the column has a type that it can't have. */
static void
refuse_type(Form_pg_attribute column, TtlUnit unit, const char *types, const char *hint)
{
	const char *type = format_type_with_typemod(column->atttypid, column->atttypmod);

	if (column->atttypid == FLOAT8OID || column->atttypid == FLOAT4OID)
		hint = _("Change its type to numeric.");
	if (unit == TTL_UNIT_SECONDS)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, not %s", NameStr(column->attname), type, types),
				 errhint("%s", hint)));
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("column \"%s\" is of type %s, which has no unit \"%s\"",
					NameStr(column->attname), type, ttl_type_unit_name(unit)),
			 errhint("%s", hint)));
}

/* Errors unless the columns, as far as they exist, can be adopted. */
void
ttl_table_check_columns(Relation rel, const TtlPolicy *policy)
{
	Form_pg_attribute ts = ttl_table_find_column(rel, NameStr(policy->ts_column));
	Form_pg_attribute own = ttl_table_find_column(rel, NameStr(policy->ttl_column));

	if (ts != NULL &&
		(ttl_type_of_clock(ts->atttypid, policy->ts_unit) == NULL || has_no_units(ts)))
		refuse_type(ts, policy->ts_unit, "timestamp with time zone",
					policy->ts_unit == TTL_UNIT_SECONDS &&
					ttl_type_of_clock(ts->atttypid, TTL_UNIT_EPOCH) != NULL ?
					_("If it counts from 1970, use ts_unit => 'epoch', 'epoch_ms', 'epoch_us' or 'epoch_ns'.") :
					_("Change its type, or choose another column by ts_column."));
	if (policy->ts_unit != TTL_UNIT_SECONDS && ts == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ts_unit needs a timestamp column that exists"),
				 errhint("Name the column by ts_column.")));
	if (ts != NULL && ts->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("generated column \"%s\" cannot be the timestamp column of a container",
						NameStr(ts->attname)),
				 errhint("Choose another column by ts_column.")));
	if (policy->ttl_unit != TTL_UNIT_SECONDS && own == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl_unit needs a TTL column that exists"),
				 errhint("Name the column by ttl_column.")));
	if (own != NULL && ttl_type_of(own->atttypid, policy->ttl_unit) == NULL)
		refuse_type(own, policy->ttl_unit, "a number, jsonb, date or timestamp with time zone",
					_("Change its type, or choose another column by ttl_column, or none by NULL."));
	if (NameStr(policy->ts_column)[0] == '\0' &&
		(own == NULL || !ttl_type_is_deadline(ttl_type_of(own->atttypid, policy->ttl_unit))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("table \"%s\" cannot be a container without a timestamp column",
						RelationGetRelationName(rel)),
				 errdetail("It has no TTL column that holds deadlines, either."),
				 own != NULL && ttl_type_of(own->atttypid, TTL_UNIT_EPOCH) != NULL ?
				 errhint("If it counts from 1970, use ttl_unit => 'epoch', 'epoch_ms', 'epoch_us' or 'epoch_ns'.") :
				 errhint("Name a column of type timestamp with time zone: by ttl_column if it says when each row expires, else by ts_column.")));
	if (own != NULL && own->attgenerated != '\0' &&
		own->attgenerated != ATTRIBUTE_GENERATED_STORED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("virtual generated column \"%s\" cannot be the TTL column of a container",
						NameStr(own->attname)),
				 errdetail("A virtual column cannot be indexed."),
				 errhint("Make the column STORED, or choose another by ttl_column.")));
}

/*
 * The present as the default of a timestamp column, rounded up to a multiple of the step; made of
 * PostgreSQL's functions alone, so that it outlives the container.
 */
static char *
present_sql(Oid type, int64 step)
{
	char	   *now = "pg_catalog.clock_timestamp()";

	if (step > 1)
		now = psprintf("pg_catalog.date_bin('" INT64_FORMAT " microseconds'::pg_catalog.interval, "
					   "%s OPERATOR(pg_catalog.+) '" INT64_FORMAT " microseconds'::pg_catalog.interval, "
					   "'2000-01-01 00:00:00+00'::pg_catalog.timestamptz)", step, now, step - 1);
	return type == TIMESTAMPTZOID ? now : psprintf("%s AT TIME ZONE 'UTC'", now);
}

/* True if other nodes may hold rows of the table, which the caller has locked. */
bool
ttl_table_has_rows_elsewhere(Oid relid)
{
	return ttl_citus_is_distributed(relid) && !ttl_citus_is_empty(relid);
}

/*
 * Adds a timestamp column.  Rows that exist count from now.  A constant default
 * is stored once for all of them; but it costs a scan of them a projection, so
 * where there are none, there is none.
 */
static void
add_ts_column(Oid relid, const char *ts, Oid type_oid, int32 typmod, int64 precision)
{
	int64		step = ttl_type_clock_step(NULL, typmod, precision);
	char	   *table = ttl_container_table_name(relid);
	char	   *type = format_type_with_typemod(type_oid, typmod);

	/* without time zone it has the same bits in UTC */
	Datum		now = DirectFunctionCall1(type_oid == TIMESTAMPTZOID ? timestamptz_out : timestamp_out,
										  ttl_type_present(NULL, GetCurrentTimestamp(), step));

	if (ttl_container_has_pages(relid) || ttl_table_has_rows_elsewhere(relid))
		ttl_command_run("ALTER TABLE %s ADD COLUMN %s %s NOT NULL DEFAULT %s", table, ts, type,
						quote_literal_cstr(DatumGetCString(now)));
	else
		ttl_command_run("ALTER TABLE %s ADD COLUMN %s %s NOT NULL", table, ts, type);
	ttl_command_run("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s", table, ts, present_sql(type_oid, step));
}

/*
 * Adds the columns that are missing, and the timestamp's default.  The policy notes what
 * was added.  The caller has locked the table.
 */
void
ttl_table_add_columns(Oid relid, TtlPolicy *policy)
{
	char	   *table = ttl_container_table_name(relid);
	bool		has_ts = NameStr(policy->ts_column)[0] != '\0';
	const char *ts_name = quote_identifier(NameStr(policy->ts_column));
	Relation	rel = table_open(relid, NoLock);
	Form_pg_attribute ts = ttl_table_find_column(rel, NameStr(policy->ts_column));
	Oid			ts_type = ts == NULL ? InvalidOid : ts->atttypid;
	int64		step = ts == NULL ? 1 : ttl_type_clock_step(NULL, ts->atttypmod, policy->ts_precision);
	bool		lacks_ts = has_ts && ts == NULL;
	bool		lacks_own = NameStr(policy->ttl_column)[0] != '\0' &&
	ttl_table_find_column(rel, NameStr(policy->ttl_column)) == NULL;

	if (ts == NULL)
		policy->created_objects |= has_ts ? TTL_CREATED_TS_COLUMN : 0;
	/* if it isn't that of modification, the application gives it */
	else if (!ts->atthasdef && ttl_type_is_instant(ts_type) &&
			 (policy->touch_on_update || !ts->attnotnull))
		policy->created_objects |= TTL_CREATED_TS_DEFAULT;
	if (lacks_own)
		policy->created_objects |= TTL_CREATED_TTL_COLUMN;
	/* ALTER TABLE refuses a table that this session has open */
	table_close(rel, NoLock);

	if (lacks_ts)
		add_ts_column(relid, ts_name, TIMESTAMPTZOID, -1, policy->ts_precision);
	if (policy->created_objects & TTL_CREATED_TS_DEFAULT)
		ttl_command_run("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT %s", table, ts_name,
						present_sql(ts_type, step));
	if (lacks_own)
		ttl_command_run("ALTER TABLE %s ADD COLUMN %s integer", table,
						quote_identifier(NameStr(policy->ttl_column)));
}

#define TS_COMMENT \
	"start of the row's Time-To-Live (extension ttl; see ttl.containers)"
#define TTL_COMMENT \
	"Time-To-Live of the row in seconds, -1 = never expires, NULL = ttl.default_ttl() of the table (extension ttl)"

/* Comments on a column of the table, if it has no comment. */
static void
comment_on_column(Oid relid, const NameData *name, const char *text)
{
	AttrNumber	attno = get_attnum(relid, NameStr(*name));

	/* a damaged container may lack it */
	if (attno != InvalidAttrNumber)
		ttl_comment_add(relid, RelationRelationId, attno, text);
}

/* Comments on the columns that were added. */
void
ttl_table_comment(Oid relid, const TtlPolicy *policy)
{
	if (policy->created_objects & TTL_CREATED_TS_COLUMN)
		comment_on_column(relid, &policy->ts_column, TS_COMMENT);
	if (policy->created_objects & TTL_CREATED_TTL_COLUMN)
		comment_on_column(relid, &policy->ttl_column, TTL_COMMENT);
}

/* Takes back the comment on a column, if it is still that one. */
static void
remove_comment(Oid relid, const FormData_pg_attribute *column, const char *text)
{
	char	   *comment = column == NULL ? NULL : GetComment(relid, RelationRelationId, column->attnum);

	if (comment != NULL && strcmp(comment, text) == 0)
		DeleteComments(relid, RelationRelationId, column->attnum);
}

/* True if the default of the column is the one that it is given here. */
static bool
has_our_default(Relation rel, const FormData_pg_attribute *ts)
{
	return ts != NULL && ttl_type_is_instant(ts->atttypid) &&
		ttl_catalog_expr_is_present(build_column_default(rel, ts->attnum));
}

/*
 * Gives the timestamp column, which has another precision now, the default that it was
 * given.  The caller has locked the table with its partitions.
 */
void
ttl_table_renew_default(Oid relid, const TtlPolicy *policy)
{
	ListCell   *lc;

	if (!(policy->created_objects & (TTL_CREATED_TS_COLUMN | TTL_CREATED_TS_DEFAULT)))
		return;
	foreach(lc, ttl_container_tree(relid, NoLock))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		Form_pg_attribute ts = ttl_table_find_column(rel, NameStr(policy->ts_column));
		bool		is_ours = has_our_default(rel, ts);
		Oid			type = ts == NULL ? InvalidOid : ts->atttypid;
		int64		step = ttl_type_clock_step(NULL, ts == NULL ? -1 : ts->atttypmod,
											   policy->ts_precision);

		table_close(rel, NoLock);
		if (is_ours)
			ttl_command_run("ALTER TABLE ONLY %s ALTER COLUMN %s SET DEFAULT %s",
							ttl_container_table_name(lfirst_oid(lc)),
							quote_identifier(NameStr(policy->ts_column)), present_sql(type, step));
	}
}

/* True if the expression calls a function of ours. */
static bool
calls_ours(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr) && ttl_container_is_own_function(((FuncExpr *) node)->funcid))
		return true;
	return expression_tree_walker(node, calls_ours, context);
}

/* True if the column is generated by functions of this extension, so that it depends on them. */
static bool
is_generated_by_ours(Relation rel, Form_pg_attribute column)
{
	return column != NULL && column->attgenerated != '\0' &&
		calls_ours(build_column_default(rel, column->attnum), NULL);
}

/*
 * Takes back what was added: comments, and from a column of the user's its default; the
 * columns only if they are to be dropped, with all that is theirs.  A TTL column that stays
 * ceases to be generated by functions of this extension.  One of another type isn't what was added.
 */
void
ttl_table_take_back(Oid relid, const TtlPolicy *policy, bool drop)
{
	const char *table = ttl_container_table_name(relid);
	const char *ts_name = quote_identifier(NameStr(policy->ts_column));
	const char *own_name = quote_identifier(NameStr(policy->ttl_column));
	Relation	rel = table_open(relid, NoLock);
	Form_pg_attribute ts = ttl_table_find_column(rel, NameStr(policy->ts_column));
	Form_pg_attribute own = ttl_table_find_column(rel, NameStr(policy->ttl_column));
	bool		drop_default = (policy->created_objects & TTL_CREATED_TS_DEFAULT) &&
	has_our_default(rel, ts);
	bool		drop_ts = drop && (policy->created_objects & TTL_CREATED_TS_COLUMN) && ts != NULL &&
	ttl_type_is_instant(ts->atttypid);
	bool		drop_own = drop && (policy->created_objects & TTL_CREATED_TTL_COLUMN) && own != NULL &&
	ttl_type_of(own->atttypid, policy->ttl_unit) != NULL;
	bool		drop_expression = !drop_own && is_generated_by_ours(rel, own);

	remove_comment(relid, ts, TS_COMMENT);
	remove_comment(relid, own, TTL_COMMENT);
	table_close(rel, NoLock);

	if (drop_default)
		ttl_command_run("ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT", table, ts_name);
	if (drop_expression)
		ttl_command_run("ALTER TABLE %s ALTER COLUMN %s DROP EXPRESSION", table, own_name);
	if (drop_ts)
		ttl_command_run("ALTER TABLE %s DROP COLUMN %s", table, ts_name);
	if (drop_own)
		ttl_command_run("ALTER TABLE %s DROP COLUMN %s", table, own_name);
}

/* Errors (0A000): UPDATE can't reset a column that is part of that. */
static void
refuse_use(Oid relid, AttrNumber ts_attno, const char *use)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("column \"%s\" of container \"%s\" cannot be reset by UPDATE because it is part of a %s",
					get_attname(relid, ts_attno, false), get_rel_name(relid), use),
			 errhint("Use touch_on_update => false to let rows expire by the time of their creation.")));
}

/* True if the next number of a sequence is part of the expression. */
static bool
has_next_number(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, NextValueExpr) ||
		(IsA(node, FuncExpr) && ((FuncExpr *) node)->funcid == F_NEXTVAL))
		return true;
	return expression_tree_walker(node, has_next_number, context);
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
	ListCell   *lc;

	/* a row without a value would get the next number, and expire at once */
	if (has_next_number(build_column_default(rel, ts_attno), NULL))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column \"%s\" cannot be the timestamp column of a container because its default is the next number of a sequence",
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
		refuse_use(RelationGetRelid(rel), ts_attno, "partition key");
	if (bms_is_member(ts, ttl_catalog_expr_key_columns(rel)))
		refuse_use(RelationGetRelid(rel), ts_attno, "unique index");
	foreach(lc, RelationGetFKeyList(rel))
	{
		ForeignKeyCacheInfo *fkey = lfirst_node(ForeignKeyCacheInfo, lc);

		for (int i = 0; i < fkey->nkeys; i++)
		{
			if (fkey->conkey[i] == ts_attno)
				refuse_use(RelationGetRelid(rel), ts_attno, "foreign key");
		}
	}
}

/*
 * Errors if the timestamp column of a table or of one of its partitions is used in a way that a
 * container with that policy can't allow.
 */
void
ttl_table_check_uses(Oid relid, const TtlPolicy *policy, LOCKMODE lockmode)
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

/* The same of a table that may belong to a container, whose uses of _ts have come into being. */
void
ttl_table_check_uses_of_table(Oid relid)
{
	TtlContainer container;
	Relation	rel;

	if (!OidIsValid(relid) || !ttl_container_peek(relid, &container) ||
		container.lacks_column || container.ts_attno == InvalidAttrNumber)
		return;
	rel = table_open(relid, AccessShareLock);
	check_ts_column(rel, container.policy.touch_on_update, container.ts_attno);
	table_close(rel, NoLock);
}

/*
 * Errors (0A000) if an index, which is about to be built, is one that the timestamp column of a
 * container cannot be part of.
 */
void
ttl_table_check_new_index(HeapTuple index)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(index);
	TtlContainer container;

	if (!ttl_catalog_expr_is_key(form) || !ttl_container_peek(form->indrelid, &container) ||
		container.lacks_column || container.ts_attno == InvalidAttrNumber || !container.policy.touch_on_update)
		return;
	if (bms_is_member(container.ts_attno - FirstLowInvalidHeapAttributeNumber,
					  ttl_catalog_expr_index_columns(index, container.ts_attno)))
		refuse_use(form->indrelid, container.ts_attno, "unique index");
}

/*
 * Gives a table what it lacks to become a partition of a container's table, as
 * far as PostgreSQL doesn't do it; checks the uses of its timestamp column.
 */
void
ttl_table_complete_partition(Oid parent_relid, Oid relid, const TtlPolicy *policy)
{
	/* the lock that ATTACH has on it */
	Relation	parent = table_open(parent_relid, ShareUpdateExclusiveLock);
	Form_pg_attribute ts = ttl_table_find_column(parent, NameStr(policy->ts_column));
	Form_pg_attribute own = ttl_table_find_column(parent, NameStr(policy->ttl_column));
	bool		lacks_ts = ts != NULL && get_attnum(relid, NameStr(policy->ts_column)) == InvalidAttrNumber;
	bool		lacks_own = own != NULL && get_attnum(relid, NameStr(policy->ttl_column)) == InvalidAttrNumber;
	const char *table = ttl_container_table_name(relid);
	const char *ts_name = quote_identifier(NameStr(policy->ts_column));
	char		relkind = get_rel_relkind(relid);
	TtlSqlContext saved;

	/*
	 * the container may be about to be repaired; whatever else is wrong
	 * PostgreSQL will say
	 */
	if ((ts == NULL && NameStr(policy->ts_column)[0] != '\0') ||
		(own == NULL && NameStr(policy->ttl_column)[0] != '\0') ||
		(lacks_ts && !ttl_type_is_instant(ts->atttypid)) ||
		(lacks_own && own->attgenerated != '\0') ||
		(relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE))
	{
		table_close(parent, NoLock);
		return;
	}

	ttl_sql_begin(InvalidOid, TTL_SQL_STEP, &saved);
	if (lacks_ts)
		add_ts_column(relid, ts_name, ts->atttypid, ts->atttypmod, policy->ts_precision);
	else if (ts != NULL && ts->attnotnull)
		ttl_command_run("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL", table, ts_name);
	if (lacks_own)
		ttl_command_run("ALTER TABLE %s ADD COLUMN %s %s", table,
						quote_identifier(NameStr(policy->ttl_column)),
						format_type_with_typemod(own->atttypid, own->atttypmod));
	ttl_sql_end(&saved);
	table_close(parent, NoLock);
	ttl_table_check_uses(relid, policy, AccessExclusiveLock);
}

/*
 * Expiry indexes
 */

/*
 * Creates the expiry indexes that are missing, of all partitions at once or of
 * one that lacks it; the policy notes which.  It doesn't take the place of an invalid
 * one: that may be the work of hours that lacks one ATTACH.
 */
void
ttl_table_create_indexes(Oid relid, TtlPolicy *policy)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, ShareLock))
	{
		TtlExpiryIndexes indexes;
		char	   *definitions[TTL_INDEXES];
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		ttl_expiry_find_indexes(rel, policy, NIL, &indexes);
		for (int i = 0; i < TTL_INDEXES; i++)
			definitions[i] = ttl_expiry_index_sql(rel, policy, i);
		table_close(rel, NoLock);
		for (int i = 0; i < TTL_INDEXES; i++)
		{
			if (!indexes.needed[i] || OidIsValid(indexes.usable[i]))
				continue;
			ttl_expiry_check_indexes(lfirst_oid(lc), policy, i);
			ttl_command_run("CREATE INDEX ON %s %s", ttl_container_table_name(lfirst_oid(lc)),
							definitions[i]);
			policy->created_objects |= TTL_CREATED_INDEX << i;
		}
	}
}

/* Drops those that it has created. */
void
ttl_table_drop_indexes(Oid relid, TtlPolicy *policy)
{
	TtlContainer container;
	Relation	rel;
	TtlExpiryIndexes indexes;

	/* without the columns there are none */
	ttl_container_find_columns(relid, policy, &container);
	if (container.lacks_column)
		return;
	rel = table_open(relid, AccessExclusiveLock);
	ttl_expiry_find_indexes(rel, policy, NIL, &indexes);
	table_close(rel, NoLock);

	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (OidIsValid(indexes.usable[i]) && (policy->created_objects & (TTL_CREATED_INDEX << i)))
			ttl_command_run("DROP INDEX %s", ttl_container_table_name(indexes.usable[i]));
		policy->created_objects &= ~(TTL_CREATED_INDEX << i);
	}
}

/*
 * Triggers
 */

/* Errors (0A000) if the policy of that table is another node's to change. */
void
ttl_table_check_settable(Oid relid)
{
	ttl_citus_check_settable(relid);
}

/* Creates the row trigger that a container has with that policy. */
void
ttl_table_create_trigger(Oid relid, const TtlPolicy *policy)
{
	ttl_citus_check_nodes(relid);
	ttl_row_trigger_create(relid, ttl_citus_arguments(relid, policy));
}

/*
 * Creates triggers and comments again on a table that had them as a partition, whoever owns that.  Where the row
 * trigger has arguments they are Citus's to send, which takes a command of the owner's.
 */
void
ttl_table_restore_triggers(Oid relid, const TtlPolicy *policy)
{
	TtlSqlContext saved;

	ttl_table_comment(relid, policy);
	if (OidIsValid(policy->archive_to))
		ttl_archive_trigger_restore(relid);
	if (ttl_citus_arguments(relid, policy)[0] == '\0')
	{
		ttl_row_trigger_restore(relid);
		return;
	}
	if (ttl_container_is_owner(GetUserId(), relid))
	{
		ttl_table_create_trigger(relid, policy);
		return;
	}
	ttl_sql_begin(ttl_container_owner(relid), TTL_SQL_STEP | TTL_SQL_RESTRICTED, &saved);
	ttl_table_create_trigger(relid, policy);
	ttl_sql_end(&saved);
}

/*
 * Sends the policy of a distributed table to all nodes, even if it is the one that they
 * should have.
 */
void
ttl_table_send_policy(Oid relid, const TtlPolicy *policy)
{
	if (ttl_citus_is_distributed(relid))
		ttl_table_create_trigger(relid, policy);
}

/* Drops the row trigger of a container, on all nodes of Citus. */
void
ttl_table_drop_trigger(Oid relid)
{
	ttl_citus_check_nodes(relid);
	ttl_row_trigger_drop(relid);
}

/* Locks a table, if it is distributed, whose policy is going to be changed. */
void
ttl_table_lock_distributed(Oid relid, LOCKMODE lockmode)
{
	if (ttl_citus_is_distributed(relid))
		LockRelationOid(relid, lockmode);
}
