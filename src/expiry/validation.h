/*-------------------------------------------------------------------------
 *
 * validation.h
 *	  Commands that hold stored rows against a constraint.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_VALIDATION_H
#define TTL_VALIDATION_H

/*
 * Is ALTER TABLE at work that may validate a foreign key, and the session
 * about to plan or execute a query of it?  Not if an execution runs inside of
 * it: that would be user code that it has called.
 */
extern bool ttl_validation_runs(void);

extern void ttl_validation_init(void);

#endif							/* TTL_VALIDATION_H */
