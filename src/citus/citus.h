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
 *	  a policy is changed on the coordinator	the trigger is created anew (propagation.c)
 *	  UPDATE of a shell							is stamped on the shards (marks.c, stamp.c)
 *	  deletion									never from a shell, which has no rows
 *	  Citus copies a shard, or makes a table	it sees all rows, and the trigger doesn't
 *		of another							keep it from its work (calls.c)
 *	  pg_dump, row_security = off				queries carry to the shards that they see all
 *												rows (marks.c)
 *	  an archive								is refused (archive.c)
 *	  statistics								are gathered from all nodes (nodes.c)
 *
 * Nothing of Citus is linked or included; its catalogs are read by their names.
 *
 * This is the only header of the folder that other rooms include, and no more than ten of
 * their files do so.  Where Citus isn't loaded, all of these functions return at once.
 *
 * Each is asked for one thing that can't be asked otherwise: which relation is a shell or a
 * shard (3), whether a policy may be set here and reaches all nodes, and in which form (3),
 * whether Citus may be making tables of others (2), what becomes of a statement (2),
 * whether rows of a shard may be deleted (1), and what the shards of a shell answer (4).  Ten
 * more are called by the hooks of ttl.c alone.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CITUS_H
#define TTL_CITUS_H

#include "container/container.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

/* True if the relation is a shell: Citus keeps its rows in shards. */
extern bool ttl_citus_is_distributed(Oid relid);

/* True if a shell that is no container yet has no rows. */
extern bool ttl_citus_is_empty(Oid relid);

/*
 * Policies
 */

/* Errors (0A000) if the policy of that table is another node's to change. */
extern void ttl_citus_check_settable(Oid relid);

/*
 * Errors if a change of that table's policy, should it be distributed, would not reach all
 * nodes (55000), or if it is distributed in a way by which Citus doesn't place rows alone
 * (0A000).
 */
extern void ttl_citus_check_nodes(Oid relid);

/*
 * The arguments that the row trigger of a table has to have with that policy, as SQL;
 * empty where the policy needn't travel.
 */
extern char *ttl_citus_arguments(Oid relid, const TtlPolicy *policy);

/*
 * What Citus does itself
 */

/*
 * True within an extent (extents.c): in a call of one of Citus's functions that work on whole tables, or in
 * an outermost command, by which Citus may do so; and in such a call alone.
 */
extern bool ttl_citus_in_extent(void);
extern bool ttl_citus_in_call(void);

/*
 * Statements
 */

/*
 * A query is about to be planned: marks the shells in it if it sees stored rows, and sets
 * row_security for one that another node has sent.  True if the tables in it are to be planned as
 * if all rows were live.
 */
extern bool ttl_citus_prepare_query(Query *query);

/* Who stamps the rows of a statement */
typedef enum TtlStampFor
{
	TTL_STAMP_OWN,				/* the plan of the statement itself */
	TTL_STAMP_SHARDS,			/* plans of the statements on shards that
								 * Citus makes of it */
	TTL_STAMP_COPIES			/* those, but all alike, for each row has
								 * several copies */
} TtlStampFor;

extern TtlStampFor ttl_citus_stamp_for(Query *query, Oid target);

/*
 * Deletion and statistics
 */

/*
 * True if rows may be deleted from that shard.  False if it is none, or as long as Citus makes a
 * copy of it here, for references between its rows and others aren't there yet, nor is what
 * its rows have been renewed by; for what a move has left behind; for a table that
 * is locked against writers on all nodes; and for a reference table whose rows may be
 * referenced by rows on other nodes.  Until the transaction ends, Citus waits for it before
 * it copies from here what must not be written to.  To be called before the shard is locked.
 */
extern bool ttl_citus_lock_shard(Oid relid, bool waits);

/*
 * Deletes expired rows of a shell, so many of each shard at most, in transactions of their
 * own.  A shard that fails is reported at that level.  Returns how many are still stored
 * then, or 0 if that isn't known or max_rows is a limit.
 */
extern int64 ttl_citus_reap(Oid relid, int64 max_rows, int elevel);

/* Expired rows of all shards, see ttl.expired_count() */
extern int64 ttl_citus_count_expired(Oid relid);

/* Puts the rows of a shell that expire within that time, as ttl.expiring_rows() returns them. */
extern void ttl_citus_put_expiring(Oid relid, Interval *within, ReturnSetInfo *result);

/* Puts statistics of distributed tables, as ttl.stat_containers() returns them. */
extern void ttl_citus_put_statistics(ReturnSetInfo *result);

/* The shell of a shard, and its number, or InvalidOid if the relation isn't one. */
extern Oid	ttl_citus_find_shell(Oid relid, int64 *shard);

/*
 * For the hooks of ttl.c
 */

/* False if Citus isn't loaded. */
extern bool ttl_citus_init(void);

extern void ttl_citus_analyzed(Query *query);
extern bool ttl_citus_needs_fmgr(Oid function);
extern void ttl_citus_fmgr(FmgrHookEventType event, FmgrInfo *flinfo);

/* True if the command is Citus's own, in the midst of its work on a table. */
extern bool ttl_citus_before_utility(PlannedStmt *pstmt);
extern void ttl_citus_after_utility(PlannedStmt *pstmt);
extern void ttl_citus_end_utility(PlannedStmt *pstmt);
extern void ttl_citus_invalidate(Oid relid);

/* Sends the policies of these containers to all nodes; of all, if Citus has made tables of others. */
extern void ttl_citus_send(List *containers);

#endif							/* TTL_CITUS_H */
