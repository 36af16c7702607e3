# Whole partitions are emptied at once, where nobody can tell the difference.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END', allows_streaming => 1);
ttl.reaper = off
autovacuum = off
max_prepared_transactions = 5
END
$node->safe_psql('postgres', 'CREATE EXTENSION ttl');

# Makes a container with a partition full of expired rows; the second partition
# holds a live one.
sub make
{
	my ($name, %option) = @_;
	my $rows = $option{rows} // 2000;
	my $ttl_column = $option{ttl_column} ? ", ttl_column => $option{ttl_column}" : '';

	$node->safe_psql('postgres', qq{
CREATE TABLE $name (id int, v text) PARTITION BY RANGE (id);
CREATE TABLE ${name}_old PARTITION OF $name FOR VALUES FROM (0) TO (1000000);
CREATE TABLE ${name}_new PARTITION OF $name FOR VALUES FROM (1000000) TO (2000000);
SELECT ttl.create_container('$name', 3600$ttl_column);
INSERT INTO $name (id, v, _ts) SELECT g, 'x', now() - interval '2h' FROM generate_series(1, $rows) g;
INSERT INTO $name (id, v) VALUES (1000001, 'live');
});
}

# Reaps, and returns whether the partition was emptied at once.
sub at_once
{
	my ($name, $rows, $call) = @_;
	$call //= "CALL ttl.reap('$name')";
	my $file = "SELECT pg_relation_filenode('${name}_old')";
	my $before = $node->safe_psql('postgres', $file);
	my ($out, $err);

	$node->psql('postgres', $call, stdout => \$out, stderr => \$err);
	like($err, qr/ttl: $rows expired rows? deleted/, "$name: $rows rows deleted") if defined $rows;
	return $node->safe_psql('postgres', $file) ne $before ? 'at once' : 'row by row';
}

make('plain');
is(at_once('plain', 2000), 'at once', 'a partition of expired rows');
is($node->stored('plain'), 1, 'only the live row is left');
is($node->safe_psql('postgres', "SELECT rows_deleted FROM ttl.stat_containers WHERE container = 'plain'::regclass"),
	2000, 'the rows are counted');

make('no_column', ttl_column => 'NULL');
is(at_once('no_column', 2000), 'at once', 'without a TTL column');

# what reads the partition is no batch
make('large', rows => 50000);
$node->configure('ttl.batch_timeout = 1ms');
is(at_once('large', 50000), 'at once', 'a partition whose reading takes longer than ttl.batch_timeout');
$node->configure('ttl.batch_timeout = 1min');

make('few', rows => 20);
is(at_once('few', 20), 'row by row', 'a handful of rows');

make('in_block');
is(at_once('in_block', undef, "BEGIN; CALL ttl.reap('in_block'); COMMIT"),
	'row by row', 'in a transaction block');

make('capped');
is(at_once('capped', 1000, "CALL ttl.reap('capped', 1000)"), 'row by row', 'max_rows is obeyed');

