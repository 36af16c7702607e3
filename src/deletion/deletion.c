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
 * It runs as the table's owner, whoever calls: neither does an inserting user
 * need the DELETE privilege, nor do the owner's triggers get anybody else's
 * rights.  SECURITY_RESTRICTED_OPERATION would keep deferred foreign keys
 * from working.  The search_path is safe, as for other maintenance.
 *
 * Where the container has an archive, the same statement inserts the rows
 * there; if that fails, they stay.  Whether it has one is looked up once for each
 * table: between two looks the answer might change.
 *
 * Rows that others reference by a foreign key without an action can go if all
 * that references them has expired, too.  Those rows are looked for, chains and
 * circles of them, also through foreign keys with CASCADE, before anything is
 * deleted; then one statement deletes them all, with a DELETE for each table in
 * it, and the foreign keys are checked at its end.  Tables of several owners, and
 * those with rules on DELETE, need a statement for each; there the referencing
 * tables come first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* What a statement calls the tables whose expired rows it is about */
#define DOOMED	"\"" TTL_DOOMED "\""

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

/*
 * Runs what COMMIT would run of the owner's code, and would run as whoever
 * commits: deferred triggers, and the queries of cursors WITH HOLD.  Each may
 * leave more of the other behind, and triggers may defer what SET CONSTRAINTS
 * would make immediate, so it is done as COMMIT does it.
 */
static void
run_deferred(void)
{
	do
	{
		AfterTriggerFireDeferred();
	} while (PreCommit_Portals(false));
}

/* No name of the owner's schemas means anything to what is run as the owner. */
#define SAFE_SEARCH_PATH	"pg_catalog, pg_temp"

/*
 * Error context of the deletion: a trigger that misses something, under our
 * search_path, may find it under its own.
 */
static void
explain_search_path(void *arg)
{
	int			error = geterrcode();

	if ((error == ERRCODE_UNDEFINED_TABLE || error == ERRCODE_UNDEFINED_FUNCTION ||
		 error == ERRCODE_UNDEFINED_OBJECT) &&
		strcmp(namespace_search_path, SAFE_SEARCH_PATH) == 0)
		errhint("Triggers that fire for the deletion of expired rows have search_path \"%s\". Qualify the name, or give the trigger's function a path of its own with ALTER FUNCTION ... SET search_path.",
				SAFE_SEARCH_PATH);
}

/* What switch_to_owner() changes, to be restored. */
typedef struct Identity
{
	Oid			userid;
	int			sec_context;
	int			nestlevel;
} Identity;

/*
 * Acts as the table's owner with a safe search_path, and connects to SPI.  Where
 * a session applies what was done elsewhere (session_replication_role = replica),
 * triggers don't fire, foreign keys' neither; but a deletion of ours was done
 * nowhere else.  If an error occurs, the abort of the (sub)transaction undoes it
 * all.
 */
