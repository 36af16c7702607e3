-- One instant for each snapshot: what an execution takes for the present
\set VERBOSITY terse
SET client_min_messages = warning;
-- In a session of its own, which has started no parallel worker yet
\c
SET client_min_messages = warning;
CREATE SCHEMA instants;
SET search_path = instants, public;

-- Workers can be told from the first time on, also where they are started from within
-- parallel mode (a function that isn't what it says), and such an error leaves nothing behind
CREATE TABLE big (id int);
INSERT INTO big SELECT generate_series(1, 1000);
CREATE TABLE small (g int) WITH (parallel_workers = 2, fillfactor = 10);
INSERT INTO small SELECT 10 * generate_series(1, 100);
CREATE TABLE parts (id int, PRIMARY KEY (id)) PARTITION BY LIST (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
SELECT ttl.create_container('parts', 60);
CREATE FUNCTION f(int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$BEGIN RETURN (SELECT count(*)
    FROM instants.big WHERE id >= $1); END$$;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
CREATE INDEX ON small (f(g));
SET enable_indexscan = off;
SET enable_bitmapscan = off;
-- by workers, each of which calls a function that reads tables
SELECT count(*) FROM small WHERE f(g) > 500;
RESET enable_indexscan;
RESET enable_bitmapscan;
CREATE FUNCTION fail(int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$BEGIN RETURN 1 / (SELECT count(*) -
    1000 FROM instants.big); END$$;
-- an error in a worker that builds an index
CREATE INDEX ON small (fail(g));
-- the leader's next statements are none of a worker's
COPY parts (id) FROM STDIN;
1
\.
INSERT INTO parts_1 VALUES (1) ON CONFLICT DO NOTHING;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;

-- A row expires every other millisecond, so the first that is left tells the time
CREATE TABLE tick (_ts timestamptz NOT NULL DEFAULT clock_timestamp());
SELECT ttl.create_container('tick', 60, ttl_column => NULL);
CREATE PROCEDURE wind() LANGUAGE sql AS $$
    TRUNCATE instants.tick;
    INSERT INTO instants.tick SELECT at - interval '60 s' + i * interval '2 ms'
        FROM clock_timestamp() at, generate_series(1, 60000) i;
$$;
CALL wind();
ANALYZE tick;
CREATE VIEW instant AS SELECT min(_ts) AS at FROM tick;
-- Lets the clock go on
CREATE FUNCTION wait() RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
    until timestamptz := clock_timestamp() + interval '6 ms';
BEGIN
    WHILE clock_timestamp() < until LOOP
    END LOOP;
    RETURN NULL;
END $$;
-- How many different instants, and whether they are in order
CREATE FUNCTION judge(VARIADIC at timestamptz[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT count(DISTINCT a) || CASE WHEN array_agg(a ORDER BY o) = array_agg(a
        ORDER BY a) THEN '' ELSE ' out of order' END
      FROM unnest(at) WITH ORDINALITY AS _(a, o) WHERE a IS NOT NULL
$$;

-- A function of each kind; each waits before it looks, and looks twice
CREATE FUNCTION plpgsql_stable() RETURNS timestamptz[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    a timestamptz;
    b timestamptz;
BEGIN
    PERFORM instants.wait();
    SELECT at INTO a FROM instants.instant;
    PERFORM instants.wait();
    FOR b IN SELECT at FROM instants.instant LOOP
        RETURN ARRAY[a, b];
    END LOOP;
END $$;
CREATE FUNCTION plpgsql_immutable(int) RETURNS timestamptz[] LANGUAGE plpgsql IMMUTABLE AS $$BEGIN PERFORM
    instants.wait(); RETURN ARRAY[(SELECT at FROM instants.instant), instants.wait(), (SELECT at
    FROM instants.instant)]; END$$;
CREATE FUNCTION plpgsql_volatile() RETURNS timestamptz[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    a timestamptz;
    b timestamptz;
BEGIN
    PERFORM instants.wait();
    SELECT at INTO a FROM instants.instant;
    PERFORM instants.wait();
    SELECT at INTO b FROM instants.instant;
    RETURN ARRAY[a, b];
END $$;
CREATE FUNCTION sql_stable() RETURNS timestamptz[] LANGUAGE sql STABLE AS
    'SELECT instants.wait(); SELECT ARRAY[(SELECT at FROM instants.instant), instants.wait(), (SELECT at FROM '
    'instants.instant)]';
CREATE FUNCTION sql_volatile() RETURNS timestamptz[] LANGUAGE sql VOLATILE AS
    'SELECT instants.wait(); SELECT ARRAY[at] FROM instants.instant';
CREATE FUNCTION sql_rows() RETURNS SETOF timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM instants.instant';
CREATE FUNCTION sql_atomic() RETURNS timestamptz LANGUAGE sql STABLE BEGIN ATOMIC SELECT at FROM instants.instant; END;
CREATE FUNCTION error_stable() RETURNS timestamptz[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    a timestamptz;
BEGIN
    BEGIN
        a := 1 / count(*) FROM instants.instant WHERE false;
    EXCEPTION WHEN division_by_zero THEN
        PERFORM instants.wait();
    END;
    RETURN ARRAY[(SELECT at FROM instants.instant)] || instants.sql_stable();
END $$;
-- Not VOLATILE, but what it calls is
CREATE FUNCTION calls_volatile() RETURNS timestamptz[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    a timestamptz[];
    b timestamptz[];
BEGIN
    a := instants.sql_stable();
    b := instants.plpgsql_volatile();
    ASSERT b[1] > a[1] AND b[2] > b[1];
    RETURN a || instants.sql_stable();
END $$;

-- What reads the statement's snapshot has the statement's clock
SELECT judge(VARIADIC ARRAY[(SELECT at FROM instant)] || plpgsql_stable()) AS plpgsql_stable,
    judge(VARIADIC ARRAY[(SELECT at FROM instant)] || plpgsql_immutable(i)) AS plpgsql_immutable,
       judge(VARIADIC ARRAY[(SELECT at FROM instant)] || sql_stable()) AS sql_stable, judge((SELECT at
           FROM instant), wait(), (SELECT * FROM sql_rows()), wait(), sql_atomic()) AS inlined,
       judge(VARIADIC ARRAY[(SELECT at FROM instant)] || error_stable()) AS after_error,
           judge(VARIADIC ARRAY[(SELECT at FROM instant)] || calls_volatile()) AS calls_volatile
           FROM generate_series(1, 1) i;
-- What takes a snapshot has a clock of its own
SELECT judge(VARIADIC ARRAY[(SELECT at FROM instant)] || plpgsql_volatile()) AS plpgsql_volatile,
    judge(VARIADIC ARRAY[(SELECT at FROM instant)] || sql_volatile()) AS sql_volatile;
-- Row by row, it is the statement's for a STABLE function, and each call's for a VOLATILE one
SELECT count(DISTINCT a) AS instants, count(*) FROM (SELECT (sql_stable())[1] AS a FROM generate_series(1, 10)) _;
SELECT count(DISTINCT a) AS instants, count(*) FROM (SELECT (sql_volatile())[1] AS a FROM generate_series(1, 10)) _;
-- The functions of one expression have one snapshot, the next expression has another
DO $$
DECLARE
    a timestamptz[];
    b timestamptz[];
BEGIN
    a := ARRAY[(SELECT at FROM instants.instant), instants.wait()];
    a := instants.sql_stable() || instants.plpgsql_stable() || instants.error_stable() || instants.calls_volatile();
    ASSERT instants.judge(VARIADIC a) = '1', a;
    b := instants.plpgsql_stable();
    ASSERT instants.judge(VARIADIC b) = '1' AND b[1] > a[1];
    IF (instants.sql_stable())[1] <= b[1] OR (instants.sql_atomic() = instants.sql_atomic()) IS NOT TRUE THEN
        RAISE 'no';
    END IF;
    -- a loop sees time pass, in SQL as well
    a := '{}';
    FOR i IN 1 .. 5 LOOP
        a := a || (SELECT at FROM instants.instant) || instants.plpgsql_volatile();
        PERFORM instants.wait();
    END LOOP;
    ASSERT instants.judge(VARIADIC a) = '15', a;
END $$;
-- With transactions of its own; the argument is evaluated by the snapshot of CALL
CREATE PROCEDURE transactions(a timestamptz[], INOUT result text) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 3 LOOP
        PERFORM instants.wait();
        a := a || (SELECT at FROM instants.instant);
        COMMIT;
        PERFORM instants.wait();
        a := a || instants.sql_stable();
        ROLLBACK;
    END LOOP;
    result := instants.judge(VARIADIC a);
END $$;
CALL transactions(plpgsql_stable() || sql_stable(), NULL);

-- A statement within a command
-- one instant for what EXECUTE, COPY, CREATE TABLE AS and REFRESH execute
PREPARE q AS SELECT judge(VARIADIC ARRAY[at] || plpgsql_stable() || sql_stable()) AS q FROM instant;
EXECUTE q;
COPY (SELECT judge(VARIADIC ARRAY[at] || plpgsql_stable() || sql_stable()) FROM instant) TO STDOUT;
CREATE TABLE made AS EXECUTE q;
CREATE MATERIALIZED VIEW kept AS
    SELECT judge(VARIADIC ARRAY[at] || instants.plpgsql_stable() || instants.sql_stable()) AS q FROM instant;
REFRESH MATERIALIZED VIEW kept;
TABLE made UNION ALL TABLE kept;

-- A cursor keeps its own, for what it calls, too
BEGIN;
DECLARE c CURSOR FOR SELECT judge(at, at2, (sql_stable())[1], (plpgsql_stable())[2]) AS own, judge(at,
    (sql_volatile())[1]) AS "volatile" FROM instant, (SELECT wait(), at AS at2 FROM instant) _, generate_series(1, 3);
-- it fetches later, and looks at the instant of its opening
SELECT wait();
FETCH 1 FROM c;
SELECT wait();
FETCH 2 FROM c;
COMMIT;

-- Eviction and referential actions: nested statements that serve an outer one.  What expires
-- while the statement runs isn't evicted, and may still be referenced
CREATE TABLE key (id int PRIMARY KEY);
CREATE TABLE reference (id int REFERENCES key ON DELETE CASCADE ON UPDATE CASCADE);
SELECT ttl.create_container('key', 60), ttl.create_container('reference', 60);

-- A row that expires in two seconds
CREATE FUNCTION expiring(OUT expires_at timestamptz) LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM instants.key;
    INSERT INTO instants.key (id, _ts) VALUES (1, clock_timestamp() - interval '58 s')
        RETURNING ttl.expires_at(key) INTO expires_at;
END $$;
CREATE FUNCTION wait_for(instant timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN PERFORM
    pg_sleep_until(instant + interval '1 ms'); RETURN true; END$$;
SELECT expiring() \gset
-- it expires in the middle of the statement
WITH later AS MATERIALIZED (SELECT wait_for(:'expiring')),
    referencing AS (INSERT INTO reference SELECT 1 FROM later RETURNING id),
    evicting AS (INSERT INTO key SELECT 1 FROM later ON CONFLICT DO NOTHING RETURNING id)
SELECT (SELECT count(*) FROM referencing) AS referencing, (SELECT count(*) FROM evicting) AS evicting;
-- afterwards it has expired, can't be referenced, and an INSERT takes its key
SELECT count(*) FROM key;
SELECT state('INSERT INTO instants.reference VALUES (1)');
INSERT INTO key VALUES (1);
TABLE reference;

-- COPY FROM is a statement like others: what expires while it runs isn't evicted
CREATE FUNCTION wait_in_trigger() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM
    wait_for(current_setting('instants.expiring', true)::timestamptz); RETURN new; END$$;
CREATE TRIGGER waits BEFORE INSERT ON key FOR EACH ROW EXECUTE FUNCTION wait_in_trigger();
SELECT set_config('instants.expiring', expiring()::text, false) <> '' AS set;
COPY key (id) FROM stdin;
1
\.
DROP TRIGGER waits ON key;
-- ... may still be referenced, as by an INSERT
CREATE TRIGGER waits BEFORE INSERT ON reference FOR EACH ROW EXECUTE FUNCTION wait_in_trigger();
SELECT set_config('instants.expiring', expiring()::text, false) <> '' AS set;
COPY reference (id) FROM stdin;
1
\.
DROP TRIGGER waits ON reference;
-- ... and holds up the eviction of what it references
CREATE TABLE holding (id int REFERENCES key);
SELECT ttl.create_container('holding', 60);
INSERT INTO key (id) VALUES (2);
INSERT INTO holding (id, _ts) VALUES (2, clock_timestamp() - interval '58 s') RETURNING ttl.expires_at(holding) AS expiring \gset
SELECT set_config('instants.expiring', :'expiring', false) <> '' AS set;
SET session_replication_role = replica;
UPDATE key SET _ts = '2020-01-01' WHERE id = 2;
RESET session_replication_role;
CREATE TRIGGER waits BEFORE INSERT ON key FOR EACH ROW EXECUTE FUNCTION wait_in_trigger();
COPY key (id) FROM stdin;
2
\.
DROP TRIGGER waits ON key;
DROP TABLE holding;
-- What has expired before it starts is, also where it is nested in one that started earlier
CREATE FUNCTION copied() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    rows bigint;
BEGIN
    PERFORM wait_for(expiring());
    COPY instants.key (id) FROM PROGRAM 'echo 1';
    GET DIAGNOSTICS rows = ROW_COUNT;
    RETURN rows;
END $$;
SELECT copied();

-- One snapshot for the whole transaction: one clock
CALL wind();
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT at FROM instant \gset
SELECT judge(VARIADIC ARRAY[:'at', (SELECT at
    FROM instant)] || plpgsql_stable() || sql_stable() || sql_volatile() || plpgsql_immutable(i) || error_stable())
    FROM generate_series(1, 1) i;

-- VOLATILE functions included
DO $$BEGIN PERFORM instants.wait(); ASSERT instants.plpgsql_volatile() = instants.plpgsql_stable(); END$$;
EXECUTE q;
-- a statement that writes, too
DELETE FROM key RETURNING judge(:'at', (sql_volatile())[1]);
COMMIT;

-- In parallel workers
ALTER FUNCTION sql_stable() PARALLEL SAFE;
ALTER FUNCTION sql_volatile() PARALLEL SAFE;
ALTER FUNCTION plpgsql_stable() PARALLEL SAFE;
ALTER FUNCTION wait() PARALLEL SAFE;
ALTER FUNCTION judge(VARIADIC timestamptz[]) PARALLEL SAFE;
CREATE FUNCTION is_worker(leader int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS $$BEGIN RETURN pg_backend_pid()
    <> leader; END$$;
SELECT pg_backend_pid() AS leader \gset
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET parallel_leader_participation = off;
TRUNCATE small;
DROP INDEX small_f_idx;
INSERT INTO small SELECT generate_series(1, 20);

-- Each row by a worker: STABLE functions at the leader's instant, VOLATILE ones later
CREATE VIEW in_workers AS
    SELECT judge(VARIADIC array_agg(a[1]) || array_agg(a[2]) || array_agg(b[2]) || (SELECT at
        FROM instant)) AS stable, count(DISTINCT c) > 5 AS "volatile", min(c) > min(a[1]) AS later,
        count(DISTINCT c) = 1 AS same, bool_and(w) AS workers
      FROM (SELECT sql_stable() || sql_stable() AS a, plpgsql_stable() AS b, (sql_volatile())[1] AS c,
          is_worker(current_setting('instants.leader')::int) AS w FROM small WHERE g > 0 OFFSET 0) _;
SELECT set_config('instants.leader', :'leader', false) = :'leader' AS set;
SELECT * FROM in_workers;
-- in REPEATABLE READ all at the transaction's
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT at FROM instant \gset
SELECT in_workers.*, at = :'at' AS one FROM in_workers, instant;
COMMIT;
DEALLOCATE q;
DROP SCHEMA instants CASCADE;
