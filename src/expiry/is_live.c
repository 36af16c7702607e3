/*-------------------------------------------------------------------------
 *
 * is_live.c
 *	  The filter functions, what is resolved for them in an execution, and who sees stored rows.
 *
 * ttl.is_live() is the rule of expiry.c as a filter, and so is ttl.is_expired() for
 * deletions.  Plans carry them with the table's OID and the two columns; all else is
 * resolved when an execution starts: the policy, the clock, and whether this
 * execution hides anything.  So a change of policy reaches plans that are already
 * made, and no cursor in its middle.
 *
 * A constraint holds for all stored rows, the hidden ones among them.  So an error that these cause
 * in a command that validates one is explained; and while ALTER TABLE validates a foreign key, its
 * queries see them, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "container/container.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "guc.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "replication/walsender.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/timestamp.h"

/*
 * Commands that hold stored rows against a constraint
 */

static TtlValidation *validation = NULL;

/*
 * True while ALTER TABLE is at work that may validate a foreign key, and the session
 * is about to plan or execute a query of it.  Not if an execution runs inside of
 * it: that would be user code that it has called.
 */
bool
ttl_live_validates(void)
{
	return validation != NULL && validation->is_alter_table &&
		ttl_execution_depth() == validation->depth;
}

/* A command that we run for this one explains itself. */
static void
explain_violation(void *arg)
{
	TtlValidation *failed = arg;
	int			error = geterrcode();

	if ((error == ERRCODE_UNIQUE_VIOLATION || error == ERRCODE_EXCLUSION_VIOLATION ||
		 error == ERRCODE_CHECK_VIOLATION || error == ERRCODE_NOT_NULL_VIOLATION ||
		 (error == ERRCODE_FOREIGN_KEY_VIOLATION && !failed->detaches)) &&
		failed == validation && ttl_execution_depth() == failed->depth)
		errhint("Expired rows count until they are deleted. Delete them with CALL ttl.reap(%s).", failed->container);
}

/* True for DETACH PARTITION: what it holds against a foreign key are rows of the tables that reference the partition. */
static bool
detaches_partition(Node *stmt)
{
	ListCell   *lc;

	foreach(lc, IsA(stmt, AlterTableStmt) ? ((AlterTableStmt *) stmt)->cmds : NIL)
	{
		if (lfirst_node(AlterTableCmd, lc)->subtype == AT_DetachPartition)
			return true;
	}
	return false;
}

/*
 * The table whose rows the command may hold against a constraint: it builds a
 * unique index, validates, or takes rows from a default partition.  NULL for
 * other commands.
 */
static RangeVar *
validated_table(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_AlterTableStmt:
			return ((AlterTableStmt *) stmt)->relation;
		case T_IndexStmt:
			return ((IndexStmt *) stmt)->unique ? ((IndexStmt *) stmt)->relation : NULL;
		case T_CreateStmt:
			return ((CreateStmt *) stmt)->partbound != NULL ?
				linitial_node(RangeVar, ((CreateStmt *) stmt)->inhRelations) : NULL;
		case T_ReindexStmt:
			return ((ReindexStmt *) stmt)->relation;
		default:
			return NULL;
	}
}

/*
 * Before each utility command; does nothing unless it may hold stored rows against a constraint.
 * 'inner' is the caller's, and is in use until ttl_live_end_validation().
 */
void
ttl_live_begin_validation(TtlValidation *inner, Node *stmt)
{
	RangeVar   *table = validated_table(stmt);
	TtlContainer container;
	Oid			relid;

	if (table == NULL)
		return;
	/* without a lock: no more than a hint depends on it */
	relid = RangeVarGetRelid(table, NoLock, true);
	if (IsA(stmt, ReindexStmt) && OidIsValid(relid) &&
		((ReindexStmt *) stmt)->kind == REINDEX_OBJECT_INDEX)
		relid = IndexGetRelation(relid, true);
	inner->depth = ttl_execution_depth();
	inner->is_alter_table = IsA(stmt, AlterTableStmt);
	inner->detaches = detaches_partition(stmt);
	inner->context.callback = explain_violation;
	inner->context.arg = inner;
	inner->context.previous = error_context_stack;
	if (OidIsValid(relid) && ttl_container_peek(relid, &container))
	{
		/*
		 * the callback can't look into catalogs: a partition is reaped by its
		 * container's name
		 */
		inner->container = quote_literal_cstr(ttl_container_table_name(container.container));
		error_context_stack = &inner->context;
	}
	inner->outer = validation;
	validation = inner;
}

