/*-------------------------------------------------------------------------
 *
 * origin.c
 *	  Tags what is written with the replication origin "ttl".
 *
 * So that subscriptions with origin = none, and consumers of logical decoding
 * that look at local changes only, can leave out deletions by the reaper (they
 * may have a TTL of their own).
 *
 * PostgreSQL allows an origin to one process at a time, so it is taken for the
 * time of a batch's DELETE alone.  It is given back before the transaction
 * commits: a tagged commit record would have all standbys keep track of the
 * origin's progress, which is meaningless here, and needs a free slot there.
 * Taking it for the session is necessary nevertheless: a subtransaction of a
 * trigger that rolls back in the meantime looks for the progress, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "replication/origin.h"

#include "compat.h"
#include "reaper/reaper_internal.h"
#include "ttl.h"

static bool begun = false;

void
ttl_origin_begin(void)
{
	ReplOriginId node;

	/* whoever has set up an origin of his own, keeps it */
	if (TTL_ORIGIN_OF_XACT != InvalidReplOriginId)
		return;

	node = replorigin_by_name(TTL_EXTENSION, true);
	if (node == InvalidReplOriginId)
		node = replorigin_create(TTL_EXTENSION);
	TtlOriginSessionSetup(node);
	TTL_ORIGIN_OF_XACT = node;
	begun = true;
}

void
ttl_origin_end(void)
{
	if (!begun)
		return;
	begun = false;
	TTL_ORIGIN_OF_XACT = InvalidReplOriginId;
	replorigin_session_reset();
}
