/*-------------------------------------------------------------------------
 *
 * written_row.c
 *	  What the row trigger does to a row that is written: completes _ts, and refuses TTLs.
 *
 * TTLs without a meaning that are written to columns of integers are refused: 23514, as by a CHECK, whose text
 * each statement would read and prepare.  Not those that are generated, which are computed later, nor those that
 * are replicated, nor those that a row had before, be it in another partition.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "execution.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "visibility/writing.h"

/* The row, which is in the slot, with the present for a _ts that was given as NULL. */
HeapTuple
ttl_written_row_complete(Relation rel, const TtlContainer *container, HeapTuple tuple, TupleTableSlot *slot)
{
	int			column = container->ts_attno;
	Form_pg_attribute attribute;
	Datum		now;
	bool		isnull = false;

	/* replicated rows are the publisher's, NULLs included */
	if (column == InvalidAttrNumber || !slot_attisnull(slot, column) ||
		SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return tuple;
	attribute = TupleDescAttr(RelationGetDescr(rel), column - 1);
	now = ttl_type_present(container->ts_type, GetCurrentTimestamp(), container->ts_step);

	/*
	 * what a trigger puts into a row isn't coerced to the column's length any
	 * more
	 */
	if (attribute->atttypid == NUMERICOID)
		now = DirectFunctionCall2(numeric, now, Int32GetDatum(attribute->atttypmod));
	return heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 1, &column, &now, &isnull);
}

/* True if the old row has the value in its column of that name.  Partitions may have it elsewhere. */
static bool
has_value(TupleTableSlot *old, const char *name, Datum value)
{
	TupleDesc	desc = old->tts_tupleDescriptor;
	int			attno = SPI_fnumber(desc, name);
	bool		isnull;
	Datum		old_value;

	if (attno <= 0)
		return false;
	old_value = slot_getattr(old, attno, &isnull);
	return !isnull && datumIsEqual(value, old_value, TupleDescAttr(desc, attno - 1)->attbyval,
								   TupleDescAttr(desc, attno - 1)->attlen);
}

/* True if the trigger's function is called for that target. */
static bool
is_called_for(const FmgrInfo *function, const ResultRelInfo *target)
{
	return target->ri_TrigDesc != NULL && function >= target->ri_TrigFunctions &&
		function < target->ri_TrigFunctions + target->ri_TrigDesc->numtriggers;
}

/* True if it is called for a partition that the node writes. */
static bool
is_called_by(const FmgrInfo *function, const ModifyTableState *mtstate)
{
	ListCell   *lc;

	for (int i = 0; i < mtstate->mt_nrels; i++)
	{
		if (is_called_for(function, &mtstate->resultRelInfo[i]))
			return true;
	}
	foreach(lc, mtstate->ps.state->es_tuple_routing_result_relations)
	{
		const ResultRelInfo *target = lfirst(lc);

		if (target->ri_RootResultRelInfo == mtstate->rootResultRelInfo && is_called_for(function, target))
			return true;
	}
	return false;
}

/*
 * True if the node is moving a row that has the value already to another partition, which makes an
 * INSERT there.  The executor keeps the old row with the partition that it is moved from.
 */
static bool
moves_value(PlanState *planstate, const FmgrInfo *function, const char *name, Datum value)
{
	ModifyTableState *mtstate = (ModifyTableState *) planstate;
	TupleTableSlot *old;

	if (!IsA(planstate, ModifyTableState) ||
		(mtstate->operation != CMD_UPDATE && mtstate->operation != CMD_MERGE) ||
		!is_called_by(function, mtstate))
		return false;
	/* NOT MATCHED; what follows is the row of an action before */
	if (mtstate->operation == CMD_MERGE && mtstate->ps.ps_ExprContext->ecxt_scantuple == NULL)
		return false;
	old = mtstate->resultRelInfo[mtstate->mt_lastResultIndex].ri_oldTupleSlot;
	return old != NULL && !TTS_EMPTY(old) && has_value(old, name, value);
}

/* The same of the statement that runs: of its main node, or one in WITH */
static bool
statement_moves_value(const FmgrInfo *function, const char *name, Datum value)
{
	TtlExecution *execution = ttl_execution_current();
	ListCell   *lc;

	if (execution == NULL)
		return false;
	if (moves_value(execution->query_desc->planstate, function, name, value))
		return true;
	foreach(lc, execution->query_desc->estate->es_auxmodifytables)
	{
		if (moves_value(lfirst(lc), function, name, value))
			return true;
	}
	return false;
}

/*
 * Errors (23514) if the row in the slot has a TTL without a meaning, unless the row that it
 * replaces has it already, be it one of another partition.
 */
void
ttl_written_row_check_ttl(const TtlContainer *container, const TriggerData *trigger, const FmgrInfo *function,
						  TupleTableSlot *slot)
{
	Relation	rel = trigger->tg_relation;
	AttrNumber	column = container->ttl_attno;
	bool		isnull;
	Datum		value = slot_getattr(slot, column, &isnull);
	const char *name;

	if (isnull || !ttl_type_is_invalid(container->ttl_type, value))
		return;
	name = NameStr(TupleDescAttr(RelationGetDescr(rel), column - 1)->attname);
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ?
		!has_value(trigger->tg_trigslot, name, value) : !statement_moves_value(function, name, value))
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("new row for relation \"%s\" has an invalid TTL in column \"%s\"",
						RelationGetRelationName(rel), name),
				 errhint("Use a number of seconds from 1 to 2147483647, -1 for a row that never expires, or NULL for the default TTL."),
				 errtablecol(rel, column)));
}

/* True if TTLs without a meaning are refused. */
bool
ttl_written_row_has_ttl_check(const TtlContainer *container, Relation rel)
{
	return container->ttl_type != NULL && container->ttl_type->is_strict &&
		TupleDescAttr(RelationGetDescr(rel), container->ttl_attno - 1)->attgenerated == '\0' &&
		SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA;
}
