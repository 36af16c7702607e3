/*-------------------------------------------------------------------------
 *
 * create.c
 *	  ttl.create_container() and ttl.create_ttl_index(): a table becomes a container.
 *
 * Like the functions that alter it (alter.c), they check arguments and rights, make
 * the columns, indexes and trigger that a container needs (table.c), and leave the rest to
 * policy.c.  Tables are changed by ordinary DDL, as the calling user, who
 * owns the table or is a superuser.  Nothing rewrites or scans a table, but for the
 * building of an expiry index that isn't there yet.
 *
 * The table may have columns with values in them.  Before they decide which rows expire, the
 * first rows are surveyed: to refuse columns that no argument names, and to show what those hold
 * that are named.  They are read by a query, which runs as foreign keys' queries do: by the
 * rights of the table's owner, whatever policies of row-level security the table has.  Partitions
 * are read with it.  The query calls functions of PostgreSQL's and of ttl alone, on types of
 * PostgreSQL's; what else the planner may evaluate (indexes' expressions) is code of the owner's, and
 * runs as he in a security-restricted operation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "citus/citus.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "own_sql.h"
#include "pgtime.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

/*
 * The survey
 */

/* What the first rows hold in a column of the policy */
typedef struct SurveyedColumn
{
	const TtlType *ttl_type;	/* NULL if there is no such column */
	bool		complete;		/* these were all */
	int64		rows;
	int64		values;			/* that are not NULL */
	int64		invalid;		/* without a meaning */
	int64		future;			/* later than now */
	int64		like;			/* the unit that numbers look like, by their
								 * magnitude */
	char	   *least;			/* the range of values */
	char	   *greatest;
} SurveyedColumn;

/*
 * Rows that are read at most, and pages of each table: the last page of a bloated one may hold the first
 * row, and the caller holds an exclusive lock.
 */
#define MAX_ROWS	10000
#define MAX_PAGES	1000

/* The SQL of what a value means, an instant or seconds; NULL if it has no meaning */
static const char *
meaning_sql(const char *name, const TtlType *ttl_type)
{
	if (ttl_type->type == TIMESTAMPTZOID)
		return name;
	if (ttl_type->type == TIMESTAMPOID)
		return psprintf("%s AT TIME ZONE 'UTC'", name);
	if (ttl_type->seconds != NULL)
		return psprintf("ttl.item_ttl(%s)", name);
	if (ttl_type->type == DATEOID)
		return psprintf("ttl.instant(%s)", name);
	return psprintf("ttl.instant(%s, '%s')", name, ttl_type_unit_name(ttl_type->unit));
}

/*
 * A document has a value if it has a TTL.  Numbers look like the unit of their median: below 10^9
 * they are durations, from 10^17 on nanoseconds since 1970.
 */
static char *
survey_sql(Oid relid, const char *name, const TtlType *ttl_type)
{
	const char *meaning = meaning_sql(name, ttl_type);
	bool		is_number = ttl_type->type == NUMERICOID || ttl_type->type == INT8OID ||
	ttl_type->type == INT4OID;

	return psprintf("SELECT count(*), count(value), count(stored) - count(meaning), "
					"count(*) FILTER (WHERE %s), coalesce(%s, %d)::bigint, "
					"min(value)::text, max(value)::text "
					"FROM (SELECT %s AS value, %s AS stored, %s AS meaning FROM %s "
					"WHERE ctid < '(%d,0)' LIMIT %d) AS r",
					ttl_type->seconds != NULL ? "false" :
					"isfinite(meaning) AND meaning > clock_timestamp() + interval '1 s'",
					!is_number ? "NULL" :
					"width_bucket(percentile_disc(0.5) WITHIN GROUP (ORDER BY value)::numeric, '{1e9, 1e11, 1e14, 1e17}')",
					ttl_type->unit,
					ttl_type->is_document ? meaning : name,
					ttl_type->is_document ? psprintf("%s -> 'ttl'", name) : name,
					meaning, ttl_container_table_name(relid), MAX_PAGES, MAX_ROWS);
}

