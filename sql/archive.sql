-- Deleted rows that move to an archive: all of a row, unless its owner has said
-- that part of it will do
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA archive;
SET search_path = archive, public;
SET statement_timeout = '100s';

CREATE TABLE item (id int PRIMARY KEY, x text, gone int, doubled int GENERATED ALWAYS AS (id * 2) STORED);
ALTER TABLE item DROP COLUMN gone;
SELECT ttl.create_container('item', 60);
CREATE VIEW policy AS SELECT archive_to, archive_columns FROM ttl.container WHERE relid = 'archive.item'::regclass;
CREATE VIEW stats AS SELECT rows_deleted, rows_evicted, rows_archived, blocked_rows, last_error FROM ttl.stat_containers WHERE container = 'archive.item'::regclass;

-- An archive lacks a column
CREATE TABLE narrow (id int, doubled int);
SELECT refused('SELECT ttl.alter_container(''archive.item'', archive_to => ''archive.narrow'')');
TABLE policy;
-- or makes it itself
CREATE TABLE making (id int, doubled int, x text GENERATED ALWAYS AS ('made') STORED);
SELECT refused('SELECT ttl.alter_container(''archive.item'', archive_to => ''archive.making'')');
-- or it is a container that sets it
CREATE TABLE setting (id int, x timestamptz NOT NULL DEFAULT now(), doubled int);
SELECT ttl.create_container('setting', -1, 'x');
SELECT refused('SELECT ttl.alter_container(''archive.item'', archive_to => ''archive.setting'')');
DROP TABLE making, setting;
-- What to take along
SELECT refused('SELECT ttl.alter_container(''archive.item'', archive_columns => ''{id}'')');
SELECT refused(format('SELECT ttl.alter_container(''archive.item'', archive_to => ''archive.narrow'', archive_columns => %L)', columns))
  FROM unnest('{"{id,x}","{id,gone}","{id,ctid}","{id,id}","{id,NULL}","{{id,x}}","{ID}","{...}"}'::text[]) columns;
TABLE policy;
SELECT ttl.alter_container('item', archive_to => 'narrow', archive_columns => '{id}');
TABLE policy;
INSERT INTO item (id, x, _ts) VALUES (1, 'one', '2020-01-01'), (2, 'two', '2020-01-01');
INSERT INTO item (id, x) VALUES (1, 'anew');
CALL ttl.reap('item');
TABLE narrow ORDER BY id;
TABLE stats;
-- stays as it is with another archive, goes with the last, and with '{}'
CREATE TABLE other (id int);
SELECT ttl.alter_container('item', archive_to => 'other');
TABLE policy;
SELECT refused('SELECT ttl.alter_container(''archive.item'', archive_columns => ''{}'')');
CREATE TABLE wide (LIKE item INCLUDING GENERATED, more text DEFAULT 'default');
SELECT ttl.alter_container('item', archive_to => 'wide', archive_columns => '{}');
TABLE policy;
SELECT ttl.alter_container('item', archive_columns => '{x}');
SELECT ttl.alter_container('item', archive_to => 0);
TABLE policy;
DROP TABLE narrow, other;

-- All is taken along, _ts and ttl where there is a place for them
SELECT ttl.alter_container('item', archive_to => 'wide');
INSERT INTO item (id, x, _ts, ttl) VALUES (2, 'two', '2020-01-01', NULL), (3, 'three', '2020-01-01', 7);
CALL ttl.reap('item');
SELECT id, x, doubled, _ts = '2020-01-01' AS _ts, ttl, more FROM wide ORDER BY id;

-- DDL that comes later: the rows stay, until there is a place for all again
CREATE FUNCTION after(ddl text) RETURNS TABLE (stored text) LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE archive.wide;
    EXECUTE ddl;
    EXECUTE 'INSERT INTO archive.item (id, _ts) VALUES (4, ''2020-01-01'')';
    CALL ttl.reap('archive.item');
    RETURN QUERY SELECT public.stored('archive.item') UNION ALL SELECT 'in the archive: ' || (to_jsonb(w) - '_ts')::text FROM archive.wide w;
    SET LOCAL ttl.show_expired = on;
    DELETE FROM archive.item WHERE id = 4;
    SET LOCAL ttl.show_expired = off;
END $$;
-- in the container
SELECT after('ALTER TABLE archive.item ADD COLUMN y int DEFAULT 5');
SELECT last_error FROM stats;
SELECT refused('INSERT INTO archive.item (id, _ts) VALUES (4, ''2020-01-01''), (4, ''2020-01-01'')');
SELECT after('ALTER TABLE archive.wide ADD COLUMN y int');
SELECT after('ALTER TABLE archive.item RENAME COLUMN x TO z');
SELECT after('ALTER TABLE archive.wide RENAME COLUMN x TO z');
SELECT after('ALTER TABLE archive.item DROP COLUMN z');
-- in the archive
SELECT after('ALTER TABLE archive.wide DROP COLUMN y');
SELECT last_error FROM stats;
SELECT after('ALTER TABLE archive.wide ADD COLUMN y int GENERATED ALWAYS AS (0) STORED');
SELECT after('ALTER TABLE archive.wide ALTER COLUMN y DROP EXPRESSION');
-- with columns named
SELECT ttl.alter_container('item', archive_columns => '{id, y, _ts}');
SELECT after('ALTER TABLE archive.item ADD COLUMN unnamed int');
SELECT after('ALTER TABLE archive.item RENAME COLUMN y TO z');
SELECT last_error FROM stats;
SELECT after('ALTER TABLE archive.item RENAME COLUMN z TO y');
SELECT after('ALTER TABLE archive.wide DROP COLUMN y');
SELECT ttl.alter_container('item', archive_columns => '{id}');
SELECT after('ALTER TABLE archive.item DROP COLUMN y');

-- An archive that is dropped
SET client_min_messages = notice;
DROP TABLE wide;
TABLE policy;
SELECT reaping FROM ttl.containers WHERE container = 'item'::regclass;

-- An archive that is a container, whose rows begin a life of their own, unless ...
SET client_min_messages = warning;
CREATE TABLE second (id int, doubled int, unnamed int);
SELECT ttl.create_container('second', 3600);
SELECT ttl.alter_container('item', archive_to => 'second');
DELETE FROM item;
INSERT INTO item (id, _ts) VALUES (1, '2020-01-01');
CALL ttl.reap('item');
SELECT id, doubled, _ts > now() - interval '1 h' AS anew FROM second;
SELECT ttl.alter_container('item', archive_columns => '{id,_ts}');
INSERT INTO item (id, _ts) VALUES (2, '2020-01-01');
CALL ttl.reap('item');
SELECT id FROM second;
SELECT * FROM public.stored('second');

-- Partitions with other column numbers
CREATE TABLE parted (id int, x text) PARTITION BY LIST (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_2 (x text, gone int, id int);
ALTER TABLE parted_2 DROP COLUMN gone;
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES IN (2);
CREATE TABLE parted_archive (x text, id int);
SELECT ttl.create_container('parted', 60);
SELECT ttl.alter_container('parted', archive_to => 'parted_archive');
INSERT INTO parted (id, x, _ts) VALUES (1, 'one', '2020-01-01'), (2, 'two', '2020-01-01');
CALL ttl.reap('parted');
TABLE parted_archive ORDER BY id;
SELECT ttl.alter_container('parted', archive_columns => '{x}');
ALTER TABLE parted DETACH PARTITION parted_2;
SELECT relid, archive_to, archive_columns FROM ttl.container WHERE relid::text ~ 'parted' ORDER BY relid::text;

SET client_min_messages = error;
DROP SCHEMA archive CASCADE;
