/*-------------------------------------------------------------------------
 *
 * create.c
 *	  ttl.create_container() and ttl.create_ttl_index(): a table becomes a container.
 *
 * Like the functions that alter it (alter.c), they check arguments and rights, make
 * the columns, indexes and trigger that a container needs (table.c), and leave the rest to
 * container.c.  Tables are changed by ordinary DDL, as the calling user, who
 * owns the table or is a superuser.  Nothing rewrites or scans a table, but for the
 * building of an expiry index that isn't there yet.
 *
 * The table may have columns with values in them.  Before they decide which rows expire, the
 * first rows are surveyed: to refuse columns that no argument names, and to show what those hold
 * that are named.  Columns are read as they are stored, and their types are PostgreSQL's
 * own, so no code of the table's owner runs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/tablecmds.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "ttl.h"

/*
 * The survey
 */

/* Rows that are read at most */
#define MAX_ROWS	10000

/* What the first rows hold in a column of the policy */
typedef struct SurveyedColumn
{
	AttrNumber	attno;			/* InvalidAttrNumber if there is no such column */
	const TtlType *ttl_type;	/* NULL = timestamps */
	Oid			type;			/* of the values: of a document they are its TTLs */
	TypeCacheEntry *order;
	int			rows;			/* read */
	bool		complete;		/* these were all */
	int			values;			/* that are not NULL */
	int			invalid;		/* of these, without a meaning */
	int			future;			/* later than now */
	int			like[TTL_UNITS];	/* numbers of that unit, by their magnitude */
	Datum		least;			/* the range of values */
	Datum		greatest;
} SurveyedColumn;

typedef struct Survey
{
	SurveyedColumn ts;
	SurveyedColumn own;
} Survey;

/* Numerics may have thousands of digits. */
#define MAX_DIGITS	32

static void
begin_column(SurveyedColumn *column, Oid relid, AttrNumber attno, const TtlType *ttl_type)
{
	column->attno = attno;
	column->ttl_type = ttl_type;
	if (attno == InvalidAttrNumber)
		return;
	column->type = get_atttype(relid, attno);
	if (ttl_type != NULL && ttl_type->is_document)
		column->type = INT4OID;
	column->order = lookup_type_cache(column->type, TYPECACHE_CMP_PROC_FINFO);
}

static bool
precedes(const SurveyedColumn *column, Datum a, Datum b)
{
	return DatumGetInt32(FunctionCall2(&column->order->cmp_proc_finfo, a, b)) < 0;
}

/* The unit that a number looks like, by its magnitude */
static TtlUnit
unit_like(Oid type, Datum value)
{
	double		number = 0;

	if (type == INT4OID)
		number = DatumGetInt32(value);
	else if (type == INT8OID)
		number = DatumGetInt64(value);
	else if (type == NUMERICOID)
		number = DatumGetFloat8(DirectFunctionCall1(numeric_float8_no_overflow, value));
	if (number >= 1e17)
		return TTL_UNIT_EPOCH_NS;
	if (number >= 1e14)
		return TTL_UNIT_EPOCH_US;
	if (number >= 1e11)
		return TTL_UNIT_EPOCH_MS;
	return number >= 1e9 ? TTL_UNIT_EPOCH : TTL_UNIT_SECONDS;
}

/* Counts a value that is not NULL.  'context' is where the range of values lives. */
static void
add_value(SurveyedColumn *column, Datum value, TimestampTz present, MemoryContext context)
{
	const TtlType *ttl_type = column->ttl_type;
	TimestampTz instant = DT_NOBEGIN;
	MemoryContext old;

	if (ttl_type == NULL)
		instant = DatumGetTimestampTz(value);
	else if (ttl_type_is_invalid(ttl_type, value))
		column->invalid++;
	else if (ttl_type_is_deadline(ttl_type))
		(void) ttl_type_instant(ttl_type, value, &instant);
	if (ttl_type != NULL && ttl_type->is_document)
	{
		/* a document without a TTL has no value */
		value = Int32GetDatum(ttl_type->seconds(value));
		if (DatumGetInt32(value) == 0)
			return;
	}
	column->values++;
	column->like[unit_like(column->type, value)]++;
	if (instant > present && !TIMESTAMP_IS_NOEND(instant))
		column->future++;

	old = MemoryContextSwitchTo(context);
	if (column->values == 1 || precedes(column, value, column->least))
		column->least = datumCopy(value, column->order->typbyval, column->order->typlen);
	if (column->values == 1 || precedes(column, column->greatest, value))
		column->greatest = datumCopy(value, column->order->typbyval, column->order->typlen);
	MemoryContextSwitchTo(old);
}

