/*-------------------------------------------------------------------------
 *
 * request.c
 *	  What backends want of the reaper: that it looks at a changed policy, or leaves a database.
 *
 * A transaction that has changed a policy wakes up the worker of its
 * database after commit.  COMMIT PREPARED wakes up all of them, since the prepared
 * transaction may have changed a policy, and ttl.resume() may have ended a hold.
 *
 * A command that needs a database for itself (DROP DATABASE, ALTER DATABASE
 * ... RENAME and SET TABLESPACE, CREATE DATABASE for its template) terminates
 * the worker in it just before.  The database is locked before that, as the command
 * itself does it later: the launcher starts no worker in a locked database, and one
 * that is being started waits for the lock before it counts as a user of it.  Only for
 * users who have the rights for such a command, roughly: others could stop deletion
 * with commands that fail.
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
#include "compat.h"
#include "container/container.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "reaper/reaper_internal.h"
#include "reaper/slots.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/syscache.h"

/* To be sent when the transaction has committed */
static bool policy_changed = false;
static bool anything_changed = false;

/* Wakes up the worker of this database after commit. */
void
ttl_request_at_commit(void)
{
	policy_changed = true;
}

/* Wakes up the worker of each database after commit, as ttl_request_at_commit() (reaper.h) does that of this one. */
void
ttl_request_all_at_commit(void)
{
	anything_changed = true;
}

/* Forgets what is to be sent, unless the transaction commits. */
void
ttl_request_transaction(XactEvent event)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;

	/* by a transaction without statements, as a worker's own */
	policy_changed |= ttl_policy_take_changed() != NIL;
	if (event != XACT_EVENT_COMMIT)
	{
		policy_changed = false;
		anything_changed = false;
	}
}

/*
 * Wakes the workers.  The transaction has sent its invalidations and released its locks: a worker that is
 * woken before looks at what it still has in its caches, and then sleeps.
 */
void
ttl_request_send(void)
{
	if (policy_changed || anything_changed)
		ttl_slots_wake_workers(anything_changed ? InvalidOid : MyDatabaseId);
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
 * True if the user has, roughly, the rights for such a command.  (have_createdb_privilege() is
 * not exported by all minor releases.)
 */
static bool
has_rights(Oid dboid, bool as_template)
{
	HeapTuple	role;
	HeapTuple	database;
	bool		result;

	if (TtlOwnsDatabase(dboid, GetUserId()))
		return true;
	if (!as_template)
		return false;
	role = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	database = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	result = HeapTupleIsValid(role) && ((Form_pg_authid) GETSTRUCT(role))->rolcreatedb &&
		HeapTupleIsValid(database) && ((Form_pg_database) GETSTRUCT(database))->datistemplate;
	if (HeapTupleIsValid(role))
		ReleaseSysCache(role);
	if (HeapTupleIsValid(database))
		ReleaseSysCache(database);
	return result;
}

/* Terminates the worker in a database that the command needs for itself. */
void
ttl_request_before_utility(PlannedStmt *pstmt)
{
	const char *name = database_of_command(pstmt->utilityStmt);
	bool		as_template = IsA(pstmt->utilityStmt, CreatedbStmt);
	Oid			dboid;

	if (name == NULL || RecoveryInProgress() || !IsTransactionState())
		return;

	/* the session's own database can be taken as a template alone */
	dboid = get_database_oid(name, true);
	if (OidIsValid(dboid) && (as_template || dboid != MyDatabaseId) &&
		has_rights(dboid, as_template))
	{
		LockSharedObject(DatabaseRelationId, dboid, 0,
						 as_template ? ShareLock : AccessExclusiveLock);
		ttl_slots_terminate_workers(dboid);
	}
}

/* Wakes up all workers after COMMIT PREPARED. */
void
ttl_request_after_utility(PlannedStmt *pstmt)
{
	Node	   *command = pstmt->utilityStmt;

	if (IsA(command, TransactionStmt) &&
		((TransactionStmt *) command)->kind == TRANS_STMT_COMMIT_PREPARED)
		anything_changed = true;
}
