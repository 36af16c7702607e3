# Latency.pm - what users feel while a backlog is deleted at the defaults
#
# One pgbench runs at a fixed rate all the time; turns without deletion and with it alternate under
# it.  A figure is the median of the ratios of a turn with deletion to the one without of its round.
package bench::Latency;

use strict;
use warnings;

use Time::HiRes qw(time);

use bench::Measure;
use bench::Server;

sub measure
{
	my ($results, %o) = @_;
	my ($rounds, $seconds, $rate) = $o{quick} ? (3, 2, 300) : (16, 6, 300);
	my $server = bench::Server->start(settings => [ 'autovacuum = on', 'ttl.reaper = off' ]);

	system("'$server->{bin}/pgbench' -i -s 10 -q -h $server->{dir} -U bench postgres > $server->{dir}/init.log 2>&1") == 0 or die 'pgbench -i failed';
	$server->sql("CREATE TABLE item (id int PRIMARY KEY, payload text); SELECT ttl.create_container('item', 3600)");
	$server->sql("INSERT INTO item SELECT g, repeat('x', 60), now() - interval '2 hours' FROM generate_series(1, $o{backlog}) g");
	$server->sql('VACUUM ANALYZE item; CHECKPOINT');

	my $run = $server->start_pgbench([], '-c', 4, '-R', $rate, '-T', $rounds * 2 * ($seconds + 2.5) + 10, '--log', '--log-prefix=log');
	my @turns;
	Time::HiRes::sleep(2);
	for my $round (1 .. $rounds)
	{
		for my $how ($round % 2 ? qw(off on) : qw(on off))
		{
			$server->configure("ttl.reaper = $how");
			Time::HiRes::sleep(1.5);
			my $deleted = $server->sql('SELECT sum(rows_deleted) FROM ttl.stat_containers');
			my $from = time;
			Time::HiRes::sleep($seconds);
			push @turns, { round => $round, how => $how, from => $from, to => time,
				deleted => ($server->sql('SELECT sum(rows_deleted) FROM ttl.stat_containers') - $deleted) / $seconds };
		}
	}
	my @log = $server->end_pgbench($run);
	my (%latency, @speeds);
	for my $turn (@turns)
	{
		my @mine = map { $_->{latency} } grep { $_->{time} > $turn->{from} && $_->{time} <= $turn->{to} } @log;

		$latency{ $turn->{round} }{ $turn->{how} } = { map { $_ => percentile($_, @mine) } 0.5, 0.95, 0.99 };
		push @speeds, $turn->{deleted} if $turn->{how} eq 'on';
	}
	for my $share (0.5, 0.95, 0.99)
	{
		$results->ratio("pgbench at $rate transactions/s beside deletion at the defaults", 'p' . 100 * $share, 1.05, '',
			median(map { $_->{on}{$share} / $_->{off}{$share} } values %latency));
	}
	$results->fact('rows deleted in a second at the defaults', sprintf('%.0f', median(@speeds)));
	$server->stop;
	return;
}

1;
