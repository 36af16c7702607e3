# Expired rows of a distributed container move to an archive that is co-located with it:
# on the node of their shard, in the transaction that deletes them.  Where they cannot,
# they stay.
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
ttl.reaper = off
ttl.naptime = 100ms
autovacuum = off
client_min_messages = warning
END
my $coordinator = $cluster->coordinator;
my ($worker) = $cluster->workers;

sub answer
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

# Rows that have expired, whose v says which they are
my $last = 0;

sub add
{
	my ($number, $table, $columns) = @_;

	$columns = $columns ? ", $columns" : '';
	my $first = $last + 1;
	$last += $number;
	answer("INSERT INTO ${\($table // 'item')} SELECT g, 'v' || g, '2020-01-01'$columns FROM generate_series($first, $last) g");
	return;
}

# Each row that was added has moved to the archive, once and in full.
sub all_moved
{
	my ($name, $archive) = @_;

	is(answer("SELECT count(*), count(DISTINCT id), bool_and(v = 'v' || id) FROM ${\($archive // 'gone')}"), "$last|$last|t", $name);
	return;
}

# None of so many rows has moved, and the reaper says why.
sub stay
{
	my ($number, $error, $name) = @_;

	answer(q{CALL ttl.reap('item')});
	is($cluster->stored('item'), $number, "$name: rows stay");
	like($coordinator->statistics('last_error', 'item'), $error, '... and an error says why');
	$coordinator->fails(qq{INSERT INTO item VALUES ($last, 'new')}, '\w+', '... and keep their keys', $error);
	return;
}

my $elsewhere = qr/cannot move to archive "gone"/;

