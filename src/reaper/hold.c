/*-------------------------------------------------------------------------
 *
 * hold.c
 *	  Holds deletion by the worker: ttl.pause(), recovery to a point in time, and start of a base backup.
 *
 * Pause: a row of ttl.paused, so it is transactional and survives restarts and
 * crashes.  pg_dump does not dump the table, which is about this database and not about
 * its data.  The worker checks for it before a cycle and in each batch; the value is cached,
 * and ttl.pause() and ttl.resume() invalidate the table's relation cache entry.
 *
 * Start of a base backup: see restore.c.
 *
 * Recovery: a cluster is recovered to a moment in the past to see the data of that time.
 * Much of it has expired since, and would be deleted as soon as the server is up.  So
 * no worker of the cluster deletes anything until a superuser has called ttl.resume().
 *
 * The history file of a timeline has the ends of all timelines before it, with a
 * reason: "no recovery target specified" if a standby was promoted or an archive was
 * replayed to its end, anything else if there was a target.  The last of the latter counts.  So
 * there is no state of ours that a crash could lose, and neither a later promotion of
 * such a cluster's standby nor a base backup makes a difference.  Without the file
 * nothing is known about the origin of the data, so deletion is held as well.
 *
 * ttl.resume() adds a row to pg_replication_origin whose name has the end of the timeline.  There is no
 * shared catalog for such a thing; this one accepts names from extensions, and they have no other
 * effect.  It is transactional, survives crashes, and reaches standbys; and a backup
 * taken before, recovered to a point in time again, does not have it.
 *
 * pg_upgrade begins with a new timeline, which ends the hold.  A grace begins instead (last_seen.c), and a pause
 * goes along, as all tables do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "catalog/indexing.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "container/container.h"
#include "counters.h"
#include "fmgr.h"
#include "guc.h"
#include "miscadmin.h"
#include "reaper/reaper_internal.h"
#include "replication/origin.h"
#include "storage/fd.h"
#include "ttl.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#define PAUSED_TABLE	"paused"
#define Anum_paused_until	1

/* The reason that the server writes if there was no target */
#define NO_TARGET	"no recovery target specified"

/* A recovery to a point in time */
typedef struct Recovery
{
	char		target[128];	/* as in the history file: "before 2026-..." */
	char		origin[64];		/* replication origin that ends the hold */
} Recovery;

/* What holds deletion in the whole cluster */
typedef struct ClusterHold
{
	bool		is_recovered;	/* to a point in time */
	Recovery	recovery;
	bool		is_restored;	/* from a base backup */
} ClusterHold;

/* The end of the pause, and ttl_invalidations before it was read */
static TimestampTz paused_until;
static uint64 paused_as_of = 0;

PG_FUNCTION_INFO_V1(ttl_pause);
PG_FUNCTION_INFO_V1(ttl_resume);
PG_FUNCTION_INFO_V1(ttl_hold_reason);

/*
 * Reads the end of the pause, DT_NOBEGIN if there is none, and deletes the row if
 * 'delete'.
 */
static TimestampTz
read_pause(Relation rel, bool delete)
{
	TimestampTz until = DT_NOBEGIN;
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		isnull;

		until = DatumGetTimestampTz(heap_getattr(tuple, Anum_paused_until,
												 RelationGetDescr(rel), &isnull));
		if (delete)
			CatalogTupleDelete(rel, &tuple->t_self);
	}
	systable_endscan(scan);
	return until;
}

/*
 * True if deletion is paused in this database.  Needs a transaction; cheap unless
 * the pause has changed.
 */
