/*-------------------------------------------------------------------------
 *
 * replica.c
 *	  Who else reads the WAL that deletion writes.
 *
 * What pg_stat_replication tells, taken from the same place.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/spin.h"

#include "reaper/reaper_internal.h"

bool
ttl_replica_connected(void)
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

uint64
ttl_replica_lag(void)
{
	XLogRecPtr	end = GetFlushRecPtr(NULL);
	XLogRecPtr	slowest = end;

	for (int i = 0; i < max_wal_senders; i++)
	{
		WalSnd	   *sender = &WalSndCtl->walsnds[i];
		bool		active;
		XLogRecPtr	done;

		SpinLockAcquire(&sender->mutex);
		active = sender->pid != 0;
		/* not everybody applies (pg_receivewal), or flushes, what he gets */
		done = sender->apply != InvalidXLogRecPtr ? sender->apply :
			sender->flush != InvalidXLogRecPtr ? sender->flush : sender->write;
		SpinLockRelease(&sender->mutex);

		/* a base backup, or one that hasn't said anything yet */
		if (!active || done == InvalidXLogRecPtr)
			continue;
		slowest = Min(slowest, done);
	}
	return end - slowest;
}
