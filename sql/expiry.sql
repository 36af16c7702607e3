-- When an item expires: the nine cells of item TTL and default TTL, their
-- edges, and the clock by which statements judge
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA expiry;
SET search_path = expiry, public;

--
-- The nine cells
--

-- Nine ages, to the microsecond around 10 s and 20 s, for each kind of item TTL
CREATE TABLE item (age interval, note text);
SELECT ttl.create_container('item');
SET ttl.now = '2020-01-01 12:00:00+00';
INSERT INTO item (ttl, age, _ts)
SELECT ttl, age, timestamptz '2020-01-01 12:00:00+00' - age
  FROM unnest('{NULL, -1, 20}'::int[]) AS ttl,
       unnest('{-1 day, 0, 9.999999 s, 10 s, 10.000001 s, 19.999999 s, 20 s, 20.000001 s, 100 years}'::interval[]) AS
           age;

-- What a statement sees of them, by item TTL
CREATE VIEW visible AS
    SELECT ttl AS item_ttl, count(*), string_agg(age::text, ', ' ORDER BY age) AS ages
      FROM item GROUP BY ttl ORDER BY ttl;

-- Off: nothing expires
SELECT ttl.set_default_ttl('item', NULL);
SELECT item_ttl, count FROM visible;

-- On, never by default: the item's own TTL alone counts
SELECT ttl.set_default_ttl('item', -1);
SELECT item_ttl, count FROM visible;
SELECT ages FROM visible WHERE item_ttl = 20;

-- A default: for the items without a TTL of their own.  Equality counts
SELECT ttl.set_default_ttl('item', 10);
SELECT item_ttl, count FROM visible;
SELECT ages FROM visible WHERE item_ttl = 20 OR item_ttl IS NULL;

-- A change is obeyed at once, in both directions
SELECT ttl.set_default_ttl('item', 20);
SELECT ages FROM visible WHERE item_ttl IS NULL;
SELECT ttl.set_default_ttl('item', 1);
SELECT ages FROM visible WHERE item_ttl IS NULL;
-- no row has been deleted meanwhile: all are back when TTL is off
SELECT ttl.set_default_ttl('item', NULL);
SELECT item_ttl, count FROM visible;
-- also in an open transaction, and taken back with it
BEGIN;
SELECT count(*) FROM item;
SELECT ttl.set_default_ttl('item', 10);
SELECT count(*) FROM item;
SAVEPOINT s;
SELECT ttl.set_default_ttl('item', NULL);
SELECT count(*) FROM item;
ROLLBACK TO s;
SELECT count(*) FROM item;
ROLLBACK;
SELECT count(*) FROM item;

-- expires_at is NULL and time_to_live -1 exactly where a row never expires: by its own -1, without a default, or with
-- TTL off
SELECT ttl.set_default_ttl('item', 10);
SELECT ttl AS item_ttl, age, ttl.expires_at(i), ttl.time_to_live(i)
  FROM item i WHERE age < '11 s' AND age > '-1 s' ORDER BY ttl, age;
-- with -1 for a default, only an item TTL makes a row expire
SELECT ttl.set_default_ttl('item', -1);
SELECT ttl AS item_ttl, age, ttl.expires_at(i), ttl.time_to_live(i)
  FROM item i WHERE age = '0' ORDER BY ttl;
-- while TTL is off, an item TTL has no effect, either
SELECT ttl.set_default_ttl('item', NULL);
SELECT ttl AS item_ttl, age, ttl.expires_at(i), ttl.time_to_live(i)
  FROM item i WHERE age = '0' ORDER BY ttl;

--
-- Edges
--

-- Whole seconds left are rounded up; an expired row has none
SELECT ttl.set_default_ttl('item', 10);
SET ttl.show_expired = on;
SELECT age, ttl.time_to_live(i) FROM item i
 WHERE ttl IS NULL AND age BETWEEN '0' AND '1 day' ORDER BY age;
RESET ttl.show_expired;

