/*-------------------------------------------------------------------------
 *
 * evict.c
 *	  What is done for rows that are written: a key that only expired rows hold is free.
 *
 * The row trigger of each container fires before INSERT (COPY FROM, ON CONFLICT
 * and MERGE included), as the last one, when the new row is final.  It looks
 * the row's keys up (keys.c), and what it finds
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
 *
 * The trigger sees these rows, so it fires for UPDATEs that aren't stamped and assign what decides when
 * a row expires.  UPDATEs that assign deadlines are as frequent as they are cheap: those publish for all their rows,
 * when they start, that these may be of any time.  So do those that are stamped, that no row is older than the
 * statement.  UPDATEs of apply workers fire no trigger and pass no hook: in tables that they write
 * each key is looked up.
 *
 * Between the look-up and PostgreSQL's own check another session may commit a row that
 * has expired.  ON CONFLICT must neither update such a row nor give way to it: the
 * row that DO UPDATE has locked is looked at before its WHERE is evaluated, and a row
 * that DO NOTHING may have skipped must be there, or a live one in its arbiter indexes, if a transaction
 * has ended since.  Either is 40001.
 *
 * The trigger also completes _ts where COPY gives NULL, and refuses TTLs without a meaning that are
 * written to columns of integers: 23514, as by a CHECK, whose text each statement would read and prepare.
 * Not those that are generated, which are computed later, nor those that are replicated.
 *
 * An UPDATE that assigns key columns needs keys freed, one that assigns TTLs needs them checked, one
 * that isn't stamped may make a row expire, and other UPDATEs must not pay for a row trigger.  So the trigger is declared for INSERT, and made to
 * fire before UPDATE, too, in the private copy of the trigger descriptor of just those executions.
 * There it is made the last to fire, too, and gets its function.  A row trigger whose name sorts
 * after ours fires after it where the trigger descriptor is made while the statement runs, i.e. in
 * COPY and in partitions that rows are routed to.  A key that it changes isn't freed.
 *
 * The executor prepares the predicate of each partial index anew in every statement, which
 * for a single row is more than the insertion into the index takes.  Those of the expiry
 * indexes are known: a state that evaluates the row by the rule in expiry.h takes the place
 * of the executor's, before that is made: when the trigger fires for the first time, or when an UPDATE
 * has found its first row.  COPY keeps its indexes to itself, and prepares
 * theirs once for all rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/partition.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "catalog_expr.h"
#include "commands/trigger.h"
#include "compat.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "guc.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "ttl.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "visibility/keys.h"
#include "visibility/visibility.h"
#include "writers.h"

/*
 * The predicates of the expiry indexes
 */

/* Takes the place of an index's ii_PredicateState. */
typedef struct IndexPredicate
{
	ExprState	state;
	TtlExpiryIndex index;
	AttrNumber	ttl_attno;
	const TtlType *ttl_type;
} IndexPredicate;

/* What define_index() in expiry_index.c says in SQL */
static Datum
evaluate_predicate(ExprState *state, ExprContext *econtext, bool *isnull)
{
	const IndexPredicate *predicate = (const IndexPredicate *) state;
	TtlItem		item = {0};
	bool		has_none;
	Datum		own = slot_getattr(econtext->ecxt_scantuple, predicate->ttl_attno, &has_none);

	if (!has_none)
		ttl_item_set_own(&item, predicate->ttl_type, own);
	*isnull = false;
	if (predicate->index == TTL_INDEX_ITEM)
		return BoolGetDatum(item.ttl > 0);
	return BoolGetDatum(item.ttl == 0 && !item.has_deadline);
}

