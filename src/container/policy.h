/*-------------------------------------------------------------------------
 *
 * policy.h
 *	  What a policy is, and how its values are written down and compared.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_POLICY_H
#define TTL_POLICY_H

#include "access/htup.h"
#include "access/tupdesc.h"
#include "container/ttl_type.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

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
	List	   *archive_columns;	/* names; NIL = all.  Not in the cache */
	int32		cycle_cost_limit;	/* 0 = none */
	int32		batch_size;		/* 0 = adaptive */
	bool		replication_origin;
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

/*
 * Columns of ttl.container, as in sql/ttl--1.0.sql.  Later ones are added at the end
 * and may be null: where the objects are of an older version than the library, they
 * are read as null, and not written.
 */
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
	Anum_container_archive_columns,
	Anum_container_cycle_cost_limit,
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
 * The settings of a policy are those fields of TtlPolicy that users set.  Their table, in policy.c,
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
	TTL_SETTING_NAMES,			/* List of char *, NIL = NULL */
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

/* The setting of that name, or NULL */
extern const TtlSetting *ttl_policy_setting(const char *name);

/* Sets all settings to what they are by default; there are no columns then. */
extern void ttl_policy_init(TtlPolicy *policy);

/* The archive of the container is gone: its rows stay until there is another. */
extern void ttl_policy_lose_archive(Oid container, TtlPolicy *policy);

/* Reads and writes all fields in a row of ttl.container. */
extern void ttl_policy_read(TtlPolicy *policy, const Datum *values, const bool *nulls);
extern void ttl_policy_write(const TtlPolicy *policy, Datum *values, bool *nulls);

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

#endif							/* TTL_POLICY_H */
