/*-------------------------------------------------------------------------
 *
 * writers.c
 *	  When the rows expire that are being written, and aren't in all indexes yet.
 *
 * A bulk load looks no keys up while it is known that nothing in the table has expired (evict.c).
 * That is read in the expiry indexes, which uncommitted rows are in, too, but not the one that a
 * statement is just writing: that may wait between one index and the next, for a lock or in a
 * user's expression, for any time.  Whether such a row has expired, its writer can't say: the reader's clock may be
 * later, and his policy another.  So who writes publishes what decides about the row, before it
 * stands anywhere, and the reader judges that by his own clock and policy.
 *
 * Each backend has a slot in shared memory, with a few entries: one for each of its statements that run inside one
 * another, and for each container that a statement writes.  An entry has the times of
 * the row that is written, and gets those of the next one when the former stands in all its
 * indexes.  UPDATEs whose rows aren't looked at have an entry for all their rows while they
 * run: none of these is earlier.  Statements for which no entry is left are counted,
 * and may be writing anything.
 *
 * A reader's proof must also end when somebody begins to write an expired row, and to look at all slots for each
 * of his rows would be too much.  So the reader leaves word, in the watch of the container's hash value, up to
 * which times rows have expired for him; who is about to write such a row counts it there, and the proof holds
 * while the count stays as it is.  What readers have left is never more than their present, so it soon means
 * nothing, and is only ever raised; it is lowered where it lies in the future, because the clock has been set
 * back.
 *
 * The writer publishes, and then reads the watch; the reader sets the watch, and then reads the
 * slots, and then the indexes.  With a full barrier on either side one of them sees the other.  Each value
 * is read and written by itself: a reader who sees one of a row's times, and another of the row before,
 * has read the latter before it was published, and his watch is seen.
 *
 * A statement has ended when its memory goes, which PostgreSQL sees to however it ends; where that
 * outlives the transaction, as an apply worker's does that ends with an error, at the
 * transaction's end, which there is one of before a process exits.  Rows of a prepared transaction are in the indexes.
 * A crash resets shared memory, and ends all statements.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "compat.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "ttl.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "writers.h"

/* They fit into two cache lines with all that belongs to them, and their tables into the first. */
#define SLOT_ENTRIES	5

/* Containers share a watch if their hash values are equal, which costs proofs, but proves nothing wrong. */
#define WATCHES			256

/* More than clocks are set back to keep them right */
#define CLOCK_SLACK		USECS_PER_MINUTE

/* TtlRowTimes */
typedef struct SharedTimes
{
	pg_atomic_uint64 ts;
	pg_atomic_uint64 expiry;
} SharedTimes;

/* What a backend writes; by its PGPROC.  It alone writes the slot. */
typedef struct Slot
{
	pg_atomic_uint64 containers[SLOT_ENTRIES];	/* with their databases; 0 =
												 * the entry is free */
	pg_atomic_uint32 unlisted;	/* statements without an entry */
	SharedTimes times[SLOT_ENTRIES];
} Slot;

typedef union PaddedSlot
{
	Slot		slot;
	char		pad[128];
} PaddedSlot;

StaticAssertDecl(sizeof(PaddedSlot) == 128, "a slot must fit into two cache lines");

/* What readers have left, for the containers of a hash value */
typedef union Watch
{
	struct
	{
		SharedTimes last;		/* rows up to these have expired */
		pg_atomic_uint64 changes;	/* such rows, and who began to write
									 * unlisted */
	}			watch;
	char		pad[PG_CACHE_LINE_SIZE];
} Watch;

typedef struct TtlWritersShared
{
	Watch		watches[WATCHES];
	pg_atomic_uint32 nslots;	/* those behind have never been used */
	PaddedSlot	slots[FLEXIBLE_ARRAY_MEMBER];
} TtlWritersShared;

struct TtlWriter
{
	dlist_node	node;
	uint64		container;		/* as in the slot; 0 = it has ended */
	MemoryContext statement;
	int			entry;			/* in the slot, or -1 if it has none */
	TtlRowTimes untold;
	TtlRowTimes published;
	Watch	   *watch;
	MemoryContextCallback forget;
};

static TtlWritersShared *writers_shared = NULL;

/* The slot of this process, or NULL as long as it has written nothing, and its statements */
static Slot *own_slot = NULL;
static dlist_head writers = DLIST_STATIC_INIT(writers);

