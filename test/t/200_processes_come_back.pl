# The reaper's processes start by themselves, delete, stop and pause when told
# to, and come back when they have died.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('worker', <<'END');
ttl.naptime = 100ms
restart_after_crash = on
END

# Adds 10 rows that have expired and one that has not.  The reaper doesn't expect
# backdated rows: a change of policy makes it look.
sub fill
{
	my ($table) = @_;
	$node->safe_psql('postgres', <<"END");
INSERT INTO $table (note, _ts) SELECT 'expired', '2020-01-01' FROM generate_series(1, 10);
INSERT INTO $table (note, _ts) VALUES ('live', '2900-01-01');
SELECT ttl.set_default_ttl('$table', ttl.default_ttl('$table'));
END
}

# Waits until a cycle has begun and ended that begins from now on.
sub wait_for_cycle
{
	for (1 .. 2)
	{
		fill('witness');
		$node->wait_until("SELECT ttl.expired_count('witness') = 0");
	}
}

# Start

$node->processes_are('ttl launcher', 1, 'the launcher runs');
$node->safe_psql('postgres', 'CREATE EXTENSION ttl');
$node->processes_are('ttl reaper', 0, 'no worker runs for a database without a container');
$node->safe_psql('postgres', <<'END');
CREATE TABLE item (note text);
CREATE TABLE witness (note text);
SELECT ttl.create_container('item');
END
$node->processes_are('ttl reaper', 0, 'nor for one where TTL is off');
$node->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', 60)");
$node->processes_are('ttl reaper', 1, 'a worker runs as soon as it is on');
is( $node->safe_psql(
		'postgres', "SELECT datname FROM pg_stat_activity WHERE backend_type = 'ttl reaper'"),
	'postgres',
	'in that database');
$node->safe_psql('postgres', "SELECT ttl.create_container('witness', 60)");

# Deletion

fill('item');
$node->is_emptied('item', 'it deletes what has expired');
is($node->safe_psql('postgres', 'SELECT note FROM item'), 'live', '... and nothing else');
ok( $node->poll_query_until(
		'postgres',
		"SELECT rows_deleted = 10 AND last_reap IS NOT NULL AND last_error IS NULL AND lag IS NULL FROM ttl.stat_containers WHERE container = 'item'::regclass"
	),
	'... and counts it');
ok( $node->poll_query_until(
		'postgres',
		"SELECT cycles > 0 AND cost_spent > 0 AND last_cycle > now() - interval '1 hour' FROM ttl.stat_reaper WHERE database = 'postgres'"
	),
	'... and what it has cost');

# ttl.reaper

$node->configure('ttl.reaper = off');
$node->processes_are('ttl reaper', 0, 'no worker runs while ttl.reaper is off');
fill('item');
is($node->safe_psql('postgres', 'SELECT DISTINCT note FROM item'), 'live', 'rows are hidden');
is($node->stored('item', q{note = 'expired'}), '10', '... and stay stored');
$node->turn_reaper('on');
$node->is_emptied('item', 'they go as soon as it is on again');

# One container's deletion

$node->safe_psql('postgres', "SELECT ttl.alter_container('item', reaping => false)");
fill('item');
wait_for_cycle();
is($node->stored('item', q{note = 'expired'}), '10', 'rows of a paused container stay');
is($node->safe_psql('postgres', 'SELECT DISTINCT note FROM item'), 'live', '... hidden');
$node->safe_psql('postgres', "SELECT ttl.alter_container('item', reaping => true)");
$node->is_emptied('item', '... until it is resumed');

$node->safe_psql('postgres', "SELECT ttl.alter_container('item', reap_delay => '900 years')");
fill('item');
wait_for_cycle();
is($node->stored('item', q{note = 'expired'}), '10', 'rows stay for as long as reap_delay says');
$node->safe_psql('postgres', "SELECT ttl.alter_container('item', reap_delay => '1 hour')");
$node->stored_are('item', 0, '... and no longer', q{note = 'expired'});

$node->safe_psql('postgres', <<'END');
SELECT ttl.alter_container('item', reap_delay => '0');
SELECT ttl.set_default_ttl('item', NULL);
END
fill('item');
wait_for_cycle();
is($node->safe_psql('postgres', "SELECT count(*) FROM item WHERE note = 'expired'"),
	'10', 'nothing goes while TTL is off');
$node->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', 60)");
$node->is_emptied('item', '... and all when it is on again');

# A row expires while nobody does anything
$node->safe_psql('postgres',
	"INSERT INTO item (note, ttl, _ts) VALUES ('expired', 1, clock_timestamp())");
$node->stored_are('item', 0, 'a row goes when its time has come', q{note = 'expired'});

# Restart

$node->append_conf('postgresql.conf', 'ttl.reaper = off');
$node->restart;
fill('item');
$node->append_conf('postgresql.conf', 'ttl.reaper = on');
$node->restart;
$node->is_emptied('item', 'deletion goes on after a restart');

# Signals

my $pid = $node->pid_of('ttl reaper');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
fill('item');
$node->is_emptied('item', 'a worker survives cancellation');
is($node->pid_of('ttl reaper'), $pid, '... itself');

$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$node->process_is_not('ttl reaper', $pid, 'a worker that is terminated comes again');
fill('item');
$node->is_emptied('item', '... and deletes');

$pid = $node->pid_of('ttl launcher');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
$node->process_is_not('ttl launcher', $pid, 'the launcher comes again');
$node->processes_are('ttl reaper', 1, '... and has one worker run for the database');
fill('item');
$node->is_emptied('item', '... which deletes');

# Crash of a process: the postmaster starts everything anew.
for my $type ('ttl reaper', 'ttl launcher')
{
	$node->processes_are($type, 1, "the $type runs");
	my $log = -s $node->logfile;
	kill 'KILL', $node->pid_of($type);
	ok($node->wait_for_log(qr/all server processes terminated; reinitializing/, $log),
		"the $type is killed, the server starts anew");
	ok($node->poll_query_until('postgres', 'SELECT true'), '... and accepts connections');
	fill('item');
	$node->is_emptied('item', '... and deletes');
}

$node->stop;
done_testing();
