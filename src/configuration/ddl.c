/*-------------------------------------------------------------------------
 *
 * ddl.c
 *	  Follows what DDL does to containers, and guards what they need.
 *
 * What DDL may do is decided under the lock that the command takes, never before: what
 * another session changes while the command waits is seen as it is then.  So most is decided
 * when the command has ended.  What has to be done before it (ALTER TABLE ... TYPE or
 * ATTACH may take hours, a partition that is detached concurrently is committed) begins by
 * taking the same lock, with the same checks of the same privileges.  Then comes the lock of
 * the policy, where it matters, and only then anything is read.
 *
 *	  event										what happens
 *	  ------------------------------------------------------------------------
 *	  DROP TABLE, also by CASCADE				the container is forgotten
 *	  RENAME COLUMN, by whatever command		ttl.container follows
 *	  DROP of _ts or ttl, also by CASCADE		refused (2BP01), unless the container has gone
 *	  ALTER TYPE, SET EXPRESSION of _ts or ttl	refused (2BP01); nothing if the type is
 *												the one that it has
 *	  DROP of an expiry index					refused while there is a default
 *												TTL (2BP01)
 *	  DROP TRIGGER of the container's			refused (2BP01)
 *	  the last two with row_security = off		not refused: that is a script of
 *												pg_dump --clean, which drops a
 *												table piece by piece
 *	  RENAME TRIGGER, CREATE OR REPLACE TRIGGER	refused (2BP01)
 *	  RENAME of schema ttl						refused (2BP01)
 *	  CREATE, ALTER EXTENSION of a version		refused (55000), see
 *		that the library doesn't know			objects.c
 *	  pg_repack's trigger						refused (0A000)
 *	  ENABLE TRIGGER							the container's fires always again
 *	  DISABLE TRIGGER							a WARNING if it is the container's
 *	  DROP EXTENSION ttl CASCADE, DROP OWNED	a WARNING names the containers
 *	  ENABLE, DISABLE TRIGGER of ttl.container	nothing: scripts of pg_dump do so, and
 *												rows must not come in without it
 *	  ATTACH PARTITION of a container or of
 *	  partitions that are no heaps,
 *	  SET ACCESS METHOD, OF						refused (0A000)
 *	  ATTACH PARTITION of another table			it gets the columns that it lacks
 *	  DETACH PARTITION from a container			the partition becomes one itself
 *	  INHERITS, INHERIT							refused (0A000)
 *	  CREATE SUBSCRIPTION, ALTER SUBSCRIPTION	reaping of containers that it adds is
 *												turned off
 *	  CREATE TABLE (LIKE a container)			a NOTICE: the copy is no container
 *	  unique index over _ts						refused (0A000) before it is built
 *	  foreign key or stored generated
 *		column over _ts							refused (0A000)
 *
 * All else that keeps the table's OID is of no interest.  ttl's own objects are not guarded:
 * only superusers can alter them.
 *
 * Drops and renamed columns arrive by object_access_hook, whatever the command
 * was; the rest is seen as utility commands (ttl.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/partition.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/tablecmds.h"
#include "compat.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "expiry/expiry.h"
#include "nodes/parsenodes.h"
#include "parser/parse_type.h"
#include "storage/lmgr.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/*
 * What would take from a container what it needs
 *
 * A script of pg_dump --clean, which drops a table piece by piece, is let through; it is known by
 * row_security = off.  A propagated policy is guarded on the coordinator, from where Citus sends
 * commands to shards (citus.h).
 */

#define REQUIRED_HINT \
	_("A tool that compares schemas has to ignore it. To end Time-To-Live for the table, use ttl.drop_container().")

/* Errors (2BP01): the container requires the object, so the command mustn't do that to it. */
static void
refuse_command(const char *command, const char *object, Oid container, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 errmsg("cannot %s \"%s\" because container \"%s\" requires it",
					command, object, get_rel_name(container)),
			 errhint("%s", hint)));
}

/*
 * What commands drop.  A CASCADE may reach a column or an index whatever the command was, and
 * may take the container with it, so it is noted before it is dropped and judged when the
 * command has ended.
 */
typedef struct DroppedPart
{
	Oid			table;
	Oid			index;			/* or, if InvalidOid, ... */
	AttrNumber	attno;			/* ... a column */
	NameData	name;
} DroppedPart;

