# Each stored row is in the expiry index that it belongs to, and in no other, whatever statement has written it:
# ttl evaluates the predicates of these indexes itself where the executor would (evict.c).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', 'ttl.reaper = off');
$node->safe_psql('postgres', 'CREATE EXTENSION ttl; CREATE EXTENSION amcheck;');

# Types of TTL columns, arguments of create_container, and values, the first of which is NULL; some have no meaning.
my @kinds = (
	[ 'integer', '', qw(NULL -1 1 3600 2147483647) ],
	[ 'smallint', '', qw(NULL -1 1 3600 32767) ],
	[ 'bigint', '', qw(NULL -1 1 3600 2147483648 0 -7) ],
	[ 'numeric', '', qw(NULL -1 1 3600.0 20.5 0 -7 2147483648), "'NaN'" ],
	[ 'float8', '', qw(NULL -1 1 3600 20.5 0 -7 2147483648), "'NaN'", "'Infinity'" ],
	[ 'real', '', qw(NULL -1 1 3600 20.5 0 -7), "'-Infinity'" ],
	[ 'jsonb', '', 'NULL', map { "'$_'" } '{}', '{"ttl": 3600}', '{"ttl": -1}', '{"ttl": 20.5}', '{"ttl": "20"}', '{"ttl": null}', '[1]', '7' ],
	[ 'timestamptz', '', 'NULL', map { "'$_'" } '2000-01-01', '2100-01-01', 'infinity', '-infinity' ],
	[ 'timestamp', '', 'NULL', map { "'$_'" } '2000-01-01', '2100-01-01', 'infinity', '-infinity' ],
	[ 'date', '', 'NULL', map { "'$_'" } '2000-01-01', '2100-01-01', 'infinity', '-infinity' ],
	[ 'bigint', ", ttl_unit => 'epoch_ms'", qw(NULL 0 1 4102444800000 9223372036854775807), "'-9223372036854775808'" ],
	[ 'numeric', ", ttl_unit => 'epoch'", qw(NULL 0 1.5 4102444800 1e30 -1e30), "'NaN'" ]);

# Is each expiry index sound, and a scan of it alone as long as one of the table?
sub is_whole
{
	my ($table, $what) = @_;
	my @indexes = map { [ split /\t/ ] } split /\n/, $node->safe_psql('postgres', qq{
SELECT c.oid::regclass || E'\\t' || i.indrelid::regclass || E'\\t' || coalesce(pg_get_expr(i.indpred, i.indrelid), 'true')
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relkind = 'i' AND i.indpred IS NOT NULL
   AND i.indrelid IN (SELECT relid FROM pg_partition_tree('$table') UNION SELECT '$table'::regclass) ORDER BY 1});
	my @answers = map {
		my ($index, $on, $predicate) = @$_;
		$node->safe_psql('postgres', qq{
SELECT bt_index_check('$index', true);
SET ttl.show_expired = on; SET enable_bitmapscan = off;
SET enable_indexscan = off; SET enable_indexonlyscan = off; SELECT count(*) FROM ONLY $on WHERE $predicate;
RESET enable_indexscan; RESET enable_indexonlyscan; SET enable_seqscan = off; SELECT count(*) FROM ONLY $on WHERE $predicate;
}) =~ s/\n/ /gr
	} @indexes;

	cmp_ok(scalar @answers, '>', 0, "$what: there are partial indexes");
	is(join(', ', grep { !/^ ?(\d+) \1$/ } @answers), '', "$what: whole");
	return;
}

for my $kind (@kinds)
{
	my ($type, $arguments, @values) = @$kind;
	my $name = "$type$arguments";
	my $all = join ', ', map { "(${_}::$type)" } @values;

	$node->safe_psql('postgres', qq{
DROP TABLE IF EXISTS c, p, part;
CREATE TABLE c (id int PRIMARY KEY, note text, life $type);
CREATE TABLE p (id int, note text, life $type, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE part (gone int, life $type, away text, id int NOT NULL PRIMARY KEY, note text);
ALTER TABLE part DROP gone, DROP away;
ALTER TABLE p ATTACH PARTITION part FOR VALUES FROM (0) TO (5000);
CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (5000) TO (100000);
SELECT ttl.create_container(t, 3600, ttl_column => 'life'$arguments) FROM unnest('{c,p}'::regclass[]) t;
});
	for my $table ('c', 'p')
	{
		my $copied = $node->basedir . '/copied';

		$node->safe_psql('postgres', join "\n",
			(map { my $n = $_; "INSERT INTO $table (id, life) VALUES ($n, $values[$n]);" } 0 .. $#values),
			"INSERT INTO $table (id, life) SELECT 100 + row_number() OVER (), v FROM (VALUES $all) v (v), generate_series(1, 20);",
			(map { my $n = $_; "INSERT INTO $table (id, life) VALUES ($n, $values[-1 - $n]) ON CONFLICT (id) DO UPDATE SET life = EXCLUDED.life;" } 0 .. $#values),
			"INSERT INTO $table (id, life) SELECT 90 + row_number() OVER (), v FROM (VALUES $all) v (v) ON CONFLICT DO NOTHING;",
			"MERGE INTO $table USING (SELECT row_number() OVER () AS id, v FROM (VALUES $all) v (v), generate_series(1, 20)) s (id, v) ON $table.id = s.id + 100
			 WHEN MATCHED THEN UPDATE SET life = v WHEN NOT MATCHED THEN INSERT (id, life) VALUES (s.id + 1000, v);",
			"UPDATE $table SET life = $values[0] WHERE id % 5 = 0;",
			"UPDATE $table SET life = $values[2], id = id + 5000 WHERE id % 5 = 1;",
			"UPDATE $table SET note = 'renewed' WHERE id % 5 = 2;",
			"COPY (SELECT id + 20000, life FROM $table) TO '$copied'; COPY $table (id, life) FROM '$copied';",
			"DO \$\$ BEGIN INSERT INTO $table (id, life) VALUES (90000, $values[1]); UPDATE $table SET life = $values[0] WHERE id = 90000; END \$\$;");
		is_whole($table, "$name, $table");
	}
}

$node->stop;
done_testing();
