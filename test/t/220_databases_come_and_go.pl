# Commands that need a database for themselves work at once while a worker is
# connected to it, every database that needs a worker gets one, and one that
# doesn't need it any more loses it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('databases', <<'END');
ttl.naptime = 100ms
ttl.workers = 2
allow_in_place_tablespaces = on
END
my $log = -s $node->logfile;

sub create_container
{
	my ($database) = @_;
	$node->safe_psql($database, <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int);
SELECT ttl.create_container('item', 60);
END
}

# Commands that need the database

$node->safe_psql('postgres', 'CREATE DATABASE one');
create_container('one');
$node->add_expired('item', 10, 'one');
$node->is_emptied('item', 'a worker deletes in a new database', 'one');
$node->processes_are('ttl reaper', 1, '... and stays', 'one');

$node->works_at_once('ALTER DATABASE one RENAME TO uno');
$node->add_expired('item', 10, 'uno');
$node->is_emptied('item', '... under the new name, too', 'uno');
$node->processes_are('ttl reaper', 1, '... and stays', 'uno');
SKIP:
{
	my $pid = $node->pid_of('ttl reaper');
	skip 'no /proc here', 1 unless -r "/proc/$pid/cmdline";
	like(slurp_file("/proc/$pid/cmdline"), qr/ttl reaper for database uno\b/, '... and ps tells');
}

$node->safe_psql('postgres', "CREATE TABLESPACE place LOCATION ''");
$node->works_at_once('ALTER DATABASE uno SET TABLESPACE place');
$node->add_expired('item', 10, 'uno');
$node->is_emptied('item', '... and at the new place', 'uno');
$node->processes_are('ttl reaper', 1, '... and stays', 'uno');

$node->works_at_once('CREATE DATABASE copy TEMPLATE uno');
$node->add_expired('item', 10, 'uno');
$node->add_expired('item', 10, 'copy');
$node->is_emptied('item', '... and in the template', 'uno');
$node->is_emptied('item', '... and in the copy', 'copy');

$node->processes_are('ttl reaper', 1, 'the worker stays', 'uno');

# Those who may copy a template have its worker go, and others don't stop it by a command that fails.
$node->safe_psql('postgres', 'CREATE ROLE creator CREATEDB; CREATE ROLE visitor; ALTER DATABASE uno IS_TEMPLATE true');
my $worker = $node->pid_of('ttl reaper', 'uno');
my (undef, undef, $refused) = $node->psql('postgres', 'SET ROLE visitor; CREATE DATABASE his TEMPLATE uno');
like($refused, qr/permission denied to create database/, 'not everybody copies a database');
is($node->pid_of('ttl reaper', 'uno'), $worker, '... or has its worker go');
$node->works_at_once('SET ROLE creator; CREATE DATABASE hers TEMPLATE uno');
$node->works_at_once('DROP DATABASE hers');
$node->safe_psql('postgres', 'ALTER DATABASE uno IS_TEMPLATE false');
$node->processes_are('ttl reaper', 1, 'the worker comes back', 'uno');
$worker = $node->pid_of('ttl reaper', 'uno');
(undef, undef, $refused) = $node->psql('postgres', 'SET ROLE creator; CREATE DATABASE hers TEMPLATE uno');
like($refused, qr/permission denied to copy database/, 'nor who may create some copies one that is no template');
is($node->pid_of('ttl reaper', 'uno'), $worker, '... or has its worker go');
(undef, undef, $refused) = $node->psql('postgres', 'SET ROLE creator; ALTER DATABASE uno RENAME TO hers');
like($refused, qr/must be owner of database uno/, 'nor renames what belongs to another');
is($node->pid_of('ttl reaper', 'uno'), $worker, '... or has its worker go');
$node->works_at_once('DROP DATABASE uno');
$node->processes_are('ttl reaper', 1, 'the worker of the copy stays', 'copy');
$node->works_at_once('DROP DATABASE copy WITH (FORCE)');
$node->processes_are('ttl reaper', 0, 'no worker is left');
is($node->safe_psql('postgres', "SELECT count(*) FROM ttl.stat_reaper WHERE database IN ('uno', 'copy')"), '0',
	'nor statistics')
  if $node->safe_psql('postgres', "CREATE EXTENSION ttl; SELECT 1");

