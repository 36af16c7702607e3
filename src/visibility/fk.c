/*-------------------------------------------------------------------------
 *
 * fk.c
 *	  The queries of PostgreSQL's foreign keys over containers.
 *
 * Queries by which foreign keys act on referencing rows (CASCADE, SET NULL, SET DEFAULT,
 * and the search for rows that forbid a change), and those by which ALTER TABLE
 * validates a foreign key, are recognized by their context, by the relation's owner, whose
 * rights they have, and by how they are spelt.  So only the owner could imitate one, in a
 * trigger that an action or a deletion of ours fires, or in a function that ALTER TABLE
 * calls, and would see expired rows of his own.  The check of the *referenced* side has its operands the other way round,
 * and is an ordinary query here: an expired parent is absent; so is one that stands in
 * for the part of a temporal key that goes.
 *
 * Expired rows that reference what goes don't hold it up.  When a row goes or gets another key, and
 * rows may reference it by a foreign key with NO ACTION or RESTRICT, PostgreSQL searches for one
 * that does:
 *
 *	 SELECT 1 FROM [ONLY] "s"."t" x WHERE $1 OPERATOR(=) "column" [AND ...]
 *	   FOR KEY SHARE OF x
 *
 * That search sees all stored rows.  Before it runs, the rows that its scan returns are collected.
 * If none of them is live, they are deleted as an eviction deletes them: as the user who has
 * changed the referenced row, with triggers, and what references them in turn.  Then
 * PostgreSQL searches.  It skips what has been deleted since its snapshot was taken, and finds the
 * rest: a row that a trigger has kept, one that has been renewed in the meantime, or one that the
 * reaper must leave alone.
 *
 * This is done when the search is about to run, so it covers deferred constraints, partitions and
 * other referential actions.  If no row references what goes, the scan has come to its end, and
 * isn't repeated.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "visibility/visibility.h"

/*
 * Which queries they are
 */

/*
 * True if the text is spelt as that of an action, where foreign keys act.  Few people write so.
 *
 * ri_triggers.c qualifies operators and puts parameters first; few others do.
 */
bool
ttl_fk_acts(const char *query_string)
{
	return InNoForceRLSOperation() && query_string != NULL &&
		strstr(query_string, " WHERE $") != NULL && strstr(query_string, " OPERATOR(") != NULL;
}

/* $n OP column, and not column OP $n, in the first condition; either may be wrapped in casts. */
static bool
begins_with_param(Node *quals)
{
	Node	   *first = is_andclause(quals) ? linitial(((BoolExpr *) quals)->args) : quals;
	OpExpr	   *op = (OpExpr *) first;

	return first != NULL && IsA(first, OpExpr) && list_length(op->args) == 2 &&
		!contain_var_clause(linitial(op->args)) && contain_var_clause(lsecond(op->args));
}

/* True if the query is one of the foreign-key machinery that needs all stored rows. */
bool
ttl_fk_is_action(Query *query, const char *query_string)
{
	RangeTblEntry *rte;

	if (!ttl_fk_acts(query_string) || list_length(query->rtable) != 1 ||
		(query->commandType == CMD_SELECT && query->rowMarks == NIL))
		return false;
	rte = linitial_node(RangeTblEntry, query->rtable);
	return rte->rtekind == RTE_RELATION && ttl_container_owner(rte->relid) == GetUserId() &&
		begins_with_param(query->jointree->quals);
}

/*
 * True if the query is one by which ALTER TABLE validates a foreign key.
 *
 * ADD and VALIDATE FOREIGN KEY:
 *	 SELECT fk.x FROM ONLY t fk LEFT JOIN ONLY p pk ON ... WHERE pk.y IS NULL ...
 * DETACH PARTITION of a referenced table:
 *	 SELECT fk.x FROM ONLY t fk JOIN p pk ON ... WHERE ...
 *
 * A function that ALTER TABLE calls could make one like it, so it sees expired
 * rows of the user's own tables only.
 */
