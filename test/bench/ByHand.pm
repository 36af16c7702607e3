# ByHand.pm - instructions of ttl, and of what people write instead
#
# By hand: a column expires_at, an index on it, and a condition in each query; a job that deletes is left out.  Partitions:
# the same by day, without the index.  Small tables are compared with a plain one.  All by callgrind, see Instructions.pm.
package bench::ByHand;

use strict;
use warnings;

use bench::Instructions;
use bench::Server;

my $rows    = 10_000;
my $columns = 'id int PRIMARY KEY, k int, payload text';
my $expires = 'expires_at timestamptz NOT NULL';

# Name, heading, how it is made; what an INSERT, an assignment and a condition have more
our @contenders = (
	[ plain => 'plain', "CREATE TABLE plain ($columns)", '', '', '' ],
	[ container => 'container', "CREATE TABLE container ($columns); SELECT ttl.create_container('container', 86400)", '', '', '' ],
	[ rounded => '... with `ts_precision`', "CREATE TABLE rounded ($columns); SELECT ttl.create_container('rounded', 86400, ts_precision => '1 second')", '', '', '' ],
	[ adopted => '... over `expires_at`', "CREATE TABLE adopted ($columns, $expires); SELECT ttl.create_container('adopted', -1, ttl_column => 'expires_at', ts_column => NULL)",
		", now() + interval '1 day'", ", expires_at = now() + interval '1 day'", '' ],
	[ hand => 'by hand', "CREATE TABLE hand ($columns, $expires); CREATE INDEX ON hand (expires_at)",
		", now() + interval '1 day'", ", expires_at = now() + interval '1 day'", 'AND expires_at > now()' ],
	[ parts => 'partitions', "CREATE TABLE parts (" . $columns =~ s/ PRIMARY KEY//r . ", $expires, PRIMARY KEY (id, expires_at)) PARTITION BY RANGE (expires_at); "
		. join('; ', map { "CREATE TABLE parts_$_ PARTITION OF parts FOR VALUES FROM (current_date + $_) TO (current_date + $_ + 1)" } 0 .. 6),
		", now() + interval '1 day'", undef, 'AND expires_at > now()' ]);

# What is counted: as Instructions.pm says; {V}, {S} and {W} are what a contender has more
my @counted = (
	[ 'read by key', 'EXECUTE w({P})', 'PREPARE w(int) AS SELECT payload FROM {T} WHERE id = $1 {W}' ],
	[ 'UPDATE of one row that renews it', 'EXECUTE w({P})', q{PREPARE w(int) AS UPDATE {T} SET payload = 'y' {S} WHERE id = $1 {W}} ],
	[ 'INSERT of one row', 'EXECUTE w({P})', q{PREPARE w(int) AS INSERT INTO {T} VALUES ($1 + 2000000, -1, 'x' {V})} ],
	[ 'upsert, the key is there', 'EXECUTE w({P})', q{PREPARE w(int) AS INSERT INTO {T} AS t VALUES ($1, -1, 'x' {V}) ON CONFLICT (id) DO UPDATE SET payload = 'y' {S}} ],
	[ 'INSERT of many rows, each', q{INSERT INTO {T} SELECT 1000000 + g, -1, repeat('y', 60) {V} FROM generate_series({FROM}, {TO}) g} ],
	[ 'UPDATE of many rows, each', q{UPDATE {T} SET payload = 'y' {S} WHERE k BETWEEN {FROM} / 100 AND {TO} / 100 {W}} ]);

# Statements on partitions; once for a session before they are counted, so that caches are filled and plans made
my @on_leaves = (
	[ 'count(*) over 100 partitions of 100 rows', 'SELECT count(*) FROM {T}', 'SELECT count(*) FROM {T}' ],
	[ 'read by key, generic plan, 100 partitions', 'EXECUTE w({P})', 'SET plan_cache_mode = force_generic_plan', 'PREPARE w(int) AS SELECT payload FROM {T} WHERE id = $1', 'EXECUTE w(1)' ],
	[ 'UPDATE by key, generic plan, 100 partitions', 'EXECUTE w({P})', 'SET plan_cache_mode = force_generic_plan', 'PREPARE w(int) AS UPDATE {T} SET payload = payload{clock} WHERE id = $1', 'EXECUTE w(1)' ],
	[ 'planning, 100 partitions', 'EXPLAIN SELECT payload FROM {T}' ]);

# Small tables, and what share of their rows has expired
my @small = ([ 300, 0 ], [ 900, 0 ], [ 300, 0.01 ], [ 300, 0.3 ], [ 900, 0.3 ]);

