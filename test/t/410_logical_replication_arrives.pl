# Logical replication between containers: what the publisher did arrives, the
# timestamp included, whatever the subscriber's policy hides.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $conf = "ttl.reaper = off\nttl.naptime = 100ms\n";
my $publisher = TtlNode->start_new('publisher', $conf, allows_streaming => 'logical');
# two databases have a worker, two subscriptions as many as they have tables to copy
my $subscriber = TtlNode->start_new('subscriber', "$conf\nmax_worker_processes = 16\n");
for my $node ($publisher, $subscriber)
{
	$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', 3600);
END
}

sub catch_up
{
	$publisher->wait_for_flush;
	$publisher->wait_for_catchup('sub');
}

# All that is stored
my $all = 'SET ttl.show_expired = on; SELECT id, note, _ts, ttl FROM item ORDER BY id';

# The initial copy, an expired row included or not, brings timestamps along.
# Policies stay at home, although all tables are published.
$subscriber->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', 7200); CREATE TABLE other (id int PRIMARY KEY, _ts timestamptz, ttl int)");
my $policies = 'SELECT relid, default_time_to_live, reaping FROM ttl.container ORDER BY 1';
my $own = $subscriber->safe_psql('postgres', $policies);
$publisher->safe_psql('postgres', <<'END');
INSERT INTO item (id, note, _ts, ttl) VALUES (1, 'old', '2020-01-01', -1), (2, 'new', '2900-01-01', NULL), (3, 'now', NULL, 1000);
CREATE TABLE other (id int PRIMARY KEY);
SELECT ttl.create_container('other', 60);
CREATE PUBLICATION pub FOR ALL TABLES;
END
my $connstr = $publisher->connstr . ' dbname=postgres';
my (undef, undef, $notice) = $subscriber->psql('postgres',
	"CREATE SUBSCRIPTION sub CONNECTION '$connstr' PUBLICATION pub");
like($notice, qr/NOTICE:  reaping of container "item" is off because a subscription writes it\nDETAIL:.*renewed/, 'a subscription turns reaping off');
is($subscriber->safe_psql('postgres', "SELECT reaping FROM ttl.containers WHERE container = 'item'::regclass"), 'f', '... of a container that it writes');
(undef, undef, $notice) = $subscriber->psql('postgres', "SELECT ttl.create_container('other', 60, ts_column => '_ts', ttl_column => 'ttl')");
like($notice, qr/NOTICE:  reaping of container "other" is off because a subscription writes it/, 'so it is when such a table is registered');
is($subscriber->safe_psql('postgres', "SELECT ttl.drop_container('other'); SELECT string_agg(state, ' ') FROM ttl.status"), "\nttl.reaper is off, subscribed", 'ttl.status says so');
$own = $subscriber->safe_psql('postgres', $policies);
$subscriber->wait_for_subscription_sync($publisher, 'sub');
is($subscriber->safe_psql('postgres', $all), $publisher->safe_psql('postgres', $all), 'initial copy');
is($subscriber->safe_psql('postgres', $policies), $own, '... of rows, not of policies');

# Changes; the subscriber rounds what it stamps, and this is the publisher's
$subscriber->safe_psql('postgres', "SELECT ttl.alter_container('item', ts_precision => '1 second')");
$publisher->safe_psql('postgres', <<'END');
INSERT INTO item (id, note) VALUES (4, 'by default');
INSERT INTO item (id, note, _ts) VALUES (5, 'imported', '2900-02-03');
UPDATE item SET note = 'updated' WHERE id = 3;
SET ttl.touch = off;
UPDATE item SET note = 'updated, untouched' WHERE id = 2;
END
$publisher->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', 1800); SELECT ttl.drop_container('other'); INSERT INTO other (id) VALUES (1); SELECT ttl.create_container('other', 60, ts_column => '_ts')");
catch_up();
is($subscriber->safe_psql('postgres', $all), $publisher->safe_psql('postgres', $all), 'INSERT and UPDATE');
is($subscriber->safe_psql('postgres', $policies), $own, '... of rows, not of policies');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM other'), '1', '... a table is a container where it was registered');

# A row that has expired here is updated and deleted all the same.
$subscriber->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', 1)");
$publisher->safe_psql('postgres', "INSERT INTO item (id, note, _ts) VALUES (6, 'hidden there', '2024-01-01'), (7, 'hidden there', '2024-01-01')");
$publisher->safe_psql('postgres', <<'END');
SET ttl.show_expired = on;
UPDATE item SET note = 'renewed' WHERE id = 6;
DELETE FROM item WHERE id = 7;
END
catch_up();
is($subscriber->safe_psql('postgres', $all), $publisher->safe_psql('postgres', $all), 'UPDATE and DELETE of rows that have expired there');
$subscriber->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', 3600)");
is($subscriber->safe_psql('postgres', 'SELECT note FROM item WHERE id = 6'), 'renewed', '... and one is seen again');

