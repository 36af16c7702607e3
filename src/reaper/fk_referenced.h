/*-------------------------------------------------------------------------
 *
 * fk_referenced.h
 *	  Leaves out rows that others reference.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_FK_REFERENCED_H
#define TTL_FK_REFERENCED_H

#include "executor/tuptable.h"
#include "reaper/step.h"

/* Referenced keys of collected rows */
typedef struct TtlFkReferenced TtlFkReferenced;

/* The most rows that are looked up at once */
#define TTL_FK_REFERENCED_MAX	10000

/* Begins to note keys; NULL if no foreign key can hold rows of the table. */
extern TtlFkReferenced *ttl_fk_referenced_begin(const TtlStep *step);

/* Notes the keys of the row that is the next of the collected places. */
extern void ttl_fk_referenced_add(TtlFkReferenced *referenced, TupleTableSlot *slot);

/*
 * Takes the rows that are referenced out of the collected places, counts them as
 * blocked, and reports why.
 */
extern void ttl_fk_referenced_leave_out(TtlStep *step);

#endif							/* TTL_FK_REFERENCED_H */