static void
switch_to_owner(Relation rel, Identity *saved)
{
	GetUserIdAndSecContext(&saved->userid, &saved->sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   saved->sec_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	saved->nestlevel = NewGUCNestLevel();
	(void) set_config_option("search_path", SAFE_SEARCH_PATH,
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		(void) set_config_option("session_replication_role", "origin",
								 PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
}

static void
switch_back(const Identity *saved)
{
	SPI_finish();
	AtEOXact_GUC(false, saved->nestlevel);
	SetUserIdAndSecContext(saved->userid, saved->sec_context);
}

/*
 * Executes a statement that is to see expired rows only.  Parallel workers
 * would not know; what SPI_prepare() makes is not parallel.
 */
static void
execute_on_expired(const char *sql, int nargs, Oid *types, Datum *values,
				   TimestampTz expired_at, Snapshot snapshot, int flags)
{
	TtlExpectation outer =
	ttl_execution_expect_deletion(sql, expired_at,
								  (flags & TTL_DELETION_SPARES) != 0);

	PG_TRY();
	{
		SPIPlanPtr	plan = SPI_prepare(sql, nargs, types);
		int			result = SPI_execute_snapshot(plan, values, NULL, snapshot,
												  InvalidSnapshot, false, true, 0);

		if (result < 0)
			elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
	}
	PG_FINALLY();
	{
		ttl_execution_expect(outer);
	}
	PG_END_TRY();
}

/*
 * What is to be deleted
 */

/* Expired rows of one table that are to be deleted. */
typedef struct Doomed
{
	Relation	rel;
	TtlContainer container;		/* as of when rows of it were doomed first */
	ItemPointerData *tids;
	int			ntids;
	int			allocated;
	int			searched;		/* rows that reference so many are doomed, too */
	List	   *referencing;	/* Doomed with rows that reference rows of
								 * this */
	bool		is_ordered;
	uint64		deleted;
} Doomed;

/* A row that is doomed, as a hash key without padding */
typedef struct DoomedRow
{
	Oid			table;
	BlockNumber block;
	uint32		offset;
} DoomedRow;

typedef struct Deletion
{
	TimestampTz expired_at;
	int			flags;
	List	   *tables;			/* Doomed, the one that was asked for first */
	HTAB	   *rows;			/* DoomedRow, to know them again */
	MemoryContext memory;		/* of all this */
} Deletion;

static Doomed *
doom_table(Deletion *deletion, Relation rel, const TtlContainer *container)
{
	Doomed	   *doomed = palloc0(sizeof(Doomed));

	doomed->rel = rel;
	if (container != NULL)
		doomed->container = *container;
	else
		(void) ttl_container_lookup(RelationGetRelid(rel), &doomed->container);
	deletion->tables = lappend(deletion->tables, doomed);
	return doomed;
}

static Doomed *
find_doomed(Deletion *deletion, Oid table)
{
	ListCell   *lc;

	foreach(lc, deletion->tables)
	{
		Doomed	   *doomed = lfirst(lc);

		if (RelationGetRelid(doomed->rel) == table)
			return doomed;
	}
	return doom_table(deletion, table_open(table, RowExclusiveLock), NULL);
}

static void
doom_row(Deletion *deletion, Doomed *doomed, ItemPointer tid)
{
	DoomedRow	row = {
		RelationGetRelid(doomed->rel),
		ItemPointerGetBlockNumber(tid),
		ItemPointerGetOffsetNumber(tid)
	};
	bool		found;

	(void) hash_search(deletion->rows, &row, HASH_ENTER, &found);
	if (found)
		return;
	if (doomed->ntids == doomed->allocated)
	{
		doomed->allocated = Max(doomed->allocated * 2, 8);
		doomed->tids = doomed->tids == NULL ?
			palloc(sizeof(ItemPointerData) * doomed->allocated) :
			repalloc(doomed->tids, sizeof(ItemPointerData) * doomed->allocated);
	}
	doomed->tids[doomed->ntids++] = *tid;
}

/* A foreign key that would forbid the deletion, or hand it on. */
typedef struct Reference
{
	Oid			table;			/* that references, may be partitioned */
	TimestampTz expired_at;		/* its rows that had expired by then may go */
	int			nkeys;
	AttrNumber	referencing[INDEX_MAX_KEYS];
	AttrNumber	referenced[INDEX_MAX_KEYS];
	Oid			operators[INDEX_MAX_KEYS];	/* referenced = referencing */
} Reference;

/*
 * May rows of the referencing container go along, and if so, expired by when?
 */
static bool
may_go_along(const Deletion *deletion, Oid table, TimestampTz *expired_at)
{
	TtlContainer container;

	if (!ttl_container_lookup(table, &container))
		return false;
	*expired_at = deletion->expired_at;
	if (deletion->flags & TTL_DELETION_AS_REAPER)
	{
		if (!container.reaping)
			return false;
		*expired_at = Min(*expired_at, ttl_execution_clock() - container.reap_delay);
	}
	return true;
}

/*
 * The foreign keys that reference the table with NO ACTION, RESTRICT or CASCADE,
 * where rows of the referencing table may go along.  Those of a partitioned table
 * are one: only the triggers tell, pg_constraint has them for each partition.
 */
static List *
find_references(const Deletion *deletion, Relation rel)
{
	List	   *references = NIL;

	/* a copy, for the catalogs are read meanwhile */
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];
		TimestampTz expired_at;
		HeapTuple	tuple;
		Reference  *reference;

		if ((trigger->tgfoid != F_RI_FKEY_NOACTION_DEL &&
			 trigger->tgfoid != F_RI_FKEY_RESTRICT_DEL &&
			 trigger->tgfoid != F_RI_FKEY_CASCADE_DEL) ||
			!may_go_along(deletion, trigger->tgconstrrelid, &expired_at))
			continue;
		tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(trigger->tgconstraint));
		if (!HeapTupleIsValid(tuple))
			elog(ERROR, "cache lookup failed for constraint %u", trigger->tgconstraint);
		reference = palloc(sizeof(Reference));
		reference->table = trigger->tgconstrrelid;
		reference->expired_at = expired_at;
		DeconstructFkConstraintRow(tuple, &reference->nkeys, reference->referencing,
								   reference->referenced, reference->operators,
								   NULL, NULL, NULL, NULL);
		ReleaseSysCache(tuple);
		references = lappend(references, reference);
	}
	return references;
}

