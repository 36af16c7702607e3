# What Citus does to whole tables loses no row and no policy, however it is called; what
# dumps and row_security = off show doesn't depend on how a statement is written, either.
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
autovacuum = off
client_min_messages = warning
statement_timeout = 60s
END
my $coordinator = $cluster->coordinator;
my ($worker) = $cluster->workers;

sub answer
{
	return $coordinator->safe_psql('postgres', $_[0]);
}

# What a session with row_security = off answers
sub stored
{
	return answer("SET row_security = off; $_[0]");
}

# Ten parents, five of which have expired, and a live child of each; 'how' makes tables of Citus of both.
sub make_family
{
	my ($how) = @_;

	answer(q{
DROP TABLE IF EXISTS children, parents CASCADE;
CREATE TABLE parents (id int PRIMARY KEY);
CREATE TABLE children (id int PRIMARY KEY, v int);
SELECT ttl.create_container('parents', 3600), ttl.create_container('children', 3600);
INSERT INTO parents (id, _ts) SELECT g, CASE WHEN g > 5 THEN now() ELSE '2020-01-01' END FROM generate_series(1, 10) g;
INSERT INTO children (id) SELECT generate_series(1, 10)} . ";$how;"
		  . ($how =~ /REFERENCES/ ? '' : 'SET row_security = off; ALTER TABLE children ADD CONSTRAINT parent FOREIGN KEY (id) REFERENCES parents'));
	return;
}

sub family_is_whole
{
	my ($name, $policies) = @_;

	is(answer('SELECT count(*) FROM parents; SELECT count(*) FROM children'), "5\n10", "$name: what has expired is hidden");
	is(stored('SELECT count(*) FROM parents; SELECT count(*) FROM children c WHERE NOT EXISTS (SELECT FROM parents p WHERE p.id = c.id)'),
		"10\n0", '... and there, no child is an orphan');
	is(answer(q{SELECT string_agg(container || ' ' || default_ttl, ', ' ORDER BY container::text) FROM ttl.containers WHERE container::text ~ '^(parents|children)$'}),
		'children 3600, parents 3600', '... and containers as before');
	return;
}

my $distribute = q{SELECT create_distributed_table('parents', 'id'), create_distributed_table('children', 'id', colocate_with => 'parents')};

#
# Tables of distributed ones
#
answer(q{
CREATE FUNCTION undistribute_for(t regclass) RETURNS void LANGUAGE sql AS 'SELECT undistribute_table(t, cascade_via_foreign_keys => true)';
CREATE FUNCTION undistribute_as_owner(t regclass) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS
	'BEGIN IF undistribute_table(t, true) IS NULL THEN RETURN; END IF; END'});
for my $call (
	q{SELECT undistribute_table('parents', cascade_via_foreign_keys => true)},
	q{SELECT undistribute_table('children', cascade_via_foreign_keys => true)},
	q{SELECT * FROM undistribute_table('parents', true)},
	q{SELECT undistribute_table(t, true) FROM unnest('{parents}'::regclass[]) t},
	q{SELECT undistribute_table(t::regclass, true) FROM (VALUES ('parents')) v (t)},
	q{DO $$DECLARE t regclass := 'parents'; BEGIN PERFORM undistribute_table(t, true); END$$},
	q{DO $$DECLARE t regclass := 'parents'; BEGIN IF undistribute_table(t, true) IS NULL THEN RETURN; END IF; END$$},
	q{PREPARE p (text) AS SELECT undistribute_table($1::regclass, true); EXECUTE p ('parents')},
	q{SELECT undistribute_for('parents')},
	q{SELECT undistribute_as_owner('parents')},
	q{BEGIN; SELECT count(*) FROM parents; SELECT coalesce(undistribute_table('parents', true)::text, ''); COMMIT})
{
	make_family($distribute);
	answer($call);
	family_is_whole($call);
	is(answer(q{SELECT count(*) FROM pg_dist_partition WHERE logicalrelid IN ('parents'::regclass, 'children'::regclass)}), '0', '... of plain tables');
}

