/*-------------------------------------------------------------------------
 *
 * container.h
 *	  What a policy and a container are, and how they are looked up.
 *
 * A container is an ordinary or partitioned table with a row in
 * ttl.container.  The partitions of a container have no row of their own;
 * for all of ttl they belong to the container.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CONTAINER_H
#define TTL_CONTAINER_H

#include "access/attnum.h"
#include "container/ttl_type.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"
#include "nodes/plannodes.h"
#include "utils/reltrigger.h"

typedef enum TtlIndexing
{
	TTL_INDEXING_NONE,
	TTL_INDEXING_CONSISTENT		/* each row that can expire, by its expiry */
} TtlIndexing;

/*
 * The last changes of a policy by which rows expire earlier, each within ttl.grace of the one
 * before.  In their grace the worker deletes nothing, see expiry.c.
 */
typedef struct TtlChange
{
	/*
	 * when the worker noticed them, after the commit: 0 = there is none,
	 * DT_NOEND = not yet
	 */
	TimestampTz began_at;		/* noticed the first of them */
	TimestampTz noticed_at;		/* noticed the last */
	Oid			partition;		/* it concerns this one alone, InvalidOid =
								 * all tables of the container */
} TtlChange;

typedef struct TtlPolicy
{
	int32		default_ttl;
	NameData	ts_column;		/* empty = none */
	NameData	ttl_column;		/* empty = none */
	TtlUnit		ttl_unit;		/* of numbers in it */
	TtlUnit		ts_unit;		/* of numbers in the timestamp column */
	TtlIndexing indexing;
	bool		touch_on_update;
	int64		ts_precision;	/* microseconds, 0 = exact */
	bool		reaping;
	int64		reap_delay;
	Oid			archive_to;
	int32		batch_size;		/* 0 = adaptive */
	bool		replication_origin;
	TransactionId written_by;	/* xmin of its row in ttl.container */
	bool		propagated;
	TtlChange	change;
	int			created_objects;	/* TtlAdded, ORed.  Not in the cache */
} TtlPolicy;

/*
 * What ttl has added to the table, for drop_container() to take it back: what was
 * there is its user's.
 */
typedef enum TtlAdded
{
	TTL_CREATED_TS_COLUMN = 1 << 0,
	TTL_CREATED_TS_DEFAULT = 1 << 1,	/* of an adopted column */
	TTL_CREATED_TTL_COLUMN = 1 << 2,
	TTL_CREATED_INDEX = 1 << 3	/* << TtlExpiryIndex */
} TtlAdded;

/* Columns of ttl.container, as in sql/ttl--1.0.sql */
enum
{
	Anum_container_relid = 1,
	Anum_container_default_time_to_live,
	Anum_container_ts_column,
	Anum_container_ttl_column,
	Anum_container_ttl_unit,
	Anum_container_ts_unit,
	Anum_container_indexing,
	Anum_container_touch_on_update,
	Anum_container_ts_precision,
	Anum_container_reaping,
	Anum_container_reap_delay,
	Anum_container_archive_to,
	Anum_container_batch_size,
	Anum_container_replication_origin,
	Anum_container_grace_began_at,
	Anum_container_grace_noticed_at,
	Anum_container_grace_partition,
	Anum_container_created_objects,
	Anum_container_propagated,
	Natts_container = Anum_container_propagated
};

/*
 * A container as seen from one of its relations: itself or a partition.
 */
typedef struct TtlContainer
{
	Oid			relid;			/* the relation looked up */
	Oid			container;		/* the registered table it belongs to */
	bool		lacks_column;	/* one that the policy names; see
								 * ttl_container_peek() */
	AttrNumber	ts_attno;		/* _ts, numbered as in relid; 0 if none */
	AttrNumber	ttl_attno;		/* item TTL; 0 if the container has none */
	const TtlType *ttl_type;	/* of the item TTL, or NULL */
	const TtlType *ts_type;		/* of _ts if that is a number, or NULL */
	int64		ts_step;		/* microseconds; the values of _ts that ttl
								 * writes are multiples of it */
	TtlPolicy	policy;			/* change is that of relid */
} TtlContainer;

/* OIDs of the extension's schema and of ttl.container in this database. */
typedef struct TtlObjects
{
	Oid			schema;
	Oid			catalog;
} TtlObjects;

