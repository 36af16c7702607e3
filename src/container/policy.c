/*-------------------------------------------------------------------------
 *
 * policy.c
 *	  The fields of a policy, and the rows of ttl.container, where policies are stored.
 *
 * The fields.  A table of them drives all of it for those that users set: the row of
 * ttl.container, arguments of functions, the messages about changes, and what Citus propagates to
 * shards.  At its end are those that are stored alone.  A field's text is that of the SQL type of
 * its column.
 *
 * Rows of ttl.container.  They are read by a catalog snapshot, i.e. as of now and not as of the
 * transaction's snapshot: a change of policy is in force with the next statement of every session.
 * As with a catalog, no predicate locks are taken in SERIALIZABLE, see next_row().  They are
 * written without going through SQL, so no privilege is needed, and no trigger fires; by SQL come
 * in only those of a dump that is restored, and those that a publication FOR ALL TABLES sends.
 * Every write invalidates the relation cache entry of the container's table, for the cache in
 * container.c and for cached plans.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "common/int.h"
#include "compat.h"
#include "container/container.h"
#include "counters.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "replication/logicalworker.h"
#include "storage/lock.h"
#include "ttl.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/*
 * Fields
 */

bool
ttl_policy_microseconds(const Interval *interval, int64 *result)
{
	int64		years = interval->month / MONTHS_PER_YEAR;
	int64		months = interval->month % MONTHS_PER_YEAR;
	int64		seconds = years * (SECS_PER_DAY / 4) * 1461 +
	(months * DAYS_PER_MONTH + interval->day) * SECS_PER_DAY;

	return !pg_mul_s64_overflow(seconds, USECS_PER_SEC, result) &&
		!pg_add_s64_overflow(*result, interval->time, result);
}

bool
ttl_policy_seconds(const Interval *interval, int32 *seconds)
{
	int64		microseconds;

	if (!ttl_policy_microseconds(interval, &microseconds) ||
		microseconds % USECS_PER_SEC != 0 ||
		microseconds / USECS_PER_SEC < 1 ||
		microseconds / USECS_PER_SEC > PG_INT32_MAX)
		return false;
	*seconds = (int32) (microseconds / USECS_PER_SEC);
	return true;
}

/* How long rows stay by a default TTL, for comparison. */
static int64
length_of(int32 default_ttl)
{
	if (default_ttl == TTL_OFF)
		return PG_INT64_MAX;
	return default_ttl == TTL_NEVER ? PG_INT64_MAX - 1 : default_ttl;
}

bool
ttl_policy_is_shorter(int32 default_ttl, int32 than)
{
	return length_of(default_ttl) < length_of(than);
}

char *
ttl_policy_default_ttl_text(int32 default_ttl)
{
	return default_ttl == TTL_OFF ? "NULL" : psprintf("%d", default_ttl);
}

static const char *const indexing_names[] = {
	[TTL_INDEXING_NONE] = "none",
	[TTL_INDEXING_CONSISTENT] = "consistent"
};

static bool
parse_indexing(const char *name, TtlIndexing *indexing)
{
	if (strcmp(name, "lazy") == 0)
	{
		ereport(NOTICE,
				(errmsg("indexing policy \"lazy\" is the same as \"consistent\""),
				 errdetail("Azure Cosmos DB has had a policy of that name.")));
		*indexing = TTL_INDEXING_CONSISTENT;
		return true;
	}
	for (int i = 0; i < lengthof(indexing_names); i++)
	{
		if (strcmp(name, indexing_names[i]) == 0)
		{
			*indexing = i;
			return true;
		}
	}
	return false;
}

