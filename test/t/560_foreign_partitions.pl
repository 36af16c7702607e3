# Partitions on other servers, each a container there: the set-up that doc/sharding.md shows, command by
# command, on a front server and two back servers.  What has expired is seen through the front by no
# statement; each back server stamps, hides and deletes by itself.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $settings = <<'END';
autovacuum = off
ttl.naptime = 100ms
END
my $front = TtlNode->start_new('front', $settings);
my @back = map { TtlNode->start_new("back_$_", "${settings}ttl.reaper = off\n") } 1, 2;

# postgres_fdw wants a user who isn't a superuser to give a password
for (@back)
{
	unlink($_->data_dir . '/pg_hba.conf');
	$_->append_conf('pg_hba.conf', "local all app scram-sha-256\nlocal all all trust\n");
	$_->reload;
}

if ($front->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name IN ('postgres_fdw', 'dblink')}) != 2)
{
	plan skip_all => 'postgres_fdw and dblink are not installed';
}
$_->safe_psql('postgres', 'CREATE DATABASE app') for $front, @back;
$front->safe_psql('app', 'CREATE EXTENSION ttl');

# The answer to somebody at the front, "app" if not said otherwise
sub ask
{
	my ($sql, $role) = @_;
	$role //= 'app';

	return $front->safe_psql('app', ($role eq 'front' ? '' : "SET SESSION AUTHORIZATION app;\n") . $sql);
}

sub answers
{
	my ($sql, $expected, $name) = @_;

	is(ask($sql), $expected, $name);
	return;
}

# The same question to each of the back servers
sub backs
{
	my ($sql) = @_;

	return join(' ', map { $_->safe_psql('app', $sql) } @back);
}

# With what makes the front send as much as it can
my $together = 'SET enable_partitionwise_aggregate = on; SET enable_partitionwise_join = on; ' .
  'SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_nestloop = off; SET enable_hashagg = off; SET enable_sort = off;';

sub sends
{
	my ($sql, $pattern, $name) = @_;

	like(ask("$together EXPLAIN (VERBOSE, COSTS OFF) $sql"), qr/Remote SQL: $pattern/, "$name is sent");
	return;
}

# The page's commands
my %where = map { ("back-$_" => $back[ $_ - 1 ]) } 1, 2;
my @done;
my $page = slurp_file('doc/sharding.md');
while ($page =~ /^```sql (\w+)\n(.*?)^```/msg)
{
	my ($role, $sql) = ($1, $2);

	$sql =~ s/host '([^']+)'/"host '" . $where{$1}->host . "', port '" . $where{$1}->port . "'"/ge;
	push @done, $role eq 'back' ? backs($sql) : ask($sql, $role);
}
is(scalar(@done), 5, 'the commands of doc/sharding.md');
is(backs(q{SELECT ttl.default_ttl('session')}), '3600 3600', 'the policy has been changed on both servers');
is($done[4], "back_1|session|0||0\nback_2|session|0||0", 'their statistics are one answer');

# Rows that live, and rows that have expired, on both
ask(q{INSERT INTO session (id, who) SELECT 'live ' || g, 'who ' || g FROM generate_series(1, 20) g});
ask(q{INSERT INTO session (id, who, _ts) SELECT 'dead ' || g, 'who ' || g, now() - interval '2 hours' FROM generate_series(1, 20) g});
my $stored = q{SET row_security = off; SELECT count(*) > 15 FROM session WHERE id ~ 'dead|live'};
is(backs($stored), 't t', 'rows went to both servers');
is(backs(q{SELECT min(_ts) > now() - interval '1 minute' FROM session}), 't t', '... and were stamped there');

