-- What ttl.create_container() has added to a table, and nothing else, goes again
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA taking_back;
SET search_path = taking_back, public;

-- What somebody can see of a table's definition: columns, CHECKs, indexes, triggers
CREATE FUNCTION shape(c regclass) RETURNS SETOF text LANGUAGE sql AS $$
    (SELECT attname || ' ' || format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
            || coalesce(' DEFAULT ' || pg_get_expr(adbin, adrelid), '')
       FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
      WHERE attrelid = c AND attnum > 0 AND NOT attisdropped ORDER BY attnum)
    UNION ALL
    (SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = c AND contype = 'c'
        ORDER BY conname COLLATE "C")
    UNION ALL
    (SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = c
        ORDER BY pg_get_indexdef(indexrelid) COLLATE "C")
    UNION ALL
    (SELECT tgname FROM pg_trigger WHERE tgrelid = c AND NOT tgisinternal)
$$;

-- What ttl remembers that it has added
CREATE FUNCTION added(c regclass) RETURNS text[] LANGUAGE sql AS
    'SELECT created_objects FROM ttl.container WHERE relid = c';

-- Columns that were there stay, whatever is asked for, and a NOTICE says so
SET client_min_messages = notice;
CREATE TABLE article (id int, updated_at timestamptz NOT NULL DEFAULT now());
INSERT INTO article VALUES (1, '2020-01-01');
CREATE TEMP TABLE before AS SELECT shape('article');
SELECT ttl.create_container('article', 2147483647, ts_column => 'updated_at');
-- only the other column and the indexes are ttl's
SELECT added('article');
SELECT ttl.drop_container('article', drop_columns => true);
SELECT shape('article') EXCEPT TABLE before;
TABLE article;

-- so do their defaults, constraints and indexes; what was added to them goes, asked for or not
CREATE TABLE bare (at timestamptz, life smallint, keep int DEFAULT 1);
CREATE INDEX mine ON bare (at) WHERE life IS NULL;
INSERT INTO bare VALUES ('2900-01-01', 5);
TRUNCATE before;
INSERT INTO before SELECT shape('bare');
SELECT ttl.create_container('bare', 60, 'at', 'life');
SELECT added('bare');
SELECT shape('bare');
SELECT ttl.drop_container('bare');
SELECT shape('bare') EXCEPT TABLE before;
-- in neither direction is there a difference
TABLE before EXCEPT SELECT shape('bare');
-- the same with drop_columns: neither column was ttl's
SELECT ttl.create_container('bare', 60, 'at', 'life');
SELECT ttl.drop_container('bare', true);
SELECT shape('bare') EXCEPT TABLE before;
TABLE before EXCEPT SELECT shape('bare');
-- unless somebody has changed it since
SELECT ttl.create_container('bare', 60, 'at', 'life');
ALTER TABLE bare ALTER COLUMN at SET DEFAULT '2500-01-01';
SELECT ttl.drop_container('bare');
SELECT shape('bare') EXCEPT TABLE before;

-- A column that others' functions generate goes on being generated: only an expression of ttl's must go
CREATE TABLE generated (note text, life int GENERATED ALWAYS AS (greatest(length(note), 1)) STORED);
SELECT ttl.create_container('generated', 60, ttl_column => 'life');
SELECT ttl.drop_container('generated');
INSERT INTO generated VALUES ('four') RETURNING life;

-- A CHECK that was there stays, and so does an index on the timestamp alone
CREATE TABLE complete (at timestamptz DEFAULT now(), life int CHECK (life = -1 OR life > 0));
SELECT ttl.create_container('complete', 60, 'at', 'life');
SELECT added('complete');
SELECT ttl.drop_container('complete');
SELECT shape('complete');
-- that index serves as the default's, so none is added, or dropped
CREATE INDEX ON complete (at);
SELECT ttl.create_container('complete', 60, 'at', NULL);
SELECT added('complete');
SELECT ttl.drop_container('complete');
SELECT shape('complete');
-- without it one is, which goes
DROP INDEX complete_at_idx;
SELECT ttl.create_container('complete', 60, 'at', NULL);
SELECT added('complete');
SELECT ttl.drop_container('complete');
SELECT shape('complete');

-- Columns that were added go with all that is theirs, by whatever names
CREATE TABLE session (id int);
INSERT INTO session VALUES (1);
SELECT ttl.create_container('session', 3600);
SELECT added('session');
ALTER TABLE session RENAME COLUMN _ts TO changed_at;
ALTER TABLE session RENAME COLUMN ttl TO lifetime;
SELECT added('session');
SELECT ttl.drop_container('session', true);
SELECT shape('session');

-- If they are left, they are the user's from then on: the next container doesn't drop them
SELECT ttl.create_container('session', 3600);
SELECT ttl.drop_container('session');
SELECT shape('session');
SELECT ttl.create_container('session', 3600, ts_column => '_ts');
SELECT added('session');
SELECT ttl.drop_container('session', true);

