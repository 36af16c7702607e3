/*-------------------------------------------------------------------------
 *
 * execution.c
 *	  The clock, and the state of each running execution of a plan.
 *
 * An execution's clock is the wall clock at ExecutorStart, so that a loop in a procedure sees
 * time pass, which neither now() nor statement_timestamp() gives.
 *
 * Clock and snapshot belong together.  By a clock that is later than its
 * snapshot, an execution would miss a row that has been renewed in between: its
 * old version, the one that the snapshot sees, has expired.  So an execution that reads
 * a snapshot that has been read before takes the clock that it had then:
 * functions that aren't VOLATILE, the queries of one expression in PL/pgSQL, and
 * the statement inside EXECUTE, DECLARE, EXPLAIN, COPY and the like, which may
 * have waited for a lock since the command took the snapshot.  For that, the
 * clock is written into the snapshot itself (set_clock()).  Executions that only serve an outer one
 * (foreign-key checks and actions; deletions of ours) use the outer one's.
 *
 * In REPEATABLE READ and SERIALIZABLE all executions of a transaction have the
 * one clock of its one snapshot.  That was taken before any of our hooks is
 * called, and a lock may have been waited for since; so the clock is the start
 * of the statement that took it (note_transaction_snapshot()).  For an imported
 * snapshot it is the start of the exporting transaction, as far as that is known.
 *
 * What is remembered for that ends with the transaction, in one place (ttl_execution_transaction()),
 * and is not used where the clock has been set back behind it (not_after_present()).  An execution
 * that runs meanwhile goes on reading by the clock that it began with, but nothing is
 * deleted by that (ttl_execution_expect_deletion()).
 *
 * Not noticed is a snapshot that PL/pgSQL takes for an expression until the first
 * query reads it, be it that this has to wait for a lock on its tables.
 *
 * The state belongs to the QueryDesc, for a cursor is started once and run
 * many times.  It lives in the QueryDesc's own memory, linked into a list,
 * and unlinks itself when that memory goes, be it by ExecutorEnd or by an
 * error.  While the executor runs, 'current' points to the innermost one.
 *
 * Parallel workers must evaluate expiry as their leader does: by its clock, its ttl.now,
 * and the policies that it has resolved.  PostgreSQL copies settings to workers
 * if their value isn't the built-in default; so all that is written into the
 * value of a hidden setting, which is made non-default once, at the server's
 * start, and has no other use: its context is SIGHUP, which no SET may
 * change.  A worker reads it at its outermost ExecutorStart.
 *
 * The statement of a deletion of ours may be lent the rights of the tables' owner: as
 * soon as it has been analyzed, its tables are marked to be checked as him, as those of
 * a view or a rule are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "commands/trigger.h"
#include "compat.h"
#include "cost.h"
#include "execution.h"
#include "executor/executor.h"
#include "guc.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "nodes/value.h"
#include "own_sql.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteDefine.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/backend_status.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * The clock
 */

/* All instants that a session remembers beside its executions.  They end with the transaction. */
typedef struct TransactionClock
{
	TimestampTz snapshot;		/* with one snapshot: its clock; 0 = not known
								 * yet */
	TimestampTz without_snapshot;	/* when it was last seen without one */
	TimestampTz imported;		/* of the snapshot that is being imported */
} TransactionClock;

static TransactionClock transaction_clock;

/*
 * What has been remembered, unless it is in the future: then the clock has been set back since, and
 * by the wrong one rows would be expired that live.
 */
static TimestampTz
not_after_present(TimestampTz remembered)
{
	return Min(remembered, GetCurrentTimestamp());
}

/*
 * The clock of a snapshot is kept in two fields that only snapshots of other
 * kinds use, and that copies inherit: PostgreSQL zeroes the static snapshots
 * that all others are copies of.  Only what a parallel worker restores may hold
 * anything; that isn't within the transaction's time.
 */
StaticAssertDecl(sizeof(((Snapshot) NULL)->speculativeToken) == sizeof(uint32) &&
				 sizeof(((Snapshot) NULL)->vistest) >= sizeof(uint32),
				 "the fields must hold the halves of a timestamp");

