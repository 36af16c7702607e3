/*-------------------------------------------------------------------------
 *
 * marks.c
 *	  Statements on distributed tables that see stored rows: the decision travels to the
 *	  shards with each query.
 *
 * Where the session, or a query of Citus's own (extents.c), sees stored rows, each shell in
 * the query gets an alias, which Citus deparses into the queries on shards: whatever it
 * makes of the query, in a transaction block or not, by any connection.  COPY of a shell
 * gets an option instead, which Citus hands on unread.  On shells the alias and the option
 * are ours alone: those that users write are taken away.
 *
 * In a session that Citus has opened on a node, row_security is off while a query with
 * the alias, or a COPY with the option, runs, and on in all others, whatever has been
 * set.  So the rules for row_security = off hold on the shard: the owner, superusers and
 * BYPASSRLS roles see stored rows, foreign-key checks included.  In other sessions the
 * alias means nothing, except for the user's own shards in an extent (extents.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "citus/citus.h"
#include "citus/citus_internal.h"
#include "commands/defrem.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"

#define STORED_OPTION	"ttl_stored"

typedef struct Marks
{
	/* what to do */
	bool		shows;			/* mark all shells */
	bool		keeps;			/* leave the marks of shells that there are */
	bool		looks;			/* look for shells without marks, too */

	/* what there is */
	bool		found;			/* marked tables that are no shells, ... */
	bool		of_others;		/* ... one of which isn't the user's */
	bool		shells;
	bool		views;
} Marks;

/* Sets or takes away the marks of shells, and notes what the query has, as the Marks in context tell. */
static bool
mark_walker(Node *node, void *context)
{
	Marks	   *marks = context;
	RangeTblEntry *rte = (RangeTblEntry *) node;
	bool		is_marked;

	if (node == NULL)
		return false;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, mark_walker, context, QTW_EXAMINE_RTES_BEFORE);
	if (!IsA(node, RangeTblEntry))
		return expression_tree_walker(node, mark_walker, context);
	/* EXCLUDED has its name */
	if (rte->rtekind != RTE_RELATION || rte->relkind == RELKIND_COMPOSITE_TYPE)
		return false;
	/* several in a query get numbers */
	is_marked = strncmp(rte->eref->aliasname, TTL_STORED, strlen(TTL_STORED)) == 0;
	if ((is_marked || marks->shows || marks->looks) && ttl_citus_is_distributed(rte->relid))
	{
		marks->shells = true;
		if (marks->shows || (is_marked && !marks->keeps))
		{
			/* Citus deparses the alias; eref is what is looked at here */
			rte->eref->aliasname = marks->shows ? TTL_STORED : get_rel_name(rte->relid);
			rte->alias = makeAlias(rte->eref->aliasname, rte->alias == NULL ? NIL : rte->alias->colnames);
		}
	}
	else
	{
		marks->found |= is_marked;
		marks->of_others |= is_marked && !ttl_container_is_owner(GetUserId(), rte->relid);
		marks->views |= rte->relkind == RELKIND_VIEW;
	}
	return false;
}

/* True if another node has opened the session to run queries: it says so when it connects. */
static bool
is_opened_by_node(void)
{
	const char *name = GetConfigOptionResetString("application_name");

	/*
	 * what the user may SET later isn't looked at; run_command and the
	 * rebalancer have names of their own
	 */
	return MyProcPort != NULL && name != NULL &&
		strncmp(name, "citus_internal ", strlen("citus_internal ")) == 0;
}

