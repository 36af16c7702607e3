/*-------------------------------------------------------------------------
 *
 * configuration.h
 *	  How a container is set up, and what follows and guards it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CONFIGURATION_H
#define TTL_CONFIGURATION_H

#include "access/attnum.h"
#include "catalog/pg_attribute.h"
#include "container/container.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "utils/relcache.h"

/*
 * argument.c: arguments of the SQL functions, by their number; errors (22023) if they
 * won't do
 */

extern void ttl_argument_refuse_null(FunctionCallInfo fcinfo, int n, const char *name);

/* The table that it is to change. */
extern Oid	ttl_argument_container(FunctionCallInfo fcinfo, const char *function);
extern int32 ttl_argument_default_ttl(FunctionCallInfo fcinfo, int n);
extern TtlIndexing ttl_argument_indexing(FunctionCallInfo fcinfo, int n);
extern int32 ttl_argument_range(FunctionCallInfo fcinfo, int n, const char *name, int32 max);
extern bool ttl_argument_boolean(FunctionCallInfo fcinfo, int n, const char *name);

/*
 * command.c
 */

/* Begins a piece of work by DDL, with literals meaning what they say. */
extern int	ttl_command_begin(void);

/* Runs one command of it, which qualifies all names: search_path is the session's. */
extern void ttl_command_run(const char *format,...) pg_attribute_printf(1, 2);

extern void ttl_command_end(int nestlevel);

/*
 * alter.c: what ttl.set_default_ttl() does
 */
extern void ttl_alter_default_ttl(Oid relid, int32 default_ttl);

/*
 * columns.c
 */
extern Form_pg_attribute ttl_columns_find(Relation rel, const char *name);

/* Errors unless the names can be those of a container's columns. */
extern void ttl_columns_check_names(const TtlPolicy *policy);

/* Errors (22023) if the policy has a default TTL, but no timestamp column. */
extern void ttl_columns_check_default(const TtlPolicy *policy, Oid relid);

/* Errors unless the columns, as far as they exist, can be adopted. */
extern void ttl_columns_check(Relation rel, const TtlPolicy *policy);

/*
 * Adds the columns that are missing, the timestamp's default and a CHECK on
 * item TTLs where there is none.  Old rows needn't obey it.  The policy notes what
 * was added.  The caller has locked the table.
 */
extern void ttl_columns_complete(Oid relid, TtlPolicy *policy);

/*
 * Adds that CHECK alone, if there is none and the type requires one; 'is_known':
 * all rows obey it.  And drops it if it was added.
 */
extern void ttl_columns_complete_check(Oid relid, TtlPolicy *policy, bool is_known);
extern void ttl_columns_drop_check(Oid relid, TtlPolicy *policy);

/* Gives the timestamp column, which has another type now, the default that it had. */
extern void ttl_columns_renew_default(Oid relid, const TtlPolicy *policy);

/*
 * Takes back what was added: from a column of the user's its default and CHECK; the
 * columns only if they are to be dropped, with all that is theirs.
 */
extern void ttl_columns_take_back(Oid relid, const TtlPolicy *policy, bool drop);

/*
 * Gives a table what it lacks to become a partition of a container's table, as
 * far as PostgreSQL doesn't do it; checks the uses of its timestamp column.
 */
extern void ttl_columns_complete_partition(Oid parent, Oid partition,
										   const TtlPolicy *policy);

/*
 * survey.c: what the first rows of a table hold in the columns of a policy
 */

typedef struct TtlSurveyedColumn
{
	bool		may_have_values;	/* true also if not all rows were read */
	int			rows;			/* read */
	bool		complete;		/* were these all? */
	int			values;			/* that are not NULL */
	int			invalid;		/* of these, without a meaning */
	int			future;			/* later than now */
	int			like[TTL_UNITS];	/* numbers of that unit, by their magnitude */
	char	   *least;			/* the range of values */
	char	   *greatest;
} TtlSurveyedColumn;

typedef struct TtlSurvey
{
	TtlSurveyedColumn ts;
	TtlSurveyedColumn own;
} TtlSurvey;

/* Reads at most 10000 rows.  The caller has locked the table; its columns may be missing. */
extern void ttl_survey(Oid relid, const TtlPolicy *policy, TtlSurvey *survey);

/* How many of the rows have a value, and from what to what, as a sentence */
extern char *ttl_survey_text(const TtlSurveyedColumn *column);

/* Reports the values in adopted columns, and warns if they look like something else. */
extern void ttl_survey_notice_adopted(Oid relid, const TtlPolicy *policy, const TtlSurvey *survey);

/* Reports how many of the rows have a value in an adopted TTL column that is no TTL. */
extern void ttl_survey_notice_invalid(Oid relid, const TtlPolicy *policy,
									  const TtlSurvey *survey);

/*
 * indexes.c
 */

/* Errors (55000) if the policy has a default TTL, but no indexes. */
extern void ttl_indexes_check_policy(const TtlPolicy *policy, Oid relid);

/*
 * Creates the expiry indexes that are missing, of all partitions at once or of
 * one that lacks it; the policy notes which.  It doesn't take the place of an invalid
 * one: that may be the work of hours that lacks one ATTACH.
 */
extern void ttl_indexes_complete(Oid relid, TtlPolicy *policy);

/* Drops those that it has created. */
extern void ttl_indexes_drop(Oid relid, TtlPolicy *policy);

/*
 * trigger.c
 */

/*
 * Has the table the row trigger of a container, and not just one by that name?
 * The caller holds a lock on the table.
 */
extern bool ttl_trigger_exists(Oid relid);

/* Creates the row trigger of a container, or puts one in its place; and enables it. */
extern void ttl_trigger_create(Oid relid, const TtlPolicy *policy);
extern void ttl_trigger_enable(Oid relid);
extern void ttl_trigger_drop(Oid relid);

