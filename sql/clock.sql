-- What resets an item's clock, and what does not
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA clock;
SET search_path = clock, public;

-- "present" stands for a time of this test, whatever it is
SELECT clock_timestamp() AS test_begins \gset
CREATE TABLE test_begins AS SELECT :'test_begins'::timestamptz AS at;
CREATE FUNCTION clock(ts timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN ts >= at AND ts <= clock_timestamp() THEN 'present' ELSE coalesce(ts::text, 'NULL') END
        FROM clock.test_begins
$$;

CREATE TABLE item (id int PRIMARY KEY, note text, other int);
SELECT ttl.create_container('item', 60);

-- Five rows whose clock is far from the present
CREATE PROCEDURE refill() LANGUAGE sql AS $$
    TRUNCATE clock.item;
    INSERT INTO clock.item (id, note, _ts) SELECT i, 'old', '2900-01-01' FROM generate_series(1, 5) i;
$$;

-- What a statement has left, with the clock told from a time that was given
CREATE VIEW items AS SELECT id, clock(_ts), note, ttl FROM item ORDER BY id;

--
-- INSERT and COPY
--

-- Without a value, or with NULL, the present; a time that is given, or infinity, stays
INSERT INTO item (id) VALUES (1);
INSERT INTO item (id, _ts) VALUES (2, DEFAULT), (3, NULL), (4, '2900-01-01'), (5, 'infinity');
INSERT INTO item (id, _ts) SELECT i, CASE WHEN i = 7 THEN '2900-01-01'::timestamptz END FROM generate_series(6, 8) i;

-- COPY does the same
COPY item (id) FROM STDIN;
10
11
\.
COPY item (id, _ts, ttl) FROM STDIN;
12	2900-01-01	-1
13	\N	5
14	infinity	\N
\.
SELECT * FROM items;
-- Each row of a statement gets the clock's time, not the transaction's
BEGIN;
SELECT FROM pg_sleep(0.01);
INSERT INTO item (id) VALUES (20), (21) RETURNING _ts > now() AS later_than_now;
COMMIT;
-- An INSERT by a function, a CTE or MERGE is one like others
CREATE FUNCTION put(int) RETURNS timestamptz LANGUAGE sql AS 'INSERT INTO clock.item (id) VALUES ($1) RETURNING _ts';
SELECT clock(put(22));
WITH i AS (INSERT INTO item (id) VALUES (23) RETURNING _ts) SELECT clock(_ts) FROM i;
MERGE INTO item i USING (VALUES (24)) AS s (id) ON i.id = s.id WHEN NOT MATCHED THEN INSERT (id, _ts)
    VALUES (s.id, NULL);
SELECT * FROM items WHERE id = 24;
-- While the default is dropped the trigger fills the column
ALTER TABLE item ALTER COLUMN _ts DROP DEFAULT;
INSERT INTO item (id) VALUES (25);
SELECT * FROM items WHERE id = 25;
ALTER TABLE item ALTER COLUMN _ts SET DEFAULT clock_timestamp();

--
-- UPDATE
--

CALL refill();
UPDATE item SET note = 'new' WHERE id = 1;
-- One that changes nothing counts, and one that assigns _ts gets the present all the same
UPDATE item SET note = note WHERE id = 2;
UPDATE item SET _ts = '2950-01-01' WHERE id = 3 RETURNING clock(_ts);
UPDATE item SET _ts = _ts, note = 'written back', id = id WHERE id = 4;
UPDATE item SET ttl = 9 WHERE id = 5 RETURNING clock(_ts), ttl;
SELECT * FROM items;

-- So do those that assign it DEFAULT or NULL, several columns by a row, or by a subquery
CALL refill();
UPDATE item SET _ts = DEFAULT WHERE id = 1;
UPDATE item SET _ts = NULL WHERE id = 2;
UPDATE item SET (note, other) = ('row', 1) WHERE id = 3;
UPDATE item SET (note, other) = (SELECT 'subquery', 2) WHERE id = 4;
UPDATE item i SET (_ts, other) = (SELECT '2950-01-01'::timestamptz, count(*) FROM item j
    WHERE j.id < i.id), note = 'both' WHERE id = 5;
SELECT i.*, other FROM items i JOIN item USING (id) ORDER BY id;

-- With FROM, in a CTE, prepared, and in PL/pgSQL
CALL refill();
UPDATE item SET note = s.note FROM (VALUES (1, 'one'), (2, 'two')) AS s (id, note) WHERE s.id = item.id;
WITH u AS (UPDATE item SET note = 'CTE' WHERE id = 3 RETURNING id, _ts) SELECT id, clock(_ts) FROM u;
PREPARE upd (int) AS UPDATE item SET note = 'prepared' WHERE id = $1;
EXECUTE upd (4);
DO 'BEGIN UPDATE clock.item SET note = ''PL/pgSQL'' WHERE id = 5; END';
SELECT * FROM items;

-- ON CONFLICT stamps the row that it updates, and none that it leaves alone
CALL refill();
INSERT INTO item (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET note = 'on conflict';
INSERT INTO item (id, _ts) VALUES (2, '2950-01-01') ON CONFLICT (id) DO UPDATE
    SET note = 'on conflict', _ts = excluded._ts RETURNING clock(_ts);
INSERT INTO item (id) VALUES (3) ON CONFLICT (id) DO NOTHING;
INSERT INTO item (id) VALUES (4) ON CONFLICT (id) DO UPDATE SET note = 'no' WHERE item.note = 'another';
INSERT INTO item (id, note) VALUES (5, 'x') ON CONFLICT (id) DO UPDATE SET (note, other) = (SELECT 'conflict, row', 1);
SELECT * FROM items;

-- MERGE as well
CALL refill();
MERGE INTO item i USING (VALUES (1), (2), (3), (6)) AS s (id) ON i.id = s.id
 WHEN MATCHED AND s.id = 1 THEN UPDATE SET note = 'merged'
 WHEN MATCHED AND s.id = 2 THEN UPDATE SET _ts = '2950-01-01'
 WHEN MATCHED THEN DO NOTHING
 WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, 'merged');
SELECT * FROM items;
-- Through views, also if these have no _ts, have it by another name, or check what is written
CALL refill();
CREATE VIEW only_note AS SELECT id, note FROM item;
CREATE VIEW barrier WITH (security_barrier) AS SELECT id AS key, note AS text, _ts AS stamp FROM item WHERE id < 5;
CREATE VIEW over_view AS SELECT key, text, stamp FROM barrier WITH CHECK OPTION;
UPDATE only_note SET note = 'view' WHERE id = 1;
UPDATE barrier SET text = 'barrier' WHERE key = 2 RETURNING clock(stamp);
UPDATE over_view SET text = 'view over view', stamp = '2950-01-01' WHERE key = 3;
INSERT INTO only_note VALUES (4, 'x') ON CONFLICT (id) DO UPDATE SET note = 'conflict in view';
INSERT INTO only_note VALUES (6, 'inserted');
SELECT * FROM items;
-- By a user's trigger, which may set it itself: its value is taken
CALL refill();
CREATE FUNCTION backdate() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW._ts := '2960-01-01'; RETURN NEW; END$$;
CREATE TRIGGER backdate BEFORE UPDATE ON item FOR EACH ROW WHEN (NEW.note = 'backdate') EXECUTE FUNCTION backdate();
UPDATE item SET note = 'backdate' WHERE id = 1;
UPDATE item SET note = 'plain' WHERE id = 2;
SELECT * FROM items WHERE id < 3;
DROP TRIGGER backdate ON item;
-- It needs no privilege on _ts, and gives none
GRANT USAGE ON SCHEMA clock TO regress_ttl_user;
GRANT SELECT (id, note), UPDATE (note), INSERT (id, note) ON item TO regress_ttl_user;
CALL refill();
SET ROLE regress_ttl_user;
UPDATE clock.item SET note = 'theirs' WHERE id = 1;
INSERT INTO clock.item (id, note) VALUES (2, 'x') ON CONFLICT (id) DO UPDATE SET note = 'theirs';
MERGE INTO clock.item i USING (VALUES (3)) AS s (id) ON i.id = s.id WHEN MATCHED THEN UPDATE SET note = 'theirs';
SELECT state('UPDATE clock.item SET _ts = now()'), state('UPDATE clock.item SET other = 1'),
    state('INSERT INTO clock.item (id, _ts) VALUES (9, now())');
RESET ROLE;
SELECT * FROM items;

-- UPDATE in PL/pgSQL sees time pass
CREATE FUNCTION twice() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    a timestamptz;
    b timestamptz;
BEGIN
    UPDATE clock.item SET note = 'a' WHERE id = 1 RETURNING _ts INTO a;
    PERFORM pg_sleep(0.01);
    UPDATE clock.item SET note = 'b' WHERE id = 1 RETURNING _ts INTO b;
    RETURN a < b;
END $$;
SELECT twice();
-- And revives an item that was about to go
INSERT INTO item (id, ttl, _ts) VALUES (30, 3600, clock_timestamp() - interval '3000 s');
SELECT ttl.time_to_live(i) BETWEEN 1 AND 600 AS before FROM item i WHERE id = 30;
UPDATE item SET id = id WHERE id = 30;
SELECT ttl.time_to_live(i) BETWEEN 3000 AND 3600 AS after FROM item i WHERE id = 30;

--
-- Partitions
--

CREATE TABLE parts (note text, id int, region text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu');
CREATE TABLE parts_us (gone int, region text NOT NULL, _ts timestamptz DEFAULT '2900-01-01' NOT NULL, id int NOT NULL,
    ttl int, note text);
ALTER TABLE parts_us DROP COLUMN gone;
SELECT ttl.create_container('parts', 60);
ALTER TABLE parts ATTACH PARTITION parts_us FOR VALUES IN ('us');
CREATE PROCEDURE refill_parts() LANGUAGE sql AS $$
    TRUNCATE clock.parts;
    INSERT INTO clock.parts (region, id, note, _ts) SELECT region, i, 'old', '2900-01-01'
        FROM unnest('{eu,us}'::text[]) region, generate_series(1, 3) i;
$$;
CALL refill_parts();

-- In each partition, whichever table is named, a moved row, too; values of an INSERT are taken
UPDATE parts SET note = 'root' WHERE id = 1;
UPDATE parts_us SET note = 'leaf', _ts = '2950-01-01' WHERE id = 2;
UPDATE parts_eu SET note = 'leaf' WHERE id = 2;
UPDATE parts SET region = 'us', id = 10, note = 'moved', _ts = '2950-01-01' WHERE region = 'eu' AND id = 3;
INSERT INTO parts (region, id) VALUES ('us', 3) ON CONFLICT (region, id) DO UPDATE SET note = 'conflict';
INSERT INTO parts (region, id, note, _ts) VALUES ('us', 4, 'inserted', NULL), ('eu', 4, 'inserted', '2950-01-01'),
    ('us', 5, 'inserted', DEFAULT);
INSERT INTO parts_us (region, id, note, _ts) VALUES ('us', 6, 'inserted', NULL);
COPY parts (region, id, note) FROM STDIN;
us	7	copied
eu	7	copied
\.
SELECT tableoid::regclass, id, note, clock(_ts) FROM parts ORDER BY tableoid::regclass::text COLLATE "C", id;

-- By MERGE and a CTE
CALL refill_parts();
MERGE INTO parts p USING (VALUES ('eu', 1), ('us', 2), ('us', 3)) AS s (region,
    id) ON p.region = s.region AND p.id = s.id
 WHEN MATCHED AND s.id < 3 THEN UPDATE SET note = 'merged' WHEN MATCHED THEN UPDATE
     SET region = 'eu', id = 30, note = 'merged, moved';
WITH u AS (UPDATE parts SET (note, ttl) = (SELECT 'row', 7) WHERE region = 'us' AND id = 1 RETURNING *)
    SELECT region, id, note, ttl, clock(_ts) FROM u;
SELECT tableoid::regclass, id, note, clock(_ts) FROM parts ORDER BY tableoid::regclass::text COLLATE "C", id;
-- In a partition that is made afterwards
CREATE TABLE parts_asia PARTITION OF parts FOR VALUES IN ('asia');
INSERT INTO parts (region, id, note, _ts) VALUES ('asia', 1, 'old', '2900-01-01');
UPDATE parts_asia SET note = 'new' RETURNING clock(_ts);

--
-- What leaves the clock alone
--

-- ttl.touch = off, also for plans that are made already: _ts can then be assigned
CALL refill();
SET plan_cache_mode = force_generic_plan;
EXECUTE upd (1);
SET ttl.touch = off;
EXECUTE upd (2);
RESET plan_cache_mode;
UPDATE item SET note = 'backfilled' WHERE id = 3;
UPDATE item SET _ts = '2950-01-01' WHERE id = 4 RETURNING clock(_ts);
INSERT INTO item (id) VALUES (5), (6) ON CONFLICT (id) DO UPDATE SET note = 'backfilled';
MERGE INTO item i USING (VALUES (3)) AS s (id) ON i.id = s.id WHEN MATCHED THEN UPDATE SET note = 'backfilled, merged';
SELECT * FROM items;
-- the column's NOT NULL holds
SELECT state('UPDATE clock.item SET _ts = NULL WHERE id = 4');
-- with the setting back, plans stamp again
RESET ttl.touch;
EXECUTE upd (2);
SELECT * FROM items WHERE id = 2;
-- for a transaction
BEGIN;
SET LOCAL ttl.touch = off;
UPDATE item SET note = 'local' WHERE id = 3;
COMMIT;
UPDATE item SET note = 'no more' WHERE id = 4;
SELECT * FROM items WHERE id IN (3, 4);
-- it is no privilege: whoever may update may spare the clock
SET ROLE regress_ttl_user;
SET ttl.touch = off;
UPDATE clock.item SET note = 'anybody may' WHERE id = 5;
RESET ttl.touch;
RESET ROLE;
SELECT * FROM items WHERE id = 5;
-- What the setting is when a statement starts holds for all its rows
UPDATE item SET note = set_config('ttl.touch', 'off', false), _ts = '2950-01-01' WHERE id = 6
    RETURNING note, clock(_ts);
UPDATE item SET note = set_config('ttl.touch', 'on', false), _ts = '2950-01-01' WHERE id = 6
    RETURNING note, clock(_ts);
RESET ttl.touch;
-- in partitions, and for a row that is moved
CALL refill_parts();
SET ttl.touch = off;
UPDATE parts SET note = 'backfilled';
UPDATE parts SET region = 'eu', id = 20 WHERE region = 'us' AND id = 1;
RESET ttl.touch;
SELECT DISTINCT note, clock(_ts) FROM parts;

-- session_replication_role = replica: the publisher has stamped; a value that it didn't send is the present
CALL refill();
SET session_replication_role = replica;
UPDATE item SET note = 'replica' WHERE id = 1;
UPDATE item SET note = 'replica', _ts = '2950-01-01' WHERE id = 2;
INSERT INTO item (id) VALUES (3) ON CONFLICT (id) DO UPDATE SET note = 'replica';
INSERT INTO item (id) VALUES (7);
INSERT INTO item (id, _ts) VALUES (8, '2950-01-01');
RESET session_replication_role;
SELECT * FROM items;

-- touch_on_update => false: the column is the application's, as of insertion
CALL refill();
SELECT ttl.alter_container('item', touch_on_update => false);
UPDATE item SET note = 'created then' WHERE id = 1;
UPDATE item SET _ts = '2950-01-01' WHERE id = 2;
EXECUTE upd (3);
INSERT INTO item (id) VALUES (4), (6) ON CONFLICT (id) DO UPDATE SET note = 'created then';
SELECT * FROM items;
-- turned on again, prepared statements obey, too
SELECT ttl.alter_container('item', touch_on_update => true);
EXECUTE upd (3);
SELECT * FROM items WHERE id = 3;

-- Reads and row locks are no changes
CALL refill();
SELECT count(*) FROM (SELECT FROM item FOR UPDATE) _;
SELECT count(*) FROM (SELECT FROM item FOR KEY SHARE) _;
SELECT DISTINCT clock FROM items;

-- Referential actions are no changes of the application's: the child's clock stays, or it would live on by its parent
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int PRIMARY KEY, c int REFERENCES parent ON UPDATE CASCADE ON DELETE CASCADE,
    n int REFERENCES parent ON UPDATE SET NULL ON DELETE SET NULL,
    d int DEFAULT 0 REFERENCES parent ON UPDATE SET DEFAULT ON DELETE SET DEFAULT);
INSERT INTO parent SELECT generate_series(0, 9);
SELECT ttl.create_container('child', 60);
INSERT INTO child (id, c, n, d, _ts) SELECT i, i, i, i, CASE
    WHEN i = 4 THEN '2020-01-01' ELSE '2900-01-01' END::timestamptz FROM generate_series(1, 9) i;
UPDATE parent SET id = id + 100 WHERE id BETWEEN 1 AND 4;
SELECT id, c, n, d, clock(_ts) FROM child ORDER BY id;
-- in an expired row, too
SET ttl.show_expired = on;
SELECT id, c, n, d, clock(_ts) FROM child WHERE id = 4;
RESET ttl.show_expired;
-- the same of deletions
ALTER TABLE child DROP CONSTRAINT child_c_fkey;
DELETE FROM parent WHERE id IN (5, 6);
SELECT id, c, n, d, clock(_ts) FROM child WHERE id IN (5, 6) ORDER BY id;
-- But an UPDATE by a trigger within is the user's
CREATE FUNCTION note_it() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN UPDATE clock.item SET note = 'by trigger'
    WHERE id = 1; RETURN NULL; END$$;
CREATE TRIGGER note_it AFTER UPDATE ON child FOR EACH ROW EXECUTE FUNCTION note_it();
DELETE FROM parent WHERE id = 7;
SELECT id, c, n, d, clock(_ts) FROM child WHERE id = 7;
SELECT * FROM items WHERE id = 1;

-- Rewrites of the table are none
CALL refill();
VACUUM FULL item;
CLUSTER item USING item_pkey;
ALTER TABLE item ALTER COLUMN other TYPE bigint;
ALTER TABLE item ADD COLUMN more double precision DEFAULT random();
ALTER TABLE item SET UNLOGGED;
ALTER TABLE item SET LOGGED;
SELECT DISTINCT clock FROM items;
-- They keep expired rows, and hide them still
INSERT INTO item (id, _ts) VALUES (99, '2020-01-01');
VACUUM FULL item;
ALTER TABLE item ALTER COLUMN other TYPE int;
SELECT count(*), ttl.expired_count('item') FROM item;

-- An adopted column that keeps whole seconds gets whole seconds, near the present
CREATE TABLE coarse (id int PRIMARY KEY, changed timestamptz(0));
SELECT ttl.create_container('coarse', 60, 'changed');
INSERT INTO coarse (id, changed) VALUES (1, DEFAULT), (2, '2900-01-01 00:00:00.6'), (3, NULL);
SELECT id, changed = date_trunc('second', changed) AS whole, abs(extract(epoch
    FROM changed - clock_timestamp())) < 100 AS near FROM coarse ORDER BY id;
UPDATE coarse SET id = 4 WHERE id = 2 RETURNING changed = date_trunc('second', changed) AS whole, abs(extract(epoch
    FROM changed - clock_timestamp())) < 100 AS near;
SELECT id, changed = date_trunc('second', changed) AS whole, abs(extract(epoch
    FROM changed - clock_timestamp())) < 100 AS near FROM coarse ORDER BY id;

REVOKE ALL ON SCHEMA clock FROM regress_ttl_user;
DROP SCHEMA clock CASCADE;
