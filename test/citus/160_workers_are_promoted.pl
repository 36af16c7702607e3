# A worker is lost, its standby is promoted and takes its place: rows that were committed and are live are there once,
# what has expired stays hidden and is deleted, and policies go on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use CitusCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

CitusCluster::skip_unless_installed();

my $cluster = CitusCluster->start_new("ttl.reaper = off\nttl.naptime = 100ms\nautovacuum = off\nclient_min_messages = warning\n");
my ($coordinator, $lost, $other) = $cluster->nodes;

sub answer
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

answer(q{
CREATE TABLE item (id int PRIMARY KEY, v text);
CREATE TABLE session (id int PRIMARY KEY, v text);
CREATE TABLE kind (id int PRIMARY KEY);
SELECT create_distributed_table('item', 'id'),
	create_distributed_table('session', 'id', colocate_with => 'item'), create_reference_table('kind');
SELECT ttl.create_container('item', 3600), ttl.create_container('session', 3600), ttl.create_container('kind', 3600);
INSERT INTO item SELECT g, 'v' || g, CASE WHEN g > 40 THEN now() ELSE '2020-01-01' END FROM generate_series(1, 100) g;
INSERT INTO session SELECT g, 'v' || g, CASE WHEN g > 40 THEN now() ELSE '2020-01-01' END FROM generate_series(1, 100) g;
INSERT INTO kind SELECT g, CASE WHEN g > 4 THEN now() ELSE '2020-01-01' END FROM generate_series(1, 10) g});

$lost->backup('backup');
my $standby = TtlNode->new('standby');
$standby->init_from_backup($lost, 'backup', has_streaming => 1);
$standby->start;

# some expired rows are deleted before the standby takes over, and rows are renewed and written
$lost->safe_psql('postgres', q{SELECT ttl.pause()});
answer(q{UPDATE item SET v = v || 'w' WHERE id <= 60; INSERT INTO item VALUES (1, 'new'), (2, 'new'), (3, 'new'), (4, 'new'), (5, 'new')});
$lost->safe_psql('postgres', q{SELECT ttl.resume()});
answer(q{SELECT ttl.set_default_ttl('session', 7200); CALL ttl.reap('session', max_rows => 3)});
$lost->wait_for_flush;
$lost->wait_for_catchup($standby, 'replay');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM kind'), 6, 'a standby of a worker hides');
my %before = map { $_ => answer("SELECT count(*), sum(id), md5(string_agg(id || v, ' ' ORDER BY id)) FROM $_") } qw(item session);
my $stored = $cluster->stored('session');

$lost->stop('immediate');
$standby->promote;
$standby->wait_until('SELECT NOT pg_is_in_recovery()');
answer("SELECT citus_update_node(nodeid, '127.0.0.1', ${\$standby->port}) FROM pg_dist_node WHERE nodeport = ${\$lost->port}");
$cluster->{nodes}[1] = $standby;

for my $node ($cluster->nodes)
{
	is($node->safe_psql('postgres', "SELECT count(*), sum(id), md5(string_agg(id || v, ' ' ORDER BY id)) FROM $_"), $before{$_}, "promoted: $_ on " . $node->name) for sort keys %before;
}
is($cluster->stored('session'), $stored, '... and what has expired is stored as before');
is(answer(q{SELECT string_agg(container || ' ' || default_ttl, ', ' ORDER BY container::text) FROM ttl.containers WHERE container::text !~ '\d'}),
	'item 3600, kind 3600, session 7200', '... of the same containers');

$cluster->turn_reaper('on');
$cluster->stored_are('item', 65, 'expired rows are deleted');
$cluster->stored_are('session', 60, '... of each container');
$cluster->copies_are('kind', 6, '... and each copy');
is(answer("SELECT count(*), sum(id), md5(string_agg(id || v, ' ' ORDER BY id)) FROM $_"), $before{$_}, "live rows of $_ are there") for qw(item session);

answer(q{SELECT ttl.set_default_ttl('session', 1); INSERT INTO session VALUES (1000, 'lives', now() + interval '1 day')});
$cluster->stored_are('session', 1, 'a change of policy reaches the promoted worker');
is($standby->safe_psql('postgres', 'SELECT sum(rows_deleted) > 0 FROM ttl.stat_shards()'), 't', '... whose reaper works');

$standby->stop;
$other->stop;
$coordinator->stop;
done_testing();