static List *dropped_parts = NIL;

/* Notes what a command is about to drop of a container's table: an index, or a column by its number. */
static void
note_dropped(Oid table, Oid index, AttrNumber attno, const char *name)
{
	/* the list stays when the command fails, until the next one */
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	DroppedPart *part = palloc(sizeof(DroppedPart));

	part->table = table;
	part->index = index;
	part->attno = attno;
	namestrcpy(&part->name, name);
	/* what has been named is dropped last, after what depends on it */
	dropped_parts = lcons(part, dropped_parts);
	MemoryContextSwitchTo(old);
}

/*
 * The container that the table belongs to, and whether its parts are guarded.  A propagated
 * policy is guarded on the coordinator.
 */
static bool
is_guarded(Oid relid, TtlContainer *container)
{
	return OidIsValid(relid) && ttl_container_peek(relid, container) &&
		!container->policy.propagated && !container->lacks_column;
}

/* True if the table lacks an expiry index that it needs, or would do so without that one. */
static bool
lacks_index(Oid table, Oid container, Oid without)
{
	TtlPolicy	policy;
	TtlExpiryIndexes indexes;
	bool		lacks = false;
	Relation	rel;

	if (!ttl_policy_read(container, &policy) || policy.default_ttl == TTL_OFF)
		return false;
	rel = table_open(table, AccessShareLock);
	ttl_expiry_find_indexes(rel, &policy, OidIsValid(without) ? list_make1_oid(without) : NIL,
							&indexes);
	table_close(rel, AccessShareLock);
	for (int i = 0; i < TTL_INDEXES; i++)
		lacks = lacks || (indexes.needed[i] && !OidIsValid(indexes.usable[i]));
	return lacks;
}

/*
 * A column or an index is about to be dropped.  When the command has ended,
 * check_dropped() errors (2BP01) if a container lacks it.
 */
static void
dropping_column(Oid relid, AttrNumber attno)
{
	TtlContainer container;

	if (is_guarded(relid, &container) &&
		(attno == container.ts_attno || attno == container.ttl_attno))
		note_dropped(relid, InvalidOid, attno, get_attname(relid, attno, false));
}

/* An index is about to be dropped by itself. */
static void
dropping_index(Oid index, bool concurrently)
{
	Oid			table = IndexGetRelation(index, true);
	TtlContainer container;

	if (!row_security || !is_guarded(table, &container))
		return;

	/*
	 * its lock on the table doesn't keep the default TTL from being set, and
	 * it commits
	 */
	if (concurrently)
		(void) ttl_policy_lock(container.container, false, true);
	if (!lacks_index(table, container.container, index) ||
		lacks_index(table, container.container, InvalidOid))
		return;
	if (concurrently)
		refuse_command("drop index", get_rel_name(index), container.container, REQUIRED_HINT);
	note_dropped(table, index, InvalidAttrNumber, get_rel_name(index));
}

/* Forgets what note_dropped() has noted. */
static void
forget_parts(void)
{
	list_free_deep(dropped_parts);
	dropped_parts = NIL;
}

/* What has been rolled back since is there. */
static void
check_dropped(void)
{
	ListCell   *lc;

	foreach(lc, dropped_parts)
	{
		const DroppedPart *part = lfirst(lc);
		TtlContainer container;

		if (!ttl_container_peek(part->table, &container))
			continue;
		if (!OidIsValid(part->index) && !OidIsValid(get_atttype(part->table, part->attno)))
			refuse_command("drop column", NameStr(part->name), container.container, REQUIRED_HINT);
		if (OidIsValid(part->index) && get_rel_relkind(part->index) == '\0' &&
			lacks_index(part->table, container.container, InvalidOid))
			refuse_command("drop index", NameStr(part->name), container.container, REQUIRED_HINT);
	}
	forget_parts();
}

/* The command has done that to a trigger; errors (2BP01) if it is a container's. */
static void
guard_trigger(const char *command, RangeVar *table, const char *trigger)
{
	Oid			relid = RangeVarGetRelid(table, NoLock, true);
	TtlContainer container;

	if (!OidIsValid(relid) || ttl_row_trigger_is_created(relid) ||
		!ttl_container_peek(relid, &container) || container.policy.propagated)
		return;
	if (strcmp(trigger, TTL_TRIGGER) == 0)
		refuse_command(command, TTL_TRIGGER, container.container, REQUIRED_HINT);
	if (strcmp(trigger, TTL_ARCHIVE_TRIGGER) == 0 && OidIsValid(container.policy.archive_to))
		refuse_command(command, TTL_ARCHIVE_TRIGGER, container.container,
					   _("To end archiving, use ttl.alter_container(..., archive_to => 0)."));
}

