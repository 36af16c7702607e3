/*-------------------------------------------------------------------------
 *
 * alter_table.c
 *	  ALTER TABLE of containers, of their partitions and of ttl.container.
 *
 * See the table in ddl.c.  The timestamp or TTL column may get any type that a table with
 * such a column could be registered with.  The type decides what the expiry indexes are,
 * so those that ttl has made go before the command and are made anew after it.  What users have made is theirs, and PostgreSQL's to convert.
 *
 * By other values rows may expire at other times, as by a change of policy: the worker
 * keeps them for ttl.grace.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "citus/citus.h"
#include "commands/tablecmds.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parse_type.h"
#include "ttl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/syscache.h"

/* The type that the column is to have; InvalidOid if there is none of that name. */
static Oid
new_type(const AlterTableCmd *cmd)
{
	Type		type = LookupTypeName(NULL, castNode(ColumnDef, cmd->def)->typeName, NULL, true);
	Oid			result;

	if (type == NULL)
		return InvalidOid;
	result = typeTypeId(type);
	ReleaseSysCache(type);
	return result;
}

/* Is the table's method to be another than heap, by which no row could be deleted? */
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

/* Could a table be registered whose column had that type? */
static bool
is_fitting(const TtlPolicy *policy, const AlterTableCmd *cmd)
{
	Oid			type = new_type(cmd);
	const TtlType *ttl_type = ttl_type_of(type, policy->ttl_unit);

	if (strcmp(cmd->name, NameStr(policy->ts_column)) == 0)
		return ttl_type_of_clock(type, policy->ts_unit) != NULL;
	return NameStr(policy->ts_column)[0] != '\0' ? ttl_type != NULL : ttl_type_is_deadline(ttl_type);
}

/* Takes away what the columns' types have decided. */
static void
take_back(Oid relid, TtlPolicy *policy)
{
	int			nestlevel = ttl_command_begin();

	ttl_guard_suspend(relid);
	PG_TRY();
	{
		ttl_indexes_drop(relid, policy);
	}
	PG_FINALLY();
	{
		ttl_guard_suspend(InvalidOid);
	}
	PG_END_TRY();
	ttl_command_end(nestlevel);
}

static bool
begin_retype(Oid relid, const AlterTableCmd *cmd)
{
	TtlPolicy	policy;
	Relation	rel;

	if (!ttl_container_read(relid, &policy) || !is_fitting(&policy, cmd) ||
		ttl_citus_is_distributed(relid))
		return false;
	/* it will be refused */
	if (!ttl_container_is_owner(GetUserId(), relid))
		return true;

	(void) ttl_container_tree(relid, AccessExclusiveLock);
	rel = table_open(relid, NoLock);
	CheckTableNotInUse(rel, "ALTER TABLE");
	table_close(rel, NoLock);
	ttl_container_lock_policy(relid, true, true);
	ttl_container_require(relid, &policy);

	if (castNode(ColumnDef, cmd->def)->raw_default == NULL)
		ttl_notice_conversion(relid, cmd->name, new_type(cmd));

	take_back(relid, &policy);
	ttl_container_update(relid, &policy);
	return true;
}

static void
end_retype(Oid relid)
{
	TtlContainer container;
	TtlPolicy	policy;
	TtlSurvey	survey;
	int			nestlevel;

	/* it may be one that lacks a column and is being repaired */
	if (!ttl_container_peek(relid, &container) || container.lacks_column)
		return;
	ttl_container_lock_policy(relid, true, true);
	ttl_container_require(relid, &policy);
	nestlevel = ttl_command_begin();
	ttl_columns_renew_default(relid, &policy);
	if (policy.indexing != TTL_INDEXING_NONE)
		ttl_indexes_complete(relid, &policy);
	ttl_command_end(nestlevel);
	if (policy.default_ttl != TTL_OFF && ttl_container_has_pages(relid))
		ttl_grace_begin(&policy, TTL_OFF, InvalidOid);
	ttl_container_update(relid, &policy);
	ttl_survey(relid, &policy, &survey);
	ttl_survey_notice_invalid(relid, &policy, &survey);
	ttl_notice_made_expired(relid, &policy, TTL_OFF);
}

/* Does the command enable triggers in a way that isn't ALWAYS? */
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

