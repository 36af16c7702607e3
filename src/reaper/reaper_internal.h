/*-------------------------------------------------------------------------
 *
 * reaper_internal.h
 *	  Interfaces between the files of src/reaper.
 *
 * Deletion from one container is in reap_rel.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAPER_INTERNAL_H
#define TTL_REAPER_INTERNAL_H

#include "container/container.h"
#include "counters.h"
#include "datatype/timestamp.h"
#include "executor/instrument.h"
#include "reaper/reaper.h"

/*
 * launcher.c, worker.c: entry points, found by name by the postmaster
 */
extern PGDLLEXPORT void ttl_launcher_main(Datum main_arg);
extern PGDLLEXPORT void ttl_worker_main(Datum main_arg);

/*
 * launcher.c, for backends
 */

/* Wakes up the worker of this database, or of each database, after commit. */
extern void ttl_request_all_at_commit(void);

/* Why this database has no worker, in a few words; NULL if it has one, or needs none. */
extern const char *ttl_launcher_why_no_worker(void);

/*
 * launcher.c, for a worker
 */

/* Takes the slot reserved for the database; false if the worker is to exit. */
extern bool ttl_launcher_attach_worker(Oid dboid);

/* True if there has been a request since the last call. */
extern bool ttl_launcher_take_request(void);
extern bool ttl_launcher_is_contended(void);

/*
 * Announces that the worker exits: the state of the database, and when to start the next
 * worker (0 = at once, DT_NOEND = at a request).  Returns false and does nothing if there is a
 * request.
 */
extern bool ttl_launcher_release_worker(TtlReaperState state, TimestampTz start_at);

/*
 * hold.c
 */

/* True if the worker must not delete, until *until (DT_NOEND: until ttl.resume()). */
extern bool ttl_hold_lasts(TtlReaperState *state, TimestampTz *until);

/*
 * True if deletion is paused in this database.  Needs a transaction; cheap unless
 * the pause has changed.
 */
extern bool ttl_hold_is_paused(TimestampTz *until);

/*
 * restore.c
 */

/* What shared memory (launcher.c) has of the server's start; constant but for next_xid */
typedef struct TtlRestoreShared
{
	TimestampTz last_known_at;	/* pg_control's time before the start; 0 = not
								 * known */
	TimestampTz started_at;
	TransactionId next_xid;		/* containers with older ones were stored
								 * before the start; set by the first launcher */
} TtlRestoreShared;

/* Called by the postmaster, before recovery, and in single-user mode */
extern void ttl_restore_init(void);
extern void ttl_restore_attach(TtlRestoreShared *shmem, bool found);
extern void ttl_restore_note_xid(void);

/* Has the start of a base backup known to standbys and backups of this server. */
extern void ttl_restore_note_hold(void);

/* True after the start of a base backup, until ttl.resume(). */
extern bool ttl_restore_is_held(void);

/* Ends that at the commit. */
extern void ttl_restore_resume(void);
extern void ttl_restore_transaction(XactEvent event);

/* Whether a container has to wait because the server was off for long; has it wait; logs that. */
extern bool ttl_restore_lacks_grace(const TtlPolicy *policy);
extern void ttl_restore_begin_grace(Oid container);
extern void ttl_restore_log_grace(const char *database);

#endif							/* TTL_REAPER_INTERNAL_H */
