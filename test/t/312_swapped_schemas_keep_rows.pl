# A deletion takes no row of another table that has got the name of its own meanwhile.
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

$node->stop;
done_testing();
