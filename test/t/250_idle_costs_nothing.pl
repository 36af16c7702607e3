# A reaper with nothing to do costs next to nothing, and one that works doesn't
# grow.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use TtlNode;

# with these prices cost units are buffers touched
my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 10ms
vacuum_cost_page_hit = 1
vacuum_cost_page_miss = 1
vacuum_cost_page_dirty = 1
autovacuum = off
END
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', 1);
INSERT INTO item (id, ttl, _ts) SELECT g, CASE WHEN g % 2 = 0 THEN 86400 END, CASE WHEN g % 2 = 0 THEN now() ELSE '2100-01-01' END
	FROM generate_series(1, 100000) g;
});

sub of_process
{
	my ($type, $file, $pattern) = @_;
	my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = '$type' AND datname IS DISTINCT FROM 'off'");
	return slurp_file("/proc/$pid/$file") =~ $pattern ? $1 : undef;
}

# Visits to a container with nothing due, which come every second because of its default TTL
sub visits
{
	my ($wanted) = @_;
	my ($c, $s) = split /\|/, $node->safe_psql('postgres', 'SELECT cycles, cost_spent FROM ttl.stat_reaper');
	$node->poll_query_until('postgres', "SELECT cycles >= $c + $wanted AND state = 'idle' FROM ttl.stat_reaper");
	my ($c2, $s2) = split /\|/, $node->safe_psql('postgres', 'SELECT cycles, cost_spent FROM ttl.stat_reaper');
	return ($c2 - $c, $s2 - $s);
}
ok($node->poll_query_until('postgres', "SELECT state = 'idle' FROM ttl.stat_reaper"), 'the reaper has nothing to do');
visits(2);    # the first one after the INSERT may have begun before
my ($cycles, $cost) = visits(10);
cmp_ok($cycles, '>=', 10, "visits ($cycles)");
cmp_ok($cost, '>=', $cycles, 'are counted');
cmp_ok($cost, '<=', 10 * $cycles, "... and touch 10 buffers each at most (all of them: $cost)");

# Again when there have been rows to delete, and a mark has been left.
$node->safe_psql('postgres', "INSERT INTO item (id, _ts) SELECT g, timestamptz '2020-01-01' + g * interval '1 s' FROM generate_series(100001, 105000) g; CALL ttl.reap('item', 1)");
$node->is_emptied('item', 'some rows go');
$node->safe_psql('postgres', 'VACUUM item');
($cycles, $cost) = visits(2);
cmp_ok($cost, '<=', 100, "VACUUM has it read the catalog again ($cost buffers)");
($cycles, $cost) = visits(10);
cmp_ok($cost, '<=', 10 * $cycles, "... then again 10 buffers at most ($cycles visits: $cost)");

# The launcher wakes no worker but for a request to it, whatever it does for another database.
SKIP:
{
	skip 'needs /proc', 3 unless -r "/proc/$$/status";

	my $switches = sub { return of_process($_[0], 'status', qr/^voluntary_ctxt_switches:\s+(\d+)/m) };
	$node->safe_psql('postgres', q{SELECT ttl.set_default_ttl('item', 86400)});
	visits(1);
	$node->safe_psql('postgres', 'CREATE DATABASE off');
	$node->safe_psql('off', q{CREATE EXTENSION ttl; CREATE TABLE c (id int); SELECT ttl.create_container('c', NULL)});
	$node->processes_are('ttl reaper', 1, 'a database without work has no worker');
	my ($worker_before, $launcher_before) = (&$switches('ttl reaper'), &$switches('ttl launcher'));
	for my $tries (1 .. 300)
	{
		$node->safe_psql('off', "SELECT ttl.set_default_ttl('c', $tries); SELECT ttl.set_default_ttl('c', NULL)");
		last if &$switches('ttl launcher') - $launcher_before > 200;
	}
	$node->processes_are('ttl reaper', 1, '... though its policies change');
	my ($by_worker, $by_launcher) = (&$switches('ttl reaper') - $worker_before, &$switches('ttl launcher') - $launcher_before);
	cmp_ok($by_worker, '<', $by_launcher / 4, "the launcher wakes up ($by_launcher), the worker sleeps ($by_worker)");
	$node->safe_psql('postgres', q{SELECT ttl.set_default_ttl('item', 1); DROP DATABASE off});
	$node->wait_until('SELECT count(*) = 1 FROM ttl.stat_reaper');
}

# A quiet container is looked at every ten seconds, or sooner if its rows live shorter.
$node->safe_psql('postgres', q{
CREATE TABLE brief (id int);
CREATE TABLE started AS SELECT clock_timestamp() AS at;
SELECT ttl.create_container('brief', 1);
});
$node->poll_query_until('postgres', "SELECT last_cycle > at AND state = 'idle' FROM ttl.stat_reaper, started");
$node->safe_psql('postgres', 'UPDATE started SET at = clock_timestamp(); INSERT INTO brief VALUES (1)');
$node->poll_query_until('postgres', "SELECT rows_deleted = 1 FROM ttl.stat_containers WHERE container = 'brief'::regclass");
is($node->safe_psql('postgres', q{
SELECT last_reap < at + interval '9 s' FROM ttl.stat_containers, started WHERE container = 'brief'::regclass;
}), 't', 'what lives a second is deleted within some');
$node->safe_psql('postgres', 'DROP TABLE brief');

