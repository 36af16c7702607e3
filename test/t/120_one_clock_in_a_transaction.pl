# REPEATABLE READ: the clock is no later than the transaction's snapshot was taken,
# however that came about: by a message that only parses or binds a statement, by a
# call on the fast path, in another session.  Rows are renewed before they expire;
# whoever misses one has looked at an old version with a new clock.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('transaction_clock', <<'END');
ttl.reaper = off
END
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE gate (id int);
CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', 60);
CREATE TABLE seen (id serial, note text);
-- a row that has three seconds to live
CREATE PROCEDURE prepare() LANGUAGE sql AS $$
    DELETE FROM item;
    DELETE FROM seen;
    INSERT INTO item (id, note, _ts) VALUES (1, 'old', clock_timestamp() - interval '57 s');
$$;
-- renews it, and is over when it would have expired
CREATE PROCEDURE renew() LANGUAGE plpgsql AS $$
DECLARE
    expires_at timestamptz := ttl.expires_at(item) FROM item;
BEGIN
    UPDATE item SET note = 'renewed';
    COMMIT;
    PERFORM pg_sleep_until(expires_at + interval '1 ms');
END $$;
END

my $sees = q{SELECT coalesce(string_agg(note, ' '), 'missed') FROM item LEFT JOIN gate USING (id)};

# pgbench runs a script by each protocol, and has to wait for the gate.  A prepared
# statement is parsed in the first round, and waits when it is bound in the second one.
my $script = $node->basedir . '/script.sql';
append_to_file($script, <<"END");
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO seen (note) $sees;
COMMIT;
SELECT pg_advisory_lock(1), pg_advisory_unlock(1);
END
my ($gate, $second_round) = map { $node->background_psql('postgres') } 1 .. 2;

sub waits_for
{
	my ($type) = @_;
	$node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = '$type'")
	  or die "nobody waits for $type";
}

for my $protocol ('simple', 'extended', 'prepared')
{
	my $rounds = $protocol eq 'prepared' ? 2 : 1;
	my ($out, $err) = ('', '');

	$second_round->query_safe('SELECT pg_advisory_lock(1)');
	$gate->query_safe('BEGIN; LOCK TABLE gate') if $rounds == 1;
	$node->safe_psql('postgres', 'CALL prepare()');
	my $pgbench = IPC::Run::start(
		[ 'pgbench', '-n', '-t', $rounds, '-M', $protocol, '-f', $script, $node->connstr('postgres') ],
		'>', \$out, '2>', \$err, IPC::Run::timeout(180));
	if ($rounds == 2)
	{
		waits_for('advisory');
		$node->safe_psql('postgres', 'CALL prepare()');
		$gate->query_safe('BEGIN; LOCK TABLE gate');
		$second_round->query_safe('SELECT pg_advisory_unlock(1)');
	}
	waits_for('relation');
	$node->safe_psql('postgres', 'CALL renew()');
	$gate->query_safe('COMMIT');
	$second_round->query_safe('SELECT pg_advisory_unlock(1)') if $rounds == 1;
	$pgbench->finish or diag($out . $err);
	is($node->safe_psql('postgres', 'SELECT note FROM seen'), 'old', "$protocol statements");
}
$_->quit for $gate, $second_round;

# The fast path: psql makes a large object by it, the first time after a query
my $session = $node->background_psql('postgres');
$session->query("\\lo_import '$script'");
$node->safe_psql('postgres', 'CALL prepare()');
$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
$session->query("\\lo_import '$script'");
$node->safe_psql('postgres', 'CALL renew()');
is($session->query_safe($sees), 'old', 'after a call on the fast path');
$session->query_safe('COMMIT');
is($session->query_safe($sees), 'renewed', 'the next transaction has its own clock');

# A snapshot that is imported, and the one who exports it
for my $level ('REPEATABLE READ', 'READ COMMITTED')
{
	$node->safe_psql('postgres', 'CALL prepare()');
	my $snapshot = $session->query_safe("BEGIN ISOLATION LEVEL $level; SELECT pg_export_snapshot()");
	$node->safe_psql('postgres', 'CALL renew()');
	is($node->safe_psql('postgres', <<"END"), "old\nold", "a snapshot exported by $level");
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET TRANSACTION SNAPSHOT '$snapshot';
$sees;
$sees;
COMMIT;
END
	is($node->safe_psql('postgres', "BEGIN ISOLATION LEVEL REPEATABLE READ; $sees; COMMIT"), 'renewed', '... concerns nobody else');
	$session->query_safe('COMMIT');
}
# ... of a session that doesn't tell since when its transaction runs
{
	$session->query_safe('SET track_activities = off');
	$node->safe_psql('postgres', 'CALL prepare()');
	my $snapshot = $session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
	$node->safe_psql('postgres', 'CALL renew()');
	is($node->safe_psql('postgres', "BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'; $sees; COMMIT"),
		'old', 'a snapshot exported without track_activities');
	$session->query_safe('COMMIT');
}
$session->quit;

# In a procedure, which takes a snapshot for each transaction
is( $node->safe_psql('postgres', <<'END'), '110', 'transactions of a procedure have clocks of their own');
CALL prepare();
CREATE PROCEDURE look(INOUT counts text DEFAULT '') LANGUAGE plpgsql AS $$
DECLARE
    expires_at timestamptz := ttl.expires_at(item) FROM item;
BEGIN
    COMMIT;
    counts := concat(counts, (SELECT count(*) FROM item));
    PERFORM pg_sleep_until(expires_at);
    counts := concat(counts, (SELECT count(*) FROM item));
    COMMIT;
    counts := concat(counts, (SELECT count(*) FROM item));
END $$;
SET default_transaction_isolation = 'repeatable read';
CALL look();
END

$node->stop;
done_testing();
