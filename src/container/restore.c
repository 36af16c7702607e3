/*-------------------------------------------------------------------------
 *
 * restore.c
 *	  Rows of ttl.container that come in by SQL.
 *
 * Such rows are those of a dump that is restored, and those that a publication FOR ALL
 * TABLES sends; no role may write to the table otherwise.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "container/policy.h"
#include "fmgr.h"
#include "replication/logicalworker.h"
#include "ttl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

static void
refuse_change(Relation rel)
{
	bool		is_pause = rel->rd_rel->relkind != RELKIND_VIEW &&
		RelationGetRelid(rel) != ttl_container_objects()->catalog;

	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("rows of \"%s.%s\" cannot be changed directly",
					TTL_SCHEMA, RelationGetRelationName(rel)),
			 is_pause ? errhint("Use ttl.pause() or ttl.resume().") :
			 errhint("Use ttl.create_container(), ttl.set_default_ttl(), ttl.alter_container() or ttl.drop_container().")));
}

/*
 * Says what is left to do after a restore of containers.  Scripts of pg_dump let nothing
 * less than a WARNING through.
 */
static void
remind(int64 restored)
{
	if (restored > 0)
		ereport(WARNING,
				(errmsg_plural("%lld container was restored with reaping off",
							   "%lld containers were restored with reaping off",
							   (unsigned long) restored, (long long) restored),
				 errdetail("Expired rows are hidden, and none is deleted."),
				 errhint("Use ttl.alter_container(..., reaping => true) to have them deleted.")));
}

/*
 * Warns unless the policy of a row that is restored can be one of that table.  Where a table
 * was dropped while the library wasn't loaded, a dump may have its OID, which is that of
 * another table here, or of none.
 */
static bool
can_be_restored(Oid relid, HeapTuple tuple, TupleDesc desc)
{
	char		relkind = get_rel_relkind(relid);
	TtlPolicy	policy;
	TtlContainer container;

	ttl_policy_of_tuple(tuple, desc, &policy);
	ttl_container_find_columns(relid, &policy, &container);
	if ((relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		!container.lacks_column)
		return true;
	ereport(WARNING,
			(errmsg("policy of table \"%s\" was not restored", ttl_container_qualified_name(relid)),
			 relkind == '\0' ? errdetail("There is no such table.") :
			 errdetail("The table lacks a column that the policy names, so the policy is that of another one.")));
	return false;
}

PG_FUNCTION_INFO_V1(ttl_restore_container);

/*
 * ttl.restore_container() trigger
 *
 * Fires for rows that come in by SQL, which is pg_restore's COPY.  What has
 * expired since the dump was made must not be deleted before the
 * owner says so; hence reaping is off.  And the policy is not propagated to a table that was
 * restored, be it that of a shard.  The policy of a container that is there
 * already is left alone, but for that of an extension's table, which its script
 * has registered by its own arguments, and not as the database had it.
 *
 * And for what a publication FOR ALL TABLES sends of the publisher's policies.
 * The subscriber's are its own, as is a pause (ttl.paused).
 *
 * A policy of a table that is gone, or can't be of that table, is not restored.
 *
 * A superuser who changes rows by hand is refused: the policy would be in force
 * at some time or never, and unchecked.
 *
 * When all rows are in, it fires once more, to remind who restores them.
 */
Datum
ttl_restore_container(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	HeapTuple	tuple;
	Datum		relid;
	bool		isnull;
	Datum		archive;
	int			columns[] = {Anum_container_reaping, Anum_container_propagated,
	Anum_container_archive_to, Anum_container_archive_columns};
	Datum		off[] = {BoolGetDatum(false), BoolGetDatum(false), 0, 0};
	bool		nulls[] = {false, false, true, true};
	int			ncolumns = 2;
	TtlPolicy	existing;

	if (!CALLED_AS_TRIGGER(fcinfo) || ttl_container_objects() == NULL ||
		RelationGetNamespace(trigger->tg_relation) != ttl_container_objects()->schema)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired by a trigger of ttl.container",
						"restore_container")));
	if (RelationGetRelid(trigger->tg_relation) != ttl_container_objects()->catalog)
	{
		/* ttl.paused, or the view ttl.containers */
		if (!IsLogicalWorker())
			refuse_change(trigger->tg_relation);
		return PointerGetDatum(NULL);
	}

	if (TRIGGER_FIRED_AFTER(trigger->tg_event))
	{
		if (trigger->tg_newtable != NULL)
			remind(tuplestore_tuple_count(trigger->tg_newtable));
		return PointerGetDatum(NULL);
	}
	if (TRIGGER_FIRED_BY_TRUNCATE(trigger->tg_event))
		refuse_change(trigger->tg_relation);
	if (IsLogicalWorker())
		return PointerGetDatum(NULL);

	desc = RelationGetDescr(trigger->tg_relation);
	tuple = trigger->tg_trigtuple;
	relid = heap_getattr(tuple, Anum_container_relid, desc, &isnull);
	if (TRIGGER_FIRED_BY_DELETE(trigger->tg_event) &&
		get_rel_relkind(DatumGetObjectId(relid)) == '\0')
		return PointerGetDatum(tuple);	/* the table has gone */
	if (!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		refuse_change(trigger->tg_relation);
	/* the NOT NULL constraint is checked later */
	if (isnull)
		return PointerGetDatum(tuple);
	if (!can_be_restored(DatumGetObjectId(relid), tuple, desc))
		return PointerGetDatum(NULL);
	if (ttl_container_read(DatumGetObjectId(relid), &existing))
	{
		if (!OidIsValid(getExtensionOfObject(RelationRelationId, DatumGetObjectId(relid))))
		{
			ereport(LOG,
					(errmsg("container \"%s\" already exists; its policy was left alone",
							ttl_container_qualified_name(DatumGetObjectId(relid)))));
			return PointerGetDatum(NULL);
		}
		ttl_container_delete(DatumGetObjectId(relid));
	}
	archive = heap_getattr(tuple, Anum_container_archive_to, desc, &isnull);
	/* a propagated policy names the table itself */
	if (!isnull && (archive == relid || get_rel_relkind(DatumGetObjectId(archive)) == '\0'))
	{
		ncolumns = lengthof(columns);
		ereport(WARNING,
				(errmsg("container \"%s\" was restored without its archive",
						ttl_container_qualified_name(DatumGetObjectId(relid))),
				 errdetail("There is no such table.")));
	}
	ttl_container_announce_change(DatumGetObjectId(relid), true);
	ereport(LOG,
			(errmsg("container \"%s\" was restored with reaping off",
					ttl_container_qualified_name(DatumGetObjectId(relid))),
			 errhint("Use ttl.alter_container(..., reaping => true) to have its expired rows deleted.")));
	return PointerGetDatum(heap_modify_tuple_by_cols(tuple, desc, ncolumns, columns, off, nulls));
}
