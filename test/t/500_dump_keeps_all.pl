# A dump holds every row that is not yet deleted, with its _ts, and restores
# into a database that behaves the same, but for reaping, which is off.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END', allows_streaming => 'logical');
ttl.reaper = off
ttl.naptime = 100ms
timezone = 'UTC'
END
my $dir = $node->backup_dir;
mkdir $dir;

$node->safe_psql('postgres', <<'END');
CREATE ROLE backup_owner LOGIN;
CREATE ROLE reader LOGIN;
CREATE ROLE reader_of_all LOGIN IN ROLE pg_read_all_data;
CREATE ROLE operator LOGIN BYPASSRLS IN ROLE pg_read_all_data;
CREATE DATABASE source OWNER backup_owner;
END
$node->safe_psql('source', <<'END');
CREATE EXTENSION ttl;

-- each form of a policy
CREATE TABLE session (id int PRIMARY KEY, note text);
SELECT ttl.create_container('session', 3600);
INSERT INTO session (id, note, _ts, ttl) VALUES
    (1, 'expired', '2020-01-01 00:00:00.000001', NULL), (2, 'expired', '2020-01-01', 5), (3, 'expired', '-infinity', 7),
    (4, 'live', '2900-01-01', NULL), (5, 'live', '2020-01-01', -1), (6, 'live', 'infinity', 1);
