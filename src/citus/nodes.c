/*-------------------------------------------------------------------------
 *
 * nodes.c
 *	  Queries of our own, and queries and commands to all nodes of a cluster, by functions
 *	  of Citus.
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
#include "citus/citus_internal.h"
#include "funcapi.h"
#include "own_sql.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

/* Begins queries of our own, as the current user. */
static void
begin_queries(TtlSqlContext *saved)
{
	/* procedures and workers may have none */
	PushActiveSnapshot(GetTransactionSnapshot());
	ttl_sql_begin(InvalidOid, TTL_SQL_SAFE_PATH, saved);
	/* Citus alters no table that it has read by several connections */
	ttl_sql_set("citus.multi_shard_modify_mode", "sequential");
}

/* After begin_queries(). */
static void
end_queries(const TtlSqlContext *saved)
{
	ttl_sql_end(saved);
	PopActiveSnapshot();
}

/* The answer is copied to the caller's memory context before SPI frees its own. */
char *
ttl_citus_query(const char *query, SPIPlanPtr *saved, int nargs, Oid *types, Datum *values)
{
	MemoryContext context = CurrentMemoryContext;
	TtlSqlContext outer;
	SPIPlanPtr	plan;
	char	   *answer;

	begin_queries(&outer);
	plan = saved != NULL && *saved != NULL ? *saved : SPI_prepare(query, nargs, types);

	/*
	 * not read-only: it is to see what this transaction has just written, and
	 * its functions may write
	 */
	if (plan == NULL || SPI_execute_plan(plan, values, NULL, false, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "SPI_execute_plan failed: %s", query);
	if (saved != NULL && *saved == NULL && SPI_keepplan(plan) == 0)
		*saved = plan;
	answer = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (answer != NULL)
		answer = MemoryContextStrdup(context, answer);
	end_queries(&outer);
	return answer;
}

/* The query may use $1, an int8.  NULL is false. */
bool
ttl_citus_is_true(const char *query, int64 value)
{
	Oid			type = INT8OID;
	Datum		datum = Int64GetDatum(value);
	char	   *answer = ttl_citus_query(query, NULL, 1, &type, &datum);

	return answer != NULL && answer[0] == 't';
}

/*
 * Errors (55006) if sessions that are opened for the shards would wait for this one.  What they run in a
 * transaction block of ours only reads, so no weaker lock is in the way.
 */
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
 * "... ttl.function(shard ...".  Citus doesn't qualify names of schema public, whatever the
 * search_path there.
 */
static Datum
shard_command(Oid relid, const char *before, const char *after)
{
	check_unlocked(relid);
	return CStringGetTextDatum(psprintf("%s%s%%L)::pg_catalog.regclass%s", before,
										get_rel_namespace(relid) == get_namespace_oid("public", true) ?
										"(pg_catalog.text 'public.' OPERATOR(pg_catalog.||) " : "(", after));
}

/* Reports the error of a shard of the table; without a table what failed were statistics of a node. */
static void
report_failure(Oid relid, int elevel, const char *error)
{
	ereport(elevel,
			(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
			 OidIsValid(relid) ? errmsg("command failed on a shard of \"%s\"", get_rel_name(relid)) :
			 errmsg("statistics lack those of a node"),
			 errdetail("%s", error)));
}

/* Runs a command on all shards.  Returns the sum of the numbers that it answers, or -1 if it has failed. */
static int64
run_on_shards(Oid relid, const char *before, const char *after, bool answers, int elevel)
{
	static const char *const query =
	"SELECT coalesce('error: ' || min(result) FILTER (WHERE NOT success),"
	" sum(CASE WHEN success AND $3 THEN result::int8 END)::text, '0')"
	" FROM run_command_on_placements($1, $2)";
	Oid			types[] = {REGCLASSOID, TEXTOID, BOOLOID};
	Datum		values[] = {ObjectIdGetDatum(relid), shard_command(relid, before, after), BoolGetDatum(answers)};
	char	   *answer = ttl_citus_query(query, NULL, lengthof(types), types, values);

	/* the others are numbers: the query answers all of it by one text */
	if (answer[0] != 'e')
		return strtoi64(answer, NULL, 10);
	report_failure(relid, elevel, answer + strlen("error: "));
	return -1;
}

/*
 * Asks all nodes whether they have loaded the library, since one without it would take the trigger
 * without its policy.
 */
void
ttl_citus_check_nodes(Oid relid)
{
	char	   *error;

	if (ttl_citus_distribution(relid) == TTL_DISTRIBUTED_OTHERWISE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" cannot be a container because it is distributed by append or range",
						get_rel_name(relid)),
				 errhint("Distribute it by hash, or create a reference table.")));
	if (!ttl_citus_is_distributed(relid))
		return;
	/* then Citus would create the trigger here alone */
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
							" WHERE name OPERATOR(pg_catalog.=) ''ttl.reaper'' AND vartype OPERATOR(pg_catalog.=) ''bool''')"
							" JOIN pg_dist_node USING (nodeid) WHERE NOT success OR result <> '1'", NULL, 0, NULL, NULL);
	if (error != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the policy of distributed table \"%s\" on all nodes",
						get_rel_name(relid)),
				 errdetail("%s", error),
				 errhint("Each node needs \"%s\" in \"%s\".", TTL_EXTENSION, "shared_preload_libraries")));
}