/*
 * Begins a statement that finds expired rows of the table, as its owner: what is
 * left out of names depends on the search_path.
 */
static void
begin_search(StringInfo sql, Relation table, Identity *saved)
{
	switch_to_owner(table, saved);
	initStringInfo(sql);
	appendStringInfo(sql, "SELECT tableoid, ctid FROM %s%s AS " DOOMED " WHERE ",
					 table->rd_rel->relkind == RELKIND_RELATION ? "ONLY " : "",
					 ttl_container_table_name(RelationGetRelid(table)));
}

/*
 * Executes the statement, dooms what it finds, and switches back.  'referenced'
 * (may be NULL) is what the rows reference.
 *
 * A foreign key would find rows that the transaction's snapshot is too old to see,
 * so they are found here, too.
 */
static void
doom_found(Deletion *deletion, Doomed *referenced, const char *sql, int nargs,
		   Oid *types, Datum *values, TimestampTz expired_at, const Identity *saved)
{
	execute_on_expired(sql, nargs, types, values, expired_at,
					   IsolationUsesXactSnapshot() ? GetLatestSnapshot() : InvalidSnapshot,
					   deletion->flags);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;
		Oid			relid = DatumGetObjectId(SPI_getbinval(row, desc, 1, &isnull));
		ItemPointer tid = (ItemPointer) DatumGetPointer(SPI_getbinval(row, desc, 2, &isnull));
		MemoryContext old = MemoryContextSwitchTo(deletion->memory);
		Doomed	   *doomed = find_doomed(deletion, relid);

		doom_row(deletion, doomed, tid);
		if (referenced != NULL)
			referenced->referencing = list_append_unique_ptr(referenced->referencing, doomed);
		MemoryContextSwitchTo(old);
	}
	switch_back(saved);
}

/* Dooms the expired rows that reference the row in the slot. */
static void
doom_referencing(Deletion *deletion, Doomed *referenced, const Reference *reference,
				 TupleTableSlot *slot)
{
	Relation	table;
	Oid			types[INDEX_MAX_KEYS];
	Datum		values[INDEX_MAX_KEYS];
	StringInfoData sql;
	Identity	saved;

	for (int i = 0; i < reference->nkeys; i++)
	{
		bool		isnull;

		values[i] = slot_getattr(slot, reference->referenced[i], &isnull);
		if (isnull)
			return;
	}

	table = table_open(reference->table, RowExclusiveLock);
	begin_search(&sql, table, &saved);
	for (int i = 0; i < reference->nkeys; i++)
	{
		Form_pg_attribute column = TupleDescAttr(slot->tts_tupleDescriptor,
												 reference->referenced[i] - 1);

		types[i] = column->atttypid;
		appendStringInfoString(&sql, i == 0 ? "" : " AND ");
		generate_operator_clause(&sql, psprintf("$%d", i + 1), types[i],
								 reference->operators[i],
								 quote_identifier(get_attname(reference->table,
															  reference->referencing[i], false)),
								 get_atttype(reference->table, reference->referencing[i]));
		/* the referenced column's collation counts */
		if (OidIsValid(column->attcollation) &&
			!get_collation_isdeterministic(column->attcollation))
			appendStringInfo(&sql, " COLLATE %s",
							 generate_collation_name(column->attcollation));
	}

	doom_found(deletion, referenced, sql.data, reference->nkeys, types, values,
			   reference->expired_at, &saved);
	table_close(table, NoLock);
}

