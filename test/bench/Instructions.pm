# Instructions.pm - instructions of a point read and a point update, counted by valgrind
#
# PostgreSQL's single-user mode runs under callgrind, on a database of each kind, once with few
# executions of a prepared statement and once with more: the difference is what one takes.  Counts
# repeat within a thousandth, whatever else the machine does.
package bench::Instructions;

use strict;
use warnings;

use bench::Server;

my @work = (
	[ 'read by key, prepared', 'PREPARE w(int) AS SELECT payload FROM {T} WHERE id = $1' ],
	[ 'UPDATE by key, prepared', 'PREPARE w(int) AS UPDATE {T} SET payload = payload{plain:, _ts = clock_timestamp()} WHERE id = $1' ],
	[ 'INSERT, prepared', q{PREPARE w(int) AS INSERT INTO {T} (id, payload) VALUES ($1 + 10000, 'x')} ]);

# Instructions of single-user PostgreSQL that runs the lines
sub count
{
	my ($server, @lines) = @_;
	my $input = "$server->{dir}/lines";

	open my $file, '>', $input or die "cannot write $input";
	print $file "$_\n" for @lines;
	close $file;
	my $answer = qx(valgrind --tool=callgrind --callgrind-out-file=/dev/null '$server->{bin}/postgres' --single -D '$server->{dir}/data' -c log_min_messages=error postgres < '$input' 2>&1 > /dev/null);
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
		my ($work, $statement) = @$_;
		my %taken;

		for my $table (qw(kept kept_plain))
		{
			my $prepare = $statement =~ s/\{T\}/$table/gr;
			$prepare = $table eq 'kept' ? $prepare =~ s/\{plain:.*?\}//r : $prepare =~ s/\{plain:(.*?)\}/$1/r;
			my @executions = map { 'EXECUTE w(' . (1 + $_ * 3) . ')' } 0 .. $many - 1;
			my $less = count($server, 'BEGIN', $prepare, @executions[ 0 .. $few - 1 ], 'ROLLBACK');
			my $more = count($server, 'BEGIN', $prepare, @executions, 'ROLLBACK');
			$taken{$table} = ($more - $less) / ($many - $few);
		}
		$results->add('instructions', $work, (map { sprintf '%.0f', $taken{$_} } qw(kept kept_plain)), sprintf('%.3f', $taken{kept} / $taken{kept_plain}));
	}
	$server->stop;
	return;
}

1;
