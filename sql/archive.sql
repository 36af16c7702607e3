-- Archives: expired rows go there when they are deleted, by a row trigger, on every road
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA archive;
SET search_path = archive, public;
SET statement_timeout = '100s';

CREATE TABLE item (id int PRIMARY KEY, x text, gone int, doubled int GENERATED ALWAYS AS (id * 2) STORED);
ALTER TABLE item DROP COLUMN gone;
SELECT ttl.create_container('item', 60);

-- The counters of the container, and which tables have ttl's archive trigger
CREATE VIEW stats AS SELECT rows_deleted, rows_evicted, blocked_rows, last_error FROM ttl.stat_containers
    WHERE container = 'archive.item'::regclass;
CREATE VIEW triggers AS SELECT tgrelid::regclass, tgname, tgenabled FROM pg_trigger
    WHERE tgfoid = 'ttl.archive'::regproc ORDER BY tgrelid::regclass::text;

-- What can't be an archive: a view, a temporary table, the container, one without its columns or with others' types,
-- of another owner, and one whose deferred constraints would run at the end of a user's transaction
CREATE VIEW seen AS SELECT 1 AS id;
CREATE TEMP TABLE passing (id int);
CREATE TABLE other_columns (y int);
CREATE TABLE other_type (id point);
CREATE TABLE generating (id int GENERATED ALWAYS AS (1) STORED);
CREATE TABLE not_mine (id int);
CREATE TABLE deferring (id int REFERENCES item DEFERRABLE INITIALLY DEFERRED);
ALTER TABLE not_mine OWNER TO regress_ttl_owner;
SELECT t, refused(format('SELECT ttl.alter_container(''archive.item'', archive_to => %L)', t))
  FROM unnest('{seen,passing,item,other_columns,generating,not_mine,deferring}'::regclass[]) t;
SELECT public.state('SELECT ttl.alter_container(''archive.item'', archive_to => ''archive.other_type'')');
-- after a refusal there is none, and no trigger
SELECT archive_to FROM ttl.containers WHERE container = 'item'::regclass;
TABLE triggers;

-- The columns of both tables are kept, by their names
CREATE TABLE kept (more text DEFAULT 'default', x varchar(5), id bigint, doubled int, _ts timestamptz);
SELECT ttl.alter_container('item', archive_to => 'kept');
SELECT archive_to FROM ttl.containers WHERE container = 'item'::regclass;
TABLE triggers;

-- Two are reaped and one evicted: each of them is in the archive, and counted as what it was
INSERT INTO item (id, x, _ts) VALUES (1, 'one', '2020-01-01'), (2, 'two', '2020-01-01'), (3, 'three', '2020-01-01'),
    (4, 'live', 'infinity');
INSERT INTO item (id, x) VALUES (1, 'anew');
CALL ttl.reap('item');
SELECT id, x, doubled, _ts = '2020-01-01' AS _ts, more FROM kept ORDER BY id;
TABLE stats;
-- Not what a user deletes, but what had expired by then
DELETE FROM item;
INSERT INTO item (id, _ts) VALUES (5, '2020-01-01'), (6, 'infinity');
SET ttl.show_expired = on;
DELETE FROM item;
RESET ttl.show_expired;
-- Nor what has expired by ttl.now alone, nor anything while TTL is off
INSERT INTO item (id) VALUES (7);
SET ttl.now = '3000-01-01';
SET ttl.show_expired = on;
DELETE FROM item;
RESET ttl.now;
RESET ttl.show_expired;
SELECT ttl.set_default_ttl('item', NULL);
INSERT INTO item (id, _ts) VALUES (8, '2020-01-01');
DELETE FROM item;
SELECT ttl.set_default_ttl('item', 60);
SELECT id FROM kept ORDER BY id;
-- A column that is added to either, or changed, breaks nothing: the next row has those in common
CREATE PROCEDURE expire_next() LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE archive.kept;
    INSERT INTO archive.item (id, _ts) SELECT coalesce(max(s::jsonb ->> 'id')::int, 10) + 1, '2020-01-01'
        FROM public.stored('archive.item') s;
    CALL ttl.reap('archive.item');