/* True if the column has that type; errors if there is no such type. */
static bool
is_type_of(Oid relid, AttrNumber attno, const TypeName *name)
{
	Oid			type;
	int32		typmod;
	Oid			collation;
	Oid			named;
	int32		named_typmod;

	typenameTypeIdAndMod(NULL, name, &named, &named_typmod);
	get_atttypetypmodcoll(relid, attno, &type, &typmod, &collation);
	return named == type && named_typmod == typmod;
}

/*
 * True if the column is given the type and the value that it has, as some object-relational
 * mappers do whenever they start.
 */
static bool
keeps_type(Oid relid, const AlterTableCmd *cmd)
{
	const ColumnDef *def = castNode(ColumnDef, cmd->def);
	AttrNumber	attno = get_attnum(relid, cmd->name);
	Node	   *value = def->raw_default;

	if (attno == InvalidAttrNumber || def->collClause != NULL ||
		!is_type_of(relid, attno, def->typeName))
		return false;
	if (value != NULL && IsA(value, TypeCast) &&
		is_type_of(relid, attno, ((TypeCast *) value)->typeName))
		value = ((TypeCast *) value)->arg;
	return value == NULL ||
		(IsA(value, ColumnRef) && list_length(((ColumnRef *) value)->fields) == 1 &&
		 IsA(linitial(((ColumnRef *) value)->fields), String) &&
		 strcmp(strVal(linitial(((ColumnRef *) value)->fields)), cmd->name) == 0);
}

/*
 * pg_repack puts a trigger on the table, fills a new one by SELECT, and gives its
 * storage to the table.  What that SELECT doesn't see is lost, without a DELETE;
 * and so are changes that fire no trigger, as those of ttl.container.
 */
static void
guard_repack(CreateTrigStmt *stmt)
{
	Oid			table = RangeVarGetRelid(stmt->relation, NoLock, true);
	const TtlObjects *objects = ttl_container_objects();
	TtlContainer container;

	if (strcmp(strVal(llast(stmt->funcname)), "repack_trigger") != 0)
		return;
	if (objects != NULL && table == objects->catalog)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot repack \"%s.%s\"", TTL_SCHEMA, TTL_CONTAINER_TABLE),
				 errdetail("Changes of policies would be lost."),
				 errhint("Run pg_repack with --exclude-extension=ttl.")));
	if (OidIsValid(table) && ttl_container_peek(table, &container) &&
		!ttl_live_is_shown(container.container))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot repack \"%s\" while expired rows of container \"%s\" are hidden",
						get_rel_name(table), get_rel_name(container.container)),
				 errdetail("pg_repack keeps the rows that it sees, and would lose the others."),
				 errhint("Run pg_repack with PGOPTIONS='-c row_security=off'.")));
}

/* The extension is found by the name of its schema. */
static void
guard_schema_name(RenameStmt *stmt)
{
	if (strcmp(stmt->subname, TTL_SCHEMA) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot rename schema \"%s\" because extension \"%s\" requires it",
						TTL_SCHEMA, TTL_EXTENSION)));
}

/*
 * Containers that a subscription writes
 *
 * A row that the publisher has renewed in time expires here until the change arrives.  If
 * it were deleted meanwhile, the UPDATE would find no row, and the row would be lost for
 * good.  The publisher deletes what has expired, and the subscription brings that, too.
 * So reaping is turned off when such a table is registered or attached, and when a container
 * becomes such a table; the owner may turn it on.
 */

/*
 * Turns reaping off if a subscription writes some of these tables, which it or the container has
 * just added, and no other table of the container.
 */
