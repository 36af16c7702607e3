# Change.pm - random INSERT, UPDATE, DELETE, MERGE and COPY FROM
#
# A change is { sql, shown }: what to run, and the table whose rows are worth
# showing afterwards.  Where the two schemas get another text, it is { c, p, shown }.
#
# What a change does must not depend on the order in which rows are met, for
# that is where live and expired rows lie.  Rows to insert come in an order.
# UPDATE gives several rows new keys only by functions that are their own
# inverse (-id, 120 - id): then it fails with a duplicate key in every order, or
# in none.  The sources of UPDATE ... FROM and MERGE have a row for each key.  A
# MERGE that does more than insert gives new rows no key that others may hold.
package equivalence::Change;

use strict;
use warnings;

use equivalence::Expression;
use equivalence::Query;
use equivalence::Random;
use equivalence::Tables;
use Exporter 'import';
our @EXPORT = qw(change policy);

my @insertable = qw(id k x n s d b j a u code r);

sub target
{
	my @choice = grep { !$_->{local} || !$equivalence::Tables::from_worker } map { table($_) }
	  qw(ordinary ordinary ordinary hashed hashed listed listed ranged ranged short fixed timed stocked stocked resting other root root root branch branch twig leaf bud);
	return any_of(@choice);
}

sub scope_for
{
	my ($t, $alias) = @_;
	return
	  map { { ref => "$alias.$_->{name}", type => $_->{type}, tag => $_->{tag}, of => $alias } }
	  columns_of($t);
}

sub is_steady
{
	my ($t, $column) = @_;
	return grep { $_ eq $column } @{ $t->{steady} };
}

# A TTL that keeps a row alive
sub ttl_value
{
	my $t = shift;

	# the clock isn't reset
	return -1 if is_frozen($t);
	return any_of(-1, 'NULL', 30000);
}

#
# SET
#

# A live row's value for a column that is no key
sub new_value
{
	my ($t, $column, $scope) = @_;
	my $e = sub { expression($scope, $_[0], 2) };

	return 'DEFAULT'                         if $column =~ /^[sda]$/ && chance(5);
	return 'abs((' . $e->('int') . ') % 21)' if $column eq 'k';
	return 'coalesce(nullif((' . $e->('int') . ') % 100, 0), 7)' if $column eq 'x';
	return '((' . $e->('int') . ') % 100)::text'                 if $column eq 'n';
	return 'left(' . $e->('text') . ', 6)'                       if $column eq 's';
	return 'round((' . $e->('numeric') . ') % 1000, 2)'          if $column eq 'd';
	return is_steady($t, 'b') ? any_of('true', 'false', 'NULL') : condition($scope, 1)
	  if $column eq 'b';
	return $e->('jsonb') =~ /^'/
	  ? q('{"v": "4", "w": 5}')
	  : q(jsonb_build_object('v', '12', 'w', 3))
	  if $column eq 'j';
	# Citus crashes when it writes down a subscript there
	return 'array_remove(' . $e->('int[]') . ', 3)' if $column eq 'a' && distributed();
	return '(' . $e->('int[]') . ')[1:4]'           if $column eq 'a';
	return ttl_value($t)                  if $column eq 'ttl';
	die $column;
}

sub assignments
{
	my ($t, $scope) = @_;
	my @columns = grep { !is_steady($t, $_) || $_ eq 'b' } qw(x n s d b j a),
	  (is_steady($t, 'k') || grep({ $_ eq 'k' } @{ $t->{hold} }) ? () : 'k'),
	  (chance(20) && $t->{ttl} ? 'ttl' : ());

	return map { "$_ = " . new_value($t, $_, $scope) } some_of(between(1, 3), @columns);
}

# New keys for several rows, see above
sub key_assignment
{
	my $t    = shift;
	my @ways = ("id = -id", "id = 120 - id");

	return () if $t->{one_at_a_time};
	push @ways, 'u = -u', 'u = 120 - u', 'u = NULL'
	  if !is_steady($t, 'r') && !($t->{family} && chance(60));
	push @ways, 'k = 20 - k'           if is_steady($t, 'k');
	push @ways, 'code = reverse(code)' if $t->{name} =~ /^(ordinary|short)$/;
	push @ways, 'u = u + 1'            if $t->{name} eq 'stocked';              # checked at the end
	push @ways, 'r = NULL'             if $t->{name} eq 'stocked';
	@ways = grep { !/^$t->{by} = / } @ways if $t->{by};
	return any_of(@ways);
}

