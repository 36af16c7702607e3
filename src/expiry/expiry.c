/*-------------------------------------------------------------------------
 *
 * expiry.c
 *	  THE definition of "expired", and the walk over what is.
 *
 * An item expires at _ts + TTL, its own or else the container's default.  It
 * is expired from that instant on: equality counts.
 *
 *	  item TTL \ default | off    -1         n
 *	  -------------------+---------------------------
 *	  NULL               | never  never      _ts + n
 *	  -1                 | never  never      never
 *	  m > 0              | never  _ts + m    _ts + m
 *
 * Any other item TTL has no meaning and is taken for NULL; a CHECK keeps new
 * ones out, but a column that was there before may hold some.  A NULL in the
 * timestamp column never expires, nor does 'infinity'.
 *
 * ttl.is_live() is this table as a filter, and ttl.is_expired() for deletions.
 * Plans carry it with the container's OID and the two columns; all else is settled when an execution starts: the
 * policy, the clock, and whether this execution hides anything.  So a change of
 * policy reaches plans that are already made, and no cursor in its middle.
 *
 * The expiry indexes hold each row that can expire once, by its expiry:
 *
 *	  default   (_ts) WHERE ttl IS NULL           key + default TTL = expiry
 *	  item      (ttl.item_expiry(_ts, ttl))
 *	              WHERE ttl > 0                   key = expiry
 *	  stray     (_ts) WHERE ttl = 0 OR ttl < -1   as default; for an adopted
 *	                                              column, and mostly empty
 *
 * They are recognized by their definition, not by name or OID: an equal index
 * made beforehand (concurrently, say) serves, and so do those that a restored
 * dump creates.  An invalid one doesn't count: what a failed CREATE INDEX
 * CONCURRENTLY or REINDEX CONCURRENTLY leaves behind, or one that a partition
 * hasn't been attached to.  Without an index that it needs a walk goes on, but
 * says that it is incomplete: nothing found doesn't mean then that nothing has
 * expired.
 *
 * What a change of policy has made expired, by a shorter default or because TTL
 * was turned on for rows that were there, is hidden at once, but the worker spares
 * it for ttl.grace, so that a mistake can be taken back.  In that time it deletes
 * of the rows written before the change only what would have expired without
 * it, and of those written since, what has expired since it noticed the change.
 * Time counts from when the worker noticed it, which was after the commit, be the
 * transaction long or prepared.  Rows that were written under the old policy while
 * it was going on are told from those after it by when they expire.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/relation.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "common/int.h"
#include "compat.h"
#include "container/container.h"
#include "container/validation.h"
#include "execution.h"
#include "executor/executor.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "guc.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "replication/walsender.h"
#include "stored.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/*
 * The definition
 */

TimestampTz
ttl_expiry_add(TimestampTz ts, int32 seconds)
{
	TimestampTz result;

	if (TIMESTAMP_NOT_FINITE(ts))
		return ts;
	if (pg_add_s64_overflow(ts, seconds * USECS_PER_SEC, &result) ||
		result >= END_TIMESTAMP)
		return DT_NOEND;
	return result;
}

TimestampTz
ttl_expiry_cutoff(TimestampTz now, int32 seconds)
{
	TimestampTz result;

	if (TIMESTAMP_IS_NOEND(now))
		return DT_NOEND - 1;	/* 'infinity' itself never expires */
	if (pg_sub_s64_overflow(now, seconds * USECS_PER_SEC, &result))
		return DT_NOBEGIN;
	return result;
}

/*
 * The TTL that counts for an item, with its own taken into account: seconds,
 * TTL_NEVER or TTL_OFF.
 */
static inline int32
effective_ttl(int32 default_ttl, bool has_own, int32 own)
{
	if (default_ttl == TTL_OFF || !has_own)
		return default_ttl;
	return own > 0 || own == TTL_NEVER ? own : default_ttl;
}

static inline TimestampTz
expiry(int32 default_ttl, bool has_ts, TimestampTz ts, bool has_own, int32 own)
{
	int32		ttl = effective_ttl(default_ttl, has_own, own);

	return ttl <= 0 || !has_ts ? DT_NOEND : ttl_expiry_add(ts, ttl);
}

/* An item TTL as it comes from a column of one of the two types. */
static inline int32
own_ttl(Datum value, Oid type)
{
	return type == INT2OID ? DatumGetInt16(value) : DatumGetInt32(value);
}

TimestampTz
ttl_expiry_of_slot(const TtlContainer *container, TupleTableSlot *slot)
{
	Datum		ts;
	Datum		own = 0;
	bool		ts_is_null;
	bool		own_is_null = true;

	ts = slot_getattr(slot, container->ts_attno, &ts_is_null);
	if (container->ttl_attno != InvalidAttrNumber)
	{
		own = slot_getattr(slot, container->ttl_attno, &own_is_null);
		if (!own_is_null)
			own = Int32GetDatum(own_ttl(own,
										TupleDescAttr(slot->tts_tupleDescriptor,
													  container->ttl_attno - 1)->atttypid));
	}
	return expiry(container->default_ttl, !ts_is_null, DatumGetTimestampTz(ts),
				  !own_is_null, DatumGetInt32(own));
}

/*
 * Is a row with this _ts, which expires at 'expiry' and would have by the former
 * default at 'former_expiry', spared by who deletes what has expired by 'now'?
 */
static inline bool
is_spared(const TtlChange *change, TimestampTz ts, TimestampTz expiry,
		  TimestampTz former_expiry, TimestampTz now)
{
	return former_expiry > now &&
		(ts <= change->changed_at || expiry <= change->noticed_at);
}