/*
 * Dooms the expired rows that reference doomed ones of this table.
 */
static void
search_referencing(Deletion *deletion, Doomed *doomed)
{
	List	   *references = find_references(deletion, doomed->rel);
	TupleTableSlot *slot;

	if (references == NIL)
	{
		doomed->searched = doomed->ntids;
		return;
	}
	slot = table_slot_create(doomed->rel, NULL);
	while (doomed->searched < doomed->ntids)
	{
		ListCell   *lc;

		if (!table_tuple_fetch_row_version(doomed->rel, &doomed->tids[doomed->searched++],
										   SnapshotSelf, slot))
			continue;
		foreach(lc, references)
			doom_referencing(deletion, doomed, lfirst(lc), slot);
		ExecClearTuple(slot);
	}
	ExecDropSingleTupleTableSlot(slot);
}

/* Chains may be long, and go in circles through several tables. */
static void
doom_all_referencing(Deletion *deletion)
{
	bool		found;

	do
	{
		ListCell   *lc;

		found = false;
		foreach(lc, deletion->tables)
		{
			Doomed	   *doomed = lfirst(lc);

			if (doomed->searched < doomed->ntids)
			{
				CHECK_FOR_INTERRUPTS();
				search_referencing(deletion, doomed);
				found = true;
			}
		}
	} while (found);
}

/* Appends the table to the list, after those that reference it. */
static void
order_table(Doomed *doomed, List **ordered)
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
 * The archive
 */

static void
refuse_archive(Relation rel, const TtlPolicy *policy, const char *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("archive \"%s\" has no place for column \"%s\" of container \"%s\"",
					get_rel_name(policy->archive_to), column, RelationGetRelationName(rel)),
			 errdetail("Columns are matched by name; one that is generated there, or that the archive as a container sets itself, doesn't count."),
			 errhint("Add the column to the archive, or name those to take along by ttl.alter_container(..., archive_columns => ...).")));
}

/* Can the archive take a value of that column?  Its own ones count if "own". */
static bool
archive_takes(Oid archive, const char *column, bool own)
{
	AttrNumber	attno = get_attnum(archive, column);
	TtlContainer container;

	return attno > 0 && get_attgenerated(archive, attno) == '\0' &&
		(own || !ttl_container_lookup(archive, &container) ||
		 (attno != container.ts_attno && attno != container.ttl_attno));
}

List *
ttl_deletion_archive_columns(Relation rel, const TtlPolicy *policy)
{
	TupleDesc	desc = RelationGetDescr(rel);
	List	   *columns = NIL;
	ListCell   *lc;

	foreach(lc, policy->archive_columns)
	{
		if (get_attnum(RelationGetRelid(rel), lfirst(lc)) <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of container \"%s\" does not exist",
							(char *) lfirst(lc), RelationGetRelationName(rel)),
					 errhint("Name the columns to take along by ttl.alter_container(..., archive_columns => ...).")));
		if (!archive_takes(policy->archive_to, lfirst(lc), true))
			refuse_archive(rel, policy, lfirst(lc));
	}
	if (policy->archive_columns != NIL)
		return policy->archive_columns;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		char	   *name = NameStr(attribute->attname);

		if (attribute->attisdropped)
			continue;
		if (archive_takes(policy->archive_to, name, false))
			columns = lappend(columns, pstrdup(name));
		else if (strcmp(name, NameStr(policy->ts_column)) != 0 &&
				 strcmp(name, NameStr(policy->ttl_column)) != 0 &&
				 !(attribute->attgenerated != '\0' &&
				   get_attnum(policy->archive_to, name) > 0 &&
				   get_attgenerated(policy->archive_to,
									get_attnum(policy->archive_to, name)) != '\0'))
			refuse_archive(rel, policy, name);
	}
	if (columns == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("archive \"%s\" has no column in common with container \"%s\"",
						get_rel_name(policy->archive_to), RelationGetRelationName(rel)),
				 errdetail("Columns are matched by name.")));
	return columns;
}

