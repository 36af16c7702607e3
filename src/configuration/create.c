/*-------------------------------------------------------------------------
 *
 * create.c
 *	  The SQL functions that configure containers.
 *
 * They check arguments and rights, make the columns, indexes and trigger that
 * a container needs, and leave the rest to container_catalog.c.  Tables are
 * changed by ordinary DDL through SPI, as the calling user, who owns the table
 * or is a superuser.  Nothing here rewrites or scans a table, but for the
 * building of an expiry index that isn't there yet.
 *
 * Functions that change a policy hold the container's policy lock until the
 * transaction ends, so they wait for at most a batch of the reaper.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/heap.h"
#include "catalog/indexing.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "common/int.h"
#include "container/container.h"
#include "container/policy.h"
#include "deletion/deletion.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "guc.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "stored.h"
#include "ttl.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/*
 * Arguments
 */

/*
 * The table that a function is to change; errors if nothing may be changed now.
 */
static Oid
changed_container_argument(FunctionCallInfo fcinfo, const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("container must not be null")));
	ttl_container_hold_extension();
	return PG_GETARG_OID(0);
}

static int32
default_ttl_argument(FunctionCallInfo fcinfo, int n)
{
	int32		default_ttl;

	if (PG_ARGISNULL(n))
		return TTL_OFF;
	default_ttl = PG_GETARG_INT32(n);
	if (default_ttl != TTL_NEVER && default_ttl <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid default TTL: %d", default_ttl),
				 errhint("Use a number of seconds from 1 to 2147483647, -1 for rows that never expire by default, or NULL to turn TTL off.")));
	return default_ttl;
}

static TtlIndexing
indexing_argument(FunctionCallInfo fcinfo, int n)
{
	char	   *name;
	TtlIndexing indexing;

	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("indexing must not be null"),
				 errhint("Use \"consistent\" or \"none\".")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(n));
	if (!ttl_policy_indexing_parse(name, &indexing))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid indexing policy: \"%s\"", name),
				 errhint("Use \"consistent\" or \"none\".")));
	return indexing;
}

/* The most rows that a batch of the reaper may be told to delete. */
#define MAX_BATCH_SIZE	50000

static int32
range_argument(FunctionCallInfo fcinfo, int n, const char *name, int32 max)
{
	int32		value = PG_GETARG_INT32(n);

	if (value < 0 || value > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid %s: %d", name, value),
				 errdetail("It must be between 0 and %d.", max)));
	return value;
}

static bool
boolean_argument(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be null", name)));
	return PG_GETARG_BOOL(n);
}

/*
 * Errors unless the open relation is of a kind that can be a container: 42809
 * if it is no table, 0A000 if it is a table that can't have TTL.
 */
static void
check_kind(Relation rel)
{
	const char *name = RelationGetRelationName(rel);
	char		relkind = rel->rd_rel->relkind;

	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", name),
				 errhint("Only ordinary and partitioned tables can be containers.")));
	if (IsSystemRelation(rel) ||
		RelationGetNamespace(rel) == ttl_container_require_objects()->schema)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is a system catalog", name),
				 errhint("Only ordinary and partitioned tables can be containers.")));
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
				 errmsg("table \"%s\" cannot be a container because it takes part in inheritance", name),
				 errhint("Use declarative partitioning, or end the inheritance with ALTER TABLE ... NO INHERIT.")));
	if (OidIsValid(rel->rd_rel->reloftype))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("typed table \"%s\" cannot be a container", name),
				 errdetail("Its type can change under it."),
				 errhint("Detach the table from its type with ALTER TABLE ... NOT OF.")));
	if (relkind == RELKIND_PARTITIONED_TABLE)
	{
		ListCell   *lc;

		foreach(lc, find_all_inheritors(RelationGetRelid(rel), NoLock, NULL))
		{
			if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("table \"%s\" cannot be a container because its partition \"%s\" is a foreign table",
								name, get_rel_name(lfirst_oid(lc))),
						 errhint("Detach the partition.")));
		}
	}
}

static Form_pg_attribute
find_attribute(Relation rel, const char *name)
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

/* Errors unless the names can be those of a container's columns. */
static void
check_column_names(const TtlPolicy *policy)
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

