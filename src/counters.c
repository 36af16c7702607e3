/*-------------------------------------------------------------------------
 *
 * counters.c
 *	  Statistics of containers and databases, in shared memory.
 *
 * There is no limit to the number of containers, so the counters live in two
 * dshash tables in a dynamic shared memory area that starts inside the fixed
 * shared memory (the postmaster cannot use any other), as the cumulative
 * statistics of PostgreSQL do.
 *
 * As those, they survive a clean restart (counters_file.c), and start from zero
 * after a crash.
 *
 * Containers: an entry is read and written under its partition's lock in the
 * hash table.  Rows and cost are added by the worker, by CALL ttl.reap and, as
 * to evictions, by any backend.
 *
 * Databases: an entry points to a separately allocated body, so that a
 * backend can keep a pointer to the body of its own database and add to it
 * without a look-up.  The foreground counter in it is an atomic; all else is
 * written by the database's worker and the launcher, under the spinlock.  A
 * body is freed by the launcher after the database has gone, when no backend
 * can have a pointer to it.  A backend of a database without an entry looks
 * for one again only after the number of entries ever made has changed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "counters.h"
#include "lib/dshash.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "shared.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/dsa.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Room for the area's own data and both empty hash tables. */
#define INITIAL_AREA_SIZE	(256 * 1024)

/* In the fixed shared memory, followed by the area. */
typedef struct CountersShared
{
	dshash_table_handle containers; /* constant */
	dshash_table_handle databases;	/* constant */
	int			tranche_id;		/* constant */
	pg_atomic_uint32 generation;	/* number of database entries ever made */
} CountersShared;

/* Key and value of a container's entry; the counters under the partition's lock. */
typedef TtlContainerRecord ContainerEntry;

typedef struct DatabaseBody
{
	pg_atomic_uint64 foreground_cost;	/* added to by any backend */
	slock_t		mutex;
	TtlDatabaseCounters counters;	/* mutex; foreground_cost is unused */
} DatabaseBody;

typedef struct DatabaseEntry
{
	Oid			dboid;			/* MUST BE FIRST */
	dsa_pointer body;			/* constant while the entry exists */
} DatabaseEntry;

static CountersShared *shared = NULL;

/* This process's view, once it has attached. */
static dsa_area *area = NULL;
static dshash_table *containers = NULL;
static dshash_table *databases = NULL;

/* Body of this database, NULL as of seen_generation. */
static DatabaseBody *own_body = NULL;
static uint32 seen_generation = 0;

static void
table_parameters(dshash_parameters *parameters, size_t key_size,
				 size_t entry_size)
{
	memset(parameters, 0, sizeof(dshash_parameters));
	parameters->key_size = key_size;
	parameters->entry_size = entry_size;
	parameters->compare_function = dshash_memcmp;
	parameters->hash_function = dshash_memhash;
	TtlDshashSetCopyFunction(parameters);
	parameters->tranche_id = shared->tranche_id;
}

static Size
shared_size(void)
{
	return add_size(MAXALIGN(sizeof(CountersShared)), INITIAL_AREA_SIZE);
}

static void *
area_place(void)
{
	return (char *) shared + MAXALIGN(sizeof(CountersShared));
}

static void
shared_startup(void *place, bool found, int tranche_id)
{
	dshash_parameters parameters;
	dshash_table *table;
	dsa_area   *created;

	shared = (CountersShared *) place;
	if (found)
		return;

	shared->tranche_id = tranche_id;
	pg_atomic_init_u32(&shared->generation, 0);

	created = dsa_create_in_place(area_place(), INITIAL_AREA_SIZE,
								  tranche_id, NULL);
	dsa_pin(created);

	/* the limit makes the tables lie in the fixed shared memory */
	dsa_set_size_limit(created, INITIAL_AREA_SIZE);

	table_parameters(&parameters, sizeof(TtlContainerKey), sizeof(ContainerEntry));
	table = dshash_create(created, &parameters, NULL);
	shared->containers = dshash_get_hash_table_handle(table);
	dshash_detach(table);

	table_parameters(&parameters, sizeof(Oid), sizeof(DatabaseEntry));
	table = dshash_create(created, &parameters, NULL);
	shared->databases = dshash_get_hash_table_handle(table);
	dshash_detach(table);

	dsa_set_size_limit(created, -1);
	dsa_detach(created);
}

/*
 * Makes the tables accessible to this process, for the rest of its life.
 */
static void
attach(void)
{
	MemoryContext oldcontext;
	dshash_parameters parameters;

	if (databases != NULL)
		return;

	oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	if (area == NULL)
	{
		area = dsa_attach_in_place(area_place(), NULL);
		dsa_pin_mapping(area);
		on_shmem_exit(dsa_on_shmem_exit_release_in_place,
					  PointerGetDatum(area_place()));
	}
	if (containers == NULL)
	{
		table_parameters(&parameters, sizeof(TtlContainerKey),
						 sizeof(ContainerEntry));
		containers = dshash_attach(area, &parameters, shared->containers, NULL);
	}
	table_parameters(&parameters, sizeof(Oid), sizeof(DatabaseEntry));
	databases = dshash_attach(area, &parameters, shared->databases, NULL);
	MemoryContextSwitchTo(oldcontext);
}

