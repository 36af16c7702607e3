# Statement.pm - how a statement reaches the server
#
# As it is, prepared with parameters, by cursors, through PL/pgSQL, SQL functions,
# COPY, views and materialized views; with the planner's switches thrown at
# random, often others in the one schema than in the other: a plan must not
# matter, nor whether a scan asks the expiry indexes.  The result is the psql input for each schema, { c, p }.
package equivalence::Statement;

use strict;
use warnings;

use equivalence::Change;
use equivalence::Query;
use equivalence::Random;
use equivalence::Tables;
use Exporter 'import';
our @EXPORT = qw(statement);

my @switches = map { "enable_$_" }
  qw(seqscan indexscan indexonlyscan bitmapscan hashjoin mergejoin nestloop hashagg sort material memoize incremental_sort tidscan
  gathermerge partition_pruning);
my @on = qw(enable_partitionwise_join enable_partitionwise_aggregate);
my %of_citus = (
	'citus.enable_local_execution'                     => ['off'],
	'citus.enable_fast_path_router_planner'            => ['off'],
	'citus.enable_local_fast_path_query_optimization'  => ['off'],
	'citus.local_table_join_policy'                    => [qw(never prefer-local prefer-distributed)],
	'citus.multi_shard_modify_mode'                    => ['sequential'],
	'citus.max_adaptive_executor_pool_size'            => [ 2, 8 ],
	'citus.enable_binary_protocol'                     => ['off'],
	'citus.enable_single_hash_repartition_joins'       => ['on'],
	'citus.enable_local_reference_table_foreign_keys'  => ['off'],
	'citus.enable_repartitioned_insert_select'         => ['off'],
	'citus.max_cached_conns_per_worker'                => [ 0, 4 ]);

sub settings
{
	my %set;

	if (distributed())
	{
		$set{$_} = "'" . any_of($of_citus{$_}->@*) . "'" for some_of(any_of(0, 0, 1, 2), sort keys %of_citus);
	}
	return %set if chance(15);
	$set{$_}                    = 'off' for some_of(any_of(0, 1, 2, 3, 5), @switches);
	$set{$_}                    = 'on'  for some_of(any_of(0, 0, 1, 2), @on);
	$set{plan_cache_mode}       = any_of('force_generic_plan', 'force_custom_plan')
	  if chance(distributed() ? 10 : 40);
	$set{from_collapse_limit}   = between(1, 4)                                     if chance(15);
	$set{join_collapse_limit}   = between(1, 4)                                     if chance(15);
	$set{geqo_threshold}        = 2                                                 if chance(8);
	$set{cursor_tuple_fraction} = any_of(0.01, 1)                                   if chance(10);
	$set{work_mem}              = "'64kB'"                                          if chance(15);
	$set{random_page_cost}      = any_of(0.1, 1, 100)                               if chance(15);
	$set{constraint_exclusion}  = 'on'                                              if chance(10);

	if (chance(22))
	{
		%set = (
			%set,
			parallel_setup_cost             => 0,
			parallel_tuple_cost             => 0,
			min_parallel_table_scan_size    => 0,
			min_parallel_index_scan_size    => 0,
			max_parallel_workers_per_gather => between(1, 3),
			parallel_leader_participation   => any_of('on', 'off'));
		# its name until 15, and from 16 on
		$set{FORCE_PARALLEL} = any_of('on', 'regress') if chance(30);
	}
	return %set;
}

sub set_sql
{
	my %set = @_;
	return join('',
		map { "SET " . s/FORCE_PARALLEL/:force_parallel/r . " = $set{$_};\n" } sort keys %set);
}

sub reset_sql
{
	my %set = @_;
	return join('', map { "RESET " . s/FORCE_PARALLEL/:force_parallel/r . ";\n" } sort keys %set);
}

# The marks of Expression.pm
sub plain { return $_[0] =~ s/\x{1}\w+:([^\x{2}]*)\x{2}/$1/gr; }

sub parameterized
{
	my ($sql, $percent) = @_;
	my (@types, @values);

	$sql =~ s{\x{1}(\w+):([^\x{2}]*)\x{2}}{
		my ($type, $value) = ($1, $2);
		chance($percent) ? do { push @types, $type; push @values, $value; '$' . @types . "::$type" } : $value
	}ge;
	return ($sql, \@types, \@values);
}

# Each is followed by how it went
sub sent
{
	return join('',
		map { "$_\n\\echo code :SQLSTATE rows :ROW_COUNT\n" } map { /\n$|^\\/ ? $_ : "$_;" } @_);
}

my $prepared = 0;

sub list_of { return @_ ? ' (' . join(', ', @_) . ')' : ''; }

