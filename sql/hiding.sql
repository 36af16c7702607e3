-- Hiding: every statement over a container that holds expired rows answers as
-- the same statement over a plain table that never had them
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA hiding;
SET search_path = hiding, public;
SET jit = off;

-- Three forms of the container, and the plain table.  Expired rows lie among
-- the live ones in every order, by default TTL and by their own; x = 0 and
-- note = 'secret' are theirs alone
CREATE TABLE plain_c (id int PRIMARY KEY, grp int, x int, note text, tags text[], _ts timestamptz NOT NULL, ttl int);
CREATE TABLE ordinary_c (LIKE plain_c INCLUDING ALL);
CREATE TABLE hashed_c (note text, _ts timestamptz NOT NULL, gone int, x int, ttl int, id int PRIMARY KEY, grp int,
    tags text[]) PARTITION BY HASH (id);
CREATE TABLE hashed_c_0 PARTITION OF hashed_c FOR VALUES WITH (MODULUS 3, REMAINDER 0);
CREATE TABLE hashed_c_1 (id int NOT NULL, tags text[], ttl int, _ts timestamptz NOT NULL, gone int, grp int, note text,
    x int);
ALTER TABLE hashed_c ATTACH PARTITION hashed_c_1 FOR VALUES WITH (MODULUS 3, REMAINDER 1);
CREATE TABLE hashed_c_2 PARTITION OF hashed_c FOR VALUES WITH (MODULUS 3, REMAINDER 2);
ALTER TABLE hashed_c DROP COLUMN gone;
CREATE TABLE listed_c (id int, _ts timestamptz NOT NULL, grp int NOT NULL, x int, note text, tags text[], ttl int,
    PRIMARY KEY (grp, id)) PARTITION BY LIST (grp);
CREATE TABLE listed_c_0 PARTITION OF listed_c FOR VALUES IN (0);
CREATE TABLE listed_c_rest PARTITION OF listed_c DEFAULT PARTITION BY LIST (grp);
CREATE TABLE listed_c_1 PARTITION OF listed_c_rest FOR VALUES IN (1, 2);
CREATE TABLE listed_c_2 PARTITION OF listed_c_rest DEFAULT;

-- 600 rows of which those with i % 4 in (1, 2) have expired, half of them by their own TTL
CREATE FUNCTION sample() RETURNS TABLE (id int, grp int, x int, note text, tags text[], _ts timestamptz, ttl int,
    live boolean)
LANGUAGE sql AS $$
    SELECT i, i % 5,
           CASE WHEN live THEN i % 7 + 1 ELSE 0 END,
           CASE WHEN live THEN 'note ' || i % 11 ELSE 'secret' END,
           ARRAY['t' || i % 3, 'u' || i % 4],
           CASE WHEN NOT live AND i % 2 = 0 THEN timestamptz '2020-01-01' + i * interval '1 s'
                WHEN NOT live THEN '2000-01-01'
                WHEN i % 3 = 0 THEN '2000-01-01'
                ELSE '2999-01-01' END,
           CASE WHEN NOT live AND i % 2 = 1 THEN 60
                WHEN i % 3 = 0 AND live THEN -1
                WHEN i % 5 = 0 AND live THEN 3600 END,
           live
      FROM generate_series(1, 600) AS i, LATERAL (SELECT i % 4 NOT IN (1, 2)) AS l (live)
$$;
INSERT INTO plain_c SELECT id, grp, x, note, tags, _ts, ttl FROM sample() WHERE live;
INSERT INTO ordinary_c (id, grp, x, note, tags, _ts, ttl) SELECT id, grp, x, note, tags, _ts, ttl FROM sample();
INSERT INTO hashed_c (id, grp, x, note, tags, _ts, ttl) SELECT id, grp, x, note, tags, _ts, ttl FROM sample();
INSERT INTO listed_c (id, grp, x, note, tags, _ts, ttl) SELECT id, grp, x, note, tags, _ts, ttl FROM sample();
CREATE INDEX ON plain_c (x); CREATE INDEX ON ordinary_c (x); CREATE INDEX ON hashed_c (x); CREATE INDEX ON listed_c (x);
CREATE INDEX ON plain_c USING gin (tags); CREATE INDEX ON ordinary_c USING gin (tags);
CREATE INDEX ON hashed_c USING gin (tags); CREATE INDEX ON listed_c USING gin (tags);
CREATE INDEX ON plain_c (grp, id) INCLUDE (_ts, ttl); CREATE INDEX ON ordinary_c (grp, id) INCLUDE (_ts, ttl);
CREATE INDEX ON hashed_c (grp, id) INCLUDE (_ts, ttl); CREATE INDEX ON listed_c (grp, id) INCLUDE (_ts, ttl);
SELECT ttl.create_container(c, 60, ts_column => '_ts', ttl_column => 'ttl')
    FROM unnest('{ordinary_c, hashed_c, listed_c}'::regclass[]) c;

-- Each has the 300 live rows, and the containers as many that nobody sees
VACUUM ANALYZE plain_c, ordinary_c, hashed_c, listed_c;
SELECT (SELECT count(*) FROM plain_c) AS plain, (SELECT count(*) FROM ordinary_c) AS ordinary, (SELECT count(*)
    FROM hashed_c) AS hashed, (SELECT count(*) FROM listed_c) AS listed;
SELECT c, ttl.expired_count(c) FROM unnest('{ordinary_c, hashed_c, listed_c}'::regclass[]) c;

-- An ordinary table to join with
CREATE TABLE other (id int PRIMARY KEY, c_id int, x int);
INSERT INTO other SELECT i, i, i % 9 FROM generate_series(0, 700, 2) i;
ANALYZE other;

