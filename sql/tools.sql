-- Tools that rewrite a table, or move its rows: what a statement doesn't see must
-- not be lost with the storage it was in
SET client_min_messages = warning;
CREATE SCHEMA tools;
SET search_path = tools, public;

CREATE TABLE item (id int PRIMARY KEY, note text);
CREATE TABLE part (id int PRIMARY KEY, note text) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (100);
SELECT ttl.create_container(c, 60) FROM unnest('{item, part}'::regclass[]) c;
CREATE TABLE plain (id int PRIMARY KEY, note text);

-- Two live rows and two expired ones in each table, by default and by a TTL of their own
CREATE PROCEDURE refill() LANGUAGE sql AS $$
    TRUNCATE tools.item, tools.part;
    INSERT INTO tools.item (id, note, _ts, ttl) VALUES (1, 'live', '2900-01-01', NULL), (2, 'expired', '2020-01-01',
        NULL), (3, 'live', '2020-01-01', -1), (4, 'expired', '2020-01-01', 5);
    INSERT INTO tools.part (id, note, _ts, ttl) VALUES (1, 'live', '2900-01-01', NULL), (2, 'expired', '2020-01-01',
        NULL), (3, 'live', '2020-01-01', -1), (4, 'expired', '2020-01-01', 5);
$$;
CALL refill();

--
-- What reads the storage keeps every row
--

-- Each command that writes the table anew, for whatever reason
VACUUM (FULL) item, part;
CLUSTER item USING item_pkey;
ALTER TABLE item ALTER id TYPE bigint;
ALTER TABLE item SET UNLOGGED;
ALTER TABLE item SET LOGGED;
ALTER TABLE item ALTER id TYPE int, ADD COLUMN extra float DEFAULT random();
ALTER TABLE item DROP COLUMN extra;
REINDEX TABLE item;
SELECT stored('item');
-- what was hidden before still is, and counted as expired
SELECT id FROM item ORDER BY id;
SELECT ttl.expired_count('item'), ttl.expired_count('part');

--
-- pg_repack, as it works: a trigger that logs changes, a table filled by SELECT,
-- whose storage is swapped at the end
--

CREATE SCHEMA repack;
CREATE TABLE repack.log (row text);

-- In the schema and by the name that pg_repack uses, from which it is recognized
CREATE FUNCTION repack.repack_trigger() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO repack.log VALUES (NEW::text);
    RETURN NULL;
END $$;
CREATE FUNCTION repack.other_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';

-- What pg_repack does with a table, as far as it would lose rows
CREATE FUNCTION repack_table(t regclass) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER repack_trigger AFTER INSERT OR DELETE OR UPDATE ON %s FOR EACH ROW EXECUTE '
        'PROCEDURE repack.repack_trigger()', t);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER repack_trigger', t);
    EXECUTE format('CREATE TABLE repack.table_x AS SELECT * FROM ONLY %s WITH NO DATA', t);
    EXECUTE format('INSERT INTO repack.table_x SELECT * FROM ONLY %s', t);
    EXECUTE format('DROP TRIGGER repack_trigger ON %s', t);
    RETURN (SELECT format('%s kept', count(*)) FROM repack.table_x);
EXCEPTION WHEN feature_not_supported THEN
    RETURN 'refused';
END $$;

-- It is refused before it copies, and the HINT says how to run it: on a table, a partition, and the policies
CALL refill();
SELECT refused('CREATE TRIGGER repack_trigger AFTER INSERT OR DELETE OR UPDATE ON tools.item FOR EACH ROW EXECUTE '
    'PROCEDURE repack.repack_trigger()');
SELECT refused('CREATE TRIGGER x AFTER INSERT OR DELETE OR UPDATE ON tools.part_1 FOR EACH ROW EXECUTE FUNCTION '
    'repack.repack_trigger()');
SELECT refused('CREATE TRIGGER repack_trigger AFTER INSERT OR DELETE OR UPDATE ON ttl.container FOR EACH ROW EXECUTE '
    'PROCEDURE repack.repack_trigger()');
