/*-------------------------------------------------------------------------
 *
 * schedule.c
 *	  Which containers of a database are due.
 *
 * A container is due when its earliest row expires, or after a wait (rows with
 * a short TTL may have come in meanwhile) that is no longer than its default TTL, but gets longer
 * with the number of tables, so that looking at idle ones never becomes a busy loop; and at once
 * when its definition or policy has changed: relcache invalidations mark its
 * entry in the table below, and whoever commits a policy change asks for
 * attention through shmem.c.  Then the list of containers is read at once, too; otherwise
 * after a wait that gets longer in the same way.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "citus/citus.h"
#include "container/container.h"
#include "counters.h"
#include "invalidation.h"
#include "reaper/schedule.h"
#include "reaper/reaper_internal.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* A wait is as long as this for each table of the database's containers. */
#define WAIT_PER_LEAF		(5 * INT64CONST(1000))

/* Time after which a table without a turn is forgotten. */
#define FORGET_WAIT			(600 * USECS_PER_SEC)

static HTAB *containers = NULL;

/* Number of tables of all containers, as of their last turns. */
static int	all_leaves = 0;

static int	unreaped = 0;

/*
 * Marks containers whose relcache entry is invalidated.
 */
static void
relation_changed(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	TtlScheduled	   *container;

	if (containers == NULL)
		return;

	if (OidIsValid(relid))
	{
		container = (TtlScheduled *) hash_search(containers, &relid, HASH_FIND,
										   NULL);
		if (container != NULL)
			container->changed = true;
		return;
	}

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		container->changed = true;
}

void
ttl_schedule_look_at(Oid wanted)
{
	TtlScheduled	   *container;

	if (wanted == TTL_EVERY_CONTAINER)
		relation_changed((Datum) 0, InvalidOid);
	else if (OidIsValid(wanted))
	{
		container = (TtlScheduled *) hash_search(containers, &wanted, HASH_FIND,
										   NULL);
		if (container != NULL)
			container->changed = true;
	}
}

bool
ttl_schedule_refresh(TtlMemory *memory)
{
	static bool refreshed = false;

	HASH_SEQ_STATUS status;
	TtlScheduled	   *container;
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
		container->listed = false;

	unreaped = 0;
	if (ttl_container_objects() != NULL)
	{
		foreach(lc, ttl_container_list())
		{
			Oid			oid = lfirst_oid(lc);
			TtlPolicy	policy;
			bool		found;

			/* nothing locks it, so it may be about to lose a column */
			if (!ttl_container_read(oid, &policy))
				continue;
			/* or the clock has been set back since */
			if (policy.change.changed_at != 0 && policy.change.noticed_at > now)
				ttl_container_notice_change(oid);
			if (policy.default_ttl == TTL_OFF || ttl_citus_is_distributed(oid))
				continue;
			if (!policy.reaping)
			{
				TtlContainerCounters counters;

				if (!ttl_counters_get_container(oid, &counters) ||
					counters.last_reap < now - USECS_PER_DAY)
					unreaped++;
				continue;
			}

			container = (TtlScheduled *) hash_search(containers, &oid, HASH_ENTER,
											   &found);
			if (!found)
			{
				TtlContainerCounters counters;

				/* at first what was recalled goes on */
				container->changed = refreshed;
				container->due = 0;
				container->last_turn = 0;
				container->leaves = 1;
				container->blocked = 0;
				container->behind_since = 0;
				container->warned_at = 0;
				container->failed_wait = 0;
				if (ttl_counters_get_container(oid, &counters))
					container->blocked = counters.blocked_rows;
			}
			container->listed = true;
			container->default_ttl = policy.default_ttl;
			container->cycle_cost_limit = policy.cycle_cost_limit > 0 ?
				policy.cycle_cost_limit : PG_INT64_MAX;
		}
	}

	all_leaves = 0;
	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		if (container->listed)
		{
			all_leaves += container->leaves;
			continue;
		}
		if (get_rel_relkind(container->container) == '\0')
			ttl_counters_forget_container(container->container);
		(void) hash_search(containers, &container->container, HASH_REMOVE,
						   NULL);
	}
	ttl_reap_rel_memory_trim(memory, now - FORGET_WAIT);
	refreshed = true;

	CommitTransactionCommand();
	return hash_get_num_entries(containers) > 0;
}

int
ttl_schedule_count_unreaped(void)
{
	return unreaped;
}

/*
 * Order of turns: who has waited longest comes first.
 */
static int
compare_last_turn(const ListCell *a, const ListCell *b)
{
	TimestampTz left = ((TtlScheduled *) lfirst(a))->last_turn;
	TimestampTz right = ((TtlScheduled *) lfirst(b))->last_turn;

	return left < right ? -1 : left > right;
}

List *
ttl_schedule_due(TimestampTz *next)
{
	HASH_SEQ_STATUS status;
	TtlScheduled	   *container;
	TimestampTz now = GetCurrentTimestamp();
	List	   *due = NIL;

	*next = now + ttl_schedule_stretch(TTL_SCHEDULE_IDLE_WAIT);
	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		if (container->changed || container->due <= now)
			due = lappend(due, container);
		else
			*next = Min(*next, container->due);
	}
	list_sort(due, compare_last_turn);
	return due;
}

int
ttl_schedule_count_leaves(TtlScheduled *container, int leaves)
{
	all_leaves += leaves - container->leaves;
	container->leaves = leaves;
	return all_leaves;
}

bool
ttl_schedule_any_blocked(void)
{
	HASH_SEQ_STATUS status;
	TtlScheduled	   *container;

	hash_seq_init(&status, containers);
	while ((container = (TtlScheduled *) hash_seq_search(&status)) != NULL)
	{
		if (container->blocked > 0)
		{
			hash_seq_term(&status);
			return true;
		}
	}
	return false;
}

int64
ttl_schedule_stretch(int64 wait)
{
	return Max(wait, all_leaves * WAIT_PER_LEAF);
}

/*
 * Recalls what earlier workers have found, and forgets tables that have been
 * dropped while no worker was here, and policies of those that were dropped while the
 * library wasn't loaded.
 */
static void
recall(TtlMemory *memory)
{
	ListCell   *lc;

	StartTransactionCommand();
	ttl_reap_rel_memory_restore(memory);
	foreach(lc, ttl_counters_containers())
	{
		if (get_rel_relkind(lfirst_oid(lc)) == '\0')
			ttl_counters_forget_container(lfirst_oid(lc));
	}
	foreach(lc, ttl_container_list_dropped())
		(void) ttl_container_forget_dropped(lfirst_oid(lc));
	CommitTransactionCommand();
}

void
ttl_schedule_init(TtlMemory *memory)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(TtlScheduled);
	ctl.hcxt = TopMemoryContext;
	containers = hash_create("ttl containers of the reaper", 64, &ctl,
							 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ttl_invalidation_observe(relation_changed);
	recall(memory);
}
