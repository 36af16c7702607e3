# Results.pm - what was measured: kept in a file, and shown as tables
#
# data.tsv has a line for each figure, that of one part after that of another; a part that is run
# anew replaces its lines.  README.md and the plots are made of it.
package bench::Results;

use strict;
use warnings;

use bench::Plot;

sub open_in
{
	my ($class, $dir) = @_;
	my $self = bless { dir => $dir, lines => [], part => '' }, $class;

	if (open my $file, '<', "$dir/data.tsv")
	{
		chomp(my @lines = <$file>);
		$self->{lines} = [ map { [ split /\t/, $_, -1 ] } @lines ];
	}
	return $self;
}

# What comes belongs to this part, and replaces what was there of it.
sub begin
{
	my ($self, $part) = @_;

	$self->{part} = $part;
	$self->{lines} = [ grep { $_->[0] ne $part } @{ $self->{lines} } ];
	return;
}

sub add
{
	my ($self, @fields) = @_;

	push @{ $self->{lines} }, [ $self->{part}, @fields ];
	printf "  %s\n", join('  ', @fields);
	return;
}

sub save
{
	my ($self) = @_;

	open my $file, '>', "$self->{dir}/data.tsv" or die "cannot write $self->{dir}/data.tsv: $!\n";
	print $file join("\t", @$_), "\n" for @{ $self->{lines} };
	return;
}

# Time of the container divided by that of the plain table
sub ratio
{
	my ($self, $section, $work, $goal, $processor, $elapsed) = @_;

	$self->add('ratio', $section, $work, $goal, map { defined $_ && $_ ne '' ? sprintf('%.3f', $_) : '' } $processor, $elapsed);
	return;
}

# A point of a curve
sub point
{
	my ($self, $plot, $curve, $x, $y) = @_;

	$self->add('point', $plot, $curve, $x, sprintf('%.4g', $y));
	return;
}

sub fact { my ($self, @what) = @_; $self->add('fact', @what); return }

# Lines of a kind: their fields after it
sub of
{
	my ($self, $kind, $first) = @_;

	return map { [ @$_[ 2 .. $#$_ ] ] } grep { $_->[1] eq $kind && (!defined $first || $_->[2] eq $first) } @{ $self->{lines} };
}

1;
