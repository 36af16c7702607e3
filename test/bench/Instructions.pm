# Instructions.pm - instructions of a point read and a point update, counted by valgrind
#
# PostgreSQL's single-user mode runs under callgrind, on a database of each kind, once with few
# executions of a statement and once with more: the difference is what one takes.  Counts repeat
# within a thousandth, whatever else the machine does.
package bench::Instructions;

use strict;
use warnings;

use bench::Server;

# What is compared, work, and a statement with its parameter: a container and a plain table, or a plain
# table with ttl loaded and without.
my $prepared = 'EXECUTE w({P})';
my $read     = 'SELECT payload FROM {T} WHERE id = {P}';
my @work = (
	[ 'container / plain table', 'read by key, prepared',   $prepared, 'SELECT payload FROM {T} WHERE id = $1' ],
	[ 'container / plain table', 'read by key, simple',     $read ],
	[ 'container / plain table', 'UPDATE by key, prepared', $prepared, 'UPDATE {T} SET payload = payload{plain:, _ts = clock_timestamp()} WHERE id = $1' ],
	[ 'container / plain table', 'INSERT, prepared',        $prepared, q{INSERT INTO {T} (id, payload) VALUES ($1 + 10000, 'x')} ],
	[ 'with ttl / without it',   'read by key, prepared',   $prepared, 'SELECT payload FROM {T} WHERE id = $1' ],
	[ 'with ttl / without it',   'read by key, simple',     $read ],
	[ 'with ttl / without it',   'UPDATE by key, prepared', $prepared, 'UPDATE {T} SET payload = payload WHERE id = $1' ],
	[ 'with ttl / without it',   'INSERT, prepared',        $prepared, q{INSERT INTO {T} (id, payload) VALUES ($1 + 10000, 'x')} ]);

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
	$server->sql("INSERT INTO $_ SELECT g, repeat('x', 60) FROM generate_series(1, 10000) g; VACUUM (FREEZE, ANALYZE) $_") for qw(kept kept_plain);
	$server->shut_down;
	for (@work)
	{
		my ($what, $work, $statement, $prepare) = @$_;
		my @taken;

		for ($what =~ /^container/ ? ([ 'kept', 'ttl' ], [ 'kept_plain', 'ttl' ]) : ([ 'kept_plain', 'ttl' ], [ 'kept_plain', q('') ]))
		{
			my ($table, $preload) = @$_;
			my ($first, $then) = map {
				my $s = s/\{T\}/$table/gr;
				$table eq 'kept' ? $s =~ s/\{plain:.*?\}//r : $s =~ s/\{plain:(.*?)\}/$1/r
			} $prepare ? "PREPARE w(int) AS $prepare" : '', $statement;
			my @executions = map { my $id = 1 + $_ * 3; $then =~ s/\{P\}/$id/r } 0 .. $many - 1;
			my $less = count($server, $preload, 'BEGIN', $first, @executions[ 0 .. $few - 1 ], 'ROLLBACK');
			my $more = count($server, $preload, 'BEGIN', $first, @executions, 'ROLLBACK');
			push @taken, ($more - $less) / ($many - $few);
		}
		$results->add('instructions', "$work: $what", (map { sprintf '%.0f', $_ } @taken), sprintf('%.3f', $taken[0] / $taken[1]));
	}
	$server->stop;
	return;
}

1;
