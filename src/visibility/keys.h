/*-------------------------------------------------------------------------
 *
 * keys.h
 *	  The expired rows that hold the keys of a new row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_KEYS_H
#define TTL_KEYS_H

#include "container/container.h"
#include "nodes/execnodes.h"
#include "tids.h"
#include "utils/relcache.h"

/* The unique and exclusion indexes of a relation, for the rows of a statement */
typedef struct TtlKeys TtlKeys;

/* So often a look-up is done at most. */
#define TTL_KEYS_LOOK_UPS_MAX	10

extern TtlKeys *ttl_keys_prepare(Relation rel, EState *running, const ResultRelInfo *target);
extern TupleTableSlot *ttl_keys_make_slot(TtlKeys *keys);
extern void ttl_keys_find_expired(TtlKeys *keys, const TtlContainer *container, TimestampTz now,
								  TupleTableSlot *slot, const ItemPointerData *self,
								  TtlTids *found);
extern bool ttl_keys_left_row_out(TtlKeys *keys, const TtlContainer *container, TimestampTz now,
								  TupleTableSlot *slot, CommandId command);

#endif							/* TTL_KEYS_H */
