-- Whose code runs as whom: in a user's session all that a deletion sets off runs as the
-- user, and nobody else's code does
\set VERBOSITY default
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE SCHEMA whose;
CREATE ROLE regress_ttl_alice;
CREATE ROLE regress_ttl_mallory;
GRANT USAGE, CREATE ON SCHEMA whose TO regress_ttl_alice, regress_ttl_mallory;
SET search_path = whose, public;

-- What has run, and as whom
CREATE TABLE ran (n int GENERATED ALWAYS AS IDENTITY, who name DEFAULT current_user, what text);
GRANT INSERT ON ran TO PUBLIC;
CREATE FUNCTION ran() RETURNS text LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM whose.ran RETURNING *)
    SELECT string_agg(DISTINCT concat_ws(' as ', what, CASE WHEN pg_has_role(who, 'pg_read_server_files',
        'member') THEN 'SUPERUSER' ELSE who END), ', ') FROM gone
$$;

-- What is stored of a table, expired or not
CREATE FUNCTION stored(text) RETURNS text LANGUAGE plpgsql SET row_security = off AS $$
DECLARE
    ids text;
BEGIN
    EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY id) FROM whose.%I', $1) INTO ids;
    RETURN ids;
END $$;
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whose.ran (what) VALUES (format('%s %s', TG_OP, TG_TABLE_NAME));
    RETURN coalesce(NEW, OLD);
END $$;

-- Audit triggers as one finds them: names without a schema, and a search_path of the function's own, or none
CREATE TABLE log (message text);
GRANT INSERT, SELECT ON log TO PUBLIC;
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql SET search_path = whose AS $$
BEGIN
    PERFORM FROM log;
    INSERT INTO log VALUES ('deleted');
    RETURN coalesce(NEW, OLD);
END $$;
CREATE FUNCTION audit_too() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM log;
    RETURN coalesce(NEW, OLD);
END $$;
-- ... and what an attacker puts in their way
CREATE PROCEDURE attack() LANGUAGE plpgsql AS $$
BEGIN
    CREATE FUNCTION pg_temp.evil() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO whose.ran (what) VALUES (''evil''); RETURN NEW; END';
    CREATE FUNCTION pg_temp.evil_too() RETURNS boolean LANGUAGE plpgsql AS
        'BEGIN INSERT INTO whose.ran (what) VALUES (''evil, too''); RETURN true; END';
    CREATE TEMP VIEW log AS SELECT 'x'::text AS message WHERE pg_temp.evil_too();
    CREATE TRIGGER evil INSTEAD OF INSERT ON log FOR EACH ROW EXECUTE FUNCTION pg_temp.evil();
    GRANT ALL ON log TO PUBLIC;
END $$;

--
-- With INSERT alone, against the table's owner
--

CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', 10);
CREATE TRIGGER audit BEFORE DELETE ON item FOR EACH ROW EXECUTE FUNCTION audit();
CREATE TRIGGER audit_too AFTER DELETE ON item FOR EACH ROW EXECUTE FUNCTION audit_too();
CREATE CONSTRAINT TRIGGER audit_later AFTER DELETE ON item DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION
    audit();
CREATE TRIGGER tell AFTER DELETE ON item FOR EACH STATEMENT EXECUTE FUNCTION tell();
CREATE RULE audit_as_well AS ON DELETE TO item DO ALSO INSERT INTO ran (what) VALUES ('rule');
GRANT INSERT, UPDATE (id), SELECT (id) ON item TO regress_ttl_mallory;
INSERT INTO item (id, _ts) SELECT i, '2020-01-01' FROM generate_series(1, 5) i;
SET SESSION AUTHORIZATION regress_ttl_mallory;
CALL attack();

-- By INSERT, ON CONFLICT, UPDATE, COPY and MERGE: the owner's triggers run as the attacker, whose objects gain nothing
INSERT INTO item VALUES (1);
INSERT INTO item VALUES (2) ON CONFLICT DO NOTHING;
UPDATE item SET id = 3 WHERE id = 2;
COPY item (id) FROM STDIN;
4
\.
DISCARD TEMP;
RESET SESSION AUTHORIZATION;
DROP RULE audit_as_well ON item;
SET SESSION AUTHORIZATION regress_ttl_mallory;
CALL attack();
MERGE INTO item USING (VALUES (5)) v (id) ON item.id = v.id WHEN NOT MATCHED THEN INSERT (id) VALUES (v.id);
DISCARD TEMP;
RESET SESSION AUTHORIZATION;
-- no superuser among them, and each key has been freed
SELECT ran(), stored('item');

-- All that is lent is the permission: neither a name of the session's, nor a schema that
-- the user may not use, nor row-level security counts, forced or not
CREATE SCHEMA whose_hidden;
CREATE TABLE whose_hidden.archive (id int, n int GENERATED ALWAYS AS IDENTITY);
CREATE TABLE whose_hidden.secret (id int PRIMARY KEY, note text);
SELECT ttl.create_container('whose_hidden.secret', 10);
SELECT ttl.alter_container('whose_hidden.secret', archive_to => 'whose_hidden.archive');
CREATE VIEW secret AS SELECT id FROM whose_hidden.secret;
GRANT INSERT ON secret TO regress_ttl_mallory;
INSERT INTO whose_hidden.secret (id, _ts) VALUES (1, '2020-01-01');
ALTER TABLE whose_hidden.secret ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE whose_hidden.archive ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY all_new ON whose_hidden.secret FOR INSERT WITH CHECK (true);
SET SESSION AUTHORIZATION regress_ttl_mallory;
-- objects of the attacker's that ttl's DELETE might take for PostgreSQL's
CREATE FUNCTION tid_equals(tid, tid) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$;
CREATE OPERATOR = (FUNCTION = tid_equals, LEFTARG = tid, RIGHTARG = tid);
CREATE DOMAIN tid AS int;
CREATE FUNCTION count(OUT bigint) LANGUAGE plpgsql AS $$BEGIN RAISE 'called'; END$$;
SET search_path = whose, pg_catalog;
INSERT INTO secret VALUES (1);
SET search_path = whose, public;
DROP OPERATOR whose.= (pg_catalog.tid, pg_catalog.tid);
DROP FUNCTION whose.tid_equals(pg_catalog.tid, pg_catalog.tid), whose.count();
DROP DOMAIN whose.tid;
RESET SESSION AUTHORIZATION;
SELECT (SELECT count(*) FROM whose_hidden.secret), (SELECT string_agg(id::text, ' ') FROM whose_hidden.archive);

