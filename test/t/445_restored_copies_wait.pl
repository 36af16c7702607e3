# What is started from a base backup deletes nothing before somebody says so, and what was off for
# long, as a snapshot of disks looks, waits for ttl.grace.  Standbys and servers that have crashed do neither.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use TestClock;
use Test::More;
use Time::HiRes qw(usleep);
use TtlNode;

my $held  = 'held after restore of a base backup';
my $clock = TestClock->new;

my $primary = TtlNode->start_new('primary', <<'END', has_archiving => 1, allows_streaming => 1);
ttl.reaper = off
ttl.naptime = 100ms
ttl.grace = 5min
autovacuum = off
wal_log_hints = on
wal_keep_size = 1GB
END
my $expired = q{INSERT INTO c (id, _ts) SELECT g, now() - interval '1h' FROM generate_series(1, 50) g;};
$primary->create_expired('postgres');
$primary->safe_psql('postgres', 'CREATE ROLE visitor; CREATE DATABASE other OWNER visitor');
$primary->create_expired('other');
$primary->backup('backup');

# A copy of the files of a server
sub snapshot_of
{
	my ($name, $from) = @_;
	my $node = TtlNode->new($name);
	mkdir $node->basedir;
	PostgreSQL::Test::RecursiveCopy::copypath($from->data_dir, $node->data_dir, filterfn => sub { return $_[0] ne 'postmaster.pid' });
	chmod 0700, $node->data_dir;
	my $port = $node->port;
	my $host = $node->host;
	$node->append_conf('postgresql.conf', "port = $port\nunix_socket_directories = '$host'\narchive_mode = off\nttl.reaper = on\n");
	return $node;
}

sub running
{
	my ($node) = @_;
	$node->start;
	return $node;
}

sub is_held
{
	my ($node, $what) = @_;
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	foreach my $database (qw(postgres other))
	{
		ok($node->poll_query_until('postgres', "SELECT state = '$held' FROM ttl.stat_reaper WHERE database = '$database'"), "$what: held in $database")
		  or diag($node->safe_psql('postgres', 'SELECT * FROM ttl.stat_reaper'));
		is($node->stored('c', 'id < 1000', $database), 50, '... nothing is deleted');
	}
	is($node->safe_psql('postgres', 'SELECT state FROM ttl.status'), 'held after restore', '... ttl.status says so');
	return;
}

# Children of the postmaster need a moment to notice.
sub crash
{
	my ($node) = @_;
	$node->kill9;
	for my $try (1 .. 50)
	{
		usleep(200_000);
		$node->{_pid} = undef;
		last if $node->start(fail_ok => 1);
	}
	return;
}

sub has_file
{
	my ($node, $file) = @_;
	return -e $node->data_dir . "/$file" ? 1 : 0;
}

# Plainly started
my $restored = running(TtlNode->new_of_backup('restored', $primary, 'backup', 'max_wal_senders = 5'));
is_held($restored, 'a base backup');
is($restored->safe_psql('postgres', 'SELECT count(*) FROM c'), 0, 'what has expired is hidden');
like(slurp_file($restored->logfile), qr/WARNING:  expired rows in database "postgres" are not deleted because the server was started from a base backup\n.*DETAIL:  .*\n.*HINT: .*ttl\.resume\(\)/, 'the log says why');
ok(!has_file($restored, 'ttl.held'), 'a worker has put it where standbys see it');

$restored->restart;
is_held($restored, 'restarted');
$restored->stop('immediate');
$restored->start;
is_held($restored, 'after an immediate shutdown');
crash($restored);
is_held($restored, 'after kill -9 of the postmaster');

# A standby, and a copy, of what is held
$restored->backup('held');
my %of_held = map { $_ => running(TtlNode->new_of_backup($_, $restored, 'held', '', has_streaming => 1)) } qw(heir witness);
$restored->wait_for_catchup('heir');
$of_held{heir}->promote;
is_held($of_held{heir}, 'a standby that is promoted before anybody has said so');
$of_held{heir}->stop('immediate');

# Words that are not the word
my (undef, undef, $err) = $restored->psql('other', 'SET ROLE visitor; SELECT ttl.resume()');
like($err, qr/must be superuser to resume deletion of expired rows after the start of a base backup/, 'not for the owner of a database');
$restored->safe_psql('postgres', 'BEGIN; SELECT ttl.resume(); ROLLBACK');
is_held($restored, 'rolled back');

