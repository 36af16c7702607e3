/*-------------------------------------------------------------------------
 *
 * notice.c
 *	  NOTICEs and WARNINGs about what a configuration entails.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_publication.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/int.h"
#include "compat.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "pgtime.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "rewrite/rewriteHandler.h"
#include "ttl.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

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
void
ttl_notice_utc(Oid relid, const char *column)
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

static bool
rounds_up(Node *node, void *context)
{
	static const Oid functions[] = {F_DATE_BIN_INTERVAL_TIMESTAMPTZ_TIMESTAMPTZ, F_CEIL_NUMERIC,
	F_CEILING_NUMERIC, F_CEIL_FLOAT8, F_CEILING_FLOAT8};

	if (node == NULL)
		return false;
	for (int i = 0; i < lengthof(functions); i++)
	{
		if (IsA(node, FuncExpr) && ((FuncExpr *) node)->funcid == functions[i])
			return true;
	}
	return expression_tree_walker(node, rounds_up, context);
}

/*
 * Reports a default of a container's timestamp column by which rows expire early: a number that is
 * the same for all rows, or the present, if the column can't hold it and it isn't rounded up.
 */
void
ttl_notice_default(Oid relid)
{
	TtlContainer container;
	Relation	rel;
	Form_pg_attribute ts;
	Node	   *value;
	bool		is_constant;
	bool		is_early;

	if (!ttl_container_peek(relid, &container) || container.lacks_column ||
		container.ts_attno == InvalidAttrNumber)
		return;
	rel = table_open(relid, AccessShareLock);
	ts = TupleDescAttr(RelationGetDescr(rel), container.ts_attno - 1);
	value = build_column_default(rel, container.ts_attno);
	is_constant = !contain_mutable_functions(value);
	if (is_constant)
		is_early = container.ts_type != NULL && value != NULL &&
			!(IsA(value, Const) && ((Const *) value)->constisnull);
	else
		is_early = ttl_type_clock_step(container.ts_type, ts->atttypmod, 0) > 1 && !rounds_up(value, NULL);
	if (is_early && ts->atttypid != DATEOID)
		ereport(NOTICE,
				(is_constant ?
				 errmsg("default of column \"%s\" is the same time for all rows", NameStr(ts->attname)) :
				 errmsg("default of column \"%s\" is rounded to the nearest value of type %s",
						NameStr(ts->attname), format_type_with_typemod(ts->atttypid, ts->atttypmod)),
				 errdetail("Rows that are inserted without a value may expire early."),
				 errhint("Use ALTER TABLE ... ALTER COLUMN %s DROP DEFAULT, and the present is written, rounded up.",
						 quote_identifier(NameStr(ts->attname)))));
	table_close(rel, NoLock);
}

/* Parts of the names of columns that hold when a row was changed or made, the likeliest first */
static const char *const clock_names[] = {"updat", "modif", "chang", "creat", "insert", "seen", ""};

/* Parts of the names of columns that hold something else */
static const char *const other_names[] = {"expir", "delet", "until", "end", "due", "valid", "next"};

/* A column that could be the timestamp column of the policy in place of the one that was added */
static const char *
find_clock(TupleDesc desc, const TtlPolicy *policy)
{
	for (int i = 0; i < lengthof(clock_names); i++)
	{
		for (int j = 0; j < desc->natts; j++)
		{
			Form_pg_attribute column = TupleDescAttr(desc, j);
			const char *name = NameStr(column->attname);
			bool		is_other = column->attisdropped || column->atttypid != TIMESTAMPTZOID ||
				strcmp(name, NameStr(policy->ts_column)) == 0 ||
				strcmp(name, NameStr(policy->ttl_column)) == 0;

			for (int k = 0; k < lengthof(other_names); k++)
				is_other = is_other || strstr(name, other_names[k]) != NULL;
			if (!is_other && strstr(name, clock_names[i]) != NULL)
				return pstrdup(name);
		}
	}
	return NULL;
}

/*
 * Reports that the rows that a table has count from now, for the timestamp column was added,
 * and which column may hold it.
 */
void
ttl_notice_new_life(Oid relid, const TtlPolicy *policy)
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

static void
notice_kept_column(Oid relid, const char *column)
{
	if (get_attnum(relid, column) != InvalidAttrNumber)
		ereport(NOTICE,
				(errmsg("column \"%s\" of table \"%s\" was there before, and stays",
						column, get_rel_name(relid)),
				 errhint("Drop it with ALTER TABLE if nobody needs its values.")));
}

/* Reports which columns were to be dropped, and aren't. */
void
ttl_notice_kept_columns(Oid relid, const TtlPolicy *policy)
{
	notice_kept_column(relid, NameStr(policy->ts_column));
	notice_kept_column(relid, NameStr(policy->ttl_column));
}

