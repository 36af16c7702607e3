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
 * Expiry is evaluated by the clock of the outer statement.  In REPEATABLE READ a row
 * that the snapshot can't see can't be deleted: 40001.
 *
 * An UPDATE that assigns key columns needs the same; trigger_desc.c makes the trigger fire
 * there.
 *
 * A bulk load into a container where nothing has expired needs no look-ups: after
 * some rows the expiry indexes are searched instead.  That nothing has expired then
 * holds until a transaction ends, this one executes another command, or a row comes
 * in expired, in whatever session: it may be uncommitted when its key is reached, and
 * is waited for then as by any look-up.
 *
 * Between the look-up and PostgreSQL's own check another session may commit a row that
 * has expired.  ON CONFLICT must neither update such a row nor give way to it: the
 * row that DO UPDATE has locked is looked at before its WHERE is evaluated, and a row
 * that DO NOTHING may have skipped is looked up once more if a transaction has ended
 * since.  Either is 40001.
 *
 * The trigger also completes _ts where COPY gives NULL, and refuses TTLs without a meaning in
 * columns of integers: 23514, as by a CHECK, whose text each statement would read and prepare.
 * Not those that are generated, which are computed later, nor those that are replicated.
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
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "container/container.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "guc.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "visibility/keys.h"
#include "visibility/visibility.h"

/* Rows whose keys are looked up before the expiry indexes are searched. */
#define ROWS_BEFORE_PROOF	100

/* A search costs about as much as to look up the keys of two rows. */
#define ROWS_WORTH_PROOF	8

/* Index entries that the search may read. */
#define PROOF_MAX_ENTRIES	1000

/*
 * While none of these changes, no row can have been added, by whatever transaction,
 * that had expired.
 */
typedef struct Moment
{
	uint64		transactions;	/* of the cluster that have ended */
	CommandId	command;		/* of this transaction */
	uint64		expired_rows;	/* written so far, see counters.h */
} Moment;

/* What the trigger keeps for one relation in one statement. */
typedef struct EvictState
{
	TtlContainer container;
	TimestampTz now;
	bool		checks_ttl;		/* may a row have a TTL that is refused? */
	bool		has_updated;	/* is the next one known? */
	bool		updates_keys;	/* may an UPDATE change keys? */
	TtlKeys    *keys;			/* NULL = nothing can be in the way */
	TupleTableSlot *completed;	/* for a new row that we have changed, and ... */
	TupleTableSlot *existing;	/* ... for one in its way; NULL until needed */

	bool		provable;		/* do all rows that may expire come by here? */
	bool		nothing_expired;	/* as of ... */
	Moment		proved_at;
	int64		rows_skipped;	/* since then */
	int			rows_left;		/* to look up before the next search, ... */
	int			rows_between;	/* ... and after a failed one */

	/* with ON CONFLICT DO NOTHING */
	TupleTableSlot *last;		/* the row before this one; else NULL */
	uint64		last_looked_up; /* transactions that had ended by then */
} EvictState;

static Moment
this_moment(void)
{
	Moment		moment = {
		.transactions = TtlEndedTransactions(),
		.command = GetCurrentCommandId(false),
		.expired_rows = pg_atomic_read_u64(ttl_counters_expired_writes)
	};

	return moment;
}

static bool
is_this_moment(const Moment *moment)
{
	return moment->transactions == TtlEndedTransactions() &&
		moment->command == GetCurrentCommandId(false) &&
		moment->expired_rows == pg_atomic_read_u64(ttl_counters_expired_writes);
}

/* Has the execution an INSERT with that ON CONFLICT action? */
static bool
has_on_conflict(const QueryDesc *query_desc, OnConflictAction action)
{
	PlanState  *top = query_desc->planstate;
	ListCell   *lc;

	if (IsA(top, ModifyTableState) &&
		((ModifyTable *) top->plan)->onConflictAction == action)
		return true;
	foreach(lc, query_desc->estate->es_auxmodifytables)
	{
		if (((ModifyTable *) ((PlanState *) lfirst(lc))->plan)->onConflictAction == action)
			return true;
	}
	return false;
}

/*
 * Does the trigger fire for each row that may come in expired by the running execution?
 * Not for what MERGE, ON CONFLICT and WITH update beside their insertions; that hasn't
 * expired if it gets the present as its _ts.  Nor is the expiry of a row known whose
 * TTL is generated later.
 */
