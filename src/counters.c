/*-------------------------------------------------------------------------
 *
 * counters.c
 *	  Cumulative statistics of containers and databases, and what a worker leaves to the next one.
 *
 * The number of containers is not limited, so the statistics are two dshash tables in
 * a DSA area that starts in the fixed shared memory (the postmaster, which creates
 * it, cannot use dynamic shared memory), as PostgreSQL's cumulative statistics are.
 *
 * An entry is read and written under the lock of its hash table partition, except for
 * foreground_cost of a database, which is an atomic: backends keep a pointer to it
 * and add to it without a lookup.  The pointer stays valid
 * because dshash never moves an entry, and the launcher deletes that of a
 * database only after the database has been dropped.  A backend whose database has no
 * entry looks for one again when the number of entries ever made has changed.
 *
 * Rows that sessions delete are counted when their transaction commits, but for those that a
 * subtransaction has taken back.  What a prepared transaction has deleted isn't counted: another
 * session decides whether it has.
 *
 * Statistics begin anew with the shared memory: when the server starts, and after a crash.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "compat.h"
#include "counters.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/dsa.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

typedef struct ContainerKey
{
	Oid			dboid;
	Oid			container;
} ContainerKey;

typedef struct ContainerEntry
{
	ContainerKey key;			/* MUST BE FIRST */
	TtlContainerCounters counters;
} ContainerEntry;

typedef struct DatabaseEntry
{
	Oid			dboid;			/* MUST BE FIRST */
	pg_atomic_uint64 foreground_cost;	/* any backend of the database adds to
										 * it */
	TtlDatabaseCounters counters;	/* all but foreground_cost */
} DatabaseEntry;

static TtlCountersShared *counters_shared = NULL;

/* NULL until this process has attached to them */
static dshash_table *containers = NULL;
static dshash_table *databases = NULL;

/* Entry of this database; NULL = there was none as of seen_generation */
static DatabaseEntry *own_entry = NULL;
static uint32 seen_generation = 0;

/* The parameters of a hash table, by which it is created and each process attaches to it */
static dshash_parameters
table_parameters(size_t key_size, size_t entry_size)
{
	dshash_parameters parameters = {
		.key_size = key_size,
		.entry_size = entry_size,
		.compare_function = dshash_memcmp,
		.hash_function = dshash_memhash,
		.tranche_id = counters_shared->tranche_id
	};

	TtlDshashSetCopyFunction(&parameters);
	return parameters;
}

/* Creates a hash table, and detaches: the postmaster does it, and uses none. */
static dshash_table_handle
create_table(dsa_area *area, size_t key_size, size_t entry_size)
{
	dshash_parameters parameters = table_parameters(key_size, entry_size);
	dshash_table *table = dshash_create(area, &parameters, NULL);
	dshash_table_handle handle = dshash_get_hash_table_handle(table);

	dshash_detach(table);
	return handle;
}

/* Attaches to the shared memory, and initializes it unless 'found'. */
void
ttl_counters_attach(TtlCountersShared *shmem, bool found, int tranche_id)
{
	dsa_area   *area;

	counters_shared = shmem;
	if (found)
		return;

	counters_shared->tranche_id = tranche_id;
	counters_shared->since = GetCurrentTimestamp();
	pg_atomic_init_u32(&counters_shared->generation, 0);

	/* the limit keeps the tables within the fixed shared memory */
	area = dsa_create_in_place(counters_shared->area.data, TTL_COUNTERS_AREA_SIZE, tranche_id, NULL);
	/* it stays when the last process that is attached to it exits */
	dsa_pin(area);
	dsa_set_size_limit(area, TTL_COUNTERS_AREA_SIZE);
	counters_shared->containers = create_table(area, sizeof(ContainerKey), sizeof(ContainerEntry));
	counters_shared->databases = create_table(area, sizeof(Oid), sizeof(DatabaseEntry));
	dsa_set_size_limit(area, -1);
	dsa_detach(area);
}

