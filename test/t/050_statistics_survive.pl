# Statistics survive a clean restart, and start from zero after a crash.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
END
my $file = $node->data_dir . '/pg_stat/ttl.stat';

$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE archive (id int);
CREATE TABLE item (id int PRIMARY KEY);
CREATE TABLE blocked (id int);
CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'not this one: %', old.id; END$$;
CREATE TRIGGER forbid BEFORE DELETE ON blocked FOR EACH ROW EXECUTE FUNCTION forbid();
SELECT ttl.create_container(t, 3600) FROM unnest('{item, blocked}'::regclass[]) t;
SELECT ttl.alter_container('item', archive_to => 'archive', reaping => false);
INSERT INTO item (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, 100) g;
INSERT INTO item (id) VALUES (1);
CALL ttl.reap('item');
INSERT INTO blocked (id, _ts) VALUES (1, '2020-01-01');
SELECT ttl.set_default_ttl('blocked', 3600);
});

my $statistics = q{
SELECT container, rows_deleted, rows_evicted, rows_archived, batches, cost, last_reap, blocked_rows, last_error, last_error_at
FROM ttl.stat_containers ORDER BY container::text};
my $counters = 'SELECT rows_deleted, rows_evicted, rows_archived FROM ttl.stat_containers ORDER BY container::text';
ok($node->poll_query_until('postgres', 'SELECT blocked_rows = 1 FROM ttl.stat_containers WHERE container = \'blocked\'::regclass'),
	'the worker has met a row that cannot go');
is($node->safe_psql('postgres', $counters), "0|0|0\n99|1|100", 'statistics');

# A transaction that goes on doesn't hide what its queries have used, of temporary tables either.
for my $kind ('', 'TEMP')
{
	is($node->safe_psql('postgres', qq{
CREATE $kind TABLE large AS SELECT g, repeat('x', 500) FROM generate_series(1, 10000) g;
BEGIN;
SELECT foreground_cost AS before FROM ttl.stat_reaper WHERE database = 'postgres' \\gset
SELECT count(*) FROM large \\g /dev/null
SELECT foreground_cost - :before >= 500 FROM ttl.stat_reaper WHERE database = 'postgres';
COMMIT;
DROP TABLE large;
}), 't', "cost of an open transaction $kind");
}

# The blocked row isn't tried again so soon, so nothing happens in between.
my $before = $node->safe_psql('postgres', $statistics);
my ($cycles, $foreground) = split /\|/, $node->safe_psql('postgres', 'SELECT cycles, foreground_cost FROM ttl.stat_reaper');
for my $mode ('fast', 'smart')
{
	$node->stop($mode);
	ok(-f $file, "$mode: the statistics are saved");
	my $log = -s $node->logfile;
	$node->start;
	$node->processes_are('ttl reaper', 1, "$mode: reaper is back");
	ok(!-f $file, "$mode: the file has gone");
	# cost and errors of "blocked" go on: a new worker finds the row anew
	is($node->safe_psql('postgres', "SELECT s::text FROM ($statistics) s WHERE container = 'item'::regclass"),
		$node->safe_psql('postgres', "SELECT '(' || replace(\$\$" . (split /\n/, $before)[1] . "\$\$, '|', ',') || ')'") =~
		  s/([0-9-]+ [0-9:.]+\+00)/"$1"/gr,
		"$mode: statistics of containers");
	is($node->safe_psql('postgres', $counters), "0|0|0\n99|1|100", "$mode: ... of all");
	is($node->safe_psql('postgres', 'SELECT blocked_rows, last_error FROM ttl.stat_containers WHERE last_error IS NOT NULL'),
		'1|not this one: 1', "$mode: ... errors, too");
	ok($node->safe_psql('postgres', "SELECT cycles >= $cycles AND foreground_cost >= $foreground FROM ttl.stat_reaper") eq 't',
		"$mode: statistics of the database");
	$node->safe_psql('postgres', 'SELECT pg_sleep(0.5)');
	unlike(slurp_file($node->logfile, $log), qr/not this one/, "$mode: what the log said it doesn't say again");
}

# A launcher that ends alone leaves nothing behind, and takes nothing twice.
my $pid = $node->pid_of('ttl launcher');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
ok( $node->poll_query_until(
		'postgres',
		"SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type IN ('ttl launcher', 'ttl reaper') AND pid <> $pid"),
	'another launcher');
is($node->safe_psql('postgres', $counters), "0|0|0\n99|1|100", '... changes nothing');
ok(!-f $file, '... and removes the file');

# A file that isn't right
$node->stop;
my $good = slurp_file($file);
my %bad = (
	'empty' => '',
	'cut off' => substr($good, 0, length($good) - 100),
	'of another version' => "\0\0\0\0" . substr($good, 4),
	'with nonsense' => substr($good, 0, 16) . ("\xff" x (length($good) - 16)));
for my $how (sort keys %bad)
{
	open my $out, '>:raw', $file or die $!;
	print $out $bad{$how};
	close $out;
	my $log = -s $node->logfile;
	$node->start;
	$node->processes_are('ttl reaper', 1, "a file $how: the reaper works");
	like(slurp_file($node->logfile, $log), qr/LOG:  ignoring invalid data in file "pg_stat\/ttl.stat"/, '... the log says so');
	ok(!-f $file, '... and it has gone');
	$node->stop('immediate');
	ok(!-f $file, '... nothing is saved by an immediate shutdown');
}

# A crash
open my $out, '>:raw', $file or die $!;
print $out $good;
close $out;
$node->start;
ok($node->poll_query_until('postgres', 'SELECT sum(rows_deleted) = 99 FROM ttl.stat_containers'), 'a file that is right');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', 'SELECT sum(rows_deleted), sum(rows_evicted) FROM ttl.stat_containers'), '0|0',
	'after a crash they start from zero');

$node->stop;
done_testing();