#
# What is read
#
for my $estimate (qw(true false))
{
	ask("ALTER SERVER back_$_ OPTIONS (" . ($estimate eq 'true' ? 'ADD' : 'SET') . " use_remote_estimate '$estimate')", 'front') for 1, 2;
	for my $setting ('', $together)
	{
		my $name = "use_remote_estimate $estimate" . ($setting ? ', together' : '');
		answers(<<"END", "20|0\n20\n20\n20\n0\n20\n20\nlive 1\nlive 10", $name);
$setting
SELECT count(*), count(*) FILTER (WHERE id ~ 'dead') FROM session;
SELECT count(*) FROM (SELECT id FROM session GROUP BY id) s;
SELECT count(*) FROM session a JOIN session b USING (id);
SELECT count(*) FROM session_1 a FULL JOIN session_2 b USING (id);
SELECT count(b.id) FROM generate_series(1, 20) g LEFT JOIN session b ON b.id = 'dead ' || g;
SELECT count(*) FROM (SELECT FROM session FOR UPDATE) s;
SELECT count(*) FROM (SELECT FROM session a JOIN session b USING (id) FOR SHARE) s;
SELECT id FROM session WHERE id = 'dead 1' UNION ALL SELECT id FROM session WHERE id ~ '^dead';
SELECT id FROM session ORDER BY id LIMIT 2;
END
	}
}
sends('SELECT id, count(*) FROM session GROUP BY id', qr/SELECT id, count\(\*\)/, 'an aggregate');
sends('SELECT * FROM session a JOIN session b USING (id)', qr/.* INNER JOIN /, 'a join');
like(ask('EXPLAIN SELECT * FROM session'), qr/Async Foreign Scan/, 'servers work at the same time');
ask('ANALYZE session');
is(ask(q{SELECT sum(reltuples) FROM pg_class WHERE relname IN ('session_1', 'session_2')}), '20', 'ANALYZE');
answers(q{SET row_security = off; SELECT count(*) FROM session}, '20', 'row_security does not travel');

#
# What is written
#
my $now = q{_ts > now() - interval '1 minute'};
backs(q{SET ttl.touch = off; UPDATE session SET _ts = now() - interval '30 minutes'});
my $young = "SELECT count(*) FROM session WHERE $now";
answers($young, '0', 'rows are half an hour old');

my $update = q{UPDATE session SET who = 'new' WHERE id IN ('live 1', 'dead 1')};
sends($update, 'UPDATE', 'an UPDATE');
answers("$update RETURNING id, $now", 'live 1|t', '... and stamped there, and finds nothing that has expired');
my $rows = q{FROM generate_series(1, 4) g WHERE s.id IN ('live ' || g, 'dead ' || g) AND random() >= 0};
sends("UPDATE session s SET who = 'row by row' $rows", qr/UPDATE public\.session SET who = \$2 WHERE ctid = \$1/, 'an UPDATE row by row');
answers("UPDATE session s SET who = 'row by row' $rows RETURNING s.id", "live 1\nlive 2\nlive 3\nlive 4", '... and finds nothing that has expired');
answers($young, '4', '... and is stamped');
answers("UPDATE session SET _ts = _ts WHERE id = 'live 5' RETURNING $now", 't', '... also if it assigns _ts');

answers(q{DELETE FROM session WHERE id ~ '^dead' OR id = 'live 20' RETURNING id}, 'live 20', 'a DELETE finds nothing that has expired');
answers(q{DELETE FROM session s USING generate_series(1, 20) g WHERE s.id IN ('live 19', 'dead ' || g) AND random() >= 0 RETURNING s.id}, 'live 19', '... row by row');
answers('SELECT count(*) FROM session', '18', '... and deletes what lives');

