/*-------------------------------------------------------------------------
 *
 * nap.c
 *	  Sleeps of a worker: until something is due, and between transactions.
 *
 * Whatever a worker sleeps for, it exits when it is told to, takes the invalidations of others,
 * and reads postgresql.conf anew.  It holds no lock meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "reaper/reaper_internal.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/sinval.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* Reads postgresql.conf anew if it has changed. */
void
ttl_nap_reload(void)
{
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/*
 * Takes the invalidations that others have sent if this process lags behind, as an idle backend
 * does.  Otherwise the queue overflows, and all that this process has cached of catalogs is lost.
 */
static void
catch_up(void)
{
	MemoryContext context = CurrentMemoryContext;

	if (!catchupInterruptPending)
		return;
	ProcessCatchupInterrupt();
	MemoryContextSwitchTo(context); /* it may have run a transaction */
}

/* Waits for the latch. */
void
ttl_nap_until(TimestampTz until)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until),
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);

	/* SIGTERM is an error only while something is executed */
	if (ProcDiePending)
		proc_exit(0);
	CHECK_FOR_INTERRUPTS();
	catch_up();
	ttl_nap_reload();
}
