/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  The containers of a database, and when a worker visits them.
 *
 * A container is due when its earliest row expires, but not later than its default TTL
 * (rows may have been inserted meanwhile) or IDLE_WAIT after the last visit; and so is each of its
 * tables.  Each table of the database's containers makes all waits longer by WAIT_PER_TABLE, so
 * that visiting idle ones never becomes a busy loop.  A row with a shorter TTL of its own waits for
 * such a visit; it is hidden all the same.  A container is due at once when its definition or
 * policy has changed: relcache invalidations set a flag in the hash table below, and a transaction
 * that changes a policy wakes up the worker (request.c), which then reads the list of containers.
 * Without a request the list is read after IDLE_WAIT, or longer in the same way.
 *
 * Who comes first is decided by the time that deletion has taken, for an owner's containers
 * together and for each of them: whose triggers are slow comes after the others, and a container
 * that has not been visited yet after those known to be quick.  A new worker lets owners whose
 * containers have met errors lately come last, and chooses among the others at random, so
 * that each comes first at times also if workers live for one cycle.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "citus/citus.h"
#include "container/container.h"
#include "counters.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"

/* All in microseconds */
#define IDLE_WAIT			(10 * USECS_PER_SEC)
#define WAIT_PER_TABLE		INT64CONST(7000)
#define BUSY_WAIT_PER_TABLE	INT64CONST(500) /* if rows expire all the time */

/* Time after which the state of a table without a visit is removed */
#define FORGET_WAIT			(600 * USECS_PER_SEC)

/* Time after which half of the time taken is forgotten */
#define TIME_HALVED			(60 * USECS_PER_SEC)

/* Time taken below which the last run decides about the order */
#define TIME_UNIT			USECS_PER_SEC

/*
 * PostgreSQL keeps what it has read of each relation, some 20 kB for a container and its indexes, as
 * long as the process lives.  When that has come to so many times maintenance_work_mem it is
 * discarded, but not again before so many tables have been visited.
 */
#define CACHES_SHARE		8
#define CACHES_TABLES		500

static int	tables_visited = 0;
static bool is_discarding = false;

static HTAB *containers = NULL;
static HTAB *owners = NULL;

/* Number of tables of all containers */
static int	ntables = 0;

/*
 * Makes a container (InvalidOid: each container) due.
 */
void
ttl_schedule_relation_changed(Oid relid)
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

	/* to discard the caches of this process changes nothing */
	if (is_discarding)
		return;

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

/* Brings the time up to date, and adds some. */
static void
add_time(TtlTimeTaken *taken, int64 time)
{
	TimestampTz now = GetCurrentTimestamp();

	for (; taken->time > 0 && taken->as_of + TIME_HALVED <= now; taken->as_of += TIME_HALVED)
		taken->time /= 2;
	if (taken->time == 0)
		taken->as_of = now;
	taken->time += time;
}

static TtlOwner *
enter_owner(Oid oid)
{
	bool		found;
	TtlOwner   *owner = (TtlOwner *) hash_search(owners, &oid, HASH_ENTER, &found);

	if (!found)
	{
		memset(owner, 0, sizeof(TtlOwner));
		owner->owner = oid;
	}
	return owner;
}

void
ttl_schedule_add_run(TtlScheduled *container, int container_ntables, int64 time)
{
	container->was_run = true;
	ntables += container_ntables - container->ntables;
	container->ntables = container_ntables;
	tables_visited += container_ntables;
	add_time(&container->taken, time);
	add_time(&enter_owner(container->owner)->taken, time);
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
		container->last_run = pg_prng_uint32(&pg_global_prng_state);
	}
	container->listed = true;
	container->owner = ttl_container_owner(oid);
	if (!found && ttl_counters_get_container(oid, &counters))
	{
		container->blocked = counters.blocked_rows;

		/* what earlier workers have spent on it is not known */
		if (counters.last_error_at > GetCurrentTimestamp() - TIME_HALVED)
			ttl_schedule_add_run(container, container->ntables, TIME_UNIT);
	}
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
				  counters.last_reap < now - USECS_PER_DAY || counters.last_reap > now))
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

