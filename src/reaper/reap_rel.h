/*-------------------------------------------------------------------------
 *
 * reap_rel.h
 *	  What is remembered about the tables of containers, from turn to turn.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAP_REL_H
#define TTL_REAP_REL_H
#include "container/container.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "expiry/expiry.h"
#include "storage/lock.h"
#include "tids.h"
#include "utils/elog.h"
#include "utils/hsearch.h"
#include "utils/relcache.h"

/*
 * truncate_partition.c
 */

/* What is remembered about a partition; all zeros in the beginning. */
typedef struct TtlTruncate
{
	TimestampTz asked_at;		/* 0 = not yet */
	TransactionId next_xid;		/* at that time */
	uint64		generation;		/* of the container's policy at that time */
	VirtualTransactionId *open; /* transactions open then, and maybe still */
	int			nopen;
	TimestampTz next_at;		/* do not try before */
} TtlTruncate;

/* What an attempt may use. */
typedef struct TtlTruncateLimits
{
	int64		max_rows;
	int64		max_pages;
	TimestampTz until;			/* DT_NOEND = as long as it takes */
} TtlTruncateLimits;

/*
 * Is it worth an attempt now?  Cheap.  The relation is open and locked as for
 * DELETE, the policy lock is held; what has to be remembered is allocated in
 * the context.
 */
extern bool ttl_truncate_partition_ready(TtlTruncate *whole, Relation rel,
							const TtlContainer *container,
							MemoryContext context);

/*
 * Empties the partition if nobody can tell the difference from deletion, and
 * returns how many rows it had; else returns -1, and has done nothing.  A
 * snapshot is active.  The table is locked as before, but must not be open.
 */
extern int64 ttl_truncate_partition(TtlTruncate *whole,
							 const TtlContainer *container,
							 const TtlTruncateLimits *limits);

extern void ttl_truncate_partition_forget(TtlTruncate *whole);

/*
 * rel_state.c
 */

/*
 * A pass goes once along the expired range of a table, up to what had expired when
 * it began.  Rows that can't be deleted are counted and left behind; the next pass
 * meets them again.
 */
typedef struct TtlPass
{
	bool		is_running;
	bool		is_stale;		/* table or policy have changed since it began */
	bool		skipped_locked; /* it has left out locked rows */
	TimestampTz now;			/* it covers rows that had expired by then */
	TimestampTz next_at;		/* start of the next pass */
	int64		busy;			/* time spent on finding rows, and on failing to
								 * delete them, in microseconds */
	int64		blocked;		/* rows that could not be deleted, since it began */
	int64		last_blocked;	/* ... and during the pass before */

	/* what is logged already */
	int64		raised;			/* rows of 'blocked' whose deletion failed */
	int64		last_raised;
	bool		references;		/* are others of them referenced? */
	bool		last_references;
	bool		references_logged;
} TtlPass;

/* A sweep of a table that has BRIN indexes, see brin_scan.c */
typedef struct TtlBrinScan
{
	bool		is_running;
	bool		is_truncation;		/* from the first page */
	bool		is_within_range;	/* has it stopped there? */
	bool		found;			/* rows to delete */
	TtlExpiryPosition mark;
	BlockNumber npages;			/* when it began */
	int32		default_ttl;	/* by which it goes */
	int64		ranges;			/* it has seen */
	TimestampTz busy;			/* how long it has taken */
	TimestampTz earliest;		/* expiry in ranges that it has passed by */
	TimestampTz next_at;		/* when the next one begins, from the first
								 * page */
} TtlBrinScan;

typedef struct TtlRelState
{
	TtlPass		pass;
	TtlExpiryPosition mark;			/* rows before it are deleted, or left behind */
	TtlBrinScan	sweep;
	TimestampTz paused_until;	/* the table itself is in trouble */
	int64		pause;			/* length of the next such pause */
	int			trouble;		/* SQLSTATE of the error that was logged for it */
	bool		is_stuck;		/* has a batch timed out since rows of it were
								 * deleted? */
	int			single;			/* so many places are deleted one by one */
} TtlRelState;

