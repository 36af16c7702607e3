/*-------------------------------------------------------------------------
 *
 * fk_referenced.c
 *	  Leaves out rows that others reference.
 *
 * Before collected rows are deleted, one query for each foreign key with NO ACTION or
 * RESTRICT finds those that are referenced by rows which don't go along (deletion.c).
 *
 * The result is not relied on: a row may be referenced a moment later, or in a way that
 * isn't looked at (a temporal key, a row that goes along but is itself referenced).
 * Then its deletion fails, and batch.c isolates it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "catalog_expr.h"
#include "compat.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "own_sql.h"
#include "reaper/reap_table.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/queryenvironment.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

/*
 * A foreign key with NO ACTION or RESTRICT.  Its rows that had expired by 'expired_at' may go
 * along; DT_NOBEGIN = none.
 */
typedef struct Reference
{
	TtlForeignKey key;
	TimestampTz expired_at;
} Reference;

/* The most rows that are looked up at once: a query has to end before the batch's deadline */
#define ROWS_MAX	10000

/*
 * ... and where each row may take long, for the position can't be among those that are asked about at once: a worker
 * that lives for one cycle may not come to their end
 */
#define RAISING_ROWS_MAX	50
#define SINGLE_ROWS_MAX		1

/* True if rows that reference by the key, and stay, keep what they reference from being deleted. */
static bool
may_hold(const TtlReferencing *key)
{
	return (key->action == FKCONSTR_ACTION_NOACTION || key->action == FKCONSTR_ACTION_RESTRICT) && key->fires;
}

/* True if the table is referenced by a foreign key that may hold rows. */
bool
ttl_fk_referenced_is_possible(const TtlBatch *batch)
{
	ListCell   *lc;

	foreach(lc, ttl_catalog_referencing(batch->rel))
	{
		if (may_hold(lfirst(lc)))
			return true;
	}
	return false;
}

/* The foreign keys by which rows of the table may be held.  Of a partitioned referencing table it is one. */
static List *
list_references(const TtlBatch *batch)
{
	List	   *references = NIL;
	ListCell   *lc;

	foreach(lc, ttl_catalog_referencing(batch->rel))
	{
		const TtlReferencing *key = lfirst(lc);
		Reference  *reference;

		if (!may_hold(key))
			continue;
		reference = palloc(sizeof(Reference));
		reference->expired_at = batch->now;
		if (!ttl_deletion_admit_table(key->table, batch->rel->rd_rel->relowner,
									  batch->container.container, batch->memory->mode.by_worker,
									  &reference->expired_at))
			reference->expired_at = DT_NOBEGIN;
		if (!ttl_catalog_foreign_key(key->constraint, key->table, RelationGetRelid(batch->rel), &reference->key))
			elog(ERROR, "cache lookup failed for constraint %u", key->constraint);
		if (!reference->key.is_temporal)
			references = lappend(references, reference);
	}
	return references;
}

/*
 * Makes the keys of the rows a relation "k" of the statement, with columns n (the row's
 * position in the array), k1, k2 ...
 */
static Tuplestorestate *
register_keys(Relation rel, const TtlForeignKey *key, ItemPointer tids, int ntids)
{
	EphemeralNamedRelation relation = palloc0(sizeof(EphemeralNamedRelationData));
	Tuplestorestate *keys = tuplestore_begin_heap(false, false, work_mem);
	TupleDesc	desc = CreateTemplateTupleDesc(key->nkeys + 1);
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	TupleDescInitEntry(desc, 1, "n", INT4OID, -1, 0);
	for (int i = 0; i < key->nkeys; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(rel), key->referenced_keys[i] - 1);

		TupleDescInitEntry(desc, i + 2, psprintf("k%d", i + 1), column->atttypid,
						   column->atttypmod, column->attndims);
		TupleDescInitEntryCollation(desc, i + 2, column->attcollation);
	}
	TupleDescFinalize(desc);
	for (int n = 0; n < ntids; n++)
	{
		Datum		values[INDEX_MAX_KEYS + 1] = {Int32GetDatum(n)};
		bool		nulls[INDEX_MAX_KEYS + 1] = {false};

		if (!table_tuple_fetch_row_version(rel, &tids[n],
										   SnapshotSelf, slot))
			continue;			/* it has gone since it was collected */
		for (int i = 0; i < key->nkeys; i++)
			values[i + 1] = slot_getattr(slot, key->referenced_keys[i], &nulls[i + 1]);
		tuplestore_putvalues(keys, desc, values, nulls);
		ExecClearTuple(slot);
	}
	ExecDropSingleTupleTableSlot(slot);

	relation->md.name = "k";
	relation->md.tupdesc = desc;
	relation->md.enrtype = ENR_NAMED_TUPLESTORE;
	relation->md.enrtuples = ntids;
	relation->reldata = keys;
	if (SPI_register_relation(relation) != SPI_OK_REL_REGISTER)
		elog(ERROR, "could not register relation \"%s\"", relation->md.name);
	return keys;
}

/*
 * Appends the condition by which rows that reference a key of "k" are found.  The referenced column's
 * collation counts.
 */
static void
append_join(StringInfo sql, const TtlForeignKey *key)
{
	for (int i = 0; i < key->nkeys; i++)
	{
		AttrNumber	referencing = key->referencing_keys[i];
		Oid			type;
		int32		typmod;
		Oid			collation;

		get_atttypetypmodcoll(key->referenced, key->referenced_keys[i], &type, &typmod, &collation);
		if (i > 0)
			appendStringInfoString(sql, " AND ");
		generate_operator_clause(sql, psprintf("k.k%d", i + 1), type, key->operators[i],
								 quote_identifier(get_attname(key->referencing, referencing, false)),
								 get_atttype(key->referencing, referencing));
		if (OidIsValid(collation) && !get_collation_isdeterministic(collation))
			appendStringInfo(sql, " COLLATE %s", generate_collation_name(collation));
	}
}

