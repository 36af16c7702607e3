/*-------------------------------------------------------------------------
 *
 * guc.h
 *	  The settings of ttl.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_GUC_H
#define TTL_GUC_H

#include "datatype/timestamp.h"
#include "fmgr.h"

extern bool ttl_guc_reaper;
extern int	ttl_guc_naptime;	/* ms */
extern int	ttl_guc_cycle_cost_limit;	/* cost units per cycle */
extern int	ttl_guc_throughput; /* cost units per second, 0 = not provisioned */
extern int	ttl_guc_cycle_cost_floor;	/* cost units per cycle */
extern int	ttl_guc_replica_lag_limit;	/* MB, 0 = no limit */
extern int	ttl_guc_lag_warning;	/* s, 0 = never */
extern int	ttl_guc_workers;
extern int	ttl_guc_grace;		/* s */
extern int	ttl_guc_batch_timeout;	/* ms, 0 = no limit */
extern int	ttl_guc_log_min_duration;	/* ms, -1 = never */
extern bool ttl_guc_touch;
extern bool ttl_guc_show_expired;

/* Whether scans look up where expired rows are (scan_filter.c).  A switch for tests. */
typedef enum TtlIndexProbe
{
	TTL_INDEX_PROBE_AUTO,
	TTL_INDEX_PROBE_NEVER,
	TTL_INDEX_PROBE_ALWAYS
} TtlIndexProbe;

extern int	ttl_guc_debug_index_probe;
extern bool ttl_guc_now(TimestampTz *now);
extern bool ttl_guc_input(PGFunction input, const char *text, Datum *value);
extern void ttl_guc_init(void);

#endif							/* TTL_GUC_H */