/*
 * Makes the tables accessible to this process for the rest of its life.
 */
static void
attach(void)
{
	static dsa_area *area = NULL;

	MemoryContext oldcontext;
	dshash_parameters parameters;

	if (databases != NULL)
		return;

	/* each step by itself: the next call goes on where this one may fail */
	oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	if (area == NULL)
	{
		area = dsa_attach_in_place(counters_shared->area.data, NULL);
		dsa_pin_mapping(area);
		on_shmem_exit(dsa_on_shmem_exit_release_in_place, PointerGetDatum(counters_shared->area.data));
	}
	if (containers == NULL)
	{
		parameters = table_parameters(sizeof(ContainerKey), sizeof(ContainerEntry));
		containers = dshash_attach(area, &parameters, counters_shared->containers, NULL);
	}
	parameters = table_parameters(sizeof(Oid), sizeof(DatabaseEntry));
	databases = dshash_attach(area, &parameters, counters_shared->databases, NULL);
	MemoryContextSwitchTo(oldcontext);
}

/*
 * Returns the entry of a container of this database, locked; makes it if there is none.
 */
static ContainerEntry *
lock_container(Oid container)
{
	ContainerKey key = {MyDatabaseId, container};
	ContainerEntry *entry;
	bool		found;

	attach();
	entry = (ContainerEntry *) dshash_find_or_insert(containers, &key, &found);
	if (!found)
		memset(&entry->counters, 0, sizeof(TtlContainerCounters));
	return entry;
}

/* When all statistics began: at the server's start, or after its last crash. */
TimestampTz
ttl_counters_since(void)
{
	return counters_shared->since;
}

/* Counts a batch of the reaper's at once, whatever becomes of this transaction. */
void
ttl_counters_add_batch(Oid container, int64 rows, int64 cost)
{
	ContainerEntry *entry = lock_container(container);

	entry->counters.rows_deleted += rows;
	entry->counters.batches++;
	entry->counters.cost += cost;
	entry->counters.last_reap = GetCurrentTimestamp();
	dshash_release_lock(containers, entry);
}

/*
 * What this transaction has done that counts when it commits
 */

/* ... to a container, in a subtransaction */
typedef struct Pending
{
	SubTransactionId subid;
	Oid			container;
	TtlRowCounts rows;			/* deleted from it */
	bool		ends_pause;		/* its policy has been changed */
} Pending;

static List *pending = NIL;

/* There may be as many deletions in a transaction as rows: all alike share an entry. */
static void
add_pending(SubTransactionId subid, Oid container, const TtlRowCounts *rows, bool ends_pause)
{
	Pending    *entry = NULL;
	ListCell   *lc;

	foreach(lc, pending)
	{
		entry = lfirst(lc);
		if (entry->subid == subid && entry->container == container)
			break;
		entry = NULL;
	}
	if (entry == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		entry = palloc0(sizeof(Pending));
		entry->subid = subid;
		entry->container = container;
		pending = lappend(pending, entry);
		MemoryContextSwitchTo(old);
	}
	entry->rows.deleted += rows->deleted;
	entry->rows.evicted += rows->evicted;
	entry->ends_pause |= ends_pause;
}

/* Counts rows that this transaction has deleted, if it commits. */
void
ttl_counters_add_rows(Oid container, const TtlRowCounts *rows)
{
	add_pending(GetCurrentSubTransactionId(), container, rows, false);
}

/* Has the next worker begin at once, when this transaction has committed. */
void
ttl_counters_end_pause(Oid container)
{
	TtlRowCounts none = {0};

	/* after the commit nothing may fail, as it might where an entry is made */
	dshash_release_lock(containers, lock_container(container));
	add_pending(GetCurrentSubTransactionId(), container, &none, true);
}

/* Adds what is pending to the statistics, or takes it back (sign -1). */
static void
flush_pending(int sign)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		const Pending *rows = lfirst(lc);
		ContainerEntry *entry = lock_container(rows->container);

		entry->counters.rows_deleted += sign * rows->rows.deleted;
		entry->counters.rows_evicted += sign * rows->rows.evicted;
		dshash_release_lock(containers, entry);
	}
}