/* The clock that is stored in the snapshot; 0 = none, it has not been read yet. */
static TimestampTz
get_snapshot_time(Snapshot snapshot)
{
	TimestampTz clock = (TimestampTz) ((uint64) snapshot->speculativeToken << 32 |
									   (uint32) (uintptr_t) snapshot->vistest);

	if (snapshot->snapshot_type != SNAPSHOT_MVCC ||
		(IsParallelWorker() && (clock < GetCurrentTransactionStartTimestamp() ||
								clock > GetCurrentTimestamp())))
		return 0;
	return clock;
}

/* Sets the clock of a snapshot that is read for the first time. */
static void
set_clock(Snapshot snapshot, TimestampTz clock)
{
	/* a static one is used again for others, which would inherit the clock */
	if (snapshot->snapshot_type != SNAPSHOT_MVCC || !snapshot->copied)
		return;
	snapshot->speculativeToken = (uint32) ((uint64) clock >> 32);
	snapshot->vistest = (struct GlobalVisState *) (uintptr_t) (uint32) clock;
}

/*
 * Looks whether the transaction has got its one snapshot, and resolves its clock
 * if so: no later than that was taken.  'in_this_statement' means that it is the
 * statement being processed that has taken it.
 */
static void
note_transaction_snapshot(bool in_this_statement)
{
	if (!IsolationUsesXactSnapshot() || transaction_clock.snapshot != 0 || IsParallelWorker())
		return;
	if (!FirstSnapshotSet)
	{
		transaction_clock.without_snapshot = GetCurrentTimestamp();
		return;
	}
	transaction_clock.snapshot = Max(GetCurrentTransactionStartTimestamp(),
									 transaction_clock.without_snapshot);
	if (in_this_statement)
	{
		TimestampTz start = GetCurrentStatementStartTimestamp();

		/* it may have been taken by the message that bound the portal */
		if (ActivePortal != NULL)
			start = Min(start, ActivePortal->creation_time);
		transaction_clock.snapshot = Max(transaction_clock.snapshot, start);
	}
}

/*
 * A function is about to be called.  One that the client calls by the fast path takes a snapshot,
 * and passes no other hook.
 */
void
ttl_execution_function_called(void)
{
	note_transaction_snapshot(true);
}

/*
 * The clock of what starts now and reads the snapshot (InvalidSnapshot = none: it is
 * not an execution).
 */
static TimestampTz
get_clock(Snapshot snapshot)
{
	TimestampTz clock = 0;

	if (IsolationUsesXactSnapshot())
	{
		note_transaction_snapshot(true);

		/*
		 * stored, so that the clock stands still after it has been set back,
		 * too
		 */
		if (transaction_clock.snapshot != 0)
			transaction_clock.snapshot = not_after_present(transaction_clock.snapshot);
		clock = transaction_clock.snapshot;
	}
	else if (snapshot != InvalidSnapshot)
		clock = get_snapshot_time(snapshot);
	return clock != 0 ? not_after_present(clock) : GetCurrentTimestamp();
}

/* In a parallel worker: this is the leader's. */
static void
follow_clock(TimestampTz clock)
{
	if (IsolationUsesXactSnapshot())
		transaction_clock.snapshot = clock;
}

/*
 * Where snapshots are taken
 */

/*
 * When the snapshot that is to be imported had been taken at the latest, 0 if there is none: when its
 * transaction started, which runs to the end of the import, or it fails.  That is unknown where
 * track_activities is off; then when it was exported, which is when its file was written.
 */
static TimestampTz
exported_at(const char *snapshot_id)
{
	unsigned int number;
	PGPROC	   *exporter;
	TimestampTz start = 0;
	char		path[MAXPGPATH];
	struct stat file;

	/* PostgreSQL checks it later, and here it becomes the name of a file */
	if (sscanf(snapshot_id, "%8X-", &number) != 1 ||
		strspn(snapshot_id, "0123456789ABCDEF-") != strlen(snapshot_id))
		return 0;
	exporter = TtlProcOfVirtualXid(number);
	for (int i = 1; exporter != NULL && i <= pgstat_fetch_stat_numbackends(); i++)
	{
		PgBackendStatus *status = &TtlBackendStatus(i)->backendStatus;

		if (status->st_procpid == exporter->pid)
			start = status->st_xact_start_timestamp;
	}
	pgstat_clear_backend_activity_snapshot();
	if (start != 0)
		return start;
	snprintf(path, sizeof(path), "pg_snapshots/%s", snapshot_id);
	return stat(path, &file) == 0 ? time_t_to_timestamptz(file.st_mtime) : 0;
}