#define FIELD(field, type, column, ...) \
	{#field, TTL_SETTING_##type, offsetof(TtlPolicy, field), sizeof(((TtlPolicy *) NULL)->field), \
	 Anum_container_##column, __VA_ARGS__}

/* Upper limit of batch_size */
#define MAX_BATCH_SIZE	50000

#define UNIT_HINT \
	gettext_noop("Use \"epoch\", \"epoch_ms\", \"epoch_us\" or \"epoch_ns\" for times since 1970, else \"seconds\".")

const TtlSetting ttl_settings[] = {
	FIELD(default_ttl, TTL, default_time_to_live, false),
	FIELD(ts_column, NAME, ts_column, true),
	FIELD(ttl_column, NAME, ttl_column, true),
	FIELD(ttl_unit, UNIT, ttl_unit, true, 0, UNIT_HINT),
	FIELD(ts_unit, UNIT, ts_unit, true, 0, UNIT_HINT),
	FIELD(indexing, INDEXING, indexing, true, 0,
		  gettext_noop("Use \"consistent\" or \"none\".")),
	FIELD(touch_on_update, BOOLEAN, touch_on_update, true),
	FIELD(ts_precision, INTERVAL, ts_precision, true, TTL_MAX_PRECISION,
		  gettext_noop("Use an interval from 0, which is exact, to 2147483647 seconds.")),
	FIELD(reaping, BOOLEAN, reaping, false),
	FIELD(reap_delay, INTERVAL, reap_delay, false, PG_INT64_MAX,
		  gettext_noop("Use an interval from 0 to 292000 years.")),
	FIELD(archive_to, TABLE, archive_to, false),
	FIELD(batch_size, NUMBER, batch_size, false, MAX_BATCH_SIZE,
		  gettext_noop("Use a number from 1 to 50000, or 0 for as many rows as take about 50 ms.")),
	FIELD(replication_origin, BOOLEAN, replication_origin, false),
	/* what else is stored, and set by ttl itself; the first of it goes to Citus's other nodes, too */
	FIELD(created_objects, CREATED, created_objects, false),
	FIELD(change.began_at, INSTANT, grace_began_at, false),
	FIELD(change.noticed_at, INSTANT, grace_noticed_at, false),
	FIELD(change.partition, TABLE, grace_partition, false),
	FIELD(propagated, BOOLEAN, propagated, false)
};

const int	ttl_nsettings = lengthof(ttl_settings) - 5;
const int	ttl_npropagated = lengthof(ttl_settings) - 4;

const TtlSetting *
ttl_policy_setting(const char *name)
{
	for (int i = 0; i < ttl_npropagated; i++)
	{
		if (strcmp(ttl_settings[i].name, name) == 0)
			return &ttl_settings[i];
	}
	return NULL;
}

/* SQL types of the settings' columns */
static const Oid column_types[] = {
	[TTL_SETTING_TTL] = INT4OID,
	[TTL_SETTING_NAME] = NAMEOID,
	[TTL_SETTING_INDEXING] = TEXTOID,
	[TTL_SETTING_UNIT] = TEXTOID,
	[TTL_SETTING_BOOLEAN] = BOOLOID,
	[TTL_SETTING_NUMBER] = INT4OID,
	[TTL_SETTING_INTERVAL] = INTERVALOID,
	[TTL_SETTING_TABLE] = REGCLASSOID,
	[TTL_SETTING_CREATED] = TEXTARRAYOID
};

/* Names of TtlAdded, from the lowest bit up */
static const char *const created_object_names[] = {
	"ts_column", "ts_default", "ttl_column", "default_index", "item_index"
};

void
ttl_policy_init(TtlPolicy *policy)
{
	memset(policy, 0, sizeof(TtlPolicy));
	policy->default_ttl = TTL_OFF;
	policy->indexing = TTL_INDEXING_CONSISTENT;
	policy->touch_on_update = true;
	policy->reaping = true;
}

static char *
setting_text(TtlSettingType type, Datum value)
{
	Oid			output;
	bool		is_varlena;

	getTypeOutputInfo(column_types[type], &output, &is_varlena);
	return OidOutputFunctionCall(output, value);
}

static void
refuse_value(const TtlSetting *setting, Datum value)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid %s: \"%s\"", setting->name, setting_text(setting->type, value)),
			 setting->hint == NULL ? 0 : errhint("%s", _(setting->hint))));
}

