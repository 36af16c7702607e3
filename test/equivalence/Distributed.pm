# Distributed.pm - the same tables as distributed tables of Citus
#
# In both schemas: by id, by k, as reference tables, known to Citus but not distributed,
# and one that stays on the coordinator alone.  Keys that can't be had without the
# distribution column have it added; no key of a table that is distributed by another
# column than that key's is tried.  Nodes get settings of their own by ALTER ROLE, for
# what SET says doesn't reach the shards.
package equivalence::Distributed;

use strict;
use warnings;

use equivalence::Random;
use equivalence::Tables;
use Exporter 'import';
our @EXPORT = qw(distribute_tables settings_of_nodes);

# by         the distribution column
# distribute what makes it a distributed table
# afterwards what Citus doesn't take along: to be run when it is one
my %distributed = (
	(map { $_ => { by => 'id' } } qw(ordinary hashed ranged fixed documented deadlined branch bud other)),
	(map { $_ => { by => 'k' } } qw(listed timed)),
	leaf => { by => 'u' },
	(map { $_ => { distribute => "create_reference_table('$_')" } } qw(short dated root twig)),
	resting => { distribute => "citus_add_local_table_to_metadata('resting')" },
	stocked => { local => 1 });

# What is written another way there
sub distribute_tables
{
	my $name;

	for my $t (tables())
	{
		$name = $t->{name};
		my $d = $distributed{$name};

		$t->{$_} = $d->{$_} for keys %$d;
		$t->{distribute} //= "create_distributed_table('$name', '$t->{by}')" if $t->{by};
		# one thing at a time; and a local table can't reference distributed ones
		if ($t->{create} =~ s/, (ADD FOREIGN KEY[^;]*);/;/)
		{
			$t->{ $name eq 'leaf' ? 'afterwards' : 'create' } .= "ALTER TABLE $name $1;";
		}
		next unless ($t->{by} // '') eq 'id';
		# keys hold the distribution column
		$t->{create} =~ s/ADD UNIQUE \(u\)/ADD UNIQUE (id, u)/;
		$t->{create} =~ s/(UNIQUE INDEX ON \w+) \(/$1 (id, /g;
		$_->[0] =~ s/^\((?!id\))/(id, / for @{ $t->{arbiters} };
	}
	# one level of partitions
	my $listed = table('listed');
	$listed->{create} =~ s/CREATE TABLE listed_rest.*?;\n//s;
	$listed->{create} =~ s/PARTITION OF listed_rest/PARTITION OF listed/g;
	$listed->{create} =~ s/ALTER TABLE listed_rest DROP.*?;\n|ALTER TABLE listed ATTACH.*?;\n//gs;
	$listed->{leaves} = [qw(listed_low listed_mid listed_high)];

	my $timed = table('timed');
	$timed->{create} =~ s/PRIMARY KEY \(id\)/PRIMARY KEY (k, id)/;
	$timed->{hold}     = ['k'];
	$timed->{steady}   = [qw(id k)];
	$timed->{arbiters} = [ [ '(k, id)', 'id' ] ];

	my $leaf = table('leaf');
	$leaf->{create} =~ s/PRIMARY KEY \(id\)/PRIMARY KEY (u, id)/;
	$leaf->{afterwards} =~ s/ ON UPDATE CASCADE//;
	$leaf->{hold}     = ['u'];
	$leaf->{arbiters} = [ [ '(u, id)', 'id' ] ];
	return;
}

# How a node's own sessions plan, and look for what has expired; for the role of one side
sub settings_of_nodes
{
	my ($role, $is_container) = @_;
	my @set = map { "$_ = off" } some_of(any_of(0, 0, 1, 2, 4),
		map { "enable_$_" } qw(seqscan indexscan indexonlyscan bitmapscan hashjoin mergejoin nestloop hashagg sort));

	push @set, 'ttl.debug_index_probe = ' . any_of(qw(always never)) if $is_container && chance(60);
	push @set, 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0',
	  'max_parallel_workers_per_gather = 2' if chance(15);
	return join('', map { "ALTER ROLE $role $_;\n" } 'RESET ALL', map { "SET $_" } @set);
}

1;