# One that fails leaves all as it was.
$node->safe_psql('postgres', 'CREATE DATABASE two');
create_container('two');
$node->processes_are('ttl reaper', 1, 'a worker runs', 'two');
my $session = $node->background_psql('two');
my ($rc) = $node->psql('postgres', 'ALTER DATABASE two RENAME TO duo');
isnt($rc, 0, 'ALTER DATABASE fails while a user is connected');
$node->add_expired('item', 10, 'two');
$node->is_emptied('item', '... the worker goes on', 'two');
$session->quit;
my ($dropped) = $node->psql('postgres', 'DROP DATABASE three');
isnt($dropped, 0, 'no such database');

# No worker is started while such a command waits for something.
$node->safe_psql('postgres', 'CREATE DATABASE three');
create_container('three');
$node->turn_reaper('off');
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE pg_database IN SHARE MODE');
my ($drop_out, $drop_err) = ('', '');
my $drop = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'DROP DATABASE three' ],
	'>', \$drop_out, '2>', \$drop_err, IPC::Run::timeout(180));
ok($node->poll_query_until('postgres',
		q{SELECT count(*) > 0 FROM pg_locks WHERE relation = 'pg_database'::regclass AND NOT granted}),
	'DROP DATABASE waits');
$node->turn_reaper('on');
$node->processes_are('ttl reaper', 1, 'a worker is started in another database', 'two');
$node->processes_are('ttl reaper', 0, '... and none in that one', 'three');
$holder->query_safe('COMMIT');
$holder->quit;
$drop->finish;
is($drop_err, '', '... which is dropped');

# DROP EXTENSION

$node->safe_psql('two', 'BEGIN; DROP EXTENSION ttl CASCADE; ROLLBACK');
$node->add_expired('item', 10, 'two');
$node->is_emptied('item', 'DROP EXTENSION rolled back', 'two');
$node->processes_are('ttl reaper', 1, '... the worker is there', 'two');
$node->safe_psql('two', 'SELECT ttl.alter_container(\'item\', reaping => false)');
$node->add_expired('item', 10, 'two');
$node->safe_psql('two', 'DROP EXTENSION ttl CASCADE');
$node->processes_are('ttl reaper', 0, 'DROP EXTENSION: the worker leaves', 'two');
is($node->safe_psql('two', 'SELECT count(*) FROM item'), '10', '... the rows are seen');
is( $node->safe_psql(
		'two',
		"INSERT INTO item (id, _ts) VALUES (11, '2020-01-01'); UPDATE item SET id = id; SELECT DISTINCT _ts = '2020-01-01' FROM item"
	),
	't',
	'... and nothing is stamped');
$node->safe_psql('two', <<'END');
CREATE EXTENSION ttl;
SELECT ttl.create_container('item', 60, ts_column => '_ts', ttl_column => 'ttl');
END
$node->is_emptied('item', 'CREATE EXTENSION: they go', 'two');
is($node->safe_psql('two', "SET ttl.show_expired = on; SELECT count(*) FROM item"), '0', '... all of them');
$node->safe_psql('two', "SELECT ttl.drop_container('item')");
$node->processes_are('ttl reaper', 0, 'the last container is dropped: the worker leaves', 'two');

# More databases than workers

my @databases = map { "db$_" } 1 .. 5;
for my $database (@databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	create_container($database);
	$node->add_expired('item', 10, $database);
}
$node->is_emptied('item', "all are served: $_", $_) for @databases;
$node->add_expired('item', 10, $_) for @databases;
$node->is_emptied('item', "... again: $_", $_) for @databases;
cmp_ok(
	$node->safe_psql(
		'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl reaper'"),
	'<=', 2,
	'by two workers');
is( $node->safe_psql(
		'postgres', "SELECT count(*) FROM ttl.stat_reaper WHERE database LIKE 'db_' AND cycles > 0"),
	'5',
	'the statistics have all');
$node->works_at_once("DROP DATABASE $_") for @databases;

# Nothing went wrong on the way.
is(join("\n",
		grep { /(ERROR|WARNING|FATAL|PANIC):/ && !/is being accessed by other users|permission denied to (create|copy) database|must be owner of database uno|"three" does not exist|rows of \d+ tables? do not expire any more|terminating (background worker|connection)/ }
		  split /\n/, slurp_file($node->logfile, $log)),
	'', 'no error in the log');

$node->stop;
done_testing();
