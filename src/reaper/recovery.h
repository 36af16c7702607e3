/*-------------------------------------------------------------------------
 *
 * recovery.h
 *	  Holds deletion after a recovery to a point in time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_RECOVERY_H
#define TTL_RECOVERY_H

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

#endif							/* TTL_RECOVERY_H */