# of a reference table, and local ones that Citus knew for its sake
my $refer = q{SELECT create_reference_table('parents'); SET row_security = off; ALTER TABLE children ADD CONSTRAINT parent FOREIGN KEY (id) REFERENCES parents};
make_family($refer);
answer(q{SELECT undistribute_table('parents', cascade_via_foreign_keys => true)});
family_is_whole('a reference table');
answer(q{CREATE ROLE leaves; GRANT ALL ON SCHEMA public TO leaves});
for my $case (
	[ '', 'ALTER TABLE children DROP CONSTRAINT parent' ],
	[ '', 'DROP TABLE parents CASCADE' ],
	[ 'ALTER TABLE parents OWNER TO leaves', 'DROP OWNED BY leaves CASCADE' ])
{
	my ($before, $command) = @$case;

	make_family($refer);
	answer(qq{$before; SET ttl.touch = off; UPDATE children SET _ts = '2020-01-01' WHERE id > 7});
	answer($command);
	is(answer('SELECT count(*) FROM children') . ' ' . stored('SELECT count(*) FROM children'), '7 10', "$command keeps what has expired");
	is(answer(q{SELECT default_ttl FROM ttl.containers WHERE container = 'children'::regclass}), '3600', '... and the policy');
	is(answer(q{SELECT count(*) FROM pg_dist_partition WHERE logicalrelid = 'children'::regclass}), '0', '... of a plain table');
}

# a plain table with a container beside it
for my $unsafe ('off', 'on')
{
	make_family($distribute);
	answer(qq{
DROP TABLE IF EXISTS plain;
CREATE TABLE plain (id int PRIMARY KEY);
SELECT create_distributed_table('plain', 'id', colocate_with => 'parents');
SET citus.enable_unsafe_triggers = $unsafe;
SELECT alter_distributed_table('plain', shard_count => 3, cascade_to_colocated => true)});
	family_is_whole("altered with a plain table beside it, unsafe triggers $unsafe");
}

# other functions within such a call see what they always see
make_family($distribute);
answer(q{
CREATE TABLE seen (n int);
CREATE FUNCTION look() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO seen SELECT count(*) FROM parents; END';
CREATE EVENT TRIGGER looks ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION look();
SELECT undistribute_table('children', cascade_via_foreign_keys => true);
DROP EVENT TRIGGER looks});
is(answer('SELECT count(*) > 0, max(n) FROM seen'), 't|5', 'an event trigger in the midst of it sees no expired row');

#
# Distributed tables of others
#
for my $call (
	q{SELECT create_distributed_table(t, 'id') FROM unnest('{parents}'::regclass[]) t},
	q{SELECT * FROM create_distributed_table('parents', 'id')},
	q{SELECT create_distributed_table('parents'::text::regclass, 'id')},
	q{DO $$BEGIN PERFORM create_distributed_table('parents', 'id'); END$$},
	q{DO $$BEGIN IF create_distributed_table('parents', 'id') IS NULL THEN RETURN; END IF; PERFORM FROM parents; END$$},
	q{SELECT create_reference_table(t) FROM unnest('{parents}'::regclass[]) t})
{
	make_family("SELECT 1 AS REFERENCES");
	answer($call);
	is(answer('SELECT count(*) FROM parents'), '5', "$call: what has expired is hidden");
	is(stored('SELECT count(*) FROM parents'), '10', '... and there');
	is(answer('SHOW citus.enable_unsafe_triggers'), 'off', '... the setting is as it was');
}

# of local ones that Citus knows
for my $call (q{create_distributed_table('parents', 'id')}, q{create_reference_table('parents')})
{
	make_family("SELECT 1 AS REFERENCES");
	answer(q{SELECT citus_add_local_table_to_metadata('parents')});
	answer("SELECT $call");
	is(answer('SELECT count(*) FROM parents') . ' ' . stored('SELECT count(*) FROM parents'), '5 10', "$call of a local table of Citus");
	is(answer(q{SELECT default_ttl FROM ttl.containers WHERE container = 'parents'::regclass}), '3600', '... and container');
	is(join(' ', $cluster->on_each(q{SELECT count(*) > 0 FROM ttl.container WHERE relid::text ~ '^parents'})), 't t t', '... on all nodes');
}

