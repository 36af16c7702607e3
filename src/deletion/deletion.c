/*-------------------------------------------------------------------------
 *
 * deletion.c
 *	  Physical deletion of expired rows, shared by reaper and eviction.
 *
 * It is an ordinary DELETE through SPI, so that triggers fire, foreign keys
 * act and logical decoding sees it.  The rows are given by their place
 * (ctid); what is there is judged again by the DELETE itself, in which the
 * filter on the tables that it names is ttl.is_expired() (hide.c).  So it does
 * no harm that a place may have got another row, that a row may have been
 * renewed, or the policy changed, since somebody looked.
 *
 * It runs as the table's owner (owner.c), and takes along the expired rows that
 * reference its own (referencing.c).  One statement deletes them all, with a DELETE
 * for each table in it, and what inserts the rows into the archive (archive.c); the
 * foreign keys are checked at its end.  Tables of several owners, and those with rules
 * on DELETE, need a statement for each; there the referencing tables come first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "container/container.h"
#include "counters.h"
#include "deletion/archive.h"
#include "deletion/deletion.h"
#include "deletion/owner.h"
#include "deletion/referencing.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/hsearch.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Of the deletion that runs, the innermost one */
static int	running_flags = 0;

static Datum
tid_array(const ItemPointerData *tids, int ntids)
{
	Datum	   *elements = palloc(sizeof(Datum) * ntids);

	for (int i = 0; i < ntids; i++)
		elements[i] = PointerGetDatum(&tids[i]);
	return PointerGetDatum(construct_array(elements, ntids, TIDOID,
										   sizeof(ItemPointerData), false,
										   TYPALIGN_SHORT));
}

/* Appends the table to the list, after those that reference it. */
static void
order_table(TtlDoomed *doomed, List **ordered)
{
	ListCell   *lc;

	if (doomed->is_ordered)
		return;
	doomed->is_ordered = true;
	check_stack_depth();
	foreach(lc, doomed->referencing)
		order_table(lfirst(lc), ordered);
	*ordered = lappend(*ordered, doomed);
}

/*
 * Appends a DELETE of the rows whose places are parameter n.  The planner
 * doesn't look into a subselect.  If it knew how many places there are, it
 * might read the whole table instead of going there.
 */
static void
append_delete(StringInfo sql, Relation rel, int n, int flags)
{
	char	   *table = ttl_container_table_name(RelationGetRelid(rel));

	if (flags & TTL_DELETION_SKIP_LOCKED)
		appendStringInfo(sql, "DELETE FROM ONLY %s AS " TTL_OWNER_DOOMED " WHERE ctid = ANY (ARRAY("
						 "SELECT ctid FROM ONLY %s AS " TTL_OWNER_DOOMED
						 " WHERE ctid = ANY ((SELECT $%d)::tid[]) FOR UPDATE SKIP LOCKED))",
						 table, table, n);
	else
		appendStringInfo(sql, "DELETE FROM ONLY %s AS " TTL_OWNER_DOOMED
						 " WHERE ctid = ANY ((SELECT $%d)::tid[])",
						 table, n);
}

/*
 * Deletes the doomed rows of tables that have the same owner, in one statement:
 * then it does no harm that rows reference each other.
 */
