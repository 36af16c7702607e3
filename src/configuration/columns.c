/*-------------------------------------------------------------------------
 *
 * columns.c
 *	  The columns of a container, and the CHECK on item TTLs.
 *
 * Nothing here rewrites or scans a table: what is added to rows that exist is stored
 * once for all of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/heap.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry_index.h"
#include "nodes/primnodes.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

Form_pg_attribute
ttl_columns_find(Relation rel, const char *name)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (!attribute->attisdropped && strcmp(NameStr(attribute->attname), name) == 0)
			return attribute;
	}
	return NULL;
}

void
ttl_columns_check_names(const TtlPolicy *policy)
{
	const char *ts = NameStr(policy->ts_column);
	const char *own = NameStr(policy->ttl_column);

	if (ts[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ts_column must not be empty"),
				 errhint("Name a column of type timestamp with time zone; it is added if the table has none of that name.")));
	if (strcmp(ts, own) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ts_column and ttl_column must not be the same column"),
				 errhint("Choose another name for one of them.")));
	if (SystemAttributeByName(ts) != NULL || SystemAttributeByName(own) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ts_column and ttl_column must not be system columns"),
				 errhint("Choose another name.")));
}

void
ttl_columns_check(Relation rel, const TtlPolicy *policy)
{
	Form_pg_attribute ts = ttl_columns_find(rel, NameStr(policy->ts_column));
	Form_pg_attribute own = ttl_columns_find(rel, NameStr(policy->ttl_column));

	if (ts != NULL && ts->atttypid != TIMESTAMPTZOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, not timestamp with time zone",
						NameStr(ts->attname), format_type_be(ts->atttypid)),
				 ts->atttypid == TIMESTAMPOID ?
				 errhint("Use ALTER TABLE ... ALTER COLUMN %s TYPE timestamptz USING %s AT TIME ZONE 'UTC', or the zone of its values, or choose another column by ts_column.",
						 quote_identifier(NameStr(ts->attname)),
						 quote_identifier(NameStr(ts->attname))) :
				 errhint("Change its type, or choose another column by ts_column.")));
	if (ts != NULL && ts->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("generated column \"%s\" cannot be the timestamp column of a container",
						NameStr(ts->attname)),
				 errhint("Choose another column by ts_column.")));
	if (own != NULL && own->atttypid != INT4OID && own->atttypid != INT2OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, not integer or smallint",
						NameStr(own->attname), format_type_be(own->atttypid)),
				 errhint("Change its type, or choose another column by ttl_column, or none by NULL.")));
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
 * Says in the catalog that the CHECK constraint holds for all rows, here and
 * in the partitions.  To have it validated would scan the table under an
 * exclusive lock.
 */
static void
mark_check_valid(Oid relid, const char *name)
{
	Relation	pg_constraint = table_open(ConstraintRelationId, RowExclusiveLock);
	ListCell   *lc;

	foreach(lc, find_all_inheritors(relid, NoLock, NULL))
	{
		Oid			constraint = get_relation_constraint_oid(lfirst_oid(lc), name, true);
		HeapTuple	tuple = SearchSysCacheCopy1(CONSTROID, ObjectIdGetDatum(constraint));

		if (!HeapTupleIsValid(tuple))
			continue;
		((Form_pg_constraint) GETSTRUCT(tuple))->convalidated = true;
		CatalogTupleUpdate(pg_constraint, &tuple->t_self, tuple);
		heap_freetuple(tuple);
		CacheInvalidateRelcacheByRelid(lfirst_oid(lc));
	}
	table_close(pg_constraint, RowExclusiveLock);
	CommandCounterIncrement();
}

/*
 * Adds a timestamp column.  Rows that exist count from now.  A constant default
 * is stored once for all of them; but it costs a scan of them a projection, so
 * where there are none, there is none.
 */
static void
add_ts_column(Oid relid, const char *ts, const char *type)
{
	char	   *table = ttl_container_table_name(relid);
	Datum		now = DirectFunctionCall1(timestamptz_out,
										  TimestampTzGetDatum(GetCurrentTimestamp()));

	if (ttl_container_has_pages(relid))
		ttl_command_run("ALTER TABLE %s ADD COLUMN %s %s NOT NULL DEFAULT %s", table, ts, type,
						quote_literal_cstr(DatumGetCString(now)));
	else
		ttl_command_run("ALTER TABLE %s ADD COLUMN %s %s NOT NULL", table, ts, type);
	ttl_command_run("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT clock_timestamp()", table, ts);
}

