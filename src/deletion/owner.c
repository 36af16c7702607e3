/*-------------------------------------------------------------------------
 *
 * owner.c
 *	  By whose rights, and as whom, rows are deleted.
 *
 * Rows are always deleted by the right of the table's owner.  As whom the DELETE is
 * executed, and with it triggers and rules:
 *
 * - In a user's session, as the user, with the session's settings: as if he had written
 *	the DELETE.  The owner's code would meet the user's temporary objects there, and is
 *	not run as the owner.  The statement is lent the owner's permissions (execution.c).
 * - In a user's session, from a table of another owner than that of the table he writes:
 *	as its owner, as PostgreSQL does for foreign keys; the user has no reason to trust
 *	that owner.  So it is done only if no code runs (deletion.c).
 * - By the reaper, as the owner, with a safe search_path.  Unless the session is the owner's,
 *	in a security-restricted operation, as by VACUUM: no code can create temporary objects,
 *	prepare statements, keep cursors or listen there, and what it sets ends with the deletion.
 *	So a worker can run one owner's code after another's.
 *
 * A referential action is carried out by PostgreSQL as the owner of the table that it
 * acts on, in the same transaction.  An eviction doesn't set off such an action where
 * that would run code, unless the user may delete by himself (deletion.c).  In a
 * restricted operation the search_path is the safe one again when an action begins.
 *
 * Where a session applies what was done elsewhere (session_replication_role = replica),
 * triggers don't fire, those of foreign keys neither.  A deletion of ours was done nowhere
 * else, so foreign keys are honoured, in what their actions set off, too, and rows archived;
 * other triggers fire as they would for any DELETE there.
 *
 * A partition has the row triggers of the tables above it besides its own, so where
 * these have different owners, the reaper can't be either of them, and deletes nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_trigger.h"
#include "catalog_expr.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "own_sql.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * Hint for the reaper's deletions: a trigger that misses something, under our
 * search_path, may find it by its qualified name.
 */
void
ttl_owner_explain(void)
{
	int			error = geterrcode();

	if ((error == ERRCODE_UNDEFINED_TABLE || error == ERRCODE_UNDEFINED_FUNCTION ||
		 error == ERRCODE_UNDEFINED_OBJECT) &&
		strcmp(namespace_search_path, TTL_SAFE_SEARCH_PATH) == 0)
		errhint("Triggers that fire for the deletion of expired rows by the reaper have search_path \"%s\". Qualify the name in the trigger's function.",
				TTL_SAFE_SEARCH_PATH);
}

/* The same of those in a user's session */
void
ttl_owner_explain_user(void)
{
	/* not where the archive is written, as its owner */
	if (geterrcode() == ERRCODE_INSUFFICIENT_PRIVILEGE && !InSecurityRestrictedOperation())
		errhint("What the deletion of an expired row sets off runs with the rights of the user whose statement needs it. If the function of a trigger needs more, make it SECURITY DEFINER, with a search_path of its own that ends with pg_temp.");
}

/* Errors (42501) if code of several owners fires for deletions from the table. */
void
ttl_owner_check(Relation rel)
{
	Oid			ancestor = ttl_container_ancestor_of_other(RelationGetRelid(rel));

	if (OidIsValid(ancestor))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("partition \"%s\" and table \"%s\" have different owners",
						RelationGetRelationName(rel), get_rel_name(ancestor)),
				 errdetail("Expired rows of the partition cannot be deleted, because triggers of the one owner would run as the other."),
				 errhint("Give both the same owner with ALTER TABLE ... OWNER TO.")));
}

/*
 * Identities
 */

/*
 * ttl_sql_begin() as the owner of a table, with the safe search_path.  'restricted': in a
 * security-restricted operation, with all constraints immediate; no deferred trigger may be pending.
 */
void
ttl_owner_begin(Oid owner, bool restricted, TtlSqlContext *saved)
{
	bool		begins_restriction = restricted && !InSecurityRestrictedOperation();

	ttl_sql_begin(owner, TTL_SQL_SAFE_PATH | (restricted ? TTL_SQL_RESTRICTED : 0), saved);
	if (begins_restriction)
	{
		/*
		 * what is deferred would run as the user who commits, and PostgreSQL
		 * refuses it
		 */
		AfterTriggerSetState(makeNode(ConstraintsSetStmt));
		/* an attempt that was rolled back may have set it */
		MyXactFlags &= ~XACT_FLAGS_ACCESSEDTEMPNAMESPACE;
	}
}

/*
 * Executes a statement that is to see expired rows only, in the tables of that owner
 * that have the alias TTL_OWNER_TO_DELETE.  The right to do so is the owner's, not the current
 * user's.  'target' is the table that it deletes from, or InvalidOid.  Without fire_triggers, AFTER triggers are left to the statement around this one.
 *
 * Names are looked up as the owner, who may use schemas that the user may not.
 *
 * Parallel workers would not have the owner's rights; what SPI_prepare() makes is not parallel.
 */
