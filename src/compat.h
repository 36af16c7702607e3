/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  What differs between the PostgreSQL versions that ttl supports.
 *
 * This is the only file that looks at PG_VERSION_NUM.  A wrapper has the
 * newest version's meaning, and the rest of ttl is written as if for that
 * version.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_COMPAT_H
#define TTL_COMPAT_H

#if PG_VERSION_NUM < 150000
#error "ttl needs PostgreSQL 15 or later"
#endif

/* 18: a library has a name and a version, which pg_get_loaded_modules() shows */
#if PG_VERSION_NUM >= 180000
#define TTL_MODULE_MAGIC(name_, version_) \
	PG_MODULE_MAGIC_EXT(.name = (name_), .version = (version_))
#else
#define TTL_MODULE_MAGIC(name_, version_)	PG_MODULE_MAGIC
#endif

/* 16: one function for the ownership of objects of all kinds */
#if PG_VERSION_NUM >= 160000
#define TtlOwnsDatabase(database, role)	object_ownercheck(DatabaseRelationId, database, role)
#else
#define TtlOwnsDatabase(database, role)	pg_database_ownercheck(database, role)
#endif

/* 18: generated columns may be computed when they are read */
#ifndef ATTRIBUTE_GENERATED_VIRTUAL
#define ATTRIBUTE_GENERATED_VIRTUAL 'v'
#endif

/* 16: memory that a setting's check hook hands over must come from guc_malloc */
#if PG_VERSION_NUM >= 160000
#define TtlGucMalloc(elevel, size)	guc_malloc(elevel, size)
#define TtlGucFree(pointer)	guc_free(pointer)
#else
#define TtlGucMalloc(elevel, size)	malloc(size)
#define TtlGucFree(pointer)	free(pointer)
#endif

/* 18: ExecutorRun lost execute_once */
#if PG_VERSION_NUM >= 180000
#define TTL_EXECUTOR_RUN_PARAMETERS \
	QueryDesc *queryDesc, ScanDirection direction, uint64 count
#define TTL_EXECUTOR_RUN_ARGUMENTS	queryDesc, direction, count
#else
#define TTL_EXECUTOR_RUN_PARAMETERS \
	QueryDesc *queryDesc, ScanDirection direction, uint64 count, bool execute_once
#define TTL_EXECUTOR_RUN_ARGUMENTS	queryDesc, direction, count, execute_once
#endif

/* 19: post_parse_analyze_hook got a const */
#if PG_VERSION_NUM >= 190000
#define TTL_POST_PARSE_ANALYZE_PARAMETERS \
	ParseState *pstate, Query *query, const JumbleState *jstate
#else
#define TTL_POST_PARSE_ANALYZE_PARAMETERS \
	ParseState *pstate, Query *query, JumbleState *jstate
#endif
#define TTL_POST_PARSE_ANALYZE_ARGUMENTS	pstate, query, jstate

/* 16: the state of the n-th backend; 17: the process of a virtual transaction */
#if PG_VERSION_NUM >= 160000
#define TtlBackendStatus(n)	pgstat_get_local_beentry_by_index(n)
#else
#define TtlBackendStatus(n)	pgstat_fetch_stat_local_beentry(n)
#endif
#if PG_VERSION_NUM >= 170000
#include "storage/procarray.h"
#define TtlProcOfVirtualXid(number)	ProcNumberGetProc(number)
#else
#include "storage/sinvaladt.h"
#define TtlProcOfVirtualXid(number)	BackendIdGetProc(number)
#endif

/* 19: planner_hook gained the ExplainState */
#if PG_VERSION_NUM >= 190000
#define TTL_PLANNER_PARAMETERS \
	Query *parse, const char *query_string, int cursorOptions, \
	ParamListInfo boundParams, struct ExplainState *es
