-- TTL columns of other types than integer, deadlines, documents, and timestamps
-- without time zone
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA kinds;
SET search_path = kinds, public;

--
-- What a value means: the same whoever asks
--

-- What each of a list of values makes of a row whose _ts is noon: when it expires by
-- a default of 10 s, and who sees it 15 and 25 s later
CREATE FUNCTION meanings(c regclass) RETURNS TABLE (value text, expires_at text, by_10_at_15 boolean,
    by_10_at_25 boolean, never_at_25 boolean, off boolean)
LANGUAGE plpgsql AS $$
DECLARE
    seen text := format('SELECT v.value, v.value IN (SELECT value FROM %s) FROM stored_values v', c);
BEGIN
    PERFORM set_config('ttl.show_expired', 'on', false);
    EXECUTE format('CREATE TEMP TABLE stored_values ON COMMIT DROP AS SELECT value FROM %s', c);
    PERFORM set_config('ttl.show_expired', 'off', false);
    PERFORM ttl.set_default_ttl(c, 10);
    PERFORM set_config('ttl.now', '2020-01-01 12:00:15+00', false);
    EXECUTE format('CREATE TEMP TABLE at_15 ON COMMIT DROP AS SELECT value FROM %s', c);
    PERFORM set_config('ttl.now', '2020-01-01 12:00:25+00', false);
    EXECUTE format('CREATE TEMP TABLE at_25 ON COMMIT DROP AS SELECT value FROM %s', c);
    PERFORM ttl.set_default_ttl(c, -1);
    EXECUTE format('CREATE TEMP TABLE never ON COMMIT DROP AS SELECT value FROM %s', c);
    PERFORM ttl.set_default_ttl(c, NULL);
    EXECUTE format('CREATE TEMP TABLE off ON COMMIT DROP AS SELECT value FROM %s', c);
    PERFORM ttl.set_default_ttl(c, 10);
    PERFORM set_config('ttl.now', '', false);
    PERFORM set_config('ttl.show_expired', 'on', false);
    RETURN QUERY EXECUTE format(
        'SELECT value, ttl.expires_at(c)::text, c.value IN (TABLE at_15), c.value IN (TABLE at_25), c.value IN (TABLE '
            'never), c.value IN (TABLE off) FROM %s c ORDER BY id', c);
    PERFORM set_config('ttl.show_expired', 'off', false);
END $$;

-- What the rule says of a row, the filter, the expiry indexes and the DELETE agree on
-- it, by each way of reading; in the end all of it is undone
CREATE PROCEDURE agree(c regclass, defaults int[] DEFAULT '{NULL, -1, 1000}') LANGUAGE plpgsql AS $$
DECLARE
    d int;
    way text;
    live int[];
    seen int[];
    hidden bigint;
BEGIN
    PERFORM set_config('jit', 'off', true);
    FOREACH d IN ARRAY defaults LOOP
        PERFORM ttl.set_default_ttl(c, d);
        PERFORM set_config('ttl.show_expired', 'on', true);
        EXECUTE format('SELECT array_agg(id ORDER BY id) FILTER (WHERE coalesce(ttl.expires_at(c) > clock_timestamp(), '
            'true)), count(*) FILTER (WHERE ttl.expires_at(c) <= clock_timestamp()) FROM %s c', c) INTO live, hidden;
        PERFORM set_config('ttl.show_expired', 'off', true);
        ASSERT ttl.expired_count(c) = hidden, format('%s, default %s: %s counted, %s by the rule', c, d,
            ttl.expired_count(c), hidden);
        FOREACH way IN ARRAY '{never, always, index only, bitmap, locks}'::text[] LOOP
            IF way IN ('never', 'always') THEN
                PERFORM set_config('ttl.debug_index_probe', way, true);
            END IF;
            PERFORM set_config('enable_seqscan', CASE WHEN way IN ('index only', 'bitmap') THEN 'off' ELSE 'on' END,
                true),
                set_config('enable_indexscan', 'off', true),
                set_config('enable_indexonlyscan', CASE WHEN way = 'index only' THEN 'on' ELSE 'off' END, true),
                set_config('enable_bitmapscan', CASE WHEN way = 'bitmap' THEN 'on' ELSE 'off' END, true);
            EXECUTE format(CASE way
                    WHEN 'locks' THEN 'WITH locked AS (SELECT id FROM %1$s FOR UPDATE) SELECT array_agg(id ORDER BY '
                        'id) FROM locked'
                    ELSE 'SELECT array_agg(id ORDER BY id) FROM %1$s WHERE id > 0' END, c) INTO seen;
            ASSERT seen IS NOT DISTINCT FROM live, format('%s, default %s, %s: %s seen, %s by the rule', c, d, way,
                seen, live);
        END LOOP;
        CALL ttl.reap(c);
        PERFORM set_config('ttl.show_expired', 'on', true);
        EXECUTE format('SELECT array_agg(id ORDER BY id) FROM %s', c) INTO seen;
        PERFORM set_config('ttl.show_expired', 'off', true);
        ASSERT seen IS NOT DISTINCT FROM live, format('%s, default %s: %s left, %s by the rule', c, d, seen, live);
    END LOOP;
    RAISE EXCEPTION USING ERRCODE = 'TTL00', MESSAGE = 'agreed';
EXCEPTION WHEN SQLSTATE 'TTL00' THEN
    NULL;
END $$;

