/*-------------------------------------------------------------------------
 *
 * ttl_index.c
 *	  ttl.create_ttl_index(): Time-To-Live as users of MongoDB ask for it.
 *
 * In Cosmos DB's API for MongoDB, createIndex({"_ts": 1}, {expireAfterSeconds: n}) on a
 * collection is what ttl.create_container(collection, n) is here, and makes the
 * collection if there is none.  A collection that is made here is a table of
 * documents; the TTL of a document's own is its root-level key "ttl", taken out of it
 * by a generated column.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "citus/citus.h"
#include "configuration/configuration.h"
#include "container/container.h"
#include "container/policy.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "ttl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/varlena.h"

/* Creates a table of documents, as the calling user. */
static Oid
create_collection(RangeVar *name)
{
	Oid			schema = RangeVarGetCreationNamespace(name);
	int			nestlevel = ttl_command_begin();

	ttl_command_run("CREATE TABLE %s ("
					"id pg_catalog.uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(), "
					"doc pg_catalog.jsonb, "
					"%s timestamp with time zone NOT NULL DEFAULT pg_catalog.clock_timestamp(), "
					"%s integer GENERATED ALWAYS AS (ttl.item_ttl(doc)) STORED)",
					quote_qualified_identifier(get_namespace_name(schema), name->relname),
					TTL_TS_COLUMN, TTL_TTL_COLUMN);
	ttl_command_end(nestlevel);
	return get_relname_relid(name->relname, schema);
}

static int
count_indexes(Oid relid)
{
	Relation	rel = table_open(relid, AccessShareLock);
	int			count = list_length(RelationGetIndexList(rel));

	table_close(rel, AccessShareLock);
	return count;
}

PG_FUNCTION_INFO_V1(ttl_create_ttl_index);

/*
 * ttl.create_ttl_index(collection text, expire_after_seconds integer) -> jsonb
 *
 * Makes the collection, the name of a table as SQL has it, expire after so many seconds,
 * -1 = never but for documents with a TTL of their own: registers it as a
 * container, or changes its default TTL if it is one.  Where there is no such table it is
 * created: id uuid, doc jsonb, _ts and ttl, generated from doc.
 *
 * Returns what MongoDB answers: ok, createdCollectionAutomatically, numIndexesBefore,
 * numIndexesAfter.  Errors: 22023 a bad value, 42602 no name, and those of
 * create_container(), set_default_ttl() and CREATE TABLE.
 */
Datum
ttl_create_ttl_index(PG_FUNCTION_ARGS)
{
	int32		default_ttl;
	RangeVar   *name;
	TtlPolicy	policy;
	Oid			relid;
	bool		created;
	int			before;
	char	   *answer;

	ttl_container_may_change("ttl.create_ttl_index()");
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("collection must not be null")));
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("expire_after_seconds must not be null"),
				 errhint("Use ttl.set_default_ttl(..., NULL) to turn TTL off.")));
	default_ttl = ttl_argument_default_ttl(fcinfo, 1);
	name = makeRangeVarFromNameList(textToQualifiedNameList(PG_GETARG_TEXT_PP(0)));
	relid = RangeVarGetRelid(name, NoLock, true);
	created = !OidIsValid(relid);
	if (created)
		relid = create_collection(name);
	else
	{
		ttl_container_check_owner(relid);
		ttl_citus_check_settable(relid);
	}
	before = count_indexes(relid);
	if (ttl_container_read(relid, &policy))
		ttl_alter_default_ttl(relid, default_ttl);
	else
	{
		ttl_policy_init(&policy);
		policy.default_ttl = default_ttl;
		namestrcpy(&policy.ts_column, TTL_TS_COLUMN);
		namestrcpy(&policy.ttl_column, TTL_TTL_COLUMN);
		/* the call names the timestamp column; one that is missing is added */
		ttl_create_register(relid, &policy,
							get_attnum(relid, TTL_TS_COLUMN) != InvalidAttrNumber,
							false, false);
	}
	answer = psprintf("{\"ok\": 1, \"createdCollectionAutomatically\": %s, "
					  "\"numIndexesBefore\": %d, \"numIndexesAfter\": %d}",
					  created ? "true" : "false", before, count_indexes(relid));
	return DirectFunctionCall1(jsonb_in, CStringGetDatum(answer));
}
