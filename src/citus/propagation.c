/*-------------------------------------------------------------------------
 *
 * propagation.c
 *	  A policy as the arguments of a row trigger.
 *
 * They are names and values alternately.  A setting that isn't there has its default.  The
 * time of a change isn't propagated: each node keeps what a change has made expired for
 * ttl.grace from when it arrives there.
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

/* Adds a name or a value to the list, as a literal. */
static void
append_argument(StringInfo text, const char *value)
{
	appendStringInfo(text, "%s%s", text->len > 0 ? ", " : "", quote_literal_cstr(value));
}

/* Only settings that differ from their defaults. */
char *
ttl_citus_arguments(Oid relid, const TtlPolicy *policy)
{
	StringInfoData text;
	TtlPolicy	default_policy;

	initStringInfo(&text);
	if (!ttl_citus_is_distributed(relid))
		return text.data;
	ttl_policy_init(&default_policy);
	for (int i = 0; i < ttl_npropagated; i++)
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

/* Errors (22023) if these aren't the arguments of a policy for that table. */
static void
read_arguments(Oid relid, const Trigger *trigger, TtlPolicy *policy)
{
	int			i;

	ttl_policy_init(policy);
	for (i = 0; i + 1 < trigger->tgnargs; i += 2)
	{
		const TtlSetting *setting = ttl_policy_setting(trigger->tgargs[i]);

		if (setting == NULL)
			break;
		ttl_policy_set_text(policy, setting, trigger->tgargs[i + 1]);
	}
	if (i < trigger->tgnargs || !ttl_policy_is_possible(relid, policy))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("arguments of trigger \"%s\" are not a policy for table \"%s\"",
						TTL_TRIGGER, get_rel_name(relid)),
				 errhint("Use ttl.create_container().")));
}

/* Asks for a shell in the catalog first: a shard that was created without the library has no policy yet. */
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
is_from_other_node(Oid relid)
{
	/*
	 * a shard on this node may be created by the session itself, without a
	 * connection
	 */
	return strncmp(application_name, "citus_", strlen("citus_")) == 0 ||
		OidIsValid(ttl_citus_find_shell(relid, NULL));
}

/* Stores the policy of a table that another node has sent, or that Citus has made of another one. */
static void
store_policy(Oid relid, TtlPolicy *policy)
{
	TtlPolicy	former;

	if (!ttl_policy_read(relid, &former))
	{
		/*
		 * what Citus makes of a distributed table here is a container of this
		 * node's own
		 */
		policy->propagated = is_from_other_node(relid);
		/* rows that were copied before the trigger was created expire by it */
		if (policy->default_ttl != TTL_OFF && ttl_container_has_pages(relid))
			ttl_grace_begin(policy, TTL_OFF, InvalidOid);
		ttl_policy_insert(relid, policy);
		return;
	}
	policy->propagated = true;
	/* its grace isn't propagated: one that has begun here goes on */
	policy->change = former.change;
	if (policy->default_ttl != former.default_ttl)
		ttl_grace_begin(policy, former.default_ttl, InvalidOid);
	ttl_policy_update(relid, policy);
}

/*
 * Takes the policy from the trigger that has been created.  The policy of a table whose own it is, and no
 * other node's, is left alone.
 */
