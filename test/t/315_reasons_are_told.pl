# Whatever keeps expired rows stored is told: by blocked_rows or a failing status, with the reason in last_error and the log;
# a lock, too, and when it is free, rows go soon.
#
# Prepared transactions hold the locks.
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
ttl.reaper = off
max_prepared_transactions = 5
END
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;

-- item, with so many expired rows; audit, which a trigger writes; part, which the rows cascade to; held, which references
-- them; counter, which a rule writes
CREATE PROCEDURE make(n int, what text)
LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL client_min_messages = error;
    DROP TABLE IF EXISTS item, part, audit, held, counter CASCADE;
    CREATE TABLE item (id int PRIMARY KEY);
    CREATE TABLE audit (id int);
    CREATE TABLE counter (n int);
    CREATE TABLE part (item int REFERENCES item ON DELETE CASCADE);
    CREATE TABLE held (item int REFERENCES item);
    CREATE INDEX ON part (item);
    INSERT INTO counter VALUES (0);
    EXECUTE what;
    PERFORM ttl.create_container('item', 3600);
    INSERT INTO item (id, _ts) SELECT g, timestamptz '2020-01-01' + g * interval '1 s' FROM generate_series(1, n) g;
    -- a foreign key would not find an expired row
    SET LOCAL session_replication_role = replica;
    INSERT INTO part SELECT generate_series(1, n);
END $$;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.audit VALUES (old.id); RETURN NULL; END';
CREATE FUNCTION note_none() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.audit VALUES (0); RETURN NULL; END';
END

my $log;
my $audits = 'CREATE TRIGGER note AFTER DELETE ON item FOR EACH ROW EXECUTE FUNCTION note()';

# Rows wait for a lock: $n of them, of which $blocked are counted (0 = the table fails), and $reason is told.
sub rows_wait
{
	my ($what, $n, $made, $lock, $blocked, $reason) = @_;

	$node->turn_reaper('off');
	$log = -s $node->logfile;
	$node->safe_psql('postgres', "CALL make($n, \$\$$made\$\$); BEGIN; SET LOCAL ttl.show_expired = on; $lock; PREPARE TRANSACTION 'p'");
	$node->turn_reaper('on');
	ok( $node->poll_query_until('postgres', qq{SELECT blocked_rows = $blocked AND last_error = '$reason' AND state = }
			  . ($blocked > 0 ? "'blocked: $blocked row" . ($blocked > 1 ? 's' : '') . "'" : "'failing: see last_error'")
			  . q{FROM ttl.stat_containers JOIN ttl.status USING (container) WHERE container = 'item'::regclass}), "$what: the reason is told")
	  or diag($node->safe_psql('postgres', 'SELECT * FROM ttl.stat_containers JOIN ttl.status USING (container)'));
	$node->wait_for_log(qr/WARNING:  could not delete expired rows of table "public.item": $reason/, $log);
	return;
}

# ... and go when it is free.
sub rows_go
{
	my ($what) = @_;
	my $start = time;

	$node->safe_psql('postgres', "ROLLBACK PREPARED 'p'");
	$node->is_emptied('item', "$what: when the lock is free, the rows go");
	cmp_ok(time - $start, '<', 10, '... soon');
	note sprintf('%s: %.1f s', $what, time - $start);
	ok($node->poll_query_until('postgres', q{SELECT blocked_rows = 0 AND state = 'idle' FROM ttl.stat_containers JOIN ttl.status USING (container) WHERE container = 'item'::regclass}),
		'... and the status is well');
	is(() = slurp_file($node->logfile, $log) =~ /could not delete expired rows/g, 1, '... the log has told once');
	return;
}

my $timeout = 'canceling statement due to lock timeout';
my $unavailable = 'could not obtain lock on relation';
for my $case (
	[ 'a table that a trigger writes is being indexed', 60, $audits, 'LOCK TABLE audit IN SHARE MODE', 60, $timeout ],
	[ '... one row', 1, $audits, 'LOCK TABLE audit IN SHARE MODE', 1, $timeout ],
	[ 'rows of a cascade are locked', 5, '', 'SELECT FROM part FOR UPDATE', 5, $timeout ],
	[ 'a row that a rule writes is locked', 3, 'CREATE RULE r AS ON DELETE TO item DO ALSO UPDATE counter SET n = n + old.id', 'SELECT FROM counter FOR UPDATE', 3, $timeout ],
	[ 'a table that a statement trigger writes is being indexed', 3, 'CREATE TRIGGER note AFTER DELETE ON item EXECUTE FUNCTION note_none()', 'LOCK TABLE audit IN SHARE MODE', 0, $timeout ],
	[ 'a referencing table is locked', 3, '', 'LOCK TABLE held', 0, qq{$unavailable "held"} ],
	[ 'the table is locked', 3, '', 'LOCK TABLE item IN SHARE MODE', 0, qq{$unavailable "item"} ],
	[ 'the policy is being changed', 3, '', q{SELECT ttl.set_default_ttl('item', 3601)}, 0, 'could not obtain lock on the policy of container "item"' ],
	[ 'rows are locked', 5, '', 'SELECT FROM item FOR UPDATE', 5, 'an expired row is locked by another transaction' ])
{
	rows_wait(@$case);
	rows_go($case->[0]);
}

