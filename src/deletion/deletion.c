/*-------------------------------------------------------------------------
 *
 * deletion.c
 *	  Physical deletion of expired rows, shared by reaper and eviction.
 *
 * It is an ordinary DELETE through SPI, so that triggers fire, foreign keys
 * act and logical decoding sees it.  The rows are given by TID; the DELETE itself
 * evaluates the filter ttl.is_expired() on the tables that it names (hide.c).  So it does
 * no harm that another row may have got the TID, that a row may have been renewed, or the
 * policy changed, since the TID was collected.
 *
 * It runs by the right of the table's owner (owner.c), and takes along the expired rows
 * that reference its own (fk_dependents.c).  One statement deletes them all, with a DELETE
 * for each table in it, and what inserts the rows into the archive (archive.c); the
 * foreign keys are checked at its end.  Tables of several owners, and those with rules
 * on DELETE, need a statement for each; there the referencing tables come first.  The
 * search_path may be a user's, so all names are qualified.
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
#include "deletion/deletion.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The innermost deletion that runs, or NULL */
static const TtlDeletion *running = NULL;

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
order_table(TtlToDelete *to_delete, List **ordered)
{
	ListCell   *lc;

	if (to_delete->is_ordered)
		return;
	to_delete->is_ordered = true;
	check_stack_depth();
	foreach(lc, to_delete->referencing)
		order_table(lfirst(lc), ordered);
	*ordered = lappend(*ordered, to_delete);
}

/*
 * Appends a DELETE of the rows whose TIDs are parameter n.  In a subselect the planner
 * doesn't see how many they are, and would choose a sequential scan for many.
 */
static void
append_delete(StringInfo sql, Relation rel, int n, int flags)
{
	char	   *table = ttl_container_table_name(RelationGetRelid(rel));

	if (flags & TTL_DELETION_SKIP_LOCKED)
		appendStringInfo(sql, "DELETE FROM ONLY %s AS " TTL_OWNER_TO_DELETE
						 " WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
						 "SELECT ctid FROM ONLY %s AS " TTL_OWNER_TO_DELETE
						 " WHERE ctid OPERATOR(pg_catalog.=) ANY ((SELECT $%d)::pg_catalog.tid[])"
						 " FOR UPDATE SKIP LOCKED))",
						 table, table, n);
	else
		appendStringInfo(sql, "DELETE FROM ONLY %s AS " TTL_OWNER_TO_DELETE
						 " WHERE ctid OPERATOR(pg_catalog.=) ANY ((SELECT $%d)::pg_catalog.tid[])",
						 table, n);
}

/*
 * Deletes the rows to delete of tables that have the same owner, in one statement:
 * then it does no harm that rows reference each other.
 */
static void
delete_from_tables(const TtlDeletion *deletion, List *tables, int flags)
{
	int			ntables = list_length(tables);
	Oid		   *types = palloc(sizeof(Oid) * ntables);
	Datum	   *values = palloc(sizeof(Datum) * ntables);
	TtlToDelete *first = linitial(tables);
	bool		is_simple = ntables == 1 && !OidIsValid(first->container.archive_to);
	StringInfoData sql;
	StringInfoData counts;
	TtlIdentity saved;
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = first->as_user ? ttl_owner_explain_user : ttl_owner_explain
	};

	initStringInfo(&sql);
	initStringInfo(&counts);
	for (int i = 0; i < ntables; i++)
	{
		TtlToDelete *to_delete = list_nth(tables, i);
		bool		archives = OidIsValid(to_delete->container.archive_to);

		if (deletion->user == NULL)
			ttl_owner_check(to_delete->rel);
		types[i] = TIDARRAYOID;
		values[i] = tid_array(to_delete->tids.tids, to_delete->tids.n);
		if (!is_simple)
			appendStringInfo(&sql, "%s deleted%d AS (", i == 0 ? "WITH" : ",", i + 1);
		append_delete(&sql, to_delete->rel, i + 1, flags);
		if (!is_simple)
			appendStringInfo(&sql, " RETURNING %s)", archives ? "*" : "1");
		if (archives)
			ttl_fk_dependents_check_archive(deletion, to_delete,
											ttl_archive_append(&sql, to_delete->rel,
															   &to_delete->container, i + 1));
		appendStringInfo(&counts, "%s (SELECT pg_catalog.count(*) FROM deleted%d)",
						 i == 0 ? " SELECT" : ",", i + 1);
	}
	if (!is_simple)
		appendStringInfoString(&sql, counts.data);

	if (first->as_user)
		ttl_owner_begin_as_user(deletion->user, &saved);
	else
		ttl_owner_begin(first->rel, deletion->restricted, &saved);
	error_context_stack = &context;
	ttl_owner_execute(sql.data, ntables, types, values, deletion->expired_at,
					  deletion->excludes_grace, first->rel->rd_rel->relowner, InvalidSnapshot);
	if (is_simple)
		first->deleted = SPI_processed;
	for (int i = 0; i < ntables && !is_simple; i++)
	{
		bool		isnull;

		((TtlToDelete *) list_nth(tables, i))->deleted =
			DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
										i + 1, &isnull));
	}
	if (deletion->restricted)
		ttl_owner_check_temporary();
	else if (flags & TTL_DELETION_COMMITS)
		ttl_owner_run_deferred();
	error_context_stack = context.previous;
	ttl_owner_end(&saved);
}

