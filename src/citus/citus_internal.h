/*-------------------------------------------------------------------------
 *
 * citus_internal.h
 *	  What the files of this folder know of each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CITUS_INTERNAL_H
#define TTL_CITUS_INTERNAL_H

#include "executor/spi.h"
#include "nodes/parsenodes.h"

/*
 * catalogs.c
 */

/* Is Citus at work in this database? */
extern bool ttl_citus_is_here(void);

/* Does it keep copies of the table's rows, as of a reference table? */
extern bool ttl_citus_has_copies(Oid relid);

/* Errors (0A000) if the table is distributed by append or range. */
extern void ttl_citus_check_method(Oid relid);

/*
 * Connect to SPI for queries of our own, which find names in pg_catalog and nowhere else,
 * whatever the user's search_path.  Ended with the nest level that was returned.
 */
extern int	ttl_citus_connect(void);
extern void ttl_citus_disconnect(int nestlevel);

/*
 * The answer of such a query, the first column of its only row, as text.  Its plan is kept in
 * *saved, which is NULL at first, unless that is a null pointer.  And is that true, of $1?
 */
extern char *ttl_citus_query(const char *query, SPIPlanPtr *saved, int nargs, Oid *types,
							 Datum *values);
extern bool ttl_citus_is_true(const char *query, int64 value);

/*
 * calls.c
 */

/* ttl_citus_runs_own(), if Citus makes other tables of tables */
extern bool ttl_citus_replaces_table(void);

/* Does it work on a table, maybe by others' functions? */
extern bool ttl_citus_is_converting(void);

/*
 * propagation.c
 */

/*
 * Called before Citus makes shells of tables, tables of shells, or others of them: of that
 * table or those in that schema (InvalidOid: of any); and after it has.
 */
extern void ttl_propagation_before_conversion(Oid object);

/* A trigger is going to be created; and any command has ended. */
extern void ttl_propagation_trigger_begins(CreateTrigStmt *stmt);
extern void ttl_propagation_command_ended(Node *stmt);

/*
 * marks.c
 */

extern void ttl_marks_copy_begins(CopyStmt *stmt);

#endif							/* TTL_CITUS_INTERNAL_H */
