-- indexing => 'lazy': BRIN indexes, which know the earliest expiry of a range of pages
\set VERBOSITY terse
CREATE SCHEMA lazy;
SET search_path = lazy, public;
SET ttl.grace = 0;
CREATE FUNCTION indexes_of(t regclass) RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = t AND NOT indisprimary ORDER BY indexrelid::regclass::text COLLATE "C" $$;
-- ranges that had no summary
CREATE FUNCTION summarized(t regclass) RETURNS bigint LANGUAGE sql AS
    $$ SELECT sum(brin_summarize_new_values(indexrelid)) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam WHERE i.indrelid = t AND a.amname = 'brin' $$;

--
-- Configuration
--
CREATE TABLE item (id int PRIMARY KEY, x int);
SELECT ttl.create_container('item', 60, indexing => 'lazy');
SELECT * FROM indexes_of('item');
SELECT indexing, default_ttl FROM ttl.containers WHERE container = 'item'::regclass;
-- required as the others are
SELECT refused('DROP INDEX item__ts_idx'), refused('ALTER TABLE item DROP COLUMN _ts');
SELECT refused('SELECT ttl.alter_container(''item'', indexing => ''none'')');
BEGIN;
SELECT ttl.set_default_ttl('item', NULL);
DROP INDEX item__ts_idx;
SELECT refused('SELECT ttl.set_default_ttl(''item'', 60)');
SELECT ttl.alter_container('item', indexing => 'lazy');
SELECT ttl.set_default_ttl('item', 60);
ROLLBACK;
-- an invalid one is as good as missing, and in the way
BEGIN;
SELECT ttl.set_default_ttl('item', NULL);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'item__ts_idx'::regclass;
SELECT refused('SELECT ttl.set_default_ttl(''item'', 60)');
SELECT refused('SELECT ttl.alter_container(''item'', indexing => ''lazy'')');
ROLLBACK;
-- from one to the other: what was made for the former goes
SELECT ttl.alter_container('item', indexing => 'consistent');
SELECT * FROM indexes_of('item');
SELECT ttl.alter_container('item', indexing => 'lazy');
SELECT ttl.alter_container('item', indexing => 'lazy');
SELECT * FROM indexes_of('item');
SELECT created_objects FROM ttl.container WHERE relid = 'item'::regclass;
SELECT ttl.set_default_ttl('item', NULL), ttl.alter_container('item', indexing => 'none');
SELECT * FROM indexes_of('item');
SELECT ttl.alter_container('item', indexing => 'lazy'), ttl.set_default_ttl('item', 60);
SELECT ttl.drop_container('item', drop_columns => true);
SELECT * FROM indexes_of('item');

-- A user's own serve; with another operator class, which queries may use, they don't
CREATE TABLE adopt (id int, _ts timestamptz NOT NULL, ttl int CHECK (ttl = -1 OR ttl > 0));
CREATE INDEX mine ON adopt USING brin (_ts ttl.timestamptz_min_ops) WITH (pages_per_range = 8) WHERE ttl IS NULL;
CREATE INDEX minmax ON adopt USING brin (_ts) WHERE ttl IS NULL;
CREATE INDEX multi ON adopt USING brin (ttl.item_expiry(_ts, ttl) timestamptz_minmax_multi_ops) WHERE ttl > 0;
SELECT ttl.create_container('adopt', 60, indexing => 'lazy');
SELECT * FROM indexes_of('adopt');
SELECT refused('DROP INDEX mine'), refused('DROP INDEX multi');
SELECT ttl.drop_container('adopt');
SELECT * FROM indexes_of('adopt');

