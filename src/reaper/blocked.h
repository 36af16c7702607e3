/*-------------------------------------------------------------------------
 *
 * blocked.h
 *	  What stands in the way of deletion, known to one worker after the other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_BLOCKED_H
#define TTL_BLOCKED_H

#include "datatype/timestamp.h"
#include "storage/itemptr.h"

/* A row that could not be deleted; without a valid place: a table in trouble. */
typedef struct TtlBlocked
{
	Oid			dboid;
	Oid			relid;
	ItemPointerData tid;
	int			failure;		/* what leaf.c wants to know of it */
	TimestampTz retry_at;
	TimestampTz wait;			/* how long it was waited for that */
} TtlBlocked;

/* Of this database: remembers, or brings up to date; as long as there is room. */
extern void ttl_blocked_put(Oid relid, const ItemPointerData *tid, int failure,
							TimestampTz retry_at, TimestampTz wait);

/* Of this database; tid NULL = the table's trouble, which has no place. */
extern void ttl_blocked_remove(Oid relid, const ItemPointerData *tid);

/* All of this database, palloc'd. */
extern TtlBlocked *ttl_blocked_get(int *n);

extern void ttl_blocked_forget_database(Oid dboid);

extern void ttl_blocked_init(void);

#endif							/* TTL_BLOCKED_H */
