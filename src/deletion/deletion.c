/*-------------------------------------------------------------------------
 *
 * deletion.c
 *	  Physical deletion of expired rows, shared by reaper and eviction.
 *
 * It is an ordinary DELETE through SPI, so that triggers fire, foreign keys
 * act and logical decoding sees it.  The rows are given by TID; the DELETE itself
 * evaluates the filter ttl.is_expired() on the tables that it names (hide.c).  So it does
 * no harm that another row may have got the TID, that a row may have been renewed, or the
 * policy changed, since the TID was collected.
 *
 * It runs by the right of the table's owner (owner.c).  The search_path may be a user's, so all
 * names are qualified.
 *
 * Rows go to their archive by a trigger (archive.c); if that fails, they stay.
 *
 *
 * WHAT GOES ALONG
 *
 * Expired rows that reference what is deleted are found where PostgreSQL looks for them, in the
 * queries of foreign keys (fk.c), by whatever the referenced row is deleted.  With NO
 * ACTION and RESTRICT they are deleted here; with CASCADE PostgreSQL deletes them.
 *
 * In a user's session the rows of a table go along if it is his own, if it belongs to the owner of the table that
 * he writes, or if no code runs by that: triggers, rules, or what the archive executes.  Nor may referential
 * actions run code of others, unless the table is one of the former two, and the user has the right to delete from
 * it.  Otherwise the rows stay, and hold up what they reference, until the reaper deletes them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "container/container.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "own_sql.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* Expired rows of one table that are to be deleted. */
typedef struct ToDelete
{
	Relation	rel;
	TtlContainer container;
	bool		as_user;		/* they are deleted as the session's user */
	bool		went_along;		/* they reference what is deleted */
	TtlTids		tids;
	uint64		deleted;
} ToDelete;

/* A deletion: parameters */
typedef struct Deletion
{
	TimestampTz expired_at;
	TtlSessionUser *user;		/* in whose session; NULL = the reaper, which
								 * deletes as this owner alone, ... */
	Oid			owner;
	Oid			target;			/* ... from this container, whatever its
								 * settings */
	bool		restricted;		/* in a security-restricted operation */
	bool		heeds_grace;	/* nothing of a table in grace goes along */
	Oid			outer_role;		/* role that executes the statement of the
								 * deletion around it, or InvalidOid */
	bool		follows_writes; /* the transaction had written before */
} Deletion;

/* The innermost deletion that runs, or NULL */
static const Deletion *running = NULL;

/*
 * Containers (TtlContainer) with an archive, as they were when the outermost deletion, or one in it, began with their
 * rows: AFTER triggers of an inner one may fire when it is over.
 */
static List *deleted_from = NIL;

/*
 * What may go along
 */

/*
 * True if the rows may be deleted, by what that would set off; false if they reference what the reaper
 * deletes and are another owner's to keep; error (23503) in a user's session.
 */
static bool
check_may_delete(const Deletion *deletion, const ToDelete *to_delete)
{
	const TtlSessionUser *user = deletion->user;
	Relation	rel = to_delete->rel;

	/*
	 * the reaper acts as one owner alone: another's rows wait for the turn of
	 * theirs
	 */
	if (user == NULL)
		return rel->rd_rel->relowner == deletion->owner;
	if (to_delete->as_user && ttl_owner_may_delete(user->role, RelationGetRelid(rel)))
		return true;
	if (!to_delete->went_along && ttl_owner_acts_as_other(user, rel))
		ttl_owner_refuse(rel, to_delete->tids.tids, false,
						 _("Foreign keys that reference the table would run code of other roles, which only a role with the DELETE privilege may set off."));
	if (to_delete->went_along &&
		((!to_delete->as_user && (ttl_owner_has_code(rel) || ttl_archive_has_code(rel))) ||
		 ttl_owner_acts_as_other(user, rel)))
		ttl_owner_refuse(rel, to_delete->tids.tids, true,
						 _("The table belongs to another role, and so does the code that its deletion would run."));
	return true;
}

/*
 * True if rows of the table may go along with those that the reaper deletes, as that owner, from
 * the container 'target', which goes whatever its settings.  *expired_at, by when these have
 * expired, becomes that of the former.  With 'heeds_grace' the table's policy is locked, if that needs no
 * wait, and stays so to the end of the transaction.
 */
