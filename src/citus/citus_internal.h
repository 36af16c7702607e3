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

/* True if Citus is at work in this database. */
extern bool ttl_citus_is_here(void);

/* How Citus distributes a table's rows, from how pg_dist_partition describes it */
typedef enum TtlDistribution
{
	TTL_NOT_DISTRIBUTED,
	TTL_DISTRIBUTED_ONCE,		/* each row in one shard, on one node */
	TTL_DISTRIBUTED_IN_COPIES,	/* each row on several nodes, as of a
								 * reference table */
	TTL_DISTRIBUTED_OTHERWISE	/* by append or range: Citus doesn't know
								 * which shard has a row */
} TtlDistribution;

extern TtlDistribution ttl_citus_distribution(Oid relid);

/*
 * nodes.c
 */

/*
 * The answer of a query of our own, the first column of its only row, as text.  It finds names
 * in pg_catalog and nowhere else, whatever the user's search_path.  Its plan is kept in *saved,
 * which is NULL at first, unless that is a null pointer.  The second gives it a value for $1, and
 * returns true if it answers so.
 */
extern char *ttl_citus_query(const char *query, SPIPlanPtr *saved, int nargs, Oid *types,
							 Datum *values);
extern bool ttl_citus_is_true(const char *query, int64 value);

/*
 * extents.c
 */

/* What Citus does to a table, from a call of its function or a command to the end of that */
typedef struct TtlExtent
{
	struct TtlExtent *outer;
	bool		converts;		/* tables, of Citus or not */
	int			depth;			/* of executions when it began */
	int			others;			/* functions that run in it */
} TtlExtent;

extern void ttl_extent_begin(TtlExtent *extent, bool converts);
extern void ttl_extent_end(TtlExtent *extent);

/* The same for the outermost command; none may have begun. */
extern void ttl_extent_begin_command(void);
extern void ttl_extent_end_command(void);

/* True on the level of executions where the innermost extent has begun. */
extern bool ttl_extent_is_here(void);

/* So many functions of others have started (negative: ended) in the innermost extent, if there is one. */
extern void ttl_extent_count(int started);

/*
 * True if what is planned or executed now is Citus's own, in the midst of its work on a table;
 * and if that makes other tables of tables.
 */
extern bool ttl_citus_runs_own(void);
extern bool ttl_citus_replaces_table(void);

/*
 * propagation.c
 */

/*
 * Called before Citus makes shells of tables, tables of shells, or others of them, of that table (or schema;
 * InvalidOid: of any): errors (0A000) if that is a container with an archive; and after it has.
 */
extern void ttl_propagation_before_conversion(Oid object);
extern void ttl_propagation_after_conversion(void);

/* A trigger is going to be created; and any command has ended. */
extern void ttl_propagation_trigger_begins(CreateTrigStmt *stmt);
extern void ttl_propagation_command_ended(Node *stmt);

/*
 * marks.c
 */

extern void ttl_marks_copy_begins(CopyStmt *stmt);

#endif							/* TTL_CITUS_INTERNAL_H */
