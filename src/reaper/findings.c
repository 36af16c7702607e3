/*-------------------------------------------------------------------------
 *
 * findings.c
 *	  What deletion has found in the tables of a container, for the statistics and for the next worker.
 *
 * The statistics (counters.h) are those of a container, made of the states of its tables: how many rows cannot be
 * deleted, and how far deletion has come.  Where this process knows nothing of a table yet, what
 * others have found counts.
 *
 * A worker may live for one cycle only, so it leaves a pass with blocked rows, or with such as take
 * long, to the next one, which should neither begin it anew, or it would never come to what is
 * behind them, nor repeat it too soon.  There is room for the pass of one table: that which goes on keeps it
 * until it ends, then it is another table's turn.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "counters.h"
#include "expiry/expiry.h"
#include "reaper/findings.h"
#include "reaper/reap_table.h"

/*
 * The number of rows that cannot be deleted, as far as known.  A running pass has
 * not met all of them yet, so the number of the pass before counts, if there was one.
 */
static int64
blocked_rows(const TtlReapRel *reap_rel)
{
	const TtlPass *pass = &reap_rel->pass;
	int64		blocked = pass->blocked + reap_rel->blocked;

	return pass->is_running && reap_rel->is_known ? Max(blocked, pass->last_blocked) : blocked;
}

/* True if the pass of the table is to be left rather than the other's, which may be NULL. */
static bool
comes_first(const TtlReapRel *reap_rel, const TtlReapRel *other, Oid left_before)
{
	/* the next worker finds the others again at little cost */
	if (blocked_rows(reap_rel) == 0 && reap_rel->pass.n_single == 0)
		return false;
	if (other == NULL || reap_rel->pass.is_running != other->pass.is_running)
		return other == NULL || reap_rel->pass.is_running;
	return reap_rel->relid == left_before;
}

/*
 * Updates the statistics of a container by the states of all its tables (TtlReapRel).  Returns the number of
 * rows that cannot be deleted.
 */
int64
ttl_findings_report(const TtlReapMode *mode, Oid container, int32 default_ttl, const List *tables, bool has_more)
{
	TtlContainerCounters counters;
	TtlFindings found = {
		.is_complete = true,
		.has_front = mode->commits,
		.expiry = DT_NOEND
	};
	bool		is_failing = false;
	const TtlReapRel *left = NULL;
	ListCell   *lc;

	if (!ttl_counters_get_container(container, &counters))
		memset(&counters, 0, sizeof(counters));
	foreach(lc, tables)
	{
		const TtlReapRel *reap_rel = (const TtlReapRel *) lfirst(lc);

		found.blocked_rows += blocked_rows(reap_rel);
		found.is_complete = found.is_complete && reap_rel->is_known;
		is_failing = is_failing || reap_rel->is_failing;
		if (comes_first(reap_rel, left, counters.pass_relid))
			left = reap_rel;
		for (int i = 0; i < TTL_INDEXES; i++)
		{
			/*
			 * of a table that this process has not come to yet, what others
			 * have found
			 */
			const TtlExpiryPosition *known = reap_rel->front.set[i] ? &reap_rel->front : &counters.front;
			bool		is_first = lc == list_head(tables);
			TimestampTz key = known->at[i];

			/* the front of the table that is the furthest behind */
			found.front.set[i] = known->set[i] && (is_first || found.front.set[i]);
			found.front.at[i] = is_first ? key : Min(found.front.at[i], key);
			if (known->set[i])
				found.expiry = Min(found.expiry, i == TTL_INDEX_ITEM ? key :
								   ttl_expiry_add(key, Max(default_ttl, 1)));
		}
	}
	if (!has_more)
		found.expiry = DT_NOEND;

	/*
	 * a CALL leaves alone what the worker has noted, maybe since this has
	 * read it
	 */
	if (!mode->by_worker)
		found.has_front = found.has_front && found.is_complete;
	else
		ttl_counters_set_pass(container, is_failing, left != NULL ? left->relid : InvalidOid,
							  left != NULL ? &left->pass : NULL, sizeof(TtlPass));
	ttl_counters_set_run(container, &found);
	return found.is_complete ? found.blocked_rows : Max(found.blocked_rows, counters.blocked_rows);
}