-- The least and the greatest TTL expire at their microsecond, no earlier and no later: as item TTL ...
TRUNCATE item;
INSERT INTO item (note, ttl, _ts) VALUES
    ('live, least', 1, '2020-01-01 11:59:59.000001+00'),
    ('expired, least', 1, '2020-01-01 11:59:59+00'),
    ('live, greatest', 2147483647, timestamptz '2020-01-01 12:00:00.000001+00' - 2147483647 * interval '1 s'),
    ('expired, greatest', 2147483647, timestamptz '2020-01-01 12:00:00+00' - 2147483647 * interval '1 s');
SELECT note FROM item ORDER BY note;
-- ... and as default TTL
TRUNCATE item;
INSERT INTO item (note, _ts) VALUES
    ('live, greatest', timestamptz '2020-01-01 12:00:00.000001+00' - 2147483647 * interval '1 s'),
    ('expired, greatest', timestamptz '2020-01-01 12:00:00+00' - 2147483647 * interval '1 s');
SELECT ttl.set_default_ttl('item', 2147483647);
SELECT note FROM item ORDER BY note;

-- Other values are refused, in the column and as default: 0 and those below -1 have no meaning
SELECT state(format('INSERT INTO expiry.item (ttl) VALUES (%s)', v)) AS item,
       refused(format('SELECT ttl.set_default_ttl(''expiry.item'', %s)', v)) AS default_ttl
  FROM unnest('{0, -2, -7, -2147483648}'::int[]) v \g (format=unaligned)
-- nor does one get in that is no integer, or by an UPDATE; the default TTL is what it was
SELECT state('INSERT INTO expiry.item (ttl) VALUES (2147483648)');
SELECT state('UPDATE expiry.item SET ttl = 0');
SELECT ttl.default_ttl('item');

-- At the ends of the timestamp range nothing overflows: infinity never expires, -infinity always has
TRUNCATE item;
INSERT INTO item (note, ttl, _ts)
SELECT format('%s, %s', label, coalesce(ttl::text, 'default')), ttl, ts
  FROM unnest('{NULL, -1, 1, 2147483647}'::int[]) AS ttl,
       (VALUES ('a: infinity', timestamptz 'infinity'),
               ('b: last', '294276-12-31 23:59:59.999999+00'),
               ('c: first', '4714-11-24 00:00:00+00 BC'),
               ('d: -infinity', '-infinity')) AS edge (label, ts);
SELECT note FROM item ORDER BY note COLLATE "C";
-- expires_at is NULL where it would lie after the last timestamp
SET ttl.show_expired = on;
SELECT note, ttl.expires_at(i), ttl.time_to_live(i) FROM item i ORDER BY note COLLATE "C";
RESET ttl.show_expired;
-- only a clock at infinity has passed what would expire after the last timestamp
SELECT ttl.set_default_ttl('item', 1);
SET ttl.now = 'infinity';
SELECT note FROM item ORDER BY note COLLATE "C";
SET ttl.now = '294276-12-31 23:59:59.999999+00';
SELECT note FROM item ORDER BY note COLLATE "C";
SET ttl.now = '4714-11-24 00:00:00+00 BC';
SELECT note FROM item ORDER BY note COLLATE "C";
SET ttl.now = '-infinity';
SELECT note FROM item ORDER BY note COLLATE "C";
SELECT ttl.set_default_ttl('item', 2147483647);
SELECT count(*) FROM item;
-- with the greatest TTL, too, the earliest clock hides nothing but -infinity
SET ttl.now = '4714-11-24 00:00:00+00 BC';
SELECT note FROM item WHERE note !~ 'infinity' ORDER BY note COLLATE "C";
-- and so says the expiry index
SELECT ttl.expired_count('item');
RESET ttl.now;
SELECT note FROM item ORDER BY note COLLATE "C";

-- A row that is just being written has its TTL, and not more by the time since the
-- statement began; in REPEATABLE READ that is longer
CREATE TABLE written (id int PRIMARY KEY, note text);
SELECT ttl.create_container('written', 60);
INSERT INTO written SELECT generate_series(1, 3) RETURNING ttl.time_to_live(written);
UPDATE written SET note = 'new' RETURNING ttl.time_to_live(written);