-- A container with a row for each value of such a TTL column; a column dropped before, so that attribute numbers differ
CREATE FUNCTION make(c name, type text, items text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (gone int, id int PRIMARY KEY, value text, changed timestamptz, keep %s)', c, type);
    EXECUTE format('ALTER TABLE %I DROP gone', c);
    FOR i IN 1 .. cardinality(items) LOOP
        EXECUTE format('INSERT INTO %I VALUES ($1, coalesce($2, ''NULL''), ''2020-01-01 12:00:00+00'', $2::%s)', c,
            type) USING i, items[i];
    END LOOP;
    PERFORM ttl.create_container(c::regclass, 10, 'changed', 'keep');
END $$;

-- Seconds as numbers of any type: whole ones from 1 to 2147483647 count, and -1 is for ever; of a row with any other
-- value (0, -7, a fraction, NaN) the default TTL decides, as if it had none
SELECT make('as_bigint', 'bigint', '{20, 2147483647, 2147483648, 2147483649, 9223372036854775807, 0, -1, -7, '
    '-2147483648, -9223372036854775808, NULL}');
SELECT * FROM meanings('as_bigint');
CALL agree('as_bigint');
SELECT make('as_numeric', 'numeric', '{20, 20.0, 20.5, 20.00000000000000000000000000000000001, 0.99999999999999999999, '
    '2147483647, 2147483647.5, 2147483648, 2147483649, 0, -1, -1.0, -1.5, -7, NaN, Infinity, -Infinity, 1e400, 1e-400, '
    'NULL}');
SELECT * FROM meanings('as_numeric');
CALL agree('as_numeric');
SELECT make('as_double', 'double precision', '{20, 20.0, 20.5, 2147483647, 2147483647.5, 2147483648, 2147483649, 0, '
    '-0, -1, -1.5, -7, NaN, Infinity, -Infinity, 1e300, NULL}');
SELECT * FROM meanings('as_double');
CALL agree('as_double');
-- a real holds 2147483648 for 2147483647, which is no TTL
SELECT make('as_real', 'real', '{20, 20.5, 16777216, 2147483520, 2147483647, 0, -1, -7, NaN, Infinity, -Infinity, '
    'NULL}');
SELECT * FROM meanings('as_real');
CALL agree('as_real');

-- In a document the key "ttl" counts, on its top level and as a number; the last of two is what jsonb keeps
SELECT make('as_jsonb', 'jsonb', ARRAY['{"ttl": 20}', '{"ttl": 20.0}', '{"ttl": 2e1}', '{"ttl": 20.5}',
    '{"ttl": 2147483647}', '{"ttl": 2147483648}', '{"ttl": 2147483649}',
    '{"ttl": 0}', '{"ttl": -1}', '{"ttl": -7}', '{"ttl": 1e400}', '{"ttl": "20"}', '{"ttl": "NaN"}', '{"ttl": true}',
        '{"ttl": null}', '{"ttl": [20]}', '{"ttl": {"ttl": 20}}',
    '{"nested": {"ttl": 20}}', '{"TTL": 20}', '{}', '{"ttl": 5, "ttl": 20}', '{"ttl": 20, "ttl": "5"}',
        '[{"ttl": 20}]', '["ttl", 20]', '"ttl"', '20', 'null', NULL]);
SELECT * FROM meanings('as_jsonb');
CALL agree('as_jsonb');

-- Integers, for comparison
SELECT make('as_integer', 'integer', '{20, 2147483647, 0, -1, -7, -2147483648, NULL}');
SELECT * FROM meanings('as_integer');
CALL agree('as_integer');

-- A column that is generated from a document is a TTL column like another
CREATE TABLE as_generated (id int PRIMARY KEY, value text, doc jsonb, changed timestamptz,
    keep jsonb GENERATED ALWAYS AS (doc) STORED);
SELECT ttl.set_default_ttl('as_jsonb', NULL);
INSERT INTO as_generated SELECT id, value, keep, changed FROM as_jsonb;
SELECT ttl.create_container('as_generated', 10, 'changed', 'keep');
CALL agree('as_generated');
SELECT count(*) FROM as_generated;
SELECT ttl.set_default_ttl('as_jsonb', 1000);

-- Deadlines: whatever _ts is, the row expires then; the default TTL is for rows without one
CREATE FUNCTION make_deadlines(c name, type text, has_ts boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (gone int, keep %s, id int PRIMARY KEY, value text%s)', c, type, CASE
        WHEN has_ts THEN ', changed timestamptz' ELSE '' END);
    EXECUTE format('ALTER TABLE %I DROP gone', c);
    EXECUTE format('INSERT INTO %I SELECT CASE WHEN v <> ''NULL'' THEN v::%s END, n, coalesce(v, ''NULL'') %s FROM '
        'unnest($1) WITH ORDINALITY AS v (v, n)', c, type, CASE
        WHEN has_ts THEN ', ''2020-01-01 12:00:00+00''' ELSE '' END)
        USING '{2020-01-01 12:00:15, 2020-01-01 12:00:15.000001, 2020-01-01 12:00:25, 2020-01-01 12:00:25.000001, '
            '2900-01-01, infinity, -infinity, 294276-12-31 23:59:59.999999, 4713-01-01 BC, NULL}'::text[];
    PERFORM ttl.create_container(c::regclass, CASE WHEN has_ts THEN 10 ELSE -1 END, CASE
        WHEN has_ts THEN 'changed'::name END, 'keep');
END $$;
-- infinity never expires, -infinity always has
SELECT make_deadlines('as_timestamptz', 'timestamptz', true);
SELECT * FROM meanings('as_timestamptz');
CALL agree('as_timestamptz');
SELECT make_deadlines('as_timestamp', 'timestamp', true);
SELECT * FROM meanings('as_timestamp');
CALL agree('as_timestamp');

-- Without a timestamp column a row without a deadline never expires
SELECT make_deadlines('alone', 'timestamptz', false);
CALL agree('alone', '{NULL, -1}');
SELECT id, value, ttl.expires_at(a), ttl.time_to_live(a) FROM alone a WHERE value NOT LIKE '2900%' ORDER BY id;
SELECT make_deadlines('alone_utc', 'timestamp', false);
CALL agree('alone_utc', '{NULL, -1}');
-- a timestamp without time zone is read as UTC; at the end of time infinity alone is live
SET ttl.now = '2020-01-01 12:00:15+00';
SELECT id, value, ttl.expires_at(a), ttl.time_to_live(a) FROM alone_utc a WHERE id < 5 ORDER BY id;
SET ttl.now = 'infinity';
SELECT id, value FROM alone_utc ORDER BY id;
RESET ttl.now;

-- Deadlines as numbers since 1970, and as dates: what is no instant has no meaning
CREATE FUNCTION make_numbers(c name, type text, unit text, has_ts boolean, indexing text,
    items text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (gone int, keep %s, id int PRIMARY KEY, value text%s)', c, type, CASE
        WHEN has_ts THEN ', changed timestamptz' ELSE '' END);
    EXECUTE format('ALTER TABLE %I DROP gone', c);
    EXECUTE format('CREATE INDEX %I ON %I (keep)', c || '_mine', c);
    EXECUTE format('INSERT INTO %I SELECT CASE WHEN v <> ''NULL'' THEN v::%s END, n, coalesce(v, ''NULL'') %s FROM '
        'unnest($1) WITH ORDINALITY AS v (v, n)', c, type, CASE
        WHEN has_ts THEN ', ''2020-01-01 12:00:00+00''' ELSE '' END) USING items;
    PERFORM ttl.create_container(c::regclass, CASE WHEN has_ts THEN 10 ELSE -1 END, CASE
        WHEN has_ts THEN 'changed'::name END, 'keep', indexing, ttl_unit => unit);
END $$;
-- 2020-01-01 12:00:15 UTC is 1577880015
\set seconds '{1577880014, 1577880015, 1577880016, 1577880025, 1577880026, 0, -1, -2147483648, 2147483647, NULL}'
\set others '{1577880014.9999995, 1577880015.0000005, 1577880015.000001, 1577880025, 1577880025.0000004, 9223372036854,'
\set others :others ' 9223372036855, 1e300, 1e20, -210866803200, -210866803201, -1e20, NaN, Infinity, -Infinity, 0'
\set others :others ', NULL}'

-- Each unit has its own ends, beyond which a number says no instant: then the default TTL decides
SELECT make_numbers('epoch_int', 'integer', 'epoch', true, 'consistent', :'seconds');
SELECT * FROM meanings('epoch_int');
CALL agree('epoch_int');
SELECT make_numbers('epoch_bigint', 'bigint', 'epoch', true, 'consistent',
    '{1577880014, 1577880015, 1577880016, 1577880025, 1577880026, 0, -1, 9223372036854, 9223372036855, '
    '9223372036854775807, -9223372036854775808, -210866803200, -210866803201, NULL}');
SELECT * FROM meanings('epoch_bigint');
CALL agree('epoch_bigint');
-- with milliseconds and microseconds the unit's last digit decides
SELECT make_numbers('epoch_ms', 'bigint', 'epoch_ms', true, 'consistent',
    '{1577880014999, 1577880015000, 1577880015001, 1577880025000, 1577880025001, 0, 9223372036854775, '
    '9223372036854776, 9223372036854775807, -9223372036854775808, NULL}');
SELECT * FROM meanings('epoch_ms');
CALL agree('epoch_ms');
SELECT make_numbers('epoch_us', 'bigint', 'epoch_us', true, 'consistent',
    '{1577880014999999, 1577880015000000, 1577880015000001, 1577880025000000, 0, 9223372036854775807, '
    '-9223372036854775808, NULL}');
SELECT * FROM meanings('epoch_us');
CALL agree('epoch_us');
-- of nanoseconds, which no timestamp holds, the row is live until the next microsecond
SELECT make_numbers('epoch_ns', 'bigint', 'epoch_ns', true, 'consistent',
    '{1577880014999999999, 1577880015000000000, 1577880015000000001, 1577880015000001000, 1577880025000000000, -1, 0, '
    '9223372036854775807, -9223372036854775807, -9223372036854775808, NULL}');
SELECT * FROM meanings('epoch_ns');
CALL agree('epoch_ns');
-- of decimals, too
SELECT make_numbers('epoch_numeric', 'numeric', 'epoch', true, 'consistent', :'others');
SELECT * FROM meanings('epoch_numeric');
CALL agree('epoch_numeric');
SELECT make_numbers('epoch_numeric_ns', 'numeric', 'epoch_ns', true, 'consistent',
    '{1577880015000000000, 1577880015000000000.5, 1577880015000000001, 1577880015000001000, 1e60, NaN, NULL}');
SELECT * FROM meanings('epoch_numeric_ns');
CALL agree('epoch_numeric_ns');
-- a date is its first instant in UTC
SELECT make_numbers('dates', 'date', NULL, true, 'consistent',
    '{2019-12-31, 2020-01-01, 2020-01-02, infinity, -infinity, 294276-12-31, 294277-01-01, 4713-11-24 BC, '
    '5874897-12-31, NULL}');
SELECT * FROM meanings('dates');
CALL agree('dates');

-- No more has expired at the end of time than what has an end
SET ttl.now = 'infinity';
SELECT array_agg(value ORDER BY id) AS live, ttl.expired_count('dates') FROM dates;
RESET ttl.now;

-- The index that was there serves: none is built
SELECT pg_get_indexdef(indexrelid) FROM pg_index
    WHERE indrelid::regclass::text ~ '^(epoch_int|dates)$' AND NOT indisprimary
    ORDER BY pg_get_indexdef(indexrelid) COLLATE "C";

-- Without a timestamp column, numbers and dates do as timestamps do
SELECT make_numbers('epoch_alone', 'bigint', 'epoch', false, 'consistent',
    '{1577880015, 0, 32503680000, NULL, 9223372036854775807, -9223372036854775808}');
CALL agree('epoch_alone', '{NULL, -1}');
SELECT make_numbers('date_alone', 'date', 'seconds', false, 'consistent',
    '{2020-01-01, 2900-01-01, infinity, -infinity, NULL}');
CALL agree('date_alone', '{NULL, -1}');
SELECT id, value, ttl.expires_at(d) FROM date_alone d ORDER BY id;

-- A clock may be a number, too, here one that the application writes
CREATE FUNCTION make_clock(c name, type text, unit text, own text, indexing text,
    items text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY, value text, changed %s%s)', c, type, CASE
        WHEN own IS NULL THEN '' ELSE ', keep ' || own END);
    EXECUTE format('INSERT INTO %I (id, value, changed) SELECT n, coalesce(v, ''NULL''), CASE WHEN v <> ''NULL'' THEN '
        'v::%s END FROM unnest($1) WITH ORDINALITY AS v (v, n)', c, type) USING items;
    IF own IS NOT NULL THEN
        EXECUTE format('INSERT INTO %1$I SELECT id + 100, value || '' + 5'', changed, 5 FROM %1$I', c);
        EXECUTE format('INSERT INTO %1$I SELECT id + 200, value || '' never'', changed, -1 FROM %1$I WHERE id < 100',
            c);
    END IF;
    PERFORM ttl.create_container(c::regclass, 10, 'changed', CASE WHEN own IS NOT NULL THEN 'keep'::name END, indexing,
        touch_on_update => false, ts_unit => unit);
