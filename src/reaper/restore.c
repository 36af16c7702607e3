/*-------------------------------------------------------------------------
 *
 * restore.c
 *	  Recognizes a server that was started from a copy of its data, and keeps what such a start must not lose.
 *
 * Much of a copy has expired since it was made, and would be deleted as soon as the server is up.
 *
 * Base backups.  The postmaster loads the library before the startup process reads "backup_label" and
 * renames it.  If that file or "recovery.signal" is there, and "standby.signal" is not, the
 * postmaster copies the label to HOLD_FILE: from here on deletion is held, whatever crashes.  A worker
 * then turns the file into a replication origin, HELD_ORIGIN, so that standbys and backups of this
 * cluster inherit the hold.  (There is no shared catalog for such a thing; this one accepts names from
 * extensions, and they have no other effect.)  ttl.resume() drops the origin, which is transactional, and the file
 * at commit if no worker has come by, as with ttl.reaper = off.  ShareRowExclusiveLock on pg_replication_origin serializes
 * workers and ttl.resume(); the file is unlinked while it is held.
 *
 * A standby consumes the label of the backup that it was made from, so neither a restart nor its promotion
 * finds one; nor do those after pg_rewind, which leaves a label, too, on what becomes a standby.  An attempt to start such
 * a server before "standby.signal" was there is forgotten: HOLD_FILE is then a copy of the same label.  A
 * standby that was made before a worker had seen the file may be held once more when it is promoted.
 *
 * Other copies.  A snapshot of disks that was put back looks like a server that has crashed,
 * or was off, long ago.  If pg_control was last written more than ttl.grace before the start, each
 * container that is older than the start gets a grace (expiry.c) from the start on.  It is stored with the policy, so
 * that restarts in the meantime don't end it.  The row's xmin tells which containers are older; whoever
 * creates or changes one after the start knows what he does.
 *
 * Single-user mode loads the library like the postmaster.  pg_upgrade makes a cluster that has
 * neither; a hold ends with it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "catalog/pg_replication_origin.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "utils/inval.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "reaper/reaper_internal.h"
#include "ttl.h"

/* In the data directory */
#define HOLD_FILE	TTL_EXTENSION ".held"
#define HOLD_FILE_TMP	HOLD_FILE ".tmp"

#define HELD_ORIGIN	TTL_EXTENSION "_held"

/* More than a label has */
#define LABEL_LENGTH	8192

/* Of the postmaster's start; crashes of other processes don't change it. */
static TimestampTz last_known_at = 0;
static TimestampTz started_at = 0;

/* The same in shared memory */
static TtlRestoreShared *restore_shared = NULL;

/* The current transaction has called ttl.resume(). */
static bool unlinks_at_commit = false;

static bool
file_exists(const char *path)
{
	if (access(path, F_OK) == 0)
		return true;
	if (errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not access file \"%s\": %m", path)));
	return false;
}

/* Reads the start of a file.  Returns false if there is no such file. */
static bool
read_label(const char *path, char *label)
{
	FILE	   *file = AllocateFile(path, "r");
	size_t		length;

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not open file \"%s\": %m", path)));
		return false;
	}
	length = fread(label, 1, LABEL_LENGTH - 1, file);
	label[length] = '\0';
	if (ferror(file))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", path)));
	FreeFile(file);
	return true;
}