bool
ttl_expiry_is_spared(const TtlContainer *container, TupleTableSlot *slot,
					 TimestampTz now)
{
	TtlContainer former = *container;
	bool		ts_is_null;
	Datum		ts = slot_getattr(slot, container->ts_attno, &ts_is_null);

	former.default_ttl = container->change.former_ttl;
	return !ts_is_null &&
		is_spared(&container->change, DatumGetTimestampTz(ts),
				  ttl_expiry_of_slot(container, slot),
				  ttl_expiry_of_slot(&former, slot), now);
}

TimestampTz
ttl_expiry_held_until(const TtlContainer *container, TupleTableSlot *slot,
					  TimestampTz now)
{
	const TtlChange *change = &container->change;
	TimestampTz until = ttl_expiry_of_slot(container, slot);

	if (!container->reaping || pg_add_s64_overflow(until, container->reap_delay, &until))
		return DT_NOEND;
	if (ttl_container_in_grace(change, now) &&
		ttl_expiry_is_spared(container, slot, now - container->reap_delay))
		until = Max(until, (change->noticed_at == DT_NOEND ? now : change->noticed_at) +
					ttl_guc_grace * USECS_PER_SEC);
	return until;
}

TimestampTz
ttl_expiry_reading_now(void)
{
	TtlExecution *execution = ttl_execution_current();
	TimestampTz now;

	if (execution != NULL)
		return execution->reading_now;
	return ttl_guc_now(&now) ? now : ttl_execution_clock();
}

/*
 * The filter
 */

/*
 * Is it a session of pg_dump?  It is known by the way it reads, with any option;
 * with --enable-row-security it sets row_security on, and must not leave expired
 * rows out of a backup for that.  Who imitates it could set row_security off as well.
 * (A parallel worker doesn't know that its transaction is read-only.)
 */
static bool
is_dumping(void)
{
	return !synchronize_seqscans && namespace_search_path[0] == '\0' &&
		IsolationUsesXactSnapshot() && (XactReadOnly || IsParallelWorker());
}

/*
 * It may by row_security = off, which pg_dump and the scripts it writes set, by
 * ttl.show_expired, or as a walsender, which copies tables to subscribers.
 * Foreign-key checks follow the first only; and they see all rows while a
 * constraint is validated.  What a materialized view is filled with stays, so
 * the REFRESH in such a script is filtered.
 */
static bool
is_shown_to(Oid container, TtlExecution *execution)
{
	Oid			user = execution ? execution->user : GetUserId();
	bool		user_changed = execution ? execution->user_changed : InLocalUserIdChange();
	Oid			owner = ttl_container_owner(container);

	if (InNoForceRLSOperation())
	{
		TtlExecution *outer = ttl_execution_current();

		/*
		 * What foreign keys do runs as the container's owner; the rest are
		 * triggers and functions of others that run in its midst.
		 */
		if (owner != GetUserId())
			return false;

		/*
		 * ALTER TABLE validates a foreign key row by row; or a row of another
		 * container is checked that has followed the change of a key by way
		 * of this one, and must not be stopped by what nobody sees.
		 */
		if (ttl_validation_runs() ||
			(outer != NULL && list_member_oid(outer->cascaded, container)))
			return true;
	}
	else if (ttl_guc_show_expired || am_db_walsender)
		return true;
	if ((row_security && !is_dumping()) || user_changed || InSecurityRestrictedOperation())
		return false;
	return OidIsValid(owner) &&
		(has_privs_of_role(user, owner) || has_bypassrls_privilege(user));
}

bool
ttl_expiry_is_shown(Oid container)
{
	return is_shown_to(container, ttl_execution_current());
}

static void
set_cutoff(TtlLive *state, TimestampTz now)
{
	state->now = now;
	if (state->default_ttl > 0)
		state->default_cutoff = ttl_expiry_cutoff(now, state->default_ttl);
}

static void
settle(TtlLive *state, Oid container, bool deletes, TtlExecution *execution)
{
	TtlContainer c;

	state->container = container;
	state->deletes = deletes;
	state->default_ttl = ttl_container_lookup(container, &c) ? c.default_ttl : TTL_OFF;
	state->sees_everything = !deletes &&
		(state->default_ttl == TTL_OFF || is_shown_to(container, execution));
	if (execution == NULL)
		set_cutoff(state, ttl_expiry_reading_now());
	else
		set_cutoff(state, deletes ? execution->expired_at : execution->reading_now);
	state->spares = deletes && execution->spares && state->default_ttl != TTL_OFF &&
		ttl_container_in_grace(&c.change, execution->clock);
	if (state->spares)
		state->change = c.change;
}

static TtlLive *
add_state(TtlExecution *execution)
{
	MemoryContext old = MemoryContextSwitchTo(execution->query_desc->estate->es_query_cxt);
	TtlLive    *state = palloc0(sizeof(TtlLive));

	execution->policies = lappend(execution->policies, state);
	MemoryContextSwitchTo(old);
	return state;
}

/*
 * What is settled for the container in the execution; now, if it hasn't been
 * at the start.
 */
static TtlLive *
get_live(Oid container, bool deletes, TtlExecution *execution)
{
	TtlLive		settled;
	TtlLive    *state;
	ListCell   *lc;

	foreach(lc, execution->policies)
	{
		state = lfirst(lc);
		if (state->container == container && state->deletes == deletes)
			return state;
	}

	/* A policy that was committed before this counts. */
	AcceptInvalidationMessages();
	settle(&settled, container, deletes, execution);
	state = add_state(execution);
	*state = settled;
	return state;
}

const TtlLive *
ttl_expiry_settled(TtlExecution *execution, Oid container)
{
	return get_live(container, false, execution);
}