/*
 * Adds the CHECK on item TTLs.  All rows are known to obey it if the column is
 * new, if they obey an equal one, or if there are none.
 */
static void
add_check(Oid relid, const char *name, const TtlPolicy *policy, bool is_known, bool validate)
{
	ttl_command_run("ALTER TABLE %s ADD CONSTRAINT %s CHECK (%s)%s", ttl_container_table_name(relid),
					quote_identifier(name), ttl_expiry_check_definition(policy),
					is_known || !validate ? " NOT VALID" : "");
	if (is_known)
		mark_check_valid(relid, name);
}

void
ttl_columns_complete(Oid relid, TtlPolicy *policy)
{
	char	   *table = ttl_container_table_name(relid);
	const char *ts_name = quote_identifier(NameStr(policy->ts_column));
	Relation	rel = table_open(relid, NoLock);
	Form_pg_attribute ts = ttl_columns_find(rel, NameStr(policy->ts_column));
	char	   *check;
	bool		validated = true;

	if (ts == NULL)
		policy->added |= TTL_ADDED_TS_COLUMN;
	/* if it isn't that of modification, the application gives it */
	else if (!ts->atthasdef && (policy->touch_on_update || !ts->attnotnull))
		policy->added |= TTL_ADDED_TS_DEFAULT;
	if (NameStr(policy->ttl_column)[0] != '\0' &&
		ttl_columns_find(rel, NameStr(policy->ttl_column)) == NULL)
		policy->added |= TTL_ADDED_TTL_COLUMN;
	table_close(rel, NoLock);

	if (policy->added & TTL_ADDED_TS_COLUMN)
		add_ts_column(relid, ts_name, "timestamptz");
	if (policy->added & TTL_ADDED_TS_DEFAULT)
		ttl_command_run("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT clock_timestamp()", table,
						ts_name);
	if (NameStr(policy->ttl_column)[0] == '\0')
		return;
	if (policy->added & TTL_ADDED_TTL_COLUMN)
		ttl_command_run("ALTER TABLE %s ADD COLUMN %s integer", table,
						quote_identifier(NameStr(policy->ttl_column)));

	rel = table_open(relid, NoLock);
	check = ttl_expiry_find_check(rel, policy, &validated);
	table_close(rel, NoLock);
	if (check == NULL)
	{
		/*
		 * a partition with bad values may be attached yet, so not if it's
		 * partitioned
		 */
		bool		is_empty = get_rel_relkind(relid) == RELKIND_RELATION &&
		!ttl_container_has_pages(relid);

		add_check(relid,
				  ChooseConstraintName(get_rel_name(relid), NameStr(policy->ttl_column),
									   "check", get_rel_namespace(relid), NIL),
				  policy,
				  (policy->added & TTL_ADDED_TTL_COLUMN) != 0 || is_empty, false);
		policy->added |= TTL_ADDED_TTL_CHECK;
	}
}

/* Is the default of the column the one that it is given here? */
static bool
has_our_default(Relation rel, AttrNumber attno)
{
	TupleConstr *constr = RelationGetDescr(rel)->constr;

	for (int i = 0; constr != NULL && i < constr->num_defval; i++)
	{
		AttrDefault *defval = &constr->defval[i];
		Node	   *value;

		if (defval->adnum != attno)
			continue;
		value = stringToNode(defval->adbin);
		return IsA(value, FuncExpr) && ((FuncExpr *) value)->funcid == F_CLOCK_TIMESTAMP;
	}
	return false;
}

/* PostgreSQL's own HINT is CASCADE, which the function hasn't. */
static void
explain_dependents(void *arg)
{
	if (geterrcode() == ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST)
		errhint("Drop these objects first, or leave the columns by drop_columns => false.");
}

/*
 * A column may have got another type, or have been dropped, by DDL on a server
 * without the library: then what is there isn't ours.
 */