-- In REPEATABLE READ it has no more, either, though the statement's clock is the transaction's
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM written;
INSERT INTO written VALUES (4), (5) RETURNING ttl.time_to_live(written);
INSERT INTO written (id, _ts) VALUES (6, now() + interval '1 hour')
    RETURNING ttl.time_to_live(written) > 3600 AS in_future;
COMMIT;
DROP TABLE written;
-- Nor is it more by what its column rounds up in the second half of a second
CREATE TABLE written (id int PRIMARY KEY, _ts timestamptz(0) NOT NULL DEFAULT clock_timestamp());
SELECT ttl.create_container('written', 60);
SELECT pg_sleep((1.6 - extract(epoch FROM clock_timestamp()) % 1) % 1);
INSERT INTO written VALUES (1);
SELECT ttl.time_to_live(written) <= 60 AS not_more FROM written;
UPDATE written SET id = 2 RETURNING ttl.time_to_live(written) <= 60 AS not_more;
-- a _ts in the future counts in full: it isn't taken for one that was rounded up
INSERT INTO written VALUES (3, clock_timestamp() + interval '1 hour')
    RETURNING ttl.time_to_live(written) > 3600 AS in_future;
DROP TABLE written;

-- expires_at and time_to_live know containers' rows alone: of others they can't tell which columns count
SELECT refused('SELECT ttl.expires_at(ROW (1, 2))');
SELECT refused('SELECT ttl.time_to_live(ROW (1, 2))');
CREATE TABLE plain (id int);
SELECT refused('SELECT ttl.expires_at(p) FROM (VALUES (ROW (1)::expiry.plain)) AS v (p)');
SELECT refused('SELECT ttl.time_to_live(p) FROM (VALUES (ROW (1)::expiry.plain)) AS v (p)');

-- Of a view, neither, though the rows come from a container
CREATE VIEW seen AS TABLE item;
SELECT refused('SELECT ttl.expires_at(s) FROM expiry.seen s LIMIT 1');
DROP VIEW seen;
-- a row that isn't there doesn't expire
SELECT ttl.expires_at(NULL::item), ttl.time_to_live(NULL::item);

--
-- Adopted columns
--

-- A NULL in an adopted timestamp column never expires; a smallint does as well
-- as an integer; bad values that are there already never expire
CREATE TABLE adopted (id text PRIMARY KEY, changed timestamptz, keep smallint);
INSERT INTO adopted VALUES
    ('a: no _ts', NULL, NULL),
    ('b: no _ts, TTL 1', NULL, 1),
    ('c: default, expired', '2020-01-01', NULL),
    ('d: default, live', '2020-01-01 11:59:55+00', NULL),
    ('e: TTL 32767, live', '2020-01-01 11:59:55+00', 32767),
    ('f: TTL 1, expired', '2020-01-01 11:59:55+00', 1),
    ('g: TTL -1', '2020-01-01', -1),
    ('h: TTL 0', '2020-01-01 11:59:55+00', 0),
    ('i: TTL -7', '2020-01-01 11:59:55+00', -7),
    ('j: TTL 0, long ago', '2020-01-01', 0),
    ('k: TTL -7, long ago', '2020-01-01', -7);
SELECT ttl.create_container('adopted', 10, 'changed', 'keep');
SET ttl.now = '2020-01-01 12:00:00+00';
SELECT id, ttl.expires_at(a), ttl.time_to_live(a) FROM adopted a ORDER BY id COLLATE "C";
-- what gets in from now on is checked
SELECT state('INSERT INTO expiry.adopted VALUES (''x'', now(), 0)') AS "0",
       state('INSERT INTO expiry.adopted VALUES (''x'', now(), -7)') AS "-7";

-- With -1 for a default, those with bad values live for ever
SELECT ttl.set_default_ttl('adopted', -1);
SELECT id FROM adopted ORDER BY id COLLATE "C";
SELECT ttl.set_default_ttl('adopted', 10);

-- They are counted and deleted as others are
RESET ttl.now;
SELECT ttl.expired_count('adopted');
SELECT id FROM adopted ORDER BY id COLLATE "C";

-- The reaper deletes the expired ones, and none with a bad value or without a _ts
SET client_min_messages = notice;
CALL ttl.reap('adopted');
SET client_min_messages = warning;
SELECT ttl.expired_count('adopted');
SET ttl.show_expired = on;
SELECT id FROM adopted ORDER BY id COLLATE "C";
RESET ttl.show_expired;

