# A session whose clock was wrong, and has been set back, judges by the clock as it is: whatever it
# has remembered, live rows are there, and no statement deletes them for their keys.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TestClock;
use TtlNode;

my $clock = TestClock->new;
my $node  = TtlNode->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'\nttl.reaper = off\n");
$clock->while_starting(sub { $node->start });
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', 3600);
CREATE TABLE copied (id int PRIMARY KEY, note text);
SELECT ttl.create_container('copied', 3600);
CREATE FUNCTION waiting(int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared($1);
    RETURN 1;
END $$;
END

my $holder = $node->background_psql('postgres');
my $session;
my $waits;    # for the advisory lock, which the test ends

# A new session does this three days ahead, and the clock is set back.
sub under_a_wrong_clock
{
	my ($act, %options) = @_;

	$clock->set(0);
	$node->safe_psql('postgres', q{
TRUNCATE item, copied;
INSERT INTO item VALUES (1, 'live');
INSERT INTO copied VALUES (1, 'live');
});
	$clock->set(3 * 86400);
	$session = $node->background_psql('postgres', on_error_stop => 0);
	$act->();
	$clock->set(0);
	return;
}

# Then it finds the live row, and can't have its key.
sub judges_rightly
{
	my ($after) = @_;

	is($session->query('SELECT note FROM item'), 'live', "$after: the row is there");
	$session->query(q{SAVEPOINT s}) if $after =~ /in a transaction/;
	$session->query(q{INSERT INTO item VALUES (1, 'new')});
	$session->query(q{ROLLBACK TO s}) if $after =~ /in a transaction/;
	is($session->query(q{INSERT INTO item VALUES (1, 'new') ON CONFLICT (id) DO UPDATE SET note = item.note || ' upserted' RETURNING note}),
		'live upserted', "$after: its key is held");
	$session->query('COMMIT') if $after =~ /in a transaction/;
	$session->quit;
	is($node->stored('item'), 1, "$after: one row is stored");
	is($node->safe_psql('postgres', 'SELECT note FROM item'), 'live upserted', "$after: it is the old one");
	return;
}

my $repeatable = q{SET default_transaction_isolation = 'repeatable read'};

# What is remembered between a command without a snapshot and the first with one
for my $command ('SHOW work_mem', 'SET work_mem = 1000', 'BEGIN; COMMIT', 'BEGIN; SHOW work_mem; ROLLBACK',
	'BEGIN; SAVEPOINT s; SELECT 1 / 0; ROLLBACK', q{BEGIN; PREPARE TRANSACTION 'nothing'})
{
	under_a_wrong_clock(sub { $session->query($_) for $repeatable, split(/; /, $command) });
	judges_rightly("after $command");
}

# What is remembered for a snapshot
under_a_wrong_clock(sub { $session->query($_) for $repeatable, 'SELECT count(*) FROM item' });
judges_rightly('after a query');
for my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	under_a_wrong_clock(sub { $session->query($_) for "BEGIN ISOLATION LEVEL $level", 'SELECT count(*) FROM item' });
	judges_rightly("in a transaction, $level");
	under_a_wrong_clock(sub { $session->query("BEGIN ISOLATION LEVEL $level; SHOW work_mem") });
	judges_rightly("in a transaction that has no snapshot yet, $level");
}

# From then on it stands still again, as long as the one snapshot lasts: by a clock that goes on, the row would be
# dead, and its renewal isn't in the snapshot.
for my $first ('SHOW work_mem', 'SELECT count(*) FROM item')
{
	under_a_wrong_clock(sub { $session->query($_) for 'BEGIN ISOLATION LEVEL REPEATABLE READ', $first });
	is($session->query('SELECT note FROM item'), 'live', "a transaction that began with $first: the row is there");
	$clock->set(1800);
	$node->safe_psql('postgres', 'UPDATE item SET note = note');
	$clock->set(4000);
	is($session->query('SELECT note FROM item'), 'live', '... and when it has been renewed');
	$session->query('COMMIT');
	is($session->query('SELECT note FROM item'), 'live', '... and to the next transaction');
	$session->quit;
}

# ... of another session, be it that the import fails
for my $ends ('COMMIT', 'SELECT 1')
{
	my $exporter;

	under_a_wrong_clock(
		sub {
			$exporter = $node->background_psql('postgres');
			my $snapshot = $exporter->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');

			$session->query($repeatable);
			$exporter->query_safe('COMMIT') if $ends eq 'COMMIT';
			$session->query($_) for 'BEGIN', "SET TRANSACTION SNAPSHOT '$snapshot'", $ends eq 'COMMIT' ? 'ROLLBACK' : 'SELECT 1';
		});
	judges_rightly($ends eq 'COMMIT' ? 'after a failed import' : 'in a transaction with an imported snapshot');
	$exporter->quit;
}

# What a statement has begun with, which goes on when the clock has been set back
for my $statement (
	q{INSERT INTO item SELECT waiting(1), 'new'},
	q{INSERT INTO item SELECT waiting(1), 'new' ON CONFLICT DO NOTHING},
	q{DO 'BEGIN INSERT INTO item SELECT waiting(1), $a$new$a$; END'},
	q{WITH w AS MATERIALIZED (SELECT waiting(1) AS id) UPDATE copied SET id = 2 - w.id FROM w},
	q{BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO item SELECT waiting(1), 'new'; COMMIT})
{
	$holder->query_safe('SELECT pg_advisory_lock(1)');
	under_a_wrong_clock(
		sub {
			$session->query_until(qr/started/, "\\echo started\n$statement;\n");
			$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'advisory'});
		});
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	judges_rightly("beside $statement");
	is($node->stored('copied'), 1, '... and the other table is as it was');
}

# A deletion that waits for the table
for my $begin ('', 'BEGIN; ')
{
	under_a_wrong_clock(
		sub {
			$holder->query_safe('BEGIN; LOCK TABLE item IN SHARE MODE');
			$session->query_until(qr/started/, "\\echo started\n${begin}CALL ttl.reap('item');\n");
			$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'relation' AND query ~ '^CALL'});
		});
	$holder->query_safe('COMMIT');
	$session->query('COMMIT') if $begin;
	judges_rightly("beside ${begin}CALL ttl.reap");
}

$holder->quit;
$node->stop;
done_testing();
