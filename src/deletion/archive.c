/*-------------------------------------------------------------------------
 *
 * archive.c
 *	  The trigger that moves expired rows of a container to its archive.
 *
 * It is an AFTER DELETE row trigger: PostgreSQL calls it for each row that is really deleted, whatever
 * deletes it (the worker, CALL, an eviction, a foreign key), and for none that a BEFORE trigger
 * keeps.  A row that has not expired by the clock of the execution is a user's deletion, and isn't
 * archived.  alter_container() makes the trigger; no row is deleted by ttl from a container that has an
 * archive and lacks it (ttl_archive_trigger_check()).
 *
 * The row's columns go to the archive's columns of the same names.  They are matched when a statement
 * archives its first row, so that neither table can be altered in a way that makes the other fail.  A
 * container that is an archive counts the life of its rows from their arrival, so its own timestamp and
 * TTL columns take no values.
 *
 * The INSERT is executed as the common owner of both tables, in a security-restricted operation and with a
 * safe search_path, like a SECURITY DEFINER function: whoever deletes needs no right to the archive,
 * and meets none of its owner's code.  Nor may that code meet what others have put in its way (archive_code.c).
 * Whoever deletes doesn't get to see values of a row that is gone for him, either.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "citus/citus.h"
#include "commands/trigger.h"
#include "container/container.h"
#include "deletion/deletion.h"
#include "execution.h"
#include "executor/spi.h"
#include "expiry/expiry.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "own_sql.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/rls.h"

/* Of what is run in the midst of another's statement as the archive's owner; what is deferred stays so. */
#define DEFINER		(TTL_SQL_RESTRICTED | TTL_SQL_SAFE_PATH)

/* The INSERT of rows of one relation into the archive; lives as long as the execution that deletes them */
typedef struct Archiving
{
	Oid			archive;
	SPIPlanPtr	plan;
	int			ncolumns;
	AttrNumber *columns;		/* of the relation; $1 is the first */
	MemoryContextCallback free_plan;
} Archiving;

/*
 * Which archives will do
 */

/* An error later would be PostgreSQL's, by the INSERT, and only where a user's session writes. */
static void
check_not_deferred(Relation archive)
{
	for (int i = 0; archive->trigdesc != NULL && i < archive->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &archive->trigdesc->triggers[i];

		if (trigger->tginitdeferred && TRIGGER_FOR_INSERT(trigger->tgtype))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("archive \"%s\" has the initially deferred constraint \"%s\"",
							RelationGetRelationName(archive), get_constraint_name(trigger->tgconstraint)),
					 errdetail("Archives are written in a security-restricted operation, in which nothing can be deferred."),
					 errhint("Make the constraint INITIALLY IMMEDIATE.")));
	}
}

/* Errors unless rows of the container can go to that table, whose lock the caller holds. */
static void
check_tables(Oid container, Relation archive)
{
	const char *name = RelationGetRelationName(archive);
	char		relkind = archive->rd_rel->relkind;
	TtlContainer target;

	if ((relkind != RELKIND_RELATION && relkind != RELKIND_PARTITIONED_TABLE &&
		 relkind != RELKIND_FOREIGN_TABLE) ||
		archive->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table that can be an archive", name),
				 errdetail("Only ordinary, partitioned and foreign tables that are not temporary can be archives.")));
	if (archive->rd_rel->relowner != ttl_container_owner(container))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("archive \"%s\" and container \"%s\" have different owners",
						name, get_rel_name(container)),
				 errhint("Give both the same owner with ALTER TABLE ... OWNER TO.")));
	if (ttl_container_lookup(RelationGetRelid(archive), &target) && target.container == container)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("container \"%s\" cannot be its own archive", get_rel_name(container)),
				 errhint("Choose another table.")));
	/* each node would have to insert into shards of another table */
	if (ttl_citus_is_distributed(container) || ttl_citus_is_distributed(RelationGetRelid(archive)))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("archives of distributed tables are not supported"),
				 errhint("Have the application write to both tables, or use local tables.")));
	check_not_deferred(archive);
}

