/*-------------------------------------------------------------------------
 *
 * truncate_partition.c
 *	  Empties a partition whose rows are all expired, by TRUNCATE.
 *
 * Done only if nobody can tell the difference from deletion row by row.  When
 * in doubt, the partition is left alone, and goes row by row.
 *
 * Not if there is somebody to be told of each row: triggers on DELETE or
 * TRUNCATE on the partition or a table above it, foreign keys that reference
 * it (they are such triggers), rules, an archive, logical decoding.
 *
 * Every row must have expired.  The right edges of the expiry indexes show
 * that cheaply for the rows that are in them, which are all if the container
 * has no TTL column: then the time is constant, whatever the partition's size.
 * With a TTL column, rows that live for ever are in no index, and BRIN indexes
 * know nothing of the latest row; then the table has to be read, up to the first row
 * that is still alive.  That costs a small part of deletion, is limited by what the
 * turn may spend, and lets everybody read and write the partition.  The proof is then repeated under a lock, for what
 * may have changed since: the edges, and the pages that are not known to be
 * unchanged, at most RECHECK_PAGES of them.  Known to be unchanged are
 *
 * - pages marked all-visible: what is on them is older than the snapshot that
 *	 has been active since before the table was read;
 * - pages of a logged table whose LSN says that they haven't been changed since.
 *
 * Every version of a row is looked at that anybody may still see: what has been
 * deleted or changed since may be live in a snapshot that was taken before.
 *
 * TRUNCATE isn't MVCC-safe: an older snapshot would see the rows vanish.  But
 * rows that are hidden from it anyway make no difference.  So there is a moment
 * "noted_at" by which all rows must have expired, and the transactions that were
 * open then, in any database and prepared ones too, must all have ended, and
 * so must those that have imported a snapshot of theirs.
 * What began later judges rows by a later clock, whatever its isolation level.
 * The list is checked batch by batch, and deletion goes on meanwhile.  If the
 * policy is changed in between, all begins anew: a cursor may have been opened
 * when rows were not expired.  Transactions on a standby are not known here;
 * with a standby connected (any WAL sender, in fact) it is always row by row.
 * (A standby that is fed from an archive may see its snapshots' rows vanish, as
 * with any TRUNCATE.)
 *
 * The lock is ACCESS EXCLUSIVE, taken only if it is to be had at once, and
 * held for a short time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/visibilitymap.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/partition.h"
#include "catalog/pg_am.h"
#include "common/int.h"
#include "compat.h"
#include "deletion/deletion.h"
#include "expiry/expiry.h"
#include "invalidation.h"
#include "miscadmin.h"
#include "reaper/reap_rel.h"
#include "reaper/reaper_internal.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/spin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Pages that are read at most while the partition is locked. */
#define RECHECK_PAGES		4000

/* Pages between looks at the clock and at who is waiting. */
#define PAGES_BETWEEN_LOOKS	500

/* Time until the next attempt, after one that has failed. */
#define RETRY_WAIT			(60 * USECS_PER_SEC)

/* How often the policy of a container has changed, as far as we care. */
typedef struct Generation
{
	Oid			container;		/* MUST BE FIRST */
	uint64		n;
} Generation;

static HTAB *generations = NULL;

static void
relation_changed(Datum arg, Oid relid)
{
	Generation *generation;
	HASH_SEQ_STATUS status;

	if (OidIsValid(relid))
	{
		generation = (Generation *) hash_search(generations, &relid, HASH_FIND,
												NULL);
		if (generation != NULL)
			generation->n++;
		return;
	}
	hash_seq_init(&status, generations);
	while ((generation = (Generation *) hash_seq_search(&status)) != NULL)
		generation->n++;
}