static char *
value_text(Oid type, Datum value)
{
	Oid			function;
	bool		is_varlena;
	char	   *text;

	getTypeOutputInfo(type, &function, &is_varlena);
	text = OidOutputFunctionCall(function, value);
	return strlen(text) <= MAX_DIGITS ? text : psprintf("%.*s...", MAX_DIGITS, text);
}

/* Reads the rows of a relation, as far as they are wanted; false if there are more. */
static bool
read_relation(Relation rel, const TtlPolicy *policy, Survey *survey)
{
	SurveyedColumn *columns[] = {&survey->ts, &survey->own};
	TtlContainer container;
	AttrNumber	attnos[2];
	TimestampTz present;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = TtlTableBeginScan(rel, snapshot);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "ttl survey",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	bool		complete = true;

	ttl_container_find_columns(RelationGetRelid(rel), policy, &container);
	attnos[0] = container.ts_attno;
	attnos[1] = container.ttl_attno;
	present = ttl_type_round_up(GetCurrentTimestamp(), container.ts_step);
	while (complete && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		complete = survey->ts.rows < MAX_ROWS;
		for (int i = 0; complete && i < lengthof(columns); i++)
		{
			bool		isnull = true;
			Datum		value = 0;

			if (columns[i]->attno != InvalidAttrNumber)
				value = slot_getattr(slot, attnos[i], &isnull);
			if (!isnull)
				add_value(columns[i], value, present, old);
			columns[i]->rows++;
		}
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return complete;
}

/* Reads at most 10000 rows.  The caller has locked the table; its columns may be missing. */
static void
survey_table(Oid relid, const TtlPolicy *policy, Survey *survey)
{
	TtlContainer container;
	bool		complete = !ttl_columns_has_rows_elsewhere(relid);
	ListCell   *lc;

	memset(survey, 0, sizeof(Survey));
	ttl_container_find_columns(relid, policy, &container);
	begin_column(&survey->ts, relid, container.ts_attno, container.ts_type);
	begin_column(&survey->own, relid,
				 container.ttl_type == NULL ? InvalidAttrNumber : container.ttl_attno,
				 container.ttl_type);

	foreach(lc, ttl_container_leaves(relid))
	{
		Relation	rel = table_open(lfirst_oid(lc), AccessShareLock);

		complete = complete && read_relation(rel, policy, survey);
		table_close(rel, NoLock);
	}
	survey->ts.complete = survey->own.complete = complete;
}

/* How many of the rows have a value, and from what to what, as a sentence */
static char *
survey_text(const SurveyedColumn *column)
{
	return psprintf(column->complete ? _("%d of %d rows have a value, from %s to %s.") :
					_("%d of the first %d rows have a value, from %s to %s."),
					column->values, column->rows, value_text(column->type, column->least),
					value_text(column->type, column->greatest));
}

/* Warns if most numbers in the column look as if they were in another unit. */
static void
warn_of_magnitude(const char *name, const SurveyedColumn *column, TtlUnit unit,
				  const char *argument)
{
	for (int other = 0; other < TTL_UNITS; other++)
	{
		if (other != unit && column->like[other] * 2 > column->values)
			ereport(WARNING,
					(unit == TTL_UNIT_SECONDS ?
					 errmsg("values of column \"%s\" look like times since 1970, and are taken as durations in seconds",
							name) :
					 errmsg("values of column \"%s\" do not look like times in unit \"%s\"",
							name, ttl_type_unit_name(unit)),
					 other != TTL_UNIT_SECONDS ?
					 errhint("If they are, use %s => '%s'.", argument, ttl_type_unit_name(other)) :
					 errdetail("Numbers so small are times long past.")));
	}
}

/* Reports the values in adopted columns, and warns if they look like something else. */
static void
notice_adopted(Oid relid, const TtlPolicy *policy, const Survey *survey)
{
	const char *table = get_rel_name(relid);

	if (!(policy->created_objects & TTL_CREATED_TS_COLUMN) && survey->ts.values > 0)
	{
		const char *name = NameStr(policy->ts_column);

		ereport(NOTICE,
				(errmsg("column \"%s\" of table \"%s\" is taken as the time of each row's last change",
						name, table),
				 errdetail_internal("%s", survey_text(&survey->ts))));
		warn_of_magnitude(name, &survey->ts, policy->ts_unit, "ts_unit");
		if (survey->ts.future > 0)
			ereport(WARNING,
					(errmsg("column \"%s\" of table \"%s\" holds times in the future",
							name, table),
					 policy->ts_unit == TTL_UNIT_SECONDS ?
					 errhint("If it says when each row expires, use ts_column => NULL, ttl_column => %s.",
							 quote_literal_cstr(name)) :
					 errhint("If it says when each row expires, use ts_column => NULL, ttl_column => %s, ttl_unit => '%s'.",
							 quote_literal_cstr(name), ttl_type_unit_name(policy->ts_unit))));
	}
	if (!(policy->created_objects & TTL_CREATED_TTL_COLUMN) && survey->own.values > 0)
	{
		const char *name = NameStr(policy->ttl_column);
		TtlContainer container;

		ttl_container_find_columns(relid, policy, &container);
		ereport(NOTICE,
				(ttl_type_is_deadline(container.ttl_type) ?
				 errmsg("column \"%s\" of table \"%s\" is taken as when each row expires",
						name, table) :
				 errmsg("column \"%s\" of table \"%s\" is taken as each row's own TTL",
						name, table),
				 errdetail_internal("%s", survey_text(&survey->own))));
		warn_of_magnitude(name, &survey->own, policy->ttl_unit, "ttl_unit");
	}
}

/* Reports how many of the rows have a value in an adopted TTL column that is no TTL. */
static void
notice_invalid(Oid relid, const TtlPolicy *policy, const Survey *survey)
{
	const char *name = NameStr(policy->ttl_column);
	int			count = survey->own.invalid;
	TtlContainer container;

	if (count == 0)
		return;
	ttl_container_find_columns(relid, policy, &container);
	ereport(NOTICE,
			(!survey->own.complete ?
			 errmsg("at least %d stored rows of container \"%s\" have a value in column \"%s\" that is no TTL",
					count, get_rel_name(relid), name) :
			 errmsg_plural("%d stored row of container \"%s\" has a value in column \"%s\" that is no TTL",
						   "%d stored rows of container \"%s\" have a value in column \"%s\" that is no TTL",
						   count, count, get_rel_name(relid), name),
			 container.ttl_type->is_strict ?
			 errdetail("They never expire.") : errdetail("The default TTL applies to them."),
			 policy->ttl_unit != TTL_UNIT_SECONDS ? 0 :
			 errhint("A TTL is a whole number of seconds from 1 to 2147483647, or -1 for never.")));
}

/*
 * The functions
 */

/* Errors (42703) if the relation lacks the column that an argument names. */
static void
require_column(Relation rel, const char *name, const char *argument, const char *default_name)
{
	if (ttl_columns_find(rel, name) != NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of table \"%s\" does not exist", name,
					RelationGetRelationName(rel)),
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
	if (column->attno == InvalidAttrNumber ||
		(column->complete && column->values == 0 && column->invalid == 0))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_COLUMN),
			 errmsg("column \"%s\" of table \"%s\" already exists and may hold values",
					default_name, RelationGetRelationName(rel)),
			 column->values > 0 ? errdetail("%s", survey_text(column)) : 0,
			 errhint("Use %s => '%s' to take them as %s.", argument, default_name, otherwise)));
}

