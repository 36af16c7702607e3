# indexing => 'lazy': the reaper keeps the summaries of ranges of pages true, whatever
# happens to rows; what it has emptied and what is new is soon read by nobody.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

# with these prices cost units are buffers touched
my $node = TtlNode->start_new('main', <<'END', allows_streaming => 1);
ttl.naptime = 50ms
ttl.grace = 0
autovacuum = off
vacuum_cost_page_hit = 1
vacuum_cost_page_miss = 1
vacuum_cost_page_dirty = 1
END
plan skip_all => 'pageinspect is not installed'
  unless $node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'pageinspect'");
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE EXTENSION pageinspect;
CREATE TABLE item (id int PRIMARY KEY, x int) WITH (fillfactor = 70);
SELECT ttl.create_container('item', 3600, indexing => 'lazy');

-- each range: when the first row expires by one of the indexes; NULL = none does.  No range
-- is left out unless nothing is known of it.
CREATE FUNCTION summaries(OUT page bigint, OUT earliest timestamptz) RETURNS SETOF record LANGUAGE sql AS $$
	SELECT s.blknum, min(translate(s.value, '{}', '')::timestamptz + CASE WHEN i::text ~ 'item_expiry' THEN '0' ELSE '1 h' END::interval)
	  FROM unnest('{item__ts_idx, item_item_expiry_idx}'::regclass[]) i, generate_series(1, pg_relation_size(i) / 8192 - 1) p,
		   LATERAL brin_page_items(get_raw_page(i::text, p::int), i) s
	 WHERE brin_page_type(get_raw_page(i::text, p::int)) = 'regular' AND NOT coalesce(s.placeholder, false)
	 GROUP BY s.blknum HAVING count(*) = 2
$$;
CREATE VIEW ranges AS
	SELECT count(*) - count(page) AS unknown, count(*) FILTER (WHERE earliest <= clock_timestamp()) AS expired,
		   count(*) FILTER (WHERE earliest > clock_timestamp()) AS live
	  FROM generate_series(0, (pg_relation_size('item') - 1) / 8192, 128) p LEFT JOIN summaries() ON page = p;
END

sub ranges_are
{
	my ($condition, $name) = @_;

	ok($node->poll_query_until('postgres', "SELECT $condition FROM ranges"), $name)
	  or diag($node->safe_psql('postgres', 'TABLE ranges'));
}

# The worker looks when the table has grown.
$node->safe_psql('postgres', "INSERT INTO item SELECT g, 1 FROM generate_series(1, 100000) g");
ranges_are('unknown = 0 AND live >= 4', 'new pages are summarized, without VACUUM');
$node->safe_psql('postgres', "INSERT INTO item SELECT g, 1, clock_timestamp(), CASE WHEN g % 2 = 0 THEN 7200 END FROM generate_series(100001, 150000) g");
ranges_are('unknown = 0 AND live >= 6', '... and so are those that come later');

# What is deleted is forgotten.
$node->safe_psql('postgres', <<'END');
INSERT INTO item SELECT g, 2, '2020-01-01', CASE WHEN g % 2 = 0 THEN 60 END FROM generate_series(150001, 200000) g;
CALL ttl.reap('item');
END
ranges_are('unknown = 0 AND expired = 0', 'pages from which all has been deleted have nothing that expires');
is($node->stored('item'), 150000, '... for it is gone');

# Long before all have forgotten, too, it isn't read again and again.
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->safe_psql('postgres', <<'END');
INSERT INTO item SELECT g, 2, '2020-01-01' FROM generate_series(200001, 250000) g;
CALL ttl.reap('item');
END
is($node->stored('item', 'x = 2'), 0, 'rows go while somebody else may still see them');
$node->wait_until("SELECT state = 'idle' FROM ttl.stat_reaper");
my $cost = $node->safe_psql('postgres', "SELECT expired || ' ' || cost_spent FROM ranges, ttl.stat_reaper");
like($cost, qr/^[1-9]/, '... and their summaries have to stay');

# As at a crash between the deletion and the summary
$old->query_safe('COMMIT');
$old->quit;
$node->stop('immediate');
$node->start;
ranges_are('unknown = 0 AND expired = 0', '... until nobody does, and after a crash');

# What is renewed is forgotten, too.
$node->safe_psql('postgres', <<'END');
SET ttl.touch = off; SET ttl.show_expired = on;
UPDATE item SET _ts = '2020-01-01' WHERE id BETWEEN 1 AND 40000;
RESET ttl.touch;
UPDATE item SET x = 3 WHERE id BETWEEN 1 AND 40000;
CALL ttl.reap('item');
END
ranges_are('unknown = 0 AND expired = 0', 'rows that have been renewed');
is($node->stored('item'), 150000, '... stay');

