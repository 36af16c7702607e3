/*-------------------------------------------------------------------------
 *
 * alter.c
 *	  The SQL functions that change a container's policy, or end it.
 *
 * And the arguments of these functions and of those in create.c.
 *
 * They hold the container's policy lock until the transaction ends, so they wait for at
 * most a batch of the reaper.  Tables are locked before the policy, here and
 * everywhere else.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/tablecmds.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "funcapi.h"
#include "guc.h"
#include "miscadmin.h"
#include "own_sql.h"
#include "parser/parse_coerce.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/*
 * Arguments, by their number; errors (22023) if they won't do
 */

/* Errors if an argument is NULL. */
void
ttl_argument_refuse_null(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be null", name)));
}

/* The table that it is to change. */
Oid
ttl_argument_container(FunctionCallInfo fcinfo, const char *function)
{
	ttl_container_begin_change(function);
	ttl_argument_refuse_null(fcinfo, 0, "container");
	ttl_table_check_settable(PG_GETARG_OID(0));
	return PG_GETARG_OID(0);
}

/* Whether a text is that word; a character(n) ends with blanks. */
static bool
is_word(const char *text, const char *word)
{
	size_t		length = strlen(word);

	text += strspn(text, " \t\r\n");
	return pg_strncasecmp(text, word, length) == 0 &&
		text[length + strspn(text + length, " \t\r\n")] == '\0';
}

/*
 * The second argument, a default TTL: a number, an interval, or a text that is one.  A number of
 * seconds as text is an interval, too; and the words that views print for a default TTL are taken.
 */
int32
ttl_argument_default_ttl(FunctionCallInfo fcinfo)
{
	Oid			type = getBaseType(get_fn_expr_argtype(fcinfo->flinfo, 1));
	const TtlType *ttl_type = ttl_type_of(type, TTL_UNIT_SECONDS);
	bool		is_number = ttl_type != NULL && ttl_type->seconds != NULL && !ttl_type->is_document;
	int32		result = 0;
	Oid			output;
	bool		is_varlena;
	char	   *text;
	Datum		interval;

	if (PG_ARGISNULL(1))
		return TTL_OFF;
	if (!is_number && type != INTERVALOID && TypeCategory(type) != TYPCATEGORY_STRING)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("default TTL cannot be of type %s", format_type_be(type)),
				 errhint("Use a number of seconds, an interval, or text.")));
	getTypeOutputInfo(type, &output, &is_varlena);
	text = OidOutputFunctionCall(output, PG_GETARG_DATUM(1));
	if (is_word(text, "-1") || is_word(text, "never"))
		return TTL_NEVER;
	if (is_word(text, "off"))
		return TTL_OFF;
	if (is_number && !(ttl_type->is_strict && ttl_type_is_invalid(ttl_type, PG_GETARG_DATUM(1))))
		result = ttl_type->seconds(PG_GETARG_DATUM(1));
	else if (!is_number && ttl_guc_input(interval_in, text, &interval))
		(void) ttl_policy_seconds(DatumGetIntervalP(interval), &result);
	if (result == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid default TTL: \"%s\"", text),
				 errhint("Use a number of seconds from 1 to 2147483647, an interval of so many, -1 for rows that never expire by default, or NULL to turn TTL off.")));
	return result;
}

/* The name by which an indexing policy is stored that an argument gives */
static Datum
stored_indexing(Datum name)
{
	if (strcmp(TextDatumGetCString(name), "lazy") != 0)
		return name;
	ereport(NOTICE,
			(errmsg("indexing policy \"lazy\" is the same as \"consistent\""),
			 errdetail("Azure Cosmos DB has had a policy of that name.")));
	return CStringGetTextDatum("consistent");
}

/*
 * Sets the settings that arguments of the function give, which have their names and are not NULL,
 * and returns which: their offsets in TtlPolicy.  What gives a default TTL or a column means more,
 * and is the caller's to read.
 */
