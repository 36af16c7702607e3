# A standby hides the same rows as its primary, at the same instant, obeys each
# change of policy when it arrives, deletes nothing, and does so when promoted.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $primary = TtlNode->start_new('primary', <<'END', allows_streaming => 1);
ttl.naptime = 100ms
ttl.reaper = off
END
$primary->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', 60);
END
$primary->backup('backup');
my $standby = TtlNode->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', "hot_standby = on\nttl.reaper = on");
$standby->start;

sub catch_up
{
	$primary->wait_for_flush;
	$primary->wait_for_catchup($standby, 'replay');
}

sub both_say
{
	my ($sql, $expected, $name) = @_;
	is($primary->safe_psql('postgres', $sql), $expected, "$name: primary");
	is($standby->safe_psql('postgres', $sql), $expected, "$name: standby");
}

$primary->safe_psql('postgres', <<'END');
INSERT INTO item (id, note, ttl, _ts)
SELECT g, 'row', CASE g % 3 WHEN 0 THEN NULL WHEN 1 THEN g WHEN 2 THEN -1 END, '2990-01-01 UTC' FROM generate_series(1, 100) g;
INSERT INTO item (id, note, _ts) VALUES (101, 'expired', '2020-01-01');
ANALYZE item;
END
catch_up();
both_say('SELECT count(*) FROM item', '100', 'an expired row is hidden');

# whatever the type of their TTL, by index and row by row
$primary->safe_psql('postgres', <<'END');
CREATE TABLE document (id int PRIMARY KEY, doc jsonb, at timestamp);
SELECT ttl.create_container('document', 60, 'at', 'doc');
INSERT INTO document SELECT g, CASE g % 4 WHEN 0 THEN '{"ttl": 20}' WHEN 1 THEN '{"ttl": -1}' WHEN 2 THEN '{"ttl": 0.5}' END::jsonb, '2020-01-01' FROM generate_series(1, 4000) g;
CREATE TABLE deadline (id int PRIMARY KEY, until timestamptz);
SELECT ttl.create_container('deadline', -1, ts_column => NULL, ttl_column => 'until');
INSERT INTO deadline SELECT g, CASE g % 4 WHEN 0 THEN '2020-01-01' WHEN 1 THEN '2900-01-01' WHEN 2 THEN 'infinity' END::timestamptz FROM generate_series(1, 4000) g;
END
catch_up();
for my $suspects (qw(never always))
{
	both_say("SET ttl.debug_index_probe = $suspects; SELECT count(*), count(DISTINCT id % 4), sum(id % 4) FROM document", '1000|1|1000', "documents, $suspects");
	both_say("SET ttl.debug_index_probe = $suspects; SELECT count(*), min(id % 4) FROM deadline", '3000|1', "deadlines, $suspects");
}
both_say("SET TimeZone = 'Asia/Tokyo'; SET ttl.now = '2019-12-31 23:59:59+00'; SELECT count(*) FROM document", '4000', 'a timestamp in UTC');

# DDL there is refused as ever, and asks for no lock.
for my $ddl ('ALTER TABLE document ALTER doc TYPE text', 'DROP INDEX document_pkey', 'CREATE UNIQUE INDEX CONCURRENTLY ON document (_ts)')
{
	my (undef, undef, $stderr) = $standby->psql('postgres', $ddl);
	like($stderr, qr/cannot execute [A-Z ]+ in a read-only transaction/, "on a standby: $ddl");
}

# A cursor sees rows that are dead for the primary, which leaves them out of an
# index that it builds anew.  The standby must not take that for "none expired";
# the planner expects few rows, so that the cursor asks late.  What expires stands on
# a page with room: it isn't pruned, which would end the cursor.
$primary->safe_psql('postgres', <<'END');
CREATE TABLE rebuilt (id int PRIMARY KEY, note text) WITH (autovacuum_enabled = off);
SELECT ttl.create_container('rebuilt', 60);
INSERT INTO rebuilt (id, _ts) VALUES (0, '2990-01-01');
ANALYZE rebuilt;
INSERT INTO rebuilt (id, note, _ts) SELECT g, 'live', '2990-01-01' FROM generate_series(1, 2000) g;
ALTER TABLE rebuilt ALTER note SET STORAGE PLAIN;
INSERT INTO rebuilt (id, note, _ts) VALUES (2001, repeat('x', 6000), '2990-01-01');
INSERT INTO rebuilt (id, note, _ts) SELECT g, 'expired', '2020-01-01' FROM generate_series(2002, 2012) g;
CREATE FUNCTION open(cursor refcursor) RETURNS refcursor LANGUAGE plpgsql STABLE AS $$
BEGIN
    OPEN cursor FOR SELECT note FROM rebuilt WHERE id % 7 >= 0 AND id % 8 >= 0 AND id % 9 >= 0;
    RETURN cursor;
END $$;
END
catch_up();
my ($psql_p, $psql_s) = map { sprintf 'psql -X -q -At -h %s -p %d -d postgres', $_->host, $_->port } ($primary, $standby);
my $meanwhile = qq{$psql_p -c "CALL ttl.reap('rebuilt')" -c "SELECT pg_sleep(0.1)" -c 'REINDEX TABLE rebuilt' > /dev/null 2>&1};
my $replayed = qq{while [ "\$($psql_s -c "SELECT pg_last_wal_replay_lsn() >= '\$($psql_p -c 'SELECT pg_current_wal_flush_lsn()')'")" != t ]; do sleep 0.1; done};
my $rest = $standby->safe_psql('postgres', <<"END");
SET enable_indexscan = off; SET enable_bitmapscan = off;
BEGIN; SELECT open('warm'); FETCH 1 FROM warm; COMMIT;
BEGIN;
SELECT open('late');
\\o /dev/null
FETCH 500 FROM late;
\\! $meanwhile
\\! $replayed
\\o
FETCH ALL FROM late;
COMMIT;
END
is(scalar(grep { $_ eq 'expired' } split /\n/, $rest), 0, 'a cursor beside REINDEX shows nothing that has expired');
is(scalar(grep { $_ eq 'live' } split /\n/, $rest), 1501, '... and goes on');
$primary->safe_psql('postgres', 'DROP TABLE rebuilt');
catch_up();

