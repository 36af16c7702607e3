/*-------------------------------------------------------------------------
 *
 * reaper_internal.h
 *	  Interfaces between the files of src/reaper.
 *
 * Deletion from one table has headers of its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAPER_INTERNAL_H
#define TTL_REAPER_INTERNAL_H

#include "counters.h"
#include "datatype/timestamp.h"
#include "executor/instrument.h"

/*
 * launcher.c, worker.c, request.c
 */
/* launcher.c, worker.c: entry points, found by name by the postmaster */
extern PGDLLEXPORT void ttl_launcher_main(Datum main_arg);
extern PGDLLEXPORT void ttl_worker_main(Datum main_arg);

/* request.c */

/* The transaction asks for attention to its database when it commits. */
extern void ttl_request_at_commit(void);

extern void ttl_request_init(void);

/*
 * shmem.c
 */
/* Requests that are remembered one by one; more become "all databases". */
#define TTL_MAX_REQUESTS	64

/* Why a worker has left its database. */
typedef enum TtlLeft
{
	TTL_LEFT_DIED,				/* it did not say: error, signal */
	TTL_LEFT_BLOCKED,			/* a command needs the database for itself */
	TTL_LEFT_NOTHING,			/* no container to care for */
	TTL_LEFT_YIELDED,			/* another database needs the slot */
	TTL_LEFT_IDLE,				/* likewise, and nothing is left to do now */
	TTL_LEFT_OFF,				/* ttl.reaper is off */
	TTL_LEFT_HELD,				/* recovered to a point in time */
	TTL_LEFT_PAUSED				/* by ttl.pause() */
} TtlLeft;

extern void ttl_shmem_init(void);

/*
 * For backends
 */

/*
 * Somebody shall look after the database: a policy has changed there, or, if
 * 'container' is given, that one is to be looked at without waiting.
 */
#define TTL_EVERY_CONTAINER	PG_UINT32_MAX

extern void ttl_shmem_request(Oid dboid, Oid container);

/* Somebody shall look after each database. */
extern void ttl_shmem_request_all(void);

/* The list of databases may have changed. */
extern void ttl_shmem_wake_launcher(void);

/*
 * Keeps the reaper out of a database until this backend unblocks it, and
 * returns when the worker that was there has gone (or doesn't go).
 */
extern void ttl_shmem_block_database(Oid dboid);
extern void ttl_shmem_unblock_databases(void);

/*
 * For the launcher
 */
extern void ttl_shmem_launcher_attach(void);

/* The database that has a worker in that slot, else InvalidOid. */
extern int	ttl_shmem_nslots(void);
extern Oid	ttl_shmem_slot_database(int slot);

/*
 * Terminates the worker of a database, or with InvalidOid all of them, and
 * returns when they have gone (or don't go).
 */
extern void ttl_shmem_terminate_workers(Oid dboid, TtlLeft left);

/* Returns when all workers have gone by themselves, or don't go. */
extern void ttl_shmem_await_workers(void);
extern int	ttl_shmem_take_requests(Oid *dboids, bool *all);
extern bool ttl_shmem_is_blocked(Oid dboid);
extern void ttl_shmem_set_contended(bool contended);

/* Reserves a slot; returns its number, or -1 if all are taken. */
extern int	ttl_shmem_slot_reserve(Oid dboid, uint32 *serial);

/* Frees a slot whose worker has gone, and tells why and what is next there. */
extern void ttl_shmem_slot_release(int slot, TtlLeft *left, TimestampTz *due);

/*
 * For a worker
 */

/* Takes the reserved slot; false if there is no work in that database now. */
extern bool ttl_shmem_worker_attach(int slot, uint32 serial, Oid *dboid);

/* Has somebody asked for attention since the last call, and to what? */
extern bool ttl_shmem_worker_take_attention(Oid *container);

/* Do other databases wait for a slot? */
extern bool ttl_shmem_worker_contended(void);

/*
 * Announces that the worker leaves, and when it has work next.  False (and
 * nothing announced) if somebody has asked for attention in the meantime.
 */
