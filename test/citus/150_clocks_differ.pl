# The clock of one worker is ahead of the others', or behind: each node hides and deletes by its own, what a node
# deletes too early is what reap_delay does not hold, and rows that were only hidden are back when clocks agree.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use CitusCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TestClock;
use TtlNode;

CitusCluster::skip_unless_installed();

my $clock   = TestClock->new;
my $cluster = CitusCluster->start_new("ttl.reaper = off\nautovacuum = off\nclient_min_messages = warning\n", 1);
my $wrong   = $clock->while_starting(sub { $cluster->add_worker });
my ($coordinator, $right) = $cluster->nodes;

sub answer
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

# Which rows are shown, from each node
sub shown
{
	my ($ids, $name) = @_;

	for my $node ($cluster->nodes)
	{
		is($node->safe_psql('postgres', 'SELECT id FROM item ORDER BY id'), join("\n", sort { $a <=> $b } @$ids), "$name: " . $node->name);
	}
	return;
}

# Those of numbers whose shards are on a worker
sub on
{
	my ($node, $from, $to) = @_;

	return split /\n/, answer("SELECT id FROM generate_series($from, $to) id JOIN pg_dist_placement ON shardid = get_shard_id_for_distribution_column('item', id) JOIN pg_dist_node USING (groupid) WHERE nodeport = " . $node->port);
}

answer(q{
CREATE TABLE item (id int PRIMARY KEY, v int);
CREATE TABLE kind (id int PRIMARY KEY);
SELECT create_distributed_table('item', 'id'), create_reference_table('kind');
CREATE TABLE child (id int PRIMARY KEY, kind int REFERENCES kind);
SELECT create_distributed_table('child', 'id', colocate_with => 'item');
SELECT ttl.create_container('kind', 600);
SELECT ttl.create_container('item', 600);
SELECT ttl.alter_container('item', reap_delay => '1 day')});

#
# Ahead
#
answer('INSERT INTO item SELECT g, 0 FROM generate_series(1, 40) g; INSERT INTO kind SELECT generate_series(1, 3)');
my @right = on($right, 1, 40);
my @wrong = on($wrong, 1, 40);
cmp_ok(scalar @right, '>', 5, 'rows are on this worker');
cmp_ok(scalar @wrong, '>', 5, '... and on that one');
shown([ 1 .. 40 ], 'clocks agree');

$clock->set(1000);
shown(\@right, 'a clock is ahead: what has expired by it is hidden');
answer(q{CALL ttl.reap('item')});
is($cluster->stored('item'), 40, '... and not deleted before reap_delay');
is(answer('WITH u AS (UPDATE item SET v = 1 RETURNING 1) SELECT count(*) FROM u'), scalar @right, '... nor written');
is(join(' ', $cluster->on_each('SELECT count(*) FROM kind')), '3 3 0', 'copies of a reference table differ');
answer("INSERT INTO child VALUES ($right[0], 1)");
$coordinator->fails("INSERT INTO child VALUES ($wrong[0], 1)", '23503', '... and so do foreign keys to it', qr/violates foreign key/);

# only deletion waits for reap_delay
answer("INSERT INTO item VALUES ($wrong[1], 9)");
shown(\@right, '... and what its own clock takes for expired when it comes');

# a shard brings along what was hidden where it has been
my $shard = answer("SELECT get_shard_id_for_distribution_column('item', $wrong[0])");
my $move = "SELECT citus_move_shard_placement($shard, '127.0.0.1', %d, '127.0.0.1', %d, 'block_writes')";
answer(sprintf $move, $wrong->port, $right->port);
shown([ on($right, 1, 40) ], 'moved to a node whose clock is right: rows are shown again');
answer(sprintf $move, $right->port, $wrong->port);
shown(\@right, '... and hidden where they came from');

$clock->set(0);
shown([ 1 .. 40 ], 'clocks agree again: no row is lost');
is(answer("SELECT v FROM item WHERE id = $wrong[1]"), 9, '... but that whose key was taken');
is(join(' ', $cluster->on_each('SELECT count(*) FROM kind')), '3 3 3', '... and copies are the same');

#
# Behind
#
$clock->set(-1000);
answer(q{INSERT INTO item SELECT g, 0, now() - interval '700 seconds' FROM generate_series(101, 140) g});
my @behind = on($wrong, 101, 140);
shown([ 1 .. 40, @behind ], 'a clock is behind: what has expired by the others is live there');
answer(q{SELECT ttl.alter_container('item', reap_delay => '0'); CALL ttl.reap('item')});
is($cluster->stored('item', 'id > 100'), scalar @behind, '... and not deleted there, but elsewhere');
is($cluster->stored('item', 'id <= 100'), 40, '... no live row goes');
answer('UPDATE item SET v = 2 WHERE id <= 40');
$clock->set(0);
shown(\@right, 'what it has renewed expires earlier by as much');
is(answer('WITH u AS (UPDATE item SET v = 3 WHERE id > 100 RETURNING 1) SELECT count(*) FROM u'), 0, '... and what had expired is hidden');
answer(q{CALL ttl.reap('item')});
is($cluster->stored('item'), scalar @right, '... and deleted');

#
# Ahead without reap_delay
#
answer("INSERT INTO item SELECT g, 0 FROM generate_series(201, 240) g");
$clock->set(1000);
answer(q{CALL ttl.reap('item')});
$clock->set(0);
shown([ @right, on($right, 201, 240) ], 'a node whose clock is ahead deletes too early, and no other does');

$cluster->stop;
done_testing();
