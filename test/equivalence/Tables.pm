# Tables.pm - what the statements run over
#
# Two schemas hold tables, views and functions of the same names.  Those of
# schema p are plain; those of schema c are containers, and have about as many
# expired rows among the live ones.  A live row has values that no expression of
# ours fails for; what an expired one has would change any answer:
#
#   x     an int that live rows never have as 0, so that others can be divided by it
#   n     a text that is a number in live rows
#   j     jsonb whose "v" is a number in live rows
#   u     an int, code a text, r a range: keys of some tables; NULL in some rows
#   id    the primary key: expired rows hold the free places between live ones,
#         what becomes of them when a statement adds 1000, and the extremes
#   k     joins the tables, also with themselves
package equivalence::Tables;

use strict;
use warnings;

use equivalence::Random;
use Exporter 'import';
our @EXPORT =
  qw(FAR at_least distributed as_replica live_id dead_id is_frozen tables table readables choose_clocks setup_sql load_sql row_values expired_ts clock_value clock_instant digest_sql columns_of view_columns);

# The server's major version: some statements are for newer ones alone
our $server = 15;

sub at_least { return $server >= $_[0]; }

# Are they tables of Citus (Distributed.pm)?  Not those that statements of a worker node
# don't find, then.
our ($distributed, $from_worker) = (0, 0);

sub distributed { return $distributed; }

# What no trigger of ours notices, on no node
sub as_replica
{
	my $sql = join('', @_);

	return "SET session_replication_role = replica;\n${sql}RESET session_replication_role;\n" if !$distributed;
	return
		"SET LOCAL citus.propagate_set_commands = local;\nSET LOCAL citus.multi_shard_modify_mode = sequential;\n"
	  . "SET LOCAL session_replication_role = replica;\n${sql}SET LOCAL session_replication_role = origin;\n";
}

# Farther than others, and not too far for sums
use constant FAR => 100_000_000;

use constant COLUMNS => (
	[ id   => 'int' ],
	[ k    => 'int' ],
	[ x    => 'int',  'nonzero' ],
	[ n    => 'text', 'number' ],
	[ s    => 'text' ],
	[ d    => 'numeric' ],
	[ b    => 'boolean' ],
	[ j    => 'jsonb', 'v' ],
	[ a    => 'int[]' ],
	[ u    => 'int' ],
	[ code => 'text' ],
	[ r    => 'int4range' ]);

# Their definitions, in the order of one of the tables; each has another
my %type_of = map { $_->[0] => $_->[1] } COLUMNS;

sub columns
{
	return join(', ', map { /^\w+$/ && $type_of{$_} ? "$_ $type_of{$_}" : $_ } @_);
}

