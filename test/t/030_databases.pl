# Commands that need a database for themselves work at once while a worker is
# connected to it, every database that needs a worker gets one, and one that
# doesn't need it any more loses it.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('databases');
$node->init;
$node->append_conf('postgresql.conf', <<'END');
shared_preload_libraries = 'ttl'
ttl.naptime = 100ms
ttl.workers = 2
allow_in_place_tablespaces = on
END
$node->start;
my $log = -s $node->logfile;

sub create_container
{
	my ($database) = @_;
	$node->safe_psql($database, <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (note text);
SELECT ttl.create_container('item', 60);
END
}

# Adds expired rows; a change of policy makes the reaper look for them.
sub fill
{
	my ($database) = @_;
	$node->safe_psql($database, <<'END');
INSERT INTO item (note, _ts) SELECT 'expired', '2020-01-01' FROM generate_series(1, 10);
SELECT ttl.set_default_ttl('item', 60);
END
}

sub is_emptied
{
	my ($database, $name) = @_;
	ok($node->poll_query_until($database, "SELECT ttl.expired_count('item') = 0"), $name);
}

# Waits until a worker is connected.
sub is_served
{
	my ($database, $name) = @_;
	ok( $node->poll_query_until(
			'postgres',
			"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND datname = '$database'"
		),
		$name);
}

sub is_left
{
	my ($database, $name) = @_;
	ok( $node->poll_query_until(
			'postgres',
			"SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND datname = '$database'"
		),
		$name);
}

# PostgreSQL waits 5 s for others to go before it gives up.
sub works_at_once
{
	my ($sql) = @_;
	my $start = time;
	my ($rc, $stdout, $stderr) = $node->psql('postgres', $sql);
	is($stderr, '', "$sql works");
	cmp_ok(time - $start, '<', 4, '... at once');
}

# Commands that need the database

$node->safe_psql('postgres', 'CREATE DATABASE one');
create_container('one');
fill('one');
is_emptied('one', 'a worker deletes in a new database');
is_served('one', '... and stays');

works_at_once('ALTER DATABASE one RENAME TO uno');
fill('uno');
is_emptied('uno', '... under the new name, too');
is_served('uno', '... and stays');
SKIP:
{
	my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl reaper'");
	skip 'no /proc here', 1 unless -r "/proc/$pid/cmdline";
	like(slurp_file("/proc/$pid/cmdline"), qr/ttl reaper for database uno\b/, '... and ps tells');
}

$node->safe_psql('postgres', "CREATE TABLESPACE place LOCATION ''");
works_at_once('ALTER DATABASE uno SET TABLESPACE place');
fill('uno');
is_emptied('uno', '... and at the new place');
is_served('uno', '... and stays');

works_at_once('CREATE DATABASE copy TEMPLATE uno');
fill('uno');
fill('copy');
is_emptied('uno', '... and in the template');
is_emptied('copy', '... and in the copy');

is_served('uno', 'the worker stays');
works_at_once('DROP DATABASE uno');
is_served('copy', 'the worker of the copy stays');
works_at_once('DROP DATABASE copy WITH (FORCE)');
ok( $node->poll_query_until(
		'postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'ttl reaper'"),
	'no worker is left');
is($node->safe_psql('postgres', "SELECT count(*) FROM ttl.stat_reaper WHERE database IN ('uno', 'copy')"), '0',
	'nor statistics')
  if $node->safe_psql('postgres', "CREATE EXTENSION ttl; SELECT 1");

# One that fails leaves all as it was.
$node->safe_psql('postgres', 'CREATE DATABASE two');
create_container('two');
is_served('two', 'a worker runs');
my $session = $node->background_psql('two');
my ($rc) = $node->psql('postgres', 'ALTER DATABASE two RENAME TO duo');
isnt($rc, 0, 'ALTER DATABASE fails while a user is connected');
fill('two');
is_emptied('two', '... the worker goes on');
$session->quit;
my ($dropped) = $node->psql('postgres', 'DROP DATABASE three');
isnt($dropped, 0, 'no such database');

# DROP EXTENSION

$node->safe_psql('two', 'BEGIN; DROP EXTENSION ttl CASCADE; ROLLBACK');
fill('two');
is_emptied('two', 'DROP EXTENSION rolled back');
is_served('two', '... the worker is there');
$node->safe_psql('two', 'SELECT ttl.alter_container(\'item\', reaping => false)');
fill('two');
$node->safe_psql('two', 'DROP EXTENSION ttl CASCADE');
is_left('two', 'DROP EXTENSION: the worker leaves');
is($node->safe_psql('two', 'SELECT count(*) FROM item'), '10', '... the rows are seen');
is( $node->safe_psql(
		'two',
		"INSERT INTO item (note, _ts) VALUES ('again', '2020-01-01'); UPDATE item SET note = note; SELECT DISTINCT _ts = '2020-01-01' FROM item"
	),
	't',
	'... and nothing is stamped');
$node->safe_psql('two', <<'END');
CREATE EXTENSION ttl;
SELECT ttl.create_container('item', 60);
END
is_emptied('two', 'CREATE EXTENSION: they go');
is($node->safe_psql('two', "SET ttl.show_expired = on; SELECT count(*) FROM item"), '0', '... all of them');
$node->safe_psql('two', "SELECT ttl.drop_container('item')");
is_left('two', 'the last container is dropped: the worker leaves');

# More databases than workers

my @databases = map { "db$_" } 1 .. 5;
for my $database (@databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	create_container($database);
	fill($database);
}
is_emptied($_, "all are served: $_") for @databases;
fill($_) for @databases;
is_emptied($_, "... again: $_") for @databases;
cmp_ok(
	$node->safe_psql(
		'postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl reaper'"),
	'<=', 2,
	'by two workers');
is( $node->safe_psql(
		'postgres', "SELECT count(*) FROM ttl.stat_reaper WHERE database LIKE 'db_' AND cycles > 0"),
	'5',
	'the statistics have all');
works_at_once("DROP DATABASE $_") for @databases;

# Nothing went wrong on the way.
is(join("\n",
		grep { /(ERROR|WARNING|FATAL|PANIC):/ && !/is being accessed by other users|"three" does not exist|terminating (background worker|connection)/ }
		  split /\n/, slurp_file($node->logfile, $log)),
	'', 'no error in the log');

$node->stop;
done_testing();
