/*-------------------------------------------------------------------------
 *
 * fk_check.c
 *	  The checks of rows that reference containers, by PostgreSQL's foreign keys.
 *
 * A row that is written may not reference an expired row: the query of the check is an ordinary
 * one for fk.c, and finds it absent.  But a row may keep what it references, which may have
 * expired since, if an UPDATE doesn't change its key.  PostgreSQL doesn't check such a row again,
 * unless the same transaction had written it before: it can't tell whether that has been checked,
 * and the new version would keep its check from being made.  It does no harm there, for what has been
 * checked is still referenced; here the second UPDATE would fail.  So where a transaction that
 * has written before writes a table that references a container, the foreign key's trigger gets a
 * condition, in the private copy of the trigger descriptor of that execution alone: it needn't
 * fire for a row whose key doesn't change, and which has been checked.  In doubt it fires.  Not
 * reached are partitions that INSERT ... ON CONFLICT routes rows to.
 *
 * Since PostgreSQL 19 no query is planned for the check of the referenced side, unless the
 * referenced table is partitioned or the key temporal: the index of the referenced key is probed.
 * So where a statement writes a table that references a container, its foreign key's trigger calls
 * ttl.check_reference() in place of PostgreSQL's function: in the private copy of the trigger
 * descriptor of that execution alone.  It executes a query for a live referenced row, and then
 * leaves the rest to PostgreSQL's function, the lock above all.  Not reached, and so left to
 * PostgreSQL alone: descriptors that are made while a statement runs (COPY FROM, partitions that
 * rows are routed to), and deferrable keys, whose triggers may fire when the execution is over.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog_expr.h"
#include "commands/trigger.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "executor/execExpr.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "own_sql.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/ruleutils.h"
#include "visibility/visibility.h"

/*
 * References that are kept
 */

/* The header of the row in the slot if this transaction has written it, else NULL */
HeapTupleHeader
ttl_fk_check_own_header(TupleTableSlot *slot)
{
	HeapTupleHeader header;

	if (!TTS_IS_BUFFERTUPLE(slot))
		return NULL;
	header = ((HeapTupleTableSlot *) slot)->tuple->t_data;
	return TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(header)) ? header : NULL;
}

/* Whether deferred triggers of a table have still to fire */
typedef enum Pending
{
	PENDING_UNKNOWN,			/* PostgreSQL hasn't been asked */
	PENDING_NONE,
	PENDING_SOME
} Pending;

/* The condition of a foreign key's trigger on UPDATE, for rows of one table */
typedef struct Condition
{
	ExprState	state;
	Relation	rel;
	Trigger    *trigger;
	Pending		pending;
	TupleTableSlot *old;		/* the old version, as if another transaction
								 * had written it */
} Condition;

/* True if the key of the row changes, as PostgreSQL compares it. */
static bool
changes_key(Condition *condition, TupleTableSlot *old, TupleTableSlot *new)
{
	HeapTuple	tuple = ExecCopySlotHeapTuple(old);
	bool		result;

	HeapTupleHeaderSetXmin(tuple->t_data, FrozenTransactionId);
	ExecStoreHeapTuple(tuple, condition->old, true);
	result = RI_FKey_fk_upd_check_required(condition->trigger, condition->rel, condition->old, new);
	ExecClearTuple(condition->old);
	return result;
}

/*
 * True if no trigger of the foreign key is deferred that a version of a row may need, which was written before the
 * execution began.  PostgreSQL is asked once, at the first row that needs it, for it looks through all that are deferred.
 */
static bool
is_none_deferred(Condition *condition)
{
	if (!condition->trigger->tgdeferrable)
		return true;
	if (condition->pending == PENDING_UNKNOWN)
		condition->pending = AfterTriggerPendingOnRel(RelationGetRelid(condition->rel)) ? PENDING_SOME : PENDING_NONE;
	return condition->pending == PENDING_NONE;
}

/*
 * True if this version of the row, which the transaction has written, has been checked: by what had been there before,
 * since an INSERT may have been exempt from checks (replication role, disabled triggers), or be COPY's, which is no
 * execution, and checks its rows when it ends.
 */
static bool
is_checked(Condition *condition, HeapTupleHeader header)
{
	CommandId	written_in = HeapTupleHeaderGetCmin(header);

	return (header->t_infomask & HEAP_UPDATED) != 0 &&
		!ttl_execution_may_fire_for(written_in) && is_none_deferred(condition);
}

/* The evaluation of that condition: true if the trigger is to fire, should PostgreSQL think so, too */
static Datum
evaluate_condition(ExprState *state, ExprContext *econtext, bool *isnull)
{
	Condition  *condition = (Condition *) state;
	TupleTableSlot *old = econtext->ecxt_innertuple;
	HeapTupleHeader header = ttl_fk_check_own_header(old);

	*isnull = false;
	return BoolGetDatum(header == NULL || !is_checked(condition, header) ||
						changes_key(condition, old, econtext->ecxt_outertuple));
}

