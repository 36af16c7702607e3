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
 *
 * ARCHIVES
 *
 * The statement that deletes rows inserts them into the archive; if that fails, they
 * stay.  Whether there is one is looked up once for each table: between two looks the
 * answer might change.  The archive's code, such as triggers, CHECKs and defaults, runs as whoever
 * deletes.  Rows of a shard of Citus move to the shard of the archive that is
 * co-located with it.
 *
 *
 * WHAT GOES ALONG
 *
 * Expired rows that reference what is deleted are found where PostgreSQL looks for them, in the
 * queries of foreign keys (fk.c), by whatever the referenced row is deleted.  With NO
 * ACTION and RESTRICT they are deleted here.  With CASCADE PostgreSQL deletes them, and before that
 * they are locked and inserted into their archive here, also those that a trigger then keeps.
 *
 * In a user's session the rows of a table go along if it is his own, if it belongs to the
 * owner of the table that he writes, or if no code runs by that: triggers, rules, or an
 * archive's.  Nor may referential actions run code of others, unless the table is one of
 * the former two, and the user has the right to delete from it.  Otherwise the rows stay,
 * and hold up what they reference, until the reaper deletes them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "citus/citus.h"
#include "commands/trigger.h"
#include "compat.h"
#include "container/container.h"
#include "counters.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* Expired rows of one table that are to be deleted. */
typedef struct ToDelete
{
	Relation	rel;
	TtlContainer container;
	bool		as_user;		/* they are deleted as the session's user */
	bool		went_along;		/* they reference what is deleted */
	bool		by_cascade;		/* PostgreSQL deletes them, and they are only
								 * archived here */
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
} Deletion;

/* The innermost deletion that runs, or NULL */
static const Deletion *running = NULL;

/*
 * Archives
 */

/* Errors since the archive can't take a column along. */
static void
refuse_archive(Relation rel, const TtlPolicy *policy, const char *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("archive \"%s\" has no place for column \"%s\" of container \"%s\"",
					get_rel_name(policy->archive_to), column, RelationGetRelationName(rel)),
			 errdetail("Columns are matched by name; one that is generated there, or that the archive as a container sets itself, doesn't count."),
			 errhint("Add the column to the archive, or name those to take along by ttl.alter_container(..., archive_columns => ...).")));
}

/* True if the archive can take a value of that column.  Its own ones count if "own". */
static bool
archive_takes(Oid archive, const char *column, bool own)
{
	AttrNumber	attno = get_attnum(archive, column);
	TtlContainer container;

	return attno > 0 && get_attgenerated(archive, attno) == '\0' &&
		(own || !ttl_container_lookup(archive, &container) ||
		 (attno != container.ts_attno && attno != container.ttl_attno));
}

/*
 * True if the archive may do without that column of a container.  _ts and TTL say nothing
 * there; but a document is what the row is about.
 */
static bool
is_dispensable(Relation rel, const TtlPolicy *policy, const char *column)
{
	TtlContainer container;

	if (strcmp(column, NameStr(policy->ts_column)) == 0)
		return true;
	ttl_container_find_columns(RelationGetRelid(rel), policy, &container);
	return strcmp(column, NameStr(policy->ttl_column)) == 0 &&
		container.ttl_type != NULL && !container.ttl_type->is_document;
}

/* Names of the columns that rows of the relation take along */
static List *
find_columns(Relation rel, const TtlPolicy *policy)
{
	TupleDesc	desc = RelationGetDescr(rel);
	List	   *columns = NIL;
	ListCell   *lc;

	foreach(lc, policy->archive_columns)
	{
		if (get_attnum(RelationGetRelid(rel), lfirst(lc)) <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of container \"%s\" does not exist",
							(char *) lfirst(lc), RelationGetRelationName(rel)),
					 errhint("Name the columns to take along by ttl.alter_container(..., archive_columns => ...).")));
		if (!archive_takes(policy->archive_to, lfirst(lc), true))
			refuse_archive(rel, policy, lfirst(lc));
	}
	if (policy->archive_columns != NIL)
		return policy->archive_columns;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		char	   *name = NameStr(attribute->attname);

		if (attribute->attisdropped)
			continue;
		if (archive_takes(policy->archive_to, name, false))
			columns = lappend(columns, pstrdup(name));
		else if (!is_dispensable(rel, policy, name) &&
				 !(attribute->attgenerated != '\0' &&
				   get_attnum(policy->archive_to, name) > 0 &&
				   get_attgenerated(policy->archive_to,
									get_attnum(policy->archive_to, name)) != '\0'))
			refuse_archive(rel, policy, name);
	}
	if (columns == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("archive \"%s\" has no column in common with container \"%s\"",
						get_rel_name(policy->archive_to), RelationGetRelationName(rel)),
				 errdetail("Columns are matched by name.")));
	return columns;
}