/* Column n of the only row of the query's result, a bigint that isn't NULL */
static int64
result_number(int n)
{
	bool		isnull;

	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, n, &isnull));
}

/* The same of any type as text, in that context; or NULL */
static char *
result_text(int n, MemoryContext context)
{
	char	   *text = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, n);

	return text == NULL ? NULL : MemoryContextStrdup(context, text);
}

/* True if no table of it has more pages than are read. */
static bool
is_small(Oid relid)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(relid, NoLock, NULL))
	{
		Relation	rel = relation_open(lfirst_oid(lc), NoLock);
		bool		is_larger = RELKIND_HAS_STORAGE(rel->rd_rel->relkind) && RelationGetNumberOfBlocks(rel) > MAX_PAGES;

		relation_close(rel, NoLock);
		if (is_larger)
			return false;
	}
	return true;
}

/* Surveys a column of a table that the caller has locked, unless Citus stores its rows elsewhere. */
static void
survey_column(Relation rel, const char *name, TtlUnit unit, SurveyedColumn *column)
{
	Oid			relid = RelationGetRelid(rel);
	Form_pg_attribute attribute = ttl_table_find_column(rel, name);
	MemoryContext context = CurrentMemoryContext;
	TtlSqlContext saved;
	TtlSqlContext saved_user;
	SPIPlanPtr	plan;
	char	   *sql;

	memset(column, 0, sizeof(SurveyedColumn));
	if (attribute == NULL)
		return;
	column->ttl_type = ttl_type_of(attribute->atttypid, unit);
	if (ttl_citus_is_distributed(relid))
	{
		column->complete = ttl_citus_is_empty(relid);
		return;
	}

	/*
	 * names are resolved as the user, who may use schema ttl; values are read
	 * by the owner's code
	 */
	ttl_sql_begin(InvalidOid, TTL_SQL_STEP | TTL_SQL_SAFE_PATH | TTL_SQL_NOFORCE_RLS, &saved);
	/* a sequential scan would read the pages that the condition leaves out */
	ttl_sql_set("enable_seqscan", "off");
	ttl_sql_set("enable_tidscan", "on");
	sql = survey_sql(relid, quote_identifier(name), column->ttl_type);
	plan = SPI_prepare(sql, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s: %s", SPI_result_code_string(SPI_result), sql);
	ttl_sql_begin(ttl_container_owner(relid), TTL_SQL_RESTRICTED | TTL_SQL_NOFORCE_RLS, &saved_user);
	if (SPI_execute_snapshot(plan, NULL, NULL, GetLatestSnapshot(), InvalidSnapshot,
							 true, false, 0) != SPI_OK_SELECT || SPI_processed != 1)
		elog(ERROR, "unexpected result of query: %s", sql);
	column->rows = result_number(1);
	column->complete = column->rows < MAX_ROWS && is_small(relid);
	column->values = result_number(2);
	column->invalid = result_number(3);
	column->future = result_number(4);
	column->like = result_number(5);
	column->least = result_text(6, context);
	column->greatest = result_text(7, context);
	ttl_sql_end(&saved_user);
	ttl_sql_end(&saved);
}

/* How many of the rows have a value, and from what to what, as a sentence */
static char *
survey_text(const SurveyedColumn *column)
{
	return psprintf(column->complete ? _("%lld of %lld rows have a value, from %s to %s.") :
					_("%lld of the first %lld rows have a value, from %s to %s."),
					(long long) column->values, (long long) column->rows,
					column->least, column->greatest);
}

/* Warns if most numbers in the column look as if they were in another unit. */
static void
warn_of_magnitude(const char *name, const SurveyedColumn *column, TtlUnit unit,
				  const char *argument)
{
	if (column->like != unit)
		ereport(WARNING,
				(unit == TTL_UNIT_SECONDS ?
				 errmsg("values of column \"%s\" look like times since 1970, and are taken as durations in seconds",
						name) :
				 errmsg("values of column \"%s\" do not look like times in unit \"%s\"",
						name, ttl_type_unit_name(unit)),
				 column->like != TTL_UNIT_SECONDS ?
				 errhint("If they are, use %s => '%s'.", argument, ttl_type_unit_name(column->like)) :
				 errdetail("Numbers so small are times long past.")));
}

/* Reports the values in an adopted timestamp column, and warns if they look like something else. */
static void
notice_adopted_ts(const char *table, const TtlPolicy *policy, const SurveyedColumn *column)
{
	const char *name = NameStr(policy->ts_column);

	if (column->values == 0)
		return;
	ereport(NOTICE,
			(errmsg("column \"%s\" of table \"%s\" is taken as the time of each row's last change",
					name, table),
			 errdetail_internal("%s", survey_text(column))));
	warn_of_magnitude(name, column, policy->ts_unit, "ts_unit");
	if (column->future > 0)
		ereport(WARNING,
				(errmsg("column \"%s\" of table \"%s\" holds times in the future", name, table),
				 policy->ts_unit == TTL_UNIT_SECONDS ?
				 errhint("If it says when each row expires, use ts_column => NULL, ttl_column => %s.",
						 quote_literal_cstr(name)) :
				 errhint("If it says when each row expires, use ts_column => NULL, ttl_column => %s, ttl_unit => '%s'.",
						 quote_literal_cstr(name), ttl_type_unit_name(policy->ts_unit))));
}

/* The same of a TTL column; and how many of its values are no TTL. */
static void
notice_adopted_ttl(const char *table, const TtlPolicy *policy, const SurveyedColumn *column)
{
	const char *name = NameStr(policy->ttl_column);

	if (column->values > 0)
	{
		ereport(NOTICE,
				(ttl_type_is_deadline(column->ttl_type) ?
				 errmsg("column \"%s\" of table \"%s\" is taken as when each row expires",
						name, table) :
				 errmsg("column \"%s\" of table \"%s\" is taken as each row's own TTL",
						name, table),
				 errdetail_internal("%s", survey_text(column))));
		warn_of_magnitude(name, column, policy->ttl_unit, "ttl_unit");
	}
	if (column->invalid > 0)
		ereport(NOTICE,
				(errmsg("%lld of %lld rows of container \"%s\" have a value in column \"%s\" that is no TTL",
						(long long) column->invalid, (long long) column->rows, table, name),
				 column->ttl_type->is_strict ?
				 errdetail("They never expire.") : errdetail("The default TTL applies to them."),
				 policy->ttl_unit != TTL_UNIT_SECONDS ? 0 :
				 errhint("A TTL is a whole number of seconds from 1 to 2147483647, or -1 for never.")));
}

/* True if a time zone is that of UTC, by whatever name. */
static bool
is_utc(const char *name)
{
	pg_tz	   *zone = pg_tzset(name);
	long		offset;

	return zone != NULL && pg_get_timezone_offset(zone, &offset) && offset == 0;
}

/*
 * Reports that the column has no time zone: it is taken as UTC, and a WARNING says so if
 * the server's is another.
 *
 * The time zone of the others is what this session had at its start.
 */
static void
notice_utc(Oid relid, const char *column)
{
	AttrNumber	attno = get_attnum(relid, column);
	const char *zone = GetConfigOptionResetString("TimeZone");

	if (attno == InvalidAttrNumber || get_atttype(relid, attno) != TIMESTAMPOID)
		return;
	if (!is_utc(zone))
		ereport(WARNING,
				(errmsg("column \"%s\" of type timestamp without time zone is taken as UTC", column),
				 errdetail("The server's time zone is \"%s\", and values that it converts to the column's type are local time.",
						   zone),
				 errhint("Use ttl.drop_container() and ALTER TABLE ... ALTER COLUMN %s TYPE timestamptz, with USING %s AT TIME ZONE 'UTC' if that is what its values are in, and register the table again.",
						 quote_identifier(column), quote_identifier(column))));
	else
		ereport(NOTICE,
				(errmsg("column \"%s\" of type timestamp without time zone is taken as UTC", column)));
}

/* A column that could be the timestamp column of the policy in place of the one that was added */
static const char *
find_clock(TupleDesc desc, const TtlPolicy *policy)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);
		const char *name = NameStr(column->attname);

		if (!column->attisdropped && column->atttypid == TIMESTAMPTZOID &&
			strcmp(name, NameStr(policy->ts_column)) != 0 &&
			strcmp(name, NameStr(policy->ttl_column)) != 0)
			return pstrdup(name);
	}
	return NULL;
}

