# Expression.pm - random scalar expressions
#
# A scope is a list of columns { ref, type, tag }.  None of our expressions fails
# for values of live rows, and many do for those of expired ones: division by a
# column tagged 'nonzero', casts of one tagged 'number', of the "v" in jsonb.
# Nothing is volatile, and no floating point (sums depend on the order of rows).
#
# Some constants are marked, so that Statement.pm can make parameters of them.
package equivalence::Expression;

use strict;
use warnings;

use equivalence::Random;
use equivalence::Tables;
use Exporter 'import';
our @EXPORT = qw(expression condition constant columns_in random_type);

# Set by Query.pm, which needs this module: makes a subquery
our $subquery;

sub random_type { return any_of(qw(int int int int text text numeric boolean jsonb int[])); }

sub marked { return "\x{1}$_[0]:$_[1]\x{2}"; }

sub constant
{
	my $type = shift;

	return marked('int', between(-3, 30)) if $type eq 'int';
	return marked(
		'text',
		any_of(
			"'ash'::text", "'cedar'::text", "'B7'::text", "'a12'::text", "'%'::text", "''::text")
	) if $type eq 'text';
	return between(-300, 300) . '.5'                  if $type eq 'numeric';
	return any_of('true', 'false', 'NULL::boolean')   if $type eq 'boolean';
	return "'{\"w\": " . between(0, 20) . "}'::jsonb" if $type eq 'jsonb';
	return "ARRAY[" . between(0, 20) . "]"            if $type eq 'int[]';
	return "int4range(" . between(0, 600) . ", 700)"  if $type eq 'int4range';
	die "no constant of type $type";
}

sub columns_in
{
	my ($scope, $type, $tag) = @_;
	return grep { $_->{type} eq $type && (!defined $tag || $_->{tag} eq $tag) } @$scope;
}

# A column of the type, or a constant
sub column
{
	my ($scope, $type, $tag) = @_;
	my @columns = columns_in($scope, $type, $tag);

	return @columns ? any_of(@columns)->{ref} : undef;
}

sub expression
{
	my ($scope, $type, $depth) = @_;

	if ($type eq 'ttl')
	{
		my $column = column($scope, 'ttl');
		return defined $column ? "${column}::int" : 'NULL::int';
	}
	return column($scope, $type) // constant($type) if $depth <= 0 || chance(35);

	my $e = sub { expression($scope, $_[0], $depth - 1) };

	if ($type eq 'int')
	{
		my $way     = between(1, 16);
		my $nonzero = column($scope, 'int',   'nonzero');
		my $number  = column($scope, 'text',  'number');
		my $json    = column($scope, 'jsonb', 'v');

		return any_of(
			"(1000 / $nonzero)",
			"(" . $e->('int') . " % $nonzero)",
			"(" . $e->('int') . " / $nonzero)") if $way <= 4 && $nonzero;
		return "${number}::int"                                             if $way <= 6 && $number;
		return "($json->>'v')::int"                                         if $way <= 7 && $json;
		return '(' . $e->('int') . any_of(' + ', ' - ') . $e->('int') . ')' if $way <= 9;
		return 'coalesce(' . $e->('int') . ', ' . $e->('int') . ')'         if $way == 10;
		return
			'CASE WHEN '
		  . condition($scope, $depth - 1)
		  . ' THEN '
		  . $e->('int')
		  . ' ELSE '
		  . $e->('int') . ' END'
		  if $way == 11;
		return any_of('abs(', '(-') . '(' . $e->('int') . '))' if $way == 12;
		return any_of('cardinality(' . $e->('int[]') . ')', 'length(' . $e->('text') . ')')
		  if $way == 13;
		return $subquery->('scalar', $scope, $depth - 1)                     if $way == 14;
		# Citus has no functions that read in queries of shards
		return 'count_' . any_of(tables())->{name} . '(' . $e->('int') . ')'
		  if $way == 15 && (!distributed() || chance(5));
		return any_of('greatest(', 'least(') . $e->('int') . ', ' . $e->('int') . ')';
	}
	if ($type eq 'text')
	{
		my $way  = between(1, 6);
		my $json = column($scope, 'jsonb');

		return '(' . $e->('text') . ' || ' . $e->('text') . ')'            if $way == 1;
		return any_of('lower(', 'upper(', 'reverse(') . $e->('text') . ')' if $way == 2;
		return 'coalesce(' . $e->('text') . ', ' . $e->('text') . ')'      if $way == 3;
		return "($json->>'w')"                                             if $way == 4 && $json;
		return 'CASE WHEN ' . condition($scope, $depth - 1) . ' THEN ' . $e->('text') . ' END'
		  if $way == 5;
		return $e->('int') . '::text';
	}
	if ($type eq 'numeric')
	{
		my $nonzero = column($scope, 'int', 'nonzero');

		return 'round(' . $e->('numeric') . " / $nonzero, 2)" if $nonzero && chance(40);
		return '(' . $e->('numeric') . any_of(' + ', ' - ') . $e->('numeric') . ')' if chance(50);
		return $e->('int') . '::numeric';
	}
	return condition($scope, $depth - 1) if $type eq 'boolean';
	return 'array_append(' . $e->('int[]') . ', ' . $e->('int') . ')'
	  if $type eq 'int[]' && chance(60);
	return column($scope, $type) // constant($type);
}

