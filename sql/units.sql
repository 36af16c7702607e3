-- Numbers since 1970 and dates as instants: rows of one instant, and the ends of time
\set VERBOSITY terse
SET client_min_messages = error;
CREATE SCHEMA units;
SET search_path = units, public;

-- More rows than are collected at once expire at the same instant and can't be deleted:
-- what stands behind them is found, whatever the column's type
CREATE PROCEDURE get_past(type regtype, instant text, unit text) LANGUAGE plpgsql AS $$
BEGIN
    DROP TABLE IF EXISTS child, item;
    EXECUTE format('CREATE TABLE item (id int PRIMARY KEY, at %s)', type);
    CREATE TABLE child (item int REFERENCES item);
    CREATE INDEX ON child (item);
    EXECUTE format('INSERT INTO item SELECT g, %L FROM generate_series(1, 10050) g', instant);
    INSERT INTO child SELECT generate_series(1, 10020);
    PERFORM ttl.create_container('item', -1, ts_column => NULL, ttl_column => 'at', ttl_unit => unit);
END $$;
SET statement_timeout = '60s';
CALL get_past('timestamptz', '2020-01-01', 'seconds');
CALL ttl.reap('item');
SELECT ttl.expired_count('item');
CALL get_past('date', '2020-01-01', 'seconds');
CALL ttl.reap('item');
SELECT ttl.expired_count('item');
CALL get_past('date', '-infinity', 'seconds');
CALL ttl.reap('item');
SELECT ttl.expired_count('item');
CALL get_past('bigint', '1577836800', 'epoch');
CALL ttl.reap('item');
SELECT ttl.expired_count('item');
CALL get_past('numeric', '1577836800000.5', 'epoch_ms');
CALL ttl.reap('item');
SELECT ttl.expired_count('item');
RESET statement_timeout;
DROP TABLE child, item;

-- The filter and the index agree on a number with as many decimal places as there can be
CREATE TABLE item (id int PRIMARY KEY, at numeric);
INSERT INTO item VALUES (1, 5000), (2, 5000 + ('1e-' || 16383)::numeric), (3, 5000.5), (4, 5001);
SELECT ttl.create_container('item', -1, ts_column => NULL, ttl_column => 'at', ttl_unit => 'epoch_ns');
SET ttl.now = '1970-01-01 00:00:00.000005+00';
SET ttl.debug_index_probe = never;
SELECT id FROM item ORDER BY id;
SET ttl.debug_index_probe = always;
SELECT id FROM item ORDER BY id;
RESET ttl.debug_index_probe;
DROP TABLE item;

-- What never expires doesn't by the end of time
CREATE TABLE item (id int PRIMARY KEY, at timestamptz);
INSERT INTO item VALUES (1, 'infinity'), (2, '294276-12-31');
SELECT ttl.create_container('item', 2147483647, 'at', NULL);
SET ttl.now = '294276-12-31 12:00:00+00';
SELECT key FROM ttl.expiring('item', '1000 years');
RESET ttl.now;

-- A deadline that is given as the clock
DROP TABLE item;
CREATE TABLE item (id int, at bigint);
INSERT INTO item VALUES (1, 9000000000000);
\set VERBOSITY default
SET client_min_messages = warning;
SELECT ttl.create_container('item', 60, 'at', NULL, ts_unit => 'epoch_ms', touch_on_update => false);

-- A type that rounds to the nearest value gets the present rounded up.
CREATE TABLE nearest (id int, at timestamptz(0));
SELECT ttl.create_container('nearest', 60, 'at', NULL);
BEGIN;
INSERT INTO nearest (id) VALUES (1);
SELECT at >= now() AS not_early FROM nearest;
COMMIT;

SET client_min_messages = error;
DROP SCHEMA units CASCADE;