# A key that only an expired row of the subscriber's holds is free.
$subscriber->safe_psql('postgres', "INSERT INTO item (id, note, _ts) VALUES (8, 'expired', '2020-01-01'), (9, 'expired', '2020-01-01')");
$publisher->safe_psql('postgres', "INSERT INTO item (id, note) VALUES (8, 'from the publisher')");
catch_up();
is($subscriber->safe_psql('postgres', $all =~ s/ORDER/WHERE id <> 9 ORDER/r), $publisher->safe_psql('postgres', $all), 'a key that an expired row holds');

# What references it on the subscriber alone: foreign keys hold there, too, though
# their triggers don't fire for what is applied.
$subscriber->safe_psql('postgres', <<'END');
CREATE TABLE part (id int PRIMARY KEY, item int REFERENCES item ON DELETE CASCADE);
CREATE TABLE remark (id int PRIMARY KEY, item int REFERENCES item);
SELECT ttl.create_container('remark', 60);
INSERT INTO item (id, note) VALUES (20, 'to expire');
INSERT INTO part VALUES (1, 20);
INSERT INTO remark (id, item, _ts) VALUES (1, 20, '2020-01-01');
SET ttl.touch = off;
UPDATE item SET _ts = '2020-01-01' WHERE id = 20;
END
$publisher->safe_psql('postgres', "INSERT INTO item (id, note) VALUES (20, 'from the publisher')");
catch_up();
is($subscriber->safe_psql('postgres', "SET ttl.show_expired = on; SELECT count(*) FROM item WHERE note = 'from the publisher' AND id = 20; SELECT count(*) FROM part; SELECT count(*) FROM remark"),
	"1\n0\n0", '... goes with what references it');

# ... unless they fire always: then an action is carried out that no statement surrounds
$subscriber->safe_psql('postgres', <<'END');
INSERT INTO part VALUES (2, 20);
DO $$
BEGIN
	EXECUTE (SELECT format('ALTER TABLE item ENABLE ALWAYS TRIGGER %I', tgname) FROM pg_trigger
	          WHERE tgrelid = 'item'::regclass AND tgfoid = '"RI_FKey_cascade_del"'::regproc);
END $$;
END
$publisher->safe_psql('postgres', 'DELETE FROM item WHERE id = 20');
catch_up();
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM item WHERE id = 20; SELECT count(*) FROM part'), "0\n0", 'a foreign key that fires always cascades');
$subscriber->safe_psql('postgres', 'DROP TABLE part, remark');

# The reaper's deletions, and eviction
$publisher->safe_psql('postgres', "INSERT INTO item (id, note, _ts) VALUES (10, 'expired', '2020-01-01'), (11, 'expired', '2020-01-01'), (12, 'expired', '2020-01-01')");
$publisher->safe_psql('postgres', "INSERT INTO item (id, note) VALUES (12, 'takes the place')");
catch_up();
is($subscriber->safe_psql('postgres', "SELECT count(*) FROM item WHERE note = 'takes the place'"), '1', 'a row that takes the place of an expired one');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM item WHERE id IN (10, 11)'), '0', '... hidden there, too');
$publisher->turn_reaper('on');
$publisher->is_emptied('item', 'the publisher deletes them');
catch_up();
is($subscriber->safe_psql('postgres', $all =~ s/ORDER/WHERE id <> 9 ORDER/r), $publisher->safe_psql('postgres', $all), '... and the subscriber follows');
is($subscriber->safe_psql('postgres', "SELECT rows_deleted FROM ttl.stat_containers"), '0', '... its own reaper had nothing to do with it');

# A row that the publisher has renewed in time outlives its expiry here
$publisher->safe_psql('postgres', "SELECT ttl.set_default_ttl('item', 1000000000); INSERT INTO item (id, note, _ts) VALUES (50, 'renewed', now() - interval '2 hours')");
catch_up();
$subscriber->turn_reaper('on');
$subscriber->safe_psql('postgres', q{ALTER SUBSCRIPTION sub DISABLE});
$publisher->safe_psql('postgres', "UPDATE item SET note = 'in time' WHERE id = 50");
is($subscriber->safe_psql('postgres', q{CREATE TABLE probe (id int); SELECT ttl.create_container('probe', 60); INSERT INTO probe VALUES (1, now() - interval '1 h')}), '', 'the subscription lags, and the worker works');
$subscriber->is_emptied('probe', '... elsewhere');
$subscriber->safe_psql('postgres', q{DROP TABLE probe; ALTER SUBSCRIPTION sub ENABLE});
catch_up();
is($subscriber->safe_psql('postgres', 'SELECT note FROM item WHERE id = 50'), 'in time', 'a renewal that is late finds its row');
is($subscriber->safe_psql('postgres', q{SELECT state FROM ttl.status}), 'reaping is off, subscribed', '... for that reason');
$publisher->safe_psql('postgres', "DELETE FROM item WHERE id = 50; SELECT ttl.set_default_ttl('item', 1800)");
catch_up();

