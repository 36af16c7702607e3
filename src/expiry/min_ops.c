/*-------------------------------------------------------------------------
 *
 * min_ops.c
 *	  What the BRIN expiry indexes keep of a range of pages: the earliest value.
 *
 * PostgreSQL's minmax keeps the latest, too, and nobody asks for that here.  But
 * each row that is written now would be the latest of its range, and so each INSERT
 * and UPDATE would write the index, and wait for who else does.  This way a write
 * reads the index, and changes it only if the row expires before all others of its
 * range.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/brin_internal.h"
#include "access/brin_tuple.h"
#include "access/skey.h"
#include "access/stratnum.h"
#include "fmgr.h"
#include "utils/datum.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(ttl_min_opcinfo);

Datum
ttl_min_opcinfo(PG_FUNCTION_ARGS)
{
	BrinOpcInfo *info = palloc0(SizeofBrinOpcInfo(1));

	info->oi_nstored = 1;
	info->oi_regular_nulls = true;
	info->oi_typcache[0] = lookup_type_cache(PG_GETARG_OID(0), 0);
	PG_RETURN_POINTER(info);
}

/* Lets the summary cover the value; was it changed for that? */
static bool
cover(const BrinDesc *desc, BrinValues *summary, Datum value)
{
	Form_pg_attribute attribute = TupleDescAttr(desc->bd_tupdesc, summary->bv_attno - 1);

	if (!summary->bv_allnulls &&
		DatumGetTimestampTz(summary->bv_values[0]) <= DatumGetTimestampTz(value))
		return false;

	/*
	 * a machine of 32 bits has instants by reference, and this one lives
	 * shorter
	 */
	summary->bv_values[0] = datumCopy(value, attribute->attbyval, attribute->attlen);
	summary->bv_allnulls = false;
	return true;
}

PG_FUNCTION_INFO_V1(ttl_min_add_value);

Datum
ttl_min_add_value(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(cover((BrinDesc *) PG_GETARG_POINTER(0),
						 (BrinValues *) PG_GETARG_POINTER(1), PG_GETARG_DATUM(2)));
}

PG_FUNCTION_INFO_V1(ttl_min_consistent);

/*
 * Can a row of the range be earlier than the value, or no later?  The planner, too, may have
 * that answered where the table is no container with indexing => 'lazy' (hide.c).
 */
Datum
ttl_min_consistent(PG_FUNCTION_ARGS)
{
	const BrinValues *summary = (BrinValues *) PG_GETARG_POINTER(1);
	ScanKey		key = (ScanKey) PG_GETARG_POINTER(2);
	TimestampTz earliest = DatumGetTimestampTz(summary->bv_values[0]);
	TimestampTz value = DatumGetTimestampTz(key->sk_argument);

	PG_RETURN_BOOL(key->sk_strategy == BTLessStrategyNumber ? earliest < value :
				   earliest <= value);
}

PG_FUNCTION_INFO_V1(ttl_min_union);

Datum
ttl_min_union(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(cover((BrinDesc *) PG_GETARG_POINTER(0),
						 (BrinValues *) PG_GETARG_POINTER(1),
						 ((BrinValues *) PG_GETARG_POINTER(2))->bv_values[0]));
}