static List *
names_from_array(ArrayType *array)
{
	List	   *names = NIL;
	Datum	   *elements;
	bool	   *nulls;
	int			n;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (!nulls[i])
			names = lappend(names, TextDatumGetCString(elements[i]));
	}
	return names;
}

static int
created_objects_of(List *names)
{
	int			objects = 0;

	for (int i = 0; i < lengthof(created_object_names); i++)
	{
		ListCell   *lc;

		foreach(lc, names)
		{
			if (strcmp(lfirst(lc), created_object_names[i]) == 0)
				objects |= 1 << i;
		}
	}
	return objects;
}

static List *
names_of_created_objects(int objects)
{
	List	   *names = NIL;

	for (int i = 0; i < lengthof(created_object_names); i++)
	{
		if (objects & (1 << i))
			names = lappend(names, (char *) created_object_names[i]);
	}
	return names;
}

static void
read_field(TtlPolicy *policy, const TtlSetting *setting, Datum value, bool isnull)
{
	void	   *field = (char *) policy + setting->offset;

	switch (setting->type)
	{
		case TTL_SETTING_TTL:
			*(int32 *) field = isnull ? TTL_OFF : DatumGetInt32(value);
			break;
		case TTL_SETTING_NAME:
			if (isnull)
				memset(field, 0, sizeof(NameData));
			else
				*(NameData *) field = *DatumGetName(value);
			break;
		case TTL_SETTING_INDEXING:
			/* a row that a constraint is about to refuse may lack it */
			*(TtlIndexing *) field = TTL_INDEXING_NONE;
			if (!isnull && !parse_indexing(TextDatumGetCString(value), field))
				refuse_value(setting, value);
			break;
		case TTL_SETTING_UNIT:
			*(TtlUnit *) field = TTL_UNIT_SECONDS;
			if (!isnull && !ttl_type_unit_parse(TextDatumGetCString(value), field))
				refuse_value(setting, value);
			break;
		case TTL_SETTING_BOOLEAN:
			*(bool *) field = !isnull && DatumGetBool(value);
			break;
		case TTL_SETTING_NUMBER:
			*(int32 *) field = isnull ? 0 : DatumGetInt32(value);
			break;
		case TTL_SETTING_INTERVAL:
			*(int64 *) field = 0;
			if (!isnull && !ttl_policy_microseconds(DatumGetIntervalP(value), field))
				refuse_value(setting, value);
			break;
		case TTL_SETTING_TABLE:
			*(Oid *) field = isnull ? InvalidOid : DatumGetObjectId(value);
			break;
		case TTL_SETTING_INSTANT:
			*(TimestampTz *) field = isnull ? 0 : DatumGetTimestampTz(value);
			break;
		case TTL_SETTING_CREATED:
			*(int *) field = isnull ? 0 :
				created_objects_of(names_from_array(DatumGetArrayTypeP(value)));
			break;
	}
}

static Datum
write_field(const void *field, TtlSettingType type, bool *isnull)
{
	Interval   *interval;

	*isnull = false;
	switch (type)
	{
		case TTL_SETTING_TTL:
			*isnull = *(const int32 *) field == TTL_OFF;
			return Int32GetDatum(*(const int32 *) field);
		case TTL_SETTING_NAME:
			*isnull = NameStr(*(const NameData *) field)[0] == '\0';
			return NameGetDatum((const NameData *) field);
		case TTL_SETTING_INDEXING:
			return CStringGetTextDatum(indexing_names[*(const TtlIndexing *) field]);
		case TTL_SETTING_UNIT:
			*isnull = *(const TtlUnit *) field == TTL_UNIT_SECONDS;
			return CStringGetTextDatum(ttl_type_unit_name(*(const TtlUnit *) field));
		case TTL_SETTING_BOOLEAN:
			return BoolGetDatum(*(const bool *) field);
		case TTL_SETTING_NUMBER:
			*isnull = *(const int32 *) field == 0;
			return Int32GetDatum(*(const int32 *) field);
		case TTL_SETTING_INTERVAL:
			interval = palloc0(sizeof(Interval));
			interval->time = *(const int64 *) field;
			return IntervalPGetDatum(interval);
		case TTL_SETTING_TABLE:
			*isnull = !OidIsValid(*(const Oid *) field);
			return ObjectIdGetDatum(*(const Oid *) field);
		case TTL_SETTING_INSTANT:
			*isnull = *(const TimestampTz *) field == 0;
			return TimestampTzGetDatum(*(const TimestampTz *) field);
		case TTL_SETTING_CREATED:
			return PointerGetDatum(strlist_to_textarray(names_of_created_objects(*(const int *) field)));
	}
	elog(ERROR, "unrecognized type of setting: %d", (int) type);
}

