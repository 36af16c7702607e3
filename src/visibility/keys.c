/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  The expired rows that hold the keys of a new row.
 *
 * The new row's keys are looked up in each unique and exclusion index.  The look-up sees what the index's
 * own check will see: committed rows whatever the snapshot, and rows that transactions in progress
 * write or delete, which it waits for if they are expired.
 *
 * What ON CONFLICT DO NOTHING has met is looked for afterwards, in its arbiter indexes: the row itself,
 * or a live one that it has given way to.  Where there is neither, it has given way to one that had expired,
 * and may be gone by now.  A live row that another session has deleted since is taken for such a one;
 * what the transaction itself has deleted or renumbered since is found by its command.
 *
 * Mostly the key is free, and one row is all that the statement
 * writes.  So the indexes are those that the executor has opened for the insertion, and no
 * more is made than a scan needs: state of the executor for indexes with
 * expressions or a predicate and for generated columns, a slot when a row with that
 * key has been found.  COPY and apply workers keep what they have opened to
 * themselves; there the indexes, which they have locked, are opened for each row.
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
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_index.h"
#include "catalog_expr.h"
#include "compat.h"
#include "container/container.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "expiry/expiry.h"
#include "lib/qunique.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "visibility/keys.h"

/* The operators by which rows with the same key conflict, of each key column */
typedef struct KeyOperators
{
	Oid			procs[INDEX_MAX_KEYS];
	uint16		strategies[INDEX_MAX_KEYS];
} KeyOperators;

typedef struct KeyIndex
{
	Oid			index;
	Relation	opened;			/* by the executor, or NULL */
	IndexInfo  *info;
	KeyOperators operators;
	ExprState  *predicate;
	bool		is_arbiter;		/* ON CONFLICT looks at it */
} KeyIndex;

struct TtlKeys
{
	Relation	rel;
	MemoryContext context;
	EState	   *running;		/* of the statement's execution, or NULL */
	int			nindexes;
	KeyIndex   *indexes;
	EState	   *estate;			/* evaluates expressions; NULL = there are
								 * none */
	ResultRelInfo *generating;	/* computes generated columns; NULL = none */
	TupleTableSlot *generated;	/* the new row with them */
	TupleTableSlot *existing;	/* NULL until one is needed */
	bool		met_gone;		/* the look-up has met an entry of a row that
								 * is gone */
};

/* True if pglogical has already looked for conflicts in the index. */
static bool
is_left_to_pglogical(Relation index)
{
	return MyBgworkerEntry != NULL &&
		strcmp(MyBgworkerEntry->bgw_library_name, "pglogical") == 0 &&
		index->rd_index->indisunique &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

/* For ttl_container_derive(): the operators by which keys of the index conflict */
static void *
derive_operators(Relation index, Size *size)
{
	KeyOperators *operators = palloc0(sizeof(KeyOperators));
	IndexInfo  *info = makeNode(IndexInfo);
	Oid		   *exclusion_operators;
	Oid		   *procs;
	uint16	   *strategies;
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);

	if (index->rd_index->indisexclusion)
		RelationGetExclusionInfo(index, &exclusion_operators, &procs, &strategies);
	else
	{
		/* the equality by which ON CONFLICT looks for them */
		info->ii_Unique = true;
		BuildSpeculativeIndexInfo(index, info);
		procs = info->ii_UniqueProcs;
		strategies = info->ii_UniqueStrats;
	}
	memcpy(operators->procs, procs, sizeof(Oid) * nkeys);
	memcpy(operators->strategies, strategies, sizeof(uint16) * nkeys);
	*size = sizeof(KeyOperators);
	return operators;
}

/*
 * Takes the index in, if it is one that keys must be looked up in.  'info' is the
 * executor's IndexInfo, or NULL; it has no state in it if there is nothing to evaluate.
 *
 * Expressions of the table's owner are evaluated as the inserting user, here and
 * where keys are compared, as the insertion into the indexes is about to do.
 */