# While VACUUM has its lock, rows are deleted, and summaries wait.
my $locked = $node->background_psql('postgres');
$locked->query_safe('BEGIN; LOCK TABLE item IN SHARE UPDATE EXCLUSIVE MODE');
$node->safe_psql('postgres', <<'END');
INSERT INTO item SELECT g, 4, '2020-01-01' FROM generate_series(300001, 330000) g;
SELECT ttl.set_default_ttl('item', 3601);
SELECT ttl.set_default_ttl('item', 3600);
END
$node->is_emptied('item', 'rows go while summaries are locked');
is($node->safe_psql('postgres', 'SELECT unknown + expired > 0 FROM ranges'), 't', '... which stay');
$locked->query_safe('COMMIT');
$locked->quit;
ranges_are('unknown = 0 AND expired = 0', '... and are made when they are free');

# What a change of policy has made expired is spared, and what expires anyway isn't.
$node->configure('ttl.grace = 1h');
$node->safe_psql('postgres', <<'END');
CREATE TABLE spared (id int PRIMARY KEY);
SELECT ttl.create_container('spared', 864000, indexing => 'lazy');
INSERT INTO spared (id, _ts, ttl) SELECT g, now() - interval '1 h', CASE WHEN g % 2 = 0 THEN 60 END FROM generate_series(1, 1000) g;
SELECT ttl.set_default_ttl('spared', 60);
END
$node->stored_are('spared', 500, 'rows that a change of policy has made expired are spared, and others are not');
is($node->safe_psql('postgres', "SELECT count(*) || ' ' || ttl.expired_count('spared') FROM spared"), '0 500', '... all are hidden');
$node->configure('ttl.grace = 0');
$node->is_emptied('spared', '... until grace ends');

# A partition is emptied at once, if all of its rows have expired.
$node->safe_psql('postgres', <<'END');
CREATE TABLE parted (id int, k int) PARTITION BY LIST (k);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2);
SELECT ttl.create_container('parted', 60, indexing => 'lazy');
SELECT ttl.alter_container('parted', reaping => false);
INSERT INTO parted SELECT g, 1 + g % 2, '2020-01-01' FROM generate_series(1, 10000) g;
INSERT INTO parted VALUES (0, 2);
END
my $files = $node->safe_psql('postgres', "SELECT pg_relation_filenode('parted_1') || ' ' || pg_relation_filenode('parted_2')");
$node->safe_psql('postgres', "CALL ttl.reap('parted')");
my $new = $node->safe_psql('postgres', "SELECT pg_relation_filenode('parted_1') || ' ' || pg_relation_filenode('parted_2')");
ok((split / /, $new)[0] ne (split / /, $files)[0], 'a partition of expired rows is emptied at once');
is((split / /, $new)[1], (split / /, $files)[1], '... and one with a live row is not');
is($node->stored('parted'), 1, '... which stays');

# Nothing due costs next to nothing: after CALL a visit reads the catalogs again.
$node->wait_until("SELECT state = 'idle' FROM ttl.stat_reaper");
my ($visits, $spent) = (0, 0);
for (1 .. 10)
{
	my ($c, $s) = split /\|/, $node->safe_psql('postgres', 'SELECT cycles, cost_spent FROM ttl.stat_reaper');
	$node->safe_psql('postgres', "CALL ttl.reap('item')");
	$node->poll_query_until('postgres', "SELECT cycles > $c AND state = 'idle' FROM ttl.stat_reaper");
	my ($c2, $s2) = split /\|/, $node->safe_psql('postgres', 'SELECT cycles, cost_spent FROM ttl.stat_reaper');
	$visits += $c2 - $c;
	$spent += $s2 - $s;
}
cmp_ok($spent, '<=', 40 * $visits, "a visit with nothing due touches 40 buffers at most ($visits visits: $spent)");