static void
read_policy(TtlPolicy *policy, const Datum *values, const bool *nulls)
{
	for (int i = 0; i < lengthof(ttl_settings); i++)
	{
		int			column = ttl_settings[i].attnum - 1;

		read_field(policy, &ttl_settings[i], values[column], nulls[column]);
	}
}

static void
write_policy(const TtlPolicy *policy, Datum *values, bool *nulls)
{
	for (int i = 0; i < lengthof(ttl_settings); i++)
	{
		int			column = ttl_settings[i].attnum - 1;

		values[column] = write_field((const char *) policy + ttl_settings[i].offset,
									 ttl_settings[i].type, &nulls[column]);
	}
	nulls[Anum_container_ts_precision - 1] |= policy->ts_precision == 0;
}

char *
ttl_policy_text(const TtlPolicy *policy, const TtlSetting *setting)
{
	bool		isnull;
	Datum		value = write_field((const char *) policy + setting->offset, setting->type, &isnull);

	if (isnull)
		return "NULL";
	if (setting->type == TTL_SETTING_TABLE)
		return ttl_container_table_name(DatumGetObjectId(value));
	return setting_text(setting->type, value);
}

void
ttl_policy_set(TtlPolicy *policy, const TtlSetting *setting, Datum value)
{
	const void *field = (char *) policy + setting->offset;
	int64		number = 0;

	read_field(policy, setting, value, false);
	if (setting->type == TTL_SETTING_NUMBER)
		number = *(const int32 *) field;
	else if (setting->type == TTL_SETTING_INTERVAL)
		number = *(const int64 *) field;
	if (number < 0 || number > setting->greatest ||
		(setting->type == TTL_SETTING_TTL && *(const int32 *) field <= 0 &&
		 *(const int32 *) field != TTL_NEVER))
		refuse_value(setting, value);
}

void
ttl_policy_set_text(TtlPolicy *policy, const TtlSetting *setting, const char *text)
{
	Oid			input;
	Oid			ioparam;

	getTypeInputInfo(column_types[setting->type], &input, &ioparam);
	ttl_policy_set(policy, setting, OidInputFunctionCall(input, (char *) text, ioparam, -1));
}

bool
ttl_policy_setting_differs(const TtlPolicy *a, const TtlPolicy *b, const TtlSetting *setting)
{
	return strcmp(ttl_policy_text(a, setting), ttl_policy_text(b, setting)) != 0;
}

char *
ttl_policy_differences(const TtlPolicy *old, const TtlPolicy *new)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < ttl_nsettings; i++)
	{
		const TtlSetting *setting = &ttl_settings[i];

		if (ttl_policy_setting_differs(old, new, setting))
			appendStringInfo(&text, "%s%s from %s to %s", text.len > 0 ? ", " : "", setting->name,
							 ttl_policy_text(old, setting), ttl_policy_text(new, setting));
	}
	return text.data;
}

/*
 * Rows of ttl.container
 */

#define PRIMARY_KEY	"container_pkey"

/* Containers whose rows have been written since ttl_policy_take_changed() was called */
static List *changed = NIL;

