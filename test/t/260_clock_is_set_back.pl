# A clock that was wrong and is set back leaves nothing behind that waits for the wrong time.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TestClock;
use TtlNode;

my $clock = TestClock->new;
$clock->set(3 * 86400);
my $node = TtlNode->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'\nttl.naptime = 100ms\nttl.reaper = off\n");
$clock->while_starting(sub { $node->start });
is($node->safe_psql('postgres', "SELECT clock_timestamp() > timestamptz 'epoch' + interval '2 days' + " . time . " * interval '1 s'"),
	't', 'the clock is wrong');

$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE refused (id int);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM public.refused r WHERE r.id = OLD.id) THEN
        PERFORM pg_sleep(1.5);
        RAISE 'no';
    END IF;
    -- pg_sleep() would go on until the clock is where it was
    WHILE OLD.id = 3 AND EXISTS (SELECT FROM public.refused r) LOOP
        PERFORM pg_advisory_xact_lock(3);
    END LOOP;
    RETURN OLD;
END $$;
CREATE TABLE item (id int);
CREATE TRIGGER refuse BEFORE DELETE ON item FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT ttl.create_container('item', 60);
INSERT INTO refused VALUES (1);
CREATE TABLE published (id int);
CREATE PUBLICATION published FOR TABLE published;
SELECT ttl.create_container('published', 60);
INSERT INTO published (id, _ts) VALUES (1, '2020-01-01');
});
# the worker finds all of this as it is now
$node->turn_reaper('on');
$node->add_expired('item', 2);
ok($node->poll_query_until('postgres', q{SELECT rows_deleted = 1 AND blocked_rows = 1 FROM ttl.stat_containers WHERE container = 'item'::regclass}), 'a row is blocked');
$node->wait_for_log(qr/could not delete expired rows of table "public.published"/);

# the worker meets another row, and the clock is set back while it deletes it
$node->safe_psql('postgres', q{INSERT INTO item (id, _ts) VALUES (3, clock_timestamp() - interval '2 days')});
my $deletes = q{(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')};
$node->wait_until("SELECT $deletes > 0");
my $log = -s $node->logfile;
# ... before the launcher notices and ends it
my $launcher = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl launcher'});
kill 'STOP', $launcher;
$clock->set(0);
$node->safe_psql('postgres', 'DELETE FROM refused');
$node->wait_until("SELECT $deletes = 0");
is($node->safe_psql('postgres', 'SELECT id FROM item WHERE id = 3'), '3', 'a row that has not expired by the right clock stays');
kill 'CONT', $launcher;
$node->wait_for_log(qr/deletion of expired rows starts anew because the clock has been set back/, $log);
$node->stored_are('item', 1, 'the row goes when nothing blocks it any more');
ok($node->wait_for_log(qr/could not delete expired rows of table "public.published"/, $log),
	'the log tells again of what it has told of in the future');

$node->stop;
done_testing();