/* True if the trigger checks, on UPDATE, a foreign key that references a container. */
static bool
checks_container(const Trigger *trigger)
{
	TtlContainer container;

	return trigger->tgfoid == F_RI_FKEY_CHECK_UPD && ttl_container_lookup(trigger->tgconstrrelid, &container);
}

/* True if one of the triggers does. */
static bool
references_container(const TriggerDesc *triggers)
{
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		if (checks_container(&triggers->triggers[i]))
			return true;
	}
	return false;
}

/*
 * Gives the triggers of the table's foreign keys that condition, also of deferrable ones that reference no container:
 * what they defer would be taken for a check of the others.  None of PostgreSQL's own has a condition, so its place is
 * free.
 */
static void
spare_kept_references(ModifyTableState *mtstate, ResultRelInfo *target)
{
	TriggerDesc *triggers = target->ri_TrigDesc;
	EState	   *estate = mtstate->ps.state;
	MemoryContext old;

	if (mtstate->operation == CMD_DELETE ||
		(mtstate->operation == CMD_INSERT && target->ri_onConflict == NULL) ||
		!references_container(triggers))
		return;
	old = MemoryContextSwitchTo(estate->es_query_cxt);
	for (int i = 0; i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];
		Condition  *condition;

		if (trigger->tgfoid != F_RI_FKEY_CHECK_UPD || !(trigger->tgdeferrable || checks_container(trigger)))
			continue;
		condition = palloc0(sizeof(Condition));
		ttl_execution_init_expr(&condition->state, evaluate_condition, EEO_FLAG_IS_QUAL);
		condition->rel = target->ri_RelationDesc;
		condition->trigger = trigger;
		condition->old = ExecInitExtraTupleSlot(estate, RelationGetDescr(condition->rel), &TTSOpsHeapTuple);
		/* TriggerEnabled() would read the text if the state weren't there */
		trigger->tgqual = "";
		target->ri_TrigWhenExprs[i] = &condition->state;
	}
	MemoryContextSwitchTo(old);
}

/*
 * References to expired rows, on PostgreSQL 19 and later
 */

/*
 * True if there is a live row that the new row references, as well if the latter references
 * nothing, or the key is one for which PostgreSQL executes a query.  Searched as that would:
 * as the referenced table's owner.
 */
static bool
is_referenced_live(const TtlForeignKey *key, Relation rel, TupleTableSlot *slot)
{
	Oid			types[INDEX_MAX_KEYS];
	Datum		values[INDEX_MAX_KEYS];
	StringInfoData sql;
	TtlSqlContext saved;
	bool		found;

	if (key->is_temporal)
		return true;
	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT 1 FROM ONLY %s x",
					 ttl_container_table_name(key->referenced));
	for (int i = 0; i < key->nkeys; i++)
	{
		AttrNumber	referenced = key->referenced_keys[i];
		bool		isnull;

		types[i] = TupleDescAttr(RelationGetDescr(rel), key->referencing_keys[i] - 1)->atttypid;
		values[i] = slot_getattr(slot, key->referencing_keys[i], &isnull);
		if (isnull)
			return true;
		appendStringInfoString(&sql, i == 0 ? " WHERE " : " AND ");
		generate_operator_clause(&sql, quote_identifier(get_attname(key->referenced, referenced, false)),
								 get_atttype(key->referenced, referenced), key->operators[i],
								 psprintf("$%d", i + 1), types[i]);
	}

	ttl_sql_begin(ttl_container_owner(key->referenced), TTL_SQL_NOFORCE_RLS, &saved);
	if (SPI_execute_with_args(sql.data, key->nkeys, types, values, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", sql.data);
	found = SPI_processed > 0;
	ttl_sql_end(&saved);
	return found;
}

/* True if the user may see the key in the error's detail. */
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
	ttl_catalog_describe_key(slot, RelationGetRelid(rel), key->nkeys, key->referencing_keys,
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
	if (ttl_catalog_foreign_key(trigger->tg_trigger->tgconstraint,
								RelationGetRelid(trigger->tg_relation),
								trigger->tg_trigger->tgconstrrelid, &key) &&
		!is_referenced_live(&key, trigger->tg_relation, slot))
		report_absent(&key, trigger->tg_relation, slot);

	/* it may go after that look: PostgreSQL's check locks it */
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

/*
 * Executions
 */

/* An execution has started. */
void
ttl_fk_check_started(TtlExecution *execution)
{
	if (ttl_container_objects() == NULL)
		return;
	/* before any write no row of this transaction's own is met */
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ttl_execution_visit_targets(execution, spare_kept_references);
	if (TTL_PROBES_REFERENCES && !InNoForceRLSOperation())
		ttl_execution_visit_targets(execution, probe_references);
}
