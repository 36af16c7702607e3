# Random statements over containers that are distributed tables of Citus answer, and
# change what is live, as over plain distributed tables that never had expired rows.
# What Citus refuses is left out: where the plain tables fail as well, and not by what is
# in them.
#
#   EQUIVALENCE_SEED      where chance begins (1)
#   EQUIVALENCE_QUERIES   how many statements (40)
#   EQUIVALENCE_FROM      leaves out what comes before this statement's fresh contents (1)
#   EQUIVALENCE_SHOWN     how many differences are shown in full (5)
#
# See test/t/100_answers_like_plain_tables.pl, which does it on one server.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..", "$FindBin::RealBin/../lib";

use CitusCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use equivalence::Distributed;
use equivalence::Random;
use equivalence::Run;
use equivalence::Tables;

CitusCluster::skip_unless_installed();

use constant EPOCH => $ENV{EQUIVALENCE_EPOCH} // 160;   # statements between fresh contents
use constant SHOWN => $ENV{EQUIVALENCE_SHOWN} // 5;     # differences that are shown in full

my $seed    = $ENV{EQUIVALENCE_SEED}    // 1;
my $queries = $ENV{EQUIVALENCE_QUERIES} // 40;
my $from    = $ENV{EQUIVALENCE_FROM}    // 1;
my $files   = "$PostgreSQL::Test::Utils::tmp_check/equivalence";

my $cluster     = CitusCluster->start_new("ttl.reaper = off\nlog_statement = none\njit = off\n");
my $coordinator = $cluster->coordinator;
# some shards are there, and read without a connection
$coordinator->safe_psql('postgres',
	"SELECT citus_set_node_property('127.0.0.1', " . $coordinator->port . ", 'shouldhaveshards', true)");

$equivalence::Tables::server      = $coordinator->pg_version->major;
$equivalence::Tables::distributed = 1;
seed($seed);
distribute_tables();
prepare($coordinator, 'postgres');
note "seed $seed, $queries statements";

my %count = map { $_ => 0 } qw(read change refused timeout broken_off empty);
my (%codes, @different, %refusals);

# Is it Citus that doesn't do it, rather than the contents?
sub is_refused
{
	# on either side, as what the plan has run, and where: a function in FROM, on a node that lacks the session's
	# search_path; a foreign key's table, by several connections; parameters of ON CONFLICT (doc/citus.md)
	return 1 if grep {
		/42P01: relation "\w+" does not exist\nCONTEXT:  PL\/pgSQL function \w+\.procedural_.*\nwhile executing command on/
		  || /XX000: cannot execute parallel \w+ on table|08P01: bind message supplies 0 parameters/
	} values $_[0]{errors}->%*;
	# what another node says may come without its code
	return grep { !/^(?:2[1237]|44|P0|40|25P02)|violates/ } $_[0]{errors}{p} =~ /ERROR:  (\w{5}: .*)/g;
}

# Does the same in both, but for what Citus makes of it?
sub is_told_differently
{
	my ($s)  = @_;
	my %told = $s->{results}->%*;

	for my $side (qw(c p))
	{
		# an error of COPY comes with its code or without
		$told{$side} =~ s/^code XX000 /code 23505 /mg if $s->{errors}{$side} =~ /XX000: duplicate key value/;
		# of two violations on different shards either is met first
		$told{$side} =~ s/^code \K23\w{3} /violation /mg
		  if 2 == grep { /ERROR:  23\w{3}: .*\n(?:DETAIL: .*\n)?CONTEXT:  while executing command on/ } values $s->{errors}->%*;
		# the number of rows, see doc/citus.md
		$told{$side} =~ s/^code 00000 rows \K\d+//mg if $s->{c} =~ /INSERT INTO .* SELECT .* ON CONFLICT/;
	}
	return $told{c} eq $told{p};
}

for (my $done = 0; $done < $queries; $done += EPOCH)
{
	my $n        = $queries - $done < EPOCH ? $queries - $done : EPOCH;
	my $in_doubt = 0;

	for my $s (
		run_epoch(
			$coordinator, 'postgres',
			workers => [ $cluster->workers ],
			files   => $files,
			first   => $done + 1,
			skip    => $done + $n < $from,
			count   => $n))
	{
		if (grep { /due to statement timeout/ } values %{ $s->{errors} })
		{
			$count{timeout}++;
			last if $s->{kind} eq 'change' || $s->{p} =~ /^DELETE /m;
			next;
		}
		if (is_refused($s))
		{
			$count{refused}++;
			$refusals{$_}++ for $s->{errors}{p} =~ /ERROR:  (?!25P02)(.*)/g;
			# it may have changed something in one of them
			$in_doubt ||= !($s->{kind} eq 'read' || $s->{same} || $s->{c} =~ /^BEGIN\b/m && $s->{c} !~ /^COMMIT/m);
			next;
		}
		$count{ $s->{kind} }++;
		$count{empty}++ if $s->{kind} eq 'read' && $s->{results}{p} !~ /^(?!code)/m;
		$codes{$_}++ for @{ $s->{codes}{p} };
		next if $s->{same} || is_told_differently($s);
		if ($in_doubt)
		{
			$count{broken_off}++;
			last;
		}
		push @different, $s;
		show($seed, $s) if @different <= SHOWN;
	}
	note join(', ', map { "$_ $count{$_}" } sort keys %count), ', different ' . @different;
}

note
  "$count{read} reads ($count{empty} of no row), $count{change} changes; $count{refused} refused by Citus; $count{timeout} timeouts; errors: "
  . join(', ', map { "$_ $codes{$_}" } sort keys %codes);
note "refused: $refusals{$_} $_" for sort { $refusals{$b} <=> $refusals{$a} || $a cmp $b } keys %refusals;
is(scalar @different, 0, 'the answers are the same');
cmp_ok($count{refused}, '<', $queries * 0.6, 'Citus takes many of the statements');

# Does it notice?  With the expired rows to be seen, many answers are wrong.
my @seen = grep { !$_->{same} && !is_refused($_) } run_epoch(
	$coordinator, 'postgres',
	workers => [],
	files   => "$files-shown",
	first   => 1,
	count   => 20,
	set     => 'ttl.show_expired = on');
cmp_ok(scalar @seen, '>', 3, 'expired rows that are shown would have been noticed');

done_testing();