static void
add_index(TtlKeys *keys, Relation index, IndexInfo *info)
{
	KeyIndex   *key = &keys->indexes[keys->nindexes];

	if (!ttl_catalog_expr_is_key(index->rd_index) || !index->rd_index->indislive ||
		!index->rd_index->indisready || is_left_to_pglogical(index))
		return;
	keys->nindexes++;
	key->index = RelationGetRelid(index);
	key->opened = info != NULL ? index : NULL;
	key->predicate = NULL;
	key->operators = *(const KeyOperators *)
		ttl_container_derive(index, TTL_DERIVED_KEY_OPERATORS, derive_operators);
	if (info != NULL && info->ii_Expressions == NIL && info->ii_Predicate == NIL)
		key->info = info;
	else
		key->info = BuildIndexInfo(index);
	if (key->info->ii_Expressions != NIL || key->info->ii_Predicate != NIL)
	{
		if (keys->estate == NULL)
			keys->estate = CreateExecutorState();
		key->predicate = ExecPrepareQual(key->info->ii_Predicate, keys->estate);
	}
}

/*
 * Made in the current memory context, which must live as long as the statement; NULL if the relation
 * has no such index.  'target' is the relation in the execution that runs, with its indexes open, or NULL.
 */
TtlKeys *
ttl_keys_prepare(Relation rel, EState *running, const ResultRelInfo *target)
{
	TtlKeys    *keys = palloc0(sizeof(TtlKeys));
	TupleConstr *constr = RelationGetDescr(rel)->constr;

	keys->rel = rel;
	keys->context = CurrentMemoryContext;
	if (target != NULL)
	{
		const List *arbiters = target->ri_onConflictArbiterIndexes;

		keys->running = running;
		keys->indexes = palloc(sizeof(KeyIndex) * target->ri_NumIndices);
		for (int i = 0; i < target->ri_NumIndices; i++)
			add_index(keys, target->ri_IndexRelationDescs[i], target->ri_IndexRelationInfo[i]);
		/* without arbiters ON CONFLICT looks at all */
		for (int i = 0; i < keys->nindexes; i++)
			keys->indexes[i].is_arbiter = arbiters == NIL ||
				list_member_oid(arbiters, keys->indexes[i].index);
	}
	else
	{
		List	   *oids = RelationGetIndexList(rel);
		ListCell   *lc;

		keys->indexes = palloc(sizeof(KeyIndex) * list_length(oids));
		foreach(lc, oids)
		{
			Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

			add_index(keys, index, NULL);
			index_close(index, AccessShareLock);
		}
	}
	if (keys->nindexes == 0)
		return NULL;

	/*
	 * PostgreSQL computes them after the trigger has fired, and a key may
	 * depend on them
	 */
	if (constr != NULL && constr->has_generated_stored)
	{
		if (keys->estate == NULL)
			keys->estate = CreateExecutorState();
		keys->generating = makeNode(ResultRelInfo);
		InitResultRelInfo(keys->generating, rel, 0, NULL, 0);
	}
	return keys;
}

/* A slot for rows of the relation, empty */
TupleTableSlot *
ttl_keys_make_slot(TtlKeys *keys)
{
	MemoryContext old = MemoryContextSwitchTo(keys->running != NULL ?
											  keys->running->es_query_cxt : keys->context);
	TupleTableSlot *slot;

	/*
	 * The running execution releases its slots.  Where there is none, a copy
	 * of the descriptor isn't counted by the relation's cache entry, and
	 * needs no release.
	 */
	if (keys->running != NULL)
		slot = table_slot_create(keys->rel, &keys->running->es_tupleTable);
	else
		slot = MakeSingleTupleTableSlot(CreateTupleDescCopyConstr(RelationGetDescr(keys->rel)),
										table_slot_callbacks(keys->rel));
	MemoryContextSwitchTo(old);
	return slot;
}

/*
 * True if the existing row's index values really conflict with the new row's.  Called
 * where the index's own comparison is lossy.
 */
static bool
recheck_key(TtlKeys *keys, const KeyIndex *key, Relation index, TupleTableSlot *slot,
			const Oid *procs, const Datum *new_values)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	if (keys->estate != NULL)
		GetPerTupleExprContext(keys->estate)->ecxt_scantuple = keys->existing;
	FormIndexDatum(key->info, keys->existing, keys->estate, values, isnull);
	if (keys->estate != NULL)
		GetPerTupleExprContext(keys->estate)->ecxt_scantuple = slot;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (isnull[i] ||
			!DatumGetBool(OidFunctionCall2Coll(procs[i], index->rd_indcollation[i],
											   values[i], new_values[i])))
			return false;
	}
	return true;
}

