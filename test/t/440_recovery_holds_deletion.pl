# After a recovery to a point in time nothing is deleted before somebody says so.
# A promotion makes no difference; 445 has what is restored otherwise.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $held = 'held after recovery to a point in time';

my $primary = TtlNode->start_new('primary', <<'END', has_archiving => 1, allows_streaming => 1);
ttl.reaper = off
ttl.naptime = 100ms
END
$primary->create_expired('postgres');
$primary->safe_psql('postgres', 'CREATE ROLE visitor; CREATE DATABASE other OWNER visitor');
$primary->create_expired('other');
$primary->backup('backup');
$primary->safe_psql('postgres', q{SELECT pg_create_restore_point('here')});
$primary->safe_psql('postgres', q{INSERT INTO c VALUES (1000); SELECT pg_switch_wal()});

sub server
{
	my $node = TtlNode->new_of_backup(@_);
	$node->start;
	return $node;
}

sub state_is
{
	my ($node, $state, $what, $database) = @_;
	$database //= 'postgres';
	ok($node->poll_query_until('postgres', "SELECT state = '$state' FROM ttl.stat_reaper WHERE database = '$database'"), $what)
	  or diag($node->safe_psql('postgres', 'SELECT * FROM ttl.stat_reaper'));
	return;
}

sub is_held
{
	my ($node, $what) = @_;
	$node->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
	state_is($node, $held, $what);
	is($node->stored('c', 'id < 1000'), 50, "$what: nothing is deleted");
	is($node->safe_psql('postgres', "SELECT state FROM ttl.status WHERE container = 'c'::regclass"), 'held after recovery', "$what: ttl.status says so");
	return;
}

# to a point in time
my $pitr = server('pitr', $primary, 'backup', q{
recovery_target_name = 'here'
recovery_target_action = promote
max_prepared_transactions = 1
}, has_restoring => 1, standby => 0);
is_held($pitr, 'recovered to a restore point');
state_is($pitr, $held, 'in each database', 'other');
is($pitr->safe_psql('postgres', 'SELECT count(*) FROM c'), 0, 'what has expired is hidden');
like(slurp_file($pitr->logfile), qr/WARNING:  expired rows in database "postgres" are not deleted because the server was recovered to a point in time\n.*DETAIL:  Recovery ended: at restore point "here"\.\n.*HINT: .*ttl\.resume\(\)/, 'the log says why');

# standbys of it, before and after
$pitr->backup('unsaid');
my %standby = map { $_ => server($_, $pitr, 'unsaid', "recovery_target_name = ''", has_streaming => 1) } qw(standby1 standby2);
$pitr->wait_for_catchup('standby1');
$standby{standby1}->promote;
is_held($standby{standby1}, 'promoted before anybody has said so');
$standby{standby1}->stop('immediate');

# words that are not the word
$pitr->restart;
is_held($pitr, 'restarted');

# A request that comes while a worker is about to leave has it look again, and no more.  A lock holds it up where it
# reads the policies; COMMIT PREPARED is a request to all databases.
my $request = q{BEGIN; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'};
my $lock = $pitr->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE ttl.container IN ACCESS EXCLUSIVE MODE');
$pitr->safe_psql('other', $request);
$pitr->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND datname = 'postgres' AND wait_event_type = 'Lock'}, 't', 'other');
$pitr->safe_psql('other', $request);
$lock->query_safe('COMMIT');
$lock->quit;
$pitr->processes_are('ttl reaper', 0, 'a worker to which a request comes as it leaves goes all the same', 'postgres');
is_held($pitr, 'requested meanwhile');

my ($result, $out, $err) = $pitr->psql('postgres', 'SET ROLE visitor; SELECT ttl.resume()');
like($err, qr/must be owner of database postgres/, 'not for everybody');
($result, $out, $err) = $pitr->psql('other', 'SET ROLE visitor; SELECT ttl.resume()');
like($err, qr/must be superuser to resume deletion of expired rows after a recovery to a point in time/, 'nor for the owner of a database');
$pitr->safe_psql('postgres', 'BEGIN; SELECT ttl.resume(); ROLLBACK');
$pitr->safe_psql('postgres', q{SELECT ttl.alter_container('c', reaping => true)});
is_held($pitr, 'rolled back');
$pitr->safe_psql('other', q{CALL ttl.reap('c')});
is($pitr->stored('c', 'id < 1000', 'other'), 0, 'CALL deletes');
($result, $out, $err) = $standby{standby2}->psql('postgres', 'SELECT ttl.resume()');
like($err, qr/cannot execute ttl\.resume\(\) during recovery|read-only transaction/, 'not on a standby');

# the word
$pitr->safe_psql('other', q{INSERT INTO c (id, _ts) VALUES (1, now() - interval '1h'); SELECT ttl.resume()});
$pitr->is_emptied('c', 'resumed');
$pitr->is_emptied('c', 'in each database', 'other');
is(scalar(() = slurp_file($pitr->logfile) =~ /database "postgres" are not deleted because/g), 2, 'the log has said so once for each start of the server');
($result, $out, $err) = $pitr->psql('postgres', 'SELECT ttl.resume()');
like($err, qr/NOTICE:  deletion of expired rows is not held/, 'once is enough');
$pitr->stop('immediate');
$pitr->start;
$pitr->safe_psql('postgres', q{INSERT INTO c (id, _ts) SELECT g, now() - interval '1h' FROM generate_series(1, 50) g});
$pitr->is_emptied('c', 'nor is it forgotten by a crash');

# its standby knows
$pitr->safe_psql('postgres', q{SELECT ttl.alter_container('c', reaping => false);
	INSERT INTO c (id, _ts) SELECT g, now() - interval '1h' FROM generate_series(1, 50) g});
$pitr->wait_for_catchup('standby2');
$standby{standby2}->promote;
is($standby{standby2}->stored('c', 'id < 1000'), 50, 'rows at the promotion');
$standby{standby2}->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
$standby{standby2}->safe_psql('postgres', q{SELECT ttl.alter_container('c', reaping => true)});
$standby{standby2}->is_emptied('c', 'promoted afterwards, a standby that was made before reaps');
$standby{standby2}->stop('immediate');

# but another recovery is another
$pitr->backup('said');
my $again = server('again', $pitr, 'said', q{
recovery_target_name = ''
recovery_target = immediate
recovery_target_action = promote
}, has_restoring => 1, standby => 0);
$again->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
$again->safe_psql('postgres', q{SELECT ttl.alter_container('c', reaping => true)});
is_held($again, 'recovered again');
$again->stop('immediate');
$pitr->stop('immediate');

# A target may be where the server pauses, until somebody promotes it.  (If it is
# promoted before, PostgreSQL refuses to start.)
my $lsn = $primary->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
$primary->safe_psql('postgres', 'INSERT INTO c VALUES (1001)');
my $paused = server('paused', $primary, 'backup', "recovery_target_lsn = '$lsn'", has_streaming => 1);
$paused->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'});
$paused->promote;
is_held($paused, 'promoted at the target');

# a copy without the file that tells of it
$paused->stop;
unlink($paused->data_dir . '/pg_wal/00000002.history') or die $!;
$paused->start;
is_held($paused, 'of unknown history');
$paused->safe_psql('postgres', 'SELECT ttl.resume()');
$paused->is_emptied('c', 'of unknown history, resumed');
$paused->stop('immediate');

# no target
my $promoted = server('promoted', $primary, 'backup', '', has_streaming => 1);
$primary->wait_for_catchup('promoted');
$promoted->promote;
$promoted->is_emptied('c', 'promoted');
$promoted->stop('immediate');

done_testing();