/*
 * Returns, as SPI's result until ttl_sql_end(), the positions of those TIDs whose rows others
 * reference by the foreign key, which stay.  The query compares as ri_triggers.c does.  Like its
 * queries it is executed as the owner of the referencing table, who may differ from all other
 * roles concerned, so it is restricted as maintenance commands are.
 */
static void
query_referenced(const TtlBatch *batch, const Reference *reference, ItemPointer tids, int ntids,
				 TtlSqlContext *saved)
{
	const TtlForeignKey *key = &reference->key;
	Relation	table = table_open(key->referencing, AccessShareLock);
	Oid			owner = table->rd_rel->relowner;
	Tuplestorestate *keys;
	StringInfoData sql;
	TtlContainer container;

	ttl_sql_begin(owner, TTL_SQL_SAFE_PATH |
				  (batch->memory->mode.by_worker || owner != GetUserId() ? TTL_SQL_RESTRICTED : 0), saved);

	keys = register_keys(batch->rel, key, tids, ntids);
	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT n FROM k WHERE EXISTS (SELECT FROM %s%s AS \"" TTL_STAYING "\" WHERE ",
					 table->rd_rel->relkind == RELKIND_RELATION ? "ONLY " : "",
					 ttl_container_table_name(RelationGetRelid(table)));
	append_join(&sql, key);
	/* an index-only scan has not the columns that a container's filter needs */
	if (ttl_container_lookup(RelationGetRelid(table), &container))
		appendStringInfoString(&sql, " AND \"" TTL_STAYING "\".tableoid OPERATOR(pg_catalog.<>) 0");
	appendStringInfoChar(&sql, ')');

	/*
	 * a foreign key finds rows that the transaction's snapshot is too old to
	 * see
	 */
	ttl_owner_execute(sql.data, 0, NULL, NULL, reference->expired_at, owner, InvalidOid,
					  IsolationUsesXactSnapshot() ? GetLatestSnapshot() : InvalidSnapshot, true);
	tuplestore_end(keys);
	table_close(table, NoLock);
}

/* Notes for a report that a row is referenced, with the error of the foreign key itself. */
static void
note_reference(TtlBatch *batch, const TtlForeignKey *key, ItemPointer tid)
{
	MemoryContext old = MemoryContextSwitchTo(batch->memory->batch_context);
	TupleTableSlot *slot = table_slot_create(batch->rel, NULL);
	ErrorData  *error = palloc0(sizeof(ErrorData));
	StringInfoData names;
	StringInfoData texts;

	initStringInfo(&names);
	initStringInfo(&texts);
	if (table_tuple_fetch_row_version(batch->rel, tid, SnapshotSelf, slot))
		ttl_catalog_describe_key(slot, key->referenced, key->nkeys, key->referenced_keys,
								 &names, &texts);
	ExecDropSingleTupleTableSlot(slot);
	error->sqlerrcode = ERRCODE_FOREIGN_KEY_VIOLATION;
	error->message = psprintf(_("update or delete on table \"%s\" violates foreign key constraint \"%s\" on table \"%s\""),
							  RelationGetRelationName(batch->rel),
							  get_constraint_name(key->constraint),
							  get_rel_name(key->referencing));
	error->detail = psprintf(_("Key (%s)=(%s) is still referenced from table \"%s\"."),
							 names.data, texts.data, get_rel_name(key->referencing));
	batch->references = lappend(batch->references, error);
	MemoryContextSwitchTo(old);
}

/* Marks the rows that are referenced by a foreign key. */
static void
find_referenced(TtlBatch *batch, const Reference *reference, ItemPointer tids, int ntids,
				bool *is_referenced)
{
	int			first = ntids;
	TtlSqlContext saved;

	query_referenced(batch, reference, tids, ntids, &saved);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		int			n = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[i],
													SPI_tuptable->tupdesc, 1, &isnull));

		is_referenced[n] = true;
		first = Min(first, n);
	}
	if (first < ntids)
		note_reference(batch, &reference->key, &tids[first]);
	ttl_sql_end(&saved);
}

/* How many rows are looked up at once */
static int
choose_number(const TtlReapRel *reap_rel)
{
	int			most = ROWS_MAX;

	if (reap_rel->pass.raises)
		most = RAISING_ROWS_MAX;
	if (reap_rel->pass.n_single > 0)
		most = SINGLE_ROWS_MAX;
	return Min(reap_rel->tids.n - reap_rel->next_tid, most);
}

/*
 * Removes referenced rows from the next of the collected TIDs, counts them as blocked, and
 * notes why.
 */
void
ttl_fk_referenced_leave_out(TtlBatch *batch)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	ItemPointer tids = reap_rel->tids.tids + reap_rel->next_tid;
	int			ntids = choose_number(reap_rel);
	bool	   *is_referenced = palloc0(ntids);
	int			left_out = 0;
	ListCell   *lc;

	PushActiveSnapshot(GetTransactionSnapshot());
	foreach(lc, list_references(batch))
		find_referenced(batch, lfirst(lc), tids, ntids, is_referenced);
	PopActiveSnapshot();

	/*
	 * those that are kept move to the end, since others may have been
	 * collected behind them
	 */
	for (int i = ntids - 1; i >= 0; i--)
	{
		if (is_referenced[i])
			left_out++;
		else
			tids[i + left_out] = tids[i];
	}
	reap_rel->blocked += left_out;
	reap_rel->checked = reap_rel->next_tid + ntids;
	if (left_out > 0)
		ttl_pass_note_blocked(reap_rel, reap_rel->checked);
	reap_rel->next_tid += left_out;
}
