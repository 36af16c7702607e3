# Without shared_preload_libraries there is no extension, and with it, but
# without CREATE EXTENSION, nothing is different.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('preload');
$node->init;
$node->start;

my ($rc, $stdout, $stderr);

# Not preloaded

sub fails
{
	my ($sql, $sqlstate, $hint, $name) = @_;
	($rc, $stdout, $stderr) = $node->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	isnt($rc, 0, $name);
	like($stderr, qr/ERROR:  $sqlstate:/, '... with the right SQLSTATE');
	like($stderr, $hint, '... and a hint') if $hint;
}

fails('CREATE EXTENSION ttl', '55000', qr/HINT:.*shared_preload_libraries/,
	'no extension without preloading');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_namespace WHERE nspname = 'ttl'"),
	'0', '... nor anything of it');
fails("LOAD 'ttl'", '55000', qr/HINT:.*shared_preload_libraries/, 'LOAD is no way around it');

# Preloaded, not created

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'");
my $log = -s $node->logfile;
$node->restart;
ok( $node->poll_query_until(
		'postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'ttl launcher'"),
	'the launcher runs');
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
fails('CREATE EXTENSION ttl', '42P06', undef, 'the extension has no use for it');
is($node->safe_psql('postgres', 'DROP SCHEMA ttl CASCADE; SELECT count(*) FROM t'), '1', 'it can be dropped');
unlike(
	join("\n", grep { !/schema "ttl" already exists/ } split /\n/, slurp_file($node->logfile, $log)),
	qr/\b(ERROR|FATAL|PANIC|WARNING):/,
	'nobody complains in the log');

# Created, but not committed

is($node->safe_psql('postgres', <<'END'), "0\n1\n1\n0", 'CREATE EXTENSION rolled back leaves no trace');
BEGIN;
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY);
DO $$BEGIN PERFORM ttl.create_container('item', 60); END$$;
DO $$BEGIN PERFORM ttl.create_container('t', 60); END$$;
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
DO $$BEGIN PERFORM ttl.create_container('t', 60); END$$;
ROLLBACK TO s;
SELECT count(*) FROM t;
CREATE EXTENSION ttl;
DO $$BEGIN PERFORM ttl.create_container('t', 60); END$$;
SELECT count(*) FROM t;
DROP EXTENSION ttl CASCADE;
SELECT count(*) FROM t;
COMMIT;
END

# Created in one session, seen in all
my $session = $node->background_psql('postgres');
is($session->query_safe('SELECT count(*) FROM t'), '1', 'a session that is older than the extension ...');
$node->safe_psql('postgres', "CREATE EXTENSION ttl; SELECT ttl.create_container('t', 60)");
is($session->query_safe('SELECT count(*) FROM t'), '0', '... obeys it');
$node->safe_psql('postgres', 'DROP EXTENSION ttl CASCADE');
is($session->query_safe("INSERT INTO t (id, _ts) VALUES (3, '2020-01-01'); SELECT count(*) FROM t WHERE id = 3"),
	'1', '... and its end');
$session->quit;

# Preloaded no more: its functions say so.
$node->safe_psql('postgres', 'TRUNCATE t');
$node->safe_psql('postgres', "CREATE EXTENSION ttl; SELECT ttl.create_container('t', 60)");
$node->safe_psql('postgres', "INSERT INTO t (id, _ts) VALUES (4, '2900-01-01')");
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
fails("SELECT ttl.set_default_ttl('t', 30)", '55000', qr/HINT:.*shared_preload_libraries/, 'not preloaded any more');
fails('INSERT INTO t (id) VALUES (5)', '55000', qr/HINT:.*shared_preload_libraries/, 'no writing to a container');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '1', 'its rows can be read');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'");
$node->restart;
is($node->safe_psql('postgres', "INSERT INTO t (id, _ts) VALUES (5, '2900-01-01'); SELECT count(*) FROM t"), '2', 'preloaded again, all is well');

$node->stop;
done_testing();
