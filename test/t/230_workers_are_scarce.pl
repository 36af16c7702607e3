# Launcher and workers when there is not enough for them, and when databases
# change under a worker that is in the middle of its work.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use TtlNode;

# Two databases; of the three background workers there may be, two are the
# launchers of PostgreSQL and of ttl.
my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
max_worker_processes = 3
log_min_messages = debug1
allow_in_place_tablespaces = on
END

sub create_container
{
	my ($database) = @_;
	$node->safe_psql($database, q{
CREATE EXTENSION ttl;
CREATE TABLE item (id int);
SELECT ttl.create_container('item', 3600);
});
}

# Not enough background workers

$node->safe_psql('postgres', 'CREATE DATABASE one; ');
$node->safe_psql('postgres', 'CREATE DATABASE two; ');

# A worker that sleeps leaves as soon as another database waits, though nothing would wake it for ten seconds.
create_container('one');
$node->safe_psql('two', 'CREATE EXTENSION ttl');
$node->processes_are('ttl reaper', 1, 'a worker', 'one');
my $seen = $node->safe_psql('one', q{SELECT coalesce(sum(cycles), 0) FROM ttl.stat_reaper WHERE database = 'one'; SELECT ttl.set_default_ttl('item', 3601) \\g /dev/null});
$node->wait_until("SELECT cycles > $seen AND state = 'idle' FROM ttl.stat_reaper WHERE database = 'one'", 't', 'one');
$node->safe_psql('two', q{
BEGIN;
CREATE TABLE item (id int);
SELECT ttl.create_container('item', 3600);
INSERT INTO item (id, _ts) VALUES (1, '2020-01-01');
COMMIT});
my $committed = time;
$node->is_emptied('item', 'while a worker sleeps in one database, rows of another go', 'two');
cmp_ok(time - $committed, '<', 7, '... soon');

my $workers = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl reaper'";
for my $round (1 .. 3)
{
	$node->add_expired('item', 10, $_) for 'one', 'two';
	$node->is_emptied('item', "$round: a database that has to wait for a background worker is served: $_", $_) for 'one', 'two';
	cmp_ok($node->safe_psql('postgres', $workers), '<=', 1, "$round: ... by one");
}
my $exhausted = qr/WARNING:  out of background worker slots\n.*DETAIL:  Expired rows in database "\w+" are hidden, but not deleted\.\n.*HINT:  Consider increasing the configuration parameter "max_worker_processes"/;
my $log = slurp_file($node->logfile);
is(scalar(() = $log =~ /$exhausted/g), 1, 'the log says so, once');
my $from = length $log;
my $start = time;
$node->safe_psql('postgres', 'SELECT pg_sleep(3)');
my $started = () = substr(slurp_file($node->logfile), $from) =~ /starting background worker process "ttl reaper/g;
cmp_ok($started, '<=', 4 * (time - $start), "no busy loop: workers started: $started");

# A worker that lives for one cycle goes on among rows of one key that its predecessor has found to be blocked: in the
# partition where that hadn't come to an end, not in the one where it had.
for my $database ('one', 'two')
{
	$node->safe_psql($database, q{
CREATE TABLE dear (id int) PARTITION BY RANGE (id);
CREATE TABLE dear1 PARTITION OF dear FOR VALUES FROM (1) TO (2);
CREATE TABLE dear2 PARTITION OF dear FOR VALUES FROM (2) TO (2000);
CREATE FUNCTION raise_slowly() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(0.005); RAISE 'not yet'; END$$;
CREATE TRIGGER raise_slowly BEFORE DELETE ON dear FOR EACH ROW WHEN (old.id < 1000) EXECUTE FUNCTION raise_slowly();
SELECT ttl.create_container('dear', 3600);
INSERT INTO dear (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 1002) g;
});
}
for my $database ('one', 'two')
{
	ok($node->poll_query_until($database, q{SELECT blocked_rows = 999 FROM ttl.stat_containers WHERE container = 'dear'::regclass}), "all blocked rows are counted: $database");
	is($node->safe_psql($database, 'SET ttl.show_expired = on; SELECT count(*) FROM dear WHERE id >= 1000'), 0, '... and the others, which come last, are deleted');
	$node->safe_psql($database, 'DROP TABLE dear');
}

$node->safe_psql('postgres', 'DROP DATABASE two');
$node->append_conf('postgresql.conf', 'max_worker_processes = 8');
$node->restart;

