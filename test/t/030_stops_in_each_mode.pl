# The server stops promptly in each mode while launcher and workers run, and
# goes on where it was.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

# Deletion in small bites, so that some is left to do whenever the server stops.
my $node = TtlNode->start_new('modes', <<'END');
ttl.naptime = 10ms
ttl.cycle_cost_limit = 500
END
$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int, note text);
SELECT ttl.create_container('item', 60);
INSERT INTO item (id, note, _ts) VALUES (0, 'live', '2900-01-01');
END

my $live = 1;
for my $mode ('fast', 'smart', 'immediate', 'fast')
{
	$node->safe_psql('postgres', <<'END');
INSERT INTO item (id, note, _ts) SELECT g, 'expired', '2020-01-01' FROM generate_series(1, 50000) g;
INSERT INTO item (id, note, _ts) VALUES (0, 'live', '2900-01-01');
SELECT ttl.set_default_ttl('item', 60);
END
	$live++;
	my $stored = $node->safe_psql('postgres', "SELECT ttl.expired_count('item')");
	ok($node->poll_query_until('postgres', "SELECT ttl.expired_count('item') < $stored"),
		"$mode: a worker deletes");
	my $log = -s $node->logfile;
	$node->stop($mode);
	unlike(
		slurp_file($node->logfile, $log),
		qr/(ERROR|PANIC):|terminated by signal/,
		"$mode: nobody complains");
	$node->start;
	is($node->safe_psql('postgres', 'SELECT note, count(*) FROM item GROUP BY note'),
		"live|$live", "$mode: after the start all live rows are there, and no other is seen");
}

# ... idle
for my $mode ('fast', 'smart')
{
	$node->configure('ttl.cycle_cost_limit = 1000000');
	$node->is_emptied('item', "$mode: nothing is left to do");
	$node->stop($mode);
	$node->start;
}
is($node->safe_psql('postgres', 'SET ttl.show_expired = on; SELECT note, count(*) FROM item GROUP BY note'),
	"live|$live", 'what was to go has gone');

# ttl.naptime may be long: a stop doesn't wait for it
$node->append_conf('postgresql.conf', "ttl.naptime = '1h'");
$node->restart;
$node->processes_are('ttl reaper', 1, 'a worker sleeps');
$node->stop('fast');

# What a single-user backend makes in a new cluster has numbers like those of catalogs
my $alone = TtlNode->new('alone');
$alone->init;
$alone->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'");
my $script = <<'END';
CREATE EXTENSION ttl;
CREATE TABLE item (id int);
SELECT ttl.create_container('item', 60);
INSERT INTO item (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');
SELECT id AS read FROM item;
END
ok(IPC::Run::run([ 'postgres', '--single', '-D', $alone->data_dir, 'postgres' ], '<', \$script, '>', \my $answer, '2>', \my $errors),
	'a single-user backend runs');
is(join(' ', $answer =~ /read = "(\d+)"/g), '2', '... and hides what has expired');
$alone->start;
is($alone->safe_psql('postgres', 'SELECT id FROM item'), '2', '... as the server does then');
$alone->is_emptied('item', '... which deletes it');
$alone->stop;

done_testing();
