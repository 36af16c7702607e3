/*-------------------------------------------------------------------------
 *
 * calls.c
 *	  Functions of Citus that ttl works along with, while they run.
 *
 *	  they copy a shard to another node			they see all rows: expired ones may be
 *												referenced by live ones
 *	  they make a shell of a table, or			Citus has to take the row trigger of a
 *	  another table of a shell					container, and the new table needs the policy
 *	  they copy a distributed table into		they see all rows, on all nodes
 *	  another one
 *	  ALTER TABLE and DROP make a plain table	that copy sees all rows, too
 *	  of a local one that Citus knew
 *	  pg_dump, with row_security = off			it sees all rows, on all nodes
 *
 * Who calls one is seen by its name when the executor prepares the call; what it is
 * called for, by the query's target list.  If a call stands elsewhere, Citus refuses
 * tables with triggers by itself, unless the user has allowed them; then all containers
 * are looked at after each statement of the transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "citus/citus.h"
#include "commands/trigger.h"
#include "execution.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "ttl.h"
#include "utility.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"

typedef enum CallKind
{
	CALL_NONE,
	CALL_COPIES_SHARD,
	CALL_DISTRIBUTES,			/* makes a shell of a table */
	CALL_REPLACES				/* makes another table of a shell */
} CallKind;

static const struct
{
	const char *name;
	CallKind	kind;
}			functions[] = {
	{"worker_copy_table_to_node", CALL_COPIES_SHARD},
	{"worker_split_copy", CALL_COPIES_SHARD},
	{"create_distributed_table", CALL_DISTRIBUTES},
	{"create_distributed_table_concurrently", CALL_DISTRIBUTES},
	{"create_reference_table", CALL_DISTRIBUTES},
	{"citus_add_local_table_to_metadata", CALL_DISTRIBUTES},
	{"citus_schema_distribute", CALL_DISTRIBUTES},
	{"citus_schema_undistribute", CALL_REPLACES},
	{"alter_distributed_table", CALL_REPLACES},
	{"alter_table_set_access_method", CALL_REPLACES},
	{"undistribute_table", CALL_REPLACES}
};

/* A query that calls one, from ExecutorStart until its memory goes, be it by an error */
typedef struct Call
{
	struct Call *next;
	const QueryDesc *query;
	CallKind	kind;
	Oid			type;			/* regclass or regnamespace: what it is about */
	Oid			object;
	bool		runs;
	char	   *triggers;		/* citus.enable_unsafe_triggers before */
	bool		shows;			/* has row_security been turned off? */
	MemoryContextCallback forget;
} Call;

static Call *calls = NULL;		/* last first */

/* The executor has prepared a call, for some query. */
static bool noticed = false;

/*
 * Commands at work that take a foreign key away, one inside the other, and how many
 * executions ran when the first started.  Citus makes a table of its own again then.
 */
static int	commands = 0;
static int	commands_depth;

/* A call that has run may have made shells of tables, or tables of shells; ... */
static bool tables_changed = false;

/* ... so may one of this transaction that stands where it can't be followed. */
static bool tables_may_change = false;

static CallKind
kind_of(Oid function)
{
	char	   *name;

	/* an extension's, in a schema where only few have some */
	if (function < FirstNormalObjectId || get_func_namespace(function) != PG_CATALOG_NAMESPACE)
		return CALL_NONE;
	name = get_func_name(function);
	for (int i = 0; i < lengthof(functions); i++)
	{
		if (strcmp(functions[i].name, name) == 0)
			return functions[i].kind;
	}
	return CALL_NONE;
}

void
ttl_citus_function_called(Oid function)
{
	CallKind	kind;

	/* first what is cheap, and true of most */
	if (function < FirstNormalObjectId || !ttl_citus_is_here())
		return;
	kind = kind_of(function);
	if (kind == CALL_NONE)
		return;
	noticed = true;
	if (kind != CALL_COPIES_SHARD)
		tables_may_change = true;
}

static Call *
find_call(const QueryDesc *query)
{
	Call	   *call;

	for (call = calls; call != NULL; call = call->next)
	{
		if (call->query == query)
			return call;
	}
	return NULL;
}

bool
ttl_citus_copies_shard(const char *query_string)
{
	const TtlExecution *execution = ttl_execution_current();
	const Call *call = execution == NULL || calls == NULL ? NULL :
	find_call(execution->query_desc);

	/*
	 * what others in that query plan has a text; and is maybe kept, or
	 * another user's
	 */
	return call != NULL && call->kind == CALL_COPIES_SHARD &&
		query_string == NULL && !InLocalUserIdChange();
}

bool
ttl_citus_may_make_tables(void)
{
	return tables_may_change || commands > 0;
}

bool
ttl_citus_replaces_table(void)
{
	for (const Call *call = calls; call != NULL; call = call->next)
	{
		if (call->runs && call->kind == CALL_REPLACES)
			return true;
	}
	return false;
}

