# Tables of Citus are moved, split and made anew: no row is lost that has not expired,
# none is shown that has, and no time is changed; while users write and rows are
# deleted, too.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use CitusCluster;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

CitusCluster::skip_unless_installed();

my $cluster = CitusCluster->start_new(<<'END');
ttl.naptime = 100ms
autovacuum = off
client_min_messages = warning
citus.propagate_set_commands = 'local'
citus.shard_count = 2
END
my $coordinator = $cluster->coordinator;
my ($worker) = $cluster->workers;

# a container is distributed while it is written to, which logical decoding makes possible
$coordinator->safe_psql('postgres', q{
CREATE TABLE meanwhile (id int PRIMARY KEY, _ts timestamptz, ttl int);
INSERT INTO meanwhile VALUES (1, NULL, NULL), (2, now(), NULL), (3, '2020-01-01', NULL), (4, '2020-01-01', -1);
SELECT ttl.create_container('meanwhile', 3600, ts_column => '_ts', ttl_column => 'ttl'),
	ttl.alter_container('meanwhile', reaping => false)});
$coordinator->safe_psql('postgres', q{SELECT create_distributed_table_concurrently('meanwhile', 'id')});
is($coordinator->safe_psql('postgres', q{SELECT string_agg(id || coalesce(to_char(_ts, ' YYYY'), ' null'), ', ' ORDER BY id) FROM meanwhile WHERE id <> 2}),
	'1 null, 4 2020', 'create_distributed_table_concurrently leaves rows as they are');
is($cluster->stored('meanwhile'), '4', '... with expired ones');
$coordinator->safe_psql('postgres', 'DROP TABLE meanwhile');

#
# Live rows reference expired ones all the time, which nobody can delete.
#
$coordinator->safe_psql('postgres', q{
CREATE TABLE kinds (id int PRIMARY KEY);
CREATE TABLE parents (id int PRIMARY KEY, _ts timestamptz, ttl int);
SELECT create_reference_table('kinds'), create_distributed_table('parents', 'id');
CREATE TABLE children (parent int REFERENCES parents, id int, kind int, PRIMARY KEY (parent, id));
SELECT create_distributed_table('children', 'parent');
ALTER TABLE children ADD FOREIGN KEY (kind) REFERENCES kinds;
SELECT ttl.create_container('kinds', 3600), ttl.create_container('parents', 3600, '_ts', 'ttl'), ttl.create_container('children', -1);
INSERT INTO kinds SELECT generate_series(1, 4);
INSERT INTO parents (id, ttl) SELECT g, CASE WHEN g % 10 = 0 THEN -1 END FROM generate_series(1, 100) g;
INSERT INTO children SELECT g, 1, 1 + g % 4 FROM generate_series(1, 100) g;
INSERT INTO children (parent, id, _ts, ttl) SELECT g, 2, '2020-01-01', 7 FROM generate_series(1, 100) g;
CREATE VIEW places AS
	SELECT s.shardid, n.nodeport, logicalrelid FROM pg_dist_shard s JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node n USING (groupid);
BEGIN;
SET LOCAL ttl.touch = off;
UPDATE parents SET _ts = '2020-01-01' WHERE id <= 30;
UPDATE parents SET _ts = NULL WHERE id BETWEEN 91 AND 95;
UPDATE parents SET _ts = '2100-01-01' WHERE id = 96;
COMMIT;
BEGIN;
SET LOCAL ttl.touch = off;
UPDATE kinds SET _ts = '2020-01-01' WHERE id = 1;
COMMIT});

my $seen = q{SELECT count(*), count(_ts), sum(extract(epoch FROM nullif(_ts, '2100-01-01'))), count(ttl) FROM %s};
my %before = map { $_ => $coordinator->safe_psql('postgres', sprintf($seen, $_)) } qw(parents children kinds);

like($before{parents}, qr/^73\|68\|/, 'what has expired is hidden');

sub same_rows
{
	my ($name) = @_;

	for my $node ($coordinator, $worker)
	{
		is($node->safe_psql('postgres', sprintf($seen, $_)), $before{$_}, "$name: $_ are the same on " . $node->name) for sort keys %before;
	}
	$cluster->copies_are('kinds', 4, "$name: copies of kinds");
	is($cluster->stored('parents'), '100', '... expired ones that are referenced, too');
	is($coordinator->safe_psql('postgres', CitusCluster::with_expired('SELECT count(*) FROM children c WHERE NOT EXISTS (SELECT FROM parents p WHERE p.id = c.parent)')),
		'0', '... no reference leads nowhere');
	return;
}

