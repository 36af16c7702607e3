-- Scans: plans are those of a plain table, and whichever way a scan takes to find
-- out what has expired, the answer is the same
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA scans;
SET search_path = scans, public;
SET jit = off;

--
-- Plans
--

-- A container and a plain table with the same rows and indexes
CREATE TABLE c_a (id int PRIMARY KEY, k int, x int, n text, tags int[], _ts timestamptz NOT NULL, ttl int);
CREATE TABLE c_b (id int PRIMARY KEY, a_id int, _ts timestamptz NOT NULL, ttl int);
CREATE TABLE c_p (id int, k int, x int, _ts timestamptz NOT NULL, ttl int, PRIMARY KEY (k, id)) PARTITION BY LIST (k);
CREATE TABLE c_p0 PARTITION OF c_p FOR VALUES IN (0, 1);
CREATE TABLE c_p1 PARTITION OF c_p FOR VALUES IN (2);
CREATE TABLE c_p2 PARTITION OF c_p DEFAULT;

-- Indexes of each kind that a scan may use
CREATE INDEX ON c_a (k) INCLUDE (x); CREATE INDEX ON c_a (x, id); CREATE INDEX ON c_a USING gin (tags);
CREATE INDEX ON c_a (lower(n)); CREATE INDEX ON c_a USING hash (n); CREATE INDEX ON c_a (id) WHERE x > 3;
CREATE INDEX ON c_b (a_id); CREATE INDEX ON c_p (x);
SELECT ttl.create_container(c, 60) FROM unnest('{c_a, c_b, c_p}'::regclass[]) c;
CREATE TABLE p_a (LIKE c_a INCLUDING ALL); CREATE TABLE p_b (LIKE c_b INCLUDING ALL);
CREATE TABLE p_p (LIKE c_p INCLUDING ALL) PARTITION BY LIST (k);
CREATE TABLE p_p0 PARTITION OF p_p FOR VALUES IN (0, 1);
CREATE TABLE p_p1 PARTITION OF p_p FOR VALUES IN (2);
CREATE TABLE p_p2 PARTITION OF p_p DEFAULT;
-- 30 of 100 rows of the container's side have expired; the plain table has the same rows
CREATE PROCEDURE fill(side text) LANGUAGE plpgsql AS $outer$
BEGIN
    EXECUTE format($$
        INSERT INTO %1$s_a SELECT i, i %% 40, i %% 7, 'n' || i %% 100, ARRAY[i %% 5, i %% 9], CASE
            WHEN i %% 10 < 3 THEN timestamptz '2020-01-01' ELSE '2900-01-01' END, NULLIF(i %% 11, 0)
            FROM generate_series(1, 4000) i;
        INSERT INTO %1$s_b SELECT i, i * 3, CASE WHEN i %% 10 < 3 THEN timestamptz '2020-01-01' ELSE '2900-01-01' END
            FROM generate_series(1, 1500) i;
        INSERT INTO %1$s_p SELECT i, i %% 5, i %% 50, CASE
            WHEN i %% 10 < 3 THEN timestamptz '2020-01-01' ELSE '2900-01-01' END FROM generate_series(1, 3000) i;
        CREATE VIEW %1$s_v AS SELECT id, x, k FROM %1$s_a WHERE k < 30;
        CREATE FUNCTION %1$s_f(int) RETURNS SETOF %1$s_a LANGUAGE sql STABLE AS 'SELECT * FROM %1$s_a WHERE k = $1';
    $$, side);
END $outer$;
CALL fill('c');
CALL fill('p');
VACUUM ANALYZE c_a, c_b, c_p, p_a, p_b, p_p;

