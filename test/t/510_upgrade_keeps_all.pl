# pg_upgrade takes containers along as they are, expired rows and the state of
# reaping included.
#
# The old cluster is of the installation that "oldinstall" names, as in
# PostgreSQL's own test of pg_upgrade; ttl must be installed there, too.
# Without it, the cluster is upgraded to its own version.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $conf = <<'END';
shared_preload_libraries = 'ttl'
ttl.reaper = off
ttl.naptime = 100ms
timezone = 'UTC'
END

sub new_cluster
{
	my ($name, %options) = @_;
	my $node = TtlNode->new($name, %options);
	# the default is not the same in all versions
	$node->init(extra => ['--data-checksums']);
	return $node;
}

# Runs pg_upgrade; returns whether it succeeded, and what it said.
sub upgrade
{
	my ($old, $new, @options) = @_;
	my ($out, $err);

	# it writes to the current directory
	chdir $new->basedir or die;
	my $success = IPC::Run::run(
		[
			'pg_upgrade', '--no-sync',
			'-d', $old->data_dir, '-D', $new->data_dir,
			'-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
			'-s', $new->host, '-p', $old->port, '-P', $new->port,
			@options
		],
		'>', \$out, '2>', \$err);
	return ($success, "$out\n$err");
}

sub state_of
{
	my ($node) = @_;
	return $node->safe_psql('postgres', <<'END');
SELECT * FROM ttl.containers ORDER BY container::text COLLATE "C";
SELECT tgrelid::regclass, tgname, tgenabled FROM pg_trigger WHERE NOT tgisinternal ORDER BY tgrelid::regclass::text COLLATE "C", tgname;
SELECT pg_get_indexdef(indexrelid), indisvalid FROM pg_index WHERE indrelid >= 16384 AND indrelid IN (SELECT oid FROM pg_class WHERE relkind <> 't') ORDER BY pg_get_indexdef(indexrelid) COLLATE "C";
SELECT * FROM session ORDER BY id;
SELECT * FROM paused ORDER BY id;
SELECT * FROM parts ORDER BY id;
SELECT * FROM child ORDER BY id;
SELECT * FROM document ORDER BY id;
SELECT * FROM deadline ORDER BY id;
SET ttl.show_expired = on;
SELECT * FROM document ORDER BY id;
SELECT * FROM deadline ORDER BY id;
SELECT * FROM session ORDER BY id;
SELECT * FROM paused ORDER BY id;
SELECT * FROM parts ORDER BY id;
SELECT * FROM child ORDER BY id;
SELECT extversion, extconfig::regclass[] FROM pg_extension WHERE extname = 'ttl';
END
}

my $old = new_cluster('old', install_path => $ENV{oldinstall});
$old->append_conf('postgresql.conf', $conf);
$old->start;
$old->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE session (id int PRIMARY KEY, note text);
SELECT ttl.create_container('session', 3600);
INSERT INTO session (id, note, _ts, ttl) VALUES
    (1, 'expired', '2020-01-01 00:00:00.000001', NULL), (2, 'expired', '2020-01-01', 5), (3, 'expired', '-infinity', 7),
    (4, 'live', '2900-01-01', NULL), (5, 'live', '2020-01-01', -1), (6, 'live', 'infinity', 1);
CREATE TABLE archive (id int, note text);
CREATE TABLE paused (gone int, id int PRIMARY KEY, at timestamptz);
ALTER TABLE paused DROP gone;
SELECT ttl.create_container('paused', 60, 'at', NULL, touch_on_update => false);
SELECT ttl.alter_container('paused', reaping => false, reap_delay => '1 hour', archive_to => 'archive');
INSERT INTO paused VALUES (1, '2020-01-01'), (2, '2900-01-01');
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE parts2 (gone int, id int NOT NULL);
ALTER TABLE parts2 DROP gone;
ALTER TABLE parts ATTACH PARTITION parts2 FOR VALUES FROM (10) TO (20);
SELECT ttl.create_container('parts', 60);
INSERT INTO parts (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01'), (11, '2020-01-01'), (12, '2900-01-01');
CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES session ON DELETE CASCADE);
INSERT INTO child VALUES (1, 4), (2, 5);
SET row_security = off;
INSERT INTO child VALUES (3, 1);
CREATE TABLE document (id int PRIMARY KEY, doc jsonb, at timestamp);
SELECT ttl.create_container('document', 60, 'at', 'doc');
INSERT INTO document VALUES (1, '{"ttl": 5}', '2020-01-01'), (2, '{"ttl": -1}', '2020-01-01'), (3, NULL, '2020-01-01');
CREATE TABLE deadline (id int PRIMARY KEY, until timestamptz);
SELECT ttl.create_container('deadline', -1, ts_column => NULL, ttl_column => 'until');
INSERT INTO deadline VALUES (1, '2020-01-01'), (2, '2900-01-01'), (3, NULL);
CREATE DATABASE without;
SELECT ttl.pause();
END
my $state = state_of($old);
my $version = $old->pg_version;
$old->stop;

