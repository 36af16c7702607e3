# Plot.pm - SVG by hand: bars and curves
#
# No background, and colours of a middle lightness: they can be read on white and on black.
package bench::Plot;

use strict;
use warnings;

use POSIX ();
use Exporter 'import';
our @EXPORT_OK = qw(bars curves);

use constant { TEXT => '#6e7781', GRID => '#8b949e' };
my @colours = ('#2f81f7', '#d4772c', '#2da44e', '#8957e5', '#bf3989', '#8b949e');

sub escaped { return $_[0] =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr }

sub text
{
	my ($x, $y, $text, %o) = @_;
	return sprintf qq{<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s"%s%s>%s</text>\n},
	  $x, $y, $o{anchor} // 'start', $o{colour} // TEXT, $o{size} ? qq{ font-size="$o{size}"} : '', $o{bold} ? ' font-weight="600"' : '', escaped($text);
}

sub line
{
	my ($x1, $y1, $x2, $y2, %o) = @_;
	return sprintf qq{<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%s" stroke-opacity="%s"%s/>\n},
	  $x1, $y1, $x2, $y2, $o{colour} // GRID, $o{width} // 1, $o{opacity} // 1, $o{dash} ? qq{ stroke-dasharray="$o{dash}"} : '';
}

sub svg
{
	my ($width, $height, $title, $body) = @_;
	return qq{<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" width="$width" height="$height" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="12" role="img">\n<title>}
	  . escaped($title) . "</title>\n" . text(12, 22, $title, size => 15, bold => 1) . $body . "</svg>\n";
}

# Horizontal bars.  Rows: { label, value, goal }, or { heading }.  A value on the far side of its goal
# has the second colour; the goal is a small mark.  A legend names the two colours.
sub bars
{
	my (%o) = @_;
	my ($left, $width, $step) = ($o{left} // 290, $o{width} // 760, 20);
	my $right = $width - 60;
	my $most  = $o{most};
	my $y     = $o{legend} ? 76 : 52;
	my $body  = '';
	my $x_of  = sub { my $v = shift; return $left + ($right - $left) * ($v > $most ? $most : $v) / $most };
	my $height = $y + 8;

	$height += $_->{heading} ? $step + 6 : $step for @{ $o{rows} };
	for my $i (0 .. $#{ $o{legend} // [] })
	{
		my $x = 12 + $i * $width * 0.4;
		$body .= sprintf qq{<rect x="%.1f" y="33" width="18" height="12" rx="2" fill="%s"/>\n}, $x, $colours[$i];
		$body .= line($x + 22, 31, $x + 22, 47, width => 2.5, colour => TEXT) if $i == 0;
		$body .= text($x + ($i == 0 ? 32 : 25), 43, $o{legend}[$i]);
	}
	for my $tick (@{ $o{ticks} })
	{
		my $x = $x_of->($tick);
		$body .= line($x, $y - 8, $x, $height - 8, opacity => $tick == 1 ? 0.9 : 0.3, width => $tick == 1 ? 1.5 : 1);
		$body .= text($x, $y - 14, $tick, anchor => 'middle', size => 11);
	}
	for my $row (@{ $o{rows} })
	{
		if ($row->{heading})
		{
			$y += 6;
			$body .= text(12, $y + 13, $row->{heading}, bold => 1);
			$y += $step;
			next;
		}
		my ($value, $goal) = @$row{qw(value goal)};
		my $colour = $row->{colour} // (defined $goal && sprintf('%.2f', $value) > $goal ? $colours[1] : $colours[0]);

		$body .= text(24, $y + 13, $row->{label});
		$body .= sprintf qq{<rect x="%.1f" y="%.1f" width="%.1f" height="12" rx="2" fill="%s"/>\n}, $left, $y + 3, $x_of->($value) - $left, $colour;
		$body .= line($x_of->($goal), $y + 1, $x_of->($goal), $y + 17, width => 2.5, colour => TEXT) if defined $goal;
		$body .= text($x_of->(defined $goal && $goal > $value ? $goal : $value) + 7, $y + 13, $row->{shown} // sprintf('%.2f', $value));
		$y += $step;
	}
	return svg($width, $height, $o{title}, $body);
}

#
# Curves
#

# Round numbers from one to the other, some five of them, or powers of ten
sub ticks
{
	my ($from, $to, $is_log) = @_;

	if ($is_log)
	{
		my ($a, $b) = map { POSIX::floor($_ + 1e-9) } log($from) / log(10), log($to) / log(10) + 0.999999;
		my @ticks = map { 10**$_ } $a .. $b;
		return @ticks > 2 ? @ticks : map { ($_, 2 * $_, 5 * $_) } @ticks;
	}
	my $step = 10**POSIX::floor(log(($to - $from) / 4) / log(10));
	for (2, 2.5, 2) { $step *= $_ if ($to - $from) / $step > 6 }
	return map { $_ * $step } POSIX::ceil($from / $step - 1e-9) .. POSIX::floor($to / $step + 1e-9);
}

sub short
{
	my $v = shift;
	my ($unit, $divisor) = $v >= 1e6 ? ('M', 1e6) : $v >= 1e4 ? ('k', 1e3) : ('', 1);
	return ($v >= 1 || $v == 0 ? sprintf('%.4g', $v / $divisor) : sprintf('%.3g', $v)) . $unit;
}

# Curves of points, [ [ name, [ x, y ], ... ], ... ], named at their ends below the plot.
sub curves
{
	my (%o) = @_;
	my ($left, $top, $width, $height) = (64, 56, $o{width} // 600, $o{height} // 340);
	my $rows   = POSIX::ceil(@{ $o{curves} } / 2);
	my $right  = $width - 24;
	my $bottom = $height - 46 - 20 * $rows;
	my @x      = map { map { $_->[0] } @$_[ 1 .. $#$_ ] } @{ $o{curves} };
	my @y      = map { map { $_->[1] } @$_[ 1 .. $#$_ ] } @{ $o{curves} };
	my ($x0, $x1) = (sort { $a <=> $b } @x)[ 0, -1 ];
	my ($y0, $y1) = (sort { $a <=> $b } @y)[ 0, -1 ];
	my $body = '';

	if ($o{log_y}) { ($y0, $y1) = (10**POSIX::floor(log($y0) / log(10)), 10**POSIX::ceil(log($y1) / log(10) + 1e-9)) }
	else { $y0 = 0; $y1 = ($o{at_least} // 0) > $y1 ? $o{at_least} : $y1 * 1.1 }
	my $scale = sub {
		my ($v, $v0, $v1, $from, $to, $is_log) = @_;
		($v, $v0, $v1) = map { log } $v, $v0, $v1 if $is_log;
		return $from + ($to - $from) * ($v1 == $v0 ? 0.5 : ($v - $v0) / ($v1 - $v0));
	};
	my $x_of = sub { $scale->($_[0], $x0, $x1, $left, $right, $o{log_x}) };
	my $y_of = sub { $scale->($_[0], $y0, $y1, $bottom, $top, $o{log_y}) };

	for my $tick (grep { $_ >= $y0 * 0.999 && $_ <= $y1 * 1.001 } ticks($y0, $y1, $o{log_y}))
	{
		$body .= line($left, $y_of->($tick), $right, $y_of->($tick), opacity => $tick == 0 ? 0.9 : 0.3);
		$body .= text($left - 8, $y_of->($tick) + 4, short($tick), anchor => 'end', size => 11);
	}
	for my $tick (grep { $_ >= $x0 * 0.999 && $_ <= $x1 * 1.001 } ticks($x0, $x1, $o{log_x}))
	{
		$body .= line($x_of->($tick), $bottom, $x_of->($tick), $bottom + 4, opacity => 0.9);
		$body .= text($x_of->($tick), $bottom + 18, short($tick), anchor => 'middle', size => 11);
	}
	$body .= text(12, 42, $o{y}, size => 11) . text(($left + $right) / 2, $bottom + 36, $o{x}, anchor => 'middle', size => 11);
	for my $i (0 .. $#{ $o{curves} })
	{
		my ($name, @points) = @{ $o{curves}[$i] };
		my $colour = $colours[ $i % @colours ];
		my @places = map { sprintf '%.1f,%.1f', $x_of->($_->[0]), $y_of->($_->[1]) } @points;
		my ($x, $y) = ($left + ($i % 2) * ($right - $left) / 2, $bottom + 58 + 20 * int($i / 2));

		$body .= qq{<polyline fill="none" stroke="$colour" stroke-width="2" stroke-linejoin="round" points="@places"/>\n};
		$body .= join('', map { my ($cx, $cy) = split /,/; qq{<circle cx="$cx" cy="$cy" r="2.6" fill="$colour"/>\n} } @places) if @places <= 20;
		$body .= line($x, $y - 4, $x + 18, $y - 4, colour => $colour, width => 3) . text($x + 25, $y, $name);
	}
	return svg($width, $height, $o{title}, $body);
}

1;
