/*-------------------------------------------------------------------------
 *
 * reference_time.h
 *	  The clock of snapshots.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REFERENCE_TIME_H
#define TTL_REFERENCE_TIME_H

#include "access/xact.h"
#include "datatype/timestamp.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "utils/snapshot.h"

/*
 * The clock of what starts now and reads the snapshot (InvalidSnapshot = none: it is
 * not an execution).
 */
extern TimestampTz ttl_reference_time_get(Snapshot snapshot);

/* Sets the clock of a snapshot that is read for the first time. */
extern void ttl_reference_time_set(Snapshot snapshot, TimestampTz clock);

/* In a parallel worker: this is the leader's. */
extern void ttl_reference_time_follow(TimestampTz clock);

/*
 * To be called when a statement has been analyzed: it may be executed by a later message.
 */
extern void ttl_reference_time_analyzed(const Query *query);

/*
 * To be called when a function is about to be called: one that the client calls
 * by the fast path takes a snapshot, and passes no other hook.
 */
extern void ttl_reference_time_function_called(void);

/*
 * For the hooks of ttl.c: before each utility command, and around each but EXECUTE and FETCH.
 */
extern void ttl_reference_time_command(PlannedStmt *pstmt);
extern void ttl_reference_time_before_utility(PlannedStmt *pstmt);
extern void ttl_reference_time_after_utility(void);
extern void ttl_reference_time_end_utility(void);
extern void ttl_reference_time_transaction(XactEvent event);

#endif							/* TTL_REFERENCE_TIME_H */
