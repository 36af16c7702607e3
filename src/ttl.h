/*-------------------------------------------------------------------------
 *
 * ttl.h
 *	  Names that are used everywhere.  No logic.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_H
#define TTL_H

#define TTL_EXTENSION			"ttl"

/* The release; the version of the SQL objects is another matter, see objects.c */
#define TTL_VERSION				"1.0.0"

#define TTL_SCHEMA				"ttl"
#define TTL_CONTAINER_TABLE		"container"

/* The row trigger of a container; '~' makes it the last to fire. */
#define TTL_TRIGGER				"~ttl"

/* That of one with an archive */
#define TTL_ARCHIVE_TRIGGER		"~ttl_archive"

/* A container's columns, unless others are named, see ttl.create_container() */
#define TTL_TS_COLUMN			"_ts"
#define TTL_TTL_COLUMN			"ttl"

#define TTL_LAUNCHER_TYPE		"ttl launcher"
#define TTL_STANDBY_TYPE		"ttl standby"
#define TTL_REAPER_TYPE			"ttl reaper"

#endif							/* TTL_H */
