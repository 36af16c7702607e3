# Run.pm - runs statements over both schemas, and compares
#
# The test goes by epochs: both schemas get new contents, then one psql for each
# runs the same number of statements.  What they print is compared statement by
# statement, with the lines sorted.
package equivalence::Run;

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use equivalence::Random;
use equivalence::Statement;
use equivalence::Tables;
use Exporter 'import';
our @EXPORT = qw(prepare run_epoch);

sub prepare
{
	my ($node, $db) = @_;

	$node->safe_psql($db, 'CREATE ROLE equivalence_reader');
	$node->safe_psql($db, setup_sql($_)) for qw(c p);
	return;
}

sub start_psql
{
	my ($node, $db, $script, $out) = @_;
	local $ENV{PGOPTIONS} = '';

	return IPC::Run::start(
		[ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr($db), '-f', $script ],
		'<', \undef, '>', "$out.out", '2>', "$out.err");
}

# What was printed for each statement
sub parts
{
	my $file  = shift;
	my @parts = split(/^\@\@ \d+\n/m, slurp_file($file));

	shift @parts;
	return @parts;
}

# Runs one epoch.  Returns its statements: { number, kind, sql, results, errors,
# codes, same }, where sql, results and errors are for both schemas.  skip => 1
# only makes them, so that chance goes the same way.
sub run_epoch
{
	my ($node, $db, %o) = @_;
	my $files      = $o{files};
	my %load       = load_sql();
	my @statements = map { { number => $o{first} + $_, statement()->%* } } 0 .. $o{count} - 1;
	my %psql;

	return () if $o{skip};
	for my $side (qw(c p))
	{
		my $script =
		  "\\set VERBOSITY sqlstate\n\\set ON_ERROR_STOP on\nSET search_path = $side; SET client_min_messages = error; SET jit = off;\n"
		  . "SELECT CASE WHEN :SERVER_VERSION_NUM < 160000 THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END AS force_parallel \\gset\n"
		  . $load{$side}
		  . join('',
			map { "PREPARE digest_$_->{name} AS " . digest_sql($_->{name}) . ";\n" } tables())
		  . ($side eq 'c' ? $o{before} // '' : '')
		  . "\\set ON_ERROR_STOP off\n\\set VERBOSITY default\nSET statement_timeout = '5s';\n";

		$script .= "\\echo \@\@ $_->{number}\n\\warn \@\@ $_->{number}\n$_->{$side}"
		  for @statements;
		$script .= "\\echo \@\@ 0\n\\echo done\n";
		append_to_file("$files-$side.sql", '');
		unlink "$files-$side.sql";
		append_to_file("$files-$side.sql", $script);
		$psql{$side} = start_psql($node, $db, "$files-$side.sql", "$files-$side");
	}
	for my $side (qw(c p))
	{
		$psql{$side}->finish;
		my @results = parts("$files-$side.out");
		my @errors  = parts("$files-$side.err");

		die "schema $side: psql broke off after statement "
		  . ($o{first} + $#results) . ":\n"
		  . substr(slurp_file("$files-$side.err"), -2000)
		  unless @results == $o{count} + 1 && $results[-1] eq "done\n";
		for my $i (0 .. $#statements)
		{
			my $s = $statements[$i];

			$s->{results}{$side} = join('', sort split(/^/m, $results[$i]));
			$s->{errors}{$side}  = $errors[$i] // '';
			$s->{codes}{$side}   = [ grep { !/^(00000|25P02)$/ } $results[$i] =~ /^code (\w+)/mg ];
		}
	}
	$_->{same} = $_->{results}{c} eq $_->{results}{p} for @statements;
	return @statements;
}

1;