/* Tells parallel workers what is settled. */
static void
write_states(const TtlExecution *execution, StringInfo text)
{
	ListCell   *lc;

	foreach(lc, execution->policies)
	{
		TtlLive    *state = lfirst(lc);

		/* deletions are not parallel */
		if (!state->deletes)
			appendStringInfo(text, " %u %d %d", state->container, state->default_ttl,
							 state->sees_everything);
	}
}

/* Takes over, in a worker, what the leader has settled. */
static void
read_states(TtlExecution *execution, const char *text)
{
	while (*text != '\0')
	{
		TtlLive    *state = add_state(execution);
		char	   *end;

		state->container = strtoul(text, &end, 10);
		state->default_ttl = strtol(end, &end, 10);
		state->sees_everything = strtol(end, &end, 10) != 0;
		set_cutoff(state, execution->reading_now);
		text = end;
	}
}

/* An ON UPDATE action of a foreign key updates the container. */
static void
remember_cascade(TtlExecution *outer, Oid container)
{
	MemoryContext old = MemoryContextSwitchTo(outer->query_desc->estate->es_query_cxt);

	outer->cascaded = list_append_unique_oid(outer->cascaded, container);
	MemoryContextSwitchTo(old);
}

/*
 * Observer of executions: settles what a deletion deletes from, and remembers
 * whither foreign keys have cascaded.  What is hidden is settled by who hides it.
 */
static void
execution_started(TtlExecution *execution, int eflags)
{
	TtlExecution *outer = ttl_execution_current();
	bool		deletes = execution->sight == TTL_SEES_EXPIRED;
	bool		cascades = execution->query_desc->operation == CMD_UPDATE &&
	outer != NULL && InNoForceRLSOperation();
	ListCell   *lc;

	if (!(deletes || cascades) || ttl_container_objects() == NULL ||
		(eflags & EXEC_FLAG_EXPLAIN_ONLY))
		return;
	foreach(lc, execution->query_desc->plannedstmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		TtlContainer container;

		if (rte->rtekind != RTE_RELATION || !ttl_container_lookup(rte->relid, &container))
			continue;
		if (deletes)
			(void) get_live(container.container, true, execution);
		if (cascades)
		{
			/* what it hides itself is settled without itself */
			(void) get_live(container.container, false, execution);
			remember_cascade(outer, container.container);
		}
	}
}

void
ttl_expiry_init(void)
{
	ttl_execution_on_start(execution_started);
	ttl_execution_on_hand_over(write_states, read_states);
}

/* Keeps in the function call's memory what is settled for its execution. */
static TtlLive *
remember_state(FmgrInfo *flinfo, Oid container, bool deletes)
{
	TtlExecution *execution = ttl_execution_current();
	TtlLive    *state = flinfo->fn_extra;

	if (state == NULL)
		state = flinfo->fn_extra = MemoryContextAlloc(flinfo->fn_mcxt, sizeof(TtlLive));
	if (execution != NULL)
		*state = *get_live(container, deletes, execution);
	else
		settle(state, container, deletes, NULL);
	return state;
}

bool
ttl_expiry_has_expired(const TtlLive *live, bool ts_is_null, TimestampTz ts,
					   bool own_is_null, int32 own)
{
	int32		ttl = effective_ttl(live->default_ttl, !own_is_null, own);

	if (ttl <= 0 || ts_is_null)
		return false;
	return ts <= (own_is_null ? live->default_cutoff : ttl_expiry_cutoff(live->now, ttl));
}

/* The same of a row with the _ts and TTL of a filter's arguments */
static inline bool
has_expired(const TtlLive *live, FunctionCallInfo fcinfo)
{
	return ttl_expiry_has_expired(live, PG_ARGISNULL(1), PG_GETARG_TIMESTAMPTZ(1),
								  PG_ARGISNULL(2), PG_GETARG_INT32(2));
}

/* Is the row, which has expired, one that is spared? */
static bool
spares(const TtlLive *state, FunctionCallInfo fcinfo)
{
	TimestampTz ts = PG_GETARG_TIMESTAMPTZ(1);
	bool		has_own = !PG_ARGISNULL(2);
	int32		own = has_own ? PG_GETARG_INT32(2) : 0;

	return is_spared(&state->change, ts,
					 expiry(state->default_ttl, true, ts, has_own, own),
					 expiry(state->change.former_ttl, true, ts, has_own, own),
					 state->now);
}

PG_FUNCTION_INFO_V1(ttl_is_live);

/*
 * ttl.is_live(container regclass, _ts timestamptz, ttl integer) -> boolean
 *
 * Has the row of the container with these values not expired?
 */
Datum
ttl_is_live(PG_FUNCTION_ARGS)
{
	TtlLive    *state = fcinfo->flinfo->fn_extra;
	Oid			container = PG_GETARG_OID(0);

	if (unlikely(state == NULL || state->container != container))
		state = remember_state(fcinfo->flinfo, container, false);
	PG_RETURN_BOOL(state->sees_everything || !has_expired(state, fcinfo));
}

PG_FUNCTION_INFO_V1(ttl_is_expired);

/*
 * ttl.is_expired(container regclass, _ts timestamptz, ttl integer) -> boolean
 *
 * Has the row expired, by the time that a physical deletion has been given?
 * Where none is at work, no row has.
 */
Datum
ttl_is_expired(PG_FUNCTION_ARGS)
{
	TtlExecution *execution = ttl_execution_current();
	TtlLive    *state = fcinfo->flinfo->fn_extra;
	Oid			container = PG_GETARG_OID(0);

	if (execution == NULL || execution->sight != TTL_SEES_EXPIRED)
		PG_RETURN_BOOL(false);
	if (unlikely(state == NULL || state->container != container))
		state = remember_state(fcinfo->flinfo, container, true);
	PG_RETURN_BOOL(has_expired(state, fcinfo) &&
				   !(unlikely(state->spares) && spares(state, fcinfo)));
}

