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
 * A foreign key with CASCADE deletes the rows that it finds, expired or not, by
 *
 *	 DELETE FROM [ONLY] "s"."t" WHERE $1 OPERATOR(=) "column" [AND ...]
 *
 * If the container has an archive, the expired ones among them are collected in the same way, and
 * inserted into the archive when they have been deleted.
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
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "visibility/visibility.h"

/* Rows that are deleted at once, where all would need memory without limit. */
#define ROWS_AT_ONCE	10000

/*
 * The container, maybe partitioned, on which the execution acts for a foreign key: it searches for
 * rows that forbid a change, or deletes from it (*cascades) though it has an archive.  Else
 * InvalidOid.  The container's owner could write such a query himself, where foreign keys act, and
 * would lose expired rows of his own tables.
 */
static Oid
searched_table(const QueryDesc *query_desc, bool *cascades)
{
	RangeTblEntry *rte;
	TtlContainer container;

	*cascades = query_desc->operation == CMD_DELETE;
	if (!InNoForceRLSOperation() ||
		!(*cascades ? IsA(query_desc->planstate, ModifyTableState) &&
		  ttl_fk_queries_is_spelt_so(query_desc->sourceText) :
		  IsA(query_desc->planstate, LockRowsState) &&
		  ttl_fk_queries_is_search(query_desc->sourceText)))
		return InvalidOid;
	rte = linitial_node(RangeTblEntry, query_desc->plannedstmt->rtable);
	return rte->rtekind == RTE_RELATION && ttl_container_lookup(rte->relid, &container) &&
		container.default_ttl != TTL_OFF && ttl_container_owner(rte->relid) == GetUserId() &&
		(!*cascades || OidIsValid(container.archive_to)) ?
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

/* A scan of rows on which a foreign key acts, and where its rows have their TIDs */
typedef struct Search
{
	PlanState  *scan;
	Oid			relid;			/* the only table */
	AttrNumber	tid_attno;
	AttrNumber	relid_attno;	/* invalid if there is but one table */
} Search;

/* Finds the scan below LockRows or ModifyTable; false if it returns no rows. */
static bool
find_search(PlanState *top, Search *search)
{
	search->scan = outerPlanState(top);
	if (IsA(top, ModifyTableState))
	{
		ModifyTableState *deletion = (ModifyTableState *) top;

		search->relid = RelationGetRelid(deletion->resultRelInfo[0].ri_RelationDesc);
		search->tid_attno = deletion->resultRelInfo[0].ri_RowIdAttNo;
		search->relid_attno = deletion->mt_resultOidAttno;
		return AttributeNumberIsValid(search->tid_attno);
	}
	else
	{
		LockRowsState *locking = (LockRowsState *) top;
		ExecAuxRowMark *mark = locking->lr_arowMarks == NIL ? NULL : linitial(locking->lr_arowMarks);

		if (mark == NULL)
			return false;
		search->relid = mark->rowmark->relid;
		search->tid_attno = mark->ctidAttNo;
		search->relid_attno = mark->toidAttNo;
		return true;
	}
}

/*
 * Collects rows (TtlRelTids) that the scan returns: with only_expired all that have expired, else
 * any, at most so many at once, and none behind one that hasn't.
 */
static Collected
collect(const Search *search, TimestampTz expired_at, bool only_expired, List **rows)
{
	EState	   *estate = search->scan->state;
	Collected	result = COLLECTED_SOME;
	Relation	rel = NULL;		/* of the last row */
	TupleTableSlot *fetched = NULL;

	for (int n = 0; (only_expired || n < ROWS_AT_ONCE) && result == COLLECTED_SOME; n++)
	{
		Oid			relid = search->relid;
		MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
		TupleTableSlot *slot = ExecProcNode(search->scan);
		bool		has_gone;
		bool		isnull;
		ItemPointer tid;

		MemoryContextSwitchTo(old);
		if (TupIsNull(slot))
		{
			result = COLLECTED_ALL;
			break;
		}
		tid = (ItemPointer) DatumGetPointer(ExecGetJunkAttribute(slot, search->tid_attno, &isnull));
		if (AttributeNumberIsValid(search->relid_attno))
			relid = DatumGetObjectId(ExecGetJunkAttribute(slot, search->relid_attno, &isnull));
		if (rel == NULL || RelationGetRelid(rel) != relid)
		{
			close_table(rel, fetched);
			rel = table_open(relid, RowExclusiveLock);
			fetched = table_slot_create(rel, NULL);
		}
		has_gone = has_expired(rel, tid, estate->es_snapshot, expired_at, fetched);
		if (has_gone || !only_expired)
			add_row(rows, relid, tid);
		if (!has_gone && !only_expired)
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
	const PlannedStmt *command;
	const TtlExecution *outer;
	Oid			role;
} Setting;

static List *settings = NIL;	/* innermost first */

void
ttl_fk_check_before_utility(PlannedStmt *pstmt)
{
	MemoryContext old;
	Setting    *setting;

	if (!IsA(pstmt->utilityStmt, ConstraintsSetStmt))
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	setting = palloc(sizeof(Setting));
	setting->command = pstmt;
	setting->outer = ttl_execution_current();
	setting->role = GetUserId();
	settings = lcons(setting, settings);
	MemoryContextSwitchTo(old);
}

void
ttl_fk_check_end_utility(PlannedStmt *pstmt)
{
	Setting    *setting = settings == NIL ? NULL : linitial(settings);

	/* the command may have failed before its own was made */
	if (setting == NULL || setting->command != pstmt)
		return;
	pfree(setting);
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
 * The user of the session, in which a foreign key acts on a table of that owner.  If a deletion has
 * set it off, he is that of the deletion, else *user.
 */
static TtlSessionUser *
find_user(const TtlExecution *outer, Oid owner, TtlSessionUser *user)
{
	if (ttl_deletion_user(outer) != NULL)
		return ttl_deletion_user(outer);
	*user = (TtlSessionUser)
	{
		.role = checking_role(outer),
		.written_owner = writes_table_of(outer, owner) ? owner : InvalidOid
	};
	return user;
}

/*
 * Deletes the rows as the user, whose statement may itself be an action of a foreign key;
 * PostgreSQL has switched to the owner of the referencing table.
 */
static void
delete_rows(List *rows, Oid table, TimestampTz expired_at, const TtlExecution *execution,
			const TtlExecution *outer)
{
	TtlSessionUser user;
	TtlEviction eviction = {
		.container = get_rel_name(table),
		.reason = "references what is deleted or gets another key",
		.by_owner = ttl_container_is_owner(execution->user, table),
		.user = find_user(outer, ttl_container_owner(table), &user)
	};
	ErrorContextCallback context = {
		.previous = error_context_stack,
		.callback = ttl_evict_explain,
		.arg = &eviction
	};

	error_context_stack = &context;
	ttl_deletion_run_dependents(rows, expired_at, eviction.user, outer);
	error_context_stack = context.previous;
}

/* Deletes what the search in that table would find, if it has expired.  False if there is nothing. */
static bool
delete_expired(Oid table, TtlExecution *execution, const TtlExecution *outer)
{
	Search		search;

	/* neither what only ttl.now hides is deleted, nor what it shows */
	TimestampTz expired_at = ttl_deletion_cutoff(table, Min(execution->clock, execution->reading_now));
	MemoryContext context;
	MemoryContext old;
	bool		found = false;
	Collected	collected;

	if (!find_search(execution->query_desc->planstate, &search))
		return false;
	context = AllocSetContextCreate(CurrentMemoryContext, "ttl referencing rows",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	do
	{
		List	   *rows = NIL;

		collected = collect(&search, expired_at, false, &rows);
		found = found || rows != NIL;
		if (collected != COLLECTED_LIVE && rows != NIL)
			delete_rows(rows, table, expired_at, execution, outer);
		MemoryContextReset(context);
	} while (collected == COLLECTED_SOME);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (found)
		ExecReScan(execution->query_desc->planstate);
	return found;
}

/* Remembers what a CASCADE is about to delete that has expired. */
static void
collect_cascaded(TtlExecution *execution)
{
	MemoryContext old = MemoryContextSwitchTo(execution->query_desc->estate->es_query_cxt);
	Search		search;

	if (find_search(execution->query_desc->planstate, &search))
	{
		(void) collect(&search, execution->clock, true, &execution->cascading);
		ExecReScan(search.scan);
	}
	MemoryContextSwitchTo(old);
}

bool
ttl_fk_check_runs(const TtlExecution *outer)
{
	TtlExecution *execution = ttl_execution_current();
	bool		cascades;
	Oid			table;

	if (execution == NULL || !execution->observed || ttl_container_objects() == NULL)
		return true;
	table = searched_table(execution->query_desc, &cascades);
	if (!OidIsValid(table))
		return true;
	if (cascades)
	{
		collect_cascaded(execution);
		return true;
	}
	return ttl_live_is_shown(table) || delete_expired(table, execution, outer);
}

/* Inserts into the archive what a CASCADE has deleted that had expired. */
void
ttl_fk_check_ran(const QueryDesc *query_desc)
{
	TtlExecution *execution = ttl_execution_of(query_desc->estate);
	const TtlExecution *outer = ttl_execution_current();
	bool		cascades;
	Oid			table;
	TtlSessionUser user;
	TtlContainer container;

	if (execution == NULL || execution->cascading == NIL)
		return;
	table = searched_table(query_desc, &cascades);
	if (!ttl_container_lookup(table, &container))
		return;
	ttl_deletion_archive(container.container, execution->cascading,
						 find_user(outer, ttl_container_owner(container.archive_to), &user));
	execution->cascading = NIL;
}
