# The worker is a superuser's process that runs the code of tables' owners: as
# them, with nothing that one leaves behind for the next, whatever the names.
use strict;
use warnings;
use utf8;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END', extra => [ '--encoding=UTF8', '--locale=C' ]);
ttl.naptime = 100ms
END
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE ROLE ann;
CREATE ROLE bob;
GRANT CREATE ON SCHEMA public TO ann, bob;
CREATE TABLE seen (id int GENERATED ALWAYS AS IDENTITY, by_user name, what text);
GRANT ALL ON seen TO PUBLIC;
-- tells what it finds, and leaves all it can
CREATE FUNCTION litter() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.seen (by_user, what) SELECT current_user, concat_ws(', ', current_setting('search_path'), current_setting('ttl.touch'), nullif(current_setting('my.setting', true), ''),
        current_setting('row_security'), current_setting('default_transaction_read_only'), current_setting('statement_timeout'),
        (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
        (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors), (SELECT count(*) FROM pg_class WHERE relpersistence = 't'));
    PERFORM set_config(s, v, false) FROM (VALUES ('search_path', 'public'), ('ttl.touch', 'off'), ('my.setting', current_user), ('row_security', 'off'),
        ('default_transaction_read_only', 'on'), ('statement_timeout', '1')) t (s, v);
    PERFORM pg_advisory_lock(5);
    EXECUTE OLD.how;
    RETURN OLD;
END $$;
-- tries what a superuser could do
CREATE FUNCTION escape() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    attempt text;
BEGIN
    FOREACH attempt IN ARRAY ARRAY['RESET ROLE', 'SET ROLE NONE', 'SET SESSION AUTHORIZATION DEFAULT', 'SET LOCAL ttl.show_expired = on', 'SET LOCAL session_replication_role = replica', 'CREATE ROLE eve', 'COMMIT',
        'UPDATE ttl.container SET reaping = false', 'COPY public.seen TO PROGRAM ''cat''', 'SELECT pg_reload_conf()'] LOOP
        BEGIN
            EXECUTE attempt;
            INSERT INTO public.seen (by_user, what) VALUES (current_user, 'done: ' || attempt);
        EXCEPTION WHEN OTHERS THEN
            INSERT INTO public.seen (by_user, what) VALUES (current_user, SQLSTATE);
        END;
    END LOOP;
    RETURN NULL;
END $$;
});

# what one leaves is not there for the next, and what would last cannot be made
$node->safe_psql('postgres', q{
BEGIN;
CREATE TABLE of_ann (id int PRIMARY KEY, how text DEFAULT '');
CREATE TABLE of_bob (id int PRIMARY KEY, how text DEFAULT '');
SELECT ttl.create_container(c, 3600) FROM unnest('{of_ann, of_bob}'::regclass[]) c;
CREATE TRIGGER litter BEFORE DELETE ON of_ann FOR EACH ROW EXECUTE FUNCTION litter();
CREATE TRIGGER litter BEFORE DELETE ON of_bob FOR EACH ROW EXECUTE FUNCTION litter();
ALTER TABLE of_ann OWNER TO ann;
ALTER TABLE of_bob OWNER TO bob;
INSERT INTO of_ann (id, how, _ts) VALUES (1, 'SELECT', '2020-01-01');
INSERT INTO of_bob (id, how, _ts) VALUES (1, 'SELECT', '2020-01-01');
COMMIT;
});
ok($node->poll_query_until('postgres', q{SELECT sum(rows_deleted) = 2 FROM ttl.stat_containers}), 'rows of two owners are deleted');
is($node->safe_psql('postgres', q{SELECT DISTINCT by_user, what FROM seen ORDER BY by_user}),
	"ann|pg_catalog, pg_temp, on, on, off, 0, 0, 0, 0, 0\nbob|pg_catalog, pg_temp, on, on, off, 0, 0, 0, 0, 0",
	'each finds a session as new, and himself');
