/*-------------------------------------------------------------------------
 *
 * row_trigger.c
 *	  The row trigger of a container.
 *
 * It frees keys and completes the timestamp, see evict.c.  On a distributed table of Citus
 * its arguments carry the policy, see citus.h; elsewhere it has none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_trigger.h"
#include "command.h"
#include "container/container.h"
#include "ttl.h"
#include "utils/guc.h"
#include "utils/rel.h"

/* The table whose row trigger is being created */
static Oid	created_on = InvalidOid;

Trigger *
ttl_row_trigger_find(TriggerDesc *triggers)
{
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (strncmp(trigger->tgname, TTL_TRIGGER, strlen(TTL_TRIGGER)) == 0 &&
			trigger->tgfoid == ttl_container_function(TTL_ON_WRITE))
			return trigger;
	}
	return NULL;
}

const Trigger *
ttl_row_trigger_of(Relation rel)
{
	const Trigger *trigger = ttl_container_objects() == NULL ? NULL : ttl_row_trigger_find(rel->trigdesc);

	return trigger != NULL && strcmp(trigger->tgname, TTL_TRIGGER) == 0 &&
		trigger->tgtype == (TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_ROW | TRIGGER_TYPE_INSERT) &&
		trigger->tgqual == NULL ? trigger : NULL;
}

bool
ttl_row_trigger_exists(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	bool		found = ttl_row_trigger_of(rel) != NULL;

	table_close(rel, NoLock);
	return found;
}

void
ttl_row_trigger_allow(void)
{
	if (GetConfigOption("citus.enable_unsafe_triggers", true, false) != NULL)
		(void) set_config_option("citus.enable_unsafe_triggers", "on", PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

void
ttl_row_trigger_enable(Oid relid)
{
	int			nestlevel = ttl_command_begin();

	ttl_row_trigger_allow();
	/* logical replication has to free keys, too */
	ttl_command_run("ALTER TABLE %s ENABLE ALWAYS TRIGGER \"%s\"", ttl_container_table_name(relid), TTL_TRIGGER);
	ttl_command_end(nestlevel);
}

void
ttl_row_trigger_create(Oid relid, const char *arguments)
{
	int			nestlevel = ttl_command_begin();
	Oid			outer = created_on;

	ttl_row_trigger_allow();
	/* an event trigger may do so again */
	created_on = relid;
	PG_TRY();
	{
		ttl_command_run("CREATE OR REPLACE TRIGGER \"%s\" BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION ttl.on_write(%s)",
						TTL_TRIGGER, ttl_container_table_name(relid), arguments);
	}
	PG_FINALLY();
	{
		created_on = outer;
	}
	PG_END_TRY();
	ttl_command_end(nestlevel);
	ttl_row_trigger_enable(relid);
}

bool
ttl_row_trigger_is_created(Oid relid)
{
	return OidIsValid(relid) && relid == created_on;
}

void
ttl_row_trigger_drop(Oid relid)
{
	int			nestlevel = ttl_command_begin();

	ttl_row_trigger_allow();
	ttl_command_run("DROP TRIGGER \"%s\" ON %s", TTL_TRIGGER, ttl_container_table_name(relid));
	ttl_command_end(nestlevel);
}