PG_FUNCTION_INFO_V1(ttl_is_live_by_place);

/*
 * ttl.is_live(container regclass) -> boolean
 *
 * Stands for the filter in an index-only scan, which has neither column.  The
 * scan's own filter (sift.c) takes its place.
 */
Datum
ttl_is_live_by_place(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("ttl.is_live(regclass) can be evaluated in an index-only scan alone")));
}

PG_FUNCTION_INFO_V1(ttl_item_expiry);

/*
 * ttl.item_expiry(_ts timestamptz, ttl integer) -> timestamptz
 *
 * What the index over items with a TTL of their own is made of; called for
 * positive TTLs only.  IMMUTABLE, which timestamptz + interval is not.
 */
Datum
ttl_item_expiry(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(ttl_expiry_add(PG_GETARG_TIMESTAMPTZ(0), PG_GETARG_INT32(1)));
}

/*
 * Questions about one row
 */

/*
 * The expiry of a composite value that is a row of a container.  Errors:
 * 42809 if the value has no named type, 42704 if that is no container's.
 */
static TimestampTz
expiry_of_record(HeapTupleHeader record)
{
	Oid			type = HeapTupleHeaderGetTypeId(record);
	Oid			relid = type == RECORDOID ? InvalidOid : get_typ_typrelid(type);
	TtlContainer container;
	TupleDesc	desc;
	TupleTableSlot *slot;
	HeapTupleData tuple;
	TimestampTz result;

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("argument is not a row of a container"),
				 errhint("Pass a whole row of the table, as in SELECT ttl.expires_at(t) FROM mytable t.")));
	if (!ttl_container_lookup(relid, &container))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a container", get_rel_name(relid)),
				 errhint("Register the table with ttl.create_container().")));

	desc = lookup_rowtype_tupdesc_copy(type, HeapTupleHeaderGetTypMod(record));
	tuple.t_len = HeapTupleHeaderGetDatumLength(record);
	ItemPointerSetInvalid(&tuple.t_self);
	tuple.t_tableOid = relid;
	tuple.t_data = record;
	slot = MakeSingleTupleTableSlot(desc, &TTSOpsHeapTuple);
	ExecStoreHeapTuple(&tuple, slot, false);
	result = ttl_expiry_of_slot(&container, slot);
	ExecDropSingleTupleTableSlot(slot);
	FreeTupleDesc(desc);
	return result;
}

PG_FUNCTION_INFO_V1(ttl_expires_at);

/*
 * ttl.expires_at(item record) -> timestamptz
 *
 * When the row expires, under the present policy; NULL = never.
 */
Datum
ttl_expires_at(PG_FUNCTION_ARGS)
{
	TimestampTz expires_at = expiry_of_record(PG_GETARG_HEAPTUPLEHEADER(0));

	if (TIMESTAMP_IS_NOEND(expires_at))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(expires_at);
}

PG_FUNCTION_INFO_V1(ttl_time_to_live);

/*
 * ttl.time_to_live(item record) -> integer
 *
 * Whole seconds until the row expires, rounded up, by the statement's clock;
 * 0 if it has, -1 if it never will.
 */
Datum
ttl_time_to_live(PG_FUNCTION_ARGS)
{
	TimestampTz expires_at = expiry_of_record(PG_GETARG_HEAPTUPLEHEADER(0));
	TimestampTz now = ttl_expiry_reading_now();
	int64		left;

	if (TIMESTAMP_IS_NOEND(expires_at))
		PG_RETURN_INT32(TTL_NEVER);
	if (expires_at <= now)
		PG_RETURN_INT32(0);
	if (pg_sub_s64_overflow(expires_at, now, &left))
		PG_RETURN_INT32(PG_INT32_MAX);
	left = left / USECS_PER_SEC + (left % USECS_PER_SEC != 0);
	PG_RETURN_INT32((int32) Min(left, PG_INT32_MAX));
}

/*
 * The indexes
 */

bool
ttl_expiry_index_definition(const TtlPolicy *policy, TtlExpiryIndex index,
							TtlIndexDefinition *definition)
{
	const char *ts = quote_identifier(NameStr(policy->ts_column));
	const char *own = quote_identifier(NameStr(policy->ttl_column));
	bool		has_own = NameStr(policy->ttl_column)[0] != '\0';

	if (!has_own && index != TTL_INDEX_DEFAULT)
		return false;

	switch (index)
	{
		case TTL_INDEX_DEFAULT:
			definition->key = pstrdup(ts);
			definition->predicate = has_own ? psprintf("%s IS NULL", own) : NULL;
			break;
		case TTL_INDEX_ITEM:
			definition->key = psprintf("ttl.item_expiry(%s, %s)", ts, own);
			definition->predicate = psprintf("%s OPERATOR(pg_catalog.>) 0", own);
			break;
		case TTL_INDEX_STRAY:
			definition->key = pstrdup(ts);
			definition->predicate =
				psprintf("%s OPERATOR(pg_catalog.=) 0 OR %s OPERATOR(pg_catalog.<) -1",
						 own, own);
			break;
		default:
			return false;
	}
	return true;
}

char *
ttl_expiry_check_definition(const TtlPolicy *policy)
{
	const char *own = quote_identifier(NameStr(policy->ttl_column));

	return psprintf("%s OPERATOR(pg_catalog.=) -1 OR %s OPERATOR(pg_catalog.>) 0",
					own, own);
}