List *
ttl_policy_take_changed(void)
{
	List	   *result = list_copy(changed);

	list_free(changed);
	changed = NIL;
	return result;
}

void
ttl_policy_announce_change(Oid container, bool replan)
{
	MemoryContext old;
	ListCell   *lc;

	CacheInvalidateRelcacheByRelid(container);
	ttl_counters_end_pause(container);
	if (replan)
	{
		foreach(lc, ttl_container_tables(container))
			CacheInvalidateRelcacheByRelid(lfirst_oid(lc));
	}
	old = MemoryContextSwitchTo(TopMemoryContext);
	changed = list_append_unique_oid(changed, container);
	MemoryContextSwitchTo(old);
}

/*
 * Logs a change of a policy, with the role that makes it.  It is logged when it is made,
 * as by log_statement; it may still be rolled back.
 */
static void
log_change(Oid container, const TtlPolicy *old, const TtlPolicy *new)
{
	char	   *differences = ttl_policy_differences(old, new);

	if (differences[0] != '\0')
		ereport(LOG,
				(errmsg("role \"%s\" has changed the policy of container \"%s\": %s",
						GetUserNameFromId(GetUserId(), false),
						ttl_container_qualified_name(container), differences)));
	pfree(differences);
}

/* A scan of ttl.container */
typedef struct CatalogScan
{
	Relation	rel;			/* NULL if the extension has gone */
	LOCKMODE	lockmode;
	Snapshot	snapshot;
	SysScanDesc scan;
} CatalogScan;

/*
 * The next row, NULL if there is none.
 *
 * PostgreSQL exempts its own catalogs from predicate locking, and any scan with a snapshot
 * that isn't an MVCC one.  So all row versions are scanned, and the catalog snapshot is
 * applied here.
 */
static HeapTuple
next_row(CatalogScan *scan)
{
	HeapTuple	tuple;

	if (scan->rel == NULL)
		return NULL;
	do
		tuple = systable_getnext(scan->scan);
	while (HeapTupleIsValid(tuple) &&
		   !table_tuple_satisfies_snapshot(scan->rel, scan->scan->slot, scan->snapshot));
	return tuple;
}

/*
 * Begins a scan of the rows in which a column, which has that index, equals the value, or
 * of all rows (InvalidOid).  The extension may be gone, maybe while this waited for the
 * lock: then there are no rows.
 */
static void
begin_scan(CatalogScan *scan, const char *index_name, AttrNumber column, Oid value,
		   LOCKMODE lockmode)
{
	const TtlObjects *objects = ttl_container_objects();
	ScanKeyData key;
	Oid			index;

	scan->rel = objects == NULL ? NULL : try_table_open(objects->catalog, lockmode);
	if (scan->rel == NULL)
		return;
	scan->lockmode = lockmode;
	/* REINDEX CONCURRENTLY makes it another index of that name */
	index = get_relname_relid(index_name, RelationGetNamespace(scan->rel));

	/*
	 * taken before the scan, it keeps the versions that it sees from being
	 * pruned
	 */
	scan->snapshot = RegisterSnapshot(GetCatalogSnapshot(RelationGetRelid(scan->rel)));
	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(value));
	scan->scan = systable_beginscan(scan->rel, index, OidIsValid(index), SnapshotAny,
									OidIsValid(value) ? 1 : 0, &key);
}

/* The same by the container */
static void
begin_scan_of(CatalogScan *scan, Oid container, LOCKMODE lockmode)
{
	begin_scan(scan, PRIMARY_KEY, Anum_container_relid, container, lockmode);
}

/*
 * False if ttl.container has no row of the relation, be it one that is not visible: the index
 * has none.  Most tables are no containers, and opening the index alone costs a session's first
 * statement a third of what opening the table does.
 */
