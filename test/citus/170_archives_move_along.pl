# Shards of a container and of its archive move from node to node, again and again, while users write and rows expire:
# each row that was committed is live once, or was archived once.
#
#   MOVES_SECONDS   how long (15)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use CitusCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use TtlNode;

CitusCluster::skip_unless_installed();

my $seconds = $ENV{MOVES_SECONDS} // 15;
my $cluster = CitusCluster->start_new("ttl.naptime = 100ms\nclient_min_messages = warning\n", 3);
my ($coordinator, @workers) = $cluster->nodes;

sub answer
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

answer(q{
CREATE TABLE item (id bigint PRIMARY KEY, v bigint);
CREATE TABLE gone (id bigint, v bigint);
SELECT create_distributed_table('item', 'id', shard_count => 4), create_distributed_table('gone', 'id', colocate_with => 'item');
SELECT ttl.create_container('item', 3600);
SELECT ttl.alter_container('item', archive_to => 'gone');
CREATE SEQUENCE ids;
CREATE TABLE ledger (v bigint PRIMARY KEY, id bigint, lives boolean, at timestamptz DEFAULT clock_timestamp())});

# rows that live long, and are renewed; rows that live for a second; and keys that are taken again, by a row with
# another v where the last one has expired
my $load = $coordinator->basedir . '/load.sql';
append_to_file($load, q{
\set key random(1, 300)
SELECT nextval('ids') AS id, nextval('ids') AS short, nextval('ids') AS again \gset
BEGIN;
INSERT INTO item (id, v) VALUES (:id, :id);
INSERT INTO ledger VALUES (:id, :id, true);
COMMIT;
BEGIN;
INSERT INTO item (id, v, ttl) VALUES (:short, :short, 1);
INSERT INTO ledger VALUES (:short, :short, false);
COMMIT;
BEGIN;
INSERT INTO item (id, v, ttl) VALUES (- :key, :again, 1) ON CONFLICT (id) DO UPDATE SET v = item.v RETURNING v AS taken \gset
INSERT INTO ledger VALUES (:taken, - :key, false) ON CONFLICT DO NOTHING;
COMMIT;
\set before random(1, :id)
UPDATE item SET v = id WHERE id = :before AND ttl IS NULL;
});
my ($out, $err) = ('', '');
my $pgbench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', 4, '-R', 60, '-T', $seconds + 3600, '-f', $load, '-h', $coordinator->host, '-p', $coordinator->port, 'postgres' ],
	'>', \$out, '2>', \$err);
$coordinator->wait_until('SELECT count(*) > 5 FROM gone');

my $places = q{FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid) WHERE logicalrelid = 'item'::regclass};
my ($end, $moves, $wrong, $turn) = (time + $seconds, 0, '', 0);
do
{
	my $mode = $turn % 2 ? 'block_writes' : 'force_logical';
	my $off  = $workers[ $turn++ % 3 ]->port;
	my $before = answer("SELECT count(*) $places AND nodeport = $off");

	# one node after the other is emptied, by a rebalance or shard by shard, and takes part again
	answer(qq{
SELECT citus_set_node_property('127.0.0.1', $off, 'shouldhaveshards', false);
SELECT rebalance_table_shards('item', shard_transfer_mode => '$mode', drain_only => true);
SELECT citus_set_node_property('127.0.0.1', $off, 'shouldhaveshards', true);
SELECT rebalance_table_shards('item', shard_transfer_mode => '$mode', threshold => 0);
CALL citus_cleanup_orphaned_resources()});
	$moves += $before + answer("SELECT count(*) $places AND nodeport = $off");
	$wrong .= answer(q{SELECT v || ' is not there once; ' FROM ledger l LEFT JOIN (SELECT id, count(*) AS n FROM item GROUP BY id) i USING (id) WHERE lives AND n IS DISTINCT FROM 1 LIMIT 5});
	$wrong .= answer(q{SELECT v || ' was archived twice; ' FROM gone GROUP BY v HAVING count(*) > 1 LIMIT 5});
	$wrong .= answer(q{SELECT id || ' is shown and has expired; ' FROM item WHERE ttl = 1 AND _ts < now() - interval '2 seconds' LIMIT 5});
} while (time < $end);
is($wrong, '', 'while shards move, live rows are there once, rows that have expired are not shown, none is archived twice');
cmp_ok($moves, '>', 0, "$moves moves");
$pgbench->signal('TERM');
$pgbench->finish;
$coordinator->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pgbench'});
unlike($err, qr/ERROR|aborted/, 'no writer has met an error');
note("$moves moves, " . answer('SELECT count(*) FILTER (WHERE lives), count(*) FILTER (WHERE NOT lives) FROM ledger') . ' rows lived|expired');
$cluster->stored_are('item', answer('SELECT count(*) FROM ledger WHERE lives'), 'what has expired is deleted');
is(answer('SELECT count(*), count(DISTINCT v), sum(v), sum(id) FROM item'), answer('SELECT count(*), count(*), sum(v), sum(id) FROM ledger WHERE lives'), 'the ledger of live rows is exact');
is(answer('SELECT count(*), count(DISTINCT v), sum(v), sum(id) FROM gone'), answer('SELECT count(*), count(*), sum(v), sum(id) FROM ledger WHERE NOT lives'), '... and that of archived ones');
is(answer('SELECT count(*) FROM ledger l LEFT JOIN gone g USING (v, id) WHERE lives <> (g.v IS NULL)'), '0', '... row by row');

$cluster->stop;
done_testing();
