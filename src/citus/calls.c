/*-------------------------------------------------------------------------
 *
 * calls.c
 *	  What is done when Citus works on whole tables: calls of its functions, and commands.
 *
 * needs_fmgr_hook is consulted when any call of a function that isn't built in is
 * prepared, wherever the call stands: in a target list or in FROM, in PL/pgSQL, in
 * another function.  When one of Citus's functions below starts, fmgr_hook replaces its
 * address by that of run_function(), which gets the arguments and lasts as long as the
 * call.  Each call has an extent (extents.c).
 *
 * Outermost utility commands have an extent, too: Citus makes a plain table of one that
 * leaves a distributed schema, and, when any command has taken a foreign key away, of a
 * local one that it knew only for that key.  It does so by INSERT ... SELECT; queries that
 * such a command itself has are its user's.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "citus/citus.h"
#include "citus/citus_internal.h"
#include "ttl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

#define SET_ACCESS_METHOD	"alter_table_set_access_method"

static struct
{
	const char *name;
	bool		converts;		/* or copies a shard to another node */
	int			cascades;		/* the argument that has it convert other
								 * tables, too */
	Oid			oid;			/* of the one that was called last, ... */
	PGFunction	address;		/* ... and its own address */
}			functions[] = {
	{"worker_copy_table_to_node", false},
	{"worker_split_copy", false},
	{"create_distributed_table", true},
	{"create_distributed_table_concurrently", true},
	{"create_reference_table", true},
	{"citus_add_local_table_to_metadata", true},
	{"citus_schema_distribute", true},
	{"citus_schema_undistribute", true},
	{"alter_distributed_table", true, 4},
	{SET_ACCESS_METHOD, true},
	{"remove_local_tables_from_metadata", true},
	{"undistribute_table", true, 1}
};

/* The outermost command, which has an extent */
static PlannedStmt *command = NULL;

/* The function's index in the list, or -1 */
static int
find_function(Oid function)
{
	char	   *name;

	/* an extension's, in a schema where only few have some */
	if (function < FirstNormalObjectId || get_func_namespace(function) != PG_CATALOG_NAMESPACE)
		return -1;
	name = get_func_name(function);
	for (int i = 0; name != NULL && i < lengthof(functions); i++)
	{
		if (strcmp(functions[i].name, name) == 0)
			return i;
	}
	return -1;
}

/*
 * True if the table and its partitions, or the tables of a schema, have no triggers but
 * containers': then Citus may take them.  Partitions aren't locked, for sessions of Citus's own
 * may need them.
 */
static bool
has_only_ours(Oid object)
{
	return ttl_citus_is_true("WITH RECURSIVE t (relid) AS"
							 " (SELECT oid FROM pg_class WHERE oid = $1 OR relnamespace = $1"
							 " UNION SELECT inhrelid FROM pg_inherits JOIN t ON inhparent = relid)"
							 " SELECT NOT EXISTS (SELECT FROM pg_trigger JOIN t ON tgrelid = relid"
							 " WHERE NOT tgisinternal AND tgname <> '" TTL_TRIGGER "')", object);
}

/* A container stays with heap, but for its partitions. */
static void
check_access_method(Oid relid)
{
	TtlContainer container;

	if (ttl_container_peek(relid, &container) && container.container == relid)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change the access method of container \"%s\"", get_rel_name(relid)),
				 errhint("Use ttl.drop_container() to unregister the table.")));
}

/* The table or schema that a function converts, or InvalidOid if there may be others */
static Oid
converted_object(int i, FunctionCallInfo fcinfo)
{
	int			cascades = functions[i].cascades;

	if (fcinfo->nargs == 0 || fcinfo->args[0].isnull ||
		(cascades > 0 && cascades < fcinfo->nargs && !fcinfo->args[cascades].isnull &&
		 DatumGetBool(fcinfo->args[cascades].value)))
		return InvalidOid;
	return DatumGetObjectId(fcinfo->args[0].value);
}