/* A utility command is about to be executed. */
void
ttl_execution_before_utility(PlannedStmt *pstmt)
{
	bool		has_snapshot = PlannedStmtRequiresSnapshot(pstmt);
	VariableSetStmt *set = (VariableSetStmt *) pstmt->utilityStmt;

	/* A snapshot that this command has no use for was there before it. */
	note_transaction_snapshot(has_snapshot);

	/*
	 * The command's snapshot has just been taken.  What is executed with it,
	 * or with a copy, may have to wait first.
	 */
	if (!IsolationUsesXactSnapshot() && ActiveSnapshotSet() && has_snapshot &&
		get_snapshot_time(GetActiveSnapshot()) == 0)
		set_clock(GetActiveSnapshot(), GetCurrentTimestamp());

	transaction_clock.imported = 0;
	if (IsA(set, VariableSetStmt) && set->kind == VAR_SET_MULTI &&
		strcmp(set->name, "TRANSACTION SNAPSHOT") == 0)
		transaction_clock.imported = exported_at(strVal(&linitial_node(A_Const, set->args)->val));
}

/* A utility command, but EXECUTE and FETCH, has been executed. */
void
ttl_execution_after_utility(void)
{
	if (transaction_clock.imported != 0 && FirstSnapshotSet && transaction_clock.snapshot == 0)
		transaction_clock.snapshot = transaction_clock.imported;
	transaction_clock.imported = 0;
	note_transaction_snapshot(false);
}

/* Forgets all instants when the transaction ends. */
void
ttl_execution_transaction(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			memset(&transaction_clock, 0, sizeof(transaction_clock));
			break;
		default:
			break;
	}
}

/*
 * Executions
 */

#define LEADER	"ttl.leader"
#define LEADER_IDLE	"idle"

static TtlExecution *executions = NULL; /* all that are started, last first */
static TtlExecution *current = NULL;	/* the innermost one that runs */
static int	depth = 0;			/* nesting of ExecutorRun and ExecutorFinish */

/*
 * The value of the setting: what the innermost running query hands over.  It is assigned directly,
 * for a setting cannot be set in parallel mode, and nothing but the start of a worker reads it.
 */
static char *leader = NULL;
static char *leader_idle = NULL;	/* its value while there is none */

static TtlExpectation expected = {NULL};

/*
 * The innermost running execution, or NULL outside of any.
 */
TtlExecution *
ttl_execution_current(void)
{
	return current;
}

/* The execution that has this state, or NULL */
TtlExecution *
ttl_execution_of(const EState *estate)
{
	TtlExecution *execution = executions;

	while (execution != NULL && execution->query_desc->estate != estate)
		execution = execution->next;
	return execution;
}

/* True if UPDATEs of this session set the clock of their rows.  What is replicated has it from the publisher. */
static bool
session_touches(void)
{
	return ttl_guc_touch && SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA;
}

/* True if an UPDATE of the running execution, or of one that starts now, sets the clock of its rows. */
bool
ttl_execution_touches(void)
{
	return current != NULL ? current->touches : session_touches();
}

/* How many executions run, one inside the other. */
int
ttl_execution_depth(void)
{
	return depth;
}

/* The innermost SET CONSTRAINTS or COPY FROM that runs, maybe in a SECURITY DEFINER function */
static TtlChecking checking =
{
	0
};