bool
ttl_deletion_admit_table(Oid table, Oid owner, Oid target, bool heeds_grace,
						 TimestampTz *expired_at)
{
	TtlContainer container;

	if (!ttl_container_lookup(table, &container))
		return false;
	if (ttl_container_owner(table) != owner)
		return false;

	/*
	 * the grace of one partition is that of the container here; it can't
	 * begin until the commit
	 */
	if (heeds_grace &&
		(!ttl_policy_lock(container.container, false, false) ||
		 !ttl_container_peek(container.container, &container) ||
		 ttl_grace_lasts(&container.policy.change, ttl_execution_reference_time())))
		return false;
	/* a CALL asks for its own container whatever the settings of that */
	if (container.container != target)
	{
		if (!container.policy.reaping)
			return false;
		*expired_at = Min(*expired_at, ttl_execution_reference_time() - container.policy.reap_delay);
	}
	return true;
}

/*
 * Deletion
 */

/* The array that construct_array() makes, without its detour: TIDs are stored without padding. */
static Datum
tid_array(const ItemPointerData *tids, int ntids)
{
	Size		size = ARR_OVERHEAD_NONULLS(1) + sizeof(ItemPointerData) * ntids;
	ArrayType  *array;

	if (ntids == 0)
		return PointerGetDatum(construct_empty_array(TIDOID));
	array = palloc0(size);
	SET_VARSIZE(array, size);
	array->ndim = 1;
	array->elemtype = TIDOID;
	ARR_DIMS(array)[0] = ntids;
	ARR_LBOUND(array)[0] = 1;
	memcpy(ARR_DATA_PTR(array), tids, sizeof(ItemPointerData) * ntids);
	return PointerGetDatum(array);
}

/*
 * Appends what selects the rows whose TIDs are the parameter.  In a subselect the planner
 * doesn't see how many they are, and would choose a sequential scan for many.
 */
static void
append_rows(StringInfo sql, Relation rel)
{
	appendStringInfo(sql, " FROM ONLY %s AS " TTL_OWNER_TO_DELETE
					 " WHERE ctid OPERATOR(pg_catalog.=) ANY ((SELECT $1)::pg_catalog.tid[])",
					 ttl_container_table_name(RelationGetRelid(rel)));
}

/* The statement that deletes the rows */
static char *
make_statement(Relation rel, int flags)
{
	StringInfoData sql;

	initStringInfo(&sql);
	if (flags & TTL_DELETION_SKIP_LOCKED)
	{
		/* DELETE itself has no SKIP LOCKED */
		appendStringInfo(&sql, "DELETE FROM ONLY %s AS " TTL_OWNER_TO_DELETE
						 " WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ctid",
						 ttl_container_table_name(RelationGetRelid(rel)));
		append_rows(&sql, rel);
		appendStringInfoString(&sql, " FOR UPDATE SKIP LOCKED))");
	}
	else
	{
		appendStringInfoString(&sql, "DELETE");
		append_rows(&sql, rel);
	}
	return sql.data;
}

/*
 * Error context of a deletion: names it, unless it is one of the reaper's own, and what makes it
 * fail, but no values of a row that is gone for the user.
 */
typedef struct Context
{
	const Deletion *deletion;
	const ToDelete *to_delete;
	bool		shows_values;	/* decided before: where an error is raised,
								 * catalogs can't be read */
} Context;

/* The callback of that context */
static void
explain(void *arg)
{
	const Context *context = arg;
	const TtlSessionUser *user = context->deletion->user;
	Relation	rel = context->to_delete->rel;
	int			error = geterrcode();

	if (user != NULL || context->to_delete->went_along)
		errcontext("deletion of an expired row of container \"%s\" that %s", RelationGetRelationName(rel),
				   context->to_delete->went_along ? "references what is deleted or gets another key" :
				   "holds the key");
	/* an inner one has explained it */
	if (running != context->deletion)
		return;
	if (context->to_delete->as_user)
		ttl_owner_explain_user();
	else
		ttl_owner_explain();
	if (user == NULL && !context->to_delete->went_along)
		return;
	if (ERRCODE_TO_CATEGORY(error) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION && !context->shows_values)
		errdetail("The expired row cannot be deleted.");
	if (error == ERRCODE_FOREIGN_KEY_VIOLATION || error == ERRCODE_RESTRICT_VIOLATION)
		errhint("Delete or renew the rows that still reference the expired row.");
}

