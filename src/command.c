/*-------------------------------------------------------------------------
 *
 * command.c
 *	  DDL that completes a container.
 *
 * Commands are run through SPI, as the calling user, and with the session's search_path:
 * event triggers fire for them as for the user's own DDL.  So they qualify all names, those
 * of operators included.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "command.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/elog.h"
#include "utils/guc.h"

void
ttl_command_run(const char *format,...)
{
	StringInfoData sql;
	int			result;

	initStringInfo(&sql);
	for (;;)
	{
		va_list		args;
		int			needed;

		va_start(args, format);
		needed = appendStringInfoVA(&sql, format, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&sql, needed);
	}
	result = SPI_execute(sql.data, false, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute failed: %s: %s", SPI_result_code_string(result), sql.data);
	pfree(sql.data);
}

int
ttl_command_begin(void)
{
	int			nestlevel = NewGUCNestLevel();

	(void) set_config_option("DateStyle", "ISO",
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	/* NOTICEs about what we do here are of no use to the caller */
	if (client_min_messages < WARNING)
		(void) set_config_option("client_min_messages", "warning",
								 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	return nestlevel;
}

void
ttl_command_end(int nestlevel)
{
	SPI_finish();
	AtEOXact_GUC(true, nestlevel);
}
