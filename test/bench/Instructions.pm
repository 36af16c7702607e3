# Instructions.pm - instructions of statements, counted by valgrind
#
# PostgreSQL's single-user mode runs under callgrind, on a copy of the data, and executes each statement a few times, then
# more often, each time in a transaction of its own: the difference is what an execution takes.  Counts repeat within a hundredth, whatever else the machine does.
package bench::Instructions;

use strict;
use warnings;

use bench::Server;

# What is compared, work, and a statement with its parameter or with the numbers of its rounds: a container and a
# plain table, or a plain table with ttl loaded and without.  Others than a superuser pay for more checks of rights.
my $prepared = 'EXECUTE w({P})';
my $read     = 'SELECT payload FROM {T} WHERE id = {P}';
my $by_key   = 'SELECT payload FROM {T} WHERE id = $1';
my $loop     = 'DO $$ DECLARE x text; BEGIN FOR i IN {FROM} .. {TO} LOOP SELECT payload INTO x FROM {T} WHERE id = i; END LOOP; END $$';
my $reader   = 'SET ROLE reader';
my @work     = (
	[ 'read by key, prepared', $prepared, "PREPARE w(int) AS $by_key" ],
	[ 'read by key, prepared, ordinary role', $prepared, $reader, "PREPARE w(int) AS $by_key" ],
	[ 'read by key with LIMIT, prepared', $prepared, "PREPARE w(int) AS $by_key LIMIT 1" ],
	[ 'read by key, simple', $read ],
	[ 'read by key, simple, ordinary role', $read, $reader ],
	[ 'read by key, PL/pgSQL loop', $loop ],
	[ 'read by key, PL/pgSQL loop, ordinary role', $loop, $reader ],
	[ 'UPDATE by key, prepared', $prepared, 'PREPARE w(int) AS UPDATE {T} SET payload = payload{clock} WHERE id = $1' ],
	[ 'INSERT, prepared', $prepared, q{PREPARE w(int) AS INSERT INTO {T} (id, payload) VALUES ($1 + 10000, 'x')} ]);

# Scans of tables, of which so many rows have expired
my $heap     = 'SET enable_seqscan = on; SET enable_indexonlyscan = off; SET enable_bitmapscan = off';
my $by_index = 'SET enable_seqscan = off; SET enable_indexonlyscan = on; SET enable_bitmapscan = off';
my $bitmap   = 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = on';
my %expired  = (none => 'false', together => 'g <= {N} / 100', scattered => 'g % 100 = 0', third => 'g % 10 < 3');
my @scans    = (
	[ 'count(*)', 'SELECT count(*) FROM {T}', $heap ],
	[ 'count(*) WHERE', q{SELECT count(*) FROM {T} WHERE payload <> 'y'}, $heap ],
	[ 'GROUP BY', 'SELECT k, count(*), max(payload) FROM {T} GROUP BY k', $heap ],
	[ 'rows', 'SELECT * FROM {T} OFFSET 1000000000', $heap ],
	[ 'count(*), index-only', 'SELECT count(*) FROM {T}', $by_index ],
	[ 'count(*), bitmap', 'SELECT count(*) FROM {T} WHERE k < 500', $bitmap ]);

# A library with which clocks go at a hundredth of their pace, as callgrind does
sub slow_clock
{
	my ($dir) = @_;

	open my $file, '>', "$dir/clock.c" or die "cannot write $dir/clock.c";
	print $file <<'END';
#include <time.h>
#include <sys/time.h>
int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	static long long start;
	struct timespec t;
	long long us;
	clock_gettime(CLOCK_REALTIME, &t);
	us = t.tv_sec * 1000000LL + t.tv_nsec / 1000;
	start = start ? start : us;
	us = start + (us - start) / 100;
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return 0;
}
END
	close $file;
	bench::Server::system_or_die('cc', 'cc', '-shared', '-fPIC', '-o', "$dir/clock.so", "$dir/clock.c");
	return "$dir/clock.so";
}