static bool
is_provable(const TtlContainer *container, Relation rel, const TtlExecution *execution)
{
	const PlannedStmt *stmt;

	if (container->ttl_attno != InvalidAttrNumber &&
		TupleDescAttr(RelationGetDescr(rel), container->ttl_attno - 1)->attgenerated != '\0')
		return false;
	if (execution == NULL)
		return true;
	stmt = execution->query_desc->plannedstmt;
	if (stmt->commandType != CMD_MERGE && !stmt->hasModifyingCTE &&
		!has_on_conflict(execution->query_desc, ONCONFLICT_UPDATE))
		return true;
	return container->touch_on_update && ttl_guc_touch &&
		SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA &&
		!ttl_type_is_deadline(container->ttl_type);
}

/* Are TTLs without a meaning refused? */
static bool
checks_ttl(const TtlContainer *container, Relation rel)
{
	return container->ttl_type != NULL && container->ttl_type->is_strict &&
		TupleDescAttr(RelationGetDescr(rel), container->ttl_attno - 1)->attgenerated == '\0' &&
		SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA;
}

static EvictState *
prepare(FmgrInfo *flinfo, Relation rel, const TtlContainer *container)
{
	MemoryContext old = MemoryContextSwitchTo(flinfo->fn_mcxt);
	TtlExecution *execution = ttl_execution_current();
	EvictState *state = palloc0(sizeof(EvictState));

	state->container = *container;
	state->now = ttl_execution_reference_time();
	state->checks_ttl = checks_ttl(container, rel);
	if (container->default_ttl != TTL_OFF)
		state->keys = ttl_keys_prepare(rel);
	if (state->keys != NULL)
	{
		state->provable = is_provable(container, rel, execution);
		state->rows_left = state->rows_between = ROWS_BEFORE_PROOF;
		if (execution != NULL && has_on_conflict(execution->query_desc, ONCONFLICT_NOTHING))
			state->last = ttl_keys_slot(state->keys);
	}
	flinfo->fn_extra = state;
	MemoryContextSwitchTo(old);

	if (execution != NULL)
	{
		EState	   *estate = execution->query_desc->estate;
		ResultRelInfo *target = ttl_keys_target(estate, rel);

		if (target != NULL)
			ttl_index_predicate_prepare(target, estate, container);
	}
	ttl_trigger_desc_routed(rel, container);
	return state;
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

	InitDirtySnapshot(dirty);
	walk = ttl_expiry_walk_begin(rel, &state->container, state->now, &dirty, NULL);
	ttl_expiry_walk_limit(walk, PROOF_MAX_ENTRIES);
	proved = ttl_expiry_walk_next(walk, NULL) == NULL &&
		!ttl_expiry_walk_gave_up(walk) && !ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);
	return proved;
}

/* Can no key be held by an expired row, so that none need be looked up? */
static bool
has_nothing_expired(EvictState *state, Relation rel)
{
	if (!state->provable)
		return false;
	if (state->nothing_expired && is_this_moment(&state->proved_at))
	{
		state->rows_skipped++;
		return true;
	}
	if (--state->rows_left > 0 &&
		!(state->nothing_expired && state->rows_skipped >= ROWS_WORTH_PROOF))
	{
		state->nothing_expired = false;
		return false;
	}

	state->proved_at = this_moment();
	state->rows_skipped = 0;
	state->nothing_expired = prove_nothing_expired(state, rel);
	if (state->nothing_expired)
		state->rows_between = ROWS_BEFORE_PROOF;
	else if (state->rows_between < PG_INT32_MAX / 2)
		state->rows_between *= 2;
	state->rows_left = state->rows_between;
	return state->nothing_expired;
}

/* Another session has committed an expired row since the key was looked up. */
static void
report_concurrent_row(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update"),
			 errhint("The transaction might succeed if retried.")));
}

/*
 * Was the last row skipped by DO NOTHING because of an expired one?  If so, that one
 * still holds the key, unless it has been deleted since.
 */
static void
check_last(EvictState *state)
{
	TtlContainer container;

	if (state->last == NULL || TTS_EMPTY(state->last))
		return;
	if (state->last_looked_up != TtlEndedTransactions() &&
		ttl_container_lookup(state->container.relid, &container) &&
		ttl_keys_are_held(state->keys, &container, state->now, state->last))
		report_concurrent_row();
	ExecClearTuple(state->last);
}

