# Rows that can't be deleted, however many and wherever they are, keep no others.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
ttl.grace = 0
ttl.batch_timeout = 500ms
ttl.reaper = off

END
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;

-- a table of which the first rows, by expiry, are referenced by live rows
CREATE PROCEDURE make_held(held int, free int, key text = 'PRIMARY KEY', indexed bool = true, action text = '')
LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL client_min_messages = error;
    DROP TABLE IF EXISTS child, parent;
    EXECUTE format('CREATE TABLE parent (id int %s)', key);
    EXECUTE format('CREATE TABLE child (parent int REFERENCES parent (id) %s)', action);
    PERFORM ttl.create_container('parent', 3600);
    INSERT INTO parent (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, held) g;
    INSERT INTO parent (id, _ts) SELECT held + g, '2021-01-01' FROM generate_series(1, free) g;
    SET LOCAL session_replication_role = replica;
    INSERT INTO child SELECT generate_series(1, held);
    IF indexed THEN
        CREATE INDEX ON child (parent);
    END IF;
END $$;

-- a table of which some rows meet a trigger
CREATE PROCEDURE make_triggered(what text, "when" text, free int, name text = 'triggered')
LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL client_min_messages = error;
    EXECUTE format('DROP TABLE IF EXISTS %I', name);
    EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY)', name);
    PERFORM ttl.create_container(name::regclass, 3600);
    EXECUTE format('INSERT INTO %I (id, _ts) SELECT g, timestamptz ''2020-01-01'' + g * interval ''1 s'' FROM generate_series(1, %s) g', name, free);
    EXECUTE format('CREATE OR REPLACE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $f$BEGIN %s; RETURN OLD; END$f$', name, what);
    EXECUTE format('CREATE TRIGGER t BEFORE DELETE ON %I FOR EACH ROW WHEN (%s) EXECUTE FUNCTION %1$I()', name, "when");
END $$;
END

# A CALL, or the worker, deletes so many rows and leaves so many, which the view shows with the reason.
sub reaps
{
	my ($how, $table, $deleted, $blocked, $error, $name) = @_;
	my $start = time;

	if ($how eq 'call')
	{
		$node->safe_psql('postgres', "CALL ttl.reap('$table')");
	}
	else
	{
		$node->turn_reaper('on');
		$node->poll_query_until('postgres',
			"SELECT rows_deleted = $deleted AND blocked_rows = $blocked FROM ttl.stat_containers WHERE container = '$table'::regclass");
	}
	is( $node->safe_psql('postgres', "SELECT rows_deleted, blocked_rows, ttl.expired_count('$table') FROM ttl.stat_containers WHERE container = '$table'::regclass"),
		"$deleted|$blocked|$blocked", "$name: $how");
	like($node->statistics('last_error', $table), $error, '... and why');
	note sprintf('%s: %s: %.1f s', $name, $how, time - $start);
	$node->turn_reaper('off') if $how ne 'call';
	return;
}