/* Functions that plans, indexes and triggers call */
typedef enum TtlFunction
{
	TTL_IS_LIVE,				/* ttl.is_live(regclass, timestamptz, "any") */
	TTL_IS_LIVE_BY_TID,			/* ttl.is_live(regclass) */
	TTL_IS_EXPIRED,				/* ttl.is_expired(like is_live) */
	TTL_STAMP,					/* ttl.stamp(anyelement, bigint, text) */
	TTL_COMPLETE,				/* ttl.complete(the same) */
	TTL_SHARD_STAMP,			/* ttl.shard_stamp(two of the same,
								 * timestamptz, bigint, text) */
	TTL_SHARD_NOW,				/* ttl.shard_now() */
	TTL_ITEM_EXPIRY,			/* ttl.item_expiry(timestamptz, integer) */
	TTL_ITEM_EXPIRY_UTC,		/* ttl.item_expiry(timestamp, integer) */
	TTL_ITEM_TTL,				/* ttl.item_ttl("any") */
	TTL_INSTANT,				/* ttl.instant("any", text) */
	TTL_INSTANT_OF_DATE,		/* ttl.instant(date) */
	TTL_CHECK_REFERENCE,		/* ttl.check_reference() */
	TTL_ON_WRITE,				/* ttl.on_write() */
	TTL_ARCHIVE					/* ttl.archive() */
} TtlFunction;

/*
 * objects.c
 */

/*
 * NULL if the extension isn't installed here, or its own script is running.
 * Any call that may accept invalidations can change the answer: another session may
 * drop the extension.
 */
extern const TtlObjects *ttl_container_objects(void);

/* The same, but errors (42704) instead of NULL. */
extern const TtlObjects *ttl_container_require_objects(void);

/* The OID of one of these functions, and whether the function is one */
extern Oid	ttl_container_function(TtlFunction function);
extern bool ttl_container_calls(Oid function);

/*
 * Errors (55000) unless this library knows the version of the objects, and ttl.container has the
 * columns that it knows: to be called before a policy is read or written.
 */
extern void ttl_container_check_version(TupleDesc catalog);

/*
 * CREATE or ALTER EXTENSION has written a row of pg_extension, and not run the script
 * yet.  Errors (55000) if it is our extension in a version that this library doesn't
 * know.
 */
extern void ttl_container_version_changed(Oid extension);

/* A schema may have changed: the extension may have come or gone. */
extern void ttl_objects_invalidate(void);

/* Errors (25006) where the named function can't write anything. */
extern void ttl_container_check_writable(const char *function);

/*
 * The same for a function that changes something of ttl.  Keeps the extension from being
 * dropped until the transaction ends; errors (42704) if it has been.
 */
extern void ttl_container_may_change(const char *function);

/*
 * container.c
 */

/*
 * Fills *container and returns true if relid is a container or belongs to
 * one.  Costs a hash probe for a relation seen before.  Errors (55000) if the
 * container lacks a column that it requires.
 */
extern bool ttl_container_lookup(Oid relid, TtlContainer *container);

/*
 * The same, also for one that lacks a column: for DDL, by which that is repaired.  And what
 * errors if it does.
 */
extern bool ttl_container_peek(Oid relid, TtlContainer *container);
extern void ttl_container_require_columns(const TtlContainer *container);

/* True if ttl_container_peek() would be.  Costs less, for nothing is copied. */
extern bool ttl_container_is_part(Oid relid);

/* What is derived from the catalogs for a container's table or an index, and cached */
typedef enum TtlDerived
{
	TTL_DERIVED_KEY_COLUMNS,
	TTL_DERIVED_EXPIRY_INDEXES,
	TTL_DERIVED_KEY_OPERATORS,	/* of an index */
	TTL_DERIVED_VALUES
} TtlDerived;

/*
 * That value.  The function, which may read catalogs, makes it in one chunk of so many
 * bytes, or NULL; it is called again after the relation cache entry was
 * invalidated.  The result is good until catalogs are read.
 */
extern const void *ttl_container_derive(Relation rel, TtlDerived which,
										void *(*derive) (Relation rel, Size *size));

/*
 * How often relations or schemas have been invalidated in this process; never 0.  See container.c
 * for how to remember what was read from catalogs.
 */
extern uint64 ttl_invalidations;

/* A relation (InvalidOid = any) may have changed. */
extern void ttl_container_invalidate(Oid relid);

/* Reads the policy; errors (42704) if the relation is no container. */
extern void ttl_container_require(Oid relid, TtlPolicy *policy);

/* The same, and ttl_container_check_owner() */
extern void ttl_container_check_owned(Oid container);

/*
 * tables.c
 */

/*
 * Where the policy's columns stand in the relation, and the type of the item TTL.
 * Fills only these, relid and lacks_column: it lacks one also if another type is in its
 * place.  DDL on a server without the library, and rows of ttl.container that are
 * restored next to another table, leave that behind.
 */
extern void ttl_container_find_columns(Oid relid, const TtlPolicy *policy,
									   TtlContainer *container);

/*
 * A table and its partitions at all levels, and of these the leaf tables, which hold rows.
 * Lists of OIDs; no lock is taken on them, so they may be gone when opened.
 */
extern List *ttl_container_tables(Oid relid);
extern List *ttl_container_leaves(Oid container);