/* After the command, also if it has failed. */
void
ttl_live_end_validation(TtlValidation *inner)
{
	/* the command may have failed before it began */
	if (validation != inner)
		return;
	/* after an error PostgreSQL has done it */
	if (error_context_stack == &inner->context)
		error_context_stack = inner->context.previous;
	validation = inner->outer;
}

/*
 * What is resolved for an execution, and the filters
 */

/*
 * True in a session of pg_dump.  It is known by the way it reads, with any option;
 * with --enable-row-security it sets row_security on, and must not leave expired
 * rows out of a backup for that.  A session that imitates it could set row_security off as
 * well.  (In a parallel worker XactReadOnly is not set.)
 */
static bool
is_dumping(void)
{
	return !synchronize_seqscans && namespace_search_path[0] == '\0' &&
		IsolationUsesXactSnapshot() && (XactReadOnly || IsParallelWorker());
}

/* A container by way of which ON UPDATE CASCADE has handed on changed keys */
typedef struct HandedOn
{
	Oid			container;
	TransactionId by;			/* the subtransaction, maybe the topmost */
} HandedOn;

/*
 * All of them (HandedOn) of the transaction with that ID: deferred checks are done at its end, or by SET CONSTRAINTS,
 * and belong to no execution.
 */
static List *handed_on = NIL;
static TransactionId handed_on_in = InvalidTransactionId;

/* Finds it among these, unless the subtransaction has been rolled back; else NULL. */
static HandedOn *
find_handed_on(Oid container)
{
	ListCell   *lc;

	/* an earlier transaction's list went with its memory */
	if (!TransactionIdIsValid(handed_on_in) || handed_on_in != GetTopTransactionIdIfAny())
		return NULL;
	foreach(lc, handed_on)
	{
		HandedOn   *found = lfirst(lc);

		if (found->container == container && TransactionIdIsCurrentTransactionId(found->by))
			return found;
	}
	return NULL;
}

/*
 * Remembers it to the transaction's end.  Where it is known already, and a ROLLBACK TO would make that be forgotten,
 * it would undo this, too.
 */
static void
remember_for_deferred(Oid container)
{
	MemoryContext old;
	HandedOn   *added;

	if (find_handed_on(container) != NULL)
		return;
	if (handed_on_in != GetTopTransactionId())
		handed_on = NIL;
	handed_on_in = GetTopTransactionId();
	old = MemoryContextSwitchTo(TopTransactionContext);
	added = palloc(sizeof(HandedOn));
	added->container = container;
	added->by = GetCurrentTransactionId();
	handed_on = lappend(handed_on, added);
	MemoryContextSwitchTo(old);
}

/*
 * True if a row that is checked in that execution (NULL = in none) may have followed the change of a
 * key by way of the container.
 */
static bool
has_handed_on(Oid container, const TtlExecution *outer)
{
	if (ttl_execution_checks_deferred(outer))
		return find_handed_on(container) != NULL;
	return outer != NULL && outer->hands_on_keys && list_member_oid(outer->cascaded, container);
}

/*
 * It may by row_security = off, which pg_dump and the scripts it writes set, by
 * ttl.show_expired, or as a walsender, which copies tables to subscribers.
 * Foreign-key checks follow the first only; and they see all rows while a
 * constraint is validated.  What a materialized view is filled with stays, so
 * the REFRESH in such a script is filtered.
 */