/* Errors unless the columns, as far as they exist, can be adopted. */
static void
check_columns(Relation rel, const TtlPolicy *policy)
{
	Form_pg_attribute ts = find_attribute(rel, NameStr(policy->ts_column));
	Form_pg_attribute own = find_attribute(rel, NameStr(policy->ttl_column));

	if (ts != NULL && ts->atttypid != TIMESTAMPTZOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" is of type %s, not timestamp with time zone",
						NameStr(ts->attname), format_type_be(ts->atttypid)),
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
 * Uses of the timestamp column that don't go together with the clock being
 * reset behind the back of an UPDATE: 0A000.
 */
void
ttl_container_check_ts_uses(Relation rel, bool touch_on_update, AttrNumber ts_attno)
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
			bms_is_member(ts, ttl_stored_columns(stringToNode(defval->adbin), desc->natts)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("generated column \"%s\" of container \"%s\" cannot be computed from \"%s\"",
							NameStr(generated->attname), RelationGetRelationName(rel), column),
					 errhint("Use ttl.expires_at() in queries instead.")));
	}

	if (!touch_on_update)
		return;

	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE &&
		bms_is_member(ts, ttl_stored_partition_columns(rel)))
		use = "partition key";
	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if ((index->rd_index->indisunique || index->rd_index->indisexclusion) &&
			bms_is_member(ts, ttl_stored_index_columns(index, rel)))
			use = "unique index";
		index_close(index, AccessShareLock);
	}
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
static void
check_all_ts_uses(Oid relid, const TtlPolicy *policy, LOCKMODE lockmode)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, lockmode))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		AttrNumber	ts_attno = get_attnum(lfirst_oid(lc), NameStr(policy->ts_column));

		if (ts_attno != InvalidAttrNumber)
			ttl_container_check_ts_uses(rel, policy->touch_on_update, ts_attno);
		table_close(rel, NoLock);
	}
}

static void
check_indexing_fits(const TtlPolicy *policy, Oid relid)
{
	if (policy->indexing == TTL_INDEXING_NONE && policy->default_ttl != TTL_OFF)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("container \"%s\" cannot have a default TTL without an expiry index",
						get_rel_name(relid)),
				 errhint("Use indexing => 'consistent'.")));
}

/*
 * What a container's table needs
 */

/* Runs one command of DDL; SPI is connected. */
static void run(const char *format,...) pg_attribute_printf(1, 2);

