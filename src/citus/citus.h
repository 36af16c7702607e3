/*-------------------------------------------------------------------------
 *
 * citus.h
 *	  Containers that are distributed tables of Citus.
 *
 * Citus keeps the rows of a distributed table in shards, which are ordinary tables on
 * any of its nodes; what goes by the table's own name is a shell, on each node the same.
 * A policy belongs to the shell on the coordinator.  Citus carries the row trigger of a
 * table to the shells and shards of all nodes, in the transaction that makes it, and
 * again when it moves or splits a shard, adds a node, or makes a table anew; so the
 * policy travels as the arguments of that trigger.  Wherever such a trigger is created,
 * its table becomes a container with that policy (propagation.c).
 *
 * So each shard is a container, on its own node, like any other; rows are hidden, keys
 * freed and rows deleted there.  What is left to do:
 *
 *	  a policy is changed on the coordinator	the trigger is created anew (trigger.c of
 *												configuration)
 *	  UPDATE of a shell							stamped by a function that Citus lets pass
 *												(stamp.c)
 *	  deletion									never from a shell, which has no rows
 *	  Citus copies a shard, or makes a table	it sees all rows, and the trigger doesn't
 *		of another							keep it from its work (calls.c)
 *	  pg_dump, row_security = off				queries carry to the shards that they see all
 *												rows (marks.c)
 *	  an archive								rows of a shard move to the shard of it that is
 *												co-located (propagation.c)
 *	  statistics								are gathered from all nodes (nodes.c)
 *
 * Nothing of Citus is linked or included; its catalogs are read by their names.  Where it
 * isn't loaded, nothing here does anything.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CITUS_H
#define TTL_CITUS_H

#include "container/container.h"
#include "executor/spi.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "utils/reltrigger.h"

/*
 * catalogs.c
 */

/* Is the server one that has Citus?  And is it at work in this database? */
extern bool ttl_citus_is_loaded(void);
extern bool ttl_citus_is_here(void);

/* Is the relation a shell: does Citus keep its rows in shards? */
extern bool ttl_citus_is_distributed(Oid relid);

/* Does it keep copies of them, as of a reference table? */
extern bool ttl_citus_has_copies(Oid relid);

/* Errors (0A000) if it is distributed in a way by which Citus doesn't place rows alone. */
extern void ttl_citus_check_method(Oid relid);

/* The shell of a shard, and its number, or InvalidOid if the relation isn't one. */
extern Oid	ttl_citus_find_shell(Oid relid, int64 *shard);
extern Oid	ttl_citus_shell_of(Oid relid);

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
 * Lets Citus take commands about the row trigger, until the caller's nest level of
 * settings ends.
 */
extern void ttl_citus_allow_triggers(void);

extern void ttl_citus_init(void);

/*
 * calls.c
 */

/* Is what is planned or executed now Citus's own, in the midst of its work on a table? */
extern bool ttl_citus_runs_own(void);

/* The same of a query that is about to be planned */
extern bool ttl_citus_is_own_query(const Query *query);

/* The same, if it makes other tables of tables */
extern bool ttl_citus_replaces_table(void);

/* Has it made one since the last call? */
extern bool ttl_citus_tables_replaced(void);

/* Is a function of Citus called that makes other tables of tables? */
extern bool ttl_citus_is_called(void);

/* Does it work on a table, maybe by others' functions? */
extern bool ttl_citus_is_converting(void);

/*
 * Called before it makes shells of tables, tables of shells, or others of them: of that table
 * or those in that schema (InvalidOid: of any); and after it has.
 */
extern void ttl_citus_on_convert(void (*before) (Oid object), void (*after) (void));

/* For the hooks of ttl.c */
extern bool ttl_calls_needs_fmgr(Oid function);
extern void ttl_calls_fmgr(FmgrHookEventType event, FmgrInfo *flinfo);
extern void ttl_calls_before_utility(PlannedStmt *pstmt);
extern void ttl_calls_end_utility(PlannedStmt *pstmt);

