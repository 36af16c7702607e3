/*-------------------------------------------------------------------------
 *
 * expired_writers.c
 *	  Who is writing rows that have expired.
 *
 * A bulk load looks no keys up while it is known that nothing in the table has expired (evict.c).
 * That is read in the expiry indexes, which uncommitted rows are in, too, but not those that a
 * statement is just about to insert.  So each statement that writes expired rows says so
 * before it writes the first, and is counted until it has ended: by then all its rows are in the
 * indexes, whatever becomes of the transaction.
 *
 * There is a word in shared memory for the tables of each hash value.  Its low bits are the number of
 * such statements, the others count their beginnings and each further row, so that a word that is
 * the same has not changed meanwhile.  Nothing is waited for.
 *
 * A statement has ended when its memory goes, which PostgreSQL sees to however it ends; where that
 * outlives the transaction, as an apply worker's does that ends with an error, at the
 * transaction's end.  Rows of a prepared transaction are in the indexes.  A crash resets
 * shared memory, and ends all statements.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "expired_writers.h"

/* More than there can be statements; the rest of the word may wrap around */
#define WRITER_BITS		24
#define ONE_WRITER		UINT64CONST(1)
#define ONE_WRITE		(UINT64CONST(1) << WRITER_BITS)

typedef struct Writer
{
	dlist_node	node;
	pg_atomic_uint64 *word;		/* NULL = it has ended */
	MemoryContextCallback forget;
} Writer;

static TtlExpiredWritersShared *shared = NULL;

/* The statements of this process */
static dlist_head writers = DLIST_STATIC_INIT(writers);

void
ttl_expired_writers_attach(TtlExpiredWritersShared *shmem, bool found)
{
	shared = shmem;
	for (int i = 0; !found && i < TTL_EXPIRED_WRITERS_WORDS; i++)
		pg_atomic_init_u64(&shared->words[i].value, 0);
}

static pg_atomic_uint64 *
word_of(Oid table)
{
	uint32		hash = hash_combine(murmurhash32(MyDatabaseId), murmurhash32(table));

	return &shared->words[hash % TTL_EXPIRED_WRITERS_WORDS].value;
}

static void
end_writer(void *arg)
{
	Writer	   *writer = arg;

	if (writer->word == NULL)
		return;
	pg_atomic_fetch_sub_u64(writer->word, ONE_WRITER);
	writer->word = NULL;
	dlist_delete(&writer->node);
}

void
ttl_expired_writers_join(Oid table, MemoryContext statement)
{
	Writer	   *writer = MemoryContextAllocZero(statement, sizeof(Writer));

	writer->forget.func = end_writer;
	writer->forget.arg = writer;
	MemoryContextRegisterResetCallback(statement, &writer->forget);
	dlist_push_head(&writers, &writer->node);
	writer->word = word_of(table);
	pg_atomic_fetch_add_u64(writer->word, ONE_WRITE + ONE_WRITER);
}

void
ttl_expired_writers_write(Oid table)
{
	pg_atomic_fetch_add_u64(word_of(table), ONE_WRITE);
}

uint64
ttl_expired_writers_state(Oid table)
{
	return pg_atomic_read_u64(word_of(table));
}

bool
ttl_expired_writers_in_progress(uint64 state)
{
	return (state & (ONE_WRITE - 1)) != 0;
}

void
ttl_expired_writers_transaction(XactEvent event)
{
	dlist_mutable_iter iter;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	dlist_foreach_modify(iter, &writers)
		end_writer(dlist_container(Writer, node, iter.cur));
}
