/*-------------------------------------------------------------------------
 *
 * reap_rel.h
 *	  Deletion of the expired rows of a table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAP_REL_H
#define TTL_REAP_REL_H

#include "datatype/timestamp.h"
#include "reaper/reap_table.h"

/* What one turn of a table may use, and what came of it */
typedef struct TtlTurn
{
	int64		max_cost;
	int64		max_rows;
	TimestampTz until;			/* DT_NOEND = no limit */
	int64		max_batch_cost; /* as far as it can be estimated */

	/*
	 * Called before each transaction but the first, without locks, to nap. If
	 * it returns false the turn ends.  NULL = none.
	 */
	bool		(*pace) (const struct TtlTurn *turn);

	TtlReapResult end;
	int64		cost;
	int64		rows;
	TimestampTz again_at;		/* unless there is more: when there will be
								 * rows to delete, or another try is due;
								 * DT_NOEND = not known */
} TtlTurn;

extern TtlMemory *ttl_reap_rel_memory_create(MemoryContext parent, TtlReapMode mode);
extern void ttl_reap_rel_connect(const TtlMemory *memory);
extern void ttl_reap_rel_run(TtlMemory *memory, Oid container, TtlReapRel *reap_rel, TtlTurn *turn);

#endif							/* TTL_REAP_REL_H */