List *
ttl_deletion_archive_columns(Relation rel, Oid container, const TtlPolicy *policy, Oid *archive)
{
	char	   *distribution_column = "";
	TtlPolicy	local = *policy;
	List	   *columns;
	ListCell   *lc;

	*archive = local.archive_to = ttl_citus_find_archive(container, policy, &distribution_column, ERROR);
	if (get_rel_name(*archive) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("archive of container \"%s\" does not exist",
						RelationGetRelationName(rel)),
				 errhint("Choose another by ttl.alter_container(..., archive_to => ...), or 0 for none.")));
	columns = find_columns(rel, &local);
	foreach(lc, columns)
	{
		if (distribution_column[0] == '\0' || strcmp(lfirst(lc), distribution_column) == 0)
			return columns;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("distribution column \"%s\" of container \"%s\" is not taken along into the archive",
					distribution_column, RelationGetRelationName(rel)),
			 errhint("Name it in ttl.alter_container(..., archive_columns => ...).")));
	return NIL;
}

/* True if an index of the table is computed by expressions. */
static bool
has_index_code(Relation rel)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		HeapTuple	index = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));
		bool		found;

		if (!HeapTupleIsValid(index))
			elog(ERROR, "cache lookup failed for index %u", lfirst_oid(lc));
		found = !heap_attisnull(index, Anum_pg_index_indexprs, NULL) ||
			!heap_attisnull(index, Anum_pg_index_indpred, NULL);
		ReleaseSysCache(index);
		if (found)
			return true;
	}
	return false;
}

/* True if a value of the column is converted to, or made by, a type that users have defined. */
static bool
has_type_code(const FormData_pg_attribute *attribute, Relation rel)
{
	AttrNumber	attno = get_attnum(RelationGetRelid(rel), NameStr(attribute->attname));
	Oid			type = attno > 0 ? TupleDescAttr(RelationGetDescr(rel), attno - 1)->atttypid : InvalidOid;

	return !attribute->attisdropped && attribute->atttypid != type &&
		(attribute->atttypid >= FirstNormalObjectId || type >= FirstNormalObjectId);
}

/* True if the insertion of rows of the relation may run code of the archive's owner. */
static bool
archive_has_code(Relation archive, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(archive);

	/* partitions have code of their own, and so has what is behind a foreign table */
	if (archive->rd_rel->relkind != RELKIND_RELATION || archive->rd_rel->relispartition ||
		archive->rd_rel->relrowsecurity || archive->rd_rules != NULL ||
		(desc->constr != NULL && (desc->constr->num_defval > 0 || desc->constr->num_check > 0)))
		return true;
	for (int i = 0; archive->trigdesc != NULL && i < archive->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &archive->trigdesc->triggers[i];

		if (TRIGGER_FOR_INSERT(trigger->tgtype) && trigger->tgenabled != TRIGGER_DISABLED &&
			RI_FKey_trigger_type(trigger->tgfoid) == RI_TRIGGER_NONE)
			return true;
	}
	for (int i = 0; i < desc->natts; i++)
	{
		if (has_type_code(TupleDescAttr(desc, i), rel))
			return true;
	}
	return has_index_code(archive);
}

/* Appends an INSERT into the archive of the relation's rows, up to FROM.  Returns the archive. */
static Oid
append_archiving(StringInfo sql, Relation rel, const TtlContainer *container)
{
	TtlPolicy	policy;
	Oid			archive;
	StringInfoData columns;
	ListCell   *lc;

	if (!ttl_policy_read(container->container, &policy) ||
		policy.archive_to != container->policy.archive_to)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("archive of container \"%s\" was changed concurrently",
						RelationGetRelationName(rel))));

	initStringInfo(&columns);
	foreach(lc, ttl_deletion_archive_columns(rel, container->container, &policy, &archive))
		appendStringInfo(&columns, "%s%s", columns.len > 0 ? ", " : "", quote_identifier(lfirst(lc)));
	appendStringInfo(sql, "INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s",
					 ttl_container_table_name(archive), columns.data, columns.data);
	return archive;
}

