/*-------------------------------------------------------------------------
 *
 * trigger.c
 *	  The row trigger of a container.
 *
 * It frees keys and completes the timestamp, see evict.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_trigger.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "ttl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

bool
ttl_trigger_exists(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	TriggerDesc *triggers = rel->trigdesc;
	const TtlObjects *objects = ttl_container_objects();
	bool		found = false;

	for (int i = 0; objects != NULL && triggers != NULL && i < triggers->numtriggers && !found; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		found = strcmp(trigger->tgname, TTL_TRIGGER) == 0 &&
			get_func_namespace(trigger->tgfoid) == objects->schema &&
			trigger->tgtype == (TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_ROW | TRIGGER_TYPE_INSERT) &&
			trigger->tgqual == NULL;
	}
	table_close(rel, NoLock);
	return found;
}

void
ttl_trigger_enable(Oid relid)
{
	int			nestlevel = ttl_command_begin();

	if (!ttl_trigger_exists(relid))
		ttl_command_run("CREATE TRIGGER \"%s\" BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION ttl.on_write()",
						TTL_TRIGGER, ttl_container_table_name(relid));
	/* logical replication has to free keys, too */
	ttl_command_run("ALTER TABLE %s ENABLE ALWAYS TRIGGER \"%s\"", ttl_container_table_name(relid), TTL_TRIGGER);
	ttl_command_end(nestlevel);
}
