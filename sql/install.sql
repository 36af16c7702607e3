-- The extension is created once for all the tests that follow
SHOW shared_preload_libraries;
CREATE EXTENSION ttl;
SELECT extname, extrelocatable FROM pg_extension WHERE extname = 'ttl';

-- So are roles, and functions that tests have in common
CREATE ROLE regress_ttl_owner;
CREATE ROLE regress_ttl_member IN ROLE regress_ttl_owner;
CREATE ROLE regress_ttl_user;

-- What a statement is refused with, for messages of ttl
CREATE FUNCTION refused(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    message text;
    detail text;
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'NOT REFUSED';
EXCEPTION WHEN OTHERS OR assert_failure THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ': ' || message ||
        CASE WHEN detail <> '' THEN E'\n  DETAIL: ' || detail ELSE '' END ||
        CASE WHEN hint <> '' THEN E'\n  HINT: ' || hint ELSE '' END;
END $$;

-- The same for messages of PostgreSQL, which differ from version to version
CREATE FUNCTION state(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;

-- All rows that are there, expired ones too
CREATE FUNCTION stored(c regclass) RETURNS TABLE (stored text) LANGUAGE plpgsql AS $$
DECLARE
    was text := current_setting('ttl.show_expired');
    rows text[];
BEGIN
    PERFORM set_config('ttl.show_expired', 'on', true);
    EXECUTE format('SELECT array_agg((to_jsonb(t) - ''_ts'' - ''ttl'')::text ORDER BY (to_jsonb(t) '
        '- ''_ts'' - ''ttl'')::text COLLATE "C") FROM %s t', c) INTO rows;
    PERFORM set_config('ttl.show_expired', was, true);
    RETURN QUERY SELECT unnest(rows);
END $$;

-- The library and the objects fit.  Those of another build don't, though the numbers are the same.
SELECT ttl.version();
BEGIN;
CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', 60);
SAVEPOINT fit;
ALTER TABLE ttl.container RENAME COLUMN indexing TO indexes;
SELECT refused('SELECT ttl.version()');
-- as in a session that has not read the policy yet
UPDATE pg_class SET relname = relname WHERE oid = 'item'::regclass;
SELECT refused('SELECT * FROM item');
SELECT refused($$SELECT ttl.drop_container('item')$$);
ROLLBACK TO fit;
ALTER FUNCTION ttl.stamp(anyelement, bigint, text) RENAME TO stamped;
SELECT refused('SELECT ttl.version()');
ROLLBACK TO fit;
UPDATE pg_proc SET prosrc = 'ttl_gone' WHERE oid = 'ttl.seconds(interval)'::regprocedure;
SELECT refused('SELECT ttl.version()');
ROLLBACK;
SELECT ttl.version();
