# Statements.pm - statements on a container against the same on a plain table, and what planning costs
#
# Both take turns in one session.  A figure is the median of the ratios of the turns.
package bench::Statements;

use strict;
use warnings;

use bench::Measure;

# A query so many times within the server, to be long enough to be measured; i counts.
sub often
{
	my ($n, $query) = @_;
	return "SELECT bench_often($n, \$_\$$query\$_\$)";
}

# The same for planning: what EXPLAIN says that it took, without what it takes to explain
sub planning
{
	my ($n, $query) = @_;
	return "SELECT bench_planning($n, \$_\$$query\$_\$)";
}

sub rolled_back { return "BEGIN; $_[0]; ROLLBACK" }

# What is tried: { T } stands for the table, {plain: ...} is for the plain one alone.  A line of two
# names the container and the section that begins, others are work, goal and statement.
sub statements
{
	my ($rows) = @_;
	my $tenth  = $rows / 10;
	my $scan   = 'SET enable_indexonlyscan = off; SET enable_bitmapscan = off';
	my $five   = '{T} a JOIN {T} b USING (id) JOIN {T} c USING (id) JOIN {T} d USING (id) JOIN {T} e USING (id)';

	return (
		[ container => 'nothing expired' ],
		[ 'count(*)',         1.05, "$scan; SELECT count(*) FROM {T}" ],
		[ 'GROUP BY',         1.05, 'SELECT k, count(*), max(payload) FROM {T} GROUP BY k' ],
		[ 'sort',             1.05, 'SELECT payload FROM {T} ORDER BY payload, id DESC OFFSET 1000000000' ],
		[ 'join of 2 by key', 1.05, 'SELECT count(a.payload) FROM {T} a JOIN {T} b USING (id)' ],
		[ 'join of 5 by key', 1.05, "SELECT count(a.payload) FROM $five WHERE a.id < $rows / 20" ],
		[ 'range by an index, 1 % of the rows', 1.05, 'SELECT max(payload) FROM {T} WHERE k BETWEEN 10 AND 19' ],
		[ 'count(*), index-only',         1.05, 'SELECT count(*) FROM {T}' ],
		[ 'range of 500 rows, index-only', 1.05, often(1000, 'SELECT count(*) FROM {T} WHERE id BETWEEN i * 7 AND i * 7 + 499') ],
		[ 'join of 2 by key, index-only', 1.05, 'SELECT count(*) FROM {T} a JOIN {T} b USING (id)' ],
		[ 'planning a join of 5',         1.05, planning(300, "SELECT 1 FROM $five WHERE a.id = 1") ],
		[ registered => 'registered when it was full' ],
		[ 'count(*)', 1.15, "$scan; SELECT count(*) FROM {T}" ],
		[ clustered => '1 % expired, stored together' ],
		[ 'count(*)',             1.15, "$scan; SELECT count(*) FROM {T}" ],
		[ 'count(*), index-only', 1.15, 'SELECT count(*) FROM {T}' ],
		[ 'range of 100,000 rows, index-only', 1.15, often(10, 'SELECT count(*) FROM {T} WHERE id BETWEEN 1 AND 100000') ],
		[ scattered => '1 % expired, on all pages' ],
		[ 'count(*)',             1.20, "$scan; SELECT count(*) FROM {T}" ],
		[ 'count(*), index-only', 1.20, 'SELECT count(*) FROM {T}' ],
		[ third => '30 % expired, the plain table filters by hand' ],
		[ 'count(*), best filter',  0.80, "$scan; SELECT count(*) FROM {T}{plain: WHERE _ts > (SELECT now() - interval '1 day')}" ],
		[ 'count(*), usual filter', 0.80, "$scan; SELECT count(*) FROM {T}{plain: WHERE _ts > now() - interval '1 day'}" ],
		[ 'count(*), filter that knows item TTLs', 0.80,
			"$scan; SELECT count(*) FROM {T}{plain: WHERE CASE WHEN ttl IS NULL THEN _ts > now() - interval '1 day' ELSE ttl = -1 OR _ts + ttl * interval '1 s' > now() END}" ],
		[ small => 'bulk writes' ],
		[ 'UPDATE', 1.05, rolled_back('UPDATE {T} SET payload = payload{plain:, _ts = clock_timestamp()} WHERE k < 500') ],
		[ 'INSERT ... SELECT', 1.05, rolled_back("INSERT INTO {T} (k, payload) SELECT g, repeat('y', 60) FROM generate_series(1, $tenth) g") ],
		[ 'COPY FROM', 1.05, rolled_back(q{COPY {T} (id, k, payload) FROM '{DIR}/copy'}) ],
		[ 'ON CONFLICT DO UPDATE of live rows', 1.05,
			rolled_back("INSERT INTO {T} (id, k, payload) SELECT g, g, 'y' FROM generate_series(1, $tenth / 2) g ON CONFLICT (id) DO UPDATE SET k = 1{plain:, _ts = clock_timestamp()}") ]);
}

