# Server.pm - a private server, and how work on it is measured
#
# PG_CONFIG chooses the installation.  Unix socket only; nothing of it is left behind.
package bench::Server;

use strict;
use warnings;

use Cwd ();
use File::Path ();
use File::Temp ();
use IPC::Open3;
use POSIX ();
use Time::HiRes qw(time);

my %running;

sub bindir
{
	chomp(my $dir = qx('@{[ $ENV{PG_CONFIG} // 'pg_config' ]}' --bindir));
	return $dir;
}

sub system_or_die
{
	my ($what, @command) = @_;

	system(@command) == 0 or die "$what failed\n";
	return;
}

# A server that runs, with these lines in its postgresql.conf; preload => '' for one without ttl.
sub start
{
	my ($class, %o) = @_;
	my $dir  = File::Temp::tempdir('ttl-bench-XXXXXX', DIR => $ENV{TMPDIR} // '/tmp');
	my $self = bless { dir => $dir, bin => bindir() }, $class;

	$running{$dir} = $self;
	system_or_die('initdb',
		"'$self->{bin}/initdb' -D $dir/data -U bench -A trust -E UTF8 --no-locale --no-sync > $dir/initdb.log");
	$self->configure(
		"listen_addresses = ''",
		"unix_socket_directories = '$dir'",
		"shared_preload_libraries = '" . ($o{preload} // 'ttl') . "'",
		'shared_buffers = ' . ($ENV{SHARED_BUFFERS} // '1GB'),
		'max_wal_size = 16GB',
		'checkpoint_timeout = 1h',
		'max_locks_per_transaction = 1000',
		'max_parallel_workers_per_gather = 0',
		'jit = off',
		'autovacuum = off',
		@{ $o{settings} // [] });
	system_or_die("starting a server (see $dir/log)",
		"'$self->{bin}/pg_ctl' -D $dir/data -l $dir/log -w start > $dir/start.log");
	open my $file, '<', "$dir/data/postmaster.pid" or die "no postmaster.pid";
	chomp($self->{pid} = <$file>);
	$self->sql('CREATE EXTENSION ttl') if ($o{preload} // 'ttl') =~ /\bttl\b/;
	return $self;
}

sub stop
{
	my $self = shift;

	delete $running{ $self->{dir} };
	close $_->{in} for values %{ $self->{sessions} };
	system("'$self->{bin}/pg_ctl' -D $self->{dir}/data -m immediate -w stop > /dev/null 2>&1");
	File::Path::remove_tree($self->{dir});
	return;
}

# Leaves the data where they are, for who wants to look at them without a server.
sub shut_down
{
	my $self = shift;

	close $_->{in} for values %{ $self->{sessions} };
	$self->{sessions} = {};
	system_or_die('stopping the server', "'$self->{bin}/pg_ctl' -D $self->{dir}/data -w stop > /dev/null");
	return;
}

$SIG{$_} = sub { exit 1 } for qw(INT TERM HUP);
my $owner = $$;
END { my $status = $?; if ($$ == $owner) { $_->stop for values %running } $? = $status }

# Lines for postgresql.conf; a server that runs hears of them.
sub configure
{
	my ($self, @lines) = @_;

	open my $conf, '>>', "$self->{dir}/data/postgresql.conf" or die "no postgresql.conf";
	print $conf "$_\n" for @lines;
	close $conf;
	if ($self->{pid})
	{
		kill 'HUP', $self->{pid};
		Time::HiRes::sleep(0.3);
	}
	return;
}

#
# SQL
#

# Runs SQL in the session of that name, and returns what psql prints, unaligned, line by line.
sub in
{
	my ($self, $name, $sql) = @_;
	my $s = $self->{sessions}{$name} //= $self->open_session;
	my @lines;

	print { $s->{in} } "$sql;\n\\echo \@\@\n";
	while (defined(my $line = readline $s->{out}))
	{
		chomp $line;
		return wantarray ? @lines : $lines[0] if $line eq '@@';
		push @lines, $line;
	}
	delete $self->{sessions}{$name};
	die "the session has ended at: $sql\n";
}

sub sql { my ($self, $sql) = @_; return $self->in('main', $sql); }

# Runs SQL in a session that an error does not end, and returns its SQLSTATE.
sub sqlstate
{
	my ($self, $sql) = @_;

	$self->{sessions}{sqlstate} //= $self->open_session(quiet => 1);
	return ($self->in('sqlstate', "\\set ON_ERROR_STOP off\n$sql;\n\\echo :SQLSTATE\n"))[-1];
}

sub open_session
{
	my ($self, %o) = @_;
	my %s;

	open my $nowhere, '>', '/dev/null' or die 'no /dev/null';
	$s{psql} = open3($s{in}, $s{out}, '>&' . fileno($o{quiet} ? $nowhere : \*STDERR), "$self->{bin}/psql", '-XAtq', '-v', 'ON_ERROR_STOP=1',
		'-h', $self->{dir}, '-U', 'bench', 'postgres');
	$s{in}->autoflush(1);
	print { $s{in} } "SET client_min_messages = warning; SELECT pg_backend_pid();\n";
	chomp($s{backend} = readline $s{out});
	return \%s;
}

#
# Time
#

# Processor time of a session's backend so far, in ms
sub processor
{
	my ($self, $name) = @_;
	my $s = $self->{sessions}{ $name // 'main' };

	return process_time($s->{backend});
}

sub process_time
{
	my $pid = shift;

	open my $stat, '<', "/proc/$pid/schedstat" or die "no /proc/$pid/schedstat: this needs Linux\n";
	return (split ' ', <$stat>)[0] / 1e6;
}

# Runs SQL, and returns its processor time and elapsed time, in ms.
sub timed
{
	my ($self, $sql, $name) = @_;
	$name //= 'main';
	$self->{sessions}{$name} //= $self->open_session;
	my ($processor, $elapsed) = ($self->processor($name), time);

	$self->in($name, $sql);
	return ($self->processor($name) - $processor, (time - $elapsed) * 1000);
}

# Waits until the query says t.
sub wait_for
{
	my ($self, $query) = @_;

	for (1 .. 600)
	{
		return if $self->sql($query) eq 't';
		Time::HiRes::sleep(0.1);
	}
	die "in vain: $query\n";
}

# Pages that a statement looks at, each as often as it does, by what EXPLAIN says of the whole plan
sub pages
{
	my ($self, $statement) = @_;
	my $sum = 0;

	$self->sql($statement);
	my ($whole) = grep { /Buffers:/ } $self->sql("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) $statement");
	$sum += $_ for ($whole // '') =~ /(?:hit|read)=(\d+)/g;
	return $sum;
}

# What autovacuum has done, by its log (log_autovacuum_min_duration = 0), for each table: rows removed, bytes of WAL, seconds
sub vacuumed
{
	my $self = shift;
	my ($table, %work);

	open my $log, '<', "$self->{dir}/log" or die 'no log';
	while (<$log>)
	{
		$table = $1 if /automatic vacuum of table "postgres\.\w+\.(\w+)"/;
		$table = undef if /automatic analyze/;
		next if !defined $table;
		$work{$table}{dead} += $1 if /^\s*tuples: (\d+) removed/;
		$work{$table}{wal} += $1 if /^\s*WAL usage: .* (\d+) bytes/;
		$work{$table}{seconds} += $1 if /elapsed: ([\d.]+) s/;
	}
	return %work;
}

#
# pgbench
#

# Starts pgbench with scripts, and more options as they are.
sub start_pgbench
{
	my ($self, $scripts, @options) = @_;
	my $dir = "$self->{dir}/pgbench";

	File::Path::remove_tree($dir);
	mkdir $dir;
	for my $i (0 .. $#$scripts)
	{
		open my $file, '>', "$dir/$i.sql" or die "cannot write $dir/$i.sql";
		print $file $scripts->[$i];
		close $file;
		push @options, '-f', "$dir/$i.sql";
	}
	my $pid = fork // die 'cannot fork';
	if (!$pid)
	{
		chdir $dir;
		open STDOUT, '>', "$dir/output";
		open STDERR, '>&', \*STDOUT;
		exec "$self->{bin}/pgbench", '-n', '-h', $self->{dir}, '-U', 'bench', @options, 'postgres' or POSIX::_exit(1);
	}
	return { pid => $pid, dir => $dir };
}

# Waits until it ends, and returns what it has logged: { client, latency (us), script, time }.
sub end_pgbench
{
	my ($self, $run) = @_;
	my @log;

	waitpid $run->{pid}, 0;
	die 'pgbench failed: ' . qx(cat $run->{dir}/output) if $?;
	for my $name (glob "$run->{dir}/log.*")
	{
		open my $file, '<', $name or die "cannot read $name";
		while (my $line = <$file>)
		{
			my ($client, undef, $latency, $script, $s, $us) = split ' ', $line;
			push @log, { client => $client, latency => $latency, script => $script, time => $s + $us / 1e6 };
		}
	}
	return @log;
}

1;
