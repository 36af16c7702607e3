/*-------------------------------------------------------------------------
 *
 * reference_time.c
 *	  The clock of snapshots.
 *
 * Clock and snapshot belong together.  By a clock that is later than its
 * snapshot, an execution would miss a row that has been renewed in between: its
 * old version, the one that the snapshot sees, has expired.  So an execution that reads
 * a snapshot that has been read before takes the clock that it had then:
 * functions that aren't VOLATILE, the queries of one expression in PL/pgSQL, and
 * the statement inside EXECUTE, DECLARE, EXPLAIN, COPY and the like, which may
 * have waited for a lock since the command took the snapshot.  For that, the
 * clock is written into the snapshot itself (ttl_reference_time_set()).
 *
 * In REPEATABLE READ and SERIALIZABLE all executions of a transaction have the
 * one clock of its one snapshot.  That was taken before any of our hooks is
 * called, and a lock may have been waited for since; so the clock is the start
 * of the statement that took it (note_transaction_snapshot()).  For an imported
 * snapshot it is the start of the exporting transaction.
 *
 * Not noticed is a snapshot that PL/pgSQL takes for an expression until the first
 * query reads it, be it that this has to wait for a lock on its tables.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "reference_time.h"
#include "compat.h"
#include "nodes/parsenodes.h"
#include "nodes/value.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/backend_status.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* In a transaction with one snapshot: its clock; 0 = not known yet. */
static TimestampTz transaction_time = 0;

/* When such a transaction was last seen without a snapshot. */
static TimestampTz without_snapshot = 0;

/* The clock of the snapshot that is being imported. */
static TimestampTz imported_clock = 0;

/*
 * The clock of a snapshot is kept in two fields that only snapshots of other
 * kinds use, and that copies inherit: PostgreSQL zeroes the static snapshots
 * that all others are copies of.  Only what a parallel worker restores may hold
 * anything; that isn't within the transaction's time.
 */
StaticAssertDecl(sizeof(((Snapshot) NULL)->speculativeToken) == sizeof(uint32) &&
				 sizeof(((Snapshot) NULL)->vistest) >= sizeof(uint32),
				 "the fields must hold the halves of a timestamp");

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

void
ttl_reference_time_set(Snapshot snapshot, TimestampTz clock)
{
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
	if (!IsolationUsesXactSnapshot() || transaction_time != 0 || IsParallelWorker())
		return;
	if (!FirstSnapshotSet)
	{
		without_snapshot = GetCurrentTimestamp();
		return;
	}
	transaction_time = Max(GetCurrentTransactionStartTimestamp(), without_snapshot);
	if (in_this_statement)
	{
		TimestampTz start = GetCurrentStatementStartTimestamp();

		/* it may have been taken by the message that bound the portal */
		if (ActivePortal != NULL)
			start = Min(start, ActivePortal->creation_time);
		transaction_time = Max(transaction_time, start);
	}
}

void
ttl_reference_time_function_called(void)
{
	note_transaction_snapshot(true);
}

TimestampTz
ttl_reference_time_get(Snapshot snapshot)
{
	TimestampTz clock = 0;

	if (IsolationUsesXactSnapshot())
	{
		note_transaction_snapshot(true);
		clock = transaction_time;
	}
	else if (snapshot != InvalidSnapshot)
		clock = get_snapshot_time(snapshot);
	return clock != 0 ? clock : GetCurrentTimestamp();
}

void
ttl_reference_time_follow(TimestampTz clock)
{
	if (IsolationUsesXactSnapshot())
		transaction_time = clock;
}

/*
 * Where snapshots are taken
 */

void
ttl_reference_time_analyzed(const Query *query)
{
	/* ROLLBACK TO comes after a statement that may have taken it, and failed */
	note_transaction_snapshot(query->utilityStmt == NULL ||
							  !IsA(query->utilityStmt, TransactionStmt));
}

/*
 * When the transaction started whose snapshot is to be imported, 0 if unknown
 * (track_activities is off).  That runs to the end of the import, or it fails.
 */
static TimestampTz
exporter_start(const char *snapshot_id)
{
	unsigned int number;
	PGPROC	   *exporter;
	TimestampTz start = 0;

	if (sscanf(snapshot_id, "%8X-", &number) != 1)
		return 0;
	exporter = TtlProcOfVirtualXid(number);
	for (int i = 1; exporter != NULL && i <= pgstat_fetch_stat_numbackends(); i++)
	{
		PgBackendStatus *status = &TtlBackendStatus(i)->backendStatus;

		if (status->st_procpid == exporter->pid)
			start = status->st_xact_start_timestamp;
	}
	pgstat_clear_backend_activity_snapshot();
	return start;
}

void
ttl_reference_time_command(PlannedStmt *pstmt)
{
	bool		has_snapshot = PlannedStmtRequiresSnapshot(pstmt);

	/* A snapshot that this command has no use for was there before it. */
	note_transaction_snapshot(has_snapshot);

	/*
	 * The command's snapshot has just been taken.  What is executed with it,
	 * or with a copy, may have to wait first.
	 */
	if (!IsolationUsesXactSnapshot() && ActiveSnapshotSet() && has_snapshot &&
		get_snapshot_time(GetActiveSnapshot()) == 0)
		ttl_reference_time_set(GetActiveSnapshot(), GetCurrentTimestamp());
}

void
ttl_reference_time_before_utility(PlannedStmt *pstmt)
{
	VariableSetStmt *set = (VariableSetStmt *) pstmt->utilityStmt;

	if (IsA(set, VariableSetStmt) && set->kind == VAR_SET_MULTI &&
		strcmp(set->name, "TRANSACTION SNAPSHOT") == 0)
		imported_clock = exporter_start(strVal(&linitial_node(A_Const, set->args)->val));
}

void
ttl_reference_time_after_utility(void)
{
	if (imported_clock != 0 && FirstSnapshotSet && transaction_time == 0)
		transaction_time = imported_clock;
	note_transaction_snapshot(false);
}

void
ttl_reference_time_end_utility(void)
{
	imported_clock = 0;
}

void
ttl_reference_time_transaction(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
		case XACT_EVENT_PREPARE:
			transaction_time = 0;
			break;
		default:
			break;
	}
}