/* A utility command begins.  What this returns is passed to ttl_execution_end_checking(); neither can fail. */
TtlChecking
ttl_execution_begin_checking(PlannedStmt *pstmt)
{
	TtlChecking outer = checking;
	bool		copies = IsA(pstmt->utilityStmt, CopyStmt) && ((CopyStmt *) pstmt->utilityStmt)->is_from;

	if (copies || IsA(pstmt->utilityStmt, ConstraintsSetStmt))
	{
		checking.within = current;
		checking.role = copies ? InvalidOid : GetUserId();
		checking.copies = copies;
		checking.clock = 0;
	}
	return outer;
}

/* COPY FROM has the lock of its table, and starts. */
void
ttl_execution_start_copying(void)
{
	checking.clock = GetCurrentTimestamp();
}

/* It has ended. */
void
ttl_execution_end_checking(TtlChecking outer)
{
	checking = outer;
}

/*
 * As whom SET CONSTRAINTS does what had been deferred, if it does so inside of that execution (NULL = none), and of
 * none within it; else InvalidOid.
 */
Oid
ttl_execution_constraints_role(const TtlExecution *outer)
{
	return checking.within == outer ? checking.role : InvalidOid;
}

/*
 * True if what is checked inside of that execution (NULL = none), and of none within it, had been deferred.  COPY FROM,
 * which is no execution, has its own rows checked.
 */
bool
ttl_execution_checks_deferred(const TtlExecution *outer)
{
	return OidIsValid(ttl_execution_constraints_role(outer)) ||
		(outer == NULL && !(checking.copies && checking.within == NULL));
}

/* True if a COPY FROM that has started does what happens now: it isn't an execution, but may run inside of one. */
static bool
is_copying(void)
{
	return checking.copies && checking.within == current && checking.clock != 0;
}

/*
 * The time by which expiry is evaluated now: the clock of the running execution or COPY FROM,
 * or outside of any (a procedure, a worker) that a statement starting now
 * would get.  Ignores ttl.now, so deletion can rely on it.
 */
TimestampTz
ttl_execution_reference_time(void)
{
	if (is_copying() && !IsolationUsesXactSnapshot())
		return not_after_present(checking.clock);
	return current != NULL ? not_after_present(current->clock) : get_clock(InvalidSnapshot);
}

/*
 * Announces that executions whose source text is the given one, and that start
 * on this level, see only the rows that were expired at the given instant: in the tables
 * of that owner to which the text gives the alias TTL_TO_DELETE.  One that deletes from another table than
 * 'target' (InvalidOid = it deletes nothing) is an error.  What a rule adds to the
 * statement sees live rows, as any statement does.  Call it right before SPI_prepare and
 * friends.  It returns what was announced before, to be announced again by
 * ttl_execution_expect() when they are done: rules make several executions of one statement,
 * and triggers of the first may delete, too.
 *
 * Permissions and row security of the statement are checked as the owner's.  Until it has
 * been analyzed the current user may be the owner, by whose rights names are looked up;
 * then it is the user of the announcement.
 */
TtlExpectation
ttl_execution_expect_deletion(const char *source_text, TimestampTz expired_at, Oid owner, Oid target)
{
	TtlExpectation before = expected;

	expected.deletion = source_text;
	expected.depth = depth;
	expected.expired_at = not_after_present(expired_at);
	expected.owner = owner;
	expected.target = target;
	expected.analyzed = false;
	GetUserIdAndSecContext(&expected.role, &expected.sec_context);
	return before;
}

/* Announces again what ttl_execution_expect_deletion() has returned. */
void
ttl_execution_expect(TtlExpectation expectation)
{
	expected = expectation;
}

/* True if a deletion has been announced for a statement of this text. */
bool
ttl_execution_is_expected(const char *source_text)
{
	/*
	 * By the text, for the plan cache has a copy of it.  Rules may make
	 * several executions of it; triggers run deeper.
	 */
	return expected.deletion != NULL && depth == expected.depth &&
		source_text != NULL && strcmp(expected.deletion, source_text) == 0;
}

/* The owner of the tables that the announced statement deletes from */
Oid
ttl_execution_deletes_as(void)
{
	return expected.owner;
}