static bool
may_have_row(Oid relid)
{
	const TtlObjects *objects = ttl_container_objects();
	Relation	index = NULL;
	bool		found = true;

	if (objects == NULL)
		return false;
	if (!IgnoreSystemIndexes)
		index = try_relation_open(get_relname_relid(PRIMARY_KEY, objects->schema), AccessShareLock);
	if (index != NULL && index->rd_rel->relkind == RELKIND_INDEX && index->rd_index->indisvalid)
	{
		IndexScanDesc scan = TtlIndexBeginscanBitmap(index, SnapshotAny, 1);
		TIDBitmap  *tids = tbm_create(work_mem * 1024L, NULL);
		ScanKeyData key;

		ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
		index_rescan(scan, &key, 1, NULL, 0);
		found = index_getbitmap(scan, tids) > 0;
		index_endscan(scan);
		tbm_free(tids);
	}
	if (index != NULL)
		relation_close(index, AccessShareLock);
	return found;
}

static void
end_scan(CatalogScan *scan)
{
	if (scan->rel == NULL)
		return;
	systable_endscan(scan->scan);
	UnregisterSnapshot(scan->snapshot);
	table_close(scan->rel, scan->lockmode);
}

static void
policy_of_tuple(HeapTuple tuple, TupleDesc desc, TtlPolicy *policy)
{
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc(desc->natts * sizeof(bool));

	ttl_container_check_version(desc);
	heap_deform_tuple(tuple, desc, values, nulls);
	read_policy(policy, values, nulls);
	policy->written_by = HeapTupleHeaderGetXmin(tuple->t_data);
}

