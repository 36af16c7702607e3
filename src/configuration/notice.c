/*-------------------------------------------------------------------------
 *
 * notice.c
 *	  NOTICEs and WARNINGs about what a configuration entails.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "common/int.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "guc.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

/* Rows that a change makes expired are counted as far as this. */
#define COUNTED_ROWS	10000

/* So many rows, of which that many have been counted; maybe there is none */
static const char *
how_many(int64 count, bool complete)
{
	if (count == 0)
		return _("an unknown number of");
	if (count > COUNTED_ROWS)
		return psprintf(_("more than %d"), COUNTED_ROWS);
	return psprintf(complete ? "%lld" : _("at least %lld"), (long long) count);
}

/*
 * Reports how many stored rows of the container have expired because the default TTL was
 * another one before, when the reaper begins with them, and how they may be had back.
 */
void
ttl_notice_made_expired(Oid relid, const TtlPolicy *policy, int32 old_default)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz begin = Max(now, ttl_grace_end(&policy->change, now));
	TimestampTz earliest;
	int64		count;
	int64		seconds;
	bool		complete;
	char	   *detail;

	if (!ttl_policy_is_shorter(policy->default_ttl, old_default))
		return;
	count = ttl_expiry_count_made_expired(relid, old_default, now, COUNTED_ROWS + 1,
										  &complete, &earliest);
	if (count == 0 && complete)
		return;
	if (count > 0 && !pg_add_s64_overflow(earliest, policy->reap_delay, &earliest))
		begin = Max(begin, earliest);
	seconds = (begin - now + USECS_PER_SEC - 1) / USECS_PER_SEC;
	if (!ttl_guc_reaper)
		detail = psprintf(_("Nothing is deleted as long as \"%s\" is off."), "ttl.reaper");
	else if (!policy->reaping)
		detail = _("Nothing is deleted as long as reaping is off.");
	else
		detail = psprintf(ngettext("The reaper begins to delete them %lld second after the change is committed.",
								   "The reaper begins to delete them %lld seconds after the change is committed.",
								   (unsigned long) seconds), (long long) seconds);

	ereport(NOTICE,
			(errmsg_plural("%s stored row of container \"%s\" expires by this change",
						   "%s stored rows of container \"%s\" expire by this change",
						   (unsigned long) count, how_many(count, complete), get_rel_name(relid)),
			 errdetail_internal("%s", detail),
			 errhint("Until they are deleted, ttl.set_default_ttl(..., %s) brings them back.",
					 ttl_policy_default_ttl_text(old_default))));
}

/*
 * Reports how many expired rows another default TTL, or none, makes visible.  The former
 * one is still in force.
 */
void
ttl_notice_made_visible(Oid relid, int32 old_default, int32 new_default)
{
	TtlContainer container;
	TimestampTz earliest;
	int64		count;
	bool		complete;

	if (!ttl_policy_is_shorter(old_default, new_default) ||
		!ttl_container_peek(relid, &container) || container.lacks_column)
		return;
	count = ttl_expiry_count_made_expired(relid, new_default, GetCurrentTimestamp(),
										  COUNTED_ROWS + 1, &complete, &earliest);
	if (count == 0 && complete)
		return;
	ereport(NOTICE,
			(errmsg_plural("%s expired row of container \"%s\" becomes visible by this change",
						   "%s expired rows of container \"%s\" become visible by this change",
						   (unsigned long) count, how_many(count, complete), get_rel_name(relid)),
			 new_default != TTL_OFF ? 0 :
			 errhint("To have expired rows deleted before TTL is turned off, use CALL ttl.reap(%s).",
					 quote_literal_cstr(ttl_container_table_name(relid)))));
}

