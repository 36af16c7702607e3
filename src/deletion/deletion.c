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
 * It runs by the right of the table's owner (owner.c).  The same statement inserts the rows into
 * the archive (archive.c).  The search_path may be a user's, so all names are qualified.
 *
 * Expired rows that reference what is deleted are found where PostgreSQL looks for them, in the
 * queries of foreign keys (fk.c), by whatever the referenced row is deleted.  With NO
 * ACTION and RESTRICT they are deleted here.  With CASCADE PostgreSQL deletes them, and then
 * they are inserted into their archive here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
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
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/queryenvironment.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

/* The innermost deletion that runs, or NULL */
static const TtlDeletion *running = NULL;

/* The array that construct_array() makes, without its detour: TIDs are stored without padding. */
static Datum
tid_array(const ItemPointerData *tids, int ntids)
{
	Size		size = ARR_OVERHEAD_NONULLS(1) + sizeof(ItemPointerData) * ntids;
	ArrayType  *array;

	if (ntids == 0)
		return PointerGetDatum(construct_empty_array(TIDOID));
	array = palloc0(size);
	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->elemtype = TIDOID;
	ARR_DIMS(array)[0] = ntids;
	ARR_LBOUND(array)[0] = 1;
	memcpy(ARR_DATA_PTR(array), tids, sizeof(ItemPointerData) * ntids);
	return PointerGetDatum(array);
}

/*
 * Appends a DELETE of the rows whose TIDs are the parameter.  In a subselect the planner
 * doesn't see how many they are, and would choose a sequential scan for many.
 */
static void
append_delete(StringInfo sql, Relation rel, int flags)
{
	char	   *table = ttl_container_table_name(RelationGetRelid(rel));

	if (flags & TTL_DELETION_SKIP_LOCKED)
		appendStringInfo(sql, "DELETE FROM ONLY %s AS " TTL_OWNER_TO_DELETE
						 " WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY("
						 "SELECT ctid FROM ONLY %s AS " TTL_OWNER_TO_DELETE
						 " WHERE ctid OPERATOR(pg_catalog.=) ANY ((SELECT $1)::pg_catalog.tid[])"
						 " FOR UPDATE SKIP LOCKED))",
						 table, table);
	else
		appendStringInfo(sql, "DELETE FROM ONLY %s AS " TTL_OWNER_TO_DELETE
						 " WHERE ctid OPERATOR(pg_catalog.=) ANY ((SELECT $1)::pg_catalog.tid[])",
						 table);
}

/*
 * Deletes the rows to delete of a table, and puts them into its archive.
 *
 * AFTER triggers, those of foreign keys among them, are left to the deletion around this one if
 * the same role executes both, as a referential action leaves them to its statement: so a chain
 * of references needs no recursion.  Another role's would fire as that role.
 */
static void
delete_from_table(const TtlDeletion *deletion, TtlToDelete *to_delete, int flags)
{
	Oid			type = TIDARRAYOID;
	Datum		tids = tid_array(to_delete->tids.tids, to_delete->tids.n);
	Oid			owner = to_delete->rel->rd_rel->relowner;
	Oid			role = to_delete->as_user ? deletion->user->role : owner;
	bool		archives = OidIsValid(to_delete->container.policy.archive_to);
	StringInfoData sql;
	TtlIdentity saved;
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = to_delete->as_user ? ttl_owner_explain_user : ttl_owner_explain
	};

	if (deletion->user == NULL)
		ttl_owner_check(to_delete->rel);
	initStringInfo(&sql);
	if (archives)
		appendStringInfoString(&sql, "WITH deleted AS (");
	append_delete(&sql, to_delete->rel, flags);
	if (archives)
	{
		Oid			archive;

		appendStringInfoString(&sql, " RETURNING *), archived AS (");
		archive = ttl_archive_append(&sql, to_delete->rel, &to_delete->container, true);
		appendStringInfoString(&sql, ") SELECT pg_catalog.count(*) FROM deleted");
		ttl_fk_dependents_check_archive(deletion->user, to_delete->rel, to_delete->tids.tids, archive);
	}

	if (to_delete->as_user)
		ttl_owner_begin_as_user(deletion->user, &saved);
	else
		ttl_owner_begin(to_delete->rel, deletion->restricted, &saved);
	error_context_stack = &context;
	ttl_owner_execute(sql.data, 1, &type, &tids, deletion->expired_at, owner,
					  InvalidSnapshot, role != deletion->outer_role);
	to_delete->deleted = SPI_processed;
	if (archives)
	{
		bool		isnull;

		to_delete->deleted = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
														 SPI_tuptable->tupdesc, 1, &isnull));
	}
	if (deletion->restricted)
		ttl_owner_check_temporary();
	else if (flags & TTL_DELETION_COMMITS)
		ttl_owner_run_deferred();
	error_context_stack = context.previous;
	ttl_owner_end(&saved);
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
	uint64		archived = OidIsValid(container->policy.archive_to) ? to_delete->deleted : 0;

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

