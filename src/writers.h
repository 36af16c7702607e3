/*-------------------------------------------------------------------------
 *
 * writers.h
 *	  When the rows expire that are being written, and aren't in all indexes yet.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_WRITERS_H
#define TTL_WRITERS_H

#include "access/xact.h"
#include "datatype/timestamp.h"

/* What decides when a row expires, under whatever policy: one of the two, the other is DT_NOEND. */
typedef struct TtlRowTimes
{
	TimestampTz ts;				/* _ts of a row without a TTL of its own */
	TimestampTz expiry;			/* expiry of one with */
} TtlRowTimes;

/* True if a row is no later than one that has just expired by default, or by its own TTL. */
static inline bool
ttl_row_times_reach(TtlRowTimes last, TtlRowTimes row)
{
	return row.ts <= last.ts || row.expiry <= last.expiry;
}

/*
 * A statement that writes rows of a container, for as long as its memory context lives, or until
 * the transaction ends.  All rows that it may write without telling are no earlier than 'untold'.
 */
typedef struct TtlWriter TtlWriter;

extern TtlWriter *ttl_writers_join(Oid container, MemoryContext statement, TtlRowTimes untold);
extern void ttl_writers_write(TtlWriter *writer, TtlRowTimes row);
extern bool ttl_writers_are_there(const TtlWriter *writer, TtlRowTimes last, uint64 *changes);
extern uint64 ttl_writers_changes(const TtlWriter *writer);
extern void ttl_writers_transaction(XactEvent event);
extern Size ttl_writers_shmem_size(void);
extern void ttl_writers_shmem_init(void);

#endif							/* TTL_WRITERS_H */
