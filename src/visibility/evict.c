/*-------------------------------------------------------------------------
 *
 * evict.c
 *	  The row trigger of containers: a key that only expired rows hold is free.
 *
 * The trigger fires before INSERT (COPY FROM, ON CONFLICT
 * and MERGE included), as the last one, when the new row is final; and before UPDATEs that need it
 * (targets.c).  It looks the row's keys up (keys.c), and what it finds
 * expired there is deleted for good (deletion.c), with triggers and
 * referential actions.  The insertion then meets no conflict.
 *
 * Expiry is evaluated by the clock of the outer statement.  In REPEATABLE READ a row
 * that the snapshot can't see can't be deleted: 40001.
 *
 * A bulk load into a container where nothing has expired needs no look-ups: after
 * some rows the expiry indexes are searched instead.  That nothing has expired then
 * holds until a transaction ends, this one executes another command, or a row comes
 * in expired, in whatever session: it may be uncommitted when its key is reached, and
 * is waited for then as by any look-up.  It isn't found while it is just being written, so the trigger
 * publishes what each row says of its expiry (writers.c), whatever the policy is: it may be changed meanwhile.
 * UPDATEs of apply workers fire no trigger and pass no hook: in tables that they write
 * each key is looked up.
 *
 * Between the look-up and PostgreSQL's own check another session may commit a row that
 * has expired (conflicts.c).  A row that DO NOTHING may have skipped must be there, or a live one in its
 * arbiter indexes, if a transaction has ended since.
 *
 * The trigger also completes _ts where COPY gives NULL, and refuses TTLs (written_row.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/partition.h"
#include "commands/trigger.h"
#include "compat.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "visibility/keys.h"
#include "visibility/visibility.h"
#include "visibility/writing.h"
#include "writers.h"

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
	uint64		expired_rows;	/* of the container, see writers.h */
} Moment;

/*
 * The target of the execution, with its indexes open, whose trigger's function this is; NULL if it is none.
 * One statement may write a relation twice, with other arbiters.
 */
static ResultRelInfo *
find_target(EState *estate, const FmgrInfo *flinfo)
{
	List	   *lists[] = {estate->es_opened_result_relations,
	estate->es_tuple_routing_result_relations};

	for (int i = 0; i < lengthof(lists); i++)
	{
		ListCell   *lc;

		foreach(lc, lists[i])
		{
			ResultRelInfo *info = lfirst(lc);

			if (info->ri_TrigDesc != NULL && info->ri_IndexRelationDescs != NULL &&
				flinfo >= info->ri_TrigFunctions &&
				flinfo < info->ri_TrigFunctions + info->ri_TrigDesc->numtriggers)
				return info;
		}
	}
	return NULL;
}

/* What the trigger keeps for one relation in one statement. */
typedef struct EvictState
{
	TtlContainer container;
	TimestampTz now;
	bool		checks_ttl;		/* a row may have a TTL that is refused */
	bool		has_updated;	/* the next one is known */
	bool		updates_keys;	/* an UPDATE may change keys */
	TtlKeys    *keys;			/* NULL = nothing can be in the way */
	TupleTableSlot *completed;	/* for a new row that we have changed, and ... */
	TupleTableSlot *existing;	/* ... for one in its way; NULL until needed */

	TtlWriter  *writer;			/* the statement, for other sessions */
	TtlRowTimes expired;		/* rows up to these have expired */

	bool		knows_provable; /* the next one is known */
	bool		unprovable;		/* expired rows may be written unpublished */
	bool		nothing_expired;	/* as of ... */
	Moment		proved_at;
	int64		rows_skipped;	/* since then */
	int			rows_left;		/* to look up before the next search, ... */
	int			rows_between;	/* ... and after a failed one */

	/* with ON CONFLICT DO NOTHING */
	TupleTableSlot *last;		/* the row before this one; else NULL */
	uint64		last_looked_up; /* transactions that had ended by then */
	CommandId	command;		/* of the statement */
} EvictState;