static HeapTuple
form(Oid container, const TtlPolicy *policy, TupleDesc desc)
{
	Datum	   *values = palloc0(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc(desc->natts * sizeof(bool));

	ttl_container_check_version(desc);
	memset(nulls, true, desc->natts * sizeof(bool));
	values[Anum_container_relid - 1] = ObjectIdGetDatum(container);
	nulls[Anum_container_relid - 1] = false;
	write_policy(policy, values, nulls);
	return heap_form_tuple(desc, values, nulls);
}

bool
ttl_policy_read(Oid container, TtlPolicy *policy)
{
	CatalogScan scan;
	HeapTuple	tuple;

	if (!may_have_row(container))
		return false;
	begin_scan_of(&scan, container, AccessShareLock);
	tuple = next_row(&scan);
	if (HeapTupleIsValid(tuple))
		policy_of_tuple(tuple, RelationGetDescr(scan.rel), policy);
	end_scan(&scan);
	return HeapTupleIsValid(tuple);
}

void
ttl_policy_insert(Oid container, const TtlPolicy *policy)
{
	Relation	rel = table_open(ttl_container_require_objects()->catalog, RowExclusiveLock);

	CatalogTupleInsert(rel, form(container, policy, RelationGetDescr(rel)));
	table_close(rel, RowExclusiveLock);
	ereport(LOG,
			(errmsg("role \"%s\" has made table \"%s\" a container: default_ttl %s",
					GetUserNameFromId(GetUserId(), false), ttl_container_qualified_name(container),
					ttl_policy_default_ttl_text(policy->default_ttl))));
	ttl_policy_announce_change(container, true);
	CommandCounterIncrement();
}

void
ttl_policy_update(Oid container, const TtlPolicy *policy)
{
	CatalogScan scan;
	HeapTuple	old;
	TtlPolicy	old_policy;
	bool		replans = false;

	begin_scan_of(&scan, container, RowExclusiveLock);
	old = next_row(&scan);
	if (!HeapTupleIsValid(old))
		elog(ERROR, "no row in ttl.container for relation %u", container);
	policy_of_tuple(old, RelationGetDescr(scan.rel), &old_policy);
	CatalogTupleUpdate(scan.rel, &old->t_self,
					   form(container, policy, RelationGetDescr(scan.rel)));
	end_scan(&scan);
	log_change(container, &old_policy, policy);
	for (int i = 0; i < ttl_nsettings; i++)
		replans = replans || (ttl_settings[i].replans &&
							  ttl_policy_setting_differs(&old_policy, policy, &ttl_settings[i]));
	ttl_policy_announce_change(container, replans);
	CommandCounterIncrement();
}

void
ttl_policy_delete(Oid container)
{
	CatalogScan scan;
	HeapTuple	tuple;

	begin_scan_of(&scan, container, RowExclusiveLock);
	tuple = next_row(&scan);
	if (HeapTupleIsValid(tuple))
		CatalogTupleDelete(scan.rel, &tuple->t_self);
	end_scan(&scan);
	if (get_rel_relkind(container) != '\0')
		ttl_policy_announce_change(container, true);
	CommandCounterIncrement();
}

static Oid
relid_of(HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;

	return DatumGetObjectId(heap_getattr(tuple, Anum_container_relid, desc, &isnull));
}

/* True if the container of that row of ttl.container is one of these. */
static bool
is_listed(HeapTuple tuple, TupleDesc desc, TtlContainers which)
{
	Oid			relid = relid_of(tuple, desc);
	TtlPolicy	policy;
	TtlContainer container;

	if (which != TTL_CONTAINERS_SOUND)
		return (get_rel_relkind(relid) != '\0') == (which == TTL_CONTAINERS_STORED);
	policy_of_tuple(tuple, desc, &policy);
	ttl_container_find_columns(relid, &policy, &container);
	return !container.lacks_column;
}

List *
ttl_policy_list(TtlContainers which)
{
	List	   *containers = NIL;
	CatalogScan scan;
	HeapTuple	tuple;

	begin_scan_of(&scan, InvalidOid, AccessShareLock);
	while (HeapTupleIsValid(tuple = next_row(&scan)))
	{
		if (is_listed(tuple, RelationGetDescr(scan.rel), which))
			containers = lappend_oid(containers, relid_of(tuple, RelationGetDescr(scan.rel)));
	}
	end_scan(&scan);
	return containers;
}

bool
ttl_policy_forget_dropped(Oid container)
{
	TtlPolicy	policy;

	if (get_rel_relkind(container) != '\0' ||
		!ttl_policy_lock(container, true, true) ||
		!ttl_policy_read(container, &policy))
		return false;
	ttl_policy_delete(container);
	ereport(LOG,
			(errmsg("policy of relation %u was removed because there is no such table any more",
					container)));
	return true;
}

bool
ttl_policy_lock(Oid container, bool exclusive, bool wait)
{
	const TtlObjects *objects = ttl_container_objects();
	LOCKTAG		tag;

	if (objects == NULL)
		return false;			/* nothing left to protect */
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, objects->catalog, container, 0);
	if (LockAcquire(&tag, exclusive ? AccessExclusiveLock : ShareLock,
					false, !wait) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	AcceptInvalidationMessages();
	return true;
}

/*
 * Rows that come in by SQL
 */

#define DIRECT_CHANGE_HINT \
	"Use ttl.set_default_ttl(), ttl.alter_container() or ttl.drop_container()."

bool
ttl_policy_is_written(const PlannedStmt *stmt)
{
	bool		writes = stmt->commandType != CMD_SELECT || stmt->hasModifyingCTE;
	const TtlObjects *objects = writes ? ttl_container_objects() : NULL;
	ListCell   *lc;

	if (objects == NULL)
		return false;
	foreach(lc, stmt->rtable)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		/* a table that is written has this lock, one that is read a weaker one */
		if (rte->rtekind == RTE_RELATION && rte->relid == objects->catalog &&
			rte->rellockmode == RowExclusiveLock)
			return true;
	}
	return false;
}

void
ttl_policy_explain_denied(void *arg)
{
	if (geterrcode() == ERRCODE_INSUFFICIENT_PRIVILEGE)
		errhint(DIRECT_CHANGE_HINT);
}

/*
 * Warns unless the policy of a row that is restored can be one of that table.  Where a table
 * was dropped while the library wasn't loaded, a dump may have its OID, which is that of
 * another table here, or of none.
 */