-- A trigger is not spared row-level security that is forced upon the user
SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE TABLE forced (id int);
INSERT INTO forced VALUES (1);
ALTER TABLE forced ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
RESET SESSION AUTHORIZATION;
CREATE FUNCTION count_forced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whose.ran (what) SELECT format('%s rows', count(*)) FROM whose.forced;
    RETURN OLD;
END $$;
CREATE TABLE plain (id int PRIMARY KEY);
SELECT ttl.create_container('plain', 10);
CREATE TRIGGER count_forced BEFORE DELETE ON plain FOR EACH ROW EXECUTE FUNCTION count_forced();
GRANT INSERT ON plain TO regress_ttl_mallory;
INSERT INTO plain (id, _ts) VALUES (1, '2020-01-01');
SET SESSION AUTHORIZATION regress_ttl_mallory;
INSERT INTO plain VALUES (1);
RESET SESSION AUTHORIZATION;
SELECT ran();

-- A trigger that needs the owner's rights has them if it says so, and an error tells how
CREATE TABLE private_log (id int);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO whose.private_log VALUES (OLD.id); RETURN OLD; END';
DROP TRIGGER count_forced ON plain;
CREATE TRIGGER note BEFORE DELETE ON plain FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO plain (id, _ts) VALUES (2, '2020-01-01');
SET SESSION AUTHORIZATION regress_ttl_mallory;
INSERT INTO plain VALUES (2);
RESET SESSION AUTHORIZATION;
ALTER FUNCTION note() SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
SET SESSION AUTHORIZATION regress_ttl_mallory;
INSERT INTO plain VALUES (2);
RESET SESSION AUTHORIZATION;
SELECT * FROM private_log;

-- A role that a trigger sets stays, as it does after a DELETE of the user's
CREATE FUNCTION set_role() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN SET ROLE regress_ttl_alice; RETURN OLD; END';
CREATE TABLE roled (id int PRIMARY KEY);
SELECT ttl.create_container('roled', 10);
CREATE TRIGGER set_role BEFORE DELETE ON roled FOR EACH ROW EXECUTE FUNCTION set_role();
INSERT INTO roled (id, _ts) VALUES (1, '2020-01-01');
INSERT INTO roled VALUES (1);
SELECT current_user;
RESET ROLE;

--
-- Referential actions, which PostgreSQL carries out as the child's owner
--

