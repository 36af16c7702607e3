# The package is upgraded, the server restarted, the extension updated: containers are
# what they are at each step, also for sessions and a worker that were there before.
# A library that doesn't know the extension's version says so, and shows nothing and
# deletes nothing.
#
# The next version is made up: a script, and a library that knows it.  Both go into
# installations of this test's own, which PostgreSQL finds relative to its programs.
use strict;
use warnings;

use Cwd qw(realpath);
use FindBin;
use lib "$FindBin::RealBin/../lib";

use PostgreSQL::Test::Utils;
use Test::More;
use TtlNode;

my $top = realpath("$FindBin::RealBin/../..");
my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
my %dir;
chomp($dir{$_} = `$pg_config --$_`) for 'bindir', 'pkglibdir', 'sharedir';

-e "$top/ttl.so" && system("$pg_config --pgxs | xargs test -e && make --version > /dev/null 2>&1 && cc --version > /dev/null 2>&1") == 0
  or plan(skip_all => 'there is no build of ttl here to change');

sub do_or_die { system(@_) == 0 or die "failed: @_"; return; }

sub edit
{
	my ($file, $from, $to) = @_;
	my ($text, $time) = (slurp_file($file), (stat $file)[9]);

	$text =~ s/\Q$from\E/$to/ or die "no $from in $file";
	unlink $file;
	append_to_file($file, $text);
	return $time;
}

my $tempdir = PostgreSQL::Test::Utils::tempdir();

# A copy of the server; returns its install_path.
sub copy_server
{
	my ($name) = @_;
	my $root = "$tempdir/$name";

	for (sort keys %dir)
	{
		do_or_die('mkdir', '-p', "$root$dir{$_}");
		# programs find their files from where they are, not from where a link is
		do_or_die('cp', $_ eq 'bindir' ? '-R' : '-Rs', "$dir{$_}/.", "$root$dir{$_}");
	}
	install($name, $top);
	return $root . ($dir{bindir} =~ s,/bin$,,r);
}

# What "make install" does there
sub install
{
	my ($name, $from) = @_;
	my $root = "$tempdir/$name";

	do_or_die('cp', '--remove-destination', "$from/ttl.so", "$root$dir{pkglibdir}");
	do_or_die('cp', '--remove-destination', glob("$from/sql/ttl--*.sql"), "$from/ttl.control", "$root$dir{sharedir}/extension");
	return;
}

#
# The next version
#

my $next = "$tempdir/next";
do_or_die('mkdir', $next);
do_or_die('cp', '-a', map({ "$top/$_" } 'Makefile', 'META.json', 'ttl.control', 'src', 'sql'), $next);
edit("$next/ttl.control", "default_version = '1.0'", "default_version = '1.1'");
my $time = edit("$next/src/ttl.h", '"1.0.0"', '"1.1.0"');
# those that know versions are compiled anew, no others
utime $time, $time, "$next/src/ttl.h";
utime undef, undef, map { "$next/src/$_" } 'ttl.c', 'guc.c';
edit("$next/src/container/objects.c", 'OBJECTS_VERSION "1.0"', 'OBJECTS_VERSION "1.1"');
edit("$next/src/container/objects.c", 'strcmp(version, OBJECTS_VERSION) != 0', 'strcmp(version, OBJECTS_VERSION) != 0 && strcmp(version, "1.0") != 0');
append_to_file("$next/sql/ttl--1.0--1.1.sql", <<'END');
CREATE TABLE ttl.note (note text);
SELECT pg_catalog.pg_extension_config_dump('ttl.note', '');
CREATE OR REPLACE FUNCTION ttl.is_live(container regclass, _ts timestamptz, ttl integer) RETURNS boolean
    LANGUAGE C STABLE PARALLEL SAFE COST 2 AS 'MODULE_PATHNAME', 'ttl_is_live';
END
{
	local @ENV{ 'MAKEFLAGS', 'MAKELEVEL' };
	delete @ENV{ 'MAKEFLAGS', 'MAKELEVEL' };
	do_or_die("make -s -C $next with_llvm=no PG_CONFIG=$pg_config ttl.so");
}

#
# A primary and a standby of the old version
#

