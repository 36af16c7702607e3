# The jobs of doc/recipes.md, run by pg_cron.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', "ttl.naptime = 50ms\ncron.database_name = 'postgres'\ncron.use_background_workers = on\n");
plan(skip_all => 'pg_cron is not installed')
  if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_cron'}) eq '0';
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl, pg_cron'\n");
$node->restart;
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE EXTENSION pg_cron;
CREATE TABLE session (id int PRIMARY KEY);
SELECT ttl.create_container('session', 60);
CREATE TABLE other (id int PRIMARY KEY);
SELECT ttl.create_container('other', 60);
CREATE TABLE deletions (at timestamptz, container regclass, rows_deleted bigint, cost bigint, blocked_rows bigint)});

# Jobs that run when the server starts are the only ones that don't wait for a minute.
my @jobs = slurp_file("$FindBin::RealBin/../../doc/recipes.md") =~ /^(SELECT (?:cron\.schedule\(|ttl\.alter_container\('session', reaping)[^;]*;)/mg;
is(@jobs, 4, 'jobs and what goes with them');
for (@jobs)
{
	s/'[0-9]+ [0-9*]+ \* \* \*'/'\@reboot'/;
	s/today 22:00/2900-01-01/;
	$node->safe_psql('postgres', $_);
}
is($node->safe_psql('postgres', q{SELECT string_agg(jobname, ' ' ORDER BY jobname) FROM cron.job WHERE schedule = '@reboot'}), 'day deletions reap', 'scheduled');
$node->safe_psql('postgres', q{INSERT INTO session (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01')});

$node->restart;
ok($node->poll_query_until('postgres', q{SELECT count(*) = 3 FROM cron.job_run_details WHERE status = 'succeeded'}), 'run')
  or diag($node->safe_psql('postgres', 'SELECT command, status, return_message FROM cron.job_run_details'));
is($node->safe_psql('postgres', q{SELECT until = '2900-01-01' FROM ttl.paused}), 't', 'deletion is paused');
is($node->stored('session'), 1, '... but CALL ttl.reap() has deleted');
is($node->safe_psql('postgres', q{SELECT count(*) FROM deletions WHERE container IN ('session'::regclass, 'other'::regclass)}), '2', 'what was deleted is noted');

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
