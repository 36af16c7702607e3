/*-------------------------------------------------------------------------
 *
 * writing.h
 *	  What the files about rows that are written use of each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_WRITING_H
#define TTL_WRITING_H

#include "commands/trigger.h"
#include "container/container.h"
#include "execution.h"
#include "nodes/execnodes.h"

/*
 * index_predicates.c
 */
extern void ttl_index_predicates_prepare(ResultRelInfo *target, EState *estate,
										 const TtlContainer *container);
extern void ttl_index_predicates_await_update(TtlExecution *execution);

/*
 * conflicts.c
 */
extern void ttl_conflicts_report_row(void);
extern bool ttl_conflicts_may_do_nothing(const QueryDesc *query_desc);
extern void ttl_conflicts_check(ResultRelInfo *target, EState *estate);
extern void ttl_conflicts_check_routed(const QueryDesc *query_desc);

/*
 * written_row.c
 */
extern HeapTuple ttl_written_row_complete(Relation rel, const TtlContainer *container,
										  HeapTuple tuple, TupleTableSlot *slot);
extern bool ttl_written_row_has_ttl_check(const TtlContainer *container, Relation rel);
extern void ttl_written_row_check_ttl(const TtlContainer *container, const TriggerData *trigger,
									  const FmgrInfo *function, TupleTableSlot *slot);

/*
 * targets.c
 */
extern const Bitmapset *ttl_targets_key_columns(Relation rel);
extern void ttl_targets_routed(Relation rel);

#endif							/* TTL_WRITING_H */
