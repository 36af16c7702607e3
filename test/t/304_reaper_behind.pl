# Deletion that falls behind: it goes on, and the log says so.
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
ttl.naptime = 50ms
ttl.throughput = 1
ttl.cycle_cost_floor = 0
ttl.lag_warning = 2s
});
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE c (id int);
SELECT ttl.create_container('c', 3600);
INSERT INTO c (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 200000) g;
SELECT ttl.alter_container('c', reaping => true);
SELECT pg_sleep(5);
});
my $rows = $node->safe_psql('postgres', 'SELECT rows_deleted FROM ttl.stat_containers');
is($rows, 0, 'strictly leftovers starve');
my $log = slurp_file($node->logfile);
like($log, qr/deletion of expired rows of container "public.c" has been behind for [2-9] seconds/, 'the log says so');
like($log, qr/HINT:  Consider increasing "ttl.throughput"/, 'and what to do');
cmp_ok(scalar(() = $log =~ /has been behind/g), '<=', 3, 'not too often');

$node->append_conf('postgresql.conf', "ttl.cycle_cost_floor = 2000\n");
$node->reload;
ok($node->poll_query_until('postgres', 'SELECT rows_deleted > 1000 FROM ttl.stat_containers'),
	'a floor guarantees progress');

$node->append_conf('postgresql.conf', "ttl.throughput = 0\n");
$node->reload;
ok($node->poll_query_until('postgres', 'SELECT rows_deleted = 200000 FROM ttl.stat_containers'),
	'it catches up');
$node->stop;
done_testing();
