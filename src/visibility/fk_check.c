/*-------------------------------------------------------------------------
 *
 * fk_check.c
 *	  Expired rows that reference what goes don't hold it up.
 *
 * When a row goes or gets another key, and rows may reference it by a foreign
 * key with NO ACTION or RESTRICT, PostgreSQL searches for one that does:
 *
 *	 SELECT 1 FROM [ONLY] "s"."t" x WHERE $1 OPERATOR(=) "column" [AND ...]
 *	   FOR KEY SHARE OF x
 *
 * That search sees all stored rows (fk_queries.c).  Before it runs, the rows that its
 * scan returns are collected.  If none of them is live, they are deleted as an eviction
 * deletes them: as the user who has changed the referenced row, with
 * triggers, archive, and what references them in turn.
 *
 * Then PostgreSQL searches.  It skips what has been deleted since its snapshot was taken,
 * and finds the rest: a row that a trigger has kept, one that has been renewed in the
 * meantime, or one that the reaper must leave alone.
 *
 * This is done when the search is about to run, so it covers deferred constraints,
 * partitions and other referential actions.  If no row references what goes, the scan
 * has come to its end, and isn't repeated.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "utility.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "visibility/visibility.h"

/* Rows that are deleted at once, where all would need memory without limit. */
#define ROWS_AT_ONCE	10000

/*
 * The container, maybe partitioned, in which the execution searches for rows that forbid
 * a change; InvalidOid if it doesn't.  The container's owner could write such a query
 * himself, where foreign keys act, and would lose expired rows of his own tables.
 */
static Oid
searched_table(const QueryDesc *query_desc)
{
	RangeTblEntry *rte;
	TtlContainer container;

	if (!InNoForceRLSOperation() || !IsA(query_desc->planstate, LockRowsState) ||
		!ttl_fk_queries_is_search(query_desc->sourceText))
		return InvalidOid;
	rte = linitial_node(RangeTblEntry, query_desc->plannedstmt->rtable);
	return rte->rtekind == RTE_RELATION && ttl_container_lookup(rte->relid, &container) &&
		container.default_ttl != TTL_OFF && ttl_container_owner(rte->relid) == GetUserId() ?
		rte->relid : InvalidOid;
}

/* Has the row, which the snapshot sees, expired by then?  It is fetched into the slot. */
static bool
has_expired(Relation rel, ItemPointer tid, Snapshot snapshot, TimestampTz expired_at,
			TupleTableSlot *slot)
{
	TtlContainer container;

	return ttl_container_lookup(RelationGetRelid(rel), &container) &&
		table_tuple_fetch_row_version(rel, tid, snapshot, slot) &&
		ttl_expiry_of_slot(&container, slot) <= expired_at;
}

static void
add_row(List **rows, Oid relid, ItemPointer tid)
{
	ListCell   *lc;
	TtlRelTids *table;

	foreach(lc, *rows)
	{
		table = lfirst(lc);
		if (table->relid == relid)
		{
			ttl_tids_append(&table->tids, tid);
			return;
		}
	}
	table = palloc0(sizeof(TtlRelTids));
	table->relid = relid;
	ttl_tids_append(&table->tids, tid);
	*rows = lappend(*rows, table);
}

