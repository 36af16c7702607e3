/*-------------------------------------------------------------------------
 *
 * expiry_scan.h
 *	  Finds the rows that are to be deleted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRY_SCAN_H
#define TTL_EXPIRY_SCAN_H

#include "reaper/step.h"

/* Time between walks from the mark. */
#define TTL_MARK_WAIT			(1 * USECS_PER_SEC)

/*
 * Collects the places of rows to delete, starting at the mark or at the left
 * edge.
 */
extern void ttl_expiry_scan_run(TtlStep *step);

/*
 * Is anything left of what was collected?  If not, the mark moves forward, and the pass
 * ends if it has come to its end.
 */
extern bool ttl_expiry_scan_has_places(TtlMemory *memory, TtlReapRel *leaf);

/*
 * Do walks start at a mark, rather than at the left edge?  Behind a mark may
 * lie more dead entries than one wants to read again.
 */
extern bool ttl_expiry_scan_is_marked(const TtlReapRel *leaf);

/*
 * Is the earliest row of the leaf not to be deleted yet?  *due is when it will
 * be, or when to look again.
 */
extern bool ttl_expiry_scan_nothing_due(TtlStep *step, TimestampTz *due);

#endif							/* TTL_EXPIRY_SCAN_H */