foreach my $attempt ('PREPARE kept AS SELECT 1', 'CREATE TEMPORARY TABLE seen (id int)', 'LISTEN told', 'DECLARE held CURSOR WITH HOLD FOR SELECT 1',
	'CREATE DOMAIN pg_temp.kind AS int', q{CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'})
{
	# of a superuser's table, too
	foreach my $role ('ann', 'CURRENT_USER')
	{
		$node->safe_psql('postgres', qq{
BEGIN;
DROP TABLE of_ann;
CREATE TABLE of_ann (id int PRIMARY KEY, how text);
SELECT ttl.create_container('of_ann', 3600);
CREATE TRIGGER litter BEFORE DELETE ON of_ann FOR EACH ROW EXECUTE FUNCTION litter();
ALTER TABLE of_ann OWNER TO $role;
INSERT INTO of_ann (id, how, _ts) VALUES (1, \$\$$attempt\$\$, '2020-01-01'), (2, 'SELECT', '2020-01-01');
COMMIT;
});
		ok( $node->poll_query_until('postgres',
				q{SELECT rows_deleted = 1 AND blocked_rows = 1 AND last_error ~ '(within|in) security-restricted operation' FROM ttl.stat_containers WHERE container = 'of_ann'::regclass}),
			"refused to a trigger of ${role}'s: $attempt");
	}
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relpersistence = 't'}), '0', 'no temporary object is left');

# nobody gets the worker's rights
$node->safe_psql('postgres', q{
TRUNCATE seen;
DROP TABLE of_ann, of_bob;
BEGIN;
CREATE TABLE of_ann (id int PRIMARY KEY);
SELECT ttl.create_container('of_ann', 3600);
ALTER TABLE of_ann OWNER TO ann;
CREATE TRIGGER escape BEFORE DELETE ON of_ann FOR EACH ROW EXECUTE FUNCTION escape();
INSERT INTO of_ann (id, _ts) VALUES (1, '2020-01-01');
COMMIT;
});
ok($node->poll_query_until('postgres', q{SELECT blocked_rows = 1 FROM ttl.stat_containers}), 'a row that a trigger keeps is blocked');
is($node->safe_psql('postgres', q{SELECT DISTINCT by_user, what FROM seen ORDER BY what}),
	"ann|0A000\nann|42501", 'what a superuser could do is refused');

# nor who has a trigger on a superuser's partition: it is told once, and deleted when that is his
my $log_start = -s $node->logfile;
$node->safe_psql('postgres', q{
DROP TABLE of_ann;
TRUNCATE seen;
BEGIN;
SET ROLE ann;
CREATE TABLE of_ann (id int) PARTITION BY LIST (id);
SELECT ttl.create_container('of_ann', 3600);
CREATE TRIGGER escape AFTER DELETE ON of_ann FOR EACH ROW EXECUTE FUNCTION escape();
CREATE TABLE all_of_ann PARTITION OF of_ann FOR VALUES IN (1);
RESET ROLE;
CREATE TABLE of_superuser PARTITION OF of_ann FOR VALUES IN (2);
INSERT INTO of_ann (id, _ts) SELECT 1 + g % 2, '2020-01-01' FROM generate_series(1, 100) g;
COMMIT;
});
ok($node->poll_query_until('postgres', q{SELECT rows_deleted = 50 AND last_error LIKE 'partition "of_superuser" and table "of_ann" have different owners%' FROM ttl.stat_containers}),
	'a partition that is somebody else\'s keeps its rows');
is($node->safe_psql('postgres', q{SELECT DISTINCT by_user FROM seen}), 'ann', 'triggers of the other have run for their owner alone');
$node->safe_psql('postgres', q{
INSERT INTO of_ann (id, _ts) VALUES (2, '2020-01-01');
ALTER TABLE of_superuser OWNER TO ann;
});
ok($node->poll_query_until('postgres', q{SELECT rows_deleted = 101 FROM ttl.stat_containers}), '... until it is not');
is($node->safe_psql('postgres', q{SELECT DISTINCT by_user FROM seen}), 'ann', '... and they still do');
my $told = () = slurp_file($node->logfile, $log_start) =~ /WARNING:  could not delete expired rows of table "public.of_superuser": partition/g;
is($told, 1, '... told once');

