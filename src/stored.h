/*-------------------------------------------------------------------------
 *
 * stored.h
 *	  Expressions of other people, as they stand in the catalogs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_STORED_H
#define TTL_STORED_H

#include "access/attnum.h"
#include "access/htup.h"
#include "nodes/bitmapset.h"
#include "nodes/nodes.h"
#include "utils/relcache.h"

/*
 * An expression of pg_index (Anum_pg_index_indexprs, a list, or
 * Anum_pg_index_indpred), or NULL if it has none.
 */
extern Node *ttl_stored_index_expression(HeapTuple index, AttrNumber column);

/* Is it a unique or exclusion index? */
extern bool ttl_stored_is_key(Relation index);

/*
 * The columns that the keys and predicates of a table's unique and exclusion indexes
 * depend on, those that a partition key does, and those that an expression over a table
 * does.  Numbers are offset by FirstLowInvalidHeapAttributeNumber; a whole row is all
 * columns.
 */
extern Bitmapset *ttl_stored_key_columns(Relation rel);
extern Bitmapset *ttl_stored_partition_columns(Relation rel);
extern Bitmapset *ttl_stored_columns(Node *expression, int natts);

#endif							/* TTL_STORED_H */
