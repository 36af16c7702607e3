/*-------------------------------------------------------------------------
 *
 * batch.h
 *	  Deletes a batch of the rows that have been collected.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_BATCH_H
#define TTL_BATCH_H

#include "reaper/step.h"

/* Deletes the next batch. */
extern TtlStepResult ttl_batch_delete(TtlStep *step);

/* Empties the leaf, if it can be done at once.  Returns whether it has. */
extern bool ttl_batch_try_truncate(TtlStep *step);

#endif							/* TTL_BATCH_H */
