/*-------------------------------------------------------------------------
 *
 * step.h
 *	  A step: what one transaction does to a table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_STEP_H
#define TTL_STEP_H

#include "reaper/reap_rel.h"
#include "utils/elog.h"
#include "utils/relcache.h"

/* A step: what one transaction does to a leaf. */
typedef struct TtlStep
{
	TtlMemory  *memory;
	TtlReapRel    *leaf;
	TtlContainer container;
	Relation	rel;
	TimestampTz now;			/* rows that expired before go ... */
	bool		spares;			/* ... but for those that a change of policy
								 * has made expired */
	int64		max_cost;		/* what is left of the turn */
	int64		max_batch_cost;
	int64		max_rows;

	TimestampTz deadline;		/* the step is cancelled then (ttl.batch_timeout) */
	bool		timed_out;		/* ... and an attempt of it has been */
	struct TtlFkReferenced *referenced;	/* keys of what was collected, or NULL */
	const char *error;			/* why rows could not be deleted, or NULL */

	/* for ttl_step_delete */
	ItemPointer tids;
	int			ntids;
	bool		skip_locked;
	bool		with_referencing;
	int64		deleted;
	bool		emptied;		/* by TRUNCATE */
	bool		origin_wanted;	/* about to take the replication origin */
	bool		works_without_rows;
} TtlStep;

/* What came of a step. */
typedef enum TtlStepResult
{
	TTL_STEP_MORE,				/* go on */
	TTL_STEP_DONE,				/* nothing is left here for now */
	TTL_STEP_AWAY				/* cannot go on now */
} TtlStepResult;

/* Deletes the step's rows. */
extern void ttl_step_delete(TtlStep *step);

/*
 * Tries whether the table lets rows be deleted at all.  Raises an error in any
 * case, so that nothing of it stays; step->works_without_rows tells.
 */
extern void ttl_step_delete_nothing(TtlStep *step);

/*
 * Does something in a subtransaction, with a short lock_timeout, until the step's
 * deadline.  Returns NULL on success, else the error.
 */
extern ErrorData *ttl_step_attempt(void (*action) (TtlStep *), TtlStep *step);

/* The step that is being attempted although its deadline has passed, or NULL. */
extern const TtlStep *ttl_step_overdue(void);

#endif							/* TTL_STEP_H */