-- Partitions: of each, by PostgreSQL's own means
CREATE TABLE part (id int, k int) PARTITION BY LIST (k);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
SELECT ttl.create_container('part', 60, indexing => 'lazy');
CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2) PARTITION BY LIST (id);
CREATE TABLE part_2_1 PARTITION OF part_2 DEFAULT;
CREATE TABLE part_3 (k int, id int);
INSERT INTO part_3 VALUES (3, 31), (3, 32);
ALTER TABLE part ATTACH PARTITION part_3 FOR VALUES IN (3);
SELECT count(*) FROM part;
SELECT c, i FROM unnest('{part_1, part_2, part_2_1, part_3}'::regclass[]) c, indexes_of(c) i;
INSERT INTO part (id, k, _ts) SELECT i, 1 + i % 3, CASE WHEN i < 8 THEN timestamptz '2020-01-01' ELSE '2900-01-01' END FROM generate_series(1, 12) i;
SELECT array_agg(id ORDER BY id) FROM part;
SELECT ttl.expired_count('part');
ALTER TABLE part DETACH PARTITION part_1;
SELECT container, default_ttl, indexing FROM ttl.containers WHERE container::text LIKE 'part%' ORDER BY 1;
SELECT array_agg(id ORDER BY id) FROM part_1;
-- half of an index is none
CREATE TABLE half (id int, _ts timestamptz NOT NULL) PARTITION BY LIST (id);
CREATE TABLE half_1 PARTITION OF half DEFAULT;
CREATE INDEX half_ts ON ONLY half USING brin (_ts ttl.timestamptz_min_ops);
SELECT refused('SELECT ttl.create_container(''half'', 60, ttl_column => NULL, indexing => ''lazy'')');
CREATE INDEX half_1_ts ON half_1 USING brin (_ts ttl.timestamptz_min_ops);
ALTER INDEX half_ts ATTACH PARTITION half_1_ts;
SELECT ttl.create_container('half', 60, ttl_column => NULL, indexing => 'lazy');
SELECT * FROM indexes_of('half');

--
-- A few pages, which nobody's plan has to do with
--
CREATE TABLE plain (id int PRIMARY KEY, x int, _ts timestamptz NOT NULL, ttl int);
CREATE TABLE big (LIKE plain INCLUDING ALL);
SELECT ttl.create_container('big', 3600, indexing => 'lazy');
INSERT INTO big SELECT i, i, CASE WHEN i <= 3000 THEN timestamptz '2020-01-01' ELSE '2900-01-01' END, CASE i % 3 WHEN 0 THEN 60 WHEN 1 THEN -1 END FROM generate_series(1, 60000) i;
INSERT INTO plain TABLE big;
VACUUM ANALYZE big, plain;
SELECT pg_relation_size(indexrelid) / current_setting('block_size')::int AS pages FROM pg_index WHERE indrelid = 'big'::regclass AND NOT indisprimary;
CREATE FUNCTION uses_index(query text) RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    line text;
BEGIN
    FOR line IN EXECUTE 'EXPLAIN ' || query LOOP
        IF line ~ 'Index' THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;
SELECT uses_index('SELECT x FROM big WHERE id = 1') AS by_key, uses_index('SELECT x FROM big WHERE _ts < ''2021-01-01''') AS by_ts,
       uses_index('SELECT x FROM big WHERE ttl IS NULL') AS by_predicate, uses_index('SELECT x FROM big WHERE _ts IS NOT NULL AND ttl IS NULL') AS by_null;

--
-- What has expired
--
SELECT count(*), min(id) FROM big;
SELECT ttl.expired_count('big');
SELECT date_trunc('second', clock_timestamp() - lag) AS since FROM ttl.stat_containers WHERE container = 'big'::regclass;
SELECT ttl.set_default_ttl('big', -1);
SELECT count(*), ttl.expired_count('big') FROM big;
SELECT ttl.set_default_ttl('big', 60);
SELECT ttl.set_default_ttl('big', NULL);
SELECT count(*), ttl.expired_count('big') FROM big;
SELECT ttl.set_default_ttl('big', 3600);
SELECT ttl.expired_count('big');
SET ttl.now = 'infinity';
SELECT count(*), count(*) FILTER (WHERE ttl.expires_at(big) IS NULL) AS never, ttl.expired_count('big') FROM big;
RESET ttl.now;
-- what expires at once is seen by everybody, new pages or old
INSERT INTO big VALUES (-1, 0, '2020-01-01', NULL), (-2, 0, '2020-01-01', 5), (-3, 0, '2900-01-01', NULL);
SET ttl.touch = off;
UPDATE big SET _ts = '2020-01-01', ttl = NULL WHERE id IN (30000, 59999);
RESET ttl.touch;
SELECT count(*) FILTER (WHERE id < 0), count(*) FILTER (WHERE id IN (30000, 59999)) FROM big;
SET ttl.debug_index_probe = always;
SELECT count(*) FILTER (WHERE id < 0), count(*) FILTER (WHERE id IN (30000, 59999)) FROM big;
RESET ttl.debug_index_probe;
-- a key that only an expired row holds is free, one row or many
INSERT INTO big VALUES (30000, 1);
INSERT INTO big SELECT i, 1 FROM generate_series(1, 300) i WHERE i % 3 <> 1;
SELECT count(*) FROM big WHERE x = 1 AND _ts > '2021-01-01';