/* A scan of one index for the rows that conflict with a new one */
typedef struct KeyScan
{
	const KeyIndex *key;
	Relation	index;
	Datum		values[INDEX_MAX_KEYS];
	ScanKeyData scankeys[INDEX_MAX_KEYS];
	int			nkeys;
	IndexScanDesc scan;
} KeyScan;

/* False if the new row, which is in the slot, conflicts with no other in the index, by a NULL. */
static bool
prepare_scan(TtlKeys *keys, const KeyIndex *key, Relation index, TupleTableSlot *slot, KeyScan *scan)
{
	bool		isnull[INDEX_MAX_KEYS];

	scan->key = key;
	scan->index = index;
	scan->nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	FormIndexDatum(key->info, slot, keys->estate, scan->values, isnull);
	for (int i = 0; i < scan->nkeys; i++)
	{
		if (isnull[i] && !key->info->ii_NullsNotDistinct)
			return false;
		ScanKeyEntryInitialize(&scan->scankeys[i], isnull[i] ? SK_ISNULL | SK_SEARCHNULL : 0,
							   i + 1, key->operators.strategies[i], InvalidOid,
							   index->rd_indcollation[i], key->operators.procs[i], scan->values[i]);
	}
	return true;
}

/* Begins to search the index for the key. */
static void
begin_scan(TtlKeys *keys, KeyScan *scan, Snapshot snapshot)
{
	scan->scan = TtlIndexBeginScan(keys->rel, scan->index, snapshot, scan->nkeys);
	index_rescan(scan->scan, scan->scankeys, scan->nkeys, NULL, 0);
}

/* Puts the next row that the snapshot sees and that conflicts into keys->existing; false if there is none. */
static bool
next_conflict(TtlKeys *keys, KeyScan *scan, TupleTableSlot *slot)
{
	/* index_getnext_slot() would need the slot at once */
	while (scan->scan->xs_heap_continue ||
		   index_getnext_tid(scan->scan, ForwardScanDirection) != NULL)
	{
		if (keys->existing == NULL)
			keys->existing = ttl_keys_make_slot(keys);
		if (!index_fetch_heap(scan->scan, keys->existing))
			keys->met_gone = true;
		else if (!scan->scan->xs_recheck ||
				 recheck_key(keys, scan->key, scan->index, slot, scan->key->operators.procs,
							 scan->values))
			return true;
	}
	return false;
}

/* Ends that. */
static void
end_scan(TtlKeys *keys, KeyScan *scan)
{
	index_endscan(scan->scan);
	if (keys->existing != NULL)
		ExecClearTuple(keys->existing);
}

/* Collects from one index. */
static void
find_expired_in(TtlKeys *keys, const KeyIndex *key, Relation index,
				const TtlContainer *container, TimestampTz now, TupleTableSlot *slot,
				const ItemPointerData *self, TtlTids *found)
{
	KeyScan		scan;
	SnapshotData dirty;
	ItemPointerData tid;
	TransactionId wait_for;
	int			found_before = found->n;

	if (!prepare_scan(keys, key, index, slot, &scan))
		return;
	InitDirtySnapshot(dirty);
	do
	{
		/* anew after a wait, for the transaction may have changed anything */
		wait_for = InvalidTransactionId;
		found->n = found_before;
		begin_scan(keys, &scan, &dirty);
		while (next_conflict(keys, &scan, slot))
		{
			tid = keys->existing->tts_tid;
			/* a conflict with a live row is for the index's own check to find */
			if ((self != NULL && ItemPointerEquals(&tid, unconstify(ItemPointerData *, self))) ||
				ttl_expiry_of_slot(container, keys->existing) > now)
				continue;
			/* A transaction in progress inserts or deletes it. */
			wait_for = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
			if (TransactionIdIsValid(wait_for))
				break;
			ttl_tids_append(found, &tid);
		}
		end_scan(keys, &scan);

		/*
		 * as the index's own check does: an insertion may be taken back long
		 * before its transaction ends
		 */
		if (TransactionIdIsValid(wait_for) && dirty.speculativeToken != 0)
			SpeculativeInsertionWait(wait_for, dirty.speculativeToken);
		else if (TransactionIdIsValid(wait_for))
			XactLockTableWait(wait_for, keys->rel, &tid, XLTW_InsertIndexUnique);
	} while (TransactionIdIsValid(wait_for));
}