/* True if nothing has changed since then. */
static bool
is_this_moment(const Moment *moment, const TtlWriter *writer)
{
	return moment->transactions == TtlEndedTransactions() &&
		moment->command == GetCurrentCommandId(false) &&
		moment->expired_rows == ttl_writers_changes(writer);
}

/*
 * True if all rows that may expire are published: not before a TTL is generated, nor where an apply
 * worker may write the table, itself or as a partition.  That of pglogical has its tables from elsewhere, and
 * may write any.
 */
static bool
is_provable(const TtlContainer *container, Relation rel)
{
	const List *subscribed;
	ListCell   *lc;

	if (container->ttl_attno != InvalidAttrNumber &&
		TupleDescAttr(RelationGetDescr(rel), container->ttl_attno - 1)->attgenerated != '\0')
		return false;
	if (ttl_container_pglogical_subscribes())
		return false;
	subscribed = ttl_container_subscribed_tables(false);
	if (subscribed == NIL)
		return true;
	if (list_member_oid(subscribed, RelationGetRelid(rel)))
		return false;
	if (!rel->rd_rel->relispartition)
		return true;
	foreach(lc, get_partition_ancestors(RelationGetRelid(rel)))
	{
		if (list_member_oid(subscribed, lfirst_oid(lc)))
			return false;
	}
	return true;
}

/* Rows up to these have expired at 'now'. */
static TtlRowTimes
expired_by(const TtlContainer *container, TimestampTz now)
{
	TtlRowTimes times = {DT_NOBEGIN, ttl_expiry_last_deadline(now)};

	if (container->policy.default_ttl > 0)
		times.ts = ttl_expiry_cutoff(now, container->policy.default_ttl);
	return times;
}

/* Makes the state for the rows of a statement; NULL if the relation is no part of a container. */
static EvictState *
prepare(FmgrInfo *flinfo, Relation rel)
{
	MemoryContext old = MemoryContextSwitchTo(flinfo->fn_mcxt);
	TtlExecution *execution = ttl_execution_current();
	EState	   *running = execution != NULL ? execution->query_desc->estate : NULL;
	ResultRelInfo *target = running != NULL ? find_target(running, flinfo) : NULL;
	EvictState *state = palloc0(sizeof(EvictState));
	const TtlContainer *container = &state->container;
	TtlRowTimes none = {DT_NOEND, DT_NOEND};

	if (!ttl_container_lookup(RelationGetRelid(rel), &state->container))
	{
		pfree(state);
		MemoryContextSwitchTo(old);
		return NULL;
	}
	state->now = ttl_execution_reference_time();
	state->checks_ttl = ttl_written_row_has_ttl_check(container, rel);
	/* while TTL is off, no row is expired and in the way */
	if (container->policy.default_ttl != TTL_OFF)
		state->keys = ttl_keys_prepare(rel, running, target);
	if (state->keys != NULL)
	{
		state->rows_left = state->rows_between = ROWS_BEFORE_PROOF;
		if (execution != NULL && ttl_conflicts_may_do_nothing(execution->query_desc))
		{
			state->last = ttl_keys_make_slot(state->keys);
			state->command = running->es_output_cid;
		}
		state->expired = expired_by(container, state->now);
	}
	state->writer = ttl_writers_join(container->container, flinfo->fn_mcxt, none);
	flinfo->fn_extra = state;
	MemoryContextSwitchTo(old);

	if (target != NULL)
		ttl_index_predicates_prepare(target, running, container);
	ttl_targets_routed(rel);
	return state;
}

/*
 * True if nothing in the relation has expired by the statement's clock.  Looks at
 * uncommitted rows, too.  "No" if it would cost much to say.
 */
