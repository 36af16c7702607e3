/*-------------------------------------------------------------------------
 *
 * fk_dependents.c
 *	  What goes along with a row that is deleted.
 *
 * Rows that others reference by a foreign key without an action can be deleted if all
 * rows that reference them have expired, too.  These dependents, and theirs, in chains
 * and circles, also through foreign keys with CASCADE, are searched before anything is
 * deleted: one query for each foreign key and level, over all rows of the level.
 *
 * In a user's session the rows of a table go along if it is his own, if it belongs to the
 * owner of the table that he writes, or if no code runs by that: triggers, rules, or an
 * archive's.  Nor may referential actions run code of others, unless the table is one of
 * the former two, and the user has the right to delete from it.  Otherwise the rows stay,
 * and hold up what they reference, until the reaper deletes them.
 *
 * The queries compare as ri_triggers.c does.  Like its queries they run as the owner of the
 * referencing table, who may differ from all other roles concerned, so they are restricted
 * as maintenance commands are.  The reaper finds rows that must stay by the same query.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "compat.h"
#include "constraint.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/queryenvironment.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* A row to delete, as a hash key without padding */
typedef struct ToDeleteKey
{
	Oid			table;
	BlockNumber block;
	uint32		offset;
} ToDeleteKey;

static TtlToDelete *
make_to_delete(Relation rel, const TtlContainer *container)
{
	TtlToDelete *to_delete = palloc0(sizeof(TtlToDelete));

	to_delete->rel = rel;
	if (container != NULL)
		to_delete->container = *container;
	else
		(void) ttl_container_lookup(RelationGetRelid(rel), &to_delete->container);
	return to_delete;
}

TtlToDelete *
ttl_fk_dependents_add_table(TtlDeletion *deletion, Relation rel, const TtlContainer *container)
{
	TtlToDelete *to_delete = make_to_delete(rel, container);

	deletion->tables = lappend(deletion->tables, to_delete);
	return to_delete;
}

