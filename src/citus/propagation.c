/*-------------------------------------------------------------------------
 *
 * propagation.c
 *	  A policy as the arguments of a row trigger.
 *
 * They are names and values alternately.  A setting that isn't there has its default.  The
 * time of a change isn't propagated: each node keeps what a change has made expired for
 * ttl.grace from when it arrives there.  The archive goes by its name, for a node may get
 * the trigger before it has that table, and gets tables anew with other OIDs; each renaming
 * has to be sent.
 *
 * Citus creates the trigger of a table on a node as the table's owner.  The same
 * arguments on a table that isn't a shard or a shell are those of one that Citus makes of
 * a distributed table: its policy is the coordinator's own.  A trigger that any other
 * command creates, a script of pg_dump among them, gets no arguments.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "citus/citus.h"
#include "citus/citus_internal.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/varlena.h"
#include "utils/wait_event.h"

static void
append_argument(StringInfo text, const char *value)
{
	appendStringInfo(text, "%s%s", text->len > 0 ? ", " : "", quote_literal_cstr(value));
}

char *
ttl_citus_arguments(Oid relid, const TtlPolicy *policy)
{
	StringInfoData text;
	TtlPolicy	default_policy;

	initStringInfo(&text);
	/* a table that is going to be distributed, or was, keeps the name of its archive */
	if (!ttl_citus_is_distributed(relid) && !ttl_citus_is_distributed(policy->archive_to))
		return text.data;
	ttl_policy_init(&default_policy);
	for (int i = 0; i < ttl_nsettings; i++)
	{
		const TtlSetting *setting = &ttl_settings[i];

		if (!ttl_policy_setting_differs(policy, &default_policy, setting))
			continue;
		append_argument(&text, setting->name);
		append_argument(&text, ttl_policy_text(policy, setting));
	}
	return text.data;
}

/* Those that the trigger has, in the same form */
static char *
arguments_of(const Trigger *trigger)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < trigger->tgnargs; i++)
		append_argument(&text, trigger->tgargs[i]);
	return text.data;
}

#define ARCHIVE_ARGUMENT	"archive_to"

/*
 * Takes a setting; false if there is none of that name.  The archive is looked
 * up when rows move, see ttl_citus_find_archive(); until then the container itself stands
 * for it.
 */
static bool
take_setting(Oid relid, TtlPolicy *policy, const char *name, const char *value)
{
	const TtlSetting *setting = ttl_policy_setting(name);

	if (setting == NULL)
		return false;
	if (strcmp(name, ARCHIVE_ARGUMENT) == 0)
		policy->archive_to = relid;
	else
		ttl_policy_set_text(policy, setting, value);
	return true;
}

/*
 * True if create_container() could have made it.  Any owner may create a trigger on a table, and
 * a policy that ttl.container's constraints don't let pass makes dumps useless.
 */
static bool
is_possible(Oid relid, const TtlPolicy *policy, const TtlContainer *container)
{
	return !container->lacks_column && get_rel_persistence(relid) != RELPERSISTENCE_TEMP &&
		(container->ts_attno != InvalidAttrNumber ?
		 container->ts_attno > 0 && container->ttl_attno != container->ts_attno :
		 policy->default_ttl == TTL_OFF || policy->default_ttl == TTL_NEVER);
}

/* Errors (22023) if these aren't the arguments of a policy for that table. */
static void
read_arguments(Oid relid, const Trigger *trigger, TtlPolicy *policy)
{
	TtlContainer container;
	int			i;

	ttl_policy_init(policy);
	for (i = 0; i + 1 < trigger->tgnargs; i += 2)
	{
		if (!take_setting(relid, policy, trigger->tgargs[i], trigger->tgargs[i + 1]))
			break;
	}
	ttl_container_find_columns(relid, policy, &container);
	if (i < trigger->tgnargs || !is_possible(relid, policy, &container))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("arguments of trigger \"%s\" are not a policy for table \"%s\"",
						TTL_TRIGGER, get_rel_name(relid)),
				 errhint("Use ttl.create_container().")));
}

void
ttl_citus_check_settable(Oid relid)
{
	TtlContainer container;

	if (!ttl_citus_is_here())
		return;
	if (OidIsValid(ttl_citus_find_shell(relid, NULL)) ||
		(ttl_container_peek(relid, &container) && container.policy.propagated))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("the policy of table \"%s\" is that of a distributed table",
						get_rel_name(relid)),
				 errhint("Connect to the coordinator, and name the distributed table.")));
}

