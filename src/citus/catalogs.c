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
#include "citus/citus_internal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
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

	/* Citus has been dropped since it was found */
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

		/*
		 * outlives the tuple: only columns that are passed by value are asked
		 * for
		 */
		found = heap_getattr(tuple, get_attnum(relid, wanted), RelationGetDescr(rel), &isnull);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Citus insists on being loaded before us. */
static bool is_loaded = false;

/* The library may be loaded where this database hasn't the extension. */
bool
ttl_citus_is_here(void)
{
	/* like ttl_container_objects(), which not everybody asks before */
	return is_loaded && !IsBinaryUpgrade &&
		OidIsValid(get_relname_relid("pg_dist_partition", PG_CATALOG_NAMESPACE));
}

/*
 * Each table of each statement is looked up, so what is known is kept until its relation cache
 * entry is invalidated, which Citus does, too.
 */
typedef struct CachedDistribution
{
	Oid			relid;			/* hash key; MUST BE FIRST */
	TtlDistribution distribution;
} CachedDistribution;

static HTAB *distributions = NULL;

/* A column of the table's row in pg_dist_partition, or '\0' if it has none. */
static char
partition_column(Oid relid, const char *column)
{
	return DatumGetChar(look_up("pg_dist_partition", "pg_dist_partition_logical_relid_index",
								"logicalrelid", F_OIDEQ, ObjectIdGetDatum(relid), column));
}

/* By hash ('h') or without a key ('n'); only with repmodel 's' is a row on one node alone. */
static TtlDistribution
read_distribution(Oid relid)
{
	switch (partition_column(relid, "partmethod"))
	{
		case '\0':
			return TTL_NOT_DISTRIBUTED;
		case 'h':
		case 'n':

			/*
			 * 'c' has several placements of each shard, 't' is a reference
			 * table
			 */
			return partition_column(relid, "repmodel") == 's' ? TTL_DISTRIBUTED_ONCE : TTL_DISTRIBUTED_IN_COPIES;
		default:
			return TTL_DISTRIBUTED_OTHERWISE;
	}
}

/* Answers from the cache; reads the catalog if the table isn't in it. */
TtlDistribution
ttl_citus_distribution(Oid relid)
{
	uint64		count = ttl_invalidations;
	CachedDistribution *cached = NULL;
	TtlDistribution distribution;

	if (!ttl_citus_is_here())
		return TTL_NOT_DISTRIBUTED;
	if (distributions != NULL)
		cached = hash_search(distributions, &relid, HASH_FIND, NULL);
	if (cached != NULL)
		return cached->distribution;
	distribution = read_distribution(relid);

	/* what was read before an invalidation may be old, see container.c */
	if (count == ttl_invalidations)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = sizeof(CachedDistribution)};

		if (distributions == NULL)
			distributions = hash_create("ttl distributions of Citus", 128, &ctl, HASH_ELEM | HASH_BLOBS);
		cached = hash_search(distributions, &relid, HASH_ENTER, NULL);
		cached->distribution = distribution;
	}
	return distribution;
}

/* Forgets the table, or with InvalidOid all. */
void
ttl_citus_invalidate(Oid relid)
{
	if (distributions != NULL && OidIsValid(relid))
		(void) hash_search(distributions, &relid, HASH_REMOVE, NULL);
	else if (distributions != NULL)
	{
		hash_destroy(distributions);
		distributions = NULL;
	}
}

/* Reference tables and local tables of Citus count, too: their rows are in shards as well. */
bool
ttl_citus_is_distributed(Oid relid)
{
	return ttl_citus_distribution(relid) != TTL_NOT_DISTRIBUTED;
}

/*
 * True if that is the name of a shard of the shell, up to the number.  Citus cuts a long one and
 * puts a hash of eight digits behind it.
 */
static bool
is_shard_name(const char *name, int length, const char *shell)
{
	if (strlen(shell) == length && strncmp(name, shell, length) == 0)
		return true;
	/* a cut may have fallen into a character of several bytes */
	return strlen(name) >= NAMEDATALEN - MAX_MULTIBYTE_CHAR_LEN && length > 9 && name[length - 9] == '_' &&
		strspn(name + length - 8, "0123456789abcdef") >= 8 && strncmp(name, shell, length - 9) == 0;
}

/*
 * By the name alone, whose number is the key of pg_dist_shard; then the shell's name and schema must
 * fit, for users name tables so, too.
 */
Oid
ttl_citus_find_shell(Oid relid, int64 *shard)
{
	char	   *name = ttl_citus_is_here() ? get_rel_name(relid) : NULL;
	char	   *number = name == NULL ? NULL : strrchr(name, '_');
	char	   *end;
	int64		id;
	Oid			shell;

	if (number == NULL)
		return InvalidOid;
	id = strtoi64(number + 1, &end, 10);
	if (shard != NULL)
		*shard = id;
	if (end == number + 1 || *end != '\0')
		return InvalidOid;
	shell = DatumGetObjectId(look_up("pg_dist_shard", "pg_dist_shard_shardid_index", "shardid",
									 F_INT8EQ, Int64GetDatum(id), "logicalrelid"));
	return OidIsValid(shell) && shell != relid &&
		get_rel_namespace(shell) == get_rel_namespace(relid) &&
		is_shard_name(name, number - name, get_rel_name(shell)) ? shell : InvalidOid;
}

/* A setting of Citus's shows that it is loaded, for it defines its own before ours. */
bool
ttl_citus_init(void)
{
	is_loaded = GetConfigOption("citus.enable_unsafe_triggers", true, false) != NULL;
	return is_loaded;
}
