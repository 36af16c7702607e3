/*-------------------------------------------------------------------------
 *
 * brin_scan.h
 *	  Finds the rows that are to be deleted where indexes tell pages alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_BRIN_SCAN_H
#define TTL_BRIN_SCAN_H

#include "reaper/step.h"

/* Is there nothing to do for it?  *due is when there will be, at the latest. */
extern bool ttl_brin_scan_rests(TtlStep *step, TimestampTz *due);

/*
 * Collects places of rows to delete, from where it has stopped last.  If there are
 * none, summarizes pages anew that it has been to.
 */
extern void ttl_brin_scan_run(TtlStep *step);

#endif							/* TTL_BRIN_SCAN_H */
