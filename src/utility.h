/*-------------------------------------------------------------------------
 *
 * utility.h
 *	  Observers of utility commands.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_UTILITY_H
#define TTL_UTILITY_H

#include "nodes/params.h"
#include "nodes/plannodes.h"
#include "tcop/utility.h"

/*
 * Called before the command, unless that is EXECUTE or FETCH.  The statement is a
 * private copy and may be modified.  Transaction commands come along too, also in a transaction that
 * has failed: look at the statement's type before touching a catalog.
 */
typedef void (*TtlUtilityBefore) (PlannedStmt *pstmt, const char *query_string,
								  ProcessUtilityContext context,
								  ParamListInfo params);

/* Called after the command has succeeded. */
typedef void (*TtlUtilityAfter) (PlannedStmt *pstmt,
								 ProcessUtilityContext context);

/*
 * Called in any case when the command is over, in the reverse order of
 * registration.  Must not fail.
 */
typedef void (*TtlUtilityEnd) (PlannedStmt *pstmt);

/*
 * Registers an observer; each of the three may be NULL.  Observers are called
 * in the order of their registration.
 */
extern void ttl_utility_observe(TtlUtilityBefore before, TtlUtilityAfter after,
								TtlUtilityEnd end);

/* Has the function called before each command; it must not modify the statement. */
extern void ttl_utility_on_each(TtlUtilityBefore before);

extern void ttl_utility_init(void);

#endif							/* TTL_UTILITY_H */