static void
delete_from_tables(List *tables, TimestampTz expired_at, int flags)
{
	int			ntables = list_length(tables);
	Oid		   *types = palloc(sizeof(Oid) * ntables);
	Datum	   *values = palloc(sizeof(Datum) * ntables);
	TtlDoomed  *first = linitial(tables);
	bool		is_simple = ntables == 1 && !OidIsValid(first->container.archive_to);
	StringInfoData sql;
	StringInfoData counts;
	TtlIdentity saved;
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = ttl_owner_explain
	};

	initStringInfo(&sql);
	initStringInfo(&counts);
	for (int i = 0; i < ntables; i++)
	{
		TtlDoomed  *doomed = list_nth(tables, i);
		bool		archives = OidIsValid(doomed->container.archive_to);

		ttl_owner_check(doomed->rel);
		types[i] = TIDARRAYOID;
		values[i] = tid_array(doomed->tids, doomed->ntids);
		if (!is_simple)
			appendStringInfo(&sql, "%s deleted%d AS (", i == 0 ? "WITH" : ",", i + 1);
		append_delete(&sql, doomed->rel, i + 1, flags);
		if (!is_simple)
			appendStringInfo(&sql, " RETURNING %s)", archives ? "*" : "1");
		if (archives)
			ttl_archive_append(&sql, doomed->rel, &doomed->container, i + 1);
		appendStringInfo(&counts, "%s (SELECT count(*) FROM deleted%d)",
						 i == 0 ? " SELECT" : ",", i + 1);
	}
	if (!is_simple)
		appendStringInfoString(&sql, counts.data);

	ttl_owner_begin(first->rel, &saved);
	error_context_stack = &context;
	ttl_owner_execute(sql.data, ntables, types, values, expired_at,
					  (flags & TTL_DELETION_SPARES) != 0, InvalidSnapshot);
	if (is_simple)
		first->deleted = SPI_processed;
	for (int i = 0; i < ntables && !is_simple; i++)
	{
		bool		isnull;

		((TtlDoomed *) list_nth(tables, i))->deleted =
			DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
										i + 1, &isnull));
	}
	if (flags & TTL_DELETION_COMMITS)
		ttl_owner_run_deferred();
	error_context_stack = context.previous;
	ttl_owner_end(&saved);
}

/* A rule on DELETE, which PostgreSQL doesn't want in WITH */
static bool
has_delete_rule(Relation rel)
{
	for (int i = 0; rel->rd_rules != NULL && i < rel->rd_rules->numLocks; i++)
	{
		if (rel->rd_rules->rules[i]->event == CMD_DELETE)
			return true;
	}
	return false;
}

/*
 * Deletes the doomed rows of all tables, those that reference others before
 * them.  Rows that reference each other in a circle through tables that don't
 * go into one statement are for nobody to delete; the foreign key will say so.
 */
static void
delete_in_order(List *ordered, TimestampTz expired_at, int flags)
{
	List	   *group = NIL;
	ListCell   *lc;

	foreach(lc, ordered)
	{
		Relation	rel = ((TtlDoomed *) lfirst(lc))->rel;
		Relation	first = group == NIL ? rel : ((TtlDoomed *) linitial(group))->rel;

		if (group != NIL &&
			(first->rd_rel->relowner != rel->rd_rel->relowner ||
			 has_delete_rule(first) || has_delete_rule(rel)))
		{
			delete_from_tables(group, expired_at, flags);
			group = NIL;
		}
		group = lappend(group, lfirst(lc));
	}
	delete_from_tables(group, expired_at, flags);
}

/* Counts what has been deleted; of the caller's own table he does so himself. */
static void
count(const TtlDoomed *doomed, bool went_along, int flags)
{
	const TtlContainer *container = &doomed->container;

	if (!OidIsValid(container->container))
		return;
	if (went_along && (flags & TTL_DELETION_AS_REAPER))
		ttl_counters_add_reaped(container->container, doomed->deleted);
	else if (went_along)
		ttl_counters_add_evicted(container->container, doomed->deleted);
	if (OidIsValid(container->archive_to))
		ttl_counters_add_archived(container->container, doomed->deleted);
}

/* Deletes all that is doomed; 'asked_for' (may be NULL) is the caller's table. */
static void
delete_doomed(TtlDeletion *deletion, const TtlDoomed *asked_for, int flags)
{
	int			outer_flags = running_flags;
	List	   *ordered = NIL;
	ListCell   *lc;

	foreach(lc, deletion->tables)
		order_table(lfirst(lc), &ordered);

	PG_TRY();
	{
		running_flags = flags;
		delete_in_order(ordered, deletion->expired_at, flags);
	}
	PG_FINALLY();
	{
		running_flags = outer_flags;
	}
	PG_END_TRY();

	foreach(lc, ordered)
		count(lfirst(lc), lfirst(lc) != asked_for, flags);
}