/* True if a value of the row can be given to the archive's column of that name. */
static bool
takes_column(Relation archive, const FormData_pg_attribute *column, bool is_container, const TtlContainer *target)
{
	AttrNumber	attno = get_attnum(RelationGetRelid(archive), NameStr(column->attname));

	/* a virtual column has no stored value */
	if (column->attisdropped || attno <= 0 ||
		(column->attgenerated != '\0' && column->attgenerated != ATTRIBUTE_GENERATED_STORED) ||
		TupleDescAttr(RelationGetDescr(archive), attno - 1)->attgenerated != '\0')
		return false;
	if (!is_container || (attno != target->ts_attno && attno != target->ttl_attno))
		return true;

	/*
	 * left out it would be lost, and taken along it would bring the TTL by
	 * which it has expired
	 */
	if (attno == target->ttl_attno && target->ttl_type->is_document)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("archive \"%s\" cannot take the TTL of its rows from documents that expired rows bring",
						RelationGetRelationName(archive)),
				 errhint("Register the archive with ttl_column => NULL.")));
	return false;
}

/* Matches the columns; returns the INSERT.  Error 42703 if no column of one has the name of one of the other's. */
static char *
match_columns(Relation rel, Relation archive, Archiving *archiving, Oid *types)
{
	TupleDesc	desc = RelationGetDescr(rel);
	TtlContainer target;
	bool		is_container = ttl_container_lookup(RelationGetRelid(archive), &target);
	StringInfoData names;
	StringInfoData values;

	initStringInfo(&names);
	initStringInfo(&values);
	archiving->ncolumns = 0;
	for (int i = 0; i < desc->natts; i++)
	{
		const FormData_pg_attribute *column = TupleDescAttr(desc, i);
		const char *separator = archiving->ncolumns > 0 ? ", " : "";

		if (!takes_column(archive, column, is_container, &target))
			continue;
		types[archiving->ncolumns] = column->atttypid;
		archiving->columns[archiving->ncolumns++] = column->attnum;
		appendStringInfo(&names, "%s%s", separator, quote_identifier(NameStr(column->attname)));
		appendStringInfo(&values, "%s$%d", separator, archiving->ncolumns);
	}
	if (archiving->ncolumns == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("archive \"%s\" has no column in common with container \"%s\"",
						RelationGetRelationName(archive), RelationGetRelationName(rel)),
				 errdetail("Columns are matched by name.")));
	return psprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE VALUES (%s)",
					ttl_container_table_name(RelationGetRelid(archive)), names.data, values.data);
}

/*
 * Errors (40001) if the INSERT is into another table, that has the archive's name by now.  A rule of the archive's
 * may have left nothing of it, or a NOTIFY, which reads no table.
 */
static void
check_plan(const Archiving *archiving)
{
	const CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(archiving->plan));

	ttl_sql_check_table(source->relationOids == NIL || list_member_oid(source->relationOids, archiving->archive),
						archiving->archive);
}

/* Prepares the INSERT, as the owner.  The archive stays as it is until the transaction ends. */
static void
prepare(Relation rel, Oid container, Oid archive_relid, Archiving *archiving)
{
	Relation	archive = try_table_open(archive_relid, RowExclusiveLock);
	Oid		   *types = palloc(sizeof(Oid) * RelationGetDescr(rel)->natts);
	const char *sql;

	if (archive == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("archive of container \"%s\" does not exist", get_rel_name(container)),
				 errhint("Choose another by ttl.alter_container(..., archive_to => ...), or 0 for none.")));
	check_tables(container, archive);
	sql = match_columns(rel, archive, archiving, types);
	archiving->plan = SPI_prepare(sql, archiving->ncolumns, types);
	archiving->archive = archive_relid;
	check_plan(archiving);
	table_close(archive, NoLock);
}

/*
 * Errors unless rows of the container can go to that table: 55000 it is gone, 42809 it is no table that stores rows,
 * 42501 it has another owner, 22023 it is the container, 42703 or 42804 for its columns, 0A000 one of them
 * is distributed, or a constraint of the archive is initially deferred.
 */
void
ttl_archive_check_target(Oid container, Oid archive)
{
	Relation	rel = table_open(container, AccessShareLock);
	Archiving	archiving = {.columns = palloc(sizeof(AttrNumber) * RelationGetDescr(rel)->natts)};
	TtlSqlContext saved;

	ttl_sql_begin(rel->rd_rel->relowner, DEFINER, &saved);
	prepare(rel, container, archive, &archiving);
	ttl_sql_end(&saved);
	table_close(rel, NoLock);
}

/*
 * The trigger
 */

/* Memory context callback: the execution that deletes has ended. */
static void
free_plan(void *arg)
{
	(void) SPI_freeplan(arg);
}

