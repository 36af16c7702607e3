/*-------------------------------------------------------------------------
 *
 * archive_code.c
 *	  Whether the archiving of rows executes code of the archive's owner, and what that may find.
 *
 * It is executed as the owner (archive.c), in a session that may be somebody else's.  Functions that set
 * a search_path of their own would find temporary objects there.  So in a session that has some of
 * other roles, rows go to inert archives alone, and in whose session what goes along is deleted depends on
 * that, too (owner.c, deletion.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_index.h"
#include "catalog/pg_namespace.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* True if the default takes a constant, or the time. */
static bool
is_inert_default(const char *expression)
{
	Node	   *node = stringToNode(expression);

	if (IsA(node, FuncExpr))
		return castNode(FuncExpr, node)->funcid == F_NOW || castNode(FuncExpr, node)->funcid == F_CLOCK_TIMESTAMP;
	return IsA(node, Const) || IsA(node, SQLValueFunction);
}

/* True if the index has columns alone, and PostgreSQL's own operator classes. */
static bool
is_inert_index(HeapTuple index)
{
	bool		isnull;
	oidvector  *opclasses = (oidvector *) DatumGetPointer(SysCacheGetAttr(INDEXRELID, index, Anum_pg_index_indclass, &isnull));

	for (int i = 0; i < opclasses->dim1; i++)
	{
		if (opclasses->values[i] >= FirstNormalObjectId)
			return false;
	}
	return !((Form_pg_index) GETSTRUCT(index))->indisexclusion &&
		heap_attisnull(index, Anum_pg_index_indexprs, NULL) && heap_attisnull(index, Anum_pg_index_indpred, NULL);
}

/* True if all indexes of the archive are such. */
static bool
has_inert_indexes(Relation archive)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(archive))
	{
		HeapTuple	index = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(lc)));
		bool		is_inert;

		if (!HeapTupleIsValid(index))
			elog(ERROR, "cache lookup failed for index %u", lfirst_oid(lc));
		is_inert = is_inert_index(index);
		ReleaseSysCache(index);
		if (!is_inert)
			return false;
	}
	return true;
}

/* True if all columns have types of PostgreSQL's own, those of the relation's columns of the same names. */
static bool
has_inert_columns(Relation archive, Relation rel)
{
	for (int i = 0; i < RelationGetDescr(archive)->natts; i++)
	{
		const FormData_pg_attribute *column = TupleDescAttr(RelationGetDescr(archive), i);
		AttrNumber	source = get_attnum(RelationGetRelid(rel), NameStr(column->attname));

		if (column->attisdropped)
			continue;
		if (column->atttypid >= FirstNormalObjectId ||
			(source > 0 && get_atttype(RelationGetRelid(rel), source) != column->atttypid))
			return false;
	}
	return true;
}

/*
 * True if an INSERT of the relation's rows executes PostgreSQL's own functions alone.  Tables have
 * more kinds of code than can be listed, and some of it is behind other tables, so only the plainest of
 * tables is.
 */
static bool
is_inert(Relation archive, Relation rel)
{
	const TupleConstr *constr = RelationGetDescr(archive)->constr;

	/* a container has a trigger */
	if (archive->rd_rel->relkind != RELKIND_RELATION || archive->rd_rel->relispartition ||
		archive->rd_rel->relam != HEAP_TABLE_AM_OID || archive->trigdesc != NULL || archive->rd_rules != NULL ||
		(archive->rd_rel->relrowsecurity && archive->rd_rel->relforcerowsecurity))
		return false;
	if (constr != NULL && constr->num_check > 0)
		return false;
	for (int i = 0; constr != NULL && i < constr->num_defval; i++)
	{
		if (!is_inert_default(constr->defval[i].adbin))
			return false;
	}
	return has_inert_columns(archive, rel) && has_inert_indexes(archive);
}

/*
 * True if the temporary schema has relations of a role that lacks the privileges of the archive's owner, or other
 * objects. Whose session it is says nothing: others' functions may have made them.
 */
static bool
has_objects_of_others(Oid schema, Oid archive)
{
	ScanKeyData keys[2];
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(NamespaceRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(schema));
	rel = table_open(DependRelationId, AccessShareLock);
	scan = systable_beginscan(rel, DependReferenceIndexId, true, NULL, lengthof(keys), keys);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend depend = (Form_pg_depend) GETSTRUCT(tuple);

		found = depend->classid != RelationRelationId ||
			!ttl_container_is_owner(ttl_container_owner(depend->objid), archive);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/*
 * Errors (42501) if code of the archive's could find temporary objects that its owner hasn't made, where rows of
 * the relation are archived.  The archive is locked.  Each row is checked: triggers of the deletion may
 * have made some since the last one.
 */
void
ttl_archive_check_session(Oid archive_relid, Relation rel)
{
	Oid			schema;
	Oid			toast_schema;
	Relation	archive;

	GetTempNamespaceState(&schema, &toast_schema);
	if (!OidIsValid(schema))
		return;
	archive = table_open(archive_relid, NoLock);
	if (!is_inert(archive, rel) && has_objects_of_others(schema, archive_relid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot write archive \"%s\" in a session that has temporary objects",
						RelationGetRelationName(archive)),
				 errdetail("Code of the archive's owner may be executed, and could find objects that are not the owner's."),
				 errhint("Use DISCARD TEMP, or retry when the row has been deleted in the background.")));
	table_close(archive, NoLock);
}

/*
 * True if to archive rows of the relation may execute code of its owner's.  The archive, which is locked for that,
 * stays as it is until the transaction ends.
 */
bool
ttl_archive_has_code(Relation rel)
{
	TtlContainer container;
	Relation	archive;
	bool		has_code;

	if (!ttl_container_lookup(RelationGetRelid(rel), &container) || !OidIsValid(container.policy.archive_to))
		return false;
	archive = try_table_open(container.policy.archive_to, RowExclusiveLock);
	/* it has gone, and the trigger fails before any code runs */
	if (archive == NULL)
		return false;
	has_code = !is_inert(archive, rel);
	table_close(archive, NoLock);
	return has_code;
}