/* Deletes the rows as part of the deletion; 'went_along' if they are not those of its caller. */
static void
delete_rows(const TtlDeletion *deletion, TtlToDelete *to_delete, int flags, bool went_along)
{
	const TtlDeletion *outer = running;

	PG_TRY();
	{
		running = deletion;
		delete_from_table(deletion, to_delete, flags);
	}
	PG_FINALLY();
	{
		running = outer;
	}
	PG_END_TRY();
	count(deletion, to_delete, went_along);
}

bool
ttl_deletion_is_running(void)
{
	return running != NULL;
}

uint64
ttl_deletion_run(Relation rel, const TtlContainer *container,
				 const ItemPointerData *tids, int ntids,
				 TimestampTz expired_at, int flags, TtlSessionUser *user)
{
	TtlToDelete target = {
		.rel = rel,
		.as_user = user != NULL,
		.tids = {.tids = unconstify(ItemPointerData *, tids), .n = ntids}
	};
	TtlDeletion deletion = {
		.expired_at = expired_at,
		.user = user,
		.owner = rel->rd_rel->relowner,
		.restricted = (flags & TTL_DELETION_RESTRICTED) != 0,
		.heeds_grace = (flags & TTL_DELETION_HEEDS_GRACE) != 0,
		.counts_at_commit = (flags & TTL_DELETION_COMMITS) != 0
	};

	if (container != NULL)
		target.container = *container;
	else
		(void) ttl_container_lookup(RelationGetRelid(rel), &target.container);
	deletion.target = target.container.container;
	if (user != NULL)
		ttl_fk_dependents_check_actions(user, rel, tids);
	delete_rows(&deletion, &target, flags, false);
	return target.deleted;
}

/*
 * In REPEATABLE READ, a DELETE doesn't find what is too new for the transaction's
 * snapshot.
 */
static void
check_snapshot(const TtlToDelete *to_delete)
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

/* True if the execution (NULL = none) is the statement of the deletion that runs. */
static bool
deletes(const TtlExecution *execution)
{
	return running != NULL && execution != NULL && execution->row_mode == TTL_SEES_EXPIRED;
}

TtlSessionUser *
ttl_deletion_user(const TtlExecution *execution)
{
	return deletes(execution) ? running->user : NULL;
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
	}
	return deletion;
}

TimestampTz
ttl_deletion_cutoff(Oid table, TimestampTz now)
{
	if (running == NULL || running->user != NULL)
		return now;
	return ttl_fk_dependents_may_go_along(running, table, &now) ? now : DT_NOBEGIN;
}

void
ttl_deletion_run_dependents(List *rows, TimestampTz expired_at, TtlSessionUser *user,
							const TtlExecution *outer)
{
	TtlDeletion deletion = dependent_deletion(expired_at, user);
	ListCell   *lc;

	deletion.outer_role = deletes(outer) ? outer->role : InvalidOid;
	foreach(lc, rows)
	{
		TtlRelTids *table = lfirst(lc);
		TtlToDelete to_delete = {
			.rel = table_open(table->relid, RowExclusiveLock),
			.tids = table->tids
		};

		(void) ttl_container_lookup(table->relid, &to_delete.container);
		to_delete.as_user = deletion.user != NULL &&
			ttl_owner_is_trusted(deletion.user, to_delete.rel);
		if (ttl_fk_dependents_may_delete(&deletion, &to_delete))
		{
			delete_rows(&deletion, &to_delete, 0, true);
			check_snapshot(&to_delete);
		}
		table_close(to_delete.rel, NoLock);
	}
}