-- Without a TTL column the default TTL alone counts
CREATE TABLE adopted_none (changed timestamptz);
INSERT INTO adopted_none VALUES (NULL), ('2020-01-01'), ('infinity');
SELECT ttl.create_container('adopted_none', NULL, 'changed', NULL);
SELECT count(*) FROM adopted_none;
SELECT ttl.set_default_ttl('adopted_none', -1);
SELECT count(*) FROM adopted_none;
SELECT ttl.set_default_ttl('adopted_none', 1);
SELECT changed, ttl.expires_at(a), ttl.time_to_live(a) FROM adopted_none a ORDER BY changed;

--
-- Time that really passes
--

CREATE TABLE brief (id int PRIMARY KEY);
SELECT ttl.create_container('brief', -1);
SET client_min_messages = notice;

-- A loop in one statement of one transaction sees it pass, and not before the TTL is over
CREATE PROCEDURE watch(INOUT early boolean) LANGUAGE plpgsql AS $$
DECLARE
    born timestamptz;
BEGIN
    INSERT INTO brief (id, ttl) VALUES (1, 1) RETURNING _ts INTO born;
    WHILE EXISTS (SELECT FROM brief) LOOP
        IF clock_timestamp() > born + interval '60 s' THEN
            RAISE EXCEPTION 'still there';
        END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
    early := clock_timestamp() < born + interval '1 s';
END $$;
CALL watch(NULL);
SELECT count(*) FROM brief;

-- In REPEATABLE READ and SERIALIZABLE it stands still from its first use, as the snapshot does
TRUNCATE brief;
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO brief (id, ttl) VALUES (1, 1);
SELECT FROM pg_sleep(1.1);
SELECT count(*) FROM brief;
COMMIT;
SELECT count(*) FROM brief;
-- so an UPDATE finds the row that its own transaction still sees
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO brief (id, ttl) VALUES (2, 1);
SELECT FROM pg_sleep(1.1);
SELECT count(*) FROM brief;
UPDATE brief SET ttl = 2 RETURNING id;
ROLLBACK;

-- A cursor keeps the clock that it was opened with, as it does its snapshot
CREATE PROCEDURE read_slowly(INOUT first int, INOUT others int, INOUT anew int) LANGUAGE plpgsql AS $$
DECLARE
    c CURSOR FOR SELECT id FROM brief;
    i int;
BEGIN
    LOOP
        -- a slow machine may need another try
        DELETE FROM brief;
        INSERT INTO brief (id, ttl) VALUES (11, 1), (12, 1), (13, 1);
        OPEN c;
        FETCH c INTO first;
        EXIT WHEN FOUND;
        CLOSE c;
    END LOOP;
    LOOP
        SELECT count(*) INTO anew FROM brief;
        EXIT WHEN anew = 0;
        PERFORM pg_sleep(0.02);
    END LOOP;
    others := 0;
    LOOP
        FETCH c INTO i;
        EXIT WHEN NOT FOUND;
        others := others + 1;
    END LOOP;
END $$;
CALL read_slowly(NULL, NULL, NULL);

-- The same with a clock that is set: what was live when the cursor was opened stays in it, backward and held, too
-- the same with a clock that we set
TRUNCATE brief;
INSERT INTO brief (id, ttl, _ts) SELECT i, 10, '2020-01-01 12:00:00+00' FROM generate_series(1, 3) i;
SET ttl.now = '2020-01-01 12:00:09.999999+00';
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM brief ORDER BY id;
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM brief ORDER BY id;
FETCH 1 FROM c;
SET ttl.now = '2020-01-01 12:00:10+00';
FETCH ALL FROM c;
FETCH BACKWARD ALL FROM c;
SELECT count(*) FROM brief;
COMMIT;
FETCH ALL FROM h;
CLOSE h;
-- also when it reads several tables one after the other
BEGIN;
SET ttl.now = '2020-01-01 12:00:09.999999+00';
DECLARE c CURSOR FOR SELECT 1 AS arm, id FROM brief UNION ALL SELECT 2, id FROM brief;
FETCH 1 FROM c;
SET ttl.now = '2020-01-01 12:00:10+00';
FETCH ALL FROM c;
ROLLBACK;

