# Another extension's planner hook may call nobody else's, or hand out a plan
# again and again: expired rows stay hidden all the same.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use Test::More;
use TestModule;
use TtlNode;

my $module = TestModule::build('planner_hook');
my $node = TtlNode->start_new('beside', "max_parallel_workers_per_gather = 2\nttl.reaper = off\n");

sub load
{
	my ($libraries) = @_;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'");
	$node->restart;
	return;
}

$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE ROLE victim; CREATE ROLE attacker;
GRANT ALL ON SCHEMA public TO victim, attacker;
SET ROLE victim;
CREATE TABLE secret (id int PRIMARY KEY, s text);
SELECT ttl.create_container('secret', 60);
INSERT INTO secret (id, s, _ts) VALUES (1, 'expired', '2020-01-01'), (2, 'live', '2900-01-01');
GRANT SELECT ON secret TO PUBLIC;
CREATE TABLE child (id int REFERENCES secret ON DELETE CASCADE);
SET ROLE attacker;
CREATE TABLE mine (id int PRIMARY KEY);
SELECT ttl.create_container('mine', 60);
CREATE TABLE spied (s text);
CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'INSERT INTO public.spied SELECT s FROM public.secret WHERE id > 0 -- WHERE $ OPERATOR(';
    RETURN NULL;
END $$;
CREATE TRIGGER spy AFTER DELETE ON mine FOR EACH ROW EXECUTE FUNCTION spy();
INSERT INTO mine (id, _ts) VALUES (1, '2020-01-01');
RESET ROLE;
CREATE FUNCTION seen(i int) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE STABLE AS $$ BEGIN RETURN (SELECT count(*) FROM secret WHERE i > 0); END $$;
CREATE TABLE one AS SELECT 1 AS i;
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE item (id int, parent int REFERENCES parent ON DELETE CASCADE);
SELECT ttl.create_container('item', 60);
INSERT INTO parent VALUES (1);
INSERT INTO item VALUES (1, 1, '2020-01-01'), (2, 1, '2900-01-01');
ANALYZE;
END

# One that leaves ours out
load("ttl,$module");
is($node->safe_psql('postgres', 'SELECT s FROM secret'), 'live', 'bypassed: a query');
is($node->safe_psql('postgres', 'SET enable_seqscan = off; SET enable_bitmapscan = off; VACUUM secret; SELECT count(id) FROM secret WHERE id > 0'),
	'1', 'bypassed: an index-only scan');
is($node->safe_psql('postgres', 'BEGIN; DELETE FROM secret RETURNING s; ROLLBACK'), 'live', 'bypassed: DELETE');
my $force = $node->safe_psql('postgres', "SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')");
is($node->safe_psql('postgres', "SET $force = on; SELECT seen(i) FROM one"), '1', 'bypassed: a function in a parallel worker');
$node->safe_psql('postgres', "CALL ttl.reap('mine')");
is($node->safe_psql('postgres', 'SELECT s FROM spied'), 'live', 'bypassed: no trigger reads expired rows of others');

$node->safe_psql('postgres', 'DELETE FROM parent');
is($node->safe_psql('postgres', 'SET ttl.show_expired = on; SELECT count(*) FROM item'), '0', 'bypassed: a CASCADE leaves no orphan');

# One that keeps plans
load("$module,ttl");
$node->safe_psql('postgres', "INSERT INTO secret (id, s, _ts) VALUES (3, 'live', '2900-01-01')");
is( $node->safe_psql('postgres', <<'END'), join("\n", ('live') x 6), 'kept: the plan is filtered each time');
/* keep */ SELECT s FROM secret;
DO $$ DECLARE x text; BEGIN FOR i IN 1..200 LOOP x := (SELECT string_agg(repeat('x', g), '') FROM generate_series(1, 300) g); END LOOP; END $$;
/* keep */ SELECT s FROM secret;
/* keep */ SELECT s FROM secret;
END

done_testing();
