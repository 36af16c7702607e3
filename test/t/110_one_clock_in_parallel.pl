# Parallel workers judge by their leader's clock: a parallel query sees one
# instant, the same as a serial one, however long it takes.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('parallel', <<'END');
ttl.reaper = off
max_worker_processes = 16
max_parallel_workers = 8
timezone = 'UTC'
END
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int, filler text);
SELECT ttl.create_container('item', 1000);
-- one row expires each second
INSERT INTO item (id, filler, _ts, ttl)
SELECT g, repeat('x', 100), timestamptz '2990-01-01' + CASE g % 2 WHEN 0 THEN g * interval '1 s' ELSE '0' END, CASE g % 2 WHEN 0 THEN NULL ELSE 1000 + g END
  FROM generate_series(1, 20000) g;
-- slow enough to have all workers take part, and time pass
CREATE FUNCTION slow(int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE COST 10000
AS $$BEGIN PERFORM pg_sleep(0.002); RETURN true; END$$;
ANALYZE item;
END

my $parallel = <<'END';
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET max_parallel_workers_per_gather = 4;
END
my $serial = 'SET max_parallel_workers_per_gather = 0;';

# Is it parallel indeed?
sub launched
{
	my ($sql, $setting) = @_;
	my $plan = $node->safe_psql('postgres', "$parallel $setting EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $sql");
	return $plan =~ /Workers Launched: [1-9]/;
}
ok(launched('SELECT count(*) FROM item', ''), 'the query is run by workers');
ok(launched('SELECT count(*) FROM item', 'SET parallel_leader_participation = off;'), 'also by workers alone');

# A given instant
for my $now ('2990-01-01', '2990-01-01 00:16:41', '2990-01-01 01:00', '2990-01-01 03:00:00.5', '2990-01-02', 'infinity')
{
	for my $query (
		'SELECT count(*), min(id), max(id) FROM item',
		'SELECT count(*) FROM item a JOIN item b USING (id)',
		'SELECT id % 10, count(*) FROM item GROUP BY 1 ORDER BY 1',
		'SELECT count(*) FILTER (WHERE id > 5000) FROM item WHERE id IN (SELECT id FROM item WHERE id % 3 = 0)')
	{
		my $expected = $node->safe_psql('postgres', "SET ttl.now = '$now'; $serial $query");
		is($node->safe_psql('postgres', "SET ttl.now = '$now'; $parallel $query"), $expected, "at $now: $query");
		is($node->safe_psql('postgres', "SET ttl.now = '$now'; $parallel SET parallel_leader_participation = off; $query"), $expected, '... by workers alone');
	}
}

# A word is settled when it is set
is($node->safe_psql('postgres', "SET ttl.now = 'now'; $parallel SET parallel_leader_participation = off; SELECT count(*) FROM item WHERE current_setting('ttl.now')::timestamptz < now()"),
	$node->safe_psql('postgres', 'SELECT count(*) FROM item'), 'workers have the time when the session has set it');

# ... and when a session starts, by the settings of roles and databases, that of all roles among them
for my $whose ('ROLE ALL', 'ROLE CURRENT_USER', 'DATABASE postgres')
{
	$node->safe_psql('postgres', "ALTER $whose SET ttl.now = 'tomorrow'");
	is($node->safe_psql('postgres', "SELECT current_setting('ttl.now') <> ''"), 't', "the setting of $whose has a word");
	$node->safe_psql('postgres', "ALTER $whose RESET ttl.now");
}

# Time passes while the query runs: a row expires each millisecond, and the
# rows seen are still those of one instant: all after a certain one.
$node->safe_psql('postgres', <<'END');
CREATE TABLE brief (id int, note text);
SELECT ttl.create_container('brief', 1);
END

sub one_instant
{
	my ($setting, $query, $name) = @_;
	# in blocks in random order, so that the order of scan isn't that of expiry
	$node->safe_psql('postgres', <<'END');
TRUNCATE brief;
INSERT INTO brief (id, note, _ts)
SELECT g, repeat('x', 50), now() - interval '1 s' + g * interval '1 ms' FROM (SELECT generate_series(1, 1500) g ORDER BY random()) rows;
ANALYZE brief;
END
	my $result = $node->safe_psql('postgres', "$setting $query");
	my ($count, $min, $max, $seconds) = split /\|/, $result;
	note("$name: $count rows, $min to $max, $seconds s");
	is($max, 1500, "$name: the youngest row is there");
	is($count, $max - $min + 1, "$name: the rows are those of one instant");
	cmp_ok($seconds, '>', 0.1, "$name: time has passed");
}

my $query = 'SELECT count(*), min(id), max(id), extract(epoch FROM clock_timestamp() - statement_timestamp()) FROM brief WHERE slow(id)';
ok(launched($query, ''), 'the slow query is run by workers');
one_instant($serial, $query, 'serial');
one_instant($parallel, $query, 'parallel');
one_instant("$parallel SET parallel_leader_participation = off;", $query, 'by workers alone');
one_instant("$parallel BEGIN;", $query, 'in a transaction');

# In one snapshot, serial and parallel statements see the same instant.
$node->safe_psql('postgres', 'TRUNCATE brief');
my ($first, $second, $third) = split /\n/, $node->safe_psql('postgres', <<"END");
INSERT INTO brief (id, note, _ts) SELECT g, repeat('x', 50), clock_timestamp() - interval '1 s' + g * interval '1 ms' FROM generate_series(1, 1000) g;
ANALYZE brief;
BEGIN ISOLATION LEVEL REPEATABLE READ;
$serial
SELECT count(*), min(id) FROM brief WHERE slow(id);
$parallel
SELECT count(*), min(id) FROM brief WHERE slow(id);
SET LOCAL parallel_leader_participation = off;
SELECT count(*), min(id) FROM brief;
COMMIT;
END
is($second, $first, 'REPEATABLE READ: a parallel query sees what a serial one has seen');
is($third, $first, '... by workers alone, too');

# In READ COMMITTED each statement has its own.
my ($before, $after) = split /\n/, $node->safe_psql('postgres', <<"END");
TRUNCATE brief;
INSERT INTO brief (id, note, _ts) SELECT g, repeat('x', 50), clock_timestamp() - interval '1 s' + g * interval '1 ms' FROM generate_series(1, 1000) g;
ANALYZE brief;
$parallel
BEGIN;
SELECT count(*) FROM brief WHERE slow(id);
SELECT count(*) FROM brief;
COMMIT;
END
cmp_ok($after, '<', $before, 'READ COMMITTED: the next statement sees fewer rows');

# The clock of one query is not left over for the next, of whatever kind.
is($node->safe_psql('postgres', <<"END"), "0\n1\n1", 'a row that is inserted after a parallel query');
$parallel
TRUNCATE brief;
INSERT INTO brief (id, _ts) SELECT 1, '2020-01-01' FROM generate_series(1, 1000);
SELECT count(*) FROM brief;
INSERT INTO brief (id) VALUES (2);
SELECT count(*) FROM brief;
SELECT count(*) FROM brief WHERE slow(id);
END

$node->stop;
done_testing();
