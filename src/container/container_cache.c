/*-------------------------------------------------------------------------
 *
 * container_cache.c
 *	  Per-backend cache: relation -> container.
 *
 * ttl_container_lookup() is called for each relation of each query that is planned, so
 * relations that are no containers have entries, too, and cost one hash probe.
 *
 * An entry belongs to a table or an index.  It holds which container a table is part of,
 * where that container's columns stand in it, and what else is derived from the catalogs
 * (TtlDerived).  The policy is in the entry of the container's own table alone.  A write to
 * ttl.container invalidates the relation cache entry of the container's table in the same
 * transaction (container_catalog.c), which makes all sessions, those of standbys included,
 * drop their entry; that is one message, however many partitions there are.
 *
 * ATTACH PARTITION makes tables part of a container, and DETACH takes them out of one,
 * without a write to ttl.container.  For a partitioned table PostgreSQL then invalidates
 * each table below it, too, since their partition constraints change; the entries of the
 * leaves rely on that.
 *
 * The relation cache callback removes an entry, so none outlives its table.  A value is
 * therefore loaded aside: reading the catalogs may run the callback.  An empty entry with
 * a generation of its own is entered before, and takes the value if it is still there
 * afterwards.  If not, the value serves this caller only.
 *
 * A look-up of catalogs may fail half-way (it waits for locks, and can be canceled), and
 * may process invalidations, after which what it has read before is no longer true.
 * Invalidations are counted, therefore: a value that is kept elsewhere is remembered with the count
 * from before the look-up, by a look-up that has returned, and is used while the count is the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/catalog.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog_expr.h"
#include "container/container.h"
#include "storage/lmgr.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

uint64		ttl_invalidations = 1;
uint64		ttl_schema_invalidations = 1;

typedef struct DerivedValue
{
	bool		is_known;
	void	   *value;			/* one chunk, or NULL */
} DerivedValue;

typedef struct CacheEntry
{
	Oid			relid;			/* hash key; MUST BE FIRST */
	uint64		generation;		/* no two entries ever had the same */
	bool		is_valid;		/* is the next known? */
	TtlContainer *container;	/* NULL = not part of any; without the policy
								 * if the relation is a partition */
	DerivedValue derived[TTL_DERIVED_VALUES];
} CacheEntry;

static HTAB *entries = NULL;
static MemoryContext entries_context = NULL;	/* holds all of it */

static uint64 last_generation = 0;

/* The entries that were last looked for, by the last bits of their OIDs */
#define RECENT	1024

static CacheEntry *recent[RECENT];