/*
 * Ends pauses after the commit: the worker could otherwise come, by the old policy, to what it has
 * been paused for, and pause again.
 */
static void
end_pauses(void)
{
	ListCell   *lc;

	foreach(lc, pending)
	{
		const Pending *change = lfirst(lc);
		ContainerKey key = {MyDatabaseId, change->container};
		ContainerEntry *entry = change->ends_pause ?
		(ContainerEntry *) dshash_find(containers, &key, true) : NULL;

		if (entry == NULL)
			continue;
		entry->counters.paused_until = 0;
		entry->counters.pass_relid = InvalidOid;
		entry->counters.is_failing = false;
		dshash_release_lock(containers, entry);
	}
}

/* Adds what is pending to the statistics when the transaction commits. */
void
ttl_counters_transaction(XactEvent event)
{
	static bool flushed = false;

	/*
	 * to make an entry may fail, which it must not after the commit; that may
	 * fail after this
	 */
	if (event == XACT_EVENT_PRE_COMMIT)
		flush_pending(1);
	else if (flushed && event == XACT_EVENT_ABORT)
		flush_pending(-1);
	else if (event == XACT_EVENT_COMMIT)
		end_pauses();
	flushed = event == XACT_EVENT_PRE_COMMIT;
	if (event != XACT_EVENT_PRE_COMMIT && event != XACT_EVENT_PRE_PREPARE)
		pending = NIL;
}

/* What a subtransaction has done becomes its parent's, or is forgotten. */
void
ttl_counters_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent)
{
	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	/* backwards, since what the parent gets may be added at the end */
	for (int i = list_length(pending) - 1; i >= 0; i--)
	{
		Pending    *entry = list_nth(pending, i);

		if (entry->subid != subid)
			continue;
		pending = list_delete_nth_cell(pending, i);
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			add_pending(parent, entry->container, &entry->rows, entry->ends_pause);
		pfree(entry);
	}
}

/* True if that was less than an hour ago, and the clock has not been set back since. */
static bool
is_recent(TimestampTz at, TimestampTz now)
{
	return at > now - USECS_PER_HOUR && at <= now;
}

/* Sets the last error.  False if it has been the last one already, less than an hour ago. */
bool
ttl_counters_set_error(Oid container, const char *message)
{
	ContainerEntry *entry = lock_container(container);
	TtlContainerCounters *counters = &entry->counters;
	TimestampTz now = GetCurrentTimestamp();
	char		clipped[TTL_ERROR_LENGTH] = {0};
	bool		is_new;

	memcpy(clipped, message, pg_mbcliplen(message, strlen(message), TTL_ERROR_LENGTH - 1));
	is_new = strcmp(clipped, counters->last_error) != 0 || !is_recent(counters->last_error_at, now);
	memcpy(counters->last_error, clipped, TTL_ERROR_LENGTH);
	counters->last_error_at = now;
	dshash_release_lock(containers, entry);
	return is_new;
}

/*
 * Notes that an error for which no row is to blame has been met in the container.  False if that was so already, less
 * than an hour ago: of the same kind, or if the container is failing since.
 */
bool
ttl_counters_note_failure(Oid container, int sqlstate)
{
	ContainerEntry *entry = lock_container(container);
	TtlContainerCounters *counters = &entry->counters;
	TimestampTz now = GetCurrentTimestamp();
	bool		is_new = !is_recent(counters->failure_at, now) ||
	(!counters->is_failing && counters->failure_sqlstate != sqlstate);

	if (is_new)
	{
		counters->failure_sqlstate = sqlstate;
		counters->failure_at = now;
	}
	dshash_release_lock(containers, entry);
	return is_new;
}