/*
 * A container's table and all its partitions, as a list of OIDs, locked.  With
 * NoLock they have been, all by the same mode.  Errors (42P01) if the table has been dropped.
 */
extern List *ttl_container_tree(Oid relid, LOCKMODE lockmode);

/* Opens the relation; errors (42P01) if it is dropped while this waits for the lock. */
extern Relation ttl_container_open(Oid relid, LOCKMODE lockmode);

/*
 * Opens a table with a lock for reading.  NULL if it has gone, or if the lock isn't
 * to be had at once: then it is busy.
 */
extern Relation ttl_container_open_if_free(Oid relid, bool *busy);

/*
 * True if the table, or a partition of it, may hold rows.  Not if its file is empty; true
 * if another session has locked it.  Unless the caller has locked it, the answer holds only
 * for the moment.
 */
extern bool ttl_container_has_pages(Oid relid);

/*
 * The tables that subscriptions of this database write, or those that this transaction has
 * added to them.
 */
extern List *ttl_container_subscribed_tables(bool only_added);

/* True if pglogical may write tables of this database, whichever. */
extern bool ttl_container_pglogical_subscribes(void);

/* Its name as SQL has it, with its schema; if it has gone, its number. */
extern char *ttl_container_table_name(Oid relid);

/* The same as messages have it, between quotes of their own. */
extern char *ttl_container_qualified_name(Oid relid);

/* The table's owner, or InvalidOid if it has gone. */
extern Oid	ttl_container_owner(Oid relid);

/*
 * A table above the partition that has another owner, or InvalidOid.  Then code
 * of two owners fires for its rows, and neither may act for the other.
 */
extern Oid	ttl_container_ancestor_of_other(Oid relid);

/* True if the user has the owner's rights.  False if it has gone. */
extern bool ttl_container_is_owner(Oid user, Oid relid);

/* Errors (42P01) if it has gone; the second (42501) unless the current user has them, too. */
extern void ttl_container_check_exists(Oid relid);
extern void ttl_container_check_owner(Oid relid);

/*
 * settings.c
 */

/*
 * The settings of a policy are those fields of TtlPolicy that users set.  Their table
 * drives how arguments of functions give them, by their names, and how they are stored, compared,
 * logged and propagated to shards.  The last two types are of fields that are no settings.
 */
typedef enum TtlSettingType
{
	TTL_SETTING_TTL,			/* int32, TTL_OFF = NULL */
	TTL_SETTING_NAME,			/* NameData, empty = NULL */
	TTL_SETTING_INDEXING,
	TTL_SETTING_UNIT,			/* TTL_UNIT_SECONDS = NULL */
	TTL_SETTING_BOOLEAN,
	TTL_SETTING_NUMBER,			/* int32, 0 = NULL */
	TTL_SETTING_INTERVAL,		/* int64, microseconds */
	TTL_SETTING_TABLE,			/* Oid, InvalidOid = NULL */
	TTL_SETTING_INSTANT,		/* TimestampTz, 0 = NULL */
	TTL_SETTING_CREATED			/* int, TtlAdded ORed */
} TtlSettingType;

typedef struct TtlSetting
{
	const char *name;
	TtlSettingType type;
	size_t		offset;			/* in TtlPolicy */
	size_t		size;
	int			attnum;			/* in ttl.container */
	bool		replans;		/* a change of it alters the shape of plans */
	int64		greatest;		/* of a number, or of an interval's
								 * microseconds */
	const char *hint;			/* which values it may have */
} TtlSetting;

extern const TtlSetting ttl_settings[];
extern const int ttl_nsettings;
extern const int ttl_npropagated;	/* ... and created_objects, which goes to
									 * Citus's other nodes */

/* That of that name, or NULL */
extern const TtlSetting *ttl_policy_setting(const char *name);

/* Sets all settings to what they are by default; there are no columns then. */
extern void ttl_policy_init(TtlPolicy *policy);

/* Sets a setting to a value of its column's type; errors (22023) if it can't have that one. */
extern void ttl_policy_set(TtlPolicy *policy, const TtlSetting *setting, Datum value);

/* The value of a setting as text, and the same of a text */
extern char *ttl_policy_text(const TtlPolicy *policy, const TtlSetting *setting);
extern void ttl_policy_set_text(TtlPolicy *policy, const TtlSetting *setting, const char *text);

/* True if the policies differ in the setting. */
extern bool ttl_policy_setting_differs(const TtlPolicy *a, const TtlPolicy *b,
									   const TtlSetting *setting);

/*
 * The length of an interval, as EXTRACT(epoch FROM ...) has it: years of 365.25
 * days, months of 30 days, days of 24 hours.  False if it is out of range.
 */
extern bool ttl_policy_microseconds(const Interval *interval, int64 *result);

/* The same as a TTL: false unless it is a whole number of seconds from 1 to 2147483647. */
extern bool ttl_policy_seconds(const Interval *interval, int32 *seconds);