sub returning
{
	my ($t, $alias, @more) = @_;
	my $scope = [ scope_for($t, $alias), @more ];
	my @both  = at_least(18)
	  && chance(40) ? any_of('old.id, new.x', 'old.x', 'new.id + coalesce(old.x, 0), old.n') : ();

	return '' unless chance(50);
	return ' RETURNING '
	  . join(', ',
		"$alias.id", "$alias.x", @both,
		map { expression($scope, random_type(), 1) } 1 .. between(0, 2));
}

# A subquery with one row for each s.k, and s.m
sub source
{
	my ($alias) = @_;
	my $q       = query(any_of(1, 1, 2), [], [ 'int', 'int' ]);
	my @scope   = map { { ref => "$alias.$_", type => 'int', tag => '', of => $alias } } qw(k m);

	return (
		"(SELECT abs(q.k) % "
		  . any_of(21, 130, 1130)
		  . " AS k, max(q.id) AS m FROM ($q->{sql}) q WHERE q.k IS NOT NULL GROUP BY 1) $alias",
		@scope) if chance(60);
	# another table itself, or this one
	my $other = any_of(tables())->{name};
	return (
		"(SELECT id AS k, max(k) AS m FROM "
		  . any_of($other, "seen_$other", "united", "barrier_$other")
		  . " WHERE 100 / x < 200 GROUP BY id) $alias",
		@scope);
}

#
# Statements
#

sub new_row
{
	my ($t, %o) = @_;
	# the place of a live row, of an expired one, or free
	my $place = any_of(
		(dead_id($t)) x 3,
		live_id($t),
		(between(0, 120)) x 2,
		between(1001, 1120),
		between(-120, -1), FAR);
	my $row = row_values($t, place => between(0, 130), id => $place, %o);

	$row->{k}   = $t->{k_of}{$place} // $row->{k} if $t->{name} eq 'listed';
	$row->{ttl} = ttl_value($t)                   if $t->{ttl} && chance(30);
	if    ($t->{ttl} && chance(15)) { $row->{ttl} = -1; $row->{ $t->{ts} } = clock_value($t, "'2000-01-01'"); }
	elsif (chance(10))              { $row->{ $t->{ts} } = clock_value($t, "'2999-01-01'"); }
	return $row;
}