static void
receive_policy(Oid relid, const Trigger *trigger)
{
	TtlPolicy	policy;

	if (ttl_policy_read(relid, &policy) ? !policy.propagated : !is_from_other_node(relid) && !ttl_citus_replaces_table())
		return;
	/* for CREATE TRIGGER the privilege TRIGGER would do */
	if (!ttl_container_is_owner(GetUserId(), relid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s", get_rel_name(relid))));
	read_arguments(relid, trigger, &policy);
	/* as each change of a policy does */
	ttl_policy_lock(relid, true, true);
	store_policy(relid, &policy);
}

/*
 * Only the row trigger of a permanent table or partitioned one carries a policy: partitions have
 * clones of the parent's.
 */
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
	/* the command, which has succeeded, has locked it */
	rel = table_open(relid, NoLock);
	trigger = ttl_row_trigger_find(rel);
	if (trigger != NULL && trigger->tgnargs > 0)
		receive_policy(relid, trigger);
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
 * Stores the policy that the shard's trigger carries, if it came while the library wasn't loaded here.  False
 * if that has to be done, or can't be now: the caller leaves the shard to its next turn.
 */
static bool
sync_policy(Oid relid)
{
	Relation	rel;
	const Trigger *trigger;
	TtlPolicy	stored;
	TtlPolicy	policy;
	bool		result = false;
	bool		busy;

	/* never waited for, since locks of Citus are held */
	rel = ttl_container_open_if_free(relid, &busy);
	if (rel == NULL)
		return false;
	trigger = ttl_row_trigger_find(rel);
	if (trigger != NULL && ttl_policy_read(relid, &stored))
	{
		read_arguments(relid, trigger, &policy);
		result = ttl_policy_differences(&stored, &policy)[0] == '\0';

		/*
		 * rows may expire by it, whose grace begins then: none is deleted in
		 * this turn
		 */
		if (!result && ttl_policy_lock(relid, true, false))
			store_policy(relid, &policy);
	}
	table_close(rel, NoLock);
	return result;
}

/*
 * The advisory lock by which Citus keeps a shard in its place, as fields 2 to 4 of its tag:
 * one for all shards of the same range in a co-location group, by the order of the range (8), or one for
 * the shard (4), see AdvisoryLocktagClass in its resource_lock.h.
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

/*
 * First the shell's lock, which conflicts with commands that lock it on all nodes, then that of the
 * shard's place, which moves and splits take.
 */
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

	/*
	 * the weakest lock that conflicts with EXCLUSIVE, by which users and
	 * Citus lock writers out on all nodes
	 */
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

	/*
	 * until the lock was had, the shard may have moved, or got another place
	 * in the order
	 */
	present = lock_of_place(shard);
	return present != NULL && strcmp(present, lock) == 0 && sync_policy(relid);
}

/* The statement is a private copy. */
void
ttl_propagation_trigger_begins(CreateTrigStmt *stmt)
{
	Oid			relid;

	if (strcmp(stmt->trigname, TTL_TRIGGER) != 0)
		return;
	relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	if (OidIsValid(relid) && !is_from_other_node(relid) && !ttl_row_trigger_is_created(relid) && !ttl_citus_runs_own())
		stmt->args = NIL;
}

/*
 * True if Citus has made tables of others since policies were sent.  Remains so when the transaction
 * is rolled back: then policies are compared in vain.
 */
static bool replaced_tables = false;

/* Follows triggers that were created or dropped, and notes commands by which tables get other shards. */
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

/* Has Citus propagate the policy, if it isn't the one that the table's trigger carries. */
static void
propagate(Oid relid)
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

	/*
	 * what this transaction has changed, it has locked; another's is the
	 * other's to propagate
	 */
	rel = ttl_container_open_if_free(relid, &busy);
	if (rel == NULL)
		return;
	trigger = ttl_row_trigger_of(rel);
	/* a table that pg_restore has registered has no trigger */
	is_old = ttl_policy_read(relid, &policy) && !policy.propagated &&
		(trigger == NULL ? ttl_citus_is_distributed(relid) :
		 strcmp(arguments_of(trigger), ttl_citus_arguments(relid, &policy)) != 0);
	/* CREATE TRIGGER is about to lock it */
	table_close(rel, is_old ? NoLock : AccessShareLock);
	if (is_old)
	{
		ttl_citus_check_nodes(relid);
		ttl_row_trigger_create(relid, ttl_citus_arguments(relid, &policy));
	}
}

/* All sound containers of the user, if Citus has made tables of others: it doesn't say which. */
void
ttl_citus_send(List *containers)
{
	bool		all = replaced_tables;
	ListCell   *lc;

	/* at the ROLLBACK of a transaction that has failed there are no catalogs */
	if ((containers == NIL && !all) || !IsTransactionState())
		return;
	replaced_tables = false;
	if (!ttl_citus_is_here() || ttl_container_objects() == NULL)
		return;
	foreach(lc, containers)
		propagate(lfirst_oid(lc));
	if (!all)
		return;
	/* Citus makes others only of the user's own */
	foreach(lc, ttl_policy_list(TTL_CONTAINERS_SOUND))
	{
		if (ttl_container_is_owner(GetUserId(), lfirst_oid(lc)))
			propagate(lfirst_oid(lc));
	}
}

/* The policies follow when the outermost work on tables has ended. */
void
ttl_propagation_after_conversion(void)
{
	replaced_tables = true;
	/* in a larger piece of work other nodes need not have the table yet */
	if (!ttl_citus_in_extent())
		ttl_citus_send(NIL);
}

/* To be refused before Citus begins: by then no command has told of it. */
void
ttl_propagation_before_conversion(Oid object)
{
	TtlContainer container;

	if (OidIsValid(object) && ttl_container_lookup(object, &container) &&
		OidIsValid(container.policy.archive_to))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("container \"%s\" cannot be distributed because it has an archive", get_rel_name(object)),
				 errhint("Use ttl.alter_container(..., archive_to => 0) first.")));
}