Bitmapset *
ttl_argument_settings(FunctionCallInfo fcinfo, TtlPolicy *policy)
{
	HeapTuple	function = SearchSysCache1(PROCOID, ObjectIdGetDatum(fcinfo->flinfo->fn_oid));
	Bitmapset  *given = NULL;
	Oid		   *types;
	char	  **names;
	char	   *modes;
	int			n;

	if (!HeapTupleIsValid(function))
		elog(ERROR, "cache lookup failed for function %u", fcinfo->flinfo->fn_oid);
	n = get_func_arg_info(function, &types, &names, &modes);
	ReleaseSysCache(function);
	for (int i = 0; i < n; i++)
	{
		const TtlSetting *setting = ttl_policy_setting(names[i]);

		if (setting == NULL || PG_ARGISNULL(i) ||
			setting->type == TTL_SETTING_TTL || setting->type == TTL_SETTING_NAME)
			continue;
		ttl_policy_set(policy, setting, setting->type == TTL_SETTING_INDEXING ?
					   stored_indexing(PG_GETARG_DATUM(i)) : PG_GETARG_DATUM(i));
		given = bms_add_member(given, setting->offset);
	}
	return given;
}

/* A boolean that must not be NULL */
bool
ttl_argument_boolean(FunctionCallInfo fcinfo, int n, const char *name)
{
	ttl_argument_refuse_null(fcinfo, n, name);
	return PG_GETARG_BOOL(n);
}

/*
 * The functions
 */

/*
 * Locks the table of a container before its policy, as everybody does.  What stops deletion
 * must not wait for DDL that itself waits for readers, so then the lock is taken only if it is
 * free; such DDL waits for the policy later.
 */
static void
lock_table(Oid relid, bool stops_deletion)
{
	if (!ConditionalLockRelationOid(relid, AccessShareLock) && !stops_deletion)
		LockRelationOid(relid, AccessShareLock);
}

/* Locks the policy, and reads it; the table may have been dropped or have another owner by now. */
static void
lock_policy(Oid relid, TtlPolicy *policy)
{
	ttl_policy_lock(relid, true, true);
	ttl_container_check_owner(relid);
	ttl_container_require(relid, policy);
}

/* Does what ttl.set_default_ttl() does. */
void
ttl_alter_default_ttl(Oid relid, int32 default_ttl)
{
	TtlPolicy	policy;
	int32		old_default;

	ttl_container_check_owned(relid);
	ttl_table_lock_distributed(relid, ShareRowExclusiveLock);
	lock_table(relid, default_ttl == TTL_OFF);
	/* before the policy's, for what looks at the indexes of partitions below */
	if (default_ttl != TTL_OFF)
		(void) ttl_container_tree(relid, AccessShareLock);
	lock_policy(relid, &policy);
	old_default = policy.default_ttl;
	policy.default_ttl = default_ttl;
	ttl_table_check_policy(relid, &policy);

	/* An index may have been dropped while TTL was off. */
	if (default_ttl != TTL_OFF)
		ttl_expiry_check_indexes(relid, &policy, TTL_INDEXES);
	/* rows may come until this is committed, also where there are none */
	if (policy.default_ttl != old_default)
		ttl_grace_begin(&policy, old_default, InvalidOid);

	/*
	 * each count is by the policy under which these rows are hidden: the old
	 * one here, the new one below
	 */
	ttl_notice_made_visible(relid, old_default, default_ttl);
	ttl_policy_update(relid, &policy);
	ttl_table_send_policy(relid, &policy);
	ttl_notice_made_expired(relid, &policy, old_default);
}

PG_FUNCTION_INFO_V1(ttl_set_default_ttl);

/*
 * ttl.set_default_ttl(container regclass, default_ttl integer | interval | text)
 *
 * Seconds or an interval of them, -1 = never, NULL = TTL is off: then all rows that
 * are not deleted are visible again.  In force with the next statement of every session.
 *
 * Errors: 42501, 42704 not a container, 22023, 55000 no expiry index.
 */
