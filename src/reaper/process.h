/*-------------------------------------------------------------------------
 *
 * process.h
 *	  The reaper's processes, and what backends tell them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_PROCESS_H
#define TTL_PROCESS_H

/* launcher.c, worker.c: entry points, found by name by the postmaster */
extern PGDLLEXPORT void ttl_launcher_main(Datum main_arg);
extern PGDLLEXPORT void ttl_worker_main(Datum main_arg);

/* request.c */

/* The transaction asks for attention to its database when it commits. */
extern void ttl_request_at_commit(void);

extern void ttl_request_init(void);

#endif							/* TTL_PROCESS_H */
