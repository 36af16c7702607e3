-- CALL ttl.reap: deletes what is expired, nothing else, as the table's owner,
-- whatever stands in the way of single rows
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA reap;
SET search_path = reap, public;
-- In case that a call never ends
SET statement_timeout = '100s';

CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', 60);
-- i rows that have expired, and four that never do, or not yet
CREATE PROCEDURE refill(i int) LANGUAGE sql AS $$
    TRUNCATE reap.item;
    INSERT INTO reap.item (id, note, _ts, ttl) SELECT n, 'expired', timestamptz '2020-01-01' + n * interval '1 s', CASE
        WHEN n % 3 = 0 THEN 5 END FROM generate_series(1, i) n;
    INSERT INTO reap.item (id, note, _ts, ttl) VALUES (-1, 'live', '2900-01-01', NULL), (-2, 'live', '2900-01-01', 5),
        (-3, 'live', '2020-01-01', -1), (-4, 'live', 'infinity', 1);
$$;
CREATE FUNCTION stored(c regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    was text := current_setting('ttl.show_expired');
    result text;
BEGIN
    PERFORM set_config('ttl.show_expired', 'on', true);
    EXECUTE format('SELECT string_agg(id || '' '' || note, '', '' ORDER BY id) FROM %s', c) INTO result;
    PERFORM set_config('ttl.show_expired', was, true);
    RETURN result;
END $$;

-- The statistics, without what differs from run to run
CREATE VIEW stats AS
    SELECT container, rows_deleted, batches > 0 AS batches, cost > 0 AS cost, lag IS NULL AS no_lag,
        last_reap IS NOT NULL AS reaped, blocked_rows, last_error, last_error_at IS NOT NULL AS erred
      FROM ttl.stat_containers;

--
-- Forms of the call
--

-- Nothing has been counted of a new container
SELECT * FROM stats WHERE container = 'item'::regclass;
-- Cached plans stay if there is nothing to do: a call invalidates nothing
SET plan_cache_mode = force_generic_plan;
PREPARE cached AS SELECT FROM item WHERE id = 1;
SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
EXPLAIN (COSTS OFF) EXECUTE cached;
RESET enable_indexscan; RESET enable_bitmapscan; RESET enable_indexonlyscan;
CALL ttl.reap();
EXPLAIN (COSTS OFF) EXECUTE cached;
DEALLOCATE cached;
RESET plan_cache_mode;

-- What is to be deleted is counted, and how long it has been
CALL refill(5);
SELECT ttl.expired_count('item');
SELECT lag > '1 year' AS lag FROM ttl.stat_containers WHERE container = 'item'::regclass;
-- A row that has been expired since ever is, too
BEGIN;
INSERT INTO item (id, note, _ts) VALUES (0, 'expired', '-infinity');
SELECT lag > '6000 years' AS lag FROM ttl.stat_containers WHERE container = 'item'::regclass;
ROLLBACK;

-- All that has expired is deleted, and nothing else; the NOTICE and the statistics say how much
SET client_min_messages = notice;
CALL ttl.reap('item');
SELECT stored('item'), ttl.expired_count('item');
SELECT * FROM stats WHERE container = 'item'::regclass;
CALL ttl.reap('item');
CALL refill(1);
CALL ttl.reap(container => 'item');
-- So many and no more; a limit that no row fits in is an error
CALL refill(10);
CALL ttl.reap('item', 3);
SELECT ttl.expired_count('item');
CALL ttl.reap('item', max_rows => 1);
CALL ttl.reap('item', 100);
SELECT stored('item');
SELECT refused('CALL ttl.reap(''reap.item'', 0)');
SELECT refused('CALL ttl.reap(''reap.item'', -1)');
-- Many, over several batches: exactly as many
CALL refill(20000);
CALL ttl.reap('item', 12345);
SELECT ttl.expired_count('item');
CALL ttl.reap('item');
SELECT stored('item');
SELECT * FROM stats WHERE container = 'item'::regclass;
-- In a transaction block all is in that transaction, and undone with it; statistics count what has been committed
CALL refill(5);
SELECT rows_deleted AS before FROM ttl.stat_containers WHERE container = 'item'::regclass \gset
BEGIN;
CALL ttl.reap('item');
SELECT stored('item');
ROLLBACK;
SELECT ttl.expired_count('item');
SELECT rows_deleted - :before AS counted, lag > '1 year' AS lag FROM ttl.stat_containers
    WHERE container = 'item'::regclass;
-- with a savepoint alone
BEGIN;
SAVEPOINT s;
CALL ttl.reap('item');
ROLLBACK TO s;
SELECT ttl.expired_count('item');
RELEASE s;
CALL ttl.reap('item', 2);
COMMIT;
SELECT ttl.expired_count('item');
SELECT rows_deleted - :before AS counted FROM ttl.stat_containers WHERE container = 'item'::regclass;
-- In a DO block, a procedure that commits, and a function
DO $$BEGIN CALL ttl.reap('reap.item', 1); END$$;
SELECT ttl.expired_count('item');
CREATE PROCEDURE clean(c regclass) LANGUAGE plpgsql AS $$BEGIN CALL ttl.reap(c, 1); COMMIT; CALL ttl.reap(c, 1); END$$;
CALL clean('item');
SELECT ttl.expired_count('item');
CALL refill(2);
CREATE FUNCTION clean_in_function(c regclass) RETURNS void LANGUAGE plpgsql AS $$BEGIN CALL ttl.reap(c); END$$;
SELECT clean_in_function('item');
-- What was put there in this very transaction
BEGIN;
CALL refill(3);
CALL ttl.reap('item');
COMMIT;
SELECT stored('item');
-- In a read-only transaction it's an error
BEGIN READ ONLY;
SELECT state('CALL ttl.reap(''reap.item'')');
ROLLBACK;

--
-- Never what has not expired
--

-- Judged by the wall clock alone, near the border, and by the policy at the time
TRUNCATE item;
INSERT INTO item (id, note, ttl, _ts) VALUES
    (1, 'an hour left', NULL, clock_timestamp()), (2, 'five minutes left', 3600, clock_timestamp() - interval '55 min'),
    (3, 'past by default', NULL, clock_timestamp() - interval '60 s'), (4, 'past', 3600,
        clock_timestamp() - interval '3600 s'),
    (5, 'in the future', 1, clock_timestamp() + interval '1 h');
SELECT ttl.set_default_ttl('item', 3600);
CALL ttl.reap('item');
SELECT stored('item');
SELECT ttl.set_default_ttl('item', 60);
SET ttl.now = '2999-01-01';
CALL ttl.reap('item');
RESET ttl.now;
SELECT stored('item');
-- Hidden by ttl.now, or shown by any setting: no matter
CALL refill(2);
SET ttl.now = '1999-01-01';
SELECT count(*) FROM item;
CALL ttl.reap('item');
RESET ttl.now;
CALL refill(2);
SET ttl.show_expired = on;
CALL ttl.reap('item');
SELECT stored('item');
RESET ttl.show_expired;
CALL refill(2);
SET row_security = off;
CALL ttl.reap('item');
RESET row_security;
-- While TTL is off nothing is deleted; with -1, what has expired by its own TTL
CALL refill(2);
SELECT ttl.set_default_ttl('item', NULL);
SELECT ttl.expired_count('item');
SELECT lag FROM ttl.stat_containers WHERE container = 'item'::regclass;
CALL ttl.reap('item');
SELECT ttl.set_default_ttl('item', -1);
CALL ttl.reap('item');
CALL refill(3);
CALL ttl.reap('item');
SELECT stored('item');
SELECT ttl.set_default_ttl('item', 60);
CALL ttl.reap('item');
-- A trigger that has a row stay: the others go, the row is counted as blocked, and goes without the trigger
CALL refill(3);
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN IF OLD.id = 2
    THEN RETURN NULL; END IF; RETURN OLD; END$$;
CREATE TRIGGER keep BEFORE DELETE ON item FOR EACH ROW EXECUTE FUNCTION keep();
SET client_min_messages = error;
CALL ttl.reap('item');
SET client_min_messages = notice;
SELECT stored('item');
SELECT blocked_rows FROM ttl.stat_containers WHERE container = 'item'::regclass;
DROP TRIGGER keep ON item;
CALL ttl.reap('item');

--
-- Foreign keys: what references a row goes with it, if it may
--

CREATE TABLE up (id int PRIMARY KEY);
CREATE TABLE down (id int PRIMARY KEY, up int REFERENCES up);
CREATE TABLE further (id int PRIMARY KEY, down int REFERENCES down);
SELECT ttl.create_container(t, 60) FROM unnest('{up, down, further}'::regclass[]) t;
-- 1 and 2 with what references them, 3 alone, all expired
CREATE PROCEDURE refill_family() LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('ttl.touch', 'off', true);
    INSERT INTO reap.up (id) VALUES (1), (2), (3);
    INSERT INTO reap.down (id, up) VALUES (1, 1), (2, 2);
    INSERT INTO reap.further (id, down) VALUES (1, 1), (2, 2);
    UPDATE reap.further SET _ts = '2020-01-01';
    UPDATE reap.down SET _ts = '2020-01-01';
    UPDATE reap.up SET _ts = '2020-01-01';
END$$;
CREATE FUNCTION family() RETURNS text LANGUAGE sql SET ttl.show_expired = on AS $$
    SELECT concat_ws(' ', (SELECT string_agg('up ' || id, ', ' ORDER BY id) FROM reap.up),
        (SELECT string_agg('down ' || id, ', ' ORDER BY id) FROM reap.down),
        (SELECT string_agg('further ' || id, ', ' ORDER BY id) FROM reap.further))
$$;

-- All levels go, counted as deletions of the container that was named
CALL refill_family();
CALL ttl.reap('up');
SELECT family();
SELECT blocked_rows, last_error FROM ttl.stat_containers WHERE container = 'up'::regclass;
-- What a live row references stays, however far away, with all between; the rest goes
CALL refill_family();
SET ttl.show_expired = on;
UPDATE further SET ttl = -1 WHERE id = 1;
RESET ttl.show_expired;
CALL ttl.reap('up');
SELECT family();
SELECT blocked_rows FROM ttl.stat_containers WHERE container = 'up'::regclass;
DELETE FROM further;
CALL ttl.reap('up');
SELECT family();
SELECT blocked_rows FROM ttl.stat_containers WHERE container = 'up'::regclass;
-- What is referenced by rows whose own container keeps them stays as well
CALL refill_family();
SELECT ttl.alter_container('down', reaping => false);
CALL ttl.reap('up');
SELECT family();
SELECT ttl.alter_container('down', reaping => true, reap_delay => '100 years');
CALL ttl.reap('up');
SELECT family();
SELECT ttl.alter_container('down', reap_delay => '0');
CALL ttl.reap('up');
SELECT family();
-- Rows that reference each other go together, beside one that cannot go
CREATE TABLE ring (id int PRIMARY KEY, next int REFERENCES ring);
SELECT ttl.create_container('ring', 60);
INSERT INTO ring (id, next) VALUES (1, 2), (2, 3), (3, 1), (4, 4), (5, NULL), (6, 5);
SET ttl.touch = off;
UPDATE ring SET _ts = '2020-01-01' WHERE id < 6;
RESET ttl.touch;
CALL ttl.reap('ring');
SET ttl.show_expired = on;
SELECT id, next FROM ring ORDER BY id;
RESET ttl.show_expired;
SELECT blocked_rows FROM ttl.stat_containers WHERE container = 'ring'::regclass;
DELETE FROM ring;
CALL ttl.reap('ring');
DROP TABLE ring, further, down, up;

-- reap_delay: rows are hidden, but stored, for so long
CALL refill(2);
INSERT INTO item (id, note, _ts) VALUES (3, 'just expired', clock_timestamp() - interval '2 min');
SELECT ttl.alter_container('item', reap_delay => '1 hour');
SELECT count(*), ttl.expired_count('item') FROM item;
CALL ttl.reap('item');
SELECT stored('item');
SELECT count(*), ttl.expired_count('item') FROM item;
-- The key of such a row is free all the same
INSERT INTO item (id, note) VALUES (3, 'new');
SELECT stored('item');
-- with no delay, it goes
INSERT INTO item (id, note, _ts) VALUES (4, 'just expired', clock_timestamp() - interval '2 min');
SELECT ttl.alter_container('item', reap_delay => '0');
CALL ttl.reap('item');
SELECT stored('item');

-- reaping => false is for the worker: a call deletes
CALL refill(2);
SELECT ttl.alter_container('item', reaping => false);
CALL ttl.reap('item');
SELECT ttl.alter_container('item', reaping => true);

--
-- Rights
--

CREATE TABLE owned (id int PRIMARY KEY, note text);
SELECT ttl.create_container('owned', 60);
CREATE TABLE others (id int PRIMARY KEY, note text);
SELECT ttl.create_container('others', 60);
CREATE TABLE log (n int GENERATED ALWAYS AS IDENTITY, id int, by_user name);
CREATE FUNCTION log_it() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO reap.log (id, by_user)
    VALUES (OLD.id, current_user); RETURN OLD; END$$;
CREATE TRIGGER log_it BEFORE DELETE ON owned FOR EACH ROW EXECUTE FUNCTION log_it();
GRANT USAGE ON SCHEMA reap TO regress_ttl_owner, regress_ttl_user;
ALTER TABLE owned OWNER TO regress_ttl_owner;
ALTER TABLE log OWNER TO regress_ttl_owner;
GRANT ALL ON owned, others TO regress_ttl_user;
CREATE PROCEDURE refill_owned() LANGUAGE sql AS $$
    INSERT INTO reap.owned (id, note, _ts) VALUES (1, 'expired', '2020-01-01'), (2, 'live', '2900-01-01')
        ON CONFLICT DO NOTHING;
    INSERT INTO reap.others (id, note, _ts) VALUES (1, 'expired', '2020-01-01'), (2, 'live', '2900-01-01')
        ON CONFLICT DO NOTHING;
$$;
CALL refill_owned();

-- Neither named nor by way of all containers does a user delete of tables that aren't his
SET ROLE regress_ttl_user;
SELECT state('CALL ttl.reap(''reap.owned'')'), state('SELECT ttl.expired_count(''reap.owned'')');
CALL ttl.reap();
-- a member may, and triggers fire as the owner
SET ROLE regress_ttl_member;
CALL ttl.reap('reap.owned');
RESET ROLE;
SELECT * FROM log ORDER BY n;
-- Without an argument: every container that the caller owns, and no others, for a superuser, too
CALL refill_owned();
SET ROLE regress_ttl_owner;
CALL ttl.reap();
RESET ROLE;
SELECT stored('owned'), stored('others');
CALL refill_owned();
-- the superuser's own row, and then none: that of the owner is left
CALL ttl.reap(max_rows => 1);
CALL ttl.reap(max_rows => 1);
SELECT stored('owned'), stored('others');
-- A call commits before it begins; what fires then, deferred by whoever calls, doesn't call again
CREATE TABLE late (id int);
CREATE FUNCTION reap_late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN CALL ttl.reap('reap.late'); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER reap_late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    EXECUTE FUNCTION reap_late();
CREATE PROCEDURE insert_and_reap() LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO reap.late VALUES (1);
    CALL ttl.reap('reap.late');
END $$;
SELECT ttl.create_container('late', 60);
\set SHOW_CONTEXT never
CALL insert_and_reap();
\set SHOW_CONTEXT errors
DROP TABLE late;
-- what one container leaves of max_rows is the next one's
CREATE TABLE one (id int);
CREATE TABLE two (id int);
SELECT ttl.create_container(c, 60) FROM unnest('{one, two}'::regclass[]) c;
INSERT INTO one (id, _ts) VALUES (1, '2020-01-01'), (2, '2020-01-01');
INSERT INTO two (id, _ts) VALUES (1, '2020-01-01'), (2, '2020-01-01');
CALL ttl.reap(max_rows => 3);
SELECT ttl.expired_count('one') + ttl.expired_count('two') AS left;
DROP TABLE one, two;
CALL refill_owned();
-- A superuser's call deletes as the owner, too, and he is himself afterwards
TRUNCATE log;
CALL ttl.reap('owned');
SELECT DISTINCT by_user FROM log;
SELECT current_user = session_user AS back;
-- What is no container is an error
CREATE TABLE plain (id int);
SELECT refused('CALL ttl.reap(''reap.plain'')');
SELECT refused('CALL ttl.reap(0)');

-- The owner has no right to delete, and is under row-level security
REVOKE ALL ON owned FROM regress_ttl_owner;
ALTER TABLE owned ENABLE ROW LEVEL SECURITY;
ALTER TABLE owned FORCE ROW LEVEL SECURITY;
CREATE POLICY nobody ON owned USING (false);
-- without the right to delete, the owner is told; no other right takes its place
CALL refill_owned();
SET ROLE regress_ttl_owner;
SELECT state('CALL ttl.reap(''reap.owned'')');
RESET ROLE;
-- row-level security, forced or not, hides no row from the reaper
GRANT ALL ON owned TO regress_ttl_owner;
CALL refill_owned();
CALL ttl.reap('owned');
SELECT stored('owned');

--
-- Triggers and foreign keys
--

SET client_min_messages = warning;
CREATE TABLE parent (id int PRIMARY KEY, note text);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE);
CREATE TABLE nulled (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE SET NULL);
CREATE TABLE later (id int PRIMARY KEY, parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
INSERT INTO parent SELECT i, 'expired' FROM generate_series(1, 9) i;
INSERT INTO child SELECT i, i FROM generate_series(1, 9) i;
INSERT INTO nulled SELECT i, i FROM generate_series(1, 9) i;
INSERT INTO later VALUES (4, 4);
SELECT ttl.create_container('parent', 60);
SET ttl.touch = off;
UPDATE parent SET _ts = '2020-01-01';
RESET ttl.touch;
SET client_min_messages = notice;
-- A row that a live one references stays, is counted, and stops no other
CALL ttl.reap('parent');
SELECT stored('parent');
SELECT array_agg(id ORDER BY id) AS child, (SELECT array_agg(id ORDER BY id) FROM nulled
    WHERE parent IS NOT NULL) AS nulled FROM child;
SELECT * FROM stats WHERE container = 'parent'::regclass \gx (format=unaligned)
SELECT count(*), ttl.expired_count('parent') FROM parent;
-- each call says so
CALL ttl.reap('parent');
-- Until the live one goes
DELETE FROM later;
CALL ttl.reap('parent');
SELECT stored('parent');
SELECT rows_deleted, blocked_rows FROM ttl.stat_containers WHERE container = 'parent'::regclass;
-- In a transaction block, the same, though the constraint is deferred: COMMIT must not fail by it
INSERT INTO parent (id, note, _ts) VALUES (1, 'expired', '2900-01-01'), (2, 'expired', '2900-01-01');
INSERT INTO later VALUES (1, 1);
SET ttl.touch = off;
UPDATE parent SET _ts = '2020-01-01';
RESET ttl.touch;
BEGIN;
CALL ttl.reap('parent');
COMMIT;
SELECT stored('parent');

-- A trigger that raises keeps the rows that it raises for, each by itself, and no other
CREATE TABLE poison (id int PRIMARY KEY, note text);
SELECT ttl.create_container('poison', 60);
INSERT INTO poison (id, note, _ts) SELECT i, CASE WHEN i IN (7, 500, 777) THEN 'poison' ELSE 'expired' END,
    timestamptz '2020-01-01' + i * interval '1 s' FROM generate_series(1, 1000) i;
CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.note = 'poison' THEN
        RAISE EXCEPTION 'row % is poisoned', OLD.id USING ERRCODE = 'TTL01';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER raise BEFORE DELETE ON poison FOR EACH ROW EXECUTE FUNCTION raise();
CALL ttl.reap('poison');
SELECT stored('poison');
SELECT container, rows_deleted, blocked_rows, last_error ~ 'is poisoned' AS last_error, erred FROM stats
    WHERE container = 'poison'::regclass;
SELECT count(*), ttl.expired_count('poison') FROM poison;
-- without it they go, and are blocked no more
DROP TRIGGER raise ON poison;
CALL ttl.reap('poison');
SELECT rows_deleted, blocked_rows FROM ttl.stat_containers WHERE container = 'poison'::regclass;
-- With an AFTER trigger, and with one that is deferred to the commit
CREATE TRIGGER raise AFTER DELETE ON poison FOR EACH ROW EXECUTE FUNCTION raise();
INSERT INTO poison (id, note, _ts) VALUES (1, 'poison', '2020-01-01'), (2, 'expired', '2020-01-01');
CALL ttl.reap('poison');
SELECT stored('poison');
DROP TRIGGER raise ON poison;
CREATE CONSTRAINT TRIGGER raise AFTER DELETE ON poison DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION
    raise();
INSERT INTO poison (id, note, _ts) VALUES (2, 'expired', '2020-01-01');
CALL ttl.reap('poison');
SELECT stored('poison');
-- Errors may show values: they are for those who may see the rows
SET ROLE regress_ttl_user;
SELECT blocked_rows > 0 AS blocked, last_error FROM ttl.stat_containers WHERE container = 'reap.poison'::regclass;
RESET ROLE;
DROP TRIGGER raise ON poison;
CALL ttl.reap('poison');

-- Statement triggers fire; ordinary statements in triggers are as ever
CREATE TABLE fired (id int PRIMARY KEY, note text);
SELECT ttl.create_container('fired', 60);
CREATE TABLE seen (what text, n bigint);
CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO reap.seen SELECT TG_WHEN || ' ' || TG_LEVEL, count(*) FROM reap.fired;
    IF TG_LEVEL = 'STATEMENT' AND TG_WHEN = 'AFTER' THEN
        INSERT INTO reap.seen SELECT 'deleted ' || note, id FROM old_rows;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER before_row BEFORE DELETE ON fired FOR EACH ROW EXECUTE FUNCTION seen();
CREATE TRIGGER before_statement BEFORE DELETE ON fired FOR EACH STATEMENT EXECUTE FUNCTION seen();
CREATE TRIGGER after_statement AFTER DELETE ON fired REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE
    FUNCTION seen();
INSERT INTO fired (id, note, _ts) VALUES (1, 'expired', '2020-01-01'), (2, 'expired', '2020-01-02'), (3, 'live',
    '2900-01-01');

-- Each kind fires, and sees the table without the expired rows; OLD TABLE has what was deleted
CALL ttl.reap('fired');
SELECT what, n FROM seen GROUP BY what, n ORDER BY what COLLATE "C", n;

-- Rules: the action and the deletion go together, be it that the action
-- deletes expired rows itself
CREATE TABLE ruled (id int PRIMARY KEY);
CREATE TABLE ruled_log (id int PRIMARY KEY);
SELECT ttl.create_container('ruled', 60);
SELECT ttl.create_container('ruled_log', 60);
INSERT INTO ruled_log (id, _ts) VALUES (1, '2020-01-01'), (2, '2020-01-01');
CREATE RULE log AS ON DELETE TO ruled DO ALSO INSERT INTO ruled_log VALUES (OLD.id);
INSERT INTO ruled (id, _ts) VALUES (1, '2020-01-01'), (2, '2020-01-01'), (3, '2900-01-01');
INSERT INTO ruled (id) VALUES (1);
CALL ttl.reap('ruled');
SELECT id FROM ruled_log ORDER BY id;
SELECT ttl.expired_count('ruled');
-- A rule reads live rows, of the same table, too; OLD is what is deleted
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE audit (old int, source text, id int);
SELECT ttl.create_container('other', 60);
INSERT INTO other (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01'), (3, '2900-01-01');
CREATE RULE read_other AS ON DELETE TO ruled DO ALSO INSERT INTO audit SELECT OLD.id, 'other', id FROM other;
CREATE RULE read_itself AS ON DELETE TO ruled DO ALSO INSERT INTO audit SELECT OLD.id, 'itself', r.id FROM ruled r
    WHERE r.id <> 9;
INSERT INTO ruled (id, _ts) VALUES (4, '2020-01-01'), (5, '2020-01-01');
INSERT INTO ruled (id, _ts) VALUES (4, '2900-01-01');
SELECT * FROM audit ORDER BY old, source, id;
TRUNCATE audit;
CALL ttl.reap('ruled');
SELECT * FROM audit ORDER BY old, source, id;
-- One that would rather mark the row finds no more of it than anybody
TRUNCATE ruled;
CREATE RULE mark AS ON DELETE TO other DO INSTEAD UPDATE other SET id = -id WHERE id = OLD.id;
CALL ttl.reap('other');
SET ttl.show_expired = on;
SELECT id FROM other ORDER BY id;
RESET ttl.show_expired;
SET client_min_messages = error;
DROP TABLE other, audit CASCADE;
RESET client_min_messages;

-- The rows of a page are read together; in SERIALIZABLE one by one, by PostgreSQL: the same are deleted

CREATE TABLE paged (id int PRIMARY KEY, note text) WITH (fillfactor = 60, autovacuum_enabled = off);
SELECT ttl.create_container('paged', 60);
CREATE RULE keep AS ON DELETE TO paged WHERE OLD.id % 20 = 0 DO INSTEAD NOTHING;
-- Of each page: rows with a redirected line pointer, renewed ones, dead ones, and rows that go with the one before them
CREATE PROCEDURE refill_paged() LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE paged;
    INSERT INTO paged SELECT i, repeat('x', 100), '2020-01-01', CASE WHEN i % 11 = 0 THEN 5 END
        FROM generate_series(1, 2000) i;
    SET LOCAL ttl.show_expired = on;
    UPDATE paged SET ttl = -1 WHERE id % 7 = 0;
    DELETE FROM paged WHERE id % 13 = 0;
    SET LOCAL ttl.touch = off;
    UPDATE paged SET note = note || 'y' WHERE id % 5 = 0;
END $$;
CREATE FUNCTION take_next() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL ttl.show_expired = on;
    DELETE FROM reap.paged WHERE id = OLD.id + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER take_next AFTER DELETE ON paged FOR EACH ROW WHEN (OLD.id % 3 = 0) EXECUTE FUNCTION take_next();

-- What is left, by isolation level
CREATE TABLE left_by (level text, id int);
CREATE PROCEDURE note_left() LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL ttl.show_expired = on;
    INSERT INTO left_by SELECT current_setting('transaction_isolation'), id FROM paged;
END $$;

-- One after the other, from the same rows
SET client_min_messages = error;
CALL refill_paged();
VACUUM paged;
CALL ttl.reap('paged');
CALL note_left();
CALL refill_paged();
VACUUM paged;
BEGIN ISOLATION LEVEL SERIALIZABLE;
CALL ttl.reap('paged');
CALL note_left();
COMMIT;
RESET client_min_messages;
-- nothing is deleted by one way that isn't by the other
SELECT level, count(*), sum(id), count(*) FILTER (WHERE id % 7 = 0) AS live, count(*) FILTER (WHERE id % 20 = 0) AS kept
  FROM left_by GROUP BY level ORDER BY level;
SET client_min_messages = error;
DROP TABLE paged, left_by;
RESET client_min_messages;

-- A trigger that reaps is stopped before it goes in circles
CREATE TABLE circle (id int PRIMARY KEY);
SELECT ttl.create_container('circle', 60);
CREATE FUNCTION reap_again() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN CALL ttl.reap('reap.circle'); RETURN OLD;
    END$$;
CREATE TRIGGER again BEFORE DELETE ON circle FOR EACH ROW EXECUTE FUNCTION reap_again();
INSERT INTO circle (id, _ts) VALUES (1, '2020-01-01');

-- By an eviction it fails; a call for the container deletes nothing, and ends
SELECT refused('INSERT INTO reap.circle VALUES (1)');
CALL ttl.reap('circle');
DROP TRIGGER again ON circle;
INSERT INTO circle VALUES (1);
-- What is deferred to the commit of a batch is set off by it, too; not so the user's own commit
CREATE CONSTRAINT TRIGGER again AFTER DELETE ON circle DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION
    reap_again();
INSERT INTO circle (id, _ts) VALUES (2, '2020-01-01');
CALL ttl.reap('circle');
INSERT INTO circle VALUES (2);
DROP TRIGGER again ON circle;
-- Nor can a deferred trigger of the caller's, which fires at the commit within the CALL
CREATE TABLE begun (id int);
CREATE CONSTRAINT TRIGGER again AFTER
    INSERT ON begun DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION reap_again();
CREATE PROCEDURE begin_and_reap() LANGUAGE plpgsql AS $$BEGIN INSERT INTO reap.begun
    VALUES (1); CALL ttl.reap('reap.circle'); END$$;
CALL begin_and_reap();
-- A trigger that inserts what has expired keeps no call from its end, either
CREATE TABLE refilled (id int GENERATED ALWAYS AS IDENTITY, how text);
SELECT ttl.create_container('refilled', 60);
CREATE FUNCTION insert_expired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO reap.refilled (how, _ts) VALUES ('earlier', OLD._ts - interval '1 s'), ('later',
        OLD._ts + interval '1 s'), ('just', clock_timestamp() - interval '1 h');
    RETURN OLD;
END $$;
CREATE TRIGGER insert_expired BEFORE DELETE ON refilled FOR EACH ROW EXECUTE FUNCTION insert_expired();
INSERT INTO refilled (how, _ts) VALUES ('first', '2020-01-01');
CALL ttl.reap('refilled');
SELECT * FROM public.stored('refilled');
VACUUM refilled;
-- each call deletes those that were there when it began
CALL ttl.reap('refilled');
BEGIN;
INSERT INTO refilled (how, _ts) VALUES ('in this transaction', '2020-01-01');
CALL ttl.reap('refilled');
ROLLBACK;
DROP TRIGGER insert_expired ON refilled;
CALL ttl.reap('refilled');
-- Few are found without reading many index entries
CREATE TABLE few (id int);
SELECT ttl.create_container('few', 60, ttl_column => NULL);
INSERT INTO few SELECT i, '2020-01-01' FROM generate_series(1, 20000) i;
BEGIN;
CALL ttl.reap('few', 100);
SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid)) < 1000 AS reads_few FROM pg_index
    WHERE indrelid = 'few'::regclass;
