/*-------------------------------------------------------------------------
 *
 * request.c
 *	  What ordinary backends tell the reaper.
 *
 * - A transaction that has changed a policy asks for attention to its
 *	 database when it has committed (for a prepared one, which may have done
 *	 anything: when somebody commits it).
 * - CREATE DATABASE makes the launcher look for the new one.
 * - A command that needs a database for itself (DROP DATABASE, ALTER DATABASE
 *	 ... RENAME and SET TABLESPACE, CREATE DATABASE for its template) keeps the
 *	 reaper out of it from just before the command until the transaction has
 *	 ended, when the change is there for everybody.  Only for users who may do
 *	 such a thing to the database, loosely judged: others could bring the
 *	 reaper to a standstill with commands that fail.
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
#include "utils/acl.h"
#include "utils/syscache.h"

#include "container/container.h"
#include "reaper/reaper_internal.h"
#include "utility.h"

/* What is to be told when the transaction commits. */
static bool policy_changed = false;
static bool databases_changed = false;
static bool anything_changed = false;

void
ttl_request_at_commit(void)
{
	policy_changed = true;
}

static void
container_changed(Oid container)
{
	ttl_request_at_commit();
}

static void
transaction_event(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;

	if (event == XACT_EVENT_COMMIT)
	{
		if (policy_changed)
			ttl_shmem_request(MyDatabaseId, InvalidOid);
		if (databases_changed)
			ttl_shmem_wake_launcher();
		if (anything_changed)
			ttl_shmem_request_all();
	}
	ttl_shmem_unblock_databases();
	policy_changed = false;
	databases_changed = false;
	anything_changed = false;
}

/*
 * The database that a command needs for itself, NULL if it needs none.
 * Whether it exists is another question.
 */
static const char *
database_of_command(Node *command, bool *as_template)
{
	*as_template = false;

	if (IsA(command, DropdbStmt))
		return ((DropdbStmt *) command)->dbname;

	if (IsA(command, RenameStmt) &&
		((RenameStmt *) command)->renameType == OBJECT_DATABASE)
		return ((RenameStmt *) command)->subname;

	if (IsA(command, AlterDatabaseStmt))
	{
		AlterDatabaseStmt *alter = (AlterDatabaseStmt *) command;
		ListCell   *lc;

		foreach(lc, alter->options)
		{
			if (strcmp(((DefElem *) lfirst(lc))->defname, "tablespace") == 0)
				return alter->dbname;
		}
		return NULL;
	}

	if (IsA(command, CreatedbStmt))
	{
		ListCell   *lc;

		*as_template = true;
		foreach(lc, ((CreatedbStmt *) command)->options)
		{
			DefElem    *option = (DefElem *) lfirst(lc);

			if (strcmp(option->defname, "template") == 0 && option->arg != NULL)
				return defGetString(option);
		}
		return "template1";
	}

	return NULL;
}

/*
 * Has the user the attribute CREATEDB?  (The server's own function for it isn't
 * exported by all minor releases.)
 */
static bool
may_create_databases(void)
{
	HeapTuple	tuple;
	bool		result;

	if (superuser())
		return true;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * May the user, by and large, do to the database what needs it alone?
 */
static bool
has_rights(Oid dboid, bool as_template)
{
	HeapTuple	tuple;
	Form_pg_database form;
	bool		result;

	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_database) GETSTRUCT(tuple);
	result = has_privs_of_role(GetUserId(), form->datdba) ||
		(as_template && form->datistemplate);
	ReleaseSysCache(tuple);
	return result && (!as_template || may_create_databases());
}

static void
before_command(PlannedStmt *pstmt, const char *query_string,
			   ProcessUtilityContext context, ParamListInfo params)
{
	const char *name;
	bool		as_template;
	Oid			dboid;

	name = database_of_command(pstmt->utilityStmt, &as_template);
	if (name == NULL || RecoveryInProgress() || !IsTransactionState())
		return;

	dboid = get_database_oid(name, true);
	if (OidIsValid(dboid) && (as_template || dboid != MyDatabaseId) &&
		has_rights(dboid, as_template))
		ttl_shmem_block_database(dboid);
}

static void
after_command(PlannedStmt *pstmt, ProcessUtilityContext context)
{
	Node	   *command = pstmt->utilityStmt;

	if (IsA(command, CreatedbStmt))
		databases_changed = true;
	else if (IsA(command, TransactionStmt) &&
			 ((TransactionStmt *) command)->kind == TRANS_STMT_COMMIT_PREPARED)
		policy_changed = anything_changed = true;
}

void
ttl_request_init(void)
{
	ttl_container_on_change(container_changed);
	ttl_utility_observe(before_command, after_command, NULL);
	RegisterXactCallback(transaction_event, NULL);
}
