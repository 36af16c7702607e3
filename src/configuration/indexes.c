/*-------------------------------------------------------------------------
 *
 * indexes.c
 *	  Makes the expiry indexes that a container needs, and drops them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

void
ttl_indexes_check_policy(const TtlPolicy *policy, Oid relid)
{
	if (policy->indexing == TTL_INDEXING_NONE && policy->default_ttl != TTL_OFF)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("container \"%s\" cannot have a default TTL without an expiry index",
						get_rel_name(relid)),
				 errhint("Use indexing => 'consistent'.")));
}

void
ttl_indexes_complete(Oid relid, TtlPolicy *policy)
{
	ListCell   *lc;

	foreach(lc, ttl_container_tree(relid, ShareLock))
	{
		TtlExpiryIndexes indexes;
		char	   *definitions[TTL_INDEXES];
		Relation	rel = table_open(lfirst_oid(lc), NoLock);

		ttl_expiry_find_indexes(rel, policy, NIL, &indexes);
		for (int i = 0; i < TTL_INDEXES; i++)
			definitions[i] = ttl_expiry_index_sql(rel, policy, i);
		table_close(rel, NoLock);
		for (int i = 0; i < TTL_INDEXES; i++)
		{
			if (!indexes.needed[i] || OidIsValid(indexes.usable[i]))
				continue;
			ttl_expiry_refuse_unusable(lfirst_oid(lc), policy, i);
			ttl_command_run("CREATE INDEX ON %s %s", ttl_container_table_name(lfirst_oid(lc)),
							definitions[i]);
			policy->created_objects |= TTL_CREATED_INDEX << i;
		}
	}
}

void
ttl_indexes_drop(Oid relid, TtlPolicy *policy)
{
	TtlContainer container;
	Relation	rel;
	TtlExpiryIndexes indexes;

	/* without the columns there are none */
	ttl_container_find_columns(relid, policy, &container);
	if (container.lacks_column)
		return;
	rel = table_open(relid, AccessExclusiveLock);
	ttl_expiry_find_indexes(rel, policy, NIL, &indexes);
	table_close(rel, NoLock);

	for (int i = 0; i < TTL_INDEXES; i++)
	{
		if (OidIsValid(indexes.usable[i]) && (policy->created_objects & (TTL_CREATED_INDEX << i)))
			ttl_command_run("DROP INDEX %s", ttl_container_table_name(indexes.usable[i]));
		policy->created_objects &= ~(TTL_CREATED_INDEX << i);
	}
}