# Processor time and elapsed time; of planning the latter alone
sub took
{
	my ($server, $statement) = @_;
	return $statement =~ /bench_planning/ ? (scalar $server->sql($statement)) x 2 : $server->timed($statement);
}

# What often() and planning() call
sub functions
{
	my ($server) = @_;

	$server->sql(<<'END');
CREATE FUNCTION bench_often(n int, query text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE OR REPLACE FUNCTION pg_temp.often() RETURNS void LANGUAGE plpgsql AS %L',
		format('DECLARE x text; BEGIN FOR i IN 1..%s LOOP %s; END LOOP; END', n, regexp_replace(query, '^SELECT (.*?) FROM', 'SELECT \1 INTO x FROM')));
	PERFORM pg_temp.often();
END $$;
CREATE FUNCTION bench_planning(n int, query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	answer json;
	times float8[];
BEGIN
	FOR i IN 1..n LOOP
		EXECUTE 'EXPLAIN (SUMMARY, FORMAT JSON) ' || query INTO answer;
		times[i] := answer -> 0 ->> 'Planning Time';
	END LOOP;
	RETURN (SELECT avg(t) FROM (SELECT t FROM unnest(times) t ORDER BY t LIMIT n / 2) faster);
END $$
END
	return;
}

# A container of so many rows, of which some expired two days ago, and its plain twin
sub prepare
{
	my ($server, $rows) = @_;
	my %expired = (container => 'false', clustered => "g <= $rows / 100", scattered => 'g % 100 = 0', third => 'g % 10 < 3', small => 'false');

	functions($server);
	for my $table (sort keys %expired, 'registered')
	{
		my $n    = $table eq 'small' ? $rows / 10 : $rows;
		my $twin = $table eq 'container' || $table eq 'small' || $table eq 'third';

		$server->sql("CREATE TABLE $table (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, k int, payload text); CREATE INDEX ON $table (k)");
		$server->sql("INSERT INTO $table SELECT g, g % 1000, repeat('x', 60) FROM generate_series(1, $rows) g") if !$expired{$table};
		$server->sql("SELECT ttl.create_container('$table', 86400)");
		next if !$expired{$table};
		$server->sql("CREATE TABLE ${table}_plain (LIKE $table INCLUDING ALL)") if $twin;
		for my $t ($table, $twin ? "${table}_plain" : ())
		{
			$server->sql("INSERT INTO $t SELECT g, g % 1000, repeat('x', 60), CASE WHEN $expired{$table} THEN now() - interval '2 days' ELSE now() END FROM generate_series(1, $n) g");
			$server->sql("ALTER TABLE $t ALTER COLUMN id RESTART WITH @{[ $n + 1 ]}");
		}
	}
	$server->sql("COPY (SELECT g, g % 1000, repeat('z', 60) FROM generate_series($rows + 1, $rows + $rows / 10) g) TO '$server->{dir}/copy'");
	$server->sql('VACUUM (FREEZE, ANALYZE)');
	$server->sql('CHECKPOINT');
	return;
}

sub measure
{
	my ($results, $server, %o) = @_;
	my ($container, $plain, $section);

	prepare($server, $o{rows});
	for (statements($o{rows}))
	{
		if (@$_ == 2)
		{
			($container, $section) = @$_;
			$plain = $container =~ /^(small|third)/ ? "${container}_plain" : 'container_plain';
			next;
		}
		my ($work, $goal, $statement) = @$_;
		my $c = $statement =~ s/\{T\}/$container/gr =~ s/\{plain:.*?\}//r =~ s/\{DIR\}/$server->{dir}/r;
		my $p = $statement =~ s/\{T\}/$plain/gr =~ s/\{plain:(.*?)\}/$1/r =~ s/\{DIR\}/$server->{dir}/r;
		my @ratios = in_turn($o{rounds}, sub { took($server, $c) }, sub { took($server, $p) },
			before => sub { $server->sql("VACUUM $container; VACUUM $plain") if $container eq 'small' });

		$server->sql('RESET enable_indexonlyscan; RESET enable_bitmapscan');
		$results->ratio($section, $work, $goal, @ratios);
	}
	measure_partitions($results, $server, %o);
	return;
}

#
# Partitions
#

# A table of so many partitions by range, with statement of_NAME whose generic plan reads one of them
sub partitioned
{
	my ($server, $name, $n) = @_;
	my $columns = '_ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int CHECK (ttl = -1 OR ttl > 0)';

	$server->sql("CREATE TABLE $name (id int PRIMARY KEY, k int, payload text, $columns) PARTITION BY RANGE (id)");
	$server->sql(
		$name =~ /plain/
		? "CREATE INDEX ON $name (_ts) WHERE ttl IS NULL; CREATE INDEX ON $name (ttl.item_expiry(_ts, ttl)) WHERE ttl > 0"
		: "SELECT ttl.create_container('$name', 86400)");
	$server->sql(<<"END");
DO \$\$ BEGIN
	FOR i IN 0..$n - 1 LOOP
		EXECUTE format('CREATE TABLE ${name}_%s PARTITION OF $name FOR VALUES FROM (%s) TO (%s)', i, i * 100, i * 100 + 100);
		IF i % 50 = 49 THEN COMMIT; END IF;
	END LOOP;
END \$\$
END
	$server->sql("INSERT INTO $name (id, k, payload) SELECT g, g, 'x' FROM generate_series(0, $n * 100 - 1, 10) g; ANALYZE $name");
	$server->sql("SET plan_cache_mode = force_generic_plan; PREPARE of_$name(int) AS SELECT payload FROM $name WHERE id = \$1");
	return;
}

# Planning and executing with that many partitions, each of the container beside the plain table
sub partition_ratios
{
	my ($server, $n, $rounds) = @_;
	my $times = 1 + int(20000 / ($n + 10));
	my %ratios;

	for (
		[ planning  => planning($times, 'SELECT count(payload) FROM {T}') ],
		[ executing => 'EXECUTE of_{T}(1);' x $times ])
	{
		my ($what, $statement) = @$_;
		$ratios{$what} = [ in_turn($rounds, map { my $s = $statement =~ s/\{T\}/$_/gr; sub { took($server, $s) } } "parts$n", "parts_plain$n") ];
	}
	return %ratios;
}

sub measure_partitions
{
	my ($results, $server, %o) = @_;

	partitioned($server, $_, $o{partitions}) for "parts$o{partitions}", "parts_plain$o{partitions}";
	my %ratios = partition_ratios($server, $o{partitions}, $o{rounds});
	$results->ratio("$o{partitions} partitions", 'planning count()', 1.05, @{ $ratios{planning} });
	$results->ratio("$o{partitions} partitions", 'executing a generic plan', 1.05, @{ $ratios{executing} });
	return;
}

1;