END $$;

-- Its rows expire by the default TTL from there, each of them if there is no column for TTLs
SELECT make_clock('clock_bigint', 'bigint', 'epoch_ms', NULL, 'consistent',
    '{1577880000000, 1577880005000, 1577880005001, 1577880015001, 0, -1, 32503680000000, 9223372036854775807, '
    '-9223372036854775808, NULL}');
SELECT * FROM meanings('clock_bigint');
CALL agree('clock_bigint');
-- with a TTL column its values count from that clock: a TTL of 5, and -1
SELECT make_clock('clock_numeric', 'numeric', 'epoch', 'int', 'consistent',
    '{1577880005, 1577880005.0000001, NaN, Infinity, -Infinity, 0, NULL}');
SELECT * FROM meanings('clock_numeric');
CALL agree('clock_numeric');
SELECT make_clock('clock_date', 'date', NULL, 'int', 'consistent',
    '{2019-12-31, 2020-01-01, 2020-01-02, infinity, -infinity, 4713-11-24 BC, 5874897-12-31, NULL}');
SELECT * FROM meanings('clock_date');
CALL agree('clock_date');

-- Nothing is written to it by ttl: a row without a clock keeps none and never expires, and there is no default
INSERT INTO clock_bigint VALUES (900, 'no clock', NULL);
UPDATE clock_bigint SET changed = NULL WHERE id = 900;
UPDATE clock_bigint SET value = 'updated' WHERE id = 900;
SELECT value, changed, ttl.expires_at(c), ttl.time_to_live(c) FROM clock_bigint c WHERE id = 900;
SELECT column_default FROM information_schema.columns WHERE table_name = 'clock_bigint' AND column_name = 'changed';

