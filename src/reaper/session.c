/*-------------------------------------------------------------------------
 *
 * session.c
 *	  State of the session in which expired rows are deleted: what triggers of one
 *	  owner leave to those of the next, and the replication origin.
 *
 * Owners: a worker runs the triggers of one table owner after another's.  In between it
 * does what DISCARD ALL does.  Temporary objects are dropped in the transaction that
 * has created them: after its commit their owner could lock them in another
 * session, for which the worker would wait.  DISCARD ALL does not cover the state of loaded
 * libraries.  A new process for each owner would, but would lose the state in reap_rel.c
 * several times per second.  So connections that were made with an owner's password and can be
 * used by name are closed.  Among PostgreSQL's own extensions only dblink has such;
 * postgres_fdw's belong to a user mapping, and procedural languages keep
 * their state by role or are for superusers.  dblink's functions are called in the loaded
 * library, not by SQL, which would depend on the schema of the extension.
 *
 * Origin: deletions are tagged so that subscriptions with origin = none, and
 * consumers of logical decoding that skip changes with an origin, can leave them out
 * (they may have a TTL of their own).  An origin can be used by one process at a
 * time, so it is set up for a batch's DELETE alone, and reset before the transaction
 * commits: a tagged commit record would make all standbys track the
 * origin's progress, which is meaningless here and needs a free slot there.
 * It has to be set up for the session all the same: a subtransaction of a
 * trigger that rolls back looks for the progress, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/async.h"
#include "commands/prepare.h"
#include "commands/sequence.h"
#include "fmgr.h"
#include "replication/origin.h"
#include "storage/lock.h"
#include "utils/array.h"
#include "utils/guc.h"
#include "utils/portal.h"

#include "compat.h"
#include "reaper/reaper_internal.h"
#include "ttl.h"

/* The role whose triggers may have left state, or InvalidOid */
static Oid	session_owner = InvalidOid;

/*
 * The path of a library that has been loaded into this process, or NULL.
 */
static const char *
find_library(const char *library)
{
	Size		size = EstimateLibraryStateSpace();
	char	   *paths = palloc(size);

	SerializeLibraryState(size, paths);
	for (char *path = paths; *path != '\0'; path += strlen(path) + 1)
	{
		if (strcmp(last_dir_separator(path) ? last_dir_separator(path) + 1 : path,
				   library) == 0)
			return path;
	}
	return NULL;
}

/*
 * Calls dblink_disconnect(name), or dblink_disconnect() if name is 0.
 */
static void
disconnect(PGFunction function, Datum name)
{
	LOCAL_FCINFO(fcinfo, 1);

	InitFunctionCallInfoData(*fcinfo, NULL, name == (Datum) 0 ? 0 : 1, InvalidOid,
							 NULL, NULL);
	fcinfo->args[0].value = name;
	fcinfo->args[0].isnull = false;
	(void) function(fcinfo);
}

static void
close_dblink_connections(void)
{
	MemoryContext context = CurrentMemoryContext;
	const char *library = find_library("dblink" DLSUFFIX);
	PGFunction	get_connections;
	PGFunction	disconnect_function;
	Datum		names;
	Datum	   *elements;
	int			n;

	LOCAL_FCINFO(fcinfo, 0);

	if (library == NULL)
		return;

	get_connections = (PGFunction)
		load_external_function(library, "dblink_get_connections", true, NULL);
	disconnect_function = (PGFunction)
		load_external_function(library, "dblink_disconnect", true, NULL);

	InitFunctionCallInfoData(*fcinfo, NULL, 0, InvalidOid, NULL, NULL);
	names = get_connections(fcinfo);
	if (!fcinfo->isnull)
	{
		deconstruct_array(DatumGetArrayTypeP(names), TEXTOID, -1, false,
						  TYPALIGN_INT, &elements, NULL, &n);
		for (int i = 0; i < n; i++)
			disconnect(disconnect_function, elements[i]);
	}

	/* the unnamed one; an error if there is none */
	PG_TRY();
	{
		disconnect(disconnect_function, (Datum) 0);
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_CONNECTION_DOES_NOT_EXIST)
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
}

static void
discard_all(void)
{
	StartTransactionCommand();
	PortalHashTableDeleteAll();
	ResetAllOptions();
	DropAllPreparedStatements();
	Async_UnlistenAll();
	LockReleaseAll(USER_LOCKMETHOD, true);
	ResetSequenceCaches();
	close_dblink_connections();
	CommitTransactionCommand();
}

void
ttl_session_drop_temporary(void)
{
	if (MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE)
		ResetTempTableNamespace();
}

void
ttl_session_set_owner(Oid owner)
{
	if (OidIsValid(session_owner) && owner != session_owner)
		discard_all();
	session_owner = owner;
}

bool
ttl_session_belongs_to(Oid owner)
{
	return owner == session_owner;
}

static bool begun = false;

void
ttl_session_begin_origin(void)
{
	ReplOriginId node;

	/* a user's session may have an origin of its own */
	if (TTL_ORIGIN_OF_XACT != InvalidReplOriginId)
		return;

	node = replorigin_by_name(TTL_EXTENSION, true);
	if (node == InvalidReplOriginId)
		node = replorigin_create(TTL_EXTENSION);
	TtlOriginSessionSetup(node);
	TTL_ORIGIN_OF_XACT = node;
	begun = true;
}

void
ttl_session_end_origin(void)
{
	if (!begun)
		return;
	begun = false;
	TTL_ORIGIN_OF_XACT = InvalidReplOriginId;
	replorigin_session_reset();
}
