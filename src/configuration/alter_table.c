/*-------------------------------------------------------------------------
 *
 * alter_table.c
 *	  ALTER TABLE of containers, of their partitions and of ttl.container.
 *
 * See the table in ddl.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "commands/tablecmds.h"
#include "compat.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* True if the table's access method is to be another than heap, by which no row could be deleted. */
static bool
leaves_heap(const AlterTableCmd *cmd)
{
	const char *method = cmd->name != NULL ? cmd->name : default_table_access_method;
	HeapTuple	tuple = SearchSysCache1(AMNAME, CStringGetDatum(method));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_am) GETSTRUCT(tuple))->amtype == AMTYPE_TABLE &&
		GetTableAmRoutine(((Form_pg_am) GETSTRUCT(tuple))->amhandler) != GetHeapamTableAmRoutine();
	ReleaseSysCache(tuple);
	return result;
}

/* True if the command enables triggers, but not as ALWAYS. */
static bool
enables_trigger(const AlterTableCmd *cmd)
{
	return cmd->subtype == AT_EnableTrig ||
		cmd->subtype == AT_EnableReplicaTrig ||
		cmd->subtype == AT_EnableTrigAll ||
		cmd->subtype == AT_EnableTrigUser;
}

static bool
disables_trigger(const AlterTableCmd *cmd)
{
	return cmd->subtype == AT_DisableTrig ||
		cmd->subtype == AT_DisableTrigAll ||
		cmd->subtype == AT_DisableTrigUser;
}

/*
 * Scripts of pg_dump --data-only --disable-triggers do so to ttl.container, too,
 * and restored rows would keep reaping on.
 */
static void
leave_catalog_triggers_alone(AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (enables_trigger(cmd) || disables_trigger(cmd))
			stmt->cmds = foreach_delete_current(stmt->cmds, lc);
	}
}

/* True if the command names a column by which rows of the container expire. */
static bool
names_column(const AlterTableCmd *cmd, const TtlContainer *container)
{
	AttrNumber	attno = get_attnum(container->relid, cmd->name);

	return attno != InvalidAttrNumber &&
		(attno == container->ts_attno || attno == container->ttl_attno);
}

/* Other values would make rows expire at other times. */
static void
refuse_rewrite(const AlterTableCmd *cmd, const TtlContainer *container)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 cmd->subtype == AT_AlterColumnType ?
			 errmsg("cannot alter type of column \"%s\" because container \"%s\" requires it",
					cmd->name, get_rel_name(container->container)) :
			 errmsg("cannot alter expression of column \"%s\" because container \"%s\" requires it",
					cmd->name, get_rel_name(container->container)),
			 errhint("Unregister the table with ttl.drop_container(), alter it, and register it again with ttl.create_container().")));
}

static void
refuse_method(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot change the access method of container \"%s\"", get_rel_name(relid)),
			 errdetail("Only tables of the access method \"%s\" can be containers.", "heap"),
			 errhint("Use ttl.drop_container() to unregister the table.")));
}

/*
 * Refuses before the command what would take long, completes what a partition lacks, and
 * gives one that leaves its container the policy.  The command's own lock comes first.
 */
void
ttl_alter_table_begin(AlterTableStmt *stmt, bool by_citus)
{
	Oid			relid = AlterTableLookupRelation(stmt, AlterTableGetLockLevel(stmt->cmds));
	const TtlObjects *objects = ttl_container_objects();
	TtlContainer container;
	bool		is_part;
	ListCell   *lc;

	/* DROP EXTENSION may have been waited for */
	if (!OidIsValid(relid) || objects == NULL)
		return;
	if (relid == objects->catalog)
		leave_catalog_triggers_alone(stmt);
	is_part = ttl_container_peek(relid, &container);

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AttachPartition)
			ttl_partition_attach(relid, ((PartitionCmd *) cmd->def)->name);
		if (!is_part)
			continue;
		if (TtlSetsExpression(cmd) && names_column(cmd, &container))
			refuse_rewrite(cmd, &container);
		switch (cmd->subtype)
		{
			case AT_AlterColumnType:
				/* one that lacks a column is repaired this way */
				if (container.lacks_column || !names_column(cmd, &container))
					break;
				if (!ttl_guard_keeps_type(relid, cmd))
					refuse_rewrite(cmd, &container);
				/* it would build indexes anew, for nothing */
				stmt->cmds = foreach_delete_current(stmt->cmds, lc);
				break;
			case AT_SetAccessMethod:
				if (container.container == relid &&
					get_rel_relkind(relid) == RELKIND_RELATION && leaves_heap(cmd))
					refuse_method(relid);
				break;
			case AT_DetachPartition:
				/* it will attach what it makes of the partition */
				if (!by_citus)
					ttl_partition_detach(&container, (PartitionCmd *) cmd->def);
				break;
			default:
				break;
		}
	}
}

/* What the command has done to a container or a partition of one */
static void
follow(const TtlContainer *container, RangeVar *table, const AlterTableCmd *cmd)
{
	switch (cmd->subtype)
	{
		case AT_AddOf:
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("container \"%s\" cannot become a typed table",
							get_rel_name(container->container)),
					 errhint("Use ttl.drop_container() to unregister the table.")));
			break;
		case AT_DisableTrig:
		case AT_EnableReplicaTrig:
			ttl_guard_trigger("disable trigger", table, cmd->name);
			break;
		case AT_DisableTrigAll:
		case AT_DisableTrigUser:
			ttl_notice_disabled(container->container);
			break;
		default:
			break;
	}
}

void
ttl_alter_table_end(AlterTableStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	TtlContainer container;
	bool		is_part;
	ListCell   *lc;

	if (!OidIsValid(relid))
		return;
	ttl_guard_ts_column_of_table(relid);
	is_part = ttl_container_peek(relid, &container);

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (is_part)
			follow(&container, stmt->relation, cmd);
		if (cmd->subtype == AT_AddInherit)
		{
			ttl_partition_refuse_inheritance(relid);
			ttl_partition_refuse_inheritance(RangeVarGetRelid((RangeVar *) cmd->def, NoLock, true));
		}

		/*
		 * As in scripts of pg_dump --disable-triggers.  It may be no
		 * container yet: they load tables first, and the policies afterwards.
		 */
		if (enables_trigger(cmd) && ttl_row_trigger_exists(relid))
			ttl_row_trigger_enable(relid);

		if (cmd->subtype == AT_AttachPartition)
			ttl_partition_attached(relid, ((PartitionCmd *) cmd->def)->name);

		if (cmd->subtype == AT_ChangeOwner)
			ttl_notice_owners(relid);

		if (cmd->subtype == AT_DetachPartition || cmd->subtype == AT_DetachPartitionFinalize)
			ttl_partition_detached(((PartitionCmd *) cmd->def)->name);
	}
}
