/*-------------------------------------------------------------------------
 *
 * reap_error.h
 *	  Which error is whose fault, and what comes of it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAP_ERROR_H
#define TTL_REAP_ERROR_H

#include "reaper/step.h"

/* Can the error be no row's fault? */
extern bool ttl_reap_error_is_no_rows(const ErrorData *error);

/* Is it that another row references the row? */
extern bool ttl_reap_error_is_reference(const ErrorData *error);

/* Handles an error that isn't blamed on a row: the leaf has to wait. */
extern void ttl_reap_error_handle_trouble(TtlStep *step, ErrorData *error);

/*
 * Handles an error in the deletion of a single row, if it is the table's fault
 * and not the row's.
 */
extern bool ttl_reap_error_handle_tables(TtlStep *step, ErrorData *error);

/* Counts and reports a row that cannot be deleted. */
extern void ttl_reap_error_block_row(TtlStep *step, const ErrorData *error);

/* Reports that rows are referenced. */
extern void ttl_reap_error_report_referenced(TtlStep *step, const ErrorData *error);

/*
 * A batch has deleted less rows than it was to, without an error.  Most often
 * they have gone or been renewed; but a trigger or a rule may have kept them,
 * and would for ever.
 */
extern void ttl_reap_error_handle_kept(TtlStep *step);

/*
 * At the exit of a worker: true if it is terminated because a batch couldn't be
 * cancelled.  Then the next worker gives the table a long pause.
 */
extern bool ttl_reap_error_handle_exit(void);

#endif							/* TTL_REAP_ERROR_H */
