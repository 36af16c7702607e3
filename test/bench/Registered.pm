# Registered.pm - what registering costs a table that has a primary key and nothing else
#
# All figures are counts, which repeat on any machine: instructions by callgrind, bytes of WAL and dirtied buffers by EXPLAIN,
# HOT updates as PostgreSQL counts them, sizes.  Half of each page is free, so that all updates of the plain table are HOT.
package bench::Registered;

use strict;
use warnings;

use bench::Instructions;
use bench::Server;

# The plain table, the same with an indexed time beside, which is the least that TTL can cost, and what it is registered
# with.  So that the updates of a row lie within ts_precision, however long they take, it is a day: twelve of them are
# what a minute and an update each five seconds are.
our $again  = 12;
our @tables = (
	[ plain => 'as it was', undef ],
	[ least => 'an indexed `timestamptz` instead', undef ],
	[ usual => 'no options', '' ],
	[ whole => 'ttl_column => NULL', ', ttl_column => NULL' ],
	[ fixed => 'touch_on_update => false', ', touch_on_update => false' ],
	[ multiple => 'ts_precision', q(, ts_precision => '1 day') ],
	[ multiple_whole => 'ts_precision, ttl_column => NULL', q(, ts_precision => '1 day', ttl_column => NULL) ]);

# What is counted by callgrind; Instructions.pm says what the parameters are
my @counted = (
	[ 'INSERT of many rows, each', q{INSERT INTO {T} SELECT 1000000 + g, -1, repeat('y', 60) FROM generate_series({FROM}, {TO}) g} ],
	[ 'INSERT of one row', 'EXECUTE w({P})', q{PREPARE w(int) AS INSERT INTO {T} VALUES ($1 + 2000000, -1, 'x')} ],
	[ 'UPDATE of many rows, each', 'UPDATE {T} SET payload = payload WHERE k BETWEEN {FROM} / 100 AND {TO} / 100' ],
	[ 'UPDATE of one row by its key', 'EXECUTE w({P})', 'PREPARE w(int) AS UPDATE {T} SET payload = payload WHERE id = $1' ],
	[ "UPDATE of one row $again times, each", 'EXECUTE w({R})', 'PREPARE w(int) AS UPDATE {T} SET payload = payload WHERE id = $1' ]);

# A row of each page or so, and as many new ones; and how often
my @explained = (
	[ 'UPDATE', 1, 'UPDATE {T} SET payload = payload WHERE id % 50 = 0' ],
	[ "UPDATE $again times", $again, 'UPDATE {T} SET payload = payload WHERE id % 50 = 1' ],
	[ 'INSERT', 1, q{INSERT INTO {T} SELECT 1000000 + g, -1, repeat('y', 60) FROM generate_series(1, {M}) g} ]);

# A server that has the tables, with so many rows.
sub start
{
	my ($rows) = @_;
	my $server = bench::Server->start(settings => [ 'fsync = off', 'full_page_writes = off', 'ttl.reaper = off', 'bgwriter_lru_maxpages = 0' ]);

	for (@tables)
	{
		my ($table, undef, $options) = @$_;

		$server->sql("CREATE TABLE $table (id int PRIMARY KEY, k int, payload text) WITH (fillfactor = 50)");
		$server->sql("ALTER TABLE $table ADD _ts timestamptz NOT NULL DEFAULT clock_timestamp(); CREATE INDEX ON $table (_ts)") if $table eq 'least';
		$server->sql("SELECT ttl.create_container('$table', 10 * 86400$options)") if defined $options;
		$server->sql("INSERT INTO $table SELECT g, g % 100, repeat('x', 60) FROM generate_series(1, $rows) g");
		$server->sql("VACUUM (FREEZE, ANALYZE) $table");
	}
	return $server;
}

# Makes the rows that are going to be updated as old as if they had been written within another multiple.  Those of the
# plain table are written again, too, so that the pages are alike.
sub age
{
	my ($server, $which) = @_;

	for my $table (map { $_->[0] } @tables)
	{
		my $change = $table eq 'plain' ? 'payload = payload' : "_ts = _ts - interval '2 days'";

		$server->sql("SET ttl.touch = off; UPDATE $table SET $change WHERE $which; RESET ttl.touch; VACUUM (FREEZE) $table");
	}
	return;
}

sub measure
{
	my ($results, %o) = @_;

	count_instructions($results) if bench::Instructions::possible();

	my $rows   = $o{quick} ? 50_000 : 500_000;
	my $server = start($rows);
	my $many   = $rows / 50;

	add($results, 'bytes of a row in the table', '%.1f', sub { $server->sql("SELECT 1.0 * pg_relation_size('$_[0]') / $rows") });
	add($results, 'bytes of a row in its indexes', '%.1f', sub { $server->sql("SELECT 1.0 * pg_indexes_size('$_[0]') / $rows") });
	age($server, 'id % 50 < 2');
	for (@explained)
	{
		my ($work, $times, $statement) = @$_;
		my (%bytes, %dirtied);

		$server->sql('SELECT pg_stat_force_next_flush()');
		$server->sql('SELECT pg_stat_reset()');
		for my $table (map { $_->[0] } @tables)
		{
			for (1 .. $times)
			{
				my $said = explain($server, $statement =~ s/\{T\}/$table/r =~ s/\{M\}/$many/r);

				$bytes{$table} += $1 if $said =~ /bytes=(\d+)/;
				$dirtied{$table} += $1 if $said =~ /dirtied=(\d+)/;
			}
		}
		add($results, "$work: bytes of WAL for a row", '%.0f', sub { $bytes{ $_[0] } / $times / $many });
		add($results, "$work: buffers dirtied for a row", '%.2f', sub { $dirtied{ $_[0] } / $times / $many });
		$server->sql('SELECT pg_stat_force_next_flush()');
		add($results, "$work: share that is HOT", '%.2f', sub { $server->sql("SELECT 1.0 * n_tup_hot_upd / n_tup_upd FROM pg_stat_user_tables WHERE relname = '$_[0]'") }) if $work =~ /UPDATE/;
	}
	$server->stop;
	return;
}

sub count_instructions
{
	my ($results) = @_;
	my $server = start(10_000);

	age($server, 'true');
	$server->shut_down;
	my %counts = map { my $table = $_->[0]; ($table => [ bench::Instructions::count($server, 'ttl', map { [ map { s/\{T\}/$table/r } @$_[ 1 .. $#$_ ] ] } @counted) ]) } @tables;
	for my $i (0 .. $#counted)
	{
		add($results, "$counted[$i][0]: instructions", '%.0f', sub { $counts{ $_[0] }[$i] });
	}
	$server->stop;
	return;
}

# A figure of each table, and the ratio of each container's to the plain table's
sub add
{
	my ($results, $what, $format, $figure) = @_;
	my ($plain, @containers) = map { sprintf $format, $figure->($_->[0]) } @tables;

	$results->add('registered', $what, $plain, @containers, map { sprintf '%.2f', $_ / $plain } @containers);
	return;
}

# What EXPLAIN says of a statement after a checkpoint, in one line
sub explain
{
	my ($server, $statement) = @_;

	$server->sql('CHECKPOINT');
	return join(' ', $server->sql("EXPLAIN (ANALYZE, BUFFERS, WAL, COSTS OFF, TIMING OFF, SUMMARY OFF) $statement"));
}

1;
