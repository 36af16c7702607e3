# A worker that answers nothing, or that leaves the cluster: who looks at the rest sees it, and what is left of containers can be removed.
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

my $cluster = CitusCluster->start_new("ttl.naptime = 100ms\n");
my $coordinator = $cluster->coordinator;
my ($worker, $other) = $cluster->workers;

$coordinator->safe_psql('postgres', q{
CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT create_distributed_table('item', 'id');
SELECT ttl.create_container('item', 3600);
INSERT INTO item SELECT g FROM generate_series(1, 100) g;
CREATE TABLE item_of_theirs (id int PRIMARY KEY, at timestamptz NOT NULL, life int);
CREATE INDEX ON item_of_theirs (at) WHERE life IS NULL;
SELECT create_distributed_table('item_of_theirs', 'id');
SELECT ttl.create_container('item_of_theirs', 3600, 'at', 'life');
CREATE TABLE here (id int PRIMARY KEY);
SELECT ttl.create_container('here', 3600)});

#
# A worker hangs: its postmaster accepts connections, as the kernel does, and does nothing with them
#

my $status = q{SELECT string_agg(container::text, ',' ORDER BY container::text) FROM ttl.status};
is($coordinator->safe_psql('postgres', $status), 'here,item,item_of_theirs', 'ttl.status');
my $pid = (split /\n/, slurp_file($other->data_dir . '/postmaster.pid'))[0];
kill STOP => $pid;
my $began = time;
my ($rc, $containers, $stderr) = $coordinator->psql('postgres', $status);
my $took = time - $began;
kill CONT => $pid;
is($containers, 'here,item,item_of_theirs', 'while a worker hangs it shows all containers');
like($stderr, qr/WARNING:  statistics lack those of a node\nDETAIL:  failed to connect to 127\.0\.0\.1:${\ $other->port}/, '... and says which node is missing');
cmp_ok($took, '<', 15, '... sooner than sessions that wait for half a minute') or diag($took);
is($coordinator->safe_psql('postgres', 'SHOW citus.node_connection_timeout'), '30s', q{... whose setting stays the user's});

#
# Citus is dropped on a worker: shards are left behind, as tables that expire still
#

my $indexes = q{SELECT DISTINCT regexp_replace(indexrelid::regclass::text, '\d+$', 'N') FROM pg_index WHERE indrelid::regclass::text ~ '^item_.*\d' AND NOT indisprimary ORDER BY 1};
my @shards = split /\n/, $worker->safe_psql('postgres', q{SET citus.override_table_visibility = off; SELECT relid FROM ttl.container WHERE relid::text ~ '^item_\d+$' ORDER BY 1});
is(scalar @shards, 2, 'a worker has shards');
my (undef, undef, $refused) = $worker->psql('postgres', "SELECT ttl.drop_container('$shards[0]')");
like($refused, qr/ERROR: /, '... which are no containers to be dropped');
$worker->safe_psql('postgres', 'SET client_min_messages = error; DROP EXTENSION citus CASCADE');
$worker->safe_psql('postgres', "INSERT INTO $shards[0] (id, _ts) VALUES (1000, '2020-01-01')");
is($worker->safe_psql('postgres', "SELECT count(*) FROM $shards[0] WHERE id = 1000"), '0', '... and hide rows without Citus, too');
is($worker->safe_psql('postgres', $indexes), "item__ts_idx_N\nitem_item_expiry_idx_N\nitem_of_theirs_at_idx_N\nitem_of_theirs_item_expiry_idx_N", '... by their indexes');
$worker->safe_psql('postgres', 'SELECT ttl.drop_container(relid) FROM ttl.container');
is($worker->safe_psql('postgres', q{SELECT tgname FROM pg_trigger WHERE tgname LIKE '~ttl%' UNION ALL SELECT relid::text FROM ttl.container}), '', 'drop_container then leaves nothing of ttl on them');
is($worker->safe_psql('postgres', $indexes), 'item_of_theirs_at_idx_N', '... but keeps the indexes that it has not created');
is($worker->safe_psql('postgres', "SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = '$shards[0]'::regclass AND attnum > 0"),
	'id,note,_ts,ttl', '... but columns');
$worker->safe_psql('postgres', 'DROP EXTENSION ttl');

done_testing();
