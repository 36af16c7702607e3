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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "deletion/deletion.h"
#include "miscadmin.h"
#include "reaper/origin.h"
#include "reaper/step.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* How long a batch waits for a lock; what lock_timeout is set to. */
#define LOCK_WAIT			"50ms"

void
ttl_step_delete(TtlStep *step)
{
	volatile int flags = 0;

	if (step->skip_locked)
		flags |= TTL_DELETION_SKIP_LOCKED;
	if (step->with_referencing)
		flags |= TTL_DELETION_WITH_REFERENCING;

	if (step->memory->mode.by_worker)
		flags |= TTL_DELETION_SPARES | TTL_DELETION_KEEPS_APART;
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

ErrorData *
ttl_step_attempt(void (*action) (TtlStep *), TtlStep *step)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);

	PG_TRY();
	{
		int			nest_level = NewGUCNestLevel();

		(void) set_config_option("lock_timeout", LOCK_WAIT,
								 PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
		action(step);

		/* nor do settings stay that triggers have made */
		AtEOXact_GUC(false, nest_level);

		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();

		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_END_TRY();

	return error;
}
