/*-------------------------------------------------------------------------
 *
 * reaper_internal.h
 *	  Interfaces between the files of src/reaper.
 *
 * Deletion from one table is in reap_rel.h, the worker's list of tables in schedule.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAPER_INTERNAL_H
#define TTL_REAPER_INTERNAL_H

#include "container/container.h"
#include "counters.h"
#include "datatype/timestamp.h"
#include "executor/instrument.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "reaper/reaper.h"
#include "storage/lwlock.h"

/*
 * launcher.c, worker.c, last_seen.c: entry points, found by name by the postmaster
 */
extern PGDLLEXPORT void ttl_launcher_main(Datum main_arg);
extern PGDLLEXPORT void ttl_standby_main(Datum main_arg);
extern PGDLLEXPORT void ttl_worker_main(Datum main_arg);

/*
 * process.c
 */
extern void ttl_process_describe(BackgroundWorker *process, const char *type, const char *function);

/*
 * request.c
 */

/* Wakes up the worker of each database after commit, as ttl_request_at_commit() (reaper.h) does that of this one. */
extern void ttl_request_all_at_commit(void);

/*
 * slots.c, for backends; slots.h has what is for the launcher
 */

/* Why this database has no worker, in a few words; NULL if it has one, or needs none. */
extern const char *ttl_slots_why_no_worker(void);

/*
 * slots.c, for a worker
 */

/* Takes the slot reserved for the database; false if the worker is to exit. */
extern bool ttl_slots_attach_worker(Oid dboid);

/* True if there has been a request since the last call. */
extern bool ttl_slots_take_request(void);
extern bool ttl_slots_are_contended(void);

/* All containers of the database that need a grace (last_seen.c) have it. */
extern void ttl_slots_note_graces(void);

/*
 * Announces that the worker exits: the state of the database, and when to start the next
 * worker (0 = at once, DT_NOEND = at a request).  Returns false and does nothing if there is a
 * request.
 */
extern bool ttl_slots_leave(TtlReaperState state, TimestampTz start_at);

/*
 * budget.c
 */

/*
 * Begins a cycle's budget, given the statistics.  Returns what it may spend; *stop becomes the
 * reason why the cycle ends if that is not enough.
 */
extern int64 ttl_budget_grant(const TtlDatabaseCounters *counters, TimestampTz now, TtlStop *stop);
extern void ttl_budget_spend(int64 cost);
extern int64 ttl_budget_spent(void);

/* The most that one transaction should cost */
extern int64 ttl_budget_batch(void);

/* Naps as long as what the cycle has spent so far is worth, and what has not been recorded yet. */
extern void ttl_budget_nap(int64 unrecorded);

/* Time spent napping by this process, in microseconds */
extern int64 ttl_budget_napped(void);

/*
 * nap.c
 */

/* Waits for the latch. */
extern void ttl_nap_until(TimestampTz until);

/* Reads postgresql.conf anew if it has changed. */
extern void ttl_nap_reload(void);

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

/* Called by the postmaster, before recovery, and in single-user mode */
extern void ttl_restore_init(void);

/* Has the start of a base backup known to standbys and backups of this server. */
extern void ttl_restore_note_hold(void);

/* True after the start of a base backup, until ttl.resume(). */
extern bool ttl_restore_is_held(void);

/* Ends that, in the current transaction. */
extern void ttl_restore_resume(void);

/*
 * note.c
 */

/* More than a backup label has */
#define TTL_LABEL_LENGTH	8192

typedef struct TtlNote
{
	TimestampTz at;				/* 0 = not known */
	char		label[TTL_LABEL_LENGTH];	/* a backup label; "" = none */
} TtlNote;

/* True if there is such a file, a note or another. */
extern bool ttl_note_exists(const char *path);

/* Return false if there is no such file.  The second one reads the start of any file. */
extern bool ttl_note_read(const char *path, TtlNote *note);
extern bool ttl_note_read_text(const char *path, char *text);

/* Replaces a note durably.  'elevel' is of errors. */
extern void ttl_note_write(const char *path, const TtlNote *note, int elevel);

/*
 * last_seen.c: for the postmaster's start
 */

/* The backup label that the data directory was last started from; false if that is not known */
extern bool ttl_last_seen_label(char *label);
extern void ttl_last_seen_note_label(const char *label);
extern void ttl_last_seen_register_standby(void);

/*
 * last_seen.c: for the launcher
 */

/* What shared memory (slots.c) has of the server's start, and the launcher's */
typedef struct TtlLastSeenShared
{
	LWLock		lock;			/* of the file, and renewed_at */
	TimestampTz renewed_at;		/* when the file was written last */
	char		label[TTL_LABEL_LENGTH];	/* of the postmaster's start;
											 * doesn't change */

	/*
	 * set once, by the launcher or a session: containers with older ones were
	 * stored before
	 */
	pg_atomic_uint32 next_xid;

	/* set by the first launcher after the server's start */
	TimestampTz started_at;
	TimestampTz last_seen;		/* the file's time then */
	bool		is_stored;		/* all databases have stored their graces */
} TtlLastSeenShared;

extern void ttl_last_seen_attach(TtlLastSeenShared *shmem, bool found, int tranche);
extern void ttl_last_seen_begin(void);

/* True until all databases have stored the graces that began with the launcher. */
extern bool ttl_last_seen_awaits_graces(void);
extern void ttl_last_seen_graces_are_stored(void);

/* Keeps the time when the server was last in service, if nothing is awaited. */
extern void ttl_last_seen_renew(bool exits);

/*
 * last_seen.c: for a worker
 */

/* Whether a container has to wait because the server was out of service for long; has it wait; logs that. */
extern bool ttl_last_seen_lacks_grace(const TtlPolicy *policy);
extern void ttl_last_seen_begin_grace(Oid container);
extern void ttl_last_seen_log_grace(const char *database);

#endif							/* TTL_REAPER_INTERNAL_H */
