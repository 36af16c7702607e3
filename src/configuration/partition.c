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
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "citus/citus.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"

void
ttl_partition_refuse_inheritance(Oid relid)
{
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
ttl_partition_create(CreateStmt *stmt)
{
	ListCell   *lc;

	if (stmt->partbound != NULL && !IsA(stmt, CreateForeignTableStmt))
		return;
	foreach(lc, stmt->inhRelations)
	{
		Oid			parent = RangeVarGetRelid(lfirst_node(RangeVar, lc), NoLock, true);
		TtlContainer container;

		if (stmt->partbound == NULL)
			ttl_guard_child(parent);
		if (!OidIsValid(parent) || !ttl_container_lookup(parent, &container))
			continue;
		if (stmt->partbound != NULL)
			refuse_foreign_partition(stmt->relation->relname);
		ttl_partition_refuse_inheritance(parent);
	}
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
keep_columns(Oid parent, int columns)
{
	TtlContainer container;
	TtlPolicy	policy;

	if (!ttl_container_peek(parent, &container))
		return;
	ttl_container_lock_policy(container.container, true, true);
	if (!ttl_container_read(container.container, &policy))
		return;
	policy.created_objects &= ~columns;
	ttl_container_update(container.container, &policy);
}

void
ttl_partition_created(CreateStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);

	ttl_guard_ts_column_of_table(relid);
	ttl_notice_owners(relid);
}

void
ttl_partition_attach(Oid parent, const TtlPolicy *policy, RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlPolicy	own;
	ListCell   *lc;

	if (!OidIsValid(partition))
		return;
	if (ttl_container_read(partition, &own))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot attach container \"%s\" as a partition",
						get_rel_name(partition)),
				 errhint("Unregister it first with ttl.drop_container().")));
	if (policy == NULL)
		return;
	foreach(lc, find_all_inheritors(partition, NoLock, NULL))
	{
		if (ttl_container_archives_into(policy->archive_to, lfirst_oid(lc)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot attach table \"%s\" to the container whose archive it is",
							get_rel_name(lfirst_oid(lc))),
					 errhint("Choose another archive by ttl.alter_container(..., archive_to => ...), or 0 for none.")));
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE)
			refuse_foreign_partition(get_rel_name(lfirst_oid(lc)));
	}
	if (ttl_container_is_owner(GetUserId(), parent) && ttl_container_is_owner(GetUserId(), partition))
	{
		int			brought = columns_of(partition, policy);

		ttl_columns_complete_partition(parent, partition, policy);
		if ((policy->created_objects & brought) && ttl_container_has_pages(partition))
			keep_columns(parent, brought);
	}
}

void
ttl_partition_attached(Oid parent, RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlContainer container;
	TtlPolicy	policy;

	ttl_notice_owners(partition);
	if (!OidIsValid(parent) || !OidIsValid(partition) ||
		!ttl_container_lookup(parent, &container) ||
		container.default_ttl == TTL_OFF || !ttl_container_has_pages(partition))
		return;
	ttl_container_lock_policy(container.container, true, true);
	if (!ttl_container_read(container.container, &policy))
		return;
	ttl_grace_begin(&policy, TTL_OFF,
					get_rel_relkind(partition) == RELKIND_RELATION ? partition : InvalidOid);
	ttl_container_update(container.container, &policy);
}

/* A partition is about to leave its container: give it the same policy. */
void
ttl_partition_detach(const TtlContainer *parent, RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlContainer container;
	TtlPolicy	policy;

	/* Citus will attach what it makes of the partition */
	if (!OidIsValid(partition) || ttl_citus_runs_own() ||
		!ttl_container_is_owner(GetUserId(), parent->relid) ||
		!ttl_container_lookup(partition, &container) ||
		container.container != parent->container ||
		ttl_container_read(partition, &policy) ||
		!ttl_container_read(parent->container, &policy))
		return;
	ttl_container_insert(partition, &policy);
}