# The word
$restored->safe_psql('other', 'SELECT ttl.resume()');
$restored->is_emptied('c', 'resumed');
$restored->is_emptied('c', '... in each database', 'other');
(undef, undef, $err) = $restored->psql('postgres', 'SELECT ttl.resume()');
like($err, qr/NOTICE:  deletion of expired rows is not held/, 'once is enough');
crash($restored);
$restored->safe_psql('postgres', $expired);
$restored->is_emptied('c', 'nor is it forgotten by a crash');
$restored->wait_for_catchup('witness');
$of_held{witness}->promote;
$of_held{witness}->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
$of_held{witness}->safe_psql('postgres', $expired);
$of_held{witness}->is_emptied('c', 'a standby of it, promoted afterwards, reaps');
$of_held{witness}->stop('immediate');
$restored->stop('immediate');

# Crashes before a worker has seen it, and resumed while there is none
my $early = TtlNode->new_of_backup('early', $primary, 'backup');
$early->append_conf('postgresql.conf', 'ttl.reaper = off');
$early->start;
ok(has_file($early, 'ttl.held'), 'without a worker it is a file');
ok(!has_file($early, 'backup_label'), '... and the label has gone');
crash($early);
$early->safe_psql('postgres', 'BEGIN; SELECT ttl.resume(); ROLLBACK');
ok(has_file($early, 'ttl.held'), '... which stays if ttl.resume() is rolled back');
$early->configure('ttl.reaper = on');
is_held($early, 'after kill -9 of a server without a worker');
$early->stop('immediate');
$early = TtlNode->new_of_backup('resumed_early', $primary, 'backup');
$early->append_conf('postgresql.conf', 'ttl.reaper = off');
$early->start;
$early->safe_psql('postgres', 'SELECT ttl.resume()');
ok(!has_file($early, 'ttl.held'), '... and goes with it');
$early->configure('ttl.reaper = on');
$early->is_emptied('c', 'resumed without a worker');
$early->stop('immediate');

# An archive that is replayed to its end
my $end = running(TtlNode->new_of_backup('end', $primary, 'backup', '', has_restoring => 1, standby => 0));
is_held($end, 'an archive that was replayed to its end');
$end->safe_psql('postgres', 'SELECT ttl.resume()');
$end->is_emptied('c', '... resumed');
$end->stop('immediate');

# To a target: both end with one word
my $target = running(TtlNode->new_of_backup('target', $primary, 'backup', "recovery_target = 'immediate'\nrecovery_target_action = promote\n", has_restoring => 1, standby => 0));
ok($target->poll_query_until('postgres', q{SELECT count(*) = 2 FROM ttl.stat_reaper WHERE state = 'held after recovery to a point in time'}), 'a recovery to a target is held as such');
$target->safe_psql('postgres', 'SELECT ttl.resume()');
$target->is_emptied('c', '... and resumed');
$target->stop('immediate');

# Single-user mode consumes the label, too.
my $single = TtlNode->new_of_backup('single', $primary, 'backup');
run_log([ 'postgres', '--single', '-D', $single->data_dir, 'postgres' ], '<', \"SELECT 1\n");
ok(!has_file($single, 'backup_label'), 'single-user mode has consumed the label');
$single->start;
is_held($single, 'after single-user mode');
$single->stop('immediate');

# Standbys
my $standby = running(TtlNode->new_of_backup('standby', $primary, 'backup', '', has_streaming => 1));
$primary->wait_for_catchup('standby');
$standby->promote;
$standby->is_emptied('c', 'a standby that is promoted reaps at once');
my $again = running(TtlNode->new_of_backup('again', $primary, 'backup', '', has_streaming => 1));
$primary->wait_for_catchup('again');
$again->restart;
crash($again);
$again->promote;
$again->is_emptied('c', 'one that has been restarted, and has crashed, does, too');
$again->stop('immediate');
my $hasty = running(TtlNode->new_of_backup('hasty', $primary, 'backup', '', has_restoring => 1));
$hasty->promote;
$hasty->is_emptied('c', 'one that is promoted as soon as it can be does, too');
$hasty->stop('immediate');

