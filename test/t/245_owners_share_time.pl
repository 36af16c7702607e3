# One owner's triggers, slow or deadly, cost his own tables their turn, and nobody else's.
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
ttl.reaper = off
END
my $has_timeout = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'});

$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE ROLE ann;
CREATE ROLE bob;

-- a table of ann's with an expired row, which meets a trigger of each kind
CREATE PROCEDURE make_table(name text, what text, expired int = 1, kind text = 'TRIGGER %s BEFORE DELETE ON %1$s FOR EACH ROW')
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (id int)', name);
    PERFORM ttl.create_container(name::regclass, 1);
    EXECUTE format('CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS %L', name, format('BEGIN %s; RETURN OLD; END', what));
    EXECUTE format('CREATE ' || kind || ' EXECUTE FUNCTION %1$I()', name);
    EXECUTE format('ALTER TABLE %I OWNER TO ann', name);
    EXECUTE format('INSERT INTO %I (id, _ts) SELECT g, ''2020-01-01'' FROM generate_series(1, %s) g', name, expired);
END $$;

-- what others than superusers may not do to a background worker
CREATE FUNCTION end_session() RETURNS bool LANGUAGE sql SECURITY DEFINER AS 'SELECT pg_terminate_backend(pg_backend_pid())';

CREATE TABLE of_bob (id int);
SELECT ttl.create_container('of_bob', 1);
ALTER TABLE of_bob OWNER TO bob;
INSERT INTO of_bob (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 5000) g;
END

# Triggers that end the process

my %deadly = (
	'exit_on_error' => [ q{SET exit_on_error = on; RAISE 'no'} ],
	'... local' => [ q{SET LOCAL exit_on_error = on; PERFORM 1 / 0} ],
	'... trapped' => [ q{BEGIN SET exit_on_error = on; RAISE 'no'; EXCEPTION WHEN others THEN NULL; END} ],
	'... of a statement' => [ q{SET exit_on_error = on; RAISE 'no'}, 'TRIGGER %s BEFORE DELETE ON %1$s' ],
	'... afterwards' => [ q{SET exit_on_error = on; RAISE 'no'}, 'TRIGGER %s AFTER DELETE ON %1$s FOR EACH ROW' ],
	'pg_terminate_backend' => [ 'PERFORM public.end_session(), pg_sleep(10)' ],
	'... deferred' => [ q{SET exit_on_error = on; RAISE 'no'}, 'CONSTRAINT TRIGGER %s AFTER DELETE ON %1$s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW' ],
);
$deadly{transaction_timeout} = [ q{SET transaction_timeout = '10ms'; PERFORM pg_sleep(1)} ] if $has_timeout eq '1';
my $n = 0;
for my $which (sort keys %deadly)
{
	for (1 .. 3)
	{
		my ($what, $kind) = @{$deadly{$which}};
		my $arguments = defined $kind ? ", 10, \$\$$kind\$\$" : ', 10';
		$node->safe_psql('postgres', sprintf('CALL make_table($$deadly%d$$, $$%s$$%s)', ++$n, $what, $arguments));
	}
}
$node->turn_reaper('on');
ok($node->poll_query_until('postgres', "SELECT sum((last_error = 'deletion of expired rows has ended the worker process')::int) = $n FROM ttl.stat_containers"),
	"$n tables have ended the worker, and their last_error says so") or diag($node->safe_psql('postgres', 'SELECT container, last_error FROM ttl.stat_containers'));
$node->stored_are('of_bob', 0, 'rows of another owner are deleted');
my $exits = qr/background worker "ttl reaper.*exited with exit code 1/;
is(scalar(() = slurp_file($node->logfile) =~ /$exits/g), $n, '... each once');
$node->safe_psql('postgres', q{INSERT INTO of_bob (id, _ts) VALUES (1, '2020-01-01')});
$node->stored_are('of_bob', 0, '... also those that come later');
is(scalar(() = slurp_file($node->logfile) =~ /$exits/g), $n, 'the others rest');
is($node->safe_psql('postgres', q{SELECT sum(blocked_rows) FROM ttl.stat_containers}), 0, 'and no row is to blame');

# a table is tried again when its definition changes, row by row
my $table = 'deadly' . (1 + 3 * grep({ $_ lt 'exit_on_error' } sort keys %deadly));
$node->safe_psql('postgres', "DROP TRIGGER $table ON $table");
$node->stored_are($table, 0, 'a table goes on without its trigger');