/*
 * What may go along
 */

/*
 * An expired row can't be deleted in this session.  The HINT says when the reaper does it.
 */
static void
refuse(Relation rel, const ItemPointerData *tid, bool references, const char *detail)
{
	TtlContainer container;
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TimestampTz until = DT_NOEND;
	char	   *when;

	if (ttl_container_lookup(RelationGetRelid(rel), &container) &&
		table_tuple_fetch_row_version(rel, unconstify(ItemPointerData *, tid),
									  SnapshotAny, slot))
		until = ttl_grace_held_until(&container, slot, ttl_execution_reference_time());
	if (until == DT_NOEND)
		when = _("It stays until its owner deletes it, or turns reaping on.");
	else if (until > ttl_execution_reference_time())
		when = psprintf(_("It is deleted in the background after %s."), timestamptz_to_str(until));
	else
		when = _("It is deleted in the background soon.");
	ereport(ERROR,
			(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
			 references ?
			 errmsg("an expired row of table \"%s\" still references what is to be deleted",
					RelationGetRelationName(rel)) :
			 errmsg("an expired row of table \"%s\" cannot be deleted yet",
					RelationGetRelationName(rel)),
			 errdetail_internal("%s", detail), errhint("%s", when)));
}

/*
 * Errors (23503) if rows go, in a user's session (NULL = in none), to an archive that has code of
 * another role than the user and the owner of the table that he writes.
 */
static void
check_archive_code(const TtlSessionUser *user, Relation rel, const ItemPointerData *tid, Oid archive)
{
	Relation	archive_rel;

	if (user == NULL)
		return;
	/* the lock keeps others from adding code */
	archive_rel = table_open(archive, RowExclusiveLock);
	if (!ttl_owner_is_trusted(user, archive_rel) && archive_has_code(archive_rel, rel))
		refuse(rel, tid, false,
			   psprintf(_("Its archive \"%s\" belongs to another role, and so does the code that an insertion there would run."),
						RelationGetRelationName(archive_rel)));
	table_close(archive_rel, NoLock);
}

/*
 * True if the rows may be deleted, by what that would set off; false if they reference what the reaper
 * deletes and are another owner's to keep; error (23503) in a user's session.
 */
static bool
may_delete(const Deletion *deletion, const ToDelete *to_delete)
{
	const TtlSessionUser *user = deletion->user;
	Relation	rel = to_delete->rel;

	if (to_delete->by_cascade)
		return OidIsValid(to_delete->container.policy.archive_to);
	if (user == NULL)
		return rel->rd_rel->relowner == deletion->owner;
	if (to_delete->as_user && ttl_owner_may_delete(user->role, RelationGetRelid(rel)))
		return true;
	if (!to_delete->went_along && ttl_owner_acts_as_other(user->role, rel))
		refuse(rel, to_delete->tids.tids, false,
			   _("Foreign keys that reference the table would run code of other roles, which only a role with the DELETE privilege may set off."));
	if (to_delete->went_along &&
		((!to_delete->as_user &&
		  (ttl_owner_has_code(rel) || OidIsValid(to_delete->container.policy.archive_to))) ||
		 ttl_owner_acts_as_other(user->role, rel)))
		refuse(rel, to_delete->tids.tids, true,
			   _("The table belongs to another role, and so does the code that its deletion would run."));
	return true;
}