END $$;
CREATE FUNCTION after(ddl text) RETURNS TABLE (in_archive text, stored bigint, error text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE ddl;
    CALL archive.expire_next();
    RETURN QUERY SELECT (SELECT string_agg((to_jsonb(k) - '_ts')::text, ' ' ORDER BY id)
        FROM archive.kept k), (SELECT count(*) FROM public.stored('archive.item')), s.last_error FROM archive.stats s;
END $$;
SELECT * FROM after('ALTER TABLE archive.item ADD COLUMN y int NOT NULL DEFAULT 5');
SELECT * FROM after('ALTER TABLE archive.kept ADD COLUMN y bigint');
SELECT * FROM after('ALTER TABLE archive.item ALTER COLUMN y TYPE numeric');
SELECT * FROM after('ALTER TABLE archive.item DROP COLUMN y');
SELECT * FROM after('ALTER TABLE archive.kept DROP COLUMN more, ADD COLUMN z int GENERATED ALWAYS AS IDENTITY');
SELECT * FROM after('ALTER TABLE archive.kept RENAME TO renamed; ALTER TABLE archive.renamed RENAME TO kept');
-- Where it can't be kept, the row stays, and what needs its key fails
SELECT * FROM after('ALTER TABLE archive.kept ADD CHECK (id <> 11) NOT VALID');
SELECT refused('INSERT INTO archive.item (id) VALUES (11)');
-- with the reason gone, it is archived
ALTER TABLE kept DROP CONSTRAINT kept_id_check;
CALL ttl.reap('item');

-- It stays, too, if the archive has been given to another owner, and whoever can mend that is told
SELECT * FROM after('ALTER TABLE archive.kept OWNER TO regress_ttl_owner');
SELECT refused('INSERT INTO archive.item (id) VALUES (11)');
SELECT refused('SELECT ttl.alter_container(''archive.item'', reaping => true)');
TABLE stats;
ALTER TABLE kept OWNER TO CURRENT_USER;
CALL ttl.reap('item');

-- It stays if the archive has got a deferred constraint since
SELECT * FROM after('ALTER TABLE archive.kept ADD CONSTRAINT late FOREIGN KEY (id) REFERENCES archive.item DEFERRABLE '
    'INITIALLY DEFERRED NOT VALID');
ALTER TABLE kept DROP CONSTRAINT late;
CALL ttl.reap('item');
-- Without the trigger nothing is deleted, and ttl.status says why
SELECT * FROM after('ALTER TABLE archive.item DISABLE TRIGGER "~ttl_archive"') \gx (format=unaligned)
SELECT state FROM ttl.status WHERE container = 'item'::regclass;
SELECT refused('INSERT INTO archive.item (id) VALUES (11)');
SELECT refused('SELECT ttl.alter_container(''archive.item'', reaping => true)');
-- enabled, it archives what had to stay, once
SELECT * FROM after('ALTER TABLE archive.item ENABLE TRIGGER "~ttl_archive"');
SELECT state FROM ttl.status WHERE container = 'item'::regclass;
-- who disables it is told at once
SET client_min_messages = notice;
ALTER TABLE item DISABLE TRIGGER "~ttl_archive";
SET client_min_messages = warning;
ALTER TABLE item ENABLE TRIGGER "~ttl_archive";
-- it can't be renamed, dropped or replaced by hand
SELECT refused('ALTER TRIGGER "~ttl_archive" ON archive.item RENAME TO other');
SELECT refused('DROP TRIGGER "~ttl_archive" ON archive.item');
SELECT refused('CREATE OR REPLACE TRIGGER "~ttl_archive" AFTER DELETE ON archive.item FOR EACH ROW EXECUTE FUNCTION '
    'suppress_redundant_updates_trigger()');
-- As in a script of pg_dump --clean it can be dropped, and then nothing is deleted
SET row_security = off;
DROP TRIGGER "~ttl_archive" ON archive.item;
RESET row_security;
CALL archive.expire_next();
SELECT state FROM ttl.status WHERE container = 'item'::regclass;
-- the archive chosen anew brings it back
SELECT ttl.alter_container('item', archive_to => 'kept');
TABLE triggers;
CALL ttl.reap('item');
SELECT * FROM public.stored('item');
-- Nothing is deleted without the archive, either
DROP TABLE kept;
INSERT INTO item (id, _ts) VALUES (11, '2020-01-01');
CALL ttl.reap('item');
TABLE stats;
SELECT refused('INSERT INTO archive.item (id) VALUES (11)');
-- 0 is for none: then keys are free again
SELECT ttl.alter_container('item', archive_to => 0);
TABLE triggers;
INSERT INTO item (id) VALUES (11);
SELECT id FROM item;

-- An archive that is a container, whose rows begin a life of their own
CREATE TABLE second (id int, doubled int);
SELECT ttl.create_container('second', 3600);
SELECT ttl.alter_container('item', archive_to => 'second');
INSERT INTO item (id, _ts, ttl) VALUES (1, '2020-01-01', 7);
CALL ttl.reap('item');
SELECT id, doubled, _ts > now() - interval '1 h' AS anew, ttl FROM second;
-- Two may be each other's archives: what comes back begins anew
SELECT ttl.alter_container('second', archive_to => 'item');
SET ttl.touch = off;
UPDATE second SET _ts = '2020-01-01';
RESET ttl.touch;
CALL ttl.reap('second');
SELECT id, _ts > now() - interval '1 h' AS anew, ttl FROM item ORDER BY id;
-- with the container goes its trigger, and not the other one's
SELECT ttl.drop_container('item');
TABLE triggers;

-- Partitions with other column numbers; one that leaves keeps its archive
CREATE TABLE parted (id int, x text) PARTITION BY LIST (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_2 (x text, gone int, id int);
ALTER TABLE parted_2 DROP COLUMN gone;
CREATE TABLE parted_archive (x text, id int) PARTITION BY RANGE (id);
CREATE TABLE parted_archive_1 PARTITION OF parted_archive DEFAULT;
SELECT ttl.create_container('parted', 60);
SELECT ttl.alter_container('parted', archive_to => 'parted_archive');
ALTER TABLE parted ATTACH PARTITION parted_2 FOR VALUES IN (2);
INSERT INTO parted (id, x, _ts) VALUES (1, 'one', '2020-01-01'), (2, 'two', '2020-01-01');
CALL ttl.reap('parted');
TABLE parted_archive ORDER BY id;

-- The partition that left archives on its own, and partitions of the container have their parent's trigger
ALTER TABLE parted DETACH PARTITION parted_2;
TABLE triggers;
INSERT INTO parted_2 (id, x, _ts) VALUES (2, 'left', '2020-01-01');
CALL ttl.reap('parted_2');
TABLE parted_archive ORDER BY id, x;

-- What a CASCADE, or NO ACTION, takes along: on every road what has expired is archived, and what is live isn't
CREATE TABLE up (id int PRIMARY KEY);
CREATE TABLE down (id int PRIMARY KEY, up int REFERENCES up ON DELETE CASCADE, long text);
CREATE TABLE further (id int, down int REFERENCES down ON DELETE CASCADE) PARTITION BY LIST (id);
CREATE TABLE further_1 PARTITION OF further FOR VALUES IN (1);
CREATE TABLE further_2 PARTITION OF further DEFAULT;
CREATE TABLE beside (id int, down int REFERENCES down);
CREATE TABLE old_down (id int, up int, long text);
CREATE TABLE old_further (id int, down int);
SELECT ttl.create_container(c, 60) FROM unnest('{up,down,further,beside}'::regclass[]) c;
SELECT ttl.alter_container('down', archive_to => 'old_down'), ttl.alter_container('further',
    archive_to => 'old_further'), ttl.alter_container('beside', archive_to => 'old_further');
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
    SELECT (SELECT string_agg(format('%s %s', id, length(long)), ', ' ORDER BY id) FROM old_down) AS old_down,
        (SELECT string_agg(id::text, ' ' ORDER BY id) FROM old_further) AS old_further,
        (SELECT string_agg(s::jsonb ->> 'id', ' ') FROM public.stored('archive.down') d (s)) AS down,
        (SELECT string_agg(s::jsonb ->> 'id', ' ') FROM public.stored('archive.further') f (s)) AS further,
        (SELECT count(*) FROM public.stored('archive.beside')) AS beside;

-- What each road leaves in the archives and in the tables; another transaction's rows are made for each
CREATE FUNCTION try_family(road text) RETURNS SETOF family LANGUAGE plpgsql AS $$
BEGIN
    CALL archive.refill_family();
    EXECUTE road;
    RETURN QUERY TABLE archive.family;
END $$;

-- By an eviction, the reaper, and a superuser's DELETE: all that had expired below is archived
SELECT road, f.* FROM unnest(ARRAY[
    'INSERT INTO archive.up VALUES (1)',
    'CALL ttl.reap(''archive.up'')',
    'SET LOCAL ttl.show_expired = on; DELETE FROM archive.up WHERE id = 1; SET LOCAL ttl.show_expired = off']) road,
        try_family(road) f;
-- Where other triggers don't fire, ttl's own deletions are archived all the same, and nobody else's
CALL refill_family();
BEGIN;
SET LOCAL session_replication_role = replica;
INSERT INTO up VALUES (1);
COMMIT;
TABLE family;
SELECT f.* FROM try_family('SET LOCAL session_replication_role = replica; SET LOCAL ttl.show_expired = on; DELETE FROM '
    'archive.down; SET LOCAL ttl.show_expired = off; SET LOCAL session_replication_role = origin') f;
-- By a user's DELETE of what is live, the expired rows below it, and not the live ones
SELECT f.* FROM try_family('DELETE FROM archive.up WHERE id > 1') f;
-- Whatever its own container's settings keep from the worker: the parent's deletion isn't held up
SELECT ttl.alter_container('down', reaping => false), ttl.alter_container('further', reap_delay => '100 years');
SELECT f.* FROM try_family('CALL ttl.reap(''archive.up'')') f;
SELECT ttl.alter_container('further', reap_delay => '0');
-- Not what a trigger keeps of it, nor what a savepoint takes back
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep BEFORE DELETE ON further_1 FOR EACH ROW EXECUTE FUNCTION keep();
SELECT f.* FROM try_family('DELETE FROM archive.down WHERE id = 1') f;
DROP TRIGGER keep ON further_1;
CALL refill_family();
BEGIN;
SAVEPOINT s;
INSERT INTO up VALUES (1);
ROLLBACK TO s;
COMMIT;
TABLE family;
-- If the archive refuses one, the whole fails, and nothing is half gone
ALTER TABLE old_further ADD CHECK (id <> 3) NOT VALID;
SELECT public.state('INSERT INTO archive.up VALUES (1)');
SET client_min_messages = error;
CALL ttl.reap('up');
TABLE family;
ALTER TABLE old_further DROP CONSTRAINT old_further_id_check;
-- Nor does a CASCADE delete what can't go to its archive; a row with nothing below it goes
CALL refill_family();
ALTER TABLE down DISABLE TRIGGER USER;
SELECT refused('INSERT INTO archive.up VALUES (1)');
SET client_min_messages = error;
CALL ttl.reap('up');
TABLE family;
SELECT blocked_rows, last_error FROM ttl.stat_containers WHERE container = 'up'::regclass;
DELETE FROM up WHERE id = 3;
INSERT INTO up (id, _ts) VALUES (7, '2020-01-01');
INSERT INTO up (id) VALUES (7);
ALTER TABLE down ENABLE TRIGGER USER;
CALL refill_family();
-- In REPEATABLE READ it is no different
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM up;
INSERT INTO archive.up VALUES (1);
COMMIT;
TABLE family;
RESET client_min_messages;

-- As the owner, in a security-restricted operation, whoever deletes; who may see neither table gets to see no values
CREATE TABLE guarded (id int PRIMARY KEY, secret text);
CREATE TABLE vault (id int, secret text CHECK (secret <> 'known'));
CREATE TABLE acts (who text, path text);
SELECT ttl.create_container('guarded', 60);
SELECT ttl.alter_container('guarded', archive_to => 'vault');
CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO archive.acts VALUES (current_user, current_setting('search_path'));
    IF new.secret = 'temporary' THEN CREATE TEMP TABLE IF NOT EXISTS t (i int); END IF;
    RETURN new;
END $$;
CREATE TRIGGER act BEFORE INSERT ON vault FOR EACH ROW EXECUTE FUNCTION act();
ALTER TABLE guarded OWNER TO regress_ttl_owner;
ALTER TABLE vault OWNER TO regress_ttl_owner;
ALTER TABLE acts OWNER TO regress_ttl_owner;
GRANT USAGE, CREATE ON SCHEMA archive TO regress_ttl_owner;
GRANT USAGE ON SCHEMA archive TO regress_ttl_user;
GRANT INSERT ON guarded TO regress_ttl_user;
INSERT INTO guarded (id, secret, _ts) VALUES (1, 'plain', '2020-01-01'), (2, 'temporary', '2020-01-01'), (3, 'known',
    '2020-01-01');

-- The archive's trigger runs as the owner with his search_path, and can't leave anything in the session
SET SESSION AUTHORIZATION regress_ttl_user;
INSERT INTO guarded (id) VALUES (1);
SELECT current_user;
SELECT refused('INSERT INTO archive.guarded (id) VALUES (2)');
-- of the constraint's failure the user learns which it is, and no value
\set VERBOSITY default
INSERT INTO guarded (id) VALUES (3);
\set VERBOSITY terse
-- the session has its role and search_path again, and the archive what was allowed
RESET SESSION AUTHORIZATION;
SHOW search_path;
SELECT * FROM acts;
SELECT id, secret FROM vault;

-- ttl.archive() is not to be called by other triggers: BEFORE, it would archive what stays
CREATE TRIGGER wrong BEFORE DELETE ON acts FOR EACH ROW EXECUTE FUNCTION ttl.archive();
SELECT refused('DELETE FROM archive.acts');
DROP TRIGGER wrong ON acts;
-- nor by another name
CREATE TRIGGER wrong AFTER DELETE ON acts FOR EACH ROW EXECUTE FUNCTION ttl.archive();
SELECT refused('DELETE FROM archive.acts');
DROP TRIGGER wrong ON acts;
-- On a table that is no container it does nothing
CREATE TRIGGER "~ttl_archive" AFTER DELETE ON acts FOR EACH ROW EXECUTE FUNCTION ttl.archive();
DELETE FROM acts;

-- A policy that a trigger changes meanwhile keeps nothing that had expired by the one before, nor do other policies
CREATE TABLE one (id int PRIMARY KEY);
CREATE TABLE two (id int PRIMARY KEY REFERENCES one);
CREATE TABLE old_one (id int);
CREATE TABLE old_two (id int);
SELECT ttl.create_container('one', -1), ttl.create_container('two', 60);
SELECT ttl.alter_container('one', archive_to => 'old_one'), ttl.alter_container('two', archive_to => 'old_two');
CREATE FUNCTION prolong() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ttl.set_default_ttl('archive.two', 2000000000);
    RETURN OLD;
END $$;
CREATE TRIGGER prolong BEFORE DELETE ON two FOR EACH ROW EXECUTE FUNCTION prolong();
INSERT INTO one VALUES (1);
INSERT INTO two (id, _ts) VALUES (1, '2020-01-01');
SET ttl.show_expired = on;
SET ttl.touch = off;
UPDATE one SET _ts = '2020-01-01', ttl = 60;
RESET ttl.touch;
RESET ttl.show_expired;
INSERT INTO one VALUES (1);
SELECT (SELECT count(*) FROM old_one) AS old_one, (SELECT count(*) FROM old_two) AS old_two;

-- A row that goes to another partition stays
INSERT INTO parted (id, x, _ts) VALUES (1, 'moves', '2020-01-01');
CREATE TABLE parted_3 PARTITION OF parted FOR VALUES IN (3);
SET ttl.show_expired = on;
SET ttl.touch = off;
UPDATE parted SET id = 3 WHERE x = 'moves';
SELECT id FROM parted WHERE x = 'moves';
RESET ttl.touch;
RESET ttl.show_expired;
SET client_min_messages = warning;
SELECT count(*) FROM parted_archive WHERE x = 'moves';

-- Once it is reaped, it is archived from there
CALL ttl.reap('parted');
SELECT id FROM parted_archive WHERE x = 'moves';

-- Row-level security of the archive applies to its owner where it is forced, whatever the session says
ALTER TABLE vault ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY all_new ON vault FOR INSERT WITH CHECK (secret <> 'policy');
DROP TRIGGER act ON vault;

-- The policy refuses the archived row, and with it the eviction
INSERT INTO guarded (id, secret, _ts) VALUES (4, 'policy', '2020-01-01'), (5, 'plain', '2020-01-01');
SET row_security = off;
SELECT public.state('INSERT INTO archive.guarded (id) VALUES (4)'),
    public.state('INSERT INTO archive.guarded (id) VALUES (5)');
RESET row_security;

-- The archive's own keys are freed though a deferred foreign key references it: nothing can be deferred where it is
-- written.  A live row that references the expired one keeps it.
CREATE TABLE shelf (id int PRIMARY KEY);
CREATE TABLE label (id int PRIMARY KEY, shelf int REFERENCES shelf DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE tag (id int PRIMARY KEY, shelf int REFERENCES shelf ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE shelved (id int PRIMARY KEY);
SELECT ttl.create_container(t, 60) FROM unnest('{shelf, label, tag, shelved}'::regclass[]) t;
SELECT ttl.alter_container('shelved', archive_to => 'shelf');
INSERT INTO shelf (id) SELECT generate_series(1, 4);
INSERT INTO label (id, shelf, _ts) VALUES (2, 2, '2020-01-01'), (3, 3, '3000-01-01');
INSERT INTO tag (id, shelf) VALUES (4, 4);
SET ttl.touch = off;
UPDATE shelf SET _ts = '2020-01-01';
RESET ttl.touch;
INSERT INTO shelved (id, _ts) SELECT generate_series(1, 4), '2020-01-01';
CALL ttl.reap('shelved');
SELECT * FROM stored('shelved');
SELECT id FROM shelf ORDER BY id;
SELECT id FROM label ORDER BY id;
SELECT count(*) FROM tag;

-- What the archive's rules make of a row counts: nothing, a notification, or a row of another table
CREATE TABLE ruled (id int PRIMARY KEY);
CREATE TABLE unused (id int);
CREATE TABLE elsewhere (id int);
SELECT ttl.create_container('ruled', 60);
SELECT ttl.alter_container('ruled', archive_to => 'unused');
CREATE RULE r AS ON INSERT TO unused DO INSTEAD NOTHING;
INSERT INTO ruled (id, _ts) VALUES (1, '2020-01-01');
CALL ttl.reap('ruled');
CREATE OR REPLACE RULE r AS ON INSERT TO unused DO INSTEAD NOTIFY unused;
INSERT INTO ruled (id, _ts) VALUES (3, '2020-01-01');
CALL ttl.reap('ruled');
CREATE OR REPLACE RULE r AS ON INSERT TO unused DO INSTEAD INSERT INTO elsewhere VALUES (NEW.id);
INSERT INTO ruled (id, _ts) VALUES (2, '2020-01-01');
CALL ttl.reap('ruled');
SELECT * FROM unused;
SELECT * FROM elsewhere;
SELECT * FROM stored('ruled');

SET client_min_messages = error;
DROP SCHEMA archive CASCADE;