bool
ttl_fk_is_validation(Query *query)
{
	JoinExpr   *join;

	if (!ttl_live_validates() || query->commandType != CMD_SELECT ||
		query->jointree == NULL || list_length(query->jointree->fromlist) != 1 ||
		query->cteList != NIL || query->hasSubLinks || query->rowMarks != NIL)
		return false;
	join = linitial(query->jointree->fromlist);
	return IsA(join, JoinExpr) && IsA(join->larg, RangeTblRef) && IsA(join->rarg, RangeTblRef) &&
		strcmp(rt_fetch(((RangeTblRef *) join->larg)->rtindex, query->rtable)->eref->aliasname, "fk") == 0 &&
		strcmp(rt_fetch(((RangeTblRef *) join->rarg)->rtindex, query->rtable)->eref->aliasname, "pk") == 0;
}

/*
 * What a rule adds to an action has the action's text, and sees the row that is acted on
 * as OLD, expired or not, and live rows otherwise.  The rewriter has put the table that it
 * acts on before the rule's own, of the SELECT if it is one that rows are inserted from.
 */
static void
mark_old(List *rtable)
{
	RangeTblEntry *rte = rtable == NIL ? NULL : linitial_node(RangeTblEntry, rtable);

	if (rte != NULL && rte->rtekind == RTE_RELATION && rte->alias == NULL)
		rte->alias = makeAlias(TTL_ACTED_ON, NIL);
}

/* Gives what a rule calls OLD the alias TTL_ACTED_ON, if a foreign key's action fires the rule. */
void
ttl_fk_mark_old(Query *query, const char *query_string)
{
	ListCell   *lc;

	if (query->querySource == QSRC_ORIGINAL || !ttl_fk_acts(query_string))
		return;
	mark_old(query->rtable);
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_SUBQUERY)
			mark_old(rte->subquery->rtable);
	}
}

/*
 * Expired rows that reference what goes
 */

/* Rows that are deleted at once, where all would need memory without limit. */
#define ROWS_AT_ONCE	10000

/*
 * The container, maybe partitioned, that the execution searches for rows by which a foreign key forbids a
 * change.  Else InvalidOid.  The container's owner could write such a query himself, where foreign keys act, and
 * would lose expired rows of his own tables.
 */
static Oid
searched_table(const QueryDesc *query_desc)
{
	RangeTblEntry *rte;
	TtlContainer container;

	if (!ttl_fk_acts(query_desc->sourceText) || !IsA(query_desc->planstate, LockRowsState))
		return InvalidOid;
	rte = linitial_node(RangeTblEntry, query_desc->plannedstmt->rtable);
	return rte->rtekind == RTE_RELATION && ttl_container_lookup(rte->relid, &container) &&
		container.policy.default_ttl != TTL_OFF && ttl_container_owner(rte->relid) == GetUserId() ?
		rte->relid : InvalidOid;
}

/* True if the row, which the snapshot sees, has expired by then.  It is fetched into the slot. */
static bool
has_row_expired(Relation rel, ItemPointer tid, Snapshot snapshot, TimestampTz expired_at,
				TupleTableSlot *slot)
{
	TtlContainer container;

	return ttl_container_lookup(RelationGetRelid(rel), &container) &&
		table_tuple_fetch_row_version(rel, tid, snapshot, slot) &&
		ttl_expiry_of_slot(&container, slot) <= expired_at;
}

/* Adds a row to those of its table in a list of TtlRelTids. */
static void
add_found_row(List **rows, Oid relid, ItemPointer tid)
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

/* What a call of collect_expired() ends with */
typedef enum Collected
{
	COLLECTED_ALL,
	COLLECTED_SOME,				/* there may be more */
	COLLECTED_LIVE				/* there is one that hasn't expired */
} Collected;

/* A scan of rows on which a foreign key acts, where its rows have their TIDs, and the table of the last one */
typedef struct Search
{
	PlanState  *scan;
	Oid			relid;			/* the only table */
	AttrNumber	tid_attno;
	AttrNumber	relid_attno;	/* invalid if there is but one table */
	Relation	rel;			/* NULL before the first row */
	TupleTableSlot *slot;		/* of that table */
	Oid			checks_of;		/* the last table of which is known whether
								 * ... */
	bool		has_checks;		/* ... checks of foreign keys may be to come */
} Search;