# Quiet containers are no busy loop.
$node->safe_psql('postgres', q{
DO $$
BEGIN
	FOR i IN 1 .. 300 LOOP
		EXECUTE format('CREATE TABLE quiet%s (id int)', i);
		PERFORM ttl.create_container(format('quiet%s', i)::regclass, 86400);
	END LOOP;
END $$;
});
$node->poll_query_until('postgres', "SELECT state = 'idle' FROM ttl.stat_reaper");

# One of them gets a row that expires in a second, just after a visit.
my ($seen) = $node->safe_psql('postgres', "SELECT cycles FROM ttl.stat_reaper; SELECT ttl.set_default_ttl('quiet1', 86401)");
$node->poll_query_until('postgres', "SELECT cycles > $seen AND state = 'idle' FROM ttl.stat_reaper");
$node->safe_psql('postgres', 'UPDATE started SET at = clock_timestamp(); INSERT INTO quiet1 (ttl) VALUES (1)');
$node->poll_query_until('postgres', "SELECT rows_deleted = 1 FROM ttl.stat_containers WHERE container = 'quiet1'::regclass");
is($node->safe_psql('postgres', q{
SELECT last_reap < (SELECT at FROM started) + interval '15 s' FROM ttl.stat_containers WHERE container = 'quiet1'::regclass;
}), 't', 'what is inserted into a quiet container is deleted by the next visit');

# Nor does a visit leave anything in memory.
sub visit_all
{
	my ($cycles) = $node->safe_psql('postgres', 'SELECT cycles FROM ttl.stat_reaper');
	$node->safe_psql('postgres', 'CALL ttl.reap()');
	$node->poll_query_until('postgres', "SELECT cycles > $cycles AND state = 'idle' FROM ttl.stat_reaper");
	return;
}

sub memory
{
	my $at = -s $node->logfile;
	my $used;
	$node->safe_psql('postgres', q{SELECT pg_log_backend_memory_contexts(pid) FROM pg_stat_activity WHERE backend_type = 'ttl reaper'});
	for (1 .. 10)
	{
		visit_all();
		last if ($used) = slurp_file($node->logfile, $at) =~ /TopMemoryContext: .* (\d+) used/;
	}
	return $used;
}
visit_all();
my $used = memory();
visit_all() for 1 .. 5;
cmp_ok(memory() - $used, '<', 16 * 1024, 'what 1,500 visits leave in memory');

SKIP:
{
	skip 'needs /proc', 3 unless -r "/proc/$$/stat" && -r "/proc/$$/status";

	# user and system time in hundredths of a second
	my $time = sub {
		my $stat = of_process($_[0], 'stat', qr/\) \S+ (.*)/);
		my @fields = split / /, $stat;
		return $fields[10] + $fields[11];
	};
	my ($start, $worker, $launcher) = (time, &$time('ttl reaper'), &$time('ttl launcher'));
	$node->safe_psql('postgres', 'SELECT pg_sleep(5)');
	cmp_ok(&$time('ttl reaper') - $worker + &$time('ttl launcher') - $launcher,
		'<=', 3 * (time - $start), '300 quiet containers cost less than 3 % of a core, visits every 10 ms or not');

	# Memory: a worker that has seen it all once doesn't grow any more.
	my %before;
	for my $round (1 .. 30)
	{
		$node->safe_psql('postgres', "INSERT INTO item (id, _ts) SELECT g, '2020-01-01' FROM generate_series(200001, 202000) g; CALL ttl.reap('item', 1)");
		$node->poll_query_until('postgres', "SELECT ttl.expired_count('item') = 0");
		next unless $round == 10;
		$before{$_} = of_process($_, 'status', qr/RssAnon:\s+(\d+) kB/) for 'ttl reaper', 'ttl launcher';
	}
	for my $type ('ttl reaper', 'ttl launcher')
	{
		cmp_ok(of_process($type, 'status', qr/RssAnon:\s+(\d+) kB/) - $before{$type}, '<', 1024, "$type: memory doesn't grow");
	}
}

# What PostgreSQL remembers of each table that a worker has visited is limited.
$node->turn_reaper('off');
$node->configure('maintenance_work_mem = 1MB');
$node->safe_psql('postgres', q{
DO $$
BEGIN
	FOR i IN 1 .. 1500 LOOP
		EXECUTE format('CREATE TABLE more%s (id int)', i);
		PERFORM ttl.create_container(format('more%s', i)::regclass, 86400);
		IF i % 100 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
END $$;
});
my $size = -s $node->logfile;
my $cycles_before = $node->safe_psql('postgres', 'SELECT cycles FROM ttl.stat_reaper');
$node->turn_reaper('on');
$node->wait_until("SELECT cycles > $cycles_before AND state = 'idle' AND stopped_by = 'nothing left' FROM ttl.stat_reaper");
$node->safe_psql('postgres', q{SELECT pg_log_backend_memory_contexts(pid) FROM pg_stat_activity WHERE backend_type = 'ttl reaper'});
$node->safe_psql('postgres', q{SELECT ttl.set_default_ttl('more1', 86401)});
$node->wait_for_log(qr/Grand total: \d+ bytes/, $size);
my ($total) = slurp_file($node->logfile, $size) =~ /Grand total: (\d+) bytes/;
cmp_ok($total, '<', 24 * 1024 * 1024, sprintf('1,800 tables visited leave %.0f MB in memory', $total / 1048576));

$node->stop;
done_testing();