/* The INSERT for rows that the trigger's execution deletes from the relation */
static Archiving *
find_archiving(FmgrInfo *flinfo, Relation rel, const TtlContainer *container)
{
	Archiving  *archiving = flinfo->fn_extra;
	int			natts = RelationGetDescr(rel)->natts;

	/* a trigger of the user's may choose another archive meanwhile */
	if (archiving != NULL && archiving->archive == container->policy.archive_to)
		return archiving;
	archiving = MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Archiving));
	archiving->columns = MemoryContextAlloc(flinfo->fn_mcxt, sizeof(AttrNumber) * natts);
	prepare(rel, container->container, container->policy.archive_to, archiving);
	if (SPI_keepplan(archiving->plan) != 0)
		elog(ERROR, "SPI_keepplan failed");
	archiving->free_plan.func = free_plan;
	archiving->free_plan.arg = archiving->plan;
	MemoryContextRegisterResetCallback(flinfo->fn_mcxt, &archiving->free_plan);
	flinfo->fn_extra = archiving;
	return archiving;
}

/* Inserts the row in the slot into the archive. */
static void
insert(const Archiving *archiving, TupleTableSlot *slot)
{
	Datum	   *values = palloc(sizeof(Datum) * archiving->ncolumns);
	char	   *nulls = palloc(archiving->ncolumns);
	int			result;

	for (int i = 0; i < archiving->ncolumns; i++)
	{
		bool		isnull;

		values[i] = slot_getattr(slot, archiving->columns[i], &isnull);
		nulls[i] = isnull ? 'n' : ' ';
	}
	result = SPI_execute_plan(archiving->plan, values, nulls, false, 0);
	/* a rule may have made something else of it */
	if (result < 0)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));

	/* the plan cache may have looked the name up again */
	check_plan(archiving);
}

/* Error context: names what is done, but no values of a row that is gone for the user.  It reads no catalog. */
typedef struct Context
{
	const char *table;
	bool		is_owner;		/* who may see values */
} Context;

/* The callback of that context */
static void
explain(void *arg)
{
	const Context *context = arg;

	errcontext("archiving of an expired row of container \"%s\"", context->table);
	if (ERRCODE_TO_CATEGORY(geterrcode()) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION && !context->is_owner)
		errdetail("The expired row cannot be archived.");
}

PG_FUNCTION_INFO_V1(ttl_archive);

/*
 * ttl.archive() trigger
 *
 * AFTER DELETE, for each row: inserts it into the archive of its container if it has expired.  Errors:
 * 55000 the archive is gone, 42501 it belongs to another role than the container, 42703 they have no
 * column in common, 0A000 one is distributed, or a constraint deferred; and whatever the INSERT raises.
 */
Datum
ttl_archive(PG_FUNCTION_ARGS)
{
	const TriggerData *trigger = (TriggerData *) fcinfo->context;
	TtlContainer container;
	Context		context;
	ErrorContextCallback callback = {error_context_stack, explain, &context};
	Archiving  *archiving;
	TtlSqlContext saved;

	/* by another trigger, too, it would archive each row twice */
	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_AFTER(trigger->tg_event) ||
		!TRIGGER_FIRED_FOR_ROW(trigger->tg_event) || !TRIGGER_FIRED_BY_DELETE(trigger->tg_event) ||
		strcmp(trigger->tg_trigger->tgname, TTL_ARCHIVE_TRIGGER) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function \"%s\" must be called as trigger \"%s\" AFTER DELETE FOR EACH ROW",
						TTL_SCHEMA ".archive()", TTL_ARCHIVE_TRIGGER),
				 errhint("Use ttl.alter_container(..., archive_to => ...).")));
	/* an UPDATE moves it to another partition */
	if (HeapTupleHeaderIndicatesMovedPartitions(trigger->tg_trigtuple->t_data) ||
		!ttl_container_lookup(RelationGetRelid(trigger->tg_relation), &container) ||
		!OidIsValid(container.policy.archive_to) ||
		!ttl_deletion_of_expired(&container, trigger->tg_trigslot))
		return PointerGetDatum(NULL);

	context.table = RelationGetRelationName(trigger->tg_relation);
	context.is_owner = ttl_container_is_owner(GetOuterUserId(), container.container);
	error_context_stack = &callback;
	ttl_sql_begin(ttl_container_owner(container.container), DEFINER, &saved);
	/* off, it is an error where policies of the archive apply */
	if (!row_security)
		ttl_sql_set("row_security", "on");
	archiving = find_archiving(fcinfo->flinfo, trigger->tg_relation, &container);
	ttl_archive_check_session(archiving->archive, trigger->tg_relation);
	insert(archiving, trigger->tg_trigslot);
	ttl_sql_end(&saved);
	error_context_stack = callback.previous;
	return PointerGetDatum(NULL);
}
