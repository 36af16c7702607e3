/*-------------------------------------------------------------------------
 *
 * invalidation.c
 *	  The library's callbacks for invalidations of catalog caches.
 *
 * PostgreSQL has room for ten callbacks of the relation cache in a process, for itself and
 * all extensions, and ends a process that wants one more.  Citus takes five, and logical
 * replication two.  So there is one for the whole library.
 *
 * A look-up of catalogs may fail half-way (it waits for locks, and can be canceled), and
 * may process invalidations, after which what it has read before is no longer true.
 * Invalidations are counted, therefore: a value is remembered with the count from before
 * the look-up, by a look-up that has returned, and is used while the count is the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "invalidation.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

uint64		ttl_invalidations = 1;
uint64		ttl_schema_invalidations = 1;

static List *observers = NIL;

static void
relation_invalidated(Datum arg, Oid relid)
{
	ListCell   *lc;

	ttl_invalidations++;
	foreach(lc, observers)
		((RelcacheCallbackFunction) lfirst(lc)) ((Datum) 0, relid);
}

static void
schema_invalidated(Datum arg, int cacheid, uint32 hashvalue)
{
	ttl_invalidations++;
	ttl_schema_invalidations++;
}

void
ttl_invalidation_observe(RelcacheCallbackFunction observer)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	observers = lappend(observers, (void *) observer);
	MemoryContextSwitchTo(old);
}

void
ttl_invalidation_init(void)
{
	CacheRegisterRelcacheCallback(relation_invalidated, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, schema_invalidated, (Datum) 0);
}
