# Sessions that write the same few keys with rows that are expired when they come in:
# no ON CONFLICT updates an expired row, or gives way to one.  What a race leaves is
# 40001, which pgbench tries again.
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

$node->stop;
done_testing();
