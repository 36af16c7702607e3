/*-------------------------------------------------------------------------
 *
 * constraint.c
 *	  Foreign keys, as pg_constraint has them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_constraint.h"
#include "compat.h"
#include "constraint.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

bool
ttl_constraint_read(Oid constraint, Oid referencing, Oid referenced, TtlForeignKey *key)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));

	if (!HeapTupleIsValid(tuple))
		return false;
	key->constraint = constraint;
	key->referencing = referencing;
	key->referenced = referenced;
	key->is_temporal = TtlConstraintIsTemporal((Form_pg_constraint) GETSTRUCT(tuple));
	DeconstructFkConstraintRow(tuple, &key->nkeys, key->referencing_keys,
							   key->referenced_keys, key->operators,
							   NULL, NULL, NULL, NULL);
	ReleaseSysCache(tuple);
	return true;
}

/* One side of a comparison: a column, or the parameter that stands for it */
typedef struct Operand
{
	const char *text;
	Oid			type;
} Operand;

static Operand
column(Oid table, AttrNumber attno)
{
	return (Operand)
	{
		quote_identifier(get_attname(table, attno, false)), get_atttype(table, attno)
	};
}

static Operand
parameter(int n, Oid table, AttrNumber attno)
{
	return (Operand)
	{
		psprintf("$%d", n), get_atttype(table, attno)
	};
}

static void
append_comparison(StringInfo sql, const TtlForeignKey *key, int i, Operand referenced,
				  Operand referencing)
{
	if (i > 0)
		appendStringInfoString(sql, " AND ");
	generate_operator_clause(sql, referenced.text, referenced.type, key->operators[i],
							 referencing.text, referencing.type);
}

void
ttl_constraint_append_referenced(StringInfo sql, const TtlForeignKey *key)
{
	for (int i = 0; i < key->nkeys; i++)
		append_comparison(sql, key, i,
						  column(key->referenced, key->referenced_keys[i]),
						  parameter(i + 1, key->referencing, key->referencing_keys[i]));
}

void
ttl_constraint_append_join(StringInfo sql, const TtlForeignKey *key, const char *keys)
{
	for (int i = 0; i < key->nkeys; i++)
	{
		Oid			type;
		int32		typmod;
		Oid			collation;

		get_atttypetypmodcoll(key->referenced, key->referenced_keys[i], &type, &typmod,
							  &collation);
		append_comparison(sql, key, i,
						  (Operand) {psprintf("%s.k%d", keys, i + 1), type},
						  column(key->referencing, key->referencing_keys[i]));
		/* the referenced column's collation counts */
		if (OidIsValid(collation) && !get_collation_isdeterministic(collation))
			appendStringInfo(sql, " COLLATE %s", generate_collation_name(collation));
	}
}

void
ttl_constraint_describe_key(TupleTableSlot *slot, Oid table, int nkeys,
							const AttrNumber *attnos, StringInfo names, StringInfo values)
{
	for (int i = 0; i < nkeys; i++)
	{
		const char *separator = i == 0 ? "" : ", ";
		bool		isnull;
		Datum		value = slot_getattr(slot, attnos[i], &isnull);
		Oid			output;
		bool		is_varlena;

		getTypeOutputInfo(get_atttype(table, attnos[i]), &output, &is_varlena);
		appendStringInfo(names, "%s%s", separator, get_attname(table, attnos[i], false));
		appendStringInfo(values, "%s%s", separator, OidOutputFunctionCall(output, value));
	}
}
