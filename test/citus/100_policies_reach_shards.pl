# Policies of distributed and reference tables of Citus are in force on all nodes,
# from the transaction that changes them on; each node deletes from its own shards.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use CitusCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

CitusCluster::skip_unless_installed();

# whole partitions are emptied only where nobody decodes
my $cluster = CitusCluster->start_new(<<'END');
ttl.reaper = off
ttl.naptime = 100ms
wal_level = replica
autovacuum = off
END
my $coordinator = $cluster->coordinator;
my ($worker) = $cluster->workers;

# Settings that a table's policy has on all nodes, of its shells and of its shards;
# those that differ, or lack, are told.
my $shards = q{SELECT count(*) FROM pg_dist_placement JOIN pg_dist_shard USING (shardid) WHERE logicalrelid = '%s'::regclass};

sub policy
{
	my ($table, $columns) = @_;
	my $places = $cluster->nodes + $coordinator->safe_psql('postgres', sprintf($shards, $table));
	my %found;

	$found{$_}++ for map { split /\n/ } $cluster->on_each("SELECT $columns FROM ttl.container WHERE relid::text ~ '^$table(_\\d+)?\$'");
	return join(' and ', map { $found{$_} == $places ? $_ : "$_ in $found{$_} of $places" } sort keys %found);
}

sub answer
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

is(join(' ', $cluster->on_each(q{SELECT count(*) FROM pg_extension WHERE extname = 'ttl'})), '1 1 1', 'the extension comes to all nodes');

# a distributed table, a reference table
$coordinator->safe_psql('postgres', q{
CREATE TABLE items (id int PRIMARY KEY, v text);
CREATE TABLE colors (id int PRIMARY KEY, v text);
SELECT create_distributed_table('items', 'id'), create_reference_table('colors');
INSERT INTO items SELECT g, 'before' FROM generate_series(1, 8) g;
SELECT ttl.create_container('items', 3600);
SELECT ttl.create_container('colors', '1 day', touch_on_update => false);
INSERT INTO items (id, ttl) VALUES (100, -1);
INSERT INTO items (id, _ts) SELECT g, '2020-01-01' FROM generate_series(101, 108) g;
INSERT INTO colors (id, _ts) VALUES (1, '2020-01-01'), (2, DEFAULT);
});
is(policy('items', 'default_time_to_live, ts_column, ttl_column, indexing'), '3600|_ts|ttl|consistent', 'a distributed table');
is(policy('colors', 'default_time_to_live, touch_on_update'), '86400|f', 'a reference table');
is(answer('SELECT count(*) FROM items'), '9', 'what expires is hidden');
is(join(' ', $cluster->on_each('SELECT count(*) FROM colors')), '1 1 1', '... on each node');
is($cluster->stored('items'), '17', '... and is there, for SET LOCAL');

# containers
sub make_container
{
	my ($table) = @_;

	$coordinator->safe_psql('postgres', qq{
CREATE TABLE $table (id int PRIMARY KEY, _ts timestamptz, ttl int);
INSERT INTO $table VALUES (1, NULL, NULL), (2, now(), NULL), (3, '2020-01-01', NULL), (4, '2020-01-01', -1), (5, '2020-01-01', 2000000000);
SELECT ttl.create_container('$table', 3600, ts_column => '_ts', ttl_column => 'ttl');
});
	return;
}

my $rows = 'string_agg(id || coalesce(to_char(_ts, \' YYYY\'), \' null\'), \', \' ORDER BY id)';
my $year = answer(q{SELECT to_char(now(), 'YYYY')});