/* True if another node has sent what creates or drops a trigger of the table. */
static bool
is_sent(Oid relid)
{
	return strncmp(application_name, "citus_", strlen("citus_")) == 0 ||
		OidIsValid(ttl_citus_find_shell(relid, NULL));
}

/* The table of that schema and name.  Who inserts may have no right to use the schema. */
static Oid
find_named(List *names)
{
	return list_length(names) < 2 ? InvalidOid :
		get_relname_relid(strVal(lsecond(names)), get_namespace_oid(strVal(linitial(names)), true));
}

/* The table that the arguments of the row trigger name as archive, or InvalidOid */
static Oid
named_archive(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	const Trigger *trigger = ttl_row_trigger_find(rel);
	Oid			archive = InvalidOid;

	for (int i = 0; trigger != NULL && i + 1 < trigger->tgnargs; i += 2)
	{
		if (strcmp(trigger->tgargs[i], ARCHIVE_ARGUMENT) == 0)
			archive = find_named(textToQualifiedNameList(cstring_to_text(trigger->tgargs[i + 1])));
	}
	table_close(rel, NoLock);
	return archive;
}

/* The table has that policy, from another node or as another table of Citus's. */
static void
store(Oid relid, TtlPolicy *policy)
{
	TtlPolicy	former;

	if (!ttl_policy_read(relid, &former))
	{
		policy->propagated = is_sent(relid);
		if (OidIsValid(policy->archive_to) && !policy->propagated)
		{
			policy->archive_to = named_archive(relid);
			if (!OidIsValid(policy->archive_to))
				ttl_policy_lose_archive(relid, policy);
		}
		if (policy->default_ttl != TTL_OFF && ttl_container_has_pages(relid))
			ttl_grace_begin(policy, TTL_OFF, InvalidOid);
		ttl_policy_insert(relid, policy);
		return;
	}
	policy->propagated = true;
	policy->change = former.change;
	if (policy->default_ttl != former.default_ttl)
		ttl_grace_begin(policy, former.default_ttl, InvalidOid);
	ttl_policy_update(relid, policy);
}

/* The table's trigger has been created, with a policy.  One that is no other node's is left alone. */
static void
receive(Oid relid, const Trigger *trigger)
{
	TtlPolicy	policy;

	if (ttl_policy_read(relid, &policy) ? !policy.propagated : !is_sent(relid) && !ttl_citus_replaces_table())
		return;
	if (!ttl_container_is_owner(GetUserId(), relid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s", get_rel_name(relid))));
	read_arguments(relid, trigger, &policy);
	ttl_policy_lock(relid, true, true);
	store(relid, &policy);
}

/* Milliseconds, as for the lock by which VACUUM truncates a table */
#define WAIT_INTERVAL	50
#define WAIT_TIMEOUT	5000

/*
 * Citus locks no shards when it makes another table of a shell, but the shell against
 * SELECT FOR UPDATE, as we do on all nodes (ttl_propagation_before_conversion()); a change of
 * the policy doesn't.  A session that has locked the shard must not wait for ever, for Citus
 * may be waiting for that lock, by another session than the one that has locked the shell.
 * But nodes commit shells, shards and their places one after the other, and a user's statement
 * shouldn't fail in between.  So it waits for a moment, and false is returned when that time is
 * over.
 */
static bool
wait_a_moment(int *timeout)
{
	if (*timeout <= 0)
		return false;
	*timeout -= WAIT_INTERVAL;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, WAIT_INTERVAL,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

/*
 * A container and its archive have to be in the same place: both are local, or both are
 * distributed alike.  Each node deletes its own copies of rows, which would fill copies of an
 * archive differently; so tables with copies have no place.
 */
Oid
ttl_citus_find_archive(Oid container, const TtlPolicy *policy, char **distribution_column, int elevel)
{
	static const char *const query =
	"WITH t AS (SELECT relid, coalesce(column_to_column_name(relid, partkey), '') AS name,"
	" CASE WHEN colocationid <> 0 AND repmodel = 's' THEN colocationid"
	" WHEN colocationid IS NULL OR colocationid = 0 AND partmethod = 'n' THEN 0 END AS place"
	" FROM unnest(ARRAY[$1, $2]) relid LEFT JOIN pg_dist_partition ON logicalrelid = relid)"
	" SELECT (SELECT concat(coalesce((SELECT shard_name(a.relid, shardid, false)"
	" FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_local_group USING (groupid)"
	" WHERE logicalrelid = a.relid AND shardminvalue IS NOT DISTINCT FROM"
	" (SELECT shardminvalue FROM pg_dist_shard WHERE shardid = $3)),"
	" CASE WHEN $3 = 0 OR place = 0 THEN a.relid::text END), '.', quote_ident(name))"
	" FROM t c JOIN t a USING (place, name) WHERE c.relid = $1 AND a.relid = $2)";
	static SPIPlanPtr saved = NULL;
	int64		shard = 0;
	Oid			shell = policy->propagated ? ttl_citus_find_shell(container, &shard) : container;
	Oid			archive = policy->propagated ? named_archive(container) : policy->archive_to;
	Oid			types[] = {REGCLASSOID, REGCLASSOID, INT8OID};
	Datum		values[] = {ObjectIdGetDatum(shell), ObjectIdGetDatum(archive), Int64GetDatum(shard)};
	int			timeout = WAIT_TIMEOUT;
	bool		is_busy;
	char	   *answer = NULL;	/* schema, table and column */
	List	   *names;

	if (get_rel_name(archive) == NULL ||
		(!policy->propagated && !ttl_citus_is_distributed(container) && !ttl_citus_is_distributed(archive)))
		return archive;

	/* a shard may have no shell yet, and where it is placed, its archive is */
	do
	{
		is_busy = policy->propagated && OidIsValid(shell) && !ConditionalLockRelationOid(shell, RowShareLock);
		if (OidIsValid(shell) && !is_busy)
			answer = ttl_citus_query(query, &saved, lengthof(types), types, values);
		is_busy |= answer != NULL && answer[0] == '.';
	} while (is_busy && wait_a_moment(&timeout));
	if (is_busy)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on distributed table \"%s\"", get_rel_name(shell)),
				 errdetail("Its rows, or those of its archive, are being copied.")));
	if (answer == NULL)
	{
		ereport(elevel,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("expired rows of container \"%s\" cannot move to archive \"%s\"",
						get_rel_name(container), get_rel_name(archive)),
				 errdetail("Both must be distributed by columns of one name and be co-located, without copies of their rows."),
				 errhint("Use create_distributed_table(..., colocate_with => ...).")));
		return InvalidOid;
	}
	names = textToQualifiedNameList(cstring_to_text(answer));
	*distribution_column = strVal(lthird(names));
	return find_named(names);
}