/*
 * Sends the policy of a distributed table to all nodes, even if it is the one that they
 * should have.
 */
extern void ttl_trigger_send(Oid relid, const TtlPolicy *policy);

/* Locks a table whose policy is going to be changed as strongly as the next may need it. */
extern void ttl_trigger_lock(Oid relid);

/* Brings policies that have been changed, or all, to all nodes of a Citus cluster. */
extern void ttl_trigger_propagate(bool all);

/*
 * The archive of the container is being dropped, and that table takes its place, or none:
 * then the container stops reaping.
 */
extern void ttl_trigger_replace_archive(Oid container, Oid archive);

extern void ttl_trigger_init(void);

/*
 * notice.c
 */

/* Reports which columns were to be dropped, and aren't. */
extern void ttl_notice_kept_columns(Oid relid, const TtlPolicy *policy);

/*
 * Reports that the column has no time zone: it is taken as UTC, and a WARNING says so if
 * the server's is another.
 */
extern void ttl_notice_utc(Oid relid, const char *column);

/*
 * Warns if values of the column get or lose their time zone by that of the session: what
 * has none is taken as UTC.
 */
extern void ttl_notice_conversion(Oid relid, const char *column, Oid type);

/*
 * Reports how many stored rows of the container expire, until ttl.grace has passed,
 * because the default TTL was another one before, and how long they may be had back.
 */
extern void ttl_notice_made_expired(Oid relid, const TtlPolicy *policy, int32 old_default);

/* Warns if the owner, as whom rows are deleted, may not do so. */
extern void ttl_notice_rights(Oid relid);

/*
 * Warns of triggers on DELETE, or the one of that name, that run as other roles than the
 * owner.
 */
extern void ttl_notice_triggers(Oid relid, const char *name);

/*
 * Reports foreign keys that will keep expired rows from being deleted: those
 * without an action, since an application may carry that out itself (as Django does),
 * and only for the rows that it deletes.
 */
extern void ttl_notice_references(Oid relid);

/*
 * Warns of partitions whose rows can't be deleted, because they have other owners
 * than the tables above them: of the table, if it is one, and below it.
 */
extern void ttl_notice_owners(Oid relid);

/* Says that a table that is created like a container is none. */
extern void ttl_notice_copies(const CreateStmt *stmt);

/* Says that a partition that has left its container has become one. */
extern void ttl_notice_detached(Oid relid);

/* Says what it means that the row trigger of a container has been disabled with others. */
extern void ttl_notice_disabled(Oid relid);

/*
 * guard.c: errors if the command mustn't be
 */

/* Errors (2BP01): the container requires the object, so the command mustn't do that to it. */
extern void ttl_guard_refuse(const char *command, const char *object,
							 Oid container);

/* Is the column one that the policy names? */
extern bool ttl_guard_names_column(const TtlPolicy *policy, const char *column);

/*
 * Lets pass what drops something that the container requires, until the next call; and
 * whether it does.
 */
extern void ttl_guard_suspend(Oid container);
extern bool ttl_guard_is_suspended(Oid container);

/*
 * Errors if the timestamp column is used in a way that a container with this setting
 * can't allow: in a table with all its partitions, or in a table that may belong to a
 * container.
 */
extern void ttl_guard_ts_column(Oid relid, const TtlPolicy *policy, LOCKMODE lockmode);
extern void ttl_guard_ts_column_of_table(Oid relid);

/* The same for an index that is to be built concurrently. */
extern void ttl_guard_create_index(IndexStmt *stmt);

extern void ttl_guard_drop(DropStmt *stmt);
extern void ttl_guard_constraint(Oid relid, const TtlPolicy *policy, const AlterTableCmd *cmd);
extern void ttl_guard_create_trigger(CreateTrigStmt *stmt);
extern void ttl_guard_rename_trigger(RenameStmt *stmt);
extern void ttl_guard_rename_schema(RenameStmt *stmt);

/* The command alters ttl.container, or what else hiding depends on. */
extern void ttl_guard_extension(Node *stmt);

/* ttl.container gets a child by inheritance. */
extern void ttl_guard_child(Oid parent);

/* A function has been created, maybe in the place of one of the extension's. */
extern void ttl_guard_replaced_function(Oid function);

/*
 * Is the column given the type and the value that it has, as some object-relational
 * mappers do whenever they start?
 */
extern bool ttl_guard_keeps_type(Oid relid, const AlterTableCmd *cmd);

/*
 * alter_table.c
 */

/* Before and after ALTER TABLE of any table */
extern void ttl_alter_table_begin(AlterTableStmt *stmt);
extern void ttl_alter_table_end(AlterTableStmt *stmt);

/* May the command add a foreign key?  By one, a local table can become one of Citus. */
extern bool ttl_alter_table_adds_reference(AlterTableStmt *stmt);

/*
 * partition.c
 */
extern void ttl_partition_refuse_inheritance(Oid relid);
extern void ttl_partition_create(CreateStmt *stmt);
extern void ttl_partition_created(CreateStmt *stmt);

/*
 * A table is about to become a partition, of a container if there is a policy:
 * it gets what it lacks for that.
 */
extern void ttl_partition_attach(Oid parent, const TtlPolicy *policy, RangeVar *name);

/*
 * The rows of a table that has become a partition of a container have got a TTL,
 * as if it had been turned on for them.
 */
extern void ttl_partition_attached(Oid parent, RangeVar *name);

/* A partition is about to leave its container: it gets the same policy. */
extern void ttl_partition_detach(const TtlContainer *parent, RangeVar *name);

/*
 * ddl.c
 */
extern void ttl_ddl_init(void);

#endif							/* TTL_CONFIGURATION_H */