/* Could this be a container or a partition of one?  Looks at pg_class only. */
static bool
is_candidate(Oid relid)
{
	char		relkind = get_rel_relkind(relid);

	return (relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		get_rel_persistence(relid) != RELPERSISTENCE_TEMP;
}

static CacheEntry *
find_entry(Oid relid)
{
	return entries == NULL ? NULL : hash_search(entries, &relid, HASH_FIND, NULL);
}

/* The relation's entry, which may be empty */
static CacheEntry *
enter_entry(Oid relid)
{
	CacheEntry *entry;
	bool		found;

	if (entries == NULL)
	{
		HASHCTL		ctl = {
			.keysize = sizeof(Oid),
			.entrysize = sizeof(CacheEntry)
		};

		if (entries_context == NULL)
			entries_context = AllocSetContextCreate(TopMemoryContext, "ttl containers",
													ALLOCSET_DEFAULT_SIZES);
		ctl.hcxt = entries_context;
		entries = hash_create("ttl containers", 128, &ctl,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	entry = hash_search(entries, &relid, HASH_ENTER, &found);
	if (!found)
	{
		memset((char *) entry + sizeof(Oid), 0, sizeof(CacheEntry) - sizeof(Oid));
		entry->generation = ++last_generation;
	}
	return entry;
}

uint64
ttl_container_generation(Oid relid)
{
	return enter_entry(relid)->generation;
}

/* The entry if it is still the same after catalogs have been read, or NULL */
static CacheEntry *
find_again(Oid relid, uint64 generation)
{
	CacheEntry *entry = find_entry(relid);

	return entry != NULL && entry->generation == generation ? entry : NULL;
}

static void *
copy_in(MemoryContext context, const void *value, Size size)
{
	return memcpy(MemoryContextAlloc(context, size), value, size);
}

static void
set_policy(TtlContainer *container, const TtlPolicy *policy)
{
	container->default_ttl = policy->default_ttl;
	container->indexing = policy->indexing;
	container->touch_on_update = policy->touch_on_update;
	container->reaping = policy->reaping;
	container->reap_delay = policy->reap_delay;
	container->archive_to = policy->archive_to;
	container->cycle_cost_limit = policy->cycle_cost_limit;
	container->batch_size = policy->batch_size;
	container->replication_origin = policy->replication_origin;
	container->propagated = policy->propagated;
	container->change = policy->change;
}

/*
 * Reads what ttl.container says about the relation, or about the partitioned
 * table it belongs to; false if it is not part of a container.
 */
static bool
read_container(Oid relid, TtlContainer *container)
{
	TtlPolicy	policy;

	memset(container, 0, sizeof(TtlContainer));
	if (ttl_container_read(relid, &policy))
	{
		container->container = relid;
		set_policy(container, &policy);
	}
	else if (get_rel_relispartition(relid))
	{
		ListCell   *lc;

		foreach(lc, get_partition_ancestors(relid))
		{
			if (ttl_container_read(lfirst_oid(lc), &policy))
			{
				container->container = lfirst_oid(lc);
				break;
			}
		}
	}
	if (!OidIsValid(container->container))
		return false;
	ttl_container_find_columns(relid, &policy, container);
	return true;
}

static CacheEntry *
load_entry(Oid relid)
{
	CacheEntry *entry = enter_entry(relid);
	uint64		generation = entry->generation;
	TtlContainer container;
	bool		is_part = read_container(relid, &container);

	if (is_part && container.lacks_column)
	{
		/*
		 * The relation need not have been locked, so a RENAME COLUMN may have
		 * been committed between the looks at policy and columns.  When its
		 * lock has gone both can be read.
		 */
		LockRelationOid(relid, AccessShareLock);
		is_part = read_container(relid, &container);
		UnlockRelationOid(relid, AccessShareLock);
	}

	entry = find_again(relid, generation);
	if (entry == NULL)
	{
		entry = palloc0(sizeof(CacheEntry));
		entry->container = is_part ? copy_in(CurrentMemoryContext, &container, sizeof(container)) : NULL;
		return entry;
	}
	entry->container = is_part ? copy_in(entries_context, &container, sizeof(container)) : NULL;
	entry->is_valid = true;
	recent[relid % RECENT] = entry;
	return entry;
}

/*
 * What is known of a relation, or NULL if it can't be a container.  The result is good until
 * catalogs are read.
 */
static const CacheEntry *
get_entry(Oid relid)
{
	CacheEntry *entry = recent[relid % RECENT];

	if (entry != NULL && entry->relid == relid && entry->is_valid)
		return entry;
	entry = find_entry(relid);
	if (entry == NULL || !entry->is_valid)
		/* temporary tables would fill the cache */
		return is_candidate(relid) ? load_entry(relid) : NULL;
	recent[relid % RECENT] = entry;
	return entry;
}

bool
ttl_container_peek(Oid relid, TtlContainer *container)
{
	const CacheEntry *entry;

	if (IsCatalogRelationOid(relid) || ttl_container_objects() == NULL)
		return false;
	entry = get_entry(relid);
	if (entry == NULL || entry->container == NULL)
		return false;
	*container = *entry->container;

	if (container->container != relid)
	{
		TtlContainer part = *container;

		entry = get_entry(part.container);
		if (entry == NULL || entry->container == NULL ||
			entry->container->container != part.container)
			return false;		/* dropped meanwhile */
		*container = *entry->container;
		container->relid = relid;
		container->lacks_column = part.lacks_column;
		container->ts_attno = part.ts_attno;
		container->ttl_attno = part.ttl_attno;
		container->ttl_type = part.ttl_type;
	}
	if (OidIsValid(container->change.partition) && container->change.partition != relid)
		memset(&container->change, 0, sizeof(TtlChange));
	return true;
}

bool
ttl_container_lookup(Oid relid, TtlContainer *container)
{
	if (!ttl_container_peek(relid, container))
		return false;
	if (container->lacks_column)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("container \"%s\" lacks a column that it requires",
						get_rel_name(container->container)),
				 errhint("Restore the columns that ttl.containers names, or use ttl.drop_container() to unregister the table.")));
	return true;
}

const void *
ttl_container_derive(Relation rel, TtlDerived which, void *(*derive) (Relation rel, Size *size))
{
	Oid			relid = RelationGetRelid(rel);
	CacheEntry *entry = recent[relid % RECENT];
	uint64		generation;
	void	   *value;
	Size		size = 0;

	if (entry == NULL || entry->relid != relid)
		entry = recent[relid % RECENT] = enter_entry(relid);
	if (entry->derived[which].is_known)
		return entry->derived[which].value;

	generation = entry->generation;
	value = derive(rel, &size);
	entry = find_again(relid, generation);
	if (entry == NULL)
		return value;
	entry->derived[which].value = value == NULL ? NULL : copy_in(entries_context, value, size);
	entry->derived[which].is_known = true;
	return entry->derived[which].value;
}

static void *
derive_key_columns(Relation rel, Size *size)
{
	Bitmapset  *columns = ttl_catalog_expr_key_columns(rel);

	if (columns != NULL)
		*size = offsetof(Bitmapset, words) + columns->nwords * sizeof(bitmapword);
	return columns;
}

const Bitmapset *
ttl_container_key_columns(Relation rel)
{
	return ttl_container_derive(rel, TTL_DERIVED_KEY_COLUMNS, derive_key_columns);
}

static void
remove_entry(CacheEntry *entry)
{
	if (recent[entry->relid % RECENT] == entry)
		recent[entry->relid % RECENT] = NULL;
	if (entry->container != NULL)
		pfree(entry->container);
	for (int i = 0; i < TTL_DERIVED_VALUES; i++)
	{
		if (entry->derived[i].value != NULL)
			pfree(entry->derived[i].value);
	}
	(void) hash_search(entries, &entry->relid, HASH_REMOVE, NULL);
}

void
ttl_container_invalidate(Oid relid)
{
	CacheEntry *entry;

	ttl_invalidations++;
	if (entries == NULL)
		return;
	if (OidIsValid(relid))
	{
		entry = find_entry(relid);
		if (entry != NULL)
			remove_entry(entry);
	}
	else
	{
		MemoryContextReset(entries_context);
		entries = NULL;
		memset(recent, 0, sizeof(recent));
	}
}

void
ttl_container_invalidate_schema(void)
{
	ttl_schema_invalidations++;
	ttl_container_invalidate(InvalidOid);
}
