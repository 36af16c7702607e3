-- ttl.container: nothing of the extension is dropped; policies of tables that are gone
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA catalog;
SET search_path = catalog, public;
CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', 60);
INSERT INTO item (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');

-- No object of the extension is dropped, moved or renamed, whatever depends on it
SELECT c, left(refused(c), 5) FROM unnest(ARRAY[
    'DROP TABLE ttl.container CASCADE', 'DROP INDEX ttl.container_pkey',
        'DROP FUNCTION ttl.item_expiry(timestamptz, integer)',
    'ALTER EXTENSION ttl SET SCHEMA catalog', 'ALTER SCHEMA ttl RENAME TO other', 'DROP SCHEMA ttl CASCADE']) c;
-- its triggers stay what they are in a script of pg_dump --disable-triggers
ALTER TABLE ttl.container DISABLE TRIGGER ALL;
SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'ttl.container'::regclass ORDER BY tgname;
-- and what they call is a trigger of no other table
CREATE TABLE not_ours (id int);
CREATE TRIGGER t BEFORE INSERT ON not_ours FOR EACH ROW EXECUTE FUNCTION ttl.restore_container();
SELECT refused('INSERT INTO catalog.not_ours VALUES (1)');
-- maintenance of the catalog is allowed, and afterwards policies hold
ANALYZE ttl.container;
VACUUM FULL ttl.container;
SELECT id FROM item;

--
-- Policies of tables that are gone
--

-- Nothing is restored of one, nor taken for another table's
CREATE TABLE other (id int, _ts timestamptz);
INSERT INTO other VALUES (1, '2020-01-01');
SET client_min_messages = warning;
INSERT INTO ttl.container (relid, default_time_to_live, ts_column, ttl_column, indexing, touch_on_update, reaping,
    reap_delay)
VALUES (4294967295, 60, '_ts', 'ttl', 'consistent', true, true, '0'), ('other', 60, '_ts', 'ttl', 'consistent', true,
    true, '0');
SELECT count(*) FROM other;
SELECT container FROM ttl.containers WHERE container IN ('4294967295', 'other');
-- with no entry, there is nothing to drop, either
SELECT refused('SELECT ttl.drop_container(4294967295)');
-- nor of a view, and no archive that is gone: another table might get its number
CREATE TABLE strict (id int, _ts timestamptz, until timestamptz);
CREATE VIEW looks_like AS SELECT id, _ts, NULL::int AS ttl FROM other;
INSERT INTO ttl.container (relid, default_time_to_live, ts_column, ttl_column, indexing, touch_on_update, reaping,
    reap_delay)
VALUES ('looks_like', 60, '_ts', 'ttl', 'consistent', true, true, '0');
-- the policy is restored without the archive, and nothing is deleted: it would be lost
INSERT INTO ttl.container (relid, default_time_to_live, ts_column, indexing, touch_on_update, reaping, reap_delay,
    archive_to)
VALUES ('other', 60, '_ts', 'none', true, true, '0', 4294967295);
SELECT relid, reaping, archive_to FROM ttl.container WHERE relid IN ('looks_like'::regclass, 'other'::regclass);
-- nor what no function of ttl stores
SELECT refused(format('INSERT INTO ttl.container (relid, default_time_to_live, ts_column, indexing, touch_on_update, '
    'reaping, reap_delay, ts_precision, ttl_unit) VALUES (''catalog.strict'', %s)', v))
FROM unnest('{"0, ''_ts'', ''none'', true, true, ''0'', NULL, NULL", '
    '"60, ''_ts'', ''lazy'', true, true, ''0'', NULL, NULL", '
    '"60, ''_ts'', ''none'', true, true, ''-1 s'', NULL, NULL", '
    '"60, ''_ts'', ''none'', true, true, ''0'', ''-1 s'', NULL", '
    '"60, ''_ts'', ''none'', true, true, ''0'', NULL, ''minutes''"}'::text[]) v;
-- nor a default TTL for rows that have deadlines alone, although the table has the column
\set VERBOSITY default
INSERT INTO ttl.container (relid, default_time_to_live, ttl_column, indexing, touch_on_update, reaping, reap_delay)
VALUES ('strict', 60, 'until', 'none', true, true, '0');
\set VERBOSITY terse
SELECT count(*) FROM ttl.containers WHERE container = 'strict'::regclass;
-- Who restores a dump, which uses COPY, hears that nothing is deleted yet, and how it will be
\set VERBOSITY default
\set SHOW_CONTEXT never
COPY ttl.container (relid, default_time_to_live, ts_column, indexing, touch_on_update, reaping, reap_delay) FROM stdin;
strict	60	_ts	none	t	t	0
\.
-- and what no function stores is no matter of privileges there, either
COPY ttl.container (relid, default_time_to_live, ts_column, indexing, touch_on_update, reaping, reap_delay) FROM stdin;
strict	0	_ts	none	t	t	0
\.
\unset SHOW_CONTEXT
\set VERBOSITY terse
SELECT ttl.drop_container('strict');

--
-- The first statement of a session
--

-- It looks in one index; neither ttl.container nor catalogs without a cache are opened for a plain table
CREATE TABLE plain (id int PRIMARY KEY);
CREATE TABLE kept (id int PRIMARY KEY);
SELECT ttl.create_container('kept', 60);
\c -
SELECT count(*) FROM catalog.plain;
SELECT ident FROM pg_backend_memory_contexts WHERE name = 'index info' AND ident ~ '^(container|pg_depend)'
    ORDER BY ident COLLATE "C";
-- and for a container in no index of such a catalog either; constraints of ttl.container would be read, too
SELECT count(*) FROM catalog.kept;
SELECT ident FROM pg_backend_memory_contexts WHERE name = 'index info' AND
    ident ~ '^(container|pg_depend)' ORDER BY ident COLLATE "C";
SELECT relchecks FROM pg_class WHERE oid = 'ttl.container'::regclass;
SET client_min_messages = warning;

DROP SCHEMA catalog CASCADE;