/* Tables of this database: stores the state, as long as there is room. */
extern void ttl_rel_state_put(Oid relid, const TtlRelState *state);
extern void ttl_rel_state_remove(Oid relid);

/* Calls the function for each stored state of this database. */
typedef void (*TtlRelStateVisitor) (Oid relid, const TtlRelState *state, void *arg);
extern void ttl_rel_state_visit(TtlRelStateVisitor visit, void *arg);

extern void ttl_rel_state_forget_database(Oid dboid);

extern void ttl_rel_state_init(void);

/*
 * reap_rel.c
 */

/* How a caller wants expired rows to be deleted. */
typedef struct TtlReapMode
{
	bool		by_worker;		/* obeys reaping, gives way, keeps errors to
								 * itself; a user's call does not */
	bool		commits;		/* a transaction for each batch */
} TtlReapMode;

/* What is remembered about a table. */
typedef struct TtlReapRel
{
	Oid			relid;			/* MUST BE FIRST */
	TimestampTz last_turn;
	TtlRelState state;			/* what the next worker gets */
	bool		is_stored;		/* ... if there is an entry for it */

	bool		is_known;		/* has a pass ended, or an entry been found? */

	TtlTids		places;			/* collected, to be deleted in batches, ... */
	int			next_place;		/* ... those from here on */
	int64		blocked;		/* rows behind the mark that can't be deleted;
								 * not yet in the pass's count */
	TtlExpiryPosition next_mark;	/* the mark when all places are dealt with */
	bool		more;			/* did the walk stop before the end? */
	bool		lacks_index;	/* logged already */
	bool		skip_asking;	/* in this pass the queries about references
								 * have failed */

	TimestampTz left_wait;		/* time between passes that delete all */
	TimestampTz pass_wait;		/* ... after this pass */

	int			ranges;			/* entries in the table of ranges */

	TimestampTz spared_since;	/* the change of policy by which places were
								 * left out, 0 = none */

	TtlTruncate	whole;			/* if it can be emptied at once */

	int			batch_size;
	int			fixed_size;		/* what the container wants it to be, or 0 */
	double		row_cost;		/* of the last batch, 0 = unknown */
	TimestampTz locked_until;	/* leave out locked rows at once till then */
} TtlReapRel;

/* Pages that a sweep has been to. */
typedef struct TtlBrinRangeKey
{
	Oid			relid;
	BlockNumber first;
} TtlBrinRangeKey;

typedef struct TtlBrinRange
{
	TtlBrinRangeKey key;		/* MUST BE FIRST */
	BlockNumber end;
	TimestampTz been_at;
	bool		is_renewed;		/* summarized anew since */
	TransactionId dead_before;	/* all that has gone is dead for a horizon
								 * that has come here; invalid = it hasn't yet
								 * gone */
} TtlBrinRange;

/* All that is remembered; belongs to one process. */
typedef struct TtlMemory
{
	TtlReapMode mode;
	MemoryContext context;		/* all that is remembered */
	MemoryContext step_context; /* reset after each step */
	HTAB	   *leaves;
	HTAB	   *ranges;
	int64		allocated;		/* places there is room for */
	TimestampTz rest_until;		/* batches of stuck tables wait till then */
} TtlMemory;

/* Rows of the first batch */
#define TTL_BATCH_START			50

/* The least time between passes that delete all */
#define TTL_LEFT_MIN_WAIT		(10 * USECS_PER_SEC)

/* An empty memory */
extern TtlMemory *ttl_reap_rel_memory_create(MemoryContext parent,
										 TtlReapMode mode);

/* Restores what earlier workers have stored; called in a transaction. */
extern void ttl_reap_rel_memory_restore(TtlMemory *memory);

/* Forgets tables that had no turn since the given time. */
extern void ttl_reap_rel_memory_trim(TtlMemory *memory, TimestampTz since);

/* What is remembered about a table */
extern TtlReapRel *ttl_reap_rel_enter(TtlMemory *memory, Oid relid);

