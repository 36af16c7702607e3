/*-------------------------------------------------------------------------
 *
 * truncate_partition.c
 *	  Empties a partition whose rows have all expired, by TRUNCATE.
 *
 * Done only if that makes no visible difference to a deletion of all rows.  When in
 * doubt, the rows are deleted one by one.
 *
 * It would make a difference to triggers on DELETE or TRUNCATE of the partition, foreign keys
 * that reference it (which are such triggers), rules, an archive, and logical decoding.  Row
 * triggers and foreign keys of a table above it are the partition's, too; other triggers and rules
 * of that table are for commands on it, which the deletion of the partition's rows isn't either.
 *
 * Every row must have expired.  The right edges of the expiry indexes show that for the
 * rows that are in them, which are all if the container has no TTL column: then the time
 * is constant, whatever the partition's size.  With a TTL column, rows that never expire
 * are in no index; then the table is read, up to the first row that has not expired.  That
 * costs a small part of deletion, is limited by what the run may use, and takes no lock.  Under
 * the lock the proof is completed for what may have changed since: the edges, and the pages that
 * are not known to be unchanged, at most RECHECK_PAGES of them.  Known to be unchanged are
 *
 * - pages marked all-visible: what is on them is older than the snapshot that
 *	 has been active since before the table was read;
 * - pages of a logged table with an LSN from before.
 *
 * All versions of a row that are not removable yet are checked: one that has been
 * deleted or changed since may be live in a snapshot that was taken before.
 *
 * TRUNCATE is not MVCC-safe: an older snapshot would see the rows vanish.  Rows that
 * are hidden from it anyway make no difference.  So there is an instant noted_at by
 * which all rows must have expired, and the transactions that were open then, in any
 * database, prepared ones included, must have ended, and so must those that have
 * imported a snapshot of theirs.  What began later checks rows by a later time, whatever
 * its isolation level.  The list is checked at each batch, and deletion goes on meanwhile.
 * If the policy is changed in between, it starts anew, since a cursor may have been opened
 * when rows were not expired.  Transactions on a standby are not known here; with a WAL
 * sender connected rows are always deleted one by one.  (On a standby that is fed from an
 * archive snapshots may miss rows, as with any TRUNCATE.)
 *
 * The lock is ACCESS EXCLUSIVE, taken only if it is available at once, and held for a
 * short time.
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
#include "catalog/pg_am.h"
#include "common/int.h"
#include "compat.h"
#include "deletion/deletion.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "miscadmin.h"
#include "reaper/reap_rel.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/spin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Collected rows by which an attempt is worthwhile */
#define MIN_ROWS			500

/* Pages that are read at most while the partition is locked */
#define RECHECK_PAGES		4000

/* Pages between looks at waiters */
#define PAGES_BETWEEN_LOOKS	500

/* Time until the next attempt, after one that failed */
#define RETRY_WAIT			(60 * USECS_PER_SEC)

/* True if there is any WAL sender (of a standby, subscriber, base backup). */
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

/* True if a trigger, a foreign key's included, or a rule of it runs for DELETE or TRUNCATE. */
static bool
delete_has_code(Relation rel)
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

/* True if it is a partition where no row by itself matters. */
static bool
is_partition_without_trigger(Relation rel, const TtlContainer *container)
{
	return rel->rd_rel->relispartition &&
		rel->rd_rel->relam == HEAP_TABLE_AM_OID &&
		!OidIsValid(container->policy.archive_to) &&
		!RelationIsLogicallyLogged(rel) &&
		!delete_has_code(rel) && !has_wal_sender();
}

void
ttl_truncate_partition_forget(TtlTruncate *truncate, bool waits)
{
	if (truncate->open != NULL)
		pfree(truncate->open);
	memset(truncate, 0, sizeof(TtlTruncate));
	if (waits)
		truncate->next_at = GetCurrentTimestamp() + RETRY_WAIT;
}

/* Notes the time, and the open transactions. */
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
 * True if a transaction may have imported a snapshot that had been taken by then.  One that is as
 * old, by its contents, may have been taken later, too.
 */
static bool
is_old_snapshot_in_use(const TtlTruncate *truncate)
{
	int			n;

	pfree(GetCurrentVirtualXIDs(truncate->next_xid, true, false, PROC_IN_VACUUM, &n));
	return n > 0;
}

