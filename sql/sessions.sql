-- Sessions: plans that are kept, languages, cursors, prepared transactions and
-- JIT make no difference to what has expired
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA sessions;
SET search_path = sessions, public;

-- Rows 1 and 2 are live, 3 and 4 expired by default, 5 by its own TTL
CREATE PROCEDURE refill(c regclass) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('TRUNCATE %s', c);
    EXECUTE format('INSERT INTO %s (id, n, _ts, ttl) SELECT i, i * 10, CASE WHEN i < 3 '
        'THEN ''2900-01-01'' ELSE ''2020-01-01'' END::timestamptz, CASE i WHEN 5 THEN 5 END FROM generate_series(1, 5) '
        'i', c);
END $$;
CREATE TABLE item (id int PRIMARY KEY, n int, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int);
CALL refill('item');

--
-- Plans
--

-- Statements that were prepared before the table was a container, and all that
-- becomes of it, with each kind of plan
-- What each of the statements answers now
CREATE FUNCTION executed(OUT ids text, OUT of_range bigint, OUT touched text, OUT joined bigint) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'EXECUTE ids' INTO ids;
    EXECUTE 'EXECUTE of_range(2, 4)' INTO of_range;
    EXECUTE 'EXECUTE touched(1)' INTO touched;
    EXECUTE 'EXECUTE joined' INTO joined;
END $$;
CREATE PROCEDURE prepare_all() LANGUAGE plpgsql AS $$
BEGIN
    DEALLOCATE ALL;
    PREPARE ids AS SELECT string_agg(id::text, ' ' ORDER BY id) FROM item;
    PREPARE of_range(int, int) AS SELECT count(*) FROM item WHERE id BETWEEN $1 AND $2;
    PREPARE touched(int) AS UPDATE item SET n = n WHERE id = $1 RETURNING CASE
        WHEN ((to_jsonb(item)->>'_ts')::timestamptz) < '2800-01-01' THEN 'touched' ELSE 'not touched' END;
    PREPARE joined AS SELECT count(b.id) FROM item a LEFT JOIN item b ON a.id = b.id - 1;
END $$;

-- The answers after each step of a container's life; in the end all is undone
CREATE PROCEDURE go_through_life() LANGUAGE plpgsql AS $$
DECLARE
    step text;
