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
is($node->safe_psql('postgres', q{SELECT database, container, containers_total, containers_done, batches * 10 = rows_deleted FROM ttl.stat_progress_reap}),
	'postgres|c|1|0|t', 'what it says');
is($node->safe_psql('postgres', 'SET ROLE alice; SELECT container IS NULL, rows_deleted IS NULL, pid > 0 FROM ttl.stat_progress_reap'),
	't|t|t', 'to others not so much');
$node->safe_psql('postgres', 'SELECT pg_cancel_backend(pid) FROM ttl.stat_progress_reap');
$h->finish;
like($err, qr/canceling statement due to user request/, 'cancelled');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ttl.stat_progress_reap'), 0, 'nothing goes on any longer');
cmp_ok($node->safe_psql('postgres', q{SELECT ttl.expired_count('c')}), '<', 50000, 'what is deleted is deleted');

$node->stop;
done_testing();