--
-- TTLs of other types, deadlines, timestamps in UTC, documents
--
CREATE TABLE numbers (id int PRIMARY KEY, _ts timestamp NOT NULL, ttl numeric);
CREATE TABLE deadlines (id int PRIMARY KEY, expires_at timestamptz);
CREATE TABLE local_deadlines (id int PRIMARY KEY, expires_at timestamp);
CREATE TABLE documents (id int PRIMARY KEY, doc jsonb);
CREATE INDEX ON deadlines USING brin (expires_at ttl.timestamptz_min_ops) WHERE expires_at IS NOT NULL;
SELECT ttl.create_container('numbers', 60, indexing => 'lazy');
SELECT ttl.create_container('deadlines', -1, ts_column => NULL, ttl_column => 'expires_at', indexing => 'lazy');
SELECT ttl.create_container('local_deadlines', -1, ts_column => NULL, ttl_column => 'expires_at', indexing => 'lazy');
SELECT ttl.create_container('documents', 60, ttl_column => 'doc', indexing => 'lazy');
SELECT c, i FROM unnest('{numbers, deadlines, local_deadlines, documents}'::regclass[]) c, indexes_of(c) i;
INSERT INTO numbers SELECT i, CASE WHEN i % 4 < 2 THEN '2020-01-01' ELSE '2900-01-01' END::timestamp, (ARRAY[NULL, -1, 60.0, 20.5, 5000000000, 0])[1 + i / 4 % 6] FROM generate_series(1, 2400) i;
INSERT INTO deadlines SELECT i, (ARRAY['2020-01-01', '2900-01-01', NULL, 'infinity', '-infinity'])[1 + i % 5]::timestamptz FROM generate_series(1, 2400) i;
INSERT INTO local_deadlines SELECT i, (ARRAY['2020-01-01', '2900-01-01', NULL, 'infinity', '-infinity'])[1 + i % 5]::timestamp FROM generate_series(1, 2400) i;
INSERT INTO documents SELECT i, ('{"ttl": ' || (ARRAY['null', '-1', '60', '20.5', '"5"', '[]'])[1 + i / 4 % 6] || '}')::jsonb, CASE WHEN i % 4 < 2 THEN timestamptz '2020-01-01' ELSE '2900-01-01' END FROM generate_series(1, 2400) i;
VACUUM numbers, deadlines, local_deadlines, documents;
CREATE FUNCTION seen(t regclass) RETURNS TABLE (auto bigint, never bigint, always bigint, live bigint, expired bigint, counted bigint) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT count(*) FROM %s', t) INTO auto;
    SET LOCAL ttl.debug_index_probe = never;
    EXECUTE format('SELECT count(*) FROM %s', t) INTO never;
    SET LOCAL ttl.debug_index_probe = always;
    EXECUTE format('SELECT count(*) FROM %s', t) INTO always;
    RESET ttl.debug_index_probe;
    SET LOCAL ttl.show_expired = on;
    EXECUTE format('SELECT count(*) FILTER (WHERE (ttl.expires_at(t) > now()) IS NOT FALSE), count(*) FILTER (WHERE ttl.expires_at(t) <= now()) FROM %s t', t) INTO live, expired;
    SET LOCAL ttl.show_expired = off;
    counted := ttl.expired_count(t);
    RETURN NEXT;
