-- Owners: a partition has triggers of its own and of the tables above it, which
-- run as the one who deletes.  If these are different people's, nothing is deleted.
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE SCHEMA owners;
SET search_path = owners, public;
CREATE ROLE regress_ttl_dba SUPERUSER;
CREATE ROLE regress_ttl_ann;
CREATE ROLE regress_ttl_bob;
GRANT ALL ON SCHEMA owners TO regress_ttl_ann, regress_ttl_bob;
SET ROLE regress_ttl_dba;
CREATE TABLE done (id int GENERATED ALWAYS AS IDENTITY, what text, by_user name DEFAULT current_user);
GRANT ALL ON done TO PUBLIC;

-- What is stored of a table, expired or not
CREATE FUNCTION stored(text) RETURNS text LANGUAGE plpgsql SET row_security = off AS $$
DECLARE
    ids text;
BEGIN
    EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY id) FROM owners.%s', $1) INTO ids;
    RETURN ids;
END $$;

-- A trigger that records as whom it has fired
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO owners.done (what) VALUES (TG_TABLE_NAME || ' ' || OLD.id);
    RETURN NULL;
END $$;

-- Ann's table, whose trigger fires for the rows of each partition
SET ROLE regress_ttl_ann;
CREATE TABLE event (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE event_0 PARTITION OF event FOR VALUES FROM (0) TO (100);
SELECT ttl.create_container('event', 10);
CREATE TRIGGER tell AFTER DELETE ON event FOR EACH ROW EXECUTE FUNCTION tell();
-- next month's partition, as DBAs make it
SET ROLE regress_ttl_dba;
CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (100) TO (200);
SET ROLE regress_ttl_ann;
INSERT INTO event (id, _ts) VALUES (1, '2020-01-01'), (101, '2020-01-01'), (102, '2020-01-01'), (103, '2020-01-01');
-- The other way round: the table is the superuser's, the partition Ann's
SET ROLE regress_ttl_dba;
CREATE TABLE log (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM (0) TO (100);
CREATE TRIGGER tell AFTER DELETE ON log FOR EACH ROW EXECUTE FUNCTION tell();
ALTER TABLE log_1 OWNER TO regress_ttl_ann;
SELECT ttl.create_container('log', 10);
INSERT INTO log (id, _ts) VALUES (1, '2020-01-01');
-- Hidden they are, whoever owns what
SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM log), stored('event'), stored('log');
-- But not reaped: either owner's trigger would run with the other's rights
CALL ttl.reap('event');
CALL ttl.reap('log');
SELECT stored('event'), stored('log');
SELECT container, rows_deleted, last_error FROM ttl.stat_containers
    WHERE container IN ('event'::regclass, 'log'::regclass) ORDER BY container::text \gx (format=unaligned)
-- But evicted: that runs as whoever inserts, and meets the triggers of both anyway
INSERT INTO event VALUES (101);
SET ROLE regress_ttl_ann;
INSERT INTO event VALUES (102);
INSERT INTO event_1 VALUES (101) ON CONFLICT DO NOTHING;
SELECT stored('event_1');
-- And a foreign key takes them along, as long as nobody's code runs by that
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int, parent int REFERENCES parent) PARTITION BY RANGE (id);
SELECT ttl.create_container('child', 10);
RESET ROLE;
SET ROLE regress_ttl_dba;
CREATE TABLE child_1 PARTITION OF child FOR VALUES FROM (0) TO (100);
SET ROLE regress_ttl_ann;
INSERT INTO parent VALUES (1), (2), (3);
INSERT INTO child (id, parent, _ts) VALUES (1, 1, '2020-01-01'), (3, 3, '2900-01-01');
DELETE FROM parent WHERE id = 1;
-- a row that nothing references is no question of owners
DELETE FROM parent WHERE id = 2;
DELETE FROM parent WHERE id = 3;
SELECT id FROM parent ORDER BY id;
-- A table between the two counts, too: its triggers are cloned as well
SET ROLE regress_ttl_dba;
CREATE TABLE event_2 PARTITION OF event FOR VALUES FROM (200) TO (300) PARTITION BY RANGE (id);
CREATE TABLE event_20 PARTITION OF event_2 FOR VALUES FROM (200) TO (210);
ALTER TABLE event_20 OWNER TO regress_ttl_ann;
SET ROLE regress_ttl_ann;
INSERT INTO event (id, _ts) VALUES (201, '2020-01-01');
CALL ttl.reap('event');
-- Attaching, and giving tables to others, remain allowed: what follows is only that nothing is deleted
SET ROLE regress_ttl_dba;
CREATE TABLE event_3 (LIKE event INCLUDING ALL);
ALTER TABLE event ATTACH PARTITION event_3 FOR VALUES FROM (300) TO (400);
ALTER TABLE event_3 OWNER TO regress_ttl_bob;
ALTER TABLE event OWNER TO regress_ttl_bob;
ALTER TABLE event OWNER TO regress_ttl_ann;