# HOT updates: as many as of a plain table
SKIP:
{
	skip 'indexes on ranges of pages keep updates from being HOT before PostgreSQL 16', 2
	  if $node->safe_psql('postgres', 'SHOW server_version_num') < 160000;
	my $hot = $node->safe_psql('postgres', <<'END');
CREATE TABLE hot_lazy (id int PRIMARY KEY, x int) WITH (fillfactor = 70);
SELECT ttl.create_container('hot_lazy', 3600, indexing => 'lazy');
CREATE TABLE hot_plain (LIKE hot_lazy INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (fillfactor = 70);
ALTER TABLE hot_plain ADD PRIMARY KEY (id);
INSERT INTO hot_lazy SELECT g FROM generate_series(1, 10000) g;
INSERT INTO hot_plain SELECT g FROM generate_series(1, 10000) g;
CREATE PROCEDURE update_all(t regclass) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 3 LOOP
		EXECUTE format('UPDATE %s SET x = %s, _ts = clock_timestamp() WHERE id %% 4 = %s', t, i, i);
		COMMIT;
	END LOOP;
END $$;
CALL update_all('hot_lazy');
CALL update_all('hot_plain');
SELECT pg_stat_force_next_flush();
SELECT string_agg(round(100.0 * n_tup_hot_upd / n_tup_upd)::text, ' ' ORDER BY relname) FROM pg_stat_user_tables WHERE relname LIKE 'hot%';
END
	like((split /\n/, $hot)[-1], qr/^([1-9]\d*) \1$/, 'as many updates are HOT as of a plain table');

	# What they have replaced isn't in a summary that is made then, and nobody misses it.
	$node->safe_psql('postgres', <<'END');
CREATE TABLE unsure (id int PRIMARY KEY, expires_at timestamptz) WITH (fillfactor = 50);
SELECT ttl.create_container('unsure', -1, ts_column => NULL, ttl_column => 'expires_at', indexing => 'lazy');
INSERT INTO unsure SELECT g, CASE WHEN g > 1 THEN timestamptz '2900-01-01' END FROM generate_series(1, 1000) g;
END
	my $reader = $node->background_psql('postgres');
	$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SET enable_seqscan = off; SELECT 1');
	$node->safe_psql('postgres', "UPDATE unsure SET expires_at = '2900-01-01' WHERE id = 1");
	$node->safe_psql('postgres', "SELECT brin_desummarize_range(i, 0), brin_summarize_range(i, 0) FROM (VALUES ('unsure_expires_at_idx'::regclass)) v (i)");
	is($reader->query_safe('SELECT count(*) FROM unsure WHERE expires_at IS NULL'), 1, 'queries are planned without these indexes');
	$reader->query_safe('COMMIT');
	$reader->quit;
}

# A standby hides the same rows, by summaries that another server has made.  A snapshot of
# it may see versions of rows that were dead for the primary when it made them.  They stand
# on a page with room, so nothing prunes it, which would end the query there.
$node->safe_psql('postgres', <<'END');
CREATE TABLE seen (id int PRIMARY KEY, x int) WITH (fillfactor = 50);
SELECT ttl.create_container('seen', 60, indexing => 'lazy');
INSERT INTO seen SELECT g, 1, '2990-01-01' FROM generate_series(1, 1000) g;
SET ttl.touch = off; SET ttl.show_expired = on;
UPDATE seen SET _ts = '2020-01-01' WHERE id % 100 = 7;
END
$node->turn_reaper('off');
$node->backup('backup');
my $standby = TtlNode->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;

sub catch_up
{
	$node->wait_for_flush;
	$node->wait_for_catchup($standby, 'replay');
}
catch_up();
is($standby->safe_psql('postgres', 'SELECT count(*) FROM seen'), 990, 'a standby hides what has expired');
my $reader = $standby->background_psql('postgres');
$reader->query_safe('SET ttl.debug_index_probe = always; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->safe_psql('postgres', <<'END');
SET ttl.touch = off; SET ttl.show_expired = on;
UPDATE seen SET _ts = '2990-01-01' WHERE id % 100 = 7;
END
$node->safe_psql('postgres', "SELECT brin_desummarize_range(i, 0), brin_summarize_range(i, 0) FROM unnest('{seen__ts_idx, seen_item_expiry_idx}'::regclass[]) i");
catch_up();
is($reader->query_safe('SELECT count(*) FROM seen'), 990, '... also those that have been renewed since, for a snapshot that sees them as they were');
is($reader->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(id) FROM seen WHERE id > 0'), 990, '... by an index-only scan, too');
$reader->query_safe('COMMIT');
is($reader->query_safe('SELECT count(*) FROM seen'), 1000, '... and shows them to others');
$reader->quit;
$standby->stop;

# A dump has the way of indexing, and the indexes.
my $dump = $node->backup_dir . '/lazy.sql';
$node->safe_psql('postgres', 'CREATE DATABASE restored');
command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ], 'pg_dump');
command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ], '... restores');
is($node->safe_psql('restored', "SELECT indexing FROM ttl.containers WHERE container = 'item'::regclass"), 'lazy', '... the way of indexing');
is($node->safe_psql('restored', "SELECT count(*) FROM pg_indexes WHERE tablename = 'item' AND indexdef ~ 'USING brin'"), 2, '... and the indexes');
is($node->safe_psql('restored', "SELECT ttl.expired_count('item')"), 0, '... and all is as it was');

$node->stop;
done_testing();
