/*-------------------------------------------------------------------------
 *
 * own_ddl.c
 *	  The DDL by which ttl itself completes a container's table, and its triggers.
 *
 * Each is a step (own_sql.h) that is run as the calling user, and with the session's search_path:
 * event triggers fire for them as for the user's own DDL.  So they qualify all names, those
 * of operators included.
 *
 * The row trigger frees keys and completes the timestamp, see evict.c.  On a distributed table
 * of Citus its arguments carry the policy, see citus.h; elsewhere it has none.  A container with an
 * archive has a second one, see archive.c.
 *
 * What ttl adds to a table is commented, so that \d+ shows a container for what it is.  A comment never
 * takes the place of another, and says nothing that a change of the policy or a new name would make false:
 * that would need the table's lock for each change, and comparisons of schemas would show it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_trigger.h"
#include "commands/comment.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "executor/spi.h"
#include "own_sql.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/elog.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/*
 * Runs DDL in a step that ttl_sql_begin() has begun.  It qualifies all names: search_path is the
 * session's.
 */
void
ttl_command_execute(const char *sql)
{
	int			result = SPI_execute(sql, false, 0);

	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s: %s", SPI_result_code_string(result), sql);
}

/* Comments on an object of the table, which is locked, or on one of its columns, if it has no comment. */
void
ttl_comment_add(Oid object, Oid class, int column, const char *text)
{
	if (GetComment(object, class, column) == NULL)
		CreateComments(object, class, column, text);
}

/* Comments on a trigger of the table, by its name. */
static void
comment_on_trigger(Oid relid, const char *name, const char *text)
{
	ttl_comment_add(get_trigger_oid(relid, name, false), TriggerRelationId, 0, text);
}

/*
 * The row trigger
 */

#define TRIGGER_COMMENT \
	"frees keys that expired rows hold, and completes the start of TTL (extension ttl; see ttl.containers)"
#define ARCHIVE_TRIGGER_COMMENT \
	"copies expired rows that are deleted to the archive of this container (extension ttl; archive_to in ttl.containers)"

/* The table whose trigger ttl is creating, or dropping that of its archive */
static Oid	created_on = InvalidOid;

/*
 * The row trigger of a container among those of an execution, or NULL; on shards Citus adds a number
 * to its name.
 */
Trigger *
ttl_row_trigger_among(TriggerDesc *triggers)
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

/* A copy of the row trigger of a table, whose own are replaced when catalogs are read; or NULL */
const Trigger *
ttl_row_trigger_find(Relation rel)
{
	return ttl_row_trigger_among(CopyTriggerDesc(rel->trigdesc));
}

/* The same, of a table that is no shard, if it is what ttl has created */
const Trigger *
ttl_row_trigger_of(Relation rel)
{
	const Trigger *trigger = ttl_container_objects() == NULL ? NULL : ttl_row_trigger_find(rel);

	return trigger != NULL && strcmp(trigger->tgname, TTL_TRIGGER) == 0 &&
		trigger->tgtype == (TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_ROW | TRIGGER_TYPE_INSERT) &&
		trigger->tgqual == NULL ? trigger : NULL;
}

/* False if users' statements don't set it off. */
bool
ttl_row_trigger_is_enabled(const Trigger *trigger)
{
	return trigger->tgenabled != TRIGGER_DISABLED && trigger->tgenabled != TRIGGER_FIRES_ON_REPLICA;
}

/* True if the table, which is locked, has the row trigger. */
bool
ttl_row_trigger_exists(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	bool		found = ttl_row_trigger_of(rel) != NULL;

	table_close(rel, NoLock);
	return found;
}

/*
 * Lets Citus take commands about triggers until the caller's nest level of settings ends;
 * it takes them for unsafe.
 */
void
ttl_row_trigger_allow(void)
{
	if (GetConfigOption("citus.enable_unsafe_triggers", true, false) != NULL)
		ttl_sql_set("citus.enable_unsafe_triggers", "on");
}

/* Has the row trigger fire always. */
void
ttl_row_trigger_enable(Oid relid)
{
	TtlSqlContext saved;

	ttl_sql_begin(InvalidOid, TTL_SQL_STEP, &saved);
	ttl_row_trigger_allow();
	/* logical replication has to free keys, too */
	ttl_command_run("ALTER TABLE %s ENABLE ALWAYS TRIGGER \"%s\"", ttl_container_table_name(relid), TTL_TRIGGER);
	ttl_sql_end(&saved);
}

/* Runs a command about a trigger of ttl's on the table, which a user may not give. */
static void
run_own(Oid relid, const char *sql)
{
	Oid			outer = created_on;
	TtlSqlContext saved;

	ttl_sql_begin(InvalidOid, TTL_SQL_STEP, &saved);
	/* an event trigger may do so again */
	created_on = relid;
	PG_TRY();
	{
		ttl_command_execute(sql);
	}
	PG_FINALLY();
	{
		created_on = outer;
	}
	PG_END_TRY();
	ttl_sql_end(&saved);
}

/* Creates the row trigger with these arguments, as SQL, or puts it in the place of another; and enables it. */
void
ttl_row_trigger_create(Oid relid, const char *arguments)
{
	TtlSqlContext saved;

	ttl_sql_begin(InvalidOid, TTL_SQL_STEP, &saved);
	ttl_row_trigger_allow();
	run_own(relid, psprintf("CREATE OR REPLACE TRIGGER \"%s\" BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION ttl.on_write(%s)",
							TTL_TRIGGER, ttl_container_table_name(relid), arguments));
	ttl_sql_end(&saved);
	ttl_row_trigger_enable(relid);
	comment_on_trigger(relid, TTL_TRIGGER, TRIGGER_COMMENT);
}