Datum
ttl_set_default_ttl(PG_FUNCTION_ARGS)
{
	Oid			relid = ttl_argument_container(fcinfo, "ttl.set_default_ttl()");

	ttl_alter_default_ttl(relid, ttl_argument_default_ttl(fcinfo));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(ttl_default_ttl);

/*
 * ttl.default_ttl(container regclass) -> integer
 *
 * Seconds, -1 = never, NULL = TTL is off.  Errors: 42704, 42P01.
 */
Datum
ttl_default_ttl(PG_FUNCTION_ARGS)
{
	Oid			relid = PG_GETARG_OID(0);
	TtlPolicy	policy;

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
	int32		seconds;

	if (!ttl_policy_seconds(PG_GETARG_INTERVAL_P(0), &seconds))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("interval is not a TTL: %s",
						DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(0)))),
				 errdetail("A TTL is a whole number of seconds from 1 to 2147483647.")));
	PG_RETURN_INT32(seconds);
}

/* Errors unless the table has the trigger by which deleted rows go to its archive: that may have come by a restore. */
static void
check_archive_trigger(Oid relid, const TtlPolicy *policy)
{
	TtlContainer container = {.container = relid, .policy = *policy};
	Relation	rel = table_open(relid, NoLock);

	ttl_archive_trigger_check(rel, &container);
	table_close(rel, NoLock);
}

/* Gives the table, which has another archive now or none, the trigger that it needs for it. */
static void
follow_archive(Oid relid, const TtlPolicy *policy)
{
	if (OidIsValid(policy->archive_to))
		ttl_archive_trigger_create(relid);
	else
		ttl_archive_trigger_drop(relid);
}

/* True if arguments of the function give that setting. */
#define IS_GIVEN(field)	bms_is_member(offsetof(TtlPolicy, field), given)

/* Locks the tables that a change concerns, before the policy. */
static void
lock_for_change(Oid relid, const TtlPolicy *wanted, const Bitmapset *given)
{
	/* a default of the timestamp column may have to be altered */
	if (IS_GIVEN(ts_precision) || (IS_GIVEN(indexing) && wanted->indexing == TTL_INDEXING_NONE))
		(void) ttl_container_tree(relid, AccessExclusiveLock);
	else if (IS_GIVEN(indexing))
		(void) ttl_container_tree(relid, ShareLock);
	ttl_table_lock_distributed(relid, ShareRowExclusiveLock);
	/* for the trigger */
	if (IS_GIVEN(archive_to))
		(void) ttl_container_tree(relid, OidIsValid(wanted->archive_to) ? ShareRowExclusiveLock : AccessExclusiveLock);
	lock_table(relid, IS_GIVEN(reaping) && !wanted->reaping && !IS_GIVEN(archive_to));
	/* as for the INSERT that is prepared to check it */
	if (OidIsValid(wanted->archive_to))
		LockRelationOid(wanted->archive_to, RowExclusiveLock);
	if (IS_GIVEN(touch_on_update) && wanted->touch_on_update)
		(void) ttl_container_tree(relid, ShareUpdateExclusiveLock);
}

PG_FUNCTION_INFO_V1(ttl_alter_container);

/*
 * ttl.alter_container(container regclass, settings of a policy by their names)
 *
 * Changes what is not NULL; archive_to 0 means none, ts_precision 0 exact.
 * Errors: 42501, 42704, 22023, 2BP01 if the expiry indexes would go while there is
 * a default TTL, 0A000 as create_container(), those of ttl_archive_check_target().
 */