static void
run(const char *format,...)
{
	StringInfoData sql;
	int			result;

	initStringInfo(&sql);
	for (;;)
	{
		va_list		args;
		int			needed;

		va_start(args, format);
		needed = appendStringInfoVA(&sql, format, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&sql, needed);
	}
	result = SPI_execute(sql.data, false, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s: %s", SPI_result_code_string(result), sql.data);
	pfree(sql.data);
}

/* Begins a piece of work by DDL, with names and literals meaning what they say. */
static int
begin_ddl(void)
{
	int			nestlevel = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("DateStyle", "ISO",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	/* NOTICEs about what we do here are of no use to the caller */
	if (client_min_messages < WARNING)
		(void) set_config_option("client_min_messages", "warning",
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	return nestlevel;
}

static void
end_ddl(int nestlevel)
{
	SPI_finish();
	AtEOXact_GUC(true, nestlevel);
}

/*
 * Says in the catalog that the CHECK constraint holds for all rows, here and
 * in the partitions; it does, as the column was added empty.  To have it
 * validated would scan the table under an exclusive lock.
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
		run("ALTER TABLE %s ADD COLUMN %s %s NOT NULL DEFAULT %s", table, ts, type,
			quote_literal_cstr(DatumGetCString(now)));
	else
		run("ALTER TABLE %s ADD COLUMN %s %s NOT NULL", table, ts, type);
	run("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT clock_timestamp()", table, ts);
}

/*
 * Adds the CHECK on item TTLs.  All rows are known to obey it if the column is
 * new, or if they obey an equal one.
 */
static void
add_check(Oid relid, const char *name, const TtlPolicy *policy, bool is_known, bool validate)
{
	run("ALTER TABLE %s ADD CONSTRAINT %s CHECK (%s)%s", ttl_container_table_name(relid),
		quote_identifier(name), ttl_expiry_check_definition(policy),
		is_known || !validate ? " NOT VALID" : "");
	if (is_known)
		mark_check_valid(relid, name);
}

/*
 * Adds the columns that are missing, the timestamp's default and a CHECK on
 * item TTLs where there is none.  Old rows needn't obey it.
 */
static void
complete_columns(Oid relid, const TtlPolicy *policy, bool add_ts, bool add_ts_default,
				 bool add_own)
{
	char	   *table = ttl_container_table_name(relid);
	const char *ts = quote_identifier(NameStr(policy->ts_column));
	Relation	rel;
	char	   *check;
	bool		validated = true;

	if (add_ts)
		add_ts_column(relid, ts, "timestamptz");
	else if (add_ts_default)
		run("ALTER TABLE %s ALTER COLUMN %s SET DEFAULT clock_timestamp()", table, ts);
	if (NameStr(policy->ttl_column)[0] == '\0')
		return;
	if (add_own)
		run("ALTER TABLE %s ADD COLUMN %s integer", table,
			quote_identifier(NameStr(policy->ttl_column)));

	rel = table_open(relid, NoLock);
	check = ttl_expiry_find_check(rel, policy, &validated);
	table_close(rel, NoLock);
	if (check == NULL)
		add_check(relid,
				  ChooseConstraintName(get_rel_name(relid), NameStr(policy->ttl_column),
									   "check", get_rel_namespace(relid), NIL),
				  policy, add_own, false);
}

/* The type of a column, as DDL takes it */
static char *
type_of(const FormData_pg_attribute *attribute)
{
	return format_type_with_typemod(attribute->atttypid, attribute->atttypmod);
}

void
ttl_container_complete_partition(Oid parent_relid, Oid relid, const TtlPolicy *policy)
{
	Relation	parent = table_open(parent_relid, ShareUpdateExclusiveLock);
	Relation	rel = relation_open(relid, AccessExclusiveLock);
	char		relkind = rel->rd_rel->relkind;
	const char *table = ttl_container_table_name(relid);
	const char *ts_name = quote_identifier(NameStr(policy->ts_column));
	const char *own_name = quote_identifier(NameStr(policy->ttl_column));
	Form_pg_attribute parent_ts = find_attribute(parent, NameStr(policy->ts_column));
	Form_pg_attribute parent_own = find_attribute(parent, NameStr(policy->ttl_column));
	Form_pg_attribute ts = find_attribute(rel, NameStr(policy->ts_column));
	Form_pg_attribute own = find_attribute(rel, NameStr(policy->ttl_column));
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
		if (own != NULL)
			(void) ttl_expiry_find_check(rel, policy, &is_known);
		else if (parent_own->attgenerated == '\0')
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

	nestlevel = begin_ddl();
	if (add_ts != NULL)
		add_ts_column(relid, ts_name, add_ts);
	if (add_not_null)
		run("ALTER TABLE %s ALTER COLUMN %s SET NOT NULL", table, ts_name);
	if (add_own != NULL)
		run("ALTER TABLE %s ADD COLUMN %s %s", table, own_name, add_own);
	if (check != NULL && !OidIsValid(get_relation_constraint_oid(relid, check, true)))
		add_check(relid, check, policy, is_known, validate);
	end_ddl(nestlevel);
	check_all_ts_uses(relid, policy, AccessExclusiveLock);
}

/*
 * Creates the expiry indexes that are missing, of all partitions at once or of
 * one that lacks it.  It doesn't take the place of an invalid one: that may be
 * the work of hours that lacks one ATTACH.
 */
static void
complete_indexes(Oid relid, const TtlPolicy *policy)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, ShareLock))
	{
		TtlExpiryIndexes indexes;
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		ttl_expiry_find_indexes(rel, policy, NIL, &indexes);
		table_close(rel, NoLock);
		for (int i = 0; i < TTL_INDEXES; i++)
		{
			TtlIndexDefinition definition;

			if (!indexes.needed[i] || OidIsValid(indexes.usable[i]))
				continue;
			ttl_expiry_refuse_unusable(lfirst_oid(lc), policy, i);
			(void) ttl_expiry_index_definition(policy, i, &definition);
			run("CREATE INDEX ON %s (%s)%s%s", ttl_container_table_name(lfirst_oid(lc)), definition.key,
				definition.predicate ? " WHERE " : "",
				definition.predicate ? definition.predicate : "");
		}
	}
}

