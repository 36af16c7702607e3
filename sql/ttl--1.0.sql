/* sql/ttl--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION ttl" to load this file. \quit

CREATE SCHEMA ttl;
GRANT USAGE ON SCHEMA ttl TO PUBLIC;
COMMENT ON SCHEMA ttl IS 'Time-To-Live for rows';

--
-- The catalog
--

-- Names, not attribute numbers: it is dumped and restored with the database.
-- C code maps the columns by position, see container.h.
-- Each session reads its definition with its first container: what comes in by SQL is checked by a trigger, and
-- not by constraints.
CREATE TABLE ttl.container (
    relid regclass PRIMARY KEY,
    default_time_to_live integer,
    ts_column name,
    ttl_column name,
    ttl_unit text,
    ts_unit text,
    indexing text NOT NULL,
    touch_on_update boolean NOT NULL,
    ts_precision interval,
    reaping boolean NOT NULL,
    reap_delay interval NOT NULL,
    archive_to regclass,
    replication_origin boolean NOT NULL DEFAULT false,
    grace_began_at timestamptz,
    grace_noticed_at timestamptz,
    grace_partition regclass,
    created_objects text[] NOT NULL DEFAULT '{}',
    propagated boolean NOT NULL DEFAULT false
);
-- whatever default privileges say
REVOKE ALL ON ttl.container FROM PUBLIC;
GRANT SELECT ON ttl.container TO PUBLIC;
COMMENT ON TABLE ttl.container IS 'tables with Time-To-Live; only functions of schema ttl write it';
COMMENT ON COLUMN ttl.container.relid IS 'the table';
COMMENT ON COLUMN ttl.container.default_time_to_live IS
    'seconds that a row without a TTL of its own lives after _ts; -1 = for ever, NULL = TTL is off';
COMMENT ON COLUMN ttl.container.ts_column IS
    'column that holds when a row was last modified; NULL = rows have deadlines alone';
COMMENT ON COLUMN ttl.container.ttl_column IS
    'column that holds a row''s own TTL or its deadline; NULL = rows have none';
COMMENT ON COLUMN ttl.container.ttl_unit IS
    'unit of numbers since 1970 in the TTL column; NULL = they are durations in seconds';
COMMENT ON COLUMN ttl.container.ts_unit IS
    'unit of numbers since 1970 in the timestamp column; NULL = it is a timestamp';
COMMENT ON COLUMN ttl.container.indexing IS 'expiry indexes: consistent, or none';
COMMENT ON COLUMN ttl.container.touch_on_update IS 'whether UPDATE resets the clock';
COMMENT ON COLUMN ttl.container.ts_precision IS
    'the present is rounded up to a multiple of it when it is written to the timestamp column; NULL = exact';
COMMENT ON COLUMN ttl.container.reaping IS 'whether the background worker deletes expired rows';
COMMENT ON COLUMN ttl.container.reap_delay IS 'how long rows stay stored after their expiry';
COMMENT ON COLUMN ttl.container.archive_to IS 'table that expired rows go to when they are deleted; NULL = none';
COMMENT ON COLUMN ttl.container.replication_origin IS 'whether deletions have the replication origin "ttl"';
COMMENT ON COLUMN ttl.container.grace_began_at IS
    'when the reaper noticed the first of the last changes of the policy that made rows expire earlier, each within '
    'ttl.grace of the one before; infinity = not yet, NULL = there is none';
COMMENT ON COLUMN ttl.container.grace_noticed_at IS
    'when the reaper noticed the last of them; ttl.grace counts from here; infinity = not yet, NULL = there is none';
COMMENT ON COLUMN ttl.container.grace_partition IS
    'the partition whose ATTACH was the change; NULL = the change concerns all';
COMMENT ON COLUMN ttl.container.created_objects IS
    'what was added to the table, and is dropped when it is unregistered: ts_column, ts_default, ttl_column, '
    'default_index, item_index';
COMMENT ON COLUMN ttl.container.propagated IS
    'whether the policy comes from the coordinator of a Citus cluster, by the row trigger';

-- A table may have been dropped while the library wasn't loaded: its number would be that
-- of another where the dump is restored.
SELECT pg_catalog.pg_extension_config_dump('ttl.container',
    'WHERE NOT propagated AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) relid)');

-- Rows come in by SQL when a dump is restored: nothing is deleted from such a
-- container before its owner says so.  And when a publication FOR ALL TABLES
-- sends them: a subscriber has policies of its own.
CREATE FUNCTION ttl.restore_container() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME', 'ttl_restore_container';
REVOKE EXECUTE ON FUNCTION ttl.restore_container() FROM PUBLIC;
COMMENT ON FUNCTION ttl.restore_container() IS
    'trigger: a restored container comes back with reaping off, a replicated one not at all';

CREATE TRIGGER restore BEFORE INSERT OR UPDATE OR DELETE ON ttl.container
    FOR EACH ROW EXECUTE FUNCTION ttl.restore_container();
ALTER TABLE ttl.container ENABLE ALWAYS TRIGGER restore;
COMMENT ON TRIGGER restore ON ttl.container IS
    'a restored container comes back with reaping off, a replicated one not at all';

CREATE TRIGGER truncate BEFORE TRUNCATE ON ttl.container
    FOR EACH STATEMENT EXECUTE FUNCTION ttl.restore_container();
ALTER TABLE ttl.container ENABLE ALWAYS TRIGGER truncate;
COMMENT ON TRIGGER truncate ON ttl.container IS 'only the functions of schema ttl change policies';

--
-- What the planner and the indexes of a container call
--

CREATE FUNCTION ttl.is_live(container regclass, _ts timestamptz, ttl "any") RETURNS boolean
    LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_is_live';
GRANT EXECUTE ON FUNCTION ttl.is_live(regclass, timestamptz, "any") TO PUBLIC;
COMMENT ON FUNCTION ttl.is_live(regclass, timestamptz, "any") IS 'filter that hides expired rows of a container';

CREATE FUNCTION ttl.is_live(container regclass) RETURNS boolean
    LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_is_live_by_tid';
GRANT EXECUTE ON FUNCTION ttl.is_live(regclass) TO PUBLIC;
COMMENT ON FUNCTION ttl.is_live(regclass) IS 'the same in an index-only scan, by the TID of the row';

CREATE FUNCTION ttl.is_expired(container regclass, _ts timestamptz, ttl "any") RETURNS boolean
    LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'ttl_is_expired';
GRANT EXECUTE ON FUNCTION ttl.is_expired(regclass, timestamptz, "any") TO PUBLIC;
COMMENT ON FUNCTION ttl.is_expired(regclass, timestamptz, "any") IS
    'filter by which a deletion of expired rows finds them; false elsewhere';

-- The values of the timestamp column that ttl writes are multiples of so many microseconds, the
-- step, and numbers since 1970 in the unit, if there is one.
CREATE FUNCTION ttl.stamp(_ts anyelement, step bigint, unit text) RETURNS anyelement
    LANGUAGE C VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_stamp';
GRANT EXECUTE ON FUNCTION ttl.stamp(anyelement, bigint, text) TO PUBLIC;
COMMENT ON FUNCTION ttl.stamp(anyelement, bigint, text) IS 'the _ts that an UPDATE writes';

CREATE FUNCTION ttl.complete(_ts anyelement, step bigint, unit text) RETURNS anyelement
    LANGUAGE C VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_complete';
GRANT EXECUTE ON FUNCTION ttl.complete(anyelement, bigint, text) TO PUBLIC;
COMMENT ON FUNCTION ttl.complete(anyelement, bigint, text) IS
    'the _ts that an INSERT writes: what it gives, or the present';

-- The same in an UPDATE that Citus sends to several copies of a row: it lets nothing pass that isn't
-- labelled IMMUTABLE, and the column among the arguments keeps the planner from calling it.
CREATE FUNCTION ttl.shard_stamp(_ts anyelement, assigned anyelement, now timestamptz, step bigint, unit text)
    RETURNS anyelement
    LANGUAGE C IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_shard_stamp';
GRANT EXECUTE ON FUNCTION ttl.shard_stamp(anyelement, anyelement, timestamptz, bigint, text) TO PUBLIC;
COMMENT ON FUNCTION ttl.shard_stamp(anyelement, anyelement, timestamptz, bigint, text) IS
    'the _ts that an UPDATE writes where Citus keeps several copies of a row';

-- Citus calls it once, for all copies of a row.
CREATE FUNCTION ttl.shard_now() RETURNS timestamptz
    LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_shard_now';
GRANT EXECUTE ON FUNCTION ttl.shard_now() TO PUBLIC;
COMMENT ON FUNCTION ttl.shard_now() IS 'the present, for all copies of a row that an UPDATE writes';

CREATE FUNCTION ttl.item_expiry(_ts timestamptz, ttl integer) RETURNS timestamptz
    LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_item_expiry';
GRANT EXECUTE ON FUNCTION ttl.item_expiry(timestamptz, integer) TO PUBLIC;
COMMENT ON FUNCTION ttl.item_expiry(timestamptz, integer) IS
    'expiry of a row with a TTL of its own; expression of an expiry index';

CREATE FUNCTION ttl.item_expiry(_ts timestamp, ttl integer) RETURNS timestamptz
    LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_item_expiry';
GRANT EXECUTE ON FUNCTION ttl.item_expiry(timestamp, integer) TO PUBLIC;
COMMENT ON FUNCTION ttl.item_expiry(timestamp, integer) IS 'the same, for a _ts in UTC';

CREATE FUNCTION ttl.item_ttl(ttl "any") RETURNS integer
    LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_item_ttl';
GRANT EXECUTE ON FUNCTION ttl.item_ttl("any") TO PUBLIC;
COMMENT ON FUNCTION ttl.item_ttl("any") IS
    'TTL of a number, or of a document by its root-level key "ttl": seconds, -1 = never, NULL = none, the default '
    'applies';

CREATE FUNCTION ttl.instant(value "any", unit text) RETURNS timestamptz
    LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_instant';
GRANT EXECUTE ON FUNCTION ttl.instant("any", text) TO PUBLIC;
COMMENT ON FUNCTION ttl.instant("any", text) IS 'timestamp of a number since 1970; NULL = out of range';

CREATE FUNCTION ttl.instant(value date) RETURNS timestamptz
    LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_instant';
GRANT EXECUTE ON FUNCTION ttl.instant(date) TO PUBLIC;
COMMENT ON FUNCTION ttl.instant(date) IS 'start of a day, in UTC';

CREATE FUNCTION ttl.on_write() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME', 'ttl_on_write';
GRANT EXECUTE ON FUNCTION ttl.on_write() TO PUBLIC;
COMMENT ON FUNCTION ttl.on_write() IS
    'row trigger of every container: sets _ts if it is NULL, and deletes expired rows that hold the new row''s keys';

CREATE FUNCTION ttl.archive() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME', 'ttl_archive';
GRANT EXECUTE ON FUNCTION ttl.archive() TO PUBLIC;
COMMENT ON FUNCTION ttl.archive() IS
    'trigger of containers with an archive: inserts a row that was deleted after it had expired into the archive';

CREATE FUNCTION ttl.check_reference() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME', 'ttl_check_reference';
REVOKE EXECUTE ON FUNCTION ttl.check_reference() FROM PUBLIC;
COMMENT ON FUNCTION ttl.check_reference() IS
    'takes the place of a foreign key''s check from PostgreSQL 19 on: an expired row is absent';

--
-- Configuration
--

-- The default TTL is a number, an interval, or a text that is either.  A column's name
-- that is left out is empty: NULL says that there is no such column.
CREATE FUNCTION ttl.create_container(
    container regclass,
    default_ttl anycompatible DEFAULT NULL::integer,
    ts_column name DEFAULT '',
    ttl_column name DEFAULT '',
    indexing text DEFAULT 'consistent',
    touch_on_update boolean DEFAULT true,
    ttl_unit text DEFAULT 'seconds',
    ts_unit text DEFAULT NULL,
    ts_precision interval DEFAULT NULL,
    if_not_exists boolean DEFAULT false) RETURNS void
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_create_container';
COMMENT ON FUNCTION ttl.create_container(regclass, anycompatible, name, name, text, boolean, text, text, interval,
                                         boolean) IS
    'registers a table as a container: gives its rows Time-To-Live';

CREATE FUNCTION ttl.set_default_ttl(container regclass, default_ttl anycompatible) RETURNS void
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_set_default_ttl';
COMMENT ON FUNCTION ttl.set_default_ttl(regclass, anycompatible) IS
    'changes the default TTL of a container: seconds or an interval, -1 = never, NULL = off';

CREATE FUNCTION ttl.create_ttl_index(collection text, expire_after_seconds anycompatible) RETURNS jsonb
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_create_ttl_index';
COMMENT ON FUNCTION ttl.create_ttl_index(text, anycompatible) IS
    'createIndex({"_ts": 1}, {expireAfterSeconds: n}) of MongoDB: registers a table or changes its default TTL; '
    'creates a table of documents if it does not exist';

CREATE FUNCTION ttl.version() RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'ttl_version';
COMMENT ON FUNCTION ttl.version() IS
    'the versions of the loaded library and of the extension''s objects; an error if they do not fit';

CREATE FUNCTION ttl.default_ttl(container regclass) RETURNS integer
    LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_default_ttl';
COMMENT ON FUNCTION ttl.default_ttl(regclass) IS 'the default TTL of a container';

CREATE FUNCTION ttl.seconds("interval" interval) RETURNS integer
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_seconds';
COMMENT ON FUNCTION ttl.seconds(interval) IS 'an interval as a TTL, in whole seconds';

CREATE FUNCTION ttl.alter_container(
    container regclass,
    indexing text DEFAULT NULL,
    touch_on_update boolean DEFAULT NULL,
    ts_precision interval DEFAULT NULL,
    reaping boolean DEFAULT NULL,
    reap_delay interval DEFAULT NULL,
    archive_to regclass DEFAULT NULL,
    replication_origin boolean DEFAULT NULL) RETURNS void
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_alter_container';
COMMENT ON FUNCTION ttl.alter_container(regclass, text, boolean, interval, boolean, interval, regclass, boolean) IS
    'changes settings of a container; NULL leaves one as it is';

CREATE FUNCTION ttl.drop_container(container regclass, drop_columns boolean DEFAULT false) RETURNS void
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_drop_container';
COMMENT ON FUNCTION ttl.drop_container(regclass, boolean) IS
    'unregisters a container; its rows stay and become visible';

--
-- Questions about rows
--

CREATE FUNCTION ttl.expires_at(item record) RETURNS timestamptz
    LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_expires_at';
COMMENT ON FUNCTION ttl.expires_at(record) IS 'when a row of a container expires; NULL = never';

CREATE FUNCTION ttl.time_to_live(item record) RETURNS integer
    LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'ttl_time_to_live';
COMMENT ON FUNCTION ttl.time_to_live(record) IS 'whole seconds that a row of a container has left; -1 = for ever';

CREATE FUNCTION ttl.expired_count(container regclass) RETURNS bigint
    LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'ttl_expired_count';
COMMENT ON FUNCTION ttl.expired_count(regclass) IS 'rows of a container that are expired and not yet deleted';

CREATE FUNCTION ttl.expiring_rows(container regclass, within interval, OUT key jsonb, OUT expires_at timestamptz)
    RETURNS SETOF record
    LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'ttl_expiring_rows';
COMMENT ON FUNCTION ttl.expiring_rows(regclass, interval) IS 'the same, unordered';

-- STABLE and not STRICT, so that the planner inlines it and errors have no CONTEXT.
CREATE FUNCTION ttl.expiring(container regclass, within interval, OUT key jsonb, OUT expires_at timestamptz)
    RETURNS SETOF record
    LANGUAGE sql STABLE
    BEGIN ATOMIC
        SELECT e.key, e.expires_at FROM ttl.expiring_rows(container, within) AS e ORDER BY e.expires_at, e.key;
    END;
COMMENT ON FUNCTION ttl.expiring(regclass, interval) IS
    'rows of a container that expire within that time, by their primary keys, the soonest first';

CREATE FUNCTION ttl.next_expiry(container regclass) RETURNS timestamptz
    LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'ttl_next_expiry';
COMMENT ON FUNCTION ttl.next_expiry(regclass) IS
    'when the next row of a container expires, by its expiry indexes; NULL = none, or not known';

--
-- Deletion
--

CREATE PROCEDURE ttl.reap(container regclass DEFAULT NULL, max_rows bigint DEFAULT NULL)
    LANGUAGE C AS 'MODULE_PATHNAME', 'ttl_reap';
COMMENT ON PROCEDURE ttl.reap(regclass, bigint) IS 'deletes expired rows now, without a cost budget';

-- One row, or none.  It isn't dumped: another database isn't paused.
CREATE TABLE ttl.paused (until timestamptz NOT NULL);
REVOKE ALL ON ttl.paused FROM PUBLIC;
GRANT SELECT ON ttl.paused TO PUBLIC;
COMMENT ON TABLE ttl.paused IS 'pause of deletion in this database; only ttl.pause() and ttl.resume() write it';
COMMENT ON COLUMN ttl.paused.until IS 'end of the pause; infinity = until ttl.resume() is called';

CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON ttl.paused
    FOR EACH ROW EXECUTE FUNCTION ttl.restore_container();
ALTER TABLE ttl.paused ENABLE ALWAYS TRIGGER refuse;
COMMENT ON TRIGGER refuse ON ttl.paused IS 'a pause is not replicated, and only the functions of schema ttl change it';

CREATE FUNCTION ttl.pause(until timestamptz DEFAULT NULL) RETURNS void
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_pause';
COMMENT ON FUNCTION ttl.pause(timestamptz) IS
    'stops deletion by the worker in this database until then, or until ttl.resume() is called';

CREATE FUNCTION ttl.resume() RETURNS void
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_resume';
COMMENT ON FUNCTION ttl.resume() IS
    'resumes deletion by the worker after ttl.pause(), and after a recovery to a point in time or the restore of a '
    'base backup';

CREATE FUNCTION ttl.stat_containers(
    OUT container regclass,
    OUT rows_deleted bigint,
    OUT rows_evicted bigint,
    OUT batches bigint,
    OUT cost bigint,
    OUT lag interval,
    OUT last_reap timestamptz,
    OUT blocked_rows bigint,
    OUT last_error text,
    OUT last_error_at timestamptz,
    OUT held_until timestamptz,
    OUT stats_since timestamptz) RETURNS SETOF record
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_stat_containers';
COMMENT ON FUNCTION ttl.stat_containers() IS 'statistics of deletion from each container of this database';

CREATE FUNCTION ttl.stat_shards(
    OUT container text,
    OUT rows_deleted bigint,
    OUT rows_evicted bigint,
    OUT batches bigint,
    OUT cost bigint,
    OUT lag interval,
    OUT last_reap timestamptz,
    OUT blocked_rows bigint,
    OUT last_error text,
    OUT last_error_at timestamptz,
    OUT held_until timestamptz,
    OUT stats_since timestamptz) RETURNS SETOF record
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_stat_shards';
COMMENT ON FUNCTION ttl.stat_shards() IS 'the same for each shard on this node, by the name of its distributed table';

CREATE FUNCTION ttl.stat_reaper(
    OUT database name,
    OUT state text,
    OUT cycles bigint,
    OUT cost_granted bigint,
    OUT cost_spent bigint,
    OUT foreground_cost bigint,
    OUT last_cycle timestamptz,
    OUT stopped_by text) RETURNS SETOF record
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_stat_reaper';
COMMENT ON FUNCTION ttl.stat_reaper() IS 'statistics of the reaper of each database';

CREATE FUNCTION ttl.hold_reason() RETURNS text
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME', 'ttl_hold_reason';
COMMENT ON FUNCTION ttl.hold_reason() IS 'why the background worker deletes nothing in this database; NULL = it does';

CREATE FUNCTION ttl.outlook(container regclass, OUT problem text, OUT gain double precision) RETURNS record
    LANGUAGE C VOLATILE STRICT AS 'MODULE_PATHNAME', 'ttl_outlook';
COMMENT ON FUNCTION ttl.outlook(regclass) IS
    'why rows of a container cannot be deleted, and how many seconds its lag loses in a second; NULL = nothing, or '
    'not known';

--
-- Views
--

CREATE VIEW ttl.containers AS
    SELECT relid AS container,
           default_time_to_live AS default_ttl,
           ts_column,
           ttl_column,
           indexing,
           touch_on_update,
           ts_precision,
           reaping,
           reap_delay,
           archive_to
      FROM ttl.container
     WHERE NOT propagated;
REVOKE ALL ON ttl.containers FROM PUBLIC;
GRANT SELECT ON ttl.containers TO PUBLIC;
COMMENT ON VIEW ttl.containers IS 'tables with Time-To-Live and their settings';
COMMENT ON COLUMN ttl.containers.container IS 'the table';
COMMENT ON COLUMN ttl.containers.default_ttl IS
    'seconds that a row without a TTL of its own lives after its last change; -1 = for ever, NULL = TTL is off';
COMMENT ON COLUMN ttl.containers.ts_column IS
    'column that holds when a row was last modified; NULL = rows have deadlines alone';
COMMENT ON COLUMN ttl.containers.ttl_column IS
    'column that holds a row''s own TTL or its deadline; NULL = rows have none';
COMMENT ON COLUMN ttl.containers.indexing IS 'expiry indexes: consistent, or none';
COMMENT ON COLUMN ttl.containers.touch_on_update IS 'whether UPDATE resets the clock';
COMMENT ON COLUMN ttl.containers.ts_precision IS
    'the present is rounded up to a multiple of it when it is written to the timestamp column; NULL = exact';
COMMENT ON COLUMN ttl.containers.reaping IS 'whether the background worker deletes expired rows';
COMMENT ON COLUMN ttl.containers.reap_delay IS 'how long rows stay stored after their expiry';
COMMENT ON COLUMN ttl.containers.archive_to IS 'table that expired rows go to when they are deleted; NULL = none';

CREATE VIEW ttl.stat_containers AS SELECT * FROM ttl.stat_containers();
REVOKE ALL ON ttl.stat_containers FROM PUBLIC;
GRANT SELECT ON ttl.stat_containers TO PUBLIC;
COMMENT ON VIEW ttl.stat_containers IS 'statistics of deletion from each container of this database';
COMMENT ON COLUMN ttl.stat_containers.container IS 'the table';
COMMENT ON COLUMN ttl.stat_containers.rows_deleted IS 'rows deleted by the background worker and CALL ttl.reap';
COMMENT ON COLUMN ttl.stat_containers.rows_evicted IS 'expired rows deleted by statements that needed their key';
COMMENT ON COLUMN ttl.stat_containers.batches IS 'number of transactions that deleted';
COMMENT ON COLUMN ttl.stat_containers.cost IS 'cost of deletion, in the units of vacuum''s cost model';
COMMENT ON COLUMN ttl.stat_containers.lag IS
    'age of the oldest expired row still stored that is not blocked; NULL = none, or not known';
COMMENT ON COLUMN ttl.stat_containers.last_reap IS 'time of the last batch';
COMMENT ON COLUMN ttl.stat_containers.blocked_rows IS
    'expired rows that the last pass could not delete; they are retried';
COMMENT ON COLUMN ttl.stat_containers.last_error IS 'last error of a deletion; for the owner and pg_read_all_stats';
COMMENT ON COLUMN ttl.stat_containers.last_error_at IS 'time of the last error';
COMMENT ON COLUMN ttl.stat_containers.held_until IS
    'time until which ttl.grace or reap_delay keeps the oldest expired row stored, infinity = as long as reaping is '
    'off; NULL = nothing keeps it';
COMMENT ON COLUMN ttl.stat_containers.stats_since IS
    'time since which statistics are counted: the start of the server, or its last crash';

CREATE VIEW ttl.status AS
    SELECT c.container,
           CASE WHEN c.default_ttl IS NULL THEN 'off'
                WHEN c.default_ttl = -1 THEN 'never'
                ELSE justify_hours(make_interval(secs => c.default_ttl))::text
           END AS default_ttl,
           CASE WHEN o.problem LIKE 'damaged%' THEN o.problem
                WHEN c.default_ttl IS NULL THEN 'TTL is off'
                WHEN h.reason IS NOT NULL THEN h.reason
                WHEN NOT c.reaping THEN 'reaping is off'
                WHEN o.problem IS NOT NULL THEN o.problem
                WHEN s.lag IS NULL AND s.blocked_rows > 0 THEN 'blocked: ' || s.blocked_rows ||
                     CASE s.blocked_rows WHEN 1 THEN ' row' ELSE ' rows' END
                WHEN s.lag IS NULL THEN 'idle'
                WHEN s.held_until IS NOT NULL THEN 'kept until ' || s.held_until::timestamptz(0)
                WHEN s.lag - c.reap_delay < '1 minute' THEN 'keeping up'
                WHEN extract(epoch FROM s.lag) / o.gain < 3e9
                THEN 'behind, done in ' ||
                     justify_hours(make_interval(secs => trunc(extract(epoch FROM s.lag) / o.gain)))
                ELSE 'behind'
           END
           || CASE WHEN s.blocked_rows > 0 AND s.lag IS NOT NULL THEN ', ' || s.blocked_rows || ' blocked' ELSE '' END
           || CASE WHEN u.is_subscribed THEN ', subscribed' ELSE '' END AS state,
           date_trunc('second', s.lag) AS lag,
           ttl.next_expiry(c.container)::timestamptz(0) AS next_expiry
      FROM (SELECT ttl.hold_reason() AS reason) AS h
     CROSS JOIN ttl.containers AS c
      LEFT JOIN ttl.stat_containers() AS s ON s.container = c.container
     CROSS JOIN LATERAL ttl.outlook(c.container) AS o
     CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pg_subscription_rel
                                         WHERE c.container IN (srrelid, pg_partition_root(srrelid))))
           AS u (is_subscribed);
REVOKE ALL ON ttl.status FROM PUBLIC;
GRANT SELECT ON ttl.status TO PUBLIC;
COMMENT ON VIEW ttl.status IS 'the state of each container of this database, in words';
COMMENT ON COLUMN ttl.status.container IS 'the table';
COMMENT ON COLUMN ttl.status.default_ttl IS
    'how long a row without a TTL of its own lives; never = for ever, off = TTL is off';
COMMENT ON COLUMN ttl.status.state IS
    'what the background worker does with its expired rows, and why: damaged, TTL is off, why there is no worker, '
    'reaping is off, failing, blocked, idle (there are none), kept until ttl.grace or reap_delay ends, keeping up, or '
    'behind, and when it will be done; whether a subscription writes it';
COMMENT ON COLUMN ttl.status.lag IS 'age of the oldest expired row still stored that is not blocked; NULL = none';
COMMENT ON COLUMN ttl.status.next_expiry IS 'when the next row expires; NULL = none, or not known';

CREATE VIEW ttl.stat_reaper AS SELECT * FROM ttl.stat_reaper();
REVOKE ALL ON ttl.stat_reaper FROM PUBLIC;
GRANT SELECT ON ttl.stat_reaper TO PUBLIC;
COMMENT ON VIEW ttl.stat_reaper IS 'statistics of the reaper of each database';
COMMENT ON COLUMN ttl.stat_reaper.database IS 'name of the database';
COMMENT ON COLUMN ttl.stat_reaper.state IS
    'idle, working, waiting (there is work, but no budget or no worker slot), paused (by ttl.pause), off, held after '
    'recovery to a point in time or after restore of a base backup, or stopped (no container with TTL on)';
COMMENT ON COLUMN ttl.stat_reaper.cycles IS 'cycles run';
COMMENT ON COLUMN ttl.stat_reaper.cost_granted IS 'sum of the budgets of all cycles, in cost units';
COMMENT ON COLUMN ttl.stat_reaper.cost_spent IS 'cost units that all cycles have spent';
COMMENT ON COLUMN ttl.stat_reaper.foreground_cost IS 'cost units that users have spent in the database';
COMMENT ON COLUMN ttl.stat_reaper.last_cycle IS 'start of the last cycle';
COMMENT ON COLUMN ttl.stat_reaper.stopped_by IS
    'why the last cycle ended: nothing left, cost limit, time, throughput or replica lag';
