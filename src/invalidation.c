/*-------------------------------------------------------------------------
 *
 * invalidation.c
 *	  The library's one callback of the relation cache.
 *
 * PostgreSQL has room for ten of them in a process, for itself and all extensions, and
 * ends a process that wants one more.  Citus takes five, and logical replication two.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "invalidation.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

static List *observers = NIL;

static void
invalidate(Datum arg, Oid relid)
{
	ListCell   *lc;

	foreach(lc, observers)
		((RelcacheCallbackFunction) lfirst(lc)) ((Datum) 0, relid);
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
	CacheRegisterRelcacheCallback(invalidate, (Datum) 0);
}
