/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  The tables of a database's containers, and when a worker visits them.
 *
 * A worker keeps the database's containers with TTL on, their owners, and their leaf tables, which
 * alone have a time when they are due; cycle.c gives them their turns.
 *
 * DUE
 *
 * A table is due when its earliest row expires, but not later than the container's default TTL
 * (rows may have been inserted meanwhile) or IDLE_WAIT after the last visit.  Each table of the
 * database's containers makes all waits longer by WAIT_PER_TABLE, so
 * that visiting idle ones never becomes a busy loop.  A row with a shorter TTL of its own waits for
 * such a visit; it is hidden all the same.
 *
 * All tables of a container are due at once when its definition or policy has changed: relcache
 * invalidations set a flag in the hash table below, and a transaction
 * that changes a policy wakes up the worker (request.c), which then reads the list of containers,
 * and compares their policies: an invalidation may be lost, together with many of others.  Without
 * a request the list is read after IDLE_WAIT, or longer in the same way.
 *
 * ORDER
 *
 * Who comes first is decided by the time that deletion has taken, for an owner's containers
 * together and for each of them: whose triggers are slow comes after the others, and a container
 * that has not been visited yet after those known to be quick.  A new worker lets owners whose
 * containers have met errors lately come last, and chooses among the others at random, so
 * that each comes first at times also if workers live for one cycle.
 *
 * Of a container's tables those come first that are looked at for work, and among them, as among
 * those in which work is left, the one whose last turn was the longest ago: a container with more
 * tables than a turn pays for goes on where it stopped, in a new worker with any of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "citus/citus.h"
#include "common/pg_prng.h"
#include "container/container.h"
#include "counters.h"
#include "expiry/expiry.h"
#include "reaper/reap_table.h"
#include "reaper/reaper_internal.h"
#include "reaper/schedule.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Between visits, in microseconds */
#define IDLE_WAIT			(10 * USECS_PER_SEC)
#define WAIT_PER_TABLE		INT64CONST(7000)

/* Until the list is read again if containers had no grace: others may have locked some */
#define GRACELESS_WAIT		(1 * USECS_PER_SEC)

/* Time after which half of the time taken is forgotten */
#define TIME_HALVED			(60 * USECS_PER_SEC)

/* The time that a container is thought to take before its first visit, or an owner after errors */
#define TIME_UNKNOWN		(1 * USECS_PER_SEC)

static HTAB *containers = NULL; /* of TtlScheduled */
static HTAB *owners = NULL;		/* of TtlOwner */
static HTAB *tables = NULL;		/* of TtlScheduledTable */