-- In a transaction block, what triggers defer would run as the role that commits
SET ROLE regress_ttl_ann;
CREATE TABLE item (id int);
SELECT ttl.create_container('item', 10);
CREATE FUNCTION tell_later() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO owners.done (what) VALUES ('later');
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER tell_later AFTER DELETE ON item DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION
    tell_later();
INSERT INTO item (id, _ts) SELECT i, '2020-01-01' FROM generate_series(1, 5) i;
RESET ROLE;
-- a member may have Ann's rows deleted, but not where she would commit with the member's rights
GRANT regress_ttl_ann TO regress_ttl_bob;
SET ROLE regress_ttl_bob;
BEGIN;
CALL ttl.reap('item', 1);
ROLLBACK;
-- a DO outside of a block commits as it goes, so nothing is deferred beyond it; a call within SELECT leaves them out
SET ROLE regress_ttl_dba;
\set VERBOSITY terse
DO $$BEGIN CALL ttl.reap('owners.item', 1); END$$;
SELECT state('CALL ttl.reap()');
CALL ttl.reap('item', 1);
-- what a member calls alone runs as the owner
SET ROLE regress_ttl_bob;
CALL ttl.reap('item', 1);
-- the owner may call it in a block: what is deferred runs as herself
SET ROLE regress_ttl_ann;
BEGIN;
CALL ttl.reap('item', 1);
COMMIT;
DO $$BEGIN CALL ttl.reap('owners.item', 1); END$$;
SET ROLE regress_ttl_dba;
-- With one owner each, all is reaped
ALTER TABLE event_1 OWNER TO regress_ttl_ann;
ALTER TABLE event_2 OWNER TO regress_ttl_ann;
ALTER TABLE event_3 OWNER TO regress_ttl_ann;
ALTER TABLE log_1 OWNER TO regress_ttl_dba;
ALTER TABLE child_1 OWNER TO regress_ttl_ann;
CALL ttl.reap('event');
CALL ttl.reap('log');
DELETE FROM parent WHERE id = 1;
SELECT stored('event'), stored('log'), stored('child');
-- each trigger has run as the owner of its table, or as who inserted
SELECT what, by_user FROM done ORDER BY id;

-- The owner of a partitioned table can detach a partition that isn't his, as without ttl.
RESET ROLE;
ALTER TABLE event_1 OWNER TO regress_ttl_bob;
SET ROLE regress_ttl_ann;
ALTER TABLE event DETACH PARTITION event_1;
RESET ROLE;
SELECT container, tgenabled, current_user = session_user AS myself FROM ttl.containers LEFT
    JOIN pg_trigger ON tgrelid = container AND tgname = '~ttl' WHERE container = 'event_1'::regclass;
-- Also if that partition's owner has no right to use the schema, nor its partition, and within a
-- command that event triggers are told of
CREATE TABLE event_8 PARTITION OF event FOR VALUES FROM (800) TO (900) PARTITION BY LIST (id);
CREATE TABLE event_8_1 PARTITION OF event_8 DEFAULT;
ALTER TABLE event_8 OWNER TO regress_ttl_bob;
ALTER TABLE event_8_1 OWNER TO regress_ttl_dba;
REVOKE ALL ON SCHEMA owners FROM regress_ttl_bob;
CREATE FUNCTION told() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN END$$;
CREATE EVENT TRIGGER regress_ttl_told ON ddl_command_end EXECUTE FUNCTION told();
SET ROLE regress_ttl_ann;
CREATE FUNCTION detach() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    ALTER TABLE owners.event DETACH PARTITION owners.event_8;
    RETURN 8;
END $$;
CREATE TABLE detached AS SELECT detach();
RESET ROLE;
DROP EVENT TRIGGER regress_ttl_told;
-- the role is what it was before, and the triggers of both levels are there
SELECT tgrelid::regclass, tgenabled, current_user = session_user AS myself FROM pg_trigger
    WHERE tgrelid IN ('event_8'::regclass, 'event_8_1'::regclass) AND tgname = '~ttl';
-- it expires as before
INSERT INTO event_8 VALUES (801);
SELECT ttl.expires_at(e) > now() AS expires FROM event_8 e;
SET client_min_messages = warning;
DROP SCHEMA owners CASCADE;
DROP ROLE regress_ttl_dba, regress_ttl_ann, regress_ttl_bob;