/* True if the new row will be in the index, or is: by the predicate, whose context has been set. */
static bool
is_indexed(TtlKeys *keys, const KeyIndex *key)
{
	return key->predicate == NULL ||
		ExecQual(key->predicate, GetPerTupleExprContext(keys->estate));
}

/* The index, as the execution has opened it, or opened by us; it is locked. */
static Relation
open_key_index(const KeyIndex *key)
{
	return key->opened != NULL ? key->opened : index_open(key->index, NoLock);
}

/* Closes it, if it was opened by us. */
static void
close_key_index(const KeyIndex *key, Relation index)
{
	if (key->opened == NULL)
		index_close(index, NoLock);
}

/* Prepares what is evaluated for the new row: the result is the slot that has its generated columns, too. */
static TupleTableSlot *
begin_row(TtlKeys *keys, TupleTableSlot *slot)
{
	if (keys->generating != NULL)
	{
		if (keys->generated == NULL)
			keys->generated = ttl_keys_make_slot(keys);
		slot = ExecCopySlot(keys->generated, slot);
		ExecComputeStoredGenerated(keys->generating, keys->estate, slot, CMD_INSERT);
	}
	if (keys->estate != NULL)
		GetPerTupleExprContext(keys->estate)->ecxt_scantuple = slot;
	return slot;
}

/* Frees what was computed for a row. */
static void
end_row(TtlKeys *keys)
{
	if (keys->generated != NULL)
		ExecClearTuple(keys->generated);
	if (keys->estate != NULL)
		ResetPerTupleExprContext(keys->estate);
}

/*
 * Collects the rows that have expired by 'now' and conflict with the new row in the slot, after it has
 * waited for those that write them.  'self' (may be NULL) is the TID of the row that is being updated.
 */
void
ttl_keys_find_expired(TtlKeys *keys, const TtlContainer *container, TimestampTz now,
					  TupleTableSlot *slot, const ItemPointerData *self, TtlTids *found)
{
	slot = begin_row(keys, slot);

	/*
	 * A scan may miss a row that replaces another one meanwhile.  Mostly the
	 * latter went long ago, and other transactions end all the time.
	 */
	for (int n = 0; n < TTL_KEYS_LOOK_UPS_MAX; n++)
	{
		uint64		transactions = TtlEndedTransactions();

		CHECK_FOR_INTERRUPTS();
		keys->met_gone = false;
		for (int i = 0; i < keys->nindexes; i++)
		{
			const KeyIndex *key = &keys->indexes[i];
			Relation	index;

			if (!is_indexed(keys, key))
				continue;
			index = open_key_index(key);
			find_expired_in(keys, key, index, container, now, slot, self, found);
			close_key_index(key, index);
		}
		if (found->n > 0 || !keys->met_gone || transactions == TtlEndedTransactions())
			break;
	}

	/* a row may hold several keys, and many may hold one exclusion key */
	if (found->n > 1)
	{
		qsort(found->tids, found->n, sizeof(ItemPointerData), ttl_tids_compare);
		found->n = qunique(found->tids, found->n, sizeof(ItemPointerData), ttl_tids_compare);
	}
	end_row(keys);
}

/*
 * What ON CONFLICT DO NOTHING has met
 */

/* Whether the row is there, or one that it has given way to */
typedef enum Outcome
{
	OUTCOME_OPEN,				/* the index can't tell */
	OUTCOME_MISSING,			/* it can, and has neither */
	OUTCOME_STANDS
} Outcome;

/* True if the row in the slot conflicts with one like itself, as it needn't by an exclusion constraint. */
static bool
conflicts_with_itself(const KeyScan *scan)
{
	if (!scan->index->rd_index->indisexclusion)
		return true;
	for (int i = 0; i < scan->nkeys; i++)
	{
		if (!DatumGetBool(OidFunctionCall2Coll(scan->key->operators.procs[i],
											   scan->index->rd_indcollation[i],
											   scan->values[i], scan->values[i])))
			return false;
	}
	return true;
}

