-- Ten tables that people have, registered as doc/existing-tables.md says; none loses a live row
\set VERBOSITY terse
CREATE SCHEMA tables;
SET search_path = tables, public;
SET timezone = 'UTC';
\pset format unaligned
\pset tuples_only on

-- Rows seen, of those that are stored, before and after all that has expired is deleted
CREATE FUNCTION live(t regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    seen text;
    stored text;
BEGIN
    EXECUTE format('SELECT string_agg(note, '', '' ORDER BY note) FROM %s', t) INTO seen;
    CALL ttl.reap(t);
    PERFORM set_config('ttl.show_expired', 'on', true);
    EXECUTE format('SELECT string_agg(note, '', '' ORDER BY note) FROM %s', t) INTO stored;
    PERFORM set_config('ttl.show_expired', 'off', true);
    ASSERT seen IS NOT DISTINCT FROM stored, format('%s seen, %s stored', seen, stored);
    RETURN seen;
END $$;

-- PowerDNS: ttl is what a resolver may keep a record for
CREATE TABLE records (id bigserial PRIMARY KEY, domain_id int, note text, type varchar(10), content text, ttl int,
    prio int, disabled bool DEFAULT false);
INSERT INTO records (note, type, ttl) VALUES ('a.example', 'A', 300), ('b.example', 'MX', 3600), ('c.example', 'SOA',
    NULL);
-- a name alone doesn't make it the row's TTL: refused until somebody says
SELECT ttl.create_container('records', '90 days');
SELECT ttl.create_container('records', '90 days', ttl_column => NULL);
SELECT live('records');

-- Rails: sessions by their last change
CREATE TABLE sessions (id bigserial PRIMARY KEY, session_id varchar NOT NULL UNIQUE, note text,
    created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL);
CREATE INDEX index_sessions_on_updated_at ON sessions (updated_at);
INSERT INTO sessions (session_id, note, created_at, updated_at) VALUES ('a', 'live', now() - interval '1 year',
    now() - interval '1 hour'), ('b', 'stale', now() - interval '1 year', now() - interval '1 month');
\set VERBOSITY sqlstate
SELECT ttl.create_container('sessions', '14 days', ts_column => 'updated_at', ttl_column => NULL);
\set VERBOSITY terse
SELECT live('sessions');

-- Django: a deadline
CREATE TABLE django_session (session_key varchar(40) PRIMARY KEY, note text, expire_date timestamptz NOT NULL);
CREATE INDEX django_session_expire_date ON django_session (expire_date);
INSERT INTO django_session VALUES ('a', 'live', '2900-01-01'), ('b', 'expired', '2020-01-01');
SELECT ttl.create_container('django_session', -1, ts_column => NULL, ttl_column => 'expire_date');
SELECT live('django_session');

-- Keycloak: seconds since 1970 of the last refresh
CREATE TABLE offline_user_session (user_session_id varchar(36), offline_flag varchar(4), note text,
    created_on int NOT NULL, last_session_refresh int NOT NULL DEFAULT 0, PRIMARY KEY (user_session_id, offline_flag));
CREATE INDEX idx_offline_uss_createdon ON offline_user_session (created_on);
INSERT INTO offline_user_session VALUES ('a', '1', 'live', 1577836800, extract(epoch
    FROM now() - interval '1 day')), ('b', '1', 'stale', 1577836800, 1577836800);
SELECT ttl.create_container('offline_user_session', '30 days', ts_column => 'last_session_refresh', ttl_column => NULL,
    touch_on_update => false);
SET client_min_messages = warning;
SELECT ttl.create_container('offline_user_session', '30 days', ts_column => 'last_session_refresh', ts_unit => 'epoch',
    ttl_column => NULL, touch_on_update => false);
SELECT live('offline_user_session');
-- an UPDATE by the application is what keeps a row
UPDATE offline_user_session SET note = 'refreshed', last_session_refresh = extract(epoch FROM now());
SELECT live('offline_user_session');
SET client_min_messages = notice;

-- Laravel: cache entries, a deadline in seconds since 1970
CREATE TABLE cache (key varchar(255) PRIMARY KEY, note text, expiration int NOT NULL);
CREATE INDEX cache_expiration_index ON cache (expiration);
INSERT INTO cache VALUES ('a', 'live', 2147483647), ('b', 'expired', 1577836800);
-- a number may be seconds or a deadline; without a unit it isn't guessed
SELECT ttl.create_container('cache', -1, ts_column => NULL, ttl_column => 'expiration');
SELECT ttl.create_container('cache', -1, ts_column => NULL, ttl_column => 'expiration', ttl_unit => 'epoch');
SELECT live('cache');

-- DynamoDB: an export whose TTL attribute is ttl, in seconds since 1970
CREATE TABLE music (artist text, song text, note text, ttl numeric, PRIMARY KEY (artist, song));
INSERT INTO music VALUES ('a', 'x', 'live', 32503680000), ('a', 'y', 'expired', 1577836800), ('a', 'z', 'for ever',
    NULL);
-- nor what an attribute called ttl holds
SELECT ttl.create_container('music', -1);
SELECT ttl.create_container('music', -1, ts_column => NULL, ttl_column => 'ttl', ttl_unit => 'epoch');
SELECT live('music');

-- Cosmos DB: an export of documents, with ttl and _ts of each
CREATE TABLE orders (id text PRIMARY KEY, note text, doc jsonb NOT NULL, _ts bigint NOT NULL);
INSERT INTO orders SELECT id, note, doc, (doc ->> '_ts')::bigint FROM (VALUES
    ('1', 'for ever', '{"_ts": 1577836800, "ttl": -1}'::jsonb), ('2', 'expired', '{"_ts": 1577836800, "ttl": 3600}'),
        ('3', 'by default', '{"_ts": 1577836800}'), ('4', 'live', '{"_ts": 1577836800, "ttl": 2147483647}')) v (id,
        note, doc);
-- _ts is a number here, in seconds
SELECT ttl.create_container('orders', -1, ttl_column => 'doc');
SELECT ttl.create_container('orders', -1, ts_column => '_ts', ts_unit => 'epoch', ttl_column => 'doc');
SELECT live('orders');
-- documents written from now on count from now on
INSERT INTO orders (id, note, doc) VALUES ('5', 'new', '{"ttl": 3600}');
UPDATE orders SET doc = doc || '{"ttl": 3600}' WHERE id = '4';
SELECT note, ttl.time_to_live(o) FROM orders o ORDER BY id;

-- keyv: a deadline in milliseconds
CREATE TABLE keyv (key varchar(255) PRIMARY KEY, note text, expires bigint);
INSERT INTO keyv VALUES ('a', 'live', 32503680000000), ('b', 'expired', 1577836800000), ('c', 'for ever', NULL);
-- taken as seconds, such numbers look wrong, which is told
BEGIN;
SELECT ttl.create_container('keyv', -1, ttl_column => 'expires');
ROLLBACK;
SELECT ttl.create_container('keyv', -1, ts_column => NULL, ttl_column => 'expires', ttl_unit => 'epoch_ms');
SELECT live('keyv');

-- pg-boss: jobs have a deadline
CREATE TABLE job (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), note text, state text NOT NULL DEFAULT 'created',
    completed_on timestamptz, keep_until timestamptz NOT NULL DEFAULT now() + interval '14 days');