/* A time before 2000 is negative, and an atomic has no sign. */
static inline void
set_time(pg_atomic_uint64 *where, TimestampTz time)
{
	pg_atomic_write_u64(where, (uint64) time);
}

/* ... and back */
static inline TimestampTz
get_time(pg_atomic_uint64 *where)
{
	return (TimestampTz) pg_atomic_read_u64(where);
}

/* Reads both, one after the other. */
static TtlRowTimes
get_times(SharedTimes *where)
{
	TtlRowTimes times = {get_time(&where->ts), get_time(&where->expiry)};

	return times;
}

/* Takes the slot of this process's PGPROC, and has readers look at slots up to it. */
static void
claim_slot(void)
{
	uint32		number = TtlMyProcNumber;
	uint32		nslots = pg_atomic_read_u32(&writers_shared->nslots);

	while (nslots <= number &&
		   !pg_atomic_compare_exchange_u32(&writers_shared->nslots, &nslots, number + 1))
		;
	own_slot = &writers_shared->slots[number].slot;
}

/* Ends what readers have proved of the container. */
static void
count_change(TtlWriter *writer)
{
	pg_atomic_fetch_add_u64(&writer->watch->watch.changes, 1);
}

/* Shows the times to others, before anything is written that has them. */
static void
publish(TtlWriter *writer, TtlRowTimes times)
{
	SharedTimes *where = &own_slot->times[writer->entry];

	writer->published = times;
	pg_write_barrier();			/* behind the row before */
	set_time(&where->ts, times.ts);
	set_time(&where->expiry, times.expiry);
	pg_memory_barrier();
	if (ttl_row_times_reach(get_times(&writer->watch->watch.last), times))
		count_change(writer);
}

/* Memory context callback: the statement writes no more. */
static void
end_writer(void *arg)
{
	TtlWriter  *writer = arg;

	/* at the end of its transaction, before its memory went */
	if (writer->container == 0)
		return;
	writer->container = 0;
	dlist_delete(&writer->node);
	pg_write_barrier();
	if (writer->entry >= 0)
		pg_atomic_write_u64(&own_slot->containers[writer->entry], 0);
	else
		pg_atomic_fetch_sub_u32(&own_slot->unlisted, 1);
	writer->entry = -1;
}

/* An entry of the own slot, or -1 */
static int
free_entry(void)
{
	for (int i = 0; i < SLOT_ENTRIES; i++)
	{
		if (pg_atomic_read_u64(&own_slot->containers[i]) == 0)
			return i;
	}
	return -1;
}

/* What the statement has entered for the container; NULL if it has not */
static TtlWriter *
find_writer(uint64 container, MemoryContext statement)
{
	dlist_iter	iter;

	dlist_foreach(iter, &writers)
	{
		TtlWriter  *writer = dlist_container(TtlWriter, node, iter.cur);

		if (writer->container == container && writer->statement == statement)
			return writer;
	}
	return NULL;
}

/*
 * Enters a statement that writes rows of the container, none of them earlier than 'untold' unless it
 * is told (ttl_writers_write()).
 */
TtlWriter *
ttl_writers_join(Oid container, MemoryContext statement, TtlRowTimes untold)
{
	uint64		key = (uint64) MyDatabaseId << 32 | container;
	TtlWriter  *writer = find_writer(key, statement);

	/* another partition, or an UPDATE in WITH */
	if (writer != NULL)
	{
		writer->untold.ts = Min(writer->untold.ts, untold.ts);
		writer->untold.expiry = Min(writer->untold.expiry, untold.expiry);
		ttl_writers_write(writer, writer->untold);
		return writer;
	}
	if (own_slot == NULL)
		claim_slot();
	writer = MemoryContextAlloc(statement, sizeof(TtlWriter));
	writer->container = key;
	writer->statement = statement;
	writer->untold = untold;
	writer->watch = &writers_shared->watches[hash_combine(murmurhash32(MyDatabaseId), murmurhash32(container)) % WATCHES];
	writer->forget.func = end_writer;
	writer->forget.arg = writer;
	MemoryContextRegisterResetCallback(statement, &writer->forget);
	dlist_push_head(&writers, &writer->node);

	writer->entry = free_entry();
	if (writer->entry >= 0)
	{
		pg_atomic_write_u64(&own_slot->containers[writer->entry], key);
		publish(writer, untold);
	}
	else
	{
		pg_atomic_fetch_add_u32(&own_slot->unlisted, 1);
		count_change(writer);
	}
	return writer;
}