#define TTL_PLANNER_ARGUMENTS	parse, query_string, cursorOptions, boundParams, es
#else
#define TTL_PLANNER_PARAMETERS \
	Query *parse, const char *query_string, int cursorOptions, \
	ParamListInfo boundParams
#define TTL_PLANNER_ARGUMENTS	parse, query_string, cursorOptions, boundParams
#endif

/* 19: get_relation_info_hook became build_simple_rel_hook */
#if PG_VERSION_NUM >= 190000
#define TTL_BUILD_SIMPLE_REL_PARAMETERS \
	PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte
#define TTL_BUILD_SIMPLE_REL_ARGUMENTS	root, rel, rte
#define TTL_BUILD_SIMPLE_REL_RTE		rte
#else
#define build_simple_rel_hook			get_relation_info_hook
#define build_simple_rel_hook_type		get_relation_info_hook_type
#define TTL_BUILD_SIMPLE_REL_PARAMETERS \
	PlannerInfo *root, Oid relationObjectId, bool inhparent, RelOptInfo *rel
#define TTL_BUILD_SIMPLE_REL_ARGUMENTS	root, relationObjectId, inhparent, rel
#define TTL_BUILD_SIMPLE_REL_RTE		root->simple_rte_array[rel->relid]
#endif

/* 18: what is pruned when execution starts is listed elsewhere */
#if PG_VERSION_NUM >= 180000
#define TtlPrunesPartitions(plan) \
	((IsA(plan, Append) && ((Append *) (plan))->part_prune_index >= 0) || \
	 (IsA(plan, MergeAppend) && ((MergeAppend *) (plan))->part_prune_index >= 0))
#else
#define TtlPrunesPartitions(plan) \
	((IsA(plan, Append) && ((Append *) (plan))->part_prune_info != NULL) || \
	 (IsA(plan, MergeAppend) && ((MergeAppend *) (plan))->part_prune_info != NULL))
#endif

/* 18: EXPLAIN lets others say something about a plan's nodes */
#define TTL_EXPLAINS_NODES		(PG_VERSION_NUM >= 180000)

/* 18: index_beginscan_bitmap takes instrumentation */
#if PG_VERSION_NUM >= 180000
#define TtlIndexBeginscanBitmap(index, snapshot, nkeys) \
	index_beginscan_bitmap(index, snapshot, NULL, nkeys)
#else
#define TtlIndexBeginscanBitmap(index, snapshot, nkeys) \
	index_beginscan_bitmap(index, snapshot, nkeys)
#endif

/* 18: index_beginscan takes instrumentation, 19: and flags */
#if PG_VERSION_NUM >= 190000
#define TtlIndexBeginScan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, NULL, nkeys, 0, 0)
#elif PG_VERSION_NUM >= 180000
#define TtlIndexBeginScan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, NULL, nkeys, 0)
#else
#define TtlIndexBeginScan(rel, index, snapshot, nkeys) \
	index_beginscan(rel, index, snapshot, nkeys, 0)
#endif

/* 19: so does a fetch by way of an index */
#if PG_VERSION_NUM >= 190000
#define TtlTableIndexFetchBegin(rel)	table_index_fetch_begin(rel, 0)
#else
#define TtlTableIndexFetchBegin(rel)	table_index_fetch_begin(rel)
#endif

/* 19: scans take flags; those of a plan's sequential scan are as in SeqNext() */
#if PG_VERSION_NUM >= 190000
#define TtlTableBeginScan(rel, snapshot) \
	table_beginscan(rel, snapshot, 0, NULL, 0)
#define TtlSeqScanBegin(scan) \
	table_beginscan((scan)->ss_currentRelation, (scan)->ps.state->es_snapshot, 0, NULL, \
					(ScanRelIsReadOnly(scan) ? SO_HINT_REL_READ_ONLY : SO_NONE) | \
					((scan)->ps.state->es_instrument & INSTRUMENT_IO ? SO_SCAN_INSTRUMENT : SO_NONE))
