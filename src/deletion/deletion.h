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
#include "deletion/owner.h"
#include "nodes/pg_list.h"
#include "tids.h"

/*
 * Deletes those of the rows at the given places that had expired at
 * 'expired_at', by the policy of this moment: an ordinary DELETE with triggers and
 * referential actions.  Returns how many it deleted.  Rows that are no longer there or
 * no longer expired are left alone.
 *
 * 'user' is the one in whose session it is done, for a statement of his; NULL = it is done
 * as the table's owner, by the reaper.  Owner.c tells what that means.
 *
 * Waits for rows that others have locked, as long as lock_timeout lets it,
 * unless told to skip them.
 *
 * 'container' is the policy as the caller has read it under the policy lock; NULL
 * = it is read here, once.
 *
 * rel is an ordinary table, open and locked with RowExclusiveLock.  A snapshot
 * need not be active; SPI is entered and left inside.
 */
#define TTL_DELETION_SKIP_LOCKED		0x01
/*
 * A commit is to follow, of this deletion alone: nothing had been deferred, no
 * cursor declared before.  Deferred triggers and the like run at once, still as
 * the owner.
 */
#define TTL_DELETION_COMMITS			0x02
/*
 * Expired rows of containers that reference these by a foreign key with NO
 * ACTION, RESTRICT or CASCADE go along, and those that reference them, and so
 * on.  By the reaper only what it may take, by "reaping" and "reap_delay", of tables
 * that belong to the same owner; the others have their own turn.
 */
#define TTL_DELETION_WITH_REFERENCING	0x04
/* What a change of policy has made expired stays, for ttl.grace. */
#define TTL_DELETION_EXCLUDES				0x08
/*
 * A security-restricted operation: by the reaper in another role's session; or if
 * referential actions run code as others than the table's owner.
 */
#define TTL_DELETION_RESTRICTED			0x10
#define TTL_DELETION_KEEPS_APART		0x20

/*
 * With TTL_DELETION_COMMITS, the statistics of archives, and of what goes along, wait for
 * a call of this after the commit.  What is left of a commit that has failed is discarded.
 */
extern void ttl_deletion_count_committed(void);
extern void ttl_deletion_discard_counts(void);

extern uint64 ttl_deletion_run(Relation rel, const TtlContainer *container,
							   const ItemPointerData *tids, int ntids,
							   TimestampTz expired_at, int flags,
							   TtlSessionUser *user);

/*
 * Deletes rows (TtlRelTids) that reference what a statement has deleted or renumbered.  If
 * the reaper's deletion has done so, they are deleted as its part, and only those that it
 * may take: that have expired by the cutoff, DT_NOBEGIN = none.
 */
extern TimestampTz ttl_deletion_cutoff(Oid table, TimestampTz now);
extern void ttl_deletion_run_dependents(List *rows, TimestampTz expired_at,
										TtlSessionUser *user);

/*
 * Empties the table, as its owner.  The caller holds ACCESS EXCLUSIVE on it and
 * knows that all its rows may go.  TRUNCATE wants nobody to have the table
 * open, so it is closed; the lock stays.
 */
extern void ttl_deletion_truncate(Relation rel);

extern void ttl_deletion_init(void);

#endif							/* TTL_DELETION_H */