# partitions
answer(q{
CREATE TABLE parted (id int, at int) PARTITION BY RANGE (at);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (10) TO (20);
SELECT ttl.create_container('parted', 3600);
INSERT INTO parted (id, at, _ts) SELECT g, g % 20, CASE WHEN g > 10 THEN now() ELSE '2020-01-01' END FROM generate_series(1, 30) g});
answer(q{SELECT citus_add_local_table_to_metadata('parted')});
is(answer('SELECT count(*) FROM parted; SELECT count(*) FROM parted_1') . ' ' . stored('SELECT count(*) FROM parted'), "20\n10 30", 'a partitioned container as a local table of Citus');
answer(q{SELECT undistribute_table('parted')});
is(answer('SELECT count(*) FROM parted') . ' ' . stored('SELECT count(*) FROM parted'), '20 30', '... and back');
answer(q{SELECT create_distributed_table_concurrently('parted', 'id')});
is(answer('SELECT count(*) FROM parted') . ' ' . stored('SELECT count(*) FROM parted'), '20 30', 'create_distributed_table_concurrently, partitioned');
$coordinator->fails(q{BEGIN; TRUNCATE parted_1; SELECT ttl.expired_count('parted')}, '55006', 'expired_count after TRUNCATE of a partition');
my $columnar = !!answer(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'citus_columnar'});
SKIP:
{
	skip('citus_columnar is not installed', 8) if !$columnar;
	answer(q{CREATE EXTENSION IF NOT EXISTS citus_columnar; CREATE TABLE columns (id int) USING columnar});
	$coordinator->fails(q{SELECT ttl.create_container('columns', 3600)}, '0A000', 'a columnar table is refused', qr/access method "columnar" of table "columns"/);
	answer(q{CREATE TABLE rows (id int); SELECT ttl.create_container('rows', 3600); INSERT INTO rows VALUES (1)});
	$coordinator->fails(q{ALTER TABLE rows SET ACCESS METHOD columnar}, '0A000', 'nor does a container become one', qr/access method "columnar" of table "rows"/);
	$coordinator->fails(q{SELECT alter_table_set_access_method('rows', 'columnar')}, '0A000', '... by a function of Citus');
	answer(q{ALTER TABLE rows SET ACCESS METHOD heap; ALTER TABLE rows SET ACCESS METHOD heap, ADD COLUMN v int});
	is(answer('SELECT count(*) FROM rows'), '1', '... and heap is no change');
	answer(q{DROP TABLE rows});
	answer(q{SELECT alter_table_set_access_method('parted_1', 'columnar')});
	is(answer('SELECT count(*) FROM parted') . ' ' . stored('SELECT count(*) FROM parted'), '20 30', 'a columnar partition hides');
	is(answer(q{SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = 'parted_1'::regclass}), 'columnar', '... as such');
	answer(q{CALL ttl.reap('parted')});
	is(stored('SELECT count(*) FROM parted'), '29', '... its rows stay, others go');
	like(answer(q{SELECT last_error FROM ttl.stat_containers WHERE container = 'parted'::regclass}), qr/ColumnarScan/, '... and last_error says why');
}
answer('DROP TABLE parted');

#
# A policy is the same on all nodes
#
answer(q{CREATE TABLE empty (id int PRIMARY KEY); SELECT create_distributed_table('empty', 'id'); SELECT ttl.create_container('empty', 3600)});
is(answer(q{SELECT sum(result::int) FROM run_command_on_shards('empty', 'SELECT count(*) FROM pg_attribute WHERE attrelid = ''%s''::regclass AND atthasmissing')}),
	'0', 'no missing values where there were no rows');
for my $change (q{ttl.set_default_ttl('empty', 7200)}, q{ttl.drop_container('empty')})
{
	$coordinator->fails("SET citus.enable_ddl_propagation = off; SELECT $change", '55000', "$change on one node alone", qr/on this node alone/);
}
my $policies = q{SELECT string_agg(DISTINCT default_time_to_live::text, ' ') FROM ttl.container WHERE relid::text ~ '^empty'};
my $shard = $worker->safe_psql('postgres', q{SELECT relid FROM ttl.container WHERE relid::text ~ '^empty_\d+$' LIMIT 1});
$worker->safe_psql('postgres', qq{SET session_replication_role = replica; SET citus.enable_unsafe_triggers = on; SET citus.enable_manual_changes_to_shards = on;
CREATE OR REPLACE TRIGGER "~ttl_} . ($shard =~ s/.*_//r) . qq{" BEFORE INSERT ON $shard FOR EACH ROW EXECUTE FUNCTION ttl.on_write('default_ttl', '5', 'ts_column', '_ts', 'ttl_column', 'ttl')});
is($worker->safe_psql('postgres', $policies), '3600 5', 'a node has another one');
answer(q{SELECT ttl.set_default_ttl('empty', 3600)});
is(join(' ', $cluster->on_each($policies)), '3600 3600 3600', 'the same value set again reaches all nodes');

