/*-------------------------------------------------------------------------
 *
 * nodes.c
 *	  Queries and commands to all nodes of a cluster, by functions of Citus.
 *
 * What is run on a shard is committed there, whatever becomes of the transaction here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "citus/citus.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"
#include "utils/varlena.h"

/* Errors (55006) if sessions that are opened for the shards would wait for this one. */
static void
check_unlocked(Oid relid)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, AccessShareLock))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		if (CheckRelationLockedByMe(rel, AccessExclusiveLock, false))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("cannot look at shards of \"%s\" because this transaction has locked them",
							RelationGetRelationName(rel)),
					 errdetail("It is done by other sessions, which would wait for ever.")));
		table_close(rel, NoLock);
	}
}

/*
 * Runs "... ttl.function(shard ..." on all shards.  Returns the sum of the numbers that it
 * answers.  Citus doesn't qualify names of schema public, whatever the search_path there.
 */
static int64
run_on_shards(Oid relid, const char *before, const char *after, bool answers, int elevel)
{
	char	   *command = psprintf("%s%s%%L)::pg_catalog.regclass%s", before,
								   get_rel_namespace(relid) == get_namespace_oid("public", true) ?
								   "(pg_catalog.text 'public.' OPERATOR(pg_catalog.||) " : "(", after);
	static const char *const query =
	"SELECT coalesce('error: ' || min(result) FILTER (WHERE NOT success),"
	" sum(CASE WHEN success AND $3 THEN result::int8 END)::text, '0')"
	" FROM run_command_on_placements($1, $2)";
	Oid			types[] = {REGCLASSOID, TEXTOID, BOOLOID};
	Datum		values[] = {ObjectIdGetDatum(relid), CStringGetTextDatum(command), BoolGetDatum(answers)};
	char	   *answer;

	check_unlocked(relid);
	answer = ttl_citus_query(query, NULL, lengthof(types), types, values);
	if (answer[0] != 'e')
		return strtoi64(answer, NULL, 10);
	ereport(elevel,
			(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
			 errmsg("command failed on a shard of \"%s\"", get_rel_name(relid)),
			 errdetail("%s", answer + strlen("error: "))));
	return 0;
}

void
ttl_citus_check_nodes(Oid relid)
{
	char	   *error;

	if (!ttl_citus_is_distributed(relid))
		return;
	if (strcmp(GetConfigOption("citus.enable_ddl_propagation", false, false), "off") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the policy of distributed table \"%s\" on this node alone",
						get_rel_name(relid)),
				 errhint("Set \"%s\" to on.", "citus.enable_ddl_propagation")));
	/* what a file sets without the library is a string */
	error = ttl_citus_query("SELECT min(nodename || ':' || nodeport ||"
							" CASE WHEN success THEN ' has not loaded the library.' ELSE ': ' || result END)"
							" FROM run_command_on_all_nodes('SELECT pg_catalog.count(*) FROM pg_catalog.pg_settings"
							" WHERE name = ''ttl.reaper'' AND vartype = ''bool''')"
							" JOIN pg_dist_node USING (nodeid) WHERE NOT success OR result <> '1'", NULL, 0, NULL, NULL);
	if (error != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the policy of distributed table \"%s\" on all nodes",
						get_rel_name(relid)),
				 errdetail("%s", error),
				 errhint("Each node needs \"%s\" in \"%s\".", TTL_EXTENSION, "shared_preload_libraries")));
}

bool
ttl_citus_is_empty(Oid relid)
{
	int			nestlevel = NewGUCNestLevel();
	bool		result;

	/* Citus alters no table that it has read by several connections */
	(void) set_config_option("citus.multi_shard_modify_mode", "sequential", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	result = ttl_citus_is_true(psprintf("SELECT NOT EXISTS (SELECT 1 FROM %s)",
										ttl_container_table_name(relid)), 0);
	AtEOXact_GUC(true, nestlevel);
	return result;
}

int64
ttl_citus_count_expired(Oid relid)
{
	return run_on_shards(relid, "SELECT ttl.expired_count(", ")", true, ERROR);
}

void
ttl_citus_reap(Oid relid, int64 max_rows, int elevel)
{
	(void) run_on_shards(relid, "CALL ttl.reap(", psprintf(", " INT64_FORMAT ")", max_rows), false, elevel);
}

void
ttl_citus_put_statistics(ReturnSetInfo *result)
{
	static const char *const query =
	"SELECT c.relid, pg_catalog.sum(rows_deleted)::pg_catalog.int8,"
	" pg_catalog.sum(rows_evicted)::pg_catalog.int8, pg_catalog.sum(rows_archived)::pg_catalog.int8,"
	" pg_catalog.sum(batches)::pg_catalog.int8, pg_catalog.sum(cost)::pg_catalog.int8,"
	" pg_catalog.max(lag), pg_catalog.max(last_reap), pg_catalog.sum(blocked_rows)::pg_catalog.int8,"
	" (pg_catalog.array_agg(last_error ORDER BY last_error_at DESC NULLS LAST))[1],"
	" pg_catalog.max(last_error_at), pg_catalog.max(held_until), pg_catalog.max(stats_since),"
	" pg_catalog.min(n.result) FILTER (WHERE NOT n.success)"
	" FROM pg_catalog.run_command_on_all_nodes('SELECT coalesce(pg_catalog.json_agg(s), ''[]'') FROM ttl.stat_shards() s') n"
	" LEFT JOIN LATERAL pg_catalog.json_to_recordset(CASE WHEN n.success THEN n.result::pg_catalog.json END)"
	" AS s (container pg_catalog.text, rows_deleted pg_catalog.int8, rows_evicted pg_catalog.int8,"
	" rows_archived pg_catalog.int8, batches pg_catalog.int8, cost pg_catalog.int8, lag pg_catalog.interval,"
	" last_reap pg_catalog.timestamptz, blocked_rows pg_catalog.int8, last_error pg_catalog.text,"
	" last_error_at pg_catalog.timestamptz, held_until pg_catalog.timestamptz, stats_since pg_catalog.timestamptz) ON true"
	" LEFT JOIN (ttl.container c JOIN pg_catalog.pg_class t ON t.oid = c.relid AND NOT c.propagated"
	" JOIN pg_catalog.pg_namespace m ON m.oid = t.relnamespace)"
	" ON pg_catalog.format('%I.%I', m.nspname, t.relname) = s.container"
	" GROUP BY 1";

	if (!ttl_citus_is_here() ||
		!ttl_citus_is_true("SELECT EXISTS (SELECT FROM ttl.container JOIN pg_dist_partition ON logicalrelid = relid WHERE NOT propagated)", 0))
		return;
	SPI_connect();
	if (SPI_execute(query, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute failed: %s", query);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		Datum	   *values = palloc(desc->natts * sizeof(Datum));
		bool	   *nulls = palloc(desc->natts * sizeof(bool));
		int			error = desc->natts - 1;

		heap_deform_tuple(tuple, desc, values, nulls);
		if (!nulls[error])
			ereport(WARNING,
					(errmsg("statistics lack those of a node"),
					 errdetail("%s", TextDatumGetCString(values[error]))));
		if (!nulls[0])
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	SPI_finish();
}
