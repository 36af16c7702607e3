/*-------------------------------------------------------------------------
 *
 * partition.c
 *	  Tables that become partitions of containers, or cease to be.
 *
 * A new partition needs nothing: like an attached one, it gets the indexes and the row
 * trigger from PostgreSQL, and the policy from its parent.  Children by inheritance
 * have neither, so they are refused.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/tablecmds.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"

/* Errors (0A000) if the table is a container, or belongs to one. */
void
ttl_partition_refuse_inheritance(Oid relid)
{
	TtlContainer container;

	if (OidIsValid(relid) && ttl_container_peek(relid, &container))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("container \"%s\" cannot take part in inheritance", get_rel_name(relid)),
				 errhint("Use declarative partitioning, or unregister the table with ttl.drop_container().")));
}

static void
refuse_foreign_partition(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("foreign table \"%s\" cannot be a partition of a container", name),
			 errdetail("Its rows could be neither hidden nor deleted.")));
}

void
ttl_partition_created(CreateStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	TtlContainer container;
	ListCell   *lc;

	if (stmt->partbound == NULL)
	{
		foreach(lc, stmt->inhRelations)
			ttl_partition_refuse_inheritance(RangeVarGetRelid(lfirst_node(RangeVar, lc), NoLock, true));
		return;
	}
	if (IsA(stmt, CreateForeignTableStmt) &&
		ttl_container_peek(RangeVarGetRelid(linitial_node(RangeVar, stmt->inhRelations), NoLock, true),
						   &container))
		refuse_foreign_partition(stmt->relation->relname);
	ttl_guard_ts_column_of_table(relid);
	ttl_notice_owners(relid);
}

/* The columns that the policy names and a table has, as what might have been added */
static int
columns_of(Oid relid, const TtlPolicy *policy)
{
	int			columns = 0;

	if (get_attnum(relid, NameStr(policy->ts_column)) != InvalidAttrNumber)
		columns |= TTL_CREATED_TS_COLUMN;
	if (get_attnum(relid, NameStr(policy->ttl_column)) != InvalidAttrNumber)
		columns |= TTL_CREATED_TTL_COLUMN;
	return columns;
}

/*
 * Columns with values of its own, which a partition has brought along, mustn't go with
 * those that were added to the others.
 */
static void
keep_columns(Oid container, int columns)
{
	TtlPolicy	policy;

	ttl_container_lock_policy(container, true, true);
	if (!ttl_container_read(container, &policy))
		return;
	policy.created_objects &= ~columns;
	ttl_container_update(container, &policy);
}

/*
 * Locks a table that is about to become, or cease to be, a partition of a table that is
 * locked, as the command will: the default partition first.  InvalidOid if there is none
 * of that name, which the command reports.
 */
static Oid
lock_partition(Oid parent, RangeVar *name, LOCKMODE lockmode, RangeVarGetRelidCallback callback)
{
	Oid			other = get_default_partition_oid(parent);

	if (OidIsValid(other) && lockmode == AccessExclusiveLock)
		LockRelationOid(other, lockmode);
	return RangeVarGetRelidExtended(name, lockmode, RVR_MISSING_OK, callback, NULL);
}

/*
 * A table is about to become a partition, of a container maybe: then it gets what it lacks
 * for that.
 */
void
ttl_partition_attach(Oid parent, RangeVar *name)
{
	Oid			partition;
	TtlContainer container;
	TtlPolicy	policy;
	ListCell   *lc;
	int			brought;

	/* indexes are attached, too */
	if (get_rel_relkind(parent) != RELKIND_PARTITIONED_TABLE)
		return;
	partition = lock_partition(parent, name, AccessExclusiveLock, RangeVarCallbackOwnsRelation);
	if (!OidIsValid(partition))
		return;
	if (ttl_container_read(partition, &policy))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot attach container \"%s\" as a partition",
						get_rel_name(partition)),
				 errhint("Unregister it first with ttl.drop_container().")));
	if (!ttl_container_peek(parent, &container) ||
		!ttl_container_read(container.container, &policy))
		return;
	foreach(lc, find_all_inheritors(partition, AccessExclusiveLock, NULL))
	{
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE)
			refuse_foreign_partition(get_rel_name(lfirst_oid(lc)));
	}
	brought = columns_of(partition, &policy);
	ttl_columns_complete_partition(parent, partition, &policy);
	if ((policy.created_objects & brought) && ttl_container_has_pages(partition))
		keep_columns(container.container, brought);
}

/*
 * A table has become a partition, of a container maybe: then its rows have got a TTL, as if
 * it had been turned on for them.
 */
void
ttl_partition_attached(Oid parent, RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlContainer container;
	TtlPolicy	policy;
	ListCell   *lc;

	ttl_notice_owners(partition);
	if (!ttl_container_peek(parent, &container))
		return;
	ttl_subscription_begins(container.container, ttl_container_tables(partition));
	ttl_container_lock_policy(container.container, true, true);
	if (!ttl_container_read(container.container, &policy))
		return;
	foreach(lc, ttl_container_tables(partition))
	{
		if (ttl_container_archives_into(policy.archive_to, lfirst_oid(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot attach table \"%s\" to the container whose archive it is",
							get_rel_name(lfirst_oid(lc))),
					 errhint("Choose another archive by ttl.alter_container(..., archive_to => ...), or 0 for none.")));
	}
	if (policy.default_ttl == TTL_OFF || !ttl_container_has_pages(partition))
		return;
	ttl_grace_begin(&policy, TTL_OFF,
					get_rel_relkind(partition) == RELKIND_RELATION ? partition : InvalidOid);
	ttl_container_update(container.container, &policy);
}

/*
 * A partition is about to leave its container: it gets the same policy, which stays as it
 * is until then.
 */
void
ttl_partition_detach(const TtlContainer *parent, PartitionCmd *cmd)
{
	Oid			partition;
	TtlPolicy	policy;

	partition = lock_partition(parent->relid, cmd->name,
							   cmd->concurrent ? ShareUpdateExclusiveLock : AccessExclusiveLock,
							   NULL);
	if (!OidIsValid(partition) || !get_rel_relispartition(partition) ||
		get_partition_parent(partition, true) != parent->relid ||
		ttl_container_read(partition, &policy))
		return;
	ttl_container_lock_policy(parent->container, false, true);
	if (ttl_container_read(parent->container, &policy))
		ttl_container_insert(partition, &policy);
}

/*
 * A partition has left its container, and PostgreSQL has taken the trigger from it.  It may
 * be another role's than the table that it was a partition of.
 */
void
ttl_partition_detached(RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlPolicy	policy;
	Oid			user;
	int			sec_context;

	if (!OidIsValid(partition) || !ttl_container_read(partition, &policy) ||
		policy.propagated || get_rel_relispartition(partition))
		return;
	GetUserIdAndSecContext(&user, &sec_context);
	if (!ttl_container_is_owner(user, partition))
		SetUserIdAndSecContext(ttl_container_owner(partition),
							   sec_context | SECURITY_LOCAL_USERID_CHANGE |
							   SECURITY_RESTRICTED_OPERATION);
	ttl_trigger_create(partition, &policy);
	SetUserIdAndSecContext(user, sec_context);
	ttl_notice_detached(partition);
}
