/*-------------------------------------------------------------------------
 *
 * targets.c
 *	  The targets of a statement that writes rows: whether the row trigger fires for it.
 *
 * An UPDATE that assigns key columns needs keys freed, one that assigns TTLs needs them checked, one
 * that isn't stamped may make a row expire, and other UPDATEs must not pay for a row trigger.  So the
 * trigger is declared for INSERT, and made to fire before UPDATE, too, in the private copy of the trigger
 * descriptor of just those executions.  There it is made the last to fire, too, and gets its function.  A
 * row trigger whose name sorts after ours fires after it where the trigger descriptor is made while the
 * statement runs, i.e. in COPY and in partitions that rows are routed to.  A key that it changes isn't freed.
 *
 * The trigger publishes what the rows say of their expiry (writers.c), so it fires for UPDATEs that aren't
 * stamped and assign what decides when a row expires.  UPDATEs that assign deadlines are as frequent as they
 * are cheap: those publish for all their rows, when they start, that these may be of any time.  So do those
 * that are stamped, that no row is older than the statement.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_trigger.h"
#include "catalog_expr.h"
#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "ttl.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "visibility/visibility.h"
#include "visibility/writing.h"
#include "writers.h"

/* For ttl_container_derive() */
static void *
derive_key_columns(Relation rel, Size *size)
{
	Bitmapset  *columns = ttl_catalog_expr_key_columns(rel);

	/* a Bitmapset is one chunk, so its copy is one */
	if (columns != NULL)
		*size = offsetof(Bitmapset, words) + columns->nwords * sizeof(bitmapword);
	return columns;
}

/*
 * The columns that the unique and exclusion indexes of a container's table depend on, as in an
 * attribute bitmap.  The result is good until catalogs are read.
 */
const Bitmapset *
ttl_targets_key_columns(Relation rel)
{
	return ttl_container_derive(rel, TTL_DERIVED_KEY_COLUMNS, derive_key_columns);
}

/* True if the TTL column is among the assigned columns. */
static bool
assigns_ttl(const TtlContainer *container, const Bitmapset *updated)
{
	return container->ttl_type != NULL &&
		bms_is_member(container->ttl_attno - FirstLowInvalidHeapAttributeNumber, updated);
}

/* True if UPDATEs of the execution set the clock of their rows. */
static bool
is_stamped(const TtlContainer *container, const EState *estate)
{
	return container->policy.touch_on_update && ttl_execution_of(estate)->touches;
}

/*
 * True if an UPDATE that assigns these columns may write what the trigger checks: a TTL that is refused,
 * or a row that has expired already, because it isn't stamped.
 */
static bool
updates_expiry(const TtlContainer *container, const Bitmapset *updated, const EState *estate)
{
	if (assigns_ttl(container, updated) && container->ttl_type->is_strict)
		return true;

	/*
	 * a row that is stamped isn't expired, unless by its deadline, see
	 * publish_update()
	 */
	if (is_stamped(container, estate))
		return false;
	return assigns_ttl(container, updated) ? !ttl_type_is_deadline(container->ttl_type) :
		bms_is_member(container->ts_attno - FirstLowInvalidHeapAttributeNumber, updated);
}

/* The columns that an UPDATE assigns; a union is made only where generated ones are among them. */
static const Bitmapset *
updated_columns(ResultRelInfo *info, EState *estate)
{
	return bms_is_empty(ExecGetExtraUpdatedCols(info, estate)) ?
		ExecGetUpdatedCols(info, estate) : ExecGetAllUpdatedCols(info, estate);
}

/*
 * Publishes all rows of an UPDATE that assigns these columns and that the trigger doesn't fire for: what they
 * say of their expiry is that of the present at least where they are stamped, any where a deadline is
 * assigned, and else stays as it is.
 */
static void
publish_update(const TtlContainer *container, const Bitmapset *updated, EState *estate)
{
	TtlRowTimes earliest = {DT_NOEND, DT_NOEND};
	bool		has_deadlines = ttl_type_is_deadline(container->ttl_type);

	if (container->ts_attno != InvalidAttrNumber && is_stamped(container, estate))
	{
		earliest.ts = ttl_execution_of(estate)->clock;
		/* a row's own TTL is a second at least */
		if (container->ttl_type != NULL && !has_deadlines)
			earliest.expiry = ttl_expiry_add(earliest.ts, 1);
	}
	if (has_deadlines && assigns_ttl(container, updated))
		earliest.expiry = DT_NOBEGIN;
	if (earliest.ts != DT_NOEND || earliest.expiry != DT_NOEND)
		ttl_writers_join(container->container, estate->es_query_cxt, earliest);
}

/*
 * True if an UPDATE needs the trigger for the target, which is part of a container; else it is published.
 * Its targets are most often the partitions of a container, many more than it has rows: by their keys they may
 * differ, but when rows expire is said by the same columns in all of them.
 */
