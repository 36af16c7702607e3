# Model.pm - sessions that take steps by chance over a container, and what is true of each answer
#
# The oracle is the table shadow, which is no container: every change of the container is written into it
# in the same transaction, so transactions, savepoints and isolation levels need no model.  It keeps
# what has expired; Oracle.pm says by clock and policy which of its rows a statement may have found.
# The default TTL, which a transaction sees at once and not by its snapshot, is kept here.
#
# One session takes a step at a time.  A statement that has to wait for another session's lock is left
# waiting while others go on; of its answer less is known (waited).  A statement outside of a
# transaction never waits for a row, so nothing commits within another session's step.
package model::Model;

use strict;
use warnings;

use equivalence::Random;
use model::Oracle;
use model::Session;
use model::Steps;

use constant VERSIONS => 'id, v, prev, (extract(epoch FROM ts) * 1000000)::bigint, ';

# Statements that take no snapshot, with which a transaction may begin
my $no_snapshot = qr/^(?:BEGIN|SAVEPOINT|RELEASE|ROLLBACK|COMMIT|FETCH|MOVE|SET (?!LOCAL))/;

# options: of the server, for the three sessions
sub new
{
	my ($class, $node, $options) = @_;
	my $self = bless { node => $node, serial => 0, wrong => [], log => [], count => {}, codes => {} }, $class;

	$self->{observer} = model::Session->new($node, 'observer');
	$self->{sessions} = [
		map { { name => $_, io => model::Session->new($node, $_, $options), cursors => {} } } qw(a b c) ];
	return $self;
}

sub stop
{
	my ($self) = @_;

	$_->{io}->stop for @{ $self->{sessions} };
	$self->{observer}->stop;
	return;
}

# A TTL in SQL
sub ttl_sql
{
	my ($self, $ttl) = @_;
	return !defined $ttl ? 'NULL' : $self->{deadline} ? instant($ttl) : $ttl;
}

# A version's columns in the shadow, or in the container
sub versions
{
	my ($self, $in_container) = @_;
	my $sql = VERSIONS . ($self->{deadline} ? '(extract(epoch FROM ttl) * 1000000)::bigint' : 'ttl');

	$sql =~ s/\bts\b/_ts/ if $in_container;
	return $sql;
}