sub move_all
{
	my ($mode) = @_;
	my ($one, $other) = map { $_->port } $cluster->workers;

	$coordinator->safe_psql('postgres', qq{
SELECT format('SELECT citus_move_shard_placement(%s, ''127.0.0.1'', %s, ''127.0.0.1'', %s, ''$mode'')', shardid, nodeport, $one + $other - nodeport)
	FROM places WHERE logicalrelid = 'parents'::regclass \\gexec
CALL citus_cleanup_orphaned_resources()});
	return;
}

my $first = q{(SELECT min(shardid) FROM places WHERE logicalrelid = 'parents'::regclass)};
my $workers = 'ARRAY(SELECT nodeid FROM pg_dist_node WHERE groupid <> 0)';
my %ways = (
	moved => sub { move_all($_[0]) },
	split => sub {
		$coordinator->safe_psql('postgres', "SELECT citus_split_shard_by_split_points($first, ARRAY[((shardminvalue::bigint + shardmaxvalue::bigint) / 2)::text], $workers, '$_[0]') FROM pg_dist_shard WHERE shardid = $first");
	},
	isolated => sub {
		my $tenant = $_[0] eq 'block_writes' ? 7 : 77;

		$coordinator->safe_psql('postgres', "SELECT isolate_tenant_to_new_shard('parents', $tenant, 'CASCADE', shard_transfer_mode => '$_[0]')");
	});
for my $mode ('block_writes', 'force_logical')
{
	for my $way ('moved', 'split', 'isolated')
	{
		$ways{$way}->($mode);
		same_rows("$way, $mode");
	}
}
my $third = $cluster->add_worker;
$coordinator->safe_psql('postgres', q{SELECT rebalance_table_shards('parents', shard_transfer_mode => 'force_logical'); CALL citus_cleanup_orphaned_resources()});
same_rows('rebalanced');
isnt($coordinator->safe_psql('postgres', 'SELECT count(*) FROM places WHERE nodeport = ' . $third->port), '0', '... to a new node');
is(join(' ', map { $_->safe_psql('postgres', q{SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND NOT convalidated AND conrelid::regclass::text ~ '_\d+$'}) } $cluster->nodes),
	'0 0 0 0', 'all foreign keys are valid');

$coordinator->safe_psql('postgres', q{SELECT alter_distributed_table('parents', shard_count => 3, cascade_to_colocated => true)});
same_rows('altered');
is($coordinator->safe_psql('postgres', q{SELECT string_agg(container || ' ' || default_ttl, ', ' ORDER BY container::text) FROM ttl.containers WHERE container::text !~ '\d'}),
	'children -1, kinds 3600, parents 3600', '... and containers as before');
$coordinator->safe_psql('postgres', q{SELECT undistribute_table('parents', cascade_via_foreign_keys => true)});
is($coordinator->safe_psql('postgres', sprintf($seen, $_)), $before{$_}, "undistributed: $_ are the same") for sort keys %before;
is($coordinator->stored('parents'), '100', '... expired ones, too');
is($coordinator->safe_psql('postgres', q{SELECT string_agg(container || ' ' || default_ttl, ', ' ORDER BY container::text) FROM ttl.containers WHERE container::text !~ '\d'}),
	'children -1, kinds 3600, parents 3600', '... and containers as before');
is(join(' ', $cluster->on_each('SELECT count(*) FROM ttl.container')), '3 0 0 0', '... on this node alone');
$coordinator->safe_psql('postgres', q{ALTER TABLE children DROP CONSTRAINT children_parent_fkey});
$coordinator->safe_psql('postgres', q{CALL ttl.reap('parents')});
is($coordinator->stored('parents'), '73', '... where rows can be deleted');
$coordinator->safe_psql('postgres', q{DROP VIEW places; DROP TABLE children, parents, kinds});

#
# Tables alone, and partitioned ones, in no transaction block
#
$coordinator->safe_psql('postgres', q{
CREATE TABLE parents (id int PRIMARY KEY);
CREATE TABLE parted (id int, at int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20);
SELECT create_distributed_table('parents', 'id', colocate_with => 'none'), create_distributed_table('parted', 'id', colocate_with => 'none');
SELECT ttl.create_container(c, 3600), ttl.alter_container(c, reaping => false) FROM unnest('{parents, parted}'::regclass[]) c;
INSERT INTO parents (id, _ts) SELECT g, CASE WHEN g > 10 THEN now() ELSE '2020-01-01' END FROM generate_series(1, 30) g;
INSERT INTO parted (id, at, _ts) SELECT g, g % 20, CASE WHEN g > 10 THEN now() ELSE '2020-01-01' END FROM generate_series(1, 30) g});
for my $call (q{alter_distributed_table('%s', shard_count => 3, cascade_to_colocated => false)}, q{undistribute_table('%s')})
{
	for my $table ('parents', 'parted')
	{
		$coordinator->safe_psql('postgres', 'SELECT ' . sprintf($call, $table));
		is($coordinator->safe_psql('postgres', "SELECT count(*), ttl.expired_count('$table') FROM $table"), '20|10', sprintf("$call: all rows are there", $table));
	}
	is($coordinator->safe_psql('postgres', q{SELECT string_agg(container::text, ' ' ORDER BY container::text) FROM ttl.containers WHERE container::text ~ '^par'}),
		'parents parted', '... of the same containers');
}
$coordinator->safe_psql('postgres', 'DROP TABLE parents, parted');

