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

extern Node *ttl_catalog_expr_index_expression(HeapTuple index, AttrNumber column);
extern bool ttl_catalog_expr_is_key(Form_pg_index index);
extern Bitmapset *ttl_catalog_expr_index_columns(HeapTuple index, int natts);
extern Bitmapset *ttl_catalog_expr_key_columns(Relation rel);
extern Bitmapset *ttl_catalog_expr_partition_columns(Relation rel);
extern Bitmapset *ttl_catalog_expr_columns(Node *expression, int natts);
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

extern List *ttl_catalog_referencing(Relation rel);
extern bool ttl_catalog_foreign_key(Oid constraint, Oid referencing, Oid referenced,
									TtlForeignKey *key);
extern void ttl_catalog_describe_key(TupleTableSlot *slot, Oid table, int nkeys,
									 const AttrNumber *attnos, StringInfo names,
									 StringInfo values);

#endif							/* TTL_CATALOG_EXPR_H */
