/*-------------------------------------------------------------------------
 *
 * archive.c
 *	  Archives of containers: what of expired rows moves there, and whose code that runs.
 *
 * Columns are matched by name.  The archive's code, such as triggers, CHECKs and defaults, runs as
 * whoever deletes.  Rows of a shard of Citus move to the shard of the archive that is co-located
 * with it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_trigger.h"
#include "citus/citus.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* Errors since the archive can't take a column along. */
static void
refuse_archive(Relation rel, const TtlPolicy *policy, const char *column)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("archive \"%s\" has no place for column \"%s\" of container \"%s\"",
					get_rel_name(policy->archive_to), column, RelationGetRelationName(rel)),
			 errdetail("Columns are matched by name; one that is generated there, or that the archive as a container sets itself, doesn't count."),
			 errhint("Add the column to the archive, or name those to take along by ttl.alter_container(..., archive_columns => ...).")));
}

/* True if the archive can take a value of that column.  Its own ones count if "own". */
static bool
archive_takes(Oid archive, const char *column, bool own)
{
	AttrNumber	attno = get_attnum(archive, column);
	TtlContainer container;

	return attno > 0 && get_attgenerated(archive, attno) == '\0' &&
		(own || !ttl_container_lookup(archive, &container) ||
		 (attno != container.ts_attno && attno != container.ttl_attno));
}

/*
 * True if the archive may do without that column of a container.  _ts and TTL say nothing
 * there; but a document is what the row is about.
 */
static bool
is_dispensable(Relation rel, const TtlPolicy *policy, const char *column)
{
	TtlContainer container;

	if (strcmp(column, NameStr(policy->ts_column)) == 0)
		return true;
	ttl_container_find_columns(RelationGetRelid(rel), policy, &container);
	return strcmp(column, NameStr(policy->ttl_column)) == 0 &&
		container.ttl_type != NULL && !container.ttl_type->is_document;
}

/* Names of the columns that rows of the relation take along */
static List *
find_columns(Relation rel, const TtlPolicy *policy)
{
	TupleDesc	desc = RelationGetDescr(rel);
	List	   *columns = NIL;
	ListCell   *lc;

	foreach(lc, policy->archive_columns)
	{
		if (get_attnum(RelationGetRelid(rel), lfirst(lc)) <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of container \"%s\" does not exist",
							(char *) lfirst(lc), RelationGetRelationName(rel)),
					 errhint("Name the columns to take along by ttl.alter_container(..., archive_columns => ...).")));
		if (!archive_takes(policy->archive_to, lfirst(lc), true))
			refuse_archive(rel, policy, lfirst(lc));
	}
	if (policy->archive_columns != NIL)
		return policy->archive_columns;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		char	   *name = NameStr(attribute->attname);

		if (attribute->attisdropped)
			continue;
		if (archive_takes(policy->archive_to, name, false))
			columns = lappend(columns, pstrdup(name));
		else if (!is_dispensable(rel, policy, name) &&
				 !(attribute->attgenerated != '\0' &&
				   get_attnum(policy->archive_to, name) > 0 &&
				   get_attgenerated(policy->archive_to,
									get_attnum(policy->archive_to, name)) != '\0'))
			refuse_archive(rel, policy, name);
	}
	if (columns == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("archive \"%s\" has no column in common with container \"%s\"",
						get_rel_name(policy->archive_to), RelationGetRelationName(rel)),
				 errdetail("Columns are matched by name.")));
	return columns;
}

List *
ttl_archive_columns(Relation rel, Oid container, const TtlPolicy *policy, Oid *archive)
{
	char	   *distribution_column = "";
	TtlPolicy	local = *policy;
	List	   *columns;
	ListCell   *lc;

	*archive = local.archive_to = ttl_citus_find_archive(container, policy, &distribution_column, ERROR);
	if (get_rel_name(*archive) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("archive of container \"%s\" does not exist",
						RelationGetRelationName(rel)),
				 errhint("Choose another by ttl.alter_container(..., archive_to => ...), or 0 for none.")));
	columns = find_columns(rel, &local);
	foreach(lc, columns)
	{
		if (distribution_column[0] == '\0' || strcmp(lfirst(lc), distribution_column) == 0)
			return columns;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("distribution column \"%s\" of container \"%s\" is not taken along into the archive",
					distribution_column, RelationGetRelationName(rel)),
			 errhint("Name it in ttl.alter_container(..., archive_columns => ...).")));
	return NIL;
}

