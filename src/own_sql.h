/*-------------------------------------------------------------------------
 *
 * own_sql.h
 *	  As whom, and with which settings, ttl runs SQL of its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_OWN_SQL_H
#define TTL_OWN_SQL_H

/* Names are found in pg_catalog and nowhere else, unless they are qualified. */
#define TTL_SAFE_SEARCH_PATH	"pg_catalog, pg_temp"

/* As the session's user, and as his own statement: what it sets off may set parameters. */
#define TTL_SQL_AS_USER			(1 << 0)
/* In a security-restricted operation, as maintenance commands run an owner's code */
#define TTL_SQL_RESTRICTED		(1 << 1)
/* Without what FORCE ROW LEVEL SECURITY adds, as foreign keys are checked */
#define TTL_SQL_NOFORCE_RLS		(1 << 2)
/* With TTL_SAFE_SEARCH_PATH */
#define TTL_SQL_SAFE_PATH		(1 << 3)
/*
 * A step of a command that ttl carries out: no NOTICEs of it, and dates as they can be read again.  What
 * it sets for the rest of the transaction, as Citus does, stays.
 */
#define TTL_SQL_STEP			(1 << 4)

/* What is restored at the end */
typedef struct TtlSqlContext
{
	Oid			userid;
	int			sec_context;
	int			nestlevel;		/* of settings, 0 = none is changed */
	bool		is_switched;	/* to another user, or security context */
	bool		keeps_settings; /* of what was run */
} TtlSqlContext;

extern void ttl_sql_begin(Oid role, int flags, TtlSqlContext *saved);
extern void ttl_sql_set(const char *name, const char *value);
extern void ttl_sql_end(const TtlSqlContext *saved);
extern void ttl_sql_check_table(bool is_found, Oid table);

#endif							/* TTL_OWN_SQL_H */