/*
 * Reports why a conflicting row wasn't deleted.  If another session has deleted or
 * renewed it, or the policy has changed, the index's own check decides.  But our snapshot
 * may be too old to see it; or a trigger or rule has kept it, and ON CONFLICT must not
 * meet it.
 */
static void
check_deleted(EvictState *state, Relation rel, const TtlTids *found)
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
			report_concurrent_row();
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

/* True if the error has been explained by a deletion inside of this one. */
static bool
is_explained(const TtlEviction *eviction)
{
	for (ErrorContextCallback *context = error_context_stack; context->arg != eviction;
		 context = context->previous)
	{
		if (context->callback == ttl_evict_explain)
			return true;
	}
	return false;
}

void
ttl_evict_explain(void *arg)
{
	TtlEviction *eviction = arg;

	errcontext("deletion of an expired row of container \"%s\" that %s",
			   eviction->container, eviction->reason);
	if (eviction->user->refused || is_explained(eviction))
		return;
	if (ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION &&
		!eviction->by_owner)
		errdetail("The expired row cannot be deleted.");
	if (geterrcode() == ERRCODE_FOREIGN_KEY_VIOLATION ||
		geterrcode() == ERRCODE_RESTRICT_VIOLATION)
		errhint("Delete or renew the rows that still reference the expired row.");
}

/* Deletes the expired rows that hold keys of the new row. */
static void
free_keys(EvictState *state, Relation rel, TupleTableSlot *slot, const ItemPointerData *self)
{
	TtlTids	found = {0};
	uint64		deleted;

	ttl_keys_find_expired(state->keys, &state->container, state->now, slot, self, &found);
	if (found.n > 0)
	{
		TtlSessionUser user = {.role = GetUserId(), .written_owner = rel->rd_rel->relowner};
		TtlEviction eviction = {
			.container = RelationGetRelationName(rel),
			.reason = "holds the key",
			.by_owner = ttl_container_is_owner(GetUserId(), RelationGetRelid(rel)),
			.user = &user
		};
		ErrorContextCallback context = {
			.previous = error_context_stack,
			.callback = ttl_evict_explain,
			.arg = &eviction
		};

		error_context_stack = &context;
		deleted = ttl_deletion_run(rel, NULL, found.tids, found.n, state->now,
								   0, &user);
		error_context_stack = context.previous;
		ttl_counters_add_rows(state->container.container, 0, deleted, 0);
		if (deleted < found.n)
			check_deleted(state, rel, &found);
	}
}

static void
evict(EvictState *state, Relation rel, TupleTableSlot *slot, const ItemPointerData *self)
{
	uint64		transactions;

	check_last(state);
	transactions = TtlEndedTransactions();
	if (!has_nothing_expired(state, rel))
		free_keys(state, rel, slot, self);
	if (state->last != NULL)
	{
		ExecCopySlot(state->last, slot);
		state->last_looked_up = transactions;
	}
}

/* Counts the row if it has expired. */
static void
count_expired(const EvictState *state, TupleTableSlot *slot)
{
	if (ttl_expiry_of_slot(&state->container, slot) <= state->now)
		pg_atomic_fetch_add_u64(ttl_counters_expired_writes, 1);
}

/* Replaces the WHERE of ON CONFLICT DO UPDATE. */
typedef struct ConflictQual
{
	ExprState	state;
	ExprState  *where;			/* NULL = none */
	Oid			relid;
} ConflictQual;

static Datum
evaluate_conflict_qual(ExprState *state, ExprContext *econtext, bool *isnull)
{
	ConflictQual *qual = (ConflictQual *) state;
	TtlContainer container;

	if (ttl_container_lookup(qual->relid, &container) &&
		ttl_expiry_of_slot(&container, econtext->ecxt_scantuple) <= ttl_execution_reference_time())
		report_concurrent_row();
	*isnull = false;
	return qual->where == NULL ? BoolGetDatum(true) :
		ExecEvalExpr(qual->where, econtext, isnull);
}

