-- Expired rows that reference what a user deletes or renumbers go with it:
-- nobody is stopped by a row that nobody sees
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA referencing;
GRANT USAGE ON SCHEMA referencing TO regress_ttl_owner, regress_ttl_user;
SET search_path = referencing, public;

-- RESTRICT has an SQLSTATE of its own since PostgreSQL 18
CREATE FUNCTION tried(statement text) RETURNS text LANGUAGE sql AS $$
    SELECT replace(public.state(statement), '23001', '23503')
$$;

-- What a container has lost to statements, as the views count it
CREATE FUNCTION evicted(c regclass) RETURNS bigint LANGUAGE sql AS $$
    SELECT rows_evicted FROM ttl.stat_containers WHERE container = c
$$;

-- A parent that is no container; each child references parent 1 by expired rows
-- alone, 2 by a live one, too, 3 not at all
CREATE TABLE p (id int PRIMARY KEY, a int, b text, UNIQUE (a, b));
CREATE TABLE plain (id int PRIMARY KEY, p int REFERENCES p);
CREATE TABLE restricted (id int PRIMARY KEY, p int REFERENCES p ON DELETE RESTRICT ON UPDATE RESTRICT);
CREATE TABLE deferred (id int PRIMARY KEY, p int REFERENCES p DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE "Odd x WHERE $1" (id int PRIMARY KEY, "B ""b" varchar, a bigint, FOREIGN KEY (a, "B ""b") REFERENCES p (a,
    b) MATCH FULL);
CREATE TABLE parted (id int PRIMARY KEY, p int REFERENCES p) PARTITION BY RANGE (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (20);
CREATE TABLE parted2 (p int, id int NOT NULL);
ALTER TABLE parted ATTACH PARTITION parted2 FOR VALUES FROM (20) TO (100);
SELECT ttl.create_container(t, 60) FROM unnest(ARRAY['plain', 'restricted', 'deferred', '"Odd x WHERE $1"',
    'parted']::regclass[]) t;
CREATE PROCEDURE refill(child regclass) LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE p CASCADE;
    INSERT INTO p SELECT i, i, i FROM generate_series(1, 3) i;
    IF child = '"Odd x WHERE $1"'::regclass THEN
        INSERT INTO "Odd x WHERE $1" (id, a, "B ""b", _ts) VALUES (11, 1, '1', '2020-01-01'), (12, 1, '1',
            '2020-01-01'), (21, 2, '2', '2020-01-01'), (22, 2, '2', '3000-01-01');
    ELSE
        EXECUTE format('INSERT INTO %s (id, p, _ts, ttl) VALUES (11, 1, ''2020-01-01'', NULL), (32, 1, ''2020-01-01'', '
            '5), (21, 2, ''2020-01-01'', NULL), (22, 2, ''2020-01-01'', -1)', child);
    END IF;
    SET CONSTRAINTS ALL IMMEDIATE;
    SET CONSTRAINTS ALL DEFERRED;
END $$;

-- Each statement on each parent, from a fresh state: the result, and which children are left
CREATE FUNCTION try(child regclass) RETURNS TABLE (statement text, parent int, result text,
    left_over text) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH statement IN ARRAY '{DELETE FROM p WHERE id = %1$s, "UPDATE p SET id = id + 10, a = a + 10 WHERE id = '
        '%1$s", DELETE FROM p WHERE id <= %1$s}'::text[] LOOP
        CALL refill(child);
        FOREACH parent IN ARRAY '{1, 2, 3}'::int[] LOOP
            result := tried(format(statement || '; SET CONSTRAINTS ALL IMMEDIATE', parent));
            left_over := (SELECT string_agg(s, ' ') FROM stored(child) s);
            RETURN NEXT;
        END LOOP;
    END LOOP;
END $$;

-- Each kind of key: done but for parent 2, and only the expired children go that the statement concerned
SELECT * FROM try('plain');
SELECT * FROM try('restricted');
SELECT * FROM try('deferred');
SELECT * FROM try('"Odd x WHERE $1"');
SELECT * FROM try('parted');

-- A type that has no operator of its own, so that the foreign key's parameters are cast
CREATE TABLE p_text (code varchar PRIMARY KEY);
CREATE TABLE child_text (id int PRIMARY KEY, code varchar REFERENCES p_text);
SELECT ttl.create_container('child_text', 60);
INSERT INTO p_text VALUES ('a'), ('b');
INSERT INTO child_text (id, code, _ts) VALUES (1, 'a', '2020-01-01'), (2, 'b', '3000-01-01');
SELECT code, tried(format('DELETE FROM p_text WHERE code = %L', code)) FROM unnest('{a, b}'::text[]) code;
SELECT * FROM stored('child_text');

-- They count as evicted: so it is seen what went by statements rather than by the reaper
SELECT evicted('plain') AS plain, evicted('parted') AS parted;

-- What comes to nothing leaves them stored
CALL refill('plain');
BEGIN;
DELETE FROM p WHERE id = 1;
ROLLBACK;
SELECT * FROM stored('plain');

-- What is deferred to the end depends on what the key references then: a new parent spares them
CALL refill('deferred');
BEGIN;
DELETE FROM p WHERE id = 1;
SELECT count(*) FROM stored('deferred');
INSERT INTO p VALUES (1, 1, 1);
COMMIT;
SELECT count(*) FROM stored('deferred');
-- none, and they go at COMMIT
BEGIN;
DELETE FROM p WHERE id = 1;
SELECT count(*) FROM stored('deferred');
COMMIT;
SELECT count(*) FROM stored('deferred');

-- An eviction's, too: the new row is there when the key is checked
CREATE TABLE evicted_up (id int PRIMARY KEY);
CREATE TABLE evicted_down (id int PRIMARY KEY, up int REFERENCES evicted_up DEFERRABLE INITIALLY DEFERRED);
SELECT ttl.create_container(t, 60) FROM unnest('{evicted_up, evicted_down}'::regclass[]) t;
INSERT INTO evicted_up VALUES (1), (2);
INSERT INTO evicted_down (id, up, _ts) VALUES (11, 1, '2020-01-01'), (21, 2, '2020-01-01');
SET ttl.touch = off;
UPDATE evicted_up SET _ts = '2020-01-01';
RESET ttl.touch;
INSERT INTO evicted_up VALUES (1);
SELECT * FROM stored('evicted_down');
-- checked at once, it isn't yet
BEGIN;
SET CONSTRAINTS ALL IMMEDIATE;
INSERT INTO evicted_up VALUES (2);
COMMIT;
SELECT * FROM stored('evicted_down');

-- Only rows go that have expired by the server's clock and are hidden: neither what ttl.now alone hides, nor what it
-- shows, nor what the policy of the moment keeps
CALL refill('plain');
UPDATE plain SET _ts = '2020-01-01' WHERE id = 22;
SET ttl.now = '3001-01-01';
SELECT tried('DELETE FROM p WHERE id = 2');
SET ttl.now = '2001-01-01';
SELECT tried('DELETE FROM p WHERE id = 1');
RESET ttl.now;
SELECT ttl.set_default_ttl('plain', NULL);
SELECT tried('DELETE FROM p WHERE id = 1');
SELECT ttl.set_default_ttl('plain', -1);
SELECT tried('DELETE FROM p WHERE id = 1');
SELECT ttl.set_default_ttl('plain', 60);

-- With row_security = off the owner sees them, and so do foreign keys; ttl.show_expired
-- doesn't concern foreign keys
SET row_security = off;
SELECT tried('DELETE FROM p WHERE id = 1');
RESET row_security;
SELECT count(*) FROM stored('plain');
SET ttl.show_expired = on;
SELECT tried('DELETE FROM p WHERE id = 1');
RESET ttl.show_expired;
SELECT count(*) FROM stored('plain');

-- SET NULL and SET DEFAULT are no reason to delete anything
CREATE TABLE mild (id int PRIMARY KEY, p int DEFAULT 3 REFERENCES p ON DELETE SET NULL ON UPDATE SET DEFAULT);
SELECT ttl.create_container('mild', 60);
CALL refill('mild');
DELETE FROM p WHERE id = 1;
UPDATE p SET id = 4 WHERE id = 2;
SELECT * FROM stored('mild');

-- MERGE, a writable CTE, and a cascade that leads there are DELETEs like others
CREATE TABLE top (id int PRIMARY KEY);
INSERT INTO top VALUES (1);
ALTER TABLE p ADD top int REFERENCES top ON DELETE CASCADE;
CALL refill('plain');
MERGE INTO p USING (VALUES (1)) v (id) ON p.id = v.id WHEN MATCHED THEN DELETE;
SELECT count(*) FROM stored('plain');
CALL refill('plain');
WITH gone AS (DELETE FROM p WHERE id = 1 RETURNING id) SELECT id FROM gone;
SELECT count(*) FROM stored('plain');
CALL refill('plain');
UPDATE p SET top = 1 WHERE id = 1;
DELETE FROM top;
SELECT count(*) FROM stored('plain');

-- Many, for which the plans of the foreign key's queries are kept
TRUNCATE p CASCADE;
INSERT INTO p SELECT i, i, i FROM generate_series(1, 1000) i;
INSERT INTO plain (id, p, _ts) SELECT i, (i + 1) / 2, '2020-01-01' FROM generate_series(1, 1800) i;
DELETE FROM p;
SELECT count(*) FROM stored('plain');
TRUNCATE p CASCADE;

-- Triggers and archive, as the user, for all belongs to one owner; what references them in turn
CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p, next int REFERENCES c);
CREATE TABLE d (id int PRIMARY KEY, c int REFERENCES c, secret text);
CREATE TABLE archive (id int, p int, next int);
CREATE TABLE log (who name, what text);
GRANT INSERT ON log TO regress_ttl_owner;

-- Records as whom it has fired
CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO referencing.log VALUES (current_user, TG_OP || ' ' || TG_TABLE_NAME || ' ' || OLD.id);
    RETURN OLD;
END $$;
CREATE TRIGGER log AFTER DELETE ON c FOR EACH ROW EXECUTE FUNCTION log();
CREATE TRIGGER log BEFORE DELETE ON d FOR EACH ROW EXECUTE FUNCTION log();
SELECT ttl.create_container(t, 60) FROM unnest('{c, d}'::regclass[]) t;
ALTER TABLE archive OWNER TO regress_ttl_owner;
ALTER TABLE p OWNER TO regress_ttl_owner;
ALTER TABLE c OWNER TO regress_ttl_owner;
ALTER TABLE d OWNER TO regress_ttl_owner;
GRANT INSERT ON log TO regress_ttl_user;
SELECT ttl.alter_container('c', archive_to => 'archive');
SELECT ttl.alter_container('c', reaping => false);
CREATE PROCEDURE refill_chain() LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE referencing.p CASCADE;
    TRUNCATE referencing.log, referencing.archive;
    INSERT INTO referencing.p SELECT i, i, i FROM generate_series(1, 4) i;
    INSERT INTO referencing.c (id, p, next) VALUES (11, 1, 12), (12, NULL, 11), (13, 1, 13), (21, 2, NULL), (22, NULL,
        21);
    INSERT INTO referencing.d (id, c, secret, _ts) VALUES (1, 11, 'x', '2020-01-01'), (2, 13, 'x', '2020-01-01'), (3,
        22, 'x', '3000-01-01');
    PERFORM set_config('ttl.touch', 'off', true);
END $$;

-- Ageing is a transaction of its own, or the keys would be checked again
CREATE PROCEDURE age_chain() LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL ttl.touch = off;
    UPDATE referencing.c SET _ts = '2020-01-01';
END $$;

-- A user who may only delete parents: rows of all levels go, triggers fire as him, the archive gets what has gone
CALL refill_chain();
CALL age_chain();
GRANT SELECT, UPDATE, DELETE ON p TO regress_ttl_user;
SET ROLE regress_ttl_user;
DELETE FROM referencing.p WHERE id = 1;
RESET ROLE;
SELECT * FROM stored('c');
SELECT * FROM stored('d');
SELECT nullif(who, session_user) AS who_else, what FROM log ORDER BY what COLLATE "C";
SELECT id, p FROM archive ORDER BY id;

-- A live row at the end of the chain: the user learns no value of what is gone
SET ROLE regress_ttl_user;
SELECT replace(refused('DELETE FROM referencing.p WHERE id = 2'), '23001', '23503');
SELECT replace(refused('UPDATE referencing.p SET id = 9 WHERE id = 2'), '23001', '23503');
RESET ROLE;
-- the owner does
SELECT replace(refused('DELETE FROM referencing.p WHERE id = 2'), '23001', '23503');
SELECT * FROM stored('c');

-- A trigger that keeps a row: it stays, and so does what it references
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION keep();
SELECT tried('DELETE FROM referencing.p WHERE id = 2');
DROP TRIGGER keep ON c;

-- One that renews it instead sees as little of it as anybody
CREATE FUNCTION renew() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN UPDATE referencing.c SET p = p WHERE id = OLD.id; RETURN NULL; END';
CREATE TRIGGER renew BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION renew();
SELECT tried('DELETE FROM referencing.p WHERE id = 2');
DROP TRIGGER renew ON c;

-- A trigger that fails: the error is the statement's
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no'; END$$;
CREATE TRIGGER fail BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION fail();
SELECT tried('DELETE FROM referencing.p WHERE id = 2');
DROP TRIGGER fail ON c;

-- Of the failed attempts, nothing is gone
SELECT count(*) FROM stored('c');

-- The reaper takes only what it may: reaping is off for c
ALTER TABLE p OWNER TO CURRENT_USER;
ALTER TABLE c OWNER TO CURRENT_USER;
ALTER TABLE d OWNER TO CURRENT_USER;
ALTER TABLE archive OWNER TO CURRENT_USER;
SELECT ttl.create_container('p', 60, touch_on_update => false);
CALL refill_chain();
CALL age_chain();
DELETE FROM d WHERE id = 3;
UPDATE p SET _ts = '2020-01-01' WHERE id = 1;
SET client_min_messages = error;
CALL ttl.reap('p');
SELECT count(*) FROM stored('c');
-- a delay that lasts is no different
SELECT ttl.alter_container('c', reaping => true, reap_delay => '100 years');
CALL ttl.reap('p');
SELECT count(*) FROM stored('c');
-- without either, what hangs together goes, and no more
SELECT ttl.alter_container('c', reap_delay => '0');
CALL ttl.reap('p');
SET client_min_messages = warning;
SELECT * FROM stored('c');

-- Partitioned on either side
CREATE TABLE pp (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE pp1 PARTITION OF pp FOR VALUES FROM (0) TO (10);
CREATE TABLE pp2 PARTITION OF pp FOR VALUES FROM (10) TO (20);
CREATE TABLE cp (id int PRIMARY KEY, pp int REFERENCES pp) PARTITION BY RANGE (id);
CREATE TABLE cp1 PARTITION OF cp FOR VALUES FROM (0) TO (10);
CREATE TABLE cp2 PARTITION OF cp FOR VALUES FROM (10) TO (20);
SELECT ttl.create_container('cp', 60);

-- An expired row goes from each partition that references the row, whichever of the tables is named
INSERT INTO pp VALUES (1), (2), (11), (12);
INSERT INTO cp (id, pp, _ts) SELECT 10 * k + row_number() OVER (PARTITION BY k ORDER BY pp.id), pp.id, '2020-01-01'
    FROM pp, generate_series(0, 1) k;
DELETE FROM pp WHERE id = 1;
DELETE FROM pp2 WHERE id = 11;
SELECT * FROM stored('cp');
-- a change of the key to another value of the partition, too
UPDATE pp SET id = 19 WHERE id = 2;
UPDATE pp SET id = 18 WHERE id = 12;
SELECT * FROM stored('cp');

-- Circles and long chains within one table
CREATE TABLE ring (id int PRIMARY KEY, next int REFERENCES ring);
SELECT ttl.create_container('ring', 60);
CREATE PROCEDURE age_ring() LANGUAGE sql AS $$
    SET LOCAL ttl.touch = off;
    UPDATE referencing.ring SET _ts = '2020-01-01' WHERE id > 1;
$$;

-- Of a circle, a live row holds what it references; row 4 references itself and isn't reached
INSERT INTO ring (id, next) VALUES (1, NULL), (2, 1), (3, 2), (4, 4), (5, 4);
UPDATE ring SET next = 3 WHERE id = 1;
CALL age_ring();
DELETE FROM ring;
SELECT * FROM stored('ring');
-- a chain of 2000 goes at once
INSERT INTO ring (id, next, _ts) SELECT i, nullif(i - 1, 0), CASE i WHEN 1 THEN '3000-01-01' ELSE clock_timestamp() END
    FROM generate_series(1, 2000) i;
CALL age_ring();
DELETE FROM ring;
SELECT * FROM stored('ring');

-- Many go ten thousand by ten thousand, but for those that are kept
CREATE TABLE crowd (id int, p int REFERENCES p);
SELECT ttl.create_container('crowd', 60);
CREATE TABLE told (rows bigint);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO referencing.told SELECT count(*) FROM gone;
    RETURN NULL;
END $$;
CREATE TRIGGER tell AFTER DELETE ON crowd REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION tell();

-- The statement trigger tells how many at a time
INSERT INTO p VALUES (100), (101);
INSERT INTO crowd (id, p, _ts) SELECT i, 100, '2020-01-01' FROM generate_series(1, 20001) i;
DELETE FROM p WHERE id = 100;
SELECT * FROM told;
-- if a trigger keeps them, the statement fails instead of trying for ever
CREATE TRIGGER keep BEFORE DELETE ON crowd FOR EACH ROW EXECUTE FUNCTION keep();
INSERT INTO crowd (id, p, _ts) SELECT i, 101, '2020-01-01' FROM generate_series(1, 20001) i;
SELECT tried('DELETE FROM p WHERE id = 101');

-- Keys whose parameter the foreign key's query casts
CREATE DOMAIN number AS int;
CREATE TYPE colour AS ENUM ('red', 'green');
CREATE TABLE casts (keys regtype, result text);

-- The deletion works for each type whose equality the foreign key takes from another one
DO $$
DECLARE
    t regtype;
BEGIN
    FOREACH t IN ARRAY '{number, colour, varchar, int[]}'::regtype[] LOOP
        EXECUTE format('CREATE TABLE pk (k %1$s PRIMARY KEY); CREATE TABLE fk (id int PRIMARY KEY, k %1$s REFERENCES '
            'pk)', t);
        PERFORM ttl.create_container('fk', 60);
        EXECUTE format('INSERT INTO pk SELECT %1$L::%2$s; INSERT INTO fk (id, k, _ts) SELECT 1, k, ''2020-01-01'' FROM '
            'pk', CASE t WHEN 'colour'::regtype THEN 'red' WHEN 'int[]'::regtype THEN '{1}' ELSE '1' END, t);
        INSERT INTO casts SELECT t, tried('DELETE FROM pk');
        DROP TABLE fk, pk;
    END LOOP;
END $$;
TABLE casts;

-- Where foreign keys' triggers don't fire, an eviction honours them all the same
CREATE TABLE e (id int PRIMARY KEY);
CREATE TABLE e_cascade (id int PRIMARY KEY, e int REFERENCES e ON DELETE CASCADE);
CREATE TABLE e_null (id int PRIMARY KEY, e int REFERENCES e ON DELETE SET NULL);
CREATE TABLE e_plain (id int PRIMARY KEY, e int REFERENCES e);
CREATE TABLE fired (what text);

-- Which of the user's triggers fire, by their setting for replicas
CREATE FUNCTION fired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO referencing.fired VALUES (TG_NAME || ' ' || TG_OP || ' ' || coalesce(OLD.id, NEW.id));
    RETURN coalesce(NEW, OLD);
END $$;
CREATE TRIGGER origin BEFORE INSERT OR DELETE ON e FOR EACH ROW EXECUTE FUNCTION fired();
CREATE TRIGGER replica BEFORE INSERT OR DELETE ON e FOR EACH ROW EXECUTE FUNCTION fired();
CREATE TRIGGER always BEFORE INSERT OR DELETE ON e FOR EACH ROW EXECUTE FUNCTION fired();
SELECT ttl.create_container(t, 60) FROM unnest('{e, e_plain}'::regclass[]) t;
INSERT INTO e (id) SELECT generate_series(1, 3);
ALTER TABLE e ENABLE REPLICA TRIGGER replica, ENABLE ALWAYS TRIGGER always;
INSERT INTO e_cascade VALUES (1, 1);
INSERT INTO e_null VALUES (1, 1);
INSERT INTO e_plain (id, e, _ts) VALUES (1, 1, '2020-01-01'), (2, 2, '3000-01-01');
SET ttl.touch = off;
UPDATE e SET _ts = '2020-01-01';
RESET ttl.touch;
TRUNCATE fired;

-- A key is taken: what references it goes, is set to NULL, or forbids it, as on the publisher
SET session_replication_role = replica;
INSERT INTO e (id, _ts) VALUES (1, '3000-01-01');
SELECT tried('INSERT INTO e (id, _ts) VALUES (2, ''3000-01-01'')');
-- by an UPDATE, too
UPDATE e SET id = 3 WHERE id = 1;
SHOW session_replication_role;
RESET session_replication_role;
-- those of the user's triggers have fired that do on a replica, for rows that were evicted, too
SELECT * FROM fired;
SELECT * FROM e_cascade;
SELECT * FROM e_null;
SELECT * FROM stored('e_plain');
SELECT * FROM stored('e');

DROP SCHEMA referencing CASCADE;
