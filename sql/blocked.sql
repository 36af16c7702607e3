-- Rows that can't be deleted, in front of rows that can: by each kind of foreign key
CREATE SCHEMA blocked;
SET search_path = blocked, public;
SET client_min_messages = warning;

-- what is stored of a table, expired or not
CREATE FUNCTION stored(c regclass) RETURNS text LANGUAGE plpgsql SET ttl.show_expired = on AS $$
DECLARE result text;
BEGIN
    EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY id) FROM %s', c) INTO result;
    RETURN result;
END $$;
CREATE VIEW stats AS SELECT container::text, rows_deleted, blocked_rows, last_error FROM ttl.stat_containers
    JOIN pg_class ON oid = container WHERE relnamespace = 'blocked'::regnamespace;

-- Several columns, NULLs, MATCH FULL, RESTRICT, a unique key that isn't the primary one: of each key the rows that are
-- referenced stay, those that a NULL leaves unreferenced go
CREATE TABLE p (id int PRIMARY KEY, a int, b text COLLATE "C", UNIQUE (a, b));
CREATE TABLE simple (a int, b text, FOREIGN KEY (a, b) REFERENCES p (a, b));
CREATE TABLE fully (a bigint, b varchar, FOREIGN KEY (a, b) REFERENCES p (a, b) MATCH FULL ON DELETE RESTRICT);
SELECT ttl.create_container('p', 3600);
INSERT INTO p (id, a, b, _ts) SELECT g, g % 3, 'b' || g, '2020-01-01' FROM generate_series(1, 9) g;
INSERT INTO p (id, a, b, _ts) VALUES (10, NULL, 'b10', '2020-01-01'), (11, 1, NULL, '2020-01-01'), (12, NULL, NULL,
    '2020-01-01');
-- rows that a foreign key would refuse now, as they are when the referenced rows have expired since
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO simple VALUES (1, 'b1'), (NULL, 'b2'), (0, NULL), (2, 'b1');
INSERT INTO fully VALUES (2, 'b2'), (NULL, NULL);
COMMIT;
SET client_min_messages = error;
CALL ttl.reap('p');
SELECT stored('p');
SELECT * FROM stats WHERE container = 'p';
-- in one batch: they are left out by asking, and not by failing
SELECT batches FROM ttl.stat_containers WHERE container = 'p'::regclass;
-- once nothing references them they go in the next call
DELETE FROM simple;
DELETE FROM fully;
CALL ttl.reap('p');
SELECT * FROM stats WHERE container = 'p';
DROP TABLE simple, fully, p;

-- Partitions on both sides, and a partition that is referenced by itself: rows that expired rows alone reference go
CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
CREATE TABLE p21 PARTITION OF p2 FOR VALUES FROM (10) TO (20);
CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p) PARTITION BY RANGE (id);
CREATE TABLE c1 PARTITION OF c FOR VALUES FROM (0) TO (10);
CREATE TABLE c2 PARTITION OF c FOR VALUES FROM (10) TO (20);
CREATE TABLE d (p int REFERENCES p21);
SELECT ttl.create_container('p', 3600);
SELECT ttl.create_container('c', 3600);
INSERT INTO p (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 19) g;
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO c (id, p, _ts) VALUES (1, 1, now()), (11, 2, '2020-01-01'), (12, 12, now()), (2, 13, '2020-01-01');
INSERT INTO d VALUES (14);
COMMIT;
CALL ttl.reap('p');
SELECT stored('p'), stored('c');
SELECT container, rows_deleted, blocked_rows FROM stats ORDER BY 1;
DROP TABLE d, c, p;

-- Keys that can't be unnested, or need care: arrays, composite types, domains, collations
CREATE TYPE pair AS (x int, y int);
CREATE DOMAIN code AS text COLLATE "C" CHECK (value <> '');
CREATE TABLE p (id int PRIMARY KEY, arr int[] UNIQUE, comp pair UNIQUE, dom code UNIQUE, ch char(8) UNIQUE);
CREATE TABLE by_array (k int[] REFERENCES p (arr));
CREATE TABLE by_composite (k pair REFERENCES p (comp));
CREATE TABLE by_domain (k text REFERENCES p (dom));
CREATE TABLE by_char (k char(8) REFERENCES p (ch), k1 int, n int, "ttl staying" int);
SELECT ttl.create_container('p', 3600);
INSERT INTO p (id, arr, comp, dom, ch, _ts) SELECT g, ARRAY[g, g], ROW(g, g)::pair, 'd' || g, 'c' || g, '2020-01-01'
    FROM generate_series(1, 8) g;
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO by_array VALUES ('{1,1}');
INSERT INTO by_composite VALUES ('(2,2)');
INSERT INTO by_domain VALUES ('d3');
INSERT INTO by_char VALUES ('c4');
COMMIT;
CALL ttl.reap('p');
SELECT stored('p');
SELECT container, rows_deleted, blocked_rows FROM stats WHERE container = 'p';
SELECT batches FROM ttl.stat_containers WHERE container = 'p'::regclass;
DROP TABLE by_array, by_composite, by_domain, by_char, p;

