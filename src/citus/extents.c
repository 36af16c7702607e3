/*-------------------------------------------------------------------------
 *
 * extents.c
 *	  The extent of what Citus does to whole tables.
 *
 * An extent lasts as long as a call of one of Citus's functions, or as an outermost command
 * (calls.c).  A query or command on the level of executions where the innermost extent has begun
 * is Citus's own unless another function runs in it: of an event trigger, a CHECK, an index
 * expression.  So within an extent all such functions are counted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "citus/citus.h"
#include "citus/citus_internal.h"
#include "commands/extension.h"
#include "execution.h"

static TtlExtent *innermost = NULL;

/* That of the outermost command, in which there may be others */
static TtlExtent command_extent;

/* Within it Citus's own queries run at the present depth of executions. */
void
ttl_extent_begin(TtlExtent *extent, bool converts)
{
	extent->outer = innermost;
	extent->converts = converts;
	extent->depth = ttl_execution_depth();
	extent->others = 0;
	innermost = extent;
}

/* The one around it is the innermost again. */
void
ttl_extent_end(TtlExtent *extent)
{
	innermost = extent->outer;
}

/* Whether a command makes tables of others is not known before it has run, so it counts as one that does. */
void
ttl_extent_begin_command(void)
{
	ttl_extent_begin(&command_extent, true);
}

/* An error may have left those open that had begun in it. */
void
ttl_extent_end_command(void)
{
	innermost = NULL;
}

/* Deeper queries are those of functions, or of triggers. */
bool
ttl_extent_is_here(void)
{
	return innermost != NULL && innermost->depth == ttl_execution_depth();
}

/* In the innermost extent alone: what is outside of it goes on when it has ended. */
void
ttl_extent_count(int started)
{
	if (innermost != NULL)
		innermost->others += started;
}

/* The script of an extension is its author's, though it may be run in the midst of a command. */
bool
ttl_citus_runs_own(void)
{
	return ttl_extent_is_here() && innermost->others == 0 && !creating_extension;
}

/* In others' functions, too, that run in it. */
bool
ttl_citus_in_extent(void)
{
	return innermost != NULL;
}

/* False in an outermost command, whose queries are its user's. */
bool
ttl_citus_in_call(void)
{
	return innermost != NULL && innermost != &command_extent;
}

/* False while Citus copies a shard to another node. */
bool
ttl_citus_replaces_table(void)
{
	return ttl_citus_runs_own() && innermost->converts;
}
