/*-------------------------------------------------------------------------
 *
 * fk_referenced.c
 *	  Leaves out rows that others reference.
 *
 * Before collected rows are deleted, one query for each foreign key with NO ACTION or
 * RESTRICT finds those that are referenced by rows which don't go along (fk_dependents.c).
 *
 * The result is not relied on: a row may be referenced a moment later, or in a way that
 * isn't looked at (a temporal key, a row that goes along but is itself referenced).
 * Then its deletion fails, and batch.c isolates it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "constraint.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "executor/spi.h"
#include "reaper/reap_rel.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static void
init_deletion(TtlDeletion *deletion, const TtlBatch *batch)
{
	*deletion = (TtlDeletion)
	{
		.expired_at = batch->now,
		.owner = batch->rel->rd_rel->relowner,
		.restricted = batch->memory->mode.by_worker,
		.excludes_grace = batch->memory->mode.by_worker
	};
	(void) ttl_fk_dependents_add_table(deletion, batch->rel, &batch->container);
}

List *
ttl_fk_referenced_keys(const TtlBatch *batch)
{
	TtlDeletion deletion;
	List	   *keys;
	ListCell   *lc;

	init_deletion(&deletion, batch);
	keys = ttl_fk_dependents_references(&deletion, batch->rel);
	foreach(lc, keys)
	{
		const TtlReference *reference = lfirst(lc);

		if (reference->cascades || !reference->fires || reference->key.is_temporal)
			keys = foreach_delete_current(keys, lc);
	}
	return keys;
}

/* Reports that a row is referenced, with the error of the foreign key itself. */
static void
report(TtlBatch *batch, const TtlForeignKey *key, ItemPointer tid)
{
	TupleTableSlot *slot = table_slot_create(batch->rel, NULL);
	ErrorData  *error = palloc0(sizeof(ErrorData));
	StringInfoData names;
	StringInfoData texts;

	initStringInfo(&names);
	initStringInfo(&texts);
	if (table_tuple_fetch_row_version(batch->rel, tid, SnapshotSelf, slot))
		ttl_constraint_describe_key(slot, key->referenced, key->nkeys, key->referenced_keys,
									&names, &texts);
	ExecDropSingleTupleTableSlot(slot);
	error->sqlerrcode = ERRCODE_FOREIGN_KEY_VIOLATION;
	error->message = psprintf("update or delete on table \"%s\" violates foreign key constraint \"%s\" on table \"%s\"",
							  RelationGetRelationName(batch->rel),
							  get_constraint_name(key->constraint),
							  get_rel_name(key->referencing));
	error->detail = psprintf("Key (%s)=(%s) is still referenced from table \"%s\".",
							 names.data, texts.data, get_rel_name(key->referencing));
	ttl_batch_report_referenced(batch, error);
}

/* Marks the rows that are referenced by a foreign key. */
static void
find_referenced(TtlBatch *batch, const TtlReference *reference, bool *is_referenced)
{
	const TtlTids *tids = &batch->reap_rel->tids;
	int			first = tids->n;
	TtlDeletion deletion;
	TtlIdentity saved;

	init_deletion(&deletion, batch);
	ttl_fk_dependents_query(&deletion, batch->rel, reference, tids->tids, tids->n,
							TTL_FK_QUERY_IS_HELD, &saved);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		int			n = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[i],
													SPI_tuptable->tupdesc, 1, &isnull));

		is_referenced[n] = true;
		first = Min(first, n);
	}
	if (first < tids->n)
		report(batch, &reference->key, &tids->tids[first]);
	ttl_owner_end(&saved);
}

void
ttl_fk_referenced_leave_out(TtlBatch *batch)
{
	TtlTids    *tids = &batch->reap_rel->tids;
	bool	   *is_referenced = palloc0(tids->n);
	int			kept = 0;
	ListCell   *lc;

	Assert(batch->reap_rel->next_tid == 0);
	PushActiveSnapshot(GetTransactionSnapshot());
	foreach(lc, batch->referenced)
		find_referenced(batch, lfirst(lc), is_referenced);
	PopActiveSnapshot();

	for (int i = 0; i < tids->n; i++)
	{
		if (!is_referenced[i])
			tids->tids[kept++] = tids->tids[i];
	}
	batch->reap_rel->blocked += tids->n - kept;
	tids->n = kept;
}