extern bool ttl_shmem_worker_leave(TtlLeft left, TimestampTz due);

/*
 * session.c
 */
/*
 * What triggers fire from here on are this owner's.  Wipes out what those of another have
 * left.  Called outside of a transaction; an error has to end the process.
 */
extern void ttl_session_give_to(Oid owner);

/*
 * Drops the temporary objects that the running transaction has made.  Called in each
 * transaction of the worker in which triggers have run, with a snapshot.
 */
extern void ttl_session_drop_temporary(void);

extern bool ttl_session_belongs_to(Oid owner);

/*
 * budget.c
 */
/* The cost of what this process has done since 'start' was pgBufferUsage. */
extern int64 ttl_budget_cost_since(const BufferUsage *start);

/*
 * What a cycle that starts now may spend, given what happened so far.  *stop
 * becomes what ends it if that isn't enough.
 */
extern int64 ttl_budget_grant(const TtlDatabaseCounters *counters,
							  TimestampTz now, TtlStop *stop);

/*
 * Spending it evenly: the most that one transaction should cost, and how long
 * to nap, in microseconds, when so much has been spent since the last nap.
 */
extern int64 ttl_budget_batch(int64 granted);
extern int64 ttl_budget_nap(int64 granted, int64 unpaid);

/* What may be spent at the beginning of a cycle before the first nap. */
extern int64 ttl_budget_advance(int64 granted);

/* This process is the reaper; what it does isn't the foreground's. */
extern void ttl_budget_exempt(void);

extern void ttl_budget_init(void);

/*
 * hold.c
 */
/*
 * True if deletion is paused in this database, and until when (DT_NOEND: until
 * ttl.resume() is called).  Needs a transaction; cheap unless the pause has changed.
 */
extern bool ttl_pause_lasts(TimestampTz *until);

extern void ttl_pause_init(void);

/*
 * hold.c: recovery
 */
/* A recovery to a point in time. */
typedef struct TtlRecovery
{
	char		target[128];	/* in PostgreSQL's words: "before 2026-..." */
	char		origin[64];		/* name of what says that deletion may go on */
} TtlRecovery;

/*
 * Was the cluster recovered to a point in time, and has nobody said yet that
 * deletion may go on?  Needs a transaction, and a database.
 */
extern bool ttl_recovery_holds(TtlRecovery *recovery);

/*
 * Lets deletion go on after such a recovery; false if it was not held.  Errors (42501)
 * unless the current user is a superuser.
 */
extern bool ttl_recovery_resume(void);

extern void ttl_recovery_init(void);

/*
 * budget.c: replicas
 */
/* Is there any WAL sender?  Standby, subscriber, base backup, whatever. */
extern bool ttl_replica_connected(void);

/*
 * Bytes of WAL by which the slowest of them is behind; 0 if there is none.  One
 * that isn't connected doesn't count: it may never come back.
 */
extern uint64 ttl_replica_lag(void);

/*
 * session.c: replication origin
 */
/*
 * From here to the end all that this process writes is tagged.  In a
 * transaction.  Errors with ERRCODE_OBJECT_IN_USE if another process is at it.
 */
extern void ttl_origin_begin(void);

/* Doesn't fail; does nothing if there was no beginning. */
extern void ttl_origin_end(void);

/*
 * progress.c
 */
typedef enum TtlPhase
{
	TTL_PHASE_LOOKING,			/* for expired rows */
	TTL_PHASE_DELETING,
	TTL_PHASE_EMPTYING			/* a whole partition */
} TtlPhase;

/* All but the first do nothing in a process that hasn't begun. */
extern void ttl_progress_begin(int containers);
extern void ttl_progress_container(Oid container, int done);
extern void ttl_progress_phase(TtlPhase phase);
extern void ttl_progress_batch(int64 rows);
extern void ttl_progress_end(void);

extern void ttl_progress_init(void);

#endif							/* TTL_REAPER_INTERNAL_H */