/*
 * Reports that the rows that a table has count from now, for the timestamp column was added,
 * and which column may hold it.
 */
static void
notice_new_life(Oid relid, const TtlPolicy *policy)
{
	Relation	rel = table_open(relid, NoLock);
	const char *clock = find_clock(RelationGetDescr(rel), policy);

	table_close(rel, NoLock);
	ereport(NOTICE,
			(errmsg("existing rows of table \"%s\" count as changed now", get_rel_name(relid)),
			 errdetail("Column \"%s\" was added.", NameStr(policy->ts_column)),
			 clock == NULL ? 0 :
			 errhint("If column \"%s\" holds when each row was changed, use ttl.drop_container() and register the table with ts_column => %s.",
					 clock, quote_literal_cstr(clock))));
}

/*
 * The functions
 */

/* A column whose name differs from that one in double quotes or in case alone, or NULL */
static const char *
find_similar_column(TupleDesc desc, const char *name)
{
	size_t		length = strlen(name);

	if (length > 1 && name[0] == '"' && name[length - 1] == '"')
		name = pnstrdup(name + 1, length - 2);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (!column->attisdropped && pg_strcasecmp(NameStr(column->attname), name) == 0)
			return NameStr(column->attname);
	}
	return NULL;
}

/* Errors (42703) if the relation lacks the column that an argument names. */
static void
require_column(Relation rel, const char *name, const char *argument, const char *default_name)
{
	const char *similar;

	if (ttl_table_find_column(rel, name) != NULL)
		return;
	similar = find_similar_column(RelationGetDescr(rel), name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of table \"%s\" does not exist", name,
					RelationGetRelationName(rel)),
			 similar != NULL ?
			 errhint("Use %s => %s: the name as the catalog has it, without double quotes.",
					 argument, quote_literal_cstr(similar)) :
			 errhint("Create it with ALTER TABLE ... ADD COLUMN, or leave out %s to have column \"%s\" added.",
					 argument, default_name)));
}

