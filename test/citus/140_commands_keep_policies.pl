# No command takes a policy or rows away by way of what Citus makes of it, none of ttl's own
# statements runs what others have planted, and none waits for ever.
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
citus.max_cached_conns_per_worker = 0
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

my $hour = q{INSERT INTO %s (id, _ts) SELECT g, CASE WHEN g > 5 THEN now() ELSE '2020-01-01' END FROM generate_series(1, 10) g};

sub is_whole
{
	my ($table, $name) = @_;

	is(answer("SELECT count(*) FROM $table") . ' ' . stored("SELECT count(*) FROM $table"), '5 10', "$name: expired rows are there, and hidden");
	is(answer("SELECT default_ttl FROM ttl.containers WHERE container = '$table'::regclass"), '3600', '... by the same policy');
	return;
}

#
# Operators that somebody has planted in front of PostgreSQL's own: of the same types, and of
# types that PostgreSQL has none for.  (Citus itself sends operators of DDL unqualified, so there
# is none here.)
#
answer(sprintf(qq{
CREATE SCHEMA evil;
CREATE TABLE public.caught (what text);
GRANT ALL ON public.caught TO PUBLIC;
CREATE TABLE items (id int PRIMARY KEY, parent int);
CREATE TABLE gone (id int, parent int);
CREATE TABLE colors (id int PRIMARY KEY);
SELECT create_distributed_table('items', 'id'), create_distributed_table('gone', 'id', colocate_with => 'items'), create_reference_table('colors');
SELECT ttl.create_container('items', 3600), ttl.create_container('colors', 3600);
$hour;
INSERT INTO items (id) VALUES (11)}, 'items'));
my $plant = q{SET citus.enable_ddl_propagation = off; CREATE SCHEMA IF NOT EXISTS evil; CREATE TABLE IF NOT EXISTS public.caught (what text);
SELECT format('CREATE FUNCTION evil.%1$s(%2$s, %3$s) RETURNS boolean LANGUAGE plpgsql AS %4$L; CREATE OPERATOR evil.%5$s (LEFTARG = %2$s, RIGHTARG = %3$s, FUNCTION = evil.%1$s)',
	'f' || n, a, b, format($$BEGIN RAISE EXCEPTION 'planted operator %s of %s and %s'; END$$, o, a, b), o)
	FROM unnest('{=,<>,<,>}'::text[]) o, unnest('{oid,regclass,text,name,bigint,integer,boolean,"\"char\"",timestamptz}'::text[]) WITH ORDINALITY x (a, i),
	unnest('{oid,regclass,text,name,bigint,integer,boolean,"\"char\"",timestamptz}'::text[]) WITH ORDINALITY y (b, j), LATERAL (SELECT i * 100 + j * 10 + ascii(o) * 1000 + length(o) AS n) z
	WHERE a = b OR (a, b) IN (('oid', 'regclass'), ('regclass', 'oid'), ('text', 'name'), ('name', 'text'), ('bigint', 'integer'), ('integer', 'bigint')) \gexec
ALTER DATABASE postgres SET search_path = evil, pg_catalog, public};
answer('DROP SCHEMA evil');
$_->safe_psql('postgres', $plant) for $cluster->nodes;
$coordinator->fails(q{SELECT 1 WHERE 'a'::text = 'b'::text}, 'P0001', 'operators have been planted', qr/planted/);
$worker->fails(q{SELECT 1 WHERE 1::oid = 'pg_class'::regclass}, 'P0001', '... on each node', qr/planted/);
for my $sql (
	q{SELECT count(*) FROM ttl.stat_containers},
	q{SELECT count(*) FROM ttl.status},
	q{SELECT ttl.set_default_ttl('public.items', 7200)},
	q{SELECT ttl.set_default_ttl('public.items', 3600)},
	q{SELECT ttl.expired_count('public.items')},
	q{SELECT count(*) FROM ttl.expiring('public.items', '2 hours')},
	q{CALL ttl.reap('public.items', 1)},
	q{INSERT INTO public.items (id) SELECT 1},
	q{COPY public.items (id) TO STDOUT})
{
	my ($rc, undef, $stderr) = $coordinator->psql('postgres', $sql);

	is($stderr, '', "no planted operator is run: $sql");
}
$_->safe_psql('postgres', 'SET citus.enable_ddl_propagation = off; ALTER DATABASE postgres RESET search_path; DROP SCHEMA evil CASCADE') for $cluster->nodes;
# the order of search_path that everybody has, and an operator that fits better than PostgreSQL's
answer(q{
CREATE FUNCTION public.take(oid, regclass) RETURNS boolean LANGUAGE sql AS 'INSERT INTO public.caught SELECT current_user; SELECT $1 OPERATOR(pg_catalog.=) $2::oid';
CREATE OPERATOR public.= (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.take)});
isnt(answer('SELECT count(*) FROM ttl.stat_containers'), '0', 'statistics');
is(answer('SELECT count(*) FROM caught'), '0', '... are not read by an operator of somebody else');
answer('DROP OPERATOR public.= (oid, regclass)');

