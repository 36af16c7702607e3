/*-------------------------------------------------------------------------
 *
 * owner.h
 *	  By whose rights, and as whom, rows are deleted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_OWNER_H
#define TTL_OWNER_H

#include "datatype/timestamp.h"
#include "execution.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/* The user in whose session rows are deleted because of a statement of his */
typedef struct TtlSessionUser
{
	Oid			role;
	Oid			written_owner;	/* owner of the table that he writes, whose code
								 * runs as him anyway; or InvalidOid */
	bool		refused;		/* an error is being thrown that tells him why
								 * not */
} TtlSessionUser;

/* What a switch of the user changes, to be restored. */
typedef struct TtlIdentity
{
	Oid			userid;
	int			sec_context;
	bool		switched;
	int			nestlevel;		/* of settings, 0 = none is changed */
} TtlIdentity;

/* Errors (42501) if code of several owners fires for deletions from the table. */
extern void ttl_owner_check(Relation rel);

/*
 * Acts as the table's owner with a safe search_path, and connects to SPI.  If an error
 * occurs, the abort of the (sub)transaction undoes it all.
 *
 * 'restricted': in a security-restricted operation, with all constraints immediate.
 * No deferred trigger may be pending.
 */
extern void ttl_owner_begin(Relation rel, bool restricted, TtlIdentity *saved);

/* Stays the user, or becomes the user again, with the session's settings. */
extern void ttl_owner_begin_as_user(const TtlSessionUser *user, TtlIdentity *saved);

extern void ttl_owner_end(const TtlIdentity *saved);

/* Do triggers or rules run when rows are deleted from the table, or none are? */
extern bool ttl_owner_has_code(Relation rel);

/* Does what runs on deletion from the table run as the user, by his own or that owner's will? */
extern bool ttl_owner_is_trusted(const TtlSessionUser *user, Relation rel);

/* May the role delete from the table, or from it as a partition, by itself? */
extern bool ttl_owner_may_delete(Oid role, Oid relid);

/*
 * Do referential actions for rows of the table that go, which PostgreSQL carries out as
 * the owners of the referencing tables, run code as somebody else than the role?
 */
extern bool ttl_owner_acts_as_other(Oid role, Relation rel);

/*
 * Executes a statement that is to see expired rows only, in the tables of that owner
 * that it calls TTL_OWNER_TO_DELETE; 'spares' leaves out what a change of policy has made
 * expired.  The right to do so is the owner's, whoever the current user is.
 */
#define TTL_OWNER_TO_DELETE	"\"" TTL_TO_DELETE "\""

extern void ttl_owner_execute(const char *sql, int nargs, Oid *types, Datum *values,
							  TimestampTz expired_at, bool spares, Oid owner,
							  Snapshot snapshot);

/*
 * Runs what COMMIT would run of the owner's code, and would run as whoever
 * commits: deferred triggers, and the queries of cursors WITH HOLD.
 */
extern void ttl_owner_run_deferred(void);

/*
 * Has the triggers of foreign keys fire in the execution, though the session's replication
 * role is "replica".
 */
extern void ttl_owner_honour_foreign_keys(TtlExecution *execution);

/*
 * A referential action begins in a restricted operation, as another owner: the search_path
 * is the safe one again.
 */
extern void ttl_owner_reset_path(void);

/* Error contexts while triggers may fire, as the owner and as the session's user */
extern void ttl_owner_explain(void *arg);
extern void ttl_owner_explain_user(void *arg);

#endif							/* TTL_OWNER_H */
