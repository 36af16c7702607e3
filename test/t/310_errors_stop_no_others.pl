# What the worker makes of errors: references that will go, cancellation, CALL.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
# since 18 a session has so many locks of its own; others need room in the table that they share
max_locks_per_transaction = 10
END
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent);
SELECT ttl.create_container('parent', 3600);
SELECT ttl.create_container('child', 3600);
-- children wait, so that the parents cannot go
SELECT ttl.alter_container('child', reaping => false);
BEGIN;
SET session_replication_role = replica;
INSERT INTO parent (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 20) g;
INSERT INTO child (id, parent, _ts) SELECT g, g, now() - interval '2h' FROM generate_series(1, 20) g;
COMMIT;
SELECT ttl.alter_container('parent', reaping => true);
});

my $blocked = q{SELECT blocked_rows FROM ttl.stat_containers WHERE container = 'parent'::regclass};
ok($node->poll_query_until('postgres', $blocked, '20'),
	'referenced rows are counted as blocked');
like($node->statistics('last_error', 'parent'), qr/violates foreign key constraint/, '... with the reason');
$node->safe_psql('postgres', q{SELECT ttl.alter_container('child', reaping => true)});
my $start = time;
ok($node->poll_query_until('postgres',
		q{SELECT rows_deleted = 20 FROM ttl.stat_containers WHERE container = 'parent'::regclass}),
	'they go after what references them');
cmp_ok(time - $start, '<', 25, 'and soon');

# a row that stays referenced
$node->safe_psql('postgres', q{
BEGIN;
SET session_replication_role = replica;
INSERT INTO parent (id, _ts) VALUES (1, now() - interval '2h');
INSERT INTO child (id, parent, ttl) VALUES (1, 1, -1);
COMMIT;
SELECT ttl.alter_container('parent', reaping => true);
});
ok($node->poll_query_until('postgres',
		q{SELECT blocked_rows = 1 AND last_error LIKE '%violates foreign key constraint%' FROM ttl.stat_containers WHERE container = 'parent'::regclass}),
	'a lasting reference becomes an error');
my $held = qr/WARNING:  could not delete expired rows of table "public.parent": .* violates foreign key constraint "child_parent_fkey" on table "child"\n.*DETAIL:  Key \(id\)=\(1\) is still referenced from table "child"/;
$node->wait_for_log($held);
is(() = slurp_file($node->logfile) =~ /could not delete expired rows of table "public.parent"/g, 1, '... which the log has told once');

# a trigger that misses its search_path
$node->safe_psql('postgres', q{
CREATE TABLE audit (id int);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit VALUES (old.id); RETURN NULL; END';
CREATE TABLE audited (id int);
CREATE TRIGGER audit AFTER DELETE ON audited FOR EACH ROW EXECUTE FUNCTION audit();
SELECT ttl.create_container('audited', 3600);
INSERT INTO audited (id, _ts) VALUES (1, now() - interval '2h');
SELECT ttl.alter_container('audited', reaping => true);
});
ok($node->poll_query_until('postgres',
		q{SELECT last_error = 'relation "audit" does not exist' FROM ttl.stat_containers WHERE container = 'audited'::regclass}),
	'a trigger that misses a table is an error');
like(slurp_file($node->logfile), qr/HINT: .* have search_path "pg_catalog, pg_temp"/, '... and the log says why');
$node->safe_psql('postgres', 'ALTER FUNCTION audit() SET search_path = public; CALL ttl.reap(\'audited\')');
is($node->safe_psql('postgres', 'SELECT * FROM audit'), '1', '... which is mended as it says');