static bool
is_shown_to(Oid container, TtlExecution *execution)
{
	Oid			user = execution ? execution->user : GetUserId();
	bool		user_changed = execution ? execution->user_changed : InLocalUserIdChange();
	Oid			owner;

	if (InNoForceRLSOperation())
	{
		/*
		 * What foreign keys do runs as the container's owner; the rest are
		 * triggers and functions of others that run in its midst.
		 */
		if (ttl_container_owner(container) != GetUserId())
			return false;

		/*
		 * ALTER TABLE validates a foreign key row by row; or a row of another
		 * container is checked that has followed the change of a key by way
		 * of this one, and must not be stopped by a hidden row.  SET DEFAULT
		 * follows nothing: the row that it references is one like any other.
		 */
		if (ttl_live_validates() || has_handed_on(container, ttl_execution_current()))
			return true;
	}
	else if (ttl_guc_show_expired || am_db_walsender)
		return true;
	if ((row_security && !is_dumping()) || user_changed || InSecurityRestrictedOperation())
		return false;
	owner = ttl_container_owner(container);
	return OidIsValid(owner) &&
		(has_privs_of_role(user, owner) || has_bypassrls_privilege(user));
}

/* True if what starts now in this session sees expired rows of containers that the user owns. */
bool
ttl_live_session_shows(void)
{
	return (!row_security || is_dumping()) && !InLocalUserIdChange() &&
		!InSecurityRestrictedOperation();
}

/*
 * True if the running execution, or whatever the session does outside of one, may see
 * expired rows of the container.
 */
bool
ttl_live_is_shown(Oid container)
{
	return is_shown_to(container, ttl_execution_current());
}

/* Sets the time by which rows have expired, and what follows from it for the default TTL. */
static void
set_cutoff(TtlLive *state, TimestampTz now)
{
	state->now = now;
	if (state->default_ttl > 0)
		state->default_cutoff = ttl_expiry_cutoff(now, state->default_ttl);
}

/* Resolves a container for one of the filters, as of now. */
static void
resolve(TtlLive *state, Oid container, bool deletes, TtlExecution *execution)
{
	TtlContainer c;
	bool		found = ttl_container_peek(container, &c);

	state->container = container;
	state->deletes = deletes;
	state->default_ttl = found ? c.policy.default_ttl : TTL_OFF;
	state->sees_everything = !deletes &&
		(state->default_ttl == TTL_OFF || is_shown_to(container, execution));
	/* only who sees all rows needs no column to tell them apart */
	if (found && !state->sees_everything)
		ttl_container_require_columns(&c);
	if (execution == NULL)
		set_cutoff(state, ttl_expiry_reading_now());
	else
		set_cutoff(state, deletes ? execution->expired_at : execution->reading_now);
}

/* Adds an empty state to those of the execution, in its memory. */
static TtlLive *
add_state(TtlExecution *execution)
{
	MemoryContext old = MemoryContextSwitchTo(execution->query_desc->estate->es_query_cxt);
	TtlLive    *state = palloc0(sizeof(TtlLive));

	execution->policies = lappend(execution->policies, state);
	MemoryContextSwitchTo(old);
	return state;
}

/*
 * For one of the filters: what has been resolved for it since the execution started, or else is
 * now.  The result is good as long as that runs, and its parallel workers get a copy.
 */
const TtlLive *
ttl_live_resolve(TtlExecution *execution, Oid container, bool deletes)
{
	TtlLive		resolved;
	TtlLive    *state;
	ListCell   *lc;

	foreach(lc, execution->policies)
	{
		state = lfirst(lc);
		if (state->container == container && state->deletes == deletes)
			return state;
	}

	/* A policy that was committed before this counts. */
	AcceptInvalidationMessages();
	/* aside, for it may fail, and looks at what is resolved already */
	resolve(&resolved, container, deletes, execution);
	state = add_state(execution);
	*state = resolved;
	return state;
}

/*
 * Hands over to parallel workers what is resolved, when the execution is about to run: once, and
 * not while the executor runs.
 */