-- Functions that see every value they are called with
CREATE FUNCTION leaky(int, text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
    IF $1 = 0 OR $2 = 'secret' THEN
        RAISE EXCEPTION 'an expired row was seen: %, %', $1, $2;
    END IF;
    RETURN true;
END $$;
CREATE OPERATOR <~> (FUNCTION = leaky, LEFTARG = int, RIGHTARG = text);

-- Objects that look at a table, for each form: %1$s is its name
CREATE PROCEDURE make_objects(c text) LANGUAGE plpgsql AS $outer$
BEGIN
    EXECUTE format($$
        CREATE VIEW %1$s_view AS SELECT id, grp, x, note FROM %1$s WHERE x > 1;
        CREATE VIEW %1$s_barrier WITH (security_barrier) AS SELECT * FROM %1$s WHERE grp < 4;
        CREATE VIEW %1$s_over AS SELECT grp, count(*) AS n FROM %1$s_view GROUP BY grp;
        CREATE MATERIALIZED VIEW %1$s_mat AS SELECT id, x FROM %1$s WITH NO DATA;
        CREATE FUNCTION %1$s_inlined(lo int) RETURNS SETOF %1$s LANGUAGE sql STABLE AS
            'SELECT * FROM %1$s WHERE id > lo';
        CREATE FUNCTION %1$s_standard(lo int) RETURNS TABLE (id int, x int) LANGUAGE sql STABLE BEGIN ATOMIC
            SELECT id, x FROM %1$s WHERE id > lo; END;
        CREATE FUNCTION %1$s_scalar() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM %1$s';
        CREATE FUNCTION %1$s_pl(g int) RETURNS text LANGUAGE plpgsql AS
            'DECLARE r record; s text := ''''; BEGIN FOR r IN SELECT id FROM %1$s WHERE grp = g ORDER BY id LOOP s := '
            's || r.id || '',''; END LOOP; RETURN s; END';
        CREATE FUNCTION %1$s_cursor(scroll_to int) RETURNS SETOF int LANGUAGE plpgsql AS
            'DECLARE c SCROLL CURSOR FOR SELECT id FROM %1$s ORDER BY id; i int; BEGIN OPEN c; MOVE ABSOLUTE scroll_to '
            'FROM c; LOOP FETCH PRIOR FROM c INTO i; EXIT WHEN NOT FOUND; RETURN NEXT i; END LOOP; CLOSE c; END';
        CREATE FUNCTION %1$s_dynamic() RETURNS bigint LANGUAGE plpgsql AS
            'DECLARE n bigint; BEGIN EXECUTE ''SELECT count(*) FROM %1$s WHERE x > $1'' INTO n USING 2; RETURN n; END';
    $$, c);
END $outer$;
CALL make_objects('plain_c');
CALL make_objects('ordinary_c');
CALL make_objects('hashed_c');
CALL make_objects('listed_c');

--
-- The machinery
--

-- All rows of a query, as text, sorted; the values of what is not asked for
-- don't matter
CREATE FUNCTION rows_of(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    result text[];
BEGIN
    EXECUTE format('WITH q AS MATERIALIZED (%s) SELECT coalesce(array_agg(q::text ORDER BY q::text COLLATE '
        '"C"), ''{}'') FROM q', query) INTO result;
    RETURN result;
END $$;

-- The same by a prepared statement with a generic plan
CREATE FUNCTION rows_of_generic(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    result text[];
    name text := 'generic_' || md5(query);
BEGIN
    EXECUTE format('PREPARE %I (int) AS WITH q AS MATERIALIZED (%s) SELECT coalesce(array_agg(q::text ORDER BY q::text '
        'COLLATE "C"), ''{}'') FROM q WHERE $1 = 1', name, query);
    EXECUTE format('EXECUTE %I (1)', name) INTO result;
    EXECUTE format('EXECUTE %I (1)', name) INTO result;
    EXECUTE format('DEALLOCATE %I', name);
    RETURN result;
END $$;

-- What a statement that writes returns and leaves, all of which is rolled back.
-- That an UPDATE resets the clock is what tells a container from a plain table,
-- and a matter of another test
CREATE FUNCTION effects_of(statement text, c text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    returned text[] := '{}';
    remain text[];
    n bigint;
BEGIN
    BEGIN
        SET LOCAL ttl.touch = off;
        IF statement ~ 'RETURNING' THEN
            EXECUTE format(CASE WHEN statement ~ '^WITH' THEN '%s'
                ELSE 'WITH q AS (%s) SELECT coalesce(array_agg(q::text ORDER BY q::text COLLATE "C"), ''{}'') FROM q'
                END, statement) INTO returned;
        ELSE
            EXECUTE statement;
            GET DIAGNOSTICS n = ROW_COUNT;
            returned := ARRAY[n::text];
        END IF;
        EXECUTE format('SELECT coalesce(array_agg(t::text ORDER BY id, t::text COLLATE "C"), ''{}'') FROM (SELECT id, '
            'grp, x, note, tags, ttl, CASE WHEN _ts < ''2025-01-01'' OR _ts > ''2900-01-01'' THEN _ts::text '
            'ELSE ''present'' END AS ts FROM %I_c) t', c) INTO remain;
        RAISE EXCEPTION USING ERRCODE = 'TTL00';
    EXCEPTION WHEN SQLSTATE 'TTL00' THEN
    END;
    RETURN ARRAY['returned:'] || returned || ARRAY['left:'] || remain;
END $$;

-- Every %s is one form of the table; wanted is what the plain table answers,
-- asked once.  Says ok, or what differs
CREATE TABLE form (label text, way text, statement text, wanted text[]);
CREATE FUNCTION answer(way text, statement text, c text) RETURNS text[] LANGUAGE sql AS $$
    SELECT CASE way WHEN 'read' THEN rows_of(replace(statement, '%s', c || '_c'))
                    WHEN 'generic' THEN rows_of_generic(replace(statement, '%s', c || '_c'))
                    ELSE effects_of(replace(statement, '%s', c || '_c'), c) END
$$;
CREATE FUNCTION same(way text, label text, statement text, wanted text[], c text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    got text[];
    message text;
BEGIN
    got := answer(way, statement, c);
    IF cardinality(wanted) = 0 THEN
        RETURN 'EMPTY: ' || label;
    ELSIF wanted IS DISTINCT FROM got THEN
        RETURN format('DIFFERENT: %s: %s rows and %s; missing %s, too many %s', label, cardinality(wanted),
            cardinality(got),
            (SELECT array_agg(w) FROM (SELECT w FROM unnest(wanted) w EXCEPT ALL SELECT g FROM unnest(got) g
                ORDER BY 1 LIMIT 3) _),
            (SELECT array_agg(g) FROM (SELECT g FROM unnest(got) g EXCEPT ALL SELECT w FROM unnest(wanted) w
                ORDER BY 1 LIMIT 3) _));
    END IF;
    RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
    RETURN format('FAILED: %s: %s %s', label, SQLSTATE, message);
END $$;

-- One line for each form of table: how many are ok, and those that are not
CREATE FUNCTION battery(ways text, generic boolean DEFAULT false) RETURNS TABLE (container text, ok bigint,
    others text) LANGUAGE sql AS $$
    SELECT c, count(*) FILTER (WHERE verdict = 'ok'), string_agg(verdict, E'\n'
        ORDER BY label COLLATE "C") FILTER (WHERE verdict <> 'ok')
      FROM unnest('{ordinary,hashed,listed}'::text[]) WITH ORDINALITY AS _ (c, n), form,
           LATERAL same(CASE WHEN generic THEN 'generic' ELSE way END, label, statement, wanted, c) AS verdict
     WHERE way = ways
     GROUP BY n, c ORDER BY n
$$;

--
-- Reads
--

INSERT INTO form (way, label, statement) SELECT 'read', label, statement FROM (VALUES
    ('all rows', 'SELECT id, grp, x, note, tags, ttl, _ts FROM %s'),
    ('count', 'SELECT count(*) FROM %s'),
    ('scalar aggregates', 'SELECT count(x), sum(x), avg(x), min(note), max(note), bool_and(x > 0), array_agg(id ORDER '
        'BY id) FROM %s'),
    ('scalar aggregate over nothing', 'SELECT count(*), max(x) FROM %s WHERE x = 0'),
    ('min by index', 'SELECT min(x) FROM %s'),
    ('max by index', 'SELECT max(id) FROM %s'),
    ('min and max of key', 'SELECT min(id), max(id) FROM %s WHERE grp = 1'),
    ('a live row by key', 'SELECT note FROM %s WHERE id = 4'),
    ('expired rows by key', 'SELECT count(*) FROM %s WHERE id IN (1, 2, 5, 6)'),
    ('range by key', 'SELECT id FROM %s WHERE id BETWEEN 5 AND 50'),
    ('by array', 'SELECT id FROM %s WHERE id = ANY (ARRAY[1,2,3,4,5,6,7,8])'),
    ('by index, ordered', 'SELECT id, x FROM %s ORDER BY id LIMIT 20'),
    ('by index, backwards', 'SELECT id, x FROM %s ORDER BY id DESC LIMIT 20'),
    ('by covering index', 'SELECT grp, id FROM %s WHERE grp = 1'),
    ('by two indexes', 'SELECT id FROM %s WHERE x = 3 OR id < 20'),
    ('by gin index', 'SELECT id FROM %s WHERE tags @> ''{t1,u3}'''),
    ('offset', 'SELECT id FROM %s ORDER BY id OFFSET 10 LIMIT 5'),
    ('with ties', 'SELECT id, x FROM %s ORDER BY x FETCH FIRST 10 ROWS WITH TIES'),
    ('division by what expired rows hold', 'SELECT id FROM %s WHERE 10 / x > 1'),
    ('division in the output', 'SELECT id, 10 / x FROM %s'),
    ('division in an aggregate', 'SELECT sum(10 / x), max(10 % x) FROM %s'),
    ('division in ORDER BY', 'SELECT id FROM %s ORDER BY 10 / x, id LIMIT 50'),
    ('division in a join', 'SELECT c.id FROM %s c JOIN other o ON o.id = c.id AND 10 / c.x = o.x'),
    ('division in HAVING', 'SELECT x FROM %s GROUP BY x HAVING 10 / x > 1'),
    ('division in CASE', 'SELECT CASE WHEN 10 / x > 1 THEN id END FROM %s'),
    ('a cheap function', 'SELECT id FROM %s WHERE leaky(x, note)'),
    ('a cheap operator', 'SELECT id FROM %s WHERE x <~> note AND id > 10'),
    ('a cheap function with index', 'SELECT id FROM %s WHERE leaky(x, note) AND id < 100'),
    ('a cheap function in a join', 'SELECT c.id FROM %s c JOIN other o ON o.id = c.id WHERE leaky(c.x, c.note)'),
    ('a cheap function in a join clause', 'SELECT c.id, o.id FROM %s c LEFT JOIN other o ON o.id = c.id AND leaky(c.x, '
        'c.note)'),
    ('a cheap function over a view', 'SELECT id FROM %s_view WHERE leaky(x, note)'),
    ('a cheap function over a barrier', 'SELECT id FROM %s_barrier WHERE leaky(x, note)'),
    ('a cheap function in UNION ALL', 'SELECT id FROM (SELECT id, x, note FROM %s UNION ALL SELECT id, x, note FROM '
        '%s) u WHERE leaky(x, note)'),
    ('a cheap function and tid', 'SELECT id FROM %s WHERE leaky(x, note) AND ctid >= ''(0,0)'''),
    ('a cheap function in a CTE', 'WITH w AS MATERIALIZED (SELECT id FROM %s WHERE leaky(x, note)) SELECT * FROM w'),
    ('a cast that fails', 'SELECT id FROM %s WHERE split_part(note, '' '', 2)::int > 3'),
    ('LIKE', 'SELECT id FROM %s WHERE note LIKE ''note 1%'''),
    ('regular expression', 'SELECT id FROM %s WHERE note ~ ''[es]'''),
    ('IS NULL', 'SELECT id FROM %s WHERE ttl IS NULL'),
    ('the clock''s columns', 'SELECT id, _ts, ttl FROM %s WHERE _ts < ''2025-01-01'' OR ttl = 3600'),
    ('whole row', 'SELECT (c.*) IS NOT NULL, c.id FROM %s c'),
    ('inner join', 'SELECT c.id, o.x FROM %s c JOIN other o ON o.c_id = c.id'),
    ('left join', 'SELECT o.id, c.x, c.id FROM other o LEFT JOIN %s c ON o.c_id = c.id'),
    ('left join from it', 'SELECT o.id, c.x, c.id FROM %s c LEFT JOIN other o ON o.c_id = c.id'),
    ('right join', 'SELECT o.id, c.id FROM %s c RIGHT JOIN other o ON o.c_id = c.id'),
    ('full join', 'SELECT o.id, c.id FROM %s c FULL JOIN other o ON o.c_id = c.id'),
    ('full join of itself', 'SELECT a.id, b.id FROM %s a FULL JOIN %s b ON a.id = b.id + 1'),
    ('left join with a condition', 'SELECT o.id, c.id FROM other o LEFT JOIN %s c ON o.c_id = c.id AND c.x > 3'),
    ('anti join by IS NULL', 'SELECT o.id FROM other o LEFT JOIN %s c ON o.c_id = c.id WHERE c.id IS NULL'),
    ('cross join', 'SELECT count(*) FROM %s c, other o WHERE o.id < 20'),
    ('natural join', 'SELECT id, x FROM %s NATURAL JOIN (SELECT id FROM other) o'),
    ('self join', 'SELECT a.id, b.id FROM %s a JOIN %s b ON a.id = b.id - 1'),
    ('self join on the key', 'SELECT a.id, b.x FROM %s a JOIN %s b ON a.id = b.id AND a.grp = b.grp WHERE a.x > 2'),
    ('removable left join', 'SELECT o.id FROM other o LEFT JOIN %s c ON o.c_id = c.id AND c.grp = 1'),
    ('lateral', 'SELECT o.id, l.id FROM other o, LATERAL (SELECT id FROM %s c WHERE c.id > o.id ORDER BY id LIMIT 2) '
        'l'),
    ('left join lateral', 'SELECT o.id, l.n FROM other o LEFT JOIN LATERAL (SELECT sum(x) AS n FROM %s c WHERE c.id = '
        'o.c_id) l ON true'),
    ('IN', 'SELECT id FROM other WHERE c_id IN (SELECT id FROM %s)'),
    ('NOT IN', 'SELECT id FROM other WHERE c_id NOT IN (SELECT id FROM %s)'),
    ('EXISTS', 'SELECT id FROM other o WHERE EXISTS (SELECT FROM %s c WHERE c.id = o.c_id AND c.x > 1)'),
    ('NOT EXISTS', 'SELECT id FROM other o WHERE NOT EXISTS (SELECT FROM %s c WHERE c.id = o.c_id)'),
    ('ANY', 'SELECT id FROM other WHERE x > ANY (SELECT x FROM %s)'),
    ('ALL', 'SELECT id FROM other WHERE x < ALL (SELECT x + 1 FROM %s)'),
    ('hashed subplan', 'SELECT id, c_id IN (SELECT id FROM %s) AS found FROM other'),
    ('scalar subquery', 'SELECT id, (SELECT note FROM %s c WHERE c.id = o.c_id) FROM other o'),
    ('scalar subquery in WHERE', 'SELECT id FROM other WHERE id > (SELECT avg(id) FROM %s)'),
    ('array subquery', 'SELECT ARRAY(SELECT id FROM %s ORDER BY id)'),
    ('subquery in CASE', 'SELECT id, CASE WHEN EXISTS (SELECT FROM %s c WHERE c.id = o.id) THEN 1 ELSE 2 END FROM '
        'other o'),
    ('subquery in FROM', 'SELECT s.x, s.n FROM (SELECT x, count(*) AS n FROM %s GROUP BY x) s WHERE s.n > 3'),
    ('subquery in LIMIT', 'SELECT id FROM other ORDER BY id LIMIT (SELECT count(*) / 10 FROM %s)'),
    ('subquery in ORDER BY', 'SELECT id FROM other o ORDER BY (SELECT x FROM %s c WHERE c.id = o.id), id LIMIT 9'),
    ('subquery in HAVING', 'SELECT x FROM other GROUP BY x HAVING sum(id) > (SELECT sum(x) FROM %s)'),
    ('subquery in VALUES', 'VALUES ((SELECT count(*) FROM %s)), ((SELECT max(x) FROM %s))'),
    ('subquery of a function', 'SELECT g FROM generate_series(1, (SELECT count(*) FROM %s)) g'),
    ('CTE', 'WITH w AS (SELECT * FROM %s) SELECT id FROM w WHERE x > 1'),
    ('CTE, materialized', 'WITH w AS MATERIALIZED (SELECT * FROM %s) SELECT id FROM w WHERE x > 1'),
    ('CTE, not materialized', 'WITH w AS NOT MATERIALIZED (SELECT * FROM %s) SELECT a.id FROM w a, w b WHERE a.id = '
        'b.id + 1'),
    ('CTE, recursive', 'WITH RECURSIVE w AS (SELECT 1 AS id UNION ALL (SELECT c.id FROM w JOIN %s c ON c.id > w.id '
        'WHERE w.id < 60 ORDER BY c.id LIMIT 1)) SELECT id FROM w'),
    ('UNION', 'SELECT x FROM %s UNION SELECT x FROM other'),
    ('UNION ALL', 'SELECT id, x FROM %s UNION ALL SELECT id, x FROM other'),
    ('UNION ALL with conditions on top', 'SELECT * FROM (SELECT id, x FROM %s UNION ALL SELECT id, x FROM other) u '
        'WHERE id < 100 AND 10 / (x + 1) > 2'),
    ('UNION ALL under a join', 'SELECT u.id, o.x FROM (SELECT id FROM %s UNION ALL SELECT id FROM %s WHERE x > 2) u '
        'JOIN other o ON o.id = u.id'),
    ('UNION ALL, outer joined', 'SELECT o.id, u.id FROM other o LEFT JOIN (SELECT id FROM %s UNION ALL SELECT c_id '
        'FROM other WHERE x = 3) u ON u.id = o.id'),
    ('UNION ALL, ordered by index', 'SELECT id FROM (SELECT id FROM %s UNION ALL SELECT id FROM other) u ORDER BY id '
        'LIMIT 30'),
    ('UNION ALL, minimum', 'SELECT min(id), max(x) FROM (SELECT id, x FROM %s UNION ALL SELECT id, x FROM other WHERE '
        'id > 10) u'),
    ('UNION ALL, nested', 'SELECT count(*) FROM (SELECT id FROM %s UNION ALL (SELECT id FROM %s UNION ALL SELECT id '
        'FROM %s_view)) u WHERE id > 7'),
    ('INTERSECT', 'SELECT id FROM other INTERSECT SELECT id FROM %s'),
    ('EXCEPT', 'SELECT id FROM other EXCEPT SELECT id FROM %s'),
    ('EXCEPT ALL from it', 'SELECT x FROM %s EXCEPT ALL SELECT x FROM other'),
    ('view', 'SELECT * FROM %s_view'),
    ('view over a view', 'SELECT * FROM %s_over'),
    ('security barrier view', 'SELECT id FROM %s_barrier WHERE x > 2'),
    ('inlined function', 'SELECT id, x FROM %s_inlined(100)'),
    ('inlined function, joined', 'SELECT f.id, o.x FROM other o, %s_inlined(o.x) f WHERE f.id = o.id'),
    ('SQL-standard function', 'SELECT * FROM %s_standard(100)'),
    ('SQL function, scalar', 'SELECT %s_scalar()'),
    ('PL/pgSQL', 'SELECT %s_pl(2)'),
    ('PL/pgSQL, scrolling cursor', 'SELECT %s_cursor(50)'),
    ('PL/pgSQL, dynamic', 'SELECT %s_dynamic()'),
    ('GROUP BY', 'SELECT grp, count(*), sum(x) FROM %s GROUP BY grp'),
    ('grouping sets', 'SELECT grp, x, count(*) FROM %s GROUP BY GROUPING SETS ((grp), (x), ())'),
    ('cube', 'SELECT grp, x, count(*) FROM %s GROUP BY CUBE (grp, x)'),
    ('filter', 'SELECT count(*) FILTER (WHERE x > 2) FROM %s'),
    ('window', 'SELECT id, row_number() OVER (ORDER BY id), sum(x) OVER (PARTITION BY grp ORDER BY id) FROM %s'),
    ('window, lag', 'SELECT id, lag(id) OVER (ORDER BY id) FROM %s'),
    ('DISTINCT', 'SELECT DISTINCT note FROM %s'),
    ('DISTINCT ON', 'SELECT DISTINCT ON (grp) grp, id, x FROM %s ORDER BY grp, id'),
    ('percentile', 'SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY id) FROM %s'),
    ('TABLESAMPLE', 'SELECT id FROM %s TABLESAMPLE BERNOULLI (100)'),
    ('TABLESAMPLE SYSTEM', 'SELECT count(*) FROM %s TABLESAMPLE SYSTEM (100) REPEATABLE (1)'),
    ('by ctid', 'SELECT count(*) FROM %s WHERE ctid = ANY (ARRAY(SELECT ctid FROM %s))'),
    ('by ctid, joined', 'SELECT a.id FROM %s a JOIN %s b ON a.ctid = b.ctid AND a.tableoid = b.tableoid'),
    ('by range of ctid', 'SELECT id FROM %s WHERE ctid > ''(0,0)'''),
    ('unnest', 'SELECT t, count(*) FROM %s, unnest(tags) t GROUP BY t'),
    ('JSON', 'SELECT jsonb_agg(to_jsonb(c) - ''_ts'' ORDER BY id) FROM (SELECT id, x FROM %s) c'),
    ('two of them compared', 'SELECT (SELECT count(*) FROM %s) = (SELECT count(*) FROM %s WHERE 10 / x >= 0)'),
    ('TABLE', 'SELECT count(*) FROM (TABLE %s) t'),
    ('system columns', 'SELECT count(DISTINCT (tableoid, ctid)) FROM %s')
) v (label, statement);
UPDATE form SET wanted = answer(way, statement, 'plain');
SELECT count(*) AS reads FROM form WHERE way = 'read';