# A database changes under a worker that has work for long

$node->configure('ttl.cycle_cost_limit = 200');
$node->add_expired('item', 100000, 'one');

# Somebody else cannot have deleted anything.
my $deleted = 'SELECT rows_deleted FROM ttl.stat_containers';

sub is_at_work
{
	my ($database, $name) = @_;
	my $before = $node->safe_psql($database, $deleted);
	ok($node->poll_query_until($database, "SELECT ($deleted) > $before"), $name);
}

is_at_work('one', 'a worker is at work');
$node->works_at_once('ALTER DATABASE one RENAME TO uno');
is_at_work('uno', '... goes on under the new name');
$node->safe_psql('postgres', "CREATE TABLESPACE place LOCATION ''");
$node->works_at_once('ALTER DATABASE uno SET TABLESPACE place');
is_at_work('uno', '... at the new place');
$node->works_at_once('CREATE DATABASE copy TEMPLATE uno');
is_at_work('uno', '... in the template');
is_at_work('copy', '... in the copy');
$node->works_at_once('DROP DATABASE copy');

$node->works_at_once('ALTER DATABASE uno ALLOW_CONNECTIONS false');
ok($node->poll_query_until('postgres', "SELECT ($workers) = 0"), 'no worker stays where connections are not allowed');
$from = -s $node->logfile;
$node->works_at_once('CREATE DATABASE copy TEMPLATE uno');
is_at_work('copy', 'the copy allows them');
unlike(slurp_file($node->logfile, $from), qr/not currently accepting connections/, 'no worker tries');
$node->works_at_once('ALTER DATABASE uno ALLOW_CONNECTIONS true');
is_at_work('uno', 'the worker comes back');
$node->works_at_once('DROP DATABASE uno');
$node->works_at_once('DROP DATABASE copy WITH (FORCE)');

# Not even a slot for the launcher
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$from = -s $node->logfile;
$node->restart;
like(slurp_file($node->logfile, $from), qr/too many background workers/, 'the log says that there is no launcher');
$node->safe_psql('postgres', q{
CREATE EXTENSION IF NOT EXISTS ttl;
CREATE TABLE alone (id int);
SELECT ttl.create_container('alone', 60);
INSERT INTO alone (id, _ts) VALUES (1, '2020-01-01');
});
is($node->safe_psql('postgres', q{SELECT count(*) FROM alone}), 0, 'what has expired is hidden');
is($node->safe_psql('postgres', q{SELECT lag > '1 year' FROM ttl.stat_containers WHERE container = 'alone'::regclass}), 't', 'and stays, which the statistics show');
$node->safe_psql('postgres', q{CALL ttl.reap('alone')});
is($node->stored('alone'), 0, 'CALL deletes it');

$node->stop;

# Not enough locks for all containers at once: what the worker does for each is a transaction of its own.

$node = TtlNode->start_new('locks', <<'END');
ttl.naptime = 100ms
ttl.reaper = off
max_connections = 10
max_locks_per_transaction = 10
autovacuum_max_workers = 1
max_wal_senders = 0
END
$node->safe_psql('postgres', 'CREATE EXTENSION ttl');
$node->safe_psql('postgres', join("\n", map {
	qq{CREATE TABLE item$_ (id int); SELECT ttl.create_container('item$_', 3600); INSERT INTO item$_ (id) VALUES (1);
SELECT ttl.set_default_ttl('item$_', 60);} } 1 .. 600));
$node->fails('SELECT pg_advisory_lock(g) FROM generate_series(1, 1800) g', '53200', 'there are fewer locks than containers and their indexes');
# a session that ends may still hold its locks when the next begins
$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'});
my $unnoticed = 'SELECT count(*) FROM ttl.container WHERE grace_noticed_at = $$infinity$$';
is($node->safe_psql('postgres', $unnoticed), 600, 'all policies have been changed');
$node->configure('ttl.reaper = on');
ok($node->poll_query_until('postgres', "SELECT ($unnoticed) = 0"), '... which the worker notices');
unlike(slurp_file($node->logfile), qr/exited with exit code 1/, '... without failing');

$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$node->safe_psql('postgres', join("\n", map { "DROP TABLE item$_;" } 2 .. 600));
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'");
$node->restart;
ok($node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM ttl.container'), 'policies of dropped tables go');

$node->stop;
done_testing();