/* Prepares the predicates of the expiry indexes that have been opened for insertions. */
static void
prepare_predicates(ResultRelInfo *target, EState *estate, const TtlContainer *container)
{
	TtlExpiryIndexes indexes;

	if (container->ttl_type == NULL || !ttl_expiry_indexes(target->ri_RelationDesc, &indexes))
		return;
	for (int i = 0; i < target->ri_NumIndices; i++)
	{
		IndexInfo  *info = target->ri_IndexRelationInfo[i];

		for (int kind = 0; kind < TTL_INDEXES; kind++)
		{
			IndexPredicate *predicate;

			/* that on deadlines may leave out NULLs, or not */
			if (indexes.usable[kind] != RelationGetRelid(target->ri_IndexRelationDescs[i]) ||
				info->ii_Predicate == NIL || info->ii_PredicateState != NULL ||
				(kind == TTL_INDEX_ITEM && ttl_type_is_deadline(container->ttl_type)))
				continue;
			predicate = MemoryContextAllocZero(estate->es_query_cxt, sizeof(IndexPredicate));
			predicate->state.type = T_ExprState;
			predicate->state.flags = EEO_FLAG_IS_QUAL;
			predicate->state.evalfunc = evaluate_predicate;
			predicate->index = kind;
			predicate->ttl_attno = container->ttl_attno;
			predicate->ttl_type = container->ttl_type;
			info->ii_PredicateState = &predicate->state;
		}
	}
}

/*
 * The trigger
 */

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

static bool
is_this_moment(const Moment *moment, const TtlWriter *writer)
{
	return moment->transactions == TtlEndedTransactions() &&
		moment->command == GetCurrentCommandId(false) &&
		moment->expired_rows == ttl_writers_changes(writer);
}

