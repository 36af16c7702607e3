/*-------------------------------------------------------------------------
 *
 * evict.c
 *	  A key that only expired rows hold is free.
 *
 * The row trigger of each container fires before INSERT (COPY FROM, ON CONFLICT
 * and MERGE included), as the last one, when the new row is final.  It looks
 * the row's keys up in each unique and exclusion index (keys.c), and what it finds
 * expired there is deleted for good (deletion.c), with triggers and
 * referential actions.  The insertion then meets no conflict.
 *
 * Rows are judged by the clock of the outer statement.  In REPEATABLE READ a row
 * that the snapshot can't see can't be deleted: 40001.
 *
 * An UPDATE that assigns key columns needs the same; watch.c makes the trigger fire
 * there.
 *
 * A bulk load into a container where nothing has expired needs no look-ups:
 * after some rows, the statement asks the expiry indexes once.
 *
 * The trigger also completes _ts where COPY gives NULL.
 *
 * pglogical's apply worker looks for conflicts itself before triggers fire, by the
 * unique indexes over plain columns, and writes the new row over the one that it
 * has found.  What it may have found must not be gone then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "expiry/expiry_walk.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "visibility/keys.h"
#include "visibility/visibility.h"

/* Rows that a statement writes before it asks whether look-ups are needed. */
#define ROWS_BEFORE_PROOF	100

/* Index entries that the question may cost. */
#define PROOF_MAX_ENTRIES	1000

/* What the trigger keeps for one relation in one statement. */
typedef struct EvictState
{
	TtlContainer container;
	TimestampTz now;
	TtlKeys    *keys;			/* NULL = nothing can be in the way */
	TupleTableSlot *completed;	/* for a new row that we have changed, and ... */
	TupleTableSlot *existing;	/* ... for one in its way; NULL until needed */
	int64		rows;
	bool		nothing_expired;	/* proved */
} EvictState;

static EvictState *
prepare(FmgrInfo *flinfo, Relation rel, const TtlContainer *container)
{
	MemoryContext old = MemoryContextSwitchTo(flinfo->fn_mcxt);
	EvictState *state = palloc0(sizeof(EvictState));

	state->container = *container;
	state->now = ttl_execution_clock();
	if (container->default_ttl != TTL_OFF)
		state->keys = ttl_keys_prepare(rel);
	flinfo->fn_extra = state;
	MemoryContextSwitchTo(old);

	ttl_watch_routed(rel);
	return state;
}

/*
 * Is a row's own TTL generated, and so not known yet when the row comes in?
 */
static bool
has_generated_ttl(const EvictState *state, Relation rel)
{
	AttrNumber	attno = state->container.ttl_attno;

	return attno != InvalidAttrNumber &&
		TupleDescAttr(RelationGetDescr(rel), attno - 1)->attgenerated != '\0';
}

/*
 * Has nothing in the relation expired by the statement's clock?  Looks at
 * uncommitted rows, too.  "No" if it would cost much to say.
 */
static bool
prove_nothing_expired(EvictState *state, Relation rel)
{
	SnapshotData dirty;
	TtlExpiryWalk *walk;
	bool		proved;

	if (has_generated_ttl(state, rel))
		return false;

	InitDirtySnapshot(dirty);
	walk = ttl_expiry_walk_begin(rel, &state->container, state->now, &dirty, NULL);
	ttl_expiry_walk_limit(walk, PROOF_MAX_ENTRIES);
	proved = ttl_expiry_walk_next(walk, NULL) == NULL &&
		!ttl_expiry_walk_gave_up(walk) && !ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);
	return proved;
}

/*
 * Why wasn't a conflicting row deleted?  If somebody else has deleted or renewed
 * it, or the policy has changed, the index will tell what comes of that.  But
 * our snapshot may be too old to see it; or a trigger or rule has kept it, and ON
 * CONFLICT must not meet it.
 */
static void
check_deleted(EvictState *state, Relation rel, const TtlPlaces *found)
{
	TtlContainer container;
	bool		is_container = ttl_container_lookup(RelationGetRelid(rel), &container);
	TupleTableSlot *slot = state->existing;

	if (slot == NULL)
		slot = state->existing = ttl_keys_slot(state->keys);

	for (int i = 0; i < found->n; i++)
	{
		if (IsolationUsesXactSnapshot() &&
			!table_tuple_fetch_row_version(rel, &found->tids[i], GetTransactionSnapshot(),
										   slot))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access due to concurrent update"),
					 errhint("The transaction might succeed if retried.")));
		if (is_container &&
			table_tuple_fetch_row_version(rel, &found->tids[i], SnapshotSelf,
										  slot) &&
			ttl_expiry_of_slot(&container, slot) <= state->now)
			ereport(ERROR,
					(errcode(ERRCODE_UNIQUE_VIOLATION),
					 errmsg("could not delete the expired row of container \"%s\" that holds the key",
							RelationGetRelationName(rel)),
					 errdetail("A trigger or rule has kept it.")));
		ExecClearTuple(slot);
	}
}

