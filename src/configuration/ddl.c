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
 *	  DROP TABLE of an archive					the container stops reaping
 *	  RENAME, SET SCHEMA of an archive			shards get the new name
 *	  DROP of _ts or ttl, also by CASCADE		refused (2BP01), unless the container has gone
 *	  ALTER TYPE, SET EXPRESSION of _ts or ttl	refused (2BP01); nothing if the type is
 *												the one that it has
 *	  DROP of an expiry index					refused while there is a default
 *												TTL (2BP01)
 *	  DROP TRIGGER of the container's			refused (2BP01)
 *	  the last two with row_security = off		not refused: that is a script of
 *												pg_dump --clean, which drops a
 *												table piece by piece
 *	  RENAME TRIGGER, DISABLE TRIGGER by name,
 *	  CREATE OR REPLACE TRIGGER					refused (2BP01)
 *	  CREATE TRIGGER on DELETE					warned of if it runs as other roles
 *												than the owner, see deletion/owner.c
 *	  RENAME of schema ttl						refused (2BP01)
 *	  CREATE, ALTER EXTENSION of a version		refused (55000), see
 *		that the library doesn't know			container.c
 *	  pg_repack's trigger						refused (0A000), see
 *												guard.c
 *	  ENABLE TRIGGER							the container's fires always again
 *	  ENABLE, DISABLE TRIGGER of ttl.container	nothing: scripts of pg_dump do so, and
 *												rows must not come in without it
 *	  ATTACH PARTITION of a container or of
 *	  its archive, foreign partitions, OF		refused (0A000)
 *	  ATTACH PARTITION of another table			it gets the columns that it lacks
 *	  DETACH PARTITION from a container			the partition becomes one itself
 *	  a partition has another owner than a
 *	  table above it, by whatever command		warned of, see deletion/owner.c
 *	  INHERITS, INHERIT							refused (0A000)
 *	  CREATE SUBSCRIPTION, ALTER SUBSCRIPTION	reaping of containers that it adds is
 *												turned off, see subscription.c
 *	  CREATE TABLE (LIKE a container)			a NOTICE: the copy is no container
 *	  unique index, foreign key or stored		refused (0A000), see
 *		generated column over _ts				guard.c
 *
 * What is refused is in guard.c, ALTER TABLE in alter_table.c, partitions are in partition.c.
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
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "nodes/parsenodes.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The column's name as this very command has written it */
static bool
read_new_name(Oid relid, AttrNumber attno, NameData *name)
{
	Relation	pg_attribute = table_open(AttributeRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_pg_attribute_attrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_attribute_attnum, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum(attno));
	scan = systable_beginscan(pg_attribute, AttributeRelidNumIndexId, true, SnapshotSelf, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		*name = ((Form_pg_attribute) GETSTRUCT(tuple))->attname;
	systable_endscan(scan);
	table_close(pg_attribute, AccessShareLock);
	return HeapTupleIsValid(tuple);
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

	if (old_name == NULL || !ttl_container_read(relid, &policy) ||
		(strcmp(old_name, NameStr(policy.ts_column)) != 0 &&
		 strcmp(old_name, NameStr(policy.ttl_column)) != 0) ||
		!read_new_name(relid, attno, &new_name) ||
		strcmp(old_name, NameStr(new_name)) == 0)
		return;

	/* the command has locked the table */
	ttl_container_lock_policy(relid, true, true);
	if (!ttl_container_read(relid, &policy))
		return;
	if (strcmp(old_name, NameStr(policy.ts_column)) == 0)
		policy.ts_column = new_name;
	else
		policy.ttl_column = new_name;
	ttl_container_update(relid, &policy);
}

void
ttl_ddl_before_utility(PlannedStmt *pstmt, const char *query_string,
					   ProcessUtilityContext context, bool by_citus)
{
	Node	   *stmt = pstmt->utilityStmt;

	/* a command that has failed may have left some */
	if (context == PROCESS_UTILITY_TOPLEVEL)
		ttl_guard_forget_dropped();
	/* DDL is about to be refused where nothing can be written */
	if (XactReadOnly || ttl_container_objects() == NULL)
		return;
	if (IsA(stmt, AlterTableStmt))
		ttl_alter_table_begin((AlterTableStmt *) stmt, by_citus);
	else if (IsA(stmt, IndexStmt))
		ttl_guard_create_index((IndexStmt *) stmt, query_string);
	else if (IsA(stmt, RenameStmt) && ((RenameStmt *) stmt)->renameType == OBJECT_SCHEMA)
		ttl_guard_rename_schema((RenameStmt *) stmt);
	else if (IsA(stmt, CreateTrigStmt))
		ttl_trigger_creates((CreateTrigStmt *) stmt);
	else if (IsA(stmt, CreateStmt) || IsA(stmt, CreateForeignTableStmt))
		ttl_notice_copies((CreateStmt *) stmt);
}

/*
 * Follows the command, or refuses it: now it has the locks that it needs, and what another
 * session did before it got them is seen.
 */
static void
after_command(Node *stmt)
{
	switch (nodeTag(stmt))
	{
		case T_AlterTableStmt:
			ttl_alter_table_end((AlterTableStmt *) stmt);
			break;
		case T_IndexStmt:
			ttl_guard_ts_column_of_table(RangeVarGetRelid(((IndexStmt *) stmt)->relation, NoLock, true));
			break;
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
			ttl_partition_created((CreateStmt *) stmt);
			break;
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
			ttl_subscription_changed();
			break;
		case T_CreateTrigStmt:
			ttl_guard_repack((CreateTrigStmt *) stmt);
			ttl_trigger_created((CreateTrigStmt *) stmt);
			break;
		case T_DropStmt:
			if (((DropStmt *) stmt)->removeType == OBJECT_TRIGGER)
				ttl_trigger_dropped((DropStmt *) stmt);
			break;
		case T_RenameStmt:
			if (((RenameStmt *) stmt)->renameType == OBJECT_TRIGGER)
				ttl_trigger_renamed((RenameStmt *) stmt);
			break;
		default:
			break;
	}
}

void
ttl_ddl_after_utility(PlannedStmt *pstmt, ProcessUtilityContext context)
{
	Node	   *stmt = pstmt->utilityStmt;

	if (ttl_container_objects() != NULL)
	{
		after_command(stmt);
		/* a part of a command is judged with the whole */
		if (context != PROCESS_UTILITY_SUBCOMMAND)
			ttl_guard_check_dropped();
	}
}

/* A relation is about to be dropped. */
static void
relation_dropped(Oid relid, Oid catalog, bool concurrently)
{
	char		relkind = get_rel_relkind(relid);
	TtlPolicy	policy;

	if (get_rel_persistence(relid) == RELPERSISTENCE_TEMP)
		return;					/* neither of a container nor an archive */
	if (relkind == RELKIND_INDEX || relkind == RELKIND_PARTITIONED_INDEX)
	{
		/* DROP EXTENSION of a later version goes on */
		if (ttl_container_knows_version())
			ttl_guard_dropping_index(relid, concurrently);
	}
	else if (relid == catalog)
		ttl_container_forget_objects();
	else if (relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE ||
			 relkind == RELKIND_FOREIGN_TABLE)
	{
		/* whoever changes the policy has locked it */
		if (ttl_container_read(relid, &policy) && ttl_container_lock_policy(relid, true, true))
			ttl_container_delete(relid);
		ttl_trigger_archive_dropped(relid);
	}
}

void
ttl_ddl_object_changed(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	const TtlObjects *objects;

	if (class_id == ExtensionRelationId &&
		(access == OAT_POST_CREATE || access == OAT_POST_ALTER))
		ttl_container_version_changed(object_id);
	if ((class_id != RelationRelationId && class_id != NamespaceRelationId) ||
		(access != OAT_DROP && access != OAT_POST_ALTER))
		return;
	objects = ttl_container_objects();
	if (objects == NULL)
		return;
	if (access == OAT_POST_ALTER)
	{
		if (sub_id > 0)
			follow_rename(object_id, sub_id);
	}
	else if (class_id == RelationRelationId && sub_id > 0)
		ttl_guard_dropping_column(object_id, sub_id);
	else if (class_id == RelationRelationId && sub_id == 0)
		relation_dropped(object_id, objects->catalog,
						 (((ObjectAccessDrop *) arg)->dropflags & PERFORM_DELETION_CONCURRENTLY) != 0);
}
