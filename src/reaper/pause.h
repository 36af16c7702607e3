/*-------------------------------------------------------------------------
 *
 * pause.h
 *	  Pauses deletion by the worker in a database.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_PAUSE_H
#define TTL_PAUSE_H

#include "datatype/timestamp.h"

/*
 * True if deletion is paused in this database, and until when (DT_NOEND: until
 * ttl.resume() is called).  Needs a transaction; cheap unless the pause has changed.
 */
extern bool ttl_pause_lasts(TimestampTz *until);

extern void ttl_pause_init(void);

#endif							/* TTL_PAUSE_H */