static uint64
current_generation(Oid container)
{
	Generation *generation;
	bool		found;

	if (generations == NULL)
	{
		HASHCTL		ctl;

		ctl.keysize = sizeof(Oid);
		ctl.entrysize = sizeof(Generation);
		ctl.hcxt = TopMemoryContext;
		generations = hash_create("ttl policy generations", 16, &ctl,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		ttl_invalidation_observe(relation_changed);
	}
	generation = (Generation *) hash_search(generations, &container,
											HASH_ENTER, &found);
	if (!found)
		generation->n = 0;
	return generation->n;
}

/*
 * Would a trigger or rule of the relation like to know of deletions?
 */
static bool
has_trigger_fire(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	if (rel->rd_rules != NULL)
		return true;
	return triggers != NULL &&
		(triggers->trig_delete_before_row ||
		 triggers->trig_delete_after_row ||
		 triggers->trig_delete_instead_row ||
		 triggers->trig_delete_before_statement ||
		 triggers->trig_delete_after_statement ||
		 triggers->trig_delete_old_table ||
		 triggers->trig_truncate_before_statement ||
		 triggers->trig_truncate_after_statement);
}

/*
 * Is there any WAL sender (of a standby, subscriber, base backup)?
 */
static bool
has_wal_sender(void)
{
	bool		found = false;

	for (int i = 0; i < max_wal_senders && !found; i++)
	{
		WalSnd	   *sender = &WalSndCtl->walsnds[i];

		SpinLockAcquire(&sender->mutex);
		found = sender->pid != 0;
		SpinLockRelease(&sender->mutex);
	}
	return found;
}

/*
 * Is it a partition of which nobody wants to hear about each row?
 */
static bool
is_partition_without_trigger(Relation rel, const TtlContainer *container)
{
	ListCell   *lc;

	if (!rel->rd_rel->relispartition ||
		rel->rd_rel->relam != HEAP_TABLE_AM_OID ||
		OidIsValid(container->archive_to) ||
		RelationIsLogicallyLogged(rel) ||
		has_trigger_fire(rel) || has_wal_sender())
		return false;

	foreach(lc, get_partition_ancestors(RelationGetRelid(rel)))
	{
		bool		busy;
		Relation	ancestor = ttl_container_open_unlocked(lfirst_oid(lc), &busy);
		bool		watched;

		if (ancestor == NULL)
			return false;
		watched = has_trigger_fire(ancestor);
		relation_close(ancestor, NoLock);
		if (watched)
			return false;
	}
	return true;
}

void
ttl_truncate_partition_forget(TtlTruncate *truncate)
{
	if (truncate->open != NULL)
		pfree(truncate->open);
	memset(truncate, 0, sizeof(TtlTruncate));
}

/*
 * Forgets, and waits for some time.
 */
static void
give_up(TtlTruncate *truncate)
{
	ttl_truncate_partition_forget(truncate);
	truncate->next_at = GetCurrentTimestamp() + RETRY_WAIT;
}

/*
 * Notes the present, and the transactions that are open in it.
 */
static void
note_transactions(TtlTruncate *truncate, MemoryContext context)
{
	VirtualTransactionId *open;

	truncate->noted_at = GetCurrentTimestamp();
	truncate->next_xid = ReadNextTransactionId();
	open = GetCurrentVirtualXIDs(InvalidTransactionId, false, true, 0,
								 &truncate->nopen);
	truncate->open = (VirtualTransactionId *)
		MemoryContextAlloc(context,
						   Max(truncate->nopen, 1) * sizeof(VirtualTransactionId));
	memcpy(truncate->open, open, truncate->nopen * sizeof(VirtualTransactionId));
	pfree(open);
}

/*
 * May somebody have imported a snapshot that had been taken by then?  Who has one that
 * is as old, by what it sees, may have taken it later, too.
 */
static bool
is_old_snapshot_in_use(const TtlTruncate *truncate)
{
	int			n;

	pfree(GetCurrentVirtualXIDs(truncate->next_xid, true, false, PROC_IN_VACUUM, &n));
	return n > 0;
}

bool
ttl_truncate_partition_ready(TtlTruncate *truncate, Relation rel, const TtlContainer *container,
				MemoryContext context)
{
	uint64		generation;

	if (!rel->rd_rel->relispartition ||
		truncate->next_at > GetCurrentTimestamp())
		return false;

	generation = current_generation(container->container);
	if (truncate->noted_at != 0 && truncate->generation != generation)
		ttl_truncate_partition_forget(truncate);
	if (truncate->noted_at == 0)
	{
		if (!is_partition_without_trigger(rel, container))
		{
			give_up(truncate);
			return false;
		}
		note_transactions(truncate, context);
		truncate->generation = generation;
	}

	while (truncate->nopen > 0 &&
		   VirtualXactLock(truncate->open[truncate->nopen - 1], false))
		truncate->nopen--;
	return truncate->nopen == 0 && !is_old_snapshot_in_use(truncate);
}

/*
 * Looks at the rows of the blocks from 'first' to 'last'.  Returns how many
 * there are, or -1 if one isn't known to have expired by 'cutoff'.
 */
static int64
read_blocks(Relation rel, const TtlContainer *container, TupleTableSlot *slot,
			TimestampTz cutoff, BlockNumber first, BlockNumber last)
{
	SnapshotData visible;
	ItemPointerData min;
	ItemPointerData max;
	TableScanDesc scan;
	int64		rows = 0;

	InitNonVacuumableSnapshot(visible, GlobalVisTestFor(rel));
	ItemPointerSet(&min, first, FirstOffsetNumber);
	ItemPointerSet(&max, last, MaxOffsetNumber);
	scan = TtlTableBeginScanTidRange(rel, &visible, &min, &max);
	while (table_scan_getnextslot_tidrange(scan, ForwardScanDirection, slot))
	{
		if (ttl_expiry_of_slot(container, slot) > cutoff)
		{
			rows = -1;
			break;
		}
		if (table_tuple_satisfies_snapshot(rel, slot, SnapshotSelf))
			rows++;
	}
	table_endscan(scan);
	ExecClearTuple(slot);
	return rows;
}

/*
 * Does somebody wait for a strong lock on the relation?  Then another kind of
 * lock isn't to be had, although we hold one.
 */
static bool
is_waited_for(Relation rel)
{
	if (!ConditionalLockRelation(rel, RowShareLock))
		return true;
	UnlockRelation(rel, RowShareLock);
	return false;
}

/*
 * The same for all blocks, with a look left and right now and then.
 */
static int64
read_table(Relation rel, const TtlContainer *container, TupleTableSlot *slot,
		   TimestampTz cutoff, BlockNumber nblocks, TimestampTz until)
{
	int64		rows = 0;

	for (BlockNumber block = 0; block < nblocks; block += PAGES_BETWEEN_LOOKS)
	{
		int64		more;

		CHECK_FOR_INTERRUPTS();
		if ((until != DT_NOEND && GetCurrentTimestamp() > until) ||
			is_waited_for(rel))
			return -1;
		more = read_blocks(rel, container, slot, cutoff, block,
						   Min(block + PAGES_BETWEEN_LOOKS, nblocks) - 1);
		if (more < 0)
			return -1;
		rows += more;
	}
	return rows;
}

/*
 * Under the lock: have all rows that came since the table was read expired?
 */
static bool
recheck(Relation rel, const TtlContainer *container, TupleTableSlot *slot,
		TimestampTz cutoff, XLogRecPtr read_lsn)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	Buffer		map = InvalidBuffer;
	int			read = 0;
	bool		expired = true;

	for (BlockNumber block = 0; block < nblocks && expired; block++)
	{
		if (VM_ALL_VISIBLE(rel, block, &map))
			continue;
		if (RelationNeedsWAL(rel))
		{
			Buffer		buffer = ReadBuffer(rel, block);
			XLogRecPtr	lsn = BufferGetLSNAtomic(buffer);

			ReleaseBuffer(buffer);
			if (lsn != InvalidXLogRecPtr && lsn < read_lsn)
				continue;
		}
		expired = ++read <= RECHECK_PAGES &&
			read_blocks(rel, container, slot, cutoff, block, block) >= 0;
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	return expired;
}

/* Is there a row that expires later, by the right edges of the indexes? */
static bool
indexes_know_later(Relation rel, const TtlContainer *container, TimestampTz cutoff)
{
	SnapshotData visible;

	if (container->indexing == TTL_INDEXING_LAZY)
		return false;
	InitNonVacuumableSnapshot(visible, GlobalVisTestFor(rel));
	return ttl_expiry_latest(rel, container, &visible) > cutoff;
}

int64
ttl_truncate_partition(TtlTruncate *truncate, const TtlContainer *container,
				const TtlTruncateLimits *limits)
{
	Relation	rel = relation_open(container->relid, NoLock);
	TupleTableSlot *slot;
	TimestampTz cutoff;
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	bool		must_read = container->ttl_attno != InvalidAttrNumber ||
	container->ts_type != NULL ||
	container->indexing == TTL_INDEXING_LAZY;
	bool		read = nblocks <= limits->max_pages;
	XLogRecPtr	read_lsn;
	int64		rows;
	bool		locked = false;
	bool		proven;

	if (pg_sub_s64_overflow(truncate->noted_at, container->reap_delay, &cutoff) ||
		(!read && must_read) || indexes_know_later(rel, container, cutoff))
	{
		relation_close(rel, NoLock);
		give_up(truncate);
		return -1;
	}

	slot = table_slot_create(rel, NULL);
	read_lsn = GetXLogInsertRecPtr();
	if (read)
		rows = read_table(rel, container, slot, cutoff, nblocks, limits->until);
	else
		rows = Max((int64) rel->rd_rel->reltuples, 0);

	proven = rows >= 0 && rows <= limits->max_rows &&
		(locked = ConditionalLockRelation(rel, AccessExclusiveLock)) &&
		is_partition_without_trigger(rel, container) &&
		truncate->generation == current_generation(container->container) &&
		!indexes_know_later(rel, container, cutoff) &&
		(!must_read || recheck(rel, container, slot, cutoff, read_lsn));
	ExecDropSingleTupleTableSlot(slot);

	if (proven)
		ttl_deletion_truncate(rel);
	else
	{
		rows = -1;
		if (locked)
			UnlockRelation(rel, AccessExclusiveLock);
		relation_close(rel, NoLock);
	}

	give_up(truncate);
	return rows;
}