/* Errors (40001), as PostgreSQL does in REPEATABLE READ. */
static void
report_concurrent_update(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update"),
			 errhint("The transaction might succeed if retried.")));
}

/*
 * Deletes the rows to delete of a table.
 *
 * AFTER triggers, those of foreign keys among them, are left to the deletion around this one if
 * the same role executes both, as a referential action leaves them to its statement: so a chain
 * of references needs no recursion.  Another role's would fire as that role.
 */
static void
delete_from_table(const Deletion *deletion, ToDelete *to_delete, int flags)
{
	Oid			type = TIDARRAYOID;
	Datum		tids = tid_array(to_delete->tids.tids, to_delete->tids.n);
	Oid			owner = to_delete->rel->rd_rel->relowner;
	Oid			role = to_delete->as_user ? deletion->user->role : owner;
	char	   *sql = make_statement(to_delete->rel, flags);
	TtlSqlContext saved;
	Context		context = {deletion, to_delete};
	ErrorContextCallback callback = {error_context_stack, explain, &context};

	/* triggers of other owners' tables above it would run as this owner */
	if (deletion->user == NULL)
		ttl_owner_check(to_delete->rel);
	ttl_archive_trigger_check(to_delete->rel, &to_delete->container);
	if (to_delete->as_user)
		ttl_sql_begin(role, TTL_SQL_AS_USER, &saved);
	else
		ttl_owner_begin(owner, deletion->restricted, &saved);
	context.shows_values = deletion->user != NULL &&
		ttl_container_is_owner(deletion->user->role, RelationGetRelid(to_delete->rel));
	error_context_stack = &callback;
	ttl_owner_execute(sql, 1, &type, &tids, deletion->expired_at, owner,
					  RelationGetRelid(to_delete->rel), InvalidSnapshot, role != deletion->outer_role);
	to_delete->deleted = SPI_processed;
	/* in a restricted operation nothing was deferred */
	if (deletion->restricted)
		ttl_owner_check_temporary();
	else if (flags & TTL_DELETION_COMMITS)
		ttl_owner_run_deferred();
	error_context_stack = callback.previous;
	ttl_sql_end(&saved);
}

/*
 * In REPEATABLE READ, a DELETE doesn't find what is too new for the transaction's
 * snapshot.
 */
static void
check_snapshot(const ToDelete *to_delete)
{
	TupleTableSlot *slot;

	if (!IsolationUsesXactSnapshot() || to_delete->deleted >= to_delete->tids.n)
		return;
	slot = table_slot_create(to_delete->rel, NULL);
	for (int i = 0; i < to_delete->tids.n; i++)
	{
		if (table_tuple_fetch_row_version(to_delete->rel, &to_delete->tids.tids[i], SnapshotSelf, slot) &&
			!table_tuple_fetch_row_version(to_delete->rel, &to_delete->tids.tids[i],
										   GetTransactionSnapshot(), slot))
			report_concurrent_update();
		ExecClearTuple(slot);
	}
	ExecDropSingleTupleTableSlot(slot);
}

/* The reaper counts rows of its own container itself when they are committed. */
static void
count_deleted(const Deletion *deletion, const ToDelete *to_delete)
{
	TtlRowCounts rows = {0};

	if (!OidIsValid(to_delete->container.container))
		return;
	if (deletion->user != NULL)
		rows.evicted = to_delete->deleted;
	else if (to_delete->went_along)
		rows.deleted = to_delete->deleted;
	ttl_counters_add_rows(to_delete->container.container, &rows);
}

/* Deletes the rows, if they may be deleted. */
static void
delete_permitted(const Deletion *deletion, ToDelete *to_delete, int flags)
{
	if (!check_may_delete(deletion, to_delete))
		return;
	delete_from_table(deletion, to_delete, flags);
	if (deletion->user != NULL || to_delete->went_along)
		check_snapshot(to_delete);
	count_deleted(deletion, to_delete);
}

