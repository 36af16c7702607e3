# A dump is restored where ttl is not: all rows come back, all of them visible, and the only errors
# are about ttl.  Where ttl comes later, the table becomes a container again as it is.
#
# A script must not hold the policies: after a COPY that has failed, psql takes the data for SQL
# (in minor releases before 15.20, say), and the next statement is part of what fails.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', "timezone = 'UTC'\nlc_messages = 'C'\nttl.reaper = off\n");
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE session (id int PRIMARY KEY);
SELECT ttl.create_container('session', 3600);
INSERT INTO session (id, _ts, ttl) VALUES (1, DEFAULT, NULL), (2, '2020-01-01', NULL), (3, '2020-01-01', -1), (4, '2020-01-01', 5);
CREATE DATABASE script;
CREATE DATABASE edited;
CREATE DATABASE archive;
});
my $script = $node->basedir . '/script';
my $whole = $node->basedir . '/whole';
my $edited = $node->basedir . '/edited';
my $archive = $node->basedir . '/archive';
command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '--exclude-table-data=ttl.container', '-f', $script ], 'a dump without policies');
command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $whole ], 'one with them');
command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-Fc', '-f', $archive ], 'and an archive');
like(slurp_file($whole), qr/^COPY ttl\.container /m, 'policies are in the whole dump');
# as doc/without-library.md says
command_ok([ 'sh', '-c', q{sed '/^COPY ttl\.container /,/^\\\\\.$/d' "$0" > "$1"}, $whole, $edited ], '... and can be taken out');
unlike(slurp_file($_), qr/^COPY ttl\./m, 'no policies') for $script, $edited;
$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "''");
$node->restart;

my %restored = (
	script => [ 'psql', '-Xq', '-d', $node->connstr('script'), '-f', $script ],
	edited => [ 'psql', '-Xq', '-d', $node->connstr('edited'), '-f', $edited ],
	archive => [ 'pg_restore', '-d', $node->connstr('archive'), $archive ]);
for my $database (sort keys %restored)
{
	my ($out, $err);
	IPC::Run::run($restored{$database}, '>', \$out, '2>', \$err);
	is(join("\n", grep { /ERROR/ && !/"~?ttl"/ } split(/\n/, $err)), '', "$database: no error but about ttl");
	like($err, qr/library "ttl" must be loaded at server start/, "$database: the first one says what is missing");
	is($node->safe_psql($database, 'SELECT id, ttl FROM session ORDER BY id'), "1|\n2|\n3|-1\n4|5", "$database: all rows are there");
	is($node->safe_psql($database, q{SELECT count(*) FROM pg_constraint WHERE conrelid = 'session'::regclass AND contype IN ('p', 'c')}), 1, "$database: and constraints");
	is($node->safe_psql($database, 'INSERT INTO session VALUES (5); SELECT _ts IS NOT NULL FROM session WHERE id = 5'), 't', "$database: and more come in");
	is($node->safe_psql($database, <<'END'), 2, "$database: what has expired can be told by hand");
WITH gone AS (DELETE FROM session WHERE coalesce(ttl, 3600) > 0 AND _ts + coalesce(ttl, 3600) * interval '1 second' <= now() RETURNING 1)
SELECT count(*) FROM gone
END
}

$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'ttl'");
$node->restart;
$node->safe_psql('script', q{CREATE EXTENSION ttl; SELECT ttl.create_container('session', 3600, ts_column => '_ts', ttl_column => 'ttl')});
is($node->safe_psql('script', 'SELECT id, ttl.time_to_live(s) > 0 FROM session s ORDER BY id'), "1|t\n3|f\n5|t", 'with ttl, it is a container as before');
is($node->safe_psql('script', q{SELECT count(*) FROM pg_attribute WHERE attrelid = 'session'::regclass AND attnum > 0}), 3, '... whose columns were adopted');

$node->stop;
done_testing();