INSERT INTO job (note, state, completed_on, keep_until) VALUES ('waiting', 'created', NULL, '2900-01-01'), ('done',
    'completed', '2020-01-02', '2020-01-16');
SELECT ttl.create_container('job', -1, ts_column => NULL, ttl_column => 'keep_until');
-- the default of the application's own column makes it expire
INSERT INTO job (note) VALUES ('new');
SELECT live('job');
SELECT note, completed_on FROM job ORDER BY note;

-- Readings, by the day that a partition is for
CREATE TABLE reading (device int, taken timestamptz NOT NULL, note text, PRIMARY KEY (device, taken))
    PARTITION BY RANGE (taken);
CREATE TABLE reading_old PARTITION OF reading FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
CREATE TABLE reading_new PARTITION OF reading DEFAULT;
INSERT INTO reading VALUES (1, '2020-01-01', 'old'), (1, now(), 'new');
-- the partition's day must not be moved by an UPDATE: it is part of the key
SELECT ttl.create_container('reading', '30 days', ts_column => 'taken', ttl_column => NULL);
SELECT ttl.create_container('reading', '30 days', ts_column => 'taken', ttl_column => NULL, touch_on_update => false);
SELECT live('reading');

SET client_min_messages = warning;
DROP SCHEMA tables CASCADE;
