-- What ttl tells people beside errors: NOTICEs, and HINTs in PostgreSQL's place
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE SCHEMA messages;
SET search_path = messages, public;

--
-- Triggers that miss their search_path
--

-- The HINT alone, which names the cause; the message is PostgreSQL's
CREATE FUNCTION hint(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ': ' || hint;
END $$;
CREATE TABLE audit (id int);
CREATE TABLE audited (id int PRIMARY KEY);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit VALUES (old.id); RETURN NULL; END';
CREATE TRIGGER audit AFTER DELETE ON audited FOR EACH ROW EXECUTE FUNCTION audit();
SELECT ttl.create_container('audited', 60);
SELECT ttl.alter_container('audited', reaping => false);
INSERT INTO audited (id, _ts) VALUES (1, '2020-01-01');

-- The reaper's deletion fails where the trigger finds no table: the HINT says which search_path it has
CALL ttl.reap('audited');
-- nor a function ...
CREATE OR REPLACE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE undefined_function; END';
CALL ttl.reap('audited');
-- ... nor a type
CREATE OR REPLACE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM old.id::no_such_type; RETURN NULL; END';
CALL ttl.reap('audited');
-- A search_path that the function itself sets is not ttl's to explain: of what a caller sets, nothing is said
ALTER FUNCTION audit() SET search_path = messages;
CALL ttl.reap('audited');
CREATE OR REPLACE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO audit VALUES (old.id); RETURN NULL; END';
CALL ttl.reap('audited');
ALTER FUNCTION audit() SET search_path = messages;
CALL ttl.reap('audited');
SELECT * FROM audit;

--
-- Triggers that are disabled, and partitions that leave
--

-- Whoever disables ttl's trigger is told what doesn't work any more, and so is whoever meets the consequence
CREATE TABLE keys (id int PRIMARY KEY);
SELECT ttl.create_container('keys', 60);
INSERT INTO keys (id, _ts) VALUES (1, '2020-01-01');
ALTER TABLE keys DISABLE TRIGGER ALL;
INSERT INTO keys VALUES (1);
INSERT INTO keys VALUES (2);
UPDATE keys SET id = 1 WHERE id = 2;
-- A failure in a statement inside of it has nothing to do with that, and gets no HINT
CREATE TABLE plain (id int PRIMARY KEY);
CREATE FUNCTION insert_plain() RETURNS int LANGUAGE sql AS 'INSERT INTO plain VALUES (3) RETURNING id';
INSERT INTO keys SELECT insert_plain() FROM generate_series(1, 2);
-- with the trigger enabled, a duplicate of a live row is PostgreSQL's error alone, and an expired row no obstacle
ALTER TABLE keys ENABLE TRIGGER ALL;
INSERT INTO keys VALUES (2);
INSERT INTO keys VALUES (1);

-- A partition that leaves is a container by itself, which is said; one that left before is a plain table
CREATE TABLE hits (day int, n int) PARTITION BY LIST (day);
CREATE TABLE hits_1 PARTITION OF hits FOR VALUES IN (1);
CREATE TABLE hits_2 PARTITION OF hits FOR VALUES IN (2);
ALTER TABLE hits DETACH PARTITION hits_1;
SELECT ttl.create_container('hits', 60);
ALTER TABLE hits DETACH PARTITION hits_2;
SELECT ttl.drop_container('hits_2');

--
-- What ttl puts into plans
--

-- A function that only plans contain says so if somebody calls it
SELECT refused('SELECT ttl.is_live(''pg_class'')');

--
-- Settings
--

-- What is no point in time is refused
SELECT refused(format('SET ttl.now = %L', value)) FROM unnest(ARRAY['soon', '12:00', 'tomorrows']) value;
-- each process would read another time
ALTER SYSTEM SET ttl.now = 'Tomorrow 12:00';

--
-- Names of columns, and default TTLs as views print them
--

-- Quotes and capitals that don't belong there are seen, and the HINT has the name as the catalog has it
CREATE TABLE camel ("createdAt" timestamptz, "updatedat" timestamptz, "expiresAt" timestamptz);
SELECT ttl.create_container('camel', 60, ts_column => '"createdAt"');
SELECT ttl.create_container('camel', 60, ts_column => 'updatedAt');
-- a column that resembles none isn't guessed
SELECT ttl.create_container('camel', 60, ts_column => 'createdAt', ttl_column => '"ttl"');
-- without any time the HINT says what is needed; with a deadline alone, which default TTL is possible
SELECT ttl.create_container('camel', 60, ts_column => NULL, ttl_column => NULL);
SELECT ttl.create_container('camel', 60, ts_column => NULL, ttl_column => 'expiresAt');

-- What views print, "off", "never" and intervals, can be given as a default TTL, in any case and of any type
SELECT ttl.create_container('camel', 'off', ts_column => 'createdAt', ttl_column => NULL);
SELECT ttl.default_ttl('camel');
SELECT ttl.set_default_ttl('camel', ' Never ');
SELECT ttl.default_ttl('camel');
SELECT ttl.set_default_ttl('camel', default_ttl) FROM (VALUES ('1 day 02:00:00'), ('off'::char(5)),
    ('never')) v (default_ttl);
SELECT default_ttl FROM ttl.status WHERE container = 'camel'::regclass;
-- nothing else that begins so
SELECT ttl.set_default_ttl('camel', 'nevermore');

-- MongoDB's command has no value to turn TTL off
SELECT ttl.create_ttl_index('camel', 'off');
-- without a default TTL nothing expires, not even by a row's own, which is said
CREATE TABLE quiet (id int);
SELECT ttl.create_container('quiet');

--
-- A trigger that is disabled, of the table or of a partition
--

CREATE TABLE part (id int, day int) PARTITION BY LIST (day);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
SELECT ttl.create_container('part', 60);
-- ttl.status calls a container damaged as long as the trigger is disabled in one partition
ALTER TABLE part_1 DISABLE TRIGGER ALL;
SELECT state FROM ttl.status WHERE container = 'part'::regclass;
ALTER TABLE part_1 ENABLE TRIGGER USER;
SELECT state LIKE 'damaged%' FROM ttl.status WHERE container = 'part'::regclass;
-- or in the partitioned table itself, from which new partitions copy it
ALTER TABLE part DISABLE TRIGGER "~ttl";
SELECT state FROM ttl.status WHERE container = 'part'::regclass;
-- where it is enabled for replicas, it isn't called damaged
ALTER TABLE part ENABLE REPLICA TRIGGER "~ttl";
SELECT state LIKE 'damaged%' FROM ttl.status WHERE container = 'part'::regclass;
-- Without it ON CONFLICT DO UPDATE fails on an expired row, also where its columns are in another order; not if it meets
-- none, and that can be told
CREATE TABLE upserted (id int PRIMARY KEY, secret text) PARTITION BY LIST (id);
CREATE TABLE upserted_1 PARTITION OF upserted FOR VALUES IN (1, 3);
CREATE TABLE upserted_2 (secret text, id int NOT NULL);
ALTER TABLE upserted ATTACH PARTITION upserted_2 FOR VALUES IN (2);
SELECT ttl.create_container('upserted', 60);
INSERT INTO upserted (id, secret, _ts) SELECT n, 'of the dead', '2020-01-01' FROM generate_series(1, 2) n;
ALTER TABLE upserted DISABLE TRIGGER "~ttl";
SELECT refused(format('INSERT INTO messages.upserted VALUES (%s) ON CONFLICT (id) DO UPDATE SET id = excluded.id', n))
FROM generate_series(1, 3) n;
SELECT id FROM upserted;
-- it doesn't while TTL is off, and none is expired
BEGIN;
SELECT ttl.set_default_ttl('upserted', NULL);
INSERT INTO upserted VALUES (2) ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING secret;
ROLLBACK;
ALTER TABLE upserted ENABLE TRIGGER "~ttl";
-- a trigger of the user's that leaves the rows out is no such case
CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER a BEFORE INSERT ON upserted FOR EACH ROW EXECUTE FUNCTION leave_out();
INSERT INTO upserted VALUES (2) ON CONFLICT (id) DO UPDATE SET id = excluded.id;
-- nor is a table that is no container
CREATE TABLE no_container (id int PRIMARY KEY) PARTITION BY LIST (id);
CREATE TABLE no_container_1 PARTITION OF no_container DEFAULT;
INSERT INTO no_container VALUES (1) ON CONFLICT (id) DO UPDATE SET id = excluded.id;
-- Triggers of the user's own are his business, and so is what a script of pg_dump disables while it loads
CREATE TRIGGER own BEFORE DELETE ON part FOR EACH ROW EXECUTE FUNCTION audit();
ALTER TABLE part DISABLE TRIGGER own;
BEGIN;
SET LOCAL row_security = off;
ALTER TABLE part DISABLE TRIGGER ALL;
ROLLBACK;

-- An error in a function of ttl has no CONTEXT, which would be its own SQL
\set SHOW_CONTEXT always
SELECT * FROM ttl.expiring('audit', '1 day');
\set SHOW_CONTEXT never
DROP TABLE camel, quiet, part;

SET client_min_messages = warning;
DROP SCHEMA messages CASCADE;
