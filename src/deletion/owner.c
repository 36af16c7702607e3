/*-------------------------------------------------------------------------
 *
 * owner.c
 *	  Acts as the owner of a table.
 *
 * A deletion runs as the table's owner, whoever calls: neither does an inserting user
 * need the DELETE privilege, nor do the owner's triggers get anybody else's rights.
 * SECURITY_RESTRICTED_OPERATION would keep deferred foreign keys from working.  The
 * search_path is safe, as for other maintenance.
 *
 * A partition has the row triggers of the tables above it besides its own, so where
 * these have different owners, nobody could be trusted with it, and nothing is deleted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "deletion/owner.h"
#include "execution.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/portal.h"
#include "utils/rel.h"

/* No name of the owner's schemas means anything to what is run as the owner. */
#define SAFE_SEARCH_PATH	"pg_catalog, pg_temp"

/*
 * Error context of the deletion: a trigger that misses something, under our
 * search_path, may find it under its own.
 */
void
ttl_owner_explain(void *arg)
{
	int			error = geterrcode();

	if ((error == ERRCODE_UNDEFINED_TABLE || error == ERRCODE_UNDEFINED_FUNCTION ||
		 error == ERRCODE_UNDEFINED_OBJECT) &&
		strcmp(namespace_search_path, SAFE_SEARCH_PATH) == 0)
		errhint("Triggers that fire for the deletion of expired rows have search_path \"%s\". Qualify the name, or give the trigger's function a path of its own with ALTER FUNCTION ... SET search_path.",
				SAFE_SEARCH_PATH);
}

void
ttl_owner_check(Relation rel)
{
	Oid			ancestor = ttl_container_ancestor_of_other(RelationGetRelid(rel));

	if (OidIsValid(ancestor))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("partition \"%s\" and table \"%s\" have different owners",
						RelationGetRelationName(rel), get_rel_name(ancestor)),
				 errdetail("Expired rows of the partition cannot be deleted, because triggers of the one owner would run as the other."),
				 errhint("Give both the same owner with ALTER TABLE ... OWNER TO.")));
}

/*
 * Where a session applies what was done elsewhere (session_replication_role =
 * replica), triggers don't fire, foreign keys' neither; but a deletion of ours was
 * done nowhere else.
 */
void
ttl_owner_begin(Relation rel, TtlIdentity *saved)
{
	GetUserIdAndSecContext(&saved->userid, &saved->sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   saved->sec_context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_NOFORCE_RLS);
	saved->nestlevel = NewGUCNestLevel();
	(void) set_config_option("search_path", SAFE_SEARCH_PATH,
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		(void) set_config_option("session_replication_role", "origin",
								 PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
}

void
ttl_owner_end(const TtlIdentity *saved)
{
	SPI_finish();
	AtEOXact_GUC(false, saved->nestlevel);
	SetUserIdAndSecContext(saved->userid, saved->sec_context);
}

/* Parallel workers would not know; what SPI_prepare() makes is not parallel. */
void
ttl_owner_execute(const char *sql, int nargs, Oid *types, Datum *values,
				  TimestampTz expired_at, bool spares, Snapshot snapshot)
{
	TtlExpectation outer =
	ttl_execution_expect_deletion(sql, expired_at,
								  spares);

	PG_TRY();
	{
		SPIPlanPtr	plan = SPI_prepare(sql, nargs, types);
		int			result = SPI_execute_snapshot(plan, values, NULL, snapshot,
												  InvalidSnapshot, false, true, 0);

		if (result < 0)
			elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(result));
	}
	PG_FINALLY();
	{
		ttl_execution_expect(outer);
	}
	PG_END_TRY();
}

/*
 * Each may leave more of the other behind, and triggers may defer what SET CONSTRAINTS
 * would make immediate, so it is done as COMMIT does it.
 */
void
ttl_owner_run_deferred(void)
{
	do
	{
		AfterTriggerFireDeferred();
	} while (PreCommit_Portals(false));
}
