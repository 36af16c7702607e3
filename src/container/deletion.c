/*-------------------------------------------------------------------------
 *
 * deletion.c
 *	  Physical deletion of expired rows, shared by reaper and eviction.
 *
 * It is an ordinary DELETE through SPI, so that triggers fire, foreign keys
 * act and logical decoding sees it.  The rows are given by their place
 * (ctid); what is there is judged again by the DELETE itself, whose
 * ttl.is_live() filter looks for the expired rows in such an execution (see
 * expiry.c).  So it does no harm that a place may have got another row, that
 * a row may have been renewed, or the policy changed, since somebody looked.
 *
 * It runs as the table's owner, whoever calls: neither does an inserting user
 * need the DELETE privilege, nor do the owner's triggers get anybody else's
 * rights.  SECURITY_RESTRICTED_OPERATION would keep deferred foreign keys
 * from working.  The search_path is safe, as for other maintenance.
 *
 * Where the container has an archive, the same statement inserts the rows
 * there; if that fails, they stay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "container/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

static TtlDeletionObserver evict_observer = NULL;
static TtlDeletionObserver archive_observer = NULL;

void
ttl_deletion_on_evict(TtlDeletionObserver evicted)
{
	evict_observer = evicted;
}

void
ttl_deletion_on_archive(TtlDeletionObserver archived)
{
	archive_observer = archived;
}

void
ttl_deletion_report_evicted(Oid container, uint64 rows)
{
	if (evict_observer != NULL)
		evict_observer(container, rows);
}

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

/* SET CONSTRAINTS ALL IMMEDIATE */
static void
fire_deferred(void)
{
	ConstraintsSetStmt *stmt = makeNode(ConstraintsSetStmt);

	stmt->constraints = NIL;
	stmt->deferred = false;
	AfterTriggerSetState(stmt);
}

/* What switch_to_owner() changes, to be restored. */
typedef struct Identity
{
	Oid			userid;
	int			sec_context;
	int			nestlevel;
} Identity;

/*
 * Acts as the table's owner with a safe search_path, and connects to SPI.  If
 * an error occurs, the abort of the (sub)transaction undoes it.
 */
static void
switch_to_owner(Relation rel, Identity *saved)
{
	GetUserIdAndSecContext(&saved->userid, &saved->sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   saved->sec_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	saved->nestlevel = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
}

static void
switch_back(const Identity *saved)
{
	SPI_finish();
	AtEOXact_GUC(false, saved->nestlevel);
	SetUserIdAndSecContext(saved->userid, saved->sec_context);
}

/* Executes a statement that is to see expired rows only. */
static void
execute_on_expired(const char *sql, int nargs, Oid *types, Datum *values,
				   TimestampTz expired_at)
{
	ttl_execution_expect_deletion(sql, expired_at);
	PG_TRY();
	{
		int			result = SPI_execute_with_args(sql, nargs, types, values, NULL, false, 0);

		if (result < 0)
			elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
	}
	PG_FINALLY();
	{
		ttl_execution_expect_nothing();
	}
	PG_END_TRY();
}

static char *
qualified_name(Relation rel)
{
	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									  RelationGetRelationName(rel));
}

/*
 * Rows that reference the doomed ones
 */

/* A foreign key that would forbid the deletion. */
typedef struct Reference
{
	Oid			table;			/* that references */
	int			nkeys;
	AttrNumber	referencing[INDEX_MAX_KEYS];
	AttrNumber	referenced[INDEX_MAX_KEYS];
	Oid			operators[INDEX_MAX_KEYS];	/* referenced = referencing */
} Reference;

/*
 * The foreign keys with NO ACTION or RESTRICT that reference the table, where
 * the referencing table belongs to a container.
 */