-- by the plans that the planner chooses
SELECT * FROM battery('read');

-- With every kind of scan and join, by excluding the others: index scans
SET enable_seqscan = off;
SELECT * FROM battery('read');
-- bitmap scans
SET enable_indexscan = off; SET enable_indexonlyscan = off;
SELECT * FROM battery('read');
-- nested loops and sorted aggregates over sequential scans
SET enable_bitmapscan = off; SET enable_seqscan = on; SET enable_hashjoin = off; SET enable_hashagg = off;
SELECT * FROM battery('read');
-- index scans again, hash joins
RESET enable_indexscan; RESET enable_indexonlyscan; SET enable_mergejoin = off;
SELECT * FROM battery('read');
-- joins and aggregates of partitions by themselves
RESET enable_bitmapscan; RESET enable_hashjoin; RESET enable_hashagg; SET enable_mergejoin = on;
SET enable_nestloop = off; SET enable_partitionwise_join = on; SET enable_partitionwise_aggregate = on;
SET enable_memoize = off; SET enable_sort = off;
SELECT * FROM battery('read');
RESET enable_nestloop; RESET enable_partitionwise_join; RESET enable_partitionwise_aggregate; RESET enable_memoize;
RESET enable_sort;

-- With generic plans, executed twice
SET plan_cache_mode = force_generic_plan;
SELECT * FROM battery('read', generic => true);
RESET plan_cache_mode;