/* A statement has been analyzed, and not yet rewritten. */
void
ttl_execution_analyzed(ParseState *pstate, Query *query)
{
	/* ROLLBACK TO comes after a statement that may have taken it, and failed */
	note_transaction_snapshot(query->utilityStmt == NULL ||
							  !IsA(query->utilityStmt, TransactionStmt));

	if (!ttl_execution_is_expected(pstate->p_sourcetext))
		return;

	/*
	 * another table would lose live rows; each time, since the plan cache may
	 * have it analyzed again
	 */
	if (OidIsValid(expected.target))
		ttl_sql_check_table(rt_fetch(query->resultRelation, query->rtable)->relid == expected.target,
							expected.target);

	/* the rewriter checks row security, the executor permissions */
	if (!expected.analyzed)
	{
		expected.analyzed = true;
		setRuleCheckAsUser((Node *) query, expected.owner);
		SetUserIdAndSecContext(expected.role,
							   expected.sec_context | SECURITY_NOFORCE_RLS);
	}
}

/* Memory context callback: the execution's memory is about to go. */
static void
forget_execution(void *arg)
{
	TtlExecution **link;

	for (link = &executions; *link != NULL; link = &(*link)->next)
	{
		if (*link == arg)
		{
			*link = (*link)->next;
			return;
		}
	}
}

/* True if what starts now, in a parallel worker, is the query that its leader has started it for. */
static bool
follows_leader(void)
{
	return IsParallelWorker() && executions == NULL && strcmp(leader, LEADER_IDLE) != 0;
}

/* True if the execution writes nothing, so that no trigger is queued. */
bool
ttl_execution_only_reads(const QueryDesc *query_desc)
{
	return query_desc->operation == CMD_SELECT && !query_desc->plannedstmt->hasModifyingCTE;
}

/*
 * True if triggers that were set off in that command of the transaction may fire when a statement ends that has
 * started: because it writes in that command, or since an execution inside of it has left its triggers to it.
 */
bool
ttl_execution_may_fire_for(CommandId command)
{
	for (TtlExecution *execution = executions; execution != NULL; execution = execution->next)
	{
		if (command >= execution->left_since ||
			(!ttl_execution_only_reads(execution->query_desc) &&
			 execution->query_desc->estate->es_output_cid == command))
			return true;
	}
	return false;
}

/* Fills in what is known of an execution that is about to start. */
void
ttl_execution_describe(TtlExecution *execution, QueryDesc *query_desc)
{
	bool		deletes = ttl_execution_is_expected(query_desc->sourceText);
	bool		serves_foreign_key = InNoForceRLSOperation();

	memset(execution, 0, sizeof(TtlExecution));
	execution->query_desc = query_desc;
	execution->follows_leader = follows_leader();
	if (execution->follows_leader)
	{
		execution->clock = strtoi64(leader, NULL, 10);
		follow_clock(execution->clock);
	}
	else if (deletes || serves_foreign_key)
		execution->clock = ttl_execution_reference_time();
	else
		execution->clock = get_clock(query_desc->snapshot);
	if (!ttl_guc_now(&execution->reading_now))
		execution->reading_now = execution->clock;
	execution->row_mode = deletes ? TTL_SEES_EXPIRED : TTL_SEES_LIVE;
	execution->expired_at = expected.expired_at;
	execution->role = GetUserId();
	execution->touches = session_touches();
	execution->observed = serves_foreign_key || !ttl_execution_only_reads(query_desc);
	if (serves_foreign_key && current != NULL)
	{
		/* a foreign-key check or action */
		execution->user = current->user;
		execution->user_changed = current->user_changed;
	}
	else if (serves_foreign_key && !deletes)
	{
		/* the same, of COPY FROM or at the transaction's end */
		execution->user = GetOuterUserId();
		execution->user_changed = false;
	}
	else
	{
		execution->user = GetUserId();
		execution->user_changed = InLocalUserIdChange();
	}
	if (query_desc->snapshot != InvalidSnapshot)
		set_clock(query_desc->snapshot, execution->clock);
}

/*
 * Actions of foreign keys, and deletions of ours, leave their AFTER triggers to the statement around them.  (Inside of
 * COPY, which is no execution, none does that to it.)
 */