/* An expression over the relation's columns. */
static Node *
parse_expression(Relation rel, const char *text, ParseExprKind kind)
{
	ParseState *pstate = make_parsestate(NULL);
	ParseNamespaceItem *nsitem;
	RawStmt    *raw;
	ResTarget  *target;
	Node	   *node;

	nsitem = addRangeTableEntryForRelation(pstate, rel, AccessShareLock,
										   NULL, false, true);
	addNSItemToQuery(pstate, nsitem, false, true, true);

	raw = linitial_node(RawStmt, raw_parser(text, RAW_PARSE_PLPGSQL_EXPR));
	target = linitial_node(ResTarget, ((SelectStmt *) raw->stmt)->targetList);
	node = transformExpr(pstate, target->val, kind);
	assign_expr_collations(pstate, node);
	free_parsestate(pstate);

	return node;
}

char *
ttl_expiry_find_check(Relation rel, const TtlPolicy *policy, bool *validated)
{
	TupleConstr *constr = RelationGetDescr(rel)->constr;
	Node	   *check = parse_expression(rel, ttl_expiry_check_definition(policy),
										 EXPR_KIND_CHECK_CONSTRAINT);

	for (int i = 0; constr != NULL && i < constr->num_check; i++)
	{
		if (TtlCheckIsEnforced(constr->check[i]) &&
			equal(stringToNode(constr->check[i].ccbin), check))
		{
			*validated = constr->check[i].ccvalid;
			return constr->check[i].ccname;
		}
	}
	*validated = false;
	return NULL;
}

static bool
is_btree(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;			/* dropped meanwhile */
	result = ((Form_pg_class) GETSTRUCT(tuple))->relam == BTREE_AM_OID;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Does the index of that row of pg_index have these, and only these, key and
 * predicate, in the usual order?
 */
static bool
index_equals(HeapTuple index, Relation rel, const TtlIndexDefinition *definition)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(index);
	bool		isnull;
	Datum		classes = SysCacheGetAttr(INDEXRELID, index, Anum_pg_index_indclass, &isnull);
	Datum		options = SysCacheGetAttr(INDEXRELID, index, Anum_pg_index_indoption, &isnull);
	Node	   *key;
	Node	   *predicate;

	/* an included column would take the index along when it is dropped */
	if (!is_btree(form->indexrelid) || form->indnatts != 1 || !form->indislive ||
		((int2vector *) DatumGetPointer(options))->values[0] != 0 ||
		get_opclass_family(((oidvector *) DatumGetPointer(classes))->values[0]) !=
		get_opclass_family(GetDefaultOpClass(TIMESTAMPTZOID, BTREE_AM_OID)))
		return false;

	key = parse_expression(rel, definition->key, EXPR_KIND_INDEX_EXPRESSION);
	if (IsA(key, Var))
	{
		if (form->indkey.values[0] != ((Var *) key)->varattno)
			return false;
	}
	else if (form->indkey.values[0] != 0 ||
			 !equal(ttl_stored_index_expression(index, Anum_pg_index_indexprs), list_make1(key)))
		return false;

	predicate = definition->predicate == NULL ? NULL :
		parse_expression(rel, definition->predicate, EXPR_KIND_INDEX_PREDICATE);
	return equal(ttl_stored_index_expression(index, Anum_pg_index_indpred), predicate);
}

/*
 * An index of the relation that equals the definition, valid or not, but for
 * those in the list 'except'.  No index is opened, for that would wait for
 * whoever has locked one; a reader may hold a lock that they wait for.
 */
static Oid
find_index(Relation rel, const TtlPolicy *policy, TtlExpiryIndex kind, bool valid,
		   const List *except)
{
	TtlIndexDefinition definition;
	Oid			found = InvalidOid;
	ListCell   *lc;

	if (!ttl_expiry_index_definition(policy, kind, &definition))
		return InvalidOid;
	foreach(lc, RelationGetIndexList(rel))
	{
		HeapTuple	index;

		if (list_member_oid(except, lfirst_oid(lc)))
			continue;
		index = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));
		if (!HeapTupleIsValid(index))
			continue;			/* dropped concurrently */
		if (((Form_pg_index) GETSTRUCT(index))->indisvalid == valid &&
			index_equals(index, rel, &definition))
			found = lfirst_oid(lc);
		ReleaseSysCache(index);
		if (OidIsValid(found))
			break;
	}
	return found;
}

void
ttl_expiry_find_indexes(Relation rel, const TtlPolicy *policy, const List *except,
						TtlExpiryIndexes *indexes)
{
	bool		has_own = NameStr(policy->ttl_column)[0] != '\0';
	bool		validated = true;
	char	   *check = NULL;

	/* the CHECK says that no row needs the third index */
	if (has_own)
		check = ttl_expiry_find_check(rel, policy, &validated);
	indexes->check = check == NULL || !validated ? InvalidOid :
		get_relation_constraint_oid(RelationGetRelid(rel), check, false);
	indexes->needed[TTL_INDEX_DEFAULT] = true;
	indexes->needed[TTL_INDEX_ITEM] = has_own;
	indexes->needed[TTL_INDEX_STRAY] = !validated;
	for (int i = 0; i < TTL_INDEXES; i++)
		indexes->usable[i] = find_index(rel, policy, i, true, except);
}

/* What is wrong with the expiry indexes of a table */
typedef struct IndexProblem
{
	char	   *message;
	char	   *hint;
} IndexProblem;

static void
report_problem(const IndexProblem *problem)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg_internal("%s", problem->message),
			 errhint("%s", problem->hint)));
}

/* Is there an invalid index that equals the definition? */
static bool
find_unusable(Relation rel, const TtlPolicy *policy, TtlExpiryIndex kind,
			  IndexProblem *problem)
{
	Oid			index = find_index(rel, policy, kind, false, NIL);
	const char *name;

	if (!OidIsValid(index))
		return false;
	name = quote_identifier(get_rel_name(index));
	problem->message = psprintf(_("expiry index \"%s\" of table \"%s\" is not valid"),
								get_rel_name(index), RelationGetRelationName(rel));
	problem->hint = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ?
		psprintf(_("Use ALTER INDEX %s ATTACH PARTITION to attach an index of each partition, or drop it."), name) :
		psprintf(_("Use REINDEX INDEX %s to build it anew, or drop it."), name);
	return true;
}

