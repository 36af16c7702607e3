# Deletion beside replication: a table that publishes deletes without a replica
# identity, subscribers that want no deletions by the reaper, and a standby that
# falls behind.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('publisher', <<'END', allows_streaming => 'logical');
ttl.naptime = 100ms
END
my $version = $node->safe_psql('postgres', 'SHOW server_version_num');

# REPLICA IDENTITY NOTHING: no row can be deleted.  It is reported, and neither
# blamed on rows nor looped on.
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE nothing (id int PRIMARY KEY);
SELECT ttl.create_container('nothing', 3600);
ALTER TABLE nothing REPLICA IDENTITY NOTHING;
CREATE PUBLICATION p FOR TABLE nothing;
});
$node->add_expired('nothing', 1000);
my $stat = q{FROM ttl.stat_containers WHERE container = 'nothing'::regclass};
ok($node->poll_query_until('postgres', "SELECT last_error LIKE '%does not have a replica identity and publishes deletes' $stat"),
	'no replica identity: the error is in the statistics');
my $batches = $node->safe_psql('postgres', "SELECT batches $stat");
# until it has been tried at least three times, with pauses of 1 and 2 seconds
my $tried_at = $node->safe_psql('postgres', "SELECT last_error_at $stat");
for (1 .. 2)
{
	ok($node->poll_query_until('postgres', "SELECT last_error_at > '$tried_at' $stat"), '... it is tried again');
	$tried_at = $node->safe_psql('postgres', "SELECT last_error_at $stat");
}
cmp_ok($node->safe_psql('postgres', "SELECT batches $stat") - $batches, '<', 40, '... not in a loop');
is($node->safe_psql('postgres', "SELECT blocked_rows, rows_deleted $stat"), '0|0', '... no row is blamed');
is(scalar(() = slurp_file($node->logfile) =~ /WARNING:  could not delete expired rows of table "public.nothing"/g), 1, '... the log says it once');
my ($rc, $stdout, $stderr) = $node->psql('postgres', "CALL ttl.reap('nothing')");
is(scalar(() = $stderr =~ /WARNING:  could not delete expired rows of table "public.nothing": cannot delete from table "nothing" because it does not have a replica identity/g),
	1, 'CALL ttl.reap says it once');
like($stderr, qr/NOTICE:  ttl: 0 expired rows deleted/, '... and deletes nothing');
# 8 seconds would be the next pause, and then more
$node->safe_psql('postgres', 'ALTER TABLE nothing REPLICA IDENTITY DEFAULT');
my $start = time;
ok($node->poll_query_until('postgres', "SELECT rows_deleted = 1000 $stat"), 'with a replica identity they go');
cmp_ok(time - $start, '<', 15, '... soon');

# origin = none

SKIP:
{
	skip 'subscriptions have no origin before PostgreSQL 16', 4 if $version < 160000;

	my $subscriber = TtlNode->new('subscriber');
	$subscriber->init;
	$subscriber->start;
	my $create = 'CREATE TABLE tagged (id int PRIMARY KEY); CREATE TABLE plain (id int PRIMARY KEY)';
	$subscriber->safe_psql('postgres', $create);
	# other columns of a container aren't published, nor wanted there
	$node->safe_psql('postgres', qq{
$create;
SELECT ttl.create_container(t, 3600) FROM unnest('{tagged, plain}'::regclass[]) t;
SELECT ttl.alter_container('tagged', replication_origin => true);
CREATE PUBLICATION q FOR TABLE tagged (id), plain (id);
});
	my $connstr = $node->connstr('postgres');
	$subscriber->safe_psql('postgres',
		"CREATE SUBSCRIPTION s CONNECTION \$\$$connstr\$\$ PUBLICATION q WITH (origin = none)");
	$subscriber->wait_for_subscription_sync($node, 's');
	$node->safe_psql('postgres', 'INSERT INTO tagged (id) VALUES (0); DELETE FROM tagged WHERE id = 0; INSERT INTO tagged (id) VALUES (-1)');
	$node->add_expired($_, 100) for 'tagged', 'plain';
	ok($node->poll_query_until('postgres', "SELECT ttl.expired_count('tagged') + ttl.expired_count('plain') = 0"), 'the reaper deletes');
	$node->wait_for_flush;
	$node->wait_for_catchup('s');
	is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM plain'), '0', 'a subscription with origin = none gets deletions');
	is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM tagged WHERE id > 0'), '100', '... but not those that are tagged');
	is($subscriber->safe_psql('postgres', 'SELECT string_agg(id::text, \',\') FROM tagged WHERE id <= 0'), '-1', '... and those of users');
	$subscriber->stop;
}

# ttl.replica_lag_limit

$node->configure("ttl.replica_lag_limit = 1MB");
$node->backup('b');
my $standby = TtlNode->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
ok($standby->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}), 'a standby stops its replay');

$node->safe_psql('postgres', q{CREATE TABLE lagging (id int); SELECT ttl.create_container('lagging')});
$node->add_expired('lagging', 50000);
$stat = q{FROM ttl.stat_containers WHERE container = 'lagging'::regclass};
my $cycles = $node->safe_psql('postgres', 'SELECT cycles FROM ttl.stat_reaper');
ok($node->poll_query_until('postgres', qq{SELECT stopped_by = 'replica lag' AND cycles > $cycles + 3 FROM ttl.stat_reaper}),
	'... deletion waits');
is($node->safe_psql('postgres', "SELECT rows_deleted $stat"), '0', '... has deleted nothing');
is($node->safe_psql('postgres', 'SELECT count(*) FROM lagging'), '0', '... and nobody sees what has expired');

$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
ok($node->poll_query_until('postgres', "SELECT rows_deleted = 50000 $stat"), 'it goes on with the standby');

$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
$node->add_expired('lagging', 50000);
$standby->stop('immediate');
ok($node->poll_query_until('postgres', "SELECT rows_deleted = 100000 $stat"), 'a standby that has gone holds up nothing');

# pg_receivewal says what it has written, and applies nothing.
my $said;
my $receiver = IPC::Run::start([ 'pg_receivewal', '-D', PostgreSQL::Test::Utils::tempdir(), '--no-loop', '-s', '1', '-d', $node->connstr('postgres') ], '>', \$said, '2>', \$said);
$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_replication WHERE write_lsn IS NOT NULL AND replay_lsn IS NULL});
$receiver->signal('STOP');
$cycles = $node->safe_psql('postgres', 'SELECT cycles FROM ttl.stat_reaper');
$node->add_expired('lagging', 50000);
ok($node->poll_query_until('postgres', qq{SELECT stopped_by = 'replica lag' AND cycles > $cycles + 3 FROM ttl.stat_reaper}),
	'deletion waits for pg_receivewal');
is($node->safe_psql('postgres', "SELECT rows_deleted $stat"), '100000', '... has deleted nothing');
$receiver->signal('CONT');
ok($node->poll_query_until('postgres', "SELECT rows_deleted = 150000 $stat"), '... and goes on with it');
$receiver->signal('TERM');
$receiver->finish;

$node->configure("synchronous_standby_names = 'standby'");
{
	local $ENV{PGOPTIONS} = '-c synchronous_commit=local';
	$node->add_expired('lagging', 50000);
}
ok($node->poll_query_until('postgres', "SELECT rows_deleted = 200000 $stat"), 'a standby that has gone holds up nothing even if users wait for it');

$node->stop;
done_testing();