Datum
ttl_alter_container(PG_FUNCTION_ARGS)
{
	Oid			relid = ttl_argument_container(fcinfo, "ttl.alter_container()");
	TtlPolicy	wanted;
	TtlPolicy	policy;
	Bitmapset  *given;
	TtlSqlContext saved;

	ttl_container_check_owned(relid);

	/*
	 * arguments alone tell which tables to lock, which comes before the
	 * policy is read
	 */
	ttl_policy_init(&wanted);
	given = ttl_argument_settings(fcinfo, &wanted);
	lock_for_change(relid, &wanted, given);
	lock_policy(relid, &policy);

	ttl_sql_begin(InvalidOid, TTL_SQL_STEP, &saved);
	if (IS_GIVEN(indexing) && wanted.indexing == TTL_INDEXING_NONE)
	{
		if (policy.default_ttl != TTL_OFF)
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot give up the expiry indexes of container \"%s\" because it has a default TTL",
							get_rel_name(relid)),
					 errhint("Turn TTL off first with ttl.set_default_ttl(..., NULL).")));
		ttl_table_drop_indexes(relid, &policy);
	}
	for (int i = 0; i < ttl_nsettings; i++)
	{
		if (bms_is_member(ttl_settings[i].offset, given))
			memcpy((char *) &policy + ttl_settings[i].offset,
				   (char *) &wanted + ttl_settings[i].offset, ttl_settings[i].size);
	}
	if (IS_GIVEN(indexing) && policy.indexing != TTL_INDEXING_NONE)
		ttl_table_create_indexes(relid, &policy);
	if (IS_GIVEN(ts_precision))
		ttl_table_renew_default(relid, &policy);
	ttl_sql_end(&saved);

	ttl_table_check_policy(relid, &policy);
	if (IS_GIVEN(touch_on_update) && policy.touch_on_update)
		ttl_table_check_uses(relid, &policy, NoLock);
	if (OidIsValid(policy.archive_to) && (IS_GIVEN(archive_to) || (IS_GIVEN(reaping) && policy.reaping)))
		ttl_archive_check_target(relid, policy.archive_to);
	if (IS_GIVEN(archive_to))
		follow_archive(relid, &policy);
	else if (IS_GIVEN(reaping) && policy.reaping)
		check_archive_trigger(relid, &policy);

	ttl_policy_update(relid, &policy);
	ttl_table_send_policy(relid, &policy);

	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(ttl_drop_container);

/*
 * ttl.drop_container(container regclass, drop_columns boolean)
 *
 * Unregisters a container: its rows stay and become visible.  What ttl has added to
 * the table goes, the columns only if drop_columns is true.
 *
 * Errors: 42501, 42704.
 */
Datum
ttl_drop_container(PG_FUNCTION_ARGS)
{
	Oid			relid = ttl_argument_container(fcinfo, "ttl.drop_container()");
	bool		drop_columns = ttl_argument_boolean(fcinfo, 1, "drop_columns");
	TtlContainer container;
	TtlPolicy	policy;
	TtlSqlContext saved;
	Relation	rel;
	bool		has_trigger;

	/* a table that is gone has no owner */
	if (ttl_policy_forget_dropped(relid))
		PG_RETURN_VOID();
	ttl_container_check_owner(relid);
	if (!ttl_container_peek(relid, &container))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a container", get_rel_name(relid)),
				 errhint("Containers are listed in the view ttl.containers.")));
	ttl_container_check_owned(relid);
	rel = ttl_container_open(relid, AccessExclusiveLock);
	CheckTableNotInUse(rel, "drop_container");
	has_trigger = ttl_row_trigger_find(rel) != NULL;
	table_close(rel, NoLock);
	lock_policy(relid, &policy);
	ttl_notice_made_visible(relid, policy.default_ttl, TTL_OFF);
	ttl_policy_delete(relid);
	ereport(LOG,
			(errmsg("role \"%s\" has made container \"%s\" an ordinary table: default_ttl was %s",
					GetUserNameFromId(GetUserId(), false), ttl_container_qualified_name(relid),
					ttl_policy_default_ttl_text(policy.default_ttl))));

	/* shards of a distributed table cease to be containers by this */
	if (has_trigger)
		ttl_table_drop_trigger(relid);
	ttl_sql_begin(InvalidOid, TTL_SQL_STEP, &saved);
	if (OidIsValid(policy.archive_to))
		ttl_archive_trigger_drop(relid);
	ttl_table_drop_indexes(relid, &policy);
	ttl_table_take_back(relid, &policy, drop_columns);
	ttl_sql_end(&saved);

	PG_RETURN_VOID();
}
