-- Temporal foreign keys, of PostgreSQL 18 and later
SELECT current_setting('server_version_num')::int < 180000 AS skip \gset
\if :skip
\quit
\endif
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA temporal;
SET search_path = temporal, public;

-- What the keys reference is a range, so that no other extension is needed
CREATE TABLE room (id int4range, period daterange, PRIMARY KEY (id, period WITHOUT OVERLAPS));
CREATE TABLE booking (id int PRIMARY KEY, room int4range, period daterange,
    FOREIGN KEY (room, PERIOD period) REFERENCES room (id, PERIOD period));
SELECT ttl.create_container(t, 60) FROM unnest('{room, booking}'::regclass[]) t;

-- Three rooms, two years each; bookings that have expired and that are live, one over both years
CREATE PROCEDURE refill() LANGUAGE sql AS $$
    TRUNCATE temporal.room, temporal.booking CASCADE;
    INSERT INTO temporal.room (id, period, _ts) SELECT int4range(i, i + 1), daterange(b, e), '3000-01-01'
        FROM generate_series(1, 3) i, (VALUES (date '2024-01-01', date '2025-01-01'), ('2025-01-01',
            '2026-01-01')) v (b, e);
    INSERT INTO temporal.booking (id, room, period, _ts) VALUES
        (11, '[1,2)', '[2024-03-01,2024-04-01)', '2020-01-01'), (12, '[1,2)', '[2024-12-01,2025-02-01)', '2020-01-01'),
            (13, '[1,2)', '[2025-05-01,2025-06-01)', '3000-01-01'),
        (21, '[2,3)', '[2024-03-01,2024-04-01)', '2020-01-01'), (22, '[2,3)', '[2024-03-01,2024-04-01)', '3000-01-01');
$$;
CREATE PROCEDURE age(r int, y int) LANGUAGE sql AS $$
    SET LOCAL ttl.touch = off;
    UPDATE temporal.room SET _ts = '2020-01-01' WHERE id @> r AND period @> make_date(y, 6, 1);
$$;

-- Bookings that no stored rooms cover
CREATE VIEW orphans AS SELECT b.id FROM booking b
    WHERE NOT coalesce(b.period <@ (SELECT range_agg(r.period) FROM room r WHERE r.id = b.room), false);

-- The check: an expired row is absent, and covers nothing
CALL refill();
CALL age(3, 2025);

-- The expired second year covers nothing, neither alone nor as the rest of a period
SELECT period, state(format('INSERT INTO temporal.booking VALUES (31, ''[3,4)'', %L)', period)),
    state('DELETE FROM temporal.booking WHERE id = 31')
FROM unnest('{"[2024-02-01,2024-03-01)", "[2025-02-01,2025-03-01)", "[2024-12-01,2025-02-01)"}'::daterange[]) period;

-- What is deleted, or has its period changed: expired rows that reference it go
CALL refill();
SELECT state('DELETE FROM temporal.room WHERE id = ''[1,2)'' AND period @> date ''2024-06-01''');
SELECT * FROM stored('booking');
-- live bookings keep both rooms, and with them what is deleted in the same statement
SELECT state('DELETE FROM temporal.room WHERE id = ''[1,2)'''), state('DELETE FROM temporal.room WHERE id = ''[2,3)''');
SELECT * FROM stored('booking');

-- A period that is shortened: nothing goes as long as bookings are covered
CALL refill();
SELECT state('UPDATE temporal.room SET period = ''[2024-02-01,2025-01-01)'' WHERE id = ''[1,2)'' AND period @> '
    'date ''2024-06-01''');
SELECT * FROM stored('booking');
-- those that aren't any more go if they have expired
SELECT state('UPDATE temporal.room SET period = ''[2024-06-01,2025-01-01)'' WHERE id = ''[1,2)'' AND period @> '
    'date ''2024-06-01''');
SELECT * FROM stored('booking');
-- not those that are live, and then nothing goes; nor may the room's number change
SELECT state('UPDATE temporal.room SET period = ''[2024-06-01,2025-01-01)'' WHERE id = ''[2,3)'' AND period @> '
    'date ''2024-06-01''');
SELECT state('UPDATE temporal.room SET id = ''[9,10)'' WHERE id = ''[1,2)'' AND period @> date ''2025-06-01''');
SELECT * FROM stored('booking');