/* True if this transaction has inserted the row in the slot. */
static bool
is_inserted_by_us(TupleTableSlot *slot)
{
	bool		isnull;

	return TransactionIdIsCurrentTransactionId(DatumGetTransactionId(slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull)));
}

/*
 * True if this transaction has inserted the row in the slot, or deleted it, in that command or later: a
 * trigger of the statement, or another part of it, may do away with what it has inserted or met.
 */
static bool
is_handled_since(TupleTableSlot *slot, CommandId command, bool *deleted)
{
	HeapTupleHeader tuple;

	*deleted = false;
	/* other access methods have no command IDs to look at */
	if (!TTS_IS_BUFFERTUPLE(slot))
		return is_inserted_by_us(slot);
	tuple = ((HeapTupleTableSlot *) slot)->tuple->t_data;
	if (TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple)) &&
		HeapTupleHeaderGetCmin(tuple) >= command)
		return true;
	*deleted = (tuple->t_infomask & HEAP_XMAX_INVALID) == 0 &&
		!HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_infomask) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(tuple)) &&
		HeapTupleHeaderGetCmax(tuple) >= command;
	return *deleted;
}

/* What has become, by one index, of a row that DO NOTHING may have left out. */
static Outcome
outcome_in(TtlKeys *keys, const KeyIndex *key, Relation index, const TtlContainer *container,
		   TimestampTz now, TupleTableSlot *slot, CommandId command)
{
	KeyScan		scan;
	SnapshotData dirty;
	Outcome		outcome;

	if (!prepare_scan(keys, key, index, slot, &scan))
		return OUTCOME_OPEN;
	outcome = conflicts_with_itself(&scan) ? OUTCOME_MISSING : OUTCOME_OPEN;

	InitDirtySnapshot(dirty);
	begin_scan(keys, &scan, &dirty);
	while (outcome != OUTCOME_STANDS && next_conflict(keys, &scan, slot))
	{
		/*
		 * DO NOTHING gives way to no row that is still being inserted, but
		 * waits for it
		 */
		if (TransactionIdIsValid(dirty.xmin))
			continue;
		if (is_inserted_by_us(keys->existing) || ttl_expiry_of_slot(container, keys->existing) > now)
			outcome = OUTCOME_STANDS;
		else
			outcome = OUTCOME_MISSING;
	}
	end_scan(keys, &scan);
	if (outcome != OUTCOME_MISSING)
		return outcome;

	/* what this transaction has inserted or deleted since, too */
	begin_scan(keys, &scan, SnapshotAny);
	while (outcome != OUTCOME_STANDS && next_conflict(keys, &scan, slot))
	{
		bool		deleted;

		if (is_handled_since(keys->existing, command, &deleted) &&
			(!deleted || ttl_expiry_of_slot(container, keys->existing) > now))
			outcome = OUTCOME_STANDS;
	}
	end_scan(keys, &scan);
	return outcome;
}

/*
 * True if ON CONFLICT DO NOTHING has left out the row in the slot, and neither by a live row nor by what
 * this transaction has inserted; 'command' is the one that it was looked up in.  Live is what has not expired by 'now'.
 */
bool
ttl_keys_left_row_out(TtlKeys *keys, const TtlContainer *container, TimestampTz now,
					  TupleTableSlot *slot, CommandId command)
{
	Outcome		outcome = OUTCOME_OPEN;

	slot = begin_row(keys, slot);

	/* as above */
	for (int n = 0; n < TTL_KEYS_LOOK_UPS_MAX; n++)
	{
		uint64		transactions = TtlEndedTransactions();

		CHECK_FOR_INTERRUPTS();
		keys->met_gone = false;
		for (int i = 0; i < keys->nindexes && outcome != OUTCOME_STANDS; i++)
		{
			const KeyIndex *key = &keys->indexes[i];
			Relation	index;

			if (!key->is_arbiter || !is_indexed(keys, key))
				continue;
			index = open_key_index(key);
			outcome = Max(outcome, outcome_in(keys, key, index, container, now, slot, command));
			close_key_index(key, index);
		}
		if (outcome != OUTCOME_MISSING || !keys->met_gone || transactions == TtlEndedTransactions())
			break;
	}
	end_row(keys);
	return outcome == OUTCOME_MISSING;
}