/* Appends what inserts into the archive the rows that "deleted<n>" returns. */
static void
append_archiving(StringInfo sql, const Doomed *doomed, int n)
{
	Oid			archive = doomed->container.archive_to;
	TtlPolicy	policy;
	StringInfoData columns;
	ListCell   *lc;

	if (get_rel_name(archive) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("archive of container \"%s\" does not exist",
						RelationGetRelationName(doomed->rel)),
				 errhint("Choose another by ttl.alter_container(..., archive_to => ...), or 0 for none.")));
	if (!ttl_container_read(doomed->container.container, &policy) ||
		policy.archive_to != archive)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("archive of container \"%s\" was changed concurrently",
						RelationGetRelationName(doomed->rel))));

	initStringInfo(&columns);
	foreach(lc, ttl_deletion_archive_columns(doomed->rel, &policy))
		appendStringInfo(&columns, "%s%s", columns.len > 0 ? ", " : "",
						 quote_identifier(lfirst(lc)));
	appendStringInfo(sql,
					 ", archived%d AS (INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM deleted%d)",
					 n,
					 ttl_container_table_name(archive),
					 columns.data, columns.data, n);
}

/*
 * The deletion
 */

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
		appendStringInfo(sql, "DELETE FROM ONLY %s AS " DOOMED " WHERE ctid = ANY (ARRAY("
						 "SELECT ctid FROM ONLY %s AS " DOOMED
						 " WHERE ctid = ANY ((SELECT $%d)::tid[]) FOR UPDATE SKIP LOCKED))",
						 table, table, n);
	else
		appendStringInfo(sql, "DELETE FROM ONLY %s AS " DOOMED
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
	Doomed	   *first = linitial(tables);
	bool		is_simple = ntables == 1 && !OidIsValid(first->container.archive_to);
	StringInfoData sql;
	StringInfoData counts;
	Identity	saved;
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = explain_search_path
	};

	initStringInfo(&sql);
	initStringInfo(&counts);
	for (int i = 0; i < ntables; i++)
	{
		Doomed	   *doomed = list_nth(tables, i);
		bool		archives = OidIsValid(doomed->container.archive_to);

		types[i] = TIDARRAYOID;
		values[i] = tid_array(doomed->tids, doomed->ntids);
		if (!is_simple)
			appendStringInfo(&sql, "%s deleted%d AS (", i == 0 ? "WITH" : ",", i + 1);
		append_delete(&sql, doomed->rel, i + 1, flags);
		if (!is_simple)
			appendStringInfo(&sql, " RETURNING %s)", archives ? "*" : "1");
		if (archives)
			append_archiving(&sql, doomed, i + 1);
		appendStringInfo(&counts, "%s (SELECT count(*) FROM deleted%d)",
						 i == 0 ? " SELECT" : ",", i + 1);
	}
	if (!is_simple)
		appendStringInfoString(&sql, counts.data);

	switch_to_owner(first->rel, &saved);
	error_context_stack = &context;
	execute_on_expired(sql.data, ntables, types, values, expired_at, InvalidSnapshot,
					   flags);
	if (is_simple)
		first->deleted = SPI_processed;
	for (int i = 0; i < ntables && !is_simple; i++)
	{
		bool		isnull;

		((Doomed *) list_nth(tables, i))->deleted =
			DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
										i + 1, &isnull));
	}
	if (flags & TTL_DELETION_COMMITS)
		run_deferred();
	error_context_stack = context.previous;
	switch_back(&saved);
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
		Relation	rel = ((Doomed *) lfirst(lc))->rel;
		Relation	first = group == NIL ? rel : ((Doomed *) linitial(group))->rel;

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
count(const Doomed *doomed, bool went_along, int flags)
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