void
ttl_evict_check_conflicts(ResultRelInfo *target, EState *estate)
{
	ConflictQual *qual;

	if (target->ri_onConflict == NULL ||
		(target->ri_onConflict->oc_WhereClause != NULL &&
		 target->ri_onConflict->oc_WhereClause->evalfunc == evaluate_conflict_qual))
		return;
	qual = MemoryContextAllocZero(estate->es_query_cxt, sizeof(ConflictQual));
	qual->state.type = T_ExprState;
	qual->state.flags = EEO_FLAG_IS_QUAL;
	qual->state.evalfunc = evaluate_conflict_qual;
	qual->where = target->ri_onConflict->oc_WhereClause;
	qual->relid = RelationGetRelid(target->ri_RelationDesc);
	target->ri_onConflict->oc_WhereClause = &qual->state;
}

/* The row, which is in the slot, with the present for a _ts that was given as NULL. */
static HeapTuple
complete_ts(Relation rel, const TtlContainer *container, HeapTuple tuple, TupleTableSlot *slot)
{
	int			column = container->ts_attno;
	Form_pg_attribute attribute;
	Datum		now;
	bool		isnull = false;

	if (column == InvalidAttrNumber || !slot_attisnull(slot, column) ||
		SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return tuple;
	attribute = TupleDescAttr(RelationGetDescr(rel), column - 1);
	now = ttl_type_present(container->ts_type, GetCurrentTimestamp(), container->ts_step);
	if (attribute->atttypid == NUMERICOID)
		now = DirectFunctionCall2(numeric, now, Int32GetDatum(attribute->atttypmod));
	return heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 1, &column, &now, &isnull);
}

/* Errors (23514) if the row in the slot has a TTL without a meaning. */
static void
check_ttl(const TtlContainer *container, Relation rel, TupleTableSlot *slot)
{
	AttrNumber	column = container->ttl_attno;
	bool		isnull;
	Datum		value = slot_getattr(slot, column, &isnull);

	if (!isnull && ttl_type_is_invalid(container->ttl_type, value))
		ereport(ERROR,
				(errcode(ERRCODE_CHECK_VIOLATION),
				 errmsg("new row for relation \"%s\" has an invalid TTL in column \"%s\"",
						RelationGetRelationName(rel),
						NameStr(TupleDescAttr(RelationGetDescr(rel), column - 1)->attname)),
				 errhint("Use a number of seconds from 1 to 2147483647, -1 for a row that never expires, or NULL for the default TTL."),
				 errtablecol(rel, column)));
}

/*
 * May the UPDATE change keys, by what it assigns or by row triggers of the user's?  The relation's
 * own descriptor of triggers has ours for INSERT alone.
 */
static bool
updates_keys(const TriggerData *trigger)
{
	Relation	rel = trigger->tg_relation;

	return rel->trigdesc->trig_update_before_row ||
		bms_overlap(trigger->tg_updatedcols, ttl_container_key_columns(rel));
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

	if (self != NULL && !state->has_updated)
	{
		state->updates_keys = updates_keys(trigger);
		state->has_updated = true;
	}

	new = given;
	if (state->checks_ttl)
		check_ttl(&state->container, rel, slot);
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		new = complete_ts(rel, &state->container, given, slot);
	if (state->keys != NULL)
	{
		if (new != given)
		{
			if (state->completed == NULL)
				state->completed = ttl_keys_slot(state->keys);
			slot = state->completed;
			ExecForceStoreHeapTuple(new, slot, false);
		}
		if (self == NULL || state->updates_keys)
			evict(state, rel, slot, self);
		count_expired(state, slot);
		if (new != given)
			ExecClearTuple(slot);
	}
	return PointerGetDatum(new);
}

static void
check_last_of(List *targets)
{
	ListCell   *lc;

	foreach(lc, targets)
	{
		ResultRelInfo *target = lfirst(lc);

		for (int i = 0; target->ri_TrigDesc != NULL && i < target->ri_TrigDesc->numtriggers; i++)
		{
			FmgrInfo   *function = &target->ri_TrigFunctions[i];

			if (function->fn_addr == ttl_on_write && function->fn_extra != NULL)
				check_last(function->fn_extra);
		}
	}
}

/* With ON CONFLICT DO NOTHING each target has a last row. */
void
ttl_evict_ends(QueryDesc *query_desc)
{
	if ((query_desc->operation != CMD_INSERT && !query_desc->plannedstmt->hasModifyingCTE) ||
		ttl_container_objects() == NULL ||
		!has_on_conflict(query_desc, ONCONFLICT_NOTHING))
		return;
	check_last_of(query_desc->estate->es_opened_result_relations);
	check_last_of(query_desc->estate->es_tuple_routing_result_relations);
}