/* Finds the scan below LockRows; false if it returns no rows. */
static bool
find_search(PlanState *top, Search *search)
{
	LockRowsState *locking = (LockRowsState *) top;
	ExecAuxRowMark *mark = locking->lr_arowMarks == NIL ? NULL : linitial(locking->lr_arowMarks);

	if (mark == NULL)
		return false;
	search->scan = outerPlanState(top);
	search->relid = mark->rowmark->relid;
	search->tid_attno = mark->ctidAttNo;
	search->relid_attno = mark->toidAttNo;
	search->rel = NULL;
	return true;
}

/* Closes the table of the last row, if there is one. */
static void
close_table(Search *search)
{
	if (search->rel == NULL)
		return;
	ExecDropSingleTupleTableSlot(search->slot);
	table_close(search->rel, NoLock);
	search->rel = NULL;
}

/* The TID of the next row that the scan returns, whose table is opened; NULL if there is none. */
static ItemPointer
next_row(Search *search)
{
	MemoryContext old = MemoryContextSwitchTo(search->scan->state->es_query_cxt);
	TupleTableSlot *slot = ExecProcNode(search->scan);
	Oid			relid = search->relid;
	bool		isnull;

	MemoryContextSwitchTo(old);
	if (TupIsNull(slot))
		return NULL;
	if (AttributeNumberIsValid(search->relid_attno))
		relid = DatumGetObjectId(ExecGetJunkAttribute(slot, search->relid_attno, &isnull));
	if (search->rel == NULL || RelationGetRelid(search->rel) != relid)
	{
		close_table(search);
		search->rel = table_open(relid, NoLock);	/* the scan has locked it */
		search->slot = table_slot_create(search->rel, NULL);
	}
	return (ItemPointer) DatumGetPointer(ExecGetJunkAttribute(slot, search->tid_attno, &isnull));
}

/* Collects rows (TtlRelTids) that the scan returns, among the next ones, up to one that hasn't expired. */
static Collected
collect_expired(Search *search, TimestampTz expired_at, List **rows)
{
	Snapshot	snapshot = search->scan->state->es_snapshot;
	Collected	result = COLLECTED_SOME;

	for (int n = 0; n < ROWS_AT_ONCE && result == COLLECTED_SOME; n++)
	{
		ItemPointer tid = next_row(search);

		if (tid == NULL)
			result = COLLECTED_ALL;
		else if (has_row_expired(search->rel, tid, snapshot, expired_at, search->slot))
			add_found_row(rows, RelationGetRelid(search->rel), tid);
		else
			result = COLLECTED_LIVE;
	}
	close_table(search);
	return result;
}

/* True if the execution (NULL = none) writes a table of that owner. */
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

/* The user whose statement has the check done, in that execution or at the transaction's end */
static Oid
checking_role(const TtlExecution *outer)
{
	Oid			role = ttl_execution_constraints_role(outer);

	if (OidIsValid(role))
		return role;
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
	user->role = checking_role(outer);
	user->written_owner = writes_table_of(outer, owner) ? owner : InvalidOid;
	return user;
}

/*
 * Deletes what the search in that table would find, if all of it has expired.  False if the search would
 * find nothing.
 *
 * The rows are deleted as the user, whose statement may itself be an action of a foreign key; PostgreSQL
 * has switched to the owner of the referencing table.
 */