-- The unit stays with a column that is renamed, with a partition that leaves, and for COPY
ALTER TABLE epoch_bigint RENAME keep TO until;
CALL agree('epoch_bigint');
SELECT ttl_column, ttl_unit FROM ttl.container WHERE relid = 'epoch_bigint'::regclass;
SELECT refused('ALTER TABLE kinds.epoch_bigint ALTER until TYPE timestamptz USING NULL');

-- COPY shows what is live
COPY epoch_alone (id) TO STDOUT;
CREATE TABLE by_epoch (id int, until bigint) PARTITION BY LIST (id);
CREATE TABLE by_epoch_1 (until bigint, id int);
CREATE TABLE by_epoch_2 (gone int, until bigint, id int);
ALTER TABLE by_epoch_2 DROP gone;
ALTER TABLE by_epoch ATTACH PARTITION by_epoch_1 FOR VALUES IN (1);
SELECT ttl.create_container('by_epoch', -1, ts_column => NULL, ttl_column => 'until', ttl_unit => 'epoch');
ALTER TABLE by_epoch ATTACH PARTITION by_epoch_2 FOR VALUES IN (2);
INSERT INTO by_epoch VALUES (1, 0), (1, 32503680000), (2, 0), (2, 32503680000), (2, NULL);
SELECT id, until FROM by_epoch ORDER BY 1, 2;
ALTER TABLE by_epoch DETACH PARTITION by_epoch_2;
SELECT id, until FROM by_epoch_2 ORDER BY 1, 2;
SELECT ttl_column, ttl_unit, ts_unit FROM ttl.container WHERE relid = 'by_epoch_2'::regclass;
SELECT ttl.expired_count('by_epoch'), ttl.expired_count('by_epoch_2');

-- A unit is refused for what can't hold one, and a number without a unit where it would be needed
CREATE TABLE units (id int, until bigint, at timestamptz, small smallint, approximate real, double double precision,
    doc jsonb, whole int);
SELECT args, refused(format('SELECT ttl.create_container(''kinds.units'', %s)', args)) FROM unnest(ARRAY[
    '-1, ts_column => NULL, ttl_column => ''until''', '-1, ttl_column => ''until'', ttl_unit => ''ms''',
        '-1, ttl_column => ''at'', ttl_unit => ''epoch''',
    '-1, ttl_column => ''small'', ttl_unit => ''epoch''', '-1, ttl_column => ''approximate'', ttl_unit => ''epoch''',
        '-1, ttl_column => ''double'', ttl_unit => ''epoch''', '-1, ttl_column => ''doc'', ttl_unit => ''epoch''',
    '-1, ttl_column => ''whole'', ttl_unit => ''epoch_ms''', '-1, ttl_unit => ''epoch''', '5, ts_column => ''until''',
        '5, ts_column => ''double'', ts_unit => ''epoch''', '5, ts_column => ''double''',
    '5, ts_column => ''at'', ts_unit => ''epoch'', touch_on_update => false',
        '5, ts_unit => ''epoch'', touch_on_update => false']) args \g (format=unaligned)

-- A WARNING says so if the numbers look like another unit than they are taken for
INSERT INTO units (id, until) VALUES (1, 32503680000000), (2, 32503680000001), (3, 5);
SET client_min_messages = notice;
BEGIN;
SELECT ttl.create_container('units', NULL, ttl_column => 'until');
ROLLBACK;
BEGIN;
SELECT ttl.create_container('units', NULL, ttl_column => 'until', ttl_unit => 'epoch');
ROLLBACK;
BEGIN;
SELECT ttl.create_container('units', NULL, ttl_column => 'until', ttl_unit => 'epoch_ms');
ROLLBACK;
SET client_min_messages = warning;

-- A deadline that passes between the statement's clock and the row's _ts leaves no negative time
CREATE TABLE passing (until timestamptz, work text, _ts timestamptz NOT NULL);
SELECT ttl.create_container('passing', -1, ttl_column => 'until');
WITH written AS (INSERT INTO passing SELECT clock_timestamp(), md5(repeat('x', 10000 + g)), clock_timestamp()
    FROM generate_series(1, 10) g RETURNING ttl.time_to_live(passing) AS left)