bool
ttl_hold_is_paused(TimestampTz *until)
{
	uint64		count = ttl_invalidations;

	if (paused_as_of != count)
	{
		const TtlObjects *objects = ttl_container_objects();
		Oid			relid = objects == NULL ? InvalidOid :
		get_relname_relid(PAUSED_TABLE, objects->schema);
		Relation	rel;

		rel = OidIsValid(relid) ? try_table_open(relid, AccessShareLock) : NULL;
		paused_until = DT_NOBEGIN;
		if (rel != NULL)
		{
			paused_until = read_pause(rel, false);
			table_close(rel, AccessShareLock);
		}
		/* from before the look-up: what has changed meanwhile is read again */
		paused_as_of = count;
	}
	*until = paused_until;
	return paused_until > GetCurrentTimestamp();
}

/*
 * Finds the last recovery to a point in time in the history of the timeline, and the name
 * of the replication origin that ends the hold.  Returns false if there was none.
 */
static bool
find_recovery(Recovery *recovery)
{
	TimeLineID	timeline = GetWALInsertionTimeLine();
	char		path[MAXPGPATH];
	char		line[MAXPGPATH];
	FILE	   *file;
	bool		found = false;

	/* it has no history */
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

		/* the parent timeline, the end of it, and the reason */
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

/*
 * True if the cluster was recovered to a point in time, without a ttl.resume() since.
 */
static bool
is_recovered(Recovery *recovery)
{
	return find_recovery(recovery) &&
		replorigin_by_name(recovery->origin, true) == InvalidReplOriginId;
}

/* False if nothing does. */
static bool
find_cluster_hold(ClusterHold *hold)
{
	hold->is_recovered = is_recovered(&hold->recovery);
	hold->is_restored = ttl_restore_is_held();
	return hold->is_recovered || hold->is_restored;
}

/* Logs what holds deletion, and how it ends. */
static void
log_cluster_hold(const ClusterHold *hold)
{
	char	   *database = get_database_name(MyDatabaseId);

	ereport(WARNING,
			(hold->is_recovered ?
			 errmsg("expired rows in database \"%s\" are not deleted because the server was recovered to a point in time", database) :
			 errmsg("expired rows in database \"%s\" are not deleted because the server was started from a base backup", database),
			 hold->is_recovered ?
			 errdetail("Recovery ended: %s.", hold->recovery.target) :
			 errdetail("Many of them may have expired since the backup."),
			 errhint("Expired rows are hidden, as ever. Have a superuser call ttl.resume(), in any database, to have them deleted.")));
}

/*
 * True if the worker must not delete, until *until (DT_NOEND: until ttl.resume()).  A pause has been logged
 * by who began it; a hold of the cluster is here, unless an earlier worker has.
 */
bool
ttl_hold_find(TtlReaperState *state, TimestampTz *until)
{
	TtlDatabaseCounters counters;
	ClusterHold hold;
	bool		is_held = true;

	StartTransactionCommand();
	if (find_cluster_hold(&hold))
	{
		*state = hold.is_recovered ? TTL_REAPER_HELD_RECOVERED : TTL_REAPER_HELD_RESTORED;
		*until = DT_NOEND;
		if (!ttl_counters_get_database(MyDatabaseId, &counters) || counters.state != *state)
			log_cluster_hold(&hold);
	}
	else if (ttl_hold_is_paused(until))
		*state = TTL_REAPER_PAUSED;
	else
		is_held = false;
	CommitTransactionCommand();
	return is_held;
}

/*
 * ttl.hold_reason() -> text
 *
 * Why the worker deletes nothing in this database now, in few words; NULL if it does.
 */
Datum
ttl_hold_reason(PG_FUNCTION_ARGS)
{
	const char *reason = NULL;
	TimestampTz until;
	ClusterHold hold;

	if (!ttl_guc_reaper)
		reason = "ttl.reaper is off";
	else if (RecoveryInProgress())
		reason = "standby: deleted on the primary";
	else if (find_cluster_hold(&hold))
		reason = hold.is_recovered ? "held after recovery" : "held after restore";
	else if (!ttl_hold_is_paused(&until))
		reason = ttl_slots_why_no_worker();
	else if (TIMESTAMP_IS_NOEND(until))
		reason = "paused";
	else
		/* without seconds and time zone */
		reason = psprintf("paused until %.16s", timestamptz_to_str(until));
	if (reason == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(reason));
}

/*
 * Errors unless the current user may pause and resume deletion.  The lock on ttl.paused
 * serializes changes.
 */
static Relation
open_to_change(const char *function)
{
	Oid			relid;

	ttl_container_begin_change(function);
	if (!TtlOwnsDatabase(MyDatabaseId, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_DATABASE, get_database_name(MyDatabaseId));
	relid = get_relname_relid(PAUSED_TABLE, ttl_container_require_objects()->schema);
	return table_open(relid, ShareRowExclusiveLock);
}

/*
 * ttl.pause(until timestamptz)
 *
 * The worker deletes nothing in this database until then, or until ttl.resume() if
 * that is NULL.  Errors: 42501, 22023.
 */
Datum
ttl_pause(PG_FUNCTION_ARGS)
{
	TimestampTz until = PG_ARGISNULL(0) ? DT_NOEND : PG_GETARG_TIMESTAMPTZ(0);
	Relation	rel = open_to_change("ttl.pause()");
	Datum		values[] = {TimestampTzGetDatum(until)};
	bool		nulls[] = {false};

	if (until <= GetCurrentTimestamp())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("end of the pause must be in the future"),
				 errhint("To end a pause, use ttl.resume().")));
	(void) read_pause(rel, true);
	CatalogTupleInsert(rel, heap_form_tuple(RelationGetDescr(rel), values, nulls));
	CacheInvalidateRelcache(rel);
	table_close(rel, NoLock);
	ttl_request_at_commit();
	ereport(LOG,
			(errmsg("role \"%s\" has paused deletion of expired rows in database \"%s\"",
					GetUserNameFromId(GetUserId(), false), get_database_name(MyDatabaseId)),
			 TIMESTAMP_IS_NOEND(until) ? 0 :
			 errdetail("The pause ends at %s.", timestamptz_to_str(until))));
	PG_RETURN_VOID();
}