-- In parallel
SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0; SET max_parallel_workers_per_gather = 1;
SELECT * FROM battery('read');

-- Also as statements of their own, without what surrounds them in battery()
SELECT count(*), sum(x), sum(10 / x) FROM plain_c;
SELECT count(*), sum(x), sum(10 / x) FROM ordinary_c;
SELECT count(*), sum(x), sum(10 / x) FROM hashed_c;
SELECT count(*), sum(x), sum(10 / x) FROM listed_c;
SELECT count(*), sum(c.x) FROM plain_c c JOIN plain_c d USING (id) WHERE d.x > 2;
SELECT count(*), sum(c.x) FROM ordinary_c c JOIN ordinary_c d USING (id) WHERE d.x > 2;
SELECT count(*), sum(c.x) FROM hashed_c c JOIN listed_c d USING (id) WHERE d.x > 2;
-- a parallel scan has the filter, or this would prove nothing
SET enable_indexonlyscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM ordinary_c;
RESET enable_indexonlyscan;

-- Workers judge by their leader's clock and setting
SET ttl.now = '2020-01-01 00:01:05+00';
SELECT count(*) FROM ordinary_c;
SET parallel_setup_cost = 1e9;
SELECT count(*) FROM ordinary_c;
RESET parallel_setup_cost; RESET ttl.now;
SET ttl.show_expired = on; SET parallel_setup_cost = 0;
SELECT count(*) FROM ordinary_c;
RESET ttl.show_expired; RESET parallel_setup_cost; RESET parallel_tuple_cost; RESET min_parallel_table_scan_size;
RESET min_parallel_index_scan_size; RESET max_parallel_workers_per_gather;

