/*-------------------------------------------------------------------------
 *
 * progress.h
 *	  How far a CALL ttl.reap has come.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_PROGRESS_H
#define TTL_PROGRESS_H

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

#endif							/* TTL_PROGRESS_H */
