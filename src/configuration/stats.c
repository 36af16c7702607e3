/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  What has expired, will expire, and has been deleted, for people: the functions behind
 *	  the statistics views and ttl.status, ttl.expired_count() and ttl.expiring_rows().
 *
 * Counters come from shared memory (counters.c).  The lag is read when the
 * view is, at the left edge of the expiry indexes or in a few pages, never by a
 * scan of the table; a table that is locked by DDL is left out of it.  An index that can't be
 * read is an error of its container alone: the views fail for none.  What counts or lists rows
 * walks along the expiry indexes, and waits for locks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "citus/citus.h"
#include "commands/dbcommands.h"
#include "common/int.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "counters.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "funcapi.h"
#include "guc.h"
#include "miscadmin.h"
#include "ttl.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#define STAT_CONTAINERS_COLUMNS	12
#define STAT_REAPER_COLUMNS		8

PG_FUNCTION_INFO_V1(ttl_expired_count);
PG_FUNCTION_INFO_V1(ttl_expiring_rows);
PG_FUNCTION_INFO_V1(ttl_stat_containers);
PG_FUNCTION_INFO_V1(ttl_stat_shards);
PG_FUNCTION_INFO_V1(ttl_stat_reaper);
PG_FUNCTION_INFO_V1(ttl_outlook);
PG_FUNCTION_INFO_V1(ttl_next_expiry);

/*
 * True if the error says nothing of the container that was looked at: the session is being canceled or ended, its
 * transaction cannot be serialized, or the server has no memory or room for locks.  All others are the container's:
 * internal errors, index_corrupted among them, a file that cannot be read, an object that is not there.  The worker
 * has another question, whether to try again soon (is_passing() in blame.c): a full lock table is no reason for it.
 */
static bool
is_of_session(const ErrorData *error)
{
	int			category = ERRCODE_TO_CATEGORY(error->sqlerrcode);

	return category == ERRCODE_OPERATOR_INTERVENTION || category == ERRCODE_TRANSACTION_ROLLBACK ||
		category == ERRCODE_INSUFFICIENT_RESOURCES;
}

/*
 * Looks for something at the edges of a container's expiry indexes.  An error becomes *error, unless it is the
 * session's.
 */
static void
look(void (*find) (void *arg), void *arg, ErrorData **error)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	*error = NULL;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		find(arg);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		*error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();

	/*
	 * in any case: it has written nothing, and the locks on the indexes of
	 * all containers together may be more than there is room for
	 */
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (*error != NULL && is_of_session(*error))
		ReThrowError(*error);
}

/*
 * Opens a table of a container to look at the edges of its expiry indexes, unless its rows never
 * expire.  NULL, too, if that would wait, or if it lacks a column: then *is_known becomes false.
 */
static Relation
open_leaf(Oid relid, TtlContainer *member, bool *is_known)
{
	bool		busy;
	Relation	rel = ttl_container_open_if_free(relid, &busy);

	if (busy)
		*is_known = false;
	if (rel == NULL)
		return NULL;
	if (rel->rd_rel->relkind == RELKIND_RELATION && ttl_container_peek(relid, member) &&
		member->policy.default_ttl != TTL_OFF)
	{
		/* whoever rebuilds an index may wait for this session */
		if (!member->lacks_column && ttl_expiry_lock_indexes(rel))
			return rel;
		*is_known = false;
	}
	relation_close(rel, AccessShareLock);
	return NULL;
}

/*
 * Finds the oldest expired row of the relation that is not blocked.  What is blocked, or
 * was deleted, stands before the front of the deletion; but a row may have come there since
 * the reaper has passed.
 */
static void
find_oldest(Relation rel, const TtlContainer *member, const TtlContainerCounters *counters,
			TimestampTz now, TtlExpiryFirst *oldest)
{
	const TtlExpiryPosition *front = &counters->front;
	bool		has_front = front->set[TTL_INDEX_DEFAULT] || front->set[TTL_INDEX_ITEM];

	if (counters->blocked_rows == 0 || !has_front)
	{
		ttl_expiry_find_first(rel, member, NULL, DT_NOBEGIN, now, oldest);
		if (!oldest->gave_up || !has_front)
			return;
	}
	ttl_expiry_find_first(rel, member, front, DT_NOBEGIN, now, oldest);
}

/* What is looked for in a container, and found */
typedef struct Edge
{
	Oid			container;
	const TtlContainerCounters *counters;
	TimestampTz now;
	TimestampTz at;
	TimestampTz held_until;
} Edge;

