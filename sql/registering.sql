-- A table that people have becomes a container: nothing is taken that nobody has named
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA registering;
SET search_path = registering, public;
\pset format unaligned
\pset tuples_only on

--
-- Columns that hold values
--

-- A column called ttl may be anything
CREATE TABLE records (id int PRIMARY KEY, name text, ttl int);
INSERT INTO records SELECT g, 'host' || g, CASE WHEN g < 5 THEN 300 + g END FROM generate_series(1, 6) g;
SELECT refused('SELECT ttl.create_container(''records'', ''90 days'')');
SELECT refused('SELECT ttl.create_ttl_index(''records'', 90)');
SELECT count(*) FROM records;

-- The table is untouched, and no column is half added
SELECT attname FROM pg_attribute WHERE attrelid = 'records'::regclass AND attnum > 0;
-- What the HINT says: all rows by the default TTL ...
BEGIN;
SET LOCAL client_min_messages = notice;
\set VERBOSITY default
SELECT ttl.create_container('records', '90 days', ttl_column => NULL);
SELECT count(*), max(ttl.time_to_live(r)) - 90 * 86400 BETWEEN -60 AND 0 FROM records r;
ROLLBACK;
-- ... or each by its value
BEGIN;
SET LOCAL client_min_messages = notice;
SELECT ttl.create_container('records', '90 days', ttl_column => 'ttl');
\set VERBOSITY terse
SELECT id, ttl.expires_at(r) - _ts FROM records r ORDER BY id;
ROLLBACK;
-- So may one called _ts, whose values would make rows expire at once
CREATE TABLE log (id int, _ts timestamptz);
INSERT INTO log VALUES (1, '2020-01-01 UTC'), (2, NULL);
SELECT refused('SELECT ttl.create_container(''log'', 60)');
SELECT refused('SELECT ttl.create_container(''log'', 60, ts_column => ''_ts'')');
-- named, it is taken: what is old has expired, what has no value never does
SELECT id FROM log;
-- Columns without values are what create_container() would have added
CREATE TABLE declared (id int, _ts timestamptz, ttl int);
INSERT INTO declared VALUES (1, NULL, NULL);
SELECT refused('SELECT ttl.create_container(''declared'', 60)');
-- That is asserted only of what has been looked at: with 10,000 rows or more it is refused without a value, too
CREATE TABLE large (id int, ttl int);
INSERT INTO large SELECT g FROM generate_series(1, 10000) g;
SELECT refused('SELECT ttl.create_container(''large'', 60)');
DELETE FROM large WHERE id = 1;
SELECT refused('SELECT ttl.create_container(''large'', 60)');
-- Of rows on more than 1,000 pages, those of the first are looked at, or registering would read any table to its end
CREATE UNLOGGED TABLE wide (id int, ttl int, filler text);
ALTER TABLE wide ALTER filler SET STORAGE PLAIN;
INSERT INTO wide SELECT g, 60, repeat('x', 7000) FROM generate_series(1, 1010) g;
SELECT refused('SELECT ttl.create_container(''wide'', 60)');
DROP TABLE wide;
-- Values are found in partitions, too; documents without a TTL hold none
CREATE TABLE parts (id int, _ts timestamptz, ttl int) PARTITION BY LIST (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 (ttl int, _ts timestamptz, id int);
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES IN (2);
INSERT INTO parts VALUES (1, NULL, NULL), (2, NULL, 5);
SELECT refused('SELECT ttl.create_container(''parts'', 60)');
CREATE TABLE documents (id int, ttl jsonb);
INSERT INTO documents VALUES (1, '{}'), (2, '{"a": 1}');
SELECT refused('SELECT ttl.create_container(''documents'', 60)');
SELECT ttl.drop_container('documents');
ALTER TABLE documents DROP _ts;
INSERT INTO documents VALUES (3, '{"ttl": "soon"}'), (4, '{"ttl": 20}');
SELECT refused('SELECT ttl.create_container(''documents'', 60)');
SET client_min_messages = notice;
SELECT refused('SELECT ttl.create_container(''documents'', 60, ttl_column => ''ttl'')');

-- What is adopted is told, with the range of its values, and what looks wrong
CREATE TABLE session (id int, created_at timestamptz, expires_at timestamptz);
INSERT INTO session VALUES (1, '2020-01-01 UTC', '2900-01-01 UTC'), (2, '2020-01-02 UTC', '2900-01-02 UTC');
\set VERBOSITY default
BEGIN;
SELECT ttl.create_container('session', NULL, ts_column => 'expires_at', ttl_column => NULL);
ROLLBACK;
SELECT ttl.create_container('session', -1, ts_column => NULL, ttl_column => 'expires_at');
\set VERBOSITY terse

--
-- Names that aren't there
--

-- A name that was mistyped adds no column, whatever it resembles, nor one of ttl's own names
CREATE TABLE article (id int, created_at timestamptz);
INSERT INTO article VALUES (1, '2020-01-01');
SELECT refused('SELECT ttl.create_container(''article'', 3600, ts_column => ''create_at'')');
SELECT refused('SELECT ttl.create_container(''article'', 3600, ts_column => ''changed'')');
SELECT refused('SELECT ttl.create_container(''article'', 3600, ttl_column => ''ttl'')');
SELECT refused('SELECT ttl.create_container(''article'', 3600, ttl_column => ''lives_for'')');
SELECT refused('SELECT ttl.create_container(''article'', -1, ts_column => NULL, ttl_column => ''expires'')');
SELECT attname FROM pg_attribute WHERE attrelid = 'article'::regclass AND attnum > 0;

--
-- Once more
--

-- if_not_exists skips what is there, and leaves its policy; otherwise it is an error
SELECT ttl.create_container('session', -1, if_not_exists => true);
SELECT ttl.create_container('article', '1 day', if_not_exists => true);
SELECT ttl.create_container('article', '2 days', if_not_exists => true);
SELECT ttl.default_ttl('article');
SELECT refused('SELECT ttl.create_container(''article'', 1)');
SELECT refused('SELECT ttl.create_container(''article'', 1, if_not_exists => NULL)');

--
-- A default TTL of any type
--

-- The default TTL that an argument leads to, or why it doesn't
CREATE FUNCTION becomes(argument text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT ttl.set_default_ttl(''article'', %s)', argument);
    RETURN coalesce(ttl.default_ttl('article')::text, 'off');
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ': ' || SQLERRM;
END $$;
SET client_min_messages = warning;

-- Any type that a driver may send is taken for what it means; what is no whole number of seconds is refused
SELECT a, becomes(a) FROM unnest(ARRAY['3600::smallint', '3600::bigint', '3600.0', '3600::numeric',
    '3600::double precision', '3600::real', '-1::bigint', 'extract(epoch FROM interval ''1 day'')',
    'date_part(''epoch'', interval ''1 day'')', 'interval ''1 day''', '''1 day''', 'NULL', 'NULL::bigint',
        'NULL::numeric', '''60''::varchar',
    '0', '-2', '2147483648', '-9223372036854775808', '1.5', '59.9999999', '-1.0', '''NaN''::numeric',
        '''Infinity''::double precision', '1e20', 'true', 'timestamptz ''2020-01-01 UTC''', '''{}''::jsonb',
        'ARRAY[1]', '''5''::"char"']) a;
-- the type of a parameter doesn't come from its value
PREPARE by_driver(bigint) AS SELECT ttl.set_default_ttl('article', $1);
EXECUTE by_driver(7200);
SELECT ttl.default_ttl('article');

--
-- NULL, which a name that leads to no table comes to, spares what the owner has spared; and
-- a copy is no container
--

CREATE TABLE gone (id int);
SELECT ttl.create_container('gone', 60);
INSERT INTO gone (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.alter_container('gone', reaping => false);
SET client_min_messages = notice;
\set VERBOSITY default
-- no table named: one whose owner has switched off deletion is spared
CALL ttl.reap(to_regclass('typo'));
SELECT ttl.expired_count('gone');
-- with deletion on, NULL includes it
SELECT ttl.alter_container('gone', reaping => true);
CALL ttl.reap(NULL, 5);
SELECT ttl.expired_count('gone');

-- LIKE and AS copy columns, not the policy; LIKE says so where it copies a container
CREATE TABLE copy (LIKE gone INCLUDING ALL);
CREATE TABLE copy_as AS TABLE gone;
CREATE TABLE unlike (LIKE copy INCLUDING ALL);


--
-- What expires soon
--

CREATE TABLE tokens (kind text, id int, made timestamptz NOT NULL, lives int, PRIMARY KEY (kind, id));
SET client_min_messages = warning;
SELECT ttl.create_container('tokens', 100, ts_column => 'made', ttl_column => 'lives');
INSERT INTO tokens SELECT CASE WHEN g % 2 = 0 THEN 'even' ELSE 'o"dd' END, g,
    now() - make_interval(secs => 100 - g * 10), NULL FROM generate_series(-3, 9) g WHERE g <> 0;
INSERT INTO tokens VALUES ('own', 1, now(), 25), ('own', 2, now(), 1000), ('own', 3, now(), -1), ('own', 4,
    '2020-01-01', 5);

-- Keys of rows that expire within the interval, the earliest first; neither what has expired nor what never does
SELECT key FROM ttl.expiring('tokens', '45 s');

-- Of partitions, by one order over all of them
CREATE TABLE dated (id bigint, made timestamptz NOT NULL, until date) PARTITION BY LIST (id);
CREATE TABLE dated_1 PARTITION OF dated FOR VALUES IN (1);
CREATE TABLE dated_2 (until date, id bigint, made timestamptz NOT NULL);
ALTER TABLE dated ATTACH PARTITION dated_2 FOR VALUES IN (2);
SELECT ttl.create_container('dated', 100, ts_column => 'made', ttl_column => 'until');
INSERT INTO dated VALUES (1, now(), NULL), (2, now() - interval '50 s', NULL), (1, now(), '2020-01-01'), (2, now(),
    '2900-01-01');
SELECT key, expires_at - lag(expires_at) OVER () > '40 s' FROM ttl.expiring('dated', '1 hour');

-- Of no container, and for no interval that lies behind or beyond all time
SELECT refused('SELECT * FROM ttl.expiring(''copy'', ''1 hour'')');
SELECT refused('SELECT * FROM ttl.expiring(''tokens'', ''-1 hour'')');
-- the longest interval finds what will ever expire
SELECT count(*) FROM ttl.expiring('tokens', interval '290000 years');
-- When the next row expires, and what becomes of those that have
SELECT ttl.next_expiry('tokens') - now() BETWEEN '5 s' AND '10 s' AS next,
    ttl.next_expiry('dated') - now() BETWEEN '40 s' AND '50 s' AS next_of_parts;
SELECT ttl.next_expiry('copy') IS NULL AS none;

-- The state as an operator reads it
CREATE VIEW status AS
    SELECT container, default_ttl, state, lag IS NOT NULL AS has_expired, next_expiry IS NOT NULL AS will_expire
      FROM ttl.status WHERE container = 'tokens'::regclass;
TABLE status;
SELECT ttl.set_default_ttl('tokens', '30 days');
SELECT default_ttl FROM status;
SELECT ttl.set_default_ttl('tokens', -1);
SELECT default_ttl FROM status;
SELECT ttl.set_default_ttl('tokens', NULL);
TABLE status;
SELECT ttl.set_default_ttl('tokens', 100);
-- Everybody may read the status, and nobody keys of a table that he can't read
SET ROLE regress_ttl_user;
SELECT count(*) FROM ttl.status WHERE container::text = 'registering.tokens';
\set VERBOSITY sqlstate
SELECT * FROM ttl.expiring('registering.tokens', '1 hour');
RESET ROLE;
\set VERBOSITY default

--
-- Mistakes
--

SET client_min_messages = notice;
-- Small numbers are no other unit, and long ones are cut off
CREATE TABLE small (id int, until bigint);
INSERT INTO small VALUES (1, 1000);
SELECT ttl.create_container('small', -1, ts_column => NULL, ttl_column => 'until', ttl_unit => 'epoch_ms');
CREATE TABLE long (id int, until numeric);
INSERT INTO long VALUES (1, 1e100);
SELECT ttl.create_container('long', ttl_column => 'until');
-- The error says what is allowed
CREATE TABLE checked (id int);
SELECT ttl.create_container('checked', 60);
SELECT refused('INSERT INTO checked (id, _ts, ttl) VALUES (1, ''2900-01-01 UTC'', 0)');
DROP TABLE small, long, checked;

-- Rows that are there get a new life, which is said, and which column may hold their age
SET client_min_messages = notice;
CREATE TABLE orders (id int, at timestamp, updated_at timestamptz, created_at timestamptz, expires_at timestamptz);
-- an empty table loses no age, so there is nothing to say
SELECT ttl.create_container('orders', '30 days');
SELECT ttl.drop_container('orders', drop_columns => true);
INSERT INTO orders VALUES (1, '2020-01-01', '2020-01-01', '2020-01-01', '2020-01-01');
-- the column that looks most like a last change is named; a deadline isn't one
SELECT ttl.create_container('orders', '30 days');
SELECT ttl.drop_container('orders', drop_columns => true);
-- one without time zone isn't either: its values may be local time
ALTER TABLE orders DROP COLUMN expires_at, DROP COLUMN created_at, DROP COLUMN updated_at;
SELECT ttl.create_container('orders', '30 days');
DROP TABLE orders;
-- rows that are there count from now, however a session writes times: this zone's abbreviation is another's, too
BEGIN;
SET LOCAL timezone = 'Asia/Kolkata';
SET LOCAL DateStyle = 'SQL, DMY';
CREATE TABLE zoned AS SELECT 1 AS id;
SELECT ttl.create_container('zoned', 60);
SELECT abs(extract(epoch FROM now() - _ts)) < 60 AS from_now FROM zoned;
ROLLBACK;

SET client_min_messages = notice;
-- drop_container names the right table to take, too
SELECT refused('SELECT ttl.drop_container(''copy'')');
SELECT refused('SELECT ttl.drop_container(''dated_1'')');

SET client_min_messages = warning;
DROP SCHEMA registering CASCADE;
