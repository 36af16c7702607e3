# Queries of every form that Citus runs hide what has expired, writes stamp, keys are
# free: from every node, and as if the expired rows were gone.
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
citus.repartition_join_bucket_count_per_node = 1
citus.propagate_set_commands = 'local'
END
my $coordinator = $cluster->coordinator;
my ($worker) = $cluster->workers;

# the coordinator has shards, too
$coordinator->safe_psql('postgres', q{
SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', true) FROM pg_dist_node WHERE groupid = 0;
CREATE TABLE items (id int, v int, x int);
CREATE TABLE plain (id int, v int, x int);
CREATE TABLE target (id int, v int);
CREATE TABLE names (v int PRIMARY KEY, name text);
CREATE TABLE all_names (v int PRIMARY KEY, name text);
SELECT create_distributed_table(t, 'id', shard_count => 3) FROM unnest('{items, plain, target}'::regclass[]) t;
SELECT create_reference_table('names'), create_reference_table('all_names');
SELECT ttl.create_container('items', 3600), ttl.create_container('names', 3600);
INSERT INTO items (id, v, x) SELECT g, g % 10, 1 + g % 3 FROM generate_series(1, 40) g;
INSERT INTO items (id, v, x, _ts) SELECT g, g % 10, 0, '2020-01-01' FROM generate_series(1, 80) g;
INSERT INTO items (id, v, x, _ts, ttl) SELECT g, g % 10, 0, now() - interval '1 minute', 59 FROM generate_series(41, 120) g;
INSERT INTO items (id, v, x, _ts, ttl) SELECT g, g % 10, 3, '2020-01-01', -1 FROM generate_series(41, 45) g;
INSERT INTO plain SELECT g, g % 10, 1 + g % 3 FROM generate_series(1, 60) g;
INSERT INTO names (v, name, _ts) SELECT g, 'n' || g, CASE WHEN g > 4 THEN '2020-01-01' ELSE now() END FROM generate_series(0, 9) g;
INSERT INTO all_names SELECT g, 'n' || g FROM generate_series(0, 9) g;
CREATE TABLE local (i int);
INSERT INTO local SELECT generate_series(1, 50);
CREATE VIEW seen AS SELECT id, v FROM items WHERE 10 / x > 0;
CREATE FUNCTION by_id(i int) RETURNS bigint LANGUAGE sql STABLE BEGIN ATOMIC SELECT count(*) FROM items WHERE id = i; END;
CREATE FUNCTION one_by_one() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n int := 0;
BEGIN
	FOR r IN SELECT 10 / x FROM items LOOP n := n + 1; END LOOP;
	FOR i IN 1 .. 12 LOOP
		PERFORM FROM items WHERE id = i + 36;
		IF FOUND THEN n := n + 100; END IF;
	END LOOP;
	RETURN n;
END $$;
});