# errors that a trigger raises, but that look like those of the session
for my $case (map { ([ $_, 100 ], [ $_, 1 ]) } 'serialization_failure', 'deadlock_detected', 'query_canceled', 'admin_shutdown',
	'lock_not_available', 'disk_full', 'io_error')
{
	my ($code, $rows) = @$case;
	$node->safe_psql('postgres', qq{
CREATE TABLE raises (id int);
CREATE FUNCTION raises() RETURNS trigger LANGUAGE plpgsql AS \$\$
BEGIN
    IF OLD.id = 1 THEN
        RAISE 'not this one' USING ERRCODE = '$code';
    END IF;
    RETURN OLD;
END \$\$;
CREATE TRIGGER raises BEFORE DELETE ON raises FOR EACH ROW EXECUTE FUNCTION raises();
SELECT ttl.create_container('raises', 3600);
INSERT INTO raises (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, $rows) g;
SELECT ttl.alter_container('raises', reaping => true);
});
	ok($node->poll_query_until('postgres', qq{SELECT rows_deleted = $rows - 1 AND blocked_rows = 1 AND last_error = 'not this one'
		FROM ttl.stat_containers WHERE container = 'raises'::regclass}), "a row of $rows whose trigger raises $code doesn't keep the others");
	$node->safe_psql('postgres', 'DROP TABLE raises; DROP FUNCTION raises()');
}

# what a publication requires stands in the detail
$node->safe_psql('postgres', q{
CREATE TABLE published (id int PRIMARY KEY, note text);
SELECT ttl.create_container('published', 3600);
CREATE PUBLICATION filtering FOR TABLE published WHERE (note = 'x');
INSERT INTO published (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.alter_container('published', reaping => true);
});
ok($node->poll_query_until('postgres',
		q{SELECT last_error ~ 'cannot delete from table "published": .*publication WHERE.*replica identity' AND blocked_rows = 0
		FROM ttl.stat_containers WHERE container = 'published'::regclass}), 'a publication whose filter lacks the replica identity');
like($node->safe_psql('postgres', q{SELECT state FROM ttl.status WHERE container = 'published'::regclass}), qr/failing/, '... the table fails');
$node->safe_psql('postgres', 'DROP PUBLICATION filtering');
$node->is_emptied('published', '... until it is dropped');

# cancellation
my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'ttl reaper'};
my $pid = $node->safe_psql('postgres', $worker);
$node->safe_psql('postgres', q{
CREATE TABLE big (id int);
SELECT ttl.create_container('big', 3600);
INSERT INTO big (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 50000) g;
SELECT ttl.alter_container('big', reaping => true);
});
for (1 .. 5)
{
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid), pg_sleep(0.05)");
}
ok($node->poll_query_until('postgres',
		q{SELECT rows_deleted = 50000 FROM ttl.stat_containers WHERE container = 'big'::regclass}),
	'a cancelled worker goes on');
is($node->safe_psql('postgres', $worker), $pid, 'and is the same');

# an index that isn't valid: what others find is deleted, and "nothing" is an error
my $log = -s $node->logfile;
my $broken = qr/WARNING: .*table "public.broken": expiry index "broken__ts_idx" of table "broken" is not valid/;
$node->safe_psql('postgres', q{
CREATE TABLE broken (id int);
SELECT ttl.create_container('broken', 3600);
UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'broken__ts_idx'::regclass;
INSERT INTO broken (id, _ts, ttl) VALUES (1, now() - interval '2h', NULL), (2, now() - interval '2h', 5);
});
ok($node->poll_query_until('postgres',
		q{SELECT rows_deleted = 1 FROM ttl.stat_containers WHERE container = 'broken'::regclass}),
	'a valid index serves beside an invalid one');
$node->wait_for_log($broken, $log);
# an invalidation makes the worker look at once
for my $delay ('1s', '0')
{
	$node->safe_psql('postgres', qq{SELECT ttl.alter_container('broken', reap_delay => '$delay')});
	$node->safe_psql('postgres', q{INSERT INTO broken (id, _ts, ttl) VALUES (2, now() - interval '2h', 5)});
	$node->poll_query_until('postgres',
		q{SELECT rows_deleted = } . ($delay eq '0' ? 3 : 2) . q{ FROM ttl.stat_containers WHERE container = 'broken'::regclass});
}
$node->safe_psql('postgres', 'REINDEX INDEX broken__ts_idx');
ok($node->poll_query_until('postgres',
		q{SELECT rows_deleted = 4 FROM ttl.stat_containers WHERE container = 'broken'::regclass}),
	'built anew, it serves');
is(() = substr(slurp_file($node->logfile), $log) =~ /$broken/g, 1, 'the log has told once');

