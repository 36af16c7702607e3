# ttl.grace: what a change of policy has made expired is hidden at once, and
# deleted by the worker only after a while.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $node = TtlNode->start_new('main', <<'END');
ttl.naptime = 100ms
ttl.grace = 1h
autovacuum = off
max_prepared_transactions = 5
END
$node->safe_psql('postgres', 'CREATE EXTENSION ttl');

sub sql { return $node->safe_psql('postgres', shift); }

sql(q{CREATE TABLE witness (id int); SELECT ttl.create_container('witness', 3600)});

# The worker has looked at the table, which a change of its definition makes it do, and then deleted in another.
my $looks = 100;
sub let_look
{
	my $table = shift;
	$looks++;
	sql("ALTER TABLE $table ALTER id SET STATISTICS $looks");
	for (1 .. 2)
	{
		$node->add_expired('witness', 1);
		$node->wait_until("SELECT ttl.expired_count('witness') = 0");
	}
	return;
}

sub wait_for_deletion
{
	my ($table, $condition, $what) = @_;
	$node->stored_are($table, 0, $what, $condition);
	return;
}

sub wait_until_noticed
{
	my $table = shift;
	$node->poll_query_until('postgres',
		"SELECT isfinite(grace_noticed_at) FROM ttl.container WHERE relid = '$table'::regclass")
	  or die 'not noticed';
	return;
}

sub change
{
	my $table = shift;
	return sql("SELECT grace_noticed_at IS NOT NULL FROM ttl.container WHERE relid = '$table'::regclass");
}

