/*-------------------------------------------------------------------------
 *
 * blame.c
 *	  Whose an error of a batch is, a row's, the table's, or nobody's, and what follows.
 *
 * ttl_blame() decides by where the error was raised and by what a DELETE of no rows does:
 * - What triggers, rules and referential actions raise is a row's, whatever its SQLSTATE, unless
 *	 the DELETE of no rows raises it, too.  The batch is halved until the row is alone, or its rows are
 *	 deleted one by one if it has taken long (batch.c); the row is counted as blocked and left to the next pass.
 * - What the DELETE of no rows raises, or we ourselves, is the table's (a published table without
 *	 replica identity, a trigger of the archive that is disabled, a full disk): the worker pauses the table, longer
 *	 each time.
 * - A lock that is not available, a deadlock, a cancellation is nobody's: it passes.  The worker
 *	 comes again in a second.  In a user's call a cancellation is the user's, wherever it was raised.
 *
 * The reason always stands in last_error; but a lock that we don't get is told only if a second
 * later it still isn't available.
 *
 * A pass logs the errors of LOGGED_MAX rows, beyond the number that the pass before has met.  The worker
 * logs no error again that it, or another worker, met last, and less than an hour ago; of the errors of
 * a container's tables, those of the first turn that fails.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "container/container.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "reaper/reap_table.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* How long a table is paused at first after an error of its own */
#define PAUSE_MIN			(1 * USECS_PER_SEC)

/* Errors of rows that are logged in a pass */
#define LOGGED_MAX			3

/*
 * Notes an error, as 'text', for the statistics; maybe logs it, or shows it to the user who has called.  What the
 * statistics have already is shown only as the first of a call.
 */
static void
report_error(TtlBatch *batch, const ErrorData *error, const char *text, bool is_logged)
{
	TtlPass    *pass = &batch->reap_rel->pass;
	ErrorContextCallback *stack = error_context_stack;
	bool		is_new = ttl_counters_set_error(batch->container.container, text);

	if (!is_logged || (!is_new && (batch->memory->mode.by_worker || pass->nlogged > 0)))
		return;

	/* its context, if any, includes that of this function */
	if (error->context != NULL)
		error_context_stack = NULL;
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not delete expired rows of table \"%s\": %s",
					ttl_container_qualified_name(batch->reap_rel->relid),
					error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0,
			 error->context ? errcontext("%s", error->context) : 0));
	error_context_stack = stack;
	pass->nlogged++;
}

/*
 * Reports an error for which no row is to blame.  The worker logs one of a kind for a container, whatever
 * the number of its tables, and none as long as the container fails.
 */
static void
report_failure(TtlBatch *batch, const ErrorData *error)
{
	bool		is_logged = !batch->memory->mode.by_worker ||
	ttl_counters_note_failure(batch->container.container, error->sqlerrcode);

	/*
	 * the reason may stand in the detail alone; that of a row's error is
	 * private, it may have its values
	 */
	report_error(batch, error,
				 error->detail == NULL ? error->message : psprintf("%s: %s", error->message, error->detail),
				 is_logged);
}

/*
 * Reports why rows cannot be deleted, which have been counted.  It is logged only if there are more of
 * them than known, and no more than LOGGED_MAX times in a pass.
 */
void
ttl_blame_report_blocked(TtlBatch *batch, const ErrorData *error)
{
	TtlPass    *pass = &batch->reap_rel->pass;
	bool		is_more = pass->blocked + batch->reap_rel->blocked > pass->last_blocked;

	report_error(batch, error, error->message, is_more && pass->nlogged < LOGGED_MAX);
}

/* Counts and reports a row that cannot be deleted. */
void
ttl_blame_block_row(TtlBatch *batch, const ErrorData *error)
{
	batch->reap_rel->blocked++;
	batch->reap_rel->pass.raises = true;
	ttl_blame_report_blocked(batch, error);
}

/* True if it is an error that passes, when we have raised it ourselves. */
static bool
is_passing(const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
		category == ERRCODE_TRANSACTION_ROLLBACK || category == ERRCODE_OPERATOR_INTERVENTION;
}

/* True if another process has the replication origin. */
bool
ttl_blame_lacks_origin(const TtlBatch *batch, const ErrorData *error)
{
	return batch->origin_wanted && error->sqlerrcode == ERRCODE_OBJECT_IN_USE;
}