is(answer(q{SELECT count(*), count(DISTINCT key), min(expires_at) > now() FROM ttl.expiring('items', '2 hours')}),
	answer(q{SELECT count(*), count(*), true FROM items}), 'ttl.expiring() of a distributed table has the rows of all shards');
answer(q{INSERT INTO colors VALUES (1), (2)});
is(answer(q{SELECT string_agg(key ->> 'id', ' ' ORDER BY key) FROM ttl.expiring('colors', '2 hours')}), '1 2', '... of a reference table each once');
is(answer(q{SELECT count(*) FROM ttl.expiring('items', '1 minute')}), '0', '... and none that lives longer');
answer('DROP TABLE items, gone, colors');

#
# Out of a distributed schema, and into one
#
answer(sprintf(qq{
CREATE SCHEMA tenant; CREATE SCHEMA plain;
SELECT citus_schema_distribute('tenant');
CREATE TABLE tenant.items (id int PRIMARY KEY);
SELECT ttl.create_container('tenant.items', 3600);
$hour}, 'tenant.items'));
is_whole('tenant.items', 'in a distributed schema');
answer('ALTER TABLE tenant.items SET SCHEMA plain');
is_whole('plain.items', 'ALTER TABLE ... SET SCHEMA out of it');
is(answer(q{SELECT count(*) FROM pg_dist_partition WHERE logicalrelid = 'plain.items'::regclass}), '0', '... as a plain table');
answer('SET citus.enable_unsafe_triggers = on; ALTER TABLE plain.items SET SCHEMA tenant');
is_whole('tenant.items', '... and back');
is(join(' ', $cluster->on_each(q{SELECT count(*) > 0 FROM ttl.container WHERE relid::regclass::text ~ 'items'})), 't t t', '... on all nodes');
answer(q{DO $$BEGIN EXECUTE 'ALTER TABLE tenant.items SET SCHEMA plain'; END$$});
is_whole('plain.items', '... in DO');
answer('CALL ttl.reap(\'plain.items\')');
is(stored('SELECT count(*) FROM plain.items'), '5', '... where it is a container like any other');
# nothing is seen by what a command itself asks
answer(sprintf(qq{DROP TABLE plain.items; CREATE TABLE tenant.items (id int PRIMARY KEY); SELECT ttl.create_container('tenant.items', 3600); $hour}, 'tenant.items'));
is(answer(q{CREATE TABLE copied AS SELECT * FROM tenant.items; SELECT count(*) FROM copied}), '5', 'CREATE TABLE AS sees what is live');
is(answer(q{CREATE MATERIALIZED VIEW kept AS SELECT * FROM tenant.items; REFRESH MATERIALIZED VIEW kept; SELECT count(*) FROM kept}), '5', '... REFRESH MATERIALIZED VIEW');
is(answer(q{PREPARE p AS SELECT * FROM tenant.items; CREATE TABLE executed AS EXECUTE p; SELECT count(*) FROM executed}), '5', '... EXECUTE in it');
answer(q{DROP MATERIALIZED VIEW kept; DROP TABLE copied, executed});
answer('DROP SCHEMA plain CASCADE; DROP SCHEMA tenant CASCADE');