# The new cluster alone needs the library: the old one's catalogs and files are all that is read there.
$old->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");

{
	my ($success, $said) = upgrade($old, new_cluster('unprepared'), '--check');
	ok(!$success, 'pg_upgrade refuses a new cluster that does not load the library');
	like($said, qr/loadable libraries/, '... before it does anything');
}

# Copying is the default, and has no name before 16.  --link last: it makes the
# old cluster useless.
for my $mode ('', '--link')
{
	my $new = new_cluster($mode eq '' ? 'copied' : 'linked');
	$new->append_conf('postgresql.conf', "$conf\nttl.grace = 5min");
	if ($mode eq '')
	{
		# a cluster that has run before, and so is known to have been in service a moment ago
		$new->append_conf('postgresql.conf', 'ttl.reaper = on');
		$new->start;
		$new->wait_until(q{SELECT count(*) = 1 FROM pg_stat_file('ttl.last_seen', true) WHERE size IS NOT NULL});
		$new->stop;
		$new->append_conf('postgresql.conf', 'ttl.reaper = off');
	}
	my ($success, $said) = upgrade($old, $new, $mode || ());
	ok($success, join ' ', "pg_upgrade from $version to", $new->pg_version, $mode) or diag($said);
	$new->start;

	is(state_of($new), $state, '... containers are as they were');
	is($new->safe_psql('postgres', <<'END'), "1|t\nt", '... they hide, free keys and stamp');
BEGIN;
INSERT INTO session (id) VALUES (1) RETURNING id, _ts > '2025-01-01';
UPDATE session SET note = 'touched' WHERE id = 4 RETURNING _ts < '2800-01-01';
ROLLBACK;
END

	# a dump of it is a dump as any other
	$new->safe_psql('postgres', 'CREATE DATABASE restored');
	command_ok([ 'pg_dump', '-h', $new->host, '-p', $new->port, '-f', $new->basedir . '/dump', 'postgres' ], '... it can be dumped');
	command_ok(
		[ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-h', $new->host, '-p', $new->port, '-f', $new->basedir . '/dump', 'restored' ],
		'... and restored');
	is($new->safe_psql('restored', 'SELECT count(*), count(*) FILTER (WHERE reaping) FROM ttl.containers'), '5|0', '... with reaping off');

	$new->turn_reaper('on');
	is($new->safe_psql('postgres', 'SELECT until FROM ttl.paused'), 'infinity', '... a pause goes along');
	$new->safe_psql('postgres', 'SELECT ttl.resume()');
	ok($new->poll_query_until('postgres', q{SELECT state LIKE 'kept until %' FROM ttl.status WHERE container = 'session'::regclass}),
		'... the old cluster may have been a copy of long ago, so there is a grace')
	  or diag($new->safe_psql('postgres', 'SELECT * FROM ttl.status'));
	$new->configure('ttl.grace = 0');
	$new->is_emptied('session', '... the reaper deletes');
	# twice: then it has looked at every container
	for (1 .. 2)
	{
		$new->safe_psql('postgres', <<'END');
INSERT INTO parts (id, _ts) VALUES (3, '2020-01-01');
SELECT ttl.set_default_ttl('parts', 60);
END
		$new->is_emptied('parts', '... from partitions, too');
	}
	$new->is_emptied('document', '... documents');
	$new->is_emptied('deadline', '... rows with deadlines');
	is($new->safe_psql('postgres', <<'END'), "{4,5,6}\n{2,12}\n{1,2}\n{2}\n{2,3}\n{1,2}\n0", '... of what has expired, but leaves what it is told to leave');
SET ttl.show_expired = on;
SELECT array_agg(id ORDER BY id) FROM session;
SELECT array_agg(id ORDER BY id) FROM parts;
SELECT array_agg(id ORDER BY id) FROM child;
SELECT array_agg(id ORDER BY id) FROM document;
SELECT array_agg(id ORDER BY id) FROM deadline;
SELECT array_agg(id ORDER BY id) FROM paused;
SELECT count(*) FROM archive;
END
	is($new->safe_psql('postgres', "SELECT ttl.alter_container('paused', reaping => true, reap_delay => '0')"), '', '... until told otherwise');
	ok( $new->poll_query_until('postgres', 'SELECT count(*) = 1 FROM archive'), '... what it then deletes is archived');
	$new->stop;
}

done_testing();
