# ttl.stat_progress_reap; and a cancelled CALL ttl.reap keeps what it has done
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', 'ttl.reaper = off');
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE ROLE alice;
CREATE TABLE c (id int);
SELECT ttl.create_container('c', 3600);
SELECT ttl.alter_container('c', batch_size => 10);
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.005); RETURN old; END';
CREATE TRIGGER slow BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION slow();
INSERT INTO c (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 50000) g;
});
is($node->safe_psql('postgres', 'SELECT count(*) FROM ttl.stat_progress_reap'), 0, 'nothing goes on');
my ($out, $err);
my $h = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', q{CALL ttl.reap('c')} ],
	'>', \$out, '2>', \$err, IPC::Run::timeout(180));
ok($node->poll_query_until('postgres', 'SELECT rows_deleted > 50 FROM ttl.stat_progress_reap'), 'progress is seen');
is($node->safe_psql('postgres', q{SELECT database, container, phase, containers_total, containers_done, batches * 10 = rows_deleted,
	started_at < clock_timestamp() FROM ttl.stat_progress_reap}),
	'postgres|c|deleting expired rows|1|0|t|t', 'what it says');
is($node->safe_psql('postgres', 'SET ROLE alice; SELECT container IS NULL, rows_deleted IS NULL, pid > 0 FROM ttl.stat_progress_reap'),
	't|t|t', 'to others not so much');
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM ttl.stat_progress_reap');
$h->finish;
like($err, qr/canceling statement due to user request/, 'cancelled');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ttl.stat_progress_reap'), 0, 'nothing goes on any longer');
cmp_ok($node->safe_psql('postgres', q{SELECT ttl.expired_count('c')}), '<', 50000, 'what is deleted is deleted');

# A command in a trigger reports its own progress, into ours when an error has been trapped in it.
$node->safe_psql('postgres', q{
CREATE TABLE d (id int);
SELECT ttl.create_container('d', 3600);
CREATE FUNCTION trap(i int) RETURNS int LANGUAGE plpgsql SET lock_timeout = 0 AS $$
BEGIN
	IF i = 1 THEN
		BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END;
	ELSIF i = 3 THEN
		PERFORM pg_advisory_lock(1);
	END IF;
	RETURN i;
END $$;
CREATE FUNCTION copies() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	COPY (SELECT public.trap(g), repeat('x', 1000) FROM generate_series(1, 3) g) TO '/dev/null';
	RETURN old;
END $$;
CREATE TRIGGER copies BEFORE DELETE ON d FOR EACH ROW EXECUTE FUNCTION copies();
INSERT INTO d (id, _ts) VALUES (1, now() - interval '2h');
});
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
$h = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', q{CALL ttl.reap('d')} ],
	'>', \$out, '2>', \$err, IPC::Run::timeout(180));
ok($node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}),
	'a COPY is under way in a trigger');
is($node->safe_psql('postgres', 'SELECT container, phase FROM ttl.stat_progress_reap'), 'd|', 'its numbers are no phase');
$holder->quit;
$h->finish;
is($node->safe_psql('postgres', q{SELECT ttl.expired_count('d')}), 0, '... and the row is deleted');
$node->stop;
done_testing();
