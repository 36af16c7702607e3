/*-------------------------------------------------------------------------
 *
 * ttl_type.h
 *	  What the values of a TTL column mean, by the column's type.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_TYPE_H
#define TTL_TYPE_H

#include "datatype/timestamp.h"
#include "fmgr.h"
#include "utils/timestamp.h"

/* TTLs that are not a number of seconds. */
#define TTL_OFF			0		/* a default: nothing ever expires */
#define TTL_NEVER		(-1)	/* an item, or items without a TTL, never
								 * expire */

/* What numbers count */
typedef enum TtlUnit
{
	TTL_UNIT_SECONDS,			/* a duration in seconds; no unit of an
								 * instant */
	TTL_UNIT_EPOCH,				/* an instant: seconds since 1970, ... */
	TTL_UNIT_EPOCH_MS,
	TTL_UNIT_EPOCH_US,
	TTL_UNIT_EPOCH_NS,
	TTL_UNITS
} TtlUnit;

extern const char *ttl_type_unit_name(TtlUnit unit);
extern bool ttl_type_unit_parse(const char *name, TtlUnit *unit);

typedef struct TtlType
{
	Oid			type;
	TtlUnit		unit;
	bool		is_strict;		/* what has no meaning is refused */
	bool		is_document;	/* the value is the row's data, too */

	/*
	 * The seconds that a value stands for, or TTL_NEVER, or 0 if it has no
	 * meaning.  NULL if values are instants.
	 */
	int32		(*seconds) (Datum value);

	/*
	 * The instant that a value stands for; false if it has no meaning.  NULL
	 * if the value is a timestamp, by whose bits it is known.
	 */
	bool		(*instant) (Datum value, TtlUnit unit, TimestampTz *result);

	/*
	 * The last value whose instant is no later, and the type's operators to
	 * compare a column with it: <= and >.  'last_type' is the type of that
	 * value.
	 */
	Datum		(*last) (TimestampTz instant, TtlUnit unit);
	Oid			last_type;
	RegProcedure le;
	RegProcedure gt;
} TtlType;

extern const TtlType *ttl_type_of(Oid type, TtlUnit unit);
extern const TtlType *ttl_type_of_clock(Oid type, TtlUnit unit);

/* The longest precision of a timestamp column, in microseconds: the longest TTL */
#define TTL_MAX_PRECISION	((int64) PG_INT32_MAX * USECS_PER_SEC)
#define TTL_MAX_STEP		(2 * TTL_MAX_PRECISION)

extern int64 ttl_type_clock_step(const TtlType *ttl_type, int32 typmod, int64 precision);
extern Datum ttl_type_present(const TtlType *ttl_type, TimestampTz now, int64 step);

/* The instant that a value stands for */
static inline bool
ttl_type_instant(const TtlType *ttl_type, Datum value, TimestampTz *result)
{
	if (ttl_type->instant != NULL)
		return ttl_type->instant(value, ttl_type->unit, result);
	*result = DatumGetTimestampTz(value);
	return true;
}

/*
 * Numbers that are instants lie between these: a timestamp's range, as far as its
 * microseconds since 1970 fit into 64 bits.
 */
#define TTL_FIRST_INSTANT	MIN_TIMESTAMP
#define TTL_LAST_INSTANT	(PG_INT64_MAX - TTL_EPOCH_SHIFT)

/* Microseconds from 1970 to 2000 */
#define TTL_EPOCH_SHIFT \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

static inline bool
ttl_type_is_deadline(const TtlType *ttl_type)
{
	return ttl_type != NULL && ttl_type->seconds == NULL;
}

extern bool ttl_type_is_invalid(const TtlType *ttl_type, Datum value);
extern bool ttl_type_is_instant(Oid type);

#endif							/* TTL_TYPE_H */