static bool
take_expired_along(Oid table, const TtlExecution *execution, const TtlExecution *outer)
{
	Search		search;
	TtlSessionUser local;
	TtlSessionUser *user;

	/* neither what only ttl.now hides is deleted, nor what it shows */
	TimestampTz expired_at = ttl_deletion_cutoff(table, Min(execution->clock, execution->reading_now));
	MemoryContext context;
	MemoryContext old;
	bool		found = false;
	Collected	collected;

	if (!find_search(execution->query_desc->planstate, &search))
		return false;
	user = find_user(outer, ttl_container_owner(table), &local);
	context = AllocSetContextCreate(CurrentMemoryContext, "ttl referencing rows",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	do
	{
		List	   *rows = NIL;

		collected = collect_expired(&search, expired_at, &rows);
		found = found || rows != NIL || collected == COLLECTED_LIVE;
		if (collected != COLLECTED_LIVE)
			ttl_deletion_run_dependents(rows, expired_at, user, outer);
		MemoryContextReset(context);
	} while (collected == COLLECTED_SOME);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (found)
		ExecReScan(search.scan);
	return found;
}

/*
 * Rows whose own foreign keys may still have to be checked
 */

/*
 * True if the execution, which a deletion has set off where foreign keys act, is a CASCADE, SET NULL or SET DEFAULT:
 * no search or check, which write nothing, and not what a rule adds to it, which has OLD first.
 */
static bool
acts_on_rows(const QueryDesc *query_desc)
{
	return IsA(query_desc->planstate, ModifyTableState) &&
		((ModifyTable *) query_desc->planstate->plan)->nominalRelation == 1;
}

/*
 * True if foreign keys of the last row's table may still have to be checked; where their triggers don't fire, none of
 * its rows has been.  PostgreSQL is asked once, for it looks through all that are deferred, of any table.
 */
static bool
has_checks_to_come(Search *search)
{
	Oid			relid = RelationGetRelid(search->rel);

	if (search->checks_of != relid)
		search->has_checks = SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA ||
			AfterTriggerPendingOnRel(relid);
	search->checks_of = relid;
	return search->has_checks;
}

/* Where the rows are on which the action acts, whose row ids ModifyTable gets */
static void
find_acted_on(ModifyTableState *action, Search *search)
{
	ResultRelInfo *target = action->resultRelInfo;

	search->scan = outerPlanState(action);
	search->relid = RelationGetRelid(target->ri_RelationDesc);
	search->tid_attno = target->ri_RowIdAttNo;
	search->relid_attno = action->mt_resultOidAttno;
	search->rel = NULL;
	search->checks_of = InvalidOid;
}

/*
 * Errors (23503) if the action, set off by a deletion of ours, is about to take or change a live row of which foreign
 * keys may still have to be checked.
 *
 * Such a row may never have referenced the expired row, whose key was free for the user, but what takes its place.
 * To spare it instead would leave an orphan where it has been checked after all, or another key is what is free.
 */
static void
refuse_unchecked_rows(PlanState *action)
{
	Snapshot	snapshot = action->state->es_snapshot;
	Search		search;
	ItemPointer tid;

	find_acted_on((ModifyTableState *) action, &search);
	while ((tid = next_row(&search)) != NULL)
	{
		if (table_tuple_fetch_row_version(search.rel, tid, snapshot, search.slot) &&
			ttl_fk_check_own_header(search.slot) != NULL && has_checks_to_come(&search) &&
			!has_row_expired(search.rel, tid, snapshot, ttl_execution_reference_time(), search.slot))
			ereport(ERROR,
					(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
					 errmsg("a row of table \"%s\" that this transaction has written references an expired row that is to be deleted",
							RelationGetRelationName(search.rel)),
					 errdetail("The reference has still to be checked, and may be to the row that takes the place of the expired one.")));
	}
	close_table(&search);
	ExecReScan(search.scan);
}

/*
 * The current execution, inside of 'outer' (NULL = none), is about to run.  If it checks a foreign
 * key, expired rows that hold it up are deleted before; false if it would find nothing then.
 */
bool
ttl_fk_delete_expired_before(const TtlExecution *outer)
{
	TtlExecution *execution = ttl_execution_current();
	Oid			table;

	if (!InNoForceRLSOperation() || execution == NULL || !execution->observed ||
		ttl_container_objects() == NULL)
		return true;

	/*
	 * the reaper's transactions, and an INSERT of one row, have written none
	 * before
	 */
	if (ttl_deletion_follows_writes(outer) && acts_on_rows(execution->query_desc))
		refuse_unchecked_rows(execution->query_desc->planstate);
	table = searched_table(execution->query_desc);
	if (!OidIsValid(table) || ttl_live_is_shown(table))
		return true;
	return take_expired_along(table, execution, outer);
}
