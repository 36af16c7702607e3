# What stands in the way of deletion is known to one worker after the other.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
ttl.workers = 1
ttl.grace = 0
END

# another worker has begun, and has been at it
sub change_worker
{
	my $cycles = "SELECT sum(cycles) FROM ttl.stat_reaper WHERE database = 'postgres'";
	$node->turn_reaper('off');
	my $seen = $node->safe_psql('postgres', $cycles);
	$node->turn_reaper('on');
	$node->wait_until("SELECT ($cycles) > $seen + 2");
}

$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE SEQUENCE tries;
CREATE TABLE poison (id int PRIMARY KEY);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.id = 2 THEN
        PERFORM nextval('public.tries');
        RAISE 'row % is poisoned', OLD.id;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER refuse BEFORE DELETE ON poison FOR EACH ROW EXECUTE FUNCTION refuse();
INSERT INTO poison SELECT generate_series(1, 3);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (parent int REFERENCES parent);
INSERT INTO parent VALUES (1);
INSERT INTO child VALUES (1);
CREATE TABLE broken (id int PRIMARY KEY);
CREATE TABLE archive (id int);
INSERT INTO broken VALUES (1);
BEGIN;
SELECT ttl.create_container(c, 3600) FROM unnest('{poison, parent, broken}'::regclass[]) c;
SELECT ttl.alter_container('broken', archive_to => 'archive');
ALTER TABLE archive RENAME id TO other;
SET LOCAL ttl.touch = off;
UPDATE poison SET _ts = '2020-01-01';
UPDATE parent SET _ts = '2020-01-01';
UPDATE broken SET _ts = '2020-01-01';
COMMIT;
});
my $blocked = q{SELECT string_agg(concat_ws(' ', container, blocked_rows, last_error IS NOT NULL), ', ' ORDER BY container::text) FROM ttl.stat_containers};
ok($node->poll_query_until('postgres', "SELECT ($blocked) ~ 'poison 1 t' AND ($blocked) ~ 'broken . t'"), 'a row and a table are in trouble');
my @context = slurp_file($node->logfile) =~ /WARNING:  could not delete expired rows of table "public.poison": row 2 is poisoned\n.*CONTEXT:  (.*(?:\n\t.*)*)/;
is(scalar(() = "@context" =~ /deletion of expired rows of container "public.poison" in database "postgres"/g), 1, '... the log says where, once');
like("@context", qr/function \S*refuse\(\)/, '... and by what');

# ttl.reaper off and on stands for a worker that leaves for another database
my $tries = $node->safe_psql('postgres', 'SELECT last_value FROM tries');
my $log = -s $node->logfile;
for (1 .. 3)
{
	change_worker();
	is($node->safe_psql('postgres', q{SELECT blocked_rows FROM ttl.stat_containers WHERE container = 'poison'::regclass}), 1, 'the row is known to be blocked');
}
cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM tries'), '<', $tries + 10, 'others try it as seldom as one would');
unlike(slurp_file($node->logfile, $log), qr/could not delete expired rows of table "public\.(poison|broken)"/, '... nor log what is logged');

# Nor does a worker forget what it knows when somebody changes another policy, which has it read the list of containers
# again: of two partitions' rows, one is tried again after twenty times the 0.3 s that a try takes.
$node->safe_psql('postgres', q{
CREATE SEQUENCE slow_tries;
CREATE FUNCTION refuse_slowly() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('public.slow_tries'), pg_sleep(0.3);
    RAISE 'not yet';
END $$;
CREATE TABLE slow (part int, id int) PARTITION BY LIST (part);
CREATE TABLE slow1 PARTITION OF slow FOR VALUES IN (1);
CREATE TABLE slow2 PARTITION OF slow FOR VALUES IN (2);
CREATE TRIGGER refuse BEFORE DELETE ON slow FOR EACH ROW EXECUTE FUNCTION refuse_slowly();
SELECT ttl.create_container('slow', 3600);
INSERT INTO slow (part, id, _ts) SELECT g, g, '2020-01-01' FROM generate_series(1, 2) g;
CREATE TABLE beside (id int);
SELECT ttl.create_container('beside', 3600);
});
$node->wait_until(q{SELECT blocked_rows = 2 FROM ttl.stat_containers WHERE container = 'slow'::regclass});
my ($start, $slow_tries) = (time, $node->safe_psql('postgres', 'SELECT last_value FROM slow_tries'));
for my $n (1 .. 10)
{
	$node->safe_psql('postgres', "SELECT ttl.set_default_ttl('beside', 3600 + $n)");
	$node->add_expired('beside', 1);
	$node->is_emptied('beside', "a change of another policy, $n, has the worker look");
}
cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM slow_tries') - $slow_tries, '<=', 2 * (1 + (time - $start) / 6),
	'... and not forget when to try a row again');