-- Another row may take its part of the period when a deferred key is checked, but no expired one
CALL refill();
BEGIN;
ALTER TABLE booking ALTER CONSTRAINT booking_room_period_fkey DEFERRABLE INITIALLY DEFERRED;
COMMIT;
\set VERBOSITY sqlstate
BEGIN;
DELETE FROM room WHERE id = '[2,3)' AND period @> date '2024-06-01';
INSERT INTO room (id, period, _ts) VALUES ('[2,3)', '[2024-02-01,2024-06-01)', '3000-01-01');
COMMIT;
SELECT * FROM stored('booking');
-- an expired room in its place doesn't count
BEGIN;
DELETE FROM room WHERE id = '[2,3)' AND period @> date '2024-03-01';
INSERT INTO room (id, period, _ts) VALUES ('[2,3)', '[2024-02-01,2024-06-01)', '2020-01-01');
COMMIT;
-- with the live booking gone it may, and the expired one goes
BEGIN;
DELETE FROM booking WHERE id = 22;
DELETE FROM room WHERE id = '[2,3)' AND period @> date '2024-03-01';
INSERT INTO room (id, period, _ts) VALUES ('[2,3)', '[2024-02-01,2024-06-01)', '2020-01-01');
COMMIT;
\set VERBOSITY terse
SELECT * FROM stored('booking');

-- The reaper, and an eviction, which leaves what the new row covers when the deferred key is checked
CALL refill();
CALL age(1, 2024);
CALL age(2, 2024);
SET client_min_messages = error;
-- a room that only expired bookings reference goes with them, one that a live booking needs stays
CALL ttl.reap('room');
SET client_min_messages = warning;
SELECT * FROM stored('room');
SELECT * FROM stored('booking');

-- Of an eviction's room, the bookings stay that the new row covers
CALL refill();
CALL age(1, 2024);
CALL age(2, 2024);
SELECT state('INSERT INTO temporal.room (id, period) VALUES (''[1,2)'', ''[2024-03-01,2024-06-01)'')'),
    state('INSERT INTO temporal.room (id, period) VALUES (''[2,3)'', ''[2024-03-01,2024-06-01)'')');
SELECT * FROM stored('room');
SELECT * FROM stored('booking');

-- Nothing has been orphaned, hidden or not
SET ttl.show_expired = on;
SELECT * FROM orphans;
RESET ttl.show_expired;

-- A table that references itself
CREATE TABLE staff (id int4range, boss int4range, period daterange, PRIMARY KEY (id, period WITHOUT OVERLAPS),
    FOREIGN KEY (boss, PERIOD period) REFERENCES staff (id, PERIOD period));
SELECT ttl.create_container('staff', 60);
INSERT INTO staff (id, boss, period, _ts) VALUES ('[1,2)', NULL, '[2024-01-01,2025-01-01)', '3000-01-01');
INSERT INTO staff (id, boss, period, _ts) VALUES ('[2,3)', '[1,2)', '[2024-02-01,2024-03-01)', '3000-01-01'), ('[3,4)',
    '[2,3)', '[2024-02-01,2024-03-01)', '2020-01-01'), ('[4,5)', '[1,2)', '[2024-05-01,2024-06-01)', '2020-01-01');

-- A live employee keeps his boss
SELECT state('DELETE FROM temporal.staff WHERE id = ''[1,2)''');
-- who may have his period shortened: the expired employee outside of it goes, the others are covered
SELECT state('UPDATE temporal.staff SET period = ''[2024-01-01,2024-05-15)'' WHERE id = ''[1,2)''');
SELECT * FROM stored('staff');
-- without a live one below, with what has expired
SELECT state('DELETE FROM temporal.staff WHERE id = ''[2,3)''');
SELECT * FROM stored('staff');

-- Partitioned
CREATE TABLE stay (id int PRIMARY KEY, room int4range, period daterange,
    FOREIGN KEY (room, PERIOD period) REFERENCES room (id, PERIOD period)) PARTITION BY RANGE (id);
CREATE TABLE stay1 PARTITION OF stay FOR VALUES FROM (0) TO (10);
SELECT ttl.create_container('stay', 60);
CALL refill();
INSERT INTO stay (id, room, period, _ts) VALUES (1, '[3,4)', '[2024-02-01,2025-03-01)', '2020-01-01'), (2, '[3,4)',
    '[2025-02-01,2025-03-01)', '3000-01-01');

-- The expired stay over both years goes with the first; the live one keeps the second
SELECT state('DELETE FROM temporal.room WHERE id = ''[3,4)'' AND period @> date ''2024-06-01'''),
    state('DELETE FROM temporal.room WHERE id = ''[3,4)''');
SELECT * FROM stored('stay');

DROP SCHEMA temporal CASCADE;