/*
 * Drops the expiry indexes.  One on the timestamp column alone may serve other
 * purposes, and stays.
 */
static void
drop_indexes(Oid relid, const TtlPolicy *policy)
{
	AttrNumber	ts_attno;
	AttrNumber	ttl_attno;
	Relation	rel;
	TtlExpiryIndexes indexes;

	/* without the columns there are none */
	if (!ttl_container_find_columns(relid, policy, &ts_attno, &ttl_attno))
		return;
	rel = table_open(relid, AccessExclusiveLock);
	ttl_expiry_find_indexes(rel, policy, NIL, &indexes);
	table_close(rel, NoLock);

	for (int i = 0; i < TTL_INDEXES; i++)
	{
		TtlIndexDefinition definition;

		if (OidIsValid(indexes.usable[i]) &&
			ttl_expiry_index_definition(policy, i, &definition) &&
			definition.predicate != NULL)
			run("DROP INDEX %s", ttl_container_table_name(indexes.usable[i]));
	}
}

bool
ttl_container_has_trigger(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	TriggerDesc *triggers = rel->trigdesc;
	const TtlObjects *objects = ttl_container_objects();
	bool		found = false;

	for (int i = 0; objects != NULL && triggers != NULL && i < triggers->numtriggers && !found; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		found = strcmp(trigger->tgname, TTL_TRIGGER) == 0 &&
			get_func_namespace(trigger->tgfoid) == objects->schema &&
			trigger->tgtype == (TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_ROW | TRIGGER_TYPE_INSERT) &&
			trigger->tgqual == NULL;
	}
	table_close(rel, NoLock);
	return found;
}

void
ttl_container_enable_trigger(Oid relid)
{
	int			nestlevel = begin_ddl();

	if (!ttl_container_has_trigger(relid))
		run("CREATE TRIGGER \"%s\" BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION ttl.on_write()",
			TTL_TRIGGER, ttl_container_table_name(relid));
	/* logical replication has to free keys, too */
	run("ALTER TABLE %s ENABLE ALWAYS TRIGGER \"%s\"", ttl_container_table_name(relid), TTL_TRIGGER);
	end_ddl(nestlevel);
}

/* Rows that a change makes expired are counted as far as this. */
#define COUNTED_ROWS	10000

/*
 * Tells how many stored rows of the container expire because the default TTL was
 * another one before, and how long they may be had back.
 */
static void
tell_made_expired(Oid relid, const TtlPolicy *policy, int32 old_default)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz begin = now + ttl_guc_grace * USECS_PER_SEC;
	TimestampTz earliest;
	int64		count;
	int64		seconds;
	bool		complete;

	if (!ttl_policy_is_shorter(policy->default_ttl, old_default))
		return;
	count = ttl_expiry_count_made_expired(relid, old_default, COUNTED_ROWS + 1, &complete,
										  &earliest);
	if (count == 0 && complete)
		return;
	if (count > 0 && !pg_add_s64_overflow(earliest, policy->reap_delay, &earliest))
		begin = Max(begin, earliest);
	seconds = (begin - now + USECS_PER_SEC - 1) / USECS_PER_SEC;

	ereport(NOTICE,
			(count > COUNTED_ROWS ?
			 errmsg("more than %d stored rows of container \"%s\" expire by this change",
					COUNTED_ROWS, get_rel_name(relid)) :
			 !complete ?
			 errmsg("at least %lld stored rows of container \"%s\" expire by this change",
					(long long) count, get_rel_name(relid)) :
			 errmsg_plural("%lld stored row of container \"%s\" expires by this change",
						   "%lld stored rows of container \"%s\" expire by this change",
						   (unsigned long) count, (long long) count, get_rel_name(relid)),
			 !ttl_guc_reaper ?
			 errdetail("Nothing is deleted as long as \"%s\" is off.", "ttl.reaper") :
			 !policy->reaping ?
			 errdetail("Nothing is deleted as long as reaping is off.") :
			 errdetail_plural("The reaper begins to delete them %lld second after the change is committed.",
							  "The reaper begins to delete them %lld seconds after the change is committed.",
							  (unsigned long) seconds, (long long) seconds),
			 errhint("Until they are deleted, ttl.set_default_ttl(..., %s) brings them back.",
					 ttl_policy_default_ttl_text(old_default))));
}