static int
compare(int64 time_a, int64 time_b, const TtlScheduled *a, const TtlScheduled *b)
{
	if (time_a / TIME_UNIT != time_b / TIME_UNIT)
		return time_a < time_b ? -1 : 1;
	return a->last_run < b->last_run ? -1 : a->last_run > b->last_run;
}

static int
compare_containers(const ListCell *a, const ListCell *b)
{
	const TtlScheduled *left = (TtlScheduled *) lfirst(a);
	const TtlScheduled *right = (TtlScheduled *) lfirst(b);
	/* one that has not been visited yet may be slow */
	int64		left_time = left->was_run ? left->taken.time : TIME_UNIT;
	int64		right_time = right->was_run ? right->taken.time : TIME_UNIT;

	return compare(left_time, right_time, left, right);
}

static int
compare_owners(const ListCell *a, const ListCell *b)
{
	const TtlOwner *left = (TtlOwner *) lfirst(a);
	const TtlOwner *right = (TtlOwner *) lfirst(b);

	return compare(left->taken.time, right->taken.time, (TtlScheduled *) linitial(left->due),
				   (TtlScheduled *) linitial(right->due));
}

List *
ttl_schedule_due(void)
{
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TtlOwner   *owner;
	TimestampTz now = GetCurrentTimestamp();
	List	   *result = NIL;

	hash_seq_init(&status, owners);
	while ((owner = (TtlOwner *) hash_seq_search(&status)) != NULL)
	{
		owner->due = NIL;
		owner->ndone = 0;
		add_time(&owner->taken, 0);
	}

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		if (!container->changed && container->due > now)
			continue;
		add_time(&container->taken, 0);
		owner = enter_owner(container->owner);
		if (owner->due == NIL)
			result = lappend(result, owner);
		owner->due = lappend(owner->due, container);
	}

	/* an owner without containers is forgotten with the time that he has taken */
	hash_seq_init(&status, owners);
	while ((owner = (TtlOwner *) hash_seq_search(&status)) != NULL)
	{
		list_sort(owner->due, compare_containers);
		if (owner->due == NIL && owner->taken.time == 0)
			(void) hash_search(owners, &owner->owner, HASH_REMOVE, NULL);
	}
	list_sort(result, compare_owners);
	return result;
}

TimestampTz
ttl_schedule_next(void)
{
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TimestampTz next = GetCurrentTimestamp() + lengthen(IDLE_WAIT);

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		next = Min(next, container->due);
	return next;
}

/* Discards the caches of catalogs, outside of a transaction, if they have become large. */
void
ttl_schedule_limit_caches(void)
{
	if (tables_visited < CACHES_TABLES ||
		MemoryContextMemAllocated(CacheMemoryContext, true) / 1024 < (Size) CACHES_SHARE * maintenance_work_mem)
		return;
	tables_visited = 0;
	/* this takes the invalidations that other sessions have sent */
	StartTransactionCommand();
	is_discarding = true;
	InvalidateSystemCaches();
	is_discarding = false;
	CommitTransactionCommand();
}

int64
ttl_schedule_longest_wait(const TtlScheduled *container)
{
	return lengthen(container->default_ttl > 0 ?
					Min(container->default_ttl * USECS_PER_SEC, IDLE_WAIT) : IDLE_WAIT);
}

void
ttl_schedule_set_due(TtlScheduled *container, TimestampTz due, bool is_idle)
{
	TimestampTz now = GetCurrentTimestamp();

	container->due = Max(Min(due, now + ttl_schedule_longest_wait(container)),
						 is_idle ? now : now + ntables * BUSY_WAIT_PER_TABLE);
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
	ctl.entrysize = sizeof(TtlOwner);
	owners = hash_create("ttl owners of containers", 64, &ctl,
						 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);

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
