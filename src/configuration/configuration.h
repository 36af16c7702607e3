/*-------------------------------------------------------------------------
 *
 * configuration.h
 *	  How a container is set up, and what follows and guards it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef TTL_CONFIGURATION_H
#define TTL_CONFIGURATION_H

#include "catalog/objectaccess.h"
#include "catalog/pg_attribute.h"
#include "container/container.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/relcache.h"

/* alter.c */
extern void ttl_argument_refuse_null(FunctionCallInfo fcinfo, int n, const char *name);
extern Oid	ttl_argument_container(FunctionCallInfo fcinfo, const char *function);
extern int32 ttl_argument_default_ttl(FunctionCallInfo fcinfo);
extern Bitmapset *ttl_argument_settings(FunctionCallInfo fcinfo, TtlPolicy *policy);
extern bool ttl_argument_boolean(FunctionCallInfo fcinfo, int n, const char *name);

extern void ttl_alter_default_ttl(Oid relid, int32 default_ttl);

/* table.c */
extern Form_pg_attribute ttl_table_find_column(Relation rel, const char *name);
extern void ttl_table_check_kind(Relation rel);
extern void ttl_table_check_storage(const List *tables);
extern void ttl_table_check_policy(Oid relid, const TtlPolicy *policy);
extern void ttl_table_check_columns(Relation rel, const TtlPolicy *policy);
extern void ttl_table_check_uses(Oid relid, const TtlPolicy *policy, LOCKMODE lockmode);
extern void ttl_table_check_uses_of_table(Oid relid);
extern void ttl_table_check_new_index(HeapTuple index);
extern bool ttl_table_has_rows_elsewhere(Oid relid);
extern void ttl_table_add_columns(Oid relid, TtlPolicy *policy);
extern void ttl_table_comment(Oid relid, const TtlPolicy *policy);
extern void ttl_table_complete_partition(Oid parent, Oid partition, const TtlPolicy *policy);
extern void ttl_table_renew_default(Oid relid, const TtlPolicy *policy);
extern void ttl_table_take_back(Oid relid, const TtlPolicy *policy, bool drop);

extern void ttl_table_create_indexes(Oid relid, TtlPolicy *policy);
extern void ttl_table_drop_indexes(Oid relid, TtlPolicy *policy);

extern void ttl_table_check_settable(Oid relid);
extern void ttl_table_lock_distributed(Oid relid, LOCKMODE lockmode);
extern void ttl_table_create_trigger(Oid relid, const TtlPolicy *policy);
extern void ttl_table_restore_triggers(Oid relid, const TtlPolicy *policy);
extern void ttl_table_send_policy(Oid relid, const TtlPolicy *policy);
extern void ttl_table_drop_trigger(Oid relid);

/* notice.c */
extern void ttl_notice_made_expired(Oid relid, const TtlPolicy *policy, int32 old_default);
extern void ttl_notice_made_visible(Oid relid, int32 old_default, int32 new_default);
extern void ttl_notice_copies(const CreateStmt *stmt);
extern void ttl_notice_without_default(Oid relid, const TtlPolicy *policy);
extern void ttl_notice_dropped_extension(const List *containers);
extern void ttl_notice_trigger_disabled(Oid relid, const char *trigger, const char *detail);
extern void ttl_notice_detached(Oid relid);
extern void ttl_notice_subscribed(Oid relid);

/* ddl.c; all but the first are for the hooks of ttl.c */
extern void ttl_ddl_subscription_begins(Oid container, const List *tables);
extern void ttl_ddl_before_utility(PlannedStmt *pstmt, ProcessUtilityContext context, bool by_citus);
extern void ttl_ddl_after_utility(PlannedStmt *pstmt, ProcessUtilityContext context, bool by_citus);
extern void ttl_ddl_object_changed(ObjectAccessType access, Oid class_id, Oid object_id,
								   int sub_id, void *arg);

#endif							/* TTL_CONFIGURATION_H */