/* True if it is an error of the server, when we have raised it ourselves. */
static bool
lacks_resources(const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return category == ERRCODE_INSUFFICIENT_RESOURCES || category == ERRCODE_SYSTEM_ERROR;
}

/*
 * True if the error may have been raised by the owner's code, which may choose any SQLSTATE.  A rule
 * adds queries to our statement.
 */
static bool
is_raised_by_code(const TtlBatch *batch, const ErrorData *error)
{
	/*
	 * a cancellation comes from outside, and a snapshot that is too old stays
	 * so for all rows
	 */
	if (!batch->memory->mode.by_worker &&
		(ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION ||
		 (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_TRANSACTION_ROLLBACK && IsolationUsesXactSnapshot())))
		return false;
	return batch->in_trigger || ttl_owner_has_rule(batch->rel);
}

/*
 * Decides whose error it is that an attempt has met.  *error becomes that of the table, if the row
 * which is alone in the batch has met another.
 */
TtlBlame
ttl_blame(TtlBatch *batch, ErrorData **error)
{
	TtlBatch	test;
	ErrorData  *test_error;

	if (batch->timed_out)
		return TTL_BLAME_ROW;
	if (batch->origin_wanted)
		return ttl_blame_lacks_origin(batch, *error) ? TTL_BLAME_NOBODY : TTL_BLAME_TABLE;
	if (!is_raised_by_code(batch, *error))
	{
		if (is_passing(*error))
			return TTL_BLAME_NOBODY;
		if (lacks_resources(*error))
			return TTL_BLAME_TABLE;
	}

	/*
	 * no row was to be deleted yet: they were looked for, or what references
	 * them
	 */
	if (batch->ntids == 0)
		return TTL_BLAME_TABLE;
	/* if it is none of theirs, that shows when one is alone */
	if (batch->ntids > 1)
		return TTL_BLAME_ROW;

	test = *batch;
	test_error = ttl_attempt(ttl_delete_nothing, &test, true);
	if (test.works_without_rows || test.timed_out)
		return TTL_BLAME_ROW;
	*error = test_error;
	return is_passing(test_error) ? TTL_BLAME_NOBODY : TTL_BLAME_TABLE;
}

/* True if a user's call ends with the error, which is no row's, rather than to go on with other tables. */
static bool
ends_call(const TtlBatch *batch, const ErrorData *error)
{
	return !batch->memory->mode.by_worker && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
		(batch->ntids == 0 || batch->origin_wanted || is_passing(error) || lacks_resources(error));
}

/*
 * Leaves the table to a later turn, for an error that is no row's, and reports it.  What passes may have
 * passed before anybody could look, so a lock is reported only if the turn before has not got it, either.
 */
TtlReapResult
ttl_blame_leave_table(TtlBatch *batch, TtlBlame whose, ErrorData *error)
{
	TtlReapRel *reap_rel = batch->reap_rel;
	bool		is_first = reap_rel->pause == 0;
	bool		is_lock = error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || ttl_blame_lacks_origin(batch, error);

	if (ends_call(batch, error))
		ReThrowError(error);

	/*
	 * what passes is tried again soon, what has to be mended less and less
	 * often
	 */
	if (whose == TTL_BLAME_NOBODY)
		reap_rel->pause = PAUSE_MIN;
	else
		reap_rel->pause = Min(Max(reap_rel->pause * 2, PAUSE_MIN), TTL_LONGEST_PAUSE);
	if (is_first && is_lock && batch->memory->mode.by_worker)
		return TTL_REAP_LATER;
	report_failure(batch, error);
	reap_rel->is_failing = true;
	return TTL_REAP_LATER;
}

/*
 * Leaves the table to a later turn, since the lock is not available; the message has the name of the relation
 * for %s.
 */
TtlReapResult
ttl_blame_leave_locked(TtlBatch *batch, const char *message, Oid relid)
{
	ErrorData	error = {.sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE};
	char	   *name = get_rel_name(relid);

	error.message = psprintf(message, name != NULL ? name : "?");
	return ttl_blame_leave_table(batch, TTL_BLAME_NOBODY, &error);
}
