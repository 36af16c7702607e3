# Statistics begin anew with the server, and after a crash, and say since when.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
restart_after_crash = on
END

$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE archive (id int);
CREATE TABLE item (id int PRIMARY KEY);
CREATE TABLE blocked (id int);
CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not this one: %', old.id; END$$;
CREATE TRIGGER forbid BEFORE DELETE ON blocked FOR EACH ROW EXECUTE FUNCTION forbid();
SELECT ttl.create_container(t, 3600) FROM unnest('{item, blocked}'::regclass[]) t;
SELECT ttl.alter_container('item', archive_to => 'archive', reaping => false);
INSERT INTO item (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 100) g;
INSERT INTO item (id) VALUES (1);
CALL ttl.reap('item');
INSERT INTO blocked (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.set_default_ttl('blocked', 3600);
});

my $counters = 'SELECT rows_deleted, rows_evicted FROM ttl.stat_containers ORDER BY container::text';
ok($node->poll_query_until('postgres', 'SELECT blocked_rows = 1 FROM ttl.stat_containers WHERE container = \'blocked\'::regclass'),
	'the worker has met a row that cannot go');
is($node->safe_psql('postgres', $counters), "0|0\n99|1", 'statistics');

# A transaction that goes on doesn't hide what its queries have used, of temporary tables either.
for my $kind ('', 'TEMP')
{
	is($node->safe_psql('postgres', qq{
CREATE $kind TABLE large AS SELECT g, repeat('x', 500) FROM generate_series(1, 10000) g;
BEGIN;
SELECT foreground_cost AS before FROM ttl.stat_reaper WHERE database = 'postgres' \\gset
SELECT count(*) FROM large \\g /dev/null
SELECT foreground_cost - :before >= 500 FROM ttl.stat_reaper WHERE database = 'postgres';
COMMIT;
DROP TABLE large;
}), 't', "cost of an open transaction $kind");
}


my $since = $node->safe_psql('postgres', 'SELECT DISTINCT stats_since FROM ttl.stat_containers');
is($node->safe_psql('postgres', "SELECT '$since' - pg_postmaster_start_time() BETWEEN '-1min' AND '0'"), 't', 'counted since the server has started');

# A launcher that ends alone takes nothing with it.
my $pid = $node->pid_of('ttl launcher');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
ok( $node->poll_query_until(
		'postgres',
		"SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type IN ('ttl launcher', 'ttl reaper') AND pid <> $pid"),
	'another launcher');
is($node->safe_psql('postgres', $counters), "0|0\n99|1", '... changes nothing');
is($node->safe_psql('postgres', 'SELECT DISTINCT stats_since FROM ttl.stat_containers'), $since, '... nor since when');

# Otherwise statistics begin anew, and are true from the first pass on.
my $cycles = $node->safe_psql('postgres', 'SELECT cycles FROM ttl.stat_reaper');
for my $how ('fast', 'smart', 'immediate', 'a crash')
{
	if ($how eq 'a crash')
	{
		my $log = -s $node->logfile;
		kill 'KILL', $node->pid_of('ttl launcher');
		ok($node->wait_for_log(qr/all server processes terminated; reinitializing.*ready to accept connections/s, $log), 'a crash');
	}
	else
	{
		$node->stop($how);
		is_deeply([ glob($node->data_dir . '/pg_stat/*ttl*') ], [], "$how: nothing is kept in a file");
		$node->start;
	}
	$node->processes_are('ttl reaper', 1, "$how: reaper is back");
	is($node->safe_psql('postgres', $counters), "0|0\n0|0", "$how: statistics have begun anew");
	ok($node->poll_query_until('postgres', "SELECT (blocked_rows, last_error) = (1, 'not this one: 1') FROM ttl.stat_containers WHERE container = 'blocked'::regclass"),
		"$how: ... and know the blocked row again");
	ok($node->safe_psql('postgres', "SELECT min(stats_since) > '$since' AND (SELECT cycles <= $cycles FROM ttl.stat_reaper) FROM ttl.stat_containers") eq 't',
		"$how: ... and since when");
	$since = $node->safe_psql('postgres', 'SELECT DISTINCT stats_since FROM ttl.stat_containers');
}

$node->stop;
done_testing();
