# Real clients, unmodified, do their normal work while rows expire under them: the programs in
# test/clients, each in a database of its own, whose owner is no superuser; pgbench; and consumers of
# logical decoding.  What is not installed is skipped: test/clients/run installs it.
# What doc/frameworks.md shows stands in these programs.  CLIENT=knex tries only that.
#
# A program tells by its exit status whether it saw what it should.  What the server logs as an error is
# one that the program has asked for, or an ordinary one of the client, such as a lost race for a key.
use strict;
use warnings;

use File::Basename;
use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $duplicate = qr/duplicate key value/;
my $foreign = qr/violates foreign key constraint/;
my $required = qr/because container "\w+" requires it/;

# program, what it needs (packages of Node.js, modules of Python, libraries of Ruby), what the server may complain about
my @programs = (
	[ 'connect_pg_simple.js', 'connect-pg-simple express express-session' ],
	[ 'keyv_postgres.js', 'keyv @keyv/postgres' ],
	[ 'pg_boss.js', 'pg-boss' ],
	[ 'graphile_worker.js', 'graphile-worker', qr/relation "graphile_worker.migrations" does not exist/ ],
	[ 'node_postgres.js', 'pg pg-cursor pg-query-stream', qr/invalid default TTL|relation "nothing" does not exist/ ],
	[ 'knex.js', 'knex', $duplicate ],
	[ 'sequelize.js', 'sequelize', qr/$required|$foreign/ ],
	[ 'typeorm.js', 'typeorm reflect-metadata', $duplicate ],
	[ 'drizzle.js', 'drizzle-orm drizzle-kit' ],
	[ 'django_orm.py', 'django psycopg2', qr/$duplicate|$foreign/ ],
	[ 'sqlalchemy_orm.py', 'sqlalchemy alembic psycopg2', $foreign ],
	[ 'psycopg_3.py', 'psycopg psycopg2', qr/invalid default TTL|canceling statement due to lock timeout|$duplicate/ ],
	[ 'active_record.rb', 'active_record pg', $foreign ],);
@programs = grep { $_->[0] =~ /$ENV{CLIENT}/ } @programs if $ENV{CLIENT};

my $clients = "$FindBin::RealBin/../clients";
# Debian's packages are for Debian's Python and Ruby; Node.js is the one that test/clients/run has installed, if any.
my %interpreters = (js => (grep { -x } glob("$clients/node_modules/node-linux-*/bin/node"), map { "$_/node" } split(/:/, $ENV{PATH}))[0], py => '/usr/bin/python3', rb => '/usr/bin/ruby');

