/*-------------------------------------------------------------------------
 *
 * reaper.h
 *	  Deletion of expired rows by background workers and CALL ttl.reap: the interface for
 *	  the rest of ttl.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_REAPER_H
#define TTL_REAPER_H

#include "access/xact.h"
#include "nodes/plannodes.h"

extern void ttl_reaper_init(void);

/*
 * For the other hooks of ttl.c
 */
extern void ttl_reaper_request_shmem(void);
extern void ttl_reaper_attach_shmem(void);
extern void ttl_request_before_utility(PlannedStmt *pstmt);
extern void ttl_request_after_utility(PlannedStmt *pstmt);
extern void ttl_request_transaction(XactEvent event);
extern void ttl_request_at_commit(void);
extern void ttl_request_send(void);
extern void ttl_schedule_relation_changed(Oid relid);
extern void ttl_last_seen_note_xid(void);

#endif							/* TTL_REAPER_H */
