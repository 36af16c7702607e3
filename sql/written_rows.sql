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
CALL ttl.reap('parent');
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
    RETURN OLD;
END $$;
CREATE TRIGGER number_links BEFORE DELETE ON parent FOR EACH ROW EXECUTE FUNCTION number_links();
CREATE TABLE log (id int);
CREATE RULE gone AS ON DELETE TO links DO ALSO INSERT INTO log VALUES (OLD.id);
CREATE RULE renumber AS ON DELETE TO links DO ALSO UPDATE log SET id = id + 1000 WHERE id = OLD.id;
BEGIN;
INSERT INTO parent VALUES (2);
SELECT * FROM links;
SELECT * FROM log;
ROLLBACK;
DROP RULE gone ON links;
DROP RULE renumber ON links;
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

DROP SCHEMA written_rows CASCADE;
