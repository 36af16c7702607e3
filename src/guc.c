/*-------------------------------------------------------------------------
 *
 * guc.c
 *	  The settings of ttl.
 *
 * All of them are here, those of the reaper first, but for the one by which execution.c
 * passes a value to parallel workers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "catalog/pg_type.h"
#include "compat.h"
#include "guc.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/formatting.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/timestamp.h"

/* DefineCustom...Variable() gives each its default */
bool		ttl_guc_reaper;
int			ttl_guc_naptime;
int			ttl_guc_cycle_cost_limit;
int			ttl_guc_throughput;
int			ttl_guc_cycle_cost_floor;
int			ttl_guc_replica_lag_limit;
int			ttl_guc_lag_warning;
int			ttl_guc_workers;
int			ttl_guc_grace;
int			ttl_guc_batch_timeout;
int			ttl_guc_log_min_duration;
bool		ttl_guc_touch;
bool		ttl_guc_show_expired;
int			ttl_guc_debug_index_probe;

static const struct
{
	const char *name;
	const char *short_desc;
	const char *long_desc;
	int		   *variable;
	int			boot_value;
	int			min;
	int			max;
	GucContext	context;
	int			flags;
}			int_settings[] = {

	{"ttl.naptime",
		"Sets the time between cycles of deletion.",
		NULL,
		&ttl_guc_naptime, 1000, 10, 24 * 3600 * 1000, PGC_SIGHUP, GUC_UNIT_MS
	},

	/*
	 * The most with which users didn't feel deletion on a small machine (p99
	 * of pgbench 1.03 to 1.09 times that without; see test/bench for others).
	 * Autovacuum may spend 100000 in a second when it is left at its
	 * defaults.
	 */
	{"ttl.cycle_cost_limit",
		"Sets the most that a cycle of deletion may spend in a database, in vacuum's cost units.",
		NULL,
		&ttl_guc_cycle_cost_limit, 40000, 1, INT_MAX, PGC_SIGHUP, 0
	},
	{"ttl.throughput",
		"Sets the cost units per second that a database is provisioned for.",
		"Deletion gets what the foreground leaves of it. Zero means that nothing is provisioned, and a cycle may spend ttl.cycle_cost_limit.",
		&ttl_guc_throughput, 0, 0, INT_MAX, PGC_SIGHUP, 0
	},

	/*
	 * Strictly leftovers can starve for ever, where users always want all of
	 * ttl.throughput.  So there is a floor: 5 % of the limit, which deletes
	 * more than a thousand narrow rows a second and isn't felt.
	 */
	{"ttl.cycle_cost_floor",
		"Sets the least that a cycle of deletion may spend in a database, in vacuum's cost units.",
		"Zero means that deletion gets strictly what the foreground leaves of ttl.throughput.",
		&ttl_guc_cycle_cost_floor, 2000, 0, INT_MAX, PGC_SIGHUP, 0
	},
	{"ttl.replica_lag_limit",
		"Sets how far a connected replica may be behind before deletion waits for it.",
		"Zero means that deletion doesn't look at replicas.",
		&ttl_guc_replica_lag_limit, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MB
	},
	{"ttl.lag_warning",
		"Sets the time after which the log says that deletion has fallen behind.",
		"It is said again after as long a time. Zero means never.",
		&ttl_guc_lag_warning, 3600, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_S
	},
	{"ttl.workers",
		"Sets the maximum number of simultaneously running reaper workers.",
		NULL,
		&ttl_guc_workers, 4, 1, 64, PGC_POSTMASTER, 0
	},

	/* time to notice a mistake and to take it back */
	{"ttl.grace",
		"Sets how long the worker leaves a table alone after a change of policy that has made rows expire.",
		"They are hidden at once, and come back if the change is taken back in time. CALL ttl.reap doesn't wait.",
		&ttl_guc_grace, 300, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_S
	},

	/*
	 * A batch is made to take 50 ms, so one that takes 200 times as long is
	 * stuck; but the cascade of a single row may take seconds.  As long,
	 * other tables of the database and DDL on this one may have to wait.
	 */
	{"ttl.batch_timeout",
		"Sets the maximum duration of a batch of deletion, its triggers included.",
		"A row that cannot be deleted in this time counts as blocked. Zero means no limit.",
		&ttl_guc_batch_timeout, 10000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS
	},
	{"ttl.log_min_duration",
		"Sets the minimum duration above which a cycle's work on a container is logged.",
		"Zero logs all of it. -1 turns logging off.",
		&ttl_guc_log_min_duration, -1, -1, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS
	}
};

static const struct config_enum_entry index_probe_options[] = {
	{"auto", TTL_INDEX_PROBE_AUTO, false},
	{"never", TTL_INDEX_PROBE_NEVER, false},
	{"always", TTL_INDEX_PROBE_ALWAYS, false},
	{NULL, 0, false}
};

static char *version_string = NULL;
static char *now_string = NULL;
static TimestampTz *now_value = NULL;	/* "extra" of ttl.now; NULL = empty */

/*
 * Reads a text by the input function of a type; false if it has no such value.  The error is
 * caught without a subtransaction: input functions leave nothing behind that one would clean up.
 */