answers("INSERT INTO session (id, who) VALUES ('dead 1', 'new') RETURNING id, $now", 'dead 1|t', 'an INSERT on the key of an expired row');
answers(q{INSERT INTO session (id, who) SELECT 'dead ' || g, 'batch' FROM generate_series(2, 9) g; SELECT count(*) FROM session WHERE who = 'batch'}, '8', '... of many rows');
ok((grep { slurp_file($_->logfile) =~ /INSERT INTO public\.session\(id, who, _ts, ttl\) VALUES \(\$1, \$2, \$3, \$4\), \(\$5/ } @back) > 0, '... in one statement');
answers(q{INSERT INTO session (id, who) VALUES ('dead 1', 'twice'), ('dead 10', 'once') ON CONFLICT DO NOTHING RETURNING id}, 'dead 10', 'ON CONFLICT DO NOTHING');
answers(<<'END' . "SELECT count(*), count(*) FILTER (WHERE $now) FROM session WHERE who = 'copied'", '3|3', 'COPY');
COPY session (id, who) FROM STDIN;
dead 11	copied
dead 12	copied
fresh	copied
\.
END
answers(q{INSERT INTO session (id, ttl) VALUES ('own', 7200), ('ever', -1); UPDATE session SET ttl = 60 WHERE id = 'own' RETURNING ttl}, '60', 'TTLs of rows');
is(backs(q{SELECT count(*) FROM session WHERE id ~ 'dead (1[3-9]|20)'}), '0 0', 'what is left of the expired is hidden');

# A partition of a container there
$back[0]->safe_psql('app', <<'END');
CREATE TABLE parted (id int PRIMARY KEY, v int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (1) TO (100);
SELECT ttl.create_container('parted', 3600);
INSERT INTO parted (id, v, _ts) SELECT g, 0, now() - g * interval '30 minutes' FROM generate_series(1, 5) g;
ALTER TABLE parted OWNER TO app;
ALTER TABLE parted_1 OWNER TO app;
END
ask(q{CREATE FOREIGN TABLE parted (id int, v int, _ts timestamptz) SERVER back_1 OPTIONS (table_name 'parted_1')});
answers("SELECT id FROM parted; UPDATE parted SET v = 1 WHERE random() >= 0 RETURNING id, $now", "1\n1|t", 'a partition is written row by row');

# What does not go, and says so
sub fails
{
	my ($sql, $message, $role, $name) = @_;

	$front->psql('app', ($role eq 'app' ? "SET SESSION AUTHORIZATION app;\n" : '') . $sql, stderr => \my $stderr);
	like($stderr, $message, $name);
	return;
}
fails(q{INSERT INTO session (id) VALUES ('dead 1')}, qr/duplicate key value/, 'app', 'a key that a live row holds');
fails(q{INSERT INTO session (id, ttl) VALUES ('bad', 0)}, qr/invalid TTL/, 'app', 'a TTL of 0');
fails(q{INSERT INTO session (id) VALUES ('dead 1') ON CONFLICT (id) DO NOTHING}, qr/no unique or exclusion constraint/, 'app', 'ON CONFLICT on a key');
fails(q{MERGE INTO session s USING generate_series(1, 2) g ON s.id = 'live ' || g WHEN MATCHED THEN DELETE}, qr/cannot execute MERGE on relation/, 'app', 'MERGE');
fails(q{SELECT ttl.create_container('session', 60)}, qr/foreign table "session_1" cannot be a partition of a container.*HINT:  Register the table on the server that stores it/s,
	'front', 'a container at the front');

#
# Clocks
#

# A transaction of the front's is one of isolation level REPEATABLE READ there: the clock stands still.
ask(q{INSERT INTO session (id, ttl) VALUES ('brief', 3)});
my $count = q{SELECT count(*) FROM session WHERE id = 'brief';};
my $wait = q{DO $$ BEGIN
	WHILE EXISTS (SELECT FROM unnest(ARRAY['back_1', 'back_2']) AS server, dblink(server, 'SELECT id FROM session') AS d (id text) WHERE id = 'brief') LOOP
		PERFORM pg_sleep(0.05);
	END LOOP;
END $$;};
answers("BEGIN; $count $wait $count COMMIT; $count", "1\n1\n0", 'a row expires between transactions of the front');

# A policy counts from the next statement on, there, too.
my $policy = q{SELECT count(*) FROM unnest(ARRAY['back_1', 'back_2']) AS server, dblink(server, $$SELECT ttl.set_default_ttl('session', %s)::text$$) AS d (done text);};
answers("BEGIN; SELECT count(*) FROM session WHERE NOT $now; " . sprintf($policy, 60) . " SELECT count(*) FROM session WHERE NOT $now; COMMIT; " . sprintf($policy, 3600),
	"13\n2\n0\n2", 'a change of policy counts within one');

# Each server has its own.
$back[1]->safe_psql('app', q{ALTER ROLE app SET ttl.now = '2100-01-01'});
answers(q{SELECT DISTINCT tableoid::regclass FROM session WHERE ttl IS NULL}, 'session_1', 'each server judges by its own clock');
$back[1]->safe_psql('app', q{ALTER ROLE app RESET ttl.now});

#
# Deletion
#
my $live = backs('SELECT count(*) FROM session');
for (@back)
{
	isnt($_->safe_psql('app', q{SELECT ttl.expired_count('session')}), '0', 'there is something to delete');
	$_->turn_reaper('on');
	$_->is_emptied('session', '... which is deleted there', 'app');
}
is(backs('SET row_security = off; SELECT count(*) FROM session'), $live, 'what lives stays');

$_->stop for $front, @back;
done_testing();