/*
 * Errors (42701) if a column that no argument names may hold values: they may mean
 * something else.
 */
static void
refuse_values(Relation rel, const SurveyedColumn *column, const char *argument,
			  const char *default_name, const char *otherwise)
{
	if (column->ttl_type == NULL ||
		(column->complete && column->values == 0 && column->invalid == 0))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_COLUMN),
			 errmsg("column \"%s\" of table \"%s\" already exists and may hold values",
					default_name, RelationGetRelationName(rel)),
			 column->values > 0 ? errdetail("%s", survey_text(column)) : 0,
			 errhint("Use %s => '%s' to take them as %s.", argument, default_name, otherwise)));
}

/* Says that the table is a container already. */
static void
notice_existing(Oid relid)
{
	ereport(NOTICE,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("\"%s\" is already a container, skipping", get_rel_name(relid))));
}

/*
 * A column that the caller names must be there; one that he doesn't is added, or must
 * hold no values.  False with if_not_exists if the table is already a container, maybe of
 * another session that has been waited for.
 */
static bool
register_container(Oid relid, TtlPolicy *policy, bool names_ts, bool names_ttl,
				   bool if_not_exists)
{
	TtlPolicy	existing;
	TtlPolicy	stamped = *policy;
	SurveyedColumn ts;
	SurveyedColumn own;
	Relation	rel;
	TtlSqlContext saved;

	/*
	 * A role without rights must not queue up for a lock, nor anybody for one
	 * on a catalog, or with a policy that can't be.  Whether ttl writes the
	 * timestamp column is known later.
	 */
	ttl_container_check_owner(relid);
	stamped.created_objects |= TTL_CREATED_TS_DEFAULT;
	ttl_table_check_policy(relid, &stamped);
	rel = ttl_container_open(relid, AccessShareLock);
	ttl_table_check_kind(rel);
	relation_close(rel, AccessShareLock);

	/* ALTER TABLE will want it; to upgrade a weaker lock invites deadlock. */
	rel = ttl_container_open(relid, AccessExclusiveLock);
	ttl_container_check_owner(relid);
	if (ttl_policy_read(relid, &existing))
	{
		if (if_not_exists)
		{
			table_close(rel, NoLock);
			return false;
		}
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("\"%s\" is already a container", RelationGetRelationName(rel)),
				 errhint("Use ttl.set_default_ttl() or ttl.alter_container() to change it.")));
	}
	ttl_table_check_kind(rel);
	ttl_table_check_storage(ttl_container_tree(relid, AccessExclusiveLock));
	if (OidIsValid(get_trigger_oid(relid, TTL_TRIGGER, true)) &&
		!ttl_row_trigger_exists(relid))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("table \"%s\" has another trigger named \"%s\"",
						RelationGetRelationName(rel), TTL_TRIGGER),
				 errhint("Rename the trigger.")));
	if (names_ts && NameStr(policy->ts_column)[0] != '\0')
		require_column(rel, NameStr(policy->ts_column), "ts_column", TTL_TS_COLUMN);
	if (names_ttl && NameStr(policy->ttl_column)[0] != '\0')
		require_column(rel, NameStr(policy->ttl_column), "ttl_column", TTL_TTL_COLUMN);
	ttl_table_check_columns(rel, policy);
	survey_column(rel, NameStr(policy->ts_column), policy->ts_unit, &ts);
	survey_column(rel, NameStr(policy->ttl_column), policy->ttl_unit, &own);
	if (!names_ts)
		refuse_values(rel, &ts, "ts_column", TTL_TS_COLUMN,
					  "the time of each row's last change");
	if (!names_ttl)
		refuse_values(rel, &own, "ttl_column", TTL_TTL_COLUMN,
					  "each row's own TTL, or ttl_column => NULL if they mean something else");
	ttl_table_check_uses(relid, policy, NoLock);
	CheckTableNotInUse(rel, "create_container");
	table_close(rel, NoLock);

	ttl_sql_begin(InvalidOid, TTL_SQL_STEP, &saved);
	ttl_table_add_columns(relid, policy);
	ttl_table_comment(relid, policy);
	ttl_table_check_policy(relid, policy);
	if (policy->indexing != TTL_INDEXING_NONE)
		ttl_table_create_indexes(relid, policy);
	ttl_sql_end(&saved);
	ttl_table_create_trigger(relid, policy);
	if (policy->default_ttl != TTL_OFF && ttl_container_has_pages(relid))
		ttl_grace_begin(policy, TTL_OFF, InvalidOid);
	ttl_policy_insert(relid, policy);
	ttl_ddl_subscription_begins(relid, ttl_container_tables(relid));
	ttl_container_require(relid, policy);
	notice_adopted_ts(get_rel_name(relid), policy, &ts);
	notice_adopted_ttl(get_rel_name(relid), policy, &own);
	if ((policy->created_objects & TTL_CREATED_TS_COLUMN) &&
		(ttl_container_has_pages(relid) || ttl_table_has_rows_elsewhere(relid)))
		notice_new_life(relid, policy);
	notice_utc(relid, NameStr(policy->ts_column));
	notice_utc(relid, NameStr(policy->ttl_column));
	if (policy->default_ttl == TTL_OFF)
		ttl_notice_without_default(relid, policy);
	ttl_notice_made_expired(relid, policy, TTL_OFF);
	return true;
}