/*
 * ttl.resume()
 *
 * Ends the pause, and for a superuser also the hold after a recovery to a point in
 * time or the start of a base backup.  Errors: 42501 if only the latter is left.
 */
Datum
ttl_resume(PG_FUNCTION_ARGS)
{
	Relation	rel = open_to_change("ttl.resume()");
	bool		was_paused = read_pause(rel, true) > GetCurrentTimestamp();
	ClusterHold hold;

	CacheInvalidateRelcache(rel);
	table_close(rel, NoLock);
	if (was_paused)
	{
		ttl_request_at_commit();
		ereport(LOG,
				(errmsg("role \"%s\" has resumed deletion of expired rows in database \"%s\"",
						GetUserNameFromId(GetUserId(), false),
						get_database_name(MyDatabaseId))));
	}
	if (find_cluster_hold(&hold) && !superuser())
	{
		const char *message = hold.is_recovered ?
		gettext_noop("must be superuser to resume deletion of expired rows after a recovery to a point in time") :
		gettext_noop("must be superuser to resume deletion of expired rows after the start of a base backup");

		/* the end of his own pause is his business */
		ereport(was_paused ? WARNING : ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("%s", message)));
	}
	else if (hold.is_recovered || hold.is_restored)
	{
		if (hold.is_recovered)
			(void) replorigin_create(hold.recovery.origin);
		ttl_restore_resume();
		ttl_request_all_at_commit();
		ereport(LOG,
				(errmsg("role \"%s\" has resumed deletion of expired rows",
						GetUserNameFromId(GetUserId(), false)),
				 hold.is_recovered ?
				 errdetail("The server was recovered to a point in time: %s.", hold.recovery.target) :
				 errdetail("The server was started from a base backup.")));
	}
	else if (!was_paused)
		ereport(NOTICE,
				(errmsg("deletion of expired rows is not held")));
	PG_RETURN_VOID();
}
