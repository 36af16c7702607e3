/*-------------------------------------------------------------------------
 *
 * attempt.c
 *	  Attempts a step of a batch that may fail, loop, or end the process.
 *
 * The step runs in a subtransaction, and waits for a lock for LOCK_WAIT.  Where an error of it
 * was raised, in a trigger or not, can be told only then: an error context callback notes it.
 *
 * Triggers may sleep or loop.  When a batch has taken ttl.batch_timeout it is canceled
 * as by statement_timeout, and again every CANCEL_PERIOD, since a trigger may trap the
 * error.  Its rows are then deleted one by one.  A worker whose cancellations are all
 * trapped is terminated in the end; in a user's session that is left to the user.  When the
 * worker's process ends during an attempt, by this or by a trigger (exit_on_error, transaction_timeout,
 * pg_terminate_backend()), ttl_attempt_handle_exit() gives the container a long pause.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "deletion/deletion.h"
#include "guc.h"
#include "miscadmin.h"
#include "reaper/reap_table.h"
#include "storage/latch.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

/* How long a step waits for a lock; the value of lock_timeout */
#define LOCK_WAIT			"50ms"

/* Time between cancellations, ms, and their greatest number */
#define CANCEL_PERIOD		1000
#define CANCELS_MAX			5

static TimeoutId timeout_id;	/* registered when it is first needed */

/* Cancellations of the running attempt by its timeout */
static volatile sig_atomic_t expirations = 0;

/* The batch that is being attempted, or NULL, and whether until its deadline */
static TtlBatch *attempted = NULL;
static bool is_timed = false;

/* The number of triggers around the attempt */
static int	outer_depth = 0;

/* The number of triggers that run, one within the other: those of foreign keys count, too. */
static int
trigger_depth(void)
{
	return DatumGetInt32(pg_trigger_depth(NULL));	/* it takes no argument */
}

/*
 * Error context callback of an attempt.  A trigger may trap an error and raise it anew, without a
 * call of this; but whatever it has trapped was raised within it, too.
 */
static void
note_place(void *arg)
{
	((TtlBatch *) arg)->in_trigger = trigger_depth() > outer_depth;
}

/* Signal handler */
static void
deadline_expired(void)
{
	/* a pending cancellation has another cause and goes first */
	if (expirations == 0 && QueryCancelPending)
		return;
	expirations++;
	/* as die() and StatementCancelHandler() do when a signal tells them to */
	if (expirations > CANCELS_MAX && attempted->memory->mode.by_worker)
		ProcDiePending = true;
	else
		QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

/* Starts the timeout, unless ttl.batch_timeout is 0. */
static void
start_deadline(TtlBatch *batch)
{
	static bool is_registered = false;

	expirations = 0;
	if (batch->deadline == 0 && ttl_guc_batch_timeout > 0)
		batch->deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													  ttl_guc_batch_timeout);
	if (batch->deadline == 0)
		return;
	if (!is_registered)
		timeout_id = RegisterTimeout(USER_TIMEOUT, deadline_expired);
	is_registered = true;
	is_timed = true;
	enable_timeout_every(timeout_id, batch->deadline, CANCEL_PERIOD);
}

/*
 * Stops the timeout.  Returns whether it has expired.  A cancellation that has not
 * been processed yet would hit the next statement.
 */
static bool
stop_deadline(void)
{
	if (!is_timed)
		return false;
	is_timed = false;
	disable_timeout(timeout_id, false);
	if (expirations > 0)
		QueryCancelPending = false;
	return expirations > 0;
}

/* True if this process is at a step by which code of users may run. */
bool
ttl_attempt_is_running(void)
{
	return attempted != NULL;
}

/*
 * At the exit of a worker: true if a batch has ended the process.  The next worker then gives
 * the container a long pause.  If somebody else has terminated the worker, only a batch that could
 * not be canceled is blamed.
 */
bool
ttl_attempt_handle_exit(bool is_terminated)
{
	TtlBatch   *batch = attempted;
	bool		is_canceled = is_timed && expirations > 0;

	if (batch == NULL || (is_terminated && !is_canceled))
		return false;
	ttl_counters_set_pause(batch->container.container, GetCurrentTimestamp() + TTL_LONGEST_PAUSE);
	(void) ttl_counters_set_error(batch->container.container, is_canceled ?
								  "a trigger has ignored cancellation due to \"ttl.batch_timeout\"" :
								  "deletion of expired rows has ended the worker process");
	return true;
}

/*
 * Calls the function in a subtransaction, with a short lock_timeout, maybe until the
 * batch's deadline, which begins with the first such call.  Returns NULL on success, else
 * the error.
 */
ErrorData *
ttl_attempt(void (*action) (TtlBatch *), TtlBatch *batch, bool has_deadline)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;
	bool		is_limited = get_timeout_active(STATEMENT_TIMEOUT);
	ErrorContextCallback callback = {
		.previous = error_context_stack,
		.callback = note_place,
		.arg = batch
	};

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);

	PG_TRY();
	{
		int			nest_level = NewGUCNestLevel();

		(void) set_config_option("lock_timeout", LOCK_WAIT,
								 PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
		attempted = batch;
		batch->in_trigger = false;
		outer_depth = trigger_depth();
		error_context_stack = &callback;
		if (has_deadline)
			start_deadline(batch);
		action(batch);
		batch->timed_out = stop_deadline();
		error_context_stack = callback.previous;
		attempted = NULL;

		/* discard settings made by triggers */
		AtEOXact_GUC(false, nest_level);

		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		batch->timed_out = stop_deadline();
		attempted = NULL;
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();

		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;

		/* a user's statement_timeout may have expired, too */
		if (is_limited && !get_timeout_active(STATEMENT_TIMEOUT))
			batch->timed_out = false;
		if (batch->timed_out && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			error->message = pstrdup(_("canceling deletion due to \"ttl.batch_timeout\""));
	}
	PG_END_TRY();

	return error;
}
