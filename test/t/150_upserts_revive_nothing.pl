# Sessions that write the same few keys with rows that are expired when they come in:
# no ON CONFLICT updates an expired row, or gives way to one.  What a race leaves is
# 40001, which pgbench tries again.  Whichever session is older meets what the other is writing.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $transactions = $ENV{UPSERT_TRANSACTIONS} || 100;
my $node = TtlNode->start_new('upserts', "ttl.reaper = off\n");

$node->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', 60);
CREATE TABLE wrong (what text);
CREATE FUNCTION note_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO wrong VALUES ('revived');
    RETURN NULL;
END $$;
CREATE TRIGGER note_update AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION note_update();
CREATE FUNCTION insert_or_nothing(ids int[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n int;
BEGIN
    INSERT INTO item (id, note, _ts) SELECT id, 'expired', '2020-01-01' FROM unnest(ids) id ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS n = ROW_COUNT;
    IF n <> cardinality(ids) THEN
        INSERT INTO wrong VALUES ('skipped');
    END IF;
END $$;
END

my %scripts = (
	'DO UPDATE' => <<'END',
\set id random(1, 5)
INSERT INTO item AS i (id, note, _ts) VALUES (:id, 'expired', '2020-01-01') ON CONFLICT (id) DO UPDATE SET note = i.note || ' revived';
END
	'DO UPDATE of several' => <<'END',
INSERT INTO item AS i (id, note, _ts) SELECT id, 'expired', '2020-01-01' FROM generate_series(1, 5) id ON CONFLICT (id) DO UPDATE SET note = i.note || ' revived';
END
	'DO NOTHING' => <<'END',
\set id random(1, 5)
SELECT insert_or_nothing(ARRAY[:id]);
END
	'DO NOTHING of several' => <<'END',
SELECT insert_or_nothing('{1,2,3,4,5}');
END
);

for my $name (sort keys %scripts)
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/script.sql';

	PostgreSQL::Test::Utils::append_to_file($file, $scripts{$name});
	for my $isolation ('read committed', 'repeatable read', 'serializable')
	{
		local $ENV{PGOPTIONS} = '-c default_transaction_isolation=' . ($isolation =~ s/ /\\ /r);
		my ($out, $err);
		my $done = IPC::Run::run(
			[ 'pgbench', '-n', '-c', 5, '-t', $transactions, '--max-tries=1000000', '-f', $file, $node->connstr('postgres') ],
			'>', \$out, '2>', \$err);

		ok($done, "$name, $isolation: goes on") or diag($out . $err);
		is($node->safe_psql('postgres', 'SELECT what, count(*) FROM wrong GROUP BY what'),
			'', "$name, $isolation: finds expired rows absent");
		$node->safe_psql('postgres', 'TRUNCATE wrong, item');
	}
	unlink($file);
}

# A bulk load has found that nothing has expired, but for the row that another session is just writing.
$node->safe_psql('postgres', <<'END');
CREATE FUNCTION wait_for(who text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF who = 'slow' THEN
        PERFORM pg_advisory_xact_lock(2);
    END IF;
    RETURN true;
END $$;
CREATE TABLE loaded (id int PRIMARY KEY, note text, CHECK (wait_for(note)));
SELECT ttl.create_container('loaded', 60);
END
for my $sessions ([ 'writer', 'loader' ], [ 'loader', 'writer' ])
{
	# of all sessions that have been, these are the first that write
	$node->restart;
	my %session = map { $_ => $node->background_psql('postgres', on_error_stop => 0) } @$sessions;
	my $holder = $node->background_psql('postgres');
	my $waiting = q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'};

	$holder->query_safe('SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
	$session{writer}->query_until(qr/begins/, "\\echo begins\nBEGIN; INSERT INTO loaded (id, note, _ts) VALUES (200, 'slow', '2020-01-01');\n");
	$node->wait_until($waiting, 1);
	$session{loader}->query_until(qr/begins/,
		"\\echo begins\nINSERT INTO loaded SELECT i, CASE i WHEN 150 THEN pg_advisory_xact_lock(1)::text END FROM generate_series(1, 300) i;\n");
	$node->wait_until($waiting, 2);
	$holder->query_safe('SELECT pg_advisory_unlock(2)');
	$node->wait_until($waiting, 1);
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	$node->wait_until(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'}, 1);
	$session{writer}->query('COMMIT');
	$session{loader}->query('SELECT 1');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM loaded'), '300', "its key is free if the $sessions->[0] is older");
	$node->safe_psql('postgres', 'TRUNCATE loaded');
	$_->quit for values %session, $holder;
}

$node->stop;
done_testing();