/*
 * Finds the expiry of the oldest expired row that the container still stores and that is not blocked;
 * DT_NOEND if there is none, or if that is not known.  'held_until' is when the worker may delete
 * that row.  Behind many dead index entries it is the latest that it can be; on a standby, which
 * does not mark them, it is not known.
 */
static void
find_oldest_expired(void *arg)
{
	Edge	   *edge = arg;
	bool		is_known = true;
	ListCell   *lc;

	edge->at = DT_NOEND;
	edge->held_until = DT_NOBEGIN;
	foreach(lc, ttl_container_leaves(edge->container))
	{
		TtlContainer member;
		Relation	rel = open_leaf(lfirst_oid(lc), &member, &is_known);
		TtlExpiryFirst first;

		if (rel == NULL)
			continue;
		find_oldest(rel, &member, edge->counters, edge->now, &first);
		if (first.at < edge->at && !first.incomplete && !(first.gave_up && RecoveryInProgress()))
		{
			edge->at = first.at;
			edge->held_until = first.held_until;
		}
		relation_close(rel, AccessShareLock);
	}
	if (edge->at > edge->now)
		edge->at = DT_NOEND;
}

/*
 * True if the user may read error messages about the table, which may quote rows.
 */
static bool
may_read_errors(Oid relid)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		ttl_container_is_owner(GetUserId(), relid);
}

/*
 * A point in time as a result column; 0 is NULL.
 */
static Datum
timestamp_or_null(TimestampTz value, bool *isnull)
{
	*isnull = value == 0;
	return TimestampTzGetDatum(value);
}

/*
 * The key of the row as jsonb: the columns of the table's primary key, numbers as
 * such and all else as text.  Output functions of types are the only code that runs.
 */
static Datum
key_of_slot(Relation rel, const Bitmapset *key, TupleTableSlot *slot)
{
	StringInfoData text;
	int			i = -1;

	initStringInfo(&text);
	while ((i = bms_next_member(key, i)) >= 0)
	{
		AttrNumber	attno = i + FirstLowInvalidHeapAttributeNumber;
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), attno - 1);
		bool		isnull;
		Datum		value = slot_getattr(slot, attno, &isnull);
		Oid			output;
		bool		is_varlena;

		getTypeOutputInfo(attribute->atttypid, &output, &is_varlena);
		appendStringInfoString(&text, text.len > 0 ? ", " : "{");
		escape_json(&text, NameStr(attribute->attname));
		appendStringInfoString(&text, ": ");
		if (attribute->atttypid == INT2OID || attribute->atttypid == INT4OID ||
			attribute->atttypid == INT8OID)
			appendStringInfoString(&text, OidOutputFunctionCall(output, value));
		else
			escape_json(&text, OidOutputFunctionCall(output, value));
	}
	appendStringInfoChar(&text, '}');
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(text.data));
}

/*
 * Walks along the expiry indexes of a table, as far as rows have expired by then.  Counts them; or
 * puts those that are live now into the result.
 */
static int64
walk_leaf(Relation rel, const TtlContainer *container, TimestampTz by, ReturnSetInfo *result)
{
	TimestampTz now = ttl_expiry_reading_now();
	const Bitmapset *key = RelationGetIndexAttrBitmap(rel, INDEX_ATTR_BITMAP_PRIMARY_KEY);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "ttl expiring",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = CurrentMemoryContext;
	TtlExpiryPosition position;
	TtlExpiryWalk *walk;
	TupleTableSlot *slot;
	TimestampTz when;
	int64		count = 0;

	ttl_expiry_skip_expired(container, now, &position);
	walk = ttl_expiry_walk_begin(rel, container, by, GetActiveSnapshot(), result == NULL ? NULL : &position);
	while ((slot = ttl_expiry_walk_next(walk, result == NULL ? NULL : &when)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		count++;
		if (result != NULL && when > now)
		{
			Datum		values[] = {(Datum) 0, TimestampTzGetDatum(when)};
			bool		nulls[] = {bms_is_empty(key), false};

			MemoryContextSwitchTo(context);
			if (!nulls[0])
				values[0] = key_of_slot(rel, key, slot);
			tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
			MemoryContextSwitchTo(old);
			MemoryContextReset(context);
		}
	}
	MemoryContextDelete(context);
	if (ttl_expiry_walk_is_incomplete(walk))
		ttl_expiry_report_incomplete(rel);
	ttl_expiry_walk_end(walk);
	return count;
}

/* The same for all tables of a container.  Errors (55000) if it lacks an index. */
static int64
walk_rows(Oid container, TimestampTz by, ReturnSetInfo *result)
{
	int64		count = 0;
	ListCell   *lc;

	foreach(lc, ttl_container_leaves(container))
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);
		TtlContainer member;

		if (rel == NULL)
			continue;
		if (ttl_container_lookup(RelationGetRelid(rel), &member))
			count += walk_leaf(rel, &member, by, result);
		table_close(rel, AccessShareLock);
	}
	return count;
}