# CALL wakes the worker
$node->safe_psql('postgres', q{INSERT INTO big (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 1000) g});
$start = time;
$node->safe_psql('postgres', q{CALL ttl.reap('big', 10)});
ok($node->poll_query_until('postgres',
		q{SELECT rows_deleted = 51000 FROM ttl.stat_containers WHERE container = 'big'::regclass}),
	'the worker finishes what CALL has begun');
cmp_ok(time - $start, '<', 6, 'without waiting for its next look');

# a corrupt index of one container doesn't keep the worker from the others
$node->turn_reaper('off');
my $path = $node->safe_psql('postgres', q{
DO $$
BEGIN
    FOR i IN 1..8 LOOP
        EXECUTE format('CREATE TABLE c%s (id int)', i);
        PERFORM ttl.create_container(format('c%s', i)::regclass, 60);
        EXECUTE format('INSERT INTO c%s (id, _ts) VALUES (1, ''2020-01-01'')', i);
    END LOOP;
END $$;
SELECT pg_relation_filepath('c4__ts_idx')});
$node->stop;
my $file = $node->data_dir . "/$path";
my $size = -s $file;
open(my $index, '+<', $file) or die $!;
binmode $index;
print $index "\0" x $size;
close $index;
$node->append_conf('postgresql.conf', 'ttl.reaper = on');
$log = -s $node->logfile;
$node->start;
ok($node->poll_query_until('postgres', q{SELECT sum(ttl.expired_count('c' || g)) = 0 FROM generate_series(1, 8) g WHERE g <> 4}),
	'one has a corrupt index: the others are reaped');
$node->poll_query_until('postgres', q{SELECT state = 'idle' FROM ttl.stat_reaper});
$log = substr(slurp_file($node->logfile), $log);
is(() = $log =~ /ERROR.*c4__ts_idx/g, 1, 'the log tells once');
like($log, qr/ERROR.*c4__ts_idx.*\n(.*HINT:.*\n)?.*CONTEXT: .*(\n\t.*)*deletion of expired rows of container "public.c4" in database "postgres"/, '... and where');
unlike($log, qr/"ttl reaper".*exited/, 'by the same worker');
is($node->safe_psql('postgres', q{SELECT state, next_expiry IS NULL FROM ttl.status WHERE container = 'c4'::regclass}),
	'damaged: see last_error|t', '... and the status that it is damaged');
is($node->safe_psql('postgres', q{SELECT lag IS NULL, last_error ~ 'c4__ts_idx' FROM ttl.stat_containers WHERE container = 'c4'::regclass}),
	't|t', '... as the statistics do');
is($node->safe_psql('postgres', q{SELECT count(*) = 8 AND bool_and(state = 'idle' OR container = 'c4'::regclass) FROM ttl.status WHERE container::text ~ '^c.$'}),
	't', '... which fail for no other');

# A session without room for locks isn't told that a container is damaged, but what it lacks.
$node->turn_reaper('off');
$node->safe_psql('postgres', q{
CREATE TABLE parted (id int) PARTITION BY RANGE (id);
DO $$ BEGIN FOR i IN 1..20 LOOP EXECUTE format('CREATE TABLE part%s PARTITION OF parted FOR VALUES FROM (%s) TO (%s)', i, i, i + 1); END LOOP; END $$;
SELECT ttl.create_container('parted', 60);
CREATE FUNCTION problem_of(container regclass) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM ttl.stat_containers;
    RETURN (ttl.outlook(container)).problem;
EXCEPTION WHEN OTHERS THEN RETURN sqlstate;
END $$;
CREATE PROCEDURE fill_lock_table() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..1000000 LOOP PERFORM pg_advisory_lock(i); END LOOP;
EXCEPTION WHEN out_of_memory THEN
END $$});
is($node->safe_psql('postgres', q{SELECT problem_of('parted') IS NULL; CALL fill_lock_table(); SELECT problem_of('parted'); SELECT pg_advisory_unlock_all(); SELECT problem_of('parted') IS NULL}) =~ s/\s+/ /gr,
	't 53200 t', 'no room for locks: that is the error');
$node->turn_reaper('on');

$node->safe_psql('postgres', 'REINDEX INDEX c4__ts_idx');
$node->is_emptied('c4', 'when the index is whole again, so is that one');

$node->stop;
done_testing();
