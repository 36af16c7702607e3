# Random.pm - chance, from a seed
#
# Its own generator, so that the same seed makes the same statements whatever
# Perl there is, and whoever else calls rand().
package equivalence::Random;

use strict;
use warnings;

use Exporter 'import';
our @EXPORT = qw(seed between chance any_of some_of shuffled);

my $state = 1;

sub seed
{
	$state = shift;
	between(0, 1) for 1 .. 10;
	return;
}

# A whole number, both limits included
sub between
{
	my ($low, $high) = @_;
	use integer;

	$state = $state * 6364136223846793005 + 1442695040888963407;
	return $low + (($state >> 33) & 0x3fffffff) % ($high - $low + 1);
}

# True in so many cases of a hundred
sub chance
{
	my $percent = shift;
	return between(1, 100) <= $percent;
}

sub any_of
{
	return @_ ? $_[ between(0, $#_) ] : undef;
}

sub shuffled
{
	my @list = @_;

	for my $i (reverse 1 .. $#list)
	{
		my $j = between(0, $i);
		@list[ $i, $j ] = @list[ $j, $i ];
	}
	return @list;
}

# So many of a list, or all if it has fewer
sub some_of
{
	my ($n, @list) = @_;

	@list = shuffled(@list);
	splice(@list, $n) if @list > $n;
	return @list;
}

1;