/* Remembers a container with an archive as it is now, unless it has been remembered. */
static void
remember_container(const TtlContainer *container)
{
	MemoryContext old;
	TtlContainer *copy;
	ListCell   *lc;

	if (!OidIsValid(container->policy.archive_to))
		return;
	foreach(lc, deleted_from)
	{
		if (((TtlContainer *) lfirst(lc))->container == container->container)
			return;
	}
	old = MemoryContextSwitchTo(TopTransactionContext);
	copy = palloc(sizeof(TtlContainer));
	*copy = *container;
	deleted_from = lappend(deleted_from, copy);
	MemoryContextSwitchTo(old);
}

/* Forgets them. */
static void
forget_containers(void)
{
	list_free_deep(deleted_from);
	deleted_from = NIL;
}

/*
 * Deletes the rows while 'running' is this deletion: what that sets off, in triggers and queries of foreign
 * keys, finds there what it is part of.
 */
static void
run_deletion(const Deletion *deletion, ToDelete *to_delete, int flags)
{
	const Deletion *outer = running;

	remember_container(&to_delete->container);
	running = deletion;
	PG_TRY();
	{
		delete_permitted(deletion, to_delete, flags);
	}
	PG_FINALLY();
	{
		running = outer;
		if (outer == NULL)
			forget_containers();
	}
	PG_END_TRY();
}

/* True if the transaction may have written rows. */
static bool
has_written(void)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny());
}

/* True if a deletion runs in this process, or what it has deferred. */
bool
ttl_deletion_is_running(void)
{
	return running != NULL;
}

/*
 * Deletes those of the rows with these TIDs that had expired at
 * 'expired_at', by the policy of this moment: an ordinary DELETE with triggers and
 * referential actions.  Returns how many it deleted.  Rows that are no longer there or
 * no longer expired are left alone.
 *
 * 'user' is the user whose statement needs it; NULL = it is done as the table's owner, by the
 * reaper (owner.c).
 *
 * Waits for rows that others have locked, as long as lock_timeout lets it,
 * unless TTL_DELETION_SKIP_LOCKED is among the flags.
 *
 * 'container' is the policy as the caller has read it under the policy lock; NULL
 * = it is read here, once.
 *
 * rel is an ordinary table, open and locked with RowExclusiveLock.  A snapshot
 * need not be active; SPI is entered and left inside.
 */
uint64
ttl_deletion_run(Relation rel, const TtlContainer *container,
				 const ItemPointerData *tids, int ntids,
				 TimestampTz expired_at, int flags, TtlSessionUser *user)
{
	ToDelete	target = {
		.rel = rel,
		.as_user = user != NULL,
		.tids = {.tids = unconstify(ItemPointerData *, tids), .n = ntids}
	};
	Deletion	deletion = {
		.expired_at = expired_at,
		.user = user,
		.owner = rel->rd_rel->relowner,
		.restricted = (flags & TTL_DELETION_RESTRICTED) != 0,
		.heeds_grace = (flags & TTL_DELETION_HEEDS_GRACE) != 0,
		.follows_writes = has_written()
	};

	if (container != NULL)
		target.container = *container;
	else
		(void) ttl_container_lookup(RelationGetRelid(rel), &target.container);
	deletion.target = target.container.container;
	run_deletion(&deletion, &target, flags);
	return target.deleted;
}

/* True if the execution (NULL = none) is the statement of the deletion that runs. */
static bool
deletes(const TtlExecution *execution)
{
	return running != NULL && execution != NULL && execution->row_mode == TTL_SEES_EXPIRED;
}

/* True if the execution (NULL = none) is such a statement, in a transaction that had written before. */
bool
ttl_deletion_follows_writes(const TtlExecution *execution)
{
	return deletes(execution) && running->follows_writes;
}

/* The user in whose session the execution (NULL = none) is a deletion's statement; else NULL. */
TtlSessionUser *
ttl_deletion_user(const TtlExecution *execution)
{
	return deletes(execution) ? running->user : NULL;
}

/* What goes along with a deletion of the reaper's is part of it. */
static Deletion
dependent_deletion(TimestampTz expired_at, TtlSessionUser *user)
{
	Deletion	deletion = {.expired_at = expired_at, .user = user, .follows_writes = has_written()};

	if (running != NULL && running->user == NULL)
	{
		deletion = *running;
		deletion.expired_at = expired_at;
	}
	return deletion;
}