for my $case (
	[ 'distributed', q{create_distributed_table('distributed', 'id')} ],
	[ 'referenced', q{create_reference_table('referenced')} ],
	[ 'local', q{citus_add_local_table_to_metadata('local')} ])
{
	my ($table, $call) = @$case;

	make_container($table);
	$coordinator->safe_psql('postgres', "SELECT $call");
	is(policy($table, 'default_time_to_live'), '3600', "a container made $table");
	is(answer("SELECT $rows FROM $table"), "1 null, 2 $year, 4 2020, 5 2020", '... with its rows, NULL and given times as they were');
	is($cluster->stored($table), '5', '... and with expired ones');
}
make_container('undone');
$coordinator->safe_psql('postgres', q{BEGIN; SELECT create_distributed_table('undone', 'id'); SELECT ttl.set_default_ttl('undone', 7200); ROLLBACK});
is($coordinator->safe_psql('postgres', q{SELECT default_ttl FROM ttl.containers WHERE container = 'undone'::regclass}), '3600', 'ROLLBACK');
$coordinator->safe_psql('postgres', q{SELECT ttl.set_default_ttl('undone', 7200)});
is(answer("SELECT $rows FROM undone"), "1 null, 2 $year, 4 2020, 5 2020", 'leaves it a container like any other');
make_container('together');
is(answer(q{
BEGIN;
SELECT create_distributed_table('together', 'id');
SELECT ttl.set_default_ttl('together', -1);
SELECT count(*) FROM together;
COMMIT}) =~ s/\s+//gr, '5', 'both in one transaction');
is(policy('together', 'default_time_to_live'), '-1', '... that commits');

# changes of a policy
is(answer(q{
BEGIN;
SELECT ttl.set_default_ttl('items', NULL::int);
SELECT count(*) FROM items;
SELECT count(*) FROM items WHERE id = 101;
SELECT ttl.set_default_ttl('items', 3600);
SELECT count(*) FROM items;
SELECT ttl.set_default_ttl('items', -1);
SELECT count(*) FROM items;
ROLLBACK;
SELECT count(*) FROM items}) =~ s/\s+/ /gr, ' 17 1 9 17 9', 'a change holds in its transaction, and no longer than that');
is(policy('items', 'default_time_to_live'), '3600', '... on all nodes');
my $settings = 'default_time_to_live, indexing, touch_on_update, ts_precision, reaping, reap_delay, replication_origin';
$coordinator->safe_psql('postgres', q{
SELECT ttl.set_default_ttl('items', '2 hours');
SELECT ttl.alter_container('items', touch_on_update => false, reaping => false, reap_delay => '1 hour',
	replication_origin => true, ts_precision => '90 seconds')});
is(policy('items', $settings), '7200|consistent|f|00:01:30|f|01:00:00|t', 'all settings arrive');
$coordinator->safe_psql('postgres', q{
SELECT ttl.alter_container('items', touch_on_update => true, reaping => true, reap_delay => '0',
	replication_origin => false, ts_precision => '0')});
is(policy('items', $settings), '7200|consistent|t||t|00:00:00|f', '... and go back');

# names
$coordinator->safe_psql('postgres', q{
ALTER TABLE items RENAME _ts TO changed;
ALTER TABLE items RENAME ttl TO "time to live";
ALTER TABLE items RENAME TO things});
is(policy('things', 'ts_column, ttl_column'), 'changed|time to live', 'RENAME is followed');
is(answer('SELECT count(*) FROM things'), '9', '... on the shards, too');
$coordinator->safe_psql('postgres', q{UPDATE things SET v = 'after', changed = '2020-01-01' WHERE id = 1});
is(answer(q{SELECT changed > now() - interval '1 hour' FROM things WHERE id = 1}), 't', '... by the stamp as well');
$coordinator->safe_psql('postgres', q{
ALTER TABLE things RENAME TO items; ALTER TABLE items RENAME changed TO _ts; ALTER TABLE items RENAME "time to live" TO ttl;
CREATE SCHEMA s; ALTER TABLE items SET SCHEMA s});
is(answer('SELECT count(*) FROM s.items'), '9', 'in another schema');
$coordinator->safe_psql('postgres', q{SELECT ttl.set_default_ttl('s.items', 3600); ALTER TABLE s.items SET SCHEMA public});
is(policy('items', 'default_time_to_live'), '3600', '... a change arrives');

# partitions
$coordinator->safe_psql('postgres', q{
CREATE TABLE events (id int, day date, v int) PARTITION BY RANGE (day);
CREATE TABLE events_a PARTITION OF events FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
SELECT create_distributed_table('events', 'id');
SELECT ttl.create_container('events', 3600);
CREATE TABLE events_b PARTITION OF events FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
CREATE TABLE events_c (id int, day date, v int, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), ttl int);
ALTER TABLE events ATTACH PARTITION events_c FOR VALUES FROM ('2026-03-01') TO ('2026-04-01');
INSERT INTO events (id, day, _ts) SELECT g, make_date(2026, 1 + g % 3, 7), CASE WHEN g > 30 THEN '2020-01-01'::timestamptz ELSE now() END FROM generate_series(1, 60) g});
is(policy('events', 'default_time_to_live'), '3600', 'a partitioned table');
is(answer('SELECT count(*) FROM events'), '30', 'all partitions hide');
is(answer("SELECT count(*) FROM events_$_"), '10', "... the one by itself, $_") for 'a' .. 'c';
is($coordinator->safe_psql('postgres', q{SELECT sum(result::int) FROM run_command_on_shards('events_c', 'SELECT count(*) FROM %s')}), '10', '... and its shards');
$coordinator->safe_psql('postgres', q{ALTER TABLE events DETACH PARTITION events_c});
is(answer('SELECT count(*) FROM events_c'), '10', 'a partition that is detached goes on hiding');
is(policy('events_c', 'default_time_to_live'), '3600', '... as a container');