# 100 rows that live for an hour, and are ten minutes old; one more has expired
sub precious
{
	my ($table, $columns) = @_;
	$columns //= '';
	sql("CREATE TABLE $table (id int PRIMARY KEY $columns);
		SELECT ttl.create_container('$table', 3600);
		SELECT ttl.alter_container('$table', reaping => false);
		INSERT INTO $table (id, _ts) SELECT g, now() - interval '10 min' FROM generate_series(1, 100) g;
		INSERT INTO $table (id, _ts) VALUES (0, now() - interval '2h')");
	return;
}

sub go_on
{
	my $table = shift;
	sql("SELECT ttl.alter_container('$table', reaping => true)");
	return;
}

# the mistake
precious('precious');
is(change('precious'), 'f', 'an empty table is registered without grace');
go_on('precious');
wait_for_deletion('precious', 'id = 0', 'what has expired goes');
sql(q{SELECT ttl.alter_container('precious', reaping => false);
	INSERT INTO precious (id, _ts) VALUES (0, now() - interval '2h')});
my ($result, $out, $err) = $node->psql('postgres', "SELECT ttl.set_default_ttl('precious', 1)");
like($err, qr/NOTICE:  100 stored rows of container "precious" expire by this change/, 'told how many');
like($err, qr/Nothing is deleted as long as reaping is off/, 'and that nothing happens');
sql("SELECT ttl.set_default_ttl('precious', 3600)");
go_on('precious');
($result, $out, $err) = $node->psql('postgres', "SELECT ttl.set_default_ttl('precious', 1)");
like($err, qr/The reaper begins to delete them 3600 seconds after the change is committed/, 'told when');
like($err, qr/ttl.set_default_ttl\(..., 3600\) brings them back/, 'and how to take it back');
is(sql('SELECT count(*) FROM precious'), 0, 'hidden at once');
wait_until_noticed('precious');
let_look('precious');
is($node->stored('precious'), 101, 'all stay, also what has expired by time alone');

# ... which the view says, and until when
sub is_held
{
	my ($table, $condition, $what) = @_;
	is(sql("SELECT $condition FROM ttl.stat_containers s JOIN ttl.container c ON c.relid = s.container
			WHERE relid = '$table'::regclass"), 't', $what);
	return;
}
is_held('precious', q{held_until = grace_noticed_at + interval '1h'}, 'held by ttl.grace');
sql(q{SELECT ttl.alter_container('precious', reaping => false)});
is_held('precious', q{held_until = 'infinity'}, 'held as long as reaping is off');
sql(q{SELECT ttl.alter_container('precious', reaping => true, reap_delay => '1 day')});
is_held('precious', q{held_until + lag - clock_timestamp() BETWEEN '23h' AND '1 day'},
	'held by reap_delay, which is longer');
sql(q{SELECT ttl.alter_container('precious', reap_delay => '0')});

# another one, while it lasts
my $began = q{SELECT grace_began_at FROM ttl.container WHERE relid = 'precious'::regclass};
my $first = sql($began);
$node->psql('postgres', "SELECT ttl.set_default_ttl('precious', 2); SELECT ttl.set_default_ttl('precious', 1)");
wait_until_noticed('precious');
is(sql($began), $first, 'several changes are one');
let_look('precious');
is($node->stored('precious'), 101, 'after a second mistake all stay');

# it is durable
$node->restart;
let_look('precious');
is($node->stored('precious'), 101, 'a new worker knows it');

# taken back: what is left lasts to its end, for an earlier change may have been another mistake
sql(q{SELECT ttl.set_default_ttl('precious', 3600)});
is(sql('SELECT count(*) FROM precious'), 100, 'taken back');
is(change('precious'), 't', '... the grace lasts to its end');
$node->configure('ttl.grace = 0');
wait_for_deletion('precious', 'id = 0', '... then what has expired goes');
$node->configure('ttl.grace = 1h');

# rolled back, in whole and in part
precious('rolled_back');
$node->psql('postgres', "BEGIN; SELECT ttl.set_default_ttl('rolled_back', 1); ROLLBACK");
$node->psql('postgres', "BEGIN; SAVEPOINT s; SELECT ttl.set_default_ttl('rolled_back', 1); ROLLBACK TO s; COMMIT");
is(change('rolled_back'), 'f', 'rolled back');

# off and on again: everything has been visible
my $noticed = q{SELECT grace_noticed_at FROM ttl.container WHERE relid = 'precious'::regclass};
my $before = sql($noticed);
sql(q{SELECT ttl.set_default_ttl('precious', NULL);
	INSERT INTO precious (id, _ts) VALUES (0, now() - interval '2h');
	SELECT ttl.set_default_ttl('precious', 3600)});
wait_until_noticed('precious');
cmp_ok(sql($noticed), 'gt', $before, 'turned off and on');
sql('INSERT INTO precious (id, ttl) VALUES (203, 1)');
$node->wait_until('SELECT count(*) = 0 FROM precious WHERE id = 203');
let_look('precious');
is($node->stored('precious'), 102, 'all stay');

# explicit words
sql('INSERT INTO precious VALUES (0)');
is($node->stored('precious', 'id = 0'), 1, 'INSERT does not wait');
$node->psql('postgres', "SELECT ttl.set_default_ttl('precious', 1)");
wait_until_noticed('precious');
($result, $out, $err) = $node->psql('postgres', "CALL ttl.reap('precious')");
like($err, qr/10[12] expired rows deleted/, 'nor does CALL');

# Turned on
sql(q{CREATE TABLE turned_on (id int);
	SELECT ttl.create_container('turned_on');
	INSERT INTO turned_on (id, ttl, _ts) SELECT g, 60, now() - interval '1h' FROM generate_series(1, 100) g;
	SELECT ttl.set_default_ttl('turned_on', -1)});
wait_until_noticed('turned_on');
let_look('turned_on');
is($node->stored('turned_on'), 100, 'turned on: rows stay');

# Registered, with a column that was there
sql(q{CREATE TABLE registered (id int, created_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO registered SELECT g, now() - interval '1 day' FROM generate_series(1, 50) g});
($result, $out, $err) = $node->psql('postgres', "SELECT ttl.create_container('registered', 2, ts_column => 'created_at')");
like($err, qr/NOTICE:  50 stored rows of container "registered" expire/, 'registration tells, too');
wait_until_noticed('registered');
let_look('registered');
is($node->stored('registered'), 50, 'those that were there stay');

# Partitions: the one that has been attached is left alone, the others are not; rows in it keep what they reference
sql(q{CREATE TABLE parts (id int, parent int, _ts timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (id);
	CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (10000);
	CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (10000) TO (20000);
	SELECT ttl.create_container('parts', 2, ttl_column => NULL);
	CREATE TABLE empty (LIKE parts INCLUDING DEFAULTS);
	ALTER TABLE parts ATTACH PARTITION empty FOR VALUES FROM (30000) TO (40000)});
is(change('parts'), 'f', 'an empty table is attached');
sql(q{CREATE TABLE part3 (LIKE parts INCLUDING DEFAULTS);
	INSERT INTO part3 SELECT 20000 + g, 1, now() - interval '1h' FROM generate_series(0, 999) g;
	ALTER TABLE parts ATTACH PARTITION part3 FOR VALUES FROM (20000) TO (30000)});
is(change('parts'), 't', 'one with rows');
wait_until_noticed('parts');
sql(q{INSERT INTO parts (id) VALUES (1), (20001); INSERT INTO parts VALUES (2, 1, now() - interval '1h')});
wait_for_deletion('parts', 'id < 20000', 'rows in another partition go');
let_look('part3');
is($node->stored('part3'), 1001, 'all in the attached one stay');
sql(q{SELECT ttl.alter_container('parts', reaping => false);
	SELECT ttl.set_default_ttl('parts', 3600);
	INSERT INTO part2 SELECT 10000 + g, 1, now() - interval '20 min' FROM generate_series(0, 1999) g});
$node->psql('postgres', q{SELECT ttl.set_default_ttl('parts', 2); ALTER TABLE parts DETACH PARTITION part3});
go_on('parts');
go_on('part3');
wait_until_noticed('parts');
wait_until_noticed('part3');
let_look('part2');
let_look('part3');
is($node->stored('part2') . '|' . $node->stored('part3'), '2000|1001', 'no partition is emptied');

# The change counts from its commit
precious('prepared');
$node->psql('postgres', q{BEGIN; SELECT ttl.set_default_ttl('prepared', 1); PREPARE TRANSACTION 'change'});
sql('INSERT INTO prepared VALUES (300)');
$node->poll_query_until('postgres', q{SELECT clock_timestamp() > _ts + interval '1.1 s' FROM prepared WHERE id = 300});
sql(q{COMMIT PREPARED 'change'});
go_on('prepared');
wait_until_noticed('prepared');
let_look('prepared');
is($node->stored('prepared'), 102, 'what was written before the commit stays');
is(sql(q{SELECT grace_noticed_at - _ts > interval '1s' FROM ttl.container, prepared WHERE relid = 'prepared'::regclass AND id = 300}),
	'', 'they are hidden');
$node->psql('postgres', q{SET row_security = off;
	SELECT grace_noticed_at - _ts > interval '1s' FROM ttl.container, prepared WHERE relid = 'prepared'::regclass AND id = 300},
	stdout => \$out);
is($out, 't', 'grace counts from then');

# Also in a table that was empty when it was changed, and at the last moment
sql(q{CREATE TABLE filled (id int);
	SELECT ttl.create_container('filled', 3600);
	BEGIN; SELECT ttl.set_default_ttl('filled', 2); PREPARE TRANSACTION 'change'});
sql('INSERT INTO filled VALUES (1)');
sql(q{COMMIT PREPARED 'change'});
wait_until_noticed('filled');
$node->wait_until('SELECT count(*) = 0 FROM filled');
let_look('filled');
is($node->stored('filled'), 1, 'what was written right before the commit stays');

# Nothing that was on its list before goes: a change and back again
precious('listed');
sql(q{DELETE FROM listed WHERE id = 0;
	SELECT ttl.set_default_ttl('listed', 3600)});
# the first batch has 50 rows, and those after it what this limit pays for
$node->configure("ttl.grace = 0\nttl.cycle_cost_limit = 1");
$node->psql('postgres', q{SELECT ttl.set_default_ttl('listed', 60)});
go_on('listed');
wait_for_deletion('listed', 'id = 3', 'some of its list have gone');
$node->configure('ttl.grace = 1h');
my $left = (split /\n/, ($node->psql('postgres', q{
	SELECT ttl.set_default_ttl('listed', 3600);
	SELECT ttl.set_default_ttl('listed', 60);
	SET row_security = off;
	SELECT count(*) FROM listed}))[1])[-1];
cmp_ok($left, '>', 0, "$left rows are left");
wait_until_noticed('listed');
let_look('listed');
is($node->stored('listed'), $left, 'what was on its list stays');
$node->configure('ttl.cycle_cost_limit = 40000');

# What references a row that has expired by time alone, and is left alone, keeps it; also where it has been attached
$node->psql('postgres', q{
	CREATE TABLE parent (id int PRIMARY KEY);
	SELECT ttl.create_container('parent', 3600);
	CREATE TABLE child (id int REFERENCES parent, _ts timestamptz DEFAULT now());
	CREATE TABLE children (id int, _ts timestamptz NOT NULL DEFAULT now()) PARTITION BY RANGE (id);
	CREATE TABLE half PARTITION OF children (FOREIGN KEY (id) REFERENCES parent) FOR VALUES FROM (0) TO (100) PARTITION BY RANGE (id);
	SELECT ttl.create_container('children', 60, ttl_column => NULL);
	CREATE TABLE attached (LIKE children INCLUDING DEFAULTS);
	INSERT INTO parent (id, ttl) VALUES (1, -1), (2, -1), (3, -1);
	INSERT INTO child VALUES (1, now() - interval '1h');
	INSERT INTO attached VALUES (3, now() - interval '1h');
	ALTER TABLE half ATTACH PARTITION attached DEFAULT;
	SELECT ttl.create_container('child', 60, ts_column => '_ts')});
wait_until_noticed($_) for 'child', 'children';
sql('UPDATE parent SET ttl = 1');
wait_for_deletion('parent', 'id = 2', 'a row that nothing references goes');
$node->wait_until(q{SELECT blocked_rows = 2 FROM ttl.stat_containers WHERE container = 'parent'::regclass});
is(join('', map { $node->stored($_) } 'parent', 'child', 'children'), '211', 'those that rows in grace reference stay');

# While a change of its policy is on its way, rows of a table don't go along, since the grace is not known yet.
$node->configure('ttl.grace = 0');
sql(q{CREATE TABLE lender (id int PRIMARY KEY);
	SELECT ttl.create_container('lender', 60);
	CREATE TABLE loan (id int REFERENCES lender);
	SELECT ttl.create_container('loan', 3600);
	INSERT INTO lender (id, ttl) VALUES (1, -1);
	BEGIN; SELECT ttl.set_default_ttl('loan', 60); PREPARE TRANSACTION 'change'});
sql(q{INSERT INTO loan (id, _ts) VALUES (1, now() - interval '1 day'); UPDATE lender SET ttl = 1});
$node->wait_until(q{SELECT blocked_rows = 1 FROM ttl.stat_containers WHERE container = 'lender'::regclass});
sql(q{COMMIT PREPARED 'change'});
wait_for_deletion('lender', 'true', 'the row goes after the change');
$node->configure('ttl.grace = 1h');

# A policy that goes on changing is waited for no longer than ten times the grace, from the first change noticed.
sql(q{CREATE TABLE restless (id int); SELECT ttl.create_container('restless', 7200);
	INSERT INTO restless (id, _ts) SELECT g, now() - interval '1h' FROM generate_series(1, 10) g});
$node->configure('ttl.grace = 2s');
my $start = time;
$node->psql('postgres', q{
SET ttl.show_expired = on;
DO $$
DECLARE
	ttl integer := 3000;
BEGIN
	WHILE ttl > 2400 AND EXISTS (SELECT FROM restless) LOOP
		PERFORM ttl.set_default_ttl('restless', NULL);
		COMMIT;
		PERFORM ttl.set_default_ttl('restless', ttl);
		COMMIT;
		PERFORM pg_sleep(0.1);
		ttl := ttl - 1;
	END LOOP;
END $$});
my $took = time - $start;
cmp_ok($took, '<', 45, "rows of a policy that goes on changing are deleted after $took s");
cmp_ok($took, '>=', 15, '... having been waited for');
$began = q{SELECT grace_began_at FROM ttl.container WHERE relid = 'restless'::regclass};
$first = sql($began);
$node->wait_until(q{SELECT grace_noticed_at + interval '2s' < clock_timestamp() FROM ttl.container WHERE relid = 'restless'::regclass});
sql(q{SELECT ttl.set_default_ttl('restless', 1000)});
wait_until_noticed('restless');
cmp_ok(sql($began), 'gt', $first, 'when it has rested, a change is a new one');

# One that is noticed so late has its grace
$first = sql($began);
$node->configure('ttl.grace = 1s');
sql(q{SELECT ttl.set_default_ttl('restless', 900)});
# or it is never noticed, since what is prepared has the policy locked
wait_until_noticed('restless');
sql(q{BEGIN; SELECT ttl.set_default_ttl('restless', 60); PREPARE TRANSACTION 'change'});
$node->wait_until("SELECT ($began) + interval '11 s' < clock_timestamp()");
sql(q{COMMIT PREPARED 'change'});
wait_until_noticed('restless');
cmp_ok(sql($began), 'gt', $first, 'a change that is noticed after eleven graces is a new one, too');
$node->configure('ttl.grace = 1h');

# What is left alone costs next to nothing, however much it is, and is no alarm.
$node->configure('ttl.lag_warning = 1s');
sql(q{CREATE TABLE big (id int, _ts timestamptz NOT NULL);
	INSERT INTO big SELECT g, now() - interval '1 day' FROM generate_series(1, 100000) g});
my $log_start = -s $node->logfile;
$node->psql('postgres', q{SELECT ttl.create_container('big', 60, ts_column => '_ts')});
wait_until_noticed('big');
my $cycles = 'SELECT cycles, cost_spent FROM ttl.stat_reaper';
my ($cycles_before, $cost_before) = split /\|/, sql($cycles);
let_look('big') for 1 .. 5;
my ($cycles_after, $cost_after) = split /\|/, sql($cycles);
cmp_ok(($cost_after - $cost_before) / ($cycles_after - $cycles_before), '<', 500, 'a cycle costs little');
is($node->stored('big'), 100000, 'and deletes nothing');
unlike(slurp_file($node->logfile, $log_start), qr/has been behind/, 'no alarm');

# The end
$node->configure('ttl.grace = 1s');
wait_for_deletion($_, 'true', "when the grace has passed, all of $_ goes")
  for qw(turned_on registered part2 part3 prepared big child parent);

# The log knows who it was
like(slurp_file($node->logfile), qr/LOG:  role "\w+" has made table "public.precious" a container: default_ttl 3600/, 'registration is logged');
like(slurp_file($node->logfile), qr/LOG:  role "\w+" has changed the policy of container "public.precious": default_ttl from 3600 to 1\n/, 'so is a change');
like(slurp_file($node->logfile), qr/"public.precious": reaping from f to t\n/, 'of any setting');

done_testing();
