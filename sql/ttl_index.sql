-- ttl.create_ttl_index(): Time-To-Live as the users of Cosmos DB's API for MongoDB ask for it
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA ttl_index;
SET search_path = ttl_index, public;

--
-- The collection is made by the way: createIndex({"_ts": 1}, {expireAfterSeconds: 10})
--
SELECT ttl.create_ttl_index('coll', 10);
\d coll
SELECT container, default_ttl, ts_column, ttl_column, indexing, touch_on_update FROM ttl.containers
    WHERE container = 'coll'::regclass;
-- With other seconds the policy is changed, no second index made
SELECT ttl.create_ttl_index('coll', 3600);
SELECT ttl.default_ttl('coll');
SELECT ttl.create_ttl_index('coll', -1);
SELECT ttl.default_ttl('coll');

-- What a document says, as int32, int64 and double, and what means nothing
SELECT ttl.create_ttl_index('coll', 10);
INSERT INTO coll (doc) VALUES
    ('{"location": "Paris"}'),
    ('{"location": "Paris", "ttl": 20}'), ('{"location": "Paris", "ttl": 20.0}'),
        ('{"location": "Paris", "ttl": 2.0e1}'),
    ('{"location": "Paris", "ttl": -1}'), ('{"location": "Paris", "ttl": -1.0}'),
        ('{"location": "Paris", "ttl": 2147483647}'),
    ('{"location": "Paris", "ttl": 20.5}'), ('{"location": "Paris", "ttl": 2147483648}'),
        ('{"location": "Paris", "ttl": 2147483649}'),
    ('{"location": "Paris", "ttl": 0}'), ('{"location": "Paris", "ttl": -7}'), ('{"location": "Paris", "ttl": 1e400}'),
        ('{"location": "Paris", "ttl": "20"}'),
    ('{"location": "Paris", "ttl": true}'), ('{"location": "Paris", "ttl": null}'),
        ('{"location": "Paris", "ttl": [20]}'), ('{"location": "Paris", "ttl": {"ttl": 20}}'),
    ('{"location": "Paris", "nested": {"ttl": 20}}'), ('{"ttl": 7, "ttl": 20}'), ('["ttl", 20]'), ('20'), ('"ttl"'),
        ('null'), (NULL);
SELECT left(doc::text, 40) AS doc, ttl, ttl.expires_at(c) - _ts AS lives FROM coll c
    ORDER BY ttl NULLS FIRST, doc::text COLLATE "C";
DELETE FROM coll;

