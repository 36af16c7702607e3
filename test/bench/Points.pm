# Points.pm - single rows through pgbench, and what servers pay that only have ttl loaded
#
# Two clients of pgbench run at the same time, one on the container and one on the plain table, or one
# on either server.  Processor time is that of the clients' backends for a transaction, latency the mean
# of the middle half; a figure is the median of the ratios of all runs.
package bench::Points;

use strict;
use warnings;

use Time::HiRes qw(time);

use bench::Measure;
use bench::Server;

sub work
{
	my ($rows) = @_;
	my $id = "\\set id random(1, $rows)\n";

	return (
		[ 'read by key, simple',   1.02, 'simple',   "${id}SELECT payload FROM {T} WHERE id = :id;" ],
		[ 'read by key, extended', 1.02, 'extended', "${id}SELECT payload FROM {T} WHERE id = :id;" ],
		[ 'read by key, prepared', 1.02, 'prepared', "${id}SELECT payload FROM {T} WHERE id = :id;" ],
		[ 'UPDATE, prepared', 1.05, 'prepared', "${id}UPDATE {T} SET payload = payload{plain:, _ts = clock_timestamp()} WHERE id = :id;" ],
		[ 'INSERT, prepared', 1.05, 'prepared', "INSERT INTO {T} (k, payload) VALUES (1, 'x');" ],
		[ 'ON CONFLICT on live rows, prepared', 1.05, 'prepared',
			"${id}INSERT INTO {T} (id, k, payload) VALUES (:id, 1, 'x') ON CONFLICT (id) DO UPDATE SET k = 1{plain:, _ts = clock_timestamp()};" ]);
}

# What the first pays for a transaction, of what the second pays: processor time, and latency
sub ratios
{
	my ($scripts, $protocol, %o) = @_;
	my @pairs = map { [ run_for_a_while($o{servers}, $scripts, $protocol, $o{seconds}) ] } 1 .. $o{rounds};

	return map { my $what = $_; median(map { $_->[0]{$what} / $_->[1]{$what} } @pairs) } qw(processor latency);
}

# Runs a client for each of two scripts, in one pgbench if they have one server.  Returns for each what
# a transaction took, in us.
sub run_for_a_while
{
	my ($servers, $scripts, $protocol, $seconds) = @_;
	my ($one, $other) = @$servers;
	my @starts = $one == $other
	  ? [ $one, 2, "\\if :client_id = 0\n$scripts->[0]\n\\else\n$scripts->[1]\n\\endif\n" ]
	  : ([ $one, 1, $scripts->[0] ], [ $other, 1, $scripts->[1] ]);
	my @runs = map { $_->[0]->start_pgbench([ $_->[2] ], '-M', $protocol, '-c', $_->[1], '-T', $seconds + 1, '--log', '--log-prefix=log') } @starts;
	my @backends;

	do
	{
		Time::HiRes::sleep(0.1);
		@backends = map {
			$_->[0]->sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench' AND query ~ '\\m(SELECT|UPDATE|INSERT)\\M' ORDER BY query LIKE '%\\_plain%'")
		} @starts;
	} until @backends == 2;
	Time::HiRes::sleep(0.2);
	my @before = (time, map { bench::Server::process_time($_) } @backends);
	Time::HiRes::sleep($seconds - 0.2);
	my @after = (time, map { bench::Server::process_time($_) } @backends);
	my @log = map { my $i = $_; map { { %$_, client => $_->{client} + $i } } $starts[$i][0]->end_pgbench($runs[$i]) } 0 .. $#runs;

	return map {
		my $client = $_;
		my @mine = map { $_->{latency} } grep { $_->{client} == $client && $_->{time} > $before[0] && $_->{time} <= $after[0] } @log;
		{ processor => ($after[ 1 + $client ] - $before[ 1 + $client ]) * 1000 / @mine, latency => middle_mean(@mine) }
	} 0, 1;
}

sub measure
{
	my ($results, $server, %o) = @_;

	for (work($o{rows}))
	{
		my ($work, $goal, $protocol, $script) = @$_;
		my @scripts = ($script =~ s/\{T\}/container/r =~ s/\{plain:.*?\}//r, $script =~ s/\{T\}/container_plain/r =~ s/\{plain:(.*?)\}/$1/r);

		$results->ratio('single rows through pgbench', $work, $goal, ratios(\@scripts, $protocol, %o, servers => [ $server, $server ]));
		$server->sql('VACUUM container; VACUUM container_plain') if $script !~ /SELECT/;
	}
	return;
}

#
# Tables that are no containers
#

my @bystanders = (
	[ 'read by key, simple',   'simple',   "\\set id random(1, 10000)\nSELECT payload FROM bystander WHERE id = :id;" ],
	[ 'read by key, prepared', 'prepared', "\\set id random(1, 10000)\nSELECT payload FROM bystander WHERE id = :id;" ],
	[ 'UPDATE, prepared',      'prepared', "\\set id random(1, 10000)\nUPDATE bystander SET payload = payload WHERE id = :id;" ],
	[ 'count(*) of 10,000 rows, prepared', 'prepared', 'SELECT count(payload) FROM bystander;' ]);

sub make_bystander
{
	my ($server) = @_;

	$server->sql("CREATE TABLE bystander (id int PRIMARY KEY, payload text); INSERT INTO bystander SELECT g, repeat('x', 60) FROM generate_series(1, 10000) g");
	$server->sql('VACUUM (FREEZE, ANALYZE) bystander');
	return;
}

# $with has ttl and so many containers, $without doesn't load it.
sub measure_bystanders
{
	my ($results, $with, $without, $containers, %o) = @_;

	for (@bystanders)
	{
		my ($work, $protocol, $script) = @$_;

		$results->ratio("tables that are no containers, $containers containers beside them, against a server without ttl", $work, 1.01,
			ratios([ $script, $script ], $protocol, %o, servers => [ $with, $without ]));
		$_->sql('VACUUM bystander') for $with, $without;
	}
	return;
}

1;
