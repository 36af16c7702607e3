/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  The row trigger of a container, as DDL meets it, and the archive that it names.
 *
 * On a distributed table of Citus the trigger carries the policy to the other nodes: it is
 * created anew whenever that is another one (citus.h).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "citus/citus.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "container/policy.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "utils/rls.h"

void
ttl_trigger_check_settable(Oid relid)
{
	ttl_citus_check_settable(relid);
}

void
ttl_trigger_create(Oid relid, const TtlPolicy *policy)
{
	ttl_citus_check_nodes(relid);
	ttl_row_trigger_create(relid, ttl_citus_arguments(relid, policy));
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
	ttl_citus_check_nodes(relid);
	ttl_row_trigger_drop(relid);
}

void
ttl_trigger_lock(Oid relid, LOCKMODE lockmode)
{
	if (ttl_citus_is_distributed(relid))
		LockRelationOid(relid, lockmode);
}

void
ttl_trigger_creates(CreateTrigStmt *stmt)
{
	/* Citus sends the command before it has ended here */
	if (stmt->replace && !ttl_row_trigger_is_created(RangeVarGetRelid(stmt->relation, NoLock, true)))
		ttl_guard_trigger("replace trigger", stmt->relation, stmt->trigname);
}

void
ttl_trigger_created(CreateTrigStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	TtlContainer container;

	ttl_trigger_creates(stmt);
	if (OidIsValid(relid) && ttl_container_peek(relid, &container))
		ttl_notice_triggers(relid, stmt->trigname);
}

void
ttl_trigger_dropped(DropStmt *stmt)
{
	List	   *name = linitial_node(List, stmt->objects);

	if (row_security)
		ttl_guard_trigger("drop trigger",
						  makeRangeVarFromNameList(list_copy_head(name, list_length(name) - 1)),
						  strVal(llast(name)));
}

void
ttl_trigger_renamed(RenameStmt *stmt)
{
	if (!ttl_citus_gives_name(stmt->newname))
		ttl_guard_trigger("rename trigger", stmt->relation, stmt->subname);
}

void
ttl_trigger_archive_dropped(Oid archive)
{
	ListCell   *lc;

	/* it replaces tables by others of that name */
	if (ttl_citus_is_called())
		return;
	foreach(lc, ttl_container_list_archiving_to(archive))
	{
		ttl_trigger_lock(lfirst_oid(lc), AccessShareLock);
		ttl_container_replace_archive(lfirst_oid(lc), InvalidOid);
	}
}
