-- What is stamped is rounded up: to a multiple of ts_precision, and to what the column can hold
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA rounding;
SET search_path = rounding, public;

-- "rounded" stands for the present rounded up to a multiple, whatever it is; "exact" for the present
CREATE TABLE test_begins AS SELECT clock_timestamp() AS at;
CREATE FUNCTION stamp(ts timestamptz, multiple interval DEFAULT '1 day') RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN ts = date_bin(multiple, ts,
        '2000-01-01 00:00:00+00') AND ts >= at AND ts < clock_timestamp() + multiple THEN 'rounded'
                WHEN ts >= at AND ts <= clock_timestamp() THEN 'exact'
                ELSE coalesce(ts::text, 'NULL') END
      FROM rounding.test_begins
$$;

-- The default of a column, as stored
CREATE FUNCTION default_of(regclass, name DEFAULT '_ts') RETURNS text LANGUAGE sql AS $$
    SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
        WHERE adrelid = $1 AND attname = $2
$$;

-- SQLSTATE, message and HINT
CREATE FUNCTION refused(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'NOT REFUSED';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN sqlstate || ': ' || sqlerrm || coalesce(E'\nHINT: ' || nullif(hint, ''), '');
END $$;

--
-- Every road that writes
--

CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', '30 days', ts_precision => '1 day');
CREATE VIEW items AS SELECT id, stamp(_ts), note, ttl FROM item ORDER BY id;

-- The precision is stored as an interval of hours, and the default that ttl adds rounds up, too
SELECT container, default_ttl, ts_precision FROM ttl.containers WHERE container = 'item'::regclass;
SELECT default_of('item');

-- What a statement gives stays as it is; what it leaves out is rounded
INSERT INTO item (id) VALUES (1);
INSERT INTO item (id, _ts) VALUES (2, DEFAULT), (3, NULL), (4, '2900-01-01 12:34:56'), (5, 'infinity');
INSERT INTO item (id, _ts) SELECT i, CASE WHEN i = 7 THEN '2900-01-01'::timestamptz END FROM generate_series(6, 8) i;
COPY item (id) FROM STDIN;
10
\.
COPY item (id, _ts) FROM STDIN;
11	\N
12	2900-01-01 12:34:56
\.
MERGE INTO item i USING (VALUES (13), (14)) AS s (id) ON i.id = s.id WHEN NOT MATCHED AND s.id = 13 THEN INSERT (id)
    VALUES (s.id) WHEN NOT MATCHED THEN INSERT (id, _ts) VALUES (s.id, NULL);
SELECT * FROM items;

-- Each UPDATE is rounded, whatever it assigns, but where the clock isn't set at all
PREPARE upd (int) AS UPDATE item SET note = 'prepared' WHERE id = $1;
TRUNCATE item;
INSERT INTO item (id, note, _ts) SELECT i, 'old', '2900-01-01 12:34:56' FROM generate_series(1, 9) i;
UPDATE item SET note = 'updated' WHERE id = 1;
UPDATE item SET note = 'assigned', _ts = '2950-01-01 12:34:56' WHERE id = 2;
INSERT INTO item (id) VALUES (3) ON CONFLICT (id) DO UPDATE SET note = 'conflict';
MERGE INTO item i USING (VALUES (4)) AS s (id) ON i.id = s.id WHEN MATCHED THEN UPDATE SET note = 'merged';
WITH w AS (UPDATE item SET note = 'with' WHERE id = 5 RETURNING _ts) SELECT stamp(_ts) FROM w;
EXECUTE upd (6);
SET ttl.touch = off;
UPDATE item SET note = 'not touched' WHERE id = 7;
RESET ttl.touch;
SET session_replication_role = replica;
UPDATE item SET note = 'replica' WHERE id = 8;
RESET session_replication_role;
SELECT * FROM items;
-- A row has all of its TTL, and is late by less than the precision
SELECT count(*), bool_and(ttl.expires_at(i) - interval '720 hours' BETWEEN clock_timestamp()
    AND clock_timestamp() + interval '24 hours') FROM item i WHERE id <= 6;
SELECT DISTINCT ttl.time_to_live(i) FROM item i WHERE id <= 6;

-- An UPDATE within the same multiple is HOT
CREATE TABLE hot (id int PRIMARY KEY, note text) WITH (fillfactor = 50);
SELECT ttl.create_container('hot', '30 days', ts_precision => '1 day');
INSERT INTO hot SELECT generate_series(1, 100), 'old';
BEGIN;
-- by the same stamp as the INSERT, no index changes
UPDATE hot SET note = 'new';
SELECT pg_stat_get_xact_tuples_updated('hot'::regclass), pg_stat_get_xact_tuples_hot_updated('hot'::regclass);
COMMIT;
-- without a precision each UPDATE changes the expiry index
SELECT ttl.alter_container('hot', ts_precision => '0');
-- What is counted is not yet reported otherwise, unless a second has passed
SELECT pg_stat_force_next_flush();
BEGIN;
UPDATE hot SET note = 'newer';
SELECT pg_stat_get_xact_tuples_updated('hot'::regclass), pg_stat_get_xact_tuples_hot_updated('hot'::regclass);
COMMIT;

--
-- Changed
--

-- In force with the next statement, cached plans included; the default that ttl has added follows
SELECT ttl.alter_container('item', ts_precision => '1 microsecond');
EXECUTE upd (1);
INSERT INTO item (id) VALUES (20);
SELECT * FROM items WHERE id IN (1, 20);
SELECT ttl.alter_container('item', ts_precision => '2 hours 30 minutes');
EXECUTE upd (1);
INSERT INTO item (id) VALUES (21);
SELECT id, stamp(_ts, '2 hours 30 minutes') FROM item WHERE id IN (1, 21) ORDER BY id;
SELECT default_of('item'), (SELECT ts_precision FROM ttl.containers WHERE container = 'item'::regclass);
-- 0 removes it
SELECT ttl.alter_container('item', ts_precision => '0');
EXECUTE upd (1);
SELECT id, stamp(_ts) FROM item WHERE id = 1;
SELECT default_of('item'), (SELECT ts_precision FROM ttl.containers WHERE container = 'item'::regclass);
-- Months and years have the length that they have in TTLs
SELECT ttl.create_container('item', '1 year', ts_precision => '1 month', if_not_exists => true),
    ttl.alter_container('item', ts_precision => '1 day 1 hour');
SELECT ts_precision, default_of('item') FROM ttl.containers WHERE container = 'item'::regclass;
SELECT ttl.set_default_ttl('item', '1 year'), ttl.alter_container('item', ts_precision => '1 month');
SELECT ts_precision FROM ttl.containers WHERE container = 'item'::regclass;
-- A default of the user's own stays, before and after; a NULL is rounded all the same
CREATE TABLE own (id int, at timestamptz DEFAULT '2900-01-01 12:34:56');
SELECT ttl.create_container('own', '30 days', 'at', NULL, ts_precision => '1 day');
INSERT INTO own (id) VALUES (1);
INSERT INTO own VALUES (2, NULL);
SELECT id, stamp(at) FROM own ORDER BY id;
SELECT ttl.alter_container('own', ts_precision => '2 days'), default_of('own', 'at');
-- a default that only looks like ttl's is a user's, too
ALTER TABLE item ALTER _ts SET DEFAULT date_bin('1 day', clock_timestamp(), '2000-01-01');
SELECT ttl.alter_container('item', ts_precision => '1 day'), default_of('item');
ALTER TABLE item ALTER _ts SET DEFAULT clock_timestamp() + '1 hour';
SELECT ttl.alter_container('item', ts_precision => '2 days'), default_of('item');
-- The default that was added is taken back with the container, a user's isn't
CREATE TABLE back (id int, at timestamptz);
SELECT ttl.create_container('back', 60, 'at', NULL, ts_precision => '1 minute');
SELECT default_of('back', 'at') LIKE 'date_bin%';
SELECT ttl.drop_container('back'), default_of('back', 'at');
SELECT ttl.drop_container('own'), default_of('own', 'at');

-- Refused
-- A precision longer than the default TTL, negative, or where nothing is stamped
SELECT call, refused(format('CREATE TABLE rounding.refused (id int, at timestamptz NOT NULL, until timestamptz, made '
    'bigint); SELECT ttl.create_container(''rounding.refused'', %s)', call))
  FROM unnest(ARRAY['60, ts_precision => ''61 seconds''', '60, ts_precision => ''-1 second''',
      'NULL::int, ts_precision => ''100 years''', '-1, NULL, ''until'', ts_precision => ''1 second''',
    '60, ''at'', touch_on_update => false, ts_precision => ''1 second''',
        '60, ''made'', NULL, ts_unit => ''epoch'', touch_on_update => false, ts_precision => ''1 second''',
    '60, ts_precision => ''60 seconds''', '-1, ts_precision => ''1 hour''',
        '60, touch_on_update => false, ts_precision => ''1 second''', '60, ts_precision => ''0''']) call
    \g (format=unaligned)
-- neither the default TTL nor the precision is changed so that rows would expire by the rounding alone
CREATE TABLE set (id int);
SELECT ttl.create_container('set', 3600, ts_precision => '1 hour');
SELECT refused('SELECT ttl.set_default_ttl(''rounding.set'', 3599)'),
    refused('SELECT ttl.alter_container(''rounding.set'', ts_precision => ''3601 seconds'')') \gx (format=unaligned)
SELECT ttl.set_default_ttl('set', NULL), ttl.alter_container('set', ts_precision => '1 day');
SELECT refused('SELECT ttl.set_default_ttl(''rounding.set'', 3600)');
-- a column with a default of its own may have one: UPDATE and NULL are still stamped
SELECT ttl.create_container('back', 60, 'at', NULL, ts_precision => '1 second');
ALTER TABLE back ALTER at SET DEFAULT '2900-01-01';
SELECT ttl.drop_container('back');
SELECT ttl.create_container('back', 60, 'at', NULL, ts_precision => '1 second');
-- where only the application writes the column, it can't
SELECT refused('SELECT ttl.alter_container(''rounding.back'', touch_on_update => false)');
SELECT ttl.alter_container('back', touch_on_update => false, ts_precision => '0');

--
-- Partitions
--

CREATE TABLE parts (id int, at timestamptz, note text) PARTITION BY LIST (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
SELECT ttl.create_container('parts', '30 days', 'at', NULL, ts_precision => '1 day');
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2);
CREATE TABLE parts_3 (note text, id int);
ALTER TABLE parts ATTACH PARTITION parts_3 FOR VALUES IN (3);
CREATE TABLE parts_4 (gone int, id int, note text, at timestamptz DEFAULT '2900-01-01 12:34:56');
ALTER TABLE parts_4 DROP gone;
ALTER TABLE parts ATTACH PARTITION parts_4 FOR VALUES IN (4);

-- By each partition's own column, with a default or none, and for a row that is moved
INSERT INTO parts SELECT generate_series(1, 4);
INSERT INTO parts_2 (id) VALUES (2);
INSERT INTO parts_3 (id, at) VALUES (3, NULL);
COPY parts (id, at) FROM STDIN;
4	\N
\.
UPDATE parts SET id = 2, note = 'moved' WHERE id = 1;
UPDATE parts_3 SET note = 'updated';
SELECT tableoid::regclass, note, stamp(at), count(*) FROM parts GROUP BY 1, 2, 3 ORDER BY 1, 2;
-- changed in all partitions, and in none that has a default of its own
SELECT ttl.alter_container('parts', ts_precision => '0');
SELECT p, default_of(p, 'at') FROM unnest('{parts, parts_1, parts_2, parts_3, parts_4}'::regclass[]) p;
SELECT ttl.alter_container('parts', ts_precision => '1 day');
ALTER TABLE parts DETACH PARTITION parts_2;
UPDATE parts_2 SET note = 'alone' WHERE note IS NULL;
SELECT note, stamp(at), count(*) FROM parts_2 GROUP BY 1, 2 ORDER BY 1;
SELECT ts_precision FROM ttl.containers WHERE container = 'parts_2'::regclass;
-- Partitions by _ts itself: the row is routed by what is stamped
CREATE TABLE by_at (id int, at timestamptz NOT NULL) PARTITION BY RANGE (at);
CREATE TABLE by_at_old PARTITION OF by_at FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE by_at_new PARTITION OF by_at DEFAULT;
ALTER TABLE by_at ALTER at DROP NOT NULL;
SELECT ttl.create_container('by_at', '30 days', 'at', NULL, touch_on_update => false, ts_precision => '1 day');
INSERT INTO by_at (id) VALUES (1);
INSERT INTO by_at VALUES (2, NULL);
SELECT id, tableoid::regclass, stamp(at) FROM by_at ORDER BY id;
-- By a number, which has no default: the row is routed by what is stamped, whichever way it is left out
CREATE TABLE by_number (at bigint, id int, note text) PARTITION BY RANGE (at);
CREATE TABLE by_number_old PARTITION OF by_number FOR VALUES FROM (0) TO (1000000);
CREATE TABLE by_number_new (id int, note text, at bigint);
ALTER TABLE by_number ATTACH PARTITION by_number_new FOR VALUES FROM (1000000) TO (MAXVALUE);
SELECT ttl.create_container('by_number', '30 days', 'at', NULL, ts_unit => 'epoch', touch_on_update => false);
INSERT INTO by_number (id) VALUES (1);
INSERT INTO by_number (note, id) SELECT 'two', 2;
INSERT INTO by_number (id, note) VALUES (3, 'three'), (4, DEFAULT);
INSERT INTO by_number (id, at) VALUES (5, NULL), (6, DEFAULT);
INSERT INTO by_number DEFAULT VALUES;
INSERT INTO by_number_new (id) VALUES (7);
MERGE INTO by_number n USING (VALUES (8)) AS s (id) ON n.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
SELECT tableoid::regclass, id, note, stamp(to_timestamp(at), '1 s') FROM by_number ORDER BY id;
-- into a partition that doesn't hold the present it isn't inserted
SELECT refused('INSERT INTO rounding.by_number_old (id) VALUES (9)') ~
    '^23514: new row for relation "by_number_old" violates partition constraint';

--
-- Coarser types
--

-- 60 rows, INSERTed by default and by NULL, and UPDATEd; true if all are the present rounded up, and on a multiple
CREATE FUNCTION stamped(type text, multiple interval, given interval DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
    since timestamptz := clock_timestamp();
BEGIN
    DROP TABLE IF EXISTS coarse;
    EXECUTE format('CREATE TABLE coarse (id int, at %s)', type);
    PERFORM ttl.create_container('coarse', 3600, 'at', NULL, ts_precision => given);
    FOR i IN 1 .. 20 LOOP
        INSERT INTO coarse SELECT i FROM pg_sleep(0.001);
        INSERT INTO coarse VALUES (i + 100, NULL);
        INSERT INTO coarse VALUES (i + 200, '2900-01-01');
        UPDATE coarse SET id = i + 300 WHERE id = i + 200;
    END LOOP;
    SELECT format('%s rows, %s', count(*), bool_and(a >= since AND a < clock_timestamp() + multiple
        AND a = date_bin(multiple, a, '2000-01-01 00:00:00+00')))
      INTO result FROM (SELECT CASE
          WHEN type ~ '^timestamp([^t]|$)' THEN at::timestamp AT TIME ZONE 'UTC' ELSE at::timestamptz END AS a
          FROM coarse) _;
    RETURN result;
END $$;

-- To what the type holds if there is no precision, else to a multiple of both
SELECT type, p, stamped(type, m::interval, p::interval) FROM (VALUES
    ('timestamptz(0)', '1 s', NULL), ('timestamptz(3)', '1 ms', NULL), ('timestamptz(6)', '1 us', NULL), ('timestamp',
        '1 us', NULL), ('timestamp(0)', '1 s', NULL), ('timestamp(5)', '10 us', NULL),
    ('timestamptz(0)', '1 s', '1 ms'), ('timestamptz(0)', '2 s', '1.5 s'), ('timestamp(3)', '250 ms', '250 ms'),
        ('timestamptz(1)', '300 ms', '250 ms'), ('timestamp', '1 minute', '1 minute')) AS v (type, m, p);
-- the expression of a default names what is rounded to, and UTC
SELECT default_of('coarse', 'at');
SELECT ttl.alter_container('coarse', ts_precision => '0'), default_of('coarse', 'at');

--
-- Clocks that are numbers or dates
--

-- Five rows, by each kind of statement; true if rounded up, and if they expire an hour later
CREATE FUNCTION stamped_number(type text, unit text, multiple interval,
    given interval DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    per_second numeric := CASE unit WHEN 'epoch' THEN 1 WHEN 'epoch_ms' THEN 1e3 WHEN 'epoch_us' THEN 1e6 ELSE 1e9 END;
    since timestamptz := clock_timestamp();
    result text;
BEGIN
    DROP TABLE IF EXISTS number;
    EXECUTE format('CREATE TABLE number (id int PRIMARY KEY, at %s NOT NULL, note text)', type);
    PERFORM ttl.create_container('number', 3600, 'at', NULL, ts_unit => unit, ts_precision => given);
    INSERT INTO number (id) VALUES (1);
    INSERT INTO number VALUES (2, NULL), (3, (extract(epoch FROM since)::int + 100000000) * per_second);
    EXECUTE 'INSERT INTO number (id) VALUES (4) ON CONFLICT DO NOTHING';
    UPDATE number SET note = 'updated' WHERE id = 3;
    INSERT INTO number (id) VALUES (4) ON CONFLICT (id) DO UPDATE SET note = 'conflict';
    MERGE INTO number n USING (VALUES (2), (5)) AS s (id) ON n.id = s.id WHEN MATCHED THEN UPDATE
        SET note = 'merged', at = 0 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
    SELECT format('%s rows, %s, %s', count(*),
        bool_and(at = trunc(at) AND a >= since AND a < clock_timestamp() + multiple AND a = date_bin(multiple, a,
        '2000-01-01 00:00:00+00')),
                  bool_and(ttl.expires_at(n) = a + interval '1 hour'))
      INTO result FROM (SELECT number::rounding.number AS n, at,
          to_timestamp(0) + trunc(at / per_second) * interval '1 s' + at % per_second / per_second * 1e6 * interval
          '1 us' AS a FROM number) _;
    RETURN result;
END $$;
SELECT type, unit, p, stamped_number(type, unit, m::interval, p::interval) FROM (VALUES
    ('int', 'epoch', '1 s', NULL), ('bigint', 'epoch', '1 s', NULL), ('numeric', 'epoch', '1 s', NULL), ('numeric(19)',
        'epoch_ms', '1 ms', NULL), ('bigint', 'epoch_ms', '1 ms', NULL), ('bigint', 'epoch_us', '1 us', NULL),
    ('bigint', 'epoch_ns', '1 us', NULL), ('numeric', 'epoch_ns', '1 us', NULL), ('bigint', 'epoch', '1 minute',
        '1 minute'), ('bigint', 'epoch_ms', '250 ms', '250 ms'), ('bigint', 'epoch', '2 s', '1.5 s')) AS v (type, unit,
        m, p);
-- a type too short for the present fails as any value does; those that hold no whole numbers of the unit are refused
SELECT refused('CREATE TABLE rounding.short (id int, at numeric(9)); SELECT ttl.create_container(''rounding.short'', '
    '60, ''at'', NULL, ts_unit => ''epoch''); INSERT INTO rounding.short VALUES (1)');
SELECT type, refused(format('CREATE TABLE rounding.short (id int, at %s); SELECT '
    'ttl.create_container(''rounding.short'', 60, ''at'', NULL, ts_unit => ''epoch'')', type))
    FROM unnest('{double precision, real, smallint, "numeric(12, -2)"}'::text[]) type;
SELECT default_of('number', 'at');

-- COPY stamps a NULL and a column that is left out
TRUNCATE number;
COPY number (id, at) FROM STDIN;
1	\N
2	0
3	32503680000
\.
COPY number (id) FROM STDIN;
4
\.
SELECT id, stamp(to_timestamp(at), '2 s') FROM number ORDER BY id;
SELECT ttl.expired_count('number');
-- not with more digits than the column has
CREATE TABLE short (id int, at numeric(9), note text);
SELECT ttl.create_container('short', 60, 'at', NULL, ts_unit => 'epoch');
COPY short (id, at) FROM STDIN;
1	\N
\.
-- As in an export of Cosmos DB: its own _ts, and TTLs in documents
CREATE TABLE orders (id text PRIMARY KEY, doc jsonb NOT NULL, _ts bigint NOT NULL);
INSERT INTO orders VALUES ('for ever', '{}', 1577836800), ('expired', '{"ttl": 3600}', 1577836800), ('live',
    '{"ttl": 2147483647}', 1577836800);
SELECT ttl.create_container('orders', -1, ts_column => '_ts', ts_unit => 'epoch', ttl_column => 'doc');
INSERT INTO orders VALUES ('new', '{"ttl": 3600}');
UPDATE orders SET doc = doc || '{"ttl": 60}' WHERE id = 'live';
SELECT id, stamp(to_timestamp(_ts), '1 s'), ttl.time_to_live(o) FROM orders o ORDER BY id;
-- What the application writes is taken where touch_on_update is off
SELECT ttl.alter_container('orders', touch_on_update => false);
UPDATE orders SET _ts = 1577836800 WHERE id IN ('live', 'new');
SELECT id FROM orders;
SELECT ttl.alter_container('orders', touch_on_update => true);
-- A date: the first instant of a day that isn't past, or what the application writes
CREATE TABLE day (id int, day date, note text);
SELECT refused('SELECT ttl.create_container(''rounding.day'', ''2 days'', ''day'', NULL)');
SELECT ttl.create_container('day', '2 days', 'day', NULL, touch_on_update => false);
INSERT INTO day (id) VALUES (1);
INSERT INTO day VALUES (2, '2900-01-01'), (3, '2020-01-01'), (4, 'infinity'), (5, '-infinity'), (6,
    (now() AT TIME ZONE 'UTC')::date - 1);
COPY day (id, day) FROM STDIN;
7	\N
\.
-- an UPDATE doesn't stamp it; a row of today or yesterday lives on, long ones expire
UPDATE day SET note = 'updated';
SELECT id, stamp(day::timestamp AT TIME ZONE 'UTC'), ttl.time_to_live(d) BETWEEN 0 AND 172800 AS soon FROM day d
    WHERE id <> 6 ORDER BY id;
SELECT id FROM day WHERE id = 6;
SELECT ttl.expired_count('day');
CALL ttl.reap('day');
-- nor can that be turned on
SELECT refused('SELECT ttl.alter_container(''rounding.day'', touch_on_update => true)'), default_of('day', 'day');
-- a row's own TTL counts from the day's first instant, by the index and row by row
CREATE TABLE day_or_not (id int, ttl int, day date);
SELECT ttl.create_container('day_or_not', '2 days', 'day', touch_on_update => false, ttl_column => 'ttl');
INSERT INTO day_or_not VALUES (1, 60, '2020-01-01'), (2, 2147483647, '2020-01-01'), (3, -1, '2020-01-01'), (4, NULL,
    '2020-01-01');
SET ttl.debug_index_probe = always;
SELECT id FROM day_or_not ORDER BY id;
SET ttl.debug_index_probe = never;
SELECT id FROM day_or_not ORDER BY id;
RESET ttl.debug_index_probe;

-- The functions that plans call can't be made to misread what they are given
-- A type, precision or unit that no plan gives them is an error
SELECT call, refused('SELECT ' || call) FROM unnest(ARRAY['ttl.stamp(''a''::text, 1, NULL)',
    'ttl.stamp(1::bigint, 1, NULL)', 'ttl.stamp(1::bigint, 0, ''epoch'')', 'ttl.stamp(1::bigint, NULL, ''epoch'')',
    'ttl.stamp(1::bigint, 1, ''ms'')',
    'ttl.complete(NULL::text, 1, NULL)', 'ttl.complete(NULL::timestamptz, 9223372036854775807, NULL)',
        'ttl.complete(NULL::int, 1, ''epoch_ms'')', 'ttl.shard_stamp(NULL::text, ''a''::text, NULL, 1, NULL)']) call;

SET client_min_messages = error;
DROP SCHEMA rounding CASCADE;
