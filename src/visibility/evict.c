/*-------------------------------------------------------------------------
 *
 * evict.c
 *	  A key that only expired rows hold is free.
 *
 * The row trigger of each container fires before INSERT (COPY FROM, ON CONFLICT
 * and MERGE included), as the last one, when the new row is final.  It looks
 * the row's keys up in each unique and exclusion index, and what it finds
 * expired there is deleted for good (deletion.c), with triggers and
 * referential actions.  The insertion then meets no conflict.
 *
 * The look-up sees what the index's own check will see: committed rows
 * whatever the snapshot, and rows that transactions in progress write or
 * delete, which it waits for if they are expired.  Rows are judged by the clock of the outer
 * statement.  In REPEATABLE READ a row that the snapshot can't see can't be
 * deleted: 40001.
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

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_index.h"
#include "commands/trigger.h"
#include "compat.h"
#include "container/container.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "expiry/expiry.h"
#include "expiry/expiry_walk.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "stored.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "visibility/visibility.h"

/* Rows that a statement writes before it asks whether look-ups are needed. */
#define ROWS_BEFORE_PROOF	100

/* Index entries that the question may cost. */
#define PROOF_MAX_ENTRIES	1000

typedef struct KeyIndex
{
	Oid			index;
	IndexInfo  *info;
	ExprState  *predicate;
} KeyIndex;

/* What the trigger keeps for one relation in one statement. */
typedef struct EvictState
{
	TtlContainer container;
	TimestampTz now;
	int			nindexes;
	KeyIndex   *indexes;
	EState	   *estate;
	ResultRelInfo *generating;	/* computes generated columns; NULL = none */
	TupleTableSlot *new_slot;
	TupleTableSlot *existing_slot;
	int64		rows;
	bool		nothing_expired;	/* proved */
} EvictState;

typedef struct TidList
{
	ItemPointerData *tids;
	int			n;
	int			allocated;
} TidList;

static bool
has_unique_index(Relation rel)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		bool		is_key = ttl_stored_is_key(index);

		index_close(index, AccessShareLock);
		if (is_key)
			return true;
	}
	return false;
}

/* Has pglogical already looked for conflicts in the index? */
static bool
is_looked_after(Relation index)
{
	return MyBgworkerEntry != NULL &&
		strcmp(MyBgworkerEntry->bgw_library_name, "pglogical") == 0 &&
		index->rd_index->indisunique &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

/*
 * Evaluates expressions of the table's owner as the inserting user, here and
 * where keys are compared, as the insertion into the indexes is about to do.
 */
static void
prepare_indexes(EvictState *state, Relation rel)
{
	List	   *oids = RelationGetIndexList(rel);
	ListCell   *lc;

	state->indexes = palloc(sizeof(KeyIndex) * list_length(oids));
	foreach(lc, oids)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Form_pg_index form = index->rd_index;

		if (ttl_stored_is_key(index) && form->indislive && form->indisready &&
			!is_looked_after(index))
		{
			KeyIndex   *key = &state->indexes[state->nindexes++];

			key->index = RelationGetRelid(index);
			key->info = BuildIndexInfo(index);
			if (key->info->ii_ExclusionOps == NULL)
				BuildSpeculativeIndexInfo(index, key->info);
			key->predicate = ExecPrepareQual(key->info->ii_Predicate, state->estate);
		}
		index_close(index, AccessShareLock);
	}
}