# doc/frameworks.md: apart from white space, and where a statement ends
my %code = map { $_ => slurp_file($_) =~ s/\s+//gr } glob("$clients/*.js $clients/*.py $clients/*.rb $clients/drizzle/*.js $clients/shop/*.py $clients/shop/migrations/*.py $0 $FindBin::RealBin/710_suites_of_others.pl");
my $page = slurp_file("$FindBin::RealBin/../../doc/frameworks.md");
while ($page =~ /^###? ([^\n]*)\n(.*?)(?=^##|\z)/msg)
{
	my ($section, $text) = ($1, $2);
	my @blocks = $text =~ /^```\w+\n(.*?)^```$/msg or next;
	my @untested = grep {
		my $sought = s/\s+//gr;
		!grep { index($_, $sought) >= 0 } values %code
	} map { split(/;\n/) } @blocks;

	is("@untested", '', "doc/frameworks.md, $section: what is shown is tested");
}

my $node = TtlNode->start_new('clients', <<'END', allows_streaming => 'logical');
max_connections = 50
ttl.naptime = 50ms
lc_messages = 'C'
timezone = 'UTC'
END
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN');

# A database of the role, whom the server trusts
sub create_database
{
	my ($name) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name OWNER app");
	$node->safe_psql($name, 'CREATE EXTENSION ttl; GRANT CREATE ON SCHEMA public TO app');
	return;
}

# What a program needs and isn't there
sub missing
{
	my ($extension, $interpreter, $needed) = @_;
	my %there = (
		js => sub { -d "$clients/node_modules/$_[0]" },
		py => sub { !system($interpreter, '-c', "import importlib.util as u, sys; sys.exit(u.find_spec('$_[0]') is None)") },
		rb => sub { !system($interpreter, '-e', "begin; require '$_[0]'; rescue LoadError; exit 1; end") });

	return 'its interpreter' if !defined $interpreter || !-x $interpreter;
	return (grep { !$there{$extension}->($_) } split(/ /, $needed))[0];
}

# The errors and warnings in the log from here on, without those that are expected
sub complaints
{
	my ($offset, $expected) = @_;

	return grep { !defined $expected || $_ !~ $expected }
	  slurp_file($node->logfile, $offset) =~ /^.*(?:ERROR|FATAL|PANIC|WARNING):  .*/mg;
}

for (@programs)
{
	my ($program, $needed, $expected) = @$_;
	my ($name, $extension) = split(/\./, $program);
	my $interpreter = $interpreters{$extension};
	my $missing = missing($extension, $interpreter, $needed);

	SKIP:
	{
		skip "$program: $missing is not installed", 2 if defined $missing;

		create_database($name);
		local %ENV = (
			%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => $name, PGUSER => 'app', TZ => 'UTC',
			PYTHONDONTWRITEBYTECODE => 1, HOME => $PostgreSQL::Test::Utils::tmp_check);
		my $log = -s $node->logfile;
		my $output;

		my $ok = eval {
			IPC::Run::run([ $interpreter, $program ], '<', \'', '>', \$output, '2>', \$output,
				init => sub { chdir $clients or die "$clients: $!" }, IPC::Run::timeout(120));
		};
		ok($ok, $program) or diag($output // '', $@ // '');
		is(join("\n", complaints($log, $expected)), '', '... and the server has no complaints');
	}
}

#
# pgbench
#

create_database('bench');
my @pgbench = ('pgbench', '-h', $node->host, '-p', $node->port, '-U', 'app', 'bench');
my $log = -s $node->logfile;

command_ok([ @pgbench, '-i', '-q' ], 'pgbench -i');
$node->safe_psql('bench', <<'END');
SET ROLE app;
SELECT ttl.create_container(c, 3600) FROM unnest('{pgbench_accounts, pgbench_tellers, pgbench_branches}'::regclass[]) c;
SELECT ttl.create_container('pgbench_history', 1);
CREATE TABLE session (id int PRIMARY KEY, hits int NOT NULL);
SELECT ttl.create_container('session', 1);
END

my $script = "$PostgreSQL::Test::Utils::tmp_check/session.sql";
append_to_file($script, <<'END');
\set id random(1, 300)
INSERT INTO session (id, hits) VALUES (:id, 1) ON CONFLICT (id) DO UPDATE SET hits = session.hits + 1;
SELECT hits FROM session WHERE id = :id;
END
my $reaped = "SELECT coalesce(sum(rows_deleted), 0) > 0 FROM ttl.stat_containers WHERE container = 'pgbench_history'::regclass";
for my $mode ('simple', 'extended', 'prepared')
{
	command_ok([ @pgbench, '-n', '-c', 4, '-j', 2, '-t', 300, '-M', $mode, '-b', 'tpcb-like@1', '-f', "$script\@2" ], "pgbench, protocol $mode");
	$node->poll_query_until('bench', $reaped) or die 'nothing is reaped';
}
is($node->safe_psql('bench', <<'END'), 't', '... keeps its books');
SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(tbalance) FROM pgbench_tellers)
   AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)
END
for my $table ('pgbench_history', 'session')
{
	ok($node->poll_query_until('bench', "SELECT count(*) = 0 FROM $table"), "... rows of $table expire");
	$node->is_emptied($table, '... and are deleted', 'bench');
}
is(join("\n", complaints($log)), '', '... and the server has no complaints');

#
# Logical decoding: which deletions are a user's, and which are TTL's
#

create_database('decoding');
$node->safe_psql('decoding', <<'END');
SET ROLE app;
CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', 3600);
SELECT ttl.alter_container('item', replication_origin => true);
END

my %slots = (all => 'test_decoding', local => 'test_decoding');
if (-e $node->config_data('--pkglibdir') . '/wal2json.so')
{
	%slots = (%slots, json => 'wal2json', json_local => 'wal2json');
	# newer servers, of each major version, have to be told
	$node->configure("output_plugin_libraries = 'test_decoding, wal2json'")
	  if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'});
}
$node->safe_psql('decoding', "SELECT pg_create_logical_replication_slot('$_', '$slots{$_}')") for sort keys %slots;

# users delete 1 and 2, the worker 11 to 20, and 21 goes for an INSERT
$node->safe_psql('decoding', 'INSERT INTO item SELECT g FROM generate_series(1, 30) g');
$node->safe_psql('decoding', 'DELETE FROM item WHERE id <= 2');
$node->safe_psql('decoding', <<'END');
SELECT ttl.alter_container('item', reaping => false);
SET ttl.touch = off;
UPDATE item SET _ts = '2020-01-01' WHERE id BETWEEN 11 AND 21;
END
$node->safe_psql('decoding', <<'END');
INSERT INTO item VALUES (21);
SELECT ttl.alter_container('item', reaping => true), ttl.set_default_ttl('item', 3600);
END
$node->is_emptied('item', 'expired rows are deleted', 'decoding');
$node->wait_for_flush;
my $end = $node->safe_psql('decoding', 'SELECT pg_current_wal_flush_lsn()');

# The ids that a consumer hears to be deleted
sub deleted
{
	my ($slot, $pattern, %options) = @_;
	my $changes = $node->pg_recvlogical_upto('decoding', $slot, $end, 180, %options);

	return join(' ', sort { $a <=> $b } $changes =~ /$pattern/g);
}

my $text = qr/^table public\.item: DELETE: id\[integer\]:(\d+)/m;
is(deleted('all', $text), "1 2 @{[ 11 .. 21 ]}", 'test_decoding: all deletions');
is(deleted('local', $text, 'only-local' => 'on'), '1 2 21', "test_decoding: without those of origin ttl");
SKIP:
{
	skip 'wal2json is not installed', 2 if !$slots{json};

	# by its number.  Commits are not tagged, see origin.c: include-origin, which looks at them, tells nothing
	my $origin = $node->safe_psql('decoding', q{SELECT roident FROM pg_replication_origin WHERE roname = 'ttl'});
	my $json = qr/"action":"D"[^\n]*"value":(\d+)/;
	is(deleted('json', $json, 'format-version' => 2), "1 2 @{[ 11 .. 21 ]}", 'wal2json: all deletions');
	is(deleted('json_local', $json, 'format-version' => 2, 'filter-origins' => $origin), '1 2 21', 'wal2json: without those of origin ttl');
}

$node->stop;
done_testing();
