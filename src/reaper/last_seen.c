/*-------------------------------------------------------------------------
 *
 * last_seen.c
 *	  Recognizes that the server has been out of service for long, and then has deletion wait.
 *
 * A snapshot of disks that was put back looks like a server that has crashed, or was off, long
 * ago.  Much of it has expired since, and would be deleted as soon as the server is up.
 *
 * LAST_SEEN_FILE in the data directory has the time when the server was last in service.  The launcher
 * reads it when it starts: that is after recovery, however long it takes and however often it is
 * tried, and at promotion.  If the file is missing, or its time differs from now by more than ttl.grace, each
 * container that is older than this start of the launcher gets a grace (grace.c), counted from the
 * start.  It is stored with the policy, so restarts in the meantime don't end it and standbys have it.
 * The row's xmin tells which containers are older; whoever creates or changes one after the start knows
 * what he does.
 *
 * The launcher renews the time every RENEWAL_PERIOD and when it exits, but not before all databases that
 * accept connections have stored these graces.  So what ends the server before that, or keeps workers from
 * starting, makes the next start begin a grace again.
 *
 * On a standby the process "ttl standby" renews it.  A standby is in service from when it has
 * all that its primary has, or a transaction of a moment ago, or if it was so within ttl.grace before its start.  A
 * copy of a standby that is promoted without a primary is not.
 *
 * pg_control has times, too, but these are written by recovery, pg_checksums and pg_resetwal as well.
 * pg_upgrade makes a cluster that has no such file.  If the new cluster was started before, it
 * has, so binary upgrade mode sets the time to unknown.
 *
 * The file also has the backup label that the data directory was last started from (restore.c).
 *
 * Writing it takes as long as the disk does.  Only the processes that renew the time wait for each other
 * then: sessions read and set what they need without a lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "compat.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "reaper/reaper_internal.h"
#include "replication/walreceiver.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/spin.h"
#include "ttl.h"
#include "utils/guc.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#define LAST_SEEN_FILE	TTL_EXTENSION ".last_seen"

#define RENEWAL_PERIOD	(60 * USECS_PER_SEC)

/* ms between looks at a standby */
#define STANDBY_SLEEP	10000

/* In shared memory (slots.c) */
static TtlLastSeenShared *last_seen_shared = NULL;

/* In the postmaster, until there is shared memory: the label doesn't change afterwards. */
static char label_at_start[TTL_LABEL_LENGTH] = "";

/* The backup label that the data directory was last started from; false if that is not known */
bool
ttl_last_seen_label(char *label)
{
	TtlNote		note;

	if (!ttl_note_read(LAST_SEEN_FILE, &note))
		return false;
	strlcpy(label, note.label, TTL_LABEL_LENGTH);
	return true;
}

/* Remembers the label that it is started from now. */
void
ttl_last_seen_note_label(const char *label)
{
	TtlNote		note;

	strlcpy(label_at_start, label, sizeof(label_at_start));
	/* without a file the label is written with the first time */
	if (!ttl_note_read(LAST_SEEN_FILE, &note) ||
		(strcmp(note.label, label) == 0 && !IsBinaryUpgrade))
		return;
	strlcpy(note.label, label, sizeof(note.label));
	if (IsBinaryUpgrade)
		note.at = 0;
	ttl_note_write(LAST_SEEN_FILE, &note, ERROR);
}

/* Attaches to shared memory, and initializes it unless 'found'. */
void
ttl_last_seen_attach(TtlLastSeenShared *shmem, bool found, int tranche)
{
	last_seen_shared = shmem;
	if (found)
		return;
	LWLockInitialize(&last_seen_shared->lock, tranche);
	pg_atomic_init_u32(&last_seen_shared->next_xid, InvalidTransactionId);
	strlcpy(last_seen_shared->label, label_at_start, sizeof(last_seen_shared->label));
}

/* True if the time is not known, or not within ttl.grace of the other one. */
static bool
is_long_ago(TimestampTz at, TimestampTz now)
{
	/* it may be ahead after the clock has been set back */
	return at == 0 || Max(now - at, at - now) > ttl_guc_grace * USECS_PER_SEC;
}

/* The time when the server was in service last; 0 if that is not known */
static TimestampTz
read_time(void)
{
	TtlNote		note;

	return ttl_note_read(LAST_SEEN_FILE, &note) ? note.at : 0;
}

/* Before the first transaction of this process, or a later one, gets an XID */
void
ttl_last_seen_note_xid(void)
{
	static bool is_noted = false;
	uint32		none = InvalidTransactionId;

	/*
	 * sessions of a standby go on after its promotion, which is when the
	 * launcher starts
	 */
	if (is_noted || RecoveryInProgress())
		return;
	is_noted = true;
	if (pg_atomic_read_u32(&last_seen_shared->next_xid) == none)
		(void) pg_atomic_compare_exchange_u32(&last_seen_shared->next_xid, &none, ReadNextTransactionId());
}