my $references = qr/violates foreign key constraint "child_parent_fkey" on table "child"/;
for my $how ('call', 'worker')
{
	for my $held (300, 3000)
	{
		$node->safe_psql('postgres', "CALL make_held($held, 1000)");
		reaps($how, 'parent', 1000, $held, $references, "$held referenced rows");
		my $batches = $node->statistics('batches', 'parent');
		cmp_ok($batches, '<', 250, "... in $batches batches: none of them is tried alone");
	}
	$node->safe_psql('postgres', "CALL make_held(300, 1000, 'NOT NULL UNIQUE', true, 'ON DELETE RESTRICT DEFERRABLE')");
	reaps($how, 'parent', 1000, 300, $references, 'RESTRICT, a unique key');
	$node->safe_psql('postgres', "CALL make_held(300, 1000, 'PRIMARY KEY', true, 'DEFERRABLE INITIALLY DEFERRED')");
	reaps($how, 'parent', 1000, 300, $references, 'deferred');
	$node->safe_psql('postgres', "CALL make_held(300, 1000, 'PRIMARY KEY', false)");
	reaps($how, 'parent', 1000, 300, $references, 'no index on the child');
	$node->safe_psql('postgres', "CALL make_triggered(\$\$RAISE 'no'\$\$, 'OLD.id <= 1000', 1500)");
	reaps($how, 'triggered', 500, 1000, qr/^no$/, '1000 rows that raise');
	$node->safe_psql('postgres', q{CALL make_triggered($$RETURN NULL$$, 'OLD.id <= 300', 600)});
	reaps($how, 'triggered', 300, 300, qr/a trigger or rule has kept/, '300 rows that are kept');
	$node->safe_psql('postgres', q{CALL make_triggered($$PERFORM pg_sleep(60)$$, 'OLD.id IN (1, 30)', 600)});
	reaps($how, 'triggered', 598, 2, qr/canceling deletion due to "ttl.batch_timeout"/, 'two rows that sleep');
	my $batches = $node->statistics('batches', 'triggered');
	cmp_ok($batches, '<', 200, "... in $batches batches: of one row as long as it may be the one that sleeps");
	$node->safe_psql('postgres', q{
CALL make_triggered('NULL', 'false', 600);
CREATE OR REPLACE FUNCTION reap_and_sleep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        CALL ttl.reap('public.triggered');
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END;
    PERFORM pg_sleep(60);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER later AFTER DELETE ON triggered DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.id IN (1, 30)) EXECUTE FUNCTION reap_and_sleep();
});
	reaps($how, 'triggered', 598, 2, qr/canceling deletion due to "ttl.batch_timeout"/, 'two rows whose deferred triggers reap and sleep');
}

# what the log says is said once
my $log = slurp_file($node->logfile);
like($log, qr/WARNING:  could not delete expired rows of table "public.triggered": canceling deletion due to "ttl.batch_timeout"\n(?:.*\n\t?)*?.*CONTEXT:  .*pg_sleep/, 'a timeout is logged with its place');

# rows go as soon as nothing holds them
$node->safe_psql('postgres', 'CALL make_held(2000, 100)');
$node->turn_reaper('on');
$node->wait_until(q{SELECT blocked_rows = 2000 AND last_error IS NOT NULL FROM ttl.stat_containers WHERE container = 'parent'::regclass});
is($node->safe_psql('postgres', q{SELECT stopped_by FROM ttl.stat_reaper WHERE database = 'postgres'}), 'nothing left', 'the cycle ends when only blocked rows are left')
  if $node->poll_query_until('postgres', q{SELECT state = 'idle' FROM ttl.stat_reaper WHERE database = 'postgres'});
$node->safe_psql('postgres', 'DELETE FROM child');
ok($node->poll_query_until('postgres', q{SELECT rows_deleted = 2100 AND blocked_rows = 0 FROM ttl.stat_containers WHERE container = 'parent'::regclass}),
	'rows that are no longer referenced go');

# another container beside many blocked rows
$node->turn_reaper('off');
$node->safe_psql('postgres', q{CALL make_held(10000, 0); CREATE TABLE beside (id int); SELECT ttl.create_container('beside', 3600)});
$node->add_expired('beside', 1000);
$node->turn_reaper('on');
my $start = time;
$node->is_emptied('beside', 'a container beside 10,000 blocked rows is emptied');
note sprintf('%.1f s', time - $start);
$node->wait_until(q{SELECT blocked_rows = 10000 FROM ttl.stat_containers WHERE container = 'parent'::regclass});

# a trigger that traps its cancellation
$node->turn_reaper('off');
$node->safe_psql('postgres', q{
CALL make_triggered($$LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP$$, 'OLD.id = 1', 100)});
$node->add_expired('beside', 1000);
$node->turn_reaper('on');
$node->is_emptied('beside', 'a trigger that traps its cancellation: others go on');
ok($node->poll_query_until('postgres', q{SELECT last_error LIKE '%ignored cancellation%' FROM ttl.stat_containers WHERE container = 'triggered'::regclass}),
	'... the view says why');
