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
 * its table becomes a container with that policy (carried.c).
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
#include "nodes/execnodes.h"
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

/* The shell of a shard, or InvalidOid if the relation isn't one. */
extern Oid	ttl_citus_shell_of(Oid relid);

/*
 * May rows be deleted from a table with a carried policy that is no shell?  Not as long
 * as Citus makes a copy of it here, for references between its rows and others aren't
 * there yet, nor is what its rows have been renewed by; nor from what a move has left
 * behind; nor from a reference table of which this node can't tell whether rows are
 * referenced.  Until the transaction ends, Citus waits for it before it copies from here
 * what must not be written to.
 */
extern bool ttl_citus_lock_shard(Oid relid, bool waits);

/*
 * carried.c
 */

/*
 * The arguments that the row trigger of a table has to have with that policy, as SQL;
 * empty where the policy needn't travel.
 */
extern char *ttl_citus_arguments(Oid relid, const TtlPolicy *policy);

/* The arguments that it has, in the same form. */
extern char *ttl_citus_arguments_of(const Trigger *trigger);

/* The row trigger of a container; on shards Citus adds a number to its name. */
extern Trigger *ttl_citus_find_trigger(TriggerDesc *triggers);

/*
 * Lets Citus take commands about the row trigger, until the caller's nest level of
 * settings ends.
 */
extern void ttl_citus_allow_triggers(void);

/*
 * The trigger of that table is being created with arguments of our own: its policy is
 * the one that they were made from.  Returns the table of which this was said before; an
 * event trigger may do so again.
 */
extern Oid	ttl_citus_spare(Oid relid);
extern bool ttl_citus_is_spared(Oid relid);

/* Errors (0A000) if the policy of that table is another node's to change. */
extern void ttl_citus_check_settable(Oid relid);

/*
 * calls.c
 */

/* A function is about to be called, by the look of it. */
extern void ttl_citus_function_called(Oid function);

/*
 * Is a query with that text, which is being planned, the one by which a function of Citus
 * copies a shard, so that it sees all rows?
 */
extern bool ttl_citus_copies_shard(const char *query_string);

/* Does a call run by which Citus makes another table of a distributed one? */
extern bool ttl_citus_replaces_table(void);

/* May what runs be Citus that makes a table of a distributed one? */
extern bool ttl_citus_may_make_tables(void);

/*
 * Has a function of Citus run that may have made shells of tables, or tables of shells,
 * since this was asked last?  'unseen' tells that it may have been another user who has
 * called it.
 */
extern bool ttl_citus_tables_changed(bool *unseen);

/*
 * nodes.c
 */

/* Expired rows of all shards, see ttl.expired_count() */
extern int64 ttl_citus_count_expired(Oid relid);

/* Deletes expired rows, so many of each shard at most, in transactions of their own. */
extern void ttl_citus_reap(Oid relid, int64 max_rows);

/* Puts statistics of distributed tables, as ttl.stat_containers() returns them. */
extern void ttl_citus_put_statistics(ReturnSetInfo *result);

extern void ttl_citus_init(void);

/* The parts of that */
extern void ttl_carried_init(void);
extern void ttl_calls_init(void);

#endif							/* TTL_CITUS_H */
