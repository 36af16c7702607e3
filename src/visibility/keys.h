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
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "tids.h"
#include "utils/relcache.h"

/* A relation's unique and exclusion indexes, for the rows of one statement. */
typedef struct TtlKeys TtlKeys;

/*
 * Made in the current memory context, which must live as long as the statement;
 * NULL if the relation has no such index.
 */
extern TtlKeys *ttl_keys_prepare(Relation rel);

/*
 * Collects the rows that have expired by 'now' and conflict with the new row in the
 * slot.  'self' (may be NULL) is the TID of the row that is being updated.
 */
extern void ttl_keys_find_expired(TtlKeys *keys, const TtlContainer *container,
								  TimestampTz now, TupleTableSlot *slot,
								  const ItemPointerData *self, TtlTids *found);

/*
 * Has another transaction committed a row that had expired by 'now' and conflicts with
 * the one in the slot, whether that has been inserted or not?
 */
extern bool ttl_keys_are_held(TtlKeys *keys, const TtlContainer *container,
							  TimestampTz now, TupleTableSlot *slot);

/* The relation as a target of the execution, with its indexes open; NULL if it is none. */
extern ResultRelInfo *ttl_keys_target(EState *estate, Relation rel);

/* A slot for rows of the relation, empty. */
extern TupleTableSlot *ttl_keys_slot(TtlKeys *keys);

#endif							/* TTL_KEYS_H */