/* Rows that a change makes expired are counted as far as this. */
#define COUNTED_ROWS	10000

/* So many rows, of which that many have been counted; maybe there is none */
static const char *
how_many(int64 count, bool complete)
{
	if (count == 0)
		return _("an unknown number of");
	if (count > COUNTED_ROWS)
		return psprintf(_("more than %d"), COUNTED_ROWS);
	return psprintf(complete ? "%lld" : _("at least %lld"), (long long) count);
}

/*
 * count: rows found; earliest: when the first of them expires; within: so many seconds from now,
 * 0 = they have.
 */
static void
report_made_expired(Oid relid, const TtlPolicy *policy, int32 old_default, int64 count,
					bool complete, TimestampTz earliest, int within)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz begin = Max(now, ttl_grace_end(&policy->change, now));
	const char *when = within > 0 ? psprintf(" within %d s", within) : "";
	int64		seconds;
	char	   *detail;

	if (count > 0 && !pg_add_s64_overflow(earliest, policy->reap_delay, &earliest))
		begin = Max(begin, earliest);
	seconds = (begin - now + USECS_PER_SEC - 1) / USECS_PER_SEC;
	if (!ttl_guc_reaper)
		detail = psprintf(_("Nothing is deleted as long as \"%s\" is off."), "ttl.reaper");
	else if (!policy->reaping)
		detail = _("Nothing is deleted as long as reaping is off.");
	else
		detail = psprintf(ngettext("The reaper begins to delete them %lld second after the change is committed.",
								   "The reaper begins to delete them %lld seconds after the change is committed.",
								   (unsigned long) seconds), (long long) seconds);

	ereport(NOTICE,
			(count == 1 && complete ?
			 errmsg("%s stored row of container \"%s\" expires by this change%s",
					how_many(count, complete), get_rel_name(relid), when) :
			 errmsg("%s stored rows of container \"%s\" expire by this change%s",
					how_many(count, complete), get_rel_name(relid), when),
			 errdetail_internal("%s", detail),
			 errhint("Until they are deleted, ttl.set_default_ttl(..., %s) brings them back.",
					 ttl_policy_default_ttl_text(old_default))));
}

/*
 * Reports how many stored rows of the container expire, until ttl.grace has passed,
 * because the default TTL was another one before, and how long they may be had back.
 */
void
ttl_notice_made_expired(Oid relid, const TtlPolicy *policy, int32 old_default)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz earliest;
	int64		count;
	int64		soon;
	bool		complete;

	if (!ttl_policy_is_shorter(policy->default_ttl, old_default))
		return;
	count = ttl_expiry_count_made_expired(relid, old_default, now, COUNTED_ROWS + 1,
										  &complete, &earliest);
	if (count > 0 || !complete)
		report_made_expired(relid, policy, old_default, count, complete, earliest, 0);
	if (count > COUNTED_ROWS || !complete || ttl_guc_grace == 0)
		return;

	/* ttl.grace covers what expires while it lasts, too */
	soon = ttl_expiry_count_made_expired(relid, old_default,
										 now + ttl_guc_grace * USECS_PER_SEC,
										 COUNTED_ROWS + 1, &complete, &earliest) - count;
	if (soon > 0)
		report_made_expired(relid, policy, old_default, soon, complete && soon + count <= COUNTED_ROWS,
							earliest, ttl_guc_grace);
}

/*
 * Reports how many expired rows another default TTL, or none, makes visible.  The former
 * one is still in force.
 */
void
ttl_notice_made_visible(Oid relid, int32 old_default, int32 new_default)
{
	TtlContainer container;
	TimestampTz earliest;
	int64		count;
	bool		complete;
	char	   *text;

	if (!ttl_policy_is_shorter(old_default, new_default) ||
		!ttl_container_peek(relid, &container) || container.lacks_column)
		return;
	count = ttl_expiry_count_made_expired(relid, new_default, GetCurrentTimestamp(),
										  COUNTED_ROWS + 1, &complete, &earliest);
	if (count == 0 && complete)
		return;
	text = psprintf(count == 1 && complete ?
					_("%s expired row of container \"%s\" becomes visible by this change") :
					_("%s expired rows of container \"%s\" become visible by this change"),
					how_many(count, complete), get_rel_name(relid));
	ereport(NOTICE,
			(errmsg_internal("%s", text),
			 new_default != TTL_OFF ? 0 :
			 errhint("To have expired rows deleted before TTL is turned off, use CALL ttl.reap(%s).",
					 quote_literal_cstr(ttl_container_table_name(relid)))));
}

