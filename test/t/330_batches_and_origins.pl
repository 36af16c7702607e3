# How many rows a batch has, and replication_origin, a setting of a container.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END', allows_streaming => 'logical');
ttl.reaper = off
ttl.naptime = 100ms
autovacuum = off
END
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE c (id int);
SELECT ttl.create_container('c', 3600);
});

# values
my $show = q{SELECT replication_origin FROM ttl.container};
is($node->safe_psql('postgres', $show), 'f', 'default');
$node->safe_psql('postgres', q{SELECT ttl.alter_container('c', replication_origin => true)});
is($node->safe_psql('postgres', $show), 't', 'set');
$node->safe_psql('postgres', q{SELECT ttl.alter_container('c', reaping => true)});
is($node->safe_psql('postgres', $show), 't', 'left');
$node->safe_psql('postgres', q{SELECT ttl.alter_container('c', replication_origin => false)});
is($node->safe_psql('postgres', $show), 'f', 'cleared');

# A batch has as many rows as take some 50 ms: where they cost little, each has more than the one before, and where
# a trigger makes them dear, few.
sub batches_of
{
	my ($rows) = @_;

	$node->add_expired('c', $rows);
	my $before = $node->statistics('batches', 'c');
	$node->safe_psql('postgres', q{CALL ttl.reap('c')});
	return $node->statistics('batches', 'c') - $before;
}
my $batches = batches_of(2000);
cmp_ok($batches, '<', 30, "2000 rows go in $batches batches, and not in 40 of the first one's size");
cmp_ok($batches, '>', 3, '... nor all at once');
$node->safe_psql('postgres', q{
CREATE FUNCTION cost() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN old; END';
CREATE TRIGGER cost BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION cost()});
$batches = batches_of(80);
cmp_ok($batches, '>=', 7, "80 dear rows in $batches: those after the first have five at most");

# replication_origin
$node->turn_reaper('off');
$node->safe_psql('postgres', q{
CREATE TABLE o (id int PRIMARY KEY);
CREATE TABLE d (id int);
SELECT ttl.create_container('o', 3600);
SELECT pg_create_logical_replication_slot('s', 'test_decoding');
});

# what consumers see of the deletions: all, and those of local origin
sub deletes
{
	my $from = 'FROM pg_logical_slot_peek_changes(\'s\', NULL, NULL';
	my $like = "data LIKE 'table public.o: DELETE%'";

	$node->wait_for_flush;
	my $result = $node->safe_psql('postgres',
		"SELECT (SELECT count(*) $from) WHERE $like), (SELECT count(*) $from, 'only-local', 'on') WHERE $like)");
	$node->safe_psql('postgres', q{SELECT count(*) FROM pg_logical_slot_get_changes('s', NULL, NULL)});
	return $result;
}
$node->add_expired('o', 100);
$node->safe_psql('postgres', q{CALL ttl.reap('o')});
is(deletes(), '100|100', 'untagged by default');
$node->safe_psql('postgres', q{SELECT ttl.alter_container('o', replication_origin => true)});
$node->add_expired('o', 100);
$node->safe_psql('postgres', q{CALL ttl.reap('o')});
is(deletes(), '100|0', 'CALL ttl.reap tags when asked to');
$node->add_expired('o', 100);
$node->safe_psql('postgres', q{BEGIN; CALL ttl.reap('o'); INSERT INTO o VALUES (101); DELETE FROM o WHERE id = 101; COMMIT});
is(deletes(), '101|1', 'in a transaction block only what it has deleted');
$node->safe_psql('postgres', q{CREATE TABLE untagged (id int); SELECT ttl.create_container('untagged', 3600)});
$node->add_expired($_, 10) for qw(o untagged);
is($node->safe_psql('postgres', q{CALL ttl.reap('o'); CALL ttl.reap('untagged'); SELECT pg_replication_origin_session_is_setup()}),
	'f', 'the origin is given back ...');
is($node->stored('untagged'), 0, '... for a container that does without');
$node->safe_psql('postgres', q{SELECT count(*) FROM pg_logical_slot_get_changes('s', NULL, NULL)});
is($node->safe_psql('postgres', q{SELECT string_agg(roname, ',') FROM pg_replication_origin}), 'ttl', 'the origin');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_replication_origin_status WHERE external_id = 'ttl' AND remote_lsn <> '0/0'}), '0',
	'keeps no track of progress');

# a trigger that rolls back inside of it
$node->safe_psql('postgres', q{
CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		INSERT INTO public.d (id) VALUES (1);
		RAISE EXCEPTION 'x';
	EXCEPTION WHEN raise_exception THEN NULL;
	END;
	RETURN old;
END $$;
CREATE TRIGGER t BEFORE DELETE ON o FOR EACH ROW EXECUTE FUNCTION f();
});
$node->add_expired('o', 100);
$node->safe_psql('postgres', q{CALL ttl.reap('o')});
is(deletes(), '100|0', 'with subtransactions that roll back');

# the worker, while somebody else has the origin, and after that: it comes again each second, however often in vain; a
# call waits as long as that takes
my ($in, $out) = ('', '');
my $h = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out,
	IPC::Run::timeout(180));
$in = "SELECT pg_replication_origin_session_setup('ttl');\n\\echo done\n";
$h->pump until $out =~ /done/;
$node->safe_psql('postgres', q{
CREATE TABLE called (id int);
SELECT ttl.create_container('called', 3600);
SELECT ttl.alter_container('called', reaping => false, replication_origin => true)});
$node->add_expired('called', 10);
$node->add_expired('o', 100);
my $visits = $node->statistics('batches', 'o');
my $call = $node->background_psql('postgres');
$call->query_until(qr/begun/, "\\echo begun\nCALL ttl.reap('called');\n");
$node->turn_reaper('on');
$node->wait_until("SELECT batches >= $visits + 4 FROM ttl.stat_containers WHERE container = 'o'::regclass");
is($node->stored('o'), 100, 'the worker waits for the origin');
is($node->stored('called'), 10, '... and so does a call');
my $start = time;
$in = "\\q\n";
$h->finish;
$node->is_emptied('o', 'the worker comes back');
cmp_ok(time - $start, '<', 6, '... soon');
$node->is_emptied('called', '... and the call goes on');
$call->quit;
is(deletes(), '100|0', 'the worker tags, too');
is_deeply([ grep { !/replication origin/ } slurp_file($node->logfile) =~ /could not delete.*/g ], [], 'nothing is logged but who has the origin');

# Rows with one key, of which a small budget finds few at once: what is behind them isn't looked for from the
# first of them again and again.
$node->turn_reaper('off');
$node->configure("ttl.naptime = 100ms\nttl.cycle_cost_limit = 400\n");
$node->safe_psql('postgres', q{
CREATE TABLE equal (id int);
SELECT ttl.create_container('equal', 3600);
INSERT INTO equal (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 30000) g;
VACUUM equal;
});
my $reads = "SELECT idx_blks_hit + idx_blks_read FROM pg_statio_user_indexes WHERE indexrelname = 'equal__ts_idx'";
$node->wait_until("SELECT ($reads) > 30000");
my $read_before = $node->safe_psql('postgres', $reads);
$node->turn_reaper('on');
$node->wait_until("SELECT n_tup_del = 30000 FROM pg_stat_user_tables WHERE relname = 'equal'");
my $read = $node->safe_psql('postgres', $reads) - $read_before;
cmp_ok($read, '<', 400, "rows with one key go by $read reads of their index");

$node->stop;
done_testing();