sub on_conflict
{
	my ($t, $alias) = @_;
	my $way = between(1, 100);

	return '' if $way <= 35;
	# none of them may be deferrable
	return ' ON CONFLICT DO NOTHING' if $way <= 50 && $t->{name} ne 'stocked';
	my $arbiter = any_of(@{ $t->{arbiters} });
	return " ON CONFLICT $arbiter->[0] DO NOTHING" if $way <= 60 || $arbiter->[1] eq 'r';
	return
		" ON CONFLICT $arbiter->[0] DO SELECT"
	  . any_of('', ' FOR UPDATE')
	  . " RETURNING $alias.id, $alias.x, $alias.n"
	  if $way <= 70 && at_least(19);
	my @excluded = map {
		{ ref => "excluded.$_->{name}", type => $_->{type}, tag => $_->{tag}, of => 'excluded' }
	} columns_of($t);
	my @set = assignments($t, [ scope_for($t, $alias), @excluded ]);
	# not the distribution column: with parameters that crashes Citus, see doc/citus.md
	push @set, any_of('id = -excluded.id', "id = $alias.id + 1000", ('id = ' . dead_id($t)) x 3)
	  if chance(30) && ($t->{by} // '') ne 'id';
	push @set, any_of('u = excluded.u', "u = -$alias.u", "u = NULL") if chance(15) && ($t->{by} // '') ne 'u';
	return
		" ON CONFLICT $arbiter->[0] DO UPDATE SET "
	  . join(', ', @set)
	  . (chance(35) ? ' WHERE ' . condition([ scope_for($t, $alias), @excluded ], 1) : '');
}

# What may follow the rows of an INSERT.  DO SELECT has its own RETURNING.
sub conflict_and_returning
{
	my $t   = shift;
	my $sql = on_conflict($t, 't');

	return $sql =~ / RETURNING / ? $sql : $sql . returning($t, 't');
}

sub insert_values
{
	my $t       = shift;
	my @rows    = map { new_row($t) } 1 .. any_of(1, 1, 1, 2, 3, 6);
	my %given   = map { $_ => 1 } map { keys %$_ } @rows;
	my @columns = shuffled(grep { /^(id|k|x|n)$/ || chance(85) } sort keys %given);
	my $into    = $t->{name};

	# what was modified long ago lives by its TTL
	@columns = grep { $_ ne $t->{ts} } @columns unless grep { $_ eq 'ttl' } @columns;
	return "INSERT INTO $into AS t (" . join(', ', @columns) . ') VALUES ' . join(
		', ',
		map {
			my $r = $_;
			'('
			  . join(', ', map { $r->{$_} // ($_ eq 'ttl' ? ttl_value($t) : 'DEFAULT') } @columns)
			  . ')'
		} @rows) . conflict_and_returning($t);
}

sub insert_select
{
	my $t        = shift;
	my $q        = query(any_of(1, 2, 3), [], [ 'int', 'int', any_of('int', 'text'), 'numeric' ]);
	my $distinct = chance(80) ? 'DISTINCT ON (1) ' : '';
	my $from     = any_of('', '', ' + 1000', ' * -1');

	return insert_pushed_down($t) if distributed() && chance(50);

	return
	  "INSERT INTO $t->{name} AS t (id, k, s, d, x, n) SELECT ${distinct}coalesce(abs(q.k) % 130, 77)$from, abs(coalesce(q.id, 3)) % 21, left(q.x::text, 6), q.s, coalesce(nullif(q.id % 10, 0), 5), (q.k % 50)::text"
	  . " FROM ($q->{sql}) q (k, id, x, s) ORDER BY 1, 2, 3, 4, 5, 6"
	  . (chance(30) ? ' LIMIT 10' : '')
	  . conflict_and_returning($t);
}

# From another distributed table, shard by shard or through all of them
sub insert_pushed_down
{
	my $t     = shift;
	my $other = any_of(grep { !$_->{local} } tables());
	my $scope = [ scope_for($other, 'o') ];

	return
		"INSERT INTO $t->{name} AS t (id, k, x, n, s, d) SELECT "
	  . any_of('o.id', 'o.id', 'o.id + 1000')
	  . any_of(', o.k', ', coalesce(o.k, 3)')
	  . ", o.x, o.n, o.s, o.d FROM $other->{name} o"
	  . where($scope, 2)
	  . conflict_and_returning($t)
	  if chance(60);
	return
	  "INSERT INTO $t->{name} AS t (k, id, x, n) SELECT o.k, "
	  . any_of('min(o.id)', 'max(o.id)', 'o.k + 1000', 'o.k')
	  . ", max(o.x), max(o.n) FROM $other->{name} o WHERE o.k IS NOT NULL AND "
	  . condition($scope, 1)
	  . ' GROUP BY o.k'
	  . conflict_and_returning($t);
}

# Enough rows for the eviction to see whether anything is expired at all
sub insert_many
{
	my $t     = shift;
	my $low   = any_of(-130, 0, 20, 960, 1010);
	my $order = any_of('',   ' DESC');

	return
	  "INSERT INTO $t->{name} AS t (id, k, x, n) SELECT i, abs(i) % 21, coalesce(nullif(i % 10, 0), 1), (i % 50)::text FROM generate_series($low, $low + "
	  . between(100, 200)
	  . ") i ORDER BY i$order"
	  . (chance(20) ? '' : on_conflict($t, 't'));
}

# Through the view, or a partition
sub insert_elsewhere
{
	my $t    = shift;
	my $row  = new_row($t);
	my $into = @{ $t->{leaves} }
	  && chance(50) ? any_of(@{ $t->{leaves} }) : any_of('seen_', 'barrier_') . $t->{name};

	return
		"INSERT INTO $into (id, k, x, n, s, d, b, u) VALUES ("
	  . join(', ', map { $row->{$_} } qw(id k x n s d b u)) . ')'
	  . (chance(30) && $t->{name} ne 'stocked' ? ' ON CONFLICT DO NOTHING' : '')
	  . any_of('', ' RETURNING id, x, n');
}

sub copy_from
{
	my $t       = shift;
	my @columns = (@insertable, $t->{ttl} && chance(30) ? 'ttl' : ());
	my $sql     = "COPY $t->{name} (" . join(', ', @columns) . ") FROM stdin;\n";

	for (1 .. any_of(1, 3, 8))
	{
		my $row = new_row($t);
		$row->{ttl} = ttl_value($t);
		$sql .= join("\t", map { $row->{$_} =~ s/^'(.*)'$/$1/r =~ s/^NULL$/\\N/r } @columns) . "\n";
	}
	return "$sql\\.\n";
}

# A row of a distributed table stays in its shard
sub update_within_shard
{
	my ($t, $id, $new) = @_;

	return "UPDATE $t->{name} t SET " . join(', ', grep { !/^$t->{by} =/ } 'u = ' . between(0, 130), assignments($t, [ scope_for($t, 't') ])) . " WHERE id = $id" . returning($t, 't')
	  if $t->{by} eq 'id';
	my $k = $t->{k_of}{$new} // between(0, 20);
	$id = any_of(@{ $t->{live_by_k}{$k} // [] }) // $id;
	return "UPDATE $t->{name} t SET id = $new, s = 'moved' WHERE "
	  . ($t->{by} eq 'k' ? "k = $k AND " : '')
	  . "id = $id"
	  . returning($t, 't');
}

sub update
{
	my $t    = shift;
	my $into = $t->{name};
	my $way  = between(1, 100);

	if ($way <= 32)
	{
		# a new key for one row
		my $id  = any_of((live_id($t)) x 4, dead_id($t), between(-120, 1120));
		my $new = any_of((dead_id($t)) x 4, live_id($t), between(-120, 1120));
		my $k   = $t->{name} eq 'listed' && chance(80) ? $t->{k_of}{$new} : undef;
		return update_within_shard($t, $id, $new) if $t->{by};
		return
			"UPDATE $into t SET id = "
		  . any_of($new, $new, $new, 'id')
		  . (defined $k ? ", k = $k"                 : '')
		  . (chance(30) ? ', u = ' . between(0, 130) : '')
		  . " WHERE id = $id"
		  . returning($t, 't');
	}
	if ($way <= 50)
	{
		my $key = key_assignment($t);
		if ($key)
		{
			my $scope = [ scope_for($t, 't') ];
			my $and   = '';
			($key, $and) = ('id = t.id + 1000', ' AND id < 1000') if $key =~ /^id/ && chance(30);
			return
				"UPDATE $into t SET "
			  . join(', ', $key, grep { !/^k =|^b =/ } chance(40) ? assignments($t, $scope) : ())
			  . ' WHERE '
			  . condition($scope, 2)
			  . $and
			  . returning($t, 't');
		}
	}
	if ($way <= 68)
	{
		my ($source, @source) = source('s');
		my $scope = [ scope_for($t, 't'), @source ];
		return
			"UPDATE $into t SET "
		  . join(', ', assignments($t, $scope))
		  . " FROM $source WHERE t."
		  . any_of(qw(id k))
		  . ' = s.k'
		  . (chance(50) ? ' AND ' . condition($scope, 2) : '')
		  . returning($t, 't', @source);
	}
	if ($way <= 80)
	{
		$into = any_of("seen_$into", "barrier_$into", @{ $t->{leaves} });
	}
	my $scope = [ scope_for($t, 't') ];
	my $visible =
	  [ map { { ref => "t.$_->{name}", type => $_->{type}, tag => $_->{tag}, of => 't' } }
		  view_columns() ];
	$scope = $visible if $into =~ /_/;
	my @set = assignments($t, $scope);
	@set = grep { /^[xnsdb] =/ } @set if $into =~ /_/;
	@set = ('s = t.s') unless @set;
	return
		"UPDATE $into t SET "
	  . join(', ', @set)
	  . where($scope, 3)
	  . ($into =~ /_/ ? any_of('', ' RETURNING t.id, t.x, t.n') : returning($t, 't'));
}

sub deletion
{
	my $t = shift;
	my $from =
	  chance(20) ? any_of("seen_$t->{name}", "barrier_$t->{name}", @{ $t->{leaves} }) : $t->{name};
	my $scope = [
		$from =~ /_/
		? map { { ref => "t.$_->{name}", type => $_->{type}, tag => $_->{tag}, of => 't' } }
		  view_columns()
		: scope_for($t, 't')
	];

	if (chance(35))
	{
		my ($source, @source) = source('s');
		return
			"DELETE FROM $from t USING $source WHERE t."
		  . any_of(qw(id k))
		  . ' = s.k'
		  . (chance(50) ? ' AND ' . condition([ @$scope, @source ], 2) : '')
		  . any_of('', ' RETURNING t.id, t.x, s.m');
	}
	return
		"DELETE FROM $from t WHERE "
	  . condition($scope, 3)
	  . any_of('', ' RETURNING t.id, t.x, 1000 / t.x');
}

sub merge
{
	my $t = shift;
	my ($source, @source) = source('s');
	my $target      = [ scope_for($t, 't') ];
	my $scope       = [ @$target, @source ];
	my $insert_only = chance(25);

	# the target then is on the nullable side of a join, which may have to be a full one
	my $unmatched = !$insert_only && at_least(17) && chance(35);
	my $by = distributed() ? $t->{by} // 'id' : any_of('id', 'id', 'id', 'k');
	my $sql =
		"MERGE INTO $t->{name} t USING $source ON t.$by = s.k"
	  . (!$unmatched && chance(25) ? ' AND ' . condition($scope, 1) : '');
	my $row = row_values($t);

	# new rows come in any order, so there must be one way to fail
	$row->{r} = 'NULL';
	unless ($insert_only)
	{
		for my $last (any_of([1], [ 0, 1 ])->@*)
		{
			$sql .=
				' WHEN MATCHED'
			  . (!$last || chance(50) ? ' AND ' . condition($scope, 1) : '')
			  . ' THEN '
			  . any_of('DELETE', 'DO NOTHING',
				('UPDATE SET ' . join(', ', assignments($t, $scope))) x 3);
		}
		$row->{u}    = 's.k';
		$row->{code} = "'m" . between(0, 1000000) . "'";
		$row->{u}    = 'NULL' unless $t->{name} eq 'short';
	}
	$row->{ $t->{by} } = 's.k' if $t->{by};
	if ($insert_only || chance(70))
	{
		my @columns = shuffled(qw(k x n s d b j a u code r), $t->{ttl} && chance(20) ? 'ttl' : ());
		$row->{ttl} = ttl_value($t);
		$row->{u}   = any_of('s.k', 's.m', 'NULL')       if $insert_only && ($t->{by} // '') ne 'u';
		$row->{x}   = 'coalesce(nullif(s.m % 10, 0), 3)' if chance(40);
		$sql .=
			' WHEN NOT MATCHED'
		  . (chance(40) ? ' AND ' . condition(\@source, 1) : '')
		  . ' THEN '
		  . (
			chance(90)
			? 'INSERT (id, '
			  . join(', ', @columns)
			  . ') VALUES (s.k'
			  # one of the rows that are found by k may have that id
			  . ($by eq 'k' && !$insert_only ? ' + 500000' : '')
			  . join('', map { ", $row->{$_}" } @columns) . ')'
			: 'DO NOTHING');
	}
	$sql .=
		' WHEN NOT MATCHED BY SOURCE'
	  . (chance(70) ? ' AND ' . condition($target, 1) : '')
	  . ' THEN '
	  . any_of('DELETE', 'DO NOTHING', ('UPDATE SET ' . join(', ', assignments($t, $target))) x 2)
	  if $unmatched;
	$sql .= returning($t, 't', @source) =~ s/ RETURNING /$& . any_of('', 'merge_action(), ')/er
	  if at_least(17);
	return $sql;
}

# Data-modifying CTEs, of different tables
sub in_cte
{
	my ($t, $second) = @_;
	my $into  = $t->{name};
	my $scope = [ scope_for($t, 't') ];
	my $first = any_of(
		"DELETE FROM $into t WHERE " . condition($scope, 2),
		"UPDATE $into t SET "
		  . join(', ', assignments($t, $scope))
		  . ' WHERE '
		  . condition($scope, 2),
		"UPDATE $into t SET id = " . dead_id($t) . ' WHERE id = ' . live_id($t),
		at_least(17) ? merge($t) =~ s/ RETURNING .*//sr : (),
		insert_values($t) =~ s/ RETURNING .*//sr) . ' RETURNING t.id, t.k, t.x, t.n, t.s, t.d, t.u';
	my $columns = 'id, k, x, n, s, d, u';
	my $way     = between(1, 4);

	return
	  "WITH ch AS ($first) SELECT ch.id, ch.x, o.id, 100 / o.x FROM ch LEFT JOIN $second->{name} o ON o.k = ch.k"
	  if $way == 1;
	return
	  "WITH ch AS ($first) SELECT count(*), sum(100 / x), (SELECT count(*) FROM $into), (SELECT min(id) FROM ch) FROM ch"
	  if $way == 2;
	return
	  "WITH ch AS ($first) INSERT INTO $second->{name} AS t ($columns) SELECT DISTINCT ON (id) id, coalesce(k, 1), coalesce(x, 1), n, s, d, "
	  . ($second->{name} =~ /stocked|resting|other|timed|short/ ? 'u' : 'NULL')
	  . " FROM ch ORDER BY $columns"
	  . any_of(
		'',
		$second->{name} eq 'stocked' ? '' : ' ON CONFLICT DO NOTHING',
		' ON CONFLICT ('
		  . ($second->{name} eq 'listed' ? 'k, ' : '')
		  . 'id) DO UPDATE SET s = excluded.s')
	  . any_of('', ' RETURNING id, x')
	  if $way == 3;
	return
	  "WITH ch AS ($first) DELETE FROM $second->{name} t USING ch WHERE t.id = ch.id RETURNING t.id, t.x"
	  # not all ids are unique
	  . (distributed() ? '' : ', ch.s');
}

sub where_current
{
	my $t     = shift;
	my $n     = between(1, 5);
	my $scope = [ scope_for($t, 't') ];

	return
		"DECLARE held CURSOR FOR SELECT id FROM $t->{name} t"
	  . (chance(30) ? where($scope, 1) : '')
	  . ' ORDER BY id, k FOR UPDATE'
	  . ";\nFETCH $n FROM held;\n"
	  . any_of(
		"DELETE FROM $t->{name} WHERE CURRENT OF held RETURNING id, x",
		"UPDATE $t->{name} SET s = 'current' WHERE CURRENT OF held RETURNING id, x");
}

# Rows expire in one schema, and go from the other
sub expiry
{
	my $t         = shift;
	my $condition = 'id % ' . between(2, 5) . ' = 1' . (distributed() ? '' : ' AND ' . condition([ scope_for($t, 't') ], 1));
	my ($instant, $ttl) = @{ expired_ts($t) };
	my $ts = clock_value($t, $instant);

	if (distributed())
	{
		my %sql = (
			c => "UPDATE $t->{name} t SET x = 0, n = 'oops', j = '{\"v\": \"oops\"}', $t->{ts} = $ts"
			  . ($t->{ttl} ? ", ttl = $ttl" : $t->{own} ? ", $t->{own} = $ttl" : ''),
			p => "DELETE FROM $t->{name} t");
		$_ = as_replica("$_ WHERE $condition;\n\\echo :ROW_COUNT\n") for values %sql;
		return { %sql, shown => $t->{name}, split => 1 };
	}
	return {
		c =>
		  "SET session_replication_role = replica; UPDATE $t->{name} t SET x = 0, n = 'oops', j = '{\"v\": \"oops\"}', $t->{ts} = $ts"
		  . ($t->{ttl} ? ", ttl = $ttl" : $t->{own} ? ", $t->{own} = $ttl" : '')
		  . " WHERE $condition;\n\\set n :ROW_COUNT\nRESET session_replication_role;\n\\echo :n",
		p     => "DELETE FROM $t->{name} t WHERE $condition;\n\\echo :ROW_COUNT",
		shown => $t->{name},
		split => 1
	};
}

# Another policy for a table that the query reads: in the one schema rows are
# expired by it, from the other they go.  No TTL of ours ends between two runs.
sub policy
{
	my $query = shift;
	my @names = $query =~ /(?<=[\W_])(listed|short|stocked|resting|other)\b/g;
	return () unless @names;
	my $t = table(any_of(@names));
	my $n  = any_of(3600, 86400);
	my $ts = clock_instant($t);
	my $set =
	  $t->{container}
	  ? "ttl.set_default_ttl('$t->{name}', $n)"
	  : "ttl.create_container('$t->{name}', $n, ts_column => '_ts', ttl_column => 'ttl')";

	return (
		c => "DO 'BEGIN PERFORM " . $set =~ s/'/''/gr . "; END';\n",
		p => as_replica(
			"DELETE FROM $t->{name} WHERE coalesce(ttl, $n) > 0 AND "
			  # Citus has nothing there that isn't immutable
			  . (
				distributed()
				? "CASE WHEN isfinite($ts) THEN now() - $ts >= make_interval(secs => coalesce(ttl, $n)) ELSE $ts < now() END"
				: "$ts + make_interval(secs => coalesce(ttl, $n)) <= clock_timestamp()")
			  . ";\n"));
}

# Nothing changes
sub maintenance
{
	my $t   = shift;
	my $sql = any_of(
		"VACUUM $t->{name}",
		"ANALYZE $t->{name}",
		"VACUUM FULL $t->{name}",
		"REINDEX TABLE $t->{name}",
		"VACUUM (ANALYZE) $t->{name}",
		"BEGIN; ALTER TABLE $t->{name} ADD COLUMN added int DEFAULT length(current_user); ALTER TABLE $t->{name} ALTER COLUMN r TYPE int4range USING r * r, ALTER COLUMN added TYPE bigint; COMMIT; ALTER TABLE $t->{name} DROP COLUMN added"
	);
	my %result = (c => $sql, p => $sql, shown => $t->{name}, split => 1, alone => 1);

	$result{c} = "CALL ttl.reap('$t->{name}'" . any_of('', ', ' . between(1, 20)) . ')'
	  if $t->{container} && chance(distributed() ? 70 : 40);
	return \%result;
}

sub change
{
	my $t      = target();
	my $way    = between(1, 100);
	my %result = (shown => $t->{name});

	if ($way <= 4)
	{
		# what references a row goes when that is deleted, but not when it expires
		$t = target()
		  until defined $t->{default}
		  && !$t->{forbids}
		  && !grep { ($_->{parent} // '') eq $t->{name} } tables();
		return expiry($t);
	}
	return maintenance($t) if $way == 5 || (distributed() && $way == 6);
	if    ($way <= 25) { $result{sql}              = insert_values($t); }
	elsif ($way <= 35) { $result{sql}              = insert_select($t); }
	elsif ($way <= 37) { $result{sql}              = insert_elsewhere($t); }
	elsif ($way <= 39) { @result{qw(sql in_block)} = (insert_many($t), 1); }
	# PostgreSQL has no COPY FROM under row-level security
	elsif ($way <= 43 && $t->{name} ne 'fixed') { @result{qw(sql raw)} = (copy_from($t), 1); }
	elsif ($way <= 65) { $result{sql} = update($t); }
	elsif ($way <= 75) { $result{sql}              = deletion($t); }
	elsif ($way <= 88)
	{
		# not into reference tables
		$t = target() while distributed() && !$t->{by};
		@result{qw(sql shown)} = (merge($t), $t->{name});
	}
	elsif ($way <= 97)
	{
		my $second = target();
		# a trigger of the one reads the other
		$second = target()
		  while $second == $t
		  || ($t->{family} && $second->{family})
		  || ($t->{name} . $second->{name}) =~ /^(hashedstocked|stockedhashed)$/;
		$result{sql}   = in_cte($t, $second);
		$result{shown} = $second->{name};
	}
	elsif (distributed()) { $result{sql} = update($t); }
	else { @result{qw(sql raw in_block)} = (where_current($t), 1, 1); }
	return \%result;
}

1;
