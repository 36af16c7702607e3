# ttl.pause() keeps the worker of one database from deleting, until its end or ttl.resume().
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', "ttl.naptime = 50ms\nttl.workers = 1\nttl.batch_timeout = 0\n");
$node->safe_psql('postgres', 'CREATE ROLE head; CREATE ROLE visitor; CREATE DATABASE app OWNER head; CREATE DATABASE other');
for my $database (qw(app other))
{
	$node->safe_psql($database, q{
CREATE EXTENSION ttl;
CREATE TABLE c (id int PRIMARY KEY);
SELECT ttl.create_container('c', 60)});
}

sub import_expired
{
	my ($database, $rows) = @_;
	$rows //= 50;
	$node->safe_psql($database, "INSERT INTO c (id, _ts) SELECT g, now() - interval '1h' FROM generate_series(1, $rows) g");
	return;
}

sub reaps
{
	my ($database, $what) = @_;
	local $ENV{PGOPTIONS} = '-c row_security=off';
	ok($node->poll_query_until($database, 'SELECT count(*) = 0 FROM c'), $what);
	return;
}

sub state_is
{
	my ($state, $what) = @_;
	ok($node->poll_query_until('postgres', "SELECT state = '$state' FROM ttl.stat_reaper WHERE database = 'app'", 't'), $what)
	  or diag($node->safe_psql('postgres', 'SELECT * FROM ttl.stat_reaper'));
	return;
}
$node->safe_psql('postgres', 'CREATE EXTENSION ttl');

# who may
my ($result, $out, $err) = $node->psql('app', 'SET ROLE visitor; SELECT ttl.pause()');
like($err, qr/must be owner of database app/, 'pause: not for everybody');
($result, $out, $err) = $node->psql('app', 'SET ROLE visitor; SELECT ttl.resume()');
like($err, qr/must be owner of database app/, 'nor is resume');
($result, $out, $err) = $node->psql('app', q{SET ROLE head; SELECT ttl.pause('2001-01-01')});
like($err, qr/end of the pause must be in the future/, 'no pause in the past');
($result, $out, $err) = $node->psql('app', q{DELETE FROM ttl.paused; INSERT INTO ttl.paused VALUES (now())});
like($err, qr/rows of "ttl\.paused" cannot be changed directly\n.*HINT:  Use ttl\.pause\(\) and ttl\.resume\(\)\./, 'not by hand');
($result, $out, $err) = $node->psql('app', 'SET ROLE head; SELECT ttl.resume()');
like($err, qr/NOTICE:  deletion of expired rows is not held/, 'nothing to resume');
unlike(slurp_file($node->logfile), qr/has resumed deletion/, '... and the log has nothing of it');

# it holds one database, and says so
$node->safe_psql('app', 'BEGIN; SELECT ttl.pause(); ROLLBACK');
import_expired('app');
reaps('app', 'a pause that is rolled back is none');
$node->safe_psql('app', 'SET ROLE head; SELECT ttl.pause()');
state_is('paused', 'state: paused');
import_expired($_) for qw(app other);
reaps('other', 'other databases go on');
is($node->stored('c', 'true', 'app'), 50, 'nothing is deleted');
my $log = slurp_file($node->logfile);
like($log, qr/LOG:  role "head" has paused deletion of expired rows in database "app"\n/, 'the log says who');
$node->safe_psql('app', 'CALL ttl.reap()');
is($node->stored('c', 'true', 'app'), 0, 'CALL ttl.reap() deletes');
import_expired('app');

# it stays
$node->stop('immediate');
$node->start;
state_is('paused', 'after a crash, too');
is($node->stored('c', 'true', 'app'), 50, 'nothing has been deleted');
unlike($node->safe_psql('app', q{SELECT array_to_string(extconfig::regclass[], ' ') FROM pg_extension WHERE extname = 'ttl'}), qr/paused/, 'it is not dumped');

# until it ends
$node->safe_psql('app', 'SET ROLE head; SELECT ttl.resume()');
reaps('app', 'resumed');
$node->safe_psql('app', q{SELECT ttl.pause(now() + interval '1 day'); SELECT ttl.pause(now() + interval '1 second')});
import_expired('app');
reaps('app', 'it ends at its time');
like(slurp_file($node->logfile), qr/has paused deletion of expired rows in database "app"\n.*DETAIL:  The pause ends at /, 'which the log has');

# a batch that begins later sees it, in the same cycle, which would delete all
sub batches
{
	return $node->safe_psql('app', 'SELECT batches FROM ttl.stat_containers');
}
$node->safe_psql('app', q{
CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN
	PERFORM pg_advisory_xact_lock(1);
	RETURN OLD;
END $$;
CREATE TRIGGER stall BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION stall()});
my $session = $node->background_psql('app', on_error_stop => 1);
$session->query_safe('SELECT pg_advisory_lock(1)');
my $batches = batches();
import_expired('app', 1000);
$node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
$session->query_safe('SELECT ttl.pause()');
$session->query_safe('SELECT pg_advisory_unlock(1)');
state_is('paused', 'paused in the middle of a cycle');
is(batches() - $batches, 1, 'the batch that was running was the last');
cmp_ok($node->stored('c', 'true', 'app'), '>', 0, '... and has left rows');

# and whose look-up of it fails deletes nothing
$session->query_safe('SELECT ttl.resume()');
reaps('app', 'resumed again');
$session->query_safe('SELECT pg_advisory_lock(1)');
$batches = batches();
import_expired('app', 1000);
$node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted});
$session->query_safe('SELECT ttl.pause()');
my $locker = $node->background_psql('app', on_error_stop => 1);
$locker->query_safe('BEGIN; LOCK ttl.paused');
$session->query_safe('SELECT pg_advisory_unlock(1)');
my $waits = q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'ttl.paused'::regclass AND NOT granted};
$node->wait_until($waits, 't', 'app');
my $pid = $node->pid_of('ttl reaper', 'app');
$node->safe_psql('app', "SELECT pg_terminate_backend($pid)");
ok($node->poll_query_until('app', "$waits AND (SELECT pid <> $pid FROM pg_locks WHERE relation = 'ttl.paused'::regclass AND NOT granted)"),
	'a worker whose look-up of the pause is terminated is followed by one that looks again');
is(batches() - $batches, 1, '... and deletes nothing');
$locker->query_safe('ROLLBACK');
state_is('paused', '... and finds it');
is(batches() - $batches, 1, '... as it was');
cmp_ok($node->stored('c', 'true', 'app'), '>', 0, '... with rows left');
$locker->quit;
$session->quit;
$node->stop;
done_testing();
