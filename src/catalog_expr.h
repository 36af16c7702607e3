/*-------------------------------------------------------------------------
 *
 * catalog_expr.h
 *	  Expressions and foreign keys of users, as they stand in the catalogs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CATALOG_EXPR_H
#define TTL_CATALOG_EXPR_H

#include "access/attnum.h"
#include "access/htup.h"
#include "catalog/pg_index.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "nodes/bitmapset.h"
#include "nodes/nodes.h"
#include "nodes/pg_list.h"
#include "pg_config_manual.h"
#include "utils/relcache.h"

/*
 * An expression of pg_index (Anum_pg_index_indexprs, a list, or
 * Anum_pg_index_indpred), or NULL if it has none.
 */
extern Node *ttl_catalog_expr_index_expression(HeapTuple index, AttrNumber column);

/* True if it is a unique or exclusion index. */
extern bool ttl_catalog_expr_is_key(Form_pg_index index);

/*
 * The columns that the keys and predicate of an index, given by its row of pg_index, depend on,
 * those of all unique and exclusion indexes of a table, those that a partition key depends
 * on, and those that an expression over a table does.  Numbers are offset by
 * FirstLowInvalidHeapAttributeNumber; a whole row is the columns up to 'natts'.
 */
extern Bitmapset *ttl_catalog_expr_index_columns(HeapTuple index, int natts);
extern Bitmapset *ttl_catalog_expr_key_columns(Relation rel);
extern Bitmapset *ttl_catalog_expr_partition_columns(Relation rel);
extern Bitmapset *ttl_catalog_expr_columns(Node *expression, int natts);

/*
 * True if it is the present, as defaults of timestamp columns have it.  ALTER COLUMN ... TYPE may have
 * converted it.
 */
extern bool ttl_catalog_expr_is_present(const Node *expression);

typedef struct TtlForeignKey
{
	Oid			constraint;
	Oid			referencing;	/* table, maybe a partition */
	Oid			referenced;		/* likewise */
	bool		is_temporal;
	int			nkeys;
	AttrNumber	referencing_keys[INDEX_MAX_KEYS];
	AttrNumber	referenced_keys[INDEX_MAX_KEYS];
	Oid			operators[INDEX_MAX_KEYS];	/* referenced = referencing */
} TtlForeignKey;

/* A foreign key by which a table is referenced */
typedef struct TtlReferencing
{
	Oid			constraint;
	Oid			table;			/* that references, maybe partitioned, or a
								 * partition */
	char		action;			/* ON DELETE, as pg_constraint.confdeltype */
	bool		fires;			/* its trigger is enabled, and not for
								 * replicas alone */
} TtlReferencing;

/*
 * The foreign keys that act or look when rows of the table are deleted, as its triggers have them: what no trigger
 * fires for does nothing.  The list outlives a replacement of the relation cache's triggers.
 */
extern List *ttl_catalog_referencing(Relation rel);

/* False if there is no such constraint. */
extern bool ttl_catalog_foreign_key(Oid constraint, Oid referencing, Oid referenced,
									TtlForeignKey *key);

/* Appends names and values of key columns of the row in the slot, each list with commas. */
extern void ttl_catalog_describe_key(TupleTableSlot *slot, Oid table, int nkeys,
									 const AttrNumber *attnos, StringInfo names,
									 StringInfo values);

#endif							/* TTL_CATALOG_EXPR_H */
