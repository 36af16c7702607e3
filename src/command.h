/*-------------------------------------------------------------------------
 *
 * command.h
 *	  DDL that completes a container.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_COMMAND_H
#define TTL_COMMAND_H

/* Begins a piece of work by DDL, with literals meaning what they say. */
extern int	ttl_command_begin(void);

/* Runs one command of it, which qualifies all names: search_path is the session's. */
extern void ttl_command_run(const char *format,...) pg_attribute_printf(1, 2);

extern void ttl_command_end(int nestlevel);

#endif							/* TTL_COMMAND_H */