void
ttl_alter_table_begin(AlterTableStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	const TtlObjects *objects;
	TtlContainer container;
	TtlPolicy	policy;
	bool		is_part;
	ListCell   *lc;

	if (!OidIsValid(relid))
		return;
	objects = ttl_container_objects();
	if (objects != NULL && relid == objects->catalog)
		leave_catalog_triggers_alone(stmt);
	/* one that lacks a column is repaired this way */
	is_part = ttl_container_peek(relid, &container);
	if (is_part && !ttl_container_read(container.container, &policy))
		return;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		switch (cmd->subtype)
		{
			case AT_DropColumn:
			case AT_AlterColumnType:
				if (!is_part || container.lacks_column ||
					!ttl_guard_names_column(&policy, cmd->name))
					break;

				/*
				 * it would build indexes anew, for nothing
				 */
				if (cmd->subtype == AT_DropColumn)
					ttl_guard_refuse("drop column", cmd->name, container.container);
				if (ttl_guard_keeps_type(relid, cmd))
					stmt->cmds = foreach_delete_current(stmt->cmds, lc);
				else if (relid != container.container || !begin_retype(relid, cmd))
					ereport(ERROR,
							(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
							 errmsg("cannot alter type of column \"%s\" because container \"%s\" requires it",
									cmd->name, get_rel_name(container.container)),
							 errhint("Unregister the table with ttl.drop_container() before, and register it again afterwards.")));
				break;
			case AT_AddInherit:
				{
					Oid			parent = RangeVarGetRelid((RangeVar *) cmd->def, NoLock, true);
					TtlContainer parent_container;

					ttl_guard_child(parent);
					if (is_part)
						ttl_partition_refuse_inheritance(relid);
					if (OidIsValid(parent) && ttl_container_lookup(parent, &parent_container))
						ttl_partition_refuse_inheritance(parent);
					break;
				}
			case AT_AttachPartition:
				ttl_partition_attach(relid, is_part ? &policy : NULL,
									 ((PartitionCmd *) cmd->def)->name);
				break;
			case AT_AddOf:
				if (is_part)
					ereport(ERROR,
							(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							 errmsg("container \"%s\" cannot become a typed table",
									get_rel_name(container.container)),
							 errhint("Use ttl.drop_container() to unregister the table.")));
				break;
			case AT_SetAccessMethod:
				if (is_part && container.container == relid &&
					get_rel_relkind(relid) == RELKIND_RELATION && leaves_heap(cmd))
					ereport(ERROR,
							(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							 errmsg("cannot change the access method of container \"%s\"",
									get_rel_name(relid)),
							 errdetail("Only tables of the access method \"%s\" can be containers.", "heap"),
							 errhint("Use ttl.drop_container() to unregister the table.")));
				break;
			case AT_DropConstraint:
				if (is_part && !container.lacks_column && row_security &&
					!ttl_guard_is_suspended(container.container) &&
					ttl_container_is_owner(GetUserId(), relid))
					ttl_guard_drop_constraint(relid, cmd->name);
				break;
			case AT_DisableTrig:
			case AT_EnableReplicaTrig:
				if (is_part && strcmp(cmd->name, TTL_TRIGGER) == 0)
					ttl_guard_refuse("disable trigger", TTL_TRIGGER, container.container);
				break;
			case AT_DisableTrigAll:
			case AT_DisableTrigUser:
				if (is_part)
					ttl_notice_disabled(container.container);
				break;
			case AT_DetachPartition:
				if (is_part)
					ttl_partition_detach(&container, ((PartitionCmd *) cmd->def)->name);
				break;
			default:
				break;
		}
	}
}

void
ttl_alter_table_end(AlterTableStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	bool		retypes = false;
	ListCell   *lc;

	ttl_guard_ts_column_of_table(relid);

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		TtlPolicy	policy;

		if (cmd->subtype == AT_AlterColumnType && OidIsValid(relid) &&
			ttl_container_read(relid, &policy) && ttl_guard_names_column(&policy, cmd->name))
		{
			ttl_notice_utc(relid, cmd->name);
			retypes = true;
		}

		/*
		 * As in scripts of pg_dump --disable-triggers.  It may be no
		 * container yet: they load tables first, and the policies afterwards.
		 */
		if (enables_trigger(cmd) && OidIsValid(relid) && ttl_trigger_exists(relid))
			ttl_trigger_enable(relid);

		if (cmd->subtype == AT_AttachPartition)
			ttl_partition_attached(relid, ((PartitionCmd *) cmd->def)->name);

		if (cmd->subtype == AT_ChangeOwner)
			ttl_notice_owners(relid);

		if (cmd->subtype == AT_DetachPartition || cmd->subtype == AT_DetachPartitionFinalize)
		{
			Oid			partition = RangeVarGetRelid(((PartitionCmd *) cmd->def)->name,
													 NoLock, true);

			/* PostgreSQL has taken the parent's trigger from it */
			if (OidIsValid(partition) && ttl_container_read(partition, &policy) &&
				!policy.propagated && !get_rel_relispartition(partition))
			{
				ttl_trigger_create(partition, &policy);
				ttl_notice_detached(partition);
			}
		}
	}
	if (retypes)
		end_retype(relid);
}

/* May the command add a foreign key?  By one, a local table can become one of Citus. */
bool
ttl_alter_table_adds_reference(AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AddConstraint || cmd->subtype == AT_AddColumn)
			return true;
	}
	return false;
}