# one more node
my $third = $cluster->add_worker;
$coordinator->safe_psql('postgres', q{SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) FROM pg_dist_node WHERE groupid = 0});
$coordinator->safe_psql('postgres', q{SET client_min_messages = warning; SELECT rebalance_table_shards(shard_transfer_mode => 'block_writes'); CALL citus_cleanup_orphaned_resources()});
is(policy('items', 'default_time_to_live'), '3600', 'a new node knows the policies of tables');
is(policy('colors', 'default_time_to_live'), '86400', '... of reference tables');
is(policy('events', 'default_time_to_live'), '3600', '... of partitioned ones');
is(join(' ', $cluster->on_each('SELECT count(*) FROM items')), '9 9 9 9', 'all nodes hide alike');
is(join(' ', $cluster->on_each('SELECT count(*) FROM events')), '20 20 20 20', '... partitions, too');
is(join(' ', $cluster->on_each('SELECT count(*) FROM colors')), '1 1 1 1', '... and their own copies');

# what is refused
for my $case (
	[ $coordinator, q{ALTER TABLE items ALTER _ts TYPE timestamp}, '2BP01', 'another type' ],
	[ $coordinator, q{DROP INDEX items__ts_idx}, '2BP01', 'to drop the expiry index' ],
	[ $coordinator, q{ALTER TABLE items DROP COLUMN ttl}, '2BP01', 'to drop a column' ],
	[ $coordinator, q{SET citus.enable_unsafe_triggers = on; DROP TRIGGER "~ttl" ON items}, '2BP01', 'to drop the trigger' ],
	[ $coordinator, q{SET citus.enable_unsafe_triggers = on; CREATE OR REPLACE TRIGGER "~ttl" BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION ttl.on_write('default_ttl', '1')},
		'2BP01', 'to replace the trigger' ],
	[ $coordinator, q{BEGIN; CALL ttl.reap('items')}, '25001', 'to reap in a transaction block' ],
	[ $worker, q{SELECT ttl.set_default_ttl('items', 1)}, '0A000', 'a policy of the shell on a worker' ],
	[ $worker, q{SELECT ttl.alter_container('items', reaping => false)}, '0A000', 'a setting of it' ],
	[ $worker, q{SELECT ttl.drop_container('items')}, '0A000', 'to drop it there' ])
{
	my ($node, $sql, $state, $name) = @$case;

	$node->fails($sql, $state, "refused: $name");
}
my $shard = $worker->safe_psql('postgres', q{SELECT relid FROM ttl.container WHERE relid::text ~ '^items_\d+$' LIMIT 1});
$worker->fails("SELECT ttl.$_", '0A000', "refused on a shard: $_") for "set_default_ttl('$shard', 1)", "drop_container('$shard')";
is(policy('items', 'default_time_to_live'), '3600', 'nothing has changed');