SELECT max("left"), min("left") FROM written;

-- A NULL for _ts doesn't keep a deadline from passing
CREATE TABLE without_ts (id int, changed timestamptz, keep timestamptz);
INSERT INTO without_ts VALUES (1, NULL, '2020-01-01'), (2, NULL, NULL), (3, 'infinity', '2020-01-01'), (4, '-infinity',
    '2900-01-01'), (5, '-infinity', NULL);
SELECT ttl.create_container('without_ts', 10, 'changed', 'keep');
SELECT id FROM without_ts ORDER BY id;
-- the reaper agrees
CALL ttl.reap('without_ts');
SELECT stored FROM stored('without_ts');

-- The filter function knows the types, and no others
SELECT ttl.is_live('as_bigint', '2020-01-01', 20::bigint) AS bigint, ttl.is_live('as_bigint', '2020-01-01',
    -1.0) AS numeric, ttl.is_live('as_bigint', '2020-01-01', '{"ttl": -1}'::jsonb) AS jsonb,
       ttl.is_live('as_bigint', '2020-01-01', timestamp '2900-01-01') AS deadline, ttl.is_live('as_bigint',
           '2900-01-01', timestamptz '2020-01-01') AS passed, ttl.is_live('as_bigint', '2020-01-01', NULL) AS none;
SELECT ttl.item_ttl(20::bigint), ttl.item_ttl(20.0), ttl.item_ttl(20::float8), ttl.item_ttl(20::real),
    ttl.item_ttl('{"ttl": 20}'::jsonb), ttl.item_ttl(20.5), ttl.item_ttl(NULL::jsonb);
SELECT ttl.item_ttl(20), ttl.item_ttl(0), ttl.item_ttl(-1::smallint), ttl.instant(86400, 'epoch'),
    ttl.instant('2020-01-01'::date);
-- a domain is what it is based on; other types have no such meaning, which is an error
CREATE DOMAIN document AS jsonb;
SELECT ttl.item_ttl('{"ttl": 7}'::document);
SELECT refused(s) FROM unnest('{ttl.item_ttl(''20''::text),ttl.item_ttl(''20''),ttl.item_ttl(now()),'
    '"ttl.instant(20, ''epoch_ms'')","ttl.instant(1::bigint, ''seconds'')",'
    '"ttl.instant(1::bigint, ''days'')"}'::text[]) f, format('SELECT %s', f) s;

--
-- Writing
--

-- A key is free if the row that holds it has expired, by whatever type
INSERT INTO as_jsonb (id, keep) VALUES (1, '{"new": true}') RETURNING ttl.time_to_live(as_jsonb) > 0 AS live;
INSERT INTO as_jsonb (id, keep) VALUES (2, '{"new": true}'), (9, '{"is": "taken"}') ON CONFLICT DO NOTHING RETURNING id;
INSERT INTO as_numeric (id, keep) VALUES (1, 5), (6, 5) ON CONFLICT (id) DO UPDATE SET value = 'was there'
    RETURNING id, value;
INSERT INTO alone (id, value, keep) VALUES (1, 'anew', '2900-01-01'), (5, 'taken', '2900-01-01')
    ON CONFLICT (id) DO UPDATE SET value = 'was there' RETURNING id, value;

-- An UPDATE of the document moves its expiry, and so does one of a deadline
-- by a new TTL, and by none any more
UPDATE as_jsonb SET keep = keep || '{"ttl": 5000}' WHERE id = 1
    RETURNING ttl.time_to_live(as_jsonb) BETWEEN 4990 AND 5000 AS moved;
UPDATE as_jsonb SET keep = keep - 'ttl' WHERE id = 1
    RETURNING ttl.time_to_live(as_jsonb) BETWEEN 990 AND 1000 AS by_default;
-- one of another column leaves the deadline as it is
UPDATE alone SET keep = '2020-01-01' WHERE id = 1;
UPDATE alone SET value = 'touched' WHERE id = 5 RETURNING keep;
SELECT id FROM alone ORDER BY id;
CALL agree('as_jsonb');
CALL agree('as_numeric');
CALL agree('alone', '{NULL, -1}');

-- MERGE takes an expired row as absent
MERGE INTO alone a USING (VALUES (1), (5)) v (id) ON v.id = a.id WHEN MATCHED THEN UPDATE SET value = 'matched'
    WHEN NOT MATCHED THEN INSERT (id, value, keep) VALUES (v.id, 'not matched', '2900-01-01');
SELECT id, value FROM alone WHERE id IN (1, 5) ORDER BY id;

-- Foreign keys between containers with other types of TTL
CREATE TABLE invitation (id int PRIMARY KEY, deadline timestamptz);
CREATE TABLE answer (id int PRIMARY KEY, invitation int REFERENCES invitation, doc jsonb);
INSERT INTO invitation VALUES (1, '2020-01-01'), (2, '2900-01-01'), (3, '2020-01-01'), (4, '2020-01-01');
INSERT INTO answer VALUES (1, 1, '{"ttl": 5}'), (2, 2, '{"ttl": 5}'), (3, 3, '{"ttl": -1}');
SELECT ttl.create_container('invitation', -1, ts_column => NULL, ttl_column => 'deadline');
SELECT ttl.create_container('answer', -1, ttl_column => 'doc');
SET ttl.touch = off;
UPDATE answer SET _ts = '2020-01-01';
RESET ttl.touch;
-- an expired invitation can't be referenced any more
SELECT state('INSERT INTO kinds.answer VALUES (9, 1)') AS expired,
    state('INSERT INTO kinds.answer VALUES (9, 2)') AS live;
-- its key is free if what references it has expired, too, not while a live row does
INSERT INTO invitation VALUES (1, '2900-01-01');
SELECT state('INSERT INTO kinds.invitation VALUES (3, ''2900-01-01'')');
-- the reaper deletes it under the same condition
CALL ttl.reap('answer');
CALL ttl.reap('invitation');
SELECT * FROM stored('invitation');
SELECT stored FROM stored('answer');