-- A change of policy is for statements to come, not for it either
BEGIN;
SET ttl.now = '2020-01-01 12:00:05+00';
SET LOCAL ttl.touch = off;
UPDATE brief SET ttl = NULL WHERE id < 3;
DECLARE c CURSOR FOR SELECT 1 AS arm, id FROM brief UNION ALL SELECT 2, id FROM brief;
FETCH 1 FROM c;
SELECT ttl.set_default_ttl('brief', 1);
FETCH ALL FROM c;
SELECT id FROM brief;
ROLLBACK;
RESET ttl.now;

SET client_min_messages = warning;
--
-- A TTL without a meaning is refused
--

-- All that a client can read from an error
CREATE FUNCTION fields_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text; message text; detail text; hint text; s text; t text; c text; constr text;
BEGIN
    EXECUTE statement;
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
        hint = PG_EXCEPTION_HINT, s = SCHEMA_NAME, t = TABLE_NAME, c = COLUMN_NAME, constr = CONSTRAINT_NAME;
    RETURN concat_ws(' | ', state, message, detail, hint, s, t, c, constr);
END $$;
-- create_container says that there are rows whose TTL has no meaning, and leaves them
CREATE TABLE strict (id int PRIMARY KEY, note text, ttl int);
INSERT INTO strict VALUES (-1, 'was there', 0);
SET client_min_messages = notice;
\set VERBOSITY default
SELECT ttl.create_container('strict', 60, ttl_column => 'ttl');
\set VERBOSITY terse
SET client_min_messages = warning;

-- The error names table and column, so that an application can tell whose value it was
SELECT fields_of('INSERT INTO expiry.strict (id, ttl) VALUES (1, 0)') \g (format=unaligned)
INSERT INTO strict VALUES (1, 'new', -1), (2, 'new', NULL), (3, 'new', 2147483647);

-- Each way to write one is refused, ON CONFLICT and MERGE as well, and only if the row would have it
SELECT statement, state(statement) FROM unnest(ARRAY[
    'INSERT INTO expiry.strict (id, ttl) VALUES (4, -2)', 'INSERT INTO expiry.strict (id, ttl) SELECT 4, -2147483648',
        'INSERT INTO expiry.strict (id, ttl) VALUES (1, 0) ON CONFLICT DO NOTHING',
    'INSERT INTO expiry.strict (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET ttl = 0',
        'INSERT INTO expiry.strict (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET note = ''conflict''',
    'MERGE INTO expiry.strict s USING (VALUES (1)) AS v (id) ON s.id = v.id WHEN MATCHED THEN UPDATE SET ttl = -7',
        'MERGE INTO expiry.strict s USING (VALUES (1)) AS v (id) ON s.id = v.id WHEN MATCHED THEN UPDATE SET ttl = 7',
    'MERGE INTO expiry.strict s USING (VALUES (5)) AS v (id) ON s.id = v.id WHEN NOT MATCHED THEN INSERT (id, ttl) '
        'VALUES (5, 0)',
    'UPDATE expiry.strict SET ttl = 0', 'UPDATE expiry.strict SET ttl = ttl - 2147483647 WHERE id = 3',
        'WITH u AS (UPDATE expiry.strict SET ttl = 0 WHERE id = 1 RETURNING id) SELECT FROM u',
    'WITH u AS (UPDATE expiry.strict SET ttl = 0 WHERE id = 2) UPDATE expiry.strict SET note = ''new'' WHERE id = 3',
        'WITH u AS (UPDATE expiry.strict SET note = ''new'' WHERE id = 3) UPDATE expiry.strict SET ttl = 0 WHERE id = 2',
    'UPDATE expiry.strict SET id = 10, ttl = 5 WHERE id = 1', 'UPDATE expiry.strict SET id = 1, ttl = 0 WHERE id = 10',
        'UPDATE expiry.strict SET id = 1, ttl = NULL WHERE id = 10']) statement \g (format=unaligned)

