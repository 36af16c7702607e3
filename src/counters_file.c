/*-------------------------------------------------------------------------
 *
 * counters_file.c
 *	  The counters, from one life of the server to the next.
 *
 * The launcher writes them to a file when it ends, and reads and removes it when the
 * first launcher begins.  What a file holds that cannot be trusted is ignored.  It is
 * removed at once so that no backup and no crash finds it.
 *
 * The file: a header, containers, a TtlContainerRecord of zeros, databases, a
 * TtlDatabaseRecord of zeros.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/catversion.h"
#include "counters.h"
#include "pgstat.h"
#include "shared.h"
#include "storage/fd.h"

#define STATS_FILE			PGSTAT_STAT_PERMANENT_DIRECTORY "/ttl.stat"
#define STATS_FILE_FORMAT	0x74746C02	/* "ttl", 2; change with the structs */

typedef struct FileHeader
{
	uint32		format;
	uint32		server;			/* the layout may change with it */
	uint32		container_size;
	uint32		database_size;
} FileHeader;

static const FileHeader file_header = {
	STATS_FILE_FORMAT, CATALOG_VERSION_NO,
	sizeof(TtlContainerRecord), sizeof(TtlDatabaseRecord)
};

/* In shared memory: has the file been dealt with?  Written by the launcher. */
static bool *loaded = NULL;

static bool
write_container(const TtlContainerRecord *record, void *file)
{
	return fwrite(record, sizeof(*record), 1, file) == 1;
}

static bool
write_database(const TtlDatabaseRecord *record, void *file)
{
	return fwrite(record, sizeof(*record), 1, file) == 1;
}

static bool
write_file(FILE *file)
{
	static const TtlContainerRecord last_container;
	static const TtlDatabaseRecord last_database;

	return fwrite(&file_header, sizeof(file_header), 1, file) == 1 &&
		ttl_counters_visit_containers(write_container, file) &&
		write_container(&last_container, file) &&
		ttl_counters_visit_databases(write_database, file) &&
		write_database(&last_database, file);
}

/*
 * Adds what the file has about a container to what has happened since the
 * start.  Returns false if it cannot be right.
 */
static bool
load_container(const TtlContainerRecord *record)
{
	const TtlContainerCounters *old = &record->counters;

	if (!OidIsValid(record->key.container) || old->rows_deleted < 0 ||
		old->rows_evicted < 0 || old->rows_archived < 0 || old->batches < 0 ||
		old->cost < 0 || old->blocked_rows < 0 ||
		memchr(old->last_error, '\0', TTL_ERROR_LENGTH) == NULL)
		return false;
	ttl_counters_restore_container(record);
	return true;
}

/*
 * Likewise for a database; no worker has been there yet.
 */
static bool
load_database(const TtlDatabaseRecord *record)
{
	const TtlDatabaseCounters *old = &record->counters;

	if ((unsigned) old->stopped_by > TTL_STOP_TIME || old->cycles < 0 ||
		old->cost_granted < 0 || old->cost_spent < 0 ||
		old->foreground_cost < 0 || old->debt < 0)
		return false;
	ttl_counters_restore_database(record);
	return true;
}

static bool
read_file(FILE *file)
{
	FileHeader	header;
	TtlContainerRecord container;
	TtlDatabaseRecord database;

	if (fread(&header, sizeof(header), 1, file) != 1 ||
		memcmp(&header, &file_header, sizeof(header)) != 0)
		return false;

	for (;;)
	{
		if (fread(&container, sizeof(container), 1, file) != 1)
			return false;
		if (!OidIsValid(container.key.dboid))
			break;
		if (!load_container(&container))
			return false;
	}
	for (;;)
	{
		if (fread(&database, sizeof(database), 1, file) != 1)
			return false;
		if (!OidIsValid(database.dboid))
			return true;
		if (!load_database(&database))
			return false;
	}
}

/*
 * Brings back the statistics of the server's last life, unless an earlier
 * launcher has done so.
 */
void
ttl_counters_load(void)
{
	FILE	   *file;

	if (!*loaded)
	{
		file = AllocateFile(STATS_FILE, PG_BINARY_R);
		if (file == NULL && errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not open file \"%s\": %m", STATS_FILE)));
		if (file != NULL)
		{
			if (!read_file(file))
				ereport(LOG,
						(errmsg("ignoring invalid data in file \"%s\"",
								STATS_FILE)));
			FreeFile(file);
		}
	}
	*loaded = true;
	(void) unlink(STATS_FILE);
}

/*
 * Writes the statistics for the server's next life.
 */
void
ttl_counters_save(void)
{
	FILE	   *file;
	bool		ok;

	file = AllocateFile(STATS_FILE ".tmp", PG_BINARY_W);
	ok = file != NULL && write_file(file);
	if (file != NULL && FreeFile(file) != 0)
		ok = false;
	if (!ok)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", STATS_FILE ".tmp")));
		(void) unlink(STATS_FILE ".tmp");
	}
	else
		(void) durable_rename(STATS_FILE ".tmp", STATS_FILE, LOG);
}

static Size
shared_size(void)
{
	return sizeof(bool);
}

static void
shared_startup(void *place, bool found, int tranche_id)
{
	loaded = place;
	if (!found)
		*loaded = false;
}

void
ttl_counters_file_init(void)
{
	ttl_shared_reserve(shared_size, shared_startup);
}