# The signal was forgotten at first, and the server could not start.
my $forgotten = TtlNode->new_of_backup('forgotten', $primary, 'backup', '', has_streaming => 1);
rename $forgotten->data_dir . '/standby.signal', $forgotten->data_dir . '/later' or die $!;
$forgotten->append_conf('postgresql.conf', "hba_file = 'none'");
ok(!$forgotten->start(fail_ok => 1), 'a start that fails');
is(has_file($forgotten, 'ttl.held'), 1, '... with the file');
rename $forgotten->data_dir . '/later', $forgotten->data_dir . '/standby.signal' or die $!;
$forgotten->append_conf('postgresql.conf', "hba_file = '" . $forgotten->data_dir . "/pg_hba.conf'");
$forgotten->start;
is(has_file($forgotten, 'ttl.held'), 0, '... does not stay when it becomes a standby');
$primary->wait_for_catchup('forgotten');
$forgotten->promote;
$forgotten->is_emptied('c', '... which reaps when it is promoted');
$forgotten->stop('immediate');

# Rewound: what was promoted takes over, and the former primary follows, to be promoted itself.
my $former = $primary;
$standby->safe_psql('postgres', "$expired CHECKPOINT");
$former->stop;
command_ok([ 'pg_rewind', '--source-server', $standby->connstr('postgres'), '--target-pgdata', $former->data_dir, '--no-sync', '-R' ], 'pg_rewind');
ok(has_file($former, 'backup_label'), '... which leaves a label');
my $port = $former->port;
my $host = $former->host;
$former->append_conf('postgresql.conf', "port = $port\nunix_socket_directories = '$host'\nttl.reaper = on\narchive_mode = off");
$former->start;
$standby->wait_for_catchup($standby->safe_psql('postgres', 'SELECT application_name FROM pg_stat_replication'));
$former->promote;
$former->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
$former->safe_psql('postgres', $expired . ' SELECT ttl.set_default_ttl($$c$$, 60)');
$former->is_emptied('c', 'a server that was rewound and is promoted reaps at once');
$former->stop;

# Snapshots of disks of a server that runs
$standby->turn_reaper('off');
$standby->safe_psql('postgres', "$expired CREATE TABLE off (id int); SELECT ttl.create_container('off'); CHECKPOINT");
my $fresh = snapshot_of('fresh', $standby);
my $old = snapshot_of('old', $standby);
my $without = snapshot_of('without', $standby);
$standby->stop('immediate');

running($fresh);
$fresh->is_emptied('c', 'a snapshot that is fresh is a server that has crashed');
unlike(slurp_file($fresh->logfile), qr/older than ttl\.grace/, '... and the log says nothing');
$fresh->stop;

# a day later
sub in_grace
{
	my ($node, $what) = @_;
	ok($node->poll_query_until('postgres', q{SELECT state LIKE 'kept until %' FROM ttl.status WHERE container = 'c'::regclass}), "$what: kept")
	  or diag($node->safe_psql('postgres', 'SELECT * FROM ttl.status'));
	ok($node->poll_query_until('postgres', 'SELECT cycles > 1 FROM ttl.stat_reaper WHERE database = current_database()'), '... while the worker runs');
	is($node->stored('c', 'id < 1000'), 50, '... and deletes nothing');
	return;
}
$clock->set(86400);
$clock->while_starting(sub { $old->start });
in_grace($old, 'an old one waits for ttl.grace');
like(slurp_file($old->logfile), qr/LOG:  expired rows in database "postgres" are not deleted before \d.* because the last checkpoint before the server's start is older than ttl\.grace\n.*DETAIL:  The last checkpoint was at /, '... and the log says so');
$old->safe_psql('postgres', q{CREATE TABLE young (id int); SELECT ttl.create_container('young', 60); INSERT INTO young VALUES (1, now() - interval '1h')});
$old->stored_are('young', 0, '... but not for a container that is younger than the start');
$clock->while_starting(sub { $old->restart });
in_grace($old, '... nor does a restart end it');
$clock->set(86400 + 400);
$old->is_emptied('c', 'the grace ends');
$old->stop;
$clock->set(2 * 86400);
$clock->while_starting(sub { $old->start });
$old->safe_psql('postgres', $expired);
in_grace($old, 'a server that was off for a day waits, too');
$old->safe_psql('postgres', q{CALL ttl.reap('c')});
is($old->stored('c', 'id < 1000'), 0, 'CALL does not');
$old->stop('immediate');

$without->append_conf('postgresql.conf', 'ttl.grace = 0');
$clock->while_starting(sub { $without->start });
$without->is_emptied('c', 'without ttl.grace there is none');
$without->stop;

done_testing();