/*
 * ttl.expired_count(container regclass) -> bigint
 *
 * How many rows have expired and are not yet deleted, counted through the
 * expiry indexes, by the statement's clock.  For the owner and pg_stat_scan_tables (42501);
 * 42704 if the table is no container, 55000 if it lacks an index.
 */
Datum
ttl_expired_count(PG_FUNCTION_ARGS)
{
	Oid			container = PG_GETARG_OID(0);
	TtlPolicy	policy;

	if (!has_privs_of_role(GetUserId(), ROLE_PG_STAT_SCAN_TABLES))
		ttl_container_check_owner(container);
	ttl_container_require(container, &policy);
	PG_RETURN_INT64(ttl_citus_is_distributed(container) ?
					ttl_citus_count_expired(container) :
					walk_rows(container, ttl_expiry_reading_now(), NULL));
}

/*
 * ttl.expiring_rows(container regclass, within interval) -> (key jsonb, expires_at timestamptz)
 *
 * The rows that are live and will have expired within that time, in no order, with
 * their primary keys; found through the expiry indexes.
 *
 * Errors: 42501, 42704 not a container, 22023, 55000 an index is missing.
 */
Datum
ttl_expiring_rows(PG_FUNCTION_ARGS)
{
	Oid			container = PG_GETARG_OID(0);
	TimestampTz now = ttl_expiry_reading_now();
	TimestampTz by;
	int64		within;
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	ttl_container_check_owned(container);
	if (!ttl_policy_microseconds(PG_GETARG_INTERVAL_P(1), &within) || within < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("interval must not be negative, nor longer than 292000 years")));
	/* 'infinity' is never */
	if (pg_add_s64_overflow(now, within, &by) || by == DT_NOEND)
		by = DT_NOEND - 1;
	InitMaterializedSRF(fcinfo, 0);
	if (ttl_citus_is_distributed(container))
		ttl_citus_put_expiring(container, PG_GETARG_INTERVAL_P(1), result);
	else
		(void) walk_rows(container, by, result);
	return (Datum) 0;
}

/* A shell has no rows, and those of a shard count for the shell whose policy is set here. */
static bool
is_counted_elsewhere(Oid container)
{
	TtlContainer shell;

	return ttl_citus_is_distributed(container) ||
		(ttl_container_peek(ttl_citus_find_shell(container, NULL), &shell) && !shell.policy.propagated);
}

/*
 * A row for each container that has rows here: for all, or for those that are shards of
 * distributed tables; and then by the name of that table.
 */