/* Creates one of these hash tables. */
static HTAB *
create_table(const char *name, Size entrysize)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid), .entrysize = entrysize, .hcxt = TopMemoryContext};

	/* entries refer to each other: dynahash doesn't move them */
	return hash_create(name, 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Creates the lists, which are empty. */
void
ttl_schedule_init(void)
{
	owners = create_table("ttl owners of containers", sizeof(TtlOwner));
	tables = create_table("ttl tables of containers", sizeof(TtlScheduledTable));

	/* last, since invalidations look for it from now on */
	containers = create_table("ttl containers of the reaper", sizeof(TtlScheduled));
}

/* Relation cache callback: all tables of a container are due if it has changed. */
void
ttl_schedule_relation_changed(Oid relid)
{
	TtlScheduled *container;

	/*
	 * InvalidOid means that others, of whatever database, have sent more
	 * messages than the queue holds while this process was busy, or that it
	 * discards its own caches.  That says nothing about any container, and is
	 * frequent where others create many temporary tables.
	 */
	if (containers == NULL || !OidIsValid(relid))
		return;

	container = (TtlScheduled *) hash_search(containers, &relid, HASH_FIND, NULL);
	if (container != NULL)
		container->is_changed = true;
}

/* Makes a wait between visits longer if there are many tables. */
static int64
lengthen(int64 wait)
{
	return Max(wait, hash_get_num_entries(tables) * WAIT_PER_TABLE);
}

/* The time between visits to a table of the container at most, in microseconds */
int64
ttl_schedule_longest_wait(const TtlScheduled *container)
{
	int32		default_ttl = container->policy.default_ttl;

	return lengthen(default_ttl > 0 ? Min(default_ttl * USECS_PER_SEC, IDLE_WAIT) : IDLE_WAIT);
}

/* Counts the time that deletion has taken, in microseconds. */
void
ttl_schedule_add_time(TtlScheduled *container, int64 taken)
{
	container->taken += taken;
	container->owner->taken += taken;
}

/* Half of the time taken is forgotten each minute. */
void
ttl_schedule_halve_times(void)
{
	static TimestampTz halved_at = 0;

	TimestampTz now = GetCurrentTimestamp();
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TtlOwner   *owner;

	if (now - halved_at < TIME_HALVED)
		return;
	halved_at = now;
	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		container->taken /= 2;
	hash_seq_init(&status, owners);
	while ((owner = (TtlOwner *) hash_seq_search(&status)) != NULL)
		owner->taken /= 2;
}

/* At most TIME_UNKNOWN: what has not been visited yet is in random order. */
static int64
random_time(void)
{
	return pg_prng_uint64_range(&pg_global_prng_state, 0, TIME_UNKNOWN);
}

/* The entry of an owner */
static TtlOwner *
enter_owner(Oid oid)
{
	bool		found;
	TtlOwner   *owner = (TtlOwner *) hash_search(owners, &oid, HASH_ENTER, &found);

	if (!found)
	{
		memset(owner, 0, sizeof(TtlOwner));
		owner->owner = oid;
		owner->taken = random_time();
	}
	return owner;
}

/* The entry of a leaf table; a new one goes on where an earlier worker has stopped. */
static TtlScheduledTable *
enter_table(TtlScheduled *container, Oid relid)
{
	TtlContainerCounters counters;
	bool		found;
	TtlScheduledTable *table = (TtlScheduledTable *) hash_search(tables, &relid, HASH_ENTER, &found);

	if (found && table->container == container)
		return table;
	/* a partition that has been detached is a container of its own */
	if (found)
	{
		table->container->tables = list_delete_ptr(table->container->tables, table);
		ttl_pass_clear(&table->reap_rel);
	}
	if (!ttl_counters_get_container(container->container, &counters))
		memset(&counters, 0, sizeof(counters));
	ttl_pass_resume(&table->reap_rel, relid, &counters);
	table->container = container;
	table->last_turn = pg_prng_uint32(&pg_global_prng_state);

	/*
	 * a pause that an earlier worker has left, unless the clock has been set
	 * back since
	 */
	table->due = counters.paused_until <= GetCurrentTimestamp() + TTL_LONGEST_PAUSE ? counters.paused_until : 0;
	return table;
}

/* Removes a table, with what has been collected of it. */
static void
remove_table(TtlScheduledTable *table)
{
	ttl_pass_clear(&table->reap_rel);
	(void) hash_search(tables, &table->reap_rel.relid, HASH_REMOVE, NULL);
}

/* Brings the container's tables up to date.  Needs a transaction. */
static void
list_tables(TtlScheduled *container)
{
	List	   *before = container->tables;
	List	   *leaves = ttl_container_leaves(container->container);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ListCell   *lc;

	foreach(lc, before)
		((TtlScheduledTable *) lfirst(lc))->is_listed = false;
	container->tables = NIL;
	foreach(lc, leaves)
	{
		TtlScheduledTable *table = enter_table(container, lfirst_oid(lc));

		table->is_listed = true;
		container->tables = lappend(container->tables, table);
	}
	foreach(lc, before)
	{
		TtlScheduledTable *table = (TtlScheduledTable *) lfirst(lc);

		if (!table->is_listed)
			remove_table(table);
	}
	list_free(before);
	MemoryContextSwitchTo(old);
}

/* True if the policies differ in what decides when the worker deletes which rows, or whether it fails. */
static bool
policies_differ(const TtlPolicy *a, const TtlPolicy *b)
{
	return a->default_ttl != b->default_ttl || a->reap_delay != b->reap_delay ||
		a->change.began_at != b->change.began_at || a->archive_to != b->archive_to;
}

/* True if the next worker, too, has to expect that a container's deletion takes long. */
static bool
has_failed_lately(Oid container)
{
	TtlContainerCounters counters;

	return ttl_counters_get_container(container, &counters) &&
		counters.last_error_at > GetCurrentTimestamp() - TIME_HALVED;
}

/* Enters a container with TTL on. */
static void
enter_container(Oid oid, const TtlPolicy *policy)
{
	bool		found;
	TtlScheduled *container = (TtlScheduled *) hash_search(containers, &oid, HASH_ENTER, &found);

	if (!found)
	{
		memset(container, 0, sizeof(TtlScheduled));
		container->container = oid;
		/* after those known to be quick */
		container->taken = TIME_UNKNOWN + random_time();
	}
	container->is_listed = true;

	/*
	 * owners aren't removed: they are few, and what they have taken counts if
	 * they come back
	 */
	container->owner = enter_owner(ttl_container_owner(oid));

	/* what earlier workers have spent on it is not known */
	if (!found && has_failed_lately(oid))
		container->owner->taken += TIME_UNKNOWN;
	strlcpy(container->name, ttl_container_qualified_name(oid), sizeof(container->name));

	/*
	 * the invalidation may have been lost, see
	 * ttl_schedule_relation_changed()
	 */
	if (found && policies_differ(&container->policy, policy))
		container->is_changed = true;
	container->policy = *policy;

	/*
	 * those of others are listed anew with each of their turns, but without a
	 * table it never gets one
	 */
	if (container->tables == NIL)
		list_tables(container);
}

/* Removes a container, with its tables. */
static void
remove_container(TtlScheduled *container)
{
	ListCell   *lc;

	foreach(lc, container->tables)
		remove_table((TtlScheduledTable *) lfirst(lc));
	list_free(container->tables);
	(void) hash_search(containers, &container->container, HASH_REMOVE, NULL);
}

/*
 * Reads ttl.container.  Returns the containers whose change of policy has not been noticed, and in
 * *graceless those that have to get a grace before they can be entered (last_seen.c).
 */
static List *
read_containers(TimestampTz now, List **graceless)
{
	List	   *unnoticed = NIL;
	ListCell   *lc;

	foreach(lc, ttl_policy_list(TTL_CONTAINERS_SOUND))
	{
		Oid			oid = lfirst_oid(lc);
		TtlPolicy	policy;

		/* it is not locked, so it may be about to lose a column */
		if (!ttl_policy_read(oid, &policy))
			continue;
		/* or the clock has been set back since */
		if (policy.change.noticed_at > now)
			unnoticed = lappend_oid(unnoticed, oid);
		if (policy.default_ttl == TTL_OFF || !policy.reaping || ttl_citus_is_distributed(oid))
			continue;
		if (ttl_last_seen_lacks_grace(&policy))
			*graceless = lappend_oid(*graceless, oid);
		else
			enter_container(oid, &policy);
	}
	return unnoticed;
}

/* Forgets the statistics of containers that have been dropped. */
static void
trim_counters(void)
{
	ListCell   *lc;

	foreach(lc, ttl_counters_containers())
	{
		if (get_rel_relkind(lfirst_oid(lc)) == '\0')
			ttl_counters_forget_container(lfirst_oid(lc));
	}
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

/* ttl_policy_forget_dropped() for call_in_transactions() */
static void
forget_dropped_policy(Oid container)
{
	(void) ttl_policy_forget_dropped(container);
}

/*
 * Brings the list of containers up to date.  Returns false if there are none, else when to call
 * this again in *next.
 */
bool
ttl_schedule_refresh(const char *database_name, TimestampTz *next)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *unnoticed = NIL;
	List	   *graceless = NIL;
	List	   *dropped = NIL;
	HASH_SEQ_STATUS status;
	TtlScheduled *container;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	/* the lists of OIDs are for later transactions */
	MemoryContextSwitchTo(context);

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		container->is_listed = false;
	if (ttl_container_objects() != NULL)
	{
		unnoticed = read_containers(GetCurrentTimestamp(), &graceless);
		dropped = ttl_policy_list(TTL_CONTAINERS_DROPPED);
	}
	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		if (!container->is_listed)
			remove_container(container);
	}
	trim_counters();

	CommitTransactionCommand();
	call_in_transactions(ttl_grace_notice, unnoticed);
	call_in_transactions(ttl_last_seen_begin_grace, graceless);
	if (graceless != NIL)
		ttl_last_seen_log_grace(database_name);
	else
		ttl_slots_note_graces();
	call_in_transactions(forget_dropped_policy, dropped);
	MemoryContextSwitchTo(context);
	*next = GetCurrentTimestamp() + (graceless != NIL ? GRACELESS_WAIT : lengthen(IDLE_WAIT));
	return hash_get_num_entries(containers) > 0 || graceless != NIL;
}