static EvictState *
prepare(FmgrInfo *flinfo, Relation rel, const TtlContainer *container)
{
	MemoryContext old = MemoryContextSwitchTo(flinfo->fn_mcxt);
	EvictState *state = palloc0(sizeof(EvictState));
	TupleDesc	desc;

	state->container = *container;
	state->now = ttl_execution_clock();
	if (container->default_ttl == TTL_OFF || !has_unique_index(rel))
		state->nothing_expired = true;
	else
	{
		/*
		 * A copy isn't counted by the relation's cache entry, and needs no
		 * release.
		 */
		desc = CreateTupleDescCopyConstr(RelationGetDescr(rel));
		state->estate = CreateExecutorState();
		MemoryContextSwitchTo(state->estate->es_query_cxt);
		prepare_indexes(state, rel);
		if (desc->constr != NULL && desc->constr->has_generated_stored)
		{
			state->generating = makeNode(ResultRelInfo);
			InitResultRelInfo(state->generating, rel, 0, NULL, 0);
		}
		state->new_slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
		state->existing_slot = MakeSingleTupleTableSlot(desc, table_slot_callbacks(rel));
	}
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

static void
remember_tid(TidList *list, const ItemPointerData *tid)
{
	for (int i = 0; i < list->n; i++)
	{
		if (ItemPointerEquals(&list->tids[i], unconstify(ItemPointerData *, tid)))
			return;
	}
	if (list->n == list->allocated)
	{
		list->allocated = list->allocated == 0 ? 4 : list->allocated * 2;
		list->tids = list->tids == NULL ?
			palloc(sizeof(ItemPointerData) * list->allocated) :
			repalloc(list->tids, sizeof(ItemPointerData) * list->allocated);
	}
	list->tids[list->n++] = *tid;
}

/*
 * Do the existing row's index values really conflict with the new row's?  Asked
 * where the index itself can't tell.
 */
static bool
recheck(EvictState *state, const KeyIndex *key, Relation index,
		const Oid *procs, const Datum *new_values)
{
	ExprContext *econtext = GetPerTupleExprContext(state->estate);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	econtext->ecxt_scantuple = state->existing_slot;
	FormIndexDatum(key->info, state->existing_slot, state->estate, values, isnull);
	econtext->ecxt_scantuple = state->new_slot;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (isnull[i] ||
			!DatumGetBool(OidFunctionCall2Coll(procs[i], index->rd_indcollation[i],
											   values[i], new_values[i])))
			return false;
	}
	return true;
}

/*
 * Collects the expired rows that the new row conflicts with in one index.
 * 'self' (may be NULL) is the place of the row that is being updated.
 */
static void
collect_conflicts(EvictState *state, Relation rel, const KeyIndex *key,
				  const ItemPointerData *self, TidList *found)
{
	ExprContext *econtext = GetPerTupleExprContext(state->estate);
	const Oid  *procs = key->info->ii_ExclusionProcs;
	const uint16 *strategies = key->info->ii_ExclusionStrats;
	bool		nulls_conflict = false;
	Relation	index;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	ScanKeyData keys[INDEX_MAX_KEYS];
	int			nkeys;
	SnapshotData dirty;
	IndexScanDesc scan;
	ItemPointerData waited_for;
	TransactionId wait_for;
	int			found_before = found->n;

	if (procs == NULL)
	{
		procs = key->info->ii_UniqueProcs;
		strategies = key->info->ii_UniqueStrats;
		nulls_conflict = key->info->ii_NullsNotDistinct;
	}

	econtext->ecxt_scantuple = state->new_slot;
	if (key->predicate != NULL && !ExecQual(key->predicate, econtext))
		return;

	/* The executor has locked the indexes. */
	index = index_open(key->index, NoLock);
	FormIndexDatum(key->info, state->new_slot, state->estate, values, isnull);
	nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	for (int i = 0; i < nkeys; i++)
	{
		if (isnull[i] && !nulls_conflict)
		{
			index_close(index, NoLock);
			return;
		}
		ScanKeyEntryInitialize(&keys[i], isnull[i] ? SK_ISNULL | SK_SEARCHNULL : 0,
							   i + 1, strategies[i], InvalidOid,
							   index->rd_indcollation[i], procs[i], values[i]);
	}

	InitDirtySnapshot(dirty);
	do
	{
		wait_for = InvalidTransactionId;
		found->n = found_before;
		scan = TtlIndexBeginScan(rel, index, &dirty, nkeys);
		index_rescan(scan, keys, nkeys, NULL, 0);
		while (index_getnext_slot(scan, ForwardScanDirection, state->existing_slot))
		{
			ItemPointerData tid = state->existing_slot->tts_tid;

			if ((self != NULL && ItemPointerEquals(&tid, unconstify(ItemPointerData *, self))) ||
				(scan->xs_recheck && !recheck(state, key, index, procs, values)) ||
				ttl_expiry_of_slot(&state->container, state->existing_slot) > state->now)
				continue;
			/* Somebody is just inserting or deleting it: too early to tell. */
			wait_for = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
			waited_for = tid;
			if (TransactionIdIsValid(wait_for))
				break;
			remember_tid(found, &tid);
		}
		index_endscan(scan);
		ExecClearTuple(state->existing_slot);
		if (TransactionIdIsValid(wait_for))
			XactLockTableWait(wait_for, rel, &waited_for, XLTW_InsertIndexUnique);
	} while (TransactionIdIsValid(wait_for));

	index_close(index, NoLock);
}

