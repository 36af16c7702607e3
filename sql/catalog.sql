-- ttl.container: nobody alters it, nor what else hiding depends on; archives form no circle
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA catalog;
SET search_path = catalog, public;
CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', 60);
INSERT INTO item (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');
CREATE FUNCTION does_nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TABLE child (LIKE ttl.container);

SELECT refused('ALTER TABLE ttl.container RENAME TO other');
SELECT c, left(refused(c), 5) FROM unnest(ARRAY[
    'ALTER TABLE ttl.container RENAME COLUMN relid TO other', 'ALTER TABLE ttl.container RENAME CONSTRAINT container_pkey TO other',
    'ALTER INDEX ttl.container_pkey RENAME TO other', 'ALTER INDEX ttl.container_pkey SET (fillfactor = 50)', 'ALTER TABLE ttl.container_pkey RENAME TO other',
    'ALTER TABLE ttl.container SET SCHEMA catalog', 'ALTER TABLE ttl.container OWNER TO CURRENT_USER',
    'ALTER TABLE ttl.container ADD COLUMN x int', 'ALTER TABLE ttl.container DROP COLUMN batch_size', 'ALTER TABLE ttl.container ALTER COLUMN indexing TYPE varchar',
    'ALTER TABLE ttl.container ALTER COLUMN reaping SET DEFAULT true', 'ALTER TABLE ttl.container ALTER COLUMN reaping DROP NOT NULL',
    'ALTER TABLE ttl.container ADD CHECK (reaping)', 'ALTER TABLE ttl.container DROP CONSTRAINT container_pkey', 'ALTER TABLE ttl.container SET UNLOGGED',
    'ALTER TABLE ttl.container ENABLE ROW LEVEL SECURITY', 'ALTER TABLE ttl.container FORCE ROW LEVEL SECURITY', 'ALTER TABLE ttl.container REPLICA IDENTITY FULL',
    'ALTER TABLE ttl.container INHERIT catalog.child', 'ALTER TABLE catalog.child INHERIT ttl.container', 'CREATE TABLE catalog.x () INHERITS (ttl.container)',
    'ALTER TABLE ttl.container DISABLE RULE x', 'ALTER TABLE ttl.container DISABLE TRIGGER ALL, ADD COLUMN x int', 'ALTER TABLE IF EXISTS ONLY ttl.container SET (autovacuum_enabled = off)',
    'CREATE TRIGGER x BEFORE INSERT ON ttl.container FOR EACH ROW EXECUTE FUNCTION catalog.does_nothing()', 'DROP TRIGGER restore ON ttl.container', 'ALTER TRIGGER restore ON ttl.container RENAME TO x',
    'CREATE RULE x AS ON INSERT TO ttl.container DO INSTEAD NOTHING', 'CREATE POLICY x ON ttl.container USING (false)', 'CREATE INDEX ON ttl.container ((1 / 0))',
    'DROP TABLE ttl.container CASCADE', 'DROP INDEX ttl.container_pkey',
    'ALTER FUNCTION ttl.is_live(regclass, timestamptz, "any") RENAME TO other', 'ALTER ROUTINE ttl.on_write() SET SCHEMA catalog', 'ALTER FUNCTION ttl.is_live(regclass, timestamptz, "any") STRICT',
    'CREATE OR REPLACE FUNCTION ttl.item_ttl(ttl bigint) RETURNS integer LANGUAGE sql AS ''SELECT 1''', 'DROP FUNCTION ttl.item_expiry(timestamptz, integer)',
    'ALTER EXTENSION ttl DROP TABLE ttl.container', 'ALTER EXTENSION ttl DROP FUNCTION ttl.on_write()', 'ALTER EXTENSION ttl SET SCHEMA catalog',
    'ALTER SCHEMA ttl RENAME TO other', 'DROP SCHEMA ttl CASCADE']) c;
-- by the search_path, too
SET search_path = ttl, catalog, public;
SELECT c, left(public.refused(c), 5) FROM unnest(ARRAY['ALTER TABLE container RENAME TO other', 'ALTER FUNCTION on_write() RENAME TO other',
    'CREATE OR REPLACE FUNCTION item_ttl(ttl bigint) RETURNS integer LANGUAGE sql AS ''SELECT 1''']) c;
SET search_path = catalog, public;
-- What changes nothing that counts, and what bears another name, goes through
CREATE TABLE container (id int);
ALTER TABLE container RENAME TO renamed;
CREATE FUNCTION item_ttl(bigint) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE OR REPLACE FUNCTION item_ttl(bigint) RETURNS int LANGUAGE sql AS 'SELECT 2';
ALTER FUNCTION item_ttl(bigint) RENAME TO renamed;
COMMENT ON TABLE ttl.container IS 'tables with Time-To-Live; only functions of schema ttl write it';
GRANT SELECT ON ttl.container TO PUBLIC;
GRANT EXECUTE ON FUNCTION ttl.is_live(regclass) TO PUBLIC;
ALTER TABLE ttl.container DISABLE TRIGGER ALL;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'ttl.container'::regclass ORDER BY tgname;
ANALYZE ttl.container;
VACUUM FULL ttl.container;
SELECT id FROM item;

--
-- Archives
--

CREATE TABLE a (id int);
CREATE TABLE b (id int);
CREATE TABLE c (id int) PARTITION BY LIST (id);
CREATE TABLE c_1 PARTITION OF c FOR VALUES IN (1);
CREATE TABLE d (id int);
SELECT ttl.create_container(t, 60) FROM unnest('{a, b, c}'::regclass[]) t;
SELECT ttl.alter_container('a', archive_to => 'b');
SELECT refused('SELECT ttl.alter_container(''a'', archive_to => ''a'')');
SELECT refused('SELECT ttl.alter_container(''b'', archive_to => ''a'')');
SELECT ttl.alter_container('b', archive_to => 'c_1');
SELECT refused('SELECT ttl.alter_container(''c'', archive_to => ''a'')');
SELECT refused('SELECT ttl.alter_container(''c'', archive_to => ''c_1'')');
SELECT ttl.alter_container('b', archive_to => 'd');
SELECT ttl.alter_container('c', archive_to => 'a');
-- one that becomes part of the first container
SELECT refused('ALTER TABLE catalog.c ATTACH PARTITION catalog.d FOR VALUES IN (2)');
SELECT ttl.alter_container('b', archive_to => 0);
ALTER TABLE c ATTACH PARTITION d FOR VALUES IN (2);
SELECT refused('SELECT ttl.alter_container(''b'', archive_to => ''d'')');

--
-- Policies of tables that are gone
--

-- Nothing is restored of one, nor taken for another table's
CREATE TABLE other (id int, _ts timestamptz);
INSERT INTO other VALUES (1, '2020-01-01');
SET client_min_messages = warning;
INSERT INTO ttl.container (relid, default_time_to_live, ts_column, ttl_column, indexing, touch_on_update, reaping, reap_delay)
VALUES (4294967295, 60, '_ts', 'ttl', 'consistent', true, true, '0'), ('other', 60, '_ts', 'ttl', 'consistent', true, true, '0');
SELECT count(*) FROM other;
SELECT container FROM ttl.containers WHERE container IN ('4294967295', 'other');
INSERT INTO ttl.container (relid, default_time_to_live, ts_column, indexing, touch_on_update, reaping, reap_delay, archive_to, archive_columns)
VALUES ('other', 60, '_ts', 'none', true, true, '0', 4294967295, '{id}');
SELECT reaping, archive_to, archive_columns FROM ttl.container WHERE relid = 'other'::regclass;
SELECT refused('SELECT ttl.drop_container(4294967295)');

DROP SCHEMA catalog CASCADE;