#
# Which tables can be archives
#
answer(q{
CREATE TABLE item (id int PRIMARY KEY, v text, _ts timestamptz NOT NULL DEFAULT now());
CREATE TABLE gone (id int, v text, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE apart (id int, v text);
CREATE TABLE other (id int, v text);
CREATE TABLE plain (id int, v text);
CREATE TABLE copied (id int, v text);
SELECT create_distributed_table('item', 'id'), create_distributed_table('gone', 'id', colocate_with => 'item'),
	create_distributed_table('apart', 'id', colocate_with => 'none'), create_distributed_table('other', 'v'), create_reference_table('copied');
CREATE TABLE color (id int PRIMARY KEY, v text);
SELECT create_reference_table('color');
SELECT ttl.create_container('color', 3600);
SELECT ttl.create_container('item', 3600, ts_column => '_ts');
CREATE TABLE local (id int PRIMARY KEY, v text);
SELECT ttl.create_container('local', 3600)});
for my $case ([ 'item', 'apart' ], [ 'item', 'other' ], [ 'item', 'plain' ], [ 'item', 'copied' ], [ 'color', 'copied' ], [ 'local', 'gone' ])
{
	$coordinator->fails(sprintf(q{SELECT ttl.alter_container('%s', archive_to => '%s')}, @$case), '0A000', "refused: @$case");
}
$coordinator->fails(q{SELECT ttl.alter_container('item', archive_to => 'gone', archive_columns => '{v}')}, '42703', 'refused: without the distribution column',
	qr/distribution column "id" of container "item" is not taken along/);
answer(q{DROP TABLE apart, other, plain, copied, color, local; SELECT ttl.alter_container('item', archive_to => 'gone')});

#
# All ways to delete
#
add(10);
answer(q{INSERT INTO item VALUES (1, 'live'); INSERT INTO item VALUES (2, 'live') ON CONFLICT (id) DO UPDATE SET v = 'wrong'});
$worker->safe_psql('postgres', q{INSERT INTO item VALUES (3, 'live') ON CONFLICT DO NOTHING; INSERT INTO item VALUES (4, 'live')});
answer(q{COPY item (id, v) FROM STDIN;
5	live
\.
});
is(answer(q{SELECT string_agg(id || v, ' ' ORDER BY id) FROM gone}), '1v1 2v2 3v3 4v4 5v5', 'rows move when their keys are taken');
is(answer(q{SELECT string_agg(id || v, ' ' ORDER BY id) FROM item}), '1live 2live 3live 4live 5live', '... for new ones');
answer(q{CALL ttl.reap('item')});
all_moved('CALL ttl.reap');
add(100);
$cluster->turn_reaper('on');
$cluster->stored_are('item', 5, 'workers of the reaper');
$cluster->turn_reaper('off');
all_moved('... on all nodes');
is(answer(q{SELECT count(*) FROM gone WHERE tableoid::regclass::text <> 'gone_' || get_shard_id_for_distribution_column('gone', id)}), '0', '... each to the shard of its key');
is($coordinator->statistics('rows_deleted + rows_evicted, rows_archived', 'item'), '110|110', '... and counted');
answer(q{BEGIN; INSERT INTO item VALUES (1000, 'a', '2020-01-01'); INSERT INTO item VALUES (1000, 'b'); ROLLBACK});
all_moved('ROLLBACK undoes both');

#
# What holds Citus's lock on the place of a shard keeps its rows there: it may copy the
# container and the archive one after the other.
#
add(100);
my $shard = $worker->safe_psql('postgres', q{
SELECT max(shardid) FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_local_group USING (groupid)
 WHERE logicalrelid = 'item'::regclass});
$worker->safe_psql('postgres', "BEGIN; SELECT lock_shard_metadata(7, ARRAY[$shard]); PREPARE TRANSACTION 'copying'");
$worker->fails("SET lock_timeout = '100ms'; CALL ttl.reap('item_$shard')", '55P03', 'no row leaves a shard while Citus copies it', qr/lock timeout/);
$worker->safe_psql('postgres', q{ROLLBACK PREPARED 'copying'});

# The node that a shard moves to hears later than others that it is there, and gets statements from them meanwhile.
sub place
{
	$worker->safe_psql('postgres', qq{
UPDATE pg_dist_placement SET groupid = $_[0] WHERE shardid =
	(SELECT shardid FROM pg_dist_shard WHERE logicalrelid = 'gone'::regclass AND shardminvalue = (SELECT shardminvalue FROM pg_dist_shard WHERE shardid = $shard))});
	return;
}
my $expired = $worker->safe_psql('postgres', "SET ttl.show_expired = on; SELECT max(id) FROM item_$shard");
place(999);
$worker->fails("INSERT INTO item_$shard VALUES ($expired, 'live')", '55P03', 'nor does one while its node does not know where the archive is', qr/are being copied/);
my $insert = $worker->background_psql('postgres');
$insert->query_until(qr/begun/, "\\echo begun\nBEGIN; INSERT INTO item_$shard VALUES ($expired, 'live') RETURNING v;\n");
ok($worker->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query LIKE 'INSERT INTO item_%'"),
	'... but an INSERT waits for a moment');
place('(SELECT groupid FROM pg_dist_local_group)');
is($insert->query_safe('SELECT v FROM gone WHERE id = ' . $expired . '; ROLLBACK') =~ s/\s+/ /gr, "live v$expired", '... and goes on');
$insert->quit;
answer(q{CALL ttl.reap('item')});
all_moved('... but afterwards');

#
# Rights are those of the container's owner.
#
answer(q{
CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN;
ALTER TABLE item OWNER TO alice; ALTER TABLE gone OWNER TO alice;
GRANT INSERT, SELECT ON item TO bob});
add(2);
answer(qq{SET ROLE bob; INSERT INTO item VALUES ($last, 'live'), ($last - 1, 'live')});
all_moved('who inserts needs no rights on the archive');
answer(q{REVOKE INSERT ON gone FROM alice});
add(1);
stay(8, qr/permission denied for table gone/, 'the owner does');
answer(q{GRANT INSERT ON gone TO alice; CALL ttl.reap('item')});
all_moved('... and nothing else');
answer(q{ALTER TABLE gone OWNER TO bob; GRANT INSERT ON gone TO alice});
$coordinator->fails(q{SET ROLE bob; DROP TABLE gone}, '42501', 'its owner cannot drop an archive of another owner\'s container', qr/./);
$coordinator->fails(q{SET ROLE bob; ALTER TABLE gone RENAME TO departed}, '42501', '... nor rename it', qr/./);
answer(q{ALTER TABLE item OWNER TO CURRENT_USER; ALTER TABLE gone OWNER TO CURRENT_USER});

#
# Names, columns
#
answer(q{CREATE SCHEMA s; ALTER TABLE gone RENAME TO "Gone, 'long' ago"; ALTER TABLE "Gone, 'long' ago" SET SCHEMA s; ALTER SCHEMA s RENAME TO "T"});
add(10);
answer(q{CALL ttl.reap('item')});
all_moved('the archive is followed when it is renamed', q{"T"."Gone, 'long' ago"});
add(2);
answer(qq{SET ROLE bob; INSERT INTO item VALUES ($last, 'live'), ($last - 1, 'live')});
all_moved('... into a schema that who inserts may not use', q{"T"."Gone, 'long' ago"});
answer(qq{DELETE FROM item WHERE id > $last - 2});
answer(q{ALTER TABLE "T"."Gone, 'long' ago" RENAME TO gone; ALTER TABLE "T".gone SET SCHEMA public; DROP SCHEMA "T"});
my $locker = $coordinator->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE ONLY item IN ACCESS EXCLUSIVE MODE');
$coordinator->fails(q{SET lock_timeout = '1s'; ALTER TABLE gone RENAME TO departed}, '55P03', 'a container that is locked does not keep the former name', qr/./);
$coordinator->fails(q{SET lock_timeout = '1s'; DROP TABLE gone}, '55P03', '... nor an archive that is dropped', qr/./);
$locker->query_safe('ROLLBACK');
$locker->quit;
answer(q{ALTER TABLE gone RENAME id TO key; ALTER TABLE gone ADD id int});
add(1);
stay(8, $elsewhere, 'another column has the name');
answer(q{ALTER TABLE gone DROP id; ALTER TABLE gone RENAME key TO id; ALTER TABLE item ADD w int});
stay(8, qr/has no place for column "w"/, 'a new column');
answer(q{SELECT ttl.alter_container('item', archive_columns => '{id, v}'); CALL ttl.reap('item')});
all_moved('... that is not taken along');
answer(q{ALTER TABLE item DROP w; SELECT ttl.alter_container('item', archive_columns => '{}')});

#
# Citus makes tables anew.
#
answer(q{SELECT alter_distributed_table('item', shard_count => 3, cascade_to_colocated => true)});
add(10);
answer(q{CALL ttl.reap('item')});
all_moved('both tables altered');
my ($rc, $out, $err) = $coordinator->psql('postgres', q{SELECT alter_distributed_table('item', shard_count => 2, cascade_to_colocated => false)});
like($err, qr/WARNING:  expired rows of container "item" $elsewhere/, 'one altered');
add(10);
stay(17, $elsewhere, '...');
answer(q{SELECT alter_distributed_table('gone', colocate_with => 'item'); CALL ttl.reap('item')});
all_moved('... and the other');
answer(q{SELECT update_distributed_table_colocation('gone', 'none')});
add(1);
stay(8, $elsewhere, 'another group');
answer(q{SELECT update_distributed_table_colocation('gone', 'item'); CALL ttl.reap('item')});
all_moved('... and the same');
for my $order ([ 'gone', 'item' ], [ 'item', 'gone' ])
{
	for my $call (q{undistribute_table('%s')}, q{create_distributed_table('%s', 'id')}, q{undistribute_table('%s')}, q{create_distributed_table_concurrently('%s', 'id')})
	{
		answer('SELECT ' . sprintf($call, $order->[0]));
		add(2);
		stay(9, qr/$elsewhere|archive of container "item_?\d*" does not exist/, sprintf($call, $order->[0]));
		answer('SELECT ' . sprintf($call, $order->[1]));
		answer(q{CALL ttl.reap('item')});
		all_moved("... and $order->[1]");
	}
}
is(answer('SELECT reaping, archive_to FROM ttl.containers'), 't|gone', 'the policy is as it was');

#
# A new node; a node that has been away; DROP TABLE
#
my $third = $cluster->add_worker;
answer(q{SELECT rebalance_table_shards('item', shard_transfer_mode => 'block_writes'); CALL citus_cleanup_orphaned_resources()});
add(20);
answer(q{SELECT start_metadata_sync_to_all_nodes()});
answer(q{CALL ttl.reap('item')});
all_moved('a new node has the archive, too');
isnt($third->safe_psql('postgres', q{SELECT coalesce(sum(rows_archived), 0) FROM ttl.stat_shards()}), '0', '... and rows have moved there');
add(20);
($rc, $out, $err) = $coordinator->psql('postgres', q{DROP TABLE gone});
like($err, qr/WARNING:  container "item" has lost its archive; reaping is off/, 'DROP TABLE of the archive');
is(join(' ', $cluster->on_each(q{SELECT string_agg(DISTINCT reaping || coalesce(archive_to::text, ' without'), ', ') FROM ttl.container WHERE relid::text ~ '^item'})), join(' ', ('false without') x 4), '... is known to all nodes');
$cluster->turn_reaper('on');
answer(q{CREATE TABLE gone (id int, v text); SELECT create_distributed_table('gone', 'id', colocate_with => 'item')});
is($cluster->stored('item'), '27', '... and no row goes');
answer(q{SELECT ttl.alter_container('item', archive_to => 'gone', reaping => true)});
$cluster->stored_are('item', 7, 'until there is another');
$cluster->turn_reaper('off');
is(answer('SELECT count(*) FROM gone'), '20', '... which gets them');
answer(q{DROP TABLE item, gone});

#
# Other kinds of tables
#
$last = 0;
answer(q{
CREATE TABLE item (id int, v text, _ts timestamptz NOT NULL DEFAULT now(), part int DEFAULT 0, PRIMARY KEY (id, part)) PARTITION BY RANGE (part);
CREATE TABLE item_1 PARTITION OF item FOR VALUES FROM (0) TO (10);
CREATE TABLE item_2 PARTITION OF item FOR VALUES FROM (10) TO (20);
CREATE TABLE gone (id int, v text, part int) PARTITION BY HASH (v);
CREATE TABLE gone_1 PARTITION OF gone FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE gone_2 PARTITION OF gone FOR VALUES WITH (MODULUS 2, REMAINDER 1);
SELECT create_distributed_table('item', 'id'), create_distributed_table('gone', 'id');
SELECT ttl.create_container('item', 3600, ts_column => '_ts'), ttl.alter_container('item', archive_to => 'gone');
SELECT ttl.create_container('gone', '1 year')});
add(20);
add(20, 'item', '10');
answer(q{SELECT alter_distributed_table('item', shard_count => 3, cascade_to_colocated => true)});
answer(qq{INSERT INTO item VALUES ($last, 'live', now(), 10); CALL ttl.reap('item')});
all_moved('partitioned tables, and an archive that is a container');
is(answer('SELECT count(*) FROM gone WHERE ttl IS NULL AND _ts > now() - interval \'1 hour\''), $last, '... where rows live on');
answer(q{ALTER TABLE item DETACH PARTITION item_1});
add(10, 'item_1');
answer(q{CALL ttl.reap('item_1')});
all_moved('a partition that is detached has the same archive');
answer(q{DROP TABLE item, item_1, gone});

$last = 0;
answer(q{
SET citus.enable_schema_based_sharding = on;
CREATE SCHEMA tenant;
CREATE TABLE tenant.item (id int PRIMARY KEY, v text, _ts timestamptz NOT NULL DEFAULT now());
CREATE TABLE tenant.gone (id int, v text);
SELECT ttl.create_container('tenant.item', 3600, ts_column => '_ts'), ttl.alter_container('tenant.item', archive_to => 'tenant.gone')});
add(10, 'tenant.item');
answer(q{INSERT INTO tenant.item VALUES (1); CALL ttl.reap('tenant.item')});
all_moved('tables of a distributed schema', 'tenant.gone');
answer(q{DROP SCHEMA tenant CASCADE});

$last = 0;
answer(q{
CREATE TABLE item (id int PRIMARY KEY, v text, _ts timestamptz NOT NULL DEFAULT now());
CREATE TABLE gone (id int PRIMARY KEY, v text);
CREATE TABLE referenced (id int PRIMARY KEY);
SELECT create_reference_table('referenced');
SELECT ttl.create_container('item', 3600, ts_column => '_ts'), ttl.alter_container('item', archive_to => 'gone', archive_columns => '{id, v}')});
for my $table ('item', 'gone')
{
	answer("ALTER TABLE $table ADD r int REFERENCES referenced");
	add(2, 'item (id, v, _ts)');
	answer(qq{INSERT INTO item VALUES ($last); CALL ttl.reap('item')});
	all_moved("$table is a local table of Citus");
}
answer(q{DROP TABLE item, gone, referenced});

#
# A table that Citus makes of a container whose archive has had another name since ttl was last loaded
#
answer(q{
CREATE TABLE item (id int PRIMARY KEY);
CREATE TABLE gone (id int);
SELECT create_distributed_table('item', 'id'), create_distributed_table('gone', 'id', colocate_with => 'item');
SELECT ttl.create_container('item', 3600), ttl.alter_container('item', archive_to => 'gone');
UPDATE pg_class SET relname = 'departed' WHERE oid = 'gone'::regclass});
($rc, $out, $err) = $coordinator->psql('postgres', q{SELECT undistribute_table('item')});
like($err, qr/WARNING:  container "item.*" has lost its archive; reaping is off/, 'an archive that is not found by its name');
is(answer('SELECT reaping, archive_to FROM ttl.containers'), 'f|', '... is lost, and no row goes');
answer(q{UPDATE pg_class SET relname = 'gone' WHERE oid = 'departed'::regclass});
answer(q{DROP TABLE item, gone});

#
# Shards are moved and split while rows are written, expire, move, and keys are taken again.
# The ledger has all rows that were committed: each is in the archive once.
#
answer(q{
CREATE TABLE item (id int PRIMARY KEY, v int);
CREATE TABLE gone (id int, v int);
SELECT create_distributed_table('item', 'id', shard_count => 4), create_distributed_table('gone', 'id', colocate_with => 'item');
SELECT ttl.create_container('item', 1), ttl.alter_container('item', archive_to => 'gone');
CREATE SEQUENCE versions;
CREATE TABLE ledger (v int)});
my $load = $coordinator->basedir . '/load.sql';
append_to_file($load, q{
SELECT nextval('versions') AS v \gset
\set id random(1, 40) * 3 + :client_id
BEGIN;
INSERT INTO item (id, v) VALUES (:id, :v) ON CONFLICT DO NOTHING;
SELECT count(*) AS n FROM item WHERE id = :id AND v = :v \gset
INSERT INTO ledger SELECT :v WHERE :n = 1;
COMMIT;
});
my ($load_out, $load_err) = ('', '');
my $pgbench = IPC::Run::start(
	[ 'pgbench', '-n', '-c', 3, '-R', 60, '-T', 600, '--max-tries', 20, '-f', $load, '-h', $coordinator->host, '-p', $coordinator->port, 'postgres' ],
	'>', \$load_out, '2>', \$load_err);
$cluster->turn_reaper('on');
$coordinator->wait_until(q{SELECT rows_archived > 20 AND rows_evicted > 5 FROM ttl.stat_containers WHERE container = 'item'::regclass});
my $shards = q{FROM pg_dist_shard JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node n USING (groupid) WHERE logicalrelid = 'item'::regclass};
for my $mode ('force_logical', 'block_writes', 'force_logical')
{
	my ($one, $other) = map { $_->port } $cluster->workers;

	answer(qq{SELECT format('SELECT citus_move_shard_placement(%s, ''127.0.0.1'', %s, ''127.0.0.1'', %s, ''$mode'')', shardid, nodeport,
		CASE nodeport WHEN $one THEN $other ELSE $one END) $shards \\gexec});
}
answer(qq{SELECT citus_split_shard_by_split_points(shardid, ARRAY[((shardminvalue::bigint + shardmaxvalue::bigint) / 2)::text], ARRAY[nodeid, nodeid], 'block_writes') $shards LIMIT 1});
answer(q{CALL citus_cleanup_orphaned_resources()});
my $moved = answer(q{SELECT count(*) FROM gone});
$coordinator->wait_until("SELECT count(*) > $moved + 50 FROM gone");
$pgbench->signal('TERM');
$pgbench->finish;
$coordinator->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pgbench'});
unlike($load_err, qr/ERROR/, 'no writer has met an error');
$cluster->stored_are('item', 0, 'all rows expire and go');
is(answer(q{SELECT count(*) FROM (SELECT v, count(*) AS n FROM gone GROUP BY v) g FULL JOIN ledger USING (v) WHERE n IS DISTINCT FROM 1}), '0', '... each is in the archive once');
cmp_ok(answer('SELECT count(*) FROM ledger'), '>', 200, '... and there are some');
is(answer(q{SELECT count(*) FROM gone WHERE tableoid::regclass::text <> 'gone_' || get_shard_id_for_distribution_column('gone', id)}), '0', '... in the shards of their keys');
answer(q{DROP TABLE item, gone});

#
# Nodes move nothing while Citus copies the container or the archive, which takes longer here:
# it would be lost with the old archive, or be moved twice.
#
for my $call (q{undistribute_table('gone')}, q{alter_distributed_table('gone', colocate_with => 'none')}, q{alter_distributed_table('item', colocate_with => 'none')},
	q{alter_distributed_table('gone', shard_count => 5, cascade_to_colocated => true)})
{
	$cluster->turn_reaper('off');
	answer(q{
CREATE TABLE item (id int PRIMARY KEY, v text);
CREATE TABLE gone (id int, v text);
SELECT create_distributed_table('item', 'id', colocate_with => 'none'), create_distributed_table('gone', 'id', colocate_with => 'item');
INSERT INTO gone SELECT -g, repeat('x', 100) FROM generate_series(1, 100000) g;
SELECT ttl.create_container('item', 3600), ttl.alter_container('item', archive_to => 'gone', batch_size => 20);
INSERT INTO item SELECT g, 'v' || g, '2020-01-01' FROM generate_series(1, 20000) g});
	$cluster->turn_reaper('on');
	$coordinator->wait_until('SELECT count(*) > 20 FROM gone WHERE id > 0');
	answer("SELECT $call");
	cmp_ok($cluster->stored('item'), '>', 0, "$call: rows move meanwhile");
	$cluster->turn_reaper('off');
	is($cluster->stored('item') + answer(q{SELECT count(*) FROM gone WHERE id > 0}), 20000, '... and each is in one place');
	is(answer(CitusCluster::with_expired(q{SELECT count(DISTINCT id) FROM (SELECT id FROM item UNION ALL SELECT id FROM gone WHERE id > 0) rows})), '20000', '... once');
	answer(q{DROP TABLE item, gone});
}

$cluster->stop;
done_testing();
