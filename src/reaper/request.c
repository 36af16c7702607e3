/*-------------------------------------------------------------------------
 *
 * request.c
 *	  What backends request from launcher and workers.
 *
 * - A transaction that has changed a policy wakes up the worker of its
 *	 database after commit.  COMMIT PREPARED wakes up all of them, since the prepared
 *	 transaction may have changed a policy, and ttl.resume() may have ended a hold.
 * - A command that needs a database for itself (DROP DATABASE, ALTER DATABASE
 *	 ... RENAME and SET TABLESPACE, CREATE DATABASE for its template) terminates
 *	 the worker in it just before.  The database is locked before that, as the command
 *	 itself does it later: the launcher starts no worker in a locked database, and one
 *	 that is being started waits for the lock before it counts as a user of it.  Only for
 *	 users who have the rights for such a command, roughly: others could stop deletion
 *	 with commands that fail.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/syscache.h"

#include "compat.h"
#include "container/container.h"
#include "reaper/reaper_internal.h"

/* To do after commit */
static bool policy_changed = false;
static bool anything_changed = false;

void
ttl_request_at_commit(void)
{
	policy_changed = true;
}

void
ttl_request_all_at_commit(void)
{
	anything_changed = true;
}

void
ttl_request_transaction(XactEvent event)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;

	policy_changed |= ttl_container_has_changed();
	if (event == XACT_EVENT_COMMIT && (policy_changed || anything_changed))
		ttl_shmem_wake(anything_changed ? InvalidOid : MyDatabaseId);
	policy_changed = false;
	anything_changed = false;
}

/*
 * The database that a command needs for itself, NULL if it needs none.
 */
static const char *
database_of_command(Node *command)
{
	List	   *options;
	const char *option;
	const char *name;
	ListCell   *lc;

	if (IsA(command, DropdbStmt))
		return ((DropdbStmt *) command)->dbname;
	if (IsA(command, RenameStmt) &&
		((RenameStmt *) command)->renameType == OBJECT_DATABASE)
		return ((RenameStmt *) command)->subname;
	if (IsA(command, AlterDatabaseStmt))
	{
		options = ((AlterDatabaseStmt *) command)->options;
		option = "tablespace";
		name = NULL;
	}
	else if (IsA(command, CreatedbStmt))
	{
		options = ((CreatedbStmt *) command)->options;
		option = "template";
		name = "template1";
	}
	else
		return NULL;

	foreach(lc, options)
	{
		DefElem    *element = lfirst_node(DefElem, lc);

		if (strcmp(element->defname, option) == 0 && element->arg != NULL)
			name = IsA(command, AlterDatabaseStmt) ?
				((AlterDatabaseStmt *) command)->dbname : defGetString(element);
	}
	return name;
}

/*
 * Has the user, roughly, the rights for such a command?  (have_createdb_privilege() is
 * not exported by all minor releases.)
 */
static bool
has_rights(Oid dboid, bool as_template)
{
	HeapTuple	tuple;
	bool		result;

	if (superuser())
		return true;
	if (!as_template)
		return TtlOwnsDatabase(dboid, GetUserId());
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	ReleaseSysCache(tuple);
	if (!result || TtlOwnsDatabase(dboid, GetUserId()))
		return result;
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
	ReleaseSysCache(tuple);
	return result;
}

void
ttl_request_before_utility(PlannedStmt *pstmt)
{
	const char *name = database_of_command(pstmt->utilityStmt);
	bool		as_template = IsA(pstmt->utilityStmt, CreatedbStmt);
	Oid			dboid;

	if (name == NULL || RecoveryInProgress() || !IsTransactionState())
		return;

	dboid = get_database_oid(name, true);
	if (OidIsValid(dboid) && (as_template || dboid != MyDatabaseId) &&
		has_rights(dboid, as_template))
	{
		LockSharedObject(DatabaseRelationId, dboid, 0,
						 as_template ? ShareLock : AccessExclusiveLock);
		ttl_shmem_terminate_workers(dboid);
	}
}

void
ttl_request_after_utility(PlannedStmt *pstmt)
{
	Node	   *command = pstmt->utilityStmt;

	if (IsA(command, TransactionStmt) &&
		((TransactionStmt *) command)->kind == TRANS_STMT_COMMIT_PREPARED)
		anything_changed = true;
}
