/*-------------------------------------------------------------------------
 *
 * fk_check.c
 *	  Nobody is stopped by a referencing row that nobody sees.
 *
 * When a row goes or gets another key, and rows may reference it by a foreign
 * key with NO ACTION or RESTRICT, PostgreSQL searches for one that does:
 *
 *	 SELECT 1 FROM [ONLY] "s"."t" x WHERE $1 OPERATOR(=) "column" [AND ...]
 *	   FOR KEY SHARE OF x
 *
 * That search sees all stored rows (fk_queries.c), for an orphan is none the better for
 * being hidden.  So if the table is a container, and none of its live rows is
 * found, the expired ones are deleted for good first, as an eviction deletes them:
 * in the session of who has changed the referenced row, with triggers, archive, and what
 * references them in turn.
 * Then PostgreSQL searches: it skips what has been deleted since the search
 * began, and takes offence at the rest, be it a row that a trigger has kept, one
 * that has been renewed in the meantime, or one that the reaper must leave alone,
 * whose deletion it is.
 *
 * All that is done when the search is about to run, so it holds for each way that
 * leads there: deferred constraints, partitions, other actions.  It costs nothing
 * if no row is stored that references: the search has then been done for ours, and
 * isn't repeated.
 *
 * What a rule adds to an action (CASCADE, SET NULL, SET DEFAULT) sees the row that
 * is acted on as OLD, expired or not, and live rows otherwise.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "compat.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/params.h"
#include "parser/parsetree.h"
#include "tcop/dest.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utility.h"
#include "visibility/visibility.h"

#define SEARCH_ENDS	" FOR KEY SHARE OF x"

/* A search for rows that forbid a change */
typedef struct Search
{
	Oid			table;			/* a container, may be partitioned */
	char	   *query;			/* without the lock */
	char	   *condition;		/* what follows WHERE in it */
	int			nargs;
	Oid		   *types;
	Datum	   *values;
} Search;

/* Always in quotes, as ri_triggers.c has it */
static void
append_quoted(StringInfo buf, const char *name)
{
	appendStringInfoChar(buf, '"');
	for (; *name != '\0'; name++)
	{
		if (*name == '"')
			appendStringInfoChar(buf, '"');
		appendStringInfoChar(buf, *name);
	}
	appendStringInfoChar(buf, '"');
}

/* The statement up to what it does, as ri_triggers.c begins it */
static char *
begin_statement(const char *verb, const RangeTblEntry *rte, const char *rest)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, verb);
	if (rte->relkind == RELKIND_RELATION)
		appendStringInfoString(&buf, "ONLY ");
	append_quoted(&buf, get_namespace_name(get_rel_namespace(rte->relid)));
	appendStringInfoChar(&buf, '.');
	append_quoted(&buf, get_rel_name(rte->relid));
	appendStringInfoString(&buf, rest);
	return buf.data;
}

static bool
begins_with(const char *text, const char *beginning)
{
	return strncmp(text, beginning, strlen(beginning)) == 0;
}

/*
 * Is the execution such a search, by a container's owner?  He could write one like
 * it himself, where foreign keys act, and would see and lose expired rows of his
 * own tables.
 */
static bool
read_search(QueryDesc *query_desc, Search *search)
{
	ParamListInfo params = query_desc->params;
	List	   *rtable = query_desc->plannedstmt->rtable;
	const char *text = query_desc->sourceText;
	RangeTblEntry *rte;
	TtlContainer container;
	char	   *begin;
	int			length;

	if (!InNoForceRLSOperation() || query_desc->operation != CMD_SELECT ||
		params == NULL || params->numParams == 0 || params->paramFetch != NULL ||
		rtable == NIL || strstr(text, " x WHERE $1") == NULL)
		return false;			/* above all the check of a referenced row,
								 * which begins with its column */
	rte = linitial_node(RangeTblEntry, rtable);
	if (rte->rtekind != RTE_RELATION || !ttl_container_lookup(rte->relid, &container) ||
		container.default_ttl == TTL_OFF || ttl_container_owner(rte->relid) != GetUserId())
		return false;

	begin = begin_statement("SELECT 1 FROM ", rte, " x WHERE ");
	length = strlen(text) - strlen(SEARCH_ENDS);
	if (!begins_with(text, begin) || length <= (int) strlen(begin) ||
		strcmp(text + length, SEARCH_ENDS) != 0)
		return false;

	search->table = rte->relid;
	search->query = pnstrdup(text, length);
	search->condition = search->query + strlen(begin);
	search->nargs = params->numParams;
	search->types = palloc(sizeof(Oid) * search->nargs);
	search->values = palloc(sizeof(Datum) * search->nargs);
	for (int i = 0; i < search->nargs; i++)
	{
		if (params->params[i].isnull)
			return false;
		search->types[i] = params->params[i].ptype;
		search->values[i] = params->params[i].value;
	}
	return true;
}