sub prepared
{
	my ($sql, $times) = @_;
	my ($text, $types, $values) = parameterized($sql, 80);

	my $name = 'statement_' . ++$prepared;

	# nobody deallocates it: nothing can be told in a failed transaction
	return sent(
		"PREPARE $name" . list_of(@$types) . " AS $text",
		("EXECUTE $name" . list_of(@$values)) x $times);
}

sub quoted { return '$text$' . $_[0] . '$text$'; }

# In a transaction of its own
sub block
{
	return sent('BEGIN' . any_of('', '', ' ISOLATION LEVEL REPEATABLE READ', ' READ WRITE'),
		@_, 'ROLLBACK');
}

# A table itself; those that are partitioned can only be copied since 19
sub copied
{
	my $t       = any_of(grep { !@{ $_->{leaves} } || at_least(19) || distributed() } tables());
	my $from    = @{ $t->{leaves} } && chance(50) ? any_of(@{ $t->{leaves} }) : $t->{name};
	my @columns = map { $_->{name} } some_of(between(1, 5), columns_of($t));

	return "COPY $from (" . join(', ', @columns) . ') TO STDOUT' . any_of('', ' (FORMAT csv)');
}

sub select_by
{
	my $q     = shift;
	my $sql   = $q->{sql};
	my $plain = plain($sql);
	my $way   = $sql =~ /FOR (UPDATE|NO KEY|SHARE|KEY)/ ? any_of(1, 50, 80) : between(1, 100);

	# Citus finds nothing when it fetches backward from where it had aggregates hashed
	$way = any_of(1, 50, 66, 83) if $way > 70 && $way <= 76 && distributed();
	# a worker node makes nothing
	$way = any_of(1, 50, 66, 71, 80, 83) if $way > 84 && $equivalence::Tables::from_worker;
	my $names = join(', ', map { $_->{name} } @{ $q->{columns} });
	my $some  = 'FETCH ' . between(1, 9) . ' FROM c';
	my $function =
	  'CREATE FUNCTION made() RETURNS SETOF text LANGUAGE sql ' . any_of('STABLE', 'VOLATILE');

	return sent($plain)                                                              if $way <= 45;
	return prepared($sql, any_of(1, 1, 2, 6))                                        if $way <= 65;
	return block("DECLARE c NO SCROLL CURSOR FOR $plain", $some, 'FETCH ALL FROM c') if $way <= 70;
	return sent(
		'BEGIN', "DECLARE c SCROLL CURSOR WITH HOLD FOR $plain",
		$some,   'COMMIT',
		'FETCH ALL FROM c',
		'FETCH BACKWARD ALL FROM c',
		'CLOSE c') if $way <= 73;
	return block("DECLARE c SCROLL CURSOR FOR $plain", 'FETCH ALL FROM c',
		'FETCH BACKWARD ALL FROM c')
	  if $way <= 76;
	return sent('SELECT looped(' . quoted($plain) . ')')                  if $way <= 82;
	return sent("COPY ($plain) TO STDOUT")                                if $way <= 84;
	return sent(copied())                                                 if $way == 85;
	return block("CREATE VIEW made AS $plain", "SELECT $names FROM made") if $way <= 88;

	# since 17, REFRESH has a search_path of its own, and functions don't find our tables
	return block(
		"CREATE MATERIALIZED VIEW made AS $plain WITH NO DATA",
		'REFRESH MATERIALIZED VIEW made',
		'TABLE made') if $way <= 90 && $plain !~ /\b(inlined|whole|procedural|count)_\w+\(/;
	return block("CREATE TEMP TABLE made AS $plain", 'TABLE made') if $way <= 92;
	return block(
		"$function AS " . quoted("SELECT made::text FROM ($plain) made"),
		'SELECT made()',
		'SELECT * FROM made()') if $way <= 95;
	return block("$function BEGIN ATOMIC SELECT made::text FROM ($plain) made; END",
		'SELECT * FROM made()')
	  if $way <= 97;
	return block(
		$function =~
		  s/made/pg_temp.made/r . ' AS ' . quoted("SELECT made::text FROM ($plain) made"),
		'SELECT * FROM pg_temp.made()') if $way == 98;
	return '\set FETCH_COUNT ' . between(1, 20) . "\n" . sent($plain) . "\\set FETCH_COUNT 0\n";
}

# Prepared before the policy changes, run after it, and again when that was undone.
# A cursor keeps the policy that it was opened with.
sub across_policies
{
	my ($q, %policy);

	do { new_names(); $q = query(3); %policy = policy($q->{sql}); } until %policy;
	my ($text, $types, $values) = parameterized($q->{sql}, 30);
	my $name    = 'statement_' . ++$prepared;
	my $execute = "EXECUTE $name" . list_of(@$values);
	# functions have a snapshot of their own, or a lock; registration is not for
	# tables in use; Citus runs the parts of a query when the cursor is read first
	my @cursor =
		 $text =~ /\b(inlined|atomic|whole|procedural|count)_|\bFOR (UPDATE|NO|SHARE|KEY)/
	  || $policy{c} =~ /create_container/
	  || distributed()
	  ? ()
	  : plain($q->{sql});
	my $before = sent(
		"PREPARE $name" . list_of(@$types) . " AS $text",
		($execute) x any_of(1, 6),
		'BEGIN', map { "DECLARE c NO SCROLL CURSOR FOR $_" } @cursor);
	my $after = sent($execute, map { 'FETCH ALL FROM c' } @cursor) . sent('ROLLBACK', $execute);

	return map { $_ => "RESET ROLE;\n$before$policy{$_}$after" } qw(c p);
}

sub change_by
{
	my $change = shift;
	my $plain  = plain($change->{sql});

	return sent($plain) if $change->{raw} || chance(55);
	# whether a statement returns rows is not so easily told if a CTE of it does
	return prepared($change->{sql}, 1)                   if chance(50) || $plain =~ /^WITH/;
	return sent('SELECT looped(' . quoted($plain) . ')') if $plain               =~ / RETURNING /;
	return sent('DO $do$ BEGIN ' . "$plain; END \$do\$");
}

# One change, kept or not; or several in a transaction.  (%sql, name of the
# table to show)
sub changes
{
	my $change = change();
	my $text   = sub { my $s = change_by($_[0]); (c => $s, p => $s) };
	my $digest = "EXECUTE digest_$change->{shown};\n";
	my %sql;

	if ($change->{split})
	{
		%sql = map { $_ => plain($change->{$_}) . ";\n" } qw(c p);
		return map { $_ => "RESET ROLE;\n$sql{$_}$digest" } qw(c p)
		  if $change->{alone} || (!distributed() && chance(50));
		return map { $_ => "RESET ROLE;\nBEGIN;\n$sql{$_}COMMIT;\n$digest" } qw(c p) if distributed() && chance(50);
		return map { $_ => "RESET ROLE;\nBEGIN;\n$sql{$_}${digest}ROLLBACK;\n" } qw(c p);
	}
	%sql = $text->($change);
	return map { $_ => "$sql{$_}$digest" } qw(c p) if chance(30) && !$change->{in_block};

	my $begin = 'BEGIN'
	  . any_of('', '', ' ISOLATION LEVEL REPEATABLE READ', ' ISOLATION LEVEL SERIALIZABLE') . ";\n";
	if (chance(30))
	{
		my @more = grep { !$_->{split} } map { change() } 1 .. between(1, 2);

		$sql{c} = $sql{p} =
		  sent('SAVEPOINT first') . $sql{c} . any_of('', sent('ROLLBACK TO first'));
		for my $another (@more)
		{
			my $s = change_by($another) . "EXECUTE digest_$another->{shown};\n";
			$s = sent('SAVEPOINT later') . $s . sent(any_of('RELEASE later', 'ROLLBACK TO later'))
			  if !$another->{in_block} && chance(50);
			$_ .= $s for values %sql;
		}
	}
	my $end = chance(10) ? 'COMMIT' : 'ROLLBACK';
	return map { $_ => "$begin$sql{$_}$digest" . sent($end) } qw(c p);
}

# How scans of containers find out what has expired must not matter, nor what
# vacuum has left of their pages
sub ways_of_scans
{
	return (any_of('', "VACUUM " . any_of(tables())->{name} . ";\n"), '') if chance(6);
	return ('', '') if chance(25);
	return ("SET ttl.debug_index_probe = " . any_of(qw(always always never)) . ";\n", "RESET ttl.debug_index_probe;\n");
}

sub statement
{
	my %set   = settings();
	my %other = chance(50) ? settings()                       : %set;

	if (distributed())
	{
		# on these depends what Citus takes
		delete @other{ grep { /^citus|^plan_cache/ } keys %other };
		$other{$_} = $set{$_} for grep { /^citus|^plan_cache/ } keys %set;
	}
	my $kind  = chance(58) ? 'read'                           : 'change';
	my $role  = chance(20) ? "SET ROLE equivalence_reader;\n" : '';
	my %sql;

	new_names();
	if ($kind eq 'read')
	{
		if   (chance(10) && !$equivalence::Tables::from_worker) { %sql = across_policies(); }
		else              { $sql{c} = $sql{p} = select_by(query(3)); }
	}
	else
	{
		%sql = changes();
	}
	my ($before, $after) = ways_of_scans();
	# a timeout in a statement's last moment is told to the next, which may be a ROLLBACK, or the CLOSE of a cursor
	my $end = "ROLLBACK;\nCLOSE ALL;\nRESET ROLE;\n";
	$sql{c} = $before . set_sql(%set) . $role . $sql{c} . $end . reset_sql(%set) . $after;
	$sql{p} = set_sql(%other) . $role . $sql{p} . $end . reset_sql(%other);
	return { kind => $kind, %sql };
}

1;
