# kill -9 of the postmaster at random moments, while rows are written and
# deleted.  A ledger outside of the database knows what was committed:
# nothing that has not expired may be lost, nothing expired may be shown, and no
# child may be without its parent.
#
# TTL_CRASH_ROUNDS sets the number of rounds.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep time);
use TtlNode;

my $rounds = $ENV{TTL_CRASH_ROUNDS} || 3;

# fsync = off as always in tests: the operating system doesn't crash
my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 10ms
synchronous_commit = on
max_connections = 20
END
$node->safe_psql('postgres', q{
CREATE EXTENSION ttl;
CREATE TABLE parent (id bigint PRIMARY KEY);
CREATE TABLE child (id bigint PRIMARY KEY, parent bigint NOT NULL REFERENCES parent ON DELETE CASCADE);
CREATE INDEX ON child (parent);
CREATE TABLE part (id bigint, at int) PARTITION BY LIST (at);
SELECT format('CREATE TABLE part%s PARTITION OF part FOR VALUES IN (%s)', g, g) FROM generate_series(0, 3) g \gexec
SELECT ttl.create_container('parent', 1000000);
SELECT ttl.create_container('child', 1000000);
SELECT ttl.create_container('part', 1000000);
});

# A writer: each transaction inserts rows that live and rows that die soon, and
# is entered in the ledger once its commit is known.
my $writer = <<'EOW';
use strict;
use warnings;
use IO::Handle;
use IPC::Open2;

my ($connstr, $ledger, $number, $i) = @ARGV;
open(STDERR, '>', '/dev/null');
$SIG{PIPE} = 'IGNORE';
open2(my $answer, my $psql, 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $connstr);
open(my $out, '>>', $ledger) or die;
$_->autoflush(1) foreach ($psql, $out);
for (;; $i++)
{
	my $a = $i * 1000 + $number * 100;
	print $psql qq{
BEGIN;
INSERT INTO parent (id, ttl) SELECT $a + g, CASE WHEN g < 40 THEN 1 + g % 2 END FROM generate_series(0, 49) g;
INSERT INTO child (id, parent) SELECT $a + g, $a + g FROM generate_series(0, 49) g;
INSERT INTO part (id, at, ttl) SELECT $a + g, $i % 4, CASE WHEN g < 40 OR $i % 4 < 2 THEN 1 END FROM generate_series(0, 49) g;
UPDATE parent SET ttl = NULL WHERE id = $a;
COMMIT;
\\echo $a
} or last;
	my $line = <$answer>;
	last if !defined $line || $line ne "$a\n";
	print $out "$a ", $i % 4, "\n";
}
EOW
my $script = "$PostgreSQL::Test::Utils::tmp_check/writer.pl";
append_to_file($script, $writer);
my @ledgers = map { "$PostgreSQL::Test::Utils::tmp_check/ledger$_" } 0 .. 2;
append_to_file($_, '') for @ledgers;

sub ledgers_size
{
	my $size = 0;

	$size += -s $_ for @ledgers;
	return $size;
}

# Checks what the ledgers know against what is stored.
my ($lost, $shown, $orphans, $committed) = (0, 0, 0, 0);

sub check
{
	my (%parent, %part);

	my $parents = $node->safe_psql('postgres', 'SELECT id FROM parent');
	my $children = $node->safe_psql('postgres', 'SELECT id FROM child');
	my $parts = $node->safe_psql('postgres', 'SELECT id FROM part');
	my %have = (p => {}, c => {}, t => {});
	$have{p}{$_} = 1 for split /\n/, $parents;
	$have{c}{$_} = 1 for split /\n/, $children;
	$have{t}{$_} = 1 for split /\n/, $parts;
	$committed = 0;
	for my $ledger (@ledgers)
	{
		for my $line (split /\n/, slurp_file($ledger))
		{
			my ($a, $at) = split / /, $line;
			$committed++;
			for my $id ($a, map { $a + $_ } 40 .. 49)
			{
				$lost++ unless $have{p}{$id} && $have{c}{$id};
			}
			next if $at < 2;
			for my $id (map { $a + $_ } 40 .. 49)
			{
				$lost++ unless $have{t}{$id};
			}
		}
	}
	# nothing that a look at the clock before the statement finds expired
	$shown += $node->safe_psql('postgres', q{
SELECT (SELECT count(*) FROM parent WHERE ttl IS NOT NULL AND _ts + ttl * interval '1s' <= statement_timestamp()) +
       (SELECT count(*) FROM part WHERE ttl IS NOT NULL AND _ts + ttl * interval '1s' <= statement_timestamp())});
	$orphans += $node->safe_psql('postgres', q{
SET ttl.show_expired = on;
SELECT count(*) FROM child WHERE NOT EXISTS (SELECT FROM parent WHERE parent.id = child.parent)});
}

my $next = 1;
for my $round (1 .. $rounds)
{
	my @writers;
	for my $n (0 .. 2)
	{
		push @writers, IPC::Run::start([ $^X, $script, $node->connstr('postgres'), $ledgers[$n], $n, $next ]);
	}
	# on a slow machine they need a while to begin
	my $before = ledgers_size();
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		last if ledgers_size() > $before;
		usleep(100_000);
	}
	usleep(300_000 + int(rand(3_000_000)));
	$node->kill9;
	$_->finish for @writers;
	$next += 100000;
	# children of the postmaster need a moment to notice
	for my $try (1 .. 50)
	{
		usleep(200_000);
		$node->{_pid} = undef;
		last if $node->start(fail_ok => 1);
	}
	check();
}
note("$rounds crashes, $committed transactions in the ledger");
cmp_ok($committed, '>', $rounds, 'something was committed');
is($lost, 0, 'no row is lost that has not expired');
is($shown, 0, 'no expired row is shown');
is($orphans, 0, 'no orphan');
# one at least: what else has expired may have been deleted, and counted, before the crash
$node->safe_psql('postgres', q{INSERT INTO parent (id, _ts) VALUES (0, '2020-01-01')});
ok($node->poll_query_until('postgres', q{SELECT ttl.expired_count('parent') + ttl.expired_count('part') = 0}),
	'all that is expired goes, in the end');
# it counts when it has committed
ok($node->poll_query_until('postgres', 'SELECT sum(rows_deleted) > 0 FROM ttl.stat_containers'), 'by the reaper');
check();
is($lost + $orphans, 0, 'and nothing else');
is($node->safe_psql('postgres', q{
CREATE EXTENSION amcheck;
SELECT count(*) FROM pg_class c, LATERAL bt_index_check(c.oid, true)
 WHERE c.relkind = 'i' AND c.relnamespace = 'public'::regnamespace}) > 0, 1, 'the indexes are sound');

$node->stop;
done_testing();