/*
 * Tells about foreign keys that will keep expired rows from being deleted: those
 * without an action, for an application may see to that itself (Django does),
 * and know nothing of rows that expire.
 */
static void
tell_about_references(Oid relid)
{
	List	   *tables = NIL;
	StringInfoData names;
	ListCell   *lc;

	/* a foreign key may reference a partition */
	foreach(lc, find_all_inheritors(relid, AccessShareLock, NULL))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		TriggerDesc *triggers = rel->trigdesc;

		for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
		{
			Trigger    *trigger = &triggers->triggers[i];

			if (trigger->tgfoid == F_RI_FKEY_NOACTION_DEL ||
				trigger->tgfoid == F_RI_FKEY_RESTRICT_DEL)
				tables = list_append_unique_oid(tables, trigger->tgconstrrelid);
		}
		table_close(rel, NoLock);
	}

	initStringInfo(&names);
	foreach(lc, tables)
	{
		TtlContainer container;

		if (!ttl_container_lookup(lfirst_oid(lc), &container))
			appendStringInfo(&names, "%s\"%s\"", names.len > 0 ? ", " : "",
							 get_rel_name(lfirst_oid(lc)));
	}
	if (names.len > 0)
		ereport(NOTICE,
				(errmsg("expired rows of container \"%s\" stay stored as long as others reference them",
						get_rel_name(relid)),
				 errdetail("These tables reference it with ON DELETE NO ACTION or RESTRICT: %s.",
						   names.data),
				 errhint("Use ON DELETE CASCADE or SET NULL, or register these tables as containers, too.")));
}

/*
 * The functions
 */

PG_FUNCTION_INFO_V1(ttl_create_container);

/*
 * ttl.create_container(container regclass, default_ttl integer, ts_column name,
 *						ttl_column name, indexing text, touch_on_update boolean)
 *
 * Registers a table as a container; see SPEC 5.  default_ttl is in seconds, -1
 * = never, NULL = TTL is off; ttl_column NULL = rows have no TTL of their own.
 *
 * Errors: 42501 not the owner, 42710 a container already, 42809 or 0A000 no
 * table that could be one, 42804 a column of another type, 22023 a bad value,
 * 55000 a default TTL without index.
 */