CREATE TABLE attic (id int, note text, _ts timestamptz);
SELECT ttl.alter_container('session', archive_to => 'attic');
CREATE TABLE for_ever (id int PRIMARY KEY, note text);
SELECT ttl.create_container('for_ever', -1);
INSERT INTO for_ever SELECT * FROM session;
CREATE TABLE off (id int UNIQUE);
SELECT ttl.create_container('off', indexing => 'none');
INSERT INTO off (id, _ts) VALUES (1, '2020-01-01');
CREATE TABLE by_creation (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text, twice text GENERATED ALWAYS AS (note || note) STORED, at timestamptz NOT NULL);
SELECT ttl.create_container('by_creation', 60, 'at', NULL, touch_on_update => false);
INSERT INTO by_creation (note, at) VALUES ('expired', '2020-01-01'), ('live', '2900-01-01');
CREATE UNLOGGED TABLE settings (id int PRIMARY KEY);
SELECT ttl.create_container('settings', 60, ts_precision => '10 seconds');
SELECT ttl.alter_container('settings', reap_delay => '2 days 03:00', reaping => false);
INSERT INTO settings (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');
-- adopted, with an old value that means nothing
CREATE TABLE adopted (id int, changed timestamptz(0), keep smallint);
INSERT INTO adopted VALUES (1, '2020-01-01', -5), (2, '2020-01-01', NULL), (3, NULL, NULL);
SELECT ttl.create_container('adopted', 60, 'changed', 'keep');
-- other types of TTL, deadlines with and without a _ts, a timestamp in UTC
CREATE TABLE documents (id int PRIMARY KEY, doc jsonb, at timestamp(3));
SELECT ttl.create_container('documents', 60, 'at', 'doc');
INSERT INTO documents VALUES (1, '{"ttl": 5, "x": 1}', '2020-01-01'), (2, '{"ttl": -1}', '2020-01-01'), (3, '{"ttl": "5"}', '2020-01-01'), (4, NULL, '2900-01-01');
CREATE TABLE big (id int, ttl bigint, ttl2 numeric, ttl3 double precision, ttl4 real);
CREATE TABLE exact (LIKE big);
CREATE TABLE rounded (LIKE big);
CREATE TABLE short (LIKE big);
SELECT ttl.create_container('big', 60), ttl.create_container('exact', 60, ttl_column => 'ttl2'), ttl.create_container('rounded', 60, ttl_column => 'ttl3'), ttl.create_container('short', 60, ttl_column => 'ttl4');
SET ttl.show_expired = on;
INSERT INTO big VALUES (1, 5, 5, 5, 5, '2020-01-01'), (2, 0, 5.5, 'NaN', -7, '2020-01-01'), (3, -1, -1, -1, -1, '2020-01-01');
INSERT INTO exact TABLE big;
INSERT INTO rounded TABLE big;
INSERT INTO short TABLE big;
RESET ttl.show_expired;
CREATE TABLE deadlines (id int PRIMARY KEY, until timestamp, x int);
CREATE INDEX mine ON deadlines (until) WHERE until IS NOT NULL;
INSERT INTO deadlines VALUES (1, '2020-01-01'), (2, '2900-01-01'), (3, 'infinity'), (4, NULL);
SELECT ttl.create_container('deadlines', -1, ts_column => NULL, ttl_column => 'until');
CREATE TABLE tokens (id int PRIMARY KEY, exp bigint, day date, made numeric);
CREATE INDEX mine_too ON tokens (exp);
INSERT INTO tokens VALUES (1, 1577880000000, '2020-01-01', 1577880000), (2, 32503680000000, '2900-01-01', 32503680000), (3, NULL, NULL, NULL), (4, -9223372036854775808, 'infinity', 'NaN');
CREATE TABLE days AS TABLE tokens;
CREATE TABLE made AS TABLE tokens;
SELECT ttl.create_container('tokens', -1, ts_column => NULL, ttl_column => 'exp', ttl_unit => 'epoch_ms'), ttl.create_container('days', -1, ts_column => NULL, ttl_column => 'day'),
    ttl.create_container('made', 60, ts_column => 'made', ttl_column => NULL, ts_unit => 'epoch');
CREATE TABLE made_on (id int PRIMARY KEY, day date);
INSERT INTO made_on VALUES (1, '2020-01-01'), (2, '2900-01-01');
SELECT ttl.create_container('made_on', 60, ts_column => 'day', ttl_column => NULL, touch_on_update => false);
CREATE TABLE either (id int PRIMARY KEY, until timestamptz);
SELECT ttl.create_container('either', 60, ttl_column => 'until');
INSERT INTO either VALUES (1, '2020-01-01', '2020-01-01'), (2, '2900-01-01', '2020-01-01'), (3, NULL, '2900-01-01');
CREATE TABLE numbered (id serial PRIMARY KEY);
SELECT ttl.create_container('numbered', 60);
INSERT INTO numbered (_ts) VALUES ('2020-01-01'), ('2900-01-01');
CREATE TABLE empty ();
SELECT ttl.create_container('empty', 60);

-- names
CREATE SCHEMA "Räume ""1"" '2' \ $$";
CREATE TABLE "Räume ""1"" '2' \ $$"."select ""ÄÖ"" 'x' %s \n" ("Schlüssel ""k""" int PRIMARY KEY, "seit ""wann""" timestamptz NOT NULL DEFAULT clock_timestamp(), "noch, 'wie' lange" int);
SELECT ttl.create_container('"Räume ""1"" ''2'' \ $$"."select ""ÄÖ"" ''x'' %s \n"', 60, 'seit "wann"', 'noch, ''wie'' lange');
INSERT INTO "Räume ""1"" '2' \ $$"."select ""ÄÖ"" 'x' %s \n" VALUES (1, '2020-01-01', 5), (2, '2900-01-01', NULL);
CREATE TABLE "Räume ""1"" '2' \ $$"."ttl" (id int);
SELECT ttl.create_container('"Räume ""1"" ''2'' \ $$"."ttl"', 60);
INSERT INTO "Räume ""1"" '2' \ $$"."ttl" VALUES (1, '2020-01-01'), (2, '2900-01-01');

-- partitions
CREATE TABLE parts (id int, region text, note text, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu');
CREATE TABLE parts_us (note text, gone int, id int NOT NULL, region text NOT NULL);
ALTER TABLE parts_us DROP gone;
ALTER TABLE parts ATTACH PARTITION parts_us FOR VALUES IN ('us');
SELECT ttl.create_container('parts', 60);
CREATE TABLE parts_rest PARTITION OF parts DEFAULT PARTITION BY RANGE (id);
CREATE TABLE parts_rest1 PARTITION OF parts_rest FOR VALUES FROM (0) TO (100);
CREATE TABLE parts_gone PARTITION OF parts FOR VALUES IN ('gone');
INSERT INTO parts (id, region, note, _ts) SELECT i, region, CASE i WHEN 2 THEN 'live' ELSE 'expired' END, CASE i WHEN 2 THEN '2900-01-01' ELSE '2020-01-01' END::timestamptz
  FROM unnest('{eu,us,asia,gone}'::text[]) region, generate_series(1, 3) i;
ALTER TABLE parts DETACH PARTITION parts_gone;
CREATE TABLE by_day (id int, _ts timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (id, _ts)) PARTITION BY RANGE (_ts);
CREATE TABLE by_day_old PARTITION OF by_day FOR VALUES FROM (MINVALUE) TO ('2025-01-01');
CREATE TABLE by_day_new PARTITION OF by_day FOR VALUES FROM ('2025-01-01') TO (MAXVALUE);
SELECT ttl.create_container('by_day', 60, touch_on_update => false);
INSERT INTO by_day (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');

-- foreign keys: the names sort children before parents
CREATE TABLE z_parent (id int PRIMARY KEY, up int REFERENCES z_parent);
CREATE TABLE b_child (id int PRIMARY KEY, parent int REFERENCES z_parent ON DELETE CASCADE);
CREATE TABLE a_plain (id int PRIMARY KEY, child int REFERENCES b_child DEFERRABLE INITIALLY DEFERRED, parent int REFERENCES z_parent ON DELETE SET NULL);
SELECT ttl.create_container(c, 60) FROM unnest('{z_parent, b_child}'::regclass[]) c;
INSERT INTO z_parent (id, up, _ts) VALUES (1, 1, '2900-01-01'), (2, 1, '2900-01-01'), (3, 2, '2900-01-01');
INSERT INTO b_child (id, parent, _ts) VALUES (1, 1, '2900-01-01'), (2, 2, '2900-01-01'), (3, 3, '2900-01-01'), (4, 3, '2900-01-01');
INSERT INTO a_plain VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3);
CREATE TABLE y_part (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE y_part1 PARTITION OF y_part FOR VALUES FROM (0) TO (100);
CREATE TABLE c_part (id int PRIMARY KEY, parent int REFERENCES y_part) PARTITION BY RANGE (id);
CREATE TABLE c_part1 PARTITION OF c_part FOR VALUES FROM (0) TO (100);
SELECT ttl.create_container(c, 60) FROM unnest('{y_part, c_part}'::regclass[]) c;
INSERT INTO y_part (id, _ts) VALUES (1, '2900-01-01'), (2, '2900-01-01');
INSERT INTO c_part (id, parent, _ts) VALUES (1, 1, '2900-01-01'), (2, 2, '2020-01-01');
SET ttl.touch = off;
UPDATE z_parent SET _ts = '2020-01-01' WHERE id IN (1, 3);
UPDATE b_child SET _ts = '2020-01-01' WHERE id IN (2, 4);
UPDATE y_part SET _ts = '2020-01-01' WHERE id = 1;
RESET ttl.touch;

-- what hangs on a container
CREATE VIEW session_view WITH (security_barrier) AS SELECT id, note FROM session;
CREATE MATERIALIZED VIEW session_matview AS SELECT id, note FROM session;
CREATE INDEX ON session (note);
CREATE PUBLICATION sessions FOR TABLE session;
CREATE TABLE guarded (id int PRIMARY KEY, note text);
SELECT ttl.create_container('guarded', 60);
INSERT INTO guarded (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no'; END$$;
CREATE TRIGGER refuse BEFORE DELETE ON guarded FOR EACH ROW EXECUTE FUNCTION refuse();
ALTER TABLE guarded ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY nobody ON guarded USING (false);
ALTER TABLE guarded OWNER TO backup_owner;
-- somebody's own, who is no superuser
CREATE SCHEMA own AUTHORIZATION backup_owner;
SET SESSION AUTHORIZATION backup_owner;
CREATE TABLE own.parent (id int PRIMARY KEY);
CREATE TABLE own.child (id int PRIMARY KEY, parent int REFERENCES own.parent);
SELECT ttl.create_container(c, 60) FROM unnest('{own.parent, own.child}'::regclass[]) c;
INSERT INTO own.parent (id, _ts) VALUES (1, '2900-01-01'), (2, '2900-01-01');
INSERT INTO own.child (id, parent, _ts) VALUES (1, 1, '2900-01-01'), (2, 2, '2900-01-01');
SET ttl.touch = off;
UPDATE own.parent SET _ts = '2020-01-01' WHERE id = 2;
RESET SESSION AUTHORIZATION;
RESET ttl.touch;
GRANT SELECT ON session, guarded TO reader;
-- no container
CREATE TABLE ordinary (id int PRIMARY KEY, _ts timestamptz, ttl int);
INSERT INTO ordinary VALUES (1, '2020-01-01', 5);
CREATE TABLE formerly (id int PRIMARY KEY);
SELECT ttl.create_container('formerly', 60);
INSERT INTO formerly (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.drop_container('formerly');
END

# All rows of all tables, as a statement of an ordinary session finds them, or
# as they are stored
sub rows_of
{
	my ($on, $database, $show) = @_;
	return $on->safe_psql($database, <<"END");
SET ttl.show_expired = $show;
CREATE FUNCTION pg_temp.rows_of(relation regclass) RETURNS SETOF text LANGUAGE plpgsql AS
'BEGIN RETURN QUERY EXECUTE format(''SELECT (x.*)::text FROM ONLY %s x'', relation); END';
SELECT r.oid::regclass, t
  FROM pg_class r, pg_temp.rows_of(r.oid) t
 WHERE r.relkind IN ('r', 'm') AND r.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'ttl'::regnamespace)
 ORDER BY r.oid::regclass::text COLLATE "C", t COLLATE "C";
END
}

# All that makes tables what they are, but for reaping
sub definitions_of
{
	my ($on, $database) = @_;
	return $on->safe_psql($database, <<'END');
SELECT relid::text, default_time_to_live, ts_column, ttl_column, ttl_unit, ts_unit, ts_precision, indexing, touch_on_update, reap_delay, archive_to, replication_origin
  FROM ttl.container ORDER BY relid::text COLLATE "C";
SELECT relid, created_objects FROM ttl.container ORDER BY relid::text COLLATE "C";
SELECT tgrelid::regclass, tgname, tgenabled, tgfoid::regproc, tgtype FROM pg_trigger WHERE NOT tgisinternal ORDER BY tgrelid::regclass::text COLLATE "C", tgname COLLATE "C";
SELECT pg_get_indexdef(indexrelid), indisvalid FROM pg_index WHERE indrelid >= 16384 AND indrelid IN (SELECT oid FROM pg_class WHERE relkind <> 't') ORDER BY pg_get_indexdef(indexrelid) COLLATE "C";
SELECT conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint WHERE conrelid >= 16384 ORDER BY conrelid::regclass::text COLLATE "C", conname COLLATE "C";
SELECT attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid)
  FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
 WHERE attrelid IN (SELECT oid FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace))
   AND attnum > 0 AND NOT attisdropped ORDER BY attrelid::regclass::text COLLATE "C", attname COLLATE "C";
SELECT oid::regclass, pg_get_userbyid(relowner) FROM pg_class WHERE oid >= 16384 AND relkind IN ('r', 'p') ORDER BY oid::regclass::text COLLATE "C";
SELECT sequencename, last_value FROM pg_sequences ORDER BY sequencename COLLATE "C";
SELECT tablename, attnames FROM pg_publication_tables;
SELECT tableoid::regclass, deptype, count(*) FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'ttl')
 GROUP BY 1, 2 ORDER BY 1, 2;
END
}

# What containers do, in a transaction that is rolled back.  The last line tells
# of the foreign key.
sub behaviour_of
{
	my ($on, $database) = @_;
	return $on->safe_psql($database, <<'END');
BEGIN;
SET client_min_messages = warning;
INSERT INTO session (id, note) VALUES (1, 'new'), (2, 'new') RETURNING id, note, _ts > '2025-01-01' AND _ts < '2800-01-01';
UPDATE session SET note = 'updated' WHERE id = 4 RETURNING id, _ts < '2800-01-01';
UPDATE by_creation SET note = 'updated' RETURNING note, twice, at = '2900-01-01';
INSERT INTO settings (id) VALUES (3) RETURNING _ts = date_bin('10 s', _ts, '2000-01-01');
UPDATE settings SET id = id WHERE id = 2 RETURNING _ts < '2800-01-01' AND _ts = date_bin('10 s', _ts, '2000-01-01');
UPDATE made SET day = day WHERE id = 2 RETURNING made = trunc(made) AND made < 32503680000;
INSERT INTO parts (region, id) VALUES ('us', 1), ('eu', 3), ('asia', 1) RETURNING region, id;
SELECT ttl.expired_count('parts');
INSERT INTO parts_gone (region, id) VALUES ('gone', 1) RETURNING region, id;
INSERT INTO documents (id, doc) VALUES (1, '{"ttl": 2147483647}'), (3, '{}') RETURNING id, ttl.time_to_live(documents) BETWEEN 50 AND 61, at - now() AT TIME ZONE 'UTC' BETWEEN '-1 min' AND '1 min';
INSERT INTO deadlines VALUES (1, '2900-01-01') RETURNING ttl.expires_at(deadlines);
SELECT ttl.expired_count(c) FROM unnest('{documents, big, exact, rounded, short, deadlines, either, tokens, days, made}'::regclass[]) c;
CALL ttl.reap('session');
SELECT array_agg(id ORDER BY id) FROM attic;
SET ttl.show_expired = on;
SELECT array_agg(id ORDER BY id) FROM session;
DELETE FROM z_parent WHERE id = 3;
SELECT array_agg(parent ORDER BY id) FROM a_plain;
SET ttl.show_expired = off;
DO $$BEGIN
INSERT INTO b_child (id, parent) VALUES (5, 1);
PERFORM set_config('test.parent', 'present', true);
EXCEPTION WHEN foreign_key_violation THEN PERFORM set_config('test.parent', 'absent', true);
END$$;
SELECT current_setting('test.parent');
ROLLBACK;
END
}

# Like is(), but tells the difference alone
sub same
{
	my ($got, $expected, $name) = @_;
	return pass($name) if $got eq $expected;
	my %excess;
	$excess{$_}++ for split /\n/, $got;
	$excess{$_}-- for split /\n/, $expected;
	fail($name);
	for (sort keys %excess)
	{
		diag("got in excess: $_") if $excess{$_} > 0;
		diag("missing: $_") if $excess{$_} < 0;
	}
	return;
}

# A command that must succeed in silence, but for the WARNING that reaping is off, which is returned
sub quiet_ok
{
	my ($name, @command) = @_;
	my ($out, $err);
	my $success = IPC::Run::run(\@command, '>', \$out, '2>', \$err);
	my $warning = $err =~ s/^.*WARNING:  (container ".*" was restored with reaping off)\n(?:DETAIL: .*\nHINT: .*\n(?:CONTEXT: .*\n)?)//mg ? $1 : '';
	ok($success && $err eq '', $name) or diag("@command\n$err");
	return $warning;
}

sub connection
{
	my ($database, $user) = @_;
	return ('-h', $node->host, '-p', $node->port, '-d', $database, $user ? ('-U', $user) : ());
}

# Dumps a database; returns the file.
my $files = 0;
sub dump_of
{
	my ($database, @options) = @_;
	my $file = "$dir/" . ++$files;
	quiet_ok("pg_dump @options", 'pg_dump', connection($database), @options, '-f', $file);
	return $file;
}

sub run_script
{
	my ($file, $database, $user) = @_;
	return quiet_ok('... its script runs', 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', connection($database, $user), '-o', "$dir/null", '-f', $file);
}

sub restore
{
	my ($file, $database, @options) = @_;
	return quiet_ok("pg_restore @options", 'pg_restore', connection($database), '--exit-on-error', @options, $file);
}

my $databases = 0;
sub new_database
{
	my $database = 'restored' . ++$databases;
	$node->safe_psql('postgres', "CREATE DATABASE $database OWNER backup_owner TEMPLATE template0");
	return $database;
}

my $stored = rows_of($node, 'source', 'on');
my $visible = rows_of($node, 'source', 'off');
my $definitions = definitions_of($node, 'source');
my $behaviour = behaviour_of($node, 'source');
like($stored, qr/^session\|\(1,expired,"2020-01-01 00:00:00.000001\+00",\)$/m, 'the source holds expired rows');
unlike($visible, qr/^session\|\(1,expired/m, '... and hides them');
is($behaviour =~ s/\n\w+$//r, <<'END' =~ s/\n$//r, '... and behaves as containers do');
1|new|t
2|new|t
4|t
updated|updatedupdated|t
t
t
t
us|1
eu|3
asia|1
3
gone|1
1|f|t
3|t|t
2900-01-01 00:00:00+00
0
2
2
2
2
0
1
1
1
1
{1,2,3}
{1,2,4,5,6}
{1,2,NULL}
END

# The database has all the rows and policies of the source, and does the same.
sub is_restored
{
	my ($on, $database) = @_;

	same(rows_of($on, $database, 'on'), $stored, '... holds all stored rows');
	same(rows_of($on, $database, 'off'), $visible, '... hides the same rows');
	same(definitions_of($on, $database), $definitions, '... has the same definitions');
	is($on->safe_psql($database, 'SELECT count(*) FROM ttl.containers WHERE reaping'), '0', '... reaping is off');
	same(behaviour_of($on, $database), $behaviour, '... behaves the same');
	return;
}

# What a full dump holds, without what differs from one to the next
sub contents
{
	my ($file) = @_;
	my $text = slurp_file($file);
	$text =~ s/^\\(un)?restrict .*\n//mg;
	# the rows of ttl.container: reaping, and their order
	$text =~ s{^(COPY ttl\.container [^\n]*\n)(.*?)^\\\.$}
	  {$1 . join '', sort map { my @c = split /\t/; $c[9] = '?'; join "\t", @c } split /(?<=\n)/, $2}mse
	  or die 'no rows of ttl.container';
	return $text;
}

# Scripts

my $script;
for my $style ([], ['--inserts'], ['--column-inserts'],
	[ '--rows-per-insert=2', '--on-conflict-do-nothing' ],
	[ '--quote-all-identifiers', '--load-via-partition-root' ])
{
	my $database = new_database();
	my $file = dump_of('source', @$style);
	like(run_script($file, $database), qr/ restored with reaping off/, '... and tells of reaping');
	is_restored($node, $database);
	$script = $file unless @$style;
}
like(slurp_file($script), qr/^COMMENT ON COLUMN public\.session\.ttl IS .*^COMMENT ON TRIGGER "~ttl" ON public\.session IS /ms, 'comments are part of it');
same(contents(dump_of('restored1')), contents($script), '... a dump of what was restored is the same');

# Archives

my $archive;
for my $format ([ ['-Fc'] ], [ ['-Fc'], '-j2' ], [ [ '-Fd', '-j2' ], '-j2' ], [ ['-Ft'], '--single-transaction' ])
{
	my ($dump_options, @restore_options) = @$format;
	my $database = new_database();
	my $file = dump_of('source', @$dump_options);
	restore($file, $database, @restore_options);
	is_restored($node, $database);
	$archive //= $file;
}

# The database itself: --create

{
	my $database = new_database();
	run_script($script, $database);
	run_script(dump_of($database, '--create', '--clean', '--if-exists'), 'postgres');
	is_restored($node, $database);
	restore(dump_of($database, '-Fc'), 'postgres', '--create', '--clean');
	is_restored($node, $database);
}

# In pieces

{
	my $database = new_database();
	run_script(dump_of('source', "--section=$_"), $database) for qw(pre-data data post-data);
	is_restored($node, $database);

	$database = new_database();
	restore($archive, $database, "--section=$_") for qw(pre-data data post-data);
	is_restored($node, $database);
}

# Data into a schema that is there, values that are refused among it.  pg_dump warns of
# tables that reference themselves, so here it may speak.

my $schema = dump_of('source', '--schema-only');
for my $style ([], ['--inserts'])
{
	my $database = new_database();
	my $file = "$dir/" . ++$files;
	run_script($schema, $database);
	is($node->safe_psql($database, 'SELECT count(*) FROM ttl.container'), '0', 'a schema alone carries no policy');
	command_ok([ 'pg_dump', connection('source'), '--data-only', '--disable-triggers', @$style, '-f', $file ],
		"pg_dump --data-only --disable-triggers @$style");
	run_script($file, $database);
	$node->safe_psql($database, <<'END');
SET row_security = off;
REFRESH MATERIALIZED VIEW session_matview
END
	is_restored($node, $database);
}

# Policies alone

{
	my $database = new_database();
	my $policies = 'SELECT container, default_ttl, ts_column, ttl_column, indexing, touch_on_update, reap_delay FROM ttl.containers ORDER BY container::text';
	run_script($schema, $database);
	run_script(dump_of('source', '--data-only', '-t', 'ttl.container'), $database);
	is($node->safe_psql($database, $policies), $node->safe_psql('source', $policies), 'policies can be copied alone');
	is($node->safe_psql($database, 'SELECT DISTINCT reaping FROM ttl.containers'), 'f', '... with reaping off');
}

# Data into containers that are there.  Triggers fire, and foreign keys are
# checked, unless the script turns them off.  (pg_dump doesn't sort the partitions
# of tables that reference each other.)

{
	my $database = new_database();
	my @tables = map { ('-t', $_) } qw(session for_ever by_creation settings parts* b_child a_plain z_parent);
	run_script($script, $database);
	$node->safe_psql($database, 'UPDATE z_parent SET up = NULL; ALTER TABLE z_parent DROP CONSTRAINT z_parent_up_fkey');
	my $before = rows_of($node, $database, 'on');
	for my $style ([], ['--inserts'], ['--disable-triggers'])
	{
		my $file = dump_of($database, '--data-only', @$style, @tables);
		$node->safe_psql($database, 'TRUNCATE session, for_ever, by_creation, settings, parts, parts_gone, b_child, a_plain, z_parent');
		run_script($file, $database);
		same(rows_of($node, $database, 'on'), $before, '... holds all stored rows');
		is( $node->safe_psql($database, q{SELECT DISTINCT tgenabled FROM pg_trigger WHERE tgname = '~ttl'}),
			'A', "... containers' triggers fire always");
	}
}

# All data, policies included, beside containers that are there: their policies
# stay as they are.

{
	my $source = new_database();
	my $policies = q{SELECT container, default_ttl, reaping FROM ttl.containers ORDER BY container::text};
	$node->safe_psql($source, <<'END');
CREATE EXTENSION ttl;
CREATE TABLE one (id int PRIMARY KEY);
CREATE TABLE two (id int PRIMARY KEY);
SELECT ttl.create_container(c, 60) FROM unnest('{one, two}'::regclass[]) c;
INSERT INTO one (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');
INSERT INTO two SELECT * FROM one;
END
	my $before = rows_of($node, $source, 'on');
	my $there = new_database();
	run_script(dump_of($source, '--schema-only'), $there);
	$node->safe_psql($there, q{SELECT ttl.create_container('one', 3600)});
	for my $style ([], ['--inserts'], ['--column-inserts'], ['--disable-triggers'], ['-Fc'], [ '-Fd', '-j2' ])
	{
		my $file = dump_of($source, '--data-only', @$style);
		$node->safe_psql($there, q{TRUNCATE one, two; SELECT ttl.drop_container(container) FROM ttl.containers WHERE container = 'two'::regclass});
		"@$style" =~ /-F/ ? restore($file, $there, '-j2') : run_script($file, $there);
		same(rows_of($node, $there, 'on'), $before, '... holds all stored rows');
		is($node->safe_psql($there, $policies), "one|3600|t\ntwo|60|f", '... and leaves the policy alone that was there');
	}
	like(slurp_file($node->logfile), qr/LOG:  container "public.one" already exists; its policy was left alone/, '... and the log says so');
}

# Over what is there: --clean.  PostgreSQL's own errors about the parts of
# partitioned tables, which it drops one by one, are none of ours.

{
	my $database = new_database();
	my ($out, $err);
	run_script($script, $database);
	$node->safe_psql($database, q{SELECT ttl.alter_container('session', reaping => true); TRUNCATE parts});
	IPC::Run::run([ 'pg_restore', connection($database), '--clean', '--if-exists', $archive ], '>', \$out, '2>', \$err);
	unlike($err =~ s/cannot drop inherited constraint|cannot drop index \S+ because index \S+ requires it//gr,
		qr/error: could not execute query: ERROR:  \S/, 'pg_restore --clean over partitions');
	is_restored($node, $database);

	$node->safe_psql($database, 'DROP TABLE parts, parts_gone, by_day, y_part, c_part');
	for my $options ([], ['--if-exists'])
	{
		my $before = rows_of($node, $database, 'on');
		run_script(dump_of($database, '--clean', @$options), $database);
		same(rows_of($node, $database, 'on'), $before, '... holds all stored rows');
		restore(dump_of($database, '-Fc'), $database, '--clean', @$options);
		same(rows_of($node, $database, 'on'), $before, '... holds all stored rows');
	}
}

# Some tables: their rows, without a policy

for my $dumped ([ [ '-t', 'session' ] ], [ ['-Fc'], '-t', 'session' ])
{
	my ($dump_options, @restore_options) = @$dumped;
	my $database = new_database();
	$node->safe_psql($database, 'CREATE EXTENSION ttl');
	my $file = dump_of('source', @$dump_options);
	@restore_options ? restore($file, $database, @restore_options) : run_script($file, $database);
	is($node->safe_psql($database, 'SELECT count(*) FROM session'), '6', '... holds all stored rows');
	$node->safe_psql($database, q{SELECT ttl.create_container('session', 3600, ts_column => '_ts', ttl_column => 'ttl')});
	is($node->safe_psql($database, 'SELECT count(*) FROM session'), '3', '... and can be made a container');
}

# All policies, but not all rows

{
	my $database = new_database();
	run_script(dump_of('source', '--exclude-table-data=session'), $database);
	is($node->safe_psql($database, q{SELECT ttl.default_ttl('session'), ttl.default_ttl('parts'), count(*) FROM session}),
		'3600|60|0', '... restores the policies');
}

# An owner who is no superuser: the tables without their policies, or the rows
# into containers that are there

{
	my @as_owner = ('-U', 'backup_owner', '-n', 'own');
	my $database = new_database();
	$node->safe_psql($database, 'CREATE EXTENSION ttl');
	run_script(dump_of('source', @as_owner), $database, 'backup_owner');
	my ($rows) = $stored =~ /((?:^own\..*\n)+)/m;
	same(rows_of($node, $database, 'on') . "\n", $rows, '... holds all stored rows');
	my $indexes = q{SELECT count(*) FROM pg_index WHERE indrelid = 'own.parent'::regclass};
	my $before = $node->safe_psql($database, $indexes);
	$node->safe_psql($database, <<'END');
SET SESSION AUTHORIZATION backup_owner;
SELECT ttl.create_container(c, 60, ts_column => '_ts', ttl_column => 'ttl'), ttl.alter_container(c, reaping => false) FROM unnest('{own.parent, own.child}'::regclass[]) c
END
	is($node->safe_psql($database, $indexes), $before, '... whose expiry indexes are adopted');
	is($node->safe_psql($database, 'SELECT count(*) FROM own.parent'), '1', '... whose rows expire');

	my $file = dump_of($database, @as_owner, '--data-only');
	$node->safe_psql($database, 'TRUNCATE own.parent, own.child');
	run_script($file, $database, 'backup_owner');
	same(rows_of($node, $database, 'on') . "\n", $rows, '... holds all stored rows');
}

# Who sees what there is to dump

sub dumps
{
	my ($user, $table, $count, $name, @options) = @_;
	my @rows = slurp_file(dump_of('source', '-U', $user, '--data-only', '-t', $table, @options)) =~
	  /^(?:\d\t|INSERT INTO).*$/mg;
	is(scalar(@rows), $count, $name);
	return;
}
dumps('reader', 'session', 3, '... which for others than the owner is what has not expired');
dumps('reader_of_all', 'session', 3, '... pg_read_all_data included');
dumps('operator', 'session', 6, '... but BYPASSRLS sees all');
dumps('operator', 'guarded', 2, '... behind row-level security, too');
# row_security is on then, and about row-level security alone
for my $style ([], ['--inserts'], ['--serializable-deferrable'])
{
	my @options = ('--enable-row-security', @$style);
	dumps('operator', 'session', 6, "... and with @options", @options);
	dumps('reader', 'session', 3, '... but not so others', @options);
}
{
	local $ENV{PGAPPNAME} = 'backup';
	dumps('operator', 'session', 6, '... whatever it calls itself', '--enable-row-security');
}
my $parallel = dump_of('source', '-Fd', '-j2', '--enable-row-security', '-t', 'session');
my $text = '';
IPC::Run::run([ 'pg_restore', '-f', '-', $parallel ], '>', \$text);
is(scalar(() = $text =~ /^\d\t.*$/mg), 6, '... with -j, too');
is( $node->safe_psql('source', <<'END'), "3\n3\n3", '... and no other session that has row_security on');
SET row_security = on;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT count(*) FROM session;
SET LOCAL search_path = '';
SELECT count(*) FROM public.session;
COMMIT;
SET search_path = '';
SET synchronize_seqscans = off;
SELECT count(*) FROM public.session;
END
for my $user (qw(reader backup_owner))
{
	command_fails_like([ 'pg_dump', connection('source', $user), '-t', 'guarded' ],
		qr/query would be affected by row-level security policy for table "guarded"/,
		"row-level security holds for $user");
}
$node->safe_psql('source', 'ALTER TABLE guarded NO FORCE ROW LEVEL SECURITY');
dumps('backup_owner', 'guarded', 2, '... and an owner sees all');
$node->safe_psql('source', 'ALTER TABLE guarded FORCE ROW LEVEL SECURITY');

# Nothing is deleted before somebody says so.

my $restored = 'restored2';
$node->safe_psql($restored, q{CREATE TABLE witness (id int); SELECT ttl.create_container('witness', 60)});
$node->safe_psql('source', "SELECT ttl.alter_container(container, reaping => false) FROM ttl.containers");
$node->turn_reaper('on');
for (1 .. 2)
{
	$node->safe_psql($restored, <<'END');
INSERT INTO witness (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.set_default_ttl('witness', 60);
END
	$node->is_emptied('witness', 'the reaper works in a restored database', $restored);
}
$node->safe_psql($restored, 'DROP TABLE witness');
same(rows_of($node, $restored, 'on'), $stored, '... and deletes nothing from restored containers');
$node->safe_psql($restored, q{SELECT ttl.alter_container('session', reaping => true)});
$node->is_emptied('session', '... until their owner says so', $restored);
is($node->safe_psql($restored, 'SET ttl.show_expired = on; SELECT array_agg(id ORDER BY id) FROM session'),
	'{4,5,6}', '... and then only what is expired');
is($node->safe_psql($restored, q{SELECT ttl.expired_count('parts')}), '6', '... from that container alone');

# pg_dumpall, into another cluster whose reaper is awake

my $other = TtlNode->start_new('other', <<'END', allows_streaming => 'logical');
ttl.naptime = 100ms
timezone = 'UTC'
END
$node->safe_psql('postgres', "DROP DATABASE IF EXISTS restored$_") for 1 .. $databases;
for my $options ([], [ '--clean', '--if-exists' ])
{
	my ($out, $err);
	quiet_ok("pg_dumpall @$options", 'pg_dumpall', '-h', $node->host, '-p', $node->port, @$options, '-f', "$dir/all");
	ok( IPC::Run::run([ 'psql', '-Xq', '-h', $other->host, '-p', $other->port, '-d', 'postgres', '-f', "$dir/all" ],
			'>', \$out, '2>', \$err),
		'... its script runs');
	$err =~ s/^.*WARNING:  container ".*" was restored with reaping off\nDETAIL: .*\nHINT: .*\n(?:CONTEXT: .*\n)?//mg;
	# the role and the database in use are in the way of their own
	is( join("\n",
			grep { !/^$|NOTICE: |role "\w+" already exists|current user cannot be dropped|currently open database|database "postgres" already exists/ }
			  split /\n/, $err),
		'', '... without an error');
	is_restored($other, 'source');
}

$other->stop;
$node->stop;
done_testing();
