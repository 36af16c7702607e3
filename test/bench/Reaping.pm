# Reaping.pm - how fast a backlog goes, and how the lag falls
#
# CALL ttl.reap() against one DELETE and against the LIMIT loop that people write, without and with an
# old snapshot open.  Then the worker, whose lag is looked at every second.
package bench::Reaping;

use strict;
use warnings;

use Time::HiRes qw(time);

use bench::Measure;
use bench::Server;

my %ways = (
	'one DELETE'      => 'SET ttl.show_expired = on; DELETE FROM item; RESET ttl.show_expired',
	'CALL ttl.reap()' => "CALL ttl.reap('item')",
	'LIMIT loop'      => <<'END');
SET ttl.show_expired = on;
DO $$
DECLARE
	n bigint;
BEGIN
	LOOP
		DELETE FROM item WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM item WHERE ttl IS NULL AND _ts <= now() - interval '1 hour' ORDER BY _ts LIMIT 5000));
		GET DIAGNOSTICS n = ROW_COUNT;
		COMMIT;
		EXIT WHEN n = 0;
	END LOOP;
END $$;
RESET ttl.show_expired
END

# So many expired rows, an hour to ten hours after they did
sub fill
{
	my ($server, $rows) = @_;

	$server->sql('DROP TABLE IF EXISTS item; CREATE TABLE item (id int PRIMARY KEY, payload text)');
	$server->sql("SELECT ttl.create_container('item', 3600)");
	$server->sql("INSERT INTO item SELECT g, repeat('x', 60), now() - interval '11 hours' + g * interval '9 hours' / $rows FROM generate_series(1, $rows) g");
	# flushes WAL, so that VACUUM can mark pages as visible to all, as it has long done where rows expire
	$server->sql('CHECKPOINT');
	$server->sql('VACUUM (ANALYZE) item; CHECKPOINT');
	return;
}

sub measure
{
	my ($results, %o) = @_;
	my $server = bench::Server->start(settings => [ 'fsync = off', 'synchronous_commit = off', 'ttl.reaper = off', 'ttl.grace = 0' ]);
	my $rows   = $o{rows} / 2;

	for my $snapshot ('no old snapshot', 'an old snapshot open')
	{
		my %took;

		for my $round (1 .. $o{quick} ? 1 : 3)
		{
			for my $way (sort keys %ways)
			{
				fill($server, $rows);
				$server->in('old', 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1') if $snapshot =~ /^an/;
				my ($processor) = $server->timed($ways{$way});
				push @{ $took{$way} }, $processor;
				$server->in('old', 'COMMIT') if $snapshot =~ /^an/;
				my $left = $server->sql("SELECT ttl.expired_count('item')");
				die "$way left $left rows\n" if $left != 0;
			}
		}
		$results->ratio("deleting a backlog, $snapshot; one DELETE = 1", $_, $_ =~ /reap/ ? ($snapshot =~ /^an/ ? 1.2 : 1.1) : '',
			median(@{ $took{$_} }) / median(@{ $took{'one DELETE'} })) for sort keys %ways;
	}

	fill($server, $o{backlog} / 5);
	$server->configure('ttl.reaper = on');
	my $start = time;
	for (;;)
	{
		my ($lag, $left) = map { split /\|/ } $server->sql("SELECT coalesce(extract(epoch FROM lag), 0) / 3600, ttl.expired_count('item') FROM ttl.stat_containers");
		$results->point('lag', 'age of the oldest expired row, hours', sprintf('%.0f', time - $start), $lag);
		last if $left == 0 || time - $start > 300;
		Time::HiRes::sleep($o{quick} ? 1 : 3);
	}
	$server->stop;
	return;
}

1;