static void
put_containers(ReturnSetInfo *rsinfo, bool of_shards)
{
	TimestampTz now = ttl_execution_reference_time();
	ListCell   *lc;

	foreach(lc, ttl_policy_list(TTL_CONTAINERS_STORED))
	{
		Oid			container = lfirst_oid(lc);
		Oid			shell = of_shards ? ttl_citus_find_shell(container, NULL) : InvalidOid;
		TtlContainerCounters counters;
		Edge		edge = {.container = container, .counters = &counters, .now = now};
		ErrorData  *error;
		Datum		values[STAT_CONTAINERS_COLUMNS];
		bool		nulls[STAT_CONTAINERS_COLUMNS] = {0};

		CHECK_FOR_INTERRUPTS();

		if (of_shards ? !OidIsValid(shell) : is_counted_elsewhere(container))
			continue;
		if (!ttl_counters_get_container(container, &counters))
			memset(&counters, 0, sizeof(counters));
		look(find_oldest_expired, &edge, &error);
		if (error != NULL)
		{
			edge.at = DT_NOEND;
			strlcpy(counters.last_error, error->message, TTL_ERROR_LENGTH);
			counters.last_error_at = now;
			FreeErrorData(error);
		}

		values[0] = of_shards ? CStringGetTextDatum(ttl_container_table_name(shell)) :
			ObjectIdGetDatum(container);
		values[1] = Int64GetDatum(counters.rows_deleted);
		values[2] = Int64GetDatum(counters.rows_evicted);
		values[3] = Int64GetDatum(counters.batches);
		values[4] = Int64GetDatum(counters.cost);
		nulls[5] = edge.at == DT_NOEND;

		/* not every version has an infinite interval */
		values[5] = nulls[5] ? (Datum) 0 :
			DirectFunctionCall2(timestamp_mi, TimestampTzGetDatum(now),
								TimestampTzGetDatum(Max(edge.at, MIN_TIMESTAMP)));
		values[6] = timestamp_or_null(counters.last_reap, &nulls[6]);
		values[7] = Int64GetDatum(counters.blocked_rows);
		if (counters.last_error_at == 0 || !may_read_errors(container))
		{
			values[8] = (Datum) 0;
			nulls[8] = true;
		}
		else
			values[8] = CStringGetTextDatum(counters.last_error);
		values[9] = timestamp_or_null(counters.last_error_at, &nulls[9]);
		nulls[10] = edge.at == DT_NOEND || edge.held_until <= now;
		values[10] = nulls[10] ? (Datum) 0 : TimestampTzGetDatum(edge.held_until);
		values[11] = TimestampTzGetDatum(ttl_counters_since());

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/*
 * ttl.stat_containers(): one row for each container of this database; for a distributed
 * table what its shards on all nodes come to.
 */
Datum
ttl_stat_containers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	put_containers(rsinfo, false);
	ttl_citus_put_statistics(rsinfo);
	return (Datum) 0;
}

/*
 * ttl.stat_shards(): one row for each shard on this node.
 */
Datum
ttl_stat_shards(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	put_containers((ReturnSetInfo *) fcinfo->resultinfo, true);
	return (Datum) 0;
}

/*
 * Finds when the next row of the container expires after 'now'; DT_NOEND if none does, DT_NOBEGIN
 * if that is not known.  Waits for no lock.
 */
static void
find_next_expiry(void *arg)
{
	Edge	   *edge = arg;
	TimestampTz next = DT_NOEND;
	bool		is_known = true;
	ListCell   *lc;

	edge->at = DT_NOBEGIN;
	foreach(lc, ttl_container_leaves(edge->container))
	{
		TtlContainer member;
		Relation	rel = open_leaf(lfirst_oid(lc), &member, &is_known);
		TtlExpiryPosition position;
		TtlExpiryFirst first;

		if (rel == NULL)
			continue;
		ttl_expiry_skip_expired(&member, edge->now, &position);
		ttl_expiry_find_first(rel, &member, &position, edge->now, DT_NOEND - 1, &first);
		is_known = is_known && !first.gave_up && !first.incomplete;
		next = Min(next, first.at);
		relation_close(rel, AccessShareLock);
	}
	if (is_known)
		edge->at = next;
}

/*
 * ttl.next_expiry(container regclass) -> timestamptz
 *
 * When the next of its live rows expires; NULL if none does, or if its expiry indexes do
 * not say.  Like the statistics it needs no privilege, waits for no lock, and fails for no table.
 */
Datum
ttl_next_expiry(PG_FUNCTION_ARGS)
{
	Edge		edge = {.container = PG_GETARG_OID(0), .now = ttl_expiry_reading_now()};
	ErrorData  *error;

	look(find_next_expiry, &edge, &error);
	if (error != NULL || TIMESTAMP_NOT_FINITE(edge.at))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(edge.at);
}

/* What is missing from a table of a container, which has it locked; NULL = nothing */
static const char *
damage_of_table(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	const Trigger *trigger;
	TtlContainer container;
	TtlExpiryIndexes indexes;

	if (!ttl_container_peek(relid, &container))
		return NULL;			/* it is none any more */
	if (container.lacks_column)
		return "damaged: a column is missing";
	trigger = ttl_row_trigger_of(rel);
	if (trigger == NULL && relid == container.container)
		return "damaged: no trigger \"" TTL_TRIGGER "\"";
	if (OidIsValid(container.policy.archive_to) && !ttl_archive_trigger_fires(rel))
		return "damaged: trigger \"" TTL_ARCHIVE_TRIGGER "\" is missing or disabled";
	if (trigger != NULL && !ttl_row_trigger_is_enabled(trigger))
		return "damaged: trigger \"" TTL_TRIGGER "\" is disabled";
	if (rel->rd_rel->relkind != RELKIND_RELATION || container.policy.default_ttl == TTL_OFF ||
		!ttl_expiry_indexes(rel, &indexes))
		return NULL;
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (indexes.needed[i] && !OidIsValid(indexes.usable[i]))
			return "damaged: no expiry index";
	}
	return NULL;
}