# Instructions of a session from one call of the function to the next, and before the first
sub callgrind
{
	my ($server, $preload, $function, @lines) = @_;
	my ($input, $data, $counts) = map { "$server->{dir}/$_" } qw(lines copy counts);

	open my $file, '>', $input or die "cannot write $input";
	print $file "$_\n" for @lines;
	close $file;
	File::Path::remove_tree($data, $counts);
	mkdir $counts;
	bench::Server::system_or_die('copying', 'cp', '-a', "$server->{dir}/data", $data);
	bench::Server::system_or_die('callgrind', "valgrind --tool=callgrind --dump-before=$function --callgrind-out-file=$counts/part"
		. " '$server->{bin}/postgres' --single -D '$data' -c log_min_messages=error -c shared_preload_libraries=$preload postgres < '$input' > '$server->{dir}/said' 2>&1");
	qx(cat '$server->{dir}/said') =~ /ERROR:.*/ and die "callgrind: $&\n";

	my $parts = () = glob "$counts/part.*";
	return map { qx(tail -n 1 $counts/part.$_) =~ /^totals: (\d+)/ ? $1 : die "no count $_" } 1 .. $parts;
}

# Instructions of an execution of each of these: a statement with {P} for a key from 1 to 9593, {R} for
# one that is the same twelve times, or with {FROM} and {TO} for
# the numbers of its rounds, 0 to 1199, and what comes before it.  The server is shut down.
sub count
{
	my ($server, $preload, @statements) = @_;
	return count_rounds($server, $preload, 100, 1100, @statements);
}

# The same with so many executions before the ones that count
sub count_rounds
{
	my ($server, $preload, $before, $counted, @statements) = @_;
	my $mark = 'SELECT pg_backend_pid()';
	my @lines;

	for (@statements)
	{
		my ($statement, @first) = @$_;
		my @rounds = map {
			my ($from, $to) = @$_;
			($statement =~ /\{FROM\}/
				? $statement =~ s/\{FROM\}/$from/r =~ s/\{TO\}/$to/r
				: map({ my ($key, $again) = (1 + $_ * 8, 1 + int($_ / 12) * 8); $statement =~ s/\{P\}/$key/r =~ s/\{R\}/$again/r } $from .. $to), $mark);
		} [ 0, $before - 1 ], [ $before, $before + $counted - 1 ];
		push @lines, @first, $mark, @rounds, 'DEALLOCATE ALL', 'RESET ROLE';
	}
	my @part = callgrind($server, $preload, 'pg_backend_pid', @lines);
	return map { ($part[ 3 * $_ + 2 ] - $part[ 3 * $_ + 1 ]) / ($counted - $before) } 0 .. $#statements;
}

sub possible
{
	my $installed = system('valgrind --version > /dev/null 2>&1') == 0;

	print "  no instructions: valgrind is not installed\n" if !$installed;
	return $installed;
}

