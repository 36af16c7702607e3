-- Free keys: a unique or exclusion key that only expired rows hold is free for
-- INSERT, COPY, MERGE and key-changing UPDATE; the expired row is deleted on
-- the way as by a DELETE
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA keys;
SET search_path = keys, public;

CREATE FUNCTION new_container(c regclass, default_ttl int DEFAULT 60) RETURNS void LANGUAGE sql AS $$
    SELECT ttl.create_container(c, default_ttl)
$$;

-- How many rows have gone for want of their keys, as the views count them
CREATE FUNCTION evicted(c regclass) RETURNS bigint LANGUAGE sql AS $$
    SELECT rows_evicted FROM ttl.stat_containers WHERE container = c
$$;

--
-- The commands
--

CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT new_container('item');

-- Four expired rows, by default and by their own TTL, and two live ones
CREATE PROCEDURE refill() LANGUAGE sql AS $$
    TRUNCATE keys.item;
    INSERT INTO keys.item (id, note, _ts, ttl) VALUES (1, 'expired', '2020-01-01', NULL), (2, 'expired', '2020-01-01',
        5), (3, 'expired', '-infinity', 9),
        (4, 'live', '2999-01-01', NULL), (5, 'live', '2020-01-01', -1), (6, 'expired', '2020-01-01', NULL);
$$;

-- INSERT takes the key of an expired row, and touches no other
CALL refill();
INSERT INTO item (id, note) VALUES (1, 'new') RETURNING id, note;
SELECT * FROM stored('item');

-- A live row's key is taken, whatever else is in the statement: nothing of it is done, nothing deleted
SELECT state('INSERT INTO item (id) VALUES (4)'), state('INSERT INTO item (id) VALUES (5)'),
    state('INSERT INTO item (id) VALUES (2), (4)'), state('INSERT INTO item (id) VALUES (1)');
SELECT * FROM stored('item');

-- One statement can't use a key twice, whether an expired row held it before or not
SELECT state('INSERT INTO item (id) VALUES (2), (2)'), state('INSERT INTO item (id) VALUES (20), (20)');
SELECT * FROM stored('item');
-- several at once, among them one that nobody held
INSERT INTO item (id, note) VALUES (2, 'new'), (3, 'new'), (7, 'new') RETURNING id, note;
SELECT * FROM stored('item');

-- INSERT ... SELECT
CALL refill();
INSERT INTO item (id, note) SELECT id, 'selected' FROM generate_series(1, 10) id WHERE id NOT IN (4, 5);
SELECT * FROM stored('item');

-- An INSERT that fills a table from itself sees no expired row
CALL refill();
INSERT INTO item (id, note) SELECT id - 3, 'from ' || id FROM item;
SELECT * FROM stored('item');

-- COPY, in either format
CALL refill();
COPY item (id, note) FROM STDIN;
1	copied
2	copied
8	copied
\.
COPY item (id, note) FROM STDIN (FORMAT csv, FREEZE false);
3,copied
\.
SELECT * FROM stored('item');
-- it fails where INSERT would, and leaves all as it was
\set VERBOSITY sqlstate
COPY item (id, note) FROM STDIN;
6	copied
4	copied
\.
\set VERBOSITY terse
SELECT * FROM stored('item');

-- ON CONFLICT finds expired rows absent
CALL refill();
INSERT INTO item (id, note) VALUES (1, 'new'), (4, 'new'), (9, 'new') ON CONFLICT DO NOTHING RETURNING id, note;
INSERT INTO item (id, note) VALUES (2, 'new'), (5, 'new') ON CONFLICT (id) DO NOTHING RETURNING id, note;
INSERT INTO item AS i (id, note) VALUES (3, 'new'), (4, 'new') ON CONFLICT (id) DO UPDATE
    SET note = i.note || ' updated with ' || excluded.note RETURNING id, note;
INSERT INTO item AS i (id, note) VALUES (6, 'new') ON CONFLICT ON CONSTRAINT item_pkey DO UPDATE SET note = 'updated'
    WHERE i.note <> 'new' RETURNING id, note;
SELECT * FROM stored('item');

-- The same row twice in it: DO UPDATE fails as ever, DO NOTHING keeps the first
CALL refill();
SELECT state('INSERT INTO item AS i (id, note) VALUES (1, ''a''), (1, ''b'') ON CONFLICT (id) DO UPDATE SET note '
    '= ''c''');
INSERT INTO item AS i (id, note) VALUES (1, 'a'), (1, 'b') ON CONFLICT (id) DO NOTHING RETURNING id, note;

-- MERGE: NOT MATCHED, and the key is free
CALL refill();
MERGE INTO item i USING (SELECT generate_series(1, 7) AS id) s ON i.id = s.id
 WHEN MATCHED THEN UPDATE SET note = i.note || ', matched'
 WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, 'merged');
SELECT * FROM stored('item');

-- UPDATE of the key
CALL refill();

-- A live row takes the key of an expired one, and keeps its values
UPDATE item SET id = 1 WHERE id = 4 RETURNING id, note;
UPDATE item SET id = id - 3, note = note || ', moved' WHERE id = 5 RETURNING id, note;
SELECT * FROM stored('item');
-- not of a live one
SELECT state('UPDATE item SET id = 1 WHERE id = 2');
-- in a CTE, by MERGE, and in ON CONFLICT DO UPDATE
WITH u AS (UPDATE item SET id = 3 WHERE id = 1 RETURNING id, note) SELECT * FROM u;
MERGE INTO item i USING (VALUES (2, 6)) AS s (id, to_id) ON i.id = s.id WHEN MATCHED THEN UPDATE SET id = s.to_id;
SELECT * FROM stored('item');
CALL refill();
INSERT INTO item AS i (id, note) VALUES (4, 'x') ON CONFLICT (id) DO UPDATE SET id = 6 RETURNING id, note;
SELECT * FROM stored('item');