static void
notice_existing(Oid relid)
{
	ereport(NOTICE,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("\"%s\" is already a container, skipping", get_rel_name(relid))));
}

/* True if a subscription writes the table or a partition of it. */
static bool
is_subscribed(Oid relid)
{
	List	   *tables = ttl_container_subscribed_tables(false);
	ListCell   *lc;

	if (tables == NIL)
		return false;
	/* it may write partitions, or the table above them */
	foreach(lc, ttl_container_tables(relid))
	{
		if (list_member_oid(tables, lfirst_oid(lc)))
			return true;
	}
	return false;
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
	Survey		survey;
	Relation	rel;
	int			nestlevel;

	ttl_columns_check_names(policy);

	/*
	 * A role without rights must not queue up for a lock, nor anybody for one on a catalog, or with
	 * a policy that can't be.  Whether ttl writes the timestamp column is known later.
	 */
	ttl_container_check_owner(relid);
	stamped.created_objects |= TTL_CREATED_TS_DEFAULT;
	ttl_columns_check_policy(relid, &stamped);
	rel = ttl_container_open(relid, AccessShareLock);
	ttl_columns_check_kind(rel);
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
	ttl_columns_check_kind(rel);
	ttl_columns_check_storage(ttl_container_tree(relid, AccessExclusiveLock));
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
	ttl_columns_check(rel, policy);
	survey_table(relid, policy, &survey);
	if (!names_ts)
		refuse_values(rel, &survey.ts, "ts_column", TTL_TS_COLUMN,
					  "the time of each row's last change");
	if (!names_ttl)
		refuse_values(rel, &survey.own, "ttl_column", TTL_TTL_COLUMN,
					  "each row's own TTL, or ttl_column => NULL if they mean something else");
	ttl_columns_check_uses(relid, policy, NoLock);
	CheckTableNotInUse(rel, "create_container");
	table_close(rel, NoLock);

	nestlevel = ttl_command_begin();
	ttl_columns_complete(relid, policy);
	ttl_columns_check_policy(relid, policy);
	if (policy->indexing != TTL_INDEXING_NONE)
		ttl_indexes_complete(relid, policy);
	ttl_command_end(nestlevel);
	ttl_trigger_create(relid, policy);
	if (policy->default_ttl != TTL_OFF && ttl_container_has_pages(relid))
		ttl_grace_begin(policy, TTL_OFF, InvalidOid);
	if (is_subscribed(relid))
		policy->reaping = false;
	ttl_policy_insert(relid, policy);
	if (!policy->reaping)
		ttl_notice_subscribed(relid);
	notice_adopted(relid, policy, &survey);
	if ((policy->created_objects & TTL_CREATED_TS_COLUMN) &&
		(survey.ts.rows > 0 || !survey.ts.complete))
		ttl_notice_new_life(relid, policy);
	ttl_notice_utc(relid, NameStr(policy->ts_column));
	ttl_notice_utc(relid, NameStr(policy->ttl_column));
	notice_invalid(relid, policy, &survey);
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
 * Errors: 42501 not the owner, 42710 already a container, 42809 or 0A000 no
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
	policy.default_ttl = ttl_argument_default_ttl(fcinfo, 1);
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
	int			nestlevel = ttl_command_begin();

	ttl_command_run("CREATE TABLE %s ("
					"id pg_catalog.uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(), "
					"doc pg_catalog.jsonb, "
					"%s timestamp with time zone NOT NULL DEFAULT pg_catalog.clock_timestamp(), "
					"%s integer GENERATED ALWAYS AS (ttl.item_ttl(doc)) STORED)",
					quote_qualified_identifier(get_namespace_name(schema), name->relname),
					TTL_TS_COLUMN, TTL_TTL_COLUMN);
	ttl_command_end(nestlevel);
	return get_relname_relid(name->relname, schema);
}

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

	ttl_container_may_change("ttl.create_ttl_index()");
	ttl_argument_refuse_null(fcinfo, 0, "collection");
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("expire_after_seconds must not be null"),
				 errhint("Use ttl.set_default_ttl(..., NULL) to turn TTL off.")));
	default_ttl = ttl_argument_default_ttl(fcinfo, 1);
	name = makeRangeVarFromNameList(textToQualifiedNameList(PG_GETARG_TEXT_PP(0)));
	relid = RangeVarGetRelid(name, NoLock, true);
	created = !OidIsValid(relid);
	if (created)
		relid = create_collection(name);
	else
	{
		ttl_container_check_owner(relid);
		ttl_trigger_check_settable(relid);
	}
	before = count_indexes(relid);
	ttl_policy_init(&policy);
	policy.default_ttl = default_ttl;
	namestrcpy(&policy.ts_column, TTL_TS_COLUMN);
	namestrcpy(&policy.ttl_column, TTL_TTL_COLUMN);
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