$node->safe_psql('postgres', 'DROP TABLE slow, beside');

# what is referenced, too
like($node->safe_psql('postgres', q{SELECT last_error FROM ttl.stat_containers WHERE container = 'parent'::regclass}),
	qr/violates foreign key constraint/, 'a row that stays referenced is an error');
change_worker();
my @logged = slurp_file($node->logfile) =~ /could not delete expired rows of table "public\.parent"/g;
is(scalar @logged, 1, '... and logged once');

# a change of the container lets it be tried
$node->safe_psql('postgres', 'ALTER TABLE archive RENAME other TO id; ALTER TABLE broken ALTER id SET STATISTICS 50');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM archive'), 'a table is out of trouble');

# what has gone is forgotten
$node->safe_psql('postgres', 'TRUNCATE poison; INSERT INTO poison SELECT 2; SET ttl.touch = off; UPDATE poison SET _ts = $$2020-01-01$$');
$node->turn_reaper('off');
$node->safe_psql('postgres', 'DROP TRIGGER refuse ON poison; DROP TABLE parent CASCADE');
$node->turn_reaper('on');
ok($node->poll_query_until('postgres', q{SELECT bool_and(blocked_rows = 0) AND min(ttl.expired_count(container)) = 0 FROM ttl.stat_containers WHERE container <> 'poison'::regclass}), 'what has gone is forgotten');

# Workers follow each other until so many rows are left.  How many it takes is the machine's affair: without
# the pass that the last one has left, each would try the same rows, and none would come to the end.
sub workers_leave
{
	my ($table, $rows, $what) = @_;
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;

	change_worker() while $node->stored($table) != $rows && time < $until;
	is($node->stored($table), $rows, $what);
	return;
}

# a pass goes on where the last worker has left it, or none would come to its end
$node->safe_psql('postgres', q{
CREATE TABLE author (id int PRIMARY KEY);
CREATE TABLE book (author int REFERENCES author);
CREATE INDEX ON book (author);
INSERT INTO author SELECT generate_series(1, 30000);
INSERT INTO book SELECT generate_series(1, 29990);
SELECT ttl.create_container('author', 3600);
SET ttl.touch = off;
UPDATE author SET _ts = timestamptz '2020-01-01' + id * interval '1s';
VACUUM ANALYZE author, book;
});
$node->configure('ttl.cycle_cost_limit = 500');
workers_leave('author', 29990, 'workers that leave soon come to the rows behind many that are referenced');

# ... in each partition, though a worker leaves the next one the pass of one of them alone
$node->safe_psql('postgres', q{
DROP TABLE author, book;
CREATE TABLE author (id int PRIMARY KEY) PARTITION BY HASH (id);
CREATE TABLE author1 PARTITION OF author FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE author2 PARTITION OF author FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE book (author int REFERENCES author);
CREATE INDEX ON book (author);
INSERT INTO author SELECT generate_series(1, 30000);
INSERT INTO book SELECT generate_series(1, 29990);
SELECT ttl.create_container('author', 3600);
SET ttl.touch = off;
UPDATE author SET _ts = timestamptz '2020-01-01' + id * interval '1s';
VACUUM ANALYZE author, book;
});
workers_leave('author', 29990, '... in each of two partitions');

