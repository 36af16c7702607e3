-- Rights: TTL gives nobody a way around them, and needs none of its own
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA rights;
SET search_path = rights, public;
GRANT USAGE ON SCHEMA rights TO regress_ttl_owner, regress_ttl_user;
GRANT CREATE ON SCHEMA rights TO regress_ttl_owner;
CREATE ROLE regress_ttl_stranger;
GRANT USAGE, CREATE ON SCHEMA rights TO regress_ttl_stranger;

--
-- Row-level security
--

-- A row is seen if it is live and the policy lets it through.  Of the rows
-- here, 1 to 3 are; 11 to 13 belong to another tenant, 21 to 23 have expired,
-- 31 to 33 are neither his nor live.
CREATE TABLE item (id int PRIMARY KEY, tenant name, note text);
CREATE INDEX ON item (tenant, id);
SELECT ttl.create_container('item', 60);
ALTER TABLE item OWNER TO regress_ttl_owner;

-- Of the user and of another tenant, live and expired, as above
CREATE PROCEDURE refill() LANGUAGE sql SECURITY DEFINER AS $$
    TRUNCATE rights.item;
    INSERT INTO rights.item (id, tenant, note, _ts, ttl)
        SELECT i, CASE WHEN i / 10 % 2 = 0 THEN 'regress_ttl_user' ELSE 'other' END, 'note of ' || i,
               CASE WHEN i < 20 THEN '2900-01-01' ELSE '2020-01-01' END::timestamptz,
               CASE WHEN i = 22 THEN 5 END
          FROM generate_series(1, 33) i WHERE i % 10 BETWEEN 1 AND 3
$$;
CALL refill();
ALTER TABLE item ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON item USING (tenant = current_user) WITH CHECK (tenant = current_user);
GRANT SELECT, INSERT, UPDATE, DELETE ON item TO regress_ttl_user;

-- Cheap functions that see every value they are called with, and fail if they
-- see one that is none of his
CREATE FUNCTION peep(int) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
    IF $1 > 10 AND $1 < 100 THEN
        RAISE EXCEPTION 'seen: %', $1;
    END IF;
    RETURN true;
END $$;
CREATE FUNCTION peep(text) RETURNS boolean LANGUAGE sql COST 0.0001 AS $$
    SELECT rights.peep(substring($1 FROM 'note of (\d+)')::int)
$$;
CREATE FUNCTION differ(int, int) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN
    RETURN rights.peep($1) AND rights.peep($2) AND $1 <> $2;
END $$;
CREATE OPERATOR <~> (FUNCTION = differ, LEFTARG = int, RIGHTARG = int);
CREATE TABLE other (id int, note text);
INSERT INTO other VALUES (1, 'x'), (2, 'y'), (5, 'z');
GRANT SELECT ON other TO regress_ttl_user;

-- Views with the rights of their owner, and with those of their user
CREATE VIEW of_owner AS SELECT * FROM item WHERE peep(id);
CREATE VIEW barrier WITH (security_barrier) AS SELECT * FROM item WHERE note <> 'note of 2';
CREATE VIEW invoker WITH (security_invoker) AS SELECT * FROM item;
CREATE VIEW both_of_them WITH (security_invoker, security_barrier) AS SELECT * FROM item WHERE tenant IS NOT NULL;
ALTER VIEW of_owner OWNER TO regress_ttl_owner;
ALTER VIEW barrier OWNER TO regress_ttl_owner;
GRANT ALL ON of_owner, barrier, invoker, both_of_them TO regress_ttl_user;