/* Stores the state for the next worker if it needs it. */
extern void ttl_reap_rel_store(TtlMemory *memory, TtlReapRel *leaf);

extern void ttl_reap_rel_add_place(TtlMemory *memory, TtlReapRel *leaf, ItemPointer tid);
extern void ttl_reap_rel_clear_places(TtlMemory *memory, TtlReapRel *leaf);

/* Forgets what a walk has collected, as if it had not taken place. */
extern void ttl_reap_rel_discard(TtlMemory *memory, TtlReapRel *leaf);

/*
 * Passes.  Begins one over what had expired at 'now'; accounts for the places that
 * were collected and dealt with; ends the pass and schedules the next one.
 */
extern void ttl_reap_rel_begin_pass(TtlReapRel *leaf, TimestampTz now);
extern void ttl_reap_rel_reset(TtlMemory *memory, TtlReapRel *leaf);

/* Nothing in the table has expired. */
extern void ttl_reap_rel_found_nothing(TtlReapRel *leaf);

/* Has the next pass begin at once, or right after the running one. */
extern void ttl_reap_rel_want_pass(TtlReapRel *leaf);

/*
 * The number of rows that can't be deleted, as far as known.  A pass that runs has
 * not yet met all of them.
 */
extern int64 ttl_reap_rel_blocked_rows(const TtlReapRel *leaf);

/* Lets the leaf alone for a while, longer each time; forgets that it was in trouble. */
extern void ttl_reap_rel_pause(TtlReapRel *leaf);
extern void ttl_reap_rel_pause_long(TtlReapRel *leaf);
extern void ttl_reap_rel_end_pause(TtlReapRel *leaf);

/*
 * brin_scan.c
 */
extern HTAB *ttl_brin_ranges_create(MemoryContext context);

/* Remembers that a sweep is just going there; not if there is no room. */
extern void ttl_brin_add_range(TtlMemory *memory, TtlReapRel *leaf, BlockNumber first,
							   BlockNumber end);

/* Has it been there since then? */
extern bool ttl_reap_rel_has_been_to(TtlMemory *memory, TtlReapRel *leaf, BlockNumber first,
								 TimestampTz since);

/* What there was to delete has gone. */
extern void ttl_brin_seal_ranges(TtlMemory *memory, TtlReapRel *leaf);

/* At most so many ranges that can be summarized anew with that horizon. */
extern int	ttl_brin_ranges_to_renew(TtlMemory *memory, TtlReapRel *leaf,
									 TransactionId horizon, TtlBrinRange **ranges, int max);

extern void ttl_brin_forget_ranges(TtlMemory *memory, TtlReapRel *leaf);

/*
 * reap_rel.c
 */

/* Why a turn ended. */
typedef enum TtlTurnEnd
{
	TTL_TURN_DONE,				/* nothing is left, or nothing that can go now */
	TTL_TURN_SPENT,				/* cost, rows or time are used up */
	TTL_TURN_AWAY				/* in somebody's way, or in trouble: later */
} TtlTurnEnd;

/* A turn: what a container may use, and what came of it. */
typedef struct TtlTurn
{
	int64		max_cost;
	int64		max_rows;
	TimestampTz until;			/* DT_NOEND = as long as it takes */
	int64		max_batch_cost; /* as far as can be told beforehand */
	bool		changed;		/* table or policy have been: no pause goes on */

	/*
	 * Called before each transaction but the turn's first, when no lock is
	 * held: the place to nap.  *napped tells that time has passed.  If it
	 * returns false the turn ends.  NULL = don't.
	 */
	bool		(*pace) (const struct TtlTurn *turn, bool *napped);

	TtlTurnEnd	end;
	int64		cost;
	int64		rows;
	int64		blocked;		/* rows that can't be deleted; before the turn:
								 * as the statistics have it */
	List	   *leaves;			/* the container's tables, during the turn */
	int			nleaves;
	TimestampTz due;			/* when to come again, DT_NOEND = who knows */
} TtlTurn;

