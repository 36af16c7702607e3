# Random statements over containers that hold expired rows answer, and change
# what is live, as over plain tables that never had those rows.
#
#   EQUIVALENCE_SEED      where chance begins (1)
#   EQUIVALENCE_QUERIES   how many statements (300)
#   EQUIVALENCE_FROM      leaves out what comes before this statement's fresh contents (1)
#   EQUIVALENCE_SHOWN     how many differences are shown in full (5)
#
# See test/equivalence: Tables.pm says what they run over, Query.pm and Change.pm
# make them, Statement.pm says how they are sent, Run.pm compares.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..", "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;
use equivalence::Random;
use equivalence::Run;
use equivalence::Tables;

use constant EPOCH => $ENV{EQUIVALENCE_EPOCH} // 150;    # statements between fresh contents
use constant SHOWN => $ENV{EQUIVALENCE_SHOWN} // 5;      # differences that are shown in full

my $seed    = $ENV{EQUIVALENCE_SEED}    // 1;
my $queries = $ENV{EQUIVALENCE_QUERIES} // 300;
my $files   = "$PostgreSQL::Test::Utils::tmp_check/equivalence";
my $from    = $ENV{EQUIVALENCE_FROM} // 1;

my $node = TtlNode->start_new('equivalence', <<'END');
ttl.reaper = off
max_worker_processes = 16
max_parallel_workers = 12
log_statement = none
END
$node->safe_psql('postgres', 'CREATE EXTENSION ttl');
$equivalence::Tables::server = $node->pg_version->major;
prepare($node, 'postgres');

# 19 finds an expired parent present when it checks a foreign key: see doc/limits.md
table('root')->{all_live} = 1 if $node->pg_version->major >= 19;

seed($seed);
note "seed $seed, $queries statements";

my %count = (read => 0, change => 0, forced => 0, timeout => 0, empty => 0);
my (%codes, @different, @refused, @internal);

for (my $done = 0; $done < $queries; $done += EPOCH)
{
	my $n = $queries - $done < EPOCH ? $queries - $done : EPOCH;

	for my $s (
		run_epoch(
			$node, 'postgres',
			files => "$files",
			first => $done + 1,
			count => $n,
			skip  => $done + $n < $from))
	{
		my @codes = map { @$_ } values %{ $s->{codes} };

		$count{ $s->{kind} }++;
		$count{forced}++ if $s->{c} =~ /^SET ttl\.debug_index_probe/m;
		$codes{$_}++ for @{ $s->{codes}{p} };
		$count{empty}++ if $s->{kind} eq 'read' && $s->{results}{p} !~ /^(?!code)/m;
		# too long for one may not be for the other, and what a change has left
		# may differ from then on; so may it where a policy's change is played
		# by a DELETE, for a late timeout is told to the BEGIN before it
		if (grep { /due to statement timeout/ } values %{ $s->{errors} })
		{
			$count{timeout}++;
			last if $s->{kind} eq 'change' || $s->{p} =~ /^DELETE /m;
		}
		# PostgreSQL has internal errors of its own, as "failed to build any 4-way joins"
		elsif (!$s->{same} && grep { /^XX/ } @codes)
		{
			push @internal, $s;
		}
		elsif (!$s->{same}) { push @different, $s; show($seed, $s) if @different <= SHOWN; }
		# what PostgreSQL doesn't understand tests nothing
		elsif (grep { /^42(?!501)/ } @codes)
		{
			push @refused, $s;
		}
	}
}

note
  "$count{read} reads ($count{empty} of no row), $count{change} changes; $count{forced} with a way of scans forced; $count{timeout} timeouts; errors: "
  . join(', ', map { "$_ $codes{$_}" } sort keys %codes);
show($seed, $_) for @internal[ 0 .. (@internal > SHOWN ? SHOWN : @internal) - 1 ];
show($seed, $_) for @refused[ 0 ..  (@refused > SHOWN  ? SHOWN : @refused) - 1 ];
is(scalar @different, 0, 'the answers are the same');
is(scalar @internal,  0, 'no internal errors that PostgreSQL alone does not have');
is(scalar @refused,   0, 'PostgreSQL understands every statement');
cmp_ok($count{forced}, '>', 0, 'some scans have to ask the expiry indexes, or must not');
cmp_ok($count{empty}, '<', 1 + 0.4 * $count{read}, 'most reads return something');

# Does it notice?  With the expired rows to be seen, many answers are wrong.
my @seen = grep { !$_->{same} } run_epoch(
	$node, 'postgres',
	files  => "$files-shown",
	first  => 1,
	count  => 40,
	before => "SET ttl.show_expired = on;\n");
cmp_ok(scalar @seen, '>', 15, 'expired rows that are shown would have been noticed');

done_testing();