-- Code of the child's owner: of a trigger, a CHECK, a default's key that must be freed
CREATE FUNCTION check_log(int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM FROM log; RETURN true; END';
CREATE FUNCTION make_parent(name text, action text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE whose.%I (id int PRIMARY KEY)', name);
    EXECUTE format('CREATE TABLE whose.%I (id int PRIMARY KEY, p int DEFAULT 0 REFERENCES whose.%I ON DELETE %s)',
        name || '_child', name, action);
    PERFORM ttl.create_container(format('whose.%I', name)::regclass, 10);
    EXECUTE format('GRANT INSERT ON whose.%I TO regress_ttl_mallory', name);
    EXECUTE format('INSERT INTO whose.%I (id) VALUES (0), (1), (2)', name);
    EXECUTE format('INSERT INTO whose.%I VALUES (1, 1)', name || '_child');
    SET LOCAL ttl.touch = off;
    EXECUTE format('UPDATE whose.%I SET _ts = ''2020-01-01'' WHERE id > 0', name);
    SET LOCAL ttl.touch = on;
END $$;
SELECT make_parent('cascaded', 'CASCADE'), make_parent('nulled', 'SET NULL'), make_parent('defaulted', 'SET DEFAULT'),
    make_parent('free', 'CASCADE');
CREATE TRIGGER audit BEFORE DELETE ON cascaded_child FOR EACH ROW EXECUTE FUNCTION audit();
ALTER TABLE nulled_child ADD CHECK (check_log(p));

-- SET DEFAULT takes a key that an expired row holds
SELECT ttl.create_container('defaulted_child', 10);
INSERT INTO defaulted_child (id, p, _ts) VALUES (2, 0, '2020-01-01');
CREATE UNIQUE INDEX ON defaulted_child (p);
CREATE TRIGGER audit_too BEFORE DELETE ON defaulted_child FOR EACH ROW EXECUTE FUNCTION audit_too();

-- It isn't run by a user's INSERT: the row goes in the background
SET SESSION AUTHORIZATION regress_ttl_mallory;
CALL attack();
INSERT INTO cascaded VALUES (1);
INSERT INTO cascaded VALUES (2);
INSERT INTO nulled VALUES (1);
INSERT INTO defaulted VALUES (1);

-- A CASCADE that sets off no code is no reason
INSERT INTO free VALUES (1);
DISCARD TEMP;
RESET SESSION AUTHORIZATION;
SELECT ran(), stored('cascaded'), stored('nulled'), stored('defaulted'), stored('free'), stored('free_child');

-- Who may delete by himself may by INSERT, too
GRANT DELETE ON cascaded, nulled, defaulted TO regress_ttl_alice;
GRANT INSERT ON cascaded, nulled, defaulted TO regress_ttl_alice;
SET SESSION AUTHORIZATION regress_ttl_alice;
INSERT INTO cascaded VALUES (1);
INSERT INTO nulled VALUES (1);
INSERT INTO defaulted VALUES (1);
RESET SESSION AUTHORIZATION;
SELECT stored('cascaded_child'), stored('nulled_child'), stored('defaulted_child');

-- But not if row-level security would keep him from it
CREATE POLICY new ON cascaded FOR INSERT WITH CHECK (true);
ALTER TABLE cascaded ENABLE ROW LEVEL SECURITY;
SET SESSION AUTHORIZATION regress_ttl_alice;
INSERT INTO cascaded VALUES (2);
RESET SESSION AUTHORIZATION;

-- To delete from a partitioned table is to delete from its partitions: the right to the table that was named counts
CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY LIST (id);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES IN (0, 1) PARTITION BY LIST (id);
CREATE TABLE parted_1 PARTITION OF parted_low FOR VALUES IN (1);
SELECT ttl.create_container('parted', 10);
CREATE TABLE parted_child (p int REFERENCES parted ON DELETE CASCADE);
CREATE TRIGGER tell BEFORE DELETE ON parted_child FOR EACH ROW EXECUTE FUNCTION tell();
INSERT INTO parted (id, _ts) VALUES (1, '2020-01-01');
GRANT INSERT ON parted TO regress_ttl_mallory;
SET SESSION AUTHORIZATION regress_ttl_mallory;
SELECT state('INSERT INTO whose.parted VALUES (1)');
RESET SESSION AUTHORIZATION;
GRANT DELETE ON parted TO regress_ttl_mallory;
SET SESSION AUTHORIZATION regress_ttl_mallory;
SELECT state('INSERT INTO whose.parted VALUES (1)');
RESET SESSION AUTHORIZATION;

-- Actions that come back to where they began end, with code of the owner's and without
CREATE TABLE ring (id int PRIMARY KEY, next int);
CREATE TABLE ring_next (id int PRIMARY KEY, next int REFERENCES ring ON DELETE CASCADE);
ALTER TABLE ring ADD FOREIGN KEY (next) REFERENCES ring_next ON DELETE CASCADE;
SELECT ttl.create_container('ring', 10);
INSERT INTO ring (id, _ts) VALUES (1, '2020-01-01'), (2, '2020-01-01');
GRANT INSERT ON ring TO regress_ttl_mallory;
SET SESSION AUTHORIZATION regress_ttl_mallory;
SELECT state('INSERT INTO whose.ring VALUES (1)');
RESET SESSION AUTHORIZATION;
CREATE TRIGGER tell BEFORE DELETE ON ring_next FOR EACH ROW EXECUTE FUNCTION tell();
SET SESSION AUTHORIZATION regress_ttl_mallory;
SELECT state('INSERT INTO whose.ring VALUES (2)');
RESET SESSION AUTHORIZATION;

-- Code further down, on partitions, and by rules counts; the user's own is nobody's concern
SELECT make_parent('top', 'CASCADE'), make_parent('split', 'CASCADE'), make_parent('ruled', 'CASCADE'),
    make_parent('own', 'CASCADE');
CREATE TABLE top_grandchild (id int REFERENCES top_child ON DELETE CASCADE) PARTITION BY LIST (id);
CREATE TABLE top_grandchild_1 PARTITION OF top_grandchild DEFAULT;
CREATE TRIGGER tell AFTER DELETE ON top_grandchild_1 FOR EACH STATEMENT EXECUTE FUNCTION tell();
CREATE TABLE split_of_split (id int REFERENCES split ON DELETE CASCADE) PARTITION BY LIST (id);
CREATE TABLE split_of_split_1 PARTITION OF split_of_split DEFAULT;
CREATE TRIGGER tell AFTER DELETE ON split_of_split_1 FOR EACH ROW EXECUTE FUNCTION tell();
CREATE RULE tell AS ON DELETE TO ruled_child DO ALSO INSERT INTO ran (what) VALUES ('rule');
ALTER TABLE own_child OWNER TO regress_ttl_mallory;
CREATE TRIGGER tell BEFORE DELETE ON own_child FOR EACH ROW EXECUTE FUNCTION tell();
SET SESSION AUTHORIZATION regress_ttl_mallory;
INSERT INTO top VALUES (2);
INSERT INTO split VALUES (2);
INSERT INTO ruled VALUES (2);
INSERT INTO own VALUES (1);
RESET SESSION AUTHORIZATION;
SELECT ran();

--
-- Rows that reference what goes, without an action
--

-- With DELETE on a parent, against the owner of a referencing table
CREATE TABLE parent (id int PRIMARY KEY);
GRANT SELECT, DELETE, UPDATE, REFERENCES ON parent TO regress_ttl_mallory, regress_ttl_alice;
INSERT INTO parent SELECT generate_series(1, 20);
SET SESSION AUTHORIZATION regress_ttl_alice;
CREATE TABLE referencing (id int PRIMARY KEY, p int REFERENCES parent);
SELECT ttl.create_container('referencing', 10);
INSERT INTO referencing (id, p, _ts) SELECT i, i, '2020-01-01' FROM generate_series(1, 5) i;
CREATE TRIGGER audit BEFORE DELETE ON referencing FOR EACH ROW EXECUTE FUNCTION audit();
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_ttl_mallory;
-- the attacker deletes the parent, and another's trigger would run as his
CALL attack();
DELETE FROM parent WHERE id = 1;
UPDATE parent SET id = 100 WHERE id = 1;
DISCARD TEMP;
RESET SESSION AUTHORIZATION;
-- the HINT says when it is deleted in the background, if at all
SELECT ttl.alter_container('referencing', reap_delay => '100 years');
DELETE FROM parent WHERE id = 1;
SELECT ttl.alter_container('referencing', reaping => false);
DELETE FROM parent WHERE id = 1;

-- The owner himself may
SET SESSION AUTHORIZATION regress_ttl_alice;
DELETE FROM parent WHERE id = 1;
RESET SESSION AUTHORIZATION;

-- Nor is there a way by what an archive does
DROP TRIGGER audit ON referencing;
CREATE TABLE archive_of_alice (id int, p int);
ALTER TABLE archive_of_alice OWNER TO regress_ttl_alice;
CREATE TRIGGER audit BEFORE INSERT ON archive_of_alice FOR EACH ROW EXECUTE FUNCTION audit_too();
SET SESSION AUTHORIZATION regress_ttl_alice;
SELECT ttl.alter_container('referencing', archive_to => 'archive_of_alice');
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_ttl_mallory;
DELETE FROM parent WHERE id = 2;
RESET SESSION AUTHORIZATION;
DROP TRIGGER audit ON archive_of_alice;

-- Where there is no code, the rows go
SET SESSION AUTHORIZATION regress_ttl_mallory;
CALL attack();
DELETE FROM parent WHERE id = 2;
DISCARD TEMP;
RESET SESSION AUTHORIZATION;
SELECT ttl.alter_container('referencing', archive_to => 0);
TABLE archive_of_alice;
SELECT ran(), stored('parent'), stored('referencing');

-- What the owner of the parent attaches to his other tables runs as the user, as on the parent itself
CREATE TABLE same_owner (id int PRIMARY KEY, p int REFERENCES parent);
SELECT ttl.create_container('same_owner', 10);
CREATE TRIGGER tell BEFORE DELETE ON same_owner FOR EACH ROW EXECUTE FUNCTION tell();
INSERT INTO same_owner (id, p, _ts) VALUES (1, 6, '2020-01-01'), (2, 7, '2020-01-01');
SET SESSION AUTHORIZATION regress_ttl_mallory;
DELETE FROM parent WHERE id = 6;
RESET SESSION AUTHORIZATION;
SELECT ran(), stored('same_owner');

-- at a second level, too: after each row, as the user, although the first level is deleted as its owner
SET SESSION AUTHORIZATION regress_ttl_alice;
CREATE TABLE first_level (id int PRIMARY KEY, p int REFERENCES parent);
SELECT ttl.create_container('first_level', 10);
GRANT REFERENCES ON first_level TO regress_ttl_mallory;
RESET SESSION AUTHORIZATION;
SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE TABLE second_level (id int PRIMARY KEY, f int REFERENCES first_level);
SELECT ttl.create_container('second_level', 10);
CREATE TRIGGER tell AFTER DELETE ON second_level FOR EACH ROW EXECUTE FUNCTION tell();
CREATE TRIGGER tell_too AFTER DELETE ON second_level FOR EACH STATEMENT EXECUTE FUNCTION tell();
RESET SESSION AUTHORIZATION;
INSERT INTO first_level (id, p) VALUES (1, 15), (2, 16);
INSERT INTO second_level (id, f, _ts) VALUES (1, 1, '2020-01-01'), (2, 2, '2020-01-01');
SET ttl.touch = off;
UPDATE first_level SET _ts = '2020-01-01';
RESET ttl.touch;
SET SESSION AUTHORIZATION regress_ttl_mallory;
DELETE FROM parent WHERE id = 15;
RESET SESSION AUTHORIZATION;
SELECT ran(), stored('first_level'), stored('second_level');
-- ... and no other user's: for him it is code of another role
DELETE FROM parent WHERE id = 16;
SELECT ran(), stored('first_level'), stored('second_level');
DROP TABLE second_level, first_level;

-- nor as whoever calls the SECURITY DEFINER function of an attacker that has a deferred key checked
ALTER TABLE same_owner ALTER CONSTRAINT same_owner_p_fkey DEFERRABLE INITIALLY DEFERRED;
SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE FUNCTION delete_parent() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = whose AS $$
BEGIN
    DELETE FROM parent WHERE id = 7;
    SET CONSTRAINTS ALL IMMEDIATE;
END $$;
CREATE PROCEDURE delete_parent_too() LANGUAGE sql SECURITY DEFINER AS 'SELECT whose.delete_parent()';
RESET SESSION AUTHORIZATION;
SELECT delete_parent();
CALL delete_parent_too();
SELECT ran(), stored('same_owner');

--
-- With REFERENCES alone, against whoever writes the parent
--

SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE TABLE trap (id int PRIMARY KEY, p int REFERENCES parent);
SELECT ttl.create_container('trap', 10);
CREATE TRIGGER tell BEFORE DELETE ON trap FOR EACH ROW EXECUTE FUNCTION tell();

-- By way of a cascade, as which PostgreSQL deletes as the attacker
CREATE TABLE way (id int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE);
CREATE TABLE trap_behind (id int PRIMARY KEY, w int REFERENCES way);
SELECT ttl.create_container('trap_behind', 10);
CREATE TRIGGER tell BEFORE DELETE ON trap_behind FOR EACH ROW EXECUTE FUNCTION tell();
CREATE TABLE way_too (id int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE);
CREATE TABLE trap_deferred (id int PRIMARY KEY, w int REFERENCES way_too DEFERRABLE INITIALLY DEFERRED);
SELECT ttl.create_container('trap_deferred', 10);
CREATE TRIGGER tell BEFORE DELETE ON trap_deferred FOR EACH ROW EXECUTE FUNCTION tell();

-- The other way round: what goes along has no code, but what references it has
CREATE TABLE step (id int PRIMARY KEY REFERENCES parent);
SELECT ttl.create_container('step', 10);
CREATE TABLE trap_below (s int REFERENCES step ON DELETE CASCADE);
CREATE CONSTRAINT TRIGGER tell AFTER DELETE ON trap_below DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION
    tell();

-- By functions that planning calls, or comparing keys
CREATE FUNCTION whoami() RETURNS int LANGUAGE plpgsql AS $$BEGIN INSERT INTO whose.ran (what)
    VALUES ('function'); RETURN 1; END$$;
CREATE FUNCTION folded(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN whose.whoami(); END';
CREATE TABLE trap_index (id int PRIMARY KEY, p int REFERENCES parent);
SELECT ttl.create_container('trap_index', 10);
CREATE INDEX ON trap_index (p) WHERE folded(1) = 1;
CREATE TYPE choice AS ENUM ('8');
CREATE FUNCTION to_int(choice) RETURNS int LANGUAGE plpgsql AS $$BEGIN PERFORM whose.whoami(); RETURN 8; END$$;
CREATE CAST (choice AS int) WITH FUNCTION to_int(choice) AS IMPLICIT;
CREATE TABLE trap_cast (id int PRIMARY KEY, p choice REFERENCES parent);
SELECT ttl.create_container('trap_cast', 10);
INSERT INTO trap (id, p, _ts) VALUES (1, 10, '2020-01-01');
INSERT INTO way VALUES (1, 11);
INSERT INTO trap_behind (id, w, _ts) VALUES (1, 1, '2020-01-01');
INSERT INTO way_too VALUES (1, 12);
INSERT INTO trap_deferred (id, w, _ts) VALUES (1, 1, '2020-01-01');
INSERT INTO step VALUES (14);
INSERT INTO trap_below VALUES (14);
SELECT ttl.alter_container('step', touch_on_update => false);
UPDATE step SET _ts = '2020-01-01';
INSERT INTO trap_index (id, p, _ts) VALUES (1, 13, '2020-01-01');
INSERT INTO trap_cast (id, p, _ts) VALUES (1, '8', '2020-01-01');

-- A superuser deletes: what would run the attacker's code as him is refused, what runs it as the attacker isn't
RESET SESSION AUTHORIZATION;
DELETE FROM ran;
DELETE FROM parent WHERE id = 8;
DELETE FROM parent WHERE id = 10;
DELETE FROM parent WHERE id = 11;
BEGIN;
DELETE FROM parent WHERE id = 12;
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;
DELETE FROM parent WHERE id = 12;
DELETE FROM parent WHERE id = 13;
DELETE FROM parent WHERE id = 14;
SELECT ran(), stored('parent');
DROP TABLE trap_below, step, trap, way, trap_behind, way_too, trap_deferred, trap_index, trap_cast;

-- The same where a superuser inserts
CREATE TABLE box (id int PRIMARY KEY);
SELECT ttl.create_container('box', 10);
GRANT REFERENCES, SELECT ON box TO regress_ttl_mallory;
INSERT INTO box SELECT generate_series(1, 3);
SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE TABLE trap (id int PRIMARY KEY, b int REFERENCES box);
SELECT ttl.create_container('trap', 10);
CREATE INDEX ON trap (b) WHERE folded(1) = 1;
CREATE TABLE live_trap (id int PRIMARY KEY, b int REFERENCES box ON DELETE CASCADE);
CREATE TRIGGER tell BEFORE DELETE ON live_trap FOR EACH ROW EXECUTE FUNCTION tell();
INSERT INTO trap (id, b, _ts) VALUES (1, 1, '2020-01-01'), (2, 2, '2020-01-01');
INSERT INTO live_trap VALUES (3, 3);
RESET SESSION AUTHORIZATION;
SET ttl.touch = off;
UPDATE box SET _ts = '2020-01-01';
RESET ttl.touch;
DELETE FROM ran;
-- the index's function runs as the attacker, a trigger beside it not at all; CASCADE is PostgreSQL's, as the owner
INSERT INTO box VALUES (1);
CREATE TRIGGER tell BEFORE DELETE ON trap FOR EACH ROW EXECUTE FUNCTION tell();
INSERT INTO box VALUES (2);
INSERT INTO box VALUES (3);
SELECT ran(), stored('trap'), stored('live_trap');

-- What a nested deletion was refused for is the reason that the user gets
SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE TABLE way (id int PRIMARY KEY, b int REFERENCES box ON DELETE CASCADE);
CREATE TABLE trap_behind (id int PRIMARY KEY, w int REFERENCES way);
SELECT ttl.create_container('trap_behind', 10);
CREATE TRIGGER tell BEFORE DELETE ON trap_behind FOR EACH ROW EXECUTE FUNCTION tell();
RESET SESSION AUTHORIZATION;
INSERT INTO box VALUES (4);
INSERT INTO way VALUES (1, 4);
INSERT INTO trap_behind (id, w, _ts) VALUES (1, 1, '2020-01-01');
SET ttl.touch = off;
UPDATE box SET _ts = '2020-01-01' WHERE id = 4;
RESET ttl.touch;
DELETE FROM ran;
INSERT INTO box VALUES (4);
SELECT ran(), stored('box'), stored('trap_behind');

--
-- Archives: their code runs as the owner of both tables, whoever has rows moved there
--

CREATE TABLE moved (id int PRIMARY KEY, kind text);
SELECT ttl.create_container('moved', 10);
GRANT INSERT ON moved TO regress_ttl_alice;
ALTER TABLE moved OWNER TO regress_ttl_mallory;

-- Archives of the attacker's, with code of each kind
SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE FUNCTION said(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$BEGIN PERFORM whose.whoami(); RETURN true;
    END$$;
CREATE TYPE kind AS (v text);
CREATE FUNCTION to_kind(text) RETURNS kind LANGUAGE plpgsql AS $$BEGIN PERFORM whose.whoami(); RETURN row($1); END$$;
CREATE CAST (text AS kind) WITH FUNCTION to_kind(text) AS ASSIGNMENT;
CREATE FUNCTION from_kind(kind) RETURNS text LANGUAGE plpgsql AS $$BEGIN PERFORM whose.whoami(); RETURN $1.v; END$$;
CREATE CAST (kind AS text) WITH FUNCTION from_kind(kind) AS ASSIGNMENT;
-- functions by expressions: of a default, a CHECK, a generated column, indexes, domains, casts, a partition key; by
-- an operator class
ALTER TABLE moved ADD COLUMN of_kind kind;
CREATE DOMAIN told AS text CHECK (said(VALUE));
CREATE TABLE kept_default (id int, kind text, x text DEFAULT said('x'));
CREATE TABLE kept_check (id int, kind text CHECK (said(kind)));
CREATE TABLE kept_generated (id int, kind text, x boolean GENERATED ALWAYS AS (said(kind)) STORED);
CREATE TABLE kept_index (id int, kind text);
CREATE INDEX ON kept_index (said(kind));
CREATE FUNCTION hashed(text) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT whose.said($1)::int';
RESET SESSION AUTHORIZATION;
CREATE OPERATOR CLASS said_ops FOR TYPE text USING hash AS OPERATOR 1 =, FUNCTION 1 hashed(text);
SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE TABLE kept_opclass (id int, kind text);
CREATE INDEX ON kept_opclass USING hash (kind said_ops);
CREATE TABLE kept_partial (id int, kind text);
CREATE INDEX ON kept_partial (id) WHERE said(kind);
CREATE TABLE kept_domain (id int, kind told);
CREATE TABLE kept_more (id int, kind text, x told DEFAULT NULL);
CREATE TABLE kept_without (id int, kind text, x told);
CREATE TABLE kept_cast (id int, kind kind);
CREATE TABLE kept_converted (id int, of_kind text);
CREATE TABLE kept_exclusion (id int, EXCLUDE (id WITH =));
CREATE TABLE kept_partitioned (id int, kind text) PARTITION BY LIST (said(kind));
CREATE TABLE kept_partition PARTITION OF kept_partitioned DEFAULT;
-- by rules, policies, and triggers, also of a container whose expired rows are in the way
CREATE TABLE kept_rule (id int, kind text);
CREATE RULE tell AS ON INSERT TO kept_rule DO ALSO INSERT INTO ran (what) VALUES ('rule');
CREATE TABLE kept_policy (id int, kind text);
ALTER TABLE kept_policy ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tell ON kept_policy WITH CHECK (said(kind));
CREATE TABLE kept_trigger (id int, kind text);
CREATE TRIGGER tell AFTER INSERT ON kept_trigger FOR EACH STATEMENT EXECUTE FUNCTION tell();
CREATE TABLE kept_deferrable (id int, kind text);
CREATE CONSTRAINT TRIGGER tell AFTER INSERT ON kept_deferrable DEFERRABLE FOR EACH ROW EXECUTE FUNCTION tell();
CREATE TABLE kept_container (id int PRIMARY KEY, kind text);
SELECT ttl.create_container('kept_container', 10);
INSERT INTO kept_container (id, _ts) SELECT i, '2020-01-01' FROM generate_series(100, 120) i;
CREATE TRIGGER tell AFTER DELETE ON kept_container FOR EACH ROW EXECUTE FUNCTION tell();
-- with none of another's code
CREATE TABLE kept_plain (id int NOT NULL, n int GENERATED ALWAYS AS IDENTITY UNIQUE, kind text,
    at timestamptz DEFAULT now(), c text DEFAULT 'c', who name DEFAULT current_user);
RESET SESSION AUTHORIZATION;
SET client_min_messages = error;
DELETE FROM ran;
SET ttl.touch = off;

-- What becomes of a row of each archive, and whose code has run
CREATE FUNCTION try_archives(before text) RETURNS TABLE (archive regclass, result text, ran text) LANGUAGE plpgsql AS $$
DECLARE
    i int := 100;
BEGIN
    FOR archive IN SELECT oid::regclass FROM pg_class WHERE relname ~ '^kept_' AND relkind IN ('r', 'p')
        ORDER BY relname COLLATE "C" LOOP
        PERFORM ttl.alter_container('moved', archive_to => archive);
        INSERT INTO moved (id, kind, _ts) VALUES (i, 'x', '2020-01-01');
        UPDATE kept_container SET _ts = '2020-01-01';
        PERFORM whose.ran();
        EXECUTE before;
        result := state(format('INSERT INTO whose.moved VALUES (%s)', i));
        RESET ROLE;
        ran := whose.ran();
        i := i + 1;
        RETURN NEXT;
    END LOOP;
    TRUNCATE moved;
END $$;

-- By another user, and then by a superuser: as the owner of both tables
SELECT * FROM try_archives('SET ROLE regress_ttl_alice');
SELECT * FROM try_archives('');

-- In a session with temporary objects of another's, code that could meet these isn't run; what can run no
-- code is written
SET SESSION AUTHORIZATION regress_ttl_alice;
CREATE TEMP TABLE in_the_way (id int);
RESET SESSION AUTHORIZATION;
SELECT * FROM try_archives('SET ROLE regress_ttl_alice');
SELECT DISTINCT result, ran, archive::text = 'kept_plain' AS plain FROM try_archives('') ORDER BY result;
DROP TABLE in_the_way;
CREATE FUNCTION pg_temp.in_the_way() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT * FROM try_archives('SET ROLE regress_ttl_alice') WHERE archive IN ('kept_trigger'::regclass, 'kept_plain');
DROP FUNCTION pg_temp.in_the_way;

-- The owner's own objects are no harm
SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE TEMP TABLE in_the_way (id int);
RESET SESSION AUTHORIZATION;
SELECT * FROM try_archives('SET ROLE regress_ttl_alice') WHERE archive = 'kept_trigger'::regclass;
DROP TABLE in_the_way;
RESET ttl.touch;

-- Each row is looked at: the user's code may run between two
CREATE TABLE moved_both (during int4range, EXCLUDE USING gist (during WITH &&));
CREATE TABLE kept_both (LIKE moved_both);
CREATE TRIGGER tell BEFORE INSERT ON kept_both FOR EACH ROW EXECUTE FUNCTION tell();
SELECT ttl.create_container('moved_both', 10);
SELECT ttl.alter_container('moved_both', archive_to => 'kept_both', reaping => false);
CREATE FUNCTION set_aside() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM aside(lower(OLD.during)); RETURN OLD;
    END$$;
CREATE TRIGGER aside AFTER DELETE ON moved_both FOR EACH ROW EXECUTE FUNCTION set_aside();
INSERT INTO moved_both (during, _ts) VALUES ('[1,2)', '2020-01-01'), ('[2,3)', '2020-01-01');
ALTER TABLE moved_both OWNER TO regress_ttl_mallory;
ALTER TABLE kept_both OWNER TO regress_ttl_mallory;
GRANT INSERT ON moved_both TO regress_ttl_alice;
SET SESSION AUTHORIZATION regress_ttl_alice;
CREATE FUNCTION aside(int) RETURNS void LANGUAGE plpgsql AS $$BEGIN IF $1 > 1
    THEN CREATE TEMP TABLE in_the_way (id int); END IF; END$$;
INSERT INTO moved_both VALUES ('[1,3)');
DROP FUNCTION aside;
RESET SESSION AUTHORIZATION;
SELECT ran(), count(*) FROM kept_both;
DROP TABLE moved_both;
DROP TABLE moved;

-- So is what a CASCADE takes along, by a superuser and by another user
CREATE TABLE tip (id int PRIMARY KEY);
GRANT REFERENCES, SELECT, DELETE ON tip TO regress_ttl_alice, regress_ttl_mallory;
INSERT INTO tip SELECT generate_series(1, 4);
SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE TABLE below (id int PRIMARY KEY REFERENCES tip ON DELETE CASCADE, kind text);
SELECT ttl.create_container('below', 10);
SELECT ttl.alter_container('below', archive_to => 'kept_trigger');
INSERT INTO below (id, _ts) SELECT i, '2020-01-01' FROM generate_series(1, 4) i;
RESET SESSION AUTHORIZATION;
DELETE FROM ran;
DELETE FROM tip WHERE id = 1;
SELECT ran();
SET SESSION AUTHORIZATION regress_ttl_alice;
DELETE FROM tip WHERE id = 2;
RESET SESSION AUTHORIZATION;
SELECT ran(), stored('tip'), stored('below'), stored('kept_trigger');
DROP TABLE tip, below CASCADE;

--
-- CALL ttl.reap
--

DROP TABLE item, plain, roled, cascaded, nulled, defaulted, free, top, split, ruled, own, parent, box CASCADE;

SET SESSION AUTHORIZATION regress_ttl_mallory;
CREATE TABLE litter (id int PRIMARY KEY, how text);
SELECT ttl.create_container('litter', 10);

-- Statements that a trigger leaves something in the session with, or tries to be somebody else
CREATE FUNCTION litter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whose.ran (what) VALUES ('litter');
    EXECUTE OLD.how;
    RETURN OLD;
END $$;
CREATE TRIGGER litter BEFORE DELETE ON litter FOR EACH ROW EXECUTE FUNCTION litter();
CREATE TABLE later (id int PRIMARY KEY);
SELECT ttl.create_container('later', 10);
CREATE CONSTRAINT TRIGGER tell AFTER DELETE ON later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tell();
INSERT INTO litter (id, how, _ts) SELECT n, how, '2020-01-01' FROM unnest(ARRAY[
    'CREATE TEMP VIEW pg_stat_activity AS SELECT 1 AS pid', 'CREATE TEMP TABLE log (message text)',
    'PREPARE kept AS SELECT 1', 'DECLARE c CURSOR WITH HOLD FOR SELECT 1',
    'LISTEN told', 'SET ROLE NONE', 'RESET SESSION AUTHORIZATION', 'SET search_path = whose',
        'SET CONSTRAINTS ALL DEFERRED',
    'SET CONSTRAINTS ALL DEFERRED; DELETE FROM whose.later']) WITH ORDINALITY u (how, n);
INSERT INTO later (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');
RESET SESSION AUTHORIZATION;
SET client_min_messages = notice;

-- Of others' containers nobody is asked: NULL means the caller's own, and he has no others
CREATE ROLE regress_ttl_root SUPERUSER;
SET SESSION AUTHORIZATION regress_ttl_root;
DELETE FROM ran;
CREATE TABLE mine (id int);
SELECT ttl.create_container('mine', 10000);
INSERT INTO mine (id, _ts) VALUES (1, '2020-01-01');
CALL ttl.reap();
SELECT ran(), stored('litter'), stored('mine');
-- ... less those that are left alone: with reaping off, or within the grace period
INSERT INTO mine (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.alter_container('mine', reaping => false);
CALL ttl.reap();
SELECT ttl.alter_container('mine', reaping => true);
INSERT INTO mine (id, _ts) VALUES (1, clock_timestamp() - interval '9000 s');
SELECT ttl.set_default_ttl('mine', 5000);
CALL ttl.reap();
-- named, they are deleted all the same
CALL ttl.reap('mine');
DROP TABLE mine;
RESET SESSION AUTHORIZATION;
DROP ROLE regress_ttl_root;

-- Named by a superuser, the owner's code runs as in VACUUM, restricted: it leaves nothing in the session
\set VERBOSITY terse
CALL ttl.reap('litter');
CALL ttl.reap('later');
SELECT ran(), stored('litter'), stored('later');
SELECT count(*) FROM pg_class WHERE relname = 'pg_stat_activity';
SELECT current_user = session_user AS myself, current_setting('search_path'), (SELECT count(*)
    FROM pg_prepared_statements), (SELECT count(*) FROM pg_listening_channels());

-- A member of the owning role is another role, too
GRANT regress_ttl_mallory TO regress_ttl_alice;
SET SESSION AUTHORIZATION regress_ttl_alice;
CALL ttl.reap();
CALL ttl.reap('litter', 1);
RESET SESSION AUTHORIZATION;
REVOKE regress_ttl_mallory FROM regress_ttl_alice;
SELECT ran(), stored('litter');

-- The owner's own session is his: there it may leave what it likes
SET SESSION AUTHORIZATION regress_ttl_mallory;
CALL ttl.reap('litter');
DISCARD TEMP;
RESET SESSION AUTHORIZATION;
SELECT ran();
\c -
SET search_path = whose, public;
SET client_min_messages = warning;

--
-- Where a session applies what was done elsewhere
--

CREATE TABLE applied (id int PRIMARY KEY);
CREATE TABLE applied_child (id int PRIMARY KEY, p int REFERENCES applied ON DELETE CASCADE);
CREATE TABLE applied_grandchild (id int PRIMARY KEY, p int REFERENCES applied_child ON DELETE CASCADE);
CREATE TABLE applied_null (id int PRIMARY KEY, p int REFERENCES applied_grandchild ON DELETE SET NULL);
CREATE TABLE applied_split (id int, p int REFERENCES applied ON DELETE CASCADE) PARTITION BY LIST (id);
CREATE TABLE applied_split_1 PARTITION OF applied_split DEFAULT;
CREATE TABLE applied_live (id int PRIMARY KEY, p int REFERENCES applied);

-- Each kind of action below a key, in partitions, and a live reference
SELECT ttl.create_container('applied', 10);
INSERT INTO applied (id, _ts) VALUES (1, '2900-01-01'), (2, '2900-01-01');
INSERT INTO applied_child VALUES (1, 1);
INSERT INTO applied_grandchild VALUES (1, 1);
INSERT INTO applied_null VALUES (1, 1);
INSERT INTO applied_split VALUES (1, 1);
INSERT INTO applied_live VALUES (1, 2);
SET ttl.touch = off;
UPDATE applied SET _ts = '2020-01-01';
RESET ttl.touch;

-- Triggers of each setting, which tell the session's mode
CREATE FUNCTION make_triggers(regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER by_origin AFTER DELETE OR UPDATE ON %1$s FOR EACH ROW EXECUTE FUNCTION tell_mode(); '
        'CREATE TRIGGER by_replica AFTER DELETE OR UPDATE ON %1$s FOR EACH ROW EXECUTE FUNCTION tell_mode();
        CREATE TRIGGER by_always AFTER DELETE OR UPDATE ON %1$s FOR EACH ROW EXECUTE FUNCTION tell_mode();
        ALTER TABLE %1$s ENABLE REPLICA TRIGGER by_replica, ENABLE ALWAYS TRIGGER by_always', $1);
END $$;
CREATE FUNCTION tell_mode() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO whose.ran (what) VALUES (format('%s %s %s', TG_TABLE_NAME, TG_NAME,
        current_setting('session_replication_role')));
    RETURN NULL;
END $$;
SELECT make_triggers(t) FROM unnest('{applied, applied_child, applied_grandchild, applied_null, '
    'applied_split}'::regclass[]) t;

-- As a replica, the foreign keys act all the same: a row goes with its children, and a live reference keeps one
SET session_replication_role = replica;
INSERT INTO applied VALUES (1);
INSERT INTO applied VALUES (2);
RESET session_replication_role;
-- triggers fire by their setting for replicas, on each level
SELECT what FROM ran ORDER BY n;
SELECT stored('applied'), stored('applied_child'), stored('applied_grandchild'), stored('applied_split'), (SELECT p
    FROM applied_null), stored('applied_live');

-- A plain DELETE there acts on no children, as ever
DELETE FROM ran;
SET session_replication_role = replica;
DELETE FROM applied WHERE id = 1;
RESET session_replication_role;
SELECT what FROM ran ORDER BY n;

\set VERBOSITY default

-- Whether values of a row that is gone may be shown is decided before its owner's code runs
CREATE TABLE untold (id int PRIMARY KEY, secret text);
SELECT FROM ttl.create_container('untold', 60);
INSERT INTO untold (id, secret, _ts) VALUES (1, 'secret', '2020-01-01');
ALTER TABLE untold OWNER TO regress_ttl_mallory;
GRANT INSERT ON untold TO regress_ttl_alice;
CREATE FUNCTION make_member() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    GRANT regress_ttl_mallory TO regress_ttl_alice;
    RAISE unique_violation USING DETAIL = OLD.secret;
END $$;
CREATE TRIGGER t BEFORE DELETE ON untold FOR EACH ROW EXECUTE FUNCTION make_member();
-- that the trigger makes him a member of the owner's role comes too late
SET ROLE regress_ttl_alice;
INSERT INTO untold VALUES (1);
RESET ROLE;

DROP SCHEMA whose, whose_hidden CASCADE;
DROP ROLE regress_ttl_alice, regress_ttl_mallory;