-- A partition that is read directly
SELECT 'plain' AS c, count(*), min(x) FROM plain_c UNION ALL
SELECT 'listed', sum(n), min(x) FROM (SELECT count(*) n, min(x) x FROM listed_c_0 UNION ALL SELECT count(*), min(x)
    FROM listed_c_rest) _ UNION ALL
SELECT 'leaves', sum(n), min(x) FROM (SELECT count(*) n, min(x) x FROM listed_c_0 UNION ALL SELECT count(*), min(x)
    FROM listed_c_1 UNION ALL SELECT count(*), min(x) FROM listed_c_2) _ UNION ALL
SELECT 'hashed', sum(n), min(x) FROM (SELECT count(*) n, min(x) x FROM hashed_c_0 UNION ALL SELECT count(*), min(x)
    FROM hashed_c_1 UNION ALL SELECT count(*), min(x) FROM hashed_c_2) _;
-- no function or operator gets to see what is hidden there
SELECT count(*) FROM hashed_c_1 WHERE leaky(x, note) AND note = 'secret';
SELECT count(*) FROM ONLY listed_c_1 WHERE 10 / x > 100;

-- By the address of an expired row it can't be read, changed, deleted or locked
SELECT count(*) FROM ordinary_c WHERE ctid = '(0,1)';
SELECT count(*) FROM ordinary_c WHERE ctid IN ('(0,1)', '(0,2)', '(0,3)');
UPDATE ordinary_c SET x = 1 WHERE ctid = '(0,1)' RETURNING id;
DELETE FROM ordinary_c WHERE ctid = '(0,1)' RETURNING id;
SELECT id FROM ordinary_c WHERE ctid = '(0,1)' FOR UPDATE;
-- the row is there all the same
SET ttl.show_expired = on;
SELECT id FROM ordinary_c WHERE ctid = '(0,1)';
RESET ttl.show_expired;

-- Cursors go back and forth over live rows alone, and keep them beyond the transaction
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM ordinary_c ORDER BY id;
FETCH 4 FROM c;
FETCH LAST FROM c;
FETCH ABSOLUTE 5 FROM c;
FETCH BACKWARD 2 FROM c;
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM hashed_c WHERE id < 12 ORDER BY id;
COMMIT;
FETCH ALL FROM h;
CLOSE h;

-- WHERE CURRENT OF
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM ordinary_c ORDER BY id FOR UPDATE;
FETCH 2 FROM c;
UPDATE ordinary_c SET note = 'current' WHERE CURRENT OF c RETURNING id, note;
DELETE FROM ordinary_c WHERE CURRENT OF c RETURNING id;
ROLLBACK;

-- Materialized views have live rows, refreshed concurrently, too
REFRESH MATERIALIZED VIEW plain_c_mat;
REFRESH MATERIALIZED VIEW ordinary_c_mat;
REFRESH MATERIALIZED VIEW hashed_c_mat;
REFRESH MATERIALIZED VIEW listed_c_mat;
SELECT count(*), (SELECT count(*) FROM ordinary_c_mat) AS ordinary, (SELECT count(*)
    FROM hashed_c_mat) AS hashed, (SELECT count(*) FROM listed_c_mat) AS listed FROM plain_c_mat;
CREATE UNIQUE INDEX ON ordinary_c_mat (id);
REFRESH MATERIALIZED VIEW CONCURRENTLY ordinary_c_mat;
SELECT count(*) FROM (SELECT * FROM ordinary_c_mat EXCEPT SELECT id, x FROM plain_c) _;

-- So have tables that are made or filled from containers
CREATE TABLE made AS SELECT * FROM ordinary_c;
SELECT * INTO made_too FROM hashed_c;
SELECT (SELECT count(*) FROM made) AS made, (SELECT count(*) FROM made_too) AS made_too;
CREATE TABLE inserted (LIKE plain_c);
INSERT INTO inserted SELECT id, grp, x, note, tags, _ts, ttl FROM listed_c;
SELECT count(*) FROM (SELECT * FROM inserted EXCEPT ALL SELECT * FROM plain_c) _;

-- COPY
CREATE TABLE small (id int PRIMARY KEY, "a b" text, _ts timestamptz, ttl int);
INSERT INTO small VALUES (1, 'live', '2999-01-01', NULL), (2, 'expired', '2020-01-01', NULL), (3, 'live', '2020-01-01',
    -1), (4, 'expired', '2020-01-01', 9), (5, E'live\t,"', '2999-01-01', 60);
