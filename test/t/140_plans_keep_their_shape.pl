# Plans over containers are those over plain tables with the same columns and
# indexes, to the cost, but for the filter.
#
#   SHAPES_REGRESS   the directory src/test/regress of PostgreSQL's sources, of the
#                    server's version: plans its own tests' queries, too
#   SHAPES_FILES     which of its files (those that are about queries)
#
# See test/shapes.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..", "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;
use shapes::Shapes;

my $own     = "$FindBin::RealBin/../shapes";
my $regress = $ENV{SHAPES_REGRESS};
my @files   = split(' ', $ENV{SHAPES_FILES}
	  // 'select select_distinct select_distinct_on select_having select_implicit join join_hash aggregates union subselect case window groupingsets with incremental_sort memoize limit tidscan tidrangescan equivclass');

# what chance there is, as who vacuums when, is none of ours
my $node = TtlNode->start_new('shapes', <<'END');
ttl.reaper = off
autovacuum = off
fsync = off
log_statement = none
END

my $parallel = 'SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0;';

# Says what differs, and counts
sub plans_are_equal
{
	my ($pair, $file, $name, %o) = @_;
	my $result = compare_plans($node, $pair, $file, %o);
	my @different = @{ $result->{different} };

	diag("$name: $_->{sql}\ncontainers:\n$_->{container}\nplain tables:\n$_->{plain}\n") for @different[ 0 .. ($#different > 4 ? 4 : $#different) ];
	note("$name: $result->{queries} queries, $result->{filtered} with a filter, $result->{refused} that are refused in both");
	is(scalar @different, 0, "$name: the plans are the same");
	return $result;
}

my $pair = make_pair($node, "$own/pgbench.sql", "$own/tpch.sql");
my %settings = (
	'as it is'            => '',
	'in parallel'         => $parallel,
	'with indexes'        => 'SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_sort = off;',
	'with little memory'  => "SET work_mem = '64kB'; SET enable_nestloop = off; SET random_page_cost = 1.1;");

for my $name (sort keys %settings)
{
	for my $kind (qw(pgbench tpch))
	{
		my $result = plans_are_equal($pair, "$own/${kind}_queries.sql", "$kind, $name", both => $settings{$name});

		is("$result->{filtered} $result->{refused}", "$result->{queries} 0", "$kind, $name: each plan has a filter");
	}
}

# Does it notice?
my $result = compare_plans($node, $pair, "$own/tpch_queries.sql", container => 'SET enable_indexonlyscan = off; SET enable_hashjoin = off;');
cmp_ok(scalar @{ $result->{different} }, '>', 10, "another plan would have been noticed");
drop_pair($node, $pair);

if ($regress)
{
	local $ENV{PG_ABS_SRCDIR} = $regress;
	my %sum = (queries => 0, filtered => 0, refused => 0);

	$pair = make_pair($node, map { "$regress/sql/$_.sql" } qw(test_setup create_misc create_aggregate create_index));
	note("refused as containers:\n" . $node->safe_psql($pair->{container}, 'SELECT relid::regclass, error FROM shapes.tried WHERE error IS NOT NULL'));
	for my $file (@files)
	{
		for my $settings ('', $parallel)
		{
			$result = plans_are_equal($pair, "$regress/sql/$file.sql", "PostgreSQL's $file" . ($settings ? ', in parallel' : ''), both => $settings, copy => 1);
			$sum{$_} += $result->{$_} for keys %sum;
		}
	}
	note("PostgreSQL's tests: $sum{queries} queries, $sum{filtered} with a filter, $sum{refused} that are refused in both");
	drop_pair($node, $pair);
}

done_testing();