static bool
can_be_restored(Oid relid, HeapTuple tuple, TupleDesc desc)
{
	char		relkind = get_rel_relkind(relid);
	TtlPolicy	policy;
	TtlContainer container;

	policy_of_tuple(tuple, desc, &policy);
	ttl_container_find_columns(relid, &policy, &container);
	if ((relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE) &&
		!container.lacks_column)
		return true;
	ereport(WARNING,
			(errmsg("policy of table \"%s\" was not restored", ttl_container_qualified_name(relid)),
			 errdetail("There is no table of that name or number that has the columns of the policy.")));
	return false;
}

PG_FUNCTION_INFO_V1(ttl_restore_container);

/*
 * ttl.restore_container() trigger
 *
 * Fires for rows that come in by SQL, which is pg_restore's COPY.  What has expired since the
 * dump was made must not be deleted before the owner says so; hence reaping is off.  The policy
 * of a container that is there already is left alone, but for that of an extension's table,
 * which its script has registered by its own arguments, and not as the database had it.  A policy
 * of a table that is gone, or can't be of that table, is not restored, nor is an archive that is
 * gone: another table might get its number.
 *
 * And for what a publication FOR ALL TABLES sends of the publisher's policies and its pause: the
 * subscriber's are its own.  A superuser who changes rows by hand is refused: a policy would be
 * in force at some time or never, and unchecked.
 */
Datum
ttl_restore_container(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	const TtlObjects *objects = ttl_container_require_objects();
	TupleDesc	desc;
	HeapTuple	tuple;
	Oid			relid;
	TtlPolicy	existing;
	Datum		archive;
	bool		lost_archive;
	int			columns[] = {Anum_container_reaping, Anum_container_archive_to};
	Datum		values[] = {BoolGetDatum(false), 0};
	bool		nulls[] = {false, true};
	bool		isnull;

	if (!CALLED_AS_TRIGGER(fcinfo) ||
		RelationGetNamespace(trigger->tg_relation) != objects->schema)
		elog(ERROR, "ttl.restore_container() is a trigger of ttl's own tables");
	if (IsLogicalWorker() && TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		return PointerGetDatum(NULL);
	if (RelationGetRelid(trigger->tg_relation) != objects->catalog ||
		!TRIGGER_FIRED_BY_INSERT(trigger->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("rows of \"%s.%s\" cannot be changed directly",
						TTL_SCHEMA, RelationGetRelationName(trigger->tg_relation)),
				 RelationGetRelid(trigger->tg_relation) == objects->catalog ?
				 errhint(DIRECT_CHANGE_HINT) : errhint("Use ttl.pause() and ttl.resume().")));

	desc = RelationGetDescr(trigger->tg_relation);
	tuple = trigger->tg_trigtuple;
	relid = relid_of(tuple, desc);
	if (!can_be_restored(relid, tuple, desc))
		return PointerGetDatum(NULL);
	if (ttl_policy_read(relid, &existing))
	{
		if (!OidIsValid(getExtensionOfObject(RelationRelationId, relid)))
		{
			ereport(LOG,
					(errmsg("container \"%s\" already exists; its policy was left alone",
							ttl_container_qualified_name(relid))));
			return PointerGetDatum(NULL);
		}
		ttl_policy_delete(relid);
	}
	archive = heap_getattr(tuple, Anum_container_archive_to, desc, &isnull);
	lost_archive = !isnull && get_rel_relkind(DatumGetObjectId(archive)) == '\0';
	ttl_policy_announce_change(relid, true);
	ereport(WARNING,
			(errmsg("container \"%s\" was restored with reaping off",
					ttl_container_qualified_name(relid)),
			 lost_archive ? errdetail("Expired rows are hidden, and none is deleted. Its archive does not exist, and was not restored.") :
			 errdetail("Expired rows are hidden, and none is deleted."),
			 errhint("Use ttl.alter_container(..., reaping => true) to have them deleted.")));
	return PointerGetDatum(heap_modify_tuple_by_cols(tuple, desc, lost_archive ? lengthof(columns) : 1,
													 columns, values, nulls));
}
