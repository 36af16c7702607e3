# The budget of a cycle is spent evenly: the worker naps between small
# transactions, without a lock, and wakes up when it is wanted.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 4s
ttl.cycle_cost_limit = 40000
autovacuum = off
END
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE c (id int);
CREATE TABLE other (id int);
SELECT ttl.create_container(t) FROM unnest('{c, other}'::regclass[]) t;
});

# What a worker does just now, and what it holds
my $naps = "wait_event = 'Extension' AND state = 'active'";
my $napping = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND query LIKE 'deleting expired rows of public.c' AND $naps";

sub deleted { return $node->statistics('rows_deleted', 'c') }

# A few rows go at once.  There was no worker before.
$node->add_expired('c', 500);
$node->is_emptied('c', 'a few rows go');
is($node->safe_psql('postgres', 'SELECT cycles FROM ttl.stat_reaper') <= 2, 1, 'in one cycle');

# Many don't: at 2 units a row at least, 16,000 rows are worth 3.2 seconds.  A session looks at the worker in the
# middle of its naps; one that has ended before the look is over doesn't count.
$node->safe_psql('postgres', qq{
CREATE FUNCTION watch(wanted bigint, OUT samples int, OUT idle int) LANGUAGE plpgsql AS \$\$
DECLARE
	worker int;
	locks int;
	xmins int;
	tries int := 0;
BEGIN
	samples := 0;
	idle := 0;
	WHILE tries < 6000 AND (SELECT rows_deleted < wanted FROM ttl.stat_containers WHERE container = 'c'::regclass) LOOP
		tries := tries + 1;
		PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01);
		SELECT pid INTO worker FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND $naps;
		CONTINUE WHEN NOT FOUND;
		SELECT count(*) INTO locks FROM pg_locks WHERE pid = worker AND locktype <> 'virtualxid';
		PERFORM pg_stat_clear_snapshot();
		SELECT count(backend_xmin) INTO xmins FROM pg_stat_activity WHERE pid = worker AND $naps HAVING count(*) > 0;
		CONTINUE WHEN NOT FOUND;
		samples := samples + 1;
		idle := idle + (locks + xmins = 0)::int;
	END LOOP;
END \$\$});
$node->restart;
my $start = time;
my $deleted = deleted();
$node->add_expired('c', 16000);
ok($node->poll_query_until('postgres', "SELECT ($napping) = 1"), 'the worker naps, and says so');
my ($samples, $idle) = split /\|/, $node->safe_psql('postgres', "SELECT * FROM watch($deleted + 16000)");
is(deleted() - $deleted, 16000, 'all go');
cmp_ok(time - $start, '>', 2, '... spread over the cycle');
cmp_ok($samples, '>=', 5, "seen napping ($samples times)");
cmp_ok($idle, '>', 0.7 * $samples, "... without a lock or a snapshot ($idle times)");
my $rows_per_batch = $node->safe_psql('postgres', "SELECT rows_deleted / batches FROM ttl.stat_containers WHERE container = 'c'::regclass");
cmp_ok($rows_per_batch, '<=', 500, 'a batch costs what a short nap is worth');

# So are those of the same worker's next cycle, for whose naps the first one has not paid.
$start = time;
$deleted = deleted();
$node->add_expired('c', 10000);
($samples) = split /\|/, $node->safe_psql('postgres', "SELECT * FROM watch($deleted + 10000)");
cmp_ok(time - $start, '>', 1, 'the next cycle is spread likewise');
cmp_ok($samples, '>=', 3, "... seen napping ($samples times)");

# A user's CALL isn't paced: with naps it would take 200 seconds from now on, and 16,000 rows half a minute.
$node->configure('ttl.cycle_cost_limit = 4000');
$node->add_expired('other', 100000);
is($node->psql('postgres', "SET statement_timeout = '120s'; CALL ttl.reap('other')"), 0, 'CALL ttl.reap takes no nap');
is($node->safe_psql('postgres', "SELECT ttl.expired_count('other')"), '0', '... and deletes all');

# The rows of each page expire one after the other: a batch doesn't take along those between its own.
$node->turn_reaper('off');
my $plans;
$node->psql('postgres', q{
CREATE TABLE aligned (id int, _ts timestamptz NOT NULL);
INSERT INTO aligned SELECT i, timestamptz '2020-01-01' + (i - 1) % 185 * interval '1 day' FROM generate_series(1, 18500) i;
VACUUM ANALYZE aligned;
SELECT ttl.create_container('aligned', 3600, ts_column => '_ts', ttl_column => NULL);
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_analyze = on;
SET client_min_messages = log;
CALL ttl.reap('aligned');
}, stderr => \$plans);
my ($first_batch) = $plans =~ /Tid (?:Range )?Scan on aligned.*actual.*rows=(\d+)/;
cmp_ok($first_batch, '<=', 100, "a batch that begins with 50 rows deletes $first_batch");
is($node->safe_psql('postgres', "SELECT ttl.expired_count('aligned')"), '0', '... and the others the rest');
$node->turn_reaper('on');

# Somebody turns deletion off, or stops the server, in the middle of a nap.
$node->add_expired('c', 16000);
ok($node->poll_query_until('postgres', "SELECT ($napping) = 1"), 'the worker naps');
$node->configure('ttl.reaper = off');
$node->processes_are('ttl reaper', 0, 'ttl.reaper = off reaches it');
cmp_ok($node->safe_psql('postgres', "SELECT ttl.expired_count('c')"), '>', 0, '... at once');
$node->turn_reaper('on');
ok($node->poll_query_until('postgres', "SELECT ($napping) = 1"), 'the worker naps');
$node->append_conf('postgresql.conf', 'ttl.reaper = off');
$node->stop;
$node->start;
cmp_ok($node->safe_psql('postgres', "SELECT ttl.expired_count('c')"), '>', 0, 'the server stops at once');
$node->turn_reaper('on');

# A policy is taken back in the middle of a nap.
$node->add_expired('c', 16000);
ok($node->poll_query_until('postgres', "SELECT ($napping) = 1"), 'the worker naps');
$node->safe_psql('postgres', "SELECT ttl.set_default_ttl('c', NULL)");
ok($node->poll_query_until('postgres', "SELECT state <> 'working' FROM ttl.stat_reaper"), 'a worker hears of a change in the middle of its cycle');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM c'), '>', 0, '... and stops');

$node->stop;
done_testing();