--
-- Which tables become containers, and what is said of it
--

CREATE DOMAIN seconds AS bigint;
CREATE TYPE mood AS ENUM ('sad', 'happy');

-- Types that say no time are refused
SELECT t, refused(format('CREATE TABLE kinds.refused (id int, ttl %s); SELECT ttl.create_container(''kinds.refused'', '
    '60)', t))
  FROM unnest(ARRAY['text', 'kinds.mood', 'kinds.seconds', 'time', 'interval', 'money', 'json', 'bigint[]',
      'timestamptz[]', 'oid']) t;

-- So is a container in which no row could ever expire, or whose default TTL could have no effect
SELECT call, refused(format('DROP TABLE IF EXISTS kinds.refused; CREATE TABLE kinds.refused (id int, n bigint, '
    'doc jsonb, until timestamptz, at timestamp); SELECT ttl.create_container(''kinds.refused'', %s)', call))
  FROM unnest(ARRAY['-1, ts_column => NULL', '-1, ts_column => NULL, ttl_column => NULL',
      '-1, ts_column => NULL, ttl_column => ''n''', '-1, ts_column => NULL, ttl_column => ''doc''',
                    '5, ts_column => NULL, ttl_column => ''until''',
                        '-1, ts_column => ''until'', ttl_column => ''until''',
                        '-1, ts_column => NULL, ttl_column => ''until''',
                    'NULL, ts_column => NULL, ttl_column => ''at''']) call \g (format=unaligned)
-- nor can such a default be set later
SELECT refused('SELECT ttl.set_default_ttl(''kinds.alone'', 60)');

-- Nothing is added to a table that has its own deadline and an index on it
SET client_min_messages = notice;
CREATE TABLE session (sid varchar NOT NULL PRIMARY KEY, sess json NOT NULL, expire timestamp(6) NOT NULL);
CREATE INDEX "IDX_session_expire" ON session (expire);
INSERT INTO session VALUES ('old', '{}', '2020-01-01'), ('new', '{}', '2900-01-01');
CREATE VIEW session_shape AS
    SELECT 'column' AS is, attname::text AS name, format_type(atttypid, atttypmod) AS what FROM pg_attribute
        WHERE attrelid = 'session'::regclass AND attnum > 0
    UNION ALL SELECT 'default', adnum::text, adbin::text FROM pg_attrdef WHERE adrelid = 'session'::regclass
    UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = 'session'::regclass AND contype <> 'n'
    UNION ALL SELECT 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
        WHERE indrelid = 'session'::regclass;
CREATE TEMP TABLE before AS TABLE session_shape;
SELECT ttl.create_container('session', -1, ts_column => NULL, ttl_column => 'expire');
-- no column, default, constraint or index is another
(TABLE session_shape EXCEPT TABLE before) UNION ALL (TABLE before EXCEPT TABLE session_shape);

-- The rows expire all the same, and the container needs what it was made with
SELECT sid FROM session;
SELECT container, default_ttl, ts_column, ttl_column FROM ttl.containers WHERE container = 'session'::regclass;
SELECT refused('DROP INDEX kinds."IDX_session_expire"'), refused('ALTER TABLE kinds.session DROP expire') \gx

-- The column may be renamed, though
CALL ttl.reap('session');
ALTER TABLE session RENAME expire TO until;
SELECT ts_column, ttl_column FROM ttl.containers WHERE container = 'session'::regclass;
ALTER TABLE session RENAME until TO expire;
-- afterwards the table is as it was, though it was asked to drop columns: none was ttl's
SELECT ttl.drop_container('session', drop_columns => true);
(TABLE session_shape EXCEPT TABLE before) UNION ALL (TABLE before EXCEPT TABLE session_shape);

-- An index serves that leaves out NULLs; not one in another order, of more columns, or of some rows
DROP INDEX "IDX_session_expire";
CREATE INDEX partial ON session (expire) WHERE sid > 'a'; CREATE INDEX down ON session (expire DESC);
CREATE INDEX more ON session (expire, sid); CREATE INDEX of_hash ON session USING hash (expire);
CREATE INDEX nulls_first ON session (expire NULLS FIRST);
CREATE INDEX not_null ON session (expire) WHERE expire IS NOT NULL;
SELECT ttl.create_container('session', -1, ts_column => NULL, ttl_column => 'expire');
SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'session'::regclass
    ORDER BY indexrelid::regclass::text COLLATE "C";
-- the one that serves is needed, the others aren't
SELECT refused('DROP INDEX kinds.not_null'), refused('DROP INDEX kinds.more');
SELECT ttl.drop_container('session');
-- without it an index is built, which goes with the container
DROP INDEX not_null;
SELECT ttl.create_container('session', -1, ts_column => NULL, ttl_column => 'expire');
SELECT pg_get_indexdef(indexrelid) FROM pg_index
    WHERE indrelid = 'session'::regclass AND indexrelid = 'session_expire_idx'::regclass;
SELECT ttl.drop_container('session');
SELECT to_regclass('session_expire_idx');

-- Odd values are counted as far as it takes no long time; deadlines are none
SELECT ttl.drop_container('as_bigint'), ttl.create_container('as_bigint', NULL, 'changed', 'keep');
SELECT ttl.drop_container('as_integer'), ttl.create_container('as_integer', NULL, 'changed', 'keep');
SELECT ttl.drop_container('as_jsonb'), ttl.create_container('as_jsonb', NULL, 'changed', 'keep');
SELECT ttl.drop_container('as_timestamptz'), ttl.create_container('as_timestamptz', NULL, 'changed', 'keep');
CREATE TABLE many (ttl real);
INSERT INTO many SELECT 0 FROM generate_series(1, 10001);
SELECT ttl.create_container('many', ttl_column => 'ttl');

