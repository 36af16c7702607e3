/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  How far a CALL ttl.reap has come: what is behind the view
 *	  ttl.stat_progress_reap.
 *
 * PostgreSQL's own progress reporting knows a fixed set of commands, so this
 * is an array in shared memory, an entry for each backend, written by that
 * alone.  An entry whose process has gone without a word isn't shown.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "compat.h"
#include "reaper/reaper_internal.h"
#include "shared.h"

#define STAT_PROGRESS_COLUMNS	9

typedef struct Progress
{
	slock_t		mutex;			/* protects all else */
	int			pid;			/* 0 = nothing goes on */
	Oid			dboid;
	Oid			userid;
	Oid			container;
	TtlPhase	phase;
	int			containers;
	int			containers_done;
	int64		batches;
	int64		rows;
	TimestampTz started_at;
} Progress;

static Progress *entries = NULL;
static Progress *mine = NULL;	/* while something goes on */

PG_FUNCTION_INFO_V1(ttl_stat_progress_reap);

static Size
shared_size(void)
{
	return mul_size(MaxBackends, sizeof(Progress));
}

static void
shared_startup(void *place, bool found, int tranche_id)
{
	entries = (Progress *) place;
	if (found)
		return;
	memset(entries, 0, shared_size());
	for (int i = 0; i < MaxBackends; i++)
		SpinLockInit(&entries[i].mutex);
}

void
ttl_progress_begin(int containers)
{
	TimestampTz now = GetCurrentTimestamp();
	Oid			userid = GetUserId();

	if (TtlMyProcNumber >= MaxBackends)
		return;

	mine = &entries[TtlMyProcNumber];
	SpinLockAcquire(&mine->mutex);
	mine->pid = MyProcPid;
	mine->dboid = MyDatabaseId;
	mine->userid = userid;
	mine->container = InvalidOid;
	mine->phase = TTL_PHASE_LOOKING;
	mine->containers = containers;
	mine->containers_done = 0;
	mine->batches = 0;
	mine->rows = 0;
	mine->started_at = now;
	SpinLockRelease(&mine->mutex);
}

void
ttl_progress_container(Oid container, int done)
{
	if (mine == NULL)
		return;
	SpinLockAcquire(&mine->mutex);
	mine->container = container;
	mine->containers_done = done;
	mine->phase = TTL_PHASE_LOOKING;
	SpinLockRelease(&mine->mutex);
}

void
ttl_progress_phase(TtlPhase phase)
{
	if (mine == NULL)
		return;
	SpinLockAcquire(&mine->mutex);
	mine->phase = phase;
	SpinLockRelease(&mine->mutex);
}

void
ttl_progress_batch(int64 rows)
{
	if (mine == NULL)
		return;
	SpinLockAcquire(&mine->mutex);
	mine->batches++;
	mine->rows += rows;
	SpinLockRelease(&mine->mutex);
}

void
ttl_progress_end(void)
{
	if (mine == NULL)
		return;
	SpinLockAcquire(&mine->mutex);
	mine->pid = 0;
	SpinLockRelease(&mine->mutex);
	mine = NULL;
}

static const char *
phase_name(TtlPhase phase)
{
	switch (phase)
	{
		case TTL_PHASE_LOOKING:
			return "looking for expired rows";
		case TTL_PHASE_DELETING:
			return "deleting expired rows";
		case TTL_PHASE_EMPTYING:
			return "emptying a partition";
	}
	return NULL;
}

/*
 * ttl.stat_progress_reap(): one row for each CALL ttl.reap that goes on.  Of
 * other users' only where, as in pg_stat_progress_*.
 */
Datum
ttl_stat_progress_reap(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);

	for (int i = 0; i < MaxBackends; i++)
	{
		Progress	copy;
		char	   *database;
		Datum		values[STAT_PROGRESS_COLUMNS] = {0};
		bool		nulls[STAT_PROGRESS_COLUMNS] = {0};

		SpinLockAcquire(&entries[i].mutex);
		copy = entries[i];
		SpinLockRelease(&entries[i].mutex);

		if (copy.pid == 0 || BackendPidGetProc(copy.pid) == NULL)
			continue;
		database = get_database_name(copy.dboid);
		if (database == NULL)
			continue;

		values[0] = Int32GetDatum(copy.pid);
		values[1] = DirectFunctionCall1(namein, CStringGetDatum(database));
		if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
			has_privs_of_role(GetUserId(), copy.userid))
		{
			values[2] = ObjectIdGetDatum(copy.container);
			nulls[2] = !OidIsValid(copy.container) ||
				copy.dboid != MyDatabaseId;
			values[3] = CStringGetTextDatum(phase_name(copy.phase));
			values[4] = Int32GetDatum(copy.containers);
			values[5] = Int32GetDatum(copy.containers_done);
			values[6] = Int64GetDatum(copy.batches);
			values[7] = Int64GetDatum(copy.rows);
			values[8] = TimestampTzGetDatum(copy.started_at);
		}
		else
			memset(nulls + 2, true, STAT_PROGRESS_COLUMNS - 2);

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}

	return (Datum) 0;
}

void
ttl_progress_init(void)
{
	ttl_shared_reserve(shared_size, shared_startup);
}