BEGIN
    CALL prepare_all();
    -- often enough for a generic plan to be chosen
    FOR i IN 1 .. 6 LOOP
        PERFORM executed();
    END LOOP;
    RAISE NOTICE '%', executed();
    FOREACH step IN ARRAY ARRAY[
        'SELECT ttl.create_container(''item'', 60, ''_ts'', ''ttl'')', 'SELECT ttl.set_default_ttl(''item'', NULL)',
            'SELECT ttl.set_default_ttl(''item'', -1)', 'SELECT ttl.set_default_ttl(''item'', 60)',
        'ALTER TABLE item RENAME COLUMN ttl TO lifetime; ALTER TABLE item RENAME COLUMN lifetime TO ttl',
            'SELECT ttl.alter_container(''item'', touch_on_update => false)',
            'SELECT ttl.alter_container(''item'', touch_on_update => true)',
        'SET LOCAL ttl.touch = off', 'SET LOCAL ttl.touch = on', 'SET LOCAL ttl.show_expired = on',
            'SET LOCAL ttl.show_expired = off', 'SET LOCAL ttl.now = ''2999-01-01''', 'SET LOCAL ttl.now = ''''',
        'ALTER TABLE item SET SCHEMA public; SET LOCAL search_path = public, sessions',
            'ALTER TABLE item SET SCHEMA sessions',
            'ALTER TABLE item ADD COLUMN more int DEFAULT 1; ALTER TABLE item DROP COLUMN more',
        'SELECT ttl.drop_container(''item'')', 'SELECT ttl.create_container(''item'', NULL, ''_ts'', ''ttl''); SELECT '
            'ttl.set_default_ttl(''item'', 5)',
        'CREATE TEMPORARY TABLE item AS SELECT 9 AS id, 9 AS n', 'DROP TABLE pg_temp.item',
            'DELETE FROM item WHERE id = 2',
        'DROP TABLE item; CREATE TABLE item (id int, n int); INSERT INTO item VALUES (7, 7)'] LOOP
        IF to_regclass('sessions.item') IS NOT NULL AND EXISTS (SELECT FROM pg_attribute
            WHERE attrelid = to_regclass('sessions.item') AND attname = '_ts') THEN
            SET LOCAL ttl.touch = off;
            UPDATE sessions.item SET _ts = '2900-01-01' WHERE id = 1;
            SET LOCAL ttl.touch = on;
        END IF;
        EXECUTE step;
        RAISE NOTICE '%   after %', executed(), step;
    END LOOP;
    ROLLBACK;
END $$;
SET client_min_messages = notice;
SET plan_cache_mode = force_generic_plan;

-- A generic plan, a custom one, and what PostgreSQL chooses have the same answers
CALL go_through_life();
SET plan_cache_mode = force_custom_plan;
CALL go_through_life();
RESET plan_cache_mode;
CALL go_through_life();
SET client_min_messages = warning;
DEALLOCATE ALL;

-- The same name is a container in one schema and a plain table in another
SELECT ttl.create_container('item', 60, '_ts', 'ttl');
CREATE SCHEMA sessions_plain;
CREATE TABLE sessions_plain.item (LIKE item);
INSERT INTO sessions_plain.item (id, n, _ts) VALUES (8, 80, '2020-01-01');
SET plan_cache_mode = force_generic_plan;
PREPARE by_path AS SELECT string_agg(id::text, ' ' ORDER BY id) FROM item;
CREATE FUNCTION by_path() RETURNS text LANGUAGE plpgsql AS
    'BEGIN RETURN (SELECT string_agg(id::text, '' '' ORDER BY id) FROM item); END';

-- By the search_path the plan is made for the one table or for the other
EXECUTE by_path;
SELECT by_path();
SET search_path = sessions_plain, sessions, public;
EXECUTE by_path;
SELECT by_path();
SET search_path = sessions, public;
EXECUTE by_path;
SELECT by_path();

-- Partitions come and go: plans over the parent and over the partition follow the policy that each has
CREATE TABLE parts (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (4);
SELECT ttl.create_container('parts', 60);
PREPARE of_parts AS SELECT string_agg(id::text, ' ' ORDER BY id) FROM parts;
PREPARE of_part AS SELECT string_agg(id::text, ' ' ORDER BY id) FROM parts_1;
PREPARE update_part(int) AS UPDATE parts_1 SET n = 1 WHERE id = $1 RETURNING _ts < '2800-01-01' AS touched;
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (4) TO (10);
CALL refill('parts');
EXECUTE of_parts;
EXECUTE of_part;
-- an UPDATE through the partition is stamped
EXECUTE update_part(1);
-- apart, each follows its own policy
ALTER TABLE parts DETACH PARTITION parts_1;
EXECUTE of_parts;
EXECUTE of_part;
SELECT ttl.set_default_ttl('parts', NULL);
EXECUTE of_parts;
EXECUTE of_part;
SELECT ttl.set_default_ttl('parts_1', -1);
EXECUTE of_part;
EXECUTE update_part(2);
-- no container any more, it shows all, and isn't stamped
SELECT ttl.drop_container('parts_1');
INSERT INTO parts_1 (id, n, _ts) VALUES (0, 0, '2900-01-01');
EXECUTE of_part;
EXECUTE update_part(0);
RESET plan_cache_mode;
DEALLOCATE ALL;

--
-- Languages
--

CALL refill('item');

-- PL/pgSQL: expressions, loops, exceptions
DO $$
DECLARE
    r item;
    n int := 0;
    ids int[];
BEGIN
    SELECT * INTO r FROM item WHERE id = 1;
    ASSERT ttl.time_to_live(r) = 2147483647 AND ttl.expires_at(r) = '2900-01-01 00:01:00' AND ttl.is_live('item',
        r._ts, r.ttl);
    r._ts := '2020-01-01';
    ASSERT ttl.time_to_live(r) = 0 AND NOT ttl.is_live('item', r._ts, r.ttl);
    SELECT * INTO r FROM item WHERE id = 3;
    ASSERT NOT FOUND AND r.id IS NULL;
    FOR r IN SELECT * FROM item ORDER BY id LOOP
        UPDATE item SET n = item.n + 1 WHERE id = r.id;
        ASSERT FOUND;
        UPDATE item SET n = 0 WHERE id = r.id + 2;
        ASSERT NOT FOUND;
        n := n + 1;
    END LOOP;
    ASSERT n = 2;
    ids := ARRAY(SELECT id FROM item);
    FOREACH n IN ARRAY ids LOOP
        ASSERT n < 3;
    END LOOP;
    -- an eviction that is taken back with its block, and one that isn't
    BEGIN
        INSERT INTO item (id, n) VALUES (3, 333), (4, 444);
        ASSERT (SELECT count(*) FROM item) = 4 AND ttl.expired_count('item') = 1;
        INSERT INTO item (id, n) VALUES (1, 111);
    EXCEPTION WHEN unique_violation THEN
        ASSERT (SELECT count(*) FROM item) = 2 AND ttl.expired_count('item') = 3;
        INSERT INTO item (id, n) VALUES (3, 333);
    END;
    -- a policy, too
    BEGIN
        PERFORM ttl.set_default_ttl('item', NULL);
        ASSERT (SELECT count(*) FROM item) = 5;
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN
        ASSERT (SELECT count(*) FROM item) = 3;
    END;
END $$;
SELECT id, n FROM item ORDER BY id;

-- A loop that commits between rows keeps to what it was opened with
CREATE PROCEDURE committing_loop(OUT ids text) LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT id FROM sessions.item ORDER BY id LOOP
        IF ids IS NULL THEN
            PERFORM ttl.set_default_ttl('sessions.item', NULL);
        END IF;
        ids := concat_ws(' ', ids, r.id);
        COMMIT;
    END LOOP;
END $$;
CALL committing_loop(NULL);
SELECT string_agg(id::text, ' ' ORDER BY id) FROM item;
SELECT ttl.set_default_ttl('item', 60);

-- SQL functions, inlined and not, of the old kind and the new
CREATE FUNCTION sql_inlined() RETURNS SETOF int LANGUAGE sql STABLE AS 'SELECT id FROM sessions.item';
CREATE FUNCTION sql_volatile() RETURNS SETOF int LANGUAGE sql VOLATILE AS 'SELECT id FROM sessions.item';
CREATE FUNCTION sql_set() RETURNS SETOF int LANGUAGE sql STABLE SET work_mem = '1MB' AS 'SELECT id FROM sessions.item';
CREATE FUNCTION sql_atomic() RETURNS SETOF int LANGUAGE sql STABLE BEGIN ATOMIC SELECT id FROM sessions.item; END;
CREATE FUNCTION sql_rows() RETURNS SETOF item LANGUAGE sql STABLE AS 'SELECT * FROM sessions.item';
CREATE FUNCTION sql_update(i int) RETURNS boolean LANGUAGE sql AS
    'UPDATE sessions.item SET n = n WHERE id = i RETURNING _ts < ''2800-01-01''';
CREATE FUNCTION sql_insert(i int) RETURNS int LANGUAGE sql BEGIN ATOMIC INSERT INTO sessions.item (id, n)
    VALUES (i, -1) RETURNING n; END;
CREATE VIEW by_functions AS
    SELECT (SELECT string_agg(i::text, ' ' ORDER BY i) FROM sql_inlined() i) AS inlined, (SELECT string_agg(i::text,
        ' ' ORDER BY i) FROM sql_volatile() i) AS "volatile",
           (SELECT string_agg(i::text, ' ' ORDER BY i) FROM sql_set() i) AS set, (SELECT string_agg(i::text, ' '
               ORDER BY i) FROM sql_atomic() i) AS atomic, (SELECT string_agg(id::text, ' ' ORDER BY id)
               FROM sql_rows()) AS rows;
CALL refill('item');

-- All find the same, whichever policy there is, or none
SELECT * FROM by_functions;
SELECT ttl.set_default_ttl('item', -1);
SELECT * FROM by_functions;
BEGIN;
SELECT ttl.drop_container('item');
SELECT * FROM by_functions;
SELECT sql_update(1);
ROLLBACK;
SELECT ttl.set_default_ttl('item', 60);
SELECT * FROM by_functions;
-- writing functions find, stamp and free keys as statements do
SELECT sql_update(1), sql_update(3), sql_insert(3), sql_update(3);
SELECT * FROM by_functions;

-- One statement, in which the function turns TTL off: from the next statement on
CREATE FUNCTION off_and_count() RETURNS bigint LANGUAGE sql AS $$
    SELECT ttl.set_default_ttl('sessions.item', NULL);
    SELECT count(*) FROM sessions.item;
$$;
SELECT count(*), max(off_and_count()) FROM item WHERE id < 3;
SELECT ttl.set_default_ttl('item', 60);

--
-- Cursors
--

-- Forth and back, while rows are written, deleted and the policy is changed: the cursor shows what it would have shown
CALL refill('item');
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM item ORDER BY id;
DECLARE seq SCROLL CURSOR FOR SELECT id FROM item;
FETCH 1 FROM c;
FETCH 1 FROM seq;
SELECT ttl.set_default_ttl('item', NULL);
FETCH ALL FROM c;
FETCH ALL FROM seq;
FETCH BACKWARD ALL FROM seq;
SELECT ttl.set_default_ttl('item', 1);
-- rows that change after the cursor was opened are as they were
UPDATE item SET n = -1 WHERE id = 1;
DELETE FROM item WHERE id = 2;
INSERT INTO item (id) VALUES (3);
FETCH FIRST FROM c;
FETCH LAST FROM c;
FETCH ABSOLUTE -2 FROM c;
FETCH RELATIVE 2 FROM c;
FETCH BACKWARD ALL FROM c;
FETCH ABSOLUTE 1 FROM seq;
FETCH ALL FROM seq;
COMMIT;

-- WITH HOLD: what is held is what was seen when it was opened
SELECT ttl.set_default_ttl('item', 60);
CALL refill('item');
BEGIN;
DECLARE held SCROLL CURSOR WITH HOLD FOR SELECT id, n FROM item ORDER BY id;
DECLARE unread CURSOR WITH HOLD FOR SELECT id FROM item;
FETCH 1 FROM held;

-- TTL is turned off before the COMMIT that fills it
SELECT ttl.set_default_ttl('item', NULL);
COMMIT;
FETCH ALL FROM held;
FETCH ALL FROM unread;
SELECT ttl.set_default_ttl('item', 60);
-- deletions don't reach it
CALL ttl.reap('item');
DELETE FROM item;
FETCH BACKWARD ALL FROM held;
CLOSE held;
CLOSE unread;

-- The row under a cursor can be updated and deleted, and the next one is found
CALL refill('item');
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM item FOR UPDATE;
FETCH 1 FROM c;
UPDATE item SET n = 11 WHERE CURRENT OF c RETURNING id, n, _ts < '2800-01-01' AS touched;
FETCH 1 FROM c;
DELETE FROM item WHERE CURRENT OF c RETURNING id;
FETCH 1 FROM c;
COMMIT;

-- A table that a cursor reads cannot be made a container meanwhile
CREATE TABLE plain (id int);
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM plain;
SELECT state('SELECT ttl.create_container(''plain'', 60)');
COMMIT;

-- One that a function returns, through the clocks that the transaction sets
CREATE FUNCTION opened() RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE
    c refcursor := 'opened';
BEGIN
    OPEN c SCROLL FOR SELECT id FROM sessions.item ORDER BY id;
    RETURN c;
END $$;
CALL refill('item');
BEGIN;
SELECT opened();
SET LOCAL ttl.now = '2999-01-01';
SELECT count(*) FROM item;
FETCH ALL FROM opened;
SET LOCAL ttl.now = '2000-01-01';
SELECT count(*) FROM item;
FETCH BACKWARD ALL FROM opened;
ROLLBACK;

--
-- Two-phase commit
--

CALL refill('item');

-- Insertion, update and eviction are there or not, as the transaction ends
BEGIN;
INSERT INTO item (id, n) VALUES (3, 33), (6, 66);
INSERT INTO item (id, n, _ts) VALUES (7, 77, '2020-01-01');
UPDATE item SET n = 11 WHERE id = 1;
PREPARE TRANSACTION 'regress_ttl_1';
SELECT id, n FROM item ORDER BY id;
SELECT ttl.expired_count('item');
ROLLBACK PREPARED 'regress_ttl_1';
SELECT id, n FROM item ORDER BY id;
SELECT ttl.expired_count('item');
-- committed, with a call of ttl.reap before
BEGIN;
INSERT INTO item (id, n) VALUES (3, 33), (6, 66);
INSERT INTO item (id, n, _ts) VALUES (7, 77, '2020-01-01');
UPDATE item SET n = 11 WHERE id = 1;
CALL ttl.reap('item');
PREPARE TRANSACTION 'regress_ttl_1';

-- What is locked by it is not waited for
CALL ttl.reap('item');
SELECT ttl.expired_count('item');
COMMIT PREPARED 'regress_ttl_1';
SELECT id, n FROM item ORDER BY id;
SELECT ttl.expired_count('item');

-- Configuration: in force when it is committed, and seen by nobody before
CALL refill('item');
BEGIN;
SELECT ttl.set_default_ttl('item', NULL);
SELECT count(*) FROM item;
PREPARE TRANSACTION 'regress_ttl_2';
SELECT count(*) FROM item;

-- A change that is prepared is waited for: nobody else changes the policy meanwhile
SET lock_timeout = '10ms';
SELECT state('SELECT ttl.set_default_ttl(''item'', -1)');
RESET lock_timeout;
ROLLBACK PREPARED 'regress_ttl_2';
SELECT count(*) FROM item;
BEGIN;
SELECT ttl.set_default_ttl('item', -1);
PREPARE TRANSACTION 'regress_ttl_2';
SELECT count(*) FROM item;
COMMIT PREPARED 'regress_ttl_2';
SELECT count(*) FROM item;
-- A container that is prepared isn't there before it is committed; then plans are made anew
CREATE TABLE later (id int PRIMARY KEY, _ts timestamptz);
INSERT INTO later VALUES (1, '2020-01-01'), (2, '2900-01-01');
PREPARE count_later AS SELECT count(*) FROM later;
EXECUTE count_later;
BEGIN;
SELECT ttl.create_container('later', 60, ts_column => '_ts');
EXECUTE count_later;
PREPARE TRANSACTION 'regress_ttl_3';
SELECT count(*) FROM ttl.containers WHERE container = 'later'::regclass;
COMMIT PREPARED 'regress_ttl_3';
EXECUTE count_later;
INSERT INTO later VALUES (1, DEFAULT);
EXECUTE count_later;
-- One that ends, rolled back and committed
BEGIN;
SELECT ttl.drop_container('later', true);
PREPARE TRANSACTION 'regress_ttl_3';
ROLLBACK PREPARED 'regress_ttl_3';
EXECUTE count_later;
BEGIN;
SELECT ttl.drop_container('later');
PREPARE TRANSACTION 'regress_ttl_3';
COMMIT PREPARED 'regress_ttl_3';
EXECUTE count_later;
DEALLOCATE ALL;

--
-- JIT
--

-- Where the server has it: expressions compiled and inlined are the same
SELECT ttl.set_default_ttl('item', 60);
CALL refill('item');
SET jit = on;
SET jit_above_cost = 0;
SET jit_inline_above_cost = 0;
SET jit_optimize_above_cost = 0;
-- conditions that would fail on expired rows don't see them
SELECT count(*), sum(n), count(*) FILTER (WHERE 1 / (id - 3) IS NOT NULL) FROM item
    WHERE n > 0 AND 10 / (id - 4) IS NOT NULL;
UPDATE item SET n = n + 1 WHERE 1 / (id - 5) IS NOT NULL RETURNING id, n, _ts < '2800-01-01' AS touched;
-- keys of expired rows are free, of live ones not
INSERT INTO item (id, n) VALUES (3, 3), (1, 0) ON CONFLICT (id) DO UPDATE SET n = excluded.n - item.n RETURNING id, n;
SELECT a.id, b.id FROM item a LEFT JOIN item b ON a.id = b.id - 2 ORDER BY a.id;
RESET jit_above_cost;
RESET jit_inline_above_cost;
RESET jit_optimize_above_cost;
RESET jit;

--
-- Memory
--

-- What is cached of a table goes with it
CREATE FUNCTION cached() RETURNS bigint LANGUAGE sql AS
    $$SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name LIKE 'ttl %'$$;
CREATE PROCEDURE stage(tables int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. tables LOOP
        CREATE TABLE sessions.staging (id int PRIMARY KEY, n int, _ts timestamptz NOT NULL DEFAULT clock_timestamp(),
            ttl int);
        IF i % 4 = 0 THEN
            PERFORM ttl.create_container('sessions.staging', 60);
        END IF;
        INSERT INTO sessions.staging VALUES (1, 1) ON CONFLICT (id) DO NOTHING;
        UPDATE sessions.staging SET id = 2;
        DROP TABLE sessions.staging;
        COMMIT;
    END LOOP;
END $$;

-- The caches have their size after some tables; after many more, no more than that
CALL stage(20);
SELECT cached() AS before \gset
CALL stage(400);
SELECT cached() - :before < 20000 AS keeps_nothing;

DROP SCHEMA sessions, sessions_plain CASCADE;
