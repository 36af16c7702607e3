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
 * The callbacks only set flags: they must not read catalogs.  An entry that is
 * invalidated while it is being loaded stays invalid.
 *
 * The extension is found by the schema's name.  Its objects' OIDs are looked
 * up again after any change to pg_namespace, as both CREATE and DROP
 * EXTENSION make one.  While its own script runs, tables are plain tables; in
 * the scripts of other extensions they are what they are everywhere.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/builtins.h"
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
	AttrNumber	ts_attno;		/* 0 = a required column is lacking */
	AttrNumber	ttl_attno;
	TtlPolicy	policy;			/* if container == relid */
	bool		indexes_known;
	TtlExpiryIndexes indexes;
} CacheEntry;

typedef enum ObjectsState
{
	OBJECTS_UNKNOWN,
	OBJECTS_ABSENT,				/* there is no schema of that name */
	OBJECTS_PRESENT
} ObjectsState;

static HTAB *entries = NULL;
static ObjectsState objects_state = OBJECTS_UNKNOWN;
static TtlObjects objects;

static Oid
find_function(Oid schema, const char *name, int nargs, const Oid *args)
{
	oidvector  *argvector = buildoidvector(args, nargs);

	return GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid,
						   CStringGetDatum(name),
						   PointerGetDatum(argvector),
						   ObjectIdGetDatum(schema));
}

/* The OID of the primary key's index, without opening anything. */
static Oid
find_catalog_pkey(Oid schema)
{
	return get_relname_relid(TTL_CONTAINER_TABLE "_pkey", schema);
}

/*
 * Finds the extension's objects.  Incomplete ones are not remembered: a schema
 * of that name that isn't the extension's, or a script that is running.
 */
static void
find_objects(void)
{
	static const Oid is_live_args[] = {REGCLASSOID, TIMESTAMPTZOID, INT4OID};
	static const Oid item_expiry_args[] = {TIMESTAMPTZOID, INT4OID};
	static const Oid stamp_args[] = {TIMESTAMPTZOID};
	TtlObjects	found;

	objects_state = OBJECTS_ABSENT;
	found.schema = get_namespace_oid(TTL_SCHEMA, true);
	if (!OidIsValid(found.schema))
		return;

	objects_state = OBJECTS_UNKNOWN;
	found.catalog = get_relname_relid(TTL_CONTAINER_TABLE, found.schema);
	if (!OidIsValid(found.catalog))
		return;
	found.extension = get_extension_oid(TTL_EXTENSION, true);
	if (!OidIsValid(found.extension) ||
		getExtensionOfObject(RelationRelationId, found.catalog) != found.extension)
		return;
	found.catalog_pkey = find_catalog_pkey(found.schema);
	found.is_live = find_function(found.schema, "is_live", 3, is_live_args);
	found.is_live_by_place = find_function(found.schema, "is_live", 1, is_live_args);
	found.is_expired = find_function(found.schema, "is_expired", 3, is_live_args);
	found.stamp = find_function(found.schema, "stamp", 1, stamp_args);
	found.item_expiry = find_function(found.schema, "item_expiry", 2, item_expiry_args);
	found.check_reference = find_function(found.schema, "check_reference", 0, NULL);
	if (!OidIsValid(found.catalog_pkey) || !OidIsValid(found.is_live) ||
		!OidIsValid(found.is_live_by_place) || !OidIsValid(found.is_expired) ||
		!OidIsValid(found.stamp) || !OidIsValid(found.item_expiry) ||
		!OidIsValid(found.check_reference))
		return;

	objects = found;
	objects_state = OBJECTS_PRESENT;
}

const TtlObjects *
ttl_container_objects(void)
{
	if (IsBinaryUpgrade || !IsTransactionState())
		return NULL;
	if (objects_state == OBJECTS_UNKNOWN)
		find_objects();
	if (objects_state != OBJECTS_PRESENT ||
		(creating_extension && CurrentExtensionObject == objects.extension))
		return NULL;
	return &objects;
}

const TtlObjects *
ttl_container_require_objects(void)
{
	const TtlObjects *found = ttl_container_objects();

	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"%s\" is not installed", TTL_EXTENSION)));
	return found;
}

void
ttl_container_hold_extension(void)
{
	LockDatabaseObject(ExtensionRelationId, ttl_container_require_objects()->extension,
					   0, AccessShareLock);
	(void) ttl_container_require_objects();
}

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
	entry->indexes_known = false;
	if (!OidIsValid(container))
		return true;
	entry->policy = policy;
	entry->policy.archive_columns = NIL;	/* lives shorter */
	return ttl_container_find_columns(entry->relid, &policy, &entry->ts_attno,
									  &entry->ttl_attno);
}