-- COPY takes none of its rows
COPY strict (id, ttl) FROM STDIN;
20	5
21	0
\.
INSERT INTO strict VALUES (20, 'new', 5);
SELECT id, note, ttl FROM strict ORDER BY id;
-- What was there stays, and other columns of it can be updated
UPDATE strict SET note = 'updated' WHERE id = -1;
SELECT state('UPDATE expiry.strict SET ttl = 0 WHERE id = -1'),
    state('UPDATE expiry.strict SET note = ''again'' WHERE id = -1');
-- Triggers of the user's come first: what they leave in the column counts
CREATE FUNCTION mend() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN new.ttl := CASE new.ttl WHEN 0 THEN NULL
    WHEN 1 THEN 0 ELSE new.ttl END; RETURN new; END$$;
CREATE TRIGGER mend BEFORE INSERT OR UPDATE ON strict FOR EACH ROW EXECUTE FUNCTION mend();
SELECT state('INSERT INTO expiry.strict VALUES (30, ''mended'', 0)'),
    state('INSERT INTO expiry.strict VALUES (31, ''broken'', 1)'),
    state('UPDATE expiry.strict SET ttl = 0 WHERE id = 2'), state('UPDATE expiry.strict SET ttl = 1 WHERE id = 2');
DROP TRIGGER mend ON strict;
-- A bad value that was there stays, whatever fires, and whoever updates
CREATE TABLE strict_parent (id int PRIMARY KEY);
CREATE TABLE strict_child (id int PRIMARY KEY, parent int REFERENCES strict_parent ON UPDATE CASCADE ON DELETE
    SET NULL, note text, ttl smallint);
INSERT INTO strict_parent VALUES (1), (2);
INSERT INTO strict_child VALUES (1, 1, 'was there', 0), (2, 1, 'was there', NULL), (3, 2, 'was there', -9);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.note := NEW.note || ' *';
    RETURN NEW;
END $$;
CREATE TRIGGER note_change BEFORE UPDATE ON strict_child FOR EACH ROW EXECUTE FUNCTION note_change();
SELECT ttl.create_container('strict_child', 60, ttl_column => 'ttl');
-- updates by users, by both actions of the foreign key, of the key, and by an upsert
UPDATE strict_child SET note = 'updated', ttl = ttl;
UPDATE strict_parent SET id = 10 WHERE id = 1;
DELETE FROM strict_parent WHERE id = 2;
UPDATE strict_child SET id = -id;
INSERT INTO strict_child VALUES (-1, 10, 'upserted', 5) ON CONFLICT (id) DO UPDATE
    SET note = 'upserted', ttl = strict_child.ttl;
-- a new one is refused in the same rows
SELECT statement, state(statement) FROM unnest(ARRAY['UPDATE expiry.strict_child SET ttl = -9',
    'UPDATE expiry.strict_child SET ttl = ttl - 1 WHERE id = -3',
    'UPDATE expiry.strict_child SET ttl = 0 WHERE id = -2',
    'UPDATE expiry.strict_child SET id = -id, ttl = 0 WHERE id = -3',
        'INSERT INTO expiry.strict_child VALUES (-1, 10, NULL, 0)']) statement;
SELECT id, parent, note, ttl FROM strict_child ORDER BY id;
-- Values are checked while TTL is off, too, but not in what is replicated: the publisher has checked it
SELECT ttl.set_default_ttl('strict', NULL);
SELECT state('INSERT INTO expiry.strict VALUES (40, ''off'', 0)'),
    state('UPDATE expiry.strict SET ttl = 0 WHERE id = 2');