#else
#define TtlTableBeginScan(rel, snapshot) \
	table_beginscan(rel, snapshot, 0, NULL)
#define TtlSeqScanBegin(scan) \
	TtlTableBeginScan((scan)->ss_currentRelation, (scan)->ps.state->es_snapshot)
#endif

/* 16: a replication origin may be shared with a process, 19: other names */
#if PG_VERSION_NUM >= 160000
#define TtlOriginSessionSetup(node)	replorigin_session_setup(node, 0)
#else
#define TtlOriginSessionSetup(node)	replorigin_session_setup(node)
#endif
#if PG_VERSION_NUM < 190000
#define ReplOriginId				RepOriginId
#define InvalidReplOriginId			InvalidRepOriginId
#define TTL_ORIGIN_OF_XACT			replorigin_session_origin
#else
#define TTL_ORIGIN_OF_XACT			replorigin_xact_state.origin
#endif

/* 18: replication origins have a setting of their own */
#if PG_VERSION_NUM >= 180000
#define TTL_ORIGINS_MAX				max_active_replication_origins
#define TTL_ORIGINS_MAX_SETTING		"max_active_replication_origins"
#else
#define TTL_ORIGINS_MAX				max_replication_slots
#define TTL_ORIGINS_MAX_SETTING		"max_replication_slots"
#endif

/* 19: COPY TO takes partitioned tables */
#define TTL_COPIES_PARTITIONED_TABLES	(PG_VERSION_NUM >= 190000)

/* 18: temporal foreign keys */
#if PG_VERSION_NUM >= 180000
#define TtlConstraintIsTemporal(form)	((form)->conperiod)
#else
#define TtlConstraintIsTemporal(form)	false
#endif

/* 17: the expression of a generated column can be altered */
#if PG_VERSION_NUM >= 170000
#define TtlSetsExpression(cmd)	((cmd)->subtype == AT_SetExpression)
#else
#define TtlSetsExpression(cmd)	false
#endif

/* 19: signal handlers take two arguments */
#ifndef PG_SIG_IGN
#define PG_SIG_IGN	SIG_IGN
#endif

/* 19: foreign keys find referenced rows without a query */
#define TTL_PROBES_REFERENCES	(PG_VERSION_NUM >= 190000)

/* 19: offsets of columns are computed when the descriptor is complete */
#if PG_VERSION_NUM < 190000
#define TupleDescFinalize(desc)	((void) (desc))
#endif

/* 17: the number of this process's PGPROC */
#if PG_VERSION_NUM >= 170000
#define TtlMyProcNumber	MyProcNumber
#else
#define TtlMyProcNumber	(MyProc->pgprocno)
#endif

/*
 * How many transactions of the cluster that may have written have ended.  Nothing keeps
 * the number from growing.  17: the variable's name
 */
#if PG_VERSION_NUM >= 170000
#define TtlEndedTransactions() \
	(*(volatile uint64 *) &TransamVariables->xactCompletionCount)
#else
#define TtlEndedTransactions() \
	(*(volatile uint64 *) &ShmemVariableCache->xactCompletionCount)
#endif

/* 17: try_index_open */
#if PG_VERSION_NUM < 170000
#include "access/relation.h"
#define try_index_open(relid, lockmode)	try_relation_open(relid, lockmode)
#endif

/* 17: the parameters of a dshash table name a function that copies keys */
#if PG_VERSION_NUM >= 170000
#define TtlDshashSetCopyFunction(parameters) \
	((parameters)->copy_function = dshash_memcpy)
#else
#define TtlDshashSetCopyFunction(parameters)	((void) (parameters))
#endif

/* 17: the condition of a MERGE is no part of its join tree */
#if PG_VERSION_NUM >= 170000
#define TTL_MERGE_CONDITION(query) ((query)->mergeJoinCondition)
#else
#define TTL_MERGE_CONDITION(query) NULL
#endif

#endif							/* TTL_COMPAT_H */
