# Instructions.pm - instructions of a point read and a point update, counted by valgrind
#
# PostgreSQL's single-user mode runs under callgrind, on a database of each kind, once with few
# executions of a statement and once with more: the difference is what one takes.  Counts repeat
# within a thousandth, whatever else the machine does.
package bench::Instructions;

use strict;
use warnings;

use bench::Server;

# What is compared, work, and a statement with its parameter or with the number of its rounds: a container and a
# plain table, or a plain table with ttl loaded and without.  Others than a superuser pay for more checks of rights.
my $prepared = 'EXECUTE w({P})';
my $read     = 'SELECT payload FROM {T} WHERE id = {P}';
my $by_key   = 'SELECT payload FROM {T} WHERE id = $1';
my $loop     = 'DO $$ DECLARE x text; BEGIN FOR i IN 1 .. {N} LOOP SELECT payload INTO x FROM {T} WHERE id = i; END LOOP; END $$';
my $reader   = 'SET ROLE reader';
my @work;
for ('container / plain table', 'with ttl / without it')
{
	push @work,
	  [ $_, 'read by key, prepared', $prepared, "PREPARE w(int) AS $by_key" ],
	  [ $_, 'read by key, prepared, ordinary role', $prepared, $reader, "PREPARE w(int) AS $by_key" ],
	  [ $_, 'read by key with LIMIT, prepared', $prepared, "PREPARE w(int) AS $by_key LIMIT 1" ],
	  [ $_, 'read by key, simple', $read ],
	  [ $_, 'read by key, simple, ordinary role', $read, $reader ],
	  [ $_, 'read by key, PL/pgSQL loop', $loop ],
	  [ $_, 'read by key, PL/pgSQL loop, ordinary role', $loop, $reader ],
	  [ $_, 'UPDATE by key, prepared', $prepared, 'PREPARE w(int) AS UPDATE {T} SET payload = payload{clock} WHERE id = $1' ],
	  [ $_, 'INSERT, prepared', $prepared, q{PREPARE w(int) AS INSERT INTO {T} (id, payload) VALUES ($1 + 10000, 'x')} ];
}

# Instructions of single-user PostgreSQL that has so much preloaded and runs the lines, on a fresh copy of the data
sub count
{
	my ($server, $preload, @lines) = @_;
	my ($input, $data) = ("$server->{dir}/lines", "$server->{dir}/copy");

	open my $file, '>', $input or die "cannot write $input";
	print $file "$_\n" for @lines;
	close $file;
	File::Path::remove_tree($data);
	bench::Server::system_or_die('copying', 'cp', '-a', "$server->{dir}/data", $data);
	my $answer = qx(valgrind --tool=callgrind --callgrind-out-file=/dev/null '$server->{bin}/postgres' --single -D '$data' -c log_min_messages=error -c shared_preload_libraries=$preload postgres < '$input' 2>&1 > /dev/null);
	$answer =~ /Collected : (\d+)/ or die "callgrind: $answer";
	return $1;
}

sub measure
{
	my ($results, %o) = @_;
	my ($few, $many) = $o{quick} ? (100, 400) : (500, 2500);

	if (system('valgrind --version > /dev/null 2>&1') != 0)
	{
		print "  skipped: valgrind is not installed\n";
		return;
	}
	my $server = bench::Server->start(settings => [ 'fsync = off', 'ttl.reaper = off' ]);
	$server->sql("CREATE TABLE kept (id int PRIMARY KEY, payload text); SELECT ttl.create_container('kept', 86400)");
	$server->sql('CREATE TABLE kept_plain (LIKE kept INCLUDING ALL)');
	$server->sql('CREATE ROLE reader; GRANT SELECT ON kept, kept_plain TO reader');
	$server->sql("INSERT INTO $_ SELECT g, repeat('x', 60) FROM generate_series(1, 10000) g; VACUUM (FREEZE, ANALYZE) $_") for qw(kept kept_plain);
	$server->shut_down;
	for (@work)
	{
		my ($what, $work, $statement, @first) = @$_;
		my @taken;

		for ($what =~ /^container/ ? ([ 'kept', 'ttl', '' ], [ 'kept_plain', 'ttl', ', _ts = clock_timestamp()' ]) :
			([ 'kept_plain', 'ttl', '' ], [ 'kept_plain', q(''), '' ]))
		{
			my ($table, $preload, $clock) = @$_;
			my @count = map {
				my $rounds = $_;
				my @lines = (@first, $statement =~ /\{N\}/ ? $statement =~ s/\{N\}/$rounds/r :
					map { my $id = 1 + $_ * 3; $statement =~ s/\{P\}/$id/r } 0 .. $rounds - 1);
				count($server, $preload, 'BEGIN', (map { s/\{T\}/$table/gr =~ s/\{clock\}/$clock/r } @lines), 'ROLLBACK');
			} $few, $many;
			push @taken, ($count[1] - $count[0]) / ($many - $few);
		}
		$results->add('instructions', "$work: $what", (map { sprintf '%.0f', $_ } @taken), sprintf('%.3f', $taken[0] / $taken[1]));
	}
	$server->stop;
	return;
}

1;