# nor by what is left for COMMIT: what is deferred is done with the statement, and nothing can be deferred anew
$node->safe_psql('postgres', q{
TRUNCATE seen;
DROP TABLE of_ann;
CREATE FUNCTION tell(what text) RETURNS text LANGUAGE sql AS 'INSERT INTO public.seen (by_user, what) VALUES (current_user, what) RETURNING what';
CREATE FUNCTION leave_more() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM public.tell(TG_ARGV[0]);
    IF TG_ARGV[0] = 'first' THEN
        INSERT INTO public.other_of_ann VALUES (1);
        IF OLD.id = 2 THEN
            SET CONSTRAINTS ALL DEFERRED;
            INSERT INTO public.other_of_ann VALUES (2);
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE TABLE of_ann (id int);
CREATE TABLE other_of_ann (id int);
SELECT ttl.create_container('of_ann', 3600);
ALTER TABLE of_ann OWNER TO ann;
ALTER TABLE other_of_ann OWNER TO ann;
CREATE CONSTRAINT TRIGGER t AFTER DELETE ON of_ann DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION leave_more('first');
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON other_of_ann DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION leave_more('second');
INSERT INTO of_ann (id, _ts) VALUES (1, '2020-01-01'), (2, '2020-01-01');
});
ok($node->poll_query_until('postgres', q{SELECT rows_deleted = 1 AND blocked_rows = 1 FROM ttl.stat_containers}), 'a row is deleted, for which much is deferred');
is($node->safe_psql('postgres', q{SELECT by_user, what FROM seen ORDER BY id}),
	"ann|first\nann|second", '... which runs as the owner');
is($node->safe_psql('postgres', q{SELECT last_error FROM ttl.stat_containers}),
	'cannot fire deferred trigger within security-restricted operation', '... and for the other, deferring anything anew is refused');

# a superuser's CALL leaves nothing of theirs to the session that goes on, and his own deferred triggers to him
$node->safe_psql('postgres', q{
TRUNCATE seen;
SELECT ttl.alter_container('of_ann', reaping => false);
CREATE TABLE mine (id int);
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION leave_more('mine');
CREATE PROCEDURE reap() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..2 LOOP
        INSERT INTO public.mine VALUES (i);
        INSERT INTO public.of_ann (id, _ts) VALUES (2, '2020-01-01');
        CALL ttl.reap('public.of_ann');
    END LOOP;
END $$;
CALL reap();
});
is($node->safe_psql('postgres', q{SELECT string_agg(replace(by_user, current_user, 'superuser') || ' ' || what, ', ' ORDER BY id) FROM seen}),
	'superuser mine, superuser mine', 'in a CALL, deferring anything anew is refused');
is($node->safe_psql('postgres', q{
TRUNCATE seen, mine;
DROP TRIGGER t ON of_ann;
CREATE CONSTRAINT TRIGGER t AFTER DELETE ON of_ann DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION leave_more('deferred');
TRUNCATE of_ann;
CALL reap();
SELECT string_agg(replace(by_user, current_user, 'superuser') || ' ' || what, ', ' ORDER BY id) FROM seen}),
	join(', ', ('superuser mine', 'ann deferred') x 2), '... and what is deferred runs at once, as the owner');