END $$;
SELECT c, seen.* FROM unnest('{numbers, deadlines, local_deadlines, documents}'::regclass[]) c, seen(c);
CALL ttl.reap('numbers'); CALL ttl.reap('deadlines'); CALL ttl.reap('local_deadlines'); CALL ttl.reap('documents');
SELECT c, seen.* FROM unnest('{numbers, deadlines, local_deadlines, documents}'::regclass[]) c, seen(c);

--
-- Reaping
--
CALL ttl.reap('big', 10);
CALL ttl.reap('big');
SELECT ttl.expired_count('big');
SELECT lag FROM ttl.stat_containers WHERE container = 'big'::regclass;
CALL ttl.reap('big');
-- in the caller's transaction
BEGIN;
INSERT INTO big VALUES (-4, 0, '2020-01-01');
CALL ttl.reap('big');
SELECT mode FROM pg_locks WHERE relation = 'big'::regclass AND pid = pg_backend_pid() AND mode = 'ShareUpdateExclusiveLock';
COMMIT;
-- a row that won't go stays in nobody's way
CREATE TABLE holds (id int REFERENCES big);
INSERT INTO holds VALUES (40000);
SET ttl.touch = off;
UPDATE big SET _ts = '2020-01-01', ttl = 5 WHERE id BETWEEN 39995 AND 40005;
RESET ttl.touch;
CALL ttl.reap('big');
SELECT ttl.expired_count('big'), blocked_rows FROM ttl.stat_containers WHERE container = 'big'::regclass;
DROP TABLE holds;
CALL ttl.reap('big');
-- nothing is left to be summarized; and what was deleted is forgotten
SELECT summarized('big');
-- more than are collected at once, and pages that nothing is known of
INSERT INTO big SELECT i, i, '2020-01-01', CASE WHEN i % 2 = 0 THEN 60 END FROM generate_series(100001, 160000) i;
CALL ttl.reap('big');
SELECT ttl.expired_count('big'), count(*) FROM big;
CALL ttl.reap();

--
-- What becomes of the indexes
--
INSERT INTO big VALUES (-5, 0, '2020-01-01', NULL), (-6, 0, '2020-01-01', 7);
REINDEX TABLE big;
SELECT count(*), ttl.expired_count('big') FROM big WHERE id < 0;
REINDEX TABLE CONCURRENTLY big;
SELECT count(*), ttl.expired_count('big') FROM big WHERE id < 0;
CLUSTER big USING big_pkey;
SELECT count(*), ttl.expired_count('big') FROM big WHERE id < 0;
VACUUM FULL big;
SELECT count(*), ttl.expired_count('big') FROM big WHERE id < 0;
ALTER TABLE big ADD y int DEFAULT random();
SELECT count(*), ttl.expired_count('big') FROM big WHERE id < 0;
-- a plan that is kept, a cursor that is open: both go on as the way of indexing changes
PREPARE kept AS SELECT count(*) FROM big WHERE id < 0;
EXECUTE kept;
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM big WHERE id < 10 ORDER BY id;
FETCH 1 FROM c;
SELECT refused('SELECT ttl.alter_container(''big'', indexing => ''consistent'')');
CLOSE c;
SELECT ttl.alter_container('big', indexing => 'consistent');
EXECUTE kept;
SELECT count(*), ttl.expired_count('big') FROM big WHERE id < 0;
ROLLBACK;
EXECUTE kept;
SELECT ttl.alter_container('big', indexing => 'consistent');
EXECUTE kept;
SELECT count(*), ttl.expired_count('big') FROM big WHERE id < 0;
CALL ttl.reap('big');
TRUNCATE big;
SELECT ttl.alter_container('big', indexing => 'lazy');
INSERT INTO big VALUES (1, 1, '2900-01-01'), (2, 2, '2020-01-01');
SELECT id FROM big;
CALL ttl.reap('big');

-- The family of operators is sound
SELECT opcname, amvalidate(oid) FROM pg_opclass WHERE opcname LIKE 'timestamp%_min_ops' ORDER BY 1;

SET client_min_messages = warning;
DROP SCHEMA lazy CASCADE;