/*
 * propagation.c
 */

/*
 * The arguments that the row trigger of a table has to have with that policy, as SQL;
 * empty where the policy needn't travel.
 */
extern char *ttl_citus_arguments(Oid relid, const TtlPolicy *policy);

/* The arguments that it has, in the same form. */
extern char *ttl_citus_arguments_of(const Trigger *trigger);

/*
 * The table that rows of the container move to: its archive or, if the container is a
 * shard, that shard of the archive which is co-located with it.  OIDs of tables that have
 * gone are returned as they are.  Reports at that level, and returns InvalidOid, if rows
 * cannot move there (0A000).  The column that distributes both tables, if any, has to be
 * taken along.
 */
extern Oid	ttl_citus_find_archive(Oid container, const TtlPolicy *policy,
								   char **distribution_column, int elevel);

/* The table that the arguments of the row trigger name as archive, or InvalidOid */
extern Oid	ttl_citus_named_archive(Oid relid);

/* The row trigger of a container; on shards Citus adds a number to its name. */
extern Trigger *ttl_citus_find_trigger(TriggerDesc *triggers);

/*
 * The trigger of that table is being created with arguments of our own: its policy is
 * the one that they were made from.  Returns the table of which this was said before; an
 * event trigger may do so again.
 */
extern Oid	ttl_citus_show_stored(Oid relid);
extern bool ttl_citus_shows_stored(Oid relid);

/* Errors (0A000) if the policy of that table is another node's to change. */
extern void ttl_citus_check_settable(Oid relid);

/*
 * May rows be deleted from a table with a propagated policy that is no shell?  Not as long
 * as Citus makes a copy of it here, for references between its rows and others aren't
 * there yet, nor is what its rows have been renewed by; nor from what a move has left
 * behind; nor from a table that is locked against writers on all nodes; nor from a
 * reference table whose rows may be referenced by rows on other nodes.  Until the
 * transaction ends, Citus waits for it before it copies from here what must not be written
 * to.
 */
extern bool ttl_citus_lock_shard(Oid relid, bool waits);

/* Locks the shell of a shard, if it is one, against Citus's making another table of it: before the shard. */
extern void ttl_citus_wait_for_shell(Oid relid);

extern void ttl_propagation_before_utility(PlannedStmt *pstmt);
extern void ttl_propagation_after_utility(PlannedStmt *pstmt);

/*
 * marks.c
 */

/*
 * Marks the shells in a query that is about to be planned, if it sees stored rows.  True
 * if the tables in it are to be planned as if all rows were live.
 */
extern bool ttl_citus_mark(Query *query);

extern void ttl_marks_analyzed(Query *query);
extern void ttl_marks_before_utility(PlannedStmt *pstmt);

/*
 * nodes.c
 */

/* Has a distributed table that is no container yet no rows? */
extern bool ttl_citus_is_empty(Oid relid);

/* Expired rows of all shards, see ttl.expired_count() */
extern int64 ttl_citus_count_expired(Oid relid);

/*
 * Errors (55000) if a change of that table's policy, should it be distributed, would not
 * reach all nodes.
 */
extern void ttl_citus_check_nodes(Oid relid);

/*
 * Deletes expired rows, so many of each shard at most, in transactions of their own.  A
 * shard that fails is reported at that level.  Returns how many are still stored then, or 0
 * if that isn't known or max_rows is a limit.
 */
extern int64 ttl_citus_reap(Oid relid, int64 max_rows, int elevel);

/* Puts the rows of a distributed table that expire within that time, as ttl.expiring_rows() returns them. */
extern void ttl_citus_put_expiring(Oid relid, Interval *within, ReturnSetInfo *result);

/* Puts statistics of distributed tables, as ttl.stat_containers() returns them. */
extern void ttl_citus_put_statistics(ReturnSetInfo *result);

#endif							/* TTL_CITUS_H */