-- Of several rows, each takes one
CALL refill();
UPDATE item SET id = id - 3 RETURNING id, note;
SELECT * FROM stored('item');

-- With a prepared generic plan the expired rows are looked for at each execution
SET plan_cache_mode = force_generic_plan;
PREPARE ins (int) AS INSERT INTO item (id, note) VALUES ($1, 'prepared') RETURNING id;
PREPARE upd (int, int) AS UPDATE item SET id = $2 WHERE id = $1 RETURNING id;
CALL refill();
EXECUTE ins (1);
EXECUTE upd (1, 2);
EXECUTE upd (2, 3);
EXECUTE ins (2);
RESET plan_cache_mode;
SELECT * FROM stored('item');

-- The key that counts is the one that a user's trigger has set
CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.note = 'move' THEN
        NEW.id := NEW.id - 3;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER move BEFORE INSERT OR UPDATE ON item FOR EACH ROW EXECUTE FUNCTION move();
CALL refill();
UPDATE item SET note = 'move' WHERE id = 4 RETURNING id;
INSERT INTO item (id, note) VALUES (5, 'move') RETURNING id;
SELECT * FROM stored('item');

-- Whatever the trigger's name, i.e. in whichever order they fire
ALTER TRIGGER move ON item RENAME TO "~~~";
CALL refill();
SELECT state('INSERT INTO item (id, note) VALUES (5, ''move'')'), state('UPDATE item SET note = ''move'' WHERE id = 4');
SELECT * FROM stored('item');
DROP TRIGGER "~~~" ON item;

-- Logical replication needs keys as well
SET session_replication_role = replica;
INSERT INTO item (id, note) VALUES (6, 'replicated') RETURNING id, note;
UPDATE item SET id = 3 WHERE id = 6 RETURNING id, note;
RESET session_replication_role;

-- What is rolled back, with the statement, savepoint or transaction, has deleted nothing
CALL refill();
BEGIN;
INSERT INTO item (id) VALUES (1);
SAVEPOINT s;
UPDATE item SET id = 2 WHERE id = 4;
ROLLBACK TO s;
INSERT INTO item (id) VALUES (3);
SELECT id FROM item ORDER BY id;
ROLLBACK;
SELECT ttl.expired_count('item');

-- Again and again in a transaction, rows of its own included
BEGIN;
INSERT INTO item (id, ttl, _ts) VALUES (1, 1, '2020-01-01');
INSERT INTO item (id, ttl, _ts) VALUES (1, 1, '2020-01-01');
INSERT INTO item (id, note) VALUES (1, 'third');
DELETE FROM item WHERE id = 1;
INSERT INTO item (id, note) VALUES (1, 'fourth') RETURNING note;
COMMIT;

-- While TTL is off, no key is free; with -1, those of rows with a TTL are
CALL refill();
SELECT ttl.set_default_ttl('item', NULL);
SELECT state('INSERT INTO item (id) VALUES (1)'), state('INSERT INTO item (id) VALUES (2)');
SELECT ttl.set_default_ttl('item', -1);
SELECT state('INSERT INTO item (id) VALUES (1)'), state('INSERT INTO item (id) VALUES (2)');
SELECT ttl.set_default_ttl('item', 60);
-- ttl.show_expired has no say in it: to be shown isn't to be live
SET ttl.show_expired = on;
SELECT state('INSERT INTO item (id) VALUES (1)');
RESET ttl.show_expired;

-- A row that only ttl.now hides keeps its key, or live rows could be lost; one that only ttl.now shows doesn't
SET ttl.now = '2999-12-31';
SELECT id FROM item WHERE id = 4;
SELECT state('INSERT INTO item (id) VALUES (4)'), state('UPDATE item SET id = 4 WHERE id = 5');
SELECT state('INSERT INTO item (id) VALUES (4) ON CONFLICT DO NOTHING');
SET ttl.now = '1999-01-01';
SELECT state('INSERT INTO item (id, note) VALUES (6, ''new'')');
RESET ttl.now;
SELECT * FROM stored('item');

--
-- The keys
--

-- Keys of each kind: several columns, partial, on expressions, generated, deferrable, exclusion, NULLS NOT DISTINCT
CREATE TABLE wide (
    id int PRIMARY KEY,
    a int, b int,
    mail text,
    code text,
    tenth int GENERATED ALWAYS AS (code_no / 10) STORED UNIQUE,
    code_no int,
    later int UNIQUE DEFERRABLE INITIALLY DEFERRED,
    soon int UNIQUE DEFERRABLE,
    nothing int,
    during int4range,
    UNIQUE (a, b),
    EXCLUDE USING gist (during WITH &&),
    EXCLUDE USING btree (code WITH =) WHERE (code <> 'any'));
CREATE UNIQUE INDEX ON wide (lower(mail));
CREATE UNIQUE INDEX ON wide (mail) INCLUDE (code) WHERE a > 0;
CREATE UNIQUE INDEX ON wide (nothing) NULLS NOT DISTINCT;
SELECT new_container('wide');
CREATE PROCEDURE refill_wide() LANGUAGE sql AS $$
    TRUNCATE keys.wide;
    INSERT INTO keys.wide (id, a, b, mail, code, code_no, later, soon, nothing, during, _ts)
    SELECT i, i, i, 'Mail' || i, 'code' || i, i * 10, i, i, nullif(i, 1), int4range(i * 10, i * 10 + 5), CASE
        WHEN i > 8 THEN '2999-01-01' ELSE '2020-01-01' END::timestamptz
      FROM generate_series(1, 10) i;
