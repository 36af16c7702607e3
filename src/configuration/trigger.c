/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  The row trigger of a container.
 *
 * It frees keys and completes the timestamp, see evict.c.  On a distributed table of Citus
 * it carries the policy, too (citus.h): whenever that is another one, or the table has
 * become one or no more, the trigger is created anew.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_trigger.h"
#include "citus/citus.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "container/policy.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* The row trigger of a container, and not just one by that name */
static const Trigger *
find_trigger(Relation rel)
{
	const Trigger *trigger = ttl_container_objects() == NULL ? NULL :
	ttl_citus_find_trigger(rel->trigdesc);

	return trigger != NULL && strcmp(trigger->tgname, TTL_TRIGGER) == 0 &&
		trigger->tgtype == (TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_ROW | TRIGGER_TYPE_INSERT) &&
		trigger->tgqual == NULL ? trigger : NULL;
}

bool
ttl_trigger_exists(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	bool		found = find_trigger(rel) != NULL;

	table_close(rel, NoLock);
	return found;
}

void
ttl_trigger_enable(Oid relid)
{
	int			nestlevel = ttl_command_begin();

	ttl_citus_allow_triggers();
	/* logical replication has to free keys, too */
	ttl_command_run("ALTER TABLE %s ENABLE ALWAYS TRIGGER \"%s\"", ttl_container_table_name(relid), TTL_TRIGGER);
	ttl_command_end(nestlevel);
}

void
ttl_trigger_create(Oid relid, const TtlPolicy *policy)
{
	int			nestlevel = ttl_command_begin();
	Oid			outer;

	ttl_container_changed = list_delete_oid(ttl_container_changed, relid);
	ttl_citus_check_method(relid);
	ttl_citus_check_nodes(relid);
	ttl_citus_allow_triggers();
	outer = ttl_citus_show_stored(relid);
	PG_TRY();
	{
		ttl_command_run("CREATE OR REPLACE TRIGGER \"%s\" BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION ttl.on_write(%s)",
						TTL_TRIGGER, ttl_container_table_name(relid),
						ttl_citus_arguments(relid, policy));
	}
	PG_FINALLY();
	{
		(void) ttl_citus_show_stored(outer);
	}
	PG_END_TRY();
	ttl_command_end(nestlevel);
	ttl_trigger_enable(relid);
}

void
ttl_trigger_send(Oid relid, const TtlPolicy *policy)
{
	if (ttl_citus_is_distributed(relid))
		ttl_trigger_create(relid, policy);
}

void
ttl_trigger_drop(Oid relid)
{
	int			nestlevel = ttl_command_begin();

	ttl_citus_check_nodes(relid);
	ttl_citus_allow_triggers();
	ttl_command_run("DROP TRIGGER \"%s\" ON %s", TTL_TRIGGER, ttl_container_table_name(relid));
	ttl_command_end(nestlevel);
}

void
ttl_trigger_lock(Oid relid)
{
	if (ttl_citus_is_distributed(relid))
		LockRelationOid(relid, ShareRowExclusiveLock);
}

/*
 * A container has become the shard of a local table of Citus: the policy is the
 * shell's now.
 */
static void
give_to_shell(Oid shard, Oid shell, TtlPolicy *policy)
{
	TtlPolicy	existing;

	ttl_container_lock_policy(shard, true, true);
	if (!ttl_container_read(shell, &existing))
		ttl_container_insert(shell, policy);
	policy->propagated = true;
	ttl_container_update(shard, policy);
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

	if (!ttl_container_read(relid, &policy) || policy.propagated)
		return;
	shell = ttl_citus_shell_of(relid);
	if (OidIsValid(shell))
	{
		give_to_shell(relid, shell, &policy);
		relid = shell;
	}
	/* what this transaction has changed, it has locked */
	if (!ConditionalLockRelationOid(relid, AccessShareLock))
		return;
	rel = ttl_container_read(relid, &policy) && !policy.propagated ?
		try_table_open(relid, NoLock) : NULL;
	if (rel == NULL)
	{
		UnlockRelationOid(relid, AccessShareLock);
		return;
	}
	trigger = find_trigger(rel);
	/* Citus may be replacing the archive; a table that pg_restore has registered has no trigger */
	is_old = (!OidIsValid(policy.archive_to) || get_rel_name(policy.archive_to) != NULL) &&
		(trigger == NULL ? ttl_citus_is_distributed(relid) :
		 strcmp(ttl_citus_arguments_of(trigger), ttl_citus_arguments(relid, &policy)) != 0);
	table_close(rel, is_old ? NoLock : AccessShareLock);
	if (is_old)
		ttl_trigger_create(relid, &policy);
}

void
ttl_trigger_replace_archive(Oid container, Oid archive)
{
	TtlPolicy	policy;

	ttl_container_lock_policy(container, true, true);
	if (!ttl_container_read(container, &policy) || policy.propagated)
		return;
	if (OidIsValid(archive))
		policy.archive_to = archive;
	else
		ttl_policy_lose_archive(container, &policy);
	ttl_container_update(container, &policy);
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

	if (!ttl_container_read(container, &policy) || policy.propagated || !OidIsValid(policy.archive_to))
		return;
	archive = get_rel_name(policy.archive_to) == NULL ? ttl_citus_named_archive(container) :
		ttl_citus_shell_of(policy.archive_to);
	if (OidIsValid(archive) || get_rel_name(policy.archive_to) == NULL)
		ttl_trigger_replace_archive(container, archive);
	if (ttl_container_is_owner(GetUserId(), container) && ttl_container_read(container, &policy))
		(void) ttl_citus_find_archive(container, &policy, &column, WARNING);
}

void
ttl_trigger_propagate(bool all)
{
	List	   *containers = ttl_container_changed;
	ListCell   *lc;

	/* nodes may not have a table that Citus is making; when it has, this is called, too */
	if ((containers == NIL && !all) || ttl_citus_is_called())
		return;
	ttl_container_changed = NIL;
	foreach(lc, containers)
	{
		/* not after an error */
		if (ttl_citus_is_here() && ttl_container_objects() != NULL)
			carry(lfirst_oid(lc));
	}
	list_free(containers);
	if (!all || !ttl_citus_is_here())
		return;
	foreach(lc, ttl_container_list())
	{
		follow_archive(lfirst_oid(lc));
		if (ttl_container_is_owner(GetUserId(), lfirst_oid(lc)))
			carry(lfirst_oid(lc));
	}
}

/*
 * Citus is about to copy a table, and drops it then.  What nodes move from or to its shards
 * in between would be lost with the archive, or be moved twice.  So the container is locked on
 * all nodes, which keeps them from it until the transaction has ended (propagation.c).
 */
void
ttl_trigger_stop_archiving(Oid object)
{
	ListCell   *lc;

	foreach(lc, ttl_container_list())
	{
		Oid			container = lfirst_oid(lc);
		TtlPolicy	policy;
		int			nestlevel;

		if (!ttl_container_read(container, &policy) || !OidIsValid(policy.archive_to) ||
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

void
ttl_trigger_tables_converted(void)
{
	ttl_trigger_propagate(true);
}