void
ttl_ddl_subscription_begins(Oid container, const List *tables)
{
	List	   *members = ttl_container_tables(container);
	bool		begins = false;
	TtlPolicy	policy;
	ListCell   *lc;

	foreach(lc, ttl_container_subscribed_tables(false))
	{
		if (!list_member_oid(members, lfirst_oid(lc)))
			continue;

		/*
		 * where another of its tables is subscribed already, its owner has
		 * decided
		 */
		if (!list_member_oid(tables, lfirst_oid(lc)))
			return;
		begins = true;
	}
	if (!begins)
		return;
	ttl_policy_lock(container, true, true);

	/*
	 * Citus fills new shards by subscriptions, and keeps us from deleting
	 * from them meanwhile
	 */
	if (!ttl_policy_read(container, &policy) || policy.propagated || !policy.reaping)
		return;
	policy.reaping = false;
	ttl_policy_update(container, &policy);
	ttl_notice_subscribed(container);
}

/* The same for containers that CREATE or ALTER SUBSCRIPTION has just added. */
static void
subscription_changed(void)
{
	List	   *added = ttl_container_subscribed_tables(true);
	ListCell   *lc;

	foreach(lc, added)
	{
		TtlContainer container;

		if (ttl_container_peek(lfirst_oid(lc), &container))
			ttl_ddl_subscription_begins(container.container, added);
	}
}

/*
 * Tables that become partitions of containers, or cease to be
 *
 * A new partition needs nothing: like an attached one, it gets the indexes and the row
 * trigger from PostgreSQL, and the policy from its parent.  Children by inheritance
 * have neither, so they are refused.
 */

/* Errors (0A000) if a container has become a table of a kind that none can be. */
static void
check_kind(Oid relid)
{
	TtlContainer container;
	Relation	rel;

	if (!OidIsValid(relid) || !ttl_container_peek(relid, &container) || container.container != relid)
		return;
	rel = table_open(relid, AccessShareLock);
	ttl_table_check_kind(rel);
	table_close(rel, NoLock);
}

/* A partition has been created in a partitioned table: maybe of a container. */
static void
partition_created(CreateStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	TtlContainer container;
	ListCell   *lc;

	if (stmt->partbound == NULL)
	{
		foreach(lc, stmt->inhRelations)
			check_kind(RangeVarGetRelid(lfirst_node(RangeVar, lc), NoLock, true));
		return;
	}
	if (OidIsValid(relid) && get_rel_relispartition(relid) &&
		ttl_container_peek(get_partition_parent(relid, true), &container))
		ttl_table_check_storage(list_make1_oid(relid));
	ttl_table_check_uses_of_table(relid);
}

/*
 * Locks a table that is about to become, or cease to be, a partition of a table that is
 * locked, as the command will: the default partition first.  InvalidOid if there is none
 * of that name, which the command reports.
 */
static Oid
lock_partition(Oid parent, RangeVar *name, LOCKMODE lockmode, RangeVarGetRelidCallback callback)
{
	Oid			other = get_default_partition_oid(parent);

	if (OidIsValid(other) && lockmode == AccessExclusiveLock)
		LockRelationOid(other, lockmode);
	return RangeVarGetRelidExtended(name, lockmode, RVR_MISSING_OK, callback, NULL);
}

/*
 * A table is about to become a partition, of a container maybe: then it gets what it lacks
 * for that.
 */
static void
partition_attaches(Oid parent, RangeVar *name)
{
	Oid			partition;
	TtlContainer container;
	TtlPolicy	policy;
	int			brought = 0;

	/* indexes are attached, too */
	if (get_rel_relkind(parent) != RELKIND_PARTITIONED_TABLE)
		return;
	partition = lock_partition(parent, name, AccessExclusiveLock, RangeVarCallbackOwnsRelation);
	if (!OidIsValid(partition))
		return;
	if (ttl_policy_read(partition, &policy))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot attach container \"%s\" as a partition",
						get_rel_name(partition)),
				 errhint("Unregister it first with ttl.drop_container().")));
	if (!ttl_container_peek(parent, &container) ||
		!ttl_policy_read(container.container, &policy))
		return;
	ttl_table_check_storage(find_all_inheritors(partition, AccessExclusiveLock, NULL));
	if (get_attnum(partition, NameStr(policy.ts_column)) != InvalidAttrNumber)
		brought |= TTL_CREATED_TS_COLUMN;
	if (get_attnum(partition, NameStr(policy.ttl_column)) != InvalidAttrNumber)
		brought |= TTL_CREATED_TTL_COLUMN;
	ttl_table_complete_partition(parent, partition, &policy);

	/*
	 * columns with values of its own mustn't go with those that were added to
	 * the others
	 */
	if (!(policy.created_objects & brought) || !ttl_container_has_pages(partition))
		return;
	ttl_policy_lock(container.container, true, true);
	if (!ttl_policy_read(container.container, &policy))
		return;
	policy.created_objects &= ~brought;
	ttl_policy_update(container.container, &policy);
}