void
ttl_expiry_refuse_unusable(Oid relid, const TtlPolicy *policy, TtlExpiryIndex kind)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, AccessShareLock))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		IndexProblem problem;

		if (find_unusable(rel, policy, kind, &problem))
			report_problem(&problem);
		table_close(rel, NoLock);
	}
}

/* Does the table lack an index that it needs? */
static bool
find_problem(Relation rel, const TtlPolicy *policy, IndexProblem *problem)
{
	TtlExpiryIndexes indexes;

	ttl_expiry_find_indexes(rel, policy, NIL, &indexes);
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (!indexes.needed[i] || OidIsValid(indexes.usable[i]))
			continue;
		if (!find_unusable(rel, policy, i, problem))
		{
			problem->message = psprintf(_("table \"%s\" lacks an expiry index"),
										RelationGetRelationName(rel));
			problem->hint = _("Use ttl.alter_container(..., indexing => 'consistent') to create it.");
		}
		return true;
	}
	return false;
}

void
ttl_expiry_check_indexes(Oid relid, const TtlPolicy *policy)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, AccessShareLock))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);
		IndexProblem problem;

		if (find_problem(rel, policy, &problem))
			report_problem(&problem);
		table_close(rel, NoLock);
	}
}

/*
 * The walk
 */

struct TtlExpiryWalk
{
	Relation	rel;
	TtlContainer container;
	TimestampTz now;
	Snapshot	snapshot;
	TtlExpiryMark *mark;
	bool		walks[TTL_INDEXES]; /* which indexes */
	bool		spares;			/* what a change of policy has made expired */
	int			at;				/* the index that it is in ... */
	int			range;			/* ... and which range of it */
	Relation	index;			/* open while walked, else NULL */
	IndexScanDesc scan;
	TupleTableSlot *slot;
	int64		entries_left;	/* how many more it may look at */
	bool		incomplete;		/* was an index missing? */
};

TtlExpiryWalk *
ttl_expiry_walk_begin(Relation rel, const TtlContainer *container,
					  TimestampTz now, Snapshot snapshot, TtlExpiryMark *mark)
{
	TtlExpiryWalk *walk = palloc0(sizeof(TtlExpiryWalk));

	walk->rel = rel;
	walk->container = *container;
	walk->now = now;
	walk->snapshot = snapshot;
	walk->mark = mark;
	walk->slot = table_slot_create(rel, NULL);
	walk->entries_left = PG_INT64_MAX;
	for (int i = 0; i < TTL_INDEXES; i++)
		walk->walks[i] = true;
	return walk;
}

bool
ttl_expiry_index_last_key(const TtlContainer *container, int32 default_ttl,
						  TimestampTz now, TtlExpiryIndex index, TimestampTz *key)
{
	if (default_ttl == TTL_OFF ||
		(index != TTL_INDEX_DEFAULT && container->ttl_attno == InvalidAttrNumber))
		return false;
	if (index == TTL_INDEX_ITEM)
	{
		*key = Min(now, DT_NOEND - 1);
		return true;
	}
	if (default_ttl == TTL_NEVER)
		return false;
	*key = ttl_expiry_cutoff(now, default_ttl);
	return true;
}

/*
 * Ranges of an index that are walked one after the other.  If something is
 * spared: what has expired by the former default, too, and what was written since
 * the change and has expired since it was noticed.  A row with a TTL of its own
 * expires as before, unless TTL was off.
 */
#define RANGES	2

/* The keys of a range, without the first and with the last; false if it is empty. */
static bool
range_keys(const TtlExpiryWalk *walk, TimestampTz *after, TimestampTz *last)
{
	const TtlChange *change = &walk->container.change;
	TimestampTz former_last = DT_NOBEGIN;
	TimestampTz since;

	*after = DT_NOBEGIN;
	if (!ttl_expiry_index_last_key(&walk->container, walk->container.default_ttl,
								   walk->now, walk->at, last))
		return false;
	if (!walk->spares)
		return walk->range == 0;

	if (walk->at == TTL_INDEX_ITEM)
	{
		if (change->former_ttl != TTL_OFF)
			former_last = *last;
		since = change->noticed_at;
	}
	else
	{
		if (change->former_ttl > 0)
			former_last = ttl_expiry_cutoff(walk->now, change->former_ttl);
		since = Max(change->changed_at,
					ttl_expiry_cutoff(change->noticed_at, walk->container.default_ttl));
	}

	if (walk->range == 0)
		*last = Min(*last, former_last);
	else
		*after = Max(since, former_last);
	return *after < *last;
}

static void
next_range(TtlExpiryWalk *walk)
{
	if (++walk->range == RANGES)
	{
		walk->range = 0;
		walk->at++;
	}
}

/*
 * Does the index hold all rows that the snapshot sees?  CREATE INDEX doesn't
 * mind rows that were updated before it, and an older snapshot sees as they
 * were.
 */
static bool
index_fits(Relation index, Snapshot snapshot)
{
	TransactionId creator;

	if (!index->rd_index->indisvalid)
		return false;
	if (!index->rd_index->indcheckxmin || !IsMVCCSnapshot(snapshot))
		return true;
	creator = HeapTupleHeaderGetXmin(index->rd_indextuple->t_data);
	return TransactionIdIsCurrentTransactionId(creator) ?
		!IsolationUsesXactSnapshot() : !XidInMVCCSnapshot(creator, snapshot);
}

