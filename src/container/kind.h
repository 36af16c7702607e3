/*-------------------------------------------------------------------------
 *
 * kind.h
 *	  What the values of a TTL column mean, by the column's type.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_KIND_H
#define TTL_KIND_H

#include "datatype/timestamp.h"
#include "fmgr.h"

/* TTLs that are not a number of seconds. */
#define TTL_OFF			0		/* a default: nothing ever expires */
#define TTL_NEVER		(-1)	/* an item, or items without a TTL, never
								 * expire */

typedef struct TtlKind
{
	Oid			type;
	bool		is_strict;		/* a CHECK keeps out what has no meaning */
	bool		is_document;	/* the value is the row's data, too */

	/*
	 * The seconds that a value stands for, or TTL_NEVER, or 0 if it has no
	 * meaning.  NULL if values are instants: deadlines.
	 */
	int32		(*seconds) (Datum value);
} TtlKind;

/* NULL if a TTL column can't have the type. */
extern const TtlKind *ttl_kind_of(Oid type);

static inline bool
ttl_kind_is_deadline(const TtlKind *kind)
{
	return kind != NULL && kind->seconds == NULL;
}

/* Has the value no meaning, although it looks like a TTL? */
extern bool ttl_kind_is_odd(const TtlKind *kind, Datum value);

/*
 * Can a timestamp column have the type?  A timestamp without time zone is taken as
 * UTC, and so has the same bits as one with.
 */
extern bool ttl_kind_is_instant(Oid type);

#endif							/* TTL_KIND_H */