sub measure
{
	my ($results) = @_;

	return if !bench::Instructions::possible();
	my $server = bench::Server->start(settings => [ 'fsync = off', 'ttl.reaper = off' ]);
	for (@contenders)
	{
		my ($table, undef, $create, $more) = @$_;
		$server->sql("$create; INSERT INTO $table SELECT g, g % 100, repeat('x', 60) $more FROM generate_series(1, $rows) g; VACUUM (FREEZE, ANALYZE) $table");
	}
	for (@small)
	{
		my ($n, $share) = @$_;
		my $table = small($n, $share);

		$server->sql("CREATE TABLE $table ($columns); SELECT ttl.create_container('$table', 86400)");
		$server->sql("INSERT INTO $table SELECT g, g, 'x', now() - CASE WHEN g % 100 < 100 * $share THEN interval '2 days' ELSE '0' END FROM generate_series(1, $n) g");
		$server->sql("CREATE TABLE plain_$table (LIKE $table INCLUDING ALL); INSERT INTO plain_$table SELECT * FROM $table; VACUUM (FREEZE, ANALYZE) $table, plain_$table");
	}
	$server->sql("CREATE TABLE leaves (id int PRIMARY KEY, payload text) PARTITION BY RANGE (id); CREATE TABLE plain_leaves (LIKE leaves INCLUDING ALL) PARTITION BY RANGE (id)");
	for my $table (qw(leaves plain_leaves))
	{
		$server->sql("CREATE TABLE $table$_ PARTITION OF $table FOR VALUES FROM ($_ * 100 + 1) TO ($_ * 100 + 101)") for 0 .. 99;
		$server->sql("INSERT INTO $table SELECT g, 'x' FROM generate_series(1, $rows) g; VACUUM (FREEZE, ANALYZE) $table");
	}
	$server->sql("SELECT ttl.create_container('leaves', 86400)");
	$server->sql('CREATE TABLE alike (LIKE container INCLUDING ALL)');
	$server->sql('CREATE TRIGGER t BEFORE UPDATE ON alike FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()');
	$server->sql("INSERT INTO alike SELECT * FROM container; VACUUM (FREEZE, ANALYZE) alike");
	# else the first session would prune pages of catalogs for all that follow
	$server->sql('VACUUM');
	$server->shut_down;
	compare($results, $server);
	count_small($results, $server);
	$server->stop;
	return;
}

sub small { my ($n, $share) = @_; return sprintf 'small_%d_%d', $n, 100 * $share; }

# Instructions of each statement on a table, with what it has instead of each of these
sub count_on
{
	my ($server, $rounds, $statements, %with) = @_;

	return [ bench::Instructions::count_rounds($server, 'ttl', @$rounds, map { [ map { s/\{(T|V|S|W|clock)\}/$with{$1}/gr } @$_[ 1 .. $#$_ ] ] } @$statements) ];
}

sub compare
{
	my ($results, $server) = @_;
	my %counts;

	for (@contenders)
	{
		my ($table, undef, undef, $more, $set, $where) = @$_;
		my @possible = grep { defined $set || $_->[1] !~ /\{S\}|UPDATE/ && $_->[2] !~ /\{S\}/ } map { [ @$_, '' ] } @counted;
		my $figures = count_on($server, [ 100, 1100 ], \@possible, T => $table, V => $more, S => $set // '', W => $where);

		$counts{$table}{ $possible[$_][0] } = sprintf '%.1f', $figures->[$_] / 1000 for 0 .. $#possible;
	}
	for my $work (map { $_->[0] } @counted)
	{
		$results->add('by hand', $work, map { $counts{ $_->[0] }{$work} // '-' } @contenders);
	}
	return;
}

# Small tables, partitions and a first statement: container, plain table, ratio
sub count_small
{
	my ($results, $server) = @_;
	my $add = sub {
		my ($what, @pair) = @_;
		$results->add('small', $what, map({ sprintf '%.0f', $_ } @pair), sprintf('%.3f', $pair[0] / $pair[1]));
	};

	for (@small)
	{
		my ($n, $share) = @$_;
		my $table = small($n, $share);
		my @count = ([ '', 'SELECT count(*) FROM {T}' ], [ '', 'SELECT 1 FROM {T} LIMIT 1' ]);
		my ($container, $plain) = map { count_on($server, [ 10, 110 ], \@count, T => $_) } $table, "plain_$table";

		$add->("count(*) of $n rows, @{[ 100 * $share ]} % expired", $container->[0], $plain->[0]);
		$add->("LIMIT 1 of $n rows, @{[ 100 * $share ]} % expired", $container->[1], $plain->[1]);
	}
	my ($container, $plain) = map { my ($table, $clock) = @$_; count_on($server, [ 10, 60 ], \@on_leaves, T => $table, clock => $clock) } [ 'leaves', '' ], [ 'plain_leaves', '' ];
	$add->($on_leaves[$_][0], $container->[$_], $plain->[$_]) for 0 .. $#on_leaves;
	for ([ 'a read by key', 'SELECT payload FROM {T} WHERE id = 1' ], [ 'INSERT of one row', q{INSERT INTO {T} (id, k, payload) VALUES (-1, 1, 'x')} ])
	{
		my ($what, $statement) = @$_;
		my %first = map { $_ => (bench::Instructions::callgrind($server, 'ttl', 'pg_parse_query', $statement =~ s/\{T\}/$_/r, 'SELECT 1'))[1] } 'container', 'plain', 'alike';

		$add->("first statement of a session, $what", @first{ 'container', 'plain' });
		$add->('... / a table with the same columns and indexes, and a trigger', @first{ 'container', 'alike' });
	}
	return;
}

1;