/* Stands for one of the functions while it is called. */
static Datum
run_function(PG_FUNCTION_ARGS)
{
	int			i = find_function(fcinfo->flinfo->fn_oid);
	bool		converts;
	TtlExtent	extent;
	int			nestlevel;
	Datum		result;

	/*
	 * the address is the one that was replaced last: since Citus was created
	 * anew it may be another function's of that name
	 */
	if (i < 0 || functions[i].oid != fcinfo->flinfo->fn_oid)
		elog(ERROR, "function %u has changed while it was prepared", fcinfo->flinfo->fn_oid);
	if (!ttl_citus_is_here() || ttl_container_objects() == NULL)
		return functions[i].address(fcinfo);
	converts = functions[i].converts;
	if (strcmp(functions[i].name, SET_ACCESS_METHOD) == 0 && !fcinfo->args[0].isnull)
		check_access_method(DatumGetObjectId(fcinfo->args[0].value));
	if (converts && !ttl_citus_in_call())
		ttl_propagation_before_conversion(converted_object(i, fcinfo));

	/*
	 * Citus refuses tables with triggers unless told not to, for this call
	 * alone
	 */
	nestlevel = NewGUCNestLevel();
	if (converts && fcinfo->nargs > 0 && !fcinfo->args[0].isnull &&
		has_only_ours(DatumGetObjectId(fcinfo->args[0].value)))
		ttl_row_trigger_allow();
	ttl_extent_begin(&extent, converts);
	PG_TRY();
	{
		result = functions[i].address(fcinfo);
	}
	PG_FINALLY();
	{
		ttl_extent_end(&extent);
	}
	PG_END_TRY();
	/* an error leaves that to the transaction's end */
	AtEOXact_GUC(true, nestlevel);
	if (converts && !ttl_citus_in_call())
		ttl_propagation_after_conversion();
	return result;
}

/*
 * Within an extent all functions are counted, so that what runs in Citus's own is known as others'
 * (extents.c).
 */
bool
ttl_citus_needs_fmgr(Oid function)
{
	return ttl_extent_is_here() || find_function(function) >= 0;
}

/* Must not fail once it has counted: PostgreSQL calls it outside of its PG_TRY. */
void
ttl_citus_fmgr(FmgrHookEventType event, FmgrInfo *flinfo)
{
	int			i;

	/*
	 * the end of such a call, or the start of another one by the same
	 * FmgrInfo
	 */
	if (flinfo->fn_addr == run_function)
		return;
	i = event == FHET_START ? find_function(flinfo->fn_oid) : -1;
	if (i >= 0)
	{
		functions[i].oid = flinfo->fn_oid;
		functions[i].address = flinfo->fn_addr;
		flinfo->fn_addr = run_function;
	}
	else
		ttl_extent_count(event == FHET_START ? 1 : -1);
}

/*
 * True if the command has an extent.  Not if it runs commands or INSERTs of users, which would be taken for
 * Citus's own.
 */
static bool
has_extent(Node *stmt)
{
	return !IsA(stmt, CallStmt) && !IsA(stmt, CopyStmt) && !IsA(stmt, CreateSchemaStmt) &&
		!IsA(stmt, DoStmt) && !IsA(stmt, ExplainStmt);
}

/* The outermost command begins. */
static void
begin_command(PlannedStmt *pstmt)
{
	if (ttl_citus_in_extent() || !has_extent(pstmt->utilityStmt) || ttl_container_objects() == NULL)
		return;
	command = pstmt;
	ttl_extent_begin_command();
}

/* Notes what the command means to policies and shards, and begins its extent if it is the outermost. */
bool
ttl_citus_before_utility(PlannedStmt *pstmt)
{
	Node	   *stmt = pstmt->utilityStmt;
	bool		is_own = ttl_citus_runs_own();

	/* in a transaction that has failed there are no catalogs */
	if (IsA(stmt, TransactionStmt) || !ttl_citus_is_here())
		return false;
	if (IsA(stmt, CreateTrigStmt))
		ttl_propagation_trigger_begins((CreateTrigStmt *) stmt);
	else if (IsA(stmt, CopyStmt))
		ttl_marks_copy_begins((CopyStmt *) stmt);
	begin_command(pstmt);

	/*
	 * as it was before the extent of this command, in which it would be
	 * Citus's own itself
	 */
	return is_own;
}

/* The command has succeeded: what it has done to triggers and tables is followed here. */
void
ttl_citus_after_utility(PlannedStmt *pstmt)
{
	Node	   *stmt = pstmt->utilityStmt;

	if (!IsA(stmt, TransactionStmt) && ttl_citus_is_here() && ttl_container_objects() != NULL)
		ttl_propagation_command_ended(stmt);
}

/* Ends the extent of the outermost command, after an error, too. */
void
ttl_citus_end_utility(PlannedStmt *pstmt)
{
	if (command == pstmt)
	{
		command = NULL;
		ttl_extent_end_command();
	}
}
