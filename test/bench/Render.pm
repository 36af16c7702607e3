# Render.pm - the page and the plots of what was measured
package bench::Render;

use strict;
use warnings;

use POSIX ();

use bench::ByHand;
use bench::Plot;
use bench::Registered;

# Curves: name of the plot, title, what the axes say, options
my @plots = (
	[ rows       => 'Rows in the table', 'rows', 'container / plain table', log_x => 1, at_least => 1.5 ],
	[ pages      => 'Pages that are looked at', 'rows in the table', 'pages', log_x => 1, at_least => 20 ],
	[ share      => 'Share of rows that have expired and are stored', '%', 'container / plain table', at_least => 1.5 ],
	[ partitions => 'Partitions', 'partitions', 'container / plain table', log_x => 1, at_least => 1.5 ],
	[ containers => 'Containers in the database, none with anything to delete', 'containers', 'processor time of the worker, ms in a second', log_x => 1, at_least => 5 ],
	[ lag        => 'A backlog goes, at the defaults', 'seconds', 'age of the oldest expired row, hours' ]);

sub first_line
{
	my ($command) = @_;
	my ($line) = qx($command 2> /dev/null) =~ /^(.*)$/m;
	return $line // '';
}

sub circumstances
{
	my ($processor) = slurp('/proc/cpuinfo') =~ /^model name\s*:\s*(.*)/m;
	my ($memory)    = slurp('/proc/meminfo') =~ /^MemTotal:\s*(\d+)/;
	my ($load)      = slurp('/proc/loadavg') =~ /^\S+ \S+ (\S+)/;
	my ($system)    = slurp('/etc/os-release') =~ /^PRETTY_NAME="(.*)"/m;

	return (
		[ 'date', POSIX::strftime('%Y-%m-%d', gmtime) ],
		[ 'PostgreSQL', first_line("'@{[ bench::Server::bindir() ]}/postgres' --version") =~ s/^\S+ \(PostgreSQL\) //r ],
		[ 'system', $system ],
		[ 'machine', sprintf('%d of %d cores of %s, %.0f GB', first_line('nproc'), first_line('nproc --all'), $processor // 'an unknown kind', $memory / 1e6) ],
		[ 'load of the last 15 minutes', $load ]);
}

# Which code is measured: the last commit that changed ttl itself, and whether it was changed since
sub code
{
	my $git = "cd '$FindBin::RealBin/../..' && git";
	return $ENV{COMMIT} // first_line("$git log -1 --abbrev=9 --format=%h -- src sql") . (first_line("$git status --porcelain src sql") ne '' ? ', changed' : '');
}

sub slurp
{
	my ($name) = @_;
	open my $file, '<', $name or return '';
	local $/;
	return scalar readline $file;
}

sub save
{
	my ($name, $text) = @_;
	open my $file, '>', $name or die "cannot write $name: $!\n";
	print $file $text;
	close $file;
	return;
}

# Tables of ratios, by section, in the order in which they came
sub ratios
{
	my ($results) = @_;
	my (%rows, @sections);

	for ($results->of('ratio'))
	{
		push @sections, $_->[0] if !$rows{ $_->[0] };
		push @{ $rows{ $_->[0] } }, $_;
	}
	return map { [ $_, $rows{$_} ] } @sections;
}

sub page
{
	my ($results, $dir) = @_;
	my %fact = map { @$_ } $results->of('fact');
	my %made = map { $_->[1] => 1 } $results->of('fact', 'made');
	my $text = "# What ttl costs on PostgreSQL @{[ $fact{PostgreSQL} // q() ]}\n\nMade by `test/bench/run`; [how](../../README.md). Ratios above 1: the container takes longer.  A goal is what the project wants a ratio not to exceed.\n\n";
	my @bars;

	$text .= join('', map { "- $_: $fact{$_}\n" } grep { defined $fact{$_} } 'date', 'machine', 'system', 'load of the last 15 minutes', 'rows deleted in a second at the defaults');
	$text .= '- commit: ' . join('; ', sort keys %made) . "\n" if %made;
	for (ratios($results))
	{
		my ($section, $rows) = @$_;

		$text .= "\n## " . ucfirst($section) . "\n\n| work | goal | processor time | elapsed time |\n| --- | --- | --- | --- |\n";
		push @bars, { heading => ucfirst $section };
		for (@$rows)
		{
			my (undef, $work, $goal, $processor, $elapsed) = @$_;
			my ($p, $e) = map { $_ eq '' ? '' : sprintf '%.2f', $_ } $processor, $elapsed // '';

			$text .= "| $work | $goal | $p | $e |\n";
			push @bars, { label => $work, value => $processor ne '' ? $processor : $elapsed, goal => $goal ne '' ? $goal : undef };
		}
	}
	if (my @registered = $results->of('registered'))
	{
		$text .= "\n## A table with a primary key and nothing else, registered\n\n| | " . join(' | ', map { $_->[1] } @bench::Registered::tables) . " |\n" . '| --- ' x (1 + @bench::Registered::tables) . "|\n";
		for (@registered)
		{
			my ($what, @figures) = @$_;
			my @ratios = splice @figures, @bench::Registered::tables;
			my $plain  = shift @figures;
			$text .= "| $what | $plain | " . join(' | ', map { $what =~ /HOT/ ? $figures[$_] : "$figures[$_] ($ratios[$_])" } 0 .. $#figures) . " |\n";
		}
	}
	if (my @instructions = $results->of('instructions'))
	{
		$text .= "\n## Instructions, by callgrind\n\n| work | the first | the second | ratio |\n| --- | --- | --- | --- |\n";
		$text .= "| $_->[0] | $_->[1] | $_->[2] | $_->[3] |\n" for @instructions;
	}
	if (my @by_hand = $results->of('by hand'))
	{
		$text .= "\n## By hand: thousands of instructions, by callgrind\n\n| | " . join(' | ', map { $_->[1] } @bench::ByHand::contenders) . " |\n" . '| --- ' x (1 + @bench::ByHand::contenders) . "|\n";
		$text .= '| ' . join(' | ', @$_) . " |\n" for @by_hand;
		$text .= "\n| small | container | plain table | ratio |\n| --- | --- | --- | --- |\n";
		$text .= '| ' . join(' | ', @$_) . " |\n" for $results->of('small');
	}
	if (my @scans = $results->of('scans'))
	{
		$text .= "\n## Instructions of scans for a row, by callgrind\n\nOf 50,000 rows none; 1 % stored together; 1 % on all pages; 30 % have expired.\n\n| work | container | plain table | ratio |\n| --- | --- | --- | --- |\n";
		$text .= "| $_->[0] | $_->[1] | $_->[2] | $_->[3] |\n" for @scans;
	}
	if (my @peers = $results->of('peer'))
	{
		$text .= "\n## Others: seconds after its expiry that a row shows, and is stored\n\n| | | shows, median | at most | stored, median | at most |\n| --- | --- | --- | --- | --- | --- |\n";
		$text .= '| ' . join(' | ', @$_) . " |\n" for @peers;
		save("$dir/peers.svg", bench::Plot::bars(title => 'Seconds that an expired row still shows, at most', most => 60, ticks => [ 0, 15, 30, 45, 60 ],
			rows => [ map { { label => $_->[0], value => $_->[3], shown => $_->[3] } } @peers ]));
		$text .= "\n![seconds that an expired row still shows](peers.svg)\n";
	}
	if (@bars)
	{
		save("$dir/ratios.svg", bench::Plot::bars(title => 'Time on a container / time on a plain table', legend => [ 'within its goal (the mark), or without one', 'above its goal' ], most => 2, ticks => [ 0, 0.5, 1, 1.5, 2 ], rows => \@bars, left => 330, width => 800));
		$text .= "\n## All at once\n\n![all ratios](ratios.svg)\n";
	}
	$text .= "\n## How it grows\n\n" if $results->of('point');
	for (@plots)
	{
		my ($name, $title, $x, $y, %o) = @$_;
		my (%points, @curves);

		for ($results->of('point', $name))
		{
			my (undef, $curve, @point) = @$_;
			push @curves, $curve if !$points{$curve};
			push @{ $points{$curve} }, \@point;
		}
		next if !@curves;
		save("$dir/$name.svg", bench::Plot::curves(title => $title, x => $x, y => $y, %o, curves => [ map { [ $_, @{ $points{$_} } ] } @curves ]));
		$text .= "![$title]($name.svg)\n";
	}
	save("$dir/README.md", $text);
	return;
}

1;
