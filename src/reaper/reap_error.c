/*-------------------------------------------------------------------------
 *
 * reap_error.c
 *	  Which error is whose fault, and what comes of it.
 *
 * - Row locked by somebody: not an error, see batch.c.
 * - Cancellation, deadlock, lack of resources: an error for a user who has
 *	called; the worker comes again after a while.
 * - What happens to a DELETE of no rows, too (a published table without replica
 *	identity, an archive that has gone), is the table's fault: it pauses.
 * - Anything else is blamed on a row.  The batch is halved until the culprit is
 *	alone (after a timeout, at once); it is counted, logged, and left to the next
 *	pass.
 * - If a row of the batch is still referenced, the batch is tried once more
 *	together with the expired rows that reference its rows.  What the reaper may
 *	not take yet, by the settings of its own container, stays, and so does what
 *	it references.
 *
 * A pass logs the first few rows that raise, as far as the pass before has not met as
 * many.  References often end by themselves soon after, so the worker logs them only
 * when two passes in a row have met some.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "counters.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "reaper/reap_error.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Rows that raise and are logged, in a pass */
#define LOGGED_MAX			3

bool
ttl_reap_error_is_no_rows(const ErrorData *error)
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
ttl_reap_error_is_reference(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION ||
		error->sqlerrcode == ERRCODE_RESTRICT_VIOLATION;
}

/* Notes an error for the statistics. */
static void
note_error(TtlStep *step, const ErrorData *error)
{
	step->error = MemoryContextStrdup(step->memory->step_context, error->message);
}

/*
 * Logs an error, or shows it to the user who has called, and notes it for the
 * statistics.  The context of what was thrown is all of it.
 */
static void
report_error(TtlStep *step, const ErrorData *error)
{
	ErrorContextCallback *stack = error_context_stack;

	note_error(step, error);

	if (error->context != NULL)
		error_context_stack = NULL;
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not delete expired rows of table \"%s\": %s",
					ttl_container_qualified_name(RelationGetRelid(step->rel)),
					error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0,
			 error->context ? errcontext("%s", error->context) : 0));
	error_context_stack = stack;
}

void
ttl_reap_error_handle_trouble(TtlStep *step, ErrorData *error)
{
	if (!step->memory->mode.by_worker)
		ReThrowError(error);

	/* logged once, however often it is met */
	if (error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE &&
		step->leaf->lacks_index)
		note_error(step, error);

	/* deadlocks happen, and cancellation is a user's wish */
	else if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_TRANSACTION_ROLLBACK &&
			 error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			 error->sqlerrcode != ERRCODE_QUERY_CANCELED)
		report_error(step, error);
	step->leaf->lacks_index = step->leaf->lacks_index ||
		error->sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE;
	ttl_reap_rel_pause(step->leaf);
}

bool
ttl_reap_error_handle_tables(TtlStep *step, ErrorData *error)
{
	TtlRelState *state = &step->leaf->state;
	TtlStep		test = *step;
	ErrorData  *test_error = ttl_step_attempt(ttl_step_delete_nothing, &test);

	if (test.works_without_rows || test.timed_out)
		return false;
	if (ttl_reap_error_is_no_rows(test_error))
		ttl_reap_error_handle_trouble(step, test_error);
	else
	{
		if (state->trouble != error->sqlerrcode)
			report_error(step, error);
		else
			note_error(step, error);
		state->trouble = error->sqlerrcode;
		ttl_reap_rel_pause(step->leaf);
	}
	return true;
}

void
ttl_reap_error_report_referenced(TtlStep *step, const ErrorData *error)
{
	TtlPass    *pass = &step->leaf->state.pass;

	pass->references = true;
	if (!pass->references_logged &&
		(pass->last_references || !step->memory->mode.by_worker))
	{
		report_error(step, error);
		pass->references_logged = true;
	}
	else
		note_error(step, error);
}

void
ttl_reap_error_block_row(TtlStep *step, const ErrorData *error)
{
	TtlPass    *pass = &step->leaf->state.pass;

	step->leaf->blocked++;
	if (ttl_reap_error_is_reference(error))
	{
		ttl_reap_error_report_referenced(step, error);
		return;
	}
	if (pass->raised >= pass->last_raised && pass->raised < pass->last_raised + LOGGED_MAX)
		report_error(step, error);
	else
		note_error(step, error);
	pass->raised++;
}

void
ttl_reap_error_handle_kept(TtlStep *step)
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
			  ttl_grace_covers_slot(&step->container, slot, step->now)))
		{
			ErrorData  *error = palloc0(sizeof(ErrorData));

			error->sqlerrcode = ERRCODE_TRIGGERED_ACTION_EXCEPTION;
			error->message = "a trigger or rule has kept an expired row";
			ttl_reap_error_block_row(step, error);
		}
		ExecClearTuple(slot);
	}
	step->tids = tids;
	step->ntids = ntids;
	UnregisterSnapshot(snapshot);
	ExecDropSingleTupleTableSlot(slot);
}

bool
ttl_reap_error_handle_exit(void)
{
	const TtlStep *step = ttl_step_overdue();

	if (step == NULL)
		return false;
	ttl_reap_rel_discard(step->memory, step->leaf);
	ttl_reap_rel_pause_long(step->leaf);
	ttl_reap_rel_store(step->memory, step->leaf);
	ttl_counters_set_error(step->container.container,
						   "a trigger has ignored cancellation due to \"ttl.batch_timeout\"");
	return true;
}
