/*-------------------------------------------------------------------------
 *
 * tids.h
 *	  A growing array of TIDs, and a position in the expiry indexes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_TIDS_H
#define TTL_TIDS_H

#include "datatype/timestamp.h"
#include "storage/itemptr.h"

/* Empty if it is all zeros. */
typedef struct TtlTids
{
	ItemPointerData *tids;
	int			n;
	int			allocated;
} TtlTids;

/* TIDs of one relation */
typedef struct TtlRelTids
{
	Oid			relid;
	TtlTids		tids;
} TtlRelTids;

/* The first TID allocates the array in the current memory context. */
static inline void
ttl_tids_append(TtlTids *array, const ItemPointerData *tid)
{
	if (array->n == array->allocated)
	{
		array->allocated = Max(array->allocated * 2, 8);
		array->tids = array->tids == NULL ?
			palloc(sizeof(ItemPointerData) * array->allocated) :
			repalloc(array->tids, sizeof(ItemPointerData) * array->allocated);
	}
	array->tids[array->n++] = *tid;
}

/* For qsort() */
static inline int
ttl_tids_compare(const void *a, const void *b)
{
	const ItemPointerData *left = a;
	const ItemPointerData *right = b;
	BlockNumber left_block = ItemPointerGetBlockNumberNoCheck(left);
	BlockNumber right_block = ItemPointerGetBlockNumberNoCheck(right);

	if (left_block != right_block)
		return left_block < right_block ? -1 : 1;
	return (int) ItemPointerGetOffsetNumberNoCheck(left) -
		(int) ItemPointerGetOffsetNumberNoCheck(right);
}

/* The expiry indexes of a table, in the order in which walks go through them */
typedef enum TtlExpiryIndex
{
	TTL_INDEX_DEFAULT,			/* rows that the default TTL applies to */
	TTL_INDEX_ITEM,				/* rows with a TTL or deadline of their own */
	TTL_INDEXES
} TtlExpiryIndex;

/* How far a walk over expired rows (expiry/expiry.h) has come; all zeros is the beginning. */
typedef struct TtlExpiryPosition
{
	bool		set[TTL_INDEXES];
	TimestampTz at[TTL_INDEXES];	/* key of the last entry seen, per index */
	ItemPointerData tid[TTL_INDEXES];	/* its TID: a btree keeps equal keys
										 * in TID order */
} TtlExpiryPosition;

#endif							/* TTL_TIDS_H */