/* Closes the tables that the deletion has opened. */
static void
end_deletion(TtlDeletion *deletion, const TtlDoomed *asked_for)
{
	ListCell   *lc;

	foreach(lc, deletion->tables)
	{
		TtlDoomed  *doomed = lfirst(lc);

		if (doomed != asked_for)
			table_close(doomed->rel, NoLock);
	}
}

uint64
ttl_deletion_run(Relation rel, const TtlContainer *container,
				 const ItemPointerData *tids, int ntids,
				 TimestampTz expired_at, int flags)
{
	TtlDeletion deletion = {
		.expired_at = expired_at,
		.as_reaper = (flags & TTL_DELETION_AS_REAPER) != 0,
		.spares = (flags & TTL_DELETION_SPARES) != 0
	};
	TtlDoomed  *asked_for = ttl_referencing_add_table(&deletion, rel, container);

	if (flags & TTL_DELETION_WITH_REFERENCING)
	{
		ttl_referencing_remember(&deletion);
		for (int i = 0; i < ntids; i++)
			ttl_referencing_doom(&deletion, asked_for, unconstify(ItemPointerData *, &tids[i]));
		ttl_referencing_search(&deletion);
		hash_destroy(deletion.rows);
	}
	else
	{
		asked_for->tids = unconstify(ItemPointerData *, tids);
		asked_for->ntids = ntids;
	}

	delete_doomed(&deletion, asked_for, flags);
	end_deletion(&deletion, asked_for);
	return asked_for->deleted;
}

/*
 * In REPEATABLE READ, a DELETE doesn't find what is too new for the transaction's
 * snapshot.
 */
static void
check_snapshot(TtlDoomed *doomed)
{
	TupleTableSlot *slot;

	if (!IsolationUsesXactSnapshot() || doomed->deleted >= doomed->ntids)
		return;
	slot = table_slot_create(doomed->rel, NULL);
	for (int i = 0; i < doomed->ntids; i++)
	{
		if (table_tuple_fetch_row_version(doomed->rel, &doomed->tids[i], SnapshotSelf, slot) &&
			!table_tuple_fetch_row_version(doomed->rel, &doomed->tids[i],
										   GetTransactionSnapshot(), slot))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access due to concurrent update")));
		ExecClearTuple(slot);
	}
	ExecDropSingleTupleTableSlot(slot);
}

void
ttl_deletion_run_referencing(Relation table, const char *condition, int nargs,
							 Oid *types, Datum *values, TimestampTz expired_at)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "ttl referencing rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	bool		more = true;

	while (more)
	{
		TtlDeletion deletion = {.expired_at = expired_at};
		uint64		deleted = 0;
		ListCell   *lc;

		deletion.as_reaper = (running_flags & TTL_DELETION_AS_REAPER) != 0;
		deletion.spares = (running_flags & TTL_DELETION_SPARES) != 0;
		ttl_referencing_remember(&deletion);
		more = ttl_referencing_doom_by(&deletion, table, condition, nargs, types, values);
		ttl_referencing_search(&deletion);
		hash_destroy(deletion.rows);

		if (deletion.tables != NIL)
			delete_doomed(&deletion, NULL, running_flags & (TTL_DELETION_AS_REAPER | TTL_DELETION_SPARES));
		foreach(lc, deletion.tables)
		{
			check_snapshot(lfirst(lc));
			deleted += ((TtlDoomed *) lfirst(lc))->deleted;
		}
		end_deletion(&deletion, NULL);

		/* what a trigger has kept would be found again */
		more = more && deleted > 0;
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

void
ttl_deletion_truncate(Relation rel)
{
	char	   *sql = psprintf("TRUNCATE ONLY %s", ttl_container_table_name(RelationGetRelid(rel)));
	TtlIdentity saved;
	int			result;

	ttl_owner_check(rel);
	ttl_owner_begin(rel, &saved);
	relation_close(rel, NoLock);
	result = SPI_execute(sql, false, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
	ttl_owner_end(&saved);
}