CREATE TABLE small_parts (LIKE small INCLUDING ALL) PARTITION BY RANGE (id);
CREATE TABLE small_1 PARTITION OF small_parts FOR VALUES FROM (0) TO (3);
CREATE TABLE small_2 PARTITION OF small_parts FOR VALUES FROM (3) TO (9);
INSERT INTO small_parts SELECT * FROM small;
SELECT ttl.create_container(c, 60, ts_column => '_ts', ttl_column => 'ttl')
    FROM unnest('{small, small_parts}'::regclass[]) c;

-- All columns, some in another order, and queries; of partitions, too
COPY small TO STDOUT;
COPY small (ttl, id, "a b") TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE ("a b"));
COPY (SELECT id, "a b" FROM small ORDER BY id) TO STDOUT;
COPY (SELECT id, "a b" FROM small_parts ORDER BY id DESC) TO STDOUT (DELIMITER '|');
COPY (TABLE small_1) TO STDOUT;
COPY small_1 TO STDOUT (FORMAT csv);
COPY small_2 (id) TO STDOUT;
-- What COPY refuses to write of a plain table, it refuses here: generated columns, and a column named twice
CREATE TABLE doubled (id int PRIMARY KEY, double int GENERATED ALWAYS AS (2 * id) STORED);
SELECT ttl.create_container('doubled', 60);
COPY doubled (double) TO STDOUT;
COPY doubled (id, id) TO STDOUT;
COPY doubled (triple) TO STDOUT;
-- the rows that COPY (DELETE ...) returns are live ones, and the others stay
COPY (DELETE FROM small RETURNING id, "a b") TO STDOUT;
SELECT ttl.expired_count('small');
COPY small TO STDOUT;

-- PostgreSQL 19 copies partitioned tables, too
SELECT CASE WHEN current_setting('server_version_num')::int >= 190000 THEN 'COPY small_parts (id) TO STDOUT'
            ELSE 'COPY (SELECT id FROM small_parts ORDER BY id) TO STDOUT' END AS copy_partitioned \gset
:copy_partitioned;
-- what ttl.show_expired shows, COPY writes
SET ttl.show_expired = on;
COPY small (id, "a b") TO STDOUT;
COPY small_1 (id, "a b") TO STDOUT;
RESET ttl.show_expired;

-- Its user needs what COPY needs, and no more: the filter reads columns by no right of his
GRANT USAGE ON SCHEMA hiding TO regress_ttl_user;
GRANT SELECT (id, "a b") ON small_2 TO regress_ttl_user;
SET ROLE regress_ttl_user;
COPY hiding.small_2 (id, "a b") TO STDOUT;
\set VERBOSITY sqlstate
COPY hiding.small_2 TO STDOUT;
COPY hiding.small_2 (id, ttl) TO STDOUT;
COPY (SELECT ttl FROM hiding.small_2) TO STDOUT;
\set VERBOSITY terse
SELECT id, "a b" FROM hiding.small_2 ORDER BY id;
RESET ROLE;

--
-- UPDATE, DELETE, MERGE, and row locks
--

INSERT INTO form (way, label, statement) SELECT 'write', label, statement FROM (VALUES
    ('UPDATE all', 'UPDATE %s SET x = x + 10'),
    ('UPDATE RETURNING', 'UPDATE %s SET x = x + 10 WHERE grp = 1 RETURNING id, x'),
    ('UPDATE by key', 'UPDATE %s SET note = ''new'' WHERE id IN (1, 2, 3, 4) RETURNING id, note'),
    ('UPDATE, dividing', 'UPDATE %s SET x = 10 / x WHERE 10 / x > 0 RETURNING id'),
    ('UPDATE, cheap function', 'UPDATE %s SET x = 1 WHERE leaky(x, note) RETURNING id'),
    ('UPDATE FROM', 'UPDATE %s c SET x = o.x FROM other o WHERE o.id = c.id RETURNING c.id, c.x'),
    ('UPDATE FROM itself', 'UPDATE %s c SET x = d.x FROM %s d WHERE d.id = c.id + 1 RETURNING c.id, d.id'),
    ('UPDATE by subquery', 'UPDATE %s c SET (x, note) = (SELECT max(x), ''m'' FROM %s d WHERE d.grp = c.grp) WHERE id '
        '< 50 RETURNING id, x'),
    ('UPDATE IN', 'UPDATE %s SET x = 3 WHERE id IN (SELECT id + 1 FROM %s) RETURNING id'),
    ('UPDATE of the TTL', 'UPDATE %s SET ttl = -1 WHERE ttl IS NULL RETURNING id, ttl'),
    ('UPDATE through a view', 'UPDATE %s_view SET note = ''v'' RETURNING id'),
    ('UPDATE through a barrier', 'UPDATE %s_barrier SET note = ''v'' WHERE leaky(x, note) RETURNING id'),
    ('UPDATE in a CTE', 'WITH u AS (UPDATE %s SET x = 9 WHERE x > 1 RETURNING id) SELECT array_agg(id::text ORDER BY '
        'id) AS "RETURNING" FROM u'),
    ('UPDATE of another, from it', 'UPDATE other o SET x = c.x FROM %s c WHERE c.id = o.id RETURNING o.id, o.x'),
    ('DELETE all', 'DELETE FROM %s'),
    ('DELETE RETURNING', 'DELETE FROM %s WHERE grp = 2 RETURNING id, x, note'),
    ('DELETE by key', 'DELETE FROM %s WHERE id IN (1, 2, 3, 4) RETURNING id'),
    ('DELETE, dividing', 'DELETE FROM %s WHERE 10 / x > 2 RETURNING id, 10 / x'),
    ('DELETE USING', 'DELETE FROM %s c USING other o WHERE o.id = c.id RETURNING c.id'),
    ('DELETE EXISTS', 'DELETE FROM %s c WHERE NOT EXISTS (SELECT FROM %s d WHERE d.id = c.id + 1) RETURNING id'),
    ('DELETE through a view', 'DELETE FROM %s_view WHERE x = 3 RETURNING id'),
    ('DELETE in a CTE', 'WITH d AS (DELETE FROM %s WHERE x > 2 RETURNING id) SELECT array_agg(id::text ORDER BY id) AS '
        '"RETURNING" FROM d'),
    ('MERGE UPDATE', 'MERGE INTO %s c USING other o ON c.id = o.id WHEN MATCHED THEN UPDATE SET x = o.x'),
    ('MERGE DELETE', 'MERGE INTO %s c USING other o ON c.id = o.id WHEN MATCHED AND o.x > 3 THEN DELETE WHEN MATCHED '
        'THEN DO NOTHING'),
    ('MERGE with condition', 'MERGE INTO %s c USING other o ON c.id = o.id WHEN MATCHED AND 10 / c.x > 2 THEN UPDATE '
        'SET note = ''m'' WHEN MATCHED AND leaky(c.x, c.note) THEN DELETE'),
    ('MERGE INSERT', 'MERGE INTO %s c USING other o ON c.id = o.id WHEN NOT MATCHED THEN INSERT (id, grp, x, note, '
        'tags, _ts, ttl) VALUES (o.id, o.id % 5, 77, ''merged'', ''{}'', ''2999-01-01'', NULL)'),
    ('MERGE all', 'MERGE INTO %s c USING (SELECT generate_series(1, 100) AS id) s ON c.id = s.id AND c.grp = s.id % 5 '
        'WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET x = 5 WHEN NOT MATCHED THEN INSERT '
        '(id, grp, x, note, tags, _ts, ttl) VALUES (s.id, s.id % 5, 77, ''merged'', ''{}'', ''2999-01-01'', -1)'),
    ('MERGE from it', 'MERGE INTO other o USING %s c ON c.id = o.id WHEN MATCHED THEN UPDATE SET x = c.x WHEN NOT '
        'MATCHED AND 10 / c.x > 4 THEN INSERT VALUES (c.id, c.id, c.x)'),
    ('MERGE from itself', 'MERGE INTO %s c USING %s d ON c.id = d.id + 1 WHEN MATCHED THEN UPDATE SET x = d.id'),
    ('INSERT from itself', 'INSERT INTO %s (id, grp, x, note, tags, _ts, ttl) SELECT id + 10000, grp, x, note, tags, '
        '_ts, ttl FROM %s WHERE 10 / x > 0 RETURNING id'),
    ('TRUNCATE', 'TRUNCATE %s')
) v (label, statement);
INSERT INTO form (way, label, statement) SELECT 'lock', label, statement FROM (VALUES
    ('FOR UPDATE', 'SELECT id, x FROM %s FOR UPDATE'),
    ('FOR SHARE', 'SELECT id FROM %s WHERE 10 / x > 1 ORDER BY id LIMIT 9 FOR SHARE'),
    ('FOR NO KEY UPDATE', 'SELECT id FROM %s WHERE leaky(x, note) FOR NO KEY UPDATE SKIP LOCKED'),
    ('FOR KEY SHARE', 'SELECT c.id FROM other o JOIN %s c ON c.id = o.id FOR KEY SHARE OF c NOWAIT'),
    ('FOR UPDATE through a view', 'SELECT id FROM %s_view FOR UPDATE')
) v (label, statement);
SELECT way, count(*) FROM form GROUP BY way ORDER BY way;