static bool
prove_nothing_expired(EvictState *state, Relation rel)
{
	SnapshotData dirty;
	TtlExpiryWalk *walk;
	bool		proved;

	/* a row that is uncommitted now may be committed when its key is reached */
	InitDirtySnapshot(dirty);
	walk = ttl_expiry_walk_begin(rel, &state->container, state->now, &dirty, NULL);
	ttl_expiry_walk_limit(walk, PROOF_MAX_ENTRIES);
	proved = ttl_expiry_walk_next(walk, NULL) == NULL &&
		!ttl_expiry_walk_gave_up(walk) && !ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);
	return proved;
}

/* True if it is proved that no key is held by an expired row, so that none need be looked up. */
static bool
is_proved(const EvictState *state)
{
	return state->nothing_expired && is_this_moment(&state->proved_at, state->writer);
}

/* Looks for a proof where the last doesn't hold any more: after so many rows, more after each time in vain. */
static void
renew_proof(EvictState *state, Relation rel)
{
	bool		was_worth_it = state->nothing_expired && state->rows_skipped >= ROWS_WORTH_PROOF;

	state->nothing_expired = false;
	if (state->unprovable || (--state->rows_left > 0 && !was_worth_it))
		return;

	/* it takes a look at catalogs, which few rows aren't worth */
	if (!state->knows_provable)
	{
		state->knows_provable = true;
		state->unprovable = !is_provable(&state->container, rel);
		if (state->unprovable)
			return;
	}
	state->proved_at.transactions = TtlEndedTransactions();
	state->proved_at.command = GetCurrentCommandId(false);
	state->rows_skipped = 0;
	/* an entry may have come in behind the search */
	state->nothing_expired = !ttl_writers_are_there(state->writer, state->expired,
													&state->proved_at.expired_rows) &&
		prove_nothing_expired(state, rel) && is_this_moment(&state->proved_at, state->writer);
	if (state->nothing_expired)
		state->rows_between = ROWS_BEFORE_PROOF;
	else if (state->rows_between < PG_INT32_MAX / 2)
		state->rows_between *= 2;
	state->rows_left = state->rows_between;
}

/* Errors if DO NOTHING has skipped the last row because of an expired one. */
static void
check_last(EvictState *state)
{
	TtlContainer container;

	if (state->last == NULL || TTS_EMPTY(state->last))
		return;
	/* else none can have brought an expired row since the search */
	if (state->last_looked_up != TtlEndedTransactions() &&
		ttl_container_lookup(state->container.relid, &container) &&
		ttl_keys_left_row_out(state->keys, &container, state->now, state->last, state->command))
		ttl_conflicts_report_row();
	ExecClearTuple(state->last);
}

/*
 * Errors if a trigger or rule has kept a conflicting row, which ON CONFLICT must not meet.  If
 * another session has deleted or renewed it, or the policy has changed, the index's own check
 * decides.
 */
static void
check_deleted(EvictState *state, Relation rel, const TtlTids *found)
{
	TtlContainer container;
	bool		is_container = ttl_container_lookup(RelationGetRelid(rel), &container);
	TupleTableSlot *slot = state->existing;

	if (slot == NULL)
		slot = state->existing = ttl_keys_make_slot(state->keys);

	for (int i = 0; i < found->n; i++)
	{
		/*
		 * if the clock has been set back, the row lives and is an honest
		 * conflict
		 */
		if (is_container &&
			table_tuple_fetch_row_version(rel, &found->tids[i], SnapshotSelf,
										  slot) &&
			ttl_expiry_of_slot(&container, slot) <= Min(state->now, ttl_execution_reference_time()))
			ereport(ERROR,
					(errcode(ERRCODE_UNIQUE_VIOLATION),
					 errmsg("could not delete the expired row of container \"%s\" that holds the key",
							RelationGetRelationName(rel)),
					 errdetail("A trigger or rule has kept it.")));
		ExecClearTuple(slot);
	}
}

/*
 * Deletes the expired rows that hold keys of the new row.  One that another session has updated
 * since it was found is not deleted; what it has become may have expired, too.
 */