static void
note_left_triggers(const QueryDesc *query_desc)
{
	const EState *estate = query_desc->estate;

	if (current != NULL && !ttl_execution_only_reads(query_desc) &&
		(estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) != 0)
		current->left_since = Min(current->left_since, estate->es_output_cid);
}

/* Keeps it, in the executor's memory, when it has started. */
TtlExecution *
ttl_execution_remember(const TtlExecution *starting)
{
	MemoryContext context = starting->query_desc->estate->es_query_cxt;
	TtlExecution *execution = MemoryContextAlloc(context, sizeof(TtlExecution));

	*execution = *starting;
	execution->left_since = InvalidCommandId;	/* later than any */
	note_left_triggers(starting->query_desc);
	execution->observed |= execution->hides;
	execution->next = executions;
	executions = execution;

	execution->forget.func = forget_execution;
	execution->forget.arg = execution;
	MemoryContextRegisterResetCallback(context, &execution->forget);
	return execution;
}

/* In a parallel worker: what its leader has handed over, which begins with its clock */
const char *
ttl_execution_leader(void)
{
	return leader;
}

/* Makes an execution the innermost that runs, and its workers those to which is handed over. */
static void
set_current(TtlExecution *execution)
{
	current = execution;
	/* in a worker the setting has what its own leader has handed over */
	if (!IsParallelWorker())
		leader = current != NULL && current->handed_over != NULL ?
			current->handed_over : leader_idle;
}

/*
 * Makes it the current one, and returns the one around it, to be passed to leave.  One that was
 * started before ttl's hooks came into being is not known; it gets no clock of its own.  Cannot
 * fail, for it is called right before PG_TRY.
 */
TtlExecution *
ttl_execution_enter(QueryDesc *query_desc)
{
	TtlExecution *outer = current;

	depth++;
	set_current(ttl_execution_of(query_desc->estate));
	return outer;
}

/* Makes the one around it the current one again.  Cannot fail, for it is called in PG_FINALLY. */
void
ttl_execution_leave(TtlExecution *outer)
{
	depth--;
	set_current(outer);
}

/* Calls the function for each target of the node, if it is a ModifyTable. */
static void
visit_targets_of(PlanState *planstate, TtlTargetVisitor visit)
{
	ModifyTableState *mtstate = (ModifyTableState *) planstate;

	if (!IsA(planstate, ModifyTableState))
		return;
	for (int i = 0; i < mtstate->mt_nrels; i++)
		visit(mtstate, &mtstate->resultRelInfo[i]);
}

/* Calls the function for each relation that the plan writes. */
void
ttl_execution_visit_targets(TtlExecution *execution, TtlTargetVisitor visit)
{
	QueryDesc  *query_desc = execution->query_desc;
	ListCell   *lc;

	if (ttl_execution_only_reads(query_desc))
		return;
	visit_targets_of(query_desc->planstate, visit);
	/* of WITH */
	foreach(lc, query_desc->estate->es_auxmodifytables)
		visit_targets_of(lfirst(lc), visit);
}

/* Makes an ExprState that calls a function of ours. */
void
ttl_execution_init_expr(ExprState *state, ExprStateEvalFunc evaluate, uint8 flags)
{
	state->type = T_ExprState;
	state->flags = flags;
	state->evalfunc = evaluate;
}

/* Called in each parallel worker, since the setting has no default value. */
static void
leader_assigned(const char *value, void *extra)
{
	if (InitializingParallelWorker)
		ttl_cost_worker_starts();
}

/* Defines the setting that hands over to parallel workers. */
void
ttl_execution_init(void)
{
	DefineCustomStringVariable(LEADER,
							   "Hands to parallel workers what their leader has resolved.",
							   NULL,
							   &leader,
							   "",
							   PGC_SIGHUP,
							   GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE | GUC_NO_RESET_ALL,
							   NULL, leader_assigned, NULL);
	/* PostgreSQL copies to workers what is not the default */
	SetConfigOption(LEADER, LEADER_IDLE, PGC_POSTMASTER, PGC_S_OVERRIDE);
	leader_idle = leader;
}
