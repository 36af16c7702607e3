/*-------------------------------------------------------------------------
 *
 * is_live.h
 *	  The filter functions, and what is resolved for them in an execution.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_IS_LIVE_H
#define TTL_IS_LIVE_H

#include "container/container.h"
#include "execution.h"
#include "expiry/expiry.h"

/*
 * What is resolved for a container in an execution when it starts, for one of the
 * two filters.
 */
typedef struct TtlLive
{
	Oid			container;
	bool		deletes;		/* expired rows are looked for, not hidden */
	bool		sees_everything;
	int32		default_ttl;
	TimestampTz now;
	TimestampTz default_cutoff; /* if default_ttl > 0 */
	bool		spares;			/* what ... */
	TtlChange	change;			/* ... has made expired */
} TtlLive;

/*
 * For the filter that hides.  Asked for when the execution starts; it stays where
 * it is as long as that, and its parallel workers get the same.
 */
extern const TtlLive *ttl_live_resolve(TtlExecution *execution, Oid container);

/* Has the item expired? */
extern bool ttl_live_has_expired(const TtlLive *live, const TtlItem *item);

/* Does what starts now in this session see expired rows of containers that the user owns? */
extern bool ttl_live_session_shows(void);

/*
 * May the running execution, or whatever the session does outside of one, see
 * expired rows of the container?
 */
extern bool ttl_live_is_shown(Oid container);

extern void ttl_live_init(void);

#endif							/* TTL_IS_LIVE_H */