-- UTC is said where it isn't meant: in another time zone, of a column that DEFAULT now() fills
CREATE TABLE local (id int, created_at timestamp NOT NULL DEFAULT now(), expires_at timestamp);
\setenv PGTZ Europe/Berlin
\c -
\set VERBOSITY default
SET search_path = kinds, public;
SELECT ttl.create_container('local', -1, 'created_at', 'expires_at');
SELECT ttl.drop_container('local');
-- where the server's time zone is UTC, that is no reason for a WARNING, whatever the session's is
\setenv PGTZ Etc/GMT
\c -
SET search_path = kinds, public;
SET TimeZone = 'Asia/Tokyo';
SELECT ttl.create_container('local', -1, 'created_at', 'expires_at', touch_on_update => false);
\setenv PGTZ UTC
\c -
\set VERBOSITY terse
SET search_path = kinds, public;
SET client_min_messages = warning;

--
-- Timestamps without time zone
--

-- The time in UTC is stamped, rounded to the column's precision, whatever the session's time zone is
CREATE TABLE utc (id int PRIMARY KEY, updated_at timestamp(0));
SELECT ttl.create_container('utc', 1000, 'updated_at');
SELECT attname, pg_get_expr(adbin, adrelid) FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
    WHERE adrelid = 'utc'::regclass;
SET TimeZone = 'Asia/Tokyo';
INSERT INTO utc (id) VALUES (1);
-- a NULL is stamped by each way of writing; a time that is given is taken
INSERT INTO utc VALUES (2, NULL);
COPY utc (id, updated_at) FROM STDIN;
3	\N
\.
INSERT INTO utc VALUES (4, '2020-01-01'), (5, 'infinity'), (6, '-infinity'), (7, (now() + '1 h') AT TIME ZONE 'UTC');
SELECT id, ttl.time_to_live(u) BETWEEN 900 AND 1001 AS right FROM utc u ORDER BY id;
-- an UPDATE stamps anew whatever it assigns, but not over infinity
UPDATE utc SET updated_at = '2000-01-01' WHERE id <> 5;
MERGE INTO utc USING (VALUES (5), (8)) v (id) ON utc.id = v.id WHEN MATCHED THEN UPDATE SET id = 5
    WHEN NOT MATCHED THEN INSERT VALUES (v.id, NULL);
INSERT INTO utc VALUES (1, '2000-01-01') ON CONFLICT (id) DO UPDATE SET id = 1;
SELECT id, ttl.time_to_live(u) BETWEEN 900 AND 1001 AS right, updated_at - now() AT TIME ZONE 'UTC' BETWEEN '-1 s'
    AND '1 min' AS stamped FROM utc u ORDER BY id;
-- what is shown as its expiry is in UTC, too
SELECT to_char(ttl.expires_at(u) AT TIME ZONE 'UTC', 'YYYY') = to_char(updated_at + interval '1000 s',
    'YYYY') AS in_utc FROM utc u WHERE id = 1;
RESET TimeZone;
-- filter, index and reaper agree
INSERT INTO utc VALUES (11, '2020-01-01');
CALL agree('utc', '{NULL, -1, 1000}');
-- without TTL the column is as it was
SELECT ttl.drop_container('utc', true);
\d utc

--
-- ALTER COLUMN ... TYPE
--

CREATE TABLE item (id int PRIMARY KEY, n int);
SELECT ttl.create_container('item', 10);
INSERT INTO item (id, _ts, ttl) VALUES (1, '2020-01-01', NULL), (2, '2020-01-01', 20), (3, '2020-01-01', -1), (4,
    '2900-01-01', 20);

-- A type whose values mean something else can't be had by ALTER alone; the HINT says how
SELECT refused('ALTER TABLE kinds.item ALTER ttl TYPE bigint');
-- what keeps the meaning is allowed
SELECT c, state('ALTER TABLE kinds.item ' || c) FROM unnest(ARRAY['ALTER ttl TYPE text', 'ALTER _ts TYPE timestamp',
    'ALTER ttl TYPE int USING 20', 'ALTER _ts TYPE timestamptz(3)',
    'ALTER ttl TYPE kinds.seconds USING 1', 'ADD note text, ALTER ttl TYPE smallint', 'ALTER n TYPE bigint',
        'ALTER ttl TYPE int, ALTER _ts TYPE timestamptz USING _ts']) c;

-- The refusal is for who owns the table alone; others get PostgreSQL's
SET ROLE regress_ttl_user;
SELECT state('ALTER TABLE kinds.item ALTER ttl TYPE bigint'), state('ALTER TABLE kinds.item ALTER ttl TYPE int');
RESET ROLE;
-- what the HINT says works in one transaction, and no row changes its expiry
BEGIN;
SELECT ttl.drop_container('item');
ALTER TABLE item ALTER ttl TYPE bigint, ALTER _ts TYPE timestamp USING _ts AT TIME ZONE 'UTC';
SELECT ttl.create_container('item', 10, '_ts', 'ttl');
COMMIT;
SELECT string_agg(id::text, ' ' ORDER BY id), ttl.expired_count('item') FROM item;
SELECT ttl.drop_container('item', true);
\d item

--
-- Partitions
--

CREATE TABLE parted (id int, part int, doc jsonb, until timestamptz, _ts timestamp) PARTITION BY LIST (part);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_2 (until timestamptz, gone int, doc jsonb, part int, _ts timestamp, id int);
ALTER TABLE parted_2 DROP gone;
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES IN (2);

-- Partitions whose columns are in another order, or were dropped, expire by the same rule
SELECT ttl.create_container('parted', 10, ttl_column => 'doc');
INSERT INTO parted SELECT i, i % 2 + 1, CASE i % 3 WHEN 0 THEN '{"ttl": 5}'
    WHEN 1 THEN '{"ttl": -1}' END::jsonb, '2020-01-01', CASE
    WHEN i < 13 THEN '2020-01-01' ELSE '2900-01-01' END::timestamp FROM generate_series(1, 24) i;
-- one that gets its _ts when it is attached has it in UTC, from then on
CREATE TABLE parted_3 (id int, doc jsonb, part int, until timestamptz, note text);
ALTER TABLE parted_3 DROP note;
INSERT INTO parted_3 VALUES (31, '{"ttl": 1}', 3, NULL), (32, '{"ttl": -1}', 3, NULL);
SET TimeZone = 'Asia/Tokyo';
ALTER TABLE parted ATTACH PARTITION parted_3 FOR VALUES IN (3);
SELECT id, _ts - now() AT TIME ZONE 'UTC' BETWEEN '-1 min' AND '1 min' AS from_now FROM parted p
    WHERE part = 3 AND id = 32;
