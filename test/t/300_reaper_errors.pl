# What the worker makes of errors: references that will go, cancellation, CALL.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf(
	'postgresql.conf', q{
shared_preload_libraries = 'ttl'
ttl.naptime = 100ms
});
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent);
SELECT ttl.create_container('parent', 3600);
SELECT ttl.create_container('child', 3600);
-- children wait, so that the parents cannot go
SELECT ttl.alter_container('child', reaping => false);
BEGIN;
SET session_replication_role = replica;
INSERT INTO parent (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 20) g;
INSERT INTO child (id, parent, _ts) SELECT g, g, now() - interval '2h' FROM generate_series(1, 20) g;
COMMIT;
SELECT ttl.alter_container('parent', reaping => true);
});

my $blocked = q{SELECT blocked_rows FROM ttl.stat_containers WHERE container = 'parent'::regclass};
ok($node->poll_query_until('postgres', $blocked, '20'),
	'referenced rows are counted as blocked');
is($node->safe_psql('postgres', q{SELECT last_error IS NULL FROM ttl.stat_containers WHERE container = 'parent'::regclass}),
	't', 'that is no error yet');
$node->safe_psql('postgres', q{SELECT ttl.alter_container('child', reaping => true)});
my $start = time;
ok($node->poll_query_until('postgres',
		q{SELECT rows_deleted = 20 FROM ttl.stat_containers WHERE container = 'parent'::regclass}),
	'they go after what references them');
cmp_ok(time - $start, '<', 25, 'and soon');
unlike(slurp_file($node->logfile), qr/could not delete expired rows/, 'nothing is logged');

# a row that stays referenced is told about, in the end
$node->safe_psql('postgres', q{
BEGIN;
SET session_replication_role = replica;
INSERT INTO parent (id, _ts) VALUES (1, now() - interval '2h');
INSERT INTO child (id, parent, ttl) VALUES (1, 1, -1);
COMMIT;
SELECT ttl.alter_container('parent', reaping => true);
});
ok($node->poll_query_until('postgres',
		q{SELECT last_error LIKE '%violates foreign key constraint%' FROM ttl.stat_containers WHERE container = 'parent'::regclass}),
	'a lasting reference becomes an error');

# cancellation
my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl reaper'};
my $pid = $node->safe_psql('postgres', $worker);
$node->safe_psql('postgres', q{
CREATE TABLE big (id int);
SELECT ttl.create_container('big', 3600);
INSERT INTO big (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 50000) g;
SELECT ttl.alter_container('big', reaping => true);
});
for (1 .. 5)
{
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid), pg_sleep(0.05)");
}
ok($node->poll_query_until('postgres',
		q{SELECT rows_deleted = 50000 FROM ttl.stat_containers WHERE container = 'big'::regclass}),
	'a cancelled worker goes on');
is($node->safe_psql('postgres', $worker), $pid, 'and is the same');

# CALL wakes the worker
$node->safe_psql('postgres', q{INSERT INTO big (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 1000) g});
$start = time;
$node->safe_psql('postgres', q{CALL ttl.reap('big', 10)});
ok($node->poll_query_until('postgres',
		q{SELECT rows_deleted = 51000 FROM ttl.stat_containers WHERE container = 'big'::regclass}),
	'the worker finishes what CALL has begun');
cmp_ok(time - $start, '<', 6, 'without waiting for its next look');

$node->stop;
done_testing();