/*
 * A table has become a partition, of a container maybe: then its rows have got a TTL, as if
 * it had been turned on for them.
 */
static void
partition_attached(Oid parent, RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlContainer container;
	TtlPolicy	policy;

	if (!ttl_container_peek(parent, &container))
		return;
	ttl_ddl_subscription_begins(container.container, ttl_container_tables(partition));
	ttl_policy_lock(container.container, true, true);
	if (!ttl_policy_read(container.container, &policy))
		return;
	if (policy.default_ttl == TTL_OFF || !ttl_container_has_pages(partition))
		return;
	/* a grace is one table's or the whole container's */
	ttl_grace_begin(&policy, TTL_OFF,
					get_rel_relkind(partition) == RELKIND_RELATION ? partition : InvalidOid);
	ttl_policy_update(container.container, &policy);
}

/*
 * A partition is about to leave its container: it gets the same policy, which stays as it
 * is until then.
 */
static void
partition_detaches(const TtlContainer *parent, PartitionCmd *cmd)
{
	Oid			partition;
	TtlPolicy	policy;

	partition = lock_partition(parent->relid, cmd->name,
							   cmd->concurrent ? ShareUpdateExclusiveLock : AccessExclusiveLock,
							   NULL);
	if (!OidIsValid(partition) || !get_rel_relispartition(partition) ||
		get_partition_parent(partition, true) != parent->relid ||
		ttl_policy_read(partition, &policy))
		return;
	ttl_policy_lock(parent->container, false, true);
	if (!ttl_policy_read(parent->container, &policy))
		return;
	/* or another partition has been attached */
	if (OidIsValid(policy.change.partition) &&
		!list_member_oid(ttl_container_tables(partition), policy.change.partition))
		memset(&policy.change, 0, sizeof(TtlChange));
	ttl_policy_insert(partition, &policy);
}

/*
 * A partition has left its container, and PostgreSQL has taken the trigger from it.  It may
 * be another role's than the table that it was a partition of.
 */
static void
partition_detached(RangeVar *name)
{
	Oid			partition = RangeVarGetRelid(name, NoLock, true);
	TtlPolicy	policy;

	if (!OidIsValid(partition) || !ttl_policy_read(partition, &policy) ||
		policy.propagated || get_rel_relispartition(partition))
		return;
	ttl_table_restore_triggers(partition, &policy);
	ttl_notice_detached(partition);
}

/*
 * ALTER TABLE of containers, of their partitions and of ttl.container
 */

/*
 * Scripts of pg_dump --data-only --disable-triggers do so to ttl.container, too,
 * and restored rows would keep reaping on.
 */
static void
leave_catalog_triggers_alone(AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		switch (lfirst_node(AlterTableCmd, lc)->subtype)
		{
			case AT_EnableTrig:
			case AT_EnableReplicaTrig:
			case AT_EnableTrigAll:
			case AT_EnableTrigUser:
			case AT_DisableTrig:
			case AT_DisableTrigAll:
			case AT_DisableTrigUser:
				stmt->cmds = foreach_delete_current(stmt->cmds, lc);
				break;
			default:
				break;
		}
	}
}

/* True if the command names a column by which rows of the container expire. */
static bool
names_column(const AlterTableCmd *cmd, const TtlContainer *container)
{
	AttrNumber	attno = get_attnum(container->relid, cmd->name);

	return attno != InvalidAttrNumber &&
		(attno == container->ts_attno || attno == container->ttl_attno);
}

/* Other values would make rows expire at other times. */
static void
refuse_rewrite(const AlterTableCmd *cmd, const TtlContainer *container)
{
	ereport(ERROR,
			(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
			 cmd->subtype == AT_AlterColumnType ?
			 errmsg("cannot alter type of column \"%s\" because container \"%s\" requires it",
					cmd->name, get_rel_name(container->container)) :
			 errmsg("cannot alter expression of column \"%s\" because container \"%s\" requires it",
					cmd->name, get_rel_name(container->container)),
			 errhint("Unregister the table with ttl.drop_container(), alter it, and register it again with ttl.create_container().")));
}

