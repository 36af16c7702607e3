# Measure.pm - turns, and medians of their ratios
package bench::Measure;

use strict;
use warnings;

use Exporter 'import';
our @EXPORT = qw(in_turn median percentile middle_mean);

# Runs both, each of which returns a list of figures, as many times, and returns the medians of the
# ratios of the first's figures to the second's.  Who is first changes; a turn before them isn't counted.
sub in_turn
{
	my ($rounds, $one, $other, %o) = @_;
	my @ratios;

	for my $round (0 .. $rounds)
	{
		my @figures;

		$o{before}->() if $o{before};
		for my $i ($round % 2 ? (1, 0) : (0, 1))
		{
			$figures[$i] = [ ($one, $other)[$i]->() ];
		}
		next if $round == 0;
		push @{ $ratios[$_] }, $figures[0][$_] / $figures[1][$_] for 0 .. $#{ $figures[0] };
	}
	return map { median(@$_) } @ratios;
}

sub median
{
	my @v = sort { $a <=> $b } @_;
	return @v % 2 ? $v[ @v / 2 ] : ($v[ @v / 2 - 1 ] + $v[ @v / 2 ]) / 2;
}

sub percentile
{
	my $share = shift;
	my @v = sort { $a <=> $b } @_;
	return $v[ $share * $#v ];
}

# Mean of the middle half, which is finer than the median of whole microseconds
sub middle_mean
{
	my @v = sort { $a <=> $b } @_;
	my @middle = @v[ @v / 4 .. @v * 3 / 4 ];
	my $sum = 0;

	$sum += $_ for @middle;
	return $sum / @middle;
}

1;