-- Locks, and then writes, each undone: what is returned and what is left
UPDATE form SET way = 'read' WHERE way = 'lock';
UPDATE form SET wanted = answer(way, statement, 'plain') WHERE wanted IS NULL;
CREATE TEMP TABLE reads AS SELECT * FROM form WHERE way = 'read' AND label !~ '^FOR ';
DELETE FROM form WHERE way = 'read' AND label !~ '^FOR ';
SELECT * FROM battery('read');
SELECT * FROM battery('write');
-- by index
SET enable_seqscan = off;
SELECT * FROM battery('read');
SELECT * FROM battery('write');
-- without index and bitmap scans, and by other joins
SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; RESET enable_seqscan;
SELECT * FROM battery('write');
RESET enable_indexscan; RESET enable_bitmapscan; RESET enable_hashjoin;
-- by generic plans
SET plan_cache_mode = force_generic_plan;
SELECT * FROM battery('read', generic => true);
SELECT * FROM battery('write');
RESET plan_cache_mode;
INSERT INTO form SELECT * FROM reads;

-- Prepared statements that write find live rows, and the second time none that they have deleted
PREPARE upd (int) AS UPDATE ordinary_c SET x = 99 WHERE id >= $1 AND id < 9 RETURNING id;
PREPARE del (int) AS WITH d AS (DELETE FROM hashed_c WHERE id >= $1 AND id < 9 RETURNING id) SELECT array_agg(id
    ORDER BY id) FROM d;
SET plan_cache_mode = force_generic_plan;
BEGIN;
EXECUTE upd (1);
EXECUTE upd (1);
EXECUTE del (1);
EXECUTE del (1);
ROLLBACK;
RESET plan_cache_mode;

--
-- Planning
--

-- Filters are what they were, with is_live the first of them: no other qual sees an expired row
EXPLAIN (COSTS OFF) SELECT * FROM ordinary_c WHERE 10 / x > 1 AND leaky(x, note);
EXPLAIN (COSTS OFF) SELECT * FROM ordinary_c WHERE id = 4;
EXPLAIN (COSTS OFF) SELECT * FROM (SELECT id, x, note FROM ordinary_c UNION ALL SELECT id, x, 'a' FROM other) u
    WHERE leaky(x, note);
EXPLAIN (COSTS OFF) UPDATE listed_c_0 SET x = 1 WHERE leaky(x, note);

-- Row estimates are those of the plain table, or joins would be planned otherwise
CREATE TABLE no_container (LIKE plain_c INCLUDING ALL);
CREATE TABLE all_live (LIKE plain_c INCLUDING ALL);
INSERT INTO no_container SELECT id, grp, x, note, tags, _ts, ttl FROM plain_c ORDER BY id;
INSERT INTO all_live SELECT id, grp, x, note, tags, _ts, ttl FROM plain_c ORDER BY id;
SELECT ttl.create_container('all_live', 60, ts_column => '_ts', ttl_column => 'ttl');
ANALYZE no_container, all_live;
CREATE FUNCTION estimate(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
    RETURN plan #>> '{0,Plan,Plan Rows}';
END $$;
SELECT q, estimate(replace(q, '%s', 'no_container')) = estimate(replace(q, '%s', 'all_live')) AS same
  FROM unnest(ARRAY['SELECT * FROM %s', 'SELECT * FROM %s WHERE x = 3', 'SELECT * FROM %s WHERE id < 100',
                    'SELECT * FROM %s a JOIN other USING (id)', 'SELECT * FROM other LEFT JOIN %s USING (id)',
                    'SELECT DISTINCT grp FROM %s', 'SELECT * FROM %s WHERE tags @> ''{t1}''']) q;

--
-- Who sees what is hidden
--

-- ttl.show_expired shows what is stored, and lets one rescue it
BEGIN;
SET LOCAL ttl.show_expired = on;
SELECT count(*), count(*) FILTER (WHERE x = 0) AS expired FROM ordinary_c;
SELECT id, note FROM hashed_c WHERE id IN (1, 2, 3) ORDER BY id;
UPDATE ordinary_c SET note = 'rescued' WHERE id = 1 RETURNING id, note;
DELETE FROM ordinary_c WHERE id = 2 RETURNING id;
MERGE INTO ordinary_c c USING (VALUES (5), (1000)) AS s (id) ON c.id = s.id WHEN MATCHED THEN UPDATE
    SET note = 'rescued' WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, 'new');
SET LOCAL ttl.show_expired = off;
SELECT id, note FROM ordinary_c WHERE id IN (1, 2, 5, 6, 1000) ORDER BY id;
ROLLBACK;

-- Also to a prepared statement, by turns
SET plan_cache_mode = force_generic_plan;
PREPARE counted AS SELECT count(*) FROM ordinary_c;
EXECUTE counted;
SET ttl.show_expired = on;
EXECUTE counted;
RESET ttl.show_expired;
EXECUTE counted;

-- So does a change of policy: TTL off, by the rows' own TTL alone, no container any more, and one again
BEGIN;
SELECT ttl.set_default_ttl('ordinary_c', NULL);
EXECUTE counted;
SELECT ttl.set_default_ttl('ordinary_c', -1);
EXECUTE counted;
ROLLBACK;
EXECUTE counted;
BEGIN;
SELECT ttl.drop_container('ordinary_c');
EXECUTE counted;
SELECT ttl.create_container('ordinary_c', 60, '_ts', 'ttl');
EXECUTE counted;
ROLLBACK;
EXECUTE counted;