static bool
needs_trigger(ResultRelInfo *info, EState *estate)
{
	TtlExecution *execution = ttl_execution_of(estate);

	/*
	 * it may read catalogs, after which the key columns are no longer good
	 */
	const Bitmapset *updated = updated_columns(info, estate);
	TtlContainer part;

	if (bms_is_empty(updated))
		return false;			/* it is no UPDATE */
	if (bms_overlap(updated, ttl_targets_key_columns(info->ri_RelationDesc)))
		return true;

	/*
	 * since 16 a generated column may depend on other columns in another
	 * partition
	 */
	if (info->ri_RootResultRelInfo != NULL && info->ri_RootResultRelInfo == execution->published_root &&
		bms_is_empty(ExecGetExtraUpdatedCols(info, estate)))
		return false;

	if (!ttl_container_lookup(RelationGetRelid(info->ri_RelationDesc), &part))
		return false;
	if (updates_expiry(&part, updated, estate))
		return true;
	publish_update(&part, updated, estate);
	execution->published_root = info->ri_RootResultRelInfo;
	return false;
}

/*
 * Makes the container's trigger fire before UPDATE, too, in this execution, if the statement
 * assigns key columns or what decides when a row expires, or a row trigger of the user's may do so.
 * Nothing to do without the trigger (NULL).
 */
static void
fire_on_update(ResultRelInfo *info, Trigger *trigger, EState *estate)
{
	TriggerDesc *triggers = info->ri_TrigDesc;

	if (trigger == NULL ||
		(!triggers->trig_update_before_row && !needs_trigger(info, estate)))
		return;
	trigger->tgtype |= TRIGGER_TYPE_UPDATE;
	triggers->trig_update_before_row = true;
}

/*
 * Makes the container's trigger the last to fire, whatever the names of
 * others, and looks its function up for the session instead of for each execution.
 * Only while none has fired yet: what belongs to each is kept by its position.  Returns where it is then.
 */
static Trigger *
fire_last(ResultRelInfo *target, Trigger *trigger, EState *estate)
{
	static FmgrInfo function = {.fn_oid = InvalidOid};

	TriggerDesc *triggers = target->ri_TrigDesc;
	Trigger    *last = &triggers->triggers[triggers->numtriggers - 1];
	Trigger		moved;

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
	return last;
}

/*
 * Notes that the statement writes a container whose trigger is disabled.  It will fail on the key of an
 * expired row, as on a plain table.
 */
static void
note_disabled(const Trigger *trigger, const EState *estate)
{
	TtlExecution *execution = ttl_execution_of(estate);

	if (execution != NULL && !ttl_row_trigger_is_enabled(trigger))
		execution->keeps_keys = true;
}

/*
 * Error context of a statement that keeps the keys of expired rows, note_disabled(): adds a HINT to an error on
 * a key.
 */
void
ttl_targets_explain_key(void *arg)
{
	const TtlExecution *execution = ttl_execution_current();
	int			error = geterrcode();

	if ((error == ERRCODE_UNIQUE_VIOLATION || error == ERRCODE_EXCLUSION_VIOLATION) &&
		execution != NULL && execution->keeps_keys)
		errhint("If an expired row holds the key, use ALTER TABLE ... ENABLE TRIGGER \"%s\", which is disabled.",
				TTL_TRIGGER);
}

/* Prepares a target that is part of a container before rows are written to it. */
static void
prepare_target(ModifyTableState *mtstate, ResultRelInfo *target)
{
	Trigger    *trigger;

	if (mtstate->operation == CMD_DELETE || (target->ri_TrigDesc == NULL && target->ri_onConflict == NULL) ||
		!ttl_container_is_part(RelationGetRelid(target->ri_RelationDesc)))
		return;

	/* also where the trigger is gone: no key has been freed then */
	ttl_conflicts_check(target, mtstate->ps.state);
	if (target->ri_TrigDesc == NULL)
		return;
	trigger = ttl_row_trigger_among(target->ri_TrigDesc);
	if (trigger != NULL)
	{
		note_disabled(trigger, mtstate->ps.state);
		trigger = fire_last(target, trigger, mtstate->ps.state);
	}
	if (mtstate->operation != CMD_INSERT ||
		((ModifyTable *) mtstate->ps.plan)->onConflictAction == ONCONFLICT_UPDATE)
		fire_on_update(target, trigger, mtstate->ps.state);
}

/*
 * The same for a partition that tuples are routed to, which is opened while the statement runs.
 * ON CONFLICT DO UPDATE comes after the trigger has fired for the insertion.
 */
void
ttl_targets_routed(Relation rel)
{
	TtlExecution *execution = ttl_execution_current();
	ListCell   *lc;

	if (execution == NULL || !ttl_container_is_part(RelationGetRelid(rel)))
		return;
	foreach(lc, execution->query_desc->estate->es_tuple_routing_result_relations)
	{
		ResultRelInfo *info = lfirst(lc);

		/* the relation may be a target more than once */
		if (info->ri_RelationDesc == rel)
		{
			fire_on_update(info, ttl_row_trigger_among(info->ri_TrigDesc),
						   execution->query_desc->estate);
			ttl_conflicts_check(info, execution->query_desc->estate);
		}
	}
}

/* An execution has started. */
void
ttl_targets_started(TtlExecution *execution)
{
	ttl_execution_visit_targets(execution, prepare_target);
	ttl_index_predicates_await_update(execution);
}
