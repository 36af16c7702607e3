# Archives are for local tables: neither a distributed container has one, nor a local one a distributed
# archive; what is local has one in a cluster, too.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use CitusCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

CitusCluster::skip_unless_installed();

my $cluster = CitusCluster->start_new("ttl.reaper = off\nclient_min_messages = warning\n");
my $coordinator = $cluster->coordinator;

sub answer
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

answer(q{
CREATE TABLE item (id int PRIMARY KEY);
CREATE TABLE far (id int);
CREATE TABLE copied (id int);
CREATE TABLE near (id int);
CREATE TABLE local (id int PRIMARY KEY);
SELECT create_distributed_table('item', 'id'), create_distributed_table('far', 'id', colocate_with => 'item'), create_reference_table('copied');
SELECT ttl.create_container('item', 3600), ttl.create_container('local', 3600)});
for my $case ([ 'item', 'far' ], [ 'item', 'copied' ], [ 'item', 'near' ], [ 'local', 'far' ], [ 'local', 'copied' ])
{
	$coordinator->fails(sprintf(q{SELECT ttl.alter_container('%s', archive_to => '%s')}, @$case), '0A000', "refused: @$case");
}

answer(q{
SELECT ttl.alter_container('local', archive_to => 'near');
INSERT INTO local SELECT g, '2020-01-01' FROM generate_series(1, 5) g;
INSERT INTO local VALUES (1);
CALL ttl.reap('local')});
is(answer(q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM near}), '1 2 3 4 5', 'a local table has one');
$coordinator->fails(q{SELECT create_distributed_table('local', 'id')}, '0A000', '... and is not distributed with it', qr/because it has an archive/);

# one that is distributed later takes no rows, and they stay
answer(q{
SELECT create_distributed_table('near', 'id');
INSERT INTO local SELECT g, '2020-01-01' FROM generate_series(11, 15) g;
CALL ttl.reap('local')});
is(answer(q{SELECT ttl.expired_count('local') || ' ' || last_error FROM ttl.stat_containers WHERE container = 'local'::regclass}),
	'5 archives of distributed tables are not supported', 'nor does it go to one that is distributed later');
$coordinator->fails('INSERT INTO local VALUES (11)', '0A000', '... and keeps its keys');
answer(q{SELECT ttl.alter_container('local', archive_to => 0); SELECT create_distributed_table('local', 'id')});
is(answer('INSERT INTO local VALUES (11); SELECT count(*) FROM local'), '2', '... until it has none');

$_->stop for $cluster->nodes;
done_testing();