# a node without the library
$worker->append_conf('postgresql.conf', "shared_preload_libraries = 'citus'");
$worker->restart;
$coordinator->fails(q{SELECT ttl.set_default_ttl('empty', 60)}, '55000', 'a node without the library', qr/has not loaded the library/);
$coordinator->fails(q{SELECT ttl.drop_container('empty')}, '55000', '... which keeps the policy');
my $number = $shard =~ s/.*_//r;
$worker->safe_psql('postgres', qq{CREATE OR REPLACE TRIGGER "~ttl_$number" BEFORE INSERT ON $shard FOR EACH ROW EXECUTE FUNCTION ttl.on_write('default_ttl', '-1', 'ts_column', '_ts', 'ttl_column', 'ttl');
ALTER TABLE $shard ENABLE ALWAYS TRIGGER "~ttl_$number"});
$worker->append_conf('postgresql.conf', "shared_preload_libraries = 'citus,ttl'");
$worker->restart;
$worker->safe_psql('postgres', qq{INSERT INTO $shard (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 20) g; CALL ttl.reap('$shard')});
is($worker->safe_psql('postgres', "SET row_security = off; SELECT count(*) FROM $shard"), '20', 'nothing is deleted by another policy than that of the trigger');
is($worker->safe_psql('postgres', "SELECT count(*) FROM $shard"), '20', '... which is in force');
answer(q{SELECT ttl.set_default_ttl('empty', 3600)});
is(join(' ', $cluster->on_each($policies)), '3600 3600 3600', '... until the next change');

# a schema that was dumped without the policies
make_family($distribute);
my $dump = $coordinator->basedir . '/schema.sql';
command_ok([ 'pg_dump', '-s', '-t', 'parents', '-d', $coordinator->connstr('postgres'), '-f', $dump ], 'pg_dump -s');
answer('DROP TABLE children, parents');
command_ok([ 'psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-d', $coordinator->connstr('postgres') . q{ options='-c citus.enable_unsafe_triggers=on'}, '-f', $dump ], '... is restored');
answer(q{SET citus.enable_unsafe_triggers = on; SELECT create_distributed_table('parents', 'id'); INSERT INTO parents (id, _ts) VALUES (1, '2020-01-01')});
is(answer('SELECT count(*) FROM parents'), '1', '... and is no container anywhere');
is(join(' ', $cluster->on_each(q{SELECT count(*) FROM ttl.container WHERE relid::text ~ '^parents'})), '0 0 0', '... before it is registered');
answer(q{SELECT ttl.create_container('parents', 3600, ts_column => '_ts', ttl_column => 'ttl')});
is(join(' ', $cluster->on_each(q{SELECT count(*) > 0 FROM ttl.container WHERE relid::text ~ '^parents'}), answer('SELECT count(*) FROM parents')), 't t t 0', '... then it is, everywhere');

#
# Dumps, and other statements that see stored rows
#
make_family($distribute);
my $directory = $coordinator->basedir . '/dump';
command_ok([ 'pg_dump', '-Fd', '-j2', '-d', $coordinator->connstr('postgres'), '-f', $directory ], 'pg_dump -Fd -j2');
my ($data) = run_command([ 'pg_restore', '-f', '-', '-a', '-t', 'parents', $directory ]);
is(scalar(() = $data =~ /^\d+\t/mg), 10, '... has expired rows, too');
# restored into tables that are distributed before they have rows
answer('DROP TABLE children, parents');
for my $section (qw(pre-data data post-data))
{
	# other tables are there already
	run_command([ 'pg_restore', "--section=$section", '-d', $coordinator->connstr('postgres'), $directory ]);
	answer($distribute) if $section eq 'pre-data';
}
family_is_whole('a dump that was restored');
is(join(' ', $cluster->on_each(q{SELECT count(*) > 0 FROM ttl.container WHERE relid::regclass::text ~ '^parents' AND default_time_to_live = 3600 AND NOT reaping})),
	't t t', '... on all nodes, with reaping off');
