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

extern void ttl_request_all_at_commit(void);

/*
 * slots.c, for backends; slots.h has what is for the launcher
 */

extern const char *ttl_slots_why_no_worker(void);

/*
 * slots.c, for a worker
 */

extern bool ttl_slots_attach_worker(Oid dboid);
extern bool ttl_slots_take_request(void);
extern bool ttl_slots_are_contended(void);
extern void ttl_slots_note_graces(void);
extern bool ttl_slots_leave(TtlReaperState state, TimestampTz start_at);

/*
 * budget.c
 */

extern int64 ttl_budget_grant(const TtlDatabaseCounters *counters, TimestampTz now, TtlStop *stop);
extern void ttl_budget_spend(int64 cost);
extern int64 ttl_budget_spent(void);
extern int64 ttl_budget_batch(void);
extern void ttl_budget_nap(int64 unrecorded);
extern int64 ttl_budget_napped(void);

/*
 * nap.c
 */

extern void ttl_nap_until(TimestampTz until);
extern void ttl_nap_reload(void);

/*
 * hold.c
 */

extern bool ttl_hold_find(TtlReaperState *state, TimestampTz *until);
extern bool ttl_hold_is_paused(TimestampTz *until);

/*
 * restore.c
 */

extern void ttl_restore_init(void);
extern void ttl_restore_note_hold(void);
extern bool ttl_restore_is_held(void);
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

extern bool ttl_note_exists(const char *path);
extern bool ttl_note_read(const char *path, TtlNote *note);
extern bool ttl_note_read_text(const char *path, char *text);
extern void ttl_note_write(const char *path, const TtlNote *note, int elevel);

/*
 * last_seen.c: for the postmaster's start
 */

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
extern bool ttl_last_seen_awaits_graces(void);
extern void ttl_last_seen_note_stored(void);
extern void ttl_last_seen_renew(bool exits);

/*
 * last_seen.c: for a worker
 */

extern bool ttl_last_seen_lacks_grace(const TtlPolicy *policy);
extern void ttl_last_seen_begin_grace(Oid container);
extern void ttl_last_seen_log_grace(const char *database);

#endif							/* TTL_REAPER_INTERNAL_H */