# the next worker comes at once, but no cycle does before ttl.naptime is over
$node->turn_reaper('off');
$node->configure('ttl.naptime = 2s');
$node->safe_psql('postgres', join('', map { "CALL make_table('hasty$_', \$\$SET exit_on_error = on; RAISE 'no'\$\$);" } 1 .. 4));
my $cycles = q{SELECT sum(cycles) FROM ttl.stat_reaper WHERE database = 'postgres'};
my ($cycles_before, $start) = ($node->safe_psql('postgres', $cycles), time);
$node->turn_reaper('on');
$node->wait_until(q{SELECT sum((last_error = 'deletion of expired rows has ended the worker process')::int) = 4 FROM ttl.stat_containers WHERE container::text ~ 'hasty'});
my $cycles_run = $node->safe_psql('postgres', $cycles) - $cycles_before;
cmp_ok($cycles_run, '<=', 1 + (time - $start) / 2, 'workers that are ended by triggers begin cycles no sooner than others');
$node->configure('ttl.naptime = 100ms');

# somebody who terminates the worker blames nobody
$node->safe_psql('postgres', q{CALL make_table('waiting', 'PERFORM pg_sleep(3)')});
$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND wait_event = 'PgSleep'});
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'ttl reaper'});
$node->stored_are('waiting', 0, 'a worker that was terminated comes again, and finds nobody to blame');

# Triggers that sleep

$node->turn_reaper('off');
$node->safe_psql('postgres', join('', map { "DROP TABLE deadly$_ CASCADE;" } 1 .. $n));
$node->safe_psql('postgres', join('', map { "CALL make_table('slow$_', 'PERFORM pg_sleep(3)', 1000, 'TRIGGER %s BEFORE DELETE ON %1\$s');" } 1 .. 20));
$node->safe_psql('postgres', q{CALL make_table('quick', 'NULL', 0)});
$node->turn_reaper('on');

# how long a table takes is known after its first visit
$node->add_expired('quick', 1);
$node->stored_are('quick', 0, 'all tables have their turn');
cmp_ok(longest_wait('quick'), '<', 30, 'beside 20 tables whose triggers sleep 3 s, rows of their owner\'s other table do not wait for all of them');
cmp_ok(longest_wait('of_bob'), '<', 12, '... nor do those of another owner');

# five of them get other owners, whose turns one after another take 15 s
$node->safe_psql('postgres', "CREATE ROLE other$_; ALTER TABLE slow$_ OWNER TO other$_") for 1 .. 5;
$node->add_expired('of_bob', 1);
$node->stored_are('of_bob', 0, 'the new owners have their turn');
cmp_ok(longest_wait('of_bob'), '<', 12, 'beside six owners of such tables, rows of a seventh do not wait for all of them');
cmp_ok($node->safe_psql('postgres', q{SELECT sum(rows_deleted) FROM ttl.stat_containers WHERE container::text ~ 'slow'}), '>', 3, 'the slow ones have their turn, too');

# Many tables of one owner beside one of another's, both with more work than the budget pays for

$node->turn_reaper('off');
$node->configure('ttl.cycle_cost_limit = 1000');
$node->safe_psql('postgres', join('', map { "DROP TABLE slow$_ CASCADE;" } 1 .. 20));
$node->safe_psql('postgres', join('', map { "CALL make_table('many$_', 'NULL', 2000);" } 1 .. 20));
$node->add_expired('of_bob', 20000);
$node->turn_reaper('on');
my $cost = q{SELECT sum(cost) FILTER (WHERE container = 'of_bob'::regclass), sum(cost) FILTER (WHERE container::text ~ 'many') FROM ttl.stat_containers};
my ($bob_before, $ann_before) = split /\|/, $node->safe_psql('postgres', $cost);
$node->wait_until("SELECT b - $bob_before + a > 20000 FROM ($cost) AS s (b, a)");
my ($bob, $ann) = split /\|/, $node->safe_psql('postgres', $cost);
cmp_ok(($bob - $bob_before) / $ann, '>', 1 / 3, "20 tables of one owner and one of another's share the budget ($ann, $bob - $bob_before)");
cmp_ok(($bob - $bob_before) / $ann, '<', 3, '... alike');

$node->stop;
done_testing();

# The longest time in seconds for which a row that is inserted into the table is stored, tried for 10 s
sub longest_wait
{
	my ($table) = @_;
	my $until = time + 10;
	my $longest = 0;

	while (time < $until)
	{
		my $start = time;
		$node->safe_psql('postgres', "INSERT INTO $table (id, _ts) VALUES (1, '2020-01-01')");
		$node->wait_until("SELECT ttl.expired_count('$table') = 0");
		my $took = time - $start;
		note(sprintf('%s: %.1f s', $table, $took));
		$longest = $took if $took > $longest;
	}
	return $longest;
}
