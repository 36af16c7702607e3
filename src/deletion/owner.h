/*-------------------------------------------------------------------------
 *
 * owner.h
 *	  Acts as the owner of a table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_OWNER_H
#define TTL_OWNER_H

#include "datatype/timestamp.h"
#include "execution.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* What a switch to the owner changes, to be restored. */
typedef struct TtlIdentity
{
	Oid			userid;
	int			sec_context;
	int			nestlevel;
} TtlIdentity;

/* Errors (42501) if code of several owners fires for deletions from the table. */
extern void ttl_owner_check(Relation rel);

/*
 * Acts as the table's owner with a safe search_path, and connects to SPI.  If an error
 * occurs, the abort of the (sub)transaction undoes it all.
 */
extern void ttl_owner_begin(Relation rel, TtlIdentity *saved);
extern void ttl_owner_end(const TtlIdentity *saved);

/*
 * Executes a statement that is to see expired rows only, in the tables that it calls
 * TTL_OWNER_DOOMED; 'spares' leaves out what a change of policy has made expired.
 */
#define TTL_OWNER_DOOMED	"\"" TTL_DOOMED "\""

extern void ttl_owner_execute(const char *sql, int nargs, Oid *types, Datum *values,
							  TimestampTz expired_at, bool spares, Snapshot snapshot);

/*
 * Runs what COMMIT would run of the owner's code, and would run as whoever
 * commits: deferred triggers, and the queries of cursors WITH HOLD.
 */
extern void ttl_owner_run_deferred(void);

/* Error context while his triggers may fire */
extern void ttl_owner_explain(void *arg);

#endif							/* TTL_OWNER_H */
