/*-------------------------------------------------------------------------
 *
 * fault.c
 *	  Which error is whose fault, and what comes of it.
 *
 * - Row locked by somebody: not an error, see batch.c.
 * - Cancellation, deadlock, lack of resources: an error for a user who has
 *	called; the worker comes again after a while.
 * - What happens to a DELETE of no rows, too (a published table without replica
 *	identity, an archive that has gone), is the table's fault: it pauses.
 * - Anything else is blamed on a row.  The batch is halved until the culprit is
 *	alone; it is remembered, counted, logged, and tried again by itself after
 *	BLOCKED_MIN_WAIT doubling to BLOCKED_MAX_WAIT.  After BLOCKED_IN_A_ROW such
 *	rows in a row, the whole leaf pauses: then it isn't the row.
 * - If a row of the batch is still referenced, the batch is tried once more
 *	together with the expired rows that reference its rows.  What the reaper may
 *	not take yet, by the settings of its own container, stays, and so does what
 *	it references.  That row is blamed late, because what references it may
 *	expire soon: it is tried again after REFERENCED_WAIT, and only the
 *	REFERENCED_TRIES'th failure is told.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "counters.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "expiry/grace.h"
#include "reaper/blocked.h"
#include "reaper/fault.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Time until a blocked row is tried again. */
#define BLOCKED_MIN_WAIT	(60 * USECS_PER_SEC)
#define BLOCKED_MAX_WAIT	(3600 * USECS_PER_SEC)
#define REFERENCED_WAIT		(2 * USECS_PER_SEC)
#define REFERENCED_TRIES	4

/* Blocked rows that make a leaf pause. */
#define BLOCKED_IN_A_ROW	100

bool
ttl_fault_is_no_rows(const ErrorData *error)
{
	switch (ERRCODE_TO_CATEGORY(error->sqlerrcode))
	{
		case ERRCODE_TRANSACTION_ROLLBACK:
		case ERRCODE_INSUFFICIENT_RESOURCES:
		case ERRCODE_OPERATOR_INTERVENTION:
		case ERRCODE_SYSTEM_ERROR:
			return true;
		default:
			return false;
	}
}

bool
ttl_fault_is_reference(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION ||
		error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION;
}

/*
 * Tells the log (or the user who has called) and the statistics.  The context of what
 * was thrown is all of it.
 */
static void
report_error(TtlStep *step, const ErrorData *error)
{
	ErrorContextCallback *stack = error_context_stack;

	ttl_counters_set_error(step->container.container, error->message);

	if (error->context != NULL)
		error_context_stack = NULL;
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not delete expired rows of table \"%s\": %s",
					ttl_container_told_name(RelationGetRelid(step->rel)),
					error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0,
			 error->context ? errcontext("%s", error->context) : 0));
	error_context_stack = stack;
}

void
ttl_fault_handle_trouble(TtlStep *step, ErrorData *error)
{
	if (!step->memory->mode.by_worker)
		ReThrowError(error);

	/* told once, however often it is met */
	if (error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
		step->leaf->lacks_index)
		ttl_counters_set_error(step->container.container, error->message);

	/* deadlocks happen, and who cancels a worker knows it */
	else if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_TRANSACTION_ROLLBACK &&
			 error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			 error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		report_error(step, error);
	step->leaf->lacks_index = step->leaf->lacks_index ||
		error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	ttl_leaf_pause(step->memory, step->leaf);
}

bool
ttl_fault_handle_tables(TtlStep *step, ErrorData *error)
{
	TtlLeaf    *leaf = step->leaf;
	TtlStep		test = *step;

	FreeErrorData(ttl_step_attempt(ttl_step_delete_nothing, &test));
	if (test.works_without_rows)
		return false;

	if (leaf->trouble != error->sqlerrcode)
		report_error(step, error);
	else
		ttl_counters_set_error(step->container.container, error->message);
	leaf->trouble = error->sqlerrcode;
	ttl_leaf_pause(step->memory, leaf);
	return true;
}

/*
 * Tells that a row cannot be deleted: not again what an earlier worker has
 * found, and of a flood the first drops.
 */
static void
report_blocked(TtlStep *step, ErrorData *error)
{
	TtlLeaf    *leaf = step->leaf;

	if (leaf->told == 0 && leaf->blocked_in_a_row < 3)
		report_error(step, error);
	else
		ttl_counters_set_error(step->container.container, error->message);
	leaf->told = Max(leaf->told - 1, 0);
}

void
ttl_fault_block_row(TtlStep *step, ErrorData *error)
{
	TtlMemory  *memory = step->memory;
	TtlLeaf    *leaf = step->leaf;
	bool		referenced = memory->mode.by_worker && ttl_fault_is_reference(error);
	TtlBlockedRow *row = ttl_leaf_find_blocked(memory, leaf, step->tids);

	if (row == NULL)
	{
		row = ttl_leaf_add_blocked(memory, leaf, step->tids);
		if (row != NULL)
		{
			row->wait = referenced ? REFERENCED_WAIT : BLOCKED_MIN_WAIT;
			row->untold = referenced ? REFERENCED_TRIES - 1 : 0;
		}
		if (!referenced)
			report_blocked(step, error);
		leaf->blocked_in_a_row++;
	}
	else
	{
		row->wait = Min(row->wait * 2, BLOCKED_MAX_WAIT);
		if (row->untold > 0 && --row->untold == 0)
		{
			report_blocked(step, error);
			leaf->blocked_in_a_row++;
		}
	}

	if (row != NULL)
	{
		row->retry_at = GetCurrentTimestamp() + row->wait;
		if (memory->mode.by_worker)
			ttl_blocked_put(leaf->relid, step->tids, row->untold, row->retry_at,
							row->wait);

		/* it lies behind the mark, so a walk has to come there in time */
		if (row->untold > 0)
			leaf->left_at = Min(leaf->left_at, row->retry_at);
	}

	if (leaf->blocked_in_a_row >= BLOCKED_IN_A_ROW ||
		hash_get_num_entries(memory->blocked) >= TTL_BLOCKED_MAX)
	{
		leaf->blocked_in_a_row = 0;
		ttl_leaf_pause(memory, leaf);
	}
}

void
ttl_fault_handle_kept(TtlStep *step)
{
	ItemPointer tids = step->tids;
	int			ntids = step->ntids;
	TupleTableSlot *slot = table_slot_create(step->rel, NULL);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	BlockNumber nblocks = RelationGetNumberOfBlocks(step->rel);

	for (int i = 0; i < ntids; i++)
	{
		step->tids = &tids[i];
		step->ntids = 1;
		/* the table may have been truncated since the place was collected */
		if (ItemPointerGetBlockNumber(step->tids) < nblocks &&
			table_tuple_fetch_row_version(step->rel, step->tids, snapshot, slot) &&
			ttl_expiry_of_slot(&step->container, slot) <= step->now &&
			!(step->spares &&
			  ttl_grace_spares_slot(&step->container, slot, step->now)))
		{
			ErrorData  *error = palloc0(sizeof(ErrorData));

			error->sqlerrcode = ERRCODE_TRIGGERED_ACTION_EXCEPTION;
			error->message = "a trigger or rule has kept an expired row";
			ttl_fault_block_row(step, error);
		}
		else
			ttl_leaf_remove_blocked(step->memory, step->leaf, step->tids);
		ExecClearTuple(slot);
	}
	step->tids = tids;
	step->ntids = ntids;
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
}
