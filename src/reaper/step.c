/*-------------------------------------------------------------------------
 *
 * step.c
 *	  A step: what one transaction does to a table.
 *
 * Whatever may fail runs in a subtransaction.
 *
 * The worker takes no lock that it cannot have at once, except row locks and
 * what triggers and referential actions take, for LOCK_WAIT.  A user's call
 * waits for table and policy as any statement does.
 *
 * Triggers may sleep or loop.  From ttl.batch_timeout after its start on, a step is
 * cancelled as statement_timeout would do it, and again every CANCEL_PERIOD, since a
 * trigger may trap the error.  A worker whose cancellations are all trapped is
 * terminated in the end (reap_error.c); in a user's session that is left to the user.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "deletion/deletion.h"
#include "miscadmin.h"
#include "reaper/reaper_internal.h"
#include "reaper/step.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

/* How long a batch waits for a lock; what lock_timeout is set to. */
#define LOCK_WAIT			"50ms"

/* Time between cancellations, ms; so many may be trapped by a trigger. */
#define CANCEL_PERIOD		1000
#define CANCELS_MAX			5

static TimeoutId timeout_id;	/* registered when it is needed first */

void
ttl_step_delete(TtlStep *step)
{
	volatile int flags = 0;

	if (step->skip_locked)
		flags |= TTL_DELETION_SKIP_LOCKED;
	if (step->with_referencing)
		flags |= TTL_DELETION_WITH_REFERENCING;

	if (step->memory->mode.by_worker)
		flags |= TTL_DELETION_EXCLUDES | TTL_DELETION_KEEPS_APART;
	else if (step->rel->rd_rel->relowner != GetUserId())
		flags |= TTL_DELETION_RESTRICTED;

	/* in a user's transaction deferred constraints stay deferred */
	if (step->memory->mode.commits)
		flags |= TTL_DELETION_COMMITS;

	if (step->container.replication_origin)
	{
		step->origin_wanted = true;
		ttl_origin_begin();
		step->origin_wanted = false;
	}
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		step->deleted = ttl_deletion_run(step->rel, &step->container,
										 step->tids, step->ntids,
										 step->now, flags, NULL);
		if (step->memory->mode.by_worker)
			ttl_session_drop_temporary();
		PopActiveSnapshot();
	}
	PG_FINALLY();
	{
		ttl_origin_end();
	}
	PG_END_TRY();
}

void
ttl_step_delete_nothing(TtlStep *step)
{
	step->ntids = 0;
	ttl_step_delete(step);
	step->works_without_rows = true;
	elog(ERROR, "nothing has been deleted");
}

/* Cancellations of the running attempt by its timeout */
static volatile sig_atomic_t expirations = 0;

/* The attempt that runs until a deadline, or NULL */
static TtlStep *timed_step = NULL;

/* Signal handler */
static void
deadline_expired(void)
{
	/* a cancellation that is pending is somebody else's and goes first */
	if (expirations == 0 && QueryCancelPending)
		return;
	expirations++;
	if (expirations > CANCELS_MAX && timed_step != NULL &&
		timed_step->memory->mode.by_worker)
		ProcDiePending = true;
	else
		QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

static void
start_timeout(TtlStep *step)
{
	static bool is_registered = false;

	expirations = 0;
	if (step->deadline == 0)
		return;
	if (!is_registered)
		timeout_id = RegisterTimeout(USER_TIMEOUT, deadline_expired);
	is_registered = true;
	timed_step = step;
	enable_timeout_every(timeout_id, step->deadline, CANCEL_PERIOD);
}

/*
 * Stops the timeout.  Returns whether it has expired.  A cancellation that came too
 * late to be processed would meet the next statement.
 */
static bool
stop_timeout(void)
{
	if (timed_step == NULL)
		return false;
	timed_step = NULL;
	disable_timeout(timeout_id, false);
	if (expirations > 0)
		QueryCancelPending = false;
	return expirations > 0;
}

const TtlStep *
ttl_step_overdue(void)
{
	return expirations > 0 ? timed_step : NULL;
}

ErrorData *
ttl_step_attempt(void (*action) (TtlStep *), TtlStep *step)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;
	bool		is_limited = get_timeout_active(STATEMENT_TIMEOUT);

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);

	PG_TRY();
	{
		int			nest_level = NewGUCNestLevel();

		(void) set_config_option("lock_timeout", LOCK_WAIT,
								 PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
		start_timeout(step);
		action(step);
		step->timed_out = stop_timeout();

		/* nor do settings stay that triggers have made */
		AtEOXact_GUC(false, nest_level);

		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		step->timed_out = stop_timeout();
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();

		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;

		/* a user's statement_timeout may have expired, too */
		if (is_limited && !get_timeout_active(STATEMENT_TIMEOUT))
			step->timed_out = false;
		if (step->timed_out && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			error->message = "canceling deletion due to \"ttl.batch_timeout\"";
	}
	PG_END_TRY();

	return error;
}
