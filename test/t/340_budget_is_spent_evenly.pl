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
my $naps = $node->safe_psql('postgres', 'SHOW server_version_num') >= 170000 ? "wait_event = 'TtlReaperPace'" :
  "wait_event = 'Extension' AND state = 'active'";
my $napping = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND query LIKE 'deleting expired rows of public.c' AND $naps";

sub deleted { return $node->statistics('rows_deleted', 'c') }

# A few rows go at once.  There was no worker before.
$node->add_expired('c', 500);
$node->is_emptied('c', 'a few rows go');
is($node->safe_psql('postgres', 'SELECT cycles FROM ttl.stat_reaper') <= 2, 1, 'in one cycle');

# Many don't: at 2 units a row at least, 16,000 rows are worth 3.2 seconds,
# less 0.4 that may be spent in advance.
$node->restart;
my $start = time;
$node->add_expired('c', 16000);
my @seen = (deleted());
ok($node->poll_query_until('postgres', "SELECT ($napping) = 1"), 'the worker naps, and says so');
my $idle = 0;
my $samples = 0;
until ($seen[-1] >= $seen[0] + 16000 || time - $start > 60)
{
	my $now = deleted();
	push @seen, $now if $now != $seen[-1];

	# Locks and snapshot in the middle of a nap.  The views aren't read in the
	# same instant, so now and then the nap has ended in between.
	my $held = $node->safe_psql('postgres', qq{
		SELECT count(l.pid), count(a.backend_xmin)
		FROM pg_stat_activity a LEFT JOIN pg_locks l ON l.pid = a.pid AND l.locktype <> 'virtualxid'
		WHERE backend_type = 'ttl reaper' AND $naps HAVING count(a.pid) > 0});
	$samples++ if $held ne '';
	$idle++ if $held eq '0|0';
}
my $steps = @seen - 1;
cmp_ok($seen[-1] - $seen[0], '==', 16000, 'all go');
cmp_ok(time - $start, '>', 2, '... spread over the cycle');
cmp_ok($steps, '>=', 10, "... in small steps ($steps seen)");
cmp_ok($samples, '>=', 5, "seen napping ($samples times)");
cmp_ok($idle, '>', 0.7 * $samples, "... without a lock or a snapshot ($idle times)");
my $rows_per_batch = $node->safe_psql('postgres', "SELECT rows_deleted / batches FROM ttl.stat_containers WHERE container = 'c'::regclass");
cmp_ok($rows_per_batch, '<=', 500, 'a batch costs what a short nap is worth');

# A user's CALL isn't paced.
$node->add_expired('other', 50000);
$start = time;
$node->safe_psql('postgres', "CALL ttl.reap('other')");
is($node->safe_psql('postgres', "SELECT ttl.expired_count('other')"), '0', 'CALL ttl.reap deletes all');
cmp_ok(time - $start, '<', 5, '... without a nap');

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
$start = time;
$node->processes_are('ttl reaper', 0, 'ttl.reaper = off reaches it');
cmp_ok(time - $start, '<', 5, '... at once');
cmp_ok($node->safe_psql('postgres', "SELECT ttl.expired_count('c')"), '>', 0, 'it leaves what is left');
$node->turn_reaper('on');
ok($node->poll_query_until('postgres', "SELECT ($napping) = 1"), 'the worker naps');
$start = time;
$node->stop;
cmp_ok(time - $start, '<', 5, 'the server stops at once');
$node->start;

# A policy is taken back in the middle of a nap.
$node->add_expired('c', 16000);
ok($node->poll_query_until('postgres', "SELECT ($napping) = 1"), 'the worker naps');
$node->safe_psql('postgres', "SELECT ttl.set_default_ttl('c', NULL)");
ok($node->poll_query_until('postgres', "SELECT state <> 'working' FROM ttl.stat_reaper"), 'a worker hears of a change in the middle of its cycle');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM c'), '>', 0, '... and stops');

$node->stop;
done_testing();