sub measure
{
	my ($results) = @_;

	return if !possible();
	my $server = bench::Server->start(settings => [ 'fsync = off', 'ttl.reaper = off' ]);
	$server->sql("CREATE TABLE kept (id int PRIMARY KEY, payload text); SELECT ttl.create_container('kept', 86400)");
	$server->sql('CREATE TABLE kept_plain (LIKE kept INCLUDING ALL)');
	$server->sql('CREATE ROLE reader; GRANT SELECT ON kept, kept_plain TO reader');
	$server->sql("INSERT INTO $_ SELECT g, repeat('x', 60) FROM generate_series(1, 10000) g; VACUUM (FREEZE, ANALYZE) $_") for qw(kept kept_plain);
	$server->shut_down;
	for (
		[ 'container / plain table', [ 'kept', 'ttl', '' ], [ 'kept_plain', 'ttl', ', _ts = clock_timestamp()' ] ],
		[ 'with ttl / without it', [ 'kept_plain', 'ttl', '' ], [ 'kept_plain', q(''), '' ] ])
	{
		my ($what, @pair) = @$_;
		my ($one, $other) = map {
			my ($table, $preload, $clock) = @$_;
			[ count($server, $preload, map { [ map { s/\{T\}/$table/gr =~ s/\{clock\}/$clock/r } @$_[ 1 .. $#$_ ] ] } @work) ];
		} @pair;

		$results->add('instructions', "$work[$_][0]: $what", (map { sprintf '%.0f', $_ } $one->[$_], $other->[$_]), sprintf('%.3f', $one->[$_] / $other->[$_])) for 0 .. $#work;
	}
	measure_first($results, $server);
	$server->stop;
	measure_scans($results);
	measure_deletion($results);
	return;
}

# The first statement of a session, which fills its caches
sub measure_first
{
	my ($results, $server) = @_;
	my ($kept, $plain, $without) = map {
		my ($table, $preload) = @$_;
		(callgrind($server, $preload, 'pg_parse_query', "SELECT payload FROM $table WHERE id = 1", 'SELECT 1'))[1]
	} [ 'kept', 'ttl' ], [ 'kept_plain', 'ttl' ], [ 'kept_plain', q('') ];

	for ([ 'container / plain table', $kept, $plain ], [ 'with ttl / without it', $plain, $without ])
	{
		my ($what, @pair) = @$_;
		$results->add('instructions', "first statement of a session, a read by key: $what", @pair, sprintf('%.3f', $pair[0] / $pair[1]));
	}
	return;
}

# Scans of containers and of a plain table, by the row
sub measure_scans
{
	my ($results) = @_;
	my $server = bench::Server->start(settings => [ 'fsync = off', 'ttl.reaper = off' ]);
	my $rows   = 50_000;
	my %counts;

	for my $table (sort(keys %expired), 'plain')
	{
		my $condition = ($expired{$table} // 'false') =~ s/\{N\}/$rows/r;

		$server->sql("CREATE TABLE $table (id int PRIMARY KEY, k int, payload text)");
		$server->sql("SELECT ttl.create_container('$table', 86400)");
		$server->sql("INSERT INTO $table SELECT g, g % 1000, repeat('x', 60), now() - CASE WHEN $condition THEN interval '2 days' ELSE '0' END FROM generate_series(1, $rows) g");
		$server->sql("SELECT ttl.drop_container('$table')") if $table eq 'plain';
		$server->sql("CREATE INDEX ON $table (k); VACUUM (FREEZE, ANALYZE) $table");
	}
	$server->shut_down;
	for my $table (sort(keys %expired), 'plain')
	{
		# once before it is counted: what a session reads first isn't the scan's
		my @statements = map { my (undef, $statement, @first) = @$_; my $of = $statement =~ s/\{T\}/$table/r; [ $of, @first, $of ] } @scans;
		$counts{$table} = [ count_rounds($server, 'ttl', 1, 4, @statements) ];
	}
	for my $table (sort keys %expired)
	{
		for (0 .. $#scans)
		{
			my ($one, $other) = ($counts{$table}[$_], $counts{plain}[$_]);
			$results->add('scans', "$scans[$_][0]: $table", (map { sprintf '%.1f', $_ / $rows } $one, $other), sprintf('%.3f', $one / $other));
		}
	}
	$server->stop;
	return;
}

# CALL ttl.reap() and one DELETE of the same rows.  A batch has as many rows as take 50 ms, so that the clock is slowed
# down as much as the server is: batches have up to 10,000 rows.
sub measure_deletion
{
	my ($results) = @_;
	my $server = bench::Server->start(settings => [ 'fsync = off', 'ttl.reaper = off' ]);
	my $rows   = 100_000;

	$server->sql("CREATE TABLE item (id int PRIMARY KEY, payload text); SELECT ttl.create_container('item', 3600)");
	$server->sql("INSERT INTO item SELECT g, repeat('x', 60), now() - interval '11 hours' + g * interval '9 hours' / $rows FROM generate_series(1, $rows) g");
	$server->sql('CHECKPOINT');
	$server->sql('VACUUM (ANALYZE) item; CHECKPOINT');
	$server->shut_down;
	local $ENV{LD_PRELOAD} = slow_clock($server->{dir});
	my ($call, $delete) = map { (callgrind($server, 'ttl', 'pg_parse_query', 'SET ttl.show_expired = on', $_, 'SELECT 1'))[2] }
		"CALL ttl.reap('item')", 'DELETE FROM item';
	$results->add('instructions', "deletion of $rows rows, for a row: CALL ttl.reap() / one DELETE", (map { sprintf '%.0f', $_ / $rows } $call, $delete), sprintf('%.3f', $call / $delete));
	$server->stop;
	return;
}

1;
