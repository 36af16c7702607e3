/*-------------------------------------------------------------------------
 *
 * fk_dependents.c
 *	  What may go along with a row that is deleted.
 *
 * Rows that others reference by a foreign key without an action can be deleted if all
 * rows that reference them have expired, too, and may be deleted with them.
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

#include "access/table.h"
#include "access/tableam.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

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
ttl_fk_dependents_check_actions(TtlSessionUser *user, Relation rel, const ItemPointerData *tid)
{
	if (!ttl_owner_may_delete(user->role, RelationGetRelid(rel)) &&
		ttl_owner_acts_as_other(user->role, rel))
		refuse(user, rel, tid, false,
			   _("Foreign keys that reference the table would run code of other roles, which only a role with the DELETE privilege may set off."));
}

void
ttl_fk_dependents_check_archive(TtlSessionUser *user, Relation rel, const ItemPointerData *tid,
								Oid archive)
{
	Relation	archive_rel;

	if (user == NULL)
		return;
	/* the lock keeps others from adding code */
	archive_rel = table_open(archive, RowExclusiveLock);
	if (!ttl_owner_is_trusted(user, archive_rel) && ttl_archive_has_code(archive_rel, rel))
		refuse(user, rel, tid, false,
			   psprintf(_("Its archive \"%s\" belongs to another role, and so does the code that an insertion there would run."),
						RelationGetRelationName(archive_rel)));
	table_close(archive_rel, NoLock);
}

bool
ttl_fk_dependents_may_delete(const TtlDeletion *deletion, const TtlToDelete *to_delete)
{
	TtlSessionUser *user = deletion->user;
	Relation	rel = to_delete->rel;

	if (user == NULL)
		return rel->rd_rel->relowner == deletion->owner;
	if (to_delete->as_user && ttl_owner_may_delete(user->role, RelationGetRelid(rel)))
		return true;
	if (!to_delete->as_user &&
		(ttl_owner_has_code(rel) || OidIsValid(to_delete->container.policy.archive_to)))
		refuse(user, rel, to_delete->tids.tids, true,
			   _("The table belongs to another role, and so does the code that its deletion would run."));
	if (ttl_owner_acts_as_other(user->role, rel))
		refuse(user, rel, to_delete->tids.tids, true,
			   _("The table belongs to another role, and so does the code that its deletion would run."));
	return true;
}

bool
ttl_fk_dependents_may_go_along(const TtlDeletion *deletion, Oid table, TimestampTz *expired_at)
{
	TtlContainer container;

	if (!ttl_container_lookup(table, &container))
		return false;
	if (ttl_container_owner(table) != deletion->owner)
		return false;
	/* the grace of one partition is that of the container here; it can't begin until the commit */
	if (deletion->heeds_grace &&
		(!ttl_container_lock_policy(container.container, false, false) ||
		 !ttl_container_peek(container.container, &container) ||
		 ttl_grace_lasts(&container.policy.change, ttl_execution_reference_time())))
		return false;
	*expired_at = deletion->expired_at;
	if (container.container != deletion->target)
	{
		if (!container.policy.reaping)
			return false;
		*expired_at = Min(*expired_at, ttl_execution_reference_time() - container.policy.reap_delay);
	}
	return true;
}