static void
close_table(Relation rel, TupleTableSlot *slot)
{
	if (rel == NULL)
		return;
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

/* What a call of collect() ends with */
typedef enum Collected
{
	COLLECTED_ALL,
	COLLECTED_SOME,				/* there may be more */
	COLLECTED_LIVE				/* the last row hasn't expired */
} Collected;

/* Collects rows (TtlRelTids) that the scan below LockRows returns. */
static Collected
collect(LockRowsState *search, TimestampTz expired_at, List **rows)
{
	EState	   *estate = search->ps.state;
	ExecAuxRowMark *mark = search->lr_arowMarks == NIL ? NULL : linitial(search->lr_arowMarks);
	Collected	result = mark == NULL ? COLLECTED_ALL : COLLECTED_SOME;
	Relation	rel = NULL;		/* of the last row */
	TupleTableSlot *fetched = NULL;

	for (int n = 0; n < ROWS_AT_ONCE && result == COLLECTED_SOME; n++)
	{
		Oid			relid = mark->rowmark->relid;
		MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
		TupleTableSlot *slot = ExecProcNode(outerPlanState(search));
		bool		isnull;
		ItemPointer tid;

		MemoryContextSwitchTo(old);
		if (TupIsNull(slot))
		{
			result = COLLECTED_ALL;
			break;
		}
		tid = (ItemPointer) DatumGetPointer(ExecGetJunkAttribute(slot, mark->ctidAttNo, &isnull));
		if (AttributeNumberIsValid(mark->toidAttNo))
			relid = DatumGetObjectId(ExecGetJunkAttribute(slot, mark->toidAttNo, &isnull));
		if (rel == NULL || RelationGetRelid(rel) != relid)
		{
			close_table(rel, fetched);
			rel = table_open(relid, RowExclusiveLock);
			fetched = table_slot_create(rel, NULL);
		}
		add_row(rows, relid, tid);
		if (!has_expired(rel, tid, estate->es_snapshot, expired_at, fetched))
			result = COLLECTED_LIVE;
	}
	close_table(rel, fetched);
	return result;
}

/* Does the execution (NULL = none) write a table of that owner? */
static bool
writes_table_of(const TtlExecution *execution, Oid owner)
{
	ListCell   *lc;

	foreach(lc, execution == NULL ? NIL : execution->query_desc->estate->es_opened_result_relations)
	{
		ResultRelInfo *target = lfirst(lc);

		if (target->ri_RelationDesc->rd_rel->relowner == owner)
			return true;
	}
	return false;
}

/* A SET CONSTRAINTS that runs, maybe in a SECURITY DEFINER function */
typedef struct Setting
{
	const TtlExecution *outer;
	Oid			role;
} Setting;

static List *settings = NIL;	/* innermost first */

static void
before_command(PlannedStmt *pstmt, const char *query_string,
			   ProcessUtilityContext context, ParamListInfo params)
{
	MemoryContext old;
	Setting    *setting;

	if (!IsA(pstmt->utilityStmt, ConstraintsSetStmt))
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	setting = palloc(sizeof(Setting));
	setting->outer = ttl_execution_current();
	setting->role = GetUserId();
	settings = lcons(setting, settings);
	MemoryContextSwitchTo(old);
}

static void
command_ends(PlannedStmt *pstmt)
{
	if (!IsA(pstmt->utilityStmt, ConstraintsSetStmt) || settings == NIL)
		return;
	pfree(linitial(settings));
	settings = list_delete_first(settings);
}

/* The user whose statement has the check done, in that execution or at the transaction's end */
static Oid
checking_role(const TtlExecution *outer)
{
	Setting    *setting = settings == NIL ? NULL : linitial(settings);

	if (setting != NULL && setting->outer == outer)
		return setting->role;
	return outer != NULL ? outer->role : GetOuterUserId();
}

/*
 * Deletes the rows as the user, whose statement may itself be an action of a foreign key;
 * PostgreSQL has switched to the owner of the referencing table.
 */
static void
delete_rows(List *rows, Oid table, TimestampTz expired_at, const TtlExecution *execution,
			const TtlExecution *outer)
{
	Oid			owner = ttl_container_owner(table);
	TtlEviction eviction = {
		.container = get_rel_name(table),
		.reason = "references what is deleted or gets another key",
		.by_owner = ttl_container_is_owner(execution->user, table),
		.user = {
			.role = checking_role(outer),
			.written_owner = writes_table_of(outer, owner) ? owner : InvalidOid
		}
	};
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = ttl_evict_explain,
		.arg = &eviction
	};

	error_context_stack = &context;
	ttl_deletion_run_dependents(rows, expired_at, &eviction.user);
	error_context_stack = context.previous;
}

/* Deletes what the search in that table would find, if it has expired.  False if there is nothing. */
static bool
delete_expired(Oid table, TtlExecution *execution, const TtlExecution *outer)
{
	LockRowsState *search = (LockRowsState *) execution->query_desc->planstate;

	/* neither what only ttl.now hides is deleted, nor what it shows */
	TimestampTz expired_at = ttl_deletion_cutoff(table, Min(execution->clock, execution->reading_now));
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "ttl referencing rows",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	bool		found = false;
	Collected	collected;

	do
	{
		List	   *rows = NIL;

		collected = collect(search, expired_at, &rows);
		found = found || rows != NIL;
		if (collected != COLLECTED_LIVE && rows != NIL)
			delete_rows(rows, table, expired_at, execution, outer);
		MemoryContextReset(context);
	} while (collected == COLLECTED_SOME);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (found)
		ExecReScan(&search->ps);
	return found;
}

static bool
execution_runs(TtlExecution *execution, const TtlExecution *outer)
{
	Oid			table = ttl_container_objects() == NULL ? InvalidOid :
		searched_table(execution->query_desc);

	return !OidIsValid(table) || ttl_live_is_shown(table) ||
		delete_expired(table, execution, outer);
}

void
ttl_fk_check_init(void)
{
	ttl_execution_on_run(execution_runs);
	ttl_utility_observe(before_command, NULL, command_ends);
}