# ... also if each of these rows raises, and costs
$node->safe_psql('postgres', q{
CREATE TABLE cursed (id int);
CREATE FUNCTION curse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.id <= 800 THEN
        RAISE 'row % is cursed', OLD.id;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER curse BEFORE DELETE ON cursed FOR EACH ROW EXECUTE FUNCTION curse();
SELECT ttl.create_container('cursed', 3600);
INSERT INTO cursed SELECT id, timestamptz '2020-01-01' + id * interval '1s' FROM generate_series(1, 801) id;
});
workers_leave('cursed', 800, 'workers that leave soon come to the row behind many that raise');

# tables of a container that fail, two of them alike
$log = -s $node->logfile;
$node->safe_psql('postgres', q{
CREATE TABLE unidentified (part int, _ts timestamptz, ttl int) PARTITION BY LIST (part);
CREATE TABLE unidentified1 PARTITION OF unidentified FOR VALUES IN (1);
CREATE TABLE unidentified2 PARTITION OF unidentified FOR VALUES IN (2);
CREATE TABLE unidentified3 PARTITION OF unidentified FOR VALUES IN (3);
CREATE ROLE unprivileged;
GRANT CREATE, USAGE ON SCHEMA public TO unprivileged;
ALTER TABLE unidentified OWNER TO unprivileged;
ALTER TABLE unidentified1 OWNER TO unprivileged;
ALTER TABLE unidentified2 OWNER TO unprivileged;
ALTER TABLE unidentified3 OWNER TO unprivileged;
REVOKE DELETE ON unidentified3 FROM unprivileged;
CREATE PUBLICATION of_unidentified FOR TABLE unidentified1, unidentified2;
SELECT ttl.create_container('unidentified', 3600);
INSERT INTO unidentified SELECT id, '2020-01-01' FROM generate_series(1, 3) id;
});
ok($node->poll_query_until('postgres', q{SELECT state LIKE 'failing%' FROM ttl.status WHERE container = 'unidentified'::regclass}), 'tables fail');
change_worker() for 1 .. 3;
@logged = slurp_file($node->logfile, $log) =~ /could not delete expired rows of table "public\.unidentified/g;
cmp_ok(scalar @logged, '<=', 3, '... and the log has told of each once at most, however many workers meet them');
$node->safe_psql('postgres', 'DROP TABLE cursed; DROP TABLE unidentified');
$node->configure('ttl.cycle_cost_limit = 10000');

# two databases take turns
$node->safe_psql('postgres', 'CREATE DATABASE second TEMPLATE postgres');
$node->safe_psql('second', q{CREATE TABLE busy (id int); SELECT ttl.create_container('busy', 1)});
my $pids = q{SELECT string_agg(DISTINCT datname, ' ') FROM pg_stat_activity WHERE backend_type = 'ttl reaper'};
ok($node->poll_query_until('postgres', "SELECT ($pids) = 'second'"), 'a worker for the second database');
ok($node->poll_query_until('postgres', "SELECT ($pids) = 'postgres'"), '... and for the first again');

# ... also if the second always has work, so that a worker has two seconds, and rows take long before they raise: none
# would come to the end of halving their batch, nor to a tenth of them
$node->safe_psql('second', q{
CREATE TABLE slow (id int);
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN OLD; END';
CREATE TRIGGER wait BEFORE DELETE ON slow FOR EACH ROW EXECUTE FUNCTION wait();
SELECT ttl.create_container('slow', 3600);
INSERT INTO slow SELECT id, '2020-01-01' FROM generate_series(1, 10000) id;
});
ok($node->poll_query_until('second', q{SELECT rows_deleted > 0 FROM ttl.stat_containers WHERE container = 'slow'::regclass}), 'the second database is busy');
$node->safe_psql('postgres', q{
CREATE TABLE slow (id int PRIMARY KEY);
CREATE TABLE holding (slow int REFERENCES slow);
CREATE TABLE gone (id int);
CREATE FUNCTION refuse_late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.id <= 6 THEN
        PERFORM pg_sleep(0.6);
        RAISE 'row % is not to go', OLD.id;
    END IF;
    INSERT INTO public.gone VALUES (OLD.id);
    RETURN OLD;
END $$;
CREATE TRIGGER refuse BEFORE DELETE ON slow FOR EACH ROW EXECUTE FUNCTION refuse_late();
SELECT ttl.create_container('slow', 3600);
INSERT INTO slow SELECT id, timestamptz '2020-01-01' + id * interval '1s' FROM generate_series(1, 100) id;
SET session_replication_role = replica;
INSERT INTO holding SELECT generate_series(31, 40);
});
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM gone WHERE id = 100'),
	'workers that leave soon come to the rows behind some that take long to raise');