/* The launcher has started: reads when the server was in service last. */
void
ttl_last_seen_begin(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz last_seen = read_time();

	/* containers that have been stored before need a grace */
	ttl_last_seen_note_xid();
	LWLockAcquire(&last_seen_shared->lock, LW_EXCLUSIVE);

	/*
	 * a launcher that has failed goes on, unless the clock has been set back
	 * since
	 */
	if (last_seen_shared->started_at == 0 || last_seen_shared->started_at > now)
	{
		last_seen_shared->started_at = now;
		last_seen_shared->last_seen = last_seen;
		last_seen_shared->is_stored = false;
	}
	last_seen_shared->renewed_at = 0;
	LWLockRelease(&last_seen_shared->lock);
}

/* True if the server was out of service for longer than ttl.grace when the launcher started. */
static bool
was_absent(void)
{
	return ttl_guc_grace > 0 && is_long_ago(last_seen_shared->last_seen, last_seen_shared->started_at);
}

/* True until all databases have stored the graces that began with the launcher. */
bool
ttl_last_seen_awaits_graces(void)
{
	return !last_seen_shared->is_stored && was_absent();
}

/* They have. */
void
ttl_last_seen_note_stored(void)
{
	last_seen_shared->is_stored = true;
}

/* Renews the time, unless 'is_due' and that was done a moment ago. */
static void
renew(bool is_due)
{
	TtlNote		note = {.at = GetCurrentTimestamp()};

	LWLockAcquire(&last_seen_shared->lock, LW_EXCLUSIVE);
	if (!is_due || Max(note.at - last_seen_shared->renewed_at, last_seen_shared->renewed_at - note.at) >= RENEWAL_PERIOD)
	{
		last_seen_shared->renewed_at = note.at;
		strlcpy(note.label, last_seen_shared->label, sizeof(note.label));
		ttl_note_write(LAST_SEEN_FILE, &note, LOG);
	}
	LWLockRelease(&last_seen_shared->lock);
}

/* Keeps the time when the server was last in service, if nothing is awaited. */
void
ttl_last_seen_renew(bool exits)
{
	if (last_seen_shared->started_at != 0 && !ttl_last_seen_awaits_graces())
		renew(!exits);
}

/*
 * True if the container has been stored since before the launcher's start, which was long after the
 * server was last in service, and has no grace since.
 */
bool
ttl_last_seen_lacks_grace(const TtlPolicy *policy)
{
	/* a grace that would be over by now isn't stored any more */
	return was_absent() &&
		GetCurrentTimestamp() < last_seen_shared->started_at + ttl_guc_grace * USECS_PER_SEC &&
		policy->change.noticed_at < last_seen_shared->started_at &&
		TransactionIdPrecedes(policy->written_by, pg_atomic_read_u32(&last_seen_shared->next_xid));
}

/* Has a container wait for a grace that began with the launcher. */
void
ttl_last_seen_begin_grace(Oid container)
{
	/* the time may be renewed when all databases have done so */
	ForceSyncCommit();
	ttl_grace_begin_at(container, last_seen_shared->started_at);
}

/* Logs that containers of the database wait. */
void
ttl_last_seen_log_grace(const char *database)
{
	static bool is_logged = false;
	char	   *until;

	/* it comes again for containers that were locked */
	if (is_logged)
		return;
	is_logged = true;
	/* timestamptz_to_str() has one buffer */
	until = pstrdup(timestamptz_to_str(last_seen_shared->started_at + ttl_guc_grace * USECS_PER_SEC));
	ereport(LOG,
			(errmsg("expired rows in database \"%s\" are not deleted before %s because the server was not in service for longer than ttl.grace",
					database, until),
			 last_seen_shared->last_seen == 0 ?
			 errdetail("It is not known when it was in service last.") :
			 errdetail("It was in service last at %s.", timestamptz_to_str(last_seen_shared->last_seen))));
	pfree(until);
}

/* True if the standby has all that its primary has, or what it had less than ttl.grace ago. */
static bool
is_up_to_date(void)
{
	XLogRecPtr	end;
	bool		is_streaming;
	TimestampTz replayed = GetLatestXTime();

	SpinLockAcquire(&WalRcv->mutex);
	is_streaming = WalRcv->walRcvState == WALRCV_STREAMING;
	end = WalRcv->latestWalEnd; /* 0 until the primary has sent something */
	SpinLockRelease(&WalRcv->mutex);

	if (is_streaming && !XLogRecPtrIsInvalid(end) && GetXLogReplayRecPtr(NULL) >= end)
		return true;
	return replayed != 0 && !is_long_ago(replayed, GetCurrentTimestamp());
}

/*
 * Main function of the process of a standby.  It has no connection to a database.
 */
void
ttl_standby_main(Datum main_arg)
{
	bool		in_service = !is_long_ago(read_time(), GetCurrentTimestamp());

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	while (RecoveryInProgress())
	{
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		in_service = in_service || is_up_to_date();
		if (in_service)
			renew(!ShutdownRequestPending);
		if (ShutdownRequestPending)
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 STANDBY_SLEEP, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}

	/* the postmaster does not restart a background worker that exits with 0 */
	proc_exit(RecoveryInProgress() ? 1 : 0);
}

/* Called by the postmaster of a standby */
void
ttl_last_seen_register_standby(void)
{
	BackgroundWorker worker;

	ttl_process_describe(&worker, TTL_STANDBY_TYPE, "ttl_standby_main");
	/* before hot_standby, or without */
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	RegisterBackgroundWorker(&worker);
}
