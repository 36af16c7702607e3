/*-------------------------------------------------------------------------
 *
 * batch.h
 *	  Deletes the expired rows of a container, batch by batch.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_BATCH_H
#define TTL_BATCH_H

#include "datatype/timestamp.h"

/* How a caller wants batches to behave. */
typedef struct TtlBatchMode
{
	bool		by_worker;		/* obeys reaping, gives way, keeps errors to
								 * itself; a user's call does not */
	bool		commits;		/* a transaction for each batch */
} TtlBatchMode;

/* Why a turn ended. */
typedef enum TtlBatchEnd
{
	TTL_BATCH_DONE,				/* nothing is left, or nothing that can go now */
	TTL_BATCH_SPENT,			/* cost, rows or time are used up */
	TTL_BATCH_AWAY				/* in somebody's way, or in trouble: later */
} TtlBatchEnd;

/* A turn: what a container may use, and what came of it. */
typedef struct TtlBatchTurn
{
	int64		max_cost;
	int64		max_rows;
	TimestampTz until;			/* DT_NOEND = as long as it takes */
	int64		max_batch_cost; /* as far as can be told beforehand */
	bool		changed;		/* table or policy have been: no pause goes on */

	/*
	 * Called before each transaction but the turn's first, when no lock is
	 * held: the place to nap.  *napped tells that time has passed.  If it
	 * returns false the turn ends.  NULL = don't.
	 */
	bool		(*pace) (const struct TtlBatchTurn *turn, bool *napped);

	TtlBatchEnd end;
	int64		cost;
	int64		rows;
	int64		blocked;		/* rows known not to be deletable; before the
								 * turn: as the statistics have it */
	int			leaves;			/* tables that were looked at */
	TimestampTz due;			/* when to come again, DT_NOEND = who knows */
} TtlBatchTurn;

/* What is remembered from turn to turn; belongs to one process. */
typedef struct TtlBatchMemory TtlBatchMemory;

extern TtlBatchMemory *ttl_batch_memory_create(MemoryContext parent,
											   TtlBatchMode mode);

/* Recalls what earlier workers knew; called in a transaction. */
extern void ttl_batch_memory_recall(TtlBatchMemory *memory);

/* Forgets tables that had no turn since the given time. */
extern void ttl_batch_memory_trim(TtlBatchMemory *memory, TimestampTz since);

/*
 * Runs a turn.  Called in a transaction, and returns in one, though maybe not
 * the same.
 */
extern void ttl_batch_run(TtlBatchMemory *memory, Oid container,
						  TtlBatchTurn *turn);

#endif							/* TTL_BATCH_H */