/* Would it find a row, were it run now?  Leaves it as if it hadn't been. */
static bool
finds_stored(QueryDesc *query_desc)
{
	DestReceiver *dest = query_desc->dest;
	bool		found;

	query_desc->dest = None_Receiver;
	TtlExecutorRun(query_desc, ForwardScanDirection, 1);
	found = query_desc->estate->es_processed > 0;
	query_desc->dest = dest;
	query_desc->already_executed = false;
	if (found)
		ExecutorRewind(query_desc);
	return found;
}

/* An ordinary statement, which the filter is put into */
static bool
finds_live(const Search *search)
{
	SPIPlanPtr	plan;
	bool		found;

	SPI_connect();
	plan = SPI_prepare(search->query, search->nargs, search->types);
	if (plan == NULL ||
		SPI_execute_plan(plan, search->values, NULL, false, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not execute \"%s\"", search->query);
	found = SPI_processed > 0;
	SPI_finish();
	return found;
}

/* Does the execution write a table of that owner?  NULL = none runs. */
static bool
writes_table_of(const TtlExecution *execution, Oid owner)
{
	const PlannedStmt *stmt = execution == NULL ? NULL : execution->query_desc->plannedstmt;
	ListCell   *lc;

	foreach(lc, stmt == NULL ? NIL : stmt->resultRelations)
	{
		if (ttl_container_owner(rt_fetch(lfirst_int(lc), stmt->rtable)->relid) == owner)
			return true;
	}
	return false;
}

/* A SET CONSTRAINTS that runs; a function may be SECURITY DEFINER that executes it */
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

/* Who has the check done that runs in that execution, or at the transaction's end? */
static Oid
checking_role(const TtlExecution *outer)
{
	Setting    *setting = settings == NIL ? NULL : linitial(settings);

	if (setting != NULL && setting->outer == outer)
		return setting->role;
	return outer != NULL ? outer->role : GetOuterUserId();
}

/*
 * In the session of who executes that statement, which may itself be an action of a foreign
 * key; PostgreSQL has switched to the owner of the referencing table.
 */
static void
delete_expired(const Search *search, const TtlExecution *execution, const TtlExecution *outer)
{
	Relation	table = table_open(search->table, RowExclusiveLock);
	Oid			owner = table->rd_rel->relowner;
	TtlEviction eviction = {
		.container = RelationGetRelationName(table),
		.reason = "references what is deleted or gets another key",
		.by_owner = ttl_container_is_owner(execution->user, search->table),
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
	ttl_deletion_run_referencing(table, search->condition, search->nargs,
								 search->types, search->values, execution->clock,
								 &eviction.user);
	error_context_stack = context.previous;
	table_close(table, NoLock);
}

/*
 * Rules
 */

/*
 * What a rule adds to an action has the action's text.  The rewriter has put the
 * table that it acts on before the rule's own, of the SELECT if it is one that
 * rows are inserted from.
 */
static void
mark_old(List *rtable, const char *text)
{
	RangeTblEntry *rte = rtable == NIL ? NULL : linitial_node(RangeTblEntry, rtable);

	if (rte != NULL && rte->rtekind == RTE_RELATION && rte->alias == NULL &&
		(begins_with(text, begin_statement("DELETE FROM ", rte, " WHERE $1")) ||
		 begins_with(text, begin_statement("UPDATE ", rte, " SET "))))
		rte->alias = makeAlias(TTL_STORED, NIL);
}

void
ttl_fk_check_mark_old(Query *query, const char *text)
{
	ListCell   *lc;

	if (!InNoForceRLSOperation() || query->querySource == QSRC_ORIGINAL || text == NULL ||
		strstr(text, " WHERE $") == NULL || strstr(text, " OPERATOR(") == NULL)
		return;
	mark_old(query->rtable, text);
	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_SUBQUERY)
			mark_old(rte->subquery->rtable, text);
	}
}

static bool
execution_runs(TtlExecution *execution, const TtlExecution *outer)
{
	Search		search;

	if (ttl_container_objects() == NULL || !read_search(execution->query_desc, &search))
		return true;
	if (!finds_stored(execution->query_desc))
		return false;
	if (!finds_live(&search))
		delete_expired(&search, execution, outer);
	return true;
}

void
ttl_fk_check_init(void)
{
	ttl_execution_on_run(execution_runs);
	ttl_utility_observe(before_command, NULL, command_ends);
}