/* Rows are going to be remembered, to know them again. */
static void
remember_rows(Deletion *deletion)
{
	HASHCTL		ctl = {.keysize = sizeof(DoomedRow), .entrysize = sizeof(DoomedRow), .hcxt = CurrentMemoryContext};

	deletion->memory = CurrentMemoryContext;
	deletion->rows = hash_create("ttl doomed rows", 64, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Deletes all that is doomed; 'asked_for' (may be NULL) is the caller's table. */
static void
delete_doomed(Deletion *deletion, const Doomed *asked_for)
{
	int			outer_flags = running_flags;
	List	   *ordered = NIL;
	ListCell   *lc;

	foreach(lc, deletion->tables)
		order_table(lfirst(lc), &ordered);

	PG_TRY();
	{
		running_flags = deletion->flags;
		delete_in_order(ordered, deletion->expired_at, deletion->flags);
	}
	PG_FINALLY();
	{
		running_flags = outer_flags;
	}
	PG_END_TRY();

	foreach(lc, ordered)
		count(lfirst(lc), lfirst(lc) != asked_for, deletion->flags);
}

/* Closes the tables that the deletion has opened. */
static void
end_deletion(Deletion *deletion, const Doomed *asked_for)
{
	ListCell   *lc;

	foreach(lc, deletion->tables)
	{
		Doomed	   *doomed = lfirst(lc);

		if (doomed != asked_for)
			table_close(doomed->rel, NoLock);
	}
}

uint64
ttl_deletion_run(Relation rel, const TtlContainer *container,
				 const ItemPointerData *tids, int ntids,
				 TimestampTz expired_at, int flags)
{
	Deletion	deletion = {.expired_at = expired_at, .flags = flags};
	Doomed	   *asked_for = doom_table(&deletion, rel, container);

	if (flags & TTL_DELETION_WITH_REFERENCING)
	{
		remember_rows(&deletion);
		for (int i = 0; i < ntids; i++)
			doom_row(&deletion, asked_for, unconstify(ItemPointerData *, &tids[i]));
		doom_all_referencing(&deletion);
		hash_destroy(deletion.rows);
	}
	else
	{
		asked_for->tids = unconstify(ItemPointerData *, tids);
		asked_for->ntids = ntids;
	}

	delete_doomed(&deletion, asked_for);
	end_deletion(&deletion, asked_for);
	return asked_for->deleted;
}

/*
 * In REPEATABLE READ, a DELETE doesn't find what is too new for the transaction's
 * snapshot.
 */
static void
check_snapshot(Doomed *doomed)
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
	Deletion	deletion = {.expired_at = expired_at};
	StringInfoData sql;
	Identity	saved;
	ListCell   *lc;

	deletion.flags = TTL_DELETION_WITH_REFERENCING |
		(running_flags & (TTL_DELETION_AS_REAPER | TTL_DELETION_SPARES));
	if (!may_go_along(&deletion, RelationGetRelid(table), &deletion.expired_at))
		return;

	remember_rows(&deletion);
	begin_search(&sql, table, &saved);
	appendStringInfoString(&sql, condition);
	doom_found(&deletion, NULL, sql.data, nargs, types, values, deletion.expired_at, &saved);
	doom_all_referencing(&deletion);
	hash_destroy(deletion.rows);

	if (deletion.tables != NIL)
		delete_doomed(&deletion, NULL);
	foreach(lc, deletion.tables)
		check_snapshot(lfirst(lc));
	end_deletion(&deletion, NULL);
}

void
ttl_deletion_truncate(Relation rel)
{
	char	   *sql = psprintf("TRUNCATE ONLY %s", ttl_container_table_name(RelationGetRelid(rel)));
	Identity	saved;
	int			result;

	switch_to_owner(rel, &saved);
	relation_close(rel, NoLock);
	result = SPI_execute(sql, false, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
	switch_back(&saved);
}
