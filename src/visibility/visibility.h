/*-------------------------------------------------------------------------
 *
 * visibility.h
 *	  Hiding: reads and writes never meet an expired row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_VISIBILITY_H
#define TTL_VISIBILITY_H

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

extern void ttl_visibility_init(void);

/*
 * hide.c
 */

/*
 * What ttl knows of a planner's call.  It is made anew for each, and the
 * outer one is restored when a call nested in it ends.
 */
typedef struct TtlPlanning
{
	bool		sees_stored;	/* foreign-key machinery: hide nothing, but
								 * from its subqueries */
	bool		validates;		/* a foreign key: hide nothing of the user's
								 * own */
	bool		deletes;		/* expired rows, in the tables that it calls
								 * TTL_DOOMED */
	bool		hides;			/* a filter has been put somewhere */
} TtlPlanning;

extern TtlPlanning *ttl_hide_planning;

/* Is the query one of the foreign-key machinery that needs all stored rows? */
extern bool ttl_hide_is_referential(Query *query, const char *query_string);

/* Is it one by which ALTER TABLE validates a foreign key? */
extern bool ttl_hide_is_validation(Query *query);

/* Moves the filter to the head of each scan's quals. */
extern void ttl_hide_put_first(PlannedStmt *stmt);

extern void ttl_hide_init(void);

/*
 * stamp.c
 */
extern void ttl_stamp_query(Query *query);

/*
 * evict.c
 */

/*
 * Error context of a deletion that a user's statement has caused: tells what is
 * going on, but no values of a row that is gone for the user.
 */
typedef struct TtlEviction
{
	const char *container;
	const char *reason;			/* why the row is in the way */
	bool		by_owner;		/* does the container belong to the user? */
} TtlEviction;

extern void ttl_evict_explain(void *eviction);
extern void ttl_evict_init(void);

/*
 * foreign_key.c, reference.c, copy.c
 */

/* What the OLD of a rule is called that a foreign key's action fires */
#define TTL_STORED	"ttl stored"

extern void ttl_foreign_key_mark_old(Query *query, const char *text);
extern void ttl_foreign_key_init(void);
extern void ttl_reference_init(void);
extern void ttl_copy_init(void);

#endif							/* TTL_VISIBILITY_H */