bool
ttl_deletion_may_go_along(Oid table, Oid owner, Oid target, bool heeds_grace,
						  TimestampTz *expired_at)
{
	TtlContainer container;

	if (!ttl_container_lookup(table, &container))
		return false;
	if (ttl_container_owner(table) != owner)
		return false;
	/* the grace of one partition is that of the container here; it can't begin until the commit */
	if (heeds_grace &&
		(!ttl_policy_lock(container.container, false, false) ||
		 !ttl_container_peek(container.container, &container) ||
		 ttl_grace_lasts(&container.policy.change, ttl_execution_reference_time())))
		return false;
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

static void
append_delete(StringInfo sql, Relation rel, int flags)
{
	if (flags & TTL_DELETION_SKIP_LOCKED)
	{
		appendStringInfo(sql, "DELETE FROM ONLY %s AS " TTL_OWNER_TO_DELETE
						 " WHERE ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT ctid",
						 ttl_container_table_name(RelationGetRelid(rel)));
		append_rows(sql, rel);
		appendStringInfoString(sql, " FOR UPDATE SKIP LOCKED))");
	}
	else
	{
		appendStringInfoString(sql, "DELETE");
		append_rows(sql, rel);
	}
}

/* Makes the statement that deletes the rows and puts them into their archive. */
static char *
make_statement(const Deletion *deletion, const ToDelete *to_delete, int flags)
{
	Relation	rel = to_delete->rel;
	Oid			archive = InvalidOid;
	StringInfoData sql;

	initStringInfo(&sql);
	if (to_delete->by_cascade)
	{
		archive = append_archiving(&sql, rel, &to_delete->container);
		append_rows(&sql, rel);
	}
	else if (!OidIsValid(to_delete->container.policy.archive_to))
		append_delete(&sql, rel, flags);
	else
	{
		appendStringInfoString(&sql, "WITH deleted AS (");
		append_delete(&sql, rel, flags);
		appendStringInfoString(&sql, " RETURNING *), archived AS (");
		archive = append_archiving(&sql, rel, &to_delete->container);
		appendStringInfoString(&sql, " FROM deleted) SELECT pg_catalog.count(*) FROM deleted");
	}
	if (OidIsValid(archive))
		check_archive_code(deletion->user, rel, to_delete->tids.tids, archive);
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
} Context;

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
	if (ERRCODE_TO_CATEGORY(error) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION &&
		!(user != NULL && ttl_container_is_owner(user->role, RelationGetRelid(rel))))
		errdetail("The expired row cannot be deleted.");
	if (error == ERRCODE_FOREIGN_KEY_VIOLATION || error == ERRCODE_RESTRICT_VIOLATION)
		errhint("Delete or renew the rows that still reference the expired row.");
}

/* Locks the rows that are there, in what is their latest version then. */
static void
lock_rows(ToDelete *to_delete)
{
	TtlTids    *tids = &to_delete->tids;
	TupleTableSlot *slot = table_slot_create(to_delete->rel, NULL);
	int			kept = 0;

	for (int i = 0; i < tids->n; i++)
	{
		TM_FailureData failure;

		if (table_tuple_lock(to_delete->rel, &tids->tids[i], GetActiveSnapshot(), slot,
							 GetCurrentCommandId(false), LockTupleExclusive, LockWaitBlock,
							 TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure) == TM_Ok)
			tids->tids[kept++] = slot->tts_tid;
		ExecClearTuple(slot);
	}
	tids->n = kept;
	ExecDropSingleTupleTableSlot(slot);
}

/*
 * Deletes the rows to delete of a table, and puts them into its archive.
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
	Oid			owner = to_delete->by_cascade ?
		ttl_container_owner(to_delete->container.container) : to_delete->rel->rd_rel->relowner;
	Oid			role = to_delete->as_user ? deletion->user->role : owner;
	char	   *sql = make_statement(deletion, to_delete, flags);
	TtlIdentity saved;
	Context		context = {deletion, to_delete};
	ErrorContextCallback callback = {error_context_stack, explain, &context};

	if (deletion->user == NULL && !to_delete->by_cascade)
		ttl_owner_check(to_delete->rel);
	if (to_delete->as_user)
		ttl_owner_begin_as_user(deletion->user, &saved);
	else
		ttl_owner_begin(owner, deletion->restricted, &saved);
	error_context_stack = &callback;
	ttl_owner_execute(sql, 1, &type, &tids, deletion->expired_at, owner,
					  InvalidSnapshot, role != deletion->outer_role);
	to_delete->deleted = SPI_processed;
	if (SPI_tuptable != NULL)
	{
		bool		isnull;

		to_delete->deleted = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
														 SPI_tuptable->tupdesc, 1, &isnull));
	}
	if (deletion->restricted)
		ttl_owner_check_temporary();
	else if (flags & TTL_DELETION_COMMITS)
		ttl_owner_run_deferred();
	error_context_stack = callback.previous;
	ttl_owner_end(&saved);
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
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access due to concurrent update"),
					 errhint("The transaction might succeed if retried.")));
		ExecClearTuple(slot);
	}
	ExecDropSingleTupleTableSlot(slot);
}

/* What the statistics get when the transaction commits */
typedef struct Count
{
	Oid			container;
	int64		reaped;
	int64		evicted;
	int64		archived;
} Count;