my $primary = TtlNode->new('primary', install_path => copy_server('primary'));
$primary->init(allows_streaming => 1);
$primary->append_conf('postgresql.conf', <<'END');
shared_preload_libraries = 'ttl'
ttl.naptime = 50ms
END
$primary->start;
$primary->backup('backup');
my $standby = TtlNode->new('standby', install_path => copy_server('standby'));
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

$primary->safe_psql('postgres', <<'END');
CREATE EXTENSION ttl;
CREATE TABLE item (id int PRIMARY KEY, note text);
SELECT ttl.create_container('item', 3600);
INSERT INTO item (id, note, _ts) VALUES (1, 'expired', '2020-01-01'), (2, 'live', '2900-01-01');
CREATE TABLE kept (id int PRIMARY KEY);
SELECT ttl.create_container('kept', 3600);
SELECT ttl.alter_container('kept', reaping => false);
INSERT INTO kept (id, _ts) VALUES (1, '2020-01-01'), (2, '2900-01-01');
CREATE TABLE plain (id int PRIMARY KEY);
INSERT INTO plain VALUES (1);
-- the worker stops in the midst of a batch
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN OLD; END';
CREATE TRIGGER wait BEFORE DELETE ON item FOR EACH ROW EXECUTE FUNCTION wait();
CREATE FUNCTION seen() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM kept); END';
CREATE DATABASE other;
END

# What a session does again and again, by plans that it keeps
my $again = 'EXECUTE n; SELECT seen(); EXECUTE put;';
my $prepare = q{SET plan_cache_mode = force_generic_plan; PREPARE n AS SELECT array_agg(id) FROM kept;
PREPARE put AS INSERT INTO kept (id) VALUES (1) ON CONFLICT (id) DO NOTHING RETURNING id};
my $answer = "{2}\n1\n1";

sub is_as_ever
{
	my ($session, $name) = @_;

	is($session->query_safe("BEGIN; $again ROLLBACK"), $answer, $name);
	return;
}

sub is_refused
{
	my ($node, $sql, $name, $database) = @_;
	my ($rc, undef, $stderr) = $node->psql($database // 'postgres', "\\set VERBOSITY verbose\n$sql");

	like($stderr, qr/ERROR:  55000: version "1\.1" of extension "ttl" needs a later library.*DETAIL:  The loaded library is of version 1\.0\.0\..*HINT:/s, $name);
	return;
}

my $session = $primary->background_psql('postgres');
$session->query_safe($prepare);
is_as_ever($session, 'before');
my $reader = $standby->background_psql('postgres', on_error_stop => 0);
$primary->wait_for_catchup($standby);
$reader->query_safe($prepare);
is($reader->query_safe('EXECUTE n'), '{2}', '... on the standby, too');

#
# The package is upgraded, and the server goes on as it was
#

install('primary', $next);
is_as_ever($session, 'installed: a session goes on');
is($primary->safe_psql('postgres', 'SHOW ttl.version; SELECT count(*) FROM kept'), "1.0.0\n1", '... and a new one does as before');
is($primary->safe_psql('postgres', q{SELECT module_name, version FROM pg_get_loaded_modules() WHERE file_name = 'ttl.so'}), 'ttl|1.0.0', '... as PostgreSQL 18 says, too')
  if $primary->pg_version >= 18;
is_refused($primary, 'ALTER EXTENSION ttl UPDATE', 'the extension is not updated before a restart');
is_refused($primary, 'CREATE EXTENSION ttl', '... nor created', 'other');
is($primary->safe_psql('other', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'ttl'}), '0', '... nor anything of it');
is($primary->safe_psql('other', q{CREATE EXTENSION ttl VERSION '1.0'; SELECT extversion FROM pg_extension WHERE extname = 'ttl'}),
	'1.0', '... unless in the old version');
is($primary->safe_psql('postgres', q{SELECT extversion FROM pg_extension WHERE extname = 'ttl'}), '1.0', 'it is what it was');
$session->quit;

#
# The server is restarted, on objects of the old version
#

$primary->safe_psql('postgres', 'ALTER TABLE item ENABLE ALWAYS TRIGGER wait');
$primary->restart;
my $lock = $primary->background_psql('postgres');
$lock->query_safe('SELECT pg_advisory_lock(1)');
is($primary->safe_psql('postgres', 'SHOW ttl.version'), '1.1.0', 'restarted: the new library is loaded');
$session = $primary->background_psql('postgres');
$session->query_safe($prepare);
is_as_ever($session, '... and serves the old objects');
is($primary->safe_psql('postgres', q{SELECT ttl.set_default_ttl('kept', 7200); SELECT ttl.default_ttl('kept')}), "\n7200", '... which it writes, too');