bool
ttl_guc_input(PGFunction input, const char *text, Datum *value)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool is_valid = true;

	PG_TRY();
	{
		*value = DirectFunctionCall3(input, CStringGetDatum(text), ObjectIdGetDatum(InvalidOid),
									 Int32GetDatum(-1));
	}
	PG_CATCH();
	{
		if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		is_valid = false;
	}
	PG_END_TRY();
	return is_valid;
}

/*
 * Accepts a timestamp as PostgreSQL's input has it.  Words such as "tomorrow" are settled by that: they count
 * from the start of the transaction that sets them.  A file is read outside of transactions, by each process
 * at another time, so that there they would mean many.
 */
static bool
parse_now(const char *text, GucSource source, TimestampTz *value)
{
	static const char *const relative[] = {"now", "today", "tomorrow", "yesterday"};
	char	   *lower = asc_tolower(text, strlen(text));
	Datum		timestamp;

	/*
	 * the setting of ALTER ROLE ALL is the first that a session reads in its
	 * own transaction
	 */
	for (int i = 0; source < PGC_S_GLOBAL && i < lengthof(relative); i++)
	{
		if (strstr(lower, relative[i]) != NULL)
		{
			GUC_check_errdetail("\"%s\" can be set in a session, and for a role or database, but not in a file.", relative[i]);
			return false;
		}
	}
	if (!ttl_guc_input(timestamptz_in, text, &timestamp))
		return false;
	*value = DatumGetTimestampTz(timestamp);
	return true;
}

/*
 * Accepts an empty string or a timestamp.  The latter is rewritten so that it
 * means the same under any TimeZone and DateStyle: parallel workers read it again,
 * and those may have changed meanwhile.
 */
static bool
check_now(char **newval, void **extra, GucSource source)
{
	TimestampTz value;
	TimestampTz *result;
	char		canonical[MAXDATELEN + 1];
	char	   *copy;

	*extra = NULL;
	if (*newval == NULL || (*newval)[0] == '\0')
		return true;

	if (!parse_now(*newval, source, &value))
	{
		GUC_check_errhint("Use a point in time such as \"2030-01-01 00:00:00+00\", or an empty string for the server's clock.");
		return false;
	}

	JsonEncodeDateTime(canonical, TimestampTzGetDatum(value), TIMESTAMPTZOID, NULL);
	result = TtlGucMalloc(LOG, sizeof(TimestampTz));
	copy = TtlGucMalloc(LOG, strlen(canonical) + 1);
	if (result == NULL || copy == NULL)
		return false;
	*result = value;
	*extra = result;
	strcpy(copy, canonical);
	TtlGucFree(*newval);
	*newval = copy;
	return true;
}

/* Makes the instant that check_now() has read the value. */
static void
assign_now(const char *newval, void *extra)
{
	now_value = extra;
}

/* The instant that ttl.now stands for; false when the setting is empty. */
bool
ttl_guc_now(TimestampTz *now)
{
	if (now_value == NULL)
		return false;
	*now = *now_value;
	return true;
}

/* Defines the settings. */
void
ttl_guc_init(void)
{
	DefineCustomBoolVariable("ttl.reaper",
							 "Deletes expired rows in the background.",
							 "Expired rows are invisible whether or not they are deleted.",
							 &ttl_guc_reaper,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);

	for (int i = 0; i < lengthof(int_settings); i++)
		DefineCustomIntVariable(int_settings[i].name, int_settings[i].short_desc,
								int_settings[i].long_desc, int_settings[i].variable,
								int_settings[i].boot_value, int_settings[i].min,
								int_settings[i].max, int_settings[i].context,
								int_settings[i].flags, NULL, NULL, NULL);

	DefineCustomBoolVariable("ttl.touch",
							 "Sets the timestamp column of a row at each UPDATE.",
							 "While off, UPDATE leaves the column as the statement says.",
							 &ttl_guc_touch,
							 true,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("ttl.show_expired",
							 "Shows expired rows to reads, UPDATE and DELETE.",
							 NULL,
							 &ttl_guc_show_expired,
							 false,
							 PGC_SUSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomStringVariable("ttl.now",
							   "Sets a timestamp that stands in for the clock when rows are hidden.",
							   "An empty string means the clock. Stamping and deleting always follow the clock.",
							   &now_string,
							   "",
							   PGC_SUSET,
							   0,
							   check_now, assign_now, NULL);

	DefineCustomStringVariable("ttl.version",
							   "Shows the version of the library that the server has loaded.",
							   NULL,
							   &version_string,
							   TTL_VERSION,
							   PGC_INTERNAL,
							   GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, NULL);

	/* for tests: answers are the same whatever it says */
	DefineCustomEnumVariable("ttl.debug_index_probe",
							 "Sets whether scans look up in expiry indexes where expired rows are.",
							 "Answers do not depend on it. For tests, and to find the cause of a wrong answer.",
							 &ttl_guc_debug_index_probe,
							 TTL_INDEX_PROBE_AUTO,
							 index_probe_options,
							 PGC_USERSET,
							 GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);

	MarkGUCPrefixReserved("ttl");
}
