/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  The containers of a database, and when a worker visits them.
 *
 * A container is due when its earliest row expires, but not later than its default TTL
 * (rows may have been inserted meanwhile) or IDLE_WAIT after the last visit.  Each table of the
 * database's containers makes all waits longer by WAIT_PER_TABLE, so that visiting
 * idle ones never becomes a busy loop.  It is due at once when an INSERT of rows that expire
 * sooner has been announced (evict.c), unless it has just been visited and had work.
 * What was not inserted through the trigger, was inserted by a prepared transaction, or has a
 * shorter TTL since an UPDATE, is found by a periodic visit.  A container is also due at once
 * when its definition or policy has changed: relcache invalidations set a flag in the hash
 * table below, and a transaction that changes a policy wakes up the worker (request.c), which
 * then reads the list of containers.  Without a request the list is read after IDLE_WAIT, or
 * longer in the same way.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "citus/citus.h"
#include "container/container.h"
#include "counters.h"
#include "invalidation.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"

/* All in microseconds */
#define IDLE_WAIT			(10 * USECS_PER_SEC)
#define WAIT_PER_TABLE		INT64CONST(7000)
#define BUSY_WAIT_PER_TABLE	INT64CONST(500) /* if rows expire all the time */

/* Time after which the state of a table without a visit is removed */
#define FORGET_WAIT			(600 * USECS_PER_SEC)

static HTAB *containers = NULL;

/* Number of tables of all containers */
static int	ntables = 0;

/*
 * Makes a container (InvalidOid: each container) due.
 */
static void
relation_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	TtlScheduled *container;

	if (containers == NULL)
		return;

	if (OidIsValid(relid))
	{
		container = (TtlScheduled *) hash_search(containers, &relid, HASH_FIND, NULL);
		if (container != NULL)
			container->changed = true;
		return;
	}

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		container->changed = true;
}

/* Makes a wait between visits longer if there are many tables. */
static int64
lengthen(int64 wait)
{
	return Max(wait, ntables * WAIT_PER_TABLE);
}

/*
 * Enters a container with TTL on.
 */
static void
enter_container(Oid oid, const TtlPolicy *policy, bool is_new)
{
	TtlContainerCounters counters;
	TtlScheduled *container;
	bool		found;

	container = (TtlScheduled *) hash_search(containers, &oid, HASH_ENTER, &found);
	if (!found)
	{
		memset(container, 0, sizeof(TtlScheduled));
		container->container = oid;
		container->changed = is_new;
		container->ntables = 1;
		container->announcements = ttl_counters_announcements(oid);
		if (ttl_counters_get_container(oid, &counters))
			container->blocked = counters.blocked_rows;
	}
	container->listed = true;
	strlcpy(container->name, ttl_container_qualified_name(oid), sizeof(container->name));
	container->default_ttl = policy->default_ttl;
	container->cycle_cost_limit = policy->cycle_cost_limit > 0 ?
		policy->cycle_cost_limit : PG_INT64_MAX;
}

/*
 * Reads ttl.container.  Returns the containers whose change of policy has not been noticed.
 */
static List *
read_containers(TimestampTz now, bool is_first, int *unreaped)
{
	List	   *unnoticed = NIL;
	List	   *subscribed = NIL;
	ListCell   *lc;

	foreach(lc, ttl_container_subscribed_tables(false))
	{
		TtlContainer container;

		if (ttl_container_peek(lfirst_oid(lc), &container))
			subscribed = list_append_unique_oid(subscribed, container.container);
	}

	foreach(lc, ttl_container_list())
	{
		Oid			oid = lfirst_oid(lc);
		TtlPolicy	policy;
		TtlContainerCounters counters;

		/* it is not locked, so it may be about to lose a column */
		if (!ttl_container_read(oid, &policy))
			continue;
		/* or the clock has been set back since */
		if (policy.change.changed_at != 0 && policy.change.noticed_at > now)
			unnoticed = lappend_oid(unnoticed, oid);
		if (policy.default_ttl == TTL_OFF || ttl_citus_is_distributed(oid))
			continue;
		/* at first, the state that earlier workers have stored is still valid */
		if (policy.reaping)
			enter_container(oid, &policy, !is_first);
		else if (!list_member_oid(subscribed, oid) &&
				 (!ttl_counters_get_container(oid, &counters) ||
				  counters.last_reap < now - USECS_PER_DAY))
			(*unreaped)++;
	}
	return unnoticed;
}

