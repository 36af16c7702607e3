/*-------------------------------------------------------------------------
 *
 * turn.h
 *	  A turn: deletes expired rows of a container as long as it may.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_TURN_H
#define TTL_TURN_H

#include "reaper/reap_rel.h"

/* Why a turn ended. */
typedef enum TtlTurnEnd
{
	TTL_TURN_DONE,				/* nothing is left, or nothing that can go now */
	TTL_TURN_SPENT,				/* cost, rows or time are used up */
	TTL_TURN_AWAY				/* in somebody's way, or in trouble: later */
} TtlTurnEnd;

/* A turn: what a container may use, and what came of it. */
typedef struct TtlTurn
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
	bool		(*pace) (const struct TtlTurn *turn, bool *napped);

	TtlTurnEnd	end;
	int64		cost;
	int64		rows;
	int64		blocked;		/* rows that can't be deleted; before the turn:
								 * as the statistics have it */
	List	   *leaves;			/* the container's tables, during the turn */
	int			nleaves;
	TimestampTz due;			/* when to come again, DT_NOEND = who knows */
} TtlTurn;

/*
 * Runs a turn.  Called in a transaction, and returns in one, though maybe not
 * the same.
 */
extern void ttl_turn_run(TtlMemory *memory, Oid container,
						 TtlTurn *turn);

#endif							/* TTL_TURN_H */
