/*-------------------------------------------------------------------------
 *
 * retype.c
 *	  ALTER COLUMN ... TYPE of a container's columns.
 *
 * The timestamp or TTL column may get any type that a table with such a column could
 * be registered with.  The type decides what the expiry indexes are and whether there
 * is a CHECK, so those that ttl has made go before the command and are made anew
 * after it.  What users have made is theirs, and PostgreSQL's to convert.
 *
 * By other values rows may expire at other times, as by a change of policy: the worker
 * spares them for ttl.grace.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "commands/tablecmds.h"
#include "citus/citus.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/grace.h"
#include "miscadmin.h"
#include "parser/parse_type.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
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
		ttl_columns_drop_check(relid, policy);
	}
	PG_FINALLY();
	{
		ttl_guard_suspend(InvalidOid);
	}
	PG_END_TRY();
	ttl_command_end(nestlevel);
}

bool
ttl_retype_begin(Oid relid, const AlterTableCmd *cmd)
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

void
ttl_retype_end(Oid relid)
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
	ttl_columns_complete_check(relid, &policy, false);
	if (policy.indexing != TTL_INDEXING_NONE)
		ttl_indexes_complete(relid, &policy);
	ttl_command_end(nestlevel);
	if (policy.default_ttl != TTL_OFF && ttl_container_has_pages(relid))
		ttl_grace_begin(&policy, TTL_OFF, InvalidOid);
	ttl_container_update(relid, &policy);
	ttl_survey(relid, &policy, &survey);
	ttl_notice_invalid_values(relid, &policy, &survey);
	ttl_notice_made_expired(relid, &policy, TTL_OFF);
}
