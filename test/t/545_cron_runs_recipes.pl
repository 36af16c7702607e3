# The jobs of doc/recipes.md, run by pg_cron; and its partitions, dropped by pg_partman and by a job.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', "ttl.naptime = 50ms\ncron.database_name = 'postgres'\ncron.use_background_workers = on\n");
my $recipes = slurp_file("$FindBin::RealBin/../../doc/recipes.md");

sub is_available
{
	my ($extension) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = '$extension'") eq '1';
}

# The partitions that are there, and the rows that are visible and stored in them
sub partitions_and_rows
{
	my ($database) = @_;
	return $node->safe_psql($database, q{
SELECT count(*) FROM pg_inherits WHERE inhparent = 'measurement'::regclass AND inhrelid::regclass::text !~ 'default';
SELECT count(*) FROM measurement;
SET row_security = off;
SELECT count(*) FROM measurement}) =~ s/\n/ /gr;
}

# Rows of 33 days and a half, one each day at noon
my $fill = q{INSERT INTO measurement SELECT date_trunc('day', now()) - g * interval '1 day' + interval '12 hours', g FROM generate_series(0, 33) g};

# Whole partitions
SKIP:
{
	skip 'pg_partman is not installed', 5 unless is_available('pg_partman');
	my ($recipe) = $recipes =~ /^```sql partman\n(.*?)^```$/ms;
	my $version = $node->safe_psql('postgres', q{SELECT default_version FROM pg_available_extensions WHERE name = 'pg_partman'});

	$recipe =~ s/'native', // if $version >= 5;
	# the partitions of the past, which the recipe has no need of
	$recipe =~ s/'1 day'\)/'1 day', p_start_partition := (now() - interval '40 days')::text)/;
	$node->safe_psql('postgres', 'CREATE DATABASE partitions');
	$node->safe_psql('partitions', "CREATE EXTENSION ttl; CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman; $recipe; $fill");
	my ($partitions, $visible, $stored) = split ' ', partitions_and_rows('partitions');
	is($stored, 34, 'every row is stored');
	cmp_ok($visible, '<', 34, '... and those are hidden that have expired');
	$node->safe_psql('partitions', 'CALL partman.run_maintenance_proc()');
	my ($partitions_left, $visible_left, $stored_left) = split ' ', partitions_and_rows('partitions');
	cmp_ok($partitions_left, '<', $partitions, 'partitions are dropped');
	is($visible_left, $visible, '... with no row that is alive');
	# the rest of its partition has not expired
	cmp_ok($stored_left - $visible_left, '<=', 1, '... and hardly an expired one is left');
}

if (!is_available('pg_cron'))
{
  SKIP: { skip('pg_cron is not installed', 1); }
	$node->stop;
	done_testing();
	exit;
}
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl, pg_cron'\n");
$node->restart;
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE EXTENSION pg_cron;
CREATE TABLE session (id int PRIMARY KEY);
SELECT ttl.create_container('session', 60);
CREATE TABLE other (id int PRIMARY KEY);
SELECT ttl.create_container('other', 60);
CREATE TABLE deletions (at timestamptz, container regclass, rows_deleted bigint, cost bigint, blocked_rows bigint);
CREATE TABLE measurement (at timestamptz) PARTITION BY RANGE (at);
SELECT ttl.create_container('measurement', '30 days', ts_column => 'at', ttl_column => NULL, touch_on_update => false);
SELECT ttl.alter_container('measurement', reaping => false);
DO $$
DECLARE
    g int;
BEGIN
    FOREACH g IN ARRAY '{31, 32, 33, 40}'::int[] LOOP
        EXECUTE format('CREATE TABLE measurement_%s PARTITION OF measurement FOR VALUES FROM (%L) TO (%L)',
                       to_char(now() - g * interval '1 day', 'YYYY_MM_DD'), current_date - g, current_date - g + 1);
    END LOOP;
END $$;
CREATE TABLE measurement_default PARTITION OF measurement DEFAULT});

# Jobs that run when the server starts are the only ones that don't wait for a minute.
my @jobs = $recipes =~ /^(SELECT cron\.schedule\(.*?\);$|SELECT ttl\.alter_container\('session', reaping[^;]*;)/msg;
is(@jobs, 5, 'jobs and what goes with them');
for (@jobs)
{
	s/'[0-9]+ [0-9*]+ \* \* \*'/'\@reboot'/;
	s/today 22:00/2900-01-01/;
	$node->safe_psql('postgres', $_);
}
is($node->safe_psql('postgres', q{SELECT string_agg(jobname, ' ' ORDER BY jobname) FROM cron.job WHERE schedule = '@reboot'}), 'day deletions drop reap', 'scheduled');
$node->safe_psql('postgres', q{INSERT INTO session (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01')});

$node->restart;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 4 FROM cron.job_run_details WHERE status = 'succeeded'}), 'run')
  or diag($node->safe_psql('postgres', 'SELECT command, status, return_message FROM cron.job_run_details'));
is($node->safe_psql('postgres', q{SELECT until = '2900-01-01' FROM ttl.paused}), 't', 'deletion is paused');
is($node->stored('session'), 1, '... but CALL ttl.reap() has deleted');
is($node->safe_psql('postgres', q{SELECT count(*) FROM deletions WHERE container IN ('session'::regclass, 'other'::regclass)}), '2', 'what was deleted is noted');
is($node->safe_psql('postgres', q{SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text) = 'measurement_' || to_char(now() - interval '31 days', 'YYYY_MM_DD') || ' measurement_default' FROM pg_inherits WHERE inhparent = 'measurement'::regclass}),
	't', 'all partitions that have expired as a whole are dropped, those of missed days too, and no other');

# by night
$node->safe_psql('postgres', q{INSERT INTO other (id, _ts) VALUES (1, '2020-01-01'); INSERT INTO session (id, _ts) VALUES (3, '2020-01-01')});
$node->safe_psql('postgres', q{SELECT ttl.resume()});
{
	local $ENV{PGOPTIONS} = '-c row_security=off';
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM other}), 'the worker goes on');
}
is($node->stored('session'), 2, '... but with the table that is left to pg_cron');

$node->stop;
done_testing();