/* Notes what an attempt depends on. */
bool
ttl_truncate_partition_is_ready(TtlBatch *batch)
{
	TtlTruncate *truncate = &batch->reap_rel->truncate;
	uint64		generation;

	if (!batch->memory->mode.commits ||
		batch->reap_rel->tids.n - batch->reap_rel->next_tid < MIN_ROWS ||
		!batch->rel->rd_rel->relispartition ||
		truncate->next_at > GetCurrentTimestamp())
		return false;

	generation = ttl_container_generation(batch->container.container);
	if (truncate->noted_at != 0 && truncate->generation != generation)
		ttl_truncate_partition_forget(truncate, false);
	if (truncate->noted_at == 0)
	{
		if (!is_partition_without_trigger(batch->rel, &batch->container))
		{
			ttl_truncate_partition_forget(truncate, true);
			return false;
		}
		note_transactions(truncate, batch->memory->context);
		truncate->generation = generation;
	}

	while (truncate->nopen > 0 &&
		   VirtualXactLock(truncate->open[truncate->nopen - 1], false))
		truncate->nopen--;
	return truncate->nopen == 0 && !is_old_snapshot_in_use(truncate);
}

/*
 * Reads the blocks from 'first' to 'last'.  Returns the number of rows, or -1 if one
 * had not expired by 'cutoff'.
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
 * True if a strong lock on the relation is waited for.  Then another kind of lock is not
 * available, although we hold one.
 */
static bool
is_waited_for(Relation rel)
{
	if (!ConditionalLockRelation(rel, RowShareLock))
		return true;
	UnlockRelation(rel, RowShareLock);
	return false;
}

/* The same for all blocks.  Ends if the table is wanted. */
static int64
read_table(Relation rel, const TtlContainer *container, TupleTableSlot *slot,
		   TimestampTz cutoff, BlockNumber nblocks)
{
	int64		rows = 0;

	for (BlockNumber block = 0; block < nblocks; block += PAGES_BETWEEN_LOOKS)
	{
		int64		more;

		CHECK_FOR_INTERRUPTS();
		if (is_waited_for(rel))
			return -1;
		more = read_blocks(rel, container, slot, cutoff, block,
						   Min(block + PAGES_BETWEEN_LOOKS, nblocks) - 1);
		if (more < 0)
			return -1;
		rows += more;
	}
	return rows;
}

/* Under the lock: true if the rows have expired that were written since the table was read. */
static bool
recheck_table(Relation rel, const TtlContainer *container, TupleTableSlot *slot,
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

/* True if there is a row that expires later, by the right edges of the indexes. */
static bool
indexes_hold_later(Relation rel, const TtlContainer *container, TimestampTz cutoff)
{
	SnapshotData visible;

	InitNonVacuumableSnapshot(visible, GlobalVisTestFor(rel));
	return ttl_expiry_latest(rel, container, &visible) > cutoff;
}

void
ttl_truncate_partition(TtlBatch *batch)
{
	TtlTruncate *truncate = &batch->reap_rel->truncate;
	const TtlContainer *container = &batch->container;
	Relation	rel = relation_open(container->relid, NoLock);
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	bool		must_read = container->ttl_attno != InvalidAttrNumber ||
		container->ts_type != NULL;
	int64		max_pages = ttl_guc_throughput == 0 ?
		Max(batch->max_cost, ttl_guc_cycle_cost_limit / 4) : batch->max_cost;
	TimestampTz cutoff;
	TupleTableSlot *slot;
	XLogRecPtr	read_lsn = GetXLogInsertRecPtr();
	int64		rows = -1;
	bool		is_locked = false;

	PushActiveSnapshot(GetTransactionSnapshot());
	slot = table_slot_create(rel, NULL);
	if (!pg_sub_s64_overflow(truncate->noted_at, container->policy.reap_delay, &cutoff) &&
		!indexes_hold_later(rel, container, cutoff))
	{
		if (nblocks <= max_pages)
			rows = read_table(rel, container, slot, cutoff, nblocks);
		else if (!must_read)
			rows = Max((int64) rel->rd_rel->reltuples, 0);
	}

	if (rows >= 0 && rows <= batch->max_rows &&
		(is_locked = ConditionalLockRelation(rel, AccessExclusiveLock)) &&
		is_partition_without_trigger(rel, container) &&
		truncate->generation == ttl_container_generation(container->container) &&
		!indexes_hold_later(rel, container, cutoff) &&
		(!must_read || recheck_table(rel, container, slot, cutoff, read_lsn)))
	{
		ExecDropSingleTupleTableSlot(slot);
		ttl_deletion_truncate(rel);
		batch->ntids = batch->reap_rel->tids.n - batch->reap_rel->next_tid;
		batch->deleted = Max(rows, batch->ntids);
	}
	else
	{
		ExecDropSingleTupleTableSlot(slot);
		if (is_locked)
			UnlockRelation(rel, AccessExclusiveLock);
		relation_close(rel, NoLock);
	}
	PopActiveSnapshot();
}
