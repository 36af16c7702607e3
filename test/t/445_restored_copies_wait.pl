# What is started from a base backup deletes nothing before somebody says so, and what was out of service for
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
ttl.naptime = 100ms
ttl.grace = 5min
autovacuum = off
wal_log_hints = on
wal_keep_size = 1GB
max_prepared_transactions = 1
END
my $expired = q{INSERT INTO c (id, _ts) SELECT g, now() - interval '1h' FROM generate_series(1, 50) g;};
ok(wait_until(sub { has_file($primary, 'ttl.last_seen') }), 'a new cluster is in service as soon as workers have been there');
$primary->turn_reaper('off');
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

sub reaps
{
	my ($node, $what, $database) = @_;
	local $ENV{PGOPTIONS} = '-c row_security=off';
	ok($node->poll_query_until($database // 'postgres', 'SELECT count(*) = 0 FROM c WHERE id < 1000'), $what)
	  or diag($node->safe_psql('postgres', 'SELECT * FROM ttl.stat_reaper'));
	return;
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

sub wait_until
{
	my ($condition) = @_;
	for my $try (1 .. 900)
	{
		return 1 if $condition->();
		usleep(200_000);
	}
	return 0;
}

# When the server was last in service, as its file has it
sub last_seen
{
	my ($node) = @_;
	return (split /\n/, slurp_file($node->data_dir . '/ttl.last_seen'))[0];
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
reaps($restored, 'resumed');
reaps($restored, '... in each database', 'other');
(undef, undef, $err) = $restored->psql('postgres', 'SELECT ttl.resume()');
like($err, qr/NOTICE:  deletion of expired rows is not held/, 'once is enough');
crash($restored);
$restored->safe_psql('postgres', $expired);
reaps($restored, 'nor is it forgotten by a crash');
$restored->wait_for_catchup('witness');
$of_held{witness}->promote;
$of_held{witness}->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
$of_held{witness}->safe_psql('postgres', $expired);
reaps($of_held{witness}, 'a standby of it, promoted afterwards, reaps');
$of_held{witness}->stop('immediate');
$restored->stop('immediate');

# First started without the library, then with it, but without workers, until after a crash
my $early = TtlNode->new_of_backup('early', $primary, 'backup');
$early->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$early->start;
$early->stop;
ok(!has_file($early, 'backup_label') && !has_file($early, 'ttl.held'), 'the label has gone, and ttl was not there');
$early->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'\nttl.reaper = off");
$early->start;
ok(has_file($early, 'ttl.held'), '... but sees that when it comes; without a worker the hold is a file');
crash($early);
$early->safe_psql('postgres', 'BEGIN; SELECT ttl.resume(); ROLLBACK');
$early->safe_psql('postgres', 'BEGIN; SAVEPOINT s; SELECT ttl.resume(); ROLLBACK TO s; COMMIT');
$early->safe_psql('other', q{SET ROLE visitor; SELECT ttl.pause('tomorrow')});
(undef, undef, $err) = $early->psql('other', 'SET ROLE visitor; SELECT ttl.resume(); SELECT ttl.resume()');
like($err, qr/WARNING:  must be superuser .*\n.*ERROR:  must be superuser/s, '... the end of his own pause is the business of a database\'s owner');
$early->configure('ttl.reaper = on');
is_held($early, 'after kill -9 of a server without a worker, and ttl.resume() that was rolled back');
$early->safe_psql('postgres', 'SELECT ttl.resume()');
$early->restart;
reaps($early, '... resumed, and not held by the same label again');
$early->stop;
unlink $early->data_dir . '/backup_label.old' or die $!;
$early->start;
$early->safe_psql('postgres', $expired);
reaps($early, '... nor because somebody has removed it');
$early->stop('immediate');

# An archive that is replayed to its end
my $end = running(TtlNode->new_of_backup('end', $primary, 'backup', '', has_restoring => 1, standby => 0));
is_held($end, 'an archive that was replayed to its end');
$end->safe_psql('postgres', 'SELECT ttl.resume()');
reaps($end, '... resumed');
$end->stop('immediate');

# To a target: both end with one word
my $target = running(TtlNode->new_of_backup('target', $primary, 'backup', "recovery_target = 'immediate'\nrecovery_target_action = promote\n", has_restoring => 1, standby => 0));
ok($target->poll_query_until('postgres', q{SELECT count(*) = 2 FROM ttl.stat_reaper WHERE state = 'held after recovery to a point in time'}), 'a recovery to a target is held as such');
$target->safe_psql('postgres', 'SELECT ttl.resume()');
reaps($target, '... and resumed');
$target->stop('immediate');

# Single-user mode consumes the label, too.
my $single = TtlNode->new_of_backup('single', $primary, 'backup', 'ttl.reaper = off');
run_log([ 'postgres', '--single', '-D', $single->data_dir, 'postgres' ], '<', \"SELECT 1\n");
ok(!has_file($single, 'backup_label'), 'single-user mode has consumed the label');
ok(has_file($single, 'ttl.held'), '... and holds');
$single->start;
$single->safe_psql('postgres', q{BEGIN; SELECT ttl.resume(); PREPARE TRANSACTION 'resume'});
$single->safe_psql('postgres', q{COMMIT PREPARED 'resume'});
$single->configure('ttl.reaper = on');
reaps($single, '... resumed without a worker, by a prepared transaction');
ok(!has_file($single, 'ttl.held'), '... and the file goes');
$single->stop('immediate');

# Standbys
my $standby = running(TtlNode->new_of_backup('standby', $primary, 'backup', '', has_streaming => 1));
$primary->wait_for_catchup('standby');
$standby->promote;
reaps($standby, 'a standby that is promoted reaps at once');
my $again = TtlNode->new_of_backup('again', $primary, 'backup', '', has_streaming => 1);
$again->start;
$primary->wait_for_catchup('again');
$again->stop;
my $stale = snapshot_of('stale', $again);
$stale->append_conf('postgresql.conf', "primary_conninfo = ''");
$clock->while_starting(sub { $again->start; crash($again) });
my $seen = last_seen($again);
$clock->set(86400);
$again->reload;
ok(wait_until(sub { last_seen($again) - $seen > 80_000 * 1_000_000 }), 'a standby that runs is in service');
$again->promote;
reaps($again, '... so one that has been restarted, has crashed, and has run for long does, too');
$again->stop('immediate');
$clock->set(0);
my $hasty = running(TtlNode->new_of_backup('hasty', $primary, 'backup', '', has_restoring => 1));
$hasty->promote;
reaps($hasty, 'one that is promoted as soon as it can be does, too');
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
reaps($forgotten, '... which reaps when it is promoted');
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
reaps($former, 'a server that was rewound and is promoted reaps at once');
$former->stop;

# Snapshots of disks of a server that runs
$standby->turn_reaper('off');
$standby->safe_psql('postgres', "$expired CREATE TABLE off (id int); SELECT ttl.create_container('off'); CHECKPOINT");
my $fresh = snapshot_of('fresh', $standby);
my $old = snapshot_of('old', $standby);
my $without = snapshot_of('without', $standby);
$standby->stop('immediate');

running($fresh);
reaps($fresh, 'a snapshot that is fresh is a server that has crashed');
unlike(slurp_file($fresh->logfile), qr/longer than ttl\.grace/, '... and the log says nothing');
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
$clock->while_starting(
	sub {
		# recovery that did not get to its end writes pg_control, too
		run_log([ 'postgres', '--single', '-D', $old->data_dir, 'postgres' ], '<', \"SELECT 1\n");
		command_ok([ 'pg_resetwal', '-f', $old->data_dir ], 'tools that write pg_control');
		$old->append_conf('postgresql.conf', 'ttl.reaper = off');
		$old->start;
		$old->append_conf('postgresql.conf', 'ttl.reaper = on');
		$old->restart;
	});
in_grace($old, 'an old one waits for ttl.grace');
like(slurp_file($old->logfile), qr/LOG:  expired rows in database "postgres" are not deleted before \d.* because the server was not in service for longer than ttl\.grace\n.*DETAIL:  It was in service last at \d/, '... and the log says so');
$old->safe_psql('postgres', q{CREATE TABLE young (id int); SELECT ttl.create_container('young', 60); INSERT INTO young VALUES (1, now() - interval '1h')});
$old->stored_are('young', 0, '... but not for a container that is younger than the start');
$clock->while_starting(sub { $old->restart });
in_grace($old, '... nor does a restart end it');
$clock->while_starting(sub { $stale->start });
$clock->set(86400 + 400);
reaps($old, 'the grace ends');
$old->stop;
$stale->promote;
$stale->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
in_grace($stale, 'a snapshot of a standby, promoted long after its start, without a primary');
$stale->stop('immediate');
$clock->set(2 * 86400);
$clock->while_starting(sub { $old->start });
$old->safe_psql('postgres', $expired);
in_grace($old, 'a server that was off for a day waits, too');
$old->safe_psql('postgres', q{CALL ttl.reap('c')});
is($old->stored('c', 'id < 1000'), 0, 'CALL does not');
$old->stop('immediate');

$without->append_conf('postgresql.conf', 'ttl.grace = 0');
$clock->while_starting(sub { $without->start });
reaps($without, 'without ttl.grace there is none');
$without->stop;

done_testing();