# The owner may turn it on, and a REFRESH leaves it on.  Both delete: no conflict stops the subscription.
$subscriber->safe_psql('postgres', "SELECT ttl.alter_container('item', reaping => true)");
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION sub REFRESH PUBLICATION');
is($subscriber->safe_psql('postgres', "SELECT reaping FROM ttl.containers WHERE container = 'item'::regclass"), 't', 'reaping that the owner has turned on stays on');
$publisher->safe_psql('postgres', "INSERT INTO item (id, note, _ts) SELECT g, 'expired', '2020-01-01' FROM generate_series(100, 200) g; SELECT ttl.set_default_ttl('item', 3600)");
$publisher->is_emptied('item', 'both reapers are on');
catch_up();
$subscriber->is_emptied('item', '... both delete');
$publisher->safe_psql('postgres', "INSERT INTO item (id, note) VALUES (100, 'after all')");
catch_up();
is($subscriber->safe_psql('postgres', $all), $publisher->safe_psql('postgres', $all), '... and agree in the end');

# An initial copy that is a query: of rows that pass a filter, or of a partitioned
# table as one; by parallel workers, if they are let.
for my $node ($publisher, $subscriber)
{
	$node->safe_psql('postgres', 'CREATE DATABASE second');
	$node->safe_psql('second', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE filtered (id int PRIMARY KEY);
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
SELECT ttl.create_container(c, 3600), ttl.alter_container(c, reaping => false) FROM unnest('{filtered, parts}'::regclass[]) c;
END
}
$publisher->safe_psql('second', <<'END');
INSERT INTO filtered (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01'), (100, '2900-01-01');
INSERT INTO parts (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');
CREATE PUBLICATION filtered FOR TABLE filtered WHERE (id < 100), parts WITH (publish_via_partition_root);
ALTER DATABASE second SET parallel_setup_cost = 0;
ALTER DATABASE second SET parallel_tuple_cost = 0;
ALTER DATABASE second SET min_parallel_table_scan_size = 0;
END
$connstr = $publisher->connstr . ' dbname=second';
$subscriber->safe_psql('second', "CREATE SUBSCRIPTION filtered CONNECTION '$connstr' PUBLICATION filtered");
$subscriber->wait_for_subscription_sync($publisher, 'filtered', 'second');
is($subscriber->safe_psql('second', 'SET row_security = off; SELECT id, _ts FROM filtered UNION ALL SELECT id, _ts FROM parts ORDER BY 1, 2'),
	$publisher->safe_psql('second', 'SET row_security = off; SELECT id, _ts FROM filtered WHERE id < 100 UNION ALL SELECT id, _ts FROM parts ORDER BY 1, 2'),
	'initial copy with a filter, and by a partition root');
is($subscriber->safe_psql('second', 'SELECT count(*) FROM filtered, parts'), '1', '... which hides what has expired');

# A table that a subscription writes becomes a partition of a container, and one becomes another's; whether
# the owner has turned reaping on again
$publisher->safe_psql('second', 'CREATE TABLE moved (id int PRIMARY KEY, _ts timestamptz, ttl int); CREATE TABLE moved_2 (LIKE moved); ALTER PUBLICATION filtered ADD TABLE moved, moved_2');
$subscriber->safe_psql('second', q{
CREATE TABLE moved (id int PRIMARY KEY, _ts timestamptz NOT NULL, ttl int);
CREATE TABLE moved_2 (LIKE moved);
CREATE TABLE above (LIKE moved) PARTITION BY RANGE (id);
SELECT ttl.create_container('above', 60, '_ts', 'ttl');
ALTER SUBSCRIPTION filtered REFRESH PUBLICATION});
(undef, undef, $notice) = $subscriber->psql('second', 'ALTER TABLE above ATTACH PARTITION moved FOR VALUES FROM (0) TO (1000)');
like($notice, qr/NOTICE:  reaping of container "above" is off because a subscription writes it/, 'ATTACH of a table that a subscription writes turns reaping off');
(undef, undef, $notice) = $subscriber->psql('second', q{
SELECT ttl.alter_container('above', reaping => true);
ALTER TABLE above ATTACH PARTITION moved_2 FOR VALUES FROM (1000) TO (2000)});
is($notice . $subscriber->safe_psql('second', q{SELECT reaping FROM ttl.containers WHERE container = 'above'::regclass}), 't', '... not if the owner has turned it on since');
$publisher->safe_psql('second', 'CREATE TABLE moved_3 (LIKE moved); ALTER PUBLICATION filtered ADD TABLE moved_3');
(undef, undef, $notice) = $subscriber->psql('second', q{
CREATE TABLE moved_3 PARTITION OF above FOR VALUES FROM (2000) TO (3000);
ALTER SUBSCRIPTION filtered REFRESH PUBLICATION});
is($notice . $subscriber->safe_psql('second', q{SELECT reaping FROM ttl.containers WHERE container = 'above'::regclass}), 't', '... nor does another partition');
# one that copies still ends with the server's own message about its slot
$subscriber->wait_for_subscription_sync($publisher, 'filtered', 'second');
$subscriber->safe_psql('second', 'DROP SUBSCRIPTION filtered');

unlike(slurp_file($subscriber->logfile), qr{(ERROR|WARNING):}, 'no error on the subscriber');

$subscriber->stop;
$publisher->stop;
done_testing();
