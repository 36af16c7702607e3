/*-------------------------------------------------------------------------
 *
 * validation.c
 *	  Commands that hold stored rows against a constraint.
 *
 * A constraint holds for all stored rows, the hidden ones among them.  So an error that they cause is explained; and while ALTER TABLE validates a
 * foreign key, its queries see them, too.  What DROP EXTENSION says about containers is
 * explained in the same way.
 *
 * The commands at work are kept in a list, the innermost first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/index.h"
#include "catalog/namespace.h"
#include "container/container.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "nodes/parsenodes.h"
#include "ttl.h"
#include "utils/memutils.h"

/*
 * Commands at work that may validate a constraint, or drop the extension, the
 * innermost first: their errors are explained.
 */
typedef struct Validation
{
	const PlannedStmt *command;
	int			depth;			/* of executions when it started */
	bool		is_alter_table;
	Oid			relid;
	ErrorContextCallback context;
	struct Validation *outer;
} Validation;

static Validation *validation = NULL;

bool
ttl_validation_runs(void)
{
	return validation != NULL && validation->is_alter_table &&
		ttl_execution_depth() == validation->depth;
}

/*
 * A constraint holds for all stored rows, and the expired ones can't be seen.  A
 * command that we run for this one explains itself.
 */
static void
explain_violation(void *arg)
{
	Validation *failed = arg;
	TtlContainer container;
	int			error = geterrcode();

	if ((error == ERRCODE_UNIQUE_VIOLATION || error == ERRCODE_EXCLUSION_VIOLATION ||
		 error == ERRCODE_CHECK_VIOLATION || error == ERRCODE_NOT_NULL_VIOLATION) &&
		failed == validation && ttl_execution_depth() == failed->depth &&
		ttl_container_peek(failed->relid, &container))
		errhint("Expired rows count until they are deleted. Delete them with CALL ttl.reap().");
}

/* PostgreSQL's own HINT is CASCADE, which leaves columns and indexes behind. */
static void
explain_drop(void *arg)
{
	if (geterrcode() == ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST)
		errhint("Unregister each table that ttl.containers names with ttl.drop_container() first.");
}

/* Does the command drop the extension while there are containers? */
static bool
drops_extension(Node *stmt)
{
	const TtlObjects *found;
	ListCell   *lc;

	if (!IsA(stmt, DropStmt) || ((DropStmt *) stmt)->removeType != OBJECT_EXTENSION)
		return false;
	found = ttl_container_objects();
	if (found == NULL || !ttl_container_knows_version())
		return false;
	foreach(lc, ((DropStmt *) stmt)->objects)
	{
		if (strcmp(strVal(lfirst(lc)), TTL_EXTENSION) == 0)
			return ttl_container_list() != NIL;
	}
	return false;
}

/*
 * The table whose rows the command may hold against a constraint: it builds a
 * unique index, validates, or takes rows from a default partition.  NULL for
 * other commands.
 */
static RangeVar *
validated_table(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_AlterTableStmt:
			return ((AlterTableStmt *) stmt)->relation;
		case T_IndexStmt:
			return ((IndexStmt *) stmt)->unique ? ((IndexStmt *) stmt)->relation : NULL;
		case T_CreateStmt:
			return ((CreateStmt *) stmt)->partbound != NULL ?
				linitial_node(RangeVar, ((CreateStmt *) stmt)->inhRelations) : NULL;
		case T_ReindexStmt:
			return ((ReindexStmt *) stmt)->relation;
		default:
			return NULL;
	}
}

/* That table, or of an index the one that it is on */
static Oid
validated_relid(Node *stmt)
{
	Oid			relid = RangeVarGetRelid(validated_table(stmt), NoLock, true);

	return IsA(stmt, ReindexStmt) && ((ReindexStmt *) stmt)->kind == REINDEX_OBJECT_INDEX &&
		OidIsValid(relid) ? IndexGetRelation(relid, true) : relid;
}

static void
begin_validation(const PlannedStmt *command)
{
	Node	   *stmt = command->utilityStmt;
	bool		drops = drops_extension(stmt);
	Oid			relid = drops ? InvalidOid : validated_relid(stmt);

	/* what runs concurrently outlives its transaction */
	Validation *inner = MemoryContextAllocZero(TopMemoryContext, sizeof(Validation));

	inner->command = command;
	inner->depth = ttl_execution_depth();
	inner->is_alter_table = IsA(stmt, AlterTableStmt);
	inner->relid = relid;
	inner->context.callback = drops ? explain_drop : explain_violation;
	inner->context.arg = inner;
	inner->context.previous = error_context_stack;
	error_context_stack = &inner->context;
	inner->outer = validation;
	validation = inner;
}

void
ttl_validation_before_utility(PlannedStmt *pstmt)
{
	Node	   *stmt = pstmt->utilityStmt;

	if (validated_table(stmt) != NULL || drops_extension(stmt))
		begin_validation(pstmt);
}

void
ttl_validation_end_utility(PlannedStmt *pstmt)
{
	Validation *inner = validation;

	/* the command may have failed before it began one of its own */
	if (inner == NULL || inner->command != pstmt)
		return;
	/* after an error PostgreSQL has done it */
	if (error_context_stack == &inner->context)
		error_context_stack = inner->context.previous;
	validation = inner->outer;
	pfree(inner);
}
