-- What the other tests left behind does not keep the extension from going
SET client_min_messages = warning;
DROP EXTENSION ttl CASCADE;
SELECT nspname FROM pg_namespace WHERE nspname = 'ttl';

-- Nor does what ttl made, if each container is dropped first, whether or not its columns stay
CREATE EXTENSION ttl;
CREATE SCHEMA uninstall;
SET search_path = uninstall;
SELECT ttl.create_ttl_index('coll', 60) ->> 'ok' AS ok, ttl.create_ttl_index('kept', 60) ->> 'ok' AS ok;
SELECT ttl.drop_container(container, drop_columns => container = 'coll'::regclass) FROM ttl.containers;
DROP EXTENSION ttl;

-- A table that was created LIKE a container has its indexes
CREATE EXTENSION ttl;
CREATE TABLE item (id int);
SELECT ttl.create_container('item', 60);
CREATE TABLE copy (LIKE item INCLUDING ALL);
SELECT ttl.drop_container(container, drop_columns => true) FROM ttl.containers;
-- its index depends on functions of the extension, so DROP needs CASCADE, which takes that index alone
\set VERBOSITY sqlstate
DROP EXTENSION ttl;
SET client_min_messages = notice;
DROP EXTENSION ttl CASCADE;
\d copy
SET client_min_messages = warning;
DROP SCHEMA uninstall CASCADE;

-- People are told what ends with the extension, if it does
\set VERBOSITY default
CREATE EXTENSION ttl;
CREATE SCHEMA uninstall;
SET search_path = uninstall;
CREATE TABLE stays (id int);
CREATE TABLE goes (id int);
-- without a default TTL no row is hidden, so that nothing is said of this one
CREATE TABLE shows_all (id int);
SELECT ttl.create_container('stays', 60), ttl.create_container('goes', 60), ttl.create_container('shows_all');
INSERT INTO stays (id, _ts) VALUES (1, '2020-01-01');
-- the WARNING is true: what had expired is visible within the transaction, and hidden again if it is rolled back
BEGIN;
DROP EXTENSION ttl CASCADE;
SELECT id FROM stays;
ROLLBACK;
SELECT id FROM stays;
-- the schema alone doesn't go: PostgreSQL refuses what belongs to an extension
DROP SCHEMA ttl CASCADE;
-- people are told from within a function, too
BEGIN;
CREATE FUNCTION drop_it() RETURNS void LANGUAGE plpgsql AS 'BEGIN EXECUTE ''DROP EXTENSION ttl CASCADE''; END';
SELECT drop_it();
ROLLBACK;
-- The DETAIL has no more names than a line has room for, and says how many there are
BEGIN;
DO $$ BEGIN FOR i IN 1..30 LOOP EXECUTE format('CREATE TABLE t%s (id int)',
    i); PERFORM ttl.create_container(format('t%s', i)::regclass, 60); END LOOP; END $$;
DROP EXTENSION ttl CASCADE;
ROLLBACK;
DROP TABLE goes, stays;
-- With no rows hidden, nothing is said
SELECT ttl.default_ttl('shows_all');
DROP EXTENSION ttl CASCADE;
DROP SCHEMA uninstall CASCADE;