/* True if an index of the table is computed by expressions. */
static bool
has_index_code(Relation rel)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		HeapTuple	index = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));
		bool		found;

		if (!HeapTupleIsValid(index))
			elog(ERROR, "cache lookup failed for index %u", lfirst_oid(lc));
		found = !heap_attisnull(index, Anum_pg_index_indexprs, NULL) ||
			!heap_attisnull(index, Anum_pg_index_indpred, NULL);
		ReleaseSysCache(index);
		if (found)
			return true;
	}
	return false;
}

/* True if a value of the column is converted to, or made by, a type that users have defined. */
static bool
has_type_code(const FormData_pg_attribute *attribute, Relation rel)
{
	AttrNumber	attno = get_attnum(RelationGetRelid(rel), NameStr(attribute->attname));
	Oid			type = attno > 0 ? TupleDescAttr(RelationGetDescr(rel), attno - 1)->atttypid : InvalidOid;

	return !attribute->attisdropped && attribute->atttypid != type &&
		(attribute->atttypid >= FirstNormalObjectId || type >= FirstNormalObjectId);
}

/* True if the insertion of rows of the relation may run code of the archive's owner. */
static bool
archive_has_code(Relation archive, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(archive);

	/* partitions have code of their own, and so has what is behind a foreign table */
	if (archive->rd_rel->relkind != RELKIND_RELATION || archive->rd_rel->relispartition ||
		archive->rd_rel->relrowsecurity || archive->rd_rules != NULL ||
		(desc->constr != NULL && (desc->constr->num_defval > 0 || desc->constr->num_check > 0)))
		return true;
	for (int i = 0; archive->trigdesc != NULL && i < archive->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &archive->trigdesc->triggers[i];

		if (TRIGGER_FOR_INSERT(trigger->tgtype) && trigger->tgenabled != TRIGGER_DISABLED &&
			RI_FKey_trigger_type(trigger->tgfoid) == RI_TRIGGER_NONE)
			return true;
	}
	for (int i = 0; i < desc->natts; i++)
	{
		if (has_type_code(TupleDescAttr(desc, i), rel))
			return true;
	}
	return has_index_code(archive);
}

Oid
ttl_archive_append(StringInfo sql, Relation rel, const TtlContainer *container)
{
	TtlPolicy	policy;
	Oid			archive;
	StringInfoData columns;
	ListCell   *lc;

	if (!ttl_policy_read(container->container, &policy) ||
		policy.archive_to != container->policy.archive_to)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("archive of container \"%s\" was changed concurrently",
						RelationGetRelationName(rel))));

	initStringInfo(&columns);
	foreach(lc, ttl_archive_columns(rel, container->container, &policy, &archive))
		appendStringInfo(&columns, "%s%s", columns.len > 0 ? ", " : "", quote_identifier(lfirst(lc)));
	appendStringInfo(sql, "INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s",
					 ttl_container_table_name(archive), columns.data, columns.data);
	return archive;
}

void
ttl_archive_check_code(const TtlSessionUser *user, Relation rel, const ItemPointerData *tid, Oid archive)
{
	Relation	archive_rel;

	if (user == NULL)
		return;
	/* the lock keeps others from adding code */
	archive_rel = table_open(archive, RowExclusiveLock);
	if (!ttl_owner_is_trusted(user, archive_rel) && archive_has_code(archive_rel, rel))
		ttl_owner_refuse(rel, tid, false,
			   psprintf(_("Its archive \"%s\" belongs to another role, and so does the code that an insertion there would run."),
						RelationGetRelationName(archive_rel)));
	table_close(archive_rel, NoLock);
}
