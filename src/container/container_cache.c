/*-------------------------------------------------------------------------
 *
 * container_cache.c
 *	  Per-backend cache: relation -> container.
 *
 * Everybody asks ttl_container_lookup(), for each relation of each query that
 * is planned; so relations that are no containers are remembered too, and
 * cost one hash probe.
 *
 * An entry belongs to a relation and says which container it is part of and
 * where _ts and ttl stand in it.  The policy is kept in the container's own
 * entry alone.  Whoever changes ttl.container invalidates the relation cache
 * for the container's table in the same transaction (container_catalog.c), so
 * that all sessions, those of standbys included, drop its entry; that is one
 * message, however many partitions there are.
 *
 * It also keeps which columns the keys of a container are made of, for each UPDATE
 * wants to know (watch.c).
 *
 * The callbacks only set flags: they must not read catalogs.  An entry that is
 * invalidated while it is being loaded stays invalid.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/catalog.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "container/container.h"
#include "invalidation.h"
#include "storage/lmgr.h"
#include "stored.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

typedef enum EntryState
{
	ENTRY_INVALID,
	ENTRY_LOADING,
	ENTRY_VALID
} EntryState;

typedef struct CacheEntry
{
	Oid			relid;			/* hash key; MUST BE FIRST */
	EntryState	state;
	Oid			container;		/* InvalidOid = not part of any */
	TtlContainer columns;		/* where they stand */
	TtlPolicy	policy;			/* if container == relid */
	EntryState	keys_state;		/* of the next; valid by itself */
	Bitmapset  *key_columns;
} CacheEntry;

static HTAB *entries = NULL;

/*
 * The entry that was last looked for, by the last bits of its OID.  Entries are never
 * removed.
 */
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

/*
 * Reads what ttl.container says about the relation, or about the partitioned
 * table it belongs to; false if it lacks a column that the policy names.
 */
static bool
read_entry(CacheEntry *entry)
{
	TtlPolicy	policy;
	Oid			container = InvalidOid;

	entry->state = ENTRY_LOADING;

	if (ttl_container_read(entry->relid, &policy))
		container = entry->relid;
	else if (get_rel_relispartition(entry->relid))
	{
		ListCell   *lc;

		foreach(lc, get_partition_ancestors(entry->relid))
		{
			if (ttl_container_read(lfirst_oid(lc), &policy))
			{
				container = lfirst_oid(lc);
				break;
			}
		}
	}

	entry->container = container;
	if (!OidIsValid(container))
		return true;
	entry->policy = policy;
	entry->policy.archive_columns = NIL;	/* lives shorter */
	ttl_container_find_columns(entry->relid, &policy, &entry->columns);
	return !entry->columns.lacks_column;
}

static void
load_entry(CacheEntry *entry)
{
	if (!read_entry(entry))
	{
		/*
		 * Nobody need have locked the relation, so a RENAME COLUMN may have
		 * been committed between the looks at policy and columns.  When its
		 * lock has gone both are known.
		 */
		LockRelationOid(entry->relid, AccessShareLock);
		(void) read_entry(entry);
		UnlockRelationOid(entry->relid, AccessShareLock);
	}

	if (entry->state == ENTRY_LOADING)
		entry->state = ENTRY_VALID;
}

/* The up-to-date entry of a relation, or NULL if it can't be a container. */
static CacheEntry *
get_entry(Oid relid)
{
	CacheEntry *entry = recent[relid % RECENT];

	if (entry != NULL && entry->relid == relid && entry->state == ENTRY_VALID)
		return entry;
	if (entries == NULL)
	{
		HASHCTL		ctl = {
			.keysize = sizeof(Oid),
			.entrysize = sizeof(CacheEntry),
			.hcxt = TopMemoryContext
		};

		entries = hash_create("ttl containers", 128, &ctl,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}

	entry = hash_search(entries, &relid, HASH_FIND, NULL);
	if (entry == NULL)
	{
		/* Short-lived tables would fill the cache. */
		if (!is_candidate(relid))
			return NULL;
		entry = hash_search(entries, &relid, HASH_ENTER, NULL);
		entry->state = ENTRY_INVALID;
		entry->keys_state = ENTRY_INVALID;
		entry->key_columns = NULL;
	}
	if (entry->state != ENTRY_VALID)
		load_entry(entry);
	recent[relid % RECENT] = entry;
	return entry;
}

bool
ttl_container_peek(Oid relid, TtlContainer *container)
{
	CacheEntry *entry;
	TtlPolicy  *policy;

	if (IsCatalogRelationOid(relid) || ttl_container_objects() == NULL)
		return false;
	entry = get_entry(relid);
	if (entry == NULL || !OidIsValid(entry->container))
		return false;

	*container = entry->columns;
	container->relid = relid;
	container->container = entry->container;

	if (entry->container != relid)
	{
		entry = get_entry(entry->container);
		if (entry == NULL || entry->container != entry->relid)
			return false;		/* dropped meanwhile */
	}
	policy = &entry->policy;
	container->default_ttl = policy->default_ttl;
	container->indexing = policy->indexing;
	container->touch_on_update = policy->touch_on_update;
	container->reaping = policy->reaping;
	container->reap_delay = policy->reap_delay;
	container->archive_to = policy->archive_to;
	container->cycle_cost_limit = policy->cycle_cost_limit;
	container->batch_size = policy->batch_size;
	container->replication_origin = policy->replication_origin;
	container->carried = policy->carried;
	if (!OidIsValid(policy->change.partition) || policy->change.partition == relid)
		container->change = policy->change;
	else
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

const Bitmapset *
ttl_container_key_columns(Relation rel)
{
	CacheEntry *entry = get_entry(RelationGetRelid(rel));

	if (entry->keys_state != ENTRY_VALID)
	{
		Bitmapset  *columns;
		MemoryContext old;

		entry->keys_state = ENTRY_LOADING;
		columns = ttl_stored_key_columns(rel);
		old = MemoryContextSwitchTo(TopMemoryContext);
		columns = bms_copy(columns);
		MemoryContextSwitchTo(old);
		bms_free(entry->key_columns);
		entry->key_columns = columns;
		if (entry->keys_state == ENTRY_LOADING)
			entry->keys_state = ENTRY_VALID;
	}
	return entry->key_columns;
}

static void
invalidate(CacheEntry *entry)
{
	entry->state = ENTRY_INVALID;
	entry->keys_state = ENTRY_INVALID;
}

static void
invalidate_entry(Datum arg, Oid relid)
{
	CacheEntry *entry;

	if (entries == NULL)
		return;

	if (OidIsValid(relid))
	{
		entry = hash_search(entries, &relid, HASH_FIND, NULL);
		if (entry != NULL)
			invalidate(entry);
	}
	else
	{
		HASH_SEQ_STATUS status;

		hash_seq_init(&status, entries);
		while ((entry = hash_seq_search(&status)) != NULL)
			invalidate(entry);
	}
}

/* The extension has come or gone. */
static void
invalidate_all(Datum arg, int cacheid, uint32 hashvalue)
{
	invalidate_entry(0, InvalidOid);
}

void
ttl_container_cache_init(void)
{
	ttl_invalidation_observe(invalidate_entry);
	CacheRegisterSyscacheCallback(NAMESPACEOID, invalidate_all, 0);
}