#
# Statements on any table
#
answer(q{CREATE TABLE plain (id int)});
my $scans = q{SELECT pg_stat_force_next_flush(); SELECT sum(idx_scan + seq_scan) FROM pg_stat_all_tables WHERE relname = 'pg_dist_partition'};
my @scans = grep { /\d/ } split /\n/, answer("TABLE plain; $scans; $scans; " . 'SELECT count(*) FROM plain a JOIN plain b USING (id); ' x 50 . $scans);
is($scans[-1] - $scans[1], 0, 'where a table is placed is looked up once, not by each statement');
answer(q{BEGIN; SELECT create_distributed_table('plain', 'id'); INSERT INTO plain VALUES (1); SELECT ttl.create_container('plain', 3600); COMMIT; DROP TABLE plain});

#
# Reference tables
#
answer(sprintf(qq{
CREATE TABLE local (id int PRIMARY KEY);
CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree, local int REFERENCES local);
SELECT ttl.create_container('tree', 3600);
$hour}, 'tree'));
answer(q{SELECT create_reference_table('tree')});
is_whole('tree', 'create_reference_table of a table that references itself, and a local one');
is(join(' ', $cluster->on_each('SELECT count(*) FROM tree')), '5 5 5', '... on all nodes');
answer(q{BEGIN; SELECT count(*) FROM tree; CREATE TABLE other (id int PRIMARY KEY); SELECT ttl.create_container('other', 3600); SELECT create_reference_table('other'); COMMIT});
is(join(' ', $cluster->on_each(q{SELECT count(*) > 0 FROM ttl.container WHERE relid::regclass::text ~ '^other'})), 't t t', '... after another was read in the transaction');
answer('DROP TABLE tree, local, other');

#
# Ways of distribution
#
for my $method ('append', 'range')
{
	answer(qq{CREATE TABLE scattered (id int, v int)});
	answer(qq{SELECT create_distributed_table('scattered', 'id', '$method')});
	$coordinator->fails(q{SELECT ttl.create_container('scattered', 3600)}, '0A000', "a table distributed by $method", qr/distributed by append or range\n.*HINT:/s);
	is(answer(q{SELECT count(*) FROM pg_attribute WHERE attrelid = 'scattered'::regclass AND attname = '_ts'}), '0', '... is left as it is');
	answer(q{DROP TABLE scattered; CREATE TABLE scattered (id int, v int); SELECT ttl.create_container('scattered', 3600)});
	$coordinator->fails(qq{SELECT create_distributed_table('scattered', 'id', '$method')}, '0A000', '... nor does a container become one', qr/distributed by append or range/);
	answer('DROP TABLE scattered');
}

#
# FORCE ROW LEVEL SECURITY
#
answer(q{
CREATE ROLE carol LOGIN; GRANT CREATE ON SCHEMA public TO carol; SET ROLE carol;
CREATE TABLE forced (id int PRIMARY KEY);
SELECT create_distributed_table('forced', 'id');
INSERT INTO forced SELECT generate_series(1, 10);
ALTER TABLE forced ENABLE ROW LEVEL SECURITY; ALTER TABLE forced FORCE ROW LEVEL SECURITY;
SELECT ttl.create_container('forced', 3600);
ALTER TABLE forced NO FORCE ROW LEVEL SECURITY});
is(answer('SELECT count(*), count(_ts) FROM forced'), '10|10', 'a table whose rows are hidden from its owner is registered');
answer('DROP TABLE forced');

