-- The key of an expired row is free, so a transaction may write rows that reference it before the row that takes its
-- place. Their own check comes later; until then no action of an eviction may take or change them
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA written_rows;
SET search_path = written_rows, public;

-- In one statement, into the table itself: as well, the other way round, as without ttl
CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree ON DELETE CASCADE);
SELECT ttl.create_container('tree', 3600);
INSERT INTO tree (id, _ts) VALUES (1, '2020-01-01');
INSERT INTO tree (id, parent) VALUES (7, 1), (1, NULL);
\copy tree (id, parent) FROM PROGRAM 'printf "7\t1\n1\t\\\\N\n"'
SELECT * FROM stored('tree');
INSERT INTO tree (id, parent) VALUES (1, NULL), (7, 1);
SELECT id, parent FROM tree ORDER BY id;

-- In one transaction, with keys that are checked at its end
CREATE TABLE parent (id int PRIMARY KEY);
SELECT ttl.create_container('parent', 3600);
INSERT INTO parent (id, _ts) SELECT i, '2020-01-01' FROM generate_series(1, 3) i;
CREATE TABLE cascaded (id int, p int REFERENCES parent ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE set_null (id int, p int REFERENCES parent ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE set_default (id int, p int DEFAULT 0 REFERENCES parent ON DELETE SET DEFAULT DEFERRABLE INITIALLY
    DEFERRED);
CREATE TABLE parted (id int, p int REFERENCES parent ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED)
    PARTITION BY LIST (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted2 (p int, dropped int, id int);
ALTER TABLE parted2 DROP dropped;
ALTER TABLE parted ATTACH PARTITION parted2 FOR VALUES IN (2);
CREATE PROCEDURE replace_after(child text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO %s VALUES (2, 1)', child);
    INSERT INTO parent VALUES (1);
    SET CONSTRAINTS ALL IMMEDIATE;
END $$;
CALL replace_after('cascaded');
CALL replace_after('set_null');
CALL replace_after('set_default');
CALL replace_after('parted');
-- the other way round, as without ttl
\set VERBOSITY default
\set SHOW_CONTEXT never
BEGIN;
INSERT INTO cascaded VALUES (1, 1);
INSERT INTO parent VALUES (1);
ROLLBACK;
\set VERBOSITY terse
BEGIN;
INSERT INTO parent VALUES (1);
INSERT INTO cascaded VALUES (1, 1);
COMMIT;
SELECT * FROM cascaded;
-- what the user deletes himself takes it along
BEGIN;
INSERT INTO cascaded VALUES (2, 1);
DELETE FROM parent WHERE id = 1;
SELECT * FROM cascaded;
ROLLBACK;

-- So does the reaper in the transaction: it leaves the row that is referenced, and goes on
INSERT INTO parent VALUES (4), (5);
SET ttl.touch = off;
UPDATE parent SET _ts = '2020-01-01' WHERE id > 3;
RESET ttl.touch;
BEGIN;
INSERT INTO cascaded VALUES (4, 4);
CALL ttl.reap('parent');
SELECT * FROM cascaded;
SELECT * FROM stored('parent');
ROLLBACK;
-- A row that has expired before may go
CREATE TABLE expiring (id int, p int REFERENCES parent ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
SELECT ttl.create_container('expiring', 3600);
BEGIN;
INSERT INTO expiring (id, p, _ts) VALUES (5, 5, '2020-01-01'), (6, NULL, now());
INSERT INTO parent VALUES (5);
COMMIT;
SELECT * FROM stored('expiring');

-- What has been checked goes, as ever, though the transaction has written it: its parent has expired since
CREATE TABLE links (id int, a int REFERENCES parent ON DELETE SET NULL, b int REFERENCES parent ON DELETE CASCADE);
CREATE PROCEDURE refill() LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE parent, tree CASCADE;
    INSERT INTO parent (id, _ts) SELECT i, '3000-01-01' FROM generate_series(1, 3) i;
    INSERT INTO links VALUES (1, 1, 2), (2, NULL, 3);
    SET LOCAL ttl.touch = off;
    UPDATE parent SET _ts = '2020-01-01';
END $$;
BEGIN;
CALL refill();
INSERT INTO parent VALUES (3);
SELECT * FROM links;
ROLLBACK;
-- by keys that are checked at the end, too, if no check is due
INSERT INTO parent VALUES (6);
INSERT INTO cascaded VALUES (6, 6);
SET ttl.touch = off;
UPDATE parent SET _ts = '2020-01-01' WHERE id = 6;
RESET ttl.touch;
BEGIN;
UPDATE cascaded SET id = 66 WHERE id = 6;
INSERT INTO parent VALUES (6);
SELECT * FROM cascaded;
ROLLBACK;
-- what evictions of the same statement have changed
CALL refill();
BEGIN;
INSERT INTO parent VALUES (1), (2);
SELECT * FROM links;
ROLLBACK;

-- Triggers and rules of the deletion write as ever
CREATE FUNCTION number_links() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE links SET id = id + 100 WHERE b = OLD.id;
    UPDATE cascaded SET id = id + 100;
    EXECUTE 'INSERT INTO log SELECT $1 WHERE $1 OPERATOR(pg_catalog.>) 0' USING OLD.id;
    RETURN OLD;
END $$;
CREATE TRIGGER number_links BEFORE DELETE ON parent FOR EACH ROW EXECUTE FUNCTION number_links();
CREATE TABLE log (id int);
CREATE CONSTRAINT TRIGGER later AFTER INSERT ON log DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION number_links();
CREATE RULE gone AS ON DELETE TO links DO ALSO INSERT INTO log VALUES (OLD.id);
CREATE RULE renumber AS ON DELETE TO links DO ALSO UPDATE log SET id = id + 1000 WHERE id = OLD.id;
BEGIN;
INSERT INTO log VALUES (101);
INSERT INTO parent VALUES (2);
SELECT * FROM links;
SELECT * FROM log;
ROLLBACK;
DROP RULE gone ON links;
DROP RULE renumber ON links;
-- those of an eviction within an action of a foreign key, too
CREATE TABLE source (id int PRIMARY KEY);
CREATE TABLE follower (id int REFERENCES source ON DELETE CASCADE);
CREATE FUNCTION replace_parent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO parent VALUES (2);
    RETURN OLD;
END $$;
CREATE TRIGGER replace_parent BEFORE DELETE ON follower FOR EACH ROW EXECUTE FUNCTION replace_parent();
INSERT INTO source VALUES (1);
INSERT INTO follower VALUES (1);
BEGIN;
INSERT INTO cascaded VALUES (1, 1);
DELETE FROM source;
SELECT c.id, l.id AS logged, p.id AS inserted FROM cascaded c, log l, parent p;
ROLLBACK;
DROP TRIGGER number_links ON parent;

-- A trigger inserts the row that takes the place, while its table's statement has written rows that reference it
CREATE FUNCTION insert_parent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id = 9 THEN
        INSERT INTO parent VALUES (3);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER insert_parent BEFORE INSERT ON links FOR EACH ROW EXECUTE FUNCTION insert_parent();
INSERT INTO links VALUES (8, NULL, 3), (9, NULL, 3);
\copy links FROM PROGRAM 'printf "8\\t\\\\N\\t3\\n9\\t\\\\N\\t3\\n"'
INSERT INTO links VALUES (9, NULL, 3), (8, NULL, 3);
SELECT * FROM links;

-- Where foreign keys' triggers don't fire nothing is checked, but an eviction honours them
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO links VALUES (3, NULL, 1);
INSERT INTO parent VALUES (1);
ROLLBACK;

-- What it references a row may keep, though it has expired since, however often the transaction writes it. The parent
-- is partitioned, so that PostgreSQL 19 checks by a query, too, at the end of the transaction
CREATE TABLE whole (id int PRIMARY KEY, a int, b text, UNIQUE (id, a, b)) PARTITION BY RANGE (id);
CREATE TABLE whole1 PARTITION OF whole FOR VALUES FROM (0) TO (100);
SELECT ttl.create_container('whole', 3600);
CREATE TABLE at_once (id int PRIMARY KEY, w int REFERENCES whole, note text);
CREATE TABLE at_the_end (id int PRIMARY KEY, w int REFERENCES whole DEFERRABLE INITIALLY DEFERRED, note text);
CREATE TABLE of_three (id int PRIMARY KEY, w int, a int, b text, note text,
    FOREIGN KEY (w, a, b) REFERENCES whole (id, a, b) MATCH FULL);
CREATE TABLE in_parts (id int PRIMARY KEY, w int REFERENCES whole, note text) PARTITION BY LIST (id);
CREATE TABLE in_parts1 PARTITION OF in_parts FOR VALUES IN (1);
CREATE TABLE plain (id int PRIMARY KEY);
SELECT ttl.create_container('plain', 3600);
CREATE TABLE to_plain (id int PRIMARY KEY, w int REFERENCES plain, note text);
CREATE TABLE lively (id int PRIMARY KEY, w int REFERENCES whole, n int);
CREATE PROCEDURE expire(from_id int, to_id int) LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL ttl.touch = off;
    UPDATE whole SET _ts = '2020-01-01' WHERE id BETWEEN from_id AND to_id;
    UPDATE plain SET _ts = '2020-01-01' WHERE id BETWEEN from_id AND to_id;
END $$;
-- 1 and 2 have expired, 3 lives, as do 21 and 22 at first
INSERT INTO whole SELECT i, i, i FROM unnest('{1, 2, 3, 21, 22}'::int[]) i;
INSERT INTO plain SELECT i FROM unnest('{1, 2, 3, 21, 22}'::int[]) i;
INSERT INTO at_once VALUES (1, 1);
INSERT INTO at_the_end VALUES (1, 1);
INSERT INTO of_three VALUES (1, 1, 1, '1');
INSERT INTO in_parts VALUES (1, 1);
INSERT INTO to_plain VALUES (1, 1);
CALL expire(1, 2);

-- The statements in one transaction: the error. Where INSERT routes a row to a partition, the check stays PostgreSQL's
CREATE FUNCTION try(VARIADIC statements text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        EXECUTE statement;
    END LOOP;
    SET CONSTRAINTS ALL IMMEDIATE;
    RAISE 'done' USING ERRCODE = 'AA000';
EXCEPTION WHEN OTHERS THEN
    RETURN nullif(SQLSTATE, 'AA000');
END $$;
SELECT t, try(u, u, u) AS updated,
    try(u, format('INSERT INTO %s (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET note = ''upsert''', t), u) AS upserted,
    try(u, format('MERGE INTO %s t USING (VALUES (1)) v (id) ON t.id = v.id WHEN MATCHED THEN UPDATE SET note = ''m''',
        t), u) AS merged,
    try(u, format('UPDATE %s SET w = w', t)) AS assigned
    FROM unnest('{at_once, at_the_end, of_three, in_parts, to_plain}'::regclass[]) t,
        format('UPDATE %s SET note = ''updated''', t) u;

-- Another expired row it may not reference, nor come back to one
SELECT t, try(u, format('UPDATE %s SET w = 2', t)) AS other,
    try(u, format('UPDATE %s SET w = 3', t), format('UPDATE %s SET w = 1', t)) AS back,
    try(u, format('UPDATE %s SET w = 3', t), u, format('UPDATE %s SET w = NULL', t), u) AS live
    FROM unnest('{at_once, at_the_end, in_parts, to_plain}'::regclass[]) t,
        format('UPDATE %s SET note = ''updated''', t) u;
SELECT try('UPDATE of_three SET note = ''updated''', 'UPDATE of_three SET b = ''2'', a = 2, w = 2') AS other,
    try('UPDATE of_three SET note = ''updated''', 'UPDATE of_three SET b = NULL') AS not_full,
    try('UPDATE of_three SET note = ''updated''', 'UPDATE of_three SET b = NULL, w = NULL, a = NULL') AS nothing;

-- What is still to be checked is checked, whatever else of the row is written before
SELECT try('INSERT INTO at_the_end VALUES (2, 2)', 'UPDATE at_the_end SET note = ''updated''') AS inserted,
    try('UPDATE at_the_end SET w = 2', 'UPDATE at_the_end SET note = ''updated''') AS changed,
    try('INSERT INTO at_the_end VALUES (2, 3)', 'UPDATE at_the_end SET note = ''updated'' WHERE id = 2') AS live,
    try('INSERT INTO at_the_end VALUES (2, 3)', 'SET CONSTRAINTS ALL IMMEDIATE', 'UPDATE at_the_end SET note = ''a''',
        'UPDATE at_the_end SET note = ''updated''') AS at_once;
-- by a trigger of the same statement, too; and what a BEFORE trigger assigns
CREATE FUNCTION write_again() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('UPDATE %s SET note = ''again'' WHERE id = $1', TG_RELID::regclass) USING NEW.id;
    RETURN NULL;
END $$;
CREATE FUNCTION reassign() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.w := 2;
    RETURN NEW;
END $$;
CREATE TRIGGER "A first" AFTER INSERT ON at_once FOR EACH ROW EXECUTE FUNCTION write_again();
CREATE TRIGGER "A first" AFTER INSERT ON to_plain FOR EACH ROW EXECUTE FUNCTION write_again();
SELECT t, try(format('INSERT INTO %s VALUES (2, 2)', t)) AS inserted,
    try(format('INSERT INTO %s VALUES (2, 3)', t)) AS live
    FROM unnest('{at_once, to_plain}'::regclass[]) t;
\copy at_once FROM PROGRAM 'printf "2\t2\tcopied\n"'
CREATE TRIGGER "Another" AFTER UPDATE OF w ON at_once FOR EACH ROW EXECUTE FUNCTION write_again();
SELECT try('UPDATE at_once SET w = 2') AS updated, try('UPDATE at_once SET w = 3') AS live;
CREATE TRIGGER reassign BEFORE UPDATE ON at_once FOR EACH ROW WHEN (NEW.note = 'reassign')
    EXECUTE FUNCTION reassign();
SELECT try('UPDATE at_once SET note = ''updated''', 'UPDATE at_once SET note = ''reassign''') AS reassigned;

-- Triggers that have to fire for other rows, or for other keys of the row, are no reason to check it
CREATE TABLE audited (id int PRIMARY KEY, w int REFERENCES whole, p int REFERENCES plain, l int REFERENCES lively,
    note text);
CREATE TABLE late (id int PRIMARY KEY, l int REFERENCES lively DEFERRABLE INITIALLY DEFERRED,
    w int REFERENCES whole DEFERRABLE INITIALLY DEFERRED, note text);
CREATE TABLE mixed (id int PRIMARY KEY, l int REFERENCES lively DEFERRABLE INITIALLY DEFERRED,
    w int REFERENCES whole, note text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE lively SET n = n + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER UPDATE ON audited FOR EACH ROW EXECUTE FUNCTION audit();
INSERT INTO lively VALUES (1, 21, 0);
INSERT INTO audited VALUES (21, 21, 21, 1), (22, 22, 22, 1);
INSERT INTO late VALUES (1, 1, 21);
INSERT INTO mixed VALUES (1, 1, 21);
CALL expire(21, 22);
SELECT try(u, u, u) AS updated, try(format('DO %L', 'BEGIN ' || u || ';' || u || '; END')) AS "in a block",
    try(v, v, v) AS deferred, try('INSERT INTO mixed VALUES (2, 1)', w, w) AS mixed
    FROM (VALUES ('UPDATE audited SET note = ''updated''', 'UPDATE late SET note = ''updated''',
        'UPDATE mixed SET note = ''updated''')) f (u, v, w);
-- a row that the transaction has inserted without checks is checked by what comes first
SELECT try('SET LOCAL session_replication_role = replica', 'INSERT INTO audited VALUES (23, 99)',
    'SET LOCAL session_replication_role = origin', 'UPDATE audited SET note = ''updated'' WHERE id = 23') AS orphan;
-- and so is, for a key that references no container, one that it has updated
SELECT try('SET LOCAL session_replication_role = replica', 'UPDATE audited SET l = 99',
    'SET LOCAL session_replication_role = origin', 'UPDATE audited SET note = ''updated''') AS orphan;
-- What SET DEFAULT has assigned is still to be checked when a trigger of the DELETE updates the row
CREATE TABLE falls_back (id int PRIMARY KEY, w int DEFAULT 99 REFERENCES whole ON DELETE SET DEFAULT, note text);
CREATE TABLE goes_too (w int REFERENCES whole ON DELETE CASCADE);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE falls_back SET note = 'updated';
    RETURN NULL;
END $$;
CREATE TRIGGER zz AFTER DELETE ON whole FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO falls_back VALUES (1, 3);
INSERT INTO goes_too VALUES (3);
SELECT try('DELETE FROM whole WHERE id = 3') AS deleted, try('CALL expire(3, 3)',
    'INSERT INTO whole VALUES (3)') AS evicted;
CALL expire(3, 3);
\copy whole (id) FROM PROGRAM 'echo 3'
DROP TRIGGER zz ON whole;

-- An action of an eviction writes a row again: with what it references besides
CREATE TABLE besides (id int, a int REFERENCES parent ON DELETE SET NULL, b int REFERENCES parent ON DELETE SET NULL,
    w int REFERENCES whole);
INSERT INTO parent SELECT i FROM generate_series(11, 12) i;
INSERT INTO whole VALUES (11);
INSERT INTO besides VALUES (1, 11, 12, 11);
SET ttl.touch = off;
UPDATE parent SET _ts = '2020-01-01' WHERE id > 10;
UPDATE whole SET _ts = '2020-01-01' WHERE id > 10;
RESET ttl.touch;
INSERT INTO parent VALUES (11), (12);
SELECT * FROM besides;

-- Expired rows that go along with what a user deletes take no such row, either
CREATE TABLE dependent (id int PRIMARY KEY, p int REFERENCES parent);
SELECT ttl.create_container('dependent', 3600);
CREATE TABLE of_dependent (id int, d int REFERENCES dependent ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
INSERT INTO parent VALUES (13);
INSERT INTO dependent VALUES (13, 13);
SET ttl.touch = off;
UPDATE dependent SET _ts = '2020-01-01';
RESET ttl.touch;
BEGIN;
INSERT INTO of_dependent VALUES (1, 13);
DELETE FROM parent WHERE id = 13;
ROLLBACK;
DELETE FROM parent WHERE id = 13;
SELECT stored('dependent');

DROP SCHEMA written_rows CASCADE;