-- What depends on them is said; the HINT is PostgreSQL's, and there is no CASCADE: views aren't ttl's to drop
CREATE TABLE viewed (id int);
SELECT ttl.create_container('viewed', 3600);
CREATE VIEW stamps AS SELECT _ts FROM viewed;
\set VERBOSITY default
SELECT ttl.drop_container('viewed', true);
\set VERBOSITY terse
DROP VIEW stamps;
SELECT ttl.drop_container('viewed', true);

-- A TTL column that was declared beforehand is taken, as a table and partitioned
CREATE TABLE declared (id int, ttl int);
SELECT ttl.create_container('declared', -1);
SELECT shape('declared');
CREATE TABLE partitioned (id int, ttl int) PARTITION BY RANGE (id);
SELECT ttl.create_container('partitioned', -1);
SELECT shape('partitioned');

-- A name that isn't there is no column to be added
CREATE TABLE typo (id int, created_at timestamptz DEFAULT '2020-01-01');
SELECT ttl.create_container('typo', 3600, 'creatd_at', 'TTL');
CREATE TABLE right_name (id int, created_at timestamptz DEFAULT now());
SELECT ttl.create_container('right_name', 3600, 'created_at');

-- Indexes by alter_container()
-- An index that is switched off goes and leaves what is remembered; a user's own that serves isn't ttl's
SELECT ttl.set_default_ttl('right_name', NULL);
SELECT ttl.alter_container('right_name', indexing => 'none');
SELECT added('right_name');
CREATE INDEX mine_too ON right_name (created_at) WHERE ttl IS NULL;
SELECT ttl.alter_container('right_name', indexing => 'consistent');
SELECT added('right_name');
SELECT ttl.alter_container('right_name', indexing => 'none');
SELECT shape('right_name');

-- Partitions: new ones know what their container knows, when they leave it
CREATE TABLE parts (id int) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (1) TO (2);
SELECT ttl.create_container('parts', 3600);
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (2) TO (3);
CREATE TABLE parts_3 (id int);
INSERT INTO parts_3 VALUES (3);
ALTER TABLE parts ATTACH PARTITION parts_3 FOR VALUES FROM (3) TO (4);
-- the NOTICE is for who expects LIKE to copy the policy, too
CREATE TABLE parts_4 (LIKE parts INCLUDING ALL);
ALTER TABLE parts ATTACH PARTITION parts_4 FOR VALUES FROM (4) TO (5);
-- what has been added to the container is remembered, not what each partition lacked
SELECT added('parts');
ALTER TABLE parts DETACH PARTITION parts_3;
SELECT added('parts_3') = added('parts') AS same;
SELECT ttl.drop_container('parts_3', true);
SELECT shape('parts_3');

-- One with values of its own keeps them, here and there: then _ts isn't ttl's any more, in the container either
CREATE TABLE parts_5 (id int, _ts timestamptz NOT NULL);
INSERT INTO parts_5 VALUES (5, '2900-01-01');
ALTER TABLE parts ATTACH PARTITION parts_5 FOR VALUES FROM (5) TO (6);
SELECT added('parts');
ALTER TABLE parts DETACH PARTITION parts_5;
SELECT ttl.drop_container('parts_5', true);
TABLE parts_5;
SELECT ttl.drop_container('parts', true);
SELECT shape('parts');
SELECT shape('parts_2');

-- Rows that come back are counted, when TTL is turned off, lasts longer, or ends
CREATE TABLE tokens (id int);
SELECT ttl.create_container('tokens', 3600);
INSERT INTO tokens (id, _ts, ttl) SELECT g, now() - interval '1 day', CASE WHEN g <= 2 THEN 60 END
    FROM generate_series(1, 500) g;
\set VERBOSITY default
SELECT ttl.set_default_ttl('tokens', '2 days');
\set VERBOSITY terse
-- with -1 and NULL come those back that expired by default, with NULL also the two with a TTL of their own
SELECT ttl.set_default_ttl('tokens', 3600);
SELECT ttl.set_default_ttl('tokens', -1);
SELECT ttl.set_default_ttl('tokens', 3600);
SELECT ttl.set_default_ttl('tokens', NULL);
SELECT ttl.set_default_ttl('tokens', 3600);
BEGIN;
SELECT ttl.drop_container('tokens');
SELECT count(*) FROM tokens;
ROLLBACK;
-- a row that is left counts, those that are deleted don't
DO $$ BEGIN SET LOCAL ttl.show_expired = on; DELETE FROM tokens WHERE id > 1; END $$;
SELECT ttl.drop_container('tokens', drop_columns => true);
SELECT count(*) FROM tokens;

-- What calls functions of the extension ends with the container, so that the extension can be dropped
SELECT ttl.create_ttl_index('coll', 60);
SELECT added('coll');
INSERT INTO coll (doc) VALUES ('{"ttl": 20}');
-- with the columns goes all that was added to the collection
BEGIN;
SELECT ttl.drop_container('coll', drop_columns => true);
SELECT shape('coll');
ROLLBACK;
-- without, the TTL that was generated stays, as plain values
SELECT ttl.drop_container('coll');
SELECT shape('coll');
SELECT doc, ttl FROM coll;
-- an expression around one of ttl's functions is no different
CREATE TABLE documents (doc jsonb, life int GENERATED ALWAYS AS (ttl.item_ttl(doc) + 0) STORED, _ts timestamptz);
SELECT ttl.create_container('documents', 60, ttl_column => 'life');
SELECT ttl.drop_container('documents', drop_columns => true);
SELECT shape('documents');

