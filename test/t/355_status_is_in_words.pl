# ttl.status: what becomes of each container's rows, in words.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', "ttl.naptime = 50ms\nttl.grace = 1h\n");

sub sql { return $node->safe_psql('postgres', shift); }

# The moment in the state is left out.
sub state_is
{
	my ($state, $what) = @_;
	my $query = q{SELECT regexp_replace(state, '\d.*', '...') FROM ttl.status WHERE container = 'item'::regclass};
	ok($node->poll_query_until('postgres', $query, $state), $what) or diag(sql('TABLE ttl.status'));
	return;
}

sql(q{
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY);
SELECT ttl.create_container('item', '36 hours')});
is(sql(q{SELECT default_ttl, lag, next_expiry FROM ttl.status}), '1 day 12:00:00||', 'no rows');
state_is('idle', 'nothing to delete');

sql(q{INSERT INTO item (id, _ts) VALUES (1, now() - interval '1 day')});
is(sql(q{SELECT next_expiry - now() BETWEEN '11 h' AND '12 h 1 s' FROM ttl.status}), 't', 'when the next row expires');
sql(q{SELECT ttl.set_default_ttl('item', 60)});
state_is('kept until ...', 'grace');
like(sql(q{SELECT state, lag FROM ttl.status}), qr/^kept until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+\d\d\|23:59:\d\d$/, 'until when, and since when');
sql(q{SELECT ttl.set_default_ttl('item', '36 hours')});
sql(q{SELECT ttl.alter_container('item', reap_delay => '1 year'); INSERT INTO item (id, _ts) VALUES (2, now() - interval '2 days')});
state_is('kept until ...', 'reap_delay');

sql(q{SELECT ttl.alter_container('item', reaping => false)});
state_is('reaping is off', 'reaping');
sql(q{SELECT ttl.pause()});
state_is('paused', 'a pause');
sql(q{SELECT ttl.pause(now() + interval '1 day')});
state_is('paused until ...', 'a pause that ends');
sql(q{SELECT ttl.resume()});

sql(q{
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON item FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT ttl.alter_container('item', reaping => true, reap_delay => '0')});
ok($node->poll_query_until('postgres', q{SELECT state = 'blocked: 1 row' FROM ttl.status}), 'a row that cannot be deleted');
sql(q{DROP TRIGGER refuse ON item});
state_is('idle', 'it is deleted');

$node->append_conf('postgresql.conf', 'ttl.reaper = off');
$node->reload;
state_is('ttl.reaper is off', 'no worker');
sql(q{SELECT ttl.set_default_ttl('item', NULL)});
state_is('TTL is off', 'TTL off');
is(sql(q{SELECT default_ttl FROM ttl.status}), 'off', '... which is its default TTL');

# it fits a terminal of 100 columns
my ($out, $err);
$node->psql('postgres', q{CREATE TABLE customer_sessions (id int);
	SELECT ttl.create_container('customer_sessions', '30 days') \g /dev/null
	INSERT INTO customer_sessions VALUES (1);
	SELECT ttl.pause(now() + interval '1 day') \g /dev/null}, stdout => \$out, stderr => \$err);
$out = (run_command([ 'psql', '-X', '-d', $node->connstr('postgres'), '-c', 'TABLE ttl.status' ]))[0];
my ($widest) = sort { $b <=> $a } map { length } split /\n/, $out;
cmp_ok($widest, '<=', 100, 'the view fits 100 columns') or diag($out);

$node->stop;
done_testing();