bool
ttl_citus_tables_changed(bool *unseen)
{
	bool		result;

	*unseen = tables_may_change && ttl_execution_depth() == 0;
	result = tables_changed || *unseen;
	tables_changed = false;
	return result;
}

/* Have the table and its partitions no triggers but a container's, so that Citus may take all? */
static bool
has_only_ours(Oid relid)
{
	bool		result = true;
	ListCell   *lc;

	foreach(lc, find_all_inheritors(relid, AccessShareLock, NULL))
	{
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
		{
			Trigger    *trigger = &rel->trigdesc->triggers[i];

			result = result && (trigger->tgisinternal || strcmp(trigger->tgname, TTL_TRIGGER) == 0);
		}
		table_close(rel, NoLock);
	}
	return result;
}

/* The same of all tables of the schema */
static bool
schema_has_only_ours(Oid schema)
{
	Relation	pg_class = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	TableScanDesc scan;
	HeapTuple	tuple;
	bool		result = true;

	ScanKeyInit(&key, Anum_pg_class_relnamespace, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(schema));
	scan = table_beginscan_catalog(pg_class, 1, &key);
	while (result && (tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class form = (Form_pg_class) GETSTRUCT(tuple);

		if (form->relkind == RELKIND_RELATION || form->relkind == RELKIND_PARTITIONED_TABLE)
			result = has_only_ours(form->oid);
	}
	table_endscan(scan);
	table_close(pg_class, AccessShareLock);
	return result;
}

static bool
schema_has_container(Oid schema)
{
	ListCell   *lc;

	foreach(lc, ttl_container_list())
	{
		if (get_rel_namespace(lfirst_oid(lc)) == schema)
			return true;
	}
	return false;
}

/* Is the call about containers, which Citus may take with their triggers? */
static bool
concerns_containers(const Call *call)
{
	TtlContainer container;

	if (!OidIsValid(call->object))
		return false;
	if (call->type == REGNAMESPACEOID)
		return schema_has_container(call->object) &&
			(call->kind == CALL_REPLACES || schema_has_only_ours(call->object));
	return ttl_container_peek(call->object, &container) &&
		(call->kind == CALL_REPLACES || has_only_ours(call->object));
}

/* The table or schema that is the first argument of a call, if that can be told before it runs */
static Oid
object_of(const Node *first, Oid type, const QueryDesc *query)
{
	if (type != REGCLASSOID && type != REGNAMESPACEOID)
		return InvalidOid;
	if (IsA(first, Const) && !((const Const *) first)->constisnull)
		return DatumGetObjectId(((const Const *) first)->constvalue);
	if (IsA(first, Param) && ((const Param *) first)->paramkind == PARAM_EXTERN && query->params != NULL)
	{
		ParamExternData data;
		int			id = ((const Param *) first)->paramid;
		ParamExternData *param = query->params->paramFetch != NULL ?
		query->params->paramFetch(query->params, id, false, &data) :
		&query->params->params[id - 1];

		if (!param->isnull && param->ptype == type)
			return DatumGetObjectId(param->value);
	}
	return InvalidOid;
}

/* Sets a setting until the transaction ends, or until it is set back. */
static void
set_locally(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0,
							 false);
}

static void
run(const char *command)
{
	SPI_connect();
	if (SPI_execute(command, false, 0) < 0)
		elog(ERROR, "SPI_execute failed: %s", command);
	SPI_finish();
}

/*
 * Has all nodes that take part in the transaction see all rows, or not any more.  Citus
 * passes settings on in transaction blocks, and takes DO for one.
 */
static void
show_stored(bool on)
{
	const char *command = on ? "DO LANGUAGE plpgsql 'BEGIN SET LOCAL row_security = off; END'" :
	"DO LANGUAGE plpgsql 'BEGIN SET LOCAL row_security = on; END'";
	char	   *former = GetConfigOptionByName("citus.propagate_set_commands", NULL, false);

	set_locally("citus.propagate_set_commands", "local");
	run(command);
	set_locally("citus.propagate_set_commands", former);
}

/* Is the table one end of a foreign key? */
static bool
has_reference(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	bool		result = false;

	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
		result = result || RI_FKey_trigger_type(rel->trigdesc->triggers[i].tgfoid) != RI_TRIGGER_NONE;
	table_close(rel, AccessShareLock);
	return result;
}

/*
 * Has the shards written to, to no effect.  They are read in that transaction then, and
 * see what it has been told; else Citus reads them without one if this isn't a block.
 * If there are foreign keys to drop, it writes to them first.
 */
static void
touch_shards(Oid shell)
{
	run(psprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER \"%s\"",
				 ttl_container_table_name(shell), TTL_TRIGGER));
}

/* Memory context callback */
static void
forget_call(void *arg)
{
	Call	  **link;

	for (link = &calls; *link != NULL; link = &(*link)->next)
	{
		if (*link == arg)
		{
			*link = (*link)->next;
			return;
		}
	}
}