-- The plan, costs included, without what the filter adds: c_a becomes p_a, and
-- parentheses go, for they depend on how many conditions there are
CREATE FUNCTION plan_of(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    result text := '';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (VERBOSE) ' || query LOOP
        line := regexp_replace(line, 'ttl\.is_live\(''[^)]*\)( AND )?', '', 'g');
        line := regexp_replace(regexp_replace(line, '\mc_', 'p_', 'g'), '[()]', '', 'g');
        CONTINUE WHEN line ~ '^ *Filter: *$' OR line ~ '^ *Query Identifier';
        result := result || line || E'\n';
    END LOOP;
    RETURN result;
END $$;
CREATE TABLE query (label text, sql text);
INSERT INTO query VALUES
    ('all', 'SELECT * FROM %s_a'),
    ('count', 'SELECT count(*) FROM %s_a'),
    ('key', 'SELECT * FROM %s_a WHERE id = 7'),
    ('key, index-only', 'SELECT id FROM %s_a WHERE id = 7'),
    ('key range', 'SELECT id FROM %s_a WHERE id BETWEEN 5 AND 500'),
    ('index-only, included', 'SELECT x FROM %s_a WHERE k = 5'),
    ('index-only, aggregate', 'SELECT count(*) FROM %s_a WHERE x = 3 AND id < 100'),
    ('index-only, ordered', 'SELECT x, id FROM %s_a ORDER BY x, id LIMIT 10'),
    ('index-only, backwards', 'SELECT x, id FROM %s_a ORDER BY x DESC, id DESC LIMIT 10'),
    ('index-only, DISTINCT', 'SELECT DISTINCT x FROM %s_a'),
    ('index-only, whole index', 'SELECT count(id) FROM %s_b'),
    ('minimum', 'SELECT min(id) FROM %s_a'),
    ('minimum and maximum', 'SELECT min(id), max(x) FROM %s_a'),
    ('ordered', 'SELECT * FROM %s_a ORDER BY id LIMIT 5'),
    ('bitmap', 'SELECT * FROM %s_a WHERE k = 5'),
    ('bitmap or', 'SELECT * FROM %s_a WHERE k = 5 OR id < 20'),
    ('bitmap and', 'SELECT * FROM %s_a WHERE k = 5 AND tags @> ''{3}'''),
    ('gin', 'SELECT * FROM %s_a WHERE tags @> ''{3,4}'''),
    ('hash', 'SELECT id FROM %s_a WHERE n = ''n7'''),
    ('expression', 'SELECT id FROM %s_a WHERE lower(n) = ''n7'''),
    ('partial', 'SELECT id FROM %s_a WHERE x > 3 AND id < 300'),
    ('the clock', 'SELECT id FROM %s_a WHERE _ts < ''2021-01-01'''),
    ('array', 'SELECT id FROM %s_a WHERE id = ANY (''{1,2,3,4}'')'),
    ('function', 'SELECT id FROM %s_a WHERE upper(n) = ''N7'' AND k = 3'),
    ('tid', 'SELECT id FROM %s_a WHERE ctid = ''(0,1)'''),
    ('tid range', 'SELECT id FROM %s_a WHERE ctid < ''(2,0)'''),
    ('sample', 'SELECT count(*) FROM %s_a TABLESAMPLE SYSTEM (10) REPEATABLE (1)'),
    ('GROUP BY', 'SELECT k, count(*) FROM %s_a GROUP BY k'),
    ('GROUP BY the key', 'SELECT id, n, count(*) FROM %s_a GROUP BY id'),
    ('HAVING', 'SELECT x, sum(id) FROM %s_a GROUP BY x HAVING sum(id) > 5 ORDER BY x'),
    ('window', 'SELECT id, rank() OVER (PARTITION BY k ORDER BY id) FROM %s_a'),
    ('join by keys', 'SELECT * FROM %s_a a JOIN %s_b b ON a.id = b.a_id'),
    ('join by keys, few columns', 'SELECT count(*) FROM %s_a a JOIN %s_b b ON a.id = b.a_id'),
    ('join by keys, ordered', 'SELECT a.id FROM %s_a a JOIN %s_b b ON a.id = b.id ORDER BY a.id'),
    ('join of few', 'SELECT a.n FROM %s_b b JOIN %s_a a ON a.id = b.a_id WHERE b.id < 5'),
    ('left join', 'SELECT a.id, b.id FROM %s_a a LEFT JOIN %s_b b ON a.id = b.a_id WHERE a.k = 3'),
    ('left join that is needless', 'SELECT a.n FROM %s_a a LEFT JOIN %s_b b ON a.id = b.id'),
    ('full join', 'SELECT a.id, b.id FROM %s_a a FULL JOIN %s_b b ON a.id = b.a_id'),
    ('unique inner', 'SELECT a.id FROM %s_a a JOIN %s_b b ON a.k = b.id'),
    ('semi join', 'SELECT id FROM %s_a WHERE id IN (SELECT a_id FROM %s_b)'),
    ('anti join', 'SELECT id FROM %s_a a WHERE NOT EXISTS (SELECT FROM %s_b b WHERE b.a_id = a.id)'),
    ('NOT IN', 'SELECT id FROM %s_a WHERE id NOT IN (SELECT a_id FROM %s_b)'),
    ('sublink', 'SELECT id, (SELECT max(id) FROM %s_b b WHERE b.a_id < a.id) FROM %s_a a WHERE k = 1'),
    ('sublink in OR', 'SELECT id FROM %s_a a WHERE k = 1 OR EXISTS (SELECT FROM %s_b b WHERE b.a_id = a.id)'),
    ('five tables', 'SELECT count(*) FROM %s_a a JOIN %s_b b ON a.id = b.a_id JOIN %s_a c ON c.id = b.id JOIN %s_b d '
        'ON d.id = c.id JOIN %s_p p ON p.id = d.id WHERE a.k < 20'),
    ('self join', 'SELECT a.id FROM %s_a a, %s_a b WHERE a.id = b.id + 1 AND a.k = 2'),
    ('lateral', 'SELECT b.id, l.id FROM %s_b b, LATERAL (SELECT id FROM %s_a a WHERE a.x = b.id %% 7 AND a.id > b.id '
        'ORDER BY id LIMIT 1) l WHERE b.id < 50'),
    ('view', 'SELECT id FROM %s_v WHERE x = 2'),
    ('inlined function', 'SELECT id FROM %s_f(3) WHERE x = 2'),
    ('CTE', 'WITH w AS (SELECT id, k FROM %s_a) SELECT * FROM w WHERE id < 100'),
    ('CTE, materialized', 'WITH w AS MATERIALIZED (SELECT id FROM %s_a) SELECT count(*) FROM w a JOIN w b USING (id)'),
    ('CTE, recursive', 'WITH RECURSIVE w AS (SELECT 1 AS id UNION ALL SELECT b.a_id FROM w JOIN %s_b b ON b.id = w.id) '
        'SELECT * FROM w'),
    ('UNION ALL', 'SELECT id FROM (SELECT id FROM %s_a UNION ALL SELECT id FROM %s_b) u WHERE id < 20'),
    ('UNION ALL, ordered', 'SELECT id FROM (SELECT id FROM %s_a UNION ALL SELECT id FROM %s_b) u ORDER BY id LIMIT 20'),
    ('EXCEPT', 'SELECT id FROM %s_a EXCEPT SELECT id FROM %s_b'),
    ('partitions', 'SELECT * FROM %s_p'),
    ('partitions, pruned', 'SELECT id FROM %s_p WHERE k = 2 AND id < 50'),
    ('partitions, ordered', 'SELECT x FROM %s_p ORDER BY x LIMIT 10'),
    ('partitions, index-only', 'SELECT count(*) FROM %s_p WHERE x = 3'),
    ('partitions, joined', 'SELECT count(*) FROM %s_p a JOIN %s_p b USING (k, id)'),
    ('INSERT', 'INSERT INTO p_b (id, _ts) SELECT id, now() FROM %s_a WHERE id < 100');

-- Queries whose plans differ in more than the filter
CREATE FUNCTION different_plans() RETURNS TABLE (label text, container text, plain text) LANGUAGE sql AS $$
    SELECT label, c, p FROM query, plan_of(replace(replace(sql, '%%', '%'), '%s', 'c')) c, plan_of(replace(replace(sql,
        '%%', '%'), '%s', 'p')) p WHERE c <> p
$$;
SELECT count(*) AS queries FROM query;

-- The same plans: by default, and with settings that lead to others
SELECT * FROM different_plans();
SET enable_seqscan = off; SELECT * FROM different_plans(); RESET enable_seqscan;
SET enable_bitmapscan = off; SET enable_hashjoin = off;
SELECT * FROM different_plans(); RESET enable_bitmapscan; RESET enable_hashjoin;
SET enable_nestloop = off; SET enable_hashagg = off; SET enable_hashjoin = off;
SELECT * FROM different_plans(); RESET enable_nestloop; RESET enable_hashagg; RESET enable_hashjoin;
SET enable_partitionwise_join = on; SET enable_partitionwise_aggregate = on;
SELECT * FROM different_plans(); RESET enable_partitionwise_join; RESET enable_partitionwise_aggregate;
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SELECT * FROM different_plans();
RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size;
RESET min_parallel_index_scan_size;

-- A condition that calls the filter's function is the user's own, and no filter
-- The user's own call of is_live counts as a condition like another, whatever container it names
CREATE TABLE looks AS SELECT 'c_a'::regclass AS c, timestamptz '2020-01-01' AS _ts, NULL::int AS ttl;
SELECT bool_and(ttl.is_live('c_a'::regclass, _ts, ttl)), count(*) = (SELECT count(*) FROM c_a) AS same FROM c_a;
SELECT count(*) = (SELECT count(*) FROM c_a) AS same FROM c_a WHERE ttl.is_live('c_p'::regclass, _ts, ttl) OR id < 0;
SELECT count(*) FROM c_a WHERE ttl.is_live('looks'::regclass, _ts, ttl) AND _ts < '2021-01-01';
SELECT count(*) FROM looks WHERE ttl.is_live('c_a'::regclass, _ts, ttl);
-- whether it is named by a constant or by a column
SELECT count(*) FROM looks WHERE ttl.is_live(c, _ts, ttl);
-- nor is the form that index-only scans have
SELECT count(*) FROM c_a WHERE id > 0 OR ttl.is_live('c_a'::regclass) AND _ts < '2021-01-01';

--
-- Answers
--

-- Containers with expired rows here and there, none, half of them, and nearly
-- all; without a TTL column; an adopted one with a short TTL and values without
-- meaning; partitioned; with HOT chains, pruned ones, on pages that are all visible
-- or not; registered when it was full, with columns whose values are kept in the catalog
CREATE TABLE few (id int PRIMARY KEY, x int);
CREATE TABLE none (LIKE few INCLUDING ALL); CREATE TABLE half (LIKE few INCLUDING ALL);
CREATE TABLE most (LIKE few INCLUDING ALL);
CREATE TABLE bare (LIKE few INCLUDING ALL);
CREATE TABLE short (LIKE few INCLUDING ALL); ALTER TABLE short ADD _ts timestamptz NOT NULL, ADD ttl smallint;
CREATE TABLE filled (LIKE few INCLUDING ALL); INSERT INTO filled SELECT i, i % 100 FROM generate_series(1, 3000) i;
ALTER TABLE filled ADD _ts timestamptz NOT NULL DEFAULT '2900-01-01', ADD ttl int;
CREATE TABLE parted (id int PRIMARY KEY, x int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (1500);
CREATE TABLE parted_2 (x int, gone int, id int NOT NULL); ALTER TABLE parted_2 DROP gone;
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES FROM (1500) TO (MAXVALUE);
CREATE TABLE hot (id int PRIMARY KEY, x int, z int) WITH (fillfactor = 40);

-- TTLs of an adopted smallint: without a meaning, for ever, by default, short, the greatest
INSERT INTO short SELECT i, i % 100, CASE WHEN i % 3 = 0 THEN timestamptz '2020-01-01' ELSE '2900-01-01' END, (ARRAY[0,
    -7, -1, NULL, 5, 32767])[1 + i / 3 % 6] FROM generate_series(1, 3000) i;
SELECT ttl.create_container(c, 60) FROM unnest('{few, none, half, most, parted}'::regclass[]) c;
SELECT ttl.create_container('short', 60, ts_column => '_ts', ttl_column => 'ttl');
SELECT ttl.create_container('bare', 60, ttl_column => NULL);
SELECT ttl.create_container('hot', 60, touch_on_update => false);
SELECT ttl.create_container('filled', 60, ts_column => '_ts', ttl_column => 'ttl', touch_on_update => false);

-- Which rows have expired, by their numbers: here and there and in a row, every other one, nearly all
CREATE TABLE contents AS SELECT i AS id, i % 100 AS x, i % 60 = 7 OR i BETWEEN 300 AND 420 AS few,
    i % 2 = 1 OR i < 70 AS half, i % 50 <> 3 AS most, (ARRAY[NULL, -1, 5, 2147483647])[1 + i / 4 % 4] AS ttl
    FROM generate_series(1, 3000) i;
CREATE FUNCTION ts(expired boolean) RETURNS timestamptz IMMUTABLE LANGUAGE sql AS $$ SELECT CASE
    WHEN expired THEN timestamptz '2020-01-01' ELSE '2900-01-01' END $$;
INSERT INTO few SELECT id, x, ts(few), ttl FROM contents;
INSERT INTO none SELECT id, x, ts(false), ttl FROM contents;
INSERT INTO half SELECT id, x, ts(half), ttl FROM contents;
INSERT INTO most SELECT id, x, ts(most), NULL FROM contents;
INSERT INTO bare SELECT id, x, ts(few) FROM contents;
INSERT INTO parted (id, x, _ts, ttl) SELECT id, x, ts(few), ttl FROM contents;
UPDATE filled t SET _ts = ts(true) FROM contents c WHERE c.id = t.id AND few;
INSERT INTO hot (id, x, z, _ts, ttl) SELECT id, x, 0, ts(few), ttl FROM contents;
CREATE INDEX ON few (x); CREATE INDEX ON none (x); CREATE INDEX ON half (x); CREATE INDEX ON most (x);
CREATE INDEX ON bare (x); CREATE INDEX ON short (x); CREATE INDEX ON parted (x); CREATE INDEX ON filled (x);
CREATE INDEX ON hot (x);

-- Chains of three, of which a part is pruned and leads to the last
SET ttl.show_expired = on;
UPDATE hot SET z = 1; UPDATE hot SET z = 2 WHERE id % 4 < 3;
VACUUM hot;
UPDATE hot SET z = 3 WHERE id BETWEEN 290 AND 500;
RESET ttl.show_expired;
VACUUM ANALYZE few, none, half, most, bare, short, parted, filled;
ANALYZE hot;

-- Some pages are not all visible any more
SET ttl.touch = off;
DELETE FROM few WHERE id = 350 OR id IN (1000, 2000); UPDATE half SET x = x WHERE id % 500 = 4;
DELETE FROM parted WHERE id = 1600;
CREATE VIEW container AS SELECT c::regclass FROM unnest('{few, none, half, most, bare, short, parted, filled, '
    'hot}'::text[]) c;

-- What must be seen: by each row's expiry, which is computed elsewhere
CREATE FUNCTION truth(c regclass) RETURNS text LANGUAGE plpgsql SET ttl.show_expired = on
    SET plan_cache_mode = force_custom_plan AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('SELECT count(*) || '' '' || coalesce(md5(string_agg(id::text, '','' ORDER BY id)), '''') FROM %s t '
        'WHERE (ttl.expires_at(t) > %s) IS NOT FALSE', c, CASE
        WHEN current_setting('ttl.now') = '' THEN 'clock_timestamp()' ELSE format('%L',
        current_setting('ttl.now')) END) INTO result;
    RETURN result;
END $$;

-- The addresses of all stored rows
CREATE FUNCTION tids(c regclass) RETURNS tid[] LANGUAGE plpgsql SET ttl.show_expired = on AS $$
DECLARE
    result tid[];
BEGIN
    EXECUTE format('SELECT array_agg(ctid) FROM %s', c) INTO result;
    RETURN result;
END $$;

-- Ways to scan: the node to be seen in the plan, the settings, and the query
CREATE TABLE way (label text, node text, settings text, sql text);
INSERT INTO way VALUES
    ('seq', 'Seq Scan', '{indexscan,bitmapscan,indexonlyscan}', 'SELECT id FROM %s'),
    ('seq with a condition', 'Seq Scan', '{indexscan,bitmapscan,indexonlyscan}', 'SELECT id FROM %s WHERE x >= 0'),
    ('index', 'Index Scan', '{seqscan,bitmapscan,indexonlyscan}', 'SELECT id FROM %s WHERE id > 0'),
    ('index with another condition', 'Index Scan', '{seqscan,bitmapscan,indexonlyscan}',
        'SELECT id FROM %s WHERE id > 0 AND x >= 0'),
    ('index, backwards', 'Index Scan Backward', '{seqscan,bitmapscan,indexonlyscan,sort}',
        'SELECT id FROM (SELECT id FROM %s ORDER BY id DESC OFFSET 0) s'),
    ('index-only', 'Index Only Scan', '{seqscan,bitmapscan}', 'SELECT id FROM %s WHERE id > 0'),
    ('index-only with another condition', 'Index Only Scan', '{seqscan,bitmapscan}',
        'SELECT id FROM %s WHERE id > 0 AND id %% 2 >= 0'),
    ('index-only, backwards', 'Index Only Scan Backward', '{seqscan,bitmapscan,sort}',
        'SELECT id FROM (SELECT id FROM %s ORDER BY id DESC OFFSET 0) s'),
    ('index-only, array', 'Index Only Scan', '{seqscan,bitmapscan}',
        'SELECT id FROM %s WHERE id = ANY (ARRAY(SELECT generate_series(1, 3000)))'),
    ('bitmap', 'Bitmap Heap Scan', '{seqscan,indexscan,indexonlyscan}', 'SELECT id FROM %s WHERE x >= 0'),
    ('tid', 'Tid Scan', '{}', 'SELECT id FROM %s WHERE ctid = ANY ((SELECT tids(''%s''))::tid[])'),
    ('tid range', 'Tid Range Scan', '{}', 'SELECT id FROM %s WHERE ctid >= ''(0,0)'''),
    ('sample', 'Sample Scan', '{}', 'SELECT id FROM %s TABLESAMPLE BERNOULLI (100)'),
    ('sample of pages', 'Sample Scan', '{}', 'SELECT id FROM %s TABLESAMPLE SYSTEM (100)'),
    ('rescanned', 'Seq Scan', '{indexscan,bitmapscan,indexonlyscan}',
        'SELECT l.id FROM generate_series(0, 2) g, LATERAL (SELECT id FROM %s WHERE id %% 3 = g OFFSET 0) l'),
    ('rescanned, index-only', 'Index Only Scan', '{seqscan,bitmapscan}',
        'SELECT l.id FROM generate_series(0, 2) g, LATERAL (SELECT id FROM %s WHERE id > g * 1000 AND id <= g * 1000 + '
        '1000 OFFSET 0) l'),
    ('inner of a loop', 'Nested Loop', '{hashjoin,mergejoin,seqscan,bitmapscan,material}',
        'SELECT t.id FROM generate_series(1, 3000) g JOIN %s t ON t.id = g'),
    ('marked and restored', 'Merge Join', '{hashjoin,nestloop,seqscan,bitmapscan,material}',
        'SELECT b.id FROM (SELECT id FROM %s) a JOIN (SELECT id FROM %s) b USING (id)'),
    ('by a subplan', 'SubPlan', '{}', 'SELECT g AS id FROM generate_series(1, 3000) g WHERE (g IN (SELECT id FROM %s)) '
        'IS TRUE'),
    ('stopped and gone on', 'Limit', '{seqscan,bitmapscan}',
        '(SELECT id FROM %s ORDER BY id LIMIT 700) UNION ALL (SELECT id FROM %s ORDER BY id OFFSET 700)');

-- Says ok if the plan has the node, and the answer is right however the expired rows are found
CREATE FUNCTION scan(c regclass, w way, wanted text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    query text := replace(replace(w.sql, '%%', '%'), '%s', c::text);
    mode text;
    verdict text := 'ok';
    line text;
    seen boolean := false;
    result text;
    setting text;
BEGIN
    -- 18 has one that makes a self-join a scan
    FOR setting IN SELECT name FROM pg_settings
        JOIN unnest(w.settings::text[] || '{self_join_elimination}') s ON name = 'enable_' || s LOOP
        PERFORM set_config(setting, 'off', true);
    END LOOP;
    FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
        seen := seen OR line ~ ('\m' || w.node);
    END LOOP;
    IF NOT seen THEN
        verdict := 'no ' || w.node;
    END IF;
    FOREACH mode IN ARRAY '{auto,never,always}'::text[] LOOP
        PERFORM set_config('ttl.debug_index_probe', mode, true);
        EXECUTE format('SELECT count(*) || '' '' || coalesce(md5(string_agg(id::text, '','' ORDER BY id)), '''') FROM '
            '(%s) q', query) INTO result;
        IF result IS DISTINCT FROM wanted THEN
            verdict := format('%s: %s instead of %s', mode, result, wanted);
        END IF;
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'TTL00', MESSAGE = verdict;
EXCEPTION
    WHEN SQLSTATE 'TTL00' THEN
        RETURN SQLERRM;
    WHEN OTHERS THEN
        RETURN SQLSTATE || ' ' || SQLERRM;
END $$;

-- What is wrong, if anything: each container by each way
CREATE FUNCTION wrong(ways text DEFAULT '.') RETURNS TABLE (c regclass, label text, verdict text) LANGUAGE sql AS $$
    WITH truths AS MATERIALIZED (SELECT c, truth(c) FROM container)
    SELECT c, label, verdict FROM (SELECT way.* FROM way WHERE label ~ ways OFFSET 0) way, truths, LATERAL scan(c, way,
        truth) verdict
     WHERE verdict <> 'ok' ORDER BY 1, 2
$$;

-- The containers differ in how many rows are live, and for each the way makes no difference
SELECT c, split_part(truth(c), ' ', 1)::int AS live FROM container;
SELECT * FROM wrong();

-- By what reads no column
SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
SELECT count(*) FROM filled;
SELECT count(*), 1 FROM filled GROUP BY GROUPING SETS ((), ());
SELECT 1 FROM filled HAVING count(*) > 5;
SELECT count(*) FROM filled WHERE x < 50;
SELECT FROM filled LIMIT 2;
RESET enable_indexonlyscan; RESET enable_bitmapscan;

-- In parallel
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SELECT * FROM wrong('^(seq|index-only|bitmap)$');
RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size;
RESET min_parallel_index_scan_size;

-- At other instants
-- All, none, and some expired, the border by the microsecond and those yet to come
SET ttl.now = 'infinity'; SELECT * FROM wrong('^(seq|index|index-only)$');
SET ttl.now = '-infinity'; SELECT * FROM wrong('^(seq|index|index-only)$');
SET ttl.now = '2020-01-01 00:00:30'; SELECT * FROM wrong('^(seq|index|index-only)$');
SET ttl.now = '2020-01-01 00:01:00'; SELECT * FROM wrong('^(seq|index|index-only)$');
SET ttl.now = '2950-01-01'; SELECT * FROM wrong('^(seq|index|index-only)$');
RESET ttl.now;

-- With other default TTLs
CREATE FUNCTION set_all(default_ttl int) RETURNS void LANGUAGE sql AS $$ SELECT ttl.set_default_ttl(c, default_ttl)
    FROM container $$;
SELECT set_all(-1); SELECT * FROM wrong('^(seq|index|index-only)$');
SELECT set_all(NULL); SELECT * FROM wrong('^(seq|index|index-only)$');
SELECT set_all(2147483647); SELECT * FROM wrong('^(seq|index|index-only)$');
SELECT set_all(60);

-- Around the numbers of rows at which a scan starts to ask
CREATE FUNCTION wrong_counts(c regclass) RETURNS TABLE (upto int, got bigint, live bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR upto IN SELECT n FROM unnest('{64,256,1000,1024,2000}'::int[]) m, generate_series(m - 3, m + 3) n LOOP
        EXECUTE format('SELECT count(*) FROM %s WHERE id <= %s', c, upto) INTO got;
        PERFORM set_config('ttl.show_expired', 'on', true);
        EXECUTE format('SELECT count(*) FROM %s t WHERE (ttl.expires_at(t) > clock_timestamp()) IS NOT FALSE AND id <= '
            '%s', c, upto) INTO live;
        PERFORM set_config('ttl.show_expired', 'off', true);
        IF got <> live THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;
SET enable_seqscan = off; SET enable_bitmapscan = off;
-- neither before nor after it asks is a row lost or shown: index-only scans and index scans
SELECT c, w.* FROM container, wrong_counts(c) w;
SET enable_indexonlyscan = off;
SELECT c, w.* FROM container, wrong_counts(c) w;
RESET enable_seqscan; RESET enable_bitmapscan; RESET enable_indexonlyscan;

--
-- Nobody's function is called for an expired row, neither before the filter nor
-- where PostgreSQL computes again what a lossy index has said
--

CREATE FUNCTION watch_eq(int, int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN IF $1 = 0
    THEN RAISE 'an expired row was seen'; END IF; RETURN $1 = $2; END $$;
CREATE FUNCTION watch_in(point, polygon) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN IF $1[0] < 0
    THEN RAISE 'an expired row was seen'; END IF; RETURN $1 <@ $2; END $$;
CREATE FUNCTION watch_far(polygon,
    point) RETURNS float8 LANGUAGE plpgsql IMMUTABLE STRICT AS $$ BEGIN IF (point($1))[0] < 0
    THEN RAISE 'an expired row was seen'; END IF; RETURN $1 <-> $2; END $$;

-- Operators whose functions fail if they are called with what expired rows have, in classes for lossy indexes
CREATE OPERATOR ~= (FUNCTION = watch_eq, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR ~<@ (FUNCTION = watch_in, LEFTARG = point, RIGHTARG = polygon);
CREATE OPERATOR <~> (FUNCTION = watch_far, LEFTARG = polygon, RIGHTARG = point);
CREATE OPERATOR CLASS watch_ops FOR TYPE int USING hash AS OPERATOR 1 ~=, FUNCTION 1 hashint4(int);
CREATE OPERATOR CLASS watch_points FOR TYPE point USING gist AS OPERATOR 48 ~<@ (point, polygon),
    FUNCTION 1 gist_point_consistent(internal, point, smallint, oid, internal), FUNCTION 2 gist_box_union(internal,
    internal), FUNCTION 3 gist_point_compress(internal), FUNCTION 5 gist_box_penalty(internal, internal, internal),
    FUNCTION 6 gist_box_picksplit(internal, internal), FUNCTION 7 gist_box_same(box, box, internal),
    FUNCTION 9 gist_point_fetch(internal), STORAGE box;
CREATE OPERATOR CLASS watch_polygons FOR TYPE polygon USING gist AS OPERATOR 15 <~> (polygon, point) FOR
    ORDER BY float_ops, FUNCTION 1 gist_poly_consistent(internal, polygon, smallint, oid, internal),
    FUNCTION 2 gist_box_union(internal, internal), FUNCTION 3 gist_poly_compress(internal),
    FUNCTION 5 gist_box_penalty(internal, internal, internal), FUNCTION 6 gist_box_picksplit(internal, internal),
    FUNCTION 7 gist_box_same(box, box, internal), FUNCTION 8 gist_poly_distance(internal, polygon, smallint, oid,
    internal), STORAGE box;
CREATE TABLE watched (id int PRIMARY KEY, x int, at point, area polygon) WITH (fillfactor = 10);
SELECT ttl.create_container('watched', 60);

-- A polygon's box may be nearer than the polygon is: triangles
INSERT INTO watched SELECT id + j * 3000, CASE WHEN few THEN 0 ELSE 1 + x % 2 END, point(f * (1 + x), id % 77),
    polygon(path(format('((%s,%s),(%s,%s),(%s,%s))', f * (1 + x), id % 77, f * (1 + x), id % 77 + 9, f * (3 + x),
    id % 77 + 9))), ts(few)
  FROM contents, LATERAL (SELECT CASE WHEN few THEN -1 ELSE 1 END AS f) s, generate_series(0, 3) j;
CREATE INDEX ON watched USING hash (x watch_ops); CREATE INDEX ON watched USING gist (at watch_points);
CREATE INDEX ON watched USING gist (area watch_polygons);
VACUUM ANALYZE watched;

-- What a plan tells of its execution
CREATE FUNCTION explained(query text, pattern text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
        IF line ~ pattern THEN
            RETURN NEXT trim(line);
        END IF;
    END LOOP;
END $$;

-- A query's answer with each way to find out what has expired
CREATE FUNCTION in_all_modes(query text) RETURNS TABLE (mode text, result text) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH mode IN ARRAY '{auto,never,always}'::text[] LOOP
        PERFORM set_config('ttl.debug_index_probe', mode, true);
        EXECUTE query INTO result;
        RETURN NEXT;
    END LOOP;
    PERFORM set_config('ttl.debug_index_probe', 'auto', true);
END $$;
SET enable_seqscan = off;

-- A lossy bitmap, whose pages are rechecked row by row
SET enable_indexscan = off; SET work_mem = '64kB';
SELECT count(*) AS lossy FROM explained('SELECT id FROM watched WHERE x ~= 1', 'Heap Blocks:.*lossy=[0-9]+');
SELECT * FROM in_all_modes('SELECT count(*) FROM watched WHERE x ~= 1');
RESET enable_indexscan; RESET work_mem;

-- A hash index, which has hashes to compare
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM watched WHERE x ~= 0;
SELECT * FROM in_all_modes('SELECT count(*) FROM watched WHERE x ~= 0');
SELECT * FROM in_all_modes('SELECT count(*) FROM watched WHERE x ~= 1');

-- An index-only scan that is to recheck what it has read from the index
EXPLAIN (COSTS OFF) SELECT count(at) FROM watched WHERE at ~<@ '((-200,-200),(200,-200),(200,200),(-200,200))';
SELECT * FROM in_all_modes('SELECT count(at) FROM watched WHERE at '
    '~<@ ''((-200,-200),(200,-200),(200,200),(-200,200))''');

-- The nearest, by distances that are too small at first
EXPLAIN (COSTS OFF) SELECT id FROM watched ORDER BY area <~> '(-10,0)' LIMIT 20;
SELECT * FROM in_all_modes('SELECT md5(string_agg(round(d::numeric, 3)::text, '','')) FROM (SELECT area '
    '<~> ''(-10,0)'' AS d FROM watched ORDER BY area <~> ''(-10,0)'' LIMIT 300) s');
SELECT * FROM in_all_modes('SELECT count(*) FROM (SELECT id FROM watched ORDER BY area <~> ''(-10,0)'') s');
-- and by a sort
RESET enable_seqscan; SET enable_indexscan = off; SET enable_bitmapscan = off;
SELECT md5(string_agg(round(d::numeric, 3)::text, ',')) FROM (SELECT area <~> '(-10,0)' AS d FROM watched
    ORDER BY area <~> '(-10,0)' LIMIT 300) s;
RESET enable_indexscan; RESET enable_bitmapscan;

--
-- Subplans in the conditions of scans: each is there once
--

-- A hashed one, and one for each row; a plan with a copy of the filter would have two
SELECT count(*) FROM explained('SELECT id FROM few WHERE id < 20 OR x IN (SELECT k FROM c_b JOIN c_a ON a_id = '
    'c_a.id)', '^ *SubPlan ');
SELECT count(*) FROM explained('SELECT id FROM few s WHERE id < 20 OR EXISTS (SELECT FROM c_b b WHERE b.a_id = s.id '
    'AND b.id < s.x)', '^ *SubPlan ');
SELECT * FROM in_all_modes('SELECT count(*) FROM few WHERE id < 20 OR x IN (SELECT k FROM c_b JOIN c_a ON a_id = '
    'c_a.id)');
SELECT * FROM in_all_modes('SELECT count(*) FROM few s WHERE id < 400 AND (id < 20 OR (SELECT count(*) FROM c_b b '
    'WHERE b.a_id < s.id AND b.id > s.x) > 20)');

-- Nested: each is there once, and not a power of two
BEGIN;
SELECT 'SELECT count(*) FROM few a WHERE id < 5 OR ' || repeat('(SELECT count(*) FROM few a WHERE id < 3 OR ',
    5) || '(SELECT count(*) FROM few WHERE id < 3) > 0' || repeat(') > 0', 5) AS nested \gset
SELECT * FROM in_all_modes(:'nested');
DECLARE nested CURSOR FOR :nested;
FETCH nested;
SELECT sum(total_bytes) < 100000000 AS little_memory FROM pg_backend_memory_contexts;
COMMIT;

--
-- Cursors
--

-- The policy is turned off and the index dropped under a cursor: it goes on as it
-- began
CREATE FUNCTION moved(c refcursor) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    MOVE FORWARD ALL FROM c;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
CREATE FUNCTION moved_back(c refcursor) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint;
BEGIN
    MOVE BACKWARD ALL FROM c;
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
SELECT split_part(truth('bare'), ' ', 1)::int AS must_come;

-- Of each kind, with the positions where they stood: none shows a row more or less
BEGIN;
SET LOCAL ttl.debug_index_probe = 'always';
DECLARE a NO SCROLL CURSOR FOR SELECT id FROM bare;
DECLARE b SCROLL CURSOR FOR SELECT id FROM bare WHERE id > 0;
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT id FROM bare;
DECLARE d NO SCROLL CURSOR FOR SELECT id FROM bare;
MOVE a; MOVE b; MOVE c;
SELECT ttl.set_default_ttl('bare', NULL);
DROP INDEX bare__ts_idx;
SELECT moved('a') AS a, moved('b') AS b, moved_back('b') AS b_back, moved('d') AS d;
COMMIT;
SELECT moved('c') AS c, moved_back('c') AS c_back;
CLOSE c;
SELECT count(*) FROM bare;
CREATE INDEX ON bare (_ts);
SELECT ttl.set_default_ttl('bare', 60);

-- An index made by the transaction itself is read like others
BEGIN;
SELECT ttl.set_default_ttl('bare', NULL);
DROP INDEX bare__ts_idx;
UPDATE bare SET _ts = '2020-01-01' WHERE id < 10;
CREATE INDEX bare__ts_idx ON bare (_ts);
SELECT ttl.set_default_ttl('bare', 60);
SELECT * FROM in_all_modes('SELECT count(*) FROM bare');
ROLLBACK;

-- What this transaction changes under a cursor; what it rolls back
CREATE FUNCTION under_a_cursor(m text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    c CURSOR FOR SELECT id FROM half ORDER BY id;
    c2 CURSOR FOR SELECT id FROM half WHERE id > 0;
    n bigint := 0;
    i int;
BEGIN
    PERFORM set_config('ttl.debug_index_probe', m, true);
    OPEN c; OPEN c2;
    FETCH c INTO i;
    UPDATE half SET x = x + 1 WHERE id % 3 = 0;
    BEGIN
        FETCH c INTO i;
        DELETE FROM half WHERE id % 5 = 0;
        INSERT INTO half (id, x) SELECT g, 0 FROM generate_series(1, 69) g WHERE g % 5 = 0;
        INSERT INTO half (id, x, _ts) SELECT g, 0, '2020-01-01' FROM generate_series(5001, 5200) g;
        MOVE FORWARD 900 FROM c2;
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN
    END;
    DELETE FROM half WHERE id % 7 = 0;
    INSERT INTO half (id, x, _ts) SELECT g, 0, '2020-01-01' FROM generate_series(6001, 6200) g;
    LOOP
        FETCH c INTO i;
        EXIT WHEN NOT FOUND;
        n := n + i;
    END LOOP;
    LOOP
        FETCH c2 INTO i;
        EXIT WHEN NOT FOUND;
        n := n + i;
    END LOOP;
    CLOSE c; CLOSE c2;
    RETURN n * 100000 + (SELECT count(*) FROM half);
END $$;

-- Whether the filter is checked row by row or not, the cursor fetches the same
BEGIN; SELECT under_a_cursor('never') AS never \gset
ROLLBACK; BEGIN; SELECT under_a_cursor('auto') = :never AS auto;
ROLLBACK; BEGIN; SELECT under_a_cursor('always') = :never AS always;
ROLLBACK;

-- The row that a cursor is at
BEGIN;
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL ttl.debug_index_probe = 'always';
DECLARE at CURSOR FOR SELECT id FROM half WHERE id > 100;
MOVE 70 FROM at;
FETCH at;

-- With the filter put aside, the cursor's position is that of the row
UPDATE half SET x = -1 WHERE CURRENT OF at RETURNING id, x;
FETCH at;
DELETE FROM half WHERE CURRENT OF at RETURNING id;
ROLLBACK;

--
-- The rest
--

-- A plan of before it was a container, and of after
CREATE TABLE later (id int PRIMARY KEY, _ts timestamptz NOT NULL, ttl int);
INSERT INTO later SELECT i, ts(i % 2 = 0) FROM generate_series(1, 2000) i;
VACUUM ANALYZE later;
SET plan_cache_mode = force_generic_plan;
PREPARE later_all AS SELECT count(*), sum(id) FROM later;
PREPARE later_only AS SELECT count(*) FROM later WHERE id < 500;
EXECUTE later_all; EXECUTE later_only;
SELECT ttl.create_container('later', 60, ts_column => '_ts', ttl_column => 'ttl');
EXECUTE later_all; EXECUTE later_only;
SELECT ttl.drop_container('later');
EXECUTE later_all; EXECUTE later_only;
DEALLOCATE ALL;
RESET plan_cache_mode;

-- EXPLAIN tells how many rows were hidden, whichever way they were found
SELECT mode, result FROM in_all_modes('SELECT string_agg(l, '', '') FROM explained(''SELECT id FROM half'', ''^ *(Rows '
    'Removed|Filter)'') l');
SET enable_seqscan = off; SET enable_bitmapscan = off;
SELECT mode, result FROM in_all_modes('SELECT string_agg(l, '', '') FROM explained(''SELECT id FROM half WHERE id > '
    '2000'', ''^ *(Rows Removed|Filter)'') l');
RESET enable_seqscan; RESET enable_bitmapscan;

-- From 18 on, it says what the filter had to do
SELECT mode, result = CASE WHEN current_setting('server_version_num')::int < 180000 THEN ''
    WHEN mode = 'always' THEN 'Expiry Filter: 1752 candidate rows' ELSE 'Expiry Filter: each row' END AS as_expected
  FROM in_all_modes($$SELECT coalesce(string_agg(trim(l), ', '), '')
      FROM explained('SELECT id FROM half', 'Expiry Filter') l$$);

-- A scan that has found out that nothing has expired goes on without a filter
CREATE TABLE fresh (id int PRIMARY KEY, x int);
SELECT ttl.create_container('fresh', 86400);
INSERT INTO fresh SELECT i, i FROM generate_series(1, 3000) i;
VACUUM ANALYZE fresh;

-- "none expired" unless each row is asked to be checked, with and without conditions and expressions
SELECT query, bool_and(result = CASE WHEN current_setting('server_version_num')::int < 180000 THEN ''
    WHEN mode = 'never' THEN 'Expiry Filter: each row' ELSE 'Expiry Filter: none expired' END) AS as_expected
  FROM unnest('{SELECT * FROM fresh,SELECT x + 1 FROM fresh,SELECT x FROM fresh WHERE x > 7,SELECT id FROM fresh WHERE '
      'id > 0 ORDER BY id}'::text[]) query,
       in_all_modes(format($$SELECT coalesce(string_agg(trim(l), ', '), '') FROM explained(%L, 'Expiry Filter') l$$,
           query))
  GROUP BY query ORDER BY query COLLATE "C";

-- The scan without a filter has its expressions and conditions, when it is begun again, and in either direction
SELECT * FROM in_all_modes('SELECT count(*) || '' '' || sum(c) FROM generate_series(1, 3) g, LATERAL (SELECT count(*) '
    'AS c FROM (SELECT x + g FROM fresh OFFSET g) y) z');
BEGIN;
DECLARE forth SCROLL CURSOR FOR SELECT id FROM fresh;
DECLARE computed SCROLL CURSOR FOR SELECT id + 0 FROM fresh;
MOVE 2000 FROM forth; FETCH 2 FROM forth; MOVE BACKWARD 1500 FROM forth; FETCH BACKWARD 2 FROM forth;
MOVE 2000 FROM computed; FETCH 2 FROM computed; MOVE BACKWARD 1500 FROM computed; FETCH BACKWARD 2 FROM computed;
ROLLBACK;

-- Forward and backward, past rows that have expired, with other quals and computed columns
CREATE FUNCTION there_and_back(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c refcursor;
    row record;
    there text[];
    back text[];
BEGIN
    OPEN c SCROLL FOR EXECUTE query;
    LOOP
        FETCH c INTO row;
        EXIT WHEN NOT FOUND;
        there := there || row::text;
    END LOOP;
    LOOP
        FETCH PRIOR FROM c INTO row;
        EXIT WHEN NOT FOUND;
        back := row::text || back;
    END LOOP;
    MOVE FIRST FROM c;
    FETCH RELATIVE 2 FROM c INTO row;
    RETURN format('%s %s %s', cardinality(there), there = back, row::text = there[3]);
END $$;

-- Each query as many rows, the same back as there, and the third by position, in all modes
SELECT query, string_agg(DISTINCT result, ', ') AS result, count(*)
  FROM unnest(ARRAY['SELECT id FROM half', 'SELECT * FROM half WHERE x <> 7',
      'SELECT id + 1, x FROM half WHERE id % 3 = 1',
      'SELECT id FROM half WHERE (SELECT count(*) FROM few WHERE few.id < half.id % 10) > 3']) query,
       in_all_modes(format('SELECT there_and_back(%L)', query))
 GROUP BY query ORDER BY query COLLATE "C";

-- Recursion, and MERGE
-- A row that is found by the least key beyond the one before
SELECT * FROM in_all_modes('WITH RECURSIVE r AS (SELECT min(id) AS id FROM half UNION ALL SELECT (SELECT min(id) FROM '
    'half h WHERE h.id > r.id) FROM r WHERE r.id IS NOT NULL) SELECT count(id) || '' '' || sum(id) FROM r');

-- Each action for live rows alone; keys of expired ones are free
BEGIN;
MERGE INTO half h USING contents c ON h.id = c.id AND h.x >= 0
    WHEN MATCHED AND h.id % 2 = 0 THEN UPDATE SET x = -2
    WHEN MATCHED THEN DELETE
    WHEN NOT MATCHED AND c.id < 20 THEN INSERT (id, x) VALUES (c.id, -3);
SELECT x, count(*) FROM half GROUP BY x ORDER BY x;
ROLLBACK;

-- A plan is started without its filters, and has them: after an error, and when it is
-- started once more in the meantime, by a function that prunes its partitions
SET plan_cache_mode = force_generic_plan;
CREATE ROLE scans_nobody;
GRANT USAGE ON SCHEMA scans TO scans_nobody;
PREPARE counted(int) AS SELECT count(*), count(*) FILTER (WHERE EXISTS (SELECT FROM half h
    WHERE h.id = f.id AND h.x >= $1)) FROM few f WHERE x >= $1;

-- Both filters work, after the error as before
EXECUTE counted(0);
SET ROLE scans_nobody;
EXECUTE counted(0);
RESET ROLE;
EXECUTE counted(0);
SELECT count(*) FROM explained('EXECUTE counted(0)', 'ttl.is_live') l;
CREATE FUNCTION pruned_by(n int) RETURNS int STABLE LANGUAGE plpgsql AS $$
DECLARE result int;
BEGIN
    IF n > 0 THEN
        SELECT (SELECT count(*) FROM few) - 2913 + count(*) INTO result FROM parted WHERE id > pruned_by(n - 1) - 1450;
    END IF;
    RETURN coalesce(result, 0);
END $$;

-- With expired rows of the other table, too, the first partition would be left out
SELECT * FROM in_all_modes('SELECT pruned_by(1) || '' '' || pruned_by(2) || '' '' || (SELECT count(*) FROM parted '
    'WHERE id > 2915 - 1450)');

-- What an execution was started with goes with it
CREATE FUNCTION one_of(n int) RETURNS bigint VOLATILE LANGUAGE sql AS 'SELECT count(*) FROM half WHERE id = n';
SELECT sum(one_of(i)), (SELECT count(*) < 10 FROM pg_backend_memory_contexts WHERE name = 'ttl plan copy') AS freed
    FROM generate_series(1, 1000) i;

-- A sublink that is hashed anew when such a scan begins anew: no row is its own neighbour
CREATE FUNCTION neighbours(n int) RETURNS int STABLE LANGUAGE plpgsql AS $$
DECLARE result int;
BEGIN
    IF n > 0 THEN
        SELECT count(*) FILTER (WHERE l.id = g) INTO result FROM generate_series(100, 110) g, LATERAL (SELECT id
            FROM parted WHERE id > neighbours(n - 1) AND id <= g AND id NOT IN (SELECT i
            FROM generate_series(g, g) i) OFFSET 0) l;
    END IF;
    RETURN coalesce(result, 0);
END $$;
SELECT * FROM in_all_modes('SELECT neighbours(1) || '' '' || neighbours(2)');
REVOKE USAGE ON SCHEMA scans FROM scans_nobody;
DROP ROLE scans_nobody;
RESET plan_cache_mode;

-- A deletion of ttl's with a rule that reads the container by an index-only scan: all are deleted
CREATE TABLE log (n int);
CREATE RULE log AS ON DELETE TO most DO ALSO INSERT INTO log SELECT id FROM most WHERE id = old.id;
SET enable_seqscan = off; SET enable_bitmapscan = off;
CALL ttl.reap('most');
SELECT ttl.expired_count('most');
RESET enable_seqscan; RESET enable_bitmapscan;

--
-- A scan of few rows searches the expiry indexes, too, when it has met some, unless it is the session's
-- first or that has not paid lately
--

-- Whether a query has searched an expiry index of the table
CREATE FUNCTION searches(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    all_scans text := 'SELECT sum(pg_stat_get_xact_numscans(indexrelid)) FROM pg_index WHERE indrelid '
        '= ''fewer''::regclass AND NOT indisprimary';
    before bigint;
    after bigint;
BEGIN
    EXECUTE all_scans INTO before;
    EXECUTE query;
    EXECUTE all_scans INTO after;
    RETURN after > before;
END $$;
CREATE TABLE fewer (id int PRIMARY KEY, x int);
SELECT ttl.create_container('fewer', 3600);
INSERT INTO fewer SELECT i, i, CASE WHEN i <= 3 OR i % 100 = 50 THEN timestamptz '2020-01-01' ELSE now() END
    FROM generate_series(1, 300) i;
VACUUM ANALYZE fewer;

-- In a new session
\c -
SET client_min_messages = warning;
SET search_path = scans, public;
SET jit = off;
SET enable_indexonlyscan = off;
SET enable_bitmapscan = off;
SELECT searches('SELECT count(*) FROM fewer') AS "the first";
SELECT count(*), min(id), sum(id) FROM fewer;
-- having met some it does, unless it may end early
SELECT searches('SELECT count(*) FROM fewer') AS searches,
       searches('SELECT x FROM fewer WHERE id > 0 AND x > 0') AS "not of a key",
       searches('SELECT x FROM fewer LIMIT 5') AS "LIMIT",
       searches('SELECT x FROM fewer WHERE EXISTS (SELECT FROM fewer) LIMIT 1') AS "EXISTS";

-- When one scan of the statement has met some, the others don't wait until they have
CREATE TABLE before_fewer (x int);
SELECT ttl.create_container('before_fewer', 100000);
INSERT INTO before_fewer SELECT i FROM generate_series(1, 100) i;
ANALYZE before_fewer;
SELECT count(*) FROM before_fewer;
SELECT searches('SELECT x FROM before_fewer UNION ALL SELECT x FROM fewer LIMIT 10') AS "ends before",
       searches('SELECT x FROM before_fewer UNION ALL SELECT x FROM fewer LIMIT 105') AS "ends behind 5 rows";

-- The index on items is not searched while it has never had an entry
BEGIN;
SELECT count(*) FROM fewer;
SELECT pg_get_expr(indpred, indrelid) AS predicate, pg_stat_get_xact_numscans(indexrelid) > 0 AS "is searched"
    FROM pg_index WHERE indrelid = 'fewer'::regclass AND NOT indisprimary ORDER BY 1;
COMMIT;

-- Of 300 rows 200 have expired: a search that finds so many doesn't pay, and is tried again after some scans
SET ttl.touch = off;
UPDATE fewer SET _ts = '2020-01-01' WHERE id <= 200;
RESET ttl.touch;
SELECT i, searches('SELECT count(*) FROM fewer') AS searches FROM generate_series(1, 3) i;
SELECT count(*), min(id) FROM fewer;
SELECT bool_or(searches('SELECT count(*) FROM fewer')) AS "again, after some" FROM generate_series(1, 40);
RESET enable_indexonlyscan;
RESET enable_bitmapscan;

-- UPDATEs write the expiry indexes by the predicates that INSERTs write them by
CREATE TABLE renewed (id int PRIMARY KEY, x int);
SELECT ttl.create_container('renewed', 100);
INSERT INTO renewed SELECT i, i FROM generate_series(1, 300) i;
-- each row in the index of its TTL, by an UPDATE of all and of a part
UPDATE renewed SET ttl = CASE id % 3 WHEN 1 THEN 10 WHEN 2 THEN -1 END;
UPDATE renewed SET ttl = CASE id % 3 WHEN 0 THEN 10 WHEN 1 THEN -1 END WHERE id > 150;
-- by the index those are hidden that have expired, or the indexes have other rows than they should
SELECT set_config('ttl.now', (now() + interval '50 seconds')::text,
    false) IS NOT NULL AS "rows with a TTL of 10 have expired";
SELECT * FROM in_all_modes('SELECT count(*) || '' '' || sum(id) FROM renewed');
SET ttl.now = '3000-01-01';
SELECT * FROM in_all_modes('SELECT count(*) || '' '' || sum(id) FROM renewed');
RESET ttl.now;

RESET ttl.touch;
DROP SCHEMA scans CASCADE;