ROLLBACK;
DROP TABLE circle, begun, refilled, few;

-- Partitions, to the last level
SET client_min_messages = warning;
CREATE TABLE parts (id int, region text, note text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu');
CREATE TABLE parts_rest PARTITION OF parts DEFAULT PARTITION BY RANGE (id);
CREATE TABLE parts_rest_low (note text, gone int, region text NOT NULL, id int NOT NULL);
ALTER TABLE parts_rest_low DROP COLUMN gone;
ALTER TABLE parts_rest ATTACH PARTITION parts_rest_low FOR VALUES FROM (MINVALUE) TO (10);
CREATE TABLE parts_rest_high PARTITION OF parts_rest FOR VALUES FROM (10) TO (MAXVALUE);
SELECT ttl.create_container('parts', 60);
INSERT INTO parts (region, id, note, _ts) SELECT region, i, CASE WHEN i % 4 = 0 THEN 'live' ELSE 'expired' END, CASE
    WHEN i % 4 = 0 THEN '2900-01-01' ELSE '2020-01-01' END::timestamptz
  FROM unnest('{eu,us,asia}'::text[]) region, generate_series(5, 15) i;
SET client_min_messages = notice;

-- Of all levels, and max_rows is for all together
SELECT ttl.expired_count('parts');
CALL ttl.reap('parts', 4);
SELECT ttl.expired_count('parts');
CALL ttl.reap('parts');
SELECT ttl.expired_count('parts');
SELECT stored('parts');
-- a partition isn't reaped alone
SELECT refused('CALL ttl.reap(''reap.parts_eu'')');
SELECT lag, rows_deleted FROM ttl.stat_containers WHERE container = 'parts'::regclass;

-- Rows next to each other in one page: live ones among them stay, and max_rows holds
CREATE TABLE dense (id int, note text);
SELECT ttl.create_container('dense', 60);
INSERT INTO dense SELECT i, 'expired', timestamptz '2020-01-01' + CASE
    WHEN i % 3 = 0 THEN 1 ELSE 0 END * interval '1 day' FROM generate_series(1, 100) i WHERE i NOT IN (10, 20, 30);
INSERT INTO dense SELECT i, 'live', '2900-01-01' FROM generate_series(101, 102) i;
INSERT INTO dense SELECT i, 'expired', '2020-01-01' FROM generate_series(103, 150) i;
SET client_min_messages = notice;
CALL ttl.reap('dense', 50);
SELECT ttl.expired_count('dense');
CALL ttl.reap('dense');
SELECT stored('dense');
SELECT rows_deleted FROM ttl.stat_containers WHERE container = 'dense'::regclass;
-- What a HOT update and VACUUM have left of a row's place is a redirect
SET client_min_messages = warning;
SET ttl.touch = off;
INSERT INTO dense SELECT i, 'old', '2020-01-01' FROM generate_series(1, 10) i;
SET ttl.show_expired = on;
UPDATE dense SET note = 'new' WHERE id % 2 = 0;
RESET ttl.show_expired;
RESET ttl.touch;
VACUUM dense;
SET client_min_messages = notice;
CALL ttl.reap('dense');
SELECT stored('dense');
-- In a transaction, where a deferred foreign key is checked at its end, what is referenced is left out, too
SET client_min_messages = warning;
CREATE TABLE dense_parent (id int PRIMARY KEY, note text);
CREATE TABLE dense_child (id int REFERENCES dense_parent DEFERRABLE INITIALLY DEFERRED);
CREATE INDEX ON dense_child (id);
SELECT ttl.create_container('dense_parent', 60);
INSERT INTO dense_parent SELECT i, 'referenced' FROM generate_series(1, 15000) i;
INSERT INTO dense_child VALUES (999);
SET ttl.touch = off;
UPDATE dense_parent SET _ts = timestamptz '2020-01-01' + CASE WHEN id % 3 = 0 THEN 1 ELSE 0 END * interval '1 day';
RESET ttl.touch;
VACUUM ANALYZE dense_parent, dense_child;
SET client_min_messages = notice;
BEGIN;
CALL ttl.reap('dense_parent');
COMMIT;
SELECT stored('dense_parent');
DROP TABLE dense_parent, dense_child;
-- What goes along with rows whose deletion is tried in vain isn't counted
SET client_min_messages = warning;
CREATE TABLE counted (id int PRIMARY KEY, self int REFERENCES counted, note text, _ts timestamptz NOT NULL);
CREATE TABLE counted_child (id int REFERENCES counted);
CREATE INDEX ON counted (self);
INSERT INTO counted SELECT i, nullif(i / 2, 0), 'kept', timestamptz '2020-01-01' + i * interval '1 hour'
    FROM generate_series(1, 40) i;
INSERT INTO counted_child VALUES (40);
SELECT ttl.create_container('counted', 60, ts_column => '_ts', ttl_column => NULL);
CALL ttl.reap('counted');
SELECT stored('counted');
SELECT rows_deleted FROM ttl.stat_containers WHERE container = 'counted'::regclass;
DROP TABLE counted, counted_child;
SET client_min_messages = notice;

-- A container whose columns have gone, as DDL without the library leaves it, is
-- reported, and stops no other's deletion
-- Puts one column in the other's place, unseen by ttl
CREATE PROCEDURE replace_unseen(c regclass, was name, becomes name) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE pg_attribute SET attname = 'former' WHERE attrelid = c AND attname = was;
    UPDATE pg_attribute SET attname = was WHERE attrelid = c AND attname = becomes;
    EXECUTE format('ALTER TABLE %s DROP COLUMN former', c);
END $$;
CREATE TABLE lacking (id int PRIMARY KEY, _ts timestamptz, x text, ttl int);
CREATE TABLE untyped (id int PRIMARY KEY, _ts timestamptz, x text, ttl int);
INSERT INTO lacking VALUES (7, '2020-01-01', 'stored', 5);
SET client_min_messages = warning;
INSERT INTO ttl.container (relid, default_time_to_live, ts_column, ttl_column, indexing, touch_on_update, reaping,
    reap_delay)
VALUES ('lacking', 60, '_ts', 'ttl', 'consistent', true, true, '0'), ('untyped', 60, '_ts', 'ttl', 'consistent', true,
    true, '0');
GRANT SELECT ON lacking TO regress_ttl_user;
CALL replace_unseen('lacking', '_ts', 'x');
CALL replace_unseen('untyped', 'ttl', 'x');
SELECT refused('TABLE reap.lacking'), refused('UPDATE reap.untyped SET id = 2'),
    refused('CALL ttl.reap(''reap.lacking'')') \gx (format=unaligned)
-- others are reaped, in a call for all; the view tells which is damaged
INSERT INTO parts (region, id, note, _ts) VALUES ('eu', 1, 'expired', '2020-01-01');
CALL ttl.reap();
SELECT ttl.expired_count('parts');
SELECT container, state FROM ttl.status WHERE container IN ('parts'::regclass, 'lacking'::regclass)
    ORDER BY container::text;
SELECT container, next_expiry FROM ttl.status WHERE container IN ('lacking'::regclass, 'untyped'::regclass)
    ORDER BY container::text;
-- Who sees stored rows anyway needs no column: so a dump works
SET row_security = off;
SELECT count(*) FROM lacking;
COPY lacking TO stdout;
SET ROLE regress_ttl_user;
SELECT state('SELECT FROM reap.lacking');
RESET ROLE;
RESET row_security;
-- Repaired by adding the column again, or forgotten by drop_container
TRUNCATE lacking;
ALTER TABLE lacking ALTER COLUMN _ts TYPE timestamptz USING _ts::timestamptz;
INSERT INTO lacking VALUES (1, '2020-01-01', NULL), (2, '2900-01-01', NULL), (3, '2020-01-01', -1);
TABLE lacking;
-- as needed as before
SELECT refused('ALTER TABLE reap.lacking DROP COLUMN ttl');
-- with both gone, both have to be back, the type being one that fits
ALTER TABLE untyped DROP COLUMN ttl, DROP COLUMN _ts;
SELECT refused('TABLE reap.untyped');
ALTER TABLE untyped ADD COLUMN _ts timestamptz DEFAULT '2020-01-01';
ALTER TABLE untyped ADD COLUMN ttl smallint;
INSERT INTO untyped VALUES (1);
TABLE untyped;
-- it follows a renaming again
ALTER TABLE untyped RENAME COLUMN ttl TO keep;
SELECT ttl_column FROM ttl.containers WHERE container = 'untyped'::regclass;
ALTER TABLE untyped RENAME COLUMN keep TO ttl;
CREATE TABLE forgotten (id int, _ts timestamptz, ttl int);
INSERT INTO ttl.container (relid, default_time_to_live, ts_column, ttl_column, indexing, touch_on_update, reaping,
    reap_delay)
VALUES ('forgotten', 60, '_ts', 'ttl', 'consistent', true, true, '0');
CALL replace_unseen('forgotten', '_ts', 'none');
-- dropped while it lacks a column, it leaves the rows
SELECT ttl.drop_container('lacking'), ttl.drop_container('untyped', true), ttl.drop_container('forgotten', true);
TABLE lacking;
TABLE untyped;

-- One of many rows with the same _ts raises, and a foreign key is to be asked: few scans find all
CREATE TABLE alike (id int PRIMARY KEY);
CREATE TABLE refers (id int REFERENCES alike);
SELECT ttl.create_container('alike', 60);
CREATE FUNCTION raise_always() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'stays'; END $$;
CREATE TRIGGER t BEFORE DELETE ON alike FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION raise_always();
INSERT INTO alike (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 52000) g;
SET session_replication_role = replica;
INSERT INTO refers VALUES (2), (12000), (52000);
RESET session_replication_role;
SET client_min_messages = error;
-- the three that are referenced stay, and the one that raises
CALL ttl.reap('alike');
RESET client_min_messages;
SELECT ttl.expired_count('alike');
SELECT pg_stat_force_next_flush();
SELECT sum(idx_scan) BETWEEN 1 AND 20 AS few FROM pg_stat_user_indexes
    WHERE relname = 'alike' AND indexrelname LIKE '%ts%';
DROP TABLE refers, alike;

SET client_min_messages = warning;
REVOKE ALL ON SCHEMA reap FROM regress_ttl_user, regress_ttl_owner;
DROP SCHEMA reap CASCADE;
