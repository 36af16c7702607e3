# Deletion that falls behind: it goes on, and the log says so.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 50ms
ttl.throughput = 1
ttl.cycle_cost_floor = 0
ttl.lag_warning = 2s
END
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE c (id int);
SELECT ttl.create_container('c');
INSERT INTO c (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 200000) g;
SELECT ttl.set_default_ttl('c', 3600);
});
my $start = time;
$node->wait_for_log(qr/deletion of expired rows of container "public.c" in database "postgres" has been behind for \d+ seconds/);
pass('the log says so');
$node->wait_for_log(qr/HINT:  See "stopped_by" in ttl\.stat_reaper for the reason\./);
is($node->safe_psql('postgres', 'SELECT stopped_by FROM ttl.stat_reaper'), 'throughput', 'and where to see why');
# the first batch has overdrawn the budget for long
my $rows = $node->safe_psql('postgres', 'SELECT rows_deleted FROM ttl.stat_containers');
my $cycles = $node->safe_psql('postgres', 'SELECT cycles FROM ttl.stat_reaper');
$node->poll_query_until('postgres', "SELECT cycles > $cycles + 10 FROM ttl.stat_reaper");
is($node->safe_psql('postgres', 'SELECT rows_deleted FROM ttl.stat_containers'), $rows, 'strictly leftovers starve');
cmp_ok(scalar(() = slurp_file($node->logfile) =~ /has been behind/g), '<=', (time - $start) / 2, 'not too often');

$node->configure("ttl.cycle_cost_floor = 2000");
ok($node->poll_query_until('postgres', 'SELECT rows_deleted > 1000 FROM ttl.stat_containers'),
	'a floor guarantees progress');

$node->configure("ttl.throughput = 0");
ok($node->poll_query_until('postgres', 'SELECT rows_deleted = 200000 FROM ttl.stat_containers'),
	'it catches up');

# Behind again, it has been since then.
$node->configure("ttl.throughput = 1\nttl.cycle_cost_floor = 0");
my $log = -s $node->logfile;
$start = time;
$node->add_expired('c', 1000);
$node->wait_for_log(qr/has been behind for \d+ seconds/, $log);
my ($seconds) = slurp_file($node->logfile, $log) =~ /has been behind for (\d+) seconds/;
cmp_ok($seconds, '<=', time - $start + 1, 'behind again: the log says since when');
$node->configure('ttl.throughput = 0');
$node->is_emptied('c', '... until it has caught up');

# What a cycle has done
my $line = qr/deletion of expired rows of container "public\.c" in database "postgres": (\d+) rows deleted, (\d+) rows blocked, cost \d+, \d+ ms/;
unlike(slurp_file($node->logfile), $line, 'ttl.log_min_duration: off');
$node->configure("ttl.log_min_duration = 1h");
$node->safe_psql('postgres', q{INSERT INTO c (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 100) g});
$node->is_emptied('c', 'more is deleted');
$node->configure("ttl.log_min_duration = 0\nttl.cycle_cost_limit = 1000000");
$node->safe_psql('postgres', q{INSERT INTO c (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 101) g});
# (a visit that finds nothing may take that long, too)
ok($node->wait_for_log(qr/rows of container "public\.c" in database "postgres": 101 rows deleted, 0 rows blocked, cost \d+, \d+ ms/), 'ttl.log_min_duration: what takes longer');
$node->stop;
done_testing();
