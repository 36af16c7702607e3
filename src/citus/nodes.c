/*-------------------------------------------------------------------------
 *
 * nodes.c
 *	  Asks and tells all nodes of a cluster, through functions of Citus.
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
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"
#include "utils/varlena.h"

/*
 * Runs "... ttl.function(shard ..." on all shards.  Returns the sum of the numbers that it
 * answers.  Citus doesn't qualify names of schema public, whatever the search_path there.
 */
static int64
run_on_shards(Oid relid, const char *before, const char *after, bool answers)
{
	char	   *command = psprintf("%s%s%%L)::pg_catalog.regclass%s", before,
								   get_rel_namespace(relid) == get_namespace_oid("public", true) ?
								   "(pg_catalog.text 'public.' OPERATOR(pg_catalog.||) " : "(", after);
	static const char *const query =
	"SELECT pg_catalog.sum(CASE WHEN success AND $3 THEN result::pg_catalog.int8 END)::pg_catalog.int8,"
	" pg_catalog.min(CASE WHEN NOT success THEN result END)"
	" FROM pg_catalog.run_command_on_placements($1, $2)";
	Oid			types[] = {REGCLASSOID, TEXTOID, BOOLOID};
	Datum		values[] = {ObjectIdGetDatum(relid), CStringGetTextDatum(command), BoolGetDatum(answers)};
	bool		isnull;
	int64		result;
	char	   *error;
	Relation	rel;
	int			nestlevel;

	rel = table_open(relid, AccessShareLock);
	if (CheckRelationLockedByMe(rel, AccessExclusiveLock, false))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot look at shards of \"%s\" because this transaction has locked them",
						RelationGetRelationName(rel)),
				 errdetail("It is done by other sessions, which would wait for ever.")));
	table_close(rel, AccessShareLock);

	/* that function goes by the caller's */
	nestlevel = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	if (SPI_execute_with_args(query, lengthof(types), types, values, NULL, false, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "SPI_execute_with_args failed");
	result = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	error = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);
	if (error != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("command failed on a shard of \"%s\"", get_rel_name(relid)),
				 errdetail("%s", error)));
	if (isnull)
		result = 0;
	SPI_finish();
	AtEOXact_GUC(true, nestlevel);
	return result;
}

int64
ttl_citus_count_expired(Oid relid)
{
	return run_on_shards(relid, "SELECT ttl.expired_count(", ")", true);
}

void
ttl_citus_reap(Oid relid, int64 max_rows)
{
	(void) run_on_shards(relid, "CALL ttl.reap(", psprintf(", " INT64_FORMAT ")", max_rows), false);
}

/* The containers of this coordinator that are distributed tables */
static List *
distributed_containers(void)
{
	List	   *distributed = NIL;
	ListCell   *lc;

	foreach(lc, ttl_container_list())
	{
		TtlContainer container;

		if (ttl_citus_is_distributed(lfirst_oid(lc)) &&
			ttl_container_peek(lfirst_oid(lc), &container) && !container.carried)
			distributed = lappend_oid(distributed, lfirst_oid(lc));
	}
	return distributed;
}

/* As to_regclass(), for those, too, who may not use the schema */
static Oid
find_table(text * name)
{
	List	   *names = textToQualifiedNameList(name);
	Oid			schema = list_length(names) != 2 ? InvalidOid :
	get_namespace_oid(strVal(linitial(names)), true);

	return OidIsValid(schema) ? get_relname_relid(strVal(lsecond(names)), schema) : InvalidOid;
}

void
ttl_citus_put_statistics(ReturnSetInfo *result)
{
	static const char *const query =
	"SELECT s.container, pg_catalog.sum(rows_deleted)::pg_catalog.int8,"
	" pg_catalog.sum(rows_evicted)::pg_catalog.int8, pg_catalog.sum(rows_archived)::pg_catalog.int8,"
	" pg_catalog.sum(batches)::pg_catalog.int8, pg_catalog.sum(cost)::pg_catalog.int8,"
	" pg_catalog.max(lag), pg_catalog.max(last_reap), pg_catalog.sum(blocked_rows)::pg_catalog.int8,"
	" (pg_catalog.array_agg(last_error ORDER BY last_error_at DESC NULLS LAST))[1],"
	" pg_catalog.max(last_error_at), pg_catalog.max(held_until),"
	" pg_catalog.min(n.result) FILTER (WHERE NOT n.success)"
	" FROM pg_catalog.run_command_on_all_nodes('SELECT coalesce(pg_catalog.json_agg(s), ''[]'') FROM ttl.stat_shards() s') n"
	" LEFT JOIN LATERAL pg_catalog.json_to_recordset(CASE WHEN n.success THEN n.result::pg_catalog.json END)"
	" AS s (container pg_catalog.text, rows_deleted pg_catalog.int8, rows_evicted pg_catalog.int8,"
	" rows_archived pg_catalog.int8, batches pg_catalog.int8, cost pg_catalog.int8, lag pg_catalog.interval,"
	" last_reap pg_catalog.timestamptz, blocked_rows pg_catalog.int8, last_error pg_catalog.text,"
	" last_error_at pg_catalog.timestamptz, held_until pg_catalog.timestamptz) ON true"
	" GROUP BY 1";
	List	   *distributed = ttl_citus_is_here() ? distributed_containers() : NIL;

	if (distributed == NIL)
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
		if (nulls[0])
			continue;
		values[0] = ObjectIdGetDatum(find_table(DatumGetTextPP(values[0])));
		if (list_member_oid(distributed, DatumGetObjectId(values[0])))
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	SPI_finish();
}