my $state = q{SELECT state FROM ttl.status WHERE container = 'triggered'::regclass};
my $paused = $node->safe_psql('postgres', $state);
like($paused, qr/failing/, '... and so does the status');
$node->safe_psql('postgres', q{
BEGIN;
SELECT ttl.set_default_ttl('triggered', 3601);
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT ttl.set_default_ttl('triggered', 3601);
ROLLBACK TO s;
COMMIT;
});
is($node->safe_psql('postgres', $state), $paused, '... also after a change of policy that is rolled back');
$node->safe_psql('postgres', 'DROP TRIGGER t ON triggered');
$node->is_emptied('triggered', '... and without it, rows go');

# beside rows that all time out, a table of which only the first batch does
$node->turn_reaper('off');
$node->safe_psql('postgres', q{CALL make_triggered($$PERFORM pg_sleep(60)$$, 'true', 1000)});
$node->safe_psql('postgres', q{CALL make_triggered($$PERFORM pg_sleep(0.1)$$, 'true', 1000, 'slow')});
$node->turn_reaper('on');
$node->wait_until(q{SELECT rows_deleted > 5 FROM ttl.stat_containers WHERE container = 'slow'::regclass});
cmp_ok($node->statistics('blocked_rows', 'triggered'), '<', 20, 'tables whose batches time out take turns');

# what is known about it outlives the worker
my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl reaper'};
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM ($worker) w");
my $gone = $node->statistics('rows_deleted', 'slow');
$node->wait_until("SELECT rows_deleted > $gone FROM ttl.stat_containers WHERE container = 'slow'::regclass");
$node->safe_psql('postgres', 'DROP TABLE slow');

# a trigger that sleeps, but not for so long that it is cancelled; the other container becomes due meanwhile
$node->turn_reaper('off');
$node->safe_psql('postgres', q{CALL make_triggered($$PERFORM pg_sleep(0.4)$$, 'true', 1000)});
$node->turn_reaper('on');
$node->wait_until(q{SELECT rows_deleted > 2 FROM ttl.stat_containers WHERE container = 'triggered'::regclass});
$node->safe_psql('postgres', q{CREATE TABLE later (id int); SELECT ttl.create_container('later', 3600)});
$node->add_expired('later', 1000);
$node->is_emptied('later', 'a container that becomes due beside a slow one is emptied');
cmp_ok($node->statistics('rows_deleted', 'triggered'), '<', 200, '... before that one is');
$node->wait_until(q{SELECT stopped_by = 'time' FROM ttl.stat_reaper WHERE database = 'postgres'});
$node->safe_psql('postgres', 'DROP TRIGGER t ON triggered');
$node->is_emptied('triggered', '... and the slow one when it is no longer slow');

# a user's own cancel and timeout stay his
$node->turn_reaper('off');
$node->configure('ttl.batch_timeout = 1min');
$node->safe_psql('postgres', q{CALL make_triggered($$PERFORM pg_sleep(60)$$, 'OLD.id = 1', 100)});
$start = time;
my ($rc, $stdout, $stderr) = $node->psql('postgres', q{SET statement_timeout = '1s'; CALL ttl.reap('triggered')});
like($stderr, qr/ERROR:  canceling statement due to statement timeout/, 'statement_timeout ends a CALL');
cmp_ok(time - $start, '<', 30, '... in time');
$node->configure('ttl.batch_timeout = 500ms');
($rc, $stdout, $stderr) = $node->psql('postgres', q{SET statement_timeout = '30s'; CALL ttl.reap('triggered')});
like($stderr, qr/WARNING: .*batch_timeout(?:.*\n)*.*NOTICE:  ttl: 99 expired rows deleted/, 'ttl.batch_timeout ends a row of it');

# ... nor is a session ended in which a trigger traps its cancellations, as a worker is after five: that is left to the user.
$node->safe_psql('postgres', q{
CALL make_triggered($$FOR i IN 1..6 LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP$$, 'true', 1)});
($rc, $stdout, $stderr) = $node->psql('postgres', q{CALL ttl.reap('triggered')});
like($stderr, qr/NOTICE:  ttl: 1 expired row deleted/, 'a call whose cancellations are trapped goes on');

$node->stop;
done_testing();
