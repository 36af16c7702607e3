/*-------------------------------------------------------------------------
 *
 * policy.h
 *	  How the values of a policy are written down, and compared.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_POLICY_H
#define TTL_POLICY_H

#include "container/container.h"
#include "utils/array.h"

/*
 * The length of an interval, as EXTRACT(epoch FROM ...) has it: years of 365.25
 * days, months of 30 days, days of 24 hours.  False if it is out of range.
 */
extern bool ttl_policy_microseconds(const Interval *interval, int64 *result);

/* The same as a TTL: false unless it is a whole number of seconds from 1 to 2147483647. */
extern bool ttl_policy_seconds(const Interval *interval, int32 *seconds);

/* Do rows expire earlier by this default TTL than by the other one? */
extern bool ttl_policy_is_shorter(int32 default_ttl, int32 than);

/* A default TTL as people write it. */
extern char *ttl_policy_default_ttl_text(int32 default_ttl);

extern const char *ttl_policy_indexing_name(TtlIndexing indexing);

/*
 * What has been changed, setting by setting, as "... from x to y"; empty if nothing
 * has.
 */
extern char *ttl_policy_differences(const TtlPolicy *old, const TtlPolicy *new);

/* False if there is no indexing policy of that name. */
extern bool ttl_policy_indexing_parse(const char *name, TtlIndexing *indexing);

/* A text[] of names; error 22023 if it is none. */
extern List *ttl_policy_names_from_array(ArrayType *array);

#endif							/* TTL_POLICY_H */
