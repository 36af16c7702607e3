/*-------------------------------------------------------------------------
 *
 * constraint.h
 *	  Foreign keys, as pg_constraint has them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CONSTRAINT_H
#define TTL_CONSTRAINT_H

#include "access/attnum.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "pg_config_manual.h"

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

/* False if there is no such constraint. */
extern bool ttl_constraint_read(Oid constraint, Oid referencing, Oid referenced,
								TtlForeignKey *key);

/*
 * Appends the condition by which referenced rows are found ("column = $1 AND ..."), and
 * that by which referencing ones are: "k.k1 = column AND ...", where 'keys' is "k", a
 * relation of referenced keys with columns k1, k2 ...
 */
extern void ttl_constraint_append_referenced(StringInfo sql, const TtlForeignKey *key);
extern void ttl_constraint_append_join(StringInfo sql, const TtlForeignKey *key,
									   const char *keys);

/* Appends names and values of key columns of the row in the slot, each list with commas. */
extern void ttl_constraint_describe_key(TupleTableSlot *slot, Oid table, int nkeys,
										const AttrNumber *attnos, StringInfo names,
										StringInfo values);

#endif							/* TTL_CONSTRAINT_H */