void
ttl_evict_explain(void *arg)
{
	TtlEviction *eviction = arg;

	errcontext("deletion of an expired row of container \"%s\" that %s",
			   eviction->container, eviction->reason);
	if (ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION &&
		!eviction->by_owner)
		errdetail("The expired row cannot be deleted.");
	if (geterrcode() == ERRCODE_FOREIGN_KEY_VIOLATION ||
		geterrcode() == ERRCODE_RESTRICT_VIOLATION)
		errhint("Delete or renew the rows that still reference the expired row.");
}

/* Deletes the expired rows that the new row would conflict with. */
static void
evict(EvictState *state, Relation rel, TupleTableSlot *slot, const ItemPointerData *self)
{
	TtlPlaces	found = {0};
	uint64		deleted;

	/* A row may come in expired, and the next one may have its key. */
	if (++state->rows == ROWS_BEFORE_PROOF)
		state->nothing_expired = prove_nothing_expired(state, rel);
	if (state->nothing_expired)
	{
		if (ttl_expiry_of_slot(&state->container, slot) <= state->now)
			state->nothing_expired = false;
		return;
	}

	ttl_keys_find_expired(state->keys, &state->container, state->now, slot, self, &found);
	if (found.n > 0)
	{
		TtlEviction eviction = {
			.container = RelationGetRelationName(rel),
			.reason = "holds the key",
			.by_owner = ttl_container_is_owner(GetUserId(), RelationGetRelid(rel))
		};
		ErrorContextCallback context = {
			.previous = error_context_stack,
			.callback = ttl_evict_explain,
			.arg = &eviction
		};

		error_context_stack = &context;
		deleted = ttl_deletion_run(rel, NULL, found.tids, found.n, state->now,
								   TTL_DELETION_WITH_REFERENCING);
		error_context_stack = context.previous;
		ttl_counters_add_evicted(state->container.container, deleted);
		if (deleted < found.n)
			check_deleted(state, rel, &found);
	}
}

/* The row with the present for a _ts that was given as NULL. */
static HeapTuple
complete_ts(Relation rel, const TtlContainer *container, HeapTuple tuple)
{
	int			column = container->ts_attno;
	Datum		now;
	bool		isnull;

	if (column == InvalidAttrNumber)
		return tuple;
	(void) heap_getattr(tuple, column, RelationGetDescr(rel), &isnull);
	if (!isnull || SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return tuple;
	isnull = false;
	now = DirectFunctionCall2(timestamptz_scale,
							  TimestampTzGetDatum(GetCurrentTimestamp()),
							  Int32GetDatum(TupleDescAttr(RelationGetDescr(rel),
														  column - 1)->atttypmod));
	return heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 1, &column, &now, &isnull);
}

PG_FUNCTION_INFO_V1(ttl_on_write);

/*
 * ttl.on_write() trigger, BEFORE INSERT FOR EACH ROW
 */
Datum
ttl_on_write(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	Relation	rel;
	EvictState *state = fcinfo->flinfo->fn_extra;
	HeapTuple	given;
	HeapTuple	new;
	TupleTableSlot *slot;		/* holds what is given */
	const ItemPointerData *self = NULL;
	TtlContainer container;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired by a row-level BEFORE INSERT trigger",
						"on_write")));

	rel = trigger->tg_relation;
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
	{
		given = trigger->tg_newtuple;
		slot = trigger->tg_newslot;
		self = &trigger->tg_trigtuple->t_self;
	}
	else
	{
		given = trigger->tg_trigtuple;
		slot = trigger->tg_trigslot;
	}

	if (state == NULL)
	{
		if (!ttl_container_lookup(RelationGetRelid(rel), &container))
			return PointerGetDatum(given);
		state = prepare(fcinfo->flinfo, rel, &container);
	}

	new = given;
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		new = complete_ts(rel, &state->container, given);
	if (state->keys != NULL)
	{
		if (new != given)
		{
			if (state->completed == NULL)
				state->completed = ttl_keys_slot(state->keys);
			slot = state->completed;
			ExecForceStoreHeapTuple(new, slot, false);
		}
		evict(state, rel, slot, self);
		if (new != given)
			ExecClearTuple(slot);
	}
	return PointerGetDatum(new);
}
