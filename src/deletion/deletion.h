/*-------------------------------------------------------------------------
 *
 * deletion.h
 *	  Physical deletion of expired rows, shared by reaper and eviction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_DELETION_H
#define TTL_DELETION_H

#include "container/container.h"
#include "execution.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "own_sql.h"
#include "tids.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"

/*
 * owner.c: by whose rights, and as whom, rows are deleted
 */

/* The user in whose session rows are deleted because of a statement of his */
typedef struct TtlSessionUser
{
	Oid			role;
	Oid			written_owner;	/* owner of the table that he writes, whose
								 * code runs as him anyway; or InvalidOid */
} TtlSessionUser;

/* Errors (42501) if code of several owners fires for deletions from the table. */
extern void ttl_owner_check(Relation rel);

/*
 * ttl_sql_begin() as the owner of a table, with the safe search_path.  'restricted': in a
 * security-restricted operation, with all constraints immediate; no deferred trigger may be pending.
 */
extern void ttl_owner_begin(Oid owner, bool restricted, TtlSqlContext *saved);

/* True if triggers or rules run for a DELETE from the table, maybe of no rows. */
extern bool ttl_owner_has_code(Relation rel);

/* True if the table has a rule on DELETE. */
extern bool ttl_owner_has_rule(Relation rel);

/* True if the table is the user's, or its owner that of the table which he writes. */
extern bool ttl_owner_is_trusted(const TtlSessionUser *user, Relation rel);

/* True if the role may delete from the table, or from it as a partition, by itself. */
extern bool ttl_owner_may_delete(Oid role, Oid relid);

/*
 * True if referential actions for rows of the table that go, which PostgreSQL carries out as
 * the owners of the referencing tables, run code as another role than the user.  Archives of the
 * owner of the table that he writes run code as that owner in any case, and don't count.
 */
extern bool ttl_owner_acts_as_other(const TtlSessionUser *user, Relation rel);

/*
 * Executes a statement that is to see expired rows only, in the tables of that owner
 * that have the alias TTL_OWNER_TO_DELETE.  The right to do so is the owner's, not the current
 * user's.
 * Without fire_triggers, AFTER triggers are left to the statement around this one.
 */
#define TTL_OWNER_TO_DELETE	"\"" TTL_TO_DELETE "\""

extern void ttl_owner_execute(const char *sql, int nargs, Oid *types, Datum *values,
							  TimestampTz expired_at, Oid owner,
							  Snapshot snapshot, bool fire_triggers);

/*
 * Runs what COMMIT would run of the owner's code, as the user who commits: deferred triggers, and
 * the queries of cursors WITH HOLD.
 */
extern void ttl_owner_run_deferred(void);

/*
 * Has the triggers of foreign keys fire in the execution, though the session's replication
 * role is "replica".
 */
extern void ttl_owner_honour_foreign_keys(TtlExecution *execution);

/*
 * Errors (42501) if the restricted operation has made temporary objects, whose names other owners'
 * code would find: PostgreSQL keeps it from making tables, but not functions and types.
 */
extern void ttl_owner_check_temporary(void);

/*
 * A referential action begins in a restricted operation, as another owner: there are no temporary
 * objects, and the search_path is the safe one again.
 */
extern void ttl_owner_begin_action(void);

/* Hints in an error context while triggers may fire, as the owner and as the session's user */
extern void ttl_owner_explain(void);
extern void ttl_owner_explain_user(void);

/*
 * Errors (23503): that expired row of the table can't be deleted in this session, or references what is
 * to be deleted.  The HINT says when the reaper does it.
 */
extern void ttl_owner_refuse(Relation rel, const ItemPointerData *tid, bool references,
							 const char *detail);

/*
 * archive_code.c
 */

/*
 * True if to archive rows of the relation may execute code of its owner's.  The archive, which is locked for that, stays as
 * it is until the transaction ends.
 */
extern bool ttl_archive_has_code(Relation rel);

/*
 * Errors (42501) if code of the archive's could find temporary objects that its owner hasn't made, where rows
 * of the relation are archived.  The archive is locked.
 */
extern void ttl_archive_check_session(Oid archive, Relation rel);

/*
 * archive.c
 */