/* The name of a column by an argument: empty = the default; returns whether one is given. */
static bool
column_argument(FunctionCallInfo fcinfo, int n, const char *default_name, NameData *name)
{
	if (PG_ARGISNULL(n))
		return true;
	*name = *PG_GETARG_NAME(n);
	if (NameStr(*name)[0] != '\0')
		return true;
	namestrcpy(name, default_name);
	return false;
}

PG_FUNCTION_INFO_V1(ttl_create_container);

/*
 * ttl.create_container(container regclass, default_ttl anycompatible, ts_column name,
 *						ttl_column name, indexing text, touch_on_update boolean,
 *						ttl_unit text, ts_unit text, ts_precision interval,
 *						if_not_exists boolean)
 *
 * Registers a table as a container.  default_ttl is in seconds or an interval of them,
 * -1 = never, NULL = TTL is off; ttl_column NULL = rows have no TTL of their own;
 * ts_column NULL = they have deadlines alone, in ttl_column.  With a unit numbers are
 * instants.  A name that is left out, the empty one, is that of a column which is added, or
 * which holds no values.
 *
 * Errors: 42501 not the owner, or the owner may not read the table, 42710 already a container, 42809 or 0A000 no
 * table that could be one, 42701 a column holds values that no argument names, 42703
 * one that is named isn't there, 42804 a column of another type, 22023 a bad value,
 * 55000 a default TTL without index.
 */