# A table is well again when another has deleted its rows.
rows_wait('the table is locked', 3, '', 'LOCK TABLE item IN SHARE ROW EXCLUSIVE MODE; DELETE FROM item', 0, qq{$unavailable "item"});
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
ok($node->poll_query_until('postgres', q{SELECT state = 'idle' FROM ttl.status WHERE container = 'item'::regclass}), 'the status is well when its rows have gone otherwise');

# ... and as soon as some of its rows go, though others are left for later cycles.
$node->configure('ttl.cycle_cost_limit = 200');
rows_wait('the table is locked', 3000, '', 'LOCK TABLE item IN SHARE MODE', 0, qq{$unavailable "item"});
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'p'});
ok($node->poll_query_until('postgres', q{SELECT rows_deleted > 0 AND state !~ 'failing' FROM ttl.stat_containers JOIN ttl.status USING (container) WHERE container = 'item'::regclass}),
	'the status is well when rows go');
cmp_ok($node->stored('item'), '>', 0, '... before the last of them has gone');
$node->turn_reaper('off');
$node->configure('ttl.cycle_cost_limit = 40000');

# Some rows wait for a lock, and others go: those behind them, too.
$node->turn_reaper('off');
$node->safe_psql('postgres', q{CALL make(300, ''); BEGIN; SELECT FROM part WHERE item BETWEEN 11 AND 30 FOR UPDATE; PREPARE TRANSACTION 'p'});
$node->turn_reaper('on');
ok($node->poll_query_until('postgres', q{SELECT rows_deleted = 280 AND blocked_rows = 20 FROM ttl.stat_containers WHERE container = 'item'::regclass}), 'rows behind twenty that wait go');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'p'});
$node->is_emptied('item', '... and then these');

# A call tells it, too, and deletes the others.
$node->turn_reaper('off');
for my $case ([ 'SELECT FROM part WHERE item = 2 FOR UPDATE', $timeout ], [ 'SELECT FROM item WHERE id = 2 FOR UPDATE', 'an expired row is locked by another transaction' ])
{
	my ($lock, $reason) = @$case;
	$node->safe_psql('postgres', "CALL make(3, ''); BEGIN; SET LOCAL ttl.show_expired = on; $lock; PREPARE TRANSACTION 'p'");
	my ($rc, undef, $stderr) = $node->psql('postgres', q{CALL ttl.reap('item')});
	like($stderr, qr/^psql:<stdin>:1: WARNING:  could not delete expired rows of table "public.item": $reason\n(?s:.*)NOTICE:  ttl: 2 expired rows deleted/, "CALL: $lock");
	$node->safe_psql('postgres', q{ROLLBACK PREPARED 'p'});
}

# A row that waits in a trigger has it take none that a trigger keeps for one that is locked.
$node->safe_psql('postgres', q{
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CALL make(3, 'CREATE TRIGGER keep BEFORE DELETE ON item FOR EACH ROW WHEN (OLD.id = 3) EXECUTE FUNCTION keep()');
BEGIN; SELECT FROM part WHERE item = 2 FOR UPDATE; PREPARE TRANSACTION 'p'});
$node->safe_psql('postgres', q{CALL ttl.reap('item')});
is($node->statistics('rows_deleted, blocked_rows, last_error', 'item'), '1|2|a trigger or rule has kept an expired row', 'one row waits for a lock, another is kept');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'p'});

# A call that ends late doesn't bring back what it has read at its start.
$node->safe_psql('postgres', q{
CREATE TABLE mood (raises bool);
INSERT INTO mood VALUES (true);
CREATE FUNCTION moody() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.id = 0 THEN
        PERFORM pg_sleep(3);
    ELSIF (SELECT raises FROM public.mood) THEN
        RAISE 'in a mood';
    END IF;
    RETURN OLD;
END $$;
CALL make(3, 'CREATE TRIGGER moody BEFORE DELETE ON item FOR EACH ROW EXECUTE FUNCTION moody()');
CALL ttl.reap('item');
UPDATE mood SET raises = false;
INSERT INTO item (id, _ts) VALUES (0, '2019-01-01');
});
is($node->statistics('rows_deleted, blocked_rows, last_error', 'item'), '0|3|in a mood', 'rows that raise');
my $slow = $node->background_psql('postgres');
$slow->query_until(qr/begun/, "\\echo begun\nCALL ttl.reap('item', 1);\n");
$node->wait_until(q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE query ~ '^CALL'});
$node->safe_psql('postgres', q{CALL ttl.reap('item')});
is($node->statistics('rows_deleted, blocked_rows, last_error', 'item'), '3|1|an expired row is locked by another transaction', '... have gone while another call has the first');
$slow->quit;
is($node->statistics('rows_deleted, blocked_rows', 'item'), '4|1', '... which leaves that as it is');

$node->stop;
done_testing();