/* True if the owner of the table may delete rows, or if it has gone. */
static bool
owner_may_delete(Oid relid)
{
	Oid			owner = ttl_container_owner(relid);
	AclMode		needed = ACL_SELECT | ACL_DELETE;

	return !OidIsValid(owner) ||
		(pg_class_aclmask(relid, owner, needed, ACLMASK_ALL) == needed &&
		 TtlMayUseSchema(get_rel_namespace(relid), owner));
}

/* True if PostgreSQL refuses each DELETE, because the table is published with deletes. */
static bool
lacks_replica_identity(Relation rel)
{
	PublicationDesc publication;

	RelationBuildPublicationDesc(rel, &publication);
	if (!publication.rf_valid_for_delete || !publication.cols_valid_for_delete)
		return true;
	return publication.pubactions.pubdelete &&
		rel->rd_rel->relreplident != REPLICA_IDENTITY_FULL &&
		!OidIsValid(RelationGetReplicaIndex(rel));
}

/* Why rows of a table can't be deleted */
typedef struct Problem
{
	const char *brief;			/* in ttl.status */
	const char *detail;			/* in a warning; NULL = there is none */
	const char *hint;
} Problem;

static const Problem no_table = {"damaged: the table was dropped"};
static const Problem no_column = {"damaged: a column is missing"};
static const Problem no_trigger = {"damaged: no trigger \"" TTL_TRIGGER "\""};
static const Problem no_index = {"damaged: no expiry index"};
static const Problem no_identity = {
	"failing: no replica identity",
	gettext_noop("It is published with deletes, and its replica identity does not allow them."),
	gettext_noop("To set a replica identity, use ALTER TABLE.")
};
static const Problem no_origins = {
	"failing: no replication origins",
	gettext_noop("Its deletions have a replication origin, and \"" TTL_MAX_REPLICATION_ORIGINS "\" is 0."),
	gettext_noop("Increase it, or use ttl.alter_container(..., replication_origin => false).")
};
static const Problem no_privileges = {
	"failing: owner lacks privileges",
	gettext_noop("Its owner, by whose rights they are, lacks USAGE on its schema, or SELECT or DELETE on the table."),
	gettext_noop("Use GRANT, or ALTER TABLE ... OWNER TO.")
};
static const Problem other_owner = {
	"failing: partition of other owner",
	gettext_noop("It has another owner than a table above it."),
	gettext_noop("Give partitions the owner of the container with ALTER TABLE ... OWNER TO.")
};

/* What is wrong with a table that holds rows of a container, or NULL */
static const Problem *
problem_of_table(Relation rel, const TtlContainer *container)
{
	Oid			relid = RelationGetRelid(rel);
	TtlExpiryIndexes indexes;

	if (container->policy.default_ttl != TTL_OFF && ttl_expiry_indexes(rel, &indexes))
	{
		for (int i = 0; i < TTL_INDEXES; i++)
		{
			if (indexes.needed[i] && !OidIsValid(indexes.usable[i]))
				return &no_index;
		}
	}
	if (lacks_replica_identity(rel))
		return &no_identity;
	if (container->policy.replication_origin && TtlMaxReplicationOrigins == 0)
		return &no_origins;
	if (!owner_may_delete(relid))
		return &no_privileges;
	if (OidIsValid(ttl_container_ancestor_of_other(relid)))
		return &other_owner;
	return NULL;
}

/*
 * What is wrong with a container or a partition of one, and with which of its tables; NULL if
 * nothing is known.  Waits for no lock.
 */
static const Problem *
first_problem(Oid relid, Oid *table)
{
	const Problem *problem = NULL;
	ListCell   *lc;

	if (get_rel_relkind(relid) == '\0')
		return &no_table;
	foreach(lc, ttl_container_tables(relid))
	{
		bool		busy;
		Relation	rel = ttl_container_open_if_free(lfirst_oid(lc), &busy);
		TtlContainer member;

		if (rel == NULL)
			continue;
		*table = lfirst_oid(lc);
		if (!ttl_container_peek(*table, &member))
			 /* it is none any more */ ;
		else if (member.lacks_column)
			problem = &no_column;
		else if (*table == member.container && !ttl_row_trigger_exists(*table))
			problem = &no_trigger;
		else if (rel->rd_rel->relkind == RELKIND_RELATION)
			problem = problem_of_table(rel, &member);
		relation_close(rel, AccessShareLock);
		if (problem != NULL)
			break;
	}
	return problem;
}

/*
 * Why no row of the container can be deleted, in few words that begin with "damaged" or
 * "failing"; NULL if nothing is known to be in the way.
 */
const char *
ttl_notice_problem(Oid container)
{
	Oid			table;
	const Problem *problem = first_problem(container, &table);

	return problem == NULL ? NULL : problem->brief;
}