/* Until the transaction ends, or the next statement */
static void
set_locally(const char *setting, bool on)
{
	const char *value = on ? "on" : "off";
	const char *present = GetConfigOption(setting, true, false);

	/* an older Citus may not have the setting */
	if (present != NULL && strcmp(present, value) != 0)
		(void) set_config_option(setting, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * Its own queries are planned as if all rows were live; users' queries on shells only carry the mark
 * to the shards.
 */
bool
ttl_citus_prepare_query(Query *query)
{
	bool		is_own;
	Marks		marks = {0};

	if (query->commandType == CMD_UTILITY || !ttl_citus_is_here())
		return false;
	/* queries that a command itself has are its user's */
	is_own = ttl_citus_runs_own() && (ttl_citus_in_call() || query->commandType == CMD_INSERT);
	marks.shows = is_own || ttl_live_session_shows();
	(void) mark_walker((Node *) query, &marks);
	if (ttl_citus_in_extent())
		return is_own || (marks.found && !marks.of_others);

	/*
	 * nested queries are those of functions, or such that Citus passes to its
	 * own as text
	 */
	if (is_opened_by_node() && (marks.found || ttl_execution_depth() == 0))
		set_locally("row_security", !marks.found);
	return false;
}

/*
 * Decided by whether any table in the query is a shell: then Citus plans it, and shards get what it
 * deparses.
 */
TtlStampFor
ttl_citus_stamp_for(Query *query, Oid target)
{
	Marks		marks = {.looks = true, .keeps = true};

	/*
	 * what is selected for a plain table is inserted by a plan that isn't
	 * made anew
	 */
	if (!ttl_citus_is_here() || (query->commandType == CMD_INSERT && !ttl_citus_is_distributed(target)))
		return TTL_STAMP_OWN;
	(void) mark_walker((Node *) query, &marks);
	if (!marks.shells)
		return TTL_STAMP_OWN;
	if (query->commandType == CMD_UPDATE && ttl_citus_distribution(target) == TTL_DISTRIBUTED_IN_COPIES)
		return TTL_STAMP_COPIES;

	/*
	 * so Citus would plan a statement on a shard of this node without calling
	 * planner_hook
	 */
	if (query->commandType == CMD_UPDATE || query->onConflict != NULL)
		set_locally("citus.enable_local_fast_path_query_optimization", false);
	return TTL_STAMP_SHARDS;
}

/* A generic plan has the alias or not: such a query is planned anew when row_security changes. */
void
ttl_citus_analyzed(Query *query)
{
	Marks		marks = {.looks = true};

	if (query->commandType == CMD_UTILITY || query->rtable == NIL || !ttl_citus_is_here() ||
		ttl_container_objects() == NULL)
		return;
	/* a view may hide a shell, and is expanded later */
	(void) mark_walker((Node *) query, &marks);
	query->hasRowSecurity |= marks.shells || marks.views;
}

/* True if Citus will have each shard copied by a COPY with the same options. */
static bool
is_copied_by_shards(const CopyStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		/* there Citus selects the rows instead */
		if (strcmp(option->defname, "format") == 0 && strcmp(defGetString(option), "binary") == 0)
			return false;
	}
	return !stmt->is_from && stmt->filename == NULL && !stmt->is_program;
}

/* COPY has no alias: its mark is an option, which is taken away on the shard before PostgreSQL reads it. */
void
ttl_marks_copy_begins(CopyStmt *stmt)
{
	DefElem    *mark = NULL;
	Oid			relid;
	TtlContainer container;
	ListCell   *lc;

	if (stmt->relation == NULL)
		return;
	foreach(lc, stmt->options)
	{
		if (strcmp(lfirst_node(DefElem, lc)->defname, STORED_OPTION) == 0)
			mark = lfirst(lc);
	}
	relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	if (ttl_citus_is_distributed(relid))
	{
		if (mark != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_SYNTAX_ERROR),
					 errmsg("option \"%s\" not recognized", STORED_OPTION)));
		if (is_copied_by_shards(stmt) && ttl_live_session_shows() &&
			ttl_container_peek(relid, &container))
			stmt->options = lappend(stmt->options, makeDefElem(pstrdup(STORED_OPTION), NULL, -1));
	}
	else if (is_opened_by_node())
	{
		set_locally("row_security", mark == NULL);
		stmt->options = list_delete_ptr(stmt->options, mark);
	}
}