# rows of two owners that reference each other go in transactions of their own
$node->safe_psql('postgres', q{
TRUNCATE seen;
CREATE SCHEMA of_ann AUTHORIZATION ann;
CREATE SCHEMA of_bob AUTHORIZATION bob;
GRANT USAGE ON SCHEMA of_ann, of_bob TO PUBLIC;
CREATE FUNCTION plant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION pg_temp.evil() RETURNS boolean LANGUAGE plpgsql AS %L',
        format('BEGIN INSERT INTO public.seen (by_user, what) VALUES (current_user, ''evil of %s''); RETURN true; END', current_user));
    CREATE OR REPLACE TEMP VIEW log AS SELECT 1 AS id WHERE pg_temp.evil();
    GRANT SELECT ON log TO PUBLIC;
    RETURN OLD;
END $$;
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
    PERFORM FROM log;
    INSERT INTO public.seen (by_user, what) VALUES (current_user, TG_TABLE_NAME);
    RETURN OLD;
END $$;
CREATE TABLE log (id int);
GRANT SELECT ON log TO PUBLIC;
});
foreach my $pair ([ 'ann', 'bob' ], [ 'bob', 'ann' ])
{
	my ($upper, $lower) = @$pair;

	$node->safe_psql('postgres', qq{
BEGIN;
TRUNCATE seen;
CREATE TABLE of_$upper.parent (id int PRIMARY KEY);
CREATE TABLE of_$lower.child (id int, p int REFERENCES of_$upper.parent);
SELECT ttl.create_container(c, 3600) FROM unnest('{of_$upper.parent, of_$lower.child}'::regclass[]) c;
ALTER TABLE of_$upper.parent OWNER TO $upper;
ALTER TABLE of_$lower.child OWNER TO $lower;
CREATE TRIGGER a BEFORE DELETE ON of_$lower.child FOR EACH ROW EXECUTE FUNCTION audit();
CREATE TRIGGER a BEFORE DELETE ON of_$upper.parent FOR EACH ROW EXECUTE FUNCTION audit();
INSERT INTO of_$upper.parent SELECT generate_series(1, 50);
INSERT INTO of_$lower.child (id, p, _ts) SELECT g, g, '2020-01-01' FROM generate_series(1, 50) g;
SET LOCAL ttl.touch = off;
UPDATE of_$upper.parent SET _ts = '2020-01-01';
COMMIT;
});
	ok($node->poll_query_until('postgres', qq{SELECT count(*) = 100 FROM seen WHERE what IN ('parent', 'child')
		AND NOT EXISTS (SELECT FROM ttl.containers c WHERE container::text ~ '\\.(parent|child)' AND ttl.expired_count(container) > 0)}),
		"rows of ${lower}'s that reference rows of ${upper}'s, and these, are deleted");
	is($node->safe_psql('postgres', q{SELECT DISTINCT by_user, what FROM seen ORDER BY what}),
		"$lower|child\n$upper|parent", '... each as its owner');
	$node->safe_psql('postgres', qq{DROP TABLE of_$upper.parent, of_$lower.child});
}

# a cascade to rows of another owner's is in the same transaction, and security-restricted
$node->safe_psql('postgres', q{
BEGIN;
TRUNCATE seen;
CREATE FUNCTION misguide() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('search_path', 'of_ann', false);
    RETURN OLD;
END $$;
CREATE FUNCTION tell_path() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.seen (by_user, what) VALUES (current_user, current_setting('search_path'));
    RETURN OLD;
END $$;
CREATE TABLE of_ann.parent (id int PRIMARY KEY);
CREATE TABLE of_bob.child (id int, p int REFERENCES of_ann.parent ON DELETE CASCADE);
SELECT ttl.create_container('of_ann.parent', 3600);
ALTER TABLE of_ann.parent OWNER TO ann;
ALTER TABLE of_bob.child OWNER TO bob;
CREATE TRIGGER misguide BEFORE DELETE ON of_ann.parent FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION misguide();
CREATE TRIGGER plant BEFORE DELETE ON of_ann.parent FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION plant();
CREATE TRIGGER a BEFORE DELETE ON of_bob.child FOR EACH ROW EXECUTE FUNCTION audit();
CREATE TRIGGER tell_path BEFORE DELETE ON of_bob.child FOR EACH ROW EXECUTE FUNCTION tell_path();
INSERT INTO of_ann.parent SELECT generate_series(1, 3);
INSERT INTO of_bob.child SELECT g, g FROM generate_series(1, 3) g;
SET LOCAL ttl.touch = off;
UPDATE of_ann.parent SET _ts = '2020-01-01';
COMMIT;
});
ok($node->poll_query_until('postgres', q{SELECT rows_deleted = 2 AND blocked_rows = 1 FROM ttl.stat_containers WHERE container = 'of_ann.parent'::regclass}),
	'rows that reference an expired one of another owner go by CASCADE');
is($node->safe_psql('postgres', q{SELECT by_user, what FROM seen GROUP BY 1, 2 ORDER BY what COLLATE "C"}),
	"bob|child\nbob|pg_catalog, pg_temp", '... whose triggers meet no setting of that one');
is($node->safe_psql('postgres', q{SELECT last_error FROM ttl.stat_containers WHERE container = 'of_ann.parent'::regclass}),
	'cannot create temporary table within security-restricted operation', '... nor a temporary object');
$node->safe_psql('postgres', q{DROP SCHEMA of_ann, of_bob CASCADE});

