/*-------------------------------------------------------------------------
 *
 * keys.c
 *	  The expired rows that hold the keys of a new row.
 *
 * The new row's keys are looked up in each unique and exclusion index.  The look-up sees what the index's
 * own check will see: committed rows whatever the snapshot, and rows that transactions in progress
 * write or delete, which it waits for if they are expired.  What ON CONFLICT has met is looked
 * for afterwards in the same way, in its arbiter indexes.
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
	bool		met_live;		/* ... a row that has not expired, and is no
								 * other transaction's in progress */
};

/* True if pglogical has already looked for conflicts in the index. */
static bool
is_looked_after(Relation index)
{
	return MyBgworkerEntry != NULL &&
		strcmp(MyBgworkerEntry->bgw_library_name, "pglogical") == 0 &&
		index->rd_index->indisunique &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

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
		!index->rd_index->indisready || is_looked_after(index))
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

	if (constr != NULL && constr->has_generated_stored)
	{
		if (keys->estate == NULL)
			keys->estate = CreateExecutorState();
		keys->generating = makeNode(ResultRelInfo);
		InitResultRelInfo(keys->generating, rel, 0, NULL, 0);
	}
	return keys;
}

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

/* True if this transaction has inserted the row in the slot. */
static bool
is_own(TupleTableSlot *slot)
{
	bool		isnull;

	return TransactionIdIsCurrentTransactionId(DatumGetTransactionId(slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull)));
}

/* Collects from one index. */
static void
find_in(TtlKeys *keys, const KeyIndex *key, Relation index,
		const TtlContainer *container, TimestampTz now, TupleTableSlot *slot,
		const ItemPointerData *self, bool afterwards, TtlTids *found)
{
	const Oid  *procs = key->operators.procs;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	ScanKeyData scankeys[INDEX_MAX_KEYS];
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	SnapshotData dirty;
	IndexScanDesc scan;
	ItemPointerData waited_for;
	TransactionId wait_for;
	int			found_before = found->n;

	FormIndexDatum(key->info, slot, keys->estate, values, isnull);
	for (int i = 0; i < nkeys; i++)
	{
		if (isnull[i] && !key->info->ii_NullsNotDistinct)
			return;
		ScanKeyEntryInitialize(&scankeys[i], isnull[i] ? SK_ISNULL | SK_SEARCHNULL : 0,
							   i + 1, key->operators.strategies[i], InvalidOid,
							   index->rd_indcollation[i], procs[i], values[i]);
	}

	InitDirtySnapshot(dirty);
	do
	{
		wait_for = InvalidTransactionId;
		found->n = found_before;
		scan = TtlIndexBeginScan(keys->rel, index, &dirty, nkeys);
		index_rescan(scan, scankeys, nkeys, NULL, 0);

		/* index_getnext_slot() would need the slot at once */
		while (scan->xs_heap_continue || index_getnext_tid(scan, ForwardScanDirection) != NULL)
		{
			ItemPointerData tid;

			if (keys->existing == NULL)
				keys->existing = ttl_keys_make_slot(keys);
			if (!index_fetch_heap(scan, keys->existing))
			{
				keys->met_gone = true;
				continue;
			}
			tid = keys->existing->tts_tid;
			if ((self != NULL && ItemPointerEquals(&tid, unconstify(ItemPointerData *, self))) ||
				(scan->xs_recheck && !recheck_key(keys, key, index, slot, procs, values)))
				continue;
			if (afterwards)
			{
				if (TransactionIdIsValid(dirty.xmin))
					continue;
				if (ttl_expiry_of_slot(container, keys->existing) > now)
					keys->met_live = true;
				else if (!is_own(keys->existing))
					ttl_tids_append(found, &tid);
				continue;
			}
			if (ttl_expiry_of_slot(container, keys->existing) > now)
				continue;
			/* A transaction in progress inserts or deletes it. */
			wait_for = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
			waited_for = tid;
			if (TransactionIdIsValid(wait_for))
				break;
			ttl_tids_append(found, &tid);
		}
		index_endscan(scan);
		if (keys->existing != NULL)
			ExecClearTuple(keys->existing);
		/* as the index's own check does: an insertion may be taken back long before its transaction ends */
		if (TransactionIdIsValid(wait_for) && dirty.speculativeToken != 0)
			SpeculativeInsertionWait(wait_for, dirty.speculativeToken);
		else if (TransactionIdIsValid(wait_for))
			XactLockTableWait(wait_for, keys->rel, &waited_for, XLTW_InsertIndexUnique);
	} while (TransactionIdIsValid(wait_for));
}

/* Collects from all indexes that the new row will be in; afterwards, from those that ON CONFLICT looks at. */
static void
find_in_all(TtlKeys *keys, const TtlContainer *container, TimestampTz now,
			TupleTableSlot *slot, const ItemPointerData *self, bool afterwards,
			TtlTids *found)
{
	for (int i = 0; i < keys->nindexes; i++)
	{
		const KeyIndex *key = &keys->indexes[i];
		Relation	index = key->opened;

		if (afterwards && !key->is_arbiter)
			continue;
		if (key->predicate != NULL &&
			!ExecQual(key->predicate, GetPerTupleExprContext(keys->estate)))
			continue;
		if (index == NULL)
			index = index_open(key->index, NoLock);
		find_in(keys, key, index, container, now, slot, self, afterwards, found);
		if (key->opened == NULL)
			index_close(index, NoLock);
	}
}

/*
 * Collects the rows that have expired by 'now' and conflict with the new row in the slot; if
 * afterwards, only what others have committed.  'self' (may be NULL) is the TID of the row that
 * is being updated.
 */
static void
find_expired(TtlKeys *keys, const TtlContainer *container, TimestampTz now, TupleTableSlot *slot,
			 const ItemPointerData *self, bool afterwards, TtlTids *found)
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

	/*
	 * A scan may miss a row that replaces another one meanwhile.  Mostly the
	 * latter went long ago, and other transactions end all the time.
	 */
	for (int n = 0; n < TTL_KEYS_LOOK_UPS_MAX; n++)
	{
		uint64		transactions = TtlEndedTransactions();

		CHECK_FOR_INTERRUPTS();
		keys->met_gone = false;
		find_in_all(keys, container, now, slot, self, afterwards, found);
		if (found->n > 0 || !keys->met_gone || transactions == TtlEndedTransactions())
			break;
	}

	/* a row may hold several keys, and many may hold one exclusion key */
	if (found->n > 1)
	{
		qsort(found->tids, found->n, sizeof(ItemPointerData), ttl_tids_compare);
		found->n = qunique(found->tids, found->n, sizeof(ItemPointerData), ttl_tids_compare);
	}

	if (keys->generated != NULL)
		ExecClearTuple(keys->generated);
	if (keys->estate != NULL)
		ResetPerTupleExprContext(keys->estate);
}

void
ttl_keys_find_expired(TtlKeys *keys, const TtlContainer *container, TimestampTz now,
					  TupleTableSlot *slot, const ItemPointerData *self, TtlTids *found)
{
	find_expired(keys, container, now, slot, self, false, found);
}

bool
ttl_keys_met_expired_alone(TtlKeys *keys, const TtlContainer *container, TimestampTz now,
						   TupleTableSlot *slot)
{
	TtlTids		found = {0};

	keys->met_live = false;
	find_expired(keys, container, now, slot, NULL, true, &found);
	return found.n > 0 && !keys->met_live;
}
