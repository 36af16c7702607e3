/*-------------------------------------------------------------------------
 *
 * process.c
 *	  What the processes of ttl's have in common: launcher, worker, and that of a standby.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "reaper/reaper_internal.h"
#include "ttl.h"

/* Seconds after which the postmaster restarts a launcher, or the process of a standby, that has failed */
#define RESTART_TIME		5

/* Fills in that it comes again after a failure, and needs no database. */
void
ttl_process_describe(BackgroundWorker *process, const char *type, const char *function)
{
	memset(process, 0, sizeof(BackgroundWorker));
	process->bgw_flags = BGWORKER_SHMEM_ACCESS;
	process->bgw_restart_time = RESTART_TIME;
	snprintf(process->bgw_library_name, BGW_MAXLEN, "%s", TTL_EXTENSION);
	snprintf(process->bgw_function_name, BGW_MAXLEN, "%s", function);
	snprintf(process->bgw_name, BGW_MAXLEN, "%s", type);
	snprintf(process->bgw_type, BGW_MAXLEN, "%s", type);
}