/* It is about to write this row, and the one before stands in all its indexes, or nowhere. */
void
ttl_writers_write(TtlWriter *writer, TtlRowTimes row)
{
	row.ts = Min(row.ts, writer->untold.ts);
	row.expiry = Min(row.expiry, writer->untold.expiry);
	if (writer->entry >= 0 &&
		(row.ts != writer->published.ts || row.expiry != writer->published.expiry))
		publish(writer, row);
}

/* The number of changes, as ttl_writers_are_there() gives it */
uint64
ttl_writers_changes(const TtlWriter *writer)
{
	return pg_atomic_read_u64(&writer->watch->watch.changes);
}

/* Raises a time of a watch to that one, or lowers it to that if it is in the future. */
static void
raise_time(pg_atomic_uint64 *where, TimestampTz time, TimestampTz present)
{
	uint64		old = pg_atomic_read_u64(where);

	while (((TimestampTz) old < time || (TimestampTz) old > present + CLOCK_SLACK) &&
		   !pg_atomic_compare_exchange_u64(where, &old, (uint64) time))
		;
}

/*
 * True if another statement is writing rows of the writer's container up to 'last', which have expired.  If
 * not, the number of changes changes before the next such row is written, by whatever statement,
 * unless that has just written another one like it.
 */
bool
ttl_writers_are_there(const TtlWriter *writer, TtlRowTimes last, uint64 *changes)
{
	SharedTimes *watch = &writer->watch->watch.last;
	TimestampTz present = GetCurrentTimestamp();
	uint32		nslots;

	raise_time(&watch->ts, last.ts, present);
	raise_time(&watch->expiry, last.expiry, present);
	pg_memory_barrier();

	*changes = ttl_writers_changes(writer);
	nslots = pg_atomic_read_u32(&writers_shared->nslots);
	for (uint32 n = 0; n < nslots; n++)
	{
		Slot	   *slot = &writers_shared->slots[n].slot;
		bool		is_own = slot == own_slot;

		for (int i = 0; i < SLOT_ENTRIES; i++)
		{
			if (pg_atomic_read_u64(&slot->containers[i]) == writer->container &&
				!(is_own && i == writer->entry) &&
				ttl_row_times_reach(last, get_times(&slot->times[i])))
				return true;
		}
		if (pg_atomic_read_u32(&slot->unlisted) > (is_own && writer->entry < 0))
			return true;
	}
	pg_memory_barrier();		/* before the indexes */
	return false;
}

/* Ends all statements of this process with their transaction. */
void
ttl_writers_transaction(XactEvent event)
{
	dlist_mutable_iter iter;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	dlist_foreach_modify(iter, &writers)
		end_writer(dlist_container(TtlWriter, node, iter.cur));
}

/* The size of the shared memory of this file */
Size
ttl_writers_shmem_size(void)
{
	return add_size(offsetof(TtlWritersShared, slots), mul_size(MaxBackends, sizeof(PaddedSlot)));
}

/* No row is as early. */
static void
init_times(SharedTimes *times)
{
	pg_atomic_init_u64(&times->ts, (uint64) DT_NOBEGIN);
	pg_atomic_init_u64(&times->expiry, (uint64) DT_NOBEGIN);
}

/* Attaches to it, and initializes it if this process is the first. */
void
ttl_writers_shmem_init(void)
{
	bool		found;

	writers_shared = ShmemInitStruct(TTL_EXTENSION " writers", ttl_writers_shmem_size(), &found);
	if (found)
		return;
	pg_atomic_init_u32(&writers_shared->nslots, 0);
	for (int i = 0; i < WATCHES; i++)
	{
		init_times(&writers_shared->watches[i].watch.last);
		pg_atomic_init_u64(&writers_shared->watches[i].watch.changes, 0);
	}
	for (int n = 0; n < MaxBackends; n++)
	{
		Slot	   *slot = &writers_shared->slots[n].slot;

		pg_atomic_init_u32(&slot->unlisted, 0);
		for (int i = 0; i < SLOT_ENTRIES; i++)
		{
			pg_atomic_init_u64(&slot->containers[i], 0);
			init_times(&slot->times[i]);
		}
	}
}
