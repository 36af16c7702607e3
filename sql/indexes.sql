-- Expiry indexes that are there and can't be used: nothing is done by them, and
-- nobody is told that nothing has expired for want of them
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA indexes;
SET search_path = indexes, public;

-- Whether ttl.status knows of rows that expired long ago, and what it calls damaged
CREATE VIEW lags AS
    SELECT container, lag > '4 years' AS lags, state FROM ttl.status
     WHERE container IN (SELECT oid FROM pg_class WHERE relnamespace = 'indexes'::regnamespace)
         ORDER BY container::text COLLATE "C";

--
-- Half attached
--

CREATE TABLE part (id int, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int) PARTITION BY LIST (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2);
INSERT INTO part SELECT g % 2 + 1, '2020-01-01' FROM generate_series(1, 200) g;
CREATE INDEX part_default ON ONLY part (_ts) WHERE ttl IS NULL;
CREATE INDEX part_1_default ON part_1 (_ts) WHERE ttl IS NULL;
CREATE INDEX part_2_default ON part_2 (_ts) WHERE ttl IS NULL;
ALTER INDEX part_default ATTACH PARTITION part_1_default;
-- It isn't built a second time, behind the back of whoever has forgotten one
SELECT refused('SELECT ttl.create_container(''part'', 60, ''_ts'', ''ttl'')');
ALTER INDEX part_default ATTACH PARTITION part_2_default;
-- complete, it is adopted, and only the index that was missing is built
SELECT ttl.create_container('part', 60, ts_column => '_ts', ttl_column => 'ttl');
SELECT relname FROM pg_class WHERE relnamespace = 'indexes'::regnamespace AND relkind IN ('i', 'I')
    ORDER BY relname COLLATE "C";
SELECT ttl.expired_count('part'), * FROM lags;
-- An index of a partition alone, and in a tree, is completed when the partition is attached
CREATE TABLE part_3 (LIKE part INCLUDING DEFAULTS) PARTITION BY LIST (id);
CREATE TABLE part_3_3 PARTITION OF part_3 FOR VALUES IN (3);
CREATE INDEX part_3_default ON ONLY part_3 (_ts) WHERE ttl IS NULL;
ALTER TABLE part ATTACH PARTITION part_3 FOR VALUES IN (3);
INSERT INTO part VALUES (3, '2020-01-01');
SELECT ttl.expired_count('part');
CALL ttl.reap('part');
SELECT ttl.expired_count('part'), count(*) FROM part;
DROP TABLE part;

--
-- Invalid
--

CREATE TABLE item (id int PRIMARY KEY, _ts timestamptz, ttl int);
SELECT ttl.create_container('item');
DROP INDEX item__ts_idx;
INSERT INTO item SELECT g, '2020-01-01', NULL FROM generate_series(1, 200) g;

-- As a REINDEX CONCURRENTLY or CREATE INDEX CONCURRENTLY that failed leaves it
CREATE FUNCTION break_index(name text) RETURNS void LANGUAGE sql AS
    'UPDATE pg_index SET indisvalid = false WHERE indexrelid = name::regclass';
CREATE INDEX broken ON item (_ts) WHERE ttl IS NULL;
SELECT break_index('broken');

-- TTL isn't turned on, and the index not taken for built, as long as one that would serve is invalid
SELECT refused('SELECT ttl.set_default_ttl(''item'', 60)');
SELECT refused('SELECT ttl.alter_container(''item'', indexing => ''consistent'')');
REINDEX INDEX broken;
SELECT ttl.set_default_ttl('item', 60);
-- It becomes so afterwards, in whatever way: no function says that nothing has expired
SELECT break_index('broken');
SELECT refused('SELECT ttl.expired_count(''item'')');
SELECT * FROM lags;
SELECT refused('CALL ttl.reap(''item'')');
-- What another index finds is deleted before the error, in a call that can commit
INSERT INTO item VALUES (301, '2020-01-01', 5);
SELECT refused('CALL ttl.reap(''item'')');
CALL ttl.reap('item');
SELECT count(*) FILTER (WHERE stored ~ '301') AS item, count(*) FROM stored('item');
-- And keys are free in a bulk load, too: that nothing has expired isn't concluded from a broken index
INSERT INTO item (id) SELECT generate_series(-150, 200);
SELECT count(*) FROM item;
-- An invalid index may go, and a valid one if another is there
DROP INDEX broken;
SELECT refused('SELECT ttl.expired_count(''item'')');
BEGIN;
SELECT ttl.alter_container('item', indexing => 'consistent');
-- Building one takes no lock that readers wait for
SELECT string_agg(DISTINCT mode, ', ') FROM pg_locks
    WHERE relation = 'item'::regclass AND pid = pg_backend_pid() AND mode ~ 'Exclusive' AND mode <> 'RowExclusiveLock';
COMMIT;
-- A look at the edges of the indexes keeps no lock: those of all containers together may be more than there is room for
BEGIN;
SELECT count(ttl.next_expiry(container)) >= 0 AS looked FROM ttl.stat_containers CROSS JOIN ttl.outlook(container);
SELECT count(*) FROM pg_locks WHERE relation IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'item'::regclass) AND
    pid = pg_backend_pid();
COMMIT;
-- of two that serve, one may go, not both in one command
CREATE INDEX twin ON item (_ts) WHERE ttl IS NULL;
SELECT refused('DROP INDEX indexes.item__ts_idx, indexes.twin');
DROP INDEX item__ts_idx;
SELECT refused('DROP INDEX indexes.twin');
-- An invalid one beside a valid one is in nobody's way: as REINDEX CONCURRENTLY has them for a while
CREATE INDEX twin_ccnew ON item (_ts) WHERE ttl IS NULL;
SELECT break_index('twin_ccnew');
SELECT ttl.expired_count('item'), ttl.alter_container('item', indexing => 'consistent'), ttl.set_default_ttl('item',
    30);
DROP INDEX twin_ccnew;
-- An index that belongs to a constraint serves, and then the constraint is needed
CREATE TABLE moment (_ts timestamptz);
ALTER TABLE moment ADD CONSTRAINT moment_key UNIQUE (_ts);
SELECT ttl.create_container('moment', 60, ttl_column => NULL, touch_on_update => false);
SELECT count(*) FROM pg_index WHERE indrelid = 'moment'::regclass;
SELECT refused('ALTER TABLE indexes.moment DROP CONSTRAINT moment_key');
-- One that a column takes along when it is dropped isn't adopted
CREATE TABLE covered (id int, note text, _ts timestamptz);
CREATE INDEX covered_ts ON covered (_ts) INCLUDE (note);
SELECT ttl.create_container('covered', 60, ttl_column => NULL);
SELECT count(*) FROM pg_index WHERE indrelid = 'covered'::regclass;

DROP SCHEMA indexes CASCADE;