/* All containers, in no order */
List *
ttl_schedule_containers(void)
{
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	List	   *result = NIL;

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		result = lappend(result, container);
	return result;
}

/* Owners, and the containers of each, in the order of the time that they have taken */
static int
compare_containers(const ListCell *a, const ListCell *b)
{
	const TtlScheduled *left = (TtlScheduled *) lfirst(a);
	const TtlScheduled *right = (TtlScheduled *) lfirst(b);

	if (left->owner->taken != right->owner->taken)
		return left->owner->taken < right->owner->taken ? -1 : 1;
	if (left->owner != right->owner)
		return left->owner->owner < right->owner->owner ? -1 : 1;
	if (left->taken != right->taken)
		return left->taken < right->taken ? -1 : 1;
	return left->container < right->container ? -1 : 1;
}

/* When the first of the container's tables is due */
TimestampTz
ttl_schedule_first_due(const TtlScheduled *container)
{
	TimestampTz first = DT_NOEND;
	ListCell   *lc;

	foreach(lc, container->tables)
		first = Min(first, ((TtlScheduledTable *) lfirst(lc))->due);
	return first;
}

/*
 * The containers with tables that are due, by owner, in the order of their turns.  *nowners becomes
 * the number of their owners, and *next the time when the first of the other tables is due.
 */
