# A container with more partitions than a cycle can look at: each has its turn, and those
# with work get most of the budget.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $partitions = 400;
my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
ttl.cycle_cost_limit = 200
ttl.workers = 1
autovacuum = off
END
$node->safe_psql('postgres', qq{
CREATE EXTENSION ttl;
CREATE TABLE item (part int, id int) PARTITION BY LIST (part);
DO \$\$
BEGIN
    FOR i IN 1 .. $partitions LOOP
        EXECUTE format('CREATE TABLE item%s PARTITION OF item FOR VALUES IN (%1\$s)', i);
    END LOOP;
END \$\$;
SELECT ttl.create_container('item', 3600);
});

# When each has been looked at, the worker waits, though one run pays for few looks.
$node->wait_until(q{SELECT stopped_by = 'nothing left' FROM ttl.stat_reaper WHERE database = 'postgres'});
pass('a worker that has nothing to delete comes to rest');

# Rows of the first partition, a middle one and the last go, which come when the worker has begun to look.
for my $part (1, $partitions / 2, $partitions)
{
	$node->safe_psql('postgres', "INSERT INTO item (part, id, _ts) VALUES ($part, 1, '2020-01-01')");
	$node->is_emptied('item', "a row in partition $part of $partitions is deleted");
}

# A container that has no partition yet stands in nobody's way.
$node->safe_psql('postgres', q{
CREATE TABLE bare (part int, id int) PARTITION BY LIST (part);
SELECT ttl.create_container('bare', 3600);
SELECT ttl.set_default_ttl('bare', 3601);
INSERT INTO item (part, id, _ts) VALUES (1, 1, '2020-01-01');
});
$node->is_emptied('item', 'a container without partitions: rows of another go');
$node->safe_psql('postgres', q{CREATE TABLE bare1 PARTITION OF bare FOR VALUES IN (1); INSERT INTO bare (part, id, _ts) VALUES (1, 1, '2020-01-01')});
$node->is_emptied('bare', '... and its own as soon as it has one');
$node->safe_psql('postgres', 'DROP TABLE bare');

# Much in one of them isn't kept up by looks at the others.
my $cost = q{SELECT (SELECT cost FROM ttl.stat_containers), (SELECT cost_spent FROM ttl.stat_reaper WHERE database = 'postgres')};
$node->safe_psql('postgres', "INSERT INTO item (part, id, _ts) SELECT $partitions, g, '2020-01-01' FROM generate_series(1, 60000) g");
my $deleted = q{SELECT rows_deleted FROM ttl.stat_containers};
$node->wait_until("SELECT ($deleted) > 6000");
my ($before, $all_before) = split /\|/, $node->safe_psql('postgres', $cost);
$node->wait_until("SELECT ($deleted) > 48000");
my ($after, $all_after) = split /\|/, $node->safe_psql('postgres', $cost);
cmp_ok(($after - $before) / ($all_after - $all_before), '>', 0.6,
	sprintf('of what is spent, %.0f %% are for deletion', 100 * ($after - $before) / ($all_after - $all_before)));
$node->is_emptied('item', 'all go');

# Another database waits for the worker's place, so each lives for a cycle.
$node->turn_reaper('off');
$node->configure('ttl.cycle_cost_limit = 2000');
$node->safe_psql('postgres', 'CREATE DATABASE busy');
$node->safe_psql('busy', q{
CREATE EXTENSION ttl;
CREATE TABLE item (id int);
SELECT ttl.create_container('item', 1);
INSERT INTO item (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 500000) g;
});
my $log = -s $node->logfile;
$node->turn_reaper('on');
for my $part (1, $partitions)
{
	$node->safe_psql('postgres', "INSERT INTO item (part, id, _ts) SELECT $part, g, '2020-01-01' FROM generate_series(1, 100) g");
	$node->is_emptied('item', "rows in partition $part of $partitions are deleted by workers that live for a cycle");
}

# A row whose trigger sleeps takes such a worker's time, and the next one begins behind it.
$node->configure('ttl.batch_timeout = 300ms');
$node->safe_psql('postgres', q{
CREATE TABLE sleepy (id int);
CREATE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN OLD; END';
CREATE TRIGGER sleep BEFORE DELETE ON sleepy FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION sleep();
SELECT ttl.create_container('sleepy', 3600);
INSERT INTO sleepy (id, _ts) SELECT g, timestamptz '2020-01-01' + g * interval '1 s' FROM generate_series(1, 20) g;
});
$node->stored_are('sleepy', 1, 'rows behind one whose trigger sleeps are deleted by workers that live for a cycle');
cmp_ok($node->stored('item', undef, 'busy'), '>', 0, '... while another database has work');

$node->stop;
done_testing();