$$;
CALL refill_wide();

-- What a statement comes to, and how many expired rows it has deleted
CREATE FUNCTION evicts(c regclass, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    before bigint := ttl.expired_count(c);
    result text := state(statement);
BEGIN
    RETURN format('%s, evicted %s', result, before - ttl.expired_count(c));
END $$;

-- Each key frees one row; none is deleted where only a part of the key is equal, or a live row holds it
SELECT columns_values, evicts('wide', format('INSERT INTO keys.wide (nothing, %s', columns_values))
  FROM unnest(ARRAY[
    'id) VALUES (100, 1)', 'id, a, b) VALUES (101, 101, 2, 2)', 'id, a, b) VALUES (102, 102, 3, 4)',
        'id, mail) VALUES (103, 103, ''mAIL3'')',
    'id, mail, a) VALUES (104, 104, ''Mail4'', 1)', 'id, code_no) VALUES (105, 105, 55)',
        'id, code) VALUES (106, 106, ''code6'')',
    'id, during) VALUES (107, 107, ''[74,79)'')', 'id, during) VALUES (108, 108, ''[64,70)'')',
        'id, soon) VALUES (109, 109, 8)',
    'id) VALUES (NULL, 110)', 'id) VALUES (111, 9)', 'id, a, b) VALUES (112, 112, 9, 9)',
        'id, mail) VALUES (113, 113, ''MAIL9'')', 'id, code_no) VALUES (114, 114, 99)',
    'id, code) VALUES (115, 115, ''code9'')', 'id, during) VALUES (116, 116, ''[94,95)'')', 'id) VALUES (10, 117)',
        'id, soon) VALUES (118, 118, 9)']) columns_values;

-- NULL is a key where NULLs aren't distinct
CALL refill_wide();
SELECT evicts('wide', 'INSERT INTO keys.wide (id, nothing) VALUES (100, NULL)'), evicts('wide',
    'INSERT INTO keys.wide (id, nothing) VALUES (101, NULL)');

-- One whose index finds more than what conflicts (boxes of polygons) deletes only what does
CREATE TABLE area (id int, a polygon, EXCLUDE USING gist (a WITH &&));
SELECT new_container('area');
INSERT INTO area (id, a, _ts) VALUES (1, '((0,0),(10,0),(0,10))', '2020-01-01'), (2, '((20,0),(30,0),(20,10))',
    '2020-01-01');
SELECT evicts('area', 'INSERT INTO keys.area VALUES (3, ''((9,9),(10,9),(10,10))'')'), evicts('area',
    'INSERT INTO keys.area VALUES (4, ''((21,1),(22,1),(21,2))'')');

-- Deferred keys are freed like others: the expired row wouldn't be gone by the end
CALL refill_wide();
BEGIN;
INSERT INTO wide (id, nothing, later) VALUES (100, 100, 1), (101, 101, 2);
SET CONSTRAINTS ALL IMMEDIATE;
INSERT INTO wide (id, nothing, soon) VALUES (102, 102, 3);
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO wide (id, nothing, soon) VALUES (103, 103, 4);
COMMIT;
SELECT ttl.expired_count('wide');
-- a live row's deferred key is checked at COMMIT
BEGIN;
INSERT INTO wide (id, nothing, later) VALUES (104, 104, 9);
\set VERBOSITY sqlstate
COMMIT;
\set VERBOSITY terse

-- A deferred conflict that has gone by the end is none
BEGIN;
INSERT INTO wide (id, nothing, later) VALUES (104, 104, 9);
DELETE FROM wide WHERE id = 9;
COMMIT;

-- One row that takes the keys of eight
CALL refill_wide();
INSERT INTO wide (id, a, b, mail, code, code_no, later, soon, nothing, during)
VALUES (1, 2, 2, 'MAIL3', 'code4', 50, 6, 7, NULL, '[80,90)') RETURNING id;
SELECT ttl.expired_count('wide'), (SELECT count(*) FROM wide);

-- One range over many rows; a live row in it forbids all
CALL refill_wide();
INSERT INTO wide (id, nothing, during) VALUES (100, 100, '[1,90)');
SELECT ttl.expired_count('wide'), (SELECT count(*) FROM wide);
SELECT state('INSERT INTO keys.wide (id, nothing, during) VALUES (101, 101, ''[94,200)'')');

-- The same by UPDATE, with other columns' keys left alone
CALL refill_wide();
UPDATE wide SET a = 1, b = 1 WHERE id = 9;
UPDATE wide SET mail = 'mail2', a = 3, b = 3 WHERE id = 9;
UPDATE wide SET code_no = 44 WHERE id = 9;
UPDATE wide SET during = '[40,60)', later = 6, soon = 7 WHERE id = 10;
SELECT ttl.expired_count('wide'), (SELECT count(*) FROM wide);
-- keys of live rows aren't to be had
SELECT state('UPDATE keys.wide SET mail = ''MAIL2'' WHERE id = 10'),
    state('UPDATE keys.wide SET code_no = 40 WHERE id = 10');

-- A partial index that a row enters by another column: the key counts from then on
CREATE TABLE partial (id int PRIMARY KEY, k int, active boolean);
CREATE UNIQUE INDEX ON partial (k) WHERE active;
INSERT INTO partial VALUES (1, 1, true), (2, 1, false), (3, 2, true);
SELECT ttl.create_container('partial', 60);
SET ttl.touch = off;
UPDATE partial SET _ts = '2020-01-01' WHERE id = 1;
RESET ttl.touch;
UPDATE partial SET active = true WHERE id = 2 RETURNING id, k;
SELECT * FROM stored('partial');
SELECT state('UPDATE keys.partial SET k = 2 WHERE id = 2');

-- Rows that come in expired, by a TTL that is given or generated, late in a statement: their keys are free for
-- those that follow in it
CREATE TABLE coming (id int PRIMARY KEY, seconds int, ttl int GENERATED ALWAYS AS (seconds) STORED);
SELECT ttl.create_container('coming', -1);
INSERT INTO coming (id, seconds, _ts)
    SELECT CASE n WHEN 151 THEN 150 ELSE n END, CASE n WHEN 150 THEN 1 END, CASE n
        WHEN 150 THEN timestamptz '2020-01-01' END
      FROM generate_series(1, 200) n;
ALTER TABLE coming ALTER ttl DROP EXPRESSION;
INSERT INTO coming (id, ttl, _ts)
    SELECT CASE n WHEN 351 THEN 350 ELSE n END, CASE n WHEN 350 THEN 1 END, CASE n
        WHEN 350 THEN timestamptz '2020-01-01' END
      FROM generate_series(201, 400) n;
SELECT count(*), ttl.expired_count('coming') FROM coming;

--
-- Partitions
--

CREATE TABLE parts (note text, id int, region text, code text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu');
CREATE TABLE parts_us (id int NOT NULL, gone text, code text, note text, region text NOT NULL);
ALTER TABLE parts_us DROP COLUMN gone;
ALTER TABLE parts ATTACH PARTITION parts_us FOR VALUES IN ('us');
CREATE UNIQUE INDEX ON parts_us (code);
SELECT new_container('parts');
CREATE TABLE parts_asia PARTITION OF parts FOR VALUES IN ('asia', 'au');
CREATE PROCEDURE refill_parts() LANGUAGE sql AS $$
    TRUNCATE keys.parts;
    INSERT INTO keys.parts (region, id, code, note, _ts)
    SELECT region, i, region || i, CASE WHEN i > 4 THEN 'live' ELSE 'expired' END, CASE
        WHEN i > 4 THEN '2999-01-01' ELSE '2020-01-01' END::timestamptz
      FROM unnest('{eu,us,asia}'::text[]) region, generate_series(1, 5) i;
$$;

-- In each partition, named or routed to, whose columns may be in another order
CALL refill_parts();
INSERT INTO parts (region, id, note) VALUES ('eu', 1, 'new'), ('us', 1, 'new'), ('asia', 1, 'new'), ('au', 1, 'new')
    RETURNING region, id, note;
-- a unique index of a partition alone is one key more
INSERT INTO parts_us (region, id, code) VALUES ('us', 2, 'us3') RETURNING region, id;
-- keys of live rows stay taken, also for a row that is moved there
SELECT state('INSERT INTO keys.parts (region, id) VALUES (''us'', 5)'),
    state('INSERT INTO keys.parts_us (region, id, code) VALUES (''us'', 4, ''us5'')');
SELECT state('UPDATE keys.parts SET region = ''us'' WHERE region = ''eu'' AND id = 5');
-- by COPY, by UPDATE of several rows, and by MERGE
COPY parts (region, id, note) FROM STDIN;
asia	2	copied
us	4	copied
\.
UPDATE parts SET id = id - 2 WHERE region = 'eu' RETURNING region, id;
UPDATE parts_us SET id = 3, note = 'moved' WHERE id = 5 RETURNING region, id, note;
MERGE INTO parts p USING (VALUES ('asia', 3), ('asia', 5)) AS s (region, id) ON p.region = s.region AND p.id = s.id
 WHEN MATCHED THEN UPDATE SET note = 'merged', id = 4 WHEN NOT MATCHED THEN INSERT (region, id, note)
     VALUES (s.region, s.id, 'merged');
SELECT * FROM stored('parts');

-- A move to another partition, onto expired rows' keys there
CALL refill_parts();
UPDATE parts SET region = 'asia', id = 1, note = 'moved' WHERE region = 'us' AND id = 5
    RETURNING tableoid::regclass, id, note;
UPDATE parts SET region = 'us', id = 2, note = 'moved', code = 'us3' WHERE region = 'eu' AND id = 5
    RETURNING tableoid::regclass, id, note;
-- a row that was expired before the statement is no conflict; one that was moved there is
INSERT INTO parts AS p (region, id, note) VALUES ('eu', 3, 'new'), ('us', 2, 'new') ON CONFLICT (region, id) DO UPDATE
    SET note = p.note || ', updated' RETURNING region, id, note;
SELECT count(*), ttl.expired_count('parts') FROM parts;

--
-- Rights
--

CREATE TABLE owned (id int PRIMARY KEY, note text);
INSERT INTO owned VALUES (1, 'expired'), (2, 'expired'), (3, 'live');
SELECT new_container('owned');
SET ttl.touch = off;
UPDATE owned SET _ts = CASE WHEN note = 'live' THEN '2999-01-01' ELSE '2020-01-01' END::timestamptz;
RESET ttl.touch;
CREATE TABLE deleted (id int, by_user name);
CREATE FUNCTION log_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO keys.deleted VALUES (OLD.id, current_user);
    RETURN OLD;
END $$;
CREATE TRIGGER log_delete BEFORE DELETE ON owned FOR EACH ROW EXECUTE FUNCTION log_delete();
ALTER TABLE owned OWNER TO regress_ttl_owner;
ALTER TABLE deleted OWNER TO regress_ttl_owner;
GRANT USAGE ON SCHEMA keys TO regress_ttl_owner, regress_ttl_user;
GRANT INSERT, UPDATE (id), SELECT (id) ON owned TO regress_ttl_user;
GRANT INSERT ON deleted TO regress_ttl_user;

-- The expired row goes by the right to insert; no right to delete or to read comes with it
SET ROLE regress_ttl_user;
INSERT INTO keys.owned (id, note) VALUES (1, 'new');
UPDATE keys.owned SET id = 2 WHERE id = 1 RETURNING id;
SELECT state('INSERT INTO keys.owned VALUES (3)'), state('DELETE FROM keys.owned'), state('SELECT FROM keys.deleted');
RESET ROLE;
-- the trigger of the table fires as the user who needs the key
SELECT * FROM deleted ORDER BY id;
SELECT * FROM stored('owned');

-- Row-level security, which lets the user insert only, doesn't keep the row from going
ALTER TABLE owned ENABLE ROW LEVEL SECURITY;
ALTER TABLE owned FORCE ROW LEVEL SECURITY;
CREATE POLICY ins ON owned FOR INSERT WITH CHECK (true);
INSERT INTO owned (id, note, _ts) VALUES (10, 'expired', '2020-01-01');
SET ROLE regress_ttl_user;
INSERT INTO keys.owned (id, note) VALUES (10, 'new');
RESET ROLE;
SELECT * FROM stored('owned');

--
-- Triggers and foreign keys
--

CREATE TABLE parent (id int PRIMARY KEY, note text);
CREATE TABLE child_cascade (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE);
CREATE TABLE child_null (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE SET NULL);
INSERT INTO parent VALUES (1, 'first'), (2, 'first');
INSERT INTO child_cascade VALUES (1, 1), (2, 2);
INSERT INTO child_null VALUES (1, 1), (2, 2);
SELECT new_container('parent');
SET ttl.touch = off;
UPDATE parent SET _ts = '2020-01-01';
RESET ttl.touch;

-- CASCADE and SET NULL do with its children what they do at a DELETE
INSERT INTO parent VALUES (1, 'second');
SELECT id, note FROM parent;
SELECT * FROM child_cascade ORDER BY id;
SELECT * FROM child_null ORDER BY id;

-- A live child that references it without an action keeps the row, and thereby its key
CREATE TABLE child_plain (id int PRIMARY KEY, parent int REFERENCES parent);
ALTER TABLE child_plain DISABLE TRIGGER ALL;
INSERT INTO child_plain VALUES (1, 2);
ALTER TABLE child_plain ENABLE TRIGGER ALL;
SELECT refused('INSERT INTO keys.parent VALUES (2, ''second'')');

-- An expired child goes with it
SELECT new_container('child_plain');
SET ttl.touch = off;
UPDATE child_plain SET _ts = '2020-01-01';
RESET ttl.touch;
SELECT state('INSERT INTO keys.parent VALUES (2, ''second'')');
SELECT * FROM stored('parent');
SELECT * FROM stored('child_plain');

-- Triggers for DELETE fire, before those of the INSERT are done
CREATE TABLE fired (id int PRIMARY KEY, note text);
INSERT INTO fired VALUES (1, 'expired'), (2, 'expired');
SELECT new_container('fired');
SET ttl.touch = off;
UPDATE fired SET _ts = '2020-01-01';
RESET ttl.touch;
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE NOTICE '% % %: % -> %', TG_WHEN, TG_OP, TG_LEVEL,
        CASE WHEN TG_LEVEL = 'ROW' AND TG_OP <> 'INSERT' THEN OLD.note END,
        CASE WHEN TG_LEVEL = 'ROW' AND TG_OP <> 'DELETE' THEN NEW.note END;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TRIGGER tell_before BEFORE INSERT OR UPDATE OR DELETE ON fired FOR EACH ROW EXECUTE FUNCTION tell();
CREATE TRIGGER tell_after AFTER INSERT OR UPDATE OR DELETE ON fired FOR EACH ROW EXECUTE FUNCTION tell();
CREATE TRIGGER tell_statement AFTER DELETE ON fired FOR EACH STATEMENT EXECUTE FUNCTION tell();
SET client_min_messages = notice;
-- the order is as if the DELETE had been executed by the INSERT's BEFORE trigger
INSERT INTO fired (id, note) VALUES (1, 'new');
UPDATE fired SET id = 2, note = 'moved' WHERE id = 1;
SET client_min_messages = warning;
SELECT * FROM stored('fired');

--
-- What expires, or comes in expired, while a statement runs
--

-- A trigger of the statement moves deadlines of rows whose keys come later in it
CREATE TABLE token (id int PRIMARY KEY, note text);
SELECT ttl.create_container('token', 3600, touch_on_update => false);
CREATE FUNCTION revoke() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.note = 'revokes' THEN
        UPDATE keys.token SET _ts = '2020-01-01' WHERE note = 'held';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER revoke BEFORE INSERT ON token FOR EACH ROW EXECUTE FUNCTION revoke();
CREATE FUNCTION rows_of(t regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('SELECT string_agg(n || '' '' || note, '', '' ORDER BY note) FROM (SELECT note, count(*) AS n FROM '
        '%s GROUP BY note) s', t) INTO result;
    RETURN result;
END $$;

-- The row in the middle makes 50 rows expire, whose keys come next
CREATE FUNCTION after_revocation(n int, conflict text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE keys.token;
    INSERT INTO keys.token (id, note) SELECT i, 'held' FROM generate_series(1001, 1050) i;
    RETURN state(format($q$INSERT INTO keys.token AS t (id, note)
        SELECT i, CASE WHEN i = %s THEN 'revokes' ELSE 'new' END FROM generate_series(1, 1050) i
        WHERE i <= %1$s OR i > 1000 %s$q$, n, conflict)) ||
        ': ' || rows_of('keys.token');
END $$;
-- before, at and after 100 rows, from which on keys are looked up only if something has expired
SELECT n, conflict, after_revocation(n, conflict)
  FROM unnest('{99,100,101,150,250}'::int[]) n,
       unnest(ARRAY['', 'ON CONFLICT DO NOTHING', 'ON CONFLICT (id) DO UPDATE SET note = t.note '
           '|| '' revived''']) conflict;

-- Rows that come in expired, then others with their keys, in one statement
CREATE TABLE imported (id int PRIMARY KEY, note text);
SELECT new_container('imported');
CREATE FUNCTION after_import(n int, conflict text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE keys.imported;
    RETURN state(format($q$INSERT INTO keys.imported AS t (id, note, _ts)
        SELECT i %% %s, CASE WHEN i < 2 * %1$s THEN 'imported' ELSE 'new'
        END, CASE WHEN i < 2 * %1$s THEN '2020-01-01' END::timestamptz
      FROM generate_series(0, 3 * %1$s - 1) i %s$q$, n, conflict)) || ': ' || rows_of('keys.imported');
END $$;
SELECT n, conflict, after_import(n, conflict)
  FROM unnest('{1,99,100,101,250}'::int[]) n,
       unnest(ARRAY['', 'ON CONFLICT DO NOTHING', 'ON CONFLICT (id) DO UPDATE SET note = t.note '
           '|| '' revived''']) conflict;

-- Each of them is noticed, though the one before it was like it and was left out
TRUNCATE imported;
INSERT INTO imported (id, note, _ts) SELECT CASE i WHEN 201 THEN 1 WHEN 203 THEN 202 ELSE i END, CASE i
    WHEN 201 THEN 'imported' WHEN 202 THEN 'imported' ELSE 'new' END, CASE i
    WHEN 201 THEN '2020-01-01' WHEN 202 THEN '2020-01-01' END::timestamptz
  FROM generate_series(1, 210) i ON CONFLICT DO NOTHING;
SELECT rows_of('imported');

-- A function in the statement's own SELECT brings expired rows in
CREATE FUNCTION import(i int) RETURNS int LANGUAGE sql AS $$
    INSERT INTO keys.imported (id, note, _ts) VALUES (i, 'imported', '2020-01-01') RETURNING id
$$;
TRUNCATE imported;
INSERT INTO imported AS t (id, note) SELECT CASE WHEN i < 150 THEN i ELSE import(i) END, 'new'
    FROM generate_series(1, 200) i ON CONFLICT (id) DO UPDATE SET note = t.note || ' revived';
SELECT rows_of('imported');

-- Another part of the statement makes rows expire: a CTE, or another action of the MERGE
SET ttl.touch = off;
TRUNCATE imported;
INSERT INTO imported SELECT i, 'held' FROM generate_series(1, 50) i;
WITH u AS (UPDATE imported SET _ts = '2020-01-01' RETURNING id), s AS (SELECT count(*) FROM u)
INSERT INTO imported AS t (id, note) SELECT i, 'new' FROM generate_series(250, 51, -1) i UNION ALL SELECT i, 'new'
    FROM s, generate_series(50, 1, -1) i ON CONFLICT (id) DO UPDATE SET note = t.note || ' revived';
SELECT rows_of('imported');
TRUNCATE imported;
INSERT INTO imported SELECT i, 'held' FROM generate_series(1, 300) i;
MERGE INTO imported t USING generate_series(300, 1, -1) i ON t.id = i
 WHEN MATCHED AND i > 200 THEN UPDATE SET _ts = '2020-01-01', note = 'expired'
 WHEN MATCHED AND i > 100 THEN UPDATE SET id = i + 100, note = 'moved';
SELECT rows_of('imported');
RESET ttl.touch;

-- Keys that move onto those of expired rows, and of rows that have just moved
TRUNCATE imported;
INSERT INTO imported SELECT i, CASE WHEN i % 2 = 0 THEN 'expired' ELSE 'live' END, CASE
    WHEN i % 2 = 0 THEN '2020-01-01' END::timestamptz FROM generate_series(1, 300) i;
UPDATE imported SET id = id + 1;
SELECT rows_of('imported'), ttl.expired_count('imported');

-- In partitions as well
CREATE TABLE routed (id int, note text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE routed1 PARTITION OF routed FOR VALUES FROM (0) TO (150);
CREATE TABLE routed2 (note text, id int NOT NULL);
ALTER TABLE routed ATTACH PARTITION routed2 FOR VALUES FROM (150) TO (1000);
SELECT new_container('routed');
INSERT INTO routed AS t (id, note, _ts) SELECT i % 300, CASE WHEN i < 300 THEN 'imported' ELSE 'new' END, CASE
    WHEN i < 300 THEN '2020-01-01' END::timestamptz FROM generate_series(0, 599) i
 ON CONFLICT (id) DO UPDATE SET note = t.note || ' revived';
SELECT rows_of('routed');

-- COPY over keys half of which expired rows hold
TRUNCATE imported;
INSERT INTO imported (id, note, _ts) SELECT i, 'expired', '2020-01-01' FROM generate_series(2, 2000, 2) i;
COPY imported (id, note) FROM PROGRAM 'seq 1 2000 | sed "s/$/\tcopied/"';
SELECT rows_of('imported'), ttl.expired_count('imported');

-- Deletion goes to the rows by their places, whatever the user's settings: no row is read by a scan of the table
CREATE TABLE placed (id int PRIMARY KEY, filler text);
INSERT INTO placed SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i;
SELECT new_container('placed');
CREATE TABLE places (id int REFERENCES placed, filler text);
CREATE INDEX ON places (id);
INSERT INTO places SELECT i, repeat('x', 500) FROM generate_series(1, 2000) i;
SELECT new_container('places');
SET ttl.touch = off;
UPDATE placed SET _ts = '2020-01-01' WHERE id <= 10;
UPDATE places SET _ts = '2020-01-01' WHERE id <= 20;
RESET ttl.touch;
VACUUM ANALYZE placed, places;
SET enable_tidscan = off;
BEGIN;

-- By an eviction, a DELETE that takes expired rows along, and the reaper
SELECT pg_stat_get_xact_tuples_returned('placed'::regclass) AS placed,
    pg_stat_get_xact_tuples_returned('places'::regclass) AS places \gset
INSERT INTO placed VALUES (1, 'new'), (2, 'new');
DELETE FROM placed WHERE id = 11;
CALL ttl.reap('placed');
SELECT pg_stat_get_xact_tuples_returned('placed'::regclass) - :placed AS placed,
    pg_stat_get_xact_tuples_returned('places'::regclass) - :places AS places, ttl.expired_count('placed'),
    ttl.expired_count('places');
-- the user's setting, which ttl may not heed, is as before
SHOW enable_tidscan;
COMMIT;
RESET enable_tidscan;

-- A look-up ends, though transactions end during each
CREATE TABLE ended (n int);
CREATE FUNCTION end_transaction() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ended VALUES (1);
    RAISE 'the end';
EXCEPTION
    WHEN raise_exception THEN NULL;
END $$;
CREATE FUNCTION ending(id int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    PERFORM keys.end_transaction();
    RETURN id;
END $$;
CREATE TABLE busy (id int);
CREATE UNIQUE INDEX ON busy (ending(id));
SELECT new_container('busy');
SET statement_timeout = '10s';

-- Each computation of the key ends a transaction, as other sessions might between any two steps
INSERT INTO busy VALUES (1);
BEGIN;
INSERT INTO busy VALUES (2), (3);
ROLLBACK;
INSERT INTO busy VALUES (2);
RESET statement_timeout;
SELECT id FROM busy ORDER BY id;

-- A bulk load looks keys up only until it knows that nothing has expired, also in a table of deadlines.  The key is
-- computed for each look-up and for each insertion, which tells them apart
CREATE FUNCTION computed(id int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('test.computed', (current_setting('test.computed')::int + 1)::text, false);
    RETURN id;
END $$;
SET test.computed = 0;
CREATE TABLE load (id int, at timestamptz);
CREATE UNIQUE INDEX load_key ON load (computed(id));
SELECT new_container('load');
CREATE TABLE load_due (id int, at timestamptz);
CREATE UNIQUE INDEX load_due_key ON load_due (computed(id));
SELECT ttl.create_container('load_due', -1, ts_column => NULL, ttl_column => 'at');
CREATE FUNCTION looks_up(c regclass) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('test.computed', '0', false);
    EXECUTE format('INSERT INTO %s (id) SELECT generate_series(10001, 11000)', c);
    EXECUTE format('DELETE FROM %s WHERE id > 10000', c);
    RETURN current_setting('test.computed')::int > 1500;
END $$;
SELECT looks_up('load'), looks_up('load_due');

-- It does while and since others have written expired rows, however that ended
INSERT INTO load (id, _ts) VALUES (1, '2020-01-01');
INSERT INTO load_due VALUES (1, '2020-01-01'), (2, '2999-01-01');
SELECT looks_up('load'), looks_up('load_due');
CALL ttl.reap('load');
CALL ttl.reap('load_due');
SELECT looks_up('load'), looks_up('load_due');
-- not any more when they were taken back, by a savepoint, an error, or a transaction
BEGIN;
SAVEPOINT a;
INSERT INTO load (id, _ts) VALUES (1, '2020-01-01'), (2, '2020-01-01');
UPDATE load_due SET at = '2020-01-01' WHERE id = 2;
ROLLBACK TO a;
SELECT looks_up('load'), looks_up('load_due');
INSERT INTO load (id, _ts) VALUES (1, '2020-01-01'), (1 / (random() * 0)::int, '2020-01-01');
ROLLBACK;
UPDATE load_due SET at = '2020-01-01' WHERE id = 2 / (random() * 0)::int;
-- a prepared transaction may still be committed, so that keys are looked up until it ends
BEGIN;
INSERT INTO load (id, _ts) VALUES (1, '2020-01-01');
UPDATE load_due SET at = '2020-01-01' WHERE id = 2;
PREPARE TRANSACTION 'writes';
SELECT looks_up('load'), looks_up('load_due');
ROLLBACK PREPARED 'writes';
SELECT looks_up('load'), looks_up('load_due');
-- a cursor's row that is updated doesn't end what is known of the table
BEGIN;
INSERT INTO load_due VALUES (3, '2999-01-01'), (4, '2999-01-01');
DECLARE updates CURSOR FOR SELECT id FROM load_due FOR UPDATE;
FETCH updates;
UPDATE load_due SET at = '2998-01-01' WHERE CURRENT OF updates;
SELECT looks_up('load'), looks_up('load_due');
COMMIT;
SELECT looks_up('load'), looks_up('load_due');

-- An exclusion key that many hold: sixteen times as many take far less than 256 times as long
CREATE TABLE booked (during int4range, EXCLUDE USING gist (during WITH &&));
SELECT new_container('booked');
INSERT INTO booked (during, _ts) SELECT int4range(i, i + 1), '2020-01-01' FROM generate_series(1, 34000) i;
CREATE FUNCTION time_to_book(range int4range) RETURNS interval LANGUAGE plpgsql AS $$
DECLARE
    started timestamptz := clock_timestamp();
BEGIN
    INSERT INTO booked VALUES (range);
    RETURN clock_timestamp() - started;
END $$;

-- Were each compared with all others, it would be 256 times as long
SELECT extract(epoch FROM time_to_book(int4range(2001, 34001))) / extract(epoch
    FROM time_to_book(int4range(1, 2001))) < 150 AS in_proportion;
SELECT during FROM booked;

-- A rule whose query needs one row of those that are deleted: all are deleted, not those alone that it has read
CREATE TABLE ruled (id int PRIMARY KEY);
CREATE TABLE ruled_log (id int);
SELECT new_container('ruled');
INSERT INTO ruled (id, _ts) SELECT i, '2020-01-01' FROM generate_series(1, 500) i;
CREATE RULE log AS ON DELETE TO ruled DO ALSO INSERT INTO ruled_log SELECT OLD.id LIMIT 1;
INSERT INTO ruled SELECT generate_series(1, 400);
CALL ttl.reap('ruled');
SELECT count(*), (SELECT count(*) FROM ruled) FROM ruled_log;

-- So are they where its query begins anew before it has read all
CREATE TABLE ruled_side (id int);
INSERT INTO ruled_side SELECT generate_series(1, 50);
INSERT INTO ruled (id, _ts) SELECT i, '2020-01-01' FROM generate_series(1001, 1500) i;
DROP RULE log ON ruled;
CREATE RULE log AS ON DELETE TO ruled DO ALSO INSERT INTO ruled_log SELECT s.id
    FROM ruled_side s, LATERAL (SELECT OLD.id + s.id LIMIT 1) one;
CALL ttl.reap('ruled');
SELECT count(*), (SELECT count(*) FROM ruled) FROM ruled_log;

-- Evictions are counted, of each container
SELECT c, evicted(c) > 0 AS evicted FROM unnest('{item, wide, parts, owned, parent, fired}'::regclass[]) c;
SELECT evicted('fired') AS fired, evicted('parent') AS parent;

-- They are counted at the commit, and in memory that doesn't grow with the rows
CREATE TABLE many (id int PRIMARY KEY);
SELECT new_container('many');
INSERT INTO many (id, _ts) SELECT i, '2020-01-01' FROM generate_series(1, 20000) i;
BEGIN;
INSERT INTO many SELECT generate_series(1, 10000);
INSERT INTO many SELECT generate_series(10001, 20000);
SELECT total_bytes < 500000 AS is_small, evicted('many') FROM pg_backend_memory_contexts
    WHERE name = 'TopTransactionContext';
COMMIT;
SELECT evicted('many');

-- What is taken back isn't counted, be it that a later deletion is not
CREATE PROCEDURE evict_many(first int, raises boolean) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO many SELECT generate_series(first, first + 4);
    IF raises THEN
        RAISE 'taken back';
    END IF;
EXCEPTION
    WHEN raise_exception THEN NULL;
END $$;
TRUNCATE many;
INSERT INTO many (id, _ts) SELECT i, '2020-01-01' FROM generate_series(1, 100) i;
BEGIN;
-- rows 1 and 2 come back with the savepoint, 6 to 8 with an outer one, though the inner was released
SAVEPOINT a;
INSERT INTO many VALUES (1), (2);
ROLLBACK TO a;
INSERT INTO many VALUES (3), (4), (5);
SAVEPOINT b;
INSERT INTO many VALUES (6);
SAVEPOINT c;
INSERT INTO many VALUES (7), (8);
RELEASE c;
ROLLBACK TO b;
-- 9 and 10 are kept by the release, 11 to 15 come back by the exception
SAVEPOINT d;
INSERT INTO many VALUES (9);
SAVEPOINT e;
INSERT INTO many VALUES (10);
RELEASE d;
CALL evict_many(11, true);
CALL evict_many(16, false);
COMMIT;
SELECT evicted('many') - 20000 AS kept, count(*) FROM many;
-- nor what a prepared transaction takes back; what it commits may be lost, not counted twice
BEGIN;
INSERT INTO many VALUES (21), (22);
PREPARE TRANSACTION 'taken back';
ROLLBACK PREPARED 'taken back';
SELECT evicted('many') - 20000 AS kept;
BEGIN;
INSERT INTO many VALUES (21), (22);
PREPARE TRANSACTION 'kept';
COMMIT PREPARED 'kept';
SELECT evicted('many') - 20000 <= 12 AS at_most_kept, count(*) FROM many;

SET client_min_messages = warning;
REVOKE ALL ON SCHEMA keys FROM regress_ttl_user, regress_ttl_owner;
DROP SCHEMA keys CASCADE;
