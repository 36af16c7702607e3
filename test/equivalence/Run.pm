# Run.pm - runs statements over both schemas, and compares
#
# The test goes by epochs: both schemas get new contents, then one psql for each
# runs the same number of statements.  What they print is compared statement by
# statement, with the lines sorted.
package equivalence::Run;

use strict;
use warnings;

use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;
use equivalence::Distributed;
use equivalence::Random;
use equivalence::Statement;
use equivalence::Tables;
use Exporter 'import';
our @EXPORT = qw(prepare run_epoch show);

sub prepare
{
	my ($node, $db) = @_;

	choose_clocks() if !distributed();
	$node->safe_psql($db, 'CREATE ROLE equivalence_reader LOGIN');
	# Citus gives the settings of a role to all nodes
	$node->safe_psql($db, "CREATE ROLE equivalence_$_ LOGIN SUPERUSER") for qw(c p);
	$node->safe_psql($db, setup_sql($_)) for qw(c p);
	return;
}

# IPC::Run polls for what has no pipes, up to a second each time.
sub start_psql
{
	my ($node, $db, $side, $script, $out) = @_;
	my @command =
	  ($node->installed_command('psql'), '-XAtq', '-d', $node->connstr($db) . " user=equivalence_$side", '-f', $script);
	my $pid = fork // die "fork: $!";

	return $pid if $pid;
	delete $ENV{PGOPTIONS};
	open(STDIN,  '<', '/dev/null');
	open(STDOUT, '>', "$out.out");
	open(STDERR, '>', "$out.err");
	exec(@command) or POSIX::_exit(127);
}

# Waits for a psql; true if it has run its script to the end.
sub finish
{
	my $pid = shift;

	waitpid($pid, 0);
	return $? == 0;
}

sub write_script
{
	my ($file, $script) = @_;

	append_to_file($file, '');
	unlink $file;
	append_to_file($file, $script);
	return;
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
# only makes them, so that chance goes the same way.  On Citus workers => [] are nodes
# that may run them as well, and set => '' is for the containers' side on all nodes.
sub run_epoch
{
	my ($coordinator, $db, %o) = @_;
	my $files      = $o{files};
	my $node       = $o{workers} ? any_of($coordinator, $coordinator, @{ $o{workers} }) : $coordinator;
	my %load       = load_sql();
	my %roles      = map { $_ => $o{workers} ? settings_of_nodes("equivalence_$_", $_ eq 'c') : '' } qw(c p);

	$roles{c} .= "ALTER ROLE equivalence_c SET $o{set};\n" if $o{set};

	$equivalence::Tables::from_worker = $node != $coordinator;
	my ($timeout, $verbosity) = distributed() ? qw(20s verbose) : qw(5s default);
	my @statements = map { { number => $o{first} + $_, statement()->%* } } 0 .. $o{count} - 1;
	my %psql;

	return () if $o{skip};
	for my $side ($o{workers} ? qw(c p) : ())
	{
		write_script("$files-$side-load.sql", "\\set ON_ERROR_STOP on\nSET search_path = $side; SET client_min_messages = error;\n" . $load{$side});
		$load{$side} = '';
		$coordinator->safe_psql($db, $roles{$side});
		$psql{$side} = start_psql($coordinator, $db, $side, "$files-$side-load.sql", "$files-$side-load");
	}
	for my $side (sort keys %psql)
	{
		finish($psql{$side}) or die "schema $side:\n" . slurp_file("$files-$side-load.err");
	}
	for my $side (qw(c p))
	{
		my $script =
		  "\\set VERBOSITY sqlstate\n\\set ON_ERROR_STOP on\nSET search_path = $side; SET client_min_messages = error; SET jit = off;\n"
		  . (distributed() ? "SET citus.enable_repartition_joins = on; SET citus.max_adaptive_executor_pool_size = 1;\n" : '')
		  . "SELECT CASE WHEN :SERVER_VERSION_NUM < 160000 THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END AS force_parallel \\gset\n"
		  . $load{$side}
		  . join('',
			map { "PREPARE digest_$_->{name} AS " . digest_sql($_->{name}) . ";\n" } tables())
		  . ($side eq 'c' ? $o{before} // '' : '')
		  . "\\set ON_ERROR_STOP off\n\\set VERBOSITY $verbosity\nSET statement_timeout = '$timeout';\n";

		$script .= "\\echo \@\@ $_->{number}\n\\warn \@\@ $_->{number}\n$_->{$side}"
		  for @statements;
		$script .= "\\echo \@\@ 0\n\\echo done\n";
		write_script("$files-$side.sql", $script);
		$psql{$side} = start_psql($node, $db, $side, "$files-$side.sql", "$files-$side");
	}
	for my $side (qw(c p))
	{
		finish($psql{$side});
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

# Tells what is different.
sub show
{
	my ($seed, $s) = @_;

	diag("seed $seed, statement $s->{number}, $s->{kind}");
	for my $side (qw(c p))
	{
		diag(   "in schema $side:\n"
			  . ($side eq 'p' && $s->{p} eq $s->{c} ? "the same\n" : $s->{$side})
			  . "$s->{errors}{$side}");
	}
	my %lines = map { $_ => [ split(/^/m, $s->{results}{$_}) ] } qw(c p);
	my %extra;
	$extra{$_}++ for @{ $lines{c} };
	$extra{$_}-- for @{ $lines{p} };
	diag("lines in c and not in p:\n"
		  . join('', map { $_ x $extra{$_} } grep { $extra{$_} > 0 } sort keys %extra));
	diag("lines in p and not in c:\n"
		  . join('', map { $_ x -$extra{$_} } grep { $extra{$_} < 0 } sort keys %extra));
	return;
}

1;
