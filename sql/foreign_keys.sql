-- Foreign keys: a check finds an expired parent absent; an action acts on what
-- is physically there, leaves no orphan, wakes no row and resets no clock
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA foreign_keys;
SET search_path = foreign_keys, public;

-- All rows that are there, expired ones too, with what is not of TTL
CREATE FUNCTION stored(c regclass) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    was text := current_setting('ttl.show_expired');
    rows text[];
BEGIN
    PERFORM set_config('ttl.show_expired', 'on', true);
    EXECUTE format('SELECT array_agg(r ORDER BY r COLLATE "C") FROM (SELECT (to_jsonb(t) - ''_ts'' - ''ttl'')::text || '
        'CASE WHEN _ts > ''2999-01-01'' THEN '''' WHEN _ts > ''2020-01-02'' THEN '' touched'' ELSE '' expired'' END AS '
        'r FROM %s t) s', c) INTO rows;
    PERFORM set_config('ttl.show_expired', was, true);
    RETURN QUERY SELECT unnest(rows);
END $$;

-- Rows that reference nothing that is stored
CREATE FUNCTION orphans(child regclass, parent regclass, key text,
    referenced text DEFAULT 'id') RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    was text := current_setting('ttl.show_expired');
    n bigint;
BEGIN
    PERFORM set_config('ttl.show_expired', 'on', true);
    EXECUTE format('SELECT count(*) FROM %s c WHERE %s IS NOT NULL AND NOT EXISTS (SELECT FROM %s p WHERE p.%s = '
        'c.%s)', child, key, parent, referenced, key) INTO n;
    PERFORM set_config('ttl.show_expired', was, true);
    RETURN n;
END $$;

-- RESTRICT has an SQLSTATE of its own since PostgreSQL 18
CREATE FUNCTION referenced(statement text) RETURNS text LANGUAGE sql AS $$
    SELECT replace(public.state(statement), '23001', '23503')
$$;
CREATE FUNCTION hint(statement text) RETURNS text LANGUAGE sql AS $$
    SELECT regexp_replace(public.refused(statement), '^(23503|23001): .*\n  (HINT: .*)$', '23503 \2')
$$;

--
-- The check
--

CREATE TABLE parent (id int PRIMARY KEY, note text);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent);
SELECT ttl.create_container('parent', 60);
INSERT INTO parent (id, note, _ts, ttl) VALUES (1, 'expired', '2020-01-01', NULL), (2, 'expired', '2020-01-01', 5), (3,
    'live', '3000-01-01', NULL), (4, 'live', '2020-01-01', -1), (5, 'expired', '-infinity', 9);

-- Only a live parent can be referenced, by whatever statement the key is written
SELECT i, state(format('INSERT INTO foreign_keys.child VALUES (%s, %s)', i, i)) FROM generate_series(1, 6) i;
SELECT i, state(format('UPDATE foreign_keys.child SET parent = %s WHERE id = 3', i))
    FROM unnest('{1, 5, 4, 3}'::int[]) i;
SELECT * FROM child ORDER BY id;

-- So does COPY check, except on PostgreSQL 19, which does so without a query (doc/limits.md)
\set VERBOSITY sqlstate
COPY child FROM STDIN;
7	3
8	2
\.
\set VERBOSITY terse
SELECT state($$MERGE INTO foreign_keys.child c USING (VALUES (9, 1)) AS s (id, parent) ON c.id = s.id
    WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.parent)$$);
SELECT state($$INSERT INTO foreign_keys.child VALUES (3, 3) ON CONFLICT (id) DO UPDATE SET parent = 2$$);
SELECT state($$INSERT INTO foreign_keys.child VALUES (9, NULL)$$);

-- No setting that shows expired rows changes that
SET ttl.show_expired = on;
SELECT count(*) FROM parent;
SELECT state('INSERT INTO foreign_keys.child VALUES (10, 1)'), state('UPDATE foreign_keys.child SET parent = 2');
RESET ttl.show_expired;
-- ttl.now, which only hides rows, hides them from checks, too
SET ttl.now = '2999-12-31';
SELECT state('INSERT INTO foreign_keys.child VALUES (10, 3)');
SET ttl.now = '3001-01-01';
SELECT state('INSERT INTO foreign_keys.child VALUES (11, 3)');
RESET ttl.now;

-- A change of policy holds for the next check
SELECT ttl.set_default_ttl('parent', NULL);
SELECT state('INSERT INTO foreign_keys.child VALUES (12, 1)');
SELECT ttl.set_default_ttl('parent', 60);
SELECT state('INSERT INTO foreign_keys.child VALUES (13, 1)');
SELECT * FROM child ORDER BY id;

-- A child whose key is not changed may keep what it references, as without ttl
UPDATE child SET id = id + 100 WHERE id = 12 RETURNING id, parent;
UPDATE child SET parent = parent WHERE id = 112 RETURNING id, parent;

-- With row_security = off a dump is restored: it may have parents that have expired since, and their children
SET row_security = off;
SELECT state('INSERT INTO foreign_keys.child VALUES (14, 1)');
RESET row_security;
SELECT state('INSERT INTO foreign_keys.child VALUES (15, 1)');

-- A parent of the same statement counts, unless it is written expired
WITH p AS (INSERT INTO parent (id, note) VALUES (20, 'new') RETURNING id)
INSERT INTO child SELECT id, id FROM p;
SELECT state($$WITH p AS (INSERT INTO foreign_keys.parent (id, note, _ts) VALUES (21, 'born dead', '2020-01-01')
    RETURNING id) INSERT INTO foreign_keys.child SELECT id, id FROM p$$);
SELECT * FROM stored('parent');

-- The same for each kind of key: several columns, MATCH FULL, other types,
-- a column order of its own, a name that needs quotes
CREATE TABLE "Odd ""parent""" (a int, "B b" text, c numeric UNIQUE, PRIMARY KEY (a, "B b"));
CREATE TABLE "Odd ""child""" (id int PRIMARY KEY, "B b" varchar, a bigint, c int REFERENCES "Odd ""parent""" (c),
    FOREIGN KEY (a, "B b") REFERENCES "Odd ""parent""" MATCH FULL);
SELECT ttl.create_container('"Odd ""parent"""', 60, ttl_column => NULL);
-- the expired pair and the expired unique value are refused, the live ones and NULLs aren't
INSERT INTO "Odd ""parent""" VALUES (1, 'x', 1, '2020-01-01'), (2, 'y', 2, '3000-01-01');
SELECT state($$INSERT INTO foreign_keys."Odd ""child"""
    VALUES (1, 'x', 1, NULL)$$), state($$INSERT INTO foreign_keys."Odd ""child""" VALUES (1, NULL, NULL, 1)$$),
       state($$INSERT INTO foreign_keys."Odd ""child"""
           VALUES (1, 'y', 2, 2)$$), state($$INSERT INTO foreign_keys."Odd ""child""" VALUES (2, NULL, NULL, NULL)$$);

--
-- A user's query of the same shape is filtered
--

-- Typed by a user, the text of a foreign key's query is a query like any other, for a referenced row and ...
SELECT 1 FROM ONLY "foreign_keys"."parent" x WHERE "id" OPERATOR(pg_catalog.=) 1 FOR KEY SHARE OF x;
PREPARE check_parent (int) AS SELECT 1 FROM ONLY "foreign_keys"."parent" x
    WHERE "id" OPERATOR(pg_catalog.=) $1 FOR KEY SHARE OF x;
PREPARE check_child (int) AS SELECT 1 FROM ONLY "foreign_keys"."parent" x
    WHERE $1 OPERATOR(pg_catalog.=) "id" FOR KEY SHARE OF x;
EXECUTE check_parent (1);
EXECUTE check_child (1);
EXECUTE check_child (4);
-- ... by actions: an expired row is neither deleted nor updated
PREPARE delete_parent (int) AS DELETE FROM ONLY "foreign_keys"."parent" WHERE $1 OPERATOR(pg_catalog.=) "id";
EXECUTE delete_parent (1);
PREPARE null_parent (int) AS UPDATE ONLY "foreign_keys"."parent" SET "note" = NULL WHERE $1 OPERATOR(pg_catalog.=) "id";
EXECUTE null_parent (2);
DEALLOCATE ALL;

-- In a trigger that a referential action fires, too: only the action's own query sees all
CREATE TABLE top (id int PRIMARY KEY);
CREATE TABLE middle (id int PRIMARY KEY, top int REFERENCES top ON DELETE CASCADE);
CREATE TABLE saw (what text, n bigint);
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO foreign_keys.saw SELECT 'count', count(*) FROM foreign_keys.parent;
    RETURN OLD;
END $$;
CREATE TRIGGER look BEFORE DELETE ON middle FOR EACH ROW EXECUTE FUNCTION look();
CREATE TRIGGER look_after AFTER DELETE ON middle FOR EACH ROW EXECUTE FUNCTION look();
INSERT INTO top VALUES (1);
INSERT INTO middle VALUES (1, 1);
DELETE FROM top;
SELECT what, n FROM saw ORDER BY what, n;

-- And that by which ALTER TABLE validates
SELECT fk.parent FROM ONLY child fk LEFT OUTER JOIN ONLY parent pk ON (pk.id OPERATOR(pg_catalog.=) fk.parent)
    WHERE pk.id IS NULL AND (fk.parent IS NOT NULL) ORDER BY 1;
SELECT * FROM stored('parent');

--
-- Actions: what is stored counts, expired or not, on either side
--

CREATE TABLE p (id int PRIMARY KEY, note text);
CREATE TABLE c_cascade (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE c_null (id int PRIMARY KEY, p int REFERENCES p ON DELETE SET NULL ON UPDATE SET NULL);
CREATE TABLE c_default (id int PRIMARY KEY, p int DEFAULT 0 REFERENCES p ON DELETE SET DEFAULT ON UPDATE SET DEFAULT);
CREATE TABLE c_restrict (id int PRIMARY KEY, p int REFERENCES p ON DELETE RESTRICT ON UPDATE RESTRICT);
CREATE TABLE c_plain (id int PRIMARY KEY, p int REFERENCES p);
SELECT ttl.create_container(t, 60) FROM unnest('{p, c_cascade, c_null, c_default, c_restrict, c_plain}'::regclass[]) t;

-- Of three live parents, the first has a live child and two expired ones, the second an expired one, the third one
-- that never expires
CREATE PROCEDURE refill(child regclass) LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE foreign_keys.p, foreign_keys.c_cascade, foreign_keys.c_null, foreign_keys.c_default,
        foreign_keys.c_restrict, foreign_keys.c_plain;
    INSERT INTO foreign_keys.p (id, note, _ts) VALUES (0, 'default', '3000-01-01'), (1, 'live', '3000-01-01'), (2,
        'live', '3000-01-01'), (3, 'live', '3000-01-01');
    EXECUTE format('INSERT INTO %s (id, p, _ts, ttl) VALUES (11, 1, ''3000-01-01'', NULL), (12, 1, ''2020-01-01'', '
        'NULL), (13, 1, ''2020-01-01'', 5), (21, 2, ''2020-01-01'', NULL), (31, 3, ''2020-01-01'', -1)', child);
END $$;

-- CASCADE changes keys of live and expired children, and deletes them
CALL refill('c_cascade');
UPDATE p SET id = 101 WHERE id = 1;
SELECT * FROM stored('c_cascade');
DELETE FROM p WHERE id IN (2, 3);
SELECT * FROM stored('c_cascade');
-- with the last of them, no child is left that would reference nothing
DELETE FROM p WHERE id = 101;
SELECT * FROM stored('c_cascade');

-- SET NULL
CALL refill('c_null');
UPDATE p SET id = 101 WHERE id = 1;
DELETE FROM p WHERE id = 2;
SELECT * FROM stored('c_null');

-- No clock was reset, and no row woken: only the live ones are seen
SELECT id, p FROM c_null ORDER BY id;

-- SET DEFAULT
CALL refill('c_default');
UPDATE p SET id = 101 WHERE id = 1;
DELETE FROM p WHERE id = 2;
SELECT * FROM stored('c_default');
SELECT id, p FROM c_default ORDER BY id;

-- RESTRICT and NO ACTION forbid: for live children alone, whether or not the expired ones have been deleted yet
CALL refill('c_restrict');
SELECT i, referenced(format('DELETE FROM foreign_keys.p WHERE id = %s', i)),
    referenced(format('UPDATE foreign_keys.p SET id = 9 WHERE id = %s', i)) FROM generate_series(1, 3) i;
CALL ttl.reap('c_restrict');
SELECT i, referenced(format('DELETE FROM foreign_keys.p WHERE id = %s', i)),
    referenced(format('UPDATE foreign_keys.p SET id = 9 WHERE id = %s', i)) FROM generate_series(1, 3) i;
CALL refill('c_plain');
SELECT i, referenced(format('DELETE FROM foreign_keys.p WHERE id = %s', i)),
    referenced(format('UPDATE foreign_keys.p SET id = 9 WHERE id = %s', i)) FROM generate_series(1, 3) i;
CALL ttl.reap('c_plain');
SELECT i, referenced(format('DELETE FROM foreign_keys.p WHERE id = %s', i)),
    referenced(format('UPDATE foreign_keys.p SET id = 9 WHERE id = %s', i)) FROM generate_series(1, 3) i;
SELECT * FROM stored('p');
SELECT * FROM stored('c_plain');

-- No setting changes what they do: not those that hide and stamp, and not a clock
CALL refill('c_cascade');
SET row_security = off;
SET ttl.touch = off;
DELETE FROM p WHERE id = 1;
SET row_security = on;
SET ttl.touch = on;
SET ttl.show_expired = on;
UPDATE p SET id = 102 WHERE id = 2;
RESET ttl.show_expired;
SET ttl.now = '2001-01-01';
DELETE FROM p WHERE id = 3;
RESET ttl.now;
SELECT * FROM stored('c_cascade');

-- Parents that are expired themselves are not found by a user; the reaper's
-- deletion of them acts on children as any
CALL refill('c_cascade');
INSERT INTO c_null (id, p, _ts) SELECT id, p, _ts FROM (VALUES (11, 1, timestamptz '3000-01-01'), (12, 1,
    '2020-01-01')) v (id, p, _ts);
SET ttl.touch = off;
UPDATE p SET _ts = '2020-01-01' WHERE id = 1;
RESET ttl.touch;
DELETE FROM p WHERE id = 1;
UPDATE p SET id = 9 WHERE id = 1;
SELECT * FROM stored('p');
SELECT id, p FROM c_cascade ORDER BY id;
-- the reaper's CASCADE and SET NULL reach live and expired children
CALL ttl.reap('p');
SELECT * FROM stored('p');
SELECT * FROM stored('c_cascade');
SELECT * FROM stored('c_null');
SELECT orphans('c_cascade', 'p', 'p'), orphans('c_null', 'p', 'p');

-- Actions reach children of other owners, whatever the role that deletes may do
CALL refill('c_cascade');
INSERT INTO c_null (id, p, _ts) VALUES (22, 2, '2020-01-01');
GRANT USAGE ON SCHEMA foreign_keys TO regress_ttl_owner, regress_ttl_user;
ALTER TABLE c_cascade OWNER TO regress_ttl_owner;
GRANT SELECT, UPDATE, DELETE ON p TO regress_ttl_user;
SET ROLE regress_ttl_user;
UPDATE foreign_keys.p SET id = 101 WHERE id = 1;
DELETE FROM foreign_keys.p WHERE id = 2;
RESET ROLE;
SELECT * FROM stored('c_cascade');
SELECT * FROM stored('c_null');

-- With row-level security forced on the child's owner, too
ALTER TABLE c_cascade ENABLE ROW LEVEL SECURITY;
ALTER TABLE c_cascade FORCE ROW LEVEL SECURITY;
SET ROLE regress_ttl_user;
DELETE FROM foreign_keys.p;
RESET ROLE;
SELECT * FROM stored('c_cascade');
ALTER TABLE c_cascade DISABLE ROW LEVEL SECURITY;
ALTER TABLE c_cascade NO FORCE ROW LEVEL SECURITY;

-- Plans of actions are kept: the first are made over an ordinary table, which then becomes a container and ends as one
CREATE TABLE p2 (id int PRIMARY KEY);
CREATE TABLE c2 (id int PRIMARY KEY, p int REFERENCES p2 ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO p2 SELECT generate_series(1, 20);
INSERT INTO c2 SELECT i, i FROM generate_series(1, 20) i;
DELETE FROM p2 WHERE id <= 8;
UPDATE p2 SET id = id + 100 WHERE id BETWEEN 9 AND 16;
SELECT ttl.create_container('c2', 60);
SELECT ttl.create_container('p2', 60);
-- an action that was planned before reaches rows that have expired since
SET ttl.touch = off;
UPDATE c2 SET _ts = '2020-01-01' WHERE p > 17;
RESET ttl.touch;
UPDATE p2 SET id = id + 100 WHERE id = 18;
DELETE FROM p2 WHERE id = 19;
SELECT * FROM stored('c2') WHERE stored ~ 'expired';
-- nor does it matter when TTL is turned off, and the container dropped
SELECT ttl.set_default_ttl('c2', NULL);
DELETE FROM p2 WHERE id = 20;
SELECT ttl.drop_container('c2');
DELETE FROM p2 WHERE id = 118;
SELECT id, p FROM c2 ORDER BY id;

--
-- Chains over three containers
--

CREATE TABLE one (id int PRIMARY KEY);
CREATE TABLE two (id int PRIMARY KEY, one int REFERENCES one ON DELETE CASCADE ON UPDATE CASCADE, UNIQUE (id, one));
CREATE TABLE three (id int PRIMARY KEY, two int, one int, FOREIGN KEY (two, one) REFERENCES two (id,
    one) ON DELETE CASCADE ON UPDATE CASCADE);
SELECT ttl.create_container(t, 60) FROM unnest('{one, two, three}'::regclass[]) t;
CREATE PROCEDURE refill_chain() LANGUAGE sql AS $$
    TRUNCATE foreign_keys.one, foreign_keys.two, foreign_keys.three;
    INSERT INTO foreign_keys.one (id, _ts) VALUES (1, '3000-01-01'), (2, '3000-01-01');
    INSERT INTO foreign_keys.two (id, one, _ts) VALUES (1, 1, '3000-01-01'), (2, 1, '3000-01-01'), (3, 2, '3000-01-01');
    INSERT INTO foreign_keys.three (id, two, one, _ts) VALUES (1, 1, 1, '3000-01-01'), (2, 2, 1, '2020-01-01'), (3, 2,
        1, '3000-01-01'), (4, 3, 2, '2020-01-01');
$$;
CREATE PROCEDURE age_chain() LANGUAGE sql AS $$
    SET LOCAL ttl.touch = off;
    UPDATE foreign_keys.two SET _ts = '2020-01-01' WHERE id IN (2, 3);
$$;
CALL refill_chain();
CALL age_chain();

-- A key that changes at the top reaches the third table through a row that has expired
BEGIN;
UPDATE one SET id = id + 100;
SELECT * FROM stored('two');
SELECT * FROM stored('three');
SELECT orphans('two', 'one', 'one'), orphans('three', 'two', 'two');
-- the deletion, too
DELETE FROM one WHERE id = 101;
SELECT * FROM stored('two');
SELECT * FROM stored('three');
ROLLBACK;

-- So it does where the check of the third is deferred; not in the next transaction
BEGIN;
ALTER TABLE three ALTER CONSTRAINT three_two_one_fkey DEFERRABLE INITIALLY DEFERRED;
UPDATE one SET id = id + 100;
SET CONSTRAINTS ALL IMMEDIATE;
SELECT * FROM stored('three');
SELECT orphans('two', 'one', 'one'), orphans('three', 'two', 'two');
ROLLBACK;
BEGIN;
ALTER TABLE three ALTER CONSTRAINT three_two_one_fkey DEFERRABLE INITIALLY DEFERRED;
INSERT INTO three (id, two, one) VALUES (5, 2, 1);
SELECT state('SET CONSTRAINTS ALL IMMEDIATE');
ROLLBACK;

-- Nor when what has handed it on was rolled back; but where a function has the check done
BEGIN;
ALTER TABLE three ALTER CONSTRAINT three_two_one_fkey DEFERRABLE INITIALLY DEFERRED;
SAVEPOINT before;
UPDATE one SET id = id + 100;
ROLLBACK TO before;
INSERT INTO three (id, two, one) VALUES (5, 2, 1);
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;
-- nor for what COPY brings
BEGIN;
UPDATE one SET id = id + 100;
\copy three (id, two, one) FROM PROGRAM 'printf "5\t2\t101\n"'
ROLLBACK;
BEGIN;
ALTER TABLE three ALTER CONSTRAINT three_two_one_fkey DEFERRABLE INITIALLY DEFERRED;
SAVEPOINT before;
UPDATE one SET id = id + 100;
ROLLBACK TO before;
SAVEPOINT before;
UPDATE one SET id = id + 100;
RELEASE before;
SELECT state('SET CONSTRAINTS ALL IMMEDIATE');
SELECT orphans('two', 'one', 'one'), orphans('three', 'two', 'two');
ROLLBACK;

-- So it does where the expired row in the middle gets the default
BEGIN;
ALTER TABLE two ALTER one SET DEFAULT 2, DROP CONSTRAINT two_one_fkey, ADD FOREIGN KEY (one) REFERENCES one ON UPDATE SET DEFAULT;
UPDATE one SET id = 101 WHERE id = 1;
SELECT * FROM stored('two');
SELECT * FROM stored('three');
SELECT orphans('two', 'one', 'one'), orphans('three', 'two', 'two');
ROLLBACK;

-- The middle is expired: what references it goes with it, live or not, as CASCADE says
BEGIN;
CALL ttl.reap('two');
SELECT * FROM stored('one');
SELECT * FROM stored('two');
SELECT * FROM stored('three');
ROLLBACK;

-- Its key is taken by a new row: the same
BEGIN;
INSERT INTO two (id, one, _ts) VALUES (3, 1, '3000-01-01');
SELECT * FROM stored('two');
SELECT * FROM stored('three');
ROLLBACK;

--
-- A key that an expired parent holds is taken by a new one
--

CREATE TABLE taken (id int PRIMARY KEY, note text);
CREATE TABLE refers (id int PRIMARY KEY, taken int REFERENCES taken);
CREATE TABLE refers_further (id int PRIMARY KEY, refers int REFERENCES refers ON DELETE RESTRICT);
SELECT ttl.create_container(t, 60) FROM unnest('{taken, refers, refers_further}'::regclass[]) t;
CREATE PROCEDURE refill_taken() LANGUAGE sql AS $$
    TRUNCATE foreign_keys.taken, foreign_keys.refers, foreign_keys.refers_further;
    INSERT INTO foreign_keys.taken (id, note, _ts) SELECT i, 'first', '3000-01-01' FROM generate_series(1, 5) i;
    INSERT INTO foreign_keys.refers (id, taken, _ts) SELECT i, i, '3000-01-01' FROM generate_series(1, 4) i;
    INSERT INTO foreign_keys.refers_further (id, refers, _ts) VALUES (3, 3, '2020-01-01'), (4, 4, '3000-01-01');
$$;

-- Ageing is a transaction of its own, or the keys would be checked again
CREATE PROCEDURE age_taken() LANGUAGE sql AS $$
    SET LOCAL ttl.touch = off;
    UPDATE foreign_keys.taken SET _ts = '2020-01-01';
    UPDATE foreign_keys.refers SET _ts = '2020-01-01' WHERE id > 1;
$$;
CALL refill_taken();
CALL age_taken();

-- A live child forbids it, an expired one goes along, and what is expired that references that
SELECT hint('INSERT INTO foreign_keys.taken (id, note) VALUES (1, ''second'')');
SELECT i, state(format('INSERT INTO foreign_keys.taken (id, note, _ts) VALUES (%s, ''second'', ''3000-01-01'')', i))
    FROM generate_series(2, 3) i;
SELECT hint('INSERT INTO foreign_keys.taken (id, note) VALUES (4, ''second'')');
SELECT state('INSERT INTO foreign_keys.taken (id, note, _ts) VALUES (5, ''second'', ''3000-01-01'')');
-- of what was refused, nothing is deleted
SELECT * FROM stored('taken');
SELECT * FROM stored('refers');
SELECT * FROM stored('refers_further');

-- The same by ON CONFLICT and UPDATE
CALL refill_taken();
CALL age_taken();
BEGIN;
INSERT INTO taken (id, note, _ts) VALUES (2, 'second', '3000-01-01') ON CONFLICT (id) DO UPDATE SET note = 'updated'
    RETURNING id, note;
UPDATE taken SET id = 3 WHERE id = 2 RETURNING id, note;
SELECT * FROM stored('refers');
ROLLBACK;

-- the search for rows that go along may be one that PostgreSQL would rather do
-- in parallel
CALL refill_taken();
CALL age_taken();
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
INSERT INTO taken (id, note, _ts) VALUES (2, 'second', '3000-01-01');
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET enable_indexscan;
RESET enable_bitmapscan;
SELECT * FROM stored('refers');

-- What CASCADE would delete may be referenced in turn: by an expired row, which goes along, or a live one
CREATE TABLE head (id int PRIMARY KEY);
CREATE TABLE link (id int PRIMARY KEY, head int REFERENCES head ON DELETE CASCADE);
CREATE TABLE tail (id int PRIMARY KEY, link int REFERENCES link);
CREATE TABLE link_log (id int);
CREATE RULE log AS ON DELETE TO link DO ALSO INSERT INTO link_log VALUES (OLD.id);
SELECT ttl.create_container(t, 60) FROM unnest('{head, link, tail}'::regclass[]) t;
INSERT INTO head (id, _ts) SELECT i, '3000-01-01' FROM generate_series(1, 3) i;
INSERT INTO link (id, head, _ts) SELECT i, i, '3000-01-01' FROM generate_series(1, 3) i;
INSERT INTO tail (id, link, _ts) VALUES (1, 1, '2020-01-01'), (2, 2, '3000-01-01'), (3, 3, '2020-01-01');
SET ttl.touch = off;
UPDATE link SET _ts = '2020-01-01';
UPDATE head SET _ts = '2020-01-01';
RESET ttl.touch;
SELECT i, hint(format('INSERT INTO foreign_keys.head (id, _ts) VALUES (%s, ''3000-01-01'')', i))
    FROM generate_series(1, 2) i;
-- the reaper deletes the third head with all that is expired, and leaves the second
SET client_min_messages = error;
CALL ttl.reap('head');
SET client_min_messages = warning;
SELECT * FROM stored('head');
SELECT * FROM stored('link');
SELECT * FROM stored('tail');
-- the rule has fired for each link, whoever deleted it
SELECT id FROM link_log ORDER BY id;

-- A rule on what CASCADE deletes or changes fires once for each row
TRUNCATE head, link, tail, link_log;
CREATE TABLE tail_log (id int, link int);
CREATE RULE log AS ON DELETE TO tail DO ALSO INSERT INTO tail_log SELECT OLD.id, l.id FROM link l;
CREATE RULE log_update AS ON UPDATE TO link DO ALSO INSERT INTO link_log VALUES (-OLD.id);
ALTER TABLE tail DROP CONSTRAINT tail_link_fkey, ADD FOREIGN KEY (link) REFERENCES link ON DELETE CASCADE;
ALTER TABLE link DROP CONSTRAINT link_head_fkey,
    ADD FOREIGN KEY (head) REFERENCES head ON DELETE CASCADE ON UPDATE CASCADE;
INSERT INTO head (id, _ts) SELECT i, '3000-01-01' FROM generate_series(1, 4) i;
INSERT INTO link (id, head, _ts) SELECT i, i, CASE WHEN i < 3 THEN '2020-01-01' ELSE '3000-01-01' END::timestamptz
    FROM generate_series(1, 4) i;
INSERT INTO tail (id, link, _ts) VALUES (4, 4, '2020-01-01'), (5, 4, '3000-01-01');
UPDATE head SET id = 11 WHERE id = 1;
DELETE FROM head WHERE id = 2;
DELETE FROM link WHERE id = 4;
-- an expired link is hidden from the rule's own query, though it has been moved: only number 3 is there
SELECT id FROM link_log ORDER BY id;
SELECT id, link FROM tail_log ORDER BY id, link;

-- Keys that are equal by the referenced column's collation are found; from PostgreSQL 18 on,
-- the referencing column must have the same
CREATE FUNCTION caseless_key() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    EXCEPTION WHEN feature_not_supported THEN
        RETURN 'done'; -- a build without ICU
    END;
    CREATE TABLE word (w text COLLATE caseless PRIMARY KEY);
    CREATE TABLE word_used (id int PRIMARY KEY, w text);
    BEGIN
        ALTER TABLE word_used ADD FOREIGN KEY (w) REFERENCES word;
    EXCEPTION WHEN collation_mismatch THEN
        ALTER TABLE word_used ALTER w TYPE text COLLATE caseless, ADD FOREIGN KEY (w) REFERENCES word;
    END;
    PERFORM ttl.create_container('word', 60), ttl.create_container('word_used', 60);
    INSERT INTO word VALUES ('Word');
    INSERT INTO word_used VALUES (1, 'word');
    PERFORM set_config('ttl.touch', 'off', true);
    UPDATE word_used SET _ts = '2020-01-01';
    UPDATE word SET _ts = '2020-01-01';
    PERFORM set_config('ttl.touch', 'on', true);
    RETURN state('INSERT INTO foreign_keys.word VALUES (''WORD'')');
END $$;
SELECT caseless_key();

--
-- The reaper
--

-- Child and parent, both expired, go in one call, in whatever order; rows that can't go are
-- none of this test's business
SET client_min_messages = error;
CALL refill_taken();
CALL age_taken();
CALL ttl.reap();
SELECT * FROM stored('taken');
SELECT * FROM stored('refers');
SELECT * FROM stored('refers_further');
-- named one after the other, with parents first and again last, the same are left
CALL refill_taken();
CALL age_taken();
CALL ttl.reap('taken');
CALL ttl.reap('refers');
CALL ttl.reap('refers_further');
CALL ttl.reap('refers');
CALL ttl.reap('taken');
SELECT * FROM stored('taken');
SELECT * FROM stored('refers');
SELECT * FROM stored('refers_further');

-- Once the live ones are gone, all of it
DELETE FROM refers_further;
DELETE FROM refers;
CALL ttl.reap();
SET client_min_messages = warning;
SELECT ttl.expired_count('taken') AS taken, ttl.expired_count('refers') AS refers;

--
-- ADD and VALIDATE over expired parents
--

CREATE TABLE pa (id int PRIMARY KEY);
CREATE TABLE ca (id int PRIMARY KEY, pa int);
SELECT ttl.create_container('pa', 60);
INSERT INTO pa (id, _ts) VALUES (1, '2020-01-01'), (2, '3000-01-01');

-- An expired parent that is stored validates, but can't be referenced any more
INSERT INTO ca VALUES (1, 1), (2, 2);
ALTER TABLE ca ADD CONSTRAINT k FOREIGN KEY (pa) REFERENCES pa;
SELECT state('INSERT INTO foreign_keys.ca VALUES (3, 1)'), state('UPDATE foreign_keys.ca SET pa = 1 WHERE id = 2');
-- a validation in two steps is no different
ALTER TABLE ca DROP CONSTRAINT k, ADD CONSTRAINT k FOREIGN KEY (pa) REFERENCES pa NOT VALID;
ALTER TABLE ca VALIDATE CONSTRAINT k;
SELECT convalidated FROM pg_constraint WHERE conname = 'k' AND conrelid = 'ca'::regclass;
SELECT state('INSERT INTO foreign_keys.ca VALUES (3, 1)');

-- What references nothing that is stored is refused, in an expired child, too
SELECT ttl.create_container('ca', 60);
ALTER TABLE ca DROP CONSTRAINT k;
INSERT INTO ca (id, pa, _ts) VALUES (4, 99, '2020-01-01');
SELECT state('ALTER TABLE foreign_keys.ca ADD CONSTRAINT k FOREIGN KEY (pa) REFERENCES foreign_keys.pa');
ALTER TABLE ca ADD CONSTRAINT k FOREIGN KEY (pa) REFERENCES pa NOT VALID;
SELECT state('ALTER TABLE foreign_keys.ca VALIDATE CONSTRAINT k');
-- without it the constraint is valid
CALL ttl.reap('ca');
ALTER TABLE ca VALIDATE CONSTRAINT k;
ALTER TABLE ca DROP CONSTRAINT k;

-- By a role that may not read the parent, PostgreSQL validates row by row: with the same result
GRANT CREATE, USAGE ON SCHEMA foreign_keys TO regress_ttl_owner;
ALTER TABLE ca OWNER TO regress_ttl_owner;
GRANT REFERENCES ON pa TO regress_ttl_owner;
SET ROLE regress_ttl_owner;
SELECT state('SELECT FROM foreign_keys.pa');
ALTER TABLE foreign_keys.ca ADD CONSTRAINT k FOREIGN KEY (pa) REFERENCES foreign_keys.pa;
SELECT state('INSERT INTO foreign_keys.ca VALUES (3, 1)'), state('INSERT INTO foreign_keys.ca VALUES (5, 2)');
ALTER TABLE foreign_keys.ca DROP CONSTRAINT k;
ALTER TABLE foreign_keys.ca ADD CONSTRAINT k FOREIGN KEY (pa) REFERENCES foreign_keys.pa NOT VALID;
ALTER TABLE foreign_keys.ca VALIDATE CONSTRAINT k;
SELECT state('UPDATE foreign_keys.ca SET pa = 1 WHERE id = 2');
RESET ROLE;

-- Where the constraint is deferred, too, except on PostgreSQL 19
ALTER TABLE ca ALTER CONSTRAINT k DEFERRABLE INITIALLY DEFERRED;
SELECT state('SET CONSTRAINTS foreign_keys.k IMMEDIATE');
\set VERBOSITY sqlstate
BEGIN;
INSERT INTO ca (id, pa) VALUES (6, 1);
COMMIT;
\set VERBOSITY terse

-- CREATE TABLE ... REFERENCES, and a column that is added with one
CREATE TABLE cb (id int PRIMARY KEY);
INSERT INTO cb VALUES (1);
ALTER TABLE cb ADD pa int DEFAULT 1 REFERENCES pa;
SELECT state('INSERT INTO foreign_keys.cb (id) VALUES (2)');

-- A rewrite of the child, or of the key's type, checks the constraint again: what was stored remains valid
ALTER TABLE cb ALTER pa TYPE bigint;
ALTER TABLE pa ALTER id TYPE bigint;
SELECT * FROM cb;
SELECT state('INSERT INTO foreign_keys.cb (id) VALUES (2)');

--
-- Deferrable
--

CREATE TABLE pd (id int PRIMARY KEY);
CREATE TABLE cd (id int PRIMARY KEY, pd int REFERENCES pd ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE cn (id int PRIMARY KEY, pd int REFERENCES pd DEFERRABLE INITIALLY DEFERRED);
SELECT ttl.create_container(t, 60) FROM unnest('{pd, cd, cn}'::regclass[]) t;
INSERT INTO pd (id, _ts) VALUES (1, '2020-01-01'), (2, '3000-01-01'), (3, '3000-01-01'), (4, '3000-01-01');
\set VERBOSITY sqlstate

-- A deferred check finds an expired parent absent when it is made at last, except on PostgreSQL 19
BEGIN;
INSERT INTO cd (id, pd) VALUES (1, 1);
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;
BEGIN;
INSERT INTO cd (id, pd) VALUES (1, 1);
COMMIT;

INSERT INTO cn (id, pd, _ts) VALUES (2, 2, '2020-01-01'), (3, 3, '3000-01-01');

-- An expired child goes when its parent does, and the check at COMMIT finds none ...
BEGIN;
DELETE FROM pd WHERE id = 2;
SELECT id FROM pd ORDER BY id;
COMMIT;
SELECT id FROM pd ORDER BY id;
-- deleted meanwhile, it is no obstacle, either
BEGIN;
DELETE FROM pd WHERE id = 2;
CALL ttl.reap('cn');
COMMIT;
SELECT id FROM pd ORDER BY id;
-- a live child is content with a new parent of that key
BEGIN;
DELETE FROM pd WHERE id = 3;
INSERT INTO pd (id, _ts) VALUES (3, '3000-01-01');
COMMIT;
SELECT id FROM pd ORDER BY id;
-- ... and an expired parent is none
BEGIN;
DELETE FROM pd WHERE id = 3;
INSERT INTO pd (id, _ts) VALUES (3, '2020-01-01');
COMMIT;
SELECT id FROM pd ORDER BY id;
\set VERBOSITY terse
SELECT * FROM stored('cn');
SELECT orphans('cd', 'pd', 'pd'), orphans('cn', 'pd', 'pd');

--
-- Self-references
--

CREATE TABLE tree (id int PRIMARY KEY, up int REFERENCES tree ON DELETE CASCADE ON UPDATE CASCADE, note text);
SELECT ttl.create_container('tree', 60);
CREATE PROCEDURE refill_tree() LANGUAGE sql AS $$
    TRUNCATE foreign_keys.tree;
    INSERT INTO foreign_keys.tree (id, up, _ts) VALUES (1, NULL, '3000-01-01'), (2, 1, '2020-01-01'), (3, 1,
        '3000-01-01'), (4, 3, '2020-01-01'), (5, 5, '3000-01-01');
$$;
CREATE PROCEDURE age_tree() LANGUAGE sql AS $$
    SET LOCAL ttl.touch = off;
    UPDATE foreign_keys.tree SET _ts = '2020-01-01' WHERE id = 5;
$$;
CALL refill_tree();
CALL age_tree();

-- A row may reference itself if it is live, and no row that has expired
SELECT state('INSERT INTO foreign_keys.tree (id, up) VALUES (6, 2)'),
    state('INSERT INTO foreign_keys.tree (id, up) VALUES (6, 6)'),
    state('INSERT INTO foreign_keys.tree (id, up, _ts) VALUES (7, 7, ''2020-01-01'')');
SELECT * FROM stored('tree');
-- the key is changed in live and expired children alike
UPDATE tree SET id = 10 WHERE id = 1 RETURNING id;
SELECT * FROM stored('tree');
-- a DELETE takes them along
DELETE FROM tree WHERE id = 3;
SELECT * FROM stored('tree');
-- of the rest the reaper takes the expired
CALL ttl.reap('tree');
SELECT * FROM stored('tree');
CALL refill_tree();
CALL age_tree();
-- from the root, all below it
DELETE FROM tree WHERE id = 1;
SELECT * FROM stored('tree');

-- SET DEFAULT finds no row that has expired, either
CREATE TABLE heir (id int PRIMARY KEY, up int DEFAULT 0 REFERENCES heir ON DELETE SET DEFAULT);
SELECT ttl.create_container('heir', 60);
INSERT INTO heir (id, up, _ts) VALUES (0, NULL, '2020-01-01'), (1, NULL, '3000-01-01'), (2, 1, '3000-01-01');
SELECT state('DELETE FROM foreign_keys.heir WHERE id = 1');
-- as is the check at the transaction's end (but on 19, see doc/limits.md), or after a change of a key that others follow
ALTER TABLE heir ALTER CONSTRAINT heir_up_fkey DEFERRABLE INITIALLY DEFERRED;
BEGIN;
DELETE FROM heir WHERE id = 1;
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;
ALTER TABLE heir DROP CONSTRAINT heir_up_fkey,
    ADD FOREIGN KEY (up) REFERENCES heir ON DELETE SET DEFAULT ON UPDATE CASCADE;
BEGIN;
UPDATE heir SET id = 3 WHERE id = 1;
INSERT INTO heir (id, up) VALUES (4, 0);
ROLLBACK;
SELECT * FROM stored('heir');
INSERT INTO heir (id, up) VALUES (0, NULL);
SELECT state('DELETE FROM foreign_keys.heir WHERE id = 1');
SELECT id, up FROM heir ORDER BY id;

-- Without an action the reaper takes what hangs together: a ring, one that references itself; not what a live row holds
CREATE TABLE ring (id int PRIMARY KEY, next int REFERENCES ring);
SELECT ttl.create_container('ring', 60);
CREATE PROCEDURE refill_ring() LANGUAGE sql AS $$
    TRUNCATE foreign_keys.ring;
    INSERT INTO foreign_keys.ring (id, next, _ts) VALUES (1, 2, '3000-01-01'), (2, 3, '3000-01-01'), (3, 1,
        '3000-01-01'), (4, 4, '3000-01-01'), (5, NULL, '3000-01-01'), (6, 5, '3000-01-01');
$$;
CREATE PROCEDURE age_ring() LANGUAGE sql AS $$
    SET LOCAL ttl.touch = off;
    UPDATE foreign_keys.ring SET _ts = timestamptz '2020-01-01' + id * interval '1 s' WHERE id < 6;
$$;
CALL refill_ring();
CALL age_ring();
CALL ttl.reap('ring');
SELECT * FROM stored('ring');
-- once that is gone it can be deleted
SELECT state('DELETE FROM foreign_keys.ring WHERE id = 6');
CALL ttl.reap('ring');
CALL ttl.reap('ring');
SELECT * FROM stored('ring');

-- The same by eviction: the rest of the ring goes with the key that is taken
CALL refill_ring();
CALL age_ring();
SELECT i, state(format('INSERT INTO foreign_keys.ring (id, _ts) VALUES (%s, ''3000-01-01'')', i))
    FROM unnest('{4, 2, 5}'::int[]) i;
SELECT orphans('ring', 'ring', 'next');
SELECT * FROM stored('ring');

--
-- Partitioned on either side
--

CREATE TABLE pp (note text, id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE pp1 PARTITION OF pp FOR VALUES FROM (0) TO (10);
CREATE TABLE pp2 (id int NOT NULL, gone int, note text);
ALTER TABLE pp2 DROP gone;
ALTER TABLE pp ATTACH PARTITION pp2 FOR VALUES FROM (10) TO (20);
CREATE TABLE cp (id int, pp int REFERENCES pp ON DELETE CASCADE ON UPDATE CASCADE, PRIMARY KEY (id))
    PARTITION BY RANGE (id);
CREATE TABLE cp1 PARTITION OF cp FOR VALUES FROM (0) TO (100) PARTITION BY LIST (id);
CREATE TABLE cp1a PARTITION OF cp1 FOR VALUES IN (1, 2, 3, 11, 12, 13);
CREATE TABLE cp1b PARTITION OF cp1 DEFAULT;
CREATE TABLE cp2 (pp int, id int NOT NULL);
ALTER TABLE cp ATTACH PARTITION cp2 FOR VALUES FROM (100) TO (200);
CREATE TABLE cq (id int PRIMARY KEY, pp int REFERENCES pp) PARTITION BY HASH (id);
CREATE TABLE cq0 PARTITION OF cq FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE cq1 PARTITION OF cq FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT ttl.create_container(t, 60) FROM unnest('{pp, cp, cq}'::regclass[]) t;
INSERT INTO pp (id, note, _ts) SELECT i, 'p', '3000-01-01'
    FROM unnest('{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16, 17}'::int[]) i;
INSERT INTO cp (id, pp, _ts) SELECT 10 * p + k, p, CASE WHEN k = 1 THEN '3000-01-01' ELSE '2020-01-01' END::timestamptz
    FROM unnest('{1, 2, 11, 12, 15}'::int[]) p, generate_series(1, 3) k;
INSERT INTO cq (id, pp, _ts) SELECT p, p, CASE WHEN p % 2 = 0 THEN '3000-01-01' ELSE '2020-01-01' END::timestamptz
    FROM unnest('{5, 6, 16, 17}'::int[]) p;

-- Expired parents are absent in either partition, and from children in all of theirs
SET ttl.touch = off;
UPDATE pp SET _ts = '2020-01-01' WHERE id IN (3, 5, 6, 13, 16, 17);
RESET ttl.touch;
SELECT i, state(format('INSERT INTO foreign_keys.cp (id, pp) VALUES (%s, %s)', 40 + i, i)),
    state(format('INSERT INTO foreign_keys.cq (id, pp) VALUES (%s, %s)', 40 + i, i))
    FROM unnest('{3, 4, 13, 14}'::int[]) i;
-- actions reach children in all partitions, expired or not
DELETE FROM pp WHERE id IN (1, 11);
SELECT * FROM stored('cp');
-- keys move within a partition, and between them
UPDATE pp SET id = 9 WHERE id = 2;
UPDATE pp SET id = 19 WHERE id = 12;
UPDATE pp SET id = 7 WHERE id = 15;
SELECT * FROM stored('cp');
SELECT tableoid::regclass, id, pp FROM cp ORDER BY id;

-- Expired ones go together with their parent; a live one keeps it
SELECT hint('INSERT INTO foreign_keys.pp (id) VALUES (6)'), hint('INSERT INTO foreign_keys.pp (id) VALUES (16)') \gx
SELECT state('INSERT INTO foreign_keys.pp (id, note, _ts) VALUES (5, ''new'', ''3000-01-01'')'),
    state('INSERT INTO foreign_keys.pp (id, note, _ts) VALUES (3, ''new'', ''3000-01-01'')');
-- the reaper leaves what live rows reference
SET client_min_messages = error;
CALL ttl.reap();
SET client_min_messages = warning;
SELECT * FROM stored('pp');
SELECT * FROM stored('cp');
SELECT * FROM stored('cq');
SELECT orphans('cp', 'pp', 'pp'), orphans('cq', 'pp', 'pp');

-- Expired parents are enough for a validation, of a constraint or of a partition that is attached, not for new rows
ALTER TABLE cq DROP CONSTRAINT cq_pp_fkey;
INSERT INTO cq (id, pp) VALUES (100, 3), (101, 14);
SET ttl.touch = off;
UPDATE pp SET _ts = '2020-01-01' WHERE id IN (3, 14);
RESET ttl.touch;
ALTER TABLE cq ADD CONSTRAINT k FOREIGN KEY (pp) REFERENCES pp;
CREATE TABLE cp3 (LIKE cp INCLUDING ALL);
INSERT INTO cp3 (id, pp) VALUES (200, 14);
ALTER TABLE cp ATTACH PARTITION cp3 FOR VALUES FROM (200) TO (300);
SELECT state('INSERT INTO foreign_keys.cq (id, pp) VALUES (102, 3)'),
    state('INSERT INTO foreign_keys.cp (id, pp) VALUES (201, 14)');

-- A partition that rows reference cannot be detached, even if they have expired
SELECT state('ALTER TABLE foreign_keys.pp DETACH PARTITION foreign_keys.pp2'), state('DROP TABLE foreign_keys.pp2');
-- a partition of the child that leaves keeps its constraint, with checks and actions
ALTER TABLE cp DETACH PARTITION cp3;
SELECT state('INSERT INTO foreign_keys.cp3 (id, pp) VALUES (202, 14)'),
    state('INSERT INTO foreign_keys.cp3 (id, pp) VALUES (202, 9)');
DELETE FROM pp WHERE id = 9;
SELECT id, pp FROM cp3 ORDER BY id;
-- of rows that are all expired, but stored, the same: no HINT tells to delete those of the partition that goes
DELETE FROM cq WHERE pp > 9;
SET ttl.touch = off;
UPDATE cp SET _ts = '2020-01-01';
UPDATE cp3 SET _ts = '2020-01-01';
RESET ttl.touch;
SELECT count(*) FROM cp;
SELECT state(d), refused(d) LIKE '%HINT%' AS hint
    FROM (VALUES ('ALTER TABLE foreign_keys.pp DETACH PARTITION foreign_keys.pp2')) s (d);
-- once they are deleted, it leaves
SET client_min_messages = error;
CALL ttl.reap('cp');
CALL ttl.reap('cp3');
CALL ttl.reap('pp');
SET client_min_messages = warning;
ALTER TABLE pp DETACH PARTITION pp2;
SELECT * FROM stored('pp');

-- TRUNCATE knows of no rows: CASCADE has to be said, and empties all
SELECT state('TRUNCATE foreign_keys.pp');
TRUNCATE pp CASCADE;
SELECT * FROM stored('cp3');

SET client_min_messages = warning;
REVOKE ALL ON SCHEMA foreign_keys FROM regress_ttl_user, regress_ttl_owner;
DROP SCHEMA foreign_keys CASCADE;
