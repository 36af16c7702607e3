/*-------------------------------------------------------------------------
 *
 * own_sql.c
 *	  As whom, and with which settings, ttl runs SQL of its own.
 *
 * Whatever ttl runs through SPI, DDL, queries and deletions, goes through here, so that each
 * way in is undone alike: the user, the security context, the settings that ttl has made, and
 * those that somebody else's code has made meanwhile.  The last are discarded where a role was
 * taken on, and stay where the session's user runs code, as after any statement of his.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "own_sql.h"
#include "utils/elog.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

/* Sets a parameter until ttl_sql_end(). */
void
ttl_sql_set(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Becomes 'role' (InvalidOid: the current user stays), as the flags say, and connects to
 * SPI.  If an error occurs, the abort of the (sub)transaction undoes it all.
 */
void
ttl_sql_begin(Oid role, int flags, TtlSqlContext *saved)
{
	bool		as_user = (flags & TTL_SQL_AS_USER) != 0;
	Oid			userid;
	int			sec_context;

	GetUserIdAndSecContext(&saved->userid, &saved->sec_context);
	userid = OidIsValid(role) ? role : saved->userid;

	/* a foreign key that has led here has set it for its own query */
	sec_context = saved->sec_context & ~SECURITY_NOFORCE_RLS;
	if ((flags & TTL_SQL_NOFORCE_RLS) != 0)
		sec_context |= SECURITY_NOFORCE_RLS;
	if ((flags & TTL_SQL_RESTRICTED) != 0)
		sec_context |= SECURITY_RESTRICTED_OPERATION;
	/* where a role is taken on, no code may leave it by SET ROLE */
	if (OidIsValid(role) && !as_user)
		sec_context |= SECURITY_LOCAL_USERID_CHANGE;

	saved->is_switched = userid != saved->userid || sec_context != saved->sec_context;
	if (saved->is_switched)
		SetUserIdAndSecContext(userid, sec_context);

	/*
	 * not for each key that is freed: leaving a level looks through all
	 * settings
	 */
	saved->nestlevel = as_user ? 0 : NewGUCNestLevel();
	saved->keeps_settings = as_user || !OidIsValid(role) || (flags & TTL_SQL_STEP) != 0;
	if ((flags & TTL_SQL_SAFE_PATH) != 0)
		ttl_sql_set("search_path", TTL_SAFE_SEARCH_PATH);
	if ((flags & TTL_SQL_STEP) != 0)
	{
		ttl_sql_set("DateStyle", "ISO");
		if (client_min_messages < WARNING)
			ttl_sql_set("client_min_messages", "warning");
	}
	SPI_connect();
}

/* Undoes what ttl_sql_begin() has done. */
void
ttl_sql_end(const TtlSqlContext *saved)
{
	SPI_finish();
	if (saved->nestlevel > 0)
		AtEOXact_GUC(saved->keeps_settings, saved->nestlevel);
	if (saved->is_switched)
		SetUserIdAndSecContext(saved->userid, saved->sec_context);
}

/*
 * Errors (40001) unless a statement that writes to the table has found it by its name, rather than another.  The
 * lock on a table keeps its name, but not that of its schema: another table may have both by now.
 */
void
ttl_sql_check_table(bool is_found, Oid table)
{
	if (!is_found)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the schema of table \"%s\" has been renamed", get_rel_name(table)),
				 errhint("The transaction might succeed if retried.")));
}
