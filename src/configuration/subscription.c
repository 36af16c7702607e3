/*-------------------------------------------------------------------------
 *
 * subscription.c
 *	  Containers that a subscription writes.
 *
 * A row that the publisher has renewed in time expires here until the change arrives.  If
 * it were deleted meanwhile, the UPDATE would find no row, and the row would be lost for
 * good.  The publisher deletes what has expired, and the subscription brings that, too.
 * So reaping is turned off when such a table is registered or attached, and when a container
 * becomes such a table; the owner may turn it on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "configuration/configuration.h"
#include "container/container.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

void
ttl_subscription_notice(Oid relid)
{
	ereport(NOTICE,
			(errmsg("reaping of container \"%s\" is off because a subscription writes it",
					get_rel_name(relid)),
			 errdetail("A row that the publisher has renewed may expire here before the change arrives."),
			 errhint("Let the publisher delete expired rows, or use ttl.alter_container(%s, reaping => true).",
					 quote_literal_cstr(ttl_container_table_name(relid)))));
}

void
ttl_subscription_begins(Oid container, const List *tables)
{
	List	   *members = ttl_container_tables(container);
	bool		begins = false;
	TtlPolicy	policy;
	ListCell   *lc;

	foreach(lc, ttl_container_subscribed_tables(false))
	{
		if (!list_member_oid(members, lfirst_oid(lc)))
			continue;
		/* where another of its tables is subscribed already, its owner has decided */
		if (!list_member_oid(tables, lfirst_oid(lc)))
			return;
		begins = true;
	}
	if (!begins)
		return;
	ttl_container_lock_policy(container, true, true);
	/* Citus fills new shards by subscriptions, and keeps us from deleting from them meanwhile */
	if (!ttl_container_read(container, &policy) || policy.propagated || !policy.reaping)
		return;
	policy.reaping = false;
	ttl_container_update(container, &policy);
	ttl_subscription_notice(container);
}

void
ttl_subscription_changed(void)
{
	List	   *added = ttl_container_subscribed_tables(true);
	ListCell   *lc;

	foreach(lc, added)
	{
		TtlContainer container;

		if (ttl_container_peek(lfirst_oid(lc), &container))
			ttl_subscription_begins(container.container, added);
	}
}