/*
 * Returns the container's entry, locked; makes it if there is none.
 */
static ContainerEntry *
lock_container(Oid container)
{
	TtlContainerKey key = {MyDatabaseId, container};
	ContainerEntry *entry;
	bool		found;

	attach();
	entry = (ContainerEntry *) dshash_find_or_insert(containers, &key, &found);
	if (!found)
		memset(&entry->counters, 0, sizeof(TtlContainerCounters));
	return entry;
}

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

void
ttl_counters_add_reaped(Oid container, uint64 rows)
{
	ContainerEntry *entry = lock_container(container);

	entry->counters.rows_deleted += rows;
	dshash_release_lock(containers, entry);
}

void
ttl_counters_add_evicted(Oid container, uint64 rows)
{
	ContainerEntry *entry = lock_container(container);

	entry->counters.rows_evicted += rows;
	dshash_release_lock(containers, entry);
}

void
ttl_counters_add_archived(Oid container, uint64 rows)
{
	ContainerEntry *entry = lock_container(container);

	entry->counters.rows_archived += rows;
	dshash_release_lock(containers, entry);
}

static void
set_error(ContainerEntry *entry, const char *message, TimestampTz now)
{
	int			length = pg_mbcliplen(message, strlen(message), TTL_ERROR_LENGTH - 1);

	memcpy(entry->counters.last_error, message, length);
	entry->counters.last_error[length] = '\0';
	entry->counters.last_error_at = now;
}

void
ttl_counters_set_blocked(Oid container, int64 rows, const char *error)
{
	TimestampTz now = GetCurrentTimestamp();
	ContainerEntry *entry = lock_container(container);

	entry->counters.blocked_rows = rows;
	if (error != NULL)
		set_error(entry, error, now);
	dshash_release_lock(containers, entry);
}

void
ttl_counters_set_error(Oid container, const char *message)
{
	TimestampTz now = GetCurrentTimestamp();
	ContainerEntry *entry = lock_container(container);

	set_error(entry, message, now);
	dshash_release_lock(containers, entry);
}

/*
 * Copies the container's counters; false if nothing has happened to it yet.
 */