-- The nine cells
-- Of each item TTL, by each default TTL: whether a document 0, 11, 21 and 1000000 s old is found
CREATE TABLE own (name text, value text);
INSERT INTO own VALUES ('missing', NULL), ('never', '-1'), ('int32', '20'), ('int64', '20'), ('double', '20.0');
CREATE FUNCTION cell(seconds integer, item text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text := '';
    age integer;
BEGIN
    IF seconds IS NULL THEN
        PERFORM ttl.set_default_ttl('coll', NULL::integer);
    ELSE
        PERFORM ttl.create_ttl_index('coll', seconds);
    END IF;
    FOREACH age IN ARRAY ARRAY[0, 11, 21, 1000000] LOOP
        INSERT INTO coll (doc, _ts) VALUES (CASE WHEN item IS NULL THEN '{}' ELSE jsonb_build_object('ttl',
            item::numeric) END,
                                            clock_timestamp() - make_interval(secs => age));
        result := result || CASE WHEN EXISTS (SELECT FROM coll) THEN ' visible' ELSE ' gone' END;
        PERFORM set_config('ttl.show_expired', 'on', true);
        DELETE FROM coll;
        PERFORM set_config('ttl.show_expired', 'off', true);
    END LOOP;
    RETURN result;
END $$;
SELECT name, cell(NULL, value) AS "off", cell(-1, value) AS "-1", cell(10, value) AS "10" FROM own;

-- A document that is written anew has the TTL that it says now, from now on
SELECT ttl.create_ttl_index('coll', 10);
INSERT INTO coll (id, doc, _ts) VALUES ('00000000-0000-0000-0000-000000000001', '{"ttl": 1000000, "n": 1}',
    now() - interval '1 hour');
UPDATE coll SET doc = doc || '{"ttl": 20}';
SELECT doc, ttl, ttl.expires_at(c) - _ts AS lives FROM coll c;
UPDATE coll SET doc = doc - 'ttl';
SELECT doc, ttl, ttl.expires_at(c) - _ts AS lives FROM coll c;
INSERT INTO coll (id, doc) VALUES ('00000000-0000-0000-0000-000000000001', '{"ttl": -1, "n": 2}')
    ON CONFLICT (id) DO UPDATE SET doc = EXCLUDED.doc;
SELECT doc, ttl, ttl.expires_at(c) - _ts AS lives FROM coll c;
-- an expired document is not found, and its id is free
SET ttl.touch = off;
UPDATE coll SET doc = '{"ttl": 30, "n": 3}', _ts = now() - interval '1 minute';
RESET ttl.touch;
SELECT count(*) FROM coll;
INSERT INTO coll (id, doc) VALUES ('00000000-0000-0000-0000-000000000001', '{"n": 4}') ON CONFLICT (id) DO UPDATE
    SET doc = '{"n": "updated"}' RETURNING doc;
-- and is deleted
INSERT INTO coll (doc, _ts) SELECT jsonb_build_object('n', n, 'ttl', CASE
    WHEN n % 2 = 0 THEN 5 END), now() - interval '7 s' FROM generate_series(1, 10) n;
CALL ttl.reap('coll');
SET ttl.show_expired = on;
SELECT count(*) FROM coll;
RESET ttl.show_expired;

-- jsonb's operators and its index find documents that are live, and only these
CREATE INDEX ON coll USING gin (doc);
INSERT INTO coll (doc, _ts) VALUES ('{"tags": ["red", "blue"]}', now()), ('{"tags": ["red"]}',
    now() - interval '1 hour');
SET enable_seqscan = off;
EXPLAIN (COSTS OFF) SELECT doc FROM coll WHERE doc @> '{"tags": ["red"]}';
SELECT doc FROM coll WHERE doc @> '{"tags": ["red"]}';
-- without a mention of the container's columns, as well
SELECT doc->'tags'->>0 AS tag FROM coll WHERE doc ? 'tags' AND doc @? '$.tags[*] ? (@ == "red")';
RESET enable_seqscan;

-- A table that is there is registered as it is
CREATE TABLE "My docs" (id int PRIMARY KEY, doc jsonb);
INSERT INTO "My docs" VALUES (1, '{}');
-- either spelling leads to the same table
SELECT ttl.create_ttl_index('"My docs"', 60);
SELECT ttl.create_ttl_index('ttl_index."My docs"', 60);
SELECT ttl.drop_container('"My docs"', drop_columns => true);
SELECT * FROM "My docs";

-- Names are SQL's
-- an unquoted name is folded, or a second collection would appear beside the first
SELECT ttl.create_ttl_index('ttl_index.Folded', 1);
SELECT to_regclass('ttl_index.folded') IS NOT NULL AS folded;

-- What is refused leaves nothing behind
CREATE VIEW a_view AS SELECT 1;
SELECT args, refused(format('SELECT ttl.create_ttl_index(%s)', args)) FROM unnest(ARRAY['''new'', 0', '''new'', -2',
    '''new'', NULL', 'NULL, 10', ''''', 10', '''a b'', 10',
    '''nowhere.new'', 10', '''a_view'', 10', '''pg_class'', 10', '''pg_temp.new'', 10']) args \g (format=unaligned)
SELECT to_regclass('new') IS NULL AS nothing;
-- nor can anybody else change the collection, or make one where he can't create tables
GRANT USAGE ON SCHEMA ttl_index TO regress_ttl_user;
SET ROLE regress_ttl_user;
SELECT refused('SELECT ttl.create_ttl_index(''ttl_index.coll'', 10)'),
    refused('SELECT ttl.create_ttl_index(''ttl_index.new'', 10)');
RESET ROLE;
-- nor in a read-only transaction
BEGIN TRANSACTION READ ONLY;
SELECT refused('SELECT ttl.create_ttl_index(''new'', 10)');
COMMIT;

DROP SCHEMA ttl_index CASCADE;
