# Extensions that people load beside ttl, as far as they are installed: all of them
# together, before ttl and after it in shared_preload_libraries, and each does on a
# container what it is there for.  (pglogical, pg_repack and pgaudit have files of
# their own; 130 tries planner hooks that nobody would write.)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->new('others');
$node->init(allows_streaming => 'logical');
$node->append_conf('postgresql.conf', "ttl.naptime = 100ms\nmax_worker_processes = 20\n");
$node->start;

my $version;    # of the extension that is being tried
my $round = 0;    # ttl is loaded last, first

# Each answers with one line.
sub answers
{
	my ($sql, $expected, $name) = @_;

	is($node->safe_psql('postgres', $sql), $expected, $name);
	return;
}

# The plan of the query after some commands shows this scan, and the filter of "item"
sub is_planned
{
	my ($commands, $query, $scan, $name) = @_;

	like($node->safe_psql('postgres', "$commands; EXPLAIN (COSTS OFF) $query"),
		qr/\Q$scan\E.*Filter: \(?ttl\.is_live\('item'::regclass/s, $name);
	return;
}

#
# What is done with each: "library", if it has to be preloaded, "settings" with it;
# "prepare" once, "check" in both orders.  Even ids have expired everywhere, and stay.
#

my @others = (
	{
		name => 'pg_stat_statements',
		library => 'pg_stat_statements',
		settings => 'pg_stat_statements.track = all',
		check => sub {
			my $count = q{SELECT count(*) FILTER (WHERE calls = 2), count(*) FROM pg_stat_statements WHERE toplevel AND query ~ 'counted'};
			my $use = <<'END';
SELECT note FROM counted WHERE id = 1;
UPDATE counted SET note = 'x' WHERE id = 1;
INSERT INTO counted (id) VALUES (2) ON CONFLICT (id) DO UPDATE SET note = excluded.note;
DELETE FROM counted WHERE id = 3;
END
			$node->safe_psql('postgres', "CREATE TABLE counted (id int PRIMARY KEY, note text, _ts timestamptz NOT NULL DEFAULT now(), ttl int)");
			$node->safe_psql('postgres', "SELECT pg_stat_statements_reset(); $use");
			$node->safe_psql('postgres', "SELECT ttl.create_container('counted', 3600, ts_column => '_ts', ttl_column => 'ttl')");
			$node->safe_psql('postgres', $use);
			answers("$count AND query !~ 'CREATE|create'", '4|4', 'statements are counted as on a plain table');

			$node->safe_psql('postgres', <<'END');
SELECT ttl.alter_container('counted', reaping => false);
INSERT INTO counted (id, _ts) SELECT g, '2020-01-01' FROM generate_series(100, 199) g;
CALL ttl.reap('counted');
END
			answers(q{SELECT count(*), sum(calls) >= 2 FROM pg_stat_statements WHERE query ~ 'DELETE FROM ONLY public.counted'},
				'1|t', '... and the batches of a deletion as one');
			$node->safe_psql('postgres', 'DROP TABLE counted');
		}
	},
	{
		name => 'auto_explain',
		library => 'auto_explain',
		settings => "auto_explain.log_analyze = on\nauto_explain.log_nested_statements = on\nauto_explain.log_verbose = on",
		check => sub {
			my $from = -s $node->logfile;
			answers("SET auto_explain.log_min_duration = 0; SELECT count(*), max(id) FROM item", '500|999', 'answers are the same');
			$node->safe_psql('postgres', <<'END');
SET auto_explain.log_min_duration = 0;
BEGIN; INSERT INTO item (id) VALUES (2); ROLLBACK;
BEGIN; CALL ttl.reap('item', 5); ROLLBACK;
END
			my $log = slurp_file($node->logfile, $from);
			like($log, qr/Filter: ttl\.is_live\('item'::regclass, item\._ts, item\.ttl\)/, '... the plan shows the filter');
			like($log, qr/Filter: \(?ttl\.is_expired\('public\.item'::regclass/, '... that of an eviction, too');
			like($log, qr/Expiry Filter: /, '... and what it had to do')
			  if $node->safe_psql('postgres', 'SHOW server_version_num') >= 180000;
		}
	},
	{
		name => 'pgaudit',
		library => 'pgaudit',
		check => sub {
			answers(q{SET pgaudit.log = 'all'; SET pgaudit.log_relation = on; SELECT count(*) FROM item; BEGIN; INSERT INTO item (id) VALUES (2) RETURNING id; ROLLBACK},
				"500\n2", 'answers are the same');
		}
	},
	{
		name => 'pg_hint_plan',
		library => 'pg_hint_plan',
		check => sub {
			for my $hint ('Index Scan using item_grp_idx', 'Index Only Scan using item_grp_idx', 'Bitmap Heap Scan on item', 'Seq Scan on item')
			{
				my ($what) = $hint =~ /^(.*Scan)/;
				my $query = '/*+ ' . ($what =~ s/ |Heap//gr) . '(item' . ($hint =~ /Index/ ? ' item_grp_idx' : '') . ') */ SELECT count(grp) FROM item WHERE grp < 5';
				is_planned('', $query, $hint, "hint: $what");
				answers($query, '250', '... finds what is live');
			}
			my $join = '/*+ Leading((plain item)) NestLoop(item plain) IndexScan(item) */ SELECT count(item.note) FROM plain LEFT JOIN item USING (id)';
			is_planned('', $join, 'Nested Loop Left Join', 'hint: a join');
			answers($join, '500', '... finds what is live');
		}
	},
	{
		name => 'hypopg',
		check => sub {
			my $create = "SELECT hypopg_create_index('CREATE INDEX ON item (note)'), hypopg_create_index('CREATE INDEX ON item (_ts)')";
			is_planned($create, "SELECT note FROM item WHERE note = 'n7'", 'btree_item_note', 'a hypothetical index');
			is_planned($create, "UPDATE item SET grp = 1 WHERE note = 'n7'", 'btree_item_note', '... for UPDATE');
			answers("SELECT count(*) > 1 FROM ($create) c; BEGIN; INSERT INTO item (id, note) VALUES (2, 'n7'); SELECT count(*), ttl.expired_count('item') FROM item WHERE note = 'n7'; ROLLBACK",
				"f\n2|499", '... is taken by nobody for a real one');
		}
	},
	{
		name => 'vector',
		prepare => <<'END',
ALTER TABLE item ADD COLUMN embedding vector(3);
SET row_security = off;
SET ttl.touch = off;
UPDATE item SET embedding = ARRAY[sin(id), cos(id), sin(id * 7)]::vector;
END
		check => sub {
			my $nearest = q{SELECT id FROM item ORDER BY embedding <-> '[0,1,0]' LIMIT 20};
			my $exact = $node->safe_psql('postgres', "SELECT array($nearest)");
			my $settings = 'SET enable_seqscan = off; SET enable_sort = off';
			for my $method ('hnsw (embedding vector_l2_ops)', 'ivfflat (embedding vector_l2_ops) WITH (lists = 5)')
			{
				$node->safe_psql('postgres', "CREATE INDEX nearest ON item USING $method");
				is_planned($settings, $nearest, 'Index Scan using nearest', $method);
				answers("$settings; SELECT count(*) BETWEEN 1 AND 20, bool_and(id % 2 = 1) FROM ($nearest) s", 't|t', '... finds what is live, at most LIMIT');
				answers("$settings; SET hnsw.iterative_scan = strict_order; SELECT array($nearest)", $exact, '... and all of LIMIT by an iterative scan')
				  if $method =~ /hnsw/ && $version >= 0.8;
				$node->safe_psql('postgres', 'DROP INDEX nearest');
			}
		}
	},
	{
		name => 'postgis',
		prepare => <<'END',
ALTER TABLE item ADD COLUMN place geometry;
SET row_security = off;
SET ttl.touch = off;
UPDATE item SET place = ST_Buffer(ST_Point(id % 37, id % 41), 0.3);
CREATE INDEX item_place_idx ON item USING gist (place);
ANALYZE item;
CREATE TABLE place AS SELECT id, place FROM item WHERE id % 2 = 1;
END
		check => sub {
			my $settings = 'SET enable_seqscan = off; SET enable_sort = off';
			# distances are looked at again, so rows come out of a queue
			my $nearest = q{SELECT id FROM item ORDER BY place <-> ST_Point(20, 20) LIMIT 300};
			is_planned($settings, $nearest, 'Index Scan using item_place_idx', 'neighbours by an index');
			for my $query ($nearest, 'SELECT id FROM item WHERE ST_DWithin(place, ST_Point(20, 20), 5)', 'SELECT id FROM item WHERE place && ST_MakeEnvelope(0, 0, 10, 10)',
				'SELECT i.id FROM place p JOIN item i ON ST_Intersects(p.place, i.place) WHERE p.id < 100')
			{
				my $expected = $node->safe_psql('postgres', 'SELECT count(*), sum(id) FROM (' . ($query =~ s/item/place/r) . ') s');
				answers("$settings; SELECT count(*), sum(id) FROM ($query) s", $expected, "as from a plain table: $query");
			}
		}
	},
	{
		name => 'postgres_fdw',
		prepare => sub {
			my ($host, $port) = ($node->host, $node->port);
			return <<"END";
CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
CREATE USER MAPPING FOR CURRENT_USER SERVER here;
CREATE FOREIGN TABLE far_item (id int, grp int, note text, _ts timestamptz) SERVER here OPTIONS (table_name 'item');
CREATE TABLE near_cold (id int, note text);
CREATE FOREIGN TABLE far_cold (id int, note text) SERVER here OPTIONS (schema_name 'public', table_name 'near_cold');
CREATE TABLE sent (id int PRIMARY KEY, note text);
SELECT ttl.create_container('sent', 3600);
SELECT ttl.alter_container('sent', reaping => false, archive_to => 'far_cold');
END
		},
		check => sub {
			answers('SELECT count(*), max(id) FROM far_item', '500|999', 'a foreign table that is a container elsewhere');
			answers('SELECT count(f.id) FROM plain LEFT JOIN far_item f USING (id)', '500', '... in a join');
			answers(q{BEGIN; UPDATE far_item SET note = 'x' WHERE id IN (1, 2) RETURNING id, _ts < '2800-01-01'; ROLLBACK}, '1|t', '... is stamped there');
			answers(q{BEGIN; INSERT INTO far_item (id, _ts) VALUES (2, now()) RETURNING id; SELECT count(*) FROM far_item; ROLLBACK}, "2\n501", '... and its keys are free');
			answers('ANALYZE far_item; SELECT reltuples FROM pg_class WHERE relname = \'far_item\'', '500', '... its statistics are of what is live');
			$node->fails("SELECT ttl.create_container('far_item', 60)", '42809', 'it is no container here');

			$node->safe_psql('postgres', q{TRUNCATE near_cold; INSERT INTO sent (id, note, _ts) SELECT g, 'note', '2020-01-01' FROM generate_series(1, 50) g; CALL ttl.reap('sent', 20)});
			answers('SELECT count(*) FROM near_cold', '20', 'an archive elsewhere');
			$node->safe_psql('postgres', q{SELECT ttl.alter_container('sent', reaping => true)});
			ok($node->poll_query_until('postgres', 'SELECT count(*) = 50 FROM near_cold'), '... the worker moves rows there, too');
			$node->safe_psql('postgres', q{SELECT ttl.alter_container('sent', reaping => false)});
		}
	},
	{
		name => 'pg_partman',
		schema => 'partman',
		prepare => sub {
			my $kind = $version < 5 ? "p_type := 'native', " : '';
			return <<"END";
CREATE TABLE event (id bigint NOT NULL, created_at timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (created_at);
SELECT ttl.create_container('event', 86400 * 3);
SELECT ttl.alter_container('event', reaping => false);
SELECT partman.create_parent(p_parent_table := 'public.event', p_control := 'created_at', ${kind}p_interval := '1 day', p_premake := 1, p_start_partition := (now() - interval '5 days')::text);
INSERT INTO event (id, created_at, _ts) SELECT g, t, t FROM generate_series(0, 19) g, LATERAL (SELECT now() - g * interval '6 hours' AS t) t;
UPDATE partman.part_config SET retention = '2 days', infinite_time_partitions = true;
END
		},
		check => sub {
			my $lacking = q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'event'::regclass AND
				((SELECT count(*) FROM pg_trigger WHERE tgrelid = inhrelid AND tgname = '~ttl') <> 1 OR
				(SELECT count(*) FROM pg_index WHERE indrelid = inhrelid AND indisvalid) <> 2)};
			my $stored = q{SET row_security = off; CREATE FUNCTION pg_temp.stored(t regclass) RETURNS bigint LANGUAGE plpgsql AS 'DECLARE n bigint; BEGIN EXECUTE format($$SELECT count(*) FROM %s$$, t) INTO n; RETURN n; END';
				SELECT sum(pg_temp.stored(oid)) FROM pg_class WHERE relname ~ '^event_[dp]' AND relkind = 'r'};

			# it drops or detaches what is old, and makes what is to come
			$node->safe_psql('postgres', q{UPDATE partman.part_config SET retention_keep_table = true, premake = premake + 2; CALL partman.run_maintenance_proc()});
			answers($lacking, '0', 'new partitions have all that a container needs');
			answers($stored, '20', 'partitions beyond retention are kept, with every row');
			answers(q{SELECT count(*), count(DISTINCT (default_ttl, reaping)) FROM ttl.containers WHERE container::text ~ 'event'}, '4|1', '... as containers with the same policy');
			answers(q{SELECT count(*) FROM event WHERE _ts < now() - interval '3 days'}, '0', '... and nothing appears');

			# rows that lie where nobody has made a partition yet
			my $move = $version < 5 ? q{SELECT partman.partition_data_time('public.event')} : q{CALL partman.partition_data_proc('public.event', p_quiet := true)};
			$node->safe_psql('postgres', qq{INSERT INTO event (id, created_at, _ts) SELECT g, now() + interval '30 days' * $round, CASE WHEN g > 104 THEN '2020-01-01'::timestamptz END FROM generate_series(101, 108) g});
			$node->fails($move, '\w+', 'expired rows are in the way', qr/Delete them with CALL ttl\.reap\('public\.event'\)/);
			$node->safe_psql('postgres', "SET row_security = off; $move");
			answers(q{SELECT count(*) FROM event WHERE id > 100 AND tableoid <> 'event_default'::regclass; SET row_security = off; SELECT count(*) FROM event WHERE id > 100 AND tableoid <> 'event_default'::regclass},
				"4\n8", '... unless those who move rows see them');
			$node->safe_psql('postgres', q{SET row_security = off; DELETE FROM event WHERE id > 100});
		}
	},
	{
		name => 'pg_squeeze',
		library => 'pg_squeeze',
		check => sub {
			my $stored = q{SET row_security = off; SELECT count(*), sum(id), sum(grp), min(_ts), max(_ts), ttl.expired_count('item') FROM item};
			my $file = q{SELECT relfilenode FROM pg_class WHERE relname = 'item'};
			my ($before, $old_file) = ($node->safe_psql('postgres', $stored), $node->safe_psql('postgres', $file));

			$node->safe_psql('postgres', "SELECT squeeze.squeeze_table('public', 'item')");
			isnt($node->safe_psql('postgres', $file), $old_file, 'squeezed');
			answers($stored, $before, '... with every stored row');
			answers(q{SELECT count(*) FROM item; BEGIN; INSERT INTO item (id) VALUES (2) RETURNING id; ROLLBACK}, "500\n2", '... hidden as before, in a container that does what containers do');

			# while rows are written, evicted and deleted
			$node->safe_psql('postgres', <<'END');
CREATE TABLE busy (id int PRIMARY KEY, note text);
CREATE TABLE ledger (id int PRIMARY KEY, note text);
SELECT ttl.create_container('busy', 3600);
CREATE PROCEDURE write(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. n LOOP
        INSERT INTO busy (id, note, _ts) SELECT i % 100, i::text, CASE WHEN i % 3 = 0 THEN '2020-01-01' END::timestamptz
            ON CONFLICT (id) DO UPDATE SET note = excluded.note;
        DELETE FROM ledger WHERE id = i % 100;
        INSERT INTO ledger SELECT id, note FROM busy WHERE id = i % 100;
        COMMIT;
    END LOOP;
END $$;
END
			my $writer = $node->background_psql('postgres');
			$writer->query_until(qr/started/, "\\echo started\nCALL write(2000);\n");
			$node->safe_psql('postgres', "SELECT squeeze.squeeze_table('public', 'busy')") for 1 .. 3;
			$writer->query_safe('SELECT 1');
			$writer->quit;
			answers('SELECT count(*) > 50 FROM ledger; SELECT count(*) FROM (SELECT id, note FROM busy) b FULL JOIN ledger l USING (id) WHERE b.note IS DISTINCT FROM l.note',
				"t\n0", '... beside writers and the reaper: none appears, none is lost');
			$node->safe_psql('postgres', 'DROP TABLE busy, ledger; DROP PROCEDURE write');
		}
	},
	{
		# jobs that run when the server starts are the only ones that don't wait for a minute
		name => 'pg_cron',
		library => 'pg_cron',
		settings => "cron.database_name = 'postgres'\ncron.use_background_workers = on",
		prepare => <<'END',
CREATE TABLE due (id int PRIMARY KEY);
SELECT ttl.create_container('due', 60);
SELECT ttl.alter_container('due', reaping => false);
INSERT INTO due (id, _ts) SELECT g, CASE WHEN g > 10 THEN '2020-01-01' ELSE '2900-01-01' END::timestamptz FROM generate_series(1, 30) g;
CREATE TABLE report (n bigint);
SELECT cron.schedule('reap', '@reboot', 'CALL ttl.reap(''due'', 5)');
SELECT cron.schedule('policy', '@reboot', 'SELECT ttl.set_default_ttl(''due'', 120)');
SELECT cron.schedule('report', '@reboot', 'INSERT INTO report SELECT count(*) FROM due');
END
		check_restarted => sub {
			ok($node->poll_query_until('postgres', "SELECT count(*) = 3 FROM cron.job_run_details WHERE status = 'succeeded'"), 'jobs are done');
			answers("SELECT n FROM report; SELECT ttl.default_ttl('due'), ttl.expired_count('due')", "10\n120|15", '... each of them');
		}
	},
	# nothing to be done but to be there, and to look at every statement
	{ name => 'pg_qualstats', library => 'pg_qualstats', settings => 'pg_qualstats.sample_rate = 1' },
	{ name => 'pg_stat_kcache', library => 'pg_stat_kcache' },
	{ name => 'pg_wait_sampling', library => 'pg_wait_sampling' },
	{ name => 'plpgsql_check', library => 'plpgsql_check' },
);

#
# What is there
#

my %available = map { split(/\|/) }
  split(/\n/, $node->safe_psql('postgres', 'SELECT name, default_version FROM pg_available_extensions'));
my $libdir = $node->config_data('--pkglibdir');
for (@others)
{
	$_->{installed} = $_->{name} eq 'auto_explain' ? -e "$libdir/auto_explain.so" : $available{ $_->{name} };
	note("$_->{name} $_->{installed}") if $_->{installed};
}
plan(skip_all => 'no other extension is installed') if !grep { $_->{installed} } @others;
for (grep { !$_->{installed} } @others)
{
  SKIP: { skip("$_->{name} is not installed", 1); }
}
@others = grep { $_->{installed} } @others;

# pg_stat_kcache asks for pg_stat_statements before it
my $libraries = join(', ', map { $_->{library} // () } @others);
$node->append_conf('postgresql.conf', "$_->{settings}\n") for grep { $_->{settings} } @others;
$node->append_conf('postgresql.conf', "cron.host = '" . $node->host . "'\n");
# a setting of later minor releases
$node->append_conf('postgresql.conf', "output_plugin_libraries = 'pgoutput, pg_squeeze'\n")
  if $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'") eq '1';

for my $order ("$libraries, ttl", "ttl, $libraries")
{
	my $first = ++$round == 1;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$order'\n");
	$node->restart;
	if ($first)
	{
		$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY, grp int, note text);
CREATE INDEX ON item (grp);
SELECT ttl.create_container('item', 3600);
SELECT ttl.alter_container('item', reaping => false);
INSERT INTO item (id, grp, note, _ts) SELECT g, g / 100, 'n' || g, CASE WHEN g % 2 = 0 THEN '2020-01-01' ELSE '2900-01-01' END::timestamptz FROM generate_series(1, 1000) g;
CREATE TABLE plain AS SELECT g AS id FROM generate_series(1, 1000) g;
VACUUM ANALYZE item, plain;
END
	}
	for my $other (@others)
	{
		$version = $other->{installed} =~ /^(\d+(\.\d+)?)/ ? $1 : 0;
		if ($first)
		{
			$node->safe_psql('postgres', ($other->{schema} ? "CREATE SCHEMA $other->{schema}; " : '')
				  . "CREATE EXTENSION $other->{name}" . ($other->{schema} ? " SCHEMA $other->{schema}" : ''))
			  if $other->{name} ne 'auto_explain';
			my $prepare = $other->{prepare};
			$node->safe_psql('postgres', ref $prepare ? $prepare->() : $prepare) if $prepare;
		}
	}
	for my $other (@others)
	{
		$version = $other->{installed} =~ /^(\d+(\.\d+)?)/ ? $1 : 0;
		for my $check ($other->{check}, $first ? undef : $other->{check_restarted})
		{
			subtest(($first ? "$other->{name}, then ttl" : "ttl, then $other->{name}"), $check) if $check;
		}
	}
}
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|ERROR:  (XX|cache lookup)/, 'nothing has broken');

$node->stop;
done_testing();
