# A table that is dropped while the library isn't loaded leaves its policy behind: no dump
# holds it, none that does is restored to another table, and it can be removed.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.reaper = off
ttl.naptime = 100ms
timezone = 'UTC'
END
my $dir = $node->backup_dir;
mkdir $dir;

sub sql { return $node->safe_psql('postgres', @_); }

sub load_library
{
	my ($libraries) = @_;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'");
	$node->restart;
	return;
}

sql(<<'END');
CREATE EXTENSION ttl;
CREATE TABLE attic (id int, _ts timestamptz);
CREATE TABLE kept (id int PRIMARY KEY);
CREATE TABLE gone (id int PRIMARY KEY);
CREATE TABLE gone_too (id int PRIMARY KEY);
SELECT ttl.create_container(c, -1) FROM unnest('{kept, gone, gone_too}'::regclass[]) c;
SELECT ttl.alter_container('kept', archive_to => 'attic');
INSERT INTO kept (id, _ts, ttl) VALUES (1, '2020-01-01', 5), (2, '2020-01-01', NULL);
CREATE ROLE somebody LOGIN;
END
my ($gone, $gone_too, $attic) = split /\n/, sql(q{SELECT unnest('{gone, gone_too, attic}'::regclass[])::oid});

load_library('');
sql('DROP TABLE gone, gone_too, attic');

# A dump has policies of tables alone.
for my $format ('p', 'c')
{
	command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), "-F$format", '-f', "$dir/dump.$format" ], "pg_dump -F$format");
}
my $dump = slurp_file("$dir/dump.p");
my ($rows) = $dump =~ /^COPY ttl\.container [^\n]*\n(.*?)^\\\.$/ms or die 'no rows of ttl.container';
like($rows, qr/^public\.kept\t/m, 'a dump holds the policies of tables');
unlike($rows, qr/^\d/m, '... and none of what is gone');

load_library('ttl');
$node->safe_psql('postgres', "CREATE DATABASE $_") for 'copy', 'parallel', 'old';
for (['copy'], ['parallel', '-j2'])
{
	my ($database, @options) = @$_;

	command_ok([ 'pg_restore', '-d', $node->connstr($database), '-e', @options, "$dir/dump.c" ], "pg_restore @options");
	is($node->safe_psql($database, 'SELECT container, archive_to, reaping FROM ttl.containers; SELECT id FROM kept'),
		"kept||f\n2", '... brings what is there');
}

# One that was made before has numbers.  There they are other tables'.
$node->safe_psql('old', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE kept (id int PRIMARY KEY, _ts timestamptz, ttl int);
CREATE TABLE other (id int, _ts timestamptz, note text);
INSERT INTO other VALUES (1, '2020-01-01', 'readable');
END
my $other = $node->safe_psql('old', q{SELECT 'other'::regclass::oid});
my ($head) = $dump =~ /^(COPY ttl\.container [^\n]*\n)/m;
(my $wrong = $rows) =~ s/^public\.kept\t/$other\t/;
(my $missing = $rows) =~ s/^public\.kept\t/4000000000\t/;

for my $before ('', "SET session_replication_role = replica;\nALTER TABLE ttl.container DISABLE TRIGGER ALL;\n")
{
	$node->safe_psql('old', "SELECT ttl.drop_container('kept')") if $before;
	my ($rc, undef, $stderr) = $node->psql('old', "$before$head$wrong$missing$rows\\.\n");
	is($rc, 0, 'policies with numbers are restored');
	like($stderr, qr/WARNING:  policy of table "public\.other" was not restored/, '... but not to another table');
	like($stderr, qr/WARNING:  policy of table "4000000000" was not restored/, '... nor to none');
	is($node->safe_psql('old', 'SELECT container FROM ttl.containers; SELECT note FROM other; SELECT id FROM kept'),
		"kept\nreadable", '... and the others arrive');
}

# The number of the archive may be that of another table, too.
$node->safe_psql('old', q{CREATE TABLE plain (x int); SELECT ttl.drop_container('kept')});
my $plain = $node->safe_psql('old', q{SELECT 'plain'::regclass::oid});
(my $archived = $rows) =~ s/\t$attic\t/\t$plain\t/ or die "no archive in $rows";
$node->safe_psql('old', "$head$archived\\.\n");
my ($rc, undef, $stderr) = $node->psql('old', q{SELECT ttl.alter_container('kept', reaping => true)});
like($stderr, qr/archive "plain" has no column in common/, 'reaping does not begin before the archive has been looked at');

# What is left behind is removed: by its number, or by a worker.
is(sql('SELECT count(*) FROM ttl.containers'), '3', 'the policies of what is gone are there');
$node->safe_psql('postgres', "SELECT ttl.drop_container($gone)", extra_params => [ '-U', 'somebody' ]);
is(sql("SELECT container FROM ttl.containers ORDER BY container <> 'kept'::regclass"), "kept\n$gone_too", 'one is removed by its number');
($rc, undef, $stderr) = $node->psql('postgres', "SELECT ttl.drop_container($gone)");
like($stderr, qr/relation with OID $gone does not exist/, '... once');
$node->append_conf('postgresql.conf', 'ttl.reaper = on');
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM ttl.containers}), 'the worker removes the others');

# A container that has lost a column so is told of, and nothing else fails: not the
# views, nor a dump, which holds its rows.
load_library('');
sql('ALTER TABLE kept DROP COLUMN _ts');
load_library('ttl');
($rc, undef, $stderr) = $node->psql('postgres', 'TABLE kept');
like($stderr, qr/container "kept" lacks a column that it requires/, 'rows that cannot be told apart are not shown');
is(sql('SELECT container, lag FROM ttl.stat_containers'), 'kept|', '... and the statistics do not fail');
is(sql('SELECT container, state FROM ttl.status'), 'kept|damaged: a column is missing', '... and the status says why');
command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', "$dir/damaged.p" ], '... nor a dump');
like(slurp_file("$dir/damaged.p"), qr/^COPY public\.kept \(id, ttl\) FROM stdin;\n1\t5\n2\t\\N\n/m, '... which holds its rows');

# One that has lost its trigger, and has no other, gives none of its expired rows to ON CONFLICT.
sql(<<'END');
CREATE TABLE bare (id int PRIMARY KEY, secret text);
SELECT ttl.create_container('bare', 60), ttl.alter_container('bare', reaping => false);
INSERT INTO bare (id, secret, _ts) VALUES (1, 'of the dead', '2020-01-01');
END
load_library('');
sql('DROP TRIGGER "~ttl" ON bare');
load_library('ttl');
($rc, my $out, $stderr) = $node->psql('postgres', 'INSERT INTO bare VALUES (1) ON CONFLICT (id) DO UPDATE SET id = 1 RETURNING secret');
like("$out$stderr", qr/^[^\n]*ERROR:  cannot free keys of expired rows for ON CONFLICT DO UPDATE because trigger "~ttl" of table "bare" does not fire/, 'ON CONFLICT fails on an expired row where the trigger is gone');

$node->stop;
done_testing();
