/*-------------------------------------------------------------------------
 *
 * hold.c
 *	  Pauses deletion by the worker in a database.
 *
 * A pause is a row of ttl.paused, so it is transactional and survives restarts and
 * crashes.  pg_dump does not dump the table, which is about this database and not about
 * its data.
 *
 * The worker checks for a pause before it begins a cycle and in each batch.  The value
 * is cached; ttl.pause() and ttl.resume() invalidate the relation cache entry of the
 * table.
 *
 * ---
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

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "catalog/indexing.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "storage/fd.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "container/container.h"
#include "invalidation.h"
#include "reaper/reaper_internal.h"
#include "ttl.h"

#define PAUSED_TABLE	"paused"
#define Anum_paused_until	1

static bool is_cached = false;
static TimestampTz paused_until;

PG_FUNCTION_INFO_V1(ttl_pause);
PG_FUNCTION_INFO_V1(ttl_resume);

/*
 * Reads the end of the pause, DT_NOBEGIN if there is none, and deletes the row if
 * told so.
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

bool
ttl_pause_lasts(TimestampTz *until)
{
	if (!is_cached)
	{
		const TtlObjects *objects = ttl_container_objects();
		Oid			relid = objects == NULL ? InvalidOid :
		get_relname_relid(PAUSED_TABLE, objects->schema);
		Relation	rel;

		is_cached = true;		/* unless an invalidation arrives from here on */
		rel = OidIsValid(relid) ? try_table_open(relid, AccessShareLock) : NULL;
		paused_until = DT_NOBEGIN;
		if (rel != NULL)
		{
			paused_until = read_pause(rel, false);
			table_close(rel, AccessShareLock);
		}
	}
	*until = paused_until;
	return paused_until > GetCurrentTimestamp();
}

static void
relation_changed(Datum arg, Oid relid)
{
	is_cached = false;
}

/*
 * Errors unless the current user may pause and resume deletion.  Opens ttl.paused for
 * one change at a time.
 */
static Relation
open_to_change(const char *function)
{
	Oid			relid;

	ttl_container_may_change(function);
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
 * time.  Errors: 42501.
 */
Datum
ttl_resume(PG_FUNCTION_ARGS)
{
	Relation	rel = open_to_change("ttl.resume()");
	bool		was_paused = read_pause(rel, true) > GetCurrentTimestamp();

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
	if (!ttl_recovery_resume() && !was_paused)
		ereport(NOTICE,
				(errmsg("deletion of expired rows is not held")));
	PG_RETURN_VOID();
}

void
ttl_pause_init(void)
{
	ttl_invalidation_observe(relation_changed);
}

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
