/*-------------------------------------------------------------------------
 *
 * fk_dependents.h
 *	  What goes along with a row that is deleted.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_FK_DEPENDENTS_H
#define TTL_FK_DEPENDENTS_H

#include "constraint.h"
#include "container/container.h"
#include "deletion/owner.h"
#include "tids.h"
#include "utils/hsearch.h"

/* Expired rows of one table that are to be deleted. */
typedef struct TtlToDelete
{
	Relation	rel;
	TtlContainer container;		/* as of when rows of it were to be deleted first */
	bool		as_user;		/* are they deleted as the session's user? */
	TtlTids		tids;
	int			searched;		/* rows that reference so many are to_delete, too */
	List	   *references;		/* TtlReference, once searched */
	List	   *referencing;	/* TtlToDelete with rows that reference rows of
								 * this */
	bool		is_ordered;
	uint64		deleted;
} TtlToDelete;

/* A deletion: what it is told, and what it comes to */
typedef struct TtlDeletion
{
	TimestampTz expired_at;
	TtlSessionUser *user;		/* in whose session; NULL = the reaper, which
								 * deletes as this owner alone, ... */
	Oid			owner;
	bool		restricted;		/* ... maybe in a security-restricted
								 * operation */
	bool		spares;			/* not what a change of policy has made
								 * expired */
	List	   *tables;			/* TtlToDelete, the one that was asked for first */
	HTAB	   *rows;			/* all of them, to know them again */
	MemoryContext memory;		/* of all this */
} TtlDeletion;

/* Adds a table to the deletion, with its policy (NULL = it is read here). */
extern TtlToDelete *ttl_fk_dependents_add_table(TtlDeletion *deletion, Relation rel,
											const TtlContainer *container);

/*
 * Errors (23503) if the session's user may not delete the row, at that place of the table
 * that he writes, because of what referential actions would set off.
 */
extern void ttl_fk_dependents_check_actions(TtlDeletion *deletion, Relation rel,
										  const ItemPointerData *tid);

/* From here on rows are remembered, and dooming one twice does no harm. */
extern void ttl_fk_dependents_remember(TtlDeletion *deletion);

extern void ttl_fk_dependents_add(TtlDeletion *deletion, TtlToDelete *to_delete, ItemPointer tid);

/* Adds rows, if rows of their table may go along. */
extern void ttl_fk_dependents_add_rows(TtlDeletion *deletion, const TtlRelTids *rows);

/* May rows of the referencing table go along, and if so, expired by when? */
extern bool ttl_fk_dependents_may_go_along(const TtlDeletion *deletion, Oid table,
										   TimestampTz *expired_at);

/* Adds what references the rows to delete, and so on. */
extern void ttl_fk_dependents_search(TtlDeletion *deletion);

/*
 * A foreign key with NO ACTION, RESTRICT or CASCADE that references a table.  Its rows
 * that had expired by 'expired_at' may go along; DT_NOBEGIN = none.
 */
typedef struct TtlReference
{
	TtlForeignKey key;
	bool		cascades;
	bool		fires;			/* in an ordinary session */
	TimestampTz expired_at;
} TtlReference;

/* Those that reference the table; of a partitioned referencing table it is one. */
extern List *ttl_fk_dependents_references(const TtlDeletion *deletion, Relation rel);

typedef enum TtlFkQuery
{
	TTL_FK_QUERY_EXPIRED,		/* rows that may go along: tableoid, ctid */
	TTL_FK_QUERY_IS_HELD		/* positions of TIDs that others reference */
} TtlFkQuery;

/*
 * Executes a query on what references, by that key, the rows with these TIDs.  It is that
 * of the foreign key itself, so it is done as the owner of the referencing table.  The
 * result is SPI's until ttl_owner_end().
 */
extern void ttl_fk_dependents_query(const TtlDeletion *deletion, Relation rel,
									const TtlReference *reference,
									const ItemPointerData *tids, int ntids,
									TtlFkQuery query, TtlIdentity *saved);

#endif							/* TTL_FK_DEPENDENTS_H */