static void
free_keys(EvictState *state, Relation rel, TupleTableSlot *slot, const ItemPointerData *self)
{
	TtlSessionUser user = {.role = GetUserId(), .written_owner = rel->rd_rel->relowner};

	/* again for what a row has become that was updated meanwhile */
	for (int n = 0; n < TTL_KEYS_LOOK_UPS_MAX; n++)
	{
		TtlTids		found = {0};

		ttl_keys_find_expired(state->keys, &state->container, state->now, slot, self, &found);
		if (found.n == 0 ||
			ttl_deletion_run(rel, NULL, found.tids, found.n, state->now, 0, &user) == found.n)
			break;
		check_deleted(state, rel, &found);
	}
}

/* Frees the keys of the new row in the slot; 'self' is the row that an UPDATE replaces, or NULL. */
static void
evict(EvictState *state, Relation rel, TupleTableSlot *slot, const ItemPointerData *self)
{
	uint64		transactions;

	check_last(state);

	/*
	 * before the look-up: what ends during it may have brought a row that it
	 * has missed
	 */
	transactions = TtlEndedTransactions();
	if (is_proved(state))
		state->rows_skipped++;
	else
	{
		renew_proof(state, rel);
		if (!state->nothing_expired)
			free_keys(state, rel, slot, self);
	}
	if (state->last != NULL)
	{
		ExecCopySlot(state->last, slot);
		state->last_looked_up = transactions;
	}
}

/*
 * Publishes the row before it is written.  It gets the present for a NULL in _ts if it is
 * completed, which is no earlier than the statement's clock.
 */
static void
publish(EvictState *state, TupleTableSlot *slot, bool completed)
{
	TtlItem		item;
	TtlRowTimes row;

	ttl_item_of_slot(&item, &state->container, slot);
	if (completed && !item.has_ts)
	{
		item.has_ts = true;
		item.ts = state->now;
	}
	row = ttl_item_times(&item);
	ttl_writers_write(state->writer, row);
	if (ttl_row_times_reach(state->expired, row))
		state->nothing_expired = false;
}

/*
 * True if the UPDATE may change keys, by what it assigns or by row triggers of the user's.  The relation's
 * own descriptor of triggers has ours for INSERT alone.
 */
static bool
updates_keys(const TriggerData *trigger)
{
	Relation	rel = trigger->tg_relation;

	return rel->trigdesc->trig_update_before_row ||
		bms_overlap(trigger->tg_updatedcols, ttl_targets_key_columns(rel));
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
		state = prepare(fcinfo->flinfo, rel);
	if (state == NULL)
		return PointerGetDatum(given);

	if (self != NULL && !state->has_updated)
	{
		state->updates_keys = updates_keys(trigger);
		state->has_updated = true;
	}

	new = given;
	if (state->checks_ttl)
		ttl_written_row_check_ttl(&state->container, trigger, fcinfo->flinfo, slot);
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		new = ttl_written_row_complete(rel, &state->container, given, slot);
	if (state->keys != NULL)
	{
		if (new != given)
		{
			if (state->completed == NULL)
				state->completed = ttl_keys_make_slot(state->keys);
			slot = state->completed;
			ExecForceStoreHeapTuple(new, slot, false);
		}
		if (self == NULL || state->updates_keys)
			evict(state, rel, slot, self);
	}
	publish(state, slot, new != given);
	if (state->completed != NULL)
		ExecClearTuple(state->completed);
	return PointerGetDatum(new);
}

/* check_last() for all of these targets */
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

/* An execution is about to be shut down.  With ON CONFLICT DO NOTHING each target has a last row. */
void
ttl_evict_ends(QueryDesc *query_desc)
{
	if ((query_desc->operation != CMD_INSERT && !query_desc->plannedstmt->hasModifyingCTE) ||
		ttl_container_objects() == NULL)
		return;
	ttl_conflicts_check_routed(query_desc);
	if (!ttl_conflicts_may_do_nothing(query_desc))
		return;
	check_last_of(query_desc->estate->es_opened_result_relations);
	check_last_of(query_desc->estate->es_tuple_routing_result_relations);
}
