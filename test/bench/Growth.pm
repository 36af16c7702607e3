# Growth.pm - how costs grow: with rows, containers, partitions, and the share that has expired
#
# Each plot has a curve for each thing that might grow, and is flat or straight where it should be.  What
# rows cost is timed as far as a pair of tables fits into memory, and goes on in pages, which can be
# counted on a table of any size.
package bench::Growth;

use strict;
use warnings;

use POSIX ();

use bench::Measure;
use bench::Points;
use bench::Server;
use bench::Statements;

sub start
{
	my (@settings) = @_;
	my $server = bench::Server->start(settings => [ 'fsync = off', 'ttl.reaper = off', @settings ]);

	bench::Statements::functions($server);
	return $server;
}

# A container of so many rows, and its plain twin; a share of them expired two days ago, on all pages
sub pair
{
	my ($server, $name, $rows, $share) = @_;

	$server->sql("CREATE TABLE $name (id int PRIMARY KEY, payload text)");
	$server->sql("SELECT ttl.create_container('$name', 86400)");
	$server->sql("CREATE TABLE ${name}_plain (LIKE $name INCLUDING ALL)");
	$server->sql("INSERT INTO $_ SELECT g, repeat('x', 60), now() - CASE WHEN g % 100 < $share THEN interval '2 days' ELSE '0' END FROM generate_series(1, $rows) g")
	  for $name, "${name}_plain";
	$server->sql("VACUUM (FREEZE, ANALYZE) $name; VACUUM (FREEZE, ANALYZE) ${name}_plain");
	return;
}

sub drop_pair
{
	my ($server, $name) = @_;
	$server->sql("DROP TABLE $name, ${name}_plain");
	return;
}