SELECT ttl.set_default_ttl('strict', 60);
SET session_replication_role = replica;
INSERT INTO strict VALUES (41, 'replicated', 0);
UPDATE strict SET ttl = -7 WHERE id = 2;
RESET session_replication_role;
SELECT id, note, ttl, ttl.expires_at(s) FROM strict s WHERE ttl <= 0 ORDER BY id;
-- An UPDATE that assigns keys beside the TTL frees keys that expired rows hold, as any other does
INSERT INTO strict (id, _ts) VALUES (50, '2020-01-01');
UPDATE strict SET ttl = 6 WHERE id = 3;
UPDATE strict SET ttl = 6, id = 50 WHERE id = 3;
SELECT id, ttl FROM strict WHERE id IN (3, 50);
INSERT INTO strict (id, _ts) VALUES (51, '2020-01-01'), (52, '2020-01-01');
-- each of several UPDATEs in one statement does, and the INSERT around them
WITH u AS (UPDATE strict SET ttl = 8 WHERE id = 50 RETURNING id), v AS (UPDATE strict SET id = 51 WHERE id = 20
    RETURNING id) INSERT INTO strict (id) SELECT 52 FROM u, v;
SELECT id, ttl FROM strict WHERE id BETWEEN 50 AND 52 ORDER BY id;
-- Partitions are checked by their own columns, which may be in another order
CREATE TABLE strict_parts (id int, ttl smallint, note text) PARTITION BY LIST (id);
CREATE TABLE strict_1 (note text, gone int, ttl smallint, id int);
ALTER TABLE strict_1 DROP gone;
INSERT INTO strict_1 (id, ttl, note) VALUES (1, 0, 'was there');
ALTER TABLE strict_parts ATTACH PARTITION strict_1 FOR VALUES IN (1);
CREATE TABLE strict_2 PARTITION OF strict_parts FOR VALUES IN (2);
SELECT ttl.create_container('strict_parts', 60, ttl_column => 'ttl');
INSERT INTO strict_parts VALUES (1, 5), (2, 5);

-- A row that is moved may take a bad value along that it had, but not get one
SELECT statement, state(statement) FROM unnest(ARRAY['INSERT INTO expiry.strict_parts VALUES (1, 0)',
    'INSERT INTO expiry.strict_1 (id, ttl) VALUES (1, 0)', 'UPDATE expiry.strict_parts SET ttl = 0 WHERE id = 2',
    'UPDATE expiry.strict_1 SET ttl = 0 WHERE ttl = 5',
    'WITH u AS (UPDATE expiry.strict_parts SET ttl = 0 WHERE id = 2) UPDATE expiry.strict_parts SET note = ''new'' '
        'WHERE id = 1',
    'UPDATE expiry.strict_parts SET id = 2, ttl = -3 WHERE note IS NOT NULL',
        'UPDATE expiry.strict_parts SET id = 2 WHERE note IS NOT NULL',
        'WITH u AS (UPDATE expiry.strict_parts SET id = 1 WHERE note IS NOT NULL RETURNING id) INSERT INTO '
        'expiry.strict_parts SELECT id, 0 FROM u',
    'WITH u AS (UPDATE expiry.strict_parts SET id = 1 WHERE note IS NOT NULL RETURNING id) SELECT FROM u',
        'UPDATE expiry.strict_parts SET id = 1, ttl = 0 WHERE id = 2',
        'UPDATE expiry.strict_parts SET note = ''updated'' WHERE note IS NOT NULL']) statement \g (format=unaligned)
COPY strict_parts (id, ttl) FROM STDIN;
2	-3
\.
SELECT id, ttl, note FROM strict_parts ORDER BY id, ttl;

-- MERGE: a row that is moved keeps what it had, and brings it for no other
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT state(format('MERGE INTO expiry.strict_parts p USING (VALUES (1, ''updated''), (2, ''new'')) s (n, note) ON '
    'p.note = s.note WHEN MATCHED THEN UPDATE SET id = 2 WHEN NOT MATCHED THEN INSERT VALUES (1, %s, s.note)', value))
    FROM unnest('{0,7}'::int[]) value;
RESET enable_hashjoin;
RESET enable_mergejoin;
SELECT id, ttl, note FROM strict_parts ORDER BY id, ttl;
-- A generated TTL isn't checked: 0 and -7 never expire, as values that were there
CREATE TABLE strict_generated (id int, ttl int GENERATED ALWAYS AS (id) STORED);
SELECT ttl.create_container('strict_generated', 60);
INSERT INTO strict_generated (id) VALUES (0), (1), (-7);
SELECT id, ttl.expires_at(s) IS NULL AS never FROM strict_generated s ORDER BY id;

DROP SCHEMA expiry CASCADE;