/* Reads the shell, hence all shards. */
bool
ttl_citus_is_empty(Oid relid)
{
	/* it may have rows that its policies hide from the owner */
	if (check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		return false;
	return ttl_citus_is_true(psprintf("SELECT NOT EXISTS (SELECT 1 FROM %s)",
									  ttl_container_table_name(relid)), 0);
}

/* Each shard counts its own. */
int64
ttl_citus_count_expired(Oid relid)
{
	return run_on_shards(relid, "SELECT ttl.expired_count(", ")", true, ERROR);
}

/* With a limit, what is left over isn't counted. */
int64
ttl_citus_reap(Oid relid, int64 max_rows, int elevel)
{
	char	   *after = psprintf(", " INT64_FORMAT ")", max_rows);

	/*
	 * CALL succeeds on a shard whose rows it had to leave, so what is left is
	 * asked for
	 */
	return run_on_shards(relid, "CALL ttl.reap(", after, false, elevel) < 0 || max_rows < PG_INT64_MAX ? 0 :
		run_on_shards(relid, "SELECT ttl.expired_count(", ")", true, elevel);
}

/*
 * Puts the rows of a query of our own.  Its last column is the error of a shard of that table, or
 * of a node, which is reported at that level; rows whose last but one is null aren't put.
 */
static void
put_rows(const char *query, int nargs, Oid *types, Datum *args, Oid relid, int elevel, ReturnSetInfo *result)
{
	TtlSqlContext outer;

	begin_queries(&outer);
	if (SPI_execute_with_args(query, nargs, types, args, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_with_args failed: %s", query);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	tuple = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		Datum	   *values = palloc(desc->natts * sizeof(Datum));
		bool	   *nulls = palloc(desc->natts * sizeof(bool));
		int			error = desc->natts - 1;

		heap_deform_tuple(tuple, desc, values, nulls);
		if (!nulls[error])
			report_failure(relid, elevel, TextDatumGetCString(values[error]));
		if (!nulls[error - 1])
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	end_queries(&outer);
}

/* Each shard answers with one JSON array, since run_command_on_placements() returns one text for each. */
void
ttl_citus_put_expiring(Oid relid, Interval *within, ReturnSetInfo *result)
{
	static const char *const query =
	"SELECT e.key, e.expires_at, CASE WHEN NOT success THEN n.result END"
	/* each copy of a shard has the same rows */
	" FROM (SELECT DISTINCT ON (shardid) * FROM run_command_on_placements($1, $2)) n"
	" LEFT JOIN LATERAL json_to_recordset(CASE WHEN success THEN n.result::json END)"
	" AS e (key jsonb, expires_at timestamptz) ON true";
	char	   *interval = DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(within)));
	Oid			types[] = {REGCLASSOID, TEXTOID};
	Datum		values[] = {
		ObjectIdGetDatum(relid),
		shard_command(relid, "SELECT coalesce(pg_catalog.json_agg(e), '[]') FROM ttl.expiring_rows(",
					  psprintf(", %s) e", quote_literal_cstr(interval)))
	};

	put_rows(query, lengthof(types), types, values, relid, ERROR, result);
}

/* So long at most does each node that answers nothing keep those waiting who look at the others, in ms. */
#define CONNECTION_TIMEOUT	2000

/* Bounds the time to connect to a node, until the caller's nest level of settings ends. */
static void
limit_connecting(void)
{
	static const char *const name = "citus.node_connection_timeout";

	/* a shorter one of the user's stays */
	if (strtol(GetConfigOption(name, false, false), NULL, 10) > CONNECTION_TIMEOUT)
		ttl_sql_set(name, psprintf("%d", CONNECTION_TIMEOUT));
}

/*
 * One query for all nodes: shards' rows are joined with their shells by name, for OIDs differ from
 * node to node.
 */
void
ttl_citus_put_statistics(ReturnSetInfo *result)
{
	static const char *const query =
	"SELECT c.relid, sum(rows_deleted)::int8, sum(rows_evicted)::int8,"
	" sum(batches)::int8, sum(cost)::int8, max(lag), max(last_reap), sum(blocked_rows)::int8,"
	" (array_agg(last_error ORDER BY last_error_at DESC NULLS LAST))[1],"
	" max(last_error_at), max(held_until), max(stats_since), min(n.result) FILTER (WHERE NOT success)"
	" FROM run_command_on_all_nodes('SELECT coalesce(pg_catalog.json_agg(s), ''[]'') FROM ttl.stat_shards() s') n"
	" LEFT JOIN LATERAL json_to_recordset(CASE WHEN success THEN n.result::json END)"
	" AS s (container text, rows_deleted int8, rows_evicted int8, batches int8,"
	" cost int8, lag interval, last_reap timestamptz, blocked_rows int8, last_error text,"
	" last_error_at timestamptz, held_until timestamptz, stats_since timestamptz) ON true"
	" LEFT JOIN (ttl.container c JOIN pg_class t ON t.oid = c.relid AND NOT c.propagated"
	" JOIN pg_namespace m ON m.oid = t.relnamespace)"
	" ON format('%I.%I', m.nspname, t.relname) = s.container"
	" WHERE NOT success OR c.relid IS NOT NULL GROUP BY 1";

	/* other nodes are only disturbed for a container that has shards there */
	if (ttl_citus_is_here() &&
		ttl_citus_is_true("SELECT EXISTS (SELECT FROM ttl.container JOIN pg_dist_partition ON logicalrelid = relid WHERE NOT propagated)", 0))
	{
		int			nestlevel = NewGUCNestLevel();

		limit_connecting();
		put_rows(query, 0, NULL, NULL, InvalidOid, WARNING, result);
		AtEOXact_GUC(true, nestlevel);
	}
}
