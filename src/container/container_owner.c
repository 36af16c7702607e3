/*-------------------------------------------------------------------------
 *
 * container_owner.c
 *	  Whose a table is, and what only he may do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/objectaddress.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "container/container.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

Oid
ttl_container_owner(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/* As long as it is being detached, it has the triggers of the table above. */
Oid
ttl_container_ancestor_of_other(Oid relid)
{
	Oid			owner = ttl_container_owner(relid);

	while (get_rel_relispartition(relid))
	{
		relid = get_partition_parent(relid, true);
		if (ttl_container_owner(relid) != owner)
			return relid;
	}
	return InvalidOid;
}

bool
ttl_container_is_owner(Oid user, Oid relid)
{
	Oid			owner = ttl_container_owner(relid);

	return OidIsValid(owner) && has_privs_of_role(user, owner);
}

static void
check_exists(Oid relid)
{
	if (!OidIsValid(ttl_container_owner(relid)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
}

void
ttl_container_check_owner(Oid relid)
{
	check_exists(relid);
	if (!ttl_container_is_owner(GetUserId(), relid))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
}

void
ttl_container_require(Oid relid, TtlPolicy *policy)
{
	TtlContainer container;

	if (ttl_container_read(relid, policy))
		return;
	check_exists(relid);
	if (ttl_container_lookup(relid, &container))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not a container", get_rel_name(relid)),
				 errdetail("It is a partition of container \"%s\".",
						   get_rel_name(container.container)),
				 errhint("Use the partitioned table.")));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("\"%s\" is not a container", get_rel_name(relid)),
			 errhint("Register the table with ttl.create_container().")));
}

void
ttl_container_check_owned(Oid container)
{
	TtlPolicy	policy;

	ttl_container_check_owner(container);
	ttl_container_require(container, &policy);
}
