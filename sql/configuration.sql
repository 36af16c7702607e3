-- What can be a container, who may say so, and what DDL does to one
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA configuration;
SET search_path = configuration, public;

--
-- The interface
--

-- A view that loses or renames a column breaks monitoring: each has these
SELECT c.relname AS view, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), E',\n    '
    ORDER BY a.attnum) AS columns
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
 WHERE c.relnamespace = 'ttl'::regnamespace AND c.relkind = 'v'
 GROUP BY c.relname ORDER BY c.relname COLLATE "C" \g (format=unaligned)

-- Everybody may look, nobody may write
SELECT has_schema_privilege('regress_ttl_user', 'ttl', 'USAGE') AS schema,
       bool_and(has_table_privilege('regress_ttl_user', c.oid, 'SELECT')) AS read,
       bool_or(has_table_privilege('regress_ttl_user', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')) AS write,
       has_schema_privilege('regress_ttl_user', 'ttl', 'CREATE') AS make
  FROM pg_class c WHERE c.relnamespace = 'ttl'::regnamespace AND c.relkind IN ('r', 'v');

-- Each setting has its context: what affects other sessions isn't for every user
SELECT name, context FROM pg_settings WHERE name ~ '^ttl\.' AND name NOT IN ('ttl.leader') ORDER BY name COLLATE "C";

-- Every object is commented, so that \dx+ and \df+ explain it
SELECT pg_describe_object(classid, objid, 0) FROM pg_depend d
 WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'ttl')
   AND obj_description(objid, classid::regclass::name) IS NULL AND classid <> 'pg_type'::regclass;
-- and so is every column
SELECT attrelid::regclass, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
 WHERE relnamespace = 'ttl'::regnamespace AND relkind IN ('r', 'v') AND attnum > 0 AND NOT attisdropped
   AND col_description(attrelid, attnum) IS NULL ORDER BY attrelid::regclass::text, attnum;
-- and every trigger
SELECT tgrelid::regclass, tgname FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
 WHERE relnamespace = 'ttl'::regnamespace AND NOT tgisinternal AND obj_description(pg_trigger.oid,
     'pg_trigger') IS NULL;

--
-- create_container
--

-- What registration leaves in the catalogs: columns, indexes, triggers, the policy
CREATE FUNCTION columns_of(c regclass) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(quote_ident(attname) || ' ' || format_type(atttypid, atttypmod) || CASE
        WHEN attnotnull THEN ' NOT NULL' ELSE '' END
                      || coalesce(' DEFAULT ' || pg_get_expr(adbin, adrelid), ''), ', ' ORDER BY attnum)
      FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
     WHERE attrelid = c AND attnum > 0 AND NOT attisdropped
$$;
CREATE FUNCTION indexes_of(c regclass) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = c ORDER BY pg_get_indexdef(indexrelid) COLLATE "C"
$$;
CREATE FUNCTION triggers_of(c regclass) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT tgname || ' ' || tgenabled::text FROM pg_trigger WHERE tgrelid = c AND NOT tgisinternal
        ORDER BY tgname COLLATE "C"
$$;
CREATE VIEW containers AS
    SELECT container, default_ttl, ts_column, ttl_column, indexing, touch_on_update, reaping, reap_delay
      FROM ttl.containers WHERE container::text !~ '^public' ORDER BY container::text COLLATE "C";

CREATE TABLE session (id int PRIMARY KEY, data text);
INSERT INTO session VALUES (1, 'one'), (2, 'two');

-- Registering writes no row: neither the file nor the row's version is another
SELECT relfilenode AS was FROM pg_class WHERE oid = 'session'::regclass \gset
SELECT ctid, xmin AS was_xmin FROM session WHERE id = 1 \gset
SELECT ttl.create_container('session', 3600);
SELECT relfilenode = :was AS not_rewritten FROM pg_class WHERE oid = 'session'::regclass;

-- An empty table needs no value for rows that were there before: it would cost scans
CREATE TABLE nothing_yet (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE nothing_yet_1 PARTITION OF nothing_yet FOR VALUES FROM (0) TO (100);
SELECT ttl.create_container('nothing_yet', 3600);
SELECT attrelid::regclass, atthasmissing FROM pg_attribute WHERE attname = '_ts' AND attrelid IN ('session'::regclass,
    'nothing_yet'::regclass, 'nothing_yet_1'::regclass) ORDER BY 1;
INSERT INTO nothing_yet VALUES (1);
SELECT _ts IS NOT NULL AS has_ts FROM nothing_yet;
DROP TABLE nothing_yet;
SELECT ctid = :'ctid' AND xmin = :'was_xmin' AS not_updated FROM session WHERE id = 1;

-- Columns, one index for each way to expire, the trigger, and the policy as it was given
SELECT columns_of('session');
SELECT indexes_of('session');
SELECT triggers_of('session');
SELECT * FROM containers;
SELECT ttl.default_ttl('session');

-- The rows that were there count from now
SELECT id, data, ttl, _ts <= clock_timestamp() AND _ts > clock_timestamp() - interval '10 min' AS from_now,
    ttl.time_to_live(s) BETWEEN 3000 AND 3600 AS left FROM session s ORDER BY id;
-- a container isn't registered twice
SELECT refused('SELECT ttl.create_container(''session'', 60)');

-- Every argument
-- Named arguments; no TTL column; no index, which is allowed as long as TTL is off; unlogged; an interval
CREATE TABLE named (id int, changed timestamptz, lives int);
SELECT ttl.create_container(container => 'named', default_ttl => -1, ts_column => 'changed', ttl_column => 'lives',
    indexing => 'consistent', touch_on_update => false);
CREATE TABLE bare (id int);
SELECT ttl.create_container('bare', ttl_column => NULL);
CREATE TABLE unindexed (id int);
SELECT ttl.create_container('unindexed', indexing => 'none');

-- The word that Cosmos DB had for an indexing mode is taken, and said to be the same
SET client_min_messages = notice;
CREATE TABLE lazy (id int);
SELECT ttl.create_container('lazy', 60, indexing => 'lazy');
SELECT ttl.alter_container('lazy', indexing => 'lazy');
SELECT indexing FROM ttl.containers WHERE container = 'lazy'::regclass;
SELECT indexdef FROM pg_indexes WHERE tablename = 'lazy' ORDER BY indexdef COLLATE "C";
DROP TABLE lazy;
SET client_min_messages = warning;
CREATE UNLOGGED TABLE unlogged (id int);
SELECT ttl.create_container('unlogged', 2147483647);
CREATE TABLE by_interval (id int);
SELECT ttl.create_container('by_interval', ttl.seconds('1 hour'));
SELECT * FROM containers;
SELECT columns_of('named'), columns_of('bare') \gx (format=unaligned)
-- each has the indexes that its policy needs
SELECT indexes_of('named') UNION ALL SELECT indexes_of('bare') UNION ALL SELECT indexes_of('unindexed');

-- Values that are refused, with nothing left behind
CREATE TABLE fresh (id int);

-- Neither a number that is no TTL, nor columns that can't be its, nor no table, nor a default TTL without indexes
SELECT args, refused(format('SELECT ttl.create_container(%s)', args)) FROM unnest(ARRAY[
    '''fresh'', 0', '''fresh'', -2', '''fresh'', -2147483648', '''fresh'', ts_column => NULL',
    '''fresh'', ts_column => ''x'', ttl_column => ''x''', '''fresh'', ts_column => ''xmin''',
        '''fresh'', ttl_column => ''ctid''',
    '''fresh'', indexing => ''hash''', '''fresh'', indexing => ''Consistent''',
    '''fresh'', 60, indexing => ''none''', '''fresh'', -1, indexing => ''none''', 'NULL', '0',
        '4000000000, 60, indexing => ''none''', '''nonexistent''']) args \g (format=unaligned)
SELECT columns_of('fresh'), (SELECT count(*) FROM pg_depend WHERE refobjid = 'fresh'::regclass AND deptype IN ('a',
    'n')) AS dependents;

-- Wrong kinds of relations
-- One of each kind that isn't an ordinary or partitioned table, or whose rows are another table's, too
CREATE VIEW a_view AS SELECT * FROM fresh;
CREATE MATERIALIZED VIEW a_matview AS SELECT * FROM fresh;
CREATE SEQUENCE a_sequence;
CREATE INDEX an_index ON fresh (id);
CREATE TYPE a_type AS (id int);
CREATE FOREIGN DATA WRAPPER regress_ttl_fdw;
CREATE SERVER regress_ttl_server FOREIGN DATA WRAPPER regress_ttl_fdw;
CREATE FOREIGN TABLE a_foreign_table (id int) SERVER regress_ttl_server;
CREATE TEMP TABLE a_temp_table (id int);
CREATE TABLE a_partitioned (id int) PARTITION BY LIST (id);
CREATE TABLE a_partition PARTITION OF a_partitioned FOR VALUES IN (1);
CREATE TABLE a_subpartitioned PARTITION OF a_partitioned FOR VALUES IN (2) PARTITION BY LIST (id);
CREATE TABLE an_old_parent (id int);
CREATE TABLE an_old_child () INHERITS (an_old_parent);
SELECT r, refused(format('SELECT ttl.create_container(%L, 60)', r)) FROM unnest(ARRAY['a_view', 'a_matview',
    'a_sequence', 'an_index', 'a_type', 'a_foreign_table', 'a_temp_table',
    'a_partition', 'a_subpartitioned', 'an_old_parent', 'an_old_child', 'pg_class', 'pg_catalog.pg_shdepend',
        'ttl.container']) r \g (format=unaligned)
SELECT state('SELECT ttl.create_container(''pg_toast.pg_toast_1255'')') AS toast;

--
-- Adopting columns and indexes
--

CREATE DOMAIN moment AS timestamptz;
CREATE DOMAIN lifetime AS int;

-- A timestamp column must be able to take the present: no text, domain, array, number without a unit, or generated one
SELECT t, refused(format('CREATE TABLE configuration.adopt (id int, _ts %s); SELECT '
    'ttl.create_container(''configuration.adopt'')', t))
  FROM unnest(ARRAY['date', 'text', 'moment', 'bigint', 'timestamptz[]',
      'timestamptz GENERATED ALWAYS AS (''2020-01-01''::timestamptz) STORED']) t \g (format=unaligned)
-- types that are no TTL
SELECT t, refused(format('CREATE TABLE configuration.adopt (id int, ttl %s); SELECT '
    'ttl.create_container(''configuration.adopt'')', t))
  FROM unnest(ARRAY['text', 'lifetime', 'interval', 'boolean', 'int[]']) t \g (format=unaligned)

-- Fitting columns are taken as they are, with constraints and indexes that are there already
CREATE TABLE adopt (id int, _ts timestamptz, ttl smallint);
INSERT INTO adopt VALUES (1, NULL, NULL), (2, '2020-01-01', 5), (3, '2020-01-01', 0);
SELECT ttl.create_container('adopt', 60, ts_column => '_ts', ttl_column => 'ttl');
SELECT columns_of('adopt');
SELECT indexes_of('adopt');
SELECT id FROM adopt ORDER BY id;
-- values that are no TTL are refused from now on
SELECT state('INSERT INTO configuration.adopt VALUES (4, NULL, 0)'),
    state('INSERT INTO configuration.adopt VALUES (4, NULL, -2)'),
    state('INSERT INTO configuration.adopt VALUES (4, NULL, -1)');
-- indexes equal to those that it would make are taken, needed while it is a container, and stay when it ends
CREATE TABLE adopt_all (id int, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int);
CREATE INDEX mine_default ON adopt_all (_ts) WHERE ttl IS NULL;
CREATE INDEX mine_item ON adopt_all (ttl.item_expiry(_ts, ttl)) WHERE ttl > 0;
CREATE INDEX CONCURRENTLY mine_other ON adopt_all (_ts);
SELECT ttl.create_container('adopt_all', 60);
SELECT columns_of('adopt_all');
SELECT indexes_of('adopt_all');
SELECT refused('DROP INDEX configuration.mine_default');
DROP INDEX mine_other;
SELECT ttl.drop_container('adopt_all');
SELECT indexes_of('adopt_all');
DROP INDEX mine_default, mine_item;

-- One in the other direction is not equal, nor are others that look like it: the indexes are made
CREATE INDEX descending ON adopt_all (_ts DESC) WHERE ttl IS NULL;
CREATE INDEX not_equal_1 ON adopt_all (_ts) WHERE ttl IS NULL AND id > 0;
CREATE INDEX not_equal_2 ON adopt_all (_ts) WHERE ttl IS NOT NULL;
CREATE INDEX not_equal_3 ON adopt_all USING brin (_ts) WHERE ttl IS NULL;
CREATE INDEX not_equal_4 ON adopt_all (ttl, _ts) WHERE ttl > 0;
SELECT ttl.create_container('adopt_all', 60);
SELECT indexes_of('adopt_all');
INSERT INTO adopt_all VALUES (1, '2020-01-01', NULL), (2, '2900-01-01', NULL), (3, '2020-01-02', NULL), (4,
    clock_timestamp() - interval '1 h', 5), (5, '2900-01-01', 5);
-- those serve for counting and deleting
SELECT ttl.expired_count('adopt_all'), lag > '4 years' AS lag FROM ttl.stat_containers
    WHERE container = 'adopt_all'::regclass;
CALL ttl.reap('adopt_all');
SELECT ttl.expired_count('adopt_all'), count(*) FROM adopt_all;

-- Without a TTL column, one on _ts alone serves
CREATE TABLE adopt_ts (id int, _ts timestamptz);
CREATE INDEX mine ON adopt_ts (_ts);
SELECT ttl.create_container('adopt_ts', 60, ttl_column => NULL);
SELECT indexes_of('adopt_ts');

--
-- set_default_ttl, default_ttl, seconds, alter_container
--

-- A default TTL is what was set last, of the values that a TTL has
SELECT ttl.set_default_ttl('session', -1), ttl.default_ttl('session');
SELECT ttl.default_ttl('session');
SELECT ttl.set_default_ttl('session', NULL);
SELECT ttl.default_ttl('session') IS NULL AS off;
SELECT ttl.set_default_ttl('session', 2147483647);
SELECT ttl.set_default_ttl(container => 'session', default_ttl => 1);
SELECT ttl.default_ttl('session');
SELECT v, refused(format('SELECT ttl.set_default_ttl(''session'', %s)', v)) FROM unnest('{0, -2}'::text[]) v
    \g (format=unaligned)

-- A table that isn't a container is an error of all functions, and so is NULL where a table or an answer is needed
SELECT f, refused(format('SELECT ttl.%s', f)) FROM unnest(ARRAY['set_default_ttl(''fresh'', 1)',
    'default_ttl(''fresh'')', 'alter_container(''fresh'', reaping => false)', 'drop_container(''fresh'')',
    'expired_count(''fresh'')',
    'set_default_ttl(''a_view'', 1)', 'set_default_ttl(NULL, 1)', 'alter_container(NULL)', 'drop_container(NULL)',
        'drop_container(''session'', NULL)', 'set_default_ttl(0, 1)']) f \g (format=unaligned)

-- A default TTL as an interval, and as a text that is a number or an interval: what drivers send without a type
CREATE FUNCTION becomes(argument text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT ttl.set_default_ttl(''configuration.session'', %s)', argument);
    RETURN coalesce(ttl.default_ttl('configuration.session')::text, 'off');
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ': ' || SQLERRM;
END $$;

-- What says a whole number of seconds from 1 to 2147483647 is taken, in whatever spelling; the rest is refused
SELECT a, becomes(a) FROM unnest(ARRAY['interval ''1 day''', '''1 hour''', '''3600''', ''' 3600 ''', '''-1''',
    ''' -1 ''', '''+20''', '''20.0''', '''PT1M''', '''1 month''', '''2147483647 s''',
    '''2147483647''', 'NULL', 'NULL::interval', 'NULL::text', 'NULL::integer', '20::smallint', 'varchar ''7'' ',
    '''0''', '''-2''', '''2147483648''', '''-9223372036854775809''', '''99999999999999999999''', '''1.5 s''',
        '''20.5''', '''0 s''', '''-1 s''', '''178000000 years''', '''99999999999999999999 years''',
    '''''', ''' ''', '''forever''', '''20 bananas''', '''0x10''', 'interval ''-1 s''', 'interval ''0''',
        'interval ''1.5 s''', 'interval ''2147483648 s''']) a;
SELECT refused('SELECT ttl.set_default_ttl(''session'', ''forever'')'),
    refused('SELECT ttl.set_default_ttl(''session'', interval ''0.5 s'')') \gx (format=unaligned)
-- a driver that sends no types has it taken as a text
PREPARE untyped AS SELECT ttl.set_default_ttl($1, $2);
EXECUTE untyped('session', '90 minutes');
SELECT ttl.default_ttl('session');
EXECUTE untyped('session', NULL);
SELECT ttl.default_ttl('session') IS NULL AS off;
DEALLOCATE untyped;
SELECT ttl.set_default_ttl('session', 1);
-- create_container takes the same
CREATE TABLE as_interval (id int);
CREATE TABLE as_text (id int, made timestamptz);
SELECT ttl.create_container('as_interval', interval '1 day'), ttl.create_container('as_text', '1 week',
    ts_column => 'made', ttl_column => NULL, touch_on_update => false);
SELECT container, default_ttl, ts_column, ttl_column, touch_on_update FROM containers WHERE container::text ~ '^as_';
DROP TABLE as_interval, as_text;
CREATE TABLE as_text (id int);
SELECT refused('SELECT ttl.create_container(''as_text'', default_ttl => ''soon'')'),
    refused('SELECT ttl.create_container(''as_text'', interval ''-1 day'')') \gx (format=unaligned)

-- NULL is the default of each other argument
SELECT ttl.create_container('as_text', default_ttl => NULL, indexing => NULL, touch_on_update => NULL,
    ttl_unit => NULL);
SELECT container, default_ttl, indexing, touch_on_update FROM containers WHERE container::text ~ '^as_';
DROP TABLE as_text;

-- ttl.seconds() says of an interval what it comes to, or that it is none
SELECT ttl.seconds('1 s'), ttl.seconds('1 hour'), ttl.seconds('30 days'), ttl.seconds('1 month'),
    ttl.seconds('2147483647 s'), ttl.seconds('1 day -1 hour'), ttl.seconds(NULL);
SELECT i, refused(format('SELECT ttl.seconds(%L)', i))
    FROM unnest('{0, -1 s, 1.5 s, 0.9 s, 2147483648 s, 178000000 years, -1 day 1 s}'::text[]) i;

-- alter_container changes what is named, and nothing without
SELECT ttl.alter_container('session', touch_on_update => false, reaping => false, reap_delay => '1 day 2 hours');
SELECT * FROM containers WHERE container = 'session'::regclass;
SELECT ttl.alter_container('session');
SELECT ttl.alter_container('session', reaping => true);
SELECT ttl.alter_container('session', reap_delay => '0', touch_on_update => true, indexing => 'consistent');
SELECT * FROM containers WHERE container = 'session'::regclass;
-- values out of range are refused; so is giving up indexes that a default TTL needs
SELECT a, refused(format('SELECT ttl.alter_container(''session'', %s)', a)) FROM unnest(ARRAY['reap_delay => ''-1 s''',
    'reap_delay => ''1000000 years''', 'indexing => ''none''', 'indexing => ''gin''', 'indexing => ''''',
    'ts_precision => ''-1 s''']) a \g (format=unaligned)

-- Without indexes there is no default TTL, and they go and come with the setting
SELECT refused('SELECT ttl.set_default_ttl(''unindexed'', 60)');
SELECT refused('SELECT ttl.set_default_ttl(''unindexed'', -1)');
SELECT ttl.set_default_ttl('unindexed', NULL);
SELECT ttl.alter_container('unindexed', indexing => 'consistent');
SELECT ttl.set_default_ttl('unindexed', 60);
SELECT indexes_of('unindexed');
SELECT ttl.set_default_ttl('unindexed', NULL);
SELECT ttl.alter_container('unindexed', indexing => 'none');
SELECT indexes_of('unindexed');

-- What expires by a change is told: in the beginning, by a shorter default, after
-- NULL; of rows with a TTL of their own only when TTL was off, of others what was
-- not expired before
SET client_min_messages = notice;
\set VERBOSITY default
CREATE TABLE precious (id int, _ts timestamptz NOT NULL, ttl int);
INSERT INTO precious SELECT g, now() - g * interval '1 hour', NULL FROM generate_series(1, 5) g;
INSERT INTO precious VALUES (6, now() - interval '1 hour', 60), (7, now() - interval '1 hour', -1);
\set VERBOSITY terse
SELECT ttl.create_container('precious', 10000, ts_column => '_ts', ttl_column => 'ttl');
\set VERBOSITY default
SELECT ttl.set_default_ttl('precious', 10000);
SELECT ttl.set_default_ttl('precious', 5000);
SELECT ttl.set_default_ttl('precious', 9000);
SELECT ttl.set_default_ttl('precious', -1);
SELECT ttl.set_default_ttl('precious', 15000);
SELECT ttl.set_default_ttl('precious', NULL);
-- the HINT for rows that become visible names the way to have them deleted
SELECT ttl.alter_container('precious', reaping => false);
SELECT ttl.set_default_ttl('precious', 1);
SELECT ttl.set_default_ttl('precious', NULL);

-- That ttl.reaper is off is told whether or not the container is reaped
SELECT ttl.alter_container('precious', reaping => true);
SELECT ttl.set_default_ttl('precious', 60);
SELECT ttl.set_default_ttl('precious', NULL);
-- beyond 10,000 rows they aren't counted
INSERT INTO precious (id, _ts) SELECT 0, now() - interval '1 hour' FROM generate_series(1, 10002) g;
\set VERBOSITY terse
SELECT ttl.set_default_ttl('precious', 1);
DROP TABLE precious;
SET client_min_messages = warning;

--
-- drop_container
--

-- What has expired is visible again, columns stay, indexes and trigger go
SELECT ttl.set_default_ttl('session', 3600);
INSERT INTO session (id, _ts) VALUES (3, '2020-01-01');
SELECT count(*) FROM session;
SELECT ttl.drop_container('session');
SELECT count(*) FROM session;
SELECT columns_of('session');
SELECT indexes_of('session');
SELECT triggers_of('session');
SELECT * FROM containers WHERE container = 'session'::regclass;
-- the functions don't know the table any more
SELECT state('SELECT ttl.drop_container(''session'')'),
    refused('SELECT ttl.expires_at(s) FROM configuration.session s');

-- And back: with its columns registered anew, the same rows are hidden
SELECT ttl.create_container('session', 60, ts_column => '_ts');
SELECT count(*) FROM session WHERE id = 3;
SET client_min_messages = notice;
-- drop_columns leaves columns that were there when it was registered
SELECT ttl.drop_container('session', drop_columns => true);
SET client_min_messages = warning;
SELECT columns_of('session');
SELECT count(*) FROM session;
-- as it leaves an index
SELECT ttl.drop_container('adopt_ts');
SELECT indexes_of('adopt_ts');

--
-- Rights
--

GRANT USAGE ON SCHEMA configuration TO regress_ttl_owner, regress_ttl_user;
GRANT CREATE ON SCHEMA configuration TO regress_ttl_owner;
CREATE TABLE theirs (id int);
ALTER TABLE theirs OWNER TO regress_ttl_owner;
GRANT ALL ON theirs TO regress_ttl_user;

-- All functions by one role, in the order of a container's life
CREATE FUNCTION try_all(c text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(state(format(f, c)), ' ') FROM unnest(ARRAY['SELECT ttl.create_container(%L, 60)',
        'SELECT ttl.set_default_ttl(%L, 30)', 'SELECT ttl.default_ttl(%L)',
        'SELECT ttl.alter_container(%L, reap_delay => ''1 s'')', 'SELECT ttl.expired_count(%L)', 'CALL ttl.reap(%L)',
            'SELECT ttl.drop_container(%L)']) f
$$;
-- who can't change the table can't change its policy, before it is a container or after; default_ttl() anybody may ask
SET ROLE regress_ttl_user;
SELECT configuration.try_all('configuration.theirs') AS stranger;
RESET ROLE;
SELECT ttl.create_container('theirs', 60);
SET ROLE regress_ttl_user;
SELECT configuration.try_all('configuration.theirs') AS stranger;
SELECT state('INSERT INTO ttl.container (relid) VALUES (''configuration.theirs'')'),
    state('UPDATE ttl.container SET default_time_to_live = 1'), state('DELETE FROM ttl.containers');
-- statistics and policies are for everybody to see
SELECT count(*) > 0 AS sees_policies FROM ttl.containers;
SELECT count(*) > 0 AS sees_statistics FROM ttl.stat_containers;
-- and none of shards, which only Citus has
SELECT container FROM ttl.stat_shards();
RESET ROLE;
SELECT ttl.drop_container('theirs');
-- the owner and members of the role may do all; in a transaction, another role than the owner can't have rows deleted
SET ROLE regress_ttl_owner;
SELECT configuration.try_all('configuration.theirs') AS owner;
SET ROLE regress_ttl_member;
SELECT configuration.try_all('configuration.theirs') AS member;
RESET ROLE;
SELECT try_all('theirs') AS superuser;

-- Policies are changed by the functions alone, also by a superuser; what a dump
-- restores is in force at once, for partitions too
SELECT s, refused(s) FROM unnest('{UPDATE ttl.container SET default_time_to_live = 1, DELETE FROM ttl.container, '
    'TRUNCATE ttl.container, UPDATE ttl.containers SET reaping = true, DELETE FROM ttl.containers}'::text[]) s
    \g (format=unaligned)

-- Nor may others change them, with the same HINT, and with no HINT of ttl's on other tables
GRANT pg_read_server_files TO regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT s, public.refused(s) FROM unnest('{INSERT INTO ttl.container (relid) VALUES (1), UPDATE ttl.container SET '
    'default_time_to_live = 1, DELETE FROM ttl.container, TRUNCATE ttl.container, WITH d '
    'AS (DELETE FROM ttl.container) SELECT 1, SELECT FROM ttl.container FOR UPDATE, DELETE FROM pg_class, TRUNCATE '
    'pg_class, COPY ttl.container FROM ''/dev/null'', COPY pg_class FROM ''/dev/null''}'::text[]) s
    \g (format=unaligned)
RESET ROLE;
REVOKE pg_read_server_files FROM regress_ttl_user;
-- not in a session that replicates, either
SET session_replication_role = replica;
SELECT state('UPDATE ttl.container SET default_time_to_live = 1'), state('TRUNCATE ttl.container');
RESET session_replication_role;

-- As pg_dump's script restores a policy: it hides rows at once, in partitions; reaping stays off
CREATE TABLE restored (id int, _ts timestamptz, ttl int) PARTITION BY LIST (id);
CREATE TABLE restored_1 PARTITION OF restored DEFAULT;
INSERT INTO restored VALUES (1, '2020-01-01');
SELECT count(*) FROM restored_1;
INSERT INTO ttl.container (relid, default_time_to_live, ts_column, ttl_column, indexing, touch_on_update, reaping,
    reap_delay) SELECT 'restored', 60, ts_column, ttl_column, indexing, touch_on_update, reaping, reap_delay
    FROM ttl.container WHERE relid = 'by_interval'::regclass;
SELECT count(*) FROM restored_1;
DROP TABLE restored;

-- Anybody reads what ttl keeps of a row
SELECT ttl.create_container('theirs', 60);
INSERT INTO theirs (id, _ts) VALUES (1, '2900-01-01');
SET ROLE regress_ttl_user;
SELECT ttl.expires_at(t) FROM configuration.theirs t;
RESET ROLE;

--
-- Names
--

-- Names with quotes, spaces, format's placeholders, and of 63 bytes, with those of indexes made from them
CREATE SCHEMA "Odd ""schema"" select";
CREATE TABLE "Odd ""schema"" select"."table" ("Id" int PRIMARY KEY,
    "user" timestamptz NOT NULL DEFAULT clock_timestamp(), "limit" int);
CREATE TABLE "Odd ""schema"" select"."naïve Tabelle %s %L 'x' \ ""q"" $1" (id int PRIMARY KEY, "column" timestamptz,
    "TTL ""x"" 'y'" int);
CREATE TABLE "Odd ""schema"" select"."order"";DROP TABLE x;--" (id int);
CREATE TABLE "Odd ""schema"" select".t23456789012345678901234567890123456789012345678901234567890123 (id int);
CREATE TABLE "Odd ""schema"" select"."ü2345678901234567890123456789012345678901234567890123456789012" (id int);
SELECT ttl.create_container('"Odd ""schema"" select"."table"', 60, 'user', 'limit');
SELECT ttl.create_container('"Odd ""schema"" select"."naïve Tabelle %s %L ''x'' \ ""q"" $1"', 60, 'column',
    'TTL "x" ''y''');
SELECT format('ALTER TABLE %s ADD %I timestamptz NOT NULL DEFAULT clock_timestamp(), ADD %I int', oid::regclass,
    'c2345678901234567890123456789012345678901234567890123456789012',
    'ü234567890123456789012345678901234567890123456789012345678901')
  FROM pg_class WHERE relname IN ('t23456789012345678901234567890123456789012345678901234567890123',
      'ü2345678901234567890123456789012345678901234567890123456789012', 'order";DROP TABLE x;--')
      ORDER BY relname COLLATE "C" \gexec
SELECT ttl.create_container(oid, 60, 'c2345678901234567890123456789012345678901234567890123456789012',
    'ü234567890123456789012345678901234567890123456789012345678901')
  FROM pg_class WHERE relname IN ('t23456789012345678901234567890123456789012345678901234567890123',
      'ü2345678901234567890123456789012345678901234567890123456789012', 'order";DROP TABLE x;--')
      ORDER BY relname COLLATE "C";
SELECT container, ts_column, ttl_column FROM ttl.containers WHERE container::text ~ 'Odd'
    ORDER BY container::text COLLATE "C" \g (format=unaligned)
-- statements find, stamp, free keys and delete under such names
INSERT INTO "Odd ""schema"" select"."table" VALUES (1), (2);
INSERT INTO "Odd ""schema"" select"."table" VALUES (3, '2020-01-01', NULL), (4, DEFAULT, -1);
UPDATE "Odd ""schema"" select"."table" SET "limit" = 5 WHERE "Id" = 1;
INSERT INTO "Odd ""schema"" select"."table" VALUES (3);
SELECT "Id", "limit" FROM "Odd ""schema"" select"."table" ORDER BY 1;
INSERT INTO "Odd ""schema"" select"."naïve Tabelle %s %L 'x' \ ""q"" $1" VALUES (1, '2020-01-01'), (2, NULL);
INSERT INTO "Odd ""schema"" select"."naïve Tabelle %s %L 'x' \ ""q"" $1" (id) VALUES (1);
SELECT id FROM "Odd ""schema"" select"."naïve Tabelle %s %L 'x' \ ""q"" $1" ORDER BY 1;
CALL ttl.reap('"Odd ""schema"" select"."naïve Tabelle %s %L ''x'' \ ""q"" $1"');

-- DDL and the functions do, too
SELECT refused('DROP INDEX "Odd ""schema"" select"."table_user_idx"');
SELECT ttl.alter_container(container, indexing => 'consistent') FROM ttl.containers WHERE container::text ~ 'Odd';
SELECT ttl.drop_container(container, true) FROM ttl.containers WHERE container::text ~ 'Odd';
SELECT columns_of(oid) FROM pg_class WHERE relnamespace = '"Odd ""schema"" select"'::regnamespace AND relkind = 'r'
    ORDER BY relname COLLATE "C" \g (format=unaligned)

-- Hostile objects in the search_path are not what registration uses
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT ''1999-01-01''::timestamptz';
CREATE FUNCTION hostile.eq(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE OPERATOR hostile.= (FUNCTION = hostile.eq, LEFTARG = int, RIGHTARG = int);
CREATE DOMAIN hostile.timestamptz AS text;
SET search_path = hostile, configuration, pg_catalog, public;
SET DateStyle = 'German';
CREATE TABLE configuration.safe (id integer);
SELECT ttl.create_container('safe', 60);
RESET DateStyle;
SET search_path = configuration, public;
SELECT columns_of('safe');

--
-- DDL
--

CREATE TABLE item (id int PRIMARY KEY, x int);
SELECT ttl.create_container('item', 60);
INSERT INTO item (id, x, _ts, ttl) VALUES (1, 1, '2900-01-01', NULL), (2, 2, '2020-01-01', NULL), (3, 3, '2020-01-01',
    5);

-- What a container needs stays
-- Columns go by no spelling of DROP COLUMN
SELECT refused('ALTER TABLE configuration.item DROP COLUMN _ts');
SELECT refused('ALTER TABLE configuration.item DROP COLUMN ttl CASCADE');
SELECT refused('ALTER TABLE configuration.item DROP COLUMN x, DROP COLUMN ttl');
-- their types change neither to another, nor by an expression
SELECT refused('ALTER TABLE configuration.item ALTER COLUMN _ts TYPE date');
SELECT refused('ALTER TABLE configuration.item ALTER COLUMN ttl TYPE text');
SELECT refused('ALTER TABLE configuration.item ALTER COLUMN _ts TYPE bigint USING 1');
SELECT refused('ALTER TABLE configuration.item ALTER COLUMN _ts TYPE timestamptz[] USING NULL');

-- Nor does a value change on the way to the type that the column has
SELECT v, state('ALTER TABLE configuration.item ALTER COLUMN ' || v)
    FROM unnest('{_ts TYPE timestamptz USING _ts::date, _ts TYPE timestamptz USING _ts::timestamptz(0), _ts TYPE '
    'timestamptz USING x, ttl TYPE int USING ttl::smallint, ttl TYPE int USING x::int}'::text[]) v;

-- Nothing is built anew when nothing changes
SELECT string_agg(oid::text, ' ' ORDER BY oid) AS was FROM pg_class WHERE oid IN (SELECT indexrelid FROM pg_index
    WHERE indrelid = 'item'::regclass) \gset
ALTER TABLE item ALTER COLUMN _ts TYPE timestamp with time zone, ALTER COLUMN _ts SET NOT NULL, ALTER COLUMN _ts
    SET DEFAULT clock_timestamp();
ALTER TABLE item ALTER COLUMN ttl TYPE int4;
ALTER TABLE item ALTER COLUMN _ts TYPE timestamptz USING _ts::timestamptz, ALTER COLUMN ttl TYPE int USING ttl;
SELECT string_agg(oid::text, ' ' ORDER BY oid) = :'was' AS kept FROM pg_class WHERE oid IN (SELECT indexrelid
    FROM pg_index WHERE indrelid = 'item'::regclass);
-- the expiry indexes and the trigger can't be dropped
SELECT refused('DROP INDEX configuration.item__ts_idx');
SELECT refused('DROP INDEX configuration.item_pkey, configuration.item_item_expiry_idx');
SELECT refused('DROP INDEX CONCURRENTLY configuration.item__ts_idx');
SELECT refused('DROP TRIGGER "~ttl" ON configuration.item');
SELECT refused('SELECT ttl.alter_container(''item'', indexing => ''none'')');
SELECT indexes_of('item');

-- What it does not need goes
ALTER TABLE item DROP COLUMN x, ADD COLUMN y int;
ALTER TABLE item ALTER COLUMN y TYPE bigint;
CREATE INDEX another ON item (y);
DROP INDEX another;
REINDEX TABLE item;

-- Without a default the indexes may go, and must be back for one
SELECT ttl.set_default_ttl('item', NULL);
DROP INDEX item__ts_idx;
SELECT refused('SELECT ttl.set_default_ttl(''item'', 60)');
SELECT ttl.alter_container('item', indexing => 'consistent');
SELECT ttl.set_default_ttl('item', 60);
SELECT count(*) FROM item;

-- Triggers switched off and on by pg_dump --disable-triggers
ALTER TABLE item DISABLE TRIGGER ALL;
ALTER TABLE item ENABLE TRIGGER ALL;
SELECT triggers_of('item');

-- Renaming is followed
ALTER TABLE item RENAME TO things;
ALTER TABLE things RENAME COLUMN _ts TO "Changed at";
ALTER TABLE things RENAME ttl TO lifetime;
ALTER INDEX item__ts_idx RENAME TO renamed_index;
SELECT * FROM containers WHERE container = 'things'::regclass;
-- rows are hidden, stamped, and given to functions under the new names
SELECT id FROM things;
UPDATE things SET y = 1 RETURNING id, "Changed at" > '2025-01-01' AND "Changed at" < '2800-01-01' AS touched;
INSERT INTO things (id, lifetime) VALUES (2, 60) RETURNING id, ttl.time_to_live(things) > 0 AS left;
-- the renamed column and index are as needed as before
SELECT refused('ALTER TABLE configuration.things DROP COLUMN lifetime');
SELECT refused('DROP INDEX configuration.renamed_index');
SELECT ttl.expired_count('things');
-- a renaming that is rolled back is forgotten
BEGIN;
ALTER TABLE things RENAME COLUMN lifetime TO other;
SELECT ttl_column FROM ttl.containers WHERE container = 'things'::regclass;
SELECT count(*) FROM things;
ROLLBACK;
SELECT ttl_column FROM ttl.containers WHERE container = 'things'::regclass;
SELECT count(*) FROM things;
-- another schema, its new name, another owner
CREATE SCHEMA moved;
ALTER TABLE things SET SCHEMA moved;
ALTER SCHEMA moved RENAME TO elsewhere;
SELECT * FROM containers WHERE container::text ~ 'things';
SELECT count(*) FROM elsewhere.things;
ALTER TABLE elsewhere.things OWNER TO regress_ttl_owner;
SELECT count(*) FROM elsewhere.things;

-- A view's column may be renamed, which isn't the container's
CREATE VIEW things_view AS SELECT * FROM elsewhere.things;
ALTER VIEW things_view RENAME COLUMN "Changed at" TO c;
SELECT ts_column FROM ttl.containers WHERE container = 'elsewhere.things'::regclass;
DROP VIEW things_view;

-- LIKE copies columns, no policy
CREATE TABLE copy_of (LIKE elsewhere.things INCLUDING ALL);
SELECT count(*) FROM ttl.containers WHERE container = 'copy_of'::regclass;

-- DROP TABLE forgets the policy, and not if it is rolled back
BEGIN;
DROP TABLE elsewhere.things;
SELECT count(*) FROM containers WHERE container::text ~ 'things';
ROLLBACK;
SELECT count(*) FROM containers WHERE container::text ~ 'things';
-- so do DROP SCHEMA, and DROP OWNED: no policy is left of a table that isn't there
DROP SCHEMA elsewhere CASCADE;
SELECT count(*) FROM ttl.container WHERE relid::text ~ 'things' OR NOT EXISTS (SELECT FROM pg_class WHERE oid = relid);
CREATE TABLE dropped (id int);
SELECT ttl.create_container('dropped', 60);
DROP TABLE dropped;
CREATE TABLE owned_table (id int);
SELECT ttl.create_container('owned_table', 60);
CREATE ROLE regress_ttl_leaver;
ALTER TABLE owned_table OWNER TO regress_ttl_leaver;
DROP OWNED BY regress_ttl_leaver CASCADE;
DROP ROLE regress_ttl_leaver;
SELECT count(*) FROM ttl.container WHERE NOT EXISTS (SELECT FROM pg_class WHERE oid = relid);

-- Uses of _ts that don't go together with a clock that is reset
CREATE TABLE keyed (id int, day timestamptz);

-- Before registration: unique, by an expression, excluded, or what another column is computed from
SELECT refused('ALTER TABLE configuration.keyed ADD CONSTRAINT k UNIQUE (id, day); SELECT '
    'ttl.create_container(''configuration.keyed'', 60, ''day'')');
SELECT refused('CREATE UNIQUE INDEX ON configuration.keyed ((day AT TIME ZONE ''UTC'')); SELECT '
    'ttl.create_container(''configuration.keyed'', 60, ''day'')');
SELECT refused('ALTER TABLE configuration.keyed ADD EXCLUDE (day WITH =); SELECT '
    'ttl.create_container(''configuration.keyed'', 60, ''day'')');
SELECT refused('ALTER TABLE configuration.keyed ADD g timestamp GENERATED ALWAYS AS (day AT TIME ZONE ''UTC'') STORED; '
    'SELECT ttl.create_container(''configuration.keyed'', 60, ''day'')');
SELECT refused('ALTER TABLE configuration.keyed ADD g timestamp GENERATED ALWAYS AS (day AT TIME ZONE ''UTC'') STORED; '
    'SELECT ttl.create_container(''configuration.keyed'', 60, ''day'', touch_on_update => false)');
SELECT columns_of('keyed');

-- Of a container such indexes and columns are refused, in each spelling
SELECT ttl.create_container('keyed', 60, 'day');
SELECT refused('CREATE UNIQUE INDEX ON configuration.keyed (id, day)');
SELECT refused('ALTER TABLE configuration.keyed ADD PRIMARY KEY (id, day)');
\set VERBOSITY sqlstate
CREATE UNIQUE INDEX CONCURRENTLY ON keyed (id, day);

-- CREATE INDEX CONCURRENTLY is refused before it begins, which leaves no index behind, however the column is used
CREATE UNIQUE INDEX CONCURRENTLY ON keyed ((day AT TIME ZONE 'UTC'));
CREATE UNIQUE INDEX CONCURRENTLY ON keyed (id, coalesce(keyed.day, '2020-01-01'));
CREATE UNIQUE INDEX CONCURRENTLY ON keyed (id) WHERE day > '2025-01-01';
CREATE UNIQUE INDEX CONCURRENTLY ON keyed ((keyed IS NULL));
\set VERBOSITY terse
-- a predicate and the whole row use it as well
SELECT refused('CREATE UNIQUE INDEX ON configuration.keyed (id) WHERE day IS NOT NULL');
SELECT refused('CREATE UNIQUE INDEX ON configuration.keyed ((keyed IS NULL))');
SELECT refused('ALTER TABLE configuration.keyed ADD g timestamp GENERATED ALWAYS AS (day AT TIME ZONE ''UTC'') STORED');

-- A virtual generated column, which PostgreSQL has from 18 on, is as good as its columns
SELECT state('ALTER TABLE configuration.keyed ADD g timestamp GENERATED ALWAYS AS (day AT TIME ZONE ''UTC'') VIRTUAL; '
    'ALTER TABLE configuration.keyed DROP g') IN ('done', '42601');
-- but no TTL column, since it cannot be indexed
SELECT refused('CREATE TABLE configuration.virtual (n int, life int GENERATED ALWAYS AS (n) VIRTUAL); '
    'SELECT ttl.create_container(''configuration.virtual'', 60, ttl_column => ''life'')')
    ~ '^(0A000: virtual generated column "life" cannot be the TTL column of a container|42601)';
SELECT indexes_of('keyed');
-- included without being a key, it may be reset
CREATE UNIQUE INDEX ON keyed (id) INCLUDE (day);
-- while UPDATE doesn't reset it, it may be a key, and then the setting can't be turned on
SELECT ttl.alter_container('keyed', touch_on_update => false);
CREATE UNIQUE INDEX keyed_day ON keyed (id, day);
SELECT refused('SELECT ttl.alter_container(''configuration.keyed'', touch_on_update => true)');
DROP INDEX keyed_day;
CREATE UNIQUE INDEX CONCURRENTLY keyed_day ON keyed (id) WHERE day > '2025-01-01';
SELECT refused('SELECT ttl.alter_container(''configuration.keyed'', touch_on_update => true)');
SELECT refused('ALTER TABLE configuration.keyed ADD g timestamp GENERATED ALWAYS AS (day AT TIME ZONE ''UTC'') STORED');
DROP INDEX keyed_day;
SELECT ttl.alter_container('keyed', touch_on_update => true);
-- a partition key by which an UPDATE would move each row
CREATE TABLE by_day (id int, _ts timestamptz NOT NULL DEFAULT clock_timestamp()) PARTITION BY RANGE (_ts);
CREATE TABLE by_day_old PARTITION OF by_day FOR VALUES FROM (MINVALUE) TO ('2025-01-01');
CREATE TABLE by_day_new PARTITION OF by_day FOR VALUES FROM ('2025-01-01') TO (MAXVALUE);
SELECT refused('SELECT ttl.create_container(''configuration.by_day'', 60)');
SELECT ttl.create_container('by_day', 60, touch_on_update => false);
-- rows keep the partition of their creation, and are hidden all the same
INSERT INTO by_day (id, _ts) VALUES (1, '2020-01-01'), (2, DEFAULT), (3, '2900-01-01');
INSERT INTO by_day (id) VALUES (4);
INSERT INTO by_day_new (id) VALUES (5);
SELECT tableoid::regclass, id FROM by_day ORDER BY id;
WITH u AS (UPDATE by_day SET id = id RETURNING id, _ts < '2800-01-01' AS recent) SELECT * FROM u ORDER BY id;
INSERT INTO by_day (id, _ts) VALUES (6, NULL) RETURNING _ts > '2025-01-01' AS present;
SELECT refused('SELECT ttl.alter_container(''configuration.by_day'', touch_on_update => true)');

-- A key of a partition alone counts as well, whether it comes before registration, after, or is attached
CREATE TABLE by_part (id int, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int) PARTITION BY LIST (id);
CREATE TABLE by_part_1 PARTITION OF by_part (UNIQUE (_ts)) FOR VALUES IN (1);
SELECT refused('SELECT ttl.create_container(''configuration.by_part'', 60)');
SELECT ttl.create_container('by_part', 60, touch_on_update => false);
SELECT refused('SELECT ttl.alter_container(''configuration.by_part'', touch_on_update => true)');
ALTER TABLE by_part_1 DROP CONSTRAINT by_part_1__ts_key;
SELECT ttl.alter_container('by_part', touch_on_update => true);
SELECT refused('ALTER TABLE configuration.by_part_1 ADD UNIQUE (_ts)');
SELECT refused('CREATE TABLE configuration.by_part_2 PARTITION OF configuration.by_part (UNIQUE (_ts)) FOR VALUES IN '
    '(2)');
SELECT refused('CREATE TABLE configuration.by_part_2 PARTITION OF configuration.by_part FOR VALUES IN (2) PARTITION BY '
    'RANGE (_ts)');
SELECT refused('CREATE TABLE configuration.by_part_2 (LIKE configuration.by_part INCLUDING DEFAULTS, UNIQUE (_ts)); '
    'ALTER TABLE configuration.by_part ATTACH PARTITION configuration.by_part_2 FOR VALUES IN (2)');
-- with the setting off, partitions may have it
SELECT ttl.alter_container('by_part', touch_on_update => false);
CREATE TABLE by_part_2 (LIKE by_part INCLUDING DEFAULTS, UNIQUE (_ts));
ALTER TABLE by_part ATTACH PARTITION by_part_2 FOR VALUES IN (2);
ALTER TABLE by_part ADD note text;

-- An application that gives the time of creation needs no default
CREATE TABLE event (at timestamptz NOT NULL);
SELECT ttl.create_container('event', 60, 'at', NULL, touch_on_update => false);
SELECT columns_of('event');
CREATE TABLE event_or_not (at timestamptz);
SELECT ttl.create_container('event_or_not', 60, 'at', NULL, touch_on_update => false);
SELECT columns_of('event_or_not');
-- _ts as a foreign key would reference another row after an UPDATE
CREATE TABLE moments (at timestamptz PRIMARY KEY);
CREATE TABLE of_moment (id int, _ts timestamptz REFERENCES moments);
SELECT refused('SELECT ttl.create_container(''configuration.of_moment'', 60)');
SELECT ttl.create_container('of_moment', 60, touch_on_update => false);

-- Inheritance
-- Rows of heirs would be visible through a container, or hidden in none
SELECT refused('CREATE TABLE configuration.heir () INHERITS (configuration.keyed)');
CREATE TABLE heir (LIKE keyed INCLUDING CONSTRAINTS);
SELECT refused('ALTER TABLE configuration.heir INHERIT configuration.keyed');
SELECT refused('ALTER TABLE configuration.keyed INHERIT configuration.heir');

--
-- Partitions
--

CREATE TABLE parts (id int, region text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu');
CREATE TABLE parts_us (region text NOT NULL, id int NOT NULL);
ALTER TABLE parts ATTACH PARTITION parts_us FOR VALUES IN ('us');

-- Registering writes no row of partitions; they have columns, indexes and trigger as the container
SELECT relfilenode AS was FROM pg_class WHERE oid = 'parts_us'::regclass \gset
SELECT ttl.create_container('parts', 60);
SELECT relfilenode = :was AS not_rewritten FROM pg_class WHERE oid = 'parts_us'::regclass;
SELECT columns_of('parts_us');
SELECT indexes_of('parts_us');
SELECT triggers_of('parts_us');
-- a partition is no container of its own, and can't lose what the container needs
SELECT f, refused(format('SELECT ttl.%s', f)) FROM unnest(ARRAY['create_container(''parts_us'', 60)',
    'set_default_ttl(''parts_us'', 60)', 'drop_container(''parts_us'')']) f;
SELECT refused('DROP INDEX configuration.parts__ts_idx');
SELECT refused('ALTER TABLE configuration.parts DROP COLUMN ttl');
SELECT state('ALTER TABLE configuration.parts_us DROP COLUMN ttl'), state('DROP INDEX configuration.parts_us__ts_idx');

-- New partitions and attached ones hide their rows at once
CREATE TABLE parts_asia PARTITION OF parts FOR VALUES IN ('asia');
CREATE TABLE parts_au (LIKE parts_us INCLUDING ALL);
ALTER TABLE parts ATTACH PARTITION parts_au FOR VALUES IN ('au');
INSERT INTO parts (id, region, _ts, ttl) SELECT i, region, CASE
    WHEN i = 1 THEN '2900-01-01' ELSE '2020-01-01' END::timestamptz, CASE WHEN i = 3 THEN 5 END
  FROM unnest('{eu,us,asia,au}'::text[]) region, generate_series(1, 3) i;
SELECT tableoid::regclass, count(*) FROM parts GROUP BY tableoid ORDER BY tableoid::regclass::text COLLATE "C";
SELECT ttl.expired_count('parts');

-- One that is a container itself can't be attached, as its rows would have two policies
CREATE TABLE alone (LIKE parts INCLUDING ALL);
SELECT ttl.create_container('alone', 60);
SELECT refused('ALTER TABLE configuration.parts ATTACH PARTITION configuration.alone FOR VALUES IN (''alone'')');
SELECT ttl.drop_container('alone');
ALTER TABLE parts ATTACH PARTITION alone FOR VALUES IN ('alone');

-- Detached ones keep the policy, the state that it has then
SELECT ttl.alter_container('parts', reap_delay => '1 min', reaping => false);
ALTER TABLE parts DETACH PARTITION parts_au;
ALTER TABLE parts DETACH PARTITION parts_asia CONCURRENTLY;
SELECT * FROM containers WHERE container IN ('parts'::regclass, 'parts_au'::regclass, 'parts_asia'::regclass);
SELECT (SELECT count(*) FROM parts_au) AS au, (SELECT count(*) FROM parts_asia) AS asia;
INSERT INTO parts_au (id, region) VALUES (2, 'au');
SELECT triggers_of('parts_au');
-- a detachment that is rolled back leaves no container
BEGIN;
ALTER TABLE parts DETACH PARTITION parts_us;
SELECT count(*) FROM containers WHERE container = 'parts_us'::regclass;
ROLLBACK;
SELECT count(*) FROM containers WHERE container = 'parts_us'::regclass;
SELECT count(*) FROM parts_us;
DROP TABLE parts_us;
-- with the container's end all partitions show their rows, and have neither indexes nor trigger
SELECT ttl.drop_container('parts');
SELECT count(*) FROM parts;
SELECT indexes_of('parts_eu');
SELECT triggers_of('parts_eu');

--
-- Nothing is left of what is rolled back
--

CREATE TABLE undone (id int PRIMARY KEY);
INSERT INTO undone VALUES (1);
BEGIN;
SAVEPOINT s;

-- Within the transaction it is a container, after ROLLBACK TO a table as before
SELECT ttl.create_container('undone', 60);
INSERT INTO undone (id, _ts) VALUES (2, '2020-01-01');
SELECT count(*) FROM undone;
ROLLBACK TO s;
SELECT columns_of('undone');
SELECT count(*) FROM undone;
SELECT count(*) FROM containers WHERE container = 'undone'::regclass;
SELECT ttl.create_container('undone', 60);
INSERT INTO undone (id, _ts) VALUES (2, '2020-01-01');
COMMIT;
SELECT count(*) FROM undone;
-- A change, an alteration, an end are taken back, each with its effect on the next statement
BEGIN;
SAVEPOINT a;
SELECT ttl.set_default_ttl('undone', NULL);
ROLLBACK TO a;
SELECT count(*) FROM undone;
SELECT ttl.alter_container('undone', reap_delay => '1 s', touch_on_update => false);
ROLLBACK TO a;
SELECT ttl.drop_container('undone', true);
SELECT count(*) FROM undone;
ROLLBACK TO a;
SELECT count(*) FROM undone;
UPDATE undone SET id = 5 RETURNING _ts > '2025-01-01' AS touched;
COMMIT;
SELECT * FROM containers WHERE container = 'undone'::regclass;
SELECT columns_of('undone');

-- Also when it's an error that does it
SELECT refused('DO $$BEGIN PERFORM ttl.set_default_ttl(''configuration.undone'', NULL); RAISE EXCEPTION ''no''; END$$');
SELECT ttl.default_ttl('undone');

REVOKE ALL ON SCHEMA configuration FROM regress_ttl_user, regress_ttl_owner;
DROP SCHEMA configuration, hostile CASCADE;
DROP SCHEMA "Odd ""schema"" select" CASCADE;
DROP FOREIGN DATA WRAPPER regress_ttl_fdw CASCADE;
SELECT count(*) FROM ttl.container;

-- Something for uninstall to find
CREATE TABLE public.left_behind (id int PRIMARY KEY);
SELECT ttl.create_container('public.left_behind', 60);
INSERT INTO public.left_behind (id, _ts) VALUES (1, '2900-01-01');