/*
 * Before and after ALTER TABLE of any table; by_citus: as a part of its work on one
 *
 * Refuses before the command what would take long, completes what a partition lacks, and
 * gives one that leaves its container the policy.  The command's own lock comes first.
 */
static void
alter_table_begins(AlterTableStmt *stmt, bool by_citus)
{
	Oid			relid = AlterTableLookupRelation(stmt, AlterTableGetLockLevel(stmt->cmds));
	const TtlObjects *objects = ttl_container_objects();
	TtlContainer container;
	bool		is_part;
	ListCell   *lc;

	/* DROP EXTENSION may have been waited for */
	if (!OidIsValid(relid) || objects == NULL)
		return;
	if (relid == objects->catalog)
		leave_catalog_triggers_alone(stmt);
	is_part = ttl_container_peek(relid, &container);

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AttachPartition)
			partition_attaches(relid, ((PartitionCmd *) cmd->def)->name);
		if (!is_part)
			continue;
		if (TtlSetsExpression(cmd) && names_column(cmd, &container))
			refuse_rewrite(cmd, &container);
		switch (cmd->subtype)
		{
			case AT_AlterColumnType:
				/* one that lacks a column is repaired this way */
				if (container.lacks_column || !names_column(cmd, &container))
					break;
				if (!keeps_type(relid, cmd))
					refuse_rewrite(cmd, &container);
				/* it would build indexes anew, for nothing */
				stmt->cmds = foreach_delete_current(stmt->cmds, lc);
				break;
			case AT_DetachPartition:
				/* it will attach what it makes of the partition */
				if (!by_citus)
					partition_detaches(&container, (PartitionCmd *) cmd->def);
				break;
			default:
				break;
		}
	}
}

/* Not in a script of pg_dump, which enables the trigger when it has loaded rows. */
static void
warn_if_trigger_disabled(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	const Trigger *trigger = row_security ? ttl_row_trigger_of(rel) : NULL;
	bool		is_disabled = trigger != NULL && !ttl_row_trigger_is_enabled(trigger);
	TtlContainer container;
	bool		archives = row_security && ttl_container_peek(relid, &container) &&
	OidIsValid(container.policy.archive_to);
	bool		archive_is_disabled = archives && !ttl_archive_trigger_fires(rel);

	table_close(rel, NoLock);
	if (is_disabled)
		ttl_notice_trigger_disabled(relid, TTL_TRIGGER,
									_("Expired rows are hidden, but an INSERT on the key of one fails (or with ON CONFLICT DO NOTHING is left out), and the timestamp column is not set if an INSERT gives NULL."));
	if (archive_is_disabled)
		ttl_notice_trigger_disabled(relid, TTL_ARCHIVE_TRIGGER,
									_("Expired rows are hidden, but not deleted, since they would not go to the archive."));
}

/* ALTER TABLE has ended. */
static void
alter_table_ended(AlterTableStmt *stmt)
{
	Oid			relid = RangeVarGetRelid(stmt->relation, NoLock, true);
	ListCell   *lc;

	if (!OidIsValid(relid))
		return;
	ttl_table_check_uses_of_table(relid);

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		switch (cmd->subtype)
		{
			case AT_AddInherit:
				check_kind(relid);
				check_kind(RangeVarGetRelid((RangeVar *) cmd->def, NoLock, true));
				break;
			case AT_AddOf:
			case AT_SetAccessMethod:
				check_kind(relid);
				break;

				/*
				 * As in scripts of pg_dump --disable-triggers.  It may be no
				 * container yet: they load tables first, and the policies
				 * afterwards.
				 */
			case AT_EnableTrig:
			case AT_EnableReplicaTrig:
			case AT_EnableTrigAll:
			case AT_EnableTrigUser:
				if (ttl_row_trigger_exists(relid))
					ttl_row_trigger_enable(relid);
				break;
			case AT_DisableTrig:
			case AT_DisableTrigAll:
			case AT_DisableTrigUser:
				warn_if_trigger_disabled(relid);
				break;
			case AT_AttachPartition:
				partition_attached(relid, ((PartitionCmd *) cmd->def)->name);
				break;
			case AT_DetachPartition:
			case AT_DetachPartitionFinalize:
				partition_detached(((PartitionCmd *) cmd->def)->name);
				break;
			default:
				break;
		}
	}
}