void
ttl_owner_execute(const char *sql, int nargs, Oid *types, Datum *values,
				  TimestampTz expired_at, Oid owner, Oid target, Snapshot snapshot,
				  bool fire_triggers)
{
	TtlExpectation outer = ttl_execution_expect_deletion(sql, expired_at, owner, target);
	Oid			userid;
	int			sec_context;

	GetUserIdAndSecContext(&userid, &sec_context);

	PG_TRY();
	{
		SPIPlanPtr	plan;
		int			result;

		/*
		 * ttl_execution_analyzed() makes the user the current one again
		 * before code can run
		 */
		SetUserIdAndSecContext(owner, sec_context | SECURITY_LOCAL_USERID_CHANGE);
		plan = SPI_prepare(sql, nargs, types);
		SetUserIdAndSecContext(userid, sec_context);
		result = SPI_execute_snapshot(plan, values, NULL, snapshot,
									  InvalidSnapshot, false, fire_triggers, 0);
		if (result < 0)
			elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
	}
	PG_FINALLY();
	{
		ttl_execution_expect(outer);
	}
	PG_END_TRY();
}

/*
 * Whose code
 */

/* True if the table has a rule on DELETE.  It may add queries to the statement, or replace it. */
bool
ttl_owner_has_rule(Relation rel)
{
	for (int i = 0; rel->rd_rules != NULL && i < rel->rd_rules->numLocks; i++)
	{
		if (rel->rd_rules->rules[i]->event == CMD_DELETE)
			return true;
	}
	return false;
}

/* True if triggers or rules run for a DELETE from the table, maybe of no rows. */
bool
ttl_owner_has_code(Relation rel)
{
	Oid			archive = ttl_container_function(TTL_ARCHIVE);

	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
	{
		Trigger    *trigger = &rel->trigdesc->triggers[i];

		/*
		 * ttl's own switches to the owner by itself, and has code if the
		 * archive has
		 */
		if (TRIGGER_FOR_DELETE(trigger->tgtype) && trigger->tgenabled != TRIGGER_DISABLED &&
			trigger->tgfoid != archive && RI_FKey_trigger_type(trigger->tgfoid) == RI_TRIGGER_NONE)
			return true;
	}
	return ttl_owner_has_rule(rel);
}

/* True if the table is the user's, or its owner that of the table which he writes. */
bool
ttl_owner_is_trusted(const TtlSessionUser *user, Relation rel)
{
	Oid			owner = rel->rd_rel->relowner;

	return (owner == user->role || owner == user->written_owner) &&
		!OidIsValid(ttl_container_ancestor_of_other(RelationGetRelid(rel)));
}

/*
 * Errors (23503): that expired row of the table can't be deleted in this session, or references what is
 * to be deleted.  The HINT says when the reaper does it.
 */
void
ttl_owner_refuse(Relation rel, const ItemPointerData *tid, bool references, const char *detail)
{
	TtlContainer container;
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TimestampTz until = DT_NOEND;
	char	   *when;

	if (ttl_container_lookup(RelationGetRelid(rel), &container) &&
		table_tuple_fetch_row_version(rel, unconstify(ItemPointerData *, tid),
									  SnapshotAny, slot))
		until = ttl_grace_held_until(&container, slot, ttl_execution_reference_time());
	if (until == DT_NOEND)
		when = _("It stays until its owner deletes it, or turns reaping on.");
	else if (until > ttl_execution_reference_time())
		when = psprintf(_("It is deleted in the background after %s."), timestamptz_to_str(until));
	else
		when = _("It is deleted in the background soon.");
	ereport(ERROR,
			(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
			 references ?
			 errmsg("an expired row of table \"%s\" still references what is to be deleted",
					RelationGetRelationName(rel)) :
			 errmsg("an expired row of table \"%s\" cannot be deleted yet",
					RelationGetRelationName(rel)),
			 errdetail_internal("%s", detail), errhint("%s", when)));
}

/* True if the role may delete from the table, or from it as a partition, by itself. */
bool
ttl_owner_may_delete(Oid role, Oid relid)
{
	for (;;)
	{
		if (pg_class_aclcheck(relid, role, ACL_DELETE) == ACLCHECK_OK &&
			check_enable_rls(relid, role, true) != RLS_ENABLED)
			return true;
		if (!get_rel_relispartition(relid))
			return false;
		relid = get_partition_parent(relid, true);
	}
}

/*
 * Referential actions for rows of one table; 'visited' are the tables that chains of
 * them have come to.
 *
 * Code counts by table and not by row, for statement triggers fire for no rows, too.  A
 * row that SET NULL or SET DEFAULT changes is checked, indexed, and may free a key: all
 * that is the owner's code.
 */