static void
begin_call(const QueryDesc *query, CallKind kind, const Node *first)
{
	MemoryContext context = query->estate->es_query_cxt;
	Call	   *call = MemoryContextAllocZero(context, sizeof(Call));

	call->query = query;
	call->kind = kind;
	call->type = first == NULL ? InvalidOid : exprType(first);
	call->object = object_of(first, call->type, query);
	call->forget.func = forget_call;
	call->forget.arg = call;
	MemoryContextRegisterResetCallback(context, &call->forget);
	call->next = calls;
	calls = call;
}

static void
execution_started(TtlExecution *execution, int eflags)
{
	const QueryDesc *query = execution->query_desc;
	ListCell   *lc;

	if (commands > 0 && query->operation == CMD_INSERT &&
		ttl_execution_depth() == commands_depth)
		begin_call(query, CALL_COPIES_SHARD, NULL);
	if (!noticed || (eflags & EXEC_FLAG_EXPLAIN_ONLY))
		return;
	noticed = false;
	foreach(lc, query->plannedstmt->planTree->targetlist)
	{
		FuncExpr   *expr = (FuncExpr *) lfirst_node(TargetEntry, lc)->expr;
		CallKind	kind = IsA(expr, FuncExpr) ? kind_of(expr->funcid) : CALL_NONE;

		if (kind == CALL_NONE)
			continue;
		begin_call(query, kind, expr->args == NIL ? NULL : linitial(expr->args));
		return;
	}
}

/* What all nodes have been told of row_security in this transaction */
static enum
{
	TOLD_NOTHING,
	TOLD_OFF,
	TOLD_ON,
	TOLD_SOMETHING				/* and some of that has been rolled back */
}			told = TOLD_NOTHING;

/*
 * Tells them what a query that runs now may see; in a SECURITY DEFINER function always,
 * for the user may have told them by SET LOCAL.
 */
static void
tell(void)
{
	bool		is_off = !row_security;
	bool		is_definer = InLocalUserIdChange();
	bool		shows = is_off && !is_definer;

	if (told == (shows ? TOLD_OFF : TOLD_ON) && !is_definer)
		return;
	told = shows ? TOLD_OFF : TOLD_ON;
	show_stored(shows);
	if (is_off && is_definer)
		set_locally("row_security", "off");
}

static bool
execution_runs(TtlExecution *execution, const TtlExecution *outer)
{
	Call	   *call = calls == NULL ? NULL : find_call(execution->query_desc);

	if ((told != TOLD_NOTHING || !row_security) && calls == NULL && IsTransactionBlock() &&
		!IsInParallelMode() && ttl_citus_is_here())
		tell();
	if (call == NULL || call->kind == CALL_COPIES_SHARD)
		return true;
	call->runs = true;
	if (concerns_containers(call))
	{
		call->triggers = MemoryContextStrdup(execution->query_desc->estate->es_query_cxt,
											 GetConfigOptionByName("citus.enable_unsafe_triggers", NULL, false));
		set_locally("citus.enable_unsafe_triggers", "on");
		if (call->kind == CALL_REPLACES && row_security)
		{
			show_stored(true);
			call->shows = true;
			if (call->type == REGCLASSOID && !has_reference(call->object))
				touch_shards(call->object);
		}
	}
	return true;
}

static void
execution_ran(const QueryDesc *query_desc)
{
	Call	   *call = calls == NULL ? NULL : find_call(query_desc);

	if (call == NULL || !call->runs)
		return;
	call->runs = false;
	tables_changed = true;
	if (call->triggers != NULL)
		set_locally("citus.enable_unsafe_triggers", call->triggers);
	if (call->shows)
		show_stored(false);
	call->triggers = NULL;
	call->shows = false;
}

static void
transaction_ended(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		noticed = tables_changed = tables_may_change = false;
		told = TOLD_NOTHING;
	}
}

static void
subtransaction_ended(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB && told != TOLD_NOTHING)
		told = TOLD_SOMETHING;
}

static bool
drops_reference(const PlannedStmt *pstmt)
{
	return IsA(pstmt->utilityStmt, AlterTableStmt) || IsA(pstmt->utilityStmt, DropStmt);
}

static void
before_utility(PlannedStmt *pstmt, const char *query_string,
			   ProcessUtilityContext context, ParamListInfo params)
{
	if (drops_reference(pstmt) && commands++ == 0)
		commands_depth = ttl_execution_depth();
}

static void
utility_ended(PlannedStmt *pstmt)
{
	if (drops_reference(pstmt))
		commands--;
}

void
ttl_calls_init(void)
{
	ttl_utility_observe(before_utility, NULL, utility_ended);
	ttl_execution_on_start(execution_started);
	ttl_execution_on_run(execution_runs);
	ttl_execution_on_ran(execution_ran);
	RegisterXactCallback(transaction_ended, NULL);
	RegisterSubXactCallback(subtransaction_ended, NULL);
}
