# pg_repack itself, where it is installed: refused while expired rows are hidden,
# and otherwise nothing is lost.  (sql/tools.sql imitates it.)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('repack', <<'END');
ttl.reaper = off
ttl.naptime = 10ms
END

my $program = $node->config_data('--bindir') . '/pg_repack';
if (!-x $program
	|| !$node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_repack'"))
{
	$node->stop;
	plan(skip_all => 'pg_repack is not installed');
}

$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE EXTENSION pg_repack;
CREATE TABLE item (id int PRIMARY KEY, note text);
CREATE TABLE part (id int PRIMARY KEY, note text) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (500);
CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (500) TO (2000);
SELECT ttl.create_container(c, 3600) FROM unnest('{item, part}'::regclass[]) c;
INSERT INTO item (id, _ts, ttl) SELECT g, CASE WHEN g % 2 = 0 THEN '2020-01-01' ELSE '2900-01-01' END::timestamptz, CASE WHEN g % 3 = 0 THEN 5 END FROM generate_series(1, 1000) g;
SET row_security = off;
INSERT INTO part SELECT * FROM item;
END
my $stored = q{SET row_security = off; SELECT count(*), sum(id), sum(ttl), min(_ts), max(_ts) FROM item;
SELECT tableoid::regclass, count(*), sum(id) FROM part GROUP BY 1 ORDER BY 1;
SELECT ttl.expired_count('item'), ttl.expired_count('part')};
my $files = q{SELECT relfilenode FROM pg_class WHERE relname IN ('item', 'part_1', 'part_2') ORDER BY 1};
my $before = $node->safe_psql('postgres', $stored);
my $old_files = $node->safe_psql('postgres', $files);

my @repack = ($program, '-h', $node->host, '-p', $node->port, '-d', 'postgres');
for my $what ([ '-t', 'item' ], [ '-I', 'part' ], [])
{
	command_fails_like([ @repack, @$what ], qr/cannot repack.*\n.*\n.*HINT:  Run pg_repack with PGOPTIONS='-c row_security=off'/,
		"pg_repack @$what is refused");
}
is($node->safe_psql('postgres', $stored), $before, '... nothing has happened');
is($node->safe_psql('postgres', $files), $old_files, '... to any file');

{
	local $ENV{PGOPTIONS} = '-c row_security=off';
	command_fails_like([ @repack, '-t', 'ttl.container' ], qr/HINT:  Run pg_repack with --exclude-extension=ttl/, 'policies are not repacked');
	command_ok([ @repack, '--exclude-extension=ttl' ], 'pg_repack with row_security off');
}
is($node->safe_psql('postgres', $stored), $before, '... keeps every stored row');
isnt($node->safe_psql('postgres', $files), $old_files, '... in new files');
is($node->safe_psql('postgres', 'SELECT count(*) FROM item'), '500', '... hidden as before');
is( $node->safe_psql('postgres', q{INSERT INTO item (id, note) VALUES (2, 'new') RETURNING note; UPDATE item SET note = 'touched' WHERE id = 1 RETURNING _ts < '2800-01-01'}),
	"new\nt", '... in a container that does what containers do');

command_ok([ @repack, '-x', '-t', 'item' ], 'pg_repack --only-indexes');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_index WHERE indrelid = 'item'::regclass}), '3', '... keeps the expiry indexes');

# While rows are written, evicted and deleted
$node->safe_psql('postgres', q{CREATE TABLE ledger AS SELECT id, note FROM item WHERE false});
my $writer = $node->background_psql('postgres');
$writer->query_until(qr/started/, <<'END');
CREATE PROCEDURE write(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. n LOOP
        INSERT INTO item (id, note, _ts) SELECT 10000 + i % 100, i::text, CASE WHEN i % 3 = 0 THEN '2020-01-01' END::timestamptz
            ON CONFLICT (id) DO UPDATE SET note = excluded.note;
        DELETE FROM ledger WHERE id = 10000 + i % 100;
        INSERT INTO ledger SELECT id, note FROM item WHERE id = 10000 + i % 100;
        COMMIT;
    END LOOP;
END $$;
\echo started
CALL write(3000);
END
$node->turn_reaper('on');
{
	local $ENV{PGOPTIONS} = '-c row_security=off';
	command_ok([ @repack, '-t', 'item' ], 'pg_repack beside writers and the reaper') for 1 .. 2;
}
$writer->query_safe('SELECT 1');
$writer->quit;
is($node->safe_psql('postgres', 'SELECT count(*) > 50 FROM ledger'), 't', '... rows were written');
is($node->safe_psql('postgres', 'SELECT id, note FROM item WHERE id >= 10000 EXCEPT SELECT id, note FROM ledger'), '', '... and none appears');
is($node->safe_psql('postgres', 'SELECT id, note FROM ledger EXCEPT SELECT id, note FROM item'), '', '... nor is lost');

$node->stop;
done_testing();