void
ttl_fk_dependents_remember(TtlDeletion *deletion)
{
	HASHCTL		ctl = {.keysize = sizeof(ToDeleteKey), .entrysize = sizeof(ToDeleteKey), .hcxt = CurrentMemoryContext};

	deletion->memory = CurrentMemoryContext;
	deletion->rows = hash_create("ttl rows to delete", 64, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * An expired row can't be deleted in this session.  The HINT says when the reaper does it.
 */
static void
refuse(TtlSessionUser *user, Relation rel, const ItemPointerData *tid, bool references,
	   const char *detail)
{
	TtlContainer container;
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TimestampTz until = DT_NOEND;
	TimestampTz now = ttl_execution_reference_time();

	if (ttl_container_lookup(RelationGetRelid(rel), &container) &&
		table_tuple_fetch_row_version(rel, unconstify(ItemPointerData *, tid),
									  SnapshotAny, slot))
		until = ttl_grace_held_until(&container, slot, now);
	user->refused = true;
	ereport(ERROR,
			(errcode(ERRCODE_FOREIGN_KEY_VIOLATION),
			 references ?
			 errmsg("an expired row of table \"%s\" still references what is to be deleted",
					RelationGetRelationName(rel)) :
			 errmsg("an expired row of table \"%s\" cannot be deleted yet",
					RelationGetRelationName(rel)),
			 errdetail_internal("%s", detail),
			 until == DT_NOEND ?
			 errhint("It stays until its owner deletes it, or turns reaping on.") :
			 until > now ?
			 errhint("It is deleted in the background after %s.", timestamptz_to_str(until)) :
			 errhint("It is deleted in the background soon.")));
}

void
ttl_fk_dependents_check_actions(TtlDeletion *deletion, Relation rel, const ItemPointerData *tid)
{
	if (!ttl_owner_may_delete(deletion->user->role, RelationGetRelid(rel)) &&
		ttl_owner_acts_as_other(deletion->user->role, rel))
		refuse(deletion->user, rel, tid, false,
			   _("Foreign keys that reference the table would run code of other roles, which only a role with the DELETE privilege may set off."));
}

void
ttl_fk_dependents_check_archive(const TtlDeletion *deletion, const TtlToDelete *to_delete,
								Oid archive)
{
	Relation	rel;

	if (deletion->user == NULL)
		return;
	/* the lock keeps others from adding code */
	rel = table_open(archive, RowExclusiveLock);
	if (!ttl_owner_is_trusted(deletion->user, rel) && ttl_archive_has_code(rel, to_delete->rel))
		refuse(deletion->user, to_delete->rel, to_delete->tids.tids, false,
			   psprintf(_("Its archive \"%s\" belongs to another role, and so does the code that an insertion there would run."),
						RelationGetRelationName(rel)));
	table_close(rel, NoLock);
}

/* May expired rows of a table that is open be deleted by this deletion? */
static bool
may_delete_from(const TtlDeletion *deletion, const TtlToDelete *to_delete)
{
	Relation	rel = to_delete->rel;

	if (deletion->user == NULL)
		return rel->rd_rel->relowner == deletion->owner;
	if (to_delete->as_user && ttl_owner_may_delete(deletion->user->role, RelationGetRelid(rel)))
		return true;
	return (to_delete->as_user ||
			!(ttl_owner_has_code(rel) || OidIsValid(to_delete->container.archive_to))) &&
		!ttl_owner_acts_as_other(deletion->user->role, rel);
}

/*
 * The table of a row that references what is deleted; NULL if its rows stay.  Then a
 * foreign key without an action raises its error, or CASCADE deletes the row; but an
 * archive would miss it.
 */
static TtlToDelete *
find_to_delete(TtlDeletion *deletion, Oid table, const ItemPointerData *tid, bool cascades)
{
	TtlToDelete *to_delete;
	Relation	rel;
	ListCell   *lc;

	foreach(lc, deletion->tables)
	{
		to_delete = lfirst(lc);
		if (RelationGetRelid(to_delete->rel) == table)
			return to_delete;
	}
	rel = table_open(table, RowExclusiveLock);
	to_delete = make_to_delete(rel, NULL);
	to_delete->as_user = deletion->user != NULL && ttl_owner_is_trusted(deletion->user, rel);
	if (may_delete_from(deletion, to_delete))
	{
		deletion->tables = lappend(deletion->tables, to_delete);
		return to_delete;
	}
	if (deletion->user != NULL &&
		(!cascades || OidIsValid(to_delete->container.archive_to)))
		refuse(deletion->user, rel, tid, true,
			   _("The table belongs to another role, and so does the code that its deletion would run."));
	table_close(rel, NoLock);
	return NULL;
}

void
ttl_fk_dependents_add(TtlDeletion *deletion, TtlToDelete *to_delete, ItemPointer tid)
{
	ToDeleteKey	row = {
		RelationGetRelid(to_delete->rel),
		ItemPointerGetBlockNumber(tid),
		ItemPointerGetOffsetNumber(tid)
	};
	bool		found;

	(void) hash_search(deletion->rows, &row, HASH_ENTER, &found);
	if (!found)
		ttl_tids_append(&to_delete->tids, tid);
}

/* Does the caller delete from the container, rather than rows of it go along? */
static bool
is_target(const TtlDeletion *deletion, const TtlContainer *container)
{
	return deletion->tables != NIL &&
		((TtlToDelete *) linitial(deletion->tables))->container.container == container->container;
}

bool
ttl_fk_dependents_may_go_along(const TtlDeletion *deletion, Oid table, TimestampTz *expired_at)
{
	TtlContainer container;

	if (!ttl_container_lookup(table, &container))
		return false;
	*expired_at = deletion->expired_at;
	if (deletion->user != NULL)
		return true;
	if (ttl_container_owner(table) != deletion->owner)
		return false;
	if (!is_target(deletion, &container))
	{
		if (!container.reaping)
			return false;
		*expired_at = Min(*expired_at, ttl_execution_reference_time() - container.reap_delay);
	}
	return true;
}

List *
ttl_fk_dependents_references(const TtlDeletion *deletion, Relation rel)
{
	List	   *references = NIL;

	/* a copy, for the catalogs are read meanwhile */
	TriggerDesc *triggers = CopyTriggerDesc(rel->trigdesc);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];
		TtlReference *reference;

		if (trigger->tgfoid != F_RI_FKEY_NOACTION_DEL &&
			trigger->tgfoid != F_RI_FKEY_RESTRICT_DEL &&
			trigger->tgfoid != F_RI_FKEY_CASCADE_DEL)
			continue;
		reference = palloc(sizeof(TtlReference));
		reference->cascades = trigger->tgfoid == F_RI_FKEY_CASCADE_DEL;
		reference->fires = trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN ||
			trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
		if (!ttl_fk_dependents_may_go_along(deletion, trigger->tgconstrrelid,
											&reference->expired_at))
			reference->expired_at = DT_NOBEGIN;
		if (!ttl_constraint_read(trigger->tgconstraint, trigger->tgconstrrelid,
								 RelationGetRelid(rel), &reference->key))
			elog(ERROR, "cache lookup failed for constraint %u", trigger->tgconstraint);
		references = lappend(references, reference);
	}
	return references;
}