/*
 * Runs a turn.  Called in a transaction, and returns in one, though maybe not
 * the same.
 */
extern void ttl_turn_run(TtlMemory *memory, Oid container,
						 TtlTurn *turn);

/*
 * batch.c
 */

/* A step: what one transaction does to a leaf. */
typedef struct TtlStep
{
	TtlMemory  *memory;
	TtlReapRel    *leaf;
	TtlContainer container;
	Relation	rel;
	TimestampTz now;			/* rows that expired before go ... */
	bool		spares;			/* ... but for those that a change of policy
								 * has made expired */
	int64		max_cost;		/* what is left of the turn */
	int64		max_batch_cost;
	int64		max_rows;

	TimestampTz deadline;		/* the step is cancelled then (ttl.batch_timeout) */
	bool		timed_out;		/* ... and an attempt of it has been */
	struct TtlFkReferenced *referenced;	/* keys of what was collected, or NULL */
	const char *error;			/* why rows could not be deleted, or NULL */

	/* for ttl_step_delete */
	ItemPointer tids;
	int			ntids;
	bool		skip_locked;
	bool		with_referencing;
	int64		deleted;
	bool		emptied;		/* by TRUNCATE */
	bool		origin_wanted;	/* about to take the replication origin */
	bool		works_without_rows;
} TtlStep;

/* What came of a step. */
typedef enum TtlStepResult
{
	TTL_STEP_MORE,				/* go on */
	TTL_STEP_DONE,				/* nothing is left here for now */
	TTL_STEP_AWAY				/* cannot go on now */
} TtlStepResult;

/* Deletes the step's rows. */
extern void ttl_step_delete(TtlStep *step);

/*
 * Tries whether the table lets rows be deleted at all.  Raises an error in any
 * case, so that nothing of it stays; step->works_without_rows tells.
 */
extern void ttl_step_delete_nothing(TtlStep *step);

/*
 * Does something in a subtransaction, with a short lock_timeout, until the step's
 * deadline.  Returns NULL on success, else the error.
 */
extern ErrorData *ttl_step_attempt(void (*action) (TtlStep *), TtlStep *step);

/* The step that is being attempted although its deadline has passed, or NULL. */
extern const TtlStep *ttl_step_overdue(void);

/*
 * reap_rel.c
 */

/* Time between walks from the mark. */
#define TTL_MARK_WAIT			(1 * USECS_PER_SEC)

/*
 * Collects the places of rows to delete, starting at the mark or at the left
 * edge.
 */
extern void ttl_expiry_scan_run(TtlStep *step);

/*
 * Is anything left of what was collected?  If not, the mark moves forward, and the pass
 * ends if it has come to its end.
 */
extern bool ttl_expiry_scan_has_places(TtlMemory *memory, TtlReapRel *leaf);

/*
 * Do walks start at a mark, rather than at the left edge?  Behind a mark may
 * lie more dead entries than one wants to read again.
 */
extern bool ttl_expiry_scan_is_marked(const TtlReapRel *leaf);

/*
 * Is the earliest row of the leaf not to be deleted yet?  *due is when it will
 * be, or when to look again.
 */
extern bool ttl_expiry_scan_nothing_due(TtlStep *step, TimestampTz *due);

/*
 * brin_scan.c
 */

/* Is there nothing to do for it?  *due is when there will be, at the latest. */
extern bool ttl_brin_scan_rests(TtlStep *step, TimestampTz *due);

/*
 * Collects places of rows to delete, from where it has stopped last.  If there are
 * none, summarizes pages anew that it has been to.
 */
extern void ttl_brin_scan_run(TtlStep *step);

/*
 * fk_referenced.c
 */

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

/* Deletes the next batch. */
extern TtlStepResult ttl_batch_delete(TtlStep *step);

/* Empties the leaf, if it can be done at once.  Returns whether it has. */
extern bool ttl_batch_try_truncate(TtlStep *step);

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

#endif							/* TTL_REAP_REL_H */