-- How many rows a change concerns is not counted past the index entries of many that are gone: that would take long
CREATE TABLE gone (id int, _ts timestamptz);
INSERT INTO gone SELECT i, '2020-01-01' FROM generate_series(1, 110000) i;
SELECT ttl.create_container('gone', -1, '_ts');
BEGIN;
DELETE FROM gone;
SELECT ttl.set_default_ttl('gone', 60);
SELECT ttl.set_default_ttl('gone', NULL);
ROLLBACK;

--
-- Comments
--

SET client_min_messages = warning;

-- Each object that may have a comment, and which
CREATE FUNCTION comments(c regclass) RETURNS TABLE (object text, comment text) LANGUAGE sql AS $$
    SELECT * FROM (
        SELECT attname::text, col_description(c, attnum) FROM pg_attribute
            WHERE attrelid = c AND attnum > 0 AND NOT attisdropped
        UNION ALL SELECT tgname, obj_description(oid, 'pg_trigger') FROM pg_trigger
            WHERE tgrelid = c AND NOT tgisinternal
    ) o (object, comment) ORDER BY object COLLATE "C"
$$;

-- What is added says what it is, and a change of the policy makes none of it false
CREATE TABLE commented (id int PRIMARY KEY);
CREATE TABLE commented_archive (id int);
SELECT ttl.create_container('commented', 60);
SELECT ttl.alter_container('commented', archive_to => 'commented_archive');
SELECT * FROM comments('commented');
CREATE TEMP TABLE said AS SELECT * FROM comments('commented');
SELECT ttl.set_default_ttl('commented', -1), ttl.alter_container('commented', touch_on_update => false);
ALTER TABLE commented RENAME COLUMN ttl TO life;
ALTER TABLE commented RENAME TO renamed;
SELECT comment FROM comments('renamed') EXCEPT SELECT comment FROM said;
SELECT ttl.drop_container('renamed');
SELECT * FROM comments('renamed');

-- Of a document table, too, though other functions have added its columns
SELECT ttl.create_ttl_index('commented_documents', 60) ->> 'ok';
SELECT object FROM comments('commented_documents') WHERE comment IS NOT NULL;
SELECT ttl.drop_container('commented_documents', drop_columns => true);
SELECT * FROM comments('commented_documents');

-- What was there isn't, and keeps its comment
CREATE TABLE commented_before (id int, at timestamptz, expires timestamptz);
COMMENT ON COLUMN commented_before.at IS 'mine';
SELECT ttl.create_container('commented_before', 60, 'at', 'expires');
SELECT object, comment FROM comments('commented_before') WHERE object <> '~ttl';
SELECT ttl.drop_container('commented_before');
SELECT * FROM comments('commented_before');

-- One that somebody has given stays, and one that he has removed stays away
CREATE TABLE commented_since (id int);
SELECT ttl.create_container('commented_since', 60);
COMMENT ON COLUMN commented_since._ts IS 'mine';
COMMENT ON COLUMN commented_since.ttl IS NULL;
COMMENT ON TRIGGER "~ttl" ON commented_since IS 'mine';
SELECT ttl.set_default_ttl('commented_since', 70), ttl.alter_container('commented_since', ts_precision => '1 s');
SELECT * FROM comments('commented_since');
SELECT ttl.drop_container('commented_since');
SELECT * FROM comments('commented_since');

-- A partition that leaves becomes a container with the same, whoever detaches it
CREATE TABLE commented_parts (id int) PARTITION BY LIST (id);
CREATE TABLE commented_part PARTITION OF commented_parts FOR VALUES IN (1);
CREATE TABLE commented_part_2 (id int, ttl int, _ts timestamptz);
COMMENT ON COLUMN commented_part_2.ttl IS 'mine';
SELECT ttl.create_container('commented_parts', 60);
ALTER TABLE commented_parts ATTACH PARTITION commented_part_2 FOR VALUES IN (2);
GRANT USAGE ON SCHEMA taking_back TO regress_ttl_user;
ALTER TABLE commented_parts OWNER TO regress_ttl_user;
SET ROLE regress_ttl_user;
ALTER TABLE taking_back.commented_parts DETACH PARTITION taking_back.commented_part;
RESET ROLE;
ALTER TABLE commented_parts DETACH PARTITION commented_part_2 CONCURRENTLY;
-- on the one that was the container's, three are ttl's; of the other, the user's has stayed
SELECT count(*), count(comment), count(comment) FILTER (WHERE comment IN (SELECT comment FROM said)) AS "ttl's"
    FROM comments('commented_part');
SELECT count(*), count(comment), count(comment) FILTER (WHERE comment IN (SELECT comment FROM said)) AS "ttl's"
    FROM comments('commented_part_2');

DROP SCHEMA taking_back CASCADE;
