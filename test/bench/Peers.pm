# Peers.pm - how long an expired row shows, and how long it is stored, with ttl and with what else people use
#
# With each, rows that live five seconds come in, one every tenth of a second, while somebody looks every
# quarter of a second: which of them show, which are stored?  Seconds are counted from a row's expiry.
# What isn't installed is left out, and said so.
package bench::Peers;

use strict;
use warnings;

use Time::HiRes qw(time);

use bench::Measure;
use bench::Server;

use constant LIFE => 5;

# Makes table "item" (id, due): rows with ids are put in by insert(), seen() gives ids that a query of an
# application shows, stored() those that are there.  Each way has a server of its own.
my @ways = (
	{
		name    => 'ttl',
		says    => 'at its defaults',
		start   => sub { bench::Server->start },
		prepare => "CREATE TABLE item (id int PRIMARY KEY); SELECT ttl.create_container('item', @{[ LIFE ]})",
		insert  => 'INSERT INTO item VALUES (%d)',
		seen    => 'SELECT id FROM item',
		stored  => 'SET ttl.show_expired = on; SELECT id FROM item; RESET ttl.show_expired'
	},
	{
		name    => 'DELETE by pg_cron, a filter in each query',
		says    => 'once a minute',
		needs   => ['pg_cron'],
		start   => sub { bench::Server->start(preload => 'pg_cron', settings => [ "cron.database_name = 'postgres'", 'cron.use_background_workers = on' ]) },
		prepare => "CREATE EXTENSION pg_cron; CREATE TABLE item (id int PRIMARY KEY, due timestamptz DEFAULT clock_timestamp() + interval '@{[ LIFE ]} s'); CREATE INDEX ON item (due);"
		  . "SELECT cron.schedule('expire', '* * * * *', 'DELETE FROM item WHERE due <= now()')",
		insert => 'INSERT INTO item VALUES (%d)',
		seen   => 'SELECT id FROM item WHERE due > clock_timestamp()',
		stored => 'SELECT id FROM item'
	},
	{
		name    => 'DELETE by pg_cron, no filter',
		says    => 'once a minute',
		like    => 'DELETE by pg_cron, a filter in each query',
		seen    => 'SELECT id FROM item'
	},
	{
		name    => 'pg_partman, retention',
		says    => 'partitions and retention of 5 s, maintenance every 10 s',
		needs   => ['pg_partman'],
		start   => sub { bench::Server->start(preload => 'pg_partman_bgw', settings => [ 'pg_partman_bgw.interval = 10', "pg_partman_bgw.role = 'bench'", "pg_partman_bgw.dbname = 'postgres'" ]) },
		prepare => 'CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman;'
		  . 'CREATE TABLE item (id int, made timestamptz NOT NULL DEFAULT clock_timestamp()) PARTITION BY RANGE (made);'
		  . "SELECT partman.create_parent('public.item', 'made', {KIND}'@{[ LIFE ]} seconds', p_premake := 10);"
		  . "UPDATE partman.part_config SET retention = '@{[ LIFE ]} seconds', retention_keep_table = false, infinite_time_partitions = true",
		insert => 'INSERT INTO item VALUES (%d)',
		seen   => 'SELECT id FROM item',
		stored => 'SELECT id FROM item'
	},
	{
		# its own policies aren't in the edition that distributions ship
		name    => 'TimescaleDB, drop_chunks() by pg_cron',
		says    => 'chunks and retention of 5 s, every 10 s',
		needs   => [ 'timescaledb', 'pg_cron' ],
		start   => sub { bench::Server->start(preload => 'timescaledb, pg_cron', settings => [ "cron.database_name = 'postgres'", 'cron.use_background_workers = on', 'timescaledb.telemetry_level = off' ]) },
		prepare => 'CREATE EXTENSION timescaledb; CREATE EXTENSION pg_cron; CREATE TABLE item (id int, made timestamptz NOT NULL DEFAULT clock_timestamp());'
		  . "SELECT create_hypertable('item', 'made', chunk_time_interval => interval '@{[ LIFE ]} s');"
		  . "SELECT cron.schedule('expire', '10 seconds', \$\$SELECT drop_chunks('item', older_than => interval '@{[ LIFE ]} s')\$\$)",
		insert => 'INSERT INTO item VALUES (%d)',
		seen   => 'SELECT id FROM item',
		stored => 'SELECT id FROM item'
	});

sub is_installed
{
	my ($extension) = @_;
	chomp(my $dir = qx('@{[ $ENV{PG_CONFIG} // 'pg_config' ]}' --sharedir));
	return -e "$dir/extension/$extension.control";
}