/* True if the execution has an INSERT with ON CONFLICT DO NOTHING. */
static bool
may_do_nothing(const QueryDesc *query_desc)
{
	PlanState  *top = query_desc->planstate;
	ListCell   *lc;

	if (IsA(top, ModifyTableState) &&
		((ModifyTable *) top->plan)->onConflictAction == ONCONFLICT_NOTHING)
		return true;
	foreach(lc, query_desc->estate->es_auxmodifytables)
	{
		if (((ModifyTable *) ((PlanState *) lfirst(lc))->plan)->onConflictAction == ONCONFLICT_NOTHING)
			return true;
	}
	return false;
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

/* True if TTLs without a meaning are refused. */
static bool
checks_ttl(const TtlContainer *container, Relation rel)
{
	return container->ttl_type != NULL && container->ttl_type->is_strict &&
		TupleDescAttr(RelationGetDescr(rel), container->ttl_attno - 1)->attgenerated == '\0' &&
		SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA;
}

static void target_routed(Relation rel);

/* NULL if it is no container. */
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
	state->checks_ttl = checks_ttl(container, rel);
	if (container->policy.default_ttl != TTL_OFF)
		state->keys = ttl_keys_prepare(rel, running, target);
	if (state->keys != NULL)
	{
		state->rows_left = state->rows_between = ROWS_BEFORE_PROOF;
		if (execution != NULL && may_do_nothing(execution->query_desc))
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
		prepare_predicates(target, running, container);
	target_routed(rel);
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

	InitDirtySnapshot(dirty);
	walk = ttl_expiry_walk_begin(rel, &state->container, state->now, &dirty, NULL);
	ttl_expiry_walk_limit(walk, PROOF_MAX_ENTRIES);
	proved = ttl_expiry_walk_next(walk, NULL) == NULL &&
		!ttl_expiry_walk_gave_up(walk) && !ttl_expiry_walk_is_incomplete(walk);
	ttl_expiry_walk_end(walk);
	return proved;
}

/* True if no key can be held by an expired row, so that none need be looked up. */
static bool
has_nothing_expired(EvictState *state, Relation rel)
{
	if (state->unprovable)
		return false;
	if (state->nothing_expired && is_this_moment(&state->proved_at, state->writer))
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

	/* it takes a look at catalogs, which few rows aren't worth */
	if (!state->knows_provable)
	{
		state->knows_provable = true;
		state->unprovable = !is_provable(&state->container, rel);
		if (state->unprovable)
			return false;
	}
	state->proved_at.transactions = TtlEndedTransactions();
	state->proved_at.command = GetCurrentCommandId(false);
	state->rows_skipped = 0;
	state->nothing_expired = !ttl_writers_are_there(state->writer, state->expired,
													&state->proved_at.expired_rows) &&
		prove_nothing_expired(state, rel);
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

/* Errors if DO NOTHING has skipped the last row because of an expired one. */
static void
check_last(EvictState *state)
{
	TtlContainer container;

	if (state->last == NULL || TTS_EMPTY(state->last))
		return;
	if (state->last_looked_up != TtlEndedTransactions() &&
		ttl_container_lookup(state->container.relid, &container) &&
		ttl_keys_left_row_out(state->keys, &container, state->now, state->last, state->command))
		report_concurrent_row();
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

/* Has ON CONFLICT DO UPDATE fail where it meets an expired row of the container. */
static void
check_conflicts(ResultRelInfo *target, EState *estate)
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
static void
check_ttl(const TtlContainer *container, const TriggerData *trigger, const FmgrInfo *function,
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

static void *
derive_key_columns(Relation rel, Size *size)
{
	Bitmapset  *columns = ttl_catalog_expr_key_columns(rel);

	if (columns != NULL)
		*size = offsetof(Bitmapset, words) + columns->nwords * sizeof(bitmapword);
	return columns;
}

/*
 * The columns that the unique and exclusion indexes of a container's table depend on, as in an
 * attribute bitmap.  The result is good until catalogs are read.
 */
static const Bitmapset *
key_columns(Relation rel)
{
	return ttl_container_derive(rel, TTL_DERIVED_KEY_COLUMNS, derive_key_columns);
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
		bms_overlap(trigger->tg_updatedcols, key_columns(rel));
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
		check_ttl(&state->container, trigger, fcinfo->flinfo, slot);
	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		new = complete_ts(rel, &state->container, given, slot);
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
		!may_do_nothing(query_desc))
		return;
	check_last_of(query_desc->estate->es_opened_result_relations);
	check_last_of(query_desc->estate->es_tuple_routing_result_relations);
}

/*
 * Which statements the trigger fires for
 */

static bool
assigns_ttl(const TtlContainer *container, const Bitmapset *updated)
{
	return container->ttl_type != NULL &&
		bms_is_member(container->ttl_attno - FirstLowInvalidHeapAttributeNumber, updated);
}

/* True if UPDATEs set the clock of their rows. */
static bool
is_stamped(const TtlContainer *container)
{
	return container->policy.touch_on_update && ttl_guc_touch &&
		SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA;
}

/*
 * True if an UPDATE that assigns these columns may write what the trigger checks: a TTL that is refused,
 * or a row that has expired already, because it isn't stamped.
 */
static bool
updates_expiry(const TtlContainer *container, const Bitmapset *updated)
{
	if (assigns_ttl(container, updated) && container->ttl_type->is_strict)
		return true;
	if (is_stamped(container))
		return false;
	return assigns_ttl(container, updated) ? !ttl_type_is_deadline(container->ttl_type) :
		bms_is_member(container->ts_attno - FirstLowInvalidHeapAttributeNumber, updated);
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

	if (bms_is_empty(updated))
		return;					/* it is no UPDATE */
	if (container->ts_attno != InvalidAttrNumber && is_stamped(container))
	{
		earliest.ts = ttl_execution_of(estate)->clock;
		if (container->ttl_type != NULL && !has_deadlines)
			earliest.expiry = ttl_expiry_add(earliest.ts, 1);
	}
	if (has_deadlines && assigns_ttl(container, updated))
		earliest.expiry = DT_NOBEGIN;
	if (earliest.ts != DT_NOEND || earliest.expiry != DT_NOEND)
		ttl_writers_join(container->container, estate->es_query_cxt, earliest);
}

/*
 * Makes the container's trigger fire before UPDATE, too, in this execution, if the statement
 * assigns key columns or what decides when a row expires, or a row trigger of the user's may do so.
 */
static void
fire_on_update(ResultRelInfo *info, EState *estate)
{
	TriggerDesc *triggers = info->ri_TrigDesc;
	Trigger    *trigger = ttl_row_trigger_among(triggers);
	TtlContainer container;

	if (trigger == NULL ||
		!ttl_container_lookup(RelationGetRelid(info->ri_RelationDesc), &container))
		return;
	if (!triggers->trig_update_before_row)
	{
		/*
		 * it may read catalogs, after which the key columns are no longer
		 * good
		 */
		Bitmapset  *updated = ExecGetAllUpdatedCols(info, estate);

		if (!bms_overlap(updated, key_columns(info->ri_RelationDesc)) &&
			!updates_expiry(&container, updated))
		{
			publish_update(&container, updated, estate);
			return;
		}
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
	Trigger    *trigger = ttl_row_trigger_among(triggers);
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

/*
 * Notes that the statement writes a container whose trigger is disabled.  It will fail on the key of an
 * expired row, as on a plain table.
 */
static void
note_disabled(const ResultRelInfo *target, const EState *estate)
{
	const Trigger *trigger = ttl_row_trigger_among(target->ri_TrigDesc);
	TtlExecution *execution = ttl_execution_of(estate);

	if (trigger != NULL && execution != NULL && !ttl_row_trigger_fires(trigger))
		execution->keeps_keys = true;
}

void
ttl_evict_explain_key(void *arg)
{
	const TtlExecution *execution = ttl_execution_current();
	int			error = geterrcode();

	if ((error == ERRCODE_UNIQUE_VIOLATION || error == ERRCODE_EXCLUSION_VIOLATION) &&
		execution != NULL && execution->keeps_keys)
		errhint("If an expired row holds the key, use ALTER TABLE ... ENABLE TRIGGER \"%s\", which is disabled.",
				TTL_TRIGGER);
}

/*
 * In place of the function of an UPDATE's outer node until it has returned a row: opens the target's indexes
 * before the executor does, which would prepare their predicates itself.
 */
static TupleTableSlot *
open_for_update(PlanState *outer)
{
	TtlExecution *execution = ttl_execution_of(outer->state);
	ResultRelInfo *target = ((ModifyTableState *) execution->query_desc->planstate)->resultRelInfo;
	TtlContainer container;
	TupleTableSlot *slot;

	ExecSetExecProcNode(outer, execution->outer_of_update);
	slot = outer->ExecProcNodeReal(outer);
	if (!TupIsNull(slot) && target->ri_IndexRelationDescs == NULL &&
		ttl_container_lookup(RelationGetRelid(target->ri_RelationDesc), &container))
	{
		MemoryContext old = MemoryContextSwitchTo(outer->state->es_query_cxt);

		ExecOpenIndices(target, false);
		prepare_predicates(target, outer->state, &container);
		MemoryContextSwitchTo(old);
	}
	return slot;
}

static void
await_first_row(TtlExecution *execution)
{
	PlanState  *top = execution->query_desc->planstate;
	ModifyTableState *mtstate = (ModifyTableState *) top;
	PlanState  *outer;

	if (!IsA(top, ModifyTableState) || mtstate->operation != CMD_UPDATE || mtstate->mt_nrels != 1 ||
		!mtstate->resultRelInfo->ri_RelationDesc->rd_rel->relhasindex ||
		!ttl_container_is_part(RelationGetRelid(mtstate->resultRelInfo->ri_RelationDesc)))
		return;
	outer = outerPlanState(top);
	execution->outer_of_update = outer->ExecProcNodeReal;
	ExecSetExecProcNode(outer, open_for_update);
}

static void
prepare_target(ModifyTableState *mtstate, ResultRelInfo *target)
{
	if (mtstate->operation == CMD_DELETE || target->ri_TrigDesc == NULL ||
		!ttl_container_is_part(RelationGetRelid(target->ri_RelationDesc)))
		return;
	note_disabled(target, mtstate->ps.state);
	fire_last(target, mtstate->ps.state);
	check_conflicts(target, mtstate->ps.state);
	if (mtstate->operation != CMD_INSERT ||
		((ModifyTable *) mtstate->ps.plan)->onConflictAction == ONCONFLICT_UPDATE)
		fire_on_update(target, mtstate->ps.state);
}

/*
 * A partition that tuples are routed to is opened while the statement runs.
 * ON CONFLICT DO UPDATE comes after the trigger has fired for the insertion.
 */
static void
target_routed(Relation rel)
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
			fire_on_update(info, execution->query_desc->estate);
			check_conflicts(info, execution->query_desc->estate);
		}
	}
}

void
ttl_evict_started(TtlExecution *execution)
{
	ttl_execution_visit_targets(execution, prepare_target);
	await_first_row(execution);
}