/*
 * Opens an expiry index.  NULL if there is none that is usable; *incomplete is
 * set if it is needed.
 */
static Relation
open_index(Relation rel, TtlExpiryIndex kind, Snapshot snapshot, bool *incomplete)
{
	TtlExpiryIndexes indexes;

	/* REINDEX CONCURRENTLY may put another into its place before we lock it */
	for (int tries = 0; tries < 2; tries++)
	{
		Relation	index;

		ttl_container_indexes(rel, &indexes);
		if (!OidIsValid(indexes.usable[kind]))
			break;
		index = try_index_open(indexes.usable[kind], AccessShareLock);
		if (index == NULL)
			continue;
		if (index_fits(index, snapshot))
			return index;
		index_close(index, AccessShareLock);
	}
	if (indexes.needed[kind])
		*incomplete = true;
	return NULL;
}

/* Goes to the next range of an index that there is; false if there is no more. */
static bool
open_next_index(TtlExpiryWalk *walk)
{
	for (; walk->at < TTL_INDEXES; next_range(walk))
	{
		ScanKeyData keys[3];
		TimestampTz after;
		TimestampTz last;
		int			nkeys = 1;

		if (!walk->walks[walk->at] || !range_keys(walk, &after, &last) ||
			(walk->mark != NULL && walk->mark->set[walk->at] &&
			 walk->mark->at[walk->at] > last))
			continue;
		walk->index = open_index(walk->rel, walk->at, walk->snapshot, &walk->incomplete);
		if (walk->index == NULL)
			continue;

		ScanKeyInit(&keys[0], 1, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE,
					TimestampTzGetDatum(last));
		if (walk->mark != NULL && walk->mark->set[walk->at])
			ScanKeyInit(&keys[nkeys++], 1, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
						TimestampTzGetDatum(walk->mark->at[walk->at]));
		if (after != DT_NOBEGIN)
			ScanKeyInit(&keys[nkeys++], 1, BTGreaterStrategyNumber, F_TIMESTAMPTZ_GT,
						TimestampTzGetDatum(after));
		walk->scan = TtlIndexBeginScan(walk->rel, walk->index, walk->snapshot, nkeys);
		index_rescan(walk->scan, keys, nkeys, NULL, 0);
		return true;
	}
	return false;
}

static void
close_index(TtlExpiryWalk *walk)
{
	index_endscan(walk->scan);
	index_close(walk->index, AccessShareLock);
	walk->index = NULL;
	next_range(walk);
}

TupleTableSlot *
ttl_expiry_walk_next(TtlExpiryWalk *walk, TimestampTz *expires_at)
{
	while (walk->index != NULL || open_next_index(walk))
	{
		while (walk->entries_left > 0 &&
			   index_getnext_tid(walk->scan, ForwardScanDirection) != NULL)
		{
			TimestampTz when;

			walk->entries_left--;
			if (!index_fetch_heap(walk->scan, walk->slot))
				continue;
			when = ttl_expiry_of_slot(&walk->container, walk->slot);
			if (when > walk->now)
				continue;
			if (walk->mark != NULL)
			{
				bool		isnull;

				walk->mark->set[walk->at] = true;
				walk->mark->at[walk->at] = walk->at == TTL_INDEX_ITEM ? when :
					DatumGetTimestampTz(slot_getattr(walk->slot, walk->container.ts_attno, &isnull));
			}
			if (walk->spares &&
				ttl_expiry_is_spared(&walk->container, walk->slot, walk->now))
				continue;
			if (expires_at != NULL)
				*expires_at = when;
			return walk->slot;
		}
		if (walk->entries_left == 0)
			return NULL;
		close_index(walk);
	}
	return NULL;
}

void
ttl_expiry_walk_spare(TtlExpiryWalk *walk)
{
	walk->spares = true;
}

void
ttl_expiry_walk_limit(TtlExpiryWalk *walk, int64 max_entries)
{
	walk->entries_left = max_entries;
}

bool
ttl_expiry_walk_gave_up(const TtlExpiryWalk *walk)
{
	return walk->entries_left == 0;
}

bool
ttl_expiry_walk_is_incomplete(const TtlExpiryWalk *walk)
{
	return walk->incomplete;
}

/* Why a walk over the table was incomplete */
static void
explain_incomplete(Relation rel, IndexProblem *problem)
{
	TtlContainer container;
	TtlPolicy	policy;

	if (ttl_container_lookup(RelationGetRelid(rel), &container) &&
		ttl_container_read(container.container, &policy) &&
		find_problem(rel, &policy, problem))
		return;
	problem->message = psprintf(_("an expiry index of table \"%s\" is newer than the snapshot of the transaction"),
								RelationGetRelationName(rel));
	problem->hint = _("Try again in a new transaction.");
}

void
ttl_expiry_report_incomplete(Relation rel)
{
	IndexProblem problem;

	explain_incomplete(rel, &problem);
	report_problem(&problem);
}

char *
ttl_expiry_why_incomplete(Relation rel)
{
	IndexProblem problem;

	explain_incomplete(rel, &problem);
	return problem.message;
}

void
ttl_expiry_walk_end(TtlExpiryWalk *walk)
{
	if (walk->index != NULL)
		close_index(walk);
	ExecDropSingleTupleTableSlot(walk->slot);
	pfree(walk);
}

