/*-------------------------------------------------------------------------
 *
 * container.c
 *	  The cache of which tables are containers.
 *
 * ttl_container_lookup() is called for each relation of each query that is planned, so
 * relations that are no containers have entries, too, and cost one hash probe.  An entry belongs
 * to a table or an index.  It holds which container a table is part of, where that container's
 * columns stand in it, and what else is derived from the catalogs (TtlDerived).  The policy is in
 * the entry of the container's own table alone, so a change of it is one message to all sessions,
 * those of standbys included, however many partitions there are.  ATTACH PARTITION makes tables
 * part of a container, and DETACH takes them out of one, without a write to ttl.container.  For a
 * partitioned table PostgreSQL then invalidates each table below it, too, since their partition
 * constraints change; the entries of the leaves rely on that.
 *
 * The relation cache callback removes an entry, so none outlives its table.  A value is therefore
 * loaded aside: reading the catalogs may run the callback.  An empty entry with a generation of
 * its own is entered before, and takes the value if it is still there afterwards.  If not, the
 * value serves this caller only.
 *
 * A look-up of catalogs may fail half-way (it waits for locks, and can be canceled), and may
 * process invalidations, after which what it has read before is no longer true.  Invalidations are
 * counted, therefore: a value that is kept elsewhere is remembered with the count from before the
 * look-up, by a look-up that has returned, and is used while the count is the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/catalog.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "container/container.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

uint64		ttl_invalidations = 1;

typedef struct DerivedValue
{
	bool		is_known;
	void	   *value;			/* one chunk, or NULL */
} DerivedValue;

typedef struct CacheEntry
{
	Oid			relid;			/* hash key */
	char		status;			/* simplehash's */
	bool		is_valid;		/* 'container' is known */
	uint64		generation;		/* no two entries ever had the same */
	TtlContainer *container;	/* NULL = not part of any; without the policy
								 * if the relation is a partition */
	DerivedValue derived[TTL_DERIVED_VALUES];
} CacheEntry;

#define SH_PREFIX cache
#define SH_ELEMENT_TYPE CacheEntry
#define SH_KEY_TYPE Oid
#define SH_KEY relid
#define SH_HASH_KEY(table, key) murmurhash32(key)
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static struct cache_hash *entries = NULL;
static MemoryContext entries_context = NULL;	/* holds all of it */

static uint64 last_generation = 0;

