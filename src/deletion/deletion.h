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

extern void ttl_owner_check(Relation rel);
extern void ttl_owner_begin(Oid owner, bool restricted, TtlSqlContext *saved);
extern bool ttl_owner_has_code(Relation rel);
extern bool ttl_owner_has_rule(Relation rel);
extern bool ttl_owner_is_trusted(const TtlSessionUser *user, Relation rel);
extern bool ttl_owner_may_delete(Oid role, Oid relid);
extern bool ttl_owner_acts_as_other(const TtlSessionUser *user, Relation rel);

/* The alias by which ttl_owner_execute() knows the tables of which the statement sees expired rows */
#define TTL_OWNER_TO_DELETE	"\"" TTL_TO_DELETE "\""

extern void ttl_owner_execute(const char *sql, int nargs, Oid *types, Datum *values,
							  TimestampTz expired_at, Oid owner, Oid target,
							  Snapshot snapshot, bool fire_triggers);
extern void ttl_owner_run_deferred(void);
extern void ttl_owner_honour_foreign_keys(TtlExecution *execution);
extern void ttl_owner_check_temporary(void);
extern void ttl_owner_begin_action(void);
extern void ttl_owner_explain(void);
extern void ttl_owner_explain_user(void);
extern void ttl_owner_refuse(Relation rel, const ItemPointerData *tid, bool references,
							 const char *detail);

/*
 * archive_code.c
 */

extern bool ttl_archive_has_code(Relation rel);
extern void ttl_archive_check_session(Oid archive, Relation rel);

/*
 * archive.c
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

extern uint64 ttl_deletion_run(Relation rel, const TtlContainer *container,
							   const ItemPointerData *tids, int ntids,
							   TimestampTz expired_at, int flags,
							   TtlSessionUser *user);
extern void ttl_deletion_run_dependents(List *rows, TimestampTz expired_at,
										TtlSessionUser *user, const TtlExecution *outer);
extern bool ttl_deletion_of_expired(const TtlContainer *container, TupleTableSlot *slot);
extern TimestampTz ttl_deletion_cutoff(Oid table, TimestampTz now);
extern bool ttl_deletion_admit_table(Oid table, Oid owner, Oid target, bool heeds_grace,
									 TimestampTz *expired_at);
extern TtlSessionUser *ttl_deletion_user(const TtlExecution *execution);
extern bool ttl_deletion_is_running(void);
extern bool ttl_deletion_follows_writes(const TtlExecution *execution);
extern void ttl_deletion_started(TtlExecution *execution);
extern void ttl_deletion_ran(TtlExecution *execution);

#endif							/* TTL_DELETION_H */
