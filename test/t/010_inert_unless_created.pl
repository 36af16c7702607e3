# Without shared_preload_libraries there is no extension, and with it, but
# without CREATE EXTENSION, nothing is different.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->new('preload');
$node->init;
$node->start;

# Not preloaded

$node->fails('CREATE EXTENSION ttl', '55000', 'no extension without preloading', qr/HINT:.*shared_preload_libraries/);
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_namespace WHERE nspname = 'ttl'"),
	'0', '... nor anything of it');
$node->fails("LOAD 'ttl'", '55000', 'LOAD is no way around it', qr/HINT:.*shared_preload_libraries/);

# Preloaded, not created

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'");
my $log = -s $node->logfile;
$node->restart;
$node->processes_are('ttl launcher', 1, 'the launcher runs');
is($node->safe_psql('postgres', <<'END'), "30\n20\n1", 'ordinary statements work');
CREATE TABLE t (id int PRIMARY KEY, _ts timestamptz DEFAULT '2020-01-01', ttl int DEFAULT 1);
INSERT INTO t SELECT generate_series(1, 10);
UPDATE t SET id = id + 10;
SELECT count(*) + 20 FROM t WHERE _ts = '2020-01-01';
INSERT INTO t (id) VALUES (20) ON CONFLICT (id) DO UPDATE SET ttl = 7 RETURNING id;
DELETE FROM t WHERE id < 20;
SELECT count(*) FROM t;
DROP TABLE t;
END
is($node->safe_psql('postgres', <<'END'), "1\n60\n1", q{a user's own schema named ttl is no problem});
CREATE SCHEMA ttl;
CREATE TABLE ttl.container (relid regclass PRIMARY KEY, default_time_to_live int);
CREATE FUNCTION ttl.is_live(regclass, timestamptz, int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
CREATE FUNCTION ttl.default_ttl(regclass) RETURNS int LANGUAGE sql AS 'SELECT 60';
CREATE TABLE t (id int PRIMARY KEY, _ts timestamptz DEFAULT '2020-01-01', ttl int DEFAULT 1);
INSERT INTO ttl.container VALUES ('t', 60);
INSERT INTO t VALUES (1);
SELECT count(*) FROM t;
SELECT ttl.default_ttl('t');
SELECT count(*) FROM ttl.container;
END
$node->fails('CREATE EXTENSION ttl', '42P06', 'the extension has no use for it');
is($node->safe_psql('postgres', 'DROP SCHEMA ttl CASCADE; SELECT count(*) FROM t'), '1', 'it can be dropped');
unlike(
	join("\n", grep { !/schema "ttl" already exists|terminating connection due to administrator command/ } split /\n/, slurp_file($node->logfile, $log)),
	qr/\b(ERROR|FATAL|PANIC|WARNING):/,
	'nobody complains in the log');

# Created, but not committed

is($node->safe_psql('postgres', <<'END'), "0\n1\n1\n0", 'CREATE EXTENSION rolled back leaves no trace');
BEGIN;
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY);
DO $$BEGIN PERFORM ttl.create_container('item', 60); END$$;
DO $$BEGIN PERFORM ttl.create_container('t', 60, ts_column => '_ts', ttl_column => 'ttl'); END$$;
INSERT INTO item (id, _ts) VALUES (1, '2020-01-01');
SELECT count(*) FROM item;
ROLLBACK;
SELECT count(*) FROM t;
UPDATE t SET id = 2;
SELECT count(*) FROM t WHERE _ts = '2020-01-01';
SELECT count(*) FROM pg_namespace WHERE nspname = 'ttl';
END
is($node->safe_psql('postgres', <<'END'), "1\n0\n1", '... nor in a subtransaction');
BEGIN;
SAVEPOINT s;
CREATE EXTENSION ttl;
DO $$BEGIN PERFORM ttl.create_container('t', 60, ts_column => '_ts', ttl_column => 'ttl'); END$$;
ROLLBACK TO s;
SELECT count(*) FROM t;
CREATE EXTENSION ttl;
DO $$BEGIN PERFORM ttl.create_container('t', 60, ts_column => '_ts', ttl_column => 'ttl'); END$$;
SELECT count(*) FROM t;
DROP EXTENSION ttl CASCADE;
SELECT count(*) FROM t;
COMMIT;
END

# Created in one session, seen in all
my $session = $node->background_psql('postgres');
is($session->query_safe('SELECT count(*) FROM t'), '1', 'a session that is older than the extension ...');
$node->safe_psql('postgres', "CREATE EXTENSION ttl; SELECT ttl.create_container('t', 60, ts_column => '_ts', ttl_column => 'ttl')");
is($session->query_safe('SELECT count(*) FROM t'), '0', '... obeys it');
$node->safe_psql('postgres', 'DROP EXTENSION ttl CASCADE');
is($session->query_safe("INSERT INTO t (id, _ts) VALUES (3, '2020-01-01'); SELECT count(*) FROM t WHERE id = 3"),
	'1', '... and its end');
$session->quit;

# A look-up of the extension that fails half-way is repeated
$node->safe_psql('postgres', 'TRUNCATE t');
$node->safe_psql('postgres', "CREATE EXTENSION ttl; SELECT ttl.create_container('t', 60, ts_column => '_ts', ttl_column => 'ttl')");
my $locker = $node->background_psql('postgres');
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query("INSERT INTO t (id, _ts) VALUES (1, '2020-01-01')");
for my $timeout ('lock_timeout', 'statement_timeout')
{
	$session->query("SET $timeout = 1");
	$node->safe_psql('postgres', 'VACUUM FULL pg_namespace');
	$locker->query_safe('BEGIN; LOCK pg_namespace');
	$session->query('DISCARD SEQUENCES');
	like($session->{stderr}, qr/due to (lock|statement) timeout/, "$timeout: a look-up of the extension is canceled");
	$session->{stderr} = '';
	$locker->query_safe('ROLLBACK');
	$session->query("RESET $timeout");
	is($session->query('SELECT count(*) FROM t'), '0', '... the next one hides rows');
	is($session->query("INSERT INTO t (id, _ts) VALUES (1, '2020-01-01') RETURNING id"), '1', '... and frees keys');
	is($session->{stderr}, '', '... without an error');
}
$_->quit for $locker, $session;
$node->safe_psql('postgres', 'DROP EXTENSION ttl CASCADE');

# Preloaded no more: its functions say so.
$node->safe_psql('postgres', 'TRUNCATE t');
$node->safe_psql('postgres', "CREATE EXTENSION ttl; SELECT ttl.create_container('t', 60, ts_column => '_ts', ttl_column => 'ttl')");
$node->safe_psql('postgres', "INSERT INTO t (id, _ts) VALUES (4, '2900-01-01')");
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$node->fails("SELECT ttl.set_default_ttl('t', 30)", '55000', 'not preloaded any more', qr/HINT:.*shared_preload_libraries/);
$node->fails('INSERT INTO t (id) VALUES (5)', '55000', 'no writing to a container', qr/HINT:.*shared_preload_libraries/);
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '1', 'its rows can be read');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'");
$node->restart;
is($node->safe_psql('postgres', "INSERT INTO t (id, _ts) VALUES (5, '2900-01-01'); SELECT count(*) FROM t"), '2', 'preloaded again, all is well');

$node->stop;
done_testing();
