/*-------------------------------------------------------------------------
 *
 * recovery.c
 *	  Holds deletion after a recovery to a point in time.
 *
 * Who recovers a cluster to a moment in the past wants to see what was there
 * then.  Much of it has expired since, so the reaper would delete it as soon as the
 * server is up.  Therefore no worker deletes anything in such a cluster until a
 * superuser has called ttl.resume().
 *
 * PostgreSQL itself keeps how a recovery has ended: in the history file of the
 * timeline that began then, for good, together with the ends of the timelines
 * before it.  There is a reason for each; it is "no recovery target specified"
 * if a standby was promoted or an archive was replayed to its end, and
 * anything else if a target was set.  The last of those is the one that
 * counts.  So nothing has to be remembered that a
 * crash could lose, an ordinary promotion of such a cluster's standby later
 * makes no difference, and neither does a base backup.  A copy without the file
 * may have been made of anything, so it is held, too.
 *
 * That somebody has said the word for it is a row in pg_replication_origin, whose
 * name tells where the timeline ended.  There is no shared catalog for such a
 * thing; this one takes names from extensions, and nothing else comes of
 * them.  Like everything in a catalog it is transactional, survives crashes, and
 * reaches standbys, so that the one that is promoted knows; and a backup that
 * was taken before, recovered to a point in time again, does not.
 *
 * pg_upgrade begins with a new timeline: then nothing is held any more.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "storage/fd.h"

#include "compat.h"
#include "reaper/reaper_internal.h"
#include "ttl.h"

/* What the server writes if no target was set. */
#define NO_TARGET	"no recovery target specified"

/* Has this transaction said that deletion may go on? */
static bool resumed = false;

/*
 * Finds the last recovery to a point in time in the history of the timeline.
 * Returns false if there was none.
 */
static bool
find_recovery(TtlRecovery *recovery)
{
	TimeLineID	timeline = GetWALInsertionTimeLine();
	char		path[MAXPGPATH];
	char		line[MAXPGPATH];
	FILE	   *file;
	bool		found = false;

	if (timeline == 1)
		return false;
	TLHistoryFilePath(path, timeline);
	file = AllocateFile(path, "r");
	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not open file \"%s\": %m", path)));
		snprintf(recovery->origin, sizeof(recovery->origin),
				 TTL_EXTENSION "_resumed_%u", timeline);
		snprintf(recovery->target, sizeof(recovery->target),
				 "there is no file \"%s\" to tell how", path);
		return true;
	}
	while (fgets(line, sizeof(line), file) != NULL)
	{
		uint32		parent;
		uint32		high;
		uint32		low;
		int			length = 0;

		/* the parent timeline, where it was left, and why */
		if (sscanf(line, "%u\t%X/%X\t%n", &parent, &high, &low, &length) < 3 ||
			length == 0 ||
			strncmp(line + length, NO_TARGET, strlen(NO_TARGET)) == 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(recovery->origin, sizeof(recovery->origin),
				 TTL_EXTENSION "_resumed_%u_%X_%X", parent, high, low);
		strlcpy(recovery->target, line + length, sizeof(recovery->target));
		found = true;
	}
	if (ferror(file))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", path)));
	FreeFile(file);
	return found;
}

bool
ttl_recovery_holds(TtlRecovery *recovery)
{
	return find_recovery(recovery) &&
		replorigin_by_name(recovery->origin, true) == InvalidReplOriginId;
}

bool
ttl_recovery_resume(void)
{
	TtlRecovery recovery;

	if (!ttl_recovery_holds(&recovery))
		return false;
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to resume deletion of expired rows after a recovery to a point in time")));
	(void) replorigin_create(recovery.origin);
	resumed = true;
	ereport(LOG,
			(errmsg("role \"%s\" has resumed deletion of expired rows",
					GetUserNameFromId(GetUserId(), false)),
			 errdetail("The server was recovered to a point in time: %s.", recovery.target)));
	return true;
}

static void
transaction_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && resumed)
		ttl_shmem_request_all();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT ||
		event == XACT_EVENT_PREPARE)
		resumed = false;
}

void
ttl_recovery_init(void)
{
	RegisterXactCallback(transaction_event, NULL);
}