# triggers of users are for Citus to judge
$coordinator->safe_psql('postgres', q{
CREATE FUNCTION noop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
CREATE TRIGGER theirs BEFORE UPDATE ON undone FOR EACH ROW EXECUTE FUNCTION noop()});
$coordinator->fails(q{SELECT create_distributed_table('undone', 'id')}, 'XX000', 'triggers of users', qr/because it has triggers/);
$coordinator->fails(q{CREATE TRIGGER theirs BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION noop()}, 'XX000', '... created later', qr/triggers are not supported/);
is(answer('SHOW citus.enable_unsafe_triggers'), 'off', 'the setting is as it was');

# owners who are nobody special
$coordinator->safe_psql('postgres', q{
CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; GRANT CREATE ON SCHEMA public TO alice, bob;
SET ROLE alice;
CREATE TABLE hers (id int PRIMARY KEY);
SELECT create_distributed_table('hers', 'id');
SELECT ttl.create_container('hers', 3600);
INSERT INTO hers (id, _ts) VALUES (1, '2020-01-01'), (2, DEFAULT);
SELECT ttl.set_default_ttl('hers', 7200);
CREATE TABLE other (id int PRIMARY KEY);
SELECT ttl.create_container('other', 3600);
INSERT INTO other (id, _ts) VALUES (1, '2020-01-01'), (2, DEFAULT);
SELECT create_distributed_table('other', 'id');
CALL ttl.reap('hers');
GRANT ALL ON hers, other TO bob});
is(policy('hers', 'default_time_to_live'), '7200', 'any owner can have a container');
is(policy('other', 'default_time_to_live'), '3600', '... and distribute it');
is(answer(q{SET ROLE bob; SELECT count(*) FROM hers; SELECT count(*) FROM other}), "1\n1", 'others see what they may');
is($cluster->stored('hers'), '1', 'and he can reap');
is(answer(q{SET ROLE alice; SELECT ttl.expired_count('other')}), '1', '... and count');
my $forged = q{ BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION ttl.on_write('default_ttl', '1', 'ts_column', '_ts', 'indexing', 'none')};
for my $node ($coordinator, $worker)
{
	$node->safe_psql('postgres', q{SET citus.enable_ddl_propagation = off; CREATE TABLE plain (id int, _ts timestamptz DEFAULT '2020-01-01'); INSERT INTO plain VALUES (1); GRANT ALL ON plain TO bob});
	$node->fails(q{SET ROLE bob; SET citus.enable_unsafe_triggers = on; SET application_name = 'citus_internal gpid=1'; CREATE TRIGGER "~ttl"} . sprintf($forged, 'plain'),
		'42501', 'nobody makes a container of a table of somebody else', qr/./);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM plain'), '1', '... its rows are there');
}
my $hers = $worker->safe_psql('postgres', q{SELECT relid FROM ttl.container WHERE relid::text ~ '^hers_\d+$' LIMIT 1});
for my $name ('~ttl', '~ttl2')
{
	$worker->fails(qq{SET ROLE bob; SET citus.enable_unsafe_triggers = on; SET citus.enable_manual_changes_to_shards = on; CREATE OR REPLACE TRIGGER "$name"} . sprintf($forged, $hers),
		'42501', "nor another policy for a shard: $name");
}
is(policy('hers', 'default_time_to_live'), '7200', '... which it hasn\'t');

