/*-------------------------------------------------------------------------
 *
 * catalogs.c
 *	  What Citus says of a table.
 *
 * pg_dist_partition has a row for each shell, pg_dist_shard for each shard, by the number
 * at the end of its name, and pg_dist_placement for each copy of one.  Nodes know of all
 * shells and shards of the cluster.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_namespace.h"
#include "citus/citus.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

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

/* Of replication models, as in pg_dist_partition */
#define REFERENCE_TABLE	't'
#define ONE_COPY		's'

/* How Citus replicates the rows of a shell, as in pg_dist_partition; 0 if it isn't one. */
static char
replication_model(Oid relid)
{
	return ttl_citus_is_here() ?
		DatumGetChar(look_up("pg_dist_partition", "pg_dist_partition_logical_relid_index",
							 "logicalrelid", F_OIDEQ, ObjectIdGetDatum(relid), "repmodel")) : '\0';
}

bool
ttl_citus_is_distributed(Oid relid)
{
	return replication_model(relid) != '\0';
}

bool
ttl_citus_has_copies(Oid relid)
{
	char		model = replication_model(relid);

	return model != '\0' && model != ONE_COPY;
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

/* The shell of a shard and the shard's number, or InvalidOid if the relation isn't one. */
static Oid
find_shell(Oid relid, int64 *shard)
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

	return find_shell(relid, &shard);
}

/* The number of this node: that of its group */
static int32
local_group(void)
{
	Oid			relid = get_relname_relid("pg_dist_local_group", PG_CATALOG_NAMESPACE);
	Relation	rel = table_open(relid, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple = systable_getnext(scan);
	bool		isnull;
	int32		group = -1;

	if (HeapTupleIsValid(tuple))
		group = DatumGetInt32(heap_getattr(tuple, get_attnum(relid, "groupid"),
										   RelationGetDescr(rel), &isnull));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return group;
}

/* Does the cluster use this node's copy of the shard? */
static bool
is_placed_here(int64 shard)
{
	Oid			placements = get_relname_relid("pg_dist_placement", PG_CATALOG_NAMESPACE);
	int32		group = local_group();
	AttrNumber	groupid = get_attnum(placements, "groupid");
	Relation	rel = table_open(placements, AccessShareLock);
	bool		found = false;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, get_attnum(placements, "shardid"), BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(shard));
	scan = systable_beginscan(rel, get_relname_relid("pg_dist_placement_shardid_index",
													 PG_CATALOG_NAMESPACE),
							  true, NULL, 1, &key);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;

		found = DatumGetInt32(heap_getattr(tuple, groupid, RelationGetDescr(rel), &isnull)) == group;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/*
 * Do rows reference the shell's that aren't copied to all nodes as they are?  Then a node
 * doesn't have all that do, and a shard may come from another one.
 */
static bool
is_referenced_elsewhere(Oid shell)
{
	Relation	constraints;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	if (replication_model(shell) != REFERENCE_TABLE)
		return false;
	constraints = table_open(ConstraintRelationId, AccessShareLock);
	/* there is no index on confrelid */
	scan = systable_beginscan(constraints, InvalidOid, false, NULL, 0, NULL);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT(tuple);

		found = constraint->contype == CONSTRAINT_FOREIGN && constraint->confrelid == shell &&
			replication_model(constraint->conrelid) != REFERENCE_TABLE;
	}
	systable_endscan(scan);
	table_close(constraints, AccessShareLock);
	return found;
}

/* The class of advisory locks that Citus takes on a shard's place */
#define ADV_LOCKTAG_CLASS_CITUS_SHARD_METADATA	4

bool
ttl_citus_lock_shard(Oid relid, bool waits)
{
	int64		shard;
	Oid			shell = find_shell(relid, &shard);
	LOCKTAG		tag;

	if (!OidIsValid(shell))
		return false;
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (shard >> 32), (uint32) shard,
						 ADV_LOCKTAG_CLASS_CITUS_SHARD_METADATA);
	return LockAcquire(&tag, ShareLock, false, !waits) != LOCKACQUIRE_NOT_AVAIL &&
		is_placed_here(shard) && !is_referenced_elsewhere(shell);
}

void
ttl_citus_init(void)
{
	is_loaded = GetConfigOption("citus.enable_unsafe_triggers", true, false) != NULL;
	if (is_loaded)
	{
		ttl_carried_init();
		ttl_calls_init();
	}
}
