# Steps.pm - the steps that a session may take
package model::Steps;

use strict;
use warnings;

use equivalence::Random;
use model::Oracle;
use Exporter 'import';
our @EXPORT = qw(take_step end_transaction);

use constant KEYS => 40;

my @settings = (
	map({ ("SET $_ = off", "SET $_ = on") } qw(enable_seqscan enable_indexscan enable_bitmapscan enable_indexonlyscan)),
	map({ "SET ttl.debug_index_probe = $_" } qw(auto always always never)),
	map({ "SET plan_cache_mode = $_" } qw(auto force_generic_plan force_custom_plan)),);

# Steps and their weights, in and outside of a transaction
my @within = (
	[ \&read_rows,   34 ],
	[ \&write_rows,  30 ],
	[ \&lock_rows,   5 ],
	[ \&cursor,      14 ],
	[ \&savepoint,   7 ],
	[ \&roll_back,   3 ],
	[ \&commit,      8 ],
	[ \&set_policy,  4 ],
	[ \&reap,        2 ],
	[ \&reindex,     1 ],
	[ \&set_setting, 2 ],);
my @outside = ([ \&begin, 60 ], [ \&read_rows, 20 ], [ \&fetch, 4 ], [ \&reap, 3 ], [ \&maintain, 6 ], [ \&set_setting, 7 ],);

sub take_step
{
	my ($m, $s) = @_;
	my $steps = $s->{tx} ? \@within : \@outside;
	my $sum = 0;

	if ($s->{tx} && $s->{tx}{failed})
	{
		$m->{count}{roll_back}++;
		return roll_back($m, $s);
	}
	$sum += $_->[1] for @$steps;
	my $n = between(1, $sum);
	for my $step (@$steps)
	{
		return $step->[0]->($m, $s) if ($n -= $step->[1]) <= 0;
	}
	return;
}

#
# Transactions
#

