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

-- What a CASCADE takes along: on every road what has expired is archived, and what is live isn't
CREATE TABLE up (id int PRIMARY KEY);
CREATE TABLE down (id int PRIMARY KEY, up int REFERENCES up ON DELETE CASCADE, gone int, doubled int GENERATED ALWAYS AS (id * 2) STORED, long text);
ALTER TABLE down DROP COLUMN gone;
CREATE TABLE further (id int, down int REFERENCES down ON DELETE CASCADE) PARTITION BY LIST (id);
CREATE TABLE further_1 PARTITION OF further FOR VALUES IN (1);
CREATE TABLE further_2 (down int, id int);
ALTER TABLE further ATTACH PARTITION further_2 DEFAULT;
CREATE TABLE beside (id int, down int REFERENCES down);
CREATE TABLE old_down (doubled int, id int, up int, long text);
CREATE TABLE old_further (id int, down int);
SELECT ttl.create_container(c, 60) FROM unnest('{up,down,further,beside}'::regclass[]) c;
SELECT ttl.alter_container('down', archive_to => 'old_down'), ttl.alter_container('further', archive_to => 'old_further'), ttl.alter_container('beside', archive_to => 'old_further', archive_columns => '{id, down}');
CREATE PROCEDURE refill_family() LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE archive.up, archive.down, archive.further, archive.beside, archive.old_down, archive.old_further;
    INSERT INTO archive.up SELECT i FROM generate_series(1, 3) i;
    INSERT INTO archive.down (id, up, long) VALUES (1, 1, 'x'), (2, 1, repeat('long', 5000)), (3, 2, 'x'), (4, 3, 'x');
    INSERT INTO archive.further (id, down) VALUES (1, 1), (2, 1), (3, 2), (4, 4);
    INSERT INTO archive.beside (id, down, _ts) VALUES (11, 1, '2020-01-01');
    SET LOCAL ttl.touch = off;
    UPDATE archive.further SET _ts = '2020-01-01' WHERE id IN (1, 3, 4);
    UPDATE archive.down SET _ts = '2020-01-01' WHERE id IN (1, 2, 4);
    UPDATE archive.up SET _ts = '2020-01-01' WHERE id = 1;
    SET LOCAL ttl.touch = on;
END $$;
CREATE VIEW family AS
    SELECT (SELECT string_agg(format('%s %s %s', id, doubled, length(long)), ', ' ORDER BY id) FROM old_down) AS old_down, (SELECT string_agg(id::text, ' ' ORDER BY id) FROM old_further) AS old_further,
        (SELECT string_agg(s::jsonb ->> 'id', ' ') FROM public.stored('archive.down') d (s)) AS down, (SELECT string_agg(s::jsonb ->> 'id', ' ') FROM public.stored('archive.further') f (s)) AS further, (SELECT count(*) FROM public.stored('archive.beside')) AS beside;
CREATE FUNCTION try_family(road text) RETURNS SETOF family LANGUAGE plpgsql AS $$
BEGIN
    CALL archive.refill_family();
    EXECUTE road;
    RETURN QUERY TABLE archive.family;
END $$;
SELECT road, f.* FROM unnest(ARRAY['INSERT INTO archive.up VALUES (1)', 'CALL ttl.reap(''archive.up'')', 'SET LOCAL ttl.show_expired = on; DELETE FROM archive.up WHERE id = 1; SET LOCAL ttl.show_expired = off',
    'SET LOCAL session_replication_role = replica; INSERT INTO archive.up VALUES (1); SET LOCAL session_replication_role = origin']) road, try_family(road) f;
SELECT rows_evicted, rows_archived FROM ttl.stat_containers WHERE container = 'down'::regclass;
-- by a user's DELETE of what is live
SELECT f.* FROM try_family('DELETE FROM archive.up WHERE id > 1') f;
SELECT f.* FROM try_family('DELETE FROM archive.down WHERE id > 2') f;
-- whatever its own container's settings keep from the worker
SELECT ttl.alter_container('down', reaping => false), ttl.alter_container('further', reap_delay => '100 years');
SELECT f.* FROM try_family('CALL ttl.reap(''archive.up'')') f;
-- not where TTL is off, nor by ttl.now alone
SELECT ttl.set_default_ttl('down', NULL);
SELECT f.* FROM try_family('INSERT INTO archive.up VALUES (1)') f;
SELECT ttl.set_default_ttl('down', 60);
SELECT f.* FROM try_family('SET LOCAL ttl.now = ''3000-01-01''; INSERT INTO archive.up VALUES (1); SET LOCAL ttl.now = DEFAULT') f;
-- what a trigger keeps of it is archived, too: it has been before the trigger fires
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep BEFORE DELETE ON further_1 FOR EACH ROW EXECUTE FUNCTION keep();
SELECT f.* FROM try_family('DELETE FROM archive.down WHERE id > 2; INSERT INTO archive.up VALUES (1)') f;
DROP TRIGGER keep ON further_1;
-- it fails, and so does the whole
ALTER TABLE old_further ADD CHECK (id <> 3) NOT VALID;
SELECT public.state('SELECT archive.try_family(''INSERT INTO archive.up VALUES (1)'')');
CALL refill_family();
SET client_min_messages = error;
CALL ttl.reap('up');
TABLE family;
-- in another isolation level
ALTER TABLE old_further DROP CONSTRAINT old_further_id_check;
CALL refill_family();
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM up;
INSERT INTO archive.up VALUES (1);
COMMIT;
TABLE family;
-- more than work_mem holds, which leaves no file behind
CALL refill_family();
INSERT INTO down (id, up, _ts) SELECT g, 2, '2020-01-01' FROM generate_series(10, 5000) g;
RESET client_min_messages;
SET work_mem = '64kB';
DELETE FROM up WHERE id = 2;
RESET work_mem;
SELECT count(*) FROM old_down;

SET client_min_messages = error;
DROP SCHEMA archive CASCADE;