Datum
ttl_create_container(PG_FUNCTION_ARGS)
{
	Oid			relid = changed_container_argument(fcinfo, "ttl.create_container()");
	TtlPolicy	policy = {
		.default_ttl = default_ttl_argument(fcinfo, 1),
		.indexing = indexing_argument(fcinfo, 4),
		.touch_on_update = boolean_argument(fcinfo, 5, "touch_on_update"),
		.reaping = true
	};
	TtlPolicy	existing;
	Relation	rel;
	Form_pg_attribute ts;
	bool		add_ts;
	bool		add_ts_default;
	bool		add_own;
	int			nestlevel;

	if (!PG_ARGISNULL(2))
		policy.ts_column = *PG_GETARG_NAME(2);
	if (!PG_ARGISNULL(3))
	{
		policy.ttl_column = *PG_GETARG_NAME(3);
		if (NameStr(policy.ttl_column)[0] == '\0')
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("ttl_column must not be empty"),
					 errhint("Use NULL for a container whose rows have no TTL of their own.")));
	}
	check_column_names(&policy);
	check_indexing_fits(&policy, relid);

	/* Don't let somebody without rights queue up for a lock. */
	ttl_container_check_owner(relid);
	rel = relation_open(relid, AccessShareLock);
	check_kind(rel);
	relation_close(rel, AccessShareLock);

	/* ALTER TABLE will want it; to upgrade a weaker lock invites deadlock. */
	rel = table_open(relid, AccessExclusiveLock);
	ttl_container_check_owner(relid);
	if (ttl_container_read(relid, &existing))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("\"%s\" is a container already", RelationGetRelationName(rel)),
				 errhint("Use ttl.set_default_ttl() or ttl.alter_container() to change it.")));
	check_kind(rel);
	if (OidIsValid(get_trigger_oid(relid, TTL_TRIGGER, true)) &&
		!ttl_container_has_trigger(relid))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" has another trigger named \"%s\"",
						RelationGetRelationName(rel), TTL_TRIGGER),
				 errhint("Rename the trigger.")));
	check_columns(rel, &policy);
	check_all_ts_uses(relid, &policy, AccessExclusiveLock);
	ts = find_attribute(rel, NameStr(policy.ts_column));
	add_ts = ts == NULL;
	/* if it isn't that of modification, the application gives it */
	add_ts_default = ts != NULL && !ts->atthasdef &&
		(policy.touch_on_update || !ts->attnotnull);
	add_own = NameStr(policy.ttl_column)[0] != '\0' &&
		find_attribute(rel, NameStr(policy.ttl_column)) == NULL;
	CheckTableNotInUse(rel, "create_container");
	table_close(rel, NoLock);

	nestlevel = begin_ddl();
	complete_columns(relid, &policy, add_ts, add_ts_default, add_own);
	if (policy.indexing != TTL_INDEXING_NONE)
		complete_indexes(relid, &policy);
	end_ddl(nestlevel);
	ttl_container_enable_trigger(relid);
	if (policy.default_ttl != TTL_OFF && ttl_container_has_pages(relid))
		ttl_container_note_former(&policy, TTL_OFF);
	ttl_container_insert(relid, &policy);
	tell_about_references(relid);
	tell_made_expired(relid, &policy, TTL_OFF);

	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(ttl_set_default_ttl);

/*
 * ttl.set_default_ttl(container regclass, default_ttl integer)
 *
 * Seconds, -1 = never, NULL = TTL is off: then all rows that are not deleted
 * are visible again.  In force with the next statement of every session.
 *
 * Errors: 42501, 42704 not a container, 22023, 55000 no expiry index.
 */
Datum
ttl_set_default_ttl(PG_FUNCTION_ARGS)
{
	Oid			relid = changed_container_argument(fcinfo, "ttl.set_default_ttl()");
	int32		default_ttl = default_ttl_argument(fcinfo, 1);
	TtlPolicy	policy;
	int32		old_default;

	ttl_container_check_owned(relid);
	/* first the tables, then the policy: everybody does it in this order */
	if (default_ttl != TTL_OFF)
		(void) ttl_container_tree(relid, AccessShareLock);
	ttl_container_lock_policy(relid, true, true);
	ttl_container_require(relid, &policy);
	old_default = policy.default_ttl;
	policy.default_ttl = default_ttl;
	check_indexing_fits(&policy, relid);

	/* While TTL was off, nobody was kept from dropping an index. */
	if (default_ttl != TTL_OFF)
		ttl_expiry_check_indexes(relid, &policy);
	if (policy.default_ttl != old_default && ttl_container_has_pages(relid))
		ttl_container_note_former(&policy, old_default);
	ttl_container_update(relid, &policy);
	tell_made_expired(relid, &policy, old_default);

	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(ttl_default_ttl);

/*
 * ttl.default_ttl(container regclass) -> integer
 *
 * Seconds, -1 = never, NULL = TTL is off.  Errors: 42501, 42704.
 */
Datum
ttl_default_ttl(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	TtlPolicy	policy;

	ttl_container_check_owner(relid);
	ttl_container_require(relid, &policy);
	if (policy.default_ttl == TTL_OFF)
		PG_RETURN_NULL();
	PG_RETURN_INT32(policy.default_ttl);
}

PG_FUNCTION_INFO_V1(ttl_seconds);

/*
 * ttl.seconds(interval) -> integer
 *
 * The interval as a TTL.  Months and years count as in EXTRACT(epoch FROM ...).
 * Error 22023 unless it is a whole number of seconds from 1 to 2147483647.
 */
Datum
ttl_seconds(PG_FUNCTION_ARGS)
{
	int64		microseconds;

	if (!ttl_policy_microseconds(PG_GETARG_INTERVAL_P(0), &microseconds) ||
		microseconds % USECS_PER_SEC != 0 ||
		microseconds / USECS_PER_SEC < 1 ||
		microseconds / USECS_PER_SEC > PG_INT32_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("interval is not a TTL: %s",
						DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(0)))),
				 errdetail("A TTL is a whole number of seconds from 1 to 2147483647.")));
	PG_RETURN_INT32((int32) (microseconds / USECS_PER_SEC));
}