is($node->safe_psql('postgres', q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM gone}),
	join(' ', 7 .. 30, 41 .. 100), '... and have passed over none but these, and what is referenced');
$node->safe_psql('postgres', 'DROP TABLE slow, holding, gone');

# CREATE DATABASE terminates the worker of its template, with an error if it is busy
my $all = slurp_file($node->logfile);
unlike($all, qr/has changed the policy of container "[^"]+": *$/m, 'a change that changes nothing is not logged');
unlike($all, qr/(PANIC|terminated by signal|exited with exit code (?!1\b))/, 'all is well');
cmp_ok(scalar(() = $all =~ /exited with exit code 1/g), '<=', scalar(() = $all =~ /terminating background worker/g), '... and no worker has failed');

# what stood in the way has gone while nothing in the database was to be deleted
$node->safe_psql('postgres', 'DROP DATABASE second');
$node->safe_psql('postgres', 'CREATE DATABASE alone');
$node->safe_psql('alone', q{
CREATE EXTENSION ttl;
CREATE TABLE deadly (id int);
CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN SET exit_on_error = on; RAISE $$no$$; END';
CREATE TRIGGER die BEFORE DELETE ON deadly FOR EACH ROW EXECUTE FUNCTION die();
SELECT ttl.create_container('deadly', 3600);
});
$node->add_expired('deadly', 3, 'alone');
ok($node->poll_query_until('alone', q{SELECT last_error ~ 'has ended the worker' FROM ttl.stat_containers}), 'a table is left alone for five minutes');
$node->safe_psql('alone', q{SELECT ttl.alter_container('deadly', reaping => false)});
ok($node->poll_query_until('alone', q{SELECT state = 'stopped' FROM ttl.stat_reaper WHERE database = 'alone'}), '... its worker has nothing to do');
$node->safe_psql('alone', q{CREATE OR REPLACE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'});
$node->safe_psql('alone', q{SELECT ttl.alter_container('deadly', reaping => true)});
$node->is_emptied('deadly', '... and begins anew when it has', 'alone');

# ... and so it does when it is registered anew, which the worker has seen it leave
my $died_before = $node->safe_psql('alone', q{
CREATE TABLE beside (id int);
SELECT ttl.create_container('beside', 3600) \\g /dev/null
CREATE OR REPLACE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN SET exit_on_error = on; RAISE $$no$$; END';
SELECT clock_timestamp()});
$node->add_expired('deadly', 3, 'alone');
ok($node->poll_query_until('alone', "SELECT last_error_at > '$died_before' FROM ttl.stat_containers WHERE container = 'deadly'::regclass"), 'left alone again');
$node->safe_psql('alone', q{SELECT ttl.drop_container('deadly'); TRUNCATE deadly; DROP TRIGGER die ON deadly});
$node->add_expired('beside', 1, 'alone');
$node->is_emptied('beside', '... and it is no container any more', 'alone');
$node->safe_psql('alone', q{SELECT ttl.create_container('deadly', 1, ts_column => '_ts', ttl_column => 'ttl')});
$node->add_expired('beside', 1, 'alone');
$node->is_emptied('beside', '... but then one again', 'alone');
my $inserted = time;
$node->safe_psql('alone', q{INSERT INTO deadly (id, _ts) VALUES (1, '2020-01-01')});
$node->is_emptied('deadly', '... whose rows go when they come', 'alone');
cmp_ok(time - $inserted, '<', 7, '... which is looked at each second');

$node->stop;
done_testing();
