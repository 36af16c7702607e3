/*-------------------------------------------------------------------------
 *
 * trigger_desc.c
 *	  Makes the row trigger of a container fire where it has to.
 *
 * An UPDATE that assigns key columns needs keys freed, one that assigns TTLs needs them checked
 * (evict.c), and other UPDATEs must not pay for a row trigger.  So the trigger is declared for INSERT, and made to fire
 * before UPDATE, too, in the private copy of the trigger descriptor of just those
 * executions.  There it is made the last to fire, too, and gets its function.
 *
 * Limit: a row trigger whose name sorts after ours fires after it where the
 * trigger descriptor is made while the statement runs, i.e. in COPY and in
 * partitions that rows are routed to.  A key that it changes isn't freed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_trigger.h"
#include "citus/citus.h"
#include "compat.h"
#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "visibility/visibility.h"

/*
 * Makes the container's trigger fire before UPDATE, too, in this execution, if the statement
 * assigns key columns or a TTL that may be refused, or a row trigger of the user's may do so.
 */
static void
fire_on_update(ResultRelInfo *info, EState *estate, const TtlContainer *container)
{
	TriggerDesc *triggers = info->ri_TrigDesc;
	Trigger    *trigger = ttl_citus_find_trigger(triggers);

	if (trigger == NULL)
		return;
	if (!triggers->trig_update_before_row)
	{
		/* it may read catalogs, after which the key columns are no longer good */
		Bitmapset  *updated = ExecGetAllUpdatedCols(info, estate);

		if (!bms_overlap(updated, ttl_container_key_columns(info->ri_RelationDesc)) &&
			!(container->ttl_type != NULL && container->ttl_type->is_strict &&
			  bms_is_member(container->ttl_attno - FirstLowInvalidHeapAttributeNumber, updated)))
			return;
	}
	trigger->tgtype |= TRIGGER_TYPE_UPDATE;
	triggers->trig_update_before_row = true;
}

/*
 * Makes the container's trigger the last to fire, whatever the names of
 * others, and looks its function up for the session instead of for each execution.
 * Only while none has fired yet: what belongs to each is kept by its position.
 */
static void
fire_last(ResultRelInfo *target, EState *estate)
{
	static FmgrInfo function = {.fn_oid = InvalidOid};

	TriggerDesc *triggers = target->ri_TrigDesc;
	Trigger    *trigger = ttl_citus_find_trigger(triggers);
	Trigger    *last = &triggers->triggers[triggers->numtriggers - 1];
	Trigger		moved;

	if (trigger == NULL)
		return;
	if (trigger != last)
	{
		moved = *trigger;
		memmove(trigger, trigger + 1, (char *) last - (char *) trigger);
		*last = moved;
	}
	if (function.fn_oid != last->tgfoid)
		fmgr_info_cxt(last->tgfoid, &function, TopMemoryContext);
	fmgr_info_copy(&target->ri_TrigFunctions[triggers->numtriggers - 1], &function,
				   estate->es_query_cxt);
}

static void
prepare_target(ModifyTableState *mtstate, ResultRelInfo *target)
{
	TtlContainer container;

	if (mtstate->operation == CMD_DELETE || target->ri_TrigDesc == NULL ||
		!ttl_container_lookup(RelationGetRelid(target->ri_RelationDesc), &container))
		return;
	fire_last(target, mtstate->ps.state);
	ttl_evict_check_conflicts(target, mtstate->ps.state);
	if (mtstate->operation != CMD_INSERT ||
		((ModifyTable *) mtstate->ps.plan)->onConflictAction == ONCONFLICT_UPDATE)
		fire_on_update(target, mtstate->ps.state, &container);
}

/*
 * A partition that tuples are routed to is opened while the statement runs.
 * ON CONFLICT DO UPDATE comes after the trigger has fired for the insertion.
 */
void
ttl_trigger_desc_routed(Relation rel, const TtlContainer *container)
{
	TtlExecution *execution = ttl_execution_current();
	ListCell   *lc;

	if (execution == NULL)
		return;
	foreach(lc, execution->query_desc->estate->es_tuple_routing_result_relations)
	{
		ResultRelInfo *info = lfirst(lc);

		if (info->ri_RelationDesc == rel)
		{
			fire_on_update(info, execution->query_desc->estate, container);
			ttl_evict_check_conflicts(info, execution->query_desc->estate);
		}
	}
}

void
ttl_trigger_desc_started(TtlExecution *execution)
{
	ttl_execution_visit_targets(execution, prepare_target);
}