static void
load_entry(CacheEntry *entry)
{
	if (!read_entry(entry))
	{
		/*
		 * Nobody need have locked the relation, so a RENAME COLUMN may have been
		 * committed between the looks at policy and columns.  When its lock has
		 * gone both are known.
		 */
		LockRelationOid(entry->relid, AccessShareLock);
		if (!read_entry(entry))
			entry->ts_attno = InvalidAttrNumber;
		UnlockRelationOid(entry->relid, AccessShareLock);
	}

	if (entry->state == ENTRY_LOADING)
		entry->state = ENTRY_VALID;
}

/* The up-to-date entry of a relation, or NULL if it can't be a container. */
static CacheEntry *
get_entry(Oid relid)
{
	CacheEntry *entry;

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
	}
	if (entry->state != ENTRY_VALID)
		load_entry(entry);
	return entry;
}

bool
ttl_container_peek(Oid relid, TtlContainer *container)
{
	CacheEntry *entry;
	TtlPolicy  *policy;

	if (relid < FirstNormalObjectId || ttl_container_objects() == NULL)
		return false;
	entry = get_entry(relid);
	if (entry == NULL || !OidIsValid(entry->container))
		return false;

	container->relid = relid;
	container->container = entry->container;
	container->ts_attno = entry->ts_attno;
	container->ttl_attno = entry->ttl_attno;

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
	container->change = policy->change;
	return true;
}

bool
ttl_container_lookup(Oid relid, TtlContainer *container)
{
	if (!ttl_container_peek(relid, container))
		return false;
	if (container->ts_attno == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("container \"%s\" lacks a column that it requires",
						get_rel_name(container->container)),
				 errhint("Restore the columns that ttl.containers names, or use ttl.drop_container() to unregister the table.")));
	return true;
}

void
ttl_container_indexes(Relation rel, TtlExpiryIndexes *indexes)
{
	CacheEntry *entry = get_entry(RelationGetRelid(rel));
	CacheEntry *container;

	if (entry == NULL || !OidIsValid(entry->container))
		elog(ERROR, "\"%s\" is not part of a container", RelationGetRelationName(rel));
	if (!entry->indexes_known)
	{
		container = get_entry(entry->container);
		entry = get_entry(RelationGetRelid(rel));
		ttl_expiry_find_indexes(rel, &container->policy, NIL, indexes);
		entry->indexes = *indexes;
		entry->indexes_known = entry->state == ENTRY_VALID; /* still */
		return;
	}
	*indexes = entry->indexes;
}

Oid
ttl_container_owner(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

List *
ttl_container_leaves(Oid container)
{
	List	   *leaves = NIL;
	ListCell   *lc;

	foreach(lc, find_all_inheritors(container, NoLock, NULL))
	{
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_RELATION)
			leaves = lappend_oid(leaves, lfirst_oid(lc));
	}
	return leaves;
}

bool
ttl_container_has_pages(Oid relid)
{
	ListCell   *lc;

	foreach(lc, ttl_container_leaves(relid))
	{
		Relation	rel;
		bool		has_pages;

		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock))
			return true;
		rel = try_relation_open(lfirst_oid(lc), NoLock);
		if (rel == NULL)
			continue;
		has_pages = RelationGetNumberOfBlocks(rel) > 0;
		relation_close(rel, NoLock);
		if (has_pages)
			return true;
	}
	return false;
}

List *
ttl_container_tree(Oid relid, LOCKMODE lockmode)
{
	if (lockmode != NoLock)
		LockRelationOid(relid, lockmode);
	return find_all_inheritors(relid, lockmode, NULL);
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
			entry->state = ENTRY_INVALID;
	}
	else
	{
		HASH_SEQ_STATUS status;

		hash_seq_init(&status, entries);
		while ((entry = hash_seq_search(&status)) != NULL)
			entry->state = ENTRY_INVALID;
	}
}

void
ttl_container_forget_objects(void)
{
	objects_state = OBJECTS_UNKNOWN;
}

static void
invalidate_objects(Datum arg, int cacheid, uint32 hashvalue)
{
	objects_state = OBJECTS_UNKNOWN;
	invalidate_entry(0, InvalidOid);
}

void
ttl_container_cache_init(void)
{
	CacheRegisterRelcacheCallback(invalidate_entry, 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, invalidate_objects, 0);
}
