/*-------------------------------------------------------------------------
 *
 * deletion.c
 *	  Physical deletion of expired rows, shared by reaper and eviction.
 *
 * It is an ordinary DELETE through SPI, so that triggers fire, foreign keys
 * act and logical decoding sees it.  The rows are given by their place
 * (ctid); what is there is judged again by the DELETE itself, whose
 * ttl.is_live() filter looks for the expired rows in such an execution (see
 * expiry.c).  So it does no harm that a place may have got another row, that
 * a row may have been renewed, or the policy changed, since somebody looked.
 *
 * It runs as the table's owner, whoever calls: neither does an inserting user
 * need the DELETE privilege, nor do the owner's triggers get anybody else's
 * rights.  SECURITY_RESTRICTED_OPERATION would keep deferred foreign keys
 * from working.  The search_path is safe, as for other maintenance.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "container/deletion.h"
#include "execution.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

static List *evict_observers = NIL;

void
ttl_deletion_on_evict(TtlEvicted evicted)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	evict_observers = lappend(evict_observers, (void *) evicted);
	MemoryContextSwitchTo(old);
}

void
ttl_deletion_report_evicted(Oid container, uint64 rows)
{
	ListCell   *lc;

	foreach(lc, evict_observers)
		((TtlEvicted) lfirst(lc)) (container, rows);
}

static Datum
tid_array(const ItemPointerData *tids, int ntids)
{
	Datum	   *elements = palloc(sizeof(Datum) * ntids);

	for (int i = 0; i < ntids; i++)
		elements[i] = PointerGetDatum(&tids[i]);
	return PointerGetDatum(construct_array(elements, ntids, TIDOID,
										   sizeof(ItemPointerData), false,
										   TYPALIGN_SHORT));
}

/* SET CONSTRAINTS ALL IMMEDIATE */
static void
fire_deferred(void)
{
	ConstraintsSetStmt *stmt = makeNode(ConstraintsSetStmt);

	stmt->constraints = NIL;
	stmt->deferred = false;
	AfterTriggerSetState(stmt);
}

uint64
ttl_deletion_run(Relation rel, const ItemPointerData *tids, int ntids,
				 TimestampTz expired_at, int flags)
{
	char	   *table = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												   RelationGetRelationName(rel));
	char	   *sql;
	Oid			types[] = {TIDARRAYOID};
	Datum		values[1];
	Oid			save_userid;
	int			save_sec_context;
	int			save_nestlevel;
	volatile uint64 deleted = 0;

	if (flags & TTL_DELETION_SKIP_LOCKED)
		sql = psprintf("DELETE FROM ONLY %s WHERE ctid = ANY (ARRAY("
					   "SELECT ctid FROM ONLY %s WHERE ctid = ANY ($1) FOR UPDATE SKIP LOCKED))",
					   table, table);
	else
		sql = psprintf("DELETE FROM ONLY %s WHERE ctid = ANY ($1)", table);
	values[0] = tid_array(tids, ntids);

	GetUserIdAndSecContext(&save_userid, &save_sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   save_sec_context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS);
	save_nestlevel = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);

	SPI_connect();
	ttl_execution_expect_deletion(sql, expired_at);
	PG_TRY();
	{
		int			result = SPI_execute_with_args(sql, 1, types, values, NULL, false, 0);

		if (result < 0)
			elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
		deleted = SPI_processed;
	}
	PG_FINALLY();
	{
		ttl_execution_expect_nothing();
	}
	PG_END_TRY();
	if (flags & TTL_DELETION_CONSTRAINTS_NOW)
		fire_deferred();
	SPI_finish();

	AtEOXact_GUC(false, save_nestlevel);
	SetUserIdAndSecContext(save_userid, save_sec_context);
	return deleted;
}