# The ratio of processor times of a statement with {T} for the table
sub ratio
{
	my ($server, $name, $rounds, $statement, $by_hand) = @_;
	my $plain = ($by_hand // $statement) =~ s/\{T\}/${name}_plain/gr;
	my $own   = $statement =~ s/\{T\}/$name/gr;
	my ($ratio) = in_turn($rounds, sub { $server->timed($own) }, sub { $server->timed($plain) });

	return $ratio;
}

# All tables fit into shared buffers: else the one of them that is there is the faster one.
sub rows
{
	my ($results, %o) = @_;
	my $server = start('shared_buffers = 6GB');

	for (my $rows = 10_000; $rows <= $o{largest}; $rows *= 10)
	{
		my $rounds = $rows > 1_000_000 ? POSIX::ceil($o{rounds} / 3) : $o{rounds};
		my $often  = POSIX::ceil(1_000_000 / $rows);

		pair($server, 'grown', $rows, 0);
		$results->point('rows', 'count(*)', $rows,
			ratio($server, 'grown', $rounds, bench::Statements::often($often, 'SELECT count(payload) FROM {T}')));
		$results->point('rows', 'read by key, in a loop within the server', $rows,
			ratio($server, 'grown', $o{rounds}, bench::Statements::often(20_000, "SELECT payload FROM {T} WHERE id = i * 7919 % $rows")));
		drop_pair($server, 'grown');
	}
	$server->stop;
	return;
}

# Pages that are looked at, of one table before and after it is registered; x grows to ten times the rows
# that are timed.
sub count_pages
{
	my ($results, %o) = @_;
	my $server = start('ttl.grace = 0', 'maintenance_work_mem = 1GB');
	my $expired = 1000;

	for (my $rows = 10_000; $rows <= 10 * $o{largest}; $rows *= 10)
	{
		my %query = (
			'read by key'             => "SELECT ttl FROM counted WHERE id = $rows / 3",
			'index-only range of 500' => "SELECT count(*) FROM counted WHERE id BETWEEN $rows / 3 AND $rows / 3 + 499");

		$server->sql('CREATE UNLOGGED TABLE counted (id int, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int CHECK (ttl = -1 OR ttl > 0))');
		$server->sql("INSERT INTO counted SELECT g, now() + g * interval '1 us' FROM generate_series(1, $rows) g");
		$server->sql('ALTER TABLE counted ADD PRIMARY KEY (id)');
		$server->sql('VACUUM (FREEZE, ANALYZE) counted');
		$results->point('pages', "$_: plain table", $rows, $server->pages($query{$_})) for sort keys %query;

		$server->sql("SELECT ttl.create_container('counted', 86400, ts_column => '_ts', ttl_column => 'ttl')");
		$server->sql('VACUUM (FREEZE, ANALYZE) counted');
		$results->point('pages', "$_: container", $rows, $server->pages($query{$_})) for sort keys %query;
		$results->point('pages', 'what has expired? (nothing)', $rows, $server->pages("SELECT ttl.expired_count('counted')"));

		$server->sql("INSERT INTO counted SELECT $rows + g, now() - interval '2 days' FROM generate_series(1, $expired) g");
		$results->point('pages', "a row deleted by ttl.reap(), of $expired", $rows, accesses($server, "CALL ttl.reap('counted')") / $expired);
		$server->sql('DROP TABLE counted');
	}
	$server->stop;
	return;
}

# Pages of anything that the session's statement looks at
sub accesses
{
	my ($server, $statement) = @_;
	my $so_far = sub { $server->sql('SELECT pg_stat_force_next_flush()'); $server->sql('SELECT pg_stat_clear_snapshot()'); return $server->sql('SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = current_database()') };
	my $before = $so_far->();

	$server->sql($statement);
	return $so_far->() - $before;
}

sub share
{
	my ($results, %o) = @_;
	my $server = start();
	my $scan = 'SET enable_indexonlyscan = off; SET enable_bitmapscan = off';

	for my $share (0, 1, 10, 30, 50, 70, 90)
	{
		pair($server, 'aged', $o{rows}, $share);
		$results->point('share', 'count(*) / the same without a filter', $share,
			ratio($server, 'aged', $o{rounds}, "$scan; SELECT count(*) FROM {T}"));
		$results->point('share', 'count(*) / the same with a filter by hand', $share,
			ratio($server, 'aged', $o{rounds}, "$scan; SELECT count(*) FROM {T}", "$scan; SELECT count(*) FROM {T} WHERE _ts > (SELECT now() - interval '1 day')"));
		$server->sql('RESET enable_indexonlyscan; RESET enable_bitmapscan');
		drop_pair($server, 'aged');
	}
	$server->stop;
	return;
}

sub partitions
{
	my ($results, %o) = @_;
	my $server = start();

	for (my $n = 1; $n <= $o{partitions}; $n *= 10)
	{
		bench::Statements::partitioned($server, $_, $n) for "parts$n", "parts_plain$n";
		my %ratios = bench::Statements::partition_ratios($server, $n, $o{rounds});
		$results->point('partitions', "$_ ", $n, $ratios{$_}[0]) for qw(planning executing);
	}
	$server->stop;
	return;
}

# Processor time of the worker in a second in which no container has anything to delete
sub idle
{
	my ($server, $seconds) = @_;
	my ($worker) = $server->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl reaper'");
	my $before = bench::Server::process_time($worker);

	Time::HiRes::sleep($seconds);
	return (bench::Server::process_time($worker) - $before) / $seconds;
}

sub containers
{
	my ($results, %o) = @_;
	my $server = bench::Server->start(settings => [ 'fsync = off', 'max_locks_per_transaction = 2000' ]);
	my $made   = 0;

	for (my $n = 1; $n <= $o{containers}; $n *= 10)
	{
		make_containers($server, $made + 1, $n);
		$made = $n;
		# the first look at a container reads the catalog, and so does the first after VACUUM
		Time::HiRes::sleep(3);
		$server->wait_for(q{SELECT state = 'idle' FROM ttl.stat_reaper});
		$results->point('containers', 'processor time of the worker, ms in a second', $n, idle($server, $o{quick} ? 3 : 20));
	}
	$server->stop;
	return;
}

# Containers without a row
sub make_containers
{
	my ($server, $from, $to) = @_;

	$server->sql(<<"END");
DO \$\$ BEGIN
	FOR i IN $from..$to LOOP
		EXECUTE format('CREATE TABLE c%s (id int, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int, CHECK (ttl = -1 OR ttl > 0))', i);
		PERFORM ttl.create_container(format('c%s', i)::regclass, 86400);
		IF i % 100 = 0 THEN COMMIT; END IF;
	END LOOP;
END \$\$
END
	$server->sql('VACUUM ANALYZE');
	return;
}

# Tables that are no containers, where there are none and where there are many
sub bystanders
{
	my ($results, %o) = @_;
	my $with    = bench::Server->start(settings => [ 'fsync = off', 'max_locks_per_transaction = 2000' ]);
	my $without = bench::Server->start(settings => ['fsync = off'], preload => '');

	bench::Points::make_bystander($_) for $with, $without;
	bench::Points::measure_bystanders($results, $with, $without, 0, %o);
	make_containers($with, 1, $o{containers});
	bench::Points::measure_bystanders($results, $with, $without, $o{containers}, %o);
	$_->stop for $with, $without;
	return;
}

1;