make_family($distribute);
my %reads = (
	'SELECT count(*) FROM parents' => 10,
	'SELECT count(*) FROM parents WHERE id = 3' => 1,
	'SELECT count(*) FROM parents p JOIN children c USING (id)' => 10,
	'SELECT count(*) FROM parents NATURAL JOIN (SELECT id FROM children) c' => 10,
	'SELECT count(p.id) FROM children c LEFT JOIN parents p USING (id)' => 10,
	'SELECT count(p.id) FROM parents p RIGHT JOIN children c ON p.id = c.id' => 10,
	'SELECT count(*) FROM (SELECT id FROM parents UNION SELECT id FROM parents) u' => 10,
	'WITH c AS MATERIALIZED (SELECT * FROM parents) SELECT count(*) FROM c a JOIN c b USING (id)' => 10,
	'SET citus.enable_repartition_joins = on; SELECT count(*) FROM parents a JOIN children b ON a.id = b.v' => 5,
	'SELECT count(*) FROM children WHERE id IN (SELECT id FROM parents LIMIT 10)' => 10,
	'SELECT count(*) FROM seen_parents' => 10,
	'BEGIN; DECLARE c CURSOR FOR SELECT id FROM parents; MOVE ALL FROM c; SELECT count(*) FROM parents; COMMIT' => 10,
	'CREATE TEMP TABLE t AS SELECT * FROM parents; SELECT count(*) FROM t' => 10);
answer(q{CREATE VIEW seen_parents AS SELECT * FROM parents; UPDATE children SET v = id WHERE id <= 5});
is(stored($_), $reads{$_}, "row_security = off: $_") for sort keys %reads;
is($worker->safe_psql('postgres', 'SELECT count(*) FROM parents; SET row_security = off; SELECT count(*) FROM parents'), "5\n10", '... from other nodes');
is(answer(q{BEGIN; SELECT count(*) FROM parents; SET LOCAL row_security = off; SELECT count(*) FROM parents; SAVEPOINT s; SET LOCAL row_security = on;
SELECT count(*) FROM parents; ROLLBACK TO s; SELECT count(*) FROM parents; COMMIT; SELECT count(*) FROM parents}), "5\n10\n5\n10\n5", '... for as long as it is set');
is(stored(q{EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM parents WHERE id = 3}) =~ /rows=1(?:\.00)? /, 1, '... EXPLAIN ANALYZE');
is(scalar(() = stored('COPY parents (id) TO STDOUT') =~ /^\d+$/mg), 10, '... COPY');
is(scalar(() = answer('COPY parents (id) TO STDOUT') =~ /^\d+$/mg), 5, '... which hides elsewhere');
is(answer(q{PREPARE p AS SELECT count(*) FROM parents; EXECUTE p; EXECUTE p; EXECUTE p; EXECUTE p; EXECUTE p; EXECUTE p; SET row_security = off; EXECUTE p; SET row_security = on; EXECUTE p}),
	join("\n", (5) x 6, 10, 5), '... prepared statements follow the setting');
is(stored(q{BEGIN; UPDATE parents p SET ttl = 5 FROM children c WHERE p.id = c.id; SELECT count(ttl) FROM parents; ROLLBACK}), 10, '... UPDATE');
is(stored(q{BEGIN; ALTER TABLE children DROP CONSTRAINT parent; WITH d AS (DELETE FROM parents WHERE id < 4 RETURNING id) SELECT count(*) FROM d; ROLLBACK}), 3, '... DELETE');
is(stored(q{BEGIN; INSERT INTO children AS x (id, v) VALUES (1, 3) ON CONFLICT (id) DO UPDATE SET v = x.v + excluded.v RETURNING v; ROLLBACK}), 4, '... ON CONFLICT');
is(stored(q{BEGIN; MERGE INTO parents p USING children c ON p.id = c.id WHEN MATCHED THEN UPDATE SET ttl = c.id; SELECT count(ttl) FROM parents; ROLLBACK}), 10, '... MERGE');
answer(q{SET row_security = off; DELETE FROM children WHERE id = 1; INSERT INTO children (id) VALUES (1)});
is(answer('SELECT count(*) FROM children'), '10', '... foreign keys find what is stored');
$coordinator->fails('DELETE FROM children WHERE id = 1; INSERT INTO children (id) VALUES (1)', '23503', '... and else what is live', qr/./);

