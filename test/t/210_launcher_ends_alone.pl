# Who cancels or terminates the launcher does not stop the deletion that goes on;
# the next launcher takes over the workers that it finds.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use POSIX qw(mkfifo);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
END

my $create = q{
CREATE EXTENSION IF NOT EXISTS ttl;
CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', 3600);
};
$node->safe_psql('postgres', $create);
$node->processes_are('ttl reaper', 1, 'a worker');
my $worker = $node->pid_of('ttl reaper', 'postgres');
my $launcher = $node->pid_of('ttl launcher');

# cancelled: nothing happens, as the launcher shows by starting another worker
$node->safe_psql('postgres', "SELECT pg_cancel_backend($launcher)");
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', $create);
$node->processes_are('ttl reaper', 1, 'a launcher that is cancelled goes on', 'second');
is($node->pid_of('ttl launcher'), $launcher, '... itself');
is($node->pid_of('ttl reaper', 'postgres'), $worker, '... and so does the worker');

# terminated: the workers stay
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
$node->safe_psql('postgres', q{INSERT INTO item (id, _ts) VALUES (1, '2020-01-01')});
$node->is_emptied('item', 'without a launcher the worker goes on');
$node->process_is_not('ttl launcher', $launcher, 'another launcher comes');
is($node->pid_of('ttl reaper', 'postgres'), $worker, '... and lets the worker be');

# the workers are its own: it knows when one has gone, and starts another
$node->safe_psql('postgres', 'DROP TABLE item');
$node->processes_are('ttl reaper', 0, '... until it leaves', 'postgres');
$node->safe_psql('postgres', $create);
$node->processes_are('ttl reaper', 1, '... and starts another', 'postgres');
$worker = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND datname = 'second'});
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
$node->process_is_not('ttl reaper', $worker, '... and replaces one that was terminated', 'second');

# A dropped database is not in the statistics, which the next launcher rids of it.
$launcher = $node->pid_of('ttl launcher');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
$node->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $launcher");
$node->safe_psql('postgres', 'DROP DATABASE second');
is($node->safe_psql('postgres', 'SELECT database FROM ttl.stat_reaper'), 'postgres', 'a database that is dropped without a launcher is not shown');

my $log = -s $node->logfile;
$node->restart;
unlike(slurp_file($node->logfile, $log), qr/(PANIC|terminated by signal|could not (?!send data to client))/, 'the server stops and starts');

# More requests than it can be told of while it is busy have it look everywhere.
for my $database ('third', 'fourth')
{
	# it is new to the launcher until it has had a worker
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->create_expired($database);
	$node->safe_psql($database, q{SELECT ttl.alter_container('c', reaping => true)});
	$node->is_emptied('c', 'a database has a worker', $database);
	$node->safe_psql($database, q{SELECT ttl.alter_container('c', reaping => false)});
	$node->processes_are('ttl reaper', 0, '... and none without work', $database);
}
$launcher = $node->pid_of('ttl launcher');
kill 'STOP', $launcher;
$node->safe_psql('third', q{
DO $$
BEGIN
	FOR i IN 1..100 LOOP
		PERFORM ttl.alter_container('c', reap_delay => i * interval '1 s');
		COMMIT;
	END LOOP;
END $$});
$node->safe_psql('fourth', q{
INSERT INTO c (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1001, 1010) g;
SELECT ttl.alter_container('c', reaping => true)});
kill 'CONT', $launcher;
$node->is_emptied('c', 'a request that comes after a hundred others is heeded', 'fourth');
$node->processes_are('ttl reaper', 0, '... and the others were for nothing', 'third');

# The launcher writes a file when it exits, and the disk takes its time, as a pipe does that nobody reads.
my $pipe = $node->data_dir . '/ttl.last_seen.tmp';
my $waits = 0;
$launcher = $node->pid_of('ttl launcher');
mkfifo($pipe, 0600) or die $!;
$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
for my $try (1 .. 20)
{
	$node->psql('postgres', 'SELECT 1', timeout => $PostgreSQL::Test::Utils::timeout_default, timed_out => \$waits) unless $waits;
	usleep(100_000);
}
is($waits, 0, 'no session waits for the file of the launcher');
like(slurp_file($pipe), qr/^\d+\n/, '... which has been waiting for the disk');
$node->stop('immediate');
done_testing();