/*
 * Deletes the rows to delete of all tables, those that reference others before
 * them.  Rows that reference each other in a circle through tables that don't
 * go into one statement can't be deleted; the foreign key raises an error.
 */
static void
delete_in_order(const TtlDeletion *deletion, List *ordered, int flags)
{
	List	   *group = NIL;
	ListCell   *lc;

	foreach(lc, ordered)
	{
		TtlToDelete *to_delete = lfirst(lc);
		TtlToDelete *first = group == NIL ? to_delete : linitial(group);

		if (group != NIL &&
			(first->rel->rd_rel->relowner != to_delete->rel->rd_rel->relowner ||
			 first->as_user != to_delete->as_user ||
			 ttl_owner_has_delete_rule(first->rel) ||
			 ttl_owner_has_delete_rule(to_delete->rel)))
		{
			delete_from_tables(deletion, group, flags);
			group = NIL;
		}
		group = lappend(group, to_delete);
	}
	delete_from_tables(deletion, group, flags);
}

/* What the statistics get when the transaction has committed */
typedef struct Uncommitted
{
	Oid			container;
	uint64		reaped;
	uint64		archived;
} Uncommitted;

static List *uncommitted = NIL;

static void
count_at_commit(Oid container, uint64 reaped, uint64 archived)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Uncommitted *count = palloc(sizeof(Uncommitted));

	*count = (Uncommitted)
	{
		container, reaped, archived
	};
	uncommitted = lappend(uncommitted, count);
	MemoryContextSwitchTo(old);
}

void
ttl_deletion_discard_counts(void)
{
	list_free_deep(uncommitted);
	uncommitted = NIL;
}

void
ttl_deletion_count_committed(void)
{
	ListCell   *lc;

	foreach(lc, uncommitted)
	{
		Uncommitted *count = lfirst(lc);

		ttl_counters_add_rows(count->container, count->reaped, 0, count->archived);
	}
	ttl_deletion_discard_counts();
}

/* Counts what has been deleted, except rows of the caller's table. */
static void
count(const TtlDeletion *deletion, const TtlToDelete *to_delete, bool went_along)
{
	const TtlContainer *container = &to_delete->container;
	uint64		archived = OidIsValid(container->archive_to) ? to_delete->deleted : 0;

	if (!OidIsValid(container->container))
		return;
	if (deletion->counts_at_commit)
	{
		count_at_commit(container->container, went_along ? to_delete->deleted : 0, archived);
		return;
	}
	if (went_along && deletion->user == NULL)
		ttl_counters_add_rows(container->container, to_delete->deleted, 0, archived);
	else if (went_along || archived > 0)
		ttl_counters_add_rows(container->container, 0, went_along ? to_delete->deleted : 0,
							  archived);
}

/* Deletes the collected rows; 'target' (may be NULL) is the caller's table. */
static void
delete_all(TtlDeletion *deletion, const TtlToDelete *target, int flags)
{
	const TtlDeletion *outer = running;
	List	   *ordered = NIL;
	ListCell   *lc;

	foreach(lc, deletion->tables)
		order_table(lfirst(lc), &ordered);

	PG_TRY();
	{
		running = deletion;
		delete_in_order(deletion, ordered, flags);
	}
	PG_FINALLY();
	{
		running = outer;
	}
	PG_END_TRY();

	foreach(lc, ordered)
		count(deletion, lfirst(lc), lfirst(lc) != target);
}

bool
ttl_deletion_is_running(void)
{
	return running != NULL;
}

/* Closes the tables that the deletion has opened. */
static void
end_deletion(TtlDeletion *deletion, const TtlToDelete *target)
{
	ListCell   *lc;

	foreach(lc, deletion->tables)
	{
		TtlToDelete *to_delete = lfirst(lc);

		if (to_delete != target)
			table_close(to_delete->rel, NoLock);
	}
}