#
# A rebalance under write load, with the reaper on: whatever was acknowledged and has
# not expired is there exactly once, whatever has expired isn't.
#
$coordinator->safe_psql('postgres', q{SELECT citus_set_node_property('127.0.0.1', } . $third->port . q{, 'shouldhaveshards', false)});
$coordinator->safe_psql('postgres', q{
CREATE TABLE parents (id bigint PRIMARY KEY, v int);
SELECT create_distributed_table('parents', 'id', shard_count => 4);
CREATE TABLE children (parent bigint REFERENCES parents ON DELETE CASCADE, id int, PRIMARY KEY (parent, id));
SELECT create_distributed_table('children', 'parent', colocate_with => 'parents');
SELECT ttl.create_container('parents', 3600), ttl.create_container('children', 3600);
CREATE SEQUENCE ids;
CREATE TABLE ledger (id bigint, short boolean, at timestamptz DEFAULT clock_timestamp());
CREATE VIEW places AS
	SELECT s.shardid, n.nodeport, logicalrelid FROM pg_dist_shard s JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node n USING (groupid)});

# each session writes rows that live long and rows that live for a second, and notes
# those that are committed; keys that have expired are taken again
my $load = $coordinator->basedir . '/load.sql';
append_to_file($load, q{
SELECT nextval('ids') AS id \gset
BEGIN;
INSERT INTO parents (id, v) VALUES (:id, 0);
INSERT INTO children (parent, id) VALUES (:id, 1);
INSERT INTO ledger VALUES (:id, false);
COMMIT;
SELECT nextval('ids') AS id \gset
BEGIN;
INSERT INTO parents (id, v) VALUES (:id, 0);
INSERT INTO children (parent, id) VALUES (:id, 1);
UPDATE parents SET ttl = 1 WHERE id = :id;
INSERT INTO ledger VALUES (:id, true);
COMMIT;
INSERT INTO parents (id, v, ttl) VALUES (- :client_id - 1, 0, 1) ON CONFLICT (id) DO UPDATE SET v = parents.v + 1;
SELECT id AS again FROM ledger WHERE NOT short ORDER BY random() LIMIT 1 \gset
UPDATE parents SET v = v + 1 WHERE id = :again;
});
my $log = $coordinator->basedir . '/pgbench';
my ($out, $err) = ('', '');
my $pgbench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', 3, '-R', 60, '-T', 600, '--max-tries', 20, '-f', $load, '-h', $coordinator->host, '-p', $coordinator->port, 'postgres' ],
	'>', \$out, '2>', \$err);
$coordinator->wait_until('SELECT count(*) > 50 FROM ledger');
$coordinator->wait_until(q{SELECT rows_deleted > 5 FROM ttl.stat_containers WHERE container = 'parents'::regclass});
for my $mode ('force_logical', 'block_writes', 'force_logical')
{
	move_all($mode);
	is($coordinator->safe_psql('postgres', q{SELECT count(*) FROM ledger l LEFT JOIN (SELECT id, count(*) AS n FROM parents GROUP BY id) p USING (id)
		WHERE NOT short AND n IS DISTINCT FROM 1}), '0', "moved by $mode under load: each row is there once");
}
$pgbench->signal('TERM');
$pgbench->finish;
$coordinator->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pgbench'});
unlike($err, qr/ERROR/, 'no writer has met an error');
note("$out$err");
cmp_ok($coordinator->safe_psql('postgres', 'SELECT count(*) FROM ledger'), '>', 200, 'there was some load');

$coordinator->wait_until(q{SELECT max(at) + interval '1.5 seconds' < clock_timestamp() FROM ledger});
$coordinator->safe_psql('postgres', q{CREATE TABLE expected AS SELECT id FROM ledger WHERE NOT short});
my $lives = $coordinator->safe_psql('postgres', 'SELECT count(*), sum(id) FROM expected');
for my $node ($coordinator, $cluster->workers)
{
	is($node->safe_psql('postgres', 'SELECT count(*), sum(id) FROM parents'), $lives, 'the ledger is exact on ' . $node->name);
}
is($coordinator->safe_psql('postgres', 'SELECT count(*) FROM expected JOIN parents USING (id)'), (split /\|/, $lives)[0], '... row by row');
$cluster->stored_are('parents', (split /\|/, $lives)[0], 'what has expired gets deleted');
$cluster->stored_are('children', (split /\|/, $lives)[0], '... with its children');
is($coordinator->safe_psql('postgres', 'SELECT count(*) FROM children c JOIN parents p ON p.id = c.parent'), (split /\|/, $lives)[0], '... and no others');
is(join(' ', $cluster->on_each(q{SELECT coalesce(sum(blocked_rows), 0) FROM ttl.stat_shards()})), '0 0 0 0', 'no row is in the way');

