# panels.pl DASHBOARD PROMETHEUS SECONDS - draws the panels of a dashboard of Grafana, as SVG, by what Prometheus answers
#
# Each panel asks its own queries, over the last SECONDS; Grafana's variables match everything, and rates are those of ten seconds.
use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP;

use bench::Plot;

use constant { WIDTH => 460, HEIGHT => 270, TOP => 40 };

my ($file, $address, $seconds) = @ARGV;
my $end = int time;
my $dashboard = do { local (@ARGV, $/) = $file; decode_json(<>) };

# Series of a query: { metric, values => [ [ time, value ], ... ] }
sub series
{
	my ($query) = @_;
	$query =~ s/\$(?:server|datname)\b/.*/g;
	$query =~ s/\$__rate_interval/10s/g;
	$query =~ s/([^\w])/sprintf('%%%02X', ord $1)/ge;

	my $url = "http://$address/api/v1/query_range?query=$query&start=" . ($end - $seconds) . "&end=$end&step=1";
	my $response = HTTP::Tiny->new(timeout => 10, proxy => undef, no_proxy => '*')->get($url);
	die "$url: $response->{status} $response->{content}" if !$response->{success};
	return @{ decode_json($response->{content})->{data}->{result} };
}

sub name_of
{
	my ($legend, $metric) = @_;
	return $legend =~ s/\{\{(\w+)\}\}/$metric->{$1} \/\/ ''/ger;
}

# The last answer of each series, and the time series of a panel
sub last_answers
{
	my ($panel) = @_;
	return map { my $target = $_; map { [ name_of($target->{legendFormat}, $_->{metric}), @{ $_->{values}->[-1] } ] } series($target->{expr}) } @{ $panel->{targets} };
}

sub time_series
{
	my ($panel) = @_;
	my @curves;

	for my $target (@{ $panel->{targets} })
	{
		for my $series (series($target->{expr}))
		{
			my @points = map { [ $_->[0] - $end + $seconds, $_->[1] + 0 ] } grep { $_->[1] !~ /NaN|Inf/ } @{ $series->{values} };
			push @curves, [ name_of($target->{legendFormat}, $series->{metric}), @points ] if @points;
		}
	}
	# those that are never anything but 0 only fill the legend
	my @seen = grep { my @points = @$_; grep { $_->[1] } @points[ 1 .. $#points ] } @curves;
	return @seen ? @seen : @curves[ 0 .. ($#curves < 0 ? -1 : 0) ];
}

my %units = (s => 'seconds', ops => 'rows a second', percentunit => 'part');
my ($y, $body) = (TOP, '');
my $column = 0;
for my $panel (sort { $a->{gridPos}->{y} <=> $b->{gridPos}->{y} || $a->{gridPos}->{x} <=> $b->{gridPos}->{x} } @{ $dashboard->{panels} })
{
	if ($panel->{type} eq 'row')
	{
		$y += 30;
		$body .= bench::Plot::text(12, $y, $panel->{title}, size => 15, bold => 1);
		$y += 6;
	}
	elsif ($panel->{type} eq 'stat')
	{
		# the state that was reported last
		my ($last) = sort { $b->[1] <=> $a->[1] } last_answers($panel);
		$y += 18;
		$body .= bench::Plot::text(12, $y, "$panel->{title}  $last->[0] " . ($last->[2] + 0));
	}
	else
	{
		my @curves = time_series($panel);
		my $unit = $units{ $panel->{fieldConfig}->{defaults}->{unit} } // '';
		die "$panel->{title}: nothing to see\n" if !@curves;
		my $plot = bench::Plot::curves(title => $panel->{title}, x => 'second of the run', y => $unit, width => WIDTH, height => HEIGHT, curves => \@curves);
		my $x = $column * WIDTH;
		$body .= $plot =~ s/^<svg xmlns="\S+"/<svg x="$x" y="$y"/r;
		$y += HEIGHT if $column;
		$column = !$column || 0;
	}
}
print bench::Plot::svg(2 * WIDTH, $y + 10, $dashboard->{title}, $body);