/* Notes that the log is told that the container's row trigger doesn't fire.  False if it was less than an hour ago. */
bool
ttl_counters_note_trigger(Oid container)
{
	ContainerEntry *entry = lock_container(container);
	TimestampTz now = GetCurrentTimestamp();
	bool		is_new = !is_recent(entry->counters.trigger_at, now);

	if (is_new)
		entry->counters.trigger_at = now;
	dshash_release_lock(containers, entry);
	return is_new;
}

/* Time between the first two records of progress, microseconds */
#define PROGRESS_PERIOD		(60 * USECS_PER_SEC)

/* Sets what a run has found, of the worker or of a CALL. */
void
ttl_counters_set_run(Oid container, const TtlFindings *found)
{
	ContainerEntry *entry = lock_container(container);
	TtlContainerCounters *counters = &entry->counters;
	TtlProgress *progress = counters->progress;
	TtlProgress latest = {GetCurrentTimestamp(), found->expiry};

	/* of what this run doesn't know, others may have learnt more while it ran */
	counters->blocked_rows = found->is_complete ? found->blocked_rows :
		Max(found->blocked_rows, counters->blocked_rows);
	if (!found->has_front)
	{
		dshash_release_lock(containers, entry);
		return;
	}
	counters->front = found->front;
	if (latest.expiry == DT_NOEND)
		memset(progress, 0, sizeof(counters->progress));

	/*
	 * what goes back (older rows were added, or the clock was set back) tells
	 * of no progress
	 */
	else if (progress[0].at == 0 || latest.expiry < progress[2].expiry ||
			 latest.at < progress[2].at)
		progress[0] = progress[1] = progress[2] = latest;
	else
	{
		if (latest.at - progress[1].at > PROGRESS_PERIOD)
		{
			progress[0] = progress[1];
			progress[1] = latest;
		}
		progress[2] = latest;
	}
	dshash_release_lock(containers, entry);
}

/*
 * For the worker: sets whether the container is failing, and the pass that the next worker goes on
 * with; of no table, InvalidOid and NULL.
 */
void
ttl_counters_set_pass(Oid container, bool is_failing, Oid relid, const void *pass, Size size)
{
	ContainerEntry *entry;

	Assert(size <= TTL_PASS_SIZE);
	entry = lock_container(container);

	entry->counters.is_failing = is_failing;
	entry->counters.pass_relid = relid;
	if (pass != NULL)
		memcpy(&entry->counters.pass, pass, size);
	dshash_release_lock(containers, entry);
}

/* Sets when the next worker may begin, which it then does anew. */
void
ttl_counters_set_pause(Oid container, TimestampTz until)
{
	ContainerEntry *entry = lock_container(container);

	entry->counters.paused_until = until;
	entry->counters.pass_relid = InvalidOid;
	entry->counters.is_failing = true;
	dshash_release_lock(containers, entry);
}

/* By how many seconds a second the backlog shrinks; 0 if that is unknown, or it does not. */
double
ttl_counters_gain(const TtlContainerCounters *counters)
{
	const TtlProgress *progress = counters->progress;
	double		elapsed = (double) progress[2].at - progress[0].at;
	double		expired = (double) progress[2].expiry - progress[0].expiry;

	/* rows go on expiring meanwhile, a second of them in each second */
	return elapsed > 0.0 && expired > elapsed ? expired / elapsed - 1.0 : 0.0;
}

/* Copies the statistics of a container; false if there are none. */
bool
ttl_counters_get_container(Oid container, TtlContainerCounters *counters)
{
	ContainerKey key = {MyDatabaseId, container};
	ContainerEntry *entry;

	attach();
	entry = (ContainerEntry *) dshash_find(containers, &key, false);
	if (entry == NULL)
		return false;
	*counters = entry->counters;
	dshash_release_lock(containers, entry);
	return true;
}

/*
 * OIDs of all containers of this database that have statistics.
 */
List *
ttl_counters_containers(void)
{
	List	   *result = NIL;
	dshash_seq_status status;
	ContainerEntry *entry;

	attach();
	dshash_seq_init(&status, containers, false);
	while ((entry = (ContainerEntry *) dshash_seq_next(&status)) != NULL)
	{
		if (entry->key.dboid == MyDatabaseId)
			result = lappend_oid(result, entry->key.container);
	}
	dshash_seq_term(&status);
	return result;
}

