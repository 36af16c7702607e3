# DDL of others, in whatever database, makes no container due: neither while the worker sleeps nor
# while it is busy, when PostgreSQL's queue of invalidations overflows.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 10ms
ttl.grace = 0
ttl.batch_timeout = 5min
autovacuum = off
max_prepared_transactions = 1
END
my $containers = 300;
$node->safe_psql('postgres', <<"END");
CREATE EXTENSION ttl;
DO \$\$
BEGIN
	FOR i IN 1 .. $containers LOOP
		EXECUTE format('CREATE TABLE idle%s (id int)', i);
		PERFORM ttl.create_container(format('idle%s', i)::regclass, 86400);
	END LOOP;
END \$\$;
CREATE TABLE busy (id int);
SELECT ttl.create_container('busy', 86400);
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \$\$
BEGIN
	WHILE NOT pg_try_advisory_xact_lock(1) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN OLD;
END \$\$;
CREATE TRIGGER t BEFORE DELETE ON busy FOR EACH ROW EXECUTE FUNCTION wait();
END
$node->safe_psql('postgres', 'CREATE DATABASE other');

# How often each of the idle containers has been looked at: a visit scans its two indexes
sub visits
{
	return $node->safe_psql('postgres', "SELECT sum(idx_scan) / $containers / 2 FROM pg_stat_user_indexes WHERE relname LIKE 'idle%'");
}

sub is_idle
{
	my ($cycles) = $node->safe_psql('postgres', q{SELECT cycles FROM ttl.stat_reaper WHERE database = 'postgres'});
	return $node->wait_until("SELECT cycles > $cycles AND state = 'idle' FROM ttl.stat_reaper WHERE database = 'postgres'");
}

# More messages than the queue holds, which is 4096
sub make_temporary_tables
{
	$node->safe_psql('other', q{
DO $$
BEGIN
	FOR i IN 1 .. 400 LOOP
		CREATE TEMPORARY TABLE t (id int PRIMARY KEY, t text);
		DROP TABLE t;
		COMMIT;
	END LOOP;
END $$;
});
	return;
}

# All that a worker does at first has been done.
$node->wait_until("SELECT sum(idx_scan) >= 2 * $containers FROM pg_stat_user_indexes WHERE relname LIKE 'idle%'");

# Each is due every ten seconds, and not once more each time.
sub are_not_due
{
	my ($what, $action) = @_;
	is_idle();
	my ($start, $before) = (time, visits());
	$action->() for 1 .. 12;
	is_idle();
	my ($visits, $due) = (visits() - $before, (time - $start) / 10);
	cmp_ok($visits, '<', $due + 4, sprintf('%s: %.1f visits in %.1f times ten seconds', $what, $visits, $due));
	return;
}
are_not_due('while the worker sleeps', \&make_temporary_tables);
are_not_due('while it is busy', sub {
	$node->safe_psql('postgres', q{
BEGIN;
SELECT pg_advisory_xact_lock(1);
PREPARE TRANSACTION 'p';
INSERT INTO busy (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.set_default_ttl('busy', 86400);
});
	$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND wait_event = 'PgSleep'});
	make_temporary_tables();
	$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
	$node->is_emptied('busy', 'the row that kept it busy goes');
});

# ... but a change of a policy does, also if its message is among those that are lost
$node->safe_psql('postgres', q{
INSERT INTO idle1 (id, _ts) VALUES (1, now() - interval '1 hour');
BEGIN;
SELECT pg_advisory_xact_lock(1);
PREPARE TRANSACTION 'p';
INSERT INTO busy (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.set_default_ttl('busy', 86402);
});
$node->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND wait_event = 'PgSleep'});
$node->safe_psql('postgres', q{SELECT ttl.set_default_ttl('idle1', 60)});
make_temporary_tables();
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
$node->is_emptied('idle1', 'a policy that is changed meanwhile is noticed');

$node->stop;
done_testing();