void
ttl_live_lead(QueryDesc *query_desc)
{
	TtlExecution *execution;
	StringInfoData text;
	MemoryContext old;
	ListCell   *lc;

	if (!query_desc->plannedstmt->parallelModeNeeded || IsParallelWorker())
		return;
	execution = ttl_execution_of(query_desc->estate);
	if (execution == NULL || execution->handed_over != NULL)
		return;
	old = MemoryContextSwitchTo(query_desc->estate->es_query_cxt);
	initStringInfo(&text);
	appendStringInfo(&text, INT64_FORMAT " " INT64_FORMAT,
					 execution->clock, execution->reading_now);
	foreach(lc, execution->policies)
	{
		TtlLive    *state = lfirst(lc);

		/* deletions are not parallel */
		if (!state->deletes)
			appendStringInfo(&text, " %u %d %d", state->container, state->default_ttl,
							 state->sees_everything);
	}
	execution->handed_over = text.data;
	MemoryContextSwitchTo(old);
}

/* In a parallel worker: takes over what its leader has resolved. */
void
ttl_live_follow_leader(TtlExecution *execution)
{
	char	   *text;

	(void) strtoi64(ttl_execution_leader(), &text, 10);
	execution->reading_now = strtoi64(text, &text, 10);
	while (*text != '\0')
	{
		TtlLive    *state = add_state(execution);

		state->container = strtoul(text, &text, 10);
		state->default_ttl = strtol(text, &text, 10);
		state->sees_everything = strtol(text, &text, 10) != 0;
		set_cutoff(state, execution->reading_now);
	}
}

/* An action of a foreign key updates the container. */
static void
remember_cascade(TtlExecution *outer, Oid container)
{
	MemoryContext old = MemoryContextSwitchTo(outer->query_desc->estate->es_query_cxt);

	outer->cascaded = list_append_unique_oid(outer->cascaded, container);
	MemoryContextSwitchTo(old);
}

/*
 * An execution has started: resolves what a deletion deletes from, and remembers to which
 * containers foreign keys have cascaded.  What is hidden is resolved by scan_filter.c.
 */
void
ttl_live_started(TtlExecution *execution, int eflags)
{
	TtlExecution *outer = ttl_execution_current();
	bool		deletes = execution->row_mode == TTL_SEES_EXPIRED;
	bool		cascades = execution->query_desc->operation == CMD_UPDATE &&
	outer != NULL && InNoForceRLSOperation();
	ListCell   *lc;

	if (!(deletes || cascades) || (eflags & EXEC_FLAG_EXPLAIN_ONLY))
		return;

	/*
	 * ri_triggers.c: SET "column" = $1 of ON UPDATE CASCADE, = NULL or =
	 * DEFAULT of the others
	 */
	if (cascades && strstr(execution->query_desc->sourceText, " = $1") != NULL)
		outer->hands_on_keys = true;
	foreach(lc, execution->query_desc->plannedstmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		TtlContainer container;

		if (rte->rtekind != RTE_RELATION || !ttl_container_lookup(rte->relid, &container))
			continue;

		if (deletes)
			(void) ttl_live_resolve(execution, container.container, true);
		if (cascades)
		{
			/* what it hides itself is resolved without itself */
			(void) ttl_live_resolve(execution, container.container, false);
			remember_cascade(outer, container.container);
		}
	}
	if (cascades && outer->hands_on_keys)
	{
		foreach(lc, outer->cascaded)
			remember_for_deferred(lfirst_oid(lc));
	}
}

/* What a call of a filter function remembers */
typedef struct TtlCall
{
	TtlLive		live;			/* what is resolved for its execution */
	const TtlType *ttl_type;	/* of the third argument */
} TtlCall;