/*
 * Makes the keys of the rows a relation "k" of the statement, with columns n (the row's
 * position in the array), k1, k2 ...
 */
static Tuplestorestate *
register_keys(Relation rel, const TtlForeignKey *key, const ItemPointerData *tids, int ntids)
{
	EphemeralNamedRelation relation = palloc0(sizeof(EphemeralNamedRelationData));
	Tuplestorestate *keys = tuplestore_begin_heap(false, false, work_mem);
	TupleDesc	desc = CreateTemplateTupleDesc(key->nkeys + 1);
	TupleTableSlot *slot = table_slot_create(rel, NULL);

	TupleDescInitEntry(desc, 1, "n", INT4OID, -1, 0);
	for (int i = 0; i < key->nkeys; i++)
	{
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(rel), key->referenced_keys[i] - 1);

		TupleDescInitEntry(desc, i + 2, psprintf("k%d", i + 1), column->atttypid,
						   column->atttypmod, column->attndims);
		TupleDescInitEntryCollation(desc, i + 2, column->attcollation);
	}
	TupleDescFinalize(desc);
	for (int n = 0; n < ntids; n++)
	{
		Datum		values[INDEX_MAX_KEYS + 1] = {Int32GetDatum(n)};
		bool		nulls[INDEX_MAX_KEYS + 1] = {false};

		if (!table_tuple_fetch_row_version(rel, unconstify(ItemPointerData *, &tids[n]),
										   SnapshotSelf, slot))
			continue;
		for (int i = 0; i < key->nkeys; i++)
			values[i + 1] = slot_getattr(slot, key->referenced_keys[i], &nulls[i + 1]);
		tuplestore_putvalues(keys, desc, values, nulls);
		ExecClearTuple(slot);
	}
	ExecDropSingleTupleTableSlot(slot);

	relation->md.name = "k";
	relation->md.tupdesc = desc;
	relation->md.enrtype = ENR_NAMED_TUPLESTORE;
	relation->md.enrtuples = ntids;
	relation->reldata = keys;
	if (SPI_register_relation(relation) != SPI_OK_REL_REGISTER)
		elog(ERROR, "could not register relation \"%s\"", relation->md.name);
	return keys;
}