/* Reports that nothing expires of a container that was made without a default TTL. */
void
ttl_notice_without_default(Oid relid, const TtlPolicy *policy)
{
	ereport(NOTICE,
			(errmsg("rows of container \"%s\" do not expire before it has a default TTL",
					get_rel_name(relid)),
			 NameStr(policy->ttl_column)[0] == '\0' ? 0 :
			 errdetail("Rows' own TTLs in column \"%s\" have no effect until then, either.",
					   NameStr(policy->ttl_column)),
			 errhint("Use ttl.set_default_ttl(%s, ...) with a number of seconds, or with -1 to have only rows with a TTL of their own expire.",
					 quote_literal_cstr(ttl_container_table_name(relid)))));
}

/* Names of containers, as far as a line has room for them */
#define NAMED_CONTAINERS	20

/* Warns that containers have ended with the extension. */
void
ttl_notice_dropped_extension(const List *containers)
{
	StringInfoData names;
	char	   *first = quote_literal_cstr(ttl_container_table_name(linitial_oid(containers)));
	int			rest = list_length(containers) - NAMED_CONTAINERS;
	ListCell   *lc;

	initStringInfo(&names);
	foreach(lc, containers)
	{
		if (foreach_current_index(lc) == NAMED_CONTAINERS)
			break;
		appendStringInfo(&names, "%s%s", names.len > 0 ? ", " : "",
						 ttl_container_table_name(lfirst_oid(lc)));
	}
	if (rest > 0)
		appendStringInfo(&names, ngettext(" and %d other", " and %d others", (unsigned long) rest), rest);
	ereport(WARNING,
			(errmsg_plural("rows of %d table do not expire any more, and all that are still stored become visible",
						   "rows of %d tables do not expire any more, and all that are still stored become visible",
						   (unsigned long) list_length(containers), list_length(containers)),
			 errdetail("Without the extension these are no containers: %s.", names.data),
			 list_length(containers) == 1 ?
			 errhint("To have expired rows deleted first, use CALL ttl.reap(%s) before the extension is dropped.", first) :
			 errhint("To have expired rows deleted first, use CALL ttl.reap(%s), and so on for each table, before the extension is dropped.",
					 first)));
}

/* Warns that a command has disabled a trigger of ttl's, and what that means. */
void
ttl_notice_trigger_disabled(Oid relid, const char *trigger, const char *detail)
{
	ereport(WARNING,
			(errmsg("trigger \"%s\" of container \"%s\" is disabled", trigger, get_rel_name(relid)),
			 errdetail_internal("%s", detail),
			 errhint("Use ALTER TABLE ... ENABLE TRIGGER \"%s\".", trigger)));
}

/* Says that a table that is created like a container is none. */
void
ttl_notice_copies(const CreateStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->tableElts)
	{
		TtlContainer container;
		Oid			relid;

		if (!IsA(lfirst(lc), TableLikeClause))
			continue;
		relid = RangeVarGetRelid(lfirst_node(TableLikeClause, lc)->relation, NoLock, true);
		if (OidIsValid(relid) && ttl_container_peek(relid, &container))
			ereport(NOTICE,
					(errmsg("rows of table \"%s\" do not expire, although those of container \"%s\" do",
							stmt->relation->relname, get_rel_name(container.container)),
					 errhint("To register it as a container, too, use ttl.create_container().")));
	}
}

/* Says that a partition that has left its container has become one. */
void
ttl_notice_detached(Oid relid)
{
	ereport(NOTICE,
			(errmsg("table \"%s\" has become a container of its own", get_rel_name(relid)),
			 errdetail("Its rows expire as before."),
			 errhint("To make it an ordinary table, whose rows are all visible, use ttl.drop_container().")));
}

/* Reports that reaping is off because a subscription writes the table. */
void
ttl_notice_subscribed(Oid relid)
{
	ereport(NOTICE,
			(errmsg("reaping of container \"%s\" is off because a subscription writes it",
					get_rel_name(relid)),
			 errdetail("A row that the publisher has renewed may expire here before the change arrives."),
			 errhint("Let the publisher delete expired rows. If it is subscribed to this table, too, reaping is off on both sides, and one has to delete: there, use ttl.alter_container(%s, reaping => true, reap_delay => ...) with a delay longer than changes take to arrive.",
					 quote_literal_cstr(ttl_container_table_name(relid)))));
}