TimestampTz
ttl_expiry_earliest(Relation rel, const TtlContainer *container, Snapshot snapshot,
					bool *incomplete, TimestampTz *held_until)
{
	TimestampTz earliest = DT_NOEND;

	*incomplete = false;

	/* The edge of each index: all of it counts as expired at the end of time. */
	for (int i = 0; i < TTL_INDEXES; i++)
	{
		TtlExpiryWalk *walk = ttl_expiry_walk_begin(rel, container, DT_NOEND, snapshot, NULL);
		TupleTableSlot *slot;
		TimestampTz when;

		for (int j = 0; j < TTL_INDEXES; j++)
			walk->walks[j] = j == i;
		slot = ttl_expiry_walk_next(walk, &when);
		if (slot != NULL && when < earliest)
		{
			earliest = when;
			if (held_until != NULL)
				*held_until = ttl_expiry_held_until(container, slot, ttl_execution_clock());
		}
		*incomplete = *incomplete || walk->incomplete;
		ttl_expiry_walk_end(walk);
	}
	return earliest;
}

/* Index entries that such a count reads at most, for each row that it may find. */
#define ENTRIES_PER_ROW		10

/*
 * Counts the rows of one leaf.  Rows with a TTL of their own expire as before, unless
 * TTL was off.
 */
static int64
count_made_expired(Relation rel, const TtlContainer *container, int32 other_default,
				   TimestampTz now, int64 max, bool *complete, TimestampTz *earliest)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TtlExpiryMark mark = {0};
	TtlExpiryWalk *walk;
	TimestampTz when;
	int64		count = 0;

	if (other_default > 0)
	{
		TimestampTz cutoff = ttl_expiry_cutoff(now, other_default);

		mark.set[TTL_INDEX_DEFAULT] = mark.set[TTL_INDEX_STRAY] = true;
		mark.at[TTL_INDEX_DEFAULT] = mark.at[TTL_INDEX_STRAY] = cutoff + 1;
	}
	walk = ttl_expiry_walk_begin(rel, container, now, snapshot, &mark);
	if (other_default != TTL_OFF)
		walk->walks[TTL_INDEX_ITEM] = false;
	ttl_expiry_walk_limit(walk, max * ENTRIES_PER_ROW);
	while (count < max && ttl_expiry_walk_next(walk, &when) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		*earliest = Min(*earliest, when);
		count++;
	}
	if (ttl_expiry_walk_gave_up(walk) || walk->incomplete)
		*complete = false;
	ttl_expiry_walk_end(walk);
	UnregisterSnapshot(snapshot);
	return count;
}

int64
ttl_expiry_count_made_expired(Oid container, int32 other_default, TimestampTz now,
							  int64 max, bool *complete, TimestampTz *earliest)
{
	int64		count = 0;
	ListCell   *lc;

	*complete = true;
	*earliest = DT_NOEND;
	foreach(lc, ttl_container_leaves(container))
	{
		Oid			relid = lfirst_oid(lc);
		Relation	rel;
		bool		busy;
		TtlContainer leaf;

		if (count >= max)
			break;
		rel = ttl_container_open_unlocked(relid, &busy);
		/* DDL that waits for the policy may have it */
		if (busy)
			*complete = false;
		if (rel == NULL)
			continue;
		if (ttl_container_lookup(relid, &leaf))
			count += count_made_expired(rel, &leaf, other_default, now, max - count,
										complete, earliest);
		relation_close(rel, NoLock);
	}
	return count;
}

/* Index entries of dead rows that a look for the right edge reads at most. */
#define EDGE_ENTRIES	10000

TimestampTz
ttl_expiry_latest(Relation rel, const TtlContainer *container, Snapshot snapshot)
{
	TimestampTz latest = DT_NOBEGIN;
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	for (int i = 0; i < TTL_INDEXES && latest != DT_NOEND; i++)
	{
		bool		incomplete = false;
		Relation	index = open_index(rel, i, snapshot, &incomplete);

		if (index != NULL)
		{
			IndexScanDesc scan = TtlIndexBeginScan(rel, index, snapshot, 0);
			int			entries = 0;
			bool		found = false;

			index_rescan(scan, NULL, 0, NULL, 0);
			while (!found && index_getnext_tid(scan, BackwardScanDirection) != NULL)
			{
				if (++entries > EDGE_ENTRIES)
					break;
				found = index_fetch_heap(scan, slot);
			}
			if (found)
				latest = Max(latest, ttl_expiry_of_slot(container, slot));
			else if (entries > EDGE_ENTRIES)
				latest = DT_NOEND;
			index_endscan(scan);
			index_close(index, AccessShareLock);
		}
		else if (incomplete)
			latest = DT_NOEND;
	}
	ExecDropSingleTupleTableSlot(slot);
	return latest;
}

PG_FUNCTION_INFO_V1(ttl_expired_count);

/*
 * ttl.expired_count(container regclass) -> bigint
 *
 * How many rows have expired and are not yet deleted, counted through the
 * expiry indexes, by the statement's clock.  Owner only (42501); 42704 if the
 * table is no container, 55000 if it lacks an index.
 */
Datum
ttl_expired_count(PG_FUNCTION_ARGS)
{
	Oid			container = PG_GETARG_OID(0);
	TimestampTz now = ttl_expiry_reading_now();
	int64		count = 0;
	ListCell   *lc;

	ttl_container_check_owned(container);
	foreach(lc, ttl_container_leaves(container))
	{
		Relation	rel = try_table_open(lfirst_oid(lc), AccessShareLock);
		TtlContainer c;
		TtlExpiryWalk *walk;

		if (rel == NULL)
			continue;
		if (ttl_container_lookup(RelationGetRelid(rel), &c))
		{
			walk = ttl_expiry_walk_begin(rel, &c, now, GetActiveSnapshot(), NULL);
			while (ttl_expiry_walk_next(walk, NULL) != NULL)
			{
				CHECK_FOR_INTERRUPTS();
				count++;
			}
			if (ttl_expiry_walk_is_incomplete(walk))
				ttl_expiry_report_incomplete(rel);
			ttl_expiry_walk_end(walk);
		}
		table_close(rel, AccessShareLock);
	}
	PG_RETURN_INT64(count);
}
