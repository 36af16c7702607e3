/*-------------------------------------------------------------------------
 *
 * clock.h
 *	  The clock of snapshots.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CLOCK_H
#define TTL_CLOCK_H

#include "datatype/timestamp.h"
#include "nodes/parsenodes.h"
#include "utils/snapshot.h"

/*
 * The clock of what starts now and reads the snapshot (InvalidSnapshot = none: what
 * asks isn't an execution).
 */
extern TimestampTz ttl_clock_get(Snapshot snapshot);

/* This has been the clock of who has read the snapshot first. */
extern void ttl_clock_set(Snapshot snapshot, TimestampTz clock);

/* In a parallel worker: this is the leader's. */
extern void ttl_clock_follow(TimestampTz clock);

/*
 * To be called when a statement has been analyzed: it may be executed by a later message.
 */
extern void ttl_clock_analyzed(const Query *query);

/*
 * To be called when a function is about to be called: one that the client calls
 * by the fast path takes a snapshot, and nobody else notices.
 */
extern void ttl_clock_function_called(void);

extern void ttl_clock_init(void);

#endif							/* TTL_CLOCK_H */
