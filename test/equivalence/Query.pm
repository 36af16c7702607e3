# Query.pm - random SELECTs
#
# A query is { sql, columns => [ { name, type, tag } ] }.  Its result, taken as
# a multiset of rows, doesn't depend on the plan: LIMIT, DISTINCT ON and
# row_number() come with an order in which equal rows are alike, aggregates that
# depend on an order have one, and nothing tells where a row is stored.
package equivalence::Query;

use strict;
use warnings;

use equivalence::Expression;
use equivalence::Random;
use equivalence::Tables;
use Exporter 'import';
our @EXPORT = qw(query new_names alias from where);

my $aliases;
my @ctes;    # those that may be named here
my @readables;

my $where = '';    # @readables are those there

sub new_names
{
	$aliases = 0;
	@ctes    = ();
	return if @readables && $where eq $equivalence::Tables::from_worker;
	@readables = readables();
	$where     = $equivalence::Tables::from_worker;
	return;
}

sub alias     { return 't' . ++$aliases; }

$equivalence::Expression::subquery = sub {
	my ($kind, $scope, $depth) = @_;

	return $kind eq 'scalar' ? scalar_subquery($scope, $depth) : subquery_condition($scope, $depth);
};

#
# FROM
#

sub scope_of
{
	my ($alias, @columns) = @_;
	return map {
		{ ref => "$alias.$_->{name}", type => $_->{type}, tag => $_->{tag} // '', of => $alias }
	} @columns;
}

# Something to stand in FROM.  $lateral: the columns that it may refer to.
sub relation
{
	my ($depth, $outer, $lateral) = @_;
	my $alias = alias();
	my $way   = between(1, 100);

	if (@$lateral || ($way <= 15 && $depth > 0))
	{
		my $q = query($depth - 1, [ @$outer, @$lateral ]);
		return {
			sql   => (@$lateral ? 'LATERAL ' : '') . "($q->{sql}) AS $alias",
			scope => [ scope_of($alias, @{ $q->{columns} }) ]
		};
	}
	if ($way <= 19)
	{
		my @rows =
		  map { '(' . between(0, 30) . ', ' . any_of(between(0, 20), 'NULL::int') . ", 'elm')" }
		  1 .. between(2, 8);
		return {
			sql   => '(VALUES ' . join(', ', @rows) . ") AS $alias (id, k, s)",
			scope => [
				scope_of(
					$alias,
					{ name => 'id', type => 'int' },
					{ name => 'k',  type => 'int' },
					{ name => 's',  type => 'text' })
			]
		};
	}
	if ($way <= 21)
	{
		return {
			sql   => "generate_series(0, " . between(5, 30) . ") AS $alias (k)",
			scope => [ scope_of($alias, { name => 'k', type => 'int' }) ]
		};
	}
	if ($way <= 40 && @ctes)
	{
		my $cte = any_of(@ctes);
		return {
			sql   => "$cte->{name} AS $alias",
			scope => [ scope_of($alias, @{ $cte->{columns} }) ]
		};
	}
	my $readable = any_of(@readables);
	my $sql      = $readable->{sql};
	if ($readable->{kind} eq 'function')
	{
		# with an argument from outside it is lateral, and Citus may crash when it runs that ahead
		my @ints = distributed() ? () : grep { $_->{of} } columns_in($outer, 'int');
		$sql .= '(' . (@ints && chance(30) ? any_of(@ints)->{ref} : constant('int')) . ')';
	}
	$sql = $readable->{after} ? $sql =~ s/ / AS $alias /r : "$sql AS $alias";
	return {
		sql   => $sql,
		scope => [ scope_of($alias, @{ $readable->{columns} }) ],
		base  => $readable->{kind} eq 'table' && !$readable->{after} ? $alias : undef
	};
}

# An equality between two sides that few rows satisfy
sub join_condition
{
	my ($left, $right) = @_;
	my @keys = map {
		my $r = $_;
		map { "$_->{ref} = $r->{ref}" }
		  grep { $_->{ref} =~ s/.*\.//r eq $r->{ref} =~ s/.*\.//r } columns_in($left, 'int');
	} grep { $_->{ref} =~ /\.(id|k|x|u)$/ } columns_in($right, 'int');
	my @k = grep { /\.k$/ } @keys;

	# most tables are distributed by that
	@k = grep { /\.id = .*\.id$/ } @keys if distributed() && chance(85);
	return any_of(@k)    if @k    && chance(distributed() ? 85 : 60);
	return any_of(@keys) if @keys && chance(80);
	my @left  = columns_in($left,  'int');
	my @right = columns_in($right, 'int');
	return 'false' unless @left && @right;
	return any_of(@left)->{ref} . ' = ' . any_of(@right)->{ref};
}

sub has_one_k
{
	return 1 == grep { $_->{ref} =~ /\.k$/ } @{ $_[0] };
}

# (sql, scope, the alias of a table whose rows can be locked, how many joins)
sub from
{
	my ($depth, $outer, $most) = @_;
	my $first = relation($depth, $outer, []);
	my ($sql, @scope) = ($first->{sql}, @{ $first->{scope} });
	my $lockable = $first->{base};
	my $joins    = any_of(0, 0, 0, 1, 1, 1, 2, 2, 3);

	$most //= $depth > 1 ? 3 : 1;
	$joins = $most if $joins > $most;
	for (1 .. $joins)
	{
		my $way = between(1, 12);

		# Citus crashes when it plans LATERAL inside of LATERAL
		if ($way <= 2 && $depth > 0 && !(distributed() && @$outer))
		{
			my $right = relation($depth, $outer, [@scope]);
			$sql .= any_of(" CROSS JOIN $right->{sql}", " LEFT JOIN $right->{sql} ON true");
			push @scope, @{ $right->{scope} };
			next;
		}

		my ($right, @right);
		if ($way == 3 && $depth > 0)
		{
			my ($r, $scope, undef, $joined) = from($depth - 1, $outer, 1);
			$right = $joined ? "($r)" : $r;
			@right = @$scope;
		}
		else
		{
			my $r = relation($depth, $outer, []);
			($right, @right) = ($r->{sql}, @{ $r->{scope} });
		}
		my $on = join_condition(\@scope, \@right);
		my $kind =
		  any_of('JOIN', 'JOIN', 'JOIN', 'LEFT JOIN', 'LEFT JOIN', 'RIGHT JOIN', 'FULL JOIN');

		# that would be the nullable side
		undef $lockable if $kind =~ /RIGHT|FULL/;
		if ($on =~ /\.k = t\d+\.k$/ && has_one_k(\@scope) && has_one_k(\@right) && chance(30))
		{
			$sql .= " $kind $right USING (k)";
			push @scope, @right;
			next;
		}
		if ($kind ne 'FULL JOIN')
		{
			# its own condition may fail for expired rows
			$on .= ' AND ' . condition([ @scope, @right ], $depth > 0 ? 1 : 0) if chance(30);
			$on .= ' AND ' . join_condition(\@scope, \@right)                  if chance(8);
		}
		$sql .= " $kind $right ON $on";
		push @scope, @right;
	}
	return ($sql, \@scope, $lockable, $joins);
}

sub where
{
	my ($scope, $depth) = @_;
	return chance(50) ? ' WHERE ' . condition($scope, $depth) : '';
}

#
# SELECT
#

# Which tag an output has that is just a column
sub output
{
	my ($scope, $type, $depth, $name) = @_;
	my @columns = columns_in($scope, $type);

	if (@columns && chance(50))
	{
		my $column = any_of(@columns);
		return [
			$column->{ref} . ($type eq 'ttl' ? '::int' : ''),
			{ name => $name, type => $type, tag => $column->{tag} }
		];
	}
	my $sql = expression($scope, $type, $depth);
	# so that sums of sums stay small
	$sql = "($sql) % 1009" if $type eq 'int' && $sql =~ /\W/;
	return [ $sql, { name => $name, type => $type, tag => '' } ];
}

# The names that joins look for come first
my @names = qw(k id x s u c6 c7 c8 c9);

sub select_plain
{
	my ($depth, $outer, $types)    = @_;
	my ($from,  $scope, $lockable) = from($depth, $outer);
	my $all = [ @$scope, @$outer ];
	my @types =
	  $types ? @$types : ('int', map { chance(5) ? 'ttl' : random_type() } 1 .. between(0, 4));
	my @outputs  = map { output($all, $types[$_], $depth > 1 ? 2 : 1, $names[$_]) } 0 .. $#types;
	my $distinct = '';
	my $tail     = '';

	if    (chance(12)) { $distinct = 'DISTINCT '; $lockable = 0; }
	elsif (chance(8))
	{
		$distinct = 'DISTINCT ON (1) ';
		$tail     = ' ORDER BY ' . join(', ', 1 .. @types);
		$lockable = 0;
	}
	my $sql =
		"SELECT $distinct"
	  . join(', ', map { "$_->[0] AS $_->[1]{name}" } @outputs)
	  . " FROM $from"
	  . where($all, $depth > 1 ? 3 : 2);
	$tail = ' FOR ' . any_of('UPDATE', 'NO KEY UPDATE', 'SHARE', 'KEY SHARE') . " OF $lockable"
	  if $lockable && $tail eq '' && chance(distributed() ? 6 : 60) && !@$outer && $depth > 2;
	return { sql => $sql . $tail, columns => [ map { $_->[1] } @outputs ], open => $tail eq '' };
}

# An aggregate over an expression of this query's own columns: [sql, type]
sub aggregate
{
	my ($scope, $depth, $type) = @_;
	my $e    = sub { expression($scope, $_[0], 1) };
	my @ways = (
		[ 'int', sub { 'count(*)::int' } ],
		[ 'int', sub { 'count(' . any_of('', 'DISTINCT ') . $e->(random_type()) . ')::int' } ],
		[ 'int', sub { '(sum(' . $e->('int') . ') % 1009)::int' } ],
		[ 'int', sub { any_of('min(', 'max(') . $e->('int') . ')' } ],
		# by an index
		[
			'int',
			sub {
				any_of('min(', 'max(')
				  . (columns_in($scope, 'int') ? any_of(columns_in($scope, 'int'))->{ref} : '1')
				  . ')';
			}
		],
		[ 'int',     sub { 'percentile_disc(0.5) WITHIN GROUP (ORDER BY ' . $e->('int') . ')' } ],
		[ 'text',    sub { any_of('min(', 'max(') . $e->('text') . ')' } ],
		[ 'text',    sub { my $t = $e->('text'); "string_agg($t, ',' ORDER BY $t)" } ],
		[ 'boolean', sub { any_of('bool_or(', 'bool_and(') . $e->('boolean') . ')' } ],
		[ 'int[]',   sub { my $i = $e->('int'); "array_agg($i ORDER BY $i)" } ],
		[ 'numeric', sub { any_of('sum(', 'max(', 'min(') . $e->('numeric') . ')' } ],
		[ 'numeric', sub { 'round(avg(' . $e->('int') . '), 3)' } ],
		[ 'jsonb',   sub { my $t = $e->('text'); "jsonb_agg($t ORDER BY $t)" } ]);
	my $way = any_of(grep { !defined $type || $_->[0] eq $type } @ways);
	my $sql = $way->[1]();

	if (chance(20) && $sql !~ /::int$|% 1009|^round/)
	{
		$sql .= ' FILTER (WHERE ' . condition($scope, 1) . ')';
	}
	return [ $sql, $way->[0] ];
}

sub select_grouped
{
	my ($depth, $outer, $types) = @_;
	my ($from, $scope) = from($depth, $outer);
	my @own    = grep { $_->{type} ne 'ttl' } @$scope;
	my @groups = some_of(any_of(0, 1, 1, 2), grep { $_->{type} ne 'int[]' } @own);
	my @outputs;

	# Only columns: a constant may become a parameter, and two of them are not the
	# same to GROUP BY
	if ($types)
	{
		@groups = () unless chance(70);
		for my $type (@$types)
		{
			my @fit = grep { $_->{type} eq $type } @groups;
			push @outputs,
			  @fit && chance(50)
			  ? do { my $g = any_of(@fit); [ $g->{ref}, $type, $g->{tag} ] }
			  : aggregate($scope, $depth, $type);
		}
	}
	else
	{
		push @outputs,
		  map { [ $_->{ref}, $_->{type}, $_->{tag} ] } grep { $_->{type} eq 'int' } @groups;
		push @outputs, aggregate($scope, $depth) for 1 .. between(1, 3);
		push @outputs,
		  map { [ $_->{ref}, $_->{type}, $_->{tag} ] } grep { $_->{type} ne 'int' } @groups;
		@outputs = ([ 'count(*)::int', 'int' ], @outputs) if $outputs[0][1] ne 'int';
	}
	my $n = 0;
	my @columns =
	  map { { name => $names[ $n++ ], type => $_->[1], tag => $_->[2] // '' } } @outputs;
	my $sql =
		'SELECT '
	  . join(', ', map { "$outputs[$_][0] AS $columns[$_]{name}" } 0 .. $#outputs)
	  . " FROM $from"
	  . where([ @$scope, @$outer ], 2);
	if (@groups)
	{
		my $list = join(', ', map { $_->{ref} } @groups);
		$sql .= ' GROUP BY '
		  . (
			chance(distributed() ? 97 : 75) ? $list : any_of(
				"ROLLUP ($list)",
				"CUBE ($list)",
				"GROUPING SETS (($list), ())",
				"GROUPING SETS ((" . $groups[0]{ref} . "), ($list))"));
	}
	$sql .=
		' HAVING '
	  . aggregate($scope, $depth, 'int')->[0]
	  . any_of(' > ', ' <> ', ' < ')
	  . between(0, 10)
	  if chance(20);
	return { sql => $sql, columns => \@columns, open => 1 };
}

sub select_window
{
	my ($depth, $outer) = @_;
	my ($from,  $scope) = from($depth, $outer, 1);
	my $e = sub { expression($scope, $_[0], 1) };
	# the order of all columns that are to be seen
	my @shown = some_of(between(1, 4), grep { $_->{type} ne 'ttl' } @$scope);
	my $total = join(', ', map { $_->{ref} . any_of('', ' DESC', ' NULLS FIRST') } @shown);
	my $some  = sub {
		(chance(50) ? 'PARTITION BY ' . any_of(@shown)->{ref} . ' ' : '')
		  . 'ORDER BY '
		  . any_of(@shown)->{ref};
	};
	my @windows = map {
		any_of(
			'(sum(' . $e->('int') . ') OVER (' . $some->() . ') % 1009)::int',
			'count(*) OVER (' . $some->() . ')::int',
			'max('
			  . $e->('int')
			  . ') OVER ('
			  . $some->()
			  . any_of(
				'',
				' RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW',
				' GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING')
			  . ')',
			'(' . any_of('rank()', 'dense_rank()') . ' OVER (' . $some->() . '))::int',
			"(row_number() OVER (ORDER BY $total))::int",
			do
			{
				my $c = any_of(columns_in(\@shown, 'int'));
				$c
				  ? any_of('lag(', 'lead(', 'first_value(', 'last_value(')
				  . "$c->{ref}) OVER (ORDER BY $total)"
				  : '1';
			}
		)
	} 1 .. between(1, 2);
	my @columns = map { { name => $names[$_], type => 'int', tag => '' } } 0 .. $#windows;
	my @outputs = @windows;

	for (@shown)
	{
		push @columns, { name => $names[@columns], type => $_->{type}, tag => $_->{tag} };
		push @outputs, $_->{ref};
	}
	return {
		sql => 'SELECT '
		  . join(', ', map { "$outputs[$_] AS $columns[$_]{name}" } 0 .. $#outputs)
		  . " FROM $from"
		  . where([ @$scope, @$outer ], 2),
		columns => \@columns,
		open    => 1
	};
}

sub select_set
{
	my ($depth, $outer, $types) = @_;
	my @types = $types ? @$types : ('int', map { random_type() } 0 .. between(0, 2));
	my @arms  = map {
		my $q =
			chance(70)
		  ? select_plain($depth - 1, $outer, \@types)
		  : select_grouped($depth - 1, $outer, \@types);
		$q
	} 1 .. any_of(2, 2, 3);
	my $sql = shift(@arms)->{sql};

	$sql = "($sql)";
	# UNION ALL more often: its arms are planned as one relation's members
	$sql = "($sql "
	  . any_of(
		('UNION ALL') x 5,
		'UNION',  'UNION', 'INTERSECT', 'INTERSECT ALL',
		'EXCEPT', 'EXCEPT ALL')
	  . " ($_->{sql}))"
	  for @arms;
	$sql =~ s/^\((.*)\)$/$1/s;
	return {
		sql     => $sql,
		columns => [ map { { name => $names[$_], type => $types[$_], tag => '' } } 0 .. $#types ],
		open    => 1
	};
}

# An outermost ORDER BY and LIMIT
sub limited
{
	my $q = shift;
	my $order =
	  join(', ', map { $_ . any_of('', '', ' DESC', ' NULLS FIRST') } 1 .. @{ $q->{columns} });

	return $q unless $q->{open} && chance(25);
	# Citus sends shards the limit without the ties
	$q->{sql} .= ' ORDER BY '
	  . (
		!distributed() && chance(20)
		? '1 FETCH FIRST ' . between(1, 20) . ' ROWS WITH TIES'
		: "$order" . any_of('', ' LIMIT ' . between(1, 30), ' LIMIT 20 OFFSET ' . between(0, 9)));
	$q->{open} = 0;
	return $q;
}

sub query
{
	my ($depth, $outer, $types) = @_;
	my $way    = between(1, 100);
	my @before = @ctes;
	my @with;
	my $q;

	$outer //= [];
	if (!$types && $depth > 1 && chance(20))
	{
		for (1 .. any_of(1, 1, 2))
		{
			my $name  = 'w' . ++$aliases;
			my $inner = query($depth - 1, []);

			push @with,
				"$name AS "
			  . any_of('', '', 'MATERIALIZED ', 'NOT MATERIALIZED ')
			  . "($inner->{sql})";
			push @ctes, ({ name => $name, columns => $inner->{columns} }) x 3;
		}
		if (chance(distributed() ? 3 : 25))
		{
			my $name  = 'w' . ++$aliases;
			my $table = any_of(tables())->{name};

			push @with,
				"$name (k, id, d) AS (SELECT k, id, 0 FROM $table WHERE k < 5 AND id < 60"
			  . " UNION SELECT t.k, t.id, w.d + 1 FROM $name w JOIN "
			  . any_of(tables())->{name}
			  . ' t ON t.k = w.k + 1 AND 100 / t.x < 60 WHERE w.d < 4)';
			push @ctes,
			  { name => $name, columns => [ map { { name => $_, type => 'int' } } qw(k id d) ] };
		}
	}
	if ($types)
	{
		$q =
			$way <= 60               ? select_plain($depth, $outer, $types)
		  : $way <= 80 || $depth < 1 ? select_grouped($depth, $outer, $types)
		  :                            select_set($depth, $outer, $types);
	}
	elsif ($way <= 55) { $q = select_plain($depth, $outer); }
	elsif ($way <= 75) { $q = select_grouped($depth, $outer); }
	elsif ($way <= 83) { $q = select_window($depth, $outer); }
	elsif ($depth > 0) { $q = select_set($depth, $outer); }
	else               { $q = select_plain($depth, $outer); }
	$q = limited($q);
	if (@with)
	{
		# the word is enough for Citus to refuse
		my $recursive = !distributed() || grep { / UNION SELECT .* < 4\)$/ } @with;

		$q->{sql} = 'WITH ' . ($recursive ? 'RECURSIVE ' : '') . join(', ', @with) . " $q->{sql}";
		@ctes = @before;
	}
	return $q;
}

#
# Subqueries in expressions
#

sub correlation
{
	my ($own, $outer) = @_;
	my @outer = columns_in($outer, 'int');
	my @own   = grep { $_->{ref} =~ /\.(k|id|x|u)$/ } columns_in($own, 'int');

	return '' unless @outer && @own && chance(70);
	return any_of(@own)->{ref} . any_of(' = ', ' = ', ' = ', ' < ') . any_of(@outer)->{ref};
}

sub small_from
{
	my ($outer, $depth) = @_;
	my ($from,  $scope) = from($depth > 0 && chance(25) ? 1 : 0, [], 1);
	my @where = grep { $_ ne '' } correlation($scope, $outer),
	  (chance(60) ? condition($scope, 1) : '');

	return ($from . (@where ? ' WHERE ' . join(' AND ', @where) : ''), $scope);
}

sub scalar_subquery
{
	my ($outer, $depth) = @_;
	my ($from,  $scope) = small_from($outer, $depth);

	return '(SELECT ' . aggregate($scope, 0, 'int')->[0] . " FROM $from)" if chance(70);
	my @ints = columns_in($scope, 'int');
	return '0' unless @ints;
	return '(SELECT ' . any_of(@ints)->{ref} . " FROM $from ORDER BY 1 LIMIT 1)";
}

sub subquery_condition
{
	my ($outer, $depth) = @_;
	my ($from, $scope)  = small_from($outer, $depth);
	my @ints = columns_in($scope, 'int');
	my $way  = between(1, 10);

	return any_of('', '', 'NOT ') . "EXISTS (SELECT 1 FROM $from)" if $way <= 4 || !@ints;
	my $value = expression($outer, 'int', 1);
	my $ref   = any_of(@ints)->{ref};
	return "$value " . any_of('IN', 'IN', 'NOT IN') . " (SELECT $ref FROM $from)" if $way <= 8;
	return "$value " . any_of('< ALL', '>= ANY', '= ANY', '<> ALL') . " (SELECT $ref FROM $from)"
	  if $way == 9;
	return "$value = (SELECT " . aggregate($scope, 0, 'int')->[0] . " FROM $from)";
}

1;