void
ttl_columns_take_back(Oid relid, const TtlPolicy *policy, bool drop)
{
	const char *table = ttl_container_table_name(relid);
	const char *ts_name = quote_identifier(NameStr(policy->ts_column));
	const char *own_name = quote_identifier(NameStr(policy->ttl_column));
	Relation	rel = table_open(relid, NoLock);
	Form_pg_attribute ts = ttl_columns_find(rel, NameStr(policy->ts_column));
	Form_pg_attribute own = ttl_columns_find(rel, NameStr(policy->ttl_column));
	bool		drop_default = (policy->added & TTL_ADDED_TS_DEFAULT) && ts != NULL &&
	has_our_default(rel, ts->attnum);
	bool		drop_ts = drop && (policy->added & TTL_ADDED_TS_COLUMN) && ts != NULL &&
	ts->atttypid == TIMESTAMPTZOID;
	bool		drop_own = drop && (policy->added & TTL_ADDED_TTL_COLUMN) && own != NULL &&
	own->atttypid == INT4OID;
	bool		validated;
	char	   *check = NULL;
	ErrorContextCallback context = {
		.callback = explain_dependents,
		.previous = error_context_stack
	};

	if ((policy->added & TTL_ADDED_TTL_CHECK) && !(policy->added & TTL_ADDED_TTL_COLUMN) &&
		own != NULL)
		check = ttl_expiry_find_check(rel, policy, &validated);
	if (check != NULL)
		check = pstrdup(check);
	table_close(rel, NoLock);

	if (drop_default)
		ttl_command_run("ALTER TABLE %s ALTER COLUMN %s DROP DEFAULT", table, ts_name);
	if (check != NULL)
		ttl_command_run("ALTER TABLE %s DROP CONSTRAINT %s", table, quote_identifier(check));
	error_context_stack = &context;
	if (drop_ts)
		ttl_command_run("ALTER TABLE %s DROP COLUMN %s", table, ts_name);
	if (drop_own)
		ttl_command_run("ALTER TABLE %s DROP COLUMN %s", table, own_name);
	error_context_stack = context.previous;
}

/* The type of a column, as DDL takes it */
static char *
type_of(const FormData_pg_attribute *attribute)
{
	return format_type_with_typemod(attribute->atttypid, attribute->atttypmod);
}

void
ttl_columns_complete_partition(Oid parent_relid, Oid relid, const TtlPolicy *policy)
{
	Relation	parent = table_open(parent_relid, ShareUpdateExclusiveLock);
	Relation	rel = relation_open(relid, AccessExclusiveLock);
	char		relkind = rel->rd_rel->relkind;
	const char *table = ttl_container_table_name(relid);
	const char *ts_name = quote_identifier(NameStr(policy->ts_column));
	const char *own_name = quote_identifier(NameStr(policy->ttl_column));
	Form_pg_attribute parent_ts = ttl_columns_find(parent, NameStr(policy->ts_column));
	Form_pg_attribute parent_own = ttl_columns_find(parent, NameStr(policy->ttl_column));
	Form_pg_attribute ts = ttl_columns_find(rel, NameStr(policy->ts_column));
	Form_pg_attribute own = ttl_columns_find(rel, NameStr(policy->ttl_column));
	char	   *add_ts = NULL;
	bool		add_not_null = false;
	char	   *add_own = NULL;
	char	   *check = NULL;
	bool		validate = false;
	bool		is_known = true;
	int			nestlevel;

	/* the container may be about to be repaired */
	if (parent_ts == NULL || (parent_own == NULL && NameStr(policy->ttl_column)[0] != '\0'))
	{
		relation_close(rel, NoLock);
		table_close(parent, NoLock);
		return;
	}

	if (ts == NULL)
		add_ts = type_of(parent_ts);
	else
		add_not_null = !ts->attnotnull && parent_ts->attnotnull;
	if (parent_own != NULL)
	{
		if (own != NULL && ttl_container_has_pages(relid))
			(void) ttl_expiry_find_check(rel, policy, &is_known);
		else if (own == NULL && parent_own->attgenerated == '\0')
			add_own = type_of(parent_own);
		check = ttl_expiry_find_check(parent, policy, &validate);
		if (check != NULL)
			check = pstrdup(check);
	}
	relation_close(rel, NoLock);
	table_close(parent, NoLock);

	/* whatever else is wrong with it, PostgreSQL will say */
	if ((relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE) ||
		(own == NULL && parent_own != NULL && add_own == NULL))
		return;

	nestlevel = ttl_command_begin();
	if (add_ts != NULL)
		add_ts_column(relid, ts_name, add_ts);
	if (add_not_null)
		ttl_command_run("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL", table, ts_name);
	if (add_own != NULL)
		ttl_command_run("ALTER TABLE %s ADD COLUMN %s %s", table, own_name, add_own);
	if (check != NULL && !OidIsValid(get_relation_constraint_oid(relid, check, true)))
		add_check(relid, check, policy, is_known, validate);
	ttl_command_end(nestlevel);
	ttl_uses_check_all(relid, policy, AccessExclusiveLock);
}