static List *
find_references(Relation rel)
{
	List	   *references = NIL;
	Relation	pg_constraint;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	/* Without a trigger on deletion there is none. */
	if (rel->trigdesc == NULL || !rel->trigdesc->trig_delete_after_row)
		return NIL;

	pg_constraint = table_open(ConstraintRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_constraint_confrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationGetRelid(rel)));
	/* there is no index on confrelid */
	scan = systable_beginscan(pg_constraint, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_constraint form = (Form_pg_constraint) GETSTRUCT(tuple);
		Reference  *reference;
		TtlContainer container;

		if (form->contype != CONSTRAINT_FOREIGN ||
			(form->confdeltype != FKCONSTR_ACTION_NOACTION &&
			 form->confdeltype != FKCONSTR_ACTION_RESTRICT) ||
			get_rel_relkind(form->conrelid) != RELKIND_RELATION ||
			!ttl_container_lookup(form->conrelid, &container))
			continue;
		reference = palloc(sizeof(Reference));
		reference->table = form->conrelid;
		DeconstructFkConstraintRow(tuple, &reference->nkeys, reference->referencing,
								   reference->referenced, reference->operators,
								   NULL, NULL, NULL, NULL);
		references = lappend(references, reference);
	}
	systable_endscan(scan);
	table_close(pg_constraint, AccessShareLock);
	return references;
}

/* The expired rows of the table that reference the row in the slot. */
static List *
find_referencing(Relation table, const Reference *reference, TupleTableSlot *slot,
				 TimestampTz expired_at)
{
	MemoryContext caller = CurrentMemoryContext;
	Oid			types[INDEX_MAX_KEYS];
	Datum		values[INDEX_MAX_KEYS];
	StringInfoData sql;
	List	   *tids = NIL;
	Identity	saved;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT ctid FROM ONLY %s", qualified_name(table));
	for (int i = 0; i < reference->nkeys; i++)
	{
		AttrNumber	attno = reference->referenced[i];
		bool		isnull;

		types[i] = TupleDescAttr(slot->tts_tupleDescriptor, attno - 1)->atttypid;
		values[i] = slot_getattr(slot, attno, &isnull);
		if (isnull)
			return NIL;
		appendStringInfoString(&sql, i == 0 ? " WHERE " : " AND ");
		generate_operator_clause(&sql, psprintf("$%d", i + 1), types[i],
								 reference->operators[i],
								 quote_identifier(get_attname(reference->table,
															  reference->referencing[i], false)),
								 get_atttype(reference->table, reference->referencing[i]));
	}

	switch_to_owner(table, &saved);
	execute_on_expired(sql.data, reference->nkeys, types, values, expired_at);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		Datum		tid = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull);
		MemoryContext old = MemoryContextSwitchTo(caller);
		ItemPointer copy = palloc(sizeof(ItemPointerData));

		*copy = *(ItemPointer) DatumGetPointer(tid);
		tids = lappend(tids, copy);
		MemoryContextSwitchTo(old);
	}
	switch_back(&saved);
	return tids;
}

/*
 * Deletes the expired rows that reference one of the rows at the given places,
 * unless they are among those themselves.
 */
static void
delete_referencing(Relation rel, const ItemPointerData *tids, int ntids,
				   TimestampTz expired_at, int flags)
{
	List	   *references = find_references(rel);
	TupleTableSlot *slot;
	ListCell   *lc;

	if (references == NIL)
		return;
	check_stack_depth();		/* chains may be long, and go in circles */

	slot = table_slot_create(rel, NULL);
	foreach(lc, references)
	{
		Reference  *reference = lfirst(lc);
		Relation	table = table_open(reference->table, RowExclusiveLock);

		for (int i = 0; i < ntids; i++)
		{
			ListCell   *lc2;
			ItemPointerData referencing;

			if (!table_tuple_fetch_row_version(rel, unconstify(ItemPointerData *, &tids[i]),
											   SnapshotSelf, slot))
				continue;
			foreach(lc2, find_referencing(table, reference, slot, expired_at))
			{
				referencing = *(ItemPointer) lfirst(lc2);
				if (reference->table == RelationGetRelid(rel) &&
					ItemPointerEquals(&referencing, unconstify(ItemPointerData *, &tids[i])))
					continue;
				(void) ttl_deletion_run(table, &referencing, 1, expired_at, flags);
			}
			ExecClearTuple(slot);
		}
		table_close(table, NoLock);
	}
	ExecDropSingleTupleTableSlot(slot);
}

