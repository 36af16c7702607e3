# ttl.status: what becomes of each container's rows, in words.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', "ttl.naptime = 50ms\nttl.grace = 1h\n");

sub sql { return $node->safe_psql('postgres', shift); }

# The moment in the state is left out.
sub state_is
{
	my ($state, $what) = @_;
	my $query = q{SELECT regexp_replace(state, '\d.*', '...') FROM ttl.status WHERE container = 'item'::regclass};
	ok($node->poll_query_until('postgres', $query, $state), $what) or diag(sql('TABLE ttl.status'));
	return;
}

sql(q{
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', '36 hours')});
is(sql(q{SELECT default_ttl, lag, next_expiry FROM ttl.status}), '1 day 12:00:00||', 'no rows');
state_is('idle', 'nothing to delete');

sql(q{INSERT INTO item (id, _ts) VALUES (1, now() - interval '1 day')});
is(sql(q{SELECT next_expiry - now() BETWEEN '11 h' AND '12 h 1 s' FROM ttl.status}), 't', 'when the next row expires');
sql(q{SELECT ttl.set_default_ttl('item', 60)});
state_is('kept until ...', 'grace');
like(sql(q{SELECT state, lag FROM ttl.status}), qr/^kept until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+\d\d\|23:59:\d\d$/, 'until when, and since when');
sql(q{SELECT ttl.set_default_ttl('item', '36 hours')});
$node->configure('ttl.grace = 0');
sql(q{SELECT ttl.alter_container('item', reap_delay => '1 year'); INSERT INTO item (id, _ts) VALUES (2, now() - interval '2 days')});
state_is('kept until ...', 'reap_delay');

sql(q{SELECT ttl.alter_container('item', reaping => false)});
state_is('reaping is off', 'reaping');
sql(q{SELECT ttl.pause()});
state_is('paused', 'a pause');
sql(q{SELECT ttl.pause(now() + interval '1 day')});
state_is('paused until ...', 'a pause that ends');
sql(q{SELECT ttl.resume()});

sql(q{
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON item FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT ttl.alter_container('item', reaping => true, reap_delay => '0')});
ok($node->poll_query_until('postgres', q{SELECT state = 'blocked: 1 row' FROM ttl.status}), 'a row that cannot be deleted');
sql(q{DROP TRIGGER refuse ON item});
state_is('idle', 'it is deleted');

# One blocked row hides neither a backlog nor when that will be done
sql(q{
CREATE TABLE queue (id int PRIMARY KEY);
SELECT ttl.create_container('queue', 3600, indexing => 'consistent');
CREATE TRIGGER refuse BEFORE DELETE ON queue FOR EACH ROW WHEN (OLD.id = 0) EXECUTE FUNCTION refuse();
INSERT INTO queue (id, _ts) VALUES (0, now() - interval '9 days')});
my $queue = q{ttl.status WHERE container = 'queue'::regclass};
ok($node->poll_query_until('postgres', "SELECT state = 'blocked: 1 row' AND lag IS NULL FROM $queue"), 'a blocked row is no backlog');
$node->configure('ttl.cycle_cost_limit = 500');
sql(q{CREATE TABLE halves (id int) PARTITION BY RANGE (id);
CREATE TABLE halves_1 PARTITION OF halves FOR VALUES FROM (-100000) TO (1);
CREATE TABLE halves_2 PARTITION OF halves FOR VALUES FROM (1) TO (200001);
SELECT ttl.create_container('halves', 3600)});
sql(qq{INSERT INTO $_ (id, _ts) SELECT g, now() - interval '5 days' + g * interval '1 s' FROM generate_series(1, 200000) g})
  for qw(queue halves);
ok($node->poll_query_until('postgres', qq{SELECT state ~ '^behind' AND lag BETWEEN '2 days' AND '5 days' FROM $queue}), '... and hides none')
  or diag(sql("SELECT * FROM $queue"));
ok($node->poll_query_until('postgres', qq{SELECT state ~ '^behind, done in [0-9:]+, 1 blocked\$' FROM $queue}), 'when it will be done')
  or diag(sql("SELECT * FROM $queue"));
my $halves = q{ttl.status WHERE container = 'halves'::regclass};
ok($node->poll_query_until('postgres', qq{SELECT state ~ '^behind, done in [0-9:]+\$' AND lag BETWEEN '2 days' AND '5 days' FROM $halves}),
	'... and of a container with another partition, which is empty') or diag(sql("SELECT * FROM $halves"));
sql(q{DROP TABLE halves; SELECT ttl.pause()});
is(sql("SELECT state FROM $queue"), 'paused, 1 blocked', 'a pause is told before a backlog');
is(sql(qq{SELECT lag > interval '1 day' FROM $queue}), 't', '... whose lag is known all the same');
$node->configure('ttl.cycle_cost_limit = 1000000');
sql(q{SELECT ttl.resume()});
ok($node->poll_query_until('postgres', "SELECT state = 'blocked: 1 row' AND lag IS NULL FROM $queue"), 'it is done');

# A read of the views does not walk along all dead index entries
sql(q{SELECT ttl.pause(); DROP TRIGGER refuse ON queue; CALL ttl.reap('queue'); ALTER TABLE queue SET (autovacuum_enabled = off);
INSERT INTO queue (id, _ts) SELECT g, now() - interval '5 days' * (1 + random()) FROM generate_series(1, 60000) g; INSERT INTO queue VALUES (0)});
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql(q{CALL ttl.reap('queue')});
for my $view ('ttl.stat_containers', 'ttl.status')
{
	my ($hit) = sql("EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM $view WHERE container = 'queue'::regclass") =~ /^  Buffers: shared hit=(\d+)/m;
	cmp_ok($hit, '>', 100, "$view was read");
	cmp_ok($hit, '<', 30000, '... by a bounded number of buffers');
}
is(sql("SELECT lag IS NULL FROM $queue"), 't', '... and knows that nothing is left');
$old->quit;
sql('SELECT ttl.resume(); DROP TABLE queue');

# Why every DELETE fails, and what is damaged; the worker comes at once for what a transaction has changed with a policy
sub problem_is
{
	my ($table, $state, $what) = @_;

	ok($node->poll_query_until('postgres', "SELECT state = '$state' FROM ttl.status WHERE container = '$table'::regclass"), "$state: $what")
	  or diag(sql('TABLE ttl.status'));
	return;
}
sub failing_is
{
	my ($table, $error, $what) = @_;

	problem_is($table, 'failing: see last_error', $what);
	like(sql("SELECT last_error FROM ttl.stat_containers WHERE container = '$table'::regclass"), $error, '... and why');
	return;
}
sql(q{BEGIN;
CREATE TABLE published (id int);
CREATE PUBLICATION publication FOR TABLE published;
SELECT ttl.create_container('published', 60);
INSERT INTO published VALUES (1, now() - interval '1 hour');
COMMIT});
failing_is('published', qr/does not have a replica identity/, 'a publication');
sql('ALTER TABLE published REPLICA IDENTITY FULL');
problem_is('published', 'idle', 'a replica identity');
sql(q{CREATE ROLE someone; ALTER TABLE published OWNER TO someone; REVOKE DELETE ON published FROM someone;
INSERT INTO published VALUES (1, now() - interval '1 hour'); SELECT ttl.set_default_ttl('published', 61)});
failing_is('published', qr/permission denied/, 'no right to delete');
sql(q{BEGIN;
DROP TABLE published;
CREATE TABLE parted (id int) PARTITION BY LIST (id);
CREATE TABLE parted_1 PARTITION OF parted DEFAULT;
ALTER TABLE parted_1 OWNER TO someone;
SELECT ttl.create_container('parted', 60);
INSERT INTO parted VALUES (1, now() - interval '1 hour');
COMMIT});
failing_is('parted', qr/owner/, 'a partition of another owner');
sql(q{BEGIN;
DROP TABLE parted;
CREATE TABLE mixed (id int) PARTITION BY LIST (id);
CREATE TABLE mixed_1 PARTITION OF mixed FOR VALUES IN (1);
CREATE TABLE mixed_2 PARTITION OF mixed FOR VALUES IN (2);
CREATE PUBLICATION of_mixed FOR TABLE mixed_2;
SELECT ttl.create_container('mixed', 60);
INSERT INTO mixed VALUES (2, now() - interval '1 hour');
COMMIT});
failing_is('mixed', qr/does not have a replica identity/, 'one of two partitions');
sql(q{SELECT ttl.pause(); INSERT INTO mixed VALUES (1, now() - interval '1 hour'); CALL ttl.reap('mixed', 1)});
is(sql(q{SELECT problem FROM ttl.outlook('mixed')}), 'failing: see last_error', '... also after a CALL that deletes from the other');
sql(q{SELECT ttl.resume();
BEGIN;
DROP TABLE mixed;
CREATE TABLE refused (id int);
CREATE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'none'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON refused EXECUTE FUNCTION refuse_all();
SELECT ttl.create_container('refused', 60);
INSERT INTO refused VALUES (1, now() - interval '1 hour');
COMMIT});
problem_is('refused', 'failing: see last_error', 'a trigger that refuses all');
sql('DROP TABLE refused');
my $log = -s $node->logfile;
sql(q{ALTER TABLE item DISABLE TRIGGER "~ttl"});
problem_is('item', 'damaged: trigger "~ttl" is disabled', 'a trigger that is disabled');
sql(q{SET row_security = off; BEGIN; CREATE TABLE idle_one (id int PRIMARY KEY); SELECT ttl.create_container('idle_one', 60);
DROP TRIGGER "~ttl" ON idle_one; COMMIT});
ok($node->wait_for_log(qr/WARNING:  trigger "~ttl" of container "public\.item" is disabled\n.*DETAIL:  Expired rows are hidden and deleted, but .*\n.*HINT:  Use ALTER TABLE \.\.\. ENABLE TRIGGER/, $log), '... which the log says, too');
ok($node->wait_for_log(qr/WARNING:  container "public\.idle_one" has lost its trigger "~ttl"\n.*DETAIL:  .*\n.*HINT:  Use ttl\.drop_container\(\), and ttl\.create_container\(\)/, $log), '... and that one is gone');
# visited again, by another worker
my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl reaper'};
my $pid = sql($worker);
sql("INSERT INTO item (id, _ts) VALUES (-7, '2020-01-01'); SELECT pg_terminate_backend($pid)");
ok($node->poll_query_until('postgres', q{SELECT ttl.expired_count('item') = 0}), '... while rows are deleted as before');
isnt(sql($worker), $pid, '... by another worker');
is(scalar(() = slurp_file($node->logfile, $log) =~ /WARNING:  trigger "~ttl" of container "public\.item" is disabled/g), 1, '... and it is said once');
sql(q{DROP TABLE idle_one; ALTER TABLE item ENABLE TRIGGER "~ttl"});
sql(q{SET row_security = off; DROP TRIGGER "~ttl" ON item});
problem_is('item', 'damaged: no trigger "~ttl"', 'dropped as by pg_dump --clean');
sql(q{SET row_security = off; DROP INDEX item__ts_idx});
problem_is('item', 'damaged: no trigger "~ttl"', 'the first problem is told');
sql(q{SELECT ttl.drop_container('item'); SELECT ttl.create_container('item', '36 hours', ts_column => '_ts', ttl_column => 'ttl');
SET row_security = off; DROP INDEX item__ts_idx});
problem_is('item', 'damaged: no expiry index', 'dropped likewise');
sql(q{SELECT ttl.alter_container('item', indexing => 'consistent')});

# Why there is no worker
my $origins = $node->pg_version < 18 ? 'max_replication_slots' : 'max_active_replication_origins';
$node->append_conf('postgresql.conf', "$origins = 0\nmax_worker_processes = 2\nmax_logical_replication_workers = 1");
$node->restart;
problem_is('item', 'no process (max_worker_processes)', 'the launcher finds no process');
$node->append_conf('postgresql.conf', 'max_worker_processes = 1');
$node->restart;
problem_is('item', 'no launcher (max_worker_processes)', 'neither does the server');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;
sql(q{BEGIN; SELECT ttl.alter_container('item', replication_origin => true);
INSERT INTO item (id, _ts) VALUES (3, now() - interval '2 days'); COMMIT});
failing_is('item', qr/cannot use a replication origin when "$origins" is 0/, 'an origin without slots');
sql(q{SELECT ttl.alter_container('item', replication_origin => false)});
problem_is('item', 'idle', 'all is well');

$node->append_conf('postgresql.conf', 'ttl.reaper = off');
$node->reload;
state_is('ttl.reaper is off', 'no worker');
sql(q{SELECT ttl.set_default_ttl('item', NULL)});
state_is('TTL is off', 'TTL off');
is(sql(q{SELECT default_ttl FROM ttl.status}), 'off', '... which is its default TTL');

# it fits a terminal of 100 columns
my ($out, $err);
$node->psql('postgres', q{CREATE TABLE customer_sessions (id int);
	SELECT ttl.create_container('customer_sessions', '30 days') \g /dev/null
	INSERT INTO customer_sessions VALUES (1);
	SELECT ttl.pause(now() + interval '1 day') \g /dev/null}, stdout => \$out, stderr => \$err);
$out = (run_command([ 'psql', '-X', '-d', $node->connstr('postgres'), '-c', 'TABLE ttl.status' ]))[0];
my ($widest) = sort { $b <=> $a } map { length } split /\n/, $out;
cmp_ok($widest, '<=', 100, 'the view fits 100 columns') or diag($out);

$node->stop;
done_testing();