uint64
ttl_deletion_run(Relation rel, const TtlContainer *container,
				 const ItemPointerData *tids, int ntids,
				 TimestampTz expired_at, int flags, TtlSessionUser *user)
{
	TtlDeletion deletion = {
		.expired_at = expired_at,
		.user = user,
		.owner = rel->rd_rel->relowner,
		.restricted = (flags & TTL_DELETION_RESTRICTED) != 0,
		.excludes_grace = (flags & TTL_DELETION_EXCLUDES_GRACE) != 0,
		.counts_at_commit = (flags & TTL_DELETION_COMMITS) != 0
	};
	TtlToDelete *target = ttl_fk_dependents_add_table(&deletion, rel, container);

	if (user != NULL)
		ttl_fk_dependents_check_actions(&deletion, rel, tids);
	target->as_user = user != NULL;

	if (flags & TTL_DELETION_WITH_DEPENDENTS)
	{
		ttl_fk_dependents_remember(&deletion);
		for (int i = 0; i < ntids; i++)
			ttl_fk_dependents_add(&deletion, target, unconstify(ItemPointerData *, &tids[i]));
		ttl_fk_dependents_search(&deletion);
		hash_destroy(deletion.rows);
	}
	else
	{
		target->tids.tids = unconstify(ItemPointerData *, tids);
		target->tids.n = ntids;
	}

	delete_all(&deletion, target, flags);
	end_deletion(&deletion, target);
	return target->deleted;
}

/*
 * In REPEATABLE READ, a DELETE doesn't find what is too new for the transaction's
 * snapshot.
 */
static void
check_snapshot(TtlToDelete *to_delete)
{
	TupleTableSlot *slot;

	if (!IsolationUsesXactSnapshot() || to_delete->deleted >= to_delete->tids.n)
		return;
	slot = table_slot_create(to_delete->rel, NULL);
	for (int i = 0; i < to_delete->tids.n; i++)
	{
		if (table_tuple_fetch_row_version(to_delete->rel, &to_delete->tids.tids[i], SnapshotSelf, slot) &&
			!table_tuple_fetch_row_version(to_delete->rel, &to_delete->tids.tids[i],
										   GetTransactionSnapshot(), slot))
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access due to concurrent update")));
		ExecClearTuple(slot);
	}
	ExecDropSingleTupleTableSlot(slot);
}

/* What goes along with a deletion of the reaper's is part of it. */
static TtlDeletion
dependent_deletion(TimestampTz expired_at, TtlSessionUser *user)
{
	TtlDeletion deletion = {.expired_at = expired_at, .user = user};

	if (running != NULL && running->user == NULL)
	{
		deletion = *running;
		deletion.expired_at = expired_at;
		deletion.tables = NIL;
	}
	return deletion;
}

TimestampTz
ttl_deletion_cutoff(Oid table, TimestampTz now)
{
	TtlDeletion deletion = dependent_deletion(now, NULL);

	if (running == NULL || running->user != NULL)
		return now;
	return ttl_fk_dependents_may_go_along(&deletion, table, &now) ? now : DT_NOBEGIN;
}

void
ttl_deletion_run_dependents(List *rows, TimestampTz expired_at, TtlSessionUser *user)
{
	TtlDeletion deletion = dependent_deletion(expired_at, user);
	ListCell   *lc;

	ttl_fk_dependents_remember(&deletion);
	foreach(lc, rows)
		ttl_fk_dependents_add_rows(&deletion, lfirst(lc));
	ttl_fk_dependents_search(&deletion);
	hash_destroy(deletion.rows);

	if (deletion.tables != NIL)
		delete_all(&deletion, NULL, 0);
	foreach(lc, deletion.tables)
		check_snapshot(lfirst(lc));
	end_deletion(&deletion, NULL);
}

void
ttl_deletion_truncate(Relation rel)
{
	char	   *sql = psprintf("TRUNCATE ONLY %s", ttl_container_table_name(RelationGetRelid(rel)));
	TtlIdentity saved;
	int			result;

	ttl_owner_check(rel);
	ttl_owner_begin(rel, true, &saved);
	relation_close(rel, NoLock);
	result = SPI_execute(sql, false, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
	ttl_owner_end(&saved);
}

/*
 * Observer of what a deletion executes, and of the referential actions in it, which serve
 * the deletion and are done as other owners.
 */
static void
execution_started(TtlExecution *execution, int eflags)
{
	bool		is_action = InNoForceRLSOperation();

	if (running == NULL || !(is_action || execution->row_mode == TTL_SEES_EXPIRED))
		return;
	ttl_owner_honour_foreign_keys(execution);
	if (is_action && running->restricted)
		ttl_owner_begin_action();
}

void
ttl_deletion_init(void)
{
	ttl_execution_on_start(execution_started);
}