# The same instant
for my $seconds (0, 1, 4, 52, 59, 60, 61, 99, 100, 101)
{
	my $at = sprintf('2990-01-01 00:%02d:%02d', $seconds / 60, $seconds % 60);
	my $sql = "SET timezone = 'UTC'; SET ttl.now = '$at'; SELECT count(*), sum(id) FROM item";
	is($standby->safe_psql('postgres', $sql), $primary->safe_psql('postgres', $sql), "at $at");
}
$primary->safe_psql('postgres', "INSERT INTO item (id, note, ttl) VALUES (102, 'soon', 2)");
catch_up();
ok($standby->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM item WHERE id = 102)'),
	'a row expires on the standby');
is($primary->safe_psql('postgres', 'SELECT count(*) FROM item WHERE id = 102'), '0', '... and has then on the primary');

# Policy; on the standby in an open session with a plan, in a transaction or not
my $session = $standby->background_psql('postgres');
$session->query_safe('SET plan_cache_mode = force_generic_plan; PREPARE row AS SELECT count(*) FROM item WHERE id = $1');
is($session->query_safe('EXECUTE row(101)'), '0', 'a plan on the standby');
$primary->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', NULL)");
catch_up();
both_say('SELECT count(*) FROM item', '102', 'TTL off');
is($session->query_safe('EXECUTE row(101)'), '1', '... and the plan obeys');
$session->query_safe('BEGIN');
is($session->query_safe('EXECUTE row(101)'), '1', '... in a transaction');
$primary->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', 60)");
catch_up();
is($session->query_safe('EXECUTE row(101)'), '0', '... that is open');
$session->query_safe('COMMIT');
$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
is($session->query_safe('EXECUTE row(1)'), '1', 'one snapshot on the standby');
$session->query_safe('COMMIT');
$primary->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', -1)");
catch_up();
both_say('SELECT count(*) FROM item WHERE id > 100', '1', 'never by default');
$primary->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', 60)");
catch_up();
$session->quit;

# No new container, and none less, without the other
$primary->safe_psql('postgres', <<'END');
CREATE TABLE another (note text, _ts timestamptz DEFAULT '2020-01-01', ttl int);
INSERT INTO another (note) VALUES ('expired');
SELECT ttl.create_container('another', 60, ts_column => '_ts');
END
catch_up();
both_say('SELECT count(*) FROM another', '0', 'a new container');
$primary->safe_psql('postgres', "SELECT ttl.drop_container('another')");
catch_up();
both_say('SELECT count(*) FROM another', '1', 'a dropped one');

$standby->fails("CALL ttl.reap('item')", '25006', 'CALL ttl.reap is refused on the standby');
$standby->fails('CALL ttl.reap()', '25006', 'CALL ttl.reap of all is refused on the standby');
$standby->fails("SELECT ttl.set_default_ttl('item', 5)", '25006', 'a change of policy is refused on the standby');
$standby->fails("INSERT INTO item (id) VALUES (101)", '25006', 'eviction is refused on the standby');
is($standby->stored('item'), '102', 'expired rows can be shown');
is($standby->safe_psql('postgres', "SELECT ttl.expired_count('item')"), '2', '... and counted');
is($standby->safe_psql('postgres', "SELECT lag > '1 year' FROM ttl.stat_containers WHERE container = 'item'::regclass"), 't', '... and are seen in the statistics');
is($standby->safe_psql('postgres', "SELECT state FROM ttl.status WHERE container = 'item'::regclass"), 'standby: deleted on the primary', '... which say why nothing is deleted here');
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'ttl %'"), '0', 'no process of ttl runs there');

# The primary's deletions arrive.
$primary->turn_reaper('on');
$primary->is_emptied('item', 'the primary deletes');
catch_up();
is($standby->stored('item'), '100', '... on the standby, too');

# Promotion
$primary->configure('ttl.reaper = off');
$primary->processes_are('ttl reaper', 0, 'the primary stops');
$primary->safe_psql('postgres', "INSERT INTO item (id, note, _ts) SELECT g, 'expired', '2020-01-01' FROM generate_series(1001, 1100) g");
catch_up();
is($standby->safe_psql('postgres', "SELECT ttl.expired_count('item')"), '100', 'the standby deletes nothing');
for my $sql ("SELECT ttl.set_default_ttl('item', 60)", 'SELECT ttl.pause()', 'SELECT ttl.resume()', 'CALL ttl.reap()')
{
	$standby->fails($sql, '25006', "$sql on the standby", qr/during recovery\n.*HINT:  Call it on the primary\./s);
}
$primary->stop;
$standby->promote;
$standby->is_emptied('item', '... until it is promoted');
is($standby->safe_psql('postgres', "SELECT count(*) FROM item"), '100', '... and only what has expired');
$standby->safe_psql('postgres', "INSERT INTO item (id, note, _ts) VALUES (101, 'expired', '2020-01-01'); CALL ttl.reap('item')");
is($standby->safe_psql('postgres', "SELECT ttl.expired_count('item')"), '0', 'CALL ttl.reap works then');

$standby->stop;
done_testing();
