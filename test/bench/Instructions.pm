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

# Instructions of an execution of each of these: a statement with {P} for a key from 1 to 9593, or with {FROM} and {TO} for
# the numbers of its rounds, 0 to 1199, and what comes before it.  The server is shut down.
sub count
{
	my ($server, $preload, @statements) = @_;
	my ($input, $data, $counts) = map { "$server->{dir}/$_" } qw(lines copy counts);
	my $mark = 'SELECT pg_backend_pid()';
	my @lines;

	for (@statements)
	{
		my ($statement, @first) = @$_;
		my @rounds = map {
			my ($from, $to) = @$_;
			($statement =~ /\{P\}/
				? map { my $key = 1 + $_ * 8; $statement =~ s/\{P\}/$key/r } $from .. $to
				: $statement =~ s/\{FROM\}/$from/r =~ s/\{TO\}/$to/r, $mark);
		} [ 0, 99 ], [ 100, 1199 ];
		push @lines, @first, $mark, @rounds, 'DEALLOCATE ALL', 'RESET ROLE';
	}
	open my $file, '>', $input or die "cannot write $input";
	print $file "$_\n" for @lines;
	close $file;
	File::Path::remove_tree($data, $counts);
	mkdir $counts;
	bench::Server::system_or_die('copying', 'cp', '-a', "$server->{dir}/data", $data);
	bench::Server::system_or_die('callgrind', "valgrind --tool=callgrind --dump-before=pg_backend_pid --callgrind-out-file=$counts/part"
		. " '$server->{bin}/postgres' --single -D '$data' -c log_min_messages=error -c shared_preload_libraries=$preload postgres < '$input' > '$server->{dir}/said' 2>&1");
	qx(cat '$server->{dir}/said') =~ /ERROR:.*/ and die "callgrind: $&\n";

	my @part = map { qx(tail -n 1 $counts/part.$_) =~ /^totals: (\d+)/ ? $1 : die "no count $_" } 1 .. 3 * @statements;
	return map { ($part[ 3 * $_ + 2 ] - $part[ 3 * $_ + 1 ]) / 1000 } 0 .. $#statements;
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
	$server->stop;
	return;
}

1;