static bool
acts_as_other(const TtlSessionUser *user, Relation rel, List **visited)
{
	List	   *cascades = NIL;
	ListCell   *lc;

	foreach(lc, ttl_catalog_referencing(rel))
	{
		const TtlReferencing *key = lfirst(lc);

		if (key->action == FKCONSTR_ACTION_CASCADE)
			cascades = list_append_unique_oid(cascades, key->table);
		else if ((key->action == FKCONSTR_ACTION_SETNULL || key->action == FKCONSTR_ACTION_SETDEFAULT) &&
				 ttl_container_owner(key->table) != user->role)
			return true;
	}
	foreach(lc, cascades)
	{
		Relation	referencing;
		Oid			owner;
		ListCell   *part;

		if (list_member_oid(*visited, lfirst_oid(lc)))
			continue;
		*visited = lappend_oid(*visited, lfirst_oid(lc));
		check_stack_depth();
		/* PostgreSQL deletes from its partitions as its owner, too */
		referencing = table_open(lfirst_oid(lc), AccessShareLock);
		owner = referencing->rd_rel->relowner;
		table_close(referencing, NoLock);
		foreach(part, find_all_inheritors(lfirst_oid(lc), AccessShareLock, NULL))
		{
			Relation	acted_on = table_open(lfirst_oid(part), NoLock);
			bool		found = (owner != user->role &&
								 (ttl_owner_has_code(acted_on) ||
								  (owner != user->written_owner && ttl_archive_has_code(acted_on)))) ||
			acts_as_other(user, acted_on, visited);

			table_close(acted_on, NoLock);
			if (found)
				return true;
		}
	}
	return false;
}

/*
 * True if referential actions for rows of the table that go, which PostgreSQL carries out as
 * the owners of the referencing tables, run code as another role than the user.  Archives of the
 * owner of the table that he writes run code as that owner in any case, and don't count.
 */
bool
ttl_owner_acts_as_other(const TtlSessionUser *user, Relation rel)
{
	List	   *visited = NIL;

	return acts_as_other(user, rel, &visited);
}

/*
 * What a deletion sets off
 */

/*
 * Triggers of foreign keys and archives fire whatever the session's replication role.  In a
 * security-restricted operation those of foreign keys aren't deferred: PostgreSQL refuses it, and what
 * is done there, by an apply worker for one, may be an INSERT alone, which would defer nothing.
 */
static void
honour_foreign_keys(ModifyTableState *mtstate, ResultRelInfo *target)
{
	TriggerDesc *triggers = target->ri_TrigDesc;
	Oid			archive = ttl_container_function(TTL_ARCHIVE);

	/* the descriptor is a copy that belongs to the execution */
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];
		bool		is_foreign_key = RI_FKey_trigger_type(trigger->tgfoid) != RI_TRIGGER_NONE;

		if (trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN &&
			(trigger->tgfoid == archive || is_foreign_key))
			trigger->tgenabled = TRIGGER_FIRES_ALWAYS;
		if (is_foreign_key && InSecurityRestrictedOperation())
			trigger->tgdeferrable = false;
	}
}

/*
 * Has the triggers of foreign keys fire in the execution, though the session's replication
 * role is "replica", and at once, though it is in a security-restricted operation.
 */
void
ttl_owner_honour_foreign_keys(TtlExecution *execution)
{
	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA || InSecurityRestrictedOperation())
		ttl_execution_visit_targets(execution, honour_foreign_keys);
}

/*
 * Errors (42501) if the restricted operation has made temporary objects, whose names other owners'
 * code would find: PostgreSQL keeps it from making tables, but not functions and types.
 */
void
ttl_owner_check_temporary(void)
{
	if ((MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot use temporary objects within security-restricted operation")));
}

/*
 * A referential action begins in a restricted operation, as another owner: there are no temporary
 * objects, and the search_path is the safe one again.
 */
void
ttl_owner_begin_action(void)
{
	ttl_owner_check_temporary();
	/* what a trigger has set is not covered by GUC_ACTION_SAVE */
	if (strcmp(namespace_search_path, TTL_SAFE_SEARCH_PATH) != 0)
		(void) set_config_option("search_path", TTL_SAFE_SEARCH_PATH,
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * Runs what COMMIT would run of the owner's code, as the user who commits: deferred triggers, and the queries of
 * cursors WITH HOLD.  Each may leave more of the other behind, and triggers may defer what SET CONSTRAINTS would
 * make immediate, so it is done as COMMIT does it.
 */
void
ttl_owner_run_deferred(void)
{
	do
	{
		AfterTriggerFireDeferred();
	} while (PreCommit_Portals(false));
}
