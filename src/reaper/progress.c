/*-------------------------------------------------------------------------
 *
 * progress.c
 *	  Progress of CALL ttl.reap.
 *
 * Progress is reported as by PostgreSQL's own commands, in the backend's status entry, with a
 * number that is not in ProgressCommandType, so that none of the pg_stat_progress_
 * views shows it.  The end of a subtransaction by an error clears it, and a command that a trigger
 * executes may overwrite it, so each report writes all of it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "compat.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "reaper/reaper_internal.h"
#include "utils/acl.h"
#include "utils/backend_progress.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(ttl_stat_progress_reap);

/* "ttl" */
#define PROGRESS_COMMAND	((ProgressCommandType) 0x74746C)

/* Parameters of the progress report */
typedef enum ProgressParameter
{
	PROGRESS_CONTAINERS,
	PROGRESS_CONTAINERS_DONE,
	PROGRESS_BATCHES,
	PROGRESS_ROWS,
	PROGRESS_NPARAMETERS
} ProgressParameter;

#define STAT_PROGRESS_COLUMNS	7

/* The report of this process */
static bool is_reported = false;
static Oid	progress_container;
static int64 progress[PROGRESS_NPARAMETERS];

bool
ttl_progress_is_reported(void)
{
	return is_reported;
}

static void
report_progress(void)
{
	static const int parameters[PROGRESS_NPARAMETERS] = {0, 1, 2, 3};

	if (!is_reported)
		return;
	pgstat_progress_start_command(PROGRESS_COMMAND, progress_container);
	pgstat_progress_update_multi_param(PROGRESS_NPARAMETERS, parameters, progress);
}

void
ttl_progress_batch(int64 rows)
{
	progress[PROGRESS_BATCHES]++;
	progress[PROGRESS_ROWS] += rows;
	report_progress();
}

void
ttl_progress_begin(int containers)
{
	memset(progress, 0, sizeof(progress));
	progress[PROGRESS_CONTAINERS] = containers;
	progress_container = InvalidOid;
	is_reported = true;
	report_progress();
}

void
ttl_progress_container(Oid container, int containers_done)
{
	progress_container = container;
	progress[PROGRESS_CONTAINERS_DONE] = containers_done;
	report_progress();
}

void
ttl_progress_end(void)
{
	is_reported = false;
	pgstat_progress_end_command();
}

/*
 * ttl.stat_progress_reap(): one row for each running CALL ttl.reap.  Of other roles' only
 * the process and its database, as in pg_stat_progress_*.
 */
Datum
ttl_stat_progress_reap(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int			n = pgstat_fetch_stat_numbackends();

	InitMaterializedSRF(fcinfo, 0);

	for (int i = 1; i <= n; i++)
	{
		const PgBackendStatus *backend = &TtlBackendStatus(i)->backendStatus;
		const int64 *parameters = backend->st_progress_param;
		char	   *database;
		Datum		values[STAT_PROGRESS_COLUMNS] = {0};
		bool		nulls[STAT_PROGRESS_COLUMNS] = {0};

		if (backend->st_progress_command != PROGRESS_COMMAND)
			continue;
		database = get_database_name(backend->st_databaseid);
		if (database == NULL)
			continue;

		values[0] = Int32GetDatum(backend->st_procpid);
		values[1] = DirectFunctionCall1(namein, CStringGetDatum(database));
		if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
			has_privs_of_role(GetUserId(), backend->st_userid))
		{
			values[2] = ObjectIdGetDatum(backend->st_progress_command_target);
			nulls[2] = !OidIsValid(backend->st_progress_command_target) ||
				backend->st_databaseid != MyDatabaseId;
			values[3] = Int32GetDatum(parameters[PROGRESS_CONTAINERS]);
			values[4] = Int32GetDatum(parameters[PROGRESS_CONTAINERS_DONE]);
			values[5] = Int64GetDatum(parameters[PROGRESS_BATCHES]);
			values[6] = Int64GetDatum(parameters[PROGRESS_ROWS]);
		}
		else
			memset(nulls + 2, true, STAT_PROGRESS_COLUMNS - 2);

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}

	return (Datum) 0;
}
