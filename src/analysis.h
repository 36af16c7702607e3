/*-------------------------------------------------------------------------
 *
 * analysis.h
 *	  Observers of parse analysis.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_ANALYSIS_H
#define TTL_ANALYSIS_H

#include "parser/parse_node.h"

/* Called with each statement that has been analyzed, before it is rewritten. */
typedef void (*TtlAnalysisObserver) (ParseState *pstate, Query *query);

extern void ttl_analysis_observe(TtlAnalysisObserver observer);

extern void ttl_analysis_init(void);

#endif							/* TTL_ANALYSIS_H */
