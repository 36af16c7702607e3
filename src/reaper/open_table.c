/*-------------------------------------------------------------------------
 *
 * open_table.c
 *	  Opens a table in a transaction that deletes rows of it, with all locks that this takes.
 *
 * The table's lock and the policy's keep the policy as it is until the commit, and with it what has
 * expired.  The worker takes only locks that are available at once, except row locks and
 * what triggers and referential actions take, for some ms; where one isn't, it comes again later.
 * A user's call waits for table and policy as any statement does.
 *
 * For ttl.grace after a change of policy that has made rows expire the worker leaves the table
 * alone; a CALL does not.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog_expr.h"
#include "citus/citus.h"
#include "common/int.h"
#include "container/container.h"
#include "counters.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "reaper/reap_table.h"
#include "reaper/reaper_internal.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/*
 * Takes the locks that foreign keys will need on the referencing tables.  Returns the table of which
 * one is not available: then no row of this table can be deleted, and none is to ttl_blame.
 */
static Oid
lock_referencing(Relation rel, bool waits)
{
	ListCell   *lc;

	foreach(lc, ttl_catalog_referencing(rel))
	{
		const TtlReferencing *key = lfirst(lc);
		bool		checks = key->action == FKCONSTR_ACTION_NOACTION || key->action == FKCONSTR_ACTION_RESTRICT;
		LOCKMODE	lockmode = checks ? RowShareLock : RowExclusiveLock;

		/* triggers would wait for it for some ms only, and blame a row */
		if (waits)
			LockRelationOid(key->table, lockmode);
		else if (!ConditionalLockRelationOid(key->table, lockmode))
			return key->table;
	}
	return InvalidOid;
}

/*
 * Logs that the table's row trigger is disabled or gone, which makes users' INSERTs fail on the keys of its expired
 * rows.  Deletion goes on.  One line for a container, and none again within an hour.
 */
static void
report_trigger(const TtlBatch *batch)
{
	const Trigger *trigger = ttl_row_trigger_among(batch->rel->trigdesc);
	const char *detail = _("Expired rows are hidden and deleted, but until then an INSERT on the key of one fails (or with ON CONFLICT DO NOTHING is left out).");
	Oid			container = batch->container.container;

	if ((trigger != NULL && ttl_row_trigger_is_enabled(trigger)) || !ttl_counters_note_trigger(container))
		return;
	if (trigger != NULL)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("trigger \"%s\" of container \"%s\" is disabled", trigger->tgname,
						ttl_container_qualified_name(container)),
				 errdetail("%s", detail),
				 errhint("Use ALTER TABLE ... ENABLE TRIGGER \"%s\".", trigger->tgname)));
	else
		ereport(WARNING,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("container \"%s\" has lost its trigger \"%s\"",
						ttl_container_qualified_name(container), TTL_TRIGGER),
				 errdetail("%s", detail),
				 errhint("Use ttl.drop_container(), and ttl.create_container() with the names of the columns.")));
}

/*
 * Opens the table if rows of it may be deleted now.  The locks last to the end of the
 * transaction.  batch->rel is NULL if the table is not there.
 */
TtlReapResult
ttl_open_table(TtlBatch *batch, Oid container)
{
	Oid			relid = batch->reap_rel->relid;
	bool		waits = !batch->memory->mode.by_worker;
	TimestampTz paused_until;
	bool		is_shard;
	Oid			locked;

	if (ttl_container_objects() == NULL)
		return TTL_REAP_DONE;	/* the extension was dropped */

	batch->container.container = container;

	/*
	 * first Citus's locks, then the table, then the policy: DDL does it in
	 * this order
	 */
	is_shard = ttl_citus_lock_shard(container, waits);
	if (waits)
		LockRelationOid(relid, RowExclusiveLock);
	else if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
		return ttl_blame_leave_locked(batch, _("could not obtain lock on relation \"%s\""), relid);
	if (!ttl_policy_lock(container, false, waits))
		return ttl_blame_leave_locked(batch, _("could not obtain lock on the policy of container \"%s\""), container);

	/* a lock that was held before has not brought the policy up to date */
	AcceptInvalidationMessages();

	batch->rel = try_relation_open(relid, NoLock);
	if (batch->rel == NULL ||
		batch->rel->rd_rel->relkind != RELKIND_RELATION ||
		!ttl_container_lookup(relid, &batch->container) ||
		batch->container.container != container ||
		batch->container.policy.default_ttl == TTL_OFF ||
		(!waits && (!batch->container.policy.reaping || ttl_hold_is_paused(&paused_until))) ||
		pg_sub_s64_overflow(ttl_execution_reference_time(), batch->container.policy.reap_delay,
							&batch->now))
		return TTL_REAP_DONE;
	if (batch->container.policy.propagated && !is_shard)
	{
		if (!waits)
			return ttl_blame_leave_locked(batch, _("shard \"%s\" is being copied, or rows on other nodes may reference its rows"), container);
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("expired rows of shard \"%s\" have not been deleted", get_rel_name(container)),
				 errdetail("It is being copied, or rows on other nodes may reference its rows.")));
		return TTL_REAP_DONE;
	}
	if (!waits)
		report_trigger(batch);
	if (!waits && !ttl_expiry_lock_indexes(batch->rel))
		return ttl_blame_leave_locked(batch, _("could not obtain lock on an expiry index of table \"%s\""), relid);
	locked = lock_referencing(batch->rel, waits);
	if (OidIsValid(locked))
		return ttl_blame_leave_locked(batch, _("could not obtain lock on relation \"%s\""), locked);

	if (!waits && ttl_grace_lasts(&batch->container.policy.change, ttl_execution_reference_time()))
	{
		/* rows that the change has made expired may lie before the position */
		ttl_pass_forget(batch->reap_rel);
		batch->again_at = ttl_grace_end(&batch->container.policy.change, GetCurrentTimestamp());
		return TTL_REAP_DONE;
	}
	return TTL_REAP_MORE;
}