static void
trigger_created(CreateTrigStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	char		relkind = OidIsValid(relid) ? get_rel_relkind(relid) : '\0';
	Relation	rel;
	const Trigger *trigger;

	if ((relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE) ||
		get_rel_persistence(relid) == RELPERSISTENCE_TEMP || get_rel_relispartition(relid) ||
		ttl_row_trigger_is_created(relid))
		return;
	rel = table_open(relid, NoLock);
	trigger = ttl_row_trigger_find(rel);
	if (trigger != NULL && trigger->tgnargs > 0)
		receive(relid, trigger);
	table_close(rel, NoLock);
}

/* A propagated policy goes with the trigger. */
static void
trigger_dropped(List *object)
{
	Oid			relid = RangeVarGetRelid(makeRangeVarFromNameList(list_copy_head(object, list_length(object) - 1)),
										 NoLock, true);
	TtlPolicy	policy;
	Relation	rel;

	if (!OidIsValid(relid) || !ttl_policy_read(relid, &policy) || !policy.propagated)
		return;
	/* DROP TRIGGER IF EXISTS has no lock any more, if there was none */
	rel = try_table_open(relid, AccessShareLock);
	if (rel == NULL)
		return;
	if (ttl_row_trigger_find(rel) == NULL)
	{
		ttl_policy_lock(relid, true, true);
		ttl_policy_delete(relid);
	}
	table_close(rel, NoLock);
}

/*
 * True if the shard has the policy that its trigger carries.  It hasn't if that came while the
 * library wasn't loaded here; then it gets it now.
 */
static bool
has_its_policy(Oid relid)
{
	Relation	rel;
	const Trigger *trigger;
	TtlPolicy	stored;
	TtlPolicy	policy;
	bool		result = false;
	bool		busy;

	rel = ttl_container_open_if_free(relid, &busy);
	if (rel == NULL)
		return false;
	trigger = ttl_row_trigger_find(rel);
	if (trigger != NULL && ttl_policy_read(relid, &stored))
	{
		read_arguments(relid, trigger, &policy);
		result = ttl_policy_differences(&stored, &policy)[0] == '\0';
		if (!result && ttl_policy_lock(relid, true, false))
			store(relid, &policy);
	}
	table_close(rel, NoLock);
	return result;
}

/*
 * The advisory lock by which Citus keeps a shard in its place, as fields 2 to 4 of its tag:
 * one for all shards of the same range in a co-location group, by the order of the range.
 * NULL if the shard isn't placed here, or is referenced by rows that may be elsewhere.
 */