Datum
ttl_create_container(PG_FUNCTION_ARGS)
{
	Oid			relid = ttl_argument_container(fcinfo, "ttl.create_container()");
	TtlPolicy	existing;
	TtlPolicy	policy;
	bool		names_ts;
	bool		names_ttl;
	bool		if_not_exists;

	ttl_policy_init(&policy);
	policy.default_ttl = ttl_argument_default_ttl(fcinfo);
	names_ts = column_argument(fcinfo, 2, TTL_TS_COLUMN, &policy.ts_column);
	names_ttl = column_argument(fcinfo, 3, TTL_TTL_COLUMN, &policy.ttl_column);
	(void) ttl_argument_settings(fcinfo, &policy);
	if_not_exists = ttl_argument_boolean(fcinfo, 9, "if_not_exists");
	ttl_container_check_owner(relid);
	/* one that is there already needn't be locked */
	if ((if_not_exists && ttl_policy_read(relid, &existing)) ||
		!register_container(relid, &policy, names_ts, names_ttl, if_not_exists))
		notice_existing(relid);

	PG_RETURN_VOID();
}

/* Creates a table of documents, as the calling user. */
static Oid
create_collection(RangeVar *name)
{
	Oid			schema = RangeVarGetCreationNamespace(name);
	TtlSqlContext saved;

	ttl_sql_begin(InvalidOid, TTL_SQL_STEP, &saved);
	ttl_command_run("CREATE TABLE %s ("
					"id pg_catalog.uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(), "
					"doc pg_catalog.jsonb, "
					"%s timestamp with time zone NOT NULL DEFAULT pg_catalog.clock_timestamp(), "
					"%s integer GENERATED ALWAYS AS (ttl.item_ttl(doc)) STORED)",
					quote_qualified_identifier(get_namespace_name(schema), name->relname),
					TTL_TS_COLUMN, TTL_TTL_COLUMN);
	ttl_sql_end(&saved);
	return get_relname_relid(name->relname, schema);
}

/*
 * The table of that name, InvalidOid if there is none.  Each process of an application may ask for
 * its collection when it starts, all at once: where it doesn't exist they wait for each other, so that
 * one creates it and the others find it.  Whoever may create nothing in the schema doesn't make others wait.
 */