RESET TimeZone;
SET ttl.touch = off;
UPDATE parted SET _ts = '2900-01-01' WHERE part = 3;
RESET ttl.touch;
CALL agree('parted');
-- the column's type can't be changed in a partition, either
SELECT state('ALTER TABLE kinds.parted ALTER doc TYPE timestamptz USING until'),
    state('ALTER TABLE kinds.parted_1 ALTER doc TYPE jsonb USING NULL');
-- a partition that leaves is a container by itself
ALTER TABLE parted DETACH PARTITION parted_2;
CALL agree('parted_2');
SELECT ttl_column, default_ttl FROM ttl.containers WHERE container = 'parted_2'::regclass;

-- Deadlines in partitions, one of which is attached with its rows
CREATE TABLE deadlines (id int, part int, until timestamptz) PARTITION BY LIST (part);
CREATE TABLE deadlines_1 PARTITION OF deadlines FOR VALUES IN (1);
SELECT ttl.create_container('deadlines', -1, ts_column => NULL, ttl_column => 'until');
CREATE TABLE deadlines_2 (until timestamptz, id int, part int);
INSERT INTO deadlines_2 VALUES ('2020-01-01', 1, 2), ('2900-01-01', 2, 2);
ALTER TABLE deadlines ATTACH PARTITION deadlines_2 FOR VALUES IN (2);
CALL agree('deadlines', '{NULL, -1}');
SELECT id FROM deadlines;
DROP TABLE deadlines, parted, parted_2;

--
-- Archives
--

-- An archive that is a container itself has its own times
CREATE TABLE kept (id int, until timestamptz, note text, kept_at timestamptz);
SELECT ttl.create_container('kept', 1000, 'kept_at', 'until');
CREATE TABLE source (id int, until timestamptz, note text);
INSERT INTO source VALUES (1, '2020-01-01', 'gone');
SELECT ttl.create_container('source', -1, ts_column => NULL, ttl_column => 'until');
SELECT ttl.alter_container('source', archive_to => 'kept');
-- the archived row's clock starts anew, though its own deadline has passed
CALL ttl.reap('source');
SELECT id, until, note, ttl.time_to_live(k) > 900 AS anew FROM kept k;

-- A document isn't left behind for being a TTL column, nor taken to where it expires
CREATE TABLE documents (id int, doc jsonb);
CREATE TABLE old_documents (id int, doc jsonb);
SELECT ttl.create_container('documents', -1, ttl_column => 'doc'), ttl.create_container('old_documents', -1,
    ttl_column => 'doc');
-- refused because the archived row would be expired at once
SELECT refused('SELECT ttl.alter_container(''kinds.documents'', archive_to => ''kinds.old_documents'')');
SELECT ttl.drop_container('old_documents');
-- to a plain table it goes whole
SELECT ttl.alter_container('documents', archive_to => 'old_documents');
INSERT INTO documents (id, doc, _ts) VALUES (2, '{"ttl": 5}', '2020-01-01');
CALL ttl.reap('documents');
SELECT id, doc FROM old_documents ORDER BY id;

--
-- Documents that are stored out of line, and the plans over them
--

-- The TTL is found in a document of any size, plain or in several pieces; the ones that never expire are seen
CREATE TABLE large (id int PRIMARY KEY, doc jsonb);
ALTER TABLE large ALTER doc SET STORAGE EXTERNAL;
CREATE INDEX ON large USING gin (doc jsonb_path_ops);
SELECT ttl.create_container('large', 10, ttl_column => 'doc');
INSERT INTO large (id, doc, _ts)
SELECT i, (SELECT jsonb_object_agg('key' || k, repeat(chr(97 + i % 26), 40))
    FROM generate_series(1, i * 8 % 250) k) || coalesce(CASE i % 4 WHEN 0 THEN '{"ttl": 20, "a": "short"}'
    WHEN 1 THEN '{"ttl": -1}' WHEN 2 THEN '{"ttl": 20.5}' END::jsonb, '{}') ||
       CASE WHEN i % 5 = 0 THEN jsonb_build_object('a', repeat('long', 2000)) ELSE '{}' END || jsonb_build_object('n',
           i),
       '2020-01-01' FROM generate_series(1, 60) i;
SELECT count(*) FROM large;
CALL agree('large');
-- an index on the document is used as without ttl
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT id FROM large WHERE doc @> '{"n": 1}';
SELECT id FROM large WHERE doc @> '{"n": 1}';
RESET enable_seqscan;

-- Wherever in the part that is read at first the TTL, or the names, end
CREATE TABLE sliced (id int PRIMARY KEY, doc jsonb);
SELECT ttl.create_container('sliced', 1000, ttl_column => 'doc');
INSERT INTO sliced SELECT n, jsonb_build_object('a', repeat('x', n), 'ttl', 123456789, 'long', repeat('y', 3000))
    FROM generate_series(1680, 1760) n;
INSERT INTO sliced SELECT 10000 + n, jsonb_build_object(repeat('k', n), 1, 'ttl', 123456789, 'long', repeat('y', 3000))
    FROM generate_series(1680, 1760) n;
INSERT INTO sliced
SELECT 30000 + n, (SELECT jsonb_object_agg('a' || chr(97 + k / 26) || chr(97 + k % 26), 1)
    FROM generate_series(1, n) k) || jsonb_build_object('ttl', 123456789, 'long', repeat('y', 3000)) FROM generate_series(150, 220) n;
ALTER TABLE sliced ALTER doc SET STORAGE EXTERNAL;
INSERT INTO sliced SELECT 20000 + id, doc || '{"n": 1}' FROM sliced;
SELECT count(*), count(DISTINCT ttl.expires_at(s) - _ts),
    max(ttl.expires_at(s) - _ts) = 123456789 * interval '1 s' AS right FROM sliced s;

DROP SCHEMA kinds CASCADE;
