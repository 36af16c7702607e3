-- What ttl tells people beside errors: NOTICEs, and HINTs in PostgreSQL's place
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE SCHEMA messages;
SET search_path = messages, public;

--
-- Triggers that miss their search_path
--

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
CALL ttl.reap('audited');
CREATE OR REPLACE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE undefined_function; END';
CALL ttl.reap('audited');
CREATE OR REPLACE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM old.id::no_such_type; RETURN NULL; END';
CALL ttl.reap('audited');
-- ours is not to blame where there is another
ALTER FUNCTION audit() SET search_path = messages;
CALL ttl.reap('audited');
CREATE OR REPLACE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit VALUES (old.id); RETURN NULL; END';
CALL ttl.reap('audited');
ALTER FUNCTION audit() SET search_path = messages;
CALL ttl.reap('audited');
SELECT * FROM audit;

--
-- Triggers that are disabled, and partitions that leave
--

CREATE TABLE keys (id int PRIMARY KEY);
SELECT ttl.create_container('keys', 60);
INSERT INTO keys (id, _ts) VALUES (1, '2020-01-01');
ALTER TABLE keys DISABLE TRIGGER ALL;
INSERT INTO keys VALUES (1);
ALTER TABLE keys ENABLE TRIGGER ALL;
INSERT INTO keys VALUES (1);
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

SELECT refused('SELECT ttl.is_live(''pg_class'')');

--
-- Settings
--

SELECT refused(format('SET ttl.now = %L', value)) FROM unnest(ARRAY['now', 'soon', '12:00']) value;

SET client_min_messages = warning;
DROP SCHEMA messages CASCADE;