/*
 * The time by which a row that is deleted now must have expired to have gone by that.  A deletion of ours deletes
 * expired rows alone, also if the clock has been set back since these were found to be so.
 */
static TimestampTz
reference_time(void)
{
	const TtlExecution *execution = ttl_execution_current();
	TimestampTz now = ttl_execution_reference_time();

	return deletes(execution) ? Max(now, execution->expired_at) : now;
}

/*
 * True if the row of the container, which has just been deleted, had expired: by the policy of this moment, or by
 * that of the moment when the deletion that runs began, which may have found it by that.
 */
bool
ttl_deletion_of_expired(const TtlContainer *container, TupleTableSlot *slot)
{
	TimestampTz now = reference_time();
	ListCell   *lc;

	if (ttl_expiry_of_slot(container, slot) <= now)
		return true;
	foreach(lc, deleted_from)
	{
		const TtlContainer *remembered = lfirst(lc);
		TtlContainer before;

		if (remembered->container != container->container)
			continue;
		before = *container;
		before.policy.default_ttl = remembered->policy.default_ttl;
		return ttl_expiry_of_slot(&before, slot) <= now;
	}
	return false;
}

/*
 * By when rows of that table must have expired to go along with what is deleted: 'now', or in a
 * deletion of the reaper's the time of that, or "reap_delay" ago if their container has one.
 * DT_NOBEGIN = none goes along: see ttl_deletion_admit_table().
 */
TimestampTz
ttl_deletion_cutoff(Oid table, TimestampTz now)
{
	if (running == NULL || running->user != NULL)
		return now;
	now = running->expired_at;
	return ttl_deletion_admit_table(table, running->owner, running->target,
									running->heeds_grace, &now) ? now : DT_NOBEGIN;
}

/*
 * Deletes rows (TtlRelTids) that reference what the statement 'outer' (NULL = one before, which
 * has deferred it) has deleted or renumbered, and that have expired by 'expired_at', which is
 * ttl_deletion_cutoff().  If the reaper has done so, they are deleted as part of its deletion, and
 * only those of tables that belong to the same owner.
 */
void
ttl_deletion_run_dependents(List *rows, TimestampTz expired_at, TtlSessionUser *user, const TtlExecution *outer)
{
	Deletion	deletion = dependent_deletion(expired_at, user);
	ListCell   *lc;

	deletion.outer_role = deletes(outer) ? outer->role : InvalidOid;
	foreach(lc, rows)
	{
		TtlRelTids *table = lfirst(lc);
		ToDelete	to_delete = {
			.rel = table_open(table->relid, RowExclusiveLock),
			.tids = table->tids,
			.went_along = true
		};

		/* it may be no container any more: then none of its rows has expired */
		if (ttl_container_lookup(table->relid, &to_delete.container))
		{
			to_delete.as_user = deletion.user != NULL &&
				ttl_owner_is_trusted(deletion.user, to_delete.rel);
			run_deletion(&deletion, &to_delete, 0);
		}
		table_close(to_delete.rel, NoLock);
	}
}

/* Errors (55000) if the target is of a container with an archive which its rows would not reach. */
static void
check_archive(ModifyTableState *mtstate, ResultRelInfo *target)
{
	TtlContainer container;

	if (ttl_container_lookup(RelationGetRelid(target->ri_RelationDesc), &container))
		ttl_archive_trigger_check(target->ri_RelationDesc, &container);
}

/*
 * An execution has run: errors (55000) if it is an action that has deleted rows from a container with an
 * archive which they could not reach.  A CASCADE without rows needs no archive.
 */
void
ttl_deletion_ran(TtlExecution *execution)
{
	if (running != NULL && InNoForceRLSOperation() && execution != NULL &&
		execution->query_desc->operation == CMD_DELETE && execution->query_desc->estate->es_processed > 0)
		ttl_execution_visit_targets(execution, check_archive);
}

/*
 * An execution has started: maybe that of a deletion, or of a referential action in it, which serves
 * the deletion and is done as another owner.
 */
void
ttl_deletion_started(TtlExecution *execution)
{
	bool		is_action = InNoForceRLSOperation();

	if (running == NULL || !(is_action || execution->row_mode == TTL_SEES_EXPIRED))
		return;
	ttl_owner_honour_foreign_keys(execution);
	if (is_action && running->restricted)
		ttl_owner_begin_action();
}
