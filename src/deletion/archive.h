/*-------------------------------------------------------------------------
 *
 * archive.h
 *	  Where deleted rows go.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_ARCHIVE_H
#define TTL_ARCHIVE_H

#include "container/container.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

/*
 * Names of the columns that a row of the container, or of a partition of it, takes
 * along into the archive: all, or those that the policy names.  Error 42703 if the
 * archive has no place for one, so that nothing is lost unless somebody has said so.
 *
 * Unless they are named, the timestamp and TTL columns are taken along where the
 * archive has them; if the archive is a container, its rows begin a life of their
 * own there, so its timestamp and TTL columns are left to it.  Nor need a generated
 * column be taken along into one that the archive generates, too.
 */
extern List *ttl_archive_columns(Relation rel, const TtlPolicy *policy);

/*
 * Appends what inserts into the archive the rows of the relation that "deleted<n>"
 * returns.
 */
extern void ttl_archive_append(StringInfo sql, Relation rel, const TtlContainer *container,
							   int n);

#endif							/* TTL_ARCHIVE_H */
