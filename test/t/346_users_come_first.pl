# With ttl.throughput deletion gets what users leave: their cost is counted while their statements run,
# once, and by the server's weights.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
ttl.throughput = 20000
ttl.cycle_cost_floor = 0
autovacuum = off
# as many pages whatever shared_buffers is
vacuum_cost_page_miss = 1
synchronize_seqscans = off
END
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE c (id int);
SELECT ttl.create_container('c', 3600);
CREATE TABLE large AS SELECT g AS id, repeat('x', 500) AS filler FROM generate_series(1, 50000) g;
VACUUM ANALYZE large;
CREATE TABLE copied (id int, filler text);
CREATE FUNCTION last_row_waits(id int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 0.001 AS $$
BEGIN
	IF id = 50000 THEN PERFORM pg_sleep(current_setting('test.wait')::float); END IF;
	RETURN id;
END $$;
CREATE FUNCTION wait_at_last() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM last_row_waits(NEW.id); RETURN NEW; END';
CREATE TRIGGER wait_at_last BEFORE INSERT ON copied FOR EACH ROW EXECUTE FUNCTION wait_at_last();
ALTER DATABASE postgres SET test.wait = 1000;
});
my $file = $node->basedir . '/rows';
$node->safe_psql('postgres', "COPY large TO '$file'");
# those up to the last row; 16 and later extend a table by more
my $pages = $node->safe_psql('postgres', 'SELECT (max(ctid)::text::point)[0]::int + 1 FROM large');
my $report = 'SELECT count(*) FROM large WHERE last_row_waits(id) > 0';
my $parallel = 'SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET parallel_leader_participation = off;';
# the first worker opens the statistics
$node->wait_until('SELECT count(*) = 1 FROM ttl.stat_reaper');

# One session for all looks, for each connection costs more than it looks at
my $watcher = $node->background_psql('postgres');

sub foreground
{
	return $watcher->query_safe("SELECT foreground_cost FROM ttl.stat_reaper WHERE database = 'postgres'");
}

# Waits until so much has been used since.
sub rises
{
	my ($before, $cost, $what) = @_;
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;

	usleep(20_000) while foreground() < $before + $cost && time < $until;
	cmp_ok(foreground() - $before, '>=', $cost, $what);
	return;
}

# While a statement runs
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $waiting = q{FROM pg_stat_activity WHERE wait_event = 'PgSleep'};
for (
	[ 'a report', $report ],
	[ 'a prepared one', "PREPARE r AS $report", 'EXECUTE r' ],
	[ 'a cursor', "BEGIN; DECLARE r CURSOR FOR $report", 'FETCH r' ],
	[ 'a function', "DO 'BEGIN PERFORM count(*) FROM large; PERFORM pg_sleep(1000); END'" ],
	[ 'COPY FROM', "COPY copied FROM '$file'" ],
	[ 'CREATE INDEX', 'CREATE INDEX ON large (last_row_waits(id))' ],
	[ 'a report by parallel workers', $parallel, $report ])
{
	my ($what, @statements) = @$_;
	my $statement = pop @statements;

	$session->query($_) for @statements;
	my $before = foreground();
	$session->query_until(qr/begins/, "\\echo begins\n$statement;\n");
	# workers that have ended may have been counted for the leader, but not more than it has read itself
	rises($before, $what =~ /INDEX|parallel/ ? $pages / 2 : $pages, "$what: counted while it runs");
	$node->wait_until("SELECT count(*) = 1 $waiting");
	is($watcher->query_safe("SELECT count(*) $waiting"), '1', '... before it has ended');
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid()");
	$node->wait_until("SELECT count(*) = 0 $waiting");
	$session->query('ROLLBACK');
}

# Counted once, be it by parallel workers, and if their leader goes on when they have finished
my $long_report = $report =~ s/count\(\*\)/count(*), pg_sleep(1)/r;
for my $settings ('', $parallel)
{
	my $before = foreground();
	$node->safe_psql('postgres', "$settings SET test.wait = 1; $long_report");
	my $cost = foreground() - $before;
	cmp_ok($cost, '>=', $pages, 'a report that has ended');
	cmp_ok($cost, '<', 1.7 * $pages, '... is counted once' . ($settings && ', not by workers and leader'));
}

# ... nor again with each later statement of its session, what it has written to temporary tables included
$session->query(q{SET temp_buffers = 100});
for my $kind ('', 'TEMPORARY')
{
	my $before = foreground();
	$session->query("CREATE $kind TABLE written AS SELECT id FROM large; SELECT count(*) FROM written; DROP TABLE written");
	my $cost = foreground() - $before;
	cmp_ok($cost, '>=', 20 * 100, "a session has written a table $kind");
	$before = foreground();
	$session->query('SELECT 1') for 1 .. 5;
	cmp_ok(foreground() - $before, '<', $cost / 2, '... which is counted once');
}

# Deletion waits for a statement that goes on and on, and uses this much however little of the machine it gets.
$node->configure('ttl.throughput = 2000');
$node->wait_until('SHOW ttl.throughput', '2000');
$session->query_until(qr/begins/, "\\echo begins\nSELECT sum(n) FROM generate_series(1, 1000000) g, LATERAL (SELECT count(*) AS n FROM large WHERE id <> g) l;\n");
rises(foreground(), 10 * $pages, 'a statement reads the same again and again');
$node->add_expired('c', 20000);
my $cycles = $node->safe_psql('postgres', 'SELECT cycles FROM ttl.stat_reaper');
$node->wait_until("SELECT cycles >= $cycles + 15 FROM ttl.stat_reaper");
cmp_ok($node->stored('c'), '>=', 19000, 'nearly nothing is deleted beside it');
is($node->safe_psql('postgres', 'SELECT stopped_by FROM ttl.stat_reaper'), 'throughput', '... for this reason');
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND query ~ 'LATERAL' AND pid <> pg_backend_pid()");
$node->configure('ttl.throughput = 20000');
$node->is_emptied('c', '... and all when it has ended');