/*
 * Creates a row trigger by the relation's number, and not as any of the owners: who detaches a partition may own neither it nor its
 * own partitions, and their owners may lack rights on each other's tables and on the schema.  A
 * function of ttl's is all that the tables get, and no code runs.  It is created as it fires, for
 * AlterTableInternal() would look for the command in which event triggers are told of it.
 */
static void
restore_trigger(Oid relid, char *name, int16 timing, int16 event, TtlFunction function, char fires_when,
				const char *comment)
{
	CreateTrigStmt *stmt = makeNode(CreateTrigStmt);
	TtlSqlContext saved;

	stmt->replace = true;
	stmt->trigname = name;
	stmt->row = true;
	stmt->timing = timing;
	stmt->events = event;
	ttl_sql_begin(BOOTSTRAP_SUPERUSERID, 0, &saved);
	(void) CreateTriggerFiringOn(stmt, NULL, relid, InvalidOid, InvalidOid, InvalidOid,
								 ttl_container_function(function), InvalidOid, NULL, false,
								 false, fires_when);
	ttl_sql_end(&saved);
	CommandCounterIncrement();
	comment_on_trigger(relid, name, comment);
}

/* Creates the row trigger again, without arguments, on a table that had it as a partition. */
void
ttl_row_trigger_restore(Oid relid)
{
	restore_trigger(relid, TTL_TRIGGER, TRIGGER_TYPE_BEFORE, TRIGGER_TYPE_INSERT, TTL_ON_WRITE,
					TRIGGER_FIRES_ALWAYS, TRIGGER_COMMENT);
}

/* True while ttl creates the row trigger of that table. */
bool
ttl_row_trigger_is_created(Oid relid)
{
	return OidIsValid(relid) && relid == created_on;
}

/*
 * Drops the row trigger of a table, which has it.
 *
 * On a shard that Citus has left behind its name has a number still.
 */
void
ttl_row_trigger_drop(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	const char *name = quote_identifier(ttl_row_trigger_find(rel)->tgname);
	TtlSqlContext saved;

	table_close(rel, NoLock);
	ttl_sql_begin(InvalidOid, TTL_SQL_STEP, &saved);
	ttl_row_trigger_allow();
	ttl_command_run("DROP TRIGGER %s ON %s", name, ttl_container_table_name(relid));
	ttl_sql_end(&saved);
}

/*
 * The trigger of the archive
 */

/* True if the trigger that moves rows to the archive fires for rows that ttl deletes from the relation. */
bool
ttl_archive_trigger_fires(Relation rel)
{
	Oid			function = ttl_container_function(TTL_ARCHIVE);

	for (int i = 0; rel->trigdesc != NULL && i < rel->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &rel->trigdesc->triggers[i];

		if (trigger->tgfoid == function && trigger->tgqual == NULL &&
			strcmp(trigger->tgname, TTL_ARCHIVE_TRIGGER) == 0 &&
			trigger->tgtype == (TRIGGER_TYPE_AFTER | TRIGGER_TYPE_ROW | TRIGGER_TYPE_DELETE) &&
			(trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN || trigger->tgenabled == TRIGGER_FIRES_ALWAYS))
			return true;
	}
	return false;
}

/* Errors (55000) if rows of the relation would be deleted without going to the archive of their container. */
void
ttl_archive_trigger_check(Relation rel, const TtlContainer *container)
{
	if (OidIsValid(container->policy.archive_to) && !ttl_archive_trigger_fires(rel))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("trigger \"%s\" of table \"%s\" is missing or disabled",
						TTL_ARCHIVE_TRIGGER, RelationGetRelationName(rel)),
				 errdetail("Expired rows would be deleted without going to the archive of container \"%s\".",
						   get_rel_name(container->container)),
				 errhint("Enable it, or create it by ttl.alter_container(..., archive_to => ...); 0 is for no archive.")));
}

/* Creates that trigger, or puts it in the place of another, as the calling user. */
void
ttl_archive_trigger_create(Oid relid)
{
	run_own(relid, psprintf("CREATE OR REPLACE TRIGGER \"%s\" AFTER DELETE ON %s FOR EACH ROW EXECUTE FUNCTION ttl.archive()",
							TTL_ARCHIVE_TRIGGER, ttl_container_table_name(relid)));
	comment_on_trigger(relid, TTL_ARCHIVE_TRIGGER, ARCHIVE_TRIGGER_COMMENT);
}

/* Creates it again on a table that had it as a partition. */
void
ttl_archive_trigger_restore(Oid relid)
{
	restore_trigger(relid, TTL_ARCHIVE_TRIGGER, TRIGGER_TYPE_AFTER, TRIGGER_TYPE_DELETE, TTL_ARCHIVE,
					TRIGGER_FIRES_ON_ORIGIN, ARCHIVE_TRIGGER_COMMENT);
}

/* Drops it, if it is there. */
void
ttl_archive_trigger_drop(Oid relid)
{
	run_own(relid, psprintf("DROP TRIGGER IF EXISTS \"%s\" ON %s", TTL_ARCHIVE_TRIGGER, ttl_container_table_name(relid)));
}