/* True if this may be a container or a partition of one.  Looks at pg_class only. */
static bool
may_be_container(Oid relid)
{
	char		relkind = get_rel_relkind(relid);

	return (relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		get_rel_persistence(relid) != RELPERSISTENCE_TEMP;
}

/* The relation's entry or NULL; it moves when others are entered or removed. */
static CacheEntry *
find_cached(Oid relid)
{
	return entries == NULL ? NULL : cache_lookup(entries, relid);
}

/* Its entry, which may be empty */
static CacheEntry *
enter_cached(Oid relid)
{
	CacheEntry *entry;
	bool		found;

	if (entries_context == NULL)
		entries_context = AllocSetContextCreate(TopMemoryContext, "ttl containers",
												ALLOCSET_DEFAULT_SIZES);

	/*
	 * it grows; a session's first statement needs a few, and would clear the
	 * rest
	 */
	if (entries == NULL)
		entries = cache_create(entries_context, 16, NULL);
	entry = cache_insert(entries, relid, &found);
	if (!found)
	{
		entry->is_valid = false;
		entry->container = NULL;
		memset(entry->derived, 0, sizeof(entry->derived));
		entry->generation = ++last_generation;
	}
	return entry;
}

/* The entry if it is still the same after catalogs have been read, or NULL */
static CacheEntry *
find_again(Oid relid, uint64 generation)
{
	CacheEntry *entry = find_cached(relid);

	return entry != NULL && entry->generation == generation ? entry : NULL;
}

/* Copies a value into that context. */
static void *
copy_in(MemoryContext context, const void *value, Size size)
{
	return memcpy(MemoryContextAlloc(context, size), value, size);
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
	if (ttl_policy_read(relid, &policy))
	{
		container->container = relid;
		container->policy = policy;
	}
	else if (get_rel_relispartition(relid))
	{
		ListCell   *lc;

		foreach(lc, get_partition_ancestors(relid))
		{
			if (ttl_policy_read(lfirst_oid(lc), &policy))
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

/* Reads what is known of a relation, and keeps it unless the entry is removed meanwhile. */
static CacheEntry *
load_entry(Oid relid)
{
	CacheEntry *entry = enter_cached(relid);
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
	return entry;
}

/*
 * What is known of a relation, or NULL if it can't be a container.  The result is good until
 * catalogs are read.
 */
static const CacheEntry *
get_entry(Oid relid)
{
	CacheEntry *entry = find_cached(relid);

	if (entry != NULL && entry->is_valid)
		return entry;
	/* temporary tables would fill the cache */
	return may_be_container(relid) ? load_entry(relid) : NULL;
}

/* Its entry if it is a container or belongs to one, else NULL */
static const CacheEntry *
get_part(Oid relid)
{
	const CacheEntry *entry;

	if (IsCatalogRelationOid(relid) || ttl_container_objects() == NULL)
		return NULL;
	entry = get_entry(relid);
	return entry == NULL || entry->container == NULL ? NULL : entry;
}

/* True if ttl_container_peek() would be.  Costs less, for nothing is copied. */
bool
ttl_container_is_part(Oid relid)
{
	return get_part(relid) != NULL;
}

/*
 * ttl_container_lookup(), also for a container that lacks a column: for DDL, by which that is repaired
 */
bool
ttl_container_peek(Oid relid, TtlContainer *container)
{
	const CacheEntry *entry = get_part(relid);

	if (entry == NULL)
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

		/*
		 * A partition's columns may be numbered differently, but have the
		 * types of the parent's, and what is derived from these is the same.
		 */
		container->relid = relid;
		container->lacks_column = part.lacks_column;
		container->ts_attno = part.ts_attno;
		container->ttl_attno = part.ttl_attno;
	}
	/* the container itself has the change of any partition */
	if (OidIsValid(container->policy.change.partition) && container->policy.change.partition != relid &&
		container->container != relid)
		memset(&container->policy.change, 0, sizeof(TtlChange));
	return true;
}

/* Errors (55000) if it lacks one. */
void
ttl_container_require_columns(const TtlContainer *container)
{
	if (container->lacks_column)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("container \"%s\" lacks a column that it requires",
						get_rel_name(container->container)),
				 errhint("Restore the columns that ttl.containers names, or use ttl.drop_container() to unregister the table.")));
}

/*
 * Fills *container and returns true if relid is a container or belongs to
 * one.  Costs a hash probe for a relation seen before.  Errors (55000) if the
 * container lacks a column that it requires.
 */
bool
ttl_container_lookup(Oid relid, TtlContainer *container)
{
	if (!ttl_container_peek(relid, container))
		return false;
	ttl_container_require_columns(container);
	return true;
}

/*
 * What is derived of that kind.  The function, which may read catalogs, makes it in one chunk of so many
 * bytes, or NULL; it is called again after the relation cache entry was
 * invalidated.  The result is good until catalogs are read.
 */
const void *
ttl_container_derive(Relation rel, TtlDerived which, void *(*derive) (Relation rel, Size *size))
{
	Oid			relid = RelationGetRelid(rel);
	CacheEntry *entry = enter_cached(relid);
	uint64		generation;
	void	   *value;
	Size		size = 0;

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

/* Removes an entry, with all that it holds. */
static void
remove_entry(CacheEntry *entry)
{
	if (entry->container != NULL)
		pfree(entry->container);
	for (int i = 0; i < TTL_DERIVED_VALUES; i++)
	{
		if (entry->derived[i].value != NULL)
			pfree(entry->derived[i].value);
	}
	cache_delete_item(entries, entry);
}

/* A relation (InvalidOid = any) may have changed. */
void
ttl_container_invalidate(Oid relid)
{
	CacheEntry *entry;

	ttl_invalidations++;
	if (entries == NULL)
		return;
	if (OidIsValid(relid))
	{
		entry = find_cached(relid);
		if (entry != NULL)
			remove_entry(entry);
	}
	else
	{
		MemoryContextReset(entries_context);
		entries = NULL;
	}
}

/* Reads the policy; errors (42704) if the relation is no container. */
void
ttl_container_require(Oid relid, TtlPolicy *policy)
{
	if (ttl_policy_read(relid, policy))
		return;
	ttl_container_check_exists(relid);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("\"%s\" is not a container", get_rel_name(relid)),
			 errhint("Register the table with ttl.create_container(), or name the partitioned table that it belongs to.")));
}

/* Errors unless the relation is a container (42704), and the current user has its owner's rights (42501). */
void
ttl_container_check_owned(Oid container)
{
	TtlPolicy	policy;

	ttl_container_check_owner(container);
	ttl_container_require(container, &policy);
}
