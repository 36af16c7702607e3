/*-------------------------------------------------------------------------
 *
 * fk_referenced.c
 *	  Leaves out rows that others reference.
 *
 * Before collected rows are deleted, one query for each foreign key with NO ACTION or
 * RESTRICT finds those of their keys that are referenced by rows which don't go along.
 * It compares as ri_triggers.c does, and like it runs as the owner of the referencing
 * table, who may differ from everybody else concerned; so it is restricted as
 * maintenance commands are.
 *
 * The answer is not relied on: a row may be referenced a moment later, or by a way that
 * isn't looked at (temporal keys, keys without an array type, a row that goes along but
 * is itself referenced).  Then its deletion fails, and batch.c isolates it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "container/container.h"
#include "deletion/fk_dependents.h"
#include "deletion/owner.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "reaper/reap_rel.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* A column of a referenced key, with its values in the collected rows */
typedef struct KeyColumn
{
	AttrNumber	attno;
	Oid			type;
	Oid			array_type;
	int16		len;
	bool		byval;
	char		align;
	Datum	   *values;
	bool	   *nulls;
} KeyColumn;

typedef struct Key
{
	TtlHold    *hold;
	KeyColumn	columns[INDEX_MAX_KEYS];
} Key;

struct TtlFkReferenced
{
	List	   *keys;
	int			nrows;
};

/* False if values of the column can't be passed as an array and unnested. */
static bool
init_column(KeyColumn *column, AttrNumber attno, Oid type)
{
	column->attno = attno;
	column->type = type;
	column->array_type = get_array_type(type);
	if (!OidIsValid(column->array_type) || type_is_rowtype(type))
		return false;
	get_typlenbyvalalign(type, &column->len, &column->byval, &column->align);
	column->values = palloc(sizeof(Datum) * TTL_FK_REFERENCED_MAX);
	column->nulls = palloc(sizeof(bool) * TTL_FK_REFERENCED_MAX);
	return true;
}

TtlFkReferenced *
ttl_fk_referenced_begin(const TtlBatch *batch)
{
	TtlDeletion deletion = {
		.expired_at = batch->now,
		.owner = batch->rel->rd_rel->relowner,
		.spares = batch->memory->mode.by_worker
	};
	TtlFkReferenced *result = NULL;
	ListCell   *lc;

	foreach(lc, ttl_fk_dependents_holds(&deletion, batch->rel, &batch->container))
	{
		Key		   *key = palloc(sizeof(Key));
		bool		is_usable = true;

		key->hold = lfirst(lc);
		for (int i = 0; i < key->hold->key.nkeys && is_usable; i++)
		{
			AttrNumber	attno = key->hold->key.referenced_keys[i];

			is_usable = init_column(&key->columns[i], attno,
									TupleDescAttr(RelationGetDescr(batch->rel), attno - 1)->atttypid);
		}
		if (!is_usable)
			continue;
		if (result == NULL)
			result = palloc0(sizeof(TtlFkReferenced));
		result->keys = lappend(result->keys, key);
	}
	return result;
}

void
ttl_fk_referenced_add(TtlFkReferenced *referenced, TupleTableSlot *slot)
{
	int			row = referenced->nrows++;
	ListCell   *lc;

	foreach(lc, referenced->keys)
	{
		Key		   *key = lfirst(lc);

		for (int i = 0; i < key->hold->key.nkeys; i++)
		{
			KeyColumn  *column = &key->columns[i];
			Datum		value = slot_getattr(slot, column->attno, &column->nulls[row]);

			if (column->nulls[row])
				column->values[row] = (Datum) 0;
			else if (column->len == -1)
				column->values[row] = PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
			else
				column->values[row] = datumCopy(value, column->byval, column->len);
		}
	}
}

/* Reports that a row is referenced, with the error of the foreign key itself. */
static void
report(TtlBatch *batch, const Key *key, int row)
{
	const TtlForeignKey *constraint = &key->hold->key;
	ErrorData  *error = palloc0(sizeof(ErrorData));
	StringInfoData names;
	StringInfoData texts;

	initStringInfo(&names);
	initStringInfo(&texts);
	for (int i = 0; i < constraint->nkeys; i++)
	{
		const KeyColumn *column = &key->columns[i];
		const char *separator = i == 0 ? "" : ", ";
		Oid			output;
		bool		is_varlena;

		getTypeOutputInfo(column->type, &output, &is_varlena);
		appendStringInfo(&names, "%s%s", separator,
						 get_attname(constraint->referenced, column->attno, false));
		appendStringInfo(&texts, "%s%s", separator,
						 OidOutputFunctionCall(output, column->values[row]));
	}
	error->sqlerrcode = ERRCODE_FOREIGN_KEY_VIOLATION;
	error->message = psprintf("update or delete on table \"%s\" violates foreign key constraint \"%s\" on table \"%s\"",
							  RelationGetRelationName(batch->rel),
							  get_constraint_name(constraint->constraint),
							  get_rel_name(constraint->referencing));
	error->detail = psprintf("Key (%s)=(%s) is still referenced from table \"%s\".",
							 names.data, texts.data, get_rel_name(constraint->referencing));
	ttl_batch_report_referenced(batch, error);
}