/* Removes the statistics of a container. */
void
ttl_counters_forget_container(Oid container)
{
	ContainerKey key = {MyDatabaseId, container};

	attach();
	(void) dshash_delete_key(containers, &key);
}

/*
 * Returns the entry of this database, locked; makes it if there is none.
 */
static DatabaseEntry *
lock_database(void)
{
	DatabaseEntry *entry;
	bool		found;

	attach();
	entry = (DatabaseEntry *) dshash_find_or_insert(databases, &MyDatabaseId, &found);
	if (!found)
	{
		memset(&entry->counters, 0, sizeof(TtlDatabaseCounters));
		pg_atomic_init_u64(&entry->foreground_cost, 0);
		pg_atomic_fetch_add_u32(&counters_shared->generation, 1);
	}
	return entry;
}

/* Starts keeping statistics of this database. */
void
ttl_counters_open_database(void)
{
	own_entry = lock_database();
	dshash_release_lock(databases, own_entry);
}

/*
 * The foreground_cost of this database, to which backends add, valid as long as this process
 * lives; NULL unless opened.
 */
pg_atomic_uint64 *
ttl_counters_foreground(void)
{
	uint32		generation = pg_atomic_read_u32(&counters_shared->generation);

	if (own_entry == NULL && generation != seen_generation && OidIsValid(MyDatabaseId))
	{
		attach();
		own_entry = (DatabaseEntry *) dshash_find(databases, &MyDatabaseId, false);
		/* it stays in its place, and is an atomic */
		if (own_entry != NULL)
			dshash_release_lock(databases, own_entry);
		seen_generation = generation;
	}
	return own_entry == NULL ? NULL : &own_entry->foreground_cost;
}

/* Sets all but foreground_cost of this database, for its worker. */
void
ttl_counters_set_database(const TtlDatabaseCounters *counters)
{
	DatabaseEntry *entry = lock_database();

	entry->counters = *counters;
	dshash_release_lock(databases, entry);
}

/*
 * Sets the state of a database if it has statistics.
 */
void
ttl_counters_set_state(Oid dboid, TtlReaperState state)
{
	DatabaseEntry *entry;

	attach();
	entry = (DatabaseEntry *) dshash_find(databases, &dboid, true);
	if (entry == NULL)
		return;
	entry->counters.state = state;
	dshash_release_lock(databases, entry);
}

/* OIDs of all databases that have statistics */
List *
ttl_counters_databases(void)
{
	List	   *result = NIL;
	dshash_seq_status status;
	DatabaseEntry *entry;

	attach();
	dshash_seq_init(&status, databases, false);
	while ((entry = (DatabaseEntry *) dshash_seq_next(&status)) != NULL)
		result = lappend_oid(result, entry->dboid);
	dshash_seq_term(&status);
	return result;
}

/* Copies the statistics of a database; false if there are none. */
bool
ttl_counters_get_database(Oid dboid, TtlDatabaseCounters *counters)
{
	DatabaseEntry *entry;

	attach();
	entry = (DatabaseEntry *) dshash_find(databases, &dboid, false);
	if (entry == NULL)
		return false;
	*counters = entry->counters;
	counters->foreground_cost = (int64) pg_atomic_read_u64(&entry->foreground_cost);
	dshash_release_lock(databases, entry);
	return true;
}

/*
 * Removes all statistics of a database that has been dropped.
 */
void
ttl_counters_forget_database(Oid dboid)
{
	dshash_seq_status status;
	ContainerEntry *container;

	attach();
	dshash_seq_init(&status, containers, true);
	while ((container = (ContainerEntry *) dshash_seq_next(&status)) != NULL)
	{
		if (container->key.dboid == dboid)
			dshash_delete_current(&status);
	}
	dshash_seq_term(&status);
	(void) dshash_delete_key(databases, &dboid);
}