/* True if rows expire earlier by this default TTL than by the other one. */
extern bool ttl_policy_is_shorter(int32 default_ttl, int32 than);

/* A default TTL as people write it. */
extern char *ttl_policy_default_ttl_text(int32 default_ttl);

/*
 * What has been changed, setting by setting, as "... from x to y"; empty if nothing
 * has.
 */
extern char *ttl_policy_differences(const TtlPolicy *old, const TtlPolicy *new);

/*
 * policy.c
 */

/* The caller has checked everything, rights included. */
extern bool ttl_policy_read(Oid container, TtlPolicy *policy);
extern void ttl_policy_insert(Oid container, const TtlPolicy *policy);
extern void ttl_policy_update(Oid container, const TtlPolicy *policy);
extern void ttl_policy_delete(Oid container);

/*
 * Makes all sessions read the policy again, and if the shape of plans depends on the
 * change, also plan again: then each partition is invalidated, too, since it can be
 * queried directly.
 */
extern void ttl_policy_announce_change(Oid container, bool replan);

/* Containers of this database */
typedef enum TtlContainers
{
	TTL_CONTAINERS_SOUND,		/* that lack no column */
	TTL_CONTAINERS_STORED,		/* that have a table */
	TTL_CONTAINERS_ON,			/* ... and whose TTL is on */
	TTL_CONTAINERS_DROPPED		/* whose tables were dropped while the library
								 * wasn't loaded */
} TtlContainers;

/* The OIDs of these */
extern List *ttl_policy_list(TtlContainers which);

/* Forgets one whose table was dropped; false if it isn't such a one. */
extern bool ttl_policy_forget_dropped(Oid container);

/* Containers whose rows of ttl.container this session has written since the last call */
extern List *ttl_policy_take_changed(void);

/*
 * Policy lock: taken shared by a batch of the reaper, exclusively by a change of
 * the policy, both to the end of the transaction; so no policy change
 * commits between a batch's look at the policy and its deletion.  'wait'
 * false returns whether the lock could be had at once.
 */
extern bool ttl_policy_lock(Oid container, bool exclusive, bool wait);

/*
 * policy_guard.c
 */

/*
 * True if the statement, or utility command, changes rows of ttl.container itself; and what adds a HINT if that
 * is denied.
 */
extern bool ttl_policy_is_written(const PlannedStmt *stmt);
extern void ttl_policy_explain_denied(void *arg);

/*
 * own_ddl.c
 */

/*
 * Runs DDL in a step that ttl_sql_begin() has begun.  It qualifies all names: search_path is the
 * session's.
 */
extern void ttl_command_execute(const char *sql);
#define ttl_command_run(...)	ttl_command_execute(psprintf(__VA_ARGS__))

extern void ttl_comment_add(Oid object, Oid class, int column, const char *text);

/*
 * The row trigger of a container among those of an execution; on shards Citus adds a number
 * to its name.  A copy of that of a table, whose own are replaced when catalogs are read; and
 * of that of a table that is no shard, if it is what ttl has created.
 */
extern Trigger *ttl_row_trigger_among(TriggerDesc *triggers);
extern const Trigger *ttl_row_trigger_find(Relation rel);
extern const Trigger *ttl_row_trigger_of(Relation rel);
extern bool ttl_row_trigger_fires(const Trigger *trigger);

/* True if the table, which is locked, has it. */
extern bool ttl_row_trigger_exists(Oid relid);

/* Creates it with these arguments, as SQL, or puts it in the place of another; and enables it. */
extern void ttl_row_trigger_create(Oid relid, const char *arguments);

/* Creates it again, without arguments, on a table that had it as a partition. */
extern void ttl_row_trigger_restore(Oid relid);
extern void ttl_row_trigger_enable(Oid relid);
extern void ttl_row_trigger_drop(Oid relid);

/* True while the function above creates that of the table. */
extern bool ttl_row_trigger_is_created(Oid relid);

/*
 * The trigger that moves rows of a container to its archive: true if it fires for rows that ttl deletes from
 * the relation; and errors (55000) if these would be deleted without going to the archive that their container
 * has.  Created, or put in the place of another, as the calling user, or on a table that had it as a
 * partition; and dropped, if it is there.
 */
extern bool ttl_archive_trigger_fires(Relation rel);
extern void ttl_archive_trigger_check(Relation rel, const TtlContainer *container);
extern void ttl_archive_trigger_create(Oid relid);
extern void ttl_archive_trigger_restore(Oid relid);
extern void ttl_archive_trigger_drop(Oid relid);

/*
 * Lets Citus take commands about triggers until the caller's nest level of settings ends;
 * it takes them for unsafe.
 */
extern void ttl_row_trigger_allow(void);

#endif							/* TTL_CONTAINER_H */