#
# Locks
#
answer(sprintf(qq{
CREATE TABLE items (id int PRIMARY KEY);
SELECT create_distributed_table('items', 'id', shard_count => 4);
SELECT ttl.create_container('items', 3600);
$hour}, 'items'));
# as a change of the policy has it locked between the commits of shell and shard
my $policy = $worker->background_psql('postgres');
$policy->query_safe('SET citus.enable_ddl_propagation = off; BEGIN; LOCK TABLE ONLY items IN SHARE ROW EXCLUSIVE MODE');
for my $id (1 .. 5)
{
	my ($rc, undef, $stderr) = $coordinator->psql('postgres', "INSERT INTO items (id) VALUES ($id)");

	is($stderr, '', "a policy that is being changed does not keep INSERT from an expired key, $id");
}
my $expired = q{INSERT INTO items (id, _ts) SELECT g, '2020-01-01' FROM generate_series(21, 40) g};
answer($expired);
answer(q{CALL ttl.reap('items')});
is(stored('SELECT count(*) FROM items'), '10', '... nor CALL ttl.reap from rows of that node');
$policy->query_safe('ROLLBACK');
# as while Citus makes another table of it
answer($expired);
$policy->query_safe('BEGIN; LOCK TABLE ONLY items IN EXCLUSIVE MODE');
my $call = $coordinator->background_psql('postgres');
$call->query_until(qr/begun/, "\\echo begun\nCALL ttl.reap('items');\n");
$worker->wait_until(q{SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'items'::regclass});
is($worker->safe_psql('postgres', q{SELECT count(*) FROM pg_locks l WHERE NOT granted AND EXISTS (SELECT FROM pg_locks g WHERE g.pid = l.pid AND g.granted AND g.relation::regclass::text ~ '^items_')}),
	'0', 'CALL ttl.reap waits for what Citus copies, and has no lock on its shards then');
$policy->query_safe('ROLLBACK');
$policy->quit;
$call->query_safe('SELECT 1');
$call->quit;
is(stored('SELECT count(*) FROM items'), '10', '... and leaves none out');
# an eviction is part of the INSERT, which Citus has kept from its shards where it must
answer($expired);
$policy = $worker->background_psql('postgres');
$policy->query_safe('SET citus.enable_ddl_propagation = off; BEGIN; LOCK TABLE ONLY items IN EXCLUSIVE MODE');
answer('INSERT INTO items (id) SELECT generate_series(21, 40)');
$policy->query_safe('ROLLBACK');
$policy->quit;
is(answer('SELECT count(*) FROM items WHERE id > 20'), '20', 'INSERT on the keys of expired rows does not wait for it');
answer('DELETE FROM items WHERE id > 20');
# what nobody may delete from
answer(q{
CREATE TABLE referenced (id int PRIMARY KEY);
SELECT create_reference_table('referenced'), ttl.create_container('referenced', 3600);
CREATE TABLE referencing (id int PRIMARY KEY REFERENCES referenced);
SELECT create_distributed_table('referencing', 'id');
INSERT INTO referenced (id, _ts) VALUES (1, '2020-01-01')});
my ($rc, undef, $stderr) = $coordinator->psql('postgres', q{CALL ttl.reap('referenced')});
like($stderr, qr/WARNING:  3 expired rows of distributed table "referenced" are still stored/, 'CALL ttl.reap says what it leaves out');
my $copy = $worker->safe_psql('postgres', q{SELECT relid FROM ttl.container WHERE relid::text ~ '^referenced_\d+$'});
($rc, undef, $stderr) = $worker->psql('postgres', "CALL ttl.reap('$copy')");
like($stderr, qr/WARNING:  expired rows of shard "$copy" have not been deleted\n.*may reference/s, '... and why, on the node');
answer('DROP TABLE referencing, referenced');

answer(q{CREATE INDEX ON items (_ts, id)});
is(answer(q{SET statement_timeout = '20s'; BEGIN; REINDEX TABLE items; SELECT count(*) FROM ttl.stat_containers WHERE container = 'items'::regclass; ROLLBACK}), '1', 'statistics do not wait for their own REINDEX');

$cluster->stop;
done_testing();
