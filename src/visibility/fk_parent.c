/*-------------------------------------------------------------------------
 *
 * fk_parent.c
 *	  A foreign key finds an expired row absent, on PostgreSQL 19 and later.
 *
 * Up to 18, the check of the referenced side is a query, whose filter (hide.c)
 * does it.  Since 19, PostgreSQL probes the index of the referenced key
 * instead, and no query is planned, unless the referenced table is partitioned
 * or the key temporal.
 *
 * So where a statement writes a table that references a container, its foreign
 * key's trigger calls ttl.check_reference() in place of PostgreSQL's function:
 * in the private copy of the trigger descriptor of that execution alone.  It
 * executes a query for a live referenced row, and then leaves the rest
 * to PostgreSQL's function, the lock above all.
 *
 * Not reached, and so left to PostgreSQL alone: descriptors that are made while
 * a statement runs (COPY FROM, partitions that rows are routed to), and
 * deferrable keys, whose triggers may fire when the execution is over.
 * Referential actions don't need it, see fk_queries.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "commands/trigger.h"
#include "compat.h"
#include "constraint.h"
#include "container/container.h"
#include "execution.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "visibility/visibility.h"

/*
 * Is there a live row that the new row references?  True as well if the latter references
 * nothing, or the key is one for which PostgreSQL executes a query.  Searched as that would:
 * as the referenced table's owner.
 */
static bool
is_referenced_live(const TtlForeignKey *key, Relation rel, TupleTableSlot *slot)
{
	Oid			types[INDEX_MAX_KEYS];
	Datum		values[INDEX_MAX_KEYS];
	StringInfoData sql;
	Oid			userid;
	int			sec_context;
	bool		found;

	if (key->is_temporal)
		return true;
	for (int i = 0; i < key->nkeys; i++)
	{
		bool		isnull;

		types[i] = TupleDescAttr(RelationGetDescr(rel), key->referencing_keys[i] - 1)->atttypid;
		values[i] = slot_getattr(slot, key->referencing_keys[i], &isnull);
		if (isnull)
			return true;
	}
	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT 1 FROM ONLY %s x WHERE ",
					 ttl_container_table_name(key->referenced));
	ttl_constraint_append_referenced(&sql, key);

	GetUserIdAndSecContext(&userid, &sec_context);
	SetUserIdAndSecContext(ttl_container_owner(key->referenced),
						   sec_context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
	SPI_connect();
	if (SPI_execute_with_args(sql.data, key->nkeys, types, values, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", sql.data);
	found = SPI_processed > 0;
	SPI_finish();
	SetUserIdAndSecContext(userid, sec_context);
	return found;
}

/* May the user see the key in the error's detail? */
static bool
may_see_key(const TtlForeignKey *key, Oid relid)
{
	if (check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		return false;
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK)
		return true;
	for (int i = 0; i < key->nkeys; i++)
	{
		if (pg_attribute_aclcheck(relid, key->referencing_keys[i], GetUserId(), ACL_SELECT) != ACLCHECK_OK)
			return false;
	}
	return true;
}

/* The error that PostgreSQL gives for a row that isn't there */
static void
report_absent(const TtlForeignKey *key, Relation rel, TupleTableSlot *slot)
{
	const char *name = get_constraint_name(key->constraint);
	StringInfoData names;
	StringInfoData values;

	initStringInfo(&names);
	initStringInfo(&values);
	ttl_constraint_describe_key(slot, RelationGetRelid(rel), key->nkeys, key->referencing_keys,
								&names, &values);
	ereport(ERROR,
			(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
			 errmsg("insert or update on table \"%s\" violates foreign key constraint \"%s\"",
					RelationGetRelationName(rel), name),
			 may_see_key(key, RelationGetRelid(rel)) ?
			 errdetail("Key (%s)=(%s) is not present in table \"%s\".",
					   names.data, values.data, get_rel_name(key->referenced)) :
			 errdetail("Key is not present in table \"%s\".", get_rel_name(key->referenced)),
			 errtableconstraint(rel, name)));
}

PG_FUNCTION_INFO_V1(ttl_check_reference);

/*
 * ttl.check_reference() trigger
 *
 * Called in place of PostgreSQL's check of a foreign key; not by other triggers.
 */
Datum
ttl_check_reference(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	bool		is_update;
	TupleTableSlot *slot;
	TtlForeignKey key;
	FmgrInfo	flinfo;

	LOCAL_FCINFO(check, 0);

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || TRIGGER_FIRED_BY_DELETE(trigger->tg_event) ||
		!OidIsValid(trigger->tg_trigger->tgconstraint) ||
		!OidIsValid(trigger->tg_trigger->tgconstrrelid))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired by the trigger of a foreign key",
						"check_reference")));

	is_update = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event);
	/* PostgreSQL does this before it queues an event for its own function */
	if (is_update &&
		!RI_FKey_fk_upd_check_required(trigger->tg_trigger, trigger->tg_relation,
									   trigger->tg_trigslot, trigger->tg_newslot))
		return PointerGetDatum(NULL);

	slot = is_update ? trigger->tg_newslot : trigger->tg_trigslot;
	if (ttl_constraint_read(trigger->tg_trigger->tgconstraint,
							RelationGetRelid(trigger->tg_relation),
							trigger->tg_trigger->tgconstrrelid, &key) &&
		!is_referenced_live(&key, trigger->tg_relation, slot))
		report_absent(&key, trigger->tg_relation, slot);

	fmgr_info(is_update ? F_RI_FKEY_CHECK_UPD : F_RI_FKEY_CHECK_INS, &flinfo);
	InitFunctionCallInfoData(*check, &flinfo, 0, InvalidOid, fcinfo->context, NULL);
	return FunctionCallInvoke(check);
}

/* Puts our function in the place of PostgreSQL's. */
static void
probe_references(ModifyTableState *mtstate, ResultRelInfo *target)
{
	TriggerDesc *triggers = target->ri_TrigDesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];
		TtlContainer container;

		if ((trigger->tgfoid == F_RI_FKEY_CHECK_INS || trigger->tgfoid == F_RI_FKEY_CHECK_UPD) &&
			!trigger->tgdeferrable && ttl_container_lookup(trigger->tgconstrrelid, &container) &&
			get_rel_relkind(trigger->tgconstrrelid) == RELKIND_RELATION)
			trigger->tgfoid = ttl_container_function(TTL_CHECK_REFERENCE);
	}
}

void
ttl_fk_parent_started(TtlExecution *execution)
{
	if (ttl_container_objects() != NULL && !InNoForceRLSOperation())
		ttl_execution_visit_targets(execution, probe_references);
}