# Runs each query, reads of the coordinator without a transaction block; the answers' lines, in order.
sub answers
{
	my ($node, @queries) = @_;
	my $script = '';

	for my $query (@queries)
	{
		my $reads = $query !~ /(UPDATE|DELETE|INSERT|MERGE|CREATE|SET LOCAL|DECLARE|FROM '|touch_one_by_one)/ && $node == $coordinator;

		$script .= "\\echo ===\n" . ($reads ? "$query;\n" : "BEGIN;\n$query;\nROLLBACK;\n");
	}
	my ($rc, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY terse\n$script", on_error_stop => 0);

	is($stderr, '', $node->name . ' reports no errors');
	my (undef, @answers) = split /^===$/m, $stdout;
	return map { join("\n", sort grep { length } split /\n/) } @answers;
}

my @queries = (
	# router and fast path, prepared beyond the fifth execution
	'SELECT * FROM items WHERE id = 7',
	'SELECT * FROM items WHERE id = 77',
	'PREPARE p (int) AS SELECT v FROM items WHERE id = $1;' . join('', map { "EXECUTE p ($_);" } 1, 7, 77, 2, 78, 3, 79, 41, 40, 119) . 'DEALLOCATE p',
	'PREPARE p (int) AS SELECT count(*) FROM items a JOIN names r ON a.v = r.v WHERE a.id = $1;' . 'EXECUTE p (3); EXECUTE p (55);' x 4 . 'DEALLOCATE p',
	'PREPARE p (int) AS SELECT count(*) FROM items WHERE v = $1;' . 'EXECUTE p (3);' x 8 . 'DEALLOCATE p',
	'SELECT by_id(7) + by_id(77), one_by_one()',
	# all shards
	'SELECT * FROM items WHERE id IN (1, 7, 77)',
	'SELECT count(*), sum(v), min(id), max(id), count(DISTINCT v), avg(x) FROM items',
	'SELECT v, count(*) FROM items GROUP BY v HAVING count(*) > 1',
	'SELECT sum(10 / x) FROM items',
	'SELECT id, v FROM items WHERE 10 / x > 1 ORDER BY id DESC LIMIT 5 OFFSET 2',
	'SELECT id, row_number() OVER (PARTITION BY id ORDER BY v), rank() OVER (ORDER BY v, id) FROM items',
	'SELECT DISTINCT ON (v) v, id FROM items ORDER BY v, id',
	'SELECT array_agg(id ORDER BY id) FILTER (WHERE v > 5), percentile_disc(0.5) WITHIN GROUP (ORDER BY id) FROM items',
	'SELECT count(*) FROM items TABLESAMPLE BERNOULLI (100)',
	'SELECT count(*) FROM seen',
	# joins of shards with each other
	'SELECT count(*) FROM items a JOIN items b USING (id)',
	'SELECT count(*), count(b.id) FROM plain a LEFT JOIN items b ON a.id = b.id',
	'SELECT count(*), count(b.id) FROM items a FULL JOIN items b ON a.id = b.id AND b.v > 5',
	'SELECT count(*) FROM plain a WHERE EXISTS (SELECT FROM items b WHERE a.id = b.id)',
	'SELECT count(*) FROM plain a WHERE NOT EXISTS (SELECT FROM items b WHERE a.id = b.id)',
	'SELECT a.id, l.n FROM items a, LATERAL (SELECT count(*) n FROM items b WHERE b.id = a.id) l',
	# repartitioned
	'SET LOCAL citus.enable_repartition_joins = on; SELECT count(*) FROM items a JOIN items b ON a.id = b.v',
	'SET LOCAL citus.enable_repartition_joins = on; SELECT count(*) FROM items a, plain b, names c WHERE a.v = b.x AND c.v = a.v',
	# reference tables
	'SELECT * FROM names',
	'SELECT count(*) FROM names a, names b',
	'SELECT count(*) FROM items a JOIN names r ON a.v = r.v',
	'SELECT a.id, r.name FROM items a LEFT JOIN names r ON a.v = r.v',
	'SELECT r.v, count(a.id) FROM names r LEFT JOIN items a ON a.v = r.v GROUP BY 1',
	'SELECT r.v, count(a.id) FROM items a RIGHT JOIN all_names r ON a.v = r.v GROUP BY 1',
	'SELECT id, (SELECT name FROM names r WHERE r.v = items.v) FROM items',
	# intermediate results
	'SELECT count(*) FROM plain WHERE id NOT IN (SELECT id FROM items WHERE v > 3)',
	'SELECT count(*) FROM plain WHERE v IN (SELECT v FROM items WHERE id < 4)',
	'SELECT count(*) FROM items WHERE v = (SELECT max(v) FROM items)',
	'WITH c AS MATERIALIZED (SELECT * FROM items) SELECT count(*) FROM c JOIN c d ON c.v = d.v',
	'WITH c AS (SELECT v, count(*) n FROM items GROUP BY v) SELECT * FROM c JOIN items ON c.n = items.id',
	'WITH RECURSIVE t (v) AS (SELECT min(v) FROM names UNION ALL SELECT r.v FROM t JOIN names r ON r.v = t.v + 1) SELECT count(*) FROM t',
	'WITH RECURSIVE t (id, n) AS (SELECT id, 1 FROM items WHERE id = 7 UNION ALL SELECT a.id, n + 1 FROM t JOIN items a USING (id) WHERE a.id = 7 AND n < 4) SELECT count(*) FROM t',
	'SELECT id FROM items UNION SELECT id FROM items',
	'SELECT id FROM plain EXCEPT SELECT id FROM items',
	'SELECT id FROM plain INTERSECT SELECT v FROM items',
	'SELECT v FROM items UNION ALL SELECT v FROM names',
	# out of them
	'COPY items (id, v) TO STDOUT',
	'COPY (SELECT id FROM items WHERE id = 7) TO STDOUT',
	'COPY names (v) TO STDOUT',
	'DECLARE c CURSOR FOR SELECT id FROM items ORDER BY id; FETCH 3 FROM c; FETCH ALL FROM c',
	'CREATE TEMP TABLE t AS SELECT id FROM items; SELECT count(*) FROM t',
	'SELECT * FROM items WHERE id = 7 FOR UPDATE',
	# into others: pushed down, repartitioned, pulled
	map({ "$_; SELECT * FROM target" }
		'INSERT INTO target SELECT id, v FROM items',
		'INSERT INTO target SELECT v, id FROM items',
		'INSERT INTO target SELECT id, v FROM items ORDER BY id LIMIT 15',
		'INSERT INTO target SELECT a.id, b.v FROM items a JOIN names b ON a.v = b.v',
		'MERGE INTO target o USING items s ON o.id = s.id WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)',
		'MERGE INTO target o USING items s ON o.id = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.v, s.id)'),
	# what finds rows to change
	'UPDATE items SET v = v + 100 WHERE id IN (7, 77) RETURNING id, v',
	'UPDATE items SET v = 10 / x RETURNING id',
	'UPDATE items SET v = b.v FROM plain b WHERE items.id = b.id RETURNING items.id',
	'UPDATE items SET v = r.v + 1 FROM names r WHERE r.v = items.v RETURNING id',
	'UPDATE names SET name = \'z\' RETURNING v',
	'DELETE FROM items WHERE id = 77 RETURNING id',
	'DELETE FROM items WHERE 10 / x > 3 RETURNING id',
	'DELETE FROM items USING names r WHERE r.v = items.v RETURNING id',
	'WITH d AS (DELETE FROM items RETURNING *) SELECT count(*), sum(v) FROM d',
	'DELETE FROM names WHERE v > 2 RETURNING v',
	'MERGE INTO items o USING plain s ON o.id = s.id WHEN MATCHED AND 10 / o.x > 0 THEN DELETE WHEN NOT MATCHED THEN INSERT (id, v, x, _ts) VALUES (s.id, 1000, 1, \'2100-01-01\'); SELECT * FROM items');

# with tables that only it has
my @local = (
	'SELECT count(*) FROM items JOIN local ON i = id',
	'SELECT count(*) FROM local WHERE i IN (SELECT id FROM items)',
	'SELECT count(*) FROM local WHERE i IN (SELECT v FROM names)',
	'INSERT INTO local SELECT id FROM items; SELECT count(*) FROM local',
	'CREATE MATERIALIZED VIEW m AS SELECT id FROM items; SELECT count(*) FROM m');

my %answers = map { $_->name => [ answers($_, @queries) ] } $coordinator, $cluster->workers;
my @local_answers = answers($coordinator, @local);

# the same, when there is nothing to hide and nobody who would
$coordinator->safe_psql('postgres', q{CALL ttl.reap('items')});
$coordinator->safe_psql('postgres', q{CALL ttl.reap('names')});
is($cluster->stored('items'), '45', 'what has expired is gone');
$coordinator->safe_psql('postgres', q{SELECT ttl.drop_container('items'), ttl.drop_container('names')});
my @right = answers($coordinator, @queries);
for my $node ($coordinator, $cluster->workers)
{
	is($answers{ $node->name }[$_], $right[$_], $node->name . ": $queries[$_]") for 0 .. $#queries;
}
@right = answers($coordinator, @local);
is($local_answers[$_], $right[$_], $local[$_]) for 0 .. $#local;

#
# Stamps
#
$coordinator->safe_psql('postgres', q{
CREATE TABLE st (id int PRIMARY KEY, v int, x int);
CREATE TABLE rst (id int PRIMARY KEY, v int);
SELECT create_distributed_table('st', 'id', colocate_with => 'plain'), create_reference_table('rst');
SELECT ttl.create_container('st', 3600), ttl.create_container('rst', 3600);
INSERT INTO st (id, v, x, _ts) SELECT g, g % 10, 1, '2100-01-01' FROM generate_series(1, 40) g;
INSERT INTO rst (id, v, _ts) SELECT g, g % 10, '2100-01-01' FROM generate_series(1, 10) g;
CREATE FUNCTION touch_one_by_one() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 12 LOOP UPDATE st SET v = i WHERE id = i; END LOOP;
END $$;
});

my $nulls = $coordinator->basedir . '/nulls';
my $taken = $coordinator->basedir . '/taken';
append_to_file($nulls, "101\t\\N\n102\t\\N\n");
append_to_file($taken, "7\t1\tnew\n8\t1\tnew\n");

my $with_source = 'USING plain s ON t.id = s.id';
my $upsert = 'ON CONFLICT (id) DO UPDATE SET v = excluded.v';
my @stamps = (
	[ 1,  'UPDATE st SET v = 1 WHERE id = 7' ],
	[ 12, join(';', map { "UPDATE st SET v = v WHERE id = $_" } 1 .. 12) ],
	[ 12, 'PREPARE p (int) AS UPDATE st SET v = $1 WHERE id = $1;' . join('', map { "EXECUTE p ($_);" } 1 .. 12) . 'DEALLOCATE p' ],
	[ 40, 'PREPARE p (int) AS UPDATE st SET v = $1;' . join('', map { "EXECUTE p ($_);" } 1 .. 7) . 'DEALLOCATE p' ],
	[ 12, 'SELECT touch_one_by_one()' ],
	[ 40, 'UPDATE st SET v = v + 1' ],
	[ 1,  q{UPDATE st SET v = 1, _ts = '2099-01-01' WHERE id = 7} ],
	[ 40, q{UPDATE st SET _ts = '2099-01-01'} ],
	[ 1,  'UPDATE st SET (v, _ts) = (1, _ts) WHERE id = 7' ],
	[ 40, 'UPDATE st SET v = p.v FROM plain p WHERE p.id = st.id' ],
	[ 40, 'UPDATE st SET v = n.v FROM all_names n WHERE n.v = st.v' ],
	[ 8,  'UPDATE st SET v = 1 WHERE v IN (SELECT v FROM plain WHERE v < 2 LIMIT 50)' ],
	[ 40, 'WITH u AS (UPDATE st SET v = 1 RETURNING id) SELECT FROM u LIMIT 0' ],
	[ 1,  "INSERT INTO st (id, v) VALUES (7, 1) $upsert" ],
	[ 3,  "INSERT INTO st (id, v) VALUES (7, 1), (8, 2), (9, 3) $upsert" ],
	[ 12, "PREPARE p (int) AS INSERT INTO st (id, v) VALUES (\$1, 1) $upsert;" . join('', map { "EXECUTE p ($_);" } 1 .. 12) . 'DEALLOCATE p' ],
	[ 1,  q{INSERT INTO st (id, _ts) VALUES (7, '2099-01-01') ON CONFLICT (id) DO UPDATE SET _ts = excluded._ts} ],
	[ 40, "INSERT INTO st (id, v) SELECT id, v FROM plain WHERE id <= 40 $upsert" ],
	[ 5,  "INSERT INTO st (id, v) SELECT id, v FROM plain WHERE id <= 40 ORDER BY id LIMIT 5 $upsert" ],
	[ 10, "INSERT INTO st (id, v) SELECT v, min(id) FROM (SELECT v + 1 AS v, id FROM plain) p GROUP BY v $upsert" ],
	[ 0,  'INSERT INTO st (id, v) VALUES (7, 1) ON CONFLICT DO NOTHING' ],
	[ 40, "MERGE INTO st t $with_source WHEN MATCHED THEN UPDATE SET v = s.v" ],
	[ 40, "MERGE INTO st t $with_source WHEN MATCHED THEN UPDATE SET v = s.v, _ts = '2099-01-01'" ],
	[ 60, "MERGE INTO st t $with_source WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)" ],
	[ 20, "MERGE INTO st t $with_source WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)" ],
	[ 20, "MERGE INTO st t $with_source WHEN NOT MATCHED THEN INSERT (id, v, _ts) VALUES (s.id, s.v, DEFAULT)" ],
	[ 10, 'MERGE INTO st t USING (SELECT v + 1 AS k, min(id) AS id FROM plain GROUP BY v) s ON t.id = s.k WHEN MATCHED THEN UPDATE SET v = s.id' ],
	[ 10, 'MERGE INTO st t USING (SELECT v + 101 AS k, min(id) AS id FROM plain GROUP BY v) s ON t.id = s.k WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.k, s.id)' ],
	[ 1,  'MERGE INTO st t USING plain s ON t.id = s.id AND t.id = 7 AND s.id = 7 WHEN MATCHED THEN UPDATE SET v = 1' ],
	[ 0,  'SELECT FROM st WHERE id = 7 FOR UPDATE' ],
	[ 0,  'SET LOCAL ttl.touch = off; UPDATE st SET v = 1; UPDATE st SET v = 1 WHERE id = 7' ],
	[ 4,  'INSERT INTO st (id) VALUES (101); INSERT INTO st (id, _ts) VALUES (102, NULL), (103, NULL), (104, DEFAULT)' ],
	[ 12, 'PREPARE p (int) AS INSERT INTO st (id, _ts) VALUES ($1, NULL);' . join('', map { "EXECUTE p ($_);" } 101 .. 112) . 'DEALLOCATE p' ],
	[ 60, 'INSERT INTO st (id, _ts) SELECT id + 100, NULL FROM plain' ],
	[ 2,  "COPY st (id, _ts) FROM '$nulls'" ]);
my @reference_stamps = (
	[ 10, 'UPDATE rst SET v = v' ],
	[ 1,  q{UPDATE rst SET _ts = '2099-01-01' WHERE id = 7} ],
	[ 1,  'INSERT INTO rst (id, v) VALUES (7, 1) ON CONFLICT (id) DO UPDATE SET v = excluded.v' ],
	[ 1,  'INSERT INTO rst (id, _ts) VALUES (17, NULL)' ]);

my $fresh = q{count(*) FILTER (WHERE _ts BETWEEN now() - interval '1 hour' AND now() + interval '1 hour')};

sub stamps_are
{
	my ($table, @cases) = @_;

	for my $node ($coordinator, $cluster->workers)
	{
		my @found = answers($node, map { "$_->[1];\n\\echo ---\nSELECT $fresh FROM $table" } @cases);

		is($found[$_] =~ s/^---$|\s//mgr, $cases[$_][0], $node->name . ": $cases[$_][1]") for 0 .. $#cases;
	}
	return;
}
stamps_are('st', @stamps);
stamps_are('rst', @reference_stamps);

# statements are stamped by plans on shards, except those that several copies of a row have to agree on
for my $case (
	[ 0, 'UPDATE st SET v = 1 WHERE id = 7' ],
	[ 0, "INSERT INTO st (id, v) VALUES (7, 1) $upsert" ],
	[ 1, 'UPDATE rst SET v = 1 WHERE id = 7' ])
{
	my ($sent) = $coordinator->safe_psql('postgres', "EXPLAIN (VERBOSE, COSTS off) $case->[1]") =~ /Query: (.*)/ or die;

	is($sent =~ /shard_stamp/ ? 1 : 0, $case->[0], "sent by the coordinator: $case->[1]");
}
is($coordinator->safe_psql('postgres', 'BEGIN; UPDATE st SET v = 1 WHERE id = 7; ROLLBACK; SHOW citus.enable_local_fast_path_query_optimization'),
	'on', '... and what that turns off for Citus is on again in the next transaction');

# ... and rounded up
my $exact = $fresh;
$coordinator->safe_psql('postgres', qq{SELECT ttl.alter_container('$_', ts_precision => '30 minutes')}) for qw(st rst);
$fresh =~ s/FILTER \(WHERE/FILTER (WHERE _ts = date_bin('30 minutes', _ts, '2000-01-01 00:00:00+00') AND/;
stamps_are('st', @stamps);
stamps_are('rst', @reference_stamps);
$coordinator->safe_psql('postgres', qq{SELECT ttl.alter_container('$_', ts_precision => '0')}) for qw(st rst);

# a clock that is a number, as in an export of Cosmos DB
$coordinator->safe_psql('postgres', q{
CREATE TABLE numbered (id int PRIMARY KEY, v int, _ts bigint NOT NULL);
SELECT create_distributed_table('numbered', 'id');
INSERT INTO numbered SELECT id, id, 4070908800 FROM plain WHERE id <= 10;
SELECT ttl.create_container('numbered', 3600, ts_column => '_ts', ttl_column => NULL, ts_unit => 'epoch')});
$fresh = q{count(*) FILTER (WHERE to_timestamp(_ts) BETWEEN now() - interval '1 hour' AND now() + interval '1 hour')};
stamps_are('numbered',
	[ 1,  'UPDATE numbered SET v = 1 WHERE id = 7' ],
	[ 10, 'UPDATE numbered SET v = v + 1, _ts = 0' ],
	[ 1,  'INSERT INTO numbered (id, v) VALUES (7, 1) ON CONFLICT (id) DO UPDATE SET v = excluded.v' ],
	[ 2,  'INSERT INTO numbered (id) VALUES (11); INSERT INTO numbered (id, _ts) VALUES (12, NULL)' ],
	[ 20, 'MERGE INTO numbered t USING plain s ON t.id = s.id AND s.id <= 20 WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED AND s.id <= 20 THEN INSERT (id, v) VALUES (s.id, s.v)' ],
	[ 0,  'SET LOCAL ttl.touch = off; UPDATE numbered SET v = 1' ]);
$fresh = $exact;
# a table of the coordinator's own, in statements that Citus plans
$coordinator->safe_psql('postgres', q{
CREATE TABLE own (id int PRIMARY KEY, v int);
SELECT ttl.create_container('own', 3600);
INSERT INTO own SELECT g, g, '2099-01-01' FROM generate_series(1, 20) g});
for my $case (
	[ 20, 'UPDATE own o SET v = p.v FROM plain p WHERE p.id = o.id' ],
	[ 20, 'UPDATE own SET v = (SELECT max(v) FROM plain)' ],
	[ 9,  'UPDATE own o SET v = n.v FROM all_names n WHERE n.v = o.id' ],
	[ 9,  'MERGE INTO own o USING all_names n ON n.v = o.id WHEN MATCHED THEN UPDATE SET v = 1' ],
	[ 20, 'INSERT INTO own SELECT id, v FROM plain WHERE id <= 20 ON CONFLICT (id) DO UPDATE SET v = 1' ],
	[ 9,  'INSERT INTO own SELECT v, 1 FROM all_names WHERE v > 0 ON CONFLICT (id) DO UPDATE SET v = 1' ],
	[ 9,  'INSERT INTO own SELECT v, 1, NULL FROM all_names WHERE v > 0 ON CONFLICT (id) DO UPDATE SET v = own.v' ],
	[ 20, 'INSERT INTO own SELECT id + 100, v, NULL FROM plain WHERE id <= 20' ],
	[ 20, 'INSERT INTO own SELECT id + 100, v FROM plain WHERE id <= 20' ])
{
	my ($found) = answers($coordinator, "$case->[1];\n\\echo ---\nSELECT $fresh FROM own");

	is($found =~ s/^---$|\s//mgr, $case->[0], "coordinator's own table: $case->[1]");
}
$coordinator->safe_psql('postgres', q{SELECT ttl.alter_container('st', touch_on_update => false)});
stamps_are('st',
	map { [ 0, $_ ] } 'UPDATE st SET v = 1', 'UPDATE st SET v = 1 WHERE id = 7',
	'INSERT INTO st (id, v) VALUES (7, 1) ON CONFLICT (id) DO UPDATE SET v = excluded.v',
	"MERGE INTO st t $with_source WHEN MATCHED THEN UPDATE SET v = s.v");

#
# Keys
#
$coordinator->safe_psql('postgres', q{
CREATE TABLE keys (id int, n int, v text, PRIMARY KEY (id, n));
CREATE TABLE rkeys (id int PRIMARY KEY, v text);
SELECT create_distributed_table('keys', 'id', colocate_with => 'plain'), create_reference_table('rkeys');
SELECT ttl.create_container('keys', 3600), ttl.create_container('rkeys', 3600);
INSERT INTO rkeys (id, v) VALUES (1, 'live');
INSERT INTO rkeys (id, v, _ts) SELECT g, 'dead', '2020-01-01' FROM generate_series(2, 10) g;
INSERT INTO keys (id, n, v) SELECT g, 1, 'live' FROM generate_series(1, 5) g;
INSERT INTO keys (id, n, v, _ts) SELECT g, 1, 'dead', '2020-01-01' FROM generate_series(6, 60) g;
INSERT INTO keys (id, n, v, _ts) SELECT g, 2, 'dead', '2020-01-01' FROM generate_series(1, 5) g});
my @keys = (
	[ '7|new', q{INSERT INTO keys VALUES (7, 1, 'new')} ],
	[ "7|new\n8|new\n9|new", q{INSERT INTO keys VALUES (7, 1, 'new'), (8, 1, 'new'), (9, 1, 'new')} ],
	[ "6|new\n7|new\n8|new\n9|new", q{PREPARE p (int) AS INSERT INTO keys VALUES ($1, 1, 'new');} . join('', map { "EXECUTE p ($_);" } 6 .. 9) . 'DEALLOCATE p' ],
	[ '7|new', q{INSERT INTO keys VALUES (7, 1, 'new') ON CONFLICT DO NOTHING} ],
	[ "1|changed\n7|new", q{INSERT INTO keys VALUES (7, 1, 'new'), (1, 1, 'new') ON CONFLICT (id, n) DO UPDATE SET v = 'changed'} ],
	[ join("\n", sort map { "$_|new" } 6 .. 60), q{INSERT INTO keys SELECT id, 1, 'new' FROM plain WHERE id > 5} ],
	[ join("\n", sort map { "$_|new" } 6 .. 60), q{INSERT INTO keys SELECT id, 1, 'new' FROM plain ON CONFLICT DO NOTHING} ],
	[ join("\n", sort map { "$_|new" } 10 .. 19), q{INSERT INTO keys SELECT v + 10, 1, 'new' FROM (SELECT DISTINCT v FROM plain) p} ],
	[ join("\n", sort map { "$_|new" } 6 .. 60), q{MERGE INTO keys k USING plain p ON k.id = p.id WHEN NOT MATCHED THEN INSERT (id, n, v) VALUES (p.id, 1, 'new')} ],
	[ "7|new\n8|new", "COPY keys (id, n, v) FROM '$taken'" ],
	[ '1|live', 'UPDATE keys SET n = 2 WHERE id = 1 AND n = 1' ]);

for my $node ($coordinator, $cluster->workers)
{
	my @found = answers($node, map { "$_->[1];\n\\echo ---\nSELECT id, v FROM keys WHERE v <> 'live' OR n = 2" } @keys);

	is($found[$_] =~ s/^---\n//r, $keys[$_][0], $node->name . ": $keys[$_][1]") for 0 .. $#keys;
	is(join(' ', answers($node, q{INSERT INTO rkeys VALUES (7, 'new'), (1, 'new') ON CONFLICT (id) DO UPDATE SET v = 'changed'; SELECT id, v FROM rkeys})),
		"1|changed\n7|new", $node->name . ': reference table');
	$node->fails(q{INSERT INTO keys VALUES (1, 1, 'new')}, '23505', $node->name . ': a live row keeps its key');
}
# one by one: what several shards write Citus prepares, and what is prepared is not counted
$worker->safe_psql('postgres', "INSERT INTO keys VALUES ($_, 1, 'new')") for 7 .. 9;
is($coordinator->statistics('rows_evicted', 'keys') >= 3, 1, 'evictions are counted');
is($cluster->stored('keys', 'id IN (7, 8, 9)'), '3', 'the expired rows are gone');

# foreign keys
$coordinator->safe_psql('postgres', q{
CREATE TABLE parents (id int PRIMARY KEY);
CREATE TABLE children (id int, color int);
SELECT create_distributed_table('parents', 'id', colocate_with => 'plain'), create_distributed_table('children', 'id', colocate_with => 'plain');
ALTER TABLE children ADD FOREIGN KEY (color) REFERENCES rkeys;
ALTER TABLE children ADD FOREIGN KEY (id) REFERENCES parents ON DELETE CASCADE;
SELECT ttl.create_container('parents', 3600);
INSERT INTO parents (id, _ts) SELECT g, now() - interval '1 hour' + interval '1.5 seconds' FROM generate_series(1, 10) g;
INSERT INTO children SELECT generate_series(1, 10);
INSERT INTO parents (id) SELECT generate_series(11, 20);
INSERT INTO children SELECT generate_series(11, 20)});
$coordinator->wait_until('SELECT count(*) = 10 FROM parents');
$_->fails('INSERT INTO children VALUES (7, NULL)', '23503', $_->name . ': an expired parent is absent') for $coordinator, $worker;
$_->fails('INSERT INTO children VALUES (11, 9)', '23503', $_->name . ': so is one in a reference table') for $coordinator, $worker;
$worker->safe_psql('postgres', 'INSERT INTO children VALUES (11, 1)');
$coordinator->safe_psql('postgres', q{CALL ttl.reap('parents')});
is($coordinator->safe_psql('postgres', 'SELECT count(*), min(id) FROM children'), '11|11', 'children go with their parents');

# timestamps that are rounded
my $rounded = q{SELECT count(*) FILTER (WHERE _ts <> date_bin('1 hour', _ts, '2000-01-01 00:00:00+00')), count(DISTINCT _ts) <= 2, bool_and(_ts > now() - interval '1 min') FROM item};
for my $distribute (q{create_distributed_table('item', 'id')}, q{create_reference_table('item')})
{
	$coordinator->safe_psql('postgres', qq{
CREATE TABLE item (id int PRIMARY KEY, v int);
SELECT $distribute;
SELECT ttl.create_container('item', 86400, ts_precision => '1 hour')});
	for my $sql (
		'INSERT INTO item (id) SELECT generate_series(1, 40)',
		q{UPDATE item SET v = 1, _ts = '2020-01-01 00:00:01'},
		'UPDATE item SET v = 2 WHERE id = 7',
		'INSERT INTO item AS i (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET v = i.v + 1',
		q{COPY item (id) FROM PROGRAM 'seq 41 50'})
	{
		$coordinator->safe_psql('postgres', $sql);
		is($coordinator->safe_psql('postgres', $rounded), '0|t|t', "$distribute: rounded: $sql");
	}
	is(join(' ', $cluster->on_each(q{SELECT string_agg(DISTINCT ts_precision::text, ' ') FROM ttl.container WHERE relid::text ~ '^item(_|$)'})),
		'01:00:00 01:00:00 01:00:00', '... on all nodes');
	$coordinator->safe_psql('postgres', q{SELECT ttl.alter_container('item', ts_precision => '0'); UPDATE item SET v = 3});
	is($coordinator->safe_psql('postgres', 'SELECT count(*) FROM item WHERE _ts > now()'), '0', '... until they are exact again');
	$coordinator->safe_psql('postgres', 'DROP TABLE item');
}

$cluster->stop;
done_testing();
