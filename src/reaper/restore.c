/*-------------------------------------------------------------------------
 *
 * restore.c
 *	  Holds deletion after the start of a base backup.
 *
 * Much of a backup has expired since it was made, and would be deleted as soon as the server is up.
 *
 * The postmaster loads the library before the startup process reads "backup_label" and renames it to
 * "backup_label.old".  If that file or "recovery.signal" is there, and "standby.signal" is not, the
 * postmaster writes HOLD_FILE: from here on deletion is held, whatever crashes.  A worker
 * then turns the file into a replication origin, HELD_ORIGIN, so that standbys and backups of this
 * cluster inherit the hold.  (There is no shared catalog for such a thing; this one accepts names from
 * extensions, and they have no other effect.)
 *
 * If the first start was one without the library, the label has been renamed when it is loaded.  So
 * ttl remembers (last_seen.c) the label that the data directory was last started from.  If
 * "backup_label.old" is another one, and this is no standby, deletion is held, too.  A backup has the file of
 * the server that it was taken from; without one nothing is known, and there is only the
 * grace.  A label that is missing, as where somebody has tidied up, tells of no other backup.
 *
 * ttl.resume() drops HELD_ORIGIN, and if there is still a file, as with ttl.reaper = off, creates the
 * origin RESUMED_ORIGIN with the file's time, which ends what that file holds.  So it is as
 * transactional as the catalog; the file is removed by the next worker.
 * ShareRowExclusiveLock on pg_replication_origin serializes workers and ttl.resume().
 *
 * A standby consumes the label of the backup that it was made from, so neither a restart nor its promotion finds
 * one; nor do those after pg_rewind, which leaves a label, too, on what becomes a standby.  An attempt to start
 * such a server before "standby.signal" was there is forgotten: HOLD_FILE then has the same label.  A standby that
 * was made before a worker had seen the file may be held once more when it is promoted, and so may one that was
 * promoted without the library.
 *
 * Single-user mode loads the library like the postmaster.  pg_upgrade makes a cluster that has neither the
 * file nor the origin; a grace begins when that starts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_replication_origin.h"
#include "compat.h"
#include "miscadmin.h"
#include "reaper/reaper_internal.h"
#include "replication/origin.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/inval.h"
#include "utils/timestamp.h"

/* In the data directory */
#define HOLD_FILE	TTL_EXTENSION ".held"

/* Replication origins.  The second one has the time in HOLD_FILE. */
#define HELD_ORIGIN		TTL_EXTENSION "_held"
#define RESUMED_ORIGIN	TTL_EXTENSION "_held_resumed_" INT64_FORMAT

/* The server doesn't start if that is not possible: it would delete what it was restored for. */
static void
write_hold_file(const char *label)
{
	TtlNote		note = {.at = GetCurrentTimestamp()};

	strlcpy(note.label, label, sizeof(note.label));
	ttl_note_write(HOLD_FILE, &note, ERROR);
}

/* Begins the hold, if this is the start of a base backup, or the first start with the library since. */
static void
look_for_base_backup(bool has_label, const char *label)
{
	char		known[TTL_LABEL_LENGTH];
	TtlNote		held;

	if (ttl_note_exists(STANDBY_SIGNAL_FILE))
	{
		/*
		 * a file with another label is that of the primary, which the backup
		 * was taken from
		 */
		if (has_label && ttl_note_read(HOLD_FILE, &held) && strcmp(label, held.label) == 0)
			(void) durable_unlink(HOLD_FILE, WARNING);
	}
	else if (ttl_note_exists(RECOVERY_SIGNAL_FILE))
		write_hold_file(has_label ? label : "");
	else if (has_label || (label[0] != '\0' && ttl_last_seen_label(known) && strcmp(label, known) != 0))
		write_hold_file(label);
}

/* Called by the postmaster, before recovery, and in single-user mode */
void
ttl_restore_init(void)
{
	char		label[TTL_LABEL_LENGTH] = "";
	bool		has_label;

	if (IsUnderPostmaster)
		return;
	has_label = ttl_note_read_text(BACKUP_LABEL_FILE, label);
	if (!has_label)
		(void) ttl_note_read_text(BACKUP_LABEL_OLD, label);
	if (!IsBinaryUpgrade)
		look_for_base_backup(has_label, label);
	ttl_last_seen_note_label(label);
	if (!IsBinaryUpgrade && ttl_note_exists(STANDBY_SIGNAL_FILE))
		ttl_last_seen_register_standby();
}

/* True if there is a replication origin of that name. */
static bool
origin_exists(const char *name)
{
	return replorigin_by_name(name, true) != InvalidReplOriginId;
}

/* The name of the origin that ends the hold of HOLD_FILE; NULL if there is no such file */
static char *
resumed_origin(void)
{
	TtlNote		held;

	return ttl_note_read(HOLD_FILE, &held) ? psprintf(RESUMED_ORIGIN, held.at) : NULL;
}

/* True if there is HOLD_FILE, and deletion has not been resumed since. */
static bool
is_held_by_file(void)
{
	const char *resumed = resumed_origin();

	/* whoever has removed the file just now has created HELD_ORIGIN before */
	AcceptInvalidationMessages();
	return resumed != NULL && !origin_exists(resumed);
}

/* Has the start of a base backup known to standbys and backups of this server. */
void
ttl_restore_note_hold(void)
{
	if (!ttl_note_exists(HOLD_FILE))
		return;
	StartTransactionCommand();
	LockRelationOid(ReplicationOriginRelationId, ShareRowExclusiveLock);
	if (is_held_by_file() && !origin_exists(HELD_ORIGIN))
		(void) replorigin_create(HELD_ORIGIN);
	/* the worker commits asynchronously, and the file is to go */
	ForceSyncCommit();
	CommitTransactionCommand();

	/*
	 * the catalog has it now, and only a postmaster that starts writes
	 * another file
	 */
	StartTransactionCommand();
	LockRelationOid(ReplicationOriginRelationId, ShareRowExclusiveLock);
	if (ttl_note_exists(HOLD_FILE))
		(void) durable_unlink(HOLD_FILE, WARNING);
	CommitTransactionCommand();
}

/* True after the start of a base backup, until ttl.resume(). */
bool
ttl_restore_is_held(void)
{
	return is_held_by_file() || origin_exists(HELD_ORIGIN);
}

/* Ends that, in the current transaction. */
void
ttl_restore_resume(void)
{
	const char *resumed;

	LockRelationOid(ReplicationOriginRelationId, ShareRowExclusiveLock);
	resumed = resumed_origin();
	replorigin_drop_by_name(HELD_ORIGIN, true, false);
	if (resumed != NULL && !origin_exists(resumed))
		(void) replorigin_create(resumed);
}
