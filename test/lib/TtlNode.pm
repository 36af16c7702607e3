# TtlNode.pm - a server with ttl, and what TAP tests do with it again and again
#
# A PostgreSQL::Test::Cluster with more methods.  Those that take a name test
# something and print a line of TAP, the others do something or die.
package TtlNode;

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @ISA = ('PostgreSQL::Test::Cluster');

# As PostgreSQL 17 does: a data directory is a copy of one, which make tap-check has made for all tests.
sub init
{
	my ($self, %params) = @_;
	my $run = \&PostgreSQL::Test::Utils::system_or_bail;

	no warnings 'redefine';
	local *PostgreSQL::Test::Utils::system_or_bail = sub {
		return $run->('cp', '-RPp', $ENV{INITDB_TEMPLATE}, $self->data_dir)
		  if $_[0] eq 'initdb' && $ENV{INITDB_TEMPLATE} && !$params{extra};
		return $run->(@_);
	};
	$self->SUPER::init(%params);
	return;
}

# A server that runs, with ttl preloaded and these settings; the rest is for init().
sub start_new
{
	my ($class, $name, $settings, %init) = @_;
	my $self = $class->new($name);

	$self->init(%init);
	$self->append_conf('postgresql.conf', "shared_preload_libraries = 'ttl'\n" . ($settings // ''));
	$self->start;
	return $self;
}

# A server of a backup, which is not started yet.  It reaps, and does not archive: its timelines are its own business.
sub new_of_backup
{
	my ($class, $name, $from, $backup, $settings, %how) = @_;
	my $self = $class->new($name);

	$self->init_from_backup($from, $backup, %how);
	$self->append_conf('postgresql.conf', "archive_mode = off\nttl.reaper = on\n" . ($settings // '') . "\n");
	return $self;
}

# As PostgreSQL's own, in one session: a psql for each look was a third of what all tests cost.
sub poll_query_until
{
	my ($self, $dbname, $query, $expected) = @_;
	my $end = 'end of the answer';

	$expected //= 't';
	my ($in, $out, $err, $psql);

	local %ENV = $self->_get_env();
	local $SIG{PIPE} = 'IGNORE';
	for (1 .. 20 * $PostgreSQL::Test::Utils::timeout_default)
	{
		($in, $out, $err) = (($query // '') . "\n;\n\\echo $end\n", '', '');
		$psql //= IPC::Run::start([ $self->installed_command('psql'), '-XAt', '-d', $self->connstr($dbname) ], '<', \$in, '>', \$out, '2>', \$err);

		# pump() dies when psql has ended, because there is no server or it went down
		if (eval { $psql->pump until $out =~ s/^$end\n//m; 1 })
		{
			chomp($out);
			if ($out eq $expected && $err eq '')
			{
				$psql->finish;
				return 1;
			}
		}
		else
		{
			eval { $psql->kill_kill };
			undef $psql;
		}
		usleep(50_000);
	}
	diag("timed out: $query\nexpected: $expected\nlast answer: $out\nerrors: $err");
	return 0;
}

# Changes settings of the server that runs.
sub configure
{
	my ($self, $settings) = @_;

	$self->append_conf('postgresql.conf', $settings);
	$self->reload;
	return;
}

# Waits until a query says true, or what is expected.
sub wait_until
{
	my ($self, $query, $expected, $database) = @_;

	$self->poll_query_until($database // 'postgres', $query, $expected // 't') or die "in vain: $query";
	return;
}

# Has no worker run, or lets the launcher start some.
sub turn_reaper
{
	my ($self, $value) = @_;

	$self->configure("ttl.reaper = $value");
	$self->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'ttl reaper'")
	  if $value eq 'off';
	return;
}

# The reaper commits asynchronously: waits until what it has done can be replicated.
sub wait_for_flush
{
	my ($self) = @_;

	$self->wait_until('SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()');
	return;
}

# All processes of a type ('ttl launcher', 'ttl reaper'), or those of a database
sub of_type
{
	my ($type, $database) = @_;

	return "FROM pg_stat_activity WHERE backend_type = '$type'" . (defined $database ? " AND datname = '$database'" : '');
}

sub pid_of
{
	my ($self, $type, $database) = @_;

	return $self->safe_psql('postgres', 'SELECT pid ' . of_type($type, $database));
}

sub processes_are
{
	my ($self, $type, $number, $name, $database) = @_;

	ok($self->poll_query_until('postgres', "SELECT count(*) = $number " . of_type($type, $database)), $name);
	return;
}

# There is one, and it is not that one.
sub process_is_not
{
	my ($self, $type, $pid, $name, $database) = @_;

	ok($self->poll_query_until('postgres', 'SELECT count(*) = 1 ' . of_type($type, $database) . " AND pid <> $pid"), $name);
	return;
}

# Adds rows that have expired to a table with an id.  The reaper doesn't expect
# backdated rows: a change of policy makes it look; TTL is then on.
sub add_expired
{
	my ($self, $table, $rows, $database) = @_;

	$self->safe_psql($database // 'postgres', qq{
INSERT INTO $table (id, _ts) SELECT g, '2020-01-01' FROM generate_series(1, $rows) g;
SELECT ttl.set_default_ttl('$table', coalesce(ttl.default_ttl('$table'), 3600))});
	return;
}

# A database with ttl, and a container c with 50 rows that have expired
sub create_expired
{
	my ($self, $database) = @_;

	$self->safe_psql($database, q{
CREATE EXTENSION ttl;
CREATE TABLE c (id int PRIMARY KEY);
SELECT ttl.create_container('c', 60);
INSERT INTO c (id, _ts) SELECT g, now() - interval '1h' FROM generate_series(1, 50) g});
	return;
}

# The number of rows that are there, expired ones included
sub stored
{
	my ($self, $table, $condition, $database) = @_;
	local $ENV{PGOPTIONS} = '-c ttl.show_expired=on';

	return $self->safe_psql($database // 'postgres', "SELECT count(*) FROM $table" . ($condition ? " WHERE $condition" : ''));
}

# Of the rows that are there so many will be left; ttl.expired_count doesn't count what others have locked.
sub stored_are
{
	my ($self, $table, $number, $name, $condition) = @_;
	local $ENV{PGOPTIONS} = '-c ttl.show_expired=on';

	ok($self->poll_query_until('postgres', "SELECT count(*) FROM $table" . ($condition ? " WHERE $condition" : ''), $number), $name);
	return;
}

# What has expired goes, if nobody has done it yet.
sub is_emptied
{
	my ($self, $table, $name, $database) = @_;

	ok($self->poll_query_until($database // 'postgres', "SELECT ttl.expired_count('$table') = 0"), $name);
	return;
}

# Columns of ttl.stat_containers
sub statistics
{
	my ($self, $columns, $table) = @_;

	return $self->safe_psql('postgres', "SELECT $columns FROM ttl.stat_containers WHERE container = '$table'::regclass");
}

sub fails
{
	my ($self, $sql, $sqlstate, $name, $message) = @_;
	my ($rc, undef, $stderr) = $self->psql('postgres', "\\set VERBOSITY verbose\n$sql");

	isnt($rc, 0, $name);
	like($stderr, qr/ERROR:  $sqlstate:/, '... with the right SQLSTATE');
	like($stderr, $message, '... and says so') if $message;
	return;
}

# A command for whose sake a worker has to go: PostgreSQL waits for that for five seconds.
sub works_at_once
{
	my ($self, $sql) = @_;
	my (undef, undef, $stderr) = $self->psql('postgres', $sql);

	is($stderr, '', "$sql works");
	return;
}

1;
