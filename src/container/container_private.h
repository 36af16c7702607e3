/*-------------------------------------------------------------------------
 *
 * container_private.h
 *	  What files of this room alone use of each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CONTAINER_PRIVATE_H
#define TTL_CONTAINER_PRIVATE_H

#include "access/htup.h"
#include "container/container.h"

/* settings.c */
extern void ttl_policy_from_values(TtlPolicy *policy, const Datum *values, const bool *nulls);
extern void ttl_policy_to_values(const TtlPolicy *policy, Datum *values, bool *nulls);

/* policy.c */
extern Oid	ttl_policy_relid_of(HeapTuple tuple, TupleDesc desc);

#endif							/* TTL_CONTAINER_PRIVATE_H */
