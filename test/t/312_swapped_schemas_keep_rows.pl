# A deletion takes no row of another table that has got the name of its own meanwhile, and archives none there.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use Test::More;
use TestModule;
use TtlNode;

my $module = TestModule::build('search');
my $node = TtlNode->new('main');
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = '$module,ttl'\nttl.reaper = off\nttl.grace = 0\n");
$node->start;

# a schema with a container, and one that is to take its place, with rows in the same places
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE ROLE app;
CREATE SCHEMA green AUTHORIZATION app;
CREATE SCHEMA blue AUTHORIZATION app;
SET ROLE app;
CREATE TABLE green.session (id int PRIMARY KEY);
CREATE TABLE blue.session (id int PRIMARY KEY);
SELECT ttl.create_container('green.session', 3600);
INSERT INTO green.session (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 20) g;
INSERT INTO blue.session SELECT generate_series(1, 20);
END

# the worker has named its table, and looks the name up
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
$node->configure("search.waits_in = 'green'");
$node->turn_reaper('on');
$node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 2});
$node->safe_psql('postgres', 'BEGIN; ALTER SCHEMA green RENAME TO former; ALTER SCHEMA blue RENAME TO green; COMMIT');
$node->configure("search.waits_in = ''");
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;

$node->is_emptied('former.session', 'a container whose schema has been renamed is emptied');
is($node->safe_psql('postgres', 'SELECT count(*) FROM green.session'), '20', '... and not the table that has its name now');

# the plan that archives rows looks the name up again
$node->safe_psql('postgres', <<'END');
SET ROLE app;
CREATE TABLE green.archive (id int);
CREATE TABLE former.archive (id int);
CREATE TABLE former.item (id int);
SELECT ttl.create_container('former.item', 3600);
SELECT ttl.alter_container('former.item', archive_to => 'green.archive', reaping => false);
CREATE FUNCTION former.wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.id = 2 THEN
        PERFORM pg_advisory_lock_shared(2);
        WHILE NOT pg_try_advisory_lock(1) LOOP
            PERFORM pg_sleep(0.01);
        END LOOP;
        -- takes the invalidations of others
        PERFORM count(*) FROM pg_shseclabel;
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER a_wait AFTER DELETE ON former.item FOR EACH ROW EXECUTE FUNCTION former.wait();
INSERT INTO former.item (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 2) g;
END
$holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', q{SELECT ttl.alter_container('former.item', reaping => true)});
$node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 2});
$node->safe_psql('postgres', 'BEGIN; ALTER SCHEMA green RENAME TO right_one; ALTER SCHEMA former RENAME TO green; COMMIT');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;
$node->is_emptied('green.item', 'a container with an archive whose schema has been renamed is emptied');
is($node->safe_psql('postgres', q{SELECT (SELECT string_agg(id::text, ' ' ORDER BY id) FROM right_one.archive), (SELECT count(*) FROM green.archive)}),
	'1 2|0', '... into that archive');

$node->stop;
done_testing();