# New tables, of any kind
sub begin_epoch
{
	my ($self) = @_;
	my $default = any_of(undef, -1, 1, 1, 2, 60);
	my $observer = $self->{observer};

	$self->{deadline}    = chance(25);
	$self->{partitioned} = chance(25);
	$self->{worker}      = chance(25);
	$self->{gone}        = {};
	# the worker deletes while the policy stays as it is: nothing that has gone comes back
	$default = any_of(-1, 1, 2) if $self->{worker};
	$self->{policies} = [$default];
	$self->note('kind: ' . join(', ', map { $_ . ' ' . ($self->{$_} || 'no') } qw(deadline partitioned worker)) . ', default ' . ($default // 'NULL'));

	my $of_ttl = $self->{deadline} ? 'timestamptz' : 'int';
	my @statements = (
		'DROP TABLE IF EXISTS item, shadow',
		"CREATE TABLE shadow (id int, v bigint, prev bigint, ts timestamptz, ttl $of_ttl)",
		'CREATE INDEX ON shadow (id)',
		'CREATE INDEX ON shadow (v)',
		"CREATE TABLE item (id int PRIMARY KEY, v bigint, prev bigint, pad text DEFAULT repeat('x', 300), ttl $of_ttl, _ts timestamptz NOT NULL DEFAULT clock_timestamp()) "
		  . ($self->{partitioned} ? 'PARTITION BY HASH (id)' : ''));
	push @statements, map { "CREATE TABLE item_$_ PARTITION OF item FOR VALUES WITH (MODULUS 3, REMAINDER $_)" } 0 .. 2 if $self->{partitioned};
	push @statements, 'CREATE INDEX item_id_v ON item (id, v)', $self->create_container($default),
	  'ALTER SYSTEM SET ttl.reaper = ' . ($self->{worker} ? 'on' : 'off'), 'SELECT pg_reload_conf()';
	for my $result (@{ $observer->run(@statements) })
	{
		die $result->{error} if $result->{state} ne '00000';
	}
	for my $s (@{ $self->{sessions} })
	{
		$s->{cursors} = {};
		$s->{io}->run(
			'CLOSE ALL', 'DEALLOCATE ALL', 'RESET ALL',
			'SET client_min_messages = error', "SET lock_timeout = '2s'",
			'PREPARE by_key AS SELECT v FROM item WHERE id = $1',
			'PREPARE by_range AS SELECT v FROM item WHERE id BETWEEN $1 AND $2',
			'PREPARE by_join AS SELECT i.v FROM item i JOIN item j USING (id) WHERE i.id BETWEEN $1 AND $2');
	}
	return;
}

sub create_container
{
	my ($self, $default) = @_;
	return 'SELECT ttl.create_container(\'item\', ' . ($default // 'NULL') . "::int, ts_column => '_ts', ttl_column => 'ttl')";
}

# The latest statements are remembered: what led to a violation is among them.
sub note
{
	my ($self, $line) = @_;

	push @{ $self->{log} }, $line;
	shift @{ $self->{log} } if @{ $self->{log} } > 150;
	return;
}

# Something is wrong with what a session's statements have answered.
sub violated
{
	my ($self, $s, @lines) = @_;

	push @{ $self->{wrong} }, { step => $self->{step}, session => $s->{name}, lines => \@lines, log => [ @{ $self->{log} } ] } if @lines;
	return;
}

# Sends a session's statements; $then->($results, $clock, $policies) once they are answered.  Sets failed where
# one of them was an error that is among those allowed; others are violations.
sub statements
{
	my ($self, $s, $statements, $allowed, $then) = @_;

	$s->{waited} = 0;
	$s->{policy_from} = $#{ $self->{policies} };
	$s->{allowed} = $allowed;
	$s->{then} = $then;
	$s->{statements} = $statements;
	$s->{io}->send(@$statements);
	return;
}

sub finish
{
	my ($self, $s) = @_;
	my $io = $s->{io};
	my $results = $io->{results};
	my $then = delete $s->{then};
	my ($tx, $clock, $policies) = ($s->{tx}, [ $io->{sent}, $io->{received} ], [ @{ $self->{policies} }[ $s->{policy_from} .. $#{ $self->{policies} } ] ]);
	my ($error) = grep { $_->{state} ne '00000' } @$results;

	$self->note("$s->{name}: [$io->{sent}, $io->{received}]" . ($s->{waited} ? ' waited' : '') . ' '
		  . join('; ', @{ $s->{statements} }) . ' -> ' . ($error ? $error->{error} // $error->{state} : join(' / ', map { join(' ', map { $_->[0] // '~' } @{ $_->{rows} }) } @$results)));
	if ($error)
	{
		$s->{failed} = $error->{state};
		$tx->{failed} = 1 if $tx;
		$self->{codes}{ $error->{state} }++;
		$self->violated($s, "unexpected error: $error->{error}")
		  unless $error->{state} =~ /^(?:40001|40P01|55P03|25P02)$/ || grep { $_ eq $error->{state} } @{ $s->{allowed} };
		# a race needs somebody who has raced
		$self->violated($s, "serialization failure without a race: $error->{error}")
		  if $error->{state} eq '40001' && !$s->{waited} && (!$tx || $tx->{isolation} eq 'READ COMMITTED');
	}
	else
	{
		$s->{failed} = '';
	}
	$policies = [ $tx->{policy}[0] ] if $tx && $tx->{policy};
	if ($tx)
	{
		# one clock, that of the statement which took the snapshot
		$tx->{clock} //= $clock if $s->{statements}[0] !~ $no_snapshot;
		$clock = $tx->{clock} if $tx->{clock} && $tx->{isolation} ne 'READ COMMITTED';
	}
	$then->($results, $clock, $policies) if $then;
	return;
}

# For a lock, or (VACUUM FREEZE) for a page that somebody's cursor holds
sub waits
{
	my ($self, $s) = @_;
	return scalar @{ $self->{observer}->run("SELECT 1 FROM pg_locks WHERE NOT granted AND pid = $s->{io}{pid} "
			  . "UNION ALL SELECT 1 FROM pg_stat_activity WHERE pid = $s->{io}{pid} AND wait_event IN ('BufferPin', 'BufferCleanup')")->[0]{rows} };
}

# Has a session go on until it has nothing to do, or waits for a lock.
sub pump
{
	my ($self, $s) = @_;

	for (my $tries = 0; $s->{then}; $tries++)
	{
		if ($s->{io}->answered(0.003))
		{
			$self->finish($s);
			$tries = 0;
		}
		elsif ($self->waits($s))
		{
			$s->{waited} = 1;
			return;
		}
		die "session $s->{name} hangs: @{ $s->{statements} }" if $tries > 20000;
	}
	return;
}

# One step of a session that does not wait; then those that waited go on, one after the other.
sub step
{
	my ($self, $number) = @_;
	my $s = any_of(grep { !$_->{then} } @{ $self->{sessions} });

	$self->{step} = $number;
	if ($s)
	{
		take_step($self, $s);
		$self->pump($s);
	}
	for my $other (grep { $_->{then} } @{ $self->{sessions} })
	{
		$self->pump($other) if !$self->waits($other);
	}
	$self->{count}{waited} += grep { $_->{then} } @{ $self->{sessions} };
	return;
}

# Ends all transactions, and compares what is stored.
sub settle
{
	my ($self) = @_;
	my $observer = $self->{observer};
	my @open;

	while (@open = grep { $_->{then} || $_->{tx} } @{ $self->{sessions} })
	{
		my ($s) = grep { !$_->{then} } @open;

		if ($s)
		{
			end_transaction($self, $s, chance(50));
			$self->pump($s);
		}
		$self->pump($_) for grep { $_->{then} } @open;
	}

	my $results = $observer->run(
		'SET ttl.show_expired = on',
		'SELECT ' . $self->versions(1) . ' FROM item',
		'SET enable_seqscan = off',
		'SELECT ' . $self->versions(1) . ' FROM item WHERE id >= 0',
		'RESET enable_seqscan',
		'SELECT ' . $self->versions . ' FROM shadow', 'RESET ttl.show_expired');
	my ($stored, $indexed, $shadow) = map { $_->{rows} } @{$results}[ 1, 3, 5 ];
	my $text = sub { join('|', map { $_ // '~' } @{ $_[0] }) };
	my %stored = map { $text->($_) => 1 } @$stored;
	my $clock = [ $observer->{received}, $observer->{received} ];
	my (@wrong, @missing);

	for my $version (@$shadow)
	{
		next if delete $stored{ $text->($version) };
		push @missing, $version->[1];
		push @wrong, 'is not stored: ' . $text->($version)
		  unless $self->{gone}{ $version->[1] } || $self->{worker} && has_expired($version, $clock, [ $self->{policies}[-1] ], $self->{deadline});
	}
	push @wrong, "is stored, and not in the shadow: $_" for sort keys %stored;
	push @wrong, 'the primary key has ' . @$indexed . ' rows, the table ' . @$stored
	  if !$self->{worker} && @$indexed != @$stored;
	$self->violated({ name => 'observer' }, @wrong);
	$observer->run('DELETE FROM shadow WHERE v IN (' . join(', ', @missing) . ')') if @missing;
	# one difference isn't to be found again and again
	$observer->run('DELETE FROM shadow', 'DELETE FROM item') if @wrong;
	$self->{gone} = {};
	$self->{count}{settled}++;
	return;
}

1;