static List *counts = NIL;

/* The reaper counts rows of its own container itself when they are committed. */
static void
count_deleted(const Deletion *deletion, const ToDelete *to_delete)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	Count	   *count = palloc0(sizeof(Count));

	count->container = to_delete->container.container;
	if (deletion->user != NULL)
		count->evicted = to_delete->deleted;
	else if (to_delete->went_along)
		count->reaped = to_delete->deleted;
	if (OidIsValid(to_delete->container.policy.archive_to))
		count->archived = to_delete->deleted;
	if (OidIsValid(count->container))
		counts = lappend(counts, count);
	MemoryContextSwitchTo(old);
}

void
ttl_deletion_transaction(XactEvent event)
{
	static bool counted = false;
	bool		counts_now = event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE;

	/* the commit may fail after all */
	if (counts_now || (counted && event == XACT_EVENT_ABORT))
	{
		int			sign = counts_now ? 1 : -1;
		ListCell   *lc;

		foreach(lc, counts)
		{
			const Count *count = lfirst(lc);

			ttl_counters_add_rows(count->container, sign * count->reaped, sign * count->evicted,
								  sign * count->archived);
		}
	}
	counted = counts_now;
	if (!counts_now)
		counts = NIL;
}

/* Deletes the rows, if they may be deleted. */
static void
delete_permitted(const Deletion *deletion, ToDelete *to_delete, int flags)
{
	if (!may_delete(deletion, to_delete))
		return;
	if (to_delete->by_cascade)
		lock_rows(to_delete);
	delete_from_table(deletion, to_delete, flags);
	if (!to_delete->by_cascade && (deletion->user != NULL || to_delete->went_along))
		check_snapshot(to_delete);
	count_deleted(deletion, to_delete);
}

/* The same, as part of the deletion. */
static void
run_deletion(const Deletion *deletion, ToDelete *to_delete, int flags)
{
	const Deletion *outer = running;
	const int	ncounts = list_length(counts);

	PG_TRY();
	{
		running = deletion;
		delete_permitted(deletion, to_delete, flags);
	}
	PG_CATCH();
	{
		running = outer;
		counts = list_truncate(counts, ncounts);
		PG_RE_THROW();
	}
	PG_END_TRY();
	running = outer;
}

bool
ttl_deletion_is_running(void)
{
	return running != NULL;
}

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
		.heeds_grace = (flags & TTL_DELETION_HEEDS_GRACE) != 0
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

TtlSessionUser *
ttl_deletion_user(const TtlExecution *execution)
{
	return deletes(execution) ? running->user : NULL;
}

/* What goes along with a deletion of the reaper's is part of it. */
static Deletion
dependent_deletion(TimestampTz expired_at, TtlSessionUser *user)
{
	Deletion deletion = {.expired_at = expired_at, .user = user};

	if (running != NULL && running->user == NULL)
	{
		deletion = *running;
		deletion.expired_at = expired_at;
	}
	return deletion;
}

TimestampTz
ttl_deletion_cutoff(Oid table, TimestampTz now)
{
	if (running == NULL || running->user != NULL)
		return now;
	now = running->expired_at;
	return ttl_deletion_may_go_along(table, running->owner, running->target,
									 running->heeds_grace, &now) ? now : DT_NOBEGIN;
}

void
ttl_deletion_run_dependents(List *rows, bool by_cascade, TimestampTz expired_at,
							TtlSessionUser *user, const TtlExecution *outer)
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
			.went_along = true,
			.by_cascade = by_cascade
		};

		if (ttl_container_lookup(table->relid, &to_delete.container))
		{
			to_delete.as_user = !by_cascade && deletion.user != NULL &&
				ttl_owner_is_trusted(deletion.user, to_delete.rel);
			run_deletion(&deletion, &to_delete, 0);
		}
		table_close(to_delete.rel, NoLock);
	}
}

void
ttl_deletion_truncate(Relation rel)
{
	char	   *sql = psprintf("TRUNCATE ONLY %s", ttl_container_table_name(RelationGetRelid(rel)));
	TtlIdentity saved;
	int			result;

	ttl_owner_check(rel);
	ttl_owner_begin(rel->rd_rel->relowner, true, &saved);
	relation_close(rel, NoLock);
	result = SPI_execute(sql, false, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(result));
	ttl_owner_end(&saved);
}

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