/* Why rows of the container can't be deleted; NULL if nothing is known.  Waits for no lock. */
static const char *
find_problem(Oid container, const TtlContainerCounters *counters)
{
	Edge		edge = {.container = container, .counters = counters, .now = ttl_execution_reference_time()};
	const char *problem = NULL;
	ErrorData  *error;
	ListCell   *lc;

	if (get_rel_relkind(container) == '\0')
		return "damaged: the table was dropped";
	foreach(lc, ttl_container_tables(container))
	{
		bool		busy;
		Relation	rel = ttl_container_open_if_free(lfirst_oid(lc), &busy);

		if (rel == NULL)
			continue;
		problem = damage_of_table(rel);
		relation_close(rel, AccessShareLock);
		if (problem != NULL)
			return problem;
	}
	look(find_oldest_expired, &edge, &error);
	if (error != NULL)
		return "damaged: see last_error";
	return counters->is_failing ? "failing: see last_error" : NULL;
}

/*
 * ttl.outlook(container regclass) -> (problem text, gain double precision)
 *
 * What is to be expected of the container: why rows can't be deleted, and how many seconds its lag
 * loses in a second.  NULL = nothing, or not known.  It fails for no container.
 */
Datum
ttl_outlook(PG_FUNCTION_ARGS)
{
	Oid			container = PG_GETARG_OID(0);
	TtlContainerCounters counters;
	const char *problem;
	double		gain;
	TupleDesc	desc;
	Datum		values[2] = {0};
	bool		nulls[2];

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (!ttl_counters_get_container(container, &counters))
		memset(&counters, 0, sizeof(counters));

	problem = find_problem(container, &counters);
	nulls[0] = problem == NULL;
	if (problem != NULL)
		values[0] = CStringGetTextDatum(problem);
	gain = ttl_counters_gain(&counters);
	nulls[1] = gain <= 0.0;
	values[1] = Float8GetDatum(gain);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}

static const char *const state_names[] = {
	[TTL_REAPER_IDLE] = "idle",
	[TTL_REAPER_WORKING] = "working",
	[TTL_REAPER_WAITING] = "waiting",
	[TTL_REAPER_STOPPED] = "stopped",
	[TTL_REAPER_HELD_RECOVERED] = "held after recovery to a point in time",
	[TTL_REAPER_HELD_RESTORED] = "held after restore of a base backup",
	[TTL_REAPER_PAUSED] = "paused"
};

static const char *const stop_names[] = {
	[TTL_STOP_NONE] = NULL,
	[TTL_STOP_DONE] = "nothing left",
	[TTL_STOP_COST_LIMIT] = "cost limit",
	[TTL_STOP_THROUGHPUT] = "throughput",
	[TTL_STOP_TIME] = "time",
	[TTL_STOP_REPLICA_LAG] = "replica lag"
};

/*
 * ttl.stat_reaper(): one row for each database that has, or had, work.
 */
Datum
ttl_stat_reaper(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);

	foreach(lc, ttl_counters_databases())
	{
		Oid			dboid = lfirst_oid(lc);
		char	   *database = get_database_name(dboid);
		TtlDatabaseCounters counters;
		const char *stop;
		Datum		values[STAT_REAPER_COLUMNS];
		bool		nulls[STAT_REAPER_COLUMNS] = {0};

		if (database == NULL || !ttl_counters_get_database(dboid, &counters))
			continue;

		stop = stop_names[counters.stopped_by];
		values[0] = DirectFunctionCall1(namein, CStringGetDatum(database));
		values[1] = CStringGetTextDatum(ttl_guc_reaper ? state_names[counters.state] : "off");
		values[2] = Int64GetDatum(counters.cycles);
		values[3] = Int64GetDatum(counters.cost_granted);
		values[4] = Int64GetDatum(counters.cost_spent);
		values[5] = Int64GetDatum(counters.foreground_cost);
		values[6] = timestamp_or_null(counters.last_cycle, &nulls[6]);
		nulls[7] = stop == NULL;
		values[7] = stop ? CStringGetTextDatum(stop) : (Datum) 0;

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}

	return (Datum) 0;
}
