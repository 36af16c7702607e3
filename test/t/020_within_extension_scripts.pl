# In the script of another extension ttl works as everywhere.  Its own is what it
# depends on: whoever makes a container and whoever drops the extension wait for
# each other.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('extensions', <<'END');
ttl.reaper = off
END

# What an extension's script might do is done here by an event trigger that fires
# within one.
my $other = 'amcheck';
my $session = $node->background_psql('postgres');
$session->query_safe(<<"END");
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', 60);
INSERT INTO item (id, note, _ts) VALUES (1, 'expired', '2020-01-01'), (2, 'live', '2900-01-01'), (3, 'expired', '2020-01-01');
CREATE TABLE gone (id int);
SELECT ttl.create_container('gone', 60);
CREATE TABLE witness (what text, n bigint);
CREATE FUNCTION count_items() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM item); END';
CREATE FUNCTION script() RETURNS event_trigger LANGUAGE plpgsql AS \$\$
BEGIN
    IF to_regclass('own') IS NOT NULL THEN
        RETURN;
    END IF;
    CREATE TABLE own (id int PRIMARY KEY);
    PERFORM ttl.create_container('own', 60);
    INSERT INTO own (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');
    INSERT INTO own (id) VALUES (1);
    INSERT INTO witness
    SELECT 'extension', count(*) FROM pg_depend
     WHERE objid = 'own'::regclass AND refclassid = 'pg_extension'::regclass AND deptype = 'e'
    UNION ALL SELECT 'visible', count_items()
    UNION ALL SELECT 'own', count(*) FROM own;
    UPDATE item SET note = 'touched' WHERE id = 2;
    INSERT INTO item (id, note) VALUES (1, 'new');
    ALTER TABLE item RENAME COLUMN ttl TO keep;
    DROP TABLE gone;
END\$\$;
CREATE EVENT TRIGGER script ON ddl_command_end WHEN TAG IN ('CREATE FUNCTION') EXECUTE FUNCTION script();
CREATE EXTENSION $other;
DROP EVENT TRIGGER script;
END
is($session->query_safe('SELECT * FROM witness ORDER BY what'), "extension|1\nown|2\nvisible|1",
	q{another extension's script: containers are made, hide, and free keys});
is($session->query_safe(q{SELECT id, note, _ts < '2800-01-01' FROM item ORDER BY id}),
	"1|new|t\n2|touched|t", '... rows are stamped');
is($session->query_safe('SELECT count_items()'), '2', '... plans that are made in it hide');
is($session->query_safe(q{SELECT container, ttl_column FROM ttl.containers ORDER BY container::text}),
	"item|keep\nown|ttl", '... DDL is followed');
$session->query_safe("DROP EXTENSION $other");
is($session->query_safe(q{SELECT container FROM ttl.containers}), 'item', '... and its containers go with it');

# Who restores a database runs such a script, and then the policies come, of
# which the script knows nothing.
$session->query_safe("CREATE TABLE own (id int, _ts timestamptz); SELECT ttl.create_container('own', 60)");
my $restored = q{INSERT INTO ttl.container (relid, default_time_to_live, ts_column, ttl_column, indexing, touch_on_update, reaping, reap_delay)
VALUES ('own', 3600, '_ts', 'ttl', 'consistent', true, true, '0')};
my $policy = q{SELECT default_ttl, reaping FROM ttl.containers WHERE container = 'own'::regclass};
$session->query_safe($restored);
is($session->query_safe($policy), '60|t', q{a container's policy is not restored over it});
$session->query_safe("CREATE EXTENSION $other; ALTER EXTENSION $other ADD TABLE own");
# but for the warning that reaping is off
$session->query_safe("SET client_min_messages = error; $restored; RESET client_min_messages");
is($session->query_safe($policy), '3600|f', q{... but over one that an extension's script has made});
$session->query_safe("DROP EXTENSION $other");

# The schema's name is how the extension is found.
my ($rc, $stdout, $stderr) =
  $node->psql('postgres', "\\set VERBOSITY verbose\nALTER SCHEMA ttl RENAME TO other");
like($stderr, qr/ERROR:  2BP01: cannot rename schema "ttl"/, 'the schema is not renamed');
$node->safe_psql('postgres', 'CREATE SCHEMA a; ALTER SCHEMA a RENAME TO b; DROP SCHEMA b');

# Making a container while the extension is dropped, and the other way round
sub is_waiting
{
	my ($what, $name) = @_;
	ok( $node->poll_query_until('postgres',
			"SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '$what%'"),
		$name);
	return;
}

my $waiting = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('DROP TABLE item; CREATE TABLE item (id int); CREATE TABLE fresh (id int); INSERT INTO fresh VALUES (1)');
$session->query_safe(q{BEGIN; SELECT ttl.create_container('item', 60)});
$waiting->query_until(qr/started/, "\\echo started\nDROP EXTENSION ttl;\n");
is_waiting('DROP EXTENSION', 'DROP EXTENSION waits for create_container');
$session->query_safe('COMMIT');
$waiting->query('SELECT 1');
like($waiting->{stderr}, qr/cannot drop extension ttl because other objects depend on it/, '... and then finds the container');
$waiting->{stderr} = '';
$session->query_safe(q{SELECT ttl.drop_container('item')});

# Any session that looks at a table for the first time looks into ttl.container.
my $reader = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('BEGIN; DROP EXTENSION ttl');
$waiting->query_until(qr/started/, "\\echo started\nSELECT ttl.create_container('item', 60);\n");
is_waiting('SELECT ttl.create', 'create_container waits for DROP EXTENSION');
$reader->query_until(qr/started/, "\\echo started\nSELECT count(*) FROM fresh;\n");
is_waiting('SELECT count', '... and so does a first look at a table');
$session->query_safe('COMMIT');
$waiting->query('SELECT 1');
like($waiting->{stderr}, qr/extension "ttl" is not installed|schema "ttl" does not exist/, '... and then finds no extension');
like($reader->query('SELECT 2'), qr/^1\n.*2$/s, '... which is no error for who only reads');
is($reader->{stderr}, '', '... at all');
$_->quit for $reader, $waiting, $session;

is($node->safe_psql('postgres', 'CREATE EXTENSION ttl; SELECT count(*) FROM ttl.container'), '0', 'no row stays behind');
unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'nobody crashes');

$node->stop;
done_testing();