# create    what makes the table, in both schemas
# container the arguments of ttl.create_container; undef = a plain table
# default   its default TTL; undef = TTL is off, and nothing expires
# ts, ttl   the columns' names; ttl undef = rows have no TTL of their own.  Where there is
#           no timestamp column, ts is the deadline
# own       the TTL column if statements don't name it: a document or a deadline
# unit      what a number in the timestamp column counts since 1970, see choose_clocks()
# type      of the timestamp column
# odd       values of the TTL column that have no meaning
# all_live  to be set where it must not hold expired rows
# hold      the columns that have to have a value
# arbiters  what ON CONFLICT may name, and the column it is about
# live_ids, dead_ids, k_of  what load_sql has made
# family    tables that reference each other
# parent    which one of them this one references
# forbids   its rows, expired or not, keep what they reference from being deleted
# by, distribute, afterwards, local  see Distributed.pm
# steady    columns whose changes must not depend on the order of rows: those of
#           constraints that are checked row by row (see Change.pm)
my %table = (
	ordinary => {
		create => 'CREATE TABLE ordinary ('
		  . columns(qw(id k x n s d b j a u code r), '_ts timestamptz', 'ttl int') . ');
			ALTER TABLE ordinary ADD PRIMARY KEY (id), ADD UNIQUE (u);
			CREATE UNIQUE INDEX ON ordinary (lower(code));
			CREATE INDEX ON ordinary (k) INCLUDE (x, _ts, ttl);
			CREATE INDEX ON ordinary (x, id);
			CREATE INDEX ON ordinary (abs(id));
			CREATE INDEX ON ordinary USING gin (a);',
		container => "'ordinary', 3600, ts_column => '_ts', ttl_column => 'ttl'",
		default   => 3600,
		arbiters  => [
			[ '(id)',                        'id' ],
			[ 'ON CONSTRAINT ordinary_pkey', 'id' ],
			[ '(u)',                         'u' ],
			[ '(lower(code))',               'code' ]
		],
		steady => [qw(id u code)],
	},
	hashed => {
		create => 'CREATE TABLE hashed ('
		  . columns('ttl bigint', qw(s n x), '_ts timestamptz',
			qw(id k d), 'gone int', qw(b a j r code u))
		  . ') PARTITION BY HASH (id);
			CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 3, REMAINDER 0);
			CREATE TABLE hashed_1 ('
		  . columns(
			'gone int',
			'lost text',
			qw(u r),
			'ttl bigint',
			qw(code j a b id d k),
			'_ts timestamptz',
			qw(x n s))
		  . ');
			ALTER TABLE hashed_1 DROP COLUMN lost;
			ALTER TABLE hashed ATTACH PARTITION hashed_1 FOR VALUES WITH (MODULUS 3, REMAINDER 1);
			ALTER TABLE hashed DROP COLUMN gone;
			CREATE TABLE hashed_2 PARTITION OF hashed FOR VALUES WITH (MODULUS 3, REMAINDER 2);
			ALTER TABLE hashed ADD PRIMARY KEY (id);
			CREATE INDEX ON hashed (k); CREATE INDEX ON hashed (x); CREATE INDEX ON hashed ((d * 2));',
		container => "'hashed', 7200, ts_column => '_ts', ttl_column => 'ttl', ts_precision => '1 hour'",
		default   => 7200,
		odd       => [ 0, -7, -2147483648 ],
		arbiters  => [ [ '(id)', 'id' ] ],
		steady    => ['id'],
		leaves    => [qw(hashed_0 hashed_1 hashed_2)],
	},
	listed => {
			create => 'CREATE TABLE listed ('
		  . columns(qw(code u k), '_ts timestamptz', qw(id x n s d b j), 'ttl int', qw(a r))
		  . ') PARTITION BY LIST (k);
			CREATE TABLE listed_low PARTITION OF listed FOR VALUES IN (0, 1, 2, 3, 4);
			CREATE TABLE listed_rest ('
		  . columns(
			qw(id a r), '_ts timestamptz',
			'gone int', qw(x n s d b j k),
			'ttl int',  qw(code u))
		  . ') PARTITION BY LIST (k);
			CREATE TABLE listed_mid PARTITION OF listed_rest FOR VALUES IN (5, 6, 7, 8, 9, 10);
			CREATE TABLE listed_high PARTITION OF listed_rest DEFAULT;
			ALTER TABLE listed_rest DROP COLUMN gone;
			ALTER TABLE listed ATTACH PARTITION listed_rest DEFAULT;
			ALTER TABLE listed ADD PRIMARY KEY (k, id);
			CREATE INDEX ON listed (id); CREATE INDEX ON listed (x);',
		container => "'listed', -1, ts_column => '_ts', ttl_column => 'ttl'",
		default   => -1,
		hold      => ['k'],
		arbiters  => [ [ '(k, id)', 'id' ], [ 'ON CONSTRAINT listed_pkey', 'k' ] ],
		steady    => [qw(id k)],
		leaves    => [qw(listed_low listed_rest listed_mid listed_high)],
	},
	ranged => {
			create => 'CREATE TABLE ranged ('
		  . columns(qw(r code a j b), '_ts timestamptz', qw(d s n x k id), 'ttl int', 'u')
		  . ') PARTITION BY RANGE (id);
			CREATE TABLE ranged_1 PARTITION OF ranged FOR VALUES FROM (MINVALUE) TO (40);
			CREATE TABLE ranged_2 PARTITION OF ranged FOR VALUES FROM (40) TO (80);
			CREATE TABLE ranged_3 ('
		  . columns('x', 'ttl int', qw(n k u), '_ts timestamptz', qw(id d s b j a code r)) . ');
			ALTER TABLE ranged ATTACH PARTITION ranged_3 FOR VALUES FROM (80) TO (MAXVALUE);
			ALTER TABLE ranged ADD PRIMARY KEY (id);
			CREATE UNIQUE INDEX ON ranged_1 (u); CREATE UNIQUE INDEX ON ranged_3 (u);
			CREATE INDEX ON ranged (k, x);',
		container     => "'ranged', 3600, ts_column => '_ts', ttl_column => 'ttl', touch_on_update => false",
		default       => 3600,
		arbiters      => [ [ '(id)', 'id' ] ],
		steady        => [qw(id u)],
		one_at_a_time => 1,
		leaves        => [qw(ranged_1 ranged_2 ranged_3)],
	},
	short => {
		create => 'CREATE TABLE short ('
		  . columns('ttl smallint', qw(j n), '_ts timestamptz', qw(id k x s d b a u code r)) . ');
			ALTER TABLE short ADD PRIMARY KEY (id), ADD CONSTRAINT pair UNIQUE NULLS NOT DISTINCT (u, code);
			CREATE INDEX ON short (k); CREATE INDEX ON short USING hash (x); CREATE INDEX ON short ((n));',
		container => "'short', -1, ts_column => '_ts', ttl_column => 'ttl'",
		default   => -1,
		arbiters  => [ [ '(id)', 'id' ], [ '(u, code)', 'u' ], [ 'ON CONSTRAINT pair', 'code' ] ],
		steady    => [qw(id u code)],
	},
	fixed => {
		create => 'CREATE TABLE fixed ('
		  . columns(qw(id u code), 'gone text', qw(k x n s d), '_ts timestamptz',
			'ttl numeric', qw(b j a r))
		  . ');
			ALTER TABLE fixed DROP COLUMN gone;
			ALTER TABLE fixed ADD PRIMARY KEY (id);
			CREATE UNIQUE INDEX ON fixed (u) WHERE b;
			CREATE INDEX ON fixed (x DESC, k); CREATE INDEX ON fixed (k) WHERE x > 0;',
		container => "'fixed', 3600, ts_column => '_ts', ttl_column => 'ttl', touch_on_update => false",
		default   => 3600,
		odd       => [ 0, -7, 20.5, -1.5 ],
		arbiters  => [ [ '(id)', 'id' ], [ '(u) WHERE b', 'u' ] ],
		steady    => [qw(id u b)],
	},
	timed => {
		create => 'CREATE TABLE timed ('
		  . columns(qw(id k x n s d b j a u code r)) . ');
			ALTER TABLE timed ADD PRIMARY KEY (id);
			ALTER TABLE timed ADD COLUMN changed timestamptz;
			CREATE INDEX ON timed (k, id);',
		container => "'timed', 3600, ts_column => 'changed', ttl_column => NULL, ts_precision => '5 seconds'",
		default   => 3600,
		ts        => 'changed',
		ttl       => undef,
		arbiters  => [ [ '(id)', 'id' ] ],
		steady    => ['id'],
	},
	stocked => {
		create => 'CREATE TABLE stocked ('
		  . columns(qw(k id x n s d b j a u code r)) . ');
			ALTER TABLE stocked ADD PRIMARY KEY (id), ADD UNIQUE (u) DEFERRABLE, ADD EXCLUDE USING gist (r WITH &&);
			CREATE INDEX ON stocked (k); CREATE INDEX ON stocked USING brin (x);',
		container => "'stocked', -1",
		otherwise => 'ALTER TABLE stocked ADD COLUMN _ts timestamptz, ADD COLUMN ttl int',
		default   => -1,
		arbiters  => [ [ '(id)', 'id' ], [ 'ON CONSTRAINT stocked_r_excl', 'r' ] ],
		steady    => [qw(id r)],
	},
	resting => {
		create => 'CREATE TABLE resting ('
		  . columns(qw(id k x n s d b j a u code r), '_ts timestamptz', 'ttl int') . ');
			ALTER TABLE resting ADD PRIMARY KEY (id);
			CREATE INDEX ON resting (k);',
		container => "'resting', NULL, ts_column => '_ts', ttl_column => 'ttl'",
		arbiters  => [ [ '(id)', 'id' ] ],
		steady    => ['id'],
	},
	documented => {
		create => 'CREATE TABLE documented ('
		  . columns('gone int', qw(k id x n), 'own jsonb', qw(s d b j a u code r), 'at timestamp') . ');
			ALTER TABLE documented DROP COLUMN gone;
			ALTER TABLE documented ADD PRIMARY KEY (id), ADD UNIQUE (u);
			CREATE INDEX ON documented (k) INCLUDE (x); CREATE INDEX ON documented USING gin (own);',
		container => "'documented', 3600, 'at', 'own'",
		default   => 3600,
		ts        => 'at',
		ttl       => undef,
		own       => 'own',
		arbiters  => [ [ '(id)', 'id' ], [ '(u)', 'u' ] ],
		steady    => [qw(id u)],
	},
	deadlined => {
		create => 'CREATE TABLE deadlined ('
		  . columns('own timestamptz', qw(id k x n s d b j a u code r), '_ts timestamptz')
		  . ') PARTITION BY HASH (id);
			CREATE TABLE deadlined_0 PARTITION OF deadlined FOR VALUES WITH (MODULUS 2, REMAINDER 0);
			CREATE TABLE deadlined_1 ('
		  . columns(qw(k x n s), '_ts timestamptz', qw(d b j id a u code r), 'own timestamptz') . ');
			ALTER TABLE deadlined ATTACH PARTITION deadlined_1 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
			ALTER TABLE deadlined ADD PRIMARY KEY (id);
			CREATE INDEX ON deadlined (k); CREATE INDEX ON deadlined (own);',
		container => "'deadlined', 3600, ts_column => '_ts', ttl_column => 'own'",
		default   => 3600,
		ttl       => undef,
		own       => 'own',
		arbiters  => [ [ '(id)', 'id' ] ],
		steady    => ['id'],
		leaves    => [qw(deadlined_0 deadlined_1)],
	},
	dated => {
		create => 'CREATE TABLE dated ('
		  . columns(qw(id k x n s d b j a u code r), 'until timestamp') . ');
			ALTER TABLE dated ADD PRIMARY KEY (id), ADD UNIQUE (u);
			CREATE INDEX ON dated (until) WHERE until IS NOT NULL; CREATE INDEX ON dated (k, x);',
		container => "'dated', -1, ts_column => NULL, ttl_column => 'until'",
		default   => -1,
		ts        => 'until',
		ttl       => undef,
		arbiters  => [ [ '(id)', 'id' ], [ '(u)', 'u' ] ],
		steady    => [qw(id u)],
	},
	root => {
		create => 'CREATE TABLE root ('
		  . columns(qw(id k x n s d b j a u code r), '_ts timestamptz', 'ttl double precision') . ');
			ALTER TABLE root ADD PRIMARY KEY (id);
			CREATE INDEX ON root (k);',
		container => "'root', 3600, ts_column => '_ts', ttl_column => 'ttl'",
		default   => 3600,
		odd       => [ 0, -7, 20.5 ],
		arbiters  => [ [ '(id)', 'id' ] ],
		steady    => ['id'],
		family    => 1,
	},
	branch => {
			create => 'CREATE TABLE branch ('
		  . columns(qw(u k id), '_ts timestamptz', qw(x n s d b j a code r), 'ttl int')
		  . ') PARTITION BY HASH (id);
			CREATE TABLE branch_0 PARTITION OF branch FOR VALUES WITH (MODULUS 2, REMAINDER 0);
			CREATE TABLE branch_1 PARTITION OF branch FOR VALUES WITH (MODULUS 2, REMAINDER 1);
			ALTER TABLE branch ADD PRIMARY KEY (id), ADD FOREIGN KEY (u) REFERENCES root ON DELETE CASCADE ON UPDATE CASCADE;
			CREATE INDEX ON branch (u); CREATE INDEX ON branch (k);',
		container => "'branch', -1, ts_column => '_ts', ttl_column => 'ttl'",
		default   => -1,
		arbiters  => [ [ '(id)', 'id' ] ],
		steady    => [qw(id u)],
		leaves    => [qw(branch_0 branch_1)],
		family    => 1,
		parent    => 'root',
	},
	twig => {
		create => 'CREATE TABLE twig ('
		  . columns(qw(id k x n s d b j a u code r), '_ts timestamptz', 'ttl int') . ');
			ALTER TABLE twig ADD PRIMARY KEY (id), ADD FOREIGN KEY (u) REFERENCES root ON DELETE SET NULL ON UPDATE CASCADE DEFERRABLE;
			CREATE INDEX ON twig (u);',
		container => "'twig', 3600, ts_column => '_ts', ttl_column => 'ttl'",
		default   => 3600,
		arbiters  => [ [ '(id)', 'id' ] ],
		steady    => [qw(id u)],
		family    => 1,
		parent    => 'root',
	},
	leaf => {
		create => 'CREATE TABLE leaf ('
		  . columns(qw(x id k n s d), 'ttl real', qw(b j a u code r), '_ts timestamptz') . ');
			ALTER TABLE leaf ADD PRIMARY KEY (id), ADD FOREIGN KEY (u) REFERENCES branch ON DELETE CASCADE ON UPDATE CASCADE;
			CREATE INDEX ON leaf (u);',
		container => "'leaf', 3600, ts_column => '_ts', ttl_column => 'ttl'",
		default   => 3600,
		odd       => [ 0, -7, 20.5 ],
		arbiters  => [ [ '(id)', 'id' ] ],
		steady    => [qw(id u)],
		family    => 1,
		parent    => 'branch',
	},
	bud => {
		create => 'CREATE TABLE bud ('
		  . columns(qw(id k x n s d b j a u code r), '_ts timestamptz', 'ttl int') . ');
			ALTER TABLE bud ADD PRIMARY KEY (id), ADD FOREIGN KEY (u) REFERENCES root DEFERRABLE;
			CREATE INDEX ON bud (u);',
		container => "'bud', -1, ts_column => '_ts', ttl_column => 'ttl'",
		default   => -1,
		arbiters  => [ [ '(id)', 'id' ] ],
		steady    => [qw(id u)],
		family    => 1,
		parent    => 'root',
		forbids   => 1,
	},
	other => {
		create => 'CREATE TABLE other ('
		  . columns(qw(id k x n s d b j a u code r), '_ts timestamptz', 'ttl int') . ');
			ALTER TABLE other ADD PRIMARY KEY (id);
			CREATE INDEX ON other (k);',
		arbiters => [ [ '(id)', 'id' ] ],
		steady   => ['id'],
	});

while (my ($name, $t) = each %table)
{
	$t->{name} = $name;
	$t->{ts} //= '_ts';
	$t->{ttl} = 'ttl' unless exists $t->{ttl};
	$t->{type} = $t->{create} =~ /\b$t->{ts} (timestamp\w*)/ ? $1 : 'timestamptz';
	$t->{hold}   //= [];
	$t->{leaves} //= [];
	$t->{odd}    //= [];
}

# Those that are referenced come first
sub generation { my $t = shift; return $t->{parent} ? 1 + generation($table{ $t->{parent} }) : 0; }

sub tables
{
	return sort { generation($a) <=> generation($b) || $a->{name} cmp $b->{name} } values %table;
}
sub table { return $table{ $_[0] }; }

# Gives containers clocks of other kinds at random, and another ts_precision
my %units = (epoch => 1, epoch_ms => 1000, epoch_us => 1_000_000);

sub choose_clocks
{
	for my $t (grep { $_->{container} && !has_deadlines($_) } tables())
	{
		my $type = any_of('timestamptz', 'timestamptz', 'timestamptz(0)', 'timestamp', 'timestamp(3)', 'bigint', 'bigint', 'numeric', is_frozen($t) ? ('date') x 3 : ());
		my $unit = $type =~ /^(bigint|numeric)$/ ? any_of(sort keys %units) : undef;

		$t->{container} =~ s/, ts_precision => '.*?'//;
		$t->{container} .= ", ts_precision => '" . any_of('1 second', '7 minutes', '1 hour') . "'" if !is_frozen($t) && chance(50);
		next unless $t->{create} =~ s/\b$t->{ts} \Q$t->{type}\E\b/$t->{ts} $type/g;
		$t->{type} = $type;
		$t->{unit} = $unit;
		$t->{container} .= ", ts_unit => '$unit'" if $unit;
	}
	return;
}

# An instant, a literal or not, as a value of the timestamp column.  Numbers have no infinity, and a
# date is rounded up to a day as the present is.
sub clock_value
{
	my ($t, $instant) = @_;

	return $instant if $instant eq 'NULL' || (!$t->{unit} && $t->{type} ne 'date');
	return $instant =~ /^'/ ? $instant : "($instant AT TIME ZONE 'UTC')::date + 1" if $t->{type} eq 'date';
	$instant =~ s/^'-infinity'$/'1960-01-01'/;
	$instant =~ s/^'infinity'$/'2999-01-01'/;
	$instant =~ s/^('.*)/timestamptz $1/;
	return "ceil(extract(epoch FROM $instant) * $units{ $t->{unit} })::$t->{type}";
}

# The instant that a value of it stands for
sub clock_instant
{
	my $t = shift;

	return $t->{unit} ? "to_timestamp($t->{ts} / $units{ $t->{unit} })" : $t->{ts};
}

# The columns of a table that statements name, for Query.pm.  Never the
# timestamp: UPDATE gives it another value here and there.
sub columns_of
{
	my $t       = shift;
	my @columns = map { { name => $_->[0], type => $_->[1], tag => $_->[2] // '' } } COLUMNS;

	push @columns, { name => 'ttl', type => 'ttl', tag => '' } if $t->{ttl};
	return @columns;
}

sub view_columns
{
	return grep { $_->{name} =~ /^(id|k|x|n|s|d|b|u)$/ } columns_of({});
}

# Everything that stands in FROM under its own name: what to write, its columns,
# and the table it is made of
sub readables
{
	my @result;

	for my $t (grep { !$_->{local} || !$from_worker } tables())
	{
		my $name = $t->{name};
		my @all  = columns_of($t);
		my @some = view_columns();

		push @result, { kind => 'table', sql => $name, columns => \@all } for 1 .. 4;
		push @result,
		  {
			kind    => 'table',
			sql     => "$name TABLESAMPLE BERNOULLI (100)",
			columns => \@all,
			after   => 1
		  };
		push @result,
		  map { { kind => 'table', sql => any_of($_, "ONLY $_"), columns => \@all } }
		  @{ $t->{leaves} };
		push @result,
		  map { { kind => 'view', sql => $_ . $name, columns => \@some } } qw(seen_ barrier_);
		push @result, map { { kind => 'function', sql => "$_$name", columns => \@some } }
		  $distributed ? 'procedural_' : qw(inlined_ atomic_ procedural_);
		next if $distributed;
		push @result, { kind => 'function', sql => "whole_$name", columns => \@all };
		# by address
		my $names = join(', ', map { $_->{name} } @some);
		push @result,
		  {
			kind => 'subquery',
			sql  =>
			  "(SELECT $names FROM $name WHERE (ctid, tableoid) IN (SELECT ctid, tableoid FROM $name))",
			columns => \@some
		  };
		push @result,
		  {
			kind    => 'subquery',
			sql     => "(SELECT $names FROM $name WHERE ctid >= '(0,1)')",
			columns => \@some
		  };
		# what is stored there, expired rows too
		push @result,
		  {
			kind => 'subquery',
			sql  => "(SELECT $names FROM $name WHERE ctid = ANY ((SELECT stored_$name())::tid[]))",
			columns => \@some
		  }
		  unless @{ $t->{leaves} };
	}
	push @result,
	  map { { kind => 'view', sql => $_, columns => [ view_columns() ] } } qw(united joined)
	  for 1 .. 3;
	return @result;
}

# All that depends on the schema in one place.  Functions and views find the
# tables of the schema that they stand in.
sub setup_sql
{
	my $schema = shift;
	my $sql =
	  "CREATE SCHEMA $schema; SET search_path = $schema; SET client_min_messages = warning;\n";
	$sql .= "SET citus.enable_local_reference_table_foreign_keys = off;\n" if $distributed;
	my $columns = join(', ', map { $_->{name} } view_columns());
	my $returns = join(', ', map { "$_->{name} $_->{type}" } view_columns());

	for my $t (tables())
	{
		my $name = $t->{name};

		my @distribute = $t->{distribute} ? "SELECT $t->{distribute};\n" : ();

		$sql .= "$t->{create}\n";
		if ($schema eq 'c' && $t->{container})
		{
			my $create = "SELECT ttl.create_container($t->{container});\n";

			$sql .= join('', chance(50) ? (@distribute, $create) : ($create, @distribute));
		}
		else
		{
			$sql .= "$t->{otherwise};\n" if $t->{otherwise};
			$sql .= join('', @distribute);
		}
		$sql .= $t->{afterwards} // '';
		$sql .= <<~"END";
			CREATE VIEW seen_$name AS SELECT $columns FROM $name WHERE 100 / x < 60;
			CREATE VIEW barrier_$name WITH (security_barrier, security_invoker) AS SELECT $columns FROM $name WHERE n::int <> 3;
			CREATE FUNCTION procedural_$name(int) RETURNS TABLE ($returns) LANGUAGE plpgsql STABLE ROWS 30
				AS '#variable_conflict use_column
				BEGIN RETURN QUERY SELECT $columns FROM $name WHERE k <= \$1; END';
			CREATE FUNCTION count_$name(int) RETURNS int LANGUAGE sql STABLE
				AS 'SELECT count(*)::int FROM $name WHERE k = \$1';
			END
		# Citus has no functions that read in queries of shards
		next if $distributed;
		$sql .= <<~"END";
			CREATE FUNCTION inlined_$name(int) RETURNS TABLE ($returns) LANGUAGE sql STABLE
				AS 'SELECT $columns FROM $name WHERE id > \$1';
			CREATE FUNCTION atomic_$name(int) RETURNS TABLE ($returns) LANGUAGE sql STABLE
				BEGIN ATOMIC SELECT $columns FROM $name WHERE 100 / x <> \$1; END;
			CREATE FUNCTION whole_$name(int) RETURNS SETOF $name LANGUAGE sql STABLE
				AS 'SELECT * FROM $name WHERE n::int < \$1';
			CREATE FUNCTION stored_$name() RETURNS tid[] LANGUAGE sql STABLE SECURITY DEFINER SET ttl.show_expired = on
				BEGIN ATOMIC SELECT array_agg(ctid) FROM $name; END;
			CREATE FUNCTION least_$name() RETURNS int LANGUAGE sql STABLE
				BEGIN ATOMIC SELECT min(id) FROM $name; END;
			END
	}
	$sql .= <<~"END";
		CREATE VIEW united AS SELECT $columns FROM ordinary UNION ALL SELECT $columns FROM hashed
			UNION ALL SELECT $columns FROM short WHERE 10 / x > 0;
		CREATE VIEW joined AS SELECT a.id, b.k, a.x, b.n, a.s, b.d, coalesce(a.b, b.b) AS b, b.u
			FROM listed a LEFT JOIN timed b ON a.k = b.k AND 10 / b.x < 9;
		END
	# what the extension does without a trigger: an update resets the clock, a
	# referential action doesn't
	if ($schema eq 'p')
	{
		# MERGE takes no other default
		my $present = $distributed ? 'p.present()' : 'clock_timestamp()';
		$sql .= "CREATE FUNCTION present() RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN clock_timestamp(); END';\n"
		  . "SELECT create_distributed_function('present()'); SET citus.enable_unsafe_triggers = on;\n" if $distributed;
		for my $t (tables())
		{
			next if !$t->{container} || has_deadlines($t);
			my $stamp = clock_value($t, 'clock_timestamp()');

			$sql .= "ALTER TABLE $t->{name} ALTER COLUMN $t->{ts} SET DEFAULT " . clock_value($t, $present) . ";\n";
			$sql .= <<~"END" if !is_frozen($t);
				CREATE FUNCTION stamp_$t->{name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.$t->{ts} := $stamp; RETURN NEW; END';
				CREATE TRIGGER stamp BEFORE UPDATE ON $t->{name} FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION p.stamp_$t->{name}();
				END
		}
		$sql .= "RESET citus.enable_unsafe_triggers;\n" if $distributed;
	}
	# what statements' triggers saw
	$sql .= <<~'END';
		CREATE TABLE log (what text, n bigint, ids numeric, xs numeric);
		CREATE FUNCTION log_new() RETURNS trigger LANGUAGE plpgsql AS '
			BEGIN INSERT INTO log SELECT TG_TABLE_NAME || TG_OP, count(*), sum(id), sum(100 / x) FROM new; RETURN NULL; END';
		CREATE FUNCTION log_both() RETURNS trigger LANGUAGE plpgsql AS '
			BEGIN INSERT INTO log SELECT TG_TABLE_NAME || TG_OP, count(*), sum(o.id), sum(100 / n.x) FROM old o FULL JOIN new n USING (id); RETURN NULL; END';
		CREATE FUNCTION change_row() RETURNS trigger LANGUAGE plpgsql AS '
			BEGIN NEW.s := left(NEW.s, 3) || coalesce((SELECT max(n::int) FROM hashed WHERE k = NEW.k), 0); RETURN NEW; END';
		CREATE FUNCTION watch(int, text) RETURNS boolean LANGUAGE plpgsql VOLATILE COST 0.0001 PARALLEL SAFE AS '
			BEGIN
				IF $1 = 0 OR $2 !~ ''^-?[0-9]+$'' OR length($2) > 9 THEN
					RAISE EXCEPTION ''seen: % %'', $1, $2;
				END IF;
				RETURN true;
			END';
		CREATE FUNCTION looped(query text) RETURNS SETOF text LANGUAGE plpgsql AS '
			DECLARE r record; BEGIN FOR r IN EXECUTE query LOOP RETURN NEXT r::text; END LOOP; END';
		CREATE TRIGGER change_row BEFORE INSERT OR UPDATE ON stocked FOR EACH ROW EXECUTE FUNCTION change_row();
		END
	# only those of the coordinator, on Citus
	my ($one, $another) = $distributed ? qw(stocked stocked) : qw(ordinary hashed);
	$sql .= <<~"END";
		CREATE TRIGGER log_insert AFTER INSERT ON $one REFERENCING NEW TABLE AS new FOR EACH STATEMENT EXECUTE FUNCTION log_new();
		CREATE TRIGGER log_update AFTER UPDATE ON $one REFERENCING OLD TABLE AS old NEW TABLE AS new FOR EACH STATEMENT EXECUTE FUNCTION log_both();
		CREATE TRIGGER log_another AFTER INSERT ON $another REFERENCING NEW TABLE AS new FOR EACH STATEMENT EXECUTE FUNCTION log_new();
		END
	# Citus takes no others in UPDATE, and gives no privileges on views by GRANT ON ALL TABLES
	$sql .= "ALTER FUNCTION watch IMMUTABLE;\n" if $distributed;
	$sql .= "SELECT create_distributed_function('$_');\n" for $distributed ? ('watch(int, text)', 'looped(text)') : ();
	$sql .= "SET citus.multi_shard_modify_mode = sequential;\n" if $distributed;
	$sql .= <<~"END";
		GRANT ALL ON SCHEMA $schema TO equivalence_reader;
		GRANT ALL ON ALL TABLES IN SCHEMA $schema TO equivalence_reader;
		GRANT ALL ON united, joined, @{[ join(', ', map { "seen_$_->{name}, barrier_$_->{name}" } tables()) ]} TO equivalence_reader;
		END
	# Citus crashes when it makes a subquery of such a table
	$sql .= <<~"END" unless $distributed;
		ALTER TABLE fixed ENABLE ROW LEVEL SECURITY;
		CREATE POLICY visible ON fixed TO equivalence_reader USING (1000 / x % 7 <> 2) WITH CHECK (true);
		END
	return $sql;
}

#
# Rows
#

my @words = ("'ash'", "'Birch'", "'cedar'", "'date'", "'elm'", "'fir'", "'%'", "''", 'NULL');

sub quoted { return "'$_[0]'"; }

# Do rows have deadlines alone?
sub has_deadlines { return ($_[0]{container} // '') =~ /ts_column => NULL/; }

# Does an update leave the clock alone?
sub is_frozen { return ($_[0]{container} // '') =~ /touch_on_update => false/ || has_deadlines($_[0]); }

# The values of a column that statements don't name: with which rows expire, by which
# they live, and which mean nothing
my %own = (
	documented => {
		dead => [ q('{"ttl": 60}'), q('{"a": 1, "ttl": 1.0}') ],
		live => [ q('{"ttl": -1, "b": [1]}') ],
		none => [ q('{}'), q('{"ttl": "60"}'), q('{"ttl": 20.5}'), q('{"a": {"ttl": -1}}'), q('{"ttl": 1e400}'), q('[{"ttl": -1}]') ]
	},
	deadlined => {
		dead => [ "'2000-01-01'", "'-infinity'", "'2020-01-01 12:00:00.000001'" ],
		live => [ "'2999-01-01'", "'infinity'" ],
		none => []
	});

# An id that a live row had, or an expired one, when the statements began
sub live_id { return any_of($_[0]{live_ids}->@*) // between(1, 120); }
sub dead_id { return any_of($_[0]{dead_ids}->@*) // between(1, 120); }

# Values of a row for every column but the two of the container, as SQL.
# live => 0 makes one that nobody must see.  'place' keeps keys apart.
sub row_values
{
	my ($t, %o) = @_;
	my $live  = $o{live}  // 1;
	my $place = $o{place} // between(0, 120);
	my %row   = (
		id => $o{id} // $place,
		k  => chance(90) ? between(0, 20)           : 'NULL',
		x  => $live      ? any_of(-9 .. -1, 1 .. 9) : 0,
		n  => quoted($live ? between(-9, 30) : any_of('oops', '', '1.5', '99999999999')),
		s  => $live ? any_of(@words) : any_of(@words, "'zzz'", "'AAA'"),
		d  => $live
		? between(-300, 300) . '.' . between(10, 99)
		: any_of(-999999.5, 999999.25, 0, between(0, 20)),
		b => any_of(qw(true false NULL)),
		j => quoted(
			'{"v": "' . ($live ? between(-9, 30) : 'oops') . '", "w": ' . between(0, 20) . '}'),
		a => chance(85)
		? quoted('{' . join(',', map { between(0, 20) } 1 .. between(0, 4)) . '}')
		: 'NULL',
		u    => chance(75) ? $place                           : 'NULL',
		code => chance(75) ? quoted(any_of(qw(a B)) . $place) : 'NULL',
		r    => chance(75)
		? "'[" . ($place * 10) . ',' . ($place * 10 + between(1, $o{loading} ? 10 : 15)) . ")'"
		: 'NULL');

	$row{x} = 'NULL'         if chance(5);
	$row{n} = 'NULL'         if chance(5);
	$row{k} = 2147483647     if !$live            && chance(5);
	$row{k} = between(0, 20) if $row{k} eq 'NULL' && grep { $_ eq 'k' } @{ $t->{hold} };
	$row{u} = $place         if $row{u} eq 'NULL'                && grep { $_ eq 'u' } @{ $t->{hold} };
	# a pair of NULLs is a key, too
	$row{u} = $place if $t->{name} eq 'short' && $row{u} eq 'NULL' && ($o{loading} || chance(70));
	return \%row;
}

# When a row was last modified, and its TTL, so that it lives or is expired
sub expired_ts
{
	my $t    = shift;
	my @dead = ([ "'2000-01-01'", any_of(1, 60, 30000) ], [ "'-infinity'", 1 ]);
	my @none = ('NULL', @{ $t->{odd} });

	return [ any_of("'2000-01-01'", "'-infinity'", "'2020-01-01 12:00'"), 'NULL' ] if has_deadlines($t);
	if ($t->{own})
	{
		@dead = map { [ "'2000-01-01'", $_ ] } @{ $own{ $t->{name} }{dead} };
		push @dead, [ "'2999-01-01'", any_of(map { $_->[1] } @dead) ] if $t->{name} eq 'deadlined';
		push @none, @{ $own{ $t->{name} }{none} };
	}
	push @dead, [ "'2020-01-01 12:00:00+02'", any_of(@none) ], [ "'-infinity'", 'NULL' ],
	  [ "'2001-01-01'", any_of(@none) ]
	  if ($t->{default} // 0) > 0;
	@dead = grep { $_->[1] eq 'NULL' } @dead unless $t->{ttl} || $t->{own};
	return any_of(@dead);
}

sub live_ts
{
	my $t      = shift;
	my @living = (
		[ "'2999-01-01'", 'NULL' ],
		[ "'infinity'",   30000 ],
		[ "'2000-01-01'", -1 ],
		[ 'now()',        30000 ]);

	return [ any_of("'2999-01-01'", "'infinity'", 'NULL'), 'NULL' ] if has_deadlines($t);
	if ($t->{own})
	{
		my $own = $own{ $t->{name} };

		return any_of((map { [ "'2000-01-01'", $_ ] } @{ $own->{live} }),
			[ "'2999-01-01'", any_of('NULL', @{ $own->{none} }) ]);
	}
	push @living, [ "'2999-01-01'", any_of(@{ $t->{odd} }) ] if @{ $t->{odd} };
	# unless an update resets the clock
	push @living, [ "'infinity'",   5 ], [ "'2500-01-01'", 1 ] if is_frozen($t);
	push @living, [ "'1990-01-01'", 2147483647 ] unless $t->{name} =~ /^(short|leaf)$/;
	push @living, [ "'1990-01-01'", 2147483520 ] if $t->{name} eq 'leaf';
	push @living, [ "'2000-01-01'", 'NULL' ]     unless ($t->{default} // 0) > 0;
	# a TTL that, when TTL is turned on after an update, doesn't end on the way
	push @living, [ "'2000-01-01'", 30000 ]      unless defined $t->{default};
	@living = grep { $_->[1] eq 'NULL' } @living unless $t->{ttl};
	return any_of(@living);
}

sub insert_sql
{
	my ($t, @rows) = @_;
	my @names = map { $_->[0] } COLUMNS;

	return '' unless @rows;
	return
		"INSERT INTO $t->{name} ("
	  . join(', ', @names, $t->{ts}, $t->{ttl} // $t->{own} // ())
	  . ") VALUES\n"
	  . join(
		",\n",
		map {
			my ($row, $ts, $ttl) = @$_;
			'(' . join(', ', (map { $row->{$_} } @names), clock_value($t, $ts), $t->{ttl} || $t->{own} ? $ttl : ()) . ')'
		} @rows) . ";\n";
}

# Updates of all rows, expired ones too, that change nothing; those that were first
# are pruned away, so that the root of a chain leads to a later member
sub chains_sql
{
	my $sql = "SET ttl.show_expired = on; SET ttl.touch = off;\n";

	if ($distributed)
	{
		return join('', map {
				"BEGIN;\n"
			  . as_replica("SET LOCAL ttl.show_expired = on;\n", map { "UPDATE $_->{name} SET s = s;\n" } tables())
			  . "COMMIT;\n" . any_of('', "VACUUM;\n")
		} 1 .. 2);
	}
	for my $part ('id % 3 = 0', 'id % 3 < 2', 'id % 7 = 1')
	{
		$sql .= "UPDATE $_->{name} SET s = s WHERE $part;\n" for tables();
		$sql .= any_of('', "VACUUM;\n");
	}
	return $sql . "RESET ttl.show_expired; RESET ttl.touch;\n";
}

# Fresh contents: what the one schema gets, and what the other does
sub load_sql
{
	my %sql = (c => '', p => '');

	# Citus truncates shards by a trigger
	my $truncate = 'TRUNCATE ' . join(', ', 'log', map { $_->{name} } tables()) . ";\n";

	for my $t (tables())
	{
		my @places = shuffled(1 .. 120);
		my @live   = map { [ row_values($t, place => $_, loading => 1), @{ live_ts($t) } ] }
		  splice(@places, 0, between(35, 60));
		my @dead;

		if (defined $t->{default} && !$t->{all_live})
		{
			push @dead,
			  [ row_values($t, live => 0, loading => 1, place => $_), @{ expired_ts($t) } ]
			  for splice(@places, 0, between(20, 45));
			my $place = 200;
			push @dead,
			  [
				row_values($t, live => 0, loading => 1, place => $place++, id => $_),
				@{ expired_ts($t) }
			  ]
			  for -FAR, FAR, 0, (map { 1000 + $_ } some_of(10, 1 .. 120)),
			  (map { -$_ } some_of(10, 1 .. 120));
		}
		$t->{live_ids} = [ map { $_->[0]{id} } @live ];
		$t->{dead_ids} = [ map { $_->[0]{id} } @dead ];
		# a live row references a live one; an expired one any, if that can then go
		if (my $parent = $table{ $t->{parent} // '' })
		{
			my @live_ones = @{ $parent->{live_ids} };
			my @dead_ones = @{ $parent->{dead_ids} };

			my @none      = (grep { $_ eq 'u' } @{ $t->{hold} }) ? () : 'NULL';

			$_->[0]{u} = any_of(@live_ones,                          @none)      for @live;
			$_->[0]{u} = any_of($t->{forbids} ? 'NULL' : @live_ones, @dead_ones) for @dead;
		}
		$t->{k_of} = { map { $_->[0]{id} => $_->[0]{k} } @dead };
		$t->{live_by_k} = {};
		push @{ $t->{live_by_k}{ $_->[0]{k} } }, $_->[0]{id} for @live;

		my @all = shuffled((map { [ 1, $_ ] } @live), (map { [ 0, $_ ] } @dead));

		$sql{p} .= insert_sql($t, map { $_->[1] } grep { $_->[0] } @all);
		$sql{c} .= insert_sql($t, map { $_->[1] } @all);
	}
	# nor are there HOT chains in both, whole and pruned
	my %more = (c => chance(70) ? chains_sql() : '', p => '');
	# neither statistics nor visibility maps have to be alike
	$more{$_} .= any_of('', "ANALYZE;\n", "VACUUM ANALYZE;\n", "VACUUM;\n") for qw(c p);
	# our triggers are not for expired rows
	for (qw(c p))
	{
		$sql{$_} =
		  $distributed ? "${truncate}BEGIN;\n" . as_replica($sql{$_}) . "COMMIT;\n$more{$_}" : as_replica($truncate . $sql{$_} . $more{$_});
	}
	return %sql;
}

# What all tables hold, a line each; of one of them, every row.  It shows whether
# the clock was reset.
sub digest_sql
{
	my $shown = shift;
	my @parts;

	# all of them take Citus long
	my %digested = map { $_->{name} => 1 } grep {
		!$distributed || $_->{name} eq $shown || ($_->{family} && ($table{$shown} // {})->{family})
	} tables();
	for my $t (grep { $digested{ $_->{name} } && (!$_->{local} || !$from_worker) } tables())
	{
		my $ts =
		  "CASE WHEN " . clock_instant($t) . " BETWEEN '2024-01-01' AND '2400-01-01' THEN 'the present' ELSE $t->{ts}::text END";
		my $columns = join(', ', ($distributed ? () : 'tableoid::regclass'), (map { $_->{name} } columns_of($t)), $ts);
		push @parts,
		  "SELECT '$t->{name}', count(*)::text || ' ' || coalesce(md5(string_agg(q::text, ' ' ORDER BY q::text)), '') FROM (SELECT $columns FROM $t->{name}) q";
		push @parts, "SELECT 'row of $t->{name}', q::text FROM (SELECT $columns FROM $t->{name}) q"
		  if $t->{name} eq $shown;
	}
	push @parts, "SELECT 'log', log::text FROM log" unless $from_worker;
	@parts = "SELECT 'nothing', ''" unless @parts;
	return join("\nUNION ALL ", @parts);
}

1;
