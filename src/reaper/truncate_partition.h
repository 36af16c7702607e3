/*-------------------------------------------------------------------------
 *
 * truncate_partition.h
 *	  Empties a partition whose rows are all expired.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_TRUNCATE_PARTITION_H
#define TTL_TRUNCATE_PARTITION_H

#include "datatype/timestamp.h"
#include "storage/lock.h"
#include "utils/relcache.h"

#include "container/container.h"

/* What is remembered about a partition; all zeros in the beginning. */
typedef struct TtlTruncate
{
	TimestampTz asked_at;		/* 0 = not yet */
	TransactionId next_xid;		/* at that time */
	uint64		generation;		/* of the container's policy at that time */
	VirtualTransactionId *open; /* transactions open then, and maybe still */
	int			nopen;
	TimestampTz next_at;		/* do not try before */
} TtlTruncate;

/* What an attempt may use. */
typedef struct TtlTruncateLimits
{
	int64		max_rows;
	int64		max_pages;
	TimestampTz until;			/* DT_NOEND = as long as it takes */
} TtlTruncateLimits;

/*
 * Is it worth an attempt now?  Cheap.  The relation is open and locked as for
 * DELETE, the policy lock is held; what has to be remembered is allocated in
 * the context.
 */
extern bool ttl_truncate_partition_ready(TtlTruncate *whole, Relation rel,
							const TtlContainer *container,
							MemoryContext context);

/*
 * Empties the partition if nobody can tell the difference from deletion, and
 * returns how many rows it had; else returns -1, and has done nothing.  A
 * snapshot is active.  The table is locked as before, but must not be open.
 */
extern int64 ttl_truncate_partition(TtlTruncate *whole,
							 const TtlContainer *container,
							 const TtlTruncateLimits *limits);

extern void ttl_truncate_partition_forget(TtlTruncate *whole);

#endif							/* TTL_TRUNCATE_PARTITION_H */
