/*-------------------------------------------------------------------------
 *
 * policy_guard.c
 *	  Rows of ttl.container that come in by SQL.
 *
 * Those of a dump that is restored are let in, if they can be of the table here.  Those that a
 * publication FOR ALL TABLES sends are left out, and changes by hand are refused.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "container/container_private.h"
#include "fmgr.h"
#include "replication/logicalworker.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#define DIRECT_CHANGE_HINT \
	"Use ttl.set_default_ttl(), ttl.alter_container() or ttl.drop_container()."

/* The tables that a utility command writes rows of, or empties */
static List *
tables_of_command(Node *command)
{
	if (IsA(command, TruncateStmt))
		return ((TruncateStmt *) command)->relations;
	if (IsA(command, CopyStmt) && ((CopyStmt *) command)->is_from)
		return list_make1(((CopyStmt *) command)->relation);
	return NIL;
}

/* True if the statement, or utility command, changes rows of ttl.container itself. */
bool
ttl_policy_is_written(const PlannedStmt *stmt)
{
	List	   *tables = stmt->utilityStmt == NULL ? NIL : tables_of_command(stmt->utilityStmt);
	bool		writes = stmt->utilityStmt != NULL ? tables != NIL :
	stmt->commandType != CMD_SELECT || stmt->hasModifyingCTE;
	const TtlObjects *objects = writes ? ttl_container_objects() : NULL;
	ListCell   *lc;

	if (objects == NULL)
		return false;
	foreach(lc, tables)
	{
		if (RangeVarGetRelid(lfirst(lc), NoLock, true) == objects->catalog)
			return true;
	}
	foreach(lc, stmt->rtable)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		/*
		 * a table that is written has this lock, one that is read a weaker
		 * one
		 */
		if (rte->rtekind == RTE_RELATION && rte->relid == objects->catalog &&
			rte->rellockmode == RowExclusiveLock)
			return true;
	}
	return false;
}

/* Error context of such a one: adds a HINT if it is denied. */
void
ttl_policy_explain_denied(void *arg)
{
	if (geterrcode() == ERRCODE_INSUFFICIENT_PRIVILEGE)
		errhint(DIRECT_CHANGE_HINT);
}

/*
 * Reads the settings of a row that is restored; errors (22023) if one has a value that no function of ttl
 * gives it.  ttl.container has no constraint for that: each session that reads a policy would read these, too.
 */
static void
read_settings(HeapTuple tuple, TupleDesc desc, TtlPolicy *policy)
{
	ttl_container_check_version(desc);
	ttl_policy_init(policy);
	for (int i = 0; i < ttl_nsettings; i++)
	{
		bool		isnull;
		Datum		value = heap_getattr(tuple, ttl_settings[i].attnum, desc, &isnull);

		if (!isnull)
			ttl_policy_set(policy, &ttl_settings[i], value);
	}
}

/*
 * Warns and returns false unless the policy of a row that is restored can be one of that table.  Where a
 * table was dropped while the library wasn't loaded, a dump may have its OID, which is that of
 * another table here, or of none.
 */
static bool
check_restorable(Oid relid, HeapTuple tuple, TupleDesc desc)
{
	char		relkind = get_rel_relkind(relid);
	TtlPolicy	policy;

	read_settings(tuple, desc, &policy);
	if ((relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		ttl_policy_is_possible(relid, &policy))
		return true;
	ereport(WARNING,
			(errmsg("policy of table \"%s\" was not restored", ttl_container_qualified_name(relid)),
			 errdetail("There is no table of that name or number that can have this policy.")));
	return false;
}

PG_FUNCTION_INFO_V1(ttl_restore_container);

/*
 * ttl.restore_container() trigger
 *
 * Fires for rows that come in by SQL, which is pg_restore's COPY.  What has expired since the
 * dump was made must not be deleted before the owner says so; hence reaping is off.  The policy
 * of a container that is there already is left alone, but for that of an extension's table,
 * which its script has registered by its own arguments, and not as the database had it.  A policy
 * of a table that is gone, or can't be of that table, is not restored, nor is an archive that is
 * gone: another table might get its number.
 *
 * And for what a publication FOR ALL TABLES sends of the publisher's policies and its pause: the
 * subscriber's are its own.  A superuser who changes rows by hand is refused: a policy would be
 * in force at some time or never, and unchecked.
 */
Datum
ttl_restore_container(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	const TtlObjects *objects = ttl_container_require_objects();
	TupleDesc	desc;
	HeapTuple	tuple;
	Oid			relid;
	TtlPolicy	existing;
	Datum		archive;
	bool		lost_archive;
	int			columns[] = {Anum_container_reaping, Anum_container_archive_to};
	Datum		values[] = {BoolGetDatum(false), 0};
	bool		nulls[] = {false, true};
	bool		isnull;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		RelationGetNamespace(trigger->tg_relation) != objects->schema)
		elog(ERROR, "ttl.restore_container() is a trigger of ttl's own tables");
	if (IsLogicalWorker() && TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		return PointerGetDatum(NULL);
	if (RelationGetRelid(trigger->tg_relation) != objects->catalog ||
		!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("rows of \"%s.%s\" cannot be changed directly",
						TTL_SCHEMA, RelationGetRelationName(trigger->tg_relation)),
				 RelationGetRelid(trigger->tg_relation) == objects->catalog ?
				 errhint(DIRECT_CHANGE_HINT) : errhint("Use ttl.pause() and ttl.resume().")));

	desc = RelationGetDescr(trigger->tg_relation);
	tuple = trigger->tg_trigtuple;
	relid = ttl_policy_relid_of(tuple, desc);
	if (!check_restorable(relid, tuple, desc))
		return PointerGetDatum(NULL);
	if (ttl_policy_read(relid, &existing))
	{
		if (!OidIsValid(getExtensionOfObject(RelationRelationId, relid)))
		{
			ereport(LOG,
					(errmsg("container \"%s\" already exists; its policy was left alone",
							ttl_container_qualified_name(relid))));
			return PointerGetDatum(NULL);
		}
		ttl_policy_delete(relid);
	}
	archive = heap_getattr(tuple, Anum_container_archive_to, desc, &isnull);
	lost_archive = !isnull && get_rel_relkind(DatumGetObjectId(archive)) == '\0';

	/*
	 * sessions look when this has been committed, and so has the row that is
	 * let in
	 */
	ttl_policy_announce_change(relid, true);
	ereport(WARNING,
			(errmsg("container \"%s\" was restored with reaping off",
					ttl_container_qualified_name(relid)),
			 lost_archive ? errdetail("Expired rows are hidden, and none is deleted. Its archive does not exist, and was not restored.") :
			 errdetail("Expired rows are hidden, and none is deleted."),
			 errhint("Use ttl.alter_container(..., reaping => true) to have them deleted.")));
	return PointerGetDatum(heap_modify_tuple_by_cols(tuple, desc, lost_archive ? lengthof(columns) : 1,
													 columns, values, nulls));
}
