# The reaper gives way: it waits for no lock of others, leaves out rows and
# tables that are locked and policies that are being changed, and comes later.
#
# Prepared transactions hold the locks.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('locks', <<'END');
ttl.naptime = 100ms
max_prepared_transactions = 5
END
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE elsewhere LOCATION '';
CREATE TABLE item (id int);
CREATE TABLE witness (id int);
SELECT ttl.create_container('item', 60);
SELECT ttl.create_container('witness', 60);
END

# While the transaction is there, the reaper works on other tables, and leaves
# so many of the 100 rows of this one (-1 = one cannot look).
sub try_transaction
{
	my ($what, $sql, $stay, $end) = @_;

	$node->turn_reaper('off');
	$node->safe_psql('postgres', <<"END");
INSERT INTO item (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 100) g;
BEGIN;
$sql;
PREPARE TRANSACTION 'p';
END
	$node->turn_reaper('on');
	for (1 .. 3)
	{
		$node->safe_psql('postgres',
			"INSERT INTO witness (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 100) g; SELECT ttl.set_default_ttl('witness', 60)");
		$node->is_emptied('witness', "$what: deletion goes on elsewhere");
	}
	ok( $node->poll_query_until(
			'postgres',
			q{SELECT count(*) = 0 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE backend_type = 'ttl reaper' AND NOT granted}
		),
		"$what: the reaper doesn't wait");
	$node->stored_are('item', $stay, "$what: $stay rows stay") if $stay >= 0;
	$node->safe_psql('postgres', "$end PREPARED 'p'");
}

my @transactions = (
	[ 'LOCK TABLE', 'LOCK TABLE item', -1, 'COMMIT' ],
	[ 'LOCK TABLE in SHARE MODE', 'LOCK TABLE item IN SHARE MODE', 100, 'COMMIT' ],
	[ 'ALTER TABLE', 'ALTER TABLE item ADD COLUMN more int', -1, 'ROLLBACK' ],
	[ 'SELECT FOR UPDATE',
		'SET ttl.show_expired = on; SELECT FROM item WHERE id % 2 = 0 FOR UPDATE', 50, 'COMMIT' ],
	[ 'SELECT FOR KEY SHARE',
		'SET ttl.show_expired = on; SELECT FROM item WHERE id <= 10 FOR KEY SHARE', 10, 'ROLLBACK' ],
	[ 'UPDATE', 'SET ttl.show_expired = on; UPDATE item SET id = id WHERE id > 90', 10, 'ROLLBACK' ],
	[ 'a change of policy', "SELECT ttl.set_default_ttl('item', 2147483647)", 100, 'ROLLBACK' ],
	[ 'DROP TABLE', 'DROP TABLE item', -1, 'ROLLBACK' ],
	[ 'ALTER INDEX of the rows', 'ALTER INDEX item__ts_idx SET TABLESPACE elsewhere', -1, 'ROLLBACK' ],
	[ 'ALTER INDEX of others', 'ALTER INDEX item_item_expiry_idx SET TABLESPACE elsewhere', -1, 'COMMIT' ]);

for (@transactions)
{
	my ($what) = @$_;
	try_transaction(@$_);
	$node->stored_are('item', 0, "$what: afterwards the rows go");
}

# What a committed change of policy leaves
try_transaction('a longer TTL', "SELECT ttl.set_default_ttl('item', 2147483647)", 100, 'COMMIT');
is($node->safe_psql('postgres', 'SELECT count(*) FROM item'), '100', 'a longer TTL: the rows stay');

# More locked rows with the same expiry than are looked at in one go: they are stepped over.
$node->safe_psql('postgres', <<"END");
CREATE TABLE crowd (id int);
SELECT ttl.create_container('crowd', 60);
SELECT ttl.alter_container('crowd', reaping => false);
INSERT INTO crowd (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 50001) g;
INSERT INTO crowd (id, _ts) VALUES (0, '2020-01-02');
BEGIN;
SET LOCAL ttl.show_expired = on;
SELECT count(*) FROM (SELECT FROM crowd WHERE id > 0 FOR UPDATE) c;
PREPARE TRANSACTION 'p';
END
my ($result, undef, $notice) = $node->psql('postgres', "SET statement_timeout = '60s'; CALL ttl.reap('crowd')");
is($result, 0, 'a crowd of locked rows: CALL ttl.reap comes to an end');
like($notice, qr/ 1 expired row deleted/, '... and deletes what is behind them');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'p'; DROP TABLE crowd");

# The worker waits for a locked row no longer than its lock_timeout, which is far below ttl.batch_timeout.
$node->safe_psql('postgres', <<"END");
CREATE TABLE held (id int);
SELECT ttl.create_container('held', 60);
SELECT ttl.alter_container('held', reaping => false);
INSERT INTO held (id, _ts) VALUES (1, '2020-01-01'), (2, '2020-01-01');
BEGIN;
SET LOCAL ttl.show_expired = on;
SELECT FROM held WHERE id = 1 FOR UPDATE;
PREPARE TRANSACTION 'h';
SELECT ttl.alter_container('held', reaping => true);
END
my $start = time;
$node->stored_are('held', 1, 'a row beside a locked one goes');
cmp_ok(time - $start, '<', 8, '... soon');
$node->safe_psql('postgres', "ROLLBACK PREPARED 'h'; DROP TABLE held");

# A user's DDL doesn't wait longer than a batch, however much there is to delete.
$node->safe_psql('postgres', <<"END");
INSERT INTO item (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 300000) g;
SELECT ttl.set_default_ttl('item', 60);
END
ok( $node->poll_query_until(
		'postgres',
		"SELECT rows_deleted > 1000 FROM ttl.stat_containers WHERE container = 'item'::regclass"),
	'the reaper is at work');
for my $ddl (
	'ALTER TABLE item ADD COLUMN another int',
	'LOCK TABLE item',
	'CREATE INDEX ON item (id)',
	'ALTER TABLE item DROP COLUMN another',
	'TRUNCATE item')
{
	is($node->psql('postgres', "BEGIN; SET LOCAL lock_timeout = '2s'; $ddl; COMMIT;"), 0, "$ddl goes ahead");
}

$node->stop;
done_testing();