/*
 * Errors unless deleted rows of the container can move to its archive: 42809 it is
 * no table, 22023 it is the container, 42501 the owner may not insert into it,
 * 42703 it has no place for a column.
 */
static void
check_archive(Oid relid, const TtlPolicy *policy)
{
	Oid			archive = policy->archive_to;
	char		relkind = get_rel_relkind(archive);
	TtlContainer container;
	Relation	rel;
	AclResult	result;

	if (relkind == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("archive does not exist")));
	if (relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE &&
		relkind != RELKIND_FOREIGN_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", get_rel_name(archive)),
				 errhint("Only ordinary, partitioned and foreign tables can be archives.")));
	if (get_rel_persistence(archive) == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("temporary table \"%s\" cannot be an archive", get_rel_name(archive)),
				 errdetail("The background worker cannot reach the tables of a session."),
				 errhint("Use an unlogged table.")));
	if (archive == relid ||
		(ttl_container_lookup(archive, &container) && container.container == relid))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("container \"%s\" cannot be its own archive", get_rel_name(relid)),
				 archive != relid ?
				 errdetail("Table \"%s\" is a partition of it.", get_rel_name(archive)) : 0,
				 errhint("Choose another table.")));

	rel = table_open(relid, AccessShareLock);
	result = pg_class_aclcheck(archive, rel->rd_rel->relowner, ACL_INSERT);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, get_relkind_objtype(relkind), get_rel_name(archive));
	(void) ttl_deletion_archive_columns(rel, policy);
	table_close(rel, NoLock);
}

static List *
archive_columns_argument(FunctionCallInfo fcinfo, int n, Oid relid, Oid archive)
{
	List	   *columns = ttl_policy_names_from_array(PG_GETARG_ARRAYTYPE_P(n));

	if (columns != NIL && !OidIsValid(archive))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("container \"%s\" has no archive", get_rel_name(relid)),
				 errhint("Choose one by archive_to.")));
	for (int i = 0; i < list_length(columns); i++)
	{
		for (int j = 0; j < i; j++)
		{
			if (strcmp(list_nth(columns, i), list_nth(columns, j)) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("archive_columns names column \"%s\" more than once",
								(char *) list_nth(columns, i))));
		}
	}
	return columns;
}

PG_FUNCTION_INFO_V1(ttl_alter_container);

/*
 * ttl.alter_container(container regclass, indexing text,
 *					   touch_on_update boolean, reaping boolean,
 *					   reap_delay interval, archive_to regclass,
 *					   archive_columns text[], cycle_cost_limit integer,
 *					   batch_size integer, replication_origin boolean)
 *
 * Changes what is not NULL; archive_to 0 means none, no archive_columns all.
 * Errors: 42501, 42704, 22023, 2BP01 if the expiry indexes would go while there is
 * a default TTL, 0A000 as create_container(), 42703 the archive has no place for a
 * column.
 */
