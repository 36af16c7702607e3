/*-------------------------------------------------------------------------
 *
 * expiry_index.h
 *	  The expiry indexes: what they are, and which a table has.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_EXPIRY_INDEX_H
#define TTL_EXPIRY_INDEX_H

#include "access/skey.h"
#include "container/container.h"

/* The expiry indexes */
typedef enum TtlExpiryIndex
{
	TTL_INDEX_DEFAULT,			/* rows that the default TTL applies to */
	TTL_INDEX_ITEM,				/* rows with a TTL or deadline of their own */
	TTL_INDEX_INVALID_TTL,			/* rows whose own TTL has no meaning in a
								 * column with CHECK, for it was there before
								 * the column was adopted */
	TTL_INDEXES
} TtlExpiryIndex;

/*
 * Those of a table.  Only a valid index is usable; for a partitioned table that
 * is one which each partition has.  An index is needed if rows of its kind may
 * be there that can expire under some default TTL.
 */
typedef struct TtlExpiryIndexes
{
	TtlIndexing indexing;		/* btrees or BRIN indexes? */
	Oid			usable[TTL_INDEXES];	/* InvalidOid = there is none */
	bool		needed[TTL_INDEXES];
	Oid			check;			/* the CHECK that says that there are no
								 * strays, if all rows are known to obey it */
} TtlExpiryIndexes;

/* Can rows be in it? */
static inline bool
ttl_expiry_index_is_due(const TtlContainer *container, TtlExpiryIndex index)
{
	return index == TTL_INDEX_DEFAULT ? container->ts_attno != InvalidAttrNumber :
		container->ttl_type != NULL && (index == TTL_INDEX_ITEM || container->ttl_type->is_strict);
}

/*
 * Scan keys for the entries of a btree that expire, or count from, after the one
 * instant (DT_NOBEGIN = from the beginning on) and up to the other; returns how many.
 */
#define TTL_INDEX_KEYS	2

extern int	ttl_expiry_index_keys(const TtlContainer *container, TtlExpiryIndex index,
								  TimestampTz after, TimestampTz last, ScanKey keys);

/* The instant that the key of an entry stands for; false if it has no meaning. */
extern bool ttl_expiry_index_instant(const TtlContainer *container, TtlExpiryIndex index,
									 Datum key, TimestampTz *result);

/*
 * Those of a leaf table; the caller holds a lock on it.  False if it has been dropped as
 * a container since it was looked up.
 */
extern bool ttl_expiry_indexes(Relation rel, TtlExpiryIndexes *indexes);

/*
 * Locks them until the transaction ends, if nobody has: ALTER INDEX ... SET TABLESPACE
 * may have one for hours, and without the table.
 */
extern bool ttl_expiry_lock_indexes(Relation rel, LOCKMODE lockmode);

/*
 * How an expiry index is defined, as CREATE INDEX takes it: what stands between
 * the parentheses, and the predicate (NULL = none).  One that leaves out NULLs may
 * do as well.  Returns false if a container with these columns has no such index.
 */
typedef struct TtlIndexDefinition
{
	const char *method;			/* access method */
	char	   *key;
	const char *opclass;		/* what comes after the key; may be empty */
	char	   *predicate;
	char	   *or_predicate;
} TtlIndexDefinition;

extern bool ttl_expiry_index_definition(Relation rel, const TtlPolicy *policy,
										TtlExpiryIndex index,
										TtlIndexDefinition *definition);

/* Is it the operator family of the BRIN expiry indexes, which knows the earliest key? */
extern bool ttl_expiry_is_min_family(Oid family);

/*
 * The CHECK on an item TTL column, as ADD CHECK takes it; NULL if a column of its
 * type has none.
 */
extern char *ttl_expiry_check_definition(Relation rel, const TtlPolicy *policy);

/*
 * The name of a constraint of the relation that equals it, or NULL; *validated
 * tells whether no row can be a stray.
 */
extern char *ttl_expiry_find_check(Relation rel, const TtlPolicy *policy,
								   bool *validated);

/*
 * The usable indexes of the relation that equal the definitions, but for those
 * in the list 'except', and which ones it needs.
 */
extern void ttl_expiry_find_indexes(Relation rel, const TtlPolicy *policy,
									const List *except,
									TtlExpiryIndexes *indexes);

/*
 * Errors (55000) if the table, or a partition of it, lacks an index that it
 * needs.  And if there is an unusable one that equals the definition: it would
 * be in the way of one that is to be created.  Partitions are locked.
 */
extern void ttl_expiry_check_indexes(Oid relid, const TtlPolicy *policy);
extern void ttl_expiry_refuse_unusable(Oid relid, const TtlPolicy *policy,
									   TtlExpiryIndex index);

/*
 * Why a walk over the table was incomplete: as an error (55000), and as a message.
 */
extern void ttl_expiry_report_incomplete(Relation rel);
extern char *ttl_expiry_why_incomplete(Relation rel);

#endif							/* TTL_EXPIRY_INDEX_H */
