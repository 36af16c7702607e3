/*-------------------------------------------------------------------------
 *
 * ttl.c
 *	  Start of the library: the ordered list of what is to be initialized.
 *
 * Settings come first, since the size of shared memory depends on them.  Of two modules that
 * observe the same hook the earlier one is called first, so rooms follow from the bottom of
 * the house (CONTRIBUTING.md) to the top.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "analysis.h"
#include "citus/citus.h"
#include "compat.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "cost.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "invalidation.h"
#include "reaper/reaper.h"
#include "reference_time.h"
#include "ttl.h"
#include "utility.h"
#include "visibility/visibility.h"

TTL_MODULE_MAGIC(TTL_EXTENSION, TTL_VERSION);

PGDLLEXPORT void _PG_init(void);

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("library \"%s\" must be loaded at server start", TTL_EXTENSION),
				 errhint("Add \"%s\" to \"%s\" in postgresql.conf and restart the server.",
						 TTL_EXTENSION, "shared_preload_libraries")));

	ttl_guc_init();
	ttl_counters_init();
	ttl_cost_init();
	ttl_reaper_init();
	ttl_analysis_init();
	ttl_reference_time_init();
	ttl_execution_init();
	ttl_utility_init();
	ttl_invalidation_init();
	ttl_container_cache_init();
	ttl_validation_init();
	ttl_citus_init();
	ttl_propagation_init();
	ttl_ddl_init();
	ttl_calls_init();
	ttl_marks_init();
	ttl_live_init();
	ttl_deletion_init();
	ttl_visibility_init();
}