Datum
ttl_alter_container(PG_FUNCTION_ARGS)
{
	Oid			relid = changed_container_argument(fcinfo, "ttl.alter_container()");
	TtlPolicy	policy;
	int			nestlevel;

	ttl_container_check_owned(relid);
	/* first the table, then the policy: everybody does it in this order */
	if (!PG_ARGISNULL(1))
		LockRelationOid(relid, AccessExclusiveLock);
	/* ... and the archive: DROP TABLE must find that it is one */
	if (!PG_ARGISNULL(5) && OidIsValid(PG_GETARG_OID(5)))
		LockRelationOid(PG_GETARG_OID(5), AccessShareLock);
	if (!PG_ARGISNULL(2) && PG_GETARG_BOOL(2))
		(void) ttl_container_tree(relid, ShareUpdateExclusiveLock);
	ttl_container_lock_policy(relid, true, true);
	ttl_container_require(relid, &policy);

	if (!PG_ARGISNULL(1))
	{
		policy.indexing = indexing_argument(fcinfo, 1);
		if (policy.indexing == TTL_INDEXING_NONE && policy.default_ttl != TTL_OFF)
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot give up the expiry indexes of container \"%s\" because it has a default TTL",
							get_rel_name(relid)),
					 errhint("Turn TTL off first with ttl.set_default_ttl(..., NULL).")));
	}
	if (!PG_ARGISNULL(2))
	{
		policy.touch_on_update = PG_GETARG_BOOL(2);
		if (policy.touch_on_update)
			check_all_ts_uses(relid, &policy, NoLock);
	}
	if (!PG_ARGISNULL(3))
		policy.reaping = PG_GETARG_BOOL(3);
	if (!PG_ARGISNULL(4) &&
		(!ttl_policy_microseconds(PG_GETARG_INTERVAL_P(4), &policy.reap_delay) ||
		 policy.reap_delay < 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid reap_delay: %s",
						DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(4)))),
				 errdetail("It must not be negative, nor longer than 292000 years.")));

	if (!PG_ARGISNULL(5))
		policy.archive_to = PG_GETARG_OID(5);
	if (!PG_ARGISNULL(6))
		policy.archive_columns = archive_columns_argument(fcinfo, 6, relid, policy.archive_to);
	if (OidIsValid(policy.archive_to) && (!PG_ARGISNULL(5) || !PG_ARGISNULL(6)))
		check_archive(relid, &policy);
	if (!PG_ARGISNULL(7))
		policy.cycle_cost_limit = range_argument(fcinfo, 7, "cycle_cost_limit", PG_INT32_MAX);
	if (!PG_ARGISNULL(8))
		policy.batch_size = range_argument(fcinfo, 8, "batch_size", MAX_BATCH_SIZE);
	if (!PG_ARGISNULL(9))
		policy.replication_origin = PG_GETARG_BOOL(9);

	ttl_container_update(relid, &policy);
	if (!PG_ARGISNULL(1))
	{
		nestlevel = begin_ddl();
		if (policy.indexing == TTL_INDEXING_NONE)
			drop_indexes(relid, &policy);
		else
			complete_indexes(relid, &policy);
		end_ddl(nestlevel);
	}

	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(ttl_drop_container);

/*
 * ttl.drop_container(container regclass, drop_columns boolean)
 *
 * Unregisters a container, with its trigger and expiry indexes.  Its rows stay
 * and become visible; its columns stay unless drop_columns is true.
 *
 * Errors: 42501, 42704.
 */
Datum
ttl_drop_container(PG_FUNCTION_ARGS)
{
	Oid			relid = changed_container_argument(fcinfo, "ttl.drop_container()");
	bool		drop_columns = boolean_argument(fcinfo, 1, "drop_columns");
	TtlPolicy	policy;
	int			nestlevel;
	Relation	rel;

	ttl_container_check_owned(relid);
	rel = table_open(relid, AccessExclusiveLock);
	CheckTableNotInUse(rel, "drop_container");
	table_close(rel, NoLock);
	ttl_container_lock_policy(relid, true, true);
	ttl_container_require(relid, &policy);
	ttl_container_delete(relid);
	ereport(LOG,
			(errmsg("role \"%s\" has made container %s an ordinary table: default_ttl was %s",
					GetUserNameFromId(GetUserId(), false), ttl_container_table_name(relid),
					ttl_policy_default_ttl_text(policy.default_ttl))));

	nestlevel = begin_ddl();
	drop_indexes(relid, &policy);
	if (ttl_container_has_trigger(relid))
		run("DROP TRIGGER \"%s\" ON %s", TTL_TRIGGER, ttl_container_table_name(relid));
	if (drop_columns)
	{
		run("ALTER TABLE %s DROP COLUMN %s", ttl_container_table_name(relid),
			quote_identifier(NameStr(policy.ts_column)));
		if (NameStr(policy.ttl_column)[0] != '\0')
			run("ALTER TABLE %s DROP COLUMN %s", ttl_container_table_name(relid),
				quote_identifier(NameStr(policy.ttl_column)));
	}
	end_ddl(nestlevel);

	PG_RETURN_VOID();
}