/*
 * Calls the function for each container, in a transaction of its own: it takes locks that last to
 * the end, and the lock table may have room for few containers only.
 */
static void
call_in_transactions(void (*function) (Oid), List *oids)
{
	ListCell   *lc;

	foreach(lc, oids)
	{
		StartTransactionCommand();
		function(lfirst_oid(lc));
		CommitTransactionCommand();
	}
}

bool
ttl_schedule_refresh(TtlMemory *memory, TimestampTz *next, int *unreaped)
{
	static bool is_first = true;

	MemoryContext context = CurrentMemoryContext;
	List	   *unnoticed = NIL;
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TimestampTz now = GetCurrentTimestamp();

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(context);

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		container->listed = false;

	*unreaped = 0;
	if (ttl_container_objects() != NULL)
		unnoticed = read_containers(now, is_first, unreaped);
	is_first = false;

	ntables = 0;
	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		if (container->listed)
		{
			ntables += container->ntables;
			continue;
		}
		if (get_rel_relkind(container->container) == '\0')
			ttl_counters_forget_container(container->container);
		(void) hash_search(containers, &container->container, HASH_REMOVE, NULL);
	}
	ttl_reap_rel_memory_trim(memory, now - FORGET_WAIT);

	CommitTransactionCommand();
	call_in_transactions(ttl_container_notice_change, unnoticed);
	MemoryContextSwitchTo(context);
	*next = GetCurrentTimestamp() + lengthen(IDLE_WAIT);
	return hash_get_num_entries(containers) > 0;
}

/*
 * Order of visits: the least recently visited container comes first.
 */
static int
compare_last_run(const ListCell *a, const ListCell *b)
{
	TimestampTz left = ((TtlScheduled *) lfirst(a))->last_run;
	TimestampTz right = ((TtlScheduled *) lfirst(b))->last_run;

	return left < right ? -1 : left > right;
}

List *
ttl_schedule_due(void)
{
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TimestampTz now = GetCurrentTimestamp();
	List	   *due = NIL;

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		if (container->changed || container->due <= now)
			due = lappend(due, container);
	}
	list_sort(due, compare_last_run);
	return due;
}

TimestampTz
ttl_schedule_next(void)
{
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TimestampTz next = GetCurrentTimestamp() + lengthen(IDLE_WAIT);

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		uint32		announcements = ttl_counters_announcements(container->container);

		if (announcements != container->announcements)
		{
			container->due = Min(container->due, container->rests_until);
			container->announcements = announcements;
		}
		next = Min(next, container->due);
	}
	return next;
}

void
ttl_schedule_set_due(TtlScheduled *container, int container_ntables, TimestampTz due,
					 bool is_idle)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		wait = container->default_ttl > 0 ?
		Min(container->default_ttl * USECS_PER_SEC, IDLE_WAIT) : IDLE_WAIT;

	ntables += container_ntables - container->ntables;
	container->ntables = container_ntables;
	container->rests_until = is_idle ? now : now + ntables * BUSY_WAIT_PER_TABLE;
	container->due = Max(Min(due, now + lengthen(wait)), container->rests_until);
}

bool
ttl_schedule_any_blocked(void)
{
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	bool		any = false;

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		any = any || container->blocked > 0;
	return any;
}

static void
forget_dropped(Oid container)
{
	(void) ttl_container_forget_dropped(container);
}

/*
 * Restores what earlier workers have stored, and removes the statistics of tables that have been
 * dropped while there was no worker, and the policies of those that were dropped while the
 * library was not loaded.
 */
void
ttl_schedule_init(TtlMemory *memory)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *dropped;
	HASHCTL		ctl;
	ListCell   *lc;

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(TtlScheduled);
	ctl.hcxt = TopMemoryContext;
	containers = hash_create("ttl containers of the reaper", 64, &ctl,
							 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ttl_invalidation_observe(relation_changed);

	StartTransactionCommand();
	foreach(lc, ttl_counters_containers())
	{
		if (get_rel_relkind(lfirst_oid(lc)) == '\0')
			ttl_counters_forget_container(lfirst_oid(lc));
	}
	MemoryContextSwitchTo(context);
	dropped = ttl_container_list_dropped();
	CommitTransactionCommand();
	call_in_transactions(forget_dropped, dropped);
	list_free(dropped);
}