# What WHERE, ON, HAVING, FILTER and CASE take
sub condition
{
	my ($scope, $depth) = @_;
	my $e   = sub { expression($scope, $_[0], $depth - 1) };
	my $way = between(1, 32);

	return
		'('
	  . condition($scope, $depth - 1)
	  . any_of(' AND ', ' OR ', ' OR ')
	  . condition($scope, $depth - 1) . ')'
	  if $way <= 6 && $depth > 0;
	return 'NOT (' . condition($scope, $depth - 1) . ')' if $way == 7  && $depth > 0;
	return $subquery->('condition', $scope, $depth - 1)  if $way <= (distributed() ? 8 : 11) && $depth > 0;

	if ($way <= 16)
	{
		# what an index can help with
		my @columns = columns_in($scope, 'int');
		if (@columns)
		{
			my $column = any_of(@columns)->{ref};
			my @range  = $column =~ /\.(id|u)$/ ? (0, 120) : $column =~ /\.x$/ ? (-9, 9) : (0, 20);
			return
				"$column "
			  . any_of('=', '<', '<=', '>', '>', '>=', '<>', '<>') . ' '
			  . marked('int', between(@range))
			  if chance(60);
			return
				"$column BETWEEN "
			  . marked('int', $range[0] + between(-2, 6)) . ' AND '
			  . marked('int', between(@range))
			  if chance(50);
			return
				"$column "
			  . any_of('IN', 'NOT IN') . ' ('
			  . join(', ', map { between(@range) } 1 .. between(1, 6)) . ')'
			  if chance(50);
			return "$column = ANY (ARRAY[" . join(', ', map { between(@range) } 1 .. 6) . '])';
		}
	}
	if ($way <= 19)
	{
		my $column = any_of(@$scope);
		if ($column)
		{
			return "$column->{ref} IS " . any_of('NULL', 'NOT NULL', 'NOT NULL', 'NOT NULL');
		}
	}
	if ($way == 20)
	{
		my $ttl = column($scope, 'ttl');
		return any_of("$ttl > 0", "coalesce($ttl, -1) = -1", "$ttl IS NULL") if $ttl;
	}
	if ($way == 21)
	{
		my $array = column($scope, 'int[]');
		return any_of(
			"$array \@> ARRAY[" . between(0, 20) . ']',
			"$array && '{1,5,9,13}'",
			$e->('int') . " = ANY ($array)") if $array;
	}
	if ($way == 22)
	{
		my $json = column($scope, 'jsonb');
		return "$json \@> '{\"w\": " . between(0, 20) . "}'" if $json;
	}
	if ($way == 23)
	{
		my $range = column($scope, 'int4range');
		return "$range && int4range(" . between(0, 600) . ', ' . between(601, 1200) . ')' if $range;
	}
	return
		$e->('text')
	  . any_of(' = ', ' < ', ' >= ', ' >= ', ' <> ', ' <> ', ' LIKE ')
	  . $e->('text')
	  if $way <= 25;
	return $e->('numeric') . any_of(' < ', ' > ') . $e->('numeric') if $way == 26;
	return column($scope, 'boolean') // 'true'                      if $way == 27;
	if ($way >= 31)
	{
		# too cheap not to be run first, if that is left to the planner
		my ($nonzero, $number) =
		  (column($scope, 'int', 'nonzero'), column($scope, 'text', 'number'));
		return 'watch(' . ($nonzero // 1) . ', ' . ($number // 'NULL') . ')' if $nonzero || $number;
	}
	return $e->('int') . ' IS ' . any_of('', 'NOT ') . 'DISTINCT FROM ' . $e->('int') if $way == 28;
	return $e->('int') . any_of(' = ', ' < ', ' > ', ' <> ', ' <> ', ' <= ') . $e->('int');
}

1;