sub begin
{
	my ($m, $s) = @_;
	my $isolation = any_of('READ COMMITTED', 'READ COMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'REPEATABLE READ', 'SERIALIZABLE');

	$m->statements($s, ["BEGIN ISOLATION LEVEL $isolation"], [],
		sub { $s->{tx} = { isolation => $isolation, savepoints => [] } });
	return;
}

sub end_transaction
{
	my ($m, $s, $commit) = @_;
	my $failed = $s->{tx}{failed};

	$m->statements(
		$s, [ $commit ? 'COMMIT' : 'ROLLBACK' ],
		[],
		sub {
			my $tx = delete $s->{tx};

			$commit = 0 if $failed || $s->{failed};
			$m->{count}{ $commit ? 'commits' : 'rollbacks' }++;
			push @{ $m->{policies} }, $tx->{policy}[0] if $commit && $tx->{policy};
			for my $name (keys %{ $s->{cursors} })
			{
				my $c = $s->{cursors}{$name};

				delete $s->{cursors}{$name} if $c->{level} >= 0 && !($commit && $c->{hold});
				$c->{level} = -1;
			}
		});
	return;
}

sub commit    { return end_transaction(@_, 1); }

sub savepoint
{
	my ($m, $s) = @_;
	my $savepoints = $s->{tx}{savepoints};
	my $level = @$savepoints;

	if (!$level || chance(60))
	{
		$m->statements($s, [ 'SAVEPOINT s' . $level ], [], sub { push @$savepoints, $s->{tx}{policy} });
		return;
	}
	$level = between(0, $level - 1);
	$m->statements(
		$s,
		["RELEASE s$level"],
		[],
		sub {
			splice(@$savepoints, $level);
			$_->{level} > $level and $_->{level} = $level for values %{ $s->{cursors} };
		});
	return;
}

# The transaction, or to a savepoint
sub roll_back
{
	my ($m, $s) = @_;
	my $savepoints = $s->{tx}{savepoints};

	return end_transaction($m, $s, 0) if !@$savepoints || chance(20);
	my $level = between(0, $#$savepoints);
	$m->statements(
		$s,
		["ROLLBACK TO s$level"],
		[],
		sub {
			splice(@$savepoints, $level + 1);
			$s->{tx}{policy} = $savepoints->[$level];
			$s->{tx}{failed} = 0;
			$s->{cursors}{$_}{level} > $level and delete $s->{cursors}{$_} for keys %{ $s->{cursors} };
		});
	return;
}

#
# Reads
#

# What the shadow has
sub shadow
{
	my ($m, $condition) = @_;
	return 'SELECT ' . $m->versions . " FROM shadow WHERE $condition";
}

# While the container waited for a lock, others have committed what the shadow did not see.
sub two_snapshots
{
	my ($s) = @_;
	return $s->{waited} && (!$s->{tx} || $s->{tx}{isolation} eq 'READ COMMITTED');
}

sub some_condition
{
	my $n = between(0, 9);
	my ($low, $high) = sort { $a <=> $b } between(1, KEYS), between(1, KEYS);

	return ('true', 0, 1000) if $n < 3;
	return ("id = $low", $low, $low) if $n < 6;
	return ("id BETWEEN $low AND $high", $low, $high);
}

sub read_rows
{
	my ($m, $s) = @_;
	my ($condition, $low, $high) = some_condition();
	my ($before, $after) = ([], []);
	my $what = 'reads';
	my $select = any_of(
		("SELECT v FROM item WHERE $condition") x 3,
		"SELECT v FROM item WHERE $condition ORDER BY v DESC",
		"EXECUTE by_range($low, $high)",
		"EXECUTE by_range($low, $high)",
		$low == $high ? "EXECUTE by_key($low)" : (),
		"EXECUTE by_join($low, $high)",
		"SELECT i.v FROM shadow s JOIN item i ON i.id = s.id AND i.v = s.v WHERE i.$condition",
		"SELECT v FROM item WHERE $condition AND v IN (SELECT v FROM shadow)",
		"WITH x AS MATERIALIZED (SELECT * FROM item WHERE $condition) SELECT v FROM x");

	$select =~ s/i\.true/true/;
	if (chance(6))
	{
		# with expired rows
		($what, $before, $after) = ('shown', ['SET ttl.show_expired = on'], ['RESET ttl.show_expired']);
	}
	elsif (chance(12))
	{
		# at, or a microsecond beside, the instant at which one expires
		my @rows = @{ $m->{observer}->run(shadow($m, $condition))->[0]{rows} };
		my $policies = $s->{tx} && $s->{tx}{policy} ? [ $s->{tx}{policy}[0] ] : [ $m->{policies}[-1] ];
		my @instants = grep { $_ < model::Oracle::NEVER } map { expiry($_, $policies->[0], $m->{deadline}) } @rows;

		if (@instants)
		{
			my $instant = any_of(@instants) + between(-1, 1);

			$what = 'at an instant';
			$before = [ "SELECT set_config('ttl.now', (" . instant($instant) . ')::text, false)' ];
			$after = ['RESET ttl.now'];
			$s->{instant} = [ $instant, $instant ];
		}
	}

	# either may be the first statement of a transaction with one snapshot
	my @statements = (shadow($m, $condition), @$before, $select, @$after);
	my $at = 1 + @$before;
	if (chance(50) && !@$before)
	{
		@statements = @statements[ 1, 0 ];
		$at = 0;
	}
	$m->{count}{$what}++;
	$m->statements(
		$s,
		\@statements,
		[],
		sub {
			my ($results, $clock, $policies) = @_;
			my $stored = $results->[ $at == 0 ? 1 : 0 ]{rows};
			my @found = map { $_->[0] } @{ $results->[$at]{rows} };

			return if $s->{failed} || two_snapshots($s);
			$clock = $s->{instant} if $what eq 'at an instant';
			$m->{count}{rows} += @found;
			# the shadow isn't told yet what somebody is deleting, which shows at an earlier instant, too
			return if $what ne 'reads' && grep { $_->{reaping} } @{ $m->{sessions} };
			if ($what eq 'shown')
			{
				# of what has been deleted since, an older snapshot sees more
				return if $m->{worker} && $s->{tx} && $s->{tx}{isolation} ne 'READ COMMITTED';
				# the worker may have deleted what has expired
				my %gone = %{ $m->{gone} };
				$m->{worker} and may_have_expired($_, [ $clock->[0], $s->{io}{received} ], $policies, $m->{deadline}) and $gone{ $_->[1] } = 1 for @$stored;
				$m->violated($s, check_found(\@found, $stored, $clock, [undef], 0, \%gone));
				return;
			}
			my %gone = %{ $m->{gone} };
			$m->{worker} and may_have_expired($_, [ 0, $s->{io}{received} ], $policies, $m->{deadline}) and $gone{ $_->[1] } = 1 for $what eq 'at an instant' ? @$stored : ();
			$m->{count}{hidden} += grep { has_expired($_, $clock, $policies, $m->{deadline}) } @$stored;
			$m->violated($s, check_found(\@found, $stored, $clock, $policies, $m->{deadline}, \%gone));
		});
	return;
}

sub lock_rows
{
	my ($m, $s) = @_;
	my ($condition) = some_condition();
	my $lock = any_of('FOR UPDATE', 'FOR SHARE', 'FOR NO KEY UPDATE', 'FOR KEY SHARE');
	my $skip = chance(30) ? ' SKIP LOCKED' : '';

	$m->{count}{locks}++;
	$m->statements(
		$s,
		[ shadow($m, $condition), "SELECT v FROM item WHERE $condition ORDER BY id $lock$skip", shadow($m, $condition) ],
		[],
		sub {
			my ($results, $clock, $policies) = @_;
			my @found = map { $_->[0] } @{ $results->[1]{rows} };

			return if $s->{failed};
			# what somebody else has changed meanwhile is found as it is then, or, with FOR KEY SHARE, as it was
			my %stored = map { $_->[1] => $_ } @{ $results->[0]{rows} }, @{ $results->[2]{rows} };
			$m->violated($s, check_found(\@found, [ values %stored ], $clock, $policies, $m->{deadline}, $m->{gone}, $skip || $s->{waited}));
		});
	return;
}

#
# Cursors
#

sub cursor
{
	my ($m, $s) = @_;
	my $cursors = $s->{cursors};

	return fetch($m, $s) if %$cursors && chance(75);
	my ($condition) = some_condition();
	my $name = 'c' . ++$m->{serial};
	my ($scroll, $hold) = (chance(30) ? 1 : 0, chance(25));
	my $order = any_of('ORDER BY id', 'ORDER BY v', '');

	$m->{count}{cursors}++;
	$m->statements(
		$s,
		[ shadow($m, $condition), "DECLARE $name " . ($scroll ? 'SCROLL' : 'NO SCROLL') . ' CURSOR' . ($hold ? ' WITH HOLD' : '') . " FOR SELECT v FROM item WHERE $condition $order" ],
		[],
		sub {
			my ($results, $clock, $policies) = @_;

			return if $s->{failed} || two_snapshots($s);
			$cursors->{$name} = {
				stored => $results->[0]{rows}, clock => $clock, policies => $policies, found => [], gone => { %{ $m->{gone} } },
				scroll => $scroll, hold => $hold, level => scalar @{ $s->{tx}{savepoints} } };
		});
	return;
}

sub fetch
{
	my ($m, $s) = @_;
	my $name = any_of(sort keys %{ $s->{cursors} });

	return read_rows($m, $s) if !defined $name;
	my $c = $s->{cursors}{$name};
	my $n = any_of(1, 2, 5, 'ALL');
	my $again = $c->{scroll} && chance(40);

	$m->{count}{fetches}++;
	$m->statements(
		$s,
		$again ? [ "MOVE ABSOLUTE 0 IN $name", "FETCH ALL FROM $name" ] : ["FETCH $n FROM $name"],
		[ '55000', '34000' ],
		sub {
			my ($results) = @_;
			my @rows = map { $_->[0] } @{ $results->[-1]{rows} };

			if ($s->{failed})
			{
				delete $s->{cursors}{$name};
				return;
			}
			if ($again)
			{
				my $before = join(' ', @{ $c->{found} });
				my $now = join(' ', @rows);

				$m->violated($s, "a cursor had $before, and has $now from its start") if $c->{done} ? $before ne $now : index("$now ", "$before ") != 0 && $before ne '';
				$c->{found} = \@rows;
			}
			else
			{
				push @{ $c->{found} }, @rows;
			}
			$c->{done} = 1 if $again || $n eq 'ALL' || @rows < $n;
			# what a transaction of its own has deleted since is still there for it
			$m->violated($s, check_found($c->{found}, $c->{stored}, $c->{clock}, $c->{policies}, $m->{deadline}, $c->{gone}, !$c->{done}));
		});
	return;
}

#
# Changes
#

# When a row was modified (undef: now) and its TTL; most expire while others look.
sub some_times
{
	my ($m) = @_;
	my $now = model::Session::microseconds();
	my $left = between(-60000, 160000);
	my $n = between(0, 9);

	if ($m->{deadline})
	{
		return (undef, $now + $left) if $n < 6;
		return (undef, undef) if $n < 8;
		return ($now + $left - 1000000, undef);
	}
	return ($now + $left - 1000000, any_of(undef, 1)) if $n < 4;
	return ($now + $left - 2000000, any_of(undef, 2)) if $n < 7;
	return (undef, any_of(undef, -1, 1, 2)) if $n < 9;
	return ($now - 10000000, undef);
}

sub write_rows
{
	my ($m, $s) = @_;
	my $form = any_of(qw(insert insert insert nothing update update change change change key delete));
	my ($condition) = some_condition();
	my $serial = ++$m->{serial} * 1000;
	my (@keys, %given, $sql);
	my $stamp = chance(10) && $form =~ /^(?:change|key)$/ ? 'off' : 'on';
	my $returning = 'RETURNING ' . $m->versions(1);

	if ($form =~ /^(?:insert|nothing|update)$/)
	{
		my ($first) = between(1, KEYS);
		@keys = ($first .. $first + (chance(70) ? 0 : between(1, 3)));
		my ($ts, $ttl) = some_times($m);

		$given{$_} = $ts for @keys;
		$sql =
			'INSERT INTO item AS i (id, v, ttl' . (defined $ts ? ', _ts' : '') . ') VALUES '
		  . join(', ', map { "($_, " . ($serial + $_) . ', ' . $m->ttl_sql($ttl) . (defined $ts ? ', ' . instant($ts) : '') . ')' } @keys)
		  . ($form eq 'nothing' ? ' ON CONFLICT DO NOTHING' : '')
		  . ($form eq 'update' ? ' ON CONFLICT (id) DO UPDATE SET v = excluded.v, prev = i.v' . (chance(50) ? ', ttl = excluded.ttl' : '') : '')
		  . ' ' . $returning =~ s/\b(?=id, v, prev|_ts|ttl)/i./r =~ s/(?<=, )(v|prev)\b/i.$1/gr =~ s/FROM _ts/FROM i._ts/r;
	}
	elsif ($form eq 'change')
	{
		my (undef, $ttl) = some_times($m);
		$sql = "UPDATE item SET v = $serial + id, prev = v" . (chance(40) ? ', ttl = ' . $m->ttl_sql($ttl) : '') . " WHERE $condition $returning";
	}
	elsif ($form eq 'key')
	{
		my $from = between(1, KEYS);

		@keys = (between(1, KEYS));
		$condition = "id = $from";
		$sql = "UPDATE item SET id = $keys[0], v = $serial + id, prev = v WHERE $condition $returning";
	}
	else
	{
		$sql = "DELETE FROM item WHERE $condition $returning";
	}

	my $keys = join(', ', @keys);
	my $where = @keys ? "id IN ($keys)" . ($form eq 'key' ? " OR $condition" : '') : $condition;
	# what the transaction's snapshot doesn't see may hold a key
	my @newest = @keys ? @{ $m->{observer}->run(shadow($m, $where))->[0]{rows} } : ();
	my @set = $stamp eq 'off' ? (['SET ttl.touch = off'], ['RESET ttl.touch']) : ([], []);

	$m->{count}{$form}++;
	$m->statements(
		$s,
		[ shadow($m, $where), @{ $set[0] }, $sql, @{ $set[1] } ],
		['23505'],
		sub {
			my ($results, $clock, $policies) = @_;
			my $stored = $results->[0]{rows};
			my $rows = $results->[ 1 + @{ $set[0] } ]{rows} // [];
			my %o = (form => $form, keys => \@keys, stored => $stored, clock => $clock, policies => $policies, rows => $rows, newest => \@newest, waited => $s->{waited});

			if (!$o{waited})
			{
				$m->violated($s, check_keys($m, $s, %o)) if @keys;
				$m->violated($s, check_found(
					[ map { $form eq 'delete' ? $_->[1] : $_->[2] } @$rows ],
					$form eq 'key' ? [ grep { "id = $_->[0]" eq $condition } @$stored ] : $stored,
					$clock, $policies, $m->{deadline}, $m->{gone})) if $form =~ /^(?:change|key|delete)$/ && !$s->{failed};
			}
			return if $s->{failed} || !@$rows;
			apply($m, $s, %o, stamp => $stamp, given => \%given, sent => [ $s->{io}{sent}, $s->{io}{received} ]);
		});
	return;
}

# The worker deletes what has expired by now, which an older clock has as live.
sub may_be_gone
{
	my ($m, $s, $version, $policies) = @_;
	return $m->{gone}{ $version->[1] } || $m->{worker} && may_have_expired($version, [ 0, $s->{io}{received} ], $policies, $m->{deadline});
}

# An insertion, or a change of a key: does it find the keys held or free, as they are?
sub check_keys
{
	my ($m, $s, %o) = @_;
	my (%row, @wrong);
	my %seen = map { $_->[1] => 1 } @{ $o{stored} };
	my @unseen = grep { !$seen{ $_->[1] } } @{ $o{newest} };
	my @there = grep { !may_be_gone($m, $s, $_, $o{policies}) } @{ $o{stored} };
	# what an older snapshot sees may have been deleted since
	my %newest = map { $_->[1] => 1 } @{ $o{newest} };
	my $must_hold = sub {
		my $id = shift;
		return grep { $_->[0] == $id && ($newest{ $_->[1] } || $s->{tx}{isolation} eq 'READ COMMITTED') && !may_have_expired($_, $o{clock}, $o{policies}, $m->{deadline}) } @there;
	};
	my $may_hold = sub {
		my $id = shift;
		return grep { $_->[0] == $id && !has_expired($_, $o{clock}, $o{policies}, $m->{deadline}) } @{ $o{stored} }, @unseen;
	};

	if ($s->{failed})
	{
		return $s->{failed} eq '23505' && !grep({ $may_hold->($_) } @{ $o{keys} }) ? "nobody live holds the keys @{$o{keys}}" : ();
	}
	$row{ $_->[0] } = $_ for @{ $o{rows} };
	for my $id (@{ $o{keys} })
	{
		my $row = $row{$id};

		# an UPDATE may find no row, or the same
		next if $o{form} eq 'key' && (!$row || grep { $_->[0] == $id && $_->[1] == $row->[2] } @there);
		push @wrong, "key $id was free for another one" if (!$row && $o{form} ne 'key') && !$may_hold->($id);
		push @wrong, "key $id was held by a live row, and given again" if $row && (!defined $row->[2] || $o{form} eq 'key') && $must_hold->($id);
	}
	return @wrong;
}

# Writes what was changed into the shadow.
sub apply
{
	my ($m, $s, %o) = @_;
	my @rows = @{ $o{rows} };
	my $deleted = $o{form} eq 'delete';
	my @replaced = map { $deleted ? $_->[1] : $_->[2] // () } @rows;
	my @taken = map { $_->[0] } grep { !$deleted && ($o{form} eq 'key' || !defined $_->[2]) } @rows;
	my @statements = (
		'DELETE FROM shadow WHERE v IN (' . join(', ', @replaced, 0) . ') RETURNING ' . $m->versions,
		'DELETE FROM shadow WHERE id IN (' . join(', ', @taken, 0) . ') RETURNING ' . $m->versions,);
	my %taken = map { $_ => 1 } @taken;
	my %seen = map { $_->[1] => 1 } @{ $o{stored} };

	push @statements, 'INSERT INTO shadow VALUES '
	  . join(', ', map { '(' . join(', ', $_->[0], $_->[1], $_->[2] // 'NULL', instant($_->[3]), $m->ttl_sql($_->[4])) . ')' } @rows)
	  if !$deleted;
	$m->statements(
		$s,
		\@statements,
		[],
		sub {
			my ($results) = @_;
			my ($replaced, $evicted) = map { $_->{rows} } @{$results}[ 0, 1 ];
			my (@wrong, %was);

			return if $s->{failed};
			push @wrong, @replaced . ' versions were replaced, of which ' . @$replaced . ' were there' if @replaced != @$replaced;
			for my $version (@$replaced)
			{
				$was{ $version->[1] } = $version;
				push @wrong, "has expired, and was changed: @{[ map { $_ // '~' } @$version ]}"
				  if has_expired($version, $o{clock}, $o{policies}, $m->{deadline});
			}
			for my $version (@$evicted)
			{
				push @wrong, "is live, and its key was given to another: @{[ map { $_ // '~' } @$version ]}"
				  if !may_be_gone($m, $s, $version, $o{policies}) && !may_have_expired($version, $o{clock}, $o{policies}, $m->{deadline});
			}
			# if it was not this statement that deleted them, an older snapshot goes on seeing them
			$m->{gone}{ $_->[1] } = 1
			  for $s->{tx}{isolation} ne 'READ COMMITTED' && ($m->{worker} || grep { $_->{reaping} } @{ $m->{sessions} }) ? @$evicted : ();
			# what only newer snapshots see went, too
			$m->{gone}{ $_->[1] } = 1 for grep { $taken{ $_->[0] } && !$seen{ $_->[1] } } @{ $o{newest} };
			for my $version ($deleted ? () : @rows)
			{
				my ($id, undef, $prev, $ts) = @$version;
				my $given = defined $prev ? undef : $o{given}{$id};

				if (defined $given) { push @wrong, "_ts of $id is $ts, and $given was given" if $ts != $given; }
				elsif ($o{stamp} eq 'off') { push @wrong, "_ts of $id has changed to $ts" if $was{$prev} && $ts != $was{$prev}[3]; }
				else { push @wrong, "_ts of $id is $ts" if $ts < $o{sent}[0] || $ts > $o{sent}[1]; }
			}
			$m->violated($s, @wrong);
		});
	return;
}

#
# Policies, and what rewrites tables
#

sub set_policy
{
	my ($m, $s) = @_;
	my $default = any_of(undef, -1, 1, 1, 1, 2, 2, 60);
	my $sql = 'SELECT ttl.set_default_ttl(\'item\', ' . ($default // 'NULL') . '::int)';
	my @statements = ($sql);

	return read_rows($m, $s) if $m->{worker} || grep { $_->{reaping} } @{ $m->{sessions} };
	@statements = ("SELECT ttl.drop_container('item')", $m->create_container($default)) if chance(10);
	# to complete the indexes is another lock on the table
	push @statements, "SELECT ttl.alter_container('item', indexing => 'consistent')" if chance(10);
	$m->{count}{policies}++;
	$m->statements($s, \@statements, [ '55006', '55000', 'XX000' ], sub { $s->{tx}{policy} = [$default] if !$s->{failed} });
	return;
}

sub reap
{
	my ($m, $s) = @_;
	my $call = 'CALL ttl.reap(\'item\'' . (chance(30) ? ', ' . between(1, 5) : '') . ')';

	# outside of a transaction it commits, and what it has deleted goes from the shadow later: until then
	# nobody may be in the middle of a step, or change the policy
	return begin($m, $s) if !$s->{tx} && grep { $_->{then} || $_->{tx} && $_->{tx}{policy} } @{ $m->{sessions} };
	# it need not be what takes the transaction's one snapshot
	return read_rows($m, $s) if $s->{tx} && !$s->{tx}{clock};
	$m->{count}{reaps}++;
	$s->{reaping} = !$s->{tx};
	$m->statements(
		$s, [$call],
		[ '25001' ],
		sub {
			my (undef, $clock, $policies) = @_;
			my $newest = $m->{observer}->run(shadow($m, 'true'))->[0]{rows};

			$s->{reaping} = 0 if $s->{failed};
			return if $s->{failed};
			$clock = [ $clock->[0], $s->{io}{received} ];
			$m->statements(
				$s,
				[
					'SET ttl.show_expired = on',
					'DELETE FROM shadow s WHERE NOT EXISTS (SELECT FROM item i WHERE i.id = s.id AND i.v = s.v) RETURNING ' . $m->versions,
					'RESET ttl.show_expired', shadow($m, 'true')
				],
				[],
				sub {
					my ($results) = @_;
					my @deleted = @{ $results->[1]{rows} };
					my %seen = map { $_->[1] => 1 } @deleted, @{ $results->[3]{rows} };

					$s->{reaping} = 0;
					return if $s->{failed};
					$clock->[1] = $s->{io}{received} if $m->{worker};
					$m->{count}{reaped} += @deleted;
					$m->violated($s, map { "is live, and was reaped: @{[ map { $_ // '~' } @$_ ]}" }
						  grep { !$m->{gone}{ $_->[1] } && !may_have_expired($_, $clock, $policies, $m->{deadline}) } @deleted);
					# what this snapshot doesn't see may have gone
					$m->{gone}{ $_->[1] } = 1 for grep { !$seen{ $_->[1] } && may_have_expired($_, $clock, $policies, $m->{deadline}) } @$newest;
				});
		});
	return;
}

# Within a transaction
sub reindex
{
	my ($m, $s) = @_;

	return read_rows($m, $s) if !$s->{tx}{clock};
	$m->{count}{rewrites}++;
	$m->statements($s, [ 'SET LOCAL lock_timeout = \'20ms\'', any_of('REINDEX TABLE item', 'REINDEX INDEX item_pkey', 'CLUSTER item USING item_pkey'), 'SET LOCAL lock_timeout = \'2s\'' ],
		[ '55006', '25001', '0A000' ], sub { });
	return;
}

# Outside of one
sub maintain
{
	my ($m, $s) = @_;
	my @commands = ('VACUUM item', 'VACUUM FULL item', 'VACUUM FULL item', 'VACUUM (FREEZE) item', 'REINDEX TABLE item', 'ANALYZE item', 'CLUSTER item USING item_pkey', 'VACUUM shadow');

	# it waits for all transactions, and leaves invalid indexes where it can't
	push @commands, 'REINDEX TABLE CONCURRENTLY item' if !grep { $_->{tx} || $_->{then} } @{ $m->{sessions} };
	$m->{count}{rewrites}++;
	$m->statements($s, [ 'SET lock_timeout = \'20ms\'', any_of(@commands), 'SET lock_timeout = \'2s\'' ], [ '0A000', '55006' ], sub { });
	return;
}

sub set_setting
{
	my ($m, $s) = @_;

	$m->statements($s, [ any_of(@settings) ], [], sub { });
	return;
}

1;