# deadlines, without a _ts, and documents; a row that lives may be in no index
for my $live ('', "'infinity'", 'NULL', "'2900-01-01'")
{
	my $name = 'deadlines_' . (length $live ? $live =~ s/\W//gr : 'none');

	$node->safe_psql('postgres', qq{
CREATE TABLE $name (id int, until timestamptz) PARTITION BY RANGE (id);
CREATE TABLE ${name}_old PARTITION OF $name FOR VALUES FROM (0) TO (1000000);
SELECT ttl.create_container('$name', -1, ts_column => NULL, ttl_column => 'until');
INSERT INTO $name SELECT g, now() - interval '2h' FROM generate_series(1, 2000) g;
} . ($live eq '' ? '' : "INSERT INTO $name VALUES (5000, $live)"));
	is(at_once($name, 2000), $live eq '' ? 'at once' : 'row by row', "deadlines, live one: $live");
	is($node->stored($name), $live eq '' ? 0 : 1, '... is left');
}
for my $live ('', '{"ttl": -1}', '{"ttl": 2000000000}')
{
	my $name = 'documents_' . length $live;

	$node->safe_psql('postgres', qq{
CREATE TABLE $name (id int, doc jsonb) PARTITION BY RANGE (id);
CREATE TABLE ${name}_old PARTITION OF $name FOR VALUES FROM (0) TO (1000000);
SELECT ttl.create_container('$name', 3600, ttl_column => 'doc');
INSERT INTO $name (id, doc, _ts) SELECT g, CASE WHEN g % 2 = 0 THEN '{"ttl": 5}' END::jsonb, now() - interval '2h' FROM generate_series(1, 2000) g;
} . ($live eq '' ? '' : "INSERT INTO $name (id, doc, _ts) VALUES (5000, '$live', now() - interval '2h')"));
	is(at_once($name, 2000), $live eq '' ? 'at once' : 'row by row', "documents, live one: $live");
	is($node->stored($name), $live eq '' ? 0 : 1, '... is left');
}

# rows that are not expired
for my $case (
	[ 'forever', 'INSERT INTO forever (id, ttl, _ts) VALUES (5, -1, now() - interval \'1y\')' ],
	[ 'longer', 'INSERT INTO longer (id, ttl, _ts) VALUES (5, 10000000, now() - interval \'2h\')' ],
	[ 'fresh', 'INSERT INTO fresh (id) VALUES (5)' ],
	[ 'infinite', 'INSERT INTO infinite (id, _ts) VALUES (5, \'infinity\')' ])
{
	my ($name, $sql) = @$case;
	make($name);
	$node->safe_psql('postgres', $sql);
	is(at_once($name, 2000), 'row by row', "$name: a row is not expired");
	is($node->stored($name), 2, "$name: and stays");
}
make('nulls', ttl_column => 'NULL');
$node->safe_psql('postgres', q{
ALTER TABLE nulls ALTER _ts DROP NOT NULL;
SET session_replication_role = replica;
INSERT INTO nulls (id, _ts) VALUES (5, NULL)});
is(at_once('nulls', 2000), 'row by row', 'a NULL in _ts never expires');
is($node->stored('nulls'), 2, 'and stays');

make('delayed');
$node->safe_psql('postgres', "SELECT ttl.alter_container('delayed', reap_delay => '2h')");
is(at_once('delayed', 0), 'row by row', 'reap_delay is obeyed');
is($node->stored('delayed'), 2001, 'all rows stay');

# somebody who wants to hear about each row
my $function = q{CREATE FUNCTION noop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN coalesce(old, new); END'};
$node->safe_psql('postgres', $function);
for my $case (
	[ 'row_trigger', 'CREATE TRIGGER t AFTER DELETE ON row_trigger FOR EACH ROW EXECUTE FUNCTION noop()' ],
	[ 'statement_trigger', 'CREATE TRIGGER t AFTER DELETE ON statement_trigger_old EXECUTE FUNCTION noop()' ],
	[ 'parents_row_trigger', 'CREATE TRIGGER t BEFORE DELETE ON parents_row_trigger FOR EACH ROW EXECUTE FUNCTION noop()' ],
	[ 'truncate_trigger', 'CREATE TRIGGER t BEFORE TRUNCATE ON truncate_trigger_old EXECUTE FUNCTION noop()' ],
	[ 'referenced', 'ALTER TABLE referenced ADD UNIQUE (id); CREATE TABLE refs (id int REFERENCES referenced (id))' ],
	[ 'archived', 'CREATE TABLE archive (LIKE archived); SELECT ttl.alter_container(\'archived\', archive_to => \'archive\')' ],
	[ 'rule', 'CREATE RULE r AS ON DELETE TO rule_old DO ALSO NOTHING' ])
{
	my ($name, $sql) = @$case;
	make($name);
	$node->safe_psql('postgres', $sql);
	is(at_once($name, 2000), 'row by row', $name);
	is($node->stored($name), 1, "$name: the expired rows are gone");
}

# triggers of the parent for commands on it, which the worker gives to partitions alone
$node->safe_psql('postgres', q{CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE $$no$$; END'});
for my $case ([ 'parents_few', 20, 'row by row' ], [ 'parents_many', 2000, 'at once' ])
{
	my ($name, $rows, $how) = @$case;
	make($name, rows => $rows);
	$node->safe_psql('postgres', "CREATE TRIGGER $_ BEFORE $_ ON $name EXECUTE FUNCTION refuse()") for 'DELETE', 'TRUNCATE';
	is(at_once($name, $rows), $how, "statement triggers of the parent: $rows rows");
}

# locks
make('locked');
my ($in, $out, $timer) = ('', '', IPC::Run::timeout(180));
my $h = IPC::Run::start(
	[ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$out, $timer);
sub say_to
{
	my ($sql) = @_;
	$out = '';
	$in .= "$sql;\n\\echo done\n";
	$h->pump until $out =~ /done/;
	(my $answer = $out) =~ s/\n?done\n$//;
	return $answer;
}
say_to('BEGIN');
say_to('SELECT count(*) FROM locked_old');
say_to('COMMIT; BEGIN; LOCK TABLE locked_old IN ACCESS SHARE MODE');
is(at_once('locked', 2000), 'row by row', 'a table in use');
say_to('COMMIT');

# old snapshots
make('snapshot', rows => 0);
$node->safe_psql('postgres', q{INSERT INTO snapshot (id, _ts)
	SELECT g, now() - interval '1h' + interval '3s' FROM generate_series(1, 2000) g});
say_to('BEGIN ISOLATION LEVEL REPEATABLE READ');
is(say_to('SELECT count(*) FROM plain'), '1', 'an old snapshot');
$node->safe_psql('postgres', 'SELECT pg_sleep(4)');
is(at_once('snapshot', 2000), 'row by row', 'is respected');
is(say_to('SELECT count(*) FROM snapshot'), '2001', 'and sees what it may');
say_to('COMMIT');

# nor does a row vanish that was alive in a snapshot, and has been deleted since
make('deleted', rows => 0);
$node->safe_psql('postgres', q{
INSERT INTO deleted (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 2000) g;
INSERT INTO deleted (id, ttl) VALUES (5000, -1)});
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; SET LOCAL ttl.show_expired = on; SELECT count(id) FROM (SELECT id FROM deleted WHERE id < 5000 FOR UPDATE) s');
$node->turn_reaper('on');
my $cycles = q{SELECT cycles FROM ttl.stat_reaper WHERE database = 'postgres'};
my $cycle = $node->safe_psql('postgres', $cycles) || 0;
$node->poll_query_until('postgres', "SELECT ($cycles) > $cycle + 5");
say_to('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->safe_psql('postgres', 'DELETE FROM deleted WHERE id = 5000');
$holder->query_safe('COMMIT');
$node->stored_are('deleted', 1, 'rows that somebody has held go when he lets them');
is(say_to('SELECT id FROM deleted WHERE id < 1000000'), '5000', 'a row that has been deleted since is still there for an older snapshot');
say_to('COMMIT');
$holder->quit;
$node->turn_reaper('off');

# a cursor in another database is a transaction like any other
make('elsewhere');
say_to('\c template1');
say_to('BEGIN');
is(at_once('elsewhere', 2000), 'row by row', 'an open transaction in another database');
say_to('COMMIT');
say_to('\c postgres');

make('two_phase');
$node->safe_psql('postgres', q{BEGIN; CREATE TABLE prepared (); PREPARE TRANSACTION 'p'});
is(at_once('two_phase', 2000), 'row by row', 'a prepared transaction');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});

# a transaction that has begun later does no harm, nor one that is only a session
make('again');
is(at_once('again', 2000), 'at once', 'an idle session');
$in .= "\\q\n";
$h->finish;

# vacuumed and frozen pages are not read twice
make('vacuumed', rows => 20000);
$node->safe_psql('postgres', 'VACUUM vacuumed_old');
is(at_once('vacuumed', 20000), 'at once', 'a vacuumed partition');

# owner
$node->safe_psql('postgres', q{CREATE ROLE alice; GRANT CREATE ON SCHEMA public TO alice});
make('owned');
$node->safe_psql('postgres', q{
ALTER TABLE owned OWNER TO alice; ALTER TABLE owned_old OWNER TO alice; ALTER TABLE owned_new OWNER TO alice;
REVOKE TRUNCATE ON owned_old FROM alice;
});
is(at_once('owned', 2000), 'row by row', 'an owner without the privilege TRUNCATE');

# While another transaction is open, rows are deleted one by one.  Whoever comes in
# meanwhile must not miss what it may see when that transaction has ended, nor who has
# imported its snapshot.
for my $case (
	[ 'ended', q{UPDATE ended SET until = '-infinity' WHERE id = 999999}, 1 ],
	[ 'imported', '', 3000 ])
{
	my ($name, $sql, $sees) = @$case;
	my ($holder, $reaper, $reader) = map { $node->background_psql('postgres') } 1 .. 3;

	$node->safe_psql('postgres', qq{
CREATE TABLE $name (id int, until timestamptz) PARTITION BY RANGE (id);
CREATE TABLE ${name}_old PARTITION OF $name FOR VALUES FROM (0) TO (1000000);
SELECT ttl.create_container('$name', -1, ts_column => NULL, ttl_column => 'until');
SELECT ttl.alter_container('$name', batch_size => 1);
INSERT INTO $name SELECT 999999, '2900-01-01' WHERE '$name' <> 'imported';
INSERT INTO $name SELECT g, clock_timestamp() + interval '2s' FROM generate_series(1, 3000) g;
});
	my $snapshot = $holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
	$node->wait_until("SELECT ttl.expired_count('$name') = 3000");
	$reaper->query_until(qr/begins/, "\\echo begins\nCALL ttl.reap('$name');\n");
	$node->wait_until('SELECT batches > 0 FROM ttl.stat_progress_reap');

	$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ;' .
		($sql eq '' ? "SET TRANSACTION SNAPSHOT '$snapshot';" : '') . 'SELECT count(*) FROM plain');
	$node->safe_psql('postgres', $sql);
	$holder->query_safe('COMMIT');
	$reaper->query('SELECT');
	is($reader->query_safe("SELECT count(*) FROM $name"), $sees, "$name: an older snapshot sees what it may");
	$_->quit for $holder, $reaper, $reader;
}

# the worker
$node->append_conf('postgresql.conf', "ttl.reaper = on\nttl.naptime = 100ms\n");
make('worked', rows => 50000);
my $before = $node->safe_psql('postgres', "SELECT pg_relation_filenode('worked_old')");
$node->reload;
ok($node->poll_query_until('postgres',
		q{SELECT rows_deleted >= 50000 FROM ttl.stat_containers WHERE container = 'worked'::regclass}),
	'the worker deletes');
isnt($node->safe_psql('postgres', "SELECT pg_relation_filenode('worked_old')"), $before,
	'at once, too');
is($node->stored('worked'), 1, 'the live row stays');

# a standby may have older snapshots
$node->turn_reaper('off');
$node->backup('backup');
my $standby = TtlNode->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->poll_query_until('postgres', 'SELECT count(*) = 1 FROM pg_stat_replication');
make('streamed');
is(at_once('streamed', 2000), 'row by row', 'with a standby');
$standby->stop;

$node->append_conf('postgresql.conf', 'wal_level = logical');
$node->restart;
make('logical');
is(at_once('logical', 2000), 'row by row', 'with logical decoding');

$node->stop;
done_testing();
