# CALL ttl.reap that is canceled keeps the batches that it has committed.
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
CREATE TABLE c (id int);
SELECT ttl.create_container('c', 3600);
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.005); RETURN old; END';
CREATE TRIGGER slow BEFORE DELETE ON c FOR EACH ROW EXECUTE FUNCTION slow();
INSERT INTO c (id, _ts) SELECT g, now() - interval '2h' FROM generate_series(1, 50000) g;
});
my ($out, $err);
my $h = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', q{CALL ttl.reap('c')} ],
	'>', \$out, '2>', \$err, IPC::Run::timeout(180));
ok($node->poll_query_until('postgres', q{SELECT ttl.expired_count('c') < 49900}), 'batches are committed while the call goes on');
is($node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query ~ '^CALL ttl.reap' AND state = 'active'}),
	't', 'it is canceled');
$h->finish;
like($err, qr/canceling statement due to user request/, '... and ends');
my $left = $node->safe_psql('postgres', q{SELECT ttl.expired_count('c')});
cmp_ok($left, '<', 49900, 'what was committed is deleted');
cmp_ok($left, '>', 0, '... and nothing else');
is($node->safe_psql('postgres', q{SELECT rows_deleted FROM ttl.stat_containers}), 50000 - $left, '... and counted');
is($node->safe_psql('postgres', q{DROP TRIGGER slow ON c; CALL ttl.reap('c'); SELECT ttl.expired_count('c')}), '0', 'another call deletes the rest');

$node->stop;
done_testing();