# A session that has been idle all the time follows the setting.
$node->configure('ttl.throughput = 0');
$session->query('SELECT 1');
$node->configure('ttl.throughput = 20000');
$node->wait_until('SHOW ttl.throughput', '20000');
my $before = foreground();
$session->query_until(qr/begins/, "\\echo begins\n$report;\n");
rises($before, $pages, 'set again: counted by a session that is older');
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) $waiting");

# Neither a worker nor autovacuum is a user.
sub comes_true
{
	my ($query) = @_;
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;

	usleep(50_000) while $watcher->query_safe($query) ne 't' && time < $until;
	return;
}
$node->turn_reaper('off');
$node->add_expired('c', 5000);
my ($cost, $deleted) = split /\|/, $node->statistics('cost, rows_deleted', 'c');
$before = foreground();
$node->turn_reaper('on');
comes_true("SELECT rows_deleted = $deleted + 5000 FROM ttl.stat_containers WHERE container = 'c'::regclass");
cmp_ok($node->statistics('cost', 'c') - $cost, '>=', 5000, 'what a worker deletes is its own cost ...');
cmp_ok(foreground() - $before, '<', 2500, '... and none of the users');
$node->safe_psql('postgres', 'ALTER TABLE large SET (autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0); DELETE FROM large WHERE id % 10 = 0');
$before = foreground();
$node->configure("autovacuum = on\nautovacuum_naptime = 1s");
comes_true(q{SELECT autovacuum_count > 0 FROM pg_stat_user_tables WHERE relname = 'large'});
cmp_ok(foreground() - $before, '<', $pages / 2, '... nor is what autovacuum reads');
$node->configure('autovacuum = off');

# The weights are the server's: neither a session's nor the database's.
$before = foreground();
$watcher->query_safe('SET vacuum_cost_page_hit = 10000; SET vacuum_cost_page_miss = 10000');
$watcher->query_safe('SELECT count(*) FROM large');
cmp_ok(foreground() - $before, '>=', $pages, 'what a session reads ...');
cmp_ok(foreground() - $before, '<', 10 * $pages, '... weighs no more because the session says so');
$node->safe_psql('postgres', "ALTER DATABASE postgres SET vacuum_cost_page_$_ = 0") for qw(hit miss dirty);
$node->turn_reaper('off');
$node->turn_reaper('on');
$cost = $node->statistics('cost', 'c');
$node->add_expired('c', 1000);
$node->is_emptied('c', 'a worker in a database without such costs ...');
cmp_ok($node->statistics('cost', 'c') - $cost, '>=', 1000, '... pays the same');
$node->configure("vacuum_cost_page_hit = 20\nvacuum_cost_page_miss = 20");
my $until = time + $PostgreSQL::Test::Utils::timeout_default;
do
{
	$before = foreground();
	$watcher->query_safe('SELECT count(*) FROM large');
} while (foreground() - $before < 20 * $pages && time < $until);
cmp_ok(foreground() - $before, '>=', 20 * $pages, q{the server's new weights are those of a session that is older});

# The timeout of a statement that ends its process fires when that has left shared memory already. It ends
# slowly if the log, a pipe that nobody reads, has room for the reason alone and not for the disconnection.
SKIP:
{
	skip 'needs the pipes of Linux', 2 unless $^O eq 'linux';
	$node->append_conf('postgresql.conf', "$_\n") for 'logging_collector = on', q(log_filename = 'log'), q(log_line_prefix = '%p '),
	  'log_statement = none', 'log_disconnections = on', 'log_error_verbosity = terse', 'log_min_error_statement = panic';
	$node->restart;
	$node->wait_until('SELECT count(*) = 1 FROM ttl.stat_reaper');
	$_->reconnect_and_clear for $session, $watcher;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$before = foreground();
	$session->query_until(qr/begins/, "\\echo begins\nDO 'BEGIN LOOP PERFORM count(*) FROM large; END LOOP; END';\n");
	rises($before, 3 * $pages, 'a statement runs');

	my ($logger) = grep { slurp_file("/proc/$_/cmdline") =~ /logger/ } split ' ', slurp_file("/proc/$node->{_pid}/task/$node->{_pid}/children");
	open my $pipe, '>', "/proc/$pid/fd/2" or die "stderr of $pid: $!";
	kill 'STOP', $logger;
	fcntl $pipe, 1031, 4096 or die "F_SETPIPE_SZ: $!";
	syswrite $pipe, 'x' x (4096 - 140) . "\n";
	$watcher->query_safe("SELECT pg_terminate_backend($pid)");
	usleep(300_000);
	kill 'CONT', $logger;
	my $log = $node->data_dir . '/log/log';
	$until = time + $PostgreSQL::Test::Utils::timeout_default;
	usleep(20_000) until slurp_file($log) =~ /^$pid LOG:  disconnection|PID $pid\)/m || time > $until;
	like(slurp_file($log), qr/^$pid LOG:  disconnection/m, '... until it is terminated, slowly');
	$watcher->quit;
}
$node->stop;
done_testing();
