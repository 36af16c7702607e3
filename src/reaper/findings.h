/*-------------------------------------------------------------------------
 *
 * findings.h
 *	  What deletion has found in the tables of a container, for the statistics and for the next worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_FINDINGS_H
#define TTL_FINDINGS_H

#include "nodes/pg_list.h"
#include "reaper/reap_table.h"

extern int64 ttl_findings_report(const TtlReapMode *mode, Oid container, int32 default_ttl, const List *tables,
								 bool has_more);

#endif							/* TTL_FINDINGS_H */