/* Warns if every DELETE from a table of a container, or of a partition of one, will fail. */
void
ttl_notice_failing(Oid relid)
{
	Oid			table;
	const Problem *problem = OidIsValid(relid) ? first_problem(relid, &table) : NULL;

	if (problem != NULL && problem->detail != NULL)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("expired rows of table \"%s\" cannot be deleted", get_rel_name(table)),
				 errdetail("%s", _(problem->detail)),
				 errhint("%s", _(problem->hint))));
}

/* True if roles other than the table's owner have INSERT or UPDATE. */
static bool
others_may_write(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	bool		isnull;
	Datum		datum;
	bool		found = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	datum = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relacl, &isnull);
	if (!isnull)
	{
		Acl		   *acl = DatumGetAclP(datum);

		for (int i = 0; i < ACL_NUM(acl); i++)
			found = found ||
				(ACL_DAT(acl)[i].ai_grantee != ((Form_pg_class) GETSTRUCT(tuple))->relowner &&
				 (ACLITEM_GET_PRIVS(ACL_DAT(acl)[i]) & (ACL_INSERT | ACL_UPDATE)) != 0);
	}
	ReleaseSysCache(tuple);
	return found;
}

static bool
is_security_definer(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		result = HeapTupleIsValid(tuple) && ((Form_pg_proc) GETSTRUCT(tuple))->prosecdef;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

/*
 * Warns of triggers on DELETE, or the one of that name, that run as other roles than the
 * owner.
 */
void
ttl_notice_triggers(Oid relid, const char *name)
{
	TtlContainer container;
	Relation	rel;
	TriggerDesc *triggers;

	if (!OidIsValid(relid) || !ttl_container_peek(relid, &container) || !others_may_write(relid))
		return;
	rel = table_open(relid, NoLock);
	triggers = CopyTriggerDesc(rel->trigdesc);
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (TRIGGER_FOR_DELETE(trigger->tgtype) &&
			RI_FKey_trigger_type(trigger->tgfoid) == RI_TRIGGER_NONE &&
			(name == NULL || strcmp(trigger->tgname, name) == 0) &&
			!is_security_definer(trigger->tgfoid))
			ereport(WARNING,
					(errmsg("trigger \"%s\" of container \"%s\" runs with the rights of the user who needs the key of an expired row",
							trigger->tgname, RelationGetRelationName(rel)),
					 errdetail("Roles that are not the owner may insert or update, and that deletes such a row."),
					 errhint("If its function needs the owner's rights, use ALTER FUNCTION ... SECURITY DEFINER SET search_path = ..., pg_temp.")));
	}
	table_close(rel, NoLock);
}

/*
 * Reports foreign keys that will keep expired rows from being deleted: those
 * without an action, since an application may carry that out itself (as Django does),
 * and only for the rows that it deletes.
 */
void
ttl_notice_references(Oid relid)
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

/* Says that a table that is created like a container is none. */
void
ttl_notice_copies(const CreateStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->tableElts)
	{
		TtlContainer container;
		Oid			relid;

		if (!IsA(lfirst(lc), TableLikeClause))
			continue;
		relid = RangeVarGetRelid(lfirst_node(TableLikeClause, lc)->relation, NoLock, true);
		if (OidIsValid(relid) && ttl_container_peek(relid, &container))
			ereport(NOTICE,
					(errmsg("rows of table \"%s\" do not expire, although those of container \"%s\" do",
							stmt->relation->relname, get_rel_name(container.container)),
					 errhint("To register it as a container, too, use ttl.create_container().")));
	}
}

/* Says that a partition that has left its container has become one. */
void
ttl_notice_detached(Oid relid)
{
	ereport(NOTICE,
			(errmsg("table \"%s\" has become a container of its own", get_rel_name(relid)),
			 errdetail("Its rows expire as before."),
			 errhint("To make it an ordinary table, whose rows are all visible, use ttl.drop_container().")));
}

/* Says what it means that the row trigger of a container has been disabled with others. */
void
ttl_notice_disabled(Oid relid)
{
	ereport(NOTICE,
			(errmsg("keys that expired rows of container \"%s\" hold are not freed while trigger \"%s\" is disabled",
					get_rel_name(relid), TTL_TRIGGER),
			 errhint("Use ALTER TABLE ... ENABLE TRIGGER ALL to have them freed.")));
}

/* Reports that reaping is off because a subscription writes the table. */
void
ttl_notice_subscribed(Oid relid)
{
	ereport(NOTICE,
			(errmsg("reaping of container \"%s\" is off because a subscription writes it",
					get_rel_name(relid)),
			 errdetail("A row that the publisher has renewed may expire here before the change arrives."),
			 errhint("Let the publisher delete expired rows, or use ttl.alter_container(%s, reaping => true).",
					 quote_literal_cstr(ttl_container_table_name(relid)))));
}
