/*-------------------------------------------------------------------------
 *
 * delete_tids.c
 *	  Deletes given rows of a table, tagged with a replication origin if the container wants it.
 *
 * With the origin, subscriptions with origin = none, and consumers of logical decoding that skip changes with
 * an origin, can leave the deletions out (they may have a TTL of their own).  An origin can be used by
 * one process at a time, so it is set up for a batch's DELETE alone, and reset before the
 * transaction commits: a tagged commit record would make all standbys track the origin's
 * progress, which is meaningless here and needs a free slot there.  It has to be set up for
 * the session all the same: a subtransaction of a trigger that rolls back looks for the
 * progress, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "deletion/deletion.h"
#include "miscadmin.h"
#include "reaper/reap_table.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "ttl.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* True if this process has taken the replication origin. */
static bool has_origin = false;

/*
 * Tags with the replication origin "ttl" all that this process writes until the end.  Errors with
 * ERRCODE_OBJECT_IN_USE if another process has the origin.
 */
static void
begin_origin(void)
{
	ReplOriginId node;

	/* a user's session may have an origin of its own */
	if (TTL_ORIGIN_OF_XACT != InvalidReplOriginId)
		return;

	/*
	 * PostgreSQL checks this in its SQL functions only, and asserts it where
	 * we come in
	 */
	if (TTL_ORIGINS_MAX == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot use a replication origin when \"%s\" is 0", TTL_ORIGINS_MAX_SETTING),
				 errhint("Set it, or turn replication_origin off with ttl.alter_container().")));

	node = replorigin_by_name(TTL_EXTENSION, true);
	if (node == InvalidReplOriginId)
		node = replorigin_create(TTL_EXTENSION);
	TtlOriginSessionSetup(node);
	TTL_ORIGIN_OF_XACT = node;
	has_origin = true;
}

/* Ends that, if it has begun. */
static void
end_origin(void)
{
	if (!has_origin)
		return;
	has_origin = false;
	TTL_ORIGIN_OF_XACT = InvalidReplOriginId;
	replorigin_session_reset();
}

/*
 * Errors if the clock has been set back since the batch began: rows that have been deleted would live by now.  The
 * launcher ends the workers then, but it may take a second to notice.
 */
static void
check_clock(const TtlBatch *batch)
{
	if (GetCurrentTimestamp() < batch->now)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the clock has been set back while expired rows were deleted")));
}

/* Deletes the batch's rows. */
void
ttl_delete_tids(TtlBatch *batch)
{
	volatile int flags = 0;

	if (batch->reap_rel->pass.skip_locked)
		flags |= TTL_DELETION_SKIP_LOCKED;
	if (batch->memory->mode.by_worker)
		flags |= TTL_DELETION_HEEDS_GRACE | TTL_DELETION_RESTRICTED;
	else if (batch->rel->rd_rel->relowner != GetUserId())
		flags |= TTL_DELETION_RESTRICTED;

	/* in a user's transaction deferred constraints stay deferred */
	if (batch->memory->mode.commits)
		flags |= TTL_DELETION_COMMITS;

	if (batch->container.policy.replication_origin)
	{
		batch->origin_wanted = true;
		begin_origin();
		batch->origin_wanted = false;
	}
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		batch->deleted = ttl_deletion_run(batch->rel, &batch->container,
										  batch->tids, batch->ntids,
										  batch->now, flags, NULL);
		PopActiveSnapshot();
		check_clock(batch);
	}
	PG_FINALLY();
	{
		end_origin();
	}
	PG_END_TRY();
}

/*
 * A DELETE of no rows.  Raises an error in any case, so that it has no effect.
 */
void
ttl_delete_nothing(TtlBatch *batch)
{
	batch->ntids = 0;
	ttl_delete_tids(batch);
	batch->works_without_rows = true;

	/*
	 * caught by ttl_attempt(): even a DELETE of no rows fires statement
	 * triggers
	 */
	elog(ERROR, "nothing has been deleted");
}