-- What a statement says to the user, with its rows; all is rolled back
CREATE FUNCTION answer(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    rows text;
    message text;
BEGIN
    IF statement ~ '^MERGE' THEN
        EXECUTE statement;
        GET DIAGNOSTICS rows = ROW_COUNT;
    ELSE
        EXECUTE format('WITH q AS (%s) SELECT coalesce(string_agg(q::text, '' '' ORDER BY q::text COLLATE "C"), ''-'') '
            'FROM q', statement) INTO rows;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'TTL01', MESSAGE = rows;
EXCEPTION
    WHEN SQLSTATE 'TTL01' THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
        RETURN message;
    WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
        RETURN SQLSTATE || ': ' || message;
END $$;
CREATE TABLE questions (n int GENERATED ALWAYS AS IDENTITY, q text);
GRANT SELECT ON questions TO PUBLIC;
INSERT INTO questions (q) VALUES
    ('SELECT id FROM item WHERE peep(id)'),
    ('SELECT id FROM item WHERE peep(id) AND peep(note)'),
    ('SELECT id FROM item WHERE tenant = current_user AND peep(id)'),
    ('SELECT id FROM item WHERE id BETWEEN 2 AND 40 AND peep(id)'),
    ('SELECT id FROM item WHERE id = 21 AND peep(id)'),
    ('SELECT id FROM item WHERE CASE WHEN peep(id) THEN id END < 50'),
    ('SELECT id FROM item WHERE 1 / (20 - id) IS NOT NULL AND 1 / (21 - id) IS NOT NULL'),
    ('SELECT i.id FROM item i JOIN other o ON i.id <~> o.id'),
    ('SELECT o.id, i.id FROM other o LEFT JOIN item i ON i.id = o.id AND peep(i.id)'),
    ('SELECT o.id, i.id FROM item i FULL JOIN other o ON i.id = o.id WHERE peep(i.id) IS NOT FALSE'),
    ('SELECT a.id, b.id FROM item a JOIN item b ON a.id <~> b.id AND a.id + b.id > 4'),
    ('SELECT o.id FROM other o WHERE EXISTS (SELECT FROM item i WHERE i.id = o.id AND peep(i.id))'),
    ('SELECT o.id FROM other o WHERE o.id NOT IN (SELECT id FROM item WHERE peep(id))'),
    ('SELECT o.id, l.id FROM other o, LATERAL (SELECT id FROM item i WHERE i.id <~> o.id) l WHERE o.id = 5'),
    ('SELECT tenant, count(*) FROM item GROUP BY tenant HAVING bool_and(peep(id))'),
    ('SELECT count(*) FILTER (WHERE peep(id)), max(id) FROM item'),
    ('SELECT min(id), max(id) FROM item WHERE peep(id)'),
    ('SELECT DISTINCT ON (peep(id)) count(*) OVER (PARTITION BY peep(id)) FROM item'),
    ('SELECT id FROM item WHERE peep(id) UNION ALL SELECT id FROM item WHERE peep(note) AND id > 2'),
    ('SELECT id FROM (SELECT id FROM item UNION ALL SELECT id FROM other) u WHERE peep(id)'),
    ('SELECT id FROM item TABLESAMPLE SYSTEM (100) WHERE peep(id)'),
    ('SELECT id FROM item WHERE ctid = ANY (ARRAY(SELECT format(''(0,%s)'', g)::tid FROM generate_series(1, 12) g)) '
        'AND peep(id)'),
    ('SELECT id FROM item WHERE peep(id) FOR UPDATE'),
    ('SELECT id FROM of_owner'),
    ('SELECT id FROM barrier WHERE peep(id)'),
    ('SELECT id FROM invoker WHERE peep(id)'),
    ('SELECT id FROM both_of_them WHERE peep(id)'),
    ('SELECT b.id, i.id FROM barrier b JOIN invoker i ON b.id <~> i.id WHERE b.id < 10 AND i.id = 3'),
    ('UPDATE item SET note = note || ''!'' WHERE peep(id) RETURNING id'),
    ('UPDATE item SET note = peep(note)::text RETURNING id, note'),
    ('UPDATE item SET note = o.note FROM other o WHERE item.id <~> o.id AND o.id = 5 RETURNING item.id, item.note, '
        'peep(item.id)'),
    ('UPDATE invoker SET note = ''x'' WHERE peep(id) RETURNING id'),
    ('DELETE FROM item WHERE peep(id) AND peep(note) RETURNING id, peep(note)'),
    ('DELETE FROM both_of_them WHERE peep(id) RETURNING id'),
    ('INSERT INTO item AS i (id, tenant, note) SELECT g, current_user, ''new'' FROM unnest(''{1, 22, 101}''::int[]) g '
        'ON CONFLICT (id) DO UPDATE SET note = ''again'' WHERE peep(i.note) RETURNING id, note'),
    ('INSERT INTO item AS i (id, tenant, note) VALUES (33, current_user, ''new'') ON CONFLICT (id) DO NOTHING '
        'RETURNING id, note'),
    ('INSERT INTO item (id, tenant, note) SELECT id + 100, tenant, note FROM item WHERE peep(id) RETURNING id'),
    ('MERGE INTO item i USING (VALUES (1), (22), (102)) s (id) ON i.id = s.id AND peep(i.id) WHEN MATCHED AND '
        'peep(i.note) THEN UPDATE SET note = ''merged'' WHEN NOT MATCHED THEN INSERT (id, tenant) VALUES (s.id, '
        'current_user)'),
    ('MERGE INTO item i USING other o ON i.id <~> o.id AND o.id = 5 WHEN MATCHED AND peep(i.note) THEN DELETE'),
    -- what is not his to take: a key that he can't see is taken, a row that he can't see isn't his to write
    -- what is not his to take
    ('INSERT INTO item (id, tenant) VALUES (11, current_user) RETURNING id'),
    ('INSERT INTO item (id, tenant) VALUES (21, ''other'') RETURNING id'),
    ('UPDATE item SET tenant = ''other'' WHERE id = 1 RETURNING id');

-- What each statement tells the user
CREATE PROCEDURE ask() LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM rights.questions ORDER BY n LOOP
        RAISE NOTICE '%', rights.answer(r.q);
    END LOOP;
END $$;

-- The same answers, however the statements are planned
CREATE FUNCTION differences(settings text) RETURNS TABLE (question text, answer text,
    expected text) LANGUAGE plpgsql AS $$
DECLARE
    setting text;
BEGIN
    FOREACH setting IN ARRAY string_to_array(settings, ' ') LOOP
        PERFORM set_config(split_part(setting, '=', 1), split_part(setting, '=', 2), true);
    END LOOP;
    RETURN QUERY SELECT a.q, rights.answer(a.q), a.a FROM answers a WHERE rights.answer(a.q) <> a.a ORDER BY a.n;
END $$;

SET ROLE regress_ttl_user;
SET client_min_messages = notice;
-- of_owner and barrier have the rights of the table's owner, whom the policy
-- lets through to 11, but nobody gets to what has expired
CALL ask();
SET client_min_messages = warning;
SET jit = off;
-- whatever nodes the plan has, the functions see the same
CREATE TEMPORARY TABLE answers AS SELECT *, answer(q) AS a FROM questions;
SELECT s, d.* FROM unnest('{enable_seqscan=off, enable_seqscan=off enable_indexscan=off, enable_bitmapscan=off '
    'enable_indexscan=off enable_indexonlyscan=off,
    enable_hashjoin=off enable_mergejoin=off, enable_hashjoin=off enable_nestloop=off enable_seqscan=off, '
        'enable_material=off enable_memoize=off enable_sort=off,
    plan_cache_mode=force_generic_plan, cursor_tuple_fraction=0.001}'::text[]) s, differences(s) d;
RESET jit;
RESET ROLE;

-- With FORCE, the owner and his views are under the policy, too
ALTER TABLE item FORCE ROW LEVEL SECURITY;
-- they see what the user of the view may
SET ROLE regress_ttl_user;
SELECT id FROM of_owner;
SELECT id FROM barrier WHERE peep(id);
-- the owner has no row of his own
SET ROLE regress_ttl_owner;
SELECT count(*) FROM item;
SET row_security = off;
SELECT state('SELECT FROM rights.item');
RESET row_security;

-- Forced policies keep neither eviction nor the reaper from their work
SET ROLE regress_ttl_user;
INSERT INTO item (id, tenant) VALUES (21, 'regress_ttl_user'), (32, 'regress_ttl_user');
RESET ROLE;
SELECT ttl.expired_count('item');
SET ROLE regress_ttl_owner;
CALL ttl.reap('rights.item');
RESET ROLE;
SELECT * FROM stored('item');

--
-- Columns
--

-- A role with rights to some columns alone does with a container what it does
-- with a plain table: the filter, the stamp and the eviction ask for none
CREATE TABLE plain (id int PRIMARY KEY, open text, secret text DEFAULT 'of the default',
    _ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int);
INSERT INTO plain VALUES (1, 'a', 'b', '2900-01-01');
CREATE TABLE contained (id int PRIMARY KEY, open text, secret text DEFAULT 'of the default',
    _ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int);
SELECT ttl.create_container('contained', 60);
INSERT INTO contained VALUES (1, 'a', 'b', '2900-01-01', NULL), (2, 'a', 'b', '2020-01-01', NULL), (3, 'a', 'b',
    '2020-01-01', 5), (4, 'a', 'b', '-infinity', NULL);
ALTER TABLE contained OWNER TO regress_ttl_owner;
GRANT INSERT (id, open), UPDATE (open), SELECT (id, open) ON plain, contained TO regress_ttl_user;

-- A statement's answer, and both if that over a container differs from that over a plain table
CREATE FUNCTION compare(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    of_plain text := rights.answer(replace(statement, 'TABLE', 'rights.plain'));
    of_contained text := rights.answer(replace(statement, 'TABLE', 'rights.contained'));
BEGIN
    RETURN CASE WHEN replace(of_contained, 'contained', 'plain') IS DISTINCT
        FROM of_plain THEN of_plain || ' <> ' || of_contained ELSE of_plain END;
END $$;
SET ROLE regress_ttl_user;
-- the same, be it allowed or refused, in each command
SELECT compare(s) FROM unnest(ARRAY[
    'SELECT id, open FROM TABLE',
    'SELECT count(*) FROM TABLE',
    'SELECT * FROM TABLE',
    'SELECT _ts FROM TABLE',
    'SELECT id FROM TABLE WHERE secret = ''b''',
    'SELECT id FROM TABLE WHERE ttl IS NULL',
    'SELECT id FROM TABLE FOR UPDATE',
    'UPDATE TABLE SET open = ''c'' RETURNING id, open',
    'UPDATE TABLE SET open = ''c'' WHERE id = 1 RETURNING id, open',
    'UPDATE TABLE SET open = ''c'', secret = ''c'' RETURNING id',
    'UPDATE TABLE SET _ts = ''2900-01-01'' RETURNING id',
    'UPDATE TABLE SET open = secret RETURNING id',
    'UPDATE TABLE SET open = ''c'' RETURNING _ts',
    'DELETE FROM TABLE RETURNING id',
    'INSERT INTO TABLE (id, open) VALUES (2, ''c''), (3, ''c'') RETURNING id, open',
    'INSERT INTO TABLE (id, open) VALUES (1, ''c'') RETURNING id',
    'INSERT INTO TABLE VALUES (2, ''c'') RETURNING id',
    'INSERT INTO TABLE VALUES (2, ''c'', ''d'') RETURNING id',
    'INSERT INTO TABLE (id, _ts) VALUES (2, ''2900-01-01'') RETURNING id',
    'INSERT INTO TABLE (id, ttl) VALUES (2, 5) RETURNING id',
    'INSERT INTO TABLE AS t (id, open) VALUES (1, ''c''), (2, ''d'') ON CONFLICT (id) DO UPDATE SET open = t.open || '
        'excluded.open WHERE t.open = ''a'' RETURNING id, open',
    'INSERT INTO TABLE AS t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET open = t.secret RETURNING id',
    'INSERT INTO TABLE AS t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET secret = ''x'' RETURNING id',
    'INSERT INTO TABLE AS t (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET open = ''x'' WHERE t._ts '
        '> ''2020-01-01'' RETURNING id',
    'INSERT INTO TABLE AS t (id) VALUES (1), (3) ON CONFLICT DO NOTHING RETURNING id',
    'MERGE INTO TABLE t USING (VALUES (1), (2)) s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET open = ''m'' WHEN '
        'NOT MATCHED THEN INSERT (id, open) VALUES (s.id, ''m'')',
    'MERGE INTO TABLE t USING (VALUES (1), (2)) s (id) ON t.id = s.id WHEN MATCHED AND t.secret = ''b'' THEN UPDATE '
        'SET open = ''m''',
    'MERGE INTO TABLE t USING (VALUES (1)) s (id) ON t.id = s.id WHEN MATCHED THEN DELETE']) s;
-- a COPY of his columns takes the keys of expired rows, and shows live ones
COPY contained (id, open) FROM STDIN;
2	copied
3	copied
\.
COPY contained (id, open) TO STDOUT;
COPY contained TO STDOUT;
UPDATE contained SET open = 'updated' WHERE id = 2;
RESET ROLE;
-- rows have what the user wrote, defaults, and a stamp
SELECT id, open, secret, _ts BETWEEN '2025-01-01' AND '2800-01-01' AS stamped FROM contained ORDER BY id;

-- Without any right to SELECT he can still write, keys of expired rows included
REVOKE SELECT (id, open) ON plain, contained FROM regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT compare(s) FROM unnest(ARRAY['SELECT FROM TABLE', 'SELECT count(*) FROM TABLE']) s;
INSERT INTO contained (id) VALUES (4);
UPDATE contained SET open = 'blind';
COPY contained (id) FROM STDIN;
5
\.
RESET ROLE;
SELECT id, open FROM contained ORDER BY id;

--
-- Settings
--

CREATE TABLE hidden (id int PRIMARY KEY, note text);
SELECT ttl.create_container('hidden', 60);
INSERT INTO hidden (id, note, _ts) VALUES (1, 'live', '2900-01-01'), (2, 'expired', '2020-01-01');
ALTER TABLE hidden OWNER TO regress_ttl_owner;
GRANT ALL ON hidden TO regress_ttl_user;
SET SESSION AUTHORIZATION regress_ttl_user;

-- Not his to set, by whatever command
SELECT s, state(s) FROM unnest(ARRAY[
    'SET ttl.show_expired = on', 'SET LOCAL ttl.show_expired = on',
        'SELECT set_config(''ttl.show_expired'', ''on'', true)', 'SET SESSION ttl.show_expired TO DEFAULT',
    'ALTER ROLE regress_ttl_user SET ttl.show_expired = on', 'ALTER ROLE ALL SET ttl.show_expired = on',
    'CREATE FUNCTION pg_temp.f() RETURNS bigint LANGUAGE sql SET ttl.show_expired = on AS ''SELECT count(*) FROM '
        'rights.hidden''',
    'SET ttl.now = ''2000-01-01''', 'ALTER ROLE regress_ttl_user SET ttl.now = ''2000-01-01''', 'RESET ttl.now',
    'SET ttl.leader = 1', 'ALTER ROLE regress_ttl_user SET ttl.leader = 1', 'RESET ttl.leader',
    'SET session_replication_role = replica', 'SET ROLE regress_ttl_owner',
    'SET ttl.reaper = off', 'SET ttl.throughput = 1', 'GRANT SET ON PARAMETER ttl.show_expired TO regress_ttl_user',
    'UPDATE pg_settings SET setting = ''on'' WHERE name = ''ttl.show_expired''']) s;

-- His to set, to no effect: the expired row isn't seen, nor found
CREATE FUNCTION pg_temp.with_setting(setting text) RETURNS TABLE (live text, found bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config(split_part(setting, '=', 1), split_part(setting, '=', 2), true);
    RETURN QUERY SELECT string_agg(note, ',' ORDER BY note), (SELECT count(*) FROM rights.hidden WHERE id = 2)
        FROM rights.hidden;
END $$;
SELECT s, w.* FROM unnest('{row_security=off, enable_seqscan=off, enable_indexscan=off, enable_bitmapscan=off, '
    'enable_indexonlyscan=off, enable_tidscan=off, constraint_exclusion=on,
    plan_cache_mode=force_generic_plan, transform_null_equals=on, TimeZone=Pacific/Kiritimati, DateStyle=German, '
        'ttl.touch=off, search_path=pg_temp, backslash_quote=off,
    from_collapse_limit=1, geqo_threshold=2, jit=off, work_mem=64, default_transaction_isolation=serializable, '
        'check_function_bodies=off}'::text[]) s, pg_temp.with_setting(s) w;
-- row_security = off is for who owns the table
SET row_security = off;
COPY hidden (note) TO STDOUT;
UPDATE hidden SET note = note RETURNING note;
DELETE FROM hidden WHERE id = 2;
RESET row_security;
RESET SESSION AUTHORIZATION;

-- Nor does it show in a trigger that a deletion of ttl's fires, by a query spelt as a foreign key's
GRANT SELECT, UPDATE ON hidden TO regress_ttl_stranger;
SET SESSION AUTHORIZATION regress_ttl_stranger;
CREATE TABLE bait (id int PRIMARY KEY, found text);
CREATE FUNCTION spell() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    note text;
BEGIN
    EXECUTE 'SELECT 1 FROM ONLY "rights"."hidden" x WHERE $1 OPERATOR(pg_catalog.=) "id" FOR KEY SHARE OF x' INTO note
        USING 2;
    RAISE EXCEPTION 'found: %', note;
END $$;
CREATE TRIGGER spell BEFORE DELETE ON bait FOR EACH ROW EXECUTE FUNCTION spell();
SELECT ttl.create_container('bait', 60);
INSERT INTO bait (id, _ts) VALUES (1, '2020-01-01');
RESET SESSION AUTHORIZATION;
SELECT refused('INSERT INTO rights.bait VALUES (1)');

-- Nor in a function that ALTER TABLE calls, by a query spelt as its validation
SET SESSION AUTHORIZATION regress_ttl_stranger;
CREATE TABLE lure (id int);
INSERT INTO lure VALUES (1);
CREATE FUNCTION spell_validation() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    note text;
BEGIN
    EXECUTE 'SELECT fk.note FROM ONLY rights.hidden fk JOIN ONLY rights.hidden pk ON pk.id = fk.id WHERE fk.id = 2'
        INTO note;
    RAISE EXCEPTION 'found: %', note;
END $$;
SELECT refused('ALTER TABLE rights.lure ADD CHECK (rights.spell_validation())');
RESET SESSION AUTHORIZATION;

-- Nor in one that it calls in a trigger that a deletion of ttl's fires
SET SESSION AUTHORIZATION regress_ttl_stranger;
CREATE FUNCTION look() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'found: %', (SELECT note FROM rights.hidden WHERE id = 2);
END $$;
CREATE OR REPLACE FUNCTION spell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    ALTER TABLE rights.lure ADD CHECK (rights.look());
    RETURN OLD;
END $$;
RESET SESSION AUTHORIZATION;
SELECT refused('INSERT INTO rights.bait VALUES (1)');

-- Nor by his setting there, while a superuser has it fire as the owner
CREATE OR REPLACE FUNCTION spell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('row_security', 'off', true);
    PERFORM rights.look();
    RETURN OLD;
END $$;
CALL ttl.reap('bait');

--
-- What an error tells a user who may insert, and not read
--

CREATE TABLE told (id int PRIMARY KEY, email text UNIQUE, note text);
CREATE TABLE told_child (email text REFERENCES told (email));
CREATE TABLE told_archive (id int, email text, note text CHECK (note <> 'secret'));
SELECT ttl.create_container('told', 60);
INSERT INTO told (id, email, note) VALUES (1, 'secret@x', 'secret'), (2, 'secret2@x', 'secret');
INSERT INTO told_child VALUES ('secret@x');
SET ttl.touch = off;
UPDATE told SET _ts = '2020-01-01';
RESET ttl.touch;
GRANT INSERT ON told TO regress_ttl_user;

-- The DETAIL, where PostgreSQL shows values of rows
CREATE FUNCTION detail(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
BEGIN
    EXECUTE statement;
    RETURN 'done';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN SQLSTATE || ': ' || detail;
END $$;
-- the row whose deletion fails isn't the user's: he learns that it failed, the owner learns why
SET ROLE regress_ttl_user;
SELECT rights.detail('INSERT INTO rights.told VALUES (1, ''mine'', ''x'')');
RESET ROLE;
SELECT detail('INSERT INTO rights.told VALUES (1, ''mine'', ''x'')') ~ 'secret@x' AS owner_is_told;

-- Nor does a constraint of the archive show him the row
DISCARD TEMP;
SELECT ttl.alter_container('told', archive_to => 'told_archive');
SET ROLE regress_ttl_user;
SELECT rights.detail('INSERT INTO rights.told VALUES (2, ''mine'', ''x'')');
RESET ROLE;
SELECT ttl.alter_container('told', archive_to => 0);

--
-- ttl.container and the functions
--

-- What PUBLIC may do in the schema: nothing but look, and call what plans and
-- triggers of other people's tables need
SELECT c.relname, string_agg(a.privilege_type, ',' ORDER BY a.privilege_type) AS public
  FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'ttl'::regnamespace AND a.grantee = 0
      GROUP BY c.relname HAVING string_agg(a.privilege_type, ',') <> 'SELECT';
SELECT has_schema_privilege('regress_ttl_user', 'ttl', 'CREATE') AS creates;

-- The trigger function on a stranger's table, as every event, does nothing or says how it is to be fired
SET SESSION AUTHORIZATION regress_ttl_stranger;
CREATE TABLE of_stranger (a text, b text, c text, d text, e text, f text, g text);
CREATE TRIGGER on_write BEFORE INSERT OR UPDATE ON of_stranger FOR EACH ROW EXECUTE FUNCTION ttl.on_write();
INSERT INTO of_stranger VALUES ('a');
UPDATE of_stranger SET a = 'b' RETURNING a;
CREATE TRIGGER after_write AFTER INSERT ON of_stranger FOR EACH ROW EXECUTE FUNCTION ttl.on_write();
SELECT refused('INSERT INTO rights.of_stranger VALUES (''a'')');
DROP TRIGGER after_write ON of_stranger;
CREATE TRIGGER each_statement BEFORE INSERT ON of_stranger FOR EACH STATEMENT EXECUTE FUNCTION ttl.on_write();
SELECT refused('INSERT INTO rights.of_stranger VALUES (''a'')');
DROP TRIGGER each_statement ON of_stranger;
SELECT refused('CREATE TRIGGER restore BEFORE INSERT ON rights.of_stranger FOR EACH ROW EXECUTE FUNCTION '
    'ttl.restore_container()');

-- Called by hand, it does nothing; functions of plans answer as for any row
SELECT refused('SELECT ttl.on_write()'), refused('SELECT ttl.restore_container()');
SELECT ttl.is_live('of_stranger', '2020-01-01', 5), ttl.is_live(0, '2020-01-01', 5), ttl.is_live(NULL, NULL, NULL),
    ttl.stamp('2020-01-01'::timestamptz, 1, NULL) > '2025-01-01' AS stamp;
DO $$BEGIN ASSERT NOT ttl.is_live('rights.hidden', '2020-01-01', 5); ASSERT ttl.is_live('rights.hidden', '2020-01-01',
    -1); END$$;
SELECT ttl.is_live(oid, '2020-01-01', NULL), relname FROM pg_class WHERE oid IN ('hidden'::regclass, 'other'::regclass)
    ORDER BY relname;
CREATE TABLE checked (_ts timestamptz CHECK (NOT ttl.is_live('rights.hidden', _ts, NULL)));
COPY checked FROM STDIN WHERE ttl.is_live('rights.hidden', _ts, 5) IS FALSE;
2020-01-01
2900-01-01
\.
SELECT * FROM checked;
-- no argument leads to a crash, or to a table that isn't there
SELECT f, refused(f) FROM unnest(ARRAY['SELECT ttl.create_container(0)', 'SELECT ttl.create_container(NULL)',
    'SELECT ttl.set_default_ttl(4294967295, 1)', 'SELECT ttl.alter_container(1, ''none'')',
    'SELECT ttl.drop_container(NULL)', 'CALL ttl.reap(1)', 'SELECT ttl.expired_count(0)', 'SELECT ttl.default_ttl(1)',
        'SELECT ttl.expires_at(ROW(1, 2))', 'SELECT ttl.expires_at(c) FROM pg_class c']) f;
RESET SESSION AUTHORIZATION;

--
-- Objects planted in the way
--

-- Operators, functions and types that ttl could take for PostgreSQL's or its
-- own, in a schema that comes first; whoever uses one of them fails
CREATE SCHEMA planted;
GRANT USAGE ON SCHEMA planted TO PUBLIC;
DO $$
DECLARE
    t text;
    op text;
BEGIN
    FOREACH t IN ARRAY '{integer, smallint, bigint, text, name, timestamptz, tid, oid, regclass, interval, boolean, '
        'tid[]}'::text[] LOOP
        EXECUTE format('CREATE FUNCTION planted.trap(%1$s, %1$s) RETURNS boolean LANGUAGE plpgsql AS ''BEGIN RAISE '
            'EXCEPTION ''''trapped''''; END''', t);
        FOREACH op IN ARRAY '{=, <>, <, <=, >, >=, +, -, ||}'::text[] LOOP
            EXECUTE format('CREATE OPERATOR planted.%2$s (FUNCTION = planted.trap, LEFTARG = %1$s, RIGHTARG = %1$s)',
                t, op);
        END LOOP;
    END LOOP;
    FOREACH t IN ARRAY '{clock_timestamp(), now(), item_expiry(timestamptz\, integer), stamp(timestamptz), '
        'is_live(regclass\, timestamptz\, integer), item_expiry(timestamp\, integer), stamp(timestamp), '
        'item_ttl(bigint), item_ttl(numeric), item_ttl(jsonb), timestamptz(timestamptz\, integer), int4(smallint), '
        'gen_random_uuid(), timezone(text\, timestamptz)}'::text[] LOOP
        EXECUTE format('CREATE FUNCTION planted.%s RETURNS timestamptz LANGUAGE plpgsql AS ''BEGIN RAISE '
            'EXCEPTION ''''trapped''''; END''', t);
    END LOOP;
    FOREACH t IN ARRAY '{timestamptz, int4, int2, tid, regclass, name, "integer", uuid, jsonb, numeric, btree}'::text[]
        LOOP
        EXECUTE format('CREATE DOMAIN planted.%s AS pg_catalog.text CHECK (false)', t);
    END LOOP;
END $$;
CREATE TABLE trodden (id int PRIMARY KEY, parent int REFERENCES trodden, during int4range, EXCLUDE
    USING gist (during WITH &&));
CREATE TABLE trodden_archive (id int, parent int);
SET search_path = planted, rights, pg_catalog, public;
-- a statement of the user's own meets them
SELECT 1 = 1;
-- the life of a container, by commands and functions: none of the planted objects is used
SELECT ttl.create_container('trodden', 60);
SELECT ttl.alter_container('trodden', archive_to => 'trodden_archive');
INSERT INTO trodden (id, parent, during, _ts, ttl) VALUES (1, NULL, '[1,2]', '2020-01-01', NULL), (2, NULL, '[3,4]',
    '2020-01-01', 5), (3, NULL, '[5,6]', '2020-01-01', NULL), (4, NULL, '[7,8]', '2900-01-01', '-1');
-- keys are freed by an upsert, an UPDATE, COPY
INSERT INTO trodden VALUES (1, NULL, '[5,5]') ON CONFLICT (id) DO UPDATE SET parent = NULL;
INSERT INTO trodden (id, _ts) VALUES (5, '2020-01-01');
UPDATE trodden SET id = 5, parent = 4 WHERE during && '[5,5]';
COPY trodden (id, during) FROM STDIN;
2	[1,1]
\.
COPY trodden (id) TO STDOUT;
-- functions, the reaper, and changes of the policy
SELECT ttl.expired_count('trodden'), ttl.default_ttl('trodden'), ttl.time_to_live(t) FROM trodden t
    WHERE during && '[7,7]';
INSERT INTO trodden (id, _ts, ttl) VALUES (8, '2020-01-01', NULL), (9, '2020-01-01', 7);
CALL ttl.reap('trodden');
SELECT ttl.set_default_ttl('trodden', NULL);
SELECT ttl.alter_container('trodden', indexing => 'none');
SELECT ttl.alter_container('trodden', indexing => 'consistent', reap_delay => '1 s');
SELECT ttl.set_default_ttl('trodden', ttl.seconds('1 min'));
SELECT ttl.drop_container('trodden', true);

-- Nor are they in the commands that ttl runs by itself
CREATE TABLE rights.trodden_parts (id int, lives pg_catalog.numeric, doc pg_catalog.jsonb) PARTITION BY LIST (id);
CREATE TABLE rights.trodden_1 (id int);
SELECT ttl.create_container('trodden_parts', 60, ttl_column => 'lives');
ALTER TABLE trodden_1 ADD COLUMN doc pg_catalog.jsonb;
ALTER TABLE trodden_parts ATTACH PARTITION trodden_1 FOR VALUES IN (1);
SELECT ttl.set_default_ttl('trodden_parts', NULL::int);
SELECT ttl.alter_container('trodden_parts', indexing => 'none');
SELECT ttl.alter_container('trodden_parts', indexing => 'consistent');
SELECT ttl.set_default_ttl('trodden_parts', 60);
ALTER TABLE trodden_parts DETACH PARTITION trodden_1;
SELECT ttl.create_ttl_index('rights.trodden_documents', 60);
SELECT ttl.create_ttl_index('rights.trodden_documents', 30);
SET search_path = rights, public;
-- columns, defaults and types are PostgreSQL's
SELECT attrelid::regclass, attname, format_type(atttypid, atttypmod), pg_get_expr(adbin, adrelid) FROM pg_attribute
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
 WHERE attrelid IN ('trodden_parts'::regclass, 'trodden_1'::regclass, 'trodden_documents'::regclass) AND attnum > 0
     AND NOT attisdropped ORDER BY attrelid::regclass::text COLLATE "C", attname;
DROP TABLE trodden_parts, trodden_1, trodden_documents;
-- rows and archive are what they should be
SELECT * FROM trodden ORDER BY id;
SELECT id FROM trodden_archive ORDER BY id;

-- A key by an operator class of somebody's own: equal modulo ten
CREATE FUNCTION mod10(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 % 10 - $2 % 10';
CREATE FUNCTION mod10_lt(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 % 10 < $2 % 10';
CREATE FUNCTION mod10_le(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 % 10 <= $2 % 10';
CREATE FUNCTION mod10_eq(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 % 10 = $2 % 10';
CREATE FUNCTION mod10_ge(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 % 10 >= $2 % 10';
CREATE FUNCTION mod10_gt(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 % 10 > $2 % 10';
CREATE OPERATOR <% (FUNCTION = mod10_lt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR <=% (FUNCTION = mod10_le, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR =% (FUNCTION = mod10_eq, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR >=% (FUNCTION = mod10_ge, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR >% (FUNCTION = mod10_gt, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR CLASS mod10_ops FOR TYPE int USING btree AS OPERATOR 1 <%, OPERATOR 2 <=%, OPERATOR 3 =%,
    OPERATOR 4 >=%, OPERATOR 5 >%, FUNCTION 1 mod10(int, int);
CREATE TABLE modular (n int, note text);
CREATE UNIQUE INDEX ON modular (n mod10_ops);
SELECT ttl.create_container('modular', 60);
INSERT INTO modular (n, note, _ts) VALUES (11, 'expired', '2020-01-01'), (12, 'live', '2900-01-01'), (13, 'expired',
    '2020-01-01');
-- 21 takes the key of 11, which the class calls equal; 22 meets a live one, and 33 takes that of 13
INSERT INTO modular (n, note) VALUES (21, 'new');
SELECT state('INSERT INTO rights.modular (n) VALUES (22)');
UPDATE modular SET n = 33 WHERE n = 21;
SELECT * FROM stored('modular');

--
-- Names
--

-- ... that stand in the way of archives, partitions, foreign keys and messages
CREATE SCHEMA "Select; ""x"" 'y' %s";
CREATE TABLE "Select; ""x"" 'y' %s"."group" ("order" int PRIMARY KEY, "a ""b"" 'c' %s \" text UNIQUE, "null" int,
    "now" timestamptz NOT NULL DEFAULT clock_timestamp(), "user" int);
CREATE TABLE "Select; ""x"" 'y' %s"."archive ""of"" 'group' %1$s" ("a ""b"" 'c' %s \" text, "order" int,
    "when" timestamptz DEFAULT now());
CREATE TABLE "Select; ""x"" 'y' %s"."ü2345678901234567890123456789012345678901234567890123456789012"
    ("größer als 63 bytes ist zu lang für einen Namen, so weit ist" int PRIMARY KEY REFERENCES
    "Select; ""x"" 'y' %s"."group", """; DROP TABLE x; --" timestamptz NOT NULL DEFAULT clock_timestamp());
SELECT ttl.create_container('"Select; ""x"" ''y'' %s"."group"', 60, 'now', 'user');
SELECT ttl.create_container('"Select; '
    '""x"" ''y'' %s"."ü2345678901234567890123456789012345678901234567890123456789012"', 60, '"; DROP TABLE x; --');
SELECT ttl.alter_container('"Select; ""x"" ''y'' %s"."group"',
    archive_to => '"Select; ""x"" ''y'' %s"."archive ""of"" ''group'' %1$s"');
INSERT INTO "Select; ""x"" 'y' %s"."group" VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four');
INSERT INTO "Select; ""x"" 'y' %s"."ü2345678901234567890123456789012345678901234567890123456789012" VALUES (1), (2);
SET ttl.touch = off;
UPDATE "Select; ""x"" 'y' %s"."group" SET "now" = '2020-01-01';
UPDATE "Select; ""x"" 'y' %s"."ü2345678901234567890123456789012345678901234567890123456789012"
    SET """; DROP TABLE x; --" = '2020-01-01' WHERE "größer als 63 bytes ist zu lang für einen Namen, so weit ist" = 1;
RESET ttl.touch;

-- Evicted with what references it; and not, for what references it is live
INSERT INTO "Select; ""x"" 'y' %s"."group" VALUES (1, 'new');
SELECT refused('INSERT INTO "Select; ""x"" ''y'' %s"."group" VALUES (2, ''new'')');
UPDATE "Select; ""x"" 'y' %s"."group" SET "a ""b"" 'c' %s \" = 'three' WHERE "order" = 1;
CALL ttl.reap('"Select; ""x"" ''y'' %s"."group"');
SELECT container, rows_deleted, rows_evicted, blocked_rows, last_error FROM ttl.stat_containers
    WHERE container::text ~ 'Select' ORDER BY container::text COLLATE "C" \gx (format=unaligned)
SELECT "order", "a ""b"" 'c' %s \" FROM "Select; ""x"" 'y' %s"."group";
SELECT "order", "a ""b"" 'c' %s \" FROM "Select; ""x"" 'y' %s"."archive ""of"" 'group' %1$s" ORDER BY "order";
SELECT refused('DROP INDEX "Select; ""x"" ''y'' %s".group_now_idx'),
    refused('DROP TRIGGER "~ttl" ON "Select; ""x"" ''y'' %s"."group"'),
    refused('ALTER TABLE "Select; ""x"" ''y'' %s"."group" DROP COLUMN "user"') \gx (format=unaligned)
CREATE TABLE "Select; ""x"" 'y' %s"."partitioned by" ("in" int PRIMARY KEY, "to" text,
    "for" timestamptz NOT NULL DEFAULT clock_timestamp(), "with" int) PARTITION BY LIST ("in");
CREATE TABLE "Select; ""x"" 'y' %s"."values in (1)" PARTITION OF "Select; ""x"" 'y' %s"."partitioned by" FOR
    VALUES IN (1);
-- partitions, whose columns are renamed, and that leave
SELECT ttl.create_container('"Select; ""x"" ''y'' %s"."partitioned by"', 60, 'for', 'with');
CREATE TABLE "Select; ""x"" 'y' %s"."default" PARTITION OF "Select; ""x"" 'y' %s"."partitioned by" DEFAULT;
INSERT INTO "Select; ""x"" 'y' %s"."partitioned by" ("in", "for") VALUES (1, '2020-01-01'), (2, '2020-01-01'), (3,
    '2900-01-01');
INSERT INTO "Select; ""x"" 'y' %s"."partitioned by" VALUES (2);
CALL ttl.reap('"Select; ""x"" ''y'' %s"."partitioned by"');
ALTER TABLE "Select; ""x"" 'y' %s"."partitioned by" RENAME COLUMN "for" TO "; "" '' %n";
ALTER TABLE "Select; ""x"" 'y' %s"."partitioned by" DETACH PARTITION "Select; ""x"" 'y' %s"."default";
SELECT container, ts_column, ttl_column FROM ttl.containers WHERE container::text ~ 'Select'
    ORDER BY container::text COLLATE "C";
INSERT INTO "Select; ""x"" 'y' %s"."default" ("in", "; "" '' %n") VALUES (4, '2020-01-01');
SELECT ttl.expired_count('"Select; ""x"" ''y'' %s"."default"');
SELECT ttl.drop_container(container, true) FROM ttl.containers WHERE container::text ~ 'Select';
SELECT "in" FROM "Select; ""x"" 'y' %s"."default" ORDER BY "in";

--
-- Triggers of the owner's
--

-- They run as the owner when the reaper makes them fire, and get nowhere from there
CREATE TABLE trap (id int PRIMARY KEY, note text);
SELECT ttl.create_container('trap', 60);
CREATE TABLE trap_log (id int GENERATED ALWAYS AS IDENTITY, what text);
ALTER TABLE trap OWNER TO regress_ttl_owner;
ALTER TABLE trap_log OWNER TO regress_ttl_owner;
GRANT ALL ON trap TO regress_ttl_user;

-- Tries to become somebody else, to see more, and to change what is being worked at
CREATE FUNCTION escape() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    attempt text;
    outcome text;
BEGIN
    FOREACH attempt IN ARRAY ARRAY['SET ROLE NONE', 'RESET ROLE', 'SET ROLE regress_ttl_user',
        'SET SESSION AUTHORIZATION DEFAULT', 'RESET SESSION AUTHORIZATION', 'SET LOCAL ttl.show_expired = on',
        'SET LOCAL session_replication_role = replica', 'SET LOCAL row_security = off',
            'SET LOCAL search_path = rights', 'DROP TABLE rights.trap', 'TRUNCATE rights.trap',
            'UPDATE ttl.container SET reaping = false'] LOOP
        BEGIN
            EXECUTE attempt;
            outcome = 'done';
        EXCEPTION WHEN OTHERS THEN
            outcome = SQLSTATE;
        END;
        INSERT INTO rights.trap_log (what) VALUES (format('%s: %s', attempt, outcome));
    END LOOP;
    INSERT INTO rights.trap_log (what) SELECT format('%s is %s, and sees %s rows', TG_NAME, current_user, count(*))
        FROM rights.trap;
    RETURN OLD;
END $$;
CREATE TRIGGER escape BEFORE DELETE ON trap FOR EACH ROW EXECUTE FUNCTION escape();
CREATE CONSTRAINT TRIGGER escape_later AFTER DELETE ON trap DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION
    escape();
INSERT INTO trap (id, _ts) VALUES (1, '2020-01-01');

-- By the reaper, called by a superuser: allowed is only what leads nowhere
CALL ttl.reap('trap');
SELECT what FROM trap_log ORDER BY id;
-- the session is as it was
SELECT current_user = session_user AS myself, current_setting('search_path') AS path,
    current_setting('row_security') AS row_security;
DROP TRIGGER escape_later ON trap;
DROP TRIGGER escape ON trap;

-- Functions that an index calls are not called by whoever looks at the index:
-- the worker, a superuser who monitors
TRUNCATE trap_log;
CREATE FUNCTION whoami() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO rights.trap_log (what) VALUES (format('evaluated by %s', current_user));
    RETURN 1;
END $$;
CREATE FUNCTION folded(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN rights.whoami(); END';
ALTER FUNCTION whoami() OWNER TO regress_ttl_owner;
ALTER FUNCTION folded(int) OWNER TO regress_ttl_owner;
CREATE INDEX trap_folded ON trap (_ts) WHERE folded(1) = 1;
-- in a new session nothing of the index is cached
INSERT INTO trap (id, _ts) VALUES (9, '2020-01-01');
TRUNCATE trap_log;
\c -
SET search_path = rights, public;
SET client_min_messages = warning;
-- nobody but the owner has evaluated it
SELECT count(*) FROM ttl.stat_containers WHERE container = 'trap'::regclass;
SELECT ttl.expired_count('trap');
CALL ttl.reap('trap');
SELECT DISTINCT what FROM trap_log WHERE what !~ 'regress_ttl_owner';
DROP INDEX trap_folded;

-- Nor does a superuser who makes the table a container, or alters it
CREATE TABLE snare (id int, x int) PARTITION BY LIST (x);
CREATE TABLE snare_1 PARTITION OF snare FOR VALUES IN (1) PARTITION BY LIST (x);
CREATE TABLE snare_1_1 PARTITION OF snare_1 DEFAULT;
ALTER TABLE snare OWNER TO regress_ttl_owner;
ALTER TABLE snare_1 OWNER TO regress_ttl_owner;
ALTER TABLE snare_1_1 OWNER TO regress_ttl_owner;
SET ROLE regress_ttl_owner;
CREATE UNIQUE INDEX ON snare_1_1 ((id + folded(1))) WHERE folded(2) = 1;
RESET ROLE;
TRUNCATE trap_log;
\c -
SET search_path = rights, public;
SET client_min_messages = warning;
SELECT ttl.create_container('snare', 60);
\c -
SET search_path = rights, public;
SET client_min_messages = warning;
ALTER TABLE snare_1_1 SET (fillfactor = 50);
ALTER TABLE snare ADD note text;
\c -
SET search_path = rights, public;
SET client_min_messages = warning;
SELECT ttl.alter_container('snare', touch_on_update => false);
SELECT ttl.alter_container('snare', touch_on_update => true);
SELECT ttl.set_default_ttl('snare', 30);
SELECT DISTINCT what FROM trap_log WHERE what !~ 'regress_ttl_owner';

-- What else a trigger may do.  A row that it keeps is kept, hidden, and its key
-- is taken; a statement fails cleanly or does what it says
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        RETURN NEW;
    ELSIF OLD.note = 'kept' THEN
        RETURN NULL;
    ELSIF OLD.note = 'raises' THEN
        RAISE EXCEPTION 'no';
    ELSIF OLD.note = 'deletes' THEN
        DELETE FROM rights.trap;
    ELSIF OLD.note = 'inserts' THEN
        INSERT INTO rights.trap VALUES (OLD.id, 'again');
    ELSIF OLD.note = 'inserts another' THEN
        INSERT INTO rights.trap VALUES (OLD.id + 100, 'another');
    ELSIF OLD.note = 'commits' THEN
        COMMIT;
    ELSIF OLD.note = 'turns TTL off' THEN
        PERFORM ttl.set_default_ttl('rights.trap', NULL);
    ELSIF OLD.note = 'updates' THEN
        UPDATE rights.trap SET note = 'updated' WHERE id = OLD.id;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER meddle BEFORE DELETE ON trap FOR EACH ROW EXECUTE FUNCTION meddle();
TRUNCATE trap;
CREATE PROCEDURE refill_trap() LANGUAGE sql AS $$
    TRUNCATE rights.trap;
    INSERT INTO rights.trap (id, note, _ts)
        SELECT n, note, '2020-01-01' FROM unnest('{kept, raises, deletes, inserts, inserts another, commits, nothing, '
            'turns TTL off, updates}'::text[]) WITH ORDINALITY u (note, n);
    INSERT INTO rights.trap (id, note, _ts) VALUES (50, 'live', '2900-01-01');
$$;
CALL refill_trap();

-- By an eviction: the key is free if the row is gone afterwards; ON CONFLICT finds no way around that
SELECT id, state(format('INSERT INTO rights.trap VALUES (%s, ''new'')', id)) FROM generate_series(1, 7) id;
SELECT state('INSERT INTO rights.trap VALUES (1) ON CONFLICT DO NOTHING'),
    state('INSERT INTO rights.trap VALUES (1) ON CONFLICT (id) DO UPDATE SET note = ''woken''');
SELECT id, note FROM trap ORDER BY id;
-- an UPDATE of the row by its trigger finds nothing, as it has expired
SELECT state('INSERT INTO rights.trap VALUES (9, ''new'')');
SELECT * FROM stored('trap');
-- the trigger turns TTL off, and the row goes that was found before
SELECT state('INSERT INTO rights.trap VALUES (8, ''new'')');
SELECT ttl.set_default_ttl('trap', 60);

-- By the reaper: the same rows stay, and those are counted that it has tried
CALL refill_trap();
SET client_min_messages = error;
CALL ttl.reap('trap');
SELECT * FROM stored('trap');
SELECT ttl.default_ttl('trap'), blocked_rows FROM ttl.stat_containers WHERE container = 'trap'::regclass;
SET client_min_messages = warning;
SELECT ttl.set_default_ttl('trap', 60);
DROP TRIGGER meddle ON trap;

-- BEFORE INSERT: keys that it changes are those that count; rows that it swallows take none
CREATE FUNCTION change_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.id := NEW.id + 1000;
    RETURN CASE WHEN NEW.note = 'swallow' THEN NULL ELSE NEW END;
END $$;
TRUNCATE trap;
INSERT INTO trap (id, note, _ts) VALUES (1001, 'expired', '2020-01-01'), (1002, 'expired', '2020-01-01'), (1003,
    'expired', '2020-01-01');
CREATE TRIGGER change_key BEFORE INSERT ON trap FOR EACH ROW EXECUTE FUNCTION change_key();
INSERT INTO trap VALUES (1, 'new'), (2, 'swallow');
COPY trap (id, note) FROM STDIN;
3	copied
\.
SELECT * FROM stored('trap');

--
-- Registering looks for values in columns
--

-- By the owner's rights, whatever policies of row-level security hide from him: or values would be lost unseen
SET ROLE regress_ttl_owner;
CREATE TABLE surveyed (id int, ttl int);
INSERT INTO surveyed VALUES (1, 5);
ALTER TABLE surveyed ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT count(*) FROM surveyed;
SELECT ttl.create_container('surveyed', 60);

-- For a superuser, too: what the planner evaluates is the owner's code
CREATE FUNCTION set_path() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    SET search_path = 'of another';
END $$;
CREATE FUNCTION note_user(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    RAISE WARNING 'executed by %', current_user;
    PERFORM rights.set_path();
    RETURN $1;
END $$;
SET client_min_messages = error;
CREATE INDEX surveyed_index ON surveyed ((id + rights.note_user(1)));
ALTER INDEX surveyed_index SET (fillfactor = 80);
SET client_min_messages = warning;
RESET ROLE;
SELECT ttl.create_container('surveyed', 60);

-- It leaves no setting behind
SET client_min_messages = error;
ALTER INDEX surveyed_index SET (fillfactor = 90);
SELECT ttl.create_container('surveyed', 60, ttl_column => 'ttl');
SHOW search_path;
SET client_min_messages = warning;

--
-- No privilege on schema ttl
--

-- A scan that looks at the expiry indexes finds them without a name; what the session knew of
-- them is forgotten before
CREATE FUNCTION make_few(c name, clock text, own text, options text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY, made %s NOT NULL, keep %s)', c, clock, own);
    EXECUTE format('SELECT ttl.create_container(%L, 60, ts_column => ''made'', ttl_column => ''keep'' %s)', c, options);
    EXECUTE format('INSERT INTO %I (id, made) SELECT g, CASE WHEN g %% 3 = 0 THEN '
        'timestamptz ''2020-01-01'' ELSE ''2900-01-01'' END FROM generate_series(1, 3000) g', c);
    EXECUTE format('GRANT SELECT, UPDATE ON %I TO regress_ttl_user', c);
    EXECUTE format('ALTER TABLE %I SET (fillfactor = 90)', c);
END $$;
SELECT make_few('few_int', 'timestamptz', 'int', ''), make_few('few_smallint', 'timestamp', 'smallint', ''),
    make_few('few_bigint', 'timestamptz', 'bigint', ''),
       make_few('few_jsonb', 'timestamp', 'jsonb', ''), make_few('few_epoch', 'timestamptz', 'bigint',
           ', ttl_unit => ''epoch'' '), make_few('few_dates', 'timestamptz', 'date', ''),
       make_few('few_deadlines', 'timestamptz', 'timestamptz', '');
REVOKE USAGE ON SCHEMA ttl FROM PUBLIC;
SET ROLE regress_ttl_user;
SET ttl.debug_index_probe = always;
-- for each type of TTL and of clock, two thirds are live
SELECT (SELECT count(*) FROM few_int) AS few_int, (SELECT count(*) FROM few_smallint) AS few_smallint, (SELECT count(*)
    FROM few_bigint) AS few_bigint,
       (SELECT count(*) FROM few_jsonb) AS few_jsonb, (SELECT count(*) FROM few_epoch) AS few_epoch, (SELECT count(*)
           FROM few_dates) AS few_dates,
       (SELECT count(*) FROM few_deadlines) AS few_deadlines;
-- an UPDATE and a look at one row need none, either
UPDATE few_int SET keep = 5 WHERE id = 1;
SELECT count(*) FROM few_int WHERE id < 4;
RESET ttl.debug_index_probe;
RESET ROLE;
GRANT USAGE ON SCHEMA ttl TO PUBLIC;

REVOKE ALL ON SCHEMA rights FROM regress_ttl_user, regress_ttl_owner;
DROP SCHEMA rights, planted, "Select; ""x"" 'y' %s" CASCADE;
DROP ROLE regress_ttl_stranger;