/* Remembers in the function call's memory what is resolved for its execution. */
static TtlCall *
remember_call(FmgrInfo *flinfo, Oid container, bool deletes)
{
	TtlExecution *execution = ttl_execution_current();
	TtlCall    *call = flinfo->fn_extra;

	if (call == NULL)
	{
		call = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(TtlCall));
		call->ttl_type = ttl_type_of(get_fn_expr_argtype(flinfo, 2), TTL_UNIT_SECONDS);
		flinfo->fn_extra = call;
	}
	if (execution != NULL)
		call->live = *ttl_live_resolve(execution, container, deletes);
	else
		resolve(&call->live, container, deletes, NULL);
	return call;
}

/* ttl_expiry_of() <= now, by cutoffs that are computed once */
static bool
has_expired(const TtlLive *live, const TtlItem *item)
{
	int32		ttl = ttl_expiry_effective_ttl(live->default_ttl, item);

	if (item->has_deadline && ttl != TTL_OFF)
		return item->deadline <= ttl_expiry_last_deadline(live->now);
	if (ttl <= 0 || !item->has_ts)
		return false;
	return item->ts <= (item->ttl == 0 ? live->default_cutoff : ttl_expiry_cutoff(live->now, ttl));
}

/* True if the filter lets the item pass: it has not expired, or for a deletion it has. */
bool
ttl_live_passes(const TtlLive *live, const TtlItem *item)
{
	return has_expired(live, item) == live->deletes;
}

/* What the _ts and TTL of a filter's arguments say */
static inline void
read_item(TtlItem *item, const TtlCall *call, FunctionCallInfo fcinfo)
{
	item->has_deadline = false;
	item->deadline = DT_NOEND;
	item->ttl = 0;
	/* a value of a type that no TTL column has says nothing */
	if (!PG_ARGISNULL(2) && call->ttl_type != NULL)
		ttl_item_set_own(item, call->ttl_type, PG_GETARG_DATUM(2));
	item->has_ts = !PG_ARGISNULL(1);
	item->ts = item->has_ts ? PG_GETARG_TIMESTAMPTZ(1) : DT_NOBEGIN;
}

PG_FUNCTION_INFO_V1(ttl_is_live);

/*
 * ttl.is_live(container regclass, _ts timestamptz, ttl "any") -> boolean
 *
 * True if the row of the container with these values has not expired.
 */
Datum
ttl_is_live(PG_FUNCTION_ARGS)
{
	TtlCall    *call = fcinfo->flinfo->fn_extra;
	Oid			container = PG_GETARG_OID(0);
	TtlItem		item;

	if (unlikely(call == NULL || call->live.container != container))
		call = remember_call(fcinfo->flinfo, container, false);
	if (call->live.sees_everything)
		PG_RETURN_BOOL(true);
	read_item(&item, call, fcinfo);
	PG_RETURN_BOOL(ttl_live_passes(&call->live, &item));
}

PG_FUNCTION_INFO_V1(ttl_is_expired);

/*
 * ttl.is_expired(container regclass, _ts timestamptz, ttl "any") -> boolean
 *
 * True if the row has expired, by the time that a physical deletion has been given.
 * Where none is at work, no row has.
 */
Datum
ttl_is_expired(PG_FUNCTION_ARGS)
{
	TtlExecution *execution = ttl_execution_current();
	TtlCall    *call = fcinfo->flinfo->fn_extra;
	Oid			container = PG_GETARG_OID(0);
	TtlItem		item;

	if (execution == NULL || execution->row_mode != TTL_SEES_EXPIRED)
		PG_RETURN_BOOL(false);
	if (unlikely(call == NULL || call->live.container != container))
		call = remember_call(fcinfo->flinfo, container, true);
	read_item(&item, call, fcinfo);
	PG_RETURN_BOOL(ttl_live_passes(&call->live, &item));
}

PG_FUNCTION_INFO_V1(ttl_is_live_by_tid);

/*
 * ttl.is_live(container regclass) -> boolean
 *
 * Stands for the filter in an index-only scan, which has neither column.  The
 * scan's own filter (scan_filter.c) takes its place.
 */
Datum
ttl_is_live_by_tid(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("ttl.is_live(regclass) can be evaluated in an index-only scan alone")));
}