# nobody else
answer(q{
CREATE ROLE stranger LOGIN; GRANT CREATE ON SCHEMA public TO stranger; GRANT SELECT ON parents TO stranger;
CREATE FUNCTION count_parents() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM parents';
SET ROLE stranger;
CREATE TABLE his (id int PRIMARY KEY);
SELECT create_distributed_table('his', 'id', colocate_with => 'parents');
SELECT ttl.create_container('his', 3600);
INSERT INTO his (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 10) g;
CREATE VIEW view AS SELECT * FROM his AS "ttl stored"});
my $stranger = 'SET ROLE stranger; ';
is(answer("${stranger}SET row_security = off; SELECT count(*) FROM parents"), '5', 'others than the owner see what is live');
is(answer("${stranger}SET row_security = off; SELECT count_parents()"), '5', '... by a SECURITY DEFINER function, too');
is(answer("${stranger}BEGIN; SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL row_security = off; SELECT count_parents(); SELECT count(*) FROM parents; COMMIT"), "5\n5", '... and if they send the setting');
is(answer("${stranger}SET row_security = off; SELECT count(*) FROM his"), '10', 'he sees his own');
is(answer('SELECT count(*) FROM view'), '0', 'an alias of his shows nothing to others');
is(answer('SELECT count(*) FROM parents p JOIN view USING (id)'), '0', '... in a join neither');
is(answer('SELECT count(*) FROM parents AS "ttl stored"; SELECT count(*) FROM parents AS "ttl stored_1" WHERE id = 3'), "5\n0", 'nor does one that is written in a query');
$coordinator->fails('COPY parents TO STDOUT WITH (ttl_stored)', '42601', '... and no option', qr/not recognized/);
my $parents = $worker->safe_psql('postgres', q{SELECT relid FROM ttl.container WHERE relid::text ~ '^parents_\d+$' LIMIT 1});
$worker->fails("COPY $parents TO STDOUT WITH (ttl_stored)", '42601', '... on a shard', qr/not recognized/);
is($worker->safe_psql('postgres', qq{SELECT count(*) FROM $parents AS "ttl stored" WHERE _ts = '2020-01-01'}), '0', '... where the alias means nothing');

# a policy of the user's own for rows
answer('ALTER TABLE parents OWNER TO stranger; ALTER TABLE children OWNER TO stranger; ALTER TABLE parents ENABLE ROW LEVEL SECURITY; ALTER TABLE parents FORCE ROW LEVEL SECURITY; CREATE POLICY p ON parents USING (id < 9)');
my ($rc, undef, $stderr) = $coordinator->psql('postgres', "${stranger}SELECT undistribute_table('parents', cascade_via_foreign_keys => true)");
isnt($rc, 0, 'FORCE ROW LEVEL SECURITY: what a policy hides is not left behind');
like($stderr, qr/row-level security policy.*HINT:  .*NO FORCE ROW LEVEL SECURITY/s, '... with a hint');

#
# A node that is down
#
answer(q{CREATE TABLE alone (id int PRIMARY KEY); SELECT ttl.create_container('alone', 3600)});
$coordinator->add_expired('alone', 7);
$worker->stop('immediate');
($rc, undef, $stderr) = $coordinator->psql('postgres', 'CALL ttl.reap()');
is($rc, 0, 'CALL ttl.reap() goes on without a node');
like($stderr, qr/WARNING:  command failed on a shard/, '... and says so');
is($coordinator->stored('alone'), '0', '... with other containers');
$coordinator->fails(q{CALL ttl.reap('empty')}, '38000', '... of a table it is an error', qr/command failed on a shard/);

$cluster->stop('immediate');
done_testing();