/*
 * True if this transaction has deleted the row in the slot, fetched with SnapshotAny.  Error 40001
 * if another one has updated it meanwhile: the row that is deleted then may have expired, too.
 */
static bool
is_deleted_here(Relation rel, TupleTableSlot *slot)
{
	HeapTuple	tuple;
	TransactionId xmax;

	/* a partition may have another access method */
	if (!TTS_IS_BUFFERTUPLE(slot))
		return !table_tuple_satisfies_snapshot(rel, slot, SnapshotSelf);
	tuple = ((HeapTupleTableSlot *) slot)->tuple;
	if ((tuple->t_data->t_infomask & HEAP_XMAX_INVALID) != 0 ||
		HEAP_XMAX_IS_LOCKED_ONLY(tuple->t_data->t_infomask))
		return false;
	xmax = HeapTupleHeaderGetUpdateXid(tuple->t_data);
	if (ItemPointerEquals(&tuple->t_self, &tuple->t_data->t_ctid))
		return TransactionIdIsCurrentTransactionId(xmax);
	if (!TransactionIdIsCurrentTransactionId(xmax))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent update")));
	return false;
}

/* Makes the deleted ones of these rows a relation "deleted" of the statement.  Returns how many. */
static int
register_deleted(Relation rel, const TtlTids *tids)
{
	EphemeralNamedRelation relation = palloc0(sizeof(EphemeralNamedRelationData));
	Tuplestorestate *rows = tuplestore_begin_heap(false, false, work_mem);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	int			ndeleted = 0;

	for (int i = 0; i < tids->n; i++)
	{
		if (table_tuple_fetch_row_version(rel, &tids->tids[i], SnapshotAny, slot) &&
			is_deleted_here(rel, slot))
		{
			tuplestore_puttupleslot(rows, slot);
			ndeleted++;
		}
		ExecClearTuple(slot);
	}
	ExecDropSingleTupleTableSlot(slot);

	relation->md.name = "deleted";
	relation->md.reliddesc = RelationGetRelid(rel);
	relation->md.enrtype = ENR_NAMED_TUPLESTORE;
	relation->md.enrtuples = ndeleted;
	relation->reldata = rows;
	if (SPI_register_relation(relation) != SPI_OK_REL_REGISTER)
		elog(ERROR, "could not register relation \"%s\"", relation->md.name);
	return ndeleted;
}

/* As the container's owner, by whose rights the referential action has deleted the rows. */
static void
archive_deleted(Relation container, Relation rel, const TtlTids *tids, TtlSessionUser *user)
{
	TtlDeletion deletion = dependent_deletion(ttl_execution_reference_time(), user);
	TtlToDelete to_delete = {.rel = rel};
	Oid			owner = container->rd_rel->relowner;
	StringInfoData sql;
	TtlIdentity saved;

	if (!ttl_container_lookup(RelationGetRelid(rel), &to_delete.container) ||
		!OidIsValid(to_delete.container.policy.archive_to))
		return;
	ttl_owner_begin(container, deletion.restricted, &saved);
	to_delete.deleted = register_deleted(rel, tids);
	if (to_delete.deleted > 0)
	{
		initStringInfo(&sql);
		ttl_fk_dependents_check_archive(deletion.user, rel, tids->tids,
										ttl_archive_append(&sql, rel, &to_delete.container, false));
		ttl_owner_execute(sql.data, 0, NULL, NULL, deletion.expired_at, owner,
						  InvalidSnapshot, true);
	}
	ttl_owner_end(&saved);
	count(&deletion, &to_delete, true);
}

void
ttl_deletion_archive(Oid container, List *rows, TtlSessionUser *user)
{
	Relation	root = table_open(container, AccessShareLock);
	ListCell   *lc;

	foreach(lc, rows)
	{
		TtlRelTids *table = lfirst(lc);
		Relation	rel = table_open(table->relid, AccessShareLock);

		archive_deleted(root, rel, &table->tids, user);
		table_close(rel, NoLock);
	}
	table_close(root, NoLock);
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

void
ttl_deletion_started(TtlExecution *execution)
{
	bool		is_action = InNoForceRLSOperation();

	if (running == NULL || !(is_action || execution->row_mode == TTL_SEES_EXPIRED))
		return;
	ttl_owner_honour_foreign_keys(execution);
	if (is_action && running->restricted)
		ttl_owner_begin_action();
}