SELECT repack_table('item'), repack_table('part_1'), repack_table('ttl.container'), repack_table('plain');
DROP TABLE repack.table_x;
-- A trigger of that name that calls another function isn't pg_repack's
BEGIN;
CREATE TRIGGER repack_trigger AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION repack.other_trigger();
ROLLBACK;
-- While TTL is off, it is refused, too: TTL may be turned on before the copy is finished
SELECT ttl.set_default_ttl('item', NULL);
SELECT repack_table('item');
SELECT ttl.set_default_ttl('item', 60);
-- It may proceed if all rows are seen: by row_security = off, as the HINT says, ...
SET row_security = off;
SELECT repack_table('item');
DROP TABLE repack.table_x;
SELECT repack_table('part_1');
DROP TABLE repack.table_x;
-- policies are never repacked: changes of them meanwhile would be lost
SELECT repack_table('ttl.container');
RESET row_security;
-- ... or by ttl.show_expired
SET ttl.show_expired = on;
SELECT repack_table('item');
DROP TABLE repack.table_x;
RESET ttl.show_expired;
-- row_security = off is for who owns the table: of others the rows would be hidden all the same
GRANT ALL ON SCHEMA tools, repack TO regress_ttl_owner, regress_ttl_user;
ALTER TABLE item OWNER TO regress_ttl_owner;
GRANT ALL ON item TO regress_ttl_user;
SET row_security = off;
SET ROLE regress_ttl_user;
SELECT state('CREATE TRIGGER repack_trigger AFTER INSERT OR DELETE OR UPDATE ON tools.item FOR EACH ROW EXECUTE '
    'PROCEDURE repack.repack_trigger()');
SET ROLE regress_ttl_owner;
SELECT state('CREATE TRIGGER repack_trigger AFTER INSERT OR DELETE OR UPDATE ON tools.item FOR EACH ROW EXECUTE '
    'PROCEDURE repack.repack_trigger()');
RESET ROLE;
RESET row_security;
-- What the trigger logs is what has become of the rows: stamps, evictions, deletions
INSERT INTO item (id, note) VALUES (2, 'new');
UPDATE item SET note = 'touched' WHERE id = 1;
CALL ttl.reap('item');
SELECT regexp_replace(row, ',"20[2-9].*', ',now') FROM repack.log;
DROP TRIGGER repack_trigger ON item;

-- pg_repack of indexes alone: an equal one is built, swapped and dropped, in either order, but one of the two stays
BEGIN;
CREATE INDEX index_1 ON item (_ts) WHERE ttl IS NULL;
SELECT state('DROP INDEX tools.index_1, tools.item__ts_idx');
SAVEPOINT s;
DROP INDEX index_1;
ROLLBACK TO s;
DROP INDEX item__ts_idx;
SELECT state('DROP INDEX tools.index_1');
ROLLBACK;
-- the indexes of partitioned tables alike
CREATE INDEX ON part (_ts) WHERE ttl IS NULL;
DROP INDEX part__ts_idx1;
SELECT state('DROP INDEX tools.part__ts_idx');

--
-- What moves rows takes those that it sees
--

-- as partition_data_proc() of pg_partman does: the default partition's expired rows
-- are in the way of a new partition, and not lost
CALL refill();
CREATE TABLE part_default PARTITION OF part DEFAULT;
INSERT INTO part (id, note, _ts) VALUES (101, 'live', '2900-01-01'), (102, 'expired', '2020-01-01');
-- the live row is moved to a temporary table, the expired one stays where it was
BEGIN;
CREATE TEMP TABLE moved ON COMMIT DROP AS TABLE part_default WITH NO DATA;
WITH gone AS (DELETE FROM part_default RETURNING *) INSERT INTO moved TABLE gone;
SELECT refused('CREATE TABLE tools.part_2 PARTITION OF tools.part FOR VALUES FROM (100) TO (200)');
-- with it deleted, the partition can be made, and the row that was moved has kept its _ts
CALL ttl.reap('part');
CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (100) TO (200);
INSERT INTO part TABLE moved;
SELECT id, note, to_char(_ts, 'YYYY') AS year FROM part_2;
ROLLBACK;
SELECT stored('part');

SET client_min_messages = warning;
REVOKE ALL ON SCHEMA tools, repack FROM regress_ttl_owner, regress_ttl_user;
DROP SCHEMA tools, repack CASCADE;
