/*-------------------------------------------------------------------------
 *
 * process.c
 *	  What all background processes of ttl's have alike.
 *
 * They come again after a failure, and see shared memory; which of them are connected to a database is their own
 * business.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "postmaster/bgworker.h"
#include "reaper/reaper_internal.h"
#include "ttl.h"

/* Seconds after which the postmaster restarts a launcher, or the process of a standby, that has failed */
#define RESTART_TIME		5

/* Fills in what all of them have alike. */
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