/*
 * The archive
 */

List *
ttl_deletion_archive_columns(Relation rel, Oid archive)
{
	TupleDesc	desc = RelationGetDescr(rel);
	List	   *columns = NIL;
	TtlContainer container;
	bool		is_container = ttl_container_lookup(archive, &container);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		AttrNumber	attno;

		if (attribute->attisdropped)
			continue;
		attno = get_attnum(archive, NameStr(attribute->attname));
		if (attno != InvalidAttrNumber && get_attgenerated(archive, attno) == '\0' &&
			!(is_container && (attno == container.ts_attno || attno == container.ttl_attno)))
			columns = lappend(columns, pstrdup(NameStr(attribute->attname)));
	}
	return columns;
}

/* The deletion as a statement that inserts into the archive what it deletes. */
static char *
archiving_statement(Relation rel, Oid archive, const char *deletion)
{
	StringInfoData columns;
	char	   *name = get_rel_name(archive);
	ListCell   *lc;

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("archive of container \"%s\" does not exist",
						RelationGetRelationName(rel)),
				 errhint("Choose another by ttl.alter_container(..., archive_to => ...), or 0 for none.")));

	initStringInfo(&columns);
	foreach(lc, ttl_deletion_archive_columns(rel, archive))
		appendStringInfo(&columns, "%s%s", columns.len > 0 ? ", " : "",
						 quote_identifier(lfirst(lc)));
	return psprintf("WITH deleted AS (%s RETURNING *), "
					"archived AS (INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM deleted) "
					"SELECT FROM deleted",
					deletion,
					quote_qualified_identifier(get_namespace_name(get_rel_namespace(archive)), name),
					columns.data, columns.data);
}

uint64
ttl_deletion_run(Relation rel, const ItemPointerData *tids, int ntids,
				 TimestampTz expired_at, int flags)
{
	char	   *table = qualified_name(rel);
	TtlContainer container;
	bool		archives;
	char	   *sql;
	Oid			types[] = {TIDARRAYOID};
	Datum		values[1];
	Identity	saved;
	uint64		deleted;

	if (flags & TTL_DELETION_WITH_REFERENCING)
		delete_referencing(rel, tids, ntids, expired_at, flags);

	/*
	 * The planner doesn't look into a subselect.  If it knew how many places
	 * there are, it might read the whole table instead of going there.
	 */
	if (flags & TTL_DELETION_SKIP_LOCKED)
		sql = psprintf("DELETE FROM ONLY %s WHERE ctid = ANY (ARRAY("
					   "SELECT ctid FROM ONLY %s WHERE ctid = ANY ((SELECT $1)::tid[]) FOR UPDATE SKIP LOCKED))",
					   table, table);
	else
		sql = psprintf("DELETE FROM ONLY %s WHERE ctid = ANY ((SELECT $1)::tid[])", table);
	archives = ttl_container_lookup(RelationGetRelid(rel), &container) &&
		OidIsValid(container.archive_to);
	if (archives)
		sql = archiving_statement(rel, container.archive_to, sql);
	values[0] = tid_array(tids, ntids);

	switch_to_owner(rel, &saved);
	execute_on_expired(sql, 1, types, values, expired_at);
	deleted = SPI_processed;
	if (flags & TTL_DELETION_CONSTRAINTS_NOW)
		fire_deferred();
	switch_back(&saved);

	if (archives && archive_observer != NULL)
		archive_observer(container.container, deleted);
	return deleted;
}

void
ttl_deletion_truncate(Relation rel)
{
	char	   *sql = psprintf("TRUNCATE ONLY %s", qualified_name(rel));
	Identity	saved;
	int			result;

	switch_to_owner(rel, &saved);
	relation_close(rel, NoLock);
	result = SPI_execute(sql, false, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
	switch_back(&saved);
}