# a worker in the midst of its work
$primary->add_expired('item', 0);
$primary->safe_psql('postgres', q{INSERT INTO item (id, note, _ts) VALUES (3, 'expired', '2020-01-01'); SELECT ttl.set_default_ttl('item', 3600)});
$primary->wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'ttl reaper' AND wait_event = 'advisory'");
my $worker = $primary->pid_of('ttl reaper', 'postgres');

#
# The extension is updated
#

$primary->works_at_once('ALTER EXTENSION ttl UPDATE');
is_as_ever($session, 'updated: a session goes on, by plans that it had');
is($primary->safe_psql('postgres', q{SELECT ttl.set_default_ttl('kept', 3600); SELECT default_time_to_live FROM ttl.container WHERE relid = 'kept'::regclass}),
	"\n3600", '... policies are written as the new version has them');
$lock->query_safe('SELECT pg_advisory_unlock(1)');
$primary->is_emptied('item', '... the worker goes on');
is($primary->pid_of('ttl reaper', 'postgres'), $worker, '... and is the same');
is($primary->stored('kept'), '2', '... and deletes what it may, and no more');
$lock->quit;
is($primary->safe_psql('postgres', q{CREATE TABLE made (id int); SELECT ttl.create_container('made', 60); DROP TABLE made;
SELECT count(*) FROM ttl.container}), "\n2", '... containers come and go');

# The standby has the old library still: it doesn't know what it reads.
$primary->wait_for_catchup($standby);
is_refused($standby, 'SELECT * FROM kept', q{a standby with the old library shows nothing});
$reader->query('EXECUTE n');
like($reader->{stderr}, qr/needs a later library/, '... nor does a session that has read it before');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM plain'), '1', '... but of plain tables');
$reader->{stderr} = '';
$reader->quit;
install('standby', $next);
$standby->restart;
is($standby->safe_psql('postgres', 'SELECT array_agg(id) FROM kept'), '{2}', '... until it has the new one');

# A dump of it, restored
$primary->safe_psql('postgres', 'CREATE DATABASE restored');
$primary->safe_psql('postgres', "INSERT INTO ttl.note VALUES ('remember')");
my $dump = $primary->basedir . '/dump';
command_ok([ 'pg_dump', '-d', $primary->connstr('postgres'), '-f', $dump ], 'it can be dumped');
command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $primary->connstr('restored'), '-f', $dump ], '... and restored');
is($primary->safe_psql('restored', 'SELECT extversion FROM pg_extension WHERE extname = \'ttl\'; SELECT count(*) FROM kept; TABLE ttl.note'),
	"1.1\n1\nremember", '... in the new version');

#
# The old library comes back
#

$session->quit;
$primary->stop;
install('primary', $top);
my $log = -s $primary->logfile;
$primary->start;
is_refused($primary, 'SELECT * FROM kept', 'an older library shows nothing');
is_refused($primary, $_, "... does nothing: $_")
  for 'INSERT INTO kept (id) VALUES (7)', 'DELETE FROM kept', 'COPY kept TO STDOUT', 'DROP TABLE kept',
  q{SELECT ttl.set_default_ttl('kept', 60)}, 'CALL ttl.reap()', q{SELECT ttl.create_container('plain', 60)};
is($primary->safe_psql('postgres', 'UPDATE plain SET id = 2 RETURNING id; DROP TABLE plain'), '2', '... but to containers');
ok($primary->wait_for_log(qr/ERROR:  version "1\.1" of extension "ttl" needs a later library/, $log), '... the worker says so');
$primary->stop;
install('primary', $next);
$primary->start;
is($primary->safe_psql('postgres', 'SELECT array_agg(id) FROM kept'), '{2}', 'with its own library all is well');
$primary->stop;
install('primary', $top);
$primary->start;
is($primary->safe_psql('postgres', 'SET row_security = off; DROP EXTENSION ttl CASCADE; SELECT count(*) FROM kept'), '2', 'who wants no more of it can drop it');

$standby->stop;
$primary->stop;
done_testing();