static Oid
find_collection(RangeVar *name)
{
	Oid			relid = RangeVarGetRelid(name, NoLock, true);
	Oid			schema;

	if (OidIsValid(relid))
		return relid;
	schema = RangeVarGetCreationNamespace(name);
	if (!DatumGetBool(DirectFunctionCall2(has_schema_privilege_id, ObjectIdGetDatum(schema),
										  CStringGetTextDatum("CREATE"))))
		return InvalidOid;

	/* CREATE TABLE and other DDL in the schema take a weaker lock */
	LockDatabaseObject(NamespaceRelationId, schema, 0, ShareUpdateExclusiveLock);
	return RangeVarGetRelid(name, NoLock, true);
}

/* How many indexes the table has */
static int
count_indexes(Oid relid)
{
	Relation	rel = ttl_container_open(relid, AccessShareLock);
	int			count = list_length(RelationGetIndexList(rel));

	table_close(rel, AccessShareLock);
	return count;
}

PG_FUNCTION_INFO_V1(ttl_create_ttl_index);

/*
 * ttl.create_ttl_index(collection text, expire_after_seconds integer) -> jsonb
 *
 * Makes the collection, the name of a table as SQL has it, expire after so many seconds,
 * -1 = never but for documents with a TTL of their own: registers it as a
 * container, or changes its default TTL if it is one.  Where there is no such table it is
 * created: id uuid, doc jsonb, _ts and ttl, generated from doc.
 *
 * Returns what MongoDB answers: ok, createdCollectionAutomatically, numIndexesBefore,
 * numIndexesAfter.  Errors: 22023 a bad value, 42602 no name, and those of
 * create_container(), set_default_ttl() and CREATE TABLE.
 */
Datum
ttl_create_ttl_index(PG_FUNCTION_ARGS)
{
	int32		default_ttl;
	RangeVar   *name;
	TtlPolicy	existing;
	TtlPolicy	policy;
	Oid			relid;
	bool		created;
	int			before;
	char	   *answer;

	ttl_container_begin_change("ttl.create_ttl_index()");
	ttl_argument_refuse_null(fcinfo, 0, "collection");
	default_ttl = ttl_argument_default_ttl(fcinfo);
	if (default_ttl == TTL_OFF)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 PG_ARGISNULL(1) ? errmsg("expire_after_seconds must not be null") :
				 errmsg("expire_after_seconds must not be \"off\""),
				 errhint("Use ttl.set_default_ttl(..., NULL) to turn TTL off.")));
	name = makeRangeVarFromNameList(textToQualifiedNameList(PG_GETARG_TEXT_PP(0)));
	relid = find_collection(name);
	created = !OidIsValid(relid);
	if (created)
		relid = create_collection(name);
	else
	{
		ttl_container_check_owner(relid);
		ttl_table_check_settable(relid);
	}
	before = count_indexes(relid);
	ttl_policy_init(&policy);
	policy.default_ttl = default_ttl;
	namestrcpy(&policy.ts_column, TTL_TS_COLUMN);
	namestrcpy(&policy.ttl_column, TTL_TTL_COLUMN);

	/*
	 * drop_container() is to drop these columns, which were there before the
	 * registration.  SQL can't say that by create_container(), for which such
	 * columns are their user's: hence this function is in C.
	 */
	if (created)
		policy.created_objects = TTL_CREATED_TS_COLUMN | TTL_CREATED_TTL_COLUMN;
	/* the call names the timestamp column; one that is missing is added */
	if (ttl_policy_read(relid, &existing) ||
		!register_container(relid, &policy,
							get_attnum(relid, TTL_TS_COLUMN) != InvalidAttrNumber,
							false, true))
		ttl_alter_default_ttl(relid, default_ttl);
	answer = psprintf("{\"ok\": 1, \"createdCollectionAutomatically\": %s, "
					  "\"numIndexesBefore\": %d, \"numIndexesAfter\": %d}",
					  created ? "true" : "false", before, count_indexes(relid));
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(answer));
}
