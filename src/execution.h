/*-------------------------------------------------------------------------
 *
 * execution.h
 *	  State of each running execution of a plan: its clock, and which rows it
 *	  sees.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXECUTION_H
#define TTL_EXECUTION_H

#include "access/xact.h"
#include "datatype/timestamp.h"
#include "executor/execdesc.h"
#include "nodes/execnodes.h"
#include "nodes/pg_list.h"
#include "parser/parse_node.h"

/* Which rows of a container an execution works on. */
typedef enum TtlRowMode
{
	TTL_SEES_LIVE,				/* an ordinary statement: rows not expired */
	TTL_SEES_EXPIRED			/* a physical deletion: in the tables that it
								 * names, expired rows only */
} TtlRowMode;

typedef struct TtlExecution
{
	QueryDesc  *query_desc;
	TimestampTz clock;			/* the wall clock when it started, or when its
								 * snapshot was first read */
	TimestampTz reading_now;	/* the same, or what ttl.now was set to */
	TtlRowMode	row_mode;
	Oid			user;			/* on whose behalf it runs */
	TimestampTz expired_at;		/* if TTL_SEES_EXPIRED: expired by when */
	Oid			role;			/* the current user when it started */
	bool		user_changed;	/* inside a SECURITY DEFINER function */
	bool		touches;		/* its UPDATEs set the clock of their rows */
	bool		follows_leader; /* a parallel worker's part of the query */
	bool		hides;			/* its plan has filters in it (hide.c) */
	bool		observed;		/* reads a container, writes, or serves a
								 * foreign key */
	List	   *policies;		/* what is_live.c has resolved for it */
	bool		keeps_keys;		/* writes a container whose row trigger is
								 * disabled (targets.c) */
	List	   *cascaded;		/* containers that its referential actions
								 * have updated */
	bool		hands_on_keys;	/* one of these has been ON UPDATE CASCADE */
	const ResultRelInfo *published_root;	/* the last target whose
											 * partitions targets.c has
											 * published */
	struct TtlPlanCopy *plan_copy;	/* that it was started with, or NULL */
	struct ScanFilter *scan_filters;	/* filters of its scans
										 * (scan_filter.c) */
	ExecProcNodeMtd outer_of_update;	/* that index_predicates.c has
										 * replaced */
	CommandId	left_since;		/* the first command whose AFTER triggers
								 * another execution has left to this one */
	char	   *handed_over;	/* to its parallel workers, or NULL */
	struct TtlExecution *next;	/* see execution.c */
	MemoryContextCallback forget;
} TtlExecution;

extern TtlExecution *ttl_execution_current(void);
extern TtlExecution *ttl_execution_of(const EState *estate);
extern bool ttl_execution_touches(void);
extern bool ttl_execution_may_fire_for(CommandId command);
extern int	ttl_execution_depth(void);
extern TimestampTz ttl_execution_reference_time(void);

/* A SET CONSTRAINTS or COPY FROM: inside of which execution (NULL = none), and as whom the former, else InvalidOid */
typedef struct TtlChecking
{
	const TtlExecution *within;
	Oid			role;
	bool		copies;
	TimestampTz clock;			/* of COPY FROM; 0 = it hasn't started */
} TtlChecking;

extern TtlChecking ttl_execution_begin_checking(PlannedStmt *pstmt);
extern void ttl_execution_start_copying(void);
extern void ttl_execution_end_checking(TtlChecking outer);
extern Oid	ttl_execution_constraints_role(const TtlExecution *outer);
extern bool ttl_execution_checks_deferred(const TtlExecution *outer);

/* Aliases in the text of a deletion: of tables of which it sees expired rows, ... */
#define TTL_TO_DELETE	"ttl to delete"
/* ... and the others, expired or not: what it leaves stored */
#define TTL_STAYING	"ttl staying"

/* Alias of what a rule calls OLD: a row that an action of a foreign key acts on, expired or not */
#define TTL_ACTED_ON	"ttl acted on"

/* Alias, or its beginning, of a table of Citus whose expired rows the statement sees (citus/marks.c) */
#define TTL_STORED	"ttl stored"

/* What is announced */
typedef struct TtlExpectation
{
	const char *deletion;		/* source text, or NULL */
	int			depth;
	TimestampTz expired_at;
	Oid			owner;
	Oid			target;			/* table that it deletes from, or InvalidOid */
	bool		analyzed;		/* if not, it is what is analyzed next */
	Oid			role;			/* that executes it, ... */
	int			sec_context;	/* ... and in what context */
} TtlExpectation;

extern TtlExpectation ttl_execution_expect_deletion(const char *source_text,
													TimestampTz expired_at, Oid owner, Oid target);
extern void ttl_execution_expect(TtlExpectation expectation);
extern Oid	ttl_execution_deletes_as(void);
extern bool ttl_execution_is_expected(const char *source_text);

typedef void (*TtlTargetVisitor) (ModifyTableState *mtstate, ResultRelInfo *target);

extern void ttl_execution_visit_targets(TtlExecution *execution,
										TtlTargetVisitor visit);
extern void ttl_execution_init_expr(ExprState *state, ExprStateEvalFunc evaluate, uint8 flags);

/*
 * For the hooks of ttl.c
 */
extern void ttl_execution_describe(TtlExecution *starting, QueryDesc *query_desc);
extern TtlExecution *ttl_execution_remember(const TtlExecution *starting);
extern TtlExecution *ttl_execution_enter(QueryDesc *query_desc);
extern void ttl_execution_leave(TtlExecution *outer);
extern bool ttl_execution_only_reads(const QueryDesc *query_desc);
extern void ttl_execution_analyzed(ParseState *pstate, Query *query);
extern const char *ttl_execution_leader(void);
extern void ttl_execution_function_called(void);
extern void ttl_execution_before_utility(PlannedStmt *pstmt);
extern void ttl_execution_after_utility(void);
extern void ttl_execution_transaction(XactEvent event);
extern void ttl_execution_init(void);

#endif							/* TTL_EXECUTION_H */