/*
 * Commands, and objects that they change
 */

/*
 * Errors (2BP01) if a command replaces, renames or drops the row trigger of a container.  Citus gives
 * that of a table that becomes a shard another name.
 */
static void
guard_trigger_command(Node *node, bool by_citus)
{
	if (IsA(node, CreateTrigStmt))
	{
		CreateTrigStmt *stmt = (CreateTrigStmt *) node;

		if (stmt->replace)
			guard_trigger("replace trigger", stmt->relation, stmt->trigname);
	}
	else if (IsA(node, RenameStmt))
	{
		RenameStmt *stmt = (RenameStmt *) node;

		if (stmt->renameType == OBJECT_TRIGGER && !by_citus)
			guard_trigger("rename trigger", stmt->relation, stmt->subname);
	}
	else if (((DropStmt *) node)->removeType == OBJECT_TRIGGER && row_security)
	{
		List	   *name = linitial_node(List, ((DropStmt *) node)->objects);

		guard_trigger("drop trigger",
					  makeRangeVarFromNameList(list_copy_head(name, list_length(name) - 1)),
					  strVal(llast(name)));
	}
}

/* Containers with TTL on of a catalog that the command drops with the extension; some may go, too. */
static List *dropped_containers = NIL;

/* Notes the containers before the command drops their catalog. */
static void
note_dropped_catalog(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	dropped_containers = ttl_policy_list(TTL_CONTAINERS_ON);
	MemoryContextSwitchTo(old);
}

/* Forgets what note_dropped_catalog() has noted. */
static void
forget_dropped_catalog(void)
{
	list_free(dropped_containers);
	dropped_containers = NIL;
}

/* The command has ended. */
static void
warn_of_dropped_catalog(void)
{
	List	   *left = NIL;
	ListCell   *lc;

	foreach(lc, dropped_containers)
	{
		if (get_rel_relkind(lfirst_oid(lc)) != '\0')
			left = lappend_oid(left, lfirst_oid(lc));
	}
	forget_dropped_catalog();
	if (left != NIL)
		ttl_notice_dropped_extension(left);
}

/* A row of a catalog as this very command has written it, by its key; NULL if there is none */
static HeapTuple
read_own(Oid catalog, Oid index, int nkeys, ScanKey keys)
{
	Relation	rel = table_open(catalog, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, index, true, SnapshotSelf, nkeys, keys);
	HeapTuple	tuple = systable_getnext(scan);

	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return tuple;
}

/* The name that this very command has given the column */
static bool
read_new_name(Oid relid, AttrNumber attno, NameData *name)
{
	ScanKeyData keys[2];
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_attribute_attrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_attribute_attnum, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(attno));
	tuple = read_own(AttributeRelationId, AttributeRelidNumIndexId, lengthof(keys), keys);
	if (HeapTupleIsValid(tuple))
		*name = ((Form_pg_attribute) GETSTRUCT(tuple))->attname;
	return HeapTupleIsValid(tuple);
}