#
# Shards are rebalanced to a third node, which restarts in the midst of it.  Statements and
# moves may fail then; a row is noted in the transaction that writes it, and both or none
# of them are there.
#
$coordinator->safe_psql('postgres', q{DROP TABLE expected; TRUNCATE ledger; CREATE TABLE noted (id bigint PRIMARY KEY)});
$coordinator->safe_psql('postgres', q{SELECT citus_set_node_property('127.0.0.1', } . $third->port . q{, 'shouldhaveshards', true)});
my $writes = $coordinator->basedir . '/writes.sql';
append_to_file($writes, q{
BEGIN;
SELECT nextval('ids') AS id \gset
INSERT INTO parents (id, v) VALUES (:id, 1);
INSERT INTO children (parent, id) VALUES (:id, 1);
INSERT INTO noted VALUES (:id);
COMMIT;
BEGIN;
SELECT nextval('ids') AS id \gset
INSERT INTO parents (id, v, ttl) VALUES (:id, 1, 1);
COMMIT;
} x 3000);
my @writers = map {
	IPC::Run::start([ 'psql', '-Xqt', '-d', $coordinator->connstr('postgres'), '-f', $writes ], '>', '/dev/null', '2>', '/dev/null')
} 1, 2;
my $move = q{SELECT rebalance_table_shards('parents', shard_transfer_mode => 'force_logical')};
$coordinator->wait_until('SELECT count(*) > 50 FROM noted');
my $rebalance = IPC::Run::start([ 'psql', '-Xq', '-d', $coordinator->connstr('postgres'), '-c', $move ],
	'>', '/dev/null', '2>', '/dev/null');
$coordinator->wait_until(q{SELECT count(*) > 0 FROM get_rebalance_progress() WHERE progress > 0});
$third->stop('immediate');
$third->start;
$rebalance->finish;
my $noted = $coordinator->safe_psql('postgres', 'SELECT count(*) FROM noted');
$coordinator->wait_until(q{SELECT count(*) > } . ($noted + 50) . q{ FROM noted});
ok($coordinator->poll_query_until('postgres', $move, ''), 'rebalanced under load, although the node has restarted');
isnt($coordinator->safe_psql('postgres', q{SELECT count(*) FROM places WHERE nodeport = } . $third->port), '0', '... to that node');
$_->signal('TERM'), $_->finish for @writers;
$coordinator->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE query ~ 'INTO (parents|children|noted)' AND pid <> pg_backend_pid()});
$coordinator->safe_psql('postgres', 'SELECT recover_prepared_transactions(); CALL citus_cleanup_orphaned_resources()');
$lives = $coordinator->safe_psql('postgres', 'SELECT count(*), sum(id) FROM (SELECT id FROM noted UNION ALL SELECT id FROM parents WHERE id <= ' . $coordinator->safe_psql('postgres', 'SELECT min(id) - 1 FROM noted') . ') l');
$coordinator->wait_until(q{SELECT count(*) = 0 FROM parents WHERE ttl = 1});
is($coordinator->safe_psql('postgres', 'SELECT count(*), sum(id) FROM parents'), $lives, 'the ledger is exact');
is($coordinator->safe_psql('postgres', 'SELECT count(*) FROM children c JOIN parents p ON p.id = c.parent'), (split /\|/, $lives)[0], '... with its children');
$cluster->stored_are('parents', (split /\|/, $lives)[0], '... and what has expired gets deleted');

# What was added to a table is known where Citus has made another of it
$coordinator->safe_psql('postgres', q{CREATE TABLE moved (id int PRIMARY KEY, at timestamptz NOT NULL);
CREATE INDEX mine ON moved (at);
SELECT create_distributed_table('moved', 'id');
SELECT ttl.create_container('moved', 60, 'at');
SELECT undistribute_table('moved');
SELECT ttl.drop_container('moved', drop_columns => true)});
is($coordinator->safe_psql('postgres', q{SELECT attname FROM pg_attribute WHERE attrelid = 'moved'::regclass AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'moved'::regclass ORDER BY 1}), "at\nid\nmine\nmoved_pkey", 'drop_container takes back what was added to a table that is distributed no longer');
$cluster->stop;
done_testing();
