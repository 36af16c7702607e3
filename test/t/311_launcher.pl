
# Who cancels or terminates the launcher does not stop the deletion that goes on;
# the next launcher takes over the workers that it finds.
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

sub pid_of
{
	my ($type) = @_;
	return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = '$type' AND (datname = 'postgres' OR datname IS NULL)");
}

my $create = q{
CREATE EXTENSION IF NOT EXISTS ttl;
CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', 3600);
};
$node->safe_psql('postgres', $create);
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper'}), 'a worker');
my $worker = pid_of('ttl reaper');
my $launcher = pid_of('ttl launcher');

# cancelled: nothing happens, as the launcher shows by starting another worker
$node->safe_psql('postgres', "SELECT pg_cancel_backend($launcher)");
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', $create);
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND datname = 'second'}),
	'a launcher that is cancelled goes on');
is(pid_of('ttl launcher'), $launcher, '... itself');
is(pid_of('ttl reaper'), $worker, '... and so does the worker');

# terminated: the workers stay
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
$node->safe_psql('postgres', q{INSERT INTO item (id, _ts) VALUES (1, '2020-01-01')});
ok($node->poll_query_until('postgres', q{SELECT ttl.expired_count('item') = 0}), 'without a launcher the worker goes on');
ok($node->poll_query_until('postgres', qq{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl launcher' AND pid <> $launcher}),
	'another launcher comes');
is(pid_of('ttl reaper'), $worker, '... and lets the worker be');

# the workers are its own: it knows when one has gone, and starts another
$node->safe_psql('postgres', 'DROP TABLE item');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND datname = 'postgres'}), '... until it leaves');
$node->safe_psql('postgres', $create);
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND datname = 'postgres'}), '... and starts another');
$worker = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND datname = 'second'});
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
ok($node->poll_query_until('postgres', qq{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND datname = 'second' AND pid <> $worker}),
	'... and replaces one that was terminated');
$node->safe_psql('postgres', 'DROP DATABASE second');

my $log = -s $node->logfile;
$node->restart;
unlike(slurp_file($node->logfile, $log), qr/(PANIC|terminated by signal|could not)/, 'the server stops and starts');
$node->stop;
done_testing();