void
ttl_fk_dependents_query(const TtlDeletion *deletion, Relation rel, const TtlReference *reference,
						const ItemPointerData *tids, int ntids, TtlFkQuery query,
						TtlIdentity *saved)
{
	const TtlForeignKey *key = &reference->key;
	Relation	table = table_open(key->referencing,
								   query == TTL_FK_QUERY_EXPIRED ? RowExclusiveLock : AccessShareLock);
	char	   *alias = query == TTL_FK_QUERY_EXPIRED ? TTL_TO_DELETE : TTL_STAYING;
	Oid			owner = table->rd_rel->relowner;
	Tuplestorestate *keys;
	StringInfoData condition;
	TtlContainer container;
	int			sec_context;
	Oid			userid;

	ttl_owner_begin(table, deletion->restricted, saved);
	GetUserIdAndSecContext(&userid, &sec_context);
	if (owner != saved->userid)
		SetUserIdAndSecContext(userid, sec_context | SECURITY_RESTRICTED_OPERATION);

	keys = register_keys(rel, key, tids, ntids);
	initStringInfo(&condition);
	appendStringInfo(&condition, "FROM %s%s AS \"%s\" WHERE ",
					 table->rd_rel->relkind == RELKIND_RELATION ? "ONLY " : "",
					 ttl_container_table_name(RelationGetRelid(table)), alias);
	ttl_constraint_append_join(&condition, key, "k");
	/* an index-only scan has not the columns that a container's filter needs */
	if (ttl_container_lookup(RelationGetRelid(table), &container))
		appendStringInfo(&condition, " AND \"%s\".tableoid OPERATOR(pg_catalog.<>) 0", alias);

	/* a foreign key finds rows that the transaction's snapshot is too old to see */
	ttl_owner_execute(psprintf(query == TTL_FK_QUERY_EXPIRED ?
							   "SELECT r.tableoid, r.ctid FROM k, LATERAL (SELECT tableoid, ctid %s) AS r" :
							   "SELECT n FROM k WHERE EXISTS (SELECT %s)", condition.data),
					  0, NULL, NULL, reference->expired_at, deletion->excludes_grace, owner,
					  IsolationUsesXactSnapshot() ? GetLatestSnapshot() : InvalidSnapshot);
	tuplestore_end(keys);
	table_close(table, NoLock);
}

/* Adds the expired rows that reference, by that key, rows to delete from 'first' on. */
static void
add_referencing(TtlDeletion *deletion, TtlToDelete *referenced, int first,
				const TtlReference *reference)
{
	TtlIdentity saved;

	ttl_fk_dependents_query(deletion, referenced->rel, reference, &referenced->tids.tids[first],
							referenced->tids.n - first, TTL_FK_QUERY_EXPIRED, &saved);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	row = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;
		Oid			relid = DatumGetObjectId(SPI_getbinval(row, desc, 1, &isnull));
		ItemPointer tid = (ItemPointer) DatumGetPointer(SPI_getbinval(row, desc, 2, &isnull));
		MemoryContext old = MemoryContextSwitchTo(deletion->memory);
		TtlToDelete *to_delete = find_to_delete(deletion, relid, tid, reference->cascades);

		if (to_delete != NULL)
		{
			ttl_fk_dependents_add(deletion, to_delete, tid);
			referenced->referencing = list_append_unique_ptr(referenced->referencing, to_delete);
		}
		MemoryContextSwitchTo(old);
	}
	ttl_owner_end(&saved);
}

/* Adds the expired rows that reference those to delete of this table. */
static void
search_referencing(TtlDeletion *deletion, TtlToDelete *to_delete)
{
	int			first = to_delete->searched;
	int			end = to_delete->tids.n;
	ListCell   *lc;

	if (first == 0)
		to_delete->references = ttl_fk_dependents_references(deletion, to_delete->rel);
	foreach(lc, to_delete->references)
	{
		const TtlReference *reference = lfirst(lc);

		if (reference->expired_at != DT_NOBEGIN)
			add_referencing(deletion, to_delete, first, reference);
	}
	to_delete->searched = end;
}

/* Chains may be long, and go in circles through several tables. */
void
ttl_fk_dependents_search(TtlDeletion *deletion)
{
	bool		found;

	do
	{
		ListCell   *lc;

		found = false;
		foreach(lc, deletion->tables)
		{
			TtlToDelete *to_delete = lfirst(lc);

			if (to_delete->searched < to_delete->tids.n)
			{
				CHECK_FOR_INTERRUPTS();
				search_referencing(deletion, to_delete);
				found = true;
			}
		}
	} while (found);
}

void
ttl_fk_dependents_add_rows(TtlDeletion *deletion, const TtlRelTids *rows)
{
	TtlToDelete *to_delete = find_to_delete(deletion, rows->relid, rows->tids.tids, false);

	for (int i = 0; to_delete != NULL && i < rows->tids.n; i++)
		ttl_fk_dependents_add(deletion, to_delete, &rows->tids.tids[i]);
}