List *
ttl_schedule_list_due(int *nowners, TimestampTz *next)
{
	HASH_SEQ_STATUS status;
	TtlScheduled *container;
	TtlOwner   *owner;
	TimestampTz now = GetCurrentTimestamp();
	List	   *result = NIL;

	hash_seq_init(&status, owners);
	while ((owner = (TtlOwner *) hash_seq_search(&status)) != NULL)
		owner->ndue = 0;
	*nowners = 0;
	*next = now + lengthen(IDLE_WAIT);
	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		TimestampTz due = container->is_changed ? DT_NOBEGIN : ttl_schedule_first_due(container);

		if (due > now)
		{
			*next = Min(*next, due);
			continue;
		}
		if (container->owner->ndue++ == 0)
			(*nowners)++;
		result = lappend(result, container);
	}
	list_sort(result, compare_containers);
	return result;
}

/* Tables that are looked at for work, then those with work left; each by their last turns */
static int
compare_tables(const ListCell *a, const ListCell *b)
{
	const TtlScheduledTable *left = (TtlScheduledTable *) lfirst(a);
	const TtlScheduledTable *right = (TtlScheduledTable *) lfirst(b);

	if ((left->due == DT_NOBEGIN) != (right->due == DT_NOBEGIN))
		return left->due == DT_NOBEGIN ? 1 : -1;
	if (left->last_turn != right->last_turn)
		return left->last_turn < right->last_turn ? -1 : 1;
	return left->reap_rel.relid < right->reap_rel.relid ? -1 : 1;
}

/* True if the rows of the container are in partitions. */
static bool
is_partitioned(const TtlScheduled *container)
{
	return list_length(container->tables) != 1 ||
		((TtlScheduledTable *) linitial(container->tables))->reap_rel.relid != container->container;
}

/* The tables of a container that are due, in the order of their turns. */
List *
ttl_schedule_list_due_tables(TtlScheduled *container)
{
	MemoryContext context = CurrentMemoryContext;
	bool		is_changed = container->is_changed;
	TimestampTz now = GetCurrentTimestamp();
	List	   *result = NIL;
	ListCell   *lc;

	/* an invalidation that comes from now on has not been heeded */
	container->is_changed = false;

	/*
	 * a partition that others have made below another partition invalidates
	 * no container
	 */
	if (is_changed || is_partitioned(container))
	{
		StartTransactionCommand();
		list_tables(container);
		CommitTransactionCommand();
		MemoryContextSwitchTo(context);
	}
	foreach(lc, container->tables)
	{
		TtlScheduledTable *table = (TtlScheduledTable *) lfirst(lc);

		if (is_changed)
		{
			ttl_pass_restart(&table->reap_rel);
			/* to be looked at; DT_NOBEGIN would say that it has work */
			table->due = 0;
		}
		if (table->due <= now)
			result = lappend(result, table);
	}
	list_sort(result, compare_tables);
	return result;
}