-- So does the clock of ttl.now
SET ttl.now = '1999-01-01';
EXECUTE counted;
SET ttl.now = '2999-12-31';
EXECUTE counted;
RESET ttl.now;
EXECUTE counted;
-- a partition's plan follows the policy of the container
PREPARE in_parts AS SELECT count(*) FROM listed_c_1;
EXECUTE in_parts;
SELECT ttl.set_default_ttl('listed_c', NULL);
EXECUTE in_parts;
SELECT ttl.set_default_ttl('listed_c', 60);
EXECUTE in_parts;
RESET plan_cache_mode;

-- Not for everybody: who may not see expired rows, may not show them to himself
SET ROLE regress_ttl_user;
SELECT state('SET ttl.show_expired = on'), state('SET ttl.now = ''2020-01-01''');
SET ttl.touch = off;
RESET ttl.touch;
RESET ROLE;

-- But it can be granted
GRANT SET ON PARAMETER ttl.show_expired TO regress_ttl_user;
GRANT SELECT ON ordinary_c TO regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT count(*) FROM ordinary_c;
SET ttl.show_expired = on;
SELECT count(*) FROM ordinary_c;
RESET ttl.show_expired;
RESET ROLE;
REVOKE SET ON PARAMETER ttl.show_expired FROM regress_ttl_user;

-- ttl.now takes what a timestamp may be
SELECT v, state(format('SET ttl.now = %L', v)) FROM unnest('{"", 2020-01-01, 2020-01-01 12:00:00.5+02, infinity, '
    '-infinity, epoch, now, " now", "NOW ", "today 12:00", "+00 now", today, Tomorrow, nonsense, 12:00, '
    '2020-13-01}'::text[]) v;
-- words are settled when they are set, by the transaction and the time zone of that moment
BEGIN;
SET LOCAL TimeZone = 'Asia/Tokyo';
SET ttl.now = 'tomorrow 12:00';
SELECT current_setting('ttl.now')::timestamptz = 'tomorrow 12:00' AS tomorrow;
SELECT now() AS begun \gset
SET ttl.now = 'now';
COMMIT;
SELECT current_setting('ttl.now')::timestamptz = :'begun' AS stays, now() > :'begun' AS has_passed;
RESET ttl.now;
-- a role's and a function's when they begin
ALTER ROLE regress_ttl_user SET ttl.now = 'tomorrow';
ALTER ROLE regress_ttl_user RESET ttl.now;
CREATE FUNCTION as_of_tomorrow() RETURNS boolean LANGUAGE sql SET ttl.now = 'tomorrow'
    AS $$ SELECT current_setting('ttl.now')::timestamptz = 'tomorrow' $$;
SELECT as_of_tomorrow(), current_setting('ttl.now') AS after;
DROP FUNCTION as_of_tomorrow;

-- It neither stamps nor deletes
SET ttl.now = '1999-01-01';
INSERT INTO small (id, "a b") VALUES (10, 'now') RETURNING _ts > '2025-01-01' AS stamped;
UPDATE small SET "a b" = 'then' WHERE id = 10 RETURNING _ts > '2025-01-01' AS stamped;
SELECT count(*) FROM small;
SET ttl.now = '2990-01-01';
SELECT count(*) FROM small;
SET client_min_messages = notice;
-- by the true clock, two have expired
CALL ttl.reap('small');
SET client_min_messages = warning;
RESET ttl.now;
SELECT id, "a b" FROM small ORDER BY id;

-- row_security = off shows all rows to the owner, superusers and BYPASSRLS;
-- others stay filtered, and so does a SECURITY DEFINER function
CREATE ROLE regress_ttl_bypass BYPASSRLS;
CREATE TABLE owned (id int PRIMARY KEY, _ts timestamptz, ttl int);
INSERT INTO owned VALUES (1, '2020-01-01', NULL), (2, '2999-01-01', NULL), (3, '2020-01-01', 5);
SELECT ttl.create_container('owned', 60, ts_column => '_ts', ttl_column => 'ttl');
ALTER TABLE owned OWNER TO regress_ttl_owner;
GRANT SELECT ON owned TO regress_ttl_user, regress_ttl_bypass, regress_ttl_member;
GRANT USAGE ON SCHEMA hiding TO regress_ttl_owner, regress_ttl_bypass;
CREATE FUNCTION owned_ids() RETURNS int[] LANGUAGE sql AS 'SELECT array_agg(id ORDER BY id) FROM hiding.owned';
CREATE FUNCTION owned_definer() RETURNS int[] LANGUAGE sql SECURITY DEFINER AS
    'SELECT array_agg(id ORDER BY id) FROM hiding.owned';
ALTER FUNCTION owned_definer() OWNER TO regress_ttl_owner;
CREATE VIEW owned_view AS SELECT id FROM owned;
GRANT SELECT ON owned_view TO regress_ttl_user, regress_ttl_owner;
PREPARE ids AS SELECT current_user, array_agg(id ORDER BY id), owned_ids(), owned_definer() FROM hiding.owned;
SET row_security = off;
-- a superuser, the owner, a member, and BYPASSRLS see all; not in a function that switches to the owner
SELECT array_agg(id ORDER BY id), owned_ids(), owned_definer() FROM owned;
SET ROLE regress_ttl_owner;
EXECUTE ids;
SELECT count(*) FROM hiding.owned_view;
SET ROLE regress_ttl_member;
EXECUTE ids;
SET ROLE regress_ttl_bypass;
EXECUTE ids;
-- others see what they see without it
SET ROLE regress_ttl_user;
EXECUTE ids;
SELECT count(*) FROM hiding.owned_view;
RESET ROLE;
-- with row_security on, nor does the owner see what has expired
SET row_security = on;
SET ROLE regress_ttl_owner;
EXECUTE ids;
RESET ROLE;

-- COPY, as pg_dump does, copies what its user sees
SET row_security = off;
COPY owned TO STDOUT;
SET ROLE regress_ttl_owner;
COPY hiding.owned TO STDOUT;
SET ROLE regress_ttl_user;
COPY hiding.owned TO STDOUT;
RESET ROLE;
RESET row_security;

-- A table with policies of row-level security besides
ALTER TABLE owned ENABLE ROW LEVEL SECURITY;
CREATE POLICY even ON owned FOR SELECT USING (id <> 3 AND (id <> 2 OR leaky(id, 'live')));
-- the policy, which would fail on row 1, isn't asked for it
SET ROLE regress_ttl_user;
SELECT id FROM hiding.owned;
COPY hiding.owned (id) TO STDOUT;
-- row_security = off is an error for him, as PostgreSQL has it
SET row_security = off;
SELECT state('SELECT FROM hiding.owned');
RESET row_security;
RESET ROLE;

DROP OWNED BY regress_ttl_bypass;
DROP ROLE regress_ttl_bypass;
REVOKE ALL ON SCHEMA hiding FROM regress_ttl_user, regress_ttl_owner;
DROP SCHEMA hiding CASCADE;
