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
#include "nodes/plannodes.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"
#include "utils/reltrigger.h"

typedef enum TtlIndexing
{
	TTL_INDEXING_NONE,
	TTL_INDEXING_CONSISTENT		/* each row that can expire, by its expiry */
} TtlIndexing;

/*
 * The last changes of a policy by which rows expire earlier, each within ttl.grace of the one
 * before.  In their grace the worker deletes nothing, see grace.c.
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
	Anum_container_replication_origin,
	Anum_container_grace_began_at,
	Anum_container_grace_noticed_at,
	Anum_container_grace_partition,
	Anum_container_created_objects,
	Anum_container_propagated,
	Natts_container = Anum_container_propagated
};

/* What a column is declared as */
typedef struct TtlColumnType
{
	Oid			type;
	int32		typmod;
	Oid			collation;
} TtlColumnType;

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
	TtlColumnType ts_column;	/* of these */
	TtlColumnType ttl_column;
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

extern const TtlObjects *ttl_container_objects(void);
extern const TtlObjects *ttl_container_require_objects(void);
extern Oid	ttl_container_function(TtlFunction function);
extern bool ttl_container_is_own_function(Oid function);
extern void ttl_container_check_version(TupleDesc catalog);
extern void ttl_container_version_changed(Oid extension);
extern void ttl_objects_invalidate(void);
extern void ttl_container_check_writable(const char *function);
extern void ttl_container_begin_change(const char *function);

/*
 * container.c
 */

extern bool ttl_container_lookup(Oid relid, TtlContainer *container);
extern bool ttl_container_peek(Oid relid, TtlContainer *container);
extern void ttl_container_require_columns(const TtlContainer *container);
extern bool ttl_container_is_part(Oid relid);

/* What is derived from the catalogs for a container's table or an index, and cached */
typedef enum TtlDerived
{
	TTL_DERIVED_KEY_COLUMNS,
	TTL_DERIVED_EXPIRY_INDEXES,
	TTL_DERIVED_KEY_OPERATORS,	/* of an index */
	TTL_DERIVED_VALUES
} TtlDerived;

extern const void *ttl_container_derive(Relation rel, TtlDerived which,
										void *(*derive) (Relation rel, Size *size));

/*
 * How often relations or schemas have been invalidated in this process; never 0.  See container.c
 * for how to remember what was read from catalogs.
 */
extern uint64 ttl_invalidations;
extern void ttl_container_invalidate(Oid relid);
extern void ttl_container_require(Oid relid, TtlPolicy *policy);
extern void ttl_container_check_owned(Oid container);

/*
 * tables.c
 */

extern void ttl_container_find_columns(Oid relid, const TtlPolicy *policy,
									   TtlContainer *container);
extern bool ttl_policy_is_possible(Oid relid, const TtlPolicy *policy);
extern List *ttl_container_tables(Oid relid);
extern List *ttl_container_leaves(Oid container);
extern List *ttl_container_tree(Oid relid, LOCKMODE lockmode);
extern Relation ttl_container_open(Oid relid, LOCKMODE lockmode);
extern Relation ttl_container_open_if_free(Oid relid, bool *busy);
extern bool ttl_container_has_pages(Oid relid);
extern List *ttl_container_subscribed_tables(bool only_added);
extern bool ttl_container_pglogical_subscribes(void);
extern char *ttl_container_table_name(Oid relid);
extern char *ttl_container_qualified_name(Oid relid);
extern Oid	ttl_container_owner(Oid relid);
extern Oid	ttl_container_ancestor_of_other(Oid relid);
extern bool ttl_container_is_owner(Oid user, Oid relid);
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
	int64		greatest;		/* of an interval, in microseconds */
	const char *hint;			/* which values it may have */
} TtlSetting;

extern const TtlSetting ttl_settings[];
extern const int ttl_nsettings;
extern const int ttl_npropagated;	/* ... and created_objects, which goes to
									 * Citus's other nodes */

extern const TtlSetting *ttl_policy_setting(const char *name);
extern void ttl_policy_init(TtlPolicy *policy);
extern void ttl_policy_set(TtlPolicy *policy, const TtlSetting *setting, Datum value);
extern char *ttl_policy_text(const TtlPolicy *policy, const TtlSetting *setting);
extern void ttl_policy_set_text(TtlPolicy *policy, const TtlSetting *setting, const char *text);
extern bool ttl_policy_setting_differs(const TtlPolicy *a, const TtlPolicy *b,
									   const TtlSetting *setting);
extern bool ttl_policy_microseconds(const Interval *interval, int64 *result);
extern bool ttl_policy_seconds(const Interval *interval, int32 *seconds);
extern bool ttl_policy_is_shorter(int32 default_ttl, int32 than);
extern char *ttl_policy_default_ttl_text(int32 default_ttl);
extern char *ttl_policy_differences(const TtlPolicy *old, const TtlPolicy *new);

/*
 * policy.c
 */

extern bool ttl_policy_read(Oid container, TtlPolicy *policy);
extern void ttl_policy_insert(Oid container, const TtlPolicy *policy);
extern void ttl_policy_update(Oid container, const TtlPolicy *policy);
extern void ttl_policy_delete(Oid container);
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

extern List *ttl_policy_list(TtlContainers which);
extern bool ttl_policy_forget_dropped(Oid container);
extern List *ttl_policy_take_changed(void);
extern bool ttl_policy_lock(Oid container, bool exclusive, bool wait);

/*
 * policy_guard.c
 */

extern bool ttl_policy_is_written(const PlannedStmt *stmt);
extern void ttl_policy_explain_denied(void *arg);

/*
 * own_ddl.c
 */

extern void ttl_command_execute(const char *sql);
#define ttl_command_run(...)	ttl_command_execute(psprintf(__VA_ARGS__))

extern void ttl_comment_add(Oid object, Oid class, int column, const char *text);
extern Trigger *ttl_row_trigger_among(TriggerDesc *triggers);
extern const Trigger *ttl_row_trigger_find(Relation rel);
extern const Trigger *ttl_row_trigger_of(Relation rel);
extern bool ttl_row_trigger_is_enabled(const Trigger *trigger);
extern bool ttl_row_trigger_exists(Oid relid);
extern void ttl_row_trigger_create(Oid relid, const char *arguments);
extern void ttl_row_trigger_restore(Oid relid);
extern void ttl_row_trigger_enable(Oid relid);
extern void ttl_row_trigger_drop(Oid relid);
extern bool ttl_row_trigger_is_created(Oid relid);
extern bool ttl_archive_trigger_fires(Relation rel);
extern void ttl_archive_trigger_check(Relation rel, const TtlContainer *container);
extern void ttl_archive_trigger_create(Oid relid);
extern void ttl_archive_trigger_restore(Oid relid);
extern void ttl_archive_trigger_drop(Oid relid);
extern void ttl_row_trigger_allow(void);

#endif							/* TTL_CONTAINER_H */