/*
 * Why wasn't a conflicting row deleted?  If somebody else has deleted or renewed
 * it, or the policy has changed, the index will tell what comes of that.  But
 * our snapshot may be too old to see it; or a trigger or rule has kept it, and ON
 * CONFLICT must not meet it.
 */
static void
check_deleted(EvictState *state, Relation rel, const TidList *found)
{
	TtlContainer container;
	bool		is_container = ttl_container_lookup(RelationGetRelid(rel), &container);

	for (int i = 0; i < found->n; i++)
	{
		if (IsolationUsesXactSnapshot() &&
			!table_tuple_fetch_row_version(rel, &found->tids[i], GetTransactionSnapshot(),
										   state->existing_slot))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access due to concurrent update"),
					 errhint("The transaction might succeed if retried.")));
		if (is_container &&
			table_tuple_fetch_row_version(rel, &found->tids[i], SnapshotSelf,
										  state->existing_slot) &&
			ttl_expiry_of_slot(&container, state->existing_slot) <= state->now)
			ereport(ERROR,
					(errcode(ERRCODE_UNIQUE_VIOLATION),
					 errmsg("could not delete the expired row of container \"%s\" that holds the key",
							RelationGetRelationName(rel)),
					 errdetail("A trigger or rule has kept it.")));
		ExecClearTuple(state->existing_slot);
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
evict(EvictState *state, Relation rel, HeapTuple new, const ItemPointerData *self)
{
	TidList		found = {0};
	uint64		deleted;

	ExecStoreHeapTuple(new, state->new_slot, false);

	/* A row may come in expired, and the next one may have its key. */
	if (++state->rows == ROWS_BEFORE_PROOF)
		state->nothing_expired = prove_nothing_expired(state, rel);
	if (state->nothing_expired)
	{
		if (ttl_expiry_of_slot(&state->container, state->new_slot) <= state->now)
			state->nothing_expired = false;
		ExecClearTuple(state->new_slot);
		return;
	}

	if (state->generating != NULL)
		ExecComputeStoredGenerated(state->generating, state->estate, state->new_slot, CMD_INSERT);
	for (int i = 0; i < state->nindexes; i++)
		collect_conflicts(state, rel, &state->indexes[i], self, &found);

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
	ExecClearTuple(state->new_slot);
	ResetPerTupleExprContext(state->estate);
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
	HeapTuple	new;
	TtlContainer container;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be fired by a row-level BEFORE INSERT trigger",
						"on_write")));

	rel = trigger->tg_relation;
	if (TRIGGER_FIRED_BY_UPDATE(trigger->tg_event))
		new = trigger->tg_newtuple;
	else
		new = trigger->tg_trigtuple;

	if (state == NULL)
	{
		if (!ttl_container_lookup(RelationGetRelid(rel), &container))
			return PointerGetDatum(new);
		state = prepare(fcinfo->flinfo, rel, &container);
	}

	if (TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		new = complete_ts(rel, &state->container, new);
	if (state->estate != NULL)
		evict(state, rel, new,
			  TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? &trigger->tg_trigtuple->t_self : NULL);
	return PointerGetDatum(new);
}
