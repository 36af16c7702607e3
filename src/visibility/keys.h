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

/*
 * Made in the current memory context, which must live as long as the statement; NULL if the relation
 * has no such index.  'target' is the relation in the execution that runs, with its indexes open, or NULL.
 */
extern TtlKeys *ttl_keys_prepare(Relation rel, EState *running, const ResultRelInfo *target);

/* A slot for rows of the relation, empty */
extern TupleTableSlot *ttl_keys_make_slot(TtlKeys *keys);

/*
 * Collects the rows that have expired by 'now' and conflict with the new row in the slot, after it has
 * waited for those that write them.  'self' (may be NULL) is the TID of the row that is being updated.
 */
extern void ttl_keys_find_expired(TtlKeys *keys, const TtlContainer *container, TimestampTz now,
								  TupleTableSlot *slot, const ItemPointerData *self,
								  TtlTids *found);

/*
 * True if ON CONFLICT DO NOTHING has left out the row in the slot, and neither by a live row nor by what
 * this transaction has inserted; 'command' is the one that it was looked up in.  Live is what has not expired by 'now'.
 */
extern bool ttl_keys_left_row_out(TtlKeys *keys, const TtlContainer *container, TimestampTz now,
								  TupleTableSlot *slot, CommandId command);

#endif							/* TTL_KEYS_H */
