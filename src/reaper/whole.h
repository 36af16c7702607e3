/*-------------------------------------------------------------------------
 *
 * whole.h
 *	  Empties a partition whose rows are all expired.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_WHOLE_H
#define TTL_WHOLE_H

#include "datatype/timestamp.h"
#include "storage/lock.h"
#include "utils/relcache.h"

#include "container/container.h"

/* What is remembered about a partition; all zeros in the beginning. */
typedef struct TtlWhole
{
	TimestampTz asked_at;		/* 0 = not yet */
	TransactionId next_xid;		/* at that time */
	uint64		generation;		/* of the container's policy at that time */
	VirtualTransactionId *open; /* transactions open then, and maybe still */
	int			nopen;
	TimestampTz next_at;		/* do not try before */
} TtlWhole;

/* What an attempt may use. */
typedef struct TtlWholeLimits
{
	int64		max_rows;
	int64		max_pages;
	TimestampTz until;			/* DT_NOEND = as long as it takes */
} TtlWholeLimits;

/*
 * Is it worth an attempt now?  Cheap.  The relation is open and locked as for
 * DELETE, the policy lock is held; what has to be remembered is allocated in
 * the context.
 */
extern bool ttl_whole_ready(TtlWhole *whole, Relation rel,
							const TtlContainer *container,
							MemoryContext context);

/*
 * Empties the partition if nobody can tell the difference from deletion, and
 * returns how many rows it had; else returns -1, and has done nothing.  A
 * snapshot is active.  The table is locked as before, but must not be open.
 */
extern int64 ttl_whole_empty(TtlWhole *whole,
							 const TtlContainer *container,
							 const TtlWholeLimits *limits);

extern void ttl_whole_forget(TtlWhole *whole);

#endif							/* TTL_WHOLE_H */