/* The server doesn't start if that is not possible: it would delete what it was restored for. */
static void
write_hold_file(const char *label)
{
	FILE	   *file = AllocateFile(HOLD_FILE_TMP, "w");

	if (file == NULL || fputs(label, file) == EOF || FreeFile(file) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", HOLD_FILE_TMP)));
	(void) durable_rename(HOLD_FILE_TMP, HOLD_FILE, ERROR);
}

static void
unlink_hold_file(void)
{
	if (access(HOLD_FILE, F_OK) == 0)
		(void) durable_unlink(HOLD_FILE, WARNING);
}

static void
look_for_base_backup(void)
{
	char		label[LABEL_LENGTH] = "";
	char		held[LABEL_LENGTH];
	bool		has_label = read_label(BACKUP_LABEL_FILE, label);

	if (file_exists(STANDBY_SIGNAL_FILE))
	{
		/*
		 * a file with another label is that of the primary, which the backup
		 * was taken from
		 */
		if (has_label && read_label(HOLD_FILE, held) && strcmp(label, held) == 0)
			unlink_hold_file();
	}
	else if (has_label || file_exists(RECOVERY_SIGNAL_FILE))
		write_hold_file(label);
}

static void
look_at_control_file(void)
{
	bool		is_sound;
	ControlFileData *control = get_controlfile(DataDir, &is_sound);

	/* if it isn't, the server won't start */
	if (is_sound)
		last_known_at = time_t_to_timestamptz(control->time);
	started_at = GetCurrentTimestamp();
	pfree(control);
}

void
ttl_restore_init(void)
{
	if (IsUnderPostmaster || IsBinaryUpgrade)
		return;
	look_for_base_backup();
	look_at_control_file();
}

void
ttl_restore_attach(TtlRestoreShared *shmem, bool found)
{
	restore_shared = shmem;
	if (found)
		return;
	restore_shared->last_known_at = last_known_at;
	restore_shared->started_at = started_at;
	restore_shared->next_xid = InvalidTransactionId;
}

void
ttl_restore_note_xid(void)
{
	if (!TransactionIdIsValid(restore_shared->next_xid))
		restore_shared->next_xid = ReadNextTransactionId();
}

void
ttl_restore_note_hold(void)
{
	StartTransactionCommand();
	LockRelationOid(ReplicationOriginRelationId, ShareRowExclusiveLock);
	if (file_exists(HOLD_FILE))
	{
		if (replorigin_by_name(HELD_ORIGIN, true) == InvalidReplOriginId)
			(void) replorigin_create(HELD_ORIGIN);
		ForceSyncCommit();
		unlinks_at_commit = true;
	}
	CommitTransactionCommand();
}

bool
ttl_restore_is_held(void)
{
	if (file_exists(HOLD_FILE))
		return true;

	/* who has unlinked the file just now has created the origin before */
	AcceptInvalidationMessages();
	return replorigin_by_name(HELD_ORIGIN, true) != InvalidReplOriginId;
}

void
ttl_restore_resume(void)
{
	LockRelationOid(ReplicationOriginRelationId, ShareRowExclusiveLock);
	replorigin_drop_by_name(HELD_ORIGIN, true, false);
	unlinks_at_commit = true;
}

/* Locks are released after this. */
void
ttl_restore_transaction(XactEvent event)
{
	if (event == XACT_EVENT_COMMIT && unlinks_at_commit)
		unlink_hold_file();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		unlinks_at_commit = false;
}

/*
 * True if the container has been stored since before the server's start, which was long after the
 * server was last known to run, and has no grace since.
 */
bool
ttl_restore_lacks_grace(const TtlPolicy *policy)
{
	int64		grace = ttl_guc_grace * USECS_PER_SEC;

	return restore_shared->started_at - restore_shared->last_known_at > grace &&
		GetCurrentTimestamp() < restore_shared->started_at + grace &&
		policy->change.noticed_at < restore_shared->started_at &&
		TransactionIdPrecedes(policy->written_by, restore_shared->next_xid);
}

void
ttl_restore_begin_grace(Oid container)
{
	ttl_grace_begin_at(container, restore_shared->started_at);
}

void
ttl_restore_log_grace(const char *database)
{
	static bool is_logged = false;
	char	   *last_known;

	/* it comes again for containers that were locked */
	if (is_logged)
		return;
	is_logged = true;
	/* timestamptz_to_str() has one buffer */
	last_known = pstrdup(timestamptz_to_str(restore_shared->last_known_at));
	ereport(LOG,
			(errmsg("expired rows in database \"%s\" are not deleted before %s because the last checkpoint before the server's start is older than ttl.grace",
					database, timestamptz_to_str(restore_shared->started_at + ttl_guc_grace * USECS_PER_SEC)),
			 errdetail("The last checkpoint was at %s.", last_known)));
	pfree(last_known);
}