# Puts rows in and looks, and returns for each row how long after its expiry it was seen, and stored.
sub watch
{
	my ($insert, $seen, $stored, $n, $patience) = @_;
	my (%due, %last);
	my $next = time;
	my $give_up;

	for (;;)
	{
		my $now = time;

		while (keys %due < $n && $next <= $now)
		{
			my $id = keys %due;
			$insert->($id);
			$due{$id} = time + LIFE;
			$next += 0.1;
		}
		for (([ seen => $seen ], [ stored => $stored ]))
		{
			my ($what, $look) = @$_;
			my $at = time;
			$last{$what}{$_} = $at for $look->();
		}
		$give_up //= time + LIFE + $patience if keys %due == $n;
		last if $give_up && (time > $give_up || !grep { ($last{stored}{$_} // 0) > time - 1 } keys %due);
		Time::HiRes::sleep(0.25);
	}
	return map {
		my $what = $_;
		[ map { my $late = ($last{$what}{$_} // 0) - $due{$_}; $late > 0 ? $late : 0 } keys %due ]
	} qw(seen stored);
}

# Runs SQL, again if it fails: to drop partitions under queries deadlocks now and then.
sub in_the_end
{
	my ($server, $failures, $sql) = @_;

	for (;;)
	{
		my @answer = eval { $server->sql($sql) };
		return @answer if !$@;
		die $@ if ++$$failures > 50;
	}
}

sub note
{
	my ($results, $name, $says, $seen, $stored) = @_;
	$results->add('peer', $name, $says, map { sprintf('%.1f', median(@$_)), sprintf('%.1f', (sort { $a <=> $b } @$_)[-1]) } $seen, $stored);
	return;
}

sub measure
{
	my ($results, %o) = @_;
	my ($n, $patience) = $o{quick} ? (50, 70) : (200, 70);
	my %way = map { $_->{name} => $_ } @ways;

	for my $way (@ways)
	{
		my %way = (%{ $way{ $way->{like} // '' } // {} }, %$way);

		my @needs = @{ $way{needs} // [] };

		if (my @missing = grep { !is_installed($_) } @needs)
		{
			print "  skipped: $way{name}: @missing not installed\n";
			next;
		}
		my $server = $way{start}->();
		my %version = map { $_ => scalar $server->sql("SELECT default_version FROM pg_available_extensions WHERE name = '$_'") } @needs;
		my $kind = ($version{pg_partman} // '') =~ /^4/ ? "'native', " : '';
		$server->sql($way{prepare} =~ s/\{KIND\}/$kind/r);
		my $failures = 0;
		my @late = watch((map { my $sql = $_; sub { in_the_end($server, \$failures, sprintf $sql, @_) } } @way{qw(insert seen stored)}), $n, $patience);
		note($results, $way{name}, join(', ', (map { "$_ $version{$_}" } @needs), $way{says}, $failures ? "$failures deadlocks" : ()), @late);
		$server->stop;
	}
	redis($results, $n, $patience);
	return;
}

# Redis hides a key by its clock, too, and deletes it when it is asked for, or comes upon it.
sub redis
{
	my ($results, $n, $patience) = @_;

	if (system('redis-server --version > /dev/null 2>&1') != 0)
	{
		print "  skipped: Redis is not installed\n";
		return;
	}
	my $dir = File::Temp::tempdir('ttl-bench-XXXXXX', DIR => $ENV{TMPDIR} // '/tmp', CLEANUP => 1);
	my $pid = fork // die 'cannot fork';
	if (!$pid)
	{
		open STDOUT, '>', '/dev/null';
		exec 'redis-server', '--port', '0', '--unixsocket', "$dir/s", '--save', '', '--dir', $dir or POSIX::_exit(1);
	}
	my $ask = sub { my @answer = qx(redis-cli -s $dir/s @_); chomp @answer; return @answer };
	my ($out, $in);
	for (1 .. 50) { last if -S "$dir/s"; Time::HiRes::sleep(0.1) }
	my ($version) = join(' ', $ask->('info server')) =~ /redis_version:(\S+?)\r?\s/;
	# DBSIZE counts what is stored; which keys they are, nobody can ask without deleting them
	my @ids = 0 .. $n - 1;
	my (%last, %due);
	my $start = time;
	my $left  = 1;
	while ($left > 0)
	{
		if (@ids && time - $start > keys(%due) * 0.1)
		{
			my $id = shift @ids;
			$ask->("set k$id 1 ex @{[ LIFE ]}");
			$due{$id} = time + LIFE;
		}
		($left) = $ask->('dbsize');
		# the earliest are the first to go
		my @by_due = sort { $due{$b} <=> $due{$a} } keys %due;
		my $now = time;
		$last{$_} = $now for @by_due[ 0 .. ($left > @by_due ? @by_due : $left) - 1 ];
		last if !@ids && $now > $start + $n * 0.1 + LIFE + $patience;
		Time::HiRes::sleep(0.02);
	}
	$ask->('shutdown nosave');
	waitpid $pid, 0;
	note($results, 'Redis', "Redis $version, keys with EX", [0], [ map { my $late = ($last{$_} // 0) - $due{$_}; $late > 0 ? $late : 0 } keys %due ]);
	return;
}

1;