-- A tree with a live leaf: the way up to the root stays; also while reaping is off
CREATE TABLE tree (id int PRIMARY KEY, up int REFERENCES tree);
SELECT ttl.create_container('tree', 3600);
SELECT ttl.alter_container('tree', reaping => false);
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO tree (id, up, _ts) VALUES (1, NULL, '2020-01-01'), (2, 1, '2020-01-01'), (3, 2, '2020-01-01'), (4, 2,
    '2020-01-01'), (5, NULL, '2020-01-01'), (6, 5, '2020-01-01'), (7, 4, now());
COMMIT;
CALL ttl.reap('tree');
SELECT stored('tree');
SELECT container, rows_deleted, blocked_rows FROM stats WHERE container = 'tree';
DROP TABLE tree;

-- A chain of three: the live end holds all of it; SET NULL and CASCADE hold nothing
CREATE TABLE a (id int PRIMARY KEY);
CREATE TABLE b (id int PRIMARY KEY, a int REFERENCES a);
CREATE TABLE c (id int PRIMARY KEY, b int REFERENCES b);
CREATE TABLE n (id int PRIMARY KEY, a int REFERENCES a ON DELETE SET NULL);
SELECT ttl.create_container(t, 3600) FROM unnest('{a, b, c}'::regclass[]) t;
INSERT INTO a (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 5) g;
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO b (id, a, _ts) SELECT g, g, '2020-01-01' FROM generate_series(1, 4) g;
INSERT INTO c (id, b, _ts) VALUES (1, 1, now()), (2, 2, '2020-01-01');
INSERT INTO n VALUES (3, 3), (1, 1);
COMMIT;
CALL ttl.reap('a');
SELECT stored('a') AS a, stored('b') AS b, stored('c') AS c;
SELECT * FROM n ORDER BY id;
SELECT container, rows_deleted, blocked_rows FROM stats ORDER BY 1;
-- In a transaction the deferred check comes at COMMIT, and what it refuses is all undone
ALTER TABLE b ALTER CONSTRAINT b_a_fkey DEFERRABLE INITIALLY DEFERRED;
INSERT INTO a (id, _ts) VALUES (6, '2020-01-01');
BEGIN;
CALL ttl.reap('a');
COMMIT;
SELECT stored('a') AS a;
DROP TABLE n, c, b, a;

-- The owner of the referencing table may not read it: then the foreign key itself says no
CREATE TABLE p (id int PRIMARY KEY);
CREATE TABLE c (p int REFERENCES p);
SELECT ttl.create_container('p', 3600);
INSERT INTO p (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 3) g;
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO c VALUES (2);
COMMIT;
GRANT ALL ON SCHEMA blocked TO regress_ttl_owner;
ALTER TABLE c OWNER TO regress_ttl_owner;
CALL ttl.reap('p');
SELECT stored('p');
-- the error is told, and the row that could have gone waits with the others
INSERT INTO p (id, _ts) VALUES (4, '2020-01-01');
REVOKE SELECT ON c FROM regress_ttl_owner;
CALL ttl.reap('p');
SELECT stored('p');
SELECT rows_deleted, blocked_rows, last_error FROM stats WHERE container = 'p';

-- a trigger that repeats the reaper's statement deletes what it sees
CREATE TABLE repeated (id int PRIMARY KEY);
CREATE TABLE told (n bigint);
CREATE FUNCTION repeat_it() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE 'DELETE FROM ONLY blocked.repeated AS "ttl to delete" WHERE ctid OPERATOR(pg_catalog.=) '
        'ANY ((SELECT $1)::pg_catalog.tid[])' USING '{"(0,2)"}'::tid[];
    GET DIAGNOSTICS n = ROW_COUNT;
    INSERT INTO blocked.told VALUES (n);
    RETURN OLD;
END $$;
CREATE TRIGGER repeat_it BEFORE DELETE ON repeated FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION repeat_it();
SELECT ttl.create_container('repeated', 3600);
INSERT INTO repeated (id, _ts) VALUES (1, '2020-01-01'), (2, '2020-01-01');
CALL ttl.reap('repeated');
TABLE told;
SELECT stored('repeated');

-- many messages: three are shown, and the last is told
CREATE TABLE many (id int PRIMARY KEY);
CREATE FUNCTION raise_id() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'row % stays', OLD.id; END $$;
CREATE TRIGGER raise_id BEFORE DELETE ON many FOR EACH ROW EXECUTE FUNCTION raise_id();
SELECT ttl.create_container('many', 3600);
INSERT INTO many (id, _ts) SELECT g, timestamptz '2020-01-01' + g * interval '1 s' FROM generate_series(1, 5) g;
SET client_min_messages = warning;
CALL ttl.reap('many');
SET client_min_messages = error;
SELECT blocked_rows, last_error FROM stats WHERE container = 'many';
DROP TABLE many;
DROP FUNCTION raise_id();

-- a long message is cut where a character ends
CREATE OR REPLACE FUNCTION repeat_it() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE '%', repeat('ü', 200);
END $$;
INSERT INTO repeated (id, _ts) VALUES (1, '2020-01-01');
CALL ttl.reap('repeated');
SELECT octet_length(last_error), last_error = repeat('ü', 127) AS cut FROM stats WHERE container = 'repeated';

RESET client_min_messages;
RESET search_path;
DROP SCHEMA blocked CASCADE;