# deletion
$coordinator->safe_psql('postgres', q{CREATE TABLE gone (id int PRIMARY KEY); SELECT create_distributed_table('gone', 'id', shard_count => 8), ttl.create_container('gone', 3600)});
$coordinator->add_expired('gone', 1000);
$coordinator->safe_psql('postgres', q{INSERT INTO gone (id) SELECT g FROM generate_series(2001, 2100) g});
is(answer(q{SELECT ttl.expired_count('gone')}), '1000', 'expired rows are counted on all nodes');
my ($rc, $stdout, $stderr) = $coordinator->psql('postgres', q{CALL ttl.reap('gone', 10)});
is($cluster->stored('gone'), 1100 - 8 * 10, 'CALL ttl.reap, so many from each shard');
$cluster->turn_reaper('on');
$cluster->stored_are('gone', 100, 'workers of all nodes delete');
is(answer('SELECT count(*) FROM gone'), '100', '... what has expired, and nothing else');
is(answer(q{SELECT ttl.expired_count('gone')}), '0', '... and leave none');
is($coordinator->statistics('rows_deleted, blocked_rows, lag', 'gone'), '1000|0|', 'each row is deleted once, and counted on the coordinator');
is(join(' ', $cluster->on_each(q{SELECT coalesce(sum(rows_deleted), 0) > 0 FROM ttl.stat_shards() WHERE container LIKE '%gone'})), 't t t t', '... by its own node');
$cluster->stored_are('items', 9, 'in other containers, too');
$cluster->copies_are('colors', 1, 'each copy of a reference table');
$cluster->turn_reaper('off');

# partitions of shards
$coordinator->safe_psql('postgres', q{
CREATE TABLE logs (id int, day date) PARTITION BY RANGE (day);
CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
CREATE TABLE logs_2 PARTITION OF logs FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
SELECT create_distributed_table('logs', 'id', shard_count => 4);
SELECT ttl.create_container('logs', 3600);
INSERT INTO logs (id, day) SELECT g, '2026-02-07' FROM generate_series(1, 10) g;
INSERT INTO logs (id, day, _ts) SELECT g, '2026-01-07', '2020-01-01' FROM generate_series(1, 12000) g;
SELECT ttl.set_default_ttl('logs', 3600)});
$cluster->turn_reaper('on');
$cluster->stored_are('logs', 10, 'what is in partitions is deleted');
$cluster->turn_reaper('off');

# the end
$coordinator->safe_psql('postgres', q{BEGIN; SELECT ttl.drop_container('other'); ROLLBACK});
is(policy('other', 'default_time_to_live'), '3600', 'drop_container can be taken back');
$coordinator->safe_psql('postgres', q{SELECT ttl.drop_container('other'), ttl.drop_container('colors', drop_columns => true), ttl.drop_container('events'); INSERT INTO other (id, _ts) VALUES (7, '2020-01-01')});
is(policy($_, 'default_time_to_live'), '', "ttl.drop_container('$_') reaches all nodes") for qw(other colors events);
is(answer(q{SELECT count(*) FROM other}), '2', 'its rows are visible');
is(join(' ', $cluster->on_each(q{SELECT count(*) FROM pg_trigger WHERE tgfoid = 'ttl.on_write'::regproc AND tgrelid::regclass::text ~ '^(other|colors|events(_[ab])?)(_\d+)?$'})), '0 0 0 0', '... and have no trigger');
is(join(' ', $cluster->on_each(q{SELECT count(*) FROM pg_attribute WHERE attname IN ('_ts', 'ttl') AND attrelid::regclass::text ~ '^colors(_\d+)?$'})), '0 0 0 0', '... nor columns where they shan\'t');
$coordinator->safe_psql('postgres', q{DROP TABLE items});
is(join(' ', $cluster->on_each(q{SELECT count(*) FROM ttl.container WHERE relid::regclass::text ~ '^(items.*|\d+)$'})), '0 0 0 0', 'DROP TABLE forgets, on all nodes');
$coordinator->safe_psql('postgres', q{SET client_min_messages = warning; DROP EXTENSION ttl CASCADE});
is(join(' ', $cluster->on_each(q{SELECT count(*) FROM pg_extension WHERE extname = 'ttl'})), '0 0 0 0', 'the extension goes from all nodes');
is(answer('SELECT count(*) FROM hers'), '1', '... and the tables stay');

$cluster->stop;
done_testing();