/* Acts as the owner of the referencing table. */
static void
begin_query(Relation table, TtlIdentity *saved)
{
	Oid			owner;
	int			sec_context;

	ttl_owner_begin(table, false, saved);
	GetUserIdAndSecContext(&owner, &sec_context);
	if (owner != saved->userid)
		SetUserIdAndSecContext(owner, sec_context | SECURITY_RESTRICTED_OPERATION);
}

/* Marks the rows that are referenced by a foreign key. */
static void
find_referenced(TtlBatch *batch, const Key *key, int nrows, bool *is_referenced)
{
	const TtlForeignKey *constraint = &key->hold->key;
	Relation	table = table_open(constraint->referencing, AccessShareLock);
	int			lbound = 1;
	int			first = nrows;
	Oid			types[INDEX_MAX_KEYS];
	Datum		values[INDEX_MAX_KEYS];
	StringInfoData sql;
	TtlIdentity saved;
	TtlContainer container;

	begin_query(table, &saved);
	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT k.n FROM ROWS FROM (");
	for (int i = 0; i < constraint->nkeys; i++)
	{
		const KeyColumn *column = &key->columns[i];

		types[i] = column->array_type;
		values[i] = PointerGetDatum(construct_md_array(column->values, column->nulls, 1,
													   &nrows, &lbound, column->type,
													   column->len, column->byval,
													   column->align));
		appendStringInfo(&sql, "%spg_catalog.unnest($%d)", i == 0 ? "" : ", ", i + 1);
	}
	appendStringInfoString(&sql, ") WITH ORDINALITY AS k(");
	for (int i = 0; i < constraint->nkeys; i++)
		appendStringInfo(&sql, "k%d, ", i + 1);
	appendStringInfo(&sql, "n) WHERE EXISTS (SELECT FROM %s%s AS \"" TTL_STAYING "\" WHERE ",
					 table->rd_rel->relkind == RELKIND_RELATION ? "ONLY " : "",
					 ttl_container_table_name(RelationGetRelid(table)));
	ttl_constraint_append_join(&sql, constraint, "k");
	/* an index-only scan has not the columns that a container's filter needs */
	if (ttl_container_lookup(RelationGetRelid(table), &container))
		appendStringInfoString(&sql, " AND \"" TTL_STAYING "\".tableoid OPERATOR(pg_catalog.<>) 0");
	appendStringInfoChar(&sql, ')');

	ttl_owner_execute(sql.data, constraint->nkeys, types, values, key->hold->expired_at,
					  batch->memory->mode.by_worker, table->rd_rel->relowner,
					  IsolationUsesXactSnapshot() ? GetLatestSnapshot() : InvalidSnapshot);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		int			row = (int) DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i],
															SPI_tuptable->tupdesc,
															1, &isnull)) - 1;

		is_referenced[row] = true;
		first = Min(first, row);
	}
	if (first < nrows)
		report(batch, key, first);
	ttl_owner_end(&saved);
	table_close(table, NoLock);
}

void
ttl_fk_referenced_leave_out(TtlBatch *batch)
{
	const TtlFkReferenced *referenced = batch->referenced;
	TtlTids  *tids = &batch->reap_rel->tids;
	bool	   *is_referenced = palloc0(referenced->nrows);
	int			kept = 0;
	ListCell   *lc;

	Assert(batch->reap_rel->next_tid == 0 && tids->n == referenced->nrows);
	PushActiveSnapshot(GetTransactionSnapshot());
	foreach(lc, referenced->keys)
		find_referenced(batch, lfirst(lc), referenced->nrows, is_referenced);
	PopActiveSnapshot();

	for (int i = 0; i < tids->n; i++)
	{
		if (!is_referenced[i])
			tids->tids[kept++] = tids->tids[i];
	}
	batch->reap_rel->blocked += tids->n - kept;
	tids->n = kept;
}