/*
 * Errors unless rows of the container can go to that table: 55000 it is gone, 42809 it is no table that stores rows,
 * 42501 it has another owner, 22023 it is the container, 42703 or 42804 for its columns, 0A000 one of them
 * is distributed, or a constraint of the archive is initially deferred.
 */
extern void ttl_archive_check_target(Oid container, Oid archive);

/*
 * deletion.c
 */

/* Flags of ttl_deletion_run(); rows that others have locked are left alone. */
#define TTL_DELETION_SKIP_LOCKED		0x01
/*
 * A commit is to follow, of this deletion alone: nothing had been deferred, no
 * cursor declared before.  Unless it is restricted, deferred triggers and the like run at
 * once, still as the owner.
 */
#define TTL_DELETION_COMMITS			0x02
/* Nothing goes along of a table whose ttl.grace lasts. */
#define TTL_DELETION_HEEDS_GRACE		0x04
/* A security-restricted operation: by the reaper in a session that isn't the owner's. */
#define TTL_DELETION_RESTRICTED			0x08

/*
 * Deletes those of the rows with these TIDs that had expired at
 * 'expired_at', by the policy of this moment: an ordinary DELETE with triggers and
 * referential actions.  Returns how many it deleted.  Rows that are no longer there or
 * no longer expired are left alone.
 *
 * 'user' is the user whose statement needs it; NULL = it is done as the table's owner, by the
 * reaper (owner.c).
 *
 * Waits for rows that others have locked, as long as lock_timeout lets it,
 * unless TTL_DELETION_SKIP_LOCKED is among the flags.
 *
 * 'container' is the policy as the caller has read it under the policy lock; NULL
 * = it is read here, once.
 *
 * rel is an ordinary table, open and locked with RowExclusiveLock.  A snapshot
 * need not be active; SPI is entered and left inside.
 */
extern uint64 ttl_deletion_run(Relation rel, const TtlContainer *container,
							   const ItemPointerData *tids, int ntids,
							   TimestampTz expired_at, int flags,
							   TtlSessionUser *user);

/*
 * Deletes rows (TtlRelTids) that reference what the statement 'outer' (NULL = one before, which
 * has deferred it) has deleted or renumbered, and that have expired by 'expired_at', which is
 * ttl_deletion_cutoff().  If the reaper has done so, they are deleted as part of its deletion, and
 * only those of tables that belong to the same owner.
 */
extern void ttl_deletion_run_dependents(List *rows, TimestampTz expired_at,
										TtlSessionUser *user, const TtlExecution *outer);

/*
 * True if the row of the container, which has just been deleted, had expired: by the policy of this moment, or by that of the
 * moment when the deletion that runs began, which may have found it by that.
 */
extern bool ttl_deletion_of_expired(const TtlContainer *container, TupleTableSlot *slot);

/*
 * By when rows of that table must have expired to go along with what is deleted: 'now', or in a
 * deletion of the reaper's the time of that, or "reap_delay" ago if their container has one.
 * DT_NOBEGIN = none goes along: see ttl_deletion_may_go_along().
 */
extern TimestampTz ttl_deletion_cutoff(Oid table, TimestampTz now);

/*
 * True if rows of the table may go along with those that the reaper deletes, as that owner, from
 * the container 'target', which goes whatever its settings.  *expired_at, by when these have
 * expired, becomes that of the former.
 */
extern bool ttl_deletion_may_go_along(Oid table, Oid owner, Oid target, bool heeds_grace,
									  TimestampTz *expired_at);

/* The user in whose session the execution (NULL = none) is a deletion's statement; else NULL. */
extern TtlSessionUser *ttl_deletion_user(const TtlExecution *execution);

/* True if a deletion runs in this process, or what it has deferred. */
extern bool ttl_deletion_is_running(void);

/*
 * An execution has started: maybe that of a deletion, or of a referential action in it, which serves
 * the deletion and is done as another owner.
 */
extern void ttl_deletion_started(TtlExecution *execution);

/* It has run: errors (55000) if the action has deleted rows from a container with an archive that it can't reach. */
extern void ttl_deletion_ran(TtlExecution *execution);

#endif							/* TTL_DELETION_H */
