# Sessions.pm - a server with a session store, and its load
#
# RATE requests/s of five seconds' worth of sessions, so that each session is renewed every five seconds on average; a session
# is used for 500 s, so that new ones come and old ones expire all the time.  The seed makes the load of all servers the same.  All
# settings of the table and of autovacuum are the defaults.
package bench::Sessions;

use strict;
use warnings;

use parent 'bench::Server';

my @columns = qw(table indexes vacuums inserted updated hot deleted wal);
my $figures = <<'END';
SELECT pg_relation_size(relid), pg_indexes_size(relid), autovacuum_count, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del,
       pg_current_wal_insert_lsn() - '0/0'
  FROM pg_stat_user_tables WHERE relname = 'session'
END

# A server with a table, which has a column expires_at if a session lives for "life" seconds by it, and what else is created;
# preload as in Server.pm
sub start
{
	my ($class, %o) = @_;
	my $self = $class->SUPER::start(preload => $o{preload}, settings => [
		'shared_buffers = 128MB', 'fsync = off', 'checkpoint_timeout = 5min', 'autovacuum = on', 'log_autovacuum_min_duration = 0', 'ttl.grace = 0' ]);

	@$self{qw(column value assignment)} = $o{life} ? (', expires_at', ", now() + interval '$o{life} s'", ', expires_at = excluded.expires_at') : ('') x 3;
	$self->sql('CREATE TABLE session (id uuid PRIMARY KEY, data text' . ($o{life} ? ', expires_at timestamptz NOT NULL' : '') . ')');
	$self->sql($o{create});
	return $self;
}

# Begins the load.  Which sessions are in use is counted from "start", the same for servers that are compared.
sub begin
{
	my ($self, $start, $rate, $seconds) = @_;
	my $active = $rate * 5;

	# Ten requests a transaction, of sessions in one order
	$self->{load} = $self->start_pgbench([ <<"END" ], '-c', 2, '-M', 'prepared', '--random-seed', 1, '-R', $rate / 10, '-T', $seconds);
\\set first random(0, $active / 10 - 1)
INSERT INTO session (id, data$self->{column})
	SELECT md5(n::text)::uuid, repeat('y', 200)$self->{value}
	  FROM (SELECT floor((extract(epoch FROM clock_timestamp()) - $start) * $active / 500)::int + :first + g * $active / 10
			  FROM generate_series(0, 9) g) s (n)
	ON CONFLICT (id) DO UPDATE SET data = excluded.data$self->{assignment};
END
	return;
}

# Waits for the end of the load, and returns the number of requests, and how late in ms they began at most.
sub end
{
	my $self = shift;

	$self->end_pgbench($self->{load});
	open my $file, '<', "$self->{load}{dir}/output" or die 'no output of pgbench';
	my $output = join '', <$file>;
	return ($output =~ /actually processed: (\d+)/ ? $1 * 10 : 0, $output =~ /schedule lag: .*max ([\d.]+)/ ? $1 : 0);
}

# What the table is like now, and what it has taken since the first call
sub figures
{
	my $self = shift;
	my %now;

	@now{@columns} = split /\|/, $self->sql($figures);
	$now{wal} -= $self->{wal_before} //= $now{wal};
	return \%now;
}

# A user signs in by a plain INSERT: the SQLSTATE
sub sign_in
{
	my ($self, $user) = @_;

	return $self->sqlstate("INSERT INTO session (id, data$self->{column}) SELECT md5('user $user')::uuid, repeat('y', 200)$self->{value}");
}

1;