# settings of the database, a hindrance to whoever connects, are none to the worker
$node->turn_reaper('off');
$node->safe_psql('postgres', 'CREATE DATABASE strange');
$node->safe_psql('strange', q{
CREATE EXTENSION ttl;
CREATE TABLE item (id int);
SELECT ttl.create_container('item', 3600);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''synchronous_commit is %'', current_setting(''synchronous_commit''); END';
CREATE TRIGGER refuse BEFORE DELETE ON item FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION refuse();
INSERT INTO item (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 3) g;
CREATE ROLE nobody;
} . join('', map { "ALTER DATABASE strange SET $_;\n" } 'role = nobody', 'search_path = nowhere', 'session_replication_role = replica',
	'default_transaction_read_only = on', 'default_transaction_isolation = serializable', 'statement_timeout = 1', 'lock_timeout = 1',
	'idle_in_transaction_session_timeout = 1', 'exit_on_error = on', q{ttl.now = '2000-01-01'}));
$node->turn_reaper('on');
{
	local $ENV{PGOPTIONS} = '-c exit_on_error=off -c statement_timeout=0 -c role=none';
	ok($node->poll_query_until('strange', q{SELECT rows_deleted = 2 AND blocked_rows = 1 FROM ttl.stat_containers}),
		'strange settings of a database do not reach the worker');
	is($node->safe_psql('strange', 'SELECT last_error FROM ttl.stat_containers'), 'synchronous_commit is off', '... which makes nobody wait for a flush');
}

# names in the worker's way: a table, an archive, a partition that is emptied as a whole
$node->safe_psql('postgres', q{
DROP TABLE of_ann;
CREATE SCHEMA "Select; ""x"" 'y' %s";
CREATE TABLE "Select; ""x"" 'y' %s"."group" ("order" int PRIMARY KEY, "now" timestamptz NOT NULL DEFAULT clock_timestamp(), "user" int);
CREATE TABLE "Select; ""x"" 'y' %s"."archive ""of"" 'group' %1$s" ("order" int);
CREATE TABLE "Select; ""x"" 'y' %s"."from" ("in" int, """ '%s" timestamptz NOT NULL DEFAULT clock_timestamp()) PARTITION BY LIST ("in");
CREATE TABLE "Select; ""x"" 'y' %s"."values in (1); --" PARTITION OF "Select; ""x"" 'y' %s"."from" FOR VALUES IN (1);
CREATE TABLE "Select; ""x"" 'y' %s"."default" PARTITION OF "Select; ""x"" 'y' %s"."from" DEFAULT;
SELECT ttl.create_container('"Select; ""x"" ''y'' %s"."group"', 3600, 'now', 'user');
SELECT ttl.create_container('"Select; ""x"" ''y'' %s"."from"', 3600, '" ''%s', NULL);
SELECT ttl.alter_container('"Select; ""x"" ''y'' %s"."group"', archive_to => '"Select; ""x"" ''y'' %s"."archive ""of"" ''group'' %1$s"');
INSERT INTO "Select; ""x"" 'y' %s"."group" ("order", "now") VALUES (1, '2020-01-01'), (2, '2900-01-01');
INSERT INTO "Select; ""x"" 'y' %s"."from" ("in", """ '%s") VALUES (1, '2020-01-01'), (2, '2020-01-01'), (3, '2900-01-01');
});
ok($node->poll_query_until('postgres', q{SELECT sum(ttl.expired_count(container)) = 0 FROM ttl.containers}), 'hostile names are names');
is($node->safe_psql('postgres', q{
SET ttl.show_expired = on;
SELECT (SELECT string_agg("order"::text, ' ') FROM "Select; ""x"" 'y' %s"."group"),
       (SELECT string_agg("order"::text, ' ') FROM "Select; ""x"" 'y' %s"."archive ""of"" 'group' %1$s"),
       (SELECT string_agg("in"::text, ' ') FROM "Select; ""x"" 'y' %s"."from");
}), '2|1|3', '... and what had expired has gone where it should');
unlike(slurp_file($node->logfile), qr/(syntax error|exited with|does not exist|PANIC|terminated by signal)/, 'and the log is quiet');

$node->stop;
done_testing();