static char *
lock_of_place(int64 shard)
{
	static SPIPlanPtr saved = NULL;
	Oid			type = INT8OID;
	Datum		value = Int64GetDatum(shard);

	return ttl_citus_query("SELECT (SELECT CASE WHEN colocationid <> 0 AND (partmethod = 'h' OR partmethod = 'n' AND p.repmodel <> 't')"
						   " THEN concat((SELECT count(*) FROM pg_dist_shard lower WHERE lower.logicalrelid = s.logicalrelid"
						   " AND lower.shardminvalue::int < s.shardminvalue::int), ' ', colocationid, ' 8')"
						   " ELSE concat(shardid >> 32, ' ', shardid & 4294967295, ' 4') END"
						   " FROM pg_dist_shard s JOIN pg_dist_partition p USING (logicalrelid) WHERE shardid = $1"
						   " AND EXISTS (SELECT FROM pg_dist_placement JOIN pg_dist_local_group USING (groupid) WHERE shardid = $1)"
						   " AND NOT EXISTS (SELECT FROM pg_constraint LEFT JOIN pg_dist_partition r ON r.logicalrelid = conrelid"
						   " WHERE confrelid = s.logicalrelid AND contype = 'f' AND p.repmodel = 't' AND r.repmodel IS DISTINCT FROM 't'))",
						   &saved, 1, &type, &value);
}

bool
ttl_citus_lock_shard(Oid relid, bool waits)
{
	int64		shard;
	LOCKTAG		tag;
	unsigned	fields[3];
	char	   *lock;
	char	   *present;
	Oid			shell = ttl_citus_find_shell(relid, &shard);

	if (!OidIsValid(shell))
		return false;
	if (waits)
		LockRelationOid(shell, RowShareLock);
	else if (!ConditionalLockRelationOid(shell, RowShareLock))
		return false;
	lock = lock_of_place(shard);
	if (lock == NULL || sscanf(lock, "%u %u %u", &fields[0], &fields[1], &fields[2]) != 3)
		return false;
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, fields[0], fields[1], fields[2]);
	if (LockAcquire(&tag, ShareLock, false, !waits) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	/* until the lock was had, the shard may have moved, or got another place in the order */
	present = lock_of_place(shard);
	return present != NULL && strcmp(present, lock) == 0 && has_its_policy(relid);
}

/* The statement is a private copy. */
void
ttl_propagation_trigger_begins(CreateTrigStmt *stmt)
{
	Oid			relid;

	if (strcmp(stmt->trigname, TTL_TRIGGER) != 0)
		return;
	relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	if (OidIsValid(relid) && !is_sent(relid) && !ttl_row_trigger_is_created(relid) && !ttl_citus_runs_own())
		stmt->args = NIL;
}

/* True if Citus has made tables of others since policies were sent. */
static bool replaced_tables = false;

void
ttl_propagation_command_ended(Node *stmt)
{
	ListCell   *lc;

	/* what enters a distributed schema stays the same table */
	replaced_tables |= IsA(stmt, AlterObjectSchemaStmt) || (IsA(stmt, CreateStmt) && ttl_citus_replaces_table());
	if (IsA(stmt, CreateTrigStmt))
		trigger_created((CreateTrigStmt *) stmt);
	else if (IsA(stmt, DropStmt) && ((DropStmt *) stmt)->removeType == OBJECT_TRIGGER)
	{
		foreach(lc, ((DropStmt *) stmt)->objects)
			trigger_dropped(castNode(List, lfirst(lc)));
	}
}

/*
 * A container has become the shard of a local table of Citus: the policy is the
 * shell's now.
 */
static void
give_to_shell(Oid shard, Oid shell, TtlPolicy *policy)
{
	TtlPolicy	existing;

	ttl_policy_lock(shard, true, true);
	if (!ttl_policy_read(shell, &existing))
		ttl_policy_insert(shell, policy);
	policy->propagated = true;
	ttl_policy_update(shard, policy);
}

