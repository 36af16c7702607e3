# The server stops promptly in each mode while launcher and workers run, and
# goes on where it was.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = PostgreSQL::Test::Cluster->new('modes');
$node->init;
# Deletion in small bites, so that some is left to do whenever the server stops.
$node->append_conf('postgresql.conf', <<'END');
shared_preload_libraries = 'ttl'
ttl.naptime = 10ms
ttl.cycle_cost_limit = 500
END
$node->start;
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int, note text);
SELECT ttl.create_container('item', 60);
INSERT INTO item (id, note, _ts) VALUES (0, 'live', '2900-01-01');
END

my $live = 1;
for my $mode ('fast', 'smart', 'immediate', 'fast')
{
	$node->safe_psql('postgres', <<'END');
INSERT INTO item (id, note, _ts) SELECT g, 'expired', '2020-01-01' FROM generate_series(1, 50000) g;
INSERT INTO item (id, note, _ts) VALUES (0, 'live', '2900-01-01');
SELECT ttl.set_default_ttl('item', 60);
END
	$live++;
	my $stored = $node->safe_psql('postgres', "SELECT ttl.expired_count('item')");
	ok($node->poll_query_until('postgres', "SELECT ttl.expired_count('item') < $stored"),
		"$mode: a worker deletes");
	my $log = -s $node->logfile;
	my $start = time;
	$node->stop($mode);
	cmp_ok(time - $start, '<', 10, "$mode: the server stops promptly");
	unlike(
		slurp_file($node->logfile, $log),
		qr/(ERROR|PANIC):|terminated by signal/,
		"$mode: nobody complains");
	$node->start;
	is($node->safe_psql('postgres', 'SELECT note, count(*) FROM item GROUP BY note'),
		"live|$live", "$mode: after the start all live rows are there, and no other is seen");
}

# ... idle
for my $mode ('fast', 'smart')
{
	$node->append_conf('postgresql.conf', 'ttl.cycle_cost_limit = 1000000');
	$node->reload;
	ok($node->poll_query_until('postgres', "SELECT ttl.expired_count('item') = 0"),
		"$mode: nothing is left to do");
	my $start = time;
	$node->stop($mode);
	cmp_ok(time - $start, '<', 10, "$mode: the server stops promptly, too");
	$node->start;
}
is($node->safe_psql('postgres', 'SET ttl.show_expired = on; SELECT note, count(*) FROM item GROUP BY note'),
	"live|$live", 'what was to go has gone');

# ttl.naptime may be long: a stop doesn't wait for it
$node->append_conf('postgresql.conf', "ttl.naptime = '1h'");
$node->restart;
ok( $node->poll_query_until(
		'postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper'"),
	'a worker sleeps');
my $start = time;
$node->stop('fast');
cmp_ok(time - $start, '<', 10, 'the server stops promptly, too');

done_testing();
