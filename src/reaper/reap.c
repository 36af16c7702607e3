/*-------------------------------------------------------------------------
 *
 * reap.c
 *	  CALL ttl.reap: deletes expired rows in the foreground.
 *
 * The same batches as the worker's, but without a budget, and errors that are not those of a
 * single row go to the caller.  In a transaction block all of it is part of that transaction.
 *
 * A row that is written after the call has begun is left alone, by whatever transaction:
 * else a trigger that inserts expired rows would keep it from coming to an end.
 *
 * The caller's session keeps what triggers leave in it, so the container of another role
 * is treated as by VACUUM: as the owner, in a security-restricted operation, even if
 * the caller is a member of that role or a superuser; and only if the caller
 * names it.  In such an operation constraints are immediate, which would last to the end of a
 * transaction block, so there the caller must be the owner.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "citus/citus.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "reaper/findings.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(ttl_reap);

/* True while this process runs a call, between its batches and at their commits, too. */
static bool is_called = false;

/*
 * Deletes expired rows of a distributed table, at most max_rows of each shard.  What fails
 * on a node is reported at that level.
 */
static void
reap_shards(TtlMemory *memory, Oid container, int64 max_rows, int elevel)
{
	int64		rows;

	if (!memory->mode.commits)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot delete expired rows of distributed table \"%s\" inside a transaction block",
						get_rel_name(container)),
				 errdetail("They are deleted by transactions of its shards.")));
	rows = ttl_citus_reap(container, max_rows, elevel);
	if (rows > 0)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg_plural("%lld expired row of distributed table \"%s\" is still stored",
							   "%lld expired rows of distributed table \"%s\" are still stored",
							   (unsigned long) rows, (long long) rows, get_rel_name(container))));
	ereport(NOTICE,
			(errmsg("ttl: shards of distributed table \"%s\" reaped",
					get_rel_name(container))));
}

/*
 * Deletes expired rows of one container, at most max_rows, and returns how
 * many.
 */
static int64
reap_container(TtlMemory *memory, Oid container, int64 max_rows)
{
	TtlContainerCounters none = {0};
	List	   *tables = NIL;
	TtlContainer member;
	int64		rows = 0;
	bool		has_more = false;
	ListCell   *lc;

	if (!memory->mode.commits && ttl_container_owner(container) != GetUserId())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot delete expired rows of container \"%s\", which belongs to another role, inside a transaction block",
						get_rel_name(container)),
				 errdetail("Nothing may be deferred to the end of the transaction, which would run with the rights of the role that commits."),
				 errhint("Call ttl.reap() outside of a transaction block, or as the owner of the container.")));

	ttl_reap_rel_connect(memory);

	/*
	 * what a procedure has deferred before it called must not fire as the
	 * owner
	 */
	if (memory->mode.commits)
		SPI_commit();

	foreach(lc, ttl_container_leaves(container))
	{
		TtlReapRel *reap_rel = palloc(sizeof(TtlReapRel));

		/* what the worker has left of a pass is its own */
		ttl_pass_resume(reap_rel, lfirst_oid(lc), &none);
		tables = lappend(tables, reap_rel);
	}
	foreach(lc, tables)
	{
		TtlTurn		turn = {
			.max_cost = PG_INT64_MAX,
			.max_rows = max_rows - rows,
			.max_batch_cost = PG_INT64_MAX,
			.until = DT_NOEND
		};

		ttl_reap_rel_run(memory, container, (TtlReapRel *) lfirst(lc), &turn);
		rows += turn.rows;
		has_more |= turn.end == TTL_REAP_MORE;
	}
	if (ttl_container_peek(container, &member))
		(void) ttl_findings_report(&memory->mode, container, member.policy.default_ttl, tables, has_more);
	SPI_finish();

	/* the state that the worker has of it is out of date */
	if (rows > 0 && OidIsValid(ttl_container_owner(container)))
		CacheInvalidateRelcacheByRelid(container);
	return rows;
}

/* The caller's own containers, except those with reaping off or in grace */
static pg_noinline List *
list_own_containers(void)
{
	List	   *own = ttl_policy_list(TTL_CONTAINERS_SOUND);
	ListCell   *lc;

	foreach(lc, own)
	{
		TtlPolicy	policy;

		if (ttl_container_owner(lfirst_oid(lc)) != GetUserId() ||
			!ttl_policy_read(lfirst_oid(lc), &policy) || !policy.reaping ||
			ttl_grace_lasts(&policy.change, ttl_execution_reference_time()))
			own = foreach_delete_current(own, lc);
	}
	return own;
}

/*
 * CALL ttl.reap(container regclass, max_rows bigint)
 *
 * container NULL = the caller's own, the default
 */
Datum
ttl_reap(PG_FUNCTION_ARGS)
{
	bool		atomic = !IsA(fcinfo->context, CallContext) ||
	castNode(CallContext, fcinfo->context)->atomic;
	volatile int64 max_rows = PG_INT64_MAX;
	volatile int64 rows = 0;
	MemoryContext context;
	MemoryContext oldcontext;
	TtlReapMode mode;
	TtlMemory  *memory;
	List	   *containers;
	bool		all;
	ListCell   *lc;

	ttl_container_check_writable("CALL ttl.reap()");
	if (is_called || ttl_attempt_is_running() || ttl_deletion_is_running())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot call ttl.reap() while expired rows are being deleted"),
				 errdetail("The deletion has set off the caller, for example a trigger.")));
	all = PG_ARGISNULL(0);
	if (!PG_ARGISNULL(1))
	{
		max_rows = PG_GETARG_INT64(1);
		if (max_rows <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("\"%s\" must be greater than zero", "max_rows")));
	}

	mode.by_worker = false;
	mode.commits = !atomic && !IsSubTransaction();
	mode.next_xid = ReadNextTransactionId();

	/* outlives the transactions of the call */
	context = AllocSetContextCreate(PortalContext, "ttl reap",
									ALLOCSET_DEFAULT_SIZES);
	oldcontext = MemoryContextSwitchTo(context);

	if (all)
		containers = list_own_containers();
	else
	{
		ttl_container_check_owned(PG_GETARG_OID(0));
		containers = list_make1_oid(PG_GETARG_OID(0));
	}

	memory = ttl_reap_rel_memory_create(context, mode);
	is_called = true;
	PG_TRY();
	{
		foreach(lc, containers)
		{
			if (rows >= max_rows)
				break;
			/* it may have been given away, or dropped, since the call began */
			if (all && ttl_container_owner(lfirst_oid(lc)) != GetUserId())
				continue;
			if (ttl_citus_is_distributed(lfirst_oid(lc)))
				reap_shards(memory, lfirst_oid(lc), max_rows, all ? WARNING : ERROR);
			else
				rows += reap_container(memory, lfirst_oid(lc), max_rows - rows);
			ttl_request_at_commit();
		}
	}
	PG_FINALLY();
	{
		is_called = false;
	}
	PG_END_TRY();

	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(context);

	if (all || !ttl_citus_is_distributed(PG_GETARG_OID(0)))
		ereport(NOTICE,
				(errmsg_plural("ttl: %lld expired row deleted",
							   "ttl: %lld expired rows deleted",
							   (unsigned long) rows, (long long) rows)));
	PG_RETURN_VOID();
}
