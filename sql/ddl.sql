-- DDL: whatever is done to a container's table, rows are hidden exactly when
-- they have expired, none is lost and none wakes, the policy follows, and what
-- is rolled back was never there
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA ddl;
CREATE SCHEMA home;
SET search_path = ddl, home, public;

-- All that should hold, in a line: rows that are seen and rows that are hidden,
-- each with the year of its clock, or "now" (and its own TTL); the policy; the trigger and
-- the expiry indexes; and whether a hidden row's key is free.  Rows have a key
-- "id", whatever else they have
CREATE FUNCTION look(c regclass) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    policy record;
    rows text;
    seen text;
    hidden text;
    counted bigint;
    "trigger" text;
    indexes bigint;
    frees text;
BEGIN
    IF to_regclass('ttl.containers') IS NULL THEN
        RETURN 'no extension';
    END IF;
    SELECT * INTO policy FROM ttl.containers WHERE container = c;
    IF policy IS NULL THEN
        EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY id) FROM %s', c) INTO seen;
        RETURN format('no container: %s', seen);
    END IF;
    rows := format('SELECT string_agg(id || ''@'' || CASE WHEN %1$I '
        'BETWEEN ''2025-01-01'' AND ''2800-01-01'' THEN ''now'' ELSE to_char(%1$I, ''YYYY'') END || coalesce(''/'' || '
        '%2$s, ''''), '' '' ORDER BY id) FROM %3$s', policy.ts_column, coalesce(quote_ident(policy.ttl_column),
        'NULL'), c);
    EXECUTE rows INTO seen;
    PERFORM set_config('ttl.show_expired', 'on', true);
    EXECUTE rows || ' AS item_of_c WHERE ttl.expires_at(item_of_c) <= clock_timestamp()' INTO hidden;
    PERFORM set_config('ttl.show_expired', 'off', true);
    counted := ttl.expired_count(c);
    SELECT tgenabled INTO "trigger" FROM pg_trigger WHERE tgrelid = c AND tgfoid = 'ttl.on_write'::regproc;
    SELECT count(*) INTO indexes FROM pg_index
        WHERE indrelid = c AND indisvalid AND (pg_get_indexdef(indexrelid) ~ 'ttl\.item_expiry'
        OR pg_get_indexdef(indexrelid) ~ format('\(%I\)', policy.ts_column));
    IF hidden IS NOT NULL THEN
        BEGIN
            EXECUTE format('INSERT INTO %s (id) VALUES (%s)', c, substring(hidden FROM '\d+'));
            frees := 'free';
            RAISE EXCEPTION USING ERRCODE = 'TTL01';
        EXCEPTION
            WHEN SQLSTATE 'TTL01' THEN
            WHEN OTHERS THEN
                frees := SQLSTATE;
        END;
    END IF;
    RETURN format('%s; hidden %s; default %s, trigger %s, indexes %s', coalesce(seen, 'none'),
        coalesce(hidden || ', key ' || frees, 'none'), policy.default_ttl, "trigger", indexes) ||
        CASE WHEN counted <> coalesce(array_length(string_to_array(hidden, ' '), 1),
            0) THEN ', BUT ' || counted || ' COUNTED' ELSE '' END;
END $$;

-- What a command makes of it, and that nothing of that is left when it is
-- rolled back
CREATE FUNCTION try(command text, name text DEFAULT 'home.item') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c CONSTANT regclass := name;
    was text := ddl.look(c);
    outcome text;
BEGIN
    BEGIN
        EXECUTE command;
        IF EXISTS (SELECT FROM pg_class WHERE oid = c) THEN
            outcome := ddl.look(c);
        ELSE
            outcome := (SELECT format('gone, as is its policy: %s', count(*) = 0) FROM ttl.container WHERE relid = c);
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'TTL01';
    EXCEPTION
        WHEN SQLSTATE 'TTL01' THEN
        WHEN OTHERS THEN
            outcome := SQLSTATE;
    END;
    IF ddl.look(c) IS DISTINCT FROM was THEN
        outcome := outcome || E'\n   AND AFTERWARDS: ' || ddl.look(c);
    END IF;
    RETURN CASE WHEN outcome = was THEN 'as it was' ELSE outcome END;
END $$;

CREATE TABLE home.item (id int PRIMARY KEY, x int, note text DEFAULT 'note');
CREATE TABLE home.other (id int PRIMARY KEY);
INSERT INTO home.other SELECT generate_series(1, 9);
SELECT ttl.create_container('item', 60);
INSERT INTO item (id, x, _ts, ttl) VALUES (1, 1, '2900-01-01', NULL), (2, 2, '2020-01-01', NULL), (3, 3, '2020-01-01',
    5), (4, 4, '2020-01-01', -1), (5, 5, '2900-01-01', 5);
ALTER TABLE item OWNER TO regress_ttl_owner;
GRANT ALL ON SCHEMA home, ddl TO regress_ttl_owner, regress_ttl_user;

--
-- One table
--

SELECT look('item');

-- Names: whatever is renamed or moved, the policy follows; columns of a container keep no reserved or taken name
SELECT command, try(command) FROM unnest(ARRAY[
    'ALTER TABLE home.item RENAME TO thing',
    'ALTER TABLE home.item RENAME COLUMN _ts TO changed',
    'ALTER TABLE home.item RENAME COLUMN ttl TO lifetime',
    'ALTER TABLE home.item RENAME COLUMN _ts TO swap; ALTER TABLE home.item RENAME COLUMN ttl TO _ts; ALTER TABLE '
        'home.item RENAME COLUMN swap TO ttl',
    'ALTER TABLE home.item RENAME COLUMN _ts TO x',
    'ALTER TABLE home.item RENAME COLUMN _ts TO ctid',
    'ALTER TABLE home.item RENAME COLUMN x TO y',
    'ALTER TABLE home.item SET SCHEMA ddl',
    'ALTER SCHEMA home RENAME TO away',
    'ALTER INDEX home.item__ts_idx RENAME TO renamed'])
    WITH ORDINALITY u (command, n) ORDER BY n \g (format=unaligned)

-- Columns: those that a container needs stay, its clock wakes no row, others change as without ttl
SELECT command, try(command) FROM unnest(ARRAY[
    'ALTER TABLE home.item ALTER COLUMN x TYPE bigint',
    'ALTER TABLE home.item ALTER COLUMN id TYPE numeric',
    'ALTER TABLE home.item ALTER COLUMN x TYPE text USING x || ''!'', ALTER COLUMN note TYPE varchar(10), ADD COLUMN y '
        'int DEFAULT 7',
    'ALTER TABLE home.item DROP COLUMN x',
    'ALTER TABLE home.item ADD COLUMN y float DEFAULT random()',
    'ALTER TABLE home.item ADD COLUMN y int GENERATED ALWAYS AS (x * 2) STORED',
    'ALTER TABLE home.item ADD COLUMN y int GENERATED ALWAYS AS (coalesce(ttl, 0)) STORED',
    'ALTER TABLE home.item ADD COLUMN y int GENERATED ALWAYS AS IDENTITY',
    'ALTER TABLE home.item ALTER COLUMN _ts DROP NOT NULL',
    'ALTER TABLE home.item ALTER COLUMN _ts SET DEFAULT now()',
    'ALTER TABLE home.item ALTER COLUMN ttl SET DEFAULT 5',
    'ALTER TABLE home.item ALTER COLUMN note SET STORAGE EXTERNAL, ALTER COLUMN x SET STATISTICS 10'])
    WITH ORDINALITY u (command, n) ORDER BY n \g (format=unaligned)

-- The table as a whole, written anew or not
SELECT command, try(command) FROM unnest(ARRAY[
    'ALTER TABLE home.item SET UNLOGGED',
    'ALTER TABLE home.item SET UNLOGGED; ALTER TABLE home.item SET LOGGED',
    'ALTER TABLE home.item SET ACCESS METHOD heap',
    'ALTER TABLE home.item SET (fillfactor = 50)',
    'ALTER TABLE home.item REPLICA IDENTITY FULL',
    'ALTER TABLE home.item REPLICA IDENTITY NOTHING',
    'ALTER TABLE home.item ENABLE ROW LEVEL SECURITY',
    'ALTER TABLE home.item OWNER TO regress_ttl_user',
    'ALTER TABLE home.item DISABLE TRIGGER USER; ALTER TABLE home.item ENABLE TRIGGER USER',
    'CLUSTER home.item USING item_pkey',
    'ALTER TABLE home.item CLUSTER ON item_pkey; CLUSTER home.item',
    'REINDEX TABLE home.item',
    'ANALYZE home.item',
    'TRUNCATE home.item',
    'TRUNCATE home.item; INSERT INTO home.item (id, _ts) VALUES (2, ''2020-01-01'')'])
    WITH ORDINALITY u (command, n) ORDER BY n \g (format=unaligned)

-- Constraints and indexes: of those that serve for expiry, one of a kind is there
SELECT command, try(command) FROM unnest(ARRAY[
    'ALTER TABLE home.item DROP CONSTRAINT item_pkey, ADD PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED',
    'ALTER TABLE home.item ADD UNIQUE (x), ADD CHECK (x > 0), ADD FOREIGN KEY (x) REFERENCES home.other',
    'ALTER TABLE home.other ADD FOREIGN KEY (id) REFERENCES home.item NOT VALID',
    'CREATE UNIQUE INDEX ON home.item (x, note); CREATE INDEX ON home.item (_ts); CREATE INDEX ON home.item (_ts DESC) '
        'WHERE ttl IS NULL; CREATE INDEX ON home.item USING brin (_ts)',
    'CREATE INDEX ON home.item (_ts) WHERE ttl IS NULL; DROP INDEX home.item__ts_idx',
    'CREATE STATISTICS home.s ON _ts, ttl FROM home.item; ANALYZE home.item'])
    WITH ORDINALITY u (command, n) ORDER BY n \g (format=unaligned)

-- What hangs on it: views, rules, comments and privileges
SELECT command, try(command) FROM unnest(ARRAY[
    'CREATE VIEW home.v AS SELECT * FROM home.item; ALTER VIEW home.v RENAME COLUMN ttl TO a; DROP VIEW home.v',
    'CREATE RULE r AS ON INSERT TO home.item DO ALSO NOTHING',
    'CREATE RULE r AS ON DELETE TO home.item DO INSTEAD NOTHING',
    'COMMENT ON COLUMN home.item.ttl IS ''x''; GRANT ALL ON home.item TO PUBLIC; REVOKE ALL ON home.item FROM '
        'regress_ttl_owner',
    'REASSIGN OWNED BY regress_ttl_owner TO regress_ttl_user'])
    WITH ORDINALITY u (command, n) ORDER BY n \g (format=unaligned)

-- The policy: rows come back when it ends, or says so
SELECT command, try(command) FROM unnest(ARRAY[
    'SELECT ttl.set_default_ttl(''home.item'', NULL)',
    'SELECT ttl.set_default_ttl(''home.item'', -1)',
    'SELECT ttl.set_default_ttl(''home.item'', 2147483647)',
    'SELECT ttl.set_default_ttl(''home.item'', NULL); DROP INDEX home.item__ts_idx, home.item_item_expiry_idx',
    'SELECT ttl.set_default_ttl(''home.item'', NULL); SELECT ttl.alter_container(''home.item'', indexing => ''none'')',
    'SELECT ttl.drop_container(''home.item'')',
    'SELECT ttl.drop_container(''home.item'', true)',
    'SELECT ttl.drop_container(''home.item'', true); SELECT ttl.create_container(''home.item'', 30, ttl_column => '
        'NULL)'])
    WITH ORDINALITY u (command, n) ORDER BY n \g (format=unaligned)

-- The end, of the table or the extension: no policy is left without its table
SELECT command, try(command) FROM unnest(ARRAY[
    'DROP TABLE home.item',
    'DROP SCHEMA home CASCADE',
    'DROP OWNED BY regress_ttl_owner CASCADE',
    'DROP EXTENSION ttl',
    'DROP EXTENSION ttl CASCADE',
    'DROP EXTENSION ttl CASCADE; CREATE EXTENSION ttl; SELECT ttl.create_container(''home.item'', '
        '60, ''_ts'', ''ttl'')',
    'DROP SCHEMA ttl CASCADE',
    'ALTER EXTENSION ttl SET SCHEMA home',
    'ALTER EXTENSION ttl UPDATE',
    'CREATE EXTENSION ttl'])
    WITH ORDINALITY u (command, n) ORDER BY n \g (format=unaligned)

-- The same for good; what can't be done in a transaction, too
-- Renamed, moved to another schema, whose name changes, and back
ALTER TABLE item RENAME TO thing;
ALTER TABLE thing RENAME _ts TO "changed at";
ALTER TABLE thing SET SCHEMA ddl;
ALTER TABLE ddl.thing SET SCHEMA home;
ALTER SCHEMA home RENAME TO "new home";
SELECT look('"new home".thing');
ALTER SCHEMA "new home" RENAME TO home;
ALTER TABLE thing RENAME TO item;
ALTER TABLE item RENAME "changed at" TO _ts;

-- Written anew, by each command that does
VACUUM FULL item;
VACUUM (FREEZE, ANALYZE) item;
CLUSTER item USING item_pkey;
ALTER TABLE item ALTER COLUMN x TYPE bigint, ADD COLUMN r float DEFAULT random(), DROP COLUMN note;
SELECT look('item');

-- Indexes built concurrently, beside those that are there
REINDEX TABLE CONCURRENTLY item;
REINDEX INDEX CONCURRENTLY item__ts_idx;
CREATE INDEX CONCURRENTLY concurrent ON item (_ts) WHERE ttl IS NULL;
SELECT look('item');
-- Two of a kind: one of them may go, and the other stands in
BEGIN;
DROP INDEX concurrent;
SELECT refused('DROP INDEX home.item__ts_idx');
ROLLBACK;
SELECT count(*) FILTER (WHERE state = 'done') AS gone, count(*) FILTER (WHERE state = '2BP01') AS refused
  FROM unnest('{DROP INDEX home.item__ts_idx, DROP INDEX home.concurrent}'::text[]) s, state(s) state;
SELECT look('item');

-- CONCURRENTLY it is refused as well, and to others before ttl says anything
DROP INDEX CONCURRENTLY item_item_expiry_idx;
SET ROLE regress_ttl_user;
DROP INDEX CONCURRENTLY home.item_item_expiry_idx;
RESET ROLE;
-- nor is a unique index built that the clock would change
CREATE UNIQUE INDEX CONCURRENTLY ON item ((x + 1)) WHERE extract(year FROM _ts AT TIME ZONE 'UTC') > 2000;
-- It is refused before it is built, which would fail
CREATE UNIQUE INDEX ON item ((1 / (id - id)), _ts);
SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'item'::regclass AND NOT indisvalid;

-- The owner has what is hidden deleted, and no more
SET ROLE regress_ttl_owner;
CALL ttl.reap('home.item');
RESET ROLE;
SELECT look('item');

-- Unique indexes are built over all stored rows; the HINT says what to do
CREATE TABLE twins (id int, k text, n int);
SELECT ttl.create_container('twins', 60);
INSERT INTO twins (id, k, n, _ts) VALUES (1, 'a', 1, '2020-01-01'), (2, 'a', 2, '2900-01-01'), (3, 'b', 3,
    '2020-01-01');
-- whatever builds it
SELECT refused('CREATE UNIQUE INDEX ON ddl.twins (k)');
SELECT refused('ALTER TABLE ddl.twins ADD PRIMARY KEY (k)');
SELECT refused('ALTER TABLE ddl.twins ADD UNIQUE (k) DEFERRABLE');
SELECT refused('ALTER TABLE ddl.twins ADD EXCLUDE (k WITH =)');
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE UNIQUE INDEX CONCURRENTLY twins_key ON twins (k);
\set VERBOSITY terse
-- What a failed CREATE INDEX CONCURRENTLY leaves behind is in nobody's way
SELECT refused('REINDEX INDEX ddl.twins_key'), refused('REINDEX TABLE ddl.twins') \gx (format=unaligned)
-- The HINT quotes a name as it is to be typed
CREATE TABLE "Twin's" (id int);
SELECT ttl.create_container('"Twin''s"', 60);
INSERT INTO "Twin's" (id, _ts) SELECT 1, '2020-01-01' FROM generate_series(1, 2);
SELECT refused('CREATE UNIQUE INDEX ON ddl."Twin''s" (id)');
DROP TABLE "Twin's";
-- a CHECK is validated over the same rows, with the same HINT; NOT VALID it holds for new ones
SELECT refused('ALTER TABLE ddl.twins ADD CHECK (k <> ''b'')'),
    state('ALTER TABLE ddl.twins ADD CHECK (k <> ''b'') NOT VALID');
-- a foreign key, too
CREATE TABLE elders (n int PRIMARY KEY);
INSERT INTO elders VALUES (2);
SELECT refused('ALTER TABLE ddl.twins ADD FOREIGN KEY (n) REFERENCES ddl.elders');
DROP TABLE elders;
INSERT INTO twins VALUES (4, 'c');
SELECT id FROM twins ORDER BY id;
-- once they are deleted it can be built
CALL ttl.reap('twins');
REINDEX INDEX CONCURRENTLY twins_key;
SELECT state('INSERT INTO ddl.twins VALUES (5, ''c'')'), state('INSERT INTO ddl.twins VALUES (5, ''d'')');
-- Also in a function that handles the error, has them deleted, and goes on
DO $$
BEGIN
    INSERT INTO ddl.twins (id, k, n, _ts) VALUES (6, 'e', 6, '2020-01-01'), (7, 'f', 6, '2020-01-01');
    BEGIN
        CREATE UNIQUE INDEX ON ddl.twins (n);
    EXCEPTION WHEN unique_violation THEN
    END;
    CALL ttl.reap('ddl.twins');
    CREATE UNIQUE INDEX twins_n ON ddl.twins (n);
END $$;
SELECT state('INSERT INTO ddl.twins VALUES (8, ''g'', 2)');

-- LIKE copies columns, defaults, checks and indexes; that is adopted
CREATE TABLE like_item (LIKE item INCLUDING ALL);
-- the copy is no container, and shows what it has; registered, it needs nothing that isn't there
SELECT look('like_item');
INSERT INTO like_item (id, _ts) VALUES (1, '2020-01-01');
SELECT count(*) FROM like_item;
SELECT ttl.create_container('like_item', 60, ts_column => '_ts', ttl_column => 'ttl');
SELECT look('like_item');

-- Columns with defaults of their own, generated ones, identity
CREATE TABLE columns (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind text,
    ttl int GENERATED ALWAYS AS (CASE kind WHEN 'short' THEN 5
    WHEN 'ever' THEN -1 END) STORED, at timestamptz DEFAULT '2900-01-01');
SELECT ttl.create_container('columns', 60, 'at');

-- A generated TTL and an adopted clock: what has expired is hidden, by the TTL that the row says
INSERT INTO columns (kind, at) VALUES ('short', '2020-01-01'), ('ever', '2020-01-01'), (NULL, '2020-01-01'), ('short',
    DEFAULT), (NULL, NULL);
SELECT id, kind, ttl FROM columns ORDER BY id;
SELECT ttl.expired_count('columns');
-- what it says changes with the row, and it is back
SET ttl.show_expired = on;
UPDATE columns SET kind = 'ever' WHERE id = 3;
RESET ttl.show_expired;
SELECT id, kind, ttl FROM columns ORDER BY id;
CALL ttl.reap('columns');
SELECT count(*) FROM columns;

-- The default of a TTL column is the application's, as a value; a NULL that is given means the default TTL
CREATE TABLE by_default (id int PRIMARY KEY, ttl int DEFAULT 3600);
SELECT ttl.create_container('by_default', 5);
INSERT INTO by_default (id, _ts) VALUES (1, now() - interval '1 min');
INSERT INTO by_default VALUES (2, NULL, now() - interval '1 min');
SELECT id FROM by_default;

-- Rules that rewrite
CREATE TABLE ruled (id int PRIMARY KEY, n int DEFAULT 0);
SELECT ttl.create_container('ruled', 60);
INSERT INTO ruled (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01'), (3, '2020-01-01');
-- the rule's UPDATE counts what is live, and its own query doesn't find what has expired: that is replaced
CREATE RULE redirect AS ON INSERT TO ruled WHERE NEW.id IN (SELECT id FROM ruled) DO INSTEAD UPDATE ruled SET n = n + 1
    WHERE id = NEW.id;
INSERT INTO ruled (id) VALUES (1), (2);
SELECT id, n FROM ruled ORDER BY id;
DROP RULE redirect ON ruled;
-- a rule that keeps rows from deletion keeps the reaper from them, and keys occupied
CREATE RULE keep AS ON DELETE TO ruled DO INSTEAD NOTHING;
SET client_min_messages = error;
CALL ttl.reap('ruled');
SET client_min_messages = warning;
SELECT id, n FROM ruled ORDER BY id;
SELECT ttl.expired_count('ruled'), state('INSERT INTO ddl.ruled VALUES (3)');
DROP RULE keep ON ruled;
CALL ttl.reap('ruled');
SELECT ttl.expired_count('ruled');

-- The commands that a command calls may fail: what was noted of the outer one is forgotten
CREATE TABLE checked (id int);
INSERT INTO checked VALUES (1);
CREATE FUNCTION fails_inside() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        ALTER TABLE another_database.public.checked ADD x int;
    EXCEPTION WHEN feature_not_supported THEN
        NULL;
    END;
    RAISE unique_violation;
END $$;
SELECT state('ALTER TABLE ddl.checked ADD CHECK (ddl.fails_inside())');

-- The HINT is that of containers
CREATE TABLE twice AS SELECT 1 AS id FROM generate_series(1, 2);
SELECT refused('CREATE UNIQUE INDEX ON ddl.twice (id)');
DROP TABLE twice;

-- What a container needs can't be taken from it in pieces
-- nor can the trigger be renamed or replaced; disabling it is allowed, and told
CREATE TABLE pieces (id int PRIMARY KEY);
SELECT ttl.create_container('pieces', 60);
SELECT refused('ALTER TRIGGER "~ttl" ON ddl.pieces RENAME TO x');
ALTER TABLE pieces DISABLE TRIGGER "~ttl";
SELECT refused('CREATE OR REPLACE TRIGGER "~ttl" BEFORE INSERT ON ddl.pieces FOR EACH ROW EXECUTE FUNCTION '
    'ttl.on_write()');
-- Nor is somebody else's trigger taken for it, or one that fires for some rows only
CREATE FUNCTION impostor() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
CREATE TABLE occupied (id int PRIMARY KEY);
CREATE TRIGGER "~ttl" BEFORE INSERT ON occupied FOR EACH ROW EXECUTE FUNCTION impostor();
SELECT refused('SELECT ttl.create_container(''ddl.occupied'', 60)');
CREATE OR REPLACE TRIGGER "~ttl" BEFORE INSERT ON occupied FOR EACH ROW
    WHEN (new.id > 5) EXECUTE FUNCTION ttl.on_write();
SELECT state('SELECT ttl.create_container(''ddl.occupied'', 60)');
DROP TRIGGER "~ttl" ON occupied;
-- the same one is, and enabled for all
CREATE TRIGGER "~ttl" BEFORE INSERT ON occupied FOR EACH ROW EXECUTE FUNCTION ttl.on_write();
SELECT ttl.create_container('occupied', 60);
ALTER TABLE pieces ENABLE TRIGGER "~ttl";
SELECT tgenabled FROM pg_trigger WHERE tgrelid = 'pieces'::regclass;
-- a typed table changes with its type
CREATE TYPE kind AS (id int, _ts timestamptz, ttl int);
CREATE TABLE typed OF kind (PRIMARY KEY (id));
SELECT refused('SELECT ttl.create_container(''ddl.typed'', 60)'), state('ALTER TABLE ddl.pieces OF ddl.kind');
-- A column isn't dropped by whatever CASCADE, but with the whole container
CREATE FUNCTION lifetime(kind text) RETURNS int LANGUAGE sql IMMUTABLE AS $$SELECT CASE kind WHEN 'short' THEN 5 END$$;
CREATE TABLE kinds (id int, kind text, ttl int GENERATED ALWAYS AS (ddl.lifetime(kind)) STORED);
SELECT ttl.create_container('kinds', 60);
CREATE TABLE parts_of_kinds (id int, kind text, ttl int GENERATED ALWAYS AS (ddl.lifetime(kind)) STORED)
    PARTITION BY LIST (id);
CREATE TABLE part_of_kinds PARTITION OF parts_of_kinds DEFAULT;
SELECT ttl.create_container('parts_of_kinds', 60);
-- a partition that is attached gets no column that is generated in the others
CREATE TABLE without_kinds (id int, kind text);
SELECT refused('ALTER TABLE ddl.parts_of_kinds ATTACH PARTITION ddl.without_kinds FOR VALUES IN (1)');
DROP TABLE without_kinds;
SELECT state('DROP FUNCTION ddl.lifetime CASCADE'), refused('ALTER TABLE ddl.kinds DROP COLUMN kind CASCADE'),
    refused('ALTER TABLE ddl.parts_of_kinds DROP COLUMN kind CASCADE') \gx (format=unaligned)
-- On PostgreSQL 17 and later another expression would give all rows another TTL
SELECT state('ALTER TABLE ddl.kinds ALTER COLUMN ttl SET EXPRESSION AS (1)') <> 'done' AS kept;
-- a column that is replaced in one command is dropped, too
SELECT state('ALTER TABLE ddl.kinds DROP COLUMN _ts, ADD COLUMN _ts timestamptz');
-- dropped with the containers, or after they have ended, it goes
BEGIN;
SELECT state('DROP FUNCTION ddl.lifetime CASCADE');
ALTER TABLE kinds ADD COLUMN x int;
SELECT ttl.drop_container('kinds'), ttl.drop_container('parts_of_kinds');
DROP FUNCTION lifetime CASCADE;
ROLLBACK;
BEGIN;
DROP TABLE parts_of_kinds, kinds;
DROP FUNCTION lifetime CASCADE;
ROLLBACK;
-- of a CASCADE over a schema, the partitioned container outside of it counts
CREATE SCHEMA elsewhere;
ALTER FUNCTION lifetime SET SCHEMA elsewhere;
ALTER TABLE kinds SET SCHEMA elsewhere;
SELECT refused('DROP SCHEMA elsewhere CASCADE');
DROP TABLE parts_of_kinds;
DROP SCHEMA elsewhere CASCADE;
CREATE TABLE parted (id int, _ts timestamptz NOT NULL, ttl int) PARTITION BY LIST (id);
SELECT ttl.create_container('parted', 60);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
-- Partitions that can be neither read with a filter nor deleted from are refused
CREATE FOREIGN DATA WRAPPER regress_ttl_wrapper;
CREATE SERVER regress_ttl_server FOREIGN DATA WRAPPER regress_ttl_wrapper;
SELECT refused('CREATE FOREIGN TABLE ddl.far PARTITION OF ddl.parted FOR VALUES IN (2) SERVER regress_ttl_server');
CREATE FOREIGN TABLE far (id int, _ts timestamptz NOT NULL, ttl int) SERVER regress_ttl_server;
SELECT refused('ALTER TABLE ddl.parted ATTACH PARTITION ddl.far FOR VALUES IN (2)');
CREATE TABLE world (id int) PARTITION BY LIST (id);
CREATE FOREIGN TABLE world_far PARTITION OF world FOR VALUES IN (2) SERVER regress_ttl_server;
SELECT refused('SELECT ttl.create_container(''ddl.world'', 60)');
DROP FOREIGN DATA WRAPPER regress_ttl_wrapper CASCADE;
-- Partitions of another access method hide their rows, too, which a container of its own can't be
CREATE ACCESS METHOD regress_ttl_method TYPE TABLE HANDLER heap_tableam_handler;
CREATE TABLE strange (id int, _ts timestamptz NOT NULL, ttl int) USING regress_ttl_method;
SELECT refused('SELECT ttl.create_container(''ddl.strange'', 60)');
ALTER TABLE parted ATTACH PARTITION strange FOR VALUES IN (2);
INSERT INTO parted VALUES (2, '2020-01-01');
SELECT count(*) FROM strange;
SELECT refused('ALTER TABLE ddl.pieces SET ACCESS METHOD regress_ttl_method');
DROP ACCESS METHOD regress_ttl_method CASCADE;
-- Rows of the default partition that nobody sees are in the way of a new one; the HINT says how to have them deleted
CREATE TABLE parted_default PARTITION OF parted DEFAULT;
INSERT INTO parted VALUES (3, '2020-01-01');
SELECT refused('CREATE TABLE ddl.parted_3 PARTITION OF ddl.parted FOR VALUES IN (3)');
CALL ttl.reap('parted');
CREATE TABLE parted_3 PARTITION OF parted FOR VALUES IN (3);

-- Old-style inheritance, in every spelling
CREATE TABLE heir (LIKE twins INCLUDING CONSTRAINTS);
CREATE TABLE elder (LIKE twins);
-- rows of heirs would be visible through the container, or its own through a parent
SELECT refused('CREATE TABLE ddl.heirs () INHERITS (home.other, ddl.twins)'),
    refused('CREATE TABLE ddl.heirs (id int) INHERITS (ddl.twins)') \gx (format=unaligned)
SELECT refused('ALTER TABLE ddl.heir INHERIT ddl.twins'),
    refused('ALTER TABLE ddl.heir ADD COLUMN z int, INHERIT ddl.twins'),
    refused('ALTER TABLE ONLY ddl.twins INHERIT ddl.elder') \gx (format=unaligned)
SELECT look('twins') = look('twins') AS there;
-- nor does a table become a container that has children
CREATE TABLE once_parent (id int);
CREATE TABLE once_child () INHERITS (once_parent);
SELECT refused('SELECT ttl.create_container(''ddl.once_parent'', 60)');
ALTER TABLE once_child NO INHERIT once_parent;
SELECT ttl.create_container('once_parent', 60);

--
-- Partitions
--

CREATE TABLE tree (id int PRIMARY KEY, x int, note text) PARTITION BY RANGE (id);
CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (100);
SELECT ttl.create_container('tree', 60);
-- Partitions that are created: an ordinary one, a default one, one with partitions of its own
CREATE TABLE tree_2 PARTITION OF tree (note DEFAULT 'of tree_2') FOR VALUES FROM (100) TO (200);
CREATE TABLE tree_3 PARTITION OF tree FOR VALUES FROM (200) TO (300) PARTITION BY LIST (id);
CREATE TABLE tree_3_odd PARTITION OF tree_3 FOR VALUES IN (201, 203, 205, 207);
CREATE TABLE tree_3_default PARTITION OF tree_3 DEFAULT;
CREATE TABLE tree_default PARTITION OF tree DEFAULT;
-- Attached: with another order of columns, a dropped one, indexes, a check and
-- rows of its own, after which it needs neither an index nor a trigger more
CREATE TABLE tree_4 (gone int, ttl int, note text, _ts timestamptz NOT NULL, gone_too text, x int, id int NOT NULL);
ALTER TABLE tree_4 DROP COLUMN gone, DROP COLUMN gone_too;
CREATE INDEX tree_4_ts ON tree_4 (_ts) WHERE ttl IS NULL;
CREATE INDEX tree_4_own ON tree_4 (x);
CREATE UNIQUE INDEX tree_4_unique ON tree_4 (note);
INSERT INTO tree_4 (id, _ts, ttl, note) VALUES (301, '2020-01-01', NULL, 'a'), (302, '2900-01-01', NULL, 'b'), (303,
    '2020-01-01', 5, 'c');
ALTER TABLE tree ATTACH PARTITION tree_4 FOR VALUES FROM (300) TO (400);
SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'tree_4'::regclass
    ORDER BY indexrelid::regclass::text COLLATE "C";
-- What it lacks it is given: columns, whose rows count from now
BEGIN;
CREATE TABLE tree_8 (id int NOT NULL, x int, note text);
INSERT INTO tree_8 VALUES (801);
ALTER TABLE tree ATTACH PARTITION tree_8 FOR VALUES FROM (800) TO (900);
CREATE TABLE tree_9 (id int NOT NULL, x int, note text, ttl int, _ts timestamptz) PARTITION BY LIST (id);
CREATE TABLE tree_9_1 PARTITION OF tree_9 DEFAULT;
INSERT INTO tree_9 VALUES (901, 1, 'x', 5, '2020-01-01'), (902, 2, 'y', -1, '2020-01-01');
ALTER TABLE tree ATTACH PARTITION tree_9 FOR VALUES FROM (900) TO (1000);
SELECT look('tree');
ROLLBACK;
-- But not against its rows: a _ts without a value can't become NOT NULL
CREATE TABLE tree_10 (LIKE tree INCLUDING DEFAULTS);
INSERT INTO tree_10 (id, _ts) VALUES (1001, '2020-01-01');
ALTER TABLE tree_10 ALTER _ts DROP NOT NULL;
INSERT INTO tree_10 (id, _ts) VALUES (1002, NULL);
SELECT state('ALTER TABLE ddl.tree ATTACH PARTITION ddl.tree_10 FOR VALUES FROM (1000) TO (1100)');
-- Nor by anybody else, nor for a place where it doesn't fit
DELETE FROM tree_10 WHERE id = 1002;
SET ROLE regress_ttl_user;
SELECT state('ALTER TABLE ddl.tree ATTACH PARTITION ddl.tree_10 FOR VALUES FROM (1000) TO (1100)');
RESET ROLE;
SELECT state('ALTER TABLE ddl.tree ATTACH PARTITION ddl.tree_10 FOR VALUES FROM (0) TO (100)');
DROP TABLE tree_10;
-- A TTL that is refused may be there: such a row never expires
BEGIN;
CREATE TABLE lenient (id int NOT NULL, ttl int) PARTITION BY LIST (id);
CREATE TABLE lenient_1 (id int NOT NULL, ttl int);
INSERT INTO lenient_1 VALUES (1, 0);
SELECT ttl.create_container('lenient', 60);
ALTER TABLE lenient ATTACH PARTITION lenient_1 FOR VALUES IN (1);
SELECT id, ttl, ttl.expires_at(l) FROM lenient l;
SELECT state('INSERT INTO lenient VALUES (1, 0)');
ROLLBACK;
-- Attached with partitions of its own
CREATE TABLE tree_5 (LIKE tree INCLUDING ALL) PARTITION BY HASH (id);
CREATE TABLE tree_5_0 PARTITION OF tree_5 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE tree_5_1 (id int NOT NULL, note text, ttl int, _ts timestamptz NOT NULL DEFAULT now(), x int);
ALTER TABLE tree_5 ATTACH PARTITION tree_5_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
ALTER TABLE tree ATTACH PARTITION tree_5 FOR VALUES FROM (400) TO (500);
INSERT INTO tree (id, _ts, ttl) SELECT h * 100 + i, CASE i WHEN 2 THEN '2900-01-01' ELSE '2020-01-01' END::timestamptz,
    CASE i WHEN 3 THEN 5 WHEN 4 THEN -1 END
  FROM generate_series(0, 6) h, generate_series(1, 5) i WHERE h <> 3;
-- Of each partition alone, 2 and 4 are seen (4 never expires); all the others' keys are free
SELECT tableoid::regclass, string_agg(id::text, ' ' ORDER BY id) FROM tree GROUP BY tableoid
    ORDER BY tableoid::regclass::text COLLATE "C";
-- named alone, each partition hides the same
SELECT (SELECT string_agg(id::text, ' ' ORDER BY id) FROM tree_3) AS tree_3, (SELECT string_agg(id::text, ' '
    ORDER BY id) FROM tree_4) AS tree_4, (SELECT string_agg(id::text, ' ' ORDER BY id)
    FROM tree_5_1) AS tree_5_1, (SELECT string_agg(id::text, ' ' ORDER BY id) FROM tree_default) AS tree_default;
SELECT ttl.expired_count('tree');
-- each key that an expired row holds is free, by way of the container or a partition, and for a row that is moved
BEGIN;
INSERT INTO tree (id) SELECT h * 100 + i FROM generate_series(0, 6) h, unnest('{1, 3}'::int[]) i;
INSERT INTO tree_5_1 (id, note) SELECT 405, 'a' WHERE satisfies_hash_partition('tree_5'::regclass, 2, 1, 405);
INSERT INTO tree (id, note) VALUES (304, 'd');
UPDATE tree SET id = 605 WHERE id = 104;
SELECT count(*), ttl.expired_count('tree') FROM tree;
ROLLBACK;
-- A key that one partition has for itself is free in the same way, and taken by a live row
BEGIN;
INSERT INTO tree (id, note) VALUES (304, 'a');
SELECT state('INSERT INTO ddl.tree (id, note) VALUES (305, ''b'')');
SELECT id FROM tree_4 ORDER BY id;
ROLLBACK;

-- Each command once, rolled back: the answer is what it made of rows, policy, trigger and indexes
SELECT command, replace(try(command, 'ddl.tree'), '; ', E';\n    ') AS try FROM unnest(ARRAY[
    'CREATE TABLE ddl.tree_7 PARTITION OF ddl.tree FOR VALUES FROM (700) TO (800)',
    'ALTER TABLE ddl.tree DETACH PARTITION ddl.tree_1',
    'ALTER TABLE ddl.tree DETACH PARTITION ddl.tree_3',
    'ALTER TABLE ddl.tree DETACH PARTITION ddl.tree_3; SELECT ttl.drop_container(''ddl.tree_3''); ALTER TABLE ddl.tree '
        'ATTACH PARTITION ddl.tree_3 FOR VALUES FROM (200) TO (300)',
    'ALTER TABLE ddl.tree DETACH PARTITION ddl.tree_default; SELECT ttl.drop_container(''ddl.tree_default''); ALTER '
        'TABLE ddl.tree ATTACH PARTITION ddl.tree_default DEFAULT',
    'ALTER TABLE ddl.tree_3 DETACH PARTITION ddl.tree_3_odd',
    'DROP TABLE ddl.tree_2',
    'DROP TABLE ddl.tree_3 CASCADE',
    'TRUNCATE ddl.tree_4',
    'ALTER TABLE ddl.tree RENAME COLUMN _ts TO changed; ALTER TABLE ddl.tree RENAME COLUMN ttl TO "own TTL"',
    'ALTER TABLE ddl.tree_4 RENAME COLUMN _ts TO changed',
    'ALTER TABLE ddl.tree ALTER COLUMN x TYPE text, ADD COLUMN y float DEFAULT random(), DROP COLUMN note',
    'ALTER TABLE ddl.tree_4 ALTER COLUMN _ts DROP NOT NULL',
    'ALTER TABLE ddl.tree_4 DISABLE TRIGGER ALL; ALTER TABLE ddl.tree_4 ENABLE TRIGGER ALL',
    'ALTER TABLE ddl.tree DISABLE TRIGGER USER; ALTER TABLE ddl.tree ENABLE TRIGGER USER',
    'ALTER TABLE ddl.tree_4 SET UNLOGGED; CLUSTER ddl.tree_4 USING tree_4_unique; REINDEX TABLE ddl.tree_4',
    'SELECT ttl.set_default_ttl(''ddl.tree'', NULL)',
    'SELECT ttl.set_default_ttl(''ddl.tree'', -1)',
    'SELECT ttl.alter_container(''ddl.tree'', touch_on_update => false)',
    'SELECT ttl.drop_container(''ddl.tree'')',
    'SELECT ttl.drop_container(''ddl.tree'', true)',
    'DROP TABLE ddl.tree'])
    WITH ORDINALITY u (command, n) ORDER BY n \g (format=unaligned)
-- And for good
ALTER TABLE tree DETACH PARTITION tree_3;
ALTER TABLE tree DETACH PARTITION tree_default;
ALTER TABLE tree DETACH PARTITION tree_4 CONCURRENTLY;
ALTER TABLE tree_5 DETACH PARTITION tree_5_0 CONCURRENTLY;
-- each that has left hides the same rows as before, with a trigger and indexes of its own
SELECT c, replace(look(c), '; ', E';\n    ') AS look
    FROM unnest('{tree, tree_3, tree_default, tree_4, tree_5_0}'::regclass[]) c \g (format=unaligned)
-- a partition's own key, too
SELECT state('INSERT INTO ddl.tree_4 (id, note) VALUES (308, ''b'')'),
    state('INSERT INTO ddl.tree_4 (id, note) VALUES (308, ''a'')');
ALTER TABLE tree_3 DETACH PARTITION tree_3_default;
SELECT c, look(c) FROM unnest('{tree_3, tree_3_default}'::regclass[]) c;
-- They go their own ways from here: a change of the old container's policy, or of theirs, is of no other
SELECT ttl.set_default_ttl('tree', NULL);
SELECT ttl.set_default_ttl('tree_3', -1);
ALTER TABLE tree_4 RENAME COLUMN _ts TO modified;
SELECT c, replace(look(c), '; ', E';\n    ') AS look
    FROM unnest('{tree, tree_3, tree_3_default, tree_4}'::regclass[]) c \g (format=unaligned)
-- And back: as plain tables again, they can be attached
SELECT ttl.set_default_ttl('tree', 60);
SELECT refused('ALTER TABLE ddl.tree ATTACH PARTITION ddl.tree_3 FOR VALUES FROM (200) TO (300)');
SELECT ttl.drop_container('tree_3'), ttl.drop_container('tree_default');
ALTER TABLE tree ATTACH PARTITION tree_3 FOR VALUES FROM (200) TO (300);
ALTER TABLE tree ATTACH PARTITION tree_default DEFAULT;
SELECT replace(look('tree'), '; ', E';\n    ') AS look \g (format=unaligned)
SET client_min_messages = notice;
CALL ttl.reap('tree');
SET client_min_messages = warning;
SELECT look('tree');
-- with it go the policies of its partitions, not of those that have left
DROP TABLE tree;
SELECT container FROM ttl.containers WHERE container::text ~ 'tree' ORDER BY container::text COLLATE "C";

--
-- Event triggers
--

-- Registration rewrites nothing, and leaves nothing when somebody forbids it
CREATE TABLE watched (id int PRIMARY KEY);
INSERT INTO watched VALUES (1);
CREATE FUNCTION forbid() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION '% forbidden', TG_TAG; END$$;
-- a rewrite would be an error here
CREATE EVENT TRIGGER regress_ttl_rewrite ON table_rewrite EXECUTE FUNCTION forbid();
SELECT ttl.create_container('watched', 60);
SELECT look('watched');
SELECT ttl.drop_container('watched', true);
DROP EVENT TRIGGER regress_ttl_rewrite;
CREATE EVENT TRIGGER regress_ttl_forbid ON ddl_command_end WHEN TAG IN ('CREATE TRIGGER') EXECUTE FUNCTION forbid();
-- it fails in the middle: no column is left
SELECT refused('SELECT ttl.create_container(''ddl.watched'', 60)');
DROP EVENT TRIGGER regress_ttl_forbid;
SELECT look('watched'), (SELECT count(*) FROM pg_attribute
    WHERE attrelid = 'watched'::regclass AND attnum > 0 AND NOT attisdropped) AS columns;

-- One that looks at containers in the middle of it all
CREATE FUNCTION watch() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count(*) FROM ddl.watched;
    PERFORM count(*) FROM ttl.containers;
    PERFORM count(*) FROM ttl.stat_containers;
END $$;
CREATE EVENT TRIGGER regress_ttl_watch_end ON ddl_command_end EXECUTE FUNCTION watch();
CREATE EVENT TRIGGER regress_ttl_watch_start ON ddl_command_start EXECUTE FUNCTION watch();
CREATE EVENT TRIGGER regress_ttl_watch_drop ON sql_drop EXECUTE FUNCTION watch();
-- it sees what there is of it, and disturbs nothing
SELECT ttl.create_container('watched', 60);
INSERT INTO watched (id, _ts) VALUES (2, '2020-01-01');
ALTER TABLE watched RENAME COLUMN _ts TO x;
ALTER TABLE watched ADD COLUMN y int, ALTER COLUMN id TYPE bigint;
ALTER TABLE watched RENAME COLUMN x TO _ts;
SELECT ttl.alter_container('watched', indexing => 'consistent', reap_delay => '0');
SELECT look('watched');
SELECT ttl.drop_container('watched', true);
DROP EVENT TRIGGER regress_ttl_watch_end;
DROP EVENT TRIGGER regress_ttl_watch_start;
DROP EVENT TRIGGER regress_ttl_watch_drop;

-- They fire for what is done here as for the user's own DDL: with his search_path
CREATE TABLE noted (n int GENERATED ALWAYS AS IDENTITY, event text, tag text, path text);
CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO noted (event, tag, path) VALUES (tg_event, tg_tag, current_setting('search_path'));
END $$;
CREATE EVENT TRIGGER regress_ttl_note_start ON ddl_command_start EXECUTE FUNCTION note();
CREATE EVENT TRIGGER regress_ttl_note_end ON ddl_command_end EXECUTE FUNCTION note();
CREATE EVENT TRIGGER regress_ttl_note_drop ON sql_drop EXECUTE FUNCTION note();
CREATE EVENT TRIGGER regress_ttl_note_rewrite ON table_rewrite EXECUTE FUNCTION note();
CREATE TABLE watched_parts (id int, n numeric) PARTITION BY LIST (id);
-- all that ttl does for a container in its life
SELECT ttl.create_container('watched_parts', 60);
CREATE TABLE watched_1 (id int, n numeric);
ALTER TABLE watched_parts ATTACH PARTITION watched_1 FOR VALUES IN (1);
SELECT ttl.set_default_ttl('watched_parts', NULL::int);
SELECT ttl.alter_container('watched_parts', indexing => 'none');
SELECT ttl.alter_container('watched_parts', indexing => 'consistent');
SELECT ttl.set_default_ttl('watched_parts', 30);
ALTER TABLE watched_parts DISABLE TRIGGER ALL, ENABLE TRIGGER ALL;
ALTER TABLE watched_parts DETACH PARTITION watched_1;
-- neither has more or less by it
SELECT look('watched_parts'), look('watched_1');
SELECT ttl.drop_container('watched_1'), ttl.drop_container('watched_parts', true);
SELECT ttl.create_ttl_index('watched_documents', 60);
DROP TABLE watched_parts, watched_1, watched_documents;
SET client_min_messages = warning;
DROP EVENT TRIGGER regress_ttl_note_start;
DROP EVENT TRIGGER regress_ttl_note_end;
DROP EVENT TRIGGER regress_ttl_note_drop;
DROP EVENT TRIGGER regress_ttl_note_rewrite;
-- all commands that fired had the user's path
SELECT string_agg(DISTINCT tag, ', ' ORDER BY tag) AS tags, path FROM noted GROUP BY path;

--
-- Owners
--

-- The owner can't be dropped before his container has another
CREATE ROLE regress_ttl_leaver;
GRANT ALL ON SCHEMA ddl TO regress_ttl_leaver;
CREATE TABLE leaves (id int PRIMARY KEY);
CREATE TABLE leaves_archive (id int);
SELECT ttl.create_container('leaves', 60);
SELECT ttl.alter_container('leaves', archive_to => 'leaves_archive');
ALTER TABLE leaves OWNER TO regress_ttl_leaver;
ALTER TABLE leaves_archive OWNER TO regress_ttl_leaver;
INSERT INTO leaves (id, _ts) VALUES (1, '2020-01-01');
SELECT state('DROP ROLE regress_ttl_leaver');
REASSIGN OWNED BY regress_ttl_leaver TO regress_ttl_owner;
DROP OWNED BY regress_ttl_leaver;
DROP ROLE regress_ttl_leaver;
-- the policy has moved with it, archive and all
SELECT look('leaves');
SET ROLE regress_ttl_owner;
CALL ttl.reap('ddl.leaves');
SELECT id FROM ddl.leaves_archive;
RESET ROLE;
-- dropped with the owner's tables, policies are gone
DROP OWNED BY regress_ttl_owner, regress_ttl_user CASCADE;
SELECT container FROM ttl.containers WHERE container::text ~ 'leaves|item';

--
-- The extension
--

-- Gone and come again in one transaction, with a plan that was made before
CREATE TABLE stays (id int PRIMARY KEY, note text);
SELECT ttl.create_container('stays', 60);
INSERT INTO stays (id, note, _ts) VALUES (1, 'live', '2900-01-01'), (2, 'expired', '2020-01-01');

-- A plan that was made with the filter is made anew without it, in the transaction
PREPARE notes AS SELECT string_agg(note, ' ' ORDER BY id) FROM stays;
SET plan_cache_mode = force_generic_plan;
EXECUTE notes;
BEGIN;
SAVEPOINT s;
DROP EXTENSION ttl CASCADE;
EXECUTE notes;
-- without the extension nothing is stamped, and keys are as in any table
INSERT INTO stays (id, note) VALUES (3, 'plain');
UPDATE stays SET note = 'plain';
SELECT note, to_char(_ts, 'YYYY') IN ('2900', '2020') AS untouched FROM stays ORDER BY id;
SELECT state('INSERT INTO ddl.stays VALUES (2, ''again'')');
-- back again, it hides by the policy that it gets
SAVEPOINT t;
CREATE EXTENSION ttl;
EXECUTE notes;
SELECT ttl.create_container('stays', 60, ts_column => '_ts', ttl_column => 'ttl');
EXECUTE notes;
INSERT INTO stays (id, note) VALUES (2, 'again');
EXECUTE notes;
-- and taken back step by step
ROLLBACK TO t;
EXECUTE notes;
ROLLBACK TO s;
EXECUTE notes;
SELECT look('stays');
COMMIT;
EXECUTE notes;
-- updating the extension leaves plans and policies
ALTER EXTENSION ttl UPDATE;
EXECUTE notes;
-- what depends on it keeps it from going without CASCADE
SELECT refused('DROP EXTENSION ttl') ~ 'other objects depend on it' AS refused;
DEALLOCATE notes;
RESET plan_cache_mode;

-- DROP TABLE reads no policies of other tables
CREATE TABLE no_container (id int);
CREATE TEMP TABLE a_temp_table (id int);

-- Rows of ttl.container that this transaction has read
CREATE VIEW policies_read AS
    SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) AS n FROM pg_stat_xact_all_tables
        WHERE relid = 'ttl.container'::regclass;
SELECT count(*) > 1 AS others FROM ttl.container;
BEGIN;
SELECT n AS before FROM policies_read \gset
DROP TABLE a_temp_table, no_container;
SELECT n - :before AS policies_read FROM policies_read;
COMMIT;

DROP SCHEMA ddl, home CASCADE;