/* A relation has been created: if it is an index, before it is built. */
static void
relation_created(Oid relid)
{
	ScanKeyData key;
	HeapTuple	index;

	ScanKeyInit(&key, Anum_pg_index_indexrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	index = read_own(IndexRelationId, IndexRelidIndexId, 1, &key);
	if (HeapTupleIsValid(index))
		ttl_table_check_new_index(index);
}

/*
 * A column has been altered, and maybe renamed.  The syscache still has its former
 * name.  At the next command, event triggers at the command's end among
 * them, the new name and the policy come into force together.
 */
static void
follow_rename(Oid relid, AttrNumber attno)
{
	char	   *old_name = get_attname(relid, attno, true);
	NameData	new_name;
	TtlPolicy	policy;

	if (old_name == NULL || !ttl_policy_read(relid, &policy) ||
		(strcmp(old_name, NameStr(policy.ts_column)) != 0 &&
		 strcmp(old_name, NameStr(policy.ttl_column)) != 0) ||
		!read_new_name(relid, attno, &new_name) ||
		strcmp(old_name, NameStr(new_name)) == 0)
		return;

	/* the command has locked the table */
	ttl_policy_lock(relid, true, true);
	if (!ttl_policy_read(relid, &policy))
		return;
	if (strcmp(old_name, NameStr(policy.ts_column)) == 0)
		policy.ts_column = new_name;
	else
		policy.ttl_column = new_name;
	ttl_policy_update(relid, &policy);
}

/* Before each utility command */
void
ttl_ddl_before_utility(PlannedStmt *pstmt, ProcessUtilityContext context, bool by_citus)
{
	Node	   *stmt = pstmt->utilityStmt;

	/* a command that has failed may have left some */
	if (context == PROCESS_UTILITY_TOPLEVEL)
	{
		forget_parts();
		forget_dropped_catalog();
	}
	/* DDL is about to be refused where nothing can be written */
	if (XactReadOnly || ttl_container_objects() == NULL)
		return;
	if (IsA(stmt, AlterTableStmt))
		alter_table_begins((AlterTableStmt *) stmt, by_citus);
	else if (IsA(stmt, RenameStmt) && ((RenameStmt *) stmt)->renameType == OBJECT_SCHEMA)
		guard_schema_name((RenameStmt *) stmt);
	/* Citus sends the command before it has ended here */
	else if (IsA(stmt, CreateTrigStmt))
		guard_trigger_command(stmt, by_citus);
	else if (IsA(stmt, CreateStmt) || IsA(stmt, CreateForeignTableStmt))
		ttl_notice_copies((CreateStmt *) stmt);
}

/*
 * Follows the command, or refuses it: now it has the locks that it needs, and what another
 * session did before it got them is seen.
 */
static void
after_command(Node *stmt, bool by_citus)
{
	switch (nodeTag(stmt))
	{
		case T_AlterTableStmt:
			alter_table_ended((AlterTableStmt *) stmt);
			break;
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
			partition_created((CreateStmt *) stmt);
			break;
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
			subscription_changed();
			break;
		case T_CreateTrigStmt:
			guard_repack((CreateTrigStmt *) stmt);
			guard_trigger_command(stmt, by_citus);
			break;
		case T_RenameStmt:
		case T_DropStmt:
			guard_trigger_command(stmt, by_citus);
			break;
		default:
			break;
	}
}

/* After each utility command that has not failed */
void
ttl_ddl_after_utility(PlannedStmt *pstmt, ProcessUtilityContext context, bool by_citus)
{
	Node	   *stmt = pstmt->utilityStmt;

	if (ttl_container_objects() != NULL)
	{
		after_command(stmt, by_citus);
		/* a part of a command is judged with the whole */
		if (context != PROCESS_UTILITY_SUBCOMMAND)
			check_dropped();
	}
	else if (dropped_containers != NIL)
		warn_of_dropped_catalog();
}

/* A relation is about to be dropped. */
static void
dropping_relation(Oid relid, bool concurrently)
{
	char		relkind = get_rel_relkind(relid);
	TtlPolicy	policy;

	if (relid == ttl_container_objects()->catalog)
		note_dropped_catalog();

	if (get_rel_persistence(relid) == RELPERSISTENCE_TEMP)
		return;					/* not of a container */
	if (relkind == RELKIND_INDEX || relkind == RELKIND_PARTITIONED_INDEX)
		dropping_index(relid, concurrently);
	else if (relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE ||
			 relkind == RELKIND_FOREIGN_TABLE)
	{
		/*
		 * a session that is changing the policy has that locked, and not the
		 * table
		 */
		if (ttl_policy_read(relid, &policy) && ttl_policy_lock(relid, true, true))
			ttl_policy_delete(relid);
	}
}

/* When an object has been created or altered, or is about to be dropped, by whatever command */
void
ttl_ddl_object_changed(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (class_id == ExtensionRelationId &&
		(access == OAT_POST_CREATE || access == OAT_POST_ALTER))
		ttl_container_version_changed(object_id);
	if (class_id != RelationRelationId || ttl_container_objects() == NULL)
		return;
	if (access == OAT_POST_CREATE && sub_id == 0)
		relation_created(object_id);
	else if (access == OAT_POST_ALTER && sub_id > 0)
		follow_rename(object_id, sub_id);
	else if (access == OAT_DROP && sub_id > 0)
		dropping_column(object_id, sub_id);
	else if (access == OAT_DROP)
		dropping_relation(object_id,
						  (((ObjectAccessDrop *) arg)->dropflags & PERFORM_DELETION_CONCURRENTLY) != 0);
}