bool
ttl_counters_get_container(Oid container, TtlContainerCounters *counters)
{
	TtlContainerKey key = {MyDatabaseId, container};
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
 * OIDs of all containers of this database to which something has happened.
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

void
ttl_counters_forget_container(Oid container)
{
	TtlContainerKey key = {MyDatabaseId, container};

	attach();
	(void) dshash_delete_key(containers, &key);
}

/*
 * Looks for the body of this database; own_body stays NULL if there is none.
 */
static void
find_own_body(void)
{
	uint32		generation;
	DatabaseEntry *entry;

	if (own_body != NULL || !OidIsValid(MyDatabaseId))
		return;
	generation = pg_atomic_read_u32(&shared->generation);
	if (generation == seen_generation)
		return;

	attach();
	entry = (DatabaseEntry *) dshash_find(databases, &MyDatabaseId, false);
	if (entry != NULL)
	{
		own_body = (DatabaseBody *) dsa_get_address(area, entry->body);
		dshash_release_lock(databases, entry);
	}
	seen_generation = generation;
}

/*
 * Returns the body of a database; makes one if there is none.
 */
static DatabaseBody *
enter_database(Oid dboid)
{
	DatabaseEntry *entry;
	DatabaseBody *body;
	dsa_pointer pointer;
	bool		found;

	attach();
	pointer = dsa_allocate0(area, sizeof(DatabaseBody));
	body = (DatabaseBody *) dsa_get_address(area, pointer);
	pg_atomic_init_u64(&body->foreground_cost, 0);
	SpinLockInit(&body->mutex);

	entry = (DatabaseEntry *) dshash_find_or_insert(databases, &dboid, &found);
	if (found)
	{
		dsa_free(area, pointer);
		pointer = entry->body;
	}
	else
		entry->body = pointer;
	body = (DatabaseBody *) dsa_get_address(area, pointer);
	dshash_release_lock(databases, entry);

	pg_atomic_fetch_add_u32(&shared->generation, 1);
	return body;
}

void
ttl_counters_open_database(void)
{
	find_own_body();
	if (own_body == NULL)
		own_body = enter_database(MyDatabaseId);
}

void
ttl_counters_prepare_foreground(void)
{
	find_own_body();
}

void
ttl_counters_add_foreground(int64 cost)
{
	if (own_body != NULL)
		pg_atomic_fetch_add_u64(&own_body->foreground_cost, cost);
}

static void
read_body(DatabaseBody *body, TtlDatabaseCounters *counters)
{
	SpinLockAcquire(&body->mutex);
	*counters = body->counters;
	SpinLockRelease(&body->mutex);
	counters->foreground_cost =
		(int64) pg_atomic_read_u64(&body->foreground_cost);
}

void
ttl_counters_get_own_database(TtlDatabaseCounters *counters)
{
	Assert(own_body != NULL);
	read_body(own_body, counters);
}

void
ttl_counters_set_own_database(const TtlDatabaseCounters *counters)
{
	Assert(own_body != NULL);
	SpinLockAcquire(&own_body->mutex);
	own_body->counters = *counters;
	SpinLockRelease(&own_body->mutex);
}

/*
 * Sets the state of a database, if it has statistics.
 */
void
ttl_counters_set_state(Oid dboid, TtlReaperState state)
{
	DatabaseEntry *entry;

	attach();
	entry = (DatabaseEntry *) dshash_find(databases, &dboid, false);
	if (entry != NULL)
	{
		DatabaseBody *body;

		body = (DatabaseBody *) dsa_get_address(area, entry->body);
		SpinLockAcquire(&body->mutex);
		body->counters.state = state;
		SpinLockRelease(&body->mutex);
		dshash_release_lock(databases, entry);
	}
}

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

bool
ttl_counters_get_database(Oid dboid, TtlDatabaseCounters *counters)
{
	DatabaseEntry *entry;

	attach();
	entry = (DatabaseEntry *) dshash_find(databases, &dboid, false);
	if (entry == NULL)
		return false;
	read_body((DatabaseBody *) dsa_get_address(area, entry->body), counters);
	dshash_release_lock(databases, entry);
	return true;
}

/*
 * Frees all that is kept about a database that exists no longer.
 */
void
ttl_counters_forget_database(Oid dboid)
{
	dshash_seq_status status;
	ContainerEntry *container;
	DatabaseEntry *database;

	attach();
	dshash_seq_init(&status, containers, true);
	while ((container = (ContainerEntry *) dshash_seq_next(&status)) != NULL)
	{
		if (container->key.dboid == dboid)
			dshash_delete_current(&status);
	}
	dshash_seq_term(&status);

	database = (DatabaseEntry *) dshash_find(databases, &dboid, true);
	if (database != NULL)
	{
		dsa_free(area, database->body);
		dshash_delete_entry(databases, database);
	}
}

/*
 * For counters_file.c
 */

bool
ttl_counters_visit_containers(TtlContainerVisitor visit, void *arg)
{
	dshash_seq_status status;
	ContainerEntry *entry;
	bool		ok = true;

	attach();
	dshash_seq_init(&status, containers, false);
	while ((entry = (ContainerEntry *) dshash_seq_next(&status)) != NULL)
		ok = ok && visit(entry, arg);
	dshash_seq_term(&status);
	return ok;
}

bool
ttl_counters_visit_databases(TtlDatabaseVisitor visit, void *arg)
{
	dshash_seq_status status;
	DatabaseEntry *entry;
	bool		ok = true;

	attach();
	dshash_seq_init(&status, databases, false);
	while ((entry = (DatabaseEntry *) dshash_seq_next(&status)) != NULL)
	{
		TtlDatabaseRecord record;

		memset(&record, 0, sizeof(record));
		record.dboid = entry->dboid;
		read_body((DatabaseBody *) dsa_get_address(area, entry->body),
				  &record.counters);
		ok = ok && visit(&record, arg);
	}
	dshash_seq_term(&status);
	return ok;
}

void
ttl_counters_restore_container(const TtlContainerRecord *record)
{
	const TtlContainerCounters *old = &record->counters;
	TtlContainerCounters *new;
	ContainerEntry *entry;
	bool		found;

	attach();
	entry = (ContainerEntry *) dshash_find_or_insert(containers, &record->key,
													 &found);
	new = &entry->counters;
	if (!found)
		*new = *old;
	else
	{
		new->rows_deleted += old->rows_deleted;
		new->rows_evicted += old->rows_evicted;
		new->rows_archived += old->rows_archived;
		new->batches += old->batches;
		new->cost += old->cost;
	}
	dshash_release_lock(containers, entry);
}

void
ttl_counters_restore_database(const TtlDatabaseRecord *record)
{
	DatabaseBody *body = enter_database(record->dboid);

	pg_atomic_fetch_add_u64(&body->foreground_cost, record->counters.foreground_cost);
	SpinLockAcquire(&body->mutex);
	body->counters = record->counters;
	body->counters.state = TTL_REAPER_STOPPED;
	SpinLockRelease(&body->mutex);
}

void
ttl_counters_init(void)
{
	ttl_shared_reserve(shared_size, shared_startup);
	ttl_counters_file_init();
}
