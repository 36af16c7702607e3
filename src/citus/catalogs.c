/*-------------------------------------------------------------------------
 *
 * catalogs.c
 *	  A table in the catalogs of Citus.
 *
 * pg_dist_partition has a row for each shell, pg_dist_shard for each shard, by the number
 * at the end of its name, and pg_dist_placement for each copy of one.  Each node has the
 * rows of all shells and shards of the cluster.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "citus/citus.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * The first row of one of Citus's tables whose column, which has that index, equals the
 * value: another column of it, or 0.
 */
static Datum
look_up(const char *table, const char *index, const char *column, RegProcedure equals,
		Datum value, const char *wanted)
{
	Oid			relid = get_relname_relid(table, PG_CATALOG_NAMESPACE);
	Datum		found = (Datum) 0;
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(relid))
		return found;
	rel = table_open(relid, AccessShareLock);
	ScanKeyInit(&key, get_attnum(relid, column), BTEqualStrategyNumber, equals, value);
	scan = systable_beginscan(rel, get_relname_relid(index, PG_CATALOG_NAMESPACE), true, NULL,
							  1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;

		found = heap_getattr(tuple, get_attnum(relid, wanted), RelationGetDescr(rel), &isnull);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Citus insists on being loaded before us. */
static bool is_loaded = false;

bool
ttl_citus_is_loaded(void)
{
	return is_loaded;
}

bool
ttl_citus_is_here(void)
{
	return is_loaded && !IsBinaryUpgrade &&
		OidIsValid(get_relname_relid("pg_dist_partition", PG_CATALOG_NAMESPACE));
}

/* A replication model and methods of distribution, as in pg_dist_partition */
#define ONE_COPY	's'
#define BY_HASH		'h'
#define BY_NOTHING	'n'

/* A column of the shell's row in pg_dist_partition; 0 if it has none. */
static char
partition_column(Oid relid, const char *column)
{
	return ttl_citus_is_here() ?
		DatumGetChar(look_up("pg_dist_partition", "pg_dist_partition_logical_relid_index",
							 "logicalrelid", F_OIDEQ, ObjectIdGetDatum(relid), column)) : '\0';
}

bool
ttl_citus_is_distributed(Oid relid)
{
	return partition_column(relid, "partmethod") != '\0';
}

bool
ttl_citus_has_copies(Oid relid)
{
	char		model = partition_column(relid, "repmodel");

	return model != '\0' && model != ONE_COPY;
}

void
ttl_citus_check_method(Oid relid)
{
	char		method = partition_column(relid, "partmethod");

	if (method != '\0' && method != BY_HASH && method != BY_NOTHING)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" cannot be a container because it is distributed by append or range",
						get_rel_name(relid)),
				 errhint("Distribute it by hash, or create a reference table.")));
}

/*
 * Is that the name of a shard of the shell, up to the number?  Citus cuts a long one and
 * puts a hash of eight digits behind it.
 */
static bool
is_shard_name(const char *name, int length, const char *shell)
{
	if (strlen(shell) == length && strncmp(name, shell, length) == 0)
		return true;
	return strlen(name) >= NAMEDATALEN - MAX_MULTIBYTE_CHAR_LEN && length > 9 && name[length - 9] == '_' &&
		strspn(name + length - 8, "0123456789abcdef") >= 8 && strncmp(name, shell, length - 9) == 0;
}

Oid
ttl_citus_find_shell(Oid relid, int64 *shard)
{
	char	   *name = ttl_citus_is_here() ? get_rel_name(relid) : NULL;
	char	   *number = name == NULL ? NULL : strrchr(name, '_');
	char	   *end;
	Oid			shell;

	if (number == NULL)
		return InvalidOid;
	*shard = strtoi64(number + 1, &end, 10);
	if (end == number + 1 || *end != '\0')
		return InvalidOid;
	shell = DatumGetObjectId(look_up("pg_dist_shard", "pg_dist_shard_shardid_index", "shardid",
									 F_INT8EQ, Int64GetDatum(*shard), "logicalrelid"));
	return OidIsValid(shell) && shell != relid &&
		get_rel_namespace(shell) == get_rel_namespace(relid) &&
		is_shard_name(name, number - name, get_rel_name(shell)) ? shell : InvalidOid;
}

Oid
ttl_citus_shell_of(Oid relid)
{
	int64		shard;

	return ttl_citus_find_shell(relid, &shard);
}

int
ttl_citus_connect(void)
{
	int			nestlevel = NewGUCNestLevel();

	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	/* procedures and workers may have none */
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	return nestlevel;
}

void
ttl_citus_disconnect(int nestlevel)
{
	SPI_finish();
	PopActiveSnapshot();
	AtEOXact_GUC(true, nestlevel);
}

char *
ttl_citus_query(const char *query, SPIPlanPtr *saved, int nargs, Oid *types, Datum *values)
{
	MemoryContext context = CurrentMemoryContext;
	int			nestlevel = ttl_citus_connect();
	SPIPlanPtr	plan = saved != NULL && *saved != NULL ? *saved : SPI_prepare(query, nargs, types);
	char	   *answer;

	if (plan == NULL || SPI_execute_plan(plan, values, NULL, false, 1) != SPI_OK_SELECT ||
		SPI_processed != 1)
		elog(ERROR, "SPI_execute_plan failed: %s", query);
	if (saved != NULL && *saved == NULL && SPI_keepplan(plan) == 0)
		*saved = plan;
	answer = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (answer != NULL)
		answer = MemoryContextStrdup(context, answer);
	ttl_citus_disconnect(nestlevel);
	return answer;
}

bool
ttl_citus_is_true(const char *query, int64 value)
{
	Oid			type = INT8OID;
	Datum		datum = Int64GetDatum(value);
	char	   *answer = ttl_citus_query(query, NULL, 1, &type, &datum);

	return answer != NULL && answer[0] == 't';
}

void
ttl_citus_allow_triggers(void)
{
	if (ttl_citus_is_here())
		(void) set_config_option("citus.enable_unsafe_triggers", "on", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

void
ttl_citus_init(void)
{
	is_loaded = GetConfigOption("citus.enable_unsafe_triggers", true, false) != NULL;
}