/* Has Citus carry the policy to where it isn't known yet, or no more. */
static void
carry(Oid relid)
{
	TtlPolicy	policy;
	Oid			shell;
	Relation	rel;
	const Trigger *trigger;
	bool		is_old;
	bool		busy;

	if (!ttl_policy_read(relid, &policy) || policy.propagated)
		return;
	shell = ttl_citus_find_shell(relid, NULL);
	if (OidIsValid(shell))
	{
		give_to_shell(relid, shell, &policy);
		relid = shell;
	}
	/* what this transaction has changed, it has locked */
	rel = ttl_container_open_if_free(relid, &busy);
	if (rel == NULL)
		return;
	trigger = ttl_row_trigger_of(rel);
	/* Citus may be replacing the archive; a table that pg_restore has registered has no trigger */
	is_old = ttl_policy_read(relid, &policy) && !policy.propagated &&
		(!OidIsValid(policy.archive_to) || get_rel_name(policy.archive_to) != NULL) &&
		(trigger == NULL ? ttl_citus_is_distributed(relid) :
		 strcmp(arguments_of(trigger), ttl_citus_arguments(relid, &policy)) != 0);
	table_close(rel, is_old ? NoLock : AccessShareLock);
	if (is_old)
	{
		ttl_citus_check_nodes(relid);
		ttl_row_trigger_create(relid, ttl_citus_arguments(relid, &policy));
	}
}

/*
 * Citus has made tables of others.  A container's trigger has the name of the archive, which
 * is that of the table in its place, too.
 */
static void
follow_archive(Oid container)
{
	TtlPolicy	policy;
	Oid			archive;
	char	   *column;

	if (!ttl_policy_read(container, &policy) || policy.propagated || !OidIsValid(policy.archive_to))
		return;
	archive = get_rel_name(policy.archive_to) == NULL ? named_archive(container) :
		ttl_citus_find_shell(policy.archive_to, NULL);
	if (OidIsValid(archive) || get_rel_name(policy.archive_to) == NULL)
		ttl_policy_replace_archive(container, archive);
	if (ttl_container_is_owner(GetUserId(), container) && ttl_policy_read(container, &policy))
		(void) ttl_citus_find_archive(container, &policy, &column, WARNING);
}

void
ttl_citus_send(List *containers)
{
	bool		all = replaced_tables;
	ListCell   *lc;

	if ((containers == NIL && !all) || !IsTransactionState())
		return;
	replaced_tables = false;
	if (!ttl_citus_is_here() || ttl_container_objects() == NULL)
		return;
	foreach(lc, containers)
		carry(lfirst_oid(lc));
	if (!all)
		return;
	foreach(lc, ttl_policy_list(TTL_CONTAINERS_SOUND))
	{
		follow_archive(lfirst_oid(lc));
		if (ttl_container_is_owner(GetUserId(), lfirst_oid(lc)))
			carry(lfirst_oid(lc));
	}
}

void
ttl_propagation_after_conversion(void)
{
	replaced_tables = true;
	if (!ttl_citus_is_converting())
		ttl_citus_send(NIL);
}

/*
 * Citus is about to copy a table, and drops it then.  What nodes move from or to its shards
 * in between would be lost with the archive, or be moved twice.  So the container is locked on
 * all nodes, which keeps them from it until the transaction has ended.
 */
void
ttl_propagation_before_conversion(Oid object)
{
	ListCell   *lc;

	foreach(lc, ttl_policy_list(TTL_CONTAINERS_SOUND))
	{
		Oid			container = lfirst_oid(lc);
		TtlPolicy	policy;
		int			nestlevel;

		if (!ttl_policy_read(container, &policy) || !OidIsValid(policy.archive_to) ||
			!ttl_citus_is_distributed(container) || !ttl_citus_is_distributed(policy.archive_to) ||
			(OidIsValid(object) ? container != object && policy.archive_to != object &&
			 get_rel_namespace(container) != object && get_rel_namespace(policy.archive_to) != object :
			 !ttl_container_is_owner(GetUserId(), container)))
			continue;
		nestlevel = ttl_command_begin();
		ttl_command_run("LOCK TABLE %s IN EXCLUSIVE MODE", ttl_container_table_name(container));
		ttl_command_end(nestlevel);
	}
}

/* A table, or that schema, may have another name.  Citus's nodes know archives by theirs. */
void
ttl_citus_object_altered(Oid class_id, Oid object)
{
	ListCell   *lc;

	if ((class_id != RelationRelationId && class_id != NamespaceRelationId) ||
		!ttl_citus_is_here() || ttl_container_objects() == NULL)
		return;
	foreach(lc, ttl_policy_list(TTL_CONTAINERS_SOUND))
	{
		TtlContainer container;

		if (!ttl_container_peek(lfirst_oid(lc), &container) || container.policy.propagated ||
			(container.policy.archive_to != object && get_rel_namespace(container.policy.archive_to) != object))
			continue;
		/* if it could not be locked at the command's end, its shards would keep their policy */
		if (ttl_citus_is_distributed(lfirst_oid(lc)))
			LockRelationOid(lfirst_oid(lc), AccessShareLock);
		if (get_rel_name(lfirst_oid(lc)) != NULL)
			ttl_policy_announce_change(lfirst_oid(lc), false);
	}
}
